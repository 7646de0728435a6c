"""Where probes run: a device with arrays of typical numbers, and the clocks they are timed by."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from mmap import PAGESIZE, mmap
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from alight._core import Data, Layout, layout_of, make_layout
from alight._src.fp_warnings.filters import warnings_suppressed
from alight._src.ir.group import Group
from alight._src.measure.probes import Probe
from alight._src.measure.timing import (
    LEAST_SECONDS,
    LONG_SAMPLE_SECONDS,
    SAMPLE_SECONDS,
    Timing,
    calls_lasting,
    device_clock,
    own_clock,
    sample_calls,
    summary,
)
from alight._src.plan.curve import Measured
from alight.backends.base import Copy, Launch, Operand, prepared

if TYPE_CHECKING:
    from alight.backends.base import Backend
    from alight.device import Device

__all__ = ["Bench", "typical"]

# Compiling takes tens of milliseconds, finding a compiled kernel tenths: between them is room.
_COMPILED = 10
# What else runs on the machine comes and goes in some 10 ms, so several short visits seconds apart
# meet a quiet moment sooner than one long one.
VISIT_SECONDS, VISIT_SAMPLES = 0.25e-3, 2
# What threads share takes now longer, now less, as one of them comes late: enough samples to see
# what it takes where none does, once all are awake. With two samples 16 threads seemed to add
# 2**20 float32 in 44 us, which took 18 (Xeon).
SHARED_SECONDS, SHARED_SAMPLES = 1e-3, 5
# Pieces that no heap keeps: every one is new to the system (M_MMAP_THRESHOLD of glibc is 128 kB).
_FRESH_BYTES, _FRESH_COUNT = 1 << 20, 8
# Of host memory that copies come from one after another: more than a core's own caches hold.
_COLD_BYTES = 1 << 25
# Memory that results land in is locked while the host goes on, and until then is slow to reach (an
# H200's 1 MiB: 355 us, 30 once it is locked): so long downloads go on before they are timed.
_LANDING_SECONDS = 10e-3


_UNIT = (1 + 1j) / math.sqrt(2)  # of all complex numbers: a power of it times a real one


def typical(dtype: str, n: int, seed: int) -> np.ndarray[Any, Any]:
    """Return n elements as programs have them: no zeros, no denormals, nothing that overflows, nor
    makes their product do so.

    Zeros run faster than other numbers on some devices, denormals slower on most.
    """
    generator = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        # None repeats: what a predictor of branches has seen before costs a fourth (EPYC: np.where
        # 0.9 ns for each of 320,000 by a mask of 2^16 that repeat in one process, 3 in the next and
        # by fresh ones in all; of bits a million are drawn in 0.3 ms).
        bits = np.frombuffer(generator.bytes(-(-n // 8)), np.uint8)
        return np.unpackbits(bits, count=n).view(bool)
    # Drawing 2^21 numbers takes longer than timing them; 2^16 that repeat are as good.
    drawn = min(n, 1 << 16)
    if kind in "iu":
        block = generator.integers(1, 8, drawn).astype(dtype)
    else:
        # Every 64 are followed by one over them, so that products of any lanes stay where they are.
        powers = generator.uniform(-0.6, 0.6, (-(-drawn // 128), 1, 64)) * [[[1], [-1]]]
        block = (2**powers * (_UNIT if kind == "c" else 1)).ravel()[:drawn].astype(dtype)
    return np.resize(block, n)


def _start(layout: Layout) -> int:
    """Return how many bytes lie before the first element, since some strides lead back."""
    steps = zip(layout.shape, layout.strides, strict=True)
    return sum((length - 1) * -stride for length, stride in steps if stride < 0 < length)


def _end(layout: Layout) -> int:
    """Return how many bytes lie between the first element and the end of the last."""
    steps = zip(layout.shape, layout.strides, strict=True)
    return layout.itemsize + sum((n - 1) * step for n, step in steps if step > 0 < n)


# A launcher times its first runs, on one thread and on each number of them that could be better,
# and from then on few: as many as that for each number, or two of what takes so long that the
# others show in its first visits anyway.
_SETTLED_RUNS, _SETTLED_SECONDS = 16, 4e-3
# Of an array that most probes are content with.
_SMALL_BYTES = 1 << 21


class Bench:
    """A device with the arrays that probes run on, made once and read in part by smaller probes."""

    def __init__(self, backend: Backend, device: Device, most_bytes: int) -> None:
        self.backend = backend
        self.device = device
        self.most_bytes = most_bytes
        self._buffers: dict[tuple[str, int], Any] = {}
        self._scalars: dict[tuple[str, int], Any] = {}
        # Of each kernel that was compiled for a probe: its group and the seconds.
        self.compiled: list[tuple[Group, float]] = []
        self._one_offs: dict[str, float] = {}
        self._pages: np.ndarray[Any, Any] | None = None

    def _buffer(self, dtype: str, place: int, nbytes: int) -> Any:
        """Return an array of at least so many bytes."""
        found = self._buffers.get((dtype, place))
        if found is None or found.nbytes < nbytes:
            # Fresh memory takes longer than timing it: most probes are small.
            size = min(max(_SMALL_BYTES, 1 << (nbytes - 1).bit_length()), self.most_bytes)
            array = typical(dtype, size // np.dtype(dtype).itemsize, seed=place)
            found = Data(layout_of(array), array)
            if self.device.space != "host":
                found = self._uploaded(found)
            self._buffers[dtype, place] = found
        return found

    def _uploaded(self, data: Data) -> Any:
        target = self.backend.allocate(self.device, data.nbytes)
        command = Copy(data, target, data.nbytes, "host", self.device.space)
        self.backend.wait(self.backend.submit(self.device, 0, (command,), ()))
        return target

    def time(self, probe: Probe, least_seconds: float = LEAST_SECONDS) -> Timing:
        """Return how long the probe takes, results in fresh memory as in a program, by samples of
        so many seconds.

        Raises Unsupported where the device cannot run it.
        """
        with warnings_suppressed():
            clock, sample = self._clock(self.launch(probe))
            return summary(sample_calls(clock, least_seconds, sample_seconds=sample))

    def _clock(self, launch: Launch) -> tuple[Callable[[int], float], float]:
        """Return what makes a launch k times and returns its seconds on the device's clock, and how
        long a sample of it lasts: by the calls of a plan that is ready, where the device has them,
        since Python takes 12 us to submit what the native core does in 2 (H200's host)."""
        repeated = getattr(self.backend, "repeated", None)
        again = None if repeated is None else repeated(self.device, launch)
        clock = device_clock(self.backend, self.device, (launch,), again)
        return clock, SAMPLE_SECONDS if again is None else LONG_SAMPLE_SECONDS

    def visit(self, launch: Launch, shared: bool = False) -> list[float]:
        """Return a few samples of the seconds that the device takes for a launch; of one that
        several threads share more, with all of them awake."""
        # Results of random inputs may overflow in a long chain; what it costs is the same.
        with warnings_suppressed():
            if self.device.space != "host":
                clock, sample = self._clock(launch)
                return sample_calls(clock, VISIT_SECONDS, VISIT_SAMPLES, sample)
            clock = own_clock(lambda: self.backend.submit(self.device, 0, (launch,), ()))
            if not shared:
                return sample_calls(clock, VISIT_SECONDS, VISIT_SAMPLES, LONG_SAMPLE_SECONDS)
            calls_lasting(clock, VISIT_SECONDS)
            return sample_calls(clock, SHARED_SECONDS, SHARED_SAMPLES)

    def settle(self, launch: Launch, threads: int) -> None:
        """Run a launch until its launcher knows on how many of so many threads it ends soonest."""
        began = perf_counter()
        tried = max(threads - 1, 1).bit_length()  # 2, 4, ... all of them
        for _ in range(_SETTLED_RUNS * tried):
            self.backend.submit(self.device, 0, (launch,), ())
            if perf_counter() - began > _SETTLED_SECONDS * tried:
                break

    def launch(self, probe: Probe) -> Launch:
        """Return the command that runs the probe on arrays of typical numbers.

        Raises Unsupported where the device cannot run it.
        """
        graph = probe.group.graph
        spanned = max((_start(layout) + _end(layout) for layout in graph.inputs), default=0)
        if spanned > self.most_bytes:
            raise ValueError(
                f"a probe spans {spanned} bytes of an array that has {self.most_bytes}. "
                "Fix: make the bench for larger ones."
            )
        inputs = tuple([self._input(place, layout) for place, layout in enumerate(graph.inputs)])
        return self._launch(probe, inputs)

    def _input(self, place: int, layout: Layout) -> Operand:
        dtype = layout.dtype.name
        if not layout.shape:
            return Operand(self._scalar(dtype, place), 0, layout)
        start = _start(layout)
        return Operand(self._buffer(dtype, place, start + _end(layout)), start, layout)

    def _scalar(self, dtype: str, place: int) -> Any:
        """Return an array without axes that nobody writes, as are constants of programs."""
        found = self._scalars.get((dtype, place))
        if found is None:
            array = typical(dtype, 1, seed=place).reshape(())
            found = Data(layout_of(array), array)
            found.fixed = True
            if self.device.space != "host":
                found = self._uploaded(found)
            self._scalars[dtype, place] = found
        return found

    def _launch(self, probe: Probe, inputs: tuple[Operand, ...]) -> Launch:
        launch, first = self._made(probe, inputs)
        # One that this process has already takes as long the second time.
        again = probe.implementation == "generated" and self._made(probe, inputs)[1]
        if again and first > _COMPILED * again:
            self.compiled.append((probe.group, first))
        return launch

    def _made(self, probe: Probe, inputs: tuple[Operand, ...]) -> tuple[Launch, float]:
        """Return a probe's launch, and the seconds until its code is there."""
        began = perf_counter()
        kernel = self.backend.compile(self.device, probe.group, probe.implementation, None)
        launch = Launch(kernel, inputs, (None,) * len(probe.group.graph.outputs))
        prepared(self.backend, self.device, launch)
        return launch, perf_counter() - began

    def time_allocation(self) -> None:
        """Time what fresh memory takes: to get it, and to touch it for the first time."""
        began = perf_counter()
        held = [self.backend.allocate(self.device, _FRESH_BYTES) for _ in range(_FRESH_COUNT)]
        self._one_offs["allocate"] = (perf_counter() - began) / _FRESH_COUNT
        for buffer in held:
            self.backend.free(self.device, buffer)
        # pages of its own: an allocator may give bytes that were touched before
        with mmap(-1, _FRESH_BYTES * _FRESH_COUNT) as pages:
            fresh = np.frombuffer(pages, np.uint8)
            began = perf_counter()
            fresh[::PAGESIZE] = 1
            self._one_offs["first_touch"] = (perf_counter() - began) / (fresh.size // PAGESIZE)
            del fresh  # pages with a reader cannot be given back

    def one_offs(self) -> dict[str, Measured]:
        """Return what getting memory of the device takes, a piece, and the first touch of fresh
        host memory, a page of it; and what opening the device took."""
        return {
            name: Measured(seconds, "seconds", seconds, seconds, 1, "probe")
            for name, seconds in self._one_offs.items()
            if seconds > 0
        }

    def time_both_ways(self, nbytes: int) -> Timing:
        """Return how long an upload and a download take that go on at once."""
        space = self.device.space
        pieces = [np.ones(nbytes, np.uint8) for _ in range(2)]
        one, two = [Data(layout_of(piece), piece) for piece in pieces]
        near, other = self._uploaded(one), self._uploaded(two)

        def take(count: int) -> float:
            began = perf_counter()
            for _ in range(count):
                up = Copy(one, near, nbytes, "host", space)
                down = Copy(other, two, nbytes, space, "host")
                events = [
                    self.backend.submit(self.device, queue, (command,), ())
                    for queue, command in enumerate((up, down))
                ]
                for event in events:
                    self.backend.wait(event)
            return perf_counter() - began

        return summary(sample_calls(take, VISIT_SECONDS, VISIT_SAMPLES))

    def time_copy(self, direction: str, nbytes: int, kind: str = "") -> Timing:
        """Return how long a copy of that many bytes takes: upload, download or device. The host's
        memory is as a program has it, or ``_pinned``, or ``_registered`` in place."""
        if not kind and direction != "device":
            return self._time_transfer(direction, nbytes)
        space = self.device.space
        array = np.ones(nbytes, np.uint8)
        host: Any = Data(layout_of(array), array)
        near = self._uploaded(host)
        if kind == "_pinned":
            host = self.backend.allocate(self.device, nbytes, "pinned")
        elif kind == "_registered":
            host = self.backend.register(self.device, host.address, nbytes)
        if direction == "upload":
            command = Copy(host, near, nbytes, "host", space)
        elif direction == "download":
            command = Copy(near, host, nbytes, space, "host")
        else:
            far = self.backend.allocate(self.device, nbytes)
            command = Copy(near, far, nbytes, space, space)
        clock = device_clock(self.backend, self.device, (command,))
        return summary(sample_calls(clock, VISIT_SECONDS, VISIT_SAMPLES))

    def _time_transfer(self, direction: str, nbytes: int) -> Timing:
        """Return how long an upload or a download takes until it was waited for, as a program's do:
        one by one, to memory that is new to it, and from host memory that no core has in its
        caches. On an H200's host 1 MiB came in 177 us so, and in 83 again and again from one array;
        it went to memory the link reaches in 30, to an array in 95. What the host does around a
        copy, 10 us, counts where the device's clock is the host's."""
        backend, device, space = self.backend, self.device, self.device.space
        if self._pages is None or self._pages.size < nbytes:
            self._pages = np.ones(max(_COLD_BYTES, nbytes), np.uint8)
        pages, layout = self._pages, make_layout(np.dtype(np.uint8), (nbytes,))
        places = itertools.cycle(
            range(0, pages.size - nbytes + 1, -(-nbytes // PAGESIZE) * PAGESIZE)
        )
        near = self._uploaded(Data(layout, pages[:nbytes])) if direction == "download" else None
        landing = getattr(backend, "landing", None)

        def take(count: int) -> float:
            seconds = 0.0
            for _ in range(count):
                asked = perf_counter()
                if near is None:
                    place = next(places)
                    source = Data(layout, pages[place : place + nbytes])
                    target = backend.allocate(device, nbytes)
                    command = Copy(source, target, nbytes, "host", space)
                else:
                    target = landing(device, layout) if landing is not None else None
                    target = target or Data(layout, np.empty(nbytes, np.uint8))
                    command = Copy(near, target, nbytes, space, "host")
                event = backend.submit(device, 0, (command,), ())
                backend.wait(event)
                over = perf_counter()
                alike = asked <= event.began <= event.ended <= over
                seconds += over - asked if alike else event.ended - event.began
                if near is None:
                    backend.free(device, target)
            return seconds

        if landing is not None and near is not None:
            calls_lasting(take, _LANDING_SECONDS)
        return summary(sample_calls(take, VISIT_SECONDS, VISIT_SAMPLES))
