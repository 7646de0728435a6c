"""CUDA C of reductions along an axis that is not the innermost in memory: a thread has a column.

Threads side by side have columns side by side, so that a warp reads a line of memory for each row.
A thread folds the sixteen lanes of a chunk in registers, eight steps of sixteen rows, and keeps the
chunks in a counter; where columns are few, it folds one lane (``codegen.cuda.few_columns``), and
long ones are cut into parts of whole chunks, as rows are.
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
    Places,
    Step,
    around,
    fold_length,
    power,
    row_count,
    whole_text,
)
from alight._src.codegen.cuda.reduction_steps import TREE, CudaFold
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


class Columns:
    """The text of one group of columns with one schedule."""

    def __init__(self, group: Group, shape: Nest, grid: Grid) -> None:
        self.places = places = Places(group, shape, grid)
        self.graph = graph = group.graph
        self.grid = grid
        self.first = places.first
        self.outside: dict[str, str] = {}
        self.code = Statements(CUDA, self.outside)
        self.folds = {
            number: CudaFold(graph, graph.nodes[number - self.first], number)
            for number in dict.fromkeys(graph.outputs)
        }

    # --- launches
    def parts(self) -> tuple[int, int]:
        """Return in how many parts columns are cut, and the rows of each."""
        rows = fold_length(self.places.shape)
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
        numbers = (columns, fold_length(self.places.shape), part, parts, each, *values)
        beside = grid.block // grid.team if grid.team else grid.block
        blocks = -(-columns // beside) * parts
        steps = [Step(ENTRY, around(blocks), grid.block, numbers)]
        if grid.cut:
            blocks = around(-(-columns // WHOLE_SIDE))
            steps.append(Step(f"{ENTRY}_whole", blocks, WHOLE_BLOCK, numbers))
        return tuple(steps)

    def scratch(self) -> tuple[int, ...]:
        """Return the bytes of each state that parts leave."""
        if not self.grid.cut:
            return ()
        count = row_count(self.places.shape) * self.parts()[0]
        return tuple(count * fold.state_bytes for fold in self.folds.values())

    # --- the text
    def text(self) -> str:
        """Return the text of all kernels."""
        places, cut = self.places, self.grid.cut
        names, _ = places.numbers()
        states = [f"{fold.state}* w{n}" for n, fold in self.folds.items()] if cut else []
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
        structures = [fold.structure(self.outside) for fold in self.folds.values()]
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
            for number, fold in self.folds.items():
                code.add(f"Counter<{fold.name}> c{number};")
            self.pivots()
            with code.block(f"for ({index} row = 0; row < end; row += {CHUNK})"):
                code.add(f"const int some = row + {CHUNK} <= end ? {CHUNK} : (int)(end - row);")
                self.lanes(list(self.folds.values()), False)
                spread = [fold for fold in self.folds.values() if fold.moments]
                for fold in spread:
                    number = fold.number
                    code.add(f"const {fold.type} total{number} = lanes<{fold.plain}>(a{number});")
                    code.add(
                        f"const {fold.type} mean{number} = some == {CHUNK} ? total{number} * "
                        f"({fold.type})(1.0 / {CHUNK}) : total{number} / ({fold.type})some;"
                    )
                if spread:
                    self.lanes(spread, True)
                for number, fold in self.folds.items():
                    state = f"lanes<{fold.lanes}>({'b' if fold.moments else 'a'}{number})"
                    if fold.moments:
                        state = f"{fold.state}{{({fold.type})some, total{number}, {state}}}"
                    code.add(f"c{number}.push({state});")
            for number, fold in self.folds.items():
                code.add(f"const {fold.state} f{number} = c{number}.total();")
                self.deliver(code, number, fold)
        return "\n".join(code.lines)

    def pivots(self) -> None:
        """Add the first elements of the column, from which moments are measured."""
        code, places = self.code, self.places
        for number, fold in self.folds.items():
            if fold.moments:
                code.add(f"{fold.type} pivot{number} = 0;")
                with code.block("if (length > 0)"):
                    offsets = places.along(code, f"(({places.index})0)")
                    known = self.values({p: f"q{p}[{offsets[p]}]" for p in self.read([fold])})
                    first = self.made(fold, known)
                    code.add(f"pivot{number} = {code.evaluate(fold.origin[0], [first])};")

    def deliver(self, code: Statements, number: int, fold: CudaFold, where: str = "") -> None:
        """Add the result of a column, in threads ``where`` a condition holds."""
        value = fold.delivered(code, f"f{number}", "length")
        for place, output in enumerate(self.graph.outputs, self.first):
            if output == number:
                code.add(f"{f'if ({where}) ' if where else ''}*q{place} = {value};")

    def lanes(self, folds: list[CudaFold], spread: bool) -> None:
        """Add the folds of a chunk's lanes; ``spread``: of squared distances from the mean."""
        code = self.code
        letter = "b" if spread else "a"
        for fold in folds:
            code.add(f"{fold.lanes}::S {letter}{fold.number}[{LANES}];")
            code.add("#pragma unroll")
            code.add(
                f"for (int j = 0; j < {LANES}; ++j) {letter}{fold.number}[j] = "
                f"{fold.lanes}::none();"
            )
        read = self.read(folds)
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
                for fold in folds:
                    value = self.element(fold, known, "row + k + j", spread)
                    none = f"{fold.lanes}::none()"
                    value = f"(k + j < some ? {value} : {none})"
                    cell = f"{letter}{fold.number}[j]"
                    code.add(f"{cell} = {fold.lanes}::pair({cell}, {value});")

    def read(self, folds: list[CudaFold]) -> list[int]:
        """Return the inputs that folds are made of."""
        wanted = {operand for fold in folds for operand in fold.node.operands}
        for number, node in reversed(list(self.graph.numbered)):
            if number in wanted and node.op.kind is Kind.ELEMENTWISE:
                wanted.update(node.operands)
        return sorted(number for number in wanted if number < self.first)

    def element(self, fold: CudaFold, known: dict[int, str], at: str, spread: bool) -> str:
        """Return what a reduction folds of the row ``at``; ``spread``: its squared distance from
        the mean."""
        value = self.made(fold, known)
        if fold.argument:
            value = f"{fold.state}{{{value}, (long long)({at})}}"
        elif fold.moments:
            value = f"({value} - pivot{fold.number})"
        if spread:
            away = self.code.name(f"{value} - mean{fold.number}", fold.dtype)
            value = f"{away} * {away}"
        return value

    def made(self, fold: CudaFold, known: dict[int, str]) -> str:
        """Return the element that a reduction is made of."""
        return fold.made(self.code, [known[o] for o in fold.node.operands])

    def values(self, read: dict[int, str]) -> dict[int, str]:
        """Return the values that inputs, as read in one row of the column, and all made of them
        have."""
        code, places = self.code, self.places
        known = {place: places.loaded(code, place, text) for place, text in read.items()}
        for number, node in self.graph.numbered:
            if node.op.kind is Kind.ELEMENTWISE and known.keys() >= set(node.operands):
                known[number] = places.node(code, number, known)
        return known
