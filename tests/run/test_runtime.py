"""What may go wrong while things run: errors, interrupts, forks, threads, devices that fail."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import operator
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight import _core
from alight._src.ir.op import Kind, Op
from alight._src.ir.op_table import OPS
from alight._src.log.decisions import LOG
from alight._src.record import storage_io
from alight._src.record.pending import pend
from alight._src.run import evaluate, execute, recording_limits, residency
from alight.backends import registry
from alight.backends.host import HostBackend
from alight.errors import ConfigError, UnsupportedOnDevice
from hearing import collected

MODES = [
    pytest.param({}, id="auto"),
    pytest.param({"floor": 0, "force": "cpu:generated"}, id="generated"),
    pytest.param({"floor": 0, "force": "sim:0"}, id="sim"),
]


@pytest.fixture(autouse=True)
def recording() -> Iterator[None]:
    """Record everything, whatever its size, unless a test says otherwise."""
    with alight.policy(floor=0):
        yield


def ours(array: np.ndarray) -> alight.Array:
    """Return an Array with these elements."""
    return alight.asarray(array)


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "ALIGHT_FLOOR_ALL": "0", **environment},
        check=False,
    )


def failing(array: alight.Array, error: BaseException) -> alight.Array:
    """Return an Array whose evaluation raises."""

    def reference(x: np.ndarray) -> np.ndarray:
        raise error

    value = storage_io.read(array)
    return alight.Array.of(pend(Op("fails", Kind.LIBRARY, reference), (value,), (), value.layout))


def test_a_failed_root_raises_at_its_request_and_the_others_still_run() -> None:
    a = ours(np.arange(4.0))
    good = a + 1
    bad = failing(a, ZeroDivisionError("as told"))
    also_good = a * 2
    dependent = bad + good
    np.testing.assert_array_equal(np.asarray(good), np.arange(4.0) + 1)
    np.testing.assert_array_equal(np.asarray(also_good), np.arange(4.0) * 2)
    for _ in range(2):  # asked again, it fails again
        with pytest.raises(ZeroDivisionError, match="as told") as caught:
            np.asarray(dependent)
    assert any("test_runtime.py" in note for note in caught.value.__notes__)


def test_a_root_that_failed_is_not_raised_at_anothers_request() -> None:
    a = ours(np.arange(4.0))
    bad = failing(a, ValueError("mine"))
    connected = bad * 2
    good = a - 1
    total = good + a
    del connected
    np.testing.assert_array_equal(np.asarray(total), 2 * np.arange(4.0) - 1)
    with pytest.raises(ValueError, match="mine"):
        np.asarray(bad)


@pytest.mark.parametrize("connected", [True, False])
def test_a_root_that_failed_is_tried_again_only_where_it_is_asked_for(connected: bool) -> None:
    tries = 0

    class Counted(ValueError):
        def __init__(self) -> None:
            nonlocal tries
            tries += 1

    def reference(x: np.ndarray) -> np.ndarray:
        raise Counted

    op = Op("fails", Kind.LIBRARY, reference)
    a = ours(np.arange(4.0))
    held = []
    for number in range(8):
        shared = a + number
        value = storage_io.read(shared)
        bad = alight.Array.of(pend(op, (value,), (), value.layout))
        held.append((shared, bad, bad * 2, shared - 1))
        if connected:
            np.testing.assert_array_equal(np.asarray(held[-1][3]), np.arange(4.0) + number - 1)
        else:
            with pytest.raises(Counted):
                np.asarray(held[-1][2])
    evaluate.evaluate_all()
    assert tries <= 2 * len(held)  # once as it was met, once more salvaged
    before = tries
    for _ in range(8):
        evaluate.evaluate_all()
        np.asarray(held[0][0] + 1)
    assert tries == before
    with pytest.raises(Counted):
        np.asarray(held[0][1])
    assert before < tries <= before + 2


def failing_by_number() -> tuple[alight.Array, list[int]]:
    """Return an Array whose evaluation fails with the number of the try, and the tries so far."""
    tries: list[int] = []

    def reference(x: np.ndarray) -> np.ndarray:
        tries.append(1)
        raise ValueError(f"try {len(tries)}")

    value = storage_io.read(ours(np.arange(4.0)) + 1)
    op = Op("fails", Kind.LIBRARY, reference)
    return alight.Array.of(pend(op, (value,), (), value.layout)), tries


def test_what_fails_is_not_done_again_for_another_way_to_its_memory() -> None:
    bad, tries = failing_by_number()
    with pytest.raises(ValueError):
        bad.to_numpy()
    once = len(tries)
    for ask in (np.asarray, np.array, lambda array: np.add(np.ones(4), array, out=np.ones(4))):
        tries.clear()
        with pytest.raises(ValueError, match=f"try {once}"):
            ask(bad)
        assert len(tries) == once


def test_of_a_buffer_that_was_asked_for_before_nothing_is_left() -> None:
    bad, tries = failing_by_number()
    with pytest.raises(ValueError):
        memoryview(bad)
    once = len(tries)
    tries.clear()
    with pytest.raises(ValueError, match=f"try {once}"):
        np.asarray(bad)
    assert len(tries) == once


def test_what_failed_before_a_buffer_keeps_nothing_and_is_raised_nowhere_else() -> None:
    class Local:
        pass

    def reference(x: np.ndarray) -> np.ndarray:
        if short:
            raise ValueError("short of something")
        return x

    def ask() -> weakref.ref[Local]:
        local = Local()
        with pytest.raises(ValueError):
            memoryview(bad)
        return weakref.ref(local)

    short = True
    value = storage_io.read(ours(np.arange(4.0)) + 1)
    op = Op("fails", Kind.LIBRARY, reference)
    bad = alight.Array.of(pend(op, (value,), (), value.layout))
    kept = ask()
    gc.collect()
    assert kept() is None
    short = False
    assert list(bad.__array__()) == [1.0, 2.0, 3.0, 4.0]
    gone = alight.Array.of(pend(op, (value,), (), value.layout))
    short = True
    with pytest.raises(ValueError):
        memoryview(gone)
    kept_array = weakref.ref(gone)
    del gone
    gc.collect()
    assert kept_array() is None


def test_a_root_that_failed_for_a_while_is_there_when_it_is_asked_for() -> None:
    short = True

    def reference(x: np.ndarray) -> np.ndarray:
        if short:
            raise OSError
        return x + 1

    op = Op("fails", Kind.LIBRARY, reference)
    value = storage_io.read(ours(np.arange(4.0)))
    asked, other = (alight.Array.of(pend(op, (value,), (), value.layout)) for _ in range(2))
    evaluate.evaluate_all()
    with pytest.raises(OSError):
        asked.tolist()
    short = False
    for array in (asked, other):  # what was raised, and what never was
        assert array.tolist() == [1.0, 2.0, 3.0, 4.0]
        assert array.storage.value.error is None  # it would hold what its traceback leads to


@pytest.mark.parametrize("mode", MODES)
def test_an_interrupt_leaves_a_graph_that_can_be_asked_again(
    mode: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupt a flush before every single step in turn: the second request always gives the
    answer."""
    real = execute.Execution._step
    for stop_at in range(12):
        with alight.policy(**{"floor": 0, **mode}):
            base = np.arange(24.0).reshape(4, 6)
            a = ours(base)
            b = np.sqrt(a) + 1
            a[1:3] = b[1:3] * 2
            c = a.sum(axis=0)
            a[0] = c
            d = a * b
            done = 0

            def step(self: object, *args: object, last: int = stop_at) -> None:
                nonlocal done
                done += 1
                if done == last + 1:
                    raise KeyboardInterrupt
                real(self, *args)  # type: ignore[arg-type]

            monkeypatch.setattr(execute.Execution, "_step", step)
            with contextlib.suppress(KeyboardInterrupt):
                np.asarray(d)
            monkeypatch.setattr(execute.Execution, "_step", real)
            x = base.copy()
            y = np.sqrt(x) + 1
            x[1:3] = y[1:3] * 2
            x[0] = x.sum(axis=0)
            np.testing.assert_allclose(np.asarray(d), x * y, rtol=1e-14)
            np.testing.assert_allclose(np.asarray(a), x, rtol=1e-14)


def test_a_real_interrupt_reaches_the_caller() -> None:
    result = python(
        """
        import os, signal, threading, numpy as np, alight
        from alight._src.run.execute import Execution
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell's `&` takes away
        a = alight.asarray(np.random.default_rng(1).random((500, 500)))
        b = a
        with alight.policy(floor=0):  # whatever floor was measured and stored by now
            for _ in range(40):
                b = np.matmul(b, a) / 250
        struck = threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGINT))
        step, steps = Execution._step, 0

        def counted(self, *given):
            global steps
            steps += 1
            if steps == 5:  # it comes while one of the next ones runs
                struck.start()
            elif steps == 20:
                struck.join()
            return step(self, *given)

        Execution._step = counted
        try:
            np.asarray(b)
            print("finished")
        except KeyboardInterrupt:
            print("interrupted", steps <= 20)
        c = a + 1
        print(bool((np.asarray(c) == np.asarray(a) + 1).all()))
        """
    )
    assert result.stdout.split() == ["interrupted", "True", "True"], result.stderr


def test_fork_leaves_both_processes_able_to_compute() -> None:
    result = python(
        """
        import os, sys, numpy as np, alight
        a = alight.asarray(np.arange(1000.0))
        before = a * 2
        pending = before + 1
        child = os.fork()
        if child == 0:
            ok = np.array_equal(np.asarray(pending), np.arange(1000.0) * 2 + 1)
            ok &= np.array_equal(np.asarray(a.sum() + pending), np.arange(1000.0) * 2 + 1 + 499500)
            os._exit(0 if ok else 3)
        status = os.waitpid(child, 0)[1]
        assert np.array_equal(np.asarray(pending), np.arange(1000.0) * 2 + 1)
        sys.exit(os.waitstatus_to_exitcode(status))
        """
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_no_lock_of_a_thread_that_does_not_exist_there_is_held_in_a_forked_child() -> None:
    result = python(
        """
        import os, sys, threading, warnings
        import alight, alight._src.codegen.llvm.compiled, alight._src.api.counter_rng
        import alight._src.run.kernels, alight._src.jit.purity, alight._src.base.uninterrupted
        warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside threads
        kinds = type(threading.Lock()), type(threading.RLock())
        # A fork takes these itself, so that no child is born with such work half done.
        waited_for = alight._src.run.kernels._making, alight._src.base.uninterrupted._working
        names = [
            (module, name)
            for path, module in sorted(sys.modules.items()) if path.startswith("alight")
            for name, item in vars(module).items()
            if isinstance(item, kinds) and not any(item is one for one in waited_for)
        ]
        assert len(names) >= 7, names
        held, over = threading.Event(), threading.Event()

        def hold():
            for lock in {id(getattr(*where)): getattr(*where) for where in names}.values():
                lock.acquire()
            held.set()
            over.wait()

        threading.Thread(target=hold).start()
        held.wait()
        child = os.fork()
        if child == 0:
            for module, name in names:
                if not getattr(module, name).acquire(timeout=0.1):
                    print(module.__name__, name, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        over.set()
        """
    )
    assert result.returncode == 0 and not result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("mode", MODES)
def test_threads_record_and_evaluate_side_by_side(mode: dict[str, object]) -> None:
    shared = ours(np.arange(1000.0))
    common = shared * 2 + 1
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            with alight.policy(**{"floor": 0, **mode}):
                rng = np.random.default_rng(seed)
                for _ in range(30):
                    x = rng.random(257)
                    a = ours(x)
                    b = (a * 2 + 1) - np.sqrt(a)
                    b[3:9] = a[:6] * seed
                    want = (x * 2 + 1) - np.sqrt(x)
                    want[3:9] = x[:6] * seed
                    np.testing.assert_array_equal(np.asarray(b), want)
                    np.testing.assert_array_equal(
                        np.asarray(common + seed), np.arange(1000.0) * 2 + 1 + seed
                    )
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


@pytest.mark.parametrize("what", ["allocate", "launch", "copy"])
def test_a_failing_device_hands_over_to_the_host(what: str) -> None:
    """Whatever fails on a device at whichever step: the answer is NumPy's and the report says
    so."""
    x = np.arange(1.0, 65.0).reshape(8, 8)
    expect = (np.sqrt(x) * 2 + x).sum(axis=0)
    backend = registry.backend_of(registry.device("sim:0"))
    for nth in range(1, 8):
        LOG.reset()
        with alight.policy(floor=0, force="sim:0"):
            a = ours(x)
            backend.fail(what, nth)  # type: ignore[attr-defined]
            b = np.sqrt(a) * 2 + a
            c = b.sum(axis=0)
            np.testing.assert_allclose(np.asarray(c), expect, rtol=1e-14)
            np.testing.assert_allclose(np.asarray(b), np.sqrt(x) * 2 + x, rtol=1e-14)
            backend._faults.clear()  # type: ignore[attr-defined]


def test_a_failed_launch_is_in_the_report() -> None:
    LOG.reset()
    backend = registry.backend_of(registry.device("sim:0"))
    with alight.policy(floor=0, force="sim:0"):
        a = ours(np.arange(6.0))
        backend.fail("launch", 1)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(np.asarray(a * 3), np.arange(6.0) * 3)
    assert [row.what for row in LOG.snapshot().fallbacks] == ["multiply on sim:0:generated"]


@pytest.mark.parametrize("mode", MODES)
def test_warnings_come_from_the_line_that_recorded(mode: dict[str, object]) -> None:
    with alight.policy(**{"floor": 0, **mode}):
        a = ours(np.array([0.0, 1.0, -1.0]))
        with collected() as caught:
            r = np.log(1 / a)
            np.asarray(r)
        with np.errstate(all="ignore"):
            quiet = 1 / a
        with collected() as nothing:
            np.asarray(np.where(a == 0, 0, quiet))
    told = [str(w.message) for w in caught]
    assert told == ["divide by zero encountered in divide", "invalid value encountered in log"]
    assert all(w.filename == __file__ for w in caught)
    assert not nothing


@pytest.mark.parametrize("mode", MODES)
def test_a_warning_made_an_error_is_raised_at_its_line(mode: dict[str, object]) -> None:
    with alight.policy(**{"floor": 0, **mode}), warnings.catch_warnings():
        a = ours(np.array([0.0, 1.0]))
        early = 3 / a
        warnings.simplefilter("error")
        doubled = a * 2
        with pytest.raises(RuntimeWarning, match="divide by zero encountered in divide"):
            1 / doubled + 1
        np.testing.assert_array_equal(np.asarray(doubled), [0, 2])
        np.testing.assert_array_equal(np.asarray(early), [np.inf, 3])  # recorded before


def test_errstate_raise_is_immediate() -> None:
    a = ours(np.array([0.0, 1.0]))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        1 / a


def test_a_loop_without_requests_is_flushed_and_its_plan_found_again() -> None:
    LOG.reset()
    x = np.linspace(0, 1, 500)
    a = ours(x)
    for _ in range(2400):
        a = a * 0.99 + 0.001
        x = x * 0.99 + 0.001
    np.testing.assert_array_equal(np.asarray(a), x)
    counts = LOG.snapshot().counts
    assert counts["cache_hits"] >= 5
    assert counts["cache_misses"] <= 4


def test_what_need_not_come_to_exist_is_not_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    a = ours(np.linspace(0, 1, 1000))
    evaluate.evaluate_all()
    monkeypatch.setattr(recording_limits, "most_bytes", 80_000)
    monkeypatch.setattr(evaluate.floor, "budget", 1_250)
    LOG.reset()
    b = a
    for _ in range(40):
        b = b * 0.99
    assert LOG.snapshot().counts["launches"] == 0

    def named(x: Any) -> Any:
        parts = [x * 0.99]
        for k in range(30):
            parts.append(np.sqrt(parts[-1] + k))
        return parts[-1] - parts[3]

    with alight.policy(floor=0, force="cpu:generated"):
        y = np.linspace(0, 1, 1000)
        np.testing.assert_array_equal(alight.jit(named)(y), named(y))
    assert LOG.snapshot().counts["launches"] == 1
    kept = [b + k for k in range(20)]  # these will exist
    assert LOG.snapshot().counts["launches"] > 1
    evaluate.evaluate_all()
    before = LOG.snapshot().counts["launches"]
    total = a.sum()
    for _ in range(40):  # so do those that only their sum keeps
        total = total + (ours(np.ones(1000)) * 2.0).sum()
    assert LOG.snapshot().counts["launches"] > before
    assert float(kept[3][0]) == 3.0 and float(total) == pytest.approx(80_500.0)


def test_temporaries_of_an_expression_are_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, z = (ours(np.full(8000, v, np.float32)) for v in (1.0, 2.0, 3.0))
    evaluate.evaluate_all()
    monkeypatch.setattr(recording_limits, "most_bytes", 80_000)  # two temporaries have 64
    monkeypatch.setattr(evaluate.floor, "budget", 1_250)
    LOG.reset()
    result = np.sqrt(x * x + y * y) * np.exp(-z) + np.sin(y) * np.float32(0.5)
    assert LOG.snapshot().counts["launches"] == 0
    np.asarray(result)
    assert LOG.snapshot().counts["launches"] == 1


def test_writes_are_in_place_when_nobody_reads_the_old_version() -> None:
    a = ours(np.zeros(10_000))
    np.asarray(a + 1)
    address = a.storage.value.data.address
    for i in range(20):
        a[i * 10 : i * 10 + 5] = i
        a[100:200] += 1
    alight.evaluate(a)
    assert a.storage.value.data.address == address
    reader = a + 0
    a[0] = -5
    assert np.asarray(reader)[0] == 0
    assert np.asarray(a)[0] == -5


def test_an_address_told_to_others_stays_the_arrays_own() -> None:
    class Holder:
        """What Pillow and its like do: ask for the address, keep the array and no export."""

        def __init__(self, array: Any) -> None:
            self.array = array
            self.__array_interface__ = array.__array_interface__

    a = alight.ones((4, 6))
    told = Holder(a[1:, ::2])
    shown = np.asarray(told)
    for turn in range(3):
        a += 1  # in the same memory, whoever else reads the old elements
        assert np.array_equal(shown, np.full((3, 3), 2.0 + turn)), turn
    shown[0, 0] = -1
    assert a[1, 0] == -1
    del shown, told
    gc.collect()
    assert a.__array_interface__["data"][0] == a.__array_interface__["data"][0]


def test_pillow_takes_an_array() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = (np.arange(30 * 20 * 3) % 251).astype(np.uint8).reshape(30, 20, 3)
    for given in (pixels, pixels[::-1, ::2]):
        ours = image.fromarray(alight.asarray(given))
        assert ours.tobytes() == image.fromarray(given).tobytes()


def test_packages_that_look_for_it_get_an_ndarray_and_not_element_by_element(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cbook = pytest.importorskip("matplotlib.cbook")
    monkeypatch.setattr(alight.Array, "__iter__", lambda self: pytest.fail("one by one"))
    a = alight.arange(12.0)
    (column,) = cbook._reshape_2D(a, "x")
    column[3] = -1
    assert a[3] == -1
    assert [c.tolist() for c in cbook._reshape_2D(a.reshape(6, 2), "x")] == [
        [0, 2, 4, 6, 8, 10],
        [1, -1, 5, 7, 9, 11],
    ]


def test_c_code_that_asks_finds_a_sequence() -> None:
    asked = ctypes.pythonapi.PySequence_Check
    for array in (np.ones(3), alight.ones(3), alight.ones((2, 3))[0]):
        assert asked(ctypes.py_object(array)) == 1, type(array)


class Foreign:
    """What leaves ufuncs to others."""

    __array_ufunc__ = None


class Before:
    """What wants to be asked first, and does nothing with numbers."""

    __array_priority__ = 2000.0


@pytest.mark.parametrize("other", [Foreign, Before, list, object, bool])
@pytest.mark.parametrize(
    "operation",
    [
        *(operator.concat, operator.iconcat, operator.add, operator.iadd, operator.sub),
        *(operator.mul, operator.matmul, operator.pow, divmod, operator.and_),
    ],
)
def test_an_operator_that_fails_fails_in_numpys_words(operation: Any, other: Any) -> None:
    def outcome(array: Any, turned: bool) -> Any:
        try:
            return operation(other(), array) if turned else operation(array, other())
        except (TypeError, ValueError) as error:
            return str(error).replace("numpy.ndarray", "alight.Array")

    for turned in (False, True):
        wanted, got = outcome(np.ones(3), turned), outcome(alight.ones(3), turned)
        if isinstance(wanted, str):
            assert got == wanted
        else:
            np.testing.assert_array_equal(np.asarray(got), wanted)


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix"])
def test_what_stands_before_ndarrays_stands_before_ours(kind: str) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    matrix = getattr(sparse, kind)(np.diag([1.0, 2.0, 3.0]))
    row = np.arange(1.0, 4.0)

    def dense(result: Any) -> Any:
        return np.asarray(result.todense() if sparse.issparse(result) else result)

    for operation in (operator.add, operator.sub, operator.mul, operator.matmul, operator.lt):
        for turned in (False, True):
            results = []
            for array in (row, alight.asarray(row)):
                results.append(operation(matrix, array) if turned else operation(array, matrix))
            assert sparse.issparse(results[0]) == sparse.issparse(results[1])
            np.testing.assert_array_equal(dense(results[1]), dense(results[0]))
    a = alight.asarray(row)
    a += matrix
    np.testing.assert_array_equal(np.asarray(a), np.asarray(row + matrix))


def test_exports_share_memory_both_ways() -> None:
    a = ours(np.arange(5.0))
    view = a[1:4]
    before = a * 10
    shared = np.asarray(a)
    shared[1] = 99
    assert float(view[0]) == 99
    view[1] = 7
    assert shared[2] == 7
    a += 1
    assert shared[0] == 1
    later = a + 1
    shared[0] = 1000
    np.testing.assert_array_equal(np.asarray(before), np.arange(5.0) * 10)
    assert np.asarray(later)[0] == 2
    capsule = np.from_dlpack(a)
    a[2] = -1
    assert capsule[2] == -1


def test_pickles_are_plain_ndarrays_and_copies_are_arrays() -> None:
    import copy

    a = ours(np.arange(6).reshape(2, 3)) + 1
    others = [pickle.loads(pickle.dumps(a)), *copy.deepcopy([a, a]), copy.copy(a)]
    assert [type(other) for other in others] == [np.ndarray, *[alight.Array] * 3]
    assert others[1] is others[2] and others[1] is not a
    a += 5
    for other in others:
        np.testing.assert_array_equal(other, np.arange(6).reshape(2, 3) + 1)


def test_a_read_only_home_only_costs_persistence(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    result = python(
        """
        import numpy as np, alight
        a = alight.asarray(np.arange(5.0))
        print(np.asarray(np.sqrt(a) + a).sum())
        """,
        ALIGHT_CACHE_DIR=str(blocker / "cache"),
        ALIGHT_FORCE="cpu:generated",
        HOME=str(blocker),
    )
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) == float((np.sqrt(np.arange(5.0)) + np.arange(5.0)).sum())


@pytest.mark.skipif(
    not hasattr(signal, "SIGKILL"), reason="POSIX only; a Windows user could add TerminateProcess"
)
def test_killed_processes_leave_a_cache_that_works(tmp_path: Path) -> None:
    program = """
        import numpy as np, alight
        a = alight.asarray(np.arange(5.0))
        for i in range(10_000):
            np.asarray(a * i + i)
        """
    environment = {**os.environ, "ALIGHT_CACHE_DIR": str(tmp_path), "ALIGHT_FLOOR_ALL": "0"}
    for seconds in (0.4, 0.8):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)], env=environment
        )
        time.sleep(seconds)
        process.kill()
        process.wait()
    result = python(
        "import numpy as np, alight; print(np.asarray(alight.asarray(np.ones(3)) + 1).sum())",
        ALIGHT_CACHE_DIR=str(tmp_path),
    )
    assert result.stdout.strip() == "6.0", result.stderr


def test_table_and_operators_agree() -> None:
    """Every operator of the core records an op of the table."""
    from alight._core import ArrayBase

    assert ArrayBase.operators
    assert all(OPS[op.name] is op for op in ArrayBase.operators.values())


@pytest.mark.parametrize("mode", MODES)
def test_bytes_that_rewriting_gave_another_reader_are_not_written_over(
    mode: dict[str, object],
) -> None:
    """`-(-a)` is `a` as it was: what was written into `a` since then must not show."""

    def program(a: object) -> list[object]:
        d = -a  # type: ignore[operator]
        a[:, 3] = a[:, 4]  # type: ignore[index]
        e = -d
        e[8:10] = a[8:10] * 2.0  # type: ignore[index]
        return [a, d, e]

    def twice(a: object) -> list[object]:
        b = a + a * 0.5  # type: ignore[operator]
        a[:, 3] = b[:, 4]  # type: ignore[index]
        return [b, *program(a)]

    with alight.policy(**{"floor": 0, **mode}):
        x = np.arange(600.0).reshape(20, 30)
        for got, want in zip(twice(ours(x)), twice(x.copy()), strict=True):
            np.testing.assert_array_equal(np.asarray(got), want)


def test_a_gap_that_raises_says_where_it_was_recorded() -> None:
    a = ours(np.arange(4.0)) + 0
    with alight.policy(force="cpu:generated", floor=0, on_gap="raise"):
        b = np.sort(a) * 2
        line = sys._getframe().f_lineno - 1
        with pytest.raises(UnsupportedOnDevice) as caught:
            np.asarray(b)
    assert caught.value.__notes__ == [f"recorded at {__file__}:{line}"]


def test_a_write_in_each_request_is_in_place_too(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[object] = []
    monkeypatch.setattr(residency, "exact_copy", lambda *args: copies.append(args))
    a = ours(np.zeros(10_000))
    alight.evaluate(a + 1)
    address = a.storage.value.data.address
    for number in range(5):
        a[1:5] = number
        alight.evaluate(a)
        a[1:5] = a[2:6] + 1
        alight.evaluate(a)
    assert a.storage.value.data.address == address and not copies


def windows_of_one(a: Any, b: Any) -> None:
    a[1:] += 1
    a[:-1] *= 0.5


def windows_of_two(a: Any, b: Any) -> None:
    a[1:] = a[:-1] + 1
    b[:-1] = a[1:] * 2


def a_window_and_all(a: Any, b: Any) -> None:
    a[1:] += 1
    b += a


@pytest.mark.parametrize("update", [windows_of_one, windows_of_two, a_window_and_all])
@pytest.mark.parametrize("mode", [{}, {"force": "cpu:generated"}, {"force": "numpy"}])
def test_updates_of_windows_in_a_loop_keep_few_versions(
    update: Callable[[Any, Any], None], mode: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = []
    copy = residency.exact_copy
    monkeypatch.setattr(residency, "exact_copy", lambda *given: copies.append(1) or copy(*given))
    a, b = np.arange(1 << 16, dtype=float), np.ones(1 << 16)
    with alight.policy(floor=0, **mode):  # type: ignore[arg-type]
        x, y = ours(a), ours(b)
        alight.evaluate(x + 0, y + 0)
        gc.collect()
        _core.keep_bytes(0)
        _core.keep_bytes(1 << 28)
        for _ in range(20):
            update(x, y)
            update(a, b)
        alight.evaluate(x, y)
        # What is not alive any more was kept: the most that was there at once beside the two.
        assert _core.kept_bytes() <= 4 * a.nbytes and len(copies) <= 2
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.asarray(y), b)
    HostBackend()


def written(a: alight.Array) -> None:
    """Write slices in every way that a device must tell apart."""
    b = a * 2
    alight.evaluate(a, b)
    for number in range(4):
        a[number:60:2] = b[: len(range(number, 60, 2))] + number
        alight.evaluate(a)
        a[number] = number
        alight.evaluate(a)
        a[1:10] = a[2:11]  # its own elements
        alight.evaluate(a)
        a[::-3] = a[::3] * 2
        kept = a + 0  # reads the old version after the next write was recorded
        a[5:7] = -1
        alight.evaluate(a, kept)
        b = b + kept


def test_a_device_writes_where_the_array_is() -> None:
    x = np.arange(64.0)
    with alight.policy(floor=0, force="sim:0"):
        a = ours(x) + 0
        alight.evaluate(a)
        LOG.reset()
        written(a)
        assert a.storage.value.data.array is None  # it never came to the host
        counts = LOG.snapshot().counts
        assert (counts["downloads"], counts["fallbacks"]) == (0, 0)
        assert counts["upload_bytes"] < 30 * 8  # scalars
        n = x + 0
        written(n)  # type: ignore[arg-type]
        np.testing.assert_array_equal(np.asarray(a), n)


def test_a_host_copy_from_before_a_write_on_a_device_is_not_read_after_it() -> None:
    with alight.policy(floor=0, force="sim:0"):
        a = ours(np.arange(64.0)) + 0
        assert evaluate.host_array(a.storage.value)[3] == 3
        assert a.storage.value.data.array is not None
        a[2:5] = a[10:13] * 2
        old = a * 1
        alight.evaluate(a)
        assert a.storage.value.data.array is None
        assert [float(a[i]) for i in (1, 2, 3, 4, 5)] == [1, 20, 22, 24, 5]
        assert float(old[3]) == 22


@pytest.mark.parametrize("what", ["allocate", "launch", "copy"])
def test_a_write_that_a_device_fails_is_done_on_the_host(what: str) -> None:
    backend = registry.backend_of(registry.device("sim:0"))
    for nth in range(1, 5):
        with alight.policy(floor=0, force="sim:0"):
            a = ours(np.arange(64.0)) + 0
            b = a * 2
            alight.evaluate(a, b)
            kept = a + 0
            backend.fail(what, nth)  # type: ignore[attr-defined]
            a[2:9] = b[3:10]
            alight.evaluate(a, kept)
            backend._faults.clear()  # type: ignore[attr-defined]
            n = np.arange(64.0)
            n[2:9] = n[3:10] * 2
            np.testing.assert_array_equal(np.asarray(a), n)
            np.testing.assert_array_equal(np.asarray(kept), np.arange(64.0))


def test_equal_windows_of_one_memory_are_one_input() -> None:
    x = ours(np.arange(100.0))
    root = x[1:] * x[1:] + x[1:] - x[:-1]
    prepared = evaluate.prepare((storage_io.read(root),))
    assert [layout.shape for layout in prepared.graph.inputs] == [(99,), (99,)]
    np.testing.assert_array_equal(np.asarray(root), np.arange(1.0, 100) ** 2 + 1)

    @alight.jit
    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a * b

    plain = np.arange(100.0)
    for pair in ((1, 1), (1, 0), (1, 1), (0, 1)):
        given = [slice(start, start + 99) for start in pair]
        expected = plain[given[0]] * plain[given[1]]
        for array in (plain, x):
            np.testing.assert_array_equal(product(array[given[0]], array[given[1]]), expected)


def sweep(a: np.ndarray, b: np.ndarray) -> None:
    b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[:-2, 1:-1] + a[2:, 1:-1])


def turned(a: np.ndarray, b: np.ndarray) -> None:
    b[::-2, 3:] = a[::2, 3:] * a[::2, 3:] + 1.0


def crossed(a: np.ndarray, b: np.ndarray) -> None:
    b.T[:, 1:] = a[:, 1:] - a[:, :-1]


def shifted(a: np.ndarray, b: np.ndarray) -> None:
    b[1:] = b[:-1] * 2.0 + a[1:]


def doubled(a: np.ndarray, b: np.ndarray) -> None:
    b[1:-1] *= 2.0
    b[:, 2:] += a[:, 2:]


def negated(a: np.ndarray, b: np.ndarray) -> None:
    b[1:] = -b[1:] * a[1:]


def own_columns(a: np.ndarray, b: np.ndarray) -> None:
    b[:, :] += b.T


def two_ops(a: np.ndarray, b: np.ndarray) -> None:
    b[1:] = b[1:] * 2.0 + a[1:]


def twice(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    made = a[1:] * 3.0
    b[1:] = made
    return made


@pytest.mark.parametrize(
    ("function", "straight"),
    [
        *((sweep, True), (turned, True), (crossed, True), (shifted, False), (twice, False)),
        *((doubled, True), (negated, True), (own_columns, False), (two_ops, False)),
    ],
)
def test_kernels_write_straight_into_windows(
    function: Callable[..., Any], straight: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = []
    launch = execute.Execution._launch_into
    monkeypatch.setattr(
        execute.Execution, "_launch_into", lambda *given: times.append(1) or launch(*given)
    )
    jitted = alight.jit(function)
    generator = np.random.default_rng(4)
    # where warnings are errors, or belong to a block, nothing is written early
    with collected() as caught, alight.policy(floor=0, force="cpu:generated"):
        for _ in range(5):
            a, b = generator.random((2, 40, 40))
            wanted = b.copy()
            expected, actual = function(a, wanted), jitted(a, b)
            np.testing.assert_array_equal(b, wanted)
            assert expected is None or np.array_equal(expected, actual)
        x, y = ours(a), ours(b)
        before = y + 0.0
        for _ in range(3):
            function(a, wanted)
            kept = function(x, y)  # a result that is needed has memory of its own
            np.testing.assert_array_equal(np.asarray(y), wanted)
            del kept
        np.testing.assert_array_equal(np.asarray(before), b)
        # memory that two arguments share
        whole = generator.random((41, 40))
        wanted = whole.copy()
        function(wanted[1:], wanted[:-1])
        jitted(whole[1:], whole[:-1])
        np.testing.assert_array_equal(whole, wanted)
    assert bool(times) is straight and not caught


def test_what_is_written_straight_warns_before_it_writes_where_that_is_an_error() -> None:
    @alight.jit
    def inverse(a: np.ndarray, b: np.ndarray) -> None:
        b[1:] = 1.0 / a[1:]

    a, b = np.ones(50), np.zeros(51)[:50]
    with collected() as caught, alight.policy(floor=0, force="cpu:generated"):
        for _ in range(3):
            inverse(a, b)
        assert not caught
        a[7] = 0.0
        inverse(a, b)
        assert ["divide by zero" in str(found.message) for found in caught] == [True]
        assert b[7] == np.inf and b[8] == 1.0
        b[:] = 3.0
        with warnings.catch_warnings(), pytest.raises(RuntimeWarning, match="divide by zero"):
            warnings.simplefilter("error")
            inverse(a, b)
        assert np.array_equal(b, np.full(50, 3.0))


def test_a_window_replaced_by_what_is_made_of_it_warns_as_numpy_does() -> None:
    def update(a: Any, b: Any) -> None:
        b[1:] /= a[1:]
        b[:-1] *= 1e300

    x, y = np.ones(3000), np.full(3000, 2.0)
    for place, number in ((), None), (7, 0.0), (8, 1e-9), (9, np.inf):
        x[place] = 1.0 if number is None else number
        y[:] = 2.0
        with alight.policy(floor=0, force="cpu:generated"):
            a, b = ours(x), ours(y)
            alight.evaluate(a + 0, b + 0)
            with collected() as caught:
                update(a, b)
                alight.evaluate(b)
        with warnings.catch_warnings(record=True) as expected:
            warnings.simplefilter("always")
            update(x, y)
        assert [str(w.message) for w in caught] == [str(w.message) for w in expected]
        np.testing.assert_array_equal(np.asarray(b), y)


def test_a_start_that_is_no_number_is_planned_once() -> None:
    a = ours(np.arange(20.0))
    seen = []
    for number in (float("nan"), np.float64("nan"), -float("nan")):
        np.testing.assert_array_equal(np.asarray(np.max(a, initial=number)), np.nan)
        seen.append(LOG.snapshot().counts["cache_misses"])
    assert seen[0] == seen[1] == seen[2]


def test_small_arrays_that_make_a_large_one_are_recorded() -> None:
    x, y = np.arange(200.0), np.arange(200.0) + 1

    @alight.jit
    def apart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.sqrt((x[:, None] - y[None, :]) ** 2)

    with alight.policy(floor=10_000, force="cpu:generated"):
        before = LOG.snapshot()
        result = apart(x, y)
        operations = [record.decision.operation for record in LOG.snapshot().since(before).records]
    assert operations == ["subtract+square+sqrt"]
    np.testing.assert_array_equal(result, np.abs(np.subtract.outer(x, y)))

    ours, others = alight.asarray(x)[:, None], alight.asarray(y)[None, :]
    for call in (lambda: ours - others, lambda: np.subtract(ours, others)):
        with alight.policy(floor=10_000, force="cpu:generated"):
            before = LOG.snapshot()
            result = np.asarray(np.sqrt(call() ** 2))
            ran = [record.decision.operation for record in LOG.snapshot().since(before).records]
        assert ran == ["subtract+square+sqrt"]
        np.testing.assert_array_equal(result, np.abs(np.subtract.outer(x, y)))


@pytest.mark.parametrize("says", ["text", "", True, False, [False, True]])
def test_what_an_item_says_of_equality_tells_whether_it_is_in(says: Any) -> None:
    class Item:
        __array_ufunc__ = None
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> Any:
            return says

    array = np.arange(3.0)
    assert (Item() in alight.asarray(array)) is (Item() in array)


class Handling:
    """What handles ufuncs of ndarrays and has no operators."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [np.ones(3) if isinstance(item, Handling) else item for item in inputs]
        if any(type(item) is not np.ndarray for item in plain):
            return NotImplemented
        return "handled", getattr(ufunc, method)(*plain, **kwargs).tolist()


class Reflecting(Handling, np.lib.mixins.NDArrayOperatorsMixin):
    """What has the operators, too."""


class Subclass(np.ndarray):
    """An ndarray that handles ufuncs itself."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [np.asarray(item) for item in inputs]
        return "its own", getattr(ufunc, method)(*plain, **kwargs).tolist()


@pytest.mark.parametrize(
    "foreign",
    [
        Handling(),
        Reflecting(),
        np.ones(3).view(Subclass),
        np.matrix(np.ones((3, 3))),
        np.ma.masked_array(np.ones(3), mask=[False, True, False]),
    ],
    ids=lambda item: type(item).__name__,
)
@pytest.mark.parametrize("least", [0, 100])
def test_types_that_handle_ufuncs_act_beside_arrays_as_beside_ndarrays(
    foreign: Any, least: int
) -> None:
    def ended(call: Callable[[], Any]) -> Any:
        try:
            result = call()
        except (TypeError, ValueError) as error:
            return type(error), str(error)
        return type(result), repr(result)

    operations = (operator.add, operator.mul, operator.pow, operator.lt, np.add, np.hypot)
    with alight.policy(floor=least):
        for operation in operations:
            array, plain = ours(np.arange(3.0)), np.arange(3.0)
            for got, want in (
                (partial(operation, array, foreign), partial(operation, plain, foreign)),
                (partial(operation, foreign, array), partial(operation, foreign, plain)),
            ):
                assert ended(got) == ended(want), (operation, want)


def test_only_arrays_are_evaluated() -> None:
    """What would be passed over in silence is not computed when somebody counts on it."""
    x = alight.arange(300_000) * 2
    for given in (3, None, [x], {"x": x}, "x", lambda: x):
        with pytest.raises(TypeError, match=r"alight\.evaluate takes arrays, not .*Fix: "):
            alight.evaluate(x, given)
    for wait in ("maybe", None, 1):
        with pytest.raises(ConfigError, match=r"argument wait: .* is not True or False\. Fix: "):
            alight.evaluate(x, wait=wait)  # type: ignore[arg-type]
    assert x.storage.value.op is not None
    alight.evaluate(x, np.arange(3), np.float64(2.0), wait=True)  # as under `alight run`
    assert x.storage.value.op is None
    alight.evaluate()


UPDATED = """
import resource, sys
import alight as np
from alight import policy
with policy(force="cpu:generated", floor=0):
    x = np.ones(900_000)
    def turns(count):
        global x
        for _ in range(count):
            x += np.roll(x, 1)
            x *= 0.5
        return float(x[0])
    turns(4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    turns(40)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such figures there")
def test_versions_that_were_updated_as_a_whole_are_let_go() -> None:
    done = subprocess.run([sys.executable, "-c", UPDATED], capture_output=True, text=True)
    assert int(done.stdout) < 8 * 7, (done.stdout, done.stderr)  # arrays of 7 MB
