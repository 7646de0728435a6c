"""Runs of bytes that come again with a period: what a column of a matrix is, however many rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from math import gcd
from typing import NamedTuple

__all__ = ["FULL", "RUNS", "Runs", "Strided", "clipped", "inside", "left", "met", "outside"]

# Sorted, and apart: each from its first byte to before its last.
Runs = tuple[tuple[int, int], ...]
FULL: Runs = ((0, 1),)
# Runs that are told apart one by one, where two periods come together or memory has none; going
# through so many takes 20 ms (one EPYC core), and a plan is to be checked in ms.
RUNS = 1 << 16


class Strided(NamedTuple):
    """The bytes from ``low`` to before ``high`` that lie in the runs of each ``period`` bytes,
    counted from ``origin``. The first and the last byte are in it."""

    low: int
    high: int
    period: int = 1
    origin: int = 0
    runs: Runs = FULL

    def moved(self, by: int) -> Strided:
        """Return the bytes that lie so far behind these."""
        return Strided(self.low + by, self.high + by, self.period, self.origin + by, self.runs)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the runs one by one."""
        if self.runs is FULL:
            yield self.low, self.high
            return
        base = self.low - (self.low - self.origin) % self.period
        for start in range(base, self.high, self.period):
            for one, other in self.runs:
                low, high = max(start + one, self.low), min(start + other, self.high)
                if low < high:
                    yield low, high

    def count(self, nbytes: int) -> int:
        """Return how many runs so many bytes have at most."""
        return 1 if self.runs is FULL else len(self.runs) * (nbytes // self.period + 2)


def clipped(one: Strided, low: int, high: int) -> Strided | None:
    """Return the bytes between two, None where there are none."""
    low, high = max(low, one.low), min(high, one.high)
    if low >= high or one.runs is FULL:
        return Strided(low, high) if low < high else None
    _, _, period, origin, runs = one
    after = (low - origin) % period
    index = _last(runs, after)
    if index < 0 or runs[index][1] <= after:
        index += 1
        if index == len(runs):
            low, index = low + period, 0
        low += runs[index][0] - after
        after = runs[index][0]
        if low >= high:
            return None
    if high - low <= runs[index][1] - after:
        return Strided(low, high)
    end = (high - 1 - origin) % period
    last = _last(runs, end)
    if last < 0:
        high += runs[-1][1] - period - 1 - end
    elif runs[last][1] <= end:
        high += runs[last][1] - 1 - end
    if high - low <= runs[index][1] - after:
        return Strided(low, high)
    return Strided(low, high, period, origin, runs)


def _last(runs: Runs, at: int) -> int:
    """Return which of the runs is the last that begins at a byte or before; -1 for none."""
    return bisect_right(runs, at, key=_first) - 1


def _first(run: tuple[int, int]) -> int:
    return run[0]


def inside(a: Strided, b: Strided, low: int, high: int) -> Iterable[Strided]:
    """Return the bytes of one between two that are in another; where those are too many to tell,
    more."""
    if b.runs is FULL or a.runs is FULL:
        return _one(clipped(b if a.runs is FULL else a, low, high))
    return _together(a, b, low, high, keep=True)


def outside(a: Strided, b: Strided, low: int, high: int) -> Iterable[Strided]:
    """Return the bytes of one between two that are not in another, both of which reach over all of
    these; where those are too many to tell, more."""
    if b.runs is FULL:
        return ()
    if a.runs is FULL:
        rest = left(((0, b.period),), b.runs)
        return (
            _one(clipped(Strided(low, high, b.period, b.origin, rest), low, high)) if rest else ()
        )
    return _together(a, b, low, high, keep=False)


def _one(found: Strided | None) -> tuple[Strided, ...]:
    return () if found is None else (found,)


def _periodic(low: int, high: int, period: int, origin: int, runs: Runs) -> tuple[Strided, ...]:
    return _one(clipped(Strided(low, high, period, origin, runs), low, high)) if runs else ()


def _together(a: Strided, b: Strided, low: int, high: int, keep: bool) -> Iterable[Strided]:
    combine = met if keep else left
    period = a.period // gcd(a.period, b.period) * b.period
    whole = len(a.runs) * (period // a.period) + len(b.runs) * (period // b.period)
    apart = a.count(high - low) + b.count(high - low)
    if min(whole, apart) > RUNS:
        return _one(clipped(a, low, high))
    if whole <= apart:
        shift = (b.origin - a.origin) % period
        runs = combine(_often(a, period), _turned(_often(b, period), shift, period))
        return _periodic(low, high, period, a.origin, runs)
    return [Strided(*run) for run in combine(_between(a, low, high), _between(b, low, high))]


def _between(one: Strided, low: int, high: int) -> Runs:
    found = clipped(one, low, high)
    return () if found is None else tuple(found.spans())


def _often(one: Strided, period: int) -> Runs:
    """Return the runs of a longer period, a multiple of their own."""
    if period == one.period:
        return one.runs
    starts = range(0, period, one.period)
    return tuple([(low + start, high + start) for start in starts for low, high in one.runs])


def _turned(runs: Runs, by: int, period: int) -> Runs:
    """Return the runs of a period that begins so many bytes earlier."""
    if not by:
        return runs
    found: list[tuple[int, int]] = []
    for low, high in runs:
        low, high = low + by, high + by
        if low >= period:
            found.append((low - period, high - period))
        elif high > period:
            found += (low, period), (0, high - period)
        else:
            found.append((low, high))
    return tuple(sorted(found))


def met(a: Runs, b: Runs) -> Runs:
    """Return the bytes in both."""
    found = []
    first = second = 0
    while first < len(a) and second < len(b):
        low, high = max(a[first][0], b[second][0]), min(a[first][1], b[second][1])
        if low < high:
            found.append((low, high))
        if a[first][1] <= b[second][1]:
            first += 1
        else:
            second += 1
    return tuple(found)


def left(a: Runs, b: Runs) -> Runs:
    """Return the bytes of one that are not in the other."""
    found = []
    second = 0
    for low, high in a:
        while second < len(b) and b[second][1] <= low:
            second += 1
        at = second
        while at < len(b) and b[at][0] < high:
            if low < b[at][0]:
                found.append((low, b[at][0]))
            low = b[at][1]
            at += 1
        if low < high:
            found.append((low, high))
    return tuple(found)
