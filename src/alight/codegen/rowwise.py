"""LLVM IR of groups that go over rows: reductions along the innermost axis, with what makes their
elements and, in a rowwise group, what is made of their results over the same row.

A row is visited once for each phase (see ``codegen.phases``), while it is in cache; what takes long
to make is kept in the memory of an output between visits. A visit makes elements piece by piece in
a vector loop and folds them from there (see ``codegen.spans``); a reduction of what lies in memory
already folds it where it is.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from alight.codegen.emit import Code, Module, memory_type
from alight.codegen.extremes import BLOCK
from alight.codegen.fold import Fold
from alight.codegen.kernels import SIGNATURE, Frame, elementwise, has_branches
from alight.codegen.partial import combine_function, parts
from alight.codegen.phases import Pass, phases
from alight.codegen.spans import Span
from alight.ir.group import GroupKind

if TYPE_CHECKING:
    from alight.codegen.loops import Nest, Schedule
    from alight.ir.group import Group

# Elements that several reductions read one after another: 16 KiB of float64, half of the smallest
# L1 in use.
_SHARED = 2048


def rowwise_kernel(module: Module, group: Group, shape: Nest, schedule: Schedule) -> None:
    """Add the entry point of a reduce or rowwise group whose reduced axes are one in memory."""
    code = Code(module, schedule.interleave)
    frame = Frame(code, group, shape)
    rows = _Rows(frame, group)
    needed = range(shape.kept if group.kind is GroupKind.REDUCE else frame.rank)
    with code.when(frame.nonempty(needed)):
        rows.run()
    code.finish()
    module.functions.append(code.function(SIGNATURE, "#0"))
    combine_function(module, group, shape, schedule)


class _Rows:
    def __init__(self, frame: Frame, group: Group) -> None:
        graph = group.graph
        self.frame = frame
        self.code = frame.code
        self.graph = graph
        self.first = len(graph.inputs)
        self.axis = frame.rank - 1
        self.count = self.length = frame.dims[self.axis]
        self.phases = phases(group)
        self.branches = has_branches(graph)
        self.flag = frame.code.alloca("i1") if self.branches else ""
        self.places = {
            number: place for place, number in enumerate(graph.outputs, start=self.first)
        }
        self.spans: dict[int, Span] = {}
        for number, node in graph.numbered():
            if any(number in visit.folds for visit in self.phases.passes):
                fold = Fold(graph, node)
                self.spans[number] = Span(self.code, fold, self._source(fold) is not None)
        self.buffers: dict[int, str] = {}
        self.partial = ""  # whether this is a part of a fold; empty: it never is
        if parts(group, frame.shape) is not None:
            first, end, partial = (
                self.code.emit(f"load i64, ptr {self.code.offset('%dims', str(8 * k))}")
                for k in range(frame.rank, frame.rank + 3)
            )
            self.start = first
            self.length = self.code.emit(f"sub i64 {end}, {first}")
            self.partial = self.code.emit(f"icmp ne i64 {partial}, 0")

    def _source(self, fold: Fold) -> int | None:
        """Return the operand whose memory holds what is folded, None where it has to be made."""
        (number, *mask) = fold.node.operands
        if mask or not fold.lanewise:
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
            last = self.phases.passes[-1]
            if last.scalars:  # they may read what there is one of for all rows, or for a row
                known = {**self.frame.broadcast(), **known}
            self.scalars(last, known)

    def scalars(self, visit: Pass, known: dict[int, str]) -> None:
        """Compute the values that a row has one of."""
        for number in visit.scalars:
            node = self.graph.nodes[number - self.first]
            known[number] = elementwise(self.code, self.graph, node, known)
            self.deliver(number, known[number])

    def deliver(self, number: int, value: str) -> None:
        """Store one of a row's results if it is an output."""
        dtype = self.graph.layout(number).dtype.name
        for place, output in enumerate(self.graph.outputs, self.first):
            if output == number:
                self.code.store(value, self.frame.pointers[place], dtype)

    def visit(self, visit: Pass, known: dict[int, str], some: str) -> None:
        """Go over the row once."""
        code = self.code
        for number in visit.folds:
            self.begin(number)
        if len(self.phases.passes) > 2 or visit.written:
            known.update(self.frame.broadcast())  # a rowwise group is not empty
            self.scalars(visit, known)
            self.pieces(visit, known)
        else:
            with code.when(some):
                self.pieces(visit, self.frame.broadcast())
        with ExitStack() as whole:
            if self.partial:
                whole.enter_context(code.when(code.emit(f"xor i1 {self.partial}, true")))
            for number in visit.folds:
                known[number] = self.spans[number].result(self.count)
                self.deliver(number, known[number])

    def begin(self, number: int) -> None:
        """Set a fold to that of no elements; the state of a part is in the memory of its output."""
        code, span = self.code, self.spans[number]
        if not self.partial:
            span.begin()
            return
        slot = self.frame.pointers[self.places[number]]
        span.state = code.emit(f"select i1 {self.partial}, ptr {slot}, ptr {span.own}")
        span.begin()
        if span.fold.moments:
            operand = self._source(span.fold)
            assert operand is not None  # codegen.partial has seen to it
            with code.when(self.partial):
                span.measure_from(self.begins[operand])

    def pieces(self, visit: Pass, known: dict[int, str]) -> None:
        """Make and fold the elements of the row."""
        code = self.code
        made = [n for n in visit.folds if not self.spans[n].direct]
        stored = (*visit.written, *visit.saved)
        if not visit.folds and not self.branches:
            self.elements(visit, known, "0", self.length, {})
            return
        buffered = bool(made) or (self.branches and bool(stored))
        if not made and len(visit.folds) == 1 and not stored:
            self.fold_direct(visit.folds[0], "0", self.length)
            return
        size = BLOCK if buffered or stored else _SHARED
        stop = None
        if len(visit.folds) == 1 and not stored:
            stop = self.spans[visit.folds[0]].fold.stops()
        settled = code.label("settled")
        with code.loop(self.length, step=size) as start:
            left = code.emit(f"sub i64 {self.length}, {start}")
            short = code.emit(f"icmp slt i64 {left}, {size}")
            count = code.emit(f"select i1 {short}, i64 {left}, i64 {size}")
            if buffered or stored:
                targets = {n: self.buffer(n) for n in made}
                self.elements(visit, known, start, count, targets)
            for number in visit.folds:
                if number in made:
                    self.spans[number].take(self.buffer(number), count)
                else:
                    self.fold_direct(number, start, count)
            if stop is not None:
                on = code.label("undecided")
                code.do(f"br i1 {self.spans[made[0]].decided(stop)}, label %{settled}, label %{on}")
                code.start(on)
        code.do(f"br label %{settled}")
        code.start(settled)

    def fold_direct(self, number: int, start: str, count: str) -> None:
        """Fold elements where they lie in memory."""
        span = self.spans[number]
        operand = self._source(span.fold)
        assert operand is not None
        pointer = self.code.at(self.frame.pointers[operand], start, span.fold.source)
        span.take(pointer, count)

    def buffer(self, number: int) -> str:
        """Return the stack memory in which a fold's elements, or an output's, are made."""
        if number not in self.buffers:
            span = self.spans.get(number)
            dtype = self.graph.layout(number).dtype.name if span is None else span.fold.dtype
            self.buffers[number] = self.code.alloca(f"[{BLOCK} x {memory_type(dtype)}]")
        return self.buffers[number]

    def elements(
        self, visit: Pass, known: dict[int, str], start: str, count: str, targets: dict[int, str]
    ) -> None:
        """Make the elements of a piece: those of outputs in their place, those to fold in
        buffers."""
        code, frame = self.code, self.frame
        stored = (*visit.written, *visit.saved)
        pointers = frame.pointers
        if start != "0":
            frame.pointers = frame.moved(self.axis, start)
        if not self.branches:
            self.loop(visit, known, count, targets, {})
        else:
            # made in buffers, as a second try must find the inputs as they were
            into = {n: self.buffer(n) for n in stored}
            code.do(f"store i1 false, ptr {self.flag}")
            code.seldom = self.flag
            self.loop(visit, known, count, targets, into)
            with code.when(code.emit(f"load i1, ptr {self.flag}")):
                code.seldom = ""
                self.loop(visit, known, count, targets, into)
            if stored:
                with code.loop(count, parallel=True, brief=True) as index:
                    for n in stored:
                        dtype = self.graph.layout(n).dtype.name
                        value = code.load(code.at(into[n], index, dtype), dtype, parallel=True)
                        self.put(n, value, index)
        frame.pointers = pointers

    def loop(
        self,
        visit: Pass,
        known: dict[int, str],
        count: str,
        targets: dict[int, str],
        into: dict[int, str],
    ) -> None:
        code, frame, graph = self.code, self.frame, self.graph
        with code.loop(count, parallel=not self.branches or bool(code.seldom)) as index:
            values = dict(known)
            read = {
                operand for n in visit.needed for operand in graph.nodes[n - self.first].operands
            }
            read.update(o for n in targets for o in graph.nodes[n - self.first].operands)
            for number in sorted(read):
                if number in values or number in visit.needed:
                    continue
                dtype = graph.layout(number).dtype.name
                operand = number
                if number >= self.first:
                    operand = self.places[self.phases.home[number]]
                pointer = frame.element(operand, dtype, index)
                values[number] = code.load(pointer, dtype, parallel=True)
            for number in visit.needed:
                node = graph.nodes[number - self.first]
                values[number] = elementwise(code, graph, node, values)
            # every load stands before every store
            for number in (*visit.written, *visit.saved):
                dtype = graph.layout(number).dtype.name
                if number in into:
                    target = code.at(into[number], index, dtype)
                    code.store(values[number], target, dtype, parallel=True)
                else:
                    self.put(number, values[number], index)
            for number, buffer in targets.items():
                fold = self.spans[number].fold
                target = code.at(buffer, index, fold.dtype)
                code.store(fold.value(code, values), target, fold.dtype, parallel=True)

    def put(self, number: int, value: str, index: str) -> None:
        """Store an element of an output, or of what is kept in the memory of one."""
        code, frame = self.code, self.frame
        dtype = self.graph.layout(number).dtype.name
        home = self.phases.home.get(number, number)
        for place, output in enumerate(self.graph.outputs, self.first):
            if output == home and (home == number or place == self.places[home]):
                code.store(value, frame.element(place, dtype, index), dtype, parallel=True)
