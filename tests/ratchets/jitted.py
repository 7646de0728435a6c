"""Random jitted functions: 10⁶ statements in their bodies in each mode, no difference from NumPy.

``python -m tests.ratchets.jitted [--mode M] [--statements N] [--first SEED] [--jobs N]``. Beside
the three modes, ``floor`` records whatever the size, and ``numpy`` has NumPy compute all that.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from time import monotonic
from typing import Any

from .modes import Mode
from .result import Result, finish
from .spread import answer, command, environment, last_words, spread

__all__ = ["main", "measure"]

NAME = "jitted"
STATEMENTS = 10**6
_OWN = {name: Mode(name, {}, None) for name in ("floor", "numpy")}
# Each process ends after so many, because compiled code stays in memory as long as its process.
_PER_PROCESS = 25_000
_SEEDS_APART = 10_000  # between processes: more than one of them can use up


def measure(
    mode: Mode,
    target: str = "alight",
    statements: int = STATEMENTS,
    first: int = 1,
    jobs: int | None = None,
) -> Result:
    """Return what so many statements of jitted bodies found in one mode, from a first seed on."""
    result = Result(NAME, mode.name, target, whole=statements >= STATEMENTS)
    started = monotonic()
    parts = -(-statements // _PER_PROCESS)
    seeds = [first + _SEEDS_APART * part for part in range(parts)]
    size = -(-statements // parts)
    rows = spread(lambda seed: _part(mode, target, seed, size), [(s,) for s in seeds], jobs)
    found = [difference for row in rows for difference in row["differences"]]
    result.counts = {
        "statements": sum(row["statements"] for row in rows),
        "programs": sum(row["programs"] for row in rows),
        "differences": len(found),
    }
    result.details = {"first_seeds": seeds, "statements_each": size, "differences": found}
    result.problems = [row["problem"] for row in rows if "problem" in row]
    for where, count in Counter(row["where"] for row in found).most_common():
        one = next(row for row in found if row["where"] == where)
        result.problems.append(f"{count} × {where}: seed {one['seed']}: {one['message']}")
    if result.counts["statements"] < statements:
        result.problems.append(f"{result.counts['statements']} statements, must be {statements}")
    result.seconds = monotonic() - started
    return finish(result, mode)


def _part(mode: Mode, target: str, first: int, statements: int) -> dict[str, Any]:
    """Run one process; return what it found, and its problem if it died."""
    started = monotonic()
    row, done = answer(("fuzzing.jitted", mode.name, first, statements), environment(NAME, target))
    if row is None:
        problem = f"seeds from {first}: the process died ({last_words(done)})"
        row = {"statements": 0, "programs": 0, "differences": [], "problem": problem}
    seconds = monotonic() - started
    print(f"  {mode.name} from seed {first}: {row['statements']} in {seconds:.0f} s", flush=True)
    return dict(row)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; return 1 if the ratchet fails."""
    return command(measure, NAME, __doc__, _OWN, "statements", STATEMENTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
