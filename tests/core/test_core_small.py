"""What small work leaves out: no storage where nobody asks, no view where a number does, no second
write of what was written in place."""

from __future__ import annotations

import gc
import itertools
import random
import re
import sys
import threading
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest
from test_core_once import outcome

import alight
import alight.random as random_functions
from alight._core import ArrayBase, floor, hooks
from alight._src.api.ufunc_objects import Ufunc

pytestmark = pytest.mark.usefixtures("small_is_small")

# Types whose instances are called without a tuple of their arguments (CPython's object.h).
HAVE_VECTORCALL = 1 << 11


def held(array: Any) -> str:
    """Return what an array holds: what NumPy made, or a storage."""
    (kind,) = {type(item).__name__ for item in gc.get_referents(array)} - {"NoneType", "type"}
    return kind


UPDATES = ("+= 1.0", "-= x[1]", "*= 3", "/= 2", "**= 2", "%= 2.0", "//= 2")


CASES = [
    (dtype, update)
    for dtype in "bBhilqQefdFD"
    for update in UPDATES
    if dtype not in "FD" or update[0] not in "%/" or update == "/= 2"
]


@pytest.mark.parametrize(("dtype", "update"), CASES)
def test_scalars_change_in_place_as_numpys_do(dtype: str, update: str) -> None:
    def made(np: Any, x: Any) -> Any:
        element = x[2]
        space = {"e": element, "x": x}
        exec(f"e {update}", space)
        x[3] = space["e"]
        exec(f"x[4] {update}", space)
        return np.stack([np.asarray(space["e"]).astype("D"), *x.astype("D")])

    numbers = np.array([1, 2, 7, 4, 5, 6]).astype(dtype)
    theirs = outcome(lambda: made(np, numbers.copy()))
    ours = outcome(lambda: made(alight, alight.asarray(numbers)))
    assert ours == theirs


def test_scalars_in_place_keep_no_storage_and_no_other_type() -> None:
    x = alight.asarray(np.arange(8.0))
    for update in UPDATES:
        element = x[2]
        same, space = element, {"e": element, "x": x}
        exec(f"e {update}", space)
        assert space["e"] is same and held(same) == "float64", update
    count = alight.asarray(np.arange(8))[3]
    count += 1
    assert held(count) == "int64" and int(count) == 4
    count /= 2
    assert float(count) == 2.0 and count.dtype == np.float64


def test_scalars_in_place_warn_and_raise_as_numpys() -> None:
    def overflows(x: Any) -> Any:
        x[1] *= 1e308
        return x

    def refused(x: Any) -> Any:
        with np.errstate(all="raise"):
            x[0] /= 0.0
        return x

    x = np.array([1.0, 1e308])
    for change in (overflows, refused):
        assert outcome(partial(change, alight.asarray(x))) == outcome(partial(change, x.copy()))
    small = np.array([100, 120], np.int8)

    def wraps(x: Any) -> Any:
        x[1] += 100
        return x

    assert outcome(lambda: wraps(alight.asarray(small))) == outcome(lambda: wraps(small.copy()))


def test_what_was_made_is_written_where_it_is() -> None:
    x = alight.asarray(np.arange(8.0))
    y = x * 2
    y += x
    y[3] = -1.0
    y[5:] = x[:3]
    y[x > 6] = 4.0
    assert held(y) == "ndarray"
    assert y.tolist() == [0.0, 3.0, 6.0, -1.0, 12.0, 0.0, 1.0, 4.0]
    y += y
    assert y[3] == -2.0 and x.tolist() == [*range(8)]


def test_what_others_have_of_it_is_not_written() -> None:
    x = alight.asarray(np.arange(8.0))
    y = x * 2
    (made,) = (item for item in gc.get_referents(y) if isinstance(item, np.ndarray))
    y += 1
    shared = np.asarray(y)
    y[0] = 9.0
    assert made[1] in (2.0, 3.0) and shared[0] == 9.0 and y[0] == 9.0


def test_threads_write_what_was_made_one_after_the_other() -> None:
    x = alight.asarray(np.arange(8.0))
    for _ in range(50):
        y = x * 0
        views: list[Any] = []

        def work(y: Any = y, views: list[Any] = views) -> None:
            for _ in range(20):
                y[3] = 1.0
                views.append(y[2:5])

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        y[4] = 7.0
        assert all(view.tolist() == [0.0, 1.0, 7.0] for view in views)


PARTS = (
    *(0, 1, -1, 5, -7, 10**30, np.int64(1), np.uint8(2), True),
    *(slice(None), slice(1, None), slice(None, -1), slice(None, None, -1), slice(3, 0, -2)),
    *(slice(2, 2), slice(-100, 100, 3), slice(0, 1), slice(0, 10**30), slice(None, None, 0)),
    *(None, Ellipsis),
)


def test_keys_pick_the_views_that_numpys_do() -> None:
    draw = random.Random(5)
    plain = np.arange(120.0).reshape(2, 3, 4, 5)
    for _ in range(3000):
        order = draw.sample(range(4), 4)
        array, ours = plain.transpose(order), alight.asarray(plain).transpose(order)
        for _ in range(draw.randint(1, 2)):
            key = tuple(draw.choice(PARTS) for _ in range(draw.randint(0, 5)))
            key = key[0] if len(key) == 1 and draw.random() < 0.5 else key
            try:
                picked = array[key]
            except (IndexError, ValueError) as error:
                with pytest.raises(type(error), match=re.escape(str(error))):
                    ours[key]
                break
            got = ours[key]
            assert (got.shape, got.strides) == (picked.shape, picked.strides), key
            assert got.tolist() == picked.tolist(), key
            array, ours = picked, got
            if not isinstance(array, np.ndarray):
                break


WINDOWS = (
    *(slice(1, 4), slice(None, None, -1), slice(0, 3), slice(4, 1, -1), slice(None), Ellipsis),
    *(slice(2, 3), slice(1, 4, 2), (Ellipsis, slice(1, 4))),
)


def test_windows_that_are_set_to_windows_of_their_own_array() -> None:
    for rows, to, given in itertools.product((None, 1), WINDOWS, WINDOWS):

        def change(x: Any, rows: Any = rows, to: Any = to, given: Any = given) -> Any:
            part = x if rows is None else x[rows]
            part[to] = part[given]
            part[to] += part[given]
            return x

        plain = np.arange(25.0).reshape(5, 5)
        ours = outcome(partial(change, alight.asarray(plain)))
        assert ours == outcome(partial(change, plain.copy())), (rows, to, given)


def test_what_may_not_be_written_is_not_set_to_itself() -> None:
    x = alight.asarray(np.arange(5.0))
    part = x[1:3]
    x.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        x[1:3] = part


def test_arrays_that_died_leave_nothing_to_those_that_follow() -> None:
    gone: list[int] = []
    x = alight.asarray(np.arange(4.0))
    for turn in range(200):
        y, view = x + turn, x[1:]
        weakref.finalize(y, gone.append, turn)
        assert y.window is None and view.window is not None
        del y, view
    assert gone == [*range(200)]
    kept = [x + turn for turn in range(100)]
    assert [float(array[0]) for array in kept] == [float(turn) for turn in range(100)]


def test_classes_of_the_programs_own_end_as_python_has_it() -> None:
    ended: list[Any] = []

    class Own(alight.ndarray):
        def __del__(self) -> None:
            ended.append(self.mark)

    before = sys.getrefcount(Own)
    for turn in range(40):
        own = Own((2,))
        own.mark = turn
        del own
    assert ended == [*range(40)] and sys.getrefcount(Own) == before
    own = Own((2,))
    own.mark, own.me = -1, own
    del own
    gc.collect()
    assert ended[-1] == -1


def test_references_to_the_class_of_arrays_are_even() -> None:
    x = alight.asarray(np.arange(4.0))
    kind = type(x)
    before = sys.getrefcount(kind)
    for _ in range(200):
        _ = [x + 1, x[1:], x[2]]
    del _
    assert isinstance(x, ArrayBase) and abs(sys.getrefcount(kind) - before) < 4


def test_ufuncs_are_called_without_a_tuple() -> None:
    assert Ufunc.__flags__ & HAVE_VECTORCALL
    x = alight.asarray(np.arange(4.0))
    got = [alight.add(x, x), alight.add(x, x, out=x * 0), alight.add(*[x, x], **{"dtype": "f4"})]
    assert [item.dtype.char for item in got] == ["d", "d", "f"]
    with pytest.raises(TypeError, match="takes from 2 to 3 "):
        alight.add(x)


def test_waiting_for_ever_asks_no_clock() -> None:
    floor.wait(float("inf"))
    try:
        assert floor.waits() and floor.kept == 1000
    finally:
        floor.wait(0.0)
    assert not floor.waits() and floor.record_floor == 1000


def test_the_collector_has_nothing_to_look_for_in_what_numpy_made() -> None:
    x = alight.asarray(np.ones(5)) * 2
    assert not gc.is_tracked(x) and not gc.is_tracked(x.sum())
    assert x.storage.value.op is None and gc.is_tracked(x)


SHARED: tuple[tuple[Any, Any], ...] = (
    (lambda np: np.ones(5) * 2, ...),
    (lambda np: (np.ones(5) * 2).sum(), ()),
    (lambda np: np.ones((2, 3)) > 0, (1, 2)),
    (lambda np: (np.ones(5) > 0).all(), ()),
)


@pytest.mark.parametrize(("make", "key"), SHARED)
def test_memory_is_given_away_without_a_storage(make: Any, key: Any) -> None:
    x = make(alight)
    shared = x.to_numpy()
    assert held(x) == "ndarray"
    shared[key] = 0
    assert np.array_equal(x, shared)
    x[key] = 1
    assert np.array_equal(x, shared) and shared[key].all()
    with alight.policy(floor=0):  # what is recorded has a storage, and sees who else writes
        expect, later = shared + 1, x + 1
        shared[key] = 0
        assert np.array_equal(later, expect)
        x[key] = 1
    assert shared[key].all() and np.array_equal(x, shared)


def test_memory_that_was_given_away_lives_as_long_as_somebody_has_it() -> None:
    x = alight.asarray(np.ones(5)) * 2
    shared = x.to_numpy()
    del x
    assert shared.tolist() == [2.0] * 5


def test_who_asks_for_the_class_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def appears(own: type, code: Any) -> type:
        asked.append(code.co_name)
        return np.ndarray if code.co_name == "means" else own

    def means(x: Any) -> bool:
        return isinstance(x, np.ndarray)

    def reaches(x: Any) -> bool:
        return isinstance(x, np.ndarray)

    monkeypatch.setattr(hooks, "appears", appears)
    x = alight.asarray(np.ones(3))
    assert [means(x) for _ in range(9)] == [True] * 9
    assert [reaches(x) for _ in range(9)] == [False] * 9
    assert [means(x * 2) for _ in range(9)] == [True] * 9
    assert asked == ["means", "reaches"]


CALLS: tuple[Any, ...] = (
    lambda np, x, y, o: np.add(x, y, out=o, where=x > 3),
    lambda np, x, y, o: np.add(x, y, where=x > 3, out=o),
    lambda np, x, y, o: np.multiply(x, 2, out=o, where=[True] * 8),
    lambda np, x, y, o: np.sqrt(x, dtype=np.float32),
    lambda np, x, y, o: np.add(x, y, dtype="i4", casting="unsafe"),
    lambda np, x, y, o: np.add(x, y, dtype="i4"),
    lambda np, x, y, o: np.divide(x, 0.0, out=o[::-1], where=y < 2),
    lambda np, x, y, o: np.add(x, y, out=o[:3]),
    lambda np, x, y, o: np.add(x, y, out=o, where=np.ones((2, 8), bool)),
    lambda np, x, y, o: np.add(x[1:], x[:-1], out=x[1:], where=y[1:] > 0),
    lambda np, x, y, o: np.add(x, y, out=None, where=True),
    lambda np, x, y, o: np.add(x, y, out=(o,), where=x > 3),
    lambda np, x, y, o: np.add(x, y, where=None),
    lambda np, x, y, o: np.add(x, y, nothing=3),
)


@pytest.mark.parametrize("call", CALLS)
def test_ufuncs_take_words_at_once(call: Any) -> None:
    def made(np: Any) -> Any:
        x, y, o = np.arange(8.0), np.arange(8.0)[::-1].copy(), np.full(8, -1.0)
        found = call(np, x, y, o)
        return [np.asarray(each).tolist() for each in (found, x, y, o)]

    assert outcome(lambda: made(alight)) == outcome(lambda: made(np))


def test_a_masked_ufunc_asks_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    x, o = alight.asarray(np.arange(8.0)), alight.asarray(np.zeros(8))
    monkeypatch.setattr(Ufunc, "_call", None)
    alight.add(x, 1.0, out=o, where=x > 3)
    assert o.tolist() == [0.0] * 4 + [5.0, 6.0, 7.0, 8.0]


DRAWS: tuple[Any, ...] = (
    lambda rng: rng.random(5),
    lambda rng: rng.random(),
    lambda rng: rng.random((2, 3), dtype="float32"),
    lambda rng: rng.integers(0, 9, size=4),
    lambda rng: rng.integers(9),
    lambda rng: rng.integers(0, 2, size=3, dtype=bool),
    lambda rng: rng.normal(0, 1, (2, 2)),
    lambda rng: rng.choice([1, 2, 3], 4),
    lambda rng: rng.choice(["a", "b"], 4),
    lambda rng: rng.permutation(6),
    lambda rng: rng.shuffle([1, 2, 3]),
    lambda rng: rng.multinomial(5, [0.5, 0.5]),
    lambda rng: rng.multivariate_normal([0, 0], [[1, 0], [0, 1]], 3),
    lambda rng: rng.dirichlet([1, 2], 3),
    lambda rng: rng.random(-1),
    lambda rng: rng.random(size="x"),
    lambda rng: rng.normal(scale=-1.0),
)


@pytest.mark.parametrize("draw", DRAWS)
def test_what_generators_draw_is_numpys(draw: Any) -> None:
    def made(np: Any) -> Any:
        rng = np.random.default_rng(3)
        found = draw(rng)
        kind = str(np.asarray(found).dtype), np.ndim(found), isinstance(found, np.generic)
        return kind, np.asarray(found).tolist(), rng.random()

    assert outcome(lambda: made(alight)) == outcome(lambda: made(np))


def test_a_draw_of_numbers_asks_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = alight.random.default_rng(1)
    monkeypatch.setattr(random_functions, "run_in_numpy", None)
    assert held(rng.random(4)) == "ndarray" and isinstance(rng.random(), float)
