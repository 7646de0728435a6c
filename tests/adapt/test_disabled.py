"""One switch ends it all: NumPy does everything at once, and what was pending says why."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import alight
from alight._src.log.decisions import LOG

PROGRAM = """
import numpy as np
a = np.linspace(0.0, 1.0, 2_000_000)
total = 0.0
for _ in range(3):
    b = np.exp(a) * a + 1.0
    total += b.sum()
print(type(a).__module__, type(b).__module__, round(float(total), 3))
"""


@pytest.fixture(autouse=True)
def empty_log() -> Iterator[None]:
    LOG.reset()
    yield
    LOG.reset()


def test_what_is_new_is_numpys_at_once() -> None:
    with alight.policy(enabled=False):
        a = alight.asarray(np.arange(2_000_000.0))
        b = np.sqrt(a * 2.0 + 1.0)
        total = float(b.sum())
    assert total == np.sqrt(np.arange(2_000_000.0) * 2.0 + 1.0).sum()
    found = LOG.snapshot()
    assert (found.decisions, found.counts["launches"]) == (0, 0)


def test_what_was_pending_says_why() -> None:
    with alight.policy(floor=0):
        a = alight.asarray(np.arange(10.0))
        b = a * 2.0 + 1.0
    with alight.policy(enabled=False, force="cpu:generated"):
        assert np.array_equal(b.to_numpy(), np.arange(10.0) * 2.0 + 1.0)
    (record,) = LOG.snapshot().records
    assert (record.decision.reason, record.decision.implementation) == ("disabled", "numpy")
    others = {c.reason for c in record.decision.candidates if c.implementation != "numpy"}
    assert "disabled" in others


def test_a_jitted_function_is_the_function() -> None:
    seen = []

    @alight.jit
    def body(x: np.ndarray) -> np.ndarray:
        seen.append(type(x))
        return np.exp(x) + x

    x = np.linspace(0.0, 1.0, 500_000)
    with alight.policy(floor=0, force="cpu:generated"):
        forced = body(x)
    before = len(seen)
    with alight.policy(enabled=False):
        for turn in range(5):
            result = body(x)
            assert len(seen) == before + turn + 1
            assert (seen[-1], type(result)) == (np.ndarray, np.ndarray)
            assert np.array_equal(result, np.exp(x) + x)
        assert np.array_equal(body(x=x), np.exp(x) + x)
        inner = body(alight.asarray(x))
        assert np.array_equal(inner.to_numpy(), np.exp(x) + x)
    assert np.allclose(forced, result)


@pytest.mark.parametrize("enabled", ["0", "1"])
def test_the_environment_can_switch_it_off(enabled: str, tmp_path: Path) -> None:
    script, cache = tmp_path / "program.py", tmp_path / "cache"
    script.write_text(PROGRAM, encoding="utf-8")
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ALIGHT_")}
    own = {"ENABLED": enabled, "CACHE_DIR": str(cache), "DEVICES": "cpu", "CALIBRATE": "off"}
    environment = {**kept, **{f"ALIGHT_{name}": text for name, text in own.items()}}
    plain, ran = (
        subprocess.run(
            [sys.executable, *door, str(script)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
        )
        for door in ((), ("-m", "alight", "run"))
    )
    assert ran.returncode == 0, ran.stderr
    if enabled == "0":
        assert ran.stdout == plain.stdout
        assert not [path for path in cache.rglob("*") if path.is_file()], "nothing is measured"
    else:
        assert ran.stdout.split()[-1] == plain.stdout.split()[-1]
