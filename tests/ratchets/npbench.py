"""npbench's programs, unmodified, through alight's three doors: they must make what NumPy makes.

``python -m tests.ratchets.npbench --mode sim [--door np:alight] [--only gemm] [--checkout DIR]``
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from .modes import MODES, SCRATCH, Mode, child_environment
from .result import Result, finish, read_work

__all__ = ["PROGRAMS", "main", "measure"]

NAME = "npbench"
# The programs of development. The others stay unseen, so that a result on them means something.
PROGRAMS = (
    *("arc_distance", "atax", "compute", "covariance2", "gemm", "k2mm", "mvt", "softmax"),
    *("jacobi_2d", "heat_3d", "mandelbrot1", "nbody", "cavity_flow", "correlation"),
    *("conv2d_bias", "durbin", "lu", "crc16"),
)
PATIENCE_SECONDS = 300
ROUNDS = 15

Row = dict[str, Any]


def measure(
    mode: Mode,
    target: str = "alight",
    checkout: str | None = None,
    doors: Sequence[str] = (),
    programs: Sequence[str] = (),
    preset: str = "S",
) -> Result:
    """Return which programs make what NumPy makes, through which doors, and their seconds.

    ``checkout`` is by default what ``NPBENCH`` names, ``doors`` are the target's three.
    """
    whole = not doors and not programs and preset == "S"
    doors = doors or (f"np:{target}", f"deco:{target}:jit", f"duck:{target}:asarray")
    result = Result(NAME, mode.name, target, whole=whole)
    started = monotonic()
    folder = Path(checkout or os.environ.get("NPBENCH", ""))
    if folder == Path() or not (folder / "bench_info").is_dir():
        result.problems.append("not run: NPBENCH must name a checkout of npbench (see README.md)")
        return finish(result, mode)
    rows: dict[str, dict[str, Row]] = {}
    reports = []
    idle: list[str] = []
    for door in doors:
        rows[door] = {}
        for program in programs or PROGRAMS:
            report = SCRATCH / f"{NAME}-{mode.name}-{door.replace(':', '-')}-{program}-report.json"
            row = rows[door][program] = _row(
                folder.resolve(), program, door, preset, mode, target, report
            )
            if target == "alight":
                reports.append(report)
                work = read_work([report])
                row |= {"eligible": work.eligible, "exits": work.exits.total()}
                if mode.must_run_on is not None and row["valid"] and not work.eligible:
                    idle.append(f"{program} through {door}")
            print(_line(program, door, mode.name, row), flush=True)
            if not row["valid"]:
                result.problems.append(f"{program} through {door}: {'; '.join(row['wrong'])}")
        valid = sum(row["valid"] for row in rows[door].values())
        result.counts[door] = f"{valid}/{len(rows[door])}"
    # Right, but no proof of anything: alight was not asked for one eligible operation.
    if idle:
        print(f"no eligible element-operation: {', '.join(idle)}")
    result.details |= {"programs": rows, "without_eligible_work": idle}
    if target == "alight":
        result.work = read_work(reports)
    result.seconds = monotonic() - started
    return finish(result, mode)


def _row(
    checkout: Path, program: str, door: str, preset: str, mode: Mode, target: str, report: Path
) -> Row:
    """Return what a child process found; a child that dies or hangs is a finding, too."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    out = report.with_name(report.name.replace("-report", ""))
    for old in (out, report):
        old.unlink(missing_ok=True)
    # Times mean something where placement is free; elsewhere a second call is enough.
    rounds = ROUNDS if mode.must_run_on is None else 1
    command = (
        *(sys.executable, "-m", "ratchets.npbench_program", str(checkout), program, door),
        *("--preset", preset, "--rounds", str(rounds), "--out", str(out)),
    )
    environment = child_environment(mode, target, report)
    ended = ""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired:
        ended = f"not done after {PATIENCE_SECONDS} s"
    else:
        out.with_suffix(".log").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode < 0:
            ended = f"the process died of signal {-done.returncode}"
        elif not out.exists():
            ended = (done.stderr.splitlines() or [f"exited with {done.returncode}"])[-1]
    row: Row = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"wrong": []}
    if ended:
        row["wrong"].append(ended)
    row["valid"] = not row["wrong"]
    return row


def _line(program: str, door: str, mode: str, row: Row) -> str:
    head = f"{program:14s} {door:22s} {mode:9s}"
    if "minimum_seconds" not in row:
        return f"{head} WRONG {'; '.join(row['wrong'])}"
    times = ", ".join(
        f"{label} {row[key] * 1e3:.2f} ms"
        for label, key in (
            ("first", "first_seconds"),
            ("minimum", "minimum_seconds"),
            ("NumPy", "numpy_minimum_seconds"),
        )
    )
    ratio = row["numpy_minimum_seconds"] / row["minimum_seconds"]
    found = "; ".join((*row["wrong"], *row["notes"]))
    return f"{head} {'ok   ' if row['valid'] else 'WRONG'} {times} ({ratio:.2f}×) {found}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the programs as the command line says; return 1 if the ratchet fails."""
    parser = argparse.ArgumentParser(prog=f"tests.ratchets.{NAME}", description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="auto")
    parser.add_argument("--target", default="alight")
    parser.add_argument("--checkout", help="npbench; default: $NPBENCH")
    parser.add_argument("--door", action="append", default=[], help="np:…, deco:…:…, duck:…:…")
    parser.add_argument("--only", action="append", default=[], help="a program's name")
    parser.add_argument("--preset", default="S")
    given = parser.parse_args(arguments)
    options = (given.checkout, given.door, given.only, given.preset)
    return 0 if measure(MODES[given.mode], given.target, *options).passed else 1


if __name__ == "__main__":
    sys.exit(main())
