"""What waits holds little that NumPy would have dropped by now."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import alight
from alight._src.log.decisions import LOG
from alight._src.run import evaluate

SIZE = 500_000  # 4 MB


@pytest.fixture(autouse=True)
def recording() -> Iterator[None]:
    """Record everything, beginning with nothing that waits."""
    with alight.policy(floor=0):
        evaluate.evaluate_all()
        yield


def distance(x: alight.Array, y: alight.Array) -> alight.Array:
    return np.sqrt(x * x + y * y)


def launches() -> int:
    return int(LOG.snapshot().counts["launches"])


def test_operands_that_only_waiting_results_have_do_not_pile_up() -> None:
    LOG.reset()
    kept = []
    for turn in range(40):
        x, y = alight.asarray(np.full(SIZE, 3.0)), alight.asarray(np.full(SIZE, 4.0 * turn))
        kept.append(distance(x, y))
    del x, y
    # Two operands wait for each result: 160 MB more than NumPy has.
    assert launches() > 0
    for turn, one in enumerate(kept):
        assert float(one[-1]) == np.hypot(3.0, 4.0 * turn)


def test_requests_between_do_not_hide_them() -> None:
    kept = []
    other = alight.asarray(np.ones(1000))
    for _ in range(40):
        x, y = alight.asarray(np.full(SIZE, 3.0)), alight.asarray(np.full(SIZE, 4.0))
        kept.append(distance(x, y))
        del x, y
        assert float(other.sum()) == 1000.0
    LOG.reset()
    evaluate.evaluate_all()
    assert launches() < 20  # of 40: most were there


@pytest.mark.parametrize("whose", ["the program's", "nobody's results"])
def test_what_the_program_has_or_has_dropped_may_wait(whose: str) -> None:
    x, y = alight.asarray(np.full(SIZE, 3.0)), alight.asarray(np.full(SIZE, 4.0))
    LOG.reset()
    last = distance(x, y)
    kept = [last]
    for _ in range(40):
        last = distance(x, y)
        if whose == "the program's":
            kept.append(last)
    assert launches() == 0
