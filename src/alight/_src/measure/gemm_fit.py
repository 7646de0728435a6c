"""From timings of matrix products to their surface."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from alight._src.plan.gemm_surface import TERMS, Surface, terms_of

# Widths of the bells, in powers of two of a side, and how much of a residual is noise: the pair is
# taken that predicts best what it has not seen.
_WIDTHS = (0.7, 1.0, 1.5, 2.5, 4.0)
_RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_NOISE = 0.01  # of the median of all
# Products below which a surface has more terms than it can be held to.
LEAST = 2 * len(TERMS)

Shape = tuple[int, int, int]


def surface_of(timings: Mapping[Shape, float]) -> tuple[Surface, list[float]] | None:
    """Return the surface through products' seconds, and by how much, in logarithms, it would miss
    each of them without it; None where they are too few."""
    if len(timings) < LEAST:
        return None
    shapes = list(timings)
    seconds = np.array([timings[shape] for shape in shapes])
    base = non_negative(np.array([terms_of(*shape) for shape in shapes]), seconds)
    centres = np.log2(np.array(shapes, float))
    rest = np.log(seconds / (np.array([terms_of(*s) for s in shapes]) @ base))
    heights, width, missed = _bells(centres, rest)
    surface = Surface(
        tuple(float(b) for b in base),
        tuple((float(a), float(b), float(c)) for a, b, c in centres),
        tuple(float(h) for h in heights),
        width,
        min(timings[shape] / math.prod(shape) for shape in shapes),
    )
    return surface, [float(miss) for miss in missed]


def non_negative(terms: Any, seconds: Any) -> Any:
    """Return the non-negative factors of least relative squares.

    Lawson and Hanson's way: factors join one by one, the one that helps most first, and leave
    where they would turn negative.
    """
    # What takes far less than the rest is noise for the most part and need not be met so closely.
    weights = 1.0 / (seconds + np.median(seconds) * _NOISE)
    rows = terms * weights[:, None]
    scale = rows.max(axis=0)
    scale[scale == 0.0] = 1.0
    rows = rows / scale
    target = seconds * weights
    active: list[int] = []
    found = np.zeros(rows.shape[1])
    for _ in range(4 * rows.shape[1]):  # each round brings one in; few leave again
        gain = rows.T @ (target - rows @ found)
        gain[active] = 0.0
        best = int(np.argmax(gain))
        if gain[best] <= 1e-9 * len(seconds):
            break
        active.append(best)
        while active:
            trial = np.linalg.lstsq(rows[:, active], target, rcond=None)[0]
            if trial.min() > 0:
                break
            del active[int(np.argmin(trial))]
        found[:] = 0.0
        found[active] = trial if active else 0.0
    if not found.any():  # nothing fits: all of it is the call
        found[0] = target.mean()
    return found / scale


def _bells(centres: Any, rest: Any) -> tuple[Any, float, Any]:
    """Return heights and width of the bells that predict best what is left out of them, and what
    that misses.

    What a point would be predicted as without itself has a closed form in ridge regression.
    """
    squares = ((centres[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    best = (float(np.mean(np.abs(rest))), np.zeros(len(rest)), _WIDTHS[0], rest)
    for width in _WIDTHS:
        kernel = np.exp(-0.5 * squares / width**2)
        for ridge in _RIDGES:
            inverse = np.linalg.inv(kernel + ridge * np.eye(len(rest)))
            heights = inverse @ rest
            missed = heights / np.diag(inverse)
            error = float(np.mean(np.abs(missed)))
            if math.isfinite(error) and error < best[0]:
                best = (error, heights, width, missed)
    return best[1:]
