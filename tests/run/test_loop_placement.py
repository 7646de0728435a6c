"""Loops go over to another memory when that pays: scripts under `alight run` beside a simulated
device, on a host whose profile is given."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alight._src.adapt import lazy_devices
from alight._src.run import loop_placement
from alight._src.run.stored_loops import Known
from alight.backends import registry
from alight.device import HOST_DEVICE
from beside_sim import PROFILE, environment

# Two requests a turn: the one hands the other what it makes, and the next turn gets that back.
STEADY = """
import sys
import numpy as np
x = np.linspace(0.0, 1.0, 1_000_000)
y = np.linspace(1.0, 2.0, 1_000_000)
turns = int(sys.argv[1])
for turn in range(turns):
    x = x * 0.5 + y * 0.25
    if x.max() > 1e9:
        break
    x = x - y * 0.125
    if x.min() < -1e9:
        break
print(x[17], x.shape, np.add.reduce(np.asarray(x)).hex())
"""

# The host reads and writes all of it in each turn, which no request says beforehand.
READ = """
import numpy as np
x = np.linspace(0.0, 1.0, 1_000_000)
y = np.linspace(1.0, 2.0, 1_000_000)
for turn in range(120):
    x = x * 0.5 + y * 0.25
    if x.max() > 1e9:
        break
    if turn > 60:
        np.asarray(x)[turn] = 0.5
print(x[17], np.asarray(x).sum().hex())
"""


# The host's sum is NumPy's here, the device's is ours: last bits differ.
SUMMED = """
import numpy as np
x = np.linspace(0.0, 1.0, 1_000_000)
y = np.linspace(1.0, 2.0, 1_000_000)
for turn in range(100):
    x = x * 0.5 + y * 0.25
    if x.sum() > 1e12:
        break
print(x[17])
"""

# BLAS adds up in one order here, a device in another.
MULTIPLIED = """
import numpy as np
w = np.linspace(-1e-3, 1e-3, 1_000_000).reshape(1000, 1000)
x = np.linspace(0.0, 1.0, 1_000_000).reshape(1000, 1000)
for turn in range(60):
    x = x @ w + 0.5
    if x.max() > 1e12:
        break
print(x[3, 17])
"""

# The same array again and again, between requests that never recur.
AGAIN = """
import numpy as np
table = np.linspace(0.0, 1.0, 1_000_000)
total = 0.0
for turn in range(150):
    for size in range(turn * turn % 4):
        total += float((np.linspace(0.0, 1.0, 2000 + 4 * turn + size) * 3.0).min())
    total += float((table * 2.0 + 0.5).max())
print(total)
"""


class Started:
    """A process that ran a script: what it printed, and what its report has."""

    def __init__(self, folder: Path, text: str, *arguments: str, **variables: str) -> None:
        script, report = folder / "script.py", folder / "report.json"
        script.write_text(text)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "alight", "run", "--report", str(report)),
                *(str(script), *arguments),
            ],
            capture_output=True, text=True, env=environment(folder, **variables),
        )  # fmt: skip
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        self.output = done.stdout
        self.report: dict[str, Any] = json.loads(report.read_text())
        self.loops: list[dict[str, Any]] = self.report["loops"]

    def runs(self, device: str) -> int:
        return sum(d["runs"] for d in self.report["decisions"] if d["chosen"] == device)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    subprocess.run([sys.executable, "-c", PROFILE], check=True, env=environment(tmp_path))
    return tmp_path


def plain(folder: Path, text: str, *arguments: str) -> str:
    script = folder / "plain.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_loop_goes_over_once_it_has_lost_what_moving_takes_and_the_next_start_at_once(
    folder: Path,
) -> None:
    expected = plain(folder, STEADY, "100")
    first = Started(folder, STEADY, "100")
    assert first.output == expected
    (loop,) = first.loops
    assert loop["state"] == "away" and loop["device"] == "sim:0" and loop["period"] == 2
    (at,) = loop["switched_at"]
    gain = loop["here_seconds"] - loop["there_seconds"]
    assert loop["moving_seconds"] <= at * gain
    assert loop["turns"] == 100 and first.runs("sim:0") >= 4 * (100 - at)
    assert loop["regret_seconds"] <= loop["best_seconds"]
    assert any("script.py:8" in site for site in loop["call_sites"]), loop["call_sites"]
    # moved once: two arrays, and no array comes back before the end
    totals = first.report["totals"]
    assert totals["upload_bytes"] < 3 * 8_000_000 and totals["download_bytes"] < 2 * 8_000_000

    second = Started(folder, STEADY, "100")
    assert second.output == expected
    (loop,) = second.loops
    assert loop["state"] == "away" and loop["switched_at"] == [0] and second.runs("cpu") <= 2
    assert "earlier starts" in loop["reason"] and loop["regret_seconds"] < 1e-9

    # one start that ends early: the next one waits until moving has paid twice
    assert Started(folder, STEADY, "3").output == plain(folder, STEADY, "3")
    fourth = Started(folder, STEADY, "100")
    assert fourth.output == expected
    (loop,) = fourth.loops
    (at,) = loop["switched_at"] or (200,)
    assert at > 2 * loop["moving_seconds"] / gain - 1


def test_one_that_is_too_short_stays(folder: Path) -> None:
    short = Started(folder, STEADY, "6")
    assert short.output == plain(folder, STEADY, "6")
    (loop,) = short.loops
    assert loop["state"] == "waiting" and short.runs("sim:0") == 0
    assert "once it has lost" in loop["reason"] and loop["regret_seconds"] == 0.0


def test_one_whose_copies_take_more_than_it_gains_comes_back(folder: Path) -> None:
    found = Started(folder, READ)
    assert found.output == plain(folder, READ)
    (loop,) = found.loops
    assert len(loop["switched_at"]) == 2 and loop["state"] != "away"
    assert "came back" in loop["reason"]
    again = Started(folder, READ)  # and nothing of it is left to the next start
    assert again.loops[0]["switched_at"][0] > 1


def test_a_product_is_not_multiplied_here_first_and_then_there(folder: Path) -> None:
    first = Started(folder, MULTIPLIED)
    (loop,) = first.loops
    assert loop["state"] == "next start" and first.runs("sim:0") == 0
    assert first.output == plain(folder, MULTIPLIED)


def test_one_that_would_change_bits_goes_with_the_next_start(folder: Path) -> None:
    first = Started(folder, SUMMED)
    (loop,) = first.loops
    assert loop["state"] == "next start" and first.runs("sim:0") == 0
    second = Started(folder, SUMMED)
    assert first.output == second.output == plain(folder, SUMMED)
    (loop,) = second.loops
    assert loop["state"] == "away" and loop["switched_at"] == [0] and second.runs("cpu") == 0


def test_arrays_that_a_line_comes_back_to_stay_over_there(folder: Path) -> None:
    found = Started(folder, AGAIN)
    assert found.output == plain(folder, AGAIN)
    loop = found.loops[0]
    assert loop["state"] == "away" and loop["period"] == 1
    assert found.report["totals"]["upload_bytes"] < 2 * 8_000_000


def test_another_loop_that_begins_alike_is_not_taken_for_the_one_of_earlier_starts(
    folder: Path,
) -> None:
    Started(folder, STEADY, "100")
    found = Started(folder, READ)  # the script of that name has changed
    assert found.output == plain(folder, READ)
    assert {loop["state"] for loop in found.loops} & {"waiting", "stays"}
    assert all(loop["state"] != "away" or len(loop["switched_at"]) != 1 for loop in found.loops)


@pytest.mark.parametrize("said", [
    {"ALIGHT_DEVICES": "cpu"}, {"ALIGHT_FORCE": "cpu:generated"}, {"ALIGHT_ENABLED": "0"},
], ids=str)  # fmt: skip
def test_where_the_settings_leave_nothing_open_no_loop_is_looked_for(
    folder: Path, said: dict[str, str]
) -> None:
    found = Started(folder, STEADY, "20", **said)
    assert found.loops == [] and found.runs("sim:0") == 0


def test_a_loop_that_stays_bids_for_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_placement, "_remember", lambda: None)
    device = registry.device(HOST_DEVICE)
    known = Known(
        name="name",
        device=device.id,
        fingerprint=device.fingerprint,
        stages=(("structure", frozenset(), True),),
        home_seconds=1.0,
        best_seconds=0.1,
        copy_seconds=0.0,
        moving_seconds=0.1,
        back_seconds=0.1,
        keeps_bits=True,
        lines=(),
        starts=(100,),
    )
    loop = loop_placement.Loop.left(known, device)
    assert lazy_devices.is_due(device.id, 1.0)
    loop._part()
    assert loop.state is loop_placement.State.STAYS
    assert not lazy_devices.is_due(device.id, 1.0) and lazy_devices.bidders(device.id) == []


# Each size comes a few times in a row, and never again.
SIZES = """
import gc
import numpy as np
import alight
from alight._src.run import evaluate, loop_entries, loop_placement

evaluate._PLANS_KEPT, loop_placement._KEPT = 32, 16
for size in range(300_000, 300_400):
    array = alight.asarray(np.linspace(0.0, 1.0, size))
    for turn in range(4):
        float((array * 2.0 + 0.5).max())
gc.collect()
assert 0 < len(loop_placement._loops) <= 16, len(loop_placement._loops)
# Those that their plans hold, and those that the thread looks back over.
assert 0 < len(loop_entries._entries) <= 32 + 256, len(loop_entries._entries)
"""


def test_loops_of_sizes_that_never_come_again_are_let_go(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIZES],
        capture_output=True, text=True, check=False, env=environment(folder),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
