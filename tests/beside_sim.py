"""Processes beside a simulated device, on a host whose profile is given."""

from __future__ import annotations

import os
from pathlib import Path

import alight.errors

SOURCE = Path(alight.errors.__file__).parents[1]

# A host that streams 40 GB/s: no request alone gains by it what bringing its arrays takes.
PROFILE = """
import dataclasses, time
from alight.backends import registry
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from alight._src.adapt import record_floor
from alight._src.measure.profiles import fingerprint, save_profile
from alight._src.store import default_store

rate = lambda value: {"value": value, "source": "test"}
found = recorded("cpu", {**DEFAULT_SPEC, "launch": rate(1e-6), "memory": rate(4e10)})
rates = dict.fromkeys(("numpy", "generated"), found.rates["generated"])
save_profile(dataclasses.replace(
    found, rates=rates, links={}, origin="measured", made_at=time.time(), complete=True,
    fingerprint=fingerprint(registry.device("cpu"))))
default_store().write("floor", record_floor._floor_key(), {"elements": [1000] * 3})
"""


def environment(folder: Path, **variables: str) -> dict[str, str]:
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("ALIGHT_")},
        "PYTHONPATH": str(SOURCE),
        "ALIGHT_CACHE_DIR": str(folder / "cache"),
        "ALIGHT_CALIBRATE": "off",
        "ALIGHT_LEARN": "off",  # what the host takes is nothing like the profile it is given
        "ALIGHT_DEVICES": "cpu,sim:0",
        **variables,
    }
