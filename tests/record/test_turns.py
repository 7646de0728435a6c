"""Writes of several threads to one array: all arrive, whatever way each of them is done."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
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
    assert storage.replace(first, second) and storage.value is second
    assert not storage.replace(first, pending(core, first))
    assert storage.value is second and core.pending_storages() == [storage]


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
