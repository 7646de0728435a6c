"""What a group asks of a device: flops, transcendentals, bytes; counted, never measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from alight._src.base.cache_registry import Cache, register
from alight._src.base.records import dataclass
from alight._src.ir.body import operations, part_of, width_of
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op import dtype_name
from alight._src.ir.op_table import Dtype, Kind, Op, loop_dtypes, trees
from alight._src.plan.access_pattern import touched_bytes

# Sums of products. Their flops follow from the shapes, which no count for each element can say.
_CONTRACTIONS = frozenset(
    ("matmul", "dot", "inner", "vdot", "vecdot", "matvec", "vecmat", "tensordot", "einsum")
)


@dataclass(frozen=True, slots=True)
class Workload:
    """Counted work. Bytes are unique: an input read twice, or broadcast, counts once.

    ``elements`` is the iteration space; ``counts`` says how often the body of each node runs.
    ``host_output_bytes`` is what the host waits for at the end. ``dtypes`` are
    those of all values, inputs included.
    """

    flops: float
    special: float
    bytes_read: int
    bytes_written: int
    launches: int
    host_output_bytes: int
    elements: int
    dtypes: tuple[str, ...]
    counts: tuple[int, ...] = ()


def node_elements(graph: Graph, node: Node) -> int:
    """Return how often a node's body runs: for each element of its result, or of what it
    reduces."""
    kind = node.op.kind
    if kind is Kind.REDUCTION or kind is Kind.SCAN:
        return max(node.layout.size, graph.layouts[node.operands[0]].size)
    return node.layout.size


# The transcendentals that others are estimated by: they are measured first.
SPECIAL = ("exp", "sin")


# What bodies are made of, as generated code runs them: plain vector operations, divisions and
# square roots, which take several times as long, and what goes through the elements one by one.
PARTS = ("simple", "divide", "root", "scalar", "product")
_PART_OF = {"div": 1, "sqrt": 2, "libm": 3, "gcd": 3, "ipow": 3}


def body_size(graph: Graph, node: Node) -> int:
    """Return the operations in the body of an elementwise node, seldom needed ones included."""
    return _body(
        node.op, tuple([graph.layouts[i].dtype for i in node.operands]), node.layout.dtype
    )[0]


def body_parts(
    graph: Graph, node: Node, dtype: str | None = None, other: str | None = None
) -> tuple[int, ...]:
    """Return how many operations of each of ``PARTS`` every element of an elementwise node goes
    through; with an ``other`` one in place of a dtype, functions of which have more terms, or
    fewer."""
    kinds = [*[graph.layouts[i].dtype for i in node.operands], node.layout.dtype]
    if dtype is not None and other is not None:
        swapped = {part_of(dtype): part_of(other), dtype: other}
        kinds = [np.dtype(swapped.get(dtype_name(kind), kind)) for kind in kinds]
        if isinstance(node.op.reference, np.ufunc):  # the result may be of the same dtype as before
            kinds = list(loop_dtypes(node.op, kinds[:-1])[: node.op.nin + 1])
    *operands, result = kinds
    return _body(node.op, tuple(operands), result)[1]


# What was counted in bodies, by op and dtypes: all operations, then those of ``PARTS``. Reading a
# body takes 1 ms, a fifth of what the first call of a stored kernel may: `adapt.planner_facts`
# keeps the counts between processes.
BODIES: dict[str, tuple[int, tuple[int, ...]]] = {}


@lru_cache(maxsize=4096)
def _body(op: Op, operands: tuple[Dtype, ...], result: Dtype) -> tuple[int, tuple[int, ...]]:
    key = f"{op.key} {' '.join(map(dtype_name, (*operands, result)))}"
    found = BODIES.get(key)
    if found is None:
        found = BODIES[key] = _counted(op, operands, result)
    return found


register(Cache.OPS, _body.cache_clear)


def _counted(op: Op, operands: tuple[Dtype, ...], result: Dtype) -> tuple[int, tuple[int, ...]]:
    found = trees(op, operands, result)
    if found is None:
        return 1, (1, *[0] * (len(PARTS) - 1))
    parts = [0] * len(PARTS)
    seen: set[int] = set()
    stack = list(found)
    while stack:
        tree = stack.pop()
        if not tree.args or id(tree) in seen:
            continue
        seen.add(id(tree))
        place = _PART_OF.get(tree.prim, 0)
        if tree.prim == "mul" and tree.dtype in ("int64", "uint64"):
            place = 4  # no instruction of its own for vectors, or three times as long
        if tree.prim in ("quot", "rem"):
            place = 3 if width_of(tree.dtype) == 64 else 1
        parts[place] += 1
        # the second of ``rarely`` is computed for few elements only
        stack += tree.args[::2] if tree.prim == "rarely" else tree.args
    return operations(found), tuple(parts)


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


def product_shape(graph: Graph, node: Node) -> tuple[int, int, int, int]:
    """Return how many products of an (m, k) by a (k, n) matrix a contraction is, then m, k, n."""
    first, second = (graph.layouts[i].shape for i in node.operands[:2])
    size = max(node.layout.size, 1)
    name = node.op.name
    if name in ("matmul", "matvec", "vecmat", "vecdot"):
        k = first[-1] if first else 1
        rows = first[-2] if name in ("matmul", "matvec") and len(first) > 1 else 1
        columns = second[-1] if name in ("matmul", "vecmat") and len(second) > 1 else 1
        return max(1, size // max(rows * columns, 1)), rows, k, columns
    k = max(1, round(contraction_flops(graph, node) / 2 / size))
    rows = max(1, math.prod(first) // k)
    return 1, rows, k, max(1, size // rows)


def contraction_flops(graph: Graph, node: Node) -> float:
    """Return multiplications and additions of a sum of products of two operands."""
    layouts = [graph.layouts[i] for i in node.operands]
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
    counts = tuple([node_elements(graph, node) for node in graph.nodes])
    for node, count in zip(graph.nodes, counts, strict=True):
        if node.op.special:
            special += count
        elif node.op.kind is Kind.ELEMENTWISE:  # no sum of products
            flops += node.op.flops * count
        else:
            flops += node_flops(graph, node)
        dtypes.add(dtype_name(node.layout.dtype))
        used.update(node.operands)
    if group.kind is GroupKind.LIBRARY or not group.shape:
        elements = max(counts, default=0)
    inputs = [i for i in range(len(graph.inputs)) if i in used]
    dtypes.update([dtype_name(graph.inputs[i].dtype) for i in inputs])
    outputs = list(dict.fromkeys(graph.outputs))
    host_output_bytes = sum(graph.layouts[graph.outputs[i]].nbytes for i in set(on_host))
    return Workload(
        flops=flops,
        special=special,
        bytes_read=sum(touched_bytes(graph.inputs[i]) for i in inputs),
        bytes_written=sum(graph.layouts[i].nbytes for i in outputs),
        launches=1,
        host_output_bytes=host_output_bytes,
        elements=elements,
        dtypes=tuple(sorted(dtypes)),
        counts=counts,
    )


def one_by_one(graph: Graph) -> list[tuple[Node, int]]:
    """Return each node with the bytes it moves when it runs alone.

    These are its operands, once each, and its result, unless that takes the memory of an
    intermediate of the same layout that dies here, as executors of single nodes let it.
    """
    layouts, first = graph.layouts, len(graph.inputs)
    last = {i: number for number, node in graph.numbered for i in node.operands}
    for value in graph.outputs:
        last[value] = -1
    found = []
    for number, node in graph.numbered:
        kind = node.op.kind
        if kind is Kind.VIEW:
            continue
        nbytes = node.layout.nbytes
        may_take = kind is Kind.ELEMENTWISE and not node.op.special and last.get(number) != -1
        for i in dict.fromkeys(node.operands):
            nbytes += touched_bytes(layouts[i])
            if may_take and last[i] == number and i >= first and layouts[i] is node.layout:
                nbytes -= node.layout.nbytes  # in place of that one
                may_take = False
        found.append((node, nbytes))
    return found
