"""How much may be pending: past so many ops, or so many bytes that they hold, all is evaluated."""

from __future__ import annotations

from collections import Counter

from alight._core import Value, floor, pending_storages, sole
from alight._src.base.uninterrupted import bring
from alight._src.run.evaluate import evaluate_all, watch

__all__ = ["enough"]

# Not known yet: whoever records is sent to `enough`, which learns it.
floor.budget = 0

# What may wait, in bytes; not known yet.
most_bytes = 0
# Of that, what NumPy would have dropped by now: operands that only results have which wait, beyond
# what these will take. A quarter of the 64 MB more than NumPy's that a program may have, as much as
# memory for results that is kept for later (SLACK, kept_blocks.c).
MORE_BYTES = 16 << 20
# Between two looks, as elements of float64 that are recorded. A look takes 3 us and 0.4 for each op
# that waits, of 3 ms and more in which so many are written (10 GB/s).
LOOK_ELEMENTS = (32 << 20) // 8


def enough() -> None:
    """Make every live pending storage concrete where many ops are pending, or what they hold is
    much, or more than NumPy would hold."""
    if not floor.budget:
        _learn_limits()
    many = floor.count >= floor.limit
    if not many:
        # What was recorded need not come to exist: what is inside of a kernel never does. An
        # expression's own temporaries count too, though only a flush makes them exist: up to
        # 7/8 nothing is done, and it is counted anew an eighth later.
        made, read = _held_bytes()
        more = read - made
        if made + read <= most_bytes - most_bytes // 8 and (floor.traced or more <= MORE_BYTES):
            floor.pending = 0
            return
    # What the core records comes by no other look at the clock: here, before so many are planned.
    if many and floor.traced and watch.by is not None:
        watch.by.recorded()
    evaluate_all()


def _learn_limits() -> None:
    global most_bytes
    bring("alight._src.plan.fuse")
    from alight._src.plan.fuse import KERNEL_NODES
    from alight.backends.machine import host_memory

    # A kernel holds no more ops than this, so a longer graph would be cut into several anyway.
    floor.limit = KERNEL_NODES
    # Pending results may come to exist together: an eighth of what is free, as float64, leaves room
    # for their inputs and for the host pool, which has another eighth.
    most_bytes = max(1, host_memory()[0] // 8)
    floor.budget = max(1, min(LOOK_ELEMENTS, most_bytes // 8 // 8))


def _held_bytes() -> tuple[int, int]:
    """Return the bytes that live pending storages are to have, and of those that are kept only to
    be read for them."""
    ready = [s.value for s in pending_storages() if s.value.error is None]
    # What a jitted function has names for dies with it, but for its results.
    made = 0 if floor.traced else sum([value.layout.nbytes for value in ready])
    read = 0
    seen = {id(value) for value in ready}
    leaves: dict[int, Value] = {}
    readers: Counter[int] = Counter()
    while ready:
        for operand in ready.pop().operands:
            if operand.op is None:
                leaves[id(operand)] = operand
                readers[id(operand)] += 1
            elif id(operand) not in seen:
                seen.add(id(operand))
                ready.append(operand)
    for leaf in leaves.values():
        if leaf.data is not None and sole(leaf, 1 + readers[id(leaf)]):
            read += leaf.layout.nbytes
    return made, read
