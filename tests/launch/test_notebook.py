"""Notebooks: `%load_ext alight` and `%%alight`, in shells of their own processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython", reason="no IPython: pip install ipython")

# Runs cells that it is given as JSON; prints of each what is displayed, printed and raised.
_SHELL = """
import contextlib, io, json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell, found = InteractiveShell.instance(colors="nocolor"), []
for cell in json.load(sys.stdin):
    with capture_output() as seen:
        done = shell.run_cell(cell, store_history=True)
    error = done.error_in_exec or done.error_before_exec
    shown = [out.data for out in seen.outputs]
    found.append([seen.stdout, seen.stderr, repr(done.result), repr(error), shown])
print(json.dumps(found))
"""


def run(cells: list[str], tmp_path: Path, **variables: str) -> list[list[Any]]:
    done = subprocess.run(
        [sys.executable, "-c", _SHELL],
        input=json.dumps(cells), capture_output=True, text=True, check=False,
        cwd=tmp_path,
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython"), **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


LOAD = "%load_ext alight"
FLOORLESS = {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"}
CELLS = [
    "import numpy as np\nfrom numpy import linspace",
    "x = linspace(0, 1, 2000)\ny = np.sqrt(x * 2 + 1) - np.sin(x)",
    "y",
    "y.sum().round(9), y[3], y.shape, isinstance(y, np.ndarray)",
    "def scaled(x, by=2):\n    x *= by\n    return x[::3]\nscaled(y)[:4]",
    "for i in range(3):\n    y[i] = i\nprint(y[:5], end='')",
    "import collections\ncollections.deque([y.mean().round(9)])",
    "y[::2] += 1; y.max()",
    "y[5000]",
    "1 / 0",
    "np.zeros(3) @ np.zeros(4)",
    "%%time\nz = y + 1",
    "z.std().round(9)",
]


def test_cells_print_show_and_raise_what_they_do_without_alight(tmp_path: Path) -> None:
    plain = run(CELLS, tmp_path, **FLOORLESS)
    ours = run([LOAD, *CELLS], tmp_path, **FLOORLESS)[1:]
    for cell, one, other in zip(CELLS, plain, ours, strict=True):
        if not cell.startswith("%%time"):
            assert one[2:] == other[2:], cell
            assert len(one[0].splitlines()) == len(other[0].splitlines()), cell


def test_the_report_of_a_cell_names_its_lines(tmp_path: Path) -> None:
    cell = "%%alight\nx = np.linspace(0, 1, 2000)\ny = np.exp(-x).sum()\nprint('ran')"
    cells = [LOAD, "import numpy as np", cell, "_._repr_html_()"]
    _, _, reported, page = run(cells, tmp_path, **FLOORLESS)
    assert reported[0].startswith("ran\n")
    for text in (reported[0], page[2]):
        assert "negative+exp+sum" in text
        assert "Cell In[3], line 3" in text


def test_a_cell_that_fails_shows_its_error_and_no_report(tmp_path: Path) -> None:
    found = run([LOAD, "%%alight\n1 / 0", "%%alight now\n1"], tmp_path)
    assert "ZeroDivisionError" in found[1][0]
    assert found[1][2] == "None"
    assert "Fix: leave it out." in found[2][3]


def test_after_unloading_cells_are_plain(tmp_path: Path) -> None:
    cells = [
        LOAD,
        "import numpy as np\nx = np.zeros(2000)\ntype(x).__module__",
        "%unload_ext alight",
        "import numpy as np\ntype(np.zeros(2000)).__module__, x.sum()",
        LOAD,
        "import numpy as np\ntype(np.zeros(2000)).__module__",
    ]
    found = run(cells, tmp_path, **FLOORLESS)
    assert [row[2] for row in found[1::2]] == ["'alight'", "('numpy', np.float64(0.0))", "'alight'"]


def test_names_of_numpy_that_were_imported_before_are_told_of(tmp_path: Path) -> None:
    found = run(["import numpy as np", LOAD, LOAD], tmp_path)
    assert "alight: np was imported before" in found[1][1]
    assert "Fix: " in found[1][1]


def test_functions_of_numpy_that_were_imported_before_are_told_of(tmp_path: Path) -> None:
    cells = ["from numpy import linspace, sqrt\nfrom numpy.random import default_rng as rng", LOAD]
    _, (_, told, *_) = run(cells, tmp_path)
    assert "alight: linspace, rng were imported before, and stay NumPy's" in told


# A program that is young for as long as it runs, on a machine that was calibrated.
YOUNG = """
import time
from alight._src.adapt import first_plan
from alight._src.adapt.foreground import FOREGROUND
first_plan.is_host_stored = lambda: True
first_plan.left_to_numpy = lambda: False
FOREGROUND.began = time.perf_counter() + 1000.0
"""


@pytest.mark.parametrize("magic", ["", "%%alight\n"])
def test_a_cell_whose_report_is_asked_for_is_planned_from_its_first_line(
    tmp_path: Path, magic: str
) -> None:
    cell = f"{magic}a = np.arange(2_000_000.0)\nb = (np.sqrt(a) + a * 2).sum()"
    asked = "from alight._src.run import evaluate\nevaluate.requests.count"
    here = {"ALIGHT_CHECK": "0", "ALIGHT_CACHE_DIR": str(tmp_path / "cache")}
    found = run([YOUNG, LOAD, "import numpy as np", cell, asked], tmp_path, **here)
    assert found[4][2] == ("1" if magic else "0")
    assert ("sqrt" in found[3][0]) == bool(magic)


def test_modules_beside_the_notebook_are_the_programs(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import numpy as np\nx = np.ones(2000)\n")
    found = run([LOAD, "import beside\ntype(beside.x).__module__"], tmp_path, **FLOORLESS)
    assert found[1][2] == "'alight'"


def test_an_interrupted_cell_leaves_the_next_ones_right(tmp_path: Path) -> None:
    cells = [
        LOAD,
        "import numpy as np, signal, os\nx = np.linspace(0, 1, 2000)",
        "y = x * 2\nsignal.raise_signal(signal.SIGINT)\nz = y + 1",
        "(y + x)[-1], 'z' in dir()",
    ]
    found = run(cells, tmp_path, **FLOORLESS)
    assert "KeyboardInterrupt" in found[2][3] or "KeyboardInterrupt" in found[2][0]
    assert found[3][2] == "(np.float64(3.0), False)"
