"""A full reduction of what only its own call holds is one kernel that writes one scalar."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.plan.plan import LaunchStep, Plan
from alight._src.run import evaluate

EXPRESSIONS = {
    "np.sum(np.sqrt(x * x + y * y))": "multiply+multiply+add+sqrt+sum",
    "np.sum(x * 2 + y, axis=None)": "multiply+add+sum",
    "(x * x - y).sum()": "multiply+subtract+sum",
    "(x * x - y).max(axis=None)": "multiply+subtract+max",
    "np.add.reduce(x - y)": "subtract+sum",
    "np.max(np.abs(x - y))": "subtract+absolute+max",
    "np.any(x > y)": "greater+any",
    "np.mean(x * y)": "multiply+mean",
}
# Something else holds the array, so it may be asked for: it is made, too.
HELD = ("z = x * 3; np.sum(z)", "np.sum(z := x * 4)", "kept(x * 5).sum()", "two(x * 6)")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """Return the decisions of a script under `alight run`, by line."""
    folder = tmp_path_factory.mktemp("script")
    head = textwrap.dedent(
        """
        import numpy as np
        x = np.linspace(0, 1, 1000)
        y = np.cos(x)
        print(x[0] + y[0])
        all_kept = []
        def kept(array):
            all_kept.append(array)
            return array
        def two(array):
            return array.sum(), array.max()
        """
    ).strip()
    lines = [*head.splitlines(), *EXPRESSIONS, *HELD]
    (folder / "script.py").write_text("\n".join(lines) + "\n")
    subprocess.run(
        [sys.executable, "-m", "alight", "run", "--report", "r.json", "script.py"],
        cwd=folder,
        check=True,
        env={
            **os.environ,
            **{"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"},
            "PYTHONPATH": str(Path(alight.errors.__file__).parents[1]),
        },
    )
    found: dict[int, list[dict[str, Any]]] = {}
    for row in json.loads((folder / "r.json").read_text())["decisions"]:
        number = int(row["call_site"].rpartition(":")[2])
        found.setdefault(number - len(head.splitlines()) - 1, []).append(row)
    return found


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)), ids=list(EXPRESSIONS))
def test_a_temporary_is_not_written(reported: dict[int, list[dict[str, Any]]], number: int) -> None:
    (row,) = reported[number]
    assert row["operation"] == list(EXPRESSIONS.values())[number]
    assert [shape for shape in row["shapes"] if shape == []][-1:] == [[]]
    assert row["shapes"].count([1000]) <= 2  # x and y; nothing of that size comes out


@pytest.mark.parametrize("number", range(len(HELD)), ids=HELD)
def test_what_another_holds_is_made(reported: dict[int, list[dict[str, Any]]], number: int) -> None:
    rows = reported[len(EXPRESSIONS) + number]
    assert any([1000] in row["shapes"][1:] for row in rows), rows


class Plans:
    """A watcher that keeps the plans of requests."""

    def __init__(self) -> None:
        self.found: list[Plan] = []

    def read(self, value: Any) -> None:
        """Take no note."""

    def plans(self, what: Any, ops: int, plan: Any) -> None:
        """Have it made at once."""

    def ran(self, leaves: Any, plan: Plan) -> None:
        """Keep the plan."""
        self.found.append(plan)

    def order(self, values: Any) -> None:
        """Nothing is leased."""


def distance(x: Any, y: Any) -> Any:
    return np.sum(np.sqrt(x * x + y * y))


def distance_by_method(x: Any, y: Any) -> Any:
    return np.sqrt(x * x + y * y).sum()


@pytest.mark.parametrize("function", [distance, distance_by_method])
def test_lazy_reductions_are_one_step_that_writes_a_scalar(function: Any) -> None:
    x, y = np.linspace(0, 1, 1000), np.linspace(2, 1, 1000)
    plans = Plans()
    with alight.policy(floor=0, force="cpu:generated"):
        evaluate.watch.by = plans
        try:
            lazy = float(function(alight.asarray(x), alight.asarray(y)))
        finally:
            evaluate.watch.by = None
        (plan,) = plans.found
        jitted: Any = alight.jit(function)
        for _ in range(3):
            assert float(jitted(x, y)) == lazy
        (kind,) = jitted._specializations.values()
        (program,) = kind.programs.values()
    for steps in (plan.steps, program.plan.steps):
        (step,) = steps
        assert isinstance(step, LaunchStep)
        assert [step.group.graph.layouts[n].shape for n in step.group.graph.outputs] == [()]
    np.testing.assert_allclose(lazy, function(x, y), rtol=1e-14)


COUNTED = """
import numpy as np
from alight._core import pending_storages

x = np.linspace(0, 1, 1000)
print(np.sum(x * 2) > 0)
print([s.value.op.name for s in pending_storages() if s.value.op.name != "multiply"])
"""


def test_counting_references_leaves_nothing_to_compute(tmp_path: Path) -> None:
    """NumPy keeps the operands of a reduction by a ufunc that was refused (2.4)."""
    (tmp_path / "script.py").write_text(COUNTED)
    done = subprocess.run(
        [sys.executable, "-m", "alight", "run", "--report", "r.json", "script.py"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
        env={
            **os.environ,
            **{"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"},
            "PYTHONPATH": str(Path(alight.errors.__file__).parents[1]),
        },
    )  # fmt: skip
    assert done.stdout.splitlines() == ["True", "[]"]
