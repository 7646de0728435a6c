"""Random programs of statements through alight's front doors: what they log must be NumPy's.

``python -m fuzzing.scripts DOOR MODE FIRST_SEED PROGRAMS`` prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import alight

from .statements import (
    FIRST,
    IMPORT,
    NAMES,
    Body,
    body,
    in_functions,
    in_hot_functions,
    in_one_function,
    in_order,
)

__all__ = ["DOORS", "MODES", "Difference", "differences", "logs_of_numpy"]

# What the processes are told, as a user would.
MODES: dict[str, dict[str, str]] = {
    "auto": {},
    "numpy": {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "numpy"},
    "generated": {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"},
    "sim": {
        "ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "sim:0", "ALIGHT_DEVICES": "cpu,sim:0",
    },
}  # fmt: skip
DRIVER = Path(__file__).with_name("script_driver.py")
_JIT = "from alight import jit\n"
_BATCH = 40  # programs to a process, which takes half a second to start
_SECONDS = 600  # of a batch, many times what the slowest takes
_DIED = "the process died"

# What `alight` itself does not have, or has otherwise, as its documentation says: asarray copies
# ndarrays and buffers, copies made by pickle and deepcopy are ndarrays, NumPy's generators and
# iterators are NumPy's, and do not know Arrays. `a[0]` and `a.sum()` are Arrays of no dimensions,
# and so is what a function makes of a number.
_NOT_LAZY = (
    "memoryview(", "frombuffer", "np.asarray(m)", "Sub", "pickle", "copy.", "np.ma.", "nditer",
    "np.random", "np.lib.", "rec[", "np.empty(2, object)", "fa", "m[", "m.tolist", "(total(",
    *(f"[{i}] {sign}" for i in range(6) for sign in ("+=", "-=", "*=")),
    *(f"{name} = ({i})" for i in range(1, 10) for name in (*NAMES, "B.x")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Door:
    """How a program comes to alight: its text, with what starts it."""

    text: Callable[[Body], str]
    command: tuple[str, ...] = ()
    imports: str = IMPORT
    leaves_out: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


DOORS = {
    "run": Door(in_order, ("-m", "alight", "run")),
    "own": Door(
        in_hot_functions, ("-m", "alight", "run"), settings={"ALIGHT_OWN_FUNCTIONS": "all"}
    ),
    "lazy": Door(in_order, imports="import alight as np\n", leaves_out=_NOT_LAZY),
    "functions": Door(in_functions),
    "whole": Door(in_one_function),
}


@dataclass(slots=True)
class Difference:
    """A program whose log is not NumPy's, as small as it was made."""

    seed: int
    door: str
    mode: str
    statements: Body
    message: str

    def __str__(self) -> str:
        lines = "\n    ".join(self.statements)
        return f"seed {self.seed} by {self.door} in {self.mode}: {self.message}\n    {lines}"


def differences(door: str, mode: str, first: int, programs: int) -> list[Difference]:
    """Return the programs of so many seeds whose logs differ from NumPy's."""
    found = []
    with TemporaryDirectory(prefix="fuzz-") as folder:
        runs = _Runs(Path(folder), DOORS[door], MODES[mode] | DOORS[door].settings)
        for start in range(first, first + programs, _BATCH):
            seeds = range(start, min(start + _BATCH, first + programs))
            bodies = [runs.allowed(body(seed)) for seed in seeds]
            for seed, lines, message in zip(seeds, bodies, runs.judged(bodies), strict=True):
                if message is not None:
                    found.append(Difference(seed, door, mode, *runs.shrunk(lines, message)))
    return found


def logs_of_numpy(seeds: Sequence[int]) -> list[Any]:
    """Return what the programs of these seeds log without alight."""
    with TemporaryDirectory(prefix="fuzz-") as folder:
        runs = _Runs(Path(folder), DOORS["run"], {})
        return runs.logs([in_order(body(seed)) for seed in seeds], (), {})


class _Runs:
    """Runs programs by NumPy and by one door, in one folder."""

    def __init__(self, folder: Path, door: Door, settings: dict[str, str]) -> None:
        self._folder, self._door, self._settings = folder, door, settings
        self._made = 0
        (folder / DRIVER.name).write_text(DRIVER.read_text(encoding="utf-8"), encoding="utf-8")

    def allowed(self, lines: Body) -> Body:
        """Return the statements that mean the same through this door."""
        given = self._door.leaves_out
        return [line for line in lines if not any(part in line for part in given)]

    def judged(self, bodies: Sequence[Body]) -> list[str | None]:
        """Return for each program how its log differs; None where it does not."""
        texts = [self._door.text(lines) for lines in bodies]
        plain = [t.replace(_JIT, "def jit(function):\n    return function\n\n\n") for t in texts]
        wanted = self.logs(plain, (), {})
        ours = [t.replace(IMPORT, self._door.imports) for t in texts]
        got = self.logs(ours, self._door.command, self._settings)
        return [_difference(a, b) for a, b in zip(wanted, got, strict=True)]

    def shrunk(self, lines: Body, message: str) -> tuple[Body, str]:
        """Return the program with as few statements as still differ, and how it differs then.

        All that leave out as many are tried in one process, which takes half a second to start.
        """
        size = max(1, (len(lines) - FIRST) // 2)
        while size:
            starts = range(FIRST, len(lines), size)
            fewer = [lines[:at] + lines[at + size :] for at in starts]
            messages = self.judged(fewer)
            failing = [(f, m) for f, m in zip(fewer, messages, strict=True) if m is not None]
            if failing:
                lines, message = failing[-1]
            else:
                size //= 2
        return lines, message

    def logs(self, texts: Sequence[str], command: Sequence[str], more: dict[str, str]) -> list[Any]:
        names = []
        for text in texts:
            names.append(f"program_{self._made}")
            self._made += 1
            (self._folder / f"{names[-1]}.py").write_text(text, encoding="utf-8")
        out = self._folder / f"log_{self._made}"
        out.touch()
        logs: list[Any] = []
        while len(logs) < len(names):
            out.write_text("", encoding="utf-8")
            call = [sys.executable, *command, DRIVER.name, out.name, *names[len(logs) :]]
            done = subprocess.run(
                call,
                cwd=self._folder,
                env=_environment(more),
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            logs += [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
            if len(logs) < len(names):
                last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
                logs.append(f"{_DIED}: {last[0]}")
        for name in names:
            (self._folder / f"{name}.py").unlink()
        return logs


def _environment(settings: dict[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ALIGHT_") or name in ("ALIGHT_CACHE_DIR", "ALIGHT_REPORT")
    }
    source = str(Path(alight.__file__).parents[1])
    paths = os.pathsep.join(filter(None, (source, kept.get("PYTHONPATH", ""))))
    calm = {"ALIGHT_CALIBRATE": "off", "ALIGHT_CHECK": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return kept | calm | settings | {"PYTHONPATH": paths}


def _difference(wanted: Any, got: Any) -> str | None:
    # As text: -0.0 is no 0.0, and NaN is NaN.
    if json.dumps(wanted) == json.dumps(got):
        return None
    if isinstance(got, str) or isinstance(wanted, str):
        return f"{got}, must be {wanted}"[:300]
    for number, (a, b) in enumerate(zip(wanted, got, strict=False)):
        if json.dumps(a) != json.dumps(b):
            return f"log {number}: {str(b)[:200]}, must be {str(a)[:200]}"
    return f"{len(got)} logged, must be {len(wanted)}"


def main() -> None:
    door, mode, first, programs = *sys.argv[1:3], *map(int, sys.argv[3:5])
    found = differences(door, mode, first, programs)
    print(json.dumps([asdict(item) for item in found]))


if __name__ == "__main__":
    main()
