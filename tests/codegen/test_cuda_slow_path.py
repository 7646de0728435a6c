"""What tells that some of many elements are not usual: none that is unusual stays unseen."""

from __future__ import annotations

import numpy as np
import pytest

from alight._src.codegen.cuda.slow_path import RareLaneTest
from alight._src.ir.body import Expr

ASKED = Expr("operand", (), "float32", 0)
SIZE = Expr("fabs", (ASKED,), "float32")
CONDITIONS = {"ne": np.not_equal, "lt": np.less, "le": np.less_equal}


def values(limit: float) -> np.ndarray:
    """Return floats of every size, with those around a limit."""
    bits = np.random.default_rng(5).integers(0, 1 << 32, 100_000, dtype=np.uint32)
    near = np.float32(limit) * np.float32([1, -1])
    up, down = np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))
    special = np.float32([0.0, -0.0, 1e-30, -1e-40, np.inf, -np.inf, np.nan])
    return np.concatenate([bits.view(np.float32), near, up, down, special])


@pytest.mark.parametrize("limit", [0.0, 0.5, 3.0, 1e18, 1e-25, 1e30, -3.0, -0.0, np.inf, np.nan])
@pytest.mark.parametrize("prim", CONDITIONS)
def test_whatever_a_condition_does_not_hold_for_is_beyond_an_end(prim: str, limit: float) -> None:
    told = RareLaneTest()
    size = ASKED if prim == "ne" else SIZE
    asked = Expr(prim, (size, Expr("const", (), "float32", limit)), "bool")
    statement = told.unless(asked, str)
    if statement is None:
        assert not told.ends
        return
    (end,) = told.ends
    with np.errstate(all="ignore"):
        x = values(limit)
        given = x if prim == "ne" else np.abs(x)
        holds = CONDITIONS[prim](given, np.float32(limit))
        bits = (x * x).view(np.uint32)
    beyond = bits >= end.limit if end.function == "max" else bits < end.limit
    assert np.all(beyond | holds)
    assert not np.all(beyond)  # and some are usual


def test_what_squares_have_an_order_for_is_told_by_them() -> None:
    def bound(limit: float) -> Expr:
        return Expr("lt", (SIZE, Expr("const", (), "float32", limit)), "bool")

    assert RareLaneTest().unless(bound(3.0), str) is not None
    for limit in (-3.0, 0.0, np.nan, 1e-25, 1e30):
        assert RareLaneTest().unless(bound(limit), str) is None
