"""Reductions of a run in memory that give the same bits in any order, and the places of best
values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._src.codegen.llvm.combine import across, identity, repeat
from alight._src.codegen.llvm.expressions import literal, register_type
from alight._src.codegen.llvm.reading import part_of_chunk, shifted
from alight._src.ir.body import FLOATS, width_of
from alight._src.ir.table_reduction import LANES

if TYPE_CHECKING:
    from alight._src.codegen.llvm.combine import Reduction
    from alight._src.codegen.llvm.expressions import Code
    from alight._src.codegen.llvm.reading import Reader

# Elements between two looks at what the reduction has come to (early exit, the counter): a page of
# float64, so that a look costs little beside reading them.
BLOCK = 512


def exact_run(code: Code, reduction: Reduction, read: Reader) -> None:
    """Write the function that reduces a run where any order gives the same bits."""
    before = code.load("%state", reduction.dtype)
    value = _extreme(code, reduction, read, "0", "%n")
    code.store(reduction.combined(code, before, value), "%state", reduction.dtype)


def _extreme(code: Code, reduction: Reduction, read: Reader, first: str, end: str) -> str:
    """Return the reduction of the elements first to end in four vectors side by side; stop at the
    next block once it is decided."""
    # four: so many loads and reduces are under way at once, and each takes about four cycles
    ways = 4
    # two 512-bit registers a vector: wider ones for narrow elements
    lanes = max(LANES, 1024 // max(width_of(reduction.dtype), width_of(read.dtype)))
    pair = _Quick(code, reduction, lanes)
    step = ways * lanes
    span = code.emit(f"sub i64 {end}, {first}")
    whole = code.emit(f"and i64 {span}, {-step}")
    stop = reduction.stops()
    done = code.label("decided")
    with (
        code.when(code.emit(f"icmp sgt i64 {whole}, 0")),
        code.loop(whole, step=step) as i,
    ):
        start = code.emit(f"add i64 {first}, {i}")
        pair.take([read.vector(shifted(code, start, w * lanes), lanes) for w in range(ways)])
        if stop is not None:
            on = code.label("on")
            code.do(f"br i1 {pair.decided(stop)}, label %{done}, label %{on}")
            code.start(on)
    if stop is not None:
        code.do(f"br label %{done}")
        code.start(done)
    result = code.alloca(register_type(reduction.dtype))
    one = register_type(reduction.dtype)
    code.do(f"store {one} {pair.result()}, ptr {result}")
    left = code.emit(f"sub i64 {span}, {whole}")

    def take(value: str) -> None:
        reduced = code.emit(f"load {one}, ptr {result}")
        code.do(f"store {one} {reduction.combined(code, value, reduced)}, ptr {result}")

    with code.when(code.emit(f"icmp sgt i64 {left}, 0")):
        start = code.emit(f"add i64 {first}, {whole}")
        take(part_of_chunk(code, reduction, read.vector, read.some, start, left))
    return code.emit(f"load {one}, ptr {result}")


class _Quick:
    """Vectors that reduce side by side. For the least and greatest of floats, a comparison that
    drops NaNs and a mask that remembers them are quicker than the NaN-keeping operation."""

    def __init__(self, code: Code, reduction: Reduction, lanes: int) -> None:
        self.code = code
        self.reduction = reduction
        self.lanes = lanes
        self.type = register_type(reduction.dtype, lanes)
        self.drops = reduction.dtype in FLOATS and reduction.combine_name in ("maximum", "minimum")
        self.cells = [code.alloca(self.type) for _ in range(4)]
        neutral = literal(reduction.identity, reduction.dtype, lanes)
        for cell in self.cells:
            code.do(f"store {self.type} {neutral}, ptr {cell}")
        self.flags = f"<{lanes} x i1>"
        self.unordered = code.alloca(self.flags) if self.drops else ""
        if self.drops:
            code.do(f"store {self.flags} zeroinitializer, ptr {self.unordered}")

    def combined(self, value: str, before: str) -> str:
        code = self.code
        if not self.drops:
            return self.reduction.combined(code, value, before, self.lanes)
        order = "ogt" if self.reduction.combine_name == "maximum" else "olt"
        lanes = int(self.flags[1:].split()[0])
        better = code.compared(order, value, before, self.reduction.dtype, lanes)
        return code.emit(f"select {self.flags} {better}, {self.type} {value}, {self.type} {before}")

    def take(self, vectors: list[str]) -> None:
        code = self.code
        for cell, value in zip(self.cells, vectors, strict=True):
            before = code.emit(f"load {self.type}, ptr {cell}")
            code.do(f"store {self.type} {self.combined(value, before)}, ptr {cell}")
        if self.drops:
            flags = code.emit(f"load {self.flags}, ptr {self.unordered}")
            for a, b in (vectors[:2], vectors[2:]):
                more = code.emit(f"fcmp uno {self.type} {a}, {b}")
                flags = code.emit(f"or {self.flags} {flags}, {more}")
            code.do(f"store {self.flags} {flags}, ptr {self.unordered}")

    def reduced(self) -> str:
        a, b, c, d = (self.code.emit(f"load {self.type}, ptr {cell}") for cell in self.cells)
        return self.combined(self.combined(a, b), self.combined(c, d))

    def decided(self, stop: str) -> str:
        """Return whether some lane of a reduction of bools holds what nothing can change."""
        return any_lane(self.code, self.reduced(), self.lanes, stop == "false")

    def result(self) -> str:
        code, reduction = self.code, self.reduction
        value = across(code, reduction, self.reduced(), self.lanes, self.combined_some)
        if not self.drops:
            return value
        flags = code.emit(f"load {self.flags}, ptr {self.unordered}")
        some = any_lane(code, flags, self.lanes)
        one, nan = register_type(reduction.dtype), literal(float("nan"), reduction.dtype)
        return code.emit(f"select i1 {some}, {one} {nan}, {one} {value}")

    def combined_some(self, a: str, b: str, lanes: int) -> str:
        whole = self.type, self.flags
        self.type, self.flags = register_type(self.reduction.dtype, lanes), f"<{lanes} x i1>"
        if self.drops:
            value = self.combined(a, b)
        else:
            value = self.reduction.combined(self.code, a, b, lanes)
        self.type, self.flags = whole
        return value


def any_lane(code: Code, flags: str, lanes: int, negated: bool = False) -> str:
    """Return whether some lane of a mask is set; negated, whether some is not."""
    word = code.emit(f"bitcast <{lanes} x i1> {flags} to i{lanes}")
    return code.emit(f"icmp ne i{lanes} {word}, {-1 if negated else 0}")


# --- arguments: the best value block by block, its place in its block at the end
def argument_run(code: Code, reduction: Reduction, read: Reader) -> None:
    """Write the function that looks for the best value of a run and for its place."""
    seen = code.emit("load i64, ptr %state")
    index_at = code.offset("%state", "8")
    best_at = code.offset("%state", "16")
    found = code.alloca("i64")  # start of the best block of this run, -1: none
    code.do(f"store i64 -1, ptr {found}")
    block = BLOCK * max(1, 64 // width_of(read.dtype))  # a look costs as much for narrow ones
    with code.loop("%n", step=block) as start:
        end = code.emit(f"add i64 {start}, {block}")
        short = code.emit(f"icmp slt i64 %n, {end}")
        end = code.emit(f"select i1 {short}, i64 %n, i64 {end}")
        value = _extreme(code, reduction, read, start, end)
        best = code.load(best_at, reduction.dtype)
        (better,) = code.evaluate(reduction.better, [value, best])
        have = code.emit(f"load i64, ptr {index_at}")
        before = code.emit(f"load i64, ptr {found}")
        both = code.emit(f"and i64 {have}, {before}")
        none = code.emit(f"icmp eq i64 {both}, -1")
        with code.when(code.emit(f"select i1 {none}, i1 true, i1 {better}")):
            code.store(value, best_at, reduction.dtype)
            code.do(f"store i64 {start}, ptr {found}")
    start = code.emit(f"load i64, ptr {found}")
    with code.when(code.emit(f"icmp sge i64 {start}, 0")):
        best = code.load(best_at, reduction.dtype)
        place = code.alloca("i64")
        code.do(f"store i64 {start}, ptr {place}")
        _skip(code, reduction, read, best, place)
        wanted = _spread(code, reduction, best, LANES)
        with repeat(code) as proceed:
            index = code.emit(f"load i64, ptr {place}")
            after = code.emit(f"add i64 {index}, {LANES}")
            inside = code.emit(f"icmp sle i64 {after}, %n")
            looked, rest = code.label("looked"), code.label("rest")
            whole = code.label("whole")
            mask_cell = code.alloca(f"i{LANES}")
            code.do(f"br i1 {inside}, label %{whole}, label %{rest}")
            code.start(whole)
            _store_matches(code, reduction, read.vector(index), wanted, mask_cell)
            code.do(f"br label %{looked}")
            code.start(rest)
            left = code.emit(f"sub i64 %n, {index}")
            few = read.some(
                index, left, literal(identity("add", reduction.dtype), reduction.dtype, LANES)
            )
            _store_matches(code, reduction, few, wanted, mask_cell)
            code.do(f"br label %{looked}")
            code.start(looked)
            mask = code.emit(f"load i{LANES}, ptr {mask_cell}")
            wide = code.emit(f"zext i{LANES} {mask} to i64")
            code.module.share("llvm.cttz.i64", "declare i64 @llvm.cttz.i64(i64, i1)")
            zeros = code.emit(f"call i64 @llvm.cttz.i64(i64 {wide}, i1 false)")
            none = code.emit(f"icmp eq i{LANES} {mask}, 0")
            further = code.emit(f"select i1 {none}, i64 {LANES}, i64 {zeros}")
            code.do(f"store i64 {code.emit(f'add i64 {index}, {further}')}, ptr {place}")
            proceed(none)
        index = code.emit(f"add i64 {code.emit(f'load i64, ptr {place}')}, {seen}")
        code.do(f"store i64 {index}, ptr {index_at}")
    code.do(f"store i64 {code.emit(f'add i64 {seen}, %n')}, ptr %state")


# Elements that are looked through at once for the best value of a block: a few at a time, with a
# branch for each, took as long as finding it (rows of 761 float64: 167 us where NumPy took 103).
_LOOKED = 64


def _skip(code: Code, reduction: Reduction, read: Reader, best: str, place: str) -> None:
    """Move the place on over all that is not the value looked for, as far as that fills vectors."""
    wanted = _spread(code, reduction, best, _LOOKED)
    with repeat(code) as proceed:
        index = code.emit(f"load i64, ptr {place}")
        after = code.emit(f"add i64 {index}, {_LOOKED}")
        looked, over, here = (code.label(name) for name in ("whole", "over", "here"))
        on = code.alloca("i1")
        code.do(f"store i1 false, ptr {on}")
        inside = code.emit(f"icmp sle i64 {after}, %n")
        code.do(f"br i1 {inside}, label %{looked}, label %{over}")
        code.start(looked)
        same = _matches(code, reduction, read.vector(index, _LOOKED), wanted, _LOOKED)
        none = code.emit(f"xor i1 {any_lane(code, same, _LOOKED)}, true")
        code.do(f"store i1 {none}, ptr {on}")
        code.do(f"br i1 {none}, label %{here}, label %{over}")
        code.start(here)
        code.do(f"store i64 {after}, ptr {place}")
        code.do(f"br label %{over}")
        code.start(over)
        proceed(code.emit(f"load i1, ptr {on}"))


def _spread(code: Code, reduction: Reduction, value: str, count: int) -> str:
    """Return a vector of one value."""
    one, lanes = register_type(reduction.dtype), register_type(reduction.dtype, count)
    first = code.emit(f"insertelement {lanes} poison, {one} {value}, i32 0")
    return code.emit(
        f"shufflevector {lanes} {first}, {lanes} poison, <{count} x i32> zeroinitializer"
    )


def _store_matches(code: Code, reduction: Reduction, values: str, wanted: str, cell: str) -> None:
    """Store the mask of the lanes that are the value looked for."""
    flags = f"<{LANES} x i1>"
    same = _matches(code, reduction, values, wanted, LANES)
    word = code.emit(f"bitcast {flags} {same} to i{LANES}")
    code.do(f"store i{LANES} {word}, ptr {cell}")


def _matches(code: Code, reduction: Reduction, values: str, wanted: str, count: int) -> str:
    """Return the mask of the lanes that are the value looked for; a NaN is the same as another."""
    lanes, flags = register_type(reduction.dtype, count), f"<{count} x i1>"
    if reduction.dtype in FLOATS:
        same = code.emit(f"fcmp oeq {lanes} {values}, {wanted}")
        nan = code.emit(f"fcmp uno {lanes} {values}, {values}")
        looked_for = code.emit(f"fcmp uno {lanes} {wanted}, {wanted}")
        same = code.emit(f"or {flags} {same}, {code.emit(f'and {flags} {nan}, {looked_for}')}")
    else:
        same = code.emit(f"icmp eq {lanes} {values}, {wanted}")
    return same
