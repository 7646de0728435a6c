"""Every example in the documentation runs, and every table in it says what the code says."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import alight
import alight.errors
from alight._src.cli.commands import commands
from alight._src.config import schema
from alight._src.config.policy import PLACEMENT
from alight._src.explain.report import report
from alight._src.explain.tables_data import left_row, profile_row
from alight._src.log.below_floor import Left
from alight._src.log.decisions import LOG
from alight._src.measure.profiles import KIND, fingerprint, profile_key
from alight._src.plan.cost import Profile, Rates
from alight._src.plan.curve import Curve, guess
from alight._src.run.loop_placement import Loop
from alight._src.store import Store
from alight.backends import registry
from alight.backends.base import Backend
from alight.device import Reason

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGE = Path(alight.errors.__file__).parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]

# They set up an environment from a package index, or are this test suite itself.
# `alight bench` takes minutes; tests/bench/test_bench.py runs it on few rows.
NOT_RUN = ("python3 start.py", "pip install", "python -m pytest", "alight bench")
# It takes five seconds, and what it measures would take the place of the profile made up here.
MEASURES = "alight calibrate"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A fenced block: its language, its text and the line where the text starts, from 0."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """Return the file that the first line names, as in ``# script.py``."""
        found = re.match(r"# (\S+\.\w+)\n", self.text)
        return found[1] if found else None


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    language: str | None = None
    kept: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines()):
        if not line.startswith("```"):
            kept.append(line + "\n")
        elif language is None:
            language, kept = line[3:], []
        else:
            found.append(Block(language, "".join(kept), number - len(kept)))
            language = None
    assert language is None, f"{page.name}: a block is not closed"
    return found


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# --- the examples ---------------------------------------------------------------------------------


# Ops of the examples whose generated body is long, and so needs a figure of its own.
LONG = ("exp", "sin", "cos", "log", "tanh", "heaviside")


def made_up_profile() -> Profile:
    """Return a profile in which fused loops win by far, so that choices are the same everywhere.

    Kernels are made in no time in it: who waits for the compiler does not depend on how busy the
    machine is.
    """
    nothing = guess(0.0, "seconds")
    rates = {}
    for name, work in (("numpy", 1e-8), ("generated", 1e-10)):
        curve = Curve([(128, 1e-6), (1e5, 1e-5), (1e9, 0.1)])
        classes = ("elementwise", "reduce_inner", "reduce_outer", "scan", "move", "other")
        rates[name] = Rates(
            launch=guess(1e-6, "seconds"),
            call=guess(1e-6, "seconds"),
            curves={f"{kind}/float64": curve for kind in classes},
            work={f"{kind}/float64": guess(work, "seconds") for kind in ("flop", "special", *LONG)},
            overlap=nothing,
            spread=0.1,
        )
    device = registry.device("cpu")
    made = Profile(
        "cpu",
        rates,
        validation={"shapes": 1.0},
        made_at=time.time(),
        one_offs={name: guess(1e-9, "seconds") for name in ("compiler", "kernel", "operation")},
    )
    return dataclasses.replace(made, fingerprint=fingerprint(device))


def environment(folder: Path, **variables: str) -> dict[str, str]:
    ours = [name for name in os.environ if name.startswith("ALIGHT_")]
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    path = [str(folder), str(PACKAGE.parent)]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUTF8": "1",  # reports have × and µ in them
        "ALIGHT_CACHE_DIR": str(folder / "cache"),
        "ALIGHT_CONFIG": str(folder / "nothing.toml"),
        "ALIGHT_CALIBRATE": "off",
        **variables,
    }


def finished(
    command: list[str], folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
        env=environment(folder, **variables),
    )


def run(line: str, folder: Path) -> str:
    """Return what a shell line of the documentation prints, errors after the rest."""
    words = shlex.split(line, comments=True)
    variables = {}
    while "=" in words[0]:
        name, _, variables[name] = words.pop(0).partition("=")
    programs = {"alight": [sys.executable, "-m", "alight"], "python": [sys.executable]}
    done = finished([*programs[words[0]], *words[1:]], folder, **variables)
    text = done.stdout + done.stderr
    # What fails on purpose says how to mend it; calibrations fail on busy machines, too.
    told = "Fix: " in done.stderr or "disturbed by other work" in done.stdout
    assert done.returncode == 0 or told, f"{line}\n{text}"
    return text


def without_figures(text: str) -> str:
    """Return a text with its figures as ``#``: they are another machine's."""
    text = re.sub(r"\d[\d,.]*(e[+-]\d+)?", "#", text)
    return re.sub(r"# (ns|µs|ms|s)\b", "# s", text)


def checked(expected: str, actual: str, line: str) -> None:
    expect, got = without_figures(expected), without_figures(actual)
    if not doctest.OutputChecker().check_output(expect, got, FLAGS):
        pytest.fail(f"{line}\nprints\n{actual}\nand not\n{expected}")


def write_files(page: Path, folder: Path) -> None:
    """Write the files a page shows; those of this repository must be shown as they are."""
    for block in blocks(page):
        name = block.file
        if block.language == "python":
            assert name, f"{page.name}:{block.line}: start it with `# name.py`, or make it pycon"
        if name is None:
            continue
        if name.startswith("src/"):
            text = block.text.partition("\n")[2]
            assert text in (ROOT / name).read_text(encoding="utf-8"), f"{name} has no\n{text}"
        else:
            (folder / name).write_text(block.text, encoding="utf-8")
        if name == "pyproject.toml":
            install(tomllib.loads(block.text)["project"], folder)


def install(project: Mapping[str, Any], folder: Path) -> None:
    """Make what `pip install -e .` would leave of a project: its name and its entry points."""
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head)
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder with a cache that has a profile of this machine."""
    made = made_up_profile()
    key = profile_key(made.fingerprint)
    Store(tmp_path / "cache").write(KIND, key, made.to_dict())
    (tmp_path / "nothing.toml").touch()  # the user's own settings must not count
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_of_a_page_run(page: Path, folder: Path) -> None:
    write_files(page, folder)
    found = blocks(page)
    assert {block.language for block in found} <= {"pycon", "python", "sh", "text", "toml"}
    for block, after in pairwise([*found, Block("", "", 0)]):
        if block.language == "sh":
            printed = ""
            for line in block.text.splitlines():
                if line.strip() not in ("", MEASURES) and not line.startswith((*NOT_RUN, "#")):
                    printed += run(line, folder)
            if after.language == "text":
                checked(after.text, printed, block.text)
    examples = [""] * page.read_text(encoding="utf-8").count("\n")
    for block in found:
        if block.language == "pycon":
            lines = block.text.splitlines()
            examples[block.line : block.line + len(lines)] = lines
    if any(examples):
        # Every block where its page has it, so that line numbers in failures are the page's.
        path = folder / page.with_suffix(".txt").name
        path.write_text("\n".join(examples) + "\n", encoding="utf-8")
        code = (
            "import doctest, sys; sys.exit(doctest.testfile(sys.argv[1], module_relative=False, "
            f"encoding='utf-8', optionflags={FLAGS}).failed)"
        )
        done = finished([sys.executable, "-c", code, str(path)], folder)
        assert done.returncode == 0, done.stdout + done.stderr


def test_commands_that_are_not_run_exist() -> None:
    lines = [
        line
        for page in PAGES
        for block in blocks(page)
        if block.language == "sh"
        for line in block.text.splitlines()
        if line.startswith(NOT_RUN)
    ]
    assert {"python3 start.py", "python3 start.py test"} <= {
        line.partition("#")[0].strip() for line in lines
    }
    for line in lines:
        for word in shlex.split(line, comments=True):
            assert not word.endswith(".py") or (ROOT / word).exists(), line
            assert not word.startswith("tests/") or (ROOT / word).exists(), line


def docstrings() -> Iterator[tuple[str, str, int]]:
    """Yield module, docstring and line of every docstring in the package that has an example."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(["alight", *path.relative_to(PACKAGE).with_suffix("").parts])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node)
                if text and ">>>" in text:
                    yield module.removesuffix(".__init__"), text, getattr(node, "lineno", 1)


def test_examples_in_docstrings_run() -> None:
    found = list(docstrings())
    assert {module for module, _, _ in found} >= {
        "alight._src.record.array",
        "alight._src.jit.decorator",
    }
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for module, text, line in found:
        names = dict(vars(import_module(module)))
        example = doctest.DocTestParser().get_doctest(text, names, module, module, line)
        written: list[str] = []
        assert not runner.run(example, out=written.append).failed, "".join(written)


def test_the_op_of_the_walk_needs_its_entry_and_nothing_else(folder: Path) -> None:
    """Take the entry that add-an-op.md shows out of a copy of the package, then put it back."""
    page = DOCS / "add-an-op.md"
    write_files(page, folder)
    (entry,) = (b.text for b in blocks(page) if (b.file or "").startswith("src/"))
    name, _, entry = entry.removeprefix("# src/").partition("\n")
    shutil.copytree(PACKAGE, folder / "alight", ignore=shutil.ignore_patterns("__pycache__"))
    table = folder / name
    whole = table.read_text(encoding="utf-8")
    assert whole.count(entry) == 1
    table.write_text(whole.replace(entry, ""), encoding="utf-8")
    without, complete = (block.text for block in blocks(page) if block.language == "text")
    checked(without, run("python heaviside.py", folder), "python heaviside.py, without the entry")
    table.write_text(whole, encoding="utf-8")
    checked(complete, run("python heaviside.py", folder), "python heaviside.py")


# --- the facts ------------------------------------------------------------------------------------


def rows(page: Path, header: str) -> list[list[str]]:
    """Return the cells of the table whose header starts with this text."""
    lines = page.read_text(encoding="utf-8").splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith(header))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.split("|")][1:-1])
    return found


def test_the_table_of_settings_is_that_of_the_code() -> None:
    page = DOCS / "configuration.md"
    made = [list(row.cells) for row in schema.SETTINGS.values()]
    assert rows(page, "| key") == made, "Fix: python tools/settings_page.py"
    text = page.read_text(encoding="utf-8")
    assert [name for name in schema.known() if f"`{name}`" not in text] == []


def test_no_setting_is_without_effect() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in PACKAGE.rglob("*.py")
        if path.name not in ("loading.py", "policy.py", "schema.py")  # which hold them
    )
    assert [n for n in PLACEMENT if not re.search(rf"\.{n}\b", source)] == []


def keys(value: Any, where: str = "") -> Iterator[str]:
    """Yield the path of every field; objects whose keys are data count as one field."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (path := f"{where}.{key}" if where else key)
            if key not in (
                *("limits", "terms", "validation", "overrides", "by_device"),
                *("crossovers", "crossovers_by_class"),
            ):
                yield from keys(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, where + "[]")


def test_every_field_of_the_report_is_explained() -> None:
    with LOG.forgetting():
        with alight.policy(force="cpu:generated", floor=0):
            assert float((alight.arange(3.0) + 1).sum()) == 6
        LOG.exit("unwrap", None)
        LOG.fallback("exp on sim:0", "no room", None)
        LOG.demotion("jit f", "NumPy was faster", None)
        document = report().to_dict()
        called = alight.explain(alight.jit(lambda number: number), 1.0).to_dict()
    document["calls"] = called["calls"]
    document["loops"] = [Loop([]).row()]
    site = (test_every_field_of_the_report_is_explained.__code__, 0)
    document["below_floor"] = [left_row(Left(site, "exp", 10_000, 1, 1e-5, 1e-5, "numpy"))]
    row = profile_row(made_up_profile())
    row["rates"] = {"*": next(iter(row["rates"].values()))}  # by implementation, all alike
    document["profiles"] = [row]
    document["devices"][0]["gaps"] = [{"what": "", "why": "", "who": ""}]
    lists = {"decisions", "devices", "profiles", "exits", "fallbacks", "demotions", "calls"}
    lists |= {"loops", "below_floor"}
    found = {path for path in keys(document) if path not in lists}
    found -= {"machine", "machine.blas", "totals", "totals.element_operations"}
    found -= {"profiles[].rates", "profiles[].rates.*"}
    found -= {"decisions[].candidates", "devices[].gaps"}
    written = [row[0].strip("`") for row in rows(DOCS / "report.md", "| field")]
    assert len(set(written)) == len(written)
    assert set(written) == found


def test_every_reason_is_explained() -> None:
    written = [row[0].strip("`") for row in rows(DOCS / "report.md", "| reason")]
    assert written == [reason.value for reason in Reason]


def test_every_exception_is_explained() -> None:
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `(\w+)`[^\n]*\n(.*?)(?=^## |\Z)", text, re.M | re.S))
    assert set(sections) >= set(alight.errors.__all__)
    for name in alight.errors.__all__:
        kind = getattr(alight.errors, name)
        others = [base.__name__ for base in kind.__bases__ if base is not alight.errors.AlightError]
        assert all(f"`{other}`" in sections[name] for other in others), name


def test_every_command_is_explained() -> None:
    text = (DOCS / "front-doors.md").read_text(encoding="utf-8")
    assert [name for name in commands.commands if f"`alight {name}" not in text] == []


def test_every_method_of_a_backend_is_explained() -> None:
    methods = [n for n, value in vars(Backend).items() if callable(value) and n[0] != "_"]
    written = [
        re.match(r"`(\w+)", row[0])[1]  # type: ignore[index]
        for row in rows(DOCS / "add-a-backend.md", "| method")
    ]
    assert written == methods
    assert len(methods) == 13


WORDS = """
    alias backend calibration candidate copy decision demotion device estimate executor exit
    fallback fingerprint floor gap graph group host implementation kernel launch lease link op
    oracle outcome placement plan policy profile reason regret request residency schedule space
    step storage value view workload
"""


def test_the_glossary_has_every_word_in_order() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    written = re.findall(r"^\*\*([^*]+)\*\*", text, re.M)
    assert written == sorted(written, key=str.lower)
    assert {word.strip() for entry in written for word in entry.split(",")} >= set(WORDS.split())


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    plain = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target
    # A path of somebody's machine helps nobody else.
    assert not re.search(r"/(home|work|opt|tmp|Users)/\w", text)


def test_every_page_is_in_the_index() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [p.name for p in DOCS.glob("*.md") if p.name != "README.md" and p.name not in text] == []


@pytest.mark.parametrize(("word", "ends"), [("--bogus", 2), ("--help", 0)])
def test_the_word_that_start_does_not_know_is_named(word: str, ends: int) -> None:
    command = [sys.executable, str(ROOT / "start.py"), word]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == ends and "print this" in done.stdout
    assert done.stderr == (
        "start.py: '--bogus' is not known. Fix: write test, or nothing.\n" * (ends // 2)
    )
