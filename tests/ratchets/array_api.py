"""The array API standard's own test suite: 0 failures, and at least as many passes as NumPy has.

``python -m tests.ratchets.array_api --mode generated [--checkout DIR] [--xfails FILE] [-k EXPR]``
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from .modes import MODES, Mode, child_environment
from .result import Result, finish, read_work
from .suite import Suite, count, groups, run_suite

__all__ = ["main", "measure"]

NAME = "array_api"
STANDARD = "2025.12"
LEAST_PASSED = 1348  # what array_api_compat.numpy passes; all that is not skipped or on its list
EXAMPLES = 100


def measure(
    mode: Mode,
    target: str = "alight",
    checkout: str | None = None,
    xfails: str | None = None,
    expression: str | None = None,
    examples: int = EXAMPLES,
) -> Result:
    """Return what the suite says of a target namespace.

    ``checkout`` and ``xfails`` are by default what ``ARRAY_API_TESTS`` and ``ARRAY_API_XFAILS``
    name; ``expression`` selects tests as pytest's ``-k`` does, and then only failures count.
    """
    result = Result(NAME, mode.name, target, whole=expression is None and examples >= EXAMPLES)
    started = monotonic()
    folder = Path(checkout or os.environ.get("ARRAY_API_TESTS", ""))
    listed = Path(xfails or os.environ.get("ARRAY_API_XFAILS", ""))
    for path, inside, variable in (
        (folder, folder / "array_api_tests", "ARRAY_API_TESTS"),
        (folder, folder / "array-api" / "spec", "ARRAY_API_TESTS"),
        (listed, listed, "ARRAY_API_XFAILS"),
    ):
        if path == Path() or not inside.exists():
            result.problems.append(f"not run: {variable} must lead to {inside} (see README.md)")
            return finish(result, mode)
    with TemporaryDirectory(prefix="ratchet-") as scratch:
        suite = Suite(
            arguments=(
                *("array_api_tests", "-q", "-rfE", "--tb=short", "--timeout", "300"),
                *("--max-examples", str(examples), "--derandomize", "--disable-deadline"),
                *("--xfails-file", str(listed.resolve())),
                *(() if expression is None else ("-k", expression)),
            ),
            folder=folder.resolve(),
            scratch=Path(scratch),
            name=f"{NAME}-{target}-{mode.name}",
            has_alight=target == "alight",
        )
        environment = child_environment(mode, target) | {
            "ARRAY_API_TESTS_MODULE": target,
            "ARRAY_API_TESTS_VERSION": STANDARD,
        }
        outcomes, reports = run_suite(suite, environment)
        if suite.has_alight:
            result.work = read_work(reports)
    result.counts.update(count(outcomes.values()))
    failures = {name: one for name, one in outcomes.items() if one.result == "failed"}
    for message, names in groups(failures):
        result.problems.append(f"{len(names)} failed: {message}: {', '.join(names[:3])}")
    if not outcomes:
        result.problems.append(f"no test was collected: see {suite.output}")
    if result.whole and result.counts["passed"] < LEAST_PASSED:
        result.problems.append(f"{result.counts['passed']} passed, must be {LEAST_PASSED}")
    result.details["failures"] = {name: one.message for name, one in failures.items()}
    result.details["output"] = suite.output.name
    result.seconds = monotonic() - started
    return finish(result, mode)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite as the command line says; return 1 if the ratchet fails."""
    parser = argparse.ArgumentParser(prog=f"tests.ratchets.{NAME}", description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="auto")
    parser.add_argument("--target", default="alight")
    parser.add_argument("--checkout", help="array-api-tests; default: $ARRAY_API_TESTS")
    parser.add_argument("--xfails", help="array-api-compat's list; default: $ARRAY_API_XFAILS")
    parser.add_argument("--max-examples", type=int, default=EXAMPLES)
    parser.add_argument("-k", dest="expression", help="select tests; nothing is written then")
    given = parser.parse_args(arguments)
    mode = MODES[given.mode]
    options = (given.checkout, given.xfails, given.expression, given.max_examples)
    return 0 if measure(mode, given.target, *options).passed else 1


if __name__ == "__main__":
    sys.exit(main())
