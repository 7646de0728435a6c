"""Random scripts by four doors: `alight run`, `import alight as np`, `jit` of functions and of
all of a script.

``python -m tests.ratchets.scripts [--mode M] [--programs N] [--first SEED] [--jobs N]``. What they
log must be what NumPy makes them log, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

from .modes import MODES, SCRATCH, Mode, child_environment
from .result import Result, finish

__all__ = ["main", "measure"]

NAME = "scripts"
PROGRAMS = 500  # by each door: some 10 minutes of a processor where code is generated
DOORS = ("run", "lazy", "functions", "whole")
_OWN = {"numpy": Mode("numpy", {}, None)}
_PER_PROCESS = 125
_SILENCE_SECONDS = 3600


def measure(
    mode: Mode,
    target: str = "alight",
    programs: int = PROGRAMS,
    first: int = 1,
    jobs: int | None = None,
) -> Result:
    """Return what so many random scripts by each door found in one mode, from a first seed on."""
    result = Result(NAME, mode.name, target, whole=programs >= PROGRAMS)
    started = monotonic()
    size = min(programs, _PER_PROCESS)
    parts = [(door, seed) for door in DOORS for seed in range(first, first + programs, size)]
    with ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as threads:
        rows = list(threads.map(lambda part: _part(mode, target, *part, size), parts))
    found = [difference for row in rows for difference in row["differences"]]
    result.counts = {
        **{door: size * sum(part[0] == door for part in parts) for door in DOORS},
        "differences": len(found),
    }
    result.details = {"first_seed": first, "differences": found}
    result.problems = [row["problem"] for row in rows if "problem" in row]
    for row in found:
        shown = "; ".join(row["statements"])
        result.problems.append(f"seed {row['seed']} by {row['door']}: {row['message']}: {shown}")
    result.seconds = monotonic() - started
    return finish(result, mode)


def _part(mode: Mode, target: str, door: str, first: int, programs: int) -> dict[str, Any]:
    """Run one process; return what it found, and its problem if it died."""
    environment = child_environment(MODES["auto"], target)
    environment.setdefault("ALIGHT_CACHE_DIR", str(SCRATCH / f"{NAME}-cache"))
    started = monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "fuzzing.scripts", door, mode.name, str(first), str(programs)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SILENCE_SECONDS,
        check=False,
    )
    row: dict[str, Any] = {}
    try:
        row["differences"] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        row = {"differences": [], "problem": f"{door} from seed {first}: died ({said[0]})"}
    print(f"  {mode.name} by {door} from seed {first}: {monotonic() - started:.0f} s", flush=True)
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; return 1 if the ratchet fails."""
    modes = {**MODES, **_OWN}
    parser = argparse.ArgumentParser(prog=f"tests.ratchets.{NAME}", description=__doc__)
    parser.add_argument("--mode", action="append", choices=modes, help="default: all four")
    parser.add_argument("--programs", type=int, default=PROGRAMS, help="by each door")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, help="processes at a time; default: all processors")
    given = parser.parse_args(arguments)
    results = [
        measure(modes[name], "alight", given.programs, given.first, given.jobs)
        for name in given.mode or modes
    ]
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
