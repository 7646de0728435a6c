"""Explicit vectors: loops that make the values of a group many lanes at a time.

How an operand moves from one element to the next is part of the code: see ``loops.Nest``. The last
elements, where they do not fill a vector, are loaded and stored apart; in the lanes left over the
first of them stands again, so that no flag is raised that no element raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from alight._src.base.records import dataclass, replace
from alight._src.codegen.llvm.blocks import first_lanes, letter, picks
from alight._src.codegen.llvm.expressions import Code, memory_type, register_type
from alight._src.codegen.llvm.interleaved import put_together, taken_apart
from alight._src.codegen.llvm.tiles import run_copy_function
from alight._src.codegen.llvm.turned import Turn, load_turned, turned_lanes
from alight._src.ir.body import kind_of, part_of, width_of
from alight._src.ir.graph import Graph, Node
from alight._src.ir.op_table import trees


@dataclass(frozen=True, slots=True)
class Width:
    """How many elements go together, and whether the machine has masked loads and stores of any
    type."""

    lanes: int
    masked: bool


@dataclass(frozen=True, slots=True)
class Record:
    """Of which packed records an operand is one field: a number for them, where they lie, how many
    fields they have, and which one it is."""

    number: int
    base: str
    fields: int
    place: int


@dataclass(frozen=True, slots=True)
class Operand:
    """Where an operand's first element is, how it moves (see ``loops.Nest``; or w(hole): it is
    contiguous and has room for whole vectors; or t(urned) round the ends of its rows) and, where
    the code does not know it, the bytes from one element to the next. All fields of a record are
    operands of one loop."""

    dtype: str
    motion: str
    base: str
    step: str = ""
    record: Record | None = None
    turn: Turn | None = None

    def after(self, code: Code, start: str) -> Operand:
        """Return the operand some elements on."""
        if self.motion == "b":
            return self
        far = code.emit(f"mul i64 {start}, {_step(self)}")
        record = self.record
        if record is not None:
            record = replace(record, base=code.offset(record.base, far))
        turn = self.turn and self.turn.after(code, start)
        return replace(self, base=code.offset(self.base, far), record=record, turn=turn)


@dataclass(frozen=True, slots=True)
class Stage:
    """One loop: values it reads, by number, nodes, and values it writes."""

    reads: Mapping[int, Operand]
    nodes: Sequence[tuple[int, Node]]
    writes: Sequence[tuple[int, Operand]]


# The bytes of a cache line: what is written past the caches should be whole ones.
_LINE = 64
# Of more runs of memory than this, read side by side where special functions are computed, lines
# are asked for so many bytes ahead: between long computations the processor does not look so far.
# 16 rows of 8 MB in a Monte Carlo took 6.5 ms for 8.0 in float64, of 4 MB in float32 2.9 for 3.4;
# 256 and 1024 bytes as long as 512, and eight rows as long as without (EPYC). Windows of one array,
# which stencils read side by side, are in the cache already.
_RUNS, _AHEAD_BYTES = 8, 512


def stage_loop(
    code: Code, graph: Graph, stage: Stage, count: str, width: Width, stream: bool = False
) -> None:
    """Add the loop of a stage over ``count`` elements, at least one. If asked to, results go past
    the caches where that can be: their vectors are aligned, and they replace no operand."""
    lanes = width.lanes
    reads = {value: _Move(code, operand, width) for value, operand in stage.reads.items()}
    writes = [(value, _Move(code, operand, width)) for value, operand in stage.writes]
    fixed = {value: m.load("0") for value, m in reads.items() if m.motion == "b"}
    past = [move for _, move in writes if move.motion == "c"] if stream else []
    # the first elements, up to where the results are aligned, go like the last ones
    head = past[0].unaligned() if past else "0"
    given = [move for move in reads.values() if move.motion == "c"]
    free = _free(code, past, head, given, lanes) if past else ""
    with _vectors(code, count, lanes, head, free) as (index, rest):
        full = code.emit(f"icmp sge i64 {rest}, {lanes}")
        known = dict(fixed)
        moving = {value: move for value, move in reads.items() if move.motion not in "bw"}
        special = any(node.op.special for _, node in stage.nodes)
        columns: dict[tuple[str, str], str] = {}
        for move in moving.values():
            if move.turn is not None:
                move.round = turned_lanes(code, move.turn, index, lanes, columns)
        known |= _loaded(code, moving, index, rest, full, special)
        known |= {value: move.load(index) for value, move in reads.items() if move.motion == "w"}
        code.known = {}
        for number, node in stage.nodes:
            dtypes = [graph.layouts[i].dtype for i in node.operands]
            found = trees(node.op, dtypes, node.layout.dtype)
            assert found is not None  # gaps.check has seen to it
            tree = found[node.attr("output", 0)]
            (known[number],) = code.evaluate((tree,), [known[i] for i in node.operands], lanes)
        code.known = None
        # every load stands before every store: an output may be one of the inputs
        for number, move in writes:
            if move.motion == "w":
                move.store(known[number], index)
        rows = [(known[number], move) for number, move in writes if move.motion != "w"]
        if rows:
            whole, part, after = (code.label(stem) for stem in ("whole", "part", "next"))
            code.do(f"br i1 {full}, label %{whole}, label %{part}, !prof !2")
            code.start(part)
            for value, move in rows:
                move.store_part(value, index, rest)
            code.do(f"br label %{after}")
            code.start(whole)
            if past:
                plain, away = code.label("plain"), code.label("away")
                code.do(f"br i1 {free}, label %{away}, label %{plain}")
                code.start(away)
                _stored(rows, index, past)
                code.do(f"br label %{after}")
                code.start(plain)
            _stored(rows, index)
            code.do(f"br label %{after}")
            code.start(after)


def _free(code: Code, past: Sequence[_Move], head: str, given: Sequence[_Move], lanes: int) -> str:
    """Return whether results may go past the caches: after fewer elements than a vector has all
    are aligned, and none replaces an operand."""
    # In numbers, not in flags: LLVM's scalar evolution takes a chain of flags for a minimum of them
    # and sorts it at every link. For 44 results and 44 scalars that took 4.9 of 5.3 s. Nor by one
    # operation that could be done in any order, for which its combiner looks: 116 results of 47
    # operands took 1.6 of 2.8 s.
    gap = "0"
    for move in past:
        gap = code.emit(f"or i64 {gap}, {move.gap(head)}")
        for other in given:
            if other.size == move.size:  # else it could not be the same memory
                same = code.emit(f"icmp eq ptr {other.base}, {move.base}")
                gap = code.emit(f"select i1 {same}, i64 1, i64 {gap}")
    few = code.emit(f"icmp ult i64 {head}, {lanes}")
    aligned = code.emit(f"icmp eq i64 {gap}, 0")
    return code.emit(f"and i1 {few}, {aligned}")


@contextmanager
def _vectors(code: Code, count: str, lanes: int, head: str, free: str) -> Iterator[tuple[str, str]]:
    """Run what is added inside for vectors of elements; yield the index of the first and how many
    elements are left, at most. If ``free``, the first ``head`` elements come alone."""
    if not free:
        with code.loop(count, step=lanes) as index:
            yield index, code.emit(f"sub i64 {count}, {index}")
        return
    some = code.emit(f"icmp ne i64 {head}, 0")
    alone = code.emit(f"and i1 {free}, {some}")
    first = code.emit(f"select i1 {alone}, i64 {head}, i64 {lanes}")
    cell = code.alloca("i64")
    code.do(f"store i64 {first}, ptr {cell}")
    with code.runs(count) as run:
        take = code.emit(f"load i64, ptr {cell}")
        left = code.emit(f"sub i64 {count}, {run.start}")
        short = code.emit(f"icmp slt i64 {left}, {take}")
        yield run.start, code.emit(f"select i1 {short}, i64 {left}, i64 {take}")
        run.stop = code.emit(f"add i64 {run.start}, {take}")
        code.do(f"store i64 {lanes}, ptr {cell}")


def _loaded(
    code: Code, moves: Mapping[int, _Move], index: str, rest: str, full: str, special: bool
) -> dict[int, str]:
    """Return the values loaded from an index on; ``special``: functions are computed of them."""
    if not moves:
        return {}
    whole, part, after = (code.label(stem) for stem in ("load", "some", "have"))
    code.do(f"br i1 {full}, label %{whole}, label %{part}, !prof !2")
    code.start(part)
    some = {value: move.load_part(index, rest) for value, move in moves.items()}
    end = code.block
    code.do(f"br label %{after}")
    code.start(whole)
    shared: dict[int, list[str]] = {}
    runs = [move for move in moves.values() if move.motion == "c"]
    for move in runs if special and len(runs) > _RUNS else ():
        move.ahead(index)
    every = {value: move.load(index, shared) for value, move in moves.items()}
    code.do(f"br label %{after}")
    code.start(after)
    return {
        value: code.emit(
            f"phi {register_type(move.dtype, move.lanes)} "
            f"[ {every[value]}, %{whole} ], [ {some[value]}, %{end} ]"
        )
        for value, move in moves.items()
    }


def _stored(rows: list[tuple[str, _Move]], index: str, past: Sequence[_Move] = ()) -> None:
    """Write whole vectors; some of them past the caches."""
    records: dict[int, dict[int, tuple[str, _Move]]] = {}
    for value, move in rows:
        if move.record is None:
            move.store(value, index, aligned=move in past)
        else:
            records.setdefault(move.record.number, {})[move.record.place] = value, move
    for fields in records.values():
        fields[0][1].store_records([fields[k][0] for k in range(len(fields))], index)


class _Move:
    """How one operand is read and written, a vector at a time."""

    def __init__(self, code: Code, operand: Operand, width: Width) -> None:
        self.code = code
        self.dtype = operand.dtype
        self.motion = operand.motion
        self.base = operand.base
        self.record = operand.record
        self.turn = operand.turn
        self.round = ""  # the lanes of this vector that have come round
        self.lanes = lanes = width.lanes
        self.size = width_of(self.dtype) // 8
        self.masked = width.masked and kind_of(self.dtype) != "c"
        self.memory = ""
        # No machine gathers or scatters what is narrower than 32 bits: LLVM makes a branch for
        # every lane, and took 0.3 s for the int16 ends of `a[::2] + b`, minutes for twenty such.
        spread = self.size < 4 and self.motion not in "bcw"
        self.narrow = spread and self.motion == "s"
        self.masked = self.masked and not spread
        self.step = _step(operand)
        if self.motion == "s":
            first = code.emit(f"insertelement <{lanes} x i64> poison, i64 {self.step}, i64 0")
            every = self._splat(first, "i64")
        else:
            every = f"splat (i64 {self.step})"
        if self.motion == "s" or (self.masked and self.motion not in "bcwt"):
            count = ", ".join(f"i64 {i}" for i in range(lanes))
            self.offsets = code.emit(f"mul <{lanes} x i64> {every}, <{count}>")

    def _splat(self, vector: str, one: str) -> str:
        whole, mask = f"<{self.lanes} x {one}>", f"<{self.lanes} x i32> zeroinitializer"
        return self.code.emit(f"shufflevector {whole} {vector}, {whole} poison, {mask}")

    def _all(self, value: str, dtype: str) -> str:
        whole, one = register_type(dtype, self.lanes), register_type(dtype)
        return self._splat(
            self.code.emit(f"insertelement {whole} poison, {one} {value}, i64 0"), one
        )

    # --- reading
    def ahead(self, index: str) -> None:
        """Ask for what is to be loaded soon; beyond the end of the run that does nothing."""
        code = self.code
        there = code.offset(code.at(self.base, index, self.dtype), str(_AHEAD_BYTES))
        code.module.share("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        code.do(f"call void @llvm.prefetch.p0(ptr {there}, i32 0, i32 3, i32 1)")

    def load(self, index: str, records: dict[int, list[str]] | None = None) -> str:
        """Return the elements from an index on; ``records`` holds the fields of those loaded."""
        code, dtype, lanes = self.code, self.dtype, self.lanes
        if self.record is not None and records is not None:
            if self.record.number not in records:
                records[self.record.number] = self._fields(self.record, index)
            return records[self.record.number][self.record.place]
        if self.motion in "cw":
            return code.load(code.at(self.base, index, dtype), dtype, lanes=lanes)
        if self.turn is not None:
            return self._turned(index, self.turn)
        if self.narrow:
            return self._copied(index, str(lanes))
        if kind_of(dtype) == "c":
            part = part_of(dtype)
            both = [
                self._load(base, index, part)
                for base in (self.base, code.offset(self.base, str(self.size // 2)))
            ]
            return code.paired(both[0], both[1], dtype, lanes)
        loaded = self._load(self.base, index, "uint8" if dtype == "bool" else dtype)
        return code.truth(loaded, lanes) if dtype == "bool" else loaded

    def _load(self, base: str, index: str, dtype: str) -> str:
        code, lanes = self.code, self.lanes
        whole = register_type(dtype, lanes)
        if self.motion == "b":
            return self._all(code.load(base, dtype), dtype)
        if self.motion == "s":
            return self._gathered(base, index, dtype, "splat (i1 true)", "poison")
        if self.motion == "r":
            last = code.emit(f"sub i64 {-lanes + 1}, {index}")
            loaded = code.load(code.at(base, last, dtype), dtype, lanes=lanes)
            mask = picks(lanes, -1, lanes - 1)
            return code.emit(f"shufflevector {whole} {loaded}, {whole} poison, {mask}")
        return self._every(base, index, int(self.motion), dtype)

    def _every(self, base: str, index: str, step: int, dtype: str) -> str:
        """Return every so many-th element, without reading past the last of them."""
        code, lanes = self.code, self.lanes
        whole = register_type(dtype, lanes)
        start = code.emit(f"mul i64 {index}, {step}")
        last = step * (lanes - 1)
        result = ""
        begins = [min(k * lanes, last - lanes + 1) for k in range(step)]
        for k, begin in enumerate(begins):
            at = code.emit(f"add i64 {start}, {begin}")
            loaded = code.load(code.at(base, at, dtype), dtype, lanes=lanes)
            # lanes made so far stay, those that lie in this vector are picked
            low = begins[k - 1] + lanes if k else 0
            chosen = []
            for i in range(lanes):
                place = step * i
                inside = low <= place < begin + lanes
                chosen.append(f"i32 {lanes + place - begin if inside else i}")
            mask = f"<{lanes} x i32> <{', '.join(chosen)}>"
            made = result or "poison"
            result = code.emit(f"shufflevector {whole} {made}, {whole} {loaded}, {mask}")
        return result

    def _fields(self, record: Record, index: str) -> list[str]:
        """Return the fields of the records from an index on."""
        code, lanes = self.code, self.lanes
        own = "uint8" if self.dtype == "bool" else self.dtype
        first = code.emit(f"mul i64 {index}, {record.fields}")
        vectors = []
        for k in range(record.fields):
            at = code.emit(f"add i64 {first}, {k * lanes}")
            vectors.append(code.load(code.at(record.base, at, own), own, lanes=lanes))
        found = taken_apart(code, vectors, register_type(own, lanes), lanes)
        return [code.truth(v, lanes) for v in found] if self.dtype == "bool" else found

    def store_records(self, fields: list[str], index: str) -> None:
        """Write all fields of the records from an index on."""
        assert self.record is not None
        code, lanes, dtype = self.code, self.lanes, self.dtype
        if dtype == "bool":
            fields, dtype = [code.byte(v, lanes) for v in fields], "uint8"
        first = code.emit(f"mul i64 {index}, {len(fields)}")
        whole = register_type(dtype, lanes)
        for k, vector in enumerate(put_together(code, fields, whole, lanes)):
            at = code.emit(f"add i64 {first}, {k * lanes}")
            code.store(vector, code.at(self.record.base, at, dtype), dtype, lanes=lanes)

    def _address(self, base: str, index: str) -> str:
        return self.code.offset(base, self.code.emit(f"mul i64 {index}, {self.step}"))

    def _pointers(self, base: str, index: str) -> str:
        start = self._address(base, index)
        return self.code.emit(f"getelementptr i8, ptr {start}, <{self.lanes} x i64> {self.offsets}")

    def _gathered(self, base: str, index: str, dtype: str, mask: str, other: str) -> str:
        whole, pointers = register_type(dtype, self.lanes), f"<{self.lanes} x ptr>"
        flags = f"<{self.lanes} x i1>"
        name = f"llvm.masked.gather.v{self.lanes}{letter(dtype)}.v{self.lanes}p0"
        self.code.module.share(name, f"declare {whole} @{name}({pointers}, {flags}, {whole})")
        given = f"{pointers} align 1 {self._pointers(base, index)}, {flags} {mask}, {whole} {other}"
        return self.code.emit(f"call {whole} @{name}({given})")

    def load_part(self, index: str, rest: str) -> str:
        """Return the last elements, ``rest`` of them, fewer than the lanes."""
        code, dtype, lanes = self.code, self.dtype, self.lanes
        if self.turn is not None:
            return self._turned(index, self.turn, self._mask(rest))
        if self.narrow or not self.masked:
            return self._copied(index, rest)
        first = self._address(self.base, index)
        own = "uint8" if dtype == "bool" else dtype
        other = self._all(code.emit(f"load {memory_type(own)}, ptr {first}, align 1"), own)
        mask = self._mask(rest)
        if self.motion == "c":
            whole, flags = register_type(own, lanes), f"<{lanes} x i1>"
            name = f"llvm.masked.load.v{lanes}{letter(own)}.p0"
            code.module.share(name, f"declare {whole} @{name}(ptr, {flags}, {whole})")
            given = f"ptr align 1 {first}, {flags} {mask}, {whole} {other}"
            loaded = code.emit(f"call {whole} @{name}({given})")
        else:
            loaded = self._gathered(self.base, index, own, mask, other)
        return code.truth(loaded, lanes) if dtype == "bool" else loaded

    def _turned(self, index: str, turn: Turn, valid: str = "") -> str:
        given = turn, index, self.lanes, self.round, valid
        return load_turned(self.code, self.dtype, self.base, *given)

    def _copied(self, index: str, count: str) -> str:
        """Return elements that are put side by side first; past the last the first stands again."""
        code = self.code
        copy = run_copy_function(code.module, self.size)
        given = f"ptr {self._memory()}, i64 {self.size}"
        given += f", ptr {self._address(self.base, index)}, i64 {self.step}"
        code.do(f"call void @{copy}({given}, i64 {count}, i64 {self.lanes})")
        return code.load(self._memory(), self.dtype, lanes=self.lanes)

    def _mask(self, rest: str) -> str:
        return first_lanes(self.code, rest, self.lanes)

    def _memory(self) -> str:
        if not self.memory:
            self.memory = self.code.alloca(f"[{self.lanes} x {memory_type(self.dtype)}]")
        return self.memory

    # --- writing
    @property
    def alignment(self) -> int:
        """Return what a vector's address must be a multiple of to go past the caches."""
        return min(_LINE, self.lanes * self.size)

    def unaligned(self) -> str:
        """Return how many elements lie before the first address that is aligned."""
        code = self.code
        address = code.emit(f"ptrtoint ptr {self.base} to i64")
        gap = code.emit(f"and i64 {code.emit(f'sub i64 0, {address}')}, {self.alignment - 1}")
        return code.emit(f"udiv i64 {gap}, {self.size}")

    def gap(self, head: str) -> str:
        """Return how many bytes the element at ``head`` lies behind an aligned address."""
        address = self.code.emit(f"ptrtoint ptr {self._address(self.base, head)} to i64")
        return self.code.emit(f"and i64 {address}, {self.alignment - 1}")

    def store(self, value: str, index: str, aligned: bool = False) -> None:
        """Write the elements from an index on; past the caches if the address is aligned."""
        code, dtype, lanes = self.code, self.dtype, self.lanes
        if self.motion in "cw":
            to = self.alignment if aligned else 0
            code.store(value, code.at(self.base, index, dtype), dtype, lanes=lanes, aligned=to)
            return
        if self.narrow:
            self._spread(value, index, str(lanes))
            return
        if kind_of(dtype) == "c":
            part = part_of(dtype)
            second = code.offset(self.base, str(self.size // 2))
            halves = code.parts(value, dtype, lanes)
            for base, half in zip((self.base, second), halves, strict=True):
                self._scattered(half, base, index, part, "splat (i1 true)")
            return
        if dtype == "bool":
            value, dtype = code.byte(value, lanes), "uint8"
        self._scattered(value, self.base, index, dtype, "splat (i1 true)")

    def _scattered(self, value: str, base: str, index: str, dtype: str, mask: str) -> None:
        code, lanes = self.code, self.lanes
        whole, pointers, flags = memory_type(dtype, lanes), f"<{lanes} x ptr>", f"<{lanes} x i1>"
        name = f"llvm.masked.scatter.v{lanes}{letter(dtype)}.v{lanes}p0"
        code.module.share(name, f"declare void @{name}({whole}, {pointers}, {flags})")
        given = f"{pointers} align 1 {self._pointers(base, index)}, {flags} {mask}"
        code.do(f"call void @{name}({whole} {value}, {given})")

    def _spread(self, value: str, index: str, count: str) -> None:
        """Write the first elements of a vector, put side by side first, where they belong."""
        code = self.code
        code.store(value, self._memory(), self.dtype, lanes=self.lanes)
        copy = run_copy_function(code.module, self.size)
        given = f"ptr {self._address(self.base, index)}, i64 {self.step}"
        given += f", ptr {self._memory()}, i64 {self.size}"
        code.do(f"call void @{copy}({given}, i64 {count}, i64 {count})")

    def store_part(self, value: str, index: str, rest: str) -> None:
        """Write the last elements, ``rest`` of them, fewer than the lanes."""
        code, dtype, lanes = self.code, self.dtype, self.lanes
        if self.narrow or not self.masked:
            self._spread(value, index, rest)
            return
        if dtype == "bool":
            value, dtype = code.byte(value, lanes), "uint8"
        if self.motion != "c":
            self._scattered(value, self.base, index, dtype, self._mask(rest))
            return
        whole, flags = register_type(dtype, lanes), f"<{lanes} x i1>"
        name = f"llvm.masked.store.v{lanes}{letter(dtype)}.p0"
        code.module.share(name, f"declare void @{name}({whole}, ptr, {flags})")
        given = f"ptr align 1 {self._address(self.base, index)}, {flags} {self._mask(rest)}"
        code.do(f"call void @{name}({whole} {value}, {given})")


def _step(operand: Operand) -> str:
    """Return the bytes from one element to the next."""
    if operand.motion == "s":
        return operand.step
    times = {"b": 0, "c": 1, "w": 1, "t": 1, "r": -1}.get(operand.motion)
    return str((int(operand.motion) if times is None else times) * (width_of(operand.dtype) // 8))
