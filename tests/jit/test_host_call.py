"""Jitted functions on Arrays that lie on the host: the calls on their ndarrays answer them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.jit.function_states import EXACT_KINDS
from alight._src.record.pending import native

Array = np.ndarray[Any, Any]
TABLE = np.arange(5.0)


def chain(x: Any, y: Any, scale: float = 2.0) -> Any:
    return np.sqrt(x * x + y * y) * scale + np.float32(0.5)


def drawn(count: int = 500) -> tuple[Array, Array]:
    generator = np.random.default_rng(count)
    return generator.random(count), generator.random(count)


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the times that a body runs on Arrays."""
    ran: list[int] = []
    kind: Any = alight.jit.__globals__["Jitted"]
    body = kind._body

    def counted(self: Any, args: Any, *rest: Any, **named: Any) -> Any:
        if any(type(item) is alight.Array for item in args):
            ran.append(1)
        return body(self, args, *rest, **named)

    monkeypatch.setattr(kind, "_body", counted)
    return ran


@pytest.mark.parametrize("policy", [{}, {"floor": 0}, {"force": "cpu:generated", "floor": 0}])
@pytest.mark.parametrize("count", [0, 1, 500, 70_000])
def test_results_are_arrays_with_the_values_of_numpy(
    count: int, policy: dict[str, Any], bodies: list[int]
) -> None:
    made: Any = alight.jit(chain)
    x, y = drawn(count)
    a, b = alight.asarray(x), alight.asarray(y)
    with alight.policy(**policy):
        for scale in (2.0, -0.0, 3.0) * 20:
            got = made(a, b, scale)
            assert type(got) is alight.Array and got.dtype == x.dtype
            assert np.array_equal(np.asarray(got), chain(x, y, scale))
        for given in ((a, y), (x, b)):  # beside an ndarray
            assert type(made(*given)) is alight.Array
            assert np.array_equal(np.asarray(made(*given)), chain(x, y))
        assert np.array_equal(np.asarray(made(y=b, x=a)), chain(x, y))
    assert not bodies


def test_windows_and_what_others_hold_are_read_as_they_are_now(bodies: list[int]) -> None:
    made: Any = alight.jit(lambda x, y: (y - x) / 2)
    a = alight.positive(alight.asarray(drawn(100)[0]))
    own = np.asarray(a)  # the memory itself, open to others from now on
    for step in (1, 2, -3):
        got = made(a[1::step], a[1::step][::-1])
        assert np.array_equal(np.asarray(got), (own[1::step][::-1] - own[1::step]) / 2)
    for value in (1.0, 5.0):
        own[:] = value
        own[0] = 0.0
        assert np.array_equal(np.asarray(made(a[1:], a[:-1])), (own[:-1] - own[1:]) / 2)
    a[3] = 9.0
    assert np.array_equal(np.asarray(made(a[1:], a[:-1])), (own[:-1] - own[1:]) / 2)
    assert not bodies


def grow(x: Any) -> Any:
    x += 1.0
    return x * 2


def test_a_body_that_writes_into_its_argument_runs_on_the_arrays(bodies: list[int]) -> None:
    made: Any = alight.jit(grow)
    x, _ = drawn()
    a = alight.positive(alight.asarray(x))
    for _ in range(5):
        assert np.array_equal(np.asarray(made(a)), grow(x))
        assert np.array_equal(np.asarray(a), x)
    assert len(bodies) == 5


@pytest.mark.parametrize(
    "window",
    [lambda x: x, lambda x: x[1:], lambda x: (x.T, x + 1), lambda x: [x.reshape(-1)]],
    ids=["itself", "slice", "transpose", "reshaped"],
)
def test_a_window_of_an_argument_is_one_of_the_array(window: Callable[[Any], Any]) -> None:
    made: Any = alight.jit(window)
    x = drawn(36)[0].reshape(6, 6)
    a = alight.positive(alight.asarray(x))
    for value in (3.0, 4.0):
        got = made(a)
        got = got[0] if isinstance(got, (tuple, list)) else got
        got[...] = value
        assert np.all(np.asarray(a).ravel()[-3:] == value)
    assert window(a) is not a or made(a) is a


def test_results_of_one_memory_stay_so() -> None:
    def both(x: Any) -> Any:
        y = x * 2
        return y, y.T, y

    made: Any = alight.jit(both)
    a = alight.positive(alight.asarray(drawn(36)[0].reshape(6, 6)))
    for _ in range(3):
        first, turned, again = made(a)
        first[0, 1] = 50.0
        assert turned[1, 0] == 50.0 and again[0, 1] == 50.0
        assert first is again or np.shares_memory(np.asarray(first), np.asarray(again))


def test_numbers_and_reductions_come_back_as_on_arrays() -> None:
    made: Any = alight.jit(lambda x: (x.sum(), x.shape[0], float(x.max()), None, "text"))
    x, _ = drawn()
    for _ in range(3):
        total, count, most, nothing, text = made(alight.asarray(x))
        assert type(total) is alight.Array and total.shape == () and total == x.sum()
        assert (count, most, nothing, text) == (500, x.max(), None, "text")
        assert type(count) is int and type(most) is float


def test_an_error_is_the_functions_own_and_ends_nothing(bodies: list[int]) -> None:
    made: Any = alight.jit(chain)
    x, y = drawn()
    a, b = alight.asarray(x), alight.asarray(y)
    made(a, b)
    before = len(bodies)
    with pytest.raises(ValueError, match="broadcast"):
        made(a, b[1:])
    assert len(bodies) == before + 1  # told in terms of Arrays
    assert np.array_equal(np.asarray(made(a, b)), chain(x, y))
    assert len(bodies) == before + 1


def test_one_array_given_twice_is_one(bodies: list[int]) -> None:
    made: Any = alight.jit(lambda x, y: x + 1 if x is y else x - y)
    x, y = drawn()
    a, b = alight.asarray(x), alight.asarray(y)
    for _ in range(3):
        assert np.array_equal(np.asarray(made(a, a)), x + 1)
        assert np.array_equal(np.asarray(made(a, b)), x - y)
    assert not bodies


def test_what_a_declared_function_returns_may_be_anothers() -> None:
    made: Any = alight.jit(pure=True)(lambda x: TABLE)
    a = alight.asarray(drawn()[0])
    for value in (1.0, 2.0):
        got = made(a)
        TABLE[2] = value
        assert np.asarray(got)[2] == value


def require_own(x: Any) -> Any:
    y = np.require(x, requirements="W")
    y[0] = 7.0
    return x * 2


def stand_up(x: Any) -> Any:
    x.shape = (-1, 1)
    return x * 2


@pytest.mark.parametrize("body", [require_own, stand_up])
def test_what_a_declared_function_does_to_an_argument_is_done_to_the_array(
    body: Callable[[Any], Any],
) -> None:
    made: Any = alight.jit(pure=True)(body)
    x, _ = drawn()
    for _ in range(3):
        a, expect = alight.asarray(x), x.copy()
        assert np.array_equal(np.asarray(made(a)), body(expect))
        assert np.array_equal(np.asarray(a), expect) and a.shape == expect.shape


@pytest.mark.parametrize("dtype", [">f8", "U3", "m8[s]", "V8", np.longdouble, np.float16, complex])
def test_dtypes_that_alight_does_not_compute_with_are_ndarrays(dtype: Any) -> None:
    def both(x: Any, dtype: Any) -> Any:
        y = x.astype(dtype)
        return y, y[0]

    made: Any = alight.jit(both)
    x, _ = drawn()
    name = np.dtype(dtype).str
    for _ in range(3):
        for got, expect in zip(made(alight.asarray(x), name), both(x, name), strict=True):
            assert type(got) is (alight.Array if native(expect.dtype) else type(expect))
            assert got.dtype == expect.dtype


@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (4, 1), (0, 3), (2, 4, 3)])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("device", ["cpu:generated", "cpu:numpy", "sim:0"])
def test_results_have_numpys_strides_along_axes_of_one(
    device: str, axis: int, shape: tuple[int, ...]
) -> None:
    def kept(x: Any) -> Any:
        return (x * 2.0).sum(axis=axis, keepdims=True)

    jitted = alight.jit(kept)
    with alight.policy(force=device, floor=0):
        for turned in (np.ones(shape), np.ones(shape).T, np.ones(shape)[..., ::-1]):
            want = kept(turned)
            for _ in range(5):
                got = jitted(turned)
                assert (got.shape, got.strides) == (want.shape, want.strides)


@pytest.mark.parametrize(
    "window",
    [
        lambda x: (x + 1)[::2],
        lambda x: (x + 1)[::-1],
        lambda x: (x + 1)[:, 1:3],
        lambda x: np.real(x * 1j),
        lambda x: (x + 1)[1:].T,
    ],
    ids=["steps", "back", "columns", "real", "turned"],
)
def test_windows_of_what_a_function_makes_have_numpys_strides(
    window: Callable[[Any], Any], bodies: list[int]
) -> None:
    made: Any = alight.jit(window)
    x = drawn(36)[0].reshape(6, 6)
    for _ in range(3):
        got, expect = made(alight.asarray(x)), window(x)
        assert type(got) is alight.Array and got.strides == expect.strides
        got[0] = expect[0] = 5.0
        assert np.array_equal(np.asarray(got), expect)
    assert not bodies


def test_what_is_returned_at_two_depths_is_one_array() -> None:
    def both(x: Any) -> Any:
        y = x * 2
        return y, [y, (y,)]

    made: Any = alight.jit(both)
    for _ in range(3):
        first, (second, (third,)) = made(alight.asarray(drawn()[0]))
        assert first is second and second is third


def test_pending_arguments_are_computed() -> None:
    made: Any = alight.jit(chain)
    x, y = drawn()
    a, b = alight.asarray(x), alight.asarray(y)
    with alight.policy(floor=0):
        for _ in range(4):
            assert np.allclose(np.asarray(made(a * 2, b)), chain(x * 2, y))
            assert np.allclose(np.asarray(made(a, b)), chain(x, y))


def test_the_guard_drops_what_makes_room() -> None:
    made: Any = alight.jit(chain)
    a = alight.asarray(np.arange(1.0))
    for count in range(1, EXACT_KINDS + 1):
        made(a, np.arange(float(count)))
    (first, *_), learned = made._learned().hosted.values(), made._learned()
    made(a, np.arange(1.0))
    assert made.holds(first.entry)
    made(a, np.arange(EXACT_KINDS + 1.0))
    assert len(learned.hosted) == EXACT_KINDS and first not in learned.hosted.values()
    assert not made.holds(first.entry)


@pytest.mark.parametrize("policy", [{}, {"floor": 0}, {"force": "cpu:generated", "floor": 0}])
def test_what_is_written_inside_an_array_of_objects_is_written_once(policy: dict[str, Any]) -> None:
    """A body that gives back an Array runs on the Arrays; what it had written could not be taken
    back."""

    def shifted(e: Any, c: Any) -> Any:
        e[0][1:] += e[0][:-1] * 2
        return c

    def given() -> Any:
        held = np.empty(1, object)
        held[0] = np.arange(4.0)
        return held

    made: Any = alight.jit(shifted)
    with alight.policy(**policy):
        for _ in range(4):
            ours, wanted = given(), given()
            c = alight.asarray(np.ones(3))
            assert made(ours, c) is c
            shifted(wanted, np.ones(3))
            assert np.array_equal(ours[0], wanted[0]), ours[0]
