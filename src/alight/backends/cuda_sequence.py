"""The launches of one plan made ready once: a run puts down where its arrays lie and launches.

All arrays of a plan have a place in one table of addresses; the parameters of each launch point
into it, so that nothing is packed between two launches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING, Any

from alight.backends.cuda_graph import Graphs
from alight.backends.cuda_session import CudaBuffer

if TYPE_CHECKING:
    from alight._core import Layout
    from alight.backends.cuda_session import Session

# The next run's memory is got after this one was launched, where that is no loss: the pool hands
# out pieces of half a kB, and a thousand such programs hold no more than 1/100 of a card's memory.
_AHEAD_BYTES = 1 << 20

Launches = Sequence[tuple[Any, Sequence[int], Sequence[int]]]


class CudaSequence:
    """Generated kernels in a row. Called with the buffers of what is given, it returns those of
    what is wanted; the host goes on."""

    def __init__(
        self,
        session: Session,
        launches: Launches,
        given: Sequence[tuple[Layout, int]],
        layouts: Mapping[int, Layout],
        views: Mapping[int, tuple[int, int]],
        wanted: Sequence[int],
    ) -> None:
        self.session = session
        # Places in the table: what is given, windows, what is wanted, what else is made, partial
        # results.
        first = len(given) + len(views)
        places = {number: number for number in range(len(given))}
        fresh = dict.fromkeys(wanted)  # in their order, each once
        sizes: list[int] = []
        for number in (*fresh, *(n for n in layouts if n not in fresh)):
            places[number] = first + len(sizes)
            sizes.append(layouts[number].nbytes)
        # Bytes from the start of a piece of the pool's memory, which is aligned.
        offsets = {number: offset for number, (_, offset) in enumerate(given)}
        self._windows = []  # what they look at, and the bytes before them
        for place, (number, (source, offset)) in enumerate(views.items(), len(given)):
            places[number] = place
            offsets[number] = offsets.get(source, 0) + offset
            self._windows.append((places[source], offset))
        steps: list[tuple[Any, tuple[int, ...]]] = []
        for kernel, inputs, outputs in launches:
            own = [offsets.get(number, 0) for number in inputs]
            scratch, calls = kernel.program((*own, *(0,) * len(outputs)))
            used = [places[number] for number in (*inputs, *outputs)]
            for nbytes in scratch:
                used.append(first + len(sizes))
                sizes.append(nbytes)
            steps += [(call, tuple(used)) for call in calls]
        self._offsets = [offset for _, offset in given]
        self._apart = any(self._offsets)
        self._sizes = sizes[: len(fresh)]
        self._inner_sizes = sizes[len(fresh) :]
        self._wanted = tuple([places[number] - first for number in wanted])
        self._each_once = len(fresh) == len(wanted)
        self._table: Any = (ctypes.c_longlong * (first + len(sizes)))()
        self._held: list[Any] = []
        self._launches = [self._parameters(*step) for step in steps]
        self._ahead: list[CudaBuffer] | None = None
        self._graphs = Graphs(session, self._launch)
        self._small = sum(self._sizes) <= _AHEAD_BYTES
        # What is no result stays from run to run: the queue's order keeps one out of the other's.
        self._keeps = sum(self._inner_sizes) <= _AHEAD_BYTES
        self._inner: list[CudaBuffer] | None = None
        session.keepers.add(self)

    def _parameters(self, call: Any, used: Sequence[int]) -> tuple[Any, ...]:
        """Return the arguments of a launch."""
        numbers = call.numbers
        own = (ctypes.c_longlong * max(len(numbers), 1))(*numbers)
        table, start = ctypes.addressof(self._table), ctypes.addressof(own)
        addresses = [table + 8 * i for i in used] + [start + 8 * i for i in range(len(numbers))]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        self._held += [own, pointers]
        stream = self.session.stream(0)
        return (
            *(call.function, call.blocks, 1, 1, call.threads, 1, 1, 0, stream),
            *(ctypes.addressof(pointers), 0),
        )

    def _launch(self, addresses: Sequence[int]) -> None:
        """Launch one by one for arrays at these addresses."""
        self._table[:] = addresses
        launch = self.session.driver.launchKernel
        for arguments in self._launches:
            launch(*arguments)

    def _memory(self, sizes: Sequence[int]) -> list[CudaBuffer]:
        """Return memory for what is made."""
        return [self.session.buffer(nbytes) for nbytes in sizes]

    def let_go(self) -> None:
        """Give back the memory kept for later runs: others are short of it."""
        self._ahead = self._inner = None

    def __call__(self, buffers: Sequence[CudaBuffer]) -> list[CudaBuffer]:
        """Launch, and return the buffers of what is wanted."""
        session = self.session
        with session.lock:
            try:
                session.enter()
                made, self._ahead = self._ahead or self._memory(self._sizes), None
                inner = self._inner
                if inner is None:
                    inner = self._memory(self._inner_sizes)
                    if self._keeps:
                        self._inner = inner
                addresses = [buffer.address for buffer in buffers]
                own = [buffer.address for buffer in made]
                if inner:
                    own += [buffer.address for buffer in inner]
                if self._apart:
                    addresses = list(map(add, addresses, self._offsets))
                if self._windows:
                    count = len(addresses) + len(self._windows)
                    for place, offset in self._windows:
                        source = addresses[place] if place < count else own[place - count]
                        addresses.append(source + offset)
                addresses += own
                if self._graphs.reason:
                    self._launch(addresses)
                else:
                    self._graphs.run(tuple(addresses))
                if self._small:
                    self._ahead = self._memory(self._sizes)
            except Exception as error:
                session.tell(error)
                raise
        return made if self._each_once else [made[i] for i in self._wanted]
