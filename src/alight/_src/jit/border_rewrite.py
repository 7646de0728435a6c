"""The program's code with its calls, stores and returns going by the border, line for line.

Only what may reach a package's code is rewritten: not calls of what the file itself defines, of
builtins that only look, or of NumPy's functions, nor operators on what cannot be a package's
object. What can make no Array before it is reached keeps its own form beside the other: while no
Array lives it costs one test.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from alight._src.base import parsing
from alight._src.base.failures import failures
from alight._src.jit.border import NAME, NUMPY, OPERATORS, border, installed
from alight._src.jit.border_names import Facts, Holds
from alight._src.jit.code_origin import READERS

__all__ = ["holding_border", "reroute", "rerouted_code"]

_VALUE = "__alight_value__"

# ------------------------------------------------------------------------------------- the new tree


def _here(new: Any, old: Any) -> Any:
    return ast.fix_missing_locations(ast.copy_location(new, old))


def _border(place: Any) -> ast.Name:
    return ast.copy_location(ast.Name(NAME, ast.Load()), place)


def _at(place: Any) -> ast.expr:
    """Return a place of one line: Python says that a call of a method is in the last."""
    at = ast.copy_location(ast.Constant(None), place)
    at.end_lineno, at.end_col_offset = at.lineno, at.col_offset
    return at


_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.MatMult: "matmul", ast.LShift: "lshift",
    ast.RShift: "rshift", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor",
}  # fmt: skip
_COMPARING = {
    ast.Lt: "lt", ast.LtE: "le", ast.Eq: "eq", ast.NotEq: "ne", ast.Gt: "gt", ast.GtE: "ge",
    ast.In: "contains", ast.NotIn: "contains",
}  # fmt: skip
# Expressions that are rewritten whole, where they make no first Array before it is reached.
_WHOLE = (ast.BinOp, ast.Compare, ast.Subscript, ast.BoolOp, ast.UnaryOp, ast.IfExp, ast.Tuple)
_COMPUTED = (*_WHOLE, ast.Attribute, ast.Slice, ast.Starred, ast.List)


def _is_part(node: Any) -> bool:
    """Tell whether an expression is what something is stored in, or slices of a subscript."""
    if not isinstance(getattr(node, "ctx", None), (ast.Load, type(None))):
        return True
    return isinstance(node, ast.Tuple) and any(isinstance(i, ast.Slice) for i in node.elts)


def _copy_of(node: Any) -> Any:
    """Return a node of the same parts, which are not rewritten."""
    fields = {k: list(v) if isinstance(v, list) else v for k, v in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


class _OfNumPy(ast.NodeTransformer):
    """Has functions whose code a package reads find NumPy itself, under `alight run` too."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def visit_Name(self, node: ast.Name) -> Any:
        """Return what a name is of NumPy, as an attribute of it."""
        parts = self.facts.numpys(node.id) if isinstance(node.ctx, ast.Load) else None
        if parts is None:
            return node
        found: ast.expr = ast.Name(NUMPY, ast.Load())
        for part in parts:
            found = ast.Attribute(found, part, ast.Load())
        return _here(found, node)


class _Reroute(ast.NodeTransformer):
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.plain: dict[int, tuple[Any, bool]] = {}
        self.made = 0

    def visit(self, node: Any) -> Any:
        """Return a node going by the border; an expression that makes no first Array keeps its own
        form beside it."""
        if isinstance(node, _WHOLE) and not _is_part(node) and self.is_plain(node):
            new = self.crossing(node)
            return node if new is node else _here(ast.IfExp(_border(node), new, node), node)
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
            return self.operate(_BINARY[type(node.op)], [made.left, made.right], node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            name = _COMPARING.get(type(node.ops[0]))
            if name is not None and may_cross(node.left, node.comparators[0]):
                operands = [made.left, made.comparators[0]]
                if name == "contains":
                    operands.reverse()
                new = self.operate(name, operands, node)
                negated = isinstance(node.ops[0], ast.NotIn)
                return _here(ast.UnaryOp(ast.Not(), new), node) if negated else new
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Load)
            and may_cross(node.value, node.slice)
            and self.facts.kind(node.value) is Holds.ANYTHING
        ):
            return self.operate("getitem", [made.value, _as_value(made.slice)], node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            two = name in ("divmod", "pow") and len(node.args) == 2 and not node.keywords
            if two and self.facts.is_builtin(name) and may_cross(*node.args):
                return self.operate(name, made.args, node)
        return made

    def operate(self, name: str, operands: Sequence[Any], place: Any) -> Any:
        """Return a call of one of the border's operators."""
        at = _at(place)
        method = ast.Attribute(_border(at), "operate", ast.Load())
        call = ast.Call(method, [ast.Constant(OPERATORS.index(name)), *operands], [])
        return _here(call, at)

    def visit_BinOp(self, node: Any) -> Any:
        """Have an operation on what may be a package's go by the border."""
        before = _copy_of(node)
        self.generic_visit(node)
        return self.operation(before, node)

    visit_Compare = visit_Subscript = visit_BinOp

    def visit_Call(self, node: ast.Call) -> Any:
        """Have a call go by the border."""
        arguments = [*node.args, *[keyword.value for keyword in node.keywords]]
        looks_only = self.facts.looks_only(node.func)
        plain = self.is_plain(node.func) and all(map(self.is_plain, arguments))
        if looks_only:
            before = _copy_of(node)
            self.generic_visit(node)
            return self.operation(before, node)
        place = _place_of(node)
        test = _border(place)
        if plain:
            func = self.crossing(node.func)
            args = [self.crossing(item) for item in node.args]
            named = [
                ast.keyword(keyword.arg, self.crossing(keyword.value)) for keyword in node.keywords
            ]
            crossing = _here(ast.Call(test, [func, *args], named), place)
            return _here(ast.IfExp(test, crossing, node), place)
        self.generic_visit(node)
        return _here(ast.Call(test, [node.func, *node.args], node.keywords), place)

    # ------------------------------------------------------------------------------- statements

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Have what is stored in others' objects go by the border."""
        if not any(self.stores(target, node.value) for target in node.targets):
            return self.generic_visit(node)
        plain = self.is_plain(node.value) and all(map(self.is_plain_target, node.targets))
        part = self.crossing if plain else self.visit
        if len(node.targets) == 1 and not isinstance(node.targets[0], (ast.Tuple, ast.List)):
            lowered = [self.store(node.targets[0], part(node.value), part, node)]
        else:
            held = self.name(node.value)
            lowered = [_here(ast.Assign([held(ast.Store)], part(node.value)), node)]
            for target in node.targets:
                lowered += self.unpacked(target, held, part, node)
            lowered.append(_here(ast.Delete([held(ast.Del)]), node))
        return _here(ast.If(_border(node), lowered, [node]), node) if plain else lowered

    def stores(self, target: ast.expr, value: ast.expr | None) -> bool:
        """Tell whether something may be stored in a package's object, and is, or has, an Array."""
        if isinstance(target, (ast.Tuple, ast.List)):
            return any(self.stores(item, None) for item in target.elts)
        if isinstance(target, ast.Starred):
            return self.stores(target.value, None)
        if not isinstance(target, (ast.Subscript, ast.Attribute)) or _is_mangled(target):
            return False
        given = value is None or self.facts.kind(value) > Holds.SCALAR
        if isinstance(target, ast.Subscript):
            given = given or self.facts.kind(target.slice) > Holds.SCALAR
        return given and self.facts.kind(target.value) is Holds.ANYTHING

    def is_plain_target(self, target: ast.expr) -> bool:
        """Tell whether what something is stored in can be written twice."""
        if isinstance(target, (ast.Tuple, ast.List)):
            return all(map(self.is_plain_target, target.elts))
        return self.is_plain(target)

    def store(self, target: Any, value: Any, part: Any, place: Any) -> Any:
        """Return a statement that stores a value by the border, or as Python does."""
        if not isinstance(target, (ast.Subscript, ast.Attribute)) or _is_mangled(target):
            return _here(ast.Assign([target], value), place)
        if isinstance(target, ast.Subscript):
            name, key = "set_item", _as_value(part(target.slice))
        else:
            name, key = "set_attribute", ast.Constant(target.attr)
        method = ast.Attribute(_border(_at(target)), name, ast.Load())
        call = ast.Call(method, [value, part(target.value), key], [])
        return _here(ast.Expr(_here(call, _at(target))), place)

    def unpacked(self, target: Any, held: Any, part: Any, place: Any) -> list[Any]:
        """Return the statements that unpack a held value into targets, in Python's order."""
        if not isinstance(target, (ast.Tuple, ast.List)):
            return [self.store(target, held(ast.Load), part, place)]
        names, items, statements = [], [], []
        for item in target.elts:
            starred = isinstance(item, ast.Starred)
            inner = item.value if isinstance(item, ast.Starred) else item
            name = self.name(inner)
            names.append(name)
            items.append(ast.Starred(name(ast.Store), ast.Store()) if starred else name(ast.Store))
            statements += self.unpacked(inner, name, part, place)
        new = ast.Tuple(items, ast.Store())
        deleted = [_here(ast.Delete([name(ast.Del) for name in names]), place)] if names else []
        unpacked = _here(ast.Assign([new], held(ast.Load)), place)
        return [unpacked, *statements, *deleted]

    def name(self, place: Any) -> Any:
        """Return what makes the nodes of a new name."""
        self.made += 1
        text = f"__alight_{self.made}__"
        return lambda context: ast.copy_location(ast.Name(text, context()), place)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """Have an operation in place go by the border, what it changes taken first."""
        target: Any = node.target
        named = isinstance(target, ast.Name)
        if not self.facts.may_cross(target, node.value):
            return self.generic_visit(node)
        plain = self.is_plain(node.value) and self.is_plain(target)
        part = self.crossing if plain else self.visit
        name = "i" + _BINARY[type(node.op)].rstrip("_")
        if named:
            old = ast.copy_location(ast.Name(target.id, ast.Load()), target)
            new = self.operate(name, [old, part(node.value)], node)
            lowered: list[Any] = [_here(ast.Assign([target], new), node)]
        else:
            lowered = self.changed(target, name, node.value, part, node)
        return _here(ast.If(_border(node), lowered, [node]), node) if plain else lowered

    def changed(self, target: Any, name: str, value: Any, part: Any, place: Any) -> list[Any]:
        """Return the statements of an operation in place on an item or an attribute."""
        holder, key, item = (self.name(target) for _ in range(3))
        lowered = [_here(ast.Assign([holder(ast.Store)], part(target.value)), place)]
        held = [holder, item]
        if isinstance(target, ast.Subscript):
            held.append(key)
            lowered.append(
                _here(ast.Assign([key(ast.Store)], _as_value(part(target.slice))), place)
            )
            old = self.operate("getitem", [holder(ast.Load), key(ast.Load)], place)
            stored: Any = ast.Subscript(holder(ast.Load), key(ast.Load), ast.Store())
        else:
            old = _here(ast.Attribute(holder(ast.Load), target.attr, ast.Load()), place)
            stored = ast.Attribute(holder(ast.Load), target.attr, ast.Store())
        lowered.append(_here(ast.Assign([item(ast.Store)], old), place))
        new = self.operate(name, [item(ast.Load), part(value)], place)
        lowered.append(_here(ast.Assign([item(ast.Store)], new), place))
        lowered.append(self.store(_here(stored, target), item(ast.Load), lambda n: n, place))
        lowered.append(_here(ast.Delete([one(ast.Del) for one in held]), place))
        return lowered

    def visit_Delete(self, node: ast.Delete) -> Any:
        """Have items of what may be a package's deleted by the border."""
        crossing = [
            isinstance(target, ast.Subscript)
            and self.facts.kind(target.value) is Holds.ANYTHING
            and self.facts.kind(target.slice) > Holds.SCALAR
            for target in node.targets
        ]
        if not any(crossing):
            return self.generic_visit(node)
        plain = all(map(self.is_plain_target, node.targets))
        part = self.crossing if plain else self.visit
        lowered: list[Any] = []
        for target, crosses in zip(node.targets, crossing, strict=True):
            if crosses:
                items = [part(target.value), _as_value(part(target.slice))]  # type: ignore[attr-defined]
                lowered.append(_here(ast.Expr(self.operate("delitem", items, target)), node))
            else:
                lowered.append(_here(ast.Delete([target]), node))
        return _here(ast.If(_border(node), lowered, [node]), node) if plain else lowered

    def visit_For(self, node: Any) -> Any:
        """Have what a loop stores in others' objects go by the border."""
        if self.stores(node.target, None):
            held = self.name(node.target)
            stored = self.unpacked(node.target, held, self.visit, node.target)
            stored.append(_here(ast.Delete([held(ast.Del)]), node.target))
            node.target = held(ast.Store)
            node.iter = self.visit(node.iter)
            node.body = [*stored, *self._statements(node.body)]
            node.orelse = list(self._statements(node.orelse))
            return node
        return self.generic_visit(node)

    visit_AsyncFor = visit_For

    def visit_Return(self, node: ast.Return) -> Any:
        """Have what is returned go by the border."""
        if node.value is None or self.facts.kind(node.value) is Holds.SCALAR:
            return self.generic_visit(node)
        if self.is_plain(node.value):
            return _here(ast.Return(self._given(node.value, node.value)), node)
        self.generic_visit(node)
        given = _here(ast.Assign([ast.Name(_VALUE, ast.Store())], node.value), node)
        value = ast.copy_location(ast.Name(_VALUE, ast.Load()), node)
        return [given, _here(ast.Return(self._given(value, node)), node)]

    def visit_Yield(self, node: ast.Yield) -> Any:
        """Have what is yielded go by the border."""
        if node.value is None or self.facts.kind(node.value) is Holds.SCALAR:
            return self.generic_visit(node)
        node.value = self._given(node.value, node.value)
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        """Have what a generator expression yields go by the border."""
        node.generators = [self.visit(item) for item in node.generators]
        if self.facts.kind(node.elt) is Holds.SCALAR:
            node.elt = self.visit(node.elt)
        else:
            node.elt = self._given(node.elt, node.elt)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        """Have what a lambda returns go by the border."""
        if id(node) in self.facts.read:
            return _OfNumPy(self.facts).visit(node) if self.facts.own else node
        node.args = self.visit(node.args)
        if self.facts.kind(node.body) is Holds.SCALAR:
            node.body = self.visit(node.body)
        else:
            node.body = self._given(node.body, node.body)
        return node

    def _given(self, value: ast.expr, place: Any) -> ast.expr:
        """Return an expression for what is handed to who asked for a value that is not rewritten
        yet."""
        method = ast.Attribute(_border(place), "give", ast.Load())
        if not self.is_plain(value):
            return _here(ast.Call(method, [self.visit(value)], []), place)  # type: ignore[no-any-return]
        call = _here(ast.Call(method, [self.crossing(value)], []), place)
        return _here(ast.IfExp(_border(place), call, value), place)  # type: ignore[no-any-return]

    def _visit_definition(self, node: Any) -> Any:
        if id(node) in self.facts.read:
            return _OfNumPy(self.facts).visit(node) if self.facts.own else node
        # Annotations may be kept as text.
        node.decorator_list = [self.visit(item) for item in node.decorator_list]
        node.args.defaults = [self.visit(item) for item in node.args.defaults]
        node.args.kw_defaults = [item and self.visit(item) for item in node.args.kw_defaults]
        node.body = list(self._statements(node.body))
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_definition

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Have what is stored go by the border, and leave the annotation as it is."""
        if node.value is None:
            return node
        plain = self.is_plain(node.value) and self.is_plain(node.target)
        if plain and self.stores(node.target, node.value):
            told = ast.copy_location(ast.AnnAssign(node.target, node.annotation, None, 0), node)
            value = self.crossing(node.value)
            return [told, self.store(node.target, value, self.crossing, node)]
        node.value = self.visit(node.value)
        return node

    def _statements(self, body: list[Any]) -> Iterator[Any]:
        for statement in body:
            new = self.visit(statement)
            yield from new if isinstance(new, list) else (new,)


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


def _is_mangled(target: Any) -> bool:
    """Tell whether an attribute may have another name in a class."""
    return isinstance(target, ast.Attribute) and target.attr[:2] == "__" != target.attr[-2:]


def _as_value(key: ast.expr) -> ast.expr:
    """Return a subscript as the value that it is: slices by the name of their class."""
    if isinstance(key, ast.Slice):
        parts = [part or ast.Constant(None) for part in (key.lower, key.upper, key.step)]
        builtin = ast.Attribute(ast.Name(NAME, ast.Load()), "slice", ast.Load())
        return ast.Call(builtin, parts, [])
    if isinstance(key, ast.Tuple):
        return ast.Tuple([_as_value(part) for part in key.elts], ast.Load())
    return key


def reroute(tree: ast.Module, readers: frozenset[str] = READERS, own: bool = False) -> ast.Module:
    """Return a module's tree, changed in place, with what leaves the program's code going by the
    border. Functions that are given to the packages of ``readers`` stay as they
    are; with ``own`` calls of what the file defines, too, for its code goes by the border itself.
    """
    installed()
    limit = sys.getrecursionlimit()
    # Python's compiler takes expressions several times as deep as a visitor's frames may be.
    sys.setrecursionlimit(max(limit, _DEEP))
    try:
        _Reroute(Facts(tree, readers, own)).visit(tree)
    finally:
        sys.setrecursionlimit(limit)
    return tree


# Frames: three for a level, of which the compiler takes three times as many as the limit that
# Python begins with (Python/symtable.c, COMPILER_STACK_FRAME_SCALE).
_DEEP = 3 * 3 * 1000 + 1000


def holding_border(code: CodeType) -> CodeType:
    """Return code with the border among its constants, and that of code inside it: where it is
    pickled by value, another process finds the border by that."""
    consts = [holding_border(c) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.replace(co_consts=(*consts, border))


# ------------------------------------------------------------------------- code that is made


@lru_cache(1024)
def rerouted_code(code: CodeType) -> CodeType:
    """Return a function's code as `reroute` makes it of its file; the very code where the file no
    longer has it, or where it goes by the border already."""
    if NAME in code.co_names:
        return code
    found = _of_file(code.co_filename, "".join(linecache.getlines(code.co_filename)))
    return found.get(code, code)


@lru_cache(64)
def _of_file(path: str, source: str) -> dict[CodeType, CodeType]:
    """Return the codes of a file, with what `reroute` makes of each."""
    if not source:
        return {}
    try:
        plain = compile(source, path, "exec", dont_inherit=True)
        with parsing.lock:
            tree: Any = compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        tree = reroute(tree)
        with parsing.lock:
            other = holding_border(compile(tree, path, "exec", dont_inherit=True))
    except failures(SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[CodeType, CodeType] = {}
    _pair(plain, other, found)
    return found


def _pair(plain: CodeType, other: CodeType, found: dict[CodeType, CodeType]) -> None:
    ours, theirs = _inner(plain), _inner(other)
    if [c.co_qualname for c in ours] != [c.co_qualname for c in theirs]:
        return
    for one, two in zip(ours, theirs, strict=True):
        if one.co_freevars == two.co_freevars:
            found[one] = two
        _pair(one, two, found)


def _inner(code: CodeType) -> list[CodeType]:
    return [item for item in code.co_consts if isinstance(item, CodeType)]
