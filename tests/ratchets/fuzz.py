"""Random programs and aliasing chains: 10⁶ operations in each mode, no difference from NumPy.

``python -m tests.ratchets.fuzz [--mode M] [--operations N] [--first SEED] [--jobs N]``. Beside the
three modes, ``numpy`` defers everything and lets NumPy compute it, and ``random`` places values at
random over NumPy, generated kernels, ``sim:0`` and, where there is one, ``wgpu:0``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from .modes import Mode
from .result import Result, finish, read_work
from .spread import answer, command, environment, last_words, spread

__all__ = ["main", "measure"]

NAME = "fuzz"
OPERATIONS = 10**6
_OWN = {name: Mode(name, {}, None) for name in ("numpy", "random")}
# Each process ends after so many, because compiled code stays in memory as long as its process:
# 0.6 GB after some 40,000.
_PER_PROCESS = 50_000
_SEEDS_APART = 10_000  # between processes: more than one of them can use up


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
    with TemporaryDirectory(prefix="ratchet-") as scratch:
        reports = [Path(scratch) / f"{NAME}-{mode.name}-{seed}.json" for seed in seeds]
        each = list(zip(seeds, reports, strict=True))
        rows = spread(lambda s, r: _part(mode, target, s, size, r), each, jobs)
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
    env = environment(NAME, target, report) | {"ALIGHT_CALIBRATE": "off"}
    started = monotonic()
    row, done = answer(("fuzzing", mode.name, first, operations), env)
    seconds = monotonic() - started
    if row is None:
        problem = f"seeds from {first}: the process died ({last_words(done)})"
        row = {"operations": 0, "programs": 0, "failures": [], "problem": problem}
    elif not report.exists():
        row["problem"] = f"seeds from {first}: no report was written ({last_words(done)})"
    print(f"  {mode.name} from seed {first}: {row['operations']} in {seconds:.0f} s", flush=True)
    return row | {"seconds": seconds}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; return 1 if the ratchet fails."""
    return command(measure, NAME, __doc__, _OWN, "operations", OPERATIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
