"""What `import alight as np` shows, and what documentation and comments say of modules."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy
import pytest

import alight
import alight.errors

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(alight.errors.__file__).parent
# Modules that users and authors of backends import.
PUBLIC = {"backends", "device", "errors", "fft", "linalg", "ops", "random"}
STATIONS = "|".join(
    ["backends", *(path.parent.name for path in PACKAGE.glob("_src/*/__init__.py"))]
)

# --- what the namespace shows ---------------------------------------------------------------------

USED = """
import sys, types, json
import numpy
import alight as np

with np.policy(force="cpu:generated", floor=0):
    x = np.linspace(0.0, 1.0, 1000)
    x[::2] += np.random.default_rng(0).random(500)
    x[x > 1] = np.random.Counter(1).random(1000)[x > 1]
    np.evaluate(np.sin(x) @ np.ones(1000), np.fft.fft(x), np.linalg.norm(x), np.sort(x))
    f = np.jit(lambda a: numpy.exp(a) + 1)
    f(numpy.ones(1000)), f(numpy.ones(1000)), f(x)
    str(np.report()), str(np.explain(f, numpy.ones(10)))
    for asked in (np.estimate, np.device_report, np.fusion_report):
        str(asked(f, numpy.ones(10)))
    np.devices(), np.reset()
for name in dir(np):
    getattr(np, name)
import alight.backends.cuda.cuda_backend, alight._src.cli.commands, alight._src.launch.loader
EXTRA
print(json.dumps([name for name, x in vars(np).items() if isinstance(x, types.ModuleType)]))
"""


def shown(tmp_path: Path, extra: str = "") -> set[str]:
    """Return the modules among the names of alight after a program has used all its doors."""
    path = tmp_path / "program.py"  # jit looks at code that is in a file
    path.write_text(USED.replace("EXTRA", extra))
    there = {"ALIGHT_CACHE_DIR": str(tmp_path / "cache"), "ALIGHT_CALIBRATE": "off"}
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **there},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_no_use_shows_modules_that_are_not_public(tmp_path: Path) -> None:
    found = shown(tmp_path)
    assert {"fft", "linalg", "random"} <= found
    # NumPy has a `_core`, too.
    assert {name for name in found - PUBLIC if not hasattr(numpy, name)} == set()
    assert "store" in shown(tmp_path, "np.store = sys.modules['alight._src.store']")


# --- what is said of modules ----------------------------------------------------------------------

DOTTED = re.compile(r"(?<![\w./-])alight(?:\.[A-Za-z_]\w*)+")
# Comments of the package name modules without `alight._src`.
INSIDE = re.compile(rf"(?<![\w./])((?:{STATIONS})(?:\.[A-Za-z_]\w*)+)")
FILE = re.compile(r"(?:src/)?alight/[\w/]*\w\.\w+|src/alight/[\w/]*")
QUOTED = re.compile(r"`((?:\w+/)*\w+\.(?:py|c|h))`")
# Files of the native core name one another by the file's name alone.
NATIVE = re.compile(r"(?:[\w./]*/)?\w+\.(?:c|h|py)\b")


@cache
def exists(name: str) -> bool:
    """Tell whether a dotted name is a module of alight, or in one."""
    path, module = PACKAGE, "alight"
    found: object = alight
    for part in name.split(".")[1:]:
        if (path / part).is_dir() or (path / f"{part}.py").is_file():
            path, module = path / part, f"{module}.{part}"
            found = import_module(module)
        elif hasattr(found, part):
            path, found = path / part, getattr(found, part)
        else:
            return False
    return True


def said(path: Path) -> Iterator[str]:
    """Yield the docstrings and comments of a file of code, or all of a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield text
    elif path.suffix in (".c", ".h"):
        yield from re.findall(r"/\*.*?\*/|//[^\n]*", text, re.DOTALL)
    else:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                yield ast.get_docstring(node) or ""
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string


def errors(path: Path) -> Iterator[str]:
    """Yield the texts of the errors that a file of code raises."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def unknown(text: str, inside: bool = False) -> list[str]:
    """Return what a text names that is nowhere; `inside`: as comments of the package name it."""
    found = [name for name in DOTTED.findall(text) if not exists(name)]
    if inside:
        for name in INSIDE.findall(text):
            if not (exists(f"alight._src.{name}") or exists(f"alight.{name}")):
                found.append(name)
    for name in FILE.findall(text):
        if not (PACKAGE.parent / name.removeprefix("src/")).exists():
            found.append(name)
    return found


def pages() -> list[Path]:
    """Return all that says something of the code as it is: a changelog is history."""
    found = [*ROOT.glob("README.md"), *ROOT.glob("docs/*.md")]
    found += [*ROOT.glob("examples/*.md"), *ROOT.glob("bench-results/**/*.md")]
    found += [*ROOT.glob("*.py"), *ROOT.glob("tools/*.py"), *ROOT.glob("tests/**/*.py")]
    return [path for path in found if path != Path(__file__).resolve()]


def test_documentation_names_what_exists() -> None:
    found = {str(path.relative_to(ROOT)): unknown("\n".join(said(path))) for path in pages()}
    assert {path: names for path, names in found.items() if names} == {}


def test_files_that_pages_name_exist() -> None:
    folders = [ROOT / name for name in ("examples", "src", "tests", "tools")]
    files = [str(path) for top in folders for path in top.rglob("*.*")]
    files += map(str, ROOT.glob("*.py"))
    for page in pages():
        if page.suffix == ".md":
            for name in QUOTED.findall(page.read_text(encoding="utf-8")):
                assert any(path.endswith(f"/{name}") for path in files), (page.name, name)


def test_comments_of_the_package_name_what_exists() -> None:
    paths = [path for kind in ("py", "c", "h") for path in PACKAGE.rglob(f"*.{kind}")]
    found = {str(path.relative_to(PACKAGE)): unknown("\n".join(said(path)), True) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}


def test_comments_of_the_native_core_name_files_that_exist() -> None:
    native = PACKAGE / "_core" / "native"
    files = {path.name for path in PACKAGE.rglob("*.*")}
    for path in [*native.glob("*.c"), *native.glob("*.h")]:
        for name in NATIVE.findall("\n".join(said(path))):
            there = (native / name).exists() or (ROOT / name).exists()
            assert there or name.rpartition("/")[2] in files, (path.name, name)


def test_errors_name_no_module_of_the_implementation() -> None:
    inner = re.compile(rf"\b_src\b|\b_core\b|\b(?:{STATIONS})\.[a-z_]+\b")
    for path in PACKAGE.rglob("*.py"):
        for text in errors(path):
            assert not inner.search(text.replace("alight.backends", "")), (path.name, text)
            assert all(exists(name) for name in DOTTED.findall(text)), (path.name, text)


@pytest.mark.parametrize(
    "text",
    [
        "`alight.runtime`",
        "alight.ir.body.typed gives it",
        "see `alight._src.plan.crowd`",
        "``codegen.cuda_narrow``",
        "`plan.fuse.KERNELNODES`",
        "src/alight/ir/body.py",
        "alight/record.py says",
    ],
)
def test_the_check_of_names_can_fail(text: str) -> None:
    assert len(unknown(text, True)) == 1


def test_what_exists_is_known() -> None:
    names = "alight._src.plan.fuse.KERNEL_NODES `measure.timing.Pace` alight.errors.AlightError"
    assert unknown(f"{names} src/alight/_src/ir/ alight.random.Counter", True) == []


# --- what tests name ------------------------------------------------------------------------------


def _named(tree: ast.AST) -> Iterator[str]:
    """Yield what is read off the package by dots, as far as it is a module."""
    for node in ast.walk(tree):
        words: list[str] = []
        while isinstance(node, ast.Attribute):
            words.insert(0, node.attr)
            node = node.value
        if words and isinstance(node, ast.Name) and node.id == "alight":
            for end in range(len(words), 1, -1):
                place = PACKAGE.joinpath(*words[:end])
                if place.is_dir() or place.with_suffix(".py").exists():
                    yield ".".join(["alight", *words[:end]])
                    break


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("tests/**/*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_file_of_tests_imports_the_modules_that_it_names(path: Path) -> None:
    # Else it passes only where another file of tests has imported them.
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    imported = [name.name for node in imports for name in node.names if name.asname is None]
    missing = {
        name
        for name in _named(tree)
        if not any(found == name or found.startswith(f"{name}.") for found in imported)
    }
    assert missing == set()


# A name that begins with one of these has its subject somewhere else.
NO_SUBJECT = frozenset(("and", "but", "it", "nor", "or", "so", "them", "these", "they", "this"))


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("tests/**/test_*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_names_of_tests_are_sentences_with_a_subject(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    names = [node.name for node in functions if node.name.startswith("test_")]
    words = {name: name.split("_")[1:] for name in names}
    # In fewer words there is no room for what is tested, what is the case, and when.
    assert [name for name in names if len(words[name]) < 4 or words[name][0] in NO_SUBJECT] == []
