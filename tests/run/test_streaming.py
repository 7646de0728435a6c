"""Work that a device's memory does not hold: it passes in chunks, and the queues keep it right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import make_layout
from alight._src.base.cache_registry import Cache, forget
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.log.decisions import LOG
from alight._src.plan.block import SLOTS, chunk_rows, passing_rows, split
from alight._src.plan.plan import Estimate
from alight._src.run import streaming
from alight.backends import registry
from alight.errors import KernelError

Array = np.ndarray[Any, Any]
ROOM = 400_000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the simulated device little memory."""
    found = registry.device("sim:0")
    backend: Any = registry.backend_of(found)
    tiny = replace(found, memory_bytes=ROOM)
    monkeypatch.setitem(registry._devices, "sim:0", tiny)
    monkeypatch.setattr(backend, "_used", {})
    forget(Cache.PLANS)
    yield
    forget(Cache.PLANS)


def chain(np: Any, x: Any, y: Any, row: Any) -> Any:
    return np.sqrt(x * x + y * y) * row + 0.5


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("rows", [999, 1000, 137])
def test_what_does_not_fit_passes_in_chunks(rows: int) -> None:
    generator = np.random.default_rng(rows)
    shape = (rows, 200000 // rows)
    x, y, row = generator.random(shape), generator.random(shape), generator.random(shape[1])
    LOG.reset()
    with alight.policy(floor=0, force="sim:0"):
        got = np.asarray(chain(alight, *map(alight.asarray, (x, y, row))))
    assert np.array_equal(got, chain(np, x, y, row))
    log = LOG.snapshot()
    assert all("no room" in f.reason for f in log.fallbacks) and len(log.fallbacks) == 1
    assert log.counts["launches"] > SLOTS + 1 and log.counts["downloads"] > SLOTS
    places = {place for place, elements in log.elements.items() if elements}
    assert places == {("generated", "sim:0")}, log.elements


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("fails", [0, 4, 9])
def test_a_chunk_that_fails_leaves_nothing_under_way(
    fails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = registry.device("sim:0")
    backend: Any = registry.backend_of(where)
    submit, wait = backend.submit, backend.wait
    last: dict[int, Any] = {}
    waited: list[Any] = []
    count = 0

    def failing(device: Any, queue: int, commands: Any, after: Any = ()) -> Any:
        nonlocal count
        if commands and queue:
            count += 1
            if count > fails:
                raise KernelError("injected")
            last[queue] = submit(device, queue, commands, after)
            return last[queue]
        return submit(device, queue, commands, after)

    monkeypatch.setattr(backend, "submit", failing)
    monkeypatch.setattr(backend, "wait", lambda event: (waited.append(event), wait(event)))
    x = np.random.default_rng(0).random((1000, 200))
    with alight.policy(floor=0, force="sim:0"):
        a, b = alight.asarray(x), alight.asarray(x[::-1].copy())
        LOG.reset()
        assert np.array_equal(np.asarray(a * b + a), x * x[::-1] + x)
    reasons = [fallback.reason for fallback in LOG.snapshot().fallbacks]
    assert any("injected" in reason for reason in reasons), reasons
    assert len(last) == min(2, fails // 2)
    assert all(any(event is one for one in waited) for event in last.values())


@pytest.mark.usefixtures("small")
def test_what_does_not_fall_apart_is_numpys() -> None:
    wide = np.random.default_rng(0).random((5, 30000))
    x = np.random.default_rng(0).random((300, 400))
    with alight.policy(floor=0, force="sim:0"):
        a = alight.asarray(x)
        assert np.allclose(np.asarray(a.T + a.reshape(400, 300)), x.T + x.reshape(400, 300))
        assert np.allclose(np.asarray((a * 2).sum(axis=0)), (x * 2).sum(axis=0))
        assert np.array_equal(np.asarray(alight.asarray(wide) + 1), wide + 1)  # no row fits


def group(*shapes: tuple[int, ...], out: tuple[int, ...]) -> Group:
    layouts = [make_layout(np.dtype(np.float64), shape) for shape in (*shapes, out)]
    node = Node(OPS["add"], (0, 1), (), layouts[-1])
    return Group(GroupKind.LOOP, Graph(tuple(layouts[:-1]), (node,), (2,)), out)


def test_operands_with_the_axis_are_cut_and_the_others_stay_whole() -> None:
    parts = split(group((90, 4), (4,), out=(90, 4)))
    assert parts is not None and parts.cut == (True, False)
    assert (parts.given, parts.made, parts.whole) == (32, 32, 32)
    part = parts.part(7)
    assert part.shape == (7, 4) and [lay.shape for lay in part.graph.inputs] == [(7, 4), (4,)]
    assert split(group((1, 4), (1, 4), out=(1, 4))) is None
    assert split(group((90, 1), (4,), out=(90, 4))) is not None


def test_chunks_are_as_many_as_cost_least_and_fit() -> None:
    parts = split(group((1000, 4), (1000, 4), out=(1000, 4)))
    assert parts is not None
    kernel = Estimate(1.0, 1.0, 1.0, {})
    plenty = 1 << 30
    # √((1 + 1) / 0.02) = 10 chunks
    assert chunk_rows(parts, plenty, 1.0, 1.0, kernel, 0.02) == 100
    assert chunk_rows(parts, plenty, 1.0, 1.0, kernel, 1e9) == 334  # one for each slot
    assert chunk_rows(parts, SLOTS * 96 * 8, 1.0, 1.0, kernel, 0.02) == 8
    assert chunk_rows(parts, SLOTS * 96 - 1, 1.0, 1.0, kernel, 0.02) == 0


def test_what_fits_goes_in_chunks_where_that_is_sooner() -> None:
    parts = split(group((1000, 4), (1000, 4), out=(1000, 4)))
    assert parts is not None
    kernel = Estimate(1.0, 1.0, 1.0, {})
    plenty = 1 << 30
    # √((1 + 1) / 0.02) = 10 chunks: 2 / 10 + 0.2 and what it takes to begin against 2
    assert passing_rows(parts, plenty, 3.0, 1.0, kernel, 0.02, 0.01, 1.5) == 100
    assert passing_rows(parts, plenty, 3.0, 1.0, kernel, 0.02, 0.01, 1.7) == 0
    assert passing_rows(parts, plenty, 3.0, 1.0, kernel, 0.02, 0.75, 0.0) == 250  # host-bound
    assert passing_rows(parts, plenty, 3.0, 1.0, kernel, 0.02, 2.0, 0.0) == 0  # one at a time
    assert passing_rows(parts, plenty, 3.0, 1.0, kernel, 1.0, 0.01, 0.0) == 0
    assert passing_rows(parts, plenty, 3.0, 0.0, None, 0.02, 0.01, 0.0) == 0  # nothing to hide
    assert passing_rows(parts, SLOTS * 96 * 100 - 1, 3.0, 1.0, kernel, 0.02, 0.01, 0.0) == 0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the simulated device copy both ways at once, and the host take no time for chunks."""
    found = registry.device("sim:0")
    engines = replace(found, limits={**found.limits, "engines": 2})
    monkeypatch.setitem(registry._devices, "sim:0", engines)
    monkeypatch.setattr(streaming, "_TURN_SECONDS", 1e-9)
    monkeypatch.setattr(streaming, "_BEGIN_SECONDS", 0.0)
    monkeypatch.setattr(streaming, "_LINK_SECONDS", 1e-9)
    monkeypatch.setattr(streaming, "_terms", lambda where, parts: (0.0, 0.0, None, 0.0))
    forget(Cache.PLANS)
    yield
    forget(Cache.PLANS)


@pytest.mark.usefixtures("quick")
def test_what_only_passes_a_device_goes_in_chunks() -> None:
    generator = np.random.default_rng(3)
    x, y, row = generator.random((997, 40)), generator.random((997, 40)), generator.random(40)
    whole = alight.jit(lambda x, y, row: np.sqrt(x * x + y * y) * row + 0.5)
    kept = alight.jit(lambda x, y, row: (np.sqrt(x * x + y * y) * row + 0.5).sum())

    def counted(call: Any) -> tuple[Any, Any]:
        for _ in range(4):  # traced, compiled
            call()
        LOG.reset()
        result = call()
        return result, LOG.snapshot()

    with alight.policy(floor=0, force="sim:0"):
        got, log = counted(lambda: np.asarray(whole(x, y, row)))
        assert np.array_equal(got, chain(np, x, y, row))
        assert not log.fallbacks and log.counts["downloads"] > SLOTS, log
        assert log.counts["uploads"] == 2 * log.counts["downloads"]
        assert {place for place, n in log.elements.items() if n} == {("generated", "sim:0")}
        got, log = counted(lambda: kept(x, y, row))  # a sum does not fall apart
        assert np.allclose(got, chain(np, x, y, row).sum())
        assert log.counts["launches"] == 1 and not log.fallbacks
        ours = [alight.asarray(a) for a in (x, y, row)]  # copies of these serve other uses
        got, log = counted(lambda: np.asarray(whole(*ours)))
        assert np.array_equal(got, chain(np, x, y, row))
        assert log.counts["launches"] == 1 and log.counts.get("uploads", 0) == 0
        np.add(x, 1.0, out=x)  # what the caller changed is seen by the next call
        assert np.array_equal(np.asarray(whole(x, y, row)), chain(np, x, y, row))


@pytest.mark.usefixtures("quick")
def test_what_fails_in_chunks_is_done_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(5).random((997, 40))
    made = alight.jit(lambda x: np.sqrt(x) + x)
    with alight.policy(floor=0, force="sim:0"):
        for _ in range(4):
            made(x)
        backend: Any = registry.backend_of(registry.device("sim:0"))
        submit = backend.submit

        def failing(device: Any, queue: int, commands: Any, after: Any = ()) -> Any:
            if queue == 2:
                raise KernelError("injected")
            return submit(device, queue, commands, after)

        monkeypatch.setattr(backend, "submit", failing)
        LOG.reset()
        assert np.array_equal(np.asarray(made(x)), np.sqrt(x) + x)
    (fallback,) = LOG.snapshot().fallbacks
    assert "in chunks" in fallback.what and "injected" in fallback.reason
