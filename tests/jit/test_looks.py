"""What it takes to find out whose way is the faster one is earned first, and every verdict is
looked at again: told by counts and figures, no clock is read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.adapt import foreground
from alight._src.adapt.contest import PLAN_RULES
from alight._src.adapt.foreground import FOREGROUND, SHARE, ForegroundBudget
from alight._src.jit import dispatch, specialization, trace
from alight._src.jit.call_phases import Event, Phase, Way
from alight._src.jit.look_costs import ELEMENT_SECONDS, pays_at_once
from alight._src.jit.specialization import GRACE_SECONDS, Bits, Specialization
from alight._src.jit.trace import TRACE_SECONDS, Trace


@pytest.fixture(autouse=True)
def spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the process be young and have spent all that it may."""
    monkeypatch.setattr(FOREGROUND, "spent_seconds", 1e9)
    monkeypatch.setattr(FOREGROUND, "trace_seconds", 0.005)
    monkeypatch.setattr(FOREGROUND, "loading_seconds", 0.0)


def looks(kind: Specialization, numpy_seconds: float, ops: float | None, calls: int) -> list[int]:
    """Return at which calls alight's way is tried, where each is given up."""
    tried = []
    for call in range(calls):
        way = kind.way(None, ops, 1, lambda program: True)
        if way is Way.OURS_TIMED:
            tried.append(call)
            seconds = kind.may_take()
            kind.gave_up(seconds)
            kind.ran_alight(seconds, cold=True)
        else:
            kind.ran_numpy(numpy_seconds)
    return tried


@pytest.mark.parametrize("numpy_seconds", [1e-5, 3e-4, 2e-3, 0.1])
@pytest.mark.parametrize("ops", [None, math.inf, 4, 300])
def test_looks_take_their_share_of_what_the_calls_took(
    numpy_seconds: float, ops: float | None
) -> None:
    kind = Specialization(Phase.WAITING)
    tried = looks(kind, numpy_seconds, ops, 4000)
    numpys = numpy_seconds * (4000 - len(tried))
    lost = kind.spent_seconds - numpys - numpy_seconds * len(tried)
    assert lost <= 2 * SHARE * numpys + 0.060  # the room of the one that it was tried in
    assert len(tried) <= 2 + math.log2(1 + numpys)


def test_a_body_that_loops_is_tried_when_numpy_took_twenty_times_as_long() -> None:
    kind = Specialization(Phase.WAITING)
    (first, *_) = looks(kind, 2e-3, None, 1000)
    # As what it loses by default: it is given up after its room, and NumPy begins it anew.
    assert first * 2e-3 == pytest.approx(GRACE_SECONDS / SHARE, rel=0.02)


def test_a_process_that_ran_for_long_pays_for_no_loop_over_few_elements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)

    def first(numpy_seconds: float, elements: int) -> int:
        kind = Specialization(Phase.WAITING, elements=elements)
        return next(iter(looks(kind, numpy_seconds, None, 300)), 300)

    least = int(TRACE_SECONDS / ELEMENT_SECONDS)
    assert first(1e-2, least) == PLAN_RULES.least_laps  # an op takes NumPy longer than a trace
    # Its own time is for 200 ops at most, which are recorded in 4 ms: the room of 10 ms is what may
    # be lost, of which 1 / SHARE as much is 20 calls.
    assert first(1e-2, least // 2) == 20
    # Of 2,000 ops, in 40 ms: 8 calls of 100 ms.
    assert first(0.1, least // 2) == 8
    # Of how many on how few nobody knows: its room.
    assert first(1e-2, 0) == 20 and first(0.1, 0) == 2


def test_how_large_an_argument_is_says_nothing_of_its_parts() -> None:
    def whole(x: Any) -> Any:
        for _ in range(3):
            x = x * 2
        return x

    def parts(x: Any) -> Any:
        for i in range(3):
            x[i] = x[i] * 2
        return x

    x = np.ones(300_000)
    for body, elements in ((whole, x.size), (parts, 0)):
        jitted: Any = alight.jit(body)
        jitted(x)
        (kind,) = jitted._specializations.values()
        assert kind.elements == elements


def test_calls_that_are_earning_a_look_are_the_guards_until_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missed: list[Any] = []
    miss = dispatch.Dispatching.miss
    monkeypatch.setattr(
        dispatch.Dispatching, "miss", lambda *given: missed.append(given) or miss(*given)
    )
    monkeypatch.setattr(
        Specialization, "ran_numpy", lambda self, _, runs=1: _ran_numpy(self, 1e-3, runs)
    )
    x = np.arange(500.0)
    jitted: Any = alight.jit(sums)
    for _ in range(150):
        jitted(x)
    (kind,) = jitted._specializations.values()
    assert kind.phase is Phase.WAITING
    assert len(missed) <= 4  # not one after each 5 ms of theirs


def test_what_a_young_process_may_spend_is_for_what_promises_to_pay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FOREGROUND, "spent_seconds", FOREGROUND.elapsed_seconds() * SHARE)

    def first(numpy_seconds: float, ops: float | None) -> int:
        return next(iter(looks(Specialization(Phase.WAITING), numpy_seconds, ops, 300)), 300)

    monkeypatch.setattr(foreground, "_GRACE_SECONDS", math.inf)
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: False)
    assert first(5e-3, 200) == 4  # elements: once NumPy took as long as looking
    assert first(5e-3, 300) == 2  # which is little where a plan is made behind
    assert first(1e-3, 300) == 300  # calls of few elements
    earned = GRACE_SECONDS / SHARE
    assert first(5e-3, None) == pytest.approx(earned / 5e-3)  # who knows of how many: their own
    monkeypatch.setattr(foreground, "_GRACE_SECONDS", 0.0)
    assert first(5e-3, 300) == 300


@pytest.mark.parametrize("body", [lambda x: x, lambda x: x.T, lambda x: x[::2]])
def test_a_body_without_ops_is_called_again_and_again(body: Any) -> None:
    x = np.arange(400_000.0).reshape(2, -1)
    function = alight.jit(body)
    for _ in range(20):
        assert np.shares_memory(function(x), x)


def test_laps_too_short_for_the_clock_say_nothing_of_an_op() -> None:
    kind = Specialization(Phase.WAITING, elements=30_000)
    for seconds in (0.0, 1e-4, 1e-4):
        kind.ran_numpy(seconds)
    assert kind.waits(3.0)  # it raised ZeroDivisionError


def test_one_call_is_enough_where_it_takes_longer_than_to_look() -> None:
    assert pays_at_once(4_000_000, 30) and pays_at_once(1 << 30, None)
    assert not pays_at_once(600_000, 3) and not pays_at_once(100_000, 40)


@pytest.mark.parametrize("body", [lambda x: x * 2 + 1, lambda x: [x * i for i in range(3)]])
def test_numpy_has_large_calls_too_until_they_paid_for_a_look(
    body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: False)
    taken: list[Any] = []
    leases = dispatch.Leases
    monkeypatch.setattr(dispatch, "Leases", lambda: taken.append(1) or leases())
    x = np.arange(400_000.0)
    jitted: Any = alight.jit(body)
    for _ in range(5):
        jitted(x)
    (kind,) = jitted._specializations.values()
    assert kind.phase is Phase.WAITING and len(kind.numpy_seconds) >= 2
    assert not taken


def sums(x: Any) -> Any:
    kept = []
    for i in range(1, 500):
        kept.append((x * i).sum())
    return kept


def test_what_runs_many_times_is_known_within_some_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """However quick the machine: what is pending would take too long to be planned."""
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    monkeypatch.setattr(Specialization, "may_take", lambda kind: GRACE_SECONDS)
    monkeypatch.setattr(trace, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(dispatch, "perf_counter", lambda: 0.0)
    recorded: list[int] = []
    look = Trace.recorded

    def counted(own: Trace) -> None:
        look(own)
        if own.given_up:
            recorded.append(trace.floor.count)

    monkeypatch.setattr(Trace, "recorded", counted)
    x = np.arange(5000.0)
    jitted: Any = alight.jit(sums)
    for _ in range(20):
        assert jitted(x) == sums(x)
    assert len(recorded) and recorded[0] <= GRACE_SECONDS / TRACE_SECONDS + 32
    (kind,) = jitted._specializations.values()
    assert kind.phase in (Phase.WAITING, Phase.ON_NUMPY)


def judged(winner: Event, bits: Bits = Bits.SAME) -> Specialization:
    """Return a kind of call that was raced."""
    kind = Specialization(Phase.PLANS_RACE)
    kind.bits = bits
    for _ in range(PLAN_RULES.laps):
        kind.ran_numpy(1e-3 if winner is Event.NUMPY_WON else 2e-3)
        kind.ran_alight(1.5e-3, cold=False)
    kind.judge()
    return kind


@pytest.mark.parametrize("winner", [Event.NUMPY_WON, Event.PLAN_WON])
def test_a_verdict_is_looked_at_again(winner: Event) -> None:
    kind = judged(winner)
    verdict = kind.phase
    lasted = []
    for _ in range(4):
        lasted.append(kind.lasts())
        kind.spent_seconds += lasted[-1] - 1e-6
        assert kind.way(None, None, 1, lambda program: True) in (Way.NUMPY, Way.OURS)
        kind.spent_seconds += 2e-6
        kind.way(None, None, 1, lambda program: True)
        assert kind.phase is Phase.PLANS_RACE and not kind.numpy_seconds
        for _ in range(PLAN_RULES.laps):
            kind.ran_numpy(1e-3 if winner is Event.NUMPY_WON else 2e-3)
            kind.ran_alight(1.5e-3, cold=False)
        kind.judge()
        assert kind.phase is verdict
    slower = 1.5e-3 if winner is Event.NUMPY_WON else 2e-3
    assert lasted[0] >= PLAN_RULES.laps * slower / SHARE
    assert lasted == pytest.approx([lasted[0] * 2**n for n in range(4)])


def test_a_verdict_that_was_wrong_is_turned_round() -> None:
    kind = judged(Event.NUMPY_WON)
    assert kind.phase is Phase.ON_NUMPY
    kind.spent_seconds += kind.lasts() + 1e-6
    kind.way(None, None, 1, lambda program: True)
    for _ in range(PLAN_RULES.laps):
        kind.ran_numpy(2e-3)
        kind.ran_alight(0.5e-3, cold=False)
    kind.judge()
    assert kind.phase is Phase.ON_PLAN


def test_figures_that_drift_make_a_verdict_young_again() -> None:
    kind = judged(Event.NUMPY_WON)
    first = kind.lasts()
    for _ in range(3):
        kind.spent_seconds += kind.lasts() + 1e-6
        kind.way(None, None, 1, lambda program: True)
        for _ in range(PLAN_RULES.laps):
            kind.ran_numpy(1e-3)
            kind.ran_alight(1.5e-3, cold=False)
        kind.judge()
    assert kind.lasts() == pytest.approx(8 * first) and kind.asks_in() == pytest.approx(first)
    kind.has_run(1.2e-3)
    assert kind.lasts() == pytest.approx(8 * first)
    kind.has_run(9e-3)
    assert kind.lasts() == pytest.approx(first)


@pytest.mark.parametrize("bits", [Bits.SAME, Bits.OTHER])
def test_kernels_whose_calls_take_longer_than_numpys_are_looked_at_again(bits: Bits) -> None:
    kind = Specialization(Phase.RACING)
    kind.bits = bits
    for _ in range(PLAN_RULES.laps):
        kind.ran_numpy(1e-3)
    kind.raced(True)
    assert kind.phase is Phase.ON_KERNELS
    asked = kind.confirms_in(0.8e-3)
    assert asked == (math.inf if bits is Bits.OTHER else pytest.approx(10 * 0.8e-3, rel=0.3))
    kind.kernels_ran(10 * 0.9e-3, 10)
    assert kind.phase is Phase.ON_KERNELS
    kind.kernels_ran(10 * 1.2e-3, 10)
    assert kind.phase is (Phase.ON_KERNELS if bits is Bits.OTHER else Phase.RACING)


def test_what_plans_is_loaded_before_a_look_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FOREGROUND, "loading_seconds", 0.015)
    come: list[int] = []
    monkeypatch.setattr(specialization.first_plan, "come", lambda: come.append(1))
    for numpy_seconds, ops, comes in ((1e-3, 3, True), (5e-4, 3, False), (1e-3, 300, False)):
        kind = Specialization(Phase.WAITING)
        come.clear()
        kind.way(None, ops, 1, lambda program: True)
        assert not come
        for _ in range(20):  # those of a twentieth of what it takes, for elements
            kind.ran_numpy(numpy_seconds)
            kind.way(None, ops, 1, lambda program: True)
            assert bool(come) is comes


def test_a_look_at_nobody_knows_how_many_ops_is_short_and_then_twice_as_long() -> None:
    kind = Specialization(Phase.WAITING)
    took = []
    for _ in range(400):
        if kind.way(None, math.inf, 1, lambda program: True) in (Way.OURS_TIMED, Way.OURS):
            took.append(kind.may_take())
            assert took[-1] <= kind.may_lose()  # and NumPy begins the call anew
            kind.gave_up(took[-1])
            kind.spent_seconds += took[-1]
        kind.ran_numpy(0.1)
    assert took[:4] == pytest.approx([GRACE_SECONDS * n for n in (1, 2, 4, 5.5)])
    assert sum(took) <= SHARE * kind.spent_seconds


@pytest.mark.parametrize("bits", [Bits.OTHER, Bits.PASSING])
def test_no_verdict_changes_bits_to_and_fro(bits: Bits) -> None:
    kind = judged(Event.NUMPY_WON, bits)
    assert kind.phase is Phase.ON_NUMPY and kind.lasts() == kind.asks_in() == math.inf


def test_the_guard_asks_when_a_verdict_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specialization, "FOREGROUND", ForegroundBudget())
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    ran = Specialization.ran_alight
    monkeypatch.setattr(Specialization, "ran_alight", lambda self, _, cold: ran(self, 1e-3, cold))
    monkeypatch.setattr(
        Specialization, "ran_numpy", lambda self, _, runs=1: _ran_numpy(self, 1e-4, runs)
    )
    bodies: list[Any] = []
    noted: list[int] = []

    def body(x: Any) -> Any:
        noted.append(1)  # impure
        return x * 2 + 1

    run = dispatch.Dispatching._body
    monkeypatch.setattr(
        dispatch.Dispatching, "_body", lambda *given: bodies.append(len(noted)) or run(*given)
    )
    x = np.arange(10.0)
    jitted: Any = alight.jit(body)
    for _ in range(5000):
        jitted(x)
    assert len(noted) == 5000
    # 3 ms of ours are due after 20 times as long of NumPy's, and then twice as long each time.
    assert 2 * PLAN_RULES.laps <= len(bodies) <= 5 * PLAN_RULES.laps + 1


_ran_numpy = Specialization.ran_numpy


def test_the_guard_has_the_calls_while_what_plans_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: len(kind.numpy_seconds) < 2)
    monkeypatch.setattr(dispatch.first_plan, "is_here", lambda: False)
    missed: list[Any] = []
    miss = dispatch.Dispatching.miss
    monkeypatch.setattr(
        dispatch.Dispatching, "miss", lambda *given: missed.append(given) or miss(*given)
    )
    x = np.arange(10.0)
    jitted: Any = alight.jit(lambda x: x * 2)
    for _ in range(2):
        jitted(x)
    jitted.clear()  # the guard's entries: it asks
    for _ in range(30):
        jitted(x)
    (kind,) = jitted._specializations.values()
    assert kind.phase is Phase.COLD and not kind.alight_seconds
    assert len(missed) <= 5  # calls that the machine holds up are few for the time it asks after
