"""What programs need of memory beside NumPy: the most at any call, and what stays afterwards.

``python -m tests.ratchets.memory [DOOR] [NAME ...]`` runs each program, 40 calls in a process of
its own with an empty cache, by a door (``jit``, ``namespace`` or ``run``; all by default), and
beside it in NumPy. It reads what Linux says of each process (VmHWM, VmRSS). ``--scale`` makes the
arrays so much smaller or larger.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from .memory_programs import PROGRAMS, Program
from .modes import MODES, child_environment
from .result import Result, finish

__all__ = ["DOORS", "Needed", "faults", "main", "measure", "run"]

NAME = "memory"
DOORS = ("jit", "namespace", "run")
CALLS = 40
_SECONDS = 600.0

# The limits of the promise: the most at any call, and what is left a second after all is dropped.
PEAK_TIMES = 1.15
MORE_KEPT = 64 << 20

_CHILD = Path(__file__).with_name("memory_child.py")


class Needed(NamedTuple):
    """Bytes of one process: before it had anything, of its arguments, of one result, the most at
    each call, and what was left a second after all was dropped (``kept``) and later still.

    ``code`` is how much of these are files that were mapped meanwhile (a compiler, a library):
    clean pages that every process shares, and that no limit counts once memory is short.
    """

    base: int
    arguments: int
    result: int
    peaks: list[int]
    kept: int
    later: int
    code: int

    @property
    def peak(self) -> int:
        """Return the most at any call."""
        return max(self.peaks)


def faults(numpy: Needed, alight: Needed) -> Iterator[str]:
    """Yield what breaks the promise."""
    limit = PEAK_TIMES * numpy.peak + alight.result
    if alight.peak - alight.code > limit:
        place = alight.peaks.index(alight.peak) + 1
        yield (
            f"call {place} has {_mb(alight.peak)} at its peak, {_mb(alight.code)} of it code; "
            f"NumPy {_mb(numpy.peak)}, which allows {_mb(limit)}"
        )
    if alight.kept - alight.code - alight.base > MORE_KEPT:
        yield f"{_mb(alight.kept - alight.base)} are kept, {_mb(alight.code)} of them code"


def _mb(count: float) -> str:
    return f"{count / 1e6:.0f} MB"


def run(program: Program, door: str, calls: int, scale: float, cache: Path) -> Needed:
    """Return what one program needs by a door (``numpy``: plainly), in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        # As one script, so that `alight run` has all of the program.
        text = f"{program.text}\n\n{_CHILD.read_text()}" if door == "run" else _CHILD.read_text()
        path.write_text(program.text if door != "run" else text)
        child = str(path) if door == "run" else str(_CHILD)
        launcher = ["-m", "alight", "run"] if door == "run" else []
        environment = child_environment(MODES["auto"], "alight") | {"ALIGHT_CACHE_DIR": str(cache)}
        found = subprocess.run(
            [sys.executable, *launcher, child, door, str(path), str(calls), str(scale)],
            capture_output=True, text=True, timeout=_SECONDS, env=environment, cwd=folder,
        )  # fmt: skip
    if found.returncode:
        raise RuntimeError(f"{program.name} by {door}: {found.returncode}: {found.stderr[-800:]}")
    return Needed(**json.loads(found.stdout.strip().splitlines()[-1]))


def measure(door: str, names: Sequence[str] = (), scale: float = 1.0) -> Result:
    """Run all programs, or those of these names, by a door and in NumPy."""
    began = perf_counter()
    result = Result(NAME, door, "alight", whole=not names and scale == 1.0)
    rows: list[dict[str, Any]] = []
    for program in PROGRAMS:
        if names and program.name not in names:
            continue
        with tempfile.TemporaryDirectory() as cache:
            try:
                plain = run(program, "numpy", 4, scale, Path(cache))
                own = run(program, door, CALLS, scale, Path(cache))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                result.problems.append(f"{program.name}: {error}"[:900])
                continue
        wrong = list(faults(plain, own))
        result.problems += [f"{program.name}: {fault}" for fault in wrong]
        rows.append({"program": program.name} | _row(plain, own))
        print({**rows[-1]}, *wrong, flush=True)
    over = [row for row in rows if row["peak"] > row["numpy_peak"]]
    result.counts = {"programs": len(rows), "larger": len(over), "problems": len(result.problems)}
    result.details = {"rows": rows, "scale": scale}
    result.seconds = perf_counter() - began
    return finish(result, MODES["auto"])


def _row(numpy: Needed, alight: Needed) -> dict[str, Any]:
    """Return the figures of one program, in MB."""
    return {
        "numpy_peak": round(numpy.peak / 1e6),
        "peak": round(alight.peak / 1e6),
        "peak_at_call": alight.peaks.index(alight.peak) + 1,
        "last_peak": round(alight.peaks[-1] / 1e6),
        "result": round(alight.result / 1e6),
        "numpy_kept": round((numpy.kept - numpy.base) / 1e6),
        "kept": round((alight.kept - alight.base) / 1e6),
        "code": round(alight.code / 1e6),
    }


def main() -> None:
    """Run what is named."""
    named = sys.argv[1:]
    scale = 1.0
    if "--scale" in named:
        place = named.index("--scale")
        scale = float(named[place + 1])
        del named[place : place + 2]
    doors = [door for door in DOORS if door in named] or list(DOORS)
    names = [name for name in named if name not in DOORS]
    sys.exit(not all([measure(door, names, scale).passed for door in doors]))


if __name__ == "__main__":
    main()
