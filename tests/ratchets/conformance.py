"""The conformance suite, every case of it: 0 failures, and the work done where it must be.

``python -m tests.ratchets.conformance --mode generated [-k EXPR] [--jobs N]``
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from .modes import MODES, ROOT, Mode, child_environment
from .result import Result, finish, read_work
from .suite import Suite, count, groups, run_suite

__all__ = ["main", "measure"]

NAME = "conformance"
_SHOWN = 10  # failures named in the last lines
_SECONDS_EACH = 1800  # one test holds up to thousands of cases


def measure(
    mode: Mode, target: str = "alight", expression: str | None = None, jobs: int = 1
) -> Result:
    """Return what all cases say in one mode; ``expression`` selects tests as pytest's ``-k``."""
    result = Result(NAME, mode.name, target, whole=expression is None)
    started = monotonic()
    with TemporaryDirectory(prefix="ratchet-") as scratch:
        suite = Suite(
            arguments=(
                *("tests/conformance", "--full", "--mode", mode.name, "-q", "-rfE", "--tb=short"),
                *("--timeout", str(_SECONDS_EACH), "--deselect", "tests/conformance/test_share.py"),
                *(() if expression is None else ("-k", expression)),
            ),
            folder=ROOT,
            scratch=Path(scratch),
            name=f"{NAME}-{target}-{mode.name}",
            has_alight=True,
            silence_seconds=_SECONDS_EACH,
            jobs=jobs,
        )
        # The tests set their mode themselves, and compare it with NumPy outside of it.
        outcomes, reports = run_suite(suite, child_environment(MODES["auto"], target))
        result.work = read_work(reports)
    result.counts.update(count(outcomes.values()))
    failures = {name: one for name, one in outcomes.items() if one.result == "failed"}
    for message, names in groups(failures):
        result.problems.append(f"{len(names)} failed: {message}: {', '.join(names[:3])}")
    if not outcomes:
        result.problems.append(f"no test was collected: see {suite.output}")
    result.details["failures"] = {name: one.message for name, one in failures.items()}
    result.seconds = monotonic() - started
    return finish(result, mode)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite as the command line says; return 1 if the ratchet fails."""
    parser = argparse.ArgumentParser(prog=f"tests.ratchets.{NAME}", description=__doc__)
    parser.add_argument("--mode", action="append", choices=MODES, help="default: all three")
    parser.add_argument("-k", dest="expression", help="select tests; nothing is written then")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time")
    given = parser.parse_args(arguments)
    results = [
        measure(MODES[name], "alight", given.expression, given.jobs) for name in given.mode or MODES
    ]
    for result in results:  # at the end, where they are seen, each with all that it said
        for name, message in list(result.details["failures"].items())[:_SHOWN]:
            print(f"failed in {result.mode}: {name}: {message}")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
