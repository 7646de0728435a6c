"""Programs in which alight must do no harm: no call stalls, none stays slower than NumPy's.

``python -m tests.ratchets.harmless [DOOR] [NAME ...]`` runs each program cold, with an empty cache,
and then warm, by a door (``jit``, ``namespace`` or ``run``; all by default). What NumPy takes is
timed beside it, in turns. ``numpy`` as a door is NumPy against itself: what the machine's own noise
makes of the limits.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean
from time import perf_counter
from typing import Any, NamedTuple

from .harmless_cliffs import cliffs
from .harmless_programs import Program, programs
from .modes import MODES, ROOT, child_environment
from .result import Result, finish

__all__ = ["CALLS", "DOORS", "Timed", "faults", "main"]

NAME = "harmless"
DOORS = ("jit", "namespace", "run")
CALLS = 40
_SECONDS = 300.0

# The limits of the promise: one call against NumPy's slowest, all of them, and the last half.
ONE_TIMES, ONE_MORE, LONG_SECONDS, LONG_TIMES = 3.0, 0.060, 1.0, 1.25
ALL_TIMES, ALL_MORE = 1.05, 0.060
LAST_TIMES, LAST_MORE = 1.03, 0.0002
MEAN = 0.9

# Behind a program that runs alone: times its calls, and leaves the times.
_ALONE = """
import json as _json, sys as _sys, warnings as _warnings
from time import perf_counter as _now
_warnings.simplefilter("ignore")
_given, _times = make(), []
for _turn in range({count}):
    _began = _now()
    _result = body(*_given)
    for _leaf in _result if isinstance(_result, (list, tuple)) else [_result]:
        float(np.sum(_leaf)) if isinstance(_leaf, np.ndarray) and _leaf.dtype.kind in "fiub" else 0
    _times.append(_now() - _began)
print(_json.dumps(_times))
"""


class Timed(NamedTuple):
    """The seconds of each call, NumPy's and alight's, and whether they made the same."""

    numpy: list[float]
    alight: list[float]
    same: bool

    @property
    def ratio(self) -> float:
        """Return the time of the last half of the calls against NumPy's."""
        half = len(self.alight) // 2
        return sum(self.alight[half:]) / sum(self.numpy[half:])


def faults(timed: Timed) -> Iterator[str]:
    """Yield what breaks the promise."""
    worst = max(timed.numpy)
    limit = LONG_TIMES * worst if worst > LONG_SECONDS else ONE_TIMES * worst + ONE_MORE
    place = max(range(len(timed.alight)), key=timed.alight.__getitem__)
    if timed.alight[place] > limit:
        yield f"call {place + 1} took {_ms(timed.alight[place])}, NumPy's slowest {_ms(worst)}"
    whole, numpy = sum(timed.alight), sum(timed.numpy)
    if whole > ALL_TIMES * numpy + ALL_MORE:
        yield f"{len(timed.alight)} calls took {_ms(whole)}, NumPy's {_ms(numpy)}"
    half = len(timed.alight) // 2
    last, numpy = sum(timed.alight[half:]), sum(timed.numpy[half:])
    if last > LAST_TIMES * numpy + LAST_MORE * (len(timed.alight) - half):
        yield f"the last {len(timed.alight) - half} took {_ms(last)}, NumPy's {_ms(numpy)}"
    if not timed.same:
        yield "the results differ"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def run(program: Program, door: str, cache: Path, count: int = CALLS) -> Timed:
    """Return the times of one program by one door, in a process that keeps what it makes there."""
    with tempfile.TemporaryDirectory() as folder:
        if door != "run":
            path = Path(folder, "program.py")
            path.write_text(program.text)
            command = ["-m", "tests.ratchets.harmless_child", door, str(path), str(count)]
            found = json.loads(_out(command, cache, ROOT))
            return Timed(**found["seconds"], same=found["same"])
        path = Path(folder, "script.py")
        path.write_text(program.text + _ALONE.format(count=count))
        plain, own = [
            json.loads(_out([*command, str(path)], cache, Path(folder)))
            for command in ([], ["-m", "alight", "run"])
        ]
        return Timed(plain, own, same=True)


def _out(command: Sequence[str], cache: Path, where: Path) -> str:
    environment = child_environment(MODES["auto"], "alight") | {"ALIGHT_CACHE_DIR": str(cache)}
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(ROOT)])
    # An installed alight is compiled already: without that, a first plan waited 0.1 s for it.
    environment["PYTHONDONTWRITEBYTECODE"] = ""
    found = subprocess.run(
        [sys.executable, *command],
        capture_output=True, text=True, timeout=_SECONDS, env=environment, cwd=where,
    )  # fmt: skip
    if found.returncode:
        raise RuntimeError(f"{command[-2:]} ended with {found.returncode}: {found.stderr[-800:]}")
    return found.stdout.strip().splitlines()[-1]


def measure(door: str, names: Sequence[str] = ()) -> Result:
    """Run all programs, or those of these names or styles, by a door."""
    began = perf_counter()
    result = Result(NAME, door, "alight", whole=not names)
    ratios: dict[str, list[float]] = {"cold": [], "warm": []}
    rows: list[dict[str, Any]] = []
    for program in (*cliffs(), *programs()):
        if names and not any(program.name.startswith(name) for name in names):
            continue
        with tempfile.TemporaryDirectory() as cache:
            for state, kept in ratios.items():
                try:
                    timed = run(program, door, Path(cache))
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    result.problems.append(f"{program.name} {state}: {error}"[:600])
                    continue
                kept.append(timed.ratio)
                wrong = list(faults(timed))
                result.problems += [f"{program.name} {state}: {fault}" for fault in wrong]
                rows.append({"program": program.name, "state": state, "ratio": timed.ratio})
                print(f"{program.name} {state} {timed.ratio:.3f} {wrong or ''}", flush=True)
    means = {state: geometric_mean(kept) if kept else math.nan for state, kept in ratios.items()}
    result.counts = {"programs": len(ratios["cold"]), **means}
    for state, mean in means.items():
        if mean > MEAN:
            result.problems.append(f"the mean of the last calls, {state}, is {mean:.3f} of NumPy's")
    result.details = {"rows": rows}
    result.seconds = perf_counter() - began
    return finish(result, MODES["auto"])


def main() -> None:
    """Run what is named."""
    named = sys.argv[1:]
    doors = [door for door in (*DOORS, "numpy") if door in named] or list(DOORS)
    names = [name for name in named if name not in (*DOORS, "numpy")]
    sys.exit(not all([measure(door, names).passed for door in doors]))


if __name__ == "__main__":
    main()
