"""A call's arguments, described: calls that are described alike can be answered alike."""

from __future__ import annotations

from typing import Any, NamedTuple

from alight._core import ArrayBase, layout_of, native
from alight._src.base.classes import is_among
from alight._src.base.originals import np
from alight._src.fp_warnings.errstate import modes_here
from alight._src.jit.reachability import NdArray, leads_nowhere, overlapping, overlaps_itself

__all__ = ["CallSignature", "describe", "leasable", "outline"]

_NDARRAY = np.ndarray


class _Unknown(Exception):
    """Raised where an argument is of a kind whose behaviour cannot be guarded."""


class CallSignature(NamedTuple):
    """A call's arguments: what they are but for real scalars, with the error state; those scalars'
    bits, and the ndarrays and integers in order."""

    structure: tuple[Any, ...]
    scalars: tuple[Any, ...]
    arrays: list[NdArray]  # each once, in order; each is `leasable`
    integers: list[int]
    overlaps: bool  # two of the arrays share an element's bytes


def leasable(array: Any) -> bool:
    """Tell whether an object is an ndarray that alight can compute on where it lies."""
    if type(array) is not _NDARRAY or not native(array.dtype):
        return False
    flags = array.flags
    # A dense array, which most are, and one that is only read need no look.
    return flags.aligned and (flags.forc or not flags.writeable or not overlaps_itself(array))


def describe(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallSignature | None:
    """Return the arguments described, or None where one cannot be guarded."""
    work = _Describing()
    try:
        structure = tuple([work.of(item) for item in args]), work.of(kwargs) if kwargs else None
    except _Unknown:
        return None
    shared = work.shared()
    described = structure, shared, modes_here()
    return CallSignature(described, tuple(work.scalars), work.arrays, work.integers, bool(shared))


def outline(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return what arguments are roughly, as many look that cannot be described: how large arrays,
    integers, containers and texts are, in powers of two, and what type anything else has."""
    named = [(name, _outlined(item)) for name, item in kwargs.items()]
    return (*map(_outlined, args), *named)


def _outlined(item: Any) -> Any:
    kind: Any = type(item)
    if kind is _NDARRAY:
        return kind, item.dtype, item.size.bit_length()
    if kind is int:
        return kind, item.bit_length()
    if is_among(kind, (list, tuple, dict, str, bytes)):
        return kind, len(item).bit_length()
    if kind is bool:
        return kind, item
    return kind if type(kind) is type else id(kind)  # others may say what they equal, and how


def _address(array: NdArray) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


class _Describing:
    def __init__(self) -> None:
        self.arrays: list[NdArray] = []
        self.numbers: dict[int, int] = {}
        self.scalars: list[Any] = []
        self.integers: list[int] = []

    def shared(self) -> tuple[tuple[int, int, int], ...]:
        """Return which of the ndarrays overlap, and how many bytes on one begins: what is written
        in one is then seen in the other. To lie between one another's elements is not to
        overlap."""
        arrays = self.arrays
        return tuple(
            [(i, j, _address(arrays[j]) - _address(arrays[i])) for i, j in overlapping(arrays)]
        )

    def of(self, item: Any) -> Any:
        kind: Any = type(item)
        if kind is _NDARRAY:
            if not leasable(item):
                raise _Unknown
            arrays = self.arrays
            number = self.numbers.setdefault(id(item), len(arrays))
            if number == len(arrays):
                arrays.append(item)
            return number, layout_of(item), item.flags.writeable
        if kind is float:
            self.scalars.append(item.hex())
            return kind
        if kind is complex:
            self.scalars.append((item.real.hex(), item.imag.hex()))
            return kind
        if kind is int:
            self.integers.append(item)
        if is_among(kind, (int, bool, str, bytes, type(None))):
            return kind, item
        # Records are windows of memory, which a body may write into.
        if issubclass(kind, np.generic) and leads_nowhere(kind) and not issubclass(kind, ArrayBase):
            if item.dtype.kind in "fc":
                self.scalars.append(item.tobytes())
                return kind
            return kind, item.dtype, item.tobytes()
        if kind is tuple or kind is list:
            return kind, *[self.of(part) for part in item]
        if kind is dict and all(type(key) in (str, int) for key in item):
            return dict, *[(key, self.of(part)) for key, part in item.items()]
        raise _Unknown
