"""How often the work of a jitted call is planned, and by whom. Counted, not timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alight
from alight._src.jit import dispatch
from alight._src.jit.specialization import Specialization
from alight._src.plan import place
from alight._src.run import kernels
from preferring import be_generated


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many nodes were planned, each time, from the first call of a function on."""
    be_generated(monkeypatch)
    monkeypatch.setattr(dispatch, "_planning_seconds", lambda: 0.0)
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    sizes: list[int] = []
    plan = place.make_plan

    def counted(graph: Any, *rest: Any) -> Any:
        sizes.append(len(graph.nodes))
        return plan(graph, *rest)

    monkeypatch.setattr(place, "make_plan", counted)
    return sizes


def kernels_were_raced(jitted: Any) -> bool:
    """Tell whether the guard was asked to launch what a jitted function's program is."""
    (kind,) = jitted._specializations.values()
    return any([program.generated is not None for program in kind.programs.values()])


def test_calls_whose_plan_is_kernels_are_planned_once(planned: list[int]) -> None:
    @alight.jit
    def body(x: Any, y: Any) -> Any:
        for _ in range(30):
            x = np.sqrt(x * 0.5 + y)
        return x

    x, y = np.linspace(0.0, 1.0, 20_000), np.ones(20_000)
    expect = body.__wrapped__(x, y)
    for _ in range(12):
        np.testing.assert_array_equal(body(x, y), expect)
        kernels.settle()
    assert kernels_were_raced(body)
    assert planned == [90]
