"""The timings that a calibration gathers, by what they are of and how much of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from alight._src.base.records import dataclass, field, replace
from alight._src.ir.group import Group
from alight._src.measure.timing import Timing, summary
from alight._src.plan.curve import Curve
from alight._src.plan.passes import Pass, passes

__all__ = ["Sample", "Samples", "better_half"]

# Of what the knots beside it say, beyond which a knot is visited again: two visits of one thing
# differ by up to 11 % on a busy machine (`timing.DISAGREEMENT`).
_ABOVE = 1.11


@dataclass(slots=True)
class Sample:
    """What was measured of one point: the group, how much work it is on its curve, and seconds;
    while other work disturbed the machine only as long as there are no others. ``before``: some of
    them are of earlier calibrations."""

    amount: float
    group: Group
    work: float
    item: Pass
    seconds: list[float]
    steady: bool = True
    before: bool = False

    @property
    def timing(self) -> Timing:
        """Return the timing of the better half of all samples so far: of a handful that came in
        two visits, one visit may have met what makes all of its samples slow."""
        return better_half(self.seconds)


def better_half(seconds: Sequence[float]) -> Timing:
    """Return the timing of the quicker half of some samples."""
    ranked = sorted(seconds)
    return summary(ranked[: (len(ranked) + 1) // 2])


@dataclass(slots=True)
class Samples:
    """The timings of one implementation, by what they are of and how many elements they had."""

    implementation: str
    compute_elements: int
    hides: bool = False
    by_key: dict[str, dict[float, Sample]] = field(default_factory=dict)

    def add(
        self,
        key: str,
        amount: float,
        group: Group,
        seconds: Sequence[float],
        steady: bool = True,
    ) -> None:
        """Keep samples, with earlier ones of the same amount; ``steady`` ones alone, once there
        are some."""
        found = self.by_key.setdefault(key, {}).get(amount)
        if found is not None:
            if steady and not found.steady:
                found.seconds, found.steady, found.before = list(seconds), True, False
            elif steady or not found.steady:
                found.seconds += seconds
            return
        items = list(passes(group, self.implementation))
        work = sum(item.amount for item in items)
        self.by_key[key][amount] = Sample(amount, group, work, items[0], list(seconds), steady)

    def without(self, points: Collection[tuple[str, float]]) -> Samples:
        """Return the samples but those of some keys and amounts."""
        left = {
            key: {n: sample for n, sample in found.items() if (key, n) not in points}
            for key, found in self.by_key.items()
        }
        return replace(self, by_key={key: found for key, found in left.items() if found})

    def doubtful(self, classes: Collection[str]) -> set[tuple[str, float]]:
        """Return key and amount of the knots of such curves that lie above the line between those
        beside them: as caches end, no further byte takes less than the one before, so that they
        met what these did not (8 MB were summed in 172 us once, 4 and 16 MB in 52 and 213), or a
        curve bends there as few do. Slow moments that end before a visit does leave no other
        sign."""
        found = set()
        for key, samples in self.by_key.items():
            if key.partition("/")[0] not in classes:
                continue
            knots = [(s.work, s.timing.seconds, n) for n, s in samples.items()]
            knots.sort()
            for (w, t, _), (work, seconds, n), (more, longer, _) in zip(
                knots, knots[1:], knots[2:], strict=False
            ):
                if seconds > _ABOVE * (t + (longer - t) * (work - w) / (more - w)):
                    found.add((key, n))
        return found

    def gaps(self, key: str) -> list[tuple[float, float]]:
        """Return neighbouring amounts of a curve, those furthest apart first."""
        amounts = sorted(self.by_key.get(key, {}))
        return sorted(pairwise(amounts), key=lambda pair: pair[0] / pair[1])

    def seconds_of(self, key: str, amount: float) -> float:
        """Return the measured seconds of that amount."""
        return self.by_key[key][amount].timing.seconds

    def interpolated(self, key: str, amount: float) -> float:
        """Return the seconds that the timings so far predict for an amount."""
        knots = [(s.amount, s.timing.seconds) for s in self.by_key[key].values()]
        return Curve(knots).seconds_at(amount)
