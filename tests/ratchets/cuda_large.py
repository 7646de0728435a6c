"""What a CUDA device's memory does not hold: a chain over three arrays, beside the limit of the
link both ways."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import alight
from alight._src.log.decisions import LOG
from alight.backends.base import Copy
from alight.backends.host import memory_at

from .cuda_rig import DEVICE, Array, Rig

GIB = 1 << 30
PERIOD = (1 << 24) + 4099  # elements after which inputs repeat: no chunk has that many
RUNS = 4


def chain(x: Any, y: Any, z: Any) -> Any:
    return np.sqrt(x * x + y * y) * np.exp(-z) + np.sin(y) * np.float32(0.5)


def filled(array: Array, block: Array) -> Array:
    """Return an array that repeats a block."""
    for start in range(0, len(array), len(block)):
        part = array[start : start + len(block)]
        part[:] = block[: len(part)]
    return array


def limit_seconds(rig: Rig, given: int, made: int) -> float:
    """Return the seconds in which so many bytes come and others go at once, from and to pinned
    memory: measured with pieces of them."""
    backend, device = rig.backend, rig.device
    piece = max(given, made) // 16
    up, down = (backend.allocate(device, piece, "pinned") for _ in range(2))
    near, far = (backend.allocate(device, piece) for _ in range(2))
    taken = []
    for _ in range(RUNS):
        began = perf_counter()
        events = []
        for queue, data, total in ((1, up, given), (2, down, made)):
            for start in range(0, total // 16, piece):
                size = min(piece, total // 16 - start)
                host = memory_at(data.address, size)
                ends = (host, near) if queue == 1 else (far, host)
                spaces = ("host", device.space) if queue == 1 else (device.space, "host")
                events.append(backend.submit(device, queue, [Copy(*ends, size, *spaces)]))
        for event in events:
            backend.wait(event)
        taken.append(perf_counter() - began)
    return 16 * min(taken)


def pageable(rig: Rig, elements: int) -> Array:
    """Return memory as NumPy makes it."""
    return np.empty(elements, np.float32)


def pooled(rig: Rig, elements: int) -> Array:
    """Return memory that the link reaches as it is."""
    data = rig.backend.allocate(rig.device, 4 * elements, "pinned")
    return np.frombuffer(data.array, np.float32)


def capped(rig: Rig, found: dict[str, Any], nbytes: int = 6 * GIB, limit: int = 4 * GIB) -> None:
    """Run the chain with the device's pool limited: its answer, its share of the link's limit."""
    rig.backend.open(rig.device)
    session = rig.backend._sessions[DEVICE]
    elements = nbytes // 4
    generator = np.random.default_rng(4)
    blocks = [generator.random(min(PERIOD, elements), np.float32) * 3 + 0.1 for _ in range(3)]
    made = alight.jit(chain)
    with alight.policy(force="cpu:generated", floor=0):
        expected = np.asarray(made(*blocks))
    numpys = chain(*blocks)
    rows: dict[str, Any] = {
        "relative error to NumPy": float(np.max(np.abs(expected - numpys) / np.abs(numpys)))
    }
    wrong: dict[str, str] = {}
    link = limit_seconds(rig, 3 * nbytes, nbytes)
    rows["link both ways"] = {
        "seconds": link, "GB/s in": 3e-9 * nbytes / link, "GB/s out": 1e-9 * nbytes / link,
    }  # fmt: skip
    session.pool.free_all_blocks()
    session.pool.set_limit(size=limit)
    sources: tuple[Callable[[Rig, int], Array], ...] = (pageable, pooled)
    try:
        for source in sources:
            arrays = [filled(source(rig, elements), block) for block in blocks]
            taken, logs = [], []
            for _ in range(RUNS):
                LOG.reset()
                began = perf_counter()
                with alight.policy(force=DEVICE, floor=0):
                    result = np.asarray(made(*arrays))
                taken.append(perf_counter() - began)
                logs.append(LOG.snapshot())
            differing = 0
            for start in range(0, elements, len(expected)):
                part = result[start : start + len(expected)]
                differing += int((part != expected[: len(part)]).sum())
            if differing:
                wrong[source.__name__] = f"{differing} elements differ"
            log = logs[-1]
            # planned to stream there is nothing to be said
            if log.counts["launches"] < 2 and not any(
                "no memory left" in f.reason for f in log.fallbacks
            ):
                wrong[f"{source.__name__}, unsaid"] = f"not said: {log.fallbacks}"
            # The first two results are new memory, as the first one is held until the second is
            # there; the others land in what the ones before had.
            rows[source.__name__] = {
                "seconds": taken,
                "of the link, first": link / max(taken[:2]),
                "of the link, later": link / median(taken[2:]),
                "launches": log.counts["launches"],
                "fallbacks": [f.reason for f in log.fallbacks],
            }  # fmt: skip
            print(source.__name__, rows[source.__name__], flush=True)
            del arrays, result
    finally:
        session.pool.set_limit(size=0)
    found["capped"] = {**rows, "differing": wrong, "failed": {}}
