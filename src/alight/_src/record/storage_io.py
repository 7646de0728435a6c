"""What arrays do with their storage: read it, write it, hand it out, take it in."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from threading import local
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, finalize, ref

from alight import _core
from alight._core import (
    ArrayBase,
    Storage,
    Turn,
    Value,
    View,
    at_hand,
    floor,
    hooks,
    layout_of,
    make_layout,
    probing,
    sole,
)
from alight._src.base.failures import failures, ignoring_failures
from alight._src.base.originals import np
from alight._src.ir.op import UPDATED_IN_PLACE
from alight._src.record.argument_memory import apart, bring_home
from alight._src.record.pending import WHERE, WRITE, alias, call_there, cast, concrete, pend
from alight._src.run import evaluate, residency
from alight.backends.registry import only_host

_Result = TypeVar("_Result")


def read(array: ArrayBase) -> Value:
    """Return the value an array has now."""
    view = array.window
    value = array.storage.value
    return value if view is None else alias(value, view)


def is_scalar(item: Any) -> bool:
    """Tell whether something stands for a NumPy scalar, as results without axes do in `jit`."""
    return bool(getattr(type(item), "immutable", False))


def no_scalar(out: Any) -> Any:
    """Return what a call is to write into, NumPy's own scalars for ours: it refuses them."""
    return out.now() if is_scalar(out) else out


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


def looked_at(array: ArrayBase) -> np.ndarray[Any, Any]:
    """Return an array's elements, to be read at once and not kept: of what lies on a device only
    what is read is brought."""
    found = at_hand(array)
    if found is not None:
        return found
    if array.window is None or only_host() or floor.traced:
        return host(array)
    if array.storage.value.op is not None:
        evaluate.evaluate((array.storage.value,), read=False)
    value = read(array)
    part = None
    if value.op is None and value.data is not None and value.data.array is None:
        part = residency.part_on_host(value.data, value.offset, value.layout)
    return host(array) if part is None else part


def _open_to_others(storage: Storage) -> bool:
    data = storage.value.data
    return data is not None and data.shared and data.exported


def may_meet(item: Any, array: ArrayBase) -> bool:
    """Tell whether an operand may lie in the memory of an array that is written, as a view of it or
    through what others were given of it: where NumPy does not look for that, only NumPy's own order
    of reading and writing gives its results."""
    if isinstance(item, ArrayBase) and item.storage is array.storage:
        return True
    if not _open_to_others(array.storage):
        return False
    return (
        _open_to_others(item.storage) if isinstance(item, ArrayBase) else type(item) is np.ndarray
    )


def check_writeable(array: ArrayBase) -> None:
    """Raise ValueError where an array is read-only."""
    if array.window is not None and not array.window.writeable:
        raise ValueError("assignment destination is read-only")
    if _broadcast and _broadcast.pop(id(array), None) is not None:
        call_there(operator.setitem, (np.broadcast_arrays(np.zeros(1), _TWO)[0], 0, 0), {})


# What `np.broadcast_arrays` made, by identity: NumPy warns of the first write, and does it.
_broadcast: dict[int, ref[ArrayBase]] = {}
_TWO = np.zeros(2)


def warn_when_written(array: ArrayBase) -> None:
    """Have the first write to an array warn, in NumPy's words, that others lie in its memory."""
    number = id(array)
    _broadcast[number] = ref(array, lambda _: _broadcast.pop(number, None))


def may_be_written(array: ArrayBase, writeable: bool | None = None) -> bool:
    """Tell whether an array may be written to, with NumPy's warning of one that will not be in
    time; ``writeable``: it is set to that, and there is nothing more to warn of."""
    if id(array) in _broadcast:
        if writeable is not None:
            del _broadcast[id(array)]
        else:
            made = np.broadcast_arrays(np.zeros(1), _TWO)[0]
            return bool(call_there(getattr, (made.flags, "writeable"), {}))
    return array.window is None or array.window.writeable


def at_once(written: Sequence[ArrayBase], write: Callable[[], _Result]) -> _Result:
    """Return what ``write`` gives, done in one's turn to write at once into arrays, which it opens
    (`opened`). Pending readers of the old elements are evaluated first."""
    return _in_turn([array.storage for array in written], _written_next, write)


def _in_turn(
    storages: Sequence[Storage], prepare: Callable[[Storage], None], work: Callable[[], _Result]
) -> _Result:
    """Return what ``work`` gives in the turn to write into storages, whose versions lie in host
    memory then.

    Who has ``residency.LOCK`` may wait for a turn, also in a finalizer: so who has a turn takes no
    lock. What is pending is evaluated before, and looked at again.
    """
    for storage in storages:
        prepare(storage)
        if storage.lease is not None:
            storage.lease.opened = True
    with Turn(*storages):
        if all(map(_at_home, storages)):
            return work()
    # Another thread has recorded meanwhile, and may always be the quicker one.
    with residency.LOCK, Turn(*storages):
        for storage in storages:
            prepare(storage)
            if storage.lease is not None:
                bring_home((storage,))
        return work()


def _at_home(storage: Storage) -> bool:
    """Tell whether the current version lies where the host, and a caller who lent it, has it."""
    value = storage.value
    if value.op is not None:
        return False
    if value.data is not None and value.data.array is None:
        return False
    return storage.lease is None or bool(storage.lease.holds(value.data))


def settle_given_up(storage: Storage) -> None:
    """Have the caller's memory hold all that was written, and nothing of it be deferred from now
    on, in a body that was given up."""
    if storage.lease is not None and (watch := evaluate.watch.by) is not None:
        watch.settle_given_up()


def _written_next(storage: Storage) -> None:
    """Evaluate what is about to be written, and who reads its old elements."""
    settle_given_up(storage)
    if storage.value.op is not None:
        evaluate.evaluate((storage.value,))
    value = storage.value
    if value.data is None:
        return  # another thread has recorded
    if value.data.foreign or storage.lease is not None or not sole(value, 1, value.data.writing):
        evaluate.evaluate_all()
    residency.bring_to_host(value.data)


def opened(array: ArrayBase) -> np.ndarray[Any, Any]:
    """Return an ndarray over the array's memory that may be written to, in one's turn (`at_once`),
    until that ends."""
    storage = array.storage
    value = storage.value
    assert value.data is not None
    if not (
        value.data.foreign
        or storage.lease is not None
        or sole(value, 1, value.data.writing)  # by this turn, before
        or _open_to_others(storage)
    ):
        storage.rebind(evaluate.duplicate(value))  # whoever is left keeps the old bytes
    storage.open()
    evaluate.only_on_host(storage.value)
    return evaluate.host_array(read(array))


def assign(array: ArrayBase, value: Value, mask: Value | None = None) -> None:
    """Set every element of an array (a view, usually), or those where a mask is true, to a value
    that broadcasts to it, cast to its dtype.

    Raises ValueError where the array is read-only.
    """
    check_writeable(array)
    if _replaced(array, value, mask):
        return
    storage = array.storage
    if not _open_to_others(storage):
        # Another thread wrote in between, and may always be the quicker one: now none can.
        with residency.LOCK, Turn(storage):
            if _replaced(array, value, mask):
                return
    evaluate.evaluate([item for item in (value, mask) if item is not None])
    elements = evaluate.host_array(value)
    where = True if mask is None else evaluate.host_array(mask)
    _in_turn(
        (storage,),
        _written_next,
        lambda: np.copyto(opened(array), elements, casting="unsafe", where=where),
    )


def _replaced(array: ArrayBase, value: Value, mask: Value | None) -> bool:
    """Make the version with an array's elements set the current one; tell whether it is."""
    storage = array.storage
    if _open_to_others(storage):
        return False
    # Another thread may write in between: what this one leaves as it is has to be what is there
    # when the new version takes the place of the old one.
    old = storage.value
    value = cast(value, layout_of(array).dtype)
    return storage.replace(old, _version(array, old, value, mask))


def _version(array: ArrayBase, old: Value, value: Value, mask: Value | None) -> Value:
    """Return the version that follows ``old`` once the array's elements are set."""
    view = array.window
    target = old.layout if view is None else view.layout
    if mask is not None:
        kept = old if view is None else alias(old, view)
        dense = target if target.dense else make_layout(target.dtype, target.shape)
        value = pend(WHERE, (mask, value, kept), (), dense)
    leased = array.storage.lease
    offset = 0 if view is None else view.offset
    whole = offset == 0 and target is old.layout
    updated = leased is not None or (whole and _updates(old))
    if whole and value.layout is target and value.op is not None and not updated:
        return apart(value)
    attrs: tuple[tuple[str, Any], ...] = (("offset", offset), ("layout", target))
    if leased is not None:
        leased.wrote(offset, target, mask)
    if updated and mask is None:
        attrs = (*attrs, ("in_place", True))
    return pend(WRITE, (old, value), attrs, old.layout)


def _updates(old: Value) -> bool:
    """Tell whether a version that takes the place of all of ``old`` may be made in its memory."""
    large = old.layout.nbytes >= UPDATED_IN_PLACE
    return large and (old.op is WRITE or (old.op is None and old.data is not None))


def export(array: ArrayBase) -> np.ndarray[Any, Any]:
    """Return an ndarray that shares the array's memory, for others to read and write.

    From then on, until it dies, nothing about this memory is deferred.
    """
    storage = array.storage
    read_only = array.window is not None and not array.window.writeable

    def share() -> np.ndarray[Any, Any]:
        value = storage.value
        assert value.data is not None  # no name for it: `sole` counts who holds it
        alone = storage.lease is not None or value.data.shared or read_only or sole(value, 1)
        if not alone:
            value = evaluate.duplicate(value)
            storage.rebind(value)
        evaluate.only_on_host(value)
        data = value.data
        assert data is not None
        data.shared = True
        del value
        shared = evaluate.host_array(read(array)).view()
        data.shared = True  # a thread that looked before the view was there has taken it back
        return shared

    result = _in_turn((storage,), _shared_next, share)
    if read_only:
        result.flags.writeable = False
    return result


def _shared_next(storage: Storage) -> None:
    """Evaluate what others are about to be given, and who reads it."""
    if storage.value.op is not None:
        evaluate.evaluate((storage.value,))
    value = storage.value
    if value.data is None:
        return  # another thread has recorded
    if storage.lease is not None or not (value.data.shared or sole(value, 1)):
        evaluate.evaluate_all()
    residency.bring_to_host(value.data)


class _Dropped(NamedTuple):
    """An array whose buffer could not be had, the error, and who asked: a frame by its identity,
    as frames hold on to what is in them, and the instruction that it was at."""

    array: ref[ArrayBase]
    error: Exception
    asker: tuple[int, CodeType | None, int]


class _OfThread(local):
    last: _Dropped | None = None


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
    return (0, None, 0) if frame is None else (id(frame), frame.f_code, frame.f_lasti)


def _apart(error: Exception) -> Exception | None:
    """Return an error that says the same without its traceback, whose frames keep alive what their
    callers have; None where it cannot be had."""
    kind = type(error)
    with ignoring_failures():  # what classes of errors may do is not known here
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
    if is_scalar(array):
        # A view of a NumPy scalar is a new array: writing to it must not reach the scalar.
        apart = hooks.array.of(array.storage.value)
        apart.window = array.window
        return _core.view_of(hooks.array, apart, window, probe)
    return _core.view_of(type(array), array, window, probe)


def set_layout(array: ArrayBase, name: str, given: Any) -> None:
    """Set the ``shape``, ``strides`` or ``dtype`` of an array in place, as NumPy does: with its
    errors, and its warnings at the program's line."""
    lay, view = layout_of(array), array.window
    offset = 0 if view is None else view.offset
    if name == "strides":  # NumPy asks how far the memory reaches
        whole = probing.probe(np.dtype("u1"), (array.storage.value.layout.nbytes,), (1,))
        probe: np.ndarray[Any, Any] = np.ndarray(lay.shape, lay.dtype, whole, offset, lay.strides)
    else:
        probe = lay.probe.view()
    target = probe
    if name == "shape":
        try:
            probe.reshape(given, copy=False)
        except failures() as error:
            # NumPy copies before it says so: it is asked about a small matrix, not one axis either.
            if "copy" in str(error):
                target, given = np.ones((2, 2)).T, 4
    call_there(setattr, (target, name, given), {})
    array.window = View(layout_of(probe), offset, view is None or view.writeable)


def apply_view(array: ArrayBase, expression: Any) -> Any:
    """Return the view that ``expression`` makes of an ndarray of this layout (NumPy decides, on a
    probe)."""
    probe = layout_of(array).probe
    return view_of(array, expression(probe), probe)


__all__ = [
    "apply_view",
    "assign",
    "at_once",
    "check_writeable",
    "export",
    "host",
    "interface",
    "is_scalar",
    "lent",
    "looked_at",
    "may_be_written",
    "may_meet",
    "no_scalar",
    "opened",
    "owned",
    "read",
    "set_layout",
    "view_of",
    "warn_when_written",
]
