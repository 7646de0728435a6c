"""What is kept is forgotten with what it rests on, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.base import cache_registry
from alight._src.base.cache_registry import RESTS_ON, Cache, forget, register
from alight._src.config.loading import current_policy


@pytest.fixture
def resets(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Cache]]:
    """Return the caches that were reset, in order, of which nothing real is."""
    done: list[Cache] = []
    monkeypatch.setattr(cache_registry, "_resets", {cache: [] for cache in Cache})
    for cache in Cache:
        register(cache, lambda cache=cache: done.append(cache))  # type: ignore[misc]
    yield done


def test_no_cache_stands_before_what_it_rests_on() -> None:
    order = list(Cache)
    assert list(RESTS_ON) == order
    for cache, below in RESTS_ON.items():
        assert all(order.index(one) < order.index(cache) for one in below), cache


def test_what_rests_on_a_cache_goes_with_it_and_nothing_else(resets: list[Cache]) -> None:
    forget(Cache.PLANS)
    assert resets == [Cache.PLANS, Cache.PREPARED_STEPS, Cache.JITTED]
    resets.clear()
    forget(Cache.KERNELS_MET)
    assert resets == [Cache.KERNELS_MET]
    resets.clear()
    forget(Cache.KERNELS_MET, Cache.KERNELS_LOST)
    assert resets == [
        Cache.KERNELS_MET,
        Cache.KERNELS_LOST,
        *list(Cache)[list(Cache).index(Cache.PLANS) :],
    ]


def test_without_names_everything_goes_once(resets: list[Cache]) -> None:
    forget()
    assert resets == list(Cache)


def test_settings_take_everything_with_them(resets: list[Cache]) -> None:
    forget(Cache.SETTINGS)
    assert resets == list(Cache)


def test_every_cache_that_is_listed_registers() -> None:
    program = (
        "from alight._src.base import cache_registry\n"
        "import alight._src.run.measured_choice, alight._src.run.execute\n"
        "import alight._src.jit.decorator\n"
        "import alight._src.measure.verify_ops, alight._src.adapt.recalibrate\n"
        "import alight.backends.known_devices\n"
        "kept = cache_registry._resets\n"
        "print(*[cache.name for cache, resets in kept.items() if not resets])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "\n"


def test_after_everything_was_forgotten_programs_run_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @alight.jit
    def body(x: Any) -> Any:
        return np.sqrt(x) + 1

    x = np.linspace(0.0, 1.0, 1000)
    with alight.policy(floor=0, force="cpu:generated"):
        for _ in range(3):
            np.testing.assert_array_equal(body(x), np.sqrt(x) + 1)
            got = np.asarray(alight.asarray(x) * 2 + 1)
            np.testing.assert_array_equal(got, x * 2 + 1)
            forget()
    monkeypatch.setenv("ALIGHT_ON_GAP", "raise")
    forget(Cache.SETTINGS)
    assert current_policy().on_gap == "raise"
    monkeypatch.undo()
    forget(Cache.SETTINGS)
    assert current_policy().on_gap == "host"
