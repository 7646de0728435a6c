"""Groups that NumPy ran because their kernels were not there, counted over processes: a script that
is started every day meets each of its groups once a day.

A kernel that nobody ran is of no use, and to load it is not free: one that saves less in a process
than loading it takes is left on disk, or is never made.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import cache
from time import time
from typing import Any, NamedTuple

from alight._src.base.cache_registry import Cache, register
from alight._src.base.records import dataclass
from alight._src.store import default_store
from alight.device import Reason

__all__ = ["Loss", "keep", "lost", "made", "reason", "recall", "used"]

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


class _Kernel(Enum):
    MISSING = auto()
    UNUSED = auto()  # it was made or loaded meanwhile
    USED = auto()


@dataclass(slots=True)
class _Met:
    """A group that this process met."""

    lost_seconds: float = 0.0
    reason: Reason = Reason.FIRST_TIME
    kernel: _Kernel = _Kernel.MISSING


_met: dict[str, _Met] = {}


def lost(group: str, seconds: float, loading_seconds: float) -> Loss:
    """Note that not having a group's kernel has cost ``seconds`` more, and return what comes of it;
    the kernel would be loaded in ``loading_seconds``."""
    before, here = _earlier().get(group), _met.get(group)
    if here is None and len(_met) >= _KEPT:  # its groups are all different: counts are no use
        _met.clear()
    met = _met[group] = here or _Met()
    met.lost_seconds += seconds
    if before is None:
        pays = here is not None
    elif here is None:
        # Once a process: it pays where the next one would wait for it to be loaded.
        pays = seconds >= loading_seconds
    else:
        # Several times: as programs loop there will be more. Where there were not, it waits until
        # this process alone has lost what loading takes; after each further vain one, twice that.
        least = loading_seconds * 2.0 ** (before.vain - 1)
        pays = not before.vain or met.lost_seconds >= least
    why = Reason.FIRST_TIME if before is None else Reason.SAVES_LITTLE
    met.reason = Reason.COMPILING if pays else why
    return Loss(met.lost_seconds + (before.lost_seconds if before else 0.0), met.reason)


def reason(group: str) -> Reason:
    """Return what came of the latest run without a group's kernel."""
    return _met[group].reason if group in _met else Reason.FIRST_TIME


def made(group: str) -> None:
    """Note that a group's kernel was made or loaded, and not for who asked for it."""
    if group not in _met or _met[group].kernel is _Kernel.MISSING:
        _note(group, _Kernel.UNUSED)


def used(group: str) -> None:
    """Note that a group's kernel is about to run."""
    _note(group, _Kernel.USED)


def _note(group: str, kernel: _Kernel) -> None:
    if group in _met or group in _earlier():
        _met.setdefault(group, _Met()).kernel = kernel


def keep() -> None:
    """Leave what this process met to those that come."""
    if _met:
        default_store().write(_KIND, _KEY, _merged({}, {}), _merged)


def _merged(old: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
    groups, now = dict(old), time()
    for group, met in _met.items():
        row = groups.pop(group, {})
        if met.kernel is _Kernel.USED:  # what it takes to have it has come back
            row = {}
        groups[group] = {
            "lost_seconds": row.get("lost_seconds", 0.0) + met.lost_seconds,
            "met_at": now,
            "vain": row.get("vain", 0) + (met.kernel is _Kernel.UNUSED),
        }
    latest = sorted(groups, key=lambda group: groups[group]["met_at"])[-_KEPT:]
    return {group: groups[group] for group in latest}


def recall() -> None:
    """Know what earlier processes met, as who asks first does."""
    _earlier()


@cache
def _earlier() -> dict[str, _Earlier]:
    # Read once: a process goes by what was known when it began.
    found = default_store().read(_KIND, _KEY) or {}
    return {g: _Earlier(row["lost_seconds"], row.get("vain", 0)) for g, row in found.items()}


register(Cache.KERNELS_MET, _met.clear)
register(Cache.KERNELS_MET, _earlier.cache_clear)
