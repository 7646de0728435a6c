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
``mulhi`` (the high half of the product of two uint64),
``by_zero(v, c)`` (v; where c holds, the divide-by-zero flag is raised), ``bits(x)`` (to the
unsigned integer of that width) and ``floating(u)`` back, ``libm.name(...)``; ``real(z)``,
``imag(z)`` and ``complex(a, b)`` take complex numbers apart and together, there is no arithmetic on
them. Types, used as casts: the dtype names, ``T`` (of x), ``U`` and ``S`` (unsigned and signed of
T's width), ``R`` (of the result), ``F`` (of the parts of x, if it is complex). Constants:
``inf nan pi``, ``MIN MAX WIDTH`` of T, and for floats ``TINY`` (least normal),
``MANTISSA EXPONENT BIAS`` (of the format). A literal takes the type of what it meets.

Functions written in the language (those of ``ir.maths``; one whose name ends in ``_float32`` is
taken for single floats) are called by name and put in place; ``a, b = name(...)`` takes what one
with two results gives. ``apart.name(...)`` is a call of
one that is kept out of line, for what is seldom needed, and ``wide.name(...)`` one in float64,
whose result is rounded. ``poly.name(z)`` is a polynomial,
``where(c, poly.name, poly.other)(z)`` one of two, whose coefficients are chosen; ``k.name`` is a
constant in the format of T, ``table.name(i)`` an element of a table.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import zip_longest
from typing import Any

from alight._src.base import parsing
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.base.records import dataclass
from alight._src.ir.maths import FUNCTIONS
from alight._src.ir.maths.coefficients import CONSTANTS, POLYNOMIALS, TABLES

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
_REDUCTION: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.Div: operator.truediv, ast.LShift: operator.lshift, ast.BitOr: operator.or_,
}  # fmt: skip
COMPARISONS = frozenset(_COMPARE.values())
# calls whose result and arguments all have one type
_SAME_TYPE = {
    "quot": 2, "rem": 2, "gcd": 2, "ipow": 2, "floor": 1, "ceil": 1, "trunc": 1, "rint": 1,
    "fabs": 1, "sqrt": 1, "copysign": 2, "fma": 3, "popcount": 1, "maximum": 2, "minimum": 2,
    "mulhi": 2,
}  # fmt: skip
_FLOAT_ONLY = frozenset(
    {
        "div", "floor", "ceil", "trunc", "rint", "fabs", "sqrt", "copysign", "fma", "maximum",
        "minimum",
    }
)  # fmt: skip
_INTEGER_ONLY = frozenset({"quot", "rem", "gcd", "ipow", "popcount", "mulhi", "shl", "shr"})


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """One typed operation. ``value`` is a constant's value, an operand's position, the name of a
    libm function or of a table, the name and the trees of a function apart, or "told" of a
    comparison that may raise a flag for a NaN. Shared subexpressions are shared objects."""

    prim: str
    args: tuple[Expr, ...]
    dtype: str
    value: Any = None

    def __str__(self) -> str:
        if self.prim == "operand":
            return "xyz"[self.value]
        if self.prim == "const":
            return f"{self.dtype}({self.value})"
        if self.prim == "apart":
            name = f"apart.{self.value[0]}"
        else:
            name = self.value if self.prim in ("libm", "table") else self.prim
        return f"{name}:{self.dtype}({', '.join(map(str, self.args))})"


class _Literal:
    """A constant that has not met its type yet."""

    __slots__ = ("value",)

    def __init__(self, value: int | float | bool) -> None:
        self.value = value


_Term = Expr | _Literal
_Names = dict[str, _Term]


@cache
def _definitions() -> dict[str, str]:
    parts = re.split(r"^(?=def )", FUNCTIONS, flags=re.MULTILINE)[1:]
    return {part[4 : part.index("(")]: part for part in parts}


def _parsed(text: str) -> list[ast.stmt]:
    """Return the statements of a text."""
    try:
        with parsing.lock:
            return ast.parse(text).body
    except failures(SyntaxError) as error:
        raise ValueError(f"body {text!r}: {error.msg}. Fix: correct the op's body.") from None


@cache
def _function(name: str, dtype: str) -> ast.FunctionDef | None:
    known = _definitions()
    text = known.get(f"{name}_{dtype}") or known.get(name)
    if text is None:
        return None
    (function,) = _parsed(text)
    assert isinstance(function, ast.FunctionDef)
    return function


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


def operands_named(text: str) -> int:
    """Return how many operands a body needs: up to the last of x, y and z that it names before it
    gives that another value."""
    needed: set[str] = set()
    own: set[str] = set()
    for line in _parsed("\n".join(s.strip() for s in text.strip().splitlines())):
        names = [node for node in ast.walk(line) if isinstance(node, ast.Name)]
        needed |= {node.id for node in names if isinstance(node.ctx, ast.Load)} - own
        own |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return max(("xyz".index(name) + 1 for name in needed & set("xyz")), default=0)


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
        self.names: _Names = dict(zip("xyz", operands, strict=False))
        first = operands[0].dtype
        # NumPy's loops compare parts of complex numbers one by one, and tell of NaNs there
        self.told = "told" if any([kind_of(one.dtype) == "c" for one in operands]) else None
        self.real = part_of(first)
        width = width_of(self.real)
        self.types = {name: name for name in TYPES}
        self.types |= {"T": first, "R": results[0], "U": f"uint{width}", "S": f"int{width}"}
        self.types["F"] = self.real
        constants: dict[str, int | float] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}
        constants["WIDTH"] = width
        if kind_of(self.real) == "f":
            info = np.finfo(self.real)
            constants |= {"TINY": float(info.tiny), "MANTISSA": info.nmant, "BIAS": info.maxexp - 1}
            constants["EXPONENT"] = 2 * info.maxexp - 1
        elif kind_of(first) in "iu":
            constants |= {"MIN": int(np.iinfo(first).min), "MAX": int(np.iinfo(first).max)}
        self.constants: _Names = {name: _Literal(value) for name, value in constants.items()}
        self.names |= self.constants

    def run(self) -> tuple[Expr, ...]:
        lines = _parsed("\n".join(s.strip() for s in self.body.strip().splitlines()))
        found = self.block(lines)
        last = lines[-1]
        if len(found) != len(self.results):
            raise self.bad(last, f"it has {len(found)} results and the op {len(self.results)}")
        return tuple(
            self.want(term, dtype, last) for term, dtype in zip(found, self.results, strict=True)
        )

    def block(self, lines: list[ast.stmt]) -> tuple[_Term, ...]:
        """Return the results of lines, of which all but the last name values."""
        *lets, last = lines
        for let in lets:
            match let:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.names[name] = self.visit(value)
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                    for target, term in zip(targets, self.several(value), strict=True):
                        assert isinstance(target, ast.Name)
                        self.names[target.id] = term
                case _:
                    raise self.bad(let, "every line but the last names a value")
        if not isinstance(last, ast.Expr | ast.Return) or last.value is None:
            raise self.bad(last, "the last line is the result")
        return self.several(last.value)

    def several(self, node: ast.expr) -> tuple[_Term, ...]:
        """Return the terms of a tuple, or the results of a function."""
        match node:
            case ast.Tuple(elts=parts):
                return tuple(self.visit(part) for part in parts)
            case ast.Call(func=ast.Name(id=name), args=args):
                function = _function(name, self.real)
                if function is not None:
                    return self.inlined(function, [self.visit(a) for a in args], node)
        return (self.visit(node),)

    def inlined(
        self, function: ast.FunctionDef, terms: list[_Term], node: ast.AST
    ) -> tuple[_Term, ...]:
        """Return the results of a function of the language."""
        parameters = [a.arg for a in function.args.args]
        if len(parameters) != len(terms):
            raise self.bad(node, f"{function.name} takes {len(parameters)} arguments")
        outside = self.names, self.types
        self.names = self.constants | dict(zip(parameters, terms, strict=True))
        self.types = self.types | {"T": self.real}
        results = self.block(function.body)
        self.names, self.types = outside
        return results

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
                return Expr(_COMPARE[type(symbol)], (a, b), "bool", self.told)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(name, [self.visit(a) for a in args], node)
            case ast.Attribute(value=ast.Name(id="k"), attr=name) if name in CONSTANTS:
                return _Literal(CONSTANTS[name][self.real])
            case ast.Call(func=ast.Attribute(value=ast.Name(id=space), attr=name), args=args):
                return self.special(space, name, [self.visit(a) for a in args], node)
            case ast.Call(
                func=ast.Call(
                    func=ast.Name(id="where"),
                    args=[
                        condition,
                        ast.Attribute(value=ast.Name(id="poly"), attr=first),
                        ast.Attribute(value=ast.Name(id="poly"), attr=second),
                    ],
                ),
                args=[argument],
            ) if first in POLYNOMIALS and second in POLYNOMIALS:
                choice = self.want(self.visit(condition), "bool", node)
                return self.either(first, second, choice, self.visit(argument), node)
        raise self.bad(node, "not part of the language")

    def binary(self, node: ast.expr, a: _Term, symbol: ast.operator, b: _Term) -> _Term:
        if isinstance(a, _Literal) and isinstance(b, _Literal):
            # Python folds it: exactly for integers, in float64 (before rounding to T) for floats.
            return _Literal(_REDUCTION[type(symbol)](a.value, b.value))
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

    def call(self, name: str, terms: list[_Term], node: ast.expr) -> _Term:
        function = _function(name, self.real)
        if function is not None:
            results = self.inlined(function, terms, node)
            if len(results) != 1:
                raise self.bad(node, f"{name} has {len(results)} results and one is used")
            return results[0]
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

    def special(self, space: str, name: str, terms: list[_Term], node: ast.expr) -> Expr:
        """Return a call of what a name space before a dot gives."""
        if space == "libm":
            return self.libm(name, terms, node)
        if space == "poly" and name in POLYNOMIALS:
            return self.polynomial(POLYNOMIALS[name][self.real], terms[0], node)
        if space == "table" and name in TABLES:
            return Expr("table", (self.want(terms[0], "int64", node),), TABLES[name][0], name)
        if space == "apart" and _function(name, self.real) is not None:
            args = tuple(self.want(t, self.real, node) for t in terms)
            given = tuple(a.dtype for a in args)
            body = f"{name}({', '.join('xyz'[: len(args)])})"
            return Expr("apart", args, self.real, (name, typed(body, given, (self.real,))))
        if space == "wide" and _function(name, "float64") is not None:
            args = tuple(self.want(t, self.real, node) for t in terms)
            wide = tuple(Expr("cast", (a,), "float64") for a in args)
            body = f"{name}({', '.join('xyz'[: len(args)])})"
            (tree,) = _Typing(body, wide, ("float64",)).run()
            return Expr("cast", (tree,), self.real)
        raise self.bad(node, "unknown call")

    def polynomial(self, coefficients: tuple[float, ...], term: _Term, node: ast.AST) -> Expr:
        """Return a polynomial, its coefficients given from the lowest power up."""
        *_, last = coefficients
        value: _Term = _Literal(last)
        for coefficient in coefficients[-2::-1]:
            args = self.unify([value, term, _Literal(coefficient)], node)
            value = self.make("fma", args, node)
        assert isinstance(value, Expr)
        return value

    def either(self, first: str, second: str, choice: Expr, term: _Term, node: ast.AST) -> _Term:
        """Return one of two polynomials, whose coefficients are chosen one by one."""
        value: _Term | None = None
        pairs = (POLYNOMIALS[name][self.real] for name in (first, second))
        for both in reversed(tuple(zip_longest(*pairs, fillvalue=0.0))):
            chosen = Expr("where", (choice, *(constant(c, self.real) for c in both)), self.real)
            args = None if value is None else self.unify([value, term, chosen], node)
            value = chosen if args is None else self.make("fma", args, node)
        assert value is not None
        return value

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
