"""Groups that NumPy ran because their kernels were not there, counted over processes: a script that
is started every day meets each of its groups once a day."""

from __future__ import annotations

from functools import cache
from time import time
from typing import Any

from alight._src.store import default_store

__all__ = ["again", "forget", "keep", "made"]

_KIND, _KEY = "met", "groups"

# Groups kept, the latest met. A program has dozens; a thousand are 80 kB, read in a millisecond.
_KEPT = 1024

# Seconds lost to NumPy in this process, by group, and groups whose kernels it has made.
_lost: dict[str, float] = {}
_made: set[str] = set()


def again(group: str, seconds: float) -> float | None:
    """Return what not having a group's kernel has cost by now, ``seconds`` this time, in this
    process and those before it; None where it was never met before."""
    before = _earlier().get(group)
    if group not in _lost and before is None:
        if len(_lost) >= _KEPT:  # its groups are all different: it has no use for counts
            _lost.clear()
        _lost[group] = seconds
        return None
    _lost[group] = lost = _lost.get(group, 0.0) + seconds
    return lost + (before or 0.0)


def made(group: str) -> None:
    """Note that a group has its kernel."""
    if _lost.pop(group, None) is not None or group in _earlier():
        _made.add(group)


def keep() -> None:
    """Leave what this process met to those that come."""
    if _lost or _made:
        default_store().write(_KIND, _KEY, _merged({}, {}), _merged)


def forget() -> None:
    """Know nothing any more of what was met, here or before."""
    _lost.clear()
    _made.clear()
    _earlier.cache_clear()


def _merged(old: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
    groups = {group: row for group, row in old.items() if group not in _made}
    now = time()
    for group, seconds in _lost.items():
        before = groups.get(group, {}).get("lost_seconds", 0.0)
        groups[group] = {"lost_seconds": before + seconds, "met_at": now}
    latest = sorted(groups, key=lambda group: groups[group]["met_at"])[-_KEPT:]
    return {group: groups[group] for group in latest}


@cache
def _earlier() -> dict[str, float]:
    # Read once: a process goes by what was known when it began.
    found = default_store().read(_KIND, _KEY) or {}
    return {group: row["lost_seconds"] for group, row in found.items()}
