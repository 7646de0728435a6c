"""Reductions along short axes in CUDA C, run on the CPU: the bits are the host's in every
schedule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cuda_on_cpu
import nvrtc
from alight._core import layout_of, make_layout
from alight._src.codegen.common.gaps import supports
from alight._src.codegen.common.loops import ARGUMENT_REDUCTIONS, nest
from alight._src.codegen.common.source import Grid, group_gap
from alight._src.codegen.cuda.group_forms import OPTIONS, card_nest, form, schedule
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS, Kind
from alight._src.ir.well_formed import group_faults
from generated import Array, layouts, reduce_group, values_for
from reduction_cases import assert_as_on_host, distances, reductions_for
from without_card import needs_compiler, needs_nvrtc, passes


def grids(group: Group) -> list[Grid]:
    """Return schedules with every number of elements that the nest allows."""
    shape = card_nest(group)
    assert shape.unrolled
    default = schedule(group, shape, (1,) * len(shape.strides), 4)
    assert default.wide == 1 and default.elements == 1
    rest = shape.dims[shape.vector_axis] if shape.looped > 1 else 0
    made = [replace(default, elements=n, block=64) for n in (1, 2, 4) if rest % n == 0]
    return [*made, replace(default, wide=16, staged=True)] if shape.looped == 1 else made


@needs_compiler
@pytest.mark.parametrize("dtype", ["bool", "int16", "float16", "float32", "float64"])
def test_every_short_reduction_has_the_bits_of_the_hosts(dtype: str) -> None:
    for shape, axes in (((133, 3), (1,)), ((5, 241), (0,))):
        values = values_for(np.dtype(dtype), shape, 3)
        names = [
            name
            for name in reductions_for(values.dtype)
            if group_gap("cuda", reduce_group([values], [name], axes)) is None
        ]
        assert names
        for group in (
            reduce_group([values], names, axes),
            reduce_group([values], ARGUMENT_REDUCTIONS, axes, keepdims=True),
        ):
            assert_as_on_host(group, [values])
            for grid in grids(group)[1:]:
                assert_as_on_host(group, [values], grid)


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((70, 7), (1,)), ((3, 140, 2), (0, 2)), ((37, 5, 3), (1,)), ((90, 4, 4), (1, 2)),
        ((6, 20, 8), (0,)), ((0, 4), (1,)), ((18, 16), (1,)),
    ],
)  # fmt: skip
def test_short_reductions_have_the_same_bits_in_every_layout(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    drawn = values_for(np.dtype("float32"), shape, 7)
    for seed, values in enumerate(layouts(drawn) if drawn.size else [drawn]):
        group = reduce_group([values], ["sum", "max"], axes, keepdims=bool(seed % 2))
        assert_as_on_host(group, [values])


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distances_are_one_kernel_over_pairs(dtype: str) -> None:
    for points, others, length in ((5, 100, 3), (150, 8, 2), (40, 40, 1), (33, 16, 7)):
        x = values_for(np.dtype(dtype), (points, length), 1)
        y = values_for(np.dtype(dtype), (others, length), 2)
        y[3] = x[2]  # roots of zero are not usual
        x[4, 0] = np.inf
        for given in ((x, y), (x[::-1], y[:, ::-1])):
            with np.errstate(all="ignore"):
                for root in (False, True):
                    group = distances(*given, root=root)
                    assert group_gap("cuda", group) is None
                    assert_as_on_host(group, list(given))
                    for grid in grids(group)[1:]:
                        assert_as_on_host(group, list(given), grid)


def nearest(apart: Array) -> tuple[Group, list[Array]]:
    """Return the labels of the least of each row, twice, and ones where it is."""
    count, labels = apart.shape
    index, flags, axis = np.dtype(np.int64), np.dtype(bool), ("axis", (1,))
    given = [apart, np.arange(labels), np.ones((count, 1), apart.dtype)]
    row = make_layout(apart.dtype, apart.shape)
    nodes = (
        Node(OPS["argmin"], (0,), (axis,), make_layout(index, (count,))),
        Node(OPS["argmin"], (0,), (axis, ("keepdims", True)), make_layout(index, (count, 1))),
        Node(OPS["equal"], (4, 1), (), make_layout(flags, apart.shape)),
        Node(OPS["cast"], (5,), (("dtype", apart.dtype.name),), row),
        Node(OPS["multiply"], (6, 2), (), row),
    )
    graph = Graph(tuple(map(layout_of, given)), nodes, (3, 4, 7))
    group = Group(GroupKind.ROWWISE, graph, apart.shape)
    assert group_faults(group) == []
    return group, given


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_labels_and_what_is_made_of_them_are_one_kernel(dtype: str) -> None:
    apart = values_for(np.dtype(dtype), (301, 8), 4)
    apart[7] = np.nan
    apart[9, 3:] = apart[9, 2]
    group, given = nearest(apart)
    assert_as_on_host(group, given)
    for grid in grids(group):
        assert_as_on_host(group, given, grid)
    labels, _, ones = cuda_on_cpu.run(group, given)
    assert np.array_equal(labels, apart.argmin(axis=1))
    assert np.array_equal(ones, labels[:, None] == np.arange(8))


@needs_compiler
def test_operands_that_lie_across_packs_are_read_one_by_one() -> None:
    for shape, axes in (((4096, 4), (1,)), ((3, 4096), (0,))):
        whole = values_for(np.dtype("float32"), (int(np.prod(shape)) + 16,), 5)
        for first in (0, 1, 2):
            start = -whole.ctypes.data // 4 % 4 + first
            values = whole[start : start + int(np.prod(shape))].reshape(shape)
            group = reduce_group([values], ["sum"], axes)
            place = card_nest(group)
            grid = schedule(group, place, (values.ctypes.data, 0), 1)
            assert grid.wide == {0: 16, 1: 4, 2: 8}[first]
            assert_as_on_host(group, [values])


def test_how_many_elements_a_thread_has_goes_by_what_is_large() -> None:
    def elements(group: Group, processors: int = 132) -> tuple[int, int]:
        shape = card_nest(group)
        grid = schedule(group, shape, (0,) * len(shape.strides), processors)
        return grid.elements, grid.wide

    for dtype, most in (("float32", 4), ("float64", 2)):
        points = np.zeros((4096, 3), dtype)
        assert elements(distances(points, points, root=True)) == (most, 16)
        assert elements(distances(points, points[:4095], root=True)) == (1, 4 * 4 // most)
        assert elements(distances(points[:64], points[:64], root=True)) == (1, 16)
        centres = np.zeros((8, 2), dtype)
        clusters = distances(np.zeros((1 << 20, 2), dtype), centres, root=False)
        assert elements(clusters) == (1, 16)
        shape = card_nest(clusters)
        assert schedule(clusters, shape, (0, 0, 0), 132).staged
        assert not schedule(clusters, shape, (0, 0, 8), 132).staged
    rows = np.zeros((1 << 21, 3), np.float32)
    assert elements(reduce_group([rows], ["sum"], (1,))) == (4, 16)
    # a thread reads no more of a line than it has from one access: long records are a team's
    long = np.zeros((1 << 10, 16))
    assert nest(reduce_group([long], ["sum"], (1,)), unroll=True).unrolled
    assert not card_nest(reduce_group([long], ["sum"], (1,))).unrolled


WHOLE = """
import numpy as np, alight
from alight._src.log.decisions import LOG
rng = np.random.default_rng(7)
x = rng.standard_normal((97, 3), np.float32)
x[3], x[5, 1], x[6], x[7] = x[4], np.nan, np.inf, -0.0
y, z = rng.standard_normal((23, 3), np.float32), rng.standard_normal((97, 4, 3))
def apart(x, y, z):
    far = np.sqrt(((x[:, None, :] - y[None]) ** 2).sum(axis=2)).max(axis=1)
    return far, x.T[::-1].argmin(axis=0)
def rows(x, y, z):
    grown = np.exp(x - x.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True), x.std(axis=1, ddof=1), x[:, :2].sum(axis=1) > 0
def boxes(x, y, z):
    return z.sum(axis=(1, 2)), z.max(axis=1), z.mean(axis=2) * 2 + z[:, :, 0]
for body in (apart, rows, boxes):
    found = []
    for where in ("cuda:0", "cpu:generated"):
        with alight.policy(force=where, floor=0), np.errstate(all="ignore"):
            given = [alight.positive(alight.asarray(a)) for a in (x, y, z)]
            found.append([np.asarray(a) for a in alight.jit(body)(*given)])
    for a, b in zip(*found, strict=True):
        assert a.dtype == b.dtype and a.strides == b.strides, body
        assert np.array_equal(a, b, equal_nan=True), (body, a, b)
assert not LOG.snapshot().fallbacks, LOG.snapshot().fallbacks
print("done")
"""


@needs_compiler
def test_programs_of_short_reductions_have_the_bits_of_the_hosts() -> None:
    passes(WHOLE)


@needs_nvrtc
def test_reductions_along_short_axes_compile(request: pytest.FixtureRequest) -> None:
    full = request.config.getoption("--full")
    points = np.zeros((1024, 3), np.float32)
    groups = [distances(points, points, True), nearest(np.zeros((1 << 12, 8)))[0]]
    for dtype in ("float16", "float32", "int8", "bool"):
        values = np.ones((4096, 5), dtype)
        reductions = [op for op in OPS.values() if op.kind is Kind.REDUCTION]
        names = [op.name for op in reductions if not supports(op, (values.dtype, values.dtype))]
        groups += [
            group for name in names[: None if full else 3]
            if group_gap("cuda", group := reduce_group([values], [name], (1,))) is None
        ]  # fmt: skip
    for group in groups:
        shape = card_nest(group)
        text = form(group, shape, schedule(group, shape, (0,) * len(shape.strides), 132)).text()
        for architecture in ("sm_80", "sm_90", "sm_100") if full else ("sm_90",):
            assert nvrtc.cubin(text, architecture, OPTIONS)[:4] == b"\x7fELF"
