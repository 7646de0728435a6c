"""What objects of the program keep: the Arrays among it, exchanged in place."""

from __future__ import annotations

import gc
import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import partial
from types import (
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

from alight._core import ArrayBase
from alight._src.base.classes import classes_of, kept_by_class, module_of
from alight._src.base.failures import failures, ignoring_failures
from alight._src.base.originals import np
from alight._src.base.uninterrupted import uninterrupted
from alight._src.jit.code_origin import of_a_package, standard

__all__ = [
    "attributes",
    "exchange",
    "exchange_attributes",
    "has_attributes",
    "has_scalar_keys",
    "holds_objects",
    "is_the_programs",
    "method_of",
    "slots",
]

Give = Callable[[Any], Any]

_BY_A_STATEMENT = 1 << 9  # Py_TPFLAGS_HEAPTYPE: of classes that a class statement makes

# What gives out or shows items that others hold, or is a method of what holds some.
_LEADS_TO_HOLDERS: tuple[type, ...] = (
    *(map, zip, enumerate, filter, reversed, itertools.chain, itertools.islice, itertools.cycle),
    *(itertools.starmap, itertools.accumulate, itertools.zip_longest, itertools.takewhile),
    *(type(iter(())), type(iter([])), type(reversed([])), type(iter({}.values()))),
    *(type({}.keys()), type({}.values()), type({}.items()), MappingProxyType, type([].append)),
)

# What holds nothing, or holds it where only its own code reaches.
_CLOSED = (int, float, complex, str, bytes, type(None), np.generic, np.ndarray, type, ModuleType)


def exchange(holder: Any, give: Give) -> Any:
    """Return a container or an object after its items, elements and attributes were exchanged for
    what ``give`` returns: the very object, but for sets and methods of Arrays, which cannot be
    changed."""
    kind = type(holder)  # not what it says it is: a proxy is no container
    if issubclass(kind, type):
        if is_the_programs(holder):
            _exchange_of_class(holder, give)
        return holder
    if kind is np.ndarray and holder.dtype.hasobject and holder.dtype.names is None:
        _exchange_elements(holder, give)
        return holder
    if _is_closed(holder):
        return holder
    if kind is MethodType:
        owner = give(holder.__self__)
        return holder if owner is holder.__self__ else method_of(holder, owner)
    if issubclass(kind, dict):
        if has_scalar_keys(holder):
            _exchange_keys(holder, give)
        if _leads_on(dict.values(holder)):
            _exchange_items(dict, holder, give)
    elif issubclass(kind, list):
        if _leads_on(holder if kind is list else list.copy(holder)):
            _exchange_items(list, holder, give)
    elif issubclass(kind, deque):
        _exchange_items(deque, holder, give)
    elif issubclass(kind, frozenset):
        # scalars, which have their hashes
        if any(issubclass(type(item), ArrayBase) for item in frozenset.__iter__(holder)):
            return type(holder)([give(item) for item in holder])
    elif issubclass(kind, set):
        scalars = [item for _, item in _items(set, holder) if issubclass(type(item), ArrayBase)]
        if given := {id(item): give(item) for item in scalars}:
            # In one call: another thread adds nothing meanwhile. The order stays as it is, too.
            set.__init__(holder, [given.get(id(item), item) for _, item in _items(set, holder)])
    elif kind is ContextVar:
        if (new := give(old := holder.get(None))) is not old:
            holder.set(new)
    elif issubclass(kind, BaseException):
        if (args := _exchanged(holder.args, give)) is not holder.args:
            holder.args = args
        others = holder.exceptions if issubclass(kind, BaseExceptionGroup) else ()
        for other in (holder.__cause__, holder.__context__, *others):
            give(other)
    elif issubclass(kind, FunctionType):
        for cell in holder.__closure__ or ():
            with ignoring_failures(ValueError):  # not assigned yet
                cell.cell_contents = give(cell.cell_contents)
        defaults = holder.__defaults__ or ()
        if (others := _exchanged(defaults, give)) is not defaults:
            holder.__defaults__ = others
        for kept in (holder.__kwdefaults__ or {}, vars(holder)):
            _exchange_items(dict, kept, give)
    elif issubclass(kind, partial):
        old = (holder.func, holder.args, holder.keywords, vars(holder))
        for kept in old[2:]:
            _exchange_items(dict, kept, give)
        new = (give(old[0]), _exchanged(old[1], give), *old[2:])
        if new[0] is not old[0] or new[1] is not old[1]:
            holder.__setstate__(new)  # the only way to set them
    elif any(kind is one for one in _LEADS_TO_HOLDERS):
        for source in gc.get_referents(holder):
            for item in source if type(source) is tuple else (source,):
                give(item)
    if issubclass(kind, BaseException) or is_the_programs(kind):
        exchange_attributes(holder, give)
    return holder


def _exchanged(items: tuple[Any, ...], give: Give) -> tuple[Any, ...]:
    """Return a tuple of what is given for items; the very tuple where that is the same."""
    given = tuple([give(item) for item in items])
    return items if all(a is b for a, b in zip(given, items, strict=True)) else given


def method_of(method: MethodType, owner: Any) -> Any:
    """Return a method as that of another owner."""
    theirs = getattr(type(method.__self__), method.__name__, None) is method.__func__
    return getattr(owner, method.__name__) if theirs else MethodType(method.__func__, owner)


def holds_objects(tree: Any) -> bool:
    """Tell whether a tuple, list or dict has items that may keep something."""
    if type(tree) is dict:
        return has_scalar_keys(tree) or _leads_on(tree.values())
    return _leads_on(tree)


def _leads_on(items: Iterable[Any]) -> bool:
    # Long lists are mostly numbers: their types are looked at in C.
    return not all(issubclass(kind, _CLOSED) for kind in classes_of(items))


def exchange_attributes(holder: Any, give: Give) -> None:
    """Exchange the attributes of an object for what ``give`` returns."""
    _exchange_items(dict, attributes(holder), give)
    kind: Any = type(holder)
    for slot in slots(kind):
        try:
            item = slot.__get__(holder)
        except failures(AttributeError):  # nothing is there
            continue
        if (new := give(item)) is not item:
            with ignoring_failures(AttributeError):  # of a class written in C, which sets it itself
                slot.__set__(holder, new)


def _exchange_elements(array: np.ndarray[Any, Any], give: Give) -> None:
    """Exchange what an ndarray of objects holds for what ``give`` returns."""
    if not array.flags.writeable or not _leads_on(array.ravel().tolist()):
        return
    one = array if array.ndim else array.reshape(1)
    for place in np.ndindex(one.shape):
        item = one[place]
        if not _is_closed(item) and (new := give(item)) is not item and one[place] is item:
            one[place] = new


def has_scalar_keys(holder: dict[Any, Any]) -> bool:
    """Tell whether scalars that a body computed are keys of a dict."""
    return any(issubclass(kind, ArrayBase) for kind in classes_of(dict.keys(holder)))


def _exchange_keys(holder: dict[Any, Any], give: Give) -> None:
    """Exchange scalars that are keys, which have their hashes; the order stays as it is."""
    keys = [key for key, _ in _items(dict, holder) if issubclass(type(key), ArrayBase)]
    given = {id(key): give(key) for key in keys}

    def put() -> None:
        items = {given.get(id(key), key): item for key, item in _items(dict, holder)}
        dict.clear(holder)
        dict.update(holder, items)

    uninterrupted(put)


def _exchange_of_class(kind: type, give: Give) -> None:
    """Exchange what a class keeps beside its methods for what ``give`` returns."""
    for name, item in vars(kind).copy().items():
        if _closed_in_classes(type(item)) or (new := give(item)) is item:
            continue
        if vars(kind).get(name) is item:
            type.__setattr__(kind, name, new)


@kept_by_class  # asked of every attribute of a class at every call that comes by it
def _closed_in_classes(kind: Any) -> bool:
    return issubclass(kind, _CLOSED) or any("__get__" in vars(base) for base in kind.__mro__)


def attributes(holder: Any) -> dict[str, Any]:
    """Return the dict that an object's attributes are in, without running any of its code."""
    kind: Any = type(holder)
    own = _dict_of(kind)
    kept = None if own is None else own.__get__(holder)
    return kept if isinstance(kept, dict) else {}


def has_attributes(kind: type) -> bool:
    """Tell whether objects of a class have their attributes in a dict of their own."""
    return _dict_of(kind) is not None


@kept_by_class  # asked of every object that is looked at
def _dict_of(kind: Any) -> Any:
    """Return what gives the dict of objects of a class; None where there is none, or where the
    program has given the name something else."""
    found = next((vars(b)["__dict__"] for b in kind.__mro__ if "__dict__" in vars(b)), None)
    return found if type(found) is GetSetDescriptorType else None


def _exchange_items(kind: Any, holder: Any, give: Give) -> None:
    """Exchange what a dict, list or deque holds. Other threads may change it meanwhile: what has
    moved is looked for, and what has gone stays away."""
    for place, item in _items(kind, holder):
        if _is_closed(item) or (new := give(item)) is item:
            continue
        found = [place]
        while found and not _put(kind, holder, found[0], item, new):
            moved = () if kind is dict else _items(kind, holder)
            found = [there for there, other in moved if other is item]


def _items(kind: Any, holder: Any) -> list[tuple[Any, Any]]:
    while True:
        try:
            return [*(dict.items(holder) if kind is dict else enumerate(kind.__iter__(holder)))]
        except failures(RuntimeError):  # another thread has changed it meanwhile
            continue


def _put(kind: Any, holder: Any, place: Any, old: Any, new: Any) -> bool:
    """Put an item in the place of another, and tell whether that was there."""
    with ignoring_failures(LookupError):
        if type(holder) is kind:
            # No call between: the interpreter takes turns of threads at calls.
            if holder[place] is old:
                holder[place] = new
                return True
        elif kind.__getitem__(holder, place) is old:
            kind.__setitem__(holder, place, new)
            return True
    return False


def _is_closed(item: Any) -> bool:
    # By its type: scalars that are pending say in isinstance that they are NumPy's.
    return issubclass(type(item), _CLOSED)


@kept_by_class  # asked at every call that is given objects
def slots(kind: Any) -> tuple[Any, ...]:
    """Return what gives the slots of objects of a class."""
    bases = kind.__mro__[:-1]
    return tuple([v for b in bases for v in vars(b).values() if type(v) is MemberDescriptorType])


def is_the_programs(kind: type) -> bool:
    """Tell whether a class is the program's own: what those of packages keep is their affair."""
    if kind is SimpleNamespace:
        return True
    file = getattr(sys.modules.get(module_of(kind)), "__file__", None)
    if file is None:
        return bool(kind.__flags__ & _BY_A_STATEMENT)
    return not of_a_package(file) and not file.startswith(standard())
