"""Reductions, rows and scans in CUDA C, run on the CPU: the bits are the host's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuda_on_cpu
import nvrtc
from alight._core import layout_of, make_layout
from alight._src.codegen.common.loops import nest
from alight._src.codegen.common.source import Grid, group_gap
from alight._src.codegen.cuda.group_forms import OPTIONS, form, schedule
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS, Kind
from alight.backends.cuda.cuda_backend import GAPS
from generated import Array, layouts, loop_group, reduce_group, run, values_for
from reduction_cases import (
    Rows,
    assert_as_on_host,
    assert_same_bits,
    chain_reductions,
    lacking,
    names_of,
    near_the_largest,
    scan_group,
    scans_of,
    softmax,
)
from without_card import needs_compiler, needs_nvrtc


@needs_compiler
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16", "bool"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((9000,), (0,)),  # cut into parts
        ((5, 300), (1,)),  # three chunks: sixteen threads a row
        ((3, 2500), (1,)),  # a block a row
        ((3, 1500), (1,)),  # two warps a row
        ((300, 40), (0,)),  # columns
        ((40, 6, 50), (0, 2)),  # two reduced axes that are not one
        ((2, 0), (1,)),
    ],
)
def test_reductions_have_the_bits_of_the_hosts(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str
) -> None:
    names = names_of(dtype, axes)
    if 0 in shape:
        names = (
            ["sum", "mean"] if dtype.startswith("f") else ["any"] if dtype == "bool" else ["sum"]
        )
    group = reduce_group([values := values_for(np.dtype(dtype), shape, 3)], names, axes)
    assert_as_on_host(group, [values])


@needs_compiler
def test_every_form_of_a_reduction_has_the_same_bits() -> None:
    values = values_for(np.dtype("float32"), (3, 5000), 4)
    group = reduce_group([values], ["sum", "var"], (1,))
    for grid in (
        Grid(128, 4, 32, 32, False, False, 8, 8),  # a warp goes along the row
        Grid(256, 4, 64, 256, True, False, 1, 8),  # a block holds it
        Grid(64, 1, 32, 64, False, True, 1, 1),  # parts of two runs
        Grid(64, 4, 32, 64, False, False, 64, 8),  # more turns than meet at once
        Grid(64, 4, 32, 64, False, True, 2, 2, 2),  # parts of two turns
        Grid(64, 1, 32, 64, False, True, 32, 1),
        Grid(128, 4, 32, 32, False, False, 8, 8, ahead=2),  # steps that are read together
        Grid(256, 4, 64, 256, True, False, 1, 8, ahead=8),
    ):
        assert_as_on_host(group, [values], grid)
    columns = values_for(np.dtype("float32"), (700, 3), 4)
    columns = np.asfortranarray(columns.T).T
    group = reduce_group([columns], ["sum", "var"], (0,))
    shape = replace(nest(group))
    if shape.columns:
        assert_as_on_host(group, [columns], Grid(32, team=16, cut=True, turns=2))


@needs_compiler
@pytest.mark.parametrize("ahead", [1, 4])
@pytest.mark.parametrize("length", [1024, 128, 80, 4096])
def test_rows_that_fill_their_runs_have_the_same_bits(length: int, ahead: int) -> None:
    values = values_for(np.dtype("float32"), (5, length), 4)
    for group in (reduce_group([values], ["sum", "var", "argmin"], (1,)), softmax(values, (1,))):
        shape = nest(group)
        grid = schedule(group, shape, (0,) * len(shape.strides), 4)
        assert grid.whole and grid.steps == min(length // 16, 8)
        if grid.steps % ahead == 0:
            assert_as_on_host(group, [values], replace(grid, ahead=ahead))


@needs_compiler
@pytest.mark.parametrize("shape", [(70001,), (65536,), (2, 20001), (3, 16384)])
def test_parts_of_a_run_that_are_made_again_have_the_same_bits(shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(8)
    x = generator.standard_normal(shape).astype(np.float32)
    flat = x.reshape(-1)
    # in few runs, at their ends, and all over one
    flat[generator.integers(flat.size, size=9)] = 0.0
    flat[[1023, 1024, -1]] = -90.0, 1e6, 88.9
    flat[5000:7000] = 0.0
    scale = generator.random((*shape[:-1], 1), np.float32)
    plain = reduce_group([x], ["sum", "argmax", "nanmin"], (x.ndim - 1,))
    for given in (scale, scale * np.float32(np.nan), scale * 0):
        group = chain_reductions(x, given, ("sum", "min", "argmin"))
        shape_of = nest(group)
        grid = schedule(group, shape_of, (0,) * len(shape_of.strides), 4)
        assert grid.whole is (shape[-1] % 1024 == 0) and grid.long is not grid.whole
        step_by_step = replace(grid, ahead=1, unroll=2)
        text = form(group, shape_of, step_by_step).text()
        assert "surely" in text and text.count("if (seldom)") == 1
        for other in (grid, step_by_step, replace(grid, ahead=4, unroll=8)):
            with np.errstate(all="ignore"):
                assert_as_on_host(group, [x, given], other)
        grid = replace(grid, block=128, team=32, cut=False, turns=128)  # a warp a row
        with np.errstate(all="ignore"):
            assert_as_on_host(group, [x, given], grid)
    assert_as_on_host(plain, [x])


@needs_compiler
@pytest.mark.parametrize("length", [8192, 9000, 70001, 40 * 8192, 33 * 8192 + 5])
def test_what_flows_through_shared_memory_reductions_to_the_same_bits(length: int) -> None:
    generator = np.random.default_rng(length)
    x = generator.standard_normal(length).astype(np.float32)
    scale = generator.random(1, np.float32)
    group = chain_reductions(x, scale, ("sum", "min", "argmin"))
    shape = nest(group)
    usual = schedule(group, shape, (0,) * len(shape.strides), 4)
    usual = replace(usual, block=256, team=256, cut=True, turns=1, unroll=8)
    for blocks, ahead, depth in ((1, 2, 2), (3, 2, 2), (2, 4, 1), (2, 1, 4)):
        grid = replace(usual, blocks=blocks, ahead=ahead, depth=depth)
        with np.errstate(all="ignore"):
            assert_as_on_host(group, [x, scale], grid)
    x[generator.integers(length, size=9)] = 0.0  # elements that are not usual
    x[-1] = 88.9
    with np.errstate(all="ignore"):
        assert_as_on_host(group, [x, scale], replace(usual, blocks=2, ahead=2, depth=2))
        wide = replace(usual, blocks=2, ahead=2, depth=2, index_bits=64)
        assert_as_on_host(group, [x, scale], wide)


@needs_compiler
@pytest.mark.parametrize("name", ["sin", "cos", "exp", "sqrt", "log", "tan"])
def test_a_run_with_one_element_that_is_not_usual_is_made_again(name: str) -> None:
    x = np.full(2 * 8192, 1.5, np.float32)
    layout, axes = layout_of(x), (("axis", (0,)),)
    signs = make_layout(np.dtype(bool), x.shape)
    nodes = [Node(OPS[name], (0,), (), layout), Node(OPS["signbit"], (1,), (), signs)]
    for reduction in ("min", "max", "sum"):
        nodes.append(Node(OPS[reduction], (1,), axes, make_layout(x.dtype, ())))
    nodes.append(Node(OPS["any"], (2,), axes, make_layout(np.dtype(bool), ())))  # of a zero, too
    graph = Graph((layout,), tuple(nodes), (3, 4, 5, 6))
    group = Group(GroupKind.REDUCE, graph, x.shape)
    usual = schedule(group, nest(group), (0,) * 5, 4)
    grid = replace(usual, block=256, team=256, cut=True, turns=1, unroll=8, blocks=1)
    grid = replace(grid, ahead=2, depth=2)
    text = form(group, nest(group), grid).text()
    assert ("end0" in text) is (name != "log")  # the logarithm asks otherwise
    near = [np.nextafter(np.float32(v), np.float32(w)) for v in (87.33, 30000) for w in (0, 1e9)]
    tiny = [0.0, 1e-45, 1e-38, 1e-30, 2.6e-23, 1e-12]
    for value in (*near, *tiny, 88.7, 104.0, 3e5, 1e19, 3e38, np.inf, np.nan):
        for x[5000] in (value, -value):
            with np.errstate(all="ignore"):
                assert_as_on_host(group, [x], grid)


@needs_compiler
@pytest.mark.parametrize("parts", [1, 31, 4097, 16384, 16387, 40001])
def test_any_number_of_parts_of_a_sole_row_meets_as_a_tree(parts: int) -> None:
    x = np.ones(1 << 20, np.float32)
    group = reduce_group([x], ["sum", "argmax"], (0,))
    made = form(group, nest(group), schedule(group, nest(group), (0, 0, 0), 4))
    (_, whole) = made.steps()
    generator = np.random.default_rng(parts)
    left = generator.standard_normal(parts).astype(np.float32)
    pair = np.dtype([("value", np.float32), ("index", np.int64)], align=True)
    best = np.zeros(parts, pair)
    best["value"], best["index"] = left, np.arange(parts) * 7
    results = np.empty((), np.float32), np.empty((), np.int64)
    arrays = (x, *results, left, best)
    numbers = [*whole.numbers]
    numbers[3] = parts
    words = [*(a.__array_interface__["data"][0] for a in arrays), *numbers]
    cuda_on_cpu.launched(cuda_on_cpu.library(made.text()), replace(whole, blocks=1), words)
    tree = np.full(1 << 16, -0.0, np.float32)
    tree[:parts] = left
    while tree.size > 1:
        tree = tree[::2] + tree[1::2]
    assert results[0] == tree[0]
    assert results[1] == 7 * left.argmax()


@needs_nvrtc
def test_long_reductions_of_much_arithmetic_flow_through_shared_memory() -> None:
    def grid_of(values: Array, names: tuple[str, ...]) -> tuple[Group, Grid]:
        group = chain_reductions(values, np.ones(1, values.dtype), names)
        shape = nest(group)
        return group, schedule(group, shape, (0,) * len(shape.strides), 132)

    group, grid = grid_of(np.ones(1 << 25, np.float32), ("sum", "max"))
    assert grid.depth and grid.blocks == 2 * 132
    made = form(group, nest(group), grid)
    (flow, whole) = made.steps()
    assert flow.blocks == grid.blocks and whole.blocks == 1
    assert made.scratch() == ((1 << 25) // 8192 * 4,) * 2
    text = made.text()
    for architecture in ("sm_75", "sm_80", "sm_90"):
        assert nvrtc.cubin(text, architecture, OPTIONS)[:4] == b"\x7fELF"
    assert not grid_of(np.ones(1 << 21, np.float32), ("sum",))[1].depth  # too short to flow
    several = ("argmin", "argmax", "sum", "min", "max", "nansum")
    assert grid_of(np.ones(1 << 24, np.float32), several[1:])[1].depth
    many = chain_reductions(np.ones(1 << 24, np.float32), np.ones(1, np.float32), several * 4)
    assert not schedule(many, nest(many), (0,) * 26, 132).depth  # no room for what they leave
    assert not grid_of(np.ones(1 << 24), ("sum",))[1].depth  # no room for wider ones
    light = reduce_group([np.ones(1 << 24, np.float32)], ["sum"], (0,))
    assert not schedule(light, nest(light), (0, 0), 132).depth  # memory is the limit


FEW = ("sum", "max", "mean", "var", "argmin", "nanmin")


@needs_compiler
@pytest.mark.parametrize("shape", [(129, 2), (513, 3), (1500, 17), (4099, 8), (9000, 40)])
def test_few_columns_reduction_to_the_hosts_bits_however_they_are_shared(
    shape: tuple[int, int],
) -> None:
    values = values_for(np.dtype("float32"), shape, 3)
    group = reduce_group([values], FEW, (0,))
    laid = nest(group)
    assert laid.columns
    usual = schedule(group, laid, (0,) * len(laid.strides), 4)
    assert usual.team and usual.cut == (shape[0] > 1024)
    for grid in (usual, replace(usual, index_bits=64), replace(usual, cut=True, turns=1)):
        assert_as_on_host(group, [values], grid)
    assert_as_on_host(group, [values], Grid(64, team=32, cut=True, turns=2))
    assert_as_on_host(group, [values], Grid(256, team=64, turns=64))
    assert_as_on_host(group, [values], Grid(128))  # a thread has a column


@needs_compiler
def test_many_parts_of_a_column_meet_as_a_tree() -> None:
    values = values_for(np.dtype("float64"), (1 << 18, 2), 3)
    group = reduce_group([values], ["sum", "argmax"], (0,))
    for grid in (Grid(32, team=16, cut=True), Grid(128, team=16, cut=True)):
        made = form(group, nest(group), grid)
        assert made.scratch() == (8 * 4096, 16 * 4096)
        assert_as_on_host(group, [values], grid)


@needs_compiler
def test_few_elements_of_a_chunk_are_a_short_run() -> None:
    values = np.abs(values_for(np.dtype("float32"), (5, 37), 4)) + 1
    group = softmax(values, (1,))
    shape = nest(group)
    grid = schedule(group, shape, (0,) * len(shape.strides), 4)
    assert (grid.whole, grid.steps) == (False, 3)
    assert_as_on_host(group, [values])


@needs_compiler
@pytest.mark.parametrize("ahead", [1, 2, 4])
def test_packs_apart_meet_every_element(ahead: int) -> None:
    generator = np.random.default_rng(3)
    for count in (1, 3, 4, 511, 512, 513, 2048 * ahead, 2048 * ahead + 517, 9001):
        x, y = (generator.random(count, np.float32) + 1 for _ in range(2))
        x[generator.integers(count)] = np.inf  # elements that are not usual
        y[generator.integers(count)] = 0.0
        uses = [
            (OPS["divide"], (0, 1), (), x.dtype),
            (OPS["sqrt"], (2,), (), x.dtype),
            (OPS["exp"], (1,), (), x.dtype),
            (OPS["maximum"], (0, 1), (), x.dtype),
        ]
        group = loop_group([x, y], uses)
        with np.errstate(all="ignore"):
            assert_as_on_host(group, [x, y], Grid(128, 4, 32, ahead=ahead))


@needs_compiler
def test_reductions_have_the_hosts_bits_in_every_layout_with_masks_and_initial_values() -> None:
    mask = np.random.default_rng(1).random((6, 40)) < 0.5
    for values in layouts(values_for(np.dtype("float32"), (6, 40), 5)):
        for axes in ((0,), (1,), (0, 1)):
            group = reduce_group([values], ["sum", "max"], axes, keepdims=True)
            assert_as_on_host(group, [values])
    group = reduce_group([values, mask], ["sum", "min"], (1,), where=True, initial=2.0)
    assert_as_on_host(group, [values, mask])


@needs_compiler
def test_reductions_of_special_values_have_the_hosts_bits() -> None:
    values = np.tile(np.array([0.0, -0.0, np.inf, 3.0, np.nan, -np.inf], np.float32), (40, 30))
    values[1:4, 2] = 1.0
    for axes in ((0,), (1,)):
        group = reduce_group([values], ["sum", "max", "nanmax", "argmax", "argmin"], axes)
        assert_as_on_host(group, [values])
    for n in (2, 17, 129, 1000):
        values = near_the_largest(np.dtype("float32"), n)
        assert_as_on_host(reduce_group([values], ["var", "std"], (1,)), [values])
        values = np.ascontiguousarray(values.T)
        assert_as_on_host(reduce_group([values], ["var", "std"], (0,)), [values])
    zeros = np.full((2, 200), -0.0, np.float32)
    group = reduce_group([zeros], ["sum", "nansum", "reduce_add"], (1,))
    for actual in cuda_on_cpu.run(group, [zeros]):
        expected = run(group, [zeros])[0]
        assert np.signbit(actual).tolist() == np.signbit(expected).tolist()


@needs_compiler
@pytest.mark.parametrize("length", [40, 1000, 1500, 3000])
def test_rows_are_visited_as_on_the_host(length: int) -> None:
    x = values_for(np.dtype("float32"), (5, length), 6)
    group = softmax(x, (1,))
    assert_as_on_host(group, [x])
    rows = Rows((1,), x, x[:, :1] + 2)
    centred = rows.add("subtract", 0, rows.reduction("mean", 0))
    spread = rows.add("sqrt", rows.reduction("mean", rows.add("multiply", centred, centred)))
    scaled = rows.add("divide", rows.add("multiply", centred, 1), spread)
    normal = rows.group(scaled, spread)
    assert_as_on_host(normal, [x, x[:, :1] + 2])
    grid = schedule(group, nest(group), (0, 0), 4)
    again = replace(grid, team=32, block=128, held=False, turns=4, unroll=1)
    if length > 1000:
        assert_as_on_host(group, [x], again)


@needs_compiler
def test_roots_and_quotients_of_every_size_are_the_hosts() -> None:
    x = np.arange(0, 2**32, 2**14 + 3, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([x, np.float32([0, -0.0, 1e-45, 1e-38, np.inf, -np.inf, np.nan])])
    y = np.random.default_rng(9).permutation(x)
    with np.errstate(all="ignore"):
        for name, given in (("sqrt", [x]), ("divide", [x, y])):  # apart: one finds the other's
            use = (OPS[name], tuple(range(len(given))), (), x.dtype)
            assert_as_on_host(loop_group(given, [use]), given)


@needs_compiler
def test_scans_on_cuda_equal_numpys() -> None:
    for dtype in ("int32", "float32", "float64"):
        for shape, axis in (((3, 2600), 1), ((50, 40), 0), ((70, 1, 165), 2), ((2, 40, 33), 1)):
            values = values_for(np.dtype(dtype), shape, 7)
            values.flat[0] = -0.0 if dtype[0] == "f" else 0
            ops = [op for op in scans_of(values.dtype) if "max" in op.name]
            few = dtype[0] == "f" and shape == (3, 2600)
            if not few:
                ops += [OPS["accumulate_add"], OPS["cumsum"], OPS["cumprod"]]
            group = scan_group(values, ops, axis)
            with np.errstate(all="ignore"):
                actual = cuda_on_cpu.run(group, [values])
                expected = run(group, [values])
            ordered = scan_group(values, [OPS["accumulate_add"]], axis)
            refused = group_gap("cuda", ordered)
            assert (refused is not None) == few, refused
            for ours, host in zip(actual, expected, strict=True):
                assert_same_bits(ours, host)


@needs_compiler
def test_scans_in_order_take_rows_of_any_layout() -> None:
    for array in layouts(values_for(np.dtype("f4"), (5, 8, 37), 7)):
        for axis in range(3):
            group = scan_group(array, [OPS["cumsum"]], axis)
            grid = schedule(group, nest(group), (0, 0), 4)
            for block in (32, 64):  # a warp and two, of which each has its own rows
                assert_as_on_host(group, [array], replace(grid, block=block))


@needs_compiler
def test_a_scan_takes_its_producers_and_consumers_along() -> None:
    for dtype, shape in (("int64", (700,)), ("float64", (40, 130)), ("float32", (130, 40))):
        x = values_for(np.dtype(dtype), shape, 8)
        axis = int(np.argmax(shape))
        lay = make_layout(x.dtype, x.shape)
        nodes = (
            Node(OPS["multiply"], (0, 0), (), lay),
            Node(OPS["cumsum"], (1,), (("axis", axis),), lay),
            Node(OPS["subtract"], (2, 1), (), lay),
        )
        group = Group(GroupKind.SCAN, Graph((lay,), nodes, (3,)), x.shape)
        (actual,) = cuda_on_cpu.run(group, [x])
        with np.errstate(all="ignore"):
            assert_same_bits(actual, (x * x).cumsum(axis) - x * x)


@needs_nvrtc
def test_reductions_of_every_kind_and_dtype_compile(request: pytest.FixtureRequest) -> None:
    full = request.config.getoption("--full")
    reductions = [op for op in OPS.values() if op.kind is Kind.REDUCTION]
    dtypes = ("float16", "float32", "int8", "uint64", "bool") if not full else (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    )  # fmt: skip
    count = 0
    for dtype in dtypes:
        for shape, axes in (((1 << 14,), (0,)), ((64, 1 << 9), (1,)), ((512, 64), (0,))):
            values: Any = values_for(np.dtype(dtype), shape, 9)
            names = [op.name for op in reductions if not lacking(op.name, values, axes)]
            group = reduce_group([values], names if full else names[:4], axes)
            shape_ = nest(group)
            text = form(group, shape_, schedule(group, shape_, (0,) * len(shape_.strides), 132))
            for architecture in ("sm_80", "sm_90", "sm_100") if full else ("sm_90",):
                assert nvrtc.cubin(text.text(), architecture, OPTIONS)[:4] == b"\x7fELF"
            count += 1
    assert count == 3 * len(dtypes)


@pytest.mark.parametrize(
    "name, dtype, made",
    [
        *[(name, "float16", True) for name in ("sum", "max", "mean", "var")],
        *[("prod", dtype, False) for dtype in ("float16", "float32", "float64")],
        ("prod", "int32", True),
        *[(name, dtype, False) for name in ("sum", "max") for dtype in ("complex64", "complex128")],
    ],
)
def test_what_a_card_says_of_reductions_is_so(name: str, dtype: str, made: bool) -> None:
    group = reduce_group([np.ones((3, 40), dtype)], [name], (1,))
    assert (group_gap("cuda", group) is None) == made
    text = (Path(__file__).resolve().parents[2] / "docs" / "cuda.md").read_text()
    for what in (
        "reductions of complex numbers, scans of float16",
        "products of floats, bit for bit",
    ):
        (gap,) = [gap for gap in GAPS if gap.what == what]
        assert f"| {gap.what} | {gap.why} | {gap.who} |" in text
