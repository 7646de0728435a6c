"""Requests of call sites below the floor that are recorded on trial: what they took is compared
with what NumPy took there.

Their first requests are rehearsals: NumPy stands in for the kernels, which are made meanwhile. What
those take beyond NumPy's time is what recording costs, and where that is more than the kernels can
gain the site is NumPy's again, before one of them has changed a bit.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from alight._core import Key, Value, floor
from alight._src.config.loading import current_policy
from alight._src.log.decisions import LOG
from alight._src.plan.plan import LaunchStep
from alight._src.run.prepared_step import stood_in

if TYPE_CHECKING:
    from alight._src.plan.plan import Plan

__all__ = ["run_judged"]


def run_judged(
    key: Key,
    values: list[Value],
    began: float,
    run: Callable[[Key, list[Value]], None],
    plan_of: Callable[[Key], Plan | None],
) -> None:
    """Run a request that began to be looked for at ``began``, and judge the sites on trial."""
    if not floor.expected(values, key.count):
        run(key, values)
        return
    before, counted = stood_in.times, LOG.seconds
    stood_in.rehearses = floor.rehearses
    try:
        run(key, values)
    finally:
        stood_in.rehearses = False
    took, found = _seconds_since(began), plan_of(key)
    least = -1.0 if found is None else _least_seconds(found)
    if floor.took(took, LOG.seconds - counted, least, stood_in.times != before):
        reproducible = current_policy().reproducible
        floor.shut(reproducible and found is not None and _changes_bits(found))


def _seconds_since(began: float) -> float:
    return perf_counter() - began


def _least_seconds(plan: Plan) -> float:
    """Return what a plan's steps take at least, as predicted; negative where all are NumPy's own,
    so that nothing is to be gained."""
    if not any([isinstance(s, LaunchStep) and s.implementation != "numpy" for s in plan.steps]):
        return -1.0
    seconds = 0.0
    for step in plan.steps:
        if isinstance(step, LaunchStep):
            for candidate in step.decision.candidates:
                chosen = (candidate.device, candidate.implementation) == (
                    step.device,
                    step.implementation,
                )
                if chosen and candidate.estimate is not None:
                    seconds += candidate.estimate.low
    return seconds


def _changes_bits(plan: Plan) -> bool:
    """Tell whether NumPy gives other bits than a plan's kernels have given by now."""
    return any(
        isinstance(step, LaunchStep)
        and step.implementation == "generated"
        and not step.group.form.same_bits
        for step in plan.steps
    )
