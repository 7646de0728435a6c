"""Recording reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from itertools import pairwise
from typing import Any

from numpy.lib.array_utils import normalize_axis_tuple

from alight._core import Layout, Value, make_layout, native
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.fp_warnings.filters import warnings_suppressed
from alight._src.ir.op_table import Kind, Op
from alight._src.record.pending import as_key, call_there, concrete, pend, record_floor, settled
from alight._src.record.result_strides import result_strides
from alight._src.run import evaluate

_memo: dict[Any, Any] = {}
_KEPT = 1 << 12


def reduction(
    op: Op, value: Value, axis: Any, attrs: Mapping[str, Any], mask: Value | None = None
) -> Value | None:
    """Record a reduction or scan of one value; ``attrs`` are its other keyword arguments, ``mask``
    is what `where=` gave.

    None where NumPy must do it at once. Raises what NumPy raises.
    """
    layout = value.layout
    scan = op.kind is Kind.SCAN
    if axis is None:
        axes: tuple[int, ...] = tuple(range(layout.ndim))
    elif type(axis) is int and -layout.ndim <= axis < layout.ndim:
        axes = (axis % layout.ndim,)
    else:
        try:
            axes = tuple(sorted(normalize_axis_tuple(axis, layout.ndim)))
        except failures(TypeError, ValueError):
            axes = ()
    # An empty operand costs nothing and has the most special cases; bad arguments are NumPy's to
    # word.
    bad_axis = axis is not None and not axes and axis != ()
    bad_axis = bad_axis or (_single(op, axis) and type(axis) is tuple)
    if layout.size == 0 or bad_axis or (scan and (axis is None or layout.ndim == 0)):
        return None
    if mask is not None and not _covers(mask.layout.shape, layout.shape):
        return None
    if _in_half(op, layout, axes, attrs, mask is not None):
        return None
    if op.name in _FREEDOM and (mask is not None or _too_few(layout, axes, attrs)):
        return None  # NumPy says at the call what it has too few elements for
    if settled(value) and layout.size < record_floor() and mask is None:
        array = evaluate.host_array(value)
        function = getattr(op.reference, "__wrapped__", op.reference)  # no frame of ours between
        result = np.asarray(call_there(function, (array,), {"axis": axis, **attrs}))
        return concrete(result) if native(result.dtype) else None
    try:
        given = as_key(tuple(attrs.items()))
        key = (op, layout, axes, None if mask is None else mask.layout, given)
        result_layout = _memo.get(key, _memo)
    except failures(TypeError):  # an attribute that cannot be a key
        return None
    if result_layout is _memo:
        if len(_memo) >= _KEPT:
            _memo.clear()
        result_layout = _memo[key] = _result_layout(op, layout, axis, axes, attrs, mask)
    if result_layout is None:
        return None
    if _single(op, axis):
        recorded = (("axis", None if axis is None else axes[0]), *attrs.items())
    else:
        recorded = (("axis", axes[0] if scan else axes), *attrs.items())
    if mask is not None:
        return pend(op, (value, mask), (*recorded, ("where", True)), result_layout)
    return pend(op, (value,), recorded, result_layout)


def _covers(mask: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(mask, shape) == shape
    except failures(ValueError):
        return False


_FREEDOM = frozenset(("mean", "var", "std"))


def _too_few(layout: Layout, axes: tuple[int, ...], attrs: Mapping[str, Any]) -> bool:
    ddof = attrs.get("ddof", 0)
    return isinstance(ddof, (int, float)) and ddof >= math.prod([layout.shape[i] for i in axes])


_OF_STEPS = frozenset((*_FREEDOM, "nanmean", "nanvar", "nanstd"))


def _in_half(
    op: Op, layout: Layout, axes: tuple[int, ...], attrs: Mapping[str, Any], masked: bool
) -> bool:
    """Tell whether NumPy rounds what is between the steps of an op to half floats: it overflows
    there, where wider numbers that a kernel computes in do not.

    An inner loop computes in single floats, and rounds when it is over: a reduction that is one of
    them rounds once. NumPy before 2.3 starts another one after as many elements as a buffer of it
    has.
    """
    dtype = attrs.get("dtype")
    if dtype is None and op.name == "mean":
        return False  # NumPy takes single floats for it
    if (layout.dtype if dtype is None else dtype) != np.float16:
        return False
    if op.name in _OF_STEPS:
        return True
    if op.combine not in ("add", "multiply"):
        return False
    if op.kind is Kind.SCAN or masked or layout.dtype != np.float16:
        return True
    steps = layout.strides
    order = sorted([i for i, n in enumerate(layout.shape) if n > 1], key=lambda i: abs(steps[i]))
    inner = order[: len([i for i in order if i in axes])]
    if not all([i in axes for i in inner]):
        return True
    if math.prod([layout.shape[i] for i in inner]) > np.getbufsize() and _halves_in_buffers():
        return True
    return any([steps[j] != steps[i] * layout.shape[i] for i, j in pairwise(inner)])


@cache
def _halves_in_buffers() -> bool:
    """Tell whether NumPy rounds what it reduces of half floats after each buffer of them."""
    elements = np.getbufsize()
    values = np.repeat(np.array([6e4, -6e4], "f2"), elements)  # the half of it overflows
    with np.errstate(all="ignore"):
        return bool(np.add.reduce(values) != 0)


_SINGLE_AXIS = frozenset(("argmin", "argmax", "nanargmin", "nanargmax"))


def _single(op: Op, axis: Any) -> bool:
    """Tell whether the op's reference takes one axis or None, not a tuple."""
    return op.name in _SINGLE_AXIS


def _result_layout(
    op: Op,
    layout: Layout,
    axis: Any,
    axes: tuple[int, ...],
    attrs: Mapping[str, Any],
    mask: Value | None,
) -> Layout | None:
    def run(array: np.ndarray[Any, Any], *masks: np.ndarray[Any, Any]) -> Any:
        return op.reference(array, *masks, axis=axis, **attrs)

    # Types, keywords and axes do not depend on the lengths: ask about a single element.
    single = np.ones((1,) * layout.ndim, layout.dtype)
    masks = () if mask is None else (np.ones((1,) * mask.layout.ndim, bool),)
    # Degrees of freedom are all that NumPy warns of here beside what errstate silences.
    few = attrs.get("ddof") or attrs.get("correction")
    with warnings_suppressed() if few else np.errstate(all="ignore"):
        dtype = np.asarray(run(single, *masks)).dtype
    if not native(dtype):
        return None
    if op.kind is Kind.SCAN:
        shape = layout.shape
    elif attrs.get("keepdims"):
        shape = tuple(1 if i in axes else n for i, n in enumerate(layout.shape))
    else:
        shape = tuple(n for i, n in enumerate(layout.shape) if i not in axes)
    if not shape:
        return make_layout(dtype, shape)
    layouts = (layout,) if mask is None else (layout, mask.layout)
    with warnings_suppressed() if few else nullcontext():
        return make_layout(dtype, shape, result_strides(run, layouts, shape, dtype.itemsize))
