"""What NumPy's own generators write into: they do it in C, where nothing but an ndarray will do.

Those that a body makes are alight's, which see to it. One that was made elsewhere, and is given to
the body or kept where it comes by it, refuses an Array as ``out=`` and shuffles the rows of one
into copies of each other.
"""

from __future__ import annotations

import dis
import sys
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from alight._src.jit.globals_rewrite import runs_as_it_is
from alight._src.jit.reachability import Reachability

__all__ = ["writes_into_arrays"]

_IN_PLACE = frozenset(("shuffle", "permuted"))
_INTO_OUT = ("random", "standard_normal", "standard_exponential", "standard_gamma")


def writes_into_arrays(reach: Reachability) -> bool:
    """Tell whether code that is reached may have a generator of NumPy's own write into arrays."""
    met = reach.met.values()
    writing = [f for f in met if type(f) is FunctionType and _writes(f.__code__)]
    if not writing:
        return False
    if not reach.whole or any(runs_as_it_is(function) for function in writing):
        return True
    random: Any = sys.modules.get("numpy.random")  # NumPy loads it when it is asked for
    own = () if random is None else (random.Generator, random.RandomState)
    return any(type(item) in own for item in met)


@lru_cache(1024)  # asked of every function that is reached
def _writes(code: CodeType) -> bool:
    names = set(code.co_names)
    if not names.isdisjoint(_IN_PLACE):
        return True
    if not names.isdisjoint(_INTO_OUT):
        steps = [*dis.get_instructions(code)]
        # A call's own range begins where that of what it calls does: `rng.random` has `out` here.
        begins = {_begin(step) for step in steps if "out" in _keywords(code, step)}
        if any(step.argval in _INTO_OUT and _begin(step) in begins for step in steps):
            return True
    return any(_writes(c) for c in code.co_consts if isinstance(c, CodeType))


def _keywords(code: CodeType, step: dis.Instruction) -> tuple[Any, ...]:
    """Return the names of a call's keywords where an instruction has them, from CPython 3.13 on as
    a constant."""
    names = step.argval
    if step.opname == "KW_NAMES" and step.arg is not None:
        names = code.co_consts[step.arg]
    return names if type(names) is tuple else ()


def _begin(step: dis.Instruction) -> tuple[int | None, int | None] | None:
    at = step.positions
    return None if at is None else (at.lineno, at.col_offset)
