"""What is said of memory that two arrays have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alight


@pytest.fixture(params=[None, 0])
def floor(request: pytest.FixtureRequest) -> Any:
    with alight.policy(**({} if request.param is None else {"floor": request.param})):
        yield request.param


def test_views_share_memory_as_their_bytes_overlap(floor: Any) -> None:
    a = alight.arange(12.0)
    b = a.reshape(3, 4)
    assert np.shares_memory(a, b)
    assert np.shares_memory(a[::-1], b[1:])
    assert not np.shares_memory(b[0], b[1])
    assert not np.shares_memory(a[::2], a[1::2])
    assert np.may_share_memory(a[::2], a[1::2])
    assert not np.shares_memory(a[:0], a[:0])


def test_copies_share_no_memory_before_they_are_written(floor: Any) -> None:
    a, b = alight.arange(12.0), alight.ones(12)
    b[...] = a
    before = a.copy()
    assert not np.shares_memory(a, b)
    assert not np.may_share_memory(a, before)


def test_exports_share_memory_with_their_array(floor: Any) -> None:
    a = alight.arange(12.0)
    shown = np.asarray(a)
    assert np.shares_memory(a, shown)
    assert np.shares_memory(alight.asarray(shown, copy=False), a)
    assert not np.shares_memory(a + 0, shown)


def test_memory_of_arguments_is_known_inside_jit() -> None:
    @alight.jit
    def told(x: Any, y: Any) -> Any:
        return np.shares_memory(x, y), np.may_share_memory(x, x + 0)

    x = np.arange(10.0)
    for floor_or_none in ({}, {"floor": 0}):
        with alight.policy(**floor_or_none):
            assert told(x, x[1:]) == (True, False)
            assert told(x, x.copy()) == (False, False)
