"""The function of its inputs that code of the program's own is.

What the code reads of `self`, of enclosing functions or of its module becomes a parameter, and what
it assigns there a result, which the gate stores once all is done. Numbers that are made of numbers
alone (a clock, a counter) are computed apart, as they are written: else each turn would be a call
of its own kind.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any

from alight._core import ArrayBase, Gate
from alight._src.base.originals import np
from alight._src.base.records import dataclass
from alight._src.jit.gates import Origin
from alight._src.jit.liftable import STATEMENTS, Place, Source, mangled, parameters

__all__ = ["Lifted", "lift"]

_NAME = ".alight"  # of what is compiled, until it has the name of what it stands for
_NUMBERS = (int, float, complex, bool)
_COMPUTED = (
    *(ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp),
    *(ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context),
)


@dataclass(frozen=True, slots=True)
class Lifted:
    """A function, of the ``picked`` ones of a gate's inputs, each of which has a role there;
    ``numbers``: the function of all inputs that computes the numbers of what is stored."""

    function: FunctionType
    roles: tuple[tuple[Any, ...], ...]
    picked: tuple[int, ...]
    numbers: FunctionType | None
    stored: tuple[Any, ...]
    results: tuple[str, ...]  # variables of the function: what is stored behind the numbers
    made: tuple[str, ...]  # variables of ``numbers``: what it returns
    statements: list[ast.stmt]  # of ``numbers``
    inputs: tuple[str, ...]
    origin: Origin

    def numbers_before(self, line: int, inputs: tuple[Any, ...], absent: Any) -> list[Any]:
        """Return the numbers as they are stored before a line runs; ``absent`` for one that is
        not."""
        done = [item for item in self.statements if (item.end_lineno or item.lineno) < line]
        there = {name for item in done for name in _names(item, ast.Store)}.intersection(self.made)
        function = _computing(self.origin, done, list(there), self.inputs, {})
        found = dict(zip(there, function(*inputs), strict=True))
        return [found.get(name, absent) for name in self.made]


def lift(gate: Gate, inputs: tuple[Any, ...], names: dict[str, Any]) -> Lifted | None:
    """Return the function that code is of the inputs of its gate; None where it is none."""
    origin, path, number = gate.origin
    place, code = origin.place(number), origin.code(path)
    if code is None:
        return None
    body, called = _body(place, code)
    stored = {_called(place, name): name for name in place.stored}
    if len(called) != len(inputs):
        return None
    found = inputs[len(parameters(place.function)) :] if place.source is Source.CELLS else inputs
    if place.source is Source.ATTRIBUTES:  # of objects among them nobody knows what they do
        if not all(map(_is_data, inputs[-len(place.inputs) :] if place.inputs else ())):
            return None
        found = ()
    elif place.source is Source.ARGUMENTS:
        found = ()
    given_first = len(inputs) - len(found)
    kept = [at >= given_first and not _is_data(item) for at, item in enumerate(inputs)]
    data = {name: item for name, item, as_is in zip(called, inputs, kept, strict=True) if not as_is}
    if any(name in called and name not in data for name in stored):  # it may stay what it is
        return None
    if place.source is Source.LOCALS and not set(stored).isdisjoint(code.co_cellvars):
        return None  # functions that it calls may read what it assigns
    numbers, made = _numbers(body, data, stored) if stored else ([], [])
    if _share_lines(body, numbers):  # an error's line would not say whether they were stored
        return None
    needed = _needed(body, numbers)
    body = [item for item in body if item not in numbers or item in needed]
    results = [name for name in stored if name not in made]
    given = [name for name in data if name in _all_names(body) or name in results]
    if stored:
        body = _returning(body, results)
    cells = {
        name: item
        for name, item, as_is in zip(called, inputs, kept, strict=True)
        if as_is and place.source is not Source.NAMES
    }
    function = _function(origin, body, given, cells, names, place, code)
    roles: list[tuple[Any, ...]] = []
    for _name, item, as_is in zip(called, inputs, kept, strict=True):
        if as_is:
            roles.append(() if place.source is Source.NAMES else (None, item))
        else:
            roles.append((type(item),) if made and type(item) in _NUMBERS else ())
    computing = _computing(origin, numbers, made, called, names) if made else None
    return Lifted(
        function,
        tuple(roles),
        tuple([called.index(name) for name in given]),
        computing,
        _stored(place, [stored[name] for name in (*made, *results)]),
        tuple(results),
        tuple(made),
        numbers,
        tuple(called),
        origin,
    )


def _stored(place: Place, names: Sequence[str]) -> tuple[Any, ...]:
    """Return what a gate calls what it stores."""
    if place.source is not Source.LOCALS:
        return tuple(names)
    return tuple([place.stored.index(name) for name in names])


def _is_data(item: Any) -> bool:
    """Tell whether a value is given to a function; others are what it names."""
    kind: Any = type(item)
    if kind is tuple:
        return all(map(_is_data, item))
    return (
        kind is np.ndarray
        or kind in (*_NUMBERS, str, bytes, type(None))
        or issubclass(kind, (ArrayBase, np.generic))
    )


# -------------------------------------------------------------------------------------- syntax


def _called(place: Place, name: str) -> str:
    """Return what the variable is called that stands for an input."""
    return f".self.{name}" if place.source is Source.ATTRIBUTES else name


def _body(place: Place, code: CodeType) -> tuple[list[ast.stmt], list[str]]:
    """Return the statements, and what they call their inputs."""
    if place.source in STATEMENTS:
        return place.block[place.at : place.at + place.length], list(place.inputs)
    function = place.function
    body, given = function.body, parameters(function)
    if place.source is Source.ATTRIBUTES:
        attributes = _Attributes(given[0], place.owner)
        body = [attributes.visit(item) for item in body]
        return body, [*given[1:], *[_called(place, name) for name in place.inputs]]
    return body, [*given, *code.co_freevars]


class _Attributes(ast.NodeTransformer):
    """Has variables stand for attributes of an object."""

    def __init__(self, holder: str, owner: str) -> None:
        self._holder, self._owner = holder, owner

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Return the variable of an attribute."""
        if isinstance(node.value, ast.Name) and node.value.id == self._holder:
            name = f".self.{mangled(node.attr, self._owner)}"
            return ast.copy_location(ast.Name(name, node.ctx), node)
        return self.generic_visit(node)


def _share_lines(body: Sequence[ast.stmt], numbers: Sequence[ast.stmt]) -> bool:
    pairs = itertools.pairwise(body)
    return any(
        (one in numbers or other in numbers) and (one.end_lineno or one.lineno) >= other.lineno
        for one, other in pairs
    )


def _names(node: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    stores = context is ast.Store
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, context):
            yield part.id
        elif stores and isinstance(part, (ast.MatchAs, ast.MatchStar, ast.FunctionDef)):
            yield part.name or ""
        elif stores and isinstance(part, ast.MatchMapping):
            yield part.rest or ""


def _all_names(body: Iterable[ast.stmt]) -> set[str]:
    return {part.id for item in body for part in ast.walk(item) if isinstance(part, ast.Name)}


def _numbers(
    body: Sequence[ast.stmt], data: dict[str, Any], stored: Iterable[str]
) -> tuple[list[ast.stmt], list[str]]:
    """Return the statements that make numbers of numbers, and which of what is stored they are."""
    known = {name for name, item in data.items() if type(item) in _NUMBERS}
    found: list[ast.stmt] = []
    other: set[str] = set()
    ends = False
    for item in body:
        ends = ends or any(isinstance(part, ast.Return) for part in ast.walk(item))
        if not ends and (name := _number_made(item, known)) is not None:
            found.append(item)
            known.add(name)
            continue
        changed = set(_names(item, ast.Store))
        other |= changed
        known -= changed
    made = [name for name in stored if name not in other]
    return found, made


def _number_made(item: ast.stmt, known: set[str]) -> str | None:
    """Return the variable that a statement makes of numbers alone."""
    if isinstance(item, ast.Assign) and len(item.targets) == 1:
        target, value = item.targets[0], item.value
    elif isinstance(item, ast.AugAssign):
        target, value = item.target, item.value
        if not (isinstance(target, ast.Name) and target.id in known):
            return None
    else:
        return None
    if not isinstance(target, ast.Name):
        return None
    for part in ast.walk(value):
        if not isinstance(part, _COMPUTED) or (isinstance(part, ast.Name) and part.id not in known):
            return None
        if isinstance(part, ast.Constant) and type(part.value) not in _NUMBERS:
            return None
    return target.id


def _needed(body: Sequence[ast.stmt], numbers: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return those of the statements which others need."""
    wanted = _all_names([item for item in body if item not in numbers])
    while True:
        needed = [item for item in numbers if not wanted.isdisjoint(_names(item, ast.Store))]
        more = wanted | _all_names(needed)
        if more == wanted:
            return needed
        wanted = more


def _returning(body: Sequence[ast.stmt], results: Sequence[str]) -> list[ast.stmt]:
    """Return statements that return what is stored, too."""
    returns = _Returns(results)
    line = (body[-1].end_lineno or body[-1].lineno) if body else 1
    last = ast.Return(None, lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
    return [returns.visit(item) for item in (*body, last)]


class _Returns(ast.NodeTransformer):
    def __init__(self, results: Sequence[str]) -> None:
        self._results = results

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """Return the statement with more in it."""
        more: list[ast.expr] = [ast.Name(name, ast.Load()) for name in self._results]
        value = node.value if node.value is not None else ast.Constant(None)
        made = ast.Return(ast.Tuple([value, *more], ast.Load()))
        return ast.fix_missing_locations(ast.copy_location(made, node))


# ------------------------------------------------------------------------------------------ code


def _defined(name: str, given: Sequence[str], body: Sequence[ast.stmt]) -> ast.FunctionDef:
    line = body[0].lineno if body else 1
    made = ast.FunctionDef(
        name=name,
        args=ast.arguments([], [ast.arg(one) for one in given], None, [], [], None, []),
        body=list(body) or [ast.Pass()],
        decorator_list=[],
        lineno=line,
        end_lineno=line,
        col_offset=0,
    )
    if "type_params" in ast.FunctionDef._fields:
        made.type_params = []  # type: ignore[attr-defined]
    return made


def _code_of(origin: Origin, made: ast.stmt) -> CodeType:
    tree = ast.fix_missing_locations(ast.Module([made], []))
    open_codes = [origin.compiled(tree)]
    while (code := open_codes.pop()).co_name != _NAME:
        open_codes += [item for item in code.co_consts if isinstance(item, CodeType)]
    return code


def _function(
    origin: Origin,
    body: Sequence[ast.stmt],
    given: Sequence[str],
    cells: dict[str, Any],
    names: dict[str, Any],
    place: Place,
    code: CodeType,
) -> FunctionType:
    made: ast.stmt = _defined(_NAME, given, body)
    if cells:
        around = _defined("around", list(cells), [made])
        made = around
    if place.owner:  # its names are mangled there
        line = made.lineno
        made = ast.ClassDef(place.owner, [], [], [made], [], lineno=line, end_lineno=line)
        if "type_params" in ast.ClassDef._fields:
            made.type_params = []  # type: ignore[attr-defined]
    own = _code_of(origin, made)
    own = own.replace(co_name=code.co_name, co_qualname=code.co_qualname)
    closure = tuple([CellType(cells[name]) for name in own.co_freevars])
    return FunctionType(own, names, code.co_name, None, closure)


def _computing(
    origin: Origin,
    statements: Sequence[ast.stmt],
    made: Sequence[str],
    inputs: Sequence[str],
    names: dict[str, Any],
) -> FunctionType:
    """Return the function that runs statements and returns variables; those that are not assigned
    as they are given."""
    results = [ast.Name(name, ast.Load()) for name in made]
    last = ast.Return(ast.Tuple([*results], ast.Load()), lineno=1, end_lineno=1)
    given = _defined(_NAME, inputs, [*statements, last])
    return FunctionType(_code_of(origin, given), names, _NAME)
