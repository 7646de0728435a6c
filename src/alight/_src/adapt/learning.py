"""What runs took, kept for predictions: from the next start on, or at once where `learn` says so.

Nothing is timed for it: what the log holds when a process ends is counted by cells of like work
(`plan.learned`) and added to what earlier processes left. Read once: what others learn meanwhile
must not change this one's choices, and so its bits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from time import time
from typing import Any

from alight._src.base.at_exit import interrupted, when_over
from alight._src.base.cache_registry import Cache, forget, register
from alight._src.base.failures import ignoring_failures
from alight._src.log.decisions import LOG
from alight._src.measure.profiles import profile_key
from alight._src.plan.learned import BINS, Learned, Lesson
from alight._src.plan.plan import Decision, Estimate, LaunchStep, Plan
from alight._src.plan.profile import Profile
from alight._src.store import default_store

__all__ = ["at_once", "chosen_estimate", "holds", "keep", "learned_of", "place_of", "teach"]

_KIND = "learned"
# Cells kept of a device, those used last: a program has dozens. So many are 100 kB, and read in a
# millisecond.
_KEPT = 1024
# Runs that one process adds to a cell at most, and that a cell remembers: a loop of a million turns
# says less than two programs, and what the machine was like in the third process before this one is
# mostly forgotten.
_OF_PROCESS, _REMEMBERED = 32.0, 64.0
# Of a decision's runs, those looked at when a process ends: the last.
_LOOKED_AT = 256
# Ratios beyond 1,000 are of clocks, not of work.
_FARTHEST = 10 * BINS
# What a factor has changed by where plans that were made with it are made anew: intervals of good
# profiles are as wide.
_CHANGED = 1.25

_Lessons = Mapping[str, Lesson]
_profiles: dict[str, Profile] = {}  # of the devices that predictions were made for
_known: dict[str, Learned] = {}
_stored: dict[str, _Lessons] = {}  # of other processes, as read


class _Seen:
    """How many decisions the log had when it was last looked at."""

    decisions = 0


def _forget() -> None:
    _profiles.clear()
    _known.clear()
    _stored.clear()
    _Seen.decisions = 0


register(Cache.PROFILES, _forget)


def learned_of(profile: Profile) -> Learned:
    """Return what runs on a device have shown of predictions by this profile of it."""
    found = _known.get(profile.device)
    if found is None or _profiles[profile.device] is not profile:
        _keep_when_over()
        _profiles[profile.device] = profile
        found = _known[profile.device] = Learned(_read(profile), _basis(profile))
    return found


@cache  # however often profiles are looked up anew: what runs took counts once
def _keep_when_over() -> None:
    when_over(keep)


def holds(plan: Plan) -> bool:
    """Tell whether a plan that was kept was made with factors much like those of now."""
    for step in plan.steps:
        for candidate in step.decision.candidates if isinstance(step, LaunchStep) else ():
            made, known = candidate.estimate, _known.get(candidate.device)
            if made is None or not made.cell or known is None:
                continue
            now = known.factor(made.cell, made.model_seconds).times * made.model_seconds
            if max(now / made.seconds, made.seconds / now) > _CHANGED:
                return False
    return True


def chosen_estimate(decision: Decision) -> Estimate | None:
    """Return what was predicted of the candidate that a decision is for."""
    own = decision.chosen, decision.implementation
    for candidate in decision.candidates:
        if (candidate.device, candidate.implementation) == own:
            return candidate.estimate
    return None


def at_once() -> None:
    """Have predictions from now on go by what this process has run so far, and plans made anew
    where that changes them much."""
    # Ever more of them between two looks, so that all looks take a share of the runs.
    seen = _Seen.decisions if LOG.decisions >= _Seen.decisions else 0
    if LOG.decisions < 1.25 * seen + 8:
        return
    _Seen.decisions = LOG.decisions
    changed = False
    for device, lessons in _taught().items():
        profile, before = _profiles[device], _known[device]
        now = Learned(_merged(_read(profile), lessons), _basis(profile))
        changed = changed or now.differs(before, _CHANGED)
        _known[device] = now
    if changed:
        forget(Cache.PLANS)


def keep() -> None:
    """Leave what this process's runs took to those that come."""
    if interrupted():
        return
    with ignoring_failures():  # a program that ended well must not end with our error
        for device, lessons in _taught().items():
            key = profile_key(_profiles[device].fingerprint)
            default_store().write(_KIND, key, _document(lessons), _merged_documents)


def teach(
    profile: Profile, bins: Mapping[str, tuple[float, dict[int, float]]], store: bool
) -> Learned:
    """Return what is known with what somebody else measured, by cells: log2 of the model's seconds,
    and histograms as a `Lesson` has; ``store``: it is kept, and holds from the next start on."""
    now, basis = time(), _basis(profile)
    lessons = {
        cell: Lesson(basis, unit, now, _at_most(found, _OF_PROCESS))
        for cell, (unit, found) in bins.items()
    }
    if store:
        key = profile_key(profile.fingerprint)
        default_store().write(_KIND, key, _document(lessons), _merged_documents)
    return Learned(_merged(_read(profile), lessons), basis)


def place_of(seconds: float, model_seconds: float) -> int:
    """Return the bin that a run counts in."""
    place = round(BINS * math.log2(seconds / model_seconds))
    return max(-_FARTHEST, min(place, _FARTHEST))


def _basis(profile: Profile) -> str:
    return f"{profile.made_at:.0f} {sys.modules['alight'].__version__}"


def _read(profile: Profile) -> _Lessons:
    if profile.device not in _stored:
        found = default_store().read(_KIND, profile_key(profile.fingerprint)) or {}
        _stored[profile.device] = _lessons(found)
    return _stored[profile.device]


def _taught() -> dict[str, dict[str, Lesson]]:
    """Return what the runs in the log say, by device and cell."""
    runs: dict[int, tuple[Decision, list[tuple[float, int]]]] = {}
    for _, decision, _, seconds, times, first in LOG.rows():
        if seconds is not None and not first and seconds > 0.0:
            runs.setdefault(id(decision), (decision, []))[1].append((seconds, times))
    found: dict[str, dict[str, dict[int, float]]] = {}
    units: dict[str, float] = {}
    for decision, took in runs.values():
        made = chosen_estimate(decision)
        if made is None or not made.cell or decision.chosen not in _profiles:
            continue
        units[made.cell] = math.log2(made.model_seconds)
        bins = found.setdefault(decision.chosen, {}).setdefault(made.cell, {})
        for seconds, times in took[-_LOOKED_AT:]:
            place = place_of(seconds, made.model_seconds)
            bins[place] = bins.get(place, 0.0) + min(times, _OF_PROCESS)
    now = time()
    return {
        device: {
            cell: Lesson(_basis(_profiles[device]), units[cell], now, _at_most(bins, _OF_PROCESS))
            for cell, bins in cells.items()
        }
        for device, cells in found.items()
    }


def _at_most(bins: Mapping[int, float], most: float) -> dict[int, float]:
    share = min(1.0, most / (sum(bins.values()) or 1.0))
    return {number: weight * share for number, weight in bins.items() if weight * share > 0.01}


def _merged(old: _Lessons, new: _Lessons) -> dict[str, Lesson]:
    """Return both, of no more cells than are kept."""
    found = dict(old)
    for cell, lesson in new.items():
        before = found.get(cell)
        if before is not None:
            lesson = _together(before, lesson)
        found[cell] = lesson
    if len(found) > _KEPT:
        latest = sorted(found, key=lambda cell: found[cell].at)[-_KEPT:]
        found = {cell: found[cell] for cell in latest}
    return found


def _together(old: Lesson, new: Lesson) -> Lesson:
    if new.at < old.at:
        old, new = new, old
    # by another profile other seconds were predicted; what it took stays
    moved = 0 if old.basis == new.basis else round(BINS * (old.unit - new.unit))
    bins = dict(new.bins)
    for number, weight in _at_most(old.bins, _REMEMBERED - new.runs).items():
        place = max(-_FARTHEST, min(number + moved, _FARTHEST))
        bins[place] = bins.get(place, 0.0) + weight
    return new._replace(bins=bins)


def _document(lessons: _Lessons) -> dict[str, Any]:
    rows = {}
    for cell, lesson in lessons.items():
        bins = {str(number): round(weight, 2) for number, weight in lesson.bins.items()}
        rows[cell] = [lesson.basis, round(lesson.unit, 3), round(lesson.at), bins]
    return {"cells": rows}


def _lessons(document: Mapping[str, Any]) -> dict[str, Lesson]:
    return dict(_rows(document.get("cells")))


def _rows(cells: Any) -> Iterator[tuple[str, Lesson]]:
    for cell, row in cells.items() if isinstance(cells, dict) else ():
        with ignoring_failures(*_NO_LESSON):  # whoever wrote it
            basis, unit, at, bins = row
            made = {int(number): float(weight) for number, weight in bins.items()}
            told = Lesson(str(basis), float(unit), float(at), made)
            # of 2**80 seconds no clock says anything either
            likely = max(map(abs, (told.unit, *made))) <= _FARTHEST
            if likely and min(made.values()) > 0.0 and math.isfinite(told.runs + told.at):
                yield str(cell), told


_NO_LESSON = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


def _merged_documents(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return _document(_merged(_lessons(old), _lessons(new)))
