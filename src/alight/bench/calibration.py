"""Devices calibrated for one run of the bench: in a cache folder of its own, by a process that does
nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from alight import costs, runtime
from alight.config import reload_config
from alight.tables import DISTURBED

__all__ = ["CALIBRATION_SECONDS", "Calibration", "calibrate", "own_cache"]

CALIBRATION_SECONDS, _CALIBRATIONS = 5.0, 3


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was said of it, the last try first, which holds; and the seconds that it took."""

    result: str = ""
    seconds: float = 0.0


def calibrate(
    environment: Mapping[str, str],
    until: float,
    names: Sequence[str] = (),
    each_seconds: float = CALIBRATION_SECONDS,
) -> Calibration:
    """Calibrate these devices, or all that the environment's settings name; once more those that
    other work disturbed, as long as that ends before ``until`` with as much time left."""
    began = perf_counter()
    command = [sys.executable, "-m", "alight", "calibrate", "--seconds", f"{each_seconds:g}"]
    # What other work disturbed is not stored, and alight would leave all to NumPy.
    said: list[str] = []
    asked = [*names]
    for _ in range(_CALIBRATIONS):
        told = subprocess.run(
            [*command, *asked], capture_output=True, text=True, env=dict(environment), check=False
        )
        said.append((told.stdout + told.stderr).strip())
        seconds = perf_counter() - began
        lines = said[-1].splitlines()
        asked = [line.partition(":")[0] for line in lines if DISTURBED in line]
        # Trying again is worth no more time than what is timed after it.
        if not asked or perf_counter() + seconds > until:
            break
    return Calibration("\n".join(reversed(said)), seconds)


@contextmanager
def own_cache(devices: str) -> Iterator[dict[str, str]]:
    """Have this process keep what it stores in a folder that is gone afterwards, and use these
    devices; yield the environment of processes that share it."""
    own = {"ALIGHT_DEVICES": devices}
    before = {name: os.environ.get(name) for name in ("ALIGHT_CACHE_DIR", *own)}
    with tempfile.TemporaryDirectory(prefix="alight-bench-cache-") as cache:
        os.environ.update(own, ALIGHT_CACHE_DIR=cache)
        try:
            _read_anew()
            yield dict(os.environ)
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value
            _read_anew()


def _read_anew() -> None:
    reload_config()
    costs.forget()
    runtime.forget_plans()
