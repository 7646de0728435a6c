"""Measured numbers and measured curves: every prediction is read off one of these."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from alight._src.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """A number with its unit, its 80 % interval and where it comes from.

    ``source`` is one of probe, imported, vendor table, guess.
    """

    value: float
    unit: str
    low: float
    high: float
    samples: int
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a document."""
        return {name: getattr(self, name) for name in self.__slots__}

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Measured:
        """Return the number a document describes."""
        number = document  # hundreds to a profile: by place, which is the quickest
        return Measured(
            *(number["value"], number["unit"], number["low"], number["high"]),
            *(number["samples"], number["source"]),
        )


def guess(value: float, unit: str) -> Measured:
    """Return a number nobody measured, good within a factor of two."""
    return Measured(value, unit, value / 2, value * 2, 0, "guess")


# Of the seconds of the first knot, so much is at least not overhead: two knots that are equal show
# no stream, and a logarithm needs one. A twentieth of what two samples of a call differ by.
_LEAST_STREAM = 5e-4
# Of the overhead: what is less beyond it drowns in the noise of two samples.
_SHOWN = 1.1


def _overhead(points: Sequence[tuple[float, float]]) -> float:
    """Return what no work at all would take, on the line through the first two knots."""
    (work, seconds), *others = points
    if not others:
        return 0.0
    stream = (others[0][1] - seconds) * work / (others[0][0] - work)
    return seconds - min(max(stream, _LEAST_STREAM * seconds), seconds)


class Curve:
    """Seconds over work, through measured knots.

    Between knots it is a monotone cubic in logarithms, of what a call takes beyond its overhead: a
    sum of an overhead and a stream is straight nowhere in logarithms, but its stream is. Below the
    first knot it is flat, because a call costs its overhead; above the last what is beyond that is
    proportional, because a stream has one bandwidth.
    """

    __slots__ = ("_beyond", "_log_work", "_overhead", "_quickest", "_slopes", "knots", "source")

    def __init__(self, knots: Iterable[tuple[float, float]], source: str = "probe") -> None:
        self.source = source
        points = sorted(knots)
        if not points or not points[0][0] > 0 or min(seconds for _, seconds in points) <= 0:
            raise ValueError(
                f"a curve needs knots of positive work and seconds, not {points}. "
                "Fix: measure again; a clock that shows no time is too coarse for the work."
            )
        self._log_work = [math.log(work) for work, _ in points]
        if min((b - a for a, b in pairwise(self._log_work)), default=1.0) <= 0:
            raise ValueError("a curve has two knots at one place. Fix: join them before.")
        seconds = _rising([seconds for _, seconds in points])
        # A profile has some forty curves, of which a program reads a few.
        self._slopes: list[float] = []
        self.knots = tuple((work, s) for (work, _), s in zip(points, seconds, strict=True))

    def seconds_at(self, work: float) -> float:
        """Return the seconds that this much work takes."""
        first_work, first_seconds = self.knots[0]
        if work <= first_work:
            return first_seconds
        last_work, last_seconds = self.knots[-1]
        if not self._slopes:
            self._read()
        if work >= last_work:
            if last_seconds <= _SHOWN * self._overhead:  # no stream was met
                return last_seconds * (work / last_work)
            return self._overhead + (last_seconds - self._overhead) * (work / last_work)
        x = math.log(work)
        i = bisect_right(self._log_work, x) - 1
        width = self._log_work[i + 1] - self._log_work[i]
        t = (x - self._log_work[i]) / width
        a, b = self._beyond[i], self._beyond[i + 1]
        left, right = self._slopes[i] * width, self._slopes[i + 1] * width
        s = 1.0 - t
        y = a * (1 + 2 * t) * s * s + left * t * s * s + b * t * t * (3 - 2 * t) - right * t * t * s
        return self._overhead + math.exp(y)

    def stream_seconds(self, work: float) -> float:
        """Return the seconds that this much work takes beyond the overhead where it is quickest, as
        in the caches."""
        if not self._slopes:
            self._read()
        return work * self._quickest

    def _read(self) -> None:
        """Find what is between the knots."""
        self._overhead = _overhead(self.knots)
        self._beyond = [math.log(s - self._overhead) for _, s in self.knots]
        streams = [
            (s - self._overhead) / work for work, s in self.knots if s > _SHOWN * self._overhead
        ]
        self._quickest = min(streams, default=0.0)
        # the last: another thread takes a curve that has them for one that was read
        self._slopes = _monotone_slopes(self._log_work, self._beyond)

    def undisturbed(self, seconds: float) -> Curve:
        """Return the curve without what was in the way of some of its knots, from the last one on
        that takes no longer than so many seconds: more work of a stream never takes less for each
        further byte, as caches end, so a knot above the line between others met what they did
        not."""
        first = bisect_right([s for _, s in self.knots], seconds) - 1
        if len(self.knots) - first < 3 or first < 0:
            return self
        below: list[tuple[float, float]] = []
        for work, s in self.knots[first:]:
            while len(below) > 1 and _slope(below[-2], below[-1]) > _slope(below[-1], (work, s)):
                below.pop()
            below.append((work, s))
        line = list(self.knots[:first])
        for (work, s), (more, t) in pairwise(below):
            between = [w for w, _ in self.knots if work <= w < more]
            line += [(w, s + (t - s) * (w - work) / (more - work)) for w in between]
        return Curve([*line, below[-1]], self.source)

    def to_dict(self) -> dict[str, Any]:
        """Return the knots as a document."""
        return {"knots": [list(knot) for knot in self.knots], "source": self.source}

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Curve:
        """Return the curve a document describes."""
        return Curve([(work, seconds) for work, seconds in document["knots"]], document["source"])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Curve) or len(self.knots) != len(other.knots):
            return False
        pairs = zip(self.knots, other.knots, strict=True)
        return self.source == other.source and all(
            math.isclose(x, y, rel_tol=1e-12) for a, b in pairs for x, y in zip(a, b, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]


def _slope(one: tuple[float, float], two: tuple[float, float]) -> float:
    return (two[1] - one[1]) / (two[0] - one[0])


def _rising(values: Sequence[float]) -> list[float]:
    """Return the sequence that never falls: less work takes no longer than more, and what made it
    seem to only ever adds."""
    return list(accumulate(reversed(values), min))[::-1]


def _monotone_slopes(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Return slopes at the knots for which the cubic between two of them never turns.

    Fritsch and Butland: the weighted harmonic mean of the neighbouring secants, zero at a turn.
    """
    if len(x) == 1:
        return [0.0]
    widths = [b - a for a, b in pairwise(x)]
    secants = [(b - a) / w for (a, b), w in zip(pairwise(y), widths, strict=True)]
    slopes = [secants[0]]
    for i in range(1, len(secants)):
        left, right = secants[i - 1], secants[i]
        if left * right <= 0:
            slopes.append(0.0)
        else:
            one, two = 2 * widths[i] + widths[i - 1], widths[i] + 2 * widths[i - 1]
            slopes.append((one + two) / (one / left + two / right))
    slopes.append(secants[-1])
    return slopes
