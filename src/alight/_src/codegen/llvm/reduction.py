"""LLVM IR of a reduce group: several reductions over the same axes, with what makes their elements.

Two forms. *Rows*: the innermost axis is reduced, with others (``codegen.llvm.rowwise`` has the case
of one); elements are made in a buffer by a vector loop and reduced from there. *Columns*: the
innermost axis is kept; a tile of columns is reduced side by side. Both reduction by the same tree
(see ``codegen.llvm.combine``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._src.codegen.llvm.columns import MADE_TILE, Column, tile_of
from alight._src.codegen.llvm.combine import Reduction, repeat, rows_of
from alight._src.codegen.llvm.expressions import Code, Module
from alight._src.codegen.llvm.kernel_frame import SIGNATURE, Frame
from alight._src.codegen.llvm.making import ROOM, making
from alight._src.codegen.llvm.minmax import BLOCK
from alight._src.codegen.llvm.simd import Operand
from alight._src.codegen.llvm.spans import Span
from alight._src.ir.body import width_of
from alight._src.ir.op_table import Kind
from alight._src.ir.table_reduction import CHUNK

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest, Schedule
    from alight._src.ir.group import Group


def reduce_kernel(
    module: Module, group: Group, shape: Nest, schedule: Schedule, vector_bits: int
) -> None:
    """Add the entry point of a reduce group to a module."""
    reductions = [Reduction(group.graph, group.graph.made_by[i]) for i in group.graph.outputs]
    code = Code(module, schedule.interleave)
    frame = Frame(code, group, shape)
    form = (_Columns if shape.columns else _Rows)(frame, reductions, schedule, vector_bits)
    with code.when(frame.nonempty(range(shape.kept))):
        form.run()
    code.finish()
    module.functions.append(code.function(SIGNATURE, "#0"))


class _Form:
    def __init__(
        self, frame: Frame, reductions: list[Reduction], schedule: Schedule, vector_bits: int
    ) -> None:
        self.frame = frame
        self.code = frame.code
        self.reductions = reductions
        self.kept = frame.shape.kept
        self.reduced = range(self.kept, frame.rank)
        code = self.code
        self.count = "1"
        for k in self.reduced:
            self.count = code.emit(f"mul i64 {self.count}, {frame.dims[k]}")
        self.some = frame.nonempty(self.reduced)
        self.place = code.alloca("i64")  # of the next element in its chunk
        needed = [n for n, node in frame.graph.numbered if node.op.kind is Kind.ELEMENTWISE]
        self.made = making(frame.graph, needed, reductions, schedule, vector_bits, MADE_TILE)

    def run(self) -> None:
        """Write the loops."""
        raise NotImplementedError("run: a subclass writes the loops of its form")

    def elements(self, count: str, targets: list[str], motion: str) -> None:
        """Make the next elements of every reduction where they are to be."""
        frame = self.frame
        reads = [
            frame.operand(number, frame.graph.layouts[number].dtype.name)
            for number in self.made.reads
        ]
        writes = [
            Operand(reduction.dtype, motion, target)
            for reduction, target in zip(self.reductions, targets, strict=True)
        ]
        self.made.write(self.code, reads, writes, count)

    def read(self, cell: str) -> str:
        return self.code.emit(f"load i64, ptr {cell}")

    def set(self, cell: str, value: str) -> None:
        self.code.do(f"store i64 {value}, ptr {cell}")

    def least(self, a: str, b: str) -> str:
        less = self.code.emit(f"icmp slt i64 {a}, {b}")
        return self.code.emit(f"select i1 {less}, i64 {a}, i64 {b}")

    def output(self, position: int) -> int:
        """Return the operand number of a reduction's result."""
        return self.frame.inputs + position


class _Rows(_Form):
    """Several axes are reduced that are not one in memory: elements are made in buffers, which are
    reduced as they fill up."""

    def run(self) -> None:
        code, frame = self.code, self.frame
        self.spans = [Span(code, reduction, False) for reduction in self.reductions]
        self.buffers = [
            code.alloca(rows_of(reduction, BLOCK + ROOM)) for reduction in self.reductions
        ]
        self.done = code.alloca("i64")  # elements of the current row already made
        stop = self.reductions[0].stops() if len(self.reductions) == 1 else None
        with frame.along(range(self.kept)):
            self.set(self.place, "0")
            for span in self.spans:
                span.begin()
            settled = code.label("settled")
            with code.when(self.some), frame.along(self.reduced[:-1]):
                self.row(stop, settled)
            code.do(f"br label %{settled}")
            code.start(settled)
            rest = self.read(self.place)
            with code.when(code.emit(f"icmp sgt i64 {rest}, 0")):
                self.flush(rest)
            for position, span in enumerate(self.spans):
                target = frame.pointers[self.output(position)]
                code.store(span.result(self.count), target, span.reduction.result)

    def row(self, stop: str | None, settled: str) -> None:
        """Take in the innermost row, piece by piece."""
        code, frame = self.code, self.frame
        length = frame.dims[-1]
        self.set(self.done, "0")
        pointers = frame.pointers
        with repeat(code) as proceed:
            done = self.read(self.done)
            proceed(code.emit(f"icmp slt i64 {done}, {length}"))
            place = self.read(self.place)
            room = code.emit(f"sub i64 {BLOCK}, {place}")
            piece = self.least(code.emit(f"sub i64 {length}, {done}"), room)
            frame.pointers = frame.moved(frame.rank - 1, done)
            targets = [
                code.at(buffer, place, reduction.dtype)
                for buffer, reduction in zip(self.buffers, self.reductions, strict=True)
            ]
            self.elements(piece, targets, "w")
            self.set(self.done, code.emit(f"add i64 {done}, {piece}"))
            place = code.emit(f"add i64 {place}, {piece}")
            self.set(self.place, place)
            with code.when(code.emit(f"icmp eq i64 {place}, {BLOCK}")):
                self.flush(str(BLOCK))
                self.set(self.place, "0")
                if stop is not None:
                    undecided = code.label("undecided")
                    decided = self.spans[0].decided(stop)
                    code.do(f"br i1 {decided}, label %{settled}, label %{undecided}")
                    code.start(undecided)
        frame.pointers = pointers

    def flush(self, count: str) -> None:
        """Reduce what the buffers hold."""
        for span, buffer in zip(self.spans, self.buffers, strict=True):
            span.take(buffer, count)


class _Columns(_Form):
    def run(self) -> None:
        code, frame = self.code, self.frame
        direct = all(self.in_memory(reduction) for reduction in self.reductions)
        tile = tile_of(self.reductions, direct)
        self.columns = [Column(code, reduction, direct, tile) for reduction in self.reductions]
        if not direct:
            self.buffers = [
                code.alloca(rows_of(reduction, CHUNK * tile)) for reduction in self.reductions
            ]
        self.tile = tile
        last = self.kept - 1
        with frame.along(range(last)), code.loop(frame.dims[last], step=tile) as start:
            pointers = frame.pointers
            width = self.least(code.emit(f"sub i64 {frame.dims[last]}, {start}"), str(tile))
            self.width = width
            frame.pointers = frame.moved(last, start)
            for column in self.columns:
                column.begin(width)
            with code.when(self.some):
                if direct:
                    self.reduce_direct()
                else:
                    self.reduce_made()
            for column in self.columns:
                column.finish(width)
            with code.loop(width, parallel=True, brief=True) as j:
                for position, column in enumerate(self.columns):
                    value = column.result(j, self.count)
                    dtype = column.reduction.result
                    target = frame.element(self.output(position), dtype, j)
                    code.store(value, target, dtype, parallel=True)
            frame.pointers = pointers

    def in_memory(self, reduction: Reduction) -> bool:
        """Tell whether what is reduced lies in memory as rows a fixed distance apart."""
        (number, *mask) = reduction.node.operands
        return (
            not mask
            and len(self.reduced) == 1
            and number < self.frame.inputs
            and self.frame.shape.classes[number] == "c"
        )

    def reduce_direct(self) -> None:
        """Reduction rows where they lie in memory."""
        code, frame = self.code, self.frame
        axis = frame.rank - 1
        exact = all(reduction.exact or reduction.argument for reduction in self.reductions)
        if exact and len(self.reductions) == 1:
            self.take_direct("0", frame.dims[axis])
            return
        with code.loop(frame.dims[axis], step=CHUNK) as start:
            left = code.emit(f"sub i64 {frame.dims[axis]}, {start}")
            self.take_direct(start, self.least(left, str(CHUNK)))

    def take_direct(self, start: str, rows: str) -> None:
        frame = self.frame
        for column in self.columns:
            operand = column.reduction.node.operands[0]
            pitch = frame.steps[operand][frame.rank - 1]
            distance = self.code.emit(f"mul nsw i64 {start}, {pitch}")
            data = self.code.offset(frame.pointers[operand], distance)
            column.take(data, pitch, rows, self.width)

    def reduce_made(self) -> None:
        """Make rows in buffers and reduction those as they fill up."""
        code, frame = self.code, self.frame
        self.set(self.place, "0")
        with frame.along(self.reduced):
            place = self.read(self.place)
            offset = code.emit(f"mul i64 {place}, {self.tile}")
            targets = [
                code.at(buffer, offset, reduction.dtype)
                for reduction, buffer in zip(self.reductions, self.buffers, strict=True)
            ]
            self.elements(self.width, targets, "c")
            place = code.emit(f"add i64 {place}, 1")
            self.set(self.place, place)
            with code.when(code.emit(f"icmp eq i64 {place}, {CHUNK}")):
                self.flush(str(CHUNK))
                self.set(self.place, "0")
        rest = self.read(self.place)
        with code.when(code.emit(f"icmp sgt i64 {rest}, 0")):
            self.flush(rest)

    def flush(self, rows: str) -> None:
        """Reduce what the buffers hold."""
        for column, buffer in zip(self.columns, self.buffers, strict=True):
            pitch = self.tile * width_of(column.reduction.dtype) // 8
            column.take(buffer, str(pitch), rows, self.width)
