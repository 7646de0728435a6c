"""Profiles in which one thing costs: what an estimate is made of is seen alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from alight._src.adapt import planner_facts
from alight._src.ir.group import Group
from alight._src.plan.cost import Profile, Rates, estimate
from alight._src.plan.curve import Curve, guess

LAUNCH, BYTE = 1e-6, 1e-22  # bytes next to nothing: what computes hides behind nothing
KINDS = ("elementwise", "select", "reduce_inner", "reduce_outer")


def plan_by(monkeypatch: pytest.MonkeyPatch, profile: Profile | None) -> None:
    """Have plans made by this profile of the host, or by none, until the test ends."""
    monkeypatch.setitem(planner_facts._profiles, "cpu", profile)


def profile_with(work: Mapping[str, float], implementation: str, kinds: object = KINDS) -> Profile:
    """Return a profile in which nothing hides and a byte takes as long in every class."""
    knots = [(n, LAUNCH + BYTE * n) for n in (1 << i for i in range(4, 31))]
    rates = Rates(
        guess(LAUNCH, "seconds"),
        guess(LAUNCH, "seconds"),
        {f"{kind}/float64": Curve(knots) for kind in kinds},  # type: ignore[attr-defined]
        {"flop/float64": guess(0.0, "seconds")}
        | {name: guess(seconds, "seconds") for name, seconds in work.items()},
        guess(0.0, "share"),
        0.1,
    )
    return Profile("cpu", {implementation: rates})


def terms(
    group: Group, work: Mapping[str, float], implementation: str = "numpy"
) -> dict[str, float]:
    found = estimate(group, "cpu", implementation, profile_with(work, implementation))
    assert found is not None
    return dict(found.terms)
