"""The program's code with its calls, stores and returns going by the border, line for line.

Only what may reach a package's code is rewritten: not calls of what the file itself defines, of
builtins that only look, or of NumPy's functions. A call whose arguments are names keeps its own
form beside the other: while no Array lives it costs one test.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any

from alight._src.base import parsing
from alight._src.jit.border import NAME, border, installed

__all__ = ["READERS", "holding_border", "reroute", "rerouted_code"]

_VALUE = "__alight_value__"

# Builtins that call what they are given, or store it.
_CALLING = frozenset(("map", "filter", "sorted", "min", "max", "setattr", "iter"))
# Modules of the standard library that call nothing they are given.
_LOOKING = frozenset(
    (
        *("abc", "argparse", "bisect", "cmath", "collections", "copy", "csv", "dataclasses"),
        *("datetime", "decimal", "enum", "fractions", "gc", "glob", "hashlib", "io", "itertools"),
        *("json", "logging", "math", "os", "pathlib", "pickle", "pprint", "random", "re"),
        *("shutil", "statistics", "string", "struct", "sys", "tempfile", "textwrap", "time"),
        *("traceback", "types", "typing", "uuid", "warnings", "zlib"),
    )
)
_DRAWING = frozenset(("starmap", "accumulate"))  # of itertools, which call what they are given
# Decorators under which a definition is what it says.
_PLAIN = frozenset(("staticmethod", "classmethod", "property", "dataclass", "wraps", "cache"))
# Packages that read the code of functions; jit makes its own of it.
READERS = frozenset(("numba",))


def _tops(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, and the module that it comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], alias.name
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                yield alias.asname or alias.name, f"{module}:{alias.name}"


class _Facts:
    """What a file's names are, wherever in it they are bound."""

    def __init__(self, tree: ast.Module, readers: frozenset[str], own: bool) -> None:
        self.readers = readers
        self.own = own
        self.imports: dict[str, set[str]] = {}
        for name, module in _tops(tree):
            self.imports.setdefault(name, set()).add(module)
        self.definitions: dict[str, list[Any]] = {}
        self.others: set[str] = set()
        # Functions and lambdas whose code is read by others.
        self.read: set[int] = set()
        given: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.definitions.setdefault(node.name, []).append(node)
                if any(self._reads_code(deco) for deco in node.decorator_list):
                    self.read.add(id(node))
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self.others.add(node.id)
            elif isinstance(node, ast.arg):
                self.others.add(node.arg)
            elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
                self.others.add(node.name)
            elif isinstance(node, ast.MatchMapping) and node.rest:
                self.others.add(node.rest)
            elif isinstance(node, ast.Call) and self._reads_code(node.func):
                given |= {arg.id for arg in node.args if isinstance(arg, ast.Name)}
                self.read |= {id(arg) for arg in node.args if isinstance(arg, ast.Lambda)}
        for name in given:
            self.read |= {id(node) for node in self.definitions.get(name, ())}

    def _reads_code(self, node: ast.expr) -> bool:
        while isinstance(node, (ast.Call, ast.Attribute)):
            node = node.func if isinstance(node, ast.Call) else node.value
        modules = self.imports.get(node.id, ()) if isinstance(node, ast.Name) else ()
        return any(module.partition(".")[0].partition(":")[0] in self.readers for module in modules)

    def only_imported(self, name: str) -> set[str]:
        """Return the modules that a name comes from, where nothing else binds it."""
        if name in self.others or name in self.definitions:
            return set()
        return self.imports.get(name, set())

    def is_builtin(self, name: str) -> bool:
        """Tell whether a name is Python's own in the whole file."""
        bound = name in self.others or name in self.definitions or name in self.imports
        return not bound and hasattr(builtins, name)

    def is_own(self, name: str) -> bool:
        """Tell whether what a name is called for is code of this file."""
        if name in self.others or name in self.imports:
            return False
        found = self.definitions.get(name, ())
        return bool(found) and all(map(self._is_own_definition, found))

    def _is_own_definition(self, node: Any) -> bool:
        if any(_last_name(deco) not in _PLAIN for deco in node.decorator_list):
            return False
        if not isinstance(node, ast.ClassDef):
            return True
        return not node.keywords and all(
            isinstance(base, ast.Name) and (self.is_builtin(base.id) or self._is_before(base, node))
            for base in node.bases
        )

    def _is_before(self, base: ast.Name, node: ast.ClassDef) -> bool:
        found = self.definitions.get(base.id, ())
        # Of classes that are defined before it: a name that names itself would lead round.
        return all(one.lineno < node.lineno for one in found) and self.is_own(base.id)

    def looks_only(self, func: ast.expr) -> bool:
        """Tell whether a call of this reaches no package's code."""
        parts = []
        while isinstance(func, ast.Attribute):
            parts.append(func.attr)
            func = func.value
        if isinstance(func, (ast.Constant, ast.JoinedStr, ast.List, ast.Dict)):
            return True  # a method of a literal
        if not isinstance(func, ast.Name):
            return False
        if not parts and self.is_builtin(func.id):
            return func.id not in _CALLING
        if not parts and self.own and self.is_own(func.id):
            return True
        modules = self.only_imported(func.id)
        return bool(modules) and all(self._is_looking(module, parts) for module in modules)

    @staticmethod
    def _is_looking(module: str, parts: list[str]) -> bool:
        module, _, name = module.partition(":")
        names = {*module.split(".")[1:], *parts, *([name] if name else ())}
        top = module.partition(".")[0]
        if top in ("numpy", "alight"):
            return names.isdisjoint(("testing", "ctypeslib"))
        return top in _LOOKING and names.isdisjoint(_DRAWING)


def _last_name(node: ast.expr) -> str:
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Attribute):
            return node.attr
        node = node.func
    return node.id if isinstance(node, ast.Name) else ""


# ------------------------------------------------------------------------------------- the new tree


def _here(new: Any, old: Any) -> Any:
    return ast.fix_missing_locations(ast.copy_location(new, old))


def _border(place: Any) -> ast.Name:
    return ast.copy_location(ast.Name(NAME, ast.Load()), place)


def _is_plain(node: ast.expr) -> bool:
    """Tell whether an expression can be written twice, and can make no first Array."""
    if isinstance(node, (ast.Name, ast.Constant)):
        return True
    if isinstance(node, ast.Starred):
        return _is_plain(node.value)
    if isinstance(node, ast.BinOp):
        return _is_plain(node.left) and _is_plain(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_plain(node.operand)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name)
    return isinstance(node, ast.Subscript) and _is_plain(node.value) and _is_plain(node.slice)


def _is_scalar(node: ast.expr | None, facts: _Facts) -> bool:
    """Tell whether an expression cannot be an Array, nor hold one."""
    if node is None or isinstance(node, (ast.Constant, ast.JoinedStr, ast.Lambda)):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not) or _is_scalar(node.operand, facts)
    if isinstance(node, ast.Call):
        named = isinstance(node.func, ast.Name) and facts.is_builtin(node.func.id)
        return named and node.func.id in ("len", "str", "int", "float", "bool", "repr", "range")  # type: ignore[attr-defined]
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(_is_scalar(item, facts) for item in node.elts)
    if isinstance(node, ast.Compare):
        return all(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops)
    return False


class _Reroute(ast.NodeTransformer):
    def __init__(self, facts: _Facts) -> None:
        self.facts = facts

    def visit_Call(self, node: ast.Call) -> Any:
        """Have a call go by the border."""
        self.generic_visit(node)
        if self.facts.looks_only(node.func):
            return node
        place = _place_of(node)
        test = _border(place)
        crossing = ast.Call(test, [node.func, *node.args], node.keywords)
        crossing = _here(crossing, place)
        arguments = [*node.args, *[keyword.value for keyword in node.keywords]]
        if not _is_plain(node.func) or not all(map(_is_plain, arguments)):
            return crossing
        return _here(ast.IfExp(test, crossing, node), place)

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Have what is stored in others' objects go by the border."""
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) > 1 or _is_scalar(node.value, self.facts):
            return node
        if isinstance(target, ast.Subscript):
            name, key = "set_item", target.slice
        elif isinstance(target, ast.Attribute):
            if target.attr[:2] == "__" != target.attr[-2:]:  # mangled in a class
                return node
            name, key = "set_attribute", ast.Constant(target.attr)
        else:
            return node
        if any(isinstance(part, (ast.Slice, ast.Starred)) for part in ast.walk(key)):
            key = _as_value(key)
        method = ast.Attribute(_border(node), name, ast.Load())
        call = ast.Call(method, [node.value, target.value, key], [])
        stored = _here(ast.Expr(_here(call, target)), node)
        if not _is_plain(node.value) or not _is_plain(target.value):
            return stored
        if isinstance(target, ast.Subscript) and not _is_plain(target.slice):
            return stored
        return _here(ast.If(_border(node), [stored], [node]), node)

    def visit_Return(self, node: ast.Return) -> Any:
        """Have what is returned go by the border."""
        self.generic_visit(node)
        if node.value is None or _is_scalar(node.value, self.facts):
            return node
        given = _here(ast.Assign([ast.Name(_VALUE, ast.Store())], node.value), node)
        value = ast.Name(_VALUE, ast.Load())
        choice = ast.IfExp(_border(node), self._given(value, node), value)
        return [given, _here(ast.Return(choice), node)]

    def visit_Yield(self, node: ast.Yield) -> Any:
        """Have what is yielded go by the border."""
        self.generic_visit(node)
        if node.value is not None and not _is_scalar(node.value, self.facts):
            node.value = self._given(node.value, node.value)
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        """Have what a generator expression yields go by the border."""
        self.generic_visit(node)
        if not _is_scalar(node.elt, self.facts):
            node.elt = self._given(node.elt, node.elt)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        """Have what a lambda returns go by the border."""
        if id(node) in self.facts.read:
            return node
        self.generic_visit(node)
        if not _is_scalar(node.body, self.facts):
            node.body = self._given(node.body, node.body)
        return node

    def _given(self, value: ast.expr, place: Any) -> ast.expr:
        """Return an expression for what is handed to who asked for a value."""
        method = ast.Attribute(_border(place), "give", ast.Load())
        call = _here(ast.Call(method, [value], []), place)
        if not _is_plain(value) or (isinstance(value, ast.Name) and value.id == _VALUE):
            return call  # type: ignore[no-any-return]
        return _here(ast.IfExp(_border(place), call, value), place)  # type: ignore[no-any-return]

    def _visit_definition(self, node: Any) -> Any:
        if id(node) in self.facts.read:
            return node
        # Annotations may be kept as text.
        node.decorator_list = [self.visit(item) for item in node.decorator_list]
        node.args.defaults = [self.visit(item) for item in node.args.defaults]
        node.args.kw_defaults = [item and self.visit(item) for item in node.args.kw_defaults]
        node.body = list(self._statements(node.body))
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_definition

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Leave the annotation as it is."""
        if node.value is not None:
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
    facts = _Facts(tree, readers, own)
    limit = sys.getrecursionlimit()
    # Python's compiler takes expressions several times as deep as a visitor's frames may be.
    sys.setrecursionlimit(max(limit, _DEEP))
    try:
        _Reroute(facts).visit(tree)
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
    except (SyntaxError, ValueError, RecursionError):
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
