"""What runs do with memory is followed: right ones pass, and what breaks one is refused with the
step named, whatever the results are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.base.cache_registry import Cache, forget
from alight._src.config import loading
from alight._src.plan.plan import WriteStep
from alight._src.record.argument_memory import Lease, bring_home
from alight._src.run import (
    checked_execution,
    evaluate,
    execute,
    prepared_step,
    residency,
    streaming,
    written_steps,
)  # fmt: skip
from alight._src.run.checked_execution import CheckedExecution
from alight.backends import registry
from alight.backends.base import Operand
from alight.errors import PlanError

Array = np.ndarray[Any, Any]
SIM = {"floor": 0, "force": "sim:0"}
HOST = {"floor": 0, "force": "cpu:generated"}


@pytest.fixture(autouse=True)
def _followed() -> Iterator[None]:
    """Have plans be made, and followed, anew."""
    forget(Cache.PLANS)
    yield
    forget(Cache.PLANS)


def plane(seed: int = 0) -> Any:
    return alight.asarray(np.random.default_rng(seed).random((60, 50)))


def sim() -> Any:
    return registry.backend_of(registry.device("sim:0"))


def steps(x: Any) -> Any:
    """Return what fuses, views, writes in place and sums give."""
    y = x * 2 + 1
    y[1:-1] = y[:-2] + y[2:]
    y[::7] = 0
    z = y.T
    z[3] *= x[0, :1]
    return alight.concatenate([z.sum(axis=0), y[:, 3]])


def by_numpy(x: Array) -> Array:
    y = x * 2 + 1
    y[1:-1] = y[:-2] + y[2:]
    y[::7] = 0
    z = y.T
    z[3] *= x[0, :1]
    return np.concatenate([z.sum(axis=0), y[:, 3]])


@pytest.mark.parametrize("where", [{}, HOST, SIM, {"floor": 0, "force": "numpy"}])
def test_runs_that_are_right_pass(where: dict[str, Any]) -> None:
    before = dict(checked_execution.counts)
    with alight.policy(**where):
        for seed in range(3):
            x = plane(seed)
            expected = by_numpy(np.asarray(x))
            np.testing.assert_allclose(np.asarray(steps(x)), expected, rtol=1e-12)
    if where:
        assert checked_execution.counts["runs"] > before["runs"] + 2
        assert checked_execution.counts["plans"] > before["plans"]


def test_nothing_is_followed_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loading.config()
    monkeypatch.setattr(loading, "_config", loading.Config(settings.policy))
    before = dict(checked_execution.counts)
    with alight.policy(**HOST):
        np.asarray(plane() * 3 - 1)
        assert execute.runner is execute.Execution
    assert checked_execution.counts == before
    monkeypatch.setattr(loading, "_config", loading.Config(settings.policy, check=True))
    with alight.policy(**HOST):
        np.asarray(plane() * 3 / 2)
        assert execute.runner is CheckedExecution


def refused(match: str, where: dict[str, Any], call: Any) -> PlanError:
    with alight.policy(**where), pytest.raises(PlanError, match=match) as caught:
        call()
    assert "Fix: " in str(caught.value)
    return caught.value


def test_bytes_that_others_hold_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that takes the memory of a version which somebody else still has."""
    monkeypatch.setattr(written_steps, "sole", lambda *_: True)

    def call() -> None:
        x = plane()
        before = x.storage.value
        x[3] = 0
        alight.evaluate(x)
        del before

    error = refused("wants %0 in memory given, whose bytes 1200…1600 hold", HOST, call)
    assert (error.step, error.buffer, error.value) == ("at the end", "memory given", 0)


class Dropping:
    """A backend that leaves out what is copied to the device, of which that knows nothing."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def submit(self, where: Any, queue: int, commands: Any, wait: Any = ()) -> Any:
        for copy in commands:
            if copy.target_space != "host":
                copy.target.data.raw[:] = 0
                copy.target.writer = ((where.id, queue), 0)
        return self.backend.submit(where, queue, (), wait)


def test_a_copy_that_is_dropped_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def call() -> None:
        x = plane()
        alight.evaluate(x * 2)
        with monkeypatch.context() as patch:
            patch.setattr(residency, "backend_of", lambda where: Dropping(sim()))
            alight.evaluate(plane(1) + 1)

    error = refused("in no buffer|nothing was written", SIM, call)
    assert error.step.startswith("step 0") and "sim:0" in error.step


def test_an_operand_at_another_offset_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(buffer: Any, offset: int, layout: Any) -> Operand:
        return Operand(buffer, offset + 8 * (layout.shape == (10, 50)), layout)

    monkeypatch.setattr(prepared_step, "Operand", moved)

    def call() -> None:
        x = plane()
        alight.evaluate(x + 0)
        np.asarray(x[:10] * 2)

    error = refused("-8 bytes on", SIM, call)
    assert error.step.startswith("step") and isinstance(error.value, int)


def test_a_stale_copy_on_a_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host writes, and the device's copy stays."""
    monkeypatch.setattr(residency, "only_on_host", residency.bring_to_host)

    def call() -> None:
        with alight.policy(**SIM):
            x = plane()
            alight.evaluate(x + 0)
        with alight.policy(floor=0, force="numpy"):
            x[3] = 7
            alight.evaluate(x)

    assert "the copy on sim:0" in str(refused("hold", {}, call))


CHUNKED = (1000, 200)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the simulated device little memory, so that work passes it in chunks."""
    tiny = replace(registry.device("sim:0"), memory_bytes=400_000)
    monkeypatch.setitem(registry._devices, "sim:0", tiny)
    monkeypatch.setattr(sim(), "_used", {})
    forget(Cache.PLANS)
    yield
    forget(Cache.PLANS)


def chunked() -> None:
    x = np.random.default_rng(0).random(CHUNKED)
    np.asarray(alight.asarray(x) * alight.asarray(x + 1) + alight.asarray(x[0]))


@pytest.mark.usefixtures("small")
def test_chunks_that_are_right_pass() -> None:
    with alight.policy(**SIM):
        chunked()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("fault", ["source", "target", "last", "short"])
def test_chunks_of_other_rows_are_refused(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operand's rows, or a result's, a row too far on; the last chunk left out; a row short."""
    row = 200 * 8
    inner = streaming._Stream._submit
    first: list[int] = []

    def submit(self: Any, queue: int, commands: Any, wait: Any) -> Any:
        if queue == streaming._UPLOADS and len(commands) == 2 and fault == "source":
            first.append(0)
            if len(first) == 3:
                source = commands[0].source
                moved = streaming.memory_at(source.address - row, source.nbytes)
                commands = [replace(commands[0], source=moved), commands[1]]
        if queue == streaming._DOWNLOADS:
            first.append(0)
            (copy,) = commands
            if fault == "target" and len(first) == 3:
                target = streaming.memory_at(copy.target.address - row, copy.target.nbytes)
                commands = [replace(copy, target=target)]
            if fault == "short" and len(first) == 3:
                commands = [replace(copy, nbytes=copy.nbytes - row)]
            if fault == "last" and len(first) == 4:
                commands = []
        return inner(self, queue, commands, wait)

    monkeypatch.setattr(streaming._Stream, "_submit", submit)
    error = refused("wants|nothing", SIM, chunked)
    assert error.step.startswith("step 0") and "sim:0" in error.step


def leases(other_thread: bool) -> tuple[Array, Any, Any]:
    """Return memory of a caller's, and an Array for each of two calls that have it at once."""
    w = np.arange(40.0)
    mine = Lease.of([[w]])[0]
    found = [mine]
    if other_thread:
        thread = threading.Thread(target=lambda: found.append(Lease.of([[w]])[0]))
        thread.start()
        thread.join()
    else:
        found.append(Lease.of([[w]])[0])
    return w, *found


def written_by_both(first: Any, second: Any) -> None:
    """Have one plan do what two calls wrote, each into its part of the same memory."""
    a, b = first.arrays[0], second.arrays[0]
    a[:10] = a[:10] * 2 + 1
    b[20:] += b[20:] * 3
    a[5:12] = a[5:12] - 1
    evaluate.evaluate_all()
    bring_home([first.storage, second.storage])


@pytest.mark.parametrize("where", [HOST, SIM, {"floor": 0, "force": "numpy"}])
def test_another_threads_call_may_write_its_part_of_the_same_memory(where: dict[str, Any]) -> None:
    w, first, second = leases(other_thread=True)
    expected = w.copy()
    expected[:10] = expected[:10] * 2 + 1
    expected[20:] += expected[20:] * 3
    expected[5:12] -= 1
    with alight.policy(**where):
        written_by_both(first, second)
    np.testing.assert_array_equal(w, expected)


def test_two_leases_of_one_thread_are_one_piece_of_memory() -> None:
    _, first, second = leases(other_thread=False)
    refused("in memory given", HOST, lambda: written_by_both(first, second))


class AnyHome(dict[int, int]):
    """The home of every version, as a write under a mask names it."""

    def get(self, number: int, otherwise: Any = None) -> Any:
        return -1


def test_what_is_written_under_a_mask_is_not_put_into_leased_memory_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the mask is false another thread may have written meanwhile."""
    inner = execute.Execution.__init__

    def begin(self: Any, plan: Any, values: Any) -> None:
        inner(self, plan, values)
        self.homes = AnyHome()

    monkeypatch.setattr(execute.Execution, "__init__", begin)

    def call() -> None:
        lease = Lease.of([[np.arange(40.0)]])[0]
        part = lease.arrays[0][:30]
        part[part > 3] = 7
        evaluate.evaluate_all()

    error = refused("no version of it that the program wrote", HOST, call)
    assert error.buffer == "memory given" and "write" in error.step


class Broken(BaseException):
    """What no plan expects."""


def break_off(patch: pytest.MonkeyPatch, at: int) -> None:
    """Break off the next runs behind their so-manieth step, or while they do it."""
    done = [0]
    inner = execute.Execution._step

    def step(self: Any, step: Any, dead: Any) -> None:
        done[0] += 1
        if done[0] == at:
            raise Broken
        inner(self, step, dead)

    patch.setattr(execute.Execution, "_step", step)


def several(a: Any, b: Any) -> None:
    """Write windows of two arguments in turn."""
    a[:10] = b[:10] * 2 + 1
    b[20:] += a[20:] * 3
    a[5:12] = a[5:12] - b[0]
    b[::2] = 7
    a[30:] = a[:10]


@pytest.mark.parametrize("where", [HOST, {"floor": 0, "force": "numpy"}])
def test_a_run_that_is_broken_off_leaves_what_was_written_first(where: dict[str, Any]) -> None:
    def states(size: int) -> list[Array]:
        """Return what an argument holds after each statement."""
        x, y, found = np.arange(size, dtype=float), np.arange(size) / 2, []
        lines = [
            lambda: x.__setitem__(slice(10), y[:10] * 2 + 1),
            lambda: y.__setitem__(slice(20, None), y[20:] + x[20:] * 3),
            lambda: x.__setitem__(slice(5, 12), x[5:12] - y[0]),
            lambda: y.__setitem__(slice(None, None, 2), 7),
            lambda: x.__setitem__(slice(30, None), x[:10].copy()),
        ]
        for line in [lambda: None, *lines]:
            line()
            found.append((x.copy(), y.copy()))
        return found

    seen = 0
    for at in range(1, 12):
        x, y = np.arange(40.0), np.arange(40) / 2
        leases = Lease.of([[x]])[0], Lease.of([[y]])[0]
        with alight.policy(**where), pytest.MonkeyPatch.context() as patch:
            several(leases[0].arrays[0], leases[1].arrays[0])
            break_off(patch, at)
            try:
                evaluate.evaluate_all()
            except Broken:
                seen += 1
            else:
                break
        held = states(40)
        assert any(np.array_equal(x, one) for one, _ in held), at
        assert any(np.array_equal(y, one) for _, one in held), at
        with alight.policy(**where):  # and all of it can be done afterwards
            evaluate.evaluate_all()
            bring_home([lease.storage for lease in leases])
        np.testing.assert_array_equal(x, held[-1][0])
        np.testing.assert_array_equal(y, held[-1][1])
    assert seen >= 4


def test_a_run_that_is_broken_off_with_others_bytes_gone_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A write in place of a version that somebody else has, seen though the run does not end."""
    monkeypatch.setattr(written_steps, "sole", lambda *_: True)

    def call() -> None:
        x = plane()
        before = x.storage.value
        x[3] = 0
        y = np.exp(x)
        break_off(monkeypatch, 2)
        alight.evaluate(x, y)
        del before

    error = refused("wants %0 in memory given", {"floor": 0, "force": "numpy"}, call)
    assert error.step.startswith("broken off step") and isinstance(error.__cause__, Broken)


def test_leased_memory_that_holds_none_of_its_versions_is_refused() -> None:
    """The version made lies elsewhere; what was there before is to be there still."""

    def call(scribbles: bool) -> None:
        lease = Lease.of([[np.arange(40.0)]])[0]
        array = lease.arrays[0]
        held = array.storage.value.data  # so that it is not written in place
        array[:10] = np.ones(10)
        y = np.exp(array)
        done: list[Any] = []
        inner = execute.Execution._step

        def step(self: Any, step: Any, dead: Any) -> None:
            done.append(step)
            if len(done) < 2:
                inner(self, step, dead)
                return
            assert self._map.leased and isinstance(done[0], WriteStep)
            if scribbles:
                (place,) = self._map.leased.values()
                self.memory.write("another's", place)
            raise Broken

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(execute.Execution, "_step", step)
            alight.evaluate(array, y)
        del held

    where = {"floor": 0, "force": "numpy"}
    with alight.policy(**where), pytest.raises(Broken):
        call(scribbles=False)
    refused("leased memory holds none of its versions", where, lambda: call(scribbles=True))


def in_turn(x: Any, y: Any) -> None:
    """Write two arguments, one after the other."""
    x[:10] = np.exp(x[:10])
    x[20:] = x[20:] * 2 + y[20:]
    y[::2] = y[::2] - 1
    y[30:] = y[:10] * 3


@pytest.mark.parametrize("at", range(1, 9))
def test_a_call_that_is_broken_off_leaves_arguments_in_order(at: int) -> None:
    x, y = np.arange(40.0), np.arange(40) / 2
    held = [(x.copy(), y.copy())]
    a, b = x.copy(), y.copy()
    for line in (
        lambda: a.__setitem__(slice(10), np.exp(a[:10])),
        lambda: a.__setitem__(slice(20, None), a[20:] * 2 + b[20:]),
        lambda: b.__setitem__(slice(None, None, 2), b[::2] - 1),
        lambda: b.__setitem__(slice(30, None), b[:10] * 3),
    ):
        line()
        held.append((a.copy(), b.copy()))
    with alight.policy(floor=0, force="numpy"), pytest.MonkeyPatch.context() as patch:
        break_off(patch, at)
        with suppress(Broken):
            alight.jit(in_turn)(x, y)
    assert any(np.array_equal(x, one) and np.array_equal(y, other) for one, other in held)


def test_arguments_that_were_written_out_of_order_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that may write where it was not its turn, and does."""
    inner = written_steps.WriteOrder.__init__

    def turned(self: Any, order: Any) -> None:
        inner(self, order[::-1])

    monkeypatch.setattr(written_steps.WriteOrder, "__init__", turned)
    monkeypatch.setattr(written_steps.WriteOrder, "allow", lambda self, home: True)
    monkeypatch.setattr(written_steps.WriteOrder, "wrote", lambda self, version: None)

    def call() -> None:
        break_off(monkeypatch, 6)  # when the first one is written, and the other is about to be
        alight.jit(in_turn)(np.arange(40.0), np.arange(40) / 2)

    error = refused("leased memory holds none", {"floor": 0, "force": "numpy"}, call)
    assert error.step.startswith("broken off")
