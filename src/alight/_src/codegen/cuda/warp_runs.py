"""What a warp does with one run of a row, in CUDA C: reads, what is made of them, reduces, writes.

Four threads have a chunk, each four elements side by side in every step. Values that are held stay
in registers between the passes of ``codegen.common.phases``. Where a pass is reductions alone of
what lies side by side, a thread whose part of a run is not usual, or may end early, makes all of it
again in a function of its own: the loop that nearly all runs take has no branch, and needs what it
read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import TYPE_CHECKING

from alight._src.codegen.common.phases import Pass, phases
from alight._src.codegen.common.source import Grid, Statements
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.codegen.cuda.kernel_program import KernelForm
from alight._src.codegen.cuda.reduction_steps import CudaReduction
from alight._src.codegen.cuda.slow_path import RareLaneTest
from alight._src.ir.table_reduction import CHUNK, LANES

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest
    from alight._src.ir.group import Group


def _clear(code: Statements, number: int, kind: str) -> None:
    """Add that the four lanes of a reduction are of nothing."""
    code.add("#pragma unroll")
    code.add(f"for (int j = 0; j < 4; ++j) a{number}[j] = {kind}::none();")


class Way(Enum):
    """What becomes of elements that are not usual."""

    MENDED = "made again at once, from what was read"
    TOLD = "left as they are, and told of"
    SURE = "made as such, as every element is"


class Runs(KernelForm):
    """The runs of one group of rows with one schedule."""

    def __init__(self, group: Group, shape: Nest, grid: Grid) -> None:
        super().__init__(group, shape, grid)
        graph, places = self.graph, self.places
        self.phases = phases(group)
        self.reductions = {
            number: CudaReduction(graph, graph.made_by[number], number)
            for visit in self.phases.passes
            for number in visit.reductions
        }
        self.outputs = {n: p for p, n in enumerate(graph.outputs, self.first)}
        self.cut = grid.cut
        # a row with more than one axis in memory has its elements one by one
        self.single = places.rank - shape.kept == 1
        self.team = grid.team
        self.warps = max(1, grid.team // 32)
        self.ahead = grid.ahead
        self.whole = grid.whole
        self.way = Way.MENDED
        self.told: RareLaneTest | None = None
        # turns whose reductions meet at once, a warp of them; more are counted
        self.together = 1
        if self.warps > 1 and not grid.held:
            self.together = max(1, min(grid.turns, 32 // self.warps))
        self.counted = not grid.held and grid.turns > self.together
        self.outside: dict[str, str] = {}
        self.code = Statements(CUDA, self.outside)
        self.arrays: dict[int, str] = {}  # values held in registers between passes
        self.filled: set[str] = set()  # those of them that have been read or made
        self.known: dict[int, str] = {}
        self.apart: list[str] = []  # functions of what is seldom

    def reads(self, visit: Pass) -> list[int]:
        """Return the wide values that a pass reads: inputs, and what was kept."""
        wanted = {o for n in visit.needed for o in self.graph.made_by[n].operands}
        wanted.update(o for n in visit.reductions for o in self.graph.made_by[n].operands)
        wanted.update(n for n in visit.written if n not in visit.needed)
        return sorted(
            n
            for n in wanted
            if n not in self.known
            and n not in visit.needed
            and (n < self.first or n in self.phases.wide)
        )

    def declare(self, visit: Pass) -> None:
        """Add the arrays of what is held from this pass on."""
        if not self.grid.held:
            return
        later = set()
        passes = self.phases.passes
        for other in passes[passes.index(visit) + 1 : -1]:
            later.update(self.reads(other))
        for number in (*self.reads(visit), *visit.saved):
            if number not in self.arrays and number in later:
                self.arrays[number] = f"h{number}"
                word = self.word(number)
                self.code.add(f"{word} h{number}[{self.grid.steps}][4];")

    def word(self, number: int) -> str:
        dtype = self.graph.layouts[number].dtype.name
        return CUDA.memory.get(dtype, CUDA.type_of(dtype))

    def run(self, visit: Pass, start: str) -> None:
        """Add what a warp does with one run of the row."""
        code, index = self.code, self.places.index
        for number in visit.reductions:
            reduction = self.reductions[number]
            code.add(f"{reduction.lanes}::S a{number}[4];")
            _clear(code, number, reduction.lanes)
            if reduction.moments:
                code.add(f"{reduction.type} z{number}[{self.grid.steps}][4];")
        own = min(self.team, 32)
        code.add(
            f"const {index} place{code.count} = {start} + {CHUNK} * (t % {own} / 4) + 4 * (t % 4);"
        )
        begin = f"place{code.count}"
        code.count += 1
        # Where several steps are read at once, making few elements again at once was faster (H200,
        # the sum of nine operations: 335 µs against 367), and slower where it is one (moments of a
        # power: 821 against 774).
        if self.sole(visit) and (self.grid.long or (self.grid.whole and self.ahead == 1)):
            self.quickly(visit, start, begin)
        else:
            self.all_steps(visit, begin)
        for number in visit.reductions:
            reduction = self.reductions[number]
            if reduction.moments:
                self.spread(number, start)
            else:
                code.add(f"f{number} = chunk<{reduction.name}>(a{number});")
            code.add(f"f{number} = run<{reduction.name}, {self.team}>(f{number});")

    def all_steps(self, visit: Pass, begin: str) -> None:
        """Add the steps of a run."""
        code, steps, ahead = self.code, self.grid.steps, self.ahead
        written = self.grid.held or any(self.reductions[n].moments for n in visit.reductions)
        unroll = 1 if self.way is Way.SURE else steps if written else self.grid.unroll
        told = self.told = RareLaneTest() if self.way is Way.TOLD and self.grid.depth else None
        before = len(code.lines)
        code.add(f"#pragma unroll {unroll // ahead or 1}")
        with code.block(f"for (int first = 0; first < {steps}; first += {ahead})"):
            self.step(visit, begin)
        self.told = None
        if told and told.ends:
            code.lines[before:before] = [f"{'  ' * code.indent}{line}" for line in told.begun()]
            code.add(f"seldom |= {told.beyond()};")

    # --- passes that are nothing but reductions of inputs side by side
    def sole(self, visit: Pass) -> bool:
        """Tell whether a pass is that."""
        if self.grid.held or not self.single or visit.written:
            return False
        classes = self.places.shape.classes
        return (
            not visit.saved
            and bool(visit.reductions)
            and not any(self.reductions[n].moments for n in visit.reductions)
            and all(n < self.first and classes[n] == "c" for n in self.reads(visit))
        )

    def quickly(self, visit: Pass, start: str, begin: str) -> None:
        """Add a run without branches, and what becomes of one that should have had some."""
        code = self.code
        reads = {n: f"y{n}[0][j]" for n in self.reads(visit)}
        branchy = self.branchy(visit, reads, {}, {n: f"u{n}" for n in visit.reductions})
        if self.whole and not branchy:
            self.all_steps(visit, begin)
            return
        length = self.grid.steps * LANES * min(self.team, 32) // 4
        early = "false" if self.whole else f"{start} + {length} > end"
        code.add(f"bool seldom = {early};")
        with ExitStack() as guarded:
            if not self.whole:
                guarded.enter_context(code.block("if (!seldom)"))
            kept = self.whole, self.way
            self.whole, self.way = True, Way.TOLD
            self.all_steps(visit, begin)
            self.whole, self.way = kept
        name, given = self.surely(visit)
        with code.block("if (seldom)"):
            code.add(f"const {name}_made once = {name}({', '.join((*given, begin, 'end'))});")
            code.add("#pragma unroll")
            with code.block("for (int j = 0; j < 4; ++j)"):
                for number in visit.reductions:
                    code.add(f"a{number}[j] = once.a{number}[j];")

    def surely(self, visit: Pass) -> tuple[str, list[str]]:
        """Return the name of a function that reduces a thread's part of a run of any elements, as
        far as the row goes, and its first arguments."""
        name = f"surely{len(self.apart)}"
        reads = self.reads(visit)
        used = {o for n in (*visit.needed, *visit.reductions) for o in self.operands(n)}
        scalars = [n for n in self.known if n in used]
        index = self.places.index
        parameters = [f"const {self.word(n)}* q{n}" for n in reads]
        parameters += [
            f"const {CUDA.type_of(self.graph.layouts[n].dtype.name)} i{n}" for n in scalars
        ]
        parameters += [f"const {index} begin", f"const {index} end"]
        given = [*(f"q{n}" for n in reads), *(self.known[n] for n in scalars)]
        kept = self.code, self.known, self.ahead, self.way
        self.code, self.ahead, self.way = Statements(CUDA, self.outside), 1, Way.SURE
        self.known = {n: f"i{n}" for n in scalars}
        code = self.code
        code.add(f"{name}_made r;")
        for number in visit.reductions:
            reduction = self.reductions[number]
            code.add(f"{reduction.lanes}::S (&a{number})[4] = r.a{number};")
            _clear(code, number, reduction.lanes)
        self.all_steps(visit, "begin")
        self.code, self.known, self.ahead, self.way = kept
        fields = [f"{self.reductions[n].lanes}::S a{n}[4];" for n in visit.reductions]
        self.put_apart(name, fields, parameters, code)
        return name, given

    def put_apart(
        self, name: str, fields: list[str], parameters: list[str], code: Statements
    ) -> None:
        """Keep a function of what is seldom, which returns ``r`` with these fields."""
        code.add("return r;")
        body = "\n".join(code.lines)
        self.apart.append(
            f"struct {name}_made {{ {' '.join(fields)} }};\n"
            f"static __device__ __noinline__ {name}_made {name}({', '.join(parameters)}) {{\n"
            f"{body}\n}}"
        )

    # --- steps
    @contextmanager
    def each(self, begin: str) -> Iterator[None]:
        """Put what is added inside into a loop over the steps that are read together."""
        code = self.code
        code.add("#pragma unroll")
        with code.block(f"for (int i = 0; i < {self.ahead}; ++i)"):
            code.add("const int k = first + i;")
            code.add(f"const {self.places.index} e = {begin} + 16 * k;")
            yield

    def step(self, visit: Pass, begin: str) -> None:
        """Add what a thread does with four elements side by side, of each of some steps."""
        code, places = self.code, self.places
        together = f"{str(places.packed).lower()}, {str(self.whole).lower()}"
        names: dict[int, str] = {}
        fetched = []
        for number in self.reads(visit):
            held = self.arrays.get(number)
            names[number] = f"{held}[k]" if held else f"y{number}[i]"
            if held and held in self.filled:
                continue
            if held:
                self.filled.add(held)
            fetched.append(number)
        self.fetch(fetched, names, begin, together)
        stored = [*visit.written]
        if not self.grid.held:
            stored += [n for n in visit.saved if n not in stored]
        for number in stored:
            code.add(f"{self.word(number)} x{number}[{self.ahead}][4];")
        for number in visit.reductions:
            code.add(f"{self.reductions[number].type} u{number}[{self.ahead}][4];")
        self.elements(visit, names, stored, begin)
        with self.each(begin):
            offsets = places.along(code, "e") if self.single else []
            for number in stored:
                self.scatter(number, offsets, together)
            code.add("#pragma unroll")
            with code.block("for (int j = 0; j < 4; ++j)"):
                for number in visit.reductions:
                    self.reduction(number)

    def fetch(self, wanted: list[int], names: dict[int, str], begin: str, together: str) -> None:
        """Add the reads of some steps, before the first of them is computed."""
        code, places = self.code, self.places
        for number in wanted:
            if number not in self.arrays:
                code.add(f"{self.word(number)} y{number}[{self.ahead}][4];")
        if not wanted:
            return
        with self.each(begin):
            offsets = places.along(code, "e") if self.single else []
            for number in wanted:
                source = number
                if number >= self.first:
                    source = self.outputs[self.phases.home[number]]
                if self.single and places.shape.classes[source] == "c":
                    place = f"q{source} + {offsets[source]}"
                    code.add(f"fetch<{together}>({names[number]}, {place}, e, end);")
                else:
                    self.gather(names[number], source)

    def gather(self, name: str, source: int) -> None:
        """Add the reads of four elements that are not side by side in memory."""
        code = self.code
        code.add("#pragma unroll")
        with code.block("for (int j = 0; j < 4; ++j)"):
            offset = self.places.along(code, f"(e + j < end ? e + j : ({self.places.index})0)")
            word = self.places.words[source]
            code.add(f"{name}[j] = e + j < end ? q{source}[{offset[source]}] : padding<{word}>();")

    def scatter(self, number: int, offsets: list[str], together: str) -> None:
        """Add the writes of four elements of an output, or of what is kept in one's memory."""
        code, places = self.code, self.places
        home = self.phases.home.get(number, number)
        for place, output in enumerate(self.graph.outputs, self.first):
            if output != home or (home != number and place != self.outputs[home]):
                continue
            with ExitStack() as guarded:
                if not self.cut:
                    guarded.enter_context(code.block("if (here)"))
                if self.single and places.shape.classes[place] == "c":
                    code.add(
                        f"place<{together}>(x{number}[i], q{place} + {offsets[place]}, e, end);"
                    )
                else:
                    code.add("#pragma unroll")
                    with code.block("for (int j = 0; j < 4; ++j) if (e + j < end)"):
                        offset = places.along(code, "(e + j)")
                        code.add(f"q{place}[{offset[place]}] = x{number}[i][j];")

    def elements(self, visit: Pass, names: dict[int, str], stored: list[int], begin: str) -> None:
        """Add what is made of each of four elements; of those that are not usual it is made again
        by a function of its own, as branches between them would keep them from running together."""
        code = self.code
        held = [n for n in visit.needed if n in self.arrays]
        targets = {n: f"x{n}[i][j]" for n in stored}
        targets |= {n: f"{self.arrays[n]}[k][j]" for n in held if n not in targets}
        self.filled.update(self.arrays[n] for n in held)
        made = {n: f"u{n}[i][j]" for n in visit.reductions}
        reads = {n: f"{name}[j]" for n, name in names.items()}
        branchy = self.branchy(visit, reads, targets, made)
        if branchy and self.way is not Way.SURE:
            if self.way is Way.MENDED:
                code.add("bool seldom = false;")
            code.seldom, code.told = "seldom", self.told
        before = len(code.lines)
        if not branchy or self.way is not Way.SURE:
            with self.each(begin):
                code.add("#pragma unroll")
                with code.block("for (int j = 0; j < 4; ++j)"):
                    self.values(code, visit, reads, targets, made)
                    if self.told and self.told.ends:
                        with code.block("if (j % 2)"):
                            for line in self.told.together():
                                code.add(line)
                    for number in held:
                        if number in stored:
                            code.add(f"{self.arrays[number]}[k][j] = x{number}[i][j];")
        code.seldom, code.told = "", None
        if self.told:
            arrays = self.told.arrays(self.ahead)
            code.lines[before:before] = [f"{'  ' * code.indent}{line}" for line in arrays]
        if not branchy or self.way is Way.TOLD:
            return
        used = {o for n in (*visit.needed, *visit.reductions) for o in self.operands(n)}
        given = {n: t for n, t in {**self.known, **reads}.items() if n in used}
        name = self.again(visit, given, reads, targets, made)
        head = "if (seldom)" if self.way is Way.MENDED else ""
        with code.block(head), self.each(begin):
            code.add("#pragma unroll")
            with code.block("for (int j = 0; j < 4; ++j)"):
                code.add(f"const {name}_made once = {name}({', '.join(given.values())});")
                for number, target in targets.items():
                    code.add(f"{target} = once.t{number};")
                for number, target in made.items():
                    code.add(f"{target} = once.f{number};")
                for number in held:
                    if number in stored:
                        code.add(f"{self.arrays[number]}[k][j] = x{number}[i][j];")

    def branchy(
        self,
        visit: Pass,
        reads: dict[int, str],
        targets: dict[int, str],
        made: dict[int, str],
    ) -> bool:
        """Tell whether there are elements that are not usual."""
        trial = Statements(CUDA, self.outside)
        trial.seldom = "seldom"
        self.values(trial, visit, reads, targets, made)
        return any("seldom" in line for line in trial.lines)

    def operands(self, number: int) -> tuple[int, ...]:
        return self.graph.made_by[number].operands

    def again(
        self,
        visit: Pass,
        given: dict[int, str],
        reads: dict[int, str],
        targets: dict[int, str],
        made: dict[int, str],
    ) -> str:
        """Return the name of a function that makes the values of one element, usual or not."""
        name = f"again{len(self.apart)}"
        code = Statements(CUDA, self.outside)
        # by value, as what has an address is in memory
        code.add(f"{name}_made r;")
        inner = {n: f"i{n}" for n in given}
        kept, self.known = self.known, {n: t for n, t in inner.items() if n not in reads}
        self.values(
            *(code, visit, {n: inner[n] for n in reads if n in inner}),
            {n: f"r.t{n}" for n in targets},
            {n: f"r.f{n}" for n in made},
        )
        self.known = kept
        parameters = []
        for n in given:
            dtype = self.graph.layouts[n].dtype.name
            word = self.word(n) if n in reads else CUDA.type_of(dtype)
            parameters.append(f"const {word} i{n}")
        fields = [f"{self.word(n)} t{n};" for n in targets]
        fields += [f"{self.reductions[n].type} f{n};" for n in made]
        self.put_apart(name, fields, parameters, code)
        return name

    def values(
        self,
        code: Statements,
        visit: Pass,
        reads: dict[int, str],
        targets: dict[int, str],
        made: dict[int, str],
    ) -> None:
        """Add what is made of one element, of what was read, into wide targets and values to
        reduce."""
        known = dict(self.known)
        for number, text in reads.items():
            if self.graph.layouts[number].dtype == bool:
                text = code.name(f"{text} != 0", "bool")
            known[number] = text
        for number in visit.needed:
            known[number] = self.places.node(code, number, known)
        for number, target in targets.items():
            code.add(f"{target} = {known[number]};")
        for number, target in made.items():
            reduction = self.reductions[number]
            value = reduction.made(code, [known[o] for o in reduction.node.operands])
            code.add(f"{target} = {value};")

    def reduction(self, number: int) -> None:
        """Add the reduction of one of four elements."""
        code, reduction = self.code, self.reductions[number]
        value, ends = f"u{number}[i][j]", "e + j < end"
        if self.whole:
            ends = "true"
        if reduction.argument:
            state = f"{reduction.state}{{{value}, {ends} ? (long long)(e + j) : -1ll}}"
        elif reduction.moments:
            code.add(f"z{number}[k][j] = {value} - pivot{number};")
            state = f"({ends} ? z{number}[k][j] : {reduction.plain}::none())"
        else:
            state = f"({ends} ? {value} : {reduction.plain}::none())"
        code.add(f"a{number}[j] = {reduction.lanes}::pair(a{number}[j], {state});")

    def spread(self, number: int, start: str) -> None:
        """Add the moments of a chunk: of its elements' distances from their mean."""
        code, reduction = self.code, self.reductions[number]
        own = min(self.team, 32)
        with code.block(""):
            code.add(f"const auto from = {start} + {CHUNK} * (t % {own} / 4);")
            code.add(
                f"const int some = from + {CHUNK} <= end ? {CHUNK} : from < end ? (int)(end - from)"
                " : 0;"
            )
            code.add(f"const {reduction.type} total = chunk<{reduction.plain}>(a{number});")
            code.add(
                f"const {reduction.type} mean = some == {CHUNK} "
                f"? total * ({reduction.type})(1.0 / {CHUNK}) : total / ({reduction.type})some;"
            )
            _clear(code, number, reduction.plain)
            code.add("#pragma unroll")
            with code.block(f"for (int k = 0; k < {self.grid.steps}; ++k)"):
                code.add("#pragma unroll")
                with code.block("for (int j = 0; j < 4; ++j)"):
                    code.add(f"const {reduction.type} away = z{number}[k][j] - mean;")
                    code.add(
                        f"if (16 * k + 4 * (t % 4) + j < some) a{number}[j] = "
                        f"{reduction.plain}::pair(a{number}[j], away * away);"
                    )
            code.add(f"const {reduction.type} squares = chunk<{reduction.plain}>(a{number});")
            code.add(
                f"if (some) f{number} = {{({reduction.type})some, total, squares}}; "
                f"else f{number} = {reduction.name}::none();"
            )
