"""How sure a profile is of what it predicts: intervals by how far its predictions were off of what
it was tried on, each class of them by its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from alight.measure.unseen import MATMUL, REDUCE

__all__ = ["INSIDE", "spreads_of"]

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
    out`` of it."""
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
            if kind != MATMUL and missed:
                spread = _shrunk(missed, every)
                own = ("reduce_inner", "reduce_outer") if kind == REDUCE else (kind,)
                spreads.update(dict.fromkeys(own, spread))
        others = [(abs(error), 1.0) for error in left_out.get(name, ())]
        missed = errors.get(name, {}).get(MATMUL, ())
        if others or missed:
            spreads[MATMUL] = _shrunk(missed, others)
        found[name] = spreads
    return found


def _shrunk(own: Sequence[float], others: Sequence[tuple[float, float]]) -> float:
    """Return the standard deviation whose interval holds so many of one's own errors, and of
    others with their weights."""
    parts = [(len(own), _quantile((abs(error), 1.0) for error in own))] if own else []
    if others:
        parts.append((_OTHERS, _quantile(others)))
    logs = sum(count * math.log(max(value, _LEAST_SPREAD)) for count, value in parts)
    value = math.exp(logs / sum(count for count, _ in parts))
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
