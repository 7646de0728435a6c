"""Windows that are written where an array is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import Data, make_layout
from alight._src.run import evaluate, kernels, residency, window_writes
from alight._src.run.window_writes import meets_itself, write_there
from alight.backends.base import Operand
from alight.backends.registry import device


@pytest.mark.parametrize("in_place", [True, False])
def test_bytes_that_were_written_over_are_no_copy_of_the_old_ones(in_place: bool) -> None:
    with alight.policy(devices=["cpu", "sim:0"]):
        where = device("sim:0")
        whole, row = (make_layout(np.dtype(np.int64), shape) for shape in ((3, 4), (4,)))
        old = Data(whole, np.arange(12).reshape(3, 4))
        value = Data(row, np.full(4, 7))
        buffer = residency.buffer(old, where)
        new = write_there(where, old, Operand(old, 32, row), Operand(value, 0, row), in_place)
    assert new.remote is not None and (new.remote[where.space] is buffer) is in_place
    assert (where.space in (old.remote or {})) is not in_place
    residency.bring_to_host(new)
    assert new.array is not None and new.array[1].tolist() == [7, 7, 7, 7]
    assert old.array is not None and old.array[1].tolist() == [4, 5, 6, 7]


def rows_of_one(np_: Any, count: int = 4) -> tuple[Any, Any]:
    """Return three elements, and rows of which each is these elements."""
    start = np_.arange(3.0) + 0
    return start, np_.broadcast_arrays(start, np_.ones((count, 3)))[0]


def assigned(np_: Any) -> Any:
    start, rows = rows_of_one(np_)
    rows[...] = np_.arange(12.0).reshape(4, 3) * 1.5
    return start


def assigned_backwards(np_: Any) -> Any:
    start, rows = rows_of_one(np_)
    rows[::-1] = np_.arange(12.0).reshape(4, 3)
    return start


def added_in_place(np_: Any) -> Any:
    start, rows = rows_of_one(np_)
    np_.add(rows, np_.arange(12.0).reshape(4, 3), out=rows)
    return start


def assigned_many(np_: Any) -> Any:
    # A kernel that took the rows for rows of their own wrote past the three elements.
    start, rows = rows_of_one(np_, 400)
    rows[...] = np_.sqrt(np_.arange(1200.0).reshape(400, 3))
    return start


def masked(np_: Any) -> Any:
    start, rows = rows_of_one(np_)
    rows[1:][np_.arange(9.0).reshape(3, 3) > 2] = 7
    return start


@pytest.mark.parametrize("force", ["cpu:numpy", "cpu:generated", "sim:0", "sim:0:generated"])
@pytest.mark.parametrize(
    "body", [assigned, assigned_backwards, added_in_place, assigned_many, masked]
)
def test_a_window_that_meets_itself_keeps_what_numpy_writes_last(body: Any, force: str) -> None:
    with warnings.catch_warnings(action="ignore"):  # NumPy's, of writes to broadcast arrays
        expected = body(np)
        with alight.policy(force=force, floor=0, devices=["cpu", "sim:0"]):
            actual = np.asarray(body(alight))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("shape", "strides", "meets"),
    [
        ((4, 3), (24, 8), False),
        ((4, 3), (-24, 8), False),
        ((4, 3), (0, 8), True),
        ((1, 3), (0, 8), False),
        ((0, 3), (0, 8), False),
        ((10, 3), (8, 8), True),
        ((3, 5), (16, 40), False),  # every second element of five rows
        ((4, 5), (16, 40), True),
        ((2, 2), (8, 4), True),
    ],
)
def test_windows_of_which_elements_share_bytes_are_found(
    shape: tuple[int, ...], strides: tuple[int, ...], meets: bool
) -> None:
    assert meets_itself(shape, strides, 8) is meets


def test_versions_that_another_thread_may_ask_for_keep_the_old_bytes() -> None:
    """A thread that reads an array has its version in hand before it has recorded anything of it;
    meanwhile another thread's request writes the versions that follow."""
    with alight.policy(floor=0):
        base = np.arange(1000.0)
        x = alight.asarray(base)
        y = alight.asarray(base[:125])
        x[::8] = alight.sqrt(y)
        between = x.storage.value  # as that thread has it
        x[::8] += 1.0
        evaluate.evaluate((x.storage.value,))
        wanted = base.copy()
        wanted[::8] = np.sqrt(base[:125])
        assert between.op is not None, "it was left out, and is made anew"
        evaluate.evaluate((between,))
        np.testing.assert_array_equal(evaluate.host_array(between), wanted)
        wanted[::8] += 1.0
        np.testing.assert_array_equal(np.asarray(x), wanted)


def test_what_a_kernel_makes_within_and_another_thread_may_ask_for_keeps_its_operand() -> None:
    base = np.arange(1000.0)
    with alight.policy(floor=0, force="cpu:generated"):
        for _ in range(4):  # from the second on it runs without the Python between
            within = alight.sqrt(alight.sort(alight.asarray(base[::-1])))
            held = within.storage.value  # as a thread has it that has just asked for it
            twice = within * 2.0
            del within
            evaluate.evaluate((twice.storage.value,))
            assert held.op is not None, "it was not asked for"
            evaluate.evaluate((held,))
            np.testing.assert_array_equal(evaluate.host_array(held), np.sqrt(base))


COPIES: list[Callable[[Any, Any], Any]] = [
    lambda np_, a: a.copy(),
    lambda np_, a: np_.array(a),
    lambda np_, a: a.astype(float),
    lambda np_, a: +a,
]


@pytest.mark.parametrize("force", ["numpy", "cpu:generated", "sim:0"])
@pytest.mark.parametrize("view", [slice(None), slice(None, None, -1), slice(1, None)], ids=str)
@pytest.mark.parametrize("copied", COPIES, ids=["copy", "array", "astype", "positive"])
def test_a_launch_that_reads_what_it_writes_leaves_a_copy_of_the_old_bytes(
    copied: Any, view: slice, force: str
) -> None:
    with alight.policy(force=force, floor=0, devices=["cpu", "sim:0"]):
        a: Any = alight.arange(9.0) + 94
        alight.evaluate(a)
        copy = copied(alight, a)
        for _ in range(2):
            window = a[view]
            alight.remainder(window, 97, out=window)
            # Read by the same launch: the version was counted as two users of the old bytes.
            alight.evaluate(alight.minimum(window, window), window > 2)
    np.testing.assert_array_equal(np.asarray(copy), np.arange(9.0) + 94)


def planes_turned(np_: Any, planes: Any) -> Any:
    for i in range(planes.shape[2]):
        planes[:, :, i] = np_.roll(planes[:, :, i], i, axis=1)
    planes[::2, 1:, 0] = 7  # repeated, and of another type
    planes[1:, :, 1] = planes[:-1, :, 1]  # of the same memory
    return planes


def test_large_windows_are_written_by_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_writes, "_SHARED_BYTES", 0)
    monkeypatch.setattr(window_writes, "thread_count", lambda: 2)
    monkeypatch.setattr(window_writes, "_THREAD_RATE", 1.0)  # so that the kernel pays at once
    shared = []

    def copies(window: Operand, value: Operand) -> Any:
        launch = shared_copy(window, value)
        shared.append(launch is not None)
        return launch

    shared_copy = window_writes.shared_copy
    monkeypatch.setattr(window_writes, "shared_copy", copies)
    given = np.random.default_rng(3).random((40, 30, 5))
    with alight.policy(devices=["cpu"], floor=0):
        for turn in range(3):
            ours = planes_turned(alight, alight.asarray(given.copy()) + 0.0)
            assert np.array_equal(ours, planes_turned(np, given.copy())), turn
            kernels.settle()
    assert any(shared) and not all(shared), shared
