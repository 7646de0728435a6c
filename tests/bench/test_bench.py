"""`alight bench`: programs are what they say, wrong results and impossible times are found."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import threading
from dataclasses import replace
from hashlib import pbkdf2_hmac
from itertools import chain, repeat
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.bench import calibration, shows, worker
from alight._src.bench import run as running
from alight._src.bench.bandwidth import Bandwidth, measure_on
from alight._src.bench.command import run_bench, run_regret
from alight._src.bench.crew import Crew
from alight._src.bench.device_peers import peers_on
from alight._src.bench.first_call import COUNTS, first_call
from alight._src.bench.first_call import measure as first_call_measured
from alight._src.bench.inputs import SEED, Arrays, placed
from alight._src.bench.lines import text
from alight._src.bench.peers import PEERS, NumExpr
from alight._src.bench.programs import FAMILIES, PROGRAMS
from alight._src.bench.rows import (
    Case,
    Cell,
    Row,
    _allowed_eps,
    _check,
    _fill,
    _pair,
    _turns,
    run_row,
    time_beside,
)
from alight._src.bench.run import Run, Wanted, cases
from alight._src.bench.shows import (
    Shown,
    bandwidth_judged,
    fastest,
    of_neighbours,
    of_resident,
    of_rows,
    over_limit,
)
from alight._src.bench.worker import Server, compare, rest
from alight.errors import ConfigError, DeviceUnavailable
from command_line import PACKAGE, command

ROOT = Path(__file__).resolve().parents[2]


def outputs(result: Any) -> Arrays:
    return tuple(np.asarray(x) for x in (result if isinstance(result, tuple) else (result,)))


def given(name: str, n: int, dtype: str) -> Arrays:
    return PROGRAMS[name].inputs(n, np.dtype(dtype), np.random.default_rng(SEED))


# --- the programs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_of_its_size_and_keeps_its_dtype(name: str, dtype: str) -> None:
    program = PROGRAMS[name]
    assert program.family in FAMILIES
    for n in (1 << 10, 1 << 14):
        arrays = given(name, n, dtype)
        assert all(array.dtype == dtype and array.any() for array in arrays)
        assert 0.9 * n <= program.elements([array.size for array in arrays]) <= n
        again = given(name, n, dtype)
        assert all(np.array_equal(a, b) for a, b in zip(arrays, again, strict=True))
        before = [array.copy() for array in arrays]
        results = outputs(program.function(*arrays))
        # Workers time many calls on the same arrays.
        assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))
        for result in results:
            assert result.dtype in (np.dtype(dtype), np.dtype(np.int64))
            assert np.isfinite(result).all()
        grown = program.flops(2 * n) / program.flops(n)
        assert 2 <= grown < 3


@pytest.mark.parametrize("name", [p for p in PROGRAMS if PROGRAMS[p].oracle])
def test_program_meets_its_oracle(name: str) -> None:
    n = 1 << 18
    oracle = PROGRAMS[name].oracle
    assert oracle is not None
    results = outputs(PROGRAMS[name].function(*given(name, n, "float64")))
    found = oracle(results, n)
    assert found is not None
    got, want, within = found
    assert abs(got - want) <= within
    if name != "equation_of_state":  # that one checks its own published point
        wrong = oracle(tuple(np.zeros_like(x) for x in results), n)
        assert wrong is not None
        assert abs(wrong[0] - wrong[1]) > wrong[2]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_through_alight_is_within_the_tolerance(name: str, tmp_path: Path) -> None:
    n, dtype = 1 << 12, "float32"
    program = PROGRAMS[name]
    reference = str(tmp_path / "reference")
    for i, want in enumerate(outputs(program.function(*given(name, n, dtype)))):
        np.save(f"{reference}.{i}.npy", want)
    with alight.policy(force="cpu:generated", floor=0):
        results = outputs(alight.jit(program.function)(*given(name, n, dtype)))
    apart, error = compare(results, reference, set(), dtype)
    assert apart is None
    assert error <= program.tolerance_eps(n)


def test_what_is_left_to_numpy_may_be_off_what_numpy_is() -> None:
    row = Row(Case("dot", 1 << 24, "float32"))
    own = PROGRAMS["dot"].tolerance_eps(1 << 24)
    assert _allowed_eps(row, "alight") == own
    row.cells["numpy"] = Cell("numpy", error_eps=353.0)
    assert _allowed_eps(row, "alight") == 353.0 > own
    row.cells["numpy"].error_eps = 1.0
    assert _allowed_eps(row, "alight") == own
    row.cells["numpy"].error_eps = 1e9
    assert _allowed_eps(row, "jax") < 1e4


def test_expressions_say_what_the_functions_do(tmp_path: Path) -> None:
    pytest.importorskip("numexpr")
    peer = NumExpr()
    n = 1 << 10
    for name, program in PROGRAMS.items():
        for dtype in ("float32", "float64") if program.expressions else ():
            arrays = given(name, n, dtype)
            reference = str(tmp_path / f"{name}-{dtype}")
            for i, want in enumerate(outputs(program.function(*arrays))):
                np.save(f"{reference}.{i}.npy", want)
            apart, error = compare(peer.host(peer.call(program, arrays)()), reference, set(), dtype)
            assert (apart, name) == (None, name)
            assert error <= program.tolerance_eps(n, "numexpr"), name


# --- what must be found ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "apart", "error"),
    [
        (lambda x: x, None, 0.0),
        (lambda x: np.where(np.arange(x.size) == 70_000, x * (1 + 2**-40), x), None, 2.0**12),
        (lambda x: x.astype(np.float32), "is float32, not float64", None),
        (lambda x: x[:-1], "has shape (99999,), not (100000,)", None),
        (lambda x: np.where(np.arange(x.size) == 70_000, np.nan, x), None, math.inf),
    ],
)
def test_comparing_finds_what_is_apart(
    change: Any, apart: str | None, error: float, tmp_path: Path
) -> None:
    want = np.linspace(1.0, 2.0, 100_000)
    np.save(tmp_path / "reference.0.npy", want)
    found, eps = compare((change(want),), str(tmp_path / "reference"), set(), "float64")
    assert (found is None) == (apart is None)
    if apart is not None:
        assert apart in str(found)
    else:
        assert eps == pytest.approx(error, rel=0.01)


def test_comparing_finds_one_result_too_many(tmp_path: Path) -> None:
    np.save(tmp_path / "reference.0.npy", np.ones(3))
    found, _ = compare((np.ones(3), np.ones(3)), str(tmp_path / "reference"), set(), "float64")
    assert found == "has 2 results"


def test_integers_must_be_equal(tmp_path: Path) -> None:
    np.save(tmp_path / "reference.0.npy", np.arange(5))
    for wrong, error in ((0, 0.0), (1, math.inf)):
        got = np.arange(5) + wrong * (np.arange(5) == 3)
        assert compare((got,), str(tmp_path / "reference"), set(), "float32") == (None, error)


LIMIT = Bandwidth(
    ((1 << 20, 50e9), (1 << 25, 40e9), (1 << 26, 10e9), (1 << 27, 10e9)), 2, reading=9e9
)


def test_bandwidth_has_a_limit_on_each_side_of_the_knee() -> None:
    assert LIMIT.memory == 10e9
    assert LIMIT.knee == 1 << 25
    assert LIMIT.limit(1 << 30) == pytest.approx(12.5e9)
    assert LIMIT.limit(1 << 20) == pytest.approx(62.5e9)


def row(program: str = "chain", n: int = 1 << 20, **seconds: float) -> Row:
    made = Row(Case(program, n, "float64"), bytes=n * 16)
    for peer, value in seconds.items():
        made.cells[peer] = Cell(peer, seconds=value, samples=15)
    return made


def test_what_cannot_be_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bandwidth, "again", lambda limit, working_set: limit)
    found = row(alight=1e-3, numpy=0.0)
    _check(found, LIMIT)
    assert found.faults == ["numpy: 0.0 s"]
    fast = row(alight=found.bytes / 70e9, numpy=1e-2)
    _check(fast, LIMIT)
    assert fast.faults == ["alight: 70.0 GB/s of 50.0 possible"]
    sound = row(alight=found.bytes / 48e9, numpy=1e-2)
    _check(sound, LIMIT)
    assert sound.faults == []


def test_a_probe_that_was_disturbed_is_taken_again() -> None:
    slow = Bandwidth(((1 << 17, 1.0), (1 << 18, 2.0), (1 << 30, 1.0)), 1)
    again = dict(slow.again(1 << 18).peaks)
    # A few bytes a second are no machine's peak; what is far from the working set is as it was.
    assert again[1 << 17] > 1.0
    assert again[1 << 18] > 2.0
    assert again[1 << 30] == 1.0
    found = row(alight=1.0)  # faster than the first probe, slower than any machine
    found.bytes = 1 << 18
    _check(found, slow)
    assert found.faults == []


# --- what is shown --------------------------------------------------------------------------------


def test_lines_pass_and_fall_short() -> None:
    assert str(Shown("a", 0.5, 0.8)) == "PASS     a: 0.5 (limit ≤ 0.8)"
    assert str(Shown("a", 1.0, 0.8)) == "SHORT    a: 1 (limit ≤ 0.8), short by 25%"
    assert str(Shown("a", 0.9, 0.9, more_is_better=True)).startswith("PASS")
    assert str(Shown("a", 0.8, 0.9, more_is_better=True)).startswith("SHORT")
    assert str(Shown("a", None, 0.9)) == "NOT RUN  a: no rows"
    for shown in (*of_rows([], None)[:2], *of_rows([], None)[3:], *of_neighbours([], 2)):
        assert str(shown) == f"NOT RUN  {shown.what}: no rows"


def by_itself(row: Row) -> Row:
    return replace(row, cells={"alight": row.cells["alight"]})


def by_title(lines: list[Shown]) -> dict[str, Shown]:
    return {line.what: line for line in lines}


def test_rows_are_summed_up() -> None:
    slow = row("softmax", alight=4.0, numpy=8.0, jax=2.0)
    good = row("chain", alight=1.0, numpy=20.0, jax=2.0)
    small = row("jacobi", n=1 << 10, alight=2e-6, numpy=1e-6)
    wrong = row("nbody", alight=1.0, numpy=20.0, jax=0.1)
    wrong.cells["jax"].reason = "off by 1000 eps"
    faulty = row("softmax", alight=9.0, numpy=1.0)
    faulty.faults.append("alight: not finite")
    sort = row("sort", alight=1.2, numpy=1.0, numba=0.1)
    share = row("sum", n=(1 << 26) // 8, alight=1.0, numpy=2.0)
    share.bytes = 1 << 26
    share.cells["alight"].seconds = share.bytes / 8e9
    share.cells["numpy"].seconds = share.bytes / 12e9
    both = row("quadratic", n=(1 << 25) // 8, alight=1.0, numpy=2.0)
    both.bytes = share.bytes
    both.cells["alight"].seconds = both.bytes / 15e9
    both.cells["numpy"].seconds = both.bytes / 20e9
    found = by_title(of_rows([slow, good, small, wrong, faulty, sort, share, both], LIMIT))
    mean = found["fused, n ≥ 2^17: alight / best peer, geometric mean"]
    assert mean.value == pytest.approx((2.0 * 0.5 * 0.05) ** (1 / 3))
    worst = found["fused, n ≥ 2^17: alight / best peer, worst"]
    assert worst.value == 2.0
    assert "softmax" in worst.detail
    assert found["library, n ≥ 2^17: alight / NumPy's own call, worst"].value == pytest.approx(1.2)
    reached = found["bandwidth at 2 x the largest knee: share of the best, sum float64"]
    assert reached.value == pytest.approx(8 / 12)  # of those that only read
    assert "; reading and writing 20.0" in reached.detail
    reached = found["bandwidth at 2 x the largest knee: share of the best, quadratic float64"]
    assert reached.value == pytest.approx(15 / 20)
    (alone,) = of_rows([by_itself(share)], LIMIT)[2:3]
    assert alone.value == pytest.approx(8 / 9)  # nobody but the probe
    over = found["any n: alight / (1.05 x NumPy + 0.3 µs), worst"]
    assert over.value == pytest.approx(2.0 / 1.35)
    assert over.passed is False
    beside = of_neighbours([row(alight=1.0, numpy=2.0), row(alight=2.0, numpy=1.0)], 2)
    assert [line.value for line in beside] == pytest.approx([1.0, 2.0])


# --- a run ----------------------------------------------------------------------------------------


def test_bandwidth_programs_get_a_size_beyond_the_caches() -> None:
    wanted = Wanted(programs=("sum", "quadratic", "chain"), sizes=(1 << 10,), dtypes=("float32",))
    sizes = {case.program: case.n for case in cases(wanted, LIMIT)}
    assert sizes == {"chain": 1 << 10, "sum": 1 << 24, "quadratic": 1 << 23}
    listed = cases(Wanted(), LIMIT)
    # Of the six, the sum of float32 has a size that is run already.
    assert len(listed) == len(PROGRAMS) * 2 * len(running.SIZES) + 5
    usual = [case.n for case in listed if case.of.family != "bandwidth"]
    assert usual == sorted(usual)
    beyond = next(i for i, case in enumerate(listed) if case == Case("sum", 1 << 23, "float64"))
    assert {case.n for case in listed[beyond + 4 :] if case.of.family != "bandwidth"} == {
        1 << 20, 1 << 24, 1 << 27
    }  # fmt: skip


def test_what_a_row_would_take_is_known_before_it_is_run() -> None:
    rows = [row("matmul", n=1 << 16, alight=1e-3, numpy=2e-3)]
    expected = running._expected_seconds(rows, Case("matmul", 1 << 20, "float64"))
    assert expected is not None
    # 16 times the elements, 64 times the work; eight calls at the least.
    assert expected["alight"] == pytest.approx(8 * 64e-3, rel=0.1)
    assert running._expected_seconds(rows, Case("matmul", 1 << 20, "float32")) is None
    # Who was left out of the row before is told by the last one it was in.
    rows[:0] = [row("matmul", n=1 << 14, alight=1e-4, numpy=2e-4, torch=1e-3)]
    expected = running._expected_seconds(rows, Case("matmul", 1 << 20, "float64"))
    assert expected is not None
    assert expected["torch"] == pytest.approx(8 * 512e-3, rel=0.1)
    assert expected["alight"] == pytest.approx(8 * 64e-3, rel=0.1)


def test_a_run_keeps_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(running, "perf_counter", lambda: now[0])

    def takes(case: Case, crew: Any, share: float, limit: Any, only: Any) -> Row:
        made = row(case.program, alight=1e-3, numpy=1e-3)
        for cell in made.cells.values():
            cell.cold_seconds = 4.0  # a compiler's, whatever the share
        now[0] += max(share, 8.0)
        return made

    monkeypatch.setattr(running, "run_row", takes)
    wanted = Wanted(sizes=(1 << 10,), dtypes=("float64",), budget_seconds=60.0)
    run = Run(wanted, "")
    running._rows(run, Any, 60.0, lambda what: None, lambda row: None)
    assert 40.0 < now[0] <= 60.0
    skipped = {row.skipped for row in run.rows if row.skipped}
    assert len(run.rows) == len(PROGRAMS) and all(s.startswith("over the budget") for s in skipped)
    now[0] = 60.0
    running._beside_neighbours(run, Any, 60.0, lambda what: None)
    assert not run.neighbour_rows
    bits = running._same_bits(run, os.environ, 59.0, lambda what: None)
    found, lines = first_call_measured(os.environ, lambda what: None, perf_counter())
    assert not any(found.values()) and not run.digests
    for line in (bits, *lines):
        assert line.passed is None and str(line).startswith("NOT RUN"), line
        assert line.detail == "over the budget"
    asked: list[Any] = []

    def calibrates(names: list[str], *_: Any) -> Any:
        now[0] += 10.0
        asked.append(names)
        told = {"cuda:0": "stored", "cpu": "disturbed"} if len(asked) < 3 else {"cpu": "good"}
        return [
            {"device": name, "again": what == "disturbed", "text": f"{name}: {what}"}
            for name, what in told.items()
        ], ""

    monkeypatch.setattr(calibration, "_in_process", calibrates)
    monkeypatch.setattr(calibration, "perf_counter", lambda: now[0])
    now[0] = 0.0
    assert calibration.calibrate({}, 15.0).seconds == 10.0 == now[0]
    now[0] = 0.0
    found = calibration.calibrate({}, 1000.0)  # again what other work disturbed, and nothing else
    assert asked == [[], [], ["cpu"]] and found.result.startswith("cpu: good\ncuda:0")


def test_rows_that_met_slow_processors_are_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(name, alight=2.0, numpy=1.0) for name in ("chain", "softmax", "nbody", "sort")]
    for made, share in zip(rows, (0.2, 0.6, 0.9, 0.0), strict=True):
        made.cells["numpy"].unsteady, made.spent_seconds = share, 3.0
    rows[2].spent_seconds = 1e6  # there is no time for it
    rows[0].cells["alight"].settled_calls = 7
    asked = []

    def again(case: Case, crew: Any, seconds: float, limit: Any, only: Any) -> Row:
        asked.append((case.program, seconds, only))
        other = row(case.program, alight=1.0, numpy=1.0)
        other.cells["alight"].unsteady = 0.1 if case.program == "chain" else 0.7
        other.spent_seconds = 3.0
        return other

    monkeypatch.setattr(running, "run_row", again)
    run = Run(Wanted(), "now", rows=rows)
    running._unsteady_again(run, Any, perf_counter() + 60, lambda told: None)  # type: ignore[arg-type]
    peers = ["alight", "numpy"]
    assert asked == [("softmax", 3.0, peers), ("chain", 3.0, peers)]
    assert run.timed_again == [f"chain float64 n={1 << 20}"]
    assert [made.ratio() for made in rows] == [1.0, 2.0, 2.0, 2.0]
    assert rows[0].unsteady == 0.1 and rows[0].cells["alight"].settled_calls == 7
    rows[3].cells["jax"] = Cell("jax", seconds=5.0, unsteady=1.0)
    assert rows[3].unsteady == 0.0  # no figure rests on it


@pytest.mark.parametrize(
    ("paces", "steady"), [((1, 1), True), ((0, 1), True), ((1, 0), False), ((1, 0, 0, 1), True)]
)
def test_a_worker_says_whether_its_processor_was_slow(
    paces: tuple[int, ...], steady: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server("numpy")
    server.call = lambda: None
    # as the last of them from then on
    found = chain(map(bool, paces), repeat(bool(paces[-1])))
    monkeypatch.setattr(server.pace, "steady", found.__next__)
    told = server.on_take(3)
    assert told["steady"] is steady and len(told["samples"]) == 3


def test_turns_in_slow_moments_count_where_there_are_too_few_others() -> None:
    turns = [{"samples": [1.0, 1.1], "steady": True}] * 5
    turns += [{"samples": [2.0, 2.0], "steady": False}] * 20
    cell = Cell("alight")
    _fill(cell, turns)
    assert (cell.samples, cell.unsteady, cell.seconds) == (10, 0.0, pytest.approx(1.05))
    _fill(cell, turns[1:])
    assert (cell.samples, cell.unsteady, cell.seconds) == (48, 20 / 24, 2.0)


def turns_of(seconds: float, count: int = 5) -> list[dict[str, Any]]:
    return [{"samples": [seconds], "steady": True}] * count


def test_a_time_is_the_median_of_what_several_processes_had() -> None:
    cell = Cell("numpy")
    _fill(cell, turns_of(1.0, 25), turns_of(3.0), turns_of(2.0))
    assert (cell.seconds, cell.samples, cell.processes) == (2.0, 35, 3)
    _fill(cell, turns_of(4.0), [])
    assert (cell.seconds, cell.samples, cell.processes) == (4.0, 5, 1)


def test_calls_that_had_not_settled_do_not_count_with_those_that_had() -> None:
    settled, other = row(alight=2.0), row(alight=4.0)
    for made in (settled, other):
        made.turns["alight"] = [turns_of(made.cells["alight"].seconds or 0.0)]
    settled.cells["alight"].settled_calls = 7
    assert not settled.joined_by(other) and settled.seconds("alight") == 2.0
    other.cells["alight"].settled_calls = 9
    assert settled.joined_by(other) and settled.seconds("alight") == 3.0


def test_rows_near_a_limit_are_timed_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    near = row("sort", alight=1.04, numpy=1.0, jax=3.0)
    peer = row("chain", alight=1.0, numpy=9.0, torch=1.0)
    far = row("chain", alight=1.0, numpy=2.0, torch=2.0)
    small = row("dot", n=1 << 14, alight=1.3e-6, numpy=1e-6)
    slow = row("sort", alight=1.06, numpy=1.0)
    slow.cells["numpy"].cold_seconds = 1e6  # there is no time for it
    over = row("matmul", alight=2.1, numpy=1.0)
    rows = [near, peer, far, small, slow, over, Row(near.case, skipped="over the budget")]
    assert over_limit(near) == (pytest.approx(math.log(1.04 / 1.05)), "numpy")
    assert over_limit(over) == (pytest.approx(math.log(2.0)), "numpy")
    assert over_limit(peer) == (pytest.approx(-math.log(1.1)), "torch")
    assert over_limit(small) == (pytest.approx(math.log(1.3 / 1.35)), "numpy")
    assert over_limit(far) == (pytest.approx(-math.log(2.1)), "numpy")
    assert over_limit(rows[-1]) is None
    for made in rows:
        made.turns = {p: [turns_of(c.seconds or 0.0)] for p, c in made.cells.items()}
    opened: list[tuple[str, ...]] = []
    asked: list[tuple[str, tuple[str, ...], bool]] = []

    class Others(Crew):
        def __init__(self, peers: Any, environment: Any, device: str = "cpu") -> None:
            opened.append(tuple(peers))
            self.environment, self.device, self.present = {}, device, list(peers)
            self._running = {}
            self.scratch = Any

        def __exit__(self, *_: object) -> None:
            pass

    def again(case: Case, crew: Crew, seconds: float, limit: Any, only: Any, paired: bool) -> Row:
        asked.append((case.program, tuple(only), paired))
        other = row(case.program, n=case.n, **dict.fromkeys(only, 1.2))
        other.turns = {peer: [turns_of(1.2)] for peer in only}
        other.paired = [(1.3, 1.3)] if paired else []
        other.faults = ["wrong"] if case.program == "dot" else []
        return other

    monkeypatch.setattr(running, "Crew", Others)
    monkeypatch.setattr(running, "run_row", again)
    run = Run(Wanted(), "now", rows=rows)
    run.machine = {**running.surroundings(), "load_after": None}
    crew = Others(("numpy", "alight", "numexpr", "jax", "torch"), {})
    running._in_other_processes(run, crew, perf_counter() + 600, lambda told: None)
    times = running._PROCESSES - 1
    assert opened[1:] == [("numpy", "alight", "torch")] * times
    two = ("numpy", "alight")
    named = [(name, two, True) for name in ("matmul", "sort", "dot")]
    named += [("chain", (*two, "torch"), False)]
    assert asked == named * times and over.seconds("alight") == 1.2
    assert near.seconds("alight") == 1.2 and near.cells["alight"].processes == 1 + times
    assert over.pairs() == [(1.3, 1.3)] * times and peer.pairs() == [(1.2, 1.2)]
    assert small.pairs() == [(1.3e-6, 1e-6)]  # what was wrong does not count
    assert f"had turns in one process, in {times} to {times} of them" in text(run)
    assert near.seconds("jax") == 3.0 and near.cells["jax"].processes == 1
    assert small.seconds("alight") == 1.3e-6 and far.cells["alight"].processes == 1
    assert f"3 rows over or near a limit were timed in up to {1 + times} processes" in text(run)
    opened.clear()
    running._in_other_processes(run, crew, perf_counter() - 1.0, lambda told: None)
    assert not opened


def test_limits_of_numpys_time_are_asked_of_one_process() -> None:
    made = row("sort", n=1 << 17, alight=1.3, numpy=1.0)
    (library,), (small,) = shows._library([made]), shows._small([made])
    assert (library.passed, small.passed) == (False, False)
    made.paired = [(1.3, 1.0), (0.9, 0.9), (0.8, 0.8)]
    (library,), (small,) = shows._library([made]), shows._small([made])
    assert (library.value, library.passed, small.passed) == (1.0, True, True)
    assert made.ratio() == made.ratio("numpy") == 1.0
    (fused := row("chain", alight=1.3, numpy=1.0)).paired = [(1.1, 1.0)]
    assert shows._fused([fused])[1].value == 1.1 and shows._fused([fused])[1].passed
    made.paired = [(1.3, 1.0), (0.9, 0.8), (0.8, 0.8)]
    (library,), (small,) = shows._library([made]), shows._small([made])
    assert library.value == pytest.approx(0.9 / 0.8)
    assert (library.passed, small.passed) == (False, False)


def test_numpy_has_turns_in_alights_process(tmp_path: Path) -> None:
    with Crew(("numpy", "alight"), {**os.environ, "ALIGHT_CACHE_DIR": str(tmp_path)}) as crew:
        found = run_row(Case("sort", 4096, "float64"), crew, 0.1, None, None, True)
        plain = crew.ask("alight", "take_plain", samples=1)
    assert not found.faults and not found.turns
    ((ours, numpy),) = found.paired
    assert numpy > 0 and ours > 0
    assert "error" in plain  # nothing is open any more


def test_turns_go_round_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class GuardCache:
        def ask(self, peer: str, do: str, samples: int) -> dict[str, Any]:
            asked.append(peer)
            return {"samples": [1.0] * samples, "steady": True}

    crew: Any = GuardCache()
    taken = _turns([(p, "take") for p in "abc"], dict.fromkeys("abc", 1e-3), crew, 0.0)
    rounds = ["".join(asked[i : i + 3]) for i in range(0, len(asked), 3)]
    assert rounds == ["abc", "bac", "cab", "acb", "bca"]
    assert [len(turns) for turns in taken] == [5, 5, 5]


def test_who_is_far_behind_rests_but_alight_and_numpy_in_its_process_do_not() -> None:
    class GuardCache:
        def ask(self, peer: str, do: str, samples: int) -> dict[str, Any]:
            slow = (peer, do) in (("b", "take"), ("alight", "take_plain"))
            return {"samples": [9.0 if slow else 1.0] * samples, "steady": True}

    crew: Any = GuardCache()
    for whose, rounds in (
        ([("a", "take"), ("b", "take"), ("alight", "take")], [5, 3, 5]),
        ([("alight", "take"), ("alight", "take_plain")], [5, 5]),
    ):
        taken = _turns(whose, {"a": 1e-3, "b": 1e-3, "alight": 1e-3}, crew, 0.0)
        assert [len(turns) for turns in taken] == rounds
    assert _pair(crew, 1e-3, 0.0) == [(1.0, 9.0)]


def test_every_process_has_its_arrays_at_the_same_places(tmp_path: Path) -> None:
    drawn = given("nbody", 1 << 14, "float32")
    for array, copied in zip(drawn, placed(drawn), strict=True):
        assert np.array_equal(array, copied) and copied.dtype == array.dtype
        assert copied.ctypes.data % 4096 == 16 and copied.flags.c_contiguous
    called, timed = [], []

    def compares(*told: Any) -> tuple[str | None, float]:
        called.append(told)
        return None, 0.0

    def calls(program: Any, arrays: Arrays) -> Any:
        timed.extend(arrays)
        return lambda: program.function(*arrays)

    server = Server("numpy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "compare", compares)
        patch.setattr(server.peer, "call", calls)
        server.on_open("dot", 1 << 12, "float32", str(tmp_path / "reference"))
    # what others do before they are timed, NumPy's process does as well
    assert len(called) == 1
    assert [x.ctypes.data % 4096 for x in timed] == [16, 16]


def test_samples_begin_once_the_caches_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("numpy")
    server.call = lambda: None
    monkeypatch.setattr(server.pace, "steady", lambda: True)
    spent = chain((400e-6, 300e-6, 200e-6, 150e-6, 110e-6), repeat(100e-6))
    monkeypatch.setattr(worker, "host_clock", lambda call: lambda count: next(spent) * count)
    assert server.on_take(3)["samples"] == [100e-6] * 3


def test_bandwidth_is_compared_with_what_was_timed_beside_it() -> None:
    made = []
    for name, rates in (("sum", (8e9, 6e9)), ("dot", (9e9, 12e9)), ("sum", (20e9, 5e9))):
        count = (1 << 26) // 8 // (1 + (name == "dot"))
        found = row(name, n=count, alight=1.0, numpy=1.0)
        found.bytes = 1 << 26
        for cell, rate in zip(found.cells.values(), rates, strict=True):
            cell.seconds = found.bytes / rate
        made.append(found)
    made[2].bytes = 1 << 28  # larger than what is judged
    made[2].cells["alight"].seconds = made[2].bytes / 20e9
    assert LIMIT is not None and bandwidth_judged(made, LIMIT) == made[:2]
    assert [rate for rate, _, _ in fastest(made, LIMIT)][:3] == pytest.approx([20e9, 20e9, 12e9])
    title = "bandwidth at 2 x the largest knee: share of the best, sum float64"
    assert by_title(of_rows(made, LIMIT))[title].value == pytest.approx(8 / 20)
    made[0].cells["alight"].beside = made[1].cells["numpy"].beside = True
    shown = by_title(of_rows(made, LIMIT))[title]
    assert shown.value == pytest.approx(8 / 12) and "numpy dot" in shown.detail


def test_cells_of_several_rows_take_turns(tmp_path: Path) -> None:
    ages = 1e9  # which no machine takes for it
    cells = [
        (Case("sum", 1 << 12, "float32"), Cell("numpy", seconds=ages)),
        (Case("dot", 1 << 10, "float64"), Cell("alight", seconds=ages)),
        (Case("sum", 1 << 10, "float64"), Cell("numpy", seconds=ages)),
    ]
    with Crew(("numpy", "alight"), environment(tmp_path)) as crew:
        time_beside(cells, crew)
        assert list(Path(crew.scratch.name).glob("reference.*")) == []
        # what was kept is gone
        assert "error" in crew.ask("numpy", "turn", kept=0, samples=1)
    for _, cell in cells:
        assert cell.beside and cell.counts and cell.samples >= 15
        assert cell.seconds is not None and 0 < cell.seconds < ages


def environment(folder: Path, **variables: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ALIGHT_")}
    own = {"PYTHONPATH": str(PACKAGE.parent), "ALIGHT_CACHE_DIR": str(folder / "cache")}
    return {**kept, **own, "ALIGHT_CALIBRATE": "off", **variables}


def test_a_row_is_timed_in_turns_and_checked(tmp_path: Path) -> None:
    with Crew(("numpy", "alight"), environment(tmp_path)) as crew:
        assert crew.absent == {}
        found = run_row(Case("chain", 1 << 10, "float32"), crew, 0.3, LIMIT)
        again = run_row(Case("kmeans_step", 1 << 12, "float64"), crew, 0.3, None, ("numpy",))
        scratch = Path(crew.scratch.name)
        assert list(scratch.glob("reference.*")) == []
    assert not scratch.exists()
    assert found.faults == []
    assert found.bytes == 3 * 4 * 1024
    for cell in found.cells.values():
        assert cell.counts
        assert cell.samples >= 5
        assert cell.cold_seconds and cell.seconds and cell.low and cell.high
        assert 0 < cell.low <= cell.seconds <= cell.high
        assert cell.unsteady is not None and 0 <= cell.unsteady <= 1
    assert found.explained
    assert list(again.cells) == ["numpy"]


def test_on_a_device_the_arrays_lie_there_and_numpy_is_not_timed(tmp_path: Path) -> None:
    wanted = environment(tmp_path, ALIGHT_DEVICES="sim:0,cpu")
    with Crew(("numpy", "alight"), wanted, "sim:0") as crew:
        found = run_row(Case("softmax", 1 << 12, "float32"), crew, 0.3, measure_on("sim:0"))
        several = run_row(Case("black_scholes", 1 << 10, "float64"), crew, 0.3, None)
    assert (found.faults, several.faults) == ([], [])
    assert found.seconds("numpy") is None and found.best_peer() is None
    assert found.seconds("alight") is not None
    (mean, worst) = of_resident([row("chain", n=1 << 20, alight=1.1, torch=1.0, numpy=9.0)])
    assert (mean.passed, worst.passed, worst.value) == (False, False, pytest.approx(1.1))


def test_on_a_device_that_is_not_there_nobody_is_timed() -> None:
    with pytest.raises(DeviceUnavailable, match="sim:7"):
        peers_on("sim:7")


def test_a_row_that_does_not_fit_is_skipped(tmp_path: Path) -> None:
    with Crew(("numpy",), environment(tmp_path)) as crew:
        found = run_row(Case("chain", 1 << 50, "float64"), crew, 1.0, None)
    assert found.skipped is not None
    assert re.fullmatch(r"needs \d+\.\d GiB of \d+\.\d free", found.skipped)


def test_absent_and_dying_peers_have_reasons(tmp_path: Path) -> None:
    (tmp_path / "numexpr.py").write_text("raise ModuleNotFoundError('no numexpr')")
    (tmp_path / "numba.py").write_text("raise OSError('no such library')")
    (tmp_path / "jax.py").write_text("import os; os._exit(3)")
    path = os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    with Crew(("numexpr", "numba", "jax", "numpy"), environment(tmp_path, PYTHONPATH=path)) as crew:
        assert crew.absent == {
            "numexpr": "not installed: pip install numexpr",
            "numba": "OSError: no such library",
            "jax": "its process did not start: its process ended with 3",
        }
        assert crew.present == ["numpy"]
        asked = {"program": "chain", "n": 1024, "dtype": "float32", "reference": "/nowhere/x"}
        assert crew.ask("numpy", "open", **asked)["error"].startswith("FileNotFoundError")
        os.kill(crew._running["numpy"].pid, signal.SIGSTOP)  # it does not answer, ever
        assert crew.ask("numpy", "open", 1e-4, **asked)["error"].startswith("took over")
        # The process that did not answer in time is gone; the next question starts another.
        assert crew.ask("numpy", "hello")["version"] == np.__version__


def test_a_peer_that_cannot_run_a_program_says_why() -> None:
    server = Server("numpy")
    with pytest.raises(KeyError):
        server.on_open("nothing", 1024, "float32", "")


def test_what_numpy_does_not_do_well_is_not_the_measure(tmp_path: Path) -> None:
    reference = str(tmp_path / "reference")
    adding = replace(PROGRAMS["dot"], function=lambda x, y: np.add.accumulate(x * y)[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROGRAMS, "dot", adding)
        told = Server("numpy").on_open("dot", 1 << 20, "float32", reference)
    x, y = given("dot", 1 << 20, "float32")
    right = np.dot(x.astype(float), y.astype(float))
    eps = np.finfo("float32").eps
    assert abs(np.load(f"{reference}.0.npy") - right) <= 4 * eps * right
    assert told["apart"] is None and told["error_eps"] > 10


@pytest.mark.parametrize("listed", [True, False])
def test_a_worker_rests_until_its_threads_do(
    listed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Threads of a BLAS go on spinning after the call; whoever is next would have fewer
    processors."""
    if not listed:
        monkeypatch.setattr(worker, "_TASKS", tmp_path / "nothing")
    monkeypatch.setattr(worker, "_REST_SECONDS", 60.0)  # however slow the machine is
    done, others_run = [], worker._others_run

    def spin() -> None:
        until = perf_counter() + 0.15
        while perf_counter() < until:  # without the lock of the interpreter, as a BLAS does
            pbkdf2_hmac("sha256", b"", b"", 20_000)
        done.append(True)

    thread = threading.Thread(target=spin)
    thread.start()
    rest()
    assert done
    thread.join()
    looked = []
    monkeypatch.setattr(worker, "_others_run", lambda: looked.append(others_run()) or looked[-1])
    rest()  # as soon as a few looks found nobody, though this very process has been busy
    assert looked[-worker._LOOKS :] == [False] * worker._LOOKS


def test_first_calls_are_counted() -> None:
    found = first_call("stored", COUNTS[:2])
    assert list(found) == ["0", "1"]
    assert all(0 <= value < 60_000 for value in found.values())


# 5 s to calibrate and 4 s to measure the memory.
@pytest.mark.slow
def test_the_command_times_and_writes_its_rows(tmp_path: Path) -> None:
    chosen = ("--only", "softmax,cha*", "--sizes", "2^10", "--dtypes", "float64")
    # The rows end by their turns, long before that: minutes under which none is left out when the
    # machine is busy.
    peers = ("--peers", "numpy,alight", "--budget", "10", "--no-extras")
    done = command(tmp_path, "bench", *chosen, *peers, "--out", "found")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Must show\n  " in done.stdout
    assert "chain_sum float64 2^10: numpy " in done.stderr
    document = json.loads((tmp_path / "found" / "results.json").read_text())
    assert {r["program"] for r in document["rows"]} == {"chain", "chain_sum", "softmax"}
    assert {p.name for p in (tmp_path / "found").glob("*.png")} >= {"crossovers.png"}
    documented = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for name in (*document, *document["rows"][0], *document["rows"][0]["peers"]["alight"]):
        assert f"`{name}`" in documented, name
    for name in (*PROGRAMS, *PEERS):
        assert f"`{name}`" in documented, name


@pytest.mark.parametrize(
    ("option", "value"),
    [("only", "chains"), ("sizes", "2^9"), ("sizes", "x"), ("dtypes", "f4"), ("peers", "scipy")],
)
def test_wrong_names_are_refused(option: str, value: str, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"only": None, "sizes": None, "dtypes": None, "peers": None}
    with pytest.raises(ConfigError, match="Fix: "):
        run_bench(**{**asked, option: value}, minutes=1.0, extras=False, out=tmp_path)


@pytest.mark.parametrize("run", [run_bench, run_regret])
def test_results_that_could_not_be_written_are_not_measured(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    asked: dict[str, Any] = {"only": "chain", "sizes": "2^10", "dtypes": None, "minutes": 1.0}
    if run is run_bench:
        asked |= {"peers": "numpy", "extras": False}
    with pytest.raises(ConfigError, match="Fix: name a folder"):
        run(**asked, out=tmp_path / "file" / "found")


def test_a_run_without_rows_prints() -> None:
    machine = {**running.surroundings(), "load_after": None}
    run = Run(Wanted(), "2000-01-01T00:00:00+00:00", machine=machine)
    run.absent = {"jax": "not installed: pip install jax"}
    run.rows = [replace(row(), skipped="over the budget")]
    printed = text(run)
    assert "no jax: not installed: pip install jax" in printed
    assert "skipped, over the budget" in printed
    assert json.dumps(run.document())


@pytest.mark.parametrize(("disturbed", "rough"), [(False, False), (True, False), (False, True)])
def test_what_has_no_good_profile_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, disturbed: bool, rough: bool
) -> None:
    found = SimpleNamespace(disturbed=disturbed, rough=rough)
    one = [SimpleNamespace(id="cpu")]
    monkeypatch.setattr(calibration.calibration_text, "devices_to_calibrate", lambda names: one)
    monkeypatch.setattr(calibration.calibration_text, "calibrate", lambda device, seconds: found)
    (told,) = calibration.measured(["cpu"], 1.0)
    assert told == {"device": "cpu", "again": disturbed or rough, "text": str(found)}
