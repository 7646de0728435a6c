"""Run the native core's tests and random programs under AddressSanitizer and UBSan.

    python tools/sanitize.py [--statements N] [--first SEED] [--workers N] [--leaks] [--record] \
        [PYTEST_ARG ...]

The core is built into a folder of its own, with a check of every address range that a kernel is
given. What a sanitizer says, a test that fails and a program that differs from NumPy make the exit
status 1; so do sanitizers that miss the faults planted in a library of this tool's own, which
nothing else has. ``--statements`` are split over the fuzzers and their modes, ``--workers`` of them
at a time; ``--leaks`` looks for memory that the core lost, too; ``--record`` writes
``bench-results/sanitizers.json``. ``none`` for pytest leaves the tests out. Wants gcc with its
libasan, on Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "sanitize"
LIBRARY, REPORTS = BUILD / "library", BUILD / "reports"
RESULT = ROOT / "bench-results" / "sanitizers.json"
FLAGS = "-fsanitize=address,undefined -fno-omit-frame-pointer -g -DALIGHT_CHECK_RANGES"
TESTS = ("tests/core", "tests/record/test_answers.py")
# What rests on glibc's own heap, in whose place AddressSanitizer's is.
NOT_RUN = ("tests/core/test_buffers.py::test_numpys_own_temporaries_stay_touched",)
# A kernel that is told of one element more than its block has: the run must end there.
OUT_OF_RANGE = """
import numpy as np
from alight._core.threads import Launcher
block = np.zeros(1000)
Launcher(1, (1001,), (8, 8), 1, 1, None)((block.ctypes.data, block.ctypes.data))
"""
# Faults that each sanitizer must report, by what it says of them.
PLANTED = """
#include <stdlib.h>
static int *made(int place) { int *all = calloc(10, 4); all[place % 10] = 7; return all; }
int beyond(int place) { int *all = made(place), found = all[place]; free(all); return found; }
int after(int place) { int *all = made(place); free(all); return all[place]; }
int overflow(int more) { return 2147483647 + more; }
int shifted(int bits) { return 1 << bits; }
"""
FAULTS = {
    ("beyond", 10): "heap-buffer-overflow",
    ("after", 1): "heap-use-after-free",
    ("overflow", 1): "signed integer overflow",
    ("shifted", 40): "shift exponent 40 is too large",
}
# The fuzzers and their modes: each gets the same share of the statements.
FUZZED = (
    *(("fuzzing.jitted", mode) for mode in ("numpy", "generated", "sim", "floor")),
    *(("fuzzing", mode) for mode in ("auto", "numpy", "generated", "sim")),
    *(("fuzzing.threaded namespace", mode) for mode in ("generated", "floor")),
    *(("fuzzing.threaded jitted", mode) for mode in ("generated", "floor")),
)
_EACH = 2500  # statements to a process: compiled code stays in memory as long as its process
# Who lost memory is ours only where one of these has a part in it.
_OURS = re.compile(r"_native\.cpython|alight/_core/native")


@dataclass(slots=True)
class Findings:
    """What was run, and what was wrong with it."""

    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def build() -> None:
    """Build alight with an instrumented core, in a folder of its own."""
    shutil.rmtree(BUILD, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    env = os.environ | {"CC": "gcc", "CFLAGS": FLAGS, "LDFLAGS": FLAGS}
    folders = ("--build-lib", str(LIBRARY), "--build-temp", str(BUILD / "temporary"))
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build", *folders], cwd=ROOT, env=env, check=True
    )


def environment(leaks: bool) -> dict[str, str]:
    """Return the environment in which the sanitizers see all memory, and write what they find."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ALIGHT_")}
    # Exceptions of C++ (in LLVM) go through libasan, which has to find them where it starts.
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    where = f"log_path={REPORTS}/report"
    return kept | {
        "LD_PRELOAD": " ".join(os.path.realpath(path) for path in libraries),
        "PYTHONMALLOC": "malloc",  # Python's own blocks would hide where objects end
        # Memory that nobody has is asked for on purpose, to see MemoryError.
        "ASAN_OPTIONS": f"{where}:detect_leaks={int(leaks)}:allocator_may_return_null=1",
        "UBSAN_OPTIONS": f"{where}:print_stacktrace=1",
        "LSAN_OPTIONS": "max_leaks=1000",
        "PYTHONPATH": os.pathsep.join((str(LIBRARY), str(ROOT / "tests"))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ALIGHT_CALIBRATE": "off",
        "ALIGHT_CACHE_DIR": str(BUILD / "cache"),
        # Its stack is allocated by thread; a pool of many would only be slow here.
        "OPENBLAS_NUM_THREADS": "1",
    }


def watched(call: Sequence[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program; what UBSan says of it goes to the reports, too: it knows no ``log_path``
    beside AddressSanitizer, and writes to the standard error."""
    done = subprocess.run(call, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if "runtime error: " in done.stderr:
        with tempfile.NamedTemporaryFile(
            "w", dir=REPORTS, prefix="report.undefined.", delete=False, encoding="utf-8"
        ) as stream:
            stream.write(done.stderr)
    return done


def run_tests(env: dict[str, str], more: Sequence[str], findings: Findings) -> None:
    """Run the tests of the core."""
    paths = [str(path) for pattern in TESTS for path in sorted(ROOT.glob(pattern))]
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o"]
    left_out = [f"--deselect={name}" for name in NOT_RUN]
    # pytest takes the standard error of files, but for this
    done = watched(
        [*call, f"pythonpath={LIBRARY}", "--capture=sys", *left_out, *(more or paths)], env
    )
    last = (done.stdout.strip().splitlines() or ["nothing said"])[-1]
    found = re.search(r"(\d+) passed", last)
    findings.counts["tests passed"] = int(found[1]) if found else 0
    print(f"tests: {last}", flush=True)
    if done.returncode:
        said = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        findings.problems.append(f"tests: {'; '.join(said) or last or done.stderr[-300:]}")


def can_fail(env: dict[str, str]) -> str | None:
    """Return what is wrong where a range out of its block goes unnoticed."""
    call = [sys.executable, "-c", OUT_OF_RANGE]
    done = subprocess.run(call, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode == 0 or "out of its block" not in done.stderr:
        return f"a range out of its block is not noticed ({done.stderr.strip()[-200:]})"
    return None


def missed(env: dict[str, str]) -> list[str]:
    """Return the planted faults that go unnoticed."""
    source, library = BUILD / "planted.c", BUILD / "planted.so"
    source.write_text(PLANTED, encoding="utf-8")
    call = ["gcc", "-O1", *FLAGS.split(), "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(call, check=True)
    found = []
    for (name, number), words in FAULTS.items():
        text = f"import ctypes; ctypes.CDLL({str(library)!r}).{name}({number})"
        for path in REPORTS.glob("report*"):
            path.unlink()
        watched([sys.executable, "-c", text], env)
        said = [path.read_text(errors="replace") for path in REPORTS.glob("report*")]
        if not any(words in one for one in said):
            found.append(f"a planted fault is not reported: {words}")
    return found


def fuzz(
    env: dict[str, str], module: str, mode: str, first: int, statements: int, findings: Findings
) -> None:
    """Run random programs of so many statements in one process."""
    began = time.monotonic()
    call = [sys.executable, "-m", *module.split(), mode, str(first), str(statements)]
    done = watched(call, env)
    what = f"{module} {mode} from seed {first}"
    try:
        row = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        findings.problems.append(f"{what}: died ({said})")
        return
    count = row.get("statements", row.get("operations", 0))
    findings.counts[f"{module} {mode}"] = findings.counts.get(f"{module} {mode}", 0) + count
    wrong = row.get("differences", row.get("failures", []))
    findings.problems += [f"{what}: seed {w['seed']}: {w['message']}" for w in wrong]
    print(f"{what}: {count} statements in {time.monotonic() - began:.0f} s", flush=True)


def read_reports(findings: Findings) -> None:
    """Add what the sanitizers found."""
    reports = sorted(REPORTS.glob("report*"))
    for path in reports:
        text = path.read_text(encoding="utf-8", errors="replace")
        blocks = re.split(r"\n\n", text) if "LeakSanitizer" in text else [text]
        for block in blocks:
            leak = "leak of" in block
            if leak and not _OURS.search(block):
                continue  # CPython's own, or another package's
            heads = re.findall(r".*(?:runtime error|ERROR: AddressSanitizer|leak of).*", block)
            findings.problems += [f"{path.name}: {head.strip()}" for head in heads[:5]]
    findings.counts["reports"] = len(reports)


def main() -> int:
    """Build, run and tell; return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=50_000, help="the first seed")
    parser.add_argument("--workers", type=int, default=1, help="processes at a time")
    parser.add_argument("--leaks", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--as-built", action="store_true", help="use what the last run built")
    given, more = parser.parse_known_args()
    if not given.as_built:
        build()
    env, findings = environment(given.leaks), Findings()
    if (wrong := can_fail(env)) is not None:
        findings.problems.append(wrong)
    findings.problems += missed(env)
    findings.counts["planted faults reported"] = len(FAULTS) - len(findings.problems)
    for path in REPORTS.glob("report*"):
        path.unlink()
    if more != ["none"]:
        run_tests(env, more, findings)
    each = -(-given.statements // len(FUZZED)) if given.statements else 0
    with ThreadPoolExecutor(given.workers) as workers:
        for start in range(0, each, _EACH):
            for module, mode in FUZZED:
                share = min(_EACH, each - start)
                workers.submit(fuzz, env, module, mode, given.first + start, share, findings)
    read_reports(findings)
    print(json.dumps(findings.counts, indent=1))
    for problem in findings.problems:
        print(f"PROBLEM {problem}")
    print(f"{len(findings.problems)} problems")
    if given.record:
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True)
        made = {
            "commit": commit.stdout.strip(),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "compiler": compiler.stdout.splitlines()[0],
            "flags": FLAGS,
        }
        record = {**made, "counts": findings.counts, "problems": findings.problems}
        RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
