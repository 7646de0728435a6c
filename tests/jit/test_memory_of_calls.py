"""What calls of jitted functions need beside their arguments, counted in the bytes of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import fresh_data, keep_bytes, kept_bytes, layout_of, living_bytes
from alight._src.jit.dispatch import Dispatching
from alight.backends.host import HostBackend

N = 1 << 20
BYTES = 8 * N


@pytest.fixture(autouse=True)
def room() -> Iterator[None]:
    keep_bytes(0)
    keep_bytes(1 << 28)
    yield
    keep_bytes(0)
    HostBackend()  # as it was


def needed(call: Callable[[], Any]) -> int:
    """Return the most bytes that results have while a call runs, beyond those they had before."""
    before, _ = living_bytes()
    call()
    return living_bytes()[1] - before


def test_numpys_calls_find_no_more_kept_than_results_need(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(x: Any, y: Any) -> Any:
        return np.sqrt(x * x + y * y) - np.exp(x) * np.cos(y)

    kept = []
    inner = Dispatching._numpy

    def seen(self: Any, args: Any, kwargs: Any) -> Any:
        kept.append(kept_bytes())
        return inner(self, args, kwargs)

    monkeypatch.setattr(Dispatching, "_numpy", seen)
    jitted, x, y = alight.jit(body), np.linspace(0.0, 1.0, N), np.linspace(1.0, 2.0, N)
    for _ in range(12):
        results = [fresh_data(layout_of(x)) for _ in range(3)]  # as what is between leaves
        del results
        jitted(x, y)
    assert kept and max(kept) <= BYTES


def updated(x: Any, y: Any) -> Any:
    x *= 0.999
    x += y
    return x.max()


def by_out(x: Any, y: Any) -> Any:
    np.multiply(x, 0.5, out=x)
    np.add(x, y, out=x)
    return x[0]


def both(x: Any, y: Any) -> Any:
    np.multiply(x, 0.5, out=x)
    np.add(x, y, out=x)
    np.sqrt(np.abs(x), out=y)  # of the version that the same launch leaves in x
    return float(y[0])


def a_window(x: Any, y: Any) -> Any:
    x[1:-1] += y[2:]  # and not in the place of what it is read by
    x[1:-1] *= 0.5
    return x[3]


def exponential(x: Any, y: Any) -> Any:
    x *= 0.25
    np.exp(x, out=x)
    x -= y
    return x.sum()


def momentum(x: Any, y: Any) -> Any:
    for _ in range(3):
        y *= 0.9
        y -= 0.01 * x  # made once, for all three
        x += y
    return x[3]


# With the arrays of the arguments' size that each may need beside them: NumPy needs none, but is
# not asked to write transcendentals over what they are of.
UPDATES = [(updated, 0), (by_out, 0), (a_window, 0), (exponential, 1)]


def arguments() -> tuple[Any, Any]:
    return np.linspace(-1.0, 1.0, N), np.linspace(1.0, 2.0, N)


@pytest.mark.parametrize(("body", "most"), UPDATES, ids=lambda item: getattr(item, "__name__", ""))
def test_the_first_call_of_an_update_makes_no_copy(body: Any, most: int) -> None:
    jitted = alight.jit(body)
    x, y = arguments()
    expected, again = x.copy(), y.copy()
    wanted = body(expected, again)
    jitted(np.ones(8), np.ones(8))  # what is made once
    got = None

    def call() -> None:
        nonlocal got
        got = jitted(x, y)

    assert needed(call) <= most * BYTES + (1 << 20)
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(y, again)
    assert got == wanted


def test_arrays_that_are_updated_in_turns_need_one_each_and_a_temporary() -> None:
    # They are written in the end: whatever ends the call in between leaves what a program had by
    # some time.
    jitted = alight.jit(momentum)
    x, y = arguments()
    expected, again = x.copy(), y.copy()
    most = 0
    for _ in range(12):
        momentum(expected, again)
        most = max(most, needed(lambda: jitted(x, y)))
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(y, again)
    assert most <= 3 * BYTES + (1 << 20)


def test_steps_by_numpy_that_write_two_arguments_make_one() -> None:
    jitted = alight.jit(both)
    x, y = arguments()
    expected, again = x.copy(), y.copy()
    with alight.policy(floor=0, force="cpu:numpy"):
        for _ in range(3):
            both(expected, again)
            assert needed(lambda: jitted(x, y)) <= BYTES + (1 << 20)
            np.testing.assert_array_equal(x, expected)
            np.testing.assert_array_equal(y, again)
