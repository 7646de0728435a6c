"""CUDA C of reductions along an axis that is not the innermost in memory: a thread has a column.

Threads side by side have columns side by side, so that a warp reads a line of memory for each row.
A thread reduces the sixteen lanes of a chunk in registers, eight steps of sixteen rows, and keeps
the chunks in a counter; where columns are few, it reduces one lane (``codegen.cuda.few_columns``),
and long ones are cut into parts of whole chunks, as rows are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._src.codegen.common.source import ENTRY, Grid, Statements
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.codegen.cuda.few_columns import (
    NEIGHBOURS,
    WHOLE_BLOCK,
    WHOLE_SIDE,
    combined,
    narrow_kernel,
)
from alight._src.codegen.cuda.kernel_program import (
    KernelForm,
    Step,
    around,
    power,
    reduction_length,
    row_count,
    whole_text,
)
from alight._src.codegen.cuda.reduction_steps import TREE, CudaReduction
from alight._src.ir.op_table import Kind
from alight._src.ir.table_reduction import CHUNK, LANES

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest
    from alight._src.ir.group import Group

_LANES = f"""
// of a chunk, from its lanes
template <typename F> __device__ __forceinline__ typename F::S lanes(typename F::S (&a)[{LANES}]) {{
#pragma unroll
  for (int half = {LANES // 2}; half > 0; half /= 2)
#pragma unroll
    for (int i = 0; i < half; ++i) a[i] = F::pair(a[i], a[i + half]);
  return a[0];
}}
"""


class Columns(KernelForm):
    """The text of one group of columns with one schedule."""

    def __init__(self, group: Group, shape: Nest, grid: Grid) -> None:
        super().__init__(group, shape, grid)
        graph = self.graph
        self.outside: dict[str, str] = {}
        self.code = Statements(CUDA, self.outside)
        self.reductions = {
            number: CudaReduction(graph, graph.made_by[number], number)
            for number in dict.fromkeys(graph.outputs)
        }

    # --- launches
    def parts(self) -> tuple[int, int]:
        """Return in how many parts columns are cut, and the rows of each."""
        rows = reduction_length(self.places.shape)
        part = (
            CHUNK * (self.grid.team // LANES) * self.grid.turns if self.grid.cut else max(rows, 1)
        )
        return max(1, -(-rows // part)), part

    def steps(self) -> tuple[Step, ...]:
        """Return the launches."""
        grid = self.grid
        _, values = self.places.numbers()
        columns = row_count(self.places.shape)
        parts, part = self.parts()
        each = power(-(-parts // (WHOLE_BLOCK // WHOLE_SIDE)))
        numbers = (columns, reduction_length(self.places.shape), part, parts, each, *values)
        beside = grid.block // grid.team if grid.team else grid.block
        blocks = -(-columns // beside) * parts
        steps = [Step(ENTRY, around(blocks), grid.block, numbers)]
        if grid.cut:
            blocks = around(-(-columns // WHOLE_SIDE))
            steps.append(Step(f"{ENTRY}_whole", blocks, WHOLE_BLOCK, numbers))
        return tuple(steps)

    # --- the text
    def text(self) -> str:
        """Return the text of all kernels."""
        places, cut = self.places, self.grid.cut
        names, _ = places.numbers()
        states = (
            [f"{reduction.state}* w{n}" for n, reduction in self.reductions.items()] if cut else []
        )
        parameters = [
            *places.pointers(),
            *states,
            *places.declared(["columns", "length", "part", "parts", "each", *names]),
        ]
        body = narrow_kernel(self) if self.grid.team else self.kernel()
        texts = [self.function(ENTRY, self.grid.block, parameters, body)]
        if cut:
            text = self.function(f"{ENTRY}_whole", WHOLE_BLOCK, parameters, combined(self))
            texts.append(text)
        structures = [reduction.structure(self.outside) for reduction in self.reductions.values()]
        header = TREE + _LANES + (NEIGHBOURS if cut or self.grid.team else "")
        return whole_text(self.outside, header, "\n".join((*structures, *texts)))

    def function(self, name: str, threads: int, parameters: list[str], body: str) -> str:
        """Return the text of an entry point."""
        return (
            f'extern "C" __global__ void __launch_bounds__({threads}) {name}(\n'
            f"    {', '.join(parameters)}) {{\n{body}\n}}"
        )

    def kernel(self) -> str:
        """Return the body of the kernel in which each thread has a column."""
        code, places, block = self.code, self.places, self.grid.block
        index = places.index
        first = "blockIdx.x" if index == "int" else "(long long)blockIdx.x"
        with code.block(
            f"for ({index} column = {first} * {block} + threadIdx.x; column < columns; "
            f"column += ({index})gridDim.x * {block})"
        ):
            code.add(f"const {index} end = length;")
            places.rows(code, places.kept_indices(code, "column"))
            for number, reduction in self.reductions.items():
                code.add(f"Counter<{reduction.name}> c{number};")
            self.pivots()
            with code.block(f"for ({index} row = 0; row < end; row += {CHUNK})"):
                code.add(f"const int some = row + {CHUNK} <= end ? {CHUNK} : (int)(end - row);")
                self.lanes(list(self.reductions.values()), False)
                spread = [reduction for reduction in self.reductions.values() if reduction.moments]
                for reduction in spread:
                    number, real = reduction.number, reduction.type
                    code.add(f"const {real} total{number} = lanes<{reduction.plain}>(a{number});")
                    code.add(
                        f"const {real} mean{number} = some == {CHUNK} ? total{number} * "
                        f"({real})(1.0 / {CHUNK}) : total{number} / ({real})some;"
                    )
                if spread:
                    self.lanes(spread, True)
                for number, reduction in self.reductions.items():
                    state = f"lanes<{reduction.lanes}>({'b' if reduction.moments else 'a'}{number})"
                    if reduction.moments:
                        state = (
                            f"{reduction.state}{{({reduction.type})some, total{number}, {state}}}"
                        )
                    code.add(f"c{number}.push({state});")
            for number, reduction in self.reductions.items():
                code.add(f"const {reduction.state} f{number} = c{number}.total();")
                self.deliver(code, number, reduction)
        return "\n".join(code.lines)

    def pivots(self) -> None:
        """Add the first elements of the column, from which moments are measured."""
        code, places = self.code, self.places
        for number, reduction in self.reductions.items():
            if reduction.moments:
                code.add(f"{reduction.type} pivot{number} = 0;")
                with code.block("if (length > 0)"):
                    offsets = places.along(code, f"(({places.index})0)")
                    known = self.values({p: f"q{p}[{offsets[p]}]" for p in self.read([reduction])})
                    first = self.made(reduction, known)
                    code.add(f"pivot{number} = {code.evaluate(reduction.origin[0], [first])};")

    def deliver(
        self, code: Statements, number: int, reduction: CudaReduction, where: str = ""
    ) -> None:
        """Add the result of a column, in threads ``where`` a condition holds."""
        value = reduction.delivered(code, f"f{number}", "length")
        for place, output in enumerate(self.graph.outputs, self.first):
            if output == number:
                code.add(f"{f'if ({where}) ' if where else ''}*q{place} = {value};")

    def lanes(self, reductions: list[CudaReduction], spread: bool) -> None:
        """Add the reductions of a chunk's lanes; ``spread``: of squared distances from the mean."""
        code = self.code
        letter = "b" if spread else "a"
        for reduction in reductions:
            code.add(f"{reduction.lanes}::S {letter}{reduction.number}[{LANES}];")
            code.add("#pragma unroll")
            code.add(
                f"for (int j = 0; j < {LANES}; ++j) {letter}{reduction.number}[j] = "
                f"{reduction.lanes}::none();"
            )
        read = self.read(reductions)
        with code.block(f"for (int k = 0; k < some; k += {LANES})"):
            # all rows are read before the first is computed; past the end the last row stands in,
            # so that nothing waits for a branch
            for place in read:
                code.add(f"{self.places.words[place]} y{place}[{LANES}];")
            code.add("#pragma unroll")
            with code.block(f"for (int j = 0; j < {LANES}; ++j)"):
                code.add(f"const {self.places.index} r = row + (k + j < some ? k + j : some - 1);")
                offsets = self.places.along(code, "r")
                for place in read:
                    code.add(f"y{place}[j] = q{place}[{offsets[place]}];")
            code.add("#pragma unroll")
            with code.block(f"for (int j = 0; j < {LANES}; ++j)"):
                known = self.values({place: f"y{place}[j]" for place in read})
                for reduction in reductions:
                    value = self.element(reduction, known, "row + k + j", spread)
                    none = f"{reduction.lanes}::none()"
                    value = f"(k + j < some ? {value} : {none})"
                    cell = f"{letter}{reduction.number}[j]"
                    code.add(f"{cell} = {reduction.lanes}::pair({cell}, {value});")

    def read(self, reductions: list[CudaReduction]) -> list[int]:
        """Return the inputs that reduces are made of."""
        wanted = {operand for reduction in reductions for operand in reduction.node.operands}
        for number, node in reversed(list(self.graph.numbered)):
            if number in wanted and node.op.kind is Kind.ELEMENTWISE:
                wanted.update(node.operands)
        return sorted(number for number in wanted if number < self.first)

    def element(
        self, reduction: CudaReduction, known: dict[int, str], at: str, spread: bool
    ) -> str:
        """Return what a reduction reduces of the row ``at``; ``spread``: its squared distance from
        the mean."""
        value = self.made(reduction, known)
        if reduction.argument:
            value = f"{reduction.state}{{{value}, (long long)({at})}}"
        elif reduction.moments:
            value = f"({value} - pivot{reduction.number})"
        if spread:
            away = self.code.name(f"{value} - mean{reduction.number}", reduction.dtype)
            value = f"{away} * {away}"
        return value

    def made(self, reduction: CudaReduction, known: dict[int, str]) -> str:
        """Return the element that a reduction is made of."""
        return reduction.made(self.code, [known[o] for o in reduction.node.operands])

    def values(self, read: dict[int, str]) -> dict[int, str]:
        """Return the values that inputs, as read in one row of the column, and all made of them
        have."""
        code, places = self.code, self.places
        known = {place: places.loaded(code, place, text) for place, text in read.items()}
        for number, node in self.graph.numbered:
            if node.op.kind is Kind.ELEMENTWISE and known.keys() >= set(node.operands):
                known[number] = places.node(code, number, known)
        return known
