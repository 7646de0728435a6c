"""LLVM IR of row-and-column groups: the rows of an array are reduced, and, while they are in cache,
what they add to the reductions down its columns (``ir.row_column``).

A part is a run of rows, of 2**k chunks but for the last. It writes the results of its own rows;
what it has of each column and of the whole it leaves to be combined: one partial reduction each,
which is a subtree of the tree that all rows have (``codegen.llvm.combine``). So the bits are those
of reductions one by one, however many parts there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from alight._src.codegen.llvm.columns import Column, push_rows, tile_of
from alight._src.codegen.llvm.combine import Reduction
from alight._src.codegen.llvm.expressions import Code, Module
from alight._src.codegen.llvm.kernel_frame import SIGNATURE, Frame
from alight._src.codegen.llvm.spans import Span
from alight._src.codegen.llvm.split_reduction import COMBINE, END, FIRST, PARTIAL, Parts
from alight._src.ir.body import width_of
from alight._src.ir.row_column import CrossSection, Role
from alight._src.ir.table_reduction import CHUNK

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest, Schedule
    from alight._src.ir.group import Group

_LINE_BYTES = 64  # a cache line on nearly all processors: slots of two threads must not share one


def section_of(group: Group) -> CrossSection:
    """Return the cross section of a group that has one."""
    found = group.form.section
    assert found is not None  # gaps.check has seen to it
    return found


def reductions_of(group: Group) -> list[tuple[int, Role, Reduction]]:
    """Return the reductions of a group in the order of its outputs: of each the place among the
    operands, what it goes along and how it reduces."""
    graph = group.graph
    first = len(graph.inputs)
    roles = section_of(group).roles
    return [
        (place, roles[number - first], Reduction(graph, graph.made_by[number]))
        for place, number in enumerate(graph.outputs, first)
    ]


def row_column_parts(group: Group) -> Parts:
    """Return how a row-and-column group can be cut along its rows."""
    section = section_of(group)
    reductions = reductions_of(group)
    slot = -(-section.width * _widest(reductions) // _LINE_BYTES) * _LINE_BYTES
    own = sum(role is Role.ALONG for _, role, _ in reductions)
    return Parts(section.rows, CHUNK, slot, slot, -1, own)


def _widest(reductions: Iterable[tuple[int, Role, Reduction]]) -> int:
    """Return the most bytes of what a part leaves of a column."""
    return max(
        width_of(reduction.dtype) // 8
        for _, role, reduction in reductions
        if role is not Role.ALONG
    )


def row_column_kernel(module: Module, group: Group, shape: Nest, schedule: Schedule) -> None:
    """Add the entry point of a row-and-column group to a module, and what combines its parts."""
    code = Code(module, schedule.interleave)
    frame = Frame(code, group, shape)
    with code.when(frame.nonempty(range(2))):
        _Visit(frame, group).run()
    code.finish()
    module.functions.append(code.function(SIGNATURE, "#0"))
    _combine(module, group, shape, schedule)


class _Visit:
    def __init__(self, frame: Frame, group: Group) -> None:
        self.frame = frame
        self.code = code = frame.code
        self.reductions = reductions_of(group)
        self.width = frame.dims[1]
        self.first, end, partial = (frame.argument("%dims", 2 + k) for k in (FIRST, END, PARTIAL))
        self.rows = code.emit(f"sub i64 {end}, {self.first}")
        self.partial = code.emit(f"icmp ne i64 {partial}, 0")
        down = [reduction for _, role, reduction in self.reductions if role is Role.DOWN]
        self.tile = tile_of(down, True) if down else 1
        self.columns = {
            place: self.column(reduction)
            for place, role, reduction in self.reductions
            if role is Role.DOWN
        }
        self.spans = {
            place: Span(code, reduction, True)
            for place, role, reduction in self.reductions
            if role is not Role.DOWN
        }

    def column(self, reduction: Reduction) -> tuple[Column, str, str]:
        """Return a reduction down the columns with the memory of its states, tile after tile, and
        the bytes of a tile."""
        code = self.code
        levels = "1"
        if not reduction.exact:
            code.module.share("llvm.ctlz.i64", "declare i64 @llvm.ctlz.i64(i64, i1)")
            chunks = code.emit(f"udiv i64 {self.frame.dims[0]}, {CHUNK}")
            chunks = code.emit(f"add i64 {chunks}, 1")
            zeros = code.emit(f"call i64 @llvm.ctlz.i64(i64 {chunks}, i1 true)")
            levels = code.emit(f"sub i64 65, {zeros}")
        size = width_of(reduction.dtype) // 8
        pitch = code.emit(f"mul i64 {levels}, {self.tile * size}")
        tiles = code.emit(f"add i64 {self.width}, {self.tile - 1}")
        tiles = code.emit(f"udiv i64 {tiles}, {self.tile}")
        state = code.emit(f"alloca i8, i64 {code.emit(f'mul i64 {tiles}, {pitch}')}, align 64")
        return Column(code, reduction, True, self.tile, state), state, pitch

    @contextmanager
    def tiles(self) -> Iterator[tuple[str, str]]:
        """Run what is added inside for each tile of columns, with the first one and how many they
        are; the states are those of the tile."""
        code = self.code
        with code.loop(self.width, step=self.tile) as start:
            left = code.emit(f"sub i64 {self.width}, {start}")
            short = code.emit(f"icmp slt i64 {left}, {self.tile}")
            width = code.emit(f"select i1 {short}, i64 {left}, i64 {self.tile}")
            number = code.emit(f"udiv i64 {start}, {self.tile}")
            for column, state, pitch in self.columns.values():
                far = code.emit(f"mul i64 {number}, {pitch}")
                column.state = code.offset(state, far)
            yield start, width

    def run(self) -> None:
        """Write the loops."""
        code, frame = self.code, self.frame
        for place, role, _ in self.reductions:
            if role is Role.WHOLE:
                self.spans[place].begin()
        if self.columns:
            with self.tiles() as (_, width):
                for column, _, _ in self.columns.values():
                    column.begin(width)
        with code.loop(self.rows, step=CHUNK) as start:
            count = code.piece(self.rows, start, CHUNK)
            row = code.emit(f"add i64 {self.first}, {start}")
            if self.spans:
                with code.loop(count) as i:
                    self.row(code.emit(f"add i64 {row}, {i}"))
            if self.columns:
                data = self.at(0, row)
                with self.tiles() as (tile, width):
                    for column, _, _ in self.columns.values():
                        code.do(f"store i64 {start}, ptr {column.seen}")
                        first = code.at(data, tile, column.reduction.source)
                        column.take(first, frame.steps[0][0], count, width)
        self.deliver()

    def at(self, operand: int, row: str) -> str:
        """Return where an operand's row begins."""
        far = self.code.emit(f"mul nsw i64 {row}, {self.frame.steps[operand][0]}")
        return self.code.offset(self.frame.pointers[operand], far)

    def row(self, row: str) -> None:
        """Reduction a row, and what it adds to the whole."""
        code = self.code
        data = self.at(0, row)
        for place, role, reduction in self.reductions:
            if role is Role.DOWN:
                continue
            span = self.spans[place]
            if role is Role.ALONG:
                span.begin()
            span.take(data, self.width)
            if role is Role.ALONG:
                code.store(span.result(self.width), self.at(place, row), reduction.result)

    def deliver(self) -> None:
        """Leave the results, or what a part has of them, in the memory of the outputs."""
        code, frame = self.code, self.frame
        whole = code.emit(f"xor i1 {self.partial}, true")
        for place, role, reduction in self.reductions:
            if role is not Role.WHOLE:
                continue
            with code.when(self.partial):
                code.store(
                    code.load(self.spans[place].state, reduction.dtype),
                    *(frame.pointers[place], reduction.dtype),
                )
            with code.when(whole):
                count = code.emit(f"mul i64 {self.rows}, {self.width}")
                result = self.spans[place].result(count)
                code.store(result, frame.pointers[place], reduction.result)
        if not self.columns:
            return
        with self.tiles() as (start, width):
            for place, (column, _, _) in self.columns.items():
                reduction = column.reduction
                code.do(f"store i64 {self.rows}, ptr {column.seen}")
                column.finish(width)
                target = frame.pointers[place]
                with code.when(self.partial), code.loop(width, parallel=True, brief=True) as j:
                    value = code.load(code.at(column.state, j, reduction.dtype), reduction.dtype)
                    at = code.emit(f"add i64 {start}, {j}")
                    code.store(value, code.at(target, at, reduction.dtype), reduction.dtype)
                with code.when(whole), code.loop(width, parallel=True, brief=True) as j:
                    at = code.emit(f"add i64 {start}, {j}")
                    value = column.result(j, self.rows)
                    code.store(value, code.at(target, at, reduction.result), reduction.result)


def _combine(module: Module, group: Group, shape: Nest, schedule: Schedule) -> None:
    """Add the function that makes results of what parts have left."""
    code = Code(module, schedule.interleave)
    frame = Frame(code, group, shape)
    rows, width = frame.dims
    left = [
        (place, role, reduction)
        for place, role, reduction in reductions_of(group)
        if role is not Role.ALONG
    ]
    slot_bytes = code.emit(f"mul i64 {width}, {_widest(left)}")
    slot_bytes = code.emit(f"add i64 {slot_bytes}, {_LINE_BYTES - 1}")
    slot_bytes = code.emit(f"and i64 {slot_bytes}, {-_LINE_BYTES}")
    pitch = code.emit(f"mul i64 {slot_bytes}, {len(left)}")
    tile = tile_of([reduction for _, role, reduction in left if role is Role.DOWN], True)
    for number, (place, role, reduction) in enumerate(left):
        far = code.emit(f"mul i64 {slot_bytes}, {number}")
        slots = code.offset("%slots", far)
        target = frame.pointers[place]
        if role is Role.WHOLE:
            span = Span(code, reduction, True)
            span.begin()
            with code.loop("%parts") as part:
                other = code.offset(slots, code.emit(f"mul i64 {part}, {pitch}"))
                before, more = (code.load(p, reduction.dtype) for p in (span.state, other))
                code.store(reduction.combined(code, before, more), span.state, reduction.dtype)
            count = code.emit(f"mul i64 {rows}, {width}")
            code.store(span.result(count), target, reduction.result)
            continue
        column = Column(code, reduction, True, tile)
        with code.loop(width, step=tile) as start:
            rest = code.emit(f"sub i64 {width}, {start}")
            short = code.emit(f"icmp slt i64 {rest}, {tile}")
            some = code.emit(f"select i1 {short}, i64 {rest}, i64 {tile}")
            column.begin(some)
            with code.loop("%parts") as part:
                other = code.offset(slots, code.emit(f"mul i64 {part}, {pitch}"))
                push_rows(column, code.at(other, start, reduction.dtype), part, some)
            seen = code.emit(f"mul i64 %parts, {CHUNK}")
            code.do(f"store i64 {seen}, ptr {column.seen}")
            column.finish(some)
            with code.loop(some, parallel=True, brief=True) as j:
                at = code.emit(f"add i64 {start}, {j}")
                value = column.result(j, rows)
                code.store(value, code.at(target, at, reduction.result), reduction.result)
    code.finish()
    module.functions.append(code.function(COMBINE, "#0"))
