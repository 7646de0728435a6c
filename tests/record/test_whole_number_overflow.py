"""Whole numbers without axes: NumPy's scalars warn where they overflow, its arrays do not."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import floor

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "iadd": operator.iadd,
    "isub": operator.isub,
    "imul": operator.imul,
    "neg": lambda x, y: -x,
    "abs": lambda x, y: abs(x),
    "radd": lambda x, y: 1 + x,
    "rsub": lambda x, y: 1 - x,
    "and": operator.and_,
    "lt": operator.lt,
    "ufunc": np.add,
}


def _outcome(make: Any, call: Callable[[Any, Any], Any], one: Any, other: Any, scalar: bool) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = make(one).max() if scalar else make(one[0])
        y = other if isinstance(other, int) else make(other).max()
        try:
            made = call(x, y)
            told: Any = (np.asarray(made).dtype.name, np.asarray(made).tolist())
        except Exception as error:
            told = type(error).__name__
    lines = [(str(w.message), w.filename, w.lineno) for w in caught]
    return told, lines


@pytest.mark.parametrize("floor", [0, 1000])
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "i8", "u8"])
@pytest.mark.parametrize("name", _BINARY)
def test_overflow_is_told_of_where_numpy_does(name: str, dtype: str, floor: int) -> None:
    kind = np.dtype(dtype)
    ends = [0, 1] if dtype == "?" else [np.iinfo(kind).min, np.iinfo(kind).max, 1]
    for size in (3, 4000):
        for end in ends:
            one = np.full(size, end, kind)
            for other in (
                1,
                2,
                0,
                np.full(size, 1, kind),
                np.full(5, 1, "i1"),
                np.full(5, 1, "f4"),
            ):
                for scalar in (True, False):
                    expected = _outcome(np.array, _BINARY[name], one, other, scalar)
                    with alight.policy(floor=floor):
                        found = _outcome(alight.asarray, _BINARY[name], one, other, scalar)
                    assert found == expected, (end, other, scalar)


def test_the_range_of_bytes_overflows() -> None:
    x = alight.asarray(np.array([100, -100], "i1"))
    with pytest.warns(RuntimeWarning, match="overflow encountered in scalar subtract"):
        assert x.max() - x.min() == -56


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_what_cannot_overflow_is_told_from_what_can(dtype: str) -> None:
    kind = np.dtype(dtype)
    least, most, half = np.iinfo(kind).min, np.iinfo(kind).max, 1 << (4 * kind.itemsize - 1)
    near = {least, most, 0, 1, -1, *(sign * half + by for sign in (1, -1, 2) for by in (-1, 0, 1))}
    values = sorted(int(value) for value in near if least <= value <= most)
    for one in values:
        for other in values:
            for call in (operator.add, operator.sub, operator.mul):
                for second in (other, np.full(3, other, kind)):
                    given = (call, np.full(3, one, kind), second, True)
                    assert _outcome(alight.asarray, *given) == _outcome(np.asarray, *given), given


def test_arithmetic_of_whole_numbers_alone_tells_the_core_the_floor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = alight.asarray(np.array([3]))[0]
    monkeypatch.setattr(floor, "record_floor", -1)  # as a process begins
    made = one + 1
    assert floor.record_floor >= 0
    assert made == 4
