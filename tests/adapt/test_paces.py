"""What NumPy is quicker at than at additions is its own in larger arrays, where all is at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import floor, hooks
from alight._src.adapt import paces
from alight._src.adapt.paces import PACES, ROW_PACES

FLOOR = 1_000
N = 1_600  # beyond the floor of additions, and not of what is twice as quick
SIDE = 40


@pytest.fixture(autouse=True)
def measured() -> Iterator[None]:
    """Have the floor measured low."""
    paces.guess()
    known = floor.auto, floor.record_floor
    floor.auto = floor.record_floor = FLOOR
    yield
    floor.auto, floor.record_floor = known


def arrays(namespace: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    made = {
        "x": rng.random(N),
        "y": rng.random(N),
        "m": rng.random((SIDE, SIDE)),
        "r": rng.random(SIDE),
        "w": rng.random((16, 100)),
        "t": np.zeros(N, bool),
        "u": rng.integers(0, 200, 20 * FLOOR).astype(np.uint8),
        "i": rng.integers(0, 9, 3 * FLOOR),
        "f": rng.random(3 * FLOOR, np.float32),
    }
    return {"np": namespace, **{name: namespace.asarray(one) for name, one in made.items()}}


AT_ONCE = (
    *("x.sum()", "x.mean()", "x.max()", "x.min()", "t.any()", "t.all()", "x.argmax()"),
    *("u.max()", "u.min()", "i.sum()", "i.max()", "f.max()", "f.min()", "f.argmin()"),
    *("np.sum(x)", "np.max(u)", "np.any(t)", "np.count_nonzero(t)", "np.amax(f)"),
    *("m.trace()", "np.trace(m)", "np.linalg.norm(x)"),
    *("x.dot(y)", "x @ y", "np.dot(x, y)", "np.inner(x, y)", "np.vdot(x, y)", "np.matmul(x, y)"),
    *("m @ r", "r @ m", "m.dot(r)", "np.dot(r, m)"),
    *("w.sum(axis=0)", "w.mean(axis=0, keepdims=True)", "np.sum(w, 1)", "w.max(axis=0)"),
    *("w.max(1)", "w.max(axis=1, keepdims=True)", "np.max(w, axis=0)"),
)
RECORDED = (
    *("x + y", "x.sum(dtype='f4')", "x.std()", "x.cumsum()", "x.prod()", "m.max(axis=1)"),
    *("m.T.max(axis=0)", "x[::2].sum() + (x * 2)[::2].sum()", "m @ m", "(x + y).sum()"),
    *("(x + y).max()", "(x + y) @ y", "u.sum()"),
)


@pytest.mark.parametrize("text", AT_ONCE)
def test_what_numpy_does_in_no_time_is_its_own(text: str) -> None:
    ours, theirs = arrays(alight), arrays(np)
    recorded = floor.count
    made, expected = eval(text, ours), eval(text, theirs)
    assert floor.count == recorded
    assert type(made) is alight.ndarray and made.storage.value.op is None
    np.testing.assert_array_equal(made.to_numpy(), expected, strict=False)
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)


@pytest.mark.parametrize("text", RECORDED)
def test_other_work_is_recorded(text: str) -> None:
    space = arrays(alight)
    recorded = floor.count
    made = eval(text, space)
    assert floor.count > recorded
    assert made.dtype == eval(text, arrays(np)).dtype


@pytest.mark.parametrize("text", [text for text in AT_ONCE if "norm" not in text])
def test_a_floor_that_was_given_is_of_elements(text: str) -> None:
    space = arrays(alight)
    with alight.policy(floor=FLOOR - 1):
        recorded = floor.count
        made = eval(text, space)
        assert floor.count > recorded
    assert made.shape is not None


def test_additions_in_place_are_numpys_at_once() -> None:
    ours, theirs = arrays(alight), arrays(np)
    recorded = floor.count
    for x, y in ((ours["x"], ours["y"]), (theirs["x"], theirs["y"])):
        x *= 0.5
        x += y
        x -= 1.0
        y *= x
    assert floor.count == recorded
    for name in "xy":
        assert ours[name].storage.value.op is None
        np.testing.assert_array_equal(ours[name].to_numpy(), theirs[name])


def test_what_reads_the_old_elements_later_keeps_them() -> None:
    x = alight.asarray(np.arange(float(N)))
    doubled = x * 2
    x += 1.0
    x *= 3
    assert float(doubled[1]) == 2.0 and float(x[1]) == 6.0


def test_divisions_in_place_are_recorded() -> None:
    space = arrays(alight)
    x, y = space["x"], space["y"]
    recorded = floor.count
    x /= y
    assert floor.count > recorded
    recorded = floor.count
    y **= 2.5
    assert floor.count > recorded


def test_paces_are_those_of_types() -> None:
    for name, known in PACES.items():
        assert all(pace > 1 for pace in known.values()), name
        row = np.frombuffer(floor.paces[name])
        for chars, pace in known.items():
            assert {row[np.dtype(char).num] for char in chars} == {pace}
        for chars, pace in ROW_PACES.get(name, {}).items():
            assert {row[len(row) // 2 + np.dtype(char).num] for char in chars} == {pace}
    assert set(np.frombuffer(floor.paces["trace"])) == {1.0, math.inf}


def test_the_core_takes_any_table() -> None:
    x = alight.asarray(np.ones(N))
    assert floor.paced("sum", x, 0, FLOOR) == 3 * FLOOR
    assert floor.paced("sum", x, 0, FLOOR - 1) == FLOOR - 1
    assert floor.paced("nothing", x, 0, FLOOR) == FLOOR
    known = dict(floor.paces)
    try:
        floor.paces["sum"] = bytearray()
        assert floor.paced("sum", x, 0, FLOOR) == FLOOR
        floor.paces["sum"] = None  # type: ignore[assignment]
        assert floor.paced("sum", x, 0, FLOOR) == FLOOR
    finally:
        floor.paces = known
    with pytest.raises(TypeError):
        floor.paced("sum", x, 0)  # type: ignore[call-arg]


def test_sums_of_stacks_of_squares_ask_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (alight.asarray(np.ones((4, 15, 15))) for _ in range(2))
    one + other  # as programs go on
    asked: list[Any] = []
    monkeypatch.setattr(hooks, "binary", lambda *given: asked.append(given) or NotImplemented)
    made = one + other
    assert not asked and made.shape == (4, 15, 15)
