"""Bodies that do little but record and ask are given up once they had their room, and NumPy begins
the call anew: nothing of it was done by then."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import pending_storages
from alight._src.adapt import first_plan
from alight._src.config.loading import current_policy, reload_config
from alight._src.ir.op import UPDATED_IN_PLACE
from alight._src.jit import dispatch, trace
from alight._src.jit.call_phases import NUMPYS
from alight._src.jit.specialization import Specialization
from alight._src.plan import place
from alight._src.record import pending

N = 40


class Clock:
    """The clock of a trace: each look at it comes so much later."""

    now = 0.0
    step = 1e-5

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def begun_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Have bodies be given up after a few requests; return of each whether NumPy began it anew."""
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    monkeypatch.setattr(Specialization, "may_take", lambda kind: math.inf)
    clock = Clock()
    monkeypatch.setattr(trace, "perf_counter", clock)
    monkeypatch.setattr(trace, "thread_time", clock)
    monkeypatch.setattr(dispatch, "GRACE_SECONDS", 5e-5)
    monkeypatch.setattr(trace, "_LEAST_STEPS", 4)
    monkeypatch.setattr(pending, "_LOOK_EVERY", 4)
    found: list[bool] = []
    recorded = trace.Trace.recorded

    def noted(own: trace.Trace) -> None:
        before = own.given_up
        try:
            recorded(own)
        finally:
            if own.given_up and not before:
                found.append(own.anew)

    monkeypatch.setattr(trace.Trace, "recorded", noted)
    first_plan.plan_at_once()
    others = [id(storage) for storage in pending_storages()]
    with monkeypatch.context() as patch:
        patch.setenv("ALIGHT_CHECK", "0")  # who has plans checked waits for them
        reload_config()
        yield found
    reload_config()
    assert [id(storage) for storage in pending_storages() if id(storage) not in others] == []


def branches(x: Any) -> None:
    for _ in range(200):
        x += 0.5
        if x.max() > 10:
            x -= 9.5


def sums(x: Any) -> Any:
    kept = []
    for i in range(200):
        x[i % N] = i
        kept.append(float((x * i).sum()))
    return kept


def descent(x: Any) -> Any:
    w = np.zeros(3)
    a = x[:30].reshape(10, 3)
    for _ in range(200):
        w -= 0.01 * (a.T @ (a @ w - x[:10]))
        x[0] = w[0]
    return w, x[:3]


@pytest.mark.parametrize("body", [branches, sums, descent])
def test_nothing_of_a_body_that_begins_anew_was_done(body: Any, begun_anew: list[bool]) -> None:
    jitted: Any = alight.jit(body)
    own, plain = np.linspace(0, 1, N), np.linspace(0, 1, N)
    before = current_policy()
    for _ in range(4):
        made, wanted = jitted(own), body(plain)
        np.testing.assert_equal(made, wanted)
        np.testing.assert_array_equal(own, plain)
        assert current_policy() is before
    assert begun_anew == [True] * len(begun_anew) and begun_anew
    (kind,) = jitted._specializations.values()
    assert kind.phase in NUMPYS or kind.taken == "undecided"


@pytest.mark.parametrize("elements", [400_000, 600_000])
def test_only_large_memory_of_the_caller_is_written_before_a_body_has_ended(
    elements: int, begun_anew: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "GRACE_SECONDS", math.inf)  # it has all the time that it takes
    seen: list[float] = []
    ran = trace.Trace.ran

    def looked(own: trace.Trace, *given: Any) -> None:
        if not own.closed:
            seen.append(float(x[0]))
        ran(own, *given)

    monkeypatch.setattr(trace.Trace, "ran", looked)
    x = np.zeros(elements)

    def body(x: Any) -> Any:
        for _ in range(3):
            x += 1.0
            if x[5] > 7:
                x[0] = 8.0

    alight.jit(body)(x)
    assert len(seen) >= 3 and x[0] == 3.0
    assert any(seen) is (x.nbytes >= UPDATED_IN_PLACE)
    assert not begun_anew


def test_what_wrote_at_once_goes_on(begun_anew: list[bool]) -> None:
    def body(x: Any) -> Any:
        total = 0.0
        x[np.argsort(x)[:3]] += 1.0
        for i in range(200):
            x[i % N] += 1.0
            total += float(x.max())
        return total

    jitted: Any = alight.jit(body)
    own, plain = np.linspace(0, 1, N), np.linspace(0, 1, N)
    for _ in range(3):
        assert jitted(own) == body(plain)
        np.testing.assert_array_equal(own, plain)
    assert begun_anew and True not in begun_anew


def test_what_is_only_said_to_be_pure_goes_on(begun_anew: list[bool]) -> None:
    noted: list[int] = []

    def body(x: Any) -> Any:
        for i in range(200):
            noted.append(i)
            x[0] += float(x.max())
        return x[0]

    jitted: Any = alight.jit(pure=True)(body)
    with np.errstate(over="ignore"):
        jitted(np.ones(N))
    assert noted == [*range(200)]
    assert True not in begun_anew


def test_a_warning_that_is_always_shown_is_shown_once(begun_anew: list[bool]) -> None:
    def body(x: Any) -> Any:
        total = float((x / 0.0).max())
        for i in range(200):
            total += float((x * i).max())
        return total

    own = np.ones(N)
    for collects in (False, True):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always" if collects else "default")
            alight.jit(body)(own)
        assert len(shown) == 1, collects


def test_what_is_pending_is_not_planned_where_that_takes_longer_than_numpy(
    begun_anew: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[int] = []
    make = place.make_plan
    monkeypatch.setattr(Specialization, "patience", 1e9)  # nothing is planned behind
    monkeypatch.setattr(
        place, "make_plan", lambda graph, *rest: planned.append(1) or make(graph, *rest)
    )

    def body(x: Any) -> Any:
        for _ in range(900):
            x = x * 0.5 + 1.0
        return x

    x = np.linspace(0, 1, N)
    for seconds, plans in (1.0, 2), (2 * 512 * trace.TRACE_SECONDS - 1e-3, 0):
        monkeypatch.setattr(Specialization, "may_take", lambda kind, most=seconds: most)
        monkeypatch.setattr(dispatch, "perf_counter", trace.perf_counter)
        begun_anew.clear()
        planned.clear()
        np.testing.assert_array_equal(alight.jit(body)(x), body(x))
        assert begun_anew == [True] * (not plans) and len(planned) >= plans
