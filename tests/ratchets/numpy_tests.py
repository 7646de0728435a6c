"""NumPy's own tests, with ``np`` rebound to a target: it must pass what NumPy passes, but for a
strict list of tests that are known to fail.

``python -m tests.ratchets.numpy_tests --mode generated [--only test_ufunc] [-k EXPR] [--jobs N]``
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import numpy as np

from . import expected_failures
from .modes import MODES, SCRATCH, Mode, child_environment
from .result import Result, finish, read_work
from .suite import Outcome, Suite, count, groups, run_suite

__all__ = ["FILES", "main", "measure"]

NAME = "numpy_tests"
FILES = {
    "test_numeric": "_core/tests/test_numeric.py",
    "test_umath": "_core/tests/test_umath.py",
    "test_ufunc": "_core/tests/test_ufunc.py",
    "test_shape_base": "_core/tests/test_shape_base.py",
    "test_function_base": "lib/tests/test_function_base.py",
    "test_einsum": "_core/tests/test_einsum.py",
}
MOST_EXPECTED = 0.08  # of what NumPy passes may be on the list
CONFTEST = Path(__file__).with_name("numpy_conftest.py")
_GROUPS_SHOWN = 40


def measure(
    mode: Mode,
    target: str = "alight",
    files: Sequence[str] = (),
    expression: str | None = None,
    fresh: bool = False,
    jobs: int = 1,
) -> Result:
    """Return how much of what NumPy passes the target passes.

    ``files`` and ``expression`` (pytest's ``-k``) select tests, ``jobs`` run at a time. What NumPy
    passes is kept from run to run, for each version of NumPy and Python, unless it is to be found
    out ``fresh``.
    """
    chosen = tuple(files or FILES)
    result = Result(NAME, mode.name, target, whole=not files and expression is None)
    started = monotonic()
    with TemporaryDirectory(prefix="ratchet-") as folder:
        _copy_tests(Path(folder), chosen)
        numpy_passes = _numpy_passes(Path(folder), chosen, fresh)
        outcomes: dict[str, Outcome] = {}
        reports: list[Path] = []
        for file in chosen:
            suite = _suite(Path(folder), file, target, mode, expression, jobs)
            environment = child_environment(mode, target) | _SETTINGS | {"RATCHET_TARGET": target}
            more, wanted = run_suite(suite, environment)
            outcomes |= more
            reports += wanted if more else ()
            if not more and expression is None:
                result.problems.append(f"{file}: no test was collected: see {suite.output}")
            print(f"  {file:20s} {count(more.values())}", flush=True)
        if target == "alight":
            result.work = read_work(reports)
    if expression is not None:
        numpy_passes &= outcomes.keys()
    compare(result, numpy_passes, outcomes)
    result.seconds = monotonic() - started
    return finish(result, mode)


# Tests that take gigabytes are skipped everywhere, whatever memory a machine has.
_SETTINGS = {"NPY_AVAILABLE_MEM": "1 GB"}


def _copy_tests(folder: Path, files: Iterable[str]) -> None:
    """Put NumPy's installed test files and our conftest into a folder."""
    installed = Path(np.__file__).parent
    for file in files:
        shutil.copyfile(installed / FILES[file], folder / f"{file}.py")
    shutil.copyfile(CONFTEST, folder / "conftest.py")
    # Stops pytest from taking the settings of whatever project lies above the folder.
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")


def _suite(
    folder: Path,
    file: str,
    target: str,
    mode: Mode,
    expression: str | None = None,
    jobs: int = 1,
) -> Suite:
    name = f"{NAME}-{target}-{mode.name}-{file}"
    selected = () if expression is None else ("-k", expression)
    options = ("-q", "-rfE", "--tb=short", "--timeout", "120", "-W", "ignore::UserWarning")
    arguments = (f"{file}.py", *options, *selected)
    ours = target == "alight"
    return Suite(arguments, folder, folder / "outcomes", name, has_alight=ours, jobs=jobs)


def _numpy_passes(folder: Path, files: Iterable[str], fresh: bool) -> set[str]:
    """Return the ids of the tests that pass as NumPy wrote them."""
    passes: set[str] = set()
    for file in files:
        version = f"numpy-{np.__version__}-python-{platform.python_version()}"
        kept = SCRATCH / "passes" / f"{version}-{file}.json"
        if fresh or not kept.exists():
            free = MODES["auto"]
            outcomes, _ = run_suite(
                _suite(folder, file, "numpy-itself", free),
                child_environment(free, "numpy") | _SETTINGS,
            )
            found = sorted(name for name, one in outcomes.items() if one.result == "passed")
            kept.parent.mkdir(parents=True, exist_ok=True)
            beside = kept.with_suffix(f".{os.getpid()}")
            beside.write_text(json.dumps(found, indent=0), encoding="utf-8")
            beside.replace(kept)
        passes.update(json.loads(kept.read_text(encoding="utf-8")))
    return passes


def compare(result: Result, numpy_passes: set[str], outcomes: Mapping[str, Outcome]) -> None:
    """Put the shares, what fails by error message, and what is wrong with the list in the result.

    ``share`` is of the tests that are required, ``literal_share`` of all that NumPy passes.
    """
    listed = expected_failures.applying(expected_failures.read(), result.mode)
    covered = expected_failures.expected_in(numpy_passes, listed)
    expected = set().union(*covered.values())
    required = numpy_passes - expected
    passes = {name for name, one in outcomes.items() if one.result == "passed"}
    failures = {n: outcomes.get(n, Outcome("failed", "not collected")) for n in required - passes}
    result.counts |= {
        "numpy_passes": len(numpy_passes),
        "expected_failures": len(expected),
        "required": len(required),
        "passed": len(required & passes),
        "share": _share(len(required & passes), len(required)),
        "literally_passed": len(numpy_passes & passes),
        "literal_share": _share(len(numpy_passes & passes), len(numpy_passes)),
    }
    result.problems += expected_failures.problems(covered, passes, sorted(failures), result.whole)
    if result.whole and len(expected) > MOST_EXPECTED * len(numpy_passes):
        result.problems.append(
            f"{len(expected)} of {len(numpy_passes)} are listed, may be {MOST_EXPECTED:.0%}"
        )
    by_message = groups(failures)
    _print_groups(by_message, failures)
    result.details |= {
        "files": {file: _file_row(file, required, passes) for file in FILES},
        "failures": {name: one.message for name, one in sorted(failures.items())},
        "groups": [{"message": message, "count": len(names)} for message, names in by_message],
    }


def _share(part: int, whole: int) -> float:
    return round(part / max(1, whole), 4)


def _file_row(file: str, required: set[str], passes: set[str]) -> dict[str, int]:
    own = {name for name in required if name.startswith(f"{file}.py::")}
    return {"required": len(own), "passed": len(own & passes)}


def _print_groups(
    by_message: Sequence[tuple[str, list[str]]], failures: Mapping[str, Outcome]
) -> None:
    """Print what fails, the most frequent error first, with one test and place of each."""
    for message, names in by_message[:_GROUPS_SHOWN]:
        first = min(names)
        print(f"  {len(names):5d}  {message}")
        print(f"         {first}  {_nearest(failures[first].place)}")
    if len(by_message) > _GROUPS_SHOWN:
        print(f"         … and {len(by_message) - _GROUPS_SHOWN} more kinds of error")


def _nearest(place: str) -> str:
    return "/".join(Path(place).parts[-2:])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests as the command line says; return 1 if the ratchet fails."""
    parser = argparse.ArgumentParser(prog=f"tests.ratchets.{NAME}", description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="auto")
    parser.add_argument("--target", default="alight", help="any module with NumPy's names")
    parser.add_argument("--only", action="append", default=[], choices=FILES, help="one file")
    parser.add_argument("-k", dest="expression", help="select tests; nothing is written then")
    parser.add_argument("--fresh", action="store_true", help="find out anew what NumPy passes")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time")
    given = parser.parse_args(arguments)
    options = (given.only, given.expression, given.fresh, given.jobs)
    return 0 if measure(MODES[given.mode], given.target, *options).passed else 1


if __name__ == "__main__":
    sys.exit(main())
