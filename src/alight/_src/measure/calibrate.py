"""Calibration of devices: each goes on from what was kept of it, and keeps what it measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from alight._src.measure import saved_samples as keeping
from alight._src.measure.device_calibration import Calibration
from alight._src.measure.profiles import known_pace, save_profile
from alight._src.measure.timing import Pace, outpaces
from alight._src.plan.cost import Profile
from alight.backends.registry import remember

if TYPE_CHECKING:
    from alight.backends.base import Backend
    from alight.device import Device

__all__ = ["calibrate"]

Progress = Callable[[float, str], bool | None]


def calibrate(
    budget_seconds: float = 2.0,
    devices: Sequence[tuple[Backend, Device]] = (),
    progress: Progress | None = None,
    store: bool = True,
    time_step: Callable[[str], float] | None = None,
    pace_seconds: float = math.inf,
    fresh: bool = False,
) -> list[Profile]:
    """Return a measured profile of each device, within the budget in seconds for each.

    ``progress(share, what)`` is told of every point; when it returns False, measuring stops and
    what there is comes back. All that was measured is kept for the next calibration, which goes on
    from it, so that calibrations refine one profile. ``time_step`` returns the seconds of one step
    more of a plan on a device by an implementation, its call included, which is timed above. Where
    somebody knows that the host's processor can be as quick as ``pace_seconds`` (see `Pace`),
    moments in which it is not are slow, as they are against the profile that there is
    (`known_pace`). ``fresh``: that, and what was kept, is passed over.
    """
    profiles = []
    for backend, device in devices:
        kept = keeping.load(device) if store and not fresh else None
        known = min(pace_seconds, math.inf if fresh else known_pace(device))
        if kept is not None and outpaces(known, kept.pace_seconds):
            kept = kept.slowed()
        elif kept is not None:
            known = min(known, kept.pace_seconds)
        pace = Pace(known)
        run = Calibration(backend, device, budget_seconds, time_step, pace, kept, _anew=fresh)
        stopped: KeyboardInterrupt | None = None
        try:
            for what in run.steps():
                share = min(1.0, run.spent() / budget_seconds)
                if progress is not None and progress(share, f"{device.id} {what}") is False:
                    break
        except KeyboardInterrupt as interrupt:  # what there is by now is of use
            stopped, run.found.complete = interrupt, False
        if store and (found := run.to_keep()) is not None:
            keeping.keep(device, found)
        profile = run.profile()
        profiles.append(save_profile(profile, asked_anew=fresh) if store else profile)
        if store:
            remember(device)
        if stopped is not None:
            raise stopped
    return profiles
