"""Threads that run kernels together, and the launcher that splits one among them.

A ``Launcher`` is a kernel bound to sizes and strides. It learns what a run takes and works on
several threads where that is predicted to end sooner. A kernel is cut into more parts than there
are threads; who is done with its share takes from the others', and nobody waits for a thread that
has not begun.
``_threads`` (C) and this module have the same names and pass the same tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from queue import SimpleQueue
from threading import Lock, Thread
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from alight._core.guard import (
    KERNEL,
    Entry,
    _TwinEntry,
    clear_flags,
    raise_flags,
    raised_flags,
)

__all__ = [
    "JOIN_SECONDS",
    "WAKE_SECONDS",
    "Launcher",
    "copy",
    "rest",
    "round_trip",
    "set_costs",
    "set_threads",
    "state",
]

_COMBINE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)

_BALANCED = 4  # parts for each thread, as in the C


class _Job:
    """Work in parts, each taken once; who begins after it was closed takes none."""

    def __init__(self, work: Callable[[int], None], parts: int) -> None:
        self.work = work
        self.parts = parts
        self.numbers = count()
        self.modes = _modes()
        self.closed = False
        self.begun: list[bool] = []
        self.ended: list[int] = []  # with the floating-point flags that were raised

    def take(self) -> None:
        while (part := next(self.numbers)) < self.parts:
            self.work(part)

    def beside(self) -> None:
        """Take parts in another thread."""
        self.begun.append(True)
        own = _modes()
        _adopt(self.modes)
        clear_flags()
        try:
            if not self.closed:
                self.take()
        finally:
            self.ended.append(raised_flags())
            _adopt(own)


def _work_on(jobs: SimpleQueue[_Job]) -> None:
    while True:
        jobs.get().beside()


class _Pool:
    def __init__(self) -> None:
        self.threads = 1
        self.join_seconds = self.wake_seconds = 0.0
        self.forget()

    def forget(self) -> None:
        self.busy = Lock()
        self.started = 0
        self.jobs: SimpleQueue[_Job] = SimpleQueue()

    def run(self, work: Callable[[int], None], parts: int) -> None:
        """Run every part, here and on other threads; their floating-point flags become this
        thread's."""
        job = _Job(work, parts)
        try:
            for number in range(min(self.threads, parts) - 1):
                if number >= self.started:
                    self.started += 1
                    Thread(target=_work_on, args=(self.jobs,), daemon=True).start()
                self.jobs.put(job)
            job.take()
        finally:
            interrupt: BaseException | None = None
            job.closed = True
            # An interrupt is seen after the join: who has begun writes to the results.
            while len(job.ended) < len(job.begun):
                try:
                    sleep(1e-5)
                except BaseException as error:
                    interrupt = error
            if interrupt is not None:
                raise interrupt
        for flags in job.ended:
            raise_flags(flags)


_ENVIRONMENT_BYTES = 256  # the largest fenv_t met so far has 32


def _modes() -> Any:
    """Return this thread's rounding and denormal modes, flags included."""
    found = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    _library().fegetenv(found)
    return found


def _adopt(modes: Any) -> None:
    _library().fesetenv(modes)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("ucrtbase" if os.name == "nt" else None)


_pool = _Pool()


class _TwinLauncher:
    """A kernel bound to sizes and strides, called with the addresses of its operands.

    ``kernel`` is the address of ``entry(addresses, dims, strides)``. Parts are runs of ``unit``
    indices of ``axis``; or, with ``combine``, of the folded elements: then ``extra`` stands behind
    the dims as (first, end, partial), parts leave their states in slots of so many bytes, one for
    each index of the ``kept`` axes and each output, and ``combine(slots, parts, dims, strides,
    addresses)`` makes the results. ``absorbing`` is the first byte of a state that decides the
    whole. Without ``combine``, the last of four ``extra`` becomes the part's first index. ``keep``
    lives as long as the launcher.
    """

    __slots__ = (
        "_absorbing", "_axis", "_cells", "_combine", "_dims", "_keep", "_kernel", "_operands",
        "_partial", "_rank", "_slot", "_strides", "_unit", "_units", "entry", "inputs", "parts",
        "seconds",
    )  # fmt: skip

    def __init__(
        self,
        kernel: int,
        dims: Sequence[int],
        strides: Sequence[int],
        inputs: int,
        outputs: int,
        keep: object,
        axis: int = -1,
        unit: int = 0,
        elements: int = 0,
        combine: int = 0,
        kept: int = 0,
        extra: Sequence[int] = (),
        slot: int = 0,
        absorbing: int = -1,
    ) -> None:
        self._rank = len(dims)
        self._operands = inputs + outputs
        self.inputs = inputs
        if len(strides) != self._rank * self._operands or axis >= self._rank or kept > self._rank:
            raise ValueError(
                f"{len(strides)} strides do not go with {self._rank} axes of {self._operands} "
                "operands"
            )
        self._kernel = KERNEL(kernel)
        self._dims = [*dims, *extra]
        self._strides = list(strides)
        self._keep = keep
        self._axis = axis
        self._unit = unit
        self._units = 0
        self._combine = _COMBINE(combine) if combine else None
        self._absorbing = absorbing
        self._slot = slot
        self._cells = 1
        self._partial = list(strides)
        if unit > 0 and (axis >= 0 or combine):
            whole = extra[1] if combine else dims[axis]
            self._units = -(-whole // unit)
        if combine:
            for place in reversed(range(kept)):
                for i in range(inputs, self._operands):
                    self._partial[i * self._rank + place] = self._cells * outputs * slot
                self._cells *= dims[place]
        self.parts = 1
        self.seconds = 0.0
        packed = _packed(self._dims), _packed(self._strides)
        self._keep = (keep, packed)
        # Nothing that calls back: an interrupt in Python below C would be lost. A guard in C runs
        # the kernel on one thread.
        self.entry: tuple[Any, ...] = (kernel, *map(ctypes.addressof, packed))
        if Entry is _TwinEntry:
            self.entry = (self, 0, 0)

    def __call__(self, addresses: Sequence[int]) -> None:
        """Run the kernel on the arrays at these addresses."""
        if len(addresses) != self._operands:
            raise ValueError(f"{len(addresses)} addresses for {self._operands} operands")
        threads = _pool.threads
        parts = threads * _BALANCED
        # The first run is alone, and tells what one takes.
        if self.seconds * (threads - 1) <= _pool.wake_seconds * threads:
            parts = 1
        parts = min(parts, self._units)
        if threads < 2 or parts < 2 or not _pool.busy.acquire(blocking=False):
            self._alone(addresses)
            return
        try:
            self._together(list(addresses), parts)
        finally:
            _pool.busy.release()

    def _alone(self, addresses: Sequence[int]) -> None:
        began = perf_counter()
        self._run(self._kernel, addresses, self._dims, self._strides)
        seconds = perf_counter() - began
        self.seconds = min(seconds, self.seconds or seconds)
        self.parts = 1

    def _together(self, addresses: list[int], parts: int) -> None:
        units, unit, rank = self._units, self._unit, self._rank
        if self._combine is None:
            axis = self._axis
            whole = self._dims[axis]

            def share(part: int) -> None:
                start = units * part // parts * unit
                stop = min(whole, units * (part + 1) // parts * unit)
                dims = [*self._dims[:axis], stop - start, *self._dims[axis + 1 :]]
                if len(dims) == rank + 4:
                    dims[-1] = start
                steps = self._strides[axis::rank]
                moved = [a + start * step for a, step in zip(addresses, steps, strict=True)]
                self._run(self._kernel, moved, dims, self._strides)

            _pool.run(share, parts)
            self.parts = parts
            return
        run = 1
        while -(-units // run) > parts:
            run *= 2
        parts = -(-units // run)
        outputs = self._operands - self.inputs
        pitch = self._cells * outputs * self._slot
        slots = ctypes.create_string_buffer(parts * pitch)
        base = ctypes.addressof(slots)
        decided: list[int] = []

        def fold(part: int) -> None:
            if decided:
                slots[part * pitch] = bytes([self._absorbing])
                return
            start = part * unit * run
            stop = min(self._dims[rank + 1], start + unit * run)
            dims = [*self._dims[:rank], start, stop, 1]
            results = [base + part * pitch + i * self._slot for i in range(outputs)]
            self._run(self._kernel, addresses[: self.inputs] + results, dims, self._partial)
            if self._absorbing >= 0 and slots.raw[part * pitch] == self._absorbing:
                decided.append(part)

        _pool.run(fold, parts)
        dims, strides = _packed(self._dims), _packed(self._strides)
        self._combine(base, parts, dims, strides, _packed(addresses))
        self.parts = parts

    @staticmethod
    def _run(
        kernel: Any, addresses: Sequence[int], dims: Sequence[int], strides: Sequence[int]
    ) -> None:
        kernel(_packed(addresses), _packed(dims), _packed(strides))


def _packed(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def _set_threads(threads: int) -> None:
    """Let kernels run on so many threads, the caller's included."""
    if threads < 1:
        raise ValueError(f"{threads} threads: the caller is one already")
    _pool.threads = threads


def _set_costs(
    join_seconds: float, wake_seconds: float, join_pair: float = 0.0, wake_pair: float = 0.0
) -> None:
    """Say what it takes to share work with all threads where they spin and where they sleep, and
    with one other (which the twin's queue does not tell apart)."""
    _pool.join_seconds = join_seconds
    _pool.wake_seconds = max(join_seconds, wake_seconds)


def _rest() -> None:
    """Have threads that spin go to sleep: something else needs the processors."""


def _state() -> dict[str, float]:
    """Return what the pool is like now."""
    return {
        "threads": _pool.threads,
        "started": _pool.started,
        "asleep": _pool.started,
        "join_seconds": _pool.join_seconds,
        "wake_seconds": _pool.wake_seconds,
    }


def _round_trip(threads: int | None = None) -> float:
    """Return the seconds until so many threads (all of them) have met, or 0 where none can."""
    threads = min(threads or _pool.threads, _pool.threads)
    if threads < 2 or not _pool.busy.acquire(blocking=False):
        return 0.0
    try:
        began = perf_counter()
        arrived: list[int] = []

        def meet(part: int) -> None:
            arrived.append(part)
            while len(arrived) < threads and perf_counter() < began + 0.1:
                pass

        _pool.run(meet, threads)
        return perf_counter() - began
    finally:
        _pool.busy.release()


# What each part of a copy has: a thread takes 0.1 ms for it, as long as a queue for handing it on.
_COPIED_BYTES = 1 << 20


def _copy(target: int, source: int, nbytes: int, threads: int) -> None:
    """Copy so many bytes to one address from another, on so many threads."""
    parts = -(-nbytes // _COPIED_BYTES)
    if min(threads, parts, _pool.threads) < 2 or not _pool.busy.acquire(blocking=False):
        ctypes.memmove(target, source, nbytes)
        return

    def share(part: int) -> None:
        start = part * _COPIED_BYTES
        ctypes.memmove(target + start, source + start, min(_COPIED_BYTES, nbytes - start))

    try:
        _pool.run(share, parts)
    finally:
        _pool.busy.release()


def _after_fork() -> None:
    _pool.forget()  # its threads do not exist here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

# Until they were measured (measure.calibrate): medians of an empty job on two threads, in C 0.5 to
# 0.7 us spinning and 29 to 41 us asleep, a ThreadPoolExecutor 81 to 102 us (2-core Xeon VM, Linux
# 6.18).
JOIN_SECONDS, WAKE_SECONDS = 1e-4, 1e-4

if TYPE_CHECKING:
    Launcher = _TwinLauncher
    copy, rest, round_trip, set_costs = _copy, _rest, _round_trip, _set_costs
    set_threads, state = _set_threads, _state
else:
    Launcher = _TwinLauncher
    copy, rest, round_trip, set_costs = _copy, _rest, _round_trip, _set_costs
    set_threads, state = _set_threads, _state
    if os.environ.get("ALIGHT_TWIN", "0") in ("", "0"):
        with contextlib.suppress(ImportError):  # no compiler was present at install, or no POSIX
            from alight._core._threads import (
                Launcher,
                copy,
                rest,
                round_trip,
                set_costs,
                set_threads,
                state,
            )

            JOIN_SECONDS, WAKE_SECONDS = 0.7e-6, 40e-6
set_costs(JOIN_SECONDS, WAKE_SECONDS)
