"""Kernels on several threads: the same results, flags and modes, whatever else goes on."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alight._core import make_layout
from alight._core import threads as core
from alight._src.codegen.common.loops import nest
from alight._src.codegen.llvm import object_code
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.measure import probes, timing
from alight._src.measure.device_calibration import Calibration
from alight._src.measure.profiles import share_costs
from alight._src.plan.cost import Profile
from alight.backends.machine import clear_floating_point_flags, floating_point_flags, thread_count
from alight.backends.registry import backend_of, device
from alight.backends.split import _axis, launcher

ALWAYS = (0.0, 0.0)  # costs at which everything is shared


@pytest.fixture
def pool() -> Iterator[Any]:
    """Give the pool, at costs that make it share every kernel."""
    core.set_costs(*ALWAYS)
    yield core
    core.set_threads(thread_count())
    core.set_costs(core.JOIN_SECONDS, core.WAKE_SECONDS)


def address(array: np.ndarray[Any, Any]) -> int:
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def loop(name: str, *arrays: np.ndarray[Any, Any]) -> Group:
    """Return a group of one op; the last array is where its result goes."""
    layouts = [make_layout(a.dtype, a.shape, a.strides) for a in arrays]
    node = Node(OPS[name], tuple(range(len(arrays) - 1)), (), layouts[-1])
    graph = Graph(tuple(layouts[:-1]), (node,), (len(arrays) - 1,))
    return Group(GroupKind.LOOP, graph, arrays[-1].shape)


def bound(threads: int, name: str, *arrays: np.ndarray[Any, Any]) -> tuple[Any, list[int]]:
    """Return a launcher of one op over the arrays, and their addresses."""
    group = loop(name, *arrays)
    return launcher(group, object_code.compile_group(group), threads), [address(a) for a in arrays]


def random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).uniform(1.0, 2.0, shape)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("shape", [(0,), (1,), (511,), (4096,), (100_003,), (3, 50_021), (911, 77)])
def test_every_element_is_made_once(pool: Any, threads: int, shape: tuple[int, ...]) -> None:
    x, y = random(*shape), random(*shape) + 1
    for order in (lambda a: a, np.transpose, lambda a: a[..., ::-1]):
        a, b, out = order(x), order(y), np.full(shape, np.nan)
        out = order(out)
        run, places = bound(threads, "subtract", a, b, out)
        for _ in range(4):
            out[...] = np.nan
            run(places)
            np.testing.assert_array_equal(out, a - b)
    assert (run.parts > 1) == (threads > 1 and x.size >= 4096)


def test_results_in_place_are_read_before_they_are_written(pool: Any) -> None:
    x = random(200_000)
    expect = x + x
    run, places = bound(2, "add", x, x, x)
    run(places)
    np.testing.assert_array_equal(x, expect)


def test_what_another_thread_raises_is_the_callers(pool: Any) -> None:
    n = 120_000
    x, y, out = random(n), random(n), np.empty(n)
    run, places = bound(3, "divide", x, y, out)
    for _ in range(3):
        run(places)
    assert run.parts > 1
    for place in range(0, n, n // 40):
        for value, divisor, flag in ((1.0, 0.0, "divide"), (1e300, 1e-300, "over")):
            x[place], y[place] = value, divisor
            clear_floating_point_flags()
            run(places)
            assert floating_point_flags() == {flag}, place
            x[place] = y[place] = 1.0
            clear_floating_point_flags()
            run(places)
            assert floating_point_flags() == set(), place


@pytest.mark.skipif(sys.platform != "linux", reason="C's numbers for rounding modes are Linux's")
def test_every_part_rounds_as_the_caller_does(pool: Any) -> None:
    upward = {"x86_64": 0x800, "aarch64": 0x400000}[os.uname().machine]
    library = ctypes.CDLL(None)
    x, y = np.ones(100_000), np.full(100_000, 3.0)
    out, down = np.empty(100_000), np.empty(100_000)
    run, places = bound(3, "divide", x, y, out)
    before = library.fegetround()
    library.fesetround(upward)
    try:
        for _ in range(20):
            run(places)
    finally:
        library.fesetround(before)
    assert run.parts > 1
    np.divide(x, y, out=down)
    assert (out > down).all()
    run(places)
    np.testing.assert_array_equal(out, down)


def test_python_threads_at_once_all_get_their_own(pool: Any) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        x, out = random(60_000) + number, np.empty(60_000)
        run, places = bound(3, "negative", x, out)
        for _ in range(100):
            out[:] = 0
            run(places)
            if not (out == -x).all():
                wrong.append(f"thread {number}")

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert wrong == []


# --- reductions
REDUCTIONS = [
    *((name, "float64") for name in ("sum", "nansum", "max", "argmin", "mean", "var", "std")),
    *((name, "float32") for name in ("sum", "min", "argmax", "mean", "var")),
    *((name, "int32") for name in ("sum", "prod", "max", "argmax", "any", "count_nonzero")),
    *((name, "bool") for name in ("any", "all", "sum", "argmax", "max")),
]


def reduction(name: str, dtype: str, shape: tuple[int, ...], made: bool) -> Group:
    """Return a group that reduces the last axis of its input, or of its square."""
    group = probes.reduction(name, dtype, shape, (len(shape) - 1,))
    if not made:
        return group
    (layout,) = group.graph.inputs
    square = Node(OPS["multiply"], (0, 0), (), layout)
    last = replace(group.graph.nodes[0], operands=(1,))
    return Group(group.kind, Graph((layout,), (square, last), (2,)), shape)


@pytest.mark.parametrize("made", [False, True], ids=["direct", "made"])
@pytest.mark.parametrize(("name", "dtype"), REDUCTIONS, ids=lambda word: str(word))
def test_reductions_have_the_same_bits_on_any_number_of_threads(
    pool: Any, name: str, dtype: str, made: bool
) -> None:
    for shape in ((511,), (512,), (4096,), (66_000,), (100_003,), (3, 70_001), (0,), (40, 9_000)):
        if name.startswith("arg") and 0 in shape:
            continue
        x = random(*shape) if dtype.startswith("float") else random(*shape) * 60 - 60
        x = (x * 10**4 % 1 * 8 - 4 if dtype.startswith("float") else x).astype(dtype)
        group = reduction(name, dtype, shape, made)
        code = object_code.compile_group(group)
        layout = group.graph.layouts[group.graph.outputs[0]]
        found: dict[tuple[int, int], bytes] = {}
        for threads in (1, 2, 7):
            run = launcher(group, code, threads)
            for turn in range(2):
                out = np.full(layout.shape, 113, layout.dtype)
                run([address(x), address(out)])
                found[threads, turn] = out.tobytes()
        assert len(set(found.values())) == 1, (shape, found)
        splits = x.size > 1000 and not (made and name in ("var", "std") and len(shape) == 1)
        if shape != (3, 70_001):
            assert (run.parts > 1) == splits, shape


def epilogue(dtype: str, shape: tuple[int, ...], both: bool) -> Group:
    """Return a group of ``(sum(x * x) - var(x)) * c``, of that and the variance if asked to."""
    (layout,) = (total := reduction("sum", dtype, shape, True)).graph.inputs
    square, last = total.graph.nodes
    spread = reduction("var", dtype, shape, False).graph.nodes[0]
    nodes = (
        replace(square, operands=(0, 0)),
        replace(last, operands=(2,)),
        replace(spread, operands=(0,)),
        Node(OPS["subtract"], (3, 4), (), last.layout),
        Node(OPS["multiply"], (5, 1), (), last.layout),
    )
    graph = Graph((layout, last.layout), nodes, (6, 4) if both else (6,))
    return Group(GroupKind.ROWWISE, graph, shape)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_made_of_reductions_has_the_same_bits_on_any_number_of_threads(
    pool: Any, dtype: str, both: bool
) -> None:
    for shape in ((511,), (4096,), (100_003,), (3, 70_001), (40, 9_000)):
        x = random(*shape).astype(dtype)
        c = random(*shape[:-1]).astype(dtype)
        group = epilogue(dtype, shape, both)
        code = object_code.compile_group(group)
        reductions = []
        for name, made in (("sum", True), ("var", False)):
            reductions.append(np.empty(shape[:-1], dtype))
            alone = reduction(name, dtype, shape, made)
            launcher(alone, object_code.compile_group(alone), 1)(
                [address(x), address(reductions[-1])]
            )
        expect = [(reductions[0] - reductions[1]) * c, reductions[1]]
        for threads in (1, 2, 7):
            run = launcher(group, code, threads)
            for _ in range(2):
                outs = [np.full(shape[:-1], 113, dtype) for _ in group.graph.outputs]
                run([address(x), address(c), *map(address, outs)])
                for out, want in zip(outs, expect, strict=False):
                    assert out.tobytes() == want.tobytes(), (shape, threads)
        assert (run.parts > 1) == (x.size > 1000)


@pytest.mark.parametrize(("columns", "together"), [(64, 64), (128, 64), (256, 128), (4096, 1024)])
def test_columns_side_by_side_stay_together(columns: int, together: int) -> None:
    """Parts of a few columns would each read nearly every line of the whole array."""
    group = probes.reduction("sum", "float32", (5000, columns), (0,))
    shape = nest(group)
    assert shape.columns
    assert _axis(shape, 5000 * columns, 1024, 2) == (0, together)
    rows = nest(probes.reduction("sum", "float32", (5000, columns), (1,)))
    assert _axis(rows, 5000 * columns, 1024, 2) == (0, max(1, 1024 // columns))


def test_a_reduction_that_is_decided_ends_every_part(pool: Any) -> None:
    pool.set_costs(core.JOIN_SECONDS, core.WAKE_SECONDS)
    x = np.zeros(50_000_000, bool)
    group = reduction("any", "bool", x.shape, False)
    run, out = launcher(group, object_code.compile_group(group), 3), np.zeros((), bool)

    def seconds(place: int) -> float:
        x[place] = True
        out[...] = False
        began = time.perf_counter()
        run([address(x), address(out)])
        took = time.perf_counter() - began
        assert out
        x[place] = False
        return took

    # Each the least of many: a thread that has no processor just then reads no flag. Parts that
    # went on would take as long wherever it is decided, however often it is tried.
    early = late = float("inf")
    for _ in range(200):
        early, late = min(early, seconds(5)), min(late, seconds(x.size - 1))
        if early < late / 3:
            break
    assert early < late / 3
    run([address(x), address(out)])
    assert not out


CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int64)
)


def spied(pool: Any, work: Any, parts: int) -> Any:
    """Return a launcher of a kernel in Python, ``work(length)``, of so many parts."""

    def kernel(addresses: int, dims: Any, strides: Any) -> None:
        work(dims[0])

    function = CALLBACK(kernel)
    entry = ctypes.cast(function, ctypes.c_void_p).value
    return pool.Launcher(entry, (parts,), (0,), 0, 1, function, 0, 1, 1 << 20)


def until_asleep(pool: Any) -> None:
    """Return when every worker sleeps, so that all are woken for the next run: one that spins as
    it begins may fall asleep unseen, and the run goes on without it."""
    while pool.state()["asleep"] < pool.state()["started"]:
        time.sleep(0.001)


def test_who_is_interrupted_holds_up_its_own_part_only(pool: Any) -> None:
    pool.set_threads(2)
    caller = threading.get_ident()
    done: list[tuple[bool, int]] = []
    begun = threading.Event()

    def work(length: int) -> None:
        here = threading.get_ident() == caller
        if here:
            begun.wait()
        else:  # interrupted until there is nothing else to do
            begun.set()
            while sum(length for _, length in done) + length < 24:
                time.sleep(0.001)
        done.append((here, length))

    run = spied(pool, work, 24)
    begun.set()
    run([0])  # nobody is woken for the first one before it is known what a part takes
    for _ in range(3):
        until_asleep(pool)
        done.clear()
        begun.clear()
        run([0])
        assert sum(length for _, length in done) == 24
        assert [here for here, _ in done].count(False) == 1  # the others were not kept for it


def test_nothing_of_a_run_is_left_when_it_returns(pool: Any) -> None:
    pool.set_threads(3)
    inside = 0
    lock = threading.Lock()

    def work(length: int) -> None:
        nonlocal inside
        with lock:
            inside += 1
        time.sleep(0.001)
        with lock:
            inside -= 1

    run = spied(pool, work, 7)
    for _ in range(10):
        run([0])
        assert inside == 0


def test_short_kernels_stay_on_one_thread(pool: Any) -> None:
    pool.set_costs(core.JOIN_SECONDS, 10.0)
    x, out = random(20_000), np.empty(20_000)
    run, places = bound(2, "negative", x, out)
    for _ in range(20):
        run(places)
    assert run.parts == 1
    assert 0 < run.seconds < 1.0


def test_a_round_trip_between_threads_is_timed(pool: Any) -> None:
    pool.set_threads(1)
    assert pool.round_trip() == 0.0
    pool.set_threads(3)
    assert 0 < min(pool.round_trip() for _ in range(20)) < 0.1
    assert pool.state()["started"] >= 2


def foreseen(
    runs: list[list[float]], pauses: list[float] | None = None, wake: float = 2e-6
) -> list[int]:
    """Return on how many threads each run goes, of lists of what it takes on 1, 2, 4, ... ."""
    core.set_threads(1 << (len(runs[0]) - 1))
    core.set_costs(1e-6, wake)
    try:
        return core.foresee(runs, pauses or [0.0] * len(runs))
    finally:
        core.set_costs(core.JOIN_SECONDS, core.WAKE_SECONDS)
        core.set_threads(thread_count())


def test_sharing_that_does_not_pay_ends() -> None:
    # as if other work had every processor but the caller's
    threads = foreseen([[0.008, 0.05]] * 24)
    assert max(threads) == 2
    assert threads[-8:] == [1] * 8, threads


@pytest.mark.parametrize(
    "slow, settled",
    [
        (range(4), 16),  # the first runs bring the data to the other processor's caches
        (range(24, 26), 30),  # a worker that is interrupted twice
        (range(24, 60), 300),  # neighbours that come and go
    ],
    ids=["at first", "twice", "long"],
)
def test_sharing_goes_on_after_runs_that_took_long(slow: range, settled: int) -> None:
    runs = settled + 16
    threads = foreseen([[0.008, 0.03 if i in slow else 0.0045] for i in range(runs)])
    assert threads[-16:].count(2) > 12, threads
    if len(slow) > 30:
        assert threads[40:60].count(1) > 12, threads


def test_workers_are_woken_for_runs_that_come_one_after_the_other() -> None:
    """A run takes 60 µs, or 31 on two threads; waking the other takes 50."""

    def threads(*lengths: int) -> list[list[int]]:
        pauses = [1e-2 if i == 0 else 1e-6 for length in lengths for i in range(length)]
        found = foreseen([[60e-6, 31e-6]] * len(pauses), pauses, wake=50e-6)
        return [found[sum(lengths[:i]) :][:length] for i, length in enumerate(lengths)]

    alone, *more = threads(*[1] * 40, *[7] * 12)[8:]
    assert alone == [1]
    assert sum(runs.count(2) for runs in more[:30]) <= 3, more  # nobody sees the worker awake
    assert all(runs.count(2) >= 6 for runs in more[-6:]), more
    # As soon as one comes alone again, no more than once.
    tail = threads(*[7] * 12, *[1] * 20)[12:]
    assert sum(runs.count(2) for runs in tail) <= 4, tail


@pytest.mark.parametrize("pause, together", [(300e-6, True), (800e-6, False)])
def test_workers_stay_awake_through_pauses_that_are_short_and_alike(
    pause: float, together: bool
) -> None:
    """A run takes 60 µs, or 31 on two threads; waking the other takes 50: up to ten times that."""
    threads = foreseen([[60e-6, 31e-6]] * 64, [pause] * 64, wake=50e-6)
    assert (threads[-32:].count(2) > 28) == together, threads
    # One that is long costs no more than what comes next.
    pauses = [pause] * 40 + [1e-2] + [pause] * 20
    threads = foreseen([[60e-6, 31e-6]] * len(pauses), pauses, wake=50e-6)
    assert (threads[-8:].count(2) > 6) == together, threads


def test_what_is_foreseen_begins_with_no_series() -> None:
    """Waking for the first run pays only where a series before it would have paid."""
    runs = [[60e-6, 31e-6]]
    foreseen(runs * 400, [1e-6] * 400, wake=1e-3)
    assert foreseen(runs * 16, [1e-6] * 16, wake=1e-3)[1:] == [1] * 15


@pytest.mark.parametrize("best", [2, 4, 8])
def test_fewer_threads_are_used_where_more_are_slower(best: int) -> None:
    # as if so many had all that memory gives, and more were in each other's way
    seconds = [0.008 / count if count <= best else 0.006 for count in (1, 2, 4, 8)]
    threads = foreseen([seconds] * 64)
    assert max(threads) == 8
    assert threads[-32:].count(best) >= 28, threads


def test_every_thread_has_the_same_share_each_time() -> None:
    core.set_threads(2)
    core.set_costs(0.0, 0.0)
    caller = threading.get_ident()
    taken: dict[bool, list[int]] = {}
    base = 1 << 12
    begun = threading.Event()

    def kernel(addresses: Any, dims: Any, strides: Any) -> None:
        place = ctypes.cast(addresses, ctypes.POINTER(ctypes.c_int64))[0]
        here = threading.get_ident() == caller
        taken[here].append((place - base) // 8)
        if not here:
            begun.set()
        begun.wait()  # with its first part, for the other one to have its own
        time.sleep(0.002)

    function = CALLBACK(kernel)
    entry = ctypes.cast(function, ctypes.c_void_p).value
    try:
        run = core.Launcher(entry or 0, (64,), (8,), 0, 1, function, 0, 1, 1 << 20)
        taken.update({True: [], False: []})
        begun.set()
        run([base])  # nobody is woken for the first one before it is known what a part takes
        for _ in range(6):
            until_asleep(core)
            taken.update({True: [], False: []})
            begun.clear()
            run([base])
            # each in order from where its half begins, and of the other half what was left over
            assert taken[True][0] == 0 and sorted(taken[True] + taken[False]) == list(range(64))
            assert taken[False][0] == 32, taken
    finally:
        core.set_costs(core.JOIN_SECONDS, core.WAKE_SECONDS)
        core.set_threads(thread_count())


def test_threads_that_wait_for_other_programs_are_met_as_often_as_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, met = [0.0], []

    def round_trip(threads: int = 4) -> float:
        met.append(threads)
        clock[0] += 0.4  # a hundred times what a trip takes at most of a processor's time
        return 0.4

    told = SimpleNamespace(round_trip=round_trip, state=lambda: {"threads": 4})
    monkeypatch.setattr(timing, "threads", told)
    monkeypatch.setattr(timing, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(timing, "sleep", lambda seconds: None)
    assert [one.samples for one in timing.time_threads(0.09).values()] == [1] * 4
    assert [one.samples for one in timing.time_threads(1.0).values()] == [3] * 4
    met.clear()
    try:
        cpu = device("cpu")
        Calibration(backend_of(cpu), cpu, 0.9)._share_work()
        assert met == [4, 4, 4, 2, 2]  # the first one: are there any?
    finally:
        core.set_costs(core.JOIN_SECONDS, core.WAKE_SECONDS)


def test_what_sharing_costs_is_measured_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def round_trip(threads: int = 2) -> float:
        took = 5e-5 if slept else 1e-6  # of one that slept until now
        slept.clear()
        return took

    # What other work makes of these figures is nothing to rest an assertion on.
    told = SimpleNamespace(round_trip=round_trip, state=lambda: {"threads": 2})
    monkeypatch.setattr("alight._src.measure.timing.threads", told)
    monkeypatch.setattr("alight._src.measure.timing.sleep", slept.append)
    try:
        cpu = device("cpu")
        calibration = Calibration(backend_of(cpu), cpu, 0.2)
        for _ in calibration.steps():
            pass
        kept = Profile.from_dict(calibration.profile().to_dict()).one_offs
        assert (kept["join"].value, kept["wake"].low) == (1e-6, 5e-5)
        core.set_costs(*ALWAYS)
        share_costs(kept)
        state = core.state()
        assert state["join_seconds"] == kept["join"].value
        assert state["wake_seconds"] == kept["wake"].low
    finally:
        core.set_costs(core.JOIN_SECONDS, core.WAKE_SECONDS)
        core.set_threads(thread_count())


def test_bad_arguments_are_told(pool: Any) -> None:
    with pytest.raises(ValueError, match="0 threads"):
        pool.set_threads(0)
    with pytest.raises(ValueError, match="3 strides do not go with 1 axes of 2 operands"):
        pool.Launcher(1, (4,), (8, 8, 8), 1, 1, None)
    run, places = bound(2, "negative", random(10), np.empty(10))
    with pytest.raises(ValueError, match="1 addresses for 2 operands"):
        run(places[:1])


# --- whole programs
PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import alight
from alight._core import threads as core
core.set_costs(0.0, 0.0)

@alight.jit
def work(x):
    return np.sqrt(x * x + 1.0) * 0.5 - x

x = np.random.default_rng(1).uniform(1.0, 2.0, 400_000)
expect = np.sqrt(x * x + 1.0) * 0.5 - x
def check():
    with alight.policy(force="cpu:generated", floor=0):
        assert (np.asarray(work(x)) == expect).all()
for _ in range(5): check()
assert core.state()["started"] == 2, core.state()
"""

ENDS = {
    "fork": """
child = os.fork()
if child == 0:
    signal.alarm(280)  # one that hangs does not outlive this test's limit of 300 s
    assert core.state()["started"] == 0
    for _ in range(20): check()
    assert core.state()["started"] == 2
    os._exit(0)
for _ in range(20): check()
assert os.waitpid(child, 0)[1] == 0
""",
    "fork beside a run": """
stop = threading.Event()
def hammer():
    while not stop.is_set(): check()
other = threading.Thread(target=hammer)
other.start()
for _ in range(8):
    child = os.fork()
    if child == 0:
        signal.alarm(280)
        for _ in range(5): check()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
other.join()
""",
    "exit beside a run": """
def hammer():
    while True: check()
for _ in range(2): threading.Thread(target=hammer, daemon=True).start()
time.sleep(0.2)
""",
    "interrupt": """
def interrupted(*_):
    global struck
    struck = True
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupted)
seen = 0
for turn in range(40):
    struck = False
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4 * (turn + 1))
        while not struck: check()
    except KeyboardInterrupt:
        seen += 1
    check()
assert seen > 20  # Python ignores those that come while an object is deleted
""",
}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork and no SIGALRM")
@pytest.mark.parametrize("end", ENDS, ids=str)
def test_a_program_ends_as_it_should(end: str) -> None:
    environ = {**os.environ, "ALIGHT_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + ENDS[end]],
        env=environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("threads", [1, 2, 300])
def test_copies_by_threads_are_whole_and_no_more(pool: Any, threads: int) -> None:
    pool.set_threads(max(threads, 2))
    source = np.frombuffer(np.random.default_rng(1).bytes((5 << 20) + 9), np.uint8)
    for nbytes in (0, 1, (128 << 10) - 1, 128 << 10, (1 << 20) + 1, source.size - 7):
        target = np.zeros_like(source)
        pool.copy(address(target), address(source) + 7, nbytes, threads)
        assert np.array_equal(target[:nbytes], source[7 : 7 + nbytes])
        assert not target[nbytes:].any()


def test_who_copies_while_others_have_the_threads_does_it_alone(pool: Any) -> None:
    source = np.frombuffer(np.random.default_rng(2).bytes(3 << 20), np.uint8)
    targets = [np.zeros_like(source) for _ in range(8)]

    def copy(target: Any) -> None:
        for _ in range(20):
            pool.copy(address(target), address(source), source.size, 2)

    together = [threading.Thread(target=copy, args=(target,)) for target in targets]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert all(np.array_equal(target, source) for target in targets)
