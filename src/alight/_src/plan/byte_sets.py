"""Sets of bytes that strided arrays touch: where they meet, and what is left without one.

They are decided exactly: by their runs of bytes where these are few, else by a mark for each
element's worth of bytes. Of arrays too large for that NumPy's own solver is asked whether two meet,
and what it cannot tell in time counts as meeting.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from alight._src.base.originals import np

if TYPE_CHECKING:
    from alight._core import Layout

__all__ = ["MARKS", "RUNS", "ByteSet", "bytes_of", "same_steps", "span"]

# Runs of one set that are told apart: a column of so many rows. Writing so many down takes 7 ms and
# looking where two such sets meet 2 (one EPYC core, NumPy 2.4), and a plan is to be checked in ms.
RUNS = 1 << 16
# Marks of one set: those of an array of 4 M elements side by side, or of each second one of 2 M.
# Writing so many down takes 4 ms, and looking where two such sets meet 5 (same core and NumPy).
MARKS = 1 << 22
# What NumPy's solver may try before it says that it does not know: some ms.
_WORK = 1 << 16

_Ints = np.ndarray[Any, np.dtype[np.int64]]
_Bools = np.ndarray[Any, np.dtype[np.bool_]]


class ByteSet:
    """Bytes from ``low`` to before ``high``: all of them, or of ``runs`` those between the numbers
    of each row, sorted and apart; of ``marks`` those of each ``unit`` bytes that are marked. Where
    ``box`` is given (an address and a layout) it is too many to tell them: some of the bytes in
    between."""

    __slots__ = ("box", "high", "low", "marks", "runs", "unit")

    def __init__(
        self,
        low: int,
        high: int,
        runs: _Ints | None = None,
        box: tuple[int, Layout] | None = None,
        marks: _Bools | None = None,
        unit: int = 1,
    ) -> None:
        self.low = low
        self.high = high
        self.runs = runs
        self.box = box
        self.marks = marks
        self.unit = unit

    def __bool__(self) -> bool:
        return self.low < self.high

    def __repr__(self) -> str:
        parts = "" if self.whole else " in parts"
        return f"{self.low}…{self.high}{parts}"

    @property
    def whole(self) -> bool:
        """Tell whether these are all bytes from the first to the last."""
        return self.runs is None and self.box is None and self.marks is None

    def moved(self, by: int) -> ByteSet:
        """Return the bytes that lie so far behind these."""
        return ByteSet(
            self.low + by,
            self.high + by,
            None if self.runs is None else self.runs + by,
            None if self.box is None else (self.box[0] + by, self.box[1]),
            self.marks,
            self.unit,
        )

    def meets(self, other: ByteSet) -> bool:
        """Tell whether a byte is in both; True where that takes too long to find out."""
        return bool(self & other)

    def within(self, other: ByteSet) -> bool:
        """Tell whether all bytes are in another set; False where that cannot be told."""
        return not self - other

    def __and__(self, other: ByteSet) -> ByteSet:
        """Return the bytes in both; where that cannot be told, more."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        if low >= high:
            return _NOTHING
        if self.whole and other.whole:
            return ByteSet(low, high)
        if self.box is not None or other.box is not None:
            if self.box is not None and self.box == other.box:
                return self
            if other.whole and other.low <= self.low and self.high <= other.high:
                return self
            if self.whole and self.low <= other.low and other.high <= self.high:
                return other
            if self.box is not None and other.box is not None and _apart(self.box, other.box):
                return _NOTHING
            return ByteSet(low, high, None, self.box or other.box)
        if self.marks is None and other.marks is None:
            return _swept(self, other, inside=True)
        if self.marks is other.marks and self.low == other.low:
            return self
        return _marked(self, other, low, high, inside=True)

    def __sub__(self, other: ByteSet) -> ByteSet:
        """Return the bytes that are not in another set; where that cannot be told, all."""
        if not self or other.low >= self.high or self.low >= other.high:
            return self
        if other.whole and other.low <= self.low and self.high <= other.high:
            return _NOTHING
        if self.box is not None or other.box is not None:
            return _NOTHING if self.box is not None and self.box == other.box else self
        if self.whole and other.whole:
            if other.low <= self.low:
                return ByteSet(other.high, self.high)
            if self.high <= other.high:
                return ByteSet(self.low, other.low)
        if self.marks is None and other.marks is None:
            return _swept(self, other, inside=False)
        if self.marks is other.marks and self.low == other.low:
            return _NOTHING
        return _marked(self, other, self.low, self.high, inside=False)


_NOTHING = ByteSet(0, 0)


def span(low: int, high: int) -> ByteSet:
    """Return all bytes from the first to before the last."""
    return ByteSet(low, high)


def bytes_of(start: int, layout: Layout) -> ByteSet:
    """Return the bytes of an array whose first element is at ``start``."""
    found = _touched(layout)
    if found.box is not None:
        found = _each(layout)
    return found.moved(start) if start and found else found


@lru_cache(1024)  # a plan asks several times for each of its layouts
def _touched(layout: Layout) -> ByteSet:
    if not layout.size or not layout.itemsize:
        return _NOTHING
    axes = []
    low = high = 0
    for length, stride in zip(layout.shape, layout.strides, strict=True):
        if length > 1 and stride:
            reach = stride * (length - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
            axes.append((abs(stride), length))
    run = layout.itemsize
    high += run
    axes.sort()
    inner = 0
    for stride, length in axes:
        if stride > run:
            break
        run += stride * (length - 1)
        inner += 1
    outer = axes[inner:]
    if not outer:
        return ByteSet(low, high)
    if math.prod([length for _, length in outer]) > RUNS:
        return ByteSet(low, high, None, (0, layout))
    starts: _Ints = np.zeros(1, np.int64)
    for stride, length in outer:
        steps = np.arange(length, dtype=np.int64) * stride
        starts = (steps[:, None] + starts).ravel()
    starts = np.sort(starts) + low
    return _of(starts, starts + run)


@lru_cache(16)  # of some MB each
def _each(layout: Layout) -> ByteSet:
    """Return the bytes of an array that are more than a few runs, by marks if not too many."""
    found = _touched(layout)
    axes = tuple(zip(layout.shape, layout.strides, strict=True))
    steps = [s for n, s in axes if n > 1]
    unit = math.gcd(layout.itemsize, *steps)
    count = (found.high - found.low) // unit
    if count > MARKS:
        return found
    marks = np.zeros(count, bool)
    shape = *layout.shape, layout.itemsize // unit
    strides = *(s // unit if n > 1 else 0 for n, s in axes), 1
    np.ndarray(shape, bool, marks, -found.low // unit, strides)[...] = True
    return _of_marks(found.low, marks, unit)


def _of_marks(low: int, marks: _Bools, unit: int) -> ByteSet:
    """Return the set of what is marked from a byte on."""
    if not marks.any():
        return _NOTHING
    first, last = int(marks.argmax()), len(marks) - int(marks[::-1].argmax())
    marks = marks[first:last]
    ends = low + first * unit, low + last * unit
    return ByteSet(*ends) if marks.all() else ByteSet(*ends, marks=marks, unit=unit)


def _marked(a: ByteSet, b: ByteSet, low: int, high: int, inside: bool) -> ByteSet:
    """Return the bytes of one set, from one byte to before another, that are inside of another set,
    or those that are not."""
    unit = math.gcd(high - low, _unit(a, low, high), _unit(b, low, high))
    if (high - low) // unit > MARKS * 16:  # marks of the largest items, taken byte by byte
        return ByteSet(low, high) if inside else a
    first, second = _marks(a, low, high, unit), _marks(b, low, high, unit)
    return _of_marks(low, first & (second if inside else ~second), unit)


def _unit(one: ByteSet, low: int, high: int) -> int:
    """Return how many bytes each mark may stand for that is to tell a set's bytes from one on."""
    if one.marks is not None:
        return math.gcd(one.unit, one.low - low)
    return int(np.gcd.reduce(np.clip(_runs(one), low, high).ravel() - low))


def _marks(one: ByteSet, low: int, high: int, unit: int) -> _Bools:
    """Return marks for some bytes: those that are in a set."""
    count = (high - low) // unit
    if one.marks is None:
        runs = (np.clip(_runs(one), low, high) - low) // unit
        runs = runs[runs[:, 0] < runs[:, 1]]
        turns = np.zeros(count + 1, np.int8)
        turns[runs[:, 0]] = 1
        turns[runs[:, 1]] = -1
        return np.cumsum(turns, dtype=np.int8)[:count].view(bool)
    own = np.repeat(one.marks, one.unit // unit) if one.unit > unit else one.marks
    at = (one.low - low) // unit
    if at == 0 and len(own) == count:
        return own
    found = np.zeros(count, bool)
    first, last = max(at, 0), min(at + len(own), count)
    found[first:last] = own[first - at : last - at]
    return found


def _of(starts: _Ints, ends: _Ints) -> ByteSet:
    """Return the set of runs sorted by where they begin; those that touch become one."""
    reached = np.maximum.accumulate(ends)
    first = np.ones(len(starts), bool)
    first[1:] = starts[1:] > reached[:-1]
    last = np.append(first[1:], True)
    runs = np.stack([starts[first], reached[last]], axis=1)
    whole = len(runs) == 1
    return ByteSet(int(runs[0, 0]), int(runs[-1, 1]), None if whole else runs)


def _runs(one: ByteSet) -> _Ints:
    return np.array([[one.low, one.high]], np.int64) if one.runs is None else one.runs


def _swept(a: ByteSet, b: ByteSet, inside: bool) -> ByteSet:
    """Return the bytes of one set that are inside of another, or those that are not."""
    first, second = _runs(a), _runs(b)
    edges = np.concatenate((first.ravel(), second.ravel()))
    order = np.argsort(edges, kind="stable")
    turns = np.tile(np.array([1, -1], np.int64), len(first) + len(second))
    own = np.arange(len(edges)) < 2 * len(first)
    in_a = np.cumsum(np.where(own, turns, 0)[order])
    in_b = np.cumsum(np.where(own, 0, turns)[order])
    edges = edges[order]
    found = (in_a > 0) & ((in_b > 0) == inside)
    found[:-1] &= edges[1:] > edges[:-1]
    places = np.flatnonzero(found[:-1])
    if not len(places):
        return _NOTHING
    return _of(edges[places], edges[places + 1])


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
