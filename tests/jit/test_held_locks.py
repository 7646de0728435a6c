"""Jitted bodies that hold a lock: what they wrote is there when they let go of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight

lock = threading.Lock()
common: Any = None


def of_an_argument(x: Any, y: Any) -> None:
    with lock:
        x += y


def by_acquire(x: Any, y: Any) -> None:
    lock.acquire()
    x += y
    lock.release()


def by_another(x: Any, y: Any) -> None:
    _locked(x, y)


def _locked(x: Any, y: Any) -> None:
    with lock:
        x += y


def of_a_global(x: Any, y: Any) -> None:
    global common
    with lock:
        common = common + y


@pytest.mark.parametrize("device", ["cpu:generated", "sim:0"])
@pytest.mark.parametrize("body", [of_an_argument, by_acquire, by_another, of_a_global])
def test_threads_that_hold_a_lock_lose_no_writes(
    body: Callable[[Any, Any], None], device: str
) -> None:
    global common
    shared, one = np.zeros(2000), np.ones(2000)
    common = shared
    jitted = alight.jit(body)

    def work() -> None:
        with alight.policy(floor=0, force=device, devices=("cpu", "sim:0")):
            for _ in range(30):
                jitted(shared, one)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(np.asarray(common), np.full(2000, 120.0))
