"""Do predictions learn? ``python -m tests.ratchets.learning [--cache FOLDER] [--write]``.

Each op class of the table is run some 30 times by two processes, and each of ten small programs by
two starts under ``alight run``; the third one's predictions are held against what runs took. Of a
class, the prediction of who did the work has to be within a quarter of the median of all runs; of
the programs, the median error over all decisions must be no more. ``off`` is the third start with
``learn = "off"``: what the profile alone predicts. The machine may be busy: medians are, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from .modes import ROOT
from .result import RESULTS, Row, keep, machine

__all__ = ["main"]

MOST = 0.25
STARTS = 3
RUNS = 34  # the first is not counted, and while kernels are made NumPy has some

# One op of each class of curves, on sizes that neither fit in the nearer caches nor take long.
CLASSES = """
import numpy as np
import alight
made = np.random.default_rng(0)
x, y = (alight.asarray(made.random(1_000_000)) for _ in range(2))
m, q = alight.asarray(made.random((1000, 1000))), alight.asarray(made.random((300, 300)))
z = alight.asarray(made.random((20_000, 40)))
k = alight.asarray(made.integers(0, 1_000_000, 500_000))
ops = (
    lambda: np.add(x, y), lambda: np.exp(x), lambda: np.where(x > 0.5, x, y),
    lambda: np.sum(m, axis=1), lambda: np.sum(m, axis=0), lambda: np.max(z, axis=1),
    lambda: np.cumsum(x), lambda: np.sort(x), lambda: np.take(x, k), lambda: q @ q,
    lambda: np.fft.fft(y), lambda: np.roll(z, 1, axis=1) + z, lambda: np.concatenate([x, y]),
    lambda: np.sqrt(x * x + y * y).sum(), lambda: m.T + m,
)
with alight.policy(floor=0):
    for _ in range(RUNS):
        for op in ops:
            alight.evaluate(op())
"""

PROGRAMS = {
    "monte carlo": """
import numpy as np
rng = np.random.default_rng(1)
total = 0.0
for _ in range(40):
    a, b = rng.random(400_000), rng.random(400_000)
    total += np.mean(np.sqrt(a * a + b * b) <= 1.0)
print(round(total / 10, 2))
""",
    "gray scott": """
import numpy as np
u, v = np.ones((700, 700)), np.zeros((700, 700))
v[300:400, 300:400] = 0.5
def lap(a):
    return np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) + np.roll(a, -1, 1) - 4 * a
for _ in range(40):
    w = u * v * v
    u = u + 0.16 * lap(u) - w + 0.035 * (1 - u)
    v = v + 0.08 * lap(v) + w - 0.095 * v
print(round(float(v.sum()), 3))
""",
    "signal": """
import numpy as np
t = np.linspace(0.0, 10.0, 600_000)
x = np.sin(40 * t) + 0.3 * np.cos(11 * t)
for _ in range(30):
    e = np.cumsum(np.abs(x))
    x = (x - x.mean()) / x.std()
    y = np.convolve(x, np.ones(9) / 9, "same")
    x = 0.9 * x + 0.1 * y
print(round(float(e[-1]), 3))
""",
    "statistics": """
import numpy as np
rng = np.random.default_rng(2)
data = rng.normal(size=(50_000, 16))
for _ in range(30):
    z = (data - data.mean(axis=0)) / data.std(axis=0)
    c = z.T @ z / len(z)
    r = np.exp(-0.5 * (z ** 2).sum(axis=1)).sum()
    data = z + 0.01 * np.tanh(z)
print(round(float(c.trace()), 6))
""",
    "softmax": """
import numpy as np
rng = np.random.default_rng(3)
x, w = rng.random((4000, 256)), rng.random((256, 64)) / 16
for _ in range(30):
    h = np.maximum(x @ w - 0.5, 0.0)
    e = np.exp(h - h.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    x = x * 0.99 + 0.01 * p.mean()
print(round(float(p.sum()), 6))
""",
}
EXAMPLES = ("heat", "image", "kmeans", "pricing", "terrain")


def _started(arguments: Sequence[str], folder: Path, learn: str) -> Row:
    """Return the report of a process."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ALIGHT_")}
    report = folder / "report.json"
    own = {"CACHE_DIR": folder / "cache", "DEVICES": "cpu", "CALIBRATE": "off", "LEARN": learn}
    subprocess.run(
        [sys.executable, *arguments],
        env={
            **kept,
            **{f"ALIGHT_{name}": str(value) for name, value in own.items()},
            "ALIGHT_REPORT": str(report),
        },
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=300,
    )
    document: Row = json.loads(report.read_text(encoding="utf-8"))
    return document


def _kinds(reports: Sequence[Row]) -> list[Row]:
    """Return, for each op and who did it, the runs of all reports and the last one's prediction."""
    found: dict[tuple[str, ...], Row] = {}
    for number, report in enumerate(reports):
        for row in report["decisions"]:
            seconds = row["measured_seconds"]
            if row["first_run"] or not seconds:
                continue
            key = (row["operation"], row["group"], row["chosen"], row["implementation"])
            kind = found.setdefault(key, {"what": row["operation"], "by": key[3], "took": []})
            kind["took"] += [seconds] * min(row["runs"], RUNS)
            own = (row["chosen"], row["implementation"])
            for one in row["candidates"]:
                spot = (one["device"], one["implementation"])
                if number == len(reports) - 1 and spot == own and one["seconds"]:
                    kind["predicted"], kind["learned"] = one["seconds"], one["learned_runs"]
                    kind["model"] = one["model_seconds"]
                    kind["now"] = kind.get("now", 0) + row["runs"]
    return [kind for kind in found.values() if "predicted" in kind]


def _classes(folder: Path) -> list[Row]:
    script = folder / "classes.py"
    script.write_text(CLASSES.replace("RUNS", str(RUNS)), encoding="utf-8")
    reports = [_started([str(script)], folder, "next") for _ in range(STARTS)]
    rows = []
    for kind in _kinds(reports):
        middle = median(kind["took"])
        error = abs(kind["predicted"] - middle) / middle
        alone = abs((kind["model"] or kind["predicted"]) - middle) / middle
        told = {name: kind[name] for name in ("what", "by", "learned", "predicted")}
        rows.append({**told, "median": middle, "error": error, "error_of_profile": alone})
    return rows


def _programs(folder: Path) -> list[Row]:
    rows = []
    for name, text in PROGRAMS.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    paths = {name: str(folder / f"{name}.py") for name in PROGRAMS}
    paths |= {name: str(ROOT / "examples" / f"{name}.py") for name in EXAMPLES}
    for name, path in paths.items():
        command = ["-m", "alight", "run", path]
        reports = [_started(command, folder, "next") for _ in range(STARTS)]
        off = _started(command, folder, "off")
        rows.append(
            {
                "program": name,
                "decisions": reports[-1]["totals"]["decisions"],
                "errors": _errors(reports[-1]),
                "errors_off": _errors(off),
            }
        )
    return rows


def _errors(report: Row) -> list[float]:
    """Return the errors of a report's predictions, against the medians of what was predicted."""
    found: list[float] = []
    for kind in _kinds([report]):
        middle = median(kind["took"])
        found += [abs(kind["predicted"] - middle) / middle] * min(kind["now"], RUNS)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write the JSON; 1 where a prediction is too far off."""
    parser = argparse.ArgumentParser(prog="tests.ratchets.learning", description=__doc__)
    parser.add_argument("--cache", type=Path, help="a cache whose profile of the host is used")
    parser.add_argument("--only", choices=("classes", "programs"))
    parser.add_argument("--write", action="store_true", help="keep the result in bench-results")
    given = parser.parse_args(arguments)
    began = perf_counter()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _profile(folder, given.cache)
        classes = _classes(folder) if given.only != "programs" else []
        programs = _programs(folder) if given.only != "classes" else []
    judged = [row for row in classes if row["learned"] >= 30]
    for row in sorted(classes, key=lambda row: -row["error"]):
        print(
            f"{row['error']:6.0%} (profile {row['error_of_profile']:6.0%}) "
            f"{row['median'] * 1e6:9.1f} µs {row['learned']:4d} runs {row['by']} {row['what']}"
        )
    for row in programs:
        print(f"{_middle(row['errors']):6.0%} (off {_middle(row['errors_off']):6.0%}) ", end="")
        print(f"{row['decisions']:5d} decisions {row['program']}")
    pooled = [error for row in programs for error in row["errors"]]
    off = [error for row in programs for error in row["errors_off"]]
    worst = max((row["error"] for row in judged), default=0.0)
    print(f"classes: {len(judged)} judged, worst {worst:.0%}")
    print(f"programs: {_middle(pooled):.0%} off in the median, {_middle(off):.0%} by the profile")
    document: dict[str, Any] = {
        "machine": machine(),
        "classes": classes,
        "programs": [
            {
                **{name: row[name] for name in ("program", "decisions")},
                "median_error": _middle(row["errors"]),
                "median_error_off": _middle(row["errors_off"]),
            }
            for row in programs
        ],
        "median_error": _middle(pooled),
        "median_error_off": _middle(off),
        "seconds": perf_counter() - began,
    }
    if given.write:
        keep(RESULTS / "learning.json", document)
    return 1 if worst > MOST or _middle(pooled) > MOST else 0


def _middle(errors: Sequence[float]) -> float:
    return median(errors) if errors else 0.0


def _profile(folder: Path, cache: Path | None) -> None:
    """Have a profile of the host in a folder's cache: another's, or one measured now."""
    if cache is not None:
        for source in cache.glob("v*/profile/*.json"):
            target = folder / "cache" / source.relative_to(cache)
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.write_bytes(source.read_bytes())
            target.chmod(0o600)
        for made in (folder / "cache", *(folder / "cache").glob("v*")):
            made.chmod(0o700)
        return
    environment = {**os.environ, "ALIGHT_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", "alight", "calibrate", "cpu"]
    subprocess.run(command, env=environment, cwd=ROOT, check=False)


if __name__ == "__main__":
    sys.exit(main())
