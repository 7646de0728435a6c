"""LLVM IR of groups that go over rows: reductions along the innermost axis, with what makes their
elements and, in a rowwise group, what is made of their results over the same row.

A row is visited once for each phase (see ``codegen.common.phases``), while it is in cache; what
takes long to make is kept in the memory of an output between visits. A visit makes elements piece
by piece (``codegen.llvm.making``) and reduces them from there (``codegen.llvm.spans``); a reduction
of what lies in memory already reductions it where it is.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from alight._src.codegen.common.phases import Pass, phases
from alight._src.codegen.llvm.combine import Reduction
from alight._src.codegen.llvm.expressions import Code, Module, memory_type
from alight._src.codegen.llvm.kernel_frame import SIGNATURE, Frame
from alight._src.codegen.llvm.making import ROOM, making
from alight._src.codegen.llvm.minmax import BLOCK
from alight._src.codegen.llvm.simd import Operand
from alight._src.codegen.llvm.spans import Span
from alight._src.codegen.llvm.split_reduction import (
    combine_function,
    deliver,
    make_scalars,
    parts,
    slots,
)
from alight._src.ir.graph import GroupKind

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest, Schedule
    from alight._src.ir.group import Group

# Elements that several reductions read one after another: 16 KiB of float64, half of the smallest
# L1 in use.
_SHARED = 2048
# Nodes between the loads and a sum that go without a buffer. With one to eight of them sums of two
# arrays took 0.75 to 0.82 of the time in float32 from memory, 0.53 to 0.70 from the last cache and
# 0.62 to 0.74 from the second one, in float64 0.82 to 1.03, 0.73 to 0.97 and 0.82 to 1.04; from the
# first cache, where it costs to ask for memory ahead, 0.72 to 0.90 and 1.0 to 1.28 (EPYC, AVX-512,
# two threads past the second cache).
_FEW = 8


def rowwise_kernel(
    module: Module, group: Group, shape: Nest, schedule: Schedule, vector_bits: int
) -> None:
    """Add the entry point of a reduce or rowwise group whose reduced axes are one in memory."""
    code = Code(module)
    frame = Frame(code, group, shape)
    rows = _Rows(frame, group, schedule, vector_bits)
    needed = range(shape.kept if group.kind is GroupKind.REDUCE else frame.rank)
    with code.when(frame.nonempty(needed)):
        rows.run()
    code.finish()
    module.functions.append(code.function(SIGNATURE, "#0"))
    combine_function(module, group, shape, schedule)


class _Rows:
    def __init__(self, frame: Frame, group: Group, schedule: Schedule, vector_bits: int) -> None:
        graph = group.graph
        self.schedule = schedule
        self.vector_bits = vector_bits
        self.frame = frame
        self.code = frame.code
        self.graph = graph
        self.first = len(graph.inputs)
        self.axis = frame.rank - 1
        self.count = self.length = frame.dims[self.axis]
        self.phases = phases(group)
        self.places = {
            number: place for place, number in enumerate(graph.outputs, start=self.first)
        }
        self.spans: dict[int, Span] = {}
        for number, node in graph.numbered:
            if any(number in visit.reductions for visit in self.phases.passes):
                reduction = Reduction(graph, node)
                self.spans[number] = Span(self.code, reduction, self._source(reduction) is not None)
        self.buffers: dict[int, str] = {}
        self.partial = ""  # whether this is a part of a reduction; empty: it never is
        cut = parts(group, frame.shape)
        if cut is not None:
            self.states = {n: place * cut.state_bytes for n, place in slots(group).items()}
            first, end, partial = (
                self.code.emit(f"load i64, ptr {self.code.offset('%dims', str(8 * k))}")
                for k in range(frame.rank, frame.rank + 3)
            )
            self.start = first
            self.length = self.code.emit(f"sub i64 {end}, {first}")
            self.partial = self.code.emit(f"icmp ne i64 {partial}, 0")

    def _source(self, reduction: Reduction) -> int | None:
        """Return the operand whose memory holds what is reduced, None where it has to be made."""
        (number, *mask) = reduction.node.operands
        if mask or not reduction.lanewise:
            return None
        operand: int | None = number
        if number >= self.first:
            operand = self.places.get(self.phases.home.get(number, number))
        in_memory = operand is not None and self.frame.shape.classes[operand] == "c"
        return operand if in_memory else None

    def run(self) -> None:
        """Write the loops."""
        frame, code = self.frame, self.code
        with frame.along(range(self.axis)):
            known: dict[int, str] = {}
            if self.partial:
                self.begins = frame.pointers
                frame.pointers = frame.moved(self.axis, self.start)
            if len(self.phases.passes) > 1 or self.phases.wide:
                some = code.emit(f"icmp sgt i64 {self.length}, 0")
                for visit in self.phases.passes[:-1]:
                    self.visit(visit, known, some)
                    if not self.partial:
                        self.results(visit, known)
            with ExitStack() as whole:
                if self.partial:
                    whole.enter_context(code.when(code.emit(f"xor i1 {self.partial}, true")))
                    for visit in self.phases.passes[:-1]:
                        self.results(visit, known)
                deliver(frame, self.phases.passes[-1].scalars, known)

    def results(self, visit: Pass, known: dict[int, str]) -> None:
        """Make the results of what was reduced in a visit."""
        for number in visit.reductions:
            known[number] = self.spans[number].result(self.count)

    def visit(self, visit: Pass, known: dict[int, str], some: str) -> None:
        """Go over the row once."""
        code = self.code
        for number in visit.reductions:
            self.begin(number)
        rowwise = len(self.phases.passes) > 2 or bool(visit.written)
        if rowwise or visit.scalars:
            known.update(self.frame.broadcast())
            make_scalars(self.frame, visit.scalars, known)
        if rowwise:  # not empty
            self.pieces(visit, known)
        else:
            with code.when(some):
                self.pieces(visit, {**self.frame.broadcast(), **known})

    def begin(self, number: int) -> None:
        """Set a reduction to that of no elements; the states of a part are where the first output
        is."""
        code, span = self.code, self.spans[number]
        if not self.partial:
            span.begin()
            return
        slot = code.offset(self.frame.pointers[self.first], str(self.states[number]))
        span.state = code.emit(f"select i1 {self.partial}, ptr {slot}, ptr {span.own}")
        span.begin()
        if span.reduction.moments:
            operand = self._source(span.reduction)
            assert operand is not None  # split_reduction has seen to it
            with code.when(self.partial):
                span.measure_from(self.begins[operand])

    def pieces(self, visit: Pass, known: dict[int, str]) -> None:
        """Make and reduction the elements of the row."""
        code = self.code
        made = [n for n in visit.reductions if not self.spans[n].direct]
        stored = (*visit.written, *visit.saved)
        if not visit.reductions:
            self.elements(visit, known, "0", self.length, {})
            return
        if not made and len(visit.reductions) == 1 and not stored:
            self.reduce_direct(visit.reductions[0], "0", self.length)
            return
        if len(visit.reductions) == 1 and not stored and self.reduce_joined(visit):
            return
        size = BLOCK if made or stored else _SHARED
        stop = None
        if len(visit.reductions) == 1 and not stored:
            stop = self.spans[visit.reductions[0]].reduction.stops()
        settled = code.label("settled")
        with code.loop(self.length, step=size) as start:
            count = code.piece(self.length, start, size)
            if made or stored:
                targets = {n: self.buffer(n) for n in made}
                self.elements(visit, known, start, count, targets)
            for number in visit.reductions:
                if number in made:
                    self.spans[number].take(self.buffer(number), count)
                else:
                    self.reduce_direct(number, start, count)
            if stop is not None:
                on = code.label("undecided")
                code.do(f"br i1 {self.spans[made[0]].decided(stop)}, label %{settled}, label %{on}")
                code.start(on)
        code.do(f"br label %{settled}")
        code.start(settled)

    def reduce_direct(self, number: int, start: str, count: str) -> None:
        """Reduction elements where they lie in memory."""
        span = self.spans[number]
        operand = self._source(span.reduction)
        assert operand is not None
        pointer = self.code.at(self.frame.pointers[operand], start, span.reduction.source)
        span.take(pointer, count)

    def reduce_joined(self, visit: Pass) -> bool:
        """Reduction elements as they are made, where they are sums' and little work between the
        loads and the reduction; return whether they are."""
        span = self.spans[visit.reductions[0]]
        if span.reduction.exact or span.reduction.argument or span.reduction.moments:
            return False
        made = making(self.graph, visit.needed, [span.reduction], self.schedule, self.vector_bits)
        nodes = made.graph.nodes
        dtypes = [*(layout.dtype for layout in made.graph.inputs), *(n.layout.dtype for n in nodes)]
        few = len(nodes) <= _FEW and not any(node.op.special for node in nodes)
        if not few or not all(dtype.char in "fd" for dtype in dtypes):
            return False
        if any(n >= self.first or self.frame.shape.classes[n] != "c" for n in made.reads):
            return False
        runs = [self.frame.pointers[number] for number in made.reads]
        span.take_made(made.graph, runs, self.length)
        return True

    def buffer(self, number: int) -> str:
        """Return the stack memory in which a reduction's elements are made."""
        if number not in self.buffers:
            one = memory_type(self.spans[number].reduction.dtype)
            self.buffers[number] = self.code.alloca(f"[{BLOCK + ROOM} x {one}]")
        return self.buffers[number]

    def elements(
        self, visit: Pass, known: dict[int, str], start: str, count: str, targets: dict[int, str]
    ) -> None:
        """Make the elements of a piece: those of outputs in their place, those to reduce in
        buffers."""
        code, frame, graph = self.code, self.frame, self.graph
        stored = [(n, place) for n in (*visit.written, *visit.saved) for place in self.homes(n)]
        reductions = [self.spans[n].reduction for n in targets]
        made = making(
            graph,
            visit.needed,
            [*(n for n, _ in stored), *reductions],
            self.schedule,
            self.vector_bits,
            # what is written out has enough to do at once, and its rows may be short
            together=bool(frame.shape.places),
        )
        pointers = frame.pointers
        if start != "0":
            frame.pointers = frame.moved(self.axis, start)
        reads = [self.read(number, known) for number in made.reads]
        writes = [self.operand(place, graph.layouts[n].dtype.name) for n, place in stored]
        writes += [
            Operand(reduction.dtype, "w", target)
            for reduction, target in zip(reductions, targets.values(), strict=True)
        ]
        made.write(code, reads, writes, count)
        frame.pointers = pointers

    def read(self, number: int, known: dict[int, str]) -> Operand:
        """Return a value that is there: an input, one of the row's, or what an output keeps."""
        dtype = self.graph.layouts[number].dtype.name
        if number < self.first:
            return self.operand(number, dtype)
        if number in known:
            cell = self.code.alloca(memory_type(dtype))
            self.code.store(known[number], cell, dtype)
            return Operand(dtype, "b", cell)
        return self.operand(self.places[self.phases.home[number]], dtype)

    def operand(self, place: int, dtype: str) -> Operand:
        """Return an input or output of the group at the current piece."""
        return self.frame.operand(place, dtype)

    def homes(self, number: int) -> list[int]:
        """Return the operands in which an output, or what is kept in the memory of one, is
        stored."""
        home = self.phases.home.get(number, number)
        if home != number:
            return [self.places[home]]
        return [p for p, output in enumerate(self.graph.outputs, self.first) if output == home]
