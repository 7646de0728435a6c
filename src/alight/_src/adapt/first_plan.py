"""Whether a program's first work is planned at once, later, or left to NumPy."""

from __future__ import annotations

import math
import os
from _thread import start_new_thread
from collections.abc import Callable
from enum import Enum, auto
from importlib import import_module
from time import sleep

from alight._core import POLICY, floor
from alight._src.adapt import recalibrate
from alight._src.adapt.foreground import FOREGROUND
from alight._src.adapt.planner_facts import is_host_stored, profile_of
from alight._src.base.failures import failures, ignoring_failures
from alight._src.base.formatting import readable_seconds
from alight._src.base.uninterrupted import hold, let_go
from alight._src.config.loading import config, current_policy
from alight._src.config.policy import EVERYTHING
from alight._src.config.schema import HOST_DEVICE
from alight._src.log.decisions import LOG
from alight.backends import registry

__all__ = [
    "FACTS",
    "PARTS",
    "WAITING",
    "came",
    "come",
    "is_here",
    "left_to_numpy",
    "plan_at_once",
    "rest",
    "wait_no_longer",
    "wait_to_plan",
    "wants_plans",
]


def left_to_numpy() -> bool:
    """Tell whether a program's work is NumPy's from its first large array on, because nothing was
    measured to place it by: to record it only takes time and memory.

    The host is measured when the process ends, as for work that is planned.
    """
    if _is_asked() or _is_host_known():
        return False
    recalibrate.measure_when_over(HOST_DEVICE)
    floor.record_floor = EVERYTHING
    return True


def _is_asked() -> bool:
    """Tell whether somebody said how work is to be placed."""
    here = current_policy()
    asks = here.force or here.devices or here.floor or here.pick != "model" or not here.enabled
    return bool(asks) or POLICY.get() is not None


# The first plan of a process: what plans is loaded, profiles are read, kernels are loaded or given
# to the compiler, which takes turns with the program. Up to 0.1 s with 11 scripts on a quiet EPYC
# of two cores (kernels on disk: 0.03), 60 to 370 ms with 22 beside other work.
_FIRST_PLAN_SECONDS = 0.1
# Of a program's time, what that may be: a script that takes less than 1 s had better be NumPy's.
# Without this, scripts of 50 to 700 ms took 1.5 to 5 times NumPy's time.
_FIRST_PLAN_SHARE = 0.1

WAITING = (
    f"the first plan takes {readable_seconds(_FIRST_PLAN_SECONDS)}, which is for programs that "
    f"take {readable_seconds(_FIRST_PLAN_SECONDS / _FIRST_PLAN_SHARE)} and more"
)

LOADING = "what plans is loaded meanwhile"

_waited: list[None] = []


def wait_to_plan() -> bool:
    """Leave all work to NumPy until the program has taken so long that its first plan is a small
    share of that; tell whether it is left from now on. Arrays stay alight's meanwhile.
    """
    if _waited:
        return False
    _waited.append(None)
    left = _FIRST_PLAN_SECONDS / _FIRST_PLAN_SHARE - FOREGROUND.elapsed_seconds()
    if left <= 0.0 or _is_asked() or not is_host_stored():
        return False
    if _planner.state is _Planner.ABSENT:
        from queue import Empty, SimpleQueue  # late: other programs wait for nothing

        early: SimpleQueue[None] = SimpleQueue()
        _planner.early = early.put

        def wait() -> None:
            with ignoring_failures(Empty):
                early.get(timeout=left)

        floor.wait(_FOR_EVER)
        _planner.state = _Planner.COMING
        _begin(wait)
    else:
        floor.wait(left)
    return floor.waits()


def wait_no_longer() -> None:
    """Let no work of `alight run` wait for the program to have run for long, now or later."""
    _waited[:] = [None]
    if floor.scalars:
        _planner.early(None)
        floor.wait(0.0)


def plan_at_once() -> None:
    """Let no work wait to be planned, now or later: somebody asked for what plans give."""
    _waited[:] = [None]
    _planner.state = _Planner.HERE
    floor.wait(0.0)


# --- what plans comes behind ---
class _Planner(Enum):
    """What plans, on its way into the process: 90 modules, and what is read from disk for the first
    plan (45 ms of processor time, EPYC)."""

    ABSENT = auto()  # nothing large was met so far
    COMING = auto()  # a thread loads it, and NumPy does what is asked for meanwhile
    HERE = auto()  # or it is loaded by who needs it


def _nobody(_: None) -> None:
    """Wake nobody: no thread waits for its time."""


class _State:
    state = _Planner.ABSENT
    early: Callable[[None], None] = staticmethod(_nobody)


_planner = _State()

# What is imported behind, in an order in which each brings little: Python's lock is free between
# them.
_OURS = (
    "measure.profiles ir.graph ir.group plan.workload plan.profile plan.loop_overhead plan.plan "
    "plan.cost ir.rewrite plan.choose plan.place adapt.lazy_devices plan.learned adapt.learning "
    "codegen.common.keys run.kernels run.pending_outcomes run.prepared_step run.execute "
    "measure.bounds codegen.common.gaps run.stored_plans plan.plan_text plan.byte_sets plan.check"
)
PARTS = ["json", *[f"alight._src.{name}" for name in _OURS.split()]]
# What a first plan asks the store and the machine, called behind when all parts are there.
FACTS: list[Callable[[], object]] = []

_FOR_EVER = math.inf  # seconds
# Between two parts, each of which takes some tenths of it: whoever waits for Python's lock has it.
_PAUSE = 0.001


def wants_plans() -> bool:
    """Tell whether who asks had better wait for what plans: somebody says how work is placed, has
    plans checked, or wants a report of them."""
    return _is_asked() or config().check or config().report is not None


def rest() -> None:
    """Leave work to NumPy, however large, until what plans is loaded, which begins with the first
    that is large (`Floor.wait`). It is called when the floor is known."""
    if _planner.state is not _Planner.HERE and not floor.scalars and not wants_plans():
        floor.wait(_FOR_EVER)


def is_here() -> bool:
    """Tell whether work may be planned; if not, have what plans loaded behind, while who asks goes
    on with NumPy. Who says how work is placed waits for that."""
    if _planner.state is _Planner.HERE or wants_plans():
        return True
    come()
    _planner.early(None)
    return False


def come() -> None:
    """Have what plans loaded, in a thread of its own: work on large arrays was met."""
    if _planner.state is _Planner.ABSENT:
        _planner.state = _Planner.COMING
        FOREGROUND.loads()
        LOG.demotion("the program's first work", LOADING, None)
        _begin(lambda: None)


def _begin(wait: Callable[[], None]) -> None:
    """Have what plans loaded when a wait is over."""
    try:
        start_new_thread(_load, (wait,))
    except failures(RuntimeError):  # no thread is left, or Python ends: who plans loads it
        came()


def came() -> None:
    """Note that what plans is loaded."""
    if _planner.state is not _Planner.HERE:
        _planner.state = _Planner.HERE
        floor.wait(0.0)


def _load(wait: Callable[[], None]) -> None:
    try:
        wait()
        for part in PARTS:
            hold()  # a fork waits for this part, and no child is born with it half done
            try:
                import_module(part)
            finally:
                let_go()
            sleep(_PAUSE)
        for fact in FACTS:
            fact()
            sleep(_PAUSE)
    except failures():
        pass  # who plans meets it, and says so
    finally:
        came()


def _after_fork_in_child() -> None:
    if _planner.state is _Planner.COMING:  # its thread is the parent's
        came()
    elif _planner.state is _Planner.ABSENT and floor.waits():
        floor.wait(_FOR_EVER)  # what the parent met is met anew


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _is_host_known() -> bool:
    # A file that holds no profile is found out by who reads it, and put aside.
    return is_host_stored() and profile_of(registry.device(HOST_DEVICE)) is not None
