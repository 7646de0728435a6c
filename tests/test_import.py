"""What `import alight` brings along: NumPy, and nothing that is optional or slow to start."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

import alight.errors
from alight._src.codegen.llvm import elf

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
UNUSED = (
    *("codegen.llvm", "explain.report", "jit.decorator", "launch.loader"),
    *("measure.probes", "measure.timing", "run.measured_choice"),
)
# What a program's first line would wait for, and what it can do without until it plans: neither
# importing alight nor small arrays need any of it.
WEIGHTY = {"dataclasses", "hashlib", "json", "logging", "pathlib", "random", "shutil", "tempfile"}
PLANNING = (
    *("codegen.", "plan.cost", "plan.place", "plan.plan"),
    *("run.execute", "run.kernels", "run.prepared_step"),
)
# What records, which programs of small arrays under `alight run` have none of.
RECORDING = ("adapt.", "api.adopted", "ir.", "log.", "record.array", "run.", "store")


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
    assert not [name for name in modules if name.startswith(_below(UNUSED))]
    # A device is driven by code that comes when it is first asked for.
    assert not modules & {f"alight.backends.{name}" for name in ("cuda", "wgpu", "sim")}


def test_import_brings_nothing_that_plans() -> None:
    modules = modules_after("import alight")
    assert modules & WEIGHTY == set()
    assert not [name for name in modules if name.startswith(_below((*PLANNING, *RECORDING)))]


def _below(names: Sequence[str]) -> tuple[str, ...]:
    """Return where the names of these modules of the implementation begin."""
    return tuple([f"alight._src.{name}" for name in names])


def modules_of_program(folder: Path, text: str, *options: str, **variables: str) -> set[str]:
    """Return the modules that a program has imported by its last line under `alight run`, beyond
    NumPy's."""
    (folder / "program.py").write_text(text)
    given = ["alight", "run", *options, str(folder / "program.py")]
    return modules_after(
        f"import os\nos.environ.update({variables!r})\nsys.argv = {given!r}\n"
        "from alight.__main__ import main\nmain()"
    )


SMALL = """
import numpy as np
a = np.arange(1000.0).reshape(10, 100)
a[a > 7] *= 2
for row in a:
    row += float(row[0])
b = np.random.default_rng(0).random(50) @ np.ones((50, 3))
print(a.sum(), np.sort(a).max(axis=1), np.linalg.norm(b), np.fft.fft(b), len(a))
"""


def test_a_program_of_small_arrays_plans_measures_and_opens_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    modules = modules_of_program(tmp_path, SMALL, ALIGHT_CACHE_DIR=str(cache))
    assert not modules & {"click", "llvmlite", "platformdirs"}
    own = modules_after("import numpy.fft, numpy.random")
    assert modules & WEIGHTY <= own
    unused = ("cli", "explain", "measure", *PLANNING, *RECORDING)
    assert not [name for name in modules if name.startswith(_below(unused))]
    assert "alight.device" not in modules
    assert not cache.exists()


def test_large_arrays_without_a_profile_are_numpys_and_plan_nothing(tmp_path: Path) -> None:
    text = "import numpy as np\nx = np.ones(2_000_000)\nprint(type(x + x).__module__, x.sum())\n"
    modules = modules_of_program(
        *(tmp_path, text), ALIGHT_CACHE_DIR=str(tmp_path / "cache"), ALIGHT_CALIBRATE="off"
    )
    assert not [name for name in modules if name.startswith(_below(PLANNING))]
    # Only the store is looked into, for a profile of the host.
    assert modules & WEIGHTY <= {"json"}
    assert not modules & {
        "alight.backends.host",
        "alight._src.cli.commands",
        "alight.device",
        "alight._src.explain.report",
    }
    assert not modules & {"click", "platformdirs"}


def test_an_option_is_read_by_what_reads_all_of_them(tmp_path: Path) -> None:
    modules = modules_of_program(tmp_path, SMALL, "--report", "-")
    assert {"alight._src.cli.commands", "alight._src.explain.report", "click"} <= modules


@pytest.mark.parametrize("module", ["alight._src.config.loading", "alight._src.store"])
def test_settings_and_store_start_without_what_only_their_use_needs(module: str) -> None:
    modules = modules_after(f"import {module}")
    assert foreign(modules) == set()
    assert late(modules) == set()


def test_a_policy_needs_no_optional_package() -> None:
    modules = modules_after("import alight\nalight.policy(floor=0).__enter__()")
    assert foreign(modules) <= {"platformdirs"}  # to find the configuration file


def test_the_check_can_fail() -> None:
    assert all(find_spec(name.rstrip(".")) for name in _below([*UNUSED, *PLANNING, *RECORDING]))
    modules = modules_after("import click, tomllib")
    assert foreign(modules) == {"click"} and "tomllib" in late(modules)


def test_the_version_is_said_once() -> None:
    project = SOURCE.parent / "pyproject.toml"
    if not project.is_file():
        pytest.skip("not a source tree: there is no second place to compare with")
    assert alight.__version__ == tomllib.loads(project.read_text())["project"]["version"]


def test_a_system_that_cannot_fork_imports_it() -> None:
    program = (
        "import os; del os.fork, os.register_at_fork; import alight.backends.cuda.cuda_session"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


DRAWS = """
import alight, numpy as np
def program(x):
    return np.ones(x.shape) * np.pi + FOUND
with alight.policy(force="numpy"):
    alight.jit(program)(np.zeros(10))
"""


@pytest.mark.parametrize("found", ["x", "np.random.default_rng(0).random(10)"])
def test_jit_loads_numpys_draws_where_code_names_them(found: str, tmp_path: Path) -> None:
    # code that is in a file, as jit looks at it
    (tmp_path / "drawing.py").write_text(DRAWS.replace("FOUND", found))
    modules = modules_after(f"sys.path.insert(0, {str(tmp_path)!r})\nimport drawing")
    assert ("numpy.random" in modules) == ("random" in found)


CALLED = """
import alight, numpy as np
def program(x):
    return np.sin(x) * 2.0 + x
with alight.policy(force="cpu:generated", floor=0):
    alight.jit(program)(np.linspace(0.0, 1.0, 1000))
"""


@pytest.mark.skipif(not elf.HERE, reason="object files of this machine are not ELF's")
def test_a_call_of_a_stored_kernel_loads_nothing_that_writes_kernels(tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    (tmp_path / "called.py").write_text(CALLED)
    given = {"ALIGHT_CACHE_DIR": str(tmp_path / "cache"), "ALIGHT_CALIBRATE": "off"}
    program = (
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        f"import os\nos.environ.update({given!r})\nimport called"
    )
    makers = {
        "llvmlite",
        *_below(
            [f"codegen.llvm.{name}" for name in ("combine", "expressions", "object_code", "simd")]
        ),
    }
    assert makers <= modules_after(program)
    modules = modules_after(program)
    assert "alight._src.codegen.llvm.compiled" in modules
    assert not modules & makers
    # What takes milliseconds to load, and does what a few lines of ours do, or nothing yet.
    assert not modules & {"_hashlib", "hashlib", "logging", "pathlib", "statistics"}


@pytest.mark.parametrize(
    "first",
    ["random.random(3)", "random.default_rng(1).random(3)", "random.random((2, 2)).trace()"],
)
def test_draws_that_a_program_begins_with_are_arrays(first: str) -> None:
    program = f"import alight as np; print(type(np.{first} * 2).__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "Array", (done.returncode, done.stderr)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's heap")
def test_memory_that_a_call_frees_is_there_for_the_next() -> None:
    program = (
        "import alight, resource\n"
        "import numpy as np\n"
        "def call():\n"
        "    return [np.ones(1 << 20) for _ in range(6)] and None\n"
        "for _ in range(3): call()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(10): call()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)\n"
    )
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**plain, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 100  # 30,580 without alight (EPYC)
