"""Reductions and scans: calls of them in NumPy's own form, and how they are recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache, lru_cache, partial
from itertools import pairwise
from typing import Any

from numpy.lib.array_utils import normalize_axis_tuple

from alight._core import (
    ArrayBase,
    Layout,
    Value,
    floor,
    layout_of,
    make_layout,
    native,
    recording_errstate,
)
from alight._src.base.failures import failures
from alight._src.base.originals import ndarray_method, np
from alight._src.fp_warnings.filters import collected, warnings_suppressed, when_to_warn
from alight._src.ir.op_table import OPS, Kind, Op, Warns
from alight._src.record.dead_operands import temporary
from alight._src.record.numpy_fallback import exit_to_numpy, run_in_numpy
from alight._src.record.pending import (
    OUTRIGHT,
    WEAK,
    as_key,
    at_hand_below,
    call_there,
    concrete,
    loses_imaginary,
    manners,
    pend,
    record_floor,
)
from alight._src.record.result_strides import dense_strides, is_plain, small_answer
from alight._src.record.storage_io import assign, no_scalar
from alight._src.record.ufunc_calls import at_once, make, operand, small
from alight._src.run import evaluate

# What `ufunc.reduce` and `ufunc.accumulate` are called in the table.
REDUCES = {
    "add": "sum", "multiply": "prod", "minimum": "min", "maximum": "max", "logical_or": "any",
    "logical_and": "all",
}  # fmt: skip
ACCUMULATES = {"add": "cumsum", "multiply": "cumprod"}


@lru_cache(None)
def numpy_function(name: str, of_ndarray: bool = False) -> Callable[..., Any]:
    """Return NumPy's own function for a reduction or scan of the table, or ndarray's method."""
    method, _, ufunc = name.partition("_")
    if method in ("reduce", "accumulate"):
        return getattr(getattr(np, ufunc), method)  # type: ignore[no-any-return]
    function: Callable[..., Any] = getattr(np, name)
    return ndarray_method(name, function) if of_ndarray else function


# Keywords of reductions that cannot hold arrays.
_ATTRIBUTES = frozenset(("dtype", "keepdims", "ddof", "correction"))
# Those that leave NumPy as quick as it is.
_AS_QUICK = frozenset(("keepdims",))


def reduce_call(
    name: str, array: Any, axis: Any, out: Any, kwargs: dict[str, Any], named: bool = False
) -> Any:
    """Return a reduction or scan of an array; ``kwargs`` hold only what the caller gave.
    ``named``: its caller was itself given keywords."""
    recorded = None
    if out is not None and manners.scalar is not None:
        out = no_scalar(out)
    ours = isinstance(array, ArrayBase)
    # The method does without the function's checks, and warns of what is empty at its caller's
    # line.
    function = numpy_function(name, ours and "correction" not in kwargs)
    least = record_floor()
    if not ours or least > 0:
        if out is None and kwargs.keys() <= _ATTRIBUTES:
            if kwargs.keys() <= _AS_QUICK:
                more = len(kwargs) + (axis is not None)
                least = floor.paced(name, array, more, least)
            found = at_once(function, (array,), {"axis": axis, **kwargs}, least)
            if found is not NotImplemented:
                return found
        if small((array, out, kwargs.get("where"))):
            keywords = {"axis": axis, **kwargs, **({} if out is None else {"out": out})}
            return run_in_numpy(function, (array,), keywords)
    records = OPS[name].warns is not Warns.IN_WORDS
    if recording_errstate() is not None:
        records = records or when_to_warn() == "later"
    else:
        records = records and "where" not in kwargs and collected()
    if records and (out is None or isinstance(out, ArrayBase)):
        try:
            recorded = _recorded_reduction(OPS[name], array, axis, kwargs)
        except failures():
            if out is None:
                raise
            # its dtype may make a call right that is wrong without
    if recorded is None:
        keywords = {"axis": axis, **kwargs}
        if out is not None:
            keywords["out"] = out
        if ours and not layout_of(array).size:  # empty
            return run_in_numpy(function, (array,), keywords)
        return exit_to_numpy(numpy_function(name), (array,), keywords)
    if out is None:
        # a body that was given up has had what it makes for scalars since this call began
        once = floor.scalars and record_floor() != OUTRIGHT
        dying = once and recorded.layout.ndim == 0 and temporary(array, named)
        return make(recorded, array if dying else None)
    lay = layout_of(out)
    if (
        # NumPy computes in the dtype of `out`, and rounds to it between a mean's steps.
        lay.dtype != recorded.layout.dtype
        or lay.dtype == np.float16
        or lay.shape != recorded.layout.shape
        or (out.window is not None and not out.window.writeable)
    ):
        return exit_to_numpy(numpy_function(name), (array,), {"axis": axis, "out": out, **kwargs})
    assign(out, recorded)
    return out


def given(**keywords: Any) -> dict[str, Any]:
    """Return the keywords that differ from what NumPy does without them."""
    return {
        key: value
        for key, value in keywords.items()
        if value is not None
        and value is not np._NoValue
        and not (key == "keepdims" and value is False)
        and not (key == "where" and value is True)
    }


def _negative_zero(item: Any) -> bool:
    """Tell whether a scalar has a part that is -0.0: 0.0 as a key, and another start of a sum."""
    if type(item) is complex:
        return _negative_zero(item.real) or _negative_zero(item.imag)
    return type(item) is float and item == 0 and math.copysign(1.0, item) < 0


def _recorded_reduction(op: Op, array: Any, axis: Any, kwargs: Mapping[str, Any]) -> Value | None:
    whole = isinstance(array, ArrayBase) and array.window is None
    value = array.storage.value if whole else operand(array)
    if not isinstance(value, Value):
        return None
    if isinstance(axis, np.integer):
        axis = int(axis)
    if not (axis is None or type(axis) in (int, tuple)):
        return None
    mask = None
    attrs = {}
    for key, item in kwargs.items():
        if key == "where":
            if item is True:
                continue
            mask = operand(item)
            if not isinstance(mask, Value) or mask.layout.dtype != np.bool_:
                return None
        elif key == "dtype":
            if item is None:
                continue
            attrs[key] = np.dtype(item)
            if not native(attrs[key]) or loses_imaginary(value.layout.dtype, attrs[key]):
                return None
        elif key == "correction":
            if "ddof" in kwargs or isinstance(item, ArrayBase):
                return None
            attrs["ddof"] = item
        elif key == "keepdims":
            if type(item) not in (bool, int):
                return None
            if item:
                attrs[key] = True
        elif key == "out":
            return None
        else:
            if isinstance(item, np.generic):
                item = item.item()
            if type(item) not in WEAK or _negative_zero(item):
                return None
            # one NaN for all: others equal nothing, and plans are found by equal attributes
            attrs[key] = math.nan if type(item) is float and item != item else item
    return reduction(op, value, axis, attrs, mask)


# Their references take one axis or None, not a tuple.
_SINGLE_AXIS = frozenset(("argmin", "argmax", "nanargmin", "nanargmax"))
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
    bad_axis = bad_axis or (op.name in _SINGLE_AXIS and type(axis) is tuple)
    if layout.size == 0 or bad_axis or (scan and (axis is None or layout.ndim == 0)):
        return None
    if mask is not None and not _covers(mask.layout.shape, layout.shape):
        return None
    if _in_half(op, layout, axes, attrs, mask is not None):
        return None
    if op.name in _FREEDOM and (mask is not None or _too_few(layout, axes, attrs)):
        return None  # NumPy says at the call what it has too few elements for
    if mask is None and layout.size < (least := record_floor()) and at_hand_below(value, least):
        array = evaluate.host_array(value)
        function = _function_of(op, None)  # no frame of ours between
        result = np.asarray(call_there(function, (array,), {"axis": axis, **attrs}))
        return concrete(result) if native(result.dtype) else None
    try:
        given: Any = tuple(attrs.items())
        if "dtype" in attrs:
            given = as_key(given)
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
    if op.name in _SINGLE_AXIS:
        recorded = (("axis", None if axis is None else axes[0]), *attrs.items())
    else:
        recorded = (("axis", axes[0] if scan else axes), *attrs.items())
    if mask is not None:
        return pend(op, (value, mask), (*recorded, ("where", True)), result_layout)
    return pend(op, (value,), recorded, result_layout)


def _function_of(op: Op, mask: Value | None) -> Any:
    """Return what computes an op: NumPy's own function, where no mask is among its operands."""
    return op.reference if mask is not None else getattr(op.reference, "__wrapped__", op.reference)


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


def _result_layout(
    op: Op,
    layout: Layout,
    axis: Any,
    axes: tuple[int, ...],
    attrs: Mapping[str, Any],
    mask: Value | None,
) -> Layout | None:
    if op.kind is Kind.SCAN:
        shape = layout.shape
    elif attrs.get("keepdims"):
        shape = tuple([1 if i in axes else n for i, n in enumerate(layout.shape)])
    else:
        shape = tuple([n for i, n in enumerate(layout.shape) if i not in axes])
    layouts = (layout,) if mask is None else (layout, mask.layout)
    plain = not shape or is_plain(layouts, shape)
    # Degrees of freedom are all that NumPy warns of here beside what errstate silences.
    few = attrs.get("ddof") or attrs.get("correction")
    with warnings_suppressed() if few else nullcontext():
        answer = small_answer(partial(_function_of(op, mask), axis=axis, **attrs), layouts)
    dtype = answer.dtype
    if not native(dtype):
        return None
    if plain:
        return make_layout(dtype, shape)
    return make_layout(dtype, shape, dense_strides(answer, shape, dtype.itemsize))
