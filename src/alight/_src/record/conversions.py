"""What becomes an array, and an array in another dtype, order in memory or shape."""

from __future__ import annotations

import operator
from collections.abc import Callable
from opcode import opmap
from types import FrameType
from typing import Any

from alight._core import ArrayBase, Value, hooks, layout_of, make_layout, native
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.record import storage_io
from alight._src.record.numpy_fallback import array_of, stands_for_scalar
from alight._src.record.pending import (
    COPY,
    array_floor,
    at_hand_below,
    cast,
    concrete,
    loses_imaginary,
    pend,
    record_floor,
)
from alight._src.record.result_strides import dense_like
from alight._src.record.storage_io import apply_view
from alight._src.record.ufunc_calls import exit_to_numpy, make, wrap
from alight._src.run import evaluate

__all__ = ["adopt", "asarray", "astype", "copy_of", "made_of", "refuse_as_index", "reshape", "seen"]

_READS = opmap.get("BINARY_SUBSCR")


def asarray(item: Any, dtype: Any = None, order: Any = None, *, copy: bool | None = None) -> Any:
    """Return an Array of anything NumPy can make an array of; an Array comes back as it is.

    An ndarray is copied: others can write to it, and reads here may happen later. Dtypes alight
    does not compute with (object, string, datetime, structured, longdouble) give plain ndarrays.
    """
    if isinstance(item, ArrayBase):
        if storage_io.is_scalar(item):
            item = array_of(storage_io.read(item))  # of a scalar NumPy makes an array
        if dtype is None and order in (None, "K", "A") and not copy:
            return item
        if dtype is not None and np.dtype(dtype) != layout_of(item).dtype:
            if copy is False:
                raise ValueError("Unable to avoid copy while creating an array as requested.")
            return astype(item, dtype, order or "K", "unsafe", True)
        return copy_of(item, order or "K") if copy or (order or "K") not in ("K", "A") else item
    array = np.array(item, dtype=dtype, order=order or "K", copy=copy if copy is False else None)
    if not native(array.dtype) or type(array) is not np.ndarray:
        return array
    if array is item or array.base is not None:
        array = array.copy("K")
    return hooks.array.of(concrete(array))


def adopt(array: Any) -> Any:
    """Return a fresh ndarray as it is below the floor, or as an Array that takes its memory over.

    This is what `alight run` and `jit` do with the results of creation and loading functions.
    """
    if (
        type(array) is not np.ndarray
        or array.size < array_floor()
        or array.base is not None
        or not array.flags.owndata
        or not array.flags.writeable
        or not native(array.dtype)
    ):
        return array
    return hooks.array.of(concrete(array))


def astype(
    array: ArrayBase, dtype: Any, order: str, casting: str, copy: bool, *, scalar: bool = False
) -> Any:
    """Return a copy of the array cast to a dtype (the array itself where nothing changes and copy
    is False); with ``scalar`` a scalar of what stands for one.
    """
    target = np.dtype(dtype)
    value = storage_io.read(array)
    lay = value.layout
    if (
        not native(target)
        or order not in ("K", "C", "A", "F")
        or not np.can_cast(lay.dtype, target, casting)  # type: ignore[arg-type]
        or loses_imaginary(lay.dtype, target)
    ):
        keywords = {"order": order, "casting": casting, "copy": copy}
        return exit_to_numpy(np.ndarray.astype, (array, dtype), keywords)
    ordered = order == "K" or (lay.c_contiguous and order != "F") or not lay.ndim
    if target == lay.dtype and not copy and ordered:
        return array
    if target.num == lay.dtype.num:  # long and long long are one dtype to NumPy
        return copy_of(array, order, scalar=scalar)
    made = cast(value, target)
    result = made_of(array, made) if scalar else array_of(made)
    if ordered:
        return result
    if order == "A":
        order = "F" if lay.probe.flags.fnc else "C"
    return copy_of(result, order)


def made_of(array: ArrayBase, value: Value) -> Any:
    """Return what stands for a value that was made of an array: a scalar where that is one."""
    lasts = value.layout.ndim == 0 and not stands_for_scalar(array)
    return array_of(value) if lasts else make(value)


def copy_of(array: ArrayBase, order: str, *, scalar: bool = False) -> Any:
    """Return a copy in memory of its own, in NumPy's order; with ``scalar`` a scalar of what stands
    for one."""
    value = storage_io.read(array)
    lay = value.layout
    if order == "C" and lay.size:  # known without memory
        target = make_layout(lay.dtype, lay.shape)
    elif order == "K":
        target = dense_like(lay, lay.dtype)
    else:
        strides = np.empty_like(lay.probe, order=order).strides  # type: ignore[call-overload]
        target = make_layout(lay.dtype, lay.shape, strides)
    if lay.size < (least := record_floor()) and at_hand_below(value, least):
        made = evaluate.host_array(value).copy(order)  # type: ignore[arg-type]
        return wrap(made[()] if scalar and stands_for_scalar(array) else made)
    copy = pend(COPY, (value,), (("order", order),), target)
    return made_of(array, copy) if scalar else array_of(copy)


def reshape(array: ArrayBase, shape: Any, order: str = "C", copy: bool | None = None) -> Any:
    """Return the array with another shape: a view where NumPy gives one, else a copy."""
    probe = layout_of(array).probe
    shape = _plain(shape)
    if copy is not True:
        try:
            return apply_view(array, lambda p: np.reshape(p, shape, order=order, copy=False))  # type: ignore[call-overload]
        except failures(ValueError) as error:
            if "copy" not in str(error) or copy is False:
                raise
    # Laid out in order it is no copy, and NumPy is asked without memory.
    target = np.reshape(make_layout(probe.dtype, probe.shape).probe, shape).shape
    if order == "F" or (order == "A" and probe.flags.fnc):
        return seen(copy_of(array, "F"), lambda p: np.reshape(p, target, order="F", copy=False))
    return seen(copy_of(array, "C"), lambda p: np.reshape(p, target, copy=False))


def seen(whole: Any, expression: Callable[[Any], Any]) -> Any:
    """Return the view that an expression makes of a copy, which is an ndarray where it is small or
    of a dtype that alight does not compute with."""
    return expression(whole) if type(whole) is np.ndarray else apply_view(whole, expression)


def _plain(shape: Any) -> Any:
    if isinstance(shape, ArrayBase):
        return storage_io.host(shape).tolist()
    if type(shape) in (tuple, list) and any(isinstance(n, ArrayBase) for n in shape):
        return tuple(
            [operator.index(storage_io.host(n)) if isinstance(n, ArrayBase) else n for n in shape]
        )
    return shape


def refuse_as_index(array: Any, frame: FrameType) -> None:
    """Raise for what has no elements where an ndarray is read by it, and NumPy would take it for
    integers: it does with all that is empty and no ndarray, and says nothing."""
    kind = array.dtype.kind
    if kind in "iu" or frame.f_code.co_code[frame.f_lasti] != _READS:
        return
    if kind != "b":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if array.ndim != 1:  # as integers one axis of it would select what it does as a mask
        raise IndexError(
            f"NumPy takes an Array of no elements, here a mask of shape {array.shape}, for "
            "integers where it is the index of an ndarray. Fix: make the mask an ndarray, by "
            "numpy.asarray(mask), or the ndarray an Array, by alight.asarray."
        )
