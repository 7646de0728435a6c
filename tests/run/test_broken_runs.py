"""What a device is given, broken at random: each breakage that changes what comes out is refused,
whatever the plan was."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import Data, make_layout
from alight._src.base.cache_registry import Cache, forget
from alight._src.run.prepared_step import Ready
from alight._src.run.watched_backends import following
from alight.backends import registry
from alight.backends.base import Copy, Launch, Operand
from alight.device import HOST_DEVICE
from alight.errors import PlanError

SIM = {"floor": 0, "force": "sim:0"}


@pytest.fixture(autouse=True)
def _followed() -> Iterator[None]:
    forget(Cache.PLANS)
    yield
    forget(Cache.PLANS)


class Breaking:
    """A device's queue that breaks one command, the so-manieth that can be broken so."""

    watched = True  # it stands before who follows what the device is given

    def __init__(
        self, inner: Any, rng: random.Random, how: Any, turn: int, buffers: list[Any]
    ) -> None:
        self.inner, self.rng, self.how, self.turn = inner, rng, how, turn
        self.buffers = buffers  # all that were ever there
        self.broken = False

    def __call__(self, where: Any, queue: int, commands: Sequence[Any], wait: Any = ()) -> Any:
        commands = list(commands)
        for index, command in enumerate(commands):
            # What comes to the host after a run, which nobody follows, is left as it is.
            made = None if self.broken or following.run is None else self.how(command, self)
            if made is not None:
                self.turn -= 1
                if self.turn == 0:
                    self.broken = True
                    commands[index : index + 1] = made
                    break
        event = self.inner(where, queue, commands, wait)
        for command in commands:
            found = [o.buffer for o in getattr(command, "inputs", ())]
            found += [o.buffer for o in getattr(command, "outputs", ()) if o is not None]
            found += [getattr(command, name, None) for name in ("source", "target")]
            self.buffers += [b for b in found if hasattr(b, "data")]
        self.buffers += event.buffers
        return event

    def another(self, buffer: Any) -> Any:
        """Return another buffer that is there and no smaller."""
        fit = [
            b
            for b in self.buffers
            if b is not buffer and b.data is not None and b.nbytes >= buffer.nbytes
        ]
        return self.rng.choice(fit) if fit else None


def dropped(command: Any, queue: Breaking) -> list[Any] | None:
    """A copy left out."""
    return [] if isinstance(command, Copy) and command.nbytes else None


def shrunk(command: Any, queue: Breaking) -> list[Any] | None:
    """A copy of fewer bytes."""
    if not isinstance(command, Copy) or command.nbytes < 9:
        return None
    return [replace(command, nbytes=command.nbytes - 8)]


def elsewhere(command: Any, queue: Breaking) -> list[Any] | None:
    """A copy from, or to, another buffer of the device."""
    if not isinstance(command, Copy):
        return None
    name = "target" if command.source_space == "host" else "source"
    other = queue.another(getattr(command, name))
    return None if other is None else [replace(command, **{name: other})]


def operand(command: Any, change: Callable[[Operand], Any], rng: random.Random) -> Any:
    """Return a launch with another operand in place of one."""
    if not isinstance(command, Launch) or not command.inputs:
        return None
    at = rng.randrange(len(command.inputs))
    other = change(command.inputs[at])
    if other is None:
        return None
    return [command._replace(inputs=(*command.inputs[:at], other, *command.inputs[at + 1 :]))]


def pointed(command: Any, queue: Breaking) -> list[Any] | None:
    """An operand in another buffer."""

    def change(one: Operand) -> Any:
        other = queue.another(one.buffer)
        return None if other is None else one._replace(buffer=other)

    return operand(command, change, queue.rng)


def shifted(command: Any, queue: Breaking) -> list[Any] | None:
    """An operand that begins one element on."""

    def change(one: Operand) -> Any:
        return one._replace(offset=one.offset + one.layout.itemsize) if one.layout.size else None

    return operand(command, change, queue.rng)


def reused(command: Any, queue: Breaking) -> list[Any] | None:
    """A result in the memory of something else, and what is read next is that."""
    if not isinstance(command, Launch) or command.outputs != (None,):
        return None
    layout = command.kernel.group.graph.layouts[command.kernel.group.graph.outputs[0]]
    fit = [b for b in queue.buffers if b.data is not None and b.nbytes >= layout.nbytes]
    if not fit:
        return None
    over = Operand(queue.rng.choice(fit[-8:]), 0, layout)  # what was used last is needed still
    return [command._replace(outputs=(over,)), command]


def twice(command: Any, queue: Breaking) -> list[Any] | None:
    """A window written again, a little later on."""
    if not isinstance(command, Launch) or command.outputs[0] is None:
        return None
    (window, *rest) = command.outputs
    moved = window._replace(offset=window.offset + window.layout.itemsize)
    return [command, command._replace(outputs=(moved, *rest))]


BREAKAGES = (dropped, shrunk, elsewhere, pointed, shifted, reused, twice)


def program(np: Any, x: Any, y: Any) -> Any:
    """Return what launches, windows, writes in place and copies both ways give."""
    z = x * 2 + y
    w = np.exp(z[1:] - z[:-1])
    z[2:5] = w[:3]
    z[:, 3] += y[:, 0]
    return np.concatenate([(z + w[:1]).ravel(), w.sum(axis=1), (y.T * 3)[:, 2]])


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda one: one.__name__)
def test_a_breakage_that_changes_the_answer_is_refused(breakage: Any) -> None:
    rng = random.Random(breakage.__name__)
    backend: Any = registry.backend_of(registry.device("sim:0"))
    counts: Counter[str] = Counter()
    buffers: list[Any] = []
    with alight.policy(**SIM):
        given = [np.random.default_rng(n).random((12, 10)) for n in range(2)]
        np.asarray(program(alight, *map(alight.asarray, given)))  # what is watched is
        for turn in [*range(1, 25)] * 3:
            given = [rng.random() + one for one in given]
            wanted = program(np, *[one.copy() for one in given])
            arrays = [alight.asarray(one) for one in given]
            breaking = Breaking(backend.submit, rng, breakage, turn, buffers)
            got, refused = None, False
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(backend, "submit", breaking)
                try:
                    got = np.asarray(program(alight, *arrays))
                except PlanError as error:
                    assert "Fix: " in str(error)
                    refused = True
            if not breaking.broken:
                assert not refused
                continue
            changes = got is not None and not np.allclose(got, wanted, rtol=1e-12, equal_nan=True)
            assert not changes, (turn, np.flatnonzero(got != wanted))
            counts["refused" if refused else "changes nothing"] += 1
    assert counts["refused"] >= 3, counts


def test_a_result_may_be_made_where_a_download_lay_before_its_step_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is downloaded to make room on a device is freed, and NumPy's memory comes from there."""
    sim = registry.device("sim:0")
    backend: Any = registry.backend_of(sim)
    submit, run, downloads = backend.submit, Ready.submit, []

    def refuse(where: Any, queue: int, commands: Sequence[Any], wait: Any = ()) -> Any:
        if any(isinstance(command, Launch) for command in commands):
            raise RuntimeError("injected")
        return submit(where, queue, commands, wait)

    def after_a_download(ready: Ready, *args: Any) -> Any:
        made = run(ready, *args)
        if ready.where.id == HOST_DEVICE:
            result = made[0][-1]
            kept = result.raw.copy()
            part = Data(make_layout(np.dtype(np.uint8), (64,)), result.raw[64:128], foreign=True)
            buffer = backend.allocate(sim, 64)
            up = Copy(part, buffer, 64, "host", sim.space)
            backend.submit(sim, 0, [up, Copy(buffer, part, 64, sim.space, "host")])
            result.raw[:] = kept
            downloads.append(part)
        return made

    monkeypatch.setattr(backend, "submit", refuse)
    monkeypatch.setattr(Ready, "submit", after_a_download)
    with alight.policy(**SIM):
        x = np.arange(600.0)
        assert (np.asarray(alight.asarray(x) * 2 + 1) == x * 2 + 1).all()
    assert downloads
