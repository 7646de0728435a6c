"""Generated kernels against NumPy, drawn from the op table: ops × dtypes × special values × layouts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from alight._core.twin import layout_of, make_layout
from alight.ir.body import TYPES
from alight.ir.group import Graph, Group, GroupKind, Node
from alight.ir.ops import OPS, Kind, Op

pytest.importorskip("llvmlite")

from alight.codegen import llvm
from alight.codegen.loops import ARGUMENT_REDUCTIONS, Schedule, check, kernel_key, nest, schedules, supports
from alight.device import Unsupported

Array = np.ndarray[Any, Any]
INTEGERS = "bhilBHIL"
# NumPy differs from itself in the sign of a zero from a tie of these
TIES = {"maximum", "minimum", "fmax", "fmin", "clip"}


def special(dtype: np.dtype[Any]) -> Array:
    """Return values of a dtype where loops go wrong, and some ordinary ones."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = [0, 1, 2, 3, 5, 7, 8, 31, 32, 63, 64, 100, info.max, info.max - 1, info.max // 2]
        if dtype.kind == "i":
            near += [-1, -2, -3, -7, -64, info.min, info.min + 1]
        return np.array(sorted({n for n in near if info.min <= n <= info.max}), dtype)
    info = np.finfo(dtype)
    positive = [
        0.0, info.smallest_subnormal, info.tiny / 2, info.tiny, 1e-5, 0.1, 0.5, 0.75, 1.0, 1.5, 2.0,
        2.5, 3.0, np.pi, 10.0, 100.0, 1e10, info.max / 2, info.max, np.inf, 1 + info.eps,
    ]  # fmt: skip
    return np.array([*positive, *(-v for v in positive), np.nan], dtype)


def points(dtypes: Sequence[np.dtype[Any]]) -> list[Array]:
    """Return one array per operand: together they hold every tuple of special values."""
    grids = np.meshgrid(*(special(d) for d in dtypes), indexing="ij")
    return [np.ascontiguousarray(g.ravel()) for g in grids]


def ulp_distance(actual: Array, expected: Array) -> Array:
    """Return how many floats lie between, elementwise; NaN equals NaN, and -0 is one from 0."""
    if actual.dtype.kind != "f":
        return np.where(actual != expected, np.inf, 0.0)
    integer = np.dtype(f"i{actual.itemsize}")

    def ordered(array: Array) -> Array:
        bits = np.ascontiguousarray(array).view(integer).astype(object)
        return np.where(bits < 0, -(bits & np.iinfo(integer).max) - 1, bits)

    distance = np.abs(ordered(actual) - ordered(expected)).astype(float)
    distance[np.isnan(actual) & np.isnan(expected)] = 0
    return distance


def loop_group(inputs: Sequence[Array], uses: Iterable[tuple[Op, tuple[int, ...], Any, Any]]) -> Group:
    """Return a loop group; every node, given as op, operands, attrs and dtype, is an output."""
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    nodes = [Node(op, operands, attrs, make_layout(np.dtype(d), shape)) for op, operands, attrs, d in uses]
    graph = Graph(
        tuple(layout_of(a) for a in inputs),
        tuple(nodes),
        tuple(range(len(inputs), len(inputs) + len(nodes))),
    )
    return Group(GroupKind.LOOP, graph, shape)


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def run(group: Group, inputs: Sequence[Array], schedule: Schedule | None = None) -> list[Array]:
    """Return what the group's kernel gives for the inputs."""
    graph = group.graph
    outputs = []
    for number in graph.outputs:
        layout = graph.layout(number)
        order = sorted(range(layout.ndim), key=lambda i: -layout.strides[i])
        dense = np.empty([layout.shape[i] for i in order], layout.dtype)
        outputs.append(dense.transpose(np.argsort(order)) if layout.ndim else dense)
    kernel = llvm.compile_group(group, schedule)
    kernel([address(a) for a in (*inputs, *outputs)])
    return outputs


def reference(node: Node, operands: Sequence[Array]) -> Any:
    """Return what NumPy gives for one node."""
    attrs = dict(node.attrs)
    output = attrs.pop("output", None)
    with np.errstate(all="ignore"):
        result = node.op.reference(*operands, **attrs)
    return result if output is None else result[output]


def loops(op: Op) -> list[tuple[tuple[np.dtype[Any], ...], tuple[np.dtype[Any], ...]]]:
    """Return the operand and result dtypes of an op's loops that generated code must have."""
    if op.name in ("isposinf", "isneginf"):
        texts = [f"{c}->?" for c in "?" + INTEGERS + "fd"]
    elif op.name == "where":
        texts = [f"?{c}{c}->{c}" for c in "?" + INTEGERS + "fd"]
    elif op.name == "copy":
        texts = [f"{c}->{c}" for c in "?" + INTEGERS + "fd"]
    elif op.name == "cast":
        texts = [f"{a}->{b}" for a, b in itertools.product("?" + INTEGERS + "fd", repeat=2)]
    else:
        assert isinstance(op.reference, np.ufunc)
        texts = op.reference.types
    result = []
    for text in dict.fromkeys(texts):
        if set(text) <= set("?->" + INTEGERS + "qQfd"):
            before, after = text.split("->")
            result.append((tuple(map(np.dtype, before)), tuple(map(np.dtype, after))))
    return result


ELEMENTWISE = [op for op in OPS.values() if op.kind is Kind.ELEMENTWISE]
CASES: dict[tuple[str, ...], list[tuple[Op, tuple[Any, ...], tuple[Any, ...]]]] = {}
for _op in ELEMENTWISE:
    for _ins, _outs in loops(_op):
        CASES.setdefault(tuple(d.name for d in _ins), []).append((_op, _ins, _outs))


def in_range(op: Op, node: Node, operands: list[Array]) -> Array:
    """Tell which points NumPy defines: integer powers not below 0, casts to integers in range."""
    ok = np.ones(operands[0].shape, bool)
    if op.name == "power" and operands[1].dtype.kind == "i":
        ok &= operands[1] >= 0
    to_integer = op.name == "cast" and node.layout.dtype.kind in "iu"
    if op.name == "reciprocal" and operands[0].dtype.kind in "iu":
        ok &= operands[0] != 0
    if to_integer and operands[0].dtype.kind == "f":
        info = np.iinfo(node.layout.dtype)
        whole = np.trunc(operands[0].astype(np.longdouble))
        with np.errstate(invalid="ignore"):
            ok &= (whole >= info.min) & (whole <= info.max)
    return ok


@pytest.mark.parametrize("signature", CASES, ids="-".join)
def test_elementwise_equals_numpy_on_special_values(signature: tuple[str, ...]) -> None:
    cases = CASES[signature]
    inputs = points(cases[0][1])
    uses = []
    for op, ins, outs in cases:
        assert supports(op, (*ins, *outs)) is None
        for i, dtype in enumerate(outs):
            if op.name == "power" and ins[1].kind == "i":
                continue  # its own test: NumPy raises for the negative exponents among these
            attrs = (("output", i),) if op.nout > 1 else (("dtype", dtype),) if op.name == "cast" else ()
            uses.append((op, tuple(range(len(ins))), attrs, dtype))
    group = loop_group(inputs, uses)
    outputs = run(group, inputs)
    for node, actual in zip(group.graph.nodes, outputs, strict=True):
        assert_close(node, actual, [inputs[i] for i in node.operands])


def assert_close(node: Node, actual: Array, operands: list[Array]) -> None:
    ok = in_range(node.op, node, operands)
    expected = np.asarray(reference(node, operands))
    assert actual.dtype == expected.dtype, node.op
    with np.errstate(invalid="ignore"):
        distance = ulp_distance(actual, expected)
    if node.op.name in TIES and actual.dtype.kind == "f":
        distance[(actual == 0) & (expected == 0)] = 0
    wrong = np.flatnonzero(ok & ~(distance <= node.op.ulp))
    shown = [(*(a[i] for a in operands), actual[i], expected[i]) for i in wrong[:4]]
    assert not len(wrong), f"{node.op}, {len(wrong)} points, max {distance[ok].max()} ulp: {shown}"


# --- reductions -----------------------------------------------------------------------------------------------------
def reduce_layout(dtype: Any, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Any:
    if keepdims:
        return make_layout(np.dtype(dtype), tuple(1 if i in axes else n for i, n in enumerate(shape)))
    return make_layout(np.dtype(dtype), tuple(n for i, n in enumerate(shape) if i not in axes))


def reduce_group(
    inputs: Sequence[Array], names: Iterable[str], axes: tuple[int, ...], keepdims: bool = False, **attrs: Any
) -> Group:
    """Return a group of reductions of the first input; their dtypes are NumPy's."""
    shape = inputs[0].shape
    nodes = []
    for name in names:
        op = OPS[name]
        given = (("axis", axes), *((("keepdims", True),) if keepdims else ()), *attrs.items())
        mask = attrs.get("where", False)
        operands = (0, 1) if mask else (0,)
        one = [np.ones((1,) * a.ndim, a.dtype) for a in inputs[: len(operands)]]
        dtype = np.asarray(op.reference(*one, **dict(given))).dtype
        nodes.append(Node(op, operands, given, reduce_layout(dtype, shape, axes, keepdims)))
    first = len(inputs)
    graph = Graph(
        tuple(layout_of(a) for a in inputs), tuple(nodes), tuple(range(first, first + len(nodes)))
    )
    return Group(GroupKind.REDUCE, graph, shape)


def folds_for(dtype: np.dtype[Any]) -> list[str]:
    """Return the reductions that generated code has for a dtype."""
    names = []
    for op in OPS.values():
        if op.kind is not Kind.REDUCTION or op.name in ARGUMENT_REDUCTIONS:
            continue
        try:
            result = np.asarray(op.reference(np.ones(1, dtype), axis=(0,))).dtype
        except TypeError:
            continue
        if supports(op, (dtype, result)) is None:
            names.append(op.name)
    return names


def magnitude(op: Op, operand: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Return what a fold's bound is relative to."""
    values = np.abs(operand.astype(np.longdouble))
    values = np.where(np.isnan(values), 1 if "prod" in op.name else 0, values)
    if op.combine == "multiply":
        return np.asarray(np.prod(values, axis=axes, keepdims=keepdims))
    total = np.asarray(np.sum(values, axis=axes, keepdims=keepdims))
    return total / max(_count(operand, axes), 1) if op.name == "mean" else total


def _count(operand: Array, axes: tuple[int, ...]) -> int:
    return int(np.prod([operand.shape[i] for i in axes], dtype=int))


def assert_folds_close(group: Group, inputs: Sequence[Array], actuals: Sequence[Array]) -> None:
    for node, actual in zip(group.graph.nodes, actuals, strict=True):
        operands = [inputs[i] for i in node.operands]
        expected = np.asarray(reference(node, operands))
        label = (node.op.name, inputs[0].dtype, inputs[0].shape, inputs[0].strides, node.attrs)
        assert actual.dtype == expected.dtype and actual.shape == expected.shape, label
        assert node.op.bound is not None
        axes, keepdims = node.attr("axis"), bool(node.attr("keepdims"))
        if actual.dtype.kind != "f" or (limit := node.op.bound(_count(inputs[0], axes))) == 0:
            same = (actual == expected) | ((actual != actual) & (expected != expected))
            assert np.all(same), (label, actual, expected)
            continue
        eps = np.finfo(actual.dtype).eps
        near = np.isfinite(expected)
        assert np.array_equal(actual[~near], expected[~near], equal_nan=True), (label, actual, expected)
        error = np.abs(actual.astype(np.longdouble) - expected)[near]
        allowed = (limit * eps * magnitude(node.op, inputs[0], axes, keepdims))[near]
        tiny = float(np.finfo(actual.dtype).smallest_subnormal) * limit
        assert np.all(error <= allowed + tiny), (label, error.max(), actual, expected)


def values_for(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> Array:
    generator = np.random.default_rng(seed)
    if dtype.kind == "b":
        return generator.random(shape) < 0.9
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    return (generator.standard_normal(shape) * 1.5).astype(dtype)


def layouts(array: Array) -> Iterable[Array]:
    """Yield the array in several memory layouts."""
    yield array
    yield np.asfortranarray(array)
    wide = np.repeat(array, 2, axis=-1)
    wide[..., ::2] = array
    yield wide[..., ::2]
    yield array[::-1, ..., ::-1]
    yield np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 0, -1)), -1, 0)


@pytest.mark.parametrize("name", ["bool", "int8", "uint8", "int32", "int64", "uint64", "float32", "float64"])
def test_reductions_equal_numpy_in_every_layout(name: str) -> None:
    dtype = np.dtype(name)
    names = folds_for(dtype)
    assert {"sum", "prod", "min", "max", "any", "all", "mean", "count_nonzero"} <= set(names)
    for shape in ((3, 5, 7), (2, 40, 130)):
        for seed, array in enumerate(layouts(values_for(dtype, shape, 7))):
            for axes in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
                keepdims = bool(seed % 2)
                group = reduce_group([array], names, axes, keepdims)
                assert_folds_close(group, [array], run(group, [array]))
            for axes in ((0,), (1,), (2,), (0, 1, 2)):
                group = reduce_group([array], ARGUMENT_REDUCTIONS, axes)
                assert_folds_close(group, [array], run(group, [array]))
