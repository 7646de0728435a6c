"""Reductions whose elements are short reductions: one kernel that has the bits of two."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import layout_of, make_layout
from alight._core import threads as core
from alight._src.codegen.common.gaps import unsupported
from alight._src.codegen.common.keys import kernel_key
from alight._src.codegen.common.loops import Schedule, nest
from alight._src.codegen.llvm import object_code
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.ir.well_formed import group_faults
from alight._src.log.decisions import LOG
from alight._src.plan.nested_fusion import _CACHED_BYTES, _MOST
from alight._src.plan.place import make_plan
from alight._src.plan.workload import workload
from alight.backends.split import launcher
from generated import Array, address, reduce_group, run, values_for
from graphs import F8, Builder, array_at, run_plan, stored
from plan_facts import FACTS, POLICIES, at, launches, plan_faults

ATTRS = (("axis", (2,)), ("keepdims", False))


def inner(x: Array, y: Array, names: tuple[str, ...], reduction: str) -> Group:
    """Return a reduction of the last axis of what elementwise ops make of two operands."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    full = make_layout(x.dtype, shape)
    nodes = [Node(OPS[names[0]], (0, 1), (), full)]
    nodes += [Node(OPS[name], (2 + k,), (), full) for k, name in enumerate(names[1:])]
    nodes.append(Node(OPS[reduction], (1 + len(nodes),), ATTRS, make_layout(x.dtype, shape[:2])))
    given = layout_of(x), layout_of(y)
    return Group(GroupKind.REDUCE, Graph(given, tuple(nodes), (1 + len(nodes),)), shape)


def nested(
    x: Array, y: Array, names: tuple[str, ...], reduction: str, outer: str, axis: int
) -> Group:
    """Return the same with a reduction of its results along one of their axes."""
    group = inner(x, y, names, reduction)
    shape = group.shape[:2]
    result = np.dtype(np.intp) if outer.startswith("arg") else x.dtype
    along = axis if outer.startswith("arg") else (axis,)
    layout = make_layout(result, (shape[1 - axis],))
    last = Node(OPS[outer], group.graph.outputs, (("axis", along), ("keepdims", False)), layout)
    nodes = (*group.graph.nodes, last)
    graph = Graph(group.graph.inputs, nodes, (1 + len(nodes),))
    whole = Group(GroupKind.REDUCE, graph, shape)
    assert group_faults(whole) == []
    return whole


def by_two(group: Group, x: Array, y: Array, names: tuple[str, ...], reduction: str) -> Array:
    """Return what two kernels give, one for each reduction."""
    (between,) = run(inner(x, y, names, reduction), [x, y])
    node = group.graph.nodes[-1]
    along = node.attr("axis")
    axes = along if isinstance(along, tuple) else (along,)
    (result,) = run(reduce_group([between], [node.op.name], axes), [between])
    return result


def forms(dtype: np.dtype[Any], n: int, k: int, d: int) -> list[tuple[Array, Array]]:
    """Return two operands in several layouts, one of them with all axes."""
    x, y = values_for(dtype, (n, 1, d), 1), values_for(dtype, (1, k, d), 2)
    apart = np.zeros((n, 1, d + 3), dtype)
    apart[..., :d] = x
    whole = values_for(dtype, (n, k, d), 3)
    turned = np.asfortranarray(x), np.asfortranarray(y)
    return [
        (x, y), turned, (x[::-1], y[..., ::-1]), (apart[..., :d], y), (whole, y),
        (x, values_for(dtype, (1, k, 1), 4)), (np.broadcast_to(x[..., :1], x.shape), y),
        (x, values_for(dtype, (d,), 5)),
    ]  # fmt: skip


SIZES = ((5, 100, 3), (150, 8, 2), (40, 40, 4), (33, 17, 7), (70, 3, 5), (3, 600, 8), (1, 20, 16))


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("outer", ["argmin", "min", "sum", "argmax", "any_special"])
def test_one_kernel_has_the_bits_of_two(name: str, outer: str) -> None:
    dtype = np.dtype(name)
    names: tuple[str, ...] = ("subtract", "square")
    if outer == "any_special":  # in stages, with rows that are not whole vectors
        names, outer = ("subtract", "exp", "sin"), "max"
    reductions = itertools.cycle((("sum", 1), ("max", 1), ("mean", 0), ("prod", 1), ("sum", 0)))
    for n, k, d in SIZES:
        for x, y in forms(dtype, n, k, d)[:: 3 if "exp" in names else 1]:
            for reduction, axis in itertools.islice(reductions, 1):
                group = nested(x, y, names, reduction, outer, axis)
                assert group.form.flat is not None
                with np.errstate(all="ignore"):
                    wanted = by_two(group, x, y, names, reduction)
                (actual,) = run(group, [x, y])
                assert actual.tobytes() == wanted.tobytes(), (n, k, d, reduction, axis, x.strides)


def test_schedules_and_threads_change_no_bits() -> None:
    given = core.set_costs, core.set_threads
    given[0](0.0, 0.0)
    try:
        for n, k, d in ((400, 30, 3), (2, 90_000, 2), (3000, 8, 2)):
            x, y = values_for(F8, (n, 1, d), 1), values_for(F8, (1, k, d), 2)
            for outer in ("argmin", "sum"):
                group = nested(x, y, ("subtract", "square"), "sum", outer, 1)
                wanted = by_two(group, x, y, ("subtract", "square"), "sum")
                for schedule in (Schedule(), Schedule(vector_bits=256), Schedule(interleave=4)):
                    assert run(group, [x, y], schedule)[0].tobytes() == wanted.tobytes()
                code = object_code.compile_group(group)
                for threads in (1, 2, 7):
                    launch = launcher(group, code, threads)
                    for _ in range(3):
                        out = np.zeros(n, group.graph.nodes[-1].layout.dtype)
                        launch([address(a) for a in (x, y, out)])
                        assert out.tobytes() == wanted.tobytes(), (n, k, threads)
                    assert (launch.parts > 1) == (threads > 1)
    finally:
        given[1](1)
        given[0](core.JOIN_SECONDS, core.WAKE_SECONDS)


def test_a_record_is_read_whole_where_its_fields_are_side_by_side() -> None:
    x, y = values_for(F8, (50, 1, 3), 1), values_for(F8, (1, 70, 3), 2)
    shape = nest(nested(x, y, ("subtract", "square"), "sum", "min", 1), unroll=True)
    assert shape.classes == "bbbkkkb" and shape.inner == (8, 8)
    shape = nest(nested(x, y[..., ::-1], ("subtract", "square"), "sum", "min", 1), unroll=True)
    assert "k" not in shape.classes and shape.inner == (8, -8)
    # Sizes are no part of the code, but that many fields are.
    groups = [
        nested(x[:, :, :d], y[:, :m, :d], ("subtract", "square"), "sum", "min", 1)
        for m, d in ((70, 3), (40, 3), (40, 2))
    ]
    keys = [kernel_key(group) for group in groups]
    assert keys[0] == keys[1] != keys[2]


def test_what_has_no_inner_reduction_stays_as_it_is() -> None:
    x, y = values_for(F8, (50, 1, 3), 1), values_for(F8, (1, 70, 3), 2)
    assert inner(x, y, ("subtract",), "sum").form.plain is None
    whole = nested(x, y, ("subtract",), "sum", "min", 1)
    assert whole.form.plain is not None and unsupported(whole.form.plain) is None
    assert unsupported(whole) is not None  # a device's gap
    far = values_for(F8, (1, 70, 17), 2)
    assert nested_unchecked(values_for(F8, (50, 1, 17), 1), far, "sum").form.flat is None
    assert nested_unchecked(x, y, "var").form.flat is None
    assert nested_unchecked(x.astype("f2"), y.astype("f2"), "sum").form.flat is None


def nested_unchecked(x: Array, y: Array, reduction: str) -> Group:
    group = inner(x, y, ("subtract",), reduction)
    axis = (("axis", (1,)), ("keepdims", False))
    last = Node(OPS["min"], group.graph.outputs, axis, make_layout(x.dtype, group.shape[:1]))
    graph = Graph(group.graph.inputs, (*group.graph.nodes, last), (4,))
    return Group(GroupKind.REDUCE, graph, group.shape[:2])


def test_bytes_are_counted_once_however_many_fields_they_hold() -> None:
    x, y = values_for(F8, (500, 1, 3), 1), values_for(F8, (1, 70, 3), 2)
    group = nested(x, y, ("subtract", "square"), "sum", "argmin", 1)
    assert group.form.packed is not None
    work = workload(group.form.packed)
    assert work.bytes_read == x.nbytes + y.nbytes
    assert work.flops >= 500 * 70 * (3 + 3 + 2)


def labels_graph(n: int, k: int, d: int, live: bool = False, twice: bool = False) -> Graph:
    b = Builder(make_layout(F8, (n, 1, d)), make_layout(F8, (1, k, d)))
    squares = b.reduce("sum", b.add("square", b.add("subtract", 0, 1)), (2,))
    outputs = [b.reduce("min", squares, (1,))]
    if twice:
        outputs.append(b.reduce("sum", squares, (0,)))
    return b.graph(*outputs, *([squares] if live else []))


@pytest.mark.parametrize("n, k, d", [(300, 8, 2), (300, 16, 3)])
def test_a_plan_has_one_step_for_both(n: int, k: int, d: int) -> None:
    graph = labels_graph(n, k, d)
    rng = np.random.default_rng(3)
    inputs = [rng.random(layout.shape) for layout in graph.inputs]
    for what, steps in (("generated", 1), ("sim", 2)):  # a device has kernels of its own
        plan = make_plan(graph, POLICIES[what])
        assert plan_faults(plan, graph) == []
        assert len(launches(plan)) == steps, what
        given = [stored(x, layout) for x, layout in zip(inputs, graph.inputs, strict=True)]
        values, _ = run_plan(plan, given)
        actual = array_at(values[plan.outputs[0]])
        wanted = np.square(inputs[0] - inputs[1]).sum(2).min(1)
        np.testing.assert_allclose(actual, wanted, rtol=1e-14)


def test_what_is_needed_elsewhere_is_a_step_of_its_own() -> None:
    facts = POLICIES["generated"]
    for graph in (labels_graph(300, 8, 2, live=True), labels_graph(300, 8, 2, twice=True)):
        plan = make_plan(graph, facts)
        assert plan_faults(plan, graph) == []
        assert len(launches(plan)) > 1
        assert all(step.group.form.flat is None for step in launches(plan))
    # and so is what is as soon kept in a cache, or has no registers
    small, large = 100, _CACHED_BYTES // 8 // 40 + 1
    for n, k, d, steps in ((small, 40, 2, 2), (large, 40, 2, 1), (small, 8, _MOST + 1, 2)):
        assert len(launches(make_plan(labels_graph(n, k, d), facts))) == steps, (n, k, d)


def test_the_sooner_of_both_forms_is_taken() -> None:
    graph = labels_graph(300, 8, 2)

    def seconds(whole: float) -> Callable[..., Any]:
        return lambda group, device, name: at(
            1.0 if name != "generated" else whole if group.form.flat else 1e-3
        )

    for whole, steps in ((1.5e-3, 1), (3e-3, 2)):
        facts = replace(FACTS, estimate=seconds(whole))
        assert len(launches(make_plan(graph, facts))) == steps, whole


PROGRAMS: tuple[Callable[..., Any], ...] = (
    lambda np, x, c: ((x[:, None, :] - c[None, :, :]) ** 2).sum(-1).argmin(1),
    lambda np, x, c: np.sqrt(((x[:, None, :] - c) ** 2).sum(-1)).min(1),
    lambda np, x, c: abs(x[:, None, :] - c).max(-1).argmin(1),
    lambda np, x, c: (x[:, None, :] * c).mean(-1).sum(1),
)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_programs_are_one_kernel(program: Callable[..., Any], name: str) -> None:
    for n, k in ((200, 8), (1, 5), (0, 8), (90, 16)):
        x = np.random.default_rng(1).random((n, 3)).astype(name)
        c = np.random.default_rng(2).random((k, 3)).astype(name)
        if n > 40:
            x[3, 1], x[7], x[11, 0], x[13] = np.nan, np.inf, -0.0, 0.0
        with alight.policy(force="cpu:generated", floor=0), np.errstate(all="ignore"):
            LOG.reset()
            actual = np.asarray(program(alight, alight.asarray(x), alight.asarray(c)))
            groups = [r.decision.implementation for r in LOG.snapshot().records]
            wanted = program(np, x, c)
        assert LOG.snapshot().fallbacks == ()
        if n:
            assert groups == ["generated"], groups
        assert actual.dtype == wanted.dtype
        np.testing.assert_allclose(actual, wanted, rtol=20 * np.finfo(name).eps, equal_nan=True)


def test_what_is_written_to_in_between_is_read_before() -> None:
    # The outer reduction waits for a write, which waits for the inner reduction: they are no one
    # step.
    b = Builder(make_layout(F8, (300, 1, 2)), make_layout(F8, (1, 8, 2)), make_layout(F8, ()))
    squares = b.reduce("sum", b.add("square", b.add("subtract", 0, 1)), (2,))
    after = b.view(b.write(0, np.s_[...], 2), np.s_[:, :, 0])
    graph = b.graph(b.reduce("min", b.add("add", squares, after), (1,)))
    plan = make_plan(graph, POLICIES["generated"])
    assert plan_faults(plan, graph) == [] and len(launches(plan)) == 2
    rng = np.random.default_rng(4)
    x, c = rng.random((300, 1, 2)), rng.random((1, 8, 2))
    given = zip((x, c, np.float64(7)), graph.inputs, strict=True)
    values, _ = run_plan(plan, [stored(array, layout) for array, layout in given])
    actual = array_at(values[plan.outputs[0]])
    np.testing.assert_allclose(actual, (np.square(x - c).sum(2) + 7.0).min(1), rtol=1e-14)


@pytest.mark.parametrize("rows", [5, 16, 56])
@pytest.mark.parametrize("length", [2, 10, 16])
@pytest.mark.parametrize("reduction", ["max", "sum"])
def test_what_is_reduced_first_may_lie_farthest_apart(
    rows: int, length: int, reduction: str
) -> None:
    whole = np.random.default_rng(rows).integers(1, 99, (3, rows, length)) * 1.0
    x = whole.transpose(1, 2, 0)  # its outer rows are records, its inner elements are not

    def program(x: Any) -> Any:
        return getattr((x * x).sum(-1), reduction)(-1)

    with alight.policy(force="cpu:generated", floor=0):
        found = np.asarray(program(alight.asarray(x)))
    assert np.array_equal(found, program(x))
