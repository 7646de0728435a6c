"""Running generated kernels in tests: values where loops go wrong, groups, distances in ulp."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from alight._core import layout_of, make_layout
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS, Op

pytest.importorskip("llvmlite")

from alight._src.codegen.common.loops import Schedule
from alight._src.codegen.llvm import compiled, object_code, shared

Array = np.ndarray[Any, Any]
INTEGERS = "bhilBHIL"
NO_COMPLEX = {"sign", "clip"}  # besides special functions


def hold_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let go of the code of kernels, as another process finds it; it comes back after the test."""
    monkeypatch.setattr(compiled, "_known", {})
    monkeypatch.setattr(shared, "_known", {})


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
    if dtype.kind == "c":
        parts = np.array([0.0, -0.0, 1.0, -2.5, 3e-5, 1e10, np.inf, -np.inf, np.nan], dtype)
        return np.array([complex(a, b) for a in parts.real for b in parts.real], dtype)
    ten = 1e10 if dtype.itemsize > 2 else 1e4
    positive = [
        0.0, info.smallest_subnormal, info.tiny / 2, info.tiny, 1e-5, 0.1, 0.5, 0.75, 1.0, 1.5, 2.0,
        2.5, 3.0, np.pi, 10.0, 100.0, ten, info.max / 2, info.max, np.inf, 1 + info.eps,
    ]  # fmt: skip
    return np.array([*positive, *(-v for v in positive), np.nan], dtype)


def points(dtypes: Sequence[np.dtype[Any]]) -> list[Array]:
    """Return one array per operand: together they hold every tuple of special values."""
    grids = np.meshgrid(*(special(d) for d in dtypes), indexing="ij")
    return [np.ascontiguousarray(g.ravel()) for g in grids]


def ulp_distance(actual: Array, expected: Array) -> Array:
    """Return how many floats lie between, elementwise; NaN equals NaN, and -0 is one from 0. Of
    complex numbers it is the distance in ulp of the absolute value; one part NaN is as good as two,
    one infinite as good as another."""
    if actual.dtype.kind == "c":
        with np.errstate(all="ignore"):
            distance = np.asarray(np.abs(actual - expected), float)
            distance /= np.maximum(np.spacing(np.abs(expected)), np.finfo(expected.dtype).tiny)
            distance[actual == expected] = 0
        for test in (np.isnan, np.isinf):
            distance[test(actual) & test(expected)] = 0
        distance[np.isnan(distance)] = np.inf
        return distance
    if actual.dtype.kind != "f":
        return np.where(actual != expected, np.inf, 0.0)
    integer = np.dtype(f"i{actual.itemsize}")

    def ordered(array: Array) -> Array:
        bits = np.ascontiguousarray(array).view(integer).astype(object)
        return np.where(bits < 0, -(bits & np.iinfo(integer).max) - 1, bits)

    distance = np.abs(ordered(actual) - ordered(expected)).astype(float)
    distance[np.isnan(actual) & np.isnan(expected)] = 0
    return distance


def loop_group(
    inputs: Sequence[Array], uses: Iterable[tuple[Op, tuple[int, ...], Any, Any]]
) -> Group:
    """Return a loop group; every node, given as op, operands, attrs and dtype, is an output."""
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    nodes = [
        Node(op, operands, attrs, make_layout(np.dtype(d), shape))
        for op, operands, attrs, d in uses
    ]
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
        layout = graph.layouts[number]
        order = sorted(range(layout.ndim), key=lambda i: -layout.strides[i])
        dense = np.empty([layout.shape[i] for i in order], layout.dtype)
        outputs.append(dense.transpose(np.argsort(order)) if layout.ndim else dense)
    kernel = object_code.compile_group(group, schedule)
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
    native = "?" + INTEGERS + "efdFD"
    if op.name in ("isposinf", "isneginf"):
        texts = [f"{c}->?" for c in "?" + INTEGERS + "efd"]
    elif op.name == "where":
        texts = [f"?{c}{c}->{c}" for c in native]
    elif op.name == "copy":
        texts = [f"{c}->{c}" for c in native]
    elif op.name == "cast":
        texts = [f"{a}->{b}" for a, b in itertools.product(native, repeat=2)]
    elif isinstance(op.reference, np.ufunc):
        texts = op.reference.types
    else:  # random numbers have one loop each
        assert op.resolve is not None
        *before, after = (dtype.char for dtype in op.resolve(()))
        texts = [f"{''.join(before)}->{after}"]
    result = []
    for text in dict.fromkeys(texts):
        if set(text) <= set("?->" + INTEGERS + "qQefdFD"):
            before, after = text.split("->")
            if set(before) & set("FD") and (op.special or op.name in NO_COMPLEX):
                continue
            result.append((tuple(map(np.dtype, before)), tuple(map(np.dtype, after))))
    return result


def reduce_layout(dtype: Any, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Any:
    if keepdims:
        return make_layout(
            np.dtype(dtype), tuple(1 if i in axes else n for i, n in enumerate(shape))
        )
    return make_layout(np.dtype(dtype), tuple(n for i, n in enumerate(shape) if i not in axes))


def reduce_group(
    inputs: Sequence[Array],
    names: Iterable[str],
    axes: tuple[int, ...],
    keepdims: bool = False,
    **attrs: Any,
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


def values_for(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> Array:
    generator = np.random.default_rng(seed)
    if dtype.kind == "b":
        return generator.random(shape) < 0.9
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    return np.asarray(generator.standard_normal(shape) * 1.5, dtype)


def layouts(array: Array) -> Iterable[Array]:
    """Yield the array in several memory layouts."""
    yield array
    yield np.asfortranarray(array)
    wide = np.repeat(array, 2, axis=-1)
    wide[..., ::2] = array
    yield wide[..., ::2]
    yield array[::-1, ..., ::-1]
    yield np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 0, -1)), -1, 0)


DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)
UNREDUCED = ("float16", "complex64", "complex128")  # generated elementwise, not reduced


def arithmetic(inputs: Sequence[Array], out: Any = None) -> Group:
    """Return ``sqrt(|x * y|) + x`` and ``x < y`` of two arrays; ``out`` is the layout of the first
    result."""
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    full, flags = make_layout(inputs[0].dtype, shape), make_layout(np.dtype(bool), shape)
    nodes = (
        Node(OPS["multiply"], (0, 1), (), full),
        Node(OPS["absolute"], (2,), (), full),
        Node(OPS["sqrt"], (3,), (), full),
        Node(OPS["add"], (4, 0), (), out or full),
        Node(OPS["less"], (0, 1), (), flags),
    )
    return Group(GroupKind.LOOP, Graph(tuple(map(layout_of, inputs)), nodes, (5, 6)), shape)


def assert_arithmetic(x: Array, y: Array, schedule: Schedule | None = None) -> None:
    total, flags = run(arithmetic([x, y]), [x, y], schedule)
    assert np.array_equal(total, np.sqrt(np.abs(x * y)) + x)
    assert np.array_equal(flags, x < y)
