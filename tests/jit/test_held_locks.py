"""Jitted bodies that hold a lock: what they wrote is there when they let go of it."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.log.decisions import LOG

pytestmark = pytest.mark.usefixtures("looked_at_once")

lock = threading.Lock()
common: Any = None
take_turn, end_turn = lock.acquire, lock.release
of_processes = multiprocessing.Lock()
turns: queue.Queue[int] = queue.Queue()
simple_turns: queue.SimpleQueue[int] = queue.SimpleQueue()
turns.put(0)
simple_turns.put(0)


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


def by_methods_of_other_names(x: Any, y: Any) -> None:
    take_turn()
    x += y
    end_turn()


def by_what_a_block_calls(x: Any, y: Any) -> None:
    lock.__enter__()
    x += y
    lock.__exit__(None, None, None)


def by_a_name_that_is_made(x: Any, y: Any) -> None:
    getattr(lock, "ac" + "quire")()
    x += y
    getattr(lock, "re" + "lease")()


def by_a_stack(x: Any, y: Any) -> None:
    stack = contextlib.ExitStack()
    stack.enter_context(lock)
    x += y
    stack.close()


def of_other_processes(x: Any, y: Any) -> None:
    with of_processes:
        x += y


def by_a_queue(x: Any, y: Any) -> None:
    turn = turns.get()
    x += y
    turns.put(turn)


def by_a_simple_queue(x: Any, y: Any) -> None:
    turn = simple_turns.get()
    x += y
    simple_turns.put(turn)


_jitted = alight.jit(of_an_argument)


def by_a_jitted_function(x: Any, y: Any) -> None:
    _jitted(x, y)


BODIES = [
    *(of_an_argument, by_acquire, by_another, of_a_global, by_methods_of_other_names),
    *(by_what_a_block_calls, by_a_name_that_is_made, by_a_stack, of_other_processes, by_a_queue),
    *(by_a_simple_queue, by_a_jitted_function),
]


@pytest.mark.parametrize("device", ["cpu:generated", "sim:0"])
@pytest.mark.parametrize("body", BODIES)
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


log = logging.getLogger(__name__)
log.addHandler(logging.StreamHandler())  # which has a lock
draws = np.random.default_rng(1)  # which has one, too


def that_logs(x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        log.debug("no lock of the program's")
        x += y
    return x + 1.0


def that_draws(x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        x += draws.normal() * y
    return x + 1.0


def that_measures(x: Any, y: Any) -> Any:
    with measured([]):
        x += y
    return x + 1.0


@contextlib.contextmanager
def measured(seconds: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - began)


@pytest.mark.parametrize("body", [that_logs, that_draws, that_measures])
def test_blocks_without_a_lock_of_the_programs_are_ours(body: Callable[[Any, Any], Any]) -> None:
    jitted = alight.jit(body)
    with alight.policy(floor=0, force="cpu:generated"):
        for _ in range(3):
            jitted(np.zeros(2000), np.ones(2000))
    assert not [d for d in LOG.snapshot().demotions if body.__name__ in d.what]
