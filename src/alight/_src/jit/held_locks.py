"""Bodies that hold locks: what they wrote is to be there when they let go, so NumPy writes it."""

from __future__ import annotations

import _thread
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from alight._src.jit.bytecode import instructions
from alight._src.jit.reachability import Reachability

__all__ = ["holds_locks"]

# Conditions, semaphores and events have one of these inside.
_LOCKS: Any = (_thread.LockType, _thread.RLock)
# Python 3.11 to 3.13, and 3.14, which has the second for other things, too.
_WITH = frozenset(("BEFORE_WITH", "LOAD_SPECIAL"))


def holds_locks(reach: Reachability) -> bool:
    """Tell whether code that is reached may hold a lock while it writes."""
    met = reach.met.values()
    if not any(type(item) is FunctionType and _holds(item.__code__) for item in met):
        return False
    return not reach.whole or any(isinstance(item, _LOCKS) for item in met)


@lru_cache(1024)  # asked of every function that is reached
def _holds(code: CodeType) -> bool:
    if "acquire" in code.co_names or any(step.opname in _WITH for step in instructions(code)):
        return True
    return any(_holds(inner) for inner in code.co_consts if isinstance(inner, CodeType))
