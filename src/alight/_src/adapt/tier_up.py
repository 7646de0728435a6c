"""Groups that NumPy ran because their kernels were not there, counted over processes: a script that
is started every day meets each of its groups once a day.

A kernel that nobody ran is of no use, and to load it is not free: one that saves less in a process
than loading it takes is left on disk, or is never made.
"""

from __future__ import annotations

from functools import cache
from time import time
from typing import Any, NamedTuple

from alight._src.base.cache_registry import Cache, register
from alight._src.store import default_store
from alight.device import Reason

__all__ = ["Loss", "keep", "lost", "made", "saves_little", "used"]

_KIND, _KEY = "met", "groups"

# Groups kept, the latest met. A program has dozens; a thousand are 80 kB, read in a millisecond.
_KEPT = 1024


class Loss(NamedTuple):
    """What not having a group's kernel has cost by now, in this process and those before it, and
    what comes of it: COMPILING where the kernel is to be had, else why not."""

    seconds: float
    reason: Reason


class _Earlier(NamedTuple):
    """A group that processes before this one met. ``vain``: how many of them made or loaded its
    kernel, and ended before it ran."""

    lost_seconds: float
    vain: int


# Seconds lost to NumPy in this process, by group; groups whose kernels were made or loaded
# meanwhile, and those of them that ran; and groups that lose less than loading their kernels takes.
_lost: dict[str, float] = {}
_made: set[str] = set()
_used: set[str] = set()
_little: set[str] = set()


def lost(group: str, seconds: float, loading_seconds: float) -> Loss:
    """Note that not having a group's kernel has cost ``seconds`` more, and return what comes of it;
    the kernel would be loaded in ``loading_seconds``."""
    before = _earlier().get(group)
    here = _lost.get(group)
    if here is None and len(_lost) >= _KEPT:  # its groups are all different: counts are no use
        _lost.clear()
    _lost[group] = now = (here or 0.0) + seconds
    if before is None:
        reason = Reason.FIRST_TIME if here is None else Reason.COMPILING
        return Loss(now, reason)
    if here is None:
        # Once a process: it pays where the next one would wait for it to be loaded.
        pays = seconds >= loading_seconds
    else:
        # Several times: as programs loop there will be more. Where there were not, it waits until
        # this process alone has lost what loading takes; after each further vain one, twice that.
        pays = not before.vain or now >= loading_seconds * 2.0 ** (before.vain - 1)
    (_little.discard if pays else _little.add)(group)
    reason = Reason.COMPILING if pays else Reason.SAVES_LITTLE
    return Loss(now + before.lost_seconds, reason)


def saves_little(group: str) -> bool:
    """Tell whether a group's kernel is not to be had, since it saves less than loading it takes."""
    return group in _little


def made(group: str) -> None:
    """Note that a group's kernel was made or loaded."""
    if group in _lost or group in _earlier():
        _made.add(group)


def used(group: str) -> None:
    """Note that a group's kernel is about to run."""
    if _lost.pop(group, None) is not None or group in _earlier():
        _used.add(group)


def keep() -> None:
    """Leave what this process met to those that come."""
    if _lost or _made or _used:
        default_store().write(_KIND, _KEY, _merged({}, {}), _merged)


def _merged(old: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
    groups = {group: row for group, row in old.items() if group not in _used}
    now = time()
    for group, seconds in _lost.items():
        row = groups.get(group, {})
        groups[group] = {
            "lost_seconds": row.get("lost_seconds", 0.0) + seconds,
            "met_at": now,
            "vain": row.get("vain", 0) + (group in _made),
        }
    latest = sorted(groups, key=lambda group: groups[group]["met_at"])[-_KEPT:]
    return {group: groups[group] for group in latest}


@cache
def _earlier() -> dict[str, _Earlier]:
    # Read once: a process goes by what was known when it began.
    found = default_store().read(_KIND, _KEY) or {}
    return {g: _Earlier(row["lost_seconds"], row.get("vain", 0)) for g, row in found.items()}


for _known in (_lost, _made, _used, _little):
    register(Cache.KERNELS_MET, _known.clear)
register(Cache.KERNELS_MET, _earlier.cache_clear)
