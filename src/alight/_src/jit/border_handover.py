"""What stands for an Array on the other side of the border: one ndarray for one Array."""

from __future__ import annotations

from typing import Any
from weakref import getweakrefcount, ref

from alight._core import ArrayBase
from alight._src.base.originals import np
from alight._src.record import storage_io

__all__ = ["any_is_out", "given_back", "handed_over", "keep_if_looked_for"]

NdArray = np.ndarray[Any, Any]

# By the id of the ndarray that was handed over: it, and the Array; and by that of the Array.
_given: dict[int, tuple[ref[NdArray], ref[ArrayBase]]] = {}
_handed: dict[int, tuple[ref[ArrayBase], ref[NdArray]]] = {}


def handed_over(array: ArrayBase) -> Any:
    """Return the ndarray that stands for an Array outside, computed, over the same memory: one for
    as long as either lives. Of a scalar that may be pending, NumPy's."""
    if getattr(type(array), "immutable", False):
        return array.now()  # type: ignore[attr-defined]
    shared = storage_io.export(array)
    data = array.storage.value.data
    found = _handed.get(id(array))
    if found is not None and found[0]() is array:
        before = found[1]()
        if before is not None and _same_memory(before, shared):
            return before
    if (
        data is not None
        and data.array is not None
        and not data.foreign
        and array.window is None
        and _same_memory(data.array, shared)
    ):
        shared = data.array  # which owns its memory, as the program's array does
    key, other = id(shared), id(array)
    seen = ref(shared, lambda gone: _drop(_given, key, gone))
    whose = ref(array, lambda gone: _drop(_handed, other, gone))
    _given[key], _handed[other] = (seen, whose), (whose, seen)
    return shared


# By the id of the Array: it, and the ndarray.
_looked_for: dict[int, tuple[ref[ArrayBase], NdArray]] = {}


def keep_if_looked_for(array: ArrayBase) -> None:
    """Have the ndarray that stands for an Array live as long as that, where a package has kept it
    weakly, to come back to it, as it would live with the array of a program without alight."""
    key = id(array)
    found = _handed.get(key)
    shared = None if found is None or found[0]() is not array else found[1]()
    if shared is not None and getweakrefcount(shared) > 1:  # ours is one
        _looked_for[key] = ref(array, lambda gone: _drop(_looked_for, key, gone)), shared


def _drop(table: dict[int, Any], key: int, gone: Any) -> None:
    if (found := table.get(key)) is not None and found[0] is gone:
        del table[key]


def _same_memory(one: NdArray, other: NdArray) -> bool:
    return (
        one.__array_interface__["data"] == other.__array_interface__["data"]
        and one.shape == other.shape
        and one.strides == other.strides
        and one.dtype == other.dtype
    )


def given_back(item: Any) -> Any:
    """Return the Array that an ndarray was handed over for; others as they are."""
    found = _given.get(id(item))
    if found is not None and found[0]() is item and (array := found[1]()) is not None:
        return array
    return item


def any_is_out() -> bool:
    """Tell whether any ndarray that was handed over lives."""
    return bool(_given)
