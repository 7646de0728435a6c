"""Tests in which generated kernels are what the plans choose."""

from __future__ import annotations

import pytest

from alight._src.adapt import kernel_trial, planner_facts
from alight._src.ir.group import Group
from alight._src.plan.plan import Estimate
from alight._src.run import evaluate, prepared_step


def be_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predict that kernels are twice as fast as NumPy, and worth waiting for."""

    def estimate(group: Group, device: str, implementation: str) -> Estimate:
        seconds = 1e-9 if implementation == "generated" else 2e-9
        return Estimate(seconds, seconds, seconds, {"memory": seconds})

    monkeypatch.setattr(planner_facts, "estimate", estimate)
    monkeypatch.setattr(prepared_step.Ready, "patience", float("inf"))
    # No kernel takes as little as was predicted: all would be tried, and lose by the machine's mood
    # here and in the tests to come.
    monkeypatch.setattr(kernel_trial.Trial, "numpys_turn", property(lambda self: False))
    monkeypatch.setattr(kernel_trial.Trial, "wants_shadow", property(lambda self: False))
    evaluate.forget_plans()
