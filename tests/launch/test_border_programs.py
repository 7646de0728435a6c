"""Programs that hand arrays to SciPy, where that is installed: by `alight run` and in `jit`."""

from __future__ import annotations

import pytest

from ratchets.border import DOORS, Found, run_program


@pytest.mark.parametrize("door", ["floorless", "jit"])
@pytest.mark.parametrize("name", ["ndimage_outputs", "optimize_minimize", "stats_results"])
def test_a_program_prints_what_plain_python_prints(name: str, door: str) -> None:
    pytest.importorskip("scipy")
    assert not run_program(name, DOORS[door]).problem(DOORS[door])


def test_a_program_that_launches_nothing_before_it_hands_over_is_a_problem() -> None:
    door = DOORS["jit"]
    right = Found(("1\n", 0), ("1\n", 0), "", 20_000)
    assert not right.problem(door)
    assert "no generated launch" in right._replace(before_crossing=0).problem(door)
    assert not right._replace(before_crossing=0).problem(DOORS["automatic"])
    assert "hands nothing over" in right._replace(before_crossing=None).problem(door)
    assert "differs" in right._replace(actual=("2\n", 0)).problem(door)
    assert "differs" in right._replace(expected=("1\n", 1), actual=("1\n", 1)).problem(door)
