"""Rolls in loops: every element from its place round the end, whatever the layout and the parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import threads as core
from alight._src.codegen.common.gaps import unsupported
from alight._src.codegen.common.loops import Schedule, nest
from alight._src.codegen.llvm import object_code
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.ir.well_formed import group_faults
from alight._src.log.decisions import LOG
from alight._src.plan.cost import estimate
from alight.backends.split import launcher
from conformance.modes import EVERYWHERE
from cost_profiles import profile_with
from generated import Array, layout_of, make_layout, run, values_for
from programs import assert_program


def rolled(x: Array, *moves: tuple[Any, Any], out: Array | None = None) -> Group:
    """Return the group of a sum of rolls of x, and x."""
    layout = make_layout(x.dtype, x.shape)
    nodes = [Node(OPS["roll"], (0,), (("shift", by), ("axis", axis)), layout) for by, axis in moves]
    total = 0
    for k in range(len(moves)):
        nodes.append(Node(OPS["add"], (total, 1 + k), (), layout))
        total = len(nodes)
    return Group(GroupKind.LOOP, Graph((layout_of(x),), tuple(nodes), (total,)), x.shape)


def expected(x: Array, *moves: tuple[Any, Any]) -> Array:
    total = x
    for by, axis in moves:
        total = total + np.roll(x, by, axis)
    return total


MOVES: tuple[tuple[tuple[Any, Any], ...], ...] = (
    ((1, 0),),
    ((-1, -1),),
    ((1, 0), (-1, 0), (1, 1), (-1, 1)),
    (((2, -3), (0, 1)), (8, 1)),
    ((3, (0, 1)), (0, 0), ((1, 1), (0, 0))),
)


@pytest.mark.parametrize("moves", MOVES, ids=str)
def test_rolls_of_every_size_and_layout_equal_numpy(moves: tuple[tuple[Any, Any], ...]) -> None:
    for shape in ((1, 1), (1, 7), (7, 1), (2, 3), (5, 300), (64, 65), (9, 1000)):
        x = values_for(np.dtype("f8"), shape, 1)
        two = np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2]
        for form in (
            x,
            np.asfortranarray(x),
            x[::-1],
            x[:, ::-1],
            two,
            np.broadcast_to(x[0], shape),
        ):
            group = rolled(form, *moves)
            assert group_faults(group) == [] and unsupported(group) is None
            (actual,) = run(group, [form])
            np.testing.assert_array_equal(actual, expected(form, *moves))


@pytest.mark.parametrize(
    "name", ["bool", "int8", "uint16", "int64", "float16", "float32", "complex64"]
)
def test_rolls_of_every_dtype_equal_numpy(name: str) -> None:
    x = values_for(np.dtype(name), (6, 70), 3)
    moves = MOVES[2]
    (actual,) = run(rolled(x, *moves), [x])
    np.testing.assert_array_equal(actual, expected(x, *moves))


def test_parts_know_where_they_are() -> None:
    core.set_costs(0.0, 0.0)
    try:
        for shape, moves in (
            ((400, 301), MOVES[2]),
            ((3, 70_001), MOVES[3]),
            ((70_001,), ((1, 0), (-2, 0))),
            ((40, 30, 50), ((1, 0), (-1, 1), (2, 2))),
            ((4001, 40), MOVES[2]),
            ((9000, 3), MOVES[3]),
            ((20, 20, 127), ((7, 2), (-3, (1, 2)))),
        ):
            x = values_for(np.dtype("f8"), shape, 1)
            group = rolled(x, *moves)
            code = object_code.compile_group(group)
            for threads in (1, 2, 7):
                launch = launcher(group, code, threads)
                for _ in range(3):
                    out = np.full(shape, np.nan)
                    launch([a.__array_interface__["data"][0] for a in (x, out)])
                    np.testing.assert_array_equal(out, expected(x, *moves))
                assert (launch.parts > 1) == (threads > 1), (shape, threads)
    finally:
        core.set_threads(1)
        core.set_costs(core.JOIN_SECONDS, core.WAKE_SECONDS)


def beside(x: Array, row: Array, by: int) -> Group:
    """Return the group of a square root of x, rolled along its rows, times a vector of a row."""
    layout = make_layout(x.dtype, x.shape)
    nodes = (
        Node(OPS["roll"], (0,), (("shift", by), ("axis", -1)), layout),
        Node(OPS["sqrt"], (2,), (), layout),
        Node(OPS["exp"], (3,), (), layout),
        Node(OPS["roll"], (0,), (("shift", (1, -by)), ("axis", (0, -1))), layout),
        Node(OPS["maximum"], (4, 5), (), layout),
        Node(OPS["multiply"], (6, 1), (), layout),
    )
    return Group(GroupKind.LOOP, Graph((layout_of(x), layout_of(row)), nodes, (7,)), x.shape)


@pytest.mark.parametrize(
    ("name", "bits"), [("f4", 512), ("f8", 512), ("f4", 256), ("f8", 256), ("i4", 256), ("f8", 128)]
)
def test_short_rows_run_together(name: str, bits: int) -> None:
    """Also where the last vector is a part of one, and beside a vector that all rows share; vectors
    narrower than 256 bits go row by row."""
    for length in (1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 100, 127, 128):
        for rows in (1, 2, 3, 11, 70):
            x = np.abs(values_for(np.dtype(name), (rows, length), length))
            row = values_for(np.dtype(name), (length,), rows)
            for by in (1, -3, 7):
                moves = ((by, 1), ((1, -by), (0, 1)), (2, 0))
                group = rolled(x, *moves)
                short = rows > 1 and 1 < length < 128
                assert nest(group, unroll=True).flat == short, (length, rows, by)
                (actual,) = run(group, [x], Schedule(bits))
                np.testing.assert_array_equal(actual, expected(x, *moves))
                if name == "f8":
                    x = np.minimum(x, 9)
                    both = np.roll(x, by, 1), np.roll(x, (1, -by), (0, 1))
                    (actual,) = run(beside(x, row, by), [x, row], Schedule(bits))
                    wanted = np.maximum(np.exp(np.sqrt(both[0])), both[1]) * row
                    # exp differs from NumPy by an ulp either way, a product by half of one
                    np.testing.assert_allclose(actual, wanted, rtol=4 * np.finfo(x.dtype).eps)


def operations(program: Callable[[Any, Any], Any], x: Array) -> list[str]:
    """Return what a program runs as; its result is compared with NumPy's."""
    with alight.policy(force="cpu:generated", floor=0):
        LOG.reset()
        actual = np.asarray(program(alight, alight.asarray(x)))
        snapshot = LOG.snapshot()
    np.testing.assert_array_equal(actual, program(np, x))
    assert snapshot.fallbacks == ()
    return [f"{r.decision.operation} {r.decision.implementation}" for r in snapshot.records]


def test_a_periodic_stencil_is_one_kernel() -> None:
    x = values_for(np.dtype("f8"), (60, 70), 1)

    def around(xp: Any, u: Any) -> Any:
        four = xp.roll(u, 1, 0) + xp.roll(u, -1, 0) + xp.roll(u, 1, 1) + xp.roll(u, -1, 1)
        return u + 0.1 * (four - 4 * u)

    found = operations(around, x)
    assert len(found) == 1 and found[0].endswith("generated")
    found = operations(lambda xp, u: around(xp, around(xp, u)), x)
    assert len(found) == 2


def test_what_a_loop_makes_is_rolled_by_another() -> None:
    x = values_for(np.dtype("f8"), (500,), 1)
    found = operations(lambda xp, u: xp.roll(u * 2, 1) - u * 2, x)
    assert found == ["multiply generated", "roll+subtract generated"]
    assert operations(lambda xp, u: xp.roll(u, 1), x) == ["roll generated"]
    assert operations(lambda xp, u: xp.roll(u, 9) + u, x) == ["roll numpy", "add generated"]
    found = operations(lambda xp, u: (xp.roll(u, 1) > u).any(), x)
    assert found[-1].endswith("generated") and len(found) <= 2
    m = values_for(np.dtype("f8"), (50, 40), 1)
    assert operations(lambda xp, u: xp.roll(u, 1) + u, m) == ["roll numpy", "add generated"]
    found = operations(lambda xp, u: xp.roll(u, 1, 0) - u.max(axis=1, keepdims=True), m)
    assert found[-1] == "roll+subtract generated"
    found = operations(lambda xp, u: ((xp.roll(u * 2, 1) - u) * u + u) * u - u, x)
    assert len(found) == 2 and found[0] == "multiply generated"
    found = operations(lambda xp, u: xp.roll(u[0], 1) + u, m)
    assert found == ["roll generated", "add generated"]


def test_rows_stay_one_visit_beside_a_roll() -> None:
    x = values_for(np.dtype("f8"), (50, 300), 1)
    with alight.policy(force="cpu:generated", floor=0):
        a = alight.asarray(x)
        e = alight.exp(a - a.max(axis=1, keepdims=True))
        share, moved = e / e.sum(axis=1, keepdims=True), alight.roll(a, 1, 0) * 2 + a
        LOG.reset()
        alight.evaluate(share, moved)
        kinds = [record.decision.kind for record in LOG.snapshot().records]
        np.testing.assert_array_equal(np.asarray(moved), np.roll(x, 1, 0) * 2 + x)
    assert sorted(kinds) == ["loop", "rowwise"]


PROGRAMS = """
r = np.roll(x, 1, 0) - 2 * x + np.roll(x, -1, 0)
u = x.copy(); u[:] = np.roll(u, 1, 0) + u; r = u
u = x.copy(); u += np.roll(u, 1, 1); r = u
u = x.copy(); v = u[1:-1]; v += np.roll(v, -1, 1); r = u
u = x.copy(); u[1:-1] = np.roll(u[1:-1], 1, 0) + u[1:-1]; r = u
u = x.copy(); y = np.roll(u, 1, 0); u[0] = 7; r = y + u
r = np.roll(np.roll(x, 1, 0) + x, -1, 0) + np.roll(x, (1, -1), (0, 1))
y = np.roll(x, 1, 1); r = (y * y).sum(axis=1) + y.max(axis=1)
r = np.cumsum(np.roll(x, 1, 0) + x, axis=0)
r = (np.roll(x, 1, 0) @ np.roll(x, -1, 1).T) + 1
y = np.roll(x, 2, 0); r = np.where(y > 0, y, x) / (1 + np.abs(np.roll(y, 1, 1)))
"""


@pytest.mark.parametrize("mode", EVERYWHERE)
@pytest.mark.parametrize("program", PROGRAMS.strip().splitlines())
def test_programs_that_roll_equal_numpy(program: str, mode: str) -> None:
    for shape in ((6, 9), (40, 300)):
        assert_program(program, values_for(np.dtype("f8"), shape, 4), mode)
        with np.errstate(all="ignore"):
            assert_program(program, values_for(np.dtype("f8"), shape, 5), mode)


def test_what_a_loop_does_not_roll_is_told() -> None:
    x = np.zeros((5, 6))
    small = rolled(x, (1, 0)).graph
    node = small.nodes[0]
    assert small.rolls == {1: {0: 1}}
    for shift, axis in ((9, 0), (1, None), (np.int64(1), 0), (1.0, 0), ((1, 2, 3), (0, 1)), (1, 2)):
        attrs = (("shift", shift), ("axis", axis))
        other = Graph(small.inputs, (Node(node.op, (0,), attrs, node.layout),), (1,))
        assert other.rolls == {1: None}
    group = rolled(x, (9, 0))
    assert "a few places" in str(unsupported(group))
    copy = Node(OPS["copy"], (0,), (), node.layout)
    again = Node(node.op, (1,), node.attrs, node.layout)
    graph = Graph(group.graph.inputs, (copy, again), (2,))
    assert "its own loop group" in str(unsupported(Group(GroupKind.LOOP, graph, x.shape)))


def test_a_roll_is_predicted_to_take_what_a_copy_takes() -> None:
    group = rolled(np.zeros((500, 600)), (1, 0), (-1, 1))
    copies = group.form.copied
    assert copies is not None and [node.op.name for node in copies.graph.nodes] == [
        "copy",
        "copy",
        "add",
        "add",
    ]
    profile = profile_with({"copy/float64": 1e-9, "add/float64": 2e-9}, "generated")
    found = estimate(group, "cpu", "generated", profile)
    assert found is not None and found == estimate(copies, "cpu", "generated", profile)
