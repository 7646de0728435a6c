"""Programs that hand arrays to other packages, by `alight run` and inside `jit`: what they print
and how they end is what plain Python makes of them.

``python -m tests.ratchets.border [NAME ...]`` runs those whose packages are installed; each is to
report a generated launch, for recording nothing proves nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from . import border_crossings as border_crossings  # adds to the programs
from . import border_workflows_others as border_workflows_others  # adds to the programs
from . import border_workflows_pandas_scipy as border_workflows_pandas_scipy  # adds to the programs
from .border_programs import PROGRAMS, Program, as_function, as_jitted, as_script

__all__ = ["DOORS", "Found", "main", "run_program"]

LARGE, SMALL = 1_000_000, 20_000
_SECONDS = 300.0


class Door(NamedTuple):
    """A way to run a program: its text there and for plain Python, the command, and settings."""

    text: Callable[[Program], str]
    plain: Callable[[Program], str]
    command: tuple[str, ...]
    variables: dict[str, str]


_FLOORLESS = {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"}
_FORCED = {"ALIGHT_FORCE": "cpu:generated"}
_RUN = ("-m", "alight", "run")
DOORS = {
    "script": Door(lambda p: as_script(p, LARGE), lambda p: as_script(p, LARGE), _RUN, {}),
    "function": Door(lambda p: as_function(p, LARGE), lambda p: as_script(p, LARGE), _RUN, _FORCED),
    "floorless": Door(
        lambda p: as_script(p, SMALL), lambda p: as_script(p, SMALL), _RUN, _FLOORLESS
    ),
    "jit": Door(
        lambda p: as_jitted(p, SMALL), lambda p: as_jitted(p, SMALL, False), (), _FLOORLESS
    ),
}


class Found(NamedTuple):
    """How a program went: what plain Python printed and ended with, what the door did, and the
    launches that it reported."""

    expected: tuple[str, int]
    actual: tuple[str, int]
    errors: str
    launches: int

    @property
    def same(self) -> bool:
        """Tell whether both printed the same and ended well: a program that fails in plain Python,
        too, proves nothing."""
        return self.expected == self.actual and self.expected[1] == 0


def run_program(name: str, door: Door) -> Found:
    """Run a program by a door and by plain Python."""
    program = PROGRAMS[name]
    with tempfile.TemporaryDirectory() as folder:
        plain = _run(folder, "plain.py", door.plain(program), (), {})
        report = os.path.join(folder, "report.json")
        settings = {**door.variables, "ALIGHT_REPORT": report}
        own = _run(folder, "script.py", door.text(program), door.command, settings)
        launches = _launches(Path(report))
    return Found(
        (plain.stdout, plain.returncode), (own.stdout, own.returncode), own.stderr, launches
    )


def _run(
    folder: str, name: str, text: str, command: Sequence[str], variables: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    path = Path(folder, name)
    path.write_text(text)
    return subprocess.run(
        [sys.executable, *command, str(path)],
        env={**os.environ, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def _launches(report: Path) -> int:
    """Return how many element-operations a report says that generated kernels did."""
    if not report.exists():
        return 0
    operations = json.loads(report.read_text())["totals"]["element_operations"]
    return int(operations.get("generated", 0))


def installed() -> Iterator[str]:
    """Yield the programs whose packages are installed."""
    for name, program in PROGRAMS.items():
        if all(find_spec(package) is not None for package in program.packages):
            yield name


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the programs that are named, or all; return 1 where one differs."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    doors = [name for name in given if name in DOORS] or list(DOORS)
    names = [name for name in given if name in PROGRAMS] or list(installed())
    different = 0
    with ThreadPoolExecutor(2) as pool:
        for door in doors:
            for name, found in zip(
                names, pool.map(lambda n, d=DOORS[door]: run_program(n, d), names), strict=True
            ):
                different += not found.same
                verdict = "same" if found.same else "DIFFERS"
                print(
                    f"{door:10s} {name:28s} {verdict:8s} {found.launches:12d} generated", flush=True
                )
                if not found.same:
                    print(f"--- {found.expected}\n+++ {found.actual}\n{found.errors[-1500:]}")
    print(f"{different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
