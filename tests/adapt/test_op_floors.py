"""What is recorded is decided by the seconds that NumPy is predicted to take for the op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import floor
from alight._src.adapt import paces
from alight._src.ir.op_table import OPS
from alight._src.plan.curve import Curve, Measured
from alight._src.plan.profile import Profile, Rates

FLOOR = 400_000
N = 50_000


@pytest.fixture(autouse=True)
def guessed() -> Iterator[None]:
    """Have the floor measured as quiet machines do, and ops as they are without a profile."""
    floor.here()
    floor.wait(0.0)
    known = floor.auto, floor.record_floor
    floor.auto = floor.record_floor = FLOOR
    floor.forget_sites()
    paces.guess()
    yield
    floor.auto, floor.record_floor = known
    floor.forget_sites()
    paces.guess()


def records(call: Callable[[], Any], times: int = 5) -> list[bool]:
    """Return of each of several calls whether it was recorded."""
    found = []
    for _ in range(times):
        before = floor.count
        call()
        found.append(floor.count > before)
    return found


def array(n: int = N, dtype: str = "f8") -> Any:
    return alight.asarray((np.random.default_rng(1).random(n) + 0.5).astype(dtype))


@pytest.mark.parametrize("text", ["np.sin(x)", "x ** 2.5", "np.power(x, y)", "np.hypot(x, y)"])
def test_what_takes_long_is_recorded_at_once(text: str) -> None:
    space = {"np": alight, "x": array(), "y": array()}
    assert all(records(lambda: eval(text, space)))


@pytest.mark.parametrize(
    "text", ["x + y", "x * 2.0", "np.sqrt(f)", "x ** 2", "x ** 1", "-x", "x < y"]
)
def test_what_takes_no_time_is_numpys(text: str) -> None:
    space = {"np": alight, "x": array(), "y": array(), "f": array(dtype="f4")}
    assert not any(records(lambda: eval(text, space)))


@pytest.mark.parametrize("text", ["u + u", "u.max()", "t.any()", "m.trace()", "np.dot(x, x)"])
def test_a_million_elements_that_take_no_time_are_numpys(text: str) -> None:
    space = {
        "np": alight,
        "u": array(1_000_000, "u1"),
        "t": array(1_000_000, "?"),
        "m": array(1_000_000).reshape(1000, 1000),
        "x": array(1_000_000),
    }
    assert not any(records(lambda: eval(text, space)))
    assert all(records(lambda: space["x"] + 1.0))


@pytest.mark.parametrize("given", [30_000, 60_000, 0])
def test_a_floor_that_was_given_is_of_elements(given: int) -> None:
    x = array()
    with alight.policy(floor=given):
        assert set(records(lambda: alight.sin(x))) == {given <= N}
        assert set(records(lambda: x + 1.0)) == {given <= N}
    assert not any(records(lambda: x + 1.0))


def test_a_ufunc_with_a_mask_goes_by_its_own_floor() -> None:
    x, out, mask = array(), array(), array() > 1.0
    assert all(records(lambda: alight.sin(x, out=out, where=mask)))
    assert not any(records(lambda: alight.add(x, x, out=alight.zeros(N), where=mask)))


def test_results_of_work_above_and_below_are_numpys() -> None:
    x = array()
    plain = np.asarray(x).copy()
    used = [OPS[name] for name in ("exp", "sin", "power")]
    ulps = sum(op.ulp + op.reference_ulp for op in used) + 4  # a product and a sum on either side
    for _ in range(5):
        made = alight.exp(x) + alight.sin(x) * (x**2.5)
        wanted = np.exp(plain) + np.sin(plain) * plain**2.5
        np.testing.assert_allclose(np.asarray(made), wanted, rtol=ulps * np.finfo(float).eps)


def rates(work: dict[str, float]) -> Rates:
    def number(value: float) -> Measured:
        return Measured(value, "s", value, value, 3, "probe")

    line = Curve([(24.0, 24e-11), (2.4e7, 2.4e-4)])
    return Rates(
        number(1e-6),
        number(1e-6),
        {"elementwise/float64": line},
        {name: number(value) for name, value in work.items()},
        number(0.0),
        0.1,
    )


def test_a_profile_says_what_ops_take_here() -> None:
    numpy = rates({"sin/float64": 0.0, "exp/float64": 9 * 24e-11, "add/float64": 0.0})
    paces.pace_by(Profile("cpu", {"numpy": numpy}))
    x = array()
    assert all(records(lambda: alight.exp(x)))  # ten times as long as an addition
    assert not any(records(lambda: alight.sin(x)))
    few = array(FLOOR // 11)
    assert not any(records(lambda: alight.exp(few)))
