"""CUDA C of loop groups: elementwise work, read and written in packs where everything is aligned.

A thread finds its element by dividing its number by the sizes of the nest's axes, the innermost
first; where it has several rows of a tile, it does so once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from alight._src.codegen.common.source import ENTRY, Grid, Statements, checked, values
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.codegen.cuda.kernel_program import (
    PACK,
    KernelForm,
    Step,
    around,
    begins,
    parameters,
)
from alight.device import Unsupported

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest
    from alight._src.ir.group import Group

PACKED = frozenset("bc")  # how operands may move along the inner axis where it goes in packs


PLAIN = Grid()


def cuda_loop(group: Group, shape: Nest, grid: Grid = PLAIN) -> str:
    """Return the CUDA C of a loop group: ``entry(m0, m1, …, n, d1, …, s0_0, s0_1, …)`` with a
    pointer for each input and output, or the value of what comes by value, the number of
    elements, the sizes of the axes but the first, and the steps of each operand along each axis in
    elements, all of the grid's index type.

    With ``elements`` > 1 the innermost axis is read and written in packs of so many: every operand
    moves by 0 or 1 along it, and packs are aligned to their size up to 16 bytes (``packs`` tells).
    With a most of ``blocks`` one element is a pack, too. With ``turns`` > 1 a thread has one
    element of each of so many rows.
    """
    dtypes = checked(group)
    count, rank, size = len(group.graph.inputs), len(shape.dims), grid.elements
    packed = size > 1 or grid.blocks > 0
    if size > 1 and set(shape.classes) - PACKED:
        raise Unsupported("packs of elements need operands without steps along the inner axis")
    index = "int" if grid.index_bits == 32 else "long long"
    memory = [CUDA.memory.get(dtype, CUDA.type_of(dtype)) for dtype in dtypes]
    head = parameters(memory, count, grid.by_value)
    head.append(f"const {index} n")
    head += [f"const {index} d{axis}" for axis in range(1, rank)]
    head += [
        f"const {index} s{place}_{axis}" for place in range(len(dtypes)) for axis in range(rank)
    ]
    outside: dict[str, str] = {}
    element = element_function(group, dtypes, memory, f"{ENTRY}_element", outside)
    # what is made of packs needs no branch for an element: the few that are not usual come again
    usual = ""
    if packed:
        usual = element_function(group, dtypes, memory, f"{ENTRY}_usual", outside, True)
        if "seldom" not in usual.partition("{")[2]:
            usual = ""
    element = "\n".join((*outside.values(), element, usual))
    code = Statements(CUDA)
    first = "blockIdx.x" if index == "int" else "(long long)blockIdx.x"
    ahead = grid.ahead if packed else 1
    tile = grid.block * ahead
    if grid.turns > 1:
        _rows(code, grid, rank, memory, count, index)
        return _kernel(code, element, "", grid, head)
    code.add(f"const {index} apart = {first.replace('blockIdx', 'gridDim')} * {tile};")
    code.add(f"const {index} start = {first} * {tile} + threadIdx.x;")
    vector = shape.vector_axis

    def find(e: str, step: int, suffix: str = "") -> None:
        """Add where each operand has the elements of a number."""
        indices = [f"{e} * {step}" if step > 1 else e]
        if rank > 1:
            code.add(f"{index} rest{suffix} = {e};")
            for axis in range(rank - 1, 0, -1):
                inner = f"(d{axis} / {step})" if axis == vector and step > 1 else f"d{axis}"
                scale = f" * {step}" if axis == vector and step > 1 else ""
                code.add(f"const {index} i{axis}{suffix} = rest{suffix} % {inner}{scale};")
                code.add(f"rest{suffix} /= {inner};")
            indices = [f"rest{suffix}", *(f"i{axis}{suffix}" for axis in range(1, rank))]
        for place, word in enumerate(memory):
            terms = []
            for axis, i in enumerate(indices):
                kind = shape.classes[place] if axis == vector else "s"
                if kind != "b":
                    terms.append(i if kind == "c" else f"{i} * s{place}_{axis}")
            code.add(begins(word, f"q{place}{suffix}", place, count, terms, grid.by_value))

    plain = ", ".join(f"*q{place}" for place in range(len(dtypes)))

    def made_pack(suffix: str) -> None:
        """Add what is made of a pack, and its stores."""
        for place, word in enumerate(memory[count:], count):
            code.add(f"Pack<{word}, {size}> k{place};")
        given = ", ".join(
            f"k{place}.v[j]"
            if place >= count
            else f"k{place}{suffix}.v[j]"
            if shape.classes[place] == "c"
            else f"k{place}{suffix}"
            for place in range(len(dtypes))
        )
        if usual:
            code.add("bool seldom = false;")
            given = f"{given}, seldom"
        code.add("#pragma unroll")
        made = "usual" if usual else "element"
        code.add(f"for (int j = 0; j < {size}; ++j) {ENTRY}_{made}({given});")
        stores = [
            f"*(Pack<{word}, {size}>*)q{place}{suffix} = k{place};"
            for place, word in enumerate(memory[count:], count)
        ]
        if usual:
            each = ", ".join(
                f"q{place}{suffix}[j]" if shape.classes[place] == "c" else f"*q{place}{suffix}"
                for place in range(len(dtypes))
            )
            with code.block("if (seldom)"):
                code.add("#pragma unroll 1")
                code.add(f"for (int j = 0; j < {size}; ++j) {ENTRY}_element({each});")
            with code.block("else"):
                for store in stores:
                    code.add(store)
        else:
            for store in stores:
                code.add(store)

    if packed:
        code.add(f"const {index} packs = n / {size};")
        tiles = f"for ({index} e = start; e < packs; e += apart)"
        with code.block(tiles):
            for i in range(ahead):  # all are read before the first is computed
                suffix = f"_{i}" if i else ""
                last = f"e + {i * grid.block}" if i else "e"
                if i:
                    code.add(f"const {index} e{suffix} = {last} < packs ? {last} : e;")
                find(f"e{suffix}", size, suffix)
                for place, word in enumerate(memory[:count]):
                    at = f"q{place}{suffix}"
                    if shape.classes[place] == "c":
                        kind = f"Pack<{word}, {size}>"
                        code.add(f"const {kind} k{place}{suffix} = *(const {kind}*){at};")
                    else:
                        code.add(f"const {word} k{place}{suffix} = *{at};")
            for i in range(ahead):
                suffix = f"_{i}" if i else ""
                with code.block(f"if (e + {i * grid.block} < packs)" if i else ""):
                    made_pack(suffix)
    if size > 1 or not packed:
        tail = f"packs * {size} + start" if packed else "start"
        # of several axes the inner one has whole packs
        with code.block(f"for ({index} e = {tail}; e < n; e += apart)"):
            find("e", 1)
            code.add(f"{ENTRY}_element({plain});")
    return _kernel(code, element, PACK if packed else "", grid, head)


def _kernel(
    code: Statements, element: str, pack: str, grid: Grid, parameters: Sequence[str]
) -> str:
    """Return the text of a kernel of these statements."""
    body = "\n".join(code.lines)
    return f"""{pack}{CUDA.functions(element)}
{element}
extern "C" __global__ void __launch_bounds__({grid.bounds}) {ENTRY}(
    {", ".join(parameters)}) {{
{body}
}}
"""


def _rows(
    code: Statements,
    grid: Grid,
    rank: int,
    memory: Sequence[str],
    count: int,
    index: str,
) -> None:
    """Add what a block does with its tile: as many elements of a row as it has threads, of as many
    rows as there are turns. Each thread reads as many of its rows as it is ahead, and then computes
    them."""
    row, inner = rank - 2, rank - 1
    rows = f"d{row}" if row else f"n / d{inner}"
    code.add(f"const {index} rows = {rows};")
    code.add(f"const {index} wide = (d{inner} + {grid.block - 1}) / {grid.block};")
    code.add(f"const {index} high = (rows + {grid.turns - 1}) / {grid.turns};")
    code.add(f"{index} rest = blockIdx.x;")
    code.add(f"const {index} i{inner} = rest % wide * {grid.block} + threadIdx.x;")
    code.add("rest /= wide;")
    code.add(f"{index} at = rest % high * {grid.turns};")
    code.add("rest /= high;")
    for axis in range(row - 1, -1, -1):
        code.add(f"const {index} i{axis} = {f'rest % d{axis}' if axis else 'rest'};")
        if axis:
            code.add(f"rest /= d{axis};")
    code.add(f"if (i{inner} >= d{inner}) return;")
    for place, word in enumerate(memory):
        terms = [f"{'at' if axis == row else f'i{axis}'} * s{place}_{axis}" for axis in range(rank)]
        code.add(begins(word, f"q{place}", place, count, terms, grid.by_value))
    code.add(f"const {index} last = min(at + {grid.turns}, rows);")
    with code.block(f"for (; at < last; at += {grid.ahead})"):
        for i in range(grid.ahead):
            for place, word in enumerate(memory[:count]):
                moves = i and place not in grid.by_value
                step = f"[at + {i} < last ? {i} * s{place}_{row} : 0]" if moves else "[0]"
                code.add(f"const {word} k{place}_{i} = q{place}{step};")
        for i in range(grid.ahead):
            given = [f"k{place}_{i}" for place in range(count)]
            given += [f"q{place}[{i} * s{place}_{row}]" for place in range(count, len(memory))]
            with code.block(f"if (at + {i} < last)" if i else ""):
                code.add(f"{ENTRY}_element({', '.join(given)});")
        for place in range(len(memory)):
            if place not in grid.by_value:
                code.add(f"q{place} += {grid.ahead} * s{place}_{row};")


def element_function(
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


class Loop(KernelForm):
    """The text of one loop group with one schedule."""

    def steps(self) -> tuple[Step, ...]:
        """Return the launches."""
        shape, grid = self.shape, self.grid
        count = prod(shape.dims)
        moves = [
            stride // layout.itemsize
            for layout, strides in zip(self.graph.operand_layouts, shape.strides, strict=True)
            for stride in strides
        ]
        ahead = grid.ahead if grid.elements > 1 or grid.blocks else 1
        blocks = around(-(-count // (grid.block * grid.elements * ahead)))
        if grid.turns > 1:
            *others, rows, inner = shape.dims
            blocks = prod(others) * -(-rows // grid.turns) * -(-inner // grid.block)
        if grid.blocks:
            blocks = min(blocks, grid.blocks)
        return (Step(ENTRY, blocks, grid.block, (count, *shape.dims[1:], *moves)),)

    def text(self) -> str:
        """Return the text of the kernel."""
        return cuda_loop(self.group, self.shape, self.grid)
