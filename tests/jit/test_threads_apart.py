"""Threads that write disjoint parts of one array: nothing that any of them wrote is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzzing import threaded
from fuzzing.known_faults import CHECK, THREADED

pytestmark = pytest.mark.usefixtures("looked_at_once")

STATEMENTS = 300
FIRST_SEED = 20_000
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("door", threaded.DOORS)
def test_random_threads_equal_numpy(door: str, request: pytest.FixtureRequest) -> None:
    if door in THREADED:
        request.applymarker(pytest.mark.xfail(reason=THREADED[door], strict=True))
    given = (door, "floor", str(FIRST_SEED), str(STATEMENTS))
    paths = os.pathsep.join(map(str, (TESTS, TESTS.parent / "src")))
    done = subprocess.run(
        [sys.executable, "-m", "fuzzing.threaded", *given],
        env=os.environ | {"PYTHONPATH": paths, "ALIGHT_CHECK": CHECK},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-300:]
    row = json.loads(done.stdout)
    assert row["statements"] >= STATEMENTS
    shown = [f"seed {w['seed']}: {w['message']}\n{w['program']}" for w in row["differences"][:3]]
    assert not shown, "\n".join(shown)
