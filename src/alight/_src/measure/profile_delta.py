"""How a profile's predictions differ from those of the one that it took the place of, which is gone
from the store."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from alight._src.base.failures import ignoring_failures
from alight._src.store import default_store

if TYPE_CHECKING:
    from alight._src.plan.profile import Profile

__all__ = ["keep_delta", "kept_delta", "profile_delta"]

_KIND = "delta"


def profile_delta(old: Profile, new: Profile) -> dict[str, float]:
    """Return, for each curve in both, how much longer the new one predicts: 0.1 is 10 % longer."""
    found = {}
    for implementation, rates in new.rates.items():
        former = old.rates.get(implementation)
        for name, curve in rates.curves.items() if former is not None else ():
            before = former.curves.get(name) if former is not None else None
            if before is not None:
                ratios = [
                    math.log(curve.seconds_at(work) / before.seconds_at(work))
                    for work, _ in before.knots
                ]
                found[f"{implementation}/{name}"] = math.expm1(sum(ratios) / len(ratios))
    return found


def keep_delta(key: str, old: Profile, new: Profile) -> None:
    """Keep how a profile stored under a key differs from the one before."""
    made = {"made_at": new.made_at, "delta": profile_delta(old, new)}
    default_store().write(_KIND, key, made)


def kept_delta(key: str, profile: Profile) -> dict[str, float] | None:
    """Return how a stored profile differs from the one before; None where it is the first, or that
    is not known."""
    found = default_store().read(_KIND, key) or {}
    with ignoring_failures(KeyError, TypeError, ValueError, AttributeError):
        if found["made_at"] == profile.made_at:
            return {str(name): float(change) for name, change in found["delta"].items()}
    return None
