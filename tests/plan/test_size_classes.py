"""Plans of one structure share how it is cut, whatever the sizes; all else is each size's own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import Layout, make_layout
from alight._src.base.cache_registry import Cache, forget
from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import Group
from alight._src.ir.rewrite import rewrite
from alight._src.ir.row_column import LEAST_WIDTH
from alight._src.plan import place
from alight._src.plan.fuse import Region
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Estimate, Facts, LaunchStep, Plan
from alight._src.plan.size_classes import Cuts, copied, likeness
from alight._src.run import evaluate as runs
from alight.device import Device, Reason, Support
from graphs import F4, F8, Builder, evaluate, random_graph, run_plan, same
from plan_facts import contents, plan_faults


def device(name: str, space: str, *implementations: str) -> Device:
    support = Support(implementations, frozenset())
    return Device(name, "vendor", "name", space, 1 << 34, space == "host", support)


CPU = device("cpu", "host", "numpy", "generated")
SIM = device("sim:0", "sim", "generated", "library")
FACTS = Facts((CPU, SIM), {})


def launches(plan: Plan) -> list[LaunchStep]:
    return [step for step in plan.steps if isinstance(step, LaunchStep)]


def elements(group: Group) -> int:
    return max([node.layout.size for node in group.graph.nodes])


def at(seconds: float) -> Estimate:
    return Estimate(seconds, seconds, seconds, {"compute": seconds})


def by_size(group: Group, device: str, implementation: str) -> Estimate:
    """Predict that each node takes a launch, and NumPy four times as long for an element."""
    launch = {"numpy": 1e-6, "generated": 1e-5}.get(implementation, 3e-5)
    rate = {"numpy": 4e-9, "generated": 1e-9}.get(implementation, 1e-10)
    nodes = 1 if implementation == "generated" else len(group.graph.nodes)
    return at(nodes * (launch + rate * elements(group)))


POLICIES = {
    "uncalibrated": FACTS,
    "generated": replace(FACTS, force=("cpu", "generated")),
    "sim": replace(FACTS, force=("sim:0", None)),
    "by cost": replace(FACTS, estimate=by_size, copy_seconds=lambda a, b, n: 1e-6 + n * 1e-10),
}
SIZES = ((70, 90), (100, 120), (65, 127), (90, 70), (70, 70), (127, 126), (200, 90), (70, 91))


@pytest.mark.parametrize("policy", POLICIES)
def test_random_graphs_of_other_sizes_are_cut_alike_and_right(policy: str) -> None:
    facts = POLICIES[policy]
    shared = total = 0
    for seed in range(40):
        cuts: Cuts = {}
        for whole in SIZES:
            graph, inputs = random_graph(seed, 5 + seed % 40, whole)
            known = len(cuts)
            plan = make_plan(graph, facts, cuts)
            shared += len(cuts) == known
            total += 1
            assert plan_faults(plan, graph) == [], f"seed {seed} {whole}\n{graph}"
            expect = evaluate(graph, inputs)
            there, _ = run_plan(plan, [(raw.copy(), *rest) for raw, *rest in inputs])
            for output in graph.outputs:
                assert same(expect[output], there[output]), f"seed {seed} {whole}: %{output}"
            if policy != "by cost":  # what a cut is worth is the same for all sizes then
                assert contents(plan) == contents(make_plan(graph, facts)), (
                    f"seed {seed} {whole}\n{graph}"
                )
    # four of eight, but for windows whose steps come to equal others
    assert total / 4 < shared <= total / 2


# --- which graphs are alike ---------------------------------------------------------------------
def one(first: Layout, second: Layout) -> Graph:
    """Return an addition, of which the result is negated."""
    build = Builder(first, second)
    return build.graph(build.add("negative", build.add("add", 0, 1)))


def alike(left: Graph, right: Graph, facts: Facts = FACTS, other: Facts = FACTS) -> bool:
    keys = likeness(rewrite(left).graph, facts), likeness(rewrite(right).graph, other)
    assert None not in keys
    return keys[0] == keys[1]


def plain(*shape: int) -> Layout:
    return make_layout(F8, shape)


FROM = plain(300, 200)


@pytest.mark.parametrize(
    ("left", "right", "expect"),
    [
        ((FROM, FROM), (plain(400, 130), plain(400, 130)), True),
        # one of them is repeated: along an axis, along the other, as a whole
        ((FROM, FROM), (FROM, plain(300, 1)), False),
        ((FROM, plain(300, 1)), (FROM, plain(1, 200)), False),
        ((FROM, plain(300, 1)), (plain(310, 210), plain(310, 1)), True),
        ((FROM, FROM), (FROM, plain()), False),
        ((FROM, plain(200)), (plain(310, 210), plain(210)), True),
        # a side that begins to equal the other, or to be the longer one
        ((FROM, FROM), (plain(257, 257), plain(257, 257)), False),
        ((plain(200, 130), plain(200, 130)), (plain(130, 200), plain(130, 200)), False),
        # nothing, one element, and rows so short that each length counts
        ((FROM, FROM), (plain(0, 200), plain(0, 200)), False),
        ((FROM, FROM), (plain(300, 0), plain(300, 0)), False),
        ((FROM, FROM), (plain(300, 1), plain(300, 1)), False),
        ((plain(300, 7), plain(300, 7)), (plain(400, 7), plain(400, 7)), True),
        ((plain(300, 7), plain(300, 7)), (plain(300, 8), plain(300, 8)), False),
        ((FROM, FROM), (plain(300, LEAST_WIDTH - 1),) * 2, False),
        # another class of sizes, also past 32 bits
        ((FROM, FROM), (plain(600, 200), plain(600, 200)), False),
        ((plain(2**31 - 1),) * 2, (plain(2**31),) * 2, False),
        ((plain(2**31 + 5),) * 2, (plain(2**31 + 9),) * 2, True),
        # the same sizes in another order in memory, apart, backwards, repeated
        ((FROM, FROM), (FROM, make_layout(F8, (300, 200), (8, 2400))), False),
        ((FROM, FROM), (FROM, make_layout(F8, (300, 200), (3200, 16))), False),
        ((FROM, FROM), (FROM, make_layout(F8, (300, 200), (-1600, 8))), False),
        ((FROM, FROM), (FROM, make_layout(F8, (300, 200), (0, 8))), False),
        ((FROM, make_layout(F8, (300, 200), (3200, 8))),
         (plain(310, 210), make_layout(F8, (310, 210), (3360, 8))), True),
        ((FROM, make_layout(F8, (300, 200), (3200, 8))),
         (plain(310, 210), make_layout(F8, (310, 210), (3360, 16))), False),
        ((FROM, FROM), (FROM, make_layout(F4, (300, 200))), False),
    ],
)  # fmt: skip
def test_which_sizes_and_layouts_are_alike(
    left: tuple[Layout, Layout], right: tuple[Layout, Layout], expect: bool
) -> None:
    def graph(first: Layout, second: Layout) -> Graph:
        shape = np.broadcast_shapes(first.shape, second.shape)
        nodes = Builder(first, second)
        middle = nodes.add("add", 0, 1, layout=make_layout(F8, shape))
        return nodes.graph(nodes.add("negative", middle, layout=make_layout(F8, shape)))

    assert alike(graph(*left), graph(*right)) is expect
    assert alike(graph(*left), graph(*left))


@pytest.mark.parametrize(
    "other",
    [
        {"residency": (frozenset(("host", "sim")), frozenset(("host",)))},
        {"bases": (0, 0)},
        {"windows": {1: 10**6}},
        {"host_required": frozenset((0,))},
        {"force": ("cpu", "generated")},
        {"floors": {"all": 70_000}},
        {"on_gap": "raise"},
        {"devices": (CPU,)},
        {"estimate": by_size},
    ],
    ids=lambda other: next(iter(other)),
)
def test_graphs_of_other_circumstances_are_not_alike(other: dict[str, Any]) -> None:
    facts = replace(FACTS, residency=(frozenset(("host",)),) * 2, bases=(0, 1))
    assert not alike(one(FROM, FROM), one(FROM, FROM), facts, replace(facts, **other))


def test_graphs_of_another_structure_are_not_alike() -> None:
    build = Builder(FROM, FROM)
    reduced = build.graph(build.reduce("sum", build.add("add", 0, 1), (0,)))
    build = Builder(FROM, FROM)
    along = build.graph(build.reduce("sum", build.add("add", 0, 1), (1,)))
    build = Builder(FROM, FROM)
    both = build.add("add", 0, 1)
    given = build.graph(build.add("negative", both), both)
    graphs = [reduced, along, given, one(FROM, FROM)]
    for position, left in enumerate(graphs):
        for right in graphs[:position]:
            assert not alike(left, right)


def test_what_cannot_be_compared_is_like_nothing() -> None:
    build = Builder(FROM)
    graph = build.graph(build.add("roll", 0, layout=FROM, shift=[1]))
    cuts: Cuts = {}
    assert likeness(graph, FACTS) is None
    assert contents(make_plan(graph, FACTS, cuts)) == contents(make_plan(graph, FACTS))
    assert not cuts


# --- what each size decides anew ----------------------------------------------------------------
def chain(count: int) -> Graph:
    """Return two ops on so many elements."""
    own = plain(count)
    build = Builder(own)
    return build.graph(build.add("negative", build.add("exp", 0, layout=own), layout=own))


def both_ways(graph: Graph, facts: Facts, cuts: Cuts) -> Plan:
    """Return the plan with the cuts there are, which must be the one without them."""
    known = len(cuts)
    plan = make_plan(graph, facts, cuts)
    assert len(cuts) == known, "it is cut as a graph before it was"
    assert contents(plan) == contents(make_plan(graph, facts))
    return plan


def test_regions_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = place.fuse

    def fuse(*args: Any) -> Any:
        asked.append(args[0])
        return real(*args)

    monkeypatch.setattr(place, "fuse", fuse)
    facts = POLICIES["by cost"]
    cuts: Cuts = {}
    make_plan(chain(70_000), facts, cuts)
    first = len(asked)
    for count in range(70_001, 70_100):
        make_plan(chain(count), facts, cuts)
    assert first > 0 and len(asked) == first
    make_plan(chain(2**17), facts, cuts)
    assert len(asked) > first


def test_the_floor_is_crossed_inside_a_class() -> None:
    facts = replace(POLICIES["by cost"], devices=(CPU,), floors={"all": 75_000})
    cuts: Cuts = {}
    make_plan(chain(70_000), facts, cuts)
    (step,) = launches(both_ways(chain(74_999), facts, cuts))
    assert (step.implementation, step.decision.reason) == ("numpy", Reason.BELOW_FLOOR)
    (step,) = launches(both_ways(chain(75_000), facts, cuts))
    assert step.decision.reason is Reason.CHEAPEST and step.implementation == "generated"


@pytest.mark.parametrize("first", [600, 1000])
def test_who_is_cheaper_is_told_by_the_size_itself(first: int) -> None:
    # NumPy: 2e-6 + 8e-9 n; generated: 1e-5 + 1e-9 n
    def seconds(group: Group, device: str, implementation: str) -> Estimate:
        if device == "sim:0":
            return at(1.0)
        rate = 8e-9 if implementation == "numpy" else 1e-9
        return at({"numpy": 4e-6}.get(implementation, 1e-5) + rate * elements(group))

    facts = replace(FACTS, estimate=seconds)
    cuts: Cuts = {}
    make_plan(chain(first), facts, cuts)
    for count in (513, 800, 857, 858, 1020):
        (step,) = launches(both_ways(chain(count), facts, cuts))
        assert step.implementation == ("numpy" if count <= 857 else "generated"), count
        assert step.decision.elements == count
        for candidate in step.decision.candidates:
            expect = seconds(step.group, candidate.device, candidate.implementation)
            assert candidate.estimate == expect


def test_a_device_has_room_for_the_size_itself() -> None:
    def graph(count: int) -> Graph:
        build = Builder(plain(count, 70))
        return build.graph(build.reduce("sum", 0, (0,)))

    needed = (300 * 70 + 70) * 8
    facts = replace(FACTS, devices=(CPU, replace(SIM, memory_bytes=needed)), force=("sim:0", None))
    cuts: Cuts = {}
    make_plan(graph(290), facts, cuts)
    (step,) = launches(both_ways(graph(300), facts, cuts))
    assert (step.device, step.decision.reason) == ("sim:0", Reason.PINNED)
    (step,) = launches(both_ways(graph(301), facts, cuts))
    assert (step.device, step.decision.reason) == ("cpu", Reason.GAP)
    gone = [c for c in step.decision.candidates if c.device == "sim:0"]
    assert {candidate.reason for candidate in gone} == {Reason.OUT_OF_MEMORY}


def test_a_limit_of_indices_halves_what_was_one_kernel() -> None:
    def supports(device: str, implementation: str, group: Group) -> str | None:
        many = len(group.graph.nodes) > 1 and elements(group) * 8 >= 2**31
        return "offsets of 32 bits" if implementation == "generated" and many else None

    facts = replace(FACTS, force=("cpu", "generated"), supports=supports)
    cuts: Cuts = {}
    (whole,) = launches(make_plan(chain(2**28 - 1), facts, cuts))
    assert len(whole.group.graph.nodes) == 2
    (cut,) = cuts.values()
    graph = chain(2**28)
    cuts[likeness(rewrite(graph).graph, facts)] = cut  # as if both sizes were of one class
    plan = both_ways(graph, facts, cuts)
    assert [len(step.group.graph.nodes) for step in launches(plan)] == [1, 1]
    assert [refusal.reason for refusal in plan.refused] == ["offsets of 32 bits"]


def reduced(count: int) -> Graph:
    """Return the sum of what two ops make."""
    build = Builder(plain(count))
    return build.graph(build.reduce("sum", build.add("negative", build.add("exp", 0)), (0,)))


@pytest.mark.parametrize("first", [70_000, 120_000])
def test_a_fusion_that_is_close_is_weighed_for_each_size(first: int) -> None:
    def seconds(group: Group, device: str, implementation: str) -> Estimate:
        if device == "sim:0" or implementation == "numpy":
            return at(1.0)
        count = max([layout.size for layout in group.graph.inputs])
        kinds = {node.op.name for node in group.graph.nodes}
        whole = "sum" in kinds and len(kinds) > 1
        return at(3e-6 + (1.5e-9 if whole else 0.7e-9) * count)

    facts = replace(FACTS, estimate=seconds, step_seconds=0.0)
    cuts: Cuts = {}
    make_plan(reduced(first), facts, cuts)
    assert not any([cut.clear for cut in cuts.values()])
    made = [len(launches(both_ways(reduced(count), facts, cuts))) for count in (70_000, 120_000)]
    assert made == [1, 2] or made == [2, 2], made


def test_a_fusion_that_is_clear_is_not_weighed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = POLICIES["by cost"]
    cuts: Cuts = {}
    make_plan(chain(70_000), facts, cuts)
    assert [cut.clear for cut in cuts.values()] == [True]

    def gated(*args: Any) -> Any:
        raise AssertionError("weighed again")

    monkeypatch.setattr(place, "gated", gated)
    make_plan(chain(70_001), facts, cuts)


def test_regions_are_handed_out_anew() -> None:
    """What planning a size changes in regions is not seen by the sizes to come."""
    part = Region(GroupKind.LOOP, "key", 0, [1, 2], {2}, [2])
    whole = Region(GroupKind.ROWWISE, "key", 1, [1, 2, 3], {3}, [3], [part])
    kept = repr(whole)
    (given,) = copied((whole,))
    assert repr(given) == kept
    for region in (given, *given.parts):
        region.members.append(9)
        region.owned.clear()
        region.outputs.clear()
        region.key = None
    given.parts.clear()
    assert repr(whole) == kept


# --- programs -----------------------------------------------------------------------------------
def escape(np_: Any, n: int) -> list[Any]:
    """Return a set of points as they leave it, by masks."""
    y, x = np.mgrid[-1.5 : 1.5 : n * 1j, -1.5 : 1.5 : n * 1j]
    z = np_.asarray(x) + 1j * np_.asarray(y)
    counts = np_.zeros(z.shape, dtype=int)
    for turn in range(6):
        inside = np_.abs(z) < 2
        z[inside] = z[inside] ** 2 + (-0.8 + 0.156j)
        counts[inside] = turn
    return [z, counts, counts.sum()]


def picked(np_: Any, n: int) -> list[Any]:
    """Return what is made of the elements that a mask leaves, one or none of them too."""
    a = np_.asarray(np.linspace(-1.0, 1.0, n))
    found = []
    for least in (-2.0, -0.5, 0.0, 0.7, 0.999, 1.0, 3.0):
        part = a[a >= least]
        found += [part * 2 + part, (part * part).sum(), part[::2] - part[::-1][::2]]
    return found


def windows(np_: Any, n: int) -> list[Any]:
    """Return what windows of one array are summed to, and rows against columns."""
    a = np_.asarray(np.arange(float(n * (n + 3))).reshape(n, n + 3))
    around = a[1:-1, 1:-1] + a[:-2, 1:-1] * a[2:, 2:]
    b = a.T * 2
    b[1:3] = a[:, 1:3].T + 1
    a[1:-1, ::2] += 3
    return [around, a, b, a - a.mean(axis=1, keepdims=True), b / b.max(axis=0), a.sum(axis=0)]


MODES: dict[str, dict[str, Any]] = {
    "automatic": {},
    "generated": {"force": "cpu:generated", "floor": 0},
    "numpy": {"force": "cpu:numpy", "floor": 0},
    "sim": {"force": "sim:0", "floor": 0},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", [escape, picked, windows])
def test_programs_of_any_size_equal_numpy(
    mode: str, program: Callable[[Any, int], list[Any]]
) -> None:
    chooser = random.Random(f"{mode} {program.__name__}")
    sizes = [5, 8, 9, 63, 64, 65, 66, 130, *[chooser.randrange(5, 200) for _ in range(12)]]
    forget(Cache.PLANS)
    shared = 0
    for n in sizes:
        with alight.policy(**MODES[mode]):
            known = len(runs._plans) - len(runs._cuts)
            found = [np.asarray(part) for part in program(alight, n)]
            shared += len(runs._plans) - len(runs._cuts) - known
        for ours, theirs in zip(found, program(np, n), strict=True):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert shared > 0 or mode == "automatic", "no plan was cut as one before it"


def test_plans_of_other_sizes_push_the_oldest_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_PLANS_KEPT", 8)
    forget(Cache.PLANS)
    forgotten = []
    monkeypatch.setattr(runs, "forget", lambda *caches: forgotten.append(caches))
    with alight.policy(force="cpu:generated", floor=0):
        for n in range(1000, 1020):
            a = alight.asarray(np.arange(float(n)))
            assert float((a * 2 + 1).sum()) == n * n
            assert len(runs._plans) <= 8 and len(runs._cuts) == 1
    assert not forgotten
