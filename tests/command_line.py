"""The command `alight` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import alight.errors

PACKAGE = Path(alight.errors.__file__).parent


def command(
    folder: Path, *arguments: str, before: tuple[str, ...] = ("-m", "alight"), **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("ALIGHT_")},
        "PYTHONPATH": str(PACKAGE.parent),
        "ALIGHT_CACHE_DIR": str(folder / "cache"),
        **variables,
    }
    return subprocess.run(
        [sys.executable, *before, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )
