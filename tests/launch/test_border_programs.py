"""Programs that hand arrays to SciPy, where that is installed: by `alight run` and in `jit`."""

from __future__ import annotations

import pytest

from ratchets.border import DOORS, run_program


@pytest.mark.parametrize("door", ["floorless", "jit"])
@pytest.mark.parametrize("name", ["ndimage_outputs", "optimize_minimize", "stats_results"])
def test_a_program_prints_what_plain_python_prints(name: str, door: str) -> None:
    pytest.importorskip("scipy")
    found = run_program(name, DOORS[door])
    assert found.same, found.errors
    assert found.launches > 0
