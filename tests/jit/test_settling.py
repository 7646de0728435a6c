"""Calls that NumPy does as quickly are NumPy's for good, and then nothing stands between."""

from __future__ import annotations

import sys
from threading import Thread
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import guard
from alight._src.adapt.foreground import FOREGROUND, ForegroundBudget
from alight._src.ir.op_table import OPS
from alight._src.jit.call_phases import Phase
from alight._src.jit.decorator import Jitted
from alight._src.jit.function_states import EXACT_KINDS
from alight._src.jit.specialization import Specialization
from alight._src.run import kernels
from preferring import be_generated


def windows(n: int) -> Any:
    made = np.exp(np.linspace(0, 1, n)) * 2
    return made, made[::-1]


def repeated(x: Any, y: Any, times: int) -> Any:
    return np.hypot(x, y), np.broadcast_to(x, (times, x.shape[0]))


def lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every run of alight's way take a minute: NumPy wins."""
    ran = Specialization.ran_alight
    monkeypatch.setattr(Specialization, "ran_alight", lambda self, _, cold: ran(self, 60.0, cold))


def missed(jitted: Any, calls: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many of these calls the guard does not answer."""
    count = 0
    miss = Jitted.miss

    def counted(self: Any, args: Any, kwargs: Any) -> Any:
        nonlocal count
        count += 1
        return miss(self, args, kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Jitted, "miss", counted)
        for args in calls:
            jitted(*args)
    return count


def test_a_program_that_has_used_up_what_measuring_may_take_settles_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be_generated(monkeypatch)
    monkeypatch.setattr(
        sys.modules["alight._src.jit.body_ending"], "_planning_seconds", lambda: 0.0
    )
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    for _ in range(3):
        alight.jit(windows)(16)  # the kernels are there from the first call on
        kernels.settle()
    monkeypatch.setattr(FOREGROUND, "spent_seconds", 1e9)
    monkeypatch.setattr(ForegroundBudget, "allows", _allows_own)
    lose(monkeypatch)
    jitted: Any = alight.jit(windows)
    for _ in range(40):
        jitted(16)
        kernels.settle()
    (kind,) = jitted._specializations.values()
    assert (kind.phase, jitted.settled) == (Phase.ON_NUMPY, True), kind.why
    assert missed(jitted, [(16,)] * 10, monkeypatch) == 0


_allowing = ForegroundBudget.allows


def _allows_own(self: Any, seconds: float, own: float = 0.0) -> bool:
    # The runs here are too short for a share of them: they count a thousandfold.
    return _allowing(self, min(seconds, 1e-9), own)


def test_what_a_kind_of_call_took_pays_for_measuring_it() -> None:
    here = ForegroundBudget()
    here.spent_seconds = 1e9
    assert not here.allows(1.0) and not here.allows(1.0, 19.0)
    assert here.allows(1.0, 20.1)


def test_numpy_has_the_calls_while_kernels_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its time is not known yet: a program with NumPy in the place of its kernels takes
    longer than NumPy."""
    there = False
    be_generated(monkeypatch)
    monkeypatch.setattr(
        sys.modules["alight._src.jit.body_ending"], "_planning_seconds", lambda: 0.0
    )
    for module in ("jit.guarding", "run.prepared_step"):
        where = sys.modules[f"alight._src.{module}"]
        monkeypatch.setattr(where, "kernel_at_hand", lambda step: there)
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: False)
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    jitted: Any = alight.jit(windows)
    want = windows(64)
    limit = OPS["exp"].ulp_from_numpy * np.finfo(float).eps
    for _ in range(6):
        for got, wanted in zip(jitted(64), want, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=limit, atol=0.0)
    (kind,) = jitted._specializations.values()
    assert (kind.phase, kind.alight_seconds) == (Phase.TRACED, []) and kind.numpy_seconds


def test_ever_new_lengths_that_are_numpys_are_answered_without_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    lose(monkeypatch)
    rng = np.random.default_rng(0)
    calls = [(*rng.random((2, n)), n) for n in range(32, 64 + EXACT_KINDS)]
    jitted: Any = alight.jit(repeated)
    for _ in range(8):
        for args in calls:
            jitted(*args)
            kernels.settle()
    # What a busy machine put off is looked at once more, and not in every go.
    assert 0 in [missed(jitted, calls, monkeypatch) for _ in range(3)]
    # Other dtypes and sizes are kinds of their own.
    others = [(x.astype("f4"), y, n) for x, y, n in calls[:1]]
    others += [(*rng.random((2, 5000)), 33), (*rng.random((2, 33)), 5000)]
    assert missed(jitted, others, monkeypatch) == len(others)
    got, want = jitted(*calls[-1]), repeated(*calls[-1])
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


def test_other_lengths_are_not_numpys_because_few_elements_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    jitted: Any = alight.jit(windows)
    with monkeypatch.context() as patch:
        lose(patch)
        for _ in range(10):
            jitted(16)
            kernels.settle()
    assert missed(jitted, [(16,), (17,), (31,)], monkeypatch) == 0
    assert missed(jitted, [(15,), (32,), (100_000,)], monkeypatch) == 3


def test_patterns_of_arguments_hit_whatever_size_they_have() -> None:
    kinds = ((np.dtype("f8"), 3), (int, 3), float)
    known = guard.Entry(kinds, (), None, (), call=lambda *args: "hit")
    hits = [
        (np.ones(4), 4, 0.5),
        (np.ones((7, 1))[::-1], 7, 1.5),
        (np.ones((2, 3)).T, -5, -0.0),
    ]
    misses = [
        (np.ones(3), 4, 0.5),
        (np.ones(8), 4, 0.5),
        (np.ones(4, "f4"), 4, 0.5),
        (np.ones(4), 8, 0.5),
        (np.ones(4), 3, 0.5),
        (np.ones(4), True, 0.5),
        (np.ones(4), 1 << 70, 0.5),
        (np.ones(4), 4, 1),
        (np.ones(4), 4.0, 0.5),
        ([1.0] * 4, 4, 0.5),
        (np.frombuffer(bytes(33), "f8", 4, 1), 4, 0.5),
    ]
    assert [known.matches(args) for args in hits] == [True] * len(hits)
    assert [known.matches(args) for args in misses] == [False] * len(misses)
    none = guard.Entry(((np.dtype("f8"), 0), (int, 0)), (), None, (), call=len)
    assert none.matches((np.ones((0, 3)), 0)) and not none.matches((np.ones(1), 0))


def test_keywords_in_the_place_of_positions_are_answered_without_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scaled(a: Any, b: Any, /, c: Any = 2.0, d: Any = 3.0, *, e: Any = 0.0) -> Any:
        return a * c + b * d + e

    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    lose(monkeypatch)
    x, y = np.random.default_rng(0).random((2, 16))
    jitted: Any = alight.jit(scaled)
    for _ in range(10):
        jitted(x, y, 2.0, 4.0)
        kernels.settle()
    miss = sys.modules["alight._src.jit.decorator"].Jitted.miss
    came: list[Any] = []
    monkeypatch.setattr(
        Jitted, "miss", lambda self, *given: came.append(given) or miss(self, *given)
    )
    want = scaled(x, y, 5.0, 7.0)
    for got in (jitted(x, y, 5.0, d=7.0), jitted(x, y, d=7.0, c=5.0), jitted(x, y, c=5.0, d=7.0)):
        assert np.array_equal(got, want)
    assert not came
    assert np.array_equal(jitted(x, y, d=7.0), scaled(x, y, d=7.0))
    assert np.array_equal(jitted(x, y, 5.0, 7.0, e=1.0), scaled(x, y, 5.0, 7.0, e=1.0))
    assert len(came) == 2
    for wrong in ({"c": 1.0, "f": 2.0}, {"a": x, "c": 2.0}, {"d": 1.0, "c": 1.0, "e": 2.0, "g": 1}):
        with pytest.raises(TypeError):
            jitted(x, y, **wrong)


def test_guards_take_names_by_the_function_they_wrap() -> None:
    made: Any = type("Made", (guard.CallGuard,), {"miss": lambda self, *given: given})()
    made.insert(guard.Entry((int, int), (), None, (), call=lambda *args: args))
    assert made(1, 2) == (1, 2)
    assert made(1, b=2) == ((1,), {"b": 2})  # it wraps none
    made.__wrapped__ = lambda a, b: None
    assert made(1, b=2) == made(b=2, a=1) == (1, 2)
    assert made(1, a=2) == ((1,), {"a": 2}) and made(1, c=2) == ((1,), {"c": 2})
    many = {f"x{i}": i for i in range(40)}
    assert made(**many) == ((), many)


def test_other_threads_may_meet_new_kinds_of_call_meanwhile() -> None:
    jitted: Any = alight.jit(windows)
    learned = jitted._learned()

    class Met:
        def __eq__(self, other: object) -> bool:
            learned.specializations[object()] = (
                Specialization()
            )  # as another thread, between two comparisons
            return False

        __hash__ = None  # type: ignore[assignment]

    learned.specializations[0] = Specialization(sizes=Met())
    learned.specializations[1] = Specialization(sizes=Met())
    assert not learned.all_numpys("other")
    assert len(learned.specializations) == 4


def test_what_other_threads_measure_meanwhile_is_none_of_a_calls_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = Jitted._ours

    def count() -> None:
        FOREGROUND.spent_seconds += 9.0

    def meanwhile(self: Jitted, *given: Any) -> Any:
        other = Thread(target=count)
        other.start()
        other.join()
        return ours(self, *given)

    laps: list[float] = []
    ran = Specialization.ran_alight

    def noted(kind: Specialization, seconds: float, cold: bool) -> None:
        laps.append(seconds)
        ran(kind, seconds, cold)

    monkeypatch.setattr(Jitted, "_ours", meanwhile)
    monkeypatch.setattr(Specialization, "ran_alight", noted)
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    monkeypatch.setattr(FOREGROUND, "spent_seconds", 0.0)
    monkeypatch.setattr(FOREGROUND, "trace_seconds", FOREGROUND.trace_seconds)
    jitted = alight.jit(lambda x: np.exp(x) * 2 + x)
    for _ in range(12):
        jitted(np.ones(50_000))
    assert laps and min(laps) > 0
