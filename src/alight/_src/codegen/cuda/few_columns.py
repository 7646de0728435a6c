"""CUDA C of reductions of few columns, and what puts together the parts of any: threads side by
side have columns side by side, and those behind them the lanes of their chunks.

A thread reads the eight elements of its lane before it computes the first, so a block waits for
memory once for each turn, however few columns there are: sums of products, whose operands move
along some of the columns each, are of this kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._src.codegen.common.source import Statements
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.ir.table_reduction import CHUNK, LANES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alight._src.codegen.cuda.column_kernels import Columns
    from alight._src.codegen.cuda.reduction_steps import CudaReduction

_STEPS = CHUNK // LANES
# Threads that put together the parts of columns, and how many of these lie side by side: a sector
# of memory, which is read as a whole, holds eight float32.
WHOLE_BLOCK, WHOLE_SIDE = 1024, 8
_READ = 8  # parts of a column that a thread reads before the first two meet
NEIGHBOURS = """
// of threads of a block that have SIDE columns: each with the one behind it, then by twos, fours …
template <typename F, int FROM, int TO, int SIDE>
__device__ __forceinline__ typename F::S neighbours(typename F::S s, typename F::S* room) {
#pragma unroll
  for (int far = FROM; far < TO; far *= 2) {
    __syncthreads();
    room[threadIdx.x] = s;
    __syncthreads();
    if ((int)threadIdx.x / SIDE % (2 * far) == 0) s = F::pair(s, room[threadIdx.x + far * SIDE]);
  }
  return s;
}
// what the first of every COUNT of them has, for all of these
template <int COUNT, int SIDE, typename T> __device__ __forceinline__ T told(T s, T* room) {
  __syncthreads();
  room[threadIdx.x] = s;
  __syncthreads();
  return room[threadIdx.x / SIDE / COUNT * COUNT * SIDE + threadIdx.x % SIDE];
}
"""


def room_for(reductions: Mapping[int, CudaReduction], threads: int) -> str:
    """Return the shared memory in which states of so many threads meet, one reduction after
    another."""
    most = max(reduction.state_bytes for reduction in reductions.values())
    return f"__shared__ long long room[{-(-most * threads // 8)}];"


def narrow_kernel(form: Columns) -> str:
    """Return the body of the kernel that goes over few columns."""
    code, places, grid = form.code, form.places, form.grid
    index = places.index
    side, together = grid.block // grid.team, grid.team // LANES
    code.add(room_for(form.reductions, grid.block))
    code.add(f"const int beside = threadIdx.x % {side}, place = (int)threadIdx.x / {side};")
    # lane i meets lane i + 8 first, then i + 4: of neighbours the bits are the other way round
    code.add("const int lane = (place & 1) << 3 | (place & 2) << 1 | (place & 4) >> 1 |")
    code.add("    (place & 8) >> 3;")
    code.add(f"const {index} tiles = (columns + {side - 1}) / {side};")
    first = "blockIdx.x" if index == "int" else "(long long)blockIdx.x"
    with code.block(f"for ({index} own = {first}; own < tiles * parts; own += gridDim.x)"):
        # threads without a column do what those of the last one do, as blocks meet as a whole
        code.add(f"const {index} at = own % tiles * {side} + beside, part_number = own / tiles;")
        code.add("const bool here = at < columns && place == 0;")
        code.add(f"const {index} column = at < columns ? at : columns - 1;")
        code.add(f"const {index} begin = part_number * part;")
        code.add(f"const {index} end = begin + part < length ? begin + part : length;")
        places.rows(code, places.kept_indices(code, "column"))
        for number, reduction in form.reductions.items():
            code.add(f"{reduction.state} f{number};")
            if grid.turns > 1:
                code.add(f"Counter<{reduction.name}> c{number};")
        form.pivots()
        with code.block(f"for ({index} row = begin; row < end; row += {CHUNK * together})"):
            code.add(f"const {index} mine = row + place / {LANES} * {CHUNK};")
            _turn(form, side)
        for number, reduction in form.reductions.items():
            if grid.turns > 1:
                code.add(f"f{number} = c{number}.total();")
            if grid.cut:
                code.add(f"if (here) w{number}[part_number * columns + column] = f{number};")
            else:
                form.deliver(code, number, reduction, "here")
    return "\n".join(code.lines)


def _turn(form: Columns, side: int) -> None:
    """Add the reductions of the chunks that a block has at a time."""
    code, places, grid = form.code, form.places, form.grid
    read = form.read([*form.reductions.values()])
    for place in read:
        code.add(f"{places.words[place]} y{place}[{_STEPS}];")
    code.add("#pragma unroll")
    with code.block(f"for (int j = 0; j < {_STEPS}; ++j)"):
        # past the end the last row stands in, so that nothing waits for a branch
        code.add(f"const {places.index} i = mine + lane + {LANES} * j;")
        code.add(f"const {places.index} r = i < end ? i : end - 1;")
        offsets = places.along(code, "r")
        for place in read:
            code.add(f"y{place}[j] = q{place}[{offsets[place]}];")
    for number, reduction in form.reductions.items():
        lanes(form, reduction, False)
        kind, room = f"{reduction.lanes}", f"({reduction.lanes}::S*)room"
        if reduction.moments:
            code.add(f"a{number} = neighbours<{kind}, 1, {LANES}, {side}>(a{number}, {room});")
            real = reduction.type
            code.add(f"const {real} total{number} = told<{LANES}, {side}>(a{number}, {room});")
            code.add(f"const int some{number} = mine + {CHUNK} <= end ? {CHUNK} :")
            code.add("    mine < end ? (int)(end - mine) : 0;")
            code.add(
                f"const {real} mean{number} = some{number} == {CHUNK} ? total{number} * "
                f"({real})(1.0 / {CHUNK}) : total{number} / ({real})some{number};"
            )
            lanes(form, reduction, True)
            code.add(f"b{number} = neighbours<{kind}, 1, {LANES}, {side}>(b{number}, {room});")
            code.add(
                f"f{number} = some{number} ? {reduction.state}{{({real})some{number}, "
                f"total{number}, b{number}}} : {reduction.name}::none();"
            )
        else:
            code.add(f"f{number} = a{number};")
        lanes_each = LANES if reduction.moments else 1
        met = f"neighbours<{reduction.name}, {lanes_each}, {grid.team}, {side}>"
        code.add(f"f{number} = {met}(f{number}, ({reduction.state}*)room);")
        if grid.turns > 1:
            code.add(f"if (place == 0) c{number}.push(f{number});")


def lanes(form: Columns, reduction: CudaReduction, spread: bool) -> None:
    """Add the reduction of a thread's lane; ``spread``: of squared distances from the mean."""
    code = form.code
    state = f"{'b' if spread else 'a'}{reduction.number}"
    code.add(f"{reduction.lanes}::S {state} = {reduction.lanes}::none();")
    code.add("#pragma unroll")
    with code.block(f"for (int j = 0; j < {_STEPS}; ++j)"):
        code.add(f"const {form.places.index} i = mine + lane + {LANES} * j;")
        known = form.values({place: f"y{place}[j]" for place in form.read([reduction])})
        value = form.element(reduction, known, "i", spread)
        none = f"{reduction.lanes}::none()"
        code.add(f"{state} = {reduction.lanes}::pair({state}, i < end ? {value} : {none});")


def combined(form: Columns) -> str:
    """Return the body of the kernel that reduces what the parts of each column left."""
    places, side = form.places, WHOLE_SIDE
    index = places.index
    code = Statements(CUDA, form.outside)
    code.add(room_for(form.reductions, WHOLE_BLOCK))
    code.add(f"const int place = (int)threadIdx.x / {side};")
    first = "blockIdx.x" if index == "int" else "(long long)blockIdx.x"
    with code.block(f"for ({index} tile = {first}; tile * {side} < columns; tile += gridDim.x)"):
        code.add(f"const {index} at = tile * {side} + (int)threadIdx.x % {side};")
        code.add("const bool here = at < columns && place == 0;")
        code.add(f"const {index} column = at < columns ? at : columns - 1;")
        places.rows(code, places.kept_indices(code, "column"))
        for number, reduction in form.reductions.items():
            parts_met(code, index, number, reduction, ("place", "columns", "column"))
            met = f"neighbours<{reduction.name}, 1, {WHOLE_BLOCK // side}, {side}>"
            code.add(f"f{number} = {met}(f{number}, ({reduction.state}*)room);")
            form.deliver(code, number, reduction, "here")
    return "\n".join(code.lines)


def parts_met(
    code: Statements, index: str, number: int, reduction: CudaReduction, names: Sequence[str]
) -> None:
    """Add the reduction of those parts of a row that are a thread's: ``names`` are its number among
    those of the row, how many rows there are, and which one this is."""
    place, rows, row = names
    code.add(f"{reduction.state} f{number};")
    code.add(f"Counter<{reduction.name}> c{number};")
    with code.block(f"for ({index} i = 0; i < each; i += {_READ})"):
        code.add(f"{reduction.state} s[{_READ}];")
        code.add("#pragma unroll")
        with code.block(f"for (int j = 0; j < {_READ}; ++j)"):
            code.add(f"const {index} own = {place} * each + i + j;")
            code.add(
                f"s[j] = i + j < each && own < parts ? w{number}[own * {rows} + {row}] : "
                f"{reduction.name}::none();"
            )
        code.add(f"f{number} = adjacent<{reduction.name}, {_READ}>(s);")
        code.add(f"if (each > {_READ}) c{number}.push(f{number});")
    code.add(f"if (each > {_READ}) f{number} = c{number}.total();")
