"""Writes of several threads to one array: all arrive, whatever way each of them is done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.record import storage_io
from alight._src.run import residency
from fuzzing import shared_arrays

F8 = np.dtype(np.float64)
TESTS = Path(__file__).parents[1]


def concrete(core: Any, n: int = 16) -> Any:
    value = core.Value(None, (), (), core.make_layout(F8, (n,)))
    value.bind(core.Data(value.layout, np.zeros(n)), 0)
    return value


def pending(core: Any, *operands: Any) -> Any:
    return core.Value("op", operands, (), core.make_layout(F8, (16,)))


# -- the core --------------------------------------------------------------------------------------


def test_a_version_made_of_another_than_the_current_one_does_not_become_current(core: Any) -> None:
    first = concrete(core)
    storage = core.Storage(first)
    second = pending(core, first)
    assert storage not in core.pending_storages()
    assert storage.replace(first, second) and storage.value is second
    assert not storage.replace(first, pending(core, first))
    assert storage.value is second and core.pending_storages().count(storage) == 1


def test_a_version_whose_memory_others_were_given_stays(core: Any) -> None:
    first = concrete(core)
    storage = core.Storage(first)
    first.data.shared = True
    seen = first.data.array
    assert not storage.replace(first, pending(core, first))
    del seen
    assert storage.replace(first, pending(core, first))  # nobody has it any more


def test_who_has_the_turn_is_waited_for(core: Any) -> None:
    storage = core.Storage(concrete(core))
    told: list[str] = []
    had, go = threading.Event(), threading.Event()

    def write() -> None:
        with core.Turn(storage), core.Turn(storage):  # taken again by who has it
            had.set()
            go.wait()
            told.append("written")

    def turn() -> None:
        with core.Turn(storage):
            pass

    def others(name: str, work: Any) -> threading.Thread:
        thread = threading.Thread(target=lambda: (work(), told.append(name)))
        thread.start()
        return thread

    first = threading.Thread(target=write)
    first.start()
    had.wait()
    waiting = [
        others("rebound", lambda: storage.rebind(concrete(core))),
        others("replaced", lambda: storage.replace(storage.value, concrete(core))),
        others("turn", turn),
    ]
    waiting[0].join(0.05)
    assert told == []
    go.set()
    first.join()
    for thread in waiting:
        thread.join()
    assert told[0] == "written" and sorted(told[1:]) == ["rebound", "replaced", "turn"]


def test_turns_of_several_are_taken_in_one_order(core: Any) -> None:
    storages = [core.Storage(concrete(core)) for _ in range(3)]

    def work(mine: list[Any]) -> None:
        for _ in range(2_000):
            with core.Turn(*mine):
                pass

    threads = [
        threading.Thread(target=work, args=(order,))
        for order in (storages, storages[::-1], [*storages[1:], storages[0], storages[1]])
    ]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)


def test_bytes_are_marked_while_they_are_written(core: Any) -> None:
    value = concrete(core)
    storage = core.Storage(value)
    with pytest.raises(RuntimeError):
        storage.open()
    with core.Turn(storage):
        assert not value.data.writing
        storage.open()
        storage.open()
        assert value.data.writing
        storage.rebind(concrete(core))
        storage.open()
        assert not value.data.writing and storage.value.data.writing
    assert not storage.value.data.writing


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_bytes_are_marked_while_numpy_writes_them_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    array = alight.asarray(np.ones(4))
    array[0] = 2.0
    marked: list[bool] = []

    def told(*_: Any) -> None:
        marked.append(array.storage.value.data.writing)

    with warnings.catch_warnings(), alight.policy(floor=1000):
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", told)
        array /= 0.0
    assert marked == [True] and not array.storage.value.data.writing


def test_turns_of_threads_that_a_child_has_not_are_over(core: Any) -> None:
    storage = core.Storage(concrete(core))
    had, go = threading.Event(), threading.Event()

    def write() -> None:
        with core.Turn(storage):
            had.set()
            go.wait()

    thread = threading.Thread(target=write)
    thread.start()
    had.wait()
    child = os.fork()
    if child == 0:
        storage.rebind(concrete(core))
        with core.Turn(storage):
            os._exit(0)
    go.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_was_written_in_place_is_bound_at_once(core: Any) -> None:
    value = pending(core, concrete(core))
    data = core.Data(value.layout, np.zeros(16))
    value.error = ValueError("of a time before")

    def write(to: Any, *, word: float) -> str:
        to[:] = word
        return "done"

    assert value.bind_written(data, 8, write, data.array, word=2.0) == "done"
    assert (value.op, value.operands, value.attrs, value.error) == (None, (), (), None)
    assert value.data is data and value.offset == 8 and data.array.tolist() == [2.0] * 16
    other = pending(core, value)
    with pytest.raises(ZeroDivisionError):
        other.bind_written(data, 0, divmod, 1, 0)
    assert other.op == "op" and other.operands == (value,)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_who_forks_in_its_turn_has_it_still(core: Any) -> None:
    storage, apart = core.Storage(concrete(core)), core.Storage(concrete(core))
    had, go = threading.Event(), threading.Event()

    def write() -> None:
        with core.Turn(apart):
            apart.open()
            had.set()
            go.wait()

    thread = threading.Thread(target=write)
    thread.start()
    had.wait()
    with core.Turn(storage):
        storage.open()
        child = os.fork()
        if child == 0:
            with core.Turn(storage):
                storage.rebind(concrete(core))
            storage.open()  # raises where the turn is over
            told: list[int] = []
            other = threading.Thread(
                target=lambda: (storage.rebind(concrete(core)), told.append(1)), daemon=True
            )
            other.start()
            other.join(0.1)
            with core.Turn(apart):
                unmarked = not apart.value.data.writing
            os._exit(0 if not told and unmarked else 3)
    go.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not storage.value.data.writing


def test_a_turn_goes_to_who_has_waited_longest(core: Any) -> None:
    storage = core.Storage(concrete(core))
    done = threading.Event()
    counts = {"often": 0, "turn": 0, "replace": 0}

    def often() -> None:
        while not done.is_set() and counts["often"] < 2_000:
            with core.Turn(storage):
                counts["often"] += 1
                time.sleep(0.001)  # the others wait now

    def turn() -> None:
        with core.Turn(storage):
            counts["turn"] += 1

    def replace() -> None:
        storage.replace(storage.value, concrete(core))
        counts["replace"] += 1

    threads = [threading.Thread(target=often)]
    threads += [
        threading.Thread(target=lambda work=work: [work() for _ in range(20)])
        for work in (turn, replace)
    ]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    done.set()
    threads[0].join()
    # Each of theirs waits for one of the first thread's, and that sees one more at most before.
    assert counts["turn"] == counts["replace"] == 20 and counts["often"] <= 100, counts


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads")
def test_who_is_interrupted_passes_its_turn_on(core: Any) -> None:
    storage = core.Storage(concrete(core))
    had, go, after = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with core.Turn(storage):
            had.set()
            go.wait()

    def last() -> None:
        with core.Turn(storage):
            after.set()

    def interrupt(number: int, frame: Any) -> None:
        go.set()
        threads[0].join()  # the turn is the main thread's now, which waits for it
        raise Stopped

    class Stopped(Exception):
        pass

    threads = [threading.Thread(target=work, daemon=True) for work in (first, last)]
    threads[0].start()
    had.wait()
    threading.Timer(0.1, threads[1].start).start()
    main = threading.get_ident()
    threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGUSR1)).start()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Stopped), core.Turn(storage):
            pass
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert after.wait(10.0)


# -- programs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", shared_arrays.MODES)
@pytest.mark.parametrize("length", [2_000, 400_000])
def test_quarters_of_one_array_all_arrive(mode: str, length: int) -> None:
    w = alight.zeros(length)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        quarter = slice(number * length // 4, (number + 1) * length // 4)
        try:
            with alight.policy(**shared_arrays.MODES[mode]):
                for _ in range(30):
                    w[quarter] += 1
                    w[quarter] = w[quarter] * 1
                    alight.add(w[quarter], 1, out=w[quarter])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors, errors
    found, counts = np.unique(np.asarray(w), return_counts=True)
    assert found.tolist() == [60.0], dict(zip(found.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("mode", shared_arrays.MODES)
def test_parts_of_shared_arrays_hold_what_their_owners_wrote(mode: str) -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    wrong = shared_arrays.run(mode, 60, seed)
    assert not wrong, f"python -m fuzzing.shared_arrays {mode} 60 {seed}: {wrong[0]}"


@pytest.mark.parametrize("floor", ["0", "1000"])
def test_under_alight_run_too(floor: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "alight", "run", "-m", "fuzzing.shared_arrays", "auto", "60"],
        capture_output=True,
        text=True,
        cwd=TESTS,
        env={**os.environ, "ALIGHT_FLOOR_ALL": floor},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


class _Announced:
    """A lock that tells who asks for it."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.asked: dict[int, threading.Event] = defaultdict(threading.Event)

    def __enter__(self) -> None:
        self.asked[threading.get_ident()].set()
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


AT_ONCE: dict[str, Callable[[Any], Any]] = {
    "export": np.asarray,
    "set": lambda x: x.__setitem__((slice(None), [0]), np.ones((4, 1), object)),
    "flat": lambda x: setattr(x, "flat", 3.0),
    "put": lambda x: np.put(x, [1], 5.0),
    "out": lambda x: np.nanmedian(np.ones((4, 4, 3)), axis=2, out=x),
    "at": lambda x: np.add.at(x, ([0], [0]), 2.0),
}


@pytest.mark.parametrize("name", AT_ONCE)
def test_who_holds_the_lock_may_wait_for_a_turn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a finalizer does that writes, and runs where what is pending is evaluated."""
    lock = _Announced(residency.LOCK)
    monkeypatch.setattr(residency, "LOCK", lock)
    with alight.policy(floor=0):
        x = alight.ones((4, 4)) + 1.0
    errors: list[BaseException] = []
    held = threading.Event()

    def work() -> None:
        held.wait()
        with alight.policy(floor=0):
            AT_ONCE[name](x)

    def finalize() -> None:
        with lock:
            held.set()
            lock.asked[first.ident or 0].wait(5.0)
            time.sleep(0.05)
            x.storage.rebind(x.storage.value)

    first = threading.Thread(target=_guarded, args=(work, errors), daemon=True)
    second = threading.Thread(target=_guarded, args=(finalize, errors), daemon=True)
    first.start()
    second.start()
    first.join(20.0)
    second.join(20.0)
    assert not (first.is_alive() or second.is_alive()), "each waits for the other"
    assert not errors, errors
    assert lock.asked[first.ident or 0].is_set(), "nothing was pending"


def _guarded(work: Callable[[], None], errors: list[BaseException]) -> None:
    try:
        work()
    except BaseException as error:
        errors.append(error)


@pytest.mark.parametrize("masked", [False, True])
def test_an_assignment_is_made_beside_a_thread_that_always_writes(
    masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with alight.policy(floor=0):
        x = alight.zeros(8) + 1.0
        mask = alight.arange(8) > 3
    made = storage_io._version
    versions: list[int] = []

    def write() -> None:
        with alight.policy(floor=0):
            x.storage.rebind(alight.ones(8).storage.value)

    def version(*args: Any) -> Any:
        result = made(*args)
        versions.append(1)
        if len(versions) < 20:  # another thread is quicker, each time
            other = threading.Thread(target=write, daemon=True)
            other.start()
            other.join(0.1)
        return result

    monkeypatch.setattr(storage_io, "_version", version)
    with alight.policy(floor=0):
        x[mask if masked else slice(2, 8)] = alight.ones(8)[2:] * 7.0 if not masked else 7.0
    assert len(versions) == 2


HANDLER = """
import faulthandler, signal, threading, time
import alight
from alight._core import Turn

storage = alight.zeros(10).storage
faulthandler.dump_traceback_later(60, exit=True)  # it waits for ever where it is wrong
taken, asked = threading.Event(), threading.Event()


def other():
    with Turn(storage):
        taken.set()
        asked.wait()
        time.sleep(0.2)


def handler(number, frame):
    asked.set()
    with Turn(storage):
        print("handler")


thread = threading.Thread(target=other)
thread.start()
taken.wait()
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
with Turn(storage):
    print("interrupted")
thread.join()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no SIGALRM here")
def test_a_handler_may_want_the_turn_that_it_interrupted_the_wait_for() -> None:
    done = subprocess.run([sys.executable, "-c", HANDLER], capture_output=True, text=True)
    assert done.stdout == "handler\ninterrupted\n", done.stderr
