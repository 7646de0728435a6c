"""A pytest plugin that writes each test's outcome to ``$RATCHET_RECORD`` as it becomes known.

One JSON object a line, so that the record is good up to the test in which a process died. Tests
that the record already has are left out: a second process goes on where the first one ended.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

_PATH = os.environ["RATCHET_RECORD"]
_LINES_KEPT = 4


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note what runs now: it is to blame if nothing follows."""
    _write(started=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of one phase of a test."""
    outcome: str = report.outcome
    if hasattr(report, "wasxfail"):
        outcome = "xfailed" if report.skipped else "xpassed"
    if report.when == "call" or outcome != "passed":
        own = dict(report.user_properties)
        _write(id=report.nodeid, outcome=outcome, seconds=report.duration, **own, **_crash(report))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that cannot be imported."""
    if report.failed:
        _write(id=report.nodeid, outcome="failed", seconds=0.0, **_crash(report))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note all tests there are, then leave out those that have an outcome."""
    done = _recorded()
    if not done:
        _write(collected=[item.nodeid for item in items])
    rest = [item for item in items if item.nodeid not in done]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = rest


def pytest_sessionfinish(exitstatus: int) -> None:
    """Note that the process got to its end."""
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
    with open(_PATH, "a", encoding="utf-8") as record:
        record.write(json.dumps(row) + "\n")
