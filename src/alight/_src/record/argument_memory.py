"""The caller's memory while a jitted function has it: which ndarrays lie in it, which windows of it
the body has written, and the one step that puts them there.

What a body writes makes versions, as all writes do. Where the last one lies elsewhere in the end,
what was written is copied, and no byte beside it: that may be another thread's.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count, repeat, zip_longest
from typing import Any, NamedTuple

from alight._core import ArrayBase, Data, Layout, Storage, Value, View, copy_where, hooks, layout_of
from alight._src.base.originals import np
from alight._src.ir.op_table import OPS
from alight._src.record.pending import COPY, VIEW, WRITE, elementwise, lent, pend
from alight._src.record.result_strides import dense_like
from alight._src.run import evaluate, residency
from alight._src.run.memory_holders import Held

__all__ = [
    "ArgumentMemory",
    "Lease",
    "Move",
    "Window",
    "apart",
    "bring_home",
    "one_after_the_other",
    "put_back",
    "settle",
]

NdArray = np.ndarray[Any, Any]


class Window(NamedTuple):
    """What was written of some memory: the elements of a window, or those where a mask is true.
    ``mask`` is None, or a value (in a program its number)."""

    offset: int
    layout: Layout
    mask: Any


class Move(NamedTuple):
    """What is to be put into leased memory: that, in the layout of the version it is to hold, and
    what of it was written."""

    memory: NdArray
    version: Value
    windows: Sequence[Window]


_writes = count()


def one_after_the_other(spans: Iterable[tuple[int, int]]) -> list[int]:
    """Return which of these spans of writes come one after the other, the first first, with none
    in between."""
    ordered = sorted([(span, number) for number, span in enumerate(spans)])
    found = []
    for (span, number), after in zip_longest(ordered, ordered[1:]):
        if after is not None and after[0][0] < span[1]:
            break
        found.append(number)
    return found


class ArgumentMemory:
    """One piece of the caller's memory, and what was written of it since it held the current
    version."""

    __slots__ = ("_array", "_layout", "_thread", "_windows", "held", "opened", "span")

    def __init__(self, value: Value) -> None:
        assert value.data is not None
        self._layout, self._array = value.layout, value.data.array
        self._thread = threading.get_ident()
        self.opened = False  # its bytes may have been written, or others may have them
        self.lies_in(value.data)

    def lies_in(self, data: Data) -> None:
        """Note that the current version is what the caller's memory holds."""
        self.held = Held(data)
        self.held.thread = self._thread
        # Masks are storages, as what is pending is then done before what it reads is written.
        self._windows: dict[tuple[int, Layout], Storage | None] = {}
        # The first and the last write, by the order of all that the process records.
        self.span: tuple[int, int] | None = None

    def holds(self, data: Data | None) -> bool:
        """Tell whether these are the caller's bytes."""
        return data is not None and self.held() is data

    @property
    def windows(self) -> tuple[Window, ...]:
        """Return what was written, in no order: all of it gets what is there in the end."""
        masks = self._windows.items()
        return tuple([Window(*place, None if s is None else s.value) for place, s in masks])

    def wrote(self, offset: int, layout: Layout, mask: Value | None) -> None:
        """Note that a window is written, where the mask is true."""
        windows = self._windows
        last = next(_writes)
        self.span = (last if self.span is None else self.span[0]), last
        place, whole = (offset, layout), (0, self._layout)
        for covering in (whole, place):
            if covering in windows and windows[covering] is None:
                return
        if mask is None:
            if place == whole:
                windows.clear()
            windows[place] = None
            return
        before = windows.get(place)
        if before is not None:
            either = elementwise(OPS["logical_or"], (before.value, mask))
            assert either is not None
            mask = either[0]
        windows[place] = Storage(apart(mask))

    def anew(self) -> Value:
        """Return a value of the caller's memory as it is."""
        value = Value(None, (), (), self._layout)
        value.data = Data(self._layout, self._array, foreign=True)
        value.data.shared = False
        return value


class Lease:
    """One piece of the caller's memory as one storage, with the ndarrays that lie in it and the
    Arrays for them."""

    __slots__ = ("arrays", "leased", "members", "storage")

    def __init__(
        self, members: Sequence[NdArray], value: Value, views: Sequence[View | None]
    ) -> None:
        self.members = members
        self.storage = Storage(value)
        self.arrays = [_over(self.storage, view) for view in views]
        self.leased: ArgumentMemory

    @classmethod
    def of(cls, groups: Iterable[Sequence[NdArray]]) -> list[Lease]:
        """Return leases, one for each group of ndarrays that lie in the same memory."""
        lendings = [(group, *lent(group)) for group in groups]
        leases = [cls(*lending) for lending in lendings]
        for lease in leases:
            # Weak: the arrays lead to the storage, which is not to wait for a collection.
            pairs = zip(map(weakref.ref, lease.arrays), lease.members, strict=True)
            lease.storage.members = tuple(pairs)
            lease.leased = lease.storage.lease = ArgumentMemory(lease.storage.value)
        return leases

    def shape_members(self) -> None:
        """Give the caller's ndarrays the shapes and flags that were assigned to the Arrays for
        them."""
        member: Any
        for member, array in zip(self.members, self.arrays, strict=True):
            given = layout_of(array)
            if given is not layout_of(member):
                data = self.storage.value.data
                if data is not None and data.array is not None and data.array is member:
                    data.array = data.array.view()  # other Arrays see it as it was shaped
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of strides, which the body heard
                    if given.dtype != member.dtype:
                        member.dtype = given.dtype
                    if given.shape != member.shape and member.flags.fnc:
                        member.resize(given.shape, refcheck=False)  # in its own order
                    if given.shape != member.shape:
                        member.shape = given.shape
                    if given.strides != member.strides:
                        member.strides = given.strides
            window = array.window
            if window is not None and window.writeable is not member.flags.writeable:
                data = self.storage.value.data
                if data is not None and data.array is member:
                    data.array = data.array.view()  # views of it from before stay as they were
                member.flags.writeable = window.writeable


def _over(storage: Storage, view: View | None) -> Any:
    array: Any = ArrayBase.__new__(hooks.array)
    array.storage = storage
    array.window = view
    return array


def apart(value: Value) -> Value:
    """Return a value, or a copy of it where it may be what a storage has or had: bytes that may be
    written in place."""
    if value.op is None or value.op is VIEW or value.op is WRITE:
        same = value.layout
        layout = same if same.dense else dense_like(same, same.dtype)
        return pend(COPY, (value,), (), layout)
    return value


def bring_home(storages: Iterable[Storage]) -> None:
    """Have the versions of leased storages lie in their caller's memory. Who reads what is there
    has been evaluated."""
    away = []
    for storage in storages:
        leased = storage.lease
        if storage.value.op is not None:
            evaluate.evaluate((storage.value,))
        if not leased.holds(storage.value.data):
            away.append((storage, leased.anew()))
    if not away:
        return
    put_back([Move(anew.data.array, s.value, s.lease.windows) for s, anew in away])
    for storage, anew in away:
        storage.rebind(anew)
        storage.lease.lies_in(anew.data)


def settle(leases: Sequence[Lease]) -> None:
    """Have the current versions lie in their caller's memory, and nowhere else, and nothing be
    deferred about it from now on."""
    bring_home([lease.storage for lease in leases])
    for lease in leases:
        data = lease.storage.value.data
        assert data is not None
        residency.only_on_host(data)
        data.shared = True
        lease.storage.lease = None


def put_back(moves: Sequence[Move]) -> None:
    """Put versions of leased memory into it. What is read there is read before anything is
    written, and no signal's exception comes between two copies."""
    targets, sources, masks = [], [], []
    for memory, version, windows in moves:
        source = _lasting(version)
        for window in windows:
            targets.append(_at(memory, version, window))
            sources.append(_at(source, version, window))
            masks.append(True if window.mask is None else _lasting(window.mask))
    # Signals are looked at between instructions of Python's, of which this loop has none.
    deque(map(copy_where, targets, sources, repeat("same_kind"), masks), maxlen=0)


def _lasting(value: Value) -> NdArray:
    """Return elements that stay as they are while leased memory is written."""
    elements = evaluate.host_array(value)
    data = value.data
    return elements.copy("K") if data is not None and data.foreign else elements


def _at(whole: NdArray, version: Value, window: Window) -> NdArray:
    offset, layout, _ = window
    if layout is version.layout and not offset:
        return whole
    raw = Data(version.layout, whole).raw
    return np.ndarray(layout.shape, layout.dtype, raw, offset if layout.size else 0, layout.strides)
