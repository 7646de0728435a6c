"""The type stubs say what the package has, and what its functions return."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight

ROOT = Path(__file__).resolve().parent.parent
MADE = (ROOT / "src" / "alight" / "__init__.pyi").read_text(encoding="utf-8")
SERIES = ".".join(np.__version__.split(".")[:2])
# The stubs have the names of one series of NumPy; another has others.
of_this_numpy = pytest.mark.skipif(
    f"with NumPy {SERIES};" not in MADE, reason=f"the stubs are not of NumPy {SERIES}"
)

# What stubtest finds and is meant.
MEANT = r"""
alight\.Array\.(__array_interface__|__array_priority__|of|operators|storage|window)
alight\.device\.\w+\.__signature__
"""

PROGRAM = """
# mypy: disable-error-code=type-arg
import alight
import alight as np
import numpy

a = np.zeros(3)
reveal_type(a)
reveal_type(a.sum())
reveal_type(a[0])
reveal_type(-a @ a)
reveal_type(np.sin(a))
reveal_type(np.frexp(a))
reveal_type(np.linalg.norm(a))
reveal_type(np.fft.rfft(a))
reveal_type(np.allclose(a, a))
reveal_type(np.random.default_rng(1))
reveal_type(a.shape)
reveal_type(np.float32)


@alight.jit
def doubled(x: numpy.ndarray) -> numpy.ndarray:
    return x * 2


reveal_type(doubled(numpy.ones(3)))
np.zerosx(3)
a.summ()
"""


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT)
    return done.stdout + done.stderr


@of_this_numpy
def test_the_stubs_are_as_their_script_makes_them() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "stubs.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Of what is not public nothing is said, and most of the time went to looking at it.
PUBLIC_ONLY = """
import sys
from mypy import stubtest
found = stubtest.build_stubs
stubtest.build_stubs = lambda modules, options, find_submodules: found(modules, options, False)
sys.exit(stubtest.main())
"""


@of_this_numpy
def test_the_stubs_are_true_to_the_package(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "meant.txt").write_text(MEANT)
    (tmp_path / "public_only.py").write_text(PUBLIC_ONLY)
    public = {path.stem for path in (ROOT / "src" / "alight").glob("[a-z]*.py*")} - {"py"}
    found = python(
        str(tmp_path / "public_only.py"),
        *("alight", *(f"alight.{name}" for name in sorted(public))),
        *("--concise", "--ignore-unused-allowlist"),
        *("--mypy-config-file", "pyproject.toml", "--allowlist", str(tmp_path / "meant.txt")),
    )
    assert found.strip() == ""
    assert {"device", "errors", "fft", "linalg", "ops", "random"} == public


@of_this_numpy
def test_functions_of_which_the_stubs_say_array_return_arrays() -> None:
    found = re.findall(r"(@overload\n)?^def (\w+)\(.*\) -> Array: \.\.\.", MADE, re.MULTILINE)
    names = [name for overloaded, name in found if not overloaded]
    table, row = alight.arange(6.0).reshape(2, 3), alight.arange(1.0, 4.0)
    places = alight.array([1, 0, 2])
    calls: list[tuple[Any, ...]] = [
        *((table,), (row,), (places,), (table, table), (row, row), (places, places), (row, places)),
        *((table, 0), (table, (3, 2)), (table, (4, 2, 3)), (table, 1, 0), (table, [0], 0), (3,)),
        *(((2, 3),), ((2, 3), 1.0), ([table, table],), (table > 1, table), (row, row, row)),
        *((1.0, 10.0), (row, 0, 9.0), ("ij->ji", table), (places, [row, row, row]), ((1, 2), (3,))),
        *(([row > 1], [row]), (alight.array([3], "u1"),), ((places, places), (3, 3))),
    ]
    wrong = {}
    for name in names:
        kinds = set()
        for call in calls:
            with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
                kinds.add(type(getattr(alight, name)(*call)).__name__)
        # Objects and strings are NumPy's own arrays.
        if not {"Array"} <= kinds <= {"Array", "ndarray"}:
            wrong[name] = kinds
    assert wrong == {}
    assert len(names) > 150


def test_type_checkers_know_what_programs_get(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    # As the package is checked: what mypy knows of NumPy from there is used.
    found = python("-m", "mypy", "--config-file", "pyproject.toml", str(tmp_path / "program.py"))
    types = [line.split('"')[1] for line in found.splitlines() if "Revealed type" in line]
    array = "alight.Array"
    assert [name.replace("builtins.", "") for name in types][:12] == [
        *(array, array, array, array, array),
        f"tuple[{array}, {array}]",
        *(array, array, "bool", "alight.random.Generator", "tuple[int, ...]"),
        types[11].replace("builtins.", ""),
    ]
    assert "floating" in types[11] and "ndarray" in types[12]
    errors = [line for line in found.splitlines() if "error" in line]
    assert ["zerosx" in errors[0], "summ" in errors[1]] == [True, True], found
