"""What signal handlers raise reaches the program once, whatever is under way, and all goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.base.failures import failures, from_signal, ignoring_failures
from alight._src.base.uninterrupted import uninterrupted
from alight._src.log.decisions import LOG
from alight._src.run.execute import Execution

TESTS = Path(__file__).parents[1]
needs_alarm = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")


class Timeout(Exception):
    pass


class Handler:
    """Callables as programs give them to ``signal.signal``."""

    def method(self, number: int, frame: Any) -> None:
        raise Timeout

    def __call__(self, *given: Any) -> None:
        self.deeper()

    def deeper(self) -> None:
        raise Timeout


def by_default(number: int, frame: Any, *, error: type[Exception] = ValueError) -> None:
    raise error


HANDLERS = [Handler().method, Handler(), by_default]


def raised(handler: Any, work: Any) -> BaseException:
    before = signal.signal(signal.SIGTERM, handler)
    try:
        work()
    except Exception as error:
        return error
    finally:
        signal.signal(signal.SIGTERM, before)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_handler_raises_is_told_from_what_fails(handler: Any) -> None:
    assert from_signal(raised(handler, lambda: signal.raise_signal(signal.SIGTERM)))

    def fails(number: int = 15, frame: Any = None) -> None:
        raise Timeout

    assert not from_signal(raised(handler, fails))
    assert not from_signal(raised(handler, lambda: fails(15, sys._getframe(1))))

    def says_why() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except Exception as error:
            raise RuntimeError("a library puts it so") from error

    assert from_signal(raised(handler, says_why))


def test_an_interrupt_is_not_caught_where_failures_are() -> None:
    def caught() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except failures():
            pytest.fail("it is the program's")

    assert type(raised(HANDLERS[0], caught)) is Timeout

    def ignored() -> None:
        with ignoring_failures():
            signal.raise_signal(signal.SIGTERM)

    assert type(raised(HANDLERS[0], ignored)) is Timeout
    with ignoring_failures():
        raise ValueError("of a device")
    try:
        raise ValueError("of a device")
    except failures() as error:
        assert str(error) == "of a device"


@pytest.mark.parametrize("call", [lambda x: x.sum(out=alight.zeros((), "f4")), lambda x: x - x])
@pytest.mark.parametrize("name", ["shape", "ndim", "size"])
def test_an_interrupt_is_not_caught_by_numpy_where_it_asks_an_array(
    name: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(AttributeError):
        pass

    def gone(number: int, frame: Any) -> None:
        raise Gone

    given: Any = vars(alight.Array)[name]
    asked = 0

    def interrupted(array: Any) -> Any:
        nonlocal asked
        asked += 1
        signal.raise_signal(signal.SIGTERM)
        return given.__get__(array)

    with alight.policy(floor=0, force="cpu:numpy"):
        x = alight.arange(3000.0)
        monkeypatch.setattr(alight.Array, name, property(interrupted))

        def work() -> None:
            call(x)
            if not asked:
                raise Gone

        assert type(raised(gone, work)) is Gone


def test_work_apart_is_not_interrupted() -> None:
    begun, go = threading.Event(), threading.Event()
    told: list[str] = []

    def work() -> str:
        begun.set()
        go.wait()
        told.append(threading.current_thread().name)
        return "done"

    def interrupted() -> None:
        threading.Thread(
            target=lambda: (begun.wait(), time.sleep(0.01), os.kill(os.getpid(), signal.SIGTERM))
        ).start()
        uninterrupted(work)

    assert type(raised(HANDLERS[0], interrupted)) is Timeout
    go.set()
    assert uninterrupted(lambda: "next") == "next"  # which waits for the one before
    assert len(told) == 1 and told != [threading.main_thread().name]
    with pytest.raises(ZeroDivisionError):
        uninterrupted(lambda: 1 // 0)


@pytest.mark.parametrize("force", ["cpu:generated", "cpu:numpy", "sim:0"])
def test_an_interrupt_is_no_fallback(force: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Execution._launch
    times = 0

    def interrupted(self: Execution, launch: Any) -> None:
        nonlocal times
        times += 1
        if times == 1:
            signal.raise_signal(signal.SIGTERM)
        step(self, launch)

    monkeypatch.setattr(Execution, "_launch", interrupted)
    x = np.arange(1000.0)
    with alight.policy(force=force, floor=0):
        y = alight.sqrt(alight.asarray(x) * 2.0 + 1.0)
        LOG.reset()
        assert type(raised(HANDLERS[0], lambda: alight.evaluate(y))) is Timeout
        assert not LOG.snapshot().counts.get("fallbacks", 0)
        np.testing.assert_array_equal(np.asarray(y), np.sqrt(x * 2.0 + 1.0))


@pytest.mark.parametrize("end", [True, False])
def test_what_was_written_in_place_is_not_written_again(
    end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = Execution._launch_into
    into = 0

    def interrupted(self: Execution, *given: Any) -> None:
        nonlocal into
        into += 1
        if end:
            launch(self, *given)
        signal.raise_signal(signal.SIGTERM)

    x = np.arange(100_000.0)
    with alight.policy(force="cpu:generated", floor=0):
        ours = alight.asarray(x)
        for _ in range(3):  # the kernel is there from now on
            ours[10:90_000] += 1.0
            alight.evaluate(ours)
        x[10:90_000] += 3.0
        monkeypatch.setattr(Execution, "_launch_into", interrupted)
        ours[10:90_000] += 1.0
        assert type(raised(HANDLERS[0], lambda: alight.evaluate(ours))) is Timeout
        assert into == 1
        monkeypatch.undo()
        x[10:90_000] += 1.0
        np.testing.assert_array_equal(np.asarray(ours), x)


@needs_alarm
@pytest.mark.parametrize("kind", ["signal", "keyboard"])
@pytest.mark.parametrize(
    ("door", "mode"),
    [("namespace", "floor0"), ("namespace", "sim"), ("jit", "floor0"), ("numpy", "floor0")],
)
def test_each_reaches_the_program_once(door: str, mode: str, kind: str) -> None:
    run = ["-m", "alight", "run"] if door == "numpy" else []
    ran = subprocess.run(
        [sys.executable, *run, "-m", "fuzzing.interrupts", door, mode, kind, "40"],
        capture_output=True,
        text=True,
        cwd=TESTS,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
