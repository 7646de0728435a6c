"""CUDA C of long reductions of much arithmetic: what is read flows through shared memory.

Blocks stay and take parts of the one row in turn, a run for each warp. While a thread computes some
steps of a run, the next ones, of its next run too, are on their way to places in shared memory that
are its own: neither registers nor anybody else wait for them. What the runs of a block leave meets
when there is a full block of it.
"""

from __future__ import annotations

from alight._src.codegen.common.phases import Pass
from alight._src.codegen.cuda.kernel_program import (
    FETCH,
    PACK,
    Step,
    around,
    power,
    reduction_length,
    row_count,
)
from alight._src.codegen.cuda.nest_choice import SHARED_BYTES
from alight._src.codegen.cuda.reduction_steps import RUN, TREE
from alight._src.codegen.cuda.row_kernels import WHOLE_BLOCK, Rows
from alight._src.codegen.cuda.warp_runs import Way
from alight._src.ir.table_reduction import CHUNK

# Of a block, what it leaves apart: several of them have room on a multiprocessor of any kind that
# has asynchronous copies.
RING_BYTES = 32 << 10
_PACK = 4  # elements of a thread side by side

_FLOW = """
// a pack on its way to shared memory, beside what the thread does; what is side by side with it is
// read soon (H200: x + y summed in 250 µs, without the word 273)
template <typename T> __device__ __forceinline__ void bring(Pack<T, 4>* to, const T* from) {
#if __CUDA_ARCH__ >= 800
#pragma unroll
  for (int i = 0; i < (int)sizeof(T) * 4; i += 16)
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::
      "r"((unsigned int)__cvta_generic_to_shared(to) + i), "l"((const char*)from + i) : "memory");
#else
  *to = *(const Pack<T, 4>*)from;
#endif
}
// all that was brought since the last time is one group
__device__ __forceinline__ void sent() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// all but so many groups are there
template <int LATER> __device__ __forceinline__ void arrived() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" :: "n"(LATER) : "memory");
#endif
}
"""


class Flow(Rows):
    """The text of the reductions of one long row."""

    header = PACK + TREE + FETCH + _FLOW

    def suits(self) -> bool:
        """Tell whether a group is one pass of reductions over 32-bit operands that lie side by
        side, and shared memory has room for what is on its way."""
        if len(self.phases.passes) != 2 or row_count(self.places.shape) != 1:
            return False
        visit, grid = self.phases.passes[0], self.grid
        self.scalar_inputs()
        reads = self.reads(visit)
        sizes = [self.graph.layouts[n].itemsize for n in reads]
        ring = grid.depth * grid.ahead * grid.block * _PACK * sum(sizes)
        states = grid.block * sum([reduction.state_bytes for reduction in self.reductions.values()])
        return (
            self.places.packed
            and self.sole(visit)
            and not any(visit.scalars for visit in self.phases.passes)
            and all(size == 4 for size in sizes)
            and 0 < ring <= RING_BYTES
            and ring + states <= SHARED_BYTES
        )

    def scalar_inputs(self) -> None:
        """Note the inputs that all elements share."""
        for place in range(self.first):
            if self.places.shape.classes[place] == "b":
                self.known[place] = f"p{place}"

    def steps(self) -> tuple[Step, ...]:
        """Return the launches."""
        first, *others = super().steps()
        blocks = around(min(self.parts()[0], self.grid.blocks))
        return (Step(first.entry, blocks, first.threads, first.numbers), *others)

    def parts(self) -> tuple[int, int]:
        """Return in how many parts the row is cut, and how many of them a thread reduces in
        turn."""
        parts = -(-reduction_length(self.places.shape) // (RUN * self.warps))
        return parts, power(-(-parts // WHOLE_BLOCK))

    def kernel(self) -> str:
        """Return the body of the kernel that goes over the row."""
        code, places, block = self.code, self.places, self.grid.block
        index, warps = places.index, self.warps
        (visit, _) = self.phases.passes
        code.add(f"const int t = threadIdx.x % {self.team}, warp = threadIdx.x / 32;")
        code.add(f"const {index} row = 0, end = length;")
        places.rows(code, places.kept_indices(code, "row"))
        self.scalar_inputs()
        for place, name in self.known.items():
            dtype = places.dtypes[place]
            value = places.loaded(code, place, f"*q{place}")
            word = "bool" if dtype == "bool" else places.words[place]
            code.add(f"const {word} {name} = {value};")
        reads = self.reads(visit)
        group = self.grid.depth * self.ahead
        for n in reads:
            code.add(f"__shared__ Pack<{self.word(n)}, 4> ring{n}[{group * block}];")
        first = "blockIdx.x" if index == "int" else "(long long)blockIdx.x"
        code.add(f"const {index} far = ({index})gridDim.x * {RUN * warps};")
        code.add(f"const int own = {CHUNK} * (t % 32 / 4) + 4 * (t % 4);")
        code.add(f"{index} start = {first} * {RUN * warps} + {RUN} * warp;")
        with code.block(f"if (start + {RUN} <= end)"):
            code.add("#pragma unroll")
            with code.block(f"for (int g = 0; g < {self.grid.depth}; ++g)"):
                self.bring(reads, "g", "start + own + 16 * (g * AHEAD + i)")
        code.add("int round = 0;")
        rounds = block // warps
        with code.block(f"for (; start - {RUN} * warp < end; start += far)"):
            for number in visit.reductions:
                code.add(f"{self.reductions[number].state} f{number};")
            self.run(visit, "start")
            with code.block("if (threadIdx.x % 32 == 0)"):
                for number in visit.reductions:
                    state = self.reductions[number].state
                    code.add(f"(({state}*)room{number})[round * {warps} + warp] = f{number};")
            with code.block(f"if (++round == {rounds})"):
                self.meet(visit, "start + far")
                code.add("round = 0;")
        self.meet(visit, "start")
        return "\n".join(code.lines)

    def bring(self, reads: list[int], group: str, element: str) -> None:
        """Add what sends a group of steps on its way."""
        code, ahead, block = self.code, self.ahead, self.grid.block
        code.add("#pragma unroll")
        with code.block(f"for (int i = 0; i < {ahead}; ++i)"):
            for n in reads:
                slot = f"(({group}) % {self.grid.depth} * {ahead} + i) * {block} + threadIdx.x"
                place = element.replace("AHEAD", str(ahead))
                code.add(f"bring(&ring{n}[{slot}], q{n} + {place});")
        code.add("sent();")

    def run(self, visit: Pass, start: str) -> None:
        """Add what a warp does with its run of a part; behind the end there is nothing to
        reduce."""
        code = self.code
        for number in visit.reductions:
            reduction = self.reductions[number]
            code.add(f"{reduction.lanes}::S a{number}[4];")
            code.add("#pragma unroll")
            code.add(f"for (int j = 0; j < 4; ++j) a{number}[j] = {reduction.lanes}::none();")
        code.add(f"const {self.places.index} begin = {start} + own;")
        code.add(f"bool seldom = {start} + {RUN} > end;")
        with code.block("if (!seldom)"):
            code.add(f"const bool more = {start} + far + {RUN} <= end;")
            kept = self.whole, self.way
            self.whole, self.way = True, Way.TOLD
            self.all_steps(visit, "begin")
            self.whole, self.way = kept
        name, given = self.surely(visit)
        with code.block(f"if (seldom && {start} < end)"):
            code.add(f"const {name}_made once = {name}({', '.join((*given, 'begin', 'end'))});")
            code.add("#pragma unroll")
            with code.block("for (int j = 0; j < 4; ++j)"):
                for number in visit.reductions:
                    code.add(f"a{number}[j] = once.a{number}[j];")
        for number in visit.reductions:
            reduction = self.reductions[number]
            code.add(f"f{number} = run<{reduction.name}, 32>(chunk<{reduction.name}>(a{number}));")

    def fetch(self, wanted: list[int], names: dict[int, str], begin: str, together: str) -> None:
        """Add the reads of some steps: of what has arrived, and of what is to come later."""
        if self.way is not Way.TOLD:
            super().fetch(wanted, names, begin, together)
            return
        code, ahead, block, depth = self.code, self.ahead, self.grid.block, self.grid.depth
        for n in wanted:
            code.add(f"{self.word(n)} y{n}[{ahead}][4];")
        code.add(f"arrived<{depth - 1}>();")
        code.add("#pragma unroll")
        with code.block(f"for (int i = 0; i < {ahead}; ++i)"):
            slot = f"(first / {ahead} % {depth} * {ahead} + i) * {block} + threadIdx.x"
            for n in wanted:
                code.add(f"const Pack<{self.word(n)}, 4> pack{n} = ring{n}[{slot}];")
                code.add("#pragma unroll")
                code.add(f"for (int j = 0; j < 4; ++j) y{n}[i][j] = pack{n}.v[j];")
        steps, later = self.grid.steps, depth * ahead
        # where there is no run to come the last one's first steps are brought again: no branch
        code.add(
            f"const {self.places.index} next = first + {later} < {steps} ? begin : "
            f"(more ? begin + far : begin) - {16 * steps};"
        )
        self.bring(wanted, f"first / {ahead}", f"next + 16 * (first + {later} + i)")

    def meet(self, visit: Pass, after: str) -> None:
        """Add what reduces the runs of each part that lie in shared memory; the next part of this
        thread's warp would begin at ``after``."""
        code, warps = self.code, self.warps
        code.add("__syncthreads();")
        with code.block(""):
            code.add(f"const int back = round - (int)threadIdx.x / {warps};")
            code.add(
                f"const {self.places.index} part = "
                f"({after} - {RUN} * warp - back * far) / {RUN * warps};"
            )
            for number in visit.reductions:
                reduction = self.reductions[number]
                code.add(
                    f"{reduction.state} s{number} = back > 0 ? (({reduction.state}*)room{number})"
                    f"[threadIdx.x] : {reduction.name}::none();"
                )
                code.add("#pragma unroll")
                code.add(
                    f"for (int mask = 1; mask < {warps}; mask *= 2) "
                    f"s{number} = met<{reduction.name}>(s{number}, mask);"
                )
                code.add(
                    f"if (back > 0 && threadIdx.x % {warps} == 0) w{number}[part] = s{number};"
                )
        code.add("__syncthreads();")
