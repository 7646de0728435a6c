"""The automatic floor: below how many elements planning costs more than it can gain, as processes
measure it when they end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import Context
from time import perf_counter
from typing import Any

from alight._core import floor
from alight._src.adapt import first_plan
from alight._src.base.at_exit import interrupted, when_over
from alight._src.base.failures import ignoring_failures
from alight._src.base.formatting import readable_seconds
from alight._src.base.originals import np
from alight._src.base.uninterrupted import uninterrupted
from alight._src.config.loading import config, current_policy
from alight._src.log.decisions import logger
from alight._src.store import default_store, digest
from alight.backends import registry

__all__ = ["GUESSED_FLOOR", "measured_floors", "settle_floor"]


def settle_floor(planning_seconds: Callable[[], float]) -> None:
    """Set below how many elements planning costs more than it can gain, unless the policy says."""
    settings = config()
    registry.check(settings.policy)  # now, not when work is large enough to be placed
    own = settings.policy
    if own.enabled and (own.record_floor > 0 or not own.floor):
        floor.auto = uninterrupted(lambda: _floor_here(planning_seconds))
    floor.record_floor = current_policy().record_floor
    first_plan.rest()


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
    from alight._src.measure.profiles import fingerprint

    # Planning is Python's work.
    return digest([fingerprint(), sys.version, _PLANNING], "floor")


# Until the first process has measured it: the most that quiet machines showed.
GUESSED_FLOOR = 330_000


def _floor_here(planning_seconds: Callable[[], float]) -> int:
    """Return the automatic floor as earlier processes measured it, and have it measured when this
    one ends where few have."""
    known = measured_floors()
    if len(known) < _FLOORS:
        # It takes 15 to 70 ms, most of them to load what plans: a program of 12 ms that asked for
        # its floor took 37, and had nothing to plan.
        when_over(_measure_floor, planning_seconds)
    return min(known, default=GUESSED_FLOOR)


def _measure_floor(planning_seconds: Callable[[], float]) -> None:
    """Measure the automatic floor, and keep it for processes to come."""

    def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        return {"elements": [*old["elements"], *new["elements"]][:_FLOORS]}

    if interrupted():
        return
    with ignoring_failures():  # a program that ended well must not end with our error
        began = perf_counter()
        # Whatever the program has set for itself, such as how errors are handled, is not asked.
        seconds = Context().run(lambda: min(planning_seconds() for _ in range(3)))
        elements = _planning_floor(seconds)
        logger().info(
            "work under %d elements is left to NumPy from the next start on, measured in %s",
            *(elements, readable_seconds(perf_counter() - began)),
        )
        default_store().write("floor", _floor_key(), {"elements": [elements]}, merged)


# With three, ten floors in one process were 287,000 to 800,000; this many take 2 ms.
_ADDITIONS = 12
# Elements of the largest: five times the highest of those floors. Where planning seemed to take
# longer than that it was disturbed, and would have gigabytes added.
_MOST_ELEMENTS = 1 << 22


def _planning_floor(planning: float) -> int:
    """Return the elements at which NumPy takes 20 times the planning time: less is not worth
    planning.

    Timed on a few additions, each twice as long, with results of their own as programs make them
    (the profile's curves are for memory that is kept). 20 is the design's rule for tiny work.
    """
    size = 1 << 12
    while True:
        x = np.ones(size)
        best = float("inf")
        for _ in range(_ADDITIONS):
            began = perf_counter()
            x + x
            best = min(best, perf_counter() - began)
        if best >= 20.0 * planning or size >= _MOST_ELEMENTS:
            return max(1, round(20.0 * planning * size / best))
        size *= 2
