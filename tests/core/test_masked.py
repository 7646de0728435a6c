"""Elements put where a mask is true: as NumPy's `copyto`, and no byte beside them stored to."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from alight._core import copy_where

DTYPES = ["?", "i1", "u2", "f2", "f4", "i8", "f8", "c8", "c16", "g", "M8[s]", ">f8", "S3", "O"]
LAYOUTS = {
    "flat": lambda a: a,
    "rows": lambda a: a.reshape(6, -1),
    "columns": lambda a: a.reshape(6, -1).T,
    "reversed": lambda a: a[::-1],
    "every other": lambda a: a[::2],
    "a part": lambda a: a[3:],
    "none": lambda a: a[:0],
    "one": lambda a: a[1:2].reshape(()),
}


def masks(count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    clustered = np.repeat(rng.random(count // 6 + 1) > 0.5, 6)[:count]
    odd = np.zeros(count, "u1")
    odd[rng.random(count) > 0.5] = 3
    return [rng.random(count) > 0.5, clustered, np.ones(count, bool), np.zeros(count, bool), odd]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_put_is_as_copyto_puts_it(dtype: str, layout: str) -> None:
    form = LAYOUTS[layout]
    for count in (60, 66, 1002):
        for drawn in masks(count):
            mask = form(drawn).view("?")
            source = form((np.arange(count) % 100).astype(dtype))
            got, want = np.zeros(count, dtype), np.zeros(count, dtype)
            np.copyto(form(want), source, "same_kind", mask)
            assert copy_where(form(got), source, "same_kind", mask) is None
            assert got.tolist() == want.tolist()


def test_what_is_not_alike_is_numpys() -> None:
    a, b = np.zeros((4, 5)), np.arange(20.0).reshape(4, 5)
    copy_where(a, b, "same_kind", True)
    assert np.array_equal(a, b)
    copy_where(a, 7.0, "same_kind", b > 10)  # one for all
    assert np.array_equal(a, np.where(b > 10, 7.0, b))
    copy_where(a, b.astype("f4") + 1, "same_kind", b[0] > 2)  # rows for all
    assert np.array_equal(a[:, 3:], b[:, 3:] + 1)
    copy_where(a.T, b.T, "same_kind", np.asfortranarray(b).T > 3)
    assert a[3, 3] == b[3, 3]
    c = np.arange(100.0)
    want = c.copy()
    np.copyto(want[1:], want[:-1], where=want[1:] > 50)
    copy_where(c[1:], c[:-1], "same_kind", c[1:] > 50)  # they meet
    assert np.array_equal(c, want)
    shut = np.zeros(3)
    shut.flags.writeable = False
    for wrong, told in (
        ((shut, np.ones(3), "same_kind", np.ones(3, bool)), "read-only"),
        ((np.zeros(3), np.ones(4), "same_kind", np.ones(3, bool)), "broadcast"),
        ((np.zeros(3, "i8"), np.ones(3), "same_kind", np.ones(3, bool)), "Cannot cast"),
        ((np.zeros(3), np.ones(3), "same_kind", np.ones(3)), "Cannot cast"),
    ):
        with pytest.raises((ValueError, TypeError), match=told):
            copy_where(*wrong)


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8", "c16"])
def test_threads_put_their_own_elements_beside_one_another(dtype: str) -> None:
    count, rounds, threads = 20_000, 20, 4
    shared = np.zeros(count, dtype)
    owner = np.random.default_rng(0).integers(0, threads, count)
    lost: list[int] = []

    def put(number: int) -> None:
        mine = owner == number
        for turn in range(1, rounds):
            copy_where(shared, np.full(count, turn, dtype), "same_kind", mine)
            if not (shared[mine] == turn).all():
                lost.append(turn)

    ran = [threading.Thread(target=put, args=(number,)) for number in range(threads)]
    for thread in ran:
        thread.start()
    for thread in ran:
        thread.join()
    assert not lost


@pytest.mark.parametrize("count", [5, 64, 1003])
def test_complex_numbers_that_lie_where_their_parts_are_aligned(count: int) -> None:
    memory = np.zeros(8 * count + 8, np.uint8)
    start = 4 - memory.ctypes.data % 8  # as far from a multiple of 8 as they may lie
    target = memory[start % 8 :][: 8 * count].view(np.complex64)
    assert target.ctypes.data % 8 == 4 and target.flags.aligned
    source = np.arange(count).astype(np.complex64) * (1 + 2j)
    mask = np.arange(count) % 3 > 0
    mask[:8] = True
    copy_where(target, source, "same_kind", mask)
    assert np.array_equal(target, np.where(mask, source, 0))
    assert not memory[: start % 8].any() and not memory[start % 8 + 8 * count :].any()
