"""What planning may know of costs: profiles as measured, supports and estimates as plain functions.

This is the edge between what was measured (files, clocks) and ``plan``, which sees neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from alight._core import floor
from alight.config import current_policy
from alight.device import Device
from alight.ir.group import Group
from alight.plan.plan import Estimate

# design: never plan what NumPy would finish in under 20 times the planning time.
_PLANNING_SHARE = 20

_profiles: dict[str, Any] = {}
# What one recorded op costs beyond its kernel when its plan is cached; the runtime measures it.
planning_probe: list[Callable[[], float]] = []


def profiles(devices: Sequence[Device]) -> Mapping[str, Any]:
    """Return the measured profiles of these devices; a device without one is uncalibrated."""
    return {d.id: _profiles[d.id] for d in devices if d.id in _profiles}


def supports(device: str, implementation: str, group: Group) -> str | None:
    """Return why a device's implementation cannot run a group, or None."""
    return None


def estimate(group: Group, device: str, implementation: str) -> Estimate | None:
    """Return the predicted cost of a group, or None where nothing was measured."""
    return None


def copy_seconds(source: str, target: str, nbytes: int) -> float:
    """Return the predicted seconds of a copy between two spaces."""
    return 0.0


def settle_floor() -> None:
    """Measure, once, below how many elements planning costs more than it can gain, and set the floor."""
    x = np.ones(1 << 16)
    out = np.empty_like(x)
    seconds = []
    for _ in range(5):
        began = perf_counter()
        np.add(x, x, out=out)
        seconds.append(perf_counter() - began)
    floor.record_floor = 0  # while measuring
    planning = min(probe() for probe in planning_probe)
    floor.auto = max(1, round(_PLANNING_SHARE * planning / (min(seconds) / x.size)))
    floor.record_floor = current_policy().record_floor
