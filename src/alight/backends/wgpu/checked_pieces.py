"""The pieces in which a launch is dispatched, checked: together they make each element of the
results once, each from its own operands, and none reaches outside of what is bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from alight._core import make_layout
from alight._src.base.originals import np
from alight._src.plan.byte_sets import ByteSet, bytes_of
from alight.errors import PlanError

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest
    from alight.backends.wgpu.wgpu_backend import WgpuKernel

__all__ = ["Pieces", "counts", "proven"]

Pieces = Callable[["WgpuKernel", Sequence[int], int], "Iterable[tuple[Nest, list[int]]]"]

# How many launches were proven in this process.
counts = {"launches": 0}


def proven(pieces: Pieces) -> Pieces:
    """Return the same function; what it gives was checked. It raises PlanError where it is
    wrong."""

    def checked(
        kernel: WgpuKernel, offsets: Sequence[int], most: int
    ) -> Iterable[tuple[Nest, list[int]]]:
        found = list(pieces(kernel, offsets, most))
        _prove(kernel, offsets, most, found)
        return found

    return checked


def _prove(
    kernel: WgpuKernel, offsets: Sequence[int], most: int, found: Sequence[tuple[Nest, list[int]]]
) -> None:
    counts["launches"] += 1
    whole, sizes = kernel.shape, kernel.itemsizes
    inputs = len(kernel.group.graph.inputs)
    left = [
        _touched(whole.dims, strides, start, size)
        for strides, start, size in zip(whole.strides, offsets, sizes, strict=True)
    ]
    every = [*left]
    for number, (shape, starts) in enumerate(found):
        index = _index(whole, shape, starts[inputs] - offsets[inputs], whole.strides[inputs])
        for operand, (strides, start, size) in enumerate(
            zip(shape.strides, starts, sizes, strict=True)
        ):
            part = _touched(shape.dims, strides, start, size)
            moved = sum([i * step for i, step in zip(index, strides, strict=True)])
            if not part.within(every[operand]) or start - offsets[operand] != moved:
                _refuse(f"piece {number} has operand {operand} at bytes {part}")
            if part.high - part.low > most:
                _refuse(f"piece {number} binds {part.high - part.low} bytes, the most are {most}")
            if operand >= inputs:
                if not part.within(left[operand]):
                    _refuse(f"piece {number} makes elements of operand {operand} again")
                left[operand] = left[operand] - part
    for operand in range(inputs, len(left)):
        if left[operand]:
            _refuse(f"no piece makes bytes {left[operand]} of operand {operand}")


def _touched(dims: Sequence[int], strides: Sequence[int], start: int, size: int) -> ByteSet:
    layout = make_layout(np.dtype(f"V{size}"), tuple(dims), tuple(strides))
    return bytes_of(start, layout)


def _index(whole: Nest, piece: Nest, moved: int, strides: Sequence[int]) -> list[int]:
    """Return where in the nest a piece begins, told by how far its first result lies."""
    index = [0] * len(whole.dims)
    for axis in sorted(range(len(index)), key=lambda i: -abs(strides[i])):
        if piece.dims[axis] < whole.dims[axis] and strides[axis]:
            index[axis], moved = moved // strides[axis], moved % strides[axis]
    return index


def _refuse(what: str) -> NoReturn:
    raise PlanError(f"a launch: {what}. Fix: report this program, in which alight is wrong.")
