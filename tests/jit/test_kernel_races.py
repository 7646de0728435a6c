"""What a race of a program's kernels against NumPy costs, and when it is begun: by counts."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.adapt.contest import CLEAR, KERNEL_RULES, PLAN_RULES, Contender
from alight._src.adapt.foreground import SHARE, ForegroundBudget
from alight._src.jit import guarding
from alight._src.jit.call_phases import Event, Phase
from alight._src.jit.decorator import Jitted
from alight._src.jit.guard_entries import promises
from alight._src.jit.guarding import Lap
from alight._src.jit.kernel_race import KernelRace
from alight._src.jit.specialization import Bits, Specialization
from alight._src.plan.plan import Candidate, Estimate
from alight._src.run import kernels
from preferring import be_generated


def kernels_of(*steps: tuple[str, Estimate | None]) -> Any:
    """Return what a program launches: each step generated, in the place of the implementation that
    is named, for so much as was predicted."""
    made = [
        SimpleNamespace(
            implementation="generated",
            decision=SimpleNamespace(
                candidates=(Candidate("cpu", other, None), Candidate("cpu", "generated", estimate))
            ),
        )
        for other, estimate in steps
    ]
    return SimpleNamespace(steps=made)


def test_kernels_promise_what_was_predicted() -> None:
    each = Estimate(1.5e-3, 1e-3, 2e-3, {"launch": 0.5e-3, "memory": 1e-3})
    two = kernels_of(("numpy", each), ("library", each))
    assert promises(two, 2.1e-3) and not promises(two, 1.9e-3)  # the guard launches for nothing


def test_nobody_promises_to_beat_a_library_unmeasured() -> None:
    assert promises(kernels_of(("numpy", None)), 1.0)
    assert not promises(kernels_of(("numpy", None), ("library", None)), 1.0)


def times(x: Any, y: Any) -> Any:
    return (x * 2.0 + y) * x - y


@pytest.mark.parametrize("promising", [True, False])
def test_a_race_that_promises_nothing_is_earned_by_the_calls(
    promising: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_generated(monkeypatch)
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    monkeypatch.setattr(guarding, "_ASK_SECONDS", 0.0)
    monkeypatch.setattr(guarding, "promises", lambda launchable, seconds: promising)
    monkeypatch.setattr(
        sys.modules["alight._src.jit.body_ending"], "_planning_seconds", lambda: 0.0
    )
    shadows: list[Any] = []
    monkeypatch.setattr(Jitted, "shadow", lambda *given: shadows.append(given) or 0.4)
    ran, took = Specialization.ran_numpy, Specialization.ran_alight
    monkeypatch.setattr(Specialization, "ran_numpy", lambda self, _, runs=1: ran(self, 0.4, runs))
    monkeypatch.setattr(Specialization, "ran_alight", lambda self, _, cold: took(self, 0.4, cold))
    begun: list[float] = []
    x, y = np.random.default_rng(0).random((2, 100_000))
    jitted: Any = alight.jit(times)

    def lap(entry: Any, args: Any) -> Lap:
        (kind,) = jitted._specializations.values()
        begun.append(kind.spent_seconds)
        return Lap(0.41, NotImplemented)  # it loses

    monkeypatch.setattr(guarding, "_lap", lap)
    for _ in range(300):
        np.testing.assert_array_equal(jitted(x, y), times(x, y))
        kernels.settle()
    (kind,) = jitted._specializations.values()
    assert kind.bits is Bits.SAME and kind.phase is Phase.ON_NUMPY
    assert len(begun) == KERNEL_RULES.laps
    least = KERNEL_RULES.laps * 0.4 / SHARE
    assert begun[0] >= least if not promising else begun[0] < least / 10
    assert not shadows  # calls that NumPy has all the same are its laps


def distances(x: Any, y: Any) -> Any:
    return np.exp(x * 2.0 + y)


@pytest.mark.parametrize("body", [times, distances])
@pytest.mark.parametrize("kernels_win", [True, False])
def test_laps_of_kernels_answer_where_they_change_no_bits(
    body: Any, kernels_win: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_generated(monkeypatch)
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    monkeypatch.setattr(guarding, "_ASK_SECONDS", 0.0)
    monkeypatch.setattr(
        sys.modules["alight._src.jit.body_ending"], "_planning_seconds", lambda: 0.0
    )
    answered: list[str] = []
    race = guarding._lap

    def lap(entry: Any, args: Any) -> Lap:
        answered.append("kernels")
        return race(entry, args)._replace(seconds=0.1 if kernels_win else 0.9)

    monkeypatch.setattr(guarding, "_lap", lap)
    for name in ("_numpy", "_ours"):
        way = getattr(Jitted, name)
        monkeypatch.setattr(
            Jitted, name, lambda *given, way=way, name=name: answered.append(name) or way(*given)
        )
    ran, took = Specialization.ran_numpy, Specialization.ran_alight
    monkeypatch.setattr(Specialization, "ran_numpy", lambda self, _, runs=1: ran(self, 0.4, runs))
    monkeypatch.setattr(Specialization, "ran_alight", lambda self, _, cold: took(self, 0.4, cold))
    x, y = np.random.default_rng(0).random((2, 100_000))
    jitted: Any = alight.jit(body)
    bits = []
    calls = 0
    while not bits or (kind := next(iter(jitted._specializations.values()))).race or calls < 12:
        before = len(answered)
        bits.append(jitted(x, y).tobytes())
        kernels.settle()
        calls += 1
        assert len(answered) - before <= 1 and calls < 400  # no lap is thrown away
    assert "kernels" in answered and kind.race is None
    changes = sum([one != other for one, other in pairwise(bits)])
    assert changes <= (body is distances)  # never back and forth


def test_laps_of_kernels_that_are_behind_are_earned() -> None:
    nobody: Any = object()
    race = KernelRace(nobody, None, None)
    race.contest.lap(Contender.NUMPY, 1.0)
    assert race.lost_seconds() == 0.0  # the first one nobody knows of
    race.contest.lap(Contender.KERNELS, 2.0)
    assert race.lost_seconds() == 2 * 2.0  # with the next one
    race.contest.lap(Contender.KERNELS, 1.5)
    assert race.lost_seconds() == 3 * 1.5
    race.contest.lap(Contender.KERNELS, CLEAR)
    assert race.lost_seconds() == 0.0  # not clearly behind
    race.against_plan(0.5)
    assert race.lost_seconds() == 4 * CLEAR


@pytest.mark.parametrize("slower", [False, True])
def test_what_kernels_take_is_looked_at_when_their_verdict_is_due(
    slower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_generated(monkeypatch)
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    monkeypatch.setattr(guarding, "_ASK_SECONDS", 0.0)
    ran, took = Specialization.ran_numpy, Specialization.ran_alight
    monkeypatch.setattr(Specialization, "ran_numpy", lambda self, _, runs=1: ran(self, 0.4, runs))
    monkeypatch.setattr(Specialization, "ran_alight", lambda self, _, cold: took(self, 0.4, cold))
    x, y = np.random.default_rng(0).random((2, 100_000))
    jitted: Any = alight.jit(times)
    race = guarding._lap
    monkeypatch.setattr(guarding, "_lap", lambda *given: race(*given)._replace(seconds=0.1))

    def called(count: int) -> Specialization:
        for _ in range(count):
            np.testing.assert_array_equal(jitted(x, y), times(x, y))
            kernels.settle()
        (kind,) = jitted._specializations.values()
        return kind

    kind = called(40)
    assert kind.phase is Phase.ON_KERNELS and kind.bits is Bits.SAME
    (answer,) = jitted._learned().answers.values()
    due = kind.lasts()
    assert answer.left > 10 * PLAN_RULES.laps  # asking is a small share of what they take
    each = 0.5 if slower else 0.1
    monkeypatch.setattr(guarding, "launches_of", lambda entry: (1, kind.lasts() + each))
    monkeypatch.setattr(
        Specialization,
        "kernels_ran",
        lambda self, seconds, calls, note=Specialization.kernels_ran: note(
            self, seconds, round(seconds / each)
        ),
    )
    answer.left = 0
    called(1)
    assert (kind.phase is Phase.ON_KERNELS) is not slower
    assert jitted.holds(answer) is not slower
    if not slower:
        assert kind.lasts() == pytest.approx(2 * due, rel=0.1)
        called(3)
    else:
        called(40)  # their figures are better than that, as they say
    assert kind.phase is Phase.ON_KERNELS


def test_a_verdict_on_kernels_holds_while_another_thread_begins_anew() -> None:
    kind = Specialization(Phase.COLD)
    kind.came(Event.KEPT)
    kind.ran_numpy(1e-3)
    kind.raced(True)
    kind.look_again()  # by another thread, amid what follows
    kind.kernels_ran(10.0 + kind.lasts(), 10)
