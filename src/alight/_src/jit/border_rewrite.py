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
from alight._src.jit.border import NAME, NUMPY, border, installed
from alight._src.jit.border_expressions import (
    BINARY,
    Expressions,
    as_value,
    border_at,
    here,
    in_one_line,
)
from alight._src.jit.border_names import Facts, Holds
from alight._src.jit.code_origin import READERS
from alight._src.jit.gates import ungated
from alight._src.jit.global_stores import storing

__all__ = ["holding_border", "reroute", "rerouted_code"]

_VALUE = "__alight_value__"


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
        return here(found, node)


class _Reroute(Expressions):
    """Has what is stored, returned and yielded go by the border, too."""

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
            statements = [
                statement
                for target in node.targets
                for statement in self.unpacked(target, held, part, node)
            ]
            lowered = [here(ast.Assign([held(ast.Store)], part(node.value)), node)]
            lowered += _while_held([held], statements, node)
        return here(ast.If(border_at(node), lowered, [node]), node) if plain else lowered

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
            return here(ast.Assign([part(target)], value), place)
        if isinstance(target, ast.Subscript):
            name, key = "set_item", as_value(part(target.slice))
        else:
            name, key = "set_attribute", ast.Constant(target.attr)
        method = ast.Attribute(border_at(in_one_line(target)), name, ast.Load())
        call = ast.Call(method, [value, part(target.value), key], [])
        return here(ast.Expr(here(call, in_one_line(target))), place)

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
        unpacked = here(ast.Assign([new], held(ast.Load)), place)
        return [unpacked, *_while_held(names, statements, place)]

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
        name = "i" + BINARY[type(node.op)].rstrip("_")
        if named:
            old = ast.copy_location(ast.Name(target.id, ast.Load()), target)
            new = self.operate(name, [old, part(node.value)], node)
            lowered: list[Any] = [here(ast.Assign([target], new), node)]
        else:
            lowered = self.changed(target, name, node.value, part, node)
        return here(ast.If(border_at(node), lowered, [node]), node) if plain else lowered

    def changed(self, target: Any, name: str, value: Any, part: Any, place: Any) -> list[Any]:
        """Return the statements of an operation in place on an item or an attribute."""
        holder, key, item = (self.name(target) for _ in range(3))
        lowered: list[Any] = []
        if isinstance(target, ast.Subscript):
            old = self.operate("getitem", [holder(ast.Load), key(ast.Load)], place)
            stored: Any = ast.Subscript(holder(ast.Load), key(ast.Load), ast.Store())
        else:
            old = here(ast.Attribute(holder(ast.Load), target.attr, ast.Load()), place)
            stored = ast.Attribute(holder(ast.Load), target.attr, ast.Store())
        new = self.operate(name, [item(ast.Load), part(value)], place)
        lowered.append(here(ast.Assign([item(ast.Store)], new), place))
        lowered.append(self.store(here(stored, target), item(ast.Load), lambda n: n, place))
        lowered = _while_held([item], lowered, place)
        lowered.insert(0, here(ast.Assign([item(ast.Store)], old), place))
        if isinstance(target, ast.Subscript):
            lowered = _while_held([key], lowered, place)
            taken = as_value(part(target.slice))
            lowered.insert(0, here(ast.Assign([key(ast.Store)], taken), place))
        lowered = _while_held([holder], lowered, place)
        return [here(ast.Assign([holder(ast.Store)], part(target.value)), place), *lowered]

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
                items = [part(target.value), as_value(part(target.slice))]  # type: ignore[attr-defined]
                lowered.append(here(ast.Expr(self.operate("delitem", items, target)), node))
            else:
                lowered.append(here(ast.Delete([part(target)]), node))
        return here(ast.If(border_at(node), lowered, [node]), node) if plain else lowered

    def visit_For(self, node: Any) -> Any:
        """Have what a loop stores in others' objects go by the border."""
        if self.stores(node.target, None):
            held = self.name(node.target)
            stored = self.unpacked(node.target, held, self.visit, node.target)
            stored = _while_held([held], stored, node.target)
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
            return here(ast.Return(self._given(node.value, node.value)), node)
        self.generic_visit(node)
        given = here(ast.Assign([ast.Name(_VALUE, ast.Store())], node.value), node)
        value = ast.copy_location(ast.Name(_VALUE, ast.Load()), node)
        return [given, here(ast.Return(self._given(value, node)), node)]

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
        method = ast.Attribute(border_at(place), "give", ast.Load())
        if not self.is_plain(value):
            return here(ast.Call(method, [self.visit(value)], []), place)  # type: ignore[no-any-return]
        call = here(ast.Call(method, [self.crossing(value)], []), place)
        return here(ast.IfExp(border_at(place), call, value), place)  # type: ignore[no-any-return]

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


def _while_held(names: Sequence[Any], statements: list[Any], place: Any) -> list[Any]:
    """Return statements after which names are gone, whatever they raise: a module's would stay."""
    if not names:
        return statements
    deleted = here(ast.Delete([name(ast.Del) for name in names]), place)
    return [here(ast.Try(statements, [], [], [deleted]), place)] if statements else [deleted]


def _is_mangled(target: Any) -> bool:
    """Tell whether an attribute may have another name in a class."""
    return isinstance(target, ast.Attribute) and target.attr[:2] == "__" != target.attr[-2:]


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


def rerouted_code(code: CodeType, crosses: bool = True, stores: bool = False) -> CodeType:
    """Return a function's code as `reroute` makes it of its file if it ``crosses`` the border, and
    `storing` if it ``stores`` globals; the very code where the file no longer has it, or where it
    goes by the border already."""
    return _rerouted(code.co_filename, ungated(code), crosses, stores)


@lru_cache(1024)  # by the file, too: code is equal to another file's that says the same
def _rerouted(path: str, code: CodeType, crosses: bool, stores: bool) -> CodeType:
    if NAME in code.co_names:
        return code
    source = "".join(linecache.getlines(path))
    return _of_file(path, source, crosses, stores).get(code, code)


@lru_cache(64)
def _of_file(path: str, source: str, crosses: bool, stores: bool) -> dict[CodeType, CodeType]:
    """Return the codes of a file, with what is made of each."""
    if not source:
        return {}
    try:
        plain = compile(source, path, "exec", dont_inherit=True)
        with parsing.lock:
            tree: Any = compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        tree = reroute(tree) if crosses else tree
        tree = storing(tree) if stores else tree
        with parsing.lock:
            other = compile(tree, path, "exec", dont_inherit=True)
        other = holding_border(other) if crosses else other
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
