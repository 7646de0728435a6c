"""Gates at the beginning of the program's own functions, and before statements of its scripts, put
there where their files are compiled, and what their code is without them.

What stands there is said in _core/native/gate.c. Function objects, and who calls them, know
nothing of it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from alight._core import Gate
from alight._src.jit.code_origin import READERS
from alight._src.jit.liftable import STATEMENTS, Place, Source, found_in, parameters

__all__ = ["Origin", "gated", "ungated", "with_gates"]

# No name of a variable that a program can write.
_ANSWER = ".alight"
# What stands for a gate until its code is compiled, with the number of its place in the file; what
# is done with it a compiler does not fold, and does not warn of.
_MARK = "\0alight gate "
# Packages that compile functions from their code, and know no gates.
_READERS = READERS | {"torch"}


class Origin:
    """Where the code of a file is had as it is without gates, made when it is asked for."""

    __slots__ = ("_codes", "_make", "compiled")

    def __init__(
        self, make: Callable[[], ast.Module], compiled: Callable[[ast.Module], CodeType]
    ) -> None:
        self._make = make  # the file's tree
        self.compiled = compiled  # the code of one
        self._codes: dict[tuple[int, ...], CodeType] | None = None

    def code(self, path: tuple[int, ...]) -> CodeType | None:
        """Return the code at the end of a path of numbers, each of a code among those in one."""
        if self._codes is None:
            self._codes = dict(_codes(self.compiled(self._make()), ()))
        return self._codes.get(path)

    def place(self, number: int) -> Place:
        """Return the place of this number, in a tree of its own."""
        return found_in(self._make())[number]


def _codes(code: CodeType, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], CodeType]]:
    yield path, code
    for number, inner in enumerate(_inner(code)):
        yield from _codes(inner, (*path, number))


def _inner(code: CodeType) -> list[CodeType]:
    return [item for item in code.co_consts if isinstance(item, CodeType)]


def gated(tree: ast.Module) -> list[Place]:
    """Put what stands for gates into a file's tree, in place; return where."""
    if any(_reads_code(node) for node in ast.walk(tree)):
        return []
    places = found_in(tree)
    # What is inside a function first, of statements the last: no other place moves then.
    for number, place in enumerate(places):
        if place.source not in STATEMENTS:
            _put_before(place, number)
    for number, place in reversed(list(enumerate(places))):
        if place.source in STATEMENTS:
            _put_around(place, number)
    return places


def _reads_code(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return any(name.partition(".")[0] in _READERS for name in names)


class _Gate:
    """What stands for one gate, in syntax."""

    def __init__(self, number: int) -> None:
        self._text = f"{_MARK}{number}"

    def itself(self) -> ast.expr:
        """Return the gate: it may be called."""
        return ast.UnaryOp(ast.Invert(), ast.Constant(self._text))

    def cells(self, names: Sequence[str]) -> ast.expr:
        """Return what makes a function that holds the cells of these names."""
        held: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
        nothing = ast.arguments([], [], None, [], [], None, [])
        return ast.Lambda(nothing, ast.Tuple([*held, ast.Constant(self._text)], ast.Load()))

    def asked(self, then: Sequence[ast.stmt], otherwise: Sequence[ast.stmt]) -> ast.stmt:
        """Return what asks it, and what is done then."""
        return ast.If(self._differs(), [*then], [*otherwise])

    def _differs(self) -> ast.expr:
        return ast.Compare(ast.Constant(self._text), [ast.NotEq()], [ast.Constant(self._text)])

    def assigned(
        self, given: Sequence[str], names: Sequence[str], otherwise: Sequence[ast.stmt]
    ) -> ast.stmt:
        """Return what assigns its answer for what is given to names."""
        read: list[ast.expr] = [ast.Name(name, ast.Load()) for name in given]
        called = ast.BoolOp(ast.And(), [self._differs(), ast.Call(self.itself(), read, [])])
        form = ast.MatchSequence([ast.MatchAs(None, name) for name in names])
        cases = [ast.match_case(form, None, [ast.Pass()])]
        cases.append(ast.match_case(ast.MatchAs(None, None), None, [*otherwise]))
        return ast.Match(called, cases)

    def tried(self, body: Sequence[ast.stmt]) -> ast.stmt:
        """Return what takes the frame out of errors of what runs in the body's place."""
        passed_by = ast.UnaryOp(ast.UAdd(), ast.Constant(self._text))
        return ast.Try([*body], [ast.ExceptHandler(passed_by, None, [ast.Pass()])], [], [])


def _placed(made: ast.stmt, line: ast.AST, statements: Sequence[ast.stmt] = ()) -> ast.stmt:
    """Return a statement that was made, in the line where the body begins: nobody who follows lines
    sees another."""
    open_nodes: list[ast.AST] = [made]
    while open_nodes:
        node = open_nodes.pop()
        if any(node is own for own in statements):
            continue
        if "lineno" in node._attributes:
            node.lineno = node.end_lineno = line.lineno  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = line.col_offset  # type: ignore[attr-defined]
        open_nodes.extend(ast.iter_child_nodes(node))
    return made


def _put_around(place: Place, number: int) -> None:
    gate, end = _Gate(number), place.at + place.length
    own = place.block[place.at : end]
    asked = gate.asked([ast.Pass()], own)
    if place.source is Source.LOCALS:
        asked = gate.assigned(place.inputs, place.stored, own)
    made = gate.tried([asked])
    place.block[place.at : end] = [_placed(made, own[0], own)]


def _put_before(place: Place, number: int) -> None:
    function, gate = place.function, _Gate(number)
    first = function.body[0]
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    at = 1 if text and isinstance(first.value.value, str) else 0  # type: ignore[attr-defined]
    if at == len(function.body):
        return

    def answer(context: ast.expr_context) -> ast.expr:
        return ast.Name(_ANSWER, context)

    given: list[ast.expr] = [ast.Name(name, ast.Load()) for name in parameters(function)]
    if place.source is Source.CELLS:
        given.append(gate.cells(place.inputs))
    asked = gate.tried(
        [
            ast.Assign([answer(ast.Store())], ast.Call(gate.itself(), given, [])),
            ast.If(
                ast.Compare(answer(ast.Load()), [ast.IsNot()], [gate.itself()]),
                [ast.Return(answer(ast.Load()))],
                [],
            ),
            ast.Delete([answer(ast.Del())]),
        ]
    )
    line = getattr(function.body[at], "decorator_list", None) or [function.body[at]]
    function.body.insert(at, _placed(gate.asked([asked], []), line[0]))


def with_gates(
    code: CodeType, places: Sequence[Place], origin: Origin, path: tuple[int, ...] = ()
) -> CodeType:
    """Return code with gates where such stand for them; each knows where its code is without it."""
    consts: list[Any] = []
    number = 0
    for item in code.co_consts:
        if isinstance(item, CodeType):
            own = any(map(_is_mark, item.co_consts)) and item.co_name == "<lambda>"
            consts.append(item if own else with_gates(item, places, origin, (*path, number)))
            number += not own
        elif _is_mark(item):
            which = int(item[len(_MARK) :])
            place = places[which]
            cells = place.source is Source.CELLS
            # What is found in other cells is not among the inputs.
            hidden = set(code.co_freevars) - set(place.inputs if cells else ())
            known = None if hidden and place.source not in STATEMENTS else (origin, path, which)
            inputs = () if cells or place.source is Source.LOCALS else place.inputs
            consts.append(Gate(known, place.operations, place.source, inputs))
        else:
            consts.append(item)
    return code.replace(co_consts=tuple(consts))


def _is_mark(item: Any) -> bool:
    return type(item) is str and item.startswith(_MARK)


@lru_cache(1024)  # asked of all code that is looked at
def ungated(code: CodeType) -> CodeType:
    """Return code without its gate; the very code where it has none."""
    for item in code.co_consts:
        if type(item) is Gate and item.origin is not None:  # any of them
            origin, path, _ = item.origin
            return origin.code(path) or code
    return code
