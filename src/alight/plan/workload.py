"""What a group asks of a device: flops, transcendentals, bytes; counted, never measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from alight.ir.body import element_by_element, operations
from alight.ir.group import Graph, Group, GroupKind, Node
from alight.ir.ops import Dtype, Kind, Op, trees

if TYPE_CHECKING:
    import numpy as np

    from alight._core import Layout

# Sums of products. Their flops follow from the shapes, which no count for each element can say.
_CONTRACTIONS = frozenset(
    ("matmul", "dot", "inner", "vdot", "vecdot", "matvec", "vecmat", "tensordot", "einsum")
)


@dataclass(frozen=True, slots=True)
class Workload:
    """Counted work. Bytes are unique: an input read twice, or broadcast, counts once.

    ``elements`` is the iteration space. ``host_output_bytes`` and ``sync_points`` say what the host
    waits for at the end. ``dtypes`` are those of all values, inputs included.
    """

    flops: float
    special: float
    bytes_read: int
    bytes_written: int
    launches: int
    sync_points: int
    host_output_bytes: int
    elements: int
    dtypes: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Return bytes read and written."""
        return self.bytes_read + self.bytes_written


# NumPy computes a dtype's name anew at each reading, which takes longer than all else here. The
# bound keeps structured dtypes made in a loop from piling up.
@lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype."""
    return dtype.name


def unique_bytes(layout: Layout) -> int:
    """Return the bytes of the distinct elements of a layout: a broadcast axis counts once."""
    size = layout.itemsize
    for length, stride in zip(layout.shape, layout.strides, strict=True):
        size *= length if stride or length == 0 else 1
    return size


def node_elements(graph: Graph, node: Node) -> int:
    """Return how often a node's body runs: for each element of its result, or of what it folds."""
    if node.op.kind in (Kind.REDUCTION, Kind.SCAN):
        return max(node.layout.size, graph.layout(node.operands[0]).size)
    return node.layout.size


# The transcendentals that others are estimated by: they are measured first.
SPECIAL = ("exp", "sin")


def body_size(graph: Graph, node: Node) -> int:
    """Return the operations in the body of an elementwise node."""
    return _body(node.op, tuple([graph.layout(i).dtype for i in node.operands]), node.layout.dtype)[
        0
    ]


def body_loops(graph: Graph, node: Node) -> bool:
    """Tell whether the body of an elementwise node goes through the elements one by one."""
    return _body(node.op, tuple([graph.layout(i).dtype for i in node.operands]), node.layout.dtype)[
        1
    ]


@lru_cache(maxsize=4096)
def _body(op: Op, operands: tuple[Dtype, ...], result: Dtype) -> tuple[int, bool]:
    found = trees(op, operands, result)
    return (1, False) if found is None else (operations(found), element_by_element(found))


def code_size(group: Group) -> tuple[int, int]:
    """Return the operations in the bodies of a group's kernel, and its reductions: what a compiler
    goes through."""
    size = folds = 0
    graph = group.graph
    for node in graph.nodes:
        if node.op.kind is Kind.ELEMENTWISE:
            size += body_size(graph, node)
        else:
            folds += 1
    return size, folds


def node_flops(graph: Graph, node: Node) -> float:
    """Return the arithmetic of a node, without its transcendentals."""
    if node.op.special:
        return 0.0
    if is_contraction(node):
        return contraction_flops(graph, node)
    return node.op.flops * node_elements(graph, node)


def is_contraction(node: Node) -> bool:
    """Tell whether a node is a sum of products of several operands, such as a matrix product."""
    return node.op.name in _CONTRACTIONS and len(node.operands) >= 2


def contraction_flops(graph: Graph, node: Node) -> float:
    """Return multiplications and additions of a sum of products of two operands."""
    layouts = [graph.layout(i) for i in node.operands]
    first, second = layouts[0], layouts[1]
    if node.op.name in ("tensordot", "einsum"):
        # (m·k)·(k·n)·(m·n) = (m·k·n)²; with a batch axis this counts too much by its square root.
        return 2.0 * math.sqrt(first.size * second.size * max(node.layout.size, 1))
    length = first.shape[-1] if first.ndim else 1
    return 2.0 * length * max(node.layout.size, 1)


def workload(group: Group, on_host: Iterable[int] = ()) -> Workload:
    """Return the work of a group that runs as one launch: intermediates touch no memory.

    ``on_host`` are the positions of outputs that the host reads next.
    """
    graph = group.graph
    flops = special = 0.0
    elements = 1
    for length in group.shape:
        elements *= length
    dtypes: set[str] = set()
    used: set[int] = set(graph.outputs)
    largest = 0
    for node in graph.nodes:
        flops += node_flops(graph, node)
        count = node_elements(graph, node)
        largest = max(largest, count)
        if node.op.special:
            special += count
        dtypes.add(dtype_name(node.layout.dtype))
        used.update(node.operands)
    if group.kind is GroupKind.LIBRARY or not group.shape:
        elements = largest
    inputs = [i for i in range(len(graph.inputs)) if i in used]
    dtypes.update([dtype_name(graph.inputs[i].dtype) for i in inputs])
    outputs = list(dict.fromkeys(graph.outputs))
    host_output_bytes = sum(graph.layout(graph.outputs[i]).nbytes for i in set(on_host))
    return Workload(
        flops=flops,
        special=special,
        bytes_read=sum(unique_bytes(graph.inputs[i]) for i in inputs),
        bytes_written=sum(graph.layout(i).nbytes for i in outputs),
        launches=1,
        sync_points=1 if host_output_bytes else 0,
        host_output_bytes=host_output_bytes,
        elements=elements,
        dtypes=tuple(sorted(dtypes)),
    )


def one_by_one(graph: Graph) -> Iterator[tuple[Node, int]]:
    """Yield each node with the bytes it moves when it runs alone.

    These are its operands, once each, and its result, unless that takes the memory of an
    intermediate of the same layout that dies here, as executors of single nodes let it.
    """
    last = {i: number for number, node in graph.numbered() for i in node.operands}
    for number, node in graph.numbered():
        if node.op.kind is Kind.VIEW:
            continue
        operands = dict.fromkeys(node.operands)
        nbytes = sum(unique_bytes(graph.layout(i)) for i in operands)
        in_place = (
            node.op.kind is Kind.ELEMENTWISE
            and not node.op.special
            and number not in graph.outputs
            and any(
                last[i] == number
                and i >= len(graph.inputs)
                and i not in graph.outputs
                and graph.layout(i) is node.layout
                for i in operands
            )
        )
        yield node, nbytes + (0 if in_place else node.layout.nbytes)


def unfused_workload(group: Group, on_host: Iterable[int] = ()) -> Workload:
    """Return the work of a group run node by node: intermediates are written and read again."""
    graph = group.graph
    fused = workload(group, on_host)
    alone = list(one_by_one(graph))
    written = sum(node.layout.nbytes for node, _ in alone)
    return Workload(
        flops=fused.flops,
        special=fused.special,
        bytes_read=max(0, sum(nbytes for _, nbytes in alone) - written),
        bytes_written=written,
        launches=len(alone),
        sync_points=fused.sync_points,
        host_output_bytes=fused.host_output_bytes,
        elements=fused.elements,
        dtypes=fused.dtypes,
    )
