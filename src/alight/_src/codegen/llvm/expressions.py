"""LLVM IR text: typed expressions, of one element or of several lanes together.

Nothing here carries a fast-math flag (but for ties of zeros) and nothing is contracted, so the
arithmetic is IEEE's as NumPy computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from alight._src.base.hashing import sha256
from alight._src.codegen.common.trees import VECTORS, ends_of, in_lanes, one_by_one
from alight._src.codegen.llvm.blocks import Module, literal, memory_type, register_type, suffix
from alight._src.codegen.llvm.comparisons import EXTREMES
from alight._src.codegen.llvm.integers import Integers, zero
from alight._src.ir.body import COMPARISONS, kind_of, typed, width_of
from alight._src.ir.maths.coefficients import TABLES

if TYPE_CHECKING:
    from alight._src.ir.body import Expr

__all__ = ["Code", "Module", "literal", "memory_type", "register_type"]

_INTEGER = {
    "add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl",
}  # fmt: skip
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTRINSIC = {
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "fabs": "fabs", "sqrt":
    "sqrt", "copysign": "copysign", "fma": "fma", "popcount": "ctpop",
    "maximum": "maximum", "minimum": "minimum",
}  # fmt: skip


class Code(Integers):
    """A function body under construction."""

    def evaluate(
        self,
        trees: tuple[Expr, ...],
        operands: list[str],
        lanes: int = 0,
        made: dict[int, str] | None = None,
    ) -> list[str]:
        """Return the registers that hold the trees' values; ``made`` has those that are known, by
        the ids of their trees."""
        done: dict[int, str] = dict(made or {})

        def value(tree: Expr) -> str:
            if id(tree) not in done:
                if tree.prim == "rarely" and lanes and not self.alone and one_by_one(tree.args[1]):
                    done[id(tree)] = self._lanes_apart(tree, value, lanes, done)
                elif tree.prim == "rarely" and lanes:
                    done[id(tree)] = seldom(tree)
                elif tree.prim == "rarely":
                    done[id(tree)] = rarely(tree)
                else:
                    done[id(tree)] = self._one(tree, [value(a) for a in tree.args], operands, lanes)
            return done[id(tree)]

        def rarely(tree: Expr) -> str:
            condition, common = value(tree.args[0]), value(tree.args[2])
            one = register_type(tree.dtype)
            cell = self.alloca(one)
            self.do(f"store {one} {common}, ptr {cell}")
            outside, known = dict(done), self.known
            self.known = None if known is None else dict(known)
            with self.when(condition):
                self.do(f"store {one} {value(tree.args[1])}, ptr {cell}")
            done.clear()  # what was computed inside is not known after it
            done.update(outside)
            self.known = known
            return self.emit(f"load {one}, ptr {cell}")

        def seldom(tree: Expr) -> str:
            common = value(tree.args[2])
            apart, after = self.label("other"), self.label("after")
            before, condition = self._seldom_asked(tree.args[0], value, apart, after, lanes)
            outside, known, asked = dict(done), self.known, self.asked
            self.known = None if known is None else dict(known)
            self.asked = self._both(asked, condition, lanes)
            other = value(tree.args[1])
            self.asked = asked
            mixed = self.chosen(condition, other, common, tree.dtype, lanes)
            done.clear()  # what was computed inside is not known after it
            done.update(outside)
            self.known = known
            end = self.block
            self.do(f"br label %{after}")
            self.start(after)
            full = register_type(tree.dtype, lanes)
            return self.emit(f"phi {full} [ {common}, %{before} ], [ {mixed}, %{end} ]")

        return [value(tree) for tree in trees]

    def _lanes_apart(
        self,
        tree: Expr,
        value: Callable[[Expr], str],
        lanes: int,
        done: dict[int, str],
    ) -> str:
        """Return the common value; where the condition holds for some lane, with the other value
        in those lanes, made of what is ``done`` for all by a function that kernels share."""
        common = value(tree.args[2])
        used = ends_of(tree.args[1], done)
        cells = [self.alloca(memory_type(e.dtype, lanes)) for e in used]
        flags, result = (self.alloca(memory_type(d, lanes)) for d in ("bool", tree.dtype))
        apart, after = self.label("apart"), self.label("after")
        before, condition = self._seldom_asked(tree.args[0], value, apart, after, lanes)
        condition = self._both(self.asked, condition, lanes)
        for part, cell in zip(used, cells, strict=True):
            self.store(value(part), cell, part.dtype, lanes=lanes)
        self.store(condition, flags, "bool", lanes=lanes)
        self.store(common, result, tree.dtype, lanes=lanes)
        # A register of each at a time, however many go together here: one function for all kernels.
        widest = max([width_of(part.dtype) for part in (tree, *used)])
        one = min(lanes, self.module.vector_bits // widest or lanes)
        function = _alone(tree.args[1], tuple(used), one)
        self.module.apart[function.name] = function.texts
        self.module.libm |= function.libm
        taken = ", ".join(["ptr"] * (len(cells) + 2))
        self.module.share(function.name, f"declare void @{function.name}({taken}, i64) #5")
        given = ", ".join(f"ptr {cell}" for cell in (*cells, flags, result))
        self.do(f"call void @{function.name}({given}, i64 {lanes})")
        mixed = self.load(result, tree.dtype, lanes=lanes)
        end = self.block
        self.do(f"br label %{after}")
        self.start(after)
        full = register_type(tree.dtype, lanes)
        return self.emit(f"phi {full} [ {common}, %{before} ], [ {mixed}, %{end} ]")

    def _seldom_asked(
        self, tree: Expr, value: Callable[[Expr], str], apart: str, after: str, lanes: int
    ) -> tuple[str, str]:
        """Go on apart where the condition holds in some lane that is asked for, else after; return
        the block that this ends and the condition."""
        opposite = tree.prim == "not" and not self.asked
        if opposite:
            # told by all lanes: no comparison is made a second time, inverted
            held = value(tree.args[0])
            bits = self.pure(f"bitcast <{lanes} x i1> {held} to i{lanes}")
            some = self.pure(f"icmp ne i{lanes} {bits}, -1")
        else:
            condition = value(tree)
            some = self.some(self._both(self.asked, condition, lanes), lanes)
        before = self.block
        # 1 in a million: the code for it is put out of the way
        self.do(f"br i1 {some}, label %{apart}, label %{after}, !prof !1")
        self.start(apart)
        if opposite:
            condition = self.emit(f"xor <{lanes} x i1> {held}, splat (i1 true)")
        return before, condition

    def _both(self, asked: str, condition: str, lanes: int) -> str:
        """Return in which lanes a condition holds that are asked for."""
        if not asked:
            return condition
        return self.pure(f"and {register_type('bool', lanes)} {asked}, {condition}")

    def _one(self, tree: Expr, args: list[str], operands: list[str], lanes: int) -> str:
        prim = tree.prim
        if prim == "operand":
            position: int = tree.value
            return operands[position]
        if prim == "const":
            return literal(tree.value, tree.dtype, lanes)
        if prim == "complex":
            return self.paired(args[0], args[1], tree.dtype, lanes)
        source = tree.args[0].dtype
        kind = kind_of(source)
        one = register_type(source, lanes)
        if prim in ("real", "imag"):
            return self.parts(args[0], source, lanes)[prim == "imag"]
        if prim == "where":
            return self.chosen(args[0], args[1], args[2], tree.dtype, lanes)
        if prim in COMPARISONS:
            return self.relation(prim, args, source, lanes, told=tree.value == "told")
        if prim == "cast":
            return self.cast(args[0], source, tree.dtype, lanes)
        if prim == "bitcast":
            return self.pure(f"bitcast {one} {args[0]} to {register_type(tree.dtype, lanes)}")
        if prim == "neg":
            minus = "fneg" if kind == "f" else "sub"
            first = "" if kind == "f" else f"{zero(lanes)}, "
            return self.pure(f"{minus} {one} {first}{args[0]}")
        if prim == "not":
            ones = literal(True if kind == "b" else -1, source, lanes)
            return self.pure(f"xor {one} {args[0]}, {ones}")
        if prim in EXTREMES and self.quiet(lanes):
            return self.extreme(prim, args[0], args[1], source, lanes)
        if prim in _INTRINSIC:
            # which zero a tie gives is left open (nsz): NumPy's own differs between its loops
            loose = "nsz " if prim in EXTREMES else ""
            name = f"llvm.{_INTRINSIC[prim]}.{suffix(source, lanes)}"
            self.module.shared[name] = f"declare {one} @{name}({', '.join([one] * len(args))})"
            return self.pure(f"call {loose}{one} @{name}({', '.join(f'{one} {a}' for a in args)})")
        if prim == "libm" and lanes and tree.value in VECTORS:
            return self._fmod(args, source, lanes)
        if prim == "libm":
            dtypes = [a.dtype for a in tree.args]
            given = ", ".join(map(register_type, dtypes))
            symbol = self.module.call_libm(tree.value, source, given)
            return self.each(symbol, args, dtypes, tree.dtype, lanes)
        if prim == "apart":
            return self._apart(tree, args, lanes)
        if prim == "table":
            return self._table(tree, args[0], lanes)
        if prim == "by_zero":
            self.note_zero(self.some(args[1], lanes))
            return args[0]
        if prim == "gcd":
            return self.gcd(args, source, lanes)
        if prim == "mulhi":
            return self.high(args, lanes)
        if prim == "ipow":
            return self.power(args, source, lanes)
        if prim in ("quot", "rem") and lanes:
            quotient = self.divided(args, source, lanes)
            if prim == "quot":
                return quotient
            product = self.pure(f"mul {one} {quotient}, {args[1]}")
            return self.pure(f"sub {one} {args[0]}, {product}")
        name = _FLOAT[prim] if kind == "f" else _integer(prim, kind)
        return self.pure(f"{name} {one} {args[0]}, {args[1]}")

    def _apart(self, tree: Expr, args: list[str], lanes: int) -> str:
        """Return a call of a function that all kernels of the module share; in vectors, what it
        computes."""
        name, trees = tree.value
        if lanes:
            return self.evaluate(trees, args, lanes)[0]
        one = register_type(tree.dtype)
        symbol = f"apart.{name}.{one}"
        if symbol not in self.module.shared:
            inner = Code(self.module)
            inner.known = {}
            names = [f"%p{i}" for i in range(len(args))]
            (result,) = inner.evaluate(trees, names)
            inner.do(f"ret {one} {result}")
            given = ", ".join(f"{one} {n}" for n in names)
            text = inner.function(f"internal {one} @{symbol}({given})", "#4")
            self.module.share(symbol, text)
        given = ", ".join(f"{one} {a}" for a in args)
        return self.emit(f"call {one} @{symbol}({given})")

    def _fmod(self, args: list[str], dtype: str, lanes: int) -> str:
        """Return remainders, of quotients of any size: by steps, until no lane has less left."""
        one, whole = register_type(dtype, lanes), f"int{width_of(dtype)}"
        name = f"fmod.{suffix(dtype, lanes)}"
        if name not in self.module.shared:
            code = Code(self.module)
            code.known = {}
            first = typed("fmod_first(x, y)", (dtype, dtype), (dtype, dtype, whole))
            a, b, exponent = code.evaluate(first, ["%x", "%y"], lanes)
            head, leave = code.label("loop"), code.label("done")
            before = code.block
            code.do(f"br label %{head}")
            code.start(head)
            left = f"%i{self.module.fresh()}"
            place = len(code.lines)
            step = typed("fmod_step(x, y, z)", (dtype, dtype, whole), (dtype,))
            (after,) = code.evaluate(step, [left, b, exponent], lanes)
            more = code.some(code.pure(f"fcmp olt {one} {after}, {left}"), lanes)
            code.lines.insert(
                place, f"  {left} = phi {one} [ {a}, %{before} ], [ {after}, %{code.block} ]"
            )
            code.do(f"br i1 {more}, label %{head}, label %{leave}")
            code.start(leave)
            last = typed("fmod_last(x, y, z)", (dtype,) * 3, (dtype,))
            (result,) = code.evaluate(last, ["%x", "%y", after], lanes)
            code.do(f"ret {one} {result}")
            text = code.function(f"internal {one} @{name}({one} %x, {one} %y)", "#3")
            self.module.share(name, text)
        return self.pure(f"call {one} @{name}({one} {args[0]}, {one} {args[1]})")

    def _table(self, tree: Expr, index: str, lanes: int) -> str:
        """Return an element of a table."""
        one = register_type(tree.dtype)
        values = TABLES[tree.value][1]
        full = f"[{len(values)} x {one}]"
        items = ", ".join(f"{one} {literal(v, tree.dtype)}" for v in values)
        symbol = f"table.{tree.value}"
        self.module.share(symbol, f"@{symbol} = internal constant {full} [{items}]")
        if not lanes:
            place = self.emit(f"getelementptr {full}, ptr @{symbol}, i64 0, i64 {index}")
            return self.emit(f"load {one}, ptr {place}")
        places = self.pure(f"getelementptr {one}, ptr @{symbol}, <{lanes} x i64> {index}")
        whole, flags = register_type(tree.dtype, lanes), register_type("bool", lanes)
        name = f"llvm.masked.gather.{suffix(tree.dtype, lanes)}.v{lanes}p0"
        declared = f"declare {whole} @{name}(<{lanes} x ptr>, {flags}, {whole})"
        self.module.share(name, declared)
        given = f"<{lanes} x ptr> align 8 {places}, {flags} splat (i1 true), {whole} poison"
        return self.pure(f"call {whole} @{name}({given})")

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


class _Alone(NamedTuple):
    """A function with object code of its own: its name, all that is needed to make it, and what of
    the C library it calls."""

    name: str
    texts: Mapping[str, str]
    libm: frozenset[str]


@cache
def _alone(tree: Expr, used: tuple[Expr, ...], lanes: int) -> _Alone:
    """Return the function that makes a tree's value for the lanes that are flagged, of those it
    uses; what it is given are runs of elements in memory."""
    module = Module()
    code = Code(module)
    code.known = {}
    code.alone = True
    if in_lanes(tree):
        lanes = 0
    with code.loop("%n", step=lanes or 1) as j:
        places = [code.at(f"%x{i}", j, part.dtype) for i, part in enumerate(used)]
        flagged = code.load(code.at("%flags", j, "bool"), "bool", lanes=lanes)
        result = code.at("%result", j, tree.dtype)

        def store(chosen: str = "") -> None:
            made = {}
            for part, place in zip(used, places, strict=True):
                given = code.load(place, part.dtype, lanes=lanes)
                if chosen and kind_of(part.dtype) == "f":
                    # in the other lanes what raises no flag
                    one = literal(1.0, part.dtype, lanes)
                    given = code.chosen(chosen, given, one, part.dtype, lanes)
                made[id(part)] = given
            (other,) = code.evaluate((tree,), [], lanes, made)
            if chosen:
                before = code.load(result, tree.dtype, lanes=lanes)
                other = code.chosen(chosen, other, before, tree.dtype, lanes)
            code.store(other, result, tree.dtype, lanes=lanes)

        if lanes:
            code.asked = flagged
            store(flagged)
        else:
            with code.when(flagged):
                store()
    code.finish()
    taken = ", ".join(
        f"ptr %{name}" for name in (*[f"x{i}" for i in range(len(used))], "flags", "result")
    )
    text = code.function(f"void @NAME({taken}, i64 %n)", "#6")
    # of one name are only those of one text
    whole = "\n".join((*module.shared.values(), text))
    stem = "lanes" if lanes else "alone"
    name = f"{stem}.{sha256(whole.encode())[:16]}"
    texts = {**module.shared, name: text.replace("@NAME", f"@{name}")}
    return _Alone(name, texts, frozenset(module.libm))


def _integer(prim: str, kind: str) -> str:
    if prim in ("quot", "rem"):
        return f"{'s' if kind == 'i' else 'u'}{'div' if prim == 'quot' else 'rem'}"
    if prim == "shr":
        return "ashr" if kind == "i" else "lshr"
    return _INTEGER[prim]
