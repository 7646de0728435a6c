"""Run a pytest suite in child processes; every test gets an outcome, whatever dies on the way."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from .modes import SCRATCH

__all__ = ["Outcome", "Suite", "count", "groups", "run_suite"]

_PROCESSES = 25  # a suite that kills more than these has told enough
# Of two phases of a test the worse one counts.
_WORST_FIRST = ("failed", "xpassed", "xfailed", "skipped", "passed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended: passed, failed, skipped, xfailed or xpassed; and why, where it failed."""

    result: str
    message: str = ""
    place: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Suite:
    """What to run: pytest's arguments and folder, and an empty folder of its own to write in."""

    arguments: Sequence[str]
    folder: Path
    scratch: Path
    name: str
    has_alight: bool  # then each process writes a report
    silence_seconds: float = 900.0  # without a new outcome, after which the process is ended
    jobs: int = 1  # tests at a time, each job a process of its own (pytest-xdist)

    @property
    def record(self) -> Path:
        """Return where the outcomes are written."""
        return self.scratch / f"{self.name}.jsonl"

    @property
    def output(self) -> Path:
        """Return where pytest's own output stays, tracebacks included."""
        return SCRATCH / f"{self.name}.log"

    def report(self, number: int, job: int | None = None) -> Path:
        """Return where the alight of one process, or of one of its jobs, writes its report."""
        part = "" if job is None else f"-{job}"
        return self.scratch / f"{self.name}-report-{number}{part}.json"

    def shared_out(self, number: int) -> list[str]:
        """Return the arguments by which pytest hands tests to jobs; a job without any takes some.

        Each job has its own ``ALIGHT_REPORT``, or they would write one over the other.
        """
        if self.jobs == 1:
            return []
        reports = [self.report(number, job) for job in range(self.jobs)]
        places = [f"popen//env:ALIGHT_REPORT={report}" for report in reports]
        return ["--dist", "worksteal", *(word for place in places for word in ("--tx", place))]


def run_suite(
    suite: Suite, environment: Mapping[str, str]
) -> tuple[dict[str, Outcome], list[Path]]:
    """Return the outcome of every collected test by id, and where the reports should be.

    A process that dies fails the tests it was in; another one goes on with the next test.
    """
    # Two runs at a time must not write into one file; what stays is copied when it is complete.
    suite.scratch.mkdir(parents=True, exist_ok=True)
    written = suite.scratch / suite.output.name
    reports = []
    known = 0
    ended = "nothing was collected"
    with written.open("w", encoding="utf-8") as output:
        for number in range(_PROCESSES):
            own = {"RATCHET_RECORD": str(suite.record)}
            if suite.has_alight:
                own["ALIGHT_REPORT"] = str(suite.report(number))
                jobs = [None] if suite.jobs == 1 else range(suite.jobs)
                reports += [suite.report(number, job) for job in jobs]
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "pytest",
                    *suite.arguments,
                    *suite.shared_out(number),
                    *_PLUGINS,
                ],
                cwd=suite.folder,
                env={**environment, **own},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            ended = _ended(process, suite)
            rows = _rows(suite.record)
            if any("finished" in row for row in rows):
                break
            # It may have died between two tests; without any progress the next would die there too.
            known, before = len([row for row in rows if "id" in row]), known
            if not _blame(suite, rows, ended) and known == before:
                break
    SCRATCH.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(written, suite.output)
    return _outcomes(_rows(suite.record), ended), reports


_PLUGINS = ("-p", "ratchets.recorder", "-p", "no:cacheprovider")


def _ended(process: subprocess.Popen[bytes], suite: Suite) -> str:
    """Wait until the process is over or has been silent for too long; return how it ended."""
    size, since = 0, monotonic()
    while process.poll() is None:
        sleep(0.5)
        now_size = suite.record.stat().st_size if suite.record.exists() else 0
        if now_size != size:
            size, since = now_size, monotonic()
        elif monotonic() - since > suite.silence_seconds:
            process.kill()
            process.wait()
            return f"the process did not go on for {suite.silence_seconds:.0f} s"
    code = process.returncode
    return f"the process died of signal {-code}" if code < 0 else f"the process exited with {code}"


def _blame(suite: Suite, rows: list[dict[str, object]], ended: str) -> bool:
    """Fail the tests in which the process died; tell whether there was one."""
    done = {row["id"] for row in rows if "id" in row}
    started = [row["started"] for row in rows if "started" in row and row["started"] not in done]
    with suite.record.open("a", encoding="utf-8") as record:
        for name in started:
            row = {"id": name, "outcome": "failed", "seconds": 0.0, "message": ended}
            record.write(json.dumps(row) + "\n")
    return bool(started)


def _rows(record: Path) -> list[dict[str, object]]:
    """Return the record's rows; a last line that was cut off is left out."""
    if not record.exists():
        return []
    rows = []
    for line in record.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def _outcomes(rows: Iterable[dict[str, object]], ended: str) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    for row in rows:
        for name in _strings(row.get("collected")):
            outcomes.setdefault(name, Outcome("failed", f"not run: {ended}"))
        if "id" not in row:
            continue
        new = Outcome(
            str(row["outcome"]),
            str(row.get("message", "")),
            str(row.get("place", "")),
            float(str(row["seconds"])),
        )
        old = outcomes.get(str(row["id"]))
        if old is None or old.message.startswith("not run: ") or _rank(new) < _rank(old):
            outcomes[str(row["id"])] = new
    return outcomes


def _rank(outcome: Outcome) -> int:
    return _WORST_FIRST.index(outcome.result)


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def count(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Return how many tests passed, failed, were skipped, xfailed and xpassed."""
    counts = Counter(outcome.result for outcome in outcomes)
    return {result: counts[result] for result in reversed(_WORST_FIRST)}


def groups(failures: Mapping[str, Outcome]) -> list[tuple[str, list[str]]]:
    """Return the ids of failed tests by error message, the most frequent message first.

    Messages that differ in numbers, addresses or array contents only are one group.
    """
    by_message: dict[str, list[str]] = defaultdict(list)
    for name, outcome in failures.items():
        by_message[_alike(outcome.message)].append(name)
    return sorted(by_message.items(), key=lambda item: (-len(item[1]), item[0]))


def _alike(message: str) -> str:
    text = re.sub(r"0x[0-9a-f]+", "0x…", message)
    text = re.sub(r"[-+]?\b\d+(\.\d*)?(e[-+]?\d+)?\b", "#", text)
    text = re.sub(r"#([,\s]+#)+", "#…", text)
    return text[:160]
