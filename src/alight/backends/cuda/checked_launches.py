"""Launches made ready, and graphs captured of them, checked by symbols: what each parameter points
to is read back from the memory that the driver reads."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from alight._core import make_layout
from alight._src.base.originals import np
from alight._src.ir.well_formed import reach
from alight._src.plan.contents import Contents, Operand, Place
from alight.errors import PlanError

if TYPE_CHECKING:
    from alight.backends.base import LaunchSequence
    from alight.backends.cuda.launch_sequence import CudaSequence
    from alight.backends.cuda.mixed_replay import CudaParts, _Call, _Kernels

__all__ = ["counts", "prove", "prove_parts"]

# How many sequences, graphs and plans with calls of a library were proven in this process.
counts = {"sequences": 0, "graphs": 0, "parts": 0}

_ARENA = "the card"
_BYTE = np.dtype(np.uint8)
_POINTERS = 9  # of a launch's arguments (`CudaSequence._parameters`)


class _Somewhere(NamedTuple):
    address: int


def prove(
    sequence: CudaSequence, work: LaunchSequence, addresses: Sequence[int] | None = None
) -> None:
    """Raise PlanError unless launches find what they want and leave what is wanted, for arrays at
    these addresses, as a graph was captured for, or at any that are apart."""
    counts["sequences" if addresses is None else "graphs"] += 1
    sizes = [*sequence._sizes, *sequence._inner_sizes]
    count = len(work.given)
    if addresses is None:
        # apart, and far from one another, so that what lands outside of one lands nowhere
        given, own = (
            [_Somewhere((first + place + 1) << 40) for place in range(many)]
            for first, many in ((0, count), (count, len(sizes)))
        )
        addresses = sequence._addresses(given, own)  # type: ignore[arg-type]
    elif tuple(sequence._table) != tuple(addresses):
        raise PlanError(
            f"a graph was captured for arrays at {tuple(sequence._table)}, not at "
            f"{tuple(addresses)}. Fix: report this program, in which alight is wrong.",
            "a graph's capture",
        )
    memory = Contents()
    _put(memory, work, addresses)
    made = addresses[count + len(work.views) :]
    for place, (size, address) in enumerate(zip(sizes, made, strict=True)):
        memory.add(_ARENA, address, address + size, f"result {place}")
    for number, (source, offset) in work.views.items():
        memory.view(number, source, offset)
    _follow(memory, sequence, work, addresses, int)
    memory.step = "at the end"
    for number, own_place in zip(work.wanted, sequence._wanted, strict=True):
        memory.holds(number, Place(_ARENA, made[own_place], work.layouts[number]))


def prove_parts(parts: CudaParts, work: LaunchSequence) -> None:
    """Raise PlanError unless kernels and calls of the library find what they want in what the parts
    before them have left, of which what is given back is gone."""
    counts["parts"] += 1
    memory, count = Contents(), len(work.given)
    places = (place << 40 for place in itertools.count(1))  # far from one another
    known = {number: next(places) for number in range(count)}
    _put(memory, work, [known[number] + offset for number, (_, offset) in enumerate(work.given)])
    for number, (source, offset) in work.views.items():
        memory.view(number, source, offset)
    steps = iter(work.launches)
    for index, (part, ends) in enumerate(zip(parts._parts, parts._ends, strict=True)):
        memory.step = f"part {index}"
        for base in part.bases:
            if base not in known:
                memory.refuse(f"reads %{base}, which is not there", None, base)
        if hasattr(part, "sequence"):
            kernels = cast("_Kernels", part)
            _follow_kernels(memory, kernels, known, places)
            for _ in kernels.work.launches:
                next(steps)
        else:
            _follow_call(memory, part, next(steps), known, next(places))
        for number in ends:
            address = known.pop(number)
            if number >= count:  # what is given is others' as well
                memory.drop(_ARENA, address, address + 1)
    memory.step = "at the end"
    for number, own_number in zip(work.wanted, parts._wanted, strict=True):
        if own_number not in known:
            memory.refuse(f"%{own_number} is wanted, and given back", None, own_number)
        layout, offset = work.given[number] if number < count else (work.layouts[number], 0)
        memory.holds(number, Place(_ARENA, known[own_number] + offset, layout))


def _follow_kernels(
    memory: Contents, part: _Kernels, known: dict[int, int], places: Iterator[int]
) -> None:
    """Follow launches for the arrays that are there; what they make for others is there then."""
    sequence, step = part.sequence, memory.step
    sizes = [*sequence._sizes, *sequence._inner_sizes]
    own = [next(places) for _ in sizes]
    for size, address in zip(sizes, own, strict=True):
        memory.add(_ARENA, address, address + size, f"what {step} makes")
    given = [_Somewhere(known[base]) for base in part.bases]
    made = [_Somewhere(address) for address in own]
    addresses = sequence._addresses(given, made)  # type: ignore[arg-type]
    _follow(memory, sequence, part.work, addresses, part.names.__getitem__)
    wanted = [own[place] for place in sequence._wanted]
    known.update(zip(part.makes, wanted, strict=True))
    for address in own:
        if address not in wanted:
            memory.drop(_ARENA, address, address + 1)


def _follow_call(
    memory: Contents,
    part: _Call,
    step: tuple[Any, Sequence[int], Sequence[int]],
    known: dict[int, int],
    address: int,
) -> None:
    """Follow a call of the library, whose result lies at an address of its own."""
    kernel, inputs, (output,) = step
    *layouts, layout = kernel.layouts
    operands = [
        Operand(number, Place(_ARENA, known[base] + offset, one))
        for number, (base, offset), one in zip(inputs, part.reads, layouts, strict=True)
    ]
    memory.add(_ARENA, address, address + layout.nbytes, f"what {memory.step} makes")
    memory.launch(operands, [(output, Place(_ARENA, address, layout))])
    known[part.makes] = address


def _follow(
    memory: Contents,
    sequence: CudaSequence,
    work: LaunchSequence,
    addresses: Sequence[int],
    name: Callable[[int], int],
) -> None:
    """Follow launches whose table has these addresses; ``name`` says what an array of theirs goes
    by."""
    before = "" if memory.step == "at the start" else f"{memory.step}, "
    table = ctypes.addressof(sequence._table)
    cells = {table + 8 * place: address for place, address in enumerate(addresses)}
    launches = iter(sequence._launches)
    for index, (kernel, inputs, outputs) in enumerate(work.launches):
        memory.step = f"{before}launch {index}"
        numbers = (*inputs, *outputs)
        by_value = {i for i in kernel.scalars if inputs[i] in work.fixed}
        offsets = [sequence.placed[number] for number in inputs]
        scratch, calls = kernel.program((*offsets, *(0,) * len(outputs)), tuple(sorted(by_value)))
        for _ in calls:  # each of a kernel's calls has all of its operands, and partial results
            arguments = next(launches)
            pointers = (ctypes.c_void_p * (len(numbers) + len(scratch))).from_address(
                arguments[_POINTERS]
            )
            places = [cells.get(pointer or 0) for pointer in pointers]
            operands: list[Operand] = []
            results: list[tuple[Hashable, Place]] = []
            for position, (number, found) in enumerate(zip(numbers, places, strict=False)):
                if position in by_value:
                    continue
                layout = kernel.layouts[position]
                lies = Place(_ARENA, -1 if found is None else found, layout)
                if position < len(inputs):
                    operands.append(Operand(name(number), lies))
                else:
                    results.append((name(number), lies))
            for nbytes, found in zip(scratch, places[len(numbers) :], strict=True):
                whole = make_layout(_BYTE, (nbytes,))
                lies = Place(_ARENA, -1 if found is None else found, whole)
                results.append((("partial results", index, found), lies))
            memory.launch(operands, results)


def _put(memory: Contents, work: LaunchSequence, addresses: Sequence[int]) -> None:
    """Put what is given where it lies: arrays that overlap are one piece of memory."""
    spans = []
    for number, (layout, _) in enumerate(work.given):
        low, high = reach(layout)
        if layout.size:
            spans.append((addresses[number] + low, addresses[number] + high, number))
    pieces: list[list[int]] = []
    for low, high, number in sorted(spans):
        if pieces and low < pieces[-1][1]:
            pieces[-1][1] = max(pieces[-1][1], high)
        else:
            pieces.append([low, high])
        memory.view(number, ("given", pieces[-1][0]), addresses[number] - pieces[-1][0])
    for low, high in pieces:
        memory.add(_ARENA, low, high, "memory given", ("given", low))
