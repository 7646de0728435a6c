"""What arrays do with their storage: read it, write it, hand it out, take it in."""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import local
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, finalize, ref

from numpy.lib.stride_tricks import as_strided

from alight import _core
from alight._core import (
    ArrayBase,
    Data,
    Layout,
    Storage,
    Value,
    View,
    at_hand,
    hooks,
    layout_of,
    sole,
)
from alight._src.base.originals import np
from alight._src.record.leased import apart, bring_home
from alight._src.record.pending import WRITE, alias, call_there, cast, concrete, pend
from alight._src.run import evaluate


def read(array: ArrayBase) -> Value:
    """Return the value an array has now."""
    view = array.window
    value = array.storage.value
    return value if view is None else alias(value, view)


def layout(array: ArrayBase) -> Layout:
    """Return an array's layout."""
    view = array.window
    return array.storage.value.layout if view is None else view.layout


def host(array: ArrayBase) -> np.ndarray[Any, Any]:
    """Return an array's elements as an ndarray over its own memory, evaluated. Read only, by
    convention."""
    found = at_hand(array)
    if found is not None:
        return found
    storage = array.storage
    if storage.value.op is not None:
        evaluate.evaluate((storage.value,))
    return evaluate.host_array(read(array))


def _open_to_others(storage: Storage) -> bool:
    data = storage.value.data
    return data is not None and data.shared and data.exported


def check_writeable(array: ArrayBase) -> None:
    """Raise ValueError where an array is read-only."""
    if array.window is not None and not array.window.writeable:
        raise ValueError("assignment destination is read-only")


def writable(array: ArrayBase) -> np.ndarray[Any, Any]:
    """Return an ndarray over the array's memory that may be written to at once.

    Pending readers of the old elements are evaluated first. Raises ValueError where the array is
    read-only.
    """
    check_writeable(array)
    storage = array.storage
    if storage.value.op is not None:
        evaluate.evaluate((storage.value,))
    value = storage.value
    assert value.data is not None
    if value.data.foreign or storage.lease is not None:
        evaluate.evaluate_all()
        if storage.lease is not None:
            bring_home((storage,))
    elif not sole(value, 1):
        # Someone still reads these bytes: pending work first, and whoever is left keeps the old
        # ones.
        evaluate.evaluate_all()
        if not sole(value, 1) and not _open_to_others(storage):
            storage.value = evaluate.duplicate(value)
    evaluate.only_on_host(storage.value)
    return evaluate.host_array(read(array))


def assign(array: ArrayBase, value: Value, mask: Value | None = None) -> None:
    """Set every element of an array (a view, usually) to a value that broadcasts to it, cast to
    its dtype. Where ``mask`` is false, the value has the element that is there.

    Raises ValueError where the array is read-only.
    """
    view = array.window
    storage = array.storage
    old = storage.value
    target = layout(array)
    check_writeable(array)
    if _open_to_others(storage):
        evaluate.evaluate((value,) if mask is None else (value, mask))
        where = True if mask is None else evaluate.host_array(mask)
        elements = evaluate.host_array(value)
        np.copyto(writable(array), elements, casting="unsafe", where=where)
        return
    value = cast(value, target.dtype)
    leased = storage.lease
    offset = 0 if view is None else view.offset
    whole = offset == 0 and target is old.layout
    if whole and value.layout is target and value.op is not None and leased is None:
        storage.rebind(apart(value))
        return
    attrs: tuple[tuple[str, Any], ...] = (("offset", offset), ("layout", target))
    if leased is not None:
        leased.wrote(offset, target, mask)
        if mask is None:
            attrs = (*attrs, ("leased", True))
    storage.rebind(pend(WRITE, (old, value), attrs, old.layout))


def export(array: ArrayBase) -> np.ndarray[Any, Any]:
    """Return an ndarray that shares the array's memory, for others to read and write.

    From then on, until it dies, nothing about this memory is deferred.
    """
    storage = array.storage
    if storage.value.op is not None:
        evaluate.evaluate((storage.value,))
    value = storage.value
    data = value.data
    assert data is not None
    if storage.lease is not None:
        evaluate.evaluate_all()
        bring_home((storage,))
        value = storage.value
    elif not data.shared and not sole(value, 1):
        writable_view = array.window is None or array.window.writeable
        evaluate.evaluate_all()
        if writable_view and not sole(value, 1):
            storage.value = value = evaluate.duplicate(value)
    evaluate.only_on_host(value)
    data = value.data
    assert data is not None
    data.shared = True
    del value
    result = evaluate.host_array(read(array)).view()
    data.shared = True  # a thread that looked before the view was there has taken it back
    if array.window is not None and not array.window.writeable:
        result.flags.writeable = False
    return result


class _Dropped(NamedTuple):
    """An array whose buffer could not be had, the error, and who asked: a frame by its identity,
    as frames hold on to what is in them, and the instruction that it was at."""

    array: ref[ArrayBase]
    error: Exception
    asker: tuple[int, CodeType | None, int]


class _OfThread(local):
    last: _Dropped | None = None


_TWIN = f"{_core.__name__}."

# NumPy drops that error and asks for the interface or the array next, from the same instruction of
# the same caller: what has just failed is not to be done once more for that.
_dropped = _OfThread()


def forget_dropped() -> None:
    """Forget the error of asking for a buffer."""
    _dropped.last = None


def note_dropped(array: ArrayBase, error: Exception, asker: FrameType | None) -> None:
    """Keep the error of asking for an array's buffer, for who drops it and asks otherwise."""
    again = _apart(error)
    if again is not None:
        _dropped.last = _Dropped(ref(array), again, _place(asker))


def raise_dropped(array: ArrayBase) -> None:
    """Raise the error that asking for the array's buffer gave who asks the caller for it now."""
    last = _dropped.last
    if last is None:
        return
    _dropped.last = None
    if last.array() is array and last.asker == _place(sys._getframe(1).f_back):
        try:
            raise last.error
        finally:
            del last  # it has the error, which has this frame


def _place(frame: FrameType | None) -> tuple[int, CodeType | None, int]:
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_TWIN):
        frame = frame.f_back  # the twin's methods are called through frames of its own
    return (0, None, 0) if frame is None else (id(frame), frame.f_code, frame.f_lasti)


def _apart(error: Exception) -> Exception | None:
    """Return an error that says the same without its traceback, whose frames keep alive what their
    callers have; None where it cannot be had."""
    kind = type(error)
    with suppress(Exception):  # what classes of errors may do is not known here
        again: Exception = kind.__new__(kind, *error.args)
        vars(again).update(vars(error))
        if str(again) == str(error):
            return again
    return None


# What was told to others as an address, by the storage that they hold on to.
_told: WeakKeyDictionary[Storage, np.ndarray[Any, Any]] = WeakKeyDictionary()


def interface(array: ArrayBase) -> dict[str, Any]:
    """Return where the array's memory is, as NumPy's array interface has it.

    Who reads it keeps the array and no export, so the array's memory stays open to others until
    the array dies.
    """
    raise_dropped(array)
    _told[array.storage] = shared = export(array)
    return shared.__array_interface__


def lent(array: ArrayBase) -> bool:
    """Tell whether others hold the array's memory, not only the array, which they were told of."""
    return _open_to_others(array.storage) and array.storage not in _told


def hold_told(array: ArrayBase) -> None:
    """Have memory that others were told of live as long as the array, which gets another storage:
    what they keep is the array."""
    if array.storage in _told:
        finalize(array, _told.get, array.storage).atexit = False


def owned(cls: type[ArrayBase], array: np.ndarray[Any, Any]) -> Any:
    """Return an Array that takes over a fresh ndarray nobody else holds."""
    return cls.of(concrete(array))


def view_of(array: ArrayBase, window: np.ndarray[Any, Any], probe: np.ndarray[Any, Any]) -> Any:
    """Return the view of an array that an expression on its probe turned out to be."""
    if getattr(type(array), "immutable", False):
        # A view of a NumPy scalar is a new array: writing to it must not reach the scalar.
        apart = hooks.array.of(array.storage.value)
        apart.window = array.window
        return _core.view_of(hooks.array, apart, window, probe)
    return _core.view_of(type(array), array, window, probe)


def set_layout(array: ArrayBase, name: str, given: Any) -> None:
    """Set the ``shape``, ``strides`` or ``dtype`` of an array in place, as NumPy does: with its
    errors, and its warnings at the program's line."""
    lay, view = layout(array), array.window
    offset = 0 if view is None else view.offset
    if name == "strides":  # NumPy asks how far the memory reaches; none is had for that
        whole = as_strided(np.empty(1, np.uint8), (array.storage.value.layout.nbytes,), (1,))
        probe: np.ndarray[Any, Any] = np.ndarray(lay.shape, lay.dtype, whole, offset, lay.strides)
    else:
        probe = lay.probe.view()
    call_there(setattr, (probe, name, given), {})
    array.window = View(layout_of(probe), offset, view is None or view.writeable)


def apply_view(array: ArrayBase, expression: Any) -> Any:
    """Return the view that ``expression`` makes of an ndarray of this layout (NumPy decides, on a
    probe)."""
    probe = layout(array).probe
    return view_of(array, expression(probe), probe)


__all__ = [
    "Data",
    "apply_view",
    "assign",
    "check_writeable",
    "export",
    "host",
    "interface",
    "layout",
    "lent",
    "owned",
    "read",
    "set_layout",
    "view_of",
    "writable",
]
