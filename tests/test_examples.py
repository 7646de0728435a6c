"""Every example prints the same under `python` and `alight run`, and its report says why."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alight._src.measure.profiles import fingerprint, save_profile
from alight.backends import registry
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded

ROOT = Path(__file__).resolve().parent.parent
# Small enough to be quick. What is worth planning differs from machine to machine, so the floor is
# set.
FLOOR = "4096"
ARGUMENTS = {
    "terrain.py": ["--size", "2"],
    "image.py": ["--size", "540"],
    "pricing.py": ["--size", "512"],
    "heat.py": ["--size", "512", "--steps", "40"],
    "kmeans.py": ["--size", "65536"],
}


def run(*command: str) -> str:
    """Return what Python prints when it runs the command from the repository root."""
    # pytest's own pythonpath setting does not reach subprocesses.
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, *command],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "ALIGHT_FLOOR_ALL": FLOOR},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_through_alight(script: str, arguments: Sequence[str], report: Path) -> str:
    """Return what the example prints under alight, which writes its report."""
    return run("-m", "alight", "run", "--report", str(report), f"examples/{script}", *arguments)


def predicted_seconds(decision: dict[str, Any]) -> float | None:
    """Return the seconds predicted for the candidate that was chosen."""
    chosen = (decision["chosen"], decision["implementation"])
    for candidate in decision["candidates"]:
        if (candidate["device"], candidate["implementation"]) == chosen:
            seconds: float | None = candidate["seconds"]
            return seconds
    return None


@pytest.fixture(scope="module")
def _known_machine() -> None:
    """Put a profile of this machine into the tests' own cache, where the examples' processes find
    it. Its figures are another's: what a busy machine could be measured in a second is not whole.
    """
    made = recorded("cpu", DEFAULT_SPEC)
    rates = {"numpy": made.rates["library"], "generated": made.rates["generated"]}
    here = fingerprint(registry.device("cpu"))
    known = replace(made, rates=rates, links={}, fingerprint=here, origin="measured")
    save_profile(replace(known, made_at=time.time()))


def test_every_example_is_listed() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(ARGUMENTS)


@pytest.mark.parametrize("script", ARGUMENTS)
def test_example_is_plain_numpy(script: str) -> None:
    imported = set()
    for node in ast.walk(ast.parse((ROOT / "examples" / script).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).split(".")[0])
    assert "numpy" in imported
    assert "alight" not in imported


@pytest.mark.usefixtures("_known_machine")
@pytest.mark.parametrize(("script", "arguments"), ARGUMENTS.items())
def test_example_prints_the_same_and_is_decided(
    script: str, arguments: list[str], tmp_path: Path
) -> None:
    expected = run(f"examples/{script}", *arguments)
    report = tmp_path / "report.json"
    assert run_through_alight(script, arguments, report) == expected
    assert expected.strip()

    decisions = json.loads(report.read_text(encoding="utf-8"))["decisions"]
    complete = [
        decision
        for decision in decisions
        if predicted_seconds(decision) is not None and decision["measured_seconds"] is not None
    ]
    reasons = sorted({str(decision["reason"]) for decision in decisions})
    assert complete, f"{len(decisions)} decisions, none predicted and measured; reasons: {reasons}"
