"""LLVM IR text: arithmetic of whole numbers that no machine has for vectors."""

from __future__ import annotations

from alight._src.codegen.llvm.blocks import literal, register_type
from alight._src.codegen.llvm.comparisons import Comparisons
from alight._src.ir.body import kind_of, width_of


class Integers(Comparisons):
    """A function body under construction, with quotients, powers and divisors of whole numbers."""

    def each(self, symbol: str, args: list[str], dtypes: list[str], result: str, lanes: int) -> str:
        """Return what a function of one element gives for each lane."""
        one = register_type(result, lanes)
        given = ", ".join(
            f"{register_type(d, lanes)} {a}" for d, a in zip(dtypes, args, strict=True)
        )
        if not lanes:
            return self.pure(f"call {one} @{symbol}({given})")
        name = f"each{lanes}.{symbol}"
        if name not in self.module.shared:
            code = type(self)(self.module)
            cells = [code.alloca(register_type(d, lanes)) for d in (*dtypes, result)]
            for place, (cell, dtype) in enumerate(zip(cells[:-1], dtypes, strict=True)):
                code.store(f"%x{place}", cell, dtype, lanes=lanes)
            with code.loop(str(lanes)) as j:
                loaded = [
                    code.load(code.at(cell, j, dtype), dtype)
                    for cell, dtype in zip(cells[:-1], dtypes, strict=True)
                ]
                value = code.each(symbol, loaded, dtypes, result, 0)
                code.store(value, code.at(cells[-1], j, result), result)
            code.do(f"ret {one} {code.load(cells[-1], result, lanes=lanes)}")
            taken = ", ".join(f"{register_type(d, lanes)} %x{i}" for i, d in enumerate(dtypes))
            self.module.share(name, code.function(f"internal {one} @{name}({taken})", "#3"))
        return self.pure(f"call {one} @{name}({given})")

    def divided(self, args: list[str], dtype: str, lanes: int) -> str:
        """Return the truncated quotient of vectors."""
        divide = self._divided if width_of(dtype) < 64 else self._divided_long
        return divide(args, dtype, lanes)

    def _divided(self, args: list[str], dtype: str, lanes: int) -> str:
        """Return the truncated quotient by way of floats, which have a vector division.

        It is exact where a float of p bits holds both operands: a quotient that is not whole is at
        least 1 / y below the next whole number n, a share of 1 / (n * y) > 2**-p of it, and
        rounding moves it by 2**-p of it at most.
        """
        wide = "float32" if width_of(dtype) < 32 else "float64"
        one = register_type(wide, lanes)
        a, b = (self.cast(arg, dtype, wide, lanes) for arg in args)
        return self.cast(self.pure(f"fdiv {one} {a}, {b}"), wide, dtype, lanes)

    def _divided_long(self, args: list[str], dtype: str, lanes: int) -> str:
        """Return the truncated quotient of 64 bits: by way of float64 where it holds all operands,
        else one by one."""
        one, flag = register_type(dtype, lanes), register_type("bool", lanes)
        half, most = literal(2**52, dtype, lanes), literal(2**53, dtype, lanes)
        signed = kind_of(dtype) == "i"
        far = []
        for arg in args:
            # from -2**52 to 2**52, as one unsigned comparison
            moved = self.pure(f"add {one} {arg}, {half}") if signed else arg
            far.append(self.pure(f"icmp uge {one} {moved}, {most}"))
        some = self.some(self.pure(f"or {flag} {far[0]}, {far[1]}"), lanes)
        near, apart, after = (self.label(stem) for stem in ("near", "apart", "after"))
        self.do(f"br i1 {some}, label %{apart}, label %{near}, !prof !1")
        known, self.known = self.known, None  # what is made here is not known after it
        self.start(apart)
        int_ = register_type(dtype)
        name = self.module.share(
            f"quot.{'s' if signed else 'u'}.{int_}",
            f"define internal {int_} @quot.{'s' if signed else 'u'}.{int_}({int_} %a, {int_} %b) "
            f"#2 {{\n  %q = {'s' if signed else 'u'}div {int_} %a, %b\n  ret {int_} %q\n}}",
        )
        slow = self.each(name, args, [dtype, dtype], dtype, lanes)
        self.do(f"br label %{after}")
        self.start(near)
        fast = self._divided(args, dtype, lanes)
        self.do(f"br label %{after}")
        self.start(after)
        self.known = known
        return self.emit(f"phi {one} [ {slow}, %{apart} ], [ {fast}, %{near} ]")

    def high(self, args: list[str], lanes: int) -> str:
        """Return the high half of the product of two uint64."""
        if not lanes:
            a, b = (self.pure(f"zext i64 {arg} to i128") for arg in args)
            product = self.pure(f"mul i128 {a}, {b}")
            return self.pure(f"trunc i128 {self.pure(f'lshr i128 {product}, 64')} to i64")
        one = register_type("uint64", lanes)
        half, low = literal(32, "uint64", lanes), literal(2**32 - 1, "uint64", lanes)

        def of(how: str, a: str, b: str) -> str:
            return self.pure(f"{how} {one} {a}, {b}")

        # no machine has such products of vectors, and all have those of halves
        (a, c), (b, d) = ((of("and", x, low), of("lshr", x, half)) for x in args)
        ad, cb = of("mul", a, d), of("mul", c, b)
        middle = of("add", of("and", ad, low), of("and", cb, low))
        middle = of("add", middle, of("lshr", of("mul", a, b), half))
        high = of("add", of("mul", c, d), of("lshr", middle, half))
        return of("add", high, of("add", of("lshr", ad, half), of("lshr", cb, half)))

    def gcd(self, args: list[str], dtype: str, lanes: int) -> str:
        """Return greatest common divisors."""
        one = register_type(dtype, lanes)
        if kind_of(dtype) == "i":
            none = zero(lanes)
            args = [
                self.chosen(
                    self.pure(f"icmp slt {one} {arg}, {none}"),
                    self.pure(f"sub {one} {none}, {arg}"),
                    arg,
                    dtype,
                    lanes,
                )
                for arg in args
            ]
        int_ = register_type(dtype)
        name = self.module.share(f"gcd.{int_}", _GCD.replace("INT", int_))
        return self.each(name, args, [dtype, dtype], dtype, lanes)

    def power(self, args: list[str], dtype: str, lanes: int) -> str:
        """Return powers, modulo 2 to the width."""
        int_ = register_type(dtype)
        name = self.module.share(f"ipow.{int_}", _IPOW.replace("INT", int_))
        return self.each(name, args, [dtype, dtype], dtype, lanes)


def zero(lanes: int) -> str:
    """Return zero in LLVM's spelling."""
    return "zeroinitializer" if lanes else "0"


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
