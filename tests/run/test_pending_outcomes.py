"""Launches nobody waits for: told of later, done again in NumPy where a device has lost them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.log.decisions import LOG
from alight.backends import registry
from alight.backends.base import Copy
from alight.errors import KernelError

Array = np.ndarray[Any, Any]


def lost(monkeypatch: pytest.MonkeyPatch, fails: Callable[[Any], bool]) -> None:
    """Have the simulated device refuse every command of a kind."""
    backend: Any = registry.backend_of(registry.device("sim:0"))
    submit = backend.submit

    def refusing(device: Any, queue: int, commands: Any, wait: Any = ()) -> Any:
        if any(fails(command) for command in commands):
            raise KernelError("the card has fallen off its bus")
        return submit(device, queue, commands, wait)

    monkeypatch.setattr(backend, "submit", refusing)


def is_download(command: Any) -> bool:
    return isinstance(command, Copy) and command.target_space == "host"


@pytest.fixture
def x() -> Array:
    return np.random.default_rng(0).random((30, 40))


def test_what_a_lost_device_made_is_computed_again(
    monkeypatch: pytest.MonkeyPatch, x: Array
) -> None:
    with alight.policy(floor=0, force="sim:0"):
        a = alight.asarray(x)
        first = a * 2 + 1
        alight.evaluate(first)
        second = np.asarray([0])  # something between
        rest = alight.sum(first[3:] * a[3:], axis=0)
        alight.evaluate(rest)
        del first
        lost(monkeypatch, is_download)
        LOG.reset()
        expected = ((x * 2 + 1)[3:] * x[3:]).sum(axis=0)
        assert np.allclose(np.asarray(rest), expected, rtol=1e-14) and second[0] == 0
    told = LOG.snapshot().fallbacks
    assert any("fallen off" in row.reason and "sim:0:generated" in row.what for row in told), told


def test_what_was_written_meanwhile_is_not_computed_again(
    monkeypatch: pytest.MonkeyPatch, x: Array
) -> None:
    with alight.policy(floor=0, force="sim:0"):
        a = alight.asarray(x)
        b = a * 2
        alight.evaluate(b)
        np.asarray(a)[0] = 7.0  # the bytes that were read are gone
        lost(monkeypatch, is_download)
        with pytest.raises(KernelError, match="fallen off"):
            np.asarray(b)


def test_launches_are_logged_with_their_seconds_when_somebody_looks(x: Array) -> None:
    with alight.policy(floor=0, force="sim:0"):
        LOG.reset()
        alight.evaluate(alight.asarray(x) * 3)
        (record,) = [r for r in LOG.snapshot().records if r.decision.chosen == "sim:0"]
    assert record.seconds is not None and record.seconds > 0
    assert LOG.snapshot().counts["launches"] == 1


def test_what_is_waited_for_is_there_or_on_the_host(
    monkeypatch: pytest.MonkeyPatch, x: Array
) -> None:
    with alight.policy(floor=0, force="sim:0"):
        a = alight.asarray(x)
        first, second, ready = a * 2, a * 3, alight.asarray(x)
        alight.evaluate(first, second, ready, wait=True)
        data = [array.storage.value.data for array in (first, second)]
        assert all(d.array is None and d.remote for d in data)
        backend: Any = registry.backend_of(registry.device("sim:0"))
        waited = backend.wait

        def failing(event: Any) -> None:
            monkeypatch.setattr(backend, "wait", waited)
            raise KernelError("the card has fallen off its bus")

        monkeypatch.setattr(backend, "wait", failing)
        LOG.reset()
        alight.evaluate(first, second, wait=True)
        assert all(d.array is not None for d in data)
        assert np.array_equal(np.asarray(first), x * 2) and np.array_equal(second, x * 3)
    told = LOG.snapshot().fallbacks
    assert any("fallen off" in row.reason and "waiting" in row.what for row in told), told
