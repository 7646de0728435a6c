"""Launches replayed as one CUDA graph, where that was faster.

A graph holds the addresses it was captured with. A program that drops its results before the next
call gets the same memory again, and then a graph that is there fits; one is captured when addresses
come a second time. Graphs and single launches take turns until the clocks have told which way is
faster: a call costs what the host takes to submit it, and then what the device takes.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from alight._src.base.failures import failures, ignoring_failures
from alight._src.base.formatting import readable_seconds
from alight.errors import PlanError

if TYPE_CHECKING:
    from alight._core import Launches
    from alight.backends.cuda.cuda_session import Session

__all__ = ["Capture", "Graphs"]

logger = logging.getLogger("alight")

# cudaStreamCaptureModeThreadLocal: other threads may go on allocating. None may wait for the
# stream meanwhile, or give it work (CUDA's programming guide, "Prohibited and Unhandled
# Operations"): `Session.finish` and `Session.coming` say who would.
_THREAD_LOCAL = 1
_KEPT = 8  # of one plan: as the programs that one function keeps
# Calls with ever new addresses after which no more graphs are looked for.
_PATIENCE = 64
_TURNS = 5  # of each way: the median of five
# A graph that takes the place of another must have been worth its making: that takes some 50 µs, a
# run is shorter by at least 1.4 (H200), and the first few graphs are no burden.
_WORTH_RUNS = 36


class Capture:
    """A capture on stream 0. Finalizers and signal handlers may run in its midst in the thread
    that captures: what they submit has to be done, so they end it. Launches without Python, which
    could not, are for others until then."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.thread = threading.get_ident()
        self.open = True
        self.graph: int | None = None
        found = [keeper.launches for keeper in [*session.keepers]]
        self._native = [one for one in found if one is not None and not one.busy]
        self._leave_to_others(True)
        try:
            session.runtime.streamBeginCapture(session.stream(0), _THREAD_LOCAL)
        except BaseException:
            self._leave_to_others(False)
            raise
        session.capture = self

    def _leave_to_others(self, busy: bool) -> None:
        for native in self._native:
            native.busy = busy

    def end(self) -> None:
        """End it, where nobody has."""
        if self.open:
            self.open = False
            self.session.capture = None
            try:
                self.graph = self.session.runtime.streamEndCapture(self.session.stream(0))
            finally:
                self._leave_to_others(False)


class Graphs:
    """The graphs of one plan's launches. ``launch`` submits them one by one, for arrays at the
    addresses that it is given; ``native`` launches those that are faster without Python."""

    def __init__(
        self,
        session: Session,
        launch: Callable[[tuple[int, ...]], None],
        native: Launches | None,
    ) -> None:
        self.session = session
        self.launch = launch
        self.native = native
        # Where plans are checked: raises where what is captured is wrong.
        self.prove: Callable[[tuple[int, ...]], None] | None = None
        self.graphs: OrderedDict[tuple[int, ...], int | None] = OrderedDict()
        self.misses = 0
        self.made = 0
        self._runs = 0  # of the native launches, when they missed last
        self.reason = ""  # why there are none
        self.faster: bool | None = None  # than one by one; None: not known yet
        self.taken: dict[bool, float] = {}  # milliseconds of a run as a graph, and one by one
        self._turns: dict[bool, list[tuple[int, int, float]]] = {True: [], False: []}

    def run(self, addresses: tuple[int, ...]) -> None:
        """Submit the launches for arrays at these addresses, one way or the other."""
        graph = None if self.reason else self._graph(addresses)
        if graph is None:
            self.launch(addresses)
        elif self.faster:
            self._replay(graph)
        else:
            self._timed(graph, addresses)

    def _graph(self, addresses: tuple[int, ...]) -> int | None:
        """Return the graph for these addresses, once they have come twice."""
        graphs = self.graphs
        if addresses not in graphs:
            graphs[addresses] = None  # seen once
            if len(graphs) > _KEPT:
                _, gone = graphs.popitem(last=False)
                self._drop(gone)
            if self.native is not None and self.native.runs > self._runs:
                self._runs, self.misses = self.native.runs, 0
            self.misses += 1
            if self.misses > _PATIENCE:
                self._give_up("its arrays lie elsewhere at every call")
            return None
        self.misses = 0
        found = graphs[addresses]
        if found is None:
            native = self.native
            if native is not None and self.made > _KEPT and native.runs < self.made * _WORTH_RUNS:
                self._give_up("its arrays lie elsewhere too often")
                return None
            session = self.session
            if session.waiting or not all([one.sent.is_set() for one in session.coming(0)]):
                return None  # threads wait for the stream, or give it what they bring
            try:
                found = self._captured(addresses)
            except PlanError:
                raise
            except failures() as error:
                self._give_up(f"{type(error).__name__}: {error}")
                return None
            if found is None:
                return None
            graphs[addresses] = found
            self.made += 1
            if self.faster and native is not None:
                native.keep(addresses, found)
        graphs.move_to_end(addresses)
        return found

    def _captured(self, addresses: tuple[int, ...]) -> int | None:
        """Return the launches as a graph, None where the capture was broken off."""
        runtime, capture = self.session.runtime, Capture(self.session)
        made: int | None = None
        try:
            self.launch(addresses)
            if self.prove is not None:
                self.prove(addresses)
            if capture.open:  # else some of the launches are not in it
                capture.end()
                assert capture.graph is not None
                made = runtime.graphInstantiate(capture.graph)
        finally:
            capture.end()
            if capture.graph is not None:
                runtime.graphDestroy(capture.graph)
        return made

    def _replay(self, graph: int) -> None:
        # Without CuPy where that can be: what is timed is then what calls will do.
        if self.native is None or self.native.launch(graph):
            self.session.runtime.graphLaunch(graph, self.session.stream(0))

    def _timed(self, graph: int, addresses: tuple[int, ...]) -> None:
        """Take turns, each between two events; decide when there are enough."""
        session = self.session
        which = len(self._turns[True]) <= len(self._turns[False])
        start = session.record(0)
        began = perf_counter()
        if which:
            self._replay(graph)
        else:
            self.launch(addresses)
        host = perf_counter() - began
        self._turns[which].append((start, session.record(0), host))
        if min(map(len, self._turns.values())) < _TURNS:
            return
        taken = self.taken
        for way, turns in self._turns.items():
            session.runtime.eventSynchronize(turns[-1][1])
            # the first run of each is no like the others
            taken[way] = median(
                session.runtime.eventElapsedTime(start, end) + 1e3 * host
                for start, end, host in turns[1:]
            )
            for start, end, _ in turns:
                session.spare(start)
                session.spare(end)
            turns.clear()
        self.faster = taken[True] < taken[False]
        if self.faster and self.native is not None:
            for addresses, found in self.graphs.items():
                if found is not None:
                    self.native.keep(addresses, found)
        if not self.faster:
            ours, theirs = (readable_seconds(taken[way] / 1e3) for way in (True, False))
            self._give_up(f"a graph took {ours}, single launches {theirs}")

    def _give_up(self, reason: str) -> None:
        self.reason, self.faster = reason, False
        logger.debug("%s: no CUDA graphs: %s", self.session.device, reason)
        for graph in self.graphs.values():
            self._drop(graph)
        self.graphs.clear()
        if self.native is not None:
            self.native.single = True

    def _drop(self, graph: int | None) -> None:
        if graph is not None and self.native is not None:
            self.native.drop(graph)
        if graph is not None and not self.session.lost:
            self.session.runtime.graphExecDestroy(graph)

    def __del__(self) -> None:
        with ignoring_failures():  # the driver may be gone before
            for graph in self.graphs.values():
                self._drop(graph)
