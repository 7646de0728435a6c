"""What `array.flags` says of an array's memory."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, ref

from alight._core import ArrayBase, Storage, View, layout_of
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.record.storage_io import may_be_written

__all__ = ["Flags", "made_over", "owner_of", "owns", "rests_on", "set_writeable"]

_NAMES = {
    **dict.fromkeys(("C", "C_CONTIGUOUS", "CONTIGUOUS"), "c_contiguous"),
    **dict.fromkeys(("F", "F_CONTIGUOUS", "FORTRAN"), "f_contiguous"),
    **dict.fromkeys(("O", "OWNDATA"), "owndata"),
    **dict.fromkeys(("W", "WRITEABLE"), "writeable"),
    **dict.fromkeys(("A", "ALIGNED"), "aligned"),
    **dict.fromkeys(("X", "WRITEBACKIFCOPY"), "writebackifcopy"),
    **{"B": "behaved", "BEHAVED": "behaved", "CA": "carray", "CARRAY": "carray"},
    **{"FA": "farray", "FARRAY": "farray", "FNC": "fnc", "FORC": "forc"},
}
_SHOWN = (*("C_CONTIGUOUS", "F_CONTIGUOUS", "OWNDATA", "WRITEABLE", "ALIGNED", "WRITEBACKIFCOPY"),)


class Flags:
    """NumPy's flags of an array, by attribute and by name; `writeable` can be set."""

    __slots__ = ("_array", "_known")

    def __init__(self, array: ArrayBase) -> None:
        self._array = array
        lay = layout_of(array)
        window = array.window
        known = lay.probe.flags
        aligned = known.aligned and (window is None or window.offset % lay.dtype.alignment == 0)
        writeable = window is None or window.writeable
        behaved = writeable and aligned
        self._known = {
            "c_contiguous": known.c_contiguous,
            "f_contiguous": known.f_contiguous,
            "owndata": _has_own_memory(array),
            "writeable": writeable,
            "aligned": aligned,
            "writebackifcopy": False,
            "behaved": behaved,
            "carray": behaved and known.c_contiguous,
            # NumPy asks for any of these where its documentation says all.
            "farray": (aligned or writeable or known.f_contiguous) and not known.c_contiguous,
            "fnc": known.fnc,
            "forc": known.forc,
            "contiguous": known.c_contiguous,
            "fortran": known.f_contiguous,
            "num": known.c_contiguous * 0x1 + known.f_contiguous * 0x2 + aligned * 0x100,
        }
        self._known["num"] += self._known["owndata"] * 0x4 + writeable * 0x400

    def __getattr__(self, name: str) -> Any:
        if name == "_writeable_no_warn":
            return self._known["writeable"]
        if name == "writeable" and self._known[name]:
            return may_be_written(self._array)
        try:
            return self._known[name]
        except failures(KeyError):
            raise AttributeError(f"flags have no attribute {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif name == "writeable":
            set_writeable(self._array, bool(value))
            self._known["writeable"] = bool(value)
        else:
            raise AttributeError(f"flags attribute {name!r} cannot be set")

    def __getitem__(self, name: str) -> Any:
        if name not in _NAMES:
            raise KeyError("Unknown flag")
        return getattr(self, _NAMES[name])

    def __setitem__(self, name: str, value: Any) -> None:
        if _NAMES.get(name) != "writeable":
            raise KeyError("Unknown flag")
        self.writeable = value

    def __eq__(self, other: object) -> bool:
        return bool(getattr(other, "num", None) == self.num)

    def __hash__(self) -> int:
        return hash(self.num)

    def __repr__(self) -> str:
        return "".join([f"  {name} : {self[name]}\n" for name in _SHOWN])


class _Owner:
    """The array that others are views of, where it was made read-only or over a ``buffer``;
    ``locked``: it may not be written to, nor they."""

    __slots__ = ("array", "buffer", "locked")

    def __init__(self, array: ArrayBase, buffer: Any = None) -> None:
        self.array: ref[Any] = ref(array)
        self.buffer = buffer
        self.locked = type(buffer) is bytes


_owners: WeakKeyDictionary[Storage, _Owner] = WeakKeyDictionary()


def owns(array: ArrayBase) -> bool:
    """Tell whether an array is the whole of its memory, and no view of another that is."""
    if (member := _leased(array)) is not None:
        return member.base is None
    owner = _owners.get(array.storage)
    if owner is None:
        return array.window is None
    return owner.array() is array and rests_on(array) is None


def owner_of(array: ArrayBase) -> ArrayBase | None:
    """Return the array that others are views of, where that is known."""
    for one, member in array.storage.members:
        if not isinstance(member.base, np.ndarray):
            return one()
    owner = _owners.get(array.storage)
    return None if owner is None else owner.array()


def rests_on(array: ArrayBase) -> Any:
    """Return the buffer that an array is made over, None for all that NumPy gives arrays of its own
    memory or views of them for."""
    if (member := _leased(array)) is not None:
        return None if isinstance(member.base, np.ndarray) else member.base
    owner = _owners.get(array.storage)
    return None if owner is None or owner.array() is not array else owner.buffer


def made_over(array: ArrayBase, buffer: Any) -> None:
    """Note that an array, of which others will be views, is made over a buffer."""
    _owners[array.storage] = _Owner(array, buffer)


def _has_own_memory(array: ArrayBase) -> bool:
    if (member := _leased(array)) is not None:
        return member.flags.owndata
    data = array.storage.value.data
    return owns(array) and (data is None or not data.foreign)


def _leased(array: ArrayBase) -> np.ndarray[Any, Any] | None:
    """Return the caller's ndarray that an array is in the body of a jitted function."""
    for one, member in array.storage.members:
        if one() is array:
            return member
    return None


def set_writeable(array: ArrayBase, writeable: bool) -> None:
    """Let an array be written to, or not; other views of its memory stay as they are. Raises
    ValueError where NumPy does not make a view writeable, as what it is a view of is not."""
    may_be_written(array, writeable)
    window, storage = array.window, array.storage
    data = storage.value.data
    memory = None if data is None else data.array
    owner = _owners.get(storage)
    if writeable and memory is not None and any(m is memory for _, m in storage.members):
        seen = memory if _leased(array) is memory else memory[...]
        seen.flags.writeable = True  # NumPy says whether it may be
        memory.flags.writeable = True  # while the call lasts
    if writeable and (
        (memory is not None and not memory.flags.writeable)
        or (owner is not None and owner.locked and not (owner.array() is array and owns(array)))
    ):
        raise ValueError("cannot set WRITEABLE flag to True of this array")
    if owner is None and owns(array) and not writeable:
        owner = _owners[storage] = _Owner(array)
    if owner is not None and owner.array() is array and rests_on(array) is None:
        owner.locked = not writeable
    if window is not None:
        array.window = View(window.layout, window.offset, writeable)
    elif not writeable:
        array.window = View(layout_of(array), 0, False)
