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
from alight.backends.sim_clock import DEFAULT_SPEC, recorded
from alight.device import Device, Support
from alight.ir.group import Graph, Group
from alight.plan import cost
from alight.plan.place import make_plan
from alight.plan.plan import Estimate, Facts
from alight.plan.profile import Profile
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


@pytest.mark.parametrize(("make", "each"), [(chain, 120), (mixed, 300)])
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
