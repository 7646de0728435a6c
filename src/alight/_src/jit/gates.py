"""Gates at the beginning of the program's own functions, put there where their files are compiled,
and what their code is without them.

What stands there is said in _core/native/gate.c. Function objects, and who calls them, know
nothing of it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any

from alight._core import Gate
from alight._src.jit.code_origin import READERS

__all__ = ["Origin", "gated", "ungated", "with_gates"]

# No name of a variable that a program can write.
_ANSWER = ".alight"
# What stands for a gate until its code is compiled, with the number of operations that stand in the
# body; what is done with it a compiler does not fold, and does not warn of.
_MARK = "\0alight gate "
# Packages that compile functions from their code, and know no gates.
_READERS = READERS | {"torch"}


class Origin:
    """Where the code of a file is had as it is without gates, made when it is asked for."""

    __slots__ = ("_codes", "_make")

    def __init__(self, make: Callable[[], CodeType | None]) -> None:
        self._make = make
        self._codes: dict[tuple[int, ...], CodeType] | None = None

    def code(self, path: tuple[int, ...]) -> CodeType | None:
        """Return the code at the end of a path of numbers, each of a code among those in one."""
        if self._codes is None:
            whole = self._make()
            self._codes = {} if whole is None else dict(_codes(whole, ()))
        return self._codes.get(path)


def _codes(code: CodeType, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], CodeType]]:
    yield path, code
    for number, inner in enumerate(_inner(code)):
        yield from _codes(inner, (*path, number))


def _inner(code: CodeType) -> list[CodeType]:
    return [item for item in code.co_consts if isinstance(item, CodeType)]


def gated(tree: ast.Module) -> bool:
    """Put what stands for gates into the functions of a file, in place; tell whether there are
    any."""
    if any(_reads_code(node) for node in ast.walk(tree)):
        return False
    return _put_into(tree)


def _reads_code(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return any(name.partition(".")[0] in _READERS for name in names)


def _put_into(block: Any) -> bool:
    """Put them into the functions that stand in a block, however deep."""
    found = False
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(block, name, ()):
            if isinstance(inner, ast.FunctionDef):
                own = _Own(inner)
                if own.stays:  # what is inside it assigns names of outside as it does
                    continue
                found = _put_into(inner) or found
                if own.operations:
                    _put_before(inner, own.operations)
                    found = True
            elif isinstance(inner, (ast.stmt, ast.excepthandler, ast.match_case)):
                found = _put_into(inner) or found
    return found


# What a body has that does something else than to compute, or runs after the call: a proof would
# end there, and a gate costs 5 ns a call (EPYC).
_EFFECTS = (
    *(ast.Yield, ast.YieldFrom, ast.Await, ast.Import, ast.ImportFrom, ast.Delete),
    *(ast.AsyncFor, ast.AsyncWith, ast.ClassDef, ast.AsyncFunctionDef, ast.Try, ast.TryStar),
)
_ACTING = frozenset(
    ("print", "open", "input", "eval", "exec", "super", "setattr", "globals", "locals", "vars")
)
_OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.AugAssign)
_FEWEST = 2  # of one there is nothing to fuse


class _Own:
    """What stands in a function's own body: how many operations, 0 where it is not to be looked
    at; ``stays``: nothing in it is."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.operations = 0
        self.stays = False
        self._not_called = _ACTING | {function.name}  # a function that calls itself runs plain
        given = _parameters(function)
        self._holder = given[0] if given and given[0] in ("self", "cls") else ""
        effects = not given
        open_nodes: list[ast.AST] = [*function.body]
        while open_nodes:
            node = open_nodes.pop()
            effects = effects or isinstance(node, _EFFECTS) or self._acts(node)
            self.stays = self.stays or isinstance(node, (ast.Global, ast.Nonlocal))
            self.operations += isinstance(node, _OPERATIONS)
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                open_nodes.extend(ast.iter_child_nodes(node))
        if effects or self.operations < _FEWEST:
            self.operations = 0

    def _acts(self, node: ast.AST) -> bool:
        """Tell whether an expression asks an object of the program's for what it has, changes one,
        or calls what acts."""
        if isinstance(node, ast.Attribute):
            stores = not isinstance(node.ctx, ast.Load)
            return stores or (isinstance(node.value, ast.Name) and node.value.id == self._holder)
        return isinstance(node, ast.Name) and node.id in self._not_called


def _parameters(function: ast.FunctionDef) -> list[str]:
    """Return the names of parameters in the order that code has them in."""
    given = function.args
    found = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [arg.arg for arg in (*found, given.vararg, given.kwarg) if arg is not None]


def _put_before(function: ast.FunctionDef, operations: int) -> None:
    first = function.body[0]
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    place = 1 if text and isinstance(first.value.value, str) else 0  # type: ignore[attr-defined]
    if place == len(function.body):
        return

    def gate(sign: ast.unaryop) -> ast.expr:
        return ast.UnaryOp(sign, ast.Constant(f"{_MARK}{operations}"))

    def answer(context: ast.expr_context) -> ast.expr:
        return ast.Name(_ANSWER, context)

    given: list[ast.expr] = [ast.Name(name, ast.Load()) for name in _parameters(function)]
    asked: list[ast.stmt] = [
        ast.Assign([answer(ast.Store())], ast.Call(gate(ast.Invert()), given, [])),
        ast.If(
            ast.Compare(answer(ast.Load()), [ast.IsNot()], [gate(ast.Invert())]),
            [ast.Return(answer(ast.Load()))],
            [],
        ),
        ast.Delete([answer(ast.Del())]),
    ]
    caught = ast.Try(asked, [ast.ExceptHandler(gate(ast.UAdd()), None, [ast.Pass()])], [], [])
    whole = ast.If(gate(ast.USub()), [caught], [])
    # In the line where the body begins: nobody who follows lines sees another.
    line = getattr(function.body[place], "decorator_list", None) or [function.body[place]]
    for node in ast.walk(whole):
        if "lineno" in node._attributes:
            node.lineno = node.end_lineno = line[0].lineno  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = line[0].col_offset  # type: ignore[attr-defined]
    function.body.insert(place, whole)


def with_gates(code: CodeType, origin: Origin, path: tuple[int, ...] = ()) -> CodeType:
    """Return code with gates where such stand for them; each knows where its code is without it."""
    consts: list[Any] = []
    number = 0
    for item in code.co_consts:
        if isinstance(item, CodeType):
            consts.append(with_gates(item, origin, (*path, number)))
            number += 1
        elif type(item) is str and item.startswith(_MARK):
            # What is found in cells is not among the arguments.
            known = None if code.co_freevars else (origin, path)
            consts.append(Gate(known, int(item[len(_MARK) :])))
        else:
            consts.append(item)
    return code.replace(co_consts=tuple(consts))


@lru_cache(1024)  # asked of all code that is looked at
def ungated(code: CodeType) -> CodeType:
    """Return code without its gate; the very code where it has none."""
    for item in code.co_consts:
        if type(item) is Gate and item.origin is not None:
            origin, path = item.origin
            return origin.code(path) or code
    return code
