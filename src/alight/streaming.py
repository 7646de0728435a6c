"""Groups that pass a device in chunks, since its memory does not hold them: while one is worked on,
the next one comes and the last one goes.

Each chunk has a slot of device memory; events keep a slot from being written before what was in it
has been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from alight import costs, kernels, residency
from alight._core import Data, Layout
from alight.backends.base import Command, Copy, Launch, Operand
from alight.backends.host import memory_at
from alight.device import Device
from alight.ir.group import Group
from alight.log import LOG
from alight.plan.block import SLOTS, Split, chunk_rows, split
from alight.registry import backend_of

__all__ = ["streamed"]

HOST = residency.HOST
_UPLOADS, _LAUNCHES, _DOWNLOADS = 1, 0, 2  # queues
# Of the memory that is free: the rest is for what a device needs beside (partial results, code).
_SHARE = 0.8

_Place = tuple[Data, int, Layout]


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
    given, made = parts.given * parts.rows, parts.made * parts.rows
    rows = chunk_rows(
        parts,
        room,
        costs.copy_seconds(HOST, where.space, given),
        costs.copy_seconds(where.space, HOST, made),
        costs.estimate(group, where.id, implementation),
        costs.copy_seconds(HOST, where.space, 1) + costs.copy_seconds(where.space, HOST, 1),
    )
    if not rows:
        return None
    return _Stream(where, backend, parts, implementation, rows, places).run()


class _Stream:
    """One group on its way through a device."""

    def __init__(
        self,
        where: Device,
        backend: Any,
        parts: Split,
        implementation: str,
        rows: int,
        places: Sequence[_Place],
    ) -> None:
        self.where = where
        self.backend = backend
        self.parts = parts
        self.implementation = implementation
        self.rows = rows
        self.places = places
        graph = parts.group.graph
        self.layouts = [graph.layout(number) for number in graph.outputs]
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
                with suppress(Exception):  # of a device that fails
                    self.backend.wait(event)
            raise

    def _run(self) -> list[Data]:
        where, backend, parts = self.where, self.backend, self.parts
        for number, (data, offset, layout) in enumerate(self.places):
            if not parts.cut[number]:
                target = self.whole[number] = backend.allocate(where, layout.nbytes)
                source = data.address + offset
                copy = self._copy(source, target, layout.nbytes)
                backend.wait(self._submit(_UPLOADS, [copy], ()))
        slots = [[self._room(size) for size in self._sizes()] for _ in range(SLOTS)]
        read: list[Any] = [None] * SLOTS  # the launch that read what was in a slot
        gone: list[list[Any]] = [[] for _ in range(SLOTS)]  # the downloads from it
        kernel = self._kernel(self.rows)
        for number, start in enumerate(range(0, parts.rows, self.rows)):
            count = min(self.rows, parts.rows - start)
            if count != self.rows:
                kernel = self._kernel(count)
            slot = number % SLOTS
            read[slot], gone[slot] = self._chunk(
                kernel, start, count, slots[slot], read[slot], gone[slot]
            )
        for events in gone:
            for event in events:
                backend.wait(event)
        return self.results

    def _chunk(
        self, kernel: Any, start: int, count: int, slot: list[Any], read: Any, gone: list[Any]
    ) -> tuple[Any, list[Any]]:
        """Send a chunk through a slot; return the event of its launch and those of its
        downloads."""
        parts, inputs, copies = self.parts, [], []
        part = parts.part(count).graph
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
            Operand(buffer, 0, part.layout(number))
            for buffer, number in zip(made, part.outputs, strict=True)
        ]
        launch = Launch(kernel, tuple(inputs), tuple(outputs))
        arrived = self._submit(_UPLOADS, copies, () if read is None else (read,))
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

    def _kernel(self, rows: int) -> Any:
        return kernels.kernel(self.where, self.parts.part(rows), self.implementation)
