"""The instructions of functions and the names in them, as every CPython that alight runs on has
them."""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from alight._src.base.failures import failures
from alight._src.jit.gates import ungated

__all__ = [
    "Names",
    "Step",
    "Steps",
    "asks_for_names",
    "contents",
    "instructions",
    "lines",
    "names_of",
]


class Step(NamedTuple):
    """An instruction. ``name`` is the global, attribute, module or variable of another function
    that it is about, or what an intrinsic is called; ``calls``: what it loads has NULL put beside
    it."""

    opname: str
    name: str
    calls: bool
    offset: int


Steps = tuple[Step, ...]

# CPython 3.11 to 3.14. Where a low bit says whether NULL is put beside what is loaded, the index of
# its name is the rest; attributes have had that since 3.12, when methods ceased to be loaded apart.
_NULLED = {
    dis.opmap[name]
    for name in ("LOAD_GLOBAL", *(["LOAD_ATTR"] if sys.version_info >= (3, 12) else []))
}
# Two bits of `super` say how it was written.
_OF_SUPER = dis.opmap.get("LOAD_SUPER_ATTR")
_WITH_NAMES = frozenset(dis.hasname)
_NAMING = _WITH_NAMES - _NULLED - {_OF_SUPER}
_OF_OUTSIDE = frozenset(dis.hasfree)
_INTRINSIC = dis.opmap.get("CALL_INTRINSIC_1")
_INTRINSIC_NAMES: list[str] = getattr(dis, "_intrinsic_1_descs", [])
_CACHE, _EXTENDED = dis.opmap["CACHE"], dis.opmap["EXTENDED_ARG"]


@lru_cache(16)  # a first call asks two or three times
def instructions(code: CodeType) -> Steps:
    """Return the instructions of code, without those that only prepare others, and a gate's."""
    code = ungated(code)
    # `dis` tells more, and takes six times as long: 0.4 ms of a first call of twelve functions.
    names, raw = code.co_names, code.co_code
    variable: Callable[[int], str] = code._varname_from_oparg  # type: ignore[attr-defined]
    found: list[Step] = []
    high = 0
    for offset in range(0, len(raw), 2):
        op, arg = raw[offset], high | raw[offset + 1]
        if op == _CACHE:
            continue
        if op == _EXTENDED:
            high = arg << 8
            continue
        high = 0
        name, calls = "", False
        if op in _NULLED:
            name, calls = names[arg >> 1], bool(arg & 1)
        elif op in _NAMING:
            name = names[arg]
        elif op == _OF_SUPER:
            name = names[arg >> 2]
        elif op in _OF_OUTSIDE:
            name = variable(arg)
        elif op == _INTRINSIC:
            name = _INTRINSIC_NAMES[arg] if arg < len(_INTRINSIC_NAMES) else ""
        found.append(Step(dis.opname[op], name, calls, offset))
    return tuple(found)


@lru_cache(16)
def lines(code: CodeType) -> tuple[int | None, ...]:
    """Return the line of each two bytes of code, as `instructions` has them."""
    code = ungated(code)
    return tuple([line for line, *_ in code.co_positions()])


class Names(NamedTuple):
    """What code, and code inside it, names: what it looks up ``outside``, among its globals or the
    builtins; ``attributes``; ``values``, those of either that more is done with than to take an
    attribute of what is found; and the modules that are ``imported``."""

    outside: frozenset[str]
    attributes: frozenset[str]
    values: frozenset[str]
    imported: frozenset[str]


_ATTRIBUTES = frozenset(
    ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR", "IMPORT_FROM")
)
_OF_WHAT_IS_FOUND = _ATTRIBUTES - {"IMPORT_FROM"}
_ALL_ATTRIBUTES = ("__dict__", "__getattribute__")  # which give those that code does not name


@lru_cache(1024)  # asked of every function that is reached
def names_of(code: CodeType) -> Names:
    """Return what code, and code inside it, names."""
    outside: set[str] = set()
    attributes: set[str] = set()
    values: set[str] = set()
    imported: set[str] = set()
    steps = instructions(code)
    for step, after in zip(steps, (*steps[1:], None), strict=True):
        if step.opname in _ATTRIBUTES:
            attributes.add(step.name)
        elif step.opname == "IMPORT_NAME":
            imported.add(step.name)
        elif dis.opmap[step.opname] in _WITH_NAMES:  # an instruction of times to come, too
            outside.add(step.name)
        else:
            continue
        if after is None or after.opname not in _OF_WHAT_IS_FOUND or after.name in _ALL_ATTRIBUTES:
            values.add(step.name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = names_of(constant)
            outside |= inner.outside
            attributes |= inner.attributes
            values |= inner.values
            imported |= inner.imported
    return Names(*map(frozenset, (outside, attributes, values - imported, imported)))


# With these code reaches all names of its module: builtins, or attributes of their module.
_ASKING = frozenset(("globals", "eval", "exec", "vars", "locals"))


def asks_for_names(function: FunctionType) -> bool:
    """Tell whether a function may look up names that do not stand in its code."""
    names = names_of(function.__code__)
    if not _ASKING.isdisjoint(names.outside) or "__builtins__" in names.outside:
        return True
    if _ASKING.isdisjoint(names.attributes):
        return False
    if "builtins" in names.imported:
        return True
    found = [function.__globals__.get(name) for name in names.outside]
    return any(item is builtins for item in (*found, *contents(function)))


def contents(function: FunctionType) -> tuple[Any, ...]:
    """Return what a function finds in the variables of enclosing functions; of those not assigned
    yet None."""
    return tuple([_content(cell) for cell in function.__closure__ or ()])


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except failures(ValueError):  # not assigned yet
        return None
