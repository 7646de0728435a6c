"""How bytes are read: layouts, which are interned, and views of a storage."""

from __future__ import annotations

import weakref
from typing import Any

from alight._core import probing
from alight._src.base.originals import np


class Layout:
    """How bytes are read as an array: dtype, shape and strides in bytes. Interned: compare with
    ``is``."""

    __slots__ = (
        "__weakref__",
        "_probe",
        "c_contiguous",
        "dense",
        "dtype",
        "itemsize",
        "nbytes",
        "ndim",
        "ordinary",
        "shape",
        "size",
        "strides",
    )
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    ndim: int
    size: int
    itemsize: int
    nbytes: int
    c_contiguous: bool
    dense: bool
    ordinary: bool  # the strides are those of a fresh C-order array, axes of length one included

    def __init__(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.ndim = len(shape)
        self.itemsize = dtype.itemsize
        size = 1
        for n in shape:
            size *= n
        self.size = size
        self.nbytes = size * self.itemsize
        self.c_contiguous = size == 0 or _is_dense(shape, strides, self.itemsize, range(self.ndim))
        self.dense = self.c_contiguous or _is_dense(
            shape, strides, self.itemsize, sorted(range(self.ndim), key=lambda i: -strides[i])
        )
        self.ordinary = size > 0 and strides == _c_strides(dtype, shape)
        self._probe: np.ndarray[Any, Any] | None = None

    @property
    def probe(self) -> np.ndarray[Any, Any]:
        """Return an array of this layout that has no elements: index or transpose it, never read
        it."""
        if self._probe is None:
            self._probe = probing.probe(self.dtype, self.shape, self.strides)
        return self._probe

    def __repr__(self) -> str:
        order = "" if self.c_contiguous else f", strides={self.strides}"
        return f"{self.dtype.name}{list(self.shape)}{order}"


def _c_strides(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    step = dtype.itemsize
    steps = []
    for n in reversed(shape):
        steps.append(step)
        step *= n if n else 1
    return tuple(reversed(steps))


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, order: Any) -> bool:
    expected = itemsize
    for i in reversed(order):
        if shape[i] != 1:
            if strides[i] != expected:
                return False
            expected *= shape[i]
    return True


_layouts: weakref.WeakValueDictionary[tuple[Any, ...], Layout] = weakref.WeakValueDictionary()


def make_layout(
    dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> Layout:
    """Return the one layout with these fields; strides default to C order."""
    if strides is None:
        strides = _c_strides(dtype, shape)
    # two of C's types may be one dtype to NumPy (long and long long), with scalars of their own
    key = (dtype, dtype.num, shape, strides)
    found = _layouts.get(key)
    if found is None:
        found = _layouts.setdefault(key, Layout(dtype, shape, strides))
    return found


def layout_of(array: np.ndarray[Any, Any]) -> Layout:
    """Return the layout of an ndarray."""
    return make_layout(array.dtype, array.shape, array.strides)


class View:
    """A window on a storage: a layout, the byte it starts at, and whether it may be written."""

    __slots__ = ("layout", "offset", "writeable")

    def __init__(self, layout: Layout, offset: int, writeable: bool = True) -> None:
        self.layout = layout
        self.offset = offset
        self.writeable = writeable

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, View)
            and self.layout is other.layout
            and self.offset == other.offset
            and self.writeable == other.writeable
        )

    def __hash__(self) -> int:
        return hash((id(self.layout), self.offset))

    def __repr__(self) -> str:
        return f"View({self.layout!r}, offset={self.offset})"
