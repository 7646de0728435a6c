"""What a file's names and expressions are, as far as its text tells: whose code a call runs, and
what can be an Array, or an object of a package."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

__all__ = ["Facts", "Holds"]

# Builtins that call what they are given, or store it.
_CALLING = frozenset(("map", "filter", "sorted", "min", "max", "setattr", "iter"))
# Builtins that return what is neither an array nor an object of a package …
_COUNTING = frozenset(
    (
        *("len", "int", "float", "str", "bool", "repr", "range", "ord", "chr", "id", "hash", "bin"),
        *("hex", "isinstance", "issubclass", "hasattr", "callable", "format", "type", "ascii"),
    )
)
# … and such as are of the kind of what they are given.
_LIKE_THEIR_ARGUMENTS = frozenset(("abs", "round", "divmod", "pow", "complex"))
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
_NUMBERS = frozenset(("math", "cmath", "time"))  # whose functions return these
_DRAWING = frozenset(("starmap", "accumulate"))  # of itertools, which call what they are given
# Decorators under which a definition is what it says: Python's own, and of these modules.
_PLAIN = frozenset(("staticmethod", "classmethod", "property"))
_PLAIN_MODULES = frozenset(("functools", "dataclasses", "abc", "typing"))
# Attributes of arrays that are numbers, or tuples of them.
_MEASURES = frozenset(("shape", "size", "ndim", "nbytes", "itemsize", "strides"))


class Holds(IntEnum):
    """What an expression's value can be."""

    SCALAR = 0  # neither an Array nor an object of a package, nor anything that holds one
    ARRAY = 1  # an Array, or another of NumPy's objects
    BOX = 2  # a list, a dict … of anything
    ANYTHING = 3


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


class Facts:
    """What a file's names are, wherever in it they are bound."""

    def __init__(self, tree: ast.Module, readers: frozenset[str], own: bool) -> None:
        self.readers = readers
        self.own = own
        self.made_by: dict[str, bool] = {}
        self.kinds: dict[int, tuple[Any, Holds]] | None = None
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
        self.bound: dict[str, list[ast.expr]] = {}
        self.holds: dict[str, Holds] = {}
        self._find_values(tree)

    def _reads_code(self, node: ast.expr) -> bool:
        while isinstance(node, (ast.Call, ast.Attribute)):
            node = node.func if isinstance(node, ast.Call) else node.value
        modules = self.imports.get(node.id, ()) if isinstance(node, ast.Name) else ()
        return any(module.partition(".")[0].partition(":")[0] in self.readers for module in modules)

    def numpys(self, name: str) -> list[str] | None:
        """Return the parts of the path to what an import binds of NumPy; None for another name."""
        found = self.only_imported(name)
        if len(found) != 1:
            return None
        module, _, part = next(iter(found)).partition(":")
        top, *parts = module.split(".")
        if top != "numpy":
            return None
        # `import numpy.linalg` binds "numpy" itself.
        return [*(() if name == "numpy" and not part else parts), *([part] if part else ())]

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
        if not all(map(self._is_plain_decorator, node.decorator_list)):
            return False
        if not isinstance(node, ast.ClassDef):
            return True
        return not node.keywords and all(
            isinstance(base, ast.Name) and (self.is_builtin(base.id) or self._is_before(base, node))
            for base in node.bases
        )

    def _is_plain_decorator(self, node: ast.expr) -> bool:
        while isinstance(node, (ast.Call, ast.Attribute)):
            node = node.func if isinstance(node, ast.Call) else node.value
        if not isinstance(node, ast.Name):
            return False
        modules = self.only_imported(node.id)
        tops = {module.partition(":")[0].partition(".")[0] for module in modules}
        return tops <= _PLAIN_MODULES if tops else node.id in _PLAIN and self.is_builtin(node.id)

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

    def _find_values(self, tree: ast.Module) -> None:
        """Find what each name can be: the most that anything which is bound to it can."""
        if "*" in self.imports:  # what that binds is not seen
            self.kinds = {}
            return
        binding = _Bindings(self.bound)
        binding.visit(tree)
        for name in (*self.imports, *self.definitions, *binding.unknown):
            self.bound.pop(name, None)
        self.holds = dict.fromkeys(self.bound, Holds.SCALAR)
        changed = True
        while changed:
            changed = False
            for name, values in self.bound.items():
                found = max(map(self.kind, values))
                if found > self.holds[name]:
                    self.holds[name] = found
                    changed = True
        self.kinds = {}

    def kind(self, node: ast.expr | None) -> Holds:
        """Return what an expression's value can be."""
        known = self.kinds
        if known is None:  # as long as the names' are being found
            return self._kind(node)
        found = known.get(id(node))
        if found is None:
            found = known[id(node)] = (node, self._kind(node))  # held: another may get its id
        return found[1]

    def _kind(self, node: ast.expr | None) -> Holds:
        if node is None or isinstance(node, (ast.Constant, ast.JoinedStr, ast.Lambda)):
            return Holds.SCALAR
        if isinstance(node, ast.Name):
            if node.id in self.holds:
                return self.holds[node.id]
            return Holds.SCALAR if self.is_builtin(node.id) else Holds.ANYTHING
        if isinstance(node, ast.BinOp):
            return max(self.kind(node.left), self.kind(node.right))
        if isinstance(node, ast.UnaryOp):
            return Holds.SCALAR if isinstance(node.op, ast.Not) else self.kind(node.operand)
        if isinstance(node, ast.BoolOp):
            return max(map(self.kind, node.values))
        if isinstance(node, ast.Compare):
            if all(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
                return Holds.SCALAR
            return max(map(self.kind, (node.left, *node.comparators)))
        if isinstance(node, ast.IfExp):
            return max(self.kind(node.body), self.kind(node.orelse))
        if isinstance(node, ast.NamedExpr):
            return self.kind(node.value)
        if isinstance(node, ast.Slice):
            return max(map(self.kind, (node.lower, node.upper, node.step)))
        if isinstance(node, (ast.Tuple, ast.List)):
            most = max(map(self.kind, node.elts), default=Holds.SCALAR)
            fixed = isinstance(node, ast.Tuple) and most is Holds.SCALAR
            return Holds.SCALAR if fixed else Holds.BOX
        if isinstance(node, (ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp)):
            return Holds.BOX
        if isinstance(node, ast.Subscript):
            value = self.kind(node.value)
            return value if value <= Holds.ARRAY else Holds.ANYTHING
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node)
        return self._of_call(node) if isinstance(node, ast.Call) else Holds.ANYTHING

    def _of_attribute(self, node: ast.Attribute) -> Holds:
        value = self.kind(node.value)
        if value is Holds.ARRAY and node.attr in _MEASURES:
            return Holds.SCALAR
        return value if value <= Holds.ARRAY else Holds.ANYTHING

    def _of_call(self, node: ast.Call) -> Holds:
        func = node.func
        given = [*node.args, *[keyword.value for keyword in node.keywords]]
        most = max(map(self.kind, given), default=Holds.SCALAR)
        if isinstance(func, ast.Name) and self.is_builtin(func.id):
            if func.id in _COUNTING:
                return Holds.SCALAR
            return most if func.id in _LIKE_THEIR_ARGUMENTS else Holds.ANYTHING
        root: ast.expr = func
        while isinstance(root, ast.Attribute):
            root = root.value
        modules = self.only_imported(root.id) if isinstance(root, ast.Name) else ()
        tops = {module.partition(":")[0].partition(".")[0] for module in modules}
        if tops and tops <= _NUMBERS:
            return Holds.SCALAR
        if tops and not (tops <= {"numpy", "alight"} and self.looks_only(func)):
            return Holds.ANYTHING
        if not tops:
            owner = self.kind(func.value) if isinstance(func, ast.Attribute) else Holds.ANYTHING
            if owner is Holds.SCALAR or owner > Holds.ARRAY:
                return owner if owner is Holds.SCALAR else Holds.ANYTHING
        return Holds.ARRAY if most < Holds.ANYTHING else Holds.ANYTHING

    def may_cross(self, one: ast.expr, other: ast.expr) -> bool:
        """Tell whether of two operands one can be a package's and the other an Array."""
        kinds = (self.kind(one), self.kind(other))
        return max(kinds) is Holds.ANYTHING and min(kinds) > Holds.SCALAR

    def makes_nothing(self, call: ast.Call) -> bool:
        """Tell whether a call cannot make an Array where none lives."""
        func = call.func
        if not isinstance(func, ast.Name) or any(isinstance(a, ast.Starred) for a in call.args):
            return False
        if self.is_builtin(func.id):
            return func.id in _COUNTING or func.id in _LIKE_THEIR_ARGUMENTS
        if not self.own or not self.is_own(func.id):
            return False
        known = self.made_by.get(func.id)
        if known is None:
            self.made_by[func.id] = True  # as long as nothing else is found: it may call itself
            known = self.made_by[func.id] = all(
                isinstance(found, ast.FunctionDef)
                and not found.decorator_list
                and all(map(self._calls_nothing_else, ast.walk(found)))
                for found in self.definitions[func.id]
            )
        return known

    def _calls_nothing_else(self, node: ast.AST) -> bool:
        return not isinstance(node, ast.Call) or self.makes_nothing(node)


class _Bindings(ast.NodeVisitor):
    """Collects what names are bound to, by name wherever that is; ``unknown``: those bound to what
    is not an expression of the file's."""

    def __init__(self, bound: dict[str, list[ast.expr]]) -> None:
        self.bound = bound
        self.unknown: set[str] = set()

    def _bind(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            if value is None:
                self.unknown.add(target.id)
            else:
                self.bound.setdefault(target.id, []).append(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values: list[Any] = [None] * len(target.elts)
            literal = isinstance(value, (ast.Tuple, ast.List))
            starred = any(isinstance(item, ast.Starred) for item in target.elts)
            if literal and not starred and len(value.elts) == len(values):  # type: ignore[union-attr]
                values = value.elts  # type: ignore[union-attr]
            for item, part in zip(target.elts, values, strict=True):
                self._bind(item, part)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, None)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind(node.target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._bind(node.target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._bind(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node: Any) -> None:
        values = node.iter
        counts = isinstance(values, ast.Call) and isinstance(values.func, ast.Name)
        counts = counts and values.func.id == "range" and isinstance(node.target, ast.Name)
        # What `range` gives is as little as the range: if the name is Python's own.
        self._bind(node.target, values if counts else None)
        self.generic_visit(node)

    visit_AsyncFor = visit_comprehension = visit_For

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._bind(node.optional_vars, None)
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self.unknown.add(node.arg)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.unknown.update([node.name] if node.name else ())
        self.generic_visit(node)

    def visit_MatchAs(self, node: Any) -> None:
        self.unknown.update([node.name] if node.name else ())
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.unknown.update([node.rest] if node.rest else ())
        self.generic_visit(node)
