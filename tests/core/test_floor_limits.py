"""What the floor counts does not overflow, whatever its limits are and however much is pending."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import alight


def test_limits_that_are_none_are_never_reached(core: Any) -> None:
    floor = type(core.floor)()
    floor.limit = floor.budget = sys.maxsize
    here, there = (test_limits_that_are_none_are_never_reached.__code__, 0), (_other.__code__, 4)
    for count in (0, 1, -2, sys.maxsize - 1, sys.maxsize):
        floor.anchor, floor.count = here, count
        assert floor.due(*there) is False
        assert floor.anchor == here
    floor.limit = 3
    for count, anchor in ((5, here), (6, there), (7, here)):
        floor.anchor, floor.count = here, count
        assert floor.due(*there) is False
        assert floor.anchor == anchor


def _other() -> None:
    """Return nothing: its code is another place."""


def test_pending_elements_are_counted_up_to_the_most_there_can_be() -> None:
    from alight._core import floor

    before = floor.count, floor.pending, floor.limit, floor.budget
    try:
        floor.limit = floor.budget = sys.maxsize
        floor.pending = sys.maxsize - 5
        x = alight.asarray(np.ones(100_000))
        with alight.policy(floor=0):
            kept = [x + 1, x * x, np.divmod(x, 2), x.sum()]
        assert floor.pending == sys.maxsize
        assert float(kept[0][0]) == 2.0
    finally:
        floor.count, floor.pending, floor.limit, floor.budget = before
