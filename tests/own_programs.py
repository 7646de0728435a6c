"""Programs that print the same with `alight run` as without, however their own code is taken."""

from __future__ import annotations

import textwrap
from pathlib import Path

from command_line import command

__all__ = ["ALL", "FORCED", "MODES", "same", "write"]

ALL = {"ALIGHT_OWN_FUNCTIONS": "all"}
FORCED = {**ALL, "ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"}
MODES = {
    "auto": ALL,
    "generated": FORCED,
    "numpy": {**ALL, "ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "numpy"},
    "sim": {
        **ALL,
        "ALIGHT_FLOOR_ALL": "0",
        "ALIGHT_FORCE": "sim:0",
        "ALIGHT_DEVICES": "cpu,sim:0",
    },
    "off": {"ALIGHT_OWN_FUNCTIONS": "off"},
}


def write(folder: Path, text: str, name: str = "script.py") -> None:
    (folder / name).write_text(textwrap.dedent(text))


def same(folder: Path, text: str, **variables: str) -> str:
    """Return what a script prints under alight, which was found to be what it prints without."""
    write(folder, text)
    plain = command(folder, "script.py", before=(), **variables)
    ours = command(folder, "run", "script.py", **variables)
    assert (ours.stdout, ours.stderr, ours.returncode) == (
        plain.stdout,
        plain.stderr,
        plain.returncode,
    )
    assert plain.returncode == 0, plain.stderr
    return ours.stdout
