"""Plans on disk, in a process of their own: what is kept depends on what a process has done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_plans_on_disk_are_found_again_and_trusted_by_nobody() -> None:
    cases = str(TESTS / "stored_plans_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cases]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent, check=False)
    assert done.returncode == 0 and "9 passed" in done.stdout, done.stdout + done.stderr
