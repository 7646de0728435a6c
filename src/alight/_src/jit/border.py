"""The border: what the program hands to the code of packages, and what it gets back.

Packages are given the ndarray over an Array's memory, and what they give back of these is that
Array again. The program's code comes here by `border`, which `border_rewrite` puts into it.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from alight._core import ArrayBase, Border, floor
from alight._src.base.classes import is_among, kept_by_class
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.jit.border_handover import any_is_out, given_back, handed_over, keep_if_looked_for
from alight._src.jit.border_sides import (
    FOREIGN,
    ITERATING,
    NOT_KEPT,
    STRAIGHT,
    is_the_programs_class,
    judge,
    side_of_class,
)
from alight._src.jit.exchange import attributes, has_attributes, method_of, slots
from alight._src.jit.purity import only_computes
from alight._src.record.declared_ops import STAND_INS
from alight._src.record.numpy_fallback import tuple_like
from alight._src.record.tracebacks import public

__all__ = [
    "NAME",
    "OPERATORS",
    "border",
    "installed",
]


# What `describe` tells.
_A_PACKAGES, _HOLDS_NOTHING, _BY_ATTRIBUTES = 1, 2, 4


def describe(kind: Any) -> int:
    """Tell what is known of objects of a class: whether what they do is a package's code, and
    whether they hold nothing that is exchanged, or only attributes."""
    try:
        told = _A_PACKAGES if any(side_of_class(base) == FOREIGN for base in kind.__mro__) else 0
        if not _kind_may_hold(kind):
            return told | _HOLDS_NOTHING
        plain = not issubclass(kind, (*_HOLDERS, *_LEADING)) and not slots(kind)
        return told | _BY_ATTRIBUTES if plain and has_attributes(kind) else told
    except failures():  # of a class that is made while it is looked at
        return _A_PACKAGES


# By their ids, containers whose Arrays are out, and the calls that have them there: of several at
# once the last gives the Arrays back.
_out: dict[int, tuple[Any, set[_Crossing]]] = {}
# Threads that have called packages. Where there are several, the calls of others refer to what they
# are given, too, and references do not tell what a package has kept.
_callers: set[int] = set()
_turn = threading.RLock()  # a signal's handler may call a package, too


class _Crossing:
    """One exchange of what is reached from some objects, each looked at once."""

    __slots__ = ("acting", "convert", "counts", "met", "replaced", "taken")

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self.convert = convert
        self.met: dict[int, Any] = {}
        # Held until it is back: an object of the program may be the only one that has it.
        self.replaced: list[Any] = []
        self.taken: dict[int, Any] = {}
        # The program's objects whose methods run as they are when a package calls them inside
        # `jit`: as long as it may, what they have is ndarrays.
        self.acting: list[Any] = []
        self.counts: list[int] = []

    def give(self, item: Any) -> Any:
        """Return an item as it is on the other side; what holds others is changed in place, but for
        tuples."""
        kind: Any = type(item)
        if kind is np.ndarray or issubclass(kind, ArrayBase):
            new = self.convert(item)
            if new is not item:
                self.replaced.append(item)
            return new
        if is_among(kind, _ATOMS) or id(item) in self.met:
            return item
        if kind is types.MethodType and isinstance(item.__self__, ArrayBase):
            return method_of(item, self.give(item.__self__))
        if kind is functools.partial and (func := self.give(item.func)) is not item.func:
            named = {name: self.give(part) for name, part in item.keywords.items()}
            return functools.partial(func, *[self.give(part) for part in item.args], **named)
        if kind is types.MethodType and floor.traced:
            self.give(item.__self__)  # it runs as it is, as packages call it
        if not _may_hold(item, kind):
            return item
        self.met[id(item)] = item
        if issubclass(kind, tuple):
            return _tuple_of(item, [self.give(part) for part in item])
        self.parts(item, kind)
        return item

    def parts(self, holder: Any, kind: Any) -> None:
        """Exchange what an object holds, in place."""
        if issubclass(kind, dict):
            self.items(holder, lambda: dict.copy(holder).items())
        elif issubclass(kind, list):
            if not _ATOM_IDS.issuperset(map(id, map(type, list.__iter__(holder)))):
                self.items(holder, lambda: enumerate(list.copy(holder)))
        elif issubclass(kind, deque):
            self.items(holder, lambda: enumerate(list(deque.__iter__(holder))))
        elif kind is functools.partial:
            new = _tuple_of(holder.args, [self.give(part) for part in holder.args])
            self.give(holder.keywords)
            holder.__setstate__((holder.func, new, holder.keywords, vars(holder)))
        elif is_among(kind, _LEADING):
            for source in gc.get_referents(holder):
                for part in source if type(source) is tuple else (source,):
                    self.give(part)
        if is_the_programs_class(kind) or kind is types.SimpleNamespace:
            if floor.traced and self.convert is _outward and _acts(kind):
                self.acting.append(holder)
            kept = attributes(holder)
            self.items(kept, lambda: dict.copy(kept).items())
            if found := slots(kind):
                self.items(holder, lambda: _in_slots(holder, found))

    def items(self, holder: Any, items: Callable[[], Iterable[tuple[Any, Any]]]) -> None:
        """Exchange the items of a container, by its own class whatever a subclass makes of it."""
        back = self.convert is given_back
        with _turn:  # what another call has out it gives back before or after
            if (elsewhere := id(holder) in _out) and not back:
                self.take(holder)
            found = [] if back and elsewhere else list(items())
        before = len(self.taken)
        for place, part in found:
            if (new := self.give(part)) is not part:
                if not back:
                    self.take(holder)
                _put(holder, place, part, new)
        if len(self.taken) > before:  # what holds a container that is out is out with it
            self.take(holder)

    def take(self, holder: Any) -> None:
        """Note that a call has what a container holds out."""
        if id(holder) not in self.taken:
            self.taken[id(holder)] = holder
            with _turn:
                _out.setdefault(id(holder), (holder, set()))[1].add(self)
                border.out = len(_out)

    def end(self) -> None:
        """Note that the call is over. Where that is broken off it is done again."""
        for key in self.taken:
            _, calls = _out.get(key, (None, {self}))
            calls.discard(self)
            if not calls:
                _out.pop(key, None)
        border.out = len(_out)

    def references(self) -> list[int]:
        """Return how many references there are to each container that is out, and to each object
        that a package may call."""
        return [sys.getrefcount(holder) for holder in (*self.taken.values(), *self.acting)]

    def give_back(self, kept: bool = False) -> _Crossing:
        """Note that the call is over, and give the containers that nobody else has out their Arrays
        back; ``kept``: nor those that the package has kept, to look into later."""
        kept = kept and bool(self.taken) and _is_alone()
        counts = self.references() if kept else self.counts
        self.end()
        back = _Crossing(given_back)
        holders = (*self.taken.values(), *self.acting)
        for n, (before, now) in enumerate(zip(self.counts, counts, strict=True)):
            if now > before and n < len(self.taken):
                back.pass_by(holders[n], _items_of)
            elif now > before:
                back.pass_by(holders[n], _anything_in)
        for holder in self.taken.values():
            if id(holder) not in back.met:
                back.parts(holder, type(holder))
        return back

    def pass_by(self, holder: Any, parts: Callable[[Any], Iterable[Any]]) -> None:
        """Leave what holds others as it is, and what its parts lead to."""
        if id(holder) not in self.met and (found := parts(holder)):
            self.met[id(holder)] = holder
            for part in found:
                self.pass_by(part, parts)


def _items_of(holder: Any) -> Iterable[Any]:
    """Return what is in a container, which a package may look into later."""
    if type(holder) is dict:
        return holder.values()
    return holder if type(holder) is list or type(holder) is tuple else ()


def _anything_in(holder: Any) -> Iterable[Any]:
    """Return what is in a container or an object, whose methods a package may call later."""
    kind: Any = type(holder)
    if is_among(kind, _ATOMS) or kind is np.ndarray:
        return ()
    if issubclass(kind, dict):
        items = [*dict.values(holder)]
    else:
        items = [*holder] if issubclass(kind, (list, tuple, deque)) else []
    if is_the_programs_class(kind) or kind is types.SimpleNamespace:
        items += [attributes(holder), *[item for _, item in _in_slots(holder, slots(kind))]]
    return items


def _is_alone() -> bool:
    """Tell whether only one of the threads that run has called packages."""
    _callers.intersection_update([thread.ident or 0 for thread in threading.enumerate()])
    return len(_callers) < 2


def _put(holder: Any, place: Any, old: Any, new: Any) -> None:
    """Exchange one item, unless it is another by now."""
    if type(place) is types.MemberDescriptorType:
        with suppress(AttributeError):  # of a class that sets it itself
            place.__set__(holder, new)
    elif isinstance(holder, deque):
        with suppress(IndexError):
            if deque.__getitem__(holder, place) is old:
                deque.__setitem__(holder, place, new)
    else:
        border.swap(holder, place, old, new)


def _in_slots(holder: Any, found: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    for slot in found:
        with suppress(AttributeError):  # nothing is there
            yield slot, slot.__get__(holder)


_ATOMS = frozenset((int, float, complex, bool, str, bytes, type(None), slice, range, type))
_ATOM_IDS = frozenset(map(id, _ATOMS))
_HOLDERS = (list, dict, deque, tuple, functools.partial, types.SimpleNamespace)
_LEADING: tuple[Any, ...] = (map, zip, enumerate, filter, reversed, type(iter([])), type(iter(())))


def _may_hold(item: Any, kind: Any) -> bool:
    if kind is types.MethodType:
        return False
    if kind is functools.partial:  # of the program's own function: that is called on Arrays
        return judge(item.func) & ~NOT_KEPT == FOREIGN
    return _kind_may_hold(kind)


def _kind_may_hold(kind: Any) -> bool:
    if issubclass(kind, ArrayBase):
        return True
    if issubclass(kind, _HOLDERS) or is_among(kind, _LEADING):
        return True
    if issubclass(kind, (type, types.ModuleType, types.FunctionType)):
        return False
    return kind is types.MethodType or is_the_programs_class(kind)


def _tuple_of(old: tuple[Any, ...], items: list[Any]) -> Any:
    if all(a is b for a, b in zip(old, items, strict=True)):
        return old
    return tuple_like(old, items)


@kept_by_class  # asked of every object that is looked at
def _acts(kind: type) -> bool:
    """Tell whether a class has code of the program's own beside what makes and shows objects."""
    return any(
        isinstance(found, types.FunctionType) and name not in _DRESSING
        for base in kind.__mro__
        if base is not object and side_of_class(base) == STRAIGHT
        for name, found in vars(base).items()
    )


_DRESSING = frozenset(("__init__", "__new__", "__repr__", "__eq__", "__hash__", "__post_init__"))


def _outward(item: Any) -> Any:
    return handed_over(item) if isinstance(item, ArrayBase) else item


def enter(callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, passed: bool) -> Any:
    """Return the arguments as packages get them, and what `leave` needs; None for the very
    arguments.

    ``passed``: not what is called is a package's, but something among the arguments.
    """
    if passed:
        given = tuple([_passed(item, is_among(callee, ITERATING)) for item in args])
        named = kwargs and {name: _passed(item, False) for name, item in kwargs.items()}
        return given, named, None
    if floor.traced and only_computes(getattr(callee, "__code__", None)):
        return None  # it asks nothing of arrays but what is recorded
    _callers.add(threading.get_ident())
    crossing = _Crossing(_outward)
    owner = callee.__self__ if type(callee) is types.MethodType else callee
    try:
        if is_the_programs_class(type(owner)):
            crossing.give(owner)
        given = tuple([crossing.give(item) for item in args])
        named = kwargs and {name: crossing.give(item) for name, item in kwargs.items()}
    except BaseException:
        crossing.counts = crossing.references()
        with _turn:
            crossing.give_back()
        raise
    if not crossing.replaced and not crossing.taken:
        return None
    state = owner, args, kwargs, crossing  # which refers to them until the call is over
    crossing.counts = crossing.references()
    return given, named, state


def _passed(item: Any, iterated: bool) -> Any:
    """Return what is handed on to a package's code later: containers as copies."""
    kind = type(item)
    if isinstance(item, ArrayBase):
        return handed_over(item)
    if is_among(kind, (list, tuple)):
        items = [_passed(part, False) for part in item]
        same = all(a is b for a, b in zip(item, items, strict=True))
        return item if same else items if kind is list else tuple(items)
    if kind is dict:
        named = {key: _passed(part, False) for key, part in item.items()}
        return item if all(named[key] is part for key, part in item.items()) else named
    if kind is slice:
        parts = [_passed(part, False) for part in (item.start, item.stop, item.step)]
        return slice(*parts)
    if iterated and isinstance(item, Iterator):
        return map(_outward, item)
    return item


def leave(result: Any, state: Any) -> Any:
    """Return what a package gave back as the program has it, and give the program's objects their
    Arrays back. NotImplemented: it has raised."""
    if state is not None:
        owner, args, kwargs, gone = state
        for item in gone.replaced:
            if isinstance(item, ArrayBase):
                keep_if_looked_for(item)
        try:
            with _turn:
                crossing = gone.give_back(result is not NotImplemented)
                if is_the_programs_class(type(owner)):
                    crossing.give(owner)
                for item in (*args, *(kwargs or {}).values()):
                    crossing.give(item)
        finally:
            with _turn:
                gone.end()
    if type(result) is np.ndarray:
        return given_back(result)
    if is_among(type(result), (tuple, list, dict)) and any_is_out():
        return _Crossing(given_back).give(result)
    return result


def give(value: Any) -> Any:
    """Return a value as who asks for it outside has it: containers as copies, for the program may
    keep them."""
    return _passed(value, False)


# Operators that go by the border, by their numbers there: binary, comparing, in place, of holders.
_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift"),
    *("and_", "or_", "xor"),
)
OPERATORS = (
    *_BINARY,
    *("lt", "le", "eq", "ne", "gt", "ge", "is_", "divmod"),
    *["i" + name.rstrip("_") for name in _BINARY],
    *("contains", "getitem", "delitem"),
)

# By this name code finds the border: among the builtins, for a program may list its own names.
NAME = "__alight__"
NUMPY = "__alight_numpy__"  # and by this one functions that a package compiles find NumPy


def installed() -> Border:
    """Return the border, where code finds it from now on."""
    setattr(builtins, NAME, border)
    setattr(builtins, NUMPY, np)
    return border


border = Border(judge, describe, public(enter), public(leave), public(give), installed)
border.stand_ins = STAND_INS
