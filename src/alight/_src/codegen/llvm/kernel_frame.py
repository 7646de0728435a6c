"""The frame of a kernel: ``void entry(ptr addresses, ptr dims, ptr strides)`` over a nest.

``addresses`` holds the byte address of element 0 of each input, then each output; ``dims`` the size
of each axis of the nest; ``strides`` the bytes per step, operand by operand and axis by axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from alight._src.codegen.common.loops import TOLD
from alight._src.codegen.llvm.expressions import Code
from alight._src.codegen.llvm.simd import Operand, Record
from alight._src.ir.op_table import Kind, trees

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest
    from alight._src.ir.body import Expr
    from alight._src.ir.graph import Graph, Node
    from alight._src.ir.group import Group

SIGNATURE = "void @entry(ptr %addresses, ptr %dims, ptr %strides)"


class Frame:
    """The operands of a kernel while its loops are being entered: addresses move with the axes."""

    def __init__(self, code: Code, group: Group, shape: Nest) -> None:
        self.code = code
        self.graph = group.graph
        self.shape = shape
        self.rank = len(shape.dims)
        self.count = len(shape.strides)
        self.inputs = len(group.graph.inputs)
        slots = shape.slots or tuple(range(self.count))
        self.dims = [self.argument("%dims", k) for k in range(self.rank)]
        self.pointers = [
            code.emit(f"load ptr, ptr {code.offset('%addresses', str(8 * i))}, align 8")
            for i in slots
        ]
        if (
            shape.places
        ):  # the inner steps stand behind the dims and what a part of a reduction is told
            places = zip(slots, shape.places, strict=True)
            ahead = [
                k > 0 and code.emit(f"mul i64 {self.argument('%dims', self.rank + TOLD + i)}, {k}")
                for i, k in places
            ]
            self.pointers = [
                code.offset(pointer, far) if far else pointer
                for pointer, far in zip(self.pointers, ahead, strict=True)
            ]
        self.steps = [
            [self.argument("%strides", i * self.rank + k) for k in range(self.rank)] for i in slots
        ]

    def argument(self, array: str, place: int) -> str:
        """Return a number of an array that the kernel is given."""
        pointer = self.code.offset(array, str(8 * place))
        return self.code.emit(f"load i64, ptr {pointer}, align 8")

    def nonempty(self, axes: Iterable[int]) -> str:
        """Return whether every one of the axes has elements."""
        result = "true"
        for k in axes:
            some = self.code.emit(f"icmp sgt i64 {self.dims[k]}, 0")
            result = self.code.emit(f"and i1 {result}, {some}")
        return result

    def moved(self, axis: int, index: str) -> list[str]:
        """Return the addresses a number of steps along an axis."""
        result = []
        for pointer, steps in zip(self.pointers, self.steps, strict=True):
            distance = self.code.emit(f"mul nsw i64 {index}, {steps[axis]}")
            result.append(self.code.offset(pointer, distance))
        return result

    @contextmanager
    def along(self, axes: Iterable[int]) -> Iterator[list[str]]:
        """Run what is added inside for every index of the axes; yield the indices."""
        before = self.pointers
        with ExitStack() as loops:
            indices = []
            for k in axes:
                indices.append(loops.enter_context(self.code.loop(self.dims[k])))
                self.pointers = self.moved(k, indices[-1])
            yield indices
        self.pointers = before

    def element(self, operand: int, dtype: str, index: str) -> str:
        """Return the address of an element some steps along the vector axis."""
        pointer = self.pointers[operand]
        kind = self.shape.classes[operand]
        if kind == "c":
            return self.code.at(pointer, index, dtype)
        if kind == "b":
            return pointer
        step = self.steps[operand][self.shape.vector_axis]
        return self.code.offset(pointer, self.code.emit(f"mul nsw i64 {index}, {step}"))

    def operand(self, number: int, dtype: str) -> Operand:
        """Return an operand as a loop along the vector axis reads it."""
        motion, base = self.shape.classes[number], self.pointers[number]
        step = self.steps[number][self.shape.vector_axis]
        if motion != "k":
            return Operand(dtype, motion, base, step)
        slot, place = self.shape.slots[number], self.shape.places[number]
        fields = self.shape.slots.count(slot)
        first = self.pointers[self.shape.slots.index(slot)]
        return Operand(dtype, "s", base, step, Record(slot, first, fields, place))

    def broadcast(self) -> dict[int, str]:
        """Return the inputs that stay the same along the vector axis, loaded."""
        # Loaded before the loop: with stores in it, LLVM could not prove that they stay the same.
        return {
            i: self.code.load(self.pointers[i], layout.dtype.name)
            for i, layout in enumerate(self.graph.inputs)
            if self.shape.classes[i] == "b"
        }

    def values(self, fixed: dict[int, str], index: str) -> dict[int, str]:
        """Return inputs and elementwise values at an index of the vector axis, by value number."""
        known = dict(fixed)
        for i, layout in enumerate(self.graph.inputs):
            if i not in known:
                name = layout.dtype.name
                known[i] = self.code.load(self.element(i, name, index), name, parallel=True)
        for number, node in self.graph.numbered:
            if node.op.kind is Kind.ELEMENTWISE:
                known[number] = elementwise(self.code, self.graph, node, known)
        return known


def _trees(graph: Graph, node: Node) -> tuple[Expr, ...]:
    """Return the typed trees of an elementwise node, one for each output of its op."""
    found = trees(node.op, [graph.layouts[i].dtype for i in node.operands], node.layout.dtype)
    assert found is not None  # gaps.check has seen to it
    return found


def elementwise(code: Code, graph: Graph, node: Node, known: dict[int, str]) -> str:
    """Return the value of an elementwise node from those of its operands, by value number."""
    tree = _trees(graph, node)[node.attr("output", 0)]
    (value,) = code.evaluate((tree,), [known[i] for i in node.operands])
    return value
