"""The one timer: how long something takes, on the host's clock or a device's.

The figures here come from a probe on a busy two-core machine (mean absolute error of predictions
from 11 knots, held-out sizes): first sample 40 %, mean 71 %, median 14 %, 20 % quantile 5.4 %,
minimum 4.3 %. The minimum is brittle where clocks ramp, so the quantile it is.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter, process_time, sleep, thread_time
from typing import TYPE_CHECKING, Any

import numpy as np

from alight._src.base.records import dataclass

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from alight._core import threads
from alight._src.plan.curve import Measured

if TYPE_CHECKING:
    from alight.backends.base import Backend, Command
    from alight.device import Device

QUANTILE = 0.2
# A sample this long is 20 to 1000 ticks of any clock met so far (0.02 to 1 µs).
SAMPLE_SECONDS = 20e-6
# Enough samples for a 20 % quantile, and long enough to outlast a scheduler's slice of a few ms;
# past 400 the quantile no longer moves.
LEAST_SAMPLES = 5
LEAST_SECONDS = 6e-3
MOST_SAMPLES = 400
# Two passes over the same point, seconds apart, differ by 2 to 11 % on a busy machine. Beyond 30 %
# something else had the processor.
DISAGREEMENT = math.log(1.3)
# Of points that one thread runs, those known from slow moments alone: 2 to 6 % with a quarter of
# the time slow, most where all was slow until near the end.
SLOW_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call: the 20 % quantile, and the 10 and 90 % quantiles, of the samples."""

    seconds: float
    low: float
    high: float
    samples: int

    def measured(self) -> Measured:
        """Return the seconds as a number with its interval and source."""
        return Measured(self.seconds, "seconds", self.low, self.high, self.samples, "probe")


# One for each block that has put the garbage collector off.
_put_off: list[None] = []


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the garbage collector from running while something is timed, or made."""
    enabled = gc.isenabled()
    gc.disable()
    if enabled:
        _put_off.append(None)
    try:
        yield
    finally:
        if enabled:
            gc.enable()
            del _put_off[-1:]


def _after_fork() -> None:
    if _put_off:  # the thread that would put it on again may not exist here
        _put_off.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def sample_calls(
    take: Callable[[int], float],
    least_seconds: float = LEAST_SECONDS,
    least_samples: int = LEAST_SAMPLES,
    sample_seconds: float = SAMPLE_SECONDS,
) -> list[float]:
    """Return samples of one call's seconds, enough for a 20 % quantile."""
    with quiet():
        take(1)  # loads code, touches pages, fills caches: never representative
        count, spent = calls_lasting(take, sample_seconds)
        pair = settled(take, count, spent)
        samples = [seconds / count for seconds in pair]
        spent = sum(pair)
        while len(samples) < least_samples or (
            spent < least_seconds and len(samples) < MOST_SAMPLES
        ):
            seconds = take(count)
            spent += seconds
            samples.append(seconds / count)
            if len(samples) == LEAST_SAMPLES and max(samples) - min(samples) <= 1e-9 * samples[0]:
                break  # a virtual clock: more samples say the same
    return samples


def calls_lasting(take: Callable[[int], float], seconds: float) -> tuple[int, float]:
    """Return how many calls take so long together, and what they took."""
    count = 1
    while (spent := take(count)) < seconds:
        # A clock that shows nothing yet says only that much more is needed.
        count = max(2 * count, math.ceil(count * seconds / spent) if spent > 0 else 0)
    return count, spent


# A cache that another one spills into fills slowly with what is gone through again and again: on an
# EPYC of 32 MB additions of 12 MB took 261, 191, 153, 139, 132 and in the end 110 us, those of 25
# MB 525, 436, 370 and 290, and what others had left there before made twice as much of the first.
# Two samples that differ by less are alike; so many at most, or so long, until they are. Reductions
# of 8 MB, after additions of 48, went from 520 us to 91 in 10 to 21 calls, which took 3 to 5 ms,
# and not without a call that took no less than the one before (569, 509, 617, 301, 145): of what
# takes a sample's time by itself it takes two such.
_SETTLING, _SETTLING_SAMPLES, _SETTLING_SECONDS = 1.03, 18, 5e-3


def settled(take: Callable[[int], float], count: int, first: float) -> tuple[float, float]:
    """Return the seconds of so many calls and of as many more, once these take no less from one
    time to the next; ``first`` are those of the first."""
    one, two, spent = first, take(count), first
    alike = 0
    for _ in range(_SETTLING_SAMPLES):
        spent += two
        alike += one <= _SETTLING * two
        if alike > (count == 1) or spent > _SETTLING_SECONDS:
            break
        one, two = two, take(count)
    return one, two


def switches() -> int:
    """Return how often a thread of this process had to leave a processor to others so far; 0 where
    the system does not say."""
    if resource is None:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def summary(samples: Sequence[float]) -> Timing:
    """Return the timing that samples of one call's seconds make."""
    ranked = sorted(samples)
    return Timing(
        quantile(ranked, QUANTILE), quantile(ranked, 0.1), quantile(ranked, 0.9), len(ranked)
    )


def quantile(samples: Sequence[float], share: float) -> float:
    """Return the value below which a share of the samples lies; they must be in order."""
    place = share * (len(samples) - 1)
    below = int(place)
    above = min(below + 1, len(samples) - 1)
    return samples[below] + (place - below) * (samples[above] - samples[below])


def host_clock(call: Callable[[], Any]) -> Callable[[int], float]:
    """Return what makes k calls and returns their seconds on the host's clock."""

    def take(count: int) -> float:
        began = perf_counter()
        for _ in range(count):
            call()
        return perf_counter() - began

    return take


def laps(
    call: Callable[[], Any],
    most: int,
    most_seconds: float = math.inf,
    least: int = 1,
    warm: int = 0,
) -> list[float]:
    """Return the host's seconds of single calls that wait for their results, the quickest first.

    ``most`` calls, or fewer once ``most_seconds`` are over, but ``least`` in any case; ``warm``
    calls come before, and are not timed.
    """
    take = host_clock(call)
    if warm:
        take(warm)
    taken: list[float] = []
    ends = perf_counter() + most_seconds
    while len(taken) < least or (len(taken) < most and perf_counter() < ends):
        taken.append(take(1))
    return sorted(taken)


# Samples on a clock that takes long to read: the thread's own up to 1 µs, a device's events some 5
# where a launch takes 3.
LONG_SAMPLE_SECONDS = 100e-6


def own_clock(call: Callable[[], Any]) -> Callable[[int], float]:
    """Return what makes k calls and returns the seconds that this thread had a processor for.

    What other programs take is not counted then. Where other threads of this process had a part in
    the work, it is the host's clock that counts.
    """

    def take(count: int) -> float:
        began, process, thread = perf_counter(), process_time(), thread_time()
        for _ in range(count):
            call()
        own = thread_time() - thread
        everyone, whole = process_time() - process, perf_counter() - began
        # 5 %, and reading the clocks: a thread that only goes to sleep meanwhile has no part
        return own if everyone <= 1.05 * own + 5e-6 else whole

    return take


# Threads that spin meet in under a microsecond, so hundreds are cheap; one that sleeps takes some
# 40 us and a pause before, long enough for it to have gone to sleep: ten times that.
_AWAKE_TRIPS, _ASLEEP_TRIPS, _ASLEEP_SECONDS = 400, 40, 1e-3


def time_threads(limit: float = math.inf) -> dict[str, Timing]:
    """Return how long it takes to share work with threads that spin (``join``) and with threads
    that sleep (``wake``), and, where there are more, with one other (``join_pair``, ``wake_pair``);
    nothing where there is one thread. Each takes little more than ``limit`` seconds."""
    found: dict[str, Timing] = {}
    if threads.round_trip() == 0.0:
        return found
    most = int(threads.state()["threads"])
    with quiet():
        for count, which in ((most, ""), (2, "_pair"))[: 2 if most > 2 else 1]:
            found["join" + which] = _timing(_trips(count, _AWAKE_TRIPS, 0.0, limit))
            found["wake" + which] = _timing(_trips(count, _ASLEEP_TRIPS, _ASLEEP_SECONDS, limit))
    return found


def _trips(count: int, trips: int, pause: float, limit: float) -> list[float]:
    """Return the seconds of round trips of so many threads, in order; of fewer where the time is
    over before, as among other programs, where each waits 4 ms for threads without a processor."""
    found: list[float] = []
    ends = perf_counter() + limit
    while not found or (len(found) < trips and perf_counter() < ends):
        if pause:
            sleep(pause)
        found.append(threads.round_trip(count))
    return sorted(found)


def _timing(samples: Sequence[float]) -> Timing:
    low, high = quantile(samples, 0.1), quantile(samples, 0.9)
    return Timing(quantile(samples, QUANTILE), low, high, len(samples))


def device_clock(
    backend: Backend,
    device: Device,
    commands: Sequence[Command],
    repeat: Callable[[int], None] | None = None,
) -> Callable[[int], float]:
    """Return what runs the commands k times and returns their seconds on the device's clock,
    between two events; ``repeat`` runs them where that is not ``submit``."""

    def take(count: int) -> float:
        start = end = backend.submit(device, 0, (), ())
        if repeat is not None:
            repeat(count)
            end = backend.submit(device, 0, (), ())
        else:
            for _ in range(count):
                end = backend.submit(device, 0, commands, ())
        backend.wait(end)
        return backend.seconds(start, end)

    return take


class Pace:
    """How fast the processor is: what shares it beyond this machine's sight makes all work take up
    to twice as long, for some tenths of a second, or for tens of seconds on end.

    Against the latter helps what it took at best in times before, where that is ``known``; ``met``
    is the best of its own.
    """

    def __init__(self, known: float = math.inf) -> None:
        self._numbers = np.zeros(_PACE_ELEMENTS)
        self._best = known
        self.met = math.inf
        self.quicker = False

    def steady(self) -> bool:
        """Tell whether additions take as long as they took at best; ``quicker`` says then whether
        that is the first time, and all until now was slow."""
        seconds = self._reading()
        self.quicker = outpaces(seconds, self._best)
        self._best, self.met = min(self._best, seconds), min(self.met, seconds)
        return seconds <= _UNSTEADY * self._best

    def _reading(self) -> float:
        numbers = self._numbers
        began = perf_counter()
        for _ in range(_PACE_CALLS):
            np.add(numbers, numbers, out=numbers)
        return perf_counter() - began

    def awaited(self, seconds: float) -> bool:
        """Tell whether there was a steady moment within so many seconds; return in it."""
        until = perf_counter() + seconds
        while not (found := self.steady()) and perf_counter() < until:
            pass
        return found

    def behind(self) -> float:
        """Return how many times as long as it is known to take it has taken at best; 1 where it was
        as quick, or was never asked."""
        return self.met / self._best if outpaces(self._best, self.met) else 1.0

    def now(self) -> float:
        """Return what the processor takes at best in some 0.1 ms."""
        for _ in range(_READINGS):
            self.steady()
        return self.met


# The first takes four times as long as others, 50 us for 12: nothing of it is in the caches.
_READINGS = 4


def outpaces(seconds: float | None, before: float | None) -> bool:
    """Tell whether a processor that takes so long for what tells its pace is quicker than it was
    before, by more than its own clock makes of it; never where either is unknown."""
    if seconds is None or before is None:
        return False
    return _UNSTEADY * seconds < before < math.inf


# Some 20 us in the first-level cache. Undisturbed two of them differed by 3 % on one machine
# (Zen 4) and, as its clock goes up and down, by 30 % on another (Cascade Lake: 18.5 to 24.5 us); in
# slow moments they took 1.5 to 1.9 times as long on both.
_PACE_ELEMENTS, _PACE_CALLS, _UNSTEADY = 1024, 24, 1.35


# Of moments in which the processor is slow, where nobody knows what it takes in quick ones: up to
# 1.9 times as long (see `_UNSTEADY`).
_SLOWED = math.log(1.9)


def noise(
    passes: Sequence[tuple[Timing, Timing]],
    elapsed: float,
    worked: float,
    slow: float,
    behind: float,
) -> float:
    """Return by how much, in logarithms, what was measured in such moments may be off for that:
    the most of what shows by itself that other work disturbed it (see `contention`)."""
    apart = sorted([abs(math.log(a.seconds / b.seconds)) for a, b in passes])
    signs = [apart[len(apart) // 2] if apart else 0.0]
    if worked > 0:
        signs.append(max(math.log(elapsed / worked), 0.0))
    if slow > SLOW_SHARE:
        signs.append(math.log(behind) if behind > 1.0 else _SLOWED)
    return max(signs)


def contention(
    passes: Sequence[tuple[Timing, Timing]],
    elapsed: float = 0.0,
    worked: float = 0.0,
    slow: float = 0.0,
    behind: float = 1.0,
) -> str:
    """Return what shows that other work disturbed measuring; nothing where nothing does.

    So many points of one thread were never met but in ``slow`` moments, as a share of all, at best
    ``behind`` times as long as the processor is known to take; or two passes over the same points
    disagree as only other work can make them; or one thread's work that took ``elapsed`` seconds
    had the processor for only ``worked`` of them. What is predicted from the points is no evidence:
    it is off, too, where there was little time, or the model knows a machine badly.
    """
    from statistics import median  # late: with fractions and decimal it takes 2 ms

    if slow > SLOW_SHARE:
        told = f"{slow:.0%} of what one thread runs was met in slow moments alone"
        if behind > 1.0:
            told += (
                f": at best the processor took {behind:.2f} times as long as it has been seen to "
                "take before (`alight calibrate --fresh` passes over that)"
            )
        return told
    if worked > 0 and math.log(elapsed / worked) > DISAGREEMENT:
        return f"one thread had a processor for {worked / elapsed:.0%} of its time"
    apart = [abs(math.log(a.seconds / b.seconds)) for a, b in passes]
    # The median: one point that met an interrupt says nothing about the rest.
    if apart and median(apart) > DISAGREEMENT:
        return f"two visits of one thing were {math.expm1(median(apart)):.0%} apart in the median"
    return ""
