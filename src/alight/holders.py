"""What objects of the program keep: the Arrays among it, exchanged in place."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from types import FunctionType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any

from alight._core import ArrayBase
from alight.frozen import np
from alight.purity import of_a_package, standard

__all__ = ["exchange", "exchange_attributes", "holds_objects", "is_the_programs"]

Give = Callable[[Any], Any]

_BY_A_STATEMENT = 1 << 9  # Py_TPFLAGS_HEAPTYPE: of classes that a class statement makes

# What holds nothing, or holds it where only its own code reaches.
_CLOSED = (int, float, complex, str, bytes, type(None), np.generic, np.ndarray, type, ModuleType)


def exchange(holder: Any, give: Give) -> Any:
    """Return a container or an object after its items, elements and attributes were exchanged for
    what ``give`` returns: the very object, but for sets that cannot be changed."""
    if _is_closed(holder):
        return holder
    if isinstance(holder, dict):
        if _leads_on(dict.values(holder)):
            _exchange_items(dict.items(holder), lambda k, v: dict.__setitem__(holder, k, v), give)
    elif isinstance(holder, list):
        if _leads_on(holder):
            _exchange_items(enumerate(holder), lambda k, v: list.__setitem__(holder, k, v), give)
    elif isinstance(holder, deque):
        _exchange_items(enumerate(holder), lambda k, v: deque.__setitem__(holder, k, v), give)
    elif isinstance(holder, (set, frozenset)):
        if any(isinstance(item, ArrayBase) for item in holder):  # scalars, which have their hashes
            items = [give(item) for item in holder]
            if isinstance(holder, frozenset):
                return type(holder)(items)
            holder.clear()
            holder.update(items)
    elif isinstance(holder, BaseException):
        args = [give(item) for item in holder.args]
        if any(new is not item for new, item in zip(args, holder.args, strict=True)):
            holder.args = tuple(args)
    elif isinstance(holder, FunctionType):
        for cell in holder.__closure__ or ():
            with suppress(ValueError):  # not assigned yet
                cell.cell_contents = give(cell.cell_contents)
    if isinstance(holder, BaseException) or is_the_programs(type(holder)):
        exchange_attributes(holder, give)
    return holder


def holds_objects(tree: Any) -> bool:
    """Tell whether a tuple, list or dict has items that may keep something."""
    return _leads_on(tree.values() if type(tree) is dict else tree)


def _leads_on(items: Iterable[Any]) -> bool:
    # Long lists are mostly numbers: their types are looked at in C.
    return not all(issubclass(kind, _CLOSED) for kind in set(map(type, items)))


def exchange_attributes(holder: Any, give: Give) -> None:
    """Exchange the attributes of an object for what ``give`` returns."""
    kept = getattr(holder, "__dict__", None)
    if type(kept) is dict:
        _exchange_items(kept.items(), kept.__setitem__, give)
    kind: Any = type(holder)
    for slot in _slots(kind):
        try:
            item = slot.__get__(holder)
        except AttributeError:  # nothing is there
            continue
        if (new := give(item)) is not item:
            with suppress(AttributeError):  # of a class written in C, which sets it itself
                slot.__set__(holder, new)


def _exchange_items(items: Any, put: Callable[[Any, Any], Any], give: Give) -> None:
    for place, item in list(items):
        if not _is_closed(item) and (new := give(item)) is not item:
            put(place, new)


def _is_closed(item: Any) -> bool:
    # By its type: scalars that are pending say in isinstance that they are NumPy's.
    return issubclass(type(item), _CLOSED)


@lru_cache(256)  # asked at every call that is given objects
def _slots(kind: Any) -> tuple[Any, ...]:
    bases = kind.__mro__[:-1]
    return tuple([v for b in bases for v in vars(b).values() if type(v) is MemberDescriptorType])


def is_the_programs(kind: type) -> bool:
    """Tell whether a class is the program's own: what those of packages keep is their affair."""
    if kind is SimpleNamespace:
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None:
        return bool(kind.__flags__ & _BY_A_STATEMENT)
    return not of_a_package(file) and not file.startswith(standard())
