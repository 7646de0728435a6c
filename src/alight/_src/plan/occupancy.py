"""What a kernel takes that is too small for its device: few threads, each of which waits for one
result after the other.

A device with thousands of lanes hides what each operation takes behind those of other threads.
Where there are few of these, operations take as long as they do in one block that has all to
itself, which is measured (``op@lone``): each thread of it waits as long for each of its elements,
however many more there are, and half as long where there are fewer, who share nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from alight._src.ir.op import Kind
from alight._src.plan.passes import BLOCK
from alight._src.plan.workload import body_parts

if TYPE_CHECKING:
    from alight._src.ir.graph import Graph
    from alight._src.plan.passes import Pass
    from alight._src.plan.profile import Rates

__all__ = ["LONE_OPS", "PROCESSOR_THREADS", "lone_seconds"]

# Threads that one multiprocessor has room for: H200 and A100 2048, other cards 1536.
PROCESSOR_THREADS = 2048
# Ops that are timed in one block, and how often one after the other: so often that they take some
# tens of microseconds for 2**16 elements. The first is the reduction itself, which all others end
# in.
LONE_OPS: Mapping[str, int] = {
    "max": 0, "add": 24, "exp": 1, "divide": 8, "sqrt": 8, "sin": 1, "log": 1, "power": 1,
    "tanh": 1,
}  # fmt: skip


def lone_seconds(rates: Rates, graph: Graph, item: Pass) -> float:
    """Return the seconds of a pass beyond its launch if its threads wait for each operation as one
    block that has a device to itself does; 0 where that was not measured."""
    near = rates.nearest["max@lone", item.dtype]
    if near is None or not item.threads:
        return 0.0
    dtype = near.partition("/")[2]

    def unit(name: str) -> float | None:
        found = rates.work.get(f"{name}@lone/{dtype}")
        return None if found is None else found.value

    seconds, simple = 0.0, unit("add") or 0.0
    for node, count in zip(item.nodes, item.counts, strict=True):
        one: float | None = simple * node.op.flops
        if node.op.kind is Kind.REDUCTION:
            one = unit("max")
            if one is not None:
                # Little but the wait for what it reads, as long for each array (random walks by 16
                # of these: 2.0 ns an element in float32 and 6.3 in float64, 1.2 and 4.3 without).
                one *= max(1, _arrays(graph, count))
        elif node.op.name in LONE_OPS or node.op.special:
            one = unit(node.op.name if node.op.name in LONE_OPS else "exp")
            if one is None:  # there was no time for it: as long as the operations of its body
                one = simple * sum(body_parts(graph, node))
        seconds += (one or 0.0) * count
    # Warps of 32 threads go to four schedulers, so that two of a block share one: below that each
    # waits for its own operations alone (H200: sums of products of 1024 float64 took 32 threads
    # 0.3 to 1.0 us beyond a launch, which were 1.2 if each shared its scheduler).
    return seconds * min(max(item.threads, BLOCK / 2), BLOCK) / item.threads


def _arrays(graph: Graph, elements: float) -> int:
    """Return how many of the arrays that are read have so many elements."""
    return sum([layout.size >= elements for layout in graph.inputs])
