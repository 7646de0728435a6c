"""Random programs, run in several processes at a time."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .modes import MODES, SCRATCH, Mode, child_environment
from .result import Result

__all__ = ["answer", "command", "environment", "last_words", "spread"]

_SILENCE_SECONDS = 3600


def spread(run: Callable[..., Any], parts: Iterable[Sequence[Any]], jobs: int | None) -> list[Any]:
    """Return what each part's run gave, in order; as many at a time as there are processors."""
    with ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as threads:
        return list(threads.map(lambda part: run(*part), parts))


def environment(name: str, target: str, *report: Any) -> dict[str, str]:
    """Return the environment of a process that sets its policy itself, and has plans proven."""
    found = child_environment(MODES["auto"], target, *report) | {"ALIGHT_CHECK": "1"}
    found.setdefault("ALIGHT_CACHE_DIR", str(SCRATCH / f"{name}-cache"))
    return found


def answer(
    arguments: Sequence[Any], env: Mapping[str, str]
) -> tuple[Any, subprocess.CompletedProcess[str]]:
    """Return what a process says in its last line, as JSON, and the process; None if it died."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        env=env,
        capture_output=True,
        text=True,
        timeout=_SILENCE_SECONDS,
        check=False,
    )
    try:
        return json.loads(done.stdout.strip().splitlines()[-1]), done
    except (ValueError, IndexError):
        return None, done


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of what a process said that went wrong."""
    said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    return said[0]


def command(
    measure: Callable[..., Result],
    name: str,
    text: str | None,
    own: Mapping[str, Mode],
    counted: str,
    count: int,
    arguments: Sequence[str] | None,
) -> int:
    """Run what the command line names, so many of what is ``counted`` in each mode; return 1 if
    the ratchet fails."""
    modes = {**MODES, **own}
    parser = argparse.ArgumentParser(prog=f"tests.ratchets.{name}", description=text)
    parser.add_argument("--mode", action="append", choices=modes, help="default: all")
    parser.add_argument(f"--{counted}", dest="count", type=int, default=count)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, help="processes at a time; default: all processors")
    given = parser.parse_args(arguments)
    results = [
        measure(modes[mode], "alight", given.count, given.first, given.jobs)
        for mode in given.mode or modes
    ]
    return 0 if all(result.passed for result in results) else 1
