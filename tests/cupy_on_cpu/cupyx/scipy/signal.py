"""SciPy's signal processing on the device."""

import warnings
from typing import Any

import numpy as np
from cupy import arrays

warnings.warn("cupyx.jit.rawkernel is experimental", FutureWarning, stacklevel=1)  # as CuPy's does


def convolve(in1: Any, in2: Any, mode: str, method: str) -> Any:
    assert (mode, method) == ("full", "direct")
    return arrays.made(np.convolve(in1.held, in2.held), ())
