"""The jobs of a lent device: each within its time, its output beside the others'."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratchets import cuda, cuda_reductions, cuda_workloads, lease
from ratchets.lease import PART_SECONDS, PARTS, Job, run_part
from without_card import elsewhere, needs_compiler, with_entry_point


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lease, "CACHE", tmp_path / "cache")


def test_every_job_has_a_name_of_its_own_and_fits_in_its_part() -> None:
    for jobs in PARTS.values():
        assert len({job.name for job in jobs}) == len(jobs)
        assert all(job.seconds <= PART_SECONDS - 5 for job in jobs)
        for job in jobs:
            if job.arguments[0] == "-c":
                compile(job.arguments[1], job.name, "exec")
            elif job.arguments[1] == "tests.ratchets.cuda":
                assert job.arguments[2] in cuda.PARTS


def test_a_job_that_takes_too_long_is_ended_and_the_next_one_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = lease.subprocess.run

    def once_up(command: Any, *, stdout: Any, timeout: float, check: bool, **options: Any) -> Any:
        """Begin the time of a job that would sleep on when it says that it is up."""
        if "sleep" not in command[-1]:
            return real(command, stdout=stdout, timeout=timeout, check=check, **options)
        with subprocess.Popen(command, stdout=stdout, **options) as process:
            while not Path(stdout.name).read_text():
                time.sleep(0.01)
            process.kill()
        raise subprocess.TimeoutExpired(command, timeout)

    jobs = (
        Job("sleeps", 0.5, ("-c", "import time; print('up', flush=True); time.sleep(60)")),
        Job("fails", 250, ("-c", "raise SystemExit('so it is')")),
        Job("works", 250, ("-c", "print('done')")),
    )
    monkeypatch.setattr(lease.subprocess, "run", once_up)
    assert not run_part("part", jobs, tmp_path)
    summary = (tmp_path / "summary.txt").read_text()
    assert "sleeps: ended after 0 s" in summary and "   up" in summary
    assert "fails: 1," in summary and "   so it is" in summary
    assert "works: 0," in summary and (tmp_path / "works.txt").read_text() == "done\n"
    assert run_part("part", jobs[2:], tmp_path)


def test_what_does_not_fit_in_a_part_is_said(tmp_path: Path) -> None:
    assert not run_part("part", (Job("late", 30, ("-c", "")),), tmp_path, seconds=1.0)
    assert "late: no time left" in (tmp_path / "summary.txt").read_text()


@needs_compiler
def test_a_share_of_a_cards_reductions_runs_and_ends_in_time() -> None:
    (job,) = [job for job in PARTS["check"] if job.name == "reductions"]
    assert job.seconds >= cuda_reductions.SECONDS + 10  # a process stops before it is ended
    share = (
        "import sys; sys.argv[1:] = '262', '276'; from ratchets.cuda_reductions import main; main()"
    )
    done = elsewhere("-c", with_entry_point(share))
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["results"] == 1 and not found["differing"] and not found["failed"], found


def test_the_published_workloads_meet_their_oracles() -> None:
    sizes = {"elementwise": 10**6, "images": 1}
    for name, program, inputs, _, _, (oracle, within, _) in cuda_workloads.WORKLOADS:
        if within:
            result = cuda_workloads.Numpys(program).result(inputs(sizes[name]))
            assert abs(float(result) - oracle) < within, name
    others = cuda_workloads.with_names(cuda_workloads.sea, np)  # the same program, bound anew
    given = cuda_workloads.water(1000)
    assert np.array_equal(others(*given), cuda_workloads.sea(*given))
    found = cuda_workloads._numpy_price(20_000, 256)
    assert abs(found - 10.552) < 4 * 1.7 * 10.552 / 20_000**0.5, found


def test_what_a_card_failed_is_named_in_the_last_lines() -> None:
    found = {
        "speed failed": "Traceback …\nKernelError: no such kernel",
        "bits": {"differing": {"exp float32->float32": [3, "1.0: 2.0, host 3.0"]}, "failed": {}},
        "fuzz": {
            "failed": [
                {"program": "x = 1\n" * 50, "seed": 7, "where": "results", "message": "other bytes"}
            ],
            "died": {"fuzzing cuda 1 10": "ended with -11: seed 3"},
        },
    }
    assert cuda.faults_of(found) == [
        "speed failed: KernelError: no such kernel",
        "bits: differing: exp float32->float32: [3, '1.0: 2.0, host 3.0']",
        "fuzz: failed: seed 7, where results, message other bytes",
        "fuzz: died: fuzzing cuda 1 10: ended with -11: seed 3",
    ]
    assert cuda.faults_of({"fuzz": {"failed": []}, "part seconds": {}}) == []


def test_a_process_that_dies_is_named_and_the_others_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    rows, died = cuda.in_processes("timeit", [("-n", "1", "-r", "1"), ("no such statement",)])
    assert not rows and len(died) == 2  # it prints no JSON
    assert "SyntaxError" in died["timeit no such statement"]
    rows, died = cuda.in_processes("fuzzing", [("numpy", "1", "20"), ("numpy", "x", "20")])
    assert rows[0]["operations"] >= 20 and "ValueError" in died["fuzzing numpy x 20"]
