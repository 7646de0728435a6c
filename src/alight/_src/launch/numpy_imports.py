"""The imports of NumPy in the program's files, pointed at the NumPy that it sees, and what its
`__array__` methods return, which NumPy takes of ndarrays alone."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator
from typing import Any

from alight._src.api.stand_ins import NAME

__all__ = ["rewrite"]

# By this name code finds what hands an array over: among the builtins, for a program may list its
# own names.
_HANDED_OVER = "__alight_handed_over__"
_SERVED = {"numpy": NAME, "numpy.random": f"{NAME}.random"}


def rewrite(tree: ast.Module) -> ast.Module:
    """Return the module with its imports of numpy pointed at the run namespace, line for line."""
    for statement in _statements(tree):
        if isinstance(statement, ast.Import):
            statement.names = [new for old in statement.names for new in _imported(old)]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            statement.module = _SERVED.get(statement.module or "", statement.module)
        elif isinstance(statement, ast.ClassDef):
            for method in statement.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__array__":
                    setattr(builtins, _HANDED_OVER, _handed_over)
                    method.body = [_Returns().visit(part) for part in method.body]
    return tree


def _handed_over(value: Any) -> Any:
    """Return a value as NumPy takes it of an object: an array of ours as the ndarray over it."""
    arrays = sys.modules.get("alight._src.record.array")
    if arrays is None or not isinstance(value, arrays.Array):
        return value
    from alight._src.jit.border_handover import handed_over  # late: few programs come here

    return handed_over(value)


class _Returns(ast.NodeTransformer):
    """Hands over what a function returns, not those within it."""

    def visit_Return(self, node: ast.Return) -> ast.Return:
        if node.value is not None:
            name = ast.copy_location(ast.Name(_HANDED_OVER, ast.Load()), node.value)
            node.value = ast.copy_location(ast.Call(name, [node.value], []), node.value)
        return node

    def _passed_by(self, node: Any) -> Any:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = _passed_by


def _imported(alias: ast.alias) -> list[ast.alias]:
    ours = _SERVED.get(alias.name)
    if ours is not None and (alias.asname is not None or alias.name == "numpy"):
        return [ast.copy_location(ast.alias(ours, alias.asname or "numpy"), alias)]
    if alias.asname is not None or not alias.name.startswith("numpy."):
        return [alias]
    # `import numpy.linalg` imports the submodule and binds "numpy": then bind that name again.
    return [alias, ast.copy_location(ast.alias(NAME, "numpy"), alias)]


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield every statement; expressions hold none, so they are not walked."""
    stack: list[Any] = [tree]
    while stack:
        block = stack.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            for inner in getattr(block, name, ()):
                stack.append(inner)
                if isinstance(inner, ast.stmt):
                    yield inner
