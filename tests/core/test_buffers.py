"""Memory for results: arrays own it as NumPy's do, and it comes back when they die."""

from __future__ import annotations

import gc
import multiprocessing
import os
import platform
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import (
    Data,
    fresh_data,
    keep_bytes,
    kept_bytes,
    layout_of,
    living_bytes,
    make_layout,
)
from alight.backends.host import HostBackend

F8 = np.dtype(np.float64)
LARGE = 1 << 16  # elements of float64: beyond what the C library's heap serves
ROOM = 1 << 28


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    """Begin with nothing kept, and room for it."""
    gc.collect()
    keep_bytes(0)
    keep_bytes(ROOM)
    yield
    keep_bytes(0)
    HostBackend()  # as it was


def fresh(elements: int) -> Data:
    return fresh_data(make_layout(F8, (elements,)))


def place(array: Any) -> int:
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def test_memory_comes_back_and_is_used_again() -> None:
    data = fresh(LARGE)
    address = data.address
    assert kept_bytes() == 0
    del data
    assert kept_bytes() == LARGE * 8
    again = fresh(LARGE - 100)  # nearly that size will do
    assert again.address == address and kept_bytes() == 0
    other = fresh(LARGE)
    assert not np.shares_memory(again.array, other.array)
    del again, other
    assert kept_bytes() == 2 * LARGE * 8


def test_memory_that_someone_holds_is_theirs() -> None:
    data = fresh(LARGE)
    data.array[:] = 1.0
    address, seen = data.address, data.array[5:]
    del data
    other = fresh(LARGE)
    other.array[:] = 3.0
    assert kept_bytes() == 0 and other.address != address and (seen == 1.0).all()
    held = memoryview(seen)
    del seen
    assert kept_bytes() == 0
    held.release()
    assert kept_bytes() == LARGE * 8


@pytest.mark.parametrize("elements", [LARGE, 3 * LARGE + 1, 1 << 20, (1 << 21) + 7])
def test_blocks_are_aligned_and_whole(elements: int) -> None:
    for _ in range(2):
        made = [fresh(elements) for _ in range(3)]
        for number, data in enumerate(made):
            assert data.address % 4096 == 0
            data.array[:] = number
        assert all((data.array == number).all() for number, data in enumerate(made))
        del data, made


def test_results_own_their_memory_as_numpys_do() -> None:
    @alight.jit
    def chain(x: Any) -> Any:
        return x * 2.0 + 1.0

    x = np.linspace(0.0, 1.0, LARGE)
    with alight.policy(force="cpu:generated", floor=0):
        for _ in range(8):
            result = chain(x)
            assert result.base is None and result.flags.owndata and result.flags.writeable
            np.testing.assert_array_equal(result, x * 2.0 + 1.0)
    address = place(result)
    result.resize(LARGE // 4)
    assert result.shape == (LARGE // 4,)
    result.resize(4 * LARGE)
    np.testing.assert_array_equal(result[: LARGE // 4], (x * 2.0 + 1.0)[: LARGE // 4])
    assert not result[LARGE // 4 :].any()
    result.shape = (4, LARGE)
    del result
    with alight.policy(force="cpu:generated", floor=0):
        assert place(chain(x)) == address


def test_numpys_own_arrays_are_numpys() -> None:
    fresh(LARGE)
    before = kept_bytes()
    assert before
    array = np.empty(LARGE)
    assert kept_bytes() == before
    del array
    assert kept_bytes() == before


_TEMPORARIES = """
import resource
import numpy as np
import alight
for turn in range(12):
    if turn == 2:  # the first ones touch the heap
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    temporaries = [np.ones(1 << 18) for _ in range(6)]
    del temporaries
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what is told is glibc's heap")
def test_numpys_own_temporaries_stay_touched() -> None:
    """As in a program whose results are NumPy's: a heap that saw only small blocks gives back
    pages at each call, for which the next pays."""
    unset = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", _TEMPORARIES], capture_output=True, text=True, env=unset, check=True
    )
    pages = 10 * 6 * (1 << 18) * 8 // 4096
    assert int(done.stdout) < pages / 20


_IDLE = """
import sys
import numpy as np
if sys.argv[1] == "alight":
    import alight
def resident():
    with open("/proc/self/status") as file:
        return int(file.read().split("RssAnon:")[1].split()[0]) << 10
before = resident()
for turn in range(3):
    first, second = np.ones((2000, 1666)), np.ones((2000, 1666))  # 25.4 MiB
    del first, second
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system says it in /proc")
def test_large_temporaries_of_numpy_go_back_as_without_alight() -> None:
    unset = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    idle = {}
    for door in ("numpy", "alight"):
        done = subprocess.run(
            [sys.executable, "-c", _IDLE, door],
            capture_output=True, text=True, env=unset, check=True,
        )  # fmt: skip
        idle[door] = int(done.stdout)
    assert idle["alight"] < idle["numpy"] + (8 << 20), idle


def test_there_is_a_limit() -> None:
    keep_bytes(3 * LARGE * 8)
    made = [fresh(LARGE) for _ in range(5)]
    del made
    assert kept_bytes() == 3 * LARGE * 8
    data = fresh(2 * LARGE)
    del data  # what came back last is what is used now: the oldest go
    assert kept_bytes() == 3 * LARGE * 8
    data = fresh(4 * LARGE)
    del data
    assert kept_bytes() == 3 * LARGE * 8
    keep_bytes(0)
    assert kept_bytes() == 0


def test_sizes_of_an_earlier_phase_go() -> None:
    first = fresh(4 * LARGE)
    del first
    for _ in range(4 * 64 + 2):
        fresh(LARGE)
    assert kept_bytes() == LARGE * 8


# Beyond what may be kept of small ones beside the most that lived at once.
MILLION = 1 << 20  # elements: 8 MiB
SLACK = 16 << 20


def test_what_is_kept_adds_nothing_to_what_lived_at_most() -> None:
    until = time.monotonic() + 10
    fresh(LARGE)  # the peaks of other tests are forgotten once nothing is kept
    while kept_bytes() and time.monotonic() < until:
        time.sleep(0.05)
    before = living_bytes()[0]
    for turn in range(6):
        for elements in (12 * MILLION, 9 * MILLION, 11 * MILLION):
            data = fresh(elements)
            data.array[:: 1 << 9] = turn  # every page, also where they were another's
            assert (data.array[:: 1 << 9] == turn).all()
            most = 12 * MILLION * 8 * 9 // 8 + before
            assert living_bytes()[0] + kept_bytes() <= most + SLACK, (turn, elements)
            del data
    assert living_bytes()[0] == before


def test_bytes_that_live_are_counted() -> None:
    before, _ = living_bytes()
    first, second = fresh(LARGE), fresh(LARGE)
    del first
    assert living_bytes() == (before + LARGE * 8, before + 2 * LARGE * 8)
    del second
    assert living_bytes() == (before, before + LARGE * 8)
    assert living_bytes() == (before, before)
    with pytest.raises(MemoryError):
        fresh_data(make_layout(np.dtype(np.uint8), (1 << 60,)))
    assert living_bytes()[0] == before


def test_what_nobody_wants_goes_while_others_are_used() -> None:
    fresh(16 * LARGE)
    until = time.monotonic() + 30
    while kept_bytes() > LARGE * 8 and time.monotonic() < until:
        fresh(LARGE)
        time.sleep(0.01)
    assert kept_bytes() == LARGE * 8  # few enough of these that not by their bytes


def test_pages_that_the_system_took_back_are_usable() -> None:
    elements = 1 << 20  # of huge pages
    made = [fresh(elements) for _ in range(12)]
    for data in made:
        data.array[:] = 7.0
    del data, made  # all but the last few may be taken
    made = [fresh(elements) for _ in range(12)]
    assert kept_bytes() == 0
    for number, data in enumerate(made):
        data.array[:] = number
    assert all((data.array == number).all() for number, data in enumerate(made))


def test_no_memory_drops_what_is_kept_and_is_numpys_error() -> None:
    fresh(LARGE)
    assert kept_bytes()
    with pytest.raises(MemoryError, match="Unable to allocate"):
        fresh_data(make_layout(np.dtype(np.uint8), (1 << 60,)))
    assert kept_bytes() == 0
    assert np.empty(4).flags.owndata  # NumPy's own way is in force again
    np.ones(LARGE)
    assert kept_bytes() == 0


def test_cycles_and_errors_give_it_back() -> None:
    def fail() -> None:
        held = fresh(LARGE)
        raise KeyError(held.nbytes)

    with pytest.raises(KeyError):
        fail()
    data = fresh(LARGE)
    data.remote = {"self": data}
    del data
    gc.collect()
    assert kept_bytes() == LARGE * 8


def test_memory_of_several_threads_is_apart() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(200):
            data = fresh(LARGE + (turn % 3) * 9000)
            data.array[::512] = number
            if (data.array[::512] != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _in_child(queue: Any) -> None:
    nothing = kept_bytes()
    data = fresh(LARGE)
    data.array[:] = 2.0
    queue.put((nothing, float(data.array.sum())))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_shares_nothing() -> None:
    held = fresh(LARGE)
    held.array[:] = 5.0
    data = fresh(LARGE)
    address = data.address
    data.array[:] = 1.0
    del data
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get() == (0, 2.0 * LARGE)
    child.join()
    assert child.exitcode == 0 and kept_bytes() == LARGE * 8
    assert (held.array == 5.0).all() and fresh(LARGE).address == address


def test_results_outlive_their_program() -> None:
    text = (
        "import numpy as np, alight, atexit, sys\n"
        "from alight._core import fresh_data, make_layout\n"
        "class Late:\n"
        "    pass\n"
        "kept = Late()\n"
        "kept.array = fresh_data(make_layout(np.dtype('f8'), (1 << 18,))).array\n"
        "kept.array[:] = 1.0\n"
        "sys.modules['late'] = kept\n"
        "kept.me = kept\n"
        "atexit.register(lambda: print(kept.array.sum()))\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["262144.0"])


def test_tracemalloc_sees_the_memory_of_results() -> None:
    tracemalloc.start()
    try:
        data = fresh(LARGE)
        domain = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
        traces = tracemalloc.take_snapshot().filter_traces([domain]).traces
        assert sum(trace.size for trace in traces) >= data.nbytes
    finally:
        tracemalloc.stop()
    assert layout_of(data.array) is data.layout


def test_pages_that_came_from_several_blocks_move_no_further() -> None:
    for number, elements in enumerate((12, 15, 20, 25, 33)):  # each has the pages of the one before
        data = fresh(elements * MILLION)
        data.array[:: 1 << 9] = number
        assert (data.array[:: 1 << 9] == number).all()
        del data
