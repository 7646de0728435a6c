"""The CUDA driver's own functions, for launches without Python between: CuPy calls the same."""

from __future__ import annotations

import ctypes
import sys
from typing import NamedTuple

from alight._src.base.failures import failures

__all__ = ["Driver", "driver_of"]

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
# as the driver exports what its header calls without a version
_FUNCTIONS = (
    "cuLaunchKernel", "cuGraphLaunch", "cuCtxGetCurrent", "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
)  # fmt: skip
_CURRENT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))


class Driver(NamedTuple):
    """Addresses of functions, and the context that is meant."""

    launch: int  # cuLaunchKernel
    graph: int  # cuGraphLaunch
    current: int  # cuCtxGetCurrent
    push: int  # cuCtxPushCurrent
    pop: int  # cuCtxPopCurrent
    context: int


def driver_of() -> Driver | None:
    """Return the driver with this thread's current context; None where this process has no such
    driver, or none of its contexts is current: then CuPy, too, is not on it."""
    try:
        library = ctypes.CDLL(_LIBRARY)
        found = [
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS
        ]
    except failures(OSError, AttributeError):
        return None
    context = ctypes.c_void_p()
    if not all(found) or _CURRENT(found[2])(ctypes.byref(context)):
        return None
    launch, graph, current, push, pop = found
    where = context.value
    return Driver(launch, graph, current, push, pop, where) if where else None
