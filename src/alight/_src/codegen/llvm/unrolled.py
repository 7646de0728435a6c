"""LLVM IR of reductions along short axes: a loop over the axes that are kept, in explicit vectors,
in which every index of the short ones has instructions of its own.

The graph of the group becomes one of elementwise nodes: a value becomes as many as there are
indices of the unrolled axes along which it moves, and a reduction becomes the tree of
``codegen.llvm.combine``, written out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from alight._core import make_layout
from alight._src.base.originals import np
from alight._src.codegen.llvm.combine import Reduction
from alight._src.codegen.llvm.expressions import Code
from alight._src.codegen.llvm.kernel_frame import SIGNATURE, Frame
from alight._src.codegen.llvm.making import element, spelled, step
from alight._src.codegen.llvm.simd import Operand, Record
from alight._src.codegen.llvm.vector_loops import run_stages, width_of_group
from alight._src.ir.body import part_of, width_of
from alight._src.ir.graph import Attrs, Graph, Node
from alight._src.ir.group import Group
from alight._src.ir.nested_reductions import tree
from alight._src.ir.op_table import OPS, Kind, Op
from alight._src.ir.table_reduction import ORIGIN

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest, Schedule
    from alight._src.codegen.llvm.blocks import Module

Index = tuple[int, ...]


def unrolled_kernel(
    module: Module, group: Group, shape: Nest, schedule: Schedule, vector_bits: int
) -> None:
    """Add the entry point of a group whose reduced axes are unrolled to a module."""
    code = Code(module)
    frame = Frame(code, group, shape)
    written = Unrolled(group, shape)
    axis = shape.vector_axis
    width = width_of_group(written.graph, schedule, vector_bits, _together(written.graph))
    layouts = group.graph.operand_layouts
    with code.when(frame.nonempty(range(shape.looped))), frame.along(range(axis)):
        operands = []
        for place, index in (*written.reads, *written.writes):
            base = frame.pointers[place]
            for k, i in enumerate(index, shape.looped):
                if i:
                    base = code.offset(base, code.emit(f"mul i64 {frame.steps[place][k]}, {i}"))
            motion, record = shape.classes[place], None
            nested = bool(shape.places) and shape.places[place] >= 0
            if motion == "k" and nested and not any(shape.along[place]):
                operands.append(frame.operand(place, layouts[place].dtype.name))
                continue
            if motion == "k":
                sizes = written.extent(shape.along[place])
                number = int(np.ravel_multi_index(index, sizes))
                motion, record = "s", Record(~place, frame.pointers[place], prod(sizes), number)
            dtype, step = layouts[place].dtype.name, frame.steps[place][axis]
            operands.append(Operand(dtype, motion, base, step, record))
        run_stages(code, written.graph, operands, frame.dims[axis], width, shape.stream)
    if shape.stream:
        # what goes past the caches is in no order with what this thread says next
        code.do("fence seq_cst")
    code.finish()
    module.functions.append(code.function(SIGNATURE, "#0"))


def _together(graph: Graph) -> int:
    """Return how many vectors of the widest dtype go together."""
    # The copies are independent of one another: enough to do while one waits. Sums of 8 and 16
    # float64 took 136 and 485 us with one vector at a time, 132 and 1215 with two, for 2**17 rows.
    # Where some are narrower, as float32 beside indices are, they fill registers of their own:
    # labels of the nearest of 8 centres, and masks made of them, took 390 us for 498.
    widths = [
        max(32, width_of(part_of(node.layout.dtype.name)))
        for node in graph.nodes
        if node.layout.dtype.kind != "b"
    ]
    return max(widths, default=32) // min(widths, default=32)


class Unrolled:
    """A group without its last axes: ``graph`` is elementwise. ``reads`` and ``writes`` say for its
    inputs and outputs of which operand (inputs, then outputs) at which index they are."""

    def __init__(self, group: Group, shape: Nest) -> None:
        graph = group.graph
        self.shape = shape
        self.reduced = [k >= shape.kept for k in range(shape.looped, len(shape.dims))]
        first = len(graph.inputs)
        self.along = dict(enumerate(shape.along[:first]))  # by value, then for each axis
        self.reads = [(i, index) for i in range(first) for index in self.indices(self.along[i])]
        self.values: dict[tuple[int, Index], int] = {
            read: value for value, read in enumerate(self.reads)
        }
        self.inputs = tuple(graph.inputs[i] for i, _ in self.reads)
        self.nodes: list[Node] = []
        for number, node in graph.numbered:
            moves = [self.along[o] for o in node.operands]
            along = tuple(any(flags) for flags in zip(*moves, strict=True))
            if node.op.kind is Kind.REDUCTION:
                along = tuple(a and not f for a, f in zip(along, self.reduced, strict=True))
                reduction = Reduction(graph, node)
            self.along[number] = along
            for index in self.indices(along):
                if node.op.kind is Kind.REDUCTION:
                    value = self.reduction(reduction, index)
                else:
                    operands = tuple(self.at(o, index) for o in node.operands)
                    value = self.add(node.op, operands, node.layout.dtype, node.attrs)
                self.values[number, index] = value
        self.writes: list[tuple[int, Index]] = []
        outputs = []
        for place, number in enumerate(graph.outputs, first):
            for index in self.indices(shape.along[place]):
                self.writes.append((place, index))
                value = self.at(number, index)
                if value < len(self.reads):  # what goes out has to be made
                    value = self.add(OPS["copy"], (value,), graph.layouts[number].dtype)
                outputs.append(value)
        self.graph = Graph(self.inputs, tuple(self.nodes), tuple(outputs))

    def extent(self, along: Sequence[bool]) -> Index:
        """Return the sizes of the unrolled axes; 1 of those along which nothing moves."""
        return tuple(n if a else 1 for n, a in zip(self.shape.unrolled, along, strict=True))

    def indices(self, along: Sequence[bool]) -> Iterable[Index]:
        """Return the indices along those axes, in order."""
        return itertools.product(*map(range, self.extent(along)))

    def at(self, number: int, index: Index) -> int:
        """Return a value of the group at an index, as a value of the graph."""
        own = tuple(i if a else 0 for i, a in zip(index, self.along[number], strict=True))
        return self.values[number, own]

    def add(
        self, op: Op, operands: tuple[int, ...], dtype: np.dtype[Any] | str, attrs: Attrs = ()
    ) -> int:
        """Return the value of a new node."""
        layout = make_layout(np.dtype(dtype), ())
        self.nodes.append(Node(op, operands, attrs, layout))
        return len(self.reads) + len(self.nodes) - 1

    # --- reductions
    def reduction(self, reduction: Reduction, index: Index) -> int:
        """Return the value of a reduction at an index of what is kept."""
        indices = [
            tuple(j if f else i for i, j, f in zip(index, copy, self.reduced, strict=True))
            for copy in self.indices(self.reduced)
        ]
        operands = [tuple(self.at(o, i) for o in reduction.node.operands) for i in indices]
        values = [element(self.add, reduction, given) for given in operands]
        if reduction.argument:
            return self.argument(reduction, values)
        if reduction.moments:
            reduced = self.squares(reduction, values)
        else:
            reduced = self.tree(reduction, values)
        return self.finished(reduction, reduced, len(values))

    def tree(self, reduction: Reduction, values: Sequence[int]) -> int:
        """Return the reduction of values, of LANES at most."""
        return tree(values, reduction.combine_name, lambda a, b: self.pair(reduction, a, b))

    def pair(self, reduction: Reduction, a: int, b: int) -> int:
        return self.add(OPS[reduction.combine_name], (a, b), reduction.dtype)

    def squares(self, reduction: Reduction, values: Sequence[int]) -> int:
        """Return the squared deviations from the mean, distances being from the first element."""
        minus, times = step(reduction.node.op, "x - y"), step(reduction.node.op, "x * y")
        origin = self.add(
            step(reduction.node.op, ORIGIN[reduction.dtype]), (values[0],), reduction.dtype
        )
        away = [self.add(minus, (value, origin), reduction.dtype) for value in values]
        total = self.tree(reduction, away)
        mean = self.add(step(reduction.node.op, f"x / {len(values)}.0"), (total,), reduction.dtype)
        far = [self.add(minus, (value, mean), reduction.dtype) for value in away]
        return self.tree(
            reduction, [self.add(times, (value, value), reduction.dtype) for value in far]
        )

    def finished(self, reduction: Reduction, reduced: int, count: int) -> int:
        """Return the result made of the whole reduction."""
        start = reduction.start
        if start is not None:
            first = self.constant(reduction, reduced, start, reduction.dtype)
            reduced = self.pair(reduction, first, reduced)
        if reduction.finish_body is None:
            if reduction.dtype == reduction.result:
                return reduced
            return self.add(step(reduction.node.op, "R(x)"), (reduced,), reduction.result)
        left = max(count - reduction.freedom, 0.0) if reduction.moments else float(count)
        number = self.constant(reduction, reduced, left, "float64")
        return self.add(
            step(reduction.node.op, reduction.finish_body), (reduced, number), reduction.result
        )

    def constant(self, reduction: Reduction, beside: int, value: object, dtype: str) -> int:
        """Return a constant; ``beside`` is any value."""
        return self.add(step(reduction.node.op, spelled(value)), (beside,), dtype)

    def argument(self, reduction: Reduction, values: Sequence[int]) -> int:
        """Return the place of the best value, of the first of several."""
        best = values[0]
        place = self.constant(reduction, best, 0, reduction.result)
        better, where = step(reduction.node.op, reduction.better_body), OPS["where"]
        for k, value in enumerate(values[1:], 1):
            condition = self.add(better, (value, best), "bool")
            here = self.constant(reduction, best, k, reduction.result)
            place = self.add(where, (condition, here, place), reduction.result)
            if k < len(values) - 1:
                best = self.add(where, (condition, value, best), reduction.dtype)
        return place
