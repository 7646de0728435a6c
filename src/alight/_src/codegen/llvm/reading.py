"""Elements of a run in memory, as a reduction takes them in: vectors of LANES, and fewer at the
end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from alight._src.codegen.llvm.blocks import first_lanes, letter, literal, memory_type, register_type
from alight._src.codegen.llvm.combine import across
from alight._src.ir.body import kind_of, part_of, width_of
from alight._src.ir.op_table import trees
from alight._src.ir.table_reduction import CHUNK, LANES

if TYPE_CHECKING:
    from alight._src.codegen.llvm.combine import Reduction
    from alight._src.codegen.llvm.expressions import Code
    from alight._src.ir.graph import Graph


# The branches of the counter are hard to foresee, and while one is taken back nothing is read
# ahead. So memory is asked for before it is due, to lie in the first cache: a sum of 64 MiB took
# 0.88 of the time that it takes where the outer caches are asked to have it (float32; float64
# 0.82), products as long 0.90 and 0.82, sums of 4 MiB in the last cache 0.84, of 1 MiB 0.84. 4096
# bytes ahead took up to 1.04 of that, 2048 up to 1.15 (20 % quantiles, two threads; EPYC).
_AHEAD_BYTES = 6144
_LINE_BYTES = 64  # a cache line on nearly all processors


class Reader:
    """Elements of a run as they are reduced: as they are, or made of what lies in memory."""

    def __init__(self, code: Code, reduction: Reduction, direct: bool) -> None:
        self.code = code
        self.reduction = reduction
        self.direct = direct
        self.dtype = reduction.source if direct else reduction.dtype

    def vector(self, index: str, lanes: int = LANES) -> str:
        """Return a vector of elements."""
        pointer = self.code.at("%data", index, self.dtype)
        return self.made(self.code.load(pointer, self.dtype, lanes=lanes), lanes)

    def vector_ahead(self, index: str) -> str:
        """Return a vector of elements; the memory of one that is due later is asked for."""
        if self.direct:
            _ask_ahead(self.code, self.code.at("%data", index, self.dtype), self.dtype)
        return self.vector(index)

    def made(self, loaded: str, lanes: int) -> str:
        if not self.direct:
            return loaded
        (value,) = self.code.evaluate(self.reduction.element, [loaded], lanes)
        return value

    def one(self, index: str) -> str:
        """Return one element."""
        return self.made(self.code.load(self.code.at("%data", index, self.dtype), self.dtype), 0)

    def some(self, index: str, count: str, neutral: str) -> str:
        """Return a vector whose first ``count`` lanes are elements, and the others neutral."""
        code = self.code
        mask = first_lanes(code, count, LANES)
        pointer = code.at("%data", index, self.dtype)
        if kind_of(self.dtype) == "c":
            both = code.emit(f"shl i64 {count}, 1")
            mask_of_parts = first_lanes(code, both, 2 * LANES)
            part = part_of(self.dtype)
            loaded = _first(code, pointer, part, mask_of_parts, "zeroinitializer", 2 * LANES)
            value = code.apart(loaded, self.dtype, LANES)
        else:
            value = _first(code, pointer, self.dtype, mask, "zeroinitializer", LANES)
            value = code.truth(value, LANES) if self.dtype == "bool" else value
        value = self.made(value, LANES)
        return code.chosen(mask, value, neutral, self.reduction.dtype, LANES)


class Joined:
    """Elements that a few nodes make of several runs in memory, ``%data0`` and so on, one for each
    input of their graph; its one output is what is reduced."""

    def __init__(self, code: Code, reduction: Reduction, graph: Graph) -> None:
        self.code = code
        self.reduction = reduction
        self.graph = graph
        self.dtypes = [layout.dtype.name for layout in graph.inputs]

    def vector(self, index: str) -> str:
        """Return a vector of elements."""
        loaded = [
            self.code.load(pointer, dtype, lanes=LANES)
            for pointer, dtype in zip(self._pointers(index), self.dtypes, strict=True)
        ]
        return self._made(loaded)

    def vector_ahead(self, index: str) -> str:
        """Return a vector of elements; the memory of one that is due later is asked for."""
        for pointer, dtype in zip(self._pointers(index), self.dtypes, strict=True):
            _ask_ahead(self.code, pointer, dtype)
        return self.vector(index)

    def some(self, index: str, count: str, neutral: str) -> str:
        """Return a vector whose first ``count`` lanes are elements, at least one, and the others
        neutral."""
        code = self.code
        mask = first_lanes(code, count, LANES)
        loaded = []
        for pointer, dtype in zip(self._pointers(index), self.dtypes, strict=True):
            # the first stands again in the lanes left over: they raise no flag that it does not
            whole = memory_type(dtype, LANES)
            one = code.load(pointer, dtype)
            lane = code.emit(f"insertelement {whole} poison, {memory_type(dtype)} {one}, i64 0")
            every = code.emit(
                f"shufflevector {whole} {lane}, {whole} poison, <{LANES} x i32> zeroinitializer"
            )
            loaded.append(_first(code, pointer, dtype, mask, every, LANES))
        return code.chosen(mask, self._made(loaded), neutral, self.reduction.dtype, LANES)

    def _pointers(self, index: str) -> list[str]:
        return [self.code.at(f"%data{i}", index, dtype) for i, dtype in enumerate(self.dtypes)]

    def _made(self, values: Sequence[str]) -> str:
        known, graph = list(values), self.graph
        for node in graph.nodes:
            dtypes = [graph.layouts[i].dtype for i in node.operands]
            found = trees(node.op, dtypes, node.layout.dtype)
            assert found is not None  # gaps.check has seen to it
            tree = found[node.attr("output", 0)]
            known += self.code.evaluate((tree,), [known[i] for i in node.operands], LANES)
        return known[graph.outputs[0]]


def _ask_ahead(code: Code, pointer: str, dtype: str) -> None:
    """Ask for the memory of a vector that is due later than the one at an address."""
    fetch = code.module.share(
        "llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    )
    for line in range(0, LANES * width_of(dtype) // 8, _LINE_BYTES):
        place = code.offset(pointer, str(_AHEAD_BYTES + line))
        code.do(f"call void @{fetch}(ptr {place}, i32 0, i32 3, i32 1)")


def _first(code: Code, pointer: str, dtype: str, mask: str, others: str, lanes: int) -> str:
    """Return the lanes of a vector in memory that a mask has, and others in place of the rest."""
    memory = memory_type(dtype, lanes)
    suffix = f"v{lanes}{letter(dtype)}.p0"
    name = code.module.share(
        f"llvm.masked.load.{suffix}",
        f"declare {memory} @llvm.masked.load.{suffix}(ptr, <{lanes} x i1>, {memory})",
    )
    return code.emit(
        f"call {memory} @{name}(ptr align 1 {pointer}, <{lanes} x i1> {mask}, {memory} {others})"
    )


def shifted(code: Code, index: str, by: int) -> str:
    """Return an index some elements on."""
    return code.emit(f"add i64 {index}, {by}") if by else index


STARTS = range(0, CHUNK, LANES)


def part_of_chunk(
    code: Code,
    reduction: Reduction,
    vector: Callable[[str], str],
    some: Callable[[str, str, str], str],
    start: str,
    rest: str,
) -> str:
    """Return the reduction of a chunk that is not full; ``vector(index)`` gives LANES of its
    elements, ``some(index, count, neutral)`` fewer."""
    lanes = register_type(reduction.dtype, LANES)
    neutral = literal(reduction.identity, reduction.dtype, LANES)
    cell = code.alloca(lanes)
    code.do(f"store {lanes} {neutral}, ptr {cell}")

    def take(value: str) -> None:
        before = code.emit(f"load {lanes}, ptr {cell}")
        code.do(f"store {lanes} {reduction.combined(code, value, before, LANES)}, ptr {cell}")

    full = code.emit(f"and i64 {rest}, {-LANES}")
    with (
        code.when(code.emit(f"icmp ne i64 {full}, 0")),
        code.loop(full, step=LANES) as i,
    ):
        take(vector(code.emit(f"add i64 {start}, {i}")))
    left = code.emit(f"and i64 {rest}, {LANES - 1}")
    with code.when(code.emit(f"icmp ne i64 {left}, 0")):
        take(some(code.emit(f"add i64 {start}, {full}"), left, neutral))
    return across(code, reduction, code.emit(f"load {lanes}, ptr {cell}"))
