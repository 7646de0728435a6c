"""When a device is measured anew: after programs that met it without a profile, or found that its
profile no longer holds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from time import time
from typing import TYPE_CHECKING

from alight._src.adapt.foreground import FOREGROUND
from alight._src.adapt.planner_facts import profile_at_hand, profile_of
from alight._src.base.at_exit import interrupted, when_over
from alight._src.base.failures import ignoring_failures
from alight._src.base.uninterrupted import bring
from alight._src.config.loading import config
from alight._src.log.decisions import logger
from alight.backends import registry

if TYPE_CHECKING:
    from alight._src.plan.plan import Decision
    from alight.device import Device

__all__ = ["measure_later", "measure_when_over", "note_close"]

_due: set[tuple[Callable[[str], None], str, int]] = set()


def measure_later(devices: Sequence[Device]) -> None:
    """Have those of these devices that have no profile, or little of one, or one that other work
    disturbed or that was made in slow moments, calibrated when the process ends, as the settings
    allow: work was just planned for them. Of what others wrote the first profile is left to `alight
    calibrate`, since with one a device takes part where nobody named it."""
    for device in devices:
        profile = profile_of(device)
        if profile is None:
            from alight.backends.known_devices import is_own  # late: few lack one

            if not is_own(device.id.partition(":")[0]):
                continue
        if profile is None or profile.doubts or profile.little or profile.contended:
            measure_when_over(device.id)
        elif profile.pace_seconds is not None:
            _when_over(_compare_paces, device.id)


def measure_when_over(name: str) -> None:
    """Have a device calibrated when the process ends, as the settings allow."""
    _when_over(_measure_at_exit, name)


def _when_over(work: Callable[[str], None], name: str) -> None:
    due = work, name, os.getpid()
    if due not in _due and config().calibrate == "auto":
        _due.add(due)
        when_over(work, name)


# As `measure.spot_check` allows a look, which is imported for one alone.
_LOOK_SECONDS = 0.02


def note_close(decisions: Iterable[Decision]) -> None:
    """Where one of these was close, have the profiles behind it looked at again when the process
    ends, as what is found holds from the next start on: in the program's time a look took a call
    of it 30 ms."""
    if FOREGROUND.allows(_LOOK_SECONDS):
        for name in {name for decision in decisions for name in _close(decision)}:
            _when_over(_look_again, name)


def _look_again(device: str) -> None:
    """Try whether the profile of a device still holds; one that does not is measured anew."""
    profile = profile_at_hand(device)
    if profile is None or profile.origin == "recorded" or profile.doubts or interrupted():
        return
    bring("alight._src.measure.spot_check")
    from alight._src.measure.spot_check import canary, holds  # late: most programs need no look
    from alight._src.measure.timing import Pace, outpaces

    where = registry.device(device)
    with ignoring_failures():  # a look must not end a program
        ratio = canary(registry.backend_of(where), where, profile)
        if ratio is not None and not holds(ratio, profile):
            if where.space == "host" and outpaces(profile.pace_seconds, Pace().now()):
                # measured against the pace that is known, all would count for slow
                logger().info(
                    "%s takes %.2f times as long as its profile says, and the processor is slower "
                    "than it was. Fix: nothing, if that passes; else alight calibrate --fresh.",
                    *(device, ratio),
                )
                return
            logger().info(
                "%s takes %.2f times as long as its profile says, so it is measured anew. "
                "Fix: alight calibrate, when nothing else runs.",
                *(device, ratio),
            )
            if (due := (_measure_at_exit, device, os.getpid())) not in _due:
                _due.add(due)
                _measure_at_exit(device)


def _close(decision: Decision) -> tuple[str, ...]:
    """Return the devices of the two best candidates if either may be the faster one."""
    known = [(c.known, c.device) for c in decision.candidates if c.known is not None]
    if len(known) < 2:
        return ()
    (first, one), (second, two) = sorted(known, key=lambda found: found[0].seconds)[:2]
    return (one, two) if second.low < first.high else ()


def _compare_paces(name: str) -> None:
    """Calibrate a device whose profile was made while the processor was slower than it is now, as
    far as a second at a program's end is enough to take its place; else say so.

    When the program ends nobody waits for it, and what is measured then is likely measured in the
    same quick moment: they last for seconds.
    """
    profile = profile_at_hand(name)
    if profile is None or interrupted() or (_measure_at_exit, name, os.getpid()) in _due:
        return
    with ignoring_failures():  # as below
        from alight._src.measure.profiles import LEAST_SHARE, outpaced

        found = outpaced(profile)
        if found is not None:
            logger().info(
                "%s (%s). Fix: alight calibrate, when nothing else runs.", found.words, name
            )
            if LEAST_SHARE * profile.made_seconds <= _EXIT_SECONDS:
                _measure_at_exit(name, found.seconds)


def _measure_at_exit(name: str, pace_seconds: float = math.inf) -> None:
    """Calibrate a device the program met without a profile that holds, after its own work, within a
    second; the processor can be as quick as ``pace_seconds``."""
    if interrupted():
        return
    with ignoring_failures():  # a program that ended well must not end with our error
        from alight._src.measure.profiles import Refused, note_refused, refused

        device = registry.device(name)
        last = refused(device)
        wait = _RETRY_SECONDS
        if last is not None:
            if 0.0 <= time() - last.at < last.wait_seconds:
                return
            wait = min(2 * last.wait_seconds, _MOST_SECONDS)
        from alight._src.measure.calibrate import calibrate  # 36 ms, for who measures

        backend = registry.backend_of(device)
        logger().info(
            "measuring %s for at most %g s, so that the next start has its profile "
            '(calibrate = "off" forbids it)',
            *(device.id, _EXIT_SECONDS),
        )
        (profile,) = calibrate(_EXIT_SECONDS, [(backend, device)], pace_seconds=pace_seconds)
        if profile.contended:
            why = "; ".join(profile.doubts)
            note_refused(device, Refused(time(), wait, why))
            logger().info(
                "other work disturbed what was measured of %s (%s): it counts for less, and "
                "programs that end within %g s do not try again (`alight calibrate` does)",
                *(device.id, why, wait),
            )
        elif profile.little or profile.path is None:
            note_refused(device, Refused(time(), wait, ""))
        if profile.rough:
            logger().info(
                "what was measured of %s is rough and stored for want of a better profile: "
                "predictions are off by %.0f %% in the median. Fix: alight calibrate, when nothing "
                "else runs.",
                *(device.id, 100.0 * (profile.tried or 0.0)),
            )


# After an attempt that other work disturbed, so that nothing or little was stored, or what was no
# better than the profile before: until then measuring at exit has taken no more than 5 % of the
# time. A machine that stays busy is asked half as often each time, and once a day.
_RETRY_SECONDS, _MOST_SECONDS = 20.0, 86400.0

# The design's limit: what is measured at exit takes at most a second.
_EXIT_SECONDS = 0.9
