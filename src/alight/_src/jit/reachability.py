"""What code can come by from what it is given and from what it names: the ndarrays there, and what
keeps them.

A function that assigns into an argument may read the same memory by any other way: a list in an
attribute, a dict under a global name, a variable of an enclosing function, an iterator. Who defers
the assignment has to know of them all.
"""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any
from weakref import CallableProxyType, ProxyType, ReferenceType

from alight._core import ArrayBase
from alight._src.base.classes import classes_of, kept_by_class, module_of
from alight._src.base.failures import failures, ignoring_failures
from alight._src.base.originals import np
from alight._src.jit.bytecode import asks_for_names, names_of
from alight._src.jit.code_origin import (
    READERS,
    of_a_package,
    standard,
    written_by_user,
)
from alight._src.jit.exchange import attributes, is_the_programs
from alight._src.run.window_writes import meets_itself

__all__ = [
    "NdArray",
    "Reachability",
    "exported",
    "leads_nowhere",
    "overlap",
    "overlaps_itself",
    "spaces",
]

NdArray = np.ndarray[Any, Any]
_bounds = np.lib.array_utils.byte_bounds
# As NumPy has them: every call asks, and a program may give these names something else.
_may_share, _shares = np.may_share_memory, np.shares_memory

# What holds nothing that an array could be in.
_ATOMS = (
    int, float, complex, str, bytes, range, type(None), type(Ellipsis), type(NotImplemented),
    np.dtype, np.ufunc, CodeType, GetSetDescriptorType, MemberDescriptorType,
)  # fmt: skip
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)

_FEWEST = 1_000
_ELEMENTS_TO_ONE = 1_000
_LONG = 32  # of more items than these the types are looked at first, in C: as long as one object


class Reachability:
    """What is reached from some roots: ``arrays``, the address ranges of other ``buffers``, and by
    its id everything that was looked at.

    ``whole`` is False where there was more than may be looked at: one object takes some 1 µs, what
    NumPy takes for 1000 elements. So looking takes no longer than one pass over the arrays that a
    call is given, or 1 ms.
    """

    __slots__ = ("arrays", "buffers", "met", "whole")

    def __init__(self, roots: Iterable[Any], elements: int) -> None:
        self.arrays: list[NdArray] = []
        self.buffers: list[tuple[int, int]] = []
        self.met: dict[int, Any] = {}
        self.whole = True
        left = max(_FEWEST, elements // _ELEMENTS_TO_ONE)
        met = self.met
        stack = [*roots]
        while stack:
            item = stack.pop()
            kind: Any = type(item)
            if id(item) in met or leads_nowhere(kind):
                continue
            met[id(item)] = item
            if issubclass(kind, np.ndarray):
                self.arrays.append(item)
            elif issubclass(kind, ArrayBase):
                if (shared := exported(item)) is not None:
                    self.arrays.append(shared)
            elif _is_buffer(kind):
                self._buffer(item)
            if issubclass(kind, _CONTAINERS) and _length(item, kind) // _LONG > left:
                self.whole = False
                return
            parts = _parts(item, kind)
            left -= 1 + len(parts) // _LONG
            if len(parts) > _LONG and _all_lead_nowhere(parts):
                continue
            stack += parts
            if len(stack) > left:
                stack = [part for part in stack if not _all_lead_nowhere((part,))]
                if len(stack) > left:
                    self.whole = False
                    return

    def touches(self, array: NdArray) -> bool:
        """Tell whether an ndarray may be reached, or some of its bytes."""
        if not self.whole or any(overlap(array, other) for other in self.arrays):
            return True
        if not self.buffers:
            return False
        low, high = _bounds(array)
        return any(low < end and start < high for start, end in self.buffers)

    def leads_to(self, kind: type) -> bool:
        """Tell whether objects of a type may be reached."""
        return not self.whole or any(issubclass(type(item), kind) for item in self.met.values())

    def _buffer(self, item: Any) -> None:
        with ignoring_failures(TypeError, ValueError, BufferError), memoryview(item) as view:
            if not view.readonly and view.nbytes:
                # Nothing of it is kept: what is exported cannot be given another size.
                self.buffers.append(_bounds(np.frombuffer(view, np.uint8)))


def exported(array: ArrayBase) -> NdArray | None:
    """Return an Array's memory where others may see it."""
    data = array.storage.value.data
    return data.array if data is not None and data.shared and data.exported else None


def overlaps_itself(array: NdArray) -> bool:
    """Tell whether what is written into an element may be seen in another one of the same array, as
    in windows made by `as_strided`: which one comes last is NumPy's to say. Of a dense array it
    need not be asked."""
    return meets_itself(array.shape, array.strides, array.itemsize)


def overlap(a: NdArray, b: NdArray) -> bool:
    """Tell whether two ndarrays share an element's bytes; where that takes long to find out,
    they do."""
    if not _may_share(a, b):
        return False
    try:
        # The general question is NP-hard. What 100 candidates do not settle counts as shared, which
        # is right too: only some writes go through one storage that could have had two.
        return _shares(a, b, max_work=100)  # type: ignore[arg-type]
    except failures(np.exceptions.TooHardError, OverflowError):
        return True


# With fewer arrays to ask about each pair takes less than to sort them: 18 µs and 22 for 12, 31 and
# 29 for 16 (EPYC).
_SORTED_FROM = 16


def overlapping(arrays: Sequence[NdArray]) -> list[tuple[int, int]]:
    """Return which ndarrays share an element's bytes, as pairs of their numbers, by the second."""
    count = len(arrays)
    if count < _SORTED_FROM:
        pairs = [(i, j) for j in range(1, count) for i in range(j)]
        return [(i, j) for i, j in pairs if overlap(arrays[i], arrays[j])]
    found: list[tuple[int, int]] = []
    near: list[tuple[int, int]] = []  # where those end that what comes may reach, and their numbers
    for low, high, number in sorted([(*_bounds(item), n) for n, item in enumerate(arrays)]):
        near = [(end, n) for end, n in near if end > low]
        found += [
            (min(n, number), max(n, number)) for _, n in near if overlap(arrays[n], arrays[number])
        ]
        near.append((high, number))
    return sorted(found, key=lambda pair: pair[::-1])


@kept_by_class  # asked of every object that is looked at
def leads_nowhere(kind: Any) -> bool:
    """Tell whether objects of this type keep nothing that an array could be in."""
    if issubclass(kind, type):
        return False
    if issubclass(kind, np.generic):
        return not issubclass(kind, (np.void, np.object_))
    # A subclass may have attributes.
    return any(kind is one for one in _ATOMS) or issubclass(kind, (bool, np.dtype))


def _all_lead_nowhere(items: Iterable[Any]) -> bool:
    return all(map(leads_nowhere, classes_of(items)))


@kept_by_class
def _is_buffer(kind: Any) -> bool:
    """Tell whether objects of this type have memory of their own that they show to others."""
    return issubclass(kind, (bytearray, array.array, mmap.mmap, ctypes.Array, ctypes.Structure))


def _length(item: Any, kind: type) -> int:
    """Return how many items a container holds, whatever its own class says."""
    base: Any = next(one for one in _CONTAINERS if issubclass(kind, one))
    count: int = base.__len__(item)
    return count


def _parts(item: Any, kind: type) -> list[Any]:
    """Return what an object leads to directly."""
    if kind is list:
        return item  # type: ignore[no-any-return]
    if kind is tuple:
        return [*item]
    if kind is dict:
        keys = () if _all_lead_nowhere(item) else item
        return [*item.values(), *keys]
    if issubclass(kind, np.ndarray):
        parts = [*item.reshape(-1)] if item.dtype.hasobject else []
        return parts if kind is np.ndarray else [*parts, *_kept(item)]
    if issubclass(kind, ArrayBase):
        return []
    if kind is FunctionType:
        return list(_of_function(item))
    if issubclass(kind, type):
        return [*vars(item).values(), *item.__bases__] if is_the_programs(item) else []
    if issubclass(kind, ModuleType):
        return [*vars(item).values()] if _is_the_programs_module(item) else []
    if issubclass(kind, (np.void, np.flatiter)):
        return [item.base]
    if kind is np.nditer:
        with ignoring_failures(ValueError):  # one that was closed has none
            return [*item.operands]
        return []
    if kind is memoryview:
        return [item.obj]
    if issubclass(kind, ReferenceType):
        return [item()]
    if kind is ProxyType or kind is CallableProxyType:
        with ignoring_failures(ReferenceError):
            return [item.__repr__.__self__]
        return []
    if kind is ContextVar:  # which keeps what it was set to in what its thread runs in
        return [*gc.get_referents(item), item.get(None)]
    if module_of(kind).partition(".")[0] in READERS and callable(item):
        # A compiled function, which all of its package hangs on.
        return [item.__wrapped__] if hasattr(item, "__wrapped__") else []
    if module_of(kind).startswith("alight."):
        return [item.__wrapped__] if hasattr(item, "declared_pure") else []
    return [*gc.get_referents(item), *_kept(item), kind]


def _kept(item: Any) -> Iterable[Any]:
    # Where CPython keeps attributes apart from a dict, its collector may not name the dict.
    return dict.values(attributes(item))


def _of_function(function: FunctionType) -> Iterator[Any]:
    """Yield what a function's code can come by; of a package's, what it was given."""
    yield from function.__closure__ or ()
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from vars(function).values()
    values = names_of(function.__code__).values
    for space, names in spaces(function):
        for name in names & space.keys():
            # Whoever gets a module as a value may take anything from it.
            if name in values or not _is_module(space[name]):
                yield space[name]
    if written_by_user(function):
        yield from _imported(function)


def spaces(function: FunctionType) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield where the program's own function looks up names, and which: its globals, and of the
    program's own modules that it comes by there the attributes that it names."""
    if not written_by_user(function):
        return
    names = names_of(function.__code__)
    everything = asks_for_names(function)
    left, met = [(function.__globals__, names.outside)], set()
    left += [(vars(module), names.attributes) for module in _imported(function)]
    while left:
        space, looked_up = left.pop()
        if id(space) in met:
            continue
        met.add(id(space))
        looked_up = frozenset(space.copy()) if everything else looked_up
        yield space, looked_up
        found = [space[name] for name in looked_up if name in space and _is_module(space[name])]
        left += [(vars(m), names.attributes) for m in found if _is_the_programs_module(m)]


def _imported(function: FunctionType) -> list[ModuleType]:
    """Return the program's own modules that a function imports when it is called, if they are
    loaded."""
    imported = names_of(function.__code__).imported
    if not imported:
        return []
    # Of a relative import code has but the end, and may mean any package around.
    around = str(function.__globals__.get("__package__") or "").split(".")
    packages = [".".join(around[:n]) for n in range(len(around), 0, -1)]
    tried = {*imported, *[f"{p}.{name}".strip(".") for p in packages for name in imported]}
    # `import a.b` gives `a`.
    tried |= {name.partition(".")[0] for name in imported}
    found = [sys.modules.get(name) for name in tried]
    return [m for m in found if m is not None and _is_module(m) and _is_the_programs_module(m)]


def _is_module(item: Any) -> bool:
    return issubclass(type(item), ModuleType)


def _is_the_programs_module(module: ModuleType) -> bool:
    """Tell whether a module is the program's own, not a package's or the standard library's."""
    file = getattr(module, "__file__", None)
    if file is None:  # made by the program, or a folder; what is built in says so
        return getattr(getattr(module, "__spec__", None), "origin", None) is None
    return not of_a_package(file) and not file.startswith(standard())
