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
