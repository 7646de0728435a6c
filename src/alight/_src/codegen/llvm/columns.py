"""Reducing columns side by side: a tile of them, row after row, by the same tree as a row reduces.

The functions take ``(ptr data, i64 pitch, i64 rows, i64 width, ptr state, i64 seen)``: rows of
``width`` columns, ``pitch`` bytes apart, of which ``seen`` were reduced before. All calls but the
last are of a multiple of CHUNK rows where the reduction rounds, and then of CHUNK at a time.

States are rows of ``tile`` columns. *Sums*: the levels of the counter. *Exact* reductions: one row.
*Arguments*: the best, then their rows. *Moments*: sums and squared deviations level by level, then
those of a chunk that was not full, then the first element, from which all distances are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from alight._src.codegen.llvm.combine import (
    CHUNK_BITS,
    LEVELS,
    combine_rows,
    population,
    push_function,
    repeat,
    stack_row,
)
from alight._src.codegen.llvm.expressions import Code, literal, memory_type, register_type
from alight._src.codegen.llvm.moments import push_moment_rows, total_moment_rows
from alight._src.ir.table_reduction import CHUNK, LANES

if TYPE_CHECKING:
    from alight._src.codegen.llvm.combine import Reduction
    from alight._src.codegen.llvm.expressions import Module

# Columns of a tile. Where reductions keep a row of state, 1024 float64 are 8 KiB, a quarter of the
# smallest L1 in use. Sums keep LEVELS rows on the stack of a thread, which may be 512 KiB: a third
# of it. CHUNK rows made in a buffer are 64 KiB of the L2. Wider is faster: on one Xeon sums of 4096
# rows of 1024 float64 took 2.0, 1.6, 1.5 and 1.2 ms with 64, 128, 256 and 512 columns.
EXACT_TILE, SUM_TILE, MADE_TILE = 1024, 512, 64

# (address of a row, column) → the element there, in the reduction's dtype
Load = Callable[[str, str], str]


def tile_of(reductions: Sequence[Reduction], direct: bool) -> int:
    """Return how many columns of some reductions are reduced side by side."""
    if not direct:
        return MADE_TILE
    rows = sum(0 if f.exact or f.argument else 2 if f.moments else 1 for f in reductions)
    return EXACT_TILE if not rows else SUM_TILE // (1 << (rows - 1).bit_length())


class Column:
    """The state of one reduction of a tile on the stack of a kernel, and the calls that change
    it."""

    def __init__(
        self, code: Code, reduction: Reduction, direct: bool, tile: int, state: str = ""
    ) -> None:
        self.code = code
        self.reduction = reduction
        self.tile = tile
        self.direct = direct
        self.dtype = reduction.source if direct else reduction.dtype
        self.seen = code.alloca("i64")  # rows reduced so far
        one = memory_type(reduction.dtype)
        rows = 1 if reduction.argument or reduction.exact else LEVELS
        if reduction.moments:
            rows = 2 * LEVELS + 3
        if state:
            self.state = state
        elif reduction.argument:
            self.state = code.alloca(f"{{ [{tile} x i64], [{tile} x {one}] }}")
        else:
            self.state = code.alloca(f"[{rows * tile} x {one}]")

    def begin(self, width: str) -> None:
        """Set the state to that of no rows."""
        code, reduction = self.code, self.reduction
        code.do(f"store i64 0, ptr {self.seen}")
        if reduction.exact and not reduction.argument:
            with code.loop(width, parallel=True, brief=True) as j:
                value = literal(reduction.identity, reduction.dtype)
                code.store(
                    value, code.at(self.state, j, reduction.dtype), reduction.dtype, parallel=True
                )

    def take(self, data: str, pitch: str, rows: str, width: str) -> None:
        """Reduce in more rows."""
        code = self.code
        seen = code.emit(f"load i64, ptr {self.seen}")
        given = f"ptr {data}, i64 {pitch}, i64 {rows}, i64 {width}, ptr {self.state}, i64 {seen}"
        code.do(f"call void @{self._function()}({given})")
        code.do(f"store i64 {code.emit(f'add i64 {seen}, {rows}')}, ptr {self.seen}")

    def finish(self, width: str) -> None:
        """Reduce what the counter holds."""
        code, reduction = self.code, self.reduction
        if not reduction.argument and (reduction.moments or not reduction.exact):
            name = _total(code.module, reduction, self.tile)
            seen = code.emit(f"load i64, ptr {self.seen}")
            code.do(f"call void @{name}(ptr {self.state}, i64 {seen}, i64 {width})")

    def result(self, j: str, count: str) -> str:
        """Return the result of a column, in its own dtype, once finished."""
        code, reduction = self.code, self.reduction
        if reduction.argument:
            row = code.load(code.at(self.state, j, "int64"), "int64", parallel=True)
            return code.cast(row, "int64", reduction.result)
        reduced = code.load(code.at(self.state, j, reduction.dtype), reduction.dtype, parallel=True)
        return reduction.finished(code, reduced, count)

    def _function(self) -> str:
        reduction, module = self.reduction, self.code.module
        if reduction.argument:
            make, kind = _argument, f"best{reduction.node.op.name}"
        elif reduction.moments:
            make, kind = _moments, "moments"
        elif reduction.exact:
            make, kind = _exact, "exact"
        else:
            make, kind = _sum, "tree"
        body = reduction.element_key if self.direct else reduction.dtype
        name = f"columns{self.tile}.{kind}.{reduction.stem}.{body}"
        if name not in module.shared:
            code = Code(module)
            make(code, reduction, self._load(code), self.tile)
            code.do("ret void")
            given = "ptr noalias readonly %data, i64 %pitch, i64 %rows, i64 %width"
            signature = f"internal void @{name}({given}, ptr noalias %state, i64 %seen)"
            module.share(name, code.function(signature, "#3"))
        return name

    def _load(self, code: Code) -> Load:
        def load(row: str, j: str) -> str:
            value = code.load(code.at(row, j, self.dtype), self.dtype, parallel=True)
            if self.direct:
                (value,) = code.evaluate(self.reduction.element, [value])
            return value

        return load


def push_rows(column: Column, values: str, before: str, width: str) -> None:
    """Reduce in partial reductions of as many rows each, one for each column, after so many
    others."""
    code, reduction, tile = column.code, column.reduction, column.tile
    if reduction.exact:
        combine_rows(code, reduction, values, column.state, column.state, width)
        return
    code.do(f"store i64 {before}, ptr {column.seen}")
    name = push_function(code.module, reduction, tile)
    given = f"ptr {values}, ptr {column.state}, ptr {column.seen}, i64 {width}"
    code.do(f"call void @{name}({given})")


def _row(code: Code, index: str) -> str:
    """Return the address of a row of the data."""
    return code.offset("%data", code.emit(f"mul nsw i64 {index}, %pitch"))


def _exact(code: Code, reduction: Reduction, load: Load, tile: int) -> None:
    # four rows at a time, so that a row of state is loaded and stored a quarter as often
    four = code.emit("and i64 %rows, -4")

    def take(first: str, rows: int) -> None:
        places = [
            _row(code, code.emit(f"add i64 {first}, {r}") if r else first) for r in range(rows)
        ]
        with code.loop("%width", parallel=True, brief=True) as j:
            cell = code.at("%state", j, reduction.dtype)
            value = code.load(cell, reduction.dtype, parallel=True)
            for place in places:
                value = reduction.combined(code, load(place, j), value)
            code.store(value, cell, reduction.dtype, parallel=True)

    with code.when(code.emit(f"icmp sgt i64 {four}, 0")), code.loop(four, step=4) as row:
        take(row, 4)
    rest = code.emit(f"sub i64 %rows, {four}")
    with code.when(code.emit(f"icmp sgt i64 {rest}, 0")), code.loop(rest) as row:
        take(code.emit(f"add i64 {four}, {row}"), 1)


def _argument(code: Code, reduction: Reduction, load: Load, tile: int) -> None:
    one = register_type(reduction.dtype)
    values = code.offset("%state", str(8 * tile))
    with code.loop("%rows") as row:
        place = _row(code, row)
        number = code.emit(f"add i64 %seen, {row}")
        first = code.emit(f"icmp eq i64 {number}, 0")
        with code.loop("%width", parallel=True, brief=True) as j:
            cell, at = code.at(values, j, reduction.dtype), code.at("%state", j, "int64")
            value = load(place, j)
            best = code.load(cell, reduction.dtype, parallel=True)
            index = code.load(at, "int64", parallel=True)
            (better,) = code.evaluate(reduction.better, [value, best])
            take = code.emit(f"select i1 {first}, i1 true, i1 {better}")
            best = code.emit(f"select i1 {take}, {one} {value}, {one} {best}")
            index = code.emit(f"select i1 {take}, i64 {number}, i64 {index}")
            code.store(best, cell, reduction.dtype, parallel=True)
            code.store(index, at, "int64", parallel=True)


# --- reductions that round
def _sum(code: Code, reduction: Reduction, load: Load, tile: int) -> None:
    chunk = code.alloca(f"[{tile} x {memory_type(reduction.dtype)}]")
    _chunk(code, reduction, load, tile, chunk)
    chunks = code.alloca("i64")
    code.do(f"store i64 {code.emit(f'lshr i64 %seen, {CHUNK_BITS}')}, ptr {chunks}")
    push = push_function(code.module, reduction, tile)
    code.do(f"call void @{push}(ptr {chunk}, ptr %state, ptr {chunks}, i64 %width)")


def _chunk(code: Code, reduction: Reduction, load: Load, tile: int, target: str) -> None:
    """Write the reduction of each column of one chunk."""
    lanes = code.alloca(f"[{LANES * tile} x {memory_type(reduction.dtype)}]")
    some = code.emit(f"icmp slt i64 %rows, {LANES}")
    used = code.emit(f"select i1 {some}, i64 %rows, i64 {LANES}")
    full, part, done = code.label("full"), code.label("part"), code.label("reduced")
    code.do(f"br i1 {code.emit(f'icmp eq i64 %rows, {CHUNK}')}, label %{full}, label %{part}")
    code.start(full)
    _full_chunk(code, reduction, load, lanes, tile)
    code.do(f"br label %{done}")
    code.start(part)
    _part_chunk(code, reduction, load, lanes, tile, used)
    code.do(f"br label %{done}")
    code.start(done)
    name = _lanes_function(code.module, reduction, tile)
    code.do(f"call void @{name}(ptr {lanes}, i64 {used}, i64 %width)")
    with code.loop("%width", parallel=True, brief=True) as j:
        value = code.load(code.at(lanes, j, reduction.dtype), reduction.dtype, parallel=True)
        code.store(value, code.at(target, j, reduction.dtype), reduction.dtype, parallel=True)


def _full_chunk(code: Code, reduction: Reduction, load: Load, lanes: str, tile: int) -> None:
    """Write the reductions of the lanes of a full chunk."""
    # Each lane is reduced in registers, one lane after another as they lie in memory: eight runs of
    # rows side by side, as prefetchers like it. Lanes in the order in which they meet are no runs:
    # sums of 32768 rows of 64, 128 and 256 float64 then took 0.65, 2.2 and 3.8 ms, for 0.35, 1.3
    # and 2.6 (1 thread, EPYC). Two runs at a time, or one, need what they reduced read again: 0.64,
    # 1.9 and 2.9, or 1.5, 2.9 and 5.3.
    with code.loop(str(LANES)) as lane:
        rows = [
            _row(code, code.emit(f"add i64 {lane}, {LANES * step}"))
            for step in range(CHUNK // LANES)
        ]
        cells = stack_row(code, reduction, lanes, lane, tile)
        with code.loop("%width", parallel=True, brief=True) as j:
            value = load(rows[0], j)
            for row in rows[1:]:
                value = reduction.combined(code, load(row, j), value)
            code.store(value, code.at(cells, j, reduction.dtype), reduction.dtype, parallel=True)


def _part_chunk(
    code: Code, reduction: Reduction, load: Load, lanes: str, tile: int, used: str
) -> None:
    """Write the reductions of the lanes of what is no full chunk, ``used`` of them."""

    # Up to four rows of a lane are reduced in registers. One by one, what all lanes hold went to
    # the L2 and back with each row: sums of 64, 100 and 127 rows of 4 M float64 took 3.3, 3.1 and
    # 3.2 ms, and 2.3, 2.4 and 2.2 so; of 33 3.4 and 3.0, half as long in float32 (1 thread, EPYC).
    def take(first: str, rows: int, cells: str, begun: bool) -> None:
        places = [
            _row(code, code.emit(f"add i64 {first}, {LANES * step}") if step else first)
            for step in range(rows)
        ]
        with code.loop("%width", parallel=True, brief=True) as j:
            cell = code.at(cells, j, reduction.dtype)
            value = code.load(cell, reduction.dtype, parallel=True) if begun else None
            for place in places:
                one = load(place, j)
                value = one if value is None else reduction.combined(code, one, value)
            assert value is not None
            code.store(value, cell, reduction.dtype, parallel=True)

    def times(count: str) -> str:
        return code.emit(f"mul i64 {count}, {LANES}")

    with code.loop(used) as lane:
        cells = stack_row(code, reduction, lanes, lane, tile)
        behind = code.emit(f"sub i64 %rows, {lane}")
        rows = code.emit(f"udiv i64 {code.emit(f'add i64 {behind}, {LANES - 1}')}, {LANES}")
        taken = code.emit(f"select i1 {code.emit(f'icmp uge i64 {rows}, 2')}, i64 2, i64 1")
        taken = code.emit(f"select i1 {code.emit(f'icmp uge i64 {rows}, 4')}, i64 4, i64 {taken}")
        for count in (4, 2, 1):
            with code.when(code.emit(f"icmp eq i64 {taken}, {count}")):
                take(lane, count, cells, begun=False)
        first = code.emit(f"add i64 {lane}, {times(taken)}")
        rest = code.emit(f"sub i64 {rows}, {taken}")  # a chunk that is not full has eight at most
        for count in (4, 2, 1):
            here = code.emit(f"and i64 {rest}, {count}")
            with code.when(code.emit(f"icmp ne i64 {here}, 0")):
                before = code.emit(f"and i64 {rest}, {7 & ~(2 * count - 1)}")
                take(code.emit(f"add i64 {first}, {times(before)}"), count, cells, begun=True)


def _lanes_function(module: Module, reduction: Reduction, tile: int) -> str:
    """Return the function that reduces the lanes of a tile pairwise into the first: ``(ptr lanes,
    i64 used, i64 width)``. Lanes past ``used`` were never written and are left out."""
    name = f"lanes{tile}.{reduction.stem}"
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
                target = stack_row(code, reduction, "%lanes", lane, tile)
                source = stack_row(code, reduction, "%lanes", other, tile)
                combine_rows(code, reduction, target, source, target, "%width")
            code.do(f"store i64 {code.emit(f'lshr i64 {half}, 1')}, ptr {cell}")
        code.do("ret void")
        signature = f"internal void @{name}(ptr noalias %lanes, i64 %used, i64 %width)"
        module.share(name, code.function(signature, "#3"))
    return name


def _total(module: Module, reduction: Reduction, tile: int) -> str:
    """Return the function that leaves the reduction of all rows in row 0 of the state: ``(ptr
    state, i64 seen, i64 width)``; of moments, the squared deviations."""
    name = f"total{tile}.{'moments.' if reduction.moments else ''}{reduction.stem}"
    if name not in module.shared:
        code = Code(module)
        if reduction.moments:
            total_moment_rows(code, reduction, tile)
        else:
            _total_sum(code, reduction, tile)
        code.do("ret void")
        signature = f"internal void @{name}(ptr noalias %state, i64 %seen, i64 %width)"
        module.share(name, code.function(signature, "#3"))
    return name


def _total_sum(code: Code, reduction: Reduction, tile: int) -> None:
    with (
        code.when(code.emit("icmp eq i64 %seen, 0")),
        code.loop("%width", parallel=True, brief=True) as j,
    ):
        value = literal(reduction.identity, reduction.dtype)
        code.store(value, code.at("%state", j, reduction.dtype), reduction.dtype, parallel=True)
    chunks = code.emit(f"add i64 %seen, {CHUNK - 1}")
    chunks = code.emit(f"lshr i64 {chunks}, {CHUNK_BITS}")
    top = code.alloca("i64")
    code.do(f"store i64 {population(code, chunks)}, ptr {top}")
    with repeat(code) as proceed:
        level = code.emit(f"load i64, ptr {top}")
        proceed(code.emit(f"icmp ugt i64 {level}, 1"))
        upper = code.emit(f"sub i64 {level}, 1")
        code.do(f"store i64 {upper}, ptr {top}")
        source = stack_row(code, reduction, "%state", upper, tile)
        target = stack_row(code, reduction, "%state", code.emit(f"sub i64 {level}, 2"), tile)
        combine_rows(code, reduction, target, source, target, "%width")


def _moments(code: Code, reduction: Reduction, load: Load, tile: int) -> None:
    dtype, one = reduction.dtype, register_type(reduction.dtype)
    row = f"[{tile} x {memory_type(dtype)}]"
    sums, squares, means = code.alloca(row), code.alloca(row), code.alloca(row)
    pivots = code.at("%state", str((2 * LEVELS + 2) * tile), dtype)
    with (
        code.when(code.emit("icmp eq i64 %seen, 0")),
        code.loop("%width", parallel=True, brief=True) as j,
    ):
        (origin,) = code.evaluate(reduction.origin, [load("%data", j)])
        code.store(origin, code.at(pivots, j, dtype), dtype, parallel=True)

    def distance(place: str, j: str) -> str:
        pivot = code.load(code.at(pivots, j, dtype), dtype, parallel=True)
        return code.emit(f"fsub {one} {load(place, j)}, {pivot}")

    _chunk(code, reduction, distance, tile, sums)
    count = code.emit(f"uitofp i64 %rows to {one}")
    with code.loop("%width", parallel=True, brief=True) as j:
        total = code.load(code.at(sums, j, dtype), dtype, parallel=True)
        mean = code.emit(f"fdiv {one} {total}, {count}")
        code.store(mean, code.at(means, j, dtype), dtype, parallel=True)

    def deviation(place: str, j: str) -> str:
        mean = code.load(code.at(means, j, dtype), dtype, parallel=True)
        away = code.emit(f"fsub {one} {distance(place, j)}, {mean}")
        return code.emit(f"fmul {one} {away}, {away}")

    _chunk(code, reduction, deviation, tile, squares)
    levels = code.at("%state", str(LEVELS * tile), dtype)
    full = code.emit(f"icmp eq i64 %rows, {CHUNK}")
    with code.when(full):
        push_moment_rows(code, reduction, tile, (sums, squares), levels)
    with code.when(code.emit(f"xor i1 {full}, true")):
        rest = code.at("%state", str(2 * LEVELS * tile), dtype)
        for source, target in ((sums, rest), (squares, code.at(rest, str(tile), dtype))):
            with code.loop("%width", parallel=True, brief=True) as j:
                value = code.load(code.at(source, j, dtype), dtype, parallel=True)
                code.store(value, code.at(target, j, dtype), dtype, parallel=True)
