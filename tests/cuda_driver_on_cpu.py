"""The driver's functions as the native core calls them, over the stand-in for CuPy."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from typing import Any

from alight.backends.cuda import cuda_session
from alight.backends.cuda.driver_api import Driver

CONTEXT = 77
launches: list[int] = []  # kernels, and graphs, that were launched without Python between
refused: list[int] = []  # what the next launches return instead, from the last
elsewhere = False  # whether another context is current
pushed: list[int] = []  # contexts on top of that
asked: Counter[str] = Counter()  # how often each function was called
inside: list[str] = []  # the function that runs, in whose midst the stand-in's own are called

_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3
)
_GRAPH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_CURRENT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
_PUSH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_FAILED = 719  # cudaErrorLaunchFailure


def _status(name: str, work: Callable[[], None]) -> int:
    """Do what the stand-in does, and return the status that the driver would."""
    inside.append(name)
    try:
        work()
    except Exception:
        return _FAILED
    finally:
        inside.pop()
    return 0


@_LAUNCH
def _launch(*given: Any) -> int:
    asked["launch"] += 1
    from cupy_backends.cuda.api import driver

    assert (pushed[-1] if pushed else CONTEXT + elsewhere) == CONTEXT
    if refused:
        return refused.pop()
    launches.append(given[0])
    return _status("launch", lambda: driver.launchKernel(*given))


@_GRAPH
def _graph(graph: int, stream: int) -> int:
    asked["graph"] += 1
    from cupy.cuda import runtime

    if refused:
        return refused.pop()
    launches.append(graph)
    return _status("graph", lambda: runtime.graphLaunch(ctypes.c_longlong(graph).value, stream))


@_CURRENT
def _current(context: Any) -> int:
    asked["current"] += 1
    context[0] = pushed[-1] if pushed else CONTEXT + elsewhere
    return 0


@_PUSH
def _push(context: int) -> int:
    asked["push"] += 1
    if refused:
        return refused.pop()
    pushed.append(context)
    return 0


@_CURRENT
def _pop(context: Any) -> int:
    asked["pop"] += 1
    context[0] = pushed.pop()
    return 0


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def install() -> None:
    """Have sessions find these functions."""
    found = Driver(*map(_address, (_launch, _graph, _current, _push, _pop)), CONTEXT)
    cuda_session.driver_of = lambda: found
