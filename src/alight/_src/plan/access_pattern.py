"""How a nest of loops goes through arrays: inner loops, and what their operands do along them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from alight._src.base.records import dataclass
from alight._src.ir.graph import steps_of

if TYPE_CHECKING:
    from alight._core import Layout

# Memory moves in lines of this many bytes on every CPU and GPU met so far.
LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Runs:
    """Inner loops over arrays: ``starts`` of them, each over ``length`` elements, at least one: of
    no elements there are no loops.

    Of the operands, ``near`` go backwards or take every second to fourth element along them, and
    ``far`` have other distances; the rest goes from one element to the next or stays. ``back`` of
    them go backwards. ``torn`` do not join from one inner loop to the next as those of a whole
    array do; of a reduction those that it reads and that do not stay. ``turned`` of those that are
    far have neighbours in other inner loops; a line is used up after ``side`` others. ``again`` are
    bytes for an element that other inner loops read again. ``still`` of the inputs stay where
    they are, beside others that do not. ``wide`` are the bytes for an element, up to a line, of
    those inputs that are near or far and not turned.
    """

    starts: int
    length: int
    near: int
    far: int
    back: int = 0
    torn: int = 0
    turned: int = 0
    side: int = 0
    again: int = 0
    still: int = 0
    wide: int = 0


@lru_cache(maxsize=4096)
def runs_of(
    shape: tuple[int, ...],
    inputs: tuple[Layout, ...],
    outputs: tuple[Layout, ...],
    reduced: tuple[int, ...] | None = None,
    counted: bool = False,
) -> Runs:
    """Return how a nest over ``shape`` goes through arrays that broadcast to it.

    Axes go by the distances of their elements, the results' first, and join where all operands let
    them, kept ones with kept ones and reduced ones with reduced ones. ``outputs`` of a reduction
    lack the ``reduced`` axes, or have them with length one; where elements are ``counted`` along
    these, as for a place among them, they stay in their order.
    """
    if 0 in shape:
        return Runs(0, 1, 0, 0)
    steps = [steps_of(layout, shape) for layout in inputs]
    steps += [steps_of(layout, shape, reduced or ()) for layout in outputs]
    first = 0 if reduced is not None else len(inputs)
    gone = frozenset(reduced or ())
    axes = _of_axes(shape, steps, gone)
    axes.sort(key=lambda axis: [-abs(step) for step in (*axis[1][first:], *axis[1][:first])])
    if counted:
        own = iter(
            [
                (n, moves, True)
                for n, moves, is_reduced in _of_axes(shape, steps, gone)
                if is_reduced
            ]
        )
        axes = [next(own) if axis[2] else axis for axis in axes]
    merged: list[tuple[int, tuple[int, ...], bool]] = []
    for n, moves, is_reduced in axes:
        if merged and merged[-1][2] is is_reduced:
            outer = merged[-1]
            if all(a == b * n for a, b in zip(outer[1], moves, strict=True)):
                merged[-1] = (outer[0] * n, moves, is_reduced)
                continue
        merged.append((n, moves, is_reduced))
    if not merged:
        return Runs(1, 1, 0, 0)
    length, moves, _ = merged[-1]
    starts = 1
    for n, _, _ in merged[:-1]:
        starts *= n
    near = far = back = turned = side = again = wide = 0
    for i, (layout, step) in enumerate(zip((*inputs, *outputs), moves, strict=True)):
        times, rest = divmod(step, layout.itemsize or 1)
        if rest or times not in (0, 1):
            close = not rest and times in (-1, 2, 3, 4)
            near, far, back = near + close, far + (not close), back + (step < 0)
            others = [abs(steps[i]) for _, steps, _ in merged[:-1]]
            least = min(filter(None, others), default=LINE_BYTES)
            if least < LINE_BYTES <= abs(step):
                turned += 1
                side = max(side, min(length, abs(step) // least))
            elif least < abs(step):
                again += abs(step)
            elif step > 0 and i < len(inputs):
                wide += min(step, LINE_BYTES)
    every = range(len(steps))
    moved = every if reduced is None else [i for i in every[: len(inputs)] if moves[i]]
    torn = sum(any(a[1][i] != b[1][i] * b[0] for a, b in pairwise(merged)) for i in moved)
    still = sum(step == 0 for step in moves[: len(inputs)]) if any(moves[: len(inputs)]) else 0
    return Runs(starts, length, near, far, back, torn, turned, side, again, still, wide)


def _of_axes(
    shape: Sequence[int], steps: Sequence[Sequence[int]], reduced: frozenset[int]
) -> list[tuple[int, tuple[int, ...], bool]]:
    """Return length, steps, and whether it is reduced, of each axis that is longer than one."""
    return [(n, tuple([s[i] for s in steps]), i in reduced) for i, n in enumerate(shape) if n != 1]


@lru_cache(maxsize=4096)
def touched_bytes(layout: Layout) -> int:
    """Return the bytes that going through a layout moves: a broadcast axis counts once, elements
    that lie apart count with what lies between them, up to a line."""
    run, count, apart = _rows(layout)
    return count * (min(apart, LINE_BYTES) if apart and run == layout.itemsize else run)


@lru_cache(maxsize=4096)
def between_bytes(layout: Layout) -> int:
    """Return the bytes between rows of elements that lie apart, up to the lines that they touch:
    they are moved out of memory, and cost nothing in the caches."""
    run, count, apart = _rows(layout)
    if not apart or run == layout.itemsize:
        return 0
    # a row that begins at any of its elements' places in a line ends in as much more of another
    return count * (min(apart, LINE_BYTES + run - layout.itemsize) - run)


def _rows(layout: Layout) -> tuple[int, int, int]:
    """Return the bytes of the rows that a layout consists of, how many there are, and the bytes
    from one to the next: 0 where there is one."""
    if not layout.size:
        return 0, 0, 0
    axes = sorted(
        (abs(stride), length)
        for length, stride in zip(layout.shape, layout.strides, strict=True)
        if stride and length > 1
    )
    run, count, apart = layout.itemsize, 1, 0
    for step, length in axes:
        if not apart and step <= run:
            run += step * (length - 1)
        else:
            apart, count = apart or step, count * length
    return run, count, apart
