"""`pick="measure"`: candidates are timed before one is chosen, each group once in a process."""

from __future__ import annotations

from typing import Any

from alight._src.adapt import planner_facts
from alight._src.base.failures import failures
from alight._src.ir.group import Group
from alight._src.log.decisions import LOG
from alight._src.measure.probes import Bench, Probe
from alight._src.measure.timing import Timing
from alight._src.plan.choose import group_key
from alight._src.plan.plan import Estimate
from alight._src.run import kernels
from alight.backends import registry
from alight.backends.machine import host_memory

__all__ = ["forget", "measured", "timed"]

# A group's arrays are made anew to time it; with those of the program they must fit in memory.
_SHARE_OF_MEMORY = 8

_known: dict[tuple[str, str, str], Estimate | None] = {}


def timed(group: Group, device: str, implementation: str) -> Estimate | None:
    """Return the measured seconds of a group on a device, on data of its own; the cost model's
    where it cannot be run apart from its program."""
    key = group_key(group), device, implementation
    if key not in _known:
        _known[key] = _timed(group, device, implementation)
    return _known[key]


def forget() -> None:
    """Drop all that was timed."""
    _known.clear()


def _timed(group: Group, device: str, implementation: str) -> Estimate | None:
    found = measured(group, device, implementation)
    if found is None:
        return planner_facts.estimate(group, device, implementation)
    return Estimate(found.seconds, found.low, found.high, {"measured": found.seconds})


def measured(group: Group, device: str, implementation: str) -> Timing | None:
    """Return how long a group takes on a device, on data of its own; None where it cannot be run
    apart from its program."""
    graph = group.graph
    layouts = (*graph.inputs, *[graph.layouts[number] for number in graph.outputs])
    reached = max([_reach(layout) for layout in graph.inputs], default=0)
    room = host_memory()[0] // _SHARE_OF_MEMORY
    backwards = any(stride < 0 for layout in layouts for stride in layout.strides)
    if backwards or reached * len(layouts) > room:
        return None
    where = registry.device(device)
    try:
        kernels.kernel(where, group, implementation)  # kept, for timing and for the program
        bench = Bench(registry.backend_of(where), where, reached)
        return bench.time(Probe(implementation, group))
    except failures() as error:  # made-up indices may lie outside; a driver may fail
        what = f"timing {implementation} on {device}"
        LOG.fallback(what, f"{type(error).__name__}: {error}", None)
        return None


def _reach(layout: Any) -> int:
    """Return the bytes from the first to the last element of a layout."""
    if not layout.size:
        return 0
    span = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))
    return int(span + layout.itemsize)
