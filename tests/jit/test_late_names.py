"""Functions of NumPy whose recording loads late are known to be pure all the same."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import numpy as np, alight
from alight._src.jit.purity import _known_pure
print(_known_pure(np.linalg.norm), _known_pure(np.fft.rfft))
"""


def test_what_loads_late_is_known_to_be_pure() -> None:
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=100
    )
    assert made.stdout.split() == ["True"] * 2
