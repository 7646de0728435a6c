"""Expressions going by the border: calls, operators and subscripts.

Only what may reach a package's code is rewritten. What can make no Array before it is reached keeps
its own form beside the other: while no Array lives it costs one test.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from alight._src.jit.border import NAME, OPERATORS
from alight._src.jit.border_names import Facts, Holds

__all__ = ["BINARY", "Expressions", "as_value", "border_at", "copy_of", "here", "in_one_line"]


def here(new: Any, old: Any) -> Any:
    return ast.fix_missing_locations(ast.copy_location(new, old))


def border_at(place: Any) -> ast.Name:
    return ast.copy_location(ast.Name(NAME, ast.Load()), place)


def in_one_line(place: Any) -> ast.expr:
    """Return a place of one line: Python says that a call of a method is in the last."""
    at = ast.copy_location(ast.Constant(None), place)
    at.end_lineno, at.end_col_offset = at.lineno, at.col_offset
    return at


BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.MatMult: "matmul", ast.LShift: "lshift",
    ast.RShift: "rshift", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor",
}  # fmt: skip
_COMPARING = {
    ast.Lt: "lt", ast.LtE: "le", ast.Eq: "eq", ast.NotEq: "ne", ast.Gt: "gt", ast.GtE: "ge",
    ast.In: "contains", ast.NotIn: "contains", ast.Is: "is_", ast.IsNot: "is_",
}  # fmt: skip
# Expressions that are rewritten whole, where they make no first Array before it is reached.
_WHOLE = (ast.BinOp, ast.Compare, ast.Subscript, ast.BoolOp, ast.UnaryOp, ast.IfExp, ast.Tuple)
_COMPUTED = (*_WHOLE, ast.Attribute, ast.Slice, ast.Starred, ast.List)


def _is_part(node: Any) -> bool:
    """Tell whether an expression is what something is stored in, or slices of a subscript."""
    if not isinstance(getattr(node, "ctx", None), (ast.Load, type(None))):
        return True
    return isinstance(node, ast.Tuple) and any(isinstance(i, ast.Slice) for i in node.elts)


def copy_of(node: Any) -> Any:
    """Return a node of the same parts, which are not rewritten."""
    fields = {k: list(v) if isinstance(v, list) else v for k, v in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


class Expressions(ast.NodeTransformer):
    """Has calls and operations go by the border that may reach a package's code."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.plain: dict[int, tuple[Any, bool]] = {}
        self.made = 0

    def visit(self, node: Any) -> Any:
        """Return a node going by the border; an expression that makes no first Array keeps its own
        form beside it."""
        if isinstance(node, _WHOLE) and not _is_part(node) and self.is_plain(node):
            new = self.crossing(node)
            return node if new is node else here(ast.IfExp(border_at(node), new, node), node)
        return super().visit(node)

    # ------------------------------------------------------------------------------ expressions

    def is_plain(self, node: Any) -> bool:
        """Tell whether an expression can be written twice, and can make no first Array."""
        if node is None or isinstance(node, (ast.Name, ast.Constant)):
            return True
        found = self.plain.get(id(node))
        if found is None:
            found = self.plain[id(node)] = (node, self._is_plain(node))  # held, as its kind is
        return found[1]

    def _is_plain(self, node: Any) -> bool:
        if isinstance(node, ast.BinOp):
            return self.is_plain(node.left) and self.is_plain(node.right)
        if isinstance(node, ast.Call):
            arguments = [*node.args, *[keyword.value for keyword in node.keywords]]
            return self.facts.makes_nothing(node) and all(map(self.is_plain, arguments))
        return isinstance(node, _COMPUTED) and all(
            self.is_plain(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)
        )

    def crossing(self, node: Any) -> Any:
        """Return a plain expression as it is while an Array lives: itself where that is the
        same."""
        if not isinstance(node, (*_COMPUTED, ast.Call)):
            return node
        changed = {}
        for name, old in ast.iter_fields(node):
            new = old
            if isinstance(old, ast.expr):
                new = self.crossing(old)
            elif name != "ops" and isinstance(old, list):
                new = [self.crossing(item) for item in old]
                new = old if all(a is b for a, b in zip(new, old, strict=True)) else new
            if new is not old:
                changed[name] = new
        made = node
        if changed:
            fields = {**dict(ast.iter_fields(node)), **changed}
            made = ast.copy_location(type(node)(**fields), node)
        return self.operation(node, made)

    def operation(self, node: Any, made: Any) -> Any:
        """Return what does an operation by the border, if it can cross; ``made``: as it is, its
        parts rewritten."""
        may_cross = self.facts.may_cross
        if isinstance(node, ast.BinOp) and may_cross(node.left, node.right):
            return self.operate(BINARY[type(node.op)], [made.left, made.right], node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            name = _COMPARING.get(type(node.ops[0]))
            if name is not None and may_cross(node.left, node.comparators[0]):
                operands = [made.left, made.comparators[0]]
                if name == "contains":
                    operands.reverse()
                new = self.operate(name, operands, node)
                negated = isinstance(node.ops[0], (ast.NotIn, ast.IsNot))
                return here(ast.UnaryOp(ast.Not(), new), node) if negated else new
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Load)
            and may_cross(node.value, node.slice)
            and self.facts.kind(node.value) is Holds.ANYTHING
        ):
            return self.operate("getitem", [made.value, as_value(made.slice)], node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            two = name in ("divmod", "pow") and len(node.args) == 2 and not node.keywords
            if two and self.facts.is_builtin(name) and may_cross(*node.args):
                return self.operate(name, made.args, node)
        return made

    def operate(self, name: str, operands: Sequence[Any], place: Any) -> Any:
        """Return a call of one of the border's operators."""
        at = in_one_line(place)
        method = ast.Attribute(border_at(at), "operate", ast.Load())
        call = ast.Call(method, [ast.Constant(OPERATORS.index(name)), *operands], [])
        return here(call, at)

    def visit_BinOp(self, node: Any) -> Any:
        """Have an operation on what may be a package's go by the border."""
        before = copy_of(node)
        self.generic_visit(node)
        return self.operation(before, node)

    visit_Compare = visit_Subscript = visit_BinOp

    def visit_Call(self, node: ast.Call) -> Any:
        """Have a call go by the border."""
        arguments = [*node.args, *[keyword.value for keyword in node.keywords]]
        looks_only = self.facts.looks_only(node.func)
        plain = self.is_plain(node.func) and all(map(self.is_plain, arguments))
        if looks_only:
            before = copy_of(node)
            self.generic_visit(node)
            return self.operation(before, node)
        place = _place_of(node)
        test = border_at(place)
        if plain:
            func = self.crossing(node.func)
            args = [self.crossing(item) for item in node.args]
            named = [
                ast.keyword(keyword.arg, self.crossing(keyword.value)) for keyword in node.keywords
            ]
            crossing = here(ast.Call(test, [func, *args], named), place)
            return here(ast.IfExp(test, crossing, node), place)
        self.generic_visit(node)
        return here(ast.Call(test, [node.func, *node.args], node.keywords), place)


def _place_of(call: ast.Call) -> ast.expr:
    """Return where Python says that a call is: of a method, the line that names it."""
    func = call.func
    unpacks = any(isinstance(arg, ast.Starred) for arg in call.args)
    unpacks = unpacks or any(keyword.arg is None for keyword in call.keywords)
    if unpacks or not isinstance(func, ast.Attribute) or func.lineno == func.end_lineno:
        return call
    at = ast.copy_location(ast.Constant(None), call)
    at.lineno = func.end_lineno or func.lineno
    at.col_offset = max((func.end_col_offset or 0) - len(func.attr), 0)
    return at


def as_value(key: ast.expr) -> ast.expr:
    """Return a subscript as the value that it is: slices by the name of their class."""
    if isinstance(key, ast.Slice):
        parts = [part or ast.Constant(None) for part in (key.lower, key.upper, key.step)]
        builtin = ast.Attribute(ast.Name(NAME, ast.Load()), "slice", ast.Load())
        return ast.Call(builtin, parts, [])
    if isinstance(key, ast.Tuple):
        return ast.Tuple([as_value(part) for part in key.elts], ast.Load())
    return key
