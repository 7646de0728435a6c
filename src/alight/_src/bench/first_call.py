"""The first call of a kernel, new or from the disk cache, by how many transcendental ops it has.

Each figure comes from a process of its own: ``python -m alight._src.bench.first_call CASE COUNT…``.
A case is ``new`` (nothing stored; llvmlite loaded by another kernel before), ``stored`` (in the
disk cache, after another kernel) or ``bare`` (stored, and the first kernel of its process).
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import copytree
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from alight._src.bench.shows import OVER_BUDGET, Shown

__all__ = ["COUNTS", "measure"]

COUNTS = (0, 1, 3, 6, 9, 12)
_OPS = (
    "sin", "exp", "cos", "tanh", "log1p", "arctan",
    "expm1", "sinh", "cosh", "arcsinh", "exp2", "tan",
)  # fmt: skip
# So few elements that running takes microseconds of the milliseconds that are counted.
_ELEMENTS = 4096
_REPEATS = 3
# A Python with NumPy, llvmlite and some kernels to compile, before the first has been seen: from
# 0.5 to 1 s here.
_PROCESS_SECONDS = 0.5


def _function(count: int) -> Callable[..., Any]:
    lines = [f"    y = y + 0.25 * np.{name}(x * 0.5)" for name in _OPS[:count]]
    text = "\n".join(["def program(x):", "    y = x * 1.5 + 2.0", *lines, "    return y"])
    namespace: dict[str, Any] = {"np": np}
    exec(compile(text, f"<{count} transcendental ops>", "exec"), namespace)
    function: Callable[..., Any] = namespace["program"]
    return function


def _another(x: np.ndarray[Any, Any]) -> Any:
    return x * 3.0 - 1.0


def first_call(case: str, counts: tuple[int, ...]) -> dict[str, float]:
    """Return milliseconds of the first call beyond a later one, by number of ops."""
    import alight

    found = {}
    x = np.random.default_rng(0).random(_ELEMENTS)
    with alight.policy(force="cpu:generated", floor=0):
        if case != "bare":
            alight.jit(_another)(x)
        for count in counts:
            jitted = alight.jit(_function(count))
            began = perf_counter()
            jitted(x)
            first = perf_counter() - began
            began = perf_counter()
            jitted(x)
            found[str(count)] = max(0.0, first - (perf_counter() - began)) * 1e3
    return found


def _in_process(case: str, counts: tuple[int, ...], environment: Mapping[str, str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "alight._src.bench.first_call", case, *map(str, counts)],
        capture_output=True,
        text=True,
        env={**environment, "ALIGHT_CALIBRATE": "off"},
        timeout=300,
    )
    if done.returncode != 0:
        raise RuntimeError(f"first call, {case}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def measure(
    environment: Mapping[str, str], progress: Callable[[str], None], until: float = math.inf
) -> tuple[dict[str, dict[str, float]], list[Shown]]:
    """Return milliseconds by case and number of ops (medians of three processes), and the lines.

    ``environment`` names the cache with this machine's profile; what is measured runs in copies. No
    turn begins that would not end until then, as far as is known; of none there are no figures.
    """
    taken: dict[str, dict[str, list[float]]] = {c: {} for c in ("new", "stored", "bare")}
    turn_seconds = _PROCESS_SECONDS * (2 + len(COUNTS))
    for turn in range(_REPEATS):
        began = perf_counter()
        if began + turn_seconds > until:
            break
        progress(f"first calls, {turn + 1} of {_REPEATS}")
        with tempfile.TemporaryDirectory(prefix="alight-bench-") as folder:
            own = str(Path(folder) / "cache")
            if Path(environment["ALIGHT_CACHE_DIR"]).is_dir():
                # The profile only: kernels that the rows have left there would not be new.
                copytree(
                    environment["ALIGHT_CACHE_DIR"], own,
                    ignore=lambda at, names: [n for n in names if "kernel" in n or "object" in n],
                )  # fmt: skip
            here = {**environment, "ALIGHT_CACHE_DIR": own}
            for case in ("new", "stored"):
                for count, value in _in_process(case, COUNTS, here).items():
                    taken[case].setdefault(count, []).append(value)
            for count in COUNTS:
                value = _in_process("bare", (count,), here)[str(count)]
                taken["bare"].setdefault(str(count), []).append(value)
        turn_seconds = perf_counter() - began
    found = {c: {k: median(v) for k, v in counts.items()} for c, counts in taken.items()}
    return found, _lines(found)


def _lines(found: Mapping[str, Mapping[str, float]]) -> list[Shown]:
    def limit(count: int) -> float:
        return 60.0 + 12.0 * max(0, count - 6)

    # The count that comes nearest to its limit, or passes it by most.
    new = found["new"]
    worst = max(COUNTS, key=lambda count: new.get(str(count), 0.0) / limit(count))
    lines = [
        Shown(
            f"first call of a new kernel, {worst} transcendental ops",
            new.get(str(worst)), limit(worst), " ms", detail=_listed(new),
        )
    ]  # fmt: skip
    for case, most, what in (
        ("stored", 5.0, "first call from the disk cache"),
        ("bare", 80.0, "first call from the disk cache, first kernel of its process"),
    ):
        slowest = max(found[case].values(), default=None)
        lines.append(Shown(what, slowest, most, " ms", detail=_listed(found[case])))
    return lines


def _listed(counts: Mapping[str, float]) -> str:
    if not counts:
        return OVER_BUDGET
    return "by ops: " + ", ".join(f"{count}: {value:.1f}" for count, value in counts.items())


if __name__ == "__main__":
    print(json.dumps(first_call(sys.argv[1], tuple(map(int, sys.argv[2:])))))
