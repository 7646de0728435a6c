"""As much of CuPy as alight calls, on the CPU: kernels run as ``cuda_on_cpu`` runs them.

It stands before the real one in a test process's path. Work is done at once, on one device.
"""

from typing import Any

import numpy as np

from cupy import arrays
from cupy import cuda as cuda
from cupy.cuda import memory

__version__ = "0 (on the CPU)"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    own = vars(arrays).get(name)
    return own if getattr(own, "__module__", "") == arrays.__name__ else arrays.numpys(np, name)


def get_default_memory_pool() -> memory.Pool:
    return memory.POOL
