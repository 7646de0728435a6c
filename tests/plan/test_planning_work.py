"""How much planning does: each question asked once, and no more of it for each value of a larger
graph. Counted, not timed: counts are the same on every machine."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from alight._core import make_layout
from alight._src.ir.graph import Graph
from alight._src.ir.group import Group
from alight._src.ir.rewrite import rewrite
from alight._src.plan import cost, fuse, place
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Estimate, Facts, LaunchStep
from alight._src.plan.profile import Profile
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from alight.device import Device, Support
from counting import counted
from graphs import F8, Builder

ROWS = make_layout(F8, (100, 100))
COLUMN = make_layout(F8, (100, 1))
DEVICES = tuple(
    Device(name, "vendor", "name", space, 1 << 34, space == "host", Support(ways, frozenset()))
    for name, space, ways in (
        ("cpu", "host", ("numpy", "generated")),
        ("sim:0", "sim", ("generated", "library")),
    )
)


@cache
def profile(device: str) -> Profile:
    """Return made-up rates of a device, as a measured one has them."""
    return replace(recorded("sim:0", DEFAULT_SPEC), device=device, origin="measured")


def estimate(group: Group, device: str, implementation: str) -> Estimate | None:
    """Predict by the one formula."""
    known = "library" if implementation == "numpy" else implementation
    return cost.estimate(group, device, known, profile(device))


def chain(count: int) -> Graph:
    """Return a graph in which each value is made of the one before."""
    build = Builder(ROWS, COLUMN)
    value = 0
    for index in range(count):
        value = build.add("exp", value) if index % 5 == 4 else build.add("add", value, 1)
    return build.graph(value)


def mixed(count: int) -> Graph:
    """Return a random graph of elementwise values and sums along the rows."""
    chooser = random.Random(count)
    build = Builder(ROWS, ROWS, COLUMN)
    wide, thin = [0, 1], [2]
    for _ in range(count):
        recent = wide[-12:]
        if chooser.random() < 0.1:
            thin.append(build.reduce("sum", chooser.choice(recent), (1,), keepdims=True))
        else:
            other = chooser.choice(thin if chooser.random() < 0.2 else recent)
            name = chooser.choice(("add", "multiply", "subtract", "maximum"))
            wide.append(build.add(name, chooser.choice(recent), other))
    return build.graph(*chooser.sample(wide, 10), wide[-1])


def means(count: int) -> Graph:
    """Return a graph in which each value is made of the one before and of its rows' means."""
    build = Builder(ROWS)
    value = 0
    for _ in range(count // 4):
        mean = build.reduce("mean", value, (1,), keepdims=True)
        apart = build.add("subtract", value, mean)
        value = build.add("add", build.add("multiply", apart, apart), value)
    return build.graph(value)


@pytest.mark.parametrize(("make", "each"), [(chain, 120), (mixed, 300), (means, 320)])
def test_work_grows_as_the_graph_does(make: Any, each: int) -> None:
    facts = Facts(DEVICES, {}, estimate=estimate)
    for count in (100, 400):  # what is kept from plan to plan
        make_plan(make(count), facts)
    small, large = (
        counted(lambda graph=graph: make_plan(graph, facts), "call")
        for graph in (make(100), make(400))
    )
    assert 10 < small / 100 < each, small
    # 4 for linear, 16 for quadratic; components of a larger graph are larger
    assert large / small < 8, (small, large)


@pytest.mark.parametrize("make", [chain, mixed])
def test_equal_groups_are_asked_for_once(make: Any) -> None:
    asked: Counter[Any] = Counter()

    def estimated(group: Group, device: str, implementation: str) -> Estimate | None:
        asked[group, device, implementation] += 1
        return estimate(group, device, implementation)

    def supported(device: str, implementation: str, group: Group) -> str | None:
        asked[group, device, implementation, "supports"] += 1
        return None

    graph = make(100)
    make_plan(graph, Facts(DEVICES, {}, estimate=estimated, supports=supported))
    assert len(asked) > 10
    assert set(asked.values()) == {1}
    # What planning 100 values asks is less than two questions for each.
    assert asked.total() < 200, asked.total()


def test_a_loop_is_found_at_once_and_not_anew() -> None:
    # One question, of all its values, and one round of fusing: a first call waits for both.
    asked: list[int] = []
    host = replace(DEVICES[0], support=Support(("numpy", "generated"), frozenset()))

    def supported(device: str, implementation: str, group: Group) -> str | None:
        asked.extend([len(group.graph.nodes)] * (implementation == "generated"))
        return None

    facts = Facts((host,), {}, estimate=estimate, supports=supported)
    with pytest.MonkeyPatch.context() as patch:
        fused: list[Graph] = []
        fuse = place.fuse
        patch.setattr(place, "fuse", lambda graph, *rest: fused.append(graph) or fuse(graph, *rest))
        plan = make_plan(chain(30), facts)
    assert [step.implementation for step in plan.steps if isinstance(step, LaunchStep)] == [
        "generated"
    ]
    assert asked == [30]
    assert len(fused) == 1


def test_what_one_value_of_a_loop_lacks_the_others_have() -> None:
    def supported(device: str, implementation: str, group: Group) -> str | None:
        return "no exp" if "exp" in [node.op.name for node in group.graph.nodes] else None

    facts = Facts(DEVICES[:1], {}, estimate=estimate, supports=supported)
    steps = [s for s in make_plan(chain(9), facts).steps if isinstance(s, LaunchStep)]
    assert [(s.implementation, len(s.nodes)) for s in steps] == [
        *(("generated", 4), ("numpy", 1), ("generated", 4)),
    ]


def test_who_may_not_run_a_loop_is_not_asked_how_long_it_would_take() -> None:
    asked: set[str] = set()

    def estimated(group: Group, device: str, implementation: str) -> Estimate | None:
        asked.add(implementation)
        return estimate(group, device, implementation)

    make_plan(chain(9), Facts(DEVICES, {}, estimate=estimated, force=("cpu", "generated")))
    assert asked == {"generated"}


def test_values_that_read_no_views_are_not_asked_what_else_they_could_read() -> None:
    plain, build = chain(50), Builder(ROWS, COLUMN)
    value = build.add("add", 0, 1)
    build.view(0, slice(1, None))  # is read by none
    for index in range(48):
        value = build.add("exp", value) if index % 5 == 4 else build.add("add", value, 1)
    few, more = (counted(lambda g=g: rewrite(g), "call") for g in (plain, build.graph(value)))
    assert few + 50 < more, (few, more)


def test_what_nodes_are_for_a_compiler_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    build = Builder(ROWS, COLUMN)
    value = 0
    for turn in range(200):
        total = value if turn % 8 else build.reduce("sum", value, (1,), keepdims=True)
        value = build.add("subtract", value, total)
    asked: list[int] = []
    work = fuse.work_of_nodes
    monkeypatch.setattr(fuse, "work_of_nodes", lambda *of: asked.append(1) or work(*of))
    make_plan(build.graph(value), Facts(DEVICES[:1], {}, estimate=estimate))
    assert 0 < len(asked) < 120  # 223 where it is worked out whenever it is asked for


@pytest.mark.parametrize("make", [chain, mixed, means])
def test_nodes_that_come_together_as_before_are_fused_and_placed_once(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: Counter[str] = Counter()

    def count(name: str) -> None:
        work = getattr(place, name)

        def counted(*given: Any) -> Any:
            done[name] += 1
            return work(*given)

        monkeypatch.setattr(place, name, counted)

    for name in ("fuse", "by_rows", "_placed"):
        count(name)
    make_plan(make(60), Facts(DEVICES[:1], {}, estimate=estimate, force=("cpu", "generated")))
    assert done == {"fuse": 1, "by_rows": 1, "_placed": 1}
