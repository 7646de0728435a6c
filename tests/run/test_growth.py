"""What a request takes grows no faster than what is in it: ops, arguments, results, calls and what
is logged of them. Calls of functions are counted, not seconds: counts are the same everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.base.cache_registry import Cache, forget
from alight._src.config.loading import reload_config
from alight._src.log.decisions import LOG
from counting import counted

GENERATED = {"floor": 0, "force": "cpu:generated"}
NUMPY = {"floor": 0, "force": "cpu:numpy"}


def ops(count: int) -> Callable[[], Any]:
    def work() -> None:
        x = alight.asarray(np.arange(50.0))
        for turn in range(count):
            x = x * 0.5 + (turn % 7)
        np.asarray(x)

    return work


def apart(count: int) -> Callable[[], Any]:
    """Return work on values of different shapes, none of which goes with another."""

    def work() -> None:
        values = [alight.asarray(np.arange(5.0 + turn)) * 2.0 for turn in range(count)]
        alight.evaluate(*values)

    return work


def results(count: int) -> Callable[[], Any]:
    def work() -> None:
        x = alight.asarray(np.arange(50.0))
        alight.evaluate(*[x * (turn + 0.5) for turn in range(count)])

    return work


def arguments(count: int) -> Callable[[], Any]:
    @alight.jit
    def total(*arrays: Any) -> Any:
        value = arrays[0]
        for array in arrays[1:]:
            value = value + array
        return value

    given = [np.arange(20.0) for _ in range(count)]
    return lambda: total(*given)


def written(count: int) -> Callable[[], Any]:
    """Return work that writes into many windows of one array."""

    def work() -> None:
        x = alight.zeros(count)
        for turn in range(count):
            x[turn : turn + 1] = turn
        np.asarray(x)

    return work


def calls(count: int) -> Callable[[], Any]:
    @alight.jit
    def body(x: Any) -> Any:
        return x * 2.0 + 1.0

    x = np.arange(50.0)

    def work() -> None:
        for _ in range(count):
            body(x)

    return work


def logged(count: int) -> Callable[[], Any]:
    with alight.policy(**NUMPY):
        for turn in range(count):
            np.asarray(alight.asarray(np.arange(5.0 + turn)) + 1.0)
    return lambda: alight.report().to_dict()


WAYS = {
    "ops": (ops, 40),
    "apart": (apart, 20),
    "results": (results, 60),  # few are known to be one kernel at a glance
    "arguments": (arguments, 20),
    "written": (written, 20),
    "calls": (calls, 20),
    "logged": (logged, 40),
}


@pytest.fixture(autouse=True)
def _unproven(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run what users run: proofs, which tests ask for, compare each with each."""
    with monkeypatch.context() as patch:
        patch.setenv("ALIGHT_CHECK", "0")
        reload_config()
        yield
    reload_config()


@pytest.mark.parametrize("policy", [NUMPY, GENERATED], ids=["numpy", "generated"])
@pytest.mark.parametrize("what", WAYS)
def test_work_is_at_most_n_log_n(what: str, policy: dict[str, Any]) -> None:
    make, least = WAYS[what]

    def work_of(count: int) -> int:
        forget(Cache.PLANS)
        LOG.reset()
        work = make(count)
        with alight.policy(**policy):
            return counted(work, "call")

    work_of(least)  # what is made once
    small, middle, large = [work_of(least << k) for k in (0, 2, 3)]
    # what each has in common falls out of the difference; of n log n it is
    n = least
    allowed = (8 * n * math.log2(8 * n) - 4 * n * math.log2(4 * n)) / (
        4 * n * math.log2(4 * n) - n * math.log2(n)
    )
    assert large - middle < 1.15 * allowed * (middle - small) + 500, (small, middle, large)
