"""What ends a jitted call leaves the arguments as the body had them at some time, never with a
later write and without an earlier one: at first calls and in replays, with what NumPy's would raise
and with what comes from outside (interrupts, no memory)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.log.decisions import LOG
from alight._src.record import argument_memory
from alight._src.run import execute

BODIES = {
    "whole and in part": ["a[...] = a + 1", "b[...] = b * a", "c[1:] = b[:-1] + a[1:]"],
    "through what is sorted": [
        *("b[...] = np.sort(a)", "a[...] = a * 2 + 1", "a[2:] = c[2:]", "c[...] = b + a"),
    ],
    "in place": ["a += 1", "a *= b", "b -= a", "c += np.sort(b)", "a[::2] = c[::2]"],
    "masked": ["a[b > 0.5] = 3", "b[a > 2] = 1", "np.add(a, b, out=c)", "c[c > 1] = 0"],
    "swapped": ["t = a.copy()", "a[...] = b", "b[...] = t", "c[...] = np.cumsum(a)"],
    "one of the other": [
        *("b[3:] = a[3:] * 2", "a[:4] = b[2:6]", "b[:2] = np.sort(a)[:2]", "a[0] = 5"),
        *("c[...] = a * b", "c[1] = 7"),
    ],
    "one after the other": ["a[1:] = a[:-1] * 2", "a[0] = 7", "b[1:] = np.sort(a)[1:]", "c[0] = 1"],
    "reversed": ["a[::-1] = a", "c[2:] = a[2:] + b[:-2]", "b[:] = c[::-1]"],
    "rows": ["x = a.reshape(5, 10)", "x[1:] += x[:-1]", "b[:] = np.cumsum(x)", "x[0] = 0"],
    "one alone": ["a[1:] = np.sort(a)[1:]", "a[:-1] += a[1:]", "a[0] = np.sum(a * b)", "a *= 2"],
}
MODES = ["cpu:numpy", "cpu:generated", "sim:0"]
Arguments = list[Any]


def made(body: list[str]) -> Any:
    names: dict[str, Any] = {"np": np}
    exec("def f(a, b, c):\n" + "\n".join(f"    {line}" for line in body), names)
    return names["f"]


def arguments() -> Arguments:
    return list(np.random.default_rng(0).random((3, 50)))


def states(body: list[str]) -> list[Arguments]:
    """Return the arguments before the body's first statement and after each."""
    names = dict(zip("abc", arguments(), strict=True), np=np)
    found = [arguments()]
    for line in body:
        exec(line, names)
        found.append([names[name].copy() for name in "abc"])
    return found


def time_of(args: Arguments, times: list[Arguments]) -> int | None:
    """Return after which statement the arguments were as they are."""
    for number, then in enumerate(times):
        if all(np.allclose(a, b, rtol=1e-12) for a, b in zip(args, then, strict=True)):
            return number
    return None


@contextmanager
def ending(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> Iterator[Any]:
    """Have a step of what is run raise an error; yield how many there were."""
    steps: list[Any] = []
    step = execute.Execution._step

    def ended(self: Any, item: Any, dead: Any) -> None:
        steps.append(item)
        if len(steps) == number + 1:
            raise error
        step(self, item, dead)

    with monkeypatch.context() as patch:
        patch.setattr(execute.Execution, "_step", ended)
        yield steps


def calls(jitted: Any, number: int) -> None:
    for _ in range(number):
        jitted(*arguments())


@pytest.mark.parametrize("before", [0, 12], ids=["first call", "replay"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BODIES)
def test_what_ends_a_call_leaves_what_was_written_by_some_time(
    monkeypatch: pytest.MonkeyPatch, name: str, mode: str, before: int
) -> None:
    body = BODIES[name]
    times = states(body)
    ended = 0
    with alight.policy(force=mode, floor=0, devices=["cpu", "sim:0"]):
        for kind in (KeyboardInterrupt, MemoryError):
            number, count = 0, 1
            while number < count:
                jitted = alight.jit(made(body))
                calls(jitted, before)
                args, came = arguments(), None
                with ending(monkeypatch, number, kind("from outside")) as steps:
                    try:
                        jitted(*args)
                    except (KeyboardInterrupt, MemoryError) as error:
                        came = error
                when = time_of(args, times)
                assert when is not None, f"{kind.__name__} at step {number} of {body}"
                assert came is not None or when == len(body)
                ended += came is not None
                number, count = number + 1, len(steps)
                args = arguments()
                jitted(*args)  # nothing is left of it
                assert time_of(args, times) == len(body)
    assert ended


@pytest.mark.parametrize("mode", MODES)
def test_no_copy_comes_between_two_others_of_the_last_step(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    body = BODIES["through what is sorted"]
    times = states(body)
    with alight.policy(force=mode, floor=0, devices=["cpu", "sim:0"]):
        jitted = alight.jit(made(body))
        calls(jitted, 12)
        lasting = argument_memory._lasting

        def ended(value: Any) -> Any:
            lasting(value)
            raise KeyboardInterrupt

        args = arguments()
        with monkeypatch.context() as patch:
            patch.setattr(argument_memory, "_lasting", ended)
            with pytest.raises(KeyboardInterrupt):
                jitted(*args)
    assert time_of(args, times) is not None


def test_a_replay_without_memory_is_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was written: NumPy has the call, and what it raises is where the body raises it."""
    body = BODIES["swapped"]
    before = LOG.snapshot()
    with alight.policy(force="cpu:numpy", floor=0):
        jitted = alight.jit(made(body))
        calls(jitted, 12)
        args = arguments()
        with ending(monkeypatch, 0, MemoryError("no room")):
            jitted(*args)
    assert time_of(args, states(body)) == len(body)
    (told,) = [f for f in LOG.snapshot().since(before).fallbacks if "no room" in f.reason]
    assert told.what == "jit f"


def raising(body: Callable[..., Any], *args: Any) -> tuple[str, Any]:
    try:
        body(*args)
    except (ValueError, RuntimeWarning, FloatingPointError) as error:
        return repr(error), args
    return "", args


def powers(a: Any, b: Any, e: Any) -> Any:
    a[0] = 1
    c = np.power(b, e)
    a[1] = 2
    return c


def quotients(a: Any, b: Any, e: Any) -> Any:
    a[0] = 1
    c = b // e
    a[1:] = c[1:]
    return c


@pytest.mark.parametrize("mode", [*MODES[:2], None])
@pytest.mark.parametrize("function", [powers, quotients])
@pytest.mark.parametrize("told", ["default", "error", "raise"])
def test_what_an_operation_raises_comes_after_what_precedes_it(
    function: Any, told: str, mode: str | None
) -> None:
    policy: dict[str, Any] = {} if mode is None else {"force": mode, "floor": 0}
    jitted: Any = alight.jit(function)
    for number in range(12):
        a, b, e = np.zeros(999, int), np.arange(999) + 1, np.full(999, 2)
        if number in (0, 5, 10):
            e[7] = -1 if function is powers else 0
        plain = a.copy(), b.copy(), e.copy()
        with warnings.catch_warnings(), np.errstate(all="raise" if told == "raise" else "warn"):
            warnings.simplefilter("error" if told == "error" and number else "ignore")
            want = raising(function, *plain)
            with alight.policy(**policy):
                got = raising(jitted, a, b, e)
        assert got[0] == want[0]
        for x, y in zip(got[1], want[1], strict=True):
            assert np.array_equal(x, y), number
