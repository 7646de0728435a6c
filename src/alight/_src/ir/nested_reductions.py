"""Reductions of reductions: a group over one shape some of whose elements are short reductions
themselves, such as the place of the nearest of many points.

What is reduced lies along one more axis, the last, of no more elements than a vector has lanes. The
inner reduction written out is elementwise: each of its indices has nodes of its own, and an operand
that moves along it is as many operands. Values of the inner shape touch no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from alight._core import make_layout
from alight._src.base.originals import np
from alight._src.base.records import dataclass
from alight._src.ir.graph import Graph, Node, reduced_axes
from alight._src.ir.op import OPS, Kind, Op
from alight._src.ir.table_reduction import LANES

__all__ = ["Flat", "goes_forward", "innermost", "packed", "tree", "written_out"]

if TYPE_CHECKING:
    from alight._core import Layout

_FLOAT64 = np.dtype("float64")
# Inputs whose steps a launcher keeps (``_core/native/launcher.c``).
_INPUTS = 32
# Bodies of what a reduction's elements are that leave them as they are, if the dtype stays.
_AS_THEY_ARE = ("x", "R(x)")


def tree(values: Sequence[int], combine: str, pair: Callable[[int, int], int]) -> int:
    """Return the reduction of values, of LANES at most, in the order of all reductions; of products
    in NumPy's, which says what overflows."""
    if combine == "multiply":
        return reduce(pair, values)
    values = list(values)
    half = LANES // 2
    while half:
        for i in range(half, len(values)):
            values[i - half] = pair(values[i - half], values[i])
        del values[half:]
        half //= 2
    return values[0]


def goes_forward(operand: Layout, axes: Sequence[int]) -> bool:
    """Tell whether NumPy reduces along the axes in the order of indices: along one, and as it lies
    in memory."""
    return len(axes) == 1 and operand.strides[axes[0]] >= 0


def innermost(op: Op) -> bool:
    """Tell whether reductions by an op can be written out inside another kernel: their elements and
    results are as they are, or what they are made into when all are there."""
    return op.kind is Kind.REDUCTION and op.combine in OPS and op.body in _AS_THEY_ARE


@dataclass(frozen=True, slots=True)
class Flat:
    """A graph without its inner reductions. ``sources`` says for each input which one of the
    original graph's it lies in, ``places`` at which index along the inner axis, and ``steps``, for
    each of the original inputs, how many bytes are from one index to the next."""

    graph: Graph
    sources: tuple[int, ...]
    places: tuple[int, ...]
    steps: tuple[int, ...]


def packed(graph: Graph, flat: Flat) -> Graph:
    """Return a graph without inner reductions as it is to be predicted: what an index of the inner
    axis has is beside what its other places have, since records are read whole."""
    inputs = []
    for layout, source, number in zip(flat.graph.inputs, flat.sources, flat.places, strict=True):
        count = graph.inputs[source].shape[-1] if number >= 0 else 1
        whole = flat.steps[source] == layout.itemsize
        strides = [s // count if whole else s for s in layout.strides]
        inputs.append(make_layout(layout.dtype, layout.shape, tuple(strides)))
    return Graph(tuple(inputs), flat.graph.nodes, flat.graph.outputs)


def written_out(graph: Graph, shape: tuple[int, ...]) -> Flat | None:
    """Return a graph over a shape with its inner reductions as elementwise nodes, None where it has
    none that can be."""
    first = len(graph.inputs)
    depth = {n: graph.layouts[n].ndim > len(shape) for n in range(first + len(graph.nodes))}
    inner = [graph.layouts[n] for n in depth if n >= first and depth[n]]
    lengths = {layout.shape for layout in inner}
    lengths |= {
        graph.layouts[n.operands[0]].shape
        for n in graph.nodes
        if n.op.kind is Kind.REDUCTION and depth[n.operands[0]]
    }
    if len(lengths) != 1:
        return None
    (whole,) = lengths
    count = whole[-1]
    if (
        whole[:-1] != shape
        or not 2 <= count <= LANES
        or first > _INPUTS
        or set(graph.outputs) & {n for n, deep in depth.items() if deep}
    ):
        return None
    both = set.intersection(*_inner_reads(graph, len(shape)))
    if any(n < first and graph.layouts[n].ndim for n in both):
        return None  # it broadcasts to either shape in another way
    work = _Work(graph, shape, count)
    for number, node in graph.numbered:
        deep = [depth[o] for o in node.operands]
        if node.op.kind is Kind.REDUCTION and deep[0]:
            if not _can(graph, node, len(shape)):
                return None
            work.reduction(number, node)
        elif depth[number]:
            if node.op.kind is not Kind.ELEMENTWISE:
                return None
            work.spread(number, node)
        elif any(deep):
            return None
        else:
            work.keep(number, node)
    return work.finished()


def _can(graph: Graph, node: Node, ndim: int) -> bool:
    operand = graph.layouts[node.operands[0]]
    plainly = len(node.operands) == 1 and node.attr("initial") is None and not node.attr("where")
    same = operand.dtype == node.layout.dtype and operand.dtype.char in "fd"
    last = node.layout.ndim == ndim and reduced_axes(node, ndim + 1) == (ndim,)
    ordered = node.op.combine != "multiply" or goes_forward(operand, (ndim,))
    return innermost(node.op) and plainly and same and last and ordered


def _inner_reads(graph: Graph, ndim: int) -> tuple[set[int], set[int]]:
    """Return what nodes over the inner shape read, and what those over the outer one do."""
    inner: set[int] = set()
    outer: set[int] = set()
    for node in graph.nodes:
        over = graph.layouts[node.operands[0]] if node.op.kind is Kind.REDUCTION else node.layout
        (inner if over.ndim > ndim else outer).update(node.operands)
    return inner, outer


class _Work:
    """The nodes that a graph without inner reductions has. Values that move along the inner axis
    have a number for each index of it."""

    def __init__(self, graph: Graph, shape: tuple[int, ...], count: int) -> None:
        self.graph = graph
        self.shape = shape
        self.count = count
        self.inputs: list[Layout] = []
        self.sources: list[int] = []
        self.places: list[int] = []
        steps = []
        inner = _inner_reads(graph, len(shape))[0]
        self.numbers: dict[int, list[int]] = {}
        for source, layout in enumerate(graph.inputs):
            # against the inner shape an input of fewer axes has its last along the inner one
            along = layout.ndim > 0 and source in inner
            moves = along and layout.shape[-1] > 1
            steps.append(layout.strides[-1] if moves else 0)
            if along:
                layout = make_layout(layout.dtype, layout.shape[:-1], layout.strides[:-1])
            numbers = []
            for place in range(count if moves else 1):
                numbers.append(len(self.inputs))
                self.inputs.append(layout)
                self.sources.append(source)
                self.places.append(place if moves else -1)
            self.numbers[source] = numbers
        self.steps = tuple(steps)
        self.nodes: list[Node] = []

    def add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.inputs) + len(self.nodes) - 1

    def at(self, number: int, index: int) -> int:
        numbers = self.numbers[number]
        return numbers[index if len(numbers) > 1 else 0]

    def keep(self, number: int, node: Node) -> None:
        """Add a node of the outer shape as it is."""
        operands = tuple([self.at(o, 0) for o in node.operands])
        self.numbers[number] = [self.add(Node(node.op, operands, node.attrs, node.layout))]

    def spread(self, number: int, node: Node) -> None:
        """Add a node of the inner shape, for each index of its last axis along which it moves."""
        moves = any([len(self.numbers[o]) > 1 for o in node.operands])
        layout = make_layout(node.layout.dtype, self.shape)
        self.numbers[number] = [
            self.add(
                Node(node.op, tuple([self.at(o, k) for o in node.operands]), node.attrs, layout)
            )
            for k in range(self.count if moves else 1)
        ]

    def reduction(self, number: int, node: Node) -> None:
        """Add an inner reduction."""
        layout = make_layout(node.layout.dtype, self.shape)
        op = node.op
        assert op.combine is not None
        both = OPS[op.combine]

        def made(step_op: Op, *operands: int) -> int:
            return self.add(Node(step_op, operands, (), layout))

        def part(name: str, body: str | Mapping[str, str], *operands: int, of: Any = layout) -> int:
            own = Op(f"{op.name}.{name}", Kind.ELEMENTWISE, op.reference, body=body)
            return self.add(Node(own, operands, (), of))

        values = [self.at(node.operands[0], k) for k in range(self.count)]
        reduced = tree(values, op.combine, lambda a, b: made(both, a, b))
        if op.combine == "add":  # as NumPy's sum, it starts at +0
            reduced = made(both, part("start", "R(0)", reduced), reduced)
        if op.finish is not None:
            wide = make_layout(_FLOAT64, self.shape)
            count = part("count", f"R({float(self.count)!r})", reduced, of=wide)
            reduced = part("finish", op.finish, reduced, count)
        self.numbers[number] = [reduced]

    def finished(self) -> Flat:
        outputs = tuple([self.numbers[o][0] for o in self.graph.outputs])
        graph = Graph(tuple(self.inputs), tuple(self.nodes), outputs)
        return Flat(graph, tuple(self.sources), tuple(self.places), self.steps)
