"""The strides that NumPy gives results, as it gives them to small arrays in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from alight._core import Layout, make_layout
from alight._src.base.originals import np
from alight._src.fp_warnings.filters import warnings_suppressed

__all__ = ["dense_like", "dense_strides", "result_strides"]


def dense_like(layout: Layout, dtype: np.dtype[Any]) -> Layout:
    """Return the layout NumPy gives a copy of an array in K order."""
    return make_layout(dtype, layout.shape, np.empty_like(layout.probe, dtype, "K").strides)


def result_strides(
    function: Callable[..., Any],
    kinds: Sequence[Layout | type],
    shape: tuple[int, ...],
    itemsize: int,
) -> tuple[int, ...] | None:
    """Return the strides NumPy gives the results of a function of arrays of these layouts and
    Python scalars of these types; None means C order.

    NumPy decides, on arrays with the same order of strides and two elements along each axis that
    has more than one. ``shape`` is the result's; its axes must be axes of the operands, in order,
    or of length one.
    """
    layouts = [kind for kind in kinds if isinstance(kind, Layout)]
    if is_plain(layouts, shape):
        return None
    if any(layout.size == 0 for layout in layouts):
        with warnings_suppressed():  # a mean of nothing
            probes = [kind.probe if isinstance(kind, Layout) else kind(1) for kind in kinds]
            result = function(*probes)
            return np.asarray(result[0] if type(result) is tuple else result).strides
    return dense_strides(small_answer(function, kinds), shape, itemsize)


def is_plain(layouts: Sequence[Layout], shape: tuple[int, ...]) -> bool:
    """Tell whether a result of this shape is in C order because its operands are."""
    return all(layout.ordinary and layout.shape == shape for layout in layouts if layout.ndim)


def small_answer(
    function: Callable[..., Any], kinds: Sequence[Layout | type]
) -> np.ndarray[Any, Any]:
    """Return what a function makes of small arrays of ones, in the order of these layouts: its
    dtype is what they would give, and its strides are in their order."""
    operands = [_stand_in(kind) if isinstance(kind, Layout) else kind(1) for kind in kinds]
    with np.errstate(all="ignore"):
        result = function(*operands)
    return np.asarray(result[0] if type(result) is tuple else result)


def dense_strides(
    answer: np.ndarray[Any, Any], shape: tuple[int, ...], itemsize: int
) -> tuple[int, ...]:
    """Return the strides of an array that lies in memory as ``answer`` does, with another shape."""
    sizes = [abs(step) for step in answer.strides]
    strides = []
    for size in sizes:
        step = itemsize if size else 0
        for inner, small, length in zip(sizes, answer.shape, shape, strict=True):
            if small > 1 and inner < size:
                step *= length
        strides.append(step)
    return tuple(strides)


def lying_alike(
    layout: Layout, lengths: Sequence[int], fill: Callable[..., np.ndarray[Any, Any]] = np.ones
) -> np.ndarray[Any, Any]:
    """Return an array of these lengths that lies in memory as a layout does: with the order and the
    signs of its strides, and contiguous or not as it is."""
    order = sorted(range(layout.ndim), key=lambda i: -abs(layout.strides[i]))
    shape = [lengths[i] for i in order]
    # contiguous operands take ways through NumPy that others do not
    apart = layout.ndim > 0 and not layout.probe.flags.forc
    base = fill([*shape, 2] if apart else shape, layout.dtype)
    array = (base[..., 0] if apart else base).transpose(np.argsort(order))
    if layout.ndim:
        array = array[tuple([slice(None, None, -1 if step < 0 else 1) for step in layout.strides])]
    return array


def _stand_in(layout: Layout) -> np.ndarray[Any, Any]:
    """Return a small array of ones with the same order, signs and zeros of strides."""
    array = lying_alike(layout, [min(n, 2) for n in layout.shape])
    still = [step == 0 and n > 1 for step, n in zip(layout.strides, layout.shape, strict=True)]
    if any(still) or layout.probe.flags.forc:
        # Axes of length one keep the strides they came with, translated where they name other axes.
        steps = [0 if s else step for s, step in zip(still, array.strides, strict=True)]
        for i, n in enumerate(layout.shape):
            if n == 1:
                steps[i] = _translate(layout, layout.strides[i])
        array = np.lib.stride_tricks.as_strided(array, array.shape, steps)
    return array


def _translate(layout: Layout, step: int) -> int:
    """Return the stand-in's stride for a stride of an axis of length one."""
    best = layout.itemsize
    passed = layout.itemsize
    small = layout.itemsize
    for i in sorted(range(layout.ndim), key=lambda i: abs(layout.strides[i])):
        if layout.shape[i] > 1 and layout.strides[i]:
            passed *= layout.shape[i]
            small *= 2
            if abs(step) >= passed:
                best = small
    return best if step else 0
