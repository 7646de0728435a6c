"""Programs in processes of their own, which share kernels by a cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def python(program: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ALIGHT_CACHE_DIR": str(cache), "ALIGHT_CALIBRATE": "off"},
        capture_output=True,
        text=True,
    )


PROGRAM = """
import numpy as np, alight
with alight.policy(floor=0, force="cpu:generated"):
    a = alight.asarray(np.linspace(0.0, 1.0, 50))
    b = np.asarray(np.sqrt(a) * a + 3.0)
assert np.array_equal(b, np.sqrt(np.linspace(0.0, 1.0, 50)) * np.linspace(0.0, 1.0, 50) + 3.0)
totals = alight.report().to_dict()["totals"]
print(totals["kernels_compiled"], totals["kernels_loaded"], totals["fallbacks"])
"""
