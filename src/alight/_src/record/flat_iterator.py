"""``array.flat``: NumPy's iterator over the exported memory, for arrays of ours as its keys too."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from alight._core import ArrayBase
from alight._src.base.originals import np
from alight._src.record import storage_io
from alight._src.record.indexing import plain_key
from alight._src.record.numpy_fallback import ndarrays, wrap
from alight._src.record.pending import call_there

__all__ = ["FlatIterator"]


class FlatIterator:
    """An iterator over the elements of an array in C order, which can be indexed by their numbers.

    As long as one lives, nothing about the array's memory is deferred.
    """

    __slots__ = ("_array", "_numpys")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: ArrayBase) -> None:
        self._array = array
        self._numpys: Any = storage_io.export(array).flat

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Return NumPy's class, which cannot be inherited from: isinstance looks here, too."""
        return np.flatiter

    @property
    def base(self) -> Any:
        """Return the array that is gone through."""
        return self._array

    @property
    def index(self) -> int:
        """Return the number of the next element."""
        return int(self._numpys.index)

    @property
    def coords(self) -> tuple[int, ...]:
        """Return where the next element lies."""
        return self._numpys.coords  # type: ignore[no-any-return]

    def copy(self) -> Any:
        """Return the elements as an array of one axis."""
        return wrap(self._numpys.copy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._numpys, dtype, copy=copy)

    def __len__(self) -> int:
        return len(self._numpys)

    def __iter__(self) -> FlatIterator:
        return self

    def __next__(self) -> Any:
        return next(self._numpys)

    def __getitem__(self, key: Any) -> Any:
        found = call_there(operator.getitem, (self._numpys, _key(key)), {})
        return wrap(found) if type(found) is np.ndarray else found

    def __setitem__(self, key: Any, item: Any) -> None:
        call_there(operator.setitem, (self._numpys, _key(key), ndarrays(item)), {})


def _key(key: Any) -> Any:
    # An array without axes is no number to all of NumPy's iterators: before 2.3 several items may
    # be assigned there.
    return ndarrays(key) if isinstance(key, ArrayBase) else plain_key(key)


def _compared(name: str) -> Callable[[FlatIterator, Any], Any]:
    compare = getattr(operator, name)

    def method(self: FlatIterator, other: Any) -> Any:
        other = other._numpys if type(other) is FlatIterator else ndarrays(other)
        found = compare(self._numpys, other)
        return wrap(found) if type(found) is np.ndarray else found

    return method


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(FlatIterator, f"__{_name}__", _compared(_name))
