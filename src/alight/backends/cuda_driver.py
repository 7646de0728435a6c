"""The CUDA driver's own functions, for launches without Python between: CuPy calls the same."""

from __future__ import annotations

import ctypes
import sys
from typing import NamedTuple

__all__ = ["Driver", "driver_of"]

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_CURRENT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))


class Driver(NamedTuple):
    """Addresses of functions, and the context that is meant."""

    launch: int  # cuLaunchKernel
    graph: int  # cuGraphLaunch
    current: int  # cuCtxGetCurrent
    context: int


def driver_of() -> Driver | None:
    """Return the driver with this thread's current context; None where this process has no such
    driver, or none of its contexts is current: then CuPy, too, is not on it."""
    try:
        library = ctypes.CDLL(_LIBRARY)
        launch, graph, current = [
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
            for name in ("cuLaunchKernel", "cuGraphLaunch", "cuCtxGetCurrent")
        ]
    except (OSError, AttributeError):
        return None
    context = ctypes.c_void_p()
    if not (launch and graph and current) or _CURRENT(current)(ctypes.byref(context)):
        return None
    return Driver(launch, graph, current, context.value) if context.value else None
