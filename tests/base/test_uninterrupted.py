"""Work that no signal's handler interrupts is done, whatever threads there are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from alight._src.base import uninterrupted


def test_work_is_done_where_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object) -> int:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(uninterrupted, "start_new_thread", refused)
    assert uninterrupted.uninterrupted(threading.get_ident) == threading.get_ident()
    with pytest.raises(KeyError):
        uninterrupted.uninterrupted(lambda: {}["nothing"])


def test_a_program_that_only_imports_alight_leaves_its_report(tmp_path: Path) -> None:
    # Python 3.12 starts no thread while it ends, and the report asks there which devices there are.
    path = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-c", "import alight; print(alight.ones(3) + 1)"],
        env={**os.environ, "ALIGHT_REPORT": str(path), "ALIGHT_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(path.read_text(encoding="utf-8"))["devices"][0]["id"] == "cpu"
