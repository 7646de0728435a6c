"""CUDA C of scan groups: scans along one axis, what makes their elements and what is made of them.

Where the scanned axis is not the innermost in memory a thread has a column, and scans it as NumPy
does. Otherwise a block has a row: it goes along it block by block of elements, each thread four
side by side, whose scans meet over the warps and go on from what came before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._src.codegen.common.source import ENTRY, Grid, Statements
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.codegen.cuda.kernel_program import (
    KernelForm,
    Step,
    around,
    reduction_length,
    row_count,
    whole_text,
)
from alight._src.codegen.llvm.combine import identity
from alight._src.ir.body import choose, typed
from alight._src.ir.op_table import OPS, Kind

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest
    from alight._src.ir.group import Group

_SCAN = """
template <typename T> __device__ __forceinline__ T before(T x, int far) {
  if constexpr (sizeof(T) < 4) return (T)__shfl_up_sync(0xffffffffu, (int)x, far);
  else return __shfl_up_sync(0xffffffffu, x, far);
}
// what comes before this thread's elements in the block, whose reduction is x; all: the whole
// block's
template <typename F, int WARPS> __device__ __forceinline__ typename F::T ahead(
    typename F::T x, typename F::T* shared, typename F::T& all) {
  typedef typename F::T T;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int far = 1; far < 32; far *= 2) {
    const T other = before(x, far);
    if (lane >= far) x = F::pair(other, x);
  }
  __syncthreads();
  if (lane == 31) shared[warp] = x;
  __syncthreads();
  T sofar = F::none(), mine = F::none();
  for (int i = 0; i < WARPS; ++i) {
    if (i == warp) mine = sofar;
    sofar = F::pair(sofar, shared[i]);
  }
  all = sofar;
  const T other = before(x, 1);
  return lane ? F::pair(mine, other) : mine;
}
"""
_EACH = 4  # elements of a thread, side by side


class Scans(KernelForm):
    """The text of one scan group with one schedule."""

    def __init__(self, group: Group, shape: Nest, grid: Grid) -> None:
        super().__init__(group, shape, grid)
        self.outside: dict[str, str] = {}
        self.code = Statements(CUDA, self.outside)
        self.scans = [n for n, node in self.graph.numbered if node.op.kind is Kind.SCAN]

    def steps(self) -> tuple[Step, ...]:
        """Return the launches."""
        grid, shape = self.grid, self.places.shape
        _, values = self.places.numbers()
        rows = row_count(shape)
        numbers = (rows, reduction_length(shape), *values)
        blocks = -(-rows // grid.block) if shape.columns else rows
        return (Step(ENTRY, around(blocks), grid.block, numbers),)

    # --- the text
    def text(self) -> str:
        """Return the text of the kernel."""
        places, grid = self.places, self.grid
        names, _ = places.numbers()
        parameters = [*places.pointers(), *places.declared(["rows", "length", *names])]
        body = self.columns() if places.shape.columns else self.rows()
        text = (
            f'extern "C" __global__ void __launch_bounds__({grid.block}) {ENTRY}(\n'
            f"    {', '.join(parameters)}) {{\n{body}\n}}"
        )
        structures = [self.structure(n) for n in self.scans]
        return whole_text(self.outside, _SCAN, "\n".join((*structures, text)))

    def type_of(self, number: int) -> str:
        """Return the type of a value in a register."""
        return CUDA.type_of(self.graph.layouts[number].dtype.name)

    def structure(self, number: int) -> str:
        """Return the structure that says how elements of a scan meet."""
        node = self.graph.made_by[number]
        dtype = node.layout.dtype.name
        combine = node.op.combine
        assert combine is not None  # gaps.check has seen to it
        pair = choose(OPS[combine].body, (dtype, dtype))
        assert pair is not None
        code = Statements(CUDA, self.outside)
        (tree,) = typed(pair, (dtype, dtype), (dtype,))
        result = code.evaluate(tree, ["a", "b"])
        body = "\n".join(f"  {line}" for line in (*code.lines, f"  return {result};"))
        function = "static __device__ __forceinline__"
        return f"""struct Scan{number} {{
  typedef {CUDA.type_of(dtype)} T;
  {function} T none() {{ return {CUDA.literal(identity(combine, dtype), dtype)}; }}
  {function} T pair(T a, T b) {{
{body}
  }}
}};"""

    def made(self, number: int, known: dict[int, str]) -> str:
        """Return the element of a scan."""
        node = self.graph.made_by[number]
        source = self.graph.layouts[node.operands[0]].dtype.name
        body = choose(node.op.body, (source,)) or "R(x)"
        (tree,) = typed(body, (source,), (node.layout.dtype.name,))
        return self.code.evaluate(tree, [known[node.operands[0]]])

    def loads(self, offsets: list[str]) -> dict[int, str]:
        """Return the inputs at one element."""
        return {
            place: self.places.loaded(self.code, place, f"q{place}[{offsets[place]}]")
            for place in range(self.first)
        }

    def stores(self, known: dict[int, str], offsets: list[str]) -> None:
        """Add the writes of the outputs at one element."""
        for place, number in enumerate(self.graph.outputs, self.first):
            self.code.add(f"q{place}[{offsets[place]}] = {known[number]};")

    def columns(self) -> str:
        """Return the body of a kernel in which a thread has a column."""
        code, places = self.code, self.places
        index, block = places.index, self.grid.block
        first = "blockIdx.x" if index == "int" else "(long long)blockIdx.x"
        head = f"for ({index} own = {first} * {block} + threadIdx.x; own < rows;"
        with code.block(f"{head} own += ({index})gridDim.x * {block})"):
            places.rows(code, places.kept_indices(code, "own"))
            for number in self.scans:
                code.add(f"{self.type_of(number)} c{number} = Scan{number}::none();")
            with code.block(f"for ({index} e = 0; e < length; ++e)"):
                offsets = places.along(code, "e")
                known = self.loads(offsets)
                for number, node in self.graph.numbered:
                    if node.op.kind is Kind.SCAN:
                        value = self.made(number, known)
                        # the first stands for itself: -0 stays -0
                        code.add(
                            f"c{number} = e ? Scan{number}::pair(c{number}, {value}) : {value};"
                        )
                        known[number] = f"c{number}"
                    else:
                        known[number] = places.node(code, number, known)
                self.stores(known, offsets)
        return "\n".join(code.lines)

    def rows(self) -> str:
        """Return the body of a kernel in which a block has a row."""
        code, places, graph = self.code, self.places, self.graph
        index, block = places.index, self.grid.block
        first = "blockIdx.x" if index == "int" else "(long long)blockIdx.x"
        late: set[int] = set()
        for number, node in graph.numbered:
            if node.op.kind is Kind.SCAN or late.intersection(node.operands):
                late.add(number)
        code.add(f"__shared__ long long room[{block // 32}];")
        with code.block(f"for ({index} row = {first}; row < rows; row += gridDim.x)"):
            places.rows(code, places.kept_indices(code, "row"))
            for number in self.scans:
                code.add(f"{self.type_of(number)} c{number} = Scan{number}::none();")
            with code.block(f"for ({index} start = 0; start < length; start += {_EACH * block})"):
                code.add(f"const {index} own = start + {_EACH} * threadIdx.x;")
                for number in self.scans:
                    code.add(f"{self.type_of(number)} x{number}[{_EACH}];")
                with self.each():
                    offsets = places.along(code, "e")
                    known = self.loads(offsets)
                    for number, _ in graph.numbered:
                        if number in self.scans:
                            value = self.made(number, known)
                            code.add(
                                f"x{number}[j] = own + j < length ? {value} : Scan{number}::none();"
                            )
                        elif number not in late:
                            known[number] = places.node(code, number, known)
                for number in self.scans:
                    code.add("#pragma unroll")
                    code.add(
                        f"for (int j = 1; j < {_EACH}; ++j) "
                        f"x{number}[j] = Scan{number}::pair(x{number}[j - 1], x{number}[j]);"
                    )
                    code.add(f"{self.type_of(number)} all{number};")
                    code.add(
                        f"const {self.type_of(number)} far{number} = "
                        f"Scan{number}::pair(c{number}, ahead<Scan{number}, {block // 32}>("
                        f"x{number}[{_EACH - 1}], (Scan{number}::T*)room, all{number}));"
                    )
                    code.add(f"c{number} = Scan{number}::pair(c{number}, all{number});")
                with self.each(), code.block("if (own + j < length)"):
                    offsets = places.along(code, "e")
                    known = self.loads(offsets)
                    for number, _ in graph.numbered:
                        if number in self.scans:
                            known[number] = code.name(
                                f"Scan{number}::pair(far{number}, x{number}[j])",
                                graph.layouts[number].dtype.name,
                            )
                        else:
                            known[number] = places.node(code, number, known)
                    self.stores(known, offsets)
        return "\n".join(code.lines)

    def each(self) -> _Each:
        """Run what is added inside for each of a thread's elements, ``e`` of them in the row."""
        return _Each(self.code, self.places.index)


class _Each:
    def __init__(self, code: Statements, index: str) -> None:
        self.code = code
        self.index = index

    def __enter__(self) -> None:
        code = self.code
        code.add("#pragma unroll")
        self.block = code.block(f"for (int j = 0; j < {_EACH}; ++j)")
        self.block.__enter__()
        # past the end the last element stands in: it is not used
        code.add(f"const {self.index} e = own + j < length ? own + j : length - 1;")

    def __exit__(self, *_: object) -> None:
        self.block.__exit__(None, None, None)
