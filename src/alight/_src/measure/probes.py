"""What is timed to learn a device: small groups of known work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from alight._core import Layout, make_layout
from alight._src.base.records import dataclass
from alight._src.ir.graph import Attrs, Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.plan.occupancy import LONE_OPS

# Operations of the probe of arithmetic. Enough that they stand out from one pass over memory in the
# first-level cache, behind which a few hide.
CHAIN = 24


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to time: a group, the implementation to run it, and its inputs' dtype."""

    implementation: str
    group: Group


def _vector(dtype: str, n: int) -> Layout:
    return make_layout(np.dtype(dtype), (n,))


def loop(
    name: str,
    dtype: str,
    n: int,
    result: str | None = None,
    attrs: Attrs = (),
    step: int = 1,
    still: bool = False,
) -> Group:
    """Return a group of one elementwise op over n elements, each operand its own array, of the
    first of which it takes every ``step``-th element, and of the others one where they stay
    ``still``."""
    layout = _vector(dtype, n)
    first = make_layout(layout.dtype, (n,), (step * layout.itemsize,))
    op = OPS[name]
    out = layout if result is None else _vector(result, n)
    node = Node(op, tuple(range(op.nin)), attrs, out)
    other = make_layout(layout.dtype, ()) if still else layout
    inputs = (first, *[other] * (op.nin - 1))
    return Group(GroupKind.LOOP, Graph(inputs, (node,), (op.nin,)), (n,))


def turned(name: str, dtype: str, side: int) -> Group:
    """Return a group of one op of two square arrays, of which the first lies column by column."""
    whole = make_layout(np.dtype(dtype), (side, side))
    columns = make_layout(whole.dtype, (side, side), (whole.itemsize, side * whole.itemsize))
    node = Node(OPS[name], (0, 1), (), whole)
    return Group(GroupKind.LOOP, Graph((columns, whole), (node,), (2,)), (side, side))


def chain(
    dtype: str, n: int, ops: Sequence[str] = ("add", "multiply"), count: int = CHAIN
) -> Group:
    """Return a group of CHAIN additions and multiplications, or so many other ops, of the same two
    arrays."""
    layout = _vector(dtype, n)
    nodes = []
    last = 0
    for i in range(count):
        op = OPS[ops[i % len(ops)]]
        nodes.append(Node(op, (last, 1)[: op.nin], (), layout))
        last = 2 + i
    graph = Graph((layout, layout), tuple(nodes), (last,))
    return Group(GroupKind.LOOP, graph, layout.shape)


def reduction(
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    apart: int = 0,
    across: bool = False,
) -> Group:
    """Return a group of one reduction over some axes of a C-ordered array, or of a matrix whose
    rows, or with ``across`` columns, lie so many elements ``apart``."""
    layout = make_layout(np.dtype(dtype), shape)
    if apart:
        step = (shape[not across] + apart) * layout.itemsize
        steps = (step, layout.itemsize)
        layout = make_layout(layout.dtype, shape, steps[::-1] if across else steps)
    kept = tuple(length for i, length in enumerate(shape) if i not in axes)
    with np.errstate(all="ignore"):
        result = np.asarray(OPS[name].reference(np.ones(1, dtype))).dtype
    # an argument's place is counted along one axis, or along all
    axis: object = axes
    if name.startswith("arg"):
        axis = axes[0] if len(axes) == 1 else None
    node = Node(OPS[name], (0,), (("axis", axis),), make_layout(result, kept))
    return Group(GroupKind.REDUCE, Graph((layout,), (node,), (1,)), shape)


def reduced(dtype: str, n: int, ops: Sequence[str], step: int = 1) -> Group:
    """Return a group of a chain of ops, the maximum of which is taken; of the first operand every
    ``step``-th element."""
    layout = _vector(dtype, n)
    first = make_layout(layout.dtype, (n,), (step * layout.itemsize,))
    nodes = []
    for last, op in zip((0, *range(2, len(ops) + 1)), map(OPS.__getitem__, ops), strict=True):
        nodes.append(Node(op, (last, 1)[: op.nin], (), layout))
    single = make_layout(layout.dtype, ())
    nodes.append(Node(OPS["max"], (len(ops) + 1,), (("axis", (0,)),), single))
    graph = Graph((first, layout), tuple(nodes), (len(ops) + 2,))
    return Group(GroupKind.REDUCE, graph, (n,))


def lone(dtype: str, n: int, op: str) -> Group:
    """Return a group that one block of threads has to itself on a device: a row of which, after an
    op as often as it is to be timed, the maximum is taken, and a product made of that."""
    row, single = _vector(dtype, n), make_layout(np.dtype(dtype), ())
    nodes, last = [], 0
    for _ in range(LONE_OPS[op]):
        nodes.append(Node(OPS[op], (last, 1)[: OPS[op].nin], (), row))
        last = 1 + len(nodes)
    nodes.append(Node(OPS["max"], (last,), (("axis", (0,)),), single))
    nodes.append(Node(OPS["multiply"], (1 + len(nodes), 1), (), single))
    return Group(GroupKind.ROWWISE, Graph((row, single), tuple(nodes), (1 + len(nodes),)), (n,))


def scan(name: str, dtype: str, side: int) -> Group:
    """Return a group of one scan along the rows of a square: a device whose threads have rows wants
    many of them."""
    layout = make_layout(np.dtype(dtype), (side, side))
    node = Node(OPS[name], (0,), (("axis", 1),), layout)
    return Group(GroupKind.SCAN, Graph((layout,), (node,), (1,)), layout.shape)


def rows(name: str, dtype: str, count: int, length: int, step: int = 1) -> Group:
    """Return a group of one op of two operands over so many rows, which lie apart in the first,
    where also only every few elements are taken."""
    size = np.dtype(dtype).itemsize
    apart = make_layout(np.dtype(dtype), (count, length), ((length + 7) * step * size, step * size))
    whole = make_layout(np.dtype(dtype), (count, length))
    node = Node(OPS[name], (0, 1), (), whole)
    return Group(GroupKind.LOOP, Graph((apart, whole), (node,), (2,)), (count, length))


def where(dtype: str, shape: tuple[int, ...]) -> Group:
    """Return a group that picks each element from one of two arrays, the second one row of it."""
    layout = make_layout(np.dtype(dtype), shape)
    node = Node(OPS["where"], (0, 1, 2), (), layout)
    row = make_layout(np.dtype(dtype), shape[-1:])
    inputs = (make_layout(np.dtype(bool), shape), layout, row)
    return Group(GroupKind.LOOP, Graph(inputs, (node,), (3,)), shape)


def product(dtype: str, m: int, k: int = 0, n: int = 0, turned: str = "") -> Group:
    """Return a group of one (m, k) by (k, n) matrix product; of m by m matrices with m alone.
    ``turned``: which of the two, "first" or "second", is a matrix with its axes swapped."""
    kind, k, n = np.dtype(dtype), k or m, n or m
    first, second, out = (make_layout(kind, shape) for shape in ((m, k), (k, n), (m, n)))
    if turned == "first":
        first = make_layout(kind, (m, k), (kind.itemsize, kind.itemsize * m))
    if turned == "second":
        second = make_layout(kind, (k, n), (kind.itemsize, kind.itemsize * k))
    node = Node(OPS["matmul"], (0, 1), (), out)
    return Group(GroupKind.LIBRARY, Graph((first, second), (node,), (2,)), (m, n))


def library(dtype: str, n: int) -> Iterator[tuple[str, Group]]:
    """Yield class and group of what is neither elementwise nor a reduction: one of each class."""
    layout = _vector(dtype, n)
    sort = Node(OPS["sort"], (0,), (("axis", -1),), layout)
    yield "sort", _called((layout,), sort)
    places = make_layout(np.dtype(np.intp), (n,))
    yield "gather", _called((layout, places), Node(OPS["take"], (0, 1), (), layout))
    side = math.isqrt(n)
    turned = make_layout(layout.dtype, (side, side), (layout.itemsize, layout.itemsize * side))
    whole = make_layout(layout.dtype, (side, side))
    join = Node(
        OPS["concatenate"], (0, 1), (("axis", 0),), make_layout(layout.dtype, (2 * side, side))
    )
    yield "move", _called((turned, whole), join)
    if dtype == "float64":
        wave = make_layout(np.dtype(np.complex128), (n,))
        yield "fft", _called((layout,), Node(OPS["fft.fft"], (0,), (), wave))


def _called(inputs: tuple[Layout, ...], node: Node) -> Group:
    graph = Graph(inputs, (node,), (len(inputs),))
    return Group(GroupKind.LIBRARY, graph, node.layout.shape)
