"""Generated rowwise groups against NumPy: phases, what is kept between them, layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.codegen.common.gaps import unsupported
from alight._src.codegen.common.loops import Schedule
from alight._src.codegen.common.phases import phases
from alight._src.codegen.llvm.object_code import module_text
from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import Group
from alight._src.ir.well_formed import group_faults
from alight._src.log.decisions import LOG
from conformance.modes import EVERYWHERE
from generated import Array, reference, run, values_for
from programs import assert_program
from reduction_cases import Rows, softmax


def expected(group: Group, inputs: Sequence[Array]) -> list[Array]:
    values: list[Any] = list(inputs)
    for node in group.graph.nodes:
        values.append(reference(node, [values[o] for o in node.operands]))
    return [values[o] for o in group.graph.outputs]


def assert_rows(group: Group, inputs: Sequence[Array], eps: float = 64) -> None:
    assert group_faults(group) == []
    assert unsupported(group) is None
    for actual, wanted in zip(run(group, inputs), expected(group, inputs), strict=True):
        assert actual.dtype == wanted.dtype and actual.shape == wanted.shape
        if actual.dtype.kind != "f":
            assert np.array_equal(actual, wanted)
            continue
        limit = eps * float(np.finfo(actual.dtype).eps)
        scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
        np.testing.assert_allclose(actual, wanted, rtol=limit, atol=limit * scale)


def layer_norm(x: Array, axes: tuple[int, ...]) -> Group:
    rows = Rows(axes, x)
    mean = rows.reduction("mean", 0)
    centred = rows.add("subtract", 0, mean)
    variance = rows.reduction("mean", rows.add("multiply", centred, centred))
    return rows.group(rows.add("divide", centred, rows.add("sqrt", variance)), mean, variance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", [softmax, layer_norm])
def test_rows_of_every_length_equal_numpy(
    make: Callable[[Array, tuple[int, ...]], Group], dtype: str
) -> None:
    for n in (1, 2, 15, 16, 17, 127, 128, 129, 511, 512, 513, 1000, 5000):
        x = values_for(np.dtype(dtype), (3, n), n)
        assert_rows(make(x, (1,)), [x])


def test_rows_in_other_layouts_equal_numpy() -> None:
    x = values_for(np.dtype("f8"), (6, 4, 40), 1)
    for form in (x, x[::-1], x[:, :, ::-1], np.repeat(x, 2, axis=2)[:, :, ::2], x[::2, 1:3]):
        assert_rows(softmax(form, (2,)), [form])
    assert_rows(softmax(x, (1, 2)), [x])
    assert_rows(softmax(x, (0, 1, 2)), [x])
    fortran = np.asfortranarray(values_for(np.dtype("f8"), (40, 4, 6), 2))
    assert_rows(softmax(fortran, (0,)), [fortran])
    assert_rows(softmax(x, (0,)), [x])  # six of them are short
    far = values_for(np.dtype("f8"), (40, 6), 2)
    assert "next to one another" in str(unsupported(softmax(far, (0,))))
    assert "not one run" in str(unsupported(softmax(fortran, (0, 2))))


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "float32", "float64"])
def test_rows_of_every_kind_of_dtype_equal_numpy(name: str) -> None:
    x = values_for(np.dtype(name), (5, 300), 3)
    rows = Rows((1,), x)
    highest, least = rows.reduction("max", 0), rows.reduction("min", 0)
    place, some = rows.reduction("argmax", 0), rows.reduction("any", 0)
    top = rows.add("equal", 0, highest)
    count = rows.reduction("count_nonzero", top)
    after = rows.add("less", 0, rows.add("maximum", least, highest))
    assert_rows(rows.group(highest, least, place, some, top, count, after), [x])


def test_what_takes_long_is_kept_and_what_does_not_is_made_again() -> None:
    x = values_for(np.dtype("f8"), (4, 100), 1)
    found = phases(softmax(x, (1,)))
    grown, result = 3, 5
    assert found.home == {grown: result}
    assert [p.needed for p in found.passes] == [(), (2, 3), (5,), ()]
    found = phases(layer_norm(x, (1,)))
    assert found.home == {}
    assert [len(p.needed) for p in found.passes] == [0, 2, 2, 0]


def test_nothing_is_kept_in_an_output_that_is_written_too_early() -> None:
    x = values_for(np.dtype("f8"), (4, 700), 1)
    rows = Rows((1,), x)
    shifted = rows.add("subtract", 0, rows.reduction("max", 0))
    grown = rows.add("exp", shifted)
    share = rows.add("divide", grown, rows.reduction("sum", grown))
    group = rows.group(shifted, rows.reduction("max", share))
    assert phases(group).home == {}
    assert_rows(group, [x])


def test_rows_take_narrow_inputs_and_masks() -> None:
    x, scale = values_for(np.dtype("f4"), (7, 200), 1), values_for(np.dtype("f4"), (7, 1), 2)
    bias, one = values_for(np.dtype("f4"), (200,), 3), np.array(0.5, "f4")
    rows = Rows((1,), x, scale, bias, one)
    shifted = rows.add("add", rows.add("multiply", 0, 1), 2)
    total = rows.reduction("sum", shifted)
    result = rows.add("maximum", rows.add("subtract", shifted, rows.add("multiply", total, 3)), 3)
    assert_rows(rows.group(result, shifted), [x, scale, bias, one], eps=512)


def test_special_values_stay_in_their_row() -> None:
    x = values_for(np.dtype("f8"), (5, 140), 1)
    x[1, 7], x[2, 139], x[3, 0] = np.nan, np.inf, -np.inf
    assert_rows(softmax(x, (1,)), [x])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elements_that_need_more_than_others_have_the_bits_of_a_loop(dtype: str) -> None:
    # a zero, a NaN, an infinity: what is seldom stands in some vectors, and at the odd end
    base = np.abs(values_for(np.dtype(dtype), (3, 1333), 1))
    base[:, ::5], base[1, 7], base[2, 1332], base[0, 600] = 0, np.nan, np.inf, 1e-40
    exponent = np.array(1.8, dtype)
    rows = Rows((1,), base, exponent)
    raised = rows.add("power", 0, 1)
    least = rows.reduction("max", rows.add("negative", raised))
    group = rows.group(raised, least, rows.reduction("sum", raised))
    loop = Group(GroupKind.LOOP, Graph(group.graph.inputs, group.graph.nodes[:1], (2,)), rows.shape)
    (wanted,) = run(loop, [base, exponent])
    actual, lowest, total = run(group, [base, exponent])
    assert np.array_equal(actual, wanted, equal_nan=True)
    assert np.array_equal(-lowest, wanted.min(axis=1, keepdims=True), equal_nan=True)
    alone = Rows((1,), wanted)
    (expect,) = run(alone.group(alone.reduction("sum", 0)), [wanted])
    assert np.array_equal(total, expect, equal_nan=True)


def test_elements_are_made_in_vectors_where_some_need_more() -> None:
    x, exponent = values_for(np.dtype("f4"), (3, 700), 1), np.array(1.8, "f4")
    rows = Rows((1,), x, exponent)
    whole = rows.group(rows.reduction("sum", rows.add("power", 0, 1)))
    for kind in (GroupKind.ROWWISE, GroupKind.REDUCE):
        text = module_text(Group(kind, whole.graph, whole.shape), Schedule())
        entry = text[text.index("define void @entry") :]
        assert "@llvm.fma.v" in entry
        assert "@llvm.fma.f32" not in entry and "@llvm.fma.f64" not in entry


PROGRAMS = """
e = np.exp(x - x.max(axis=1, keepdims=True)); r = e / e.sum(axis=1, keepdims=True)
e = np.exp(x - x.max(axis=-1)[:, None]); r = e / e.sum(axis=-1)[:, None]
r = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
z = x - x.max(1, keepdims=True); r = z - np.log(np.exp(z).sum(1, keepdims=True))
r = x / np.sqrt((x * x).sum(1))[:, None]
s = np.sqrt((x * x).sum(1)); r = x / s[:, None] + s.max()
r = (x - x.mean(0)) / x.std(0)
r = x - x.sum(1)
r = x.min(1) + x.max(1) + x.sum(1)
y = x * 2 + 1; r = y + y.sum(1).sum()
m = x.mean(1); y = x.copy(); y[2:5] = x[2:5] - m[2:5, None]; r = y - m[:, None]
m = x.sum(1)[:, None]; w = m; m[0] = 7; r = x - m + w
r = (x - x.mean()) / x.std()
r = np.where(x > x.mean(1, keepdims=True), x, 0.0).sum(1)
r = x / np.abs(x).max(axis=1)[:, np.newaxis] - x.sum(axis=1)[:, np.newaxis]
"""


@pytest.mark.parametrize("mode", EVERYWHERE)
@pytest.mark.parametrize("program", PROGRAMS.strip().splitlines())
def test_programs_over_rows_equal_numpy(program: str, mode: str) -> None:
    for n in (40, 300):
        if n == 40 or program != "r = x - x.sum(1)":
            assert_program(program, values_for(np.dtype("f8"), (40, n), 4), mode)


def test_softmax_is_one_visit() -> None:
    x = alight.asarray(values_for(np.dtype("f8"), (50, 300), 1))
    with alight.policy(floor=0, force="cpu:generated"):
        e = alight.exp(x - x.max(axis=1)[:, None])
        before = LOG.snapshot()
        np.asarray(e / e.sum(axis=1, keepdims=True))
        kinds = [record.decision.kind for record in LOG.snapshot().since(before).records]
    assert kinds == ["rowwise"]


def test_what_is_made_of_a_rows_results_reads_scalars_of_its_own() -> None:
    x = np.random.default_rng(0).standard_normal((4, 15, 24))
    with alight.policy(force="cpu:generated", floor=0):
        LOG.reset()
        a, eps = alight.asarray(x), alight.asarray(np.array(1e-6))
        spread = np.sqrt((a**2).mean(axis=(1, 2), keepdims=True) + eps)
        expect = np.sqrt((x**2).mean(axis=(1, 2), keepdims=True) + 1e-6)
        np.testing.assert_allclose(np.asarray(spread), expect, rtol=1e-14)
        assert [r.decision.kind for r in LOG.snapshot().records] == ["rowwise"]
        assert LOG.snapshot().fallbacks == ()


@pytest.mark.parametrize("shape", [(), (7,), (40, 300), (0,), (5, 0)], ids=str)
def test_reductions_read_scalars_that_are_made_in_their_kernel(shape: tuple[int, ...]) -> None:
    x, c = values_for(np.dtype("f8"), shape, 4), np.array(2.5)
    a, one = alight.asarray(x), alight.asarray(c)

    def reduced(xp: Any, x: Any, c: Any) -> Iterator[Any]:
        yield xp.all(x == c.astype("f4"))
        yield xp.all(c * 2 != x.T + 1)
        yield xp.sum(xp.where(x > c, 1.0, 2.0) * (c + 1))
        yield xp.sum(xp.where(x > c, 1.0, 2.0)) * (c + 1)
        yield from ((x > c + 1).any(axis) for axis in range(x.ndim))

    with alight.policy(force="cpu:generated", floor=0):
        LOG.reset()
        for ours, expect in zip(reduced(alight, a, one), reduced(np, x, c), strict=True):
            np.testing.assert_array_equal(np.asarray(ours), expect)
        assert LOG.snapshot().fallbacks == ()


@pytest.mark.parametrize("one", [(), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (7, 1)], ids=str)
def test_reductions_of_one_element_are_made_whatever_its_axes(
    shape: tuple[int, ...], one: tuple[int, ...]
) -> None:
    x, c = values_for(np.dtype("f8"), shape, 5), np.full(one, 2.5)

    def reduced(xp: Any, x: Any, c: Any) -> Iterator[Any]:
        yield xp.sum(xp.where(x > c, x, 2.0)) * (c + 1)
        yield xp.max(x * c) * (c + 1)
        yield xp.argmax(x * c) + (c + 1)
        yield xp.any(x > c) | (c > 3)
        yield x - xp.min(x * c) * (c + 1)
        yield xp.max(x, axis=-1 if x.ndim else None) * (c + 1)

    with alight.policy(force="cpu:generated", floor=0), np.errstate(all="ignore"):
        LOG.reset()
        ours = reduced(alight, alight.asarray(x), alight.asarray(c))
        for got, expect in zip(ours, reduced(np, x, c), strict=True):
            assert (got.shape, got.dtype) == (np.shape(expect), np.asarray(expect).dtype)
            np.testing.assert_allclose(np.asarray(got), expect, rtol=1e-15)
        assert LOG.snapshot().fallbacks == ()
