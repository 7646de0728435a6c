"""The imports of NumPy in the program's files, pointed at the NumPy that it sees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from alight._src.api.stand_ins import NAME

__all__ = ["rewrite"]

_SERVED = {"numpy": NAME, "numpy.random": f"{NAME}.random"}


def rewrite(tree: ast.Module) -> ast.Module:
    """Return the module with its imports of numpy pointed at the run namespace, line for line."""
    for statement in _statements(tree):
        if isinstance(statement, ast.Import):
            statement.names = [new for old in statement.names for new in _imported(old)]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            statement.module = _SERVED.get(statement.module or "", statement.module)
    return tree


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
