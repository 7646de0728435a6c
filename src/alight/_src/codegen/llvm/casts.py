"""LLVM IR text: values in another dtype."""

from __future__ import annotations

from alight._src.codegen.llvm.blocks import Blocks, literal, register_type, suffix
from alight._src.ir.body import kind_of, part_of, width_of


class Casts(Blocks):
    """A function body under construction, with casts as NumPy makes them."""

    def cast(self, value: str, source: str, target: str, lanes: int = 0) -> str:
        """Return a value in another dtype, as NumPy's C casts give it on common machines."""
        a, b = kind_of(source), kind_of(target)
        one, two = register_type(source, lanes), register_type(target, lanes)
        if source == target:
            return value
        if a == "c":
            return self._complex_cast(value, source, target, lanes)
        if b == "c":
            part = part_of(target)
            real = self.cast(value, source, part, lanes)
            return self.paired(real, literal(0.0, part, lanes), target, lanes)
        if b == "b":
            zero = literal(0, source, lanes)
            return self.pure(f"{'fcmp une' if a == 'f' else 'icmp ne'} {one} {value}, {zero}")
        if a == "f" and b == "f":
            if target == "float16" and source == "float64":
                # there is no instruction for it: by way of float32, rounded there to odd, so that
                # the second rounding knows what the first one dropped
                value, one = self._to_odd(value, lanes), register_type("float32", lanes)
            wider = width_of(target) > width_of(source)
            return self.pure(f"{'fpext' if wider else 'fptrunc'} {one} {value} to {two}")
        if target == "float16" or source == "float16":
            # as NumPy does it; a whole number that float32 rounds is out of a half float's range
            return self.cast(self.cast(value, source, "float32", lanes), "float32", target, lanes)
        if b == "f":
            return self.pure(f"{'sitofp' if a == 'i' else 'uitofp'} {one} {value} to {two}")
        if a == "f":
            return self._float_to_integer(value, source, target, lanes)
        gained = width_of(target) - (1 if a == "b" else width_of(source))
        if gained == 0:
            return value
        name = "trunc" if gained < 0 else "sext" if a == "i" else "zext"
        return self.pure(f"{name} {one} {value} to {two}")

    def _complex_cast(self, value: str, source: str, target: str, lanes: int) -> str:
        first, second = self.parts(value, source, lanes)
        part = part_of(source)
        if kind_of(target) == "c":
            whole = [self.cast(v, part, part_of(target), lanes) for v in (first, second)]
            return self.paired(whole[0], whole[1], target, lanes)
        if target == "bool":
            flags = [self.cast(v, part, target, lanes) for v in (first, second)]
            return self.pure(f"or {register_type('bool', lanes)} {flags[0]}, {flags[1]}")
        return self.cast(first, part, target, lanes)

    def _to_odd(self, value: str, lanes: int) -> str:
        """Return a float64 as float32, with an odd last bit unless it is exact."""
        double, single, bits = (register_type(t, lanes) for t in ("float64", "float32", "uint32"))
        near = self.pure(f"fptrunc {double} {value} to {single}")
        back = self.pure(f"fpext {single} {near} to {double}")
        name = f"llvm.fabs.{suffix('float64', lanes)}"
        self.module.share(name, f"declare {double} @{name}({double})")
        far = [self.pure(f"call {double} @{name}({double} {v})") for v in (back, value)]
        flag = register_type("bool", lanes)
        above = self.pure(f"fcmp ogt {double} {far[0]}, {far[1]}")
        inexact = self.pure(f"fcmp one {double} {back}, {value}")
        whole = self.pure(f"bitcast {single} {near} to {bits}")
        less = self.pure(f"zext {flag} {above} to {bits}")
        odd = self.pure(f"zext {flag} {inexact} to {bits}")
        whole = self.pure(f"sub {bits} {whole}, {less}")
        whole = self.pure(f"or {bits} {whole}, {odd}")
        return self.pure(f"bitcast {bits} {whole} to {single}")

    def _float_to_integer(self, value: str, source: str, target: str, lanes: int) -> str:
        one = register_type(source, lanes)
        width = width_of(target)
        # Narrow results come through a wider one, so that negative values wrap as they do in NumPy.
        # LLVM leaves out-of-range conversions undefined; freeze makes them merely unspecified.
        through = "int64" if width == 64 or target == "uint32" else "int32"
        wide, flag = register_type(through, lanes), register_type("bool", lanes)
        if target == "uint64":
            edge = literal(2.0**63, source, lanes)
            high = self.pure(f"fcmp oge {one} {value}, {edge}")
            less = self.pure(f"fsub {one} {value}, {edge}")
            value = self.pure(f"select {flag} {high}, {one} {less}, {one} {value}")
        whole = self.pure(f"fptosi {one} {value} to {wide}")
        whole = self.pure(f"freeze {wide} {whole}")
        if target == "uint64":
            top = literal(-(2**63), "int64", lanes)
            flip = self.pure(f"xor {wide} {whole}, {top}")
            return self.pure(f"select {flag} {high}, {wide} {flip}, {wide} {whole}")
        return self.cast(whole, through, target, lanes)
