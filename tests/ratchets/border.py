"""Programs that hand arrays to other packages, by `alight run` and inside `jit`: what they print
and how they end is what plain Python makes of them.

``python -m tests.ratchets.border [NAME ...]`` runs those whose packages are installed, by the doors
and of the programs named. Where kernels are forced each has to have a generated launch behind it
when it hands over its first array, for recording nothing proves nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from time import perf_counter
from typing import NamedTuple

from . import border_crossings as border_crossings  # adds to the programs
from . import border_workflows_others as border_workflows_others  # adds to the programs
from . import border_workflows_pandas_scipy as border_workflows_pandas_scipy  # adds to the programs
from .border_programs import PROGRAMS, Program, as_function, as_jitted, as_script
from .modes import MODES, child_environment
from .result import Result, finish

__all__ = ["DOORS", "Found", "main", "run_program"]

NAME = "border"

LARGE, SMALL = 1_000_000, 20_000
_SECONDS = 300.0
_TOO_LONG = 124  # the exit status of `timeout`


class Door(NamedTuple):
    """A way to run a program: its text there and for plain Python, the command, and settings."""

    text: Callable[[Program], str]
    plain: Callable[[Program], str]
    command: tuple[str, ...]
    variables: dict[str, str]

    @property
    def forced(self) -> bool:
        """Tell whether all work is to be that of generated kernels."""
        return "ALIGHT_FORCE" in self.variables


_FLOORLESS = {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"}
_FORCED = {"ALIGHT_FORCE": "cpu:generated"}
_RUN = ("-m", "alight", "run")
DOORS = {
    # As alight decides: which may be for NumPy.
    "automatic": Door(lambda p: as_script(p, LARGE), lambda p: as_script(p, LARGE), _RUN, {}),
    "script": Door(lambda p: as_script(p, LARGE), lambda p: as_script(p, LARGE), _RUN, _FORCED),
    "function": Door(lambda p: as_function(p, LARGE), lambda p: as_script(p, LARGE), _RUN, _FORCED),
    "floorless": Door(
        lambda p: as_script(p, SMALL), lambda p: as_script(p, SMALL), _RUN, _FLOORLESS
    ),
    "jit": Door(
        lambda p: as_jitted(p, SMALL), lambda p: as_jitted(p, SMALL, False), (), _FLOORLESS
    ),
}


class Found(NamedTuple):
    """How a program went: what plain Python printed and ended with, what the door did, and how many
    element-operations of generated kernels there were when the first array was handed over; None
    where none was."""

    expected: tuple[str, int]
    actual: tuple[str, int]
    errors: str
    before_crossing: int | None

    @property
    def same(self) -> bool:
        """Tell whether both printed the same and ended well: a program that fails in plain Python,
        too, proves nothing."""
        return self.expected == self.actual and self.expected[1] == 0

    def problem(self, door: Door) -> str:
        """Return what is wrong; nothing where all is well."""
        if not self.same:
            return f"differs: {self.expected} is {self.actual}: {self.errors[-1500:]}"
        if self.before_crossing is None:
            return "hands nothing over"
        if door.forced and not self.before_crossing:
            return "has no generated launch before its first crossing"
        return ""


# Runs before the program, in its process alone: notes what had been launched when the first Array
# had been handed over, with what computed it.
_WATCH = """
    import os
    noted = os.environ.pop("BORDER_NOTED", None)
    if noted is not None:
        from alight._src.jit import border
        from alight._src.log.decisions import LOG
        handed_over = border.handed_over
        def first_handed_over(array):
            border.handed_over = handed_over
            given = handed_over(array)
            counted = LOG.snapshot().elements.items()
            with open(noted, "w") as file:
                file.write(str(sum(n for (how, _), n in counted if how == "generated")))
            return given
        border.handed_over = first_handed_over
"""


def run_program(name: str, door: Door) -> Found:
    """Run a program by a door and by plain Python."""
    program = PROGRAMS[name]
    expected = _by_plain_python(door.plain(program))
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder, "noted.txt")
        watching = Path(folder, "watching")
        watching.mkdir()
        (watching / "sitecustomize.py").write_text(dedent(_WATCH))
        settings = {**door.variables, "BORDER_NOTED": str(noted)}
        own = _run(folder, "script.py", door.text(program), door.command, settings, str(watching))
        before = int(noted.read_text()) if noted.exists() else None
    return Found(expected, (own.stdout, own.returncode), own.stderr, before)


@cache  # several doors ask for the same
def _by_plain_python(text: str) -> tuple[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        plain = _run(folder, "plain.py", text, (), {})
    return plain.stdout, plain.returncode


def _run(
    folder: str,
    name: str,
    text: str,
    command: Sequence[str],
    settings: dict[str, str],
    first_of_path: str = "",
) -> subprocess.CompletedProcess[str]:
    path = Path(folder, name)
    path.write_text(text)
    environment = {**child_environment(MODES["auto"], "alight"), **settings}
    paths = (first_of_path, environment.get("PYTHONPATH"))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    try:
        return subprocess.run(
            [sys.executable, *command, str(path)],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as ended:  # which costs the others nothing
        return subprocess.CompletedProcess(ended.cmd, _TOO_LONG, "", str(ended))


def installed() -> Iterator[str]:
    """Yield the programs whose packages are installed."""
    for name, program in PROGRAMS.items():
        if all(find_spec(package) is not None for package in program.packages):
            yield name


def measure(door: str, names: Sequence[str]) -> Result:
    """Run programs by a door."""
    began = perf_counter()
    result = Result(NAME, door, "alight", whole=len(names) == len(PROGRAMS))
    launches = {}
    with ThreadPoolExecutor(2) as pool:
        found_all = pool.map(lambda name: run_program(name, DOORS[door]), names)
        for name, found in zip(names, found_all, strict=True):
            problem = found.problem(DOORS[door])
            if problem:
                result.problems.append(f"{name} {problem}")
            launches[name] = found.before_crossing
            told = problem.partition(":")[0] or "same"
            print(f"{door:10s} {name:32s} {found.before_crossing!s:>10s} {told}", flush=True)
    result.counts = {
        "programs": len(names),
        "right": len(names) - len(result.problems),
        "with a launch before the first crossing": sum(map(bool, launches.values())),
    }
    result.details = {"element-operations of kernels before the first crossing": launches}
    result.seconds = perf_counter() - began
    return finish(result, MODES["auto"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the programs that are named, or all; return 1 where one differs."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if unknown := [name for name in given if name not in DOORS and name not in PROGRAMS]:
        print(f"{unknown} are neither doors nor programs. Doors: {[*DOORS]}")
        return 2
    doors = [name for name in given if name in DOORS] or list(DOORS)
    names = [name for name in given if name in PROGRAMS] or list(installed())
    return 0 if all([measure(door, names).passed for door in doors]) else 1


if __name__ == "__main__":
    sys.exit(main())
