"""Threads that write disjoint parts of one array: nothing that any of them wrote is lost."""

from __future__ import annotations

import pytest

from fuzzing import threaded
from fuzzing.known_faults import THREADED

STATEMENTS = 300
FIRST_SEED = 20_000


@pytest.mark.parametrize("door", threaded.DOORS)
def test_random_threads_equal_numpy(door: str, request: pytest.FixtureRequest) -> None:
    if door in THREADED:
        request.applymarker(pytest.mark.xfail(reason=THREADED[door], strict=True))
    done, found = threaded.run_many(door, "floor", FIRST_SEED, STATEMENTS)
    assert done >= STATEMENTS
    shown = [f"seed {w.seed}: {w.message}\n{w.program}" for w in found[:3]]
    assert not found, f"{len(found)} programs differ from NumPy:\n" + "\n".join(shown)
