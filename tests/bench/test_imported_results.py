"""Results of benchmarks teach predictions: whole, on this machine only, and not what no clock
shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import alight
from alight._src.base.cache_registry import Cache, forget
from alight._src.base.records import replace
from alight._src.bench import imported_results
from alight._src.measure.profiles import fingerprint, save_profile
from alight.backends import registry
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from alight.errors import StoreError
from own_store import own_store

SIZES = (100_000, 300_000)
PROGRAMS = ("chain", "sum")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Have a profile of the host, and return this machine as a benchmark's result has it."""
    with own_store(tmp_path / "cache"):
        here = fingerprint(registry.device("cpu"))
        made = recorded("cpu", DEFAULT_SPEC)
        rates = {"numpy": made.rates["library"], "generated": made.rates["generated"]}
        known = replace(made, rates=rates, links={}, fingerprint=here, origin="measured")
        save_profile(replace(known, made_at=time.time()))
        vendor, _, model = here["cpu"].partition(" ")
        found = {"cpu_vendor": vendor, "cpu": model, "processors": here["processor_count"]}
        yield {**found, "numpy": here["numpy"]}


def result(folder: Path, machine: dict[str, Any], seconds: float = 0.001, **changes: Any) -> Path:
    rows = [
        {
            **{"program": program, "n": n, "dtype": "float64"},
            "peers": {by: {"seconds": seconds * n / SIZES[0]} for by in ("numpy", "alight", "jax")},
        }
        for program in PROGRAMS
        for n in SIZES
    ]
    rows.append({"program": "of another version", "n": 10, "dtype": "float64", "peers": {}})
    path = folder / "results.json"
    path.write_text(json.dumps({"machine": machine, "rows": rows, **changes}), encoding="utf-8")
    return path


def test_a_whole_result_corrects_what_is_predicted(machine: dict[str, Any], tmp_path: Path) -> None:
    path = result(tmp_path, machine)
    dry = alight.import_results(path, store=False)
    assert [(row["program"], row["n"], row["by"]) for row in dry] == [
        (program, n, by) for program in PROGRAMS for n in SIZES for by in ("numpy", "alight")
    ]
    forget(Cache.PROFILES)
    taken = alight.import_results(path)
    assert [row["before"] for row in taken] == [row["before"] for row in dry], "none was kept"
    for row in taken:
        assert abs(row["before"] / row["measured"] - 1.0) > 0.5, "an invented profile"
        assert row["after"] == pytest.approx(row["measured"], rel=0.25), row
    forget(Cache.PROFILES)
    again = alight.import_results(path, store=False)
    for row in again:
        assert row["before"] == pytest.approx(row["measured"], rel=0.25), "the next start's"
    text = imported_results.as_text(taken)
    assert text.splitlines()[0].split()[:2] == ["program", "elements"]
    assert "in the median before" in text.splitlines()[-1]


def test_what_no_benchmark_wrote_teaches_nothing(machine: dict[str, Any], tmp_path: Path) -> None:
    for path, why in (
        (tmp_path / "absent.json", "No such file"),
        (result(tmp_path, machine, seconds=-1.0), "no clock shows"),
    ):
        with pytest.raises(StoreError, match=f"not imported: .*{why}.*Fix:"):
            alight.import_results(path)
    for rows in ([1], [{"program": "sum"}], {}, [{"program": "sum", "n": "x", "dtype": "f"}]):
        with pytest.raises(StoreError, match=r"not imported: .*Fix: name a file"):
            alight.import_results(result(tmp_path, machine, rows=rows))
    with pytest.raises(StoreError, match="made on 2 × Zilog Z80"):
        there = {"cpu_vendor": "Zilog", "cpu": "Z80", "processors": 2}
        alight.import_results(result(tmp_path, there))
    with own_store(tmp_path / "empty"), pytest.raises(StoreError, match="alight calibrate, then"):
        alight.import_results(result(tmp_path, machine))
