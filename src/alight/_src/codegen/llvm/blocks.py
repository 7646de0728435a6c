"""LLVM IR text: types, modules, blocks, loops, loads and stores.

Booleans are ``i1`` in registers and a byte in memory, where any byte but 0 is true. A complex
number is a struct of its two parts; of several together, a struct of two vectors.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from alight._src.base.records import dataclass
from alight._src.ir.body import kind_of, part_of, width_of

_FLOATS = {"float16": "half", "float32": "float", "float64": "double"}


def register_type(dtype: str, lanes: int = 0) -> str:
    """Return the type of a value in a register; with lanes, of that many together."""
    kind = kind_of(dtype)
    if kind == "c":
        part = register_type(part_of(dtype), lanes)
        return f"{{ {part}, {part} }}"
    if kind == "b":
        name = "i1"
    elif kind == "f":
        name = _FLOATS[dtype]
    else:
        name = f"i{width_of(dtype)}"
    return f"<{lanes} x {name}>" if lanes else name


def memory_type(dtype: str, lanes: int = 0) -> str:
    """Return the type of a value in memory."""
    return register_type("uint8" if dtype == "bool" else dtype, lanes)


def literal(value: float | int | bool | complex, dtype: str, lanes: int = 0) -> str:
    """Return a constant in LLVM's spelling; floats by their bits, as decimals would not be
    exact."""
    if kind_of(dtype) == "c":
        part = part_of(dtype)
        one = register_type(part, lanes)
        both = (literal(v, part, lanes) for v in (value.real, value.imag))
        return f"{{ {', '.join(f'{one} {v}' for v in both)} }}"
    assert not isinstance(value, complex)
    if kind_of(dtype) == "f":
        if math.isnan(value):
            value = math.nan
        if dtype == "float16":
            text = f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
        else:
            text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    elif dtype == "bool":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return f"splat ({register_type(dtype)} {text})" if lanes else text


class Module:
    """Text of one module: functions, and the declarations and shared functions they need."""

    def __init__(self, quiet: bool = False, explicit: bool = True, vector_bits: int = 0) -> None:
        self.quiet = quiet  # comparisons of vectors that raise no flag for a NaN cost no more here
        self.explicit = explicit  # it says itself where there are vectors
        self.vector_bits = vector_bits  # of one register; 0: unknown
        self.functions: list[str] = []
        self.shared: dict[str, str] = {}
        self.libm: set[str] = set()
        # functions with object code of their own: their names, and all that is needed to make them
        self.apart: dict[str, Mapping[str, str]] = {}
        self.count = 0

    def fresh(self) -> int:
        """Return a number not used in this module."""
        self.count += 1
        return self.count

    def call_libm(self, name: str, dtype: str, arguments: str) -> str:
        """Return the symbol of a C maths function, declared."""
        symbol = name + ("f" if dtype == "float32" else "")
        self.libm.add(symbol)
        result = register_type(dtype)
        # no errno and no state: a call may be hoisted, merged or dropped
        self.shared[symbol] = f"declare {result} @{symbol}({arguments}) #1"
        return symbol

    def share(self, name: str, text: str) -> str:
        """Return the name of a function all kernels of the module may call."""
        self.shared.setdefault(name, text)
        return name

    def text(self, vector_bits: int) -> str:
        """Return the module. Attribute group 0 is for entry points."""
        # alignstack: spill slots that straddle a page slowed a kernel 2-4x when the stack was not
        # aligned
        prefer = f' "prefer-vector-width"="{vector_bits}"' if vector_bits else ""
        if 0 < vector_bits < 512:
            # or vectors in the text that are twice as wide would be made in 512-bit registers
            prefer += f' "min-legal-vector-width"="{vector_bits}"'
        return "\n".join(
            (
                *self.shared.values(),
                *self.functions,
                f"attributes #0 = {{ nounwind alignstack=64{prefer} }}",
                "attributes #1 = { nounwind willreturn memory(none) }",
                f"attributes #2 = {{ nounwind alwaysinline{prefer} }}",
                f"attributes #3 = {{ nounwind noinline alignstack=64{prefer} }}",
                "attributes #4 = { nounwind noinline willreturn memory(none) }",
                "attributes #5 = { nounwind willreturn memory(argmem: readwrite) }",
                "attributes #6 = { nounwind }",
                "!0 = distinct !{}",
                '!1 = !{!"branch_weights", i32 1, i32 1000000}',
                '!2 = !{!"branch_weights", i32 1000, i32 1}',
                "!3 = !{i32 1}",
            )
        )


@dataclass(slots=True)
class Run:
    """A run of indices in a loop over several: whoever writes it says where it stops."""

    start: str
    stop: str = ""


class Blocks:
    """A function body under construction: the current block, loops, memory."""

    def __init__(self, module: Module, interleave: int = 0) -> None:
        self.module = module
        self.interleave = interleave
        self.allocas: list[str] = []
        self.lines: list[str] = []
        self.block = "entry"
        self.known: dict[str, str] | None = None  # instruction → register, where asked for
        self.asked = ""  # lanes for which what is seldom needed is made; empty: all
        self.alone = False  # this is what is seldom needed, in a function of its own
        self.metadata: list[str] = []
        self.by_zero = ""

    # --- lines and blocks
    def emit(self, text: str) -> str:
        """Return the register that holds the result of an instruction."""
        name = f"%v{self.module.fresh()}"
        self.lines.append(f"  {name} = {text}")
        return name

    def pure(self, text: str) -> str:
        """Return the register of an instruction that reads no memory: the one that holds the result
        already, where the block has made it before."""
        if self.known is None:
            return self.emit(text)
        if text not in self.known:
            self.known[text] = self.emit(text)
        return self.known[text]

    def do(self, text: str) -> None:
        """Add an instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self, stem: str) -> str:
        """Return a new label."""
        return f"{stem}{self.module.fresh()}"

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def alloca(self, text: str) -> str:
        """Return stack memory that lives as long as the call."""
        name = f"%a{self.module.fresh()}"
        self.allocas.append(f"  {name} = alloca {text}, align 64")
        return name

    @contextmanager
    def loop(
        self, count: str, parallel: bool = False, step: int = 1, brief: bool = False
    ) -> Iterator[str]:
        """Run what is added inside for 0, step, … below count, which must be at least 1. In a
        parallel loop no iteration reads what another one writes; a brief one is compiled for
        size."""
        head, leave = self.label("loop"), self.label("done")
        before = self.block
        self.do(f"br label %{head}")
        self.start(head)
        index, following = f"%i{self.module.fresh()}", f"%i{self.module.fresh()}"
        place = len(self.lines)
        self.lines.append("")
        yield index
        self.do(f"{following} = add nuw nsw i64 {index}, {step}")
        more = self.emit(f"icmp slt i64 {following}, {count}")
        mark = f", !llvm.loop {self.parallel_loop(brief)}" if parallel else ""
        self.do(f"br i1 {more}, label %{head}, label %{leave}{mark}")
        self.lines[place] = f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{self.block} ]"
        self.start(leave)

    @contextmanager
    def runs(self, count: str) -> Iterator[Run]:
        """Run what is added inside for one run of indices after another, until they have come to
        count, which must be at least 1. Each must be told where it stops, behind its start."""
        cell = self.alloca("i64")
        self.do(f"store i64 0, ptr {cell}")
        head, leave = self.label("runs"), self.label("over")
        self.do(f"br label %{head}")
        self.start(head)
        run = Run(self.emit(f"load i64, ptr {cell}"))
        yield run
        self.do(f"store i64 {run.stop}, ptr {cell}")
        more = self.emit(f"icmp slt i64 {run.stop}, {count}")
        self.do(f"br i1 {more}, label %{head}, label %{leave}")
        self.start(leave)

    def parallel_loop(self, brief: bool) -> str:
        """Return metadata saying that accesses marked with !0 do not depend on one another."""
        number = self.module.fresh()
        parts = [f"!{number}"]
        extra = ['!"llvm.loop.parallel_accesses", !0']
        interleave = 1 if brief else self.interleave
        if interleave:
            extra.append(f'!"llvm.loop.interleave.count", i32 {interleave}')
        if brief:
            extra.append('!"llvm.loop.unroll.disable"')
        for text in extra:
            part = self.module.fresh()
            self.metadata.append(f"!{part} = !{{{text}}}")
            parts.append(f"!{part}")
        self.metadata.append(f"!{number} = distinct !{{{', '.join(parts)}}}")
        return f"!{number}"

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Run what is added inside only if the condition holds."""
        then, leave = self.label("then"), self.label("end")
        self.do(f"br i1 {condition}, label %{then}, label %{leave}")
        self.start(then)
        yield
        self.do(f"br label %{leave}")
        self.start(leave)

    def function(self, signature: str, attributes: str) -> str:
        """Return the finished function."""
        body = "\n".join((*self.allocas, *self.lines))
        metadata = "\n".join(self.metadata)
        return f"define {signature} {attributes} {{\nentry:\n{body}\n}}\n{metadata}"

    # --- memory
    def load(self, pointer: str, dtype: str, parallel: bool = False, lanes: int = 0) -> str:
        """Return the value at an address, which may have any alignment; with lanes, that many in a
        row."""
        mark = ", !llvm.access.group !0" if parallel else ""
        if kind_of(dtype) == "c" and lanes:
            both = register_type(part_of(dtype), 2 * lanes)
            loaded = self.emit(f"load {both}, ptr {pointer}, align 1{mark}")
            return self.apart(loaded, dtype, lanes)
        loaded = self.emit(f"load {memory_type(dtype, lanes)}, ptr {pointer}, align 1{mark}")
        return self.truth(loaded, lanes) if dtype == "bool" else loaded

    def truth(self, loaded: str, lanes: int = 0) -> str:
        """Return bytes of memory as bools."""
        zero = literal(0, "uint8", lanes)
        return self.emit(f"icmp ne {memory_type('bool', lanes)} {loaded}, {zero}")

    def store(
        self,
        value: str,
        pointer: str,
        dtype: str,
        parallel: bool = False,
        lanes: int = 0,
        aligned: int = 0,
    ) -> None:
        """Write one value; with lanes, that many in a row; past the caches if the address is told
        to be aligned to so many bytes."""
        mark = ", !llvm.access.group !0" if parallel else ""
        mark = f"{aligned or 1}{', !nontemporal !3' if aligned else mark}"
        if kind_of(dtype) == "c" and lanes:
            part, both = (register_type(part_of(dtype), n) for n in (lanes, 2 * lanes))
            first, second = self.parts(value, dtype, lanes)
            order = ", ".join(f"i32 {i // 2 + i % 2 * lanes}" for i in range(2 * lanes))
            mask = f"<{2 * lanes} x i32> <{order}>"
            value = self.emit(f"shufflevector {part} {first}, {part} {second}, {mask}")
            self.do(f"store {both} {value}, ptr {pointer}, align {mark}")
            return
        if dtype == "bool":
            value = self.byte(value, lanes)
        self.do(f"store {memory_type(dtype, lanes)} {value}, ptr {pointer}, align {mark}")

    def byte(self, value: str, lanes: int = 0) -> str:
        """Return bools as bytes of memory."""
        one, wide = register_type("bool", lanes), memory_type("bool", lanes)
        return self.emit(f"zext {one} {value} to {wide}")

    # --- complex numbers
    def apart(self, loaded: str, dtype: str, lanes: int) -> str:
        """Return complex numbers that lie one after another, parts and all, as a value."""
        both = register_type(part_of(dtype), 2 * lanes)
        parts = [
            self.emit(f"shufflevector {both} {loaded}, {both} poison, {picks(lanes, 2, place)}")
            for place in (0, 1)
        ]
        return self.paired(parts[0], parts[1], dtype, lanes)

    def parts(self, value: str, dtype: str, lanes: int = 0) -> tuple[str, str]:
        """Return the real and the imaginary part of a complex number."""
        both = register_type(dtype, lanes)
        first, second = (self.pure(f"extractvalue {both} {value}, {i}") for i in (0, 1))
        return first, second

    def paired(self, real: str, imaginary: str, dtype: str, lanes: int = 0) -> str:
        """Return the complex number of two parts."""
        both, part = register_type(dtype, lanes), register_type(part_of(dtype), lanes)
        half = self.pure(f"insertvalue {both} poison, {part} {real}, 0")
        return self.pure(f"insertvalue {both} {half}, {part} {imaginary}, 1")

    def some_lanes(self, value: str, dtype: str, lanes: int, first: int, count: int) -> str:
        """Return so many lanes of a vector, from one on."""
        if kind_of(dtype) == "c":
            part = part_of(dtype)
            found = [
                self.some_lanes(v, part, lanes, first, count)
                for v in self.parts(value, dtype, lanes)
            ]
            return self.paired(found[0], found[1], dtype, count)
        whole = register_type(dtype, lanes)
        mask = picks(count, 1, first)
        return self.emit(f"shufflevector {whole} {value}, {whole} poison, {mask}")

    def sole_lane(self, value: str, dtype: str) -> str:
        """Return the element of a vector of one."""
        if kind_of(dtype) == "c":
            part = part_of(dtype)
            found = [self.sole_lane(v, part) for v in self.parts(value, dtype, 1)]
            return self.paired(found[0], found[1], dtype)
        return self.emit(f"extractelement {register_type(dtype, 1)} {value}, i64 0")

    def at(self, pointer: str, index: str, dtype: str) -> str:
        """Return the address of an element of a contiguous run."""
        return self.emit(f"getelementptr {memory_type(dtype)}, ptr {pointer}, i64 {index}")

    def piece(self, whole: str, start: str, most: int) -> str:
        """Return how many of a whole are left from ``start`` on, or so many where more are."""
        left = self.emit(f"sub i64 {whole}, {start}")
        short = self.emit(f"icmp slt i64 {left}, {most}")
        return self.emit(f"select i1 {short}, i64 {left}, i64 {most}")

    def offset(self, pointer: str, nbytes: str) -> str:
        """Return an address some bytes on."""
        return self.emit(f"getelementptr i8, ptr {pointer}, i64 {nbytes}")


def picks(lanes: int, step: int = 1, start: int = 0) -> str:
    """Return the mask of a shuffle that takes every so many-th lane."""
    chosen = ", ".join(f"i32 {start + step * i}" for i in range(lanes))
    return f"<{lanes} x i32> <{chosen}>"


def letter(dtype: str) -> str:
    """Return a dtype in memory as it stands in the names of intrinsics."""
    return f"{'f' if kind_of(dtype) == 'f' else 'i'}{width_of(dtype)}"


def suffix(dtype: str, lanes: int) -> str:
    """Return the type of a value, or of so many together, as in the names of intrinsics."""
    return f"v{lanes}{letter(dtype)}" if lanes else letter(dtype)


def first_lanes(code: Blocks, count: str, lanes: int) -> str:
    """Return the mask of the first ``count`` lanes of a vector."""
    whole = f"<{lanes} x i32>"
    few = code.emit(f"trunc i64 {count} to i32")
    first = code.emit(f"insertelement {whole} poison, i32 {few}, i32 0")
    every = code.emit(f"shufflevector {whole} {first}, {whole} poison, {whole} zeroinitializer")
    steps = ", ".join(f"i32 {i}" for i in range(lanes))
    return code.emit(f"icmp slt {whole} <{steps}>, {every}")
