"""Functions that fold a run of elements in memory into the state of a fold.

Each takes ``(ptr data, i64 n, ptr state)`` and any number of calls continue one fold; all runs but
the last are of a multiple of BLOCK elements. They read memory in explicit vectors of LANES, so what
they give does not depend on the width of the machine's registers.

States. *Sums* (folds that round): ``{count of chunks, levels of the counter}``; the tree is that of
``codegen.llvm.combine``. *Exact* folds, where any order gives the same bits: one value.
*Arguments*: ``{best, its index or -1, elements seen}``. *Moments*: ``{count of chunks, elements of
the rest, the rest's sum and squared deviations, the first element, levels of (sum, squared
deviations)}``; -1 elements of the rest say that there is no first one yet. Sums are of the
distances from the first element: a mean far from 0 costs no accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from alight._src.codegen.llvm.combine import LEVELS, carried, chunk_of, total_function
from alight._src.codegen.llvm.expressions import literal, memory_type, register_type
from alight._src.codegen.llvm.minmax import argument_run, exact_run
from alight._src.codegen.llvm.moments import moments_run, moments_total
from alight._src.codegen.llvm.reading import STARTS, Joined, Reader, part_of_chunk, shifted
from alight._src.ir.body import width_of
from alight._src.ir.table_reduction import CHUNK

if TYPE_CHECKING:
    from alight._src.codegen.llvm.combine import Fold
    from alight._src.codegen.llvm.expressions import Code
    from alight._src.ir.graph import Graph

_PAIR = 2 * CHUNK


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
        value = Reader(code, fold, self.direct).made(code.load(data, self.dtype), 0)
        (value,) = code.evaluate(fold.origin, [value])
        size = width_of(fold.dtype) // 8
        code.store(value, code.offset(self.state, str(16 + 2 * size)), fold.dtype)
        code.do(f"store i64 0, ptr {code.offset(self.state, '8')}")

    def take(self, data: str, n: str) -> None:
        """Fold in a run of elements."""
        name = self._function()
        self.code.do(f"call void @{name}(ptr {data}, i64 {n}, ptr {self.state})")

    def take_made(self, graph: Graph, runs: Sequence[str], n: str) -> None:
        """Fold in, of a sum, a run of elements that a graph makes of runs in memory on the way."""
        fold, module = self.fold, self.code.module
        name = f"tree.{fold.stem}.joined.{fold.node.operands[0]}"
        if name not in module.shared:
            code = type(self.code)(module)
            _sum(code, fold, Joined(code, fold, graph))
            code.do("ret void")
            given = ", ".join(f"ptr noalias readonly %data{i}" for i in range(len(runs)))
            signature = f"internal void @{name}({given}, i64 %n, ptr %state)"
            module.share(name, code.function(signature, "#3"))
        given = ", ".join(f"ptr {run}" for run in runs)
        self.code.do(f"call void @{name}({given}, i64 {n}, ptr {self.state})")

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
            total = code.emit(f"call {one} @{moments_total(code.module, fold)}(ptr {self.state})")
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
            make, kind = argument_run, "best"
        elif fold.moments:
            make, kind = moments_run, "moments"
        elif fold.exact:
            make, kind = exact_run, "exact"
        else:
            make, kind = _sum, "tree"
        body = fold.element_key if self.direct else fold.dtype
        name = f"{kind}.{fold.stem}.{form}.{body}"
        if name not in module.shared:
            code = type(self.code)(module)
            make(code, fold, Reader(code, fold, self.direct))
            code.do("ret void")
            signature = f"internal void @{name}(ptr noalias readonly %data, i64 %n, ptr %state)"
            module.share(name, code.function(signature, "#3"))
        return name


# --- folds that round: the tree
def _sum(code: Code, fold: Fold, read: Reader | Joined) -> None:
    chunks = code.emit("load i64, ptr %state")
    levels = code.offset("%state", "8")
    cell, value_cell = code.alloca("i64"), code.alloca(register_type(fold.dtype))
    code.do(f"store i64 {chunks}, ptr {cell}")

    def chunk(start: str) -> str:
        return chunk_of(code, fold, [read.vector_ahead(shifted(code, start, i)) for i in STARTS])

    pairs = code.emit(f"lshr i64 %n, {_PAIR.bit_length() - 1}")
    whole = code.emit(f"and i64 %n, {-_PAIR}")
    with (
        code.when(code.emit(f"icmp sgt i64 {pairs}, 0")),
        code.loop(whole, step=_PAIR) as start,
    ):
        value = fold.combined(code, chunk(start), chunk(shifted(code, start, CHUNK)))
        push(code, fold, value, (cell, value_cell, levels), 1)
    rest = code.emit(f"and i64 %n, {CHUNK}")
    with code.when(code.emit(f"icmp ne i64 {rest}, 0")):
        push(code, fold, chunk(whole), (cell, value_cell, levels), 0)
    rest = code.emit(f"and i64 %n, {CHUNK - 1}")
    with code.when(code.emit(f"icmp ne i64 {rest}, 0")):
        start = code.emit(f"and i64 %n, {-CHUNK}")
        value = part_of_chunk(code, fold, read.vector, read.some, start, rest)
        push(code, fold, value, (cell, value_cell, levels), 0)
    code.do(f"store i64 {code.emit(f'load i64, ptr {cell}')}, ptr %state")


def push(code: Code, fold: Fold, value: str, where: tuple[str, str, str], level: int | str) -> None:
    """Add a fold of 2**level chunks to the counter."""
    cell, kept, levels = where
    one = register_type(fold.dtype)
    chunks = code.emit(f"load i64, ptr {cell}")
    code.do(f"store {one} {value}, ptr {kept}")
    with carried(code, chunks, level) as entry:
        older = code.load(code.at(levels, entry.place, fold.dtype), fold.dtype)
        newer = code.emit(f"load {one}, ptr {kept}")
        code.do(f"store {one} {fold.combined(code, older, newer)}, ptr {kept}")
    value = code.emit(f"load {one}, ptr {kept}")
    code.store(value, code.at(levels, entry.place, fold.dtype), fold.dtype)
    more = code.emit(f"shl i64 1, {level}")
    code.do(f"store i64 {code.emit(f'add i64 {chunks}, {more}')}, ptr {cell}")
