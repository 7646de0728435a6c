"""How often the work of a jitted call is planned, and by whom. Counted, not timed."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import floor
from alight._src.adapt import first_plan
from alight._src.adapt.foreground import FOREGROUND
from alight._src.config.loading import reload_config
from alight._src.jit import body_ending
from alight._src.jit.specialization import Specialization
from alight._src.plan import place
from alight._src.run import kernels, plans_behind
from preferring import be_generated

HERE = threading.get_ident()
# As many turns of two ops as are planned behind, and as few as are not.
MANY, FEW = 150, 30


class Planned(list[tuple[int, bool]]):
    """How many nodes were planned, each time, and whether by the thread that calls."""

    def __call__(self, graph: Any, *rest: Any) -> Any:
        self.append((len(graph.nodes), threading.get_ident() == HERE))
        return self.plan(graph, *rest)

    plan = staticmethod(place.make_plan)

    @property
    def large(self) -> list[tuple[int, bool]]:
        return [one for one in self if not plans_behind.is_at_once(one[0])]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Planned]:
    """Return what is planned under the settings that users have, from a function's first call."""
    first_plan.plan_at_once()
    be_generated(monkeypatch)
    monkeypatch.setattr(body_ending, "_planning_seconds", lambda: 0.0)
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    monkeypatch.setattr(Specialization, "may_take", lambda kind: math.inf)  # it is not timed
    made = Planned()
    monkeypatch.setattr(place, "make_plan", made)
    with monkeypatch.context() as patch:
        patch.setenv("ALIGHT_CHECK", "0")
        reload_config()
        yield made
    reload_config()


def turns(x: Any, y: Any, count: int) -> Any:
    for _ in range(count):
        x = np.sqrt(x * 0.5 + y)
    return x


def operands() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.linspace(0.0, 1.0, 20_000), np.ones(20_000)


def kernels_were_raced(jitted: Any) -> bool:
    """Tell whether the guard was asked to launch what a jitted function's program is."""
    (kind,) = jitted._specializations.values()
    return any([program.generated is not None for program in kind.programs.values()])


def programs(jitted: Any) -> int:
    return sum([len(kind.programs) for kind in jitted._specializations.values()])


@pytest.mark.parametrize("count", [FEW, MANY])
def test_calls_whose_plan_is_kernels_are_planned_once(planned: Planned, count: int) -> None:
    jitted: Any = alight.jit(turns)
    x, y = operands()
    expect = turns(x, y, count)
    for _ in range(12):
        np.testing.assert_array_equal(jitted(x, y, count), expect)
        kernels.settle()
    assert kernels_were_raced(jitted)
    assert [size for size, _ in planned] == [3 * count]


def test_no_large_plan_is_made_by_the_thread_that_calls(planned: Planned) -> None:
    jitted: Any = alight.jit(turns)
    x, y = operands()
    expect = turns(x, y, MANY)
    counted = floor.count
    np.testing.assert_array_equal(jitted(x, y, MANY), expect)  # NumPy's
    assert programs(jitted) == 0 and floor.count == counted
    kernels.settle()
    for _ in range(4):
        np.testing.assert_array_equal(jitted(x, y, MANY), expect)
        kernels.settle()
    assert planned.large == [(3 * MANY, False)] and programs(jitted) == 1


def test_a_small_plan_is_made_by_the_thread_that_calls(planned: Planned) -> None:
    jitted: Any = alight.jit(turns)
    jitted(*operands(), FEW)
    assert planned == [(3 * FEW, True)] and programs(jitted) == 1


def test_no_call_waits_for_a_plan_longer_than_for_numpy(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FOREGROUND, "trace_seconds", 5e-3)
    monkeypatch.setattr(Specialization, "numpy_seconds", [1e-3])
    jitted: Any = alight.jit(turns)
    x, y = operands()
    expect = turns(x, y, FEW)
    for _ in range(8):
        np.testing.assert_array_equal(jitted(x, y, FEW), expect)
        kernels.settle()
    assert planned == [(3 * FEW, False)] and programs(jitted) == 1


@pytest.mark.parametrize(
    "asked", [{"force": "cpu:generated", "floor": 0}, {"floor": 0}, {"devices": ["cpu"]}]
)
def test_who_asks_for_a_plan_waits_for_it(planned: Planned, asked: dict[str, Any]) -> None:
    jitted: Any = alight.jit(turns)
    with alight.policy(**asked):
        jitted(*operands(), MANY)
    assert planned.large == [(3 * MANY, True)]


def test_what_a_body_assigns_before_its_plan_is_there_is_assigned_once(planned: Planned) -> None:
    def body(x: Any, y: Any) -> Any:
        x += 1.0
        y[1:] = turns(x[1:], y[1:], MANY)
        x *= 2.0
        return x.max()

    jitted: Any = alight.jit(body)
    for _ in range(6):
        mine, numpys = operands(), operands()
        assert jitted(*mine) == body(*numpys)
        np.testing.assert_array_equal(mine, numpys)
        kernels.settle()
    assert planned.large and not any([here for _, here in planned.large])


def test_what_a_body_does_to_a_list_is_done_once(planned: Planned) -> None:
    def body(given: list[Any]) -> Any:
        given[0] = turns(given[0], given[1], MANY)
        return given[0]

    jitted: Any = alight.jit(body)
    x, y = operands()
    given, expect = [x, y], [x, y]
    for _ in range(3):
        jitted(given)
        body(expect)
        np.testing.assert_array_equal(given[0], expect[0])


def test_a_plan_that_failed_behind_is_made_by_who_asks(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(graph: Any, *rest: Any) -> Any:
        made = planned(graph, *rest)
        if threading.get_ident() != HERE:
            raise MemoryError
        return made

    monkeypatch.setattr(place, "make_plan", failing)
    jitted: Any = alight.jit(turns)
    x, y = operands()
    for _ in range(3):
        np.testing.assert_array_equal(jitted(x, y, MANY), turns(x, y, MANY))
        kernels.settle()
    assert planned.large == [(3 * MANY, False), (3 * MANY, True)] and programs(jitted) == 1


def test_a_body_with_several_results_is_planned_once(planned: Planned) -> None:
    def body(x: Any, y: Any) -> Any:
        first = turns(x, y, FEW)
        x += first
        second = turns(x, y, 2)
        return second.max(), first, second

    jitted: Any = alight.jit(body)
    for _ in range(4):
        mine, numpys = operands(), operands()
        for own, expect in zip(jitted(*mine), body(*numpys), strict=True):
            np.testing.assert_array_equal(own, expect)
        np.testing.assert_array_equal(mine, numpys)
        kernels.settle()
    assert len(planned) == 1 and programs(jitted) == 1


def test_kernels_alone_are_planned_behind_where_the_plan_has_more(planned: Planned) -> None:
    def body(x: Any, y: Any) -> Any:
        return np.sort(turns(x, y, MANY)) * 2.0

    jitted: Any = alight.jit(body)
    x, y = operands()
    for _ in range(8):
        np.testing.assert_array_equal(jitted(x, y), body(x, y))
        kernels.settle()
    assert kernels_were_raced(jitted)
    assert planned.large == [(3 * MANY + 2, False)] * 2


@pytest.mark.parametrize("requests", [1, 2, 6])
def test_no_request_of_a_body_waits_for_its_plan_longer_than_for_numpy(
    requests: int, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FOREGROUND, "trace_seconds", 5e-3)
    monkeypatch.setattr(Specialization, "numpy_seconds", [1e-3])
    ran: list[float] = []
    monkeypatch.setattr(
        Specialization, "ran_alight", lambda self, seconds, cold: cold or ran.append(seconds)
    )

    def body(x: Any, y: Any) -> Any:
        x *= 0.5
        x += y
        found = []
        for i in range(requests):
            found.append(float(x[i:].max()))
            y[i] = found[-1]
        return found

    jitted: Any = alight.jit(body)
    own, plain = operands(), operands()
    for _ in range(9):
        assert jitted(*own) == body(*plain)
        np.testing.assert_array_equal(own, plain)
        kernels.settle()
    # For many requests it is put off a few times: then it is planned where it asks; and so is what
    # is left to be written when it has ended.
    at_once = [here for _, here in planned]
    behind = min(requests, 3)
    assert at_once[: behind + 1] == [False] * behind + [True]
