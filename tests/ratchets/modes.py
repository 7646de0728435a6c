"""The three ways each ratchet is run, and the environment that a child process needs for one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MODES", "ROOT", "SCRATCH", "Mode", "child_environment"]

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = ROOT / "build" / "ratchets"

# Settings of the user that say where things are; all others would change what is measured.
_KEPT = frozenset(("ALIGHT_CACHE_DIR",))


@dataclass(frozen=True, slots=True)
class Mode:
    """How placement is constrained. ``must_run_on`` names who has to do the eligible work."""

    name: str
    settings: Mapping[str, str]
    must_run_on: str | None


MODES = {
    mode.name: mode
    for mode in (
        Mode("auto", {}, None),
        Mode(
            "generated",
            {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"},
            must_run_on="generated",
        ),
        Mode(
            "sim",
            {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "sim:0", "ALIGHT_DEVICES": "cpu,sim:0"},
            must_run_on="sim:0",
        ),
    )
}


def child_environment(mode: Mode, target: str, report: Path | None = None) -> dict[str, str]:
    """Return the environment in which a child imports the target, constrained by the mode.

    ``report`` is where an alight in the child writes its JSON report when it exits.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ALIGHT_") or name in _KEPT
    }
    paths = [str(ROOT / "src"), str(ROOT / "tests"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    # Test ids that are made from sets must be the same in every process.
    environment["PYTHONHASHSEED"] = "0"
    if target == "alight":
        environment.update(mode.settings)
        if report is not None:
            environment["ALIGHT_REPORT"] = str(report)
    return environment
