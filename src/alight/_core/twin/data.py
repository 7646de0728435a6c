"""The bytes of one version of an array, and who can see them."""

from __future__ import annotations

import sys
from typing import Any

from alight._src.base.originals import np

from .layout import Layout

references = sys.getrefcount


class Data:
    """The bytes of one version: on the host (``array``, and ``raw`` as plain bytes), in other
    spaces, or both.

    ``array`` is a dense ndarray that nobody else holds, or, when ``foreign``, memory that others
    can see. ``remote`` maps a memory space to that space's own buffer.
    """

    __slots__ = (
        "__weakref__",
        "_address",
        "_raw",
        "array",
        "fixed",
        "foreign",
        "layout",
        "nbytes",
        "owner",
        "remote",
        "shared",
        "writing",
    )
    array: np.ndarray[Any, Any] | None
    owner: np.ndarray[Any, Any] | None
    layout: Layout
    remote: dict[str, Any] | None
    foreign: bool
    shared: (
        bool  # set by exports: others may see the memory; ``exported`` says whether they still do
    )
    nbytes: int
    # Nobody ever writes it, nor a copy of it in another space: launches may have its bytes instead
    # of where they lie.
    fixed: bool
    writing: int  # by how many, at once, on the host

    def __init__(
        self,
        layout: Layout,
        array: np.ndarray[Any, Any] | None = None,
        owner: np.ndarray[Any, Any] | None = None,
        foreign: bool = False,
    ) -> None:
        self.layout = layout
        self.array = array
        self.owner = owner if owner is not None else array
        self.foreign = foreign
        self.shared = foreign
        self.fixed = False
        self.writing = 0
        self.nbytes = layout.nbytes
        self.remote = None
        self._raw: np.ndarray[Any, Any] | None = None
        self._address = -1

    @property
    def raw(self) -> np.ndarray[Any, Any]:
        """Return the host copy as a 1-d uint8 array over the same memory."""
        raw = self._raw
        if raw is None:
            array = self.array
            assert array is not None, "no host copy"
            if not array.flags.c_contiguous:
                strides = array.strides
                array = array.transpose(sorted(range(array.ndim), key=lambda i: -strides[i]))
            raw = np.ndarray((array.nbytes,), np.uint8, array)
            self._raw = raw
        return raw

    @property
    def address(self) -> int:
        """Return the address of the host copy."""
        if self._address < 0:
            assert self.array is not None, "no host copy"
            self._address = self.array.__array_interface__["data"][0]
        return self._address

    @property
    def exported(self) -> bool:
        """Tell whether anyone outside can see the host memory: an ndarray, a buffer, a DLPack
        capsule.

        While ``jit`` holds a caller's array (foreign, not shared) nobody looks.
        """
        if not self.shared:
            return False
        if self.foreign or self.seen_outside():
            return True
        self.shared = False
        return False

    def seen_outside(self) -> bool:
        """Tell whether references to the host memory exist beyond those held here.

        NumPy keeps the owner of the memory as the base of every view, so its reference count tells.
        """
        owner = self.owner
        if owner is None:
            return False
        # Ours: the slot and this name; array (it is the owner, or rests on it); raw rests on it.
        ours = _BASELINE + (0 if self._raw is None else 1)
        return (
            references(owner) > ours
            or (self.array is not owner and references(self.array) > _ALONE)
            or (self._raw is not None and references(self._raw) > _ALONE)
        )


def _baseline() -> tuple[int, int]:
    # What getrefcount answers differs between interpreters: measure it on a case that is known.
    data = Data.__new__(Data)
    data.array = data.owner = np.zeros(1)
    owner = data.owner
    baseline = references(owner)
    data.array = np.zeros(1)
    return baseline, references(data.array)


_BASELINE, _ALONE = _baseline()


def fresh_data(layout: Layout) -> Data:
    """Return data of a dense layout, uninitialised, in memory of its own."""
    if layout.dtype.hasobject:
        raise TypeError("data of Python objects have no memory of their own")
    if not layout.dense:
        raise ValueError(
            f"{layout!r} has holes or overlaps, so no buffer of its own can have it. "
            "Fix: make it a view of a dense one."
        )
    array = np.empty_like(layout.probe, order="K", subok=False)
    if array.strides == layout.strides:
        return Data(layout, array)
    # Axes of length one: any stride reads the same, but results have exactly NumPy's.
    return Data(layout, np.ndarray(layout.shape, layout.dtype, array, 0, layout.strides), array)


def keep_bytes(most: int) -> None:
    """Keep at most so many bytes of memory that came back for later results: here, none."""


def kept_bytes() -> int:
    """Return how many bytes are kept for later results."""
    return 0
