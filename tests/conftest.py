"""Settings every test runs under: a cache of its own, nothing of the user's, no measuring.

How long a test may take is said once, for all of it, in `pyproject.toml`: what it waits for, and
the processes it starts, have no limits of their own, which a busy machine would be too slow for.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

# What says where alight's parts are and how much is tested; all else would change what tests see.
_KEPT = frozenset(("ALIGHT_REPORT", "ALIGHT_FULL"))

# Before alight is imported: it reads its settings once. Subprocesses that tests start inherit them.
for _name in [name for name in os.environ if name.startswith("ALIGHT_")]:
    if _name not in _KEPT:
        del os.environ[_name]
_CACHE = tempfile.mkdtemp(prefix="alight-tests-")
os.environ["ALIGHT_CACHE_DIR"] = _CACHE
os.environ["ALIGHT_CALIBRATE"] = "off"
os.environ["ALIGHT_CHECK"] = "1"
# The user's settings file is not the tests': here there is none.
os.environ["XDG_CONFIG_HOME"] = os.path.join(_CACHE, "config")
# pytest-xdist's processes have the same: their environment is that of the process that starts them.
os.environ.setdefault("CUDA_ON_CPU", os.path.join(_CACHE, "cuda-on-cpu"))

# The ops of SciPy's functions are in the table that tests are drawn from, whichever file is first.
with suppress(ImportError):
    importlib.import_module("scipy.special")
    importlib.import_module("alight._src.ir.op_table").bring_tables()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        default=os.environ.get("ALIGHT_FULL", "0") not in ("", "0"),
        help="run every conformance case; by default a sample, the same every time",
    )
    parser.addoption(
        "--mode",
        action="append",
        choices=("auto", "generated", "sim", "wgpu", "cuda"),
        help="run conformance in these modes only",
    )


def pytest_collection_finish() -> None:
    """Leave the tests themselves, 17,000 objects with all that they hold, out of what each full
    collection of garbage looks through: some tests ask for dozens."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name what failed at once: a run that is cut short prints no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid} ({report.when}, {report.duration:.0f} s)", flush=True)


def pytest_unconfigure() -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture
def small_is_small() -> Iterator[None]:
    """Have arrays below 1000 elements be small, whatever was measured on this machine."""
    from alight._core import floor
    from alight._src.record.pending import record_floor

    record_floor()  # measured at the first use
    before = floor.record_floor
    floor.record_floor = 1000
    yield
    floor.record_floor = before


@pytest.fixture
def looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the bodies of jitted functions run on Arrays from the first call on, and to their ends,
    also where NumPy would have the calls first."""
    from alight._src.jit.specialization import Specialization

    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    monkeypatch.setattr(Specialization, "may_take", lambda kind: math.inf)


@pytest.fixture
def core() -> Any:
    """Return the native core itself, with what `alight._core` does not show."""
    return importlib.import_module("alight._core._native")


_MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "recorded": {"floor": 0},
    "generated": {"floor": 0, "force": "cpu:generated"},
    "sim": {"floor": 0, "force": "sim:0", "devices": ["cpu", "sim:0"]},
}


@pytest.fixture(params=_MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test as alight decides, recorded at any size, generated, and on another device."""
    from alight._src.config.loading import policy

    with policy(**_MODES[request.param]):
        yield request.param
