"""Bodies that hold locks: what they wrote is to be there when they let go, so NumPy writes it."""

from __future__ import annotations

import _thread
import gc
import sys
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
# What else threads and processes wait for one another with, by modules that may never be loaded.
_WAITED_FOR = (("_queue", "SimpleQueue"), ("_multiprocessing", "SemLock"))
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
    kinds = classes_of(met)
    for module, name in _WAITED_FOR:
        waited_for = getattr(sys.modules.get(module), name, None)
        if waited_for is not None and any(issubclass(kind, waited_for) for kind in kinds):
            return True
    if not any(issubclass(kind, _LOCKS) for kind in kinds):
        return False
    own = [part for item in met if _for_itself(type(item)) for part in _kept(item)]
    theirs = {id(part) for part in own}
    return any(isinstance(item, _LOCKS) and id(item) not in theirs for item in met)


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
