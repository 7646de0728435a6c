"""`pick="measure"`: candidates race before one is chosen, each group once in a process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from alight._src.adapt import planner_facts
from alight._src.adapt.contest import CHOICE_RULES, Contest
from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import failures
from alight._src.ir.group import Group
from alight._src.log.decisions import LOG
from alight._src.measure.probe_bench import Bench
from alight._src.measure.probes import Probe
from alight._src.measure.timing import LEAST_SECONDS, Timing
from alight._src.plan.choose import group_key
from alight._src.plan.plan import Estimate, Spot
from alight._src.run import kernels
from alight.backends import registry
from alight.backends.machine import host_memory

__all__ = ["timed", "timer"]

# A group's arrays are made anew to time it; with those of the program they must fit in memory.
_SHARE_OF_MEMORY = 8

_known: dict[tuple[str, tuple[Spot, ...]], dict[Spot, Estimate | None]] = {}
register(Cache.TIMINGS, _known.clear)


def timed(group: Group, spots: Sequence[Spot]) -> dict[Spot, Estimate | None]:
    """Return the measured seconds of a group on each of these, on data of its own, taken in turns;
    the cost model's where it cannot be run apart from its program."""
    key = group_key(group), tuple(spots)
    found = _known.get(key)
    if found is None:
        found = _known[key] = _timed(group, spots)
    return found


def _timed(group: Group, spots: Sequence[Spot]) -> dict[Spot, Estimate | None]:
    contest = Contest(spots, CHOICE_RULES)
    timers = {spot: timer(group, *spot) for spot in spots}

    def lap(spot: Spot) -> float:
        found = timers[spot](LEAST_SECONDS / CHOICE_RULES.laps)
        if found is None:  # nor would it be otherwise in the laps to come
            contest.settle(spot, math.inf)
            return math.inf
        return found.seconds

    contest.run({spot: partial(lap, spot) for spot in spots})
    found: dict[Spot, Estimate | None] = {}
    for spot, laps in contest.seconds.items():
        if laps[0] < math.inf:
            found[spot] = Estimate(laps[0], laps[0], laps[-1], {"measured": laps[0]})
        else:
            found[spot] = planner_facts.estimate(group, *spot)
    return found


def timer(group: Group, device: str, implementation: str) -> Callable[[float], Timing | None]:
    """Return what takes so many seconds to tell how long a group takes on a device, on data of its
    own; None where it cannot be run apart from its program."""
    graph = group.graph
    layouts = graph.operand_layouts
    reached = max([_reach(layout) for layout in graph.inputs], default=0)
    room = host_memory()[0] // _SHARE_OF_MEMORY
    backwards = any(stride < 0 for layout in layouts for stride in layout.strides)
    bench: Bench | None = None

    def time(seconds: float) -> Timing | None:
        nonlocal bench
        if backwards or reached * len(layouts) > room:
            return None
        try:
            if bench is None:
                where = registry.device(device)
                kernels.kernel(where, group, implementation)  # kept, for the program too
                bench = Bench(registry.backend_of(where), where, reached)
            return bench.time(Probe(implementation, group), seconds)
        except failures() as error:  # made-up indices may lie outside; a driver may fail
            what = f"timing {implementation} on {device}"
            LOG.fallback(what, error)
            return None

    return time


def _reach(layout: Any) -> int:
    """Return the bytes from the first to the last element of a layout."""
    if not layout.size:
        return 0
    span = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))
    return int(span + layout.itemsize)
