"""Which functions of a file, and which statements at its top level, might be computed by a function
of their inputs alone; seen from the syntax, before anything runs.

What such code computes from beside its arguments has a source: attributes of `self`, variables of
enclosing functions (cells), or names of the module. Whether it does nothing but compute is proven
when it has run for long enough (`own_functions`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from alight._core import MOST_INPUTS
from alight._src.jit.known_attributes import KNOWN_ATTRIBUTES

__all__ = ["STATEMENTS", "Place", "Source", "found_in", "mangled", "parameters"]


class Source(IntEnum):
    """Where what code computes from is found beside its arguments (`Source` in gate.h)."""

    ARGUMENTS = 0
    ATTRIBUTES = 1
    CELLS = 2
    NAMES = 3
    LOCALS = 4


STATEMENTS = (Source.NAMES, Source.LOCALS)


class Place(NamedTuple):
    """Code that might be computed: a function, or statements of a ``block`` from one ``at`` a
    number on. ``inputs``: the attributes, cells or names that it computes from; ``stored``: those
    of them that it assigns."""

    block: list[ast.stmt]
    at: int
    length: int
    operations: int
    source: Source
    inputs: tuple[str, ...]
    stored: tuple[str, ...]
    owner: str  # the class that it is a method of, or ""

    @property
    def function(self) -> ast.FunctionDef:
        """Return the function."""
        made = self.block[self.at]
        assert isinstance(made, ast.FunctionDef)
        return made


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
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def found_in(tree: ast.Module) -> list[Place]:
    """Return the code of a file that might be computed, in one order for all trees of it."""
    return [*_functions(tree, frozenset(), ""), *_statements(tree.body, False, None)]


def parameters(function: ast.FunctionDef | ast.Lambda) -> list[str]:
    """Return the names of parameters in the order that code has them in."""
    given = function.args
    found = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [arg.arg for arg in (*found, given.vararg, given.kwarg) if arg is not None]


def mangled(name: str, owner: str) -> str:
    """Return what a name is called that stands in the class."""
    stem = owner.lstrip("_")
    private = name.startswith("__") and not name.endswith("__")
    return f"_{stem}{name}" if private and stem else name


def _blocks(node: Any) -> Iterator[list[Any]]:
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        if isinstance(block := getattr(node, name, None), list):
            yield block


# ------------------------------------------------------------------------------------- functions


def _functions(node: Any, outer: frozenset[str], owner: str) -> Iterator[Place]:
    """Yield the functions that stand in a node, however deep. ``outer``: variables of functions
    around it."""
    for block in _blocks(node):
        for at, inner in enumerate(block):
            if isinstance(inner, ast.FunctionDef):
                own = _Own(inner, outer, owner)
                if own.stays:  # what is inside it assigns names of outside as it does
                    continue
                yield from _functions(inner, outer | _bound(inner), owner)
                # What makes an object finds none of its attributes.
                makes = inner.name in ("__init__", "__new__", "__post_init__")
                few = len(own.inputs) + len(own.given) <= MOST_INPUTS
                if not own.operations:
                    yield from _in_function(inner, outer)
                elif few and not makes:
                    found = (own.operations, own.source, own.inputs, own.stored, owner)
                    yield Place(block, at, 1, *found)
            elif isinstance(inner, (ast.stmt, ast.excepthandler, ast.match_case)):
                name = inner.name if isinstance(inner, ast.ClassDef) else owner
                yield from _functions(inner, outer, name)


class _Own:
    """What stands in a function's own body: how many operations, 0 where it is not to be looked
    at, and what it computes from; ``stays``: nothing in it is."""

    def __init__(self, function: ast.FunctionDef, outer: frozenset[str], owner: str) -> None:
        self.given = parameters(function)
        self.stays = False
        self.operations = 0
        self._not_called = _ACTING | {function.name}  # a function that calls itself runs plain
        holder = self.given[0] if self.given and self.given[0] in ("self", "cls") else ""
        methods = holder == "self" and bool(owner)
        attributes: dict[str, bool] = {}  # whether they are stored
        effects = not self.given and not outer
        open_nodes: list[ast.AST] = [*function.body]
        while open_nodes:
            node = open_nodes.pop()
            effects = effects or isinstance(node, _EFFECTS) or self._acts(node)
            self.stays = self.stays or isinstance(node, (ast.Global, ast.Nonlocal))
            self.operations += isinstance(node, _OPERATIONS)
            inner = (
                [] if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) else ast.iter_child_nodes(node)
            )
            if isinstance(node, ast.Attribute) and _is(node.value, holder):
                name = mangled(node.attr, owner)
                effects = effects or not methods or isinstance(node.ctx, ast.Del)
                stores = not isinstance(node.ctx, ast.Load)
                attributes[name] = attributes.get(name, False) or stores
                continue
            if isinstance(node, ast.Attribute):
                effects = effects or not isinstance(node.ctx, ast.Load)
            # A method of its own is not looked into; it itself is kept, or handed on.
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            effects = effects or (called and _is(node.func.value, holder))  # type: ignore[attr-defined]
            effects = effects or _is(node, holder)
            if isinstance(node, (*_FUNCTIONS, ast.Lambda)) and holder:
                effects = effects or any(_is(part, holder) for part in ast.walk(node))
            open_nodes.extend(inner)
        if methods:
            self.source, self.inputs = Source.ATTRIBUTES, tuple(sorted(attributes))
            self.stored = tuple(sorted(name for name in attributes if attributes[name]))
        else:
            free = _loaded(function) & outer - _bound(function)
            self.source = Source.CELLS if free else Source.ARGUMENTS
            self.inputs, self.stored = tuple(sorted(free)), ()
            effects = effects or not (free or self.given)
        if effects or self.operations < _FEWEST:
            self.operations = 0

    def _acts(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in self._not_called


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _loaded(function: ast.FunctionDef) -> frozenset[str]:
    body = [part for statement in function.body for part in ast.walk(statement)]
    return frozenset(
        [node.id for node in body if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    )


def _bound(function: ast.FunctionDef) -> frozenset[str]:
    """Return the names that may be variables of a function, or of one inside it."""
    found = set(parameters(function))
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                found.add(node.name)
                found.update(() if isinstance(node, ast.ClassDef) else parameters(node))  # type: ignore[arg-type]
            elif isinstance(node, ast.Lambda):
                found.update(parameters(node))
            elif isinstance(node, ast.alias):
                found.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
                found.add(node.name or "")
            elif isinstance(node, ast.MatchMapping):
                found.add(node.rest or "")
    return frozenset(found)


# ------------------------------------------------------------------------------------- statements


def _in_function(function: ast.FunctionDef, outer: frozenset[str]) -> Iterator[Place]:
    """Yield the statements in loops of a function that might be computed."""
    if not _KNOWING.isdisjoint(_loaded(function)):  # of its variables
        return
    own = _bound(function)
    there = frozenset(parameters(function))
    scope = _Scope(own, there, outer - own, _unbound(function))
    for statement in function.body:
        if isinstance(statement, (ast.For, ast.While)):
            yield from _statements([statement], False, scope)
        scope = scope.behind(statement)


def _unbound(function: ast.FunctionDef) -> frozenset[str]:
    """Return the names of a function's variables that may be deleted."""
    nodes = list(ast.walk(function))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    deleted = {node.id for node in names if isinstance(node.ctx, ast.Del)}
    caught = {node.name or "" for node in nodes if isinstance(node, ast.ExceptHandler)}
    return frozenset(deleted | caught)


class _Scope(NamedTuple):
    """What a function's loop finds: its own variables, those that are assigned, those of functions
    around it, and its own that may be deleted."""

    own: frozenset[str]
    there: frozenset[str]
    outer: frozenset[str]
    unbound: frozenset[str]

    def behind(self, statement: ast.stmt) -> _Scope:
        """Return what is found behind a statement."""
        return self._replace(there=self.there | _surely_assigned(statement))


# Names by which code comes by variables that it does not name.
_KNOWING = frozenset(("locals", "vars", "dir", "eval", "exec"))


def _surely_assigned(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)) or (
        isinstance(statement, ast.AnnAssign) and statement.value is None
    ):
        return set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {
        node.id
        for target in targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _statements(block: Sequence[Any], loops: bool, scope: _Scope | None) -> Iterator[Place]:
    """Yield the statements in loops of a block of the module's, or of a function's, that might be
    computed: as many beside one another as there are."""
    assert isinstance(block, list)
    begin = 0
    for at, statement in enumerate((*block, None)):
        if loops and statement is not None and _only_assigns(statement):
            continue
        if at > begin and (found := _run(block, begin, at, scope)) is not None:
            yield found
        if scope is not None:
            for done in block[begin : at + 1]:
                scope = scope.behind(done)
        begin = at + 1
        if isinstance(statement, (ast.For, ast.While, ast.If, ast.With)):
            inside = loops or isinstance(statement, (ast.For, ast.While))
            within = scope
            if scope is not None and isinstance(statement, ast.For):
                within = scope._replace(there=scope.there | _targets(statement))
            for inner in _blocks(statement):
                yield from _statements(inner, inside, within)


def _targets(statement: ast.For) -> set[str]:
    return {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}


def _run(block: list[ast.stmt], begin: int, end: int, scope: _Scope | None) -> Place | None:
    flow = _Flow()
    for statement in block[begin:end]:
        flow.of(statement)
    nodes = [node for statement in block[begin:end] for node in ast.walk(statement)]
    operations = sum(isinstance(node, _OPERATIONS) for node in nodes)
    if operations < _FEWEST or len(flow.inputs) > MOST_INPUTS:
        return None
    inputs, source = tuple(flow.inputs), Source.NAMES
    if scope is not None:
        source = Source.LOCALS
        inputs = tuple([name for name in flow.inputs if name in scope.own])
        # What may not be assigned yet cannot be handed on; what is outside is proven.
        deleted = scope.unbound.intersection((*flow.inputs, *flow.stored))
        if deleted or not scope.there.issuperset(inputs) or not scope.outer.isdisjoint(flow.inputs):
            return None
    return Place(block, begin, end - begin, operations, source, inputs, tuple(flow.stored), "")


class _Flow:
    """What statements read before they have assigned it, and what they assign, each in order."""

    def __init__(self) -> None:
        self.inputs: dict[str, None] = {}
        self.stored: dict[str, None] = {}

    def of(self, statement: ast.stmt) -> None:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        straight = isinstance(statement, ast.Assign)
        for name in names:
            # What may be assigned or not is an input, too, and so is there.
            reads = isinstance(name.ctx, ast.Load) or not straight
            if reads and name.id not in self.stored:
                self.inputs[name.id] = None
        for name in names:
            if isinstance(name.ctx, ast.Store):
                self.stored[name.id] = None


def _only_assigns(statement: ast.stmt) -> bool:
    """Tell whether a statement assigns to names and into arrays, and calls nothing that is seen to
    act."""
    if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.While)):
        return False
    for node in ast.walk(statement):
        if isinstance(node, (*_EFFECTS, *_SCOPES, *_COMPREHENSIONS)) or _leaves(node):
            return False
        if isinstance(node, ast.Name) and (node.id in _ACTING or isinstance(node.ctx, ast.Del)):
            return False
        if isinstance(node, ast.Attribute):
            # Of a module of NumPy's anything but what draws, of all others what arrays have.
            known = node.attr in KNOWN_ATTRIBUTES or _root(node) in ("np", "numpy", "math")
            if not known or node.attr == "random" or not isinstance(node.ctx, ast.Load):
                return False
        if isinstance(node, ast.Expr) and not (
            isinstance(node.value, ast.Call) and _root(node.value.func) in ("np", "numpy")
        ):
            return False
    return True


def _leaves(node: ast.AST) -> bool:
    return isinstance(
        node,
        (
            *(ast.Break, ast.Continue, ast.Return, ast.Global, ast.NamedExpr, ast.With),
            *(ast.Match, ast.AnnAssign, ast.Raise, ast.Assert),
        ),
    )


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
