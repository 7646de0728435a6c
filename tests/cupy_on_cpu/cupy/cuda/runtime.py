"""CUDA's runtime where everything is done at once."""

import ctypes
import threading
from time import perf_counter
from types import SimpleNamespace
from typing import Any

from cupy.cuda import memory

is_hip = False
events: dict[int, float] = {}
streams: list[int] = []
captures: dict[int, list[Any]] = {}  # what is being captured, by stream
graphs: dict[int, list[Any]] = {}
launched: list[int] = []
registered: dict[int, int] = {}  # the host's memory, by address
captured: set[int] = set()  # events that are part of a graph
_thread = threading.local()  # the number of its device


class CUDARuntimeError(RuntimeError):
    """The runtime refused."""


def getDeviceCount() -> int:
    return 1


def getDeviceProperties(number: int) -> dict[str, Any]:
    return {
        "name": b"CPU", "uuid": b"\1\2", "totalGlobalMem": memory.TOTAL, "multiProcessorCount": 4,
        "asyncEngineCount": 2, "major": 9, "minor": 0,
    }  # fmt: skip


def driverGetVersion() -> int:
    return 13000


def runtimeGetVersion() -> int:
    return 13000


def getDevice() -> int:
    number: int = getattr(_thread, "number", 0)
    return number


def setDevice(number: int) -> None:
    assert number in (0, 1)  # alight's, and one that is a user's own
    _thread.number = number


def here() -> None:
    """Fail where the thread's device is not the one that alight drives."""
    assert getDevice() == 0, "of another device"


def _within(stream: int, work: Any) -> None:
    """Do work of a stream, or have the graph that is captured there do it."""
    here()
    if stream in captures:
        captures[stream].append(work)
    else:
        work()


def streamCreateWithFlags(flags: int) -> int:
    streams.append(flags)
    return len(streams)


def streamWaitEvent(stream: int, event: int, flags: int) -> None:
    assert events[event] > 0, "nothing is waited for where the event was never recorded"


def streamSynchronize(stream: int) -> None:
    here()
    if stream in captures:
        raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported")


def deviceSynchronize() -> None:
    here()
    if captures:
        raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported")


def eventCreateWithFlags(flags: int) -> int:
    events[number := len(events) + 1] = 0.0  # what was never recorded has happened
    return number


def eventRecord(event: int, stream: int) -> None:
    assert 0 < stream <= len(streams)
    here()
    captured.discard(event)
    if stream in captures:
        captured.add(event)
    events[event] = perf_counter()


def eventSynchronize(event: int) -> None:
    assert events[event] >= 0
    if event in captured:
        raise CUDARuntimeError("cudaErrorCapturedEvent")


def eventQuery(event: int) -> None:
    eventSynchronize(event)


def eventElapsedTime(start: int, end: int) -> float:
    return 1e3 * (events[end] - events[start])


def memcpyAsync(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
    _within(stream, lambda: ctypes.memmove(target, source, nbytes) and None)


def memsetAsync(target: int, byte: int, nbytes: int, stream: int) -> None:
    _within(stream, lambda: ctypes.memset(target, byte, nbytes) and None)


def memGetInfo() -> tuple[int, int]:
    return memory.TOTAL - sum([pool.total_bytes() for pool in memory.pools]), memory.TOTAL


def hostRegister(address: int, nbytes: int, flags: int) -> None:
    assert not any(
        start < address + nbytes and address < start + size for start, size in registered.items()
    ), "registered twice"
    registered[address] = nbytes


def hostUnregister(address: int) -> None:
    del registered[address]


def pointerGetAttributes(ptr: int) -> SimpleNamespace:
    host = any(start <= ptr < start + size for start, size in registered.items())
    return SimpleNamespace(type=1 if host else 0)


def streamBeginCapture(stream: int, mode: int) -> None:
    assert stream not in captures and mode == 1  # other threads may go on allocating
    here()
    captures[stream] = []


def streamEndCapture(stream: int) -> int:
    graphs[number := len(graphs) + 1] = captures.pop(stream)
    return number


def graphInstantiate(graph: int) -> int:
    graphs[number := -len(graphs) - 1] = graphs[graph]
    return number


def graphDestroy(graph: int) -> None:
    assert graph > 0 and graph in graphs


def graphExecDestroy(graph: int) -> None:
    assert graph < 0 and graphs.pop(graph)
    graphs[graph] = []  # its number is not given again


def graphLaunch(graph: int, stream: int) -> None:
    assert graph < 0 and graphs[graph], "a graph that was destroyed"
    assert stream not in captures
    here()
    launched.append(graph)
    for run in graphs[graph]:
        run()
