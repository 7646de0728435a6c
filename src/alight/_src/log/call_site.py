"""Where in the program something was recorded: its line, and the names of the module that it is
of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any
from weakref import ref

__all__ = ["namers", "names_of", "owned", "place_of"]

Names = dict[str, Any]

# By ids of code, which is equal where text is, whatever its file: the code, and what is known of
# it.
_Known = dict[int, tuple[ref[CodeType], Any]]
_owners: _Known = {}  # the function that alight was given; None: several, of different modules
_modules: _Known = {}  # the name of the module


def _note(known: _Known, code: CodeType, what: Any) -> None:
    number = id(code)
    known[number] = ref(code, lambda _: known.pop(number, None)), what


def _noted(known: _Known, code: CodeType) -> tuple[Any, ...]:
    """Return what is known of code, alone in a tuple, which is empty where nothing is."""
    found = known.get(id(code))
    return found[1:] if found is not None and found[0]() is code else ()


def place_of(site: Any) -> tuple[str, int]:
    """Return the file and line of a recorded call site."""
    if site is None:
        return "<unknown>", 1
    code, instruction = site
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return code.co_filename, line
    return code.co_filename, code.co_firstlineno


# Who may know what a file is called that is none: a notebook's cell.
namers: list[Callable[[str], str | None]] = []


def owned(function: FunctionType) -> None:
    """Note of which module a function's code is."""
    code = function.__code__
    known = _noted(_owners, code)
    other = known[0]() if known and known[0] is not None else None
    shared = other is not None and other.__globals__ is not function.__globals__
    _note(_owners, code, None if shared or known == (None,) else ref(function))


def names_of(code: CodeType) -> Names | None:
    """Return the globals that code runs with: those of the function that it is of, of a frame that
    is running it, or of the only module of its file. None where nothing tells."""
    for owner in _noted(_owners, code):
        function = owner() if owner is not None else None
        return None if function is None else function.__globals__
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code is code:
            found = frame.f_globals
            real: Names = getattr(found, "real", found)  # those of a twin answer from the real ones
            return real
        frame = frame.f_back
    return _of_module(code)


def _of_module(code: CodeType) -> Names | None:
    path = code.co_filename
    for known in _noted(_modules, code):
        names = getattr(sys.modules.get(known), "__dict__", {})
        if names.get("__file__") == path:
            return names
    found: dict[int, tuple[str, Names]] = {}
    for name, module in tuple(sys.modules.items()):
        names = getattr(module, "__dict__", None)
        if type(names) is dict and names.get("__file__") == path:
            found[id(names)] = name, names
    if len(found) != 1:
        return None
    ((name, names),) = found.values()
    _note(_modules, code, name)
    return names
