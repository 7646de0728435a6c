"""The house: imports point strictly down, and every room has a name of its own."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

# Found, not imported: the layers can be wrong in a way that stops the import.
PACKAGE = Path(str(getattr(find_spec("alight"), "origin", None))).parent

# From the bottom up. Names in one tuple are one level: they do not import one another.
ORDER: tuple[tuple[str, ...], ...] = (
    ("_src", "_src.base", "errors"),
    ("_core",),
    ("_src.config",),
    ("_src.store",),
    ("device",),
    ("_src.ir",),
    ("_src.plan", "_src.codegen", "backends.base"),
    ("backends",),
    ("_src.log",),
    ("_src.fp_warnings",),
    ("_src.measure",),
    ("_src.adapt",),
    ("_src.run",),
    ("_src.record",),
    ("_src.api",),
    ("linalg", "fft", "random", "ops"),
    ("_src.jit",),
    ("_src.explain",),
    ("__init__",),
    ("_src.launch",),
    ("_src.bench",),
    ("_src.cli",),
    ("__main__",),
)
# What the generators of all languages share has no better name among theirs.
SHARED = "_src.codegen.common"
# What users and authors of backends import, beside the folder of these; all else is in _src.
PUBLIC = {"__init__", "__main__", "device", "errors", "fft", "linalg", "ops", "random"}
# A package's own module, and the protocol of backends beside what every part stands on.
SHARED_NAMES = {"__init__", "base"}
NAMELESS = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "managers"}


class Edge(NamedTuple):
    """One import: who, whom, and in which line."""

    importer: str
    imported: str
    line: int


def modules(package: Path) -> dict[str, Path]:
    """Return the modules of a package, by dotted name below it; its own is `__init__`."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if len(parts) > 1 and parts[-1] == "__init__":
            parts = parts[:-1]
        found[".".join(parts)] = path
    return found


def edges(package: Path) -> Iterator[Edge]:
    """Yield every import of one module of the package by another, wherever it stands."""
    known = modules(package)
    for importer, path in known.items():
        for node in running(ast.parse(path.read_text(encoding="utf-8"))):
            for name in imported(node, importer, path, package.name):
                target = resolve(name, known)
                if target != importer:
                    yield Edge(importer, target, getattr(node, "lineno", 0))


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that can run; what only a type checker sees cannot."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for other in node.orelse:
                yield other
                yield from running(other)
            continue
        yield node
        yield from running(node)


def imported(node: ast.AST, importer: str, path: Path, package: str) -> Iterator[str]:
    """Yield the absolute dotted names below the package that a node imports; "" is the package."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            here = [package, *importer.split(".")]
            # In a package's __init__ one dot means the package itself.
            keep = len(here) - node.level + (path.name == "__init__.py" and importer != "__init__")
            base = ".".join([*here[:keep], *filter(None, [base])])
        names = [f"{base}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            names = [first.value]
    for name in names:
        if name.split(".")[0] == package:
            yield name[len(package) + 1 :]


def resolve(name: str, known: Mapping[str, Path]) -> str:
    """Return the module that a dotted name is, or is in."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or "__init__"


def layer(module: str, order: Sequence[Sequence[str]]) -> tuple[int, str] | None:
    """Return a module's level and its layer's name: the longest that it lies in."""
    places = {name: level for level, names in enumerate(order) for name in names}
    name = module
    while name not in places:
        if not name:
            return None
        name = name.rpartition(".")[0]
    return places[name], name


def faults(package: Path, order: Sequence[Sequence[str]]) -> list[str]:
    """Return what is wrong with the imports of a package, a line each."""
    found = [
        f"{module} is in no layer. Fix: put it into ORDER, and into the order of the docs"
        for module in modules(package)
        if layer(module, order) is None
    ]
    inside: dict[str, set[str]] = {}
    for edge in edges(package):
        above, below = layer(edge.importer, order), layer(edge.imported, order)
        if above is None or below is None:
            continue
        if above[1] == below[1]:
            inside.setdefault(edge.importer, set()).add(edge.imported)
        elif below[0] >= above[0]:
            found.append(f"{edge.importer}, line {edge.line}, imports {edge.imported}")
    return found + [f"imports go in a circle: {' → '.join(circle)}" for circle in circles(inside)]


def circles(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield a circle for every node that closes one on the way down from the first nodes."""
    done: set[str] = set()

    def walk(node: str, path: list[str]) -> Iterator[list[str]]:
        if node in path:
            yield [*path[path.index(node) :], node]
        elif node not in done:
            for target in sorted(graph.get(node, ())):
                yield from walk(target, [*path, node])
            done.add(node)

    for node in sorted(graph):
        yield from walk(node, [])


def nameless(package: Path) -> list[str]:
    """Return the modules whose name says nothing about what is in them."""
    return [
        name
        for name in modules(package)
        if NAMELESS & set(name.removeprefix(SHARED).lower().split("."))
    ]


def twice(package: Path) -> list[str]:
    """Return the names that several modules of a package have in their folders."""
    counts = Counter(path.stem for path in package.rglob("*.py"))
    return sorted(name for name, n in counts.items() if n > 1 and name not in SHARED_NAMES)


def levels(page: str) -> list[tuple[str, ...]]:
    """Return the order of layers that a page shows: names on the left, what they are behind."""
    block = page.partition("```text\n_src.base")[2].partition("```")[0]
    lines = f"_src.base{block}".splitlines()
    return [tuple(line.split("  ")[0].strip().split(" · ")) for line in lines]


def test_imports_of_the_package_point_down() -> None:
    assert "errors" in modules(PACKAGE)
    assert faults(PACKAGE, ORDER) == []


def test_every_room_has_a_name_of_its_own() -> None:
    assert nameless(PACKAGE) == []
    assert twice(PACKAGE) == []


def test_flat_modules_are_the_public_ones() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == PUBLIC


def test_the_docs_have_the_order_of_layers() -> None:
    page = Path(__file__).parents[1] / "docs" / "README.md"
    # The folder of them all has no code of its own.
    order = [tuple(name for name in names if name != "_src") for names in ORDER]
    assert levels(page.read_text(encoding="utf-8")) == order


def build(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in {"__init__.py": "", **files}.items():
        path = root / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "house"


HOUSE = (("low",), ("_core",), ("left", "right", "deep.base"), ("deep",), ("high",), ("__init__",))


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("high.py", "import house.low\nfrom house import _core", None),
        ("high.py", "from .low import x\nfrom .deep.one import y", None),
        ("high.py", "def f():\n    from house.deep.base import x", None),
        ("high.py", "import lower, housewife.top\nfrom housekeeping import __init__", None),
        ("__init__.py", "from house.high import x\nfrom . import low", None),
        (
            "deep/one.py",
            "from house.deep import base\nfrom . import base\nfrom .base import z",
            None,
        ),
        (
            "low.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.high",
            None,
        ),
        ("low.py", "import typing as t\nif t.TYPE_CHECKING:\n    from house.high import x", None),
        ("low.py", "import house.high", "low, line 1, imports high"),
        ("low.py", "import house", "low, line 1, imports __init__"),
        ("low.py", "from house import nothing", "low, line 1, imports __init__"),
        ("low.py", "from house import high", "low, line 1, imports high"),
        ("low.py", "from . import high", "low, line 1, imports high"),
        ("low.py", "from .deep.one import x", "low, line 1, imports deep.one"),
        ("low.py", "def f():\n    import house.high", "low, line 2, imports high"),
        ("low.py", "try:\n    pass\nexcept E:\n    import house.high", "low, line 4, imports high"),
        (
            "low.py",
            "if TYPE_CHECKING:\n    pass\nelse:\n    import house.high",
            "low, line 4, imports",
        ),
        ("low.py", "import_module('house.high')", "low, line 1, imports high"),
        ("left.py", "import house.right", "left, line 1, imports right"),
        ("left.py", "import house.deep.base", "left, line 1, imports deep.base"),
        ("deep/base.py", "from . import one", "deep.base, line 1, imports deep.one"),
        ("deep/base.py", "from ..high import x", "deep.base, line 1, imports high"),
        ("deep/__init__.py", "from .. import high", "deep, line 1, imports high"),
        ("_core/__init__.py", "from ..left import x", "_core, line 1, imports left"),
        ("deep/two.py", "import house.deep.one", "circle: deep.one → deep.two → deep.one"),
        ("stranger.py", "", "stranger is in no layer"),
    ],
)
def test_the_checker_can_fail(tmp_path: Path, name: str, text: str, fault: str | None) -> None:
    files = dict.fromkeys(("low.py", "left.py", "right.py", "high.py", "_core/__init__.py"), "")
    files |= {"deep/__init__.py": "", "deep/base.py": "", "deep/two.py": ""}
    files["deep/one.py"] = "from house.deep import two"
    found = faults(build(tmp_path, {**files, name: text}), HOUSE)
    assert found == [] if fault is None else len(found) == 1 and fault in found[0]


def test_the_checker_of_names_can_fail(tmp_path: Path) -> None:
    bad = ("utils.py", "deep/helpers/one.py", "Manager.py", "deep/common.py")
    good = ("commons.py", "deep/one.py", "utility.py")
    house = build(tmp_path, dict.fromkeys((*bad, *good), ""))
    assert nameless(house) == ["Manager", "deep.common", "deep.helpers.one", "utils"]
    assert twice(house) == ["one"]
    assert twice(build(tmp_path / "base", {"deep/__init__.py": "", "base.py": ""})) == []
