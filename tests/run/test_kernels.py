"""Where kernels come from: this process, the disk, the compiler, or the background."""

from __future__ import annotations

import itertools
import os
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.adapt import tier_up
from alight._src.base.cache_registry import Cache, forget
from alight._src.codegen.llvm import elf, object_code
from alight._src.config.loading import policy
from alight._src.ir.group import Group
from alight._src.log.decisions import LOG
from alight._src.measure import probes
from alight._src.plan.compile_work import compile_seconds
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Estimate, Facts, LaunchStep
from alight._src.run import kernels
from alight._src.run.execute import Execution
from alight._src.store import Store
from alight.backends.registry import device
from alight.device import Reason, Unsupported
from kernel_process import PROGRAM, python

CPU = device("cpu")


@pytest.fixture(autouse=True)
def _settled() -> Iterator[None]:
    kernels.settle()  # what other tests asked for, too: compiled kernels are counted here
    yield
    kernels.settle()


def fresh_group(marker: float) -> Group:
    """Return a group whose structure no other test has."""
    from alight._core import make_layout
    from alight._src.ir.graph import Graph, GroupKind, Node
    from alight._src.ir.op_table import OPS

    layout = make_layout(np.dtype("float64"), (64,))
    nodes = []
    last = 0
    for i, bit in enumerate(f"{int(marker):b}"):
        nodes.append(Node(OPS["add" if bit == "1" else "multiply"], (last, 1), (), layout))
        last = 2 + i
    return Group(GroupKind.LOOP, Graph((layout, layout), tuple(nodes), (last,)), (64,))


def test_a_kernel_is_compiled_once_for_all_processes(tmp_path: Path) -> None:
    first, second = python(PROGRAM, tmp_path), python(PROGRAM, tmp_path)
    assert (first.stdout, first.stderr) == ("1 0 0\n", "")
    assert (second.stdout, second.stderr) == ("0 1 0\n", "")


def test_a_damaged_kernel_is_put_aside_and_made_anew(tmp_path: Path) -> None:
    python(PROGRAM, tmp_path)
    (path,) = tmp_path.rglob("*.bin")
    content = path.read_bytes()
    path.write_bytes(content[:-100] + bytes(100))
    done = python(PROGRAM, tmp_path)
    assert done.stdout == "1 0 0\n"
    assert "does not match its digest" in done.stderr
    assert python(PROGRAM, tmp_path).stdout == "0 1 0\n"


def test_a_kernel_that_takes_too_long_is_made_in_the_background_when_asked_for_again() -> None:
    group = fresh_group(0b1011001)
    assert kernels.kernel(CPU, group, "generated", None, patience=0.0) is None
    kernels.settle()
    assert kernels.kernel(CPU, group, "generated", None, patience=0.0) is None
    kernels.settle()
    assert kernels.kernel(CPU, group, "generated", None, patience=0.0) is not None


DAILY = """
import numpy as np, alight
from alight._src.run import kernels
from alight._src.measure import probes
from alight.backends.registry import device
kernels._WAIT_SECONDS = 60.0  # however busy the machine is
cpu = device("cpu")
found = []
for op in {ops}:
    group = probes.loop(op, "float64", 64)
    kernel = kernels.kernel(cpu, group, "generated", None, patience={patience})
    words = {{"compiling": "coming", "first_time": "first", "saves_little": "little"}}
    found.append("made" if kernel else words[kernels.missing(cpu, group)])
print(*found)
{then}
"""


def daily(cache: Path, patience: float, *ops: str, then: str = "") -> str:
    done = python(DAILY.format(ops=ops, patience=patience, then=then), cache)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_a_script_that_is_started_daily_gets_its_kernel_on_the_third_day(tmp_path: Path) -> None:
    load_seconds = compile_seconds(probes.loop("exp", "float64", 64), None, True, False)
    patience = 2 * load_seconds  # enough to load it, not to compile it
    # Else the program might be over before the thread that makes kernels has begun.
    days = [daily(tmp_path, patience, "exp", then="kernels.settle()") for _ in range(3)]
    assert days == ["first", "coming", "made"]
    assert [path.parent.name for path in tmp_path.rglob("*.json") if path.parent.name == "met"]


SETTLED = "kernels.settle()"


def test_a_kernel_that_saves_less_a_start_than_loading_takes_is_never_made(tmp_path: Path) -> None:
    little = compile_seconds(probes.loop("exp", "float64", 64), None, True, False) / 2
    days = [daily(tmp_path, little, "exp", then=SETTLED) for _ in range(5)]
    assert days == ["first", *["little"] * 4]
    assert not list(tmp_path.rglob("*.bin"))


def test_a_kernel_that_was_made_and_never_used_is_not_loaded_at_each_start(tmp_path: Path) -> None:
    """Twice in each start, which together saves less than loading the kernel takes."""
    little = compile_seconds(probes.loop("exp", "float64", 64), None, True, False) / 3
    days = [daily(tmp_path, little, "exp", "exp", then=SETTLED) for _ in range(5)]
    assert days == ["first coming", *["little little"] * 4]
    assert len(list(tmp_path.rglob("*.bin"))) == 1


def test_a_kernel_that_was_made_in_vain_is_loaded_once_a_start_loses_as_much(
    tmp_path: Path,
) -> None:
    little = compile_seconds(probes.loop("exp", "float64", 64), None, True, False) * 0.34
    assert daily(tmp_path, little, "exp", "exp", then=SETTLED) == "first coming"
    assert daily(tmp_path, little, *["exp"] * 3, then=SETTLED) == "little little coming"
    # and where that was in vain, too, once it loses twice as much
    assert daily(tmp_path, little, *["exp"] * 6) == "little little little little little coming"
    # and one that ran is had again at once
    daily(tmp_path, little, "exp", then="kernels.kernel(cpu, group, 'generated')")
    assert daily(tmp_path, little, "exp", "exp") == "little coming"


def test_what_was_lost_long_enough_is_compiled_when_the_program_is_over(tmp_path: Path) -> None:
    ops = ("exp", "log", "sin")
    slowest = max(compile_seconds(probes.loop(op, "float64", 64), None, False, True) for op in ops)
    patience = slowest * 0.7
    assert daily(tmp_path, patience, *ops) == "first first first"
    assert not list(tmp_path.rglob("*.bin"))
    assert "first" not in daily(tmp_path, patience, *ops)
    assert len(list(tmp_path.rglob("*.bin"))) == len(ops)
    assert daily(tmp_path, patience, *ops) == "made made made"


def test_what_has_cost_little_does_not_hold_the_end_of_the_program_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    background = kernels._Background()
    done: list[str] = []
    begun = threading.Event()

    def runs() -> None:
        begun.set()
        while not background._stopping:  # the jobs behind it are still waiting then
            time.sleep(0.001)
        done.append("runs")

    clock = itertools.count()  # however long it takes for that job to end
    monkeypatch.setattr(kernels, "perf_counter", lambda: 0.001 * next(clock))
    background.add("runs", runs)
    begun.wait()
    background.add("cheap", lambda: done.append("cheap"))
    background.add("too long", lambda: done.append("too long"), kernels._WAIT_SECONDS)
    background.add("pays", lambda: done.append("pays"), 0.002)
    background.stop()
    assert done == ["runs", "pays"]


def test_the_record_of_what_was_met_is_bounded_and_keeps_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    monkeypatch.setattr(tier_up, "default_store", lambda: store)
    monkeypatch.setattr(tier_up, "_KEPT", 3)
    try:
        for start in range(5):
            forget(Cache.KERNELS_MET)
            group = f"group{start}"
            assert tier_up.lost(group, 0.25, 0.1) == (0.25, Reason.FIRST_TIME)
            assert tier_up.lost(group, 0.5, 0.1) == (0.75, Reason.COMPILING)
            tier_up.keep()
        forget(Cache.KERNELS_MET)
        assert sorted(tier_up._earlier().items()) == [(f"group{i}", (0.75, 0)) for i in (2, 3, 4)]
        assert tier_up.lost("group3", 1.0, 0.1) == (1.75, Reason.COMPILING)
        tier_up.made("group3")
        tier_up.used("group4")
        tier_up.made("group4")  # as the thread may say that made it
        tier_up.keep()
        forget(Cache.KERNELS_MET)
        latest = {"group2": (0.75, 0), "group3": (1.75, 1), "group4": (0.0, 0)}
        assert tier_up._earlier() == latest
    finally:
        forget(Cache.KERNELS_MET)


def test_what_is_patiently_asked_for_is_made_at_once() -> None:
    assert kernels.kernel(CPU, fresh_group(0b1110001), "generated") is not None


def test_soon_makes_it_at_the_first_time_of_asking() -> None:
    group = fresh_group(0b1111001)
    assert not kernels.soon(CPU, group)
    kernels.settle()
    assert kernels.soon(CPU, group)


def test_a_gap_is_told_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise Unsupported("no such thing")

    monkeypatch.setattr(kernels.backend_of(CPU), "compile", fails)
    group = fresh_group(0b1101011)
    assert not kernels.soon(CPU, group)
    kernels.settle()
    assert kernels.soon(CPU, group)
    with pytest.raises(Unsupported, match="no such thing"):
        kernels.kernel(CPU, group, "generated")


def test_numpy_runs_while_the_kernel_is_made() -> None:
    """The plan says generated code is faster, and waiting for it is not worth it."""
    group = fresh_group(0b1000111)
    took = {"numpy": 2e-5, "generated": 1e-5}

    def estimate(group: Group, where: str, implementation: str) -> Estimate:
        seconds = took[implementation]
        return Estimate(seconds, seconds, seconds, {})

    plan = make_plan(
        group.graph, Facts((CPU,), {}, estimate=estimate, host_required=frozenset((0,)))
    )
    arrays = np.linspace(0.5, 1.0, 64), np.linspace(1.0, 2.0, 64)
    (step,) = [step for step in plan.steps if isinstance(step, LaunchStep)]
    with LOG.forgetting():
        for run in range(3):
            values = [alight.asarray(array).storage.value for array in arrays]
            shells = [values_of(node) for node in group.graph.nodes]
            Execution(plan, [*values, *shells]).run()
            kernels.settle()
            # calls that earlier tests left to the guard join the log when it is read
            record = [
                record
                for record in LOG.snapshot().records
                if record.decision.operation == step.decision.operation
            ][-1]
            told = record.decision.implementation, record.decision.reason
            if run < 2:
                assert told == ("numpy", Reason.COMPILING if run else Reason.FIRST_TIME)
            else:
                assert told == ("generated", Reason.CHEAPEST)


def values_of(node: Any) -> Any:
    from alight._core import Value

    return Value(node.op, (), (), node.layout)


def test_prediction_of_compiling_grows_with_the_bodies() -> None:
    short, long = (probes.loop(name, "float64", 64) for name in ("square", "exp"))
    made = compile_seconds(short, None, False, False)
    assert 0 < made < compile_seconds(long, None, False, False)
    assert compile_seconds(long, None, True, False) < made  # loading has no bodies to go through
    assert compile_seconds(short, None, False, True) > made


def test_threads_that_ask_for_one_kernel_get_it() -> None:
    group = fresh_group(0b1010101)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(kernels.kernel(CPU, group, "generated")))
        for _ in range(8)
    ]
    before = LOG.snapshot().counts["kernels_compiled"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert LOG.snapshot().counts["kernels_compiled"] == before + 1


FORKING = """
import warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside threads
import os, numpy as np, alight
from alight._src.run import kernels
from alight._src.measure import probes
from alight.backends.registry import device
for op in ("exp", "log", "sin", "cos", "tanh"):
    kernels.soon(device("cpu"), probes.loop(op, "float64", 64))
child = os.fork()
with alight.policy(floor=0, force="cpu:generated"):
    got = np.asarray(np.sqrt(alight.asarray(np.arange(9.0))))
assert np.array_equal(got, np.sqrt(np.arange(9.0)))
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_beside_the_background_leaves_both_able_to_compile(tmp_path: Path) -> None:
    done = python(FORKING, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_beside_a_kernel_that_is_made_leaves_the_child_its_collector(tmp_path: Path) -> None:
    text = """
        import warnings
        warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside threads
        import gc, os, threading
        from alight._src.measure.timing import quiet
        inside, done = threading.Event(), threading.Event()
        def make():
            with quiet():
                inside.set()
                done.wait()
        thread = threading.Thread(target=make)
        thread.start()
        inside.wait()
        child = os.fork()
        if not child:
            assert gc.isenabled()
            with quiet():
                assert not gc.isenabled()
            assert gc.isenabled()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        done.set()
        thread.join()
        assert status == 0 and gc.isenabled()
    """
    done = python(textwrap.dedent(text), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


FORKED_BESIDE = """
import warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside threads
import os, threading, numpy as np, alight, llvmlite.binding as llvm
from alight._src.codegen.llvm import compiled
from alight._src.run import kernels
inside, done = threading.Event(), threading.Event()
def make():  # as a kernel is, and it takes for ever
    with kernels._making, llvm.ffi.lib._lock:
        compiled.at_work.append(None)
        inside.set()
        done.wait()
        compiled.at_work.clear()
thread = threading.Thread(target=make)
thread.start()
inside.wait()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    done.set()
    thread.join()
with alight.policy(floor=0, force="cpu:generated"):
    got = np.asarray(np.sqrt(alight.asarray(np.arange(9.0))))
assert np.array_equal(got, np.sqrt(np.arange(9.0)))
assert child or alight.report().to_dict()["totals"]["kernels_compiled"] == 1
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_waits_for_no_compiler_and_the_child_has_its_own(tmp_path: Path) -> None:
    done = python(FORKED_BESIDE, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def compiling() -> Iterator[None]:
    """Have another thread compile a kernel all the while."""
    inside, done = threading.Event(), threading.Event()

    def make() -> None:
        with kernels._making:
            inside.set()
            done.wait()

    thread = threading.Thread(target=make)
    thread.start()
    inside.wait()
    yield
    done.set()
    thread.join()


@pytest.mark.usefixtures("compiling")
def test_who_can_go_on_in_numpy_waits_for_no_other_kernel() -> None:
    group = fresh_group(0b100110101)
    patience = 0.9 * kernels._WAIT_SECONDS  # enough to compile it
    assert compile_seconds(group, None, False, False) < patience
    assert kernels.kernel(CPU, group, "generated", None, patience) is None


@pytest.mark.skipif(not elf.HERE, reason="LLVM places object code here")
@pytest.mark.usefixtures("compiling")
def test_a_kernel_on_disk_waits_for_no_other_kernel() -> None:
    group = fresh_group(0b100110111)
    maker = kernels.Maker(CPU, group, None)
    data = object_code.compile_group(group).object
    kernels.keep(maker.stored_as, maker.key, "cpu", data)
    assert kernels.kernel(CPU, group, "generated") is not None


def test_the_end_of_a_program_waits_for_one_kernel_and_begins_no_other() -> None:
    background = kernels._Background()
    inside, done = threading.Event(), threading.Event()
    made: list[str] = []

    def make() -> None:
        inside.set()
        done.wait()
        made.append("first")

    background.add("first", make)
    inside.wait()
    background.add("second", lambda: made.append("second"), 0.0)
    threading.Timer(0.3, done.set).start()
    background.stop()
    # LLVM's own variables must not go while its code runs
    assert made == ["first"]


ENDING = """
import time
from alight._src.run import kernels
from alight._src.measure import probes
from alight.backends.registry import device
for op in ("exp", "log", "sin", "cos", "tanh"):
    for dtype in ("float32", "float64"):
        kernels.soon(device("cpu"), probes.loop(op, dtype, 64))
while len(kernels._background._jobs) == 10:  # the thread has not begun
    time.sleep(0.001)
"""


def test_a_process_that_ends_beside_the_background_ends_well(tmp_path: Path) -> None:
    for _ in range(3):
        done = python(ENDING, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    # what was made was kept
    assert list(tmp_path.rglob("*.bin"))


GOING_ON = """
import threading, time
from alight._src.run import kernels
from alight._src.measure import probes
from alight.backends.registry import device

def work():
    threading.main_thread().join()
    kernels.soon(device("cpu"), probes.loop("exp", "float64", 64))
    ends = time.perf_counter() + 20.0
    while not kernels._made and time.perf_counter() < ends:
        time.sleep(0.01)
    print(len(kernels._made))

threading.Thread(target=work).start()
"""


def test_kernels_are_made_while_a_thread_goes_on_after_the_main_one(tmp_path: Path) -> None:
    done = python(GOING_ON, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_waiting_is_for_what_was_forced() -> None:
    array = np.linspace(0.0, 1.0, 40)
    with policy(floor=0, force="cpu:generated"), LOG.forgetting():
        result = np.asarray(np.cbrt(alight.asarray(array)) * 7.0 - array)
        records = LOG.snapshot().records
    np.testing.assert_allclose(result, np.cbrt(array) * 7.0 - array, rtol=1e-14)
    assert {r.decision.implementation for r in records} == {"generated"}


def test_a_job_that_fails_does_not_stop_those_behind_it() -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    done = threading.Event()
    background = kernels._Background()
    background.add("fails", fail)
    background.add("follows", done.set)
    done.wait()
    background.stop()
    background.settle()
