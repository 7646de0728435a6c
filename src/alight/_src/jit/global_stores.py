"""Functions that assign globals, as they run inside `jit`: CPython stores globals past any answer
of ours, so what is assigned goes to the real ones by an object that is found among them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Any

__all__ = ["STORES", "Stores", "storing"]

# Under which name a twin finds where to store globals.
STORES = "__alight_globals__"


class Stores:
    """A module's globals to assign by subscripts, with the errors of names."""

    __slots__ = ("_real",)

    def __init__(self, real: dict[str, Any]) -> None:
        self._real = real

    def __getitem__(self, name: str) -> Any:
        found = self._real.get(name, self)
        if found is self:
            found = vars(builtins).get(name, self)
        if found is self:
            raise _undefined(name)
        return found

    def __setitem__(self, name: str, item: Any) -> None:
        self._real[name] = item

    def __delitem__(self, name: str) -> None:
        if self._real.pop(name, self) is self:
            raise _undefined(name)


def _undefined(name: str) -> NameError:
    return NameError(f"name {name!r} is not defined", name=name)


def storing(tree: ast.Module) -> ast.Module:
    """Return a module's tree, changed in place, with functions that assign globals by subscripts of
    what is called STORES. Those that bind one otherwise, as by an import, stay as they are."""
    _Storing().visit(tree)
    return ast.fix_missing_locations(tree)


class _Storing(ast.NodeTransformer):
    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()  # globals that the scope assigns

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id not in self.names or isinstance(node.ctx, ast.Load):
            return node
        place = ast.Subscript(ast.Name(STORES, ast.Load()), ast.Constant(node.id), node.ctx)
        return ast.copy_location(place, node)

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        node.iter = self.visit(node.iter)
        node.ifs = [self.visit(test) for test in node.ifs]
        return node  # what it assigns is its own

    def _scope(self, node: Any) -> Any:
        function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        names = _assigned(node) if function else frozenset()
        before, self.names = self.names, names
        try:
            return self.generic_visit(node)
        finally:
            self.names = before

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _scope


def _assigned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Return the globals that a function assigns, none where it binds one in a way that takes a
    name."""
    parts = [part for statement in function.body for part in _of_scope(statement)]
    names = {name for part in parts if isinstance(part, ast.Global) for name in part.names}
    bound = {name for part in parts for name in _bound(part)}
    return frozenset() if names & bound else frozenset(names)


def _of_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is in it, without the bodies of functions and classes inside."""
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        for part in ast.iter_child_nodes(node):
            yield from _of_scope(part)


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds where Python's grammar has no place for a subscript."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.MatchMapping):
        yield from () if node.rest is None else (node.rest,)
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        yield from () if node.name is None else (node.name,)
