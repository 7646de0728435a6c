"""All there is to do with a lent CUDA device, in parts that each end within nine minutes.

``python3 -m tests.ratchets.lease PART [--out FOLDER]``, from the repository's root; the parts in
their order are ``build``, ``check``, ``calibrate``, ``speed``, ``large``, ``bench``,
``bench_there`` (arrays that lie on the device), ``regret``.
``build`` comes first on a machine that has nothing; what was compiled and calibrated stays in
``build/lease`` for the parts after it. Each job's output is a file of its own in the folder, with a
line in ``summary.txt``; a job that takes longer than it may is ended, and the next one begins.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "lease"
PART_SECONDS = 540.0
# What a job leaves the others at the end of a part.
_LEAST_SECONDS = 5.0
_LINES = 12  # of each job's output, in the summary


class Job(NamedTuple):
    """A command of Python's arguments; it gets so many seconds at most."""

    name: str
    seconds: float
    arguments: Sequence[str]
    settings: Sequence[tuple[str, str]] = ()


_BOTH = (("ALIGHT_DEVICES", "cuda:0,cpu"),)
_RATCHET = ("-m", "tests.ratchets.cuda")
# Programs whose regret is worth a lease: each is timed in every place it could have been.
_SIZES = "2^17,2^20,2^24"

# The NaN of power of float64 that an H200 gave 1 for, and the library against NumPy.
_POWER = """
import numpy as np, alight
from alight.backends import registry
from alight.backends.cuda.cuda_backend import CudaBackend
rng = np.random.default_rng(3)
x = np.frombuffer(rng.bytes(8 << 20), np.float64).copy(); y = x[::-1].copy()
x[::3] = np.nan; y[1::3] = -np.nan; y[::7] = 0.0; x[::11] = 1.0
with np.errstate(all="ignore"):
    expected = np.power(x, y)
with alight.policy(force="cuda:0", floor=0):
    got = np.asarray(np.power(alight.asarray(x), alight.asarray(y)))
wrong = np.flatnonzero(np.isnan(got) != np.isnan(expected))
print(len(wrong), "of", len(x), "are NaN on one side only", [(x[i], y[i]) for i in wrong[:5]])
raise SystemExit(bool(len(wrong)))
"""

PARTS: dict[str, tuple[Job, ...]] = {
    "build": (
        Job("extension", 240, ("setup.py", "-q", "egg_info", "build_ext", "--inplace")),
        Job("doctor", 120, ("-m", "alight", "doctor")),
    ),
    "check": (
        Job("power", 60, ("-c", _POWER)),
        Job("library", 60, ("-c", "import eager_cases; eager_cases.check(1e-9)")),
        Job("resident", 60, ("-c", "import jitted_bodies; exec(jitted_bodies.DIRECT)")),
        Job(
            "protocol", 60, ("-m", "pytest", "-q", "tests/backends/test_backends.py", "-k", "cuda")
        ),
        Job("reductions", 60, (*_RATCHET, "reductions")),
        Job("trusted", 60, (*_RATCHET, "trusted")),
        Job("faults", 60, (*_RATCHET, "faults")),
        Job("bits", 120, (*_RATCHET, "bits")),
        Job("fuzz", 120, (*_RATCHET, "fuzz")),
        Job("conformance", 300, ("-m", "pytest", "-q", "tests/conformance", "--mode", "cuda")),
    ),
    "calibrate": (
        Job("calibrate", 500, ("-m", "alight", "calibrate", "--seconds", "240"), _BOTH),
        Job("devices", 60, ("-m", "alight", "devices"), _BOTH),
    ),
    "speed": (
        Job("calls", 60, (*_RATCHET, "calls")),
        Job("resident", 150, (*_RATCHET, "resident")),
        Job("host", 120, (*_RATCHET, "host")),
        Job("schedules", 120, (*_RATCHET, "schedules")),
    ),
    "large": (
        Job("capped", 120, (*_RATCHET, "capped")),
        Job("workloads", 150, (*_RATCHET, "workloads")),
        Job("prices", 150, (*_RATCHET, "prices")),
    ),
    "bench": (
        Job(
            "bench",
            535,
            ("-m", "alight", "bench", "--no-extras", "--budget", "7", "--sizes", _SIZES),
            _BOTH,
        ),
    ),
    "bench_there": (
        Job(
            "bench_there",
            500,
            (
                *("-m", "alight", "bench", "--device", "cuda:0", "--no-extras"),
                *("--budget", "7", "--sizes", _SIZES),
            ),
            _BOTH,
        ),
    ),
    "regret": (
        Job(
            "regret",
            535,
            ("-m", "alight", "bench", "--regret", "--budget", "7", "--sizes", _SIZES),
            _BOTH,
        ),
    ),
}


def environment(settings: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """Return the environment of a job."""
    path = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT)]
    own = {k: v for k, v in os.environ.items() if not k.startswith("ALIGHT_")}
    here = {"PYTHONPATH": os.pathsep.join(path), "ALIGHT_CACHE_DIR": str(CACHE)}
    return {**own, **here, **dict(settings)}


def command(job: Job, folder: Path) -> list[str]:
    """Return a job's command; what writes results of its own writes them beside its output."""
    told = list(job.arguments)
    if told[:2] == list(_RATCHET) or "bench" in told[:3]:
        told += ["--out", str(folder / f"{job.name}.results")]
    return [sys.executable, *told]


def run(job: Job, folder: Path, seconds: float) -> str:
    """Run a job for so long at most; return the summary's lines of it."""
    began = monotonic()
    path = folder / f"{job.name}.txt"
    with path.open("wb") as output:
        try:
            status = str(
                subprocess.run(
                    command(job, folder),
                    cwd=ROOT,
                    env=environment(job.settings),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    timeout=seconds,
                    check=False,
                ).returncode
            )
        except subprocess.TimeoutExpired:
            status = f"ended after {seconds:.0f} s"
    said = path.read_text(errors="replace").strip().splitlines()[-_LINES:]
    lines = [f"== {job.name}: {status}, {monotonic() - began:.1f} s", *(f"   {s}" for s in said)]
    return "\n".join(lines) + "\n"


def run_part(name: str, jobs: Sequence[Job], folder: Path, seconds: float = PART_SECONDS) -> bool:
    """Run the jobs of a part in order; tell whether all ended well. Each gets what is left, less a
    little for those after it."""
    ends = monotonic() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    good = True
    with (folder / "summary.txt").open("w") as summary:
        for number, job in enumerate(jobs):
            left = ends - monotonic() - _LEAST_SECONDS * (len(jobs) - 1 - number)
            told = f"== {job.name}: no time left in {name}\n"
            if left > _LEAST_SECONDS:
                told = run(job, folder, min(job.seconds, left))
            good = good and told.startswith(f"== {job.name}: 0,")
            summary.write(told)
            summary.flush()
            print(told, end="", flush=True)
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one part; return 1 if a job of it did not end well."""
    parser = argparse.ArgumentParser(prog="tests.ratchets.lease", description=__doc__)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "ratchets" / "lease")
    parser.add_argument("--only", help="names of jobs, with commas")
    given = parser.parse_args(arguments)
    jobs = PARTS[given.part]
    if given.only:
        jobs = tuple([job for job in jobs if job.name in given.only.split(",")])
    return 0 if run_part(given.part, jobs, given.out / given.part) else 1


if __name__ == "__main__":
    sys.exit(main())
