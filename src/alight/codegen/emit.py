"""LLVM IR text: typed expressions, loads and stores, loops.

Nothing here carries a fast-math flag (but for ties of zeros) and nothing is contracted, so the
arithmetic is IEEE's as NumPy computes it. Booleans are ``i1`` in registers and a byte in memory,
where any byte but 0 is true.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from alight.ir.body import COMPARISONS, kind_of, width_of

if TYPE_CHECKING:
    from alight.ir.body import Expr

_INTEGER = {
    "add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl",
}  # fmt: skip
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTRINSIC = {
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "fabs": "fabs", "sqrt":
    "sqrt", "copysign": "copysign", "fma": "fma", "popcount": "ctpop",
    "maximum": "maximum", "minimum": "minimum",
}  # fmt: skip


def register_type(dtype: str, lanes: int = 0) -> str:
    """Return the type of a value in a register; with lanes, of that many together."""
    kind = kind_of(dtype)
    if kind == "b":
        name = "i1"
    elif kind == "f":
        name = "float" if dtype == "float32" else "double"
    else:
        name = f"i{width_of(dtype)}"
    return f"<{lanes} x {name}>" if lanes else name


def memory_type(dtype: str, lanes: int = 0) -> str:
    """Return the type of a value in memory."""
    return register_type("uint8" if dtype == "bool" else dtype, lanes)


def literal(value: float | int | bool, dtype: str, lanes: int = 0) -> str:
    """Return a constant in LLVM's spelling; floats by their bits, as decimals would not be
    exact."""
    if kind_of(dtype) == "f":
        if math.isnan(value):
            value = math.nan
        text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    elif dtype == "bool":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    if lanes:
        one = register_type(dtype)
        return f"<{', '.join([f'{one} {text}'] * lanes)}>"
    return text


# what is computed for one element at a time
_SCALAR = frozenset(("libm", "gcd", "ipow", "rarely", "by_zero"))


def scalar_only(tree: Expr) -> bool:
    """Tell whether part of a tree has no form for vectors."""
    return tree.prim in _SCALAR or any(map(scalar_only, tree.args))


class Module:
    """Text of one module: functions, and the declarations and shared functions they need."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.shared: dict[str, str] = {}
        self.libm: set[str] = set()
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
        return "\n".join(
            (
                *self.shared.values(),
                *self.functions,
                f"attributes #0 = {{ nounwind alignstack=64{prefer} }}",
                "attributes #1 = { nounwind willreturn memory(none) }",
                f"attributes #2 = {{ nounwind alwaysinline{prefer} }}",
                f"attributes #3 = {{ nounwind noinline alignstack=64{prefer} }}",
                "!0 = distinct !{}",
            )
        )


class Code:
    """A function body under construction: the current block, expressions, loops."""

    def __init__(self, module: Module, interleave: int = 0) -> None:
        self.module = module
        self.interleave = interleave
        self.allocas: list[str] = []
        self.lines: list[str] = []
        self.block = "entry"
        self.metadata: list[str] = []
        self.by_zero = ""
        self.seldom = ""  # where "rarely" notes that some element needs more; empty: it branches

    # --- lines and blocks
    def emit(self, text: str) -> str:
        """Return the register that holds the result of an instruction."""
        name = f"%v{self.module.fresh()}"
        self.lines.append(f"  {name} = {text}")
        return name

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
        """Return the value at an address, which may have any alignment."""
        mark = ", !llvm.access.group !0" if parallel else ""
        loaded = self.emit(f"load {memory_type(dtype, lanes)}, ptr {pointer}, align 1{mark}")
        if dtype != "bool":
            return loaded
        zero = literal(0, "uint8", lanes) if lanes else "0"
        return self.emit(f"icmp ne {memory_type(dtype, lanes)} {loaded}, {zero}")

    def store(self, value: str, pointer: str, dtype: str, parallel: bool = False) -> None:
        """Write one value."""
        mark = ", !llvm.access.group !0" if parallel else ""
        if dtype == "bool":
            value = self.emit(f"zext i1 {value} to i8")
        self.do(f"store {memory_type(dtype)} {value}, ptr {pointer}, align 1{mark}")

    def at(self, pointer: str, index: str, dtype: str) -> str:
        """Return the address of an element of a contiguous run."""
        return self.emit(f"getelementptr {memory_type(dtype)}, ptr {pointer}, i64 {index}")

    def offset(self, pointer: str, nbytes: str) -> str:
        """Return an address some bytes on."""
        return self.emit(f"getelementptr i8, ptr {pointer}, i64 {nbytes}")

    # --- expressions
    def evaluate(self, trees: tuple[Expr, ...], operands: list[str], lanes: int = 0) -> list[str]:
        """Return the registers that hold the trees' values."""
        done: dict[int, str] = {}

        def value(tree: Expr) -> str:
            if id(tree) not in done:
                if tree.prim == "rarely":
                    done[id(tree)] = rarely(tree)
                else:
                    done[id(tree)] = self._one(tree, [value(a) for a in tree.args], operands, lanes)
            return done[id(tree)]

        def rarely(tree: Expr) -> str:
            condition, common = value(tree.args[0]), value(tree.args[2])
            if self.seldom:
                self.note(self.seldom, condition)
                return common
            one = register_type(tree.dtype)
            cell = self.alloca(one)
            self.do(f"store {one} {common}, ptr {cell}")
            known = dict(done)
            with self.when(condition):
                self.do(f"store {one} {value(tree.args[1])}, ptr {cell}")
            done.clear()  # what was computed inside is not known after it
            done.update(known)
            return self.emit(f"load {one}, ptr {cell}")

        return [value(tree) for tree in trees]

    def _one(self, tree: Expr, args: list[str], operands: list[str], lanes: int) -> str:
        prim = tree.prim
        if prim == "operand":
            position: int = tree.value
            return operands[position]
        if prim == "const":
            return literal(tree.value, tree.dtype, lanes)
        source = tree.args[0].dtype
        kind = kind_of(source)
        one = register_type(source, lanes)
        if prim == "where":
            result = register_type(tree.dtype, lanes)
            return self.emit(f"select {one} {args[0]}, {result} {args[1]}, {result} {args[2]}")
        if prim in COMPARISONS:
            return self.emit(f"{_comparison(prim, kind)} {one} {args[0]}, {args[1]}")
        if prim == "cast":
            return self.cast(args[0], source, tree.dtype, lanes)
        if prim == "bitcast":
            return self.emit(f"bitcast {one} {args[0]} to {register_type(tree.dtype, lanes)}")
        if prim == "neg":
            minus = "fneg" if kind == "f" else "sub"
            first = "" if kind == "f" else f"{_zero(lanes)}, "
            return self.emit(f"{minus} {one} {first}{args[0]}")
        if prim == "not":
            ones = literal(True if kind == "b" else -1, source, lanes)
            return self.emit(f"xor {one} {args[0]}, {ones}")
        if prim in _INTRINSIC:
            # which zero a tie gives is left open (nsz): NumPy's own differs between its loops
            loose = "nsz " if prim in ("maximum", "minimum") else ""
            name = f"llvm.{_INTRINSIC[prim]}.{_suffix(source, lanes)}"
            self.module.shared[name] = f"declare {one} @{name}({', '.join([one] * len(args))})"
            return self.emit(f"call {loose}{one} @{name}({', '.join(f'{one} {a}' for a in args)})")
        if prim == "libm":
            types = [register_type(a.dtype) for a in tree.args]
            symbol = self.module.call_libm(tree.value, source, ", ".join(types))
            given = ", ".join(f"{t} {a}" for t, a in zip(types, args, strict=True))
            return self.emit(f"call {one} @{symbol}({given})")
        if prim == "by_zero":
            self.note_zero(args[1])
            return args[0]
        if prim == "gcd":
            return self._gcd(args, source)
        if prim == "ipow":
            name = self.module.share(f"ipow.{one}", _IPOW.replace("INT", one))
            return self.emit(f"call {one} @{name}({one} {args[0]}, {one} {args[1]})")
        name = _FLOAT[prim] if kind == "f" else _integer(prim, kind)
        return self.emit(f"{name} {one} {args[0]}, {args[1]}")

    def note_zero(self, condition: str) -> None:
        """Remember that an integer was divided by zero if the condition holds."""
        if not self.by_zero:
            self.by_zero = self.alloca("i1")
            self.allocas.append(f"  store i1 false, ptr {self.by_zero}")
        self.note(self.by_zero, condition)

    def note(self, cell: str, condition: str) -> None:
        """Set a flag on the stack if the condition holds."""
        before = self.emit(f"load i1, ptr {cell}")
        self.do(f"store i1 {self.emit(f'or i1 {before}, {condition}')}, ptr {cell}")

    def finish(self) -> None:
        """Return from the kernel; raise the divide-by-zero flag if it was asked for."""
        if self.by_zero:
            with self.when(self.emit(f"load i1, ptr {self.by_zero}")):
                # volatile: otherwise the division is done by the compiler, which raises nothing
                zero = self.alloca("double")
                self.do(f"store volatile double 0.0, ptr {zero}")
                divisor = self.emit(f"load volatile double, ptr {zero}")
                infinity = self.emit(f"fdiv double 1.0, {divisor}")
                self.do(f"store volatile double {infinity}, ptr {zero}")
        self.do("ret void")

    def _gcd(self, args: list[str], dtype: str) -> str:
        one = register_type(dtype)
        if kind_of(dtype) == "i":
            magnitude = []
            for arg in args:
                minus = self.emit(f"sub {one} 0, {arg}")
                below = self.emit(f"icmp slt {one} {arg}, 0")
                magnitude.append(self.emit(f"select i1 {below}, {one} {minus}, {one} {arg}"))
            args = magnitude
        name = self.module.share(f"gcd.{one}", _GCD.replace("INT", one))
        return self.emit(f"call {one} @{name}({one} {args[0]}, {one} {args[1]})")

    def cast(self, value: str, source: str, target: str, lanes: int = 0) -> str:
        """Return a value in another dtype, as NumPy's C casts give it on common machines."""
        a, b = kind_of(source), kind_of(target)
        one, two = register_type(source, lanes), register_type(target, lanes)
        if source == target:
            return value
        if b == "b":
            zero = literal(0, source, lanes)
            return self.emit(f"{'fcmp une' if a == 'f' else 'icmp ne'} {one} {value}, {zero}")
        if a == "f" and b == "f":
            wider = width_of(target) > width_of(source)
            return self.emit(f"{'fpext' if wider else 'fptrunc'} {one} {value} to {two}")
        if b == "f":
            return self.emit(f"{'sitofp' if a == 'i' else 'uitofp'} {one} {value} to {two}")
        if a == "f":
            return self._float_to_integer(value, source, target, lanes)
        gained = width_of(target) - (1 if a == "b" else width_of(source))
        if gained == 0:
            return value
        name = "trunc" if gained < 0 else "sext" if a == "i" else "zext"
        return self.emit(f"{name} {one} {value} to {two}")

    def _float_to_integer(self, value: str, source: str, target: str, lanes: int) -> str:
        one = register_type(source, lanes)
        width = width_of(target)
        # Narrow results come through a wider one, so that negative values wrap as they do in NumPy.
        # LLVM leaves out-of-range conversions undefined; freeze makes them merely unspecified.
        through = "int64" if width == 64 or target == "uint32" else "int32"
        wide, flag = register_type(through, lanes), register_type("bool", lanes)
        if target == "uint64":
            edge = literal(2.0**63, source, lanes)
            high = self.emit(f"fcmp oge {one} {value}, {edge}")
            less = self.emit(f"fsub {one} {value}, {edge}")
            value = self.emit(f"select {flag} {high}, {one} {less}, {one} {value}")
        whole = self.emit(f"fptosi {one} {value} to {wide}")
        whole = self.emit(f"freeze {wide} {whole}")
        if target == "uint64":
            top = literal(-(2**63), "int64", lanes)
            flip = self.emit(f"xor {wide} {whole}, {top}")
            return self.emit(f"select {flag} {high}, {wide} {flip}, {wide} {whole}")
        return self.cast(whole, through, target, lanes)


def _zero(lanes: int) -> str:
    return "zeroinitializer" if lanes else "0"


def _comparison(prim: str, kind: str) -> str:
    if kind == "f":
        return "fcmp " + {"eq": "oeq", "ne": "une"}.get(prim, f"o{prim}")
    if prim in ("eq", "ne"):
        return f"icmp {prim}"
    return f"icmp {'s' if kind == 'i' else 'u'}{prim}"


def _integer(prim: str, kind: str) -> str:
    if prim in ("quot", "rem"):
        return f"{'s' if kind == 'i' else 'u'}{'div' if prim == 'quot' else 'rem'}"
    if prim == "shr":
        return "ashr" if kind == "i" else "lshr"
    return _INTEGER[prim]


def _suffix(dtype: str, lanes: int) -> str:
    one = f"{dtype[0]}{width_of(dtype)}" if kind_of(dtype) == "f" else f"i{width_of(dtype)}"
    return f"v{lanes}{one}" if lanes else one


# Euclid on unsigned magnitudes
_GCD = """define internal INT @gcd.INT(INT %a, INT %b) #2 {
entry:
  br label %head
head:
  %x = phi INT [ %a, %entry ], [ %y, %body ]
  %y = phi INT [ %b, %entry ], [ %r, %body ]
  %stop = icmp eq INT %y, 0
  br i1 %stop, label %leave, label %body
body:
  %r = urem INT %x, %y
  br label %head
leave:
  ret INT %x
}"""
# by squaring, wrapping; the exponent is not negative
_IPOW = """define internal INT @ipow.INT(INT %a, INT %b) #2 {
entry:
  br label %head
head:
  %x = phi INT [ %a, %entry ], [ %xx, %body ]
  %n = phi INT [ %b, %entry ], [ %half, %body ]
  %p = phi INT [ 1, %entry ], [ %q, %body ]
  %stop = icmp eq INT %n, 0
  br i1 %stop, label %leave, label %body
body:
  %bit = and INT %n, 1
  %odd = icmp ne INT %bit, 0
  %m = mul INT %p, %x
  %q = select i1 %odd, INT %m, INT %p
  %xx = mul INT %x, %x
  %half = lshr INT %n, 1
  br label %head
leave:
  ret INT %p
}"""
