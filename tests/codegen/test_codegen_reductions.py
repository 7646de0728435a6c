"""Generated reductions against NumPy: bounds, layouts, special values, masks, and the tree
itself."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import pytest

from alight._core import layout_of
from alight._src.codegen.common.loops import ARGUMENT_REDUCTIONS, Schedule
from alight._src.codegen.llvm.object_code import module_text
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.ir.table_reduction import CHUNK, LANES, tree_depth
from generated import (
    DTYPES,
    layouts,
    reduce_group,
    reduce_layout,
    run,
    values_for,
)
from reduction_cases import assert_reductions_close, near_the_largest, reductions_for


@pytest.mark.parametrize("name", (*DTYPES, "float16"))
def test_every_reduction_equals_numpy(name: str) -> None:
    dtype = np.dtype(name)
    names = reductions_for(dtype)
    assert {"sum", "min", "max", "any", "all", "mean", "count_nonzero"} <= set(names)
    assert ("prod" in names) is (dtype.kind != "f")
    for shape, axes in (((3, 300), (1,)), ((300, 3), (0,))):
        array = values_for(dtype, shape, 5)
        group = reduce_group([array], names, axes)
        assert_reductions_close(group, [array], run(group, [array]))


@pytest.mark.parametrize("name", ["int16", "float16", "float32"])
def test_reductions_equal_numpy_in_every_layout(name: str) -> None:
    for shape in ((3, 5, 7), (2, 40, 130)):
        for seed, array in enumerate(layouts(values_for(np.dtype(name), shape, 7))):
            for axes in ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
                group = reduce_group([array], ["sum", "min"], axes, keepdims=bool(seed % 2))
                assert_reductions_close(group, [array], run(group, [array]))
            for axes in ((0,), (1,), (2,), (0, 1, 2)):
                group = reduce_group([array], ARGUMENT_REDUCTIONS, axes)
                assert_reductions_close(group, [array], run(group, [array]))


FLOAT_REDUCTIONS = [
    "sum",
    "min",
    "max",
    "mean",
    "any",
    "all",
    "nansum",
    "nanmin",
    "nanmax",
]


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_reductions_of_special_values_equal_numpy(name: str) -> None:
    dtype = np.dtype(name)
    generator = np.random.default_rng(3)
    pool = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1.5, 3.0, 7.0], dtype)
    for n in (1, 2, 15, 16, 17, 127, 128, 129, 300):
        for odds in (0, 0.02, 0.5):
            plain = generator.random((4, n)) >= odds
            array = np.where(plain, dtype.type(1.25), generator.choice(pool, (4, n)))
            for operand, axes in ((array, (1,)), (np.ascontiguousarray(array.T), (0,))):
                names = [n for n in FLOAT_REDUCTIONS if n in reductions_for(dtype)]
                group = reduce_group([operand], names, axes)
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    assert_reductions_close(group, [operand], run(group, [operand]))
                    group = reduce_group([operand], ARGUMENT_REDUCTIONS, axes)
                    assert_reductions_close(group, [operand], run(group, [operand]))


def test_half_floats_are_reduced_as_single_ones_and_rounded_once() -> None:
    ones = np.ones((3, 5000), np.float16)  # 2048 + 1 is 2048 in half floats
    far = np.array([[6e4, 6e4, -6e4], [6e4, 6e4, 0]] * 2, np.float16)
    for array in (ones, far):
        with np.errstate(over="ignore"):
            expected = array.sum(axis=1), array.mean(axis=1)
        for form, axes in ((array, (1,)), (np.ascontiguousarray(array.T), (0,))):
            results = run(reduce_group([form], ["sum", "mean"], axes), [form])
            for result, expect in zip(results, expected, strict=True):
                assert result.dtype == np.float16
                assert np.array_equal(result, expect), (axes, result, expect)


def test_sums_of_negative_zeros_are_zero_as_in_numpy() -> None:
    for array, axes in ((np.full((2, 20), -0.0), (1,)), (np.full((20, 2), -0.0), (0,))):
        (total,) = run(reduce_group([array], ["sum"], axes), [array])
        assert not np.signbit(total).any()


def test_reductions_of_nothing_start_and_masks_equal_numpy() -> None:
    for shape, axes in (
        ((0,), (0,)),
        ((0, 3), (0,)),
        ((3, 0), (1,)),
        ((3, 0), (0,)),
        ((2, 0, 3), (0, 1, 2)),
    ):
        array = np.ones(shape)
        names = ["sum", "any", "all", "count_nonzero"]
        for operand, reductions in ((array, names), (array.astype(int), [*names, "prod"])):
            group = reduce_group([operand], reductions, axes, keepdims=True)
            assert_reductions_close(group, [operand], run(group, [operand]))
    point = np.array(2.5)
    group = reduce_group([point], ["sum", "max", "mean"], ())
    assert_reductions_close(group, [point], run(group, [point]))
    for array, axes in (
        (values_for(np.dtype("f8"), (5, 200), 1), (1,)),
        (values_for(np.dtype("f8"), (200, 5), 1), (0,)),
    ):
        mask = array > 0.3
        group = reduce_group([array, mask], ["sum", "min", "max"], axes, initial=7.5, where=True)
        for node, actual in zip(group.graph.nodes, run(group, [array, mask]), strict=True):
            expected = getattr(np, node.op.name)(array, axis=axes, initial=7.5, where=mask)
            assert np.allclose(actual, expected, rtol=1e-14)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_sums_are_as_accurate_as_their_tree(name: str) -> None:
    dtype = np.dtype(name)
    eps = float(np.finfo(dtype).eps)
    for n in (1, 100, 1000, 123_457):
        array = values_for(dtype, (n,), n) + dtype.type(1)
        (total,) = run(reduce_group([array], ["sum"], (0,)), [array])
        wide = array.astype(float).tolist()
        allowed = tree_depth(n) / 2 * eps * math.fsum(map(abs, wide))
        assert abs(float(total) - math.fsum(wide)) <= allowed


def test_float32_sums_are_off_by_twice_as_much_as_numpys_at_most() -> None:
    for shape, axes in (((1 << 20,), (0,)), ((50, 20_000), (1,)), ((20_000, 50), (0,))):
        ours, numpys = [], []
        for seed in range(8):
            array = np.random.default_rng(seed).random(shape, np.float32)
            exact = array.astype(np.float64).sum(axes)
            (total,) = run(reduce_group([array], ["sum"], axes), [array])
            ours.append(np.abs(total - exact).max())
            numpys.append(np.abs(array.sum(axes) - exact).max())
        assert np.mean(ours) <= 2 * np.mean(numpys), (shape, ours, numpys)


@pytest.mark.parametrize("name", ["sum", "var"])
def test_a_sum_has_the_same_bits_in_every_layout(name: str) -> None:
    for rows in (1, 3, 100, 128, 1000, 1024):
        array = values_for(np.dtype("f4"), (rows, 70), 2)
        wide = np.concatenate([array] * 9, axis=1)
        bits = {
            run(reduce_group([form], [name], (0,)), [form])[0][..., :70].tobytes()
            for form in (array, np.asfortranarray(array), np.repeat(array, 2, axis=1)[:, ::2], wide)
        }
        assert len(bits) == 1, rows


@pytest.mark.parametrize("name", ["sum", "nansum"])
def test_columns_of_a_full_chunk_are_read_in_runs_of_rows(name: str) -> None:
    """Rows in any other order took twice as long, and how long went with their length."""
    group = reduce_group([np.ones((300, 64))], [name], (0,))
    text = module_text(group, Schedule())
    (tree,) = re.findall(r"^define internal void @columns\d+\.tree.*?^}", text, re.M | re.S)
    rows = re.findall(r"= add i64 (%\w+), (\d+)\n +%\w+ = mul nsw i64 %\w+, %pitch", tree)
    rows = rows[: CHUNK // LANES]
    assert [int(far) for _, far in rows] == list(range(0, CHUNK, LANES))
    (lane,) = {start for start, _ in rows}
    assert f"{lane} = phi i64" in tree  # from one lane to the next it is one row


@pytest.mark.filterwarnings("ignore:Degrees of freedom", "ignore:invalid value")
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_variances_are_no_less_accurate_than_numpys(name: str) -> None:
    dtype = np.dtype(name)
    for n in (2, 17, 100, 128, 129, 1000, 123_457):
        for far in (0, 1, 1000):
            array = values_for(dtype, (n, 3), n) + dtype.type(far)
            exact = np.var(array.astype(np.longdouble), axis=0, ddof=1)
            numpys = np.abs(np.var(array, axis=0, ddof=1) - exact).max()
            for form, axes in ((array, (0,)), (np.ascontiguousarray(array.T), (1,))):
                (ours,) = run(reduce_group([form], ["var"], axes, ddof=1), [form])
                # one rounding of the result is free: NumPy may be exact by chance
                free = 2 * np.finfo(dtype).eps * exact.max()
                assert np.abs(ours - exact).max() <= numpys + free, (n, far, axes)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_variances_overflow_where_numpys_do(name: str, keepdims: bool) -> None:
    for n in (2, 3, 5, 16, 17, 128, 129, 300, 1000, 40_000):
        array = near_the_largest(np.dtype(name), n)
        array = np.concatenate((array, array[:3]))
        array[8:, n // 2] = np.inf, -np.inf, np.nan  # of these there is no mean
        for form, axes in ((array, (1,)), (np.ascontiguousarray(array.T), (0,))):
            for ddof in (0, 1):
                names = ["var", "std"]
                group = reduce_group([form], names, axes, ddof=ddof, keepdims=keepdims)
                for got, function in zip(run(group, [form]), names, strict=True):
                    want = getattr(np, function)(form, axis=axes, ddof=ddof, keepdims=keepdims)
                    assert got.shape == want.shape
                    label = (n, axes, ddof, got, want)
                    assert np.array_equal(np.isnan(got), np.isnan(want)), label
                    assert np.array_equal(np.isinf(got), np.isinf(want)), label


def test_a_reduction_takes_in_its_producers() -> None:
    x, y = values_for(np.dtype("f8"), (37, 211), 1), values_for(np.dtype("f8"), (211,), 2)
    for axes, keepdims in (((0,), False), ((1,), True), ((0, 1), False)):
        full = layout_of(x)
        result = reduce_layout("f8", x.shape, axes, keepdims)
        attrs = (("axis", axes), ("keepdims", keepdims))
        nodes = (
            Node(OPS["subtract"], (0, 1), (), full),
            Node(OPS["square"], (2,), (), full),
            Node(OPS["sum"], (3,), attrs, result),
            Node(OPS["max"], (2,), attrs, result),
        )
        group = Group(GroupKind.REDUCE, Graph((full, layout_of(y)), nodes, (4, 5)), x.shape)
        total, top = run(group, [x, y])
        assert np.allclose(total, np.square(x - y).sum(axis=axes, keepdims=keepdims), rtol=1e-14)
        assert np.array_equal(top, (x - y).max(axis=axes, keepdims=keepdims))
