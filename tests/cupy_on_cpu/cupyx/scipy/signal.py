"""SciPy's signal processing on the device."""

from typing import Any

import numpy as np


def convolve(in1: Any, in2: Any, mode: str, method: str) -> Any:
    assert (mode, method) == ("full", "direct")
    return np.convolve(in1, in2)
