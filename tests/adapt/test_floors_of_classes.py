"""Floors of classes of ops hold for their own class alone, and before what is forced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import floor

N = 4_000


@pytest.fixture(autouse=True)
def measured() -> Iterator[None]:
    """Have the floor measured low."""
    floor.here()
    known = floor.auto, floor.record_floor
    floor.auto = floor.record_floor = 1_000
    yield
    floor.auto, floor.record_floor = known


def ran(call: Any, **policy: Any) -> tuple[str, str, int | None]:
    """Return who ran what a call of an array gives, why, and under which floor."""
    x = alight.asarray(np.linspace(0.1, 1.0, N).reshape(40, 100))
    with alight.policy(**policy):
        alight.reset()
        np.asarray(call(x))
        (row,) = alight.report().to_dict()["decisions"]
    return row["implementation"], row["reason"], row["threshold"]


@pytest.mark.parametrize(
    ("floors", "call", "under"),
    [
        ({"unary": 10**9}, lambda x: alight.sqrt(x), 10**9),
        ({"binary": 10**9}, lambda x: x * x, 10**9),
        ({"reduction": 10**9}, lambda x: alight.std(x, axis=1), 10**9),
        ({"matmul": 10**9}, lambda x: x @ x.T, 10**9),
        ({"unary": 10**9}, lambda x: x * x, None),
        ({"binary": 10**9}, lambda x: alight.sqrt(x), None),
        ({"reduction": 10**9}, lambda x: x * x, None),
    ],
)
def test_a_class_has_its_own_floor_also_where_work_is_forced(
    floors: dict[str, int], call: Any, under: int | None
) -> None:
    found = ran(call, floor=floors, force="cpu:generated")
    if under is None:
        assert found == ("generated", "pinned", None)
    else:
        assert found[0] in ("numpy", "library") and found[1:] == ("below_floor", under)
