"""Launches that have nothing left to find out: straight to the kernel, and out of it where they
must be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import OPERANDS
from alight._src.base.cache_registry import Cache, forget
from alight._src.log.decisions import LOG
from alight._src.run import prepared_step
from fuzzing.program import run as run_program
from hearing import collected

GENERATED = {"floor": 0, "force": "cpu:generated"}


class Counted:
    """Counts the runs that went straight to the kernel."""

    straight = 0

    def __init__(self, *args: Any) -> None:
        self.own = KernelCall(*args)
        self.watch_flags = self.own.watch_flags

    def run(self, values: list[Any]) -> float | None:
        """Run as it does, and count."""
        seconds = self.own.run(values)
        type(self).straight += seconds is not None
        return seconds


KernelCall = prepared_step.KernelCall


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Counted]]:
    """Count from zero, with no plans of other tests."""
    monkeypatch.setattr(prepared_step, "KernelCall", Counted)
    Counted.straight = 0
    forget(Cache.PLANS)
    with alight.policy(**GENERATED):
        yield Counted
    forget(Cache.PLANS)


def straight(call: Callable[[], Any]) -> int:
    """Return how many launches of a call went straight to their kernels."""
    before = Counted.straight
    call()
    return Counted.straight - before


def settled(call: Callable[[], Any]) -> None:
    """Have a call's launches made ready: the first run waits for the kernel, one is watched."""
    for _ in range(3):
        call()
    assert straight(call)


def test_repeated_statements_go_straight_to_their_kernels(counted: type[Counted]) -> None:
    x, y = np.linspace(-1, 1, 1000), np.arange(1000.0)
    a, b = alight.asarray(x), alight.asarray(y)

    def statement() -> None:
        two = (a + b) * a
        np.testing.assert_array_equal(np.asarray(two - 1.5), (x + y) * x - 1.5)
        np.testing.assert_array_equal(np.asarray(two), (x + y) * x)

    settled(statement)
    before = LOG.snapshot()
    straight(statement)
    after = LOG.snapshot().since(before)
    assert after.counts["launches"] == len(after.records) == 1
    assert after.records[0].decision.implementation == "generated"
    assert after.records[0].seconds > 0 and after.records[0].site is not None
    assert after.elements == {("generated", "cpu"): 3000}


def test_constants_windows_and_large_operands_are_read_where_they_are() -> None:
    rng = np.random.default_rng(7)
    x = rng.random((300, 400))  # large enough to let go of the interpreter's lock
    a = alight.asarray(x)
    for turn in range(8):
        scalar = turn + 0.25
        got = a[1:, 1:] * scalar + a[:-1, :-1] - a[turn, 1:]
        np.testing.assert_array_equal(
            np.asarray(got), x[1:, 1:] * scalar + x[:-1, :-1] - x[turn, 1:]
        )
    assert Counted.straight


def test_what_warns_is_told_at_its_line_and_only_then() -> None:
    good, bad = np.array([1.0, 2.0, 4.0]), np.array([1.0, 0.0, 4.0])

    def inverse(x: np.ndarray) -> np.ndarray:
        return np.asarray(1 / alight.asarray(x))

    settled(lambda: inverse(good))
    with collected() as caught:
        assert straight(lambda: np.testing.assert_array_equal(inverse(bad), [1, np.inf, 0.25])) == 0
    assert [str(w.message) for w in caught] == ["divide by zero encountered in divide"]
    assert caught[0].filename == __file__
    with collected() as nothing:
        inverse(good)
        with np.errstate(divide="ignore"):
            for _ in range(3):
                np.testing.assert_array_equal(inverse(bad), [1, np.inf, 0.25])
        inverse(good)
    assert not nothing
    with collected() as caught:  # the state that ignores was the last one served
        with np.errstate(divide="ignore"):
            inverse(bad)
        inverse(bad)
    assert len(caught) == 1
    with collected() as caught, np.errstate(under="warn"):
        tiny = alight.asarray(np.array([1e-300]))
        for _ in range(4):
            np.asarray(tiny * tiny)
    assert [str(w.message) for w in caught] == ["underflow encountered in multiply"] * 4


def test_bytes_that_are_elsewhere_are_brought_and_failures_go_round() -> None:
    x = np.arange(5.0)
    a = alight.asarray(x)

    def plus() -> None:
        np.testing.assert_array_equal(np.asarray(a + 1), x + 1)

    settled(plus)
    with alight.policy(floor=0, force="sim:0"):
        b = a * 2
        alight.evaluate(b)
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(b + 1), 2 * x + 1)


def test_threads_run_the_same_plan_side_by_side() -> None:
    x = np.linspace(0, 1, 60_000)  # without the interpreter's lock
    a = alight.asarray(x)
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(40):
            with alight.policy(**GENERATED):
                got = np.asarray((a + number) * turn)
            if not np.array_equal(got, (x + number) * turn):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert Counted.straight > 100


def test_random_programs_run_again_and_again_equal_numpy() -> None:
    failures = []
    for seed in range(500, 540):
        for _ in range(4):
            failure = run_program(seed, "generated")[1]
            if failure is not None:
                failures.append(str(failure))
    assert not failures, failures[:3]
    assert Counted.straight > 60


def test_nothing_is_done_where_more_must_be_known() -> None:
    x = np.arange(4.0)
    a = alight.asarray(x)
    value = (a + 1).storage.value
    entry = (0, 0, 0)
    leaf, layout = value.operands[0], value.layout
    made = KernelCall(entry, None, (0,), (1,), (1,), (layout,), 4)
    assert made.run([leaf, value]) is None  # nobody said what state it serves
    made.watch_flags(object(), False)
    assert made.run([leaf, value]) is None  # recorded under another one
    made.watch_flags(value.errstate, False)
    assert made.run([leaf, None]) is None and made.run([leaf]) is None and made.run([]) is None
    assert made.run([None, value]) is None
    assert made.run([value, value]) is None  # an operand that failed is still pending
    kept, leaf.data.array = leaf.data.array, None
    assert made.run([leaf, value]) is None  # its bytes are on another device
    leaf.data.array = kept
    assert made.run([leaf, leaf]) is None  # the result is there already
    other = (alight.asarray(np.arange(5.0)) + 1).storage.value
    made.watch_flags(other.errstate, False)
    assert made.run([leaf, other]) is None  # of another layout
    with pytest.raises(ValueError, match=f"{OPERANDS + 1} operands"):
        KernelCall(entry, None, tuple(range(OPERANDS)), (OPERANDS,), (), (layout,), 4)
    with pytest.raises(TypeError, match="layout"):
        KernelCall(entry, None, (0,), (1,), (1,), (None,), 4)
