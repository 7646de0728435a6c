"""Bodies that hold locks: what they wrote is to be there when they let go, so NumPy writes it."""

from __future__ import annotations

import _thread
import gc
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from alight._src.base.classes import classes_of, kept_by_class, module_of
from alight._src.jit.bytecode import instructions
from alight._src.jit.exchange import attributes
from alight._src.jit.reachability import Reachability

__all__ = ["holds_locks"]

# Conditions, semaphores, events, barriers, queues, pools and threads have one of these inside.
_LOCKS: Any = (_thread.LockType, _thread.RLock)
# What else threads and processes wait for one another with, in modules that may never be loaded.
_WAITED_FOR = frozenset((("_queue", "SimpleQueue"), ("_multiprocessing", "SemLock")))
# Whose locks are for what they keep themselves.
_FOR_THEMSELVES = ("logging", "numpy.random")
# Python 3.11 to 3.13, and 3.14, which has the second for other things, too.
_WITH = frozenset(("BEFORE_WITH", "LOAD_SPECIAL"))


def holds_locks(reach: Reachability) -> bool:
    """Tell whether code that is reached may hold a lock while it writes."""
    met = reach.met.values()
    if not reach.whole:
        return any(type(item) is FunctionType and _holds(item.__code__) for item in met)
    # Not only where a block or a name in the code says so: queues, events and stacks of contexts
    # hold locks in code of their own, and a lock's methods go by any name.
    if not any(map(_is_lock, classes_of(met))):
        return False
    own = [part for item in met if _for_itself(type(item)) for part in _kept(item)]
    theirs = {id(part) for part in own}
    return any(_is_lock(type(item)) and id(item) not in theirs for item in met)


@kept_by_class
def _is_lock(kind: Any) -> bool:
    names = {(module_of(base), base.__name__) for base in kind.__mro__}
    return issubclass(kind, _LOCKS) or not names.isdisjoint(_WAITED_FOR)


@kept_by_class
def _for_itself(kind: Any) -> bool:
    return any(module_of(base).startswith(_FOR_THEMSELVES) for base in kind.__mro__)


def _kept(item: Any) -> list[Any]:
    return [*gc.get_referents(item), *dict.values(attributes(item))]


@lru_cache(1024)  # asked of every function that is reached
def _holds(code: CodeType) -> bool:
    if "acquire" in code.co_names or any(step.opname in _WITH for step in instructions(code)):
        return True
    return any(_holds(inner) for inner in code.co_consts if isinstance(inner, CodeType))
