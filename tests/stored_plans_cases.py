"""Plans on disk: a second start plans nothing large, gives the same bits, and trusts no file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.base.cache_registry import Cache, forget
from alight._src.base.records import replace
from alight._src.log.decisions import LOG
from alight._src.measure.profiles import fingerprint
from alight._src.plan import place
from alight._src.run import kernels, stored_plans
from alight._src.store import Store, default_store
from alight.backends import registry
from cost_profiles import plan_by, profile_with
from own_store import own_store

NODES = 2 * stored_plans.LEAST_NODES


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    forget(Cache.PROFILES)  # how many plans other tests have kept, too
    with own_store(tmp_path / "cache") as made:
        profile = profile_with({}, "generated")
        here = fingerprint(registry.device("cpu"))
        plan_by(monkeypatch, replace(profile, fingerprint=here, made_at=1.0))
        yield made


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many nodes were planned, each time."""
    sizes: list[int] = []
    plan = place.make_plan

    def counted(graph: Any, *rest: Any) -> Any:
        sizes.append(len(graph.nodes))
        return plan(graph, *rest)

    monkeypatch.setattr(place, "make_plan", counted)
    return sizes


def program(seed: float = 1.5, more: int = 0) -> list[np.ndarray[Any, Any]]:
    """Return what a program of many ops gives, as a process that just started plans it."""
    forget(Cache.PLANS)
    with alight.policy(devices=["cpu"]):
        x = alight.asarray(np.linspace(0.0, 1.0, 500_000 + more))
        a = x
        for turn in range(NODES // 2):
            a = a * seed + x if turn % 3 else alight.sqrt(a) - x
        b = a - a.mean()
        b[3:5] = 7.0
        found = [np.asarray(b).copy(), np.asarray(b.sum()), np.asarray(x[::2] + 1.0).copy()]
    kernels.settle()
    return found


def loaded() -> int:
    return LOG.snapshot().counts["plans_loaded"]


def test_a_second_start_plans_nothing_large(store: Store, made: list[int]) -> None:
    before = loaded()
    first = program()
    assert [entry.form for entry in store.entries() if entry.kind == "plan"] == ["object"]
    large = [size for size in made if size >= stored_plans.LEAST_NODES]
    assert len(large) == 1 and loaded() == before
    made.clear()
    second = program()
    assert loaded() == before + 1
    assert not [size for size in made if size >= stored_plans.LEAST_NODES]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))
    assert all(a.strides == b.strides for a, b in zip(first, second, strict=True))


def test_who_was_measured_anew_plans_anew(
    store: Store, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    program()
    from alight._src.adapt import planner_facts

    profile = planner_facts._profiles["cpu"]
    assert profile is not None
    plan_by(monkeypatch, replace(profile, made_at=2.0))
    made.clear()
    before = loaded()
    program()
    assert loaded() == before and max(made) >= stored_plans.LEAST_NODES


def test_sizes_that_never_come_again_do_not_fill_the_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_plans, "_MOST_WRITTEN", 2)
    for more in range(4):
        program(more=more)
    assert sum(entry.kind == "plan" for entry in store.entries()) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\x80\x04cos\nsystem\n",
        b'{"layouts": [["O", [1], [8]]], "groups": [], "steps": []}',
        b"wrong",
    ],
)
def test_what_is_no_plan_is_removed_and_planned_anew(
    store: Store, made: list[int], data: bytes
) -> None:
    first = program()
    (entry,) = [entry for entry in store.entries() if entry.kind == "plan"]
    if data == b"wrong":  # of the right form
        blob = store.read_bytes("plan", entry.key)
        assert blob is not None
        document = json.loads(blob.data)
        nodes = [node for _, graph, _ in document["groups"] for node in graph[1]]
        add = next(node for node in nodes if node[0] == "add")
        add[0] = "subtract"
        data = json.dumps(document).encode()
    store.write_bytes("plan", entry.key, data, {})
    made.clear()
    before = loaded(), sum(one[-1] for one in LOG.snapshot().fallbacks)
    second = program()
    assert loaded() == before[0] and max(made) >= stored_plans.LEAST_NODES
    assert sum(one[-1] for one in LOG.snapshot().fallbacks) == before[1] + 1
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))
    program()
    assert loaded() == before[0] + 1, "what was planned anew is kept"
    assert default_store() is not None
