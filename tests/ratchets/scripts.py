"""Random scripts by four doors: `alight run`, `import alight as np`, `jit` of functions and of
all of a script.

``python -m tests.ratchets.scripts [--mode M] [--programs N] [--first SEED] [--jobs N]``. What they
log must be what NumPy makes them log, bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import monotonic
from typing import Any

from .modes import Mode
from .result import Result, finish
from .spread import answer, command, environment, last_words, spread

__all__ = ["main", "measure"]

NAME = "scripts"
PROGRAMS = 500  # by each door: some 10 minutes of a processor where code is generated
DOORS = ("run", "lazy", "functions", "whole")
_OWN = {"numpy": Mode("numpy", {}, None)}
_PER_PROCESS = 125


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
    rows = spread(lambda *part: _part(mode, target, *part, size), parts, jobs)
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
    started = monotonic()
    arguments = ("fuzzing.scripts", door, mode.name, first, programs)
    found, done = answer(arguments, environment(NAME, target))
    row: dict[str, Any] = {"differences": found or []}
    if found is None:
        row["problem"] = f"{door} from seed {first}: died ({last_words(done)})"
    print(f"  {mode.name} by {door} from seed {first}: {monotonic() - started:.0f} s", flush=True)
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; return 1 if the ratchet fails."""
    return command(measure, NAME, __doc__, _OWN, "programs", PROGRAMS, arguments)


if __name__ == "__main__":
    sys.exit(main())
