"""LLVM IR text: comparisons, and what is chosen by them."""

from __future__ import annotations

from alight._src.codegen.llvm.blocks import register_type, suffix
from alight._src.codegen.llvm.casts import Casts
from alight._src.ir.body import kind_of, part_of

# Of floats; a NaN is unequal to all, and in no order with any.
_ORDERS = {"eq": "oeq", "ne": "une", **{prim: f"o{prim}" for prim in ("lt", "le", "gt", "ge")}}
_SIGNALLING = frozenset(("olt", "ole", "ogt", "oge"))
EXTREMES = {"maximum": "ogt", "minimum": "olt"}


class Comparisons(Casts):
    """A function body under construction, with comparisons that raise the flags NumPy's do."""

    def relation(self, prim: str, args: list[str], dtype: str, lanes: int, told: bool) -> str:
        """Return whether two values are in a relation; ``told``: with the flag for a NaN."""
        one, kind = register_type(dtype, lanes), kind_of(dtype)
        if kind == "b":
            return self._ordered(prim, args, lanes)
        if kind == "f" and not told:
            return self.compared(_ORDERS[prim], args[0], args[1], dtype, lanes)
        name = f"fcmp {_ORDERS[prim]}" if kind == "f" else _comparison(prim, kind)
        return self.pure(f"{name} {one} {args[0]}, {args[1]}")

    def extreme(self, prim: str, a: str, b: str, dtype: str, lanes: int) -> str:
        """Return the larger or the smaller of two floats, or the one that is a NaN."""
        more = self.compared(EXTREMES[prim], a, b, dtype, lanes)
        found = self.chosen(more, a, b, dtype, lanes)
        nan = self.compared("uno", a, a, dtype, lanes)
        return self.chosen(nan, a, found, dtype, lanes)

    def some(self, condition: str, lanes: int) -> str:
        """Return whether a bool holds in one of the lanes at least."""
        if not lanes:
            return condition
        bits = self.pure(f"bitcast <{lanes} x i1> {condition} to i{lanes}")
        return self.pure(f"icmp ne i{lanes} {bits}, 0")

    def quiet(self, lanes: int) -> bool:
        """Tell whether comparisons that raise no flag for a NaN are to be asked for."""
        # of loops that are left to LLVM it makes no vectors with them
        return self.module.quiet and (lanes > 0 or self.module.explicit)

    def compared(self, order: str, a: str, b: str, dtype: str, lanes: int = 0) -> str:
        """Return whether two floats are in an order, which is false where one is a NaN ("uno": true
        there, "une": true there, too).

        NumPy's comparisons raise no flag for a quiet NaN. Those that LLVM chooses for vectors on
        x86 do, unless they are asked for by the intrinsic that keeps IEEE 754's quiet ones apart.
        """
        one = register_type(dtype, lanes)
        if order not in _SIGNALLING or not self.quiet(lanes):
            return self.pure(f"fcmp {order} {one} {a}, {b}")
        if dtype == "float16":
            # LLVM takes the intrinsic of vectors of half floats apart, element by element: 256
            # `nextafter` in a kernel took it minutes and 2 GB.
            wide = register_type("float32", lanes)
            a, b = [self.pure(f"fpext {one} {value} to {wide}") for value in (a, b)]
            return self.compared(order, a, b, "float32", lanes)
        name = f"llvm.experimental.constrained.fcmp.{suffix(dtype, lanes)}"
        flag = register_type("bool", lanes)
        self.module.shared[name] = f"declare {flag} @{name}({one}, {one}, metadata, metadata)"
        # Nobody reads flags within a kernel, so that it may be moved and merged as any other.
        # LLVM's reference wants it in strict functions only; 22 takes it as it stands.
        told = f'metadata !"{order}", metadata !"fpexcept.ignore"'
        return self.pure(f"call {flag} @{name}({one} {a}, {one} {b}, {told})")

    def chosen(self, condition: str, a: str, b: str, dtype: str, lanes: int = 0) -> str:
        """Return the first value where the condition holds, else the second."""
        flag, one = register_type("bool", lanes), register_type(part_of(dtype), lanes)
        if kind_of(dtype) != "c":
            return self.pure(f"select {flag} {condition}, {one} {a}, {one} {b}")
        found = [
            self.pure(f"select {flag} {condition}, {one} {v}, {one} {w}")
            for v, w in zip(*(self.parts(v, dtype, lanes) for v in (a, b)), strict=True)
        ]
        return self.paired(found[0], found[1], dtype, lanes)

    def _ordered(self, prim: str, args: list[str], lanes: int) -> str:
        """Compare truths bit by bit: of a chain of 192 comparisons LLVM took 18 s for the code."""
        one = register_type("bool", lanes)
        a, b = args
        if prim in ("eq", "ne"):
            differ = self.pure(f"xor {one} {a}, {b}")
            return differ if prim == "ne" else self._opposite(differ, lanes)
        if prim in ("gt", "ge"):
            a, b = b, a
        how = "and" if prim in ("lt", "gt") else "or"
        return self.pure(f"{how} {one} {self._opposite(a, lanes)}, {b}")

    def _opposite(self, value: str, lanes: int) -> str:
        true = "splat (i1 true)" if lanes else "true"
        return self.pure(f"xor {register_type('bool', lanes)} {value}, {true}")


def _comparison(prim: str, kind: str) -> str:
    if prim in ("eq", "ne"):
        return f"icmp {prim}"
    return f"icmp {'s' if kind == 'i' else 'u'}{prim}"
