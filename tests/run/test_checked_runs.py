"""What runs do with memory is followed: right ones pass, and what breaks one is refused with the
step named, whatever the results are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.config import loading
from alight._src.jit.lease import Lease
from alight._src.record.leased import bring_home
from alight._src.run import (
    checked_execution,
    evaluate,
    execute,
    prepared_step,
    residency,
    streaming,
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
    evaluate.forget_plans()
    yield
    evaluate.forget_plans()


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
def test_right_runs_pass(where: dict[str, Any]) -> None:
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
    monkeypatch.setattr(loading, "_config", settings._replace(check=False))
    before = dict(checked_execution.counts)
    with alight.policy(**HOST):
        np.asarray(plane() * 3 - 1)
        assert execute.runner is execute.Execution
    assert checked_execution.counts == before
    monkeypatch.setattr(loading, "_config", settings._replace(check=True))
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
    monkeypatch.setattr(execute, "sole", lambda *_: True)

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
    evaluate.forget_plans()
    yield
    evaluate.forget_plans()


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
    mine = Lease([w])
    found = [mine]
    if other_thread:
        thread = threading.Thread(target=lambda: found.append(Lease([w])))
        thread.start()
        thread.join()
    else:
        found.append(Lease([w]))
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
        lease = Lease([np.arange(40.0)])
        part = lease.arrays[0][:30]
        part[part > 3] = 7
        evaluate.evaluate_all()

    error = refused("no version of it that the program wrote", HOST, call)
    assert error.buffer == "memory given" and "write" in error.step
