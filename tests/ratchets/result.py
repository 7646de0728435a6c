"""What a ratchet found: counts, what is wrong, who did the work; printed, and written as JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from time import gmtime, strftime
from typing import Any

from .modes import ROOT, SCRATCH, Mode

__all__ = ["RESULTS", "Result", "Work", "finish", "keep", "machine", "read_work"]

RESULTS = ROOT / "bench-results" / "ratchets"
LEAST_SHARE = 0.9  # of the eligible element-operations, where a mode says who must do them
SCHEMA = 1
_DIGITS = 5  # kept of a measured number: two runs differ in the third
_SHOWN = 40  # problems printed; the JSON file has all

Row = dict[str, Any]


@dataclass(slots=True)
class Work:
    """The sum of alight's reports: who did the element-operations, and what left for NumPy."""

    reports: int = 0
    missing: int = 0
    eligible: int = 0
    implementations: Counter[str] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)
    exits: Counter[tuple[str, str]] = field(default_factory=Counter)
    fallbacks: Counter[tuple[str, str]] = field(default_factory=Counter)
    call_sites: dict[tuple[str, str], str] = field(default_factory=dict)

    def share(self, who: str) -> float | None:
        """Return the share of eligible element-operations done by a device or implementation."""
        if not self.eligible:
            return None
        return (self.implementations[who] + self.devices[who]) / self.eligible

    def row(self) -> Row:
        """Return the sums, each exit and fallback with its count and its first call site."""
        return {
            "reports": self.reports,
            "reports_missing": self.missing,
            "eligible": self.eligible,
            "implementations": dict(self.implementations),
            "devices": dict(self.devices),
            "share_generated": self.share("generated"),
            "share_sim": self.share("sim:0"),
            "exits": self._rows(self.exits),
            "fallbacks": self._rows(self.fallbacks),
        }

    def _rows(self, tally: Counter[tuple[str, str]]) -> list[Row]:
        return [
            {"what": key[0], "reason": key[1], "count": count, "at": self.call_sites.get(key)}
            for key, count in tally.most_common()
        ]


@dataclass(slots=True)
class Result:
    """One run of one ratchet. It passes when it has no problems."""

    ratchet: str
    mode: str
    target: str
    counts: Row = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    details: Row = field(default_factory=dict)
    work: Work | None = None
    seconds: float = 0.0
    whole: bool = True

    @property
    def passed(self) -> bool:
        """Tell whether everything that must hold holds."""
        return not self.problems

    @property
    def path(self) -> Path:
        """Return where the result is kept: ``<ratchet>-<mode>.json``, if it is alight's."""
        if self.target == "alight":
            return RESULTS / f"{self.ratchet}-{self.mode}.json"
        return SCRATCH / "results" / f"{self.ratchet}-{self.target}-{self.mode}.json"


def read_work(reports: Iterable[Path]) -> Work:
    """Return the sum of the reports; those that are not there or not whole count as missing."""
    work = Work()
    for path in reports:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            operations = document["totals"]["element_operations"]
        except (OSError, ValueError, KeyError, TypeError):
            work.missing += 1
            continue
        work.reports += 1
        work.eligible += operations["eligible"]
        work.devices.update(operations["by_device"])
        work.implementations.update(
            {name: operations.get(name, 0) for name in ("generated", "numpy", "library")}
        )
        for tally, part in ((work.exits, "exits"), (work.fallbacks, "fallbacks")):
            for row in document.get(part, ()):
                key = (str(row.get("name", row.get("what"))), str(row.get("reason", "")))
                tally[key] += row.get("count", 1)
                work.call_sites.setdefault(key, _short(row.get("call_site")))
    return work


def finish(result: Result, mode: Mode) -> Result:
    """Judge who did the work, print the result, and write it if it is a whole run."""
    if result.work is not None:
        result.problems += _work_problems(result.work, mode)
    print(f"{result.ratchet} {result.mode} ({result.target}): {_line(result.counts)}")
    if result.work is not None and result.work.reports:
        print(f"  element-operations: {_shares(result.work)}")
        print(f"  exits: {_line(_by_name(result.work.exits))}")
    for problem in result.problems[:_SHOWN]:
        print(f"  problem: {problem}")
    if len(result.problems) > _SHOWN:
        print(f"  … and {len(result.problems) - _SHOWN} more")
    print(f"  {'passes' if result.passed else 'FAILS'} after {result.seconds:.0f} s", flush=True)
    if result.whole:
        keep(result.path, _document(result))
    return result


def keep(path: Path, document: Row) -> None:
    """Write a document of results, its numbers to some digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_rounded(document), indent=1, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def _rounded(item: Any) -> Any:
    if isinstance(item, float):
        return float(f"{item:.{_DIGITS}g}")
    if isinstance(item, dict):
        return {name: _rounded(part) for name, part in item.items()}
    return [_rounded(part) for part in item] if isinstance(item, (list, tuple)) else item


def _work_problems(work: Work, mode: Mode) -> list[str]:
    problems = []
    if work.missing:
        problems.append(f"{work.missing} processes left no report (ALIGHT_REPORT)")
    if mode.must_run_on is not None:
        share = work.share(mode.must_run_on)
        if share is None:
            problems.append("no report counts an eligible element-operation")
        elif share < LEAST_SHARE:
            problems.append(
                f"{share:.1%} of eligible element-operations ran on {mode.must_run_on}, "
                f"must be {LEAST_SHARE:.0%}"
            )
    return problems


def _document(result: Result) -> Row:
    return {
        "schema": SCHEMA,
        "ratchet": result.ratchet,
        "mode": result.mode,
        "target": result.target,
        "passes": result.passed,
        "counts": result.counts,
        "problems": result.problems,
        "work": None if result.work is None else result.work.row(),
        "seconds": round(result.seconds, 1),
        "made_at": strftime("%Y-%m-%dT%H:%M:%SZ", gmtime()),
        "machine": machine(),
        "versions": _versions(),
        "details": result.details,
    }


def machine() -> Row:
    """Return what this machine is: platform, CPU and the processors this process may use."""
    return {
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "processors": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def _versions() -> Row:
    versions: Row = {"python": platform.python_version()}
    for name in ("alight", "numpy", "llvmlite", "pytest", "hypothesis"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def _short(call_site: str | None) -> str:
    """Return a call site without the folders that differ from machine to machine."""
    return "/".join(Path(call_site).parts[-2:]) if call_site else "unknown"


def _by_name(tally: Counter[tuple[str, str]]) -> Row:
    names: Counter[str] = Counter()
    for (name, _), count in tally.items():
        names[name] += count
    return dict(names.most_common(12))


def _shares(work: Work) -> str:
    if not work.eligible:
        return "none eligible"
    parts = (*work.implementations, *work.devices)
    return ", ".join([f"{work.eligible:,}", *(f"{who} {work.share(who):.1%}" for who in parts)])


def _line(counts: Row) -> str:
    return ", ".join(f"{name} {value}" for name, value in counts.items()) or "none"
