"""As much of CuPy as alight calls, on the CPU: kernels run as ``cuda_on_cpu`` runs them.

It stands before the real one in a test process's path. Work is done at once, on one device.
"""

from typing import Any

import numpy as np

from cupy import cuda as cuda
from cupy.cuda import memory

__version__ = "0 (on the CPU)"


class _Arrays(type):
    def __instancecheck__(cls, item: Any) -> bool:
        return isinstance(item, np.ndarray)


class ndarray(metaclass=_Arrays):
    """An ndarray over memory of the device's."""

    def __new__(cls, shape: Any, dtype: Any, memptr: memory.Memory, strides: Any) -> Any:
        return np.ndarray(shape, dtype, memptr.array, memptr.offset, strides)


def argsort(a: Any, axis: Any = -1) -> Any:
    return np.argsort(a, axis, kind="stable")  # the only kind there is


def __getattr__(name: str) -> Any:
    return getattr(np, name)


def get_default_memory_pool() -> memory.Pool:
    return memory.POOL


def get_default_pinned_memory_pool() -> memory.Pool:
    return memory.PINNED
