"""How fast this machine's memory is at each working set, and where its caches end.

Bytes are counted as STREAM does: those read and those written, not what the hardware moves besides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from alight.backends.machine import host_memory, processors

__all__ = ["Bandwidth", "measure", "measure_on"]

# From what every first-level cache holds to what no last-level cache does.
_LEAST, _MOST = 1 << 15, 1 << 29
_SECONDS = 0.02  # of each probe: hundreds of passes in a cache, a few through memory
_PASSES = 3
_COPIES = 9  # on a device, whose clock ramps up within the first ones
_SLICE = 1e-3  # shorter than what a scheduler gives, longer than thousands of ticks
# A working set is still in a cache where it is this much faster than memory.
_IN_CACHE = 1.25
# What a probe may miss of the peak: a clock that ramps, a page boundary, a neighbour.
_SLACK = 1.25
# A program may keep so much less than its arrays near at a time.
_NEAR = 4


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second by working set, best of the probes, and what follows.

    ``peaks`` are of the best slice of each thread, which other work did not reach. ``reading`` is
    what was reached beyond all caches by reading alone. A device's has no ``threads``.
    """

    curve: tuple[tuple[int, float], ...]
    threads: int
    peaks: tuple[tuple[int, float], ...] = ()
    reading: float = 0.0

    @property
    def memory(self) -> float:
        """Return bytes per second beyond all caches."""
        return max(rate for _, rate in self.curve[-2:])

    @property
    def knee(self) -> int:
        """Return the largest working set that is still served faster than memory would."""
        fast = [size for size, rate in self.curve if rate > _IN_CACHE * self.memory]
        return max(fast, default=self.curve[0][0])

    def limit(self, working_set: int) -> float:
        """Return the bytes per second that nothing with this working set can pass."""
        known = self.peaks or self.curve
        near = [rate for size, rate in known if size >= working_set / _NEAR]
        return _SLACK * max(near or [self.memory])

    def again(self, working_set: int) -> Bandwidth:
        """Return what is known after measuring once more about this working set."""
        near = [s for s, _ in self.curve if working_set / _NEAR <= s <= working_set * _NEAR]
        if not near or not self.threads:
            return self
        found = _best_of_probes([size // self.threads for size in near], self.threads)
        known = dict(self.peaks or self.curve)
        known.update({size: max(peak, known[size]) for size, (_, peak, _) in found.items()})
        return replace(self, peaks=tuple(sorted(known.items())))


def measure() -> Bandwidth:
    """Return the bandwidth of this machine, with a thread for each processor it may use.

    Probes: copying (one read, one written) and a maximum (one read), each thread on memory of its
    own. Takes a few seconds.
    """
    threads = len(processors()) or os.cpu_count() or 1
    most = min(_MOST, host_memory()[0] // 8)
    sizes = [size for size in (_LEAST << i for i in range(20)) if size * threads <= most]
    found = sorted(_best_of_probes(sizes, threads).items())
    curve = tuple((size, rate) for size, (rate, _, _) in found)
    peaks = tuple((size, peak) for size, (_, peak, _) in found)
    return Bandwidth(curve, threads, peaks, max(reading for _, (_, _, reading) in found[-2:]))


def measure_on(name: str) -> Bandwidth:
    """Return the bandwidth of a device's memory, by copies from one half of a working set to the
    other, each between two events."""
    from alight.backends import registry
    from alight.backends.base import Copy
    from alight.backends.host import memory_at

    device = registry.device(name)
    backend = registry.backend_of(device)
    curve = []
    for size in (_LEAST << i for i in range(20)):
        if size > min(2 * _MOST, backend.memory(device)[0] // 4):
            break
        source, target = (backend.allocate(device, size // 2) for _ in range(2))
        zeros = np.zeros(size // 2, np.uint8)
        given = memory_at(zeros.ctypes.data, size // 2)
        backend.wait(
            backend.submit(device, 0, [Copy(given, source, size // 2, "host", device.space)])
        )
        copy = Copy(source, target, size // 2, device.space, device.space)
        taken = []
        for _ in range(_COPIES):
            start = backend.submit(device, 0, ())
            end = backend.submit(device, 0, [copy])
            backend.wait(end)
            taken.append(backend.seconds(start, end))
        curve.append((size, size / min(taken)))
    return Bandwidth(tuple(curve), 0, reading=curve[-1][1])


def _best_of_probes(sizes: Sequence[int], threads: int) -> dict[int, tuple[float, float, float]]:
    """Return bytes per second, mean, peak and mean of reading alone, by the working set of all
    threads together."""
    found: dict[int, tuple[float, float, float]] = {}
    with ThreadPoolExecutor(threads) as pool:
        arrays = list(pool.map(lambda _: np.ones((2, sizes[-1] // 16)), range(threads)))
        for _ in range(_PASSES):
            for size in sizes:
                for probe in (_copy, _read):
                    rate, peak = _together(pool, probe, [a[:, : size // 16] for a in arrays])
                    read = rate if probe is _read else 0.0
                    most, best, reading = found.get(size * threads, (0.0, 0.0, 0.0))
                    found[size * threads] = max(most, rate), max(best, peak), max(reading, read)
    return found


def _copy(pair: np.ndarray[Any, Any]) -> None:
    np.copyto(pair[0], pair[1])


def _read(pair: np.ndarray[Any, Any]) -> None:
    # In one call each: what takes the interpreter's lock again for every block in a cache gave 18
    # GB/s on 16 processors.
    np.maximum.reduce(pair[0])
    np.maximum.reduce(pair[1])


def _together(
    pool: ThreadPoolExecutor,
    probe: Callable[[np.ndarray[Any, Any]], None],
    pairs: list[np.ndarray[Any, Any]],
) -> tuple[float, float]:
    """Return bytes per second of all threads at once, over their time and in their best slices."""

    def run(pair: np.ndarray[Any, Any]) -> tuple[float, float]:
        probe(pair)
        began = since = perf_counter()
        passes, counted, best = 0, 0, 0.0
        while since - began < _SECONDS or passes < 2:
            probe(pair)
            passes += 1
            counted += 1
            if (now := perf_counter()) - since >= _SLICE:
                best = max(best, counted / (now - since))
                since, counted = now, 0
        return passes / (perf_counter() - began), best

    ran = list(pool.map(run, pairs))
    # Each at the pace it had: the first to start and the last to end ran alone for a moment.
    mean = sum(pair.nbytes * pace for pair, (pace, _) in zip(pairs, ran, strict=True))
    return mean, sum(pair.nbytes * best for pair, (_, best) in zip(pairs, ran, strict=True))
