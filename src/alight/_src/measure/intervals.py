"""How sure a profile is of what it predicts: intervals by how far its predictions were off of what
it was tried on, each class of them by its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from alight._src.measure.held_out import MATMUL, REDUCE

__all__ = ["CLASS_OFF", "INSIDE", "SEVERAL", "far_off", "spreads_of"]

# Of a class of predictions, from where on it tells nothing: products whose threads had lost their
# processor took 100 times as long as predicted. At 30 % classes were hit of profiles that were 6
# and 7 % off in all.
CLASS_OFF = math.log(2.0)
# Errors that have a median of their own.
SEVERAL = 4

# Of predictions, those whose interval is to hold what was measured then.
INSIDE = 0.8
# Standard normal deviate that leaves 10 % on either side.
_TEN_PERCENT = 1.2815515655446004
# No prediction is better than two measurements of the same thing agree: 2.4 % at best.
_LEAST_SPREAD = 0.024
# A handful of errors says little of their quantile: a class is as sure as if it had so many more,
# which are as those of all classes. Of nine profiles' (EPYC, one and two threads) some 500 other
# groups each, the intervals of a class held 69 to 91 %, by its own alone 72 to 100, by those of all
# alone 66 to 93.
_OTHERS = 20


def spreads_of(
    errors: Mapping[str, Mapping[str, Sequence[float]]], left_out: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, float]]:
    """Return for each implementation the standard deviation of each class of predictions, by their
    errors in logarithms; of products also by how far those that a surface is made of are ``left
    out`` of it. Where there was time for fewer than several, they say nothing: one of 1.5 % made
    intervals of which 15 % held (16 threads)."""
    every = [
        (abs(error), 1.0 / max(len(missed), _OTHERS // 2))  # a class as much as any other
        for kinds in errors.values()
        for kind, missed in kinds.items()
        if kind != MATMUL
        for error in missed
    ]
    found: dict[str, dict[str, float]] = {}
    for name in {**errors, **left_out}:
        spreads: dict[str, float] = {}
        for kind, missed in errors.get(name, {}).items():
            if kind != MATMUL and missed and len(every) >= SEVERAL:
                spread = _shrunk(missed, every)
                own = ("reduce_inner", "reduce_outer") if kind == REDUCE else (kind,)
                spreads.update(dict.fromkeys(own, spread))
        others = [(abs(error), 1.0) for error in left_out.get(name, ())]
        missed = errors.get(name, {}).get(MATMUL, ())
        if others or missed:
            spreads[MATMUL] = _shrunk(missed, others)
        found[name] = spreads
    return found


def far_off(*errors: Sequence[float]) -> float | None:
    """Return by how much, in logarithms, one of these lists is off in the median where that is so
    far that it had better not be relied on."""
    found = [median([abs(error) for error in own]) for own in errors if len(own) >= SEVERAL]
    return max(found, default=0.0) if max(found, default=0.0) > CLASS_OFF else None


def _shrunk(own: Sequence[float], others: Sequence[tuple[float, float]]) -> float:
    """Return the standard deviation whose interval holds so many of one's own errors, and of
    others with their weights; half of several of one's own whatever the others are."""
    parts = [(len(own), _quantile((abs(error), 1.0) for error in own))] if own else []
    if others:
        parts.append((_OTHERS, _quantile(others)))
    logs = sum(count * math.log(max(value, _LEAST_SPREAD)) for count, value in parts)
    value = math.exp(logs / sum(count for count, _ in parts))
    if len(own) >= SEVERAL:
        value = max(value, median([abs(error) for error in own]))
    return max(_LEAST_SPREAD, value / _TEN_PERCENT)


def _quantile(values: Iterable[tuple[float, float]]) -> float:
    """Return the value below which so much of the weight lies."""
    ranked = sorted(values)
    wanted = INSIDE * sum(weight for _, weight in ranked)
    places, below = [], 0.0
    for value, weight in ranked:
        places.append((below + weight / 2, value))
        below += weight
    for (at, value), (until, more) in pairwise(places):
        if until >= wanted:
            return value + (more - value) * max(0.0, wanted - at) / (until - at)
    return places[-1][1]
