"""Groups that pass a device in chunks, since its memory does not hold them or because it is sooner:
while one is worked on, the next one comes and the last one goes.

Each chunk has a slot of device memory; events keep a slot from being written before what was in it
has been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alight._core import Data, Layout
from alight._src.adapt import planner_facts
from alight._src.base.failures import ignoring_failures
from alight._src.ir.group import Group
from alight._src.log.decisions import LOG
from alight._src.plan.block import SLOTS, Split, chunk_rows, passing_rows, split
from alight._src.plan.plan import Estimate
from alight._src.run import kernels, residency
from alight.backends.base import Command, Copy, Launch, Operand
from alight.backends.host import memory_at
from alight.backends.registry import backend_of
from alight.device import Device

__all__ = ["Passage", "streamed"]

HOST = residency.HOST
_UPLOADS, _LAUNCHES, _DOWNLOADS = 1, 0, 2  # queues
# Of the memory that is free: the rest is for what a device needs beside (partial results, code).
_SHARE = 0.8

_Place = tuple[Data, int, Layout]


# Until a link was measured, what one of its copies takes and how many bytes a second it passes (an
# H200's, PCIe 5): it decides into how many chunks work goes that is on its way there already.
_LINK_SECONDS, _LINK_BYTES = 8e-6, 53e9
# What the host takes to send a chunk through its slot, and to get ready for the first one (the
# same machine's, Python 3.12: 0.13 and 0.3 ms).
_TURN_SECONDS = 130e-6
_BEGIN_SECONDS = 300e-6


def streamed(
    where: Device, group: Group, implementation: str, places: Sequence[_Place]
) -> list[Data] | None:
    """Return the results of a group on the host, computed on a device chunk by chunk; None where
    it does not fall apart, or not even a row of it fits.

    Raises what the backend raises.
    """
    parts = split(group)
    if parts is None or implementation != "generated":
        return None
    backend = backend_of(where)
    for data, _, _ in places:
        residency.bring_to_host(data)
        if data.remote is not None:
            data.remote.pop(where.space, None)  # its room is needed
    room = int(_SHARE * backend.memory(where)[0])
    rows = chunk_rows(parts, room, *_terms(where, parts))
    if not rows:
        return None
    return _Stream(where, backend, Chunks(where, parts), rows, places).run()


def _terms(where: Device, parts: Split) -> tuple[float, float, Estimate | None, float]:
    """Return the seconds in which all of a group comes and goes, the estimate of its kernel, and
    the seconds that the copies of a chunk take beside."""
    given, made = parts.given * parts.rows, parts.made * parts.rows
    return (
        planner_facts.copy_seconds(HOST, where.space, given),
        planner_facts.copy_seconds(where.space, HOST, made),
        planner_facts.estimate(parts.group, where.id, "generated"),
        planner_facts.copy_seconds(HOST, where.space, 1)
        + planner_facts.copy_seconds(where.space, HOST, 1),
    )


class Chunks:
    """A group by rows, with the kernels that were needed of it."""

    def __init__(self, where: Device, parts: Split) -> None:
        self.where = where
        self.parts = parts
        self._made: dict[int, tuple[Group, Any]] = {}

    def of(self, rows: int) -> tuple[Group, Any]:
        """Return the group of so many rows, and its kernel."""
        found = self._made.get(rows)
        if found is None:
            part = self.parts.part(rows)
            found = part, kernels.kernel(self.where, part, "generated")
            self._made[rows] = found
        return found


class Passage:
    """A step whose operands and results only pass its device, with the chunks in which they do."""

    def __init__(self, where: Device, group: Group) -> None:
        self.where = where
        self.backend = backend_of(where)
        self.rows = 0
        parts = split(group)
        # one copy comes while another goes
        if parts is None or where.limits.get("engines", 0) < 2:
            return
        up, down, kernel, each = _terms(where, parts)
        if not (up and down):
            up = _LINK_SECONDS + parts.given * parts.rows / _LINK_BYTES
            down = _LINK_SECONDS + parts.made * parts.rows / _LINK_BYTES
            each = 2 * _LINK_SECONDS
        room = int(_SHARE * self.backend.memory(where)[0])
        self.rows = passing_rows(
            *(parts, room, up, down, kernel, each, _TURN_SECONDS, _BEGIN_SECONDS)
        )
        self.chunks = Chunks(where, parts)

    def run(self, places: Sequence[_Place]) -> list[Data] | None:
        """Return the results on the host, or None where a copy of an operand is worth keeping: the
        program may use it again, while what others can write to is copied for every use."""
        if not self.rows:
            return None
        for (data, _, _), cut in zip(places, self.chunks.parts.cut, strict=True):
            if cut and not (data.array is not None and (data.foreign or data.exported)):
                return None
        return _Stream(self.where, self.backend, self.chunks, self.rows, places).run()


class _Stream:
    """One group on its way through a device."""

    def __init__(
        self,
        where: Device,
        backend: Any,
        chunks: Chunks,
        rows: int,
        places: Sequence[_Place],
    ) -> None:
        self.where = where
        self.backend = backend
        self.chunks = chunks
        self.parts = chunks.parts
        self.rows = rows
        self.places = places
        self.layouts = self.parts.group.graph.output_layouts
        self.results = [residency.landing(where, layout) for layout in self.layouts]
        self.whole: dict[int, Any] = {}
        self.last: dict[int, Any] = {}  # the event of each queue's last work

    def run(self) -> list[Data]:
        """Return the results. After an error nothing is under way any more: what is being read and
        written is given back."""
        try:
            return self._run()
        except BaseException:
            for event in self.last.values():
                with ignoring_failures():  # of a device that fails
                    self.backend.wait(event)
            raise

    def _run(self) -> list[Data]:
        where, backend, parts = self.where, self.backend, self.parts
        # What others have left serves this: queue 0 may have yet to read it.
        free = self._submit(_LAUNCHES, (), ())
        for number, (data, offset, layout) in enumerate(self.places):
            if not parts.cut[number]:
                target = self.whole[number] = backend.allocate(where, layout.nbytes)
                source = data.address + offset
                copy = self._copy(source, target, layout.nbytes)
                backend.wait(self._submit(_UPLOADS, [copy], (free,)))
        slots = [[self._room(size) for size in self._sizes()] for _ in range(SLOTS)]
        read: list[Any] = [free] * SLOTS  # the launch that read what was in a slot
        gone: list[list[Any]] = [[] for _ in range(SLOTS)]  # the downloads from it
        for number, start in enumerate(range(0, parts.rows, self.rows)):
            count = min(self.rows, parts.rows - start)
            slot = number % SLOTS
            read[slot], gone[slot] = self._chunk(start, count, slots[slot], read[slot], gone[slot])
        for events in gone:
            for event in events:
                backend.wait(event)
        return self.results

    def _chunk(
        self, start: int, count: int, slot: list[Any], read: Any, gone: list[Any]
    ) -> tuple[Any, list[Any]]:
        """Send a chunk through a slot; return the event of its launch and those of its
        downloads."""
        parts, inputs, copies = self.parts, [], []
        group, kernel = self.chunks.of(count)
        part = group.graph
        for number, ((data, offset, layout), cut) in enumerate(
            zip(self.places, parts.cut, strict=True)
        ):
            buffer = self.whole.get(number)
            if cut:
                buffer, row = slot[number], layout.nbytes // parts.rows
                source = data.address + offset + start * row
                copies.append(self._copy(source, buffer, count * row))
            inputs.append(Operand(buffer, 0, part.inputs[number]))
        made = slot[len(self.places) :]
        outputs = [
            Operand(buffer, 0, part.layouts[number])
            for buffer, number in zip(made, part.outputs, strict=True)
        ]
        launch = Launch(kernel, tuple(inputs), tuple(outputs))
        arrived = self._submit(_UPLOADS, copies, (read,))
        ran = self._submit(_LAUNCHES, [launch], [arrived, *gone])
        downloads = []
        for buffer, result, layout in zip(made, self.results, self.layouts, strict=True):
            row = layout.nbytes // parts.rows
            target = memory_at(result.address + start * row, count * row)
            copy = Copy(buffer, target, count * row, self.where.space, HOST)
            downloads.append(self._submit(_DOWNLOADS, [copy], [ran]))
        LOG.count(launches=1, uploads=len(copies), downloads=len(downloads))
        return ran, downloads

    def _copy(self, source: int, target: Any, nbytes: int) -> Copy:
        return Copy(memory_at(source, nbytes), target, nbytes, HOST, self.where.space)

    def _submit(self, queue: int, commands: Sequence[Command], wait: Sequence[Any]) -> Any:
        event = self.last[queue] = self.backend.submit(self.where, queue, commands, wait)
        return event

    def _sizes(self) -> list[int]:
        """Return the bytes that a slot has for each input and output; 0: it stays whole."""
        parts = self.parts
        sizes = [
            layout.nbytes // parts.rows * self.rows if cut else 0
            for (_, _, layout), cut in zip(self.places, parts.cut, strict=True)
        ]
        return sizes + [layout.nbytes // parts.rows * self.rows for layout in self.layouts]

    def _room(self, nbytes: int) -> Any:
        return self.backend.allocate(self.where, nbytes) if nbytes else None
