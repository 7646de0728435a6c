"""The instructions of functions, as every CPython that alight runs on has them."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

__all__ = ["Step", "Steps", "instructions", "lines"]


class Step(NamedTuple):
    """An instruction. ``name`` is the global, attribute or variable of another function that it
    is about, or what an intrinsic is called; ``calls``: what it loads has NULL put beside it."""

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
_NAMING = {dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap} - _NULLED
_OF_OUTSIDE = frozenset(dis.hasfree)
_INTRINSIC = dis.opmap.get("CALL_INTRINSIC_1")
_INTRINSIC_NAMES: list[str] = getattr(dis, "_intrinsic_1_descs", [])
_CACHE, _EXTENDED = dis.opmap["CACHE"], dis.opmap["EXTENDED_ARG"]


@lru_cache(16)  # a first call asks two or three times
def instructions(code: CodeType) -> Steps:
    """Return the instructions of code, without those that only prepare others."""
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
        elif op in _OF_OUTSIDE:
            name = variable(arg)
        elif op == _INTRINSIC:
            name = _INTRINSIC_NAMES[arg] if arg < len(_INTRINSIC_NAMES) else ""
        found.append(Step(dis.opname[op], name, calls, offset))
    return tuple(found)


@lru_cache(16)
def lines(code: CodeType) -> tuple[int | None, ...]:
    """Return the line of each two bytes of code."""
    return tuple([line for line, *_ in code.co_positions()])
