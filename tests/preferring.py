"""Tests in which generated kernels are what the plans choose."""

from __future__ import annotations

import pytest

from alight._src.adapt import planner_facts
from alight._src.adapt.regression_guard import RegressionGuard
from alight._src.base.cache_registry import Cache, forget
from alight._src.ir.group import Group
from alight._src.plan.plan import Estimate
from alight._src.run import prepared_step


def be_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predict that kernels are twice as fast as NumPy, and worth waiting for."""

    def estimate(group: Group, device: str, implementation: str) -> Estimate:
        seconds = 1e-9 if implementation == "generated" else 2e-9
        return Estimate(seconds, seconds, seconds, {"memory": seconds})

    monkeypatch.setattr(planner_facts, "estimate", estimate)
    monkeypatch.setattr(prepared_step.Ready, "patience", float("inf"))
    # No kernel takes as little as was predicted: all would be tried, and lose by the machine's mood
    # here and in the tests to come.
    monkeypatch.setattr(RegressionGuard, "ran", lambda self, way, seconds: False)
    forget(Cache.PLANS)
