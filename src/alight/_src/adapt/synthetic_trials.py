"""What nobody measured of a device, and may be the quickest place for work of a program, is tried
when the program ends, on data of its own: from the next start on it is known.

Each class of work is tried once for a device, dtype and power of two of size; what fails is kept,
too, and not tried again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from alight._src.adapt.foreground import FOREGROUND
from alight._src.base.at_exit import interrupted, when_over
from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import failures, ignoring_failures
from alight._src.config.loading import config
from alight._src.config.schema import HOST_DEVICE
from alight._src.log.decisions import logger
from alight._src.plan.plan import Estimate, Source
from alight._src.store import default_store, digest
from alight.backends import registry

if TYPE_CHECKING:
    from alight._src.ir.group import Group
    from alight._src.plan.plan import Decision, LaunchStep

__all__ = ["note_unmeasured", "probed"]

_KIND = "probes"
# What is predicted to take longer at most is not tried, nor what needs more of the device's memory.
_MOST_SECONDS, _MEMORY_SHARE = 0.05, 0.25
# Of one group at another size within its power of two, in logarithms: the work is at most twice.
_OCTAVE_SPREAD = math.log(2.0) / 2

_due: dict[tuple[int, str, str, str], Group] = {}
register(Cache.PROFILES, _due.clear)


class _Kind(NamedTuple):
    """Under which name a group is tried, and how much work it is."""

    name: str
    work: float


def _kind_of(group: Group, implementation: str) -> _Kind:
    from alight._src.plan.passes import node_class
    from alight._src.plan.workload import workload

    graph = group.graph
    work = workload(group)
    amount = max(float(work.bytes_read + work.bytes_written), work.flops, 1.0)
    classes = sorted({node_class(graph, node) for node in graph.nodes})
    ops = [node.op.name for node in graph.nodes] if "other" in classes else []
    dtype = graph.nodes[-1].layout.dtype.name
    octave = int(math.log2(amount))
    parts = implementation, "+".join([*classes, *ops]), str(len(graph.nodes)), dtype, str(octave)
    return _Kind(" ".join(parts), amount)


def note_unmeasured(steps: Iterable[LaunchStep]) -> None:
    """Have those candidates of what was just planned tried that were not measured, did not win, and
    may be quicker than what did."""
    if config().calibrate != "auto":
        return
    for step in steps:
        best = _best(step.decision)
        for c in step.decision.candidates:
            if c.estimate is None or c.device == HOST_DEVICE or c.estimate.low >= best:
                continue
            if c.estimate.source is Source.MEASURED:
                continue
            if c.estimate.high > _MOST_SECONDS or known(c.device, step.group, c.implementation):
                continue
            kind = _kind_of(step.group, c.implementation).name
            due = os.getpid(), c.device, c.implementation, kind
            if due not in _due:
                _due[due] = step.group
                when_over(_try, due, c.estimate.high)


def _best(decision: Decision) -> float:
    """Return the least that what was measured of a group may take; infinity where nothing was."""
    measured = [
        c.estimate.low
        for c in decision.candidates
        if c.estimate is not None and c.estimate.source is Source.MEASURED
    ]
    return min(measured, default=math.inf)


def _try(due: tuple[int, str, str, str], most_seconds: float) -> None:
    """Time a group on data of its own, as far as the program's time allows."""
    _, device, implementation, name = due
    group = _due.pop(due, None)
    if group is None or interrupted() or not FOREGROUND.allows(most_seconds):
        return
    from alight._src.measure.probe_bench import Bench
    from alight._src.measure.probes import Probe

    row: dict[str, Any] = {"work": _kind_of(group, implementation).work}
    with ignoring_failures(), FOREGROUND.measuring():  # a program that ended well ends well
        where = registry.device(device)
        backend = registry.backend_of(where)
        nbytes = sum([layout.nbytes for layout in group.graph.operand_layouts])
        if nbytes > _MEMORY_SHARE * backend.memory(where)[0]:
            return
        try:
            bench = Bench(backend, where, 2 * max(nbytes, 1))
            row["seconds"] = bench.time(Probe(implementation, group), 0.0).seconds
        except failures() as error:
            row["failed"] = f"{type(error).__name__}: {error}"
        logger().info(
            "tried %s on %s, which nobody had measured: %s",
            *(name, device, row.get("failed") or f"{row['seconds']:.3g} s"),
        )
        default_store().write(_KIND, _key(device), {"found": {name: row}}, _joined)


def _joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"found": {**old.get("found", {}), **new["found"]}}


def _key(device: str) -> str:
    where = registry.device(device)
    return digest({"device": device, "fingerprint": where.fingerprint}, _KIND)


@cache
def _found(device: str) -> dict[str, Any]:
    """Return what processes before this one tried: a process goes by what was known when it
    began."""
    with ignoring_failures():
        found = (default_store().read(_KIND, _key(device)) or {}).get("found")
        return found if isinstance(found, dict) else {}  # whoever wrote it
    return {}


register(Cache.PROFILES, _found.cache_clear)


def known(device: str, group: Group, implementation: str) -> bool:
    """Tell whether such a group was tried on a device, with whatever result."""
    return _kind_of(group, implementation).name in _found(device)


def probed(group: Group, device: str, implementation: str) -> Estimate | None:
    """Return what such a group took on a device where it was tried; None where it was not."""
    if device == HOST_DEVICE or not _found(device):
        return None
    kind = _kind_of(group, implementation)
    row = _found(device).get(kind.name, {})
    try:
        seconds = float(row["seconds"]) * kind.work / float(row["work"])
    except failures(ArithmeticError, KeyError, TypeError, ValueError):  # it failed, or is not ours
        return None
    if not 0.0 < seconds < math.inf:
        return None
    factor = math.exp(_OCTAVE_SPREAD)
    return Estimate(seconds, seconds / factor, seconds * factor, {"probed": seconds})
