"""Measures the memory of the calls of one program by one door and prints it as JSON:
``python -m tests.ratchets.memory_child DOOR FILE CALLS SCALE``.

``DOOR`` is ``numpy``, ``jit`` or ``namespace``; under ``alight run`` the door is ``numpy``.
All figures are bytes of the resident set, as the system counts it.
"""

import gc
import json
import sys
import time
import warnings
from pathlib import Path


def status(name):
    """Return a figure of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    raise LookupError(name)


def forget_peak():
    """Let the peak be what is resident now (``/proc/PID/clear_refs``)."""
    Path("/proc/self/clear_refs").write_text("5")


def leaves(result):
    """Yield what lies in lists and tuples."""
    if isinstance(result, (list, tuple)):
        for item in result:
            yield from leaves(item)
    else:
        yield result


def settled(result):
    """Have the result computed; return its bytes."""
    total = 0
    for leaf in leaves(result):
        if hasattr(leaf, "to_numpy"):
            leaf.to_numpy()
        total += getattr(leaf, "nbytes", 0)
    return total


def main():
    door, text, count, scale = (
        sys.argv[1],
        Path(sys.argv[2]).read_text(),
        int(sys.argv[3]),
        float(sys.argv[4]),
    )
    warnings.simplefilter("ignore")
    if door != "run":
        import numpy  # noqa: F401
    if door in ("jit", "namespace"):
        import alight
    if door == "namespace":
        text = text.replace("import numpy as np", "import alight as np", 1)
    if door == "run":
        space = __import__("runpy").run_path(sys.argv[2])
    else:
        space = {"__name__": "program"}
        exec(compile(text, sys.argv[2], "exec"), space)
    body = alight.jit(space["body"]) if door == "jit" else space["body"]
    gc.collect()
    base = status("VmRSS")
    given = space["make"](scale)
    args = status("VmRSS") - base
    peaks, after, seconds = [], [], []
    for _ in range(count):
        forget_peak()
        began = time.perf_counter()
        result = body(*given)
        nbytes = settled(result)
        seconds.append(time.perf_counter() - began)
        del result
        peaks.append(status("VmHWM"))
        after.append(status("VmRSS"))
    del given
    gc.collect()
    at_once = status("VmRSS")
    time.sleep(1.0)
    second = status("VmRSS")
    time.sleep(1.5)
    print(
        json.dumps(
            {
                "base": base,
                "args": args,
                "result": nbytes,
                "peaks": peaks,
                "after": after,
                "at_once": at_once,
                "kept": second,
                "later": status("VmRSS"),
                "seconds": seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
