"""What an error leaves behind once it was caught: nothing, without a collection of garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight import errors


def shapes(a: Any) -> None:
    alight.minimum(a, alight.ones(5))


def types(a: Any) -> None:
    alight.add(a, alight.ones(9), out=alight.zeros(9, int))


def matrices(a: Any) -> None:
    alight.matmul(a, alight.ones(5))


def indices(a: Any) -> None:
    a[99] = 1


def requests(a: Any) -> None:
    with np.errstate(all="raise"):
        alight.evaluate(alight.sqrt(a - 99))


@alight.jit
def added(a: Any) -> Any:
    return a + alight.ones(5)


def jitted(a: Any) -> None:
    added(a)


def gaps(a: Any) -> None:
    with alight.policy(force="cpu:generated", on_gap="raise"):
        alight.evaluate(alight.sort(a))


@pytest.mark.parametrize("fails", [shapes, types, matrices, indices, requests, jitted, gaps])
def test_what_failed_is_not_kept_by_the_error(fails: Callable[[Any], None]) -> None:
    def kept() -> weakref.ref[Any]:
        with alight.policy(floor=0):
            a: Any = alight.arange(9.0) + 94
            alight.evaluate(a)
            try:
                fails(a)
            except (ValueError, TypeError, IndexError, ArithmeticError, errors.AlightError):
                return weakref.ref(a)
        raise AssertionError("nothing failed")

    kept()
    gc.collect()
    gc.disable()
    try:
        assert kept()() is None
    finally:
        gc.enable()
