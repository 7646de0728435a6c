"""The list of NumPy's own tests that are known to fail, and what is wrong with it after a run.

The list is strict. A test that fails and is not in it is a problem; so is an entry whose test
passes, and one that matches no test. So it can only be as long as it must be.
"""

from __future__ import annotations

import platform
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from .modes import MODES

__all__ = ["PATH", "Expected", "applying", "expected_in", "problems", "read"]

PATH = Path(__file__).with_name("numpy_expected_failures.toml")
_KEYS = {"reason", "tests", "condition", "modes"}


@dataclass(frozen=True, slots=True)
class Expected:
    """Tests that fail for one reason: where ``condition`` holds, in these modes."""

    reason: str
    tests: tuple[str, ...]
    condition: str | None = None
    modes: tuple[str, ...] = tuple(MODES)


def read(path: Path = PATH) -> list[Expected]:
    """Return the entries of a list. Raises ValueError for one that says too little or too much."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return [_entry(table, f"{path.name}: entry {n}") for n, table in _numbered(document)]


def _numbered(document: Mapping[str, Any]) -> Iterable[tuple[int, Mapping[str, Any]]]:
    return enumerate(document.get("expected", ()), start=1)


def _entry(table: Mapping[str, Any], where: str) -> Expected:
    if unknown := sorted(table.keys() - _KEYS):
        raise ValueError(f"{where} has {unknown}. Fix: write only {sorted(_KEYS)}.")
    if not str(table.get("reason", "")).strip():
        raise ValueError(f"{where} has no reason. Fix: say in `reason` what the tests ask for.")
    tests, modes = tuple(table.get("tests", ())), tuple(table.get("modes", MODES))
    if not tests or len(set(tests)) < len(tests):
        raise ValueError(f"{where} names no test, or one twice. Fix: list each id once in `tests`.")
    if not modes or not set(modes) <= MODES.keys():
        raise ValueError(f"{where} has modes {list(modes)}. Fix: write some of {list(MODES)}.")
    entry = Expected(table["reason"], tests, table.get("condition"), modes)
    _holds(entry.condition, where)
    return entry


def _holds(condition: str | None, where: str) -> bool:
    """Tell whether a condition on the version of a package, or of python, holds here."""
    if condition is None:
        return True
    try:
        asked = Requirement(condition)
    except InvalidRequirement:
        raise ValueError(
            f"{where} has the condition {condition!r}. Fix: name a package and its versions, as "
            "in 'numpy>=2.4'."
        ) from None
    found = platform.python_version() if asked.name == "python" else version(asked.name)
    return asked.specifier.contains(found, prereleases=True)


def applying(entries: Iterable[Expected], mode: str) -> dict[str, str]:
    """Return the reasons of the tests that must fail here and in a mode, by id."""
    return {
        test: entry.reason
        for entry in entries
        if mode in entry.modes and _holds(entry.condition, entry.reason)
        for test in entry.tests
    }


def expected_in(tests: Iterable[str], listed: Iterable[str]) -> dict[str, set[str]]:
    """Return what each id of the list covers: that test, or all its parameters, or all a class's
    tests, where the id leaves those out."""
    covered: dict[str, set[str]] = {name: set() for name in listed}
    for test in tests:
        without_parameters = test.partition("[")[0]
        owner = without_parameters.rpartition("::")[0]
        for name in {test, without_parameters, owner} & covered.keys():
            covered[name].add(test)
    return covered


def problems(
    covered: Mapping[str, set[str]], passed: set[str], failed: Sequence[str], whole: bool
) -> list[str]:
    """Return what is wrong with the list after a run; a part of a run says less."""
    found = [f"{name}: fails and is not in {PATH.name}" for name in failed]
    for name, tests in covered.items():
        found += [f"{test}: passes. Fix: take it out of {PATH.name}" for test in tests & passed]
        if whole and not tests:
            found.append(f"{name}: matches no test that NumPy passes. Fix: take it out")
    return found
