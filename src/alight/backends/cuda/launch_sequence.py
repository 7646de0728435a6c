"""The launches of one plan made ready once: a run puts down where its arrays lie and launches.

All arrays of a plan have a place in one table of addresses; the parameters of each launch point
into it, so that nothing is packed between two launches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Any

from alight._core import DeviceBuffer, Launches, Shelf
from alight._src.base.failures import failures
from alight._src.config.loading import config
from alight.backends.cuda.graph_replay import Graphs
from alight.errors import KernelError

if TYPE_CHECKING:
    from alight.backends.base import LaunchSequence
    from alight.backends.cuda.cuda_session import Session

# What a plan keeps from run to run: a thousand such programs hold no more than 1/100 of a card's
# memory.
_INNER_BYTES = 1 << 20
# Calls in which it shows whether a graph is quicker: those until there is one, some of each way.
_TRIED = 20


def _launched(native: Launches, graph: int, held: Sequence[Any], count: int) -> None:
    """Launch so often; ``held``: what has to live meanwhile."""
    for _ in range(count):
        if status := native.launch(graph):
            raise KernelError(
                f"the driver refused a launch that it had taken before ({status}). Fix: none, "
                "NumPy does it."
            )


class CudaSequence:
    """Generated kernels in a row. Called with the buffers of what is given, it returns those of
    what is wanted; the host goes on."""

    def __init__(self, session: Session, work: LaunchSequence) -> None:
        self.session = session
        launches, given, layouts, views, wanted, fixed = work
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
        steps: list[tuple[Any, tuple[int, ...], dict[int, int]]] = []
        for kernel, inputs, outputs in launches:
            own = [offsets.get(number, 0) for number in inputs]
            values = {i: fixed[inputs[i]] for i in kernel.scalars if inputs[i] in fixed}
            scratch, calls = kernel.program((*own, *(0,) * len(outputs)), tuple(values))
            used = [places[number] for number in (*inputs, *outputs)]
            for nbytes in scratch:
                used.append(first + len(sizes))
                sizes.append(nbytes)
            steps += [(call, tuple(used), values) for call in calls]
        self.placed = {n: offsets.get(n, 0) for _, inputs, _ in launches for n in inputs}
        self._offsets = [offset for _, offset in given]
        self._apart = any(self._offsets)
        self._sizes = sizes[: len(fresh)]
        self._shelves = [session.shelf(nbytes) for nbytes in self._sizes]
        self._inner_sizes = sizes[len(fresh) :]
        self._wanted = tuple([places[number] - first for number in wanted])
        self._each_once = len(fresh) == len(wanted)
        self._table: Any = (ctypes.c_longlong * (first + len(sizes)))()
        self._held: list[Any] = []
        self._launches = [self._parameters(*step) for step in steps]
        self.launches = self._ready()
        self._graphs = Graphs(session, self._launch, self.launches)
        # A run is going on. It holds the session's lock, so another one that begins then is of the
        # same thread: of a finalizer or signal handler.
        self._busy = False
        # What is no result stays from run to run: the queue's order keeps one out of the other's.
        self._keeps = sum(self._inner_sizes) <= _INNER_BYTES
        self._inner: list[DeviceBuffer] | None = None
        if config().check:
            from alight.backends.cuda.checked_launches import prove

            prove(self, work)
            self._graphs.prove = partial(prove, self, work)
        session.keepers.add(self)

    def _ready(self) -> Launches | None:
        """Return the launches for the native core, where results are apart and it has a driver."""
        session = self.session
        if session.direct is None or not self._each_once:
            return None
        return Launches(
            session.stock,
            session.direct,
            session.stream(0),
            (ctypes.addressof(self._table), len(self._table)),
            tuple(self._offsets),
            tuple(self._windows),
            tuple(self._shelves),
            tuple(self._sizes),
            tuple([(step[0], step[1], step[4], step[9]) for step in self._launches]),
            (self._table, self._held),
        )

    def _parameters(
        self, call: Any, used: Sequence[int], values: Mapping[int, int]
    ) -> tuple[Any, ...]:
        """Return the arguments of a launch, which has values of some operands instead of what is in
        the table."""
        numbers = (*call.numbers, *values.values())
        own = (ctypes.c_longlong * max(len(numbers), 1))(*numbers)
        table, start = ctypes.addressof(self._table), ctypes.addressof(own)
        count = len(call.numbers)
        addresses = [table + 8 * i for i in used] + [start + 8 * i for i in range(count)]
        for number, place in enumerate(values, count):
            addresses[place] = start + 8 * number
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
        native = self.launches
        if native is not None and not native.launch(0):
            return
        launch = self.session.driver.launchKernel  # CuPy's says what is wrong
        for arguments in self._launches:
            launch(*arguments)

    def _amid(self, addresses: Sequence[int]) -> None:
        """Launch in the midst of another run, and leave the table as it was."""
        before = self._table[:]
        try:
            self._launch(addresses)
        finally:
            self._table[:] = before

    def _memory(self, nbytes: int, shelf: Shelf) -> DeviceBuffer:
        """Return memory for what is made: what others have left, or new."""
        return shelf.take(nbytes) or self.session.buffer(nbytes, shelf)

    def _kept(self, amid: bool) -> list[DeviceBuffer]:
        """Return memory for what is no result; ``amid``: another run may need what is kept."""
        inner = None if amid else self._inner
        if inner is None:
            inner = [self.session.buffer(nbytes) for nbytes in self._inner_sizes]
            if self._keeps and not amid:
                self._inner = inner
                if self.launches is not None:
                    self.launches.inner = tuple(inner)
        return inner

    def let_go(self) -> None:
        """Give back the memory kept for later runs: others are short of it."""
        self._inner = None
        if self.launches is not None:
            self.launches.inner = None

    def repeated(self, buffers: Sequence[DeviceBuffer]) -> Callable[[int], None] | None:
        """Return what launches so often for arrays in these buffers, as calls do that the native
        core answers: in the way that is quicker. None where it does not answer any."""
        session, native, graphs = self.session, self.launches, self._graphs
        if native is None:
            return None
        made: list[DeviceBuffer] = []
        for _ in range(_TRIED if len(self._launches) > 1 else 1):  # a graph of one is a launch
            made.clear()  # what comes next gets the same memory
            made += self(buffers)
            if graphs.faster is not None:
                break
        with session.lock, session.errors():
            inner = self._kept(False)
            addresses = tuple(self._addresses(buffers, [*made, *inner]))
            self._table[:] = addresses
        graph = graphs.graphs.get(addresses) or 0
        return partial(_launched, native, graph, (*made, *inner, self))

    def _addresses(self, buffers: Sequence[DeviceBuffer], own: Sequence[Any]) -> list[int]:
        """Return what the table holds for what is given in these buffers, and made in its own."""
        addresses = [buffer.address for buffer in buffers]
        made = [buffer.address for buffer in own]
        if self._apart:
            addresses = list(map(add, addresses, self._offsets))
        if self._windows:
            count = len(addresses) + len(self._windows)
            for place, offset in self._windows:
                source = addresses[place] if place < count else made[place - count]
                addresses.append(source + offset)
        return addresses + made

    def __call__(self, buffers: Sequence[DeviceBuffer]) -> list[DeviceBuffer]:
        """Launch, and return the buffers of what is wanted."""
        session, native = self.session, self.launches
        with session.lock:
            before = session.enter()
            amid = self._busy or (native is not None and native.busy)
            self._busy = True
            if native is not None:
                native.busy = True
            try:
                made = list(map(self._memory, self._sizes, self._shelves))
                inner = self._kept(amid)
                addresses = self._addresses(buffers, [*made, *inner])
                if amid:
                    self._amid(addresses)
                elif self._graphs.reason:
                    self._launch(addresses)
                else:
                    self._graphs.run(tuple(addresses))
                # The next run's memory is got after this one was launched.
                for nbytes, shelf in zip(self._sizes, self._shelves, strict=True):
                    if not shelf.count and nbytes <= _INNER_BYTES:
                        session.prepare(shelf)
            except failures() as error:
                session.tell(error)
                raise
            finally:
                self._busy = amid
                if native is not None:
                    native.busy = amid
                session.leave(before)
        return made if self._each_once else [made[i] for i in self._wanted]
