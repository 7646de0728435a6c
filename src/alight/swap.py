"""The program's own functions as they run inside `jit`: NumPy's creation and loading names are
alight's.

A function gets a twin with the same code whose globals answer live from the real ones; only NumPy's
modules, its creation functions and the program's own functions are answered with what stands for
them. Functions that assign globals, or look names up in ways a twin cannot answer, run as they are.
"""

from __future__ import annotations

import dis
import threading
from collections.abc import Callable
from functools import cache
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from alight.namespace import stand_ins
from alight.purity import written_by_user

__all__ = ["inside", "looking"]

# What a twin's globals cannot serve: the interpreter reads and writes these past any answer of
# ours.
_PAST = frozenset(
    dis.opmap[name]
    for name in ("STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
    if name in dis.opmap
)
_ASKING = frozenset(("globals", "eval", "exec", "vars", "locals"))


class _Looking(threading.local):
    """Who wants to know, in this thread, of ndarrays that a body finds under its global names."""

    seen: Callable[[np.ndarray[Any, Any]], Any] | None = None


looking = _Looking()


class _Names(dict[str, Any]):
    """Globals that answer live from the real ones. The interpreter asks ``__getitem__`` of a
    dict's subclass."""

    def __init__(self, real: dict[str, Any]) -> None:
        # What the interpreter takes from globals itself: the builtins, and what imports go by.
        super().__init__({k: v for k, v in real.items() if k[:2] == "__" == k[-2:]})
        self.real = real

    def __getitem__(self, name: str) -> Any:
        return _swapped(self.real[name])


_names: dict[int, _Names] = {}
_twins: WeakKeyDictionary[FunctionType, tuple[FunctionType, tuple[Any, ...]]] = WeakKeyDictionary()
_unable: dict[CodeType, bool] = {}
_shown = cache(stand_ins)


def _swapped(value: Any) -> Any:
    found = _shown().get(id(value))
    if found is not None:
        return found[1]
    if type(value) is FunctionType:
        return inside(value) if written_by_user(value) else value
    if type(value) is np.ndarray and looking.seen is not None:
        return looking.seen(value)
    return value


def inside(function: FunctionType) -> FunctionType:
    """Return the function that runs in place of this one inside `jit`."""
    state = _state(function)
    found = _twins.get(function)
    if found is not None and list(map(id, found[1])) == list(map(id, state)):
        return found[0]
    # The function itself stands in while its twin is made: closures may lead back to it.
    _twins[function] = (function, state)
    twin = function if _cannot(function.__code__) else _twin(function, _contents(function))
    _twins[function] = (twin, state)
    return twin


def _state(function: FunctionType) -> tuple[Any, ...]:
    """Return what a twin was made of. Those of functions in its closure are in cells of its own:
    what they are made of counts with it."""
    state: list[Any] = []
    open_functions, met = [function], {id(function)}
    while open_functions:
        made = open_functions.pop()
        contents = _contents(made)
        state += (made.__code__, made.__defaults__, made.__kwdefaults__, *contents)
        for content in contents:
            if type(content) is FunctionType and id(content) not in met:
                met.add(id(content))
                open_functions.append(content)
    return tuple(state)


def _contents(function: FunctionType) -> tuple[Any, ...]:
    return tuple([_content(cell) for cell in function.__closure__ or ()])


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _twin(function: FunctionType, contents: tuple[Any, ...]) -> FunctionType:
    names = _names.get(id(function.__globals__))
    if names is None:
        names = _names[id(function.__globals__)] = _Names(function.__globals__)
    code = function.__code__
    written = _written(code) if code.co_freevars else ()
    cells = []
    for name, cell, content in zip(
        code.co_freevars, function.__closure__ or (), contents, strict=True
    ):
        modules = isinstance(content, (ModuleType, FunctionType)) or callable(content)
        other = _swapped(content) if modules and name not in written else content
        cells.append(cell if other is content else CellType(other))
    twin = FunctionType(code, names, function.__name__, function.__defaults__, tuple(cells) or None)
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__qualname__ = function.__qualname__
    twin.__module__ = function.__module__
    twin.__doc__ = function.__doc__
    twin.__dict__.update(function.__dict__)
    return twin


def _cannot(code: CodeType) -> bool:
    """Tell whether code, or code inside it, does to globals what a twin cannot serve."""
    found = _unable.get(code)
    if found is None:
        found = _unable[code] = (
            not _PAST.isdisjoint(code.co_code[::2])
            or not _ASKING.isdisjoint(code.co_names)
            or any(_cannot(c) for c in code.co_consts if isinstance(c, CodeType))
        )
    return found


def _written(code: CodeType) -> frozenset[str]:
    """Return the variables of enclosing functions that code assigns."""
    names = {
        i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_DEREF", "DELETE_DEREF")
    }
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= _written(inner)
    return frozenset(names)
