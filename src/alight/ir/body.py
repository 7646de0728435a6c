"""The scalar expression language of op bodies: text in, a small typed tree out.

A body says what an op does to one element, over operands named ``x, y, z``. It is a few lines of
Python syntax: assignments name intermediate values, the last line is the result (a tuple where an
op has several outputs). It is parsed with ``ast`` and typed for given dtypes; the tree that comes
out has explicit types everywhere and only the primitives below, so each target language prints it
with a table.

Operators: ``+ - * /`` (``/`` is for floats), comparisons, ``& | ^ ~``, ``<< >>`` (amounts in
range). Calls: ``where(c, a, b)``, ``rarely(c, a, b)`` (the same, but ``a`` is
computed only where c holds, which is seldom), ``quot rem`` (C's truncating integer division; the
body keeps zero and overflow away), ``floor ceil trunc rint fabs sqrt copysign fma``, ``maximum
minimum`` (of floats: a NaN wins, either zero of a tie), ``popcount``, ``gcd``, ``ipow``,
``by_zero(v, c)`` (v; where c holds, the divide-by-zero flag is raised), ``bits(x)`` (to the
unsigned integer of that width) and ``floating(u)`` back, ``libm.name(...)``; ``real(z)``,
``imag(z)`` and ``complex(a, b)`` take complex numbers apart and together, there is no arithmetic on
them. Types, used as casts: the dtype names, ``T`` (of x), ``U`` and ``S`` (unsigned and signed of
T's width), ``R`` (of the result), ``F`` (of the parts of x, if it is complex). Constants:
``inf nan pi``, ``MIN MAX WIDTH`` of T, and for floats ``TINY`` (least normal),
``MANTISSA EXPONENT BIAS`` (of the format). A literal takes the type of what it meets.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
COMPLEX = {"complex64": "float32", "complex128": "float64"}
TYPES = ("bool", *SIGNED, *UNSIGNED, "float16", *FLOATS, *COMPLEX)

# arithmetic and comparisons, by the syntax that means them
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.BitAnd: "and",
    ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "shr",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
_FOLD: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.Div: operator.truediv, ast.LShift: operator.lshift, ast.BitOr: operator.or_,
}  # fmt: skip
COMPARISONS = frozenset(_COMPARE.values())
# calls whose result and arguments all have one type
_SAME_TYPE = {
    "quot": 2, "rem": 2, "gcd": 2, "ipow": 2, "floor": 1, "ceil": 1, "trunc": 1, "rint": 1,
    "fabs": 1, "sqrt": 1, "copysign": 2, "fma": 3, "popcount": 1, "maximum": 2, "minimum": 2,
}  # fmt: skip
_FLOAT_ONLY = frozenset(
    {
        "div", "floor", "ceil", "trunc", "rint", "fabs", "sqrt", "copysign", "fma", "maximum",
        "minimum",
    }
)  # fmt: skip
_INTEGER_ONLY = frozenset({"quot", "rem", "gcd", "ipow", "popcount", "shl", "shr"})


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """One typed operation. ``value`` is a constant's value, an operand's position or a libm name.
    Shared subexpressions are shared objects."""

    prim: str
    args: tuple[Expr, ...]
    dtype: str
    value: Any = None

    def __str__(self) -> str:
        if self.prim == "operand":
            return "xyz"[self.value]
        if self.prim == "const":
            return f"{self.dtype}({self.value})"
        name = self.value if self.prim == "libm" else self.prim
        return f"{name}:{self.dtype}({', '.join(map(str, self.args))})"


class _Literal:
    """A constant that has not met its type yet."""

    __slots__ = ("value",)

    def __init__(self, value: int | float | bool) -> None:
        self.value = value


_Term = Expr | _Literal


def choose(body: str | Mapping[str, str] | None, operands: tuple[str, ...]) -> str | None:
    """Return the body for operands of these dtypes, or None where there is none.

    A mapping is asked for the first operand's dtype ("float32"), then for the kinds of all operands
    ("iu"), then for the first one's ("f"), as in ``numpy.dtype.kind``; for half floats then for
    what it says of single ones.
    """
    if body is None or isinstance(body, str):
        return body
    kinds = "".join(kind_of(o) for o in operands)
    for key in (operands[0], kinds, kinds[:1]):
        if key in body:
            return body[key]
    return body.get("float32") if operands[0] == "float16" else None


def resolved(
    body: str | Mapping[str, str] | None, operands: tuple[str, ...], results: tuple[str, ...]
) -> tuple[Expr, ...] | None:
    """Return the trees of an op's results for operands and results of these dtypes, or None where
    it has no body for them.

    Half floats are computed as NumPy does it: as single ones, and rounded.
    """
    text = choose(body, operands)
    if text is None:
        return None
    single = not isinstance(body, str) and body is not None and "float16" not in body
    return typed(text, operands, results, single)


def branches(trees: tuple[Expr, ...]) -> bool:
    """Tell whether the trees have a part that is computed for few elements only."""
    return any(tree.prim == "rarely" or branches(tree.args) for tree in trees)


def operations(trees: tuple[Expr, ...]) -> int:
    """Return how many operations the trees have, shared ones counted once."""
    seen: set[int] = set()
    stack = list(trees)
    while stack:
        tree = stack.pop()
        if tree.args and id(tree) not in seen:
            seen.add(id(tree))
            stack += tree.args
    return len(seen)


def kind_of(dtype: str) -> str:
    """Return NumPy's letter for the kind of a dtype's name."""
    return "b" if dtype == "bool" else dtype[0]


def width_of(dtype: str) -> int:
    """Return the bits of a dtype; a bool is a byte in memory."""
    return 8 * np.dtype(dtype).itemsize


def part_of(dtype: str) -> str:
    """Return the dtype of the parts of a complex number; any other has one part."""
    return COMPLEX.get(dtype, dtype)


@cache
def typed(
    body: str, operands: tuple[str, ...], results: tuple[str, ...], single: bool = False
) -> tuple[Expr, ...]:
    """Return the trees of a body's results for operands and results of these dtypes; if asked to,
    with half floats made single ones and the results rounded."""
    if not single or "float16" not in (*operands, *results):
        return _Typing(body, tuple(map(_operand, range(3), operands)), results).run()
    given = (_operand(i, dtype) for i, dtype in enumerate(operands))
    wide = tuple(Expr("cast", (e,), "float32") if e.dtype == "float16" else e for e in given)
    inner = tuple("float32" if dtype == "float16" else dtype for dtype in results)
    return tuple(
        tree if tree.dtype == dtype else Expr("cast", (tree,), dtype)
        for tree, dtype in zip(_Typing(body, wide, inner).run(), results, strict=True)
    )


def _operand(place: int, dtype: str) -> Expr:
    return Expr("operand", (), dtype, place)


class _Typing:
    def __init__(self, body: str, operands: tuple[Expr, ...], results: tuple[str, ...]) -> None:
        self.body = body
        self.results = results
        self.names: dict[str, _Term] = dict(zip("xyz", operands, strict=False))
        first = operands[0].dtype
        width = width_of(first)
        self.types = {name: name for name in TYPES}
        self.types |= {"T": first, "R": results[0], "U": f"uint{width}", "S": f"int{width}"}
        self.types["F"] = part_of(first)
        constants: dict[str, int | float] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}
        constants["WIDTH"] = width
        if kind_of(first) == "f":
            info = np.finfo(first)
            constants |= {"TINY": float(info.tiny), "MANTISSA": info.nmant, "BIAS": info.maxexp - 1}
            constants["EXPONENT"] = 2 * info.maxexp - 1
        elif kind_of(first) in "iu":
            constants |= {"MIN": int(np.iinfo(first).min), "MAX": int(np.iinfo(first).max)}
        self.names |= {name: _Literal(value) for name, value in constants.items()}

    def run(self) -> tuple[Expr, ...]:
        *lets, last = ast.parse("\n".join(s.strip() for s in self.body.strip().splitlines())).body
        for let in lets:
            if not isinstance(let, ast.Assign) or not isinstance(let.targets[0], ast.Name):
                raise self.bad(let, "every line but the last names a value")
            self.names[let.targets[0].id] = self.visit(let.value)
        if not isinstance(last, ast.Expr):
            raise self.bad(last, "the last line is the result")
        parts = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
        if len(parts) != len(self.results):
            raise self.bad(last, f"it has {len(parts)} results and the op {len(self.results)}")
        return tuple(
            self.want(self.visit(part), dtype, part)
            for part, dtype in zip(parts, self.results, strict=True)
        )

    def bad(self, node: ast.AST, why: str) -> ValueError:
        text = ast.unparse(node)
        return ValueError(f"body {self.body!r}: {text!r}: {why}. Fix: correct the op's body.")

    def want(self, term: _Term, dtype: str, node: ast.AST) -> Expr:
        """Return the term in the dtype: a literal takes it, a value must already have it."""
        if isinstance(term, _Literal):
            return constant(term.value, dtype)
        if term.dtype != dtype:
            raise self.bad(node, f"it is {term.dtype} and {dtype} is needed")
        return term

    def unify(self, terms: list[_Term], node: ast.AST) -> tuple[Expr, ...]:
        dtype = next((t.dtype for t in terms if isinstance(t, Expr)), None)
        if dtype is None:
            raise self.bad(node, "no operand of it has a type; write one, as in T(0)")
        return tuple(self.want(t, dtype, node) for t in terms)

    def visit(self, node: ast.expr) -> _Term:
        match node:
            case ast.Name(id=name):
                if name not in self.names:
                    raise self.bad(node, "unknown name")
                return self.names[name]
            case ast.Constant(value=int() | float() as value):
                return _Literal(value)
            case ast.BinOp(left=left, op=symbol, right=right):
                return self.binary(node, self.visit(left), symbol, self.visit(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                term = self.visit(operand)
                if isinstance(term, _Literal):
                    return _Literal(-term.value)
                return Expr("neg", (term,), term.dtype)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                term = self.visit(operand)
                if isinstance(term, _Literal):
                    return _Literal(~int(term.value))
                return Expr("not", (term,), term.dtype)
            case ast.Compare(left=left, ops=[symbol], comparators=[right]):
                a, b = self.unify([self.visit(left), self.visit(right)], node)
                return Expr(_COMPARE[type(symbol)], (a, b), "bool")
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(name, [self.visit(a) for a in args], node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="libm"), attr=name), args=args):
                return self.libm(name, [self.visit(a) for a in args], node)
        raise self.bad(node, "not part of the language")

    def binary(self, node: ast.expr, a: _Term, symbol: ast.operator, b: _Term) -> _Term:
        if isinstance(a, _Literal) and isinstance(b, _Literal):
            # Python folds it: exactly for integers, in float64 (before rounding to T) for floats.
            return _Literal(_FOLD[type(symbol)](a.value, b.value))
        prim = _BINARY.get(type(symbol))
        if prim is None:
            raise self.bad(node, "not an operator of the language")
        return self.make(prim, self.unify([a, b], node), node)

    def make(self, prim: str, args: tuple[Expr, ...], node: ast.AST) -> Expr:
        kind = kind_of(args[0].dtype)
        wrong = (
            (prim in _FLOAT_ONLY and kind != "f")
            or (prim in _INTEGER_ONLY and kind not in "iu")
            or (prim in ("and", "or", "xor") and kind == "f")
            or (prim in ("add", "sub", "mul") and kind == "b")
            or kind == "c"
        )
        if wrong:
            raise self.bad(node, f"{prim} is not defined on {args[0].dtype}")
        return Expr(prim, args, args[0].dtype)

    def call(self, name: str, terms: list[_Term], node: ast.expr) -> Expr:
        if name in self.types:
            return self.cast(terms[0], self.types[name])
        if name in ("where", "rarely"):
            condition = self.want(terms[0], "bool", node)
            if all(isinstance(t, _Literal) for t in terms[1:]):
                branches = tuple(self.want(t, self.results[0], node) for t in terms[1:])
            else:
                branches = self.unify(terms[1:], node)
            return Expr(name, (condition, *branches), branches[0].dtype)
        if name == "by_zero":
            value = self.want(terms[0], self.results[0], node)
            return Expr(name, (value, self.want(terms[1], "bool", node)), value.dtype)
        if name in ("real", "imag"):
            (arg,) = self.unify(terms, node)
            return Expr(name, (arg,), part_of(arg.dtype))
        if name == "complex":
            one = part_of(self.results[0])
            parts = tuple(self.want(t, one, node) for t in terms)
            return Expr(name, parts, self.results[0])
        if name in ("bits", "floating"):
            (arg,) = self.unify(terms, node)
            prefix = "uint" if name == "bits" else "float"
            return Expr("bitcast", (arg,), f"{prefix}{width_of(arg.dtype)}")
        if _SAME_TYPE.get(name) != len(terms):
            raise self.bad(node, "unknown call")
        return self.make(name, self.unify(terms, node), node)

    def cast(self, term: _Term, dtype: str) -> Expr:
        if isinstance(term, _Literal):
            return constant(term.value, dtype)
        return term if term.dtype == dtype else Expr("cast", (term,), dtype)

    def libm(self, name: str, terms: list[_Term], node: ast.expr) -> Expr:
        # ldexp is the one C function here whose second argument is an int
        floats = terms[:1] if name == "ldexp" else terms
        args = self.unify(floats, node)
        if name == "ldexp":
            args = (*args, self.want(terms[1], "int32", node))
        if kind_of(args[0].dtype) != "f":
            raise self.bad(node, f"libm has no {args[0].dtype}")
        return Expr("libm", args, args[0].dtype, name)


def constant(value: int | float | bool, dtype: str) -> Expr:
    """Return a constant of the dtype, rounded to it."""
    kind = kind_of(dtype)
    if kind == "f":
        return Expr("const", (), dtype, float(np.dtype(dtype).type(value)))
    if kind == "u":
        value = int(value) % (1 << width_of(dtype))  # ~literal is negative in Python
    return Expr("const", (), dtype, bool(value) if kind == "b" else int(value))
