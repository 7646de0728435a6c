"""Sets of bytes that strided arrays touch: where they meet, and what is left without one.

They are decided exactly, by runs of bytes that come again with a period. Of arrays that have too
many for that NumPy's own solver is asked whether two meet, and what it cannot tell in time counts
as meeting.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from alight._src.base.originals import np
from alight._src.plan import strided_runs
from alight._src.plan.strided_runs import FULL, Strided, clipped, inside, outside

if TYPE_CHECKING:
    from alight._core import Layout

__all__ = ["ByteSet", "bytes_of", "same_steps", "span"]

# What NumPy's solver may try before it says that it does not know: some ms.
_WORK = 1 << 16


class ByteSet:
    """Bytes from ``low`` to before ``high``, the first and the last of them included: those of
    ``parts``, one behind the other. Where ``box`` is given (an address and a layout) they are too
    many to tell: some of the bytes in between."""

    __slots__ = ("box", "high", "low", "parts")

    def __init__(self, parts: Sequence[Strided], box: tuple[int, Layout] | None = None) -> None:
        self.parts = parts
        self.low = parts[0].low if parts else 0
        self.high = parts[-1].high if parts else 0
        self.box = box

    def __bool__(self) -> bool:
        return self.low < self.high

    def __repr__(self) -> str:
        parts = "" if self.whole else " in parts"
        return f"{self.low}…{self.high}{parts}"

    @property
    def whole(self) -> bool:
        """Tell whether these are all bytes from the first to the last."""
        parts = self.parts
        return self.box is None and (not parts or (len(parts) == 1 and parts[0].runs is FULL))

    def moved(self, by: int) -> ByteSet:
        """Return the bytes that lie so far behind these."""
        box = None if self.box is None else (self.box[0] + by, self.box[1])
        return ByteSet([part.moved(by) for part in self.parts], box)

    def meets(self, other: ByteSet) -> bool:
        """Tell whether a byte is in both; True where that takes too long to find out."""
        return bool(self & other)

    def within(self, other: ByteSet) -> bool:
        """Tell whether all bytes are in another set; False where that cannot be told."""
        if self and (self.low < other.low or other.high < self.high):
            return False
        return not self - other

    def __and__(self, other: ByteSet) -> ByteSet:
        """Return the bytes in both; where that cannot be told, more."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        if low >= high:
            return _NOTHING
        if self.box is not None or other.box is not None:
            return self._both(other, low, high)
        found: list[Strided] = []
        first, second = _near(self.parts, low), _near(other.parts, low)
        while first < len(self.parts) and second < len(other.parts):
            a, b = self.parts[first], other.parts[second]
            low, high = max(a.low, b.low), min(a.high, b.high)
            if low < high:
                _append(found, inside(a, b, low, high))
            if a.high <= b.high:
                first += 1
            else:
                second += 1
        return ByteSet(found)

    def _both(self, other: ByteSet, low: int, high: int) -> ByteSet:
        """Return at least the bytes in both, one of which is too many to tell."""
        if self.box is not None and self.box == other.box:
            return self
        if other.whole and other.low <= self.low and self.high <= other.high:
            return self
        if self.whole and self.low <= other.low and other.high <= self.high:
            return other
        if self.box is not None and other.box is not None and _apart(self.box, other.box):
            return _NOTHING
        return ByteSet((Strided(low, high),), self.box or other.box)

    def __sub__(self, other: ByteSet) -> ByteSet:
        """Return the bytes that are not in another set; where that cannot be told, more."""
        if not self or other.low >= self.high or self.low >= other.high:
            return self
        if other.whole and other.low <= self.low and self.high <= other.high:
            return _NOTHING
        if self.box is not None or other.box is not None:
            return _NOTHING if self.box is not None and self.box == other.box else self
        found: list[Strided] = []
        for part in self.parts:
            low = part.low
            for at in range(_near(other.parts, low), len(other.parts)):
                gone = other.parts[at]
                if gone.low >= part.high:
                    break
                if low < gone.low:
                    before = clipped(part, low, gone.low)
                    _append(found, () if before is None else (before,))
                low = max(low, gone.low)
                end = min(part.high, gone.high)
                if low < end:
                    _append(found, outside(part, gone, low, end))
                    low = end
            rest = clipped(part, low, part.high)
            _append(found, () if rest is None else (rest,))
        return ByteSet(found)


_NOTHING = ByteSet(())


def _near(parts: Sequence[Strided], low: int) -> int:
    """Return the first of the parts that ends behind a byte."""
    return bisect_right(parts, low, key=_high) if len(parts) > 1 else 0


def _high(part: Strided) -> int:
    return part.high


def _append(found: list[Strided], parts: Iterable[Strided]) -> None:
    """Add parts behind others; those that touch and have all their bytes become one."""
    for part in parts:
        last = found[-1] if found else None
        if last is not None and last.high == part.low and last.runs is part.runs is FULL:
            found[-1] = Strided(last.low, part.high)
        else:
            found.append(part)


def span(low: int, high: int) -> ByteSet:
    """Return all bytes from the first to before the last."""
    return ByteSet((Strided(low, high),) if low < high else ())


def bytes_of(start: int, layout: Layout) -> ByteSet:
    """Return the bytes of an array whose first element is at ``start``."""
    found = _touched(layout)
    return found.moved(start) if start and found else found


@lru_cache(1024)  # a plan asks several times for each of its layouts
def _touched(layout: Layout) -> ByteSet:
    if not layout.size or not layout.itemsize:
        return _NOTHING
    axes = []
    low = 0
    for length, stride in zip(layout.shape, layout.strides, strict=True):
        if length > 1 and stride:
            low += min(stride * (length - 1), 0)
            axes.append((abs(stride), length))
    run = layout.itemsize
    axes.sort()
    while axes and axes[0][0] <= run:
        stride, length = axes.pop(0)
        run += stride * (length - 1)
    if not axes:
        return span(low, low + run)
    reached = [run]
    for stride, length in axes:
        reached.append(reached[-1] + stride * (length - 1))
    most, limit = reached.pop(), strided_runs.RUNS
    # The axes before one make the runs of a period, it has the periods, those after it the parts.
    lengths = [length for _, length in axes]
    apart = [math.prod(lengths[:n]) + math.prod(lengths[n + 1 :]) for n in range(len(axes))]
    best = min(range(len(axes)), key=apart.__getitem__)
    nested = all([stride >= end for (stride, _), end in zip(axes, reached, strict=True)])
    if nested and apart[best] <= limit:
        (period, count), end = axes[best], reached[best]
        runs = tuple([(at, at + run) for at in _starts(axes[:best])])
        parts = [
            Strided(at + low, at + low + period * (count - 1) + end, period, at + low, runs)
            for at in _starts(axes[best + 1 :])
        ]
        return ByteSet(parts)
    if math.prod(lengths) > limit:
        return ByteSet((Strided(low, low + most),), (0, layout))
    found: list[Strided] = []
    for at in _starts(axes):
        last = found[-1].high if found else low
        _append(found, [Strided(max(low + at, last), max(low + at + run, last))])
    return ByteSet(found)


def _starts(axes: Sequence[tuple[int, int]]) -> list[int]:
    """Return where the elements of some axes begin, sorted."""
    steps = [range(0, stride * length, stride) for stride, length in axes]
    return sorted(map(sum, product(*steps)))


class _At:
    """Memory at an address, told to NumPy as an array: it is never read."""

    def __init__(self, box: tuple[int, Layout]) -> None:
        start, layout = box
        self.__array_interface__ = {
            "data": (start, True),
            "shape": layout.shape,
            "strides": layout.strides,
            "typestr": f"|V{layout.itemsize}",
            "version": 3,
        }


# Addresses of what lies nowhere count from 0, which NumPy would take for no memory at all.
_SOMEWHERE = 1 << 40


def _apart(a: tuple[int, Layout], b: tuple[int, Layout]) -> bool:
    one, other = [np.asarray(_At((start + _SOMEWHERE, layout))) for start, layout in (a, b)]
    try:
        return not np.shares_memory(one, other, max_work=_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False


def same_steps(a: Layout, b: Layout) -> bool:
    """Tell whether two arrays go through memory alike: of axes of length one the strides do not
    count."""
    if a is b:
        return True
    if a.shape != b.shape or a.itemsize != b.itemsize:
        return False
    return all(
        n < 2 or one == other for n, one, other in zip(a.shape, a.strides, b.strides, strict=True)
    )
