"""Asking a driver in a process of its own, as drivers may crash or hang; and which process loaded
one, as a forked child cannot use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from alight._src.base.failures import failures

_loaded_in: dict[str, int] = {}  # the process that loaded a driver, by the driver's name


def loaded(driver: str) -> None:
    """Note that this process has loaded a driver."""
    _loaded_in[driver] = os.getpid()


def refusal(driver: str) -> str:
    """Return why a driver cannot be used here: another process loaded it and was forked; else
    nothing."""
    if _loaded_in.get(driver) in (None, os.getpid()):
        return ""
    return (
        f"this process was forked from one that used {driver}. Fix: start processes with the "
        f"method 'spawn', or use {driver} only after the fork"
    )


def ask(script: str, seconds: float, name: str) -> tuple[Any, str]:
    """Return what a script prints as JSON, or None and why there is nothing; ``name`` is what to
    leave out of ``devices=``."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        answer = subprocess.run(
            [sys.executable, "-P", script],
            capture_output=True,
            text=True,
            timeout=seconds,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return None, (
            f"the driver did not answer within {seconds:g} s. Fix: update the graphics driver, or "
            f"leave {name} out of devices="
        )
    except failures(OSError) as error:
        return None, f"no process could be started to ask the driver: {error}"
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        code = answer.returncode
        how = f"status {code}" if code > 0 else f"signal {-code}"
        return None, f"asking the driver ended with {how}: {last}"
    try:
        return json.loads(answer.stdout.strip().splitlines()[-1]), ""
    except failures(IndexError, ValueError):
        return None, f"the driver's answer is not understood: {answer.stdout[-200:]!r}"
