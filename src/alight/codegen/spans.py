"""Functions that fold a run of elements in memory into the state of a fold.

Each takes ``(ptr data, i64 n, ptr state)`` and any number of calls continue one fold; all runs but
the last are of a multiple of BLOCK elements. They read memory in explicit vectors of LANES, so what
they give does not depend on the width of the machine's registers.

States. *Sums* (folds that round): ``{count of chunks, levels of the counter}``; the tree is that of
``codegen.fold``. *Exact* folds, where any order gives the same bits: one value. *Arguments*:
``{best, its index or -1, elements seen}``. *Moments*: ``{count of chunks, elements of the rest, the
rest's sum and squared deviations, the first element, levels of (sum, squared deviations)}``; -1
elements of the rest say that there is no first one yet. Sums are of the distances from the first
element: a mean far from 0 costs no accuracy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight.codegen.columns import merged, merged_equal
from alight.codegen.emit import literal, memory_type, register_type
from alight.codegen.fold import (
    LEVELS,
    across,
    chunk_of,
    identity,
    population,
    repeat,
    stacked,
    total_function,
)
from alight.ir.body import FLOATS, kind_of, width_of
from alight.ir.table_reduction import CHUNK, LANES

if TYPE_CHECKING:
    from alight.codegen.emit import Code, Module
    from alight.codegen.fold import Fold

# Elements between two looks at what the fold has come to (early exit, the counter): a page of
# float64, so that a look costs little beside reading them.
BLOCK = 512
_PAIR = 2 * CHUNK
# The branches of the counter are hard to foresee, and while one is taken back nothing is read
# ahead. So memory is asked for before it is due, to lie in the outer caches: a sum of 64 MiB of
# float32 took 0.66 of the time (20 % quantiles, on one thread and on two; EPYC, busy neighbours),
# of float64 0.93; in the caches as before. Twice as far, or into the inner caches, gained less.
_AHEAD_BYTES = 4096
_LINE_BYTES = 64  # a cache line on nearly all processors


class Span:
    """The state of one fold on the stack of a kernel, and the calls that change it."""

    def __init__(self, code: Code, fold: Fold, direct: bool) -> None:
        self.code = code
        self.fold = fold
        self.dtype = fold.source if direct else fold.dtype
        self.direct = direct
        one = memory_type(fold.dtype)
        if fold.argument:
            self.state = code.alloca(f"{{ i64, i64, {one} }}")
        elif fold.moments:
            self.state = code.alloca(f"{{ i64, i64, [3 x {one}], [{2 * LEVELS} x {one}] }}")
        elif fold.exact:
            self.state = code.alloca(one)
        else:
            self.state = code.alloca(f"{{ i64, [{LEVELS} x {one}] }}")
        self.own = self.state

    def begin(self) -> None:
        """Set the state to that of no elements."""
        code, fold = self.code, self.fold
        if fold.argument or fold.moments:
            code.do(f"store i64 0, ptr {self.state}")
            code.do(f"store i64 -1, ptr {code.offset(self.state, '8')}")
        elif fold.exact:
            code.store(literal(fold.identity, fold.dtype), self.state, fold.dtype)
        else:
            code.do(f"store i64 0, ptr {self.state}")

    def measure_from(self, data: str) -> None:
        """Take the element at an address for the first, from which moments are measured."""
        code, fold = self.code, self.fold
        value = _Reader(code, fold, self.direct).made(code.load(data, self.dtype), 0)
        size = width_of(fold.dtype) // 8
        code.store(value, code.offset(self.state, str(16 + 2 * size)), fold.dtype)
        code.do(f"store i64 0, ptr {code.offset(self.state, '8')}")

    def take(self, data: str, n: str) -> None:
        """Fold in a run of elements."""
        name = self._function()
        self.code.do(f"call void @{name}(ptr {data}, i64 {n}, ptr {self.state})")

    def decided(self, stop: str) -> str:
        """Return whether nothing can change the fold any more."""
        value = self.code.load(self.state, self.fold.dtype)
        return self.code.emit(f"icmp eq i1 {value}, {stop}")

    def result(self, count: str) -> str:
        """Return the result, in its own dtype."""
        code, fold = self.code, self.fold
        if fold.argument:
            index = code.emit(f"load i64, ptr {code.offset(self.state, '8')}")
            return code.cast(index, "int64", fold.result)
        if fold.moments:
            one = register_type(fold.dtype)
            total = code.emit(f"call {one} @{_moments_total(code.module, fold)}(ptr {self.state})")
            return fold.finished(code, total, count)
        if fold.exact:
            return fold.finished(code, code.load(self.state, fold.dtype), count)
        levels = code.offset(self.state, "8")
        chunks = code.emit(f"load i64, ptr {self.state}")
        several = code.emit(f"icmp ne i64 {chunks}, 1")
        with code.when(several):
            total = total_function(code.module, fold)
            code.do(f"call void @{total}(ptr {levels}, i64 {chunks}, i64 1)")
        return fold.finished(code, code.load(levels, fold.dtype), count)

    def _function(self) -> str:
        fold, module = self.fold, self.code.module
        form = "direct" if self.direct else "made"
        if fold.argument:
            make, kind = _argument, "best"
        elif fold.moments:
            make, kind = _moments, "moments"
        elif fold.exact:
            make, kind = _exact, "exact"
        else:
            make, kind = _sum, "tree"
        body = fold.element_key if self.direct else fold.dtype
        name = f"{kind}.{fold.stem}.{form}.{body}"
        if name not in module.shared:
            code = type(self.code)(module)
            make(code, fold, _Reader(code, fold, self.direct))
            code.do("ret void")
            signature = f"internal void @{name}(ptr noalias readonly %data, i64 %n, ptr %state)"
            module.share(name, code.function(signature, "#3"))
        return name


class _Reader:
    """Elements of a run as they are folded: as they are, or made of what lies in memory."""

    def __init__(self, code: Code, fold: Fold, direct: bool) -> None:
        self.code = code
        self.fold = fold
        self.direct = direct
        self.dtype = fold.source if direct else fold.dtype

    def vector(self, index: str, lanes: int = LANES) -> str:
        """Return a vector of elements."""
        pointer = self.code.at("%data", index, self.dtype)
        return self.made(self.code.load(pointer, self.dtype, lanes=lanes), lanes)

    def vector_ahead(self, index: str) -> str:
        """Return a vector of elements; the memory of one that is due later is asked for."""
        if self.direct:
            code = self.code
            fetch = code.module.share(
                "llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
            )
            pointer = code.at("%data", index, self.dtype)
            for line in range(0, LANES * width_of(self.dtype) // 8, _LINE_BYTES):
                place = code.offset(pointer, str(_AHEAD_BYTES + line))
                code.do(f"call void @{fetch}(ptr {place}, i32 0, i32 1, i32 1)")
        return self.vector(index)

    def made(self, loaded: str, lanes: int) -> str:
        if not self.direct:
            return loaded
        (value,) = self.code.evaluate(self.fold.element, [loaded], lanes)
        return value

    def one(self, index: str) -> str:
        """Return one element."""
        return self.made(self.code.load(self.code.at("%data", index, self.dtype), self.dtype), 0)

    def some(self, index: str, count: str, neutral: str) -> str:
        """Return a vector whose first ``count`` lanes are elements, and the others neutral."""
        code = self.code
        memory = memory_type(self.dtype, LANES)
        mask = first_lanes(code, count)
        suffix = f"v{LANES}{_letter(self.dtype)}.p0"
        name = code.module.share(
            f"llvm.masked.load.{suffix}",
            f"declare {memory} @llvm.masked.load.{suffix}(ptr, i32, <{LANES} x i1>, {memory})",
        )
        pointer = code.at("%data", index, self.dtype)
        value = code.emit(
            f"call {memory} @{name}(ptr {pointer}, i32 1, <{LANES} x i1> {mask}, "
            f"{memory} zeroinitializer)"
        )
        if self.dtype == "bool":
            value = code.emit(f"icmp ne {memory} {value}, zeroinitializer")
        value = self.made(value, LANES)
        one = register_type(self.fold.dtype, LANES)
        return code.emit(f"select <{LANES} x i1> {mask}, {one} {value}, {one} {neutral}")


def first_lanes(code: Code, count: str) -> str:
    """Return the mask of the first lanes of a vector."""
    whole = f"<{LANES} x i32>"
    few = code.emit(f"trunc i64 {count} to i32")
    first = code.emit(f"insertelement {whole} poison, i32 {few}, i32 0")
    all_lanes = code.emit(f"shufflevector {whole} {first}, {whole} poison, {whole} zeroinitializer")
    steps = ", ".join(f"i32 {i}" for i in range(LANES))
    return code.emit(f"icmp slt {whole} <{steps}>, {all_lanes}")


def _letter(dtype: str) -> str:
    return f"{'f' if kind_of(dtype) == 'f' else 'i'}{8 if dtype == 'bool' else width_of(dtype)}"


def _shifted(code: Code, index: str, by: int) -> str:
    return code.emit(f"add i64 {index}, {by}") if by else index


# --- folds that round: the tree
def _sum(code: Code, fold: Fold, read: _Reader) -> None:
    chunks = code.emit("load i64, ptr %state")
    levels = code.offset("%state", "8")
    cell, value_cell = code.alloca("i64"), code.alloca(register_type(fold.dtype))
    code.do(f"store i64 {chunks}, ptr {cell}")

    def chunk(start: str) -> str:
        return chunk_of(code, fold, [read.vector_ahead(_shifted(code, start, i)) for i in _STARTS])

    pairs = code.emit(f"lshr i64 %n, {_PAIR.bit_length() - 1}")
    whole = code.emit(f"and i64 %n, {-_PAIR}")
    with (
        code.when(code.emit(f"icmp sgt i64 {pairs}, 0")),
        code.loop(whole, step=_PAIR) as start,
    ):
        value = fold.combined(code, chunk(start), chunk(_shifted(code, start, CHUNK)))
        push(code, fold, value, (cell, value_cell, levels), 1)
    rest = code.emit(f"and i64 %n, {CHUNK}")
    with code.when(code.emit(f"icmp ne i64 {rest}, 0")):
        push(code, fold, chunk(whole), (cell, value_cell, levels), 0)
    rest = code.emit(f"and i64 %n, {CHUNK - 1}")
    with code.when(code.emit(f"icmp ne i64 {rest}, 0")):
        start = code.emit(f"and i64 %n, {-CHUNK}")
        value = _part(code, fold, read.vector, read.some, start, rest)
        push(code, fold, value, (cell, value_cell, levels), 0)
    code.do(f"store i64 {code.emit(f'load i64, ptr {cell}')}, ptr %state")


_STARTS = range(0, CHUNK, LANES)


def _part(code: Code, fold: Fold, vector: object, some: object, start: str, rest: str) -> str:
    """Return the fold of a chunk that is not full."""
    assert callable(vector) and callable(some)
    lanes = register_type(fold.dtype, LANES)
    neutral = literal(fold.identity, fold.dtype, LANES)
    cell = code.alloca(lanes)
    code.do(f"store {lanes} {neutral}, ptr {cell}")

    def take(value: str) -> None:
        before = code.emit(f"load {lanes}, ptr {cell}")
        code.do(f"store {lanes} {fold.combined(code, value, before, LANES)}, ptr {cell}")

    full = code.emit(f"and i64 {rest}, {-LANES}")
    with (
        code.when(code.emit(f"icmp ne i64 {full}, 0")),
        code.loop(full, step=LANES) as i,
    ):
        take(vector(code.emit(f"add i64 {start}, {i}")))
    left = code.emit(f"and i64 {rest}, {LANES - 1}")
    with code.when(code.emit(f"icmp ne i64 {left}, 0")):
        take(some(code.emit(f"add i64 {start}, {full}"), left, neutral))
    return across(code, fold, code.emit(f"load {lanes}, ptr {cell}"))


def push(code: Code, fold: Fold, value: str, where: tuple[str, str, str], level: int | str) -> None:
    """Add a fold of 2**level chunks to the counter."""
    cell, kept, levels = where
    one = register_type(fold.dtype)
    chunks = code.emit(f"load i64, ptr {cell}")
    bits, top = code.alloca("i64"), code.alloca("i64")
    code.do(f"store i64 {code.emit(f'lshr i64 {chunks}, {level}')}, ptr {bits}")
    code.do(f"store i64 {population(code, chunks)}, ptr {top}")
    code.do(f"store {one} {value}, ptr {kept}")
    with repeat(code) as proceed:
        left = code.emit(f"load i64, ptr {bits}")
        proceed(code.emit(f"trunc i64 {left} to i1"))
        code.do(f"store i64 {code.emit(f'lshr i64 {left}, 1')}, ptr {bits}")
        place = code.emit(f"load i64, ptr {top}")
        place = code.emit(f"sub i64 {place}, 1")
        code.do(f"store i64 {place}, ptr {top}")
        older = code.load(code.at(levels, place, fold.dtype), fold.dtype)
        newer = code.emit(f"load {one}, ptr {kept}")
        code.do(f"store {one} {fold.combined(code, older, newer)}, ptr {kept}")
    place = code.emit(f"load i64, ptr {top}")
    value = code.emit(f"load {one}, ptr {kept}")
    code.store(value, code.at(levels, place, fold.dtype), fold.dtype)
    more = code.emit(f"shl i64 1, {level}")
    code.do(f"store i64 {code.emit(f'add i64 {chunks}, {more}')}, ptr {cell}")


# --- exact folds: any order
def _exact(code: Code, fold: Fold, read: _Reader) -> None:
    before = code.load("%state", fold.dtype)
    value = _extreme(code, fold, read, "0", "%n")
    code.store(fold.combined(code, before, value), "%state", fold.dtype)


def _extreme(code: Code, fold: Fold, read: _Reader, first: str, end: str) -> str:
    """Return the fold of the elements first to end in four vectors side by side; stop at the next
    block once it is decided."""
    # four: so many loads and folds are under way at once, and each takes about four cycles
    ways = 4
    # two 512-bit registers a vector: wider ones for narrow elements
    lanes = max(LANES, 1024 // max(width_of(fold.dtype), width_of(read.dtype)))
    pair = _Quick(code, fold, lanes)
    step = ways * lanes
    span = code.emit(f"sub i64 {end}, {first}")
    whole = code.emit(f"and i64 {span}, {-step}")
    stop = fold.stops()
    done = code.label("decided")
    with (
        code.when(code.emit(f"icmp sgt i64 {whole}, 0")),
        code.loop(whole, step=step) as i,
    ):
        start = code.emit(f"add i64 {first}, {i}")
        pair.take([read.vector(_shifted(code, start, w * lanes), lanes) for w in range(ways)])
        if stop is not None:
            on = code.label("on")
            code.do(f"br i1 {pair.decided(stop)}, label %{done}, label %{on}")
            code.start(on)
    if stop is not None:
        code.do(f"br label %{done}")
        code.start(done)
    result = code.alloca(register_type(fold.dtype))
    one = register_type(fold.dtype)
    code.do(f"store {one} {pair.result()}, ptr {result}")
    left = code.emit(f"sub i64 {span}, {whole}")

    def take(value: str) -> None:
        folded = code.emit(f"load {one}, ptr {result}")
        code.do(f"store {one} {fold.combined(code, value, folded)}, ptr {result}")

    with code.when(code.emit(f"icmp sgt i64 {left}, 0")):
        start = code.emit(f"add i64 {first}, {whole}")
        take(_part(code, fold, read.vector, read.some, start, left))
    return code.emit(f"load {one}, ptr {result}")


class _Quick:
    """Vectors that fold side by side. For the least and greatest of floats, a comparison that drops
    NaNs and a mask that remembers them are quicker than the NaN-keeping operation."""

    def __init__(self, code: Code, fold: Fold, lanes: int) -> None:
        self.code = code
        self.fold = fold
        self.lanes = lanes
        self.type = register_type(fold.dtype, lanes)
        self.drops = fold.dtype in FLOATS and fold.combine_name in ("maximum", "minimum")
        self.cells = [code.alloca(self.type) for _ in range(4)]
        neutral = literal(fold.identity, fold.dtype, lanes)
        for cell in self.cells:
            code.do(f"store {self.type} {neutral}, ptr {cell}")
        self.flags = f"<{lanes} x i1>"
        self.unordered = code.alloca(self.flags) if self.drops else ""
        if self.drops:
            code.do(f"store {self.flags} zeroinitializer, ptr {self.unordered}")

    def combined(self, value: str, before: str) -> str:
        code = self.code
        if not self.drops:
            return self.fold.combined(code, value, before, self.lanes)
        order = "ogt" if self.fold.combine_name == "maximum" else "olt"
        better = code.emit(f"fcmp {order} {self.type} {value}, {before}")
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

    def folded(self) -> str:
        a, b, c, d = (self.code.emit(f"load {self.type}, ptr {cell}") for cell in self.cells)
        return self.combined(self.combined(a, b), self.combined(c, d))

    def decided(self, stop: str) -> str:
        """Return whether some lane of a fold of bools holds what nothing can change."""
        return any_lane(self.code, self.folded(), self.lanes, stop == "false")

    def result(self) -> str:
        code, fold = self.code, self.fold
        value = across(code, fold, self.folded(), self.lanes, self.combined_some)
        if not self.drops:
            return value
        flags = code.emit(f"load {self.flags}, ptr {self.unordered}")
        some = any_lane(code, flags, self.lanes)
        one, nan = register_type(fold.dtype), literal(float("nan"), fold.dtype)
        return code.emit(f"select i1 {some}, {one} {nan}, {one} {value}")

    def combined_some(self, a: str, b: str, lanes: int) -> str:
        whole = self.type, self.flags
        self.type, self.flags = register_type(self.fold.dtype, lanes), f"<{lanes} x i1>"
        if self.drops:
            value = self.combined(a, b)
        else:
            value = self.fold.combined(self.code, a, b, lanes)
        self.type, self.flags = whole
        return value


def any_lane(code: Code, flags: str, lanes: int, negated: bool = False) -> str:
    """Return whether some lane of a mask is set; negated, whether some is not."""
    word = code.emit(f"bitcast <{lanes} x i1> {flags} to i{lanes}")
    return code.emit(f"icmp ne i{lanes} {word}, {-1 if negated else 0}")


# --- arguments: the best value block by block, its place in its block at the end
def _argument(code: Code, fold: Fold, read: _Reader) -> None:
    one = register_type(fold.dtype)
    seen = code.emit("load i64, ptr %state")
    index_at = code.offset("%state", "8")
    best_at = code.offset("%state", "16")
    found = code.alloca("i64")  # start of the best block of this run, -1: none
    code.do(f"store i64 -1, ptr {found}")
    with code.loop("%n", step=BLOCK) as start:
        end = code.emit(f"add i64 {start}, {BLOCK}")
        short = code.emit(f"icmp slt i64 %n, {end}")
        end = code.emit(f"select i1 {short}, i64 %n, i64 {end}")
        value = _extreme(code, fold, read, start, end)
        best = code.load(best_at, fold.dtype)
        (better,) = code.evaluate(fold.better, [value, best])
        have = code.emit(f"load i64, ptr {index_at}")
        before = code.emit(f"load i64, ptr {found}")
        both = code.emit(f"and i64 {have}, {before}")
        none = code.emit(f"icmp eq i64 {both}, -1")
        with code.when(code.emit(f"select i1 {none}, i1 true, i1 {better}")):
            code.store(value, best_at, fold.dtype)
            code.do(f"store i64 {start}, ptr {found}")
    start = code.emit(f"load i64, ptr {found}")
    with code.when(code.emit(f"icmp sge i64 {start}, 0")):
        best = code.load(best_at, fold.dtype)
        place = code.alloca("i64")
        code.do(f"store i64 {start}, ptr {place}")
        lanes = register_type(fold.dtype, LANES)
        first = code.emit(f"insertelement {lanes} poison, {one} {best}, i32 0")
        wanted = code.emit(
            f"shufflevector {lanes} {first}, {lanes} poison, <{LANES} x i32> zeroinitializer"
        )
        with repeat(code) as proceed:
            index = code.emit(f"load i64, ptr {place}")
            after = code.emit(f"add i64 {index}, {LANES}")
            inside = code.emit(f"icmp sle i64 {after}, %n")
            looked, rest = code.label("looked"), code.label("rest")
            whole = code.label("whole")
            mask_cell = code.alloca(f"i{LANES}")
            code.do(f"br i1 {inside}, label %{whole}, label %{rest}")
            code.start(whole)
            _store_matches(code, fold, read.vector(index), wanted, mask_cell)
            code.do(f"br label %{looked}")
            code.start(rest)
            left = code.emit(f"sub i64 %n, {index}")
            few = read.some(index, left, literal(identity("add", fold.dtype), fold.dtype, LANES))
            _store_matches(code, fold, few, wanted, mask_cell)
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


def _store_matches(code: Code, fold: Fold, values: str, wanted: str, cell: str) -> None:
    """Store the mask of the lanes that are the value looked for; a NaN is the same as another."""
    lanes = register_type(fold.dtype, LANES)
    flags = f"<{LANES} x i1>"
    if fold.dtype in FLOATS:
        same = code.emit(f"fcmp oeq {lanes} {values}, {wanted}")
        nan = code.emit(f"fcmp uno {lanes} {values}, {values}")
        looked_for = code.emit(f"fcmp uno {lanes} {wanted}, {wanted}")
        same = code.emit(f"or {flags} {same}, {code.emit(f'and {flags} {nan}, {looked_for}')}")
    else:
        same = code.emit(f"icmp eq {lanes} {values}, {wanted}")
    word = code.emit(f"bitcast {flags} {same} to i{LANES}")
    code.do(f"store i{LANES} {word}, ptr {cell}")


# --- moments: sums and squared deviations of chunks, merged as Chan, Golub and LeVeque (1979) do
def _moments(code: Code, fold: Fold, read: _Reader) -> None:
    one, lanes = register_type(fold.dtype), register_type(fold.dtype, LANES)
    size = width_of(fold.dtype) // 8
    rest_at, levels = code.offset("%state", "16"), code.offset("%state", str(16 + 3 * size))
    cell = code.alloca("i64")
    code.do(f"store i64 {code.emit('load i64, ptr %state')}, ptr {cell}")
    whole = code.emit(f"and i64 %n, {-CHUNK}")
    pivot_at = code.at(rest_at, "2", fold.dtype)
    rest_count_at = code.offset("%state", "8")
    none = code.emit(f"icmp eq i64 {code.emit(f'load i64, ptr {rest_count_at}')}, -1")
    with code.when(none):
        code.do(f"store i64 0, ptr {rest_count_at}")
        code.store(read.one("0"), pivot_at, fold.dtype)

    def deviation(value: str, mean: str) -> str:
        away = code.emit(f"fsub {lanes} {value}, {mean}")
        return code.emit(f"fmul {lanes} {away}, {away}")

    def spread(value: str) -> str:
        first = code.emit(f"insertelement {lanes} poison, {one} {value}, i32 0")
        return code.emit(
            f"shufflevector {lanes} {first}, {lanes} poison, <{LANES} x i32> zeroinitializer"
        )

    pivot = spread(code.load(pivot_at, fold.dtype))

    def vector(index: str) -> str:
        return code.emit(f"fsub {lanes} {read.vector(index)}, {pivot}")

    def few(index: str, count: str, neutral: str) -> str:
        away = code.emit(f"fsub {lanes} {read.some(index, count, pivot)}, {pivot}")
        mask = first_lanes(code, count)
        return code.emit(f"select <{LANES} x i1> {mask}, {lanes} {away}, {lanes} {neutral}")

    with (
        code.when(code.emit(f"icmp sgt i64 {whole}, 0")),
        code.loop(whole, step=CHUNK) as start,
    ):
        vectors = [vector(_shifted(code, start, i)) for i in _STARTS]
        total = chunk_of(code, fold, vectors)
        mean = spread(code.emit(f"fmul {one} {total}, {literal(1 / CHUNK, fold.dtype)}"))
        squares = chunk_of(code, fold, [deviation(v, mean) for v in vectors])
        push_moments(code, fold, (total, squares), cell, levels)
    rest = code.emit(f"and i64 %n, {CHUNK - 1}")
    with code.when(code.emit(f"icmp ne i64 {rest}, 0")):
        total = _part(code, fold, vector, few, whole, rest)
        count = code.emit(f"uitofp i64 {rest} to {one}")
        mean = spread(code.emit(f"fdiv {one} {total}, {count}"))

        def near(index: str, count: str, neutral: str) -> str:
            # lanes beyond the end take the mean, which is no way from itself
            return deviation(few(index, count, mean), mean)

        squares = _part(code, fold, lambda i: deviation(vector(i), mean), near, whole, rest)
        code.store(total, rest_at, fold.dtype)
        code.store(squares, code.at(rest_at, "1", fold.dtype), fold.dtype)
        code.do(f"store i64 {rest}, ptr {code.offset('%state', '8')}")
    code.do(f"store i64 {code.emit(f'load i64, ptr {cell}')}, ptr %state")


def push_moments(
    code: Code, fold: Fold, new: tuple[str, str], cell: str, levels: str, level: str = "0"
) -> None:
    """Add the sum and squared deviations of 2**level chunks to the counter."""
    one, dtype = register_type(fold.dtype), fold.dtype
    chunks = code.emit(f"load i64, ptr {cell}")
    bits, top = code.alloca("i64"), code.alloca("i64")
    sums, squares, scale = (code.alloca(one) for _ in range(3))
    code.do(f"store i64 {code.emit(f'lshr i64 {chunks}, {level}')}, ptr {bits}")
    code.do(f"store i64 {population(code, chunks)}, ptr {top}")
    code.do(f"store {one} {new[0]}, ptr {sums}")
    code.do(f"store {one} {new[1]}, ptr {squares}")
    # two runs of n elements: the means are n apart, and weigh n/2
    more = code.emit(f"shl i64 1, {level}")
    weight = code.emit(f"uitofp i64 {more} to {one}")
    weight = code.emit(f"fdiv {one} {literal(1 / (2 * CHUNK), dtype)}, {weight}")
    code.do(f"store {one} {weight}, ptr {scale}")
    with repeat(code) as proceed:
        left = code.emit(f"load i64, ptr {bits}")
        proceed(code.emit(f"trunc i64 {left} to i1"))
        code.do(f"store i64 {code.emit(f'lshr i64 {left}, 1')}, ptr {bits}")
        place = code.emit(f"load i64, ptr {top}")
        place = code.emit(f"sub i64 {place}, 1")
        code.do(f"store i64 {place}, ptr {top}")
        at = code.emit(f"shl i64 {place}, 1")
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
    at = code.emit(f"shl i64 {code.emit(f'load i64, ptr {top}')}, 1")
    code.store(code.emit(f"load {one}, ptr {sums}"), code.at(levels, at, dtype), dtype)
    above = code.emit(f"or i64 {at}, 1")
    code.store(code.emit(f"load {one}, ptr {squares}"), code.at(levels, above, dtype), dtype)
    code.do(f"store i64 {code.emit(f'add i64 {chunks}, {more}')}, ptr {cell}")


def _moments_total(module: Module, fold: Fold) -> str:
    """Return the function that merges all of a state of moments: ``(ptr state)``; it returns the
    squared deviations from the mean of all."""
    from alight.codegen.emit import Code

    name = f"spread.{fold.stem}"
    if name in module.shared:
        return name
    code = Code(module)
    one, dtype = register_type(fold.dtype), fold.dtype
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
