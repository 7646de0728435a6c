"""A notebook of ten cells, run by nbclient in kernels of their own, with `%load_ext alight` and
without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

for _name in ("nbclient", "ipykernel", "pandas", "matplotlib"):
    pytest.importorskip(
        _name, reason=f"no {_name}: pip install nbclient ipykernel pandas matplotlib"
    )

CELLS = [
    """
import os, signal, threading
import numpy as np, pandas as pd, matplotlib.pyplot as plt""",
    """
x = np.linspace(0.0, 4.0, 3_000_000)
y = np.exp(-x) * np.cos(3 * x) + 0.25 * x * x
total = (y - y.mean()).std()
round(float(total), 6), y.shape, y.dtype, isinstance(y, np.ndarray)""",
    """
def relaxed(u, turns):
    for _ in range(turns):
        u = 0.5 * u + 0.25 * np.roll(u, 1) + 0.25 * np.roll(u, -1) + 0.01 * np.sin(u) * (1 - u * u)
    return u
u = relaxed(np.cos(x), 20)
print(round(float(u.sum()), 3), round(float(u.max()), 6))""",
    """
frame = pd.DataFrame({"x": x[:1000], "y": y[:1000]})
frame["z"] = frame["x"] * 2 + y[:1000]
frame.describe().round(4)""",
    """
fig, ax = plt.subplots(figsize=(3, 2))
ax.plot(x[::50_000], y[::50_000].round(6))
plt.show()""",
    "y + np.ones(3)",
    """
w = np.cos(x)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
while True:
    w = 0.5 * w + 0.5 * np.sin(w)""",
    "bool((abs(w) <= 1).all()), round(float((y * 2).max()), 6), x[5]",
    """
near = np.sqrt((x - 1) ** 2 + (y - 0.5) ** 2)
score = np.where(near < 1, np.exp(-near * near), 0.1 * near) / (1 + near)
print(round(float(score.mean()), 8), int((near < 1).sum()))""",
    "y[::2] = 0\ny[:6].round(3)",
]
INTERRUPTED = 6
RUN = """
import json, sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.v4.new_notebook()
any_error = {"tags": ["raises-exception"]}
for cell in json.load(sys.stdin):
    notebook.cells.append(nbformat.v4.new_code_cell(cell, metadata=any_error))
NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
print(json.dumps([cell.outputs for cell in notebook.cells]))
"""
REPORT = "import alight\nprint(json.dumps(alight.report().to_dict()['decisions']))"


def run(folder: Path, first: str, *last: str) -> list[list[dict[str, Any]]]:
    """Return the outputs of the notebook's cells, and of others after them."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ALIGHT_")}
    environment |= {
        "ALIGHT_CACHE_DIR": str(folder / "cache"),
        "IPYTHONDIR": str(folder / "ipython"),
    }
    command = [sys.executable, "-c", RUN]
    if not first:  # a machine that was calibrated
        command = [sys.executable, "-m", "alight", "calibrate", "cpu", "--seconds", "1"]
    done = subprocess.run(
        command, input=json.dumps([first, *CELLS, *last]), capture_output=True, text=True,
        cwd=folder, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)[1:]) if first else []


def test_a_notebook_shows_the_same_outputs(tmp_path: Path) -> None:
    run(tmp_path, "")
    plain = run(tmp_path, "pass")
    ours = run(tmp_path, "%load_ext alight", "import json\n" + REPORT)
    for number, (found, wanted) in enumerate(zip(ours, plain, strict=False)):
        if number == INTERRUPTED:  # in whichever line
            found, wanted = ([one["ename"] for one in cell] for cell in (found, wanted))
            assert wanted == ["KeyboardInterrupt"]
        assert found == wanted, CELLS[number]
    sites = {row["call_site"] for row in json.loads(ours[10][0]["text"])}
    assert "Cell In[11], line 2" in sites, sites
