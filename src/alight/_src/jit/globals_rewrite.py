"""The program's own functions as they run inside `jit`: NumPy's creation and loading names are
alight's.

A function gets a twin with the same code whose globals answer live from the real ones; only NumPy's
modules, its creation functions and the program's own functions are answered with what stands for
them, and only where the code calls what it finds, or takes something from a module: what is
compared, stored, passed on or returned is the thing itself. Functions that look names up in ways a
twin cannot answer, or assign globals and are in no file, run as they are.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from functools import cache, lru_cache
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from alight._core import ArrayBase, floor
from alight._src.api.stand_ins import stand_in, stand_ins
from alight._src.base.originals import np
from alight._src.jit.border import NAME, border
from alight._src.jit.border_rewrite import rerouted_code
from alight._src.jit.border_sides import is_of_a_package
from alight._src.jit.bytecode import Step, Steps, asks_for_names, contents, instructions
from alight._src.jit.code_origin import written_by_user
from alight._src.jit.global_stores import STORES, Stores
from alight._src.jit.scalar import Scalar

__all__ = ["inside", "runs_as_it_is"]

# What a twin's globals cannot serve: the interpreter reads and writes these past any answer of
# ours.
_STORING = frozenset((dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"]))
_PAST = _STORING | {
    dis.opmap[name] for name in ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS") if name in dis.opmap
}


class _Uses(NamedTuple):
    """Names that code does more with than to call what it finds, or to take from a module."""

    # What is found there is compared, stored, passed on …
    values: frozenset[str]
    # … or has attributes of its own, which are not those of a twin.
    attributes: frozenset[str]


class _Names(dict[str, Any]):
    """Globals that answer live from the real ones. The interpreter asks ``__getitem__`` of a
    dict's subclass."""

    def __init__(self, real: dict[str, Any], uses: _Uses) -> None:
        # What the interpreter takes from globals itself: the builtins, and what imports go by.
        # Other threads may add to the real ones meanwhile, and what the collector calls, too, where
        # a tuple of their items is made.
        super().__init__({k: v for k, v in real.copy().items() if k[:2] == "__" == k[-2:]})
        self.real = real
        self.uses = uses
        stand_ins(False)  # made here: a signal's KeyError amid it would make a name an unknown one
        self.types = "type" not in uses.values | uses.attributes

    def note_warnings(self) -> None:
        """Have NumPy note what it warns of where the program's own functions have it noted."""
        registry = self.real.setdefault("__warningregistry__", {})
        dict.__setitem__(self, "__warningregistry__", registry)

    def __getitem__(self, name: str) -> Any:
        real = self.real
        if name == STORES:
            return Stores(real)
        if not floor.traced:  # a function that was made inside a body, and is called later
            return real[name]
        if name == "type" and self.types and name not in real:
            return _type
        return _swapped(name, real[name], self.uses)


def _of_real(name: str) -> Any:
    def method(self: _Names, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.real, name)(*args, **kwargs)

    return method


# Functions made inside a body keep these globals, and who looks at them finds the program's.
for _name in (
    *("__contains__", "__iter__", "__len__", "__setitem__", "__delitem__", "__repr__", "copy"),
    *("get", "keys", "values", "items", "setdefault", "update", "pop"),
):
    setattr(_Names, _name, _of_real(_name))


def _type(*args: Any, **kwargs: Any) -> Any:
    """Return the type of what stands for an ndarray or a NumPy scalar as the program knows it."""
    if len(args) == 1 and isinstance(args[0], ArrayBase):
        return args[0].__class__ if type(args[0]) is Scalar else np.ndarray
    return type(*args, **kwargs)


# Functions and code that something is known of, which is found out anew of those met before so many
# others. A program may make functions for ever, and a twin leads to its own function: by its
# globals, by its closure, so that the function cannot die before what is known of it is dropped.
KEPT = 1024
_names: WeakValueDictionary[tuple[int, _Uses], _Names] = WeakValueDictionary()
_twins: WeakKeyDictionary[FunctionType, tuple[FunctionType, tuple[Any, ...]]] = WeakKeyDictionary()


def _swapped(name: str, value: Any, uses: _Uses) -> Any:
    """Return what is found under a name: what stands for it, where that is not told apart."""
    found = stand_in(value)
    if found is not None:
        module = type(value) is ModuleType
        told = name in uses.values or (not module and name in uses.attributes)
        return value if told else found[1]
    if type(value) is FunctionType:
        told = name in uses.values or name in uses.attributes or not written_by_user(value)
        return value if told else inside(value)
    return value


def inside(function: FunctionType) -> FunctionType:
    """Return the function that runs in place of this one inside `jit`."""
    state = _state(function)
    found = _twins.get(function)
    if found is not None and list(map(id, found[1])) == list(map(id, state)):
        names = found[0].__globals__
        if type(names) is _Names:
            names.note_warnings()
        return found[0]
    if len(_twins) >= KEPT:
        oldest = _twins.keyrefs()[0]()
        if oldest is not None:
            _twins.pop(oldest, None)
    # The function itself stands in while its twin is made: closures may lead back to it.
    _twins[function] = (function, state)
    found_in_cells = contents(function) if function.__closure__ else ()
    made = _as_it_is if runs_as_it_is(function) else _twin
    twin = made(function, found_in_cells)
    _twins[function] = (twin, state)
    return twin


def _own_inside(function: FunctionType, given_to: Any = None) -> FunctionType:
    """Return what runs in place of a function that code inside `jit` calls, however it came by it,
    or gives to something that does nothing but call it."""
    if given_to is not None and not _only_calls(given_to):
        return function
    known = type(function.__globals__) is _Names or not written_by_user(function)
    return function if known else inside(function)


_CALLING: tuple[Any, ...] = (
    *(map, filter, sorted, min, max, functools.reduce),
    *[item for item in vars(itertools).values() if isinstance(item, type)],
)
# Those of the standard library that do, by their modules, which may never be loaded.
_CALLERS = (("concurrent.futures.thread", "ThreadPoolExecutor"), ("threading", "Thread"))


def _only_calls(what: Any) -> bool:
    """Tell whether something calls the functions that it is given, and shows them to nobody."""
    owner = getattr(what, "__self__", None)
    if type(owner) is list:
        return bool(what == owner.sort)
    classes = [getattr(sys.modules.get(module), name, None) for module, name in _CALLERS]
    return any(what is one for one in (*_CALLING, *classes)) or type(owner) in classes


border.inside = _own_inside


def runs_as_it_is(function: FunctionType) -> bool:
    """Tell whether a function finds NumPy's own names inside `jit` too."""
    return asks_for_names(function) or _does(_stored(function.__code__), _PAST)


def _stored(code: CodeType) -> CodeType:
    """Return code that assigns globals as a twin does it."""
    return rerouted_code(code, crosses=False, stores=True) if _does(code, _STORING) else code


def _state(function: FunctionType) -> tuple[Any, ...]:
    """Return what a twin was made of. Those of functions in its closure are in cells of its own:
    what they are made of counts with it."""
    state: list[Any] = [_draws()]
    open_functions, met = [function], {id(function)}
    while open_functions:
        made = open_functions.pop()
        found = contents(made) if made.__closure__ else ()
        state += (made.__code__, made.__defaults__, made.__kwdefaults__, *found)
        for content in found:
            if type(content) is FunctionType and id(content) not in met:
                met.add(id(content))
                open_functions.append(content)
    return tuple(state)


def _draws() -> bool:
    """Tell whether the program can have come by what is in ``numpy.random``, which is loaded when
    it is asked for."""
    return "numpy.random" in sys.modules


def _twin(function: FunctionType, found: tuple[Any, ...]) -> FunctionType:
    code = function.__code__
    uses = _uses(code, _draws())
    names = _names.get((id(function.__globals__), uses))
    if names is None:
        names = _names[id(function.__globals__), uses] = _Names(function.__globals__, uses)
    names.note_warnings()
    written = _written_cells(function) if code.co_freevars else ()
    cells = []
    for name, cell, content in zip(
        code.co_freevars, function.__closure__ or (), found, strict=True
    ):
        modules = isinstance(content, (ModuleType, FunctionType)) or callable(content)
        other = _swapped(name, content, uses) if modules and id(cell) not in written else content
        cells.append(cell if other is content else CellType(other))
    if _names_packages(function, found):
        code = rerouted_code(code, stores=_does(code, _STORING))
    else:
        code = _stored(code)
    twin = FunctionType(code, names, function.__name__, function.__defaults__, tuple(cells) or None)
    return _dressed(twin, function)


def _as_it_is(function: FunctionType, found: tuple[Any, ...]) -> FunctionType:
    """Return a function that finds what it finds, its calls going by the border."""
    code = function.__code__
    other = rerouted_code(code) if _names_packages(function, found) else code
    if other is code:
        return function
    made = FunctionType(
        other, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    return _dressed(made, function)


def _dressed(twin: FunctionType, function: FunctionType) -> FunctionType:
    """Return a twin as it looks: like its function."""
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__qualname__ = function.__qualname__
    twin.__module__ = function.__module__
    twin.__doc__ = function.__doc__
    twin.__dict__ = function.__dict__  # what it notes down there is the function's own
    return twin


def _names_packages(function: FunctionType, found: tuple[Any, ...]) -> bool:
    """Tell whether a function's module, or what it finds in cells, has anything of a package's."""
    return any(map(is_of_a_package, (*function.__globals__.copy().values(), *found)))


@lru_cache(KEPT)
def _does(code: CodeType, operations: frozenset[int]) -> bool:
    """Tell whether one of some operations is in code, or in code inside it."""
    return not operations.isdisjoint(code.co_code[::2]) or any(
        _does(inner, operations) for inner in code.co_consts if isinstance(inner, CodeType)
    )


def _written_cells(function: FunctionType) -> frozenset[int]:
    """Return the ids of the cells that a function, or those that it finds in cells, assigns."""
    cells: set[int] = set()
    open_functions, met = [function], {id(function)}
    while open_functions:
        made = open_functions.pop()
        written = _written(made.__code__)
        for name, cell, content in zip(
            made.__code__.co_freevars, made.__closure__ or (), contents(made), strict=True
        ):
            if name in written:
                cells.add(id(cell))
            if type(content) is FunctionType and id(content) not in met:
                met.add(id(content))
                open_functions.append(content)
    return frozenset(cells)


@lru_cache(KEPT)
def _written(code: CodeType) -> frozenset[str]:
    """Return the variables of enclosing functions that code assigns."""
    names = {i.name for i in instructions(code) if i.opname in ("STORE_DEREF", "DELETE_DEREF")}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= _written(inner)
    return frozenset(names)


_LOADS = frozenset(("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"))
_TAKES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_COMPARES = frozenset(("IS_OP", "COMPARE_OP", "CONTAINS_OP"))


@lru_cache(KEPT)
def _uses(code: CodeType, draws: bool) -> _Uses:
    """Return what code, and code inside it, does with the names of outside."""
    values: set[str] = set()
    attributes: set[str] = set()
    steps = instructions(code)
    draws = draws or "random" in code.co_names  # which loads it
    for place, step in enumerate(steps):
        if step.opname not in _LOADS:
            continue
        end = place + 1
        while steps[end].opname in _TAKES:
            end += 1
        if end > place + 1:
            attributes.add(step.name)
            if not _is_called(steps, place, end) and _stands_in(steps[end - 1], steps[end], draws):
                values.add(step.name)
        elif not _is_called(steps, place, end):
            values.add(step.name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _uses(constant, draws)
            values |= inner.values
            attributes |= inner.attributes
    return _Uses(frozenset(values), frozenset(attributes))


def _is_called(steps: Steps, place: int, end: int) -> bool:
    """Tell whether what is loaded in a place, its attributes up to the end taken, is called."""
    # CPython 3.11 to 3.14: what is called has NULL beside it on the stack, put there before or
    # after it, or by the very instruction that loads it.
    first, last = steps[place], steps[end - 1]
    before = steps[max(place - 2, 0) : place]
    if any(step.opname == "LOAD_GLOBAL" and step.name == NAME for step in before):
        return True  # by the border
    return (
        (place > 0 and steps[place - 1].opname == "PUSH_NULL")
        or steps[end].opname == "PUSH_NULL"
        or last.opname == "LOAD_METHOD"
        or first.calls
        or last.calls
    )


def _stands_in(taken: Step, after: Step, draws: bool) -> bool:
    """Tell whether an attribute may be one of those of NumPy's that something stands for (of
    ``numpy.random``, if it ``draws``), used in a way that tells the two apart: a class in none but
    comparisons."""
    ours = _shown_names(draws).get(taken.name)
    return ours is not None and (ours is not type or after.opname in _COMPARES)


@cache
def _shown_names(draws: bool) -> dict[str, type | bool]:
    """Return the names of all that something stands for: of classes with `type`."""
    return {
        real.__name__.rpartition(".")[2]: type if isinstance(real, type) else True
        for real, _ in stand_ins(draws).values()
        if hasattr(real, "__name__")
    }
