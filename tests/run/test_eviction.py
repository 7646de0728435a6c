"""Copies make way where a device's memory is full: the least worth first, and nothing is lost."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import Data, layout_of
from alight._src.base.cache_registry import Cache, forget
from alight._src.log.decisions import LOG
from alight._src.run import eviction, residency
from alight._src.run.eviction import FRESH, Kept
from alight.backends import registry

N = 1000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give sim:0 room for six arrays of N float64, all of it free."""
    whole = registry.device("sim:0")
    device = replace(whole, memory_bytes=6 * 8 * N)
    monkeypatch.setitem(registry._devices, "sim:0", device)
    driver: Any = registry.driver_of(whole)
    monkeypatch.setattr(driver, "_used", {})
    monkeypatch.setattr(eviction, "_spaces", {})
    forget(Cache.PLANS)
    LOG.reset()
    with alight.policy(force="sim:0", floor=0):
        yield device
    forget(Cache.PLANS)


def test_more_arrays_than_fit_are_computed_on_the_device(small: Any) -> None:
    rng = np.random.default_rng(0)
    plain = [rng.standard_normal(N) for _ in range(10)]
    ours = [alight.asarray(array) for array in plain]
    results = []
    for i in range(10):
        result = ours[i] * 2.0 + ours[(i + 1) % 10]
        alight.evaluate(result)  # its bytes are on the device alone
        results.append(result)
    for i, result in enumerate(results):
        assert np.array_equal(np.asarray(result), plain[i] * 2.0 + plain[(i + 1) % 10])
    totals = LOG.snapshot()
    assert totals.fallbacks == ()
    assert {device for _, device in totals.elements} == {"sim:0"}


def test_what_is_used_often_stays(small: Any) -> None:
    often = alight.asarray(np.arange(float(N)))
    others = [alight.asarray(np.full(N, float(i))) for i in range(12)]
    for _ in range(6):
        float((often + 1.0).sum())
    before = LOG.snapshot().counts["uploads"]
    for other in others:
        assert float((often * other).sum()) == float(
            (np.arange(float(N)) * np.asarray(other)).sum()
        )
    assert LOG.snapshot().counts["uploads"] - before == len(others)
    assert LOG.snapshot().fallbacks == ()


def test_what_is_on_the_device_alone_comes_to_the_host_first(small: Any) -> None:
    made = alight.asarray(np.arange(float(N))) * 3.0
    alight.evaluate(made)
    data = made.storage.value.data
    assert data is not None and data.array is None
    assert residency.make_room(small, 8 * N)
    assert residency.make_room(small, 8 * N) or data.array is not None
    while residency.make_room(small, 8 * N):
        pass
    assert not data.remote and data.array is not None
    assert np.array_equal(np.asarray(made), np.arange(float(N)) * 3.0)


def stored(nbytes: int) -> Data:
    array = np.zeros(nbytes, np.uint8)
    data = Data(layout_of(array), array)
    data.remote = {"far": object()}
    return data


def test_worth_is_uses_times_seconds_for_each_byte() -> None:
    held = Kept()
    often, dear, large, spared = stored(100), stored(100), stored(1000), stored(10)
    for _ in range(3):
        held.use(often, 1.0)
    held.use(dear, 2.0)
    held.use(large, 2.5)
    held.use(spared, 1e-9)
    order = [held.least("far", {id(spared)}) for _ in range(3)]
    assert order == [large, dear, often]
    assert held.least("far", {id(spared)}) is None
    # Who comes after much was evicted starts from that level.
    held.use(large, 2.5)
    held.use(dear, 1.0)
    assert held.least("far", ()) is spared
    del order


def test_what_died_or_left_is_forgotten() -> None:
    held = Kept()
    one, two = stored(8), stored(8)
    held.use(one, 1.0)
    held.use(two, 1.0)
    one.remote = None
    del two
    assert held.least("far", ()) is None and not held._copies


def test_what_came_without_anybody_told_is_known_when_room_is_made() -> None:
    held = Kept()
    one, two, dead = stored(8), stored(8), stored(8)
    for data, seconds in ((one, 2.0), (two, 1.0), (dead, 0.1)):
        held.fresh += [weakref.ref(data), seconds]
    del dead, data
    assert held.least("far", ()) is two and held.least("far", ()) is one
    assert held.least("far", ()) is None
    for _ in range(FRESH):
        held.fresh += [weakref.ref(one), 1.0]
    held.use(one, 1.0)
    assert not held.fresh and list(held._copies) == [id(one)]
