"""Work below the floor is recorded where it comes again and again, and kernels win there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import floor
from alight._src.adapt import paces
from alight._src.base.cache_registry import Cache, forget
from alight._src.run import evaluate, judged_sites

FLOOR = 1_000_000
N = 50_000  # NumPy takes some 0.3 ms for a power of them
MOST = 30_000  # calls, of which 1 s of NumPy's time are a few thousand


@pytest.fixture(autouse=True)
def measured() -> Iterator[None]:
    """Have the floor measured high, and nothing known of call sites, nor of ops by a profile."""
    floor.here()
    paces.guess()
    known = floor.auto, floor.record_floor
    floor.auto = floor.record_floor = FLOOR
    floor.forget_sites()
    yield
    floor.auto, floor.record_floor = known
    floor.forget_sites()


def array() -> Any:
    return alight.asarray(np.linspace(0.5, 2.0, N))


def power(x: Any) -> Any:
    return (x**2.5) ** 0.3


def states(code: CodeType) -> set[str]:
    return {site[5] for site in floor.sites() if site[0] is code}


def until(call: Callable[[], Any], done: Callable[[], bool]) -> int:
    """Call until it is done; return how often that was."""
    for count in range(MOST):
        if done():
            return count
        np.asarray(call())
    raise AssertionError(f"not done in {MOST} calls: {floor.sites()}")


def opened() -> bool:
    return states(power.__code__) == {"open"}


def test_what_comes_once_is_numpys() -> None:
    x, recorded = array(), floor.count
    for _ in range(3):
        made = power(x)
    assert floor.count == recorded and made.storage.value.op is None


def test_what_comes_again_is_recorded() -> None:
    x = array()
    assert until(lambda: power(x), opened) > 3
    recorded = floor.count
    made = power(x)
    assert floor.count == recorded + 2 and made.storage.value.op is not None
    np.testing.assert_allclose(np.asarray(made), (np.linspace(0.5, 2.0, N) ** 2.5) ** 0.3)


def test_other_sites_stay_numpys() -> None:
    x = array()
    until(lambda: power(x), opened)
    recorded = floor.count
    made = x**2.5
    assert floor.count == recorded and made.storage.value.op is None


def test_smaller_arrays_stay_numpys_until_kernels_have_won() -> None:
    x, small = array(), alight.asarray(np.ones(9_000))
    until(lambda: power(x), opened)
    recorded = floor.count
    power(small)
    assert floor.count == recorded


@pytest.mark.parametrize("given", [FLOOR - 1, 0])
def test_a_floor_that_was_given_is_the_floor(given: int) -> None:
    x = array()
    with alight.policy(floor=given):
        for _ in range(300):
            np.asarray(power(x))
    assert states(power.__code__) == ({"numpy"} if given else set())  # told, and never opened


def judged(monkeypatch: pytest.MonkeyPatch, seconds: float, *ends: str) -> Any:
    """Have each request of a site on trial take so many seconds until it is judged."""
    x = array()
    until(lambda: power(x), opened)
    monkeypatch.setattr(judged_sites, "_seconds_since", lambda began: seconds)
    monkeypatch.setattr(judged_sites, "_least_seconds", lambda plan: 0.0)  # of kernels, though
    until(lambda: power(x), lambda: states(power.__code__) <= set(ends))
    return x


def test_a_site_that_lost_is_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    x = judged(monkeypatch, 1.0, "lost", "numpy")
    recorded = floor.count
    np.asarray(power(x))
    assert floor.count == recorded


def test_a_site_that_won_goes_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, 1e-6, "recorded")
    recorded = floor.count
    made = power(alight.asarray(np.ones(9_000)))
    assert floor.count == recorded + 2
    np.testing.assert_array_equal(np.asarray(made), np.ones(9_000))


def curve(x: Any) -> Any:
    return alight.tanh(x)


def expected(made: Any) -> float:
    """Return what NumPy is taken to need for what is pending for an array of one operand each."""
    values, value = [], made.storage.value
    while value.op is not None:
        values.append(value)
        value = value.operands[0]
    return floor.expected(values[::-1], 0)


@pytest.mark.parametrize("body", [power, curve])
def test_a_site_counts_as_often_as_it_came(body: Callable[[Any], Any]) -> None:
    x = array()
    until(lambda: body(x), lambda: states(body.__code__) == {"open"})
    made, seconds = x, []
    for _ in range(10):  # of one request
        made = body(made)
        seconds.append(expected(made))
    assert seconds == pytest.approx([seconds[0] * count for count in range(1, 11)])


def test_a_site_may_come_often_before_it_is_asked_for() -> None:
    x = array()
    until(lambda: curve(x), lambda: states(curve.__code__) == {"open"})
    made = x
    for _ in range(45):  # fewer than are flushed on trial
        made = curve(made)
    assert states(curve.__code__) == {"open"}
    assert made.storage.value.op is not None


def test_what_waits_on_trial_is_bounded() -> None:
    x = array()
    until(lambda: power(x), opened)
    made = x
    for _ in range(100):
        made = power(made)
        assert floor.count <= 51


def test_what_goes_on_with_a_trial_and_loses_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    x = array()
    until(lambda: power(x), opened)
    np.asarray(power(x))
    assert opened()
    monkeypatch.setattr(judged_sites, "_seconds_since", lambda began: 1.0)
    with alight.policy(floor=0):  # nothing of it is a site's, and all of it is small
        np.asarray(alight.asarray(np.ones(100)) + 1.0)
    assert states(power.__code__) == {"lost"}


def test_all_pending_work_is_judged_where_it_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = array()
    until(lambda: power(x), opened)
    asked: list[Any] = []
    monkeypatch.setattr(judged_sites, "_seconds_since", lambda began: asked.append(began) or 1e-3)
    made = power(x)
    evaluate.evaluate_all()
    assert asked and made.storage.value.op is None


def test_a_request_on_trial_raises_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = array()
    until(lambda: power(x), opened)
    made = power(x)

    def fails(key: Any, values: list[Any]) -> None:
        made.storage.value.error = ZeroDivisionError("on trial")

    monkeypatch.setattr(evaluate, "_run", fails)
    with pytest.raises(ZeroDivisionError, match="on trial"):
        evaluate.evaluate((made.storage.value,))


def added(x: Any, out: Any) -> None:
    alight.add(x, x, out=out)


def test_work_that_is_not_at_hand_is_not_timed() -> None:
    x, out = array(), alight.asarray(np.zeros(N))
    with alight.policy(floor=0):
        out += 1.0  # pending, so not to be written at once
    assert out.storage.value.op is not None
    added(x, out)
    assert not states(added.__code__)
    np.testing.assert_array_equal(np.asarray(out), 2 * np.asarray(x))
    added(x, out)
    assert states(added.__code__) == {"numpy"}


def divided(x: Any) -> None:
    x /= 0.0


def test_an_error_stays_where_sites_are_about_to_open() -> None:
    x = alight.asarray(np.ones(5 * N))
    floor.wait(1e6)
    try:
        with np.errstate(divide="raise"):
            for _ in range(MOST // 2):  # of 0.2 ms
                x[:] = 1.0
                with pytest.raises(FloatingPointError, match="divide by zero"):
                    divided(x)
    finally:
        floor.wait(0.0)


def in_vain(monkeypatch: pytest.MonkeyPatch, *vain: bool) -> Any:
    """Return an array above the floor of whose power plans leave these requests to NumPy."""
    floor.auto = floor.record_floor = N
    x = array()
    for one in vain:
        monkeypatch.setattr(evaluate, "_is_vain", lambda plan, one=one: one)
        assert power(x).storage.value.op is not None
        np.asarray(power(x))
    return x


def test_sites_that_plans_leave_to_numpy_are_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    x = in_vain(monkeypatch, *[True] * 4)
    recorded = floor.count
    made = power(x)
    assert floor.count == recorded and made.storage.value.op is None
    assert np.array_equal(np.asarray(made), power(np.asarray(x)))


def test_what_is_larger_is_recorded_there(monkeypatch: pytest.MonkeyPatch) -> None:
    in_vain(monkeypatch, *[True] * 4)
    larger = alight.asarray(np.ones(N + 1))
    assert power(larger).storage.value.op is not None


def test_sites_that_gained_once_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    x = in_vain(monkeypatch, False, *[True] * 8)
    assert power(x).storage.value.op is not None


def test_other_plans_have_them_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x = in_vain(monkeypatch, *[True] * 4)
    forget(Cache.PLANS)
    assert power(x).storage.value.op is not None
