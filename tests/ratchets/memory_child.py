"""Measures the memory of the calls of one program by one door and prints it as JSON:
``python memory_child.py DOOR FILE CALLS SCALE``.

``DOOR`` is ``numpy``, ``jit``, ``namespace`` or ``run``, where this stands behind the program in
one script. All figures are bytes of the resident set, as the system counts it.
"""

import gc
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any


def status(name: str) -> int:
    """Return a figure of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise LookupError(name)


def forget_peak() -> None:
    """Let the peak be what is resident now (proc(5), ``clear_refs``)."""
    Path("/proc/self/clear_refs").write_text("5")


def settled(result: Any) -> int:
    """Have what lies in lists and tuples computed; return its bytes."""
    if isinstance(result, list | tuple):
        return sum([settled(item) for item in result])
    if hasattr(result, "to_numpy"):
        result.to_numpy()
    return getattr(result, "nbytes", 0)


def space_of(door: str, path: str) -> dict[str, Any]:
    """Return the program's names."""
    if door == "run":
        return globals()
    import numpy  # noqa: F401  (what is loaded is no part of what calls need)

    text = Path(path).read_text()
    if door != "numpy":
        import alight  # noqa: F401
    if door == "namespace":
        text = text.replace("import numpy as np", "import alight as np", 1)
    space: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, path, "exec"), space)
    return space


def measured(space: dict[str, Any], door: str, count: int, scale: float) -> dict[str, Any]:
    """Return what the calls need."""
    body = space["body"]
    if door == "jit":
        import alight

        body = alight.jit(body)
    gc.collect()
    base, files = status("VmRSS"), status("RssFile")
    given = space["make"](scale)
    arguments = status("VmRSS") - base
    peaks, nbytes = [], 0
    for _ in range(count):
        forget_peak()
        result = body(*given)
        nbytes = settled(result)
        del result
        peaks.append(status("VmHWM"))
    del given
    gc.collect()
    time.sleep(1.0)
    kept = status("VmRSS")
    time.sleep(1.5)
    return {
        "base": base,
        "arguments": arguments,
        "result": nbytes,
        "peaks": peaks,
        "kept": kept,
        "later": status("VmRSS"),
        "code": max(0, status("RssFile") - files),
    }


def main() -> None:
    """Measure, print."""
    door, path, count, scale = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    warnings.simplefilter("ignore")
    print(json.dumps(measured(space_of(door, path), door, count, scale)))


if __name__ == "__main__":
    main()
