"""Plans compute what the graph computes, wherever things run; placement is the best there is."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from alight._core import Layout, make_layout
from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import Group
from alight._src.ir.op import Kind
from alight._src.ir.op_table import OPS
from alight._src.plan.choose import group_key
from alight._src.plan.compile_work import KERNEL_WORK, work_of
from alight._src.plan.fuse import KERNEL_ARRAYS, KERNEL_NODES
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Estimate, Facts, LaunchStep, Plan, Source, ViewStep, WriteStep
from alight._src.plan.plan_cost import account
from alight._src.plan.profile import Profile
from alight._src.plan.rowwise_fusion import ROW_BYTES
from alight.device import Reason, Support
from alight.errors import DTypeUnsupported, UnsupportedOnDevice
from counting import counted
from graphs import F8, Builder, evaluate, random_graph, run_plan, same, stored
from plan_facts import (
    CPU,
    FACTS,
    GPU,
    POLICIES,
    SIM,
    at,
    launches,
    no_float32,
    plan_faults,
)

BIG = make_layout(F8, (300, 200))
AXES = ((0,), (1,), (0, 1))
LONG = make_layout(F8, (3, 200_000))  # its rows do not stay in cache


def operations(plan: Plan) -> list[str]:
    return [step.decision.operation for step in launches(plan)]


# --- plans are right ----------------------------------------------------------------------------
@pytest.mark.parametrize("policy", POLICIES)
def test_random_graphs_give_the_same_values(policy: str) -> None:
    facts = POLICIES[policy]
    seen: set[type] = set()
    chosen: set[str] = set()
    for seed in range(120):
        graph, inputs = random_graph(seed, 5 + seed % 60)
        plan = make_plan(graph, facts)
        assert plan_faults(plan, graph) == [], f"seed {seed}\n{graph}"
        expect = evaluate(graph, inputs)
        copies = [(raw.copy(), offset, layout) for raw, offset, layout in inputs]
        there, _ = run_plan(plan, copies)
        for output in graph.outputs:
            assert same(expect[output], there[output]), f"seed {seed}: %{output}\n{graph}"
        # Nothing but the outputs, and what they are windows of, is kept to the end.
        windows = {s.target: s.source for s in plan.steps if isinstance(s, ViewStep)}
        kept = set(graph.outputs)
        for output in graph.outputs:
            while output in windows:
                output = windows[output]
                kept.add(output)
        assert set(there) == kept, f"seed {seed}"
        seen.update(map(type, plan.steps))
        chosen.update(step.device for step in launches(plan))
    assert seen == {LaunchStep, ViewStep, WriteStep}
    used = {"uncalibrated": 1, "generated": 1, "sim": 1, "by cost, three memories": 3}
    assert len(chosen) == used.get(policy, 2)


@pytest.mark.parametrize("policy", POLICIES)
def test_stencil_steps_write_in_place(policy: str) -> None:
    b = Builder(BIG, make_layout(F8, ()))
    u = 0
    inner = np.s_[1:-1, 1:-1]
    for _ in range(10):
        parts = [b.view(u, key) for key in (np.s_[2:, 1:-1], np.s_[:-2, 1:-1], np.s_[1:-1, 2:])]
        total = b.add("add", b.add("add", parts[0], parts[1]), parts[2])
        centre = b.view(u, inner)
        u = b.write(u, inner, b.add("add", centre, b.add("multiply", total, 1)))
    graph = b.graph(u)
    plan = make_plan(graph, POLICIES[policy])
    assert plan_faults(plan, graph) == []
    inputs = [stored(np.random.default_rng(0).random(one.shape), one) for one in graph.inputs]
    expect = evaluate(graph, inputs)[u]
    there, copies = run_plan(plan, [(raw.copy(), *rest) for raw, *rest in inputs])
    assert same(expect, there[u])
    assert copies == 0
    if policy in ("uncalibrated", "generated"):
        assert len(launches(plan)) == 10


def test_readers_come_before_the_write_of_what_they_read() -> None:
    # The reader fuses with a later node, and must not drag it past the write.
    b = Builder(BIG, BIG)
    reader = b.add("negative", 0)
    total = b.reduce("sum", b.add("exp", 1), (0, 1))
    written = b.write(0, np.s_[0], b.view(1, np.s_[0]))
    late = b.add("multiply", reader, total)
    graph = b.graph(late, written)
    for facts in POLICIES.values():
        plan = make_plan(graph, facts)
        write = next(i for i, s in enumerate(plan.steps) if isinstance(s, WriteStep))
        assert 0 in plan.dead[write]


def test_a_kernel_that_ends_later_still_reads_before_the_write() -> None:
    b = Builder(BIG, BIG)
    reader = b.add("negative", 0)
    written = b.write(0, np.s_[0], b.view(1, np.s_[0]))
    graph = b.graph(b.add("exp", reader), written)
    plan = make_plan(graph, FACTS)
    assert [type(step) for step in plan.steps] == [ViewStep, LaunchStep, WriteStep]
    assert 0 in plan.dead[-1]


def test_inputs_that_share_memory_are_read_before_it_is_written() -> None:
    b = Builder(BIG, make_layout(F8, (100, 200)), BIG)
    written = b.write(0, np.s_[:100], b.view(2, np.s_[:100]))
    doubled = b.add("add", 1, 1)
    graph = b.graph(written, doubled)
    plan = make_plan(graph, replace(FACTS, bases=(0, 0, 2)))
    write = next(i for i, s in enumerate(plan.steps) if isinstance(s, WriteStep))
    # Recorded after the write, the reader of the old bytes keeps it from being done in place.
    assert 0 not in plan.dead[write]
    b = Builder(BIG, make_layout(F8, (100, 200)), BIG)
    doubled = b.add("add", 1, 1)
    total = b.add("add", b.add("exp", 2), b.reduce("sum", 2, (0, 1)))
    late = b.add("multiply", doubled, b.reduce("sum", total, (0,)))
    written = b.write(0, np.s_[:100], b.view(2, np.s_[:100]))
    graph = b.graph(written, late)
    plan = make_plan(graph, replace(FACTS, bases=(0, 0, 2)))
    write = next(i for i, s in enumerate(plan.steps) if isinstance(s, WriteStep))
    assert 0 in plan.dead[write]


def test_faults_of_plans_are_found() -> None:
    b = Builder(BIG)
    graph = b.graph(b.add("exp", b.reduce("sum", b.add("exp", 0), (0,))))
    plan = make_plan(graph, FACTS)
    assert plan_faults(plan, graph) == []
    backwards = replace(plan, steps=plan.steps[::-1])
    assert any("not there yet" in fault for fault in plan_faults(backwards, graph))
    early = replace(plan, dead=((1, 2), *plan.dead[1:]))
    assert any("dead" in fault for fault in plan_faults(early, graph))
    assert plan_faults(replace(plan, outputs=(0,)), graph)


# --- fusion -------------------------------------------------------------------------------------
def normalised(layout: Layout = LONG) -> Graph:
    """Return rows shifted and scaled to mean 0 and variance 1, and their squared error."""
    b = Builder(layout, make_layout(F8, ()))
    mean = b.reduce("sum", 0, (1,), keepdims=True)
    centred = b.add("subtract", 0, mean)
    variance = b.reduce("sum", b.add("multiply", centred, centred), (1,), keepdims=True)
    scaled = b.add("divide", centred, b.add("sqrt", variance))
    result = b.add("maximum", scaled, 1)
    error = b.add("subtract", result, 0)
    return b.graph(b.reduce("sum", b.add("multiply", error, error), (0, 1)), result)


def test_generated_kernels_recompute_what_is_cheap() -> None:
    plan = make_plan(normalised(), POLICIES["generated"])
    assert operations(plan) == [
        "sum",
        "subtract+multiply+sum",
        "sqrt",
        "subtract+divide+maximum",
        "subtract+divide+maximum+subtract+multiply+sum",
    ]


@pytest.mark.parametrize(("rate", "again"), [(1e-14, False), (1e-13, True)])
def test_a_value_is_computed_again_only_for_more_than_the_least_gain(
    rate: float, again: bool
) -> None:
    """Of differences that two reductions along other axes read, one reads what they are made of
    instead, and nobody writes them: 4.8 MB less are moved."""
    b = Builder(LONG, make_layout(F8, ()))
    difference = b.add("subtract", 0, 1)
    reductions = [b.reduce("sum", difference, axes, keepdims=True) for axes in ((0,), (1,))]
    graph = b.graph(*reductions)

    def moved(group: Group, device: str, implementation: str) -> Estimate | None:
        nbytes = sum(layout.nbytes for layout in group.graph.inputs)
        nbytes += sum(group.graph.layouts[n].nbytes for n in group.graph.outputs)
        return at(1e-6 + rate * nbytes) if implementation == "generated" else at(1.0)

    facts = replace(FACTS, force=("cpu", "generated"), estimate=moved)
    plan = make_plan(graph, facts)
    assert plan_faults(plan, graph) == []
    found = [op for name in operations(plan) for op in name.split("+")]
    assert (found.count("subtract") == 2) is again, operations(plan)


# --- rows ---------------------------------------------------------------------------------------
def test_rows_that_stay_in_cache_are_visited_once() -> None:
    plan = make_plan(normalised(BIG), POLICIES["generated"])
    first, last = launches(plan)
    assert first.group.kind is GroupKind.ROWWISE
    assert first.decision.kind == "rowwise"
    assert first.decision.shapes == ((300, 200), (), (300, 1), (300, 1), (300, 200))
    assert first.decision.bytes == 2 * BIG.nbytes + 2 * 300 * 8 + 8
    assert last.group.kind is GroupKind.REDUCE  # over other axes
    estimate = POLICIES["by cost"].estimate(first.group, "cpu", "generated")
    assert estimate is not None
    assert [s.group.kind for s in launches(make_plan(normalised(BIG), FACTS))].count(
        GroupKind.ROWWISE
    ) == 0  # NumPy runs node by node in any case


@pytest.mark.parametrize("what", ["reduced", "given", "again", "elsewhere"])
def test_rows_of_any_length_are_reduced_in_one_kernel(what: str) -> None:
    b = Builder(make_layout(F8, (ROW_BYTES,)))
    double = b.add("add", 0, 0)
    root = b.add("sqrt", b.reduce("sum", double, (0,)))
    outputs = {
        "reduced": (root,),
        "given": (root, double),
        # what is made of the row again would be read from memory again
        "again": (b.reduce("max", b.add("subtract", double, root), (0,)),),
        "elsewhere": (root,),  # a device that gives a row to one block
    }[what]
    facts = POLICIES["generated"]
    if what == "elsewhere":
        facts = replace(FACTS, devices=(CPU, GPU), force=(GPU.id, "generated"))
    kinds = [s.group.kind for s in launches(make_plan(b.graph(*outputs), facts))]
    assert (kinds == [GroupKind.ROWWISE]) == (what == "reduced"), kinds


@pytest.mark.parametrize("apart", [False, True])
def test_windows_of_one_array_are_one_to_rows(apart: bool) -> None:
    count = KERNEL_ARRAYS + 4
    b = Builder(*[make_layout(F8, (500,))] * count)
    value = 0
    for number in range(1, count):
        value = b.add("add", value, number)
    graph = b.graph(b.add("sqrt", b.reduce("sum", value, (0,))))
    facts = replace(POLICIES["generated"], bases=tuple(range(count)) if apart else (0,) * count)
    assert (len(launches(make_plan(graph, facts))) == 1) == (not apart)


def test_what_cannot_run_row_by_row_runs_as_before() -> None:
    facts = replace(
        POLICIES["generated"],
        supports=lambda _, __, group: "no" if group.kind is GroupKind.ROWWISE else None,
    )
    graph = normalised(BIG)
    plan = make_plan(graph, facts)
    assert plan_faults(plan, graph) == []
    assert {s.group.kind for s in launches(plan)} == {GroupKind.LOOP, GroupKind.REDUCE}


def test_rows_are_told_from_columns() -> None:
    square = make_layout(F8, (200, 200))
    for axis, keepdims, kinds in (
        (1, True, [GroupKind.ROWWISE]),
        (0, False, [GroupKind.ROWWISE]),
        # the sums of rows, taken from columns
        (1, False, [GroupKind.REDUCE, GroupKind.LOOP]),
    ):
        b = Builder(square)
        total = b.reduce("sum", 0, (axis,), keepdims=keepdims)
        graph = b.graph(b.add("subtract", 0, total))
        plan = make_plan(graph, POLICIES["generated"])
        assert [step.group.kind for step in launches(plan)] == kinds
        assert plan_faults(plan, graph) == []


def test_what_runs_between_keeps_rows_apart() -> None:
    b = Builder(BIG)
    total = b.reduce("sum", 0, (1,), keepdims=True)
    moved = b.add("roll", total, layout=make_layout(F8, (300, 1)), shift=1)
    graph = b.graph(b.add("subtract", 0, moved))
    plan = make_plan(graph, POLICIES["generated"])
    assert plan_faults(plan, graph) == []
    assert operations(plan) == ["sum", "roll", "subtract"]


def test_numpys_launches_recompute_no_node() -> None:
    graph = normalised()
    nodes = [number for step in launches(make_plan(graph, FACTS)) for number in step.nodes]
    assert sorted(nodes) == list(range(2, 2 + len(graph.nodes)))


def test_transcendentals_are_not_recomputed() -> None:
    b = Builder(LONG)
    grown = b.add("exp", 0)
    graph = b.graph(b.add("divide", grown, b.reduce("sum", grown, (1,), keepdims=True)))
    plan = make_plan(graph, POLICIES["generated"])
    assert operations(plan) == ["exp", "sum", "divide"]


def test_recomputing_starts_from_what_is_stored_anyway() -> None:
    b = Builder(LONG, LONG)
    stored_anyway = b.add("add", 0, 1)
    cheap = b.add("negative", stored_anyway)
    graph = b.graph(stored_anyway, b.add("exp", cheap), b.reduce("sum", cheap, (1,)))
    plan = make_plan(graph, POLICIES["generated"])
    assert operations(plan) == ["add+negative+exp", "negative+sum"]


@pytest.mark.parametrize("shape", [(5, 1, 2), (4000, 2), (2, 4000)])
@pytest.mark.parametrize("axis", [0, -1])
def test_scans_are_not_recomputed_in_reductions(shape: tuple[int, ...], axis: int) -> None:
    over = make_layout(np.dtype("i8"), shape)
    b = Builder(make_layout(np.dtype("i1"), shape), make_layout(np.dtype("i8"), ()))
    summed = b.add("cumsum", 0, layout=over, axis=axis % len(shape))
    bounded = b.add("minimum", summed, 1)
    total = b.reduce("sum", bounded, (len(shape) - 1,))
    more = b.add("negative", b.add("roll", summed, layout=over, shift=1))
    for outputs in (
        *(b.graph(summed, bounded, total), b.graph(total), b.graph(summed, total)),
        *(b.graph(bounded, total), b.graph(total, more), b.graph(bounded, total, more)),
    ):
        for facts in (
            POLICIES["generated"],
            replace(FACTS, devices=(CPU, GPU), force=(GPU.id, "generated")),
            replace(POLICIES["generated"], estimate=lambda *_: None),
        ):
            plan = make_plan(outputs, facts)
            assert plan_faults(plan, outputs) == []


def test_what_a_library_reads_is_stored_and_so_not_recomputed() -> None:
    b = Builder(LONG)
    value = b.add("negative", 0)
    rolled = b.add("roll", value, layout=LONG, shift=1)
    graph = b.graph(rolled, b.reduce("sum", value, (1,)))
    plan = make_plan(graph, POLICIES["generated"])
    assert sorted(operations(plan)) == ["negative", "roll", "sum"]


def test_a_reduction_reads_one_array_rather_than_three() -> None:
    b = Builder(BIG, BIG, BIG)
    x, y, z = (b.add("exp", number) for number in range(3))
    other = b.add("multiply", b.add("multiply", x, y), z)
    total = b.reduce("sum", b.add("add", b.add("add", x, y), z), (0,))
    plan = make_plan(b.graph(other, total), FACTS)
    assert operations(plan)[1:] == ["sum"]


def picking(b: Builder, summed: int) -> Graph:
    which, x, y = b.add("greater", 0, 1), b.add("exp", 0), b.add("exp", 1)
    picked = b.add("where", which, x, y)
    total = b.reduce("sum", b.add("exp", 2) if summed == 2 else x, (0,))
    return b.graph(which, x, y, b.add("multiply", picked, b.add("sqrt", total)))


def test_nodes_that_wait_for_nothing_join_one_that_waits_together() -> None:
    plan = make_plan(picking(Builder(BIG, BIG, BIG), 2), FACTS)
    assert sorted(operations(plan)) == ["exp+sum", "greater+exp+exp+where+multiply", "sqrt"]


def test_a_node_stays_where_moving_it_would_read_more() -> None:
    plan = make_plan(picking(Builder(BIG, BIG, BIG), 0), FACTS)
    assert sorted(operations(plan)) == ["greater+exp+exp+where", "multiply", "sqrt", "sum"]


def test_one_row_does_not_part_what_reads_it_from_the_rest() -> None:
    """Half of a long expression is there before a row is made that the other half reads."""
    b = Builder(BIG, make_layout(F8, (BIG.shape[-1],)))
    early = [b.add("multiply", 0, b.add("exp", 0)) for _ in range(20)]
    value = b.add("add", 0, b.add("square", 1))
    for one in early:
        value = b.add("add", value, one)
    plan = make_plan(b.graph(value), FACTS)
    assert len(launches(plan)) == 2


def test_one_kernel_gives_several_outputs_and_reads_an_array_once() -> None:
    b = Builder(BIG)
    up, down = b.add("exp", 0), b.add("negative", 0)
    plan = make_plan(b.graph(up, down, b.add("add", up, down)), POLICIES["generated"])
    (step,) = launches(plan)
    assert step.inputs == (0,)
    assert step.outputs == (1, 2, 3)


def test_a_reduction_takes_its_producers_along() -> None:
    b = Builder(BIG, BIG)
    product = b.add("multiply", 0, 1)
    graph = b.graph(b.reduce("sum", product, (0,)), b.reduce("max", product, (0,)))
    (step,) = launches(make_plan(graph, FACTS))
    assert step.group.kind is GroupKind.REDUCE
    graph = b.graph(b.reduce("sum", product, (0,)), b.reduce("sum", product, (1,)))
    kinds = [step.group.kind for step in launches(make_plan(graph, FACTS))]
    assert kinds == [GroupKind.LOOP, GroupKind.REDUCE, GroupKind.REDUCE]


def test_what_only_a_later_kernel_reads_is_computed_there() -> None:
    b = Builder(BIG, BIG)
    early = b.add("exp", 1)
    total = b.reduce("sum", b.add("exp", 0), (0,))
    graph = b.graph(b.add("multiply", early, b.add("sqrt", total)))
    assert operations(make_plan(graph, FACTS)) == ["exp+sum", "sqrt", "exp+multiply"]


def test_fusion_makes_no_cycle_through_a_node_outside() -> None:
    b = Builder(BIG)
    start = b.add("exp", 0)
    around = b.add("roll", start, layout=BIG, shift=1)
    graph = b.graph(b.add("add", start, around))
    assert operations(make_plan(graph, FACTS)) == ["exp", "roll", "add"]


def test_kernels_stay_below_their_most_nodes() -> None:
    b = Builder(BIG, *[BIG] * 40)
    value = 0
    for number in range(200):
        value = b.add("add", value, 1 + number % 40)
    for facts in (FACTS, POLICIES["generated"]):
        plan = make_plan(b.graph(value), facts)
        assert max(len(step.nodes) for step in launches(plan)) <= KERNEL_NODES
        assert max(len(step.inputs) for step in launches(plan)) <= KERNEL_ARRAYS


@pytest.mark.parametrize("ends", [False, True])
def test_turns_of_a_loop_are_few_kernels_whatever_their_number(ends: bool) -> None:
    """What a compiler may take has room for 8 to 15 turns: 8 are a kernel, and what is left is cut
    alike."""
    b = Builder(BIG, make_layout(F8, ()))
    made: dict[int, set[str]] = {}
    for count in (100, 75, 67):
        value = b.add("cos", b.add("sqrt", 0)) if ends else 0
        for _ in range(count):
            value = b.add("add", b.add("multiply", b.add("sin", value), 1), value)
        value = b.add("tanh", value) if ends else value
        steps = launches(make_plan(b.graph(value), POLICIES["generated"]))
        turns = [[node.op.name for node in step.group.graph.nodes].count("sin") for step in steps]
        left = [1 << k for k in range(2, -1, -1) if count % 8 >> k & 1]
        assert [n for n in turns if n] == [8] * (count // 8) + left
        for step, n in zip(steps, turns, strict=True):
            if 3 * n == len(step.group.graph.nodes):
                made.setdefault(n, set()).add(group_key(step.group))
    assert 8 in made and all(len(keys) == 1 for keys in made.values())


def test_turns_larger_than_a_kernel_are_cut_alike() -> None:
    b = Builder(BIG, BIG)
    value = 0
    for _ in range(3):
        for _ in range(70):
            value = b.add("remainder", value, 1)
        for _ in range(20):
            value = b.add("add", value, 1)
    steps = launches(make_plan(b.graph(value), POLICIES["generated"]))
    turn = [len(step.group.graph.nodes) for step in steps[: len(steps) // 3]]
    assert sum(turn) == 90 and [len(step.group.graph.nodes) for step in steps] == turn * 3
    assert len({group_key(step.group) for step in steps}) <= len(turn)


def test_kernels_of_remainders_are_smaller() -> None:
    b = Builder(BIG, BIG)
    value = 0
    for _ in range(100):
        value = b.add("remainder", value, 1)
    plan = make_plan(b.graph(value), POLICIES["generated"])
    most = max(work_of(step.group) for step in launches(plan))
    assert KERNEL_WORK / 2 < most <= KERNEL_WORK


@pytest.mark.parametrize("seed", range(12))
def test_no_kernel_of_a_plan_is_more_than_a_compiler_may_take(seed: int) -> None:
    """Long random programs with many results, special functions and reductions."""
    rng = random.Random(seed)
    b = Builder(BIG, BIG, BIG, make_layout(F8, ()))
    whole = [0, 1, 2]
    ends = []
    for _ in range(rng.choice((100, 400))):
        name = rng.choice(("add", "multiply", "maximum", "sin", "log", "remainder", "sqrt"))
        near = whole[-rng.choice((3, 40)) :]
        operands = [rng.choice(near), rng.choice((3, *near))][: OPS[name].nin]
        whole.append(b.add(name, *operands))
        if rng.random() < 0.1:
            ends.append(b.reduce(rng.choice(("sum", "max", "prod")), whole[-1], rng.choice(AXES)))
    ends += rng.sample(whole[3:], rng.choice((1, 60)))
    for facts in (FACTS, POLICIES["generated"]):
        for step in launches(make_plan(b.graph(*ends), facts)):
            if len(step.nodes) > 1 and step.implementation == "generated":
                assert work_of(step.group) <= KERNEL_WORK


def test_an_unsupported_node_is_split_out() -> None:
    b = Builder(make_layout(F8, (300, 200)))
    low = b.add("exp", b.cast(b.add("negative", 0), "f4"))
    graph = b.graph(b.add("exp", b.add("negative", b.cast(low, "f8"))))
    facts = replace(FACTS, force=("cpu", "generated"), supports=no_float32)
    plan = make_plan(graph, facts)
    assert [
        (step.decision.operation, step.implementation, step.decision.reason)
        for step in launches(plan)
    ] == [
        ("negative", "generated", Reason.PINNED),
        ("cast+exp+cast", "numpy", Reason.GAP),
        ("negative+exp", "generated", Reason.PINNED),
    ]


def test_a_kernel_too_large_for_a_device_is_halved() -> None:
    b = Builder(BIG)
    value = 0
    for _ in range(10):
        value = b.add("exp", b.add("negative", value))
    facts = replace(FACTS, force=("sim:0", "generated"), supports=no_float32)
    steps = launches(make_plan(b.graph(b.reduce("sum", value, (0,))), facts))
    assert {step.device for step in steps} == {"sim:0"}
    assert all(len(step.nodes) <= 3 for step in steps)


# --- reasons ------------------------------------------------------------------------------------
def one(name: str = "exp") -> Graph:
    b = Builder(BIG)
    return b.graph(b.add(name, 0))


def decided(graph: Graph, facts: Facts) -> tuple[str, str, Reason]:
    (step,) = launches(make_plan(graph, facts))
    chosen = step.decision
    assert (chosen.chosen, chosen.implementation) == (step.device, step.implementation)
    listed = [(c.device, c.implementation) for c in chosen.candidates]
    assert (chosen.chosen, chosen.implementation) in listed
    for candidate in chosen.candidates:
        if (candidate.device, candidate.implementation) != (step.device, step.implementation):
            told = candidate.estimate
            guessed = told is not None and told.source is not Source.MEASURED
            assert (told is None or guessed) == (candidate.reason is not None)
    return chosen.chosen, chosen.implementation, chosen.reason


def test_without_figures_numpy_runs_it() -> None:
    assert decided(one(), FACTS) == ("cpu", "numpy", Reason.UNCALIBRATED)

    def only_sim(group: Group, device: str, implementation: str) -> Estimate | None:
        return at(1e-9) if device == "sim:0" else None

    # not where copies take longer than the quickest of hosts would
    facts = replace(FACTS, estimate=only_sim, copy_seconds=lambda a, b, n: 1e-3)
    assert decided(one(), facts) == ("cpu", "numpy", Reason.UNCALIBRATED)
    facts = replace(facts, copy_seconds=lambda a, b, n: 1e-9)
    assert decided(one(), facts)[0] == "sim:0"


def on_card_alone(group: Group, device: str, implementation: str) -> Estimate | None:
    return at(1e-5 * len(group.graph.nodes)) if device == "sim:0" else None


@pytest.mark.parametrize(
    ("held", "copy", "read", "device"),
    [
        ("host", 1e-4, False, "cpu"),  # the quickest of hosts needs no copy, and no longer
        ("host", 1e-9, False, "sim:0"),  # for which it would take longer
        ("sim", 1e-4, False, "sim:0"),  # bringing it to NumPy takes longer than all of it there
        ("sim", 5e-6, False, "sim:0"),
        ("sim", 1e-4, True, "sim:0"),  # the host reads what has as many bytes: one more operation
    ],
)
def test_a_host_that_was_not_measured_is_as_quick_as_hosts_can_be(
    held: str, copy: float, read: bool, device: str
) -> None:
    graph = one()
    if read:  # the result is a number, which is soon there
        builder = Builder(BIG)
        graph = builder.graph(builder.reduce("sum", 0, (0, 1)))
    facts = replace(
        FACTS,
        estimate=on_card_alone,
        residency=(frozenset((held,)),),
        copy_seconds=lambda source, target, nbytes: copy if nbytes > 8 else copy / 100,
        host_required=frozenset((0,) if read else ()),
    )
    found, _, reason = decided(graph, facts)
    assert found == device
    assert reason is (Reason.UNCALIBRATED if device == "cpu" else Reason.ALREADY_RESIDENT)
    (step,) = launches(make_plan(graph, facts))
    own = next(c for c in step.decision.candidates if c.device == "cpu")
    others = [c for c in step.decision.candidates if c.device == "sim:0"]
    assert own.estimate is None
    assert own.reason is (None if device == "cpu" else Reason.UNCALIBRATED)
    assert [c.estimate for c in others] == [at(1e-5)] * 2


def test_a_chain_stays_with_its_arrays_as_long_as_that_is_shorter_than_one_copy() -> None:
    """The whole request counts: what NumPy would take is not known, what it would wait for is."""
    builder = Builder(BIG)
    value = 0
    for _ in range(5):  # the library runs each by itself
        value = builder.add("exp", value)
    graph = builder.graph(value)
    support = replace(SIM.support, implementations=("library",))
    facts = replace(
        FACTS,
        devices=(CPU, replace(SIM, support=support)),
        estimate=on_card_alone,
        residency=(frozenset(("sim",)),),
    )
    for held, copy, expect in (
        ("sim", 6e-5, {"sim:0"}),
        ("sim", 1e-9, {"sim:0"}),  # NumPy takes some time, too
        ("host", 1e-3, {"cpu"}),
    ):
        here = replace(facts, residency=(frozenset((held,)),))
        plan = make_plan(graph, replace(here, copy_seconds=lambda a, b, n, copy=copy: copy))
        assert {step.device for step in launches(plan)} == expect, operations(plan)


def test_beside_several_cards_too_arrays_stay_with_who_holds_them() -> None:
    def seconds(group: Group, device: str, implementation: str) -> Estimate | None:
        return {"sim:0": at(1e-5), "cuda:0": at(2e-5)}.get(device)

    for held, expect in (("gpu", "cuda:0"), ("sim", "sim:0"), ("host", "cpu")):
        facts = replace(
            FACTS,
            devices=(CPU, SIM, GPU),
            estimate=seconds,
            residency=(frozenset((held,)),),
            copy_seconds=lambda a, b, n: 1e-4,
        )
        assert decided(one(), facts)[0] == expect


@pytest.mark.parametrize(
    ("force", "expect"),
    [
        (("cpu", "generated"), ("cpu", "generated")),
        ((None, "numpy"), ("cpu", "numpy")),
        (("cpu", None), ("cpu", "numpy")),
        (("sim:0", None), ("sim:0", "generated")),
        ((None, "generated"), ("cpu", "generated")),
        (("sim:0", "library"), ("sim:0", "library")),
    ],
)
def test_force_says_device_and_implementation(
    force: tuple[str | None, str | None], expect: tuple[str, str]
) -> None:
    facts = replace(FACTS, force=force, floors={"all": 60_000})
    assert decided(one(), facts) == (*expect, Reason.PINNED)
    under = replace(facts, floors={"all": 60_001})
    assert decided(one(), under) == ("cpu", "numpy", Reason.BELOW_FLOOR), "a floor speaks first"


def test_force_takes_the_cheapest_that_fits() -> None:
    def seconds(group: Group, device: str, implementation: str) -> Estimate | None:
        return at({"generated": 2e-6, "library": 1e-6, "numpy": 1e-9}[implementation])

    facts = replace(FACTS, force=("sim:0", None), estimate=seconds)
    assert decided(one(), facts) == ("sim:0", "library", Reason.PINNED)


def test_gaps_under_force_are_numpys() -> None:
    facts = replace(FACTS, force=("cpu", "generated"), supports=lambda d, i, g: "too hard")
    assert decided(one(), facts) == ("cpu", "numpy", Reason.GAP)
    (step,) = launches(make_plan(one(), facts))
    (generated,) = [
        c for c in step.decision.candidates if (c.device, c.implementation) == ("cpu", "generated")
    ]
    assert (generated.reason, generated.detail) == (Reason.GAP, "too hard")
    with pytest.raises(
        UnsupportedOnDevice, match=r"exp cannot run on cpu:generated: too hard.*Fix"
    ):
        make_plan(one(), replace(facts, on_gap="raise"))
    gone = replace(FACTS, force=("cuda:0", None))
    assert decided(one(), gone) == ("cpu", "numpy", Reason.GAP)
    with pytest.raises(UnsupportedOnDevice, match="cuda:0: it is not there"):
        make_plan(one(), replace(gone, on_gap="raise"))


def test_dtypes_a_device_lacks() -> None:
    support = Support(("generated",), frozenset({"float32"}))
    facts = replace(FACTS, devices=(CPU, replace(SIM, support=support)), force=("sim:0", None))
    (step,) = launches(make_plan(one(), facts))
    assert step.decision.reason is Reason.GAP
    (sim,) = [c for c in step.decision.candidates if c.device == "sim:0"]
    assert (sim.reason, sim.detail) == (Reason.DTYPE_UNSUPPORTED, "sim:0 has no float64")
    with pytest.raises(DTypeUnsupported, match="exp cannot run on sim:0: sim:0 has no float64"):
        make_plan(one(), replace(facts, on_gap="raise"))


def test_a_group_larger_than_a_devices_memory_is_not_placed_there() -> None:
    builder = Builder(make_layout(F8, (300, 300)))
    graph = builder.graph(builder.reduce("sum", 0, (0,)))
    (step,) = launches(make_plan(graph, FACTS))
    layouts = [*step.group.graph.inputs, *[node.layout for node in step.group.graph.nodes]]
    needed = sum(layout.nbytes for layout in layouts)
    for room, expect in ((needed, Reason.PINNED), (needed - 1, Reason.GAP)):
        small = replace(SIM, memory_bytes=room)
        (step,) = launches(
            make_plan(graph, replace(FACTS, devices=(CPU, small), force=("sim:0", None)))
        )
        assert step.decision.reason is expect
    sims = [c for c in step.decision.candidates if c.device == "sim:0"]
    assert {sim.reason for sim in sims} == {Reason.OUT_OF_MEMORY}
    assert all(f"{needed} bytes" in sim.detail for sim in sims)
    # Elementwise work passes in chunks where code is generated for it.
    facts = replace(FACTS, devices=(CPU, replace(SIM, memory_bytes=1)), force=("sim:0", None))
    (step,) = launches(make_plan(one(), facts))
    assert (step.device, step.implementation) == ("sim:0", "generated")


def test_library_ops_run_by_numpys_library() -> None:
    square = make_layout(F8, (300, 300))
    b = Builder(square)
    graph = b.graph(b.add("matmul", 0, 0, layout=square))
    assert decided(graph, FACTS) == ("cpu", "library", Reason.UNCALIBRATED)
    assert decided(graph, replace(FACTS, force=(None, "numpy")))[2] is Reason.PINNED
    forced = replace(FACTS, force=("cpu", "generated"))
    assert decided(graph, forced) == ("cpu", "library", Reason.GAP)
    b = Builder(square)
    graph = b.graph(b.add("roll", 0, layout=square, shift=1))
    assert decided(graph, FACTS) == ("cpu", "numpy", Reason.UNCALIBRATED)


@pytest.mark.parametrize(
    ("floors", "small"),
    [
        ({"all": 60_001}, True), ({"all": 60_000}, False), ({"unary": 60_001}, True),
        ({"binary": 10**9}, False), ({"unary": 0, "all": 10**9}, False), ({}, False),
    ],
)  # fmt: skip
def test_floors_leave_small_work_to_numpy(floors: dict[str, int], small: bool) -> None:
    def seconds(group: Group, device: str, implementation: str) -> Estimate | None:
        return at(1.0 if implementation == "numpy" else 1e-6)

    facts = replace(FACTS, floors=floors, estimate=seconds)
    expect = ("numpy", Reason.BELOW_FLOOR) if small else ("generated", Reason.CHEAPEST)
    assert decided(one(), facts)[1:] == expect
    (step,) = launches(make_plan(one(), facts))
    assert step.decision.threshold == floors.get("unary", floors.get("all"))


def test_floors_of_reductions_and_products_count_what_is_read() -> None:
    def seconds(group: Group, device: str, implementation: str) -> Estimate | None:
        return at(1e-6 if device == "sim:0" else 1.0)

    b = Builder(BIG)
    total = b.graph(b.reduce("sum", 0, (0, 1)))
    thin = make_layout(F8, (300, 1))
    c = Builder(BIG, make_layout(F8, (200, 1)))
    product = c.graph(c.add("matmul", 0, 1, layout=thin))
    for graph, name in ((total, "reduction"), (product, "matmul")):
        for floor, device_id in ((60_000, "sim:0"), (60_001, "cpu")):
            facts = replace(FACTS, floors={name: floor}, estimate=seconds)
            assert decided(graph, facts)[0] == device_id


def test_groups_that_lost_go_back_to_numpy() -> None:
    def seconds(group: Group, device: str, implementation: str) -> Estimate | None:
        return at(1.0 if implementation == "numpy" else 1e-6)

    facts = replace(FACTS, estimate=seconds)
    (step,) = launches(make_plan(one(), facts))
    facts = replace(facts, demoted=frozenset({step.decision.group}))
    assert decided(one(), facts) == ("cpu", "numpy", Reason.DEMOTED)
    assert decided(one("negative"), facts)[2] is Reason.CHEAPEST


@pytest.mark.parametrize(
    "contended, width, expect",
    [(True, 1.2, "contended"), (True, 1.1, "cheapest"), (False, 1.2, "cheapest")],
)
def test_a_close_choice_by_a_profile_made_amid_other_work_says_so(
    contended: bool, width: float, expect: str
) -> None:
    def seconds(group: Group, device: str, implementation: str) -> Estimate | None:
        took = 1.0 if implementation == "numpy" else 0.8
        return Estimate(took, took / width, took * width, {"memory": took})

    profiles = {"cpu": Profile("cpu", {}, contended=contended)}
    facts = replace(FACTS, devices=(CPU,), estimate=seconds, profiles=profiles)
    (step,) = launches(make_plan(one(), facts))
    assert (step.decision.reason, step.decision.is_by_cost) == (expect, True)
    off = decided(one(), replace(facts, enabled=False))
    assert off == ("cpu", "numpy", Reason.DISABLED)


def test_the_host_is_the_last_resort_where_it_was_not_named() -> None:
    facts = replace(FACTS, devices=(SIM,))
    assert decided(one(), facts)[::2] == ("sim:0", Reason.POLICY)
    facts = replace(facts, supports=lambda d, i, g: "no")
    assert decided(one(), facts) == ("cpu", "numpy", Reason.GAP)


# --- placement ----------------------------------------------------------------------------------
def chain(length: int) -> Graph:
    """Return library calls one after another, which cannot fuse."""
    b = Builder(BIG)
    value = 0
    for shift in range(length):
        value = b.add("roll", value, layout=BIG, shift=shift)
    return b.graph(value)


def placed(graph: Graph, gain: float, copy: float, **fields: object) -> list[tuple[str, Reason]]:
    def seconds(group: Group, device: str, implementation: str) -> Estimate | None:
        return at(10e-6 - (gain if device == "sim:0" else 0.0))

    facts = replace(FACTS, estimate=seconds, copy_seconds=lambda a, b, n: copy)
    facts = replace(facts, **fields)  # type: ignore[arg-type]
    return [(s.device, s.decision.reason) for s in launches(make_plan(graph, facts))]


def test_a_chain_moves_when_its_gain_pays_for_the_copies() -> None:
    asked = {"host_required": frozenset({0})}
    here, away = ("cpu", Reason.ALREADY_RESIDENT), ("sim:0", Reason.CHEAPEST)
    assert placed(chain(1), 4e-6, 10e-6, **asked) == [here]
    assert placed(chain(4), 4e-6, 10e-6, **asked) == [here] * 4
    assert placed(chain(6), 4e-6, 10e-6, **asked) == [away] * 6
    # Left where it is, the result costs no download.
    assert placed(chain(4), 4e-6, 10e-6) == [away] * 4
    # Data that is there already pulls the work.
    there = (frozenset({"sim"}),)
    assert placed(chain(1), 4e-6, 10e-6, residency=there) == [away]
    stays = placed(chain(1), -4e-6, 10e-6, residency=there)
    assert stays == [("sim:0", Reason.ALREADY_RESIDENT)]
    assert placed(chain(1), -4e-6, 1e-6, residency=there) == [("cpu", Reason.CHEAPEST)]


def test_copies_take_all_of_the_memory_that_inputs_are_windows_of() -> None:
    b = Builder(BIG, BIG)
    graph = b.graph(b.add("add", 0, 1, layout=BIG))
    there = {"copy_seconds": lambda a, b, n: 1e-12 * n, "host_required": frozenset({0})}
    copies = 2 * 1e-12 * BIG.nbytes  # one input's, and the result's
    for memory, where in ((0, "sim:0"), (10 * BIG.nbytes, "cpu")):
        windows = {0: memory, 1: memory} if memory else {}
        facts = {**there, "bases": (0, 0), "windows": windows}
        assert placed(graph, 2 * copies, 0.0, **facts)[0][0] == where
        facts_on = replace(FACTS, **facts)  # type: ignore[arg-type]
        forced = replace(facts_on, force=("sim:0", None))
        found = account(make_plan(graph, forced), graph, forced, lambda *_: at(1e-6)).estimate
        assert found is not None
        assert found.terms["upload"] == pytest.approx(1e-12 * (memory or BIG.nbytes))


def test_a_program_that_does_not_fit_a_device_is_split() -> None:
    b = Builder(BIG)
    values = [b.add("roll", 0, layout=BIG, shift=shift) for shift in range(6)]
    graph = b.graph(*values)
    for arrays, there in ((7, 6), (4, 3), (2, 1)):
        small = replace(SIM, memory_bytes=arrays * BIG.nbytes)
        steps = placed(graph, 4e-6, 1e-6, devices=(CPU, small))
        assert [device for device, _ in steps].count("sim:0") == there
        reasons = {reason for device, reason in steps if device == "cpu"}
        assert reasons == ({Reason.OUT_OF_MEMORY} if there < 6 else set())


def test_constants_weigh_nothing_in_placement() -> None:
    b = Builder(make_layout(F8, ()), BIG)
    graph = b.graph(b.add("multiply", 0, 1))
    both = (frozenset({"*"}), frozenset({"sim"}))
    assert placed(graph, 1e-6, 1.0, residency=both) == [("sim:0", Reason.CHEAPEST)]


# --- speed --------------------------------------------------------------------------------------
def mixed(length: int) -> Graph:
    """Return nodes of all kinds, few of which fuse."""
    b = Builder(BIG, make_layout(F8, (200,)))
    value = 0
    while len(b.nodes) < length:
        row = b.reduce("sum", b.add("multiply", value, 1), (0,))
        value = b.add("add", b.add("exp", value), b.add("sqrt", row))
        value = b.write(value, np.s_[1:], b.view(0, np.s_[1:]))
    return b.graph(value)


@pytest.mark.parametrize("policy", ["uncalibrated", "generated", "by cost"])
def test_planning_takes_time_linear_in_nodes(policy: str) -> None:
    small, large = (mixed(length) for length in (200, 2000))
    make_plan(large, POLICIES[policy])  # what is kept from plan to plan
    lines = [
        counted(lambda graph=graph: make_plan(graph, POLICIES[policy]), "line")
        for graph in (small, large)
    ]
    # 10 for linear, 100 for quadratic
    assert lines[1] / lines[0] < 30, lines


def test_decisions_say_what_was_done() -> None:
    graph = normalised()
    (first, *_, last) = launches(make_plan(graph, POLICIES["generated"]))
    assert first.decision.shapes == ((3, 200_000), (3, 1))
    assert first.decision.dtypes == ("float64", "float64")
    assert first.decision.elements == 600_000
    assert first.decision.residency_in == (("host",),)
    assert last.decision.kind == "reduce"
    assert {c.reason for c in last.decision.candidates} == {None, Reason.POLICY}
    assert first.decision.group != last.decision.group
    kinds = {node.op.kind for step in (first, last) for node in step.group.graph.nodes}
    assert kinds == {Kind.ELEMENTWISE, Kind.REDUCTION}


# --- fusion by cost -------------------------------------------------------------------------------
def priced(**seconds: float | None) -> Facts:
    """Return facts in which a kernel takes 10 µs, a byte 10 ps, and each op named here so
    many seconds more in generated code; NumPy takes a millisecond an op."""

    def estimate(group: Group, device: str, implementation: str) -> Estimate | None:
        ops = [node.op.name for node in group.graph.nodes]
        if implementation != "generated":
            return at(1e-3 * len(ops))
        more = [seconds.get(name, 0.0) for name in ops]
        if None in more:
            return None
        layouts = [*group.graph.inputs, *(group.graph.layouts[o] for o in group.graph.outputs)]
        moved = 1e-11 * sum([layout.nbytes for layout in layouts])
        return at(10e-6 + moved + sum(filter(None, more)))

    return replace(FACTS, devices=(CPU,), estimate=estimate)


def test_an_op_without_a_fast_form_does_not_keep_the_others_from_theirs() -> None:
    b = Builder(BIG)
    value = b.add("negative", b.add("floor", b.add("exp", b.add("negative", 0))))
    graph = b.graph(value)
    for facts in (priced(floor=None), priced(floor=1.0)):
        plan = make_plan(graph, facts)
        assert [(s.decision.operation, s.implementation) for s in launches(plan)] == [
            ("negative+exp", "generated"), ("floor", "numpy"), ("negative", "generated"),
        ]  # fmt: skip
        (refused,) = plan.refused
        assert refused.operation == "negative+exp+floor+negative"
        assert refused.parts == ("negative+exp", "floor", "negative")
        assert refused.nodes == (1, 2, 3, 4) and "numpy" in refused.reason
        assert refused.parts_seconds is not None and refused.seconds is not None
        assert refused.parts_seconds < refused.seconds
    assert make_plan(graph, priced()).refused == ()


def test_a_reduction_takes_its_producers_along_only_where_that_pays() -> None:
    b = Builder(BIG)
    graph = b.graph(b.reduce("sum", b.add("exp", 0), (0,)))

    slow = 0.0

    def estimate(group: Group, device: str, implementation: str) -> Estimate | None:
        if implementation != "generated":
            return at(1.0)
        fused = group.kind is GroupKind.REDUCE and len(group.graph.nodes) > 1
        return at(slow if fused else 1e-4)

    for seconds, expect in ((3e-4, ["exp", "sum"]), (2.05e-4, ["exp+sum"]), (1e-4, ["exp+sum"])):
        slow = seconds
        plan = make_plan(graph, replace(FACTS, devices=(CPU,), estimate=estimate))
        # 2.05e-4 is more than the parts' kernels take, but not more than these and another step.
        assert operations(plan) == expect
        assert len(plan.refused) == (len(expect) - 1)

    # In doubt, what moves fewer bytes; not where NumPy would make a part, which is another matter.
    slow = 3e-4
    for low, numpys, expect in (
        (1.9e-4, 1.0, ["exp+sum"]),
        (2.5e-4, 1.0, ["exp", "sum"]),
        (1.9e-4, 0.5e-4, ["exp", "sum"]),
    ):

        def doubtful(group: Group, device: str, implementation: str) -> Estimate | None:
            if group.graph.nodes[0].op.name == "sum" and implementation != "generated":
                return at(numpys)  # noqa: B023  # of this round
            found = estimate(group, device, implementation)
            fused = implementation == "generated" and len(group.graph.nodes) > 1
            return replace(found, low=low) if fused and found is not None else found  # noqa: B023

        plan = make_plan(graph, replace(FACTS, devices=(CPU,), estimate=doubtful))
        assert operations(plan) == expect


def test_what_is_wanted_later_is_stored_or_computed_again_whichever_takes_less() -> None:
    b = Builder(LONG)
    value = b.add("add", 0, 0)
    graph = b.graph(b.add("exp", value), b.reduce("sum", value, (1,)))
    for facts, expect in (
        (priced(add=0.0), ["add+exp", "add+sum"]),
        (priced(add=LONG.nbytes * 1e-11 * 0.9), ["add+exp", "add+sum"]),
        (priced(add=LONG.nbytes * 1e-11 * 1.1), ["add+exp", "sum"]),
    ):
        assert operations(make_plan(graph, facts)) == expect


def test_a_device_that_loses_everywhere_does_not_part_what_runs_on_the_host() -> None:
    b = Builder(BIG)
    graph = b.graph(b.add("multiply", b.add("sin", 0), b.add("exp", b.add("negative", 0))))
    alone = priced(sin=1e-3)  # by itself NumPy's, which takes as long and is named first

    def supports(device: str, implementation: str, group: Group) -> str | None:
        sin = any(node.op.name == "sin" for node in group.graph.nodes)
        return "no sin here" if device == "sim:0" and sin else None

    def estimate(group: Group, device: str, implementation: str) -> Estimate | None:
        return at(1.0) if device == "sim:0" else alone.estimate(group, device, implementation)

    beside = replace(alone, devices=(CPU, SIM), supports=supports, estimate=estimate)
    expect = [("sin+negative+exp+multiply", "cpu", "generated")]
    for facts in (alone, beside):
        steps = launches(make_plan(graph, facts))
        assert [(s.decision.operation, s.device, s.implementation) for s in steps] == expect
