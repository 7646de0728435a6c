"""LLVM IR of a loop group in explicit vectors: the axes, and what is put in order on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._src.base.records import replace
from alight._src.codegen.llvm.expressions import Code, Module, memory_type
from alight._src.codegen.llvm.kernel_frame import SIGNATURE, Frame
from alight._src.codegen.llvm.simd import Operand, Stage, Width, stage_loop
from alight._src.codegen.llvm.strip_mining import STRIP, in_stages, places
from alight._src.codegen.llvm.tiles import copy_function
from alight._src.ir.body import part_of, width_of
from alight._src.ir.vectors import REGISTERS, vectors_together

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest, Schedule
    from alight._src.ir.graph import Graph
    from alight._src.ir.group import Group

# A tile's buffer: elements across, so that 16 rows of float64 take 16 KiB, half of the smallest L1
# in use (32 KiB). There are as many rows as fill a cache line (64 bytes) of what is turned around,
# and not fewer than 16: where lines are not aligned, each is fetched for two tiles.
_ACROSS = 128
_LINE_BYTES = 64
_LEAST_ROWS = 16
# Elements of a flat tile.
_FLAT = 1024


def strip_kernel(
    module: Module, group: Group, shape: Nest, schedule: Schedule, vector_bits: int
) -> None:
    """Add the entry point of a loop group to a module."""
    Strips(module, group, shape, schedule, vector_bits).write()


class Strips:
    """The loops of a group over strips of elements, being written."""

    def __init__(
        self, module: Module, group: Group, shape: Nest, schedule: Schedule, vector_bits: int
    ) -> None:
        self.module = module
        self.graph = group.graph
        self.shape = shape
        self.code = Code(module)
        self.frame = Frame(self.code, group, shape)
        self.vector_bits = vector_bits
        self.width = width_of_group(group.graph, schedule, vector_bits, int(shape.single))
        layouts = group.graph.operand_layouts
        self.dtypes = [layout.dtype.name for layout in layouts]
        self.sizes = [layout.itemsize for layout in layouts]
        self.last = self.frame.rank - 1

    def write(self) -> None:
        """Write the entry point."""
        code, frame = self.code, self.frame
        with code.when(frame.nonempty(range(frame.rank))):
            self.loops()
        if self.shape.stream:
            # what goes past the caches is in no order with what this thread says next
            code.do("fence seq_cst")
        code.finish()
        self.module.functions.append(code.function(SIGNATURE, "#0"))

    def loops(self) -> None:
        """Write the loops over all axes."""
        frame = self.frame
        if not self.shape.tiles:
            with frame.along(range(self.last)):
                self.run(self.operands(), frame.dims[self.last])
            return
        with frame.along(range(self.last - 1)):
            if self.shape.flat:
                self.flat()
            else:
                self.tiled()

    def operands(self) -> list[Operand]:
        """Return the operands where they are now."""
        return [
            Operand(dtype, motion, base, steps[self.last])
            for dtype, motion, base, steps in zip(
                self.dtypes,
                self.shape.classes,
                self.frame.pointers,
                self.frame.steps,
                strict=True,
            )
        ]

    def run(self, operands: list[Operand], count: str) -> None:
        """Write the loop over a run of elements, or one for each stage over strips of it."""
        run_stages(self.code, self.graph, operands, count, self.width, self.shape.stream)

    def moved(self, axis: int, start: str) -> str:
        """Move on along an axis, and return how much of it is left."""
        self.frame.pointers = self.frame.moved(axis, start)
        return self.code.emit(f"sub i64 {self.frame.dims[axis]}, {start}")

    # --- tiles of two long axes
    def tiled(self) -> None:
        """Write tiles in which some operands are put in order first, and their rows."""
        code, frame, last = self.code, self.frame, self.last
        put = [i for i, letter in enumerate(self.shape.tiles) if letter == "p"]
        deep = max(_LEAST_ROWS, _LINE_BYTES // min(self.sizes[i] for i in put))
        buffers = {i: self.buffer(i, deep * _ACROSS) for i in put}
        with code.loop(frame.dims[last - 1], step=deep) as top:
            before = frame.pointers
            rows = least(code, self.moved(last - 1, top), str(deep))
            with code.loop(frame.dims[last], step=_ACROSS) as left:
                corner = frame.pointers
                columns = least(code, self.moved(last, left), str(_ACROSS))
                for i, buffer in buffers.items():
                    self.put(i, buffer, str(_ACROSS * self.sizes[i]), rows, columns)
                with code.loop(rows) as row:
                    here = frame.pointers
                    frame.pointers = frame.moved(last - 1, row)
                    operands = self.operands()
                    for i, buffer in buffers.items():
                        down = code.emit(f"mul i64 {row}, {_ACROSS * self.sizes[i]}")
                        operands[i] = replace(
                            operands[i], motion="c", base=code.offset(buffer, down)
                        )
                    self.run(operands, columns)
                    frame.pointers = here
                frame.pointers = corner
            frame.pointers = before

    # --- tiles of short rows
    def flat(self) -> None:
        """Write tiles of whole rows, put in order so that they are one run."""
        code, frame, last = self.code, self.frame, self.last
        columns = frame.dims[last]
        buffers = {i: self.buffer(i, _FLAT) for i, p in enumerate(self.shape.tiles) if p == "p"}
        marks = {i: (code.alloca("ptr"), code.alloca("i64")) for i in buffers}
        for place, deep in marks.values():
            code.allocas.append(f"  store ptr null, ptr {place}")
            code.allocas.append(f"  store i64 0, ptr {deep}")
        fit = code.emit(f"udiv i64 {_FLAT}, {columns}")
        # A part of the columns alone is no run in memory: then row by row.
        for i, letter in enumerate(self.shape.tiles):
            if letter == "-" and self.shape.classes[i] == "c":
                whole = code.emit(f"mul i64 {columns}, {self.sizes[i]}")
                run = code.emit(f"icmp eq i64 {whole}, {frame.steps[i][last - 1]}")
                fit = code.emit(f"select i1 {run}, i64 {fit}, i64 1")
        with code.runs(frame.dims[last - 1]) as part:
            before = frame.pointers
            rows = least(code, self.moved(last - 1, part.start), fit)
            operands = self.operands()
            for i, buffer in buffers.items():
                row = code.emit(f"mul i64 {columns}, {self.sizes[i]}")
                if i < frame.inputs:
                    with code.when(self.news(marks[i], i, rows)):
                        self.put(i, buffer, row, rows, columns)
                operands[i] = replace(operands[i], motion="c", base=buffer)
            self.run(operands, code.emit(f"mul i64 {rows}, {columns}"))
            for i, buffer in buffers.items():
                row = code.emit(f"mul i64 {columns}, {self.sizes[i]}")
                if i >= frame.inputs:
                    self.put(i, buffer, row, rows, columns, back=True)
            frame.pointers = before
            part.stop = code.emit(f"add i64 {part.start}, {rows}")

    def news(self, mark: tuple[str, str], i: int, rows: str) -> str:
        """Return whether an operand's tile is not in its buffer yet: a row that all rows share
        stays there."""
        code = self.code
        here = self.frame.pointers[i]
        moves = code.emit(f"icmp ne i64 {self.frame.steps[i][self.last - 1]}, 0")
        other = code.emit(f"icmp ne ptr {code.emit(f'load ptr, ptr {mark[0]}')}, {here}")
        more = code.emit(f"icmp slt i64 {code.emit(f'load i64, ptr {mark[1]}')}, {rows}")
        code.do(f"store ptr {here}, ptr {mark[0]}")
        code.do(f"store i64 {rows}, ptr {mark[1]}")
        return code.emit(f"or i1 {moves}, {code.emit(f'or i1 {other}, {more}')}")

    def buffer(self, operand: int, count: int) -> str:
        return self.code.alloca(f"[{count} x {memory_type(self.dtypes[operand])}]")

    def put(
        self, i: int, buffer: str, row: str, rows: str, columns: str, back: bool = False
    ) -> None:
        """Write a copy of an operand's tile to its buffer, or back."""
        frame = self.frame
        steps = frame.steps[i]
        here = f"ptr {buffer}, i64 {row}, i64 {self.sizes[i]}"
        there = f"ptr {frame.pointers[i]}, i64 {steps[self.last - 1]}, i64 {steps[self.last]}"
        ends = f"{there}, {here}" if back else f"{here}, {there}"
        name = copy_function(self.module, self.sizes[i])
        self.code.do(f"call void @{name}({ends}, i64 {rows}, i64 {columns})")


def run_stages(
    code: Code, graph: Graph, operands: list[Operand], count: str, width: Width, stream: bool
) -> None:
    """Write the loop over a run of elements, or one for each stage over strips of it."""
    inputs = len(graph.inputs)
    stages = in_stages(graph)
    if len(stages) == 1:
        writes = tuple(zip(graph.outputs, operands[inputs:], strict=True))
        stage = Stage(dict(enumerate(operands[:inputs])), stages[0].nodes, writes)
        stage_loop(code, graph, stage, count, width, stream)
        return
    kept = [
        Operand(dtype, "w", code.alloca(f"[{STRIP} x {memory_type(dtype)}]"))
        for dtype in places(graph, stages)
    ]
    with code.loop(count, step=STRIP) as start:
        left = least(code, code.emit(f"sub i64 {count}, {start}"), str(STRIP))
        here = [operand.after(code, start) for operand in operands]
        for part in stages:
            reads = {i: here[i] for i in part.inputs} | {v: kept[p] for v, p in part.takes}
            writes = tuple((v, kept[p]) for v, p in part.gives)
            if part is stages[-1]:
                # all results are stored here: one of them may replace an operand that an
                # earlier stage reads
                writes += tuple(zip(graph.outputs, here[inputs:], strict=True))
            stage_loop(code, graph, Stage(reads, part.nodes, writes), left, width)


def least(code: Code, a: str, b: str) -> str:
    """Return the smaller one of two numbers."""
    less = code.emit(f"icmp slt i64 {a}, {b}")
    return code.emit(f"select i1 {less}, i64 {a}, i64 {b}")


def width_of_group(graph: Graph, schedule: Schedule, vector_bits: int, together: int = 0) -> Width:
    """Return how many elements of a group go together, by its widest dtype; ``together`` vectors
    of them, if the schedule leaves it open (0: by the length of the group)."""
    # a single element that all share fills no register for each vector: 64 bits of a counter and
    # a key made 11 steps of a Monte Carlo in float32 half as wide, which took 17.9 ms for 9.3
    inputs = [layout for layout in graph.inputs if layout.size != 1]
    layouts = [*inputs, *(node.layout for node in graph.nodes)] or graph.inputs
    widest = max(width_of(part_of(layout.dtype.name)) for layout in layouts)
    masked = vector_bits == 512
    together = (
        schedule.interleave
        or together
        or vectors_together(graph, REGISTERS if masked else REGISTERS // 2)
    )
    return Width(vector_bits // widest * together, masked)
