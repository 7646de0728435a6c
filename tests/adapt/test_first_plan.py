"""Programs too short to plan: under `alight run` the first work is NumPy's, on arrays of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import ArrayBase, floor
from alight._src.adapt import first_plan
from alight._src.adapt.foreground import FOREGROUND
from alight._src.api.stand_ins import numpy_namespace
from alight._src.run import evaluate

LEAST = 1000


@pytest.fixture
def young(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the NumPy of an `alight run` program that has just begun on a calibrated machine."""
    kept = floor.record_floor
    monkeypatch.setattr(first_plan, "is_host_stored", lambda: True)
    monkeypatch.setattr(first_plan, "left_to_numpy", lambda: False)
    monkeypatch.setattr(first_plan, "_waited", [])
    # However slow the machine is, no wait ends before a test ends it.
    monkeypatch.setattr(FOREGROUND, "began", time.perf_counter() + 1000.0)
    floor.scalars, floor.record_floor = True, LEAST
    yield numpy_namespace()
    floor.wait(0.0)
    floor.scalars, floor.record_floor = False, kept


def test_a_wait_begins_and_ends(core: Any) -> None:
    floor = type(core.floor)()
    floor.record_floor = 500
    assert not floor.kept and not floor.waits()
    floor.wait(1000.0)
    assert floor.waits() and floor.kept == 500 and floor.record_floor > 1 << 60
    floor.wait(2000.0)
    assert floor.kept == 500, "told twice"
    floor.wait(0.0)
    assert not floor.waits() and floor.kept == 0 and floor.record_floor == 500
    floor.wait(1e-9)
    time.sleep(0.001)
    assert not floor.waits() and floor.record_floor == 500, "over"
    floor.record_floor = -75
    floor.wait(10.0)
    assert not floor.waits() and floor.record_floor == -75, "not known yet"


def _step(np_: Any, a: Any) -> list[Any]:
    b = np_.sqrt(a) * 2.0 + a
    b[10:-10] = (b[20:] + b[:-20]) / 2
    b += a
    b[b > 50.0] = -1.0
    rows = b.reshape(40, -1)
    few = [row.max() for row in rows] + [float(x) for x in rows[3, :5]]
    c = np_.where(b > 3.0, b, a).astype(np.float32)
    return [b, c, rows.sum(axis=0), few, b.mean(), np_.concatenate((a, b)), np_.roll(c, 3)]


def test_young_programs_plan_nothing_and_keep_arrays(young: Any) -> None:
    before = evaluate.requests.count
    a = young.arange(4000.0)
    assert type(a) is alight.Array and floor.kept == LEAST
    found = _step(young, a)
    assert evaluate.requests.count == before, "something was planned"
    for item, expected in zip(found, _step(np, np.arange(4000.0)), strict=True):
        assert np.array_equal(np.asarray(item), expected)
        assert type(expected) is not np.ndarray or item.dtype == expected.dtype
    assert type(found[0]) is type(found[1]) is type(found[5]) is alight.Array
    assert type(found[2]) is np.ndarray, "results below the floor are ndarrays"


def test_programs_that_go_on_are_planned(young: Any) -> None:
    a = young.arange(4000.0)
    b = a + 1.0
    assert b.storage.value.op is None
    floor.wait(0.0)
    c = b * 2.0
    assert isinstance(c, ArrayBase) and c.storage.value.op is not None
    assert np.array_equal(np.asarray(c), (np.arange(4000.0) + 1.0) * 2.0)
    d = young.ones(4000)
    assert not floor.kept, "waited once only"
    assert (d + d).storage.value.op is not None


def test_the_end_of_a_wait_is_noticed_in_any_op(young: Any) -> None:
    a = young.arange(4000.0)
    floor.wait(1e-6)
    time.sleep(0.001)
    assert (a + 1.0).storage.value.op is not None


@pytest.mark.parametrize(
    "asks",
    [
        lambda: alight.policy(force="cpu:generated"),
        lambda: alight.policy(floor=0),
        lambda: alight.policy(devices=["cpu"]),
        lambda: alight.policy(pick="measure"),
    ],
)
def test_who_says_how_work_is_placed_does_not_wait(young: Any, asks: Callable[[], Any]) -> None:
    with asks():
        young.arange(4000.0)
        assert not floor.kept


def test_who_asks_for_what_plans_give_does_not_wait(young: Any) -> None:
    a = young.arange(4000.0)
    assert floor.kept
    alight.jit(lambda x: x + 1.0)
    assert not floor.kept
    assert (a + 1.0).storage.value.op is not None


def test_elements_of_a_row_are_read_as_they_are_when_their_turn_comes(young: Any) -> None:
    a, expected = young.arange(4000.0), np.arange(4000.0)
    seen: list[float] = []
    for array in (a, expected):
        for i, element in enumerate(array):
            if i == 3:
                array[:] = array * 2.0
            elif i == 2000:
                floor.wait(0.0)  # what is written from now on is recorded
                array[2000:] = array[2000:] - 1.0
            seen.append(element)
    assert seen[:4000] == seen[4000:]
    assert type(seen[0]) is np.float64


def test_who_writes_while_a_row_is_read_copies_it_once(young: Any) -> None:
    array = young.arange(4000.0)
    copies, last = 0, id(array.storage.value)
    for i, element in enumerate(array):
        array[i] = element * 2.0
        copies += id(array.storage.value) != last
        last = id(array.storage.value)
    assert copies <= 2
    assert np.array_equal(np.asarray(array), np.arange(4000.0) * 2.0)


@pytest.mark.parametrize("shape", [(4000,), (40, 100)])
@pytest.mark.parametrize("change", ["fewer", "more", "dtype", "shape", "no axis"])
def test_a_row_that_gets_another_form_is_read_on_in_it(
    young: Any, shape: tuple[int, ...], change: str
) -> None:
    def seen(array: Any) -> list[Any]:
        found = []
        for i, item in enumerate(array):
            found.append(np.asarray(item).tolist())
            if i == 2 and change == "fewer":
                array.resize((5, *shape[1:]), refcheck=False)
            elif i == shape[0] - 1 and change == "more":
                array.resize((shape[0] + 2, *shape[1:]), refcheck=False)
            elif i == 2 and change == "dtype":
                array.dtype = np.int64
            elif i == 2 and change == "shape":
                array.shape = (8, 500)
            elif i == 2 and change == "no axis":
                array.resize((), refcheck=False)
        return found

    assert seen(young.arange(4000.0).reshape(shape).copy()) == seen(
        np.arange(4000.0).reshape(shape).copy()
    )


def test_methods_of_small_arrays_are_numpys(young: Any) -> None:
    rows, expected = young.arange(4000.0).reshape(8, 500), np.arange(4000.0).reshape(8, 500)
    for name in ("sum", "prod", "min", "max", "mean", "std", "var", "any", "all", "argmin"):
        for given in ({}, {"axis": 0}, {"keepdims": True}):
            found = getattr(rows[2], name)(**given)
            wanted = getattr(expected[2], name)(**given)
            assert type(found) is type(wanted) and np.array_equal(found, wanted), (name, given)
    into = rows[3, :1].reshape(())
    assert rows[2].sum(out=into) is into and rows[3, 0] == expected[2].sum()
    with pytest.raises(np.exceptions.AxisError):
        rows[2].sum(axis=4)


SCRIPT = """
    import json, numpy as np, sys
    from alight._src.run import evaluate as runtime
    from alight._core import floor
    a = np.arange(2_000_000.0)
    b = (np.sqrt(a) + a * 2).sum()
    print(json.dumps([type(a).__module__, runtime.requests.count, floor.kept > 0, float(b)]))
"""


@pytest.mark.parametrize("asked", ["plain", "report", "explain"])
def test_a_short_script_on_a_calibrated_machine_is_numpys(tmp_path: Path, asked: str) -> None:
    script = tmp_path / "short.py"
    script.write_text(textwrap.dedent(SCRIPT))
    start = textwrap.dedent(
        """
        import sys, time
        from alight._src.adapt import first_plan
        from alight._src.adapt.foreground import FOREGROUND
        first_plan.is_host_stored = lambda: True
        first_plan.left_to_numpy = lambda: False
        FOREGROUND.began = time.perf_counter() + 1000.0  # however slow the machine is
        from alight.__main__ import main
        main()
        """
    )
    command = {"plain": ["run"], "report": ["run", "--report", "-"], "explain": ["explain"]}[asked]
    done = subprocess.run(
        [sys.executable, "-c", start, *command, str(script)],
        env=dict(os.environ, ALIGHT_CACHE_DIR=str(tmp_path / "cache")),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    module, requests, waits, total = json.loads(done.stdout.splitlines()[0])
    a = np.arange(2_000_000.0)
    assert module == "alight" and total == pytest.approx(float((np.sqrt(a) + a * 2).sum()))
    assert (requests == 0) == waits == (asked == "plain")


# --- what plans is loaded behind, while NumPy does what is asked for ---
def in_a_young_process(program: str, tmp_path: Path, **environment: str) -> Any:
    """Return what a program prints, as JSON; plans are not checked, which would ask for them."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={
            **os.environ,
            "ALIGHT_CHECK": "0",
            "ALIGHT_CACHE_DIR": str(tmp_path / "cache"),
            **environment,
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# Nothing is loaded before the program lets it be: what NumPy does meanwhile is seen.
HELD = """
    import json, sys, threading, time
    import numpy, alight
    import alight as np
    from alight._core import floor
    from alight._src.adapt import first_plan
    from alight._src.run import evaluate

    gate = threading.Event()
    first_plan.PARTS.clear()
    first_plan.FACTS[:] = [gate.wait, evaluate._execution]

    def until(reached):
        ends = time.perf_counter() + 20.0
        while not reached(first_plan._planner.state) and time.perf_counter() < ends:
            time.sleep(0.001)

    def begins():
        until(lambda state: state is not first_plan._Planner.ABSENT)

    def comes():
        gate.set()
        until(lambda state: state is first_plan._Planner.HERE)

    def planner():
        return [name for name in sys.modules if name.startswith("alight._src.plan.place")]
"""


def test_the_first_work_on_arrays_of_alights_is_numpys(tmp_path: Path) -> None:
    program = (
        HELD
        + """
    small = np.zeros(10) + 1.0
    small.to_numpy()
    states = [first_plan._planner.state.name]
    a = np.arange(2_000_000.0)
    b = a * 2.0
    done = b.storage.value.op is None
    b += 1.0
    b[:10] = 0.0
    total = float(b.sum())
    begins()
    states.append(first_plan._planner.state.name)
    before = evaluate.requests.count, len(planner())
    comes()
    c = a * 2.0
    recorded = c.storage.value.op is not None
    c.to_numpy()
    print(json.dumps([states, done, total, before, recorded, evaluate.requests.count,
                      type(b).__module__, floor.kept]))
    """
    )
    states, done, total, before, recorded, after, module, kept = in_a_young_process(
        program, tmp_path
    )
    expected = np.arange(2_000_000.0) * 2.0 + 1.0
    expected[:10] = 0.0
    assert total == float(expected.sum()) and done and module == "alight"
    assert states == ["ABSENT", "COMING"], "small arrays ask for nothing"
    assert before == [0, 0] and recorded and after == 1 and kept == 0


@pytest.mark.parametrize("joined", [True, False], ids=["the main one waits", "it has ended"])
def test_work_of_another_thread_has_what_plans_loaded(tmp_path: Path, joined: bool) -> None:
    program = (
        HELD
        + f"""
    def work():
        time.sleep(0.1)  # by now nothing of Python's runs in the main thread
        a = np.arange(2_000_000.0)
        (a * 2.0).to_numpy()
        begins()
        found = first_plan._planner.state.name
        comes()
        (a * 2.0).to_numpy()
        print(json.dumps([found, evaluate.requests.count]))

    thread = threading.Thread(target=work)
    thread.start()
    if {joined}:
        thread.join()
    """
    )
    assert in_a_young_process(program, tmp_path) == ["COMING", 1]


def test_jitted_calls_are_numpys_until_what_plans_is_there(tmp_path: Path) -> None:
    program = (
        HELD
        + """
    @alight.jit
    def step(x):
        return (x * 2.0 + x).sum()

    x = numpy.ones(2_000_000)
    results = [float(step(x)) for _ in range(50)]
    before = first_plan._planner.state.name, evaluate.requests.count, len(planner())
    comes()
    results += [float(step(x)) for _ in range(50)]
    print(json.dumps([before, evaluate.requests.count, list(set(results))]))
    """
    )
    before, requests, results = in_a_young_process(program, tmp_path)
    assert before == ["COMING", 0, 0]
    assert requests, "and then it is alight's turn"
    assert results == [6_000_000.0]


@pytest.mark.parametrize(
    "asks",
    ["force = 'cpu:numpy'", "floor = 0", "devices = ['cpu']"],
)
def test_who_says_where_work_is_done_waits_for_what_plans(tmp_path: Path, asks: str) -> None:
    program = (
        HELD
        + f"""
    with alight.policy({asks}):
        (np.zeros(2_000_000) + 1.0).to_numpy()
    print(json.dumps([evaluate.requests.count, len(planner())]))
    """
    )
    assert in_a_young_process(program, tmp_path) == [1, 1]


def test_a_child_that_is_born_meanwhile_plans_for_itself(tmp_path: Path) -> None:
    program = (
        HELD
        + """
    import os
    a = np.arange(2_000_000.0)
    (a + 1.0).to_numpy()
    begins()
    coming = first_plan._planner.state.name
    child = os.fork()
    if not child:
        (a + 1.0).to_numpy()
        os._exit(evaluate.requests.count)
    print(json.dumps([coming, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]))
    """
    )
    assert in_a_young_process(program, tmp_path) == ["COMING", 1]


def test_a_child_that_is_born_before_a_thread_has_begun_meets_large_work_anew(
    tmp_path: Path,
) -> None:
    program = (
        HELD
        + """
    import os
    from alight._core import hooks
    a, theirs = np.arange(2_000_000.0), hooks.large
    hooks.large = lambda: None  # as where the thread has had no turn yet
    (a + 1.0).to_numpy()
    child = os.fork()
    if not child:
        hooks.large = theirs
        (a + 1.0).to_numpy()
        begins()
        os._exit(first_plan._planner.state is first_plan._Planner.COMING)
    before = first_plan._planner.state.name
    print(json.dumps([before, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]))
    """
    )
    assert in_a_young_process(program, tmp_path) == ["ABSENT", 1]


def test_where_no_thread_can_be_had_who_plans_loads_it(tmp_path: Path) -> None:
    program = (
        HELD
        + """
    def none(*given):
        raise RuntimeError("can't start new thread")

    first_plan.start_new_thread = none
    a = np.arange(2_000_000.0)
    for _ in range(3):
        (a + 1.0).to_numpy()
        for _ in range(1000):
            pass
    print(json.dumps([evaluate.requests.count > 0, float((a + 1.0).sum())]))
    """
    )
    assert in_a_young_process(program, tmp_path) == [True, float(np.arange(1.0, 2e6 + 1).sum())]


def test_what_a_first_plan_loads(tmp_path: Path) -> None:
    program = """
    import json, sys, time
    import alight as np
    from alight._src.adapt import first_plan

    first_plan.come()
    while first_plan._planner.state is not first_plan._Planner.HERE:
        time.sleep(0.001)
    behind = set(sys.modules)
    a = np.zeros(2_000_000)
    total = (a * 2.0 + a).sum().to_numpy()
    print(json.dumps([sorted(set(sys.modules) - behind), sorted(sys.modules)]))
    """
    later, loaded = in_a_young_process(program, tmp_path)
    ours = [name for name in later if name.startswith("alight._src.plan")]
    assert not ours, "what plans is all behind"
    slow = ("dataclasses", "logging", "numpy.random", "importlib.metadata", "llvmlite", "copy")
    assert not set(slow).intersection(loaded), "each takes milliseconds, and no plan needs it"


def test_who_asks_for_an_explanation_has_the_call_planned(tmp_path: Path) -> None:
    program = (
        HELD
        + """
    (np.zeros(10) + 1.0).to_numpy()  # the floor is known, and all rests
    found = alight.explain(lambda x: x * 2.0 + x, np.zeros(2_000_000)).to_dict()
    print(json.dumps([len(found["decisions"]), found["demotions"]]))
    """
    )
    assert in_a_young_process(program, tmp_path) == [1, []]


def test_the_report_says_what_was_numpys_meanwhile(tmp_path: Path) -> None:
    program = (
        HELD
        + """
    (np.zeros(2_000_000) + 1.0).to_numpy()
    for _ in range(1000):
        pass
    told = alight.report().to_dict()["demotions"]
    print(json.dumps([[row["what"], row["reason"]] for row in told]))
    """
    )
    assert in_a_young_process(program, tmp_path) == [
        ["the program's first work", first_plan.LOADING]
    ]


def test_under_run_what_plans_is_there_when_the_wait_is_over(tmp_path: Path) -> None:
    program = (
        HELD
        + """
    from alight._src.adapt.foreground import FOREGROUND
    from alight._src.api.stand_ins import numpy_namespace

    first_plan.is_host_stored = lambda: True
    first_plan.left_to_numpy = lambda: False
    FOREGROUND.began = time.perf_counter() + 1000.0
    floor.scalars, floor.record_floor = True, 1000
    young = numpy_namespace()
    a = young.arange(4000.0)
    waits = a + 1.0
    told = [first_plan._planner.state.name, floor.kept, waits.storage.value.op is None]
    alight.jit(lambda x: x + 1.0)  # who jits does not wait for the second to be over
    comes()
    b = a + 1.0
    print(json.dumps([told, floor.kept, b.storage.value.op is not None, float(b.sum())]))
    """
    )
    expected = float((np.arange(4000.0) + 1.0).sum())
    assert in_a_young_process(program, tmp_path) == [["COMING", 1000, True], 0, True, expected]


def test_a_programs_time_counts_from_its_start(tmp_path: Path) -> None:
    """Also where what records comes later, with the first large array."""
    program = """
    import alight, json, sys, time
    time.sleep(0.25)
    early = "alight._src.adapt.foreground" in sys.modules
    from alight._src.adapt.foreground import FOREGROUND

    print(json.dumps([early, FOREGROUND.elapsed_seconds() > 0.25]))
    """
    assert in_a_young_process(program, tmp_path) == [False, True]
