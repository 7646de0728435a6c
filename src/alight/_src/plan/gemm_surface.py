"""Seconds of matrix products: what the machine does, and a measured correction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from alight._src.base.records import dataclass

# What the seconds of an (m, k) by (k, n) product are made of: a call, multiplications, the reading
# of both operands, the writing of the result, and the steps along the inner side: a library works
# on tiles of a result, which it fills up where that is smaller, and shares no inner side among
# threads. Without these 8 x 131072 x 2 was predicted to take BLAS a quarter of what it did (250 us
# for 900 and 1035, 16 threads of a Xeon), with them a half and three quarters.
TERMS = ("call", "mkn", "mk", "kn", "mn", "k")


def terms_of(m: float, k: float, n: float) -> tuple[float, ...]:
    """Return the amount of each of ``TERMS`` in a product."""
    return 1.0, m * k * n, m * k, k * n, m * n, k


@dataclass(frozen=True, slots=True)
class Surface:
    """Seconds over (m, k, n): a sum of terms none of which is negative, times the exponential of
    bells around measured products. Far from all of these only the sum is left. No product takes
    less than ``fastest`` for each multiplication, which none that was measured did.

    ``centres`` are logarithms to base 2; a bell falls to exp(-1/2) at ``width`` of them.
    """

    seconds: tuple[float, ...]
    centres: tuple[tuple[float, float, float], ...]
    heights: tuple[float, ...]
    width: float
    fastest: float = 0.0

    def seconds_at(self, m: float, k: float, n: float) -> float:
        """Return the seconds of a product."""
        base = sum(a * b for a, b in zip(self.seconds, terms_of(m, k, n), strict=True))
        x, y, z = math.log2(max(m, 1)), math.log2(max(k, 1)), math.log2(max(n, 1))
        scale = -0.5 / self.width**2
        raised = 0.0
        for (a, b, c), height in zip(self.centres, self.heights, strict=True):
            raised += height * math.exp(scale * ((x - a) ** 2 + (y - b) ** 2 + (z - c) ** 2))
        return max(base * math.exp(raised), self.fastest * m * k * n)

    def to_dict(self) -> dict[str, Any]:
        """Return the surface as a document."""
        return {
            "seconds": list(self.seconds),
            "centres": [list(centre) for centre in self.centres],
            "heights": list(self.heights),
            "width": self.width,
            "fastest": self.fastest,
        }

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Surface:
        """Return the surface a document describes; ValueError where none can be like it."""
        seconds: Sequence[float] = document["seconds"]
        if len(seconds) == len(TERMS) - 1:  # older ones know no steps
            seconds = [*seconds, 0.0]
        centres, heights = document["centres"], document["heights"]
        if (
            len(seconds) != len(TERMS)
            or len(centres) != len(heights)
            or not all(math.isfinite(s) and s >= 0 for s in seconds)
            or not any(seconds)
            or not all(math.isfinite(h) for h in heights)
            or not document["width"] > 0
            or not 0 <= document.get("fastest", 0.0) < math.inf
        ):
            raise ValueError(
                f"a surface of {seconds} and {len(centres)} centres. Fix: calibrate again."
            )
        return Surface(
            tuple(seconds),
            tuple((a, b, c) for a, b, c in centres),
            tuple(heights),
            document["width"],
            document.get("fastest", 0.0),  # older ones know none
        )
