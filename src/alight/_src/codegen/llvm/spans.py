"""Functions that reduce a run of elements in memory into the state of a reduction.

Each takes ``(ptr data, i64 n, ptr state)`` and any number of calls continue one reduction; all runs
but the last are of a multiple of BLOCK elements. They read memory in explicit vectors of LANES, so
what they give does not depend on the width of the machine's registers.

States. *Sums* (reductions that round): ``{count of chunks, levels of the counter}``; the tree is
that of ``codegen.llvm.combine``. *Exact* reductions, where any order gives the same bits: one
value. *Arguments*: ``{best, its index or -1, elements seen}``. *Moments*: ``{count of chunks,
elements of the rest, the rest's sum and squared deviations, the first element, levels of (sum,
squared deviations)}``; -1 elements of the rest say that there is no first one yet. Sums are of the
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
    from alight._src.codegen.llvm.combine import Reduction
    from alight._src.codegen.llvm.expressions import Code
    from alight._src.ir.graph import Graph

_PAIR = 2 * CHUNK


class Span:
    """The state of one reduction on the stack of a kernel, and the calls that change it."""

    def __init__(self, code: Code, reduction: Reduction, direct: bool) -> None:
        self.code = code
        self.reduction = reduction
        self.dtype = reduction.source if direct else reduction.dtype
        self.direct = direct
        one = memory_type(reduction.dtype)
        if reduction.argument:
            self.state = code.alloca(f"{{ i64, i64, {one} }}")
        elif reduction.moments:
            self.state = code.alloca(f"{{ i64, i64, [3 x {one}], [{2 * LEVELS} x {one}] }}")
        elif reduction.exact:
            self.state = code.alloca(one)
        else:
            self.state = code.alloca(f"{{ i64, [{LEVELS} x {one}] }}")
        self.own = self.state

    def begin(self) -> None:
        """Set the state to that of no elements."""
        code, reduction = self.code, self.reduction
        if reduction.argument or reduction.moments:
            code.do(f"store i64 0, ptr {self.state}")
            code.do(f"store i64 -1, ptr {code.offset(self.state, '8')}")
        elif reduction.exact:
            code.store(literal(reduction.identity, reduction.dtype), self.state, reduction.dtype)
        else:
            code.do(f"store i64 0, ptr {self.state}")

    def measure_from(self, data: str) -> None:
        """Take the element at an address for the first, from which moments are measured."""
        code, reduction = self.code, self.reduction
        value = Reader(code, reduction, self.direct).made(code.load(data, self.dtype), 0)
        (value,) = code.evaluate(reduction.origin, [value])
        size = width_of(reduction.dtype) // 8
        code.store(value, code.offset(self.state, str(16 + 2 * size)), reduction.dtype)
        code.do(f"store i64 0, ptr {code.offset(self.state, '8')}")

    def take(self, data: str, n: str) -> None:
        """Reduce in a run of elements."""
        name = self._function()
        self.code.do(f"call void @{name}(ptr {data}, i64 {n}, ptr {self.state})")

    def take_made(self, graph: Graph, runs: Sequence[str], n: str) -> None:
        """Reduce in, of a sum, a run of elements that a graph makes of runs in memory on the
        way."""
        reduction, module = self.reduction, self.code.module
        name = f"tree.{reduction.stem}.joined.{reduction.node.operands[0]}"
        if name not in module.shared:
            code = type(self.code)(module)
            _sum(code, reduction, Joined(code, reduction, graph))
            code.do("ret void")
            given = ", ".join(f"ptr noalias readonly %data{i}" for i in range(len(runs)))
            signature = f"internal void @{name}({given}, i64 %n, ptr %state)"
            module.share(name, code.function(signature, "#3"))
        given = ", ".join(f"ptr {run}" for run in runs)
        self.code.do(f"call void @{name}({given}, i64 {n}, ptr {self.state})")

    def decided(self, stop: str) -> str:
        """Return whether nothing can change the reduction any more."""
        value = self.code.load(self.state, self.reduction.dtype)
        return self.code.emit(f"icmp eq i1 {value}, {stop}")

    def result(self, count: str) -> str:
        """Return the result, in its own dtype."""
        code, reduction = self.code, self.reduction
        if reduction.argument:
            index = code.emit(f"load i64, ptr {code.offset(self.state, '8')}")
            return code.cast(index, "int64", reduction.result)
        if reduction.moments:
            one = register_type(reduction.dtype)
            total = code.emit(
                f"call {one} @{moments_total(code.module, reduction)}(ptr {self.state})"
            )
            return reduction.finished(code, total, count)
        if reduction.exact:
            return reduction.finished(code, code.load(self.state, reduction.dtype), count)
        levels = code.offset(self.state, "8")
        chunks = code.emit(f"load i64, ptr {self.state}")
        several = code.emit(f"icmp ne i64 {chunks}, 1")
        with code.when(several):
            total = total_function(code.module, reduction)
            code.do(f"call void @{total}(ptr {levels}, i64 {chunks}, i64 1)")
        return reduction.finished(code, code.load(levels, reduction.dtype), count)

    def _function(self) -> str:
        reduction, module = self.reduction, self.code.module
        form = "direct" if self.direct else "made"
        if reduction.argument:
            make, kind = argument_run, "best"
        elif reduction.moments:
            make, kind = moments_run, "moments"
        elif reduction.exact:
            make, kind = exact_run, "exact"
        else:
            make, kind = _sum, "tree"
        body = reduction.element_key if self.direct else reduction.dtype
        name = f"{kind}.{reduction.stem}.{form}.{body}"
        if name not in module.shared:
            code = type(self.code)(module)
            make(code, reduction, Reader(code, reduction, self.direct))
            code.do("ret void")
            signature = f"internal void @{name}(ptr noalias readonly %data, i64 %n, ptr %state)"
            module.share(name, code.function(signature, "#3"))
        return name


# --- reductions that round: the tree
def _sum(code: Code, reduction: Reduction, read: Reader | Joined) -> None:
    chunks = code.emit("load i64, ptr %state")
    levels = code.offset("%state", "8")
    cell, value_cell = code.alloca("i64"), code.alloca(register_type(reduction.dtype))
    code.do(f"store i64 {chunks}, ptr {cell}")

    def chunk(start: str) -> str:
        return chunk_of(
            code, reduction, [read.vector_ahead(shifted(code, start, i)) for i in STARTS]
        )

    pairs = code.emit(f"lshr i64 %n, {_PAIR.bit_length() - 1}")
    whole = code.emit(f"and i64 %n, {-_PAIR}")
    with (
        code.when(code.emit(f"icmp sgt i64 {pairs}, 0")),
        code.loop(whole, step=_PAIR) as start,
    ):
        value = reduction.combined(code, chunk(start), chunk(shifted(code, start, CHUNK)))
        push(code, reduction, value, (cell, value_cell, levels), 1)
    rest = code.emit(f"and i64 %n, {CHUNK}")
    with code.when(code.emit(f"icmp ne i64 {rest}, 0")):
        push(code, reduction, chunk(whole), (cell, value_cell, levels), 0)
    rest = code.emit(f"and i64 %n, {CHUNK - 1}")
    with code.when(code.emit(f"icmp ne i64 {rest}, 0")):
        start = code.emit(f"and i64 %n, {-CHUNK}")
        value = part_of_chunk(code, reduction, read.vector, read.some, start, rest)
        push(code, reduction, value, (cell, value_cell, levels), 0)
    code.do(f"store i64 {code.emit(f'load i64, ptr {cell}')}, ptr %state")


def push(
    code: Code, reduction: Reduction, value: str, where: tuple[str, str, str], level: int | str
) -> None:
    """Add a reduction of 2**level chunks to the counter."""
    cell, kept, levels = where
    one = register_type(reduction.dtype)
    chunks = code.emit(f"load i64, ptr {cell}")
    code.do(f"store {one} {value}, ptr {kept}")
    with carried(code, chunks, level) as entry:
        older = code.load(code.at(levels, entry.place, reduction.dtype), reduction.dtype)
        newer = code.emit(f"load {one}, ptr {kept}")
        code.do(f"store {one} {reduction.combined(code, older, newer)}, ptr {kept}")
    value = code.emit(f"load {one}, ptr {kept}")
    code.store(value, code.at(levels, entry.place, reduction.dtype), reduction.dtype)
    more = code.emit(f"shl i64 1, {level}")
    code.do(f"store i64 {code.emit(f'add i64 {chunks}, {more}')}, ptr {cell}")
