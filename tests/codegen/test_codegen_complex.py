"""Generated sums and means of complex numbers against NumPy: layouts, special values, masks, bits
that no number of threads and no alignment changes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import alight
from alight._core import layout_of, make_layout
from alight._src.codegen.common.gaps import unsupported
from alight._src.codegen.common.loops import nest
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.ir.table_reduction import CHUNK
from alight.backends import host
from alight.backends.base import Operand
from alight.backends.host import memory_at
from generated import Array, layouts, reduce_group, reference, run

SUMS = ("sum", "mean", "reduce_add")


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    generator = np.random.default_rng(seed)
    parts = generator.standard_normal((2, *shape))
    return np.asarray(parts[0] + 1j * parts[1], dtype)


def assert_sums_close(group: Group, inputs: list[Array]) -> None:
    (array, *_) = inputs
    for node, actual in zip(group.graph.nodes, run(group, inputs), strict=True):
        expected = np.asarray(reference(node, [inputs[i] for i in node.operands]))
        label = node.op.name, array.shape, array.strides, node.attrs
        assert actual.dtype == expected.dtype and actual.shape == expected.shape, label
        axes = node.attr("axis")
        count = int(np.prod([array.shape[i] for i in axes], dtype=int))
        size = np.abs(array.astype(complex)).sum(axis=axes, keepdims=bool(node.attr("keepdims")))
        size = size / max(count, 1) if node.op.name == "mean" else size
        assert node.op.bound is not None
        allowed = node.op.bound(count) * np.finfo(actual.dtype).eps * size
        assert np.all(np.abs(actual - expected) <= allowed), (label, actual, expected)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_sums_equal_numpy_in_every_layout(dtype: str) -> None:
    for shape in ((3, 5, 7), (2, 40, 130), (3, 300), (300, 3), (1, 1), (17, 2)):
        ndim = len(shape)
        for seed, array in enumerate(layouts(numbers(dtype, shape, 7))):
            for axes in ((), (0,), (ndim - 1,), tuple(range(ndim))):
                assert_sums_close(
                    reduce_group([array], SUMS, axes, keepdims=bool(seed % 2)), [array]
                )


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_sums_of_special_values_equal_numpy(dtype: str) -> None:
    generator = np.random.default_rng(3)
    pool = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5])
    for n in (1, 15, 16, 17, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 3):
        parts = np.full((2, 40, n), 1.25)
        some = generator.random(parts.shape) < 2 / n
        parts[some] = generator.choice(pool, int(some.sum()))
        array = np.empty((40, n), dtype)
        array.real, array.imag = parts
        for operand, axes in ((array, (1,)), (np.ascontiguousarray(array.T), (0,))):
            group = reduce_group([operand], SUMS, axes)
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for node, actual in zip(group.graph.nodes, run(group, [operand]), strict=True):
                    expected = np.asarray(reference(node, [operand]))
                    for one, other in (
                        (actual.real, expected.real),
                        (actual.imag, expected.imag),
                    ):
                        assert np.array_equal(np.isnan(one), np.isnan(other)), (n, node.op.name)
                        far = np.isinf(other)
                        assert np.array_equal(np.isinf(one), far), (n, node.op.name)
                        assert np.array_equal(one[far], other[far])
    for shape, axes in (((2, 20), (1,)), ((20, 2), (0,))):
        zeros = np.full(shape, complex(-0.0, -0.0), dtype)
        (total,) = run(reduce_group([zeros], ["sum"], axes), [zeros])
        expected = zeros.sum(axis=axes[0])
        assert np.array_equal(np.signbit(total.real), np.signbit(expected.real))
        assert np.array_equal(np.signbit(total.imag), np.signbit(expected.imag))


def test_sums_of_nothing_with_a_start_and_with_masks_equal_numpy() -> None:
    for shape, axes in (((0,), (0,)), ((0, 3), (0,)), ((3, 0), (1,))):
        nothing = np.ones(shape, complex)
        assert_sums_close(reduce_group([nothing], ["sum"], axes, keepdims=True), [nothing])
    for shape, axes in (((5, 200), (1,)), ((200, 5), (0,)), ((40, 6), (1,))):
        array = numbers("complex128", shape, 2)
        mask = array.real > 0.3
        given = {"initial": 7.5 - 1j, "where": True}
        group = reduce_group([array, mask], ["sum"], axes, **given)
        (actual,) = run(group, [array, mask])
        assert np.allclose(actual, array.sum(axis=axes[0], initial=7.5 - 1j, where=mask), 1e-14)


def test_short_rows_are_written_out() -> None:
    array = numbers("complex64", (300, 5), 1)
    group = reduce_group([array], SUMS, (1,))
    assert nest(group, unroll=True).unrolled
    assert_sums_close(group, [array])


def test_real_numbers_are_summed_as_complex_ones_where_that_is_asked_for() -> None:
    array = numbers("complex128", (7, 300), 5).real.copy()
    for axes in ((1,), (0,)):
        assert_sums_close(reduce_group([array], ["sum"], axes, dtype=np.dtype("D")), [array])


def test_what_is_summed_is_made_on_the_way() -> None:
    array = numbers("complex64", (9, 700), 5)
    whole, left = make_layout(array.dtype, array.shape), make_layout(array.dtype, (9,))
    nodes = (
        Node(OPS["conjugate"], (0,), (), whole),
        Node(OPS["multiply"], (0, 1), (), whole),
        Node(OPS["sum"], (2,), (("axis", (1,)),), left),
    )
    group = Group(GroupKind.REDUCE, Graph((layout_of(array),), nodes, (3,)), array.shape)
    (actual,) = run(group, [array])
    assert np.allclose(actual, (array * array.conj()).sum(axis=1), 1e-6)


@pytest.mark.parametrize("name", ["prod", "any", "count_nonzero", "min", "cumsum"])
def test_other_reductions_of_complex_numbers_are_left_to_numpy(name: str) -> None:
    array = np.ones((3, 4), complex)
    if OPS[name].kind.value == "scan":
        node = Node(OPS[name], (0,), (("axis", 1),), layout_of(array))
        group = Group(GroupKind.SCAN, Graph((layout_of(array),), (node,), (1,)), array.shape)
    else:
        group = reduce_group([array], [name], (1,))
    assert f"no {name} of complex128" in str(unsupported(group))


def test_bits_stay_with_threads_and_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    array = numbers("complex64", (700, 3000), 9)
    room = np.empty(array.nbytes + 24, np.uint8)
    backend = host.HostBackend()
    (device,) = backend.probe().devices
    found = set()
    for threads, shift in ((1, 0), (2, 8), (7, 24)):
        monkeypatch.setattr(host, "thread_count", lambda n=threads: n)
        moved = room[shift : shift + array.nbytes].view(array.dtype).reshape(array.shape)
        moved[...] = array
        bits = []
        for axes in ((0, 1), (0,), (1,)):
            group = reduce_group([moved], SUMS, axes)
            kernel = backend.compile(device, group, "generated", None)
            address = moved.__array_interface__["data"][0]
            data = memory_at(address, moved.nbytes)
            made = kernel.run([Operand(data, 0, layout_of(moved))], [None] * len(SUMS))
            bits += [one.array.tobytes() for one in made]
        found.add(tuple(bits))
    assert len(found) == 1


@pytest.mark.parametrize("force", [None, "cpu:generated"])
def test_programs_of_complex_numbers_equal_numpy(force: str | None) -> None:
    array = numbers("complex64", (300, 400), 4)
    with alight.policy(force=force, floor=0):
        x = alight.asarray(array)
        results = [x.sum(), x.mean(axis=0), (x - x.mean()).sum(axis=1), (abs(x) ** 2).sum()]
        results.append(x[::-1, ::-2].sum(axis=0))
        actual = [np.asarray(result) for result in results]
    y = array
    expected = [y.sum(), y.mean(axis=0), (y - y.mean()).sum(axis=1), (abs(y) ** 2).sum()]
    expected.append(y[::-1, ::-2].sum(axis=0))
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert np.allclose(one, other, 1e-4, 1e-3)
