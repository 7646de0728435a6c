"""Inner products: library calls that are a fold of products, too."""

from __future__ import annotations

from alight._core import make_layout
from alight.ir.group import Graph, Group, GroupKind, Node
from alight.ir.op import OPS

__all__ = ["folded"]

# Of two vectors of real floats these all give the same number.
_NAMES = frozenset(("dot", "inner", "vdot", "vecdot", "matmul"))
_DTYPES = frozenset("fd")


def folded(group: Group) -> Group:
    """Return the sum of products that an inner product of two float vectors is; any other group as
    it is.

    Its error is that of the sum and half an ulp of each product, which is less than BLAS promises;
    the bits may be others.
    """
    if group.kind is not GroupKind.LIBRARY:
        return group
    graph = group.graph
    node = graph.nodes[0]
    if node.op.name not in _NAMES or len(node.operands) != 2 or node.attrs:
        return group
    first, second = (graph.layout(i) for i in node.operands)
    if (
        first.ndim != 1
        or first.shape != second.shape
        or first.size == 0
        or first.dtype.char not in _DTYPES
        or {second.dtype, node.layout.dtype} != {first.dtype}
        or node.layout.ndim != 0
    ):
        return group
    count = len(graph.inputs)
    product = make_layout(first.dtype, first.shape)
    nodes = (
        Node(OPS["multiply"], node.operands, (), product),
        Node(OPS["sum"], (count,), (("axis", (0,)), ("keepdims", False)), node.layout),
    )
    return Group(GroupKind.REDUCE, Graph(graph.inputs, nodes, (count + 1,)), first.shape)
