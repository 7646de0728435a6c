"""Random programs and aliasing chains: 10⁶ operations in each mode, no difference from NumPy.

``python -m tests.ratchets.fuzz [--mode M] [--operations N] [--first SEED] [--jobs N]``. Beside the
three modes, ``numpy`` defers everything and lets NumPy compute it, and ``random`` places values at
random over NumPy, generated kernels, ``sim:0`` and, where there is one, ``wgpu:0``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from .modes import MODES, SCRATCH, Mode, child_environment
from .result import Result, finish, read_work

__all__ = ["main", "measure"]

NAME = "fuzz"
OPERATIONS = 10**6
_OWN = {name: Mode(name, {}, None) for name in ("numpy", "random")}
# Each process ends after so many, because compiled code stays in memory as long as its process:
# 0.6 GB after some 40,000.
_PER_PROCESS = 50_000
_SEEDS_APART = 10_000  # between processes: more than one of them can use up
_SILENCE_SECONDS = 3600


def measure(
    mode: Mode,
    target: str = "alight",
    operations: int = OPERATIONS,
    first: int = 1,
    jobs: int | None = None,
) -> Result:
    """Return what so many random operations found in one mode, from a first seed on."""
    result = Result(NAME, mode.name, target, whole=operations >= OPERATIONS)
    started = monotonic()
    parts = -(-operations // _PER_PROCESS)
    seeds = [first + _SEEDS_APART * part for part in range(parts)]
    size = -(-operations // parts)
    # Each run has a folder of its own: another one at the same time would take its reports away.
    with (
        TemporaryDirectory(prefix="ratchet-") as scratch,
        ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as threads,
    ):
        reports = [Path(scratch) / f"{NAME}-{mode.name}-{seed}.json" for seed in seeds]
        rows = list(threads.map(lambda s, r: _part(mode, target, s, size, r), seeds, reports))
        result.work = read_work(reports)
    failures = [failure for row in rows for failure in row["failures"]]
    result.counts = {
        "operations": sum(row["operations"] for row in rows),
        "programs": sum(row["programs"] for row in rows),
        "mismatches": len(failures),
    }
    result.details = {
        "first_seeds": seeds,
        "operations_each": size,
        "processor_seconds": round(sum(row["seconds"] for row in rows), 1),
        "failures": failures,
    }
    result.problems += [row["problem"] for row in rows if row.get("problem")]
    for message, count in Counter(f["message"][:80] for f in failures).most_common():
        one = next(f for f in failures if f["message"][:80] == message)
        call = f"run({one['seed']}, {one['mode']!r}, {one['steps'] or None})"
        result.problems.append(f"{count} × {message}: fuzzing.program.{call}")
    if result.counts["operations"] < operations:
        result.problems.append(f"{result.counts['operations']} operations, must be {operations}")
    result.seconds = monotonic() - started
    # Programs leave the mode's policy now and then; nine tenths of the work must stay within it.
    return finish(result, mode)


def _part(mode: Mode, target: str, first: int, operations: int, report: Path) -> dict[str, Any]:
    """Run one process; return its counts and failures, and its problem if it died."""
    environment = child_environment(MODES["auto"], target, report)
    environment.setdefault("ALIGHT_CACHE_DIR", str(SCRATCH / f"{NAME}-cache"))
    environment["ALIGHT_CALIBRATE"] = "off"
    started = monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "fuzzing", mode.name, str(first), str(operations)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SILENCE_SECONDS,
        check=False,
    )
    seconds = monotonic() - started
    try:
        row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        problem = f"seeds from {first}: the process died ({said[0]})"
        row = {"operations": 0, "programs": 0, "failures": [], "problem": problem}
    if not report.exists() and "problem" not in row:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        row["problem"] = f"seeds from {first}: no report was written ({said[0]})"
    print(f"  {mode.name} from seed {first}: {row['operations']} in {seconds:.0f} s", flush=True)
    return row | {"seconds": seconds}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; return 1 if the ratchet fails."""
    modes = {**MODES, **_OWN}
    parser = argparse.ArgumentParser(prog=f"tests.ratchets.{NAME}", description=__doc__)
    parser.add_argument("--mode", action="append", choices=modes, help="default: all five")
    parser.add_argument("--operations", type=int, default=OPERATIONS)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, help="processes at a time; default: all processors")
    given = parser.parse_args(arguments)
    results = [
        measure(modes[name], "alight", given.operations, given.first, given.jobs)
        for name in given.mode or modes
    ]
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
