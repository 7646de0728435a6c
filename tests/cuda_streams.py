"""Streams of the stand-in for CuPy that do nothing before they must: what is read or written again
too early is wrong. ``postpone`` makes them so."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any


def postpone(runtime: Any, driver: Any) -> None:
    """Have copies, fills and events wait until an event after them is waited for. A kernel is run
    when it is launched, with what its stream has before it."""
    works: dict[int, deque[Callable[[], None]]] = defaultdict(deque)
    latest: dict[int, tuple[int, int]] = {}  # of an event: its stream, and which record of all
    happened: set[int] = set()
    lock = threading.RLock()
    record, launch = runtime.eventRecord, driver.launchKernel
    query, fill = runtime.eventQuery, runtime.memsetAsync
    count = 0

    from cupy.cuda import memory

    memory.spoilt = False

    def run(stream: int, until: int | None = None) -> None:
        with lock:
            while works[stream] and until not in happened:
                works[stream].popleft()()

    def submitted(stream: int, work: Callable[[], None]) -> None:
        with lock:
            works[stream].append(work)

    def event_record(event: int, stream: int) -> None:
        nonlocal count
        with lock:
            record(event, stream)
            count += 1
            number = count
            latest[event] = stream, number
            works[stream].append(lambda: happened.add(number))

    def event_synchronize(event: int) -> None:
        if event in latest:
            run(*latest[event])

    def event_query(event: int) -> None:
        query(event)
        if event in latest and latest[event][1] not in happened:
            raise runtime.CUDARuntimeError("not ready")

    def stream_wait_event(stream: int, event: int, flags: int) -> None:
        told = latest[event]  # what was never recorded would not be waited for
        submitted(stream, lambda: run(*told))

    def memcpy(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        host = {1: source, 2: target}.get(kind)
        submitted(stream, lambda: ctypes.memmove(target, source, nbytes) and None)
        if host is not None and runtime.pointerGetAttributes(host).type != 1:
            run(stream)  # the driver returns when pageable memory was read or written

    def memset(target: int, byte: int, nbytes: int, stream: int) -> None:
        submitted(stream, lambda: fill(target, byte, nbytes, stream))

    def launch_kernel(*given: Any) -> None:
        run(given[8])
        launch(*given)

    runtime.eventRecord, runtime.eventSynchronize = event_record, event_synchronize
    runtime.eventQuery, runtime.streamWaitEvent = event_query, stream_wait_event
    runtime.memcpyAsync, runtime.memsetAsync = memcpy, memset
    runtime.streamSynchronize = run
    runtime.deviceSynchronize = lambda: [run(stream) for stream in tuple(works)]
    driver.launchKernel = launch_kernel
