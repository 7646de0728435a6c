"""CUDA C of scan groups: scans along one axis, what makes their elements and what is made of them.

Where the scanned axis is not the innermost in memory a thread has a column, and scans it as NumPy
does. Otherwise a block has a row: it goes along it block by block of elements, each thread four
side by side, whose scans meet over the warps and go on from what came before. Where a scan rounds,
which its order decides about, a thread has a row as well, and a warp goes along 32 of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
from alight._src.codegen.cuda.nest_choice import SHARED_BYTES, WARP, scans_in_order, square_bytes
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
_AHEAD = 8  # elements that a thread reads before it uses the first


class Scans(KernelForm):
    """The text of one scan group with one schedule."""

    def __init__(self, group: Group, shape: Nest, grid: Grid) -> None:
        super().__init__(group, shape, grid)
        self.outside: dict[str, str] = {}
        self.code = Statements(CUDA, self.outside)
        self.scans = [n for n, node in self.graph.numbered if node.op.kind is Kind.SCAN]
        # the scans, and what is made of them
        self.late: set[int] = set()
        for number, node in self.graph.numbered:
            if node.op.kind is Kind.SCAN or self.late.intersection(node.operands):
                self.late.add(number)
        self.ordered = scans_in_order(group)

    def steps(self) -> tuple[Step, ...]:
        """Return the launches."""
        grid, shape = self.grid, self.places.shape
        _, values = self.places.numbers()
        rows = row_count(shape)
        numbers = (rows, reduction_length(shape), *values)
        blocks = -(-rows // grid.block) if shape.columns or self.ordered else rows
        return (Step(ENTRY, around(blocks), grid.block, numbers),)

    # --- the text
    def text(self) -> str:
        """Return the text of the kernel."""
        places, grid = self.places, self.grid
        names, _ = places.numbers()
        parameters = [*places.pointers(), *places.declared(["rows", "length", *names])]
        if places.shape.columns:
            body = self.columns()
        else:
            body = self.crossed() if self.ordered else self.rows()
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

    def elements(self, offsets: list[str]) -> dict[int, str]:
        """Add what makes the scans' elements at one element of the group, and return these."""
        code, places = self.code, self.places
        known, made = self.loads(offsets), {}
        for number, _ in self.graph.numbered:
            if number in self.scans:
                made[number] = self.made(number, known)
            elif number not in self.late:
                known[number] = places.node(code, number, known)
        return made

    def results(self, offsets: list[str], scanned: dict[int, str]) -> None:
        """Add what is made of the scans at one element of the group, and its writes."""
        known = self.loads(offsets) | scanned
        for number, _ in self.graph.numbered:
            if number not in known:
                known[number] = self.places.node(self.code, number, known)
        self.stores(known, offsets)

    def carried(self) -> None:
        """Declare what each scan goes on from."""
        for number in self.scans:
            self.code.add(f"{self.type_of(number)} c{number} = Scan{number}::none();")

    def start(self, scale: str = "") -> str:
        """Return the number of this block, times something, in the type of the indices."""
        return f"({self.places.index})blockIdx.x{scale}"

    def columns(self) -> str:
        """Return the body of a kernel in which a thread has a column.

        It reads some elements before it scans the first of them: what it writes may lie where it
        reads, for all that a compiler knows, and each read alone waits for memory.
        """
        code, places = self.code, self.places
        index, block = places.index, self.grid.block
        head = f"for ({index} own = {self.start(f' * {block}')} + threadIdx.x; own < rows;"
        with code.block(f"{head} own += ({index})gridDim.x * {block})"):
            places.rows(code, places.kept_indices(code, "own"))
            self.carried()
            with code.block(f"for ({index} start = 0; start < length; start += {_AHEAD})"):
                for number in self.scans:
                    code.add(f"{self.type_of(number)} x{number}[{_AHEAD}];")
                with self.each(_AHEAD, "start"):
                    for number, value in self.elements(places.along(code, "e")).items():
                        code.add(f"x{number}[j] = {value};")
                with self.each(_AHEAD, "start"), code.block("if (start + j < length)"):
                    for number in self.scans:
                        # the first stands for itself: -0 stays -0
                        x = f"x{number}[j]"
                        code.add(f"c{number} = e ? Scan{number}::pair(c{number}, {x}) : {x};")
                    scanned = {number: f"c{number}" for number in self.scans}
                    self.results(places.along(code, "e"), scanned)
        return "\n".join(code.lines)

    def crossed(self) -> str:
        """Return the body of a kernel in which a thread has a row, and a warp reads along them.

        A warp goes along 32 rows in squares: it reads and writes each row of a square side by side,
        and each thread scans its row of it, in shared memory, in NumPy's order.
        """
        code, places = self.code, self.places
        index, warps = places.index, self.grid.block // WARP
        code.add(f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};")
        for number in self.scans:
            word = self.type_of(number)
            # a column more than there are: threads side by side meet no bank twice
            code.add(f"__shared__ {word} room{number}[{warps}][{WARP}][{WARP + 1}];")
        head = f"for ({index} first = ({self.start(f' * {warps}')} + warp) * {WARP}; first < rows;"
        with code.block(f"{head} first += ({index})gridDim.x * {warps * WARP})"):
            self.carried()
            with code.block(f"for ({index} start = 0; start < length; start += {WARP})"):
                # past the end the last row and element stand in: they are not used
                code.add(f"const {index} e = start + lane < length ? start + lane : length - 1;")
                with self.each_row():
                    for number, value in self.elements(places.along(code, "e")).items():
                        code.add(f"room{number}[warp][j][lane] = {value};")
                code.add("__syncwarp();")
                code.add("#pragma unroll")
                with code.block(f"for (int j = 0; j < {WARP}; ++j)"):
                    for number in self.scans:
                        x = f"room{number}[warp][lane][j]"
                        both = f"Scan{number}::pair(c{number}, {x})"
                        code.add(f"{x} = c{number} = start + j ? {both} : {x};")
                code.add("__syncwarp();")
                with self.each_row(), code.block("if (first + j < rows && start + lane < length)"):
                    scanned = {number: f"room{number}[warp][j][lane]" for number in self.scans}
                    self.results(places.along(code, "e"), scanned)
                code.add("__syncwarp();")
        return "\n".join(code.lines)

    @contextmanager
    def each_row(self) -> Iterator[None]:
        """Run what is added inside for each of a warp's rows, ``j``."""
        code, places = self.code, self.places
        code.add(f"#pragma unroll {_AHEAD}")
        with code.block(f"for (int j = 0; j < {WARP}; ++j)"):
            code.add(f"const {places.index} row = first + j < rows ? first + j : rows - 1;")
            places.rows(code, places.kept_indices(code, "row"))
            yield

    def rows(self) -> str:
        """Return the body of a kernel in which a block has a row."""
        code, places = self.code, self.places
        index, block = places.index, self.grid.block
        code.add(f"__shared__ long long room[{block // WARP}];")
        with code.block(f"for ({index} row = {self.start()}; row < rows; row += gridDim.x)"):
            places.rows(code, places.kept_indices(code, "row"))
            self.carried()
            with code.block(f"for ({index} start = 0; start < length; start += {_EACH * block})"):
                code.add(f"const {index} own = start + {_EACH} * threadIdx.x;")
                for number in self.scans:
                    code.add(f"{self.type_of(number)} x{number}[{_EACH}];")
                with self.each(_EACH, "own"):
                    for number, value in self.elements(places.along(code, "e")).items():
                        code.add(
                            f"x{number}[j] = own + j < length ? {value} : Scan{number}::none();"
                        )
                for number in self.scans:
                    code.add("#pragma unroll")
                    code.add(
                        f"for (int j = 1; j < {_EACH}; ++j) "
                        f"x{number}[j] = Scan{number}::pair(x{number}[j - 1], x{number}[j]);"
                    )
                    code.add(f"{self.type_of(number)} all{number};")
                    code.add(
                        f"const {self.type_of(number)} far{number} = "
                        f"Scan{number}::pair(c{number}, ahead<Scan{number}, {block // WARP}>("
                        f"x{number}[{_EACH - 1}], (Scan{number}::T*)room, all{number}));"
                    )
                    code.add(f"c{number} = Scan{number}::pair(c{number}, all{number});")
                with self.each(_EACH, "own"), code.block("if (own + j < length)"):
                    scanned = {
                        number: code.name(
                            f"Scan{number}::pair(far{number}, x{number}[j])",
                            self.graph.layouts[number].dtype.name,
                        )
                        for number in self.scans
                    }
                    self.results(places.along(code, "e"), scanned)
        return "\n".join(code.lines)

    @contextmanager
    def each(self, count: int, first: str) -> Iterator[None]:
        """Run what is added inside for each of a thread's elements, ``e`` of them in the row."""
        code = self.code
        code.add("#pragma unroll")
        with code.block(f"for (int j = 0; j < {count}; ++j)"):
            # past the end the last element stands in: it is not used
            code.add(
                f"const {self.places.index} e = {first} + j < length ? {first} + j : length - 1;"
            )
            yield


def scan_schedule(group: Group, shape: Nest, index_bits: int, processors: int) -> Grid:
    """Return the default schedule of a scan group."""
    if shape.columns:
        return Grid(128, 1, index_bits)
    if not scans_in_order(group):
        return Grid(256, 1, index_bits)
    # warps share a block once each multiprocessor has one
    warps = min(SHARED_BYTES // square_bytes(group), row_count(shape) // (WARP * processors), 4)
    return Grid(WARP * max(warps, 1), 1, index_bits)
