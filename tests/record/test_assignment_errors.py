"""`a[key] = item` where the key, the item or both are wrong: NumPy's error, and its warnings."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest

import alight

SEED = 216

_MASKS = ((3,), (4,), (3, 4), (4, 3), (50,), (50, 40), (), (1,), (3, 4, 1), (0,))
_ITEMS: list[Any] = [
    *("x", None, [1, 2], 1j, "1.5", 300, -1, 1e300, float("nan"), {}, [[1]], 10**30, 2.5),
    *(np.arange(3.0), np.array("a"), np.zeros((2, 2)), np.array(1j), np.datetime64("2020")),
    *(np.arange(12.0), np.float64(1e300), np.int64(300)),
]


def _outcome(array: Any, key: Any, item: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            array[key] = item
            told = np.asarray(array).tolist()
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
    return repr(told), sorted({(one.category.__name__, str(one.message)) for one in caught})


def _keys(draw: random.Random, shape: tuple[int, ...]) -> Any:
    way = draw.randint(0, 7)
    if way < 4:
        return np.ones(draw.choice(_MASKS), bool)
    if way == 4:
        return np.array(draw.choice(([0, 1], [99], [-99, 0], [[0], [2]], [])), "i8")
    if way == 5:
        return np.array([0.5, 1.0])
    if way == 6:
        return draw.choice((0, 99, slice(1, 3), slice(5, 99), None, ..., (0, 0, 0), "a", 1.5))
    return (np.array([0, 1]), draw.choice((np.array([0, 1]), 99, slice(1), np.array([True]))))


@pytest.mark.parametrize("floor", [0, 1000])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "u1", "?", "c8"])
def test_wrong_assignments_fail_as_numpys(dtype: str, floor: int) -> None:
    print("seed", SEED)
    draw = random.Random(SEED)
    with alight.policy(floor=floor):
        for _ in range(900):
            shape = draw.choice([(4,), (3, 4), (50, 40), ()])
            key, item = _keys(draw, shape), draw.choice(_ITEMS)
            expected = _outcome(np.zeros(shape, dtype), key, item)
            array = alight.asarray(np.zeros(shape, dtype))
            if draw.random() < 0.3:
                array = array + array.dtype.type(0)
            ours = (
                alight.asarray(key) if isinstance(key, np.ndarray) and draw.random() < 0.8 else key
            )
            if isinstance(item, np.ndarray) and item.dtype.kind in "fc" and draw.random() < 0.5:
                item = alight.asarray(item)
            if type(key) is tuple:
                ours = tuple(alight.asarray(k) if isinstance(k, np.ndarray) else k for k in key)
            assert _outcome(array, ours, item) == expected, (shape, key, item)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 3)])
@pytest.mark.parametrize("source", ["itself", "its base", "a view of it", "another", "masked"])
def test_copyto_into_read_only_arrays_fails_where_numpys_does(
    shape: tuple[int, ...], source: str
) -> None:
    told = []
    for namespace in (np, alight):
        base = namespace.full(shape, 5)
        view = base.view()
        view.flags.writeable = False
        sources = {"itself": view, "its base": base, "a view of it": view[...], "masked": base}
        where = {"where": False} if source == "masked" else {}
        try:
            namespace.copyto(view, sources.get(source, base + 1), **where)
            told.append("written")
        except ValueError as error:
            told.append(str(error))
    assert told[0] == told[1]
