"""What was measured that is most like what is asked for: found once, when it is first asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

from alight._src.ir.op import width_in_bits
from alight._src.plan.curve import Curve, Measured

__all__ = ["BORROWED_SPREAD", "NearestWork", "Once", "distance", "nearest_curve"]

_Key = TypeVar("_Key")
_Found = TypeVar("_Found")


class Once(dict[_Key, _Found]):
    """Answers to questions, each of which is found when it is first asked."""

    __slots__ = ("find",)

    def __init__(self, find: Callable[[_Key], _Found]) -> None:
        self.find = find

    def __missing__(self, key: _Key) -> _Found:
        found = self[key] = self.find(key)
        return found


# Standard deviation, in logarithms, of a prediction from another class's or dtype's curve. A guess:
# a factor of two either way at one deviation. What was measured brings its own.
BORROWED_SPREAD = math.log(2.0)
# Classes to borrow from, nearest first, where a device has no curve of a class.
_NEAREST: Mapping[str, tuple[str, ...]] = {
    "elementwise": (),
    "select": ("elementwise",),
    "reduce_inner": ("reduce_outer", "elementwise"),
    "reduce_outer": ("reduce_inner", "elementwise"),
    "reduce_narrow": ("reduce_outer", "reduce_inner", "elementwise"),
    "reduce_sum": ("reduce_inner",),
    "reduce_rows": ("reduce_inner", "reduce_outer", "elementwise"),
    "scan": ("reduce_inner", "elementwise"),
    "move": ("elementwise",),
    "gather": ("move", "elementwise"),
    "sort": (),
    "fft": (),
    "other": (),
    "matmul": (),
}


def distance(dtype: str, other: str) -> tuple[bool, int]:
    """Return how unlike two dtypes are to compute with: first in kind, then in width."""
    kinds = {name.startswith(("float", "complex")) for name in (dtype, other)}
    return len(kinds) > 1, abs(width_in_bits(dtype) - width_in_bits(other))


def nearest_curve(
    curves: Mapping[str, Curve], spread: float, kind: str, dtype: str
) -> tuple[Curve, float] | None:
    """Return the curve for a class and dtype, or the nearest there is, and its spread, which is
    ``spread`` where it is their own."""
    found = curves.get(f"{kind}/{dtype}")
    if found is not None:
        return found, spread
    for near in (kind, *_NEAREST[kind]):
        names = [name for name in curves if name.startswith(near + "/")]
        if names:
            # Curves run over bytes, so the dtype nearest in width moves them most alike.
            best = min(names, key=lambda n: (*distance(dtype, n.partition("/")[2]), n))
            return curves[best], math.hypot(spread, BORROWED_SPREAD)
    return None


class NearestWork(dict[tuple[str, str], str | None]):
    """The key of the work of a name in the dtype most like another; None where there is none."""

    __slots__ = ("dtypes", "work")

    def __init__(self, work: Mapping[str, Measured]) -> None:
        self.work = work
        self.dtypes: dict[str, list[str]] = {}

    def __missing__(self, asked: tuple[str, str]) -> str | None:
        name, dtype = asked
        if not self.dtypes:
            for key in self.work:
                own, _, other = key.partition("/")
                self.dtypes.setdefault(own, []).append(other)
        others = self.dtypes.get(name, ())
        near = min(others, key=lambda other: (*distance(dtype, other), other), default=None)
        self[asked] = found = None if near is None else f"{name}/{near}"
        return found
