"""A whole run: which rows, in which order, within which time, and what is kept of it."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from alight._src.base.formatting import readable_seconds
from alight._src.bench import bandwidth as memory
from alight._src.bench import first_call, shows
from alight._src.bench.bandwidth import Bandwidth
from alight._src.bench.calibration import Calibration, calibrate, own_cache
from alight._src.bench.crew import Crew
from alight._src.bench.peers import HOST, PEERS
from alight._src.bench.programs import PROGRAMS
from alight._src.bench.rows import LEAST_ROUNDS, Case, Row, run_row, time_beside
from alight._src.bench.shows import OVER_BUDGET, Shown
from alight._src.explain.report import version
from alight._src.explain.tables_data import machine_row
from alight.backends.machine import host_memory, processors

__all__ = ["DTYPES", "SIZES", "Run", "Wanted", "bench"]

SCHEMA = 1
SIZES = tuple(1 << i for i in (10, 14, 17, 20, 24, 27))
DTYPES = ("float32", "float64")
NEIGHBOURS = 2
_NEIGHBOUR_SIZE = 1 << 20  # some ms a call: shorter than a time-slice, longer than waking threads
_SAME_BITS_SIZE = 1 << 20  # enough for a kernel to be divided among threads
THREADS = (1, 2, 7)
# Shares of the budget: rows beyond the last-level cache need the time that the small ones do not.
_WEIGHTS = ((1 << 17, 1.0), (1 << 20, 1.5), (1 << 24, 4.0), (1 << 62, 8.0))
_EXTRAS_SHARE = 0.12
# A row that is expected to take so many times its share is left out, and says so.
_OVER = 4.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to run: all of it, unless less is asked for. Seconds are for the whole run."""

    programs: tuple[str, ...] = tuple(PROGRAMS)
    sizes: tuple[int, ...] = SIZES
    dtypes: tuple[str, ...] = DTYPES
    peers: tuple[str, ...] = tuple(PEERS)
    device: str = HOST
    budget_seconds: float = 1200.0
    extras: bool = True


@dataclass(slots=True)
class Run:
    """Everything a run found; `document` is what the JSON file holds."""

    wanted: Wanted
    began: str
    rows: list[Row] = field(default_factory=list)
    neighbour_rows: list[Row] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    peers: dict[str, Any] = field(default_factory=dict)
    bandwidth: Bandwidth | None = None
    calibration: Calibration = field(default_factory=Calibration)
    first_calls: dict[str, dict[str, float]] = field(default_factory=dict)
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    timed_again: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def faults(self) -> list[str]:
        """Return what cannot be right, by row."""
        return [
            f"{row.case.program} {row.case.dtype} n={row.case.n}: {fault}"
            for row in [*self.rows, *self.neighbour_rows]
            for fault in row.faults
        ]

    def document(self) -> dict[str, Any]:
        """Return the run as plain dicts and lists; docs/benchmarks.md says what is in it."""
        limit = self.bandwidth
        return {
            "schema": SCHEMA,
            "began": self.began,
            "seconds": self.seconds,
            "wanted": asdict(self.wanted),
            "machine": self.machine,
            "peers": self.peers,
            "absent": self.absent,
            "calibration": asdict(self.calibration),
            "bandwidth": None
            if limit is None
            else {
                "bytes_per_second_by_working_set": [list(knot) for knot in limit.curve],
                "knee_bytes": limit.knee,
                "memory_bytes_per_second": limit.memory,
                "reading_bytes_per_second": limit.reading,
                "threads": limit.threads,
            },
            "shown": [{**asdict(line), "passed": line.passed} for line in self.shown],
            "rows": [_row(row) for row in self.rows],
            "beside_busy_processes": [_row(row) for row in self.neighbour_rows],
            "first_calls_milliseconds": self.first_calls,
            "bits_by_threads": self.digests,
            "timed_again": self.timed_again,
            "faults": self.faults,
        }


def _row(row: Row) -> dict[str, Any]:
    case, best = row.case, row.best_peer()
    return {
        "program": case.program,
        "family": case.of.family,
        "n": case.n,
        "dtype": case.dtype,
        "bytes": row.bytes,
        "flops": row.flops,
        "special": row.special,
        "skipped": row.skipped,
        "faults": row.faults,
        "oracle": row.oracle,
        "best_peer": None if best is None else best[0],
        "alight_over_best_peer": row.ratio(),
        "alight_over_numpy": row.ratio("numpy"),
        "alight_and_numpy_in_one_process": row.paired,
        "peers": {peer: asdict(cell) for peer, cell in row.cells.items()},
        "alight_ran": row.explained,
        "spent_seconds": row.spent_seconds,
    }


def bench(wanted: Wanted, say: Say, done: Callable[[Row], None]) -> Run:
    """Return a run of what is wanted; ``done`` gets each row as it is finished."""
    began = perf_counter()
    run = Run(wanted, datetime.now(UTC).isoformat(timespec="seconds"))
    run.machine = surroundings()
    here = wanted.device == HOST
    # what the machine has of cards is not what the host's peers are timed on
    named = os.environ.get("ALIGHT_DEVICES", HOST) if here else f"{wanted.device},{HOST}"
    with own_cache(named) as environment:
        until = began + wanted.budget_seconds
        share = _EXTRAS_SHARE if wanted.extras else 0.0
        beside = min(_BESIDE_MOST, _BESIDE_SHARE * wanted.budget_seconds) if here else 0.0
        others = wanted.budget_seconds * _PROCESSES_SHARE if here else 0.0
        rows_until = until - wanted.budget_seconds * share - beside - others
        if "alight" in wanted.peers:
            say("calibrating alight")
            run.calibration = calibrate(environment, rows_until)
        say("measuring the bandwidth of memory")
        run.bandwidth = memory.measure() if here else memory.measure_on(wanted.device)
        with Crew(wanted.peers, environment, wanted.device) as crew:
            run.absent, run.peers = crew.absent, crew.about
            _rows(run, crew, rows_until, say, done)
            _bandwidth_beside(run, crew, rows_until + beside, say)
            _unsteady_again(run, crew, rows_until, say)
            if here:
                _in_other_processes(run, crew, rows_until + beside + others, say)
            if here:
                run.shown = shows.of_rows(run.rows, run.bandwidth)
            else:
                run.shown = shows.of_resident(run.rows)
            if wanted.extras and {"alight", "numpy"} <= set(crew.present):
                _beside_neighbours(run, crew, until, say)
            for peer in crew.present:
                run.peers[peer]["settings"] = crew.ask(peer, "explain").get("settings")
        if wanted.extras and "alight" in wanted.peers:
            run.first_calls, lines = first_call.measure(environment, say, until)
            run.shown += lines
            run.shown.append(_same_bits(run, environment, until, say))
    run.machine["load_after"] = _load()
    run.seconds = perf_counter() - began
    return run


def _load() -> list[float] | None:
    return list(os.getloadavg()) if hasattr(os, "getloadavg") else None


def surroundings() -> dict[str, Any]:
    """Return what machine and software this is, and how busy it was."""
    found = machine_row()
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = (index / "level").read_text().strip(), (index / "type").read_text().strip()
        shared = (index / "shared_cpu_list").read_text().strip()
        size = (index / "size").read_text().strip()
        caches[f"L{level} {kind}"] = f"{size}, of processors {shared}"
    return {
        **found,
        "alight": version(),
        "implementation": platform.python_implementation(),
        "processors_allowed": list(processors()),
        "caches": caches,
        "load_before": _load(),
    }


# -- the rows --------------------------------------------------------------------------------------


def cases(wanted: Wanted, bandwidth: Bandwidth | None) -> list[Case]:
    """Return the cases, small ones first: what they took says whether there is time for the large.

    Programs that are bound by memory get one size more, with 2 x the largest cache as working set.
    It is what their class is judged by, takes some ms a call, and so comes before the large ones.
    """
    found = []
    judged: set[Case] = set()
    for name in wanted.programs:
        for dtype in wanted.dtypes:
            sizes = set(wanted.sizes)
            if PROGRAMS[name].family == "bandwidth" and bandwidth is not None:
                arrays = {"quadratic": 2, "sum": 1, "dot": 2}[name]  # read or written, each once
                beyond = 2 * bandwidth.knee // (arrays * np.dtype(dtype).itemsize)
                sizes.add(beyond)
                judged.add(Case(name, beyond, dtype))
            found += [Case(name, n, dtype) for n in sizes]
    order = {name: place for place, name in enumerate(wanted.programs)}

    def place(case: Case) -> tuple[int, int, int, str]:
        size = min(case.n, shows.LARGE + 1) if case in judged else case.n
        return size, order[case.program], case.n, case.dtype

    return sorted(found, key=place)


def _weight(case: Case) -> float:
    return next(weight for most, weight in _WEIGHTS if case.n <= most)


def _rows(run: Run, crew: Crew, until: float, say: Say, done: Callable[[Row], None]) -> None:
    waiting = cases(run.wanted, run.bandwidth)
    while waiting:
        case = waiting.pop(0)
        left = until - perf_counter()
        share = left * _weight(case) / (_weight(case) + sum(map(_weight, waiting)))
        still = f"{len(waiting)} rows and {readable_seconds(left)} left"
        say(f"{case.program} {case.dtype} n={case.n:,} ({still})")
        expected = _expected_seconds(run.rows, case)
        only = None
        if expected is not None and sum(expected.values()) > _OVER * share:
            # Large rows are for those who can win them; NumPy is the measure of all.
            best = min(expected.values())
            only = ["numpy", "alight", *(p for p, s in expected.items() if s < 2 * best)]
            expected = {peer: s for peer, s in expected.items() if peer in only}
        if left <= _first_seconds(run.rows, case) or (
            expected is not None and sum(expected.values()) > _OVER * share
        ):
            why = OVER_BUDGET
            if expected is not None:
                why += f", needs about {readable_seconds(sum(expected.values()))}"
            row = Row(case, skipped=f"{why}: {readable_seconds(max(share, 0.0))} for this row")
        else:
            row = run_row(case, crew, share, run.bandwidth, only)
        run.rows.append(row)
        done(row)


def _unsteady_again(run: Run, crew: Crew, until: float, say: Say) -> None:
    """Time rows again that met slow processors, the worst first, while there is time. Whose they
    were, and what came of it, has no part in it; what ran on steadier ones counts."""
    waiting = [row for row in run.rows if row.skipped is None and not row.faults and row.unsteady]
    for row in sorted(waiting, key=lambda row: -row.unsteady):
        if row.spent_seconds > until - perf_counter():
            continue
        case = row.case
        say(f"{case.program} {case.dtype} n={case.n:,} again: {row.unsteady:.0%} of it was slow")
        other = run_row(case, crew, row.spent_seconds, run.bandwidth, list(row.cells))
        row.spent_seconds += other.spent_seconds
        if row.timed_again(other):
            run.timed_again.append(f"{case.program} {case.dtype} n={case.n}")


# Of the peers that were fastest at what one another did, so many of each kind are timed beside.
_FASTEST = 2


def _bandwidth_beside(run: Run, crew: Crew, until: float, say: Say) -> None:
    """Time the rows that are judged by their bandwidth in turns with one another and with whatever
    was fastest: what a guest's memory gives goes up and down by half within minutes (EPYC: 49 and
    76 GB/s of the same sum, 5 s apart), and a row's turns take seconds."""
    if run.bandwidth is None:
        return
    sound = [row for row in run.rows if row.skipped is None and not row.faults]
    judged = shows.bandwidth_judged(sound, run.bandwidth)
    cells = [(row.case, row.cells["alight"]) for row in judged]
    timed = shows.fastest(sound, run.bandwidth)
    reading = [each for each in timed if shows.only_reads(each[1])]
    for _, row, cell in [*timed[:_FASTEST], *reading[:_FASTEST]]:
        if not any(cell is known for _, known in cells):
            cells.append((row.case, cell))
    needed = sum(case.memory_bytes(1) for case, _ in cells)
    taken = sum(_BESIDE_CALLS * (cell.seconds or 0.0) + _BESIDE_SECONDS for _, cell in cells)
    # Alone there is nothing to be beside of.
    if len(cells) > 1 and needed < host_memory()[0] / 2 and perf_counter() + taken < until:
        say(f"bandwidth of {len(cells)} rows side by side")
        time_beside(cells, crew)


# What opening a row and having its threads at rest take, and the calls it makes in its turns; what
# is kept of the budget for that.
_BESIDE_SECONDS, _BESIDE_CALLS = 0.7, 100
_BESIDE_MOST, _BESIDE_SHARE = 20.0, 0.1


def _in_other_processes(run: Run, crew: Crew, until: float, say: Say) -> None:
    """Time rows that are over a limit or near one in other processes, too: where a process has its
    memory makes a difference to all of its calls."""
    near: list[tuple[float, str, Row]] = []
    for row in run.rows:
        found = None if row.skipped is not None or row.faults else shows.over_limit(row)
        if found is not None and found[0] >= -_NEAR:
            near.append((*found, row))
    near.sort(key=lambda each: -each[0])
    names = {"numpy", "alight", *(peer for _, peer, _ in near)}
    wanted = [peer for peer in crew.present if peer in names]
    took = 0.0
    for process in range(2, _PROCESSES + 1):
        began = perf_counter()
        if not near or began + took > until:
            break
        with Crew(wanted, crew.environment, crew.device) as others:
            for place, (_, peer, row) in enumerate(near):
                timed = list(dict.fromkeys(("numpy", "alight", peer)))
                paired = peer == "numpy"
                left = until - perf_counter()
                share = left / ((_PROCESSES + 1 - process) * len(near) - place)
                if _again_seconds(row, timed) > min(left, _OVER * share):
                    continue
                case = row.case
                say(f"{case.program} {case.dtype} n={case.n:,} in process {process} of each peer")
                row.joined_by(run_row(case, others, share, run.bandwidth, timed, paired))
        took = perf_counter() - began


# Two processes of NumPy took 0.89 to 1.14 of one another for a row (filters of 2^20, four pairs, an
# EPYC otherwise at rest): so near a limit one process of each peer says nothing. The median of five
# is off by half of what one is. What the budget keeps for them is what 30 rows of 1 s take in a
# quarter of an hour.
_NEAR, _PROCESSES, _PROCESSES_SHARE = 0.13, 5, 0.13


def _again_seconds(row: Row, peers: Sequence[str]) -> float:
    """Return what a row takes in processes that run for the first time."""
    calls = LEAST_ROUNDS + 3  # and a warm call, and those that say whether there is time for more
    cells = [row.cells[peer] for peer in peers]
    known = [(c.cold_seconds or 0.0) + calls * (c.seconds or 0.0) for c in cells]
    return _BESIDE_SECONDS + sum(known)


def _first_seconds(rows: Sequence[Row], case: Case) -> float:
    """Return what the first calls of a row are known to take, compilers included: those of the last
    row of its program, or of the last at all."""
    ran = [row for row in rows if row.skipped is None]
    same = [row for row in ran if row.case.program == case.program]
    last = (same or ran)[-1:]
    return sum(cell.cold_seconds or 0.0 for row in last for cell in row.cells.values())


def _expected_seconds(rows: Sequence[Row], case: Case) -> dict[str, float] | None:
    """Return what each peer would take for a row, each from the largest one it was measured in:
    a peer that was left out of a large row is not asked blindly for a larger one."""
    if case.n < 1 << 20:
        return None
    # A cold call, a warm one, one to settle the pace, three turns; arrays made and compared.
    calls, preparing = 3 + 1 + 1 + 3, 3e-8 * case.n
    found: dict[str, float] = {}
    # By its own count of operations: a matrix product grows faster than its matrices.
    for row in sorted(rows, key=lambda row: row.case.n):
        if (row.case.program, row.case.dtype) != (case.program, case.dtype) or row.case.n >= case.n:
            continue
        grown = case.of.flops(case.n) / row.case.of.flops(row.case.n)
        for peer, cell in row.cells.items():
            if cell.counts and cell.seconds is not None:
                found[peer] = calls * cell.seconds * grown + preparing
    return found or None


# -- what is measured beside the rows --------------------------------------------------------------


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keep so many other processes running at full speed."""
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def _beside_neighbours(run: Run, crew: Crew, until: float, say: Say) -> None:
    chosen = [name for name in run.wanted.programs if PROGRAMS[name].family != "library"]
    # The other half is for what comes after.
    until -= 0.5 * _EXTRAS_SHARE * run.wanted.budget_seconds
    left = until - perf_counter()
    share = left / max(len(chosen), 1)
    with _busy(NEIGHBOURS) if left > 0 else nullcontext():
        for name in chosen:
            if perf_counter() > until:
                break
            say(f"{name} beside {NEIGHBOURS} busy processes")
            case = Case(name, min(_NEIGHBOUR_SIZE, max(run.wanted.sizes)), run.wanted.dtypes[-1])
            # No bandwidth to compare with: it was measured alone.
            run.neighbour_rows.append(run_row(case, crew, share, None, ("numpy", "alight")))
    sound = [row for row in run.neighbour_rows if not row.faults]
    run.shown += shows.of_neighbours(sound, NEIGHBOURS)


def _same_bits(run: Run, environment: Mapping[str, str], until: float, say: Say) -> Shown:
    """Return the line about results being the same bits however many threads made them."""
    title = f"kernels whose bits differ between {', '.join(map(str, THREADS))} threads"
    from alight._src.config.loading import config

    if not hasattr(config(), "threads"):
        return Shown(title, None, 0.0, detail="there is no setting `threads` in this version")
    for threads in THREADS:
        say(f"bits with {threads} threads")
        forced = {"ALIGHT_THREADS": str(threads), "ALIGHT_FORCE": "cpu:generated"}
        with Crew(("alight",), {**environment, **forced}) as crew:
            for name in run.wanted.programs:
                if PROGRAMS[name].family == "library":
                    continue
                for dtype in run.wanted.dtypes:
                    if perf_counter() > until:
                        run.digests.clear()  # of some of the threads they compare nothing
                        return Shown(title, None, 0.0, detail=OVER_BUDGET)
                    n = min(_SAME_BITS_SIZE, max(run.wanted.sizes))
                    answer = crew.ask("alight", "digest", 120.0, program=name, n=n, dtype=dtype)
                    kept = run.digests.setdefault(f"{name} {dtype}", {})
                    # What failed is like nothing else, not even like another failure.
                    kept[str(threads)] = answer.get("digest") or f"{threads}: {answer['error']}"
    apart = [name for name, kept in run.digests.items() if len(set(kept.values())) > 1]
    return Shown(title, float(len(apart)), 0.0, detail=", ".join(apart) or "all the same")


def grouped(rows: Sequence[Row]) -> Iterator[tuple[tuple[str, str], list[Row]]]:
    """Yield program and dtype, and their rows from the smallest."""
    order = {name: place for place, name in enumerate(PROGRAMS)}

    def key(row: Row) -> tuple[int, str]:
        return order[row.case.program], row.case.dtype

    for _, found in groupby(sorted(rows, key=lambda row: (*key(row), row.case.n)), key):
        listed = list(found)
        yield (listed[0].case.program, listed[0].case.dtype), listed


def size_in_words(n: int) -> str:
    """Return 2^k where n is a power of two, else the number."""
    power = round(math.log2(n))
    return f"2^{power}" if 1 << power == n else f"{n:,}"
