"""Arrays that are what NumPy made and nothing else, until somebody asks for their storage."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import floor
from alight._src.run import evaluate

pytestmark = pytest.mark.usefixtures("small_is_small")


PACKAGE = os.path.dirname(alight.__file__) + os.sep


def ours(n: int = 8) -> Any:
    return alight.asarray(np.arange(float(n)))


def test_a_storage_is_made_once_when_it_is_asked_for() -> None:
    x = ours() + 1
    storage = x.storage
    assert x.storage is storage and x.window is None and storage.value.op is None
    assert x.tolist() == [*range(1, 9)] and x.storage is storage


def test_a_window_can_be_set_before_a_storage_is_asked_for() -> None:
    x, y = ours() + 1, ours() + 1
    x.window = y[2:4].window
    assert x.tolist() == [3.0, 4.0] and (x * 2).tolist() == [6.0, 8.0]


def test_a_storage_that_is_set_is_all_there_is() -> None:
    x, y = ours() + 1, ours() * 0
    x.storage = y.storage
    assert x.tolist() == [0.0] * 8 and (x + 1).tolist() == [1.0] * 8
    del x.storage
    with pytest.raises(AttributeError):
        _ = x.storage
    with pytest.raises(AttributeError):
        del x.storage


def test_views_of_what_was_made_share_its_memory() -> None:
    x = ours() * 2
    view = x[2:5]
    x += 1
    view[0] = 50
    y = x + 0
    assert view.tolist() == [50.0, 7.0, 9.0] and x[2] == 50 and y[2] == 50
    y[3] = -1
    assert x[3] == 7


def test_what_was_made_can_be_written_at_once() -> None:
    x = ours() * 2
    kept = x + 0
    x[1] = 9
    x[2:4] = x[4:6]
    x -= 1
    assert x.tolist() == [-1.0, 8.0, 7.0, 9.0, 7.0, 9.0, 11.0, 13.0]
    assert kept.tolist() == [*range(0, 16, 2)]


def test_scalars_that_numpy_made_are_arrays_of_no_axes() -> None:
    x = ours()
    total = x.sum()
    assert type(total) is alight.ndarray and total.shape == () and total.dtype == np.float64
    assert (float(total), int(total), bool(total), total.item()) == (28.0, 28, True, 28.0)
    assert type(total > 10) is alight.ndarray and bool(total > 10) and not total < 10
    assert (total + x)[1] == 29 and (x / total).shape == (8,) and float(-total) == -28
    assert x.searchsorted(total) == 8 and float(np.asarray(total)) == 28
    total[...] = 3
    assert float(total) == 3


@pytest.mark.parametrize("dtype", ["?", "b", "B", "h", "i", "l", "q", "L", "e", "f", "d", "F", "D"])
def test_scalars_keep_their_dtypes_in_arithmetic(dtype: str) -> None:
    theirs = np.arange(6).astype(dtype)
    mine = alight.asarray(theirs)
    for text in (
        "x[1] + x[2]",
        "x.sum() * 2",
        "x.max() + x",
        "x[1] == x[2]",
        "x[4] / x[2]",
        "+x[3]",
    ):
        try:
            expected = eval(text, {"x": theirs})
        except TypeError as error:
            with pytest.raises(TypeError, match=str(error)[:20]):
                eval(text, {"x": mine})
            continue
        found = eval(text, {"x": mine})
        assert found.dtype == expected.dtype and found.dtype.num == expected.dtype.num, text
        np.testing.assert_array_equal(found.to_numpy(), expected)


def test_whole_numbers_warn_as_numpys_do() -> None:
    for x in (np.full(3, 120, np.int8), alight.asarray(np.full(3, 120, np.int8))):
        with pytest.warns(RuntimeWarning, match="overflow encountered in scalar add") as heard:
            x.max() + x.max()
        assert heard[0].filename == __file__


def test_complex_scalars_are_no_real_numbers_in_silence() -> None:
    x = alight.asarray(np.array([1 + 2j, 3]))
    with pytest.warns(np.exceptions.ComplexWarning) as heard:
        assert float(x[0]) == 1.0
    assert heard[0].filename == __file__
    with pytest.raises(TypeError, match="only 0-dimensional"):
        float(x)


def test_copies_of_what_was_made_are_their_own() -> None:
    x = ours() + 1
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.copy()):
        other[0] = 100
        assert x[0] == 1


def test_what_was_made_goes_with_its_array() -> None:
    x = ours() + 1
    dead = weakref.ref(x)
    del x
    assert dead() is None
    held: list[Any] = [ours() + 1]
    held.append(held)
    dead = weakref.ref(held[0])
    del held
    gc.collect()
    assert dead() is None


def test_threads_that_ask_at_once_have_one_storage() -> None:
    for _ in range(50):
        x = ours(200) + 1
        start, found = threading.Barrier(4), []

        def ask(x: Any = x, start: threading.Barrier = start, found: list[object] = found) -> None:
            start.wait()
            found.append(x.storage)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(storage) for storage in found}) == 1


def test_what_is_shared_is_shared_both_ways() -> None:
    for x in (ours() + 1, ours(), (ours(16) + 1)[::2], ours().reshape(2, 4).T):
        array = np.asarray(x)
        other = x.to_numpy()
        array[0] = -5
        assert (x.ravel()[0] == -5) and (other[0] == -5).all()
        x[1] = 70
        assert (array[1] == 70).all() and (other[1] == 70).all()
        assert np.shares_memory(array, other) and array.flags.writeable


def test_what_is_read_later_is_not_what_others_write() -> None:
    x = ours(400)
    with alight.policy(floor=0):
        doubled = x * 2
        assert floor.traced == 0 and doubled.storage.value.op is not None
    array = np.asarray(x)
    array[:] = 0
    assert doubled[3] == 6 and x[3] == 0


def test_views_that_are_read_only_are_shared_as_such() -> None:
    x = ours(9).reshape(3, 3)
    assert not np.asarray(x.diagonal()).flags.writeable
    assert not x.diagonal().to_numpy().flags.writeable
    assert np.asarray(x).flags.writeable


def test_more_views_than_are_kept_can_be_made() -> None:
    x = ours(10_000)
    for turn in range(2):
        views = [x[i:] for i in range(9000)]
        assert [len(view) for view in views[::500]] == [10_000 - i for i in range(0, 9000, 500)]
        assert float(views[-1][0]) == 8999.0, turn


BRIEF = (
    *("float(x[2])", "int(x.sum())", "bool(x.max() > 10)", "x.min().item()", "x.tolist()"),
    *("np.asarray(x)", "np.asarray(x[2:5])", "x.to_numpy()", "(x * x).sum().to_numpy()"),
    *("len(x)", "[*x]", "sum(x)", "[*x.reshape(2, 4)]", "max(x[3:])"),
    *("x.max() * x", "x[1] + x[2] > 3", "x[2:5] @ x[2:5] - x[0]", "-x.sum() / x[3]"),
    *("x.__setitem__(1, x[2])", "x.__setitem__(slice(1, 3), x[2:4])", "x.__iadd__(x.max())"),
)


@pytest.mark.parametrize("text", BRIEF)
def test_small_work_runs_no_python_of_alights(text: str) -> None:
    space = {"x": ours() + 1, "np": np}
    code = compile(text, __file__, "eval")
    eval(code, space)
    ran: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            ran.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        eval(code, space)
    finally:
        sys.setprofile(None)
    assert ran == []


def test_numpys_own_functions_have_the_floor_known(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ours() + 1
    monkeypatch.setattr(floor, "record_floor", -1)  # as a process begins
    alight.linalg.norm(x)
    assert floor.record_floor > 0
    ran: list[str] = []
    sys.setprofile(lambda frame, event, _: ran.append(frame.f_code.co_filename))
    try:
        alight.linalg.norm(x)
    finally:
        sys.setprofile(None)
    assert [path for path in ran if path.startswith(PACKAGE)] == []


def test_items_are_as_many_as_there_are_when_their_turn_comes() -> None:
    x = ours(4) + 1
    seen = []
    for item in x:
        seen.append(float(item))
        x[3] = 50
    assert seen == [1.0, 2.0, 3.0, 50.0]
    rows = iter((ours(6) + 1).reshape(2, 3))
    assert iter(rows) is rows and [row.tolist() for row in rows] == [[1, 2, 3], [4, 5, 6]]
    assert next(rows, None) is None
    assert [*(ours(4) * 2)[::2]] == [0.0, 4.0] and [*ours(0)] == []
    short = ours(4) + 0
    some = iter(short)
    next(some)
    short.shape = (2, 2)
    assert [row.tolist() for row in some] == [[2.0, 3.0]]
    with pytest.raises(TypeError, match="iteration over a 0-d array"):
        iter(x.sum())
    with pytest.raises(TypeError, match="unsized"):
        len(x.sum())


def test_items_of_what_is_pending_come_too() -> None:
    with alight.policy(floor=0):
        x = ours(3) * 2
        assert [float(item) for item in x] == [0.0, 2.0, 4.0] and len(x * 2) == 3


def test_what_failed_once_is_not_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(values: object) -> None:
        raise ValueError("not now")

    x = ours(400)
    with alight.policy(floor=0):
        x = x + 1
    for turn in range(3):
        with monkeypatch.context() as patch:
            if turn == 0:
                patch.setattr(evaluate, "evaluate", fail)
            else:
                evaluate.evaluate((x.storage.value,))
            try:
                seen: Any = np.ndarray(2, buffer=x)
            except ValueError:
                seen = None
        assert (seen is None) == (turn == 0)
        assert seen is None or seen.flags.writeable


def test_a_class_of_the_same_name_is_the_programs() -> None:
    ended = []

    class Array(alight.Array):  # type: ignore[misc]
        __slots__ = ()

        def __del__(self) -> None:
            ended.append(type(self).__name__)

    Array.__new__(Array)
    assert ended == ["Array"]
