"""A row: one program at one size in one dtype, through every peer, in turns.

Turns go round, each beginning with another peer and every other one backwards, until the row's
time is used: what disturbs the machine for a while then disturbs all, nobody always follows the
same one, and ratios of medians hold where single times do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from alight._src.bench.bandwidth import Bandwidth
from alight._src.bench.crew import Crew
from alight._src.bench.programs import PROGRAMS, Program
from alight._src.measure.timing import summary
from alight.backends.machine import host_memory

__all__ = ["Case", "Cell", "Row", "run_row", "time_beside"]

# Medians of 5 interleaved runs resolve 15 %, minima of 15 resolve 2 %; three samples a turn.
LEAST_ROUNDS, MOST_ROUNDS, SAMPLES = 5, 25, 3
_ROUNDS_BESIDE = 15
# After so many turns, who takes this many times the best cannot be the best peer: it rests.
_TRIED, _BEHIND = 3, 3.0
_WARM_SECONDS = 0.1
# Turns of a small row take some ms. Compilers may have used its time up before they began, and five
# turns of which the processor was slow in three say nothing: they have so long in any case.
_TURNS_SECONDS = 0.4
_MEMORY_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Case:
    """What one row is about."""

    program: str
    n: int
    dtype: str

    @property
    def of(self) -> Program:
        """Return the program."""
        return PROGRAMS[self.program]

    def memory_bytes(self, peers: int) -> float:
        """Return the memory the row needs: each peer has inputs of its own, one at a time runs."""
        array = float(self.n * np.dtype(self.dtype).itemsize)
        return array * (4 * peers + self.of.live)


Turns = Sequence[Mapping[str, Any]]  # what a worker answered, of each turn of one process


@dataclass(slots=True)
class Cell:
    """One peer in a row: seconds of one warm call (median, 20, 10 and 90 % quantiles), or why not.

    ``error_eps`` is how far its result is from NumPy's, by the measure of `Program.within_eps`.
    ``cold_seconds`` is the first call of this program on arrays of this shape and dtype in the
    peer's process, compiling included. ``settled_calls``: after how many calls, the first one
    included, all went the way they go for good (None: not within the time given to it);
    ``settling_seconds``: what those took beyond a warm call each. ``unsteady``: in which share of
    the turns that count its processor was slower than it can be, by additions timed before.
    ``beside``: its turns were among those of other rows that use memory as much. ``processes``: in
    how many it was timed, one after the other; the seconds are the median of their medians.
    """

    peer: str
    reason: str | None = None
    cold_seconds: float | None = None
    settled_calls: int | None = None
    settling_seconds: float | None = None
    seconds: float | None = None
    quantile20: float | None = None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    unsteady: float | None = None
    error_eps: float = 0.0
    tolerance_eps: float | None = None
    beside: bool = False
    processes: int = 1

    @property
    def counts(self) -> bool:
        """Tell whether it was timed and gave the right result."""
        return self.reason is None and self.seconds is not None


@dataclass(slots=True)
class Row:
    """A case, its workload, what each peer took, and what is wrong with it."""

    case: Case
    bytes: int = 0
    flops: float = 0.0
    special: float = 0.0
    cells: dict[str, Cell] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    skipped: str | None = None
    spent_seconds: float = 0.0
    oracle: list[float] | None = None
    turns: dict[str, list[Turns]] = field(default_factory=dict)  # by peer, of each of its processes
    # seconds of alight and of NumPy in turns in one process, of each process in which they were
    paired: list[tuple[float, float]] = field(default_factory=list)

    def seconds(self, peer: str) -> float | None:
        """Return the median seconds of a peer whose result is right."""
        cell = self.cells.get(peer)
        return cell.seconds if cell is not None and cell.counts else None

    def best_peer(self) -> tuple[str, float] | None:
        """Return the quickest of the others, and its seconds."""
        found = [(s, p) for p in self.cells if p != "alight" and (s := self.seconds(p)) is not None]
        return None if not found else (min(found)[1], min(found)[0])

    @property
    def unsteady(self) -> float:
        """Return in which share of their turns the processor of alight, of NumPy or of the best
        peer was slow, whoever's that was most often."""
        best = self.best_peer()
        named = {"alight", "numpy", *(best[:1] if best else ())}
        return max([c.unsteady or 0.0 for p, c in self.cells.items() if p in named], default=0.0)

    def timed_again(self, other: Row) -> bool:
        """Take the times of another run of the same case, if its processors were steadier."""
        if other.skipped is not None or other.faults or other.unsteady >= self.unsteady:
            return False
        for peer, cell in other.cells.items():
            if cell.counts and peer in self.cells and self.cells[peer].counts:
                for name in _TIMES:
                    setattr(self.cells[peer], name, getattr(cell, name))
                self.turns[peer] = other.turns.get(peer, [])
        return True

    def joined_by(self, other: Row) -> bool:
        """Count what the same case took in other processes, too, if nothing was wrong there and
        calls had settled: a process that has just begun has less time for that."""
        if other.skipped is not None or other.faults:
            return False
        ours, theirs = self.cells.get("alight"), other.cells.get("alight")  # all others are at once
        known = ours is not None and ours.settled_calls is not None
        if known and (theirs is None or theirs.settled_calls is None):
            return False
        self.paired += other.paired
        for peer, cell in other.cells.items():
            if cell.counts and peer in self.cells and self.cells[peer].counts:
                self.turns[peer] = [*self.turns[peer], *other.turns[peer]]
                _fill(self.cells[peer], *self.turns[peer])
        return True

    def pairs(self) -> list[tuple[float, float]]:
        """Return seconds of alight and of NumPy: in turns in one process, where they were timed so,
        else each in its own; none where one of them did not count."""
        ours, numpy = self.seconds("alight"), self.seconds("numpy")
        if ours is None or numpy is None:
            return []
        return self.paired or [(ours, numpy)]

    def ratio(self, to: str | None = None) -> float | None:
        """Return alight's seconds over those of a peer, or of the best one; over NumPy's as the
        median of the processes in which both had turns, where there are such."""
        best = self.best_peer()
        named = to or (None if best is None else best[0])
        if named == "numpy":
            found = [ours / numpy for ours, numpy in self.pairs()]
            return median(found) if found else None
        ours, theirs = self.seconds("alight"), None if named is None else self.seconds(named)
        return None if ours is None or theirs is None else ours / theirs


_TIMES = ("seconds", "quantile20", "low", "high", "samples", "unsteady")  # of warm calls


def run_row(
    case: Case,
    crew: Crew,
    share_seconds: float,
    bandwidth: Bandwidth | None,
    only: Sequence[str] | None = None,
    paired: bool = False,
) -> Row:
    """Return the row of a case, measured in about so many seconds where that is enough for it;
    ``paired``: only by alight and NumPy in turns in alight's process."""
    began = perf_counter()
    row = Row(case)
    row.flops, row.special = case.of.flops(case.n), case.of.special * case.n
    peers = [peer for peer in crew.present if only is None or peer in only]
    needed, free = case.memory_bytes(len(peers)), host_memory()[0]
    if needed > _MEMORY_SHARE * free:
        row.skipped = f"needs {needed / 2**30:.1f} GiB of {free / 2**30:.1f} free"
        return row
    try:
        expected: dict[str, float] = {}
        for peer in peers:
            row.cells[peer] = _opened(row, peer, crew)
            timed = crew.about[peer].get("timed", True) and not (paired and peer == "numpy")
            if row.cells[peer].reason is None and timed:
                answer = crew.ask(peer, "warm", least_seconds=_WARM_SECONDS)
                expected[peer] = answer.get("seconds", 0.0)
                row.cells[peer].settled_calls = answer.get("settled_calls")
                row.cells[peer].settling_seconds = answer.get("settling_seconds")
        left = max(share_seconds - (perf_counter() - began), _TURNS_SECONDS)
        taken = {}
        if not paired:
            found = _turns([(peer, "take") for peer in expected], expected, crew, left)
            taken = dict(zip(expected, found, strict=True))
        elif "alight" in expected:
            # What calls a library both ways leaves the same threads spinning for the other.
            pair = _pair_at_once if case.of.family == "library" else _pair
            row.paired = pair(crew, expected["alight"], left)
        for peer, turns in taken.items():
            _fill(row.cells[peer], turns)
            row.turns[peer] = [turns]
        if "alight" in taken:
            row.explained = crew.ask("alight", "explain").get("lines", [])
    finally:
        for peer in peers:
            crew.ask(peer, "close")
        crew.forget_results()
    _check(row, bandwidth)
    row.spent_seconds = perf_counter() - began
    return row


def time_beside(cells: Sequence[tuple[Case, Cell]], crew: Crew) -> None:
    """Time cells of several rows in turns with one another, instead of each with its own row's."""
    opened: list[tuple[Cell, int]] = []
    try:
        for case, cell in cells:
            answer = crew.open(cell.peer, case.program, case.n, case.dtype)
            if "error" not in answer:
                crew.ask(cell.peer, "warm", least_seconds=_WARM_SECONDS)
                answer = crew.ask(cell.peer, "keep")
            if "kept" in answer:
                opened.append((cell, answer["kept"]))
        turns: list[list[dict[str, Any]]] = [[] for _ in opened]
        for round_ in range(_ROUNDS_BESIDE):
            for i in range(len(opened)):
                place = (i + round_) % len(opened)
                cell, kept = opened[place]
                answer = crew.ask(cell.peer, "turn", kept=kept, samples=SAMPLES)
                turns[place] += [answer] if answer.get("samples") else []
    finally:
        for peer in {cell.peer for _, cell in cells}:
            crew.ask(peer, "drop")
        crew.forget_results()
    for (cell, _), taken in zip(opened, turns, strict=True):
        if len(taken) >= LEAST_ROUNDS:
            _fill(cell, taken)
            cell.beside = True


def _allowed_eps(row: Row, peer: str) -> float:
    """Return how many epsilons a peer's result may be off. What alight leaves to NumPy has NumPy's
    bits, and so what NumPy is off: 353 eps in an inner product of 2^24 float32 by OpenBLAS."""
    allowed = row.case.of.tolerance_eps(row.case.n, peer)
    numpy = row.cells.get("numpy")
    return allowed if peer != "alight" or numpy is None else max(allowed, numpy.error_eps)


def _opened(row: Row, peer: str, crew: Crew) -> Cell:
    case = row.case
    answer = crew.open(peer, case.program, case.n, case.dtype)
    cell = Cell(peer)
    if "error" in answer:
        cell.reason = answer["error"]
        return cell
    cell.cold_seconds = answer["cold_seconds"]
    cell.error_eps = answer.get("error_eps", 0.0)
    if answer["zero_inputs"]:
        row.faults.append(f"{peer}: input {answer['zero_inputs']} is all zeros")
    if not answer["finite"]:
        cell.reason = "its result is not finite"
    if answer.get("apart"):
        cell.reason = answer["apart"]
    cell.tolerance_eps = _allowed_eps(row, peer)
    if cell.reason is None and not cell.error_eps <= cell.tolerance_eps:
        cell.reason = f"off by {cell.error_eps:.0f} eps, {cell.tolerance_eps:.0f} are allowed"
    if (oracle := answer.get("oracle")) is not None:
        got, want, within = row.oracle = oracle
        if not abs(got - want) <= within:
            cell.reason = f"{got:.7g}, where {want:.7g} ± {within:.1g} is known to be right"
    if peer == "numpy":
        row.bytes = answer["bytes"]
        # Whole rows, images and squares: up to a tenth may be missing where n is small.
        if not 0.9 * case.n <= case.of.elements(answer["elements"]) <= case.n:
            row.faults.append(f"inputs have {answer['elements']} elements for n = {case.n}")
    if cell.reason is not None and peer in ("alight", "numpy"):
        row.faults.append(f"{peer}: {cell.reason}")
    return cell


def _turns(
    whose: Sequence[tuple[str, str]], expected: Mapping[str, float], crew: Crew, seconds: float
) -> list[list[dict[str, Any]]]:
    """Return the turns of each, in rounds until so many seconds are used: which peer is asked, and
    what it is asked to do. Two of one peer are ways of it: alight's and NumPy's in one process."""
    taken: dict[tuple[str, str], list[dict[str, Any]]] = {one: [] for one in whose}
    began, rounds = perf_counter(), 0
    running = [*whose]
    while running and rounds < MOST_ROUNDS:
        spent = perf_counter() - began
        # Out of time from the start (a large row): three turns say which is quicker, no more.
        late = rounds >= _TRIED and spent > 3 * max(seconds, 1.0)
        if late or (rounds >= LEAST_ROUNDS and spent > seconds):
            break
        first = rounds % len(running)
        then = running[first + 1 :] + running[:first]
        for peer, do in (running[first], *(then[::-1] if rounds % 2 else then)):
            answer = crew.ask(peer, do, samples=1 if expected[peer] > 0.05 else SAMPLES)
            taken[peer, do] += [answer] if answer.get("samples") else []
        rounds += 1
        if rounds == _TRIED:
            middle = {one: median(_samples(taken[one])) for one in running if taken[one]}
            best = min(middle.values(), default=0.0)
            running = [o for o, s in middle.items() if o[0] == "alight" or s <= _BEHIND * best]
    return [*taken.values()]


def _pair_at_once(crew: Crew, expected: float, seconds: float) -> list[tuple[float, float]]:
    """Return the median seconds of alight and of NumPy, call by call in turns."""
    ours: list[float] = []
    numpy: list[float] = []
    began = perf_counter()
    while not ours or perf_counter() - began < seconds:
        answer = crew.ask("alight", "pair", rounds=SAMPLES if expected > 0.05 else MOST_ROUNDS)
        if not answer.get("samples"):
            return []
        ours += answer["samples"]
        numpy += answer["plain"]
    return [(median(ours), median(numpy))]


def _pair(crew: Crew, expected: float, seconds: float) -> list[tuple[float, float]]:
    """Return the median seconds of alight and of NumPy in turns in alight's process."""
    ways = [("alight", "take"), ("alight", "take_plain")]
    taken = _turns(ways, {"alight": expected}, crew, seconds)
    found = [_samples(_counting(turns)) for turns in taken]
    return [(median(found[0]), median(found[1]))] if all(found) else []


def _samples(turns: Turns) -> list[float]:
    return [seconds for turn in turns for seconds in turn["samples"]]


def _counting(turns: Turns) -> Turns:
    # The same rule for everybody: slow moments count where there are too few others.
    steady = [turn for turn in turns if turn["steady"]]
    return steady if len(steady) >= LEAST_ROUNDS else turns


def _fill(cell: Cell, *processes: Turns) -> None:
    counting = [turns for process in processes if _samples(turns := _counting(process))]
    if not counting:
        cell.reason = cell.reason or "gave no times"
        return
    turns = [turn for process in counting for turn in process]
    timing = summary(_samples(turns))
    cell.seconds = median([median(_samples(process)) for process in counting])
    cell.quantile20, cell.processes = timing.seconds, len(counting)
    cell.low, cell.high, cell.samples = timing.low, timing.high, timing.samples
    cell.unsteady = sum([not turn["steady"] for turn in turns]) / len(turns)


def _check(row: Row, bandwidth: Bandwidth | None) -> None:
    """Note what cannot be: no time at all, or more bytes in it than the machine can move."""
    for cell in row.cells.values():
        if cell.seconds is None:
            continue
        if not cell.seconds > 0:
            row.faults.append(f"{cell.peer}: {cell.seconds} s")
            cell.reason = "no time"
        elif bandwidth is not None and row.bytes / cell.seconds > bandwidth.limit(row.bytes):
            # Other work may have kept the probes from the peak: they get another chance.
            bandwidth = bandwidth.again(row.bytes)
            if row.bytes / cell.seconds <= bandwidth.limit(row.bytes):
                continue
            row.faults.append(
                f"{cell.peer}: {row.bytes / cell.seconds / 1e9:.1f} GB/s of "
                f"{bandwidth.limit(row.bytes) / 1e9:.1f} possible"
            )
