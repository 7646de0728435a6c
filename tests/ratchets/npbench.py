"""npbench's programs, unmodified, through alight's three doors: they must make what NumPy makes.

``python -m tests.ratchets.npbench --mode sim [--door np:alight] [--only gemm] [--checkout DIR]``
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
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
    rows: dict[str, dict[str, Row]] = {door: {} for door in doors}
    idle: list[str] = []
    with TemporaryDirectory(prefix="ratchet-") as scratch:
        for door in doors:
            for program in programs or PROGRAMS:
                case = Case(folder.resolve(), program, door, preset, mode, target, Path(scratch))
                row = rows[door][program] = case.run()
                print(_line(case, row), flush=True)
                if not row["valid"]:
                    result.problems.append(f"{program} through {door}: {'; '.join(row['wrong'])}")
                elif mode.must_run_on is not None and row.get("eligible") == 0:
                    idle.append(f"{program} through {door}")
            valid = sum(row["valid"] for row in rows[door].values())
            result.counts[door] = f"{valid}/{len(rows[door])}"
        if target == "alight":
            reports = (Path(scratch) / row["report"] for row in _all(rows))
            result.work = read_work(reports)
    # Right, but no proof of anything: alight was not asked for one eligible operation.
    if idle:
        print(f"no eligible element-operation: {', '.join(idle)}")
    result.details |= {"programs": rows, "without_eligible_work": idle}
    result.seconds = monotonic() - started
    return finish(result, mode)


def _all(rows: Mapping[str, Mapping[str, Row]]) -> list[Row]:
    return [row for of_door in rows.values() for row in of_door.values()]


@dataclass(frozen=True, slots=True)
class Case:
    """One program through one door, in a process of its own."""

    checkout: Path
    program: str
    door: str
    preset: str
    mode: Mode
    target: str
    scratch: Path

    @property
    def name(self) -> str:
        """Return what its files are called."""
        return "-".join((NAME, self.mode.name, self.door.replace(":", "-"), self.program))

    def run(self) -> Row:
        """Return what the process found; one that dies or hangs is a finding, too."""
        found, report = (self.scratch / f"{self.name}{end}.json" for end in ("", "-report"))
        ended = self._process(found, report)
        row: Row = {"wrong": []}
        if found.exists():
            row = json.loads(found.read_text(encoding="utf-8"))
        if ended:
            row["wrong"].append(ended)
        row["valid"] = not row["wrong"]
        if self.target == "alight":
            work = read_work([report])
            row |= {"eligible": work.eligible, "exits": work.exits.total(), "report": report.name}
        if report.exists():
            shutil.copyfile(report, SCRATCH / report.name)
        return row

    def _process(self, found: Path, report: Path) -> str:
        """Run the process; return how it ended, or nothing where it ended well."""
        # Times mean something where placement is free; elsewhere a second call is enough.
        rounds = ROUNDS if self.mode.must_run_on is None else 1
        command = (
            *(sys.executable, "-m", "ratchets.npbench_program"),
            *(str(self.checkout), self.program, self.door),
            *("--preset", self.preset, "--rounds", str(rounds), "--out", str(found)),
        )
        environment = child_environment(self.mode, self.target, report)
        SCRATCH.mkdir(parents=True, exist_ok=True)
        log = SCRATCH / f"{self.name}.log"
        with log.open("w", encoding="utf-8") as output:
            try:
                code = subprocess.run(
                    command,
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=PATIENCE_SECONDS,
                ).returncode
            except subprocess.TimeoutExpired:
                return f"not done after {PATIENCE_SECONDS} s"
        if code < 0:
            return f"the process died of signal {-code}"
        return "" if found.exists() else f"the process exited with {code}: see {log}"


def _line(case: Case, row: Row) -> str:
    head = f"{case.program:14s} {case.door:22s} {case.mode.name:9s}"
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
