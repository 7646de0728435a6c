"""Whether a program's first work is planned at once, later, or left to NumPy."""

from __future__ import annotations

from alight._core import POLICY, floor
from alight._src.adapt import recalibrate
from alight._src.adapt.foreground import FOREGROUND
from alight._src.adapt.planner_facts import is_host_stored, profile_of
from alight._src.base.formatting import readable_seconds
from alight._src.config.loading import current_policy
from alight._src.config.schema import HOST_DEVICE
from alight.backends import registry

__all__ = ["EVERYTHING", "WAITING", "left_to_numpy", "plan_at_once", "wait_to_plan"]

EVERYTHING = 1 << 62  # a floor that no array reaches


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
    asks = here.force or here.devices or here.floor or here.pick != "model"
    return bool(asks) or POLICY.get() is not None


# The first plan of a process: what plans is loaded, profiles are read, kernels are loaded or given
# to the compiler, which takes turns with the program. Up to 0.1 s with 11 scripts on a quiet EPYC
# of two cores (kernels on disk: 0.03), 60 to 370 ms with 22 beside other work.
_OPENING_SECONDS = 0.1
# Of a program's time, what that may be: a script that takes less than 1 s had better be NumPy's.
# Without this, scripts of 50 to 700 ms took 1.5 to 5 times NumPy's time.
_OPENING_SHARE = 0.1

WAITING = (
    f"the first plan takes {readable_seconds(_OPENING_SECONDS)}, which is for programs that take "
    f"{readable_seconds(_OPENING_SECONDS / _OPENING_SHARE)} and more"
)

_waited: list[None] = []


def wait_to_plan() -> bool:
    """Leave all work to NumPy until the program has taken so long that its first plan is a small
    share of that; tell whether it is left from now on. Arrays stay alight's meanwhile.
    """
    if _waited:
        return False
    _waited.append(None)
    left = _OPENING_SECONDS / _OPENING_SHARE - FOREGROUND.elapsed_seconds()
    if left <= 0.0 or _is_asked() or not is_host_stored():
        return False
    floor.wait(left)
    return floor.waits()


def plan_at_once() -> None:
    """Let no work wait to be planned, now or later: somebody asked for what plans give."""
    _waited[:] = [None]
    floor.wait(0.0)


def _is_host_known() -> bool:
    # A file that holds no profile is found out by who reads it, and put aside.
    return is_host_stored() and profile_of(registry.device(HOST_DEVICE)) is not None
