"""What a floor leaves to NumPy is told: by line, how often, what was predicted and what it took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import floor
from alight._src.adapt import paces

N = 20_000


@pytest.fixture(autouse=True)
def measured() -> Iterator[None]:
    """Have the floor measured high, and nothing counted."""
    floor.here()
    floor.wait(0.0)
    known = floor.auto, floor.record_floor
    floor.auto = floor.record_floor = 1_000_000
    floor.forget_sites()
    paces.guess()
    alight.reset()
    yield
    floor.auto, floor.record_floor = known
    floor.forget_sites()


def array() -> Any:
    return alight.asarray(np.linspace(0.5, 2.0, N))


def rows() -> list[dict[str, Any]]:
    return [
        row
        for row in alight.report().to_dict()["below_floor"]
        if "test_below_floor" in row["call_site"]
    ]


def test_each_line_tells_its_op_its_runs_and_seconds() -> None:
    x = array()
    for _ in range(3):
        y = x + 1.0
        alight.exp(y)
    y.sum()
    found = {row["operation"]: row for row in rows()}
    assert set(found) == {"add", "exp", "sum"}
    assert [found[name]["runs"] for name in ("add", "exp", "sum")] == [3, 3, 1]
    assert all(row["elements"] == N and row["state"] == "numpy" for row in found.values())
    assert all(row["measured_seconds"] > 0 for row in found.values())
    one = floor.addition * N
    assert found["add"]["predicted_seconds"] == pytest.approx(one)
    assert found["exp"]["predicted_seconds"] == pytest.approx(one + 0.9e-9 * N, rel=0.1)
    assert found["sum"]["predicted_seconds"] < one
    assert len({row["call_site"] for row in found.values()}) == 3


def test_a_floor_that_was_given_is_told_too() -> None:
    x = array()
    with alight.policy(floor=10**7):
        alight.sin(x)
    (row,) = rows()
    assert row["operation"] == "sin" and row["runs"] == 1
    assert row["predicted_seconds"] > 10 * floor.addition * N


def test_what_nobody_leaves_to_a_floor_is_not() -> None:
    x, few = array(), alight.ones(100)
    with alight.policy(enabled=False):
        x + 1.0
    with alight.policy(floor=0):
        x + 1.0
    few + 1.0
    assert not rows()


def test_the_text_has_a_table_and_explain_only_its_own_call() -> None:
    x = array()
    x + 1.0
    text = str(alight.report())
    assert "Below the floor: NumPy's at once, sampled" in text
    told = alight.explain(lambda y: y * 2.0, x)
    (row,) = told.to_dict()["below_floor"]
    assert row["operation"] == "multiply" and row["runs"] == 1
    assert "multiply, 20,000 elements: cpu:numpy (below_floor), 1 run, predicted" in (
        told.explanation()
    )
    alight.reset()
    assert not rows()


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from alight._src.log.decisions import LOG

    monkeypatch.setattr(LOG, "_size", 2)
    x = array()
    x + 1.0
    x - 1.0
    x * 1.0
    assert len(alight.report().to_dict()["below_floor"]) <= 2


def test_functions_of_equal_code_are_told_apart() -> None:
    x, twins = array(), []
    for runs in (9, 3):
        names: dict[str, Any] = {}
        exec(compile("def f(x):\n    return x + 1.0\n", "test_below_floor", "exec"), names)
        twins.append(names["f"])
        for _ in range(runs):
            twins[-1](x)
    assert sorted(row["runs"] for row in rows()) == [3, 9]
    alight.reset()
    assert rows() == []
    twins[1](x)
    assert [row["runs"] for row in rows()] == [1]
