"""LLVM IR of a reduce group: several reductions over the same axes, with what makes their elements.

Two forms. *Rows*: the innermost axis is folded; a chunk of elements is made into a buffer by a
vector loop and folded from there. *Columns*: the innermost axis is kept; a tile of columns is
folded side by side. Both fold by the same tree (see ``codegen.fold``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight.codegen.emit import Code, Module, literal, memory_type, register_type
from alight.codegen.fold import (
    LEVELS,
    TILE,
    Fold,
    chunk_function,
    combine_rows,
    part_function,
    push_function,
    repeat,
    rows_of,
    stack_row,
    total_function,
)
from alight.codegen.kernels import SIGNATURE, Frame, has_branches
from alight.ir.table_reduction import CHUNK, LANES

if TYPE_CHECKING:
    from alight.codegen.loops import Nest, Schedule
    from alight.ir.group import Group


def reduce_kernel(module: Module, group: Group, shape: Nest, schedule: Schedule) -> None:
    """Add the entry point of a reduce group to a module."""
    first = len(group.graph.inputs)
    folds = [Fold(group.graph, group.graph.nodes[i - first]) for i in group.graph.outputs]
    code = Code(module, schedule.interleave)
    frame = Frame(code, group, shape)
    form = _Columns(frame, folds) if shape.columns else _Rows(frame, folds)
    with code.when(frame.nonempty(range(shape.kept))):
        form.run()
    code.finish()
    module.functions.append(code.function(SIGNATURE, "#0"))


class _Form:
    def __init__(self, frame: Frame, folds: list[Fold]) -> None:
        self.frame = frame
        self.code = frame.code
        self.folds = folds
        self.kept = frame.shape.kept
        self.reduced = range(self.kept, frame.rank)
        code = self.code
        self.count = "1"
        for k in self.reduced:
            self.count = code.emit(f"mul i64 {self.count}, {frame.dims[k]}")
        self.some = frame.nonempty(self.reduced)
        self.place = code.alloca("i64")  # of the next element in its chunk

    def run(self) -> None:
        """Write the loops."""
        raise NotImplementedError

    def read(self, cell: str) -> str:
        return self.code.emit(f"load i64, ptr {cell}")

    def set(self, cell: str, value: str) -> None:
        self.code.do(f"store i64 {value}, ptr {cell}")

    def least(self, a: str, b: str) -> str:
        less = self.code.emit(f"icmp slt i64 {a}, {b}")
        return self.code.emit(f"select i1 {less}, i64 {a}, i64 {b}")

    def output(self, position: int) -> int:
        """Return the operand number of a fold's result."""
        return self.frame.inputs + position


class _Row:
    """Stack memory of one fold in rows: a chunk, then the counter, or the best so far and its
    index."""

    def __init__(self, code: Code, fold: Fold) -> None:
        self.fold = fold
        self.buffer = code.alloca(
            rows_of(fold, CHUNK + LANES)
        )  # padding may run over by one vector
        self.count = code.alloca("i64")
        self.stack = code.alloca(rows_of(fold, 1 if fold.argument else LEVELS))
        self.index = code.alloca("i64")


class _Rows(_Form):
    def run(self) -> None:
        code, frame = self.code, self.frame
        self.rows = [_Row(code, fold) for fold in self.folds]
        self.base = code.alloca("i64")  # index of the first element of the chunk
        self.done = code.alloca("i64")  # elements of the current row already made
        # set where an element of the piece needs a branch; without branches there is no flag
        self.flag = code.alloca("i1") if has_branches(frame.graph) else ""
        stop = self.folds[0].stops() if len(self.folds) == 1 else None
        with frame.along(range(self.kept)):
            for cell in (self.place, self.base, *(row.count for row in self.rows)):
                self.set(cell, "0")
            settled = code.label("settled")
            with code.when(self.some), frame.along(self.reduced[:-1]):
                self.row(stop, settled)
            code.do(f"br label %{settled}")
            code.start(settled)
            rest = self.read(self.place)
            with code.when(code.emit(f"icmp sgt i64 {rest}, 0")):
                self.flush(rest, self.pad(rest))
            for position, row in enumerate(self.rows):
                self.result(position, row)

    def row(self, stop: str | None, settled: str) -> None:
        """Take in the innermost row, chunk by chunk."""
        code, frame = self.code, self.frame
        length = frame.dims[-1]
        self.set(self.done, "0")
        fixed = frame.broadcast()
        pointers = frame.pointers
        with repeat(code) as proceed:
            done = self.read(self.done)
            proceed(code.emit(f"icmp slt i64 {done}, {length}"))
            place = self.read(self.place)
            room = code.emit(f"sub i64 {CHUNK}, {place}")
            piece = self.least(code.emit(f"sub i64 {length}, {done}"), room)
            frame.pointers = frame.moved(frame.rank - 1, done)
            targets = [code.at(row.buffer, place, row.fold.dtype) for row in self.rows]
            if self.flag:
                code.do(f"store i1 false, ptr {self.flag}")
            code.seldom = self.flag
            self.elements(piece, fixed, targets)
            if self.flag:
                with code.when(code.emit(f"load i1, ptr {self.flag}")):
                    code.seldom = ""
                    self.elements(piece, fixed, targets)
            self.set(self.done, code.emit(f"add i64 {done}, {piece}"))
            place = code.emit(f"add i64 {place}, {piece}")
            self.set(self.place, place)
            with code.when(code.emit(f"icmp eq i64 {place}, {CHUNK}")):
                self.flush(str(CHUNK))
                self.set(self.place, "0")
                if stop is not None:
                    self.leave_early(stop, settled)
        frame.pointers = pointers

    def elements(self, count: str, fixed: dict[int, str], targets: list[str]) -> None:
        """Make the next elements of every fold in its buffer."""
        code = self.code
        with code.loop(count, parallel=True) as index:
            known = self.frame.values(fixed, index)
            for row, target in zip(self.rows, targets, strict=True):
                dtype = row.fold.dtype
                value = row.fold.value(code, known)
                code.store(value, code.at(target, index, dtype), dtype, parallel=True)

    def leave_early(self, stop: str, settled: str) -> None:
        """Go to the result if the chunk just folded decides it."""
        code = self.code
        last = code.load(self.rows[0].buffer, self.folds[0].dtype)
        again = code.label("undecided")
        decided = code.emit(f"icmp eq i1 {last}, {stop}")
        code.do(f"br i1 {decided}, label %{settled}, label %{again}")
        code.start(again)

    def pad(self, rest: str) -> str:
        """Return the elements of the last chunk, filled up to whole vectors with what changes
        nothing."""
        code = self.code
        more = code.emit(f"add i64 {rest}, {LANES - 1}")
        padded = code.emit(f"and i64 {more}, {-LANES}")
        for row in self.rows:
            dtype = row.fold.dtype
            vector = memory_type(dtype, LANES)
            start = code.at(row.buffer, rest, dtype)
            # one vector store may run past the last vector: the buffer has room for it
            value = literal(
                int(row.fold.identity) if dtype == "bool" else row.fold.identity,
                "uint8" if dtype == "bool" else dtype,
                LANES,
            )
            code.do(f"store {vector} {value}, ptr {start}, align 1")
        return padded

    def flush(self, length: str, padded: str | None = None) -> None:
        """Fold the chunk in every buffer; ``length`` elements of it are real, ``padded`` are filled
        in (None: the chunk is full)."""
        code = self.code
        for row in self.rows:
            fold = row.fold
            one = register_type(fold.dtype)
            if padded is None:
                name = chunk_function(code.module, fold)
                value = code.emit(f"call {one} @{name}(ptr {row.buffer})")
            else:
                name = part_function(code.module, fold)
                value = code.emit(f"call {one} @{name}(ptr {row.buffer}, i64 {padded})")
            if fold.argument:
                self.search(row, value, length)
                continue
            code.store(value, row.buffer, fold.dtype)
            push = push_function(code.module, fold)
            given = f"ptr {row.buffer}, ptr {row.stack}, ptr {row.count}, i64 1"
            code.do(f"call void @{push}({given})")
        base = self.read(self.base)
        self.set(self.base, code.emit(f"add i64 {base}, {length}"))

    def search(self, row: _Row, value: str, length: str) -> None:
        """Keep the index of the chunk's best if it beats what was kept before."""
        code, fold = self.code, row.fold
        dtype = fold.dtype
        kept = self.read(row.count)
        best = code.load(row.stack, dtype)
        (better,) = code.evaluate(fold.better, [value, best])
        first = code.emit(f"icmp eq i64 {kept}, 0")
        # select: before the first chunk there is no best to compare with
        take = code.emit(f"select i1 {first}, i1 true, i1 {better}")
        self.set(row.count, "1")
        with code.when(take):
            code.store(value, row.stack, dtype)
            self.set(row.index, "0")
            with repeat(code) as proceed:
                index = self.read(row.index)
                item = code.load(code.at(row.buffer, index, dtype), dtype)
                proceed(_differs(code, dtype, item, value))
                self.set(row.index, code.emit(f"add i64 {index}, 1"))
            index = self.read(row.index)
            self.set(row.index, code.emit(f"add i64 {index}, {self.read(self.base)}"))

    def result(self, position: int, row: _Row) -> None:
        code, fold = self.code, row.fold
        target = self.frame.pointers[self.output(position)]
        if fold.argument:
            value = code.cast(self.read(row.index), "int64", fold.result)
        else:
            total = total_function(code.module, fold)
            code.do(f"call void @{total}(ptr {row.stack}, i64 {self.read(row.count)}, i64 1)")
            value = fold.finished(code, code.load(row.stack, fold.dtype), self.count)
        code.store(value, target, fold.result)


def _differs(code: Code, dtype: str, item: str, value: str) -> str:
    """Return whether an element is not the chunk's best; a NaN is the same as another."""
    one = register_type(dtype)
    if not dtype.startswith("float"):
        return code.emit(f"icmp ne {one} {item}, {value}")
    differs = code.emit(f"fcmp une {one} {item}, {value}")
    either = code.emit(f"fcmp ord {one} {item}, {item}")
    ordered = code.emit(f"fcmp ord {one} {value}, {value}")
    # une is true for two NaNs, where neither is ordered
    some = code.emit(f"or i1 {either}, {ordered}")
    return code.emit(f"and i1 {differs}, {some}")


class _Column:
    """Stack memory of one fold in columns: lanes of a tile and the counter, or the best so far."""

    def __init__(self, code: Code, fold: Fold) -> None:
        self.fold = fold
        self.lanes = code.alloca(rows_of(fold, TILE * (1 if fold.argument else LANES)))
        self.stack = code.alloca(rows_of(fold, TILE * (1 if fold.argument else LEVELS)))
        self.count = code.alloca("i64")
        self.index = code.alloca(f"[{TILE} x i64]")


class _Columns(_Form):
    def run(self) -> None:
        code, frame = self.code, self.frame
        self.columns = [_Column(code, fold) for fold in self.folds]
        self.taken = code.alloca("i64")  # rows taken in so far
        last = self.kept - 1
        with (
            frame.along(range(last)),
            code.loop(frame.dims[last], step=TILE) as start,
        ):
            pointers = frame.pointers
            self.width = self.least(code.emit(f"sub i64 {frame.dims[last]}, {start}"), str(TILE))
            frame.pointers = frame.moved(last, start)
            for cell in (self.place, self.taken, *(column.count for column in self.columns)):
                self.set(cell, "0")
            with code.when(self.some), frame.along(self.reduced):
                self.row()
            with code.when(code.emit(f"icmp sgt i64 {self.read(self.place)}, 0")):
                self.flush()
            for position, column in enumerate(self.columns):
                self.result(position, column)
            frame.pointers = pointers

    def row(self) -> None:
        """Take in one row of the tile."""
        code, frame = self.code, self.frame
        place, taken = self.read(self.place), self.read(self.taken)
        lane = code.emit(f"urem i64 {place}, {LANES}")
        offset = code.emit(f"mul i64 {lane}, {TILE}")
        fresh = code.emit(f"icmp slt i64 {place}, {LANES}")
        first = code.emit(f"icmp eq i64 {taken}, 0")
        folds = [c for c in self.columns if not c.fold.argument]
        rows = {id(c): code.at(c.lanes, offset, c.fold.dtype) for c in folds}
        if folds:
            with code.when(fresh), code.loop(self.width, parallel=True, brief=True) as j:
                for column in folds:
                    dtype = column.fold.dtype
                    value = literal(column.fold.identity, dtype)
                    code.store(value, code.at(rows[id(column)], j, dtype), dtype, parallel=True)
        fixed = frame.broadcast()
        with code.loop(self.width, parallel=True) as j:
            known = frame.values(fixed, j)
            for column in self.columns:
                fold = column.fold
                value = fold.value(code, known)
                if fold.argument:
                    self.compare(column, value, j, first, taken)
                    continue
                cell = code.at(rows[id(column)], j, fold.dtype)
                before = code.load(cell, fold.dtype, parallel=True)
                value = fold.combined(code, value, before)
                code.store(value, cell, fold.dtype, parallel=True)
        self.set(self.taken, code.emit(f"add i64 {taken}, 1"))
        place = code.emit(f"add i64 {place}, 1")
        self.set(self.place, place)
        with code.when(code.emit(f"icmp eq i64 {place}, {CHUNK}")):
            self.flush()
            self.set(self.place, "0")

    def compare(self, column: _Column, value: str, j: str, first: str, taken: str) -> None:
        """Keep the row's number in a column where its value beats the best so far."""
        code, fold = self.code, column.fold
        one = register_type(fold.dtype)
        cell = code.at(column.lanes, j, fold.dtype)
        place = code.at(column.index, j, "int64")
        best = code.load(cell, fold.dtype, parallel=True)
        index = code.load(place, "int64", parallel=True)
        (better,) = code.evaluate(fold.better, [value, best])
        take = code.emit(f"select i1 {first}, i1 true, i1 {better}")
        best = code.emit(f"select i1 {take}, {one} {value}, {one} {best}")
        index = code.emit(f"select i1 {take}, i64 {taken}, i64 {index}")
        code.store(best, cell, fold.dtype, parallel=True)
        code.store(index, place, "int64", parallel=True)

    def flush(self) -> None:
        """Fold the lanes of the chunk to one and add that to the counter."""
        code = self.code
        used = self.least(self.read(self.place), str(LANES))
        for column in self.columns:
            fold = column.fold
            if fold.argument:
                continue
            name = _lanes_function(code.module, fold)
            code.do(f"call void @{name}(ptr {column.lanes}, i64 {used}, i64 {self.width})")
            push = push_function(code.module, fold, TILE)
            given = f"ptr {column.lanes}, ptr {column.stack}, ptr {column.count}, i64 {self.width}"
            code.do(f"call void @{push}({given})")

    def result(self, position: int, column: _Column) -> None:
        code, frame, fold = self.code, self.frame, column.fold
        operand = self.output(position)
        if not fold.argument:
            total = total_function(code.module, fold, TILE)
            count = self.read(column.count)
            code.do(f"call void @{total}(ptr {column.stack}, i64 {count}, i64 {self.width})")
        with code.loop(self.width, parallel=True, brief=True) as j:
            if fold.argument:
                index = code.load(code.at(column.index, j, "int64"), "int64", parallel=True)
                value = code.cast(index, "int64", fold.result)
            else:
                folded = code.load(code.at(column.stack, j, fold.dtype), fold.dtype, parallel=True)
                value = fold.finished(code, folded, self.count)
            target = frame.element(operand, fold.result, j)
            code.store(value, target, fold.result, parallel=True)


def _lanes_function(module: Module, fold: Fold) -> str:
    """Return the function that folds the lanes of a tile pairwise into the first: ``(ptr lanes, i64
    used, i64 width)``. Lanes past ``used`` were never written and are left out."""
    name = f"lanes.{fold.stem}"
    if name not in module.shared:
        code = Code(module)
        cell = code.alloca("i64")
        code.do(f"store i64 {LANES // 2}, ptr {cell}")
        with repeat(code) as proceed:
            half = code.emit(f"load i64, ptr {cell}")
            proceed(code.emit(f"icmp sgt i64 {half}, 0"))
            pairs = code.emit(f"sub i64 %used, {half}")
            fewer = code.emit(f"icmp slt i64 {pairs}, {half}")
            pairs = code.emit(f"select i1 {fewer}, i64 {pairs}, i64 {half}")
            with (
                code.when(code.emit(f"icmp sgt i64 {pairs}, 0")),
                code.loop(pairs) as lane,
            ):
                other = code.emit(f"add i64 {lane}, {half}")
                target = stack_row(code, fold, "%lanes", lane, TILE)
                source = stack_row(code, fold, "%lanes", other, TILE)
                combine_rows(code, fold, target, source, target, "%width")
            code.do(f"store i64 {code.emit(f'lshr i64 {half}, 1')}, ptr {cell}")
        code.do("ret void")
        signature = f"internal void @{name}(ptr noalias %lanes, i64 %used, i64 %width)"
        module.share(name, code.function(signature, "#3"))
    return name
