"""Launches that nobody waits for: what they took, told once it is known, and what they made, should
they have failed.

A device's queue keeps its order, so the host goes on after every launch and waits at a request.
What a launch needs to be told of, or done again in NumPy, is kept until then; it keeps no array
alive.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from alight._core import Data, Layout, fresh_data
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.fp_warnings.emit import computed
from alight._src.ir.graph import Graph
from alight._src.log.decisions import LOG, Site
from alight._src.plan.plan import Decision
from alight._src.run import residency
from alight.backends.registry import backend_of
from alight.device import Device

__all__ = ["LaunchRecord", "Started", "launched", "recover", "running", "settle", "started"]

# Launches told of at once: each is 0.5 kB, and asking a card for its time is better done when a
# program has come to rest than after each launch.
_MOST = 256

_Ref = weakref.ref[Data]
NdArray = np.ndarray[Any, Any]


class LaunchRecord(NamedTuple):
    """What the log is told of one launch: as ``Log.launched`` takes it."""

    decision: Decision
    site: Site
    where: tuple[str, str]
    eligible: int
    first: bool


class Started(NamedTuple):
    """Work on a device's queue 0: a graph in one launch or several. ``start`` and ``end`` are
    events around it (None: nobody times this one); ``sources`` and ``buffers`` are what it reads,
    each with its bytes before the first element and its layout in ``places``."""

    graph: Graph
    launches: tuple[LaunchRecord, ...]
    start: Any
    end: Any
    sources: tuple[_Ref, ...]
    buffers: tuple[weakref.ref[Any], ...]
    places: tuple[tuple[int, Layout], ...]
    outputs: tuple[_Ref, ...]


_running: dict[str, deque[Started]] = {}  # not yet told of
_over: dict[str, deque[Started]] = {}  # told of; what they made may still be on the device alone
_devices: dict[str, Device] = {}


def running(where: Device) -> deque[Started]:
    """Return a device's launches that are not told of; ``started`` sees to it that they are."""
    queue = _running.get(where.id)
    if queue is None:
        queue = _running[where.id] = deque()
        _over[where.id] = deque(maxlen=_MOST)
        _devices[where.id] = where
    return queue


def started(where: Device, launch: Started) -> None:
    """Keep a submitted launch until it is told of; the caller holds ``residency.LOCK``."""
    queue = running(where)
    queue.append(launch)
    if len(queue) > _MOST:
        _tell(where, _MOST // 2)


def launched(
    where: Device,
    graph: Graph,
    record: LaunchRecord,
    events: tuple[Any, Any],
    places: Sequence[residency.Place],
    results: Sequence[Data],
) -> None:
    """Keep a step's launch, submitted between two events, until it is told of."""
    space = where.space
    sources = tuple([weakref.ref(data) for data, _, _ in places])
    buffers = tuple([weakref.ref((data.remote or {}).get(space, data)) for data, _, _ in places])
    where_from = tuple([(offset, layout) for _, offset, layout in places])
    refs = tuple([weakref.ref(data) for data in results])
    started(where, Started(graph, (record,), *events, sources, buffers, where_from, refs))


def settle() -> None:
    """Wait for every launch and tell the log of it."""
    with residency.LOCK:
        for name, queue in _running.items():
            _tell(_devices[name], len(queue))


def _tell(where: Device, count: int) -> None:
    """Tell the log of the oldest launches of a device: of those of one plan that nobody timed, at
    once."""
    queue, over, backend = _running[where.id], _over[where.id], backend_of(where)
    alike: dict[int, tuple[tuple[LaunchRecord, ...], float | None, int]] = {}
    for number in range(min(count, len(queue))):
        launch = queue.popleft()
        over.append(launch)
        if launch.end is None:
            _, _, before = alike.get(id(launch.launches), (None, None, 0))
            alike[id(launch.launches)] = launch.launches, None, before + 1
            continue
        seconds = None
        try:
            seconds = backend.seconds(launch.start, launch.end)
        except failures() as error:  # the log must not fail the program: a request will tell
            LOG.fallback(f"timing on {where.id}", error)
        if len(launch.launches) > 1:
            seconds = None  # they belong to all of them together
        alike[-1 - number] = launch.launches, seconds, 1
    for launches, seconds, times in alike.values():
        for decision, site, place, eligible, first in launches:
            LOG.launched(decision, site, seconds, place, eligible, first, times)


def recover(data: Data, where: Device, error: BaseException) -> bool:
    """Compute in NumPy what a device that failed has made of some bytes, from what is still held;
    tell whether that could be done."""
    launches = *_over.get(where.id, ()), *_running.get(where.id, ())
    made_by = {id(ref): launch for launch in launches for ref in launch.outputs}
    wanted = weakref.ref(data)
    found = _again(wanted, made_by)
    if found is None:
        return False
    data.array, data.owner, data.remote = found.array, found.owner, None
    for told in made_by[id(wanted)].launches:
        what = f"{told.decision.operation} on {where.id}:{told.where[0]}"
        LOG.fallback(what, error, told.site)
    return True


def _again(wanted: _Ref, made_by: dict[int, Started]) -> Data | None:
    """Return what launches made, computed again; None where something they read is held nowhere."""
    known: dict[int, Data] = {}
    stack = [wanted]  # chains of launches are long
    while stack:
        launch = made_by.get(id(stack[-1]))
        if launch is None:
            return None
        missing = []
        operands: list[NdArray] = []
        inputs = zip(launch.sources, launch.buffers, launch.places, strict=True)
        for source, buffer, (offset, layout) in inputs:
            data = known.get(id(source))
            if data is None and id(source) in made_by:
                missing.append(source)
                continue
            if data is None:
                data = source()
                # Whoever writes on the host drops the copies first: while this one stands, the
                # host's bytes are those that were read.
                if data is None or data.array is None or data.remote is None:
                    return None
                if not any(copy is buffer() for copy in data.remote.values()):
                    return None
            start = offset if layout.size else 0
            operands.append(np.ndarray(layout.shape, layout.dtype, data.raw, start, layout.strides))
        if missing:
            stack += missing
            continue
        for ref, result in zip(launch.outputs, _computed(launch.graph, operands), strict=True):
            known[id(ref)] = result
        stack.pop()
    return known[id(wanted)]


def _computed(graph: Graph, operands: Sequence[NdArray]) -> list[Data]:
    results = computed(graph, operands)
    made = []
    for number in graph.outputs:
        data = fresh_data(graph.layouts[number])
        assert data.array is not None
        data.array[...] = results[number]
        made.append(data)
    return made


residency.rescues.append(recover)
LOG.collectors.append(settle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)
