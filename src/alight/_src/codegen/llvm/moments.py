"""Sums and squared deviations of chunks, merged as Chan, Golub and LeVeque (1979) do: of a run in
memory, and of columns side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._src.codegen.llvm.blocks import first_lanes
from alight._src.codegen.llvm.combine import (
    CHUNK_BITS,
    LEVELS,
    carried,
    chunk_of,
    stack_row,
    stacked,
)
from alight._src.codegen.llvm.expressions import Code, Module, literal, register_type
from alight._src.codegen.llvm.reading import STARTS, part_of_chunk, shifted
from alight._src.ir.body import width_of
from alight._src.ir.table_reduction import CHUNK, LANES

if TYPE_CHECKING:
    from alight._src.codegen.llvm.combine import Reduction
    from alight._src.codegen.llvm.reading import Reader


def merged_equal(code: Code, one: str, sums: tuple[str, str], a: str, b: str, factor: str) -> str:
    """Return the squared deviations of two runs of n elements together; ``factor`` is 1/2n."""
    away = code.emit(f"fsub {one} {sums[1]}, {sums[0]}")
    # scaled before squaring: the square of a sum overflows long before a variance does
    between = code.emit(f"fmul {one} {away}, {code.emit(f'fmul {one} {away}, {factor}')}")
    between = _as_far_as_summed(code, one, code.emit(f"fadd {one} {sums[0]}, {sums[1]}"), between)
    return code.emit(f"fadd {one} {code.emit(f'fadd {one} {a}, {b}')}, {between}")


def _as_far_as_summed(code: Code, one: str, total: str, between: str) -> str:
    """Return what is between two runs; where their sum overflows, as in NumPy, everything is
    infinitely far from the mean."""
    nothing = code.emit(f"fmul {one} {total}, 0.0")
    finite = code.emit(f"fcmp ord {one} {nothing}, {nothing}")
    endless = code.emit(f"fmul {one} {total}, {total}")
    return code.emit(f"select i1 {finite}, {one} {between}, {one} {endless}")


def merged(
    code: Code, one: str, a: tuple[str, str, str], b: tuple[str, str, str]
) -> tuple[str, str]:
    """Return sum and squared deviations of two runs together, from (count, sum, squares) of
    each."""
    count = code.emit(f"fadd {one} {a[0]}, {b[0]}")
    mean_a = code.emit(f"fdiv {one} {a[1]}, {a[0]}")
    mean_b = code.emit(f"fdiv {one} {b[1]}, {b[0]}")
    away = code.emit(f"fsub {one} {mean_b}, {mean_a}")
    share = code.emit(f"fdiv {one} {b[0]}, {count}")
    weighed = code.emit(f"fmul {one} {away}, {code.emit(f'fmul {one} {a[0]}, {share}')}")
    between = code.emit(f"fmul {one} {away}, {weighed}")
    total = code.emit(f"fadd {one} {a[1]}, {b[1]}")
    both = code.emit(f"fadd {one} {a[2]}, {b[2]}")
    between = _as_far_as_summed(code, one, total, between)
    return total, code.emit(f"fadd {one} {both}, {between}")


# --- a run in memory
def moments_run(code: Code, reduction: Reduction, read: Reader) -> None:
    """Write the function that reduces a run into a state of moments."""
    one, lanes = register_type(reduction.dtype), register_type(reduction.dtype, LANES)
    size = width_of(reduction.dtype) // 8
    rest_at, levels = code.offset("%state", "16"), code.offset("%state", str(16 + 3 * size))
    cell = code.alloca("i64")
    code.do(f"store i64 {code.emit('load i64, ptr %state')}, ptr {cell}")
    whole = code.emit(f"and i64 %n, {-CHUNK}")
    pivot_at = code.at(rest_at, "2", reduction.dtype)
    rest_count_at = code.offset("%state", "8")
    none = code.emit(f"icmp eq i64 {code.emit(f'load i64, ptr {rest_count_at}')}, -1")
    with code.when(none):
        code.do(f"store i64 0, ptr {rest_count_at}")
        (origin,) = code.evaluate(reduction.origin, [read.one("0")])
        code.store(origin, pivot_at, reduction.dtype)

    def deviation(value: str, mean: str) -> str:
        away = code.emit(f"fsub {lanes} {value}, {mean}")
        return code.emit(f"fmul {lanes} {away}, {away}")

    def spread(value: str) -> str:
        first = code.emit(f"insertelement {lanes} poison, {one} {value}, i32 0")
        return code.emit(
            f"shufflevector {lanes} {first}, {lanes} poison, <{LANES} x i32> zeroinitializer"
        )

    pivot = spread(code.load(pivot_at, reduction.dtype))

    def vector(index: str) -> str:
        return code.emit(f"fsub {lanes} {read.vector(index)}, {pivot}")

    def among(count: str, value: str, neutral: str) -> str:
        mask = first_lanes(code, count, LANES)
        return code.emit(f"select <{LANES} x i1> {mask}, {lanes} {value}, {lanes} {neutral}")

    def few(index: str, count: str, neutral: str) -> str:
        away = code.emit(f"fsub {lanes} {read.some(index, count, pivot)}, {pivot}")
        return among(count, away, neutral)

    with (
        code.when(code.emit(f"icmp sgt i64 {whole}, 0")),
        code.loop(whole, step=CHUNK) as start,
    ):
        vectors = [vector(shifted(code, start, i)) for i in STARTS]
        total = chunk_of(code, reduction, vectors)
        mean = spread(code.emit(f"fmul {one} {total}, {literal(1 / CHUNK, reduction.dtype)}"))
        squares = chunk_of(code, reduction, [deviation(v, mean) for v in vectors])
        push_moments(code, reduction, (total, squares), cell, levels)
    rest = code.emit(f"and i64 %n, {CHUNK - 1}")
    with code.when(code.emit(f"icmp ne i64 {rest}, 0")):
        total = part_of_chunk(code, reduction, vector, few, whole, rest)
        count = code.emit(f"uitofp i64 {rest} to {one}")
        mean = spread(code.emit(f"fdiv {one} {total}, {count}"))

        def near(index: str, count: str, neutral: str) -> str:
            # lanes beyond the end take the mean, and are left out, too, as it may be infinite
            return among(count, deviation(few(index, count, mean), mean), neutral)

        squares = part_of_chunk(
            code, reduction, lambda i: deviation(vector(i), mean), near, whole, rest
        )
        code.store(total, rest_at, reduction.dtype)
        code.store(squares, code.at(rest_at, "1", reduction.dtype), reduction.dtype)
        code.do(f"store i64 {rest}, ptr {code.offset('%state', '8')}")
    code.do(f"store i64 {code.emit(f'load i64, ptr {cell}')}, ptr %state")


def push_moments(
    code: Code, reduction: Reduction, new: tuple[str, str], cell: str, levels: str, level: str = "0"
) -> None:
    """Add the sum and squared deviations of 2**level chunks to the counter."""
    one, dtype = register_type(reduction.dtype), reduction.dtype
    chunks = code.emit(f"load i64, ptr {cell}")
    sums, squares, scale = (code.alloca(one) for _ in range(3))
    code.do(f"store {one} {new[0]}, ptr {sums}")
    code.do(f"store {one} {new[1]}, ptr {squares}")
    # two runs of n elements: the means are n apart, and weigh n/2
    more = code.emit(f"shl i64 1, {level}")
    weight = code.emit(f"uitofp i64 {more} to {one}")
    weight = code.emit(f"fdiv {one} {literal(1 / (2 * CHUNK), dtype)}, {weight}")
    code.do(f"store {one} {weight}, ptr {scale}")
    with carried(code, chunks, level) as entry:
        at = code.emit(f"shl i64 {entry.place}, 1")
        older = code.load(code.at(levels, at, dtype), dtype)
        older_squares = code.load(code.at(levels, code.emit(f"or i64 {at}, 1"), dtype), dtype)
        newer = code.emit(f"load {one}, ptr {sums}")
        newer_squares = code.emit(f"load {one}, ptr {squares}")
        factor = code.emit(f"load {one}, ptr {scale}")
        both = merged_equal(code, one, (older, newer), older_squares, newer_squares, factor)
        code.do(f"store {one} {both}, ptr {squares}")
        code.do(f"store {one} {code.emit(f'fadd {one} {older}, {newer}')}, ptr {sums}")
        half = literal(0.5, dtype)
        code.do(f"store {one} {code.emit(f'fmul {one} {factor}, {half}')}, ptr {scale}")
    at = code.emit(f"shl i64 {entry.place}, 1")
    code.store(code.emit(f"load {one}, ptr {sums}"), code.at(levels, at, dtype), dtype)
    above = code.emit(f"or i64 {at}, 1")
    code.store(code.emit(f"load {one}, ptr {squares}"), code.at(levels, above, dtype), dtype)
    code.do(f"store i64 {code.emit(f'add i64 {chunks}, {more}')}, ptr {cell}")


def moments_total(module: Module, reduction: Reduction) -> str:
    """Return the function that merges all of a state of moments: ``(ptr state)``; it returns the
    squared deviations from the mean of all."""
    name = f"spread.{reduction.stem}"
    if name in module.shared:
        return name
    code = Code(module)
    one, dtype = register_type(reduction.dtype), reduction.dtype
    size = width_of(dtype) // 8
    levels = code.offset("%state", str(16 + 3 * size))
    number, sums, squares = (code.alloca(one) for _ in range(3))
    chunks = code.emit("load i64, ptr %state")
    rest = code.emit(f"load i64, ptr {code.offset('%state', '8')}")
    none = code.emit(f"icmp slt i64 {rest}, 0")
    rest = code.emit(f"select i1 {none}, i64 0, i64 {rest}")
    code.do(f"store {one} {code.emit(f'uitofp i64 {rest} to {one}')}, ptr {number}")
    some = code.emit(f"icmp ne i64 {rest}, 0")
    rest_at = code.offset("%state", "16")
    for position, cell in enumerate((sums, squares)):
        code.do(f"store {one} {literal(0, dtype)}, ptr {cell}")
        with code.when(some):
            value = code.load(code.at(rest_at, str(position), dtype), dtype)
            code.do(f"store {one} {value}, ptr {cell}")
    with stacked(code, chunks) as (place, elements):
        at = code.emit(f"shl i64 {place}, 1")
        a_sum = code.load(code.at(levels, at, dtype), dtype)
        a_squares = code.load(code.at(levels, code.emit(f"or i64 {at}, 1"), dtype), dtype)
        a_count = code.emit(f"uitofp i64 {elements} to {one}")
        b = [code.emit(f"load {one}, ptr {cell}") for cell in (number, sums, squares)]
        code.do(f"store {one} {code.emit(f'fadd {one} {a_count}, {b[0]}')}, ptr {number}")
        code.do(f"store {one} {a_sum}, ptr {sums}")
        code.do(f"store {one} {a_squares}, ptr {squares}")
        with code.when(code.emit(f"fcmp one {one} {b[0]}, {literal(0, dtype)}")):
            all_of = merged(code, one, (a_count, a_sum, a_squares), (b[0], b[1], b[2]))
            for cell, value in zip((sums, squares), all_of, strict=True):
                code.do(f"store {one} {value}, ptr {cell}")
    code.do(f"ret {one} {code.emit(f'load {one}, ptr {squares}')}")
    return module.share(name, code.function(f"internal {one} @{name}(ptr %state)", "#3"))


# --- columns side by side
def push_moment_rows(
    code: Code, reduction: Reduction, tile: int, new: tuple[str, str], squares: str
) -> None:
    """Add the sums and squared deviations of a full chunk to the counter."""
    dtype, one = reduction.dtype, register_type(reduction.dtype)
    scale = code.alloca(one)
    chunks = code.emit(f"lshr i64 %seen, {CHUNK_BITS}")
    code.do(f"store {one} {literal(1 / (2 * CHUNK), dtype)}, ptr {scale}")
    with carried(code, chunks) as entry:
        olds = [stack_row(code, reduction, base, entry.place, tile) for base in ("%state", squares)]
        factor = code.emit(f"load {one}, ptr {scale}")
        with code.loop("%width", parallel=True, brief=True) as j:
            cells = [code.at(row, j, dtype) for row in new]
            older = [code.load(code.at(old, j, dtype), dtype, parallel=True) for old in olds]
            newer = [code.load(cell, dtype, parallel=True) for cell in cells]
            value = merged_equal(code, one, (older[0], newer[0]), older[1], newer[1], factor)
            code.store(reduction.combined(code, older[0], newer[0]), cells[0], dtype, parallel=True)
            code.store(value, cells[1], dtype, parallel=True)
        half = code.emit(f"fmul {one} {factor}, {literal(0.5, dtype)}")
        code.do(f"store {one} {half}, ptr {scale}")
    for row, base in zip(new, ("%state", squares), strict=True):
        target = stack_row(code, reduction, base, entry.place, tile)
        with code.loop("%width", parallel=True, brief=True) as j:
            value = code.load(code.at(row, j, dtype), dtype, parallel=True)
            code.store(value, code.at(target, j, dtype), dtype, parallel=True)


def total_moment_rows(code: Code, reduction: Reduction, tile: int) -> None:
    """Write the function that leaves the squared deviations of all rows in row 0 of the state."""
    dtype, one = reduction.dtype, register_type(reduction.dtype)
    chunks = code.emit(f"lshr i64 %seen, {CHUNK_BITS}")
    rest = code.emit(f"and i64 %seen, {CHUNK - 1}")
    levels = code.at("%state", str(LEVELS * tile), dtype)
    sums = code.at("%state", str(2 * LEVELS * tile), dtype)
    squares = code.at(sums, str(tile), dtype)
    number = code.alloca("i64")
    code.do(f"store i64 {rest}, ptr {number}")
    with stacked(code, chunks) as (level, elements):
        before = code.emit(f"load i64, ptr {number}")
        none = code.emit(f"icmp eq i64 {before}, 0")
        # a count that is not 0 keeps the division by it quiet where there is nothing to merge
        counted = code.emit(f"select i1 {none}, i64 1, i64 {before}")
        a_count = code.emit(f"uitofp i64 {elements} to {one}")
        b_count = code.emit(f"uitofp i64 {counted} to {one}")
        rows = [stack_row(code, reduction, base, level, tile) for base in ("%state", levels)]
        with code.loop("%width", parallel=True, brief=True) as j:
            cells = [code.at(base, j, dtype) for base in (sums, squares)]
            a = [code.load(code.at(row, j, dtype), dtype, parallel=True) for row in rows]
            b = [code.load(cell, dtype, parallel=True) for cell in cells]
            zero = literal(0, dtype)
            b = [code.emit(f"select i1 {none}, {one} {zero}, {one} {v}") for v in b]
            both = merged(code, one, (a_count, a[0], a[1]), (b_count, b[0], b[1]))
            for cell, alone, value in zip(cells, a, both, strict=True):
                value = code.emit(f"select i1 {none}, {one} {alone}, {one} {value}")
                code.store(value, cell, dtype, parallel=True)
        code.do(f"store i64 {code.emit(f'add i64 {before}, {elements}')}, ptr {number}")
    empty = code.emit("icmp eq i64 %seen, 0")
    with code.loop("%width", parallel=True, brief=True) as j:
        value = code.load(code.at(squares, j, dtype), dtype, parallel=True)
        value = code.emit(f"select i1 {empty}, {one} {literal(0, dtype)}, {one} {value}")
        code.store(value, code.at("%state", j, dtype), dtype, parallel=True)
