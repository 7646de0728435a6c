"""Indexing: every form NumPy has. Basic keys give views, the others gather or scatter."""

from __future__ import annotations

import operator
from typing import Any

from alight._core import ArrayBase, Value, at_hand, floor, layout_of, native
from alight._src.base.failures import failures, ignoring_failures
from alight._src.base.originals import np
from alight._src.record.device_indexing import drops_imaginary, get_there, set_there
from alight._src.record.pending import (
    OUTRIGHT,
    array_floor,
    at_hand_below,
    call_there,
    concrete,
    manners,
    record_floor,
    shape_of,
    site,
)
from alight._src.record.storage_io import (
    apply_view,
    assign,
    at_once,
    check_writeable,
    export,
    host,
    looked_at,
    may_meet,
    opened,
    read,
    settle_given_up,
    view_of,
)
from alight.backends.registry import only_host

_BASIC = (int, slice, type(None), type(Ellipsis))


def _is_basic(part: Any) -> bool:
    return type(part) in _BASIC or (
        isinstance(part, (np.integer, int)) and not isinstance(part, (bool, np.bool_))
    )


def plain_key(key: Any) -> Any:
    """Return the key with arrays of ours replaced by ndarrays (0-d integers, and objects that are
    one, by integers)."""
    if isinstance(key, ArrayBase):
        array = host(key)
        return array[()] if array.ndim == 0 else array
    if type(key) is tuple:
        return tuple([plain_key(part) for part in key])
    if type(key) is list:
        return [plain_key(part) for part in key]
    if isinstance(key, slice) and any(
        isinstance(end, ArrayBase) for end in (key.start, key.stop, key.step)
    ):
        return slice(*[plain_key(end) for end in (key.start, key.stop, key.step)])
    if hasattr(key, "__index__") and not isinstance(key, (bool, np.generic, np.ndarray)):
        with ignoring_failures():  # tensors have it, and refuse it where they are no integer
            return operator.index(key)  # NumPy gives a view for it, as for an integer
    return key


def _basic_key(key: Any) -> tuple[bool, bool]:
    """Tell whether a key is basic, and whether it picks one element (integers only)."""
    if type(key) is tuple:
        basic = all([_is_basic(part) for part in key])
        return basic, basic and not any(
            [isinstance(p, (slice, type(None), type(...))) for p in key]
        )
    return _is_basic(key), isinstance(key, (int, np.integer)) and not isinstance(key, bool)


def getitem(array: ArrayBase, key: Any) -> Any:
    """Return ``array[key]`` with NumPy's meaning: a view, an element or a copy."""
    basic, integers = _basic_key(key)
    if not basic:
        found = get_there(array, key)
        if found is not NotImplemented:
            return found
        key = plain_key(key)
        basic, integers = _basic_key(key)
    lay = layout_of(array)
    if basic:
        if integers:
            count = len(key) if type(key) is tuple else 1
            if count == lay.ndim:
                return _element(array, key)
            window = lay.probe[(*key, ...) if type(key) is tuple else (key, ...)]
        else:
            window = lay.probe[key]
        if floor.traced and record_floor() == OUTRIGHT:
            settle_given_up(array.storage)
            return export(array)[key]
        return view_of(array, window, lay.probe)
    return _gather(array, key)


def _element(array: ArrayBase, key: Any) -> Any:
    lay = layout_of(array)
    window = lay.probe[(*key, ...) if type(key) is tuple else (key, ...)]  # NumPy's own IndexError
    if floor.traced or only_host() or at_hand(array) is not None:
        scalar = host(array)[key]
    else:
        scalar = looked_at(view_of(array, window, lay.probe))[()]
    if floor.scalars or manners.scalar is not None:
        return scalar
    if not native(lay.dtype):  # the array was given it; a record can be written to
        return export(array)[key]
    return type(array).of(concrete(np.asarray(scalar)))


def _gather(array: ArrayBase, key: Any) -> Any:
    """Return an advanced-index result: a copy, made at once; or a record's field."""
    if not native(layout_of(array).dtype):
        return export(array)[key]
    return _wrap(type(array), np.asarray(host(array)[key]))


def _wrap(cls: type[ArrayBase], result: np.ndarray[Any, Any]) -> Any:
    if floor.scalars and result.size < array_floor():
        return result
    return cls.of(concrete(result))


def setitem(array: ArrayBase, key: Any, item: Any) -> None:
    """Set ``array[key] = item`` with NumPy's meaning."""
    check_writeable(array)  # before the key is looked at
    basic, integers = _basic_key(key)
    if not basic:
        if _masked(array, key, item) or set_there(array, key, item):
            return
        key = plain_key(key)
        basic, integers = _basic_key(key)
    lay = layout_of(array)
    if not basic or drops_imaginary(item, lay.dtype):
        _set_now(array, key, item)
        return
    given = key
    if integers:
        key = (*key, ...) if type(key) is tuple else (key, ...)
    window = lay.probe[key]
    if window.ndim == 0 and shape_of(item):
        _set_now(array, given, item)
        return  # an element set to a sequence: NumPy takes some and words the rest
    least = max(record_floor(), 1)
    lazy = isinstance(item, ArrayBase) and not at_hand_below(item.storage.value, least)
    pending = not at_hand_below(array.storage.value, least) and array.storage.value.op is not None
    if not lazy and not (pending and window.size) and window.size < least:
        # Small, and everything is at hand: NumPy writes in place now.
        _set_now(array, key, item)
        return
    if _in_numpys_order(array, window, item):
        _set_now(array, given, item)
        return
    target = view_of(array, window, lay.probe)
    if isinstance(item, ArrayBase):
        same = item.storage is array.storage and item.window == target.window
        if same and target.window.writeable:
            return  # `a[key] += x` assigns the view to itself after the work is done
        value = read(item)
    else:
        value = _as_value(item, window)
    if value.layout.shape != window.shape:
        fitted = _fit(value, window)
        if fitted is None:
            _set_now(array, given, item)  # NumPy's error
            raise AssertionError("NumPy assigned what does not broadcast")
        value = fitted
    assign(target, value)


def _in_numpys_order(array: ArrayBase, window: np.ndarray[Any, Any], item: Any) -> bool:
    """Tell whether NumPy may read elements of an item that it has just written: along one axis, in
    one direction, it looks for no overlap, and goes from one end, right where the steps are equal.
    """
    if window.ndim != 1 or not isinstance(item, (ArrayBase, np.ndarray)):
        return False
    lay: Any = layout_of(item) if isinstance(item, ArrayBase) else item
    if not lay.ndim or lay.strides[-1] * window.strides[0] < 0:
        return False
    step = 0 if lay.shape[-1] == 1 else lay.strides[-1]
    return step != window.strides[0] and window.size > 1 and may_meet(item, array)


def _set_now(array: ArrayBase, key: Any, item: Any) -> None:
    if isinstance(item, ArrayBase) and item.storage is not array.storage:
        item = host(item)
    check_writeable(array)

    def work() -> None:
        target = opened(array)  # first: it may give all that lies in its storage new memory
        value = host(item) if isinstance(item, ArrayBase) else item
        call_there(operator.setitem, (target, key, value), {})

    at_once((array,), work)


def _as_value(item: Any, window: np.ndarray[Any, Any]) -> Value:
    array = np.asarray(item)
    if array.dtype == object or not native(array.dtype) or array.dtype != window.dtype:
        converted = np.empty(array.shape, window.dtype)
        call_there(operator.setitem, (converted, ..., item), {})  # as NumPy says it
        return concrete(converted)
    return concrete(array.copy() if array is item or array.base is not None else array)


def _fit(value: Value, window: np.ndarray[Any, Any]) -> Value | None:
    """Return a value in a shape that broadcasts into a window (leading ones may be extra), or
    None."""
    shape = value.layout.shape
    extra = len(shape) - window.ndim
    if extra > 0 and all(n == 1 for n in shape[:extra]):
        shape = shape[extra:]
        value = read(apply_view(ArrayBase.of(value), lambda probe: probe.reshape(shape)))
    try:
        return value if np.broadcast_shapes(shape, window.shape) == window.shape else None
    except failures(ValueError):
        return None


_TRUE = np.ones(1, bool)


def _masked(array: ArrayBase, key: Any, item: Any) -> bool:
    """Record ``a[mask] = scalar`` as a selection; tell whether that was the form."""
    mask_layout = layout_of(key) if isinstance(key, ArrayBase) else None
    if mask_layout is None or mask_layout.dtype != np.bool_:
        return False
    lay = layout_of(array)
    if mask_layout.shape != lay.shape or lay.ndim == 0 or drops_imaginary(item, lay.dtype):
        return False
    if isinstance(item, ArrayBase):
        if layout_of(item).ndim:
            return False
        value = read(item)
    else:
        scalar = np.asarray(item)
        if scalar.ndim or not native(scalar.dtype):
            return False
        one = np.empty(1, lay.dtype)
        one[_TRUE] = (
            item  # as NumPy has it behind a mask: its numbers are cast, and Python's checked
        )
        value = concrete(one.reshape(()).copy())
    if lay.size < (least := record_floor()) and all(
        [at_hand_below(read(item), least) for item in (array, key)]
    ):
        return False
    assign(array, value, read(key))
    return True


__all__ = ["export", "getitem", "plain_key", "setitem", "site"]
