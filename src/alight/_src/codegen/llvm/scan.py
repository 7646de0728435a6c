"""LLVM IR of a scan group: scans along one axis, what makes their elements and what is made of
their results, in one visit.

A scan goes one element after another, as NumPy's does, so its bits are NumPy's. Where the scanned
axis is the innermost, elements are made piece by piece in vectors, scanned in a buffer, and used
from there; otherwise a tile of columns is scanned side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._core import make_layout
from alight._src.base.originals import np
from alight._src.codegen.llvm.combine import repeat
from alight._src.codegen.llvm.expressions import Code, Module, literal, memory_type, register_type
from alight._src.codegen.llvm.kernel_frame import SIGNATURE, Frame
from alight._src.codegen.llvm.making import ROOM, step
from alight._src.codegen.llvm.simd import Operand, Stage, stage_loop
from alight._src.codegen.llvm.vector_loops import run_stages, width_of_group
from alight._src.ir.body import choose, typed
from alight._src.ir.graph import Graph, Node
from alight._src.ir.op_table import OPS, Kind

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest, Schedule
    from alight._src.codegen.llvm.simd import Width
    from alight._src.ir.graph import Attrs
    from alight._src.ir.group import Group
    from alight._src.ir.op_table import Op

# Elements made, scanned and used at a time: 4 KiB of float64, so that eight buffers fit the
# smallest L1 in use. Also the columns of a tile.
_PIECE = 512


def scan_kernel(
    module: Module, group: Group, shape: Nest, schedule: Schedule, vector_bits: int
) -> None:
    """Add the entry point of a scan group to a module."""
    code = Code(module)
    frame = Frame(code, group, shape)
    with code.when(frame.nonempty(range(frame.rank))):
        if shape.columns:
            _Columns(frame, group, schedule, vector_bits).run()
        else:
            _Rows(frame, group, width_of_group(group.graph, schedule, vector_bits)).run()
    code.finish()
    module.functions.append(code.function(SIGNATURE, "#0"))


class _Scan:
    """One scan: what each element becomes, and how it meets what came before."""

    def __init__(self, graph: Graph, number: int, node: Node) -> None:
        self.number = number
        self.source = graph.layouts[node.operands[0]].dtype.name
        self.operand = node.operands[0]
        self.dtype = dtype = node.layout.dtype.name
        assert node.op.combine is not None  # gaps.check has seen to it
        self.element = typed(
            choose(node.op.body, (self.source,)) or "R(x)", (self.source,), (dtype,)
        )
        pair = choose(OPS[node.op.combine].body, (dtype, dtype))
        assert pair is not None
        self.pair = typed(pair, (dtype, dtype), (dtype,))

    def made(self, code: Code, value: str) -> str:
        """Return an element in the scan's dtype."""
        (value,) = code.evaluate(self.element, [value])
        return value

    def combined(self, code: Code, before: str, value: str) -> str:
        """Return what comes after ``before``."""
        (value,) = code.evaluate(self.pair, [before, value])
        return value


class _Parts:
    """The nodes of a group: those the scans need, the scans, and those that need them."""

    def __init__(self, graph: Graph) -> None:
        self.scans: list[_Scan] = []
        self.before: list[tuple[int, Node]] = []
        self.after: list[tuple[int, Node]] = []
        late: set[int] = set()
        for number, node in graph.numbered:
            if node.op.kind is Kind.SCAN:
                self.scans.append(_Scan(graph, number, node))
                late.add(number)
            elif late.intersection(node.operands):
                self.after.append((number, node))
                late.add(number)
            else:
                self.before.append((number, node))
        made = {number for number, _ in self.before}
        used = {o for _, node in self.after for o in node.operands}
        self.between = sorted(made & used)  # what is made before and used after


class _Rows:
    def __init__(self, frame: Frame, group: Group, width: Width) -> None:
        self.frame = frame
        self.code = frame.code
        self.graph = group.graph
        self.parts = _Parts(group.graph)
        self.width = width
        self.axis = frame.rank - 1

    def run(self) -> None:
        code, frame, parts, graph = self.code, self.frame, self.parts, self.graph
        sums = [code.alloca(register_type(scan.dtype)) for scan in parts.scans]
        made = {number for number, _ in parts.before}
        # of what crosses from one stage to the next
        buffers = {n: self.buffer(graph.layouts[n].dtype.name) for n in parts.between}
        self.placed = {
            scan.number: place
            for scan in parts.scans
            for place, number in enumerate(graph.outputs, frame.inputs)
            if number == scan.number and frame.shape.classes[place] == "c"
        }
        for scan in parts.scans:
            if scan.number not in self.placed:
                buffers[scan.number] = self.buffer(scan.dtype)
            if scan.operand in made and scan.operand not in buffers:
                buffers[scan.operand] = self.buffer(scan.source)
        length = frame.dims[self.axis]
        with (
            frame.along(range(self.axis)),
            code.loop(length, step=_PIECE) as start,
        ):
            count = code.piece(length, start, _PIECE)
            pointers = frame.pointers
            frame.pointers = frame.moved(self.axis, start)
            # a scan whose results lie side by side needs no buffer for them
            buffers |= {number: frame.pointers[place] for number, place in self.placed.items()}
            if parts.before:
                self.stage(parts.before, count, buffers, before=True)
            for scan, cell in zip(parts.scans, sums, strict=True):
                self.scan(scan, cell, start, count, buffers)
            self.stage(parts.after, count, buffers, before=False)
            frame.pointers = pointers

    def buffer(self, dtype: str) -> str:
        return self.code.alloca(f"[{_PIECE} x {memory_type(dtype)}]")

    def operand(self, place: int, dtype: str) -> Operand:
        """Return an input or output of the group at the current piece."""
        frame = self.frame
        motion = frame.shape.classes[place]
        return Operand(dtype, motion, frame.pointers[place], frame.steps[place][self.axis])

    def stage(
        self, nodes: list[tuple[int, Node]], count: str, buffers: dict[int, str], before: bool
    ) -> None:
        """Make the values before or after the scans."""
        graph, frame = self.graph, self.frame
        own = {number for number, _ in nodes}
        reads: dict[int, Operand] = {}
        writes: list[tuple[int, Operand]] = []
        for _, node in nodes:
            for value in node.operands:
                dtype = graph.layouts[value].dtype.name
                if value < frame.inputs:
                    reads[value] = self.operand(value, dtype)
                elif value not in own:
                    reads[value] = Operand(dtype, "c", buffers[value])
        if before:
            for value, buffer in buffers.items():
                if value in own:
                    writes.append((value, Operand(graph.layouts[value].dtype.name, "c", buffer)))
        scanned = {scan.number for scan in self.parts.scans}
        for place, value in enumerate(graph.outputs, frame.inputs):
            dtype = graph.layouts[value].dtype.name
            if value in own:
                writes.append((value, self.operand(place, dtype)))
            elif not before and value in scanned and place != self.placed.get(value):
                reads[value] = Operand(dtype, "c", buffers[value])
                writes.append((value, self.operand(place, dtype)))
        if writes:
            stage_loop(self.code, graph, Stage(reads, nodes, writes), count, self.width)

    def scan(self, scan: _Scan, cell: str, start: str, count: str, buffers: dict[int, str]) -> None:
        """Scan the elements of a piece into their buffer."""
        code = self.code
        one = register_type(scan.dtype)
        target = buffers[scan.number]
        index = code.alloca("i64")
        code.do(f"store i64 0, ptr {index}")

        def element(i: str) -> str:
            if scan.operand in buffers:
                pointer = code.at(buffers[scan.operand], i, scan.source)
            else:
                pointer = self.frame.element(scan.operand, scan.source, i)
            return scan.made(code, code.load(pointer, scan.source))

        with code.when(code.emit(f"icmp eq i64 {start}, 0")):
            value = element("0")
            code.do(f"store {one} {value}, ptr {cell}")
            code.store(value, target, scan.dtype)
            code.do(f"store i64 1, ptr {index}")
        with repeat(code) as proceed:
            i = code.emit(f"load i64, ptr {index}")
            proceed(code.emit(f"icmp slt i64 {i}, {count}"))
            value = scan.combined(code, code.emit(f"load {one}, ptr {cell}"), element(i))
            code.do(f"store {one} {value}, ptr {cell}")
            code.store(value, code.at(target, i, scan.dtype), scan.dtype)
            code.do(f"store i64 {code.emit(f'add i64 {i}, 1')}, ptr {index}")


class _Columns:
    """Columns side by side: a row is one elementwise step, from the sums so far to those after."""

    def __init__(self, frame: Frame, group: Group, schedule: Schedule, vector_bits: int) -> None:
        self.frame = frame
        self.code = frame.code
        self.scans = _Parts(group.graph).scans
        self.graph = self._row(group.graph)
        # A row is begun for each step of the scan, and what its last vector leaves costs most where
        # several go together: 3276 rows of 40 float64 took 50 us in fours, 37 in ones, 512 of 256
        # took 27 and 34.
        special = any(node.op.special for node in self.graph.nodes)
        self.width = width_of_group(self.graph, schedule, vector_bits, 0 if special else 1)

    def _row(self, graph: Graph) -> Graph:
        """Return the graph of a row: its inputs are the group's, the sums before it and whether it
        is the first; its outputs the group's and the sums after it."""
        given = len(graph.inputs)
        flag = make_layout(np.dtype(bool), ())
        kept = [graph.layouts[scan.number] for scan in self.scans]
        inputs = (*graph.inputs, *kept, flag)
        sofar = {scan.number: given + k for k, scan in enumerate(self.scans)}
        nodes: list[Node] = []

        def add(op: Op, operands: tuple[int, ...], like: Node, attrs: Attrs = ()) -> int:
            nodes.append(Node(op, operands, attrs, like.layout))
            return len(inputs) + len(nodes) - 1

        local = {number: number for number in range(given)}
        for number, node in graph.numbered:
            operands = tuple([local[o] for o in node.operands])
            if number not in sofar:
                local[number] = add(node.op, operands, node, node.attrs)
                continue
            source = graph.layouts[node.operands[0]].dtype.name
            assert node.op.combine is not None  # gaps.check has seen to it
            body = choose(node.op.body, (source,)) or "R(x)"
            value = operands[0]
            if body != "R(x)" or source != node.layout.dtype.name:
                value = add(step(node.op, body), operands, node)
            further = add(OPS[node.op.combine], (sofar[number], value), node)
            local[number] = add(OPS["where"], (len(inputs) - 1, value, further), node)
        outputs = (*graph.outputs, *(scan.number for scan in self.scans))
        return Graph(inputs, tuple(nodes), tuple([local[number] for number in outputs]))

    def run(self) -> None:
        code, frame = self.code, self.frame
        last, axis = frame.shape.kept - 1, frame.rank - 1
        sums = [
            Operand(s.dtype, "w", code.alloca(f"[{_PIECE + ROOM} x {memory_type(s.dtype)}]"))
            for s in self.scans
        ]
        first = Operand("bool", "b", code.alloca("i8"))
        with frame.along(range(last)), code.loop(frame.dims[last], step=_PIECE) as start:
            width = code.piece(frame.dims[last], start, _PIECE)
            pointers = frame.pointers
            frame.pointers = frame.moved(last, start)
            # before the first row any sum will do, as the first element takes its place
            for cell in sums:
                with code.loop(str(_PIECE + ROOM), parallel=True, brief=True) as j:
                    code.store(
                        literal(0, cell.dtype),
                        code.at(cell.base, j, cell.dtype),
                        cell.dtype,
                        parallel=True,
                    )
            with code.loop(frame.dims[axis]) as row:
                before = frame.pointers
                frame.pointers = frame.moved(axis, row)
                code.store(code.emit(f"icmp eq i64 {row}, 0"), first.base, "bool")
                own = [self.operand(place) for place in range(frame.count)]
                reads = [*own[: frame.inputs], *sums, first]
                operands = [*reads, *own[frame.inputs :], *sums]
                run_stages(code, self.graph, operands, width, self.width, False)
                frame.pointers = before
            frame.pointers = pointers

    def operand(self, place: int) -> Operand:
        """Return an input or output of the group at the current row."""
        frame = self.frame
        graph = frame.graph
        number = place if place < frame.inputs else graph.outputs[place - frame.inputs]
        return Operand(
            graph.layouts[number].dtype.name,
            frame.shape.classes[place],
            frame.pointers[place],
            frame.steps[place][frame.shape.vector_axis],
        )
