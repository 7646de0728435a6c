"""Plans of many ops, made by the thread that makes kernels: until one is there NumPy has the calls
that it is for."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import copy_context
from functools import partial
from itertools import count

from alight._src.adapt.foreground import FOREGROUND
from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import ignoring_failures
from alight._src.run import kernels

__all__ = ["OP_SECONDS", "WAIT_SECONDS", "Behind", "begin", "is_at_once", "is_coming"]

# What planning takes for each op: 40 to 60 µs where all are one loop, 100 to 160 where each is a
# step or rows are reduced (60 to 500 ops, a thread's own time, EPYC).
OP_SECONDS = 1e-4
# What a call may wait for its plan: a third of the 60 ms that the promise gives to any call beside
# three times NumPy's time. The others are for recording and running.
WAIT_SECONDS = 0.020


def is_at_once(ops: float, patience: float = WAIT_SECONDS) -> bool:
    """Tell whether a plan of so many ops is made by who asks for it, and may wait so long."""
    return max(ops * OP_SECONDS, FOREGROUND.trace_seconds) <= patience


class Behind(Exception):
    """Raised where a plan comes later: by the job of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


# What is planned behind, by the job that does it. What failed there is kept until it is asked for
# again: who asks then makes it, and meets what stood against it.
_begun: dict[Hashable, str] = {}
register(Cache.PLANS, _begun.clear)
_jobs = count()


def begin(what: Hashable, ops: int, plan: Callable[[], object], patience: float) -> None:
    """Have a plan of so many ops made behind, and say so by `Behind`, unless who asks may wait for
    it, or it has failed there."""
    if is_at_once(ops, patience):
        return
    name = _begun.get(what)
    if name is None:
        name = _begun[what] = f"plan {next(_jobs)}"
        kernels.planned_later(name, partial(copy_context().run, _quietly, what, plan))
    elif not is_coming(name):
        _begun.pop(what, None)
        return
    raise Behind(name)


def is_coming(name: str) -> bool:
    """Tell whether the plan that a job makes is still to come."""
    return kernels.is_coming(name)


def _quietly(what: Hashable, plan: Callable[[], object]) -> None:
    with ignoring_failures():  # who asks again meets it
        plan()
        _begun.pop(what, None)
