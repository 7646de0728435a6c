"""CUDA C of groups that go over rows: reductions of rows, and what is made of their results.

A team of threads has a row: four threads for every chunk up to a warp, or a whole block. In the
*held* form each warp has one run of a row and keeps what it read, and what takes long to make, in
registers between the passes of ``codegen.common.phases``; otherwise a pass reads the row again.
Long rows of reductions are cut: each block leaves its state in memory, and a second kernel reduces
those.
"""

from __future__ import annotations

from contextlib import ExitStack

from alight._src.codegen.common.phases import Pass
from alight._src.codegen.common.source import ENTRY, Statements
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.codegen.cuda.few_columns import parts_met
from alight._src.codegen.cuda.kernel_program import (
    FETCH,
    PACK,
    Step,
    around,
    power,
    reduction_length,
    row_count,
    whole_text,
)
from alight._src.codegen.cuda.reduction_steps import RUN, TREE
from alight._src.codegen.cuda.warp_runs import Runs

# Threads that reduce the parts of one row: as many as an SM of any kind has room for at once.
WHOLE_BLOCK = 1024
# Parts of a sole row that a thread has side by side, and how often before they meet where they are
# narrow: all of them are on their way at once, and threads of a warp read whole lines (H200, 2**14
# parts of a sum: 2.5 µs behind the kernel that left them; with sixteen in a row for a thread 8).
_SIDE, _OFTEN = 4, 4
_SOLE = (
    """
// of all parts of a sole row, by one block
template <typename F, typename I> __device__ __forceinline__ typename F::S parts_met(
    const typename F::S* w, I parts, typename F::S* shared) {
  typedef typename F::S S;
  constexpr int PASSES = sizeof(S) <= 4 ? OFTEN : 1;
  Counter<F> counter;
  S f = F::none();
  for (I base = 0; base < parts; base += PASSES * SIDE * BLOCK) {
    S v[PASSES][SIDE], s[PASSES], left[PASSES];
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
      const I at = base + SIDE * (p * BLOCK + (int)threadIdx.x);
      if (at + SIDE <= parts) {
        const Pack<S, SIDE> pack = *(const Pack<S, SIDE>*)(w + at);
#pragma unroll
        for (int j = 0; j < SIDE; ++j) v[p][j] = pack.v[j];
      } else {
#pragma unroll
        for (int j = 0; j < SIDE; ++j) v[p][j] = at + j < parts ? w[at + j] : F::none();
      }
    }
#pragma unroll
    for (int p = 0; p < PASSES; ++p) s[p] = adjacent<F, SIDE>(v[p]);
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2)
#pragma unroll
      for (int p = 0; p < PASSES; ++p) s[p] = met<F>(s[p], mask);
    if (threadIdx.x % 32 == 0)
#pragma unroll
      for (int p = 0; p < PASSES; ++p) shared[p * (BLOCK / 32) + threadIdx.x / 32] = s[p];
    __syncthreads();
#pragma unroll
    for (int p = 0; p < PASSES; ++p) left[p] = shared[threadIdx.x % 32 * PASSES + p];
    f = adjacent<F, PASSES>(left);
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) f = met<F>(f, mask);
    __syncthreads();
    if (parts > PASSES * SIDE * BLOCK) counter.push(f);
  }
  return parts > PASSES * SIDE * BLOCK ? counter.total() : f;
}
""".replace("BLOCK", str(WHOLE_BLOCK))
    .replace("SIDE", str(_SIDE))
    .replace("OFTEN", str(_OFTEN))
)


class Rows(Runs):
    """The text of one group of rows with one schedule."""

    header = PACK + TREE + FETCH

    # --- launches
    def steps(self) -> tuple[Step, ...]:
        """Return the launches."""
        grid, shape = self.grid, self.places.shape
        _, values = self.places.numbers()
        length, rows = reduction_length(shape), row_count(shape)
        parts, each = self.parts()
        part = RUN * self.warps * grid.turns if self.cut else length
        numbers = (rows, length, part, parts, each, *values)
        teams = grid.block // self.team
        steps = [Step(ENTRY, around(-(-rows // teams) * parts), grid.block, numbers)]
        if self.cut:
            steps.append(Step(f"{ENTRY}_whole", around(rows), WHOLE_BLOCK, numbers))
        return tuple(steps)

    def parts(self) -> tuple[int, int]:
        """Return in how many parts a row is cut, and how many of them a thread reduces in turn."""
        if not self.cut:
            return 1, 1
        parts = -(-reduction_length(self.places.shape) // (RUN * self.warps * self.grid.turns))
        return parts, power(-(-parts // WHOLE_BLOCK))

    # --- the text
    def text(self) -> str:
        """Return the text of all kernels."""
        places = self.places
        names, _ = places.numbers()
        states = [f"{reduction.state}* w{n}" for n, reduction in self.reductions.items()]
        parameters = [
            *places.pointers(),
            *(states if self.cut else ()),
            *places.declared(["rows", "length", "part", "parts", "each", *names]),
        ]
        count = self.grid.block if self.grid.depth else self.warps * self.together
        texts = [self.function(ENTRY, self.grid.bounds, count, parameters, self.kernel())]
        if self.cut:
            whole, count = f"{ENTRY}_whole", WHOLE_BLOCK // 32 * (_OFTEN if self.sole_row else 1)
            text = self.function(whole, str(WHOLE_BLOCK), count, parameters, self.combining())
            texts.append(text)
        structures = [reduction.structure(self.outside) for reduction in self.reductions.values()]
        header = self.header + (_SOLE if self.cut and self.sole_row else "")
        return whole_text(self.outside, header, "\n".join((*structures, *self.apart, *texts)))

    @property
    def sole_row(self) -> bool:
        """Whether what parts leave is side by side, as it is of one row."""
        return row_count(self.places.shape) == 1

    def function(self, name: str, bounds: str, count: int, parameters: list[str], body: str) -> str:
        """Return the text of an entry point that has room for so many states of each reduction."""
        rooms = ""
        if count > 1:
            rooms = "".join(
                f"  __shared__ long long room{n}[{-(-reduction.state_bytes * count // 8)}];\n"
                for n, reduction in self.reductions.items()
            )
        return (
            f'extern "C" __global__ void __launch_bounds__({bounds}) {name}(\n'
            f"    {', '.join(parameters)}) {{\n{rooms}{body}\n}}"
        )

    def kernel(self) -> str:
        """Return the body of the kernel that goes over the rows."""
        code, places, team = self.code, self.places, self.team
        index = places.index
        teams = self.grid.block // team
        code.add(f"const int t = threadIdx.x % {team};")
        first = "blockIdx.x" if index == "int" else "(long long)blockIdx.x"
        if self.cut:
            head = f"for ({index} own = {first}; own < rows * parts; own += gridDim.x)"
            with code.block(head):
                code.add(f"const {index} row = own / parts;")
                code.add(f"const {index} begin = own % parts * part;")
                code.add("const bool here = true;")
                self.row()
            return "\n".join(code.lines)
        code.add(f"const {index} begin = 0;")
        head = f"for ({index} base = {first} * {teams}; base < rows;"
        with code.block(f"{head} base += ({index})gridDim.x * {teams})"):
            # threads without a row do what the last row's do, as warps meet as a whole
            code.add(f"const {index} own = base + threadIdx.x / {team};")
            code.add("const bool here = own < rows;")
            code.add(f"const {index} row = here ? own : rows - 1;")
            self.row()
        return "\n".join(code.lines)

    def row(self) -> None:
        """Add what is done for one row."""
        code, places = self.code, self.places
        places.rows(code, places.kept_indices(code, "row"))
        if self.cut:
            code.add("const auto end = begin + part < length ? begin + part : length;")
        else:
            code.add("const auto end = length;")
        if self.single:  # what there is one of for the row
            for place in range(self.first):
                if places.shape.classes[place] == "b":
                    self.known[place] = places.loaded(code, place, f"*q{place}")
        for visit in self.phases.passes[:-1]:
            self.scalars(visit)
            self.visit(visit)
        self.scalars(self.phases.passes[-1])

    def scalars(self, visit: Pass) -> None:
        """Add the values that a row has one of."""
        for number in visit.scalars:
            self.known[number] = self.places.node(self.code, number, self.known)
            self.deliver(number, self.known[number])

    def deliver(self, number: int, value: str) -> None:
        """Store one of a row's results if it is an output."""
        for place, output in enumerate(self.graph.outputs, self.first):
            if output == number:
                self.code.add(f"if (here && t == 0) *q{place} = {value};")

    # --- passes
    def visit(self, visit: Pass) -> None:
        """Add one visit to the row."""
        code = self.code
        if not (visit.reductions or visit.written or visit.saved):
            return
        for number in visit.reductions:
            reduction = self.reductions[number]
            code.add(f"{reduction.state} f{number};")
            if self.counted:
                code.add(f"Counter<{reduction.name}> c{number};")
            if reduction.moments:
                self.pivot(number)
        self.declare(visit)
        self.turns(visit)
        for number in visit.reductions:
            reduction = self.reductions[number]
            if self.counted:
                code.add(f"f{number} = c{number}.total();")
            if self.cut:
                place = "begin / part * rows + row"
                code.add(f"if (t == 0) w{number}[{place}] = f{number};")
                continue
            value = reduction.delivered(code, f"f{number}", "length")
            self.known[number] = code.name(value, reduction.result)
            self.deliver(number, self.known[number])

    def turns(self, visit: Pass) -> None:
        """Add the runs of the row, and their reductions. The warps of a team have runs side by
        side, and all of them then the next, so that what is read at a time is near."""
        code, index, warps = self.code, self.places.index, self.warps
        warp = "(int)threadIdx.x / 32" if warps > 1 else "0"
        start = f"start{code.count}"
        code.count += 1
        if self.grid.turns == 1 or self.grid.held:
            code.add(f"const {index} {start} = begin + {RUN} * ({warp});")
            if self.grid.held:
                self.run(visit, start)
            else:
                self.guarded(visit, start)
            for number in visit.reductions:
                reduction = self.reductions[number]
                room = f"({reduction.state}*)room{number}" if warps > 1 else "nullptr"
                code.add(f"f{number} = block<{reduction.name}, {warps}>(f{number}, {room});")
            return
        together = self.together
        with ExitStack() as blocks:
            enter = blocks.enter_context
            group = ""
            if self.grid.turns > together:
                groups = self.grid.turns // together
                enter(code.block(f"for (int group = 0; group < {groups}; ++group)"))
                group = f"group * {together} + "
            with ExitStack() as inner:
                if together > 1:
                    inner.enter_context(
                        code.block(f"for (int turn = 0; turn < {together}; ++turn)")
                    )
                turn = f"({group}{'turn' if together > 1 else '0'})"
                code.add(
                    f"const {index} {start} = begin + ({index}){RUN} * ({turn} * {warps} + {warp});"
                )
                self.guarded(visit, start)
                for number in visit.reductions if warps > 1 else ():
                    state = self.reductions[number].state
                    place = f"turn * {warps} + {warp}" if together > 1 else warp
                    code.add(
                        f"if (threadIdx.x % 32 == 0) (({state}*)room{number})[{place}] = f{number};"
                    )
            for number in visit.reductions:
                reduction = self.reductions[number]
                if warps > 1:
                    room = f"({reduction.state}*)room{number}"
                    code.add(f"f{number} = gathered<{reduction.name}, {warps * together}>({room});")
                if self.counted:
                    code.add(f"c{number}.push(f{number});")

    def guarded(self, visit: Pass, start: str) -> None:
        """Add a run that may lie behind the end as a whole."""
        for number in visit.reductions:
            self.code.add(f"f{number} = {self.reductions[number].name}::none();")
        with self.code.block(f"if ({start} < end)"):
            self.run(visit, start)

    def pivot(self, number: int) -> None:
        """Add the row's first element, from which moments are measured."""
        code, reduction = self.code, self.reductions[number]
        code.add(f"{reduction.type} pivot{number} = 0;")
        with code.block("if (length > 0)"):
            offsets = self.places.along(code, f"({self.places.index})0")
            known = dict(self.known)
            for operand in reduction.node.operands:
                self.single_value(operand, offsets, known)
            value = reduction.made(code, [known[o] for o in reduction.node.operands])
            code.add(f"pivot{number} = {code.evaluate(reduction.origin[0], [value])};")

    def single_value(self, number: int, offsets: list[str], known: dict[int, str]) -> str:
        """Return a value at one element, made of the inputs alone."""
        if number not in known:
            if number < self.first:
                text = f"q{number}[{offsets[number]}]"
                known[number] = self.places.loaded(self.code, number, text)
            else:
                for operand in self.graph.made_by[number].operands:
                    self.single_value(operand, offsets, known)
                known[number] = self.places.node(self.code, number, known)
        return known[number]

    # --- parts
    def combining(self) -> str:
        """Return the body of the kernel that reduces what the parts of each row left."""
        places, index = self.places, self.places.index
        code = Statements(CUDA, self.outside)
        first = "blockIdx.x" if index == "int" else "(long long)blockIdx.x"
        with code.block(f"for ({index} row = {first}; row < rows; row += gridDim.x)"):
            places.rows(code, places.kept_indices(code, "row"))
            for number, reduction in self.reductions.items():
                if self.sole_row:
                    code.add(
                        f"const {reduction.state} f{number} = parts_met<{reduction.name}>"
                        f"(w{number}, parts, ({reduction.state}*)room{number});"
                    )
                else:
                    self.parts_of_row(code, number)
                value = reduction.delivered(code, f"f{number}", "length")
                for place, output in enumerate(self.graph.outputs, self.first):
                    if output == number:
                        code.add(f"if (threadIdx.x == 0) *q{place} = {value};")
        return "\n".join(code.lines)

    def parts_of_row(self, code: Statements, number: int) -> None:
        """Add the reduction of what the parts of one of many rows left."""
        reduction = self.reductions[number]
        parts_met(code, self.places.index, number, reduction, ("threadIdx.x", "rows", "row"))
        code.add("#pragma unroll")
        code.add(
            f"for (int mask = 1; mask < 32; mask *= 2) f{number} = "
            f"met<{reduction.name}>(f{number}, mask);"
        )
        code.add(
            f"f{number} = block<{reduction.name}, {WHOLE_BLOCK // 32}>(f{number}, "
            f"({reduction.state}*)room{number});"
        )
