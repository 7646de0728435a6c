"""Half floats: what NumPy rounds to them on the way overflows on the way."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import alight
from alight._src.ir.op_table import OPS

SEED = 16
_CALLS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: x.mean(),
    "mean of halves": lambda x: x.mean(dtype="f2"),
    "mean of columns": lambda x: x.mean(0, dtype="f2"),
    "mean of rows": lambda x: x.mean(-1, dtype="f2"),
    "mean of single ones": lambda x: x.astype("f4").mean(dtype="f2"),
    "std": lambda x: x.std(),
    "std of columns": lambda x: x.std(0),
    "std of rows": lambda x: x.std(-1),
    "std of single floats": lambda x: x.std(dtype="f4"),
    "var": lambda x: x.var(ddof=1),
    "body": lambda x: (x - x.mean()).std(),
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: x.sum(0),
    "sum of rows": lambda x: x.sum(-1),
    "sum of columns apart": lambda x: x[:, ::2].sum(0),
    "sum of turned columns": lambda x: x.T.sum(-1),
    "sum of turned rows": lambda x: x.T.sum(0),
    "sum of rows apart": lambda x: x[:, ::2].sum(),
    "sum of backwards rows": lambda x: x[::-1].sum(),
    "sum of three": lambda x: x.reshape(2, -1, x.shape[1]).sum((0, 2)),
    "sum of doubles": lambda x: (x * 2).sum(0),
    "sum where": lambda x: x.sum(where=x < 0),
    "sum of single ones": lambda x: x.astype("f4").sum(dtype="f2"),
    "sum in single ones": lambda x: x.sum(0, dtype="f4"),
    "reduce": lambda x: numpy.add.reduce(x),
    "prod": lambda x: x.prod(0),
    "prod of rows": lambda x: (x / 1000).prod(1),
    "cumsum": lambda x: x.cumsum(0),
    "cumsum of rows": lambda x: x.cumsum(-1),
    "cumprod": lambda x: x.cumprod(0),
    "accumulate": lambda x: numpy.add.accumulate(x),
    "nansum": lambda x: numpy.nansum(x, axis=0),
    "nanmean": lambda x: numpy.nanmean(x, axis=0),
    "nanstd": lambda x: numpy.nanstd(x),
    "average": lambda x: numpy.average(x),
    "max": lambda x: x.max(0),
    "ptp": lambda x: numpy.ptp(x, axis=0),
}


def _outcome(call: Callable[[Any], Any], array: Any) -> tuple[Any, set[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = numpy.array(call(array))
    return made, {str(one.message) for one in caught}


@pytest.mark.parametrize("policy", [{}, {"floor": 0, "force": "cpu:generated"}], ids=str)
@pytest.mark.parametrize("name", _CALLS)
def test_half_floats_overflow_where_numpys_do(name: str, policy: dict[str, Any]) -> None:
    print("seed", SEED)
    draw = numpy.random.default_rng(SEED)
    call = _CALLS[name]
    for shape in ((4, 6), (40, 50), (500, 200)):
        several = draw.choice(numpy.array([6e4, -6e4, 1], "f2"), shape)
        swings = numpy.resize(numpy.array([6e4, 6e4, -6e4, -6e4], "f2"), shape[0])
        for array in (
            numpy.full(shape, 6e4, "f2"),
            numpy.full(shape, 3e4, "f2"),
            numpy.full(shape, 1.5, "f2"),
            (draw.standard_normal(shape) * 200).astype("f2"),
            several,
            numpy.repeat(swings, shape[1]).reshape(shape),
            numpy.full((4, 1500), 3e4, "f2"),
        ):
            expected, told = _outcome(call, array)
            with alight.policy(**policy):
                found, ours = _outcome(call, alight.asarray(array))
            assert found.dtype == expected.dtype
            assert ours == told, (shape, array)
            # what is rounded once is within an ulp, and the bound of the reduction in single floats
            reduced = OPS["sum"].bound(array.size) * numpy.finfo("f4").eps
            slack = reduced * numpy.abs(array.astype("f8")).sum()
            wide = [one.astype("f8") for one in (found, expected)]
            numpy.testing.assert_allclose(*wide, numpy.finfo("f2").eps, slack)


def test_an_assigned_number_that_overflows_warns_at_the_programs_line() -> None:
    with alight.policy(floor=0, force="cpu:generated"):
        x = alight.array([1, 100, 3], "f2")
        with pytest.warns(RuntimeWarning, match="overflow encountered in cast") as caught:
            x[1] = 2**31
    assert [one.filename for one in caught] == [__file__]
    assert x.tolist() == [1, numpy.inf, 3]
