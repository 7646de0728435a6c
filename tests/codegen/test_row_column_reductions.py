"""Reductions of rows and columns of one array in one visit: the bits are those of reductions one by
one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import layout_of
from alight._src.codegen.common.gaps import unsupported
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.ir.row_column import CrossSection, visits
from alight._src.ir.table_reduction import CHUNK
from alight._src.ir.well_formed import group_faults
from alight._src.plan.cost import estimate
from alight._src.plan.curve import Curve, guess
from alight._src.plan.profile import Profile, Rates
from alight.backends import host
from alight.backends.base import Operand
from alight.backends.host import memory_at
from generated import Array, reduce_group, reduce_layout, run, values_for

# What is reduced, and along which axes of a matrix.
Uses = tuple[tuple[str, tuple[int, ...]], ...]
BOTH: Uses = (("sum", (1,)), ("sum", (0,)))
MANY: Uses = (
    ("sum", (1,)),
    ("max", (1,)),
    ("std", (1,)),
    ("argmin", (1,)),
    ("mean", (0,)),
    ("min", (0,)),
    ("max", (0, 1)),
    ("min", (0, 1)),
)


def row_column_group(array: Array, uses: Uses, keepdims: bool = False) -> Group:
    nodes = []
    for name, axes in uses:
        attrs = (("axis", axes), ("keepdims", keepdims))
        dtype = np.asarray(OPS[name].reference(array[:1, :1], axis=axes)).dtype
        layout = reduce_layout(dtype, array.shape, axes, keepdims)
        nodes.append(Node(OPS[name], (0,), attrs, layout))
    graph = Graph((layout_of(array),), tuple(nodes), tuple(range(1, 1 + len(nodes))))
    return Group(GroupKind.ROW_COLUMN, graph, array.shape)


def one_by_one(array: Array, uses: Uses) -> list[Array]:
    found = []
    for name, axes in uses:
        group = reduce_group([array], [name], axes)
        found += run(group, [array])
    return found


def assert_same_bits(actual: list[Array], expected: list[Array], label: object) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype, label
        assert np.array_equal(one.reshape(-1), other.reshape(-1), equal_nan=True), label


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int16", "uint64", "complex64"])
def test_bits_are_those_of_reductions_one_by_one(name: str) -> None:
    dtype = np.dtype(name)
    uses = tuple(u for u in MANY if dtype.kind != "c" or u[0] in ("sum", "mean"))
    for shape in ((1, 70), (2, 1000), (CHUNK, 64), (CHUNK + 1, 700), (5 * CHUNK + 7, 99), (90, 1)):
        array = values_for(dtype, shape, 3)
        wide = np.zeros((shape[0], shape[1] + 5), dtype)
        wide[:, 2 : 2 + shape[1]] = array
        for form in (array, wide[:, 2 : 2 + shape[1]], wide[::-1, 2 : 2 + shape[1]]):
            group = row_column_group(form, uses)
            if 1 in shape:
                assert "meets" in str(unsupported(group))
                continue
            assert unsupported(group) is None
            assert not group_faults(group)
            label = name, shape, form.strides
            assert_same_bits(run(group, [form]), one_by_one(form, uses), label)


def test_axes_may_be_several_and_in_any_order() -> None:
    array = values_for(np.dtype("f4"), (6, 50, 70), 1)
    nodes = [("mean", (1, 2)), ("sum", (0,)), ("max", (0, 1, 2))]
    assert_same_bits(
        run(group := row_column_group(array, tuple(nodes)), [array]),
        one_by_one(array, tuple(nodes)),
        group,
    )
    turned = values_for(np.dtype("f4"), (300, 90), 1).T
    uses: Uses = (("sum", (0,)), ("sum", (1,)))
    group = row_column_group(turned, uses)
    assert_same_bits(run(group, [turned]), one_by_one(turned, uses), "turned")


def test_special_values_stay_where_they_are() -> None:
    array = values_for(np.dtype("f8"), (400, 90), 1)
    array[3, 5], array[200, 7], array[399, 89], array[0] = np.nan, np.inf, -np.inf, -0.0
    assert_same_bits(
        run(row_column_group(array, MANY), [array]), one_by_one(array, MANY), "special values"
    )
    zeros = np.full((300, 70), -0.0)
    for result in run(row_column_group(zeros, BOTH), [zeros]):
        assert not np.signbit(result).any()


@pytest.mark.parametrize("uses", [BOTH, MANY, (("max", (0, 1)), ("reduce_add", (0,)))])
def test_bits_stay_with_threads_and_alignment(uses: Uses, monkeypatch: pytest.MonkeyPatch) -> None:
    array = values_for(np.dtype("f4"), (9000, 310), 9)
    expected = one_by_one(array, uses)
    room = np.empty(array.nbytes + 24, np.uint8)
    backend = host.HostBackend()
    (device,) = backend.probe().devices
    for threads, shift in ((1, 0), (2, 4), (7, 20)):
        monkeypatch.setattr(host, "thread_count", lambda n=threads: n)
        moved = room[shift : shift + array.nbytes].view(array.dtype).reshape(array.shape)
        moved[...] = array
        kernel = backend.compile(device, row_column_group(moved, uses), "generated", None)
        data = memory_at(moved.__array_interface__["data"][0], moved.nbytes)
        for _ in range(3):  # the first run finds out how long it takes
            made = kernel.run([Operand(data, 0, layout_of(moved))], [None] * len(uses))
            assert_same_bits([one.array for one in made], expected, (threads, shift))


@pytest.mark.parametrize(
    ("uses", "shape", "why"),
    [
        ((("sum", (1,)), ("max", (1,))), (40, 70), "same axes|meets"),
        ((("sum", (0,)), ("sum", (1,))), (40, 70), "comes first"),
        ((("sum", (1,)), ("std", (0,))), (40, 70), "not reduced down"),
        ((("sum", (1,)), ("sum", (0, 1))), (40, 70), "not reduced whole"),
        ((("sum", (1,)), ("sum", (0,))), (400, 1 << 15), "stack"),
        ((("sum", (1,)), ("sum", (0,))), (400, 63), "side by side"),
        ((("sum", (0, 2)), ("sum", (1,))), (4, 5, 6), "no rows and columns"),
    ],
)
def test_what_is_no_cross_says_why(uses: Uses, shape: tuple[int, ...], why: str) -> None:
    found = unsupported(row_column_group(np.ones(shape), uses))
    assert found is not None and re.search(why, found), found


def test_strided_rows_are_none() -> None:
    array = np.ones((40, 100))[:, ::2]
    assert "next to one another" in str(row_column_group(array, BOTH).form.fault)
    cube = np.ones((4, 5, 60))[:, :3]
    uses: Uses = (("sum", (1, 2)), ("sum", (0,)))
    assert unsupported(row_column_group(cube, uses)) is None
    apart = np.ones((4, 5, 6))[:, :, :3]
    assert "runs" in str(row_column_group(apart, uses).form.fault)


def section(group: Group) -> CrossSection:
    assert group.form.section is not None
    return group.form.section


def test_visits_after_the_first_go_over_few_rows() -> None:
    array = np.ones((1000, 70))
    group = row_column_group(array, MANY)
    found = list(visits(group.graph, section(group), 128))
    assert [shape for _, shape, _ in found] == [(1000, 70), (128, 70), (128, 70)]
    assert [times for _, _, times in found] == [1.0, 1000 / 128, 1000 / 128]


def test_chunks_of_rows_are_shared_whole() -> None:
    found = section(row_column_group(np.ones((2 * CHUNK + 2, 70)), BOTH))
    assert found.uneven(1) == found.uneven(3) == 3 * CHUNK / (2 * CHUNK + 2)
    assert found.uneven(2) == 4 * CHUNK / (2 * CHUNK + 2)
    assert section(row_column_group(np.ones((8 * CHUNK, 70)), BOTH)).uneven(4) == 1


@pytest.mark.parametrize("force", [None, "cpu:generated", "numpy"])
def test_programs_of_rows_and_columns_equal_numpy(force: str | None) -> None:
    array = values_for(np.dtype("f8"), (700, 90), 4)

    def program(x: Any) -> tuple[Any, ...]:
        return x.sum(axis=0), x.sum(axis=1), x.max(), x.min(axis=0, keepdims=True), x.mean()

    expected = program(array)
    with alight.policy(force=force, floor=0):
        for form in (array, array[::-1, ::-1], np.asfortranarray(array)):
            actual = [np.asarray(one) for one in program(alight.asarray(form))]
            for one, other in zip(actual, program(form), strict=True):
                assert one.shape == other.shape
                assert np.allclose(one, other, 1e-13, 1e-12)
    assert len(expected) == 5


def test_a_plan_reads_the_array_once() -> None:
    x = alight.asarray(np.ones((700, 90)))
    with alight.policy(force="cpu:generated", floor=0):
        alight.reset()
        alight.evaluate(x.sum(axis=0), x.sum(axis=1), x.max())
        rows = alight.report().to_dict()["decisions"]
    assert [row["kind"] for row in rows] == ["row_column"]


def test_what_is_visited_again_is_read_from_the_caches() -> None:
    near, far = (1 << 18, 1e-5), (1 << 30, 1.0)
    rates = Rates(
        *(guess(0.0, "seconds"), guess(0.0, "seconds")),
        {f"reduce_{kind}/float64": Curve([(16, 1e-9), near, far]) for kind in ("inner", "outer")},
        *({"flop/float64": guess(0.0, "seconds")}, guess(0.0, "share"), 0.1),
    )
    profile = Profile("cpu", {"generated": rates})
    array = np.ones((64 * CHUNK, 128))
    whole = estimate(row_column_group(array, BOTH), "cpu", "generated", profile)
    parts = [
        estimate(reduce_group([array], [name], axes), "cpu", "generated", profile)
        for name, axes in BOTH
    ]
    assert whole is not None and parts[0] is not None and parts[1] is not None
    assert parts[0].seconds < whole.seconds < parts[0].seconds + parts[1].seconds / 2
