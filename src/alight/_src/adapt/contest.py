"""Which of several ways to do one thing is the quickest, found by timing them in turns.

One contest serves all who ask: jitted calls (NumPy, a plan, its kernels), kernels whose runs take
longer than was predicted, and candidates that are timed before one is picked. It is told of laps
that were timed outside, as the runs of a program are, or runs them itself.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum, auto
from typing import Generic, TypeVar

from alight._src.base.records import dataclass

__all__ = [
    "CHOICE_RULES",
    "CLEAR",
    "GUARD_RULES",
    "KERNEL_RULES",
    "PLAN_RULES",
    "Contender",
    "Contest",
    "Rules",
]

# Where two single runs differ by more, three would not turn it round: on a loaded machine medians
# of few runs differ by 15 %.
CLEAR = 1.25


class Contender(Enum):
    """A way in which a program's work may be done."""

    __hash__ = object.__hash__  # looked up at each run; Enum's own is a function in Python

    NUMPY = auto()
    PLAN = auto()  # a plan replayed step by step, or a body on Arrays
    KERNELS = auto()  # generated code


@dataclass(frozen=True, slots=True)
class Rules:
    """When a contest is over, and who has won it. All but counts are ratios of seconds."""

    laps: int  # of each way, the best: what interrupts a lap only makes it longer
    least_laps: int  # of each way, before which nothing is clear
    rank: int = 0  # which of the quickest laps is a way's figure, the slowest where there are fewer
    margin: float = 1.0  # so much quicker than the incumbent is who takes its place
    ahead: float = CLEAR  # so far ahead a challenger has won without the laps that are left
    behind: float = CLEAR  # so far behind the incumbent it has lost without them
    out: float = math.inf  # so far behind the best a way has no more laps


# Calls of a jitted function, NumPy against a plan. The quickest of three runs of ours took 0.92 to
# 1.09 of NumPy's quickest in 48 races of calls that take 1.02 of NumPy's time (filters of 2^20,
# EPYC at rest): who wins by less has not won, and then it is NumPy's, which nobody can be slower
# than by taking it. A first run touches memory and caches anew: it may take ten times as long as
# the next.
PLAN_RULES = Rules(laps=3, least_laps=2, margin=1.08)
# Its kernels against what was the quickest before. Those that are behind have all their laps: their
# first ones find how many threads are best. By medians: threads that help are not always free, and
# the quickest of five laps of 71 outputs took 2.9 ms where most took 5.1, and NumPy 4.0.
KERNEL_RULES = Rules(laps=5, least_laps=2, rank=2, behind=math.inf)
# A kernel whose runs take longer than was predicted, against NumPy. It stays unless NumPy is
# clearly quicker: to go back on it costs as much as it may gain.
GUARD_RULES = Rules(laps=3, least_laps=3, margin=CLEAR)
# Candidates of ``pick="measure"``: as many laps of each as tell a quick moment from a slow one; who
# takes three times as long as the best loses by more than copies ever change, and by more than one
# lap errs.
CHOICE_RULES = Rules(laps=3, least_laps=3, ahead=math.inf, behind=math.inf, out=3.0)


W = TypeVar("W", bound=Hashable)


class Contest(Generic[W]):
    """Ways to do one thing, and the seconds of the quickest laps of each, in order. The first way
    is the incumbent, which stays where no other is clearly quicker."""

    __slots__ = ("rules", "seconds")

    def __init__(self, ways: Sequence[W], rules: Rules) -> None:
        self.rules = rules
        self.seconds: dict[W, list[float]] = {way: [] for way in ways}

    def lap(self, way: W, seconds: float) -> None:
        """Note what one lap of a way took."""
        laps = self.seconds[way]
        insort(laps, seconds)
        del laps[self.rules.laps :]

    def settle(self, way: W, seconds: float) -> None:
        """Have a way that was timed before need no laps."""
        self.seconds[way] = [seconds] * self.rules.laps

    def best(self, way: W) -> float:
        """Return the seconds of the quickest lap of a way, infinite where it had none."""
        laps = self.seconds[way]
        return laps[0] if laps else math.inf

    def turn(self) -> W | None:
        """Return the way whose lap is the next, None where all have had theirs: that of the fewest
        laps, so that what disturbs the machine for a while disturbs all."""
        racing = self._racing()
        way = min(racing, key=lambda way: len(self.seconds[way]))
        return way if len(self.seconds[way]) < self.rules.laps else None

    def winner(self) -> W | None:
        """Return the way to take from now on, None where that is not clear yet."""
        rules = self.rules
        racing = self._racing()
        fewest = min([len(self.seconds[way]) for way in racing])
        if fewest < rules.least_laps:
            return None
        incumbent = next(iter(self.seconds))
        first, *others = sorted(racing, key=self._figure)
        clear = rules.behind if first is incumbent else rules.ahead
        second_seconds = min(map(self._figure, others), default=math.inf)
        if fewest < rules.laps and second_seconds <= _times(clear, self._figure(first)):
            return None
        if self._figure(first) * rules.margin < self._figure(incumbent):
            return first
        return incumbent

    def _figure(self, way: W) -> float:
        """Return the seconds that a way is judged by, infinite where it had no lap."""
        laps = self.seconds[way]
        return laps[min(self.rules.rank, len(laps) - 1)] if laps else math.inf

    def _racing(self) -> list[W]:
        """Return the ways that are not too far behind the best to have another lap."""
        most = _times(self.rules.out, min(map(self.best, self.seconds)))
        return [way for way, laps in self.seconds.items() if not laps or laps[0] <= most]

    def run(self, ways: Mapping[W, Callable[[], float]]) -> None:
        """Time the ways in turns, by what runs a lap of each and returns its seconds, until one has
        won."""
        while (way := self.turn()) is not None and self.winner() is None:
            self.lap(way, ways[way]())


def _times(ratio: float, seconds: float) -> float:
    """Return so many times the seconds of a lap; of one within a tick of the clock, which tells of
    no ratio, infinitely many."""
    return ratio * seconds if seconds else math.inf
