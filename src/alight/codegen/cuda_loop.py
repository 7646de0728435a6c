"""CUDA C of loop groups: elementwise work, read and written in packs where everything is aligned.

A thread finds its element by dividing its number by the sizes of the nest's axes, the innermost
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

from alight.codegen.cuda_dialect import CUDA
from alight.codegen.cuda_kernel import PACK, Step, around
from alight.codegen.source import ENTRY, Grid, Statements, checked, values
from alight.device import Unsupported

if TYPE_CHECKING:
    from alight.codegen.loops import Nest
    from alight.ir.group import Group

PACKED = frozenset("bc")  # how operands may move along the inner axis where it goes in packs


PLAIN = Grid()


def cuda_loop(group: Group, shape: Nest, grid: Grid = PLAIN, entry: str = ENTRY) -> str:
    """Return the CUDA C of a loop group: ``entry(m0, m1, …, n, d1, …, s0_0, s0_1, …)`` with a
    pointer for each input and output, the number of elements, the sizes of the axes but the first,
    and the steps of each operand along each axis in elements, all of the grid's index type.

    With ``elements`` > 1 the innermost axis is read and written in packs of so many: every operand
    moves by 0 or 1 along it, and packs are aligned to their size up to 16 bytes (``packs`` tells).
    """
    dtypes = checked(group)
    count, rank, size = len(group.graph.inputs), len(shape.dims), grid.elements
    if size > 1 and set(shape.classes) - PACKED:
        raise Unsupported("packs of elements need operands without steps along the inner axis")
    index = "int" if grid.index_bits == 32 else "long long"
    memory = [CUDA.memory.get(dtype, CUDA.type_of(dtype)) for dtype in dtypes]
    parameters = [
        f"{'const ' if place < count else ''}{word}* m{place}" for place, word in enumerate(memory)
    ]
    parameters.append(f"const {index} n")
    parameters += [f"const {index} d{axis}" for axis in range(1, rank)]
    parameters += [
        f"const {index} s{place}_{axis}" for place in range(len(dtypes)) for axis in range(rank)
    ]
    outside: dict[str, str] = {}
    element = _element(group, dtypes, memory, f"{entry}_element", outside)
    # what is made of packs needs no branch for an element: the few that are not usual come again
    usual = ""
    if size > 1:
        usual = _element(group, dtypes, memory, f"{entry}_usual", outside, True)
        if "seldom" not in usual.partition("{")[2]:
            usual = ""
    element = "\n".join((*outside.values(), element, usual))
    code = Statements(CUDA)
    first = "blockIdx.x" if index == "int" else "(long long)blockIdx.x"
    code.add(f"const {index} apart = {first.replace('blockIdx', 'gridDim')} * {grid.block};")
    code.add(f"const {index} start = {first} * {grid.block} + threadIdx.x;")
    vector = shape.vector_axis

    @contextmanager
    def along(limit: str, step: int, begin: str) -> Iterator[None]:
        with code.block(f"for ({index} e = {begin}; e < {limit}; e += apart)"):
            indices = [f"e * {step}" if step > 1 else "e"]
            if rank > 1:
                code.add(f"{index} rest = e;")
                for axis in range(rank - 1, 0, -1):
                    inner = f"(d{axis} / {step})" if axis == vector and step > 1 else f"d{axis}"
                    scale = f" * {step}" if axis == vector and step > 1 else ""
                    code.add(f"const {index} i{axis} = rest % {inner}{scale};")
                    code.add(f"rest /= {inner};")
                indices = ["rest", *(f"i{axis}" for axis in range(1, rank))]
            for place, word in enumerate(memory):
                terms = []
                for axis, i in enumerate(indices):
                    kind = shape.classes[place] if axis == vector else "s"
                    if kind != "b":
                        terms.append(i if kind == "c" else f"{i} * s{place}_{axis}")
                const = "const " if place < count else ""
                code.add(f"{const}{word}* q{place} = m{place} + ({' + '.join(terms) or '0'});")
            yield

    plain = ", ".join(
        [f"*q{place}" for place in range(count)]
        + [f"*q{place}" for place in range(count, len(dtypes))]
    )
    tail = "start"
    if size > 1:
        with along(f"n / {size}", size, "start"):
            for place, word in enumerate(memory[:count]):
                if shape.classes[place] == "c":
                    code.add(
                        f"const Pack<{word}, {size}> k{place} = "
                        f"*(const Pack<{word}, {size}>*)q{place};"
                    )
                else:
                    code.add(f"const {word} k{place} = *q{place};")
            for place, word in enumerate(memory[count:], count):
                code.add(f"Pack<{word}, {size}> k{place};")
            given = ", ".join(
                f"k{place}.v[j]" if place >= count or shape.classes[place] == "c" else f"k{place}"
                for place in range(len(dtypes))
            )
            if usual:
                code.add("bool seldom = false;")
                given = f"{given}, seldom"
            code.add("#pragma unroll")
            made = "usual" if usual else "element"
            code.add(f"for (int j = 0; j < {size}; ++j) {entry}_{made}({given});")
            if usual:
                each = ", ".join(
                    f"q{place}[j]" if shape.classes[place] == "c" else f"*q{place}"
                    for place in range(len(dtypes))
                )
                with code.block("if (seldom)"):
                    code.add("#pragma unroll 1")
                    code.add(f"for (int j = 0; j < {size}; ++j) {entry}_element({each});")
                    code.add("continue;")
            for place, word in enumerate(memory[count:], count):
                code.add(f"*(Pack<{word}, {size}>*)q{place} = k{place};")
        tail = f"n / {size} * {size} + start"  # of several axes the inner one has whole packs
    with along("n", 1, tail):
        code.add(f"{entry}_element({plain});")
    body = "\n".join(code.lines)
    pack = PACK if size > 1 else ""
    return f"""{pack}{CUDA.functions(element)}
{element}
extern "C" __global__ void __launch_bounds__({grid.block}) {entry}(
    {", ".join(parameters)}) {{
{body}
}}
"""


def _element(
    group: Group,
    dtypes: Sequence[str],
    memory: Sequence[str],
    name: str,
    outside: dict[str, str],
    usual: bool = False,
) -> str:
    """Return the function that makes the outputs of one element from its inputs; of a usual one it
    says whether the element is not."""
    count = len(group.graph.inputs)
    code = Statements(CUDA, outside)
    code.seldom = "seldom" if usual else ""
    loaded = [
        code.name(f"x{place} != 0", dtype) if dtype == "bool" else f"x{place}"
        for place, dtype in enumerate(dtypes[:count])
    ]
    results = values(code, group, loaded)
    for place, result in enumerate(results, count):
        code.add(f"x{place} = {result};")
    parameters = [
        f"{'const ' if place < count else ''}{word}{'' if place < count else '&'} x{place}"
        for place, word in enumerate(memory)
    ]
    if usual:
        parameters.append("bool& seldom")
    head = f"static __device__ __forceinline__ void {name}({', '.join(parameters)})"
    return f"{head} {{\n{chr(10).join(code.lines)}\n}}"


class Loop:
    """The text of one loop group with one schedule."""

    def __init__(self, group: Group, shape: Nest, grid: Grid) -> None:
        self.group = group
        self.shape = shape
        self.grid = grid

    def steps(self) -> tuple[Step, ...]:
        """Return the launches."""
        graph, shape, grid = self.group.graph, self.shape, self.grid
        layouts = (*graph.inputs, *(graph.layout(i) for i in graph.outputs))
        count = prod(shape.dims)
        moves = [
            stride // layout.itemsize
            for layout, strides in zip(layouts, shape.strides, strict=True)
            for stride in strides
        ]
        blocks = around(-(-count // (grid.block * grid.elements)))
        return (Step(ENTRY, blocks, grid.block, (count, *shape.dims[1:], *moves)),)

    def scratch(self) -> tuple[int, ...]:
        """Return nothing: no partial results lie in memory."""
        return ()

    def text(self) -> str:
        """Return the text of the kernel."""
        return cuda_loop(self.group, self.shape, self.grid)
