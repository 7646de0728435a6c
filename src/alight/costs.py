"""What planning may know of costs: profiles as measured, supports and estimates as plain functions.

This is the edge between what was measured (files, clocks) and ``plan``, which sees neither.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import Context
from functools import cache
from time import perf_counter, time
from typing import TYPE_CHECKING, Any

from alight import registry
from alight._core import NATIVE, POLICY, floor
from alight.config import config, current_policy
from alight.ir.op import Kind
from alight.log import logger
from alight.settings import HOST_DEVICE
from alight.store import default_store, digest

if TYPE_CHECKING:
    from alight.device import Device
    from alight.ir.group import Group
    from alight.plan.plan import Decision, Estimate
    from alight.plan.profile import Profile

_profiles: dict[str, Profile | None] = {}


def profile_of(device: Device) -> Profile | None:
    """Return the profile of a device on this machine, or None where it was never calibrated."""
    if device.id not in _profiles:
        if device.id == HOST_DEVICE or _is_recalled(device):
            return stored_profile(device)  # nobody needs to ask who drives it
        # not opened for it: a plan that takes another device needs no context on this one
        own: Callable[[Device], Profile] | None = getattr(
            registry.driver_of(device), "profile", None
        )
        if own is not None:  # a simulated device is what its record says
            _profiles[device.id] = own(device)
        else:
            return stored_profile(device)
    return _profiles[device.id]


def _is_recalled(device: Device) -> bool:
    from alight.calibrated import recalled

    return any([one.device is device for one in recalled()])


def stored_profile(device: Device) -> Profile | None:
    """Return the profile of a device as the store has it, and ask nobody who drives it."""
    if device.id not in _profiles:
        from alight.measure.profiles import load_profile, share_costs

        _profiles[device.id] = found = load_profile(device)
        if found is not None and device.id == HOST_DEVICE:
            share_costs(found.one_offs)
    return _profiles[device.id]


_due: set[tuple[str, int]] = set()
_aside: list[None] = []


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Have what is planned inside, to see what planning takes, ask for no calibration and leave
    nothing to later processes."""
    _aside.append(None)
    try:
        yield
    finally:
        _aside.pop()


def is_aside() -> bool:
    """Tell whether what is planned now is planned to see what planning takes."""
    return bool(_aside)


def measure_later(devices: Sequence[Device]) -> None:
    """Have those of these devices that have no profile calibrated when the process ends, as the
    settings allow: work was just planned for them without one."""
    if _aside:
        return
    for device in devices:
        profile = profile_of(device)
        if profile is None or profile.doubts:
            _measure_when_over(device.id)


EVERYTHING = 1 << 62  # a floor that no array reaches


def left_to_numpy() -> bool:
    """Tell whether a program's work is NumPy's from its first large array on, because nothing was
    measured to place it by: to record it only takes time and memory.

    The host is measured when the process ends, as for work that is planned.
    """
    if _is_asked() or _is_host_known():
        return False
    _measure_when_over(HOST_DEVICE)
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
    f"the first plan takes {_OPENING_SECONDS:g} s, which is for programs that take "
    f"{_OPENING_SECONDS / _OPENING_SHARE:.2g} s and more"
)

_waited: list[None] = []


def wait_to_plan() -> bool:
    """Leave all work to NumPy until the program has taken so long that its first plan is a small
    share of that; tell whether it is left from now on. Arrays stay alight's meanwhile.
    """
    if _waited:
        return False
    _waited.append(None)
    left = _OPENING_SECONDS / _OPENING_SHARE - (perf_counter() - _began)
    if left <= 0.0 or _is_asked() or not _is_host_stored():
        return False
    floor.wait(left)
    return floor.waits()


def plan_at_once() -> None:
    """Let no work wait to be planned, now or later: somebody asked for what plans give."""
    _waited[:] = [None]
    floor.wait(0.0)


def _is_host_known() -> bool:
    # A file that holds no profile is found out by who reads it, and put aside.
    return _is_host_stored() and profile_of(registry.device(HOST_DEVICE)) is not None


def _is_host_stored() -> bool:
    from alight.measure.profiles import is_host_known

    return HOST_DEVICE in _profiles or is_host_known()


def _measure_when_over(name: str) -> None:
    due = name, os.getpid()
    if due not in _due and config().calibrate == "auto":
        _due.add(due)
        atexit.register(_measure_at_exit, name, os.getpid())


_looked_at: set[str] = set()
_began = perf_counter()
# The design's share of elapsed time that measuring in the foreground may take.
_FOREGROUND_SHARE, _CANARY_SECONDS = 0.05, 0.02


def note_close(decisions: Iterable[Decision]) -> None:
    """Where one of these was close, have the profiles behind it looked at again, once a process
    and device, as soon as nobody waits for the plan."""
    if _aside or perf_counter() - _began < _CANARY_SECONDS / _FOREGROUND_SHARE:
        return  # too early in the program's time
    if config().calibrate == "auto":
        doubted.update({name for decision in decisions for name in _close(decision)} - _looked_at)


# Devices whose profiles are to be looked at again.
doubted: set[str] = set()


def look_again(device: str) -> None:
    """Try whether the profile of a device still holds, once a process.

    What is found holds from the next start on: this process keeps its profile.
    """
    doubted.discard(device)
    profile = _profiles.get(device)
    if device in _looked_at or profile is None or profile.origin == "recorded" or profile.doubts:
        return
    _looked_at.add(device)
    from alight.measure.canary import canary, holds  # late: most programs need no look

    where = registry.device(device)
    with contextlib.suppress(Exception):  # a look must not end a program
        ratio = canary(registry.backend_of(where), where, profile)
        if ratio is not None and not holds(ratio, profile):
            logger().info(
                "%s takes %.2f times as long as its profile says, so it is measured anew when "
                "the process ends. Fix: alight calibrate, when nothing else runs.",
                *(device, ratio),
            )
            _measure_when_over(device)


def _close(decision: Decision) -> tuple[str, ...]:
    """Return the devices of the two best candidates if either may be the faster one."""
    known = [(c.estimate, c.device) for c in decision.candidates if c.estimate is not None]
    if len(known) < 2:
        return ()
    (first, one), (second, two) = sorted(known, key=lambda found: found[0].seconds)[:2]
    return (one, two) if second.low < first.high else ()


def _measure_at_exit(name: str, process: int) -> None:
    """Calibrate a device the program met without a profile, after its own work, within a second."""
    if os.getpid() != process:
        return  # a forked child leaves it to its parent
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        return  # whoever interrupts wants the end
    with contextlib.suppress(Exception):  # a program that ended well must not end with our error
        from alight.measure.calibrate import calibrate
        from alight.measure.profiles import fingerprint

        device = registry.device(name)
        key = digest(fingerprint(device), "attempt")
        last = default_store().read("attempt", key)
        wait = _RETRY_SECONDS
        if last is not None:
            if 0.0 <= time() - last["at"] < last["wait_seconds"]:
                return
            wait = min(2 * last["wait_seconds"], _MOST_SECONDS)
        backend = registry.backend_of(device)
        logger().info(
            "measuring %s for at most %g s, so that the next start has its profile "
            '(calibrate = "off" forbids it)',
            *(device.id, _EXIT_SECONDS),
        )
        (profile,) = calibrate(_EXIT_SECONDS, [(backend, device)])
        if profile.contended:
            default_store().write("attempt", key, {"at": time(), "wait_seconds": wait})
            logger().info(
                "other work disturbed what was measured of %s (%s): nothing is stored, and "
                "programs that end within %g s do not try again (`alight calibrate` does)",
                *(device.id, "; ".join(profile.doubts), wait),
            )
        elif profile.rough:
            logger().info(
                "what was measured of %s is rough and stored for want of a better profile: "
                "predictions are off by %.0f %% in the median. Fix: alight calibrate, when nothing "
                "else runs.",
                *(device.id, 100.0 * (profile.tried or 0.0)),
            )


# After an attempt that other work disturbed, so that nothing was stored: until then measuring at
# exit has taken no more than 5 % of the time. A machine that stays busy is asked half as often
# each time, and once a day.
_RETRY_SECONDS, _MOST_SECONDS = 20.0, 86400.0

# The design's limit: what is measured at exit takes at most a second.
_EXIT_SECONDS = 0.9


def profiles(devices: Sequence[Device]) -> Mapping[str, Profile]:
    """Return the profiles of these devices; a device without one is uncalibrated."""
    found = {device.id: profile_of(device) for device in devices}
    return {name: profile for name, profile in found.items() if profile is not None}


def step_seconds() -> float:
    """Return our own seconds for one step more of a plan, as the host's profile has it."""
    from alight.plan.plan import STEP_SECONDS

    profile = _profiles.get(HOST_DEVICE)
    found = None if profile is None else profile.one_offs.get("step")
    return STEP_SECONDS if found is None else found.value


def supports(device: str, implementation: str, group: Group) -> str | None:
    """Return why a device's implementation cannot run a group, or None."""
    if implementation != "generated":
        return None if device == HOST_DEVICE else _library_gap(registry.device(device), group)
    if device == HOST_DEVICE:
        from alight.codegen.gaps import unsupported
        from alight.ir.inner import folded
        from alight.ir.nested import plain

        return unsupported(plain(folded(group)))
    where = registry.device(device)
    # Without a profile only who names it for all work gets it: nothing is started to be refused.
    asked = profile_of(where) is not None or current_policy().force is not None
    return _device_gap(where, group, asked)


def gap_on(where: Device, implementation: str, group: Group) -> str | None:
    """Return why an implementation of a device, which need not be here, cannot run a group, by what
    the device says of itself."""
    if where.id == HOST_DEVICE:
        return supports(where.id, implementation, group)
    if implementation == "generated":
        return _device_gap(where, group, False)
    return _library_gap(where, group)


def likely_supports(device: str, implementation: str, group: Group) -> str | None:
    """Return why a device's implementation cannot run a group as far as that is known of one that
    was recalled and not opened: ops that were never compared with NumPy there are thought well
    of."""
    from alight.calibrated import recalled

    where = next((one.device for one in recalled() if one.device.id == device), None)
    if where is None:
        return supports(device, implementation, group)
    if implementation == "library":
        return _library_gap(where, group)
    return _device_gap(where, group, True, ask=False) if implementation == "generated" else None


def _library_gap(where: Device, group: Group) -> str | None:
    known = where.support.library
    if known is None:
        return None
    if len(group.graph.nodes) > 1:
        return f"{where.id} runs the functions of a library one at a time"
    lacking = [node.op.name for node in group.graph.nodes if node.op.name not in known]
    return f"{where.id} has no library form of {', '.join(lacking)}" if lacking else None


def _device_gap(where: Device, group: Group, verified: bool, ask: bool = True) -> str | None:
    # late: programs that stay on the host need neither
    from alight.codegen.source import DIALECTS, gap, group_gap
    from alight.ir.inner import folded
    from alight.trust import doubt

    group = folded(group)
    graph, support = group.graph, where.support
    dialect = DIALECTS.get(support.dialect)
    most = where.limits.get("operands", math.inf)
    if len(graph.inputs) + len(graph.outputs) > most:
        return f"{where.id} binds {most} operands at most"
    if reason := group_gap(support.dialect, group):
        return reason
    for node in graph.nodes:
        dtypes = *[graph.layout(number).dtype for number in node.operands], node.layout.dtype
        reason = gap(dialect, node.op, dtypes) if dialect is not None else None
        if reason is None and verified and support.verified and node.op.kind is Kind.ELEMENTWISE:
            reason = doubt(where, node.op, dtypes, node.attr("output", 0), ask)
        if reason is not None:
            return reason
    return None


def estimate(group: Group, device: str, implementation: str) -> Estimate | None:
    """Return the predicted cost of a group, or None where nothing was measured."""
    from alight.plan import cost

    if not _aside:
        _recall_bodies()
    return cost.estimate(group, device, implementation, _profiles.get(device))


@cache
def _recall_bodies() -> None:
    """Know what earlier processes counted in the bodies of ops, and keep what this one counts."""
    from alight.measure.profiles import code_fingerprint
    from alight.plan.workload import BODIES, PARTS

    key = digest([code_fingerprint(registry.device(HOST_DEVICE)), PARTS], _BODIES)
    found = (default_store().read(_BODIES, key) or {}).get("counts", {})
    BODIES.update({body: (size, tuple(parts)) for body, (size, parts) in found.items()})
    atexit.register(_keep_bodies, key, len(BODIES), os.getpid())


_BODIES = "bodies"


def _keep_bodies(key: str, known: int, process: int) -> None:
    from alight.plan.workload import BODIES

    if os.getpid() == process and len(BODIES) > known:
        default_store().write(_BODIES, key, {"counts": BODIES}, _all_bodies)


def _all_bodies(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"counts": {**old["counts"], **new["counts"]}}


def copy_seconds(source: str, target: str, nbytes: int) -> float:
    """Return the predicted seconds of a copy between two spaces; through the host where neither is
    it."""
    from alight.plan import cost

    seconds = 0.0
    if source != "host":
        seconds += cost.copy_seconds(_profiles.get(source), nbytes, "download") or 0.0
    if target != "host":
        seconds += cost.copy_seconds(_profiles.get(target), nbytes, "upload") or 0.0
    return seconds


def settle_floor(planning_seconds: Callable[[], float]) -> None:
    """Set below how many elements planning costs more than it can gain, unless the policy says."""
    settings = config()
    registry.check(settings.policy)  # now, not when work is large enough to be placed
    if settings.policy.record_floor > 0 or not settings.policy.floor:
        floor.auto = _floor_here(planning_seconds)
    floor.record_floor = current_policy().record_floor


# Measured so often, by one process each; then the least holds, and later ones measure none. On a
# busy machine planning suffers more than an addition does.
_FLOORS = 3


# Raised where planning becomes quicker: floors from before it say nothing of it.
_PLANNING = 3


def measured_floors() -> list[int]:
    """Return the automatic floors that earlier processes measured here; the least holds."""
    found = default_store().read("floor", _floor_key()) or {}
    return [int(elements) for elements in found.get("elements", ())]


def _floor_key() -> str:
    from alight.measure.profiles import fingerprint

    # Planning is Python's work.
    return digest([fingerprint(), sys.version, NATIVE, _PLANNING], "floor")


# Until the first process has measured it: the most that quiet machines showed.
GUESSED_FLOOR = 330_000
# Under `alight run` new arrays of fewer elements do not ask for the floor: a program of nothing
# else waits for no look into the store. Half of the least that any machine showed.
LEAST_FLOOR = 75_000


def _floor_here(planning_seconds: Callable[[], float]) -> int:
    """Return the automatic floor as earlier processes measured it, and have it measured when this
    one ends where few have."""
    known = measured_floors()
    if len(known) < _FLOORS:
        # It takes 15 to 70 ms, most of them to load what plans: a program of 12 ms that asked for
        # its floor took 37, and had nothing to plan.
        atexit.register(_measure_floor, planning_seconds, os.getpid())
    return min(known, default=GUESSED_FLOOR)


def _measure_floor(planning_seconds: Callable[[], float], process: int) -> None:
    """Measure the automatic floor, and keep it for processes to come."""

    def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        return {"elements": [*old["elements"], *new["elements"]][:_FLOORS]}

    if os.getpid() != process:
        return  # a forked child leaves it to its parent
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        return  # whoever interrupts wants the end
    with contextlib.suppress(Exception):  # a program that ended well must not end with our error
        began = perf_counter()
        # Whatever the program has set for itself, such as how errors are handled, is not asked.
        seconds = Context().run(lambda: min(planning_seconds() for _ in range(3)))
        elements = _planning_floor(seconds)
        logger().info(
            "work under %d elements is left to NumPy from the next start on, measured in %.0f ms",
            *(elements, 1e3 * (perf_counter() - began)),
        )
        default_store().write("floor", _floor_key(), {"elements": [elements]}, merged)


# With three, ten floors in one process were 287,000 to 800,000; this many take 2 ms.
_ADDITIONS = 12


def _planning_floor(planning: float) -> int:
    """Return the elements at which NumPy takes 20 times the planning time: less is not worth
    planning.

    Timed on a few additions, each twice as long, with results of their own as programs make them
    (the profile's curves are for memory that is kept). 20 is the design's rule for tiny work.
    """
    import numpy as np

    size = 1 << 12
    while True:
        x = np.ones(size)
        best = float("inf")
        for _ in range(_ADDITIONS):
            began = perf_counter()
            x + x
            best = min(best, perf_counter() - began)
        if best >= 20.0 * planning:
            return max(1, round(20.0 * planning * size / best))
        size *= 2


__all__ = [
    "WAITING",
    "aside",
    "copy_seconds",
    "doubted",
    "estimate",
    "gap_on",
    "is_aside",
    "left_to_numpy",
    "likely_supports",
    "look_again",
    "measure_later",
    "measured_floors",
    "note_close",
    "plan_at_once",
    "profile_of",
    "profiles",
    "settle_floor",
    "step_seconds",
    "stored_profile",
    "supports",
    "wait_to_plan",
]
