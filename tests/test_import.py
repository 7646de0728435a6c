"""What `import alight` brings along: NumPy, and nothing that is optional or slow to start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import alight.errors

SOURCE = Path(alight.errors.__file__).parents[1]
# In the standard library, and still tens of milliseconds, or only needed for one command.
LATE = {
    *("asyncio", "concurrent.futures.process", "ctypes.util", "difflib", "email", "html", "http"),
    *("importlib.metadata", "multiprocessing", "pdb", "pydoc", "sqlite3", "ssl"),
    *("hashlib", "json", "runpy", "statistics"),
    *(
        "subprocess",
        "tkinter",
        "tomllib",
        "unittest",
        "urllib.request",
        "webbrowser",
        "xml",
        "zipfile",
    ),
}


# Ours, and nothing that a program needs which measures, jits and reports nothing.
UNUSED = ("codegen.llvm", "jit", "launcher", "measure.probes", "measure.timing", "picked", "report")


def modules_after(statements: str) -> set[str]:
    """Return the modules that the statements import in a fresh process, beyond NumPy's."""
    program = (
        "import sys, numpy\n"
        "before = set(sys.modules)\n"
        f"{statements}\n"
        "found = sorted(set(sys.modules) - before)\n"
        "import json; print(json.dumps(found))"
    )
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def foreign(modules: set[str]) -> set[str]:
    """Return the top-level packages that are neither Python's, NumPy's nor ours."""
    known = {*sys.stdlib_module_names, "numpy", "alight"}
    return {name.partition(".")[0] for name in modules} - known


def late(modules: set[str]) -> set[str]:
    """Return the modules that should have waited until they are needed."""
    return {name for name in modules if {name, name.partition(".")[0]} & LATE}


def test_import_brings_numpy_and_nothing_optional() -> None:
    modules = modules_after("import alight")
    assert foreign(modules) == set()
    assert late(modules) == set()
    assert not modules & {f"alight.{name}" for name in UNUSED}
    # A device is driven by code that comes when it is first asked for.
    assert not modules & {f"alight.backends.{name}" for name in ("cuda", "wgpu", "sim")}


def test_a_small_program_starts_without_what_only_others_need(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text("import numpy as np\nprint((np.arange(9.0) * 2).sum())\n")
    program = f"import sys\nsys.argv = ['alight', 'run', {str(tmp_path / 'small.py')!r}]\n"
    modules = modules_after(
        f"{program}from alight.cli import main\nfrom alight._core import floor\n"
        "floor.record_floor = 100\nmain()"  # as where an earlier process has measured it
    )
    assert foreign(modules) <= {"click", "platformdirs", "alight:numpy"}
    wanted = {"alight.launcher", "alight.report"}
    assert not modules & ({f"alight.{name}" for name in UNUSED} - wanted)
    assert not modules & {"html", "json", "runpy", "statistics"}


@pytest.mark.parametrize("module", ["alight.config", "alight.store"])
def test_settings_and_store_start_without_what_only_their_use_needs(module: str) -> None:
    modules = modules_after(f"import {module}")
    assert foreign(modules) == set()
    assert late(modules) == set()


def test_a_policy_needs_no_optional_package() -> None:
    modules = modules_after("import alight.config\nalight.config.policy(floor=0).__enter__()")
    assert foreign(modules) <= {"platformdirs"}  # to find the configuration file


def test_the_check_can_fail() -> None:
    modules = modules_after("import click, tomllib")
    assert foreign(modules) == {"click"} and "tomllib" in late(modules)


def test_the_version_is_said_once() -> None:
    project = SOURCE.parent / "pyproject.toml"
    if not project.is_file():
        pytest.skip("not a source tree: there is no second place to compare with")
    assert alight.__version__ == tomllib.loads(project.read_text())["project"]["version"]


def test_a_system_that_cannot_fork_imports_it() -> None:
    program = "import os; del os.fork, os.register_at_fork; import alight.backends.cuda_session"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
