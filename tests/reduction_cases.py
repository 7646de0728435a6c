"""Groups that reduce, visit rows and scan, and what their results are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import cuda_on_cpu
from alight._core import layout_of, make_layout
from alight._src.codegen.common.gaps import supports, unsupported
from alight._src.codegen.common.loops import ARGUMENT_REDUCTIONS
from alight._src.codegen.common.source import Grid
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS, Kind, Op
from alight._src.ir.well_formed import group_faults
from generated import (
    Array,
    reduce_group,
    reference,
    run,
)


def reductions_for(dtype: np.dtype[Any]) -> list[str]:
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
    """Return what a reduction's bound is relative to."""
    values = np.abs(operand.astype(np.longdouble))
    values = np.where(np.isnan(values), 1 if "prod" in op.name else 0, values)
    if op.combine == "multiply":
        return np.asarray(np.prod(values, axis=axes, keepdims=keepdims))
    if op.name in ("var", "std"):
        squares = np.asarray(np.mean(values**2, axis=axes, keepdims=keepdims))
        if op.name == "var":
            return squares
        # an error d of a variance v is one of d / 2 sqrt(v) in its root
        root = np.sqrt(np.var(operand.astype(np.longdouble), axis=axes, keepdims=keepdims))
        return np.asarray(squares / np.maximum(root, np.finfo("f4").tiny))
    total = np.asarray(np.sum(values, axis=axes, keepdims=keepdims))
    return total / max(_count(operand, axes), 1) if op.name == "mean" else total


def _count(operand: Array, axes: tuple[int, ...]) -> int:
    return int(np.prod([operand.shape[i] for i in axes], dtype=int))


def assert_reductions_close(
    group: Group, inputs: Sequence[Array], actuals: Sequence[Array]
) -> None:
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
        assert np.array_equal(actual[~near], expected[~near], equal_nan=True), (
            label,
            actual,
            expected,
        )
        error = np.abs(actual.astype(np.longdouble) - expected)[near]
        allowed = (limit * eps * magnitude(node.op, inputs[0], axes, keepdims))[near]
        tiny = float(np.finfo(actual.dtype).smallest_subnormal) * limit
        assert np.all(error <= allowed + tiny), (label, error.max(), actual, expected)


def near_the_largest(dtype: np.dtype[Any], n: int) -> Array:
    """Return rows whose sums, and those of their squares, overflow in every order, or in none."""
    top = np.finfo(dtype).max / 2
    signs = np.where(np.arange(n) % 2, -1, 1)
    rows = np.zeros((8, n), dtype)
    rows[0], rows[1], rows[2] = top, -top, top / 2
    rows[3, 0], rows[3, -1] = top, -top  # the sum is nothing, distances from the first overflow
    rows[4, 0], rows[4, -1] = top, top
    rows[5] = top / n * signs
    rows[6] = np.sqrt(top) * signs
    rows[7, n // 2 :] = -top / n
    return rows


class Rows:
    """A rowwise group under construction over one shape, reductions keeping their axes."""

    def __init__(self, axes: tuple[int, ...], *inputs: Array) -> None:
        self.axes = axes
        self.inputs = inputs
        self.layouts = [layout_of(a) for a in inputs]
        self.shape = np.broadcast_shapes(*(a.shape for a in inputs))
        self.nodes: list[Node] = []

    def reduction(self, name: str, operand: int, **attrs: Any) -> int:
        given = (("axis", self.axes), ("keepdims", True), *attrs.items())
        kept = tuple(1 if i in self.axes else n for i, n in enumerate(self.shape))
        one = np.ones((1,) * len(kept), self.layouts[operand].dtype)
        dtype = np.asarray(OPS[name].reference(one, axis=self.axes, keepdims=True)).dtype
        return self._add(Node(OPS[name], (operand,), given, make_layout(dtype, kept)))

    def add(self, name: str, *operands: int) -> int:
        shape = np.broadcast_shapes(*(self.layouts[o].shape for o in operands))
        dtype = OPS[name].reference(*(np.ones(1, self.layouts[o].dtype) for o in operands)).dtype
        return self._add(Node(OPS[name], operands, (), make_layout(dtype, shape)))

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        self.layouts.append(node.layout)
        return len(self.layouts) - 1

    def group(self, *outputs: int) -> Group:
        inputs = tuple(map(layout_of, self.inputs))
        return Group(GroupKind.ROWWISE, Graph(inputs, tuple(self.nodes), outputs), self.shape)


def softmax(x: Array, axes: tuple[int, ...]) -> Group:
    rows = Rows(axes, x)
    grown = rows.add("exp", rows.add("subtract", 0, rows.reduction("max", 0)))
    return rows.group(rows.add("divide", grown, rows.reduction("sum", grown)))


def scan_group(array: Array, ops: Sequence[Op], axis: int) -> Group:
    nodes = []
    for op in ops:
        result = np.asarray(op.reference(np.ones((1,) * array.ndim, array.dtype), axis=axis))
        nodes.append(Node(op, (0,), (("axis", axis),), make_layout(result.dtype, array.shape)))
    outputs = tuple(range(1, 1 + len(nodes)))
    return Group(GroupKind.SCAN, Graph((layout_of(array),), tuple(nodes), outputs), array.shape)


def scans_of(dtype: np.dtype[Any]) -> list[Op]:
    """Return the scans that generated code has for a dtype."""
    found = []
    for op in OPS.values():
        if op.kind is not Kind.SCAN:
            continue
        try:
            result = np.asarray(op.reference(np.ones(1, dtype), axis=0)).dtype
        except TypeError:
            continue
        if supports(op, (dtype, result)) is None:
            found.append(op)
    return found


def distances(x: Array, y: Array, root: bool) -> Group:
    """Return the distances of all pairs of points, with or without their roots."""
    left = layout_of(x[:, None, :]), layout_of(y[None, :, :])
    shape = len(x), len(y), x.shape[1]
    full, flat = make_layout(x.dtype, shape), make_layout(x.dtype, shape[:2])
    axis = (("axis", (2,)),)
    nodes = [
        Node(OPS["subtract"], (0, 1), (), full),
        Node(OPS["square"], (2,), (), full),
        Node(OPS["sum"], (3,), axis, flat),
    ]
    kind = GroupKind.REDUCE
    if root:
        nodes.append(Node(OPS["sqrt"], (4,), (), flat))
        kind = GroupKind.ROWWISE
    group = Group(kind, Graph(left, tuple(nodes), (len(nodes) + 1,)), shape)
    assert group_faults(group) == []
    return group


FLOATS = ("sum", "max", "mean", "var", "std", "count_nonzero", "nansum", "nanmin")


def assert_same_bits(actual: Array, expected: Array) -> None:
    """NaN is NaN; which of two equal zeros is the greater is open."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert actual.strides == expected.strides
    if actual.dtype.kind == "f":
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        assert same.all(), (actual[~same], expected[~same])
    else:
        assert np.array_equal(actual, expected)


def assert_as_on_host(group: Group, inputs: list[Array], grid: Grid | None = None) -> None:
    on_host = run(group, inputs)
    for actual, expected in zip(cuda_on_cpu.run(group, inputs, grid), on_host, strict=True):
        assert_same_bits(actual, expected)


def names_of(dtype: str, axes: tuple[int, ...]) -> list[str]:
    if dtype == "bool":
        return ["any", "all", "sum"]
    names = FLOATS if dtype.startswith("f") else ("sum", "prod", "min", "mean")
    return [*names, "argmin", "argmax"] if len(axes) == 1 else names


def chain_reductions(x: Array, scale: Array, names: tuple[str, ...]) -> Group:
    """Return reductions of sqrt(x * x + scale) / sin(x) + exp(x), which is not usual for many x."""
    lay, axes = layout_of(x), (x.ndim - 1,)
    nodes = [
        Node(OPS["multiply"], (0, 0), (), lay),
        Node(OPS["add"], (2, 1), (), lay),
        Node(OPS["sqrt"], (3,), (), lay),
        Node(OPS["sin"], (0,), (), lay),
        Node(OPS["divide"], (4, 5), (), lay),
        Node(OPS["exp"], (0,), (), lay),
        Node(OPS["add"], (6, 7), (), lay),
    ]
    for name in names:
        dtype = np.asarray(OPS[name].reference(np.ones((1,) * x.ndim, x.dtype), axis=axes)).dtype
        nodes.append(Node(OPS[name], (8,), (("axis", axes),), make_layout(dtype, x.shape[:-1])))
    outputs = tuple(range(9, 9 + len(names)))
    inputs = layout_of(x), layout_of(scale)
    return Group(GroupKind.REDUCE, Graph(inputs, tuple(nodes), outputs), x.shape)


def lacking(name: str, values: Array, axes: tuple[int, ...]) -> bool:

    try:
        return unsupported(reduce_group([values], [name], axes)) is not None
    except TypeError:
        return True
