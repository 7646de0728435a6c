"""What all CUDA kernels share: parameters, places of operands, how a program of kernels is run.

Every kernel is called as ``entry(m0, m1, …, w0, …, n0, n1, …)``: a pointer for each input and
output of the group, or the value of an input of one element that the grid has by value, a pointer
for each partial result between kernels, and numbers of the grid's index type: sizes, then the steps
of every operand along every axis, in elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from alight._src.base.records import dataclass
from alight._src.codegen.common.source import Grid, Statements, node_tree
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.codegen.cuda.reduction_steps import CudaReduction
from alight._src.ir.op_table import Kind

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest
    from alight._src.ir.group import Group

PACK = """
template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T v[N];
};
"""
# Of four elements side by side, those of a run.
FETCH = """
// what stands in for elements past the end: few functions take long for it
template <typename T> __device__ __forceinline__ T padding() { return T{1}; }
// four elements side by side: WHOLE, or as far as the row goes; PACKED where they can be read
// together
template <bool PACKED, bool WHOLE, typename T, typename I> __device__ __forceinline__ void fetch(
    T (&x)[4], const T* p, I e, I end) {
  if (PACKED && (WHOLE || e + 4 <= end)) {
    const Pack<T, 4> pack = *(const Pack<T, 4>*)p;
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = pack.v[j];
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = WHOLE || e + j < end ? p[j] : padding<T>();
  }
}
template <bool PACKED, bool WHOLE, typename T, typename I> __device__ __forceinline__ void place(
    const T (&x)[4], T* p, I e, I end) {
  if (PACKED && (WHOLE || e + 4 <= end)) {
    Pack<T, 4> pack;
#pragma unroll
    for (int j = 0; j < 4; ++j) pack.v[j] = x[j];
    *(Pack<T, 4>*)p = pack;
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) if (WHOLE || e + j < end) p[j] = x[j];
  }
}
"""
VALUE_BYTES = 8  # at most, of what comes by value: a launch has as many for each of its numbers
# A launch has no more blocks along x than the hardware numbers; past them kernels go around again.
MOST_BLOCKS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Step:
    """One launch: the entry point, blocks and threads of each, and the numbers behind the
    pointers."""

    entry: str
    blocks: int
    threads: int
    numbers: tuple[int, ...]


def scalars(group: Group, shape: Nest) -> tuple[int, ...]:
    """Return the inputs that can come by value: of one element, which fits a parameter.

    A thread then has them from where the launch left its numbers, and no register and no read goes
    into them (H200, 2**24 elements of the equation of state, which has 42: 223 -> 136 µs in
    float64, with 128 registers and 47, and 96 -> 81 in float32)."""
    return tuple(
        [
            place
            for place, layout in enumerate(group.graph.inputs)
            if layout.size == 1 and layout.itemsize <= VALUE_BYTES and not any(shape.strides[place])
        ]
    )


def parameters(words: Sequence[str], inputs: int, by_value: Sequence[int]) -> list[str]:
    """Return the parameters of operands of these types: pointers, and what comes by value."""
    return [
        f"{'const ' if place < inputs else ''}{word}{'' if place in by_value else '*'} m{place}"
        for place, word in enumerate(words)
    ]


def begins(
    word: str, name: str, place: int, inputs: int, terms: Sequence[str], by_value: Sequence[int]
) -> str:
    """Return the declaration of where an operand's elements begin for a thread."""
    where = f"&m{place}" if place in by_value else f"m{place} + ({' + '.join(terms) or 0})"
    return f"{'const ' if place < inputs else ''}{word}* {name} = {where};"


class Places:
    """The operands of a group in memory, as a kernel finds them."""

    def __init__(self, group: Group, shape: Nest, grid: Grid) -> None:
        graph = group.graph
        self.group = group
        self.graph = graph
        self.shape = shape
        self.grid = grid
        self.first = len(graph.inputs)
        self.dtypes = [layout.dtype.name for layout in graph.operand_layouts]
        self.words = [CUDA.memory.get(d, CUDA.type_of(d)) for d in self.dtypes]
        self.itemsizes = [layout.itemsize for layout in graph.operand_layouts]
        self.index = "int" if grid.index_bits == 32 else "long long"
        self.rank = len(shape.dims)
        self.packed = grid.elements > 1

    def pointers(self) -> list[str]:
        """Return the parameters of the operands."""
        return parameters(self.words, self.first, self.grid.by_value)

    def numbers(self) -> tuple[list[str], tuple[int, ...]]:
        """Return the parameters of sizes and steps, and their values."""
        names = [f"d{axis}" for axis in range(self.rank)]
        values = list(self.shape.dims)
        for place, (strides, size) in enumerate(
            zip(self.shape.strides, self.itemsizes, strict=True)
        ):
            for axis, stride in enumerate(strides):
                names.append(f"s{place}_{axis}")
                values.append(stride // size)
        return names, tuple(values)

    def declared(self, names: Sequence[str]) -> list[str]:
        """Return the parameters of numbers."""
        return [f"const {self.index} {name}" for name in names]

    def kept_indices(self, code: Statements, number: str) -> list[str]:
        """Return the indices of the kept axes for the number of a row."""
        kept = self.shape.kept
        if kept < 2:
            return [number] * kept
        code.add(f"{self.index} rest = {number};")
        for axis in range(kept - 1, 0, -1):
            code.add(f"const {self.index} i{axis} = rest % d{axis};")
            code.add(f"rest /= d{axis};")
        return ["rest", *(f"i{axis}" for axis in range(1, kept))]

    def rows(self, code: Statements, indices: Sequence[str]) -> None:
        """Declare q0, q1, …: where each operand's row begins."""
        for place, word in enumerate(self.words):
            terms = [f"(long long){i} * s{place}_{k}" for k, i in enumerate(indices)]
            if self.index == "int":
                terms = [f"{i} * s{place}_{k}" for k, i in enumerate(indices)]
            code.add(begins(word, f"q{place}", place, self.first, terms, self.grid.by_value))

    def along(self, code: Statements, element: str) -> list[str]:
        """Return for each operand how far an element of a row is from its beginning."""
        first, last = self.shape.kept, self.rank - 1
        indices = [element]
        if last > first:
            rest = f"r{code.count}"
            code.count += 1
            code.add(f"{self.index} {rest} = {element};")
            for axis in range(last, first, -1):
                code.add(f"const {self.index} {rest}_{axis} = {rest} % d{axis};")
                code.add(f"{rest} /= d{axis};")
            indices = [rest, *(f"{rest}_{axis}" for axis in range(first + 1, last + 1))]
        result = []
        for place in range(len(self.words)):
            terms = []
            for axis, i in enumerate(indices, first) if place not in self.grid.by_value else ():
                kind = "s"
                if axis == self.shape.vector_axis:
                    kind = self.shape.classes[place]
                if kind != "b":
                    terms.append(i if kind == "c" else f"{i} * s{place}_{axis}")
            result.append(" + ".join(terms) or "0")
        return result

    def loaded(self, code: Statements, place: int, text: str) -> str:
        """Return the value of what was read from memory."""
        dtype = self.dtypes[place]
        return code.name(f"{text} != 0", dtype) if dtype == "bool" else text

    def node(self, code: Statements, number: int, known: dict[int, str]) -> str:
        """Return the value of an elementwise node from those of its operands."""
        node = self.graph.made_by[number]
        assert node.op.kind is Kind.ELEMENTWISE
        return code.evaluate(node_tree(self.group, node), [known[i] for i in node.operands])


class KernelForm:
    """A group printed with one schedule."""

    def __init__(self, group: Group, shape: Nest, grid: Grid) -> None:
        self.group = group
        self.graph = group.graph
        self.shape = shape
        self.grid = grid
        self.places = Places(group, shape, grid)
        self.first = self.places.first
        self.reductions: dict[int, CudaReduction] = {}

    def parts(self) -> tuple[int, int]:
        """Return in how many parts what is reduced is cut, and how large each is."""
        return 1, 1

    def scratch(self) -> tuple[int, ...]:
        """Return the bytes of each state that parts leave."""
        if not self.grid.cut:
            return ()
        count = row_count(self.shape) * self.parts()[0]
        return tuple(count * reduction.state_bytes for reduction in self.reductions.values())


def power(n: int) -> int:
    """Return the least power of two that is not less."""
    return 1 << max(n - 1, 0).bit_length()


def around(count: int) -> int:
    """Return how many blocks a launch has that needs so many."""
    return max(1, min(count, MOST_BLOCKS))


def reduction_length(shape: Nest) -> int:
    """Return how many elements a row has."""
    return prod(shape.dims[shape.kept :])


def row_count(shape: Nest) -> int:
    """Return how many rows there are."""
    return prod(shape.dims[: shape.kept])


def whole_text(outside: dict[str, str], header: str, body: str) -> str:
    """Return a text with the shared functions that it calls before it."""
    apart = "\n".join(outside.values())
    return f"{CUDA.functions(apart + body)}\n{header}\n{apart}\n{body}\n"
