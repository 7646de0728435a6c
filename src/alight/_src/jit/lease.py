"""One piece of the caller's memory, as a storage with an Array for each ndarray that lies in it."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

from alight._core import Data, Layout, Storage, Value, View, layout_of, native
from alight._src.base.originals import np
from alight._src.jit.reachability import overlaps_itself
from alight._src.record.argument_memory import ArgumentMemory
from alight._src.record.array import Array
from alight._src.record.pending import foreign
from alight._src.run import evaluate

__all__ = ["Lease", "NdArray", "bytes_of", "leasable", "window_of"]

NdArray = np.ndarray[Any, Any]
_bounds = np.lib.array_utils.byte_bounds


def leasable(array: Any) -> bool:
    """Tell whether an object is an ndarray that alight can compute on where it lies."""
    if type(array) is not np.ndarray or not native(array.dtype):
        return False
    return array.flags.aligned and not overlaps_itself(array)


def window_of(array: NdArray, layout: Layout, offset: int, writeable: bool) -> NdArray:
    """Return an ndarray over the memory of another, ``offset`` bytes after its first byte in
    memory."""
    value, _ = foreign(array)
    assert value.data is not None
    result = evaluate.elements_at(value.data.raw, value.offset + offset, layout)
    if not writeable:
        result.flags.writeable = False
    return result


def bytes_of(members: Sequence[NdArray]) -> Value:
    """Return a value over the bytes that several ndarrays reach, as a lease of them has it."""
    return _together(members)[0]


class Lease:
    """One storage over the caller's memory, with the ndarrays that lie in it and the Arrays for
    them."""

    __slots__ = ("arrays", "leased", "members", "storage")

    def __init__(self, members: Sequence[NdArray]) -> None:
        self.members = tuple(members)
        if len(members) == 1:
            value, view = foreign(members[0], leased=True)
            views = [view]
        else:
            value, views = _together(members)
        self.storage = Storage(value)
        self.arrays = tuple([_array(self.storage, view) for view in views])
        # Weak: the arrays lead to the storage, which is not to wait for a collection.
        pairs = zip(map(weakref.ref, self.arrays), members, strict=True)
        self.leased = self.storage.lease = ArgumentMemory(value, pairs)

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
                member.flags.writeable = window.writeable

    def settle(self) -> None:
        """Defer nothing about the caller's memory, which has the current version, from now on."""
        storage = self.storage
        data = storage.value.data
        assert data is not None
        evaluate.only_on_host(storage.value)
        data.shared = True
        storage.lease = None


def _array(storage: Storage, view: View | None) -> Array:
    array: Array = Array.__new__(Array)
    array.storage = storage
    array.window = view
    return array


class _Span:
    """The bytes that several ndarrays reach, offered to NumPy as one run of memory."""

    def __init__(self, members: Sequence[NdArray]) -> None:
        self.members = members
        low = min(_bounds(member)[0] for member in members)
        high = max(_bounds(member)[1] for member in members)
        self.address = low
        self.__array_interface__ = {
            "data": (low, not any(member.flags.writeable for member in members)),
            "shape": (high - low,),
            "typestr": "|u1",
            "version": 3,
        }


def _together(members: Sequence[NdArray]) -> tuple[Value, list[View | None]]:
    """Return one value over the bytes of ndarrays that overlap, and the view of it that each one
    is."""
    span = _Span(members)
    whole = np.asarray(span)
    value = Value(None, (), (), layout_of(whole))
    value.data = Data(value.layout, whole, foreign=True)
    value.data.shared = False
    views: list[View | None] = []
    for member in members:
        start = member.__array_interface__["data"][0] - span.address
        views.append(View(layout_of(member), start, member.flags.writeable))
    return value, views
