"""Devices calibrated for one run of the bench: in a cache folder of its own, by a process that does
nothing else, ``python -m alight._src.bench.calibration SECONDS DEVICE…``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from alight._src.base.cache_registry import Cache, forget
from alight._src.explain import calibration_text
from alight._src.launch.program import failing_in_words

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
    """Calibrate these devices, or all that the environment's settings name; once more those of
    which there is no good profile, as long as that ends before ``until`` with as much time left."""
    began = perf_counter()
    # What other work disturbed is not stored, and alight would leave all to NumPy; by what is rough
    # it would choose badly (a host of 16 processors, 69 % of its points met in slow moments:
    # programs lost 29 % in the mean beside an H200, 0.0 % by a profile of a quieter lease).
    said: list[str] = []
    asked = [*names]
    for _ in range(_CALIBRATIONS):
        found, error = _in_process(asked, each_seconds, environment)
        said.append("\n".join([*(one["text"] for one in found), *filter(None, [error])]))
        seconds = perf_counter() - began
        asked = [one["device"] for one in found if one["again"]]
        # Trying again is worth no more time than what is timed after it.
        if not asked or perf_counter() + seconds > until:
            break
    return Calibration("\n".join(reversed(said)), seconds)


def _in_process(
    names: Sequence[str], seconds: float, environment: Mapping[str, str]
) -> tuple[list[dict[str, Any]], str]:
    """Return what `measured` of these devices gives in a process of its own, and what ended it."""
    done = subprocess.run(
        [sys.executable, "-m", "alight._src.bench.calibration", f"{seconds:g}", *names],
        capture_output=True,
        text=True,
        env=dict(environment),
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.strip()


def measured(names: Sequence[str], seconds: float) -> Iterator[dict[str, Any]]:
    """Yield what became of each device: its name, whether it is worth measuring again, and the text
    of `alight calibrate`."""
    for device in calibration_text.devices_to_calibrate(names):
        found = calibration_text.calibrate(device, seconds)
        again = found.disturbed or found.rough
        yield {"device": device.id, "again": again, "text": str(found)}


@contextmanager
def own_cache(devices: str) -> Iterator[dict[str, str]]:
    """Have this process keep what it stores in a folder that is gone afterwards, and use these
    devices; yield the environment of processes that share it."""
    own = {"ALIGHT_DEVICES": devices}
    before = {name: os.environ.get(name) for name in ("ALIGHT_CACHE_DIR", *own)}
    with tempfile.TemporaryDirectory(prefix="alight-bench-cache-") as cache:
        os.environ.update(own, ALIGHT_CACHE_DIR=cache)
        try:
            forget(Cache.SETTINGS)
            yield dict(os.environ)
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value
            forget(Cache.SETTINGS)


if __name__ == "__main__":
    with failing_in_words():
        for _found in measured(sys.argv[2:], float(sys.argv[1])):
            print(json.dumps(_found), flush=True)
