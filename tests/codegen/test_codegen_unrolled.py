"""Reductions along short axes, unrolled beside a loop over vectors: against NumPy, and bit for bit
against the loops that reduce one element after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import alight
from alight._core import layout_of, make_layout
from alight._src.codegen.common import loops
from alight._src.codegen.common.gaps import unsupported
from alight._src.codegen.common.loops import ARGUMENT_REDUCTIONS, UNROLLED_NODES, Schedule, nest
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.ir.well_formed import group_faults
from alight._src.log.decisions import LOG
from generated import DTYPES, Array, layouts, reduce_group, run, values_for
from reduction_cases import assert_reductions_close, distances, reductions_for


def looped(monkeypatch: pytest.MonkeyPatch, group: Group, inputs: Sequence[Array]) -> list[Array]:
    """Return what the group gives where nothing is unrolled."""
    with monkeypatch.context() as patch:
        patch.setattr(loops, "_unrolled", lambda *_: 0)
        assert not nest(group, unroll=True).unrolled
        return run(group, inputs)


def assert_same_bits(
    monkeypatch: pytest.MonkeyPatch, group: Group, inputs: Sequence[Array]
) -> None:
    assert nest(group, unroll=True).unrolled
    wanted = [a.tobytes() for a in looped(monkeypatch, group, inputs)]
    for schedule in (Schedule(), Schedule(vector_bits=256), Schedule(interleave=4)):
        actual = [a.tobytes() for a in run(group, inputs, schedule)]
        assert actual == wanted, (group.graph, schedule)


@pytest.mark.parametrize("name", (*DTYPES, "float16"))
def test_every_short_reduction_equals_numpy_and_the_long_form(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype = np.dtype(name)
    for length, count in ((2, 170), (5, 133), (16, 241)):
        for shape, axes in (((count, length), (1,)), ((length, count), (0,))):
            array = values_for(dtype, shape, length)
            for names in (reductions_for(dtype), ARGUMENT_REDUCTIONS):
                group = reduce_group([array], names, axes)
                assert_reductions_close(group, [array], run(group, [array]))
                assert nest(group, unroll=True).unrolled or len(names) * length > UNROLLED_NODES
    array = values_for(dtype, (150, 3), 9)
    group = reduce_group([array], reductions_for(dtype), (1,))
    assert_same_bits(monkeypatch, group, [array])
    group = reduce_group([array], ARGUMENT_REDUCTIONS, (1,))
    assert_same_bits(monkeypatch, group, [array])


@pytest.mark.parametrize("name", ["bool", "int16", "float16", "float32", "float64"])
def test_short_reductions_have_the_same_bits_in_every_layout(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shape, axes in (
        ((140, 3), (1,)), ((70, 7), (1,)), ((6, 133), (0,)), ((3, 140, 2), (0, 2)),
        ((2, 3, 50), (1,)),
        ((137, 5, 3), (2,)), ((37, 5, 3), (1,)), ((90, 4, 4), (1, 2)), ((35, 2, 16), (1,)),
    ):  # fmt: skip
        for seed, array in enumerate(layouts(values_for(np.dtype(name), shape, 7))):
            group = reduce_group([array], ["sum", "min"], axes, keepdims=bool(seed % 2))
            assert_reductions_close(group, [array], run(group, [array]))
            if nest(group, unroll=True).unrolled:
                assert_same_bits(monkeypatch, group, [array])


@pytest.mark.filterwarnings("ignore:Degrees of freedom", "ignore:invalid value")
def test_short_variances_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    for length in (1, 2, 3, 9, 16):
        array = values_for(np.dtype("f4"), (70, length), length) + np.float32(100)
        array[3, 0], array[5, -1] = np.inf, np.nan
        for ddof in (0, 1)[:length]:
            group = reduce_group([array], ["var"], (1,), ddof=ddof)
            with np.errstate(all="ignore"):
                assert_same_bits(monkeypatch, group, [array])


def test_short_reductions_with_masks_and_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    array = values_for(np.dtype("f8"), (45, 6), 1)
    array[4], array[7, 2] = -0.0, np.nan
    for mask in (array > 0.3, np.zeros(array.shape, bool), np.ones((45, 1), bool)):
        whole = np.broadcast_to(mask, array.shape)
        given = np.ascontiguousarray(whole)
        group = reduce_group([array, given], ["sum", "min", "max"], (1,), initial=7.5, where=True)
        assert_same_bits(monkeypatch, group, [array, given])
        for node, actual in zip(group.graph.nodes, run(group, [array, given]), strict=True):
            expected = getattr(np, node.op.name)(array, axis=1, initial=7.5, where=whole)
            assert np.allclose(actual, expected, rtol=1e-14, equal_nan=True)
    (total,) = run(reduce_group([array], ["sum"], (1,)), [array])
    assert not np.signbit(total[4])


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_distances_are_one_loop_over_pairs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dtype = np.dtype(name)
    for points, others, length in ((5, 100, 3), (150, 8, 2), (40, 40, 1), (33, 16, 7), (70, 3, 5)):
        x, y = values_for(dtype, (points, length), 1), values_for(dtype, (others, length), 2)
        for forms in ((x, y), (np.asfortranarray(x), np.asfortranarray(y)), (x[::-1], y[:, ::-1])):
            squares = np.square(forms[0][:, None, :] - forms[1][None, :, :]).sum(axis=2)
            group = distances(*forms, root=False)
            assert_same_bits(monkeypatch, group, forms)
            (actual,) = run(group, forms)
            eps = float(np.finfo(dtype).eps)
            np.testing.assert_allclose(actual, squares, rtol=4 * eps)
            group = distances(*forms, root=True)
            assert unsupported(group) is None
            assert np.array_equal(run(group, forms)[0], np.sqrt(actual))


def test_what_reductions_leave_does_not_meet_another_shape() -> None:
    x = values_for(np.dtype("f8"), (20, 20), 1)
    full, flat = layout_of(x), make_layout(x.dtype, (20,))
    nodes = (
        Node(OPS["sum"], (0,), (("axis", (1,)),), flat),
        Node(OPS["subtract"], (0, 1), (), full),
    )
    group = Group(GroupKind.ROWWISE, Graph((full,), nodes, (2,)), x.shape)
    assert group_faults(group) != []
    assert "something else" in str(unsupported(group))


def test_special_values_and_zero_signs_stay_where_they_are() -> None:
    pool = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1.5])
    array = np.random.default_rng(3).choice(pool, (300, 4))
    group = reduce_group([array], ["sum", "min", "max", "nansum", "nanmax", "any"], (1,))
    with np.errstate(all="ignore"):
        assert_reductions_close(group, [array], run(group, [array]))
        group = reduce_group([array], ARGUMENT_REDUCTIONS, (1,))
        assert_reductions_close(group, [array], run(group, [array]))


def test_what_is_made_of_a_short_sum_is_made_beside_it() -> None:
    points = values_for(np.dtype("f8"), (60, 3), 1)
    x = alight.asarray(points)
    with alight.policy(floor=0, force="cpu:generated"):
        before = LOG.snapshot()
        result = np.asarray(np.sqrt(((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2)) + x[:, 0])
        kinds = [record.decision.kind for record in LOG.snapshot().since(before).records]
    assert kinds == ["rowwise"]
    wanted = np.sqrt(((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)) + points[:, 0]
    np.testing.assert_allclose(result, wanted, rtol=1e-14)


def test_short_products_go_in_numpys_order() -> None:
    pools = {
        "float32": np.array([1e20, 1e-20, -1.5, 3.0, 1e11, np.nan], np.float32),
        "float64": np.array([1e200, 1e-200, -1.5, 3.0, 1e110, np.nan]),
    }
    for dtype, pool in pools.items():
        array = np.random.default_rng(4).choice(pool, (500, 7))
        with np.errstate(all="ignore"):
            for form in (array, np.asfortranarray(array), np.repeat(array, 2, axis=1)[:, ::2]):
                group = reduce_group([form], ["prod", "nanprod", "reduce_multiply"], (1,))
                assert unsupported(group) is None
                for node, actual in zip(group.graph.nodes, run(group, [form]), strict=True):
                    expected = node.op.reference(form, axis=1)
                    assert np.array_equal(actual, expected, equal_nan=True)
        for group in (
            reduce_group([array[:, ::-1]], ["prod"], (1,)),  # NumPy goes as memory does
            reduce_group([array], ["prod"], (1,), initial=2.0),  # it begins with that
            reduce_group([np.ones((500, 17), dtype)], ["prod"], (1,)),
            reduce_group([np.ones((500, 7), "float16")], ["prod"], (1,)),
        ):
            assert "NumPy's order" in str(unsupported(group))
