"""A pytest plugin that writes each test's outcome to ``$RATCHET_RECORD`` as it becomes known.

One JSON object a line, so that the record is good up to the test in which a process died. Tests
that the record already has are left out: a second process goes on where the first one ended.
Where pytest-xdist hands the tests to jobs, it tells this process all they do, and only this one
writes.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

_PATH = os.environ["RATCHET_RECORD"]
_LINES_KEPT = 4
_done: set[str] = set()  # tests that an earlier process ran
_in_job = False  # in a process of pytest-xdist's
_collected = False


def pytest_configure(config: pytest.Config) -> None:
    """Read which tests have an outcome; a job is told, for they must all leave out the same."""
    global _in_job
    given = getattr(config, "workerinput", None)
    _in_job = given is not None
    _done.update(_recorded() if given is None else given["done"])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a job which tests have an outcome."""
    node.workerinput["done"] = sorted(_done)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Note all tests that are to run; the first job's word is enough, theirs are equal."""
    global _collected
    if not _collected:
        _collected = True
        _write(collected=ids)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note what runs now: it is to blame if nothing follows."""
    _write(started=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of one phase of a test."""
    outcome: str = report.outcome
    if hasattr(report, "wasxfail"):
        outcome = "xfailed" if report.skipped else "xpassed"
    if report.when == "call" or outcome != "passed":
        _write(id=report.nodeid, outcome=outcome, seconds=report.duration, **_crash(report))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that cannot be imported."""
    if report.failed:
        _write(id=report.nodeid, outcome="failed", seconds=0.0, **_crash(report))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note all tests there are, then leave out those that have an outcome."""
    if not (_done or _in_job):
        _write(collected=[item.nodeid for item in items])
    rest = [item for item in items if item.nodeid not in _done]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in _done])
    items[:] = rest


def pytest_sessionfinish(exitstatus: int) -> None:
    """Note that the process got to its end; a job, which pytest-xdist kills where its end takes
    long, leaves its report now."""
    if _in_job and "alight" in sys.modules and os.environ.get("ALIGHT_REPORT"):
        sys.modules["alight"].report().save(os.environ["ALIGHT_REPORT"])
    _write(finished=int(exitstatus))


def _recorded() -> set[str]:
    try:
        with open(_PATH, encoding="utf-8") as lines:
            return {row["id"] for row in map(json.loads, lines) if "id" in row}
    except FileNotFoundError:
        return set()


def _crash(report: pytest.TestReport | pytest.CollectReport) -> dict[str, str]:
    """Return the error's first lines and the place that raised it."""
    if not report.failed:
        return {}
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr) if crash is None else crash.message
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = lines[-_LINES_KEPT:] if crash is None else lines[:_LINES_KEPT]
    place = "" if crash is None else f"{crash.path}:{crash.lineno}"
    return {"message": " | ".join(kept), "place": place}


def _write(**row: Any) -> None:
    if _in_job:
        return
    with open(_PATH, "a", encoding="utf-8") as record:
        record.write(json.dumps(row) + "\n")
