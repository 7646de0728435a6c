"""Times the calls of one program by one door beside NumPy's, in turns, and prints them as JSON:
``python -m tests.ratchets.harmless_child DOOR FILE CALLS``.

``DOOR`` is ``jit``, ``namespace``, ``numpy`` (twice: what the machine's own noise makes of the
limits) or ``alone``, which runs under ``alight run`` or plain Python and times the program as it
is.
"""

from __future__ import annotations

import json
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

Call = Callable[[], Any]


def loaded(text: str, name: str) -> dict[str, Any]:
    """Return the namespace of a program's text."""
    space: dict[str, Any] = {"__name__": name}
    exec(compile(text, name, "exec"), space)
    return space


def calls_of(text: str, door: str) -> Call:
    """Return what calls the body by a door and has what it gives computed."""
    if door == "namespace":
        text = text.replace("import numpy as np", "import alight as np", 1)
    space = loaded(text, door)
    body, given = space["body"], space["make"]()
    if door == "jit":
        import alight

        body = alight.jit(body)
    return lambda: settled(body(*given))


def settled(result: Any) -> Any:
    """Return the result with all that is pending in it computed."""
    for leaf in leaves(result):
        if hasattr(leaf, "to_numpy"):
            leaf.to_numpy()
    return result


def leaves(result: Any) -> Iterator[Any]:
    """Yield what lies in lists, tuples and dicts."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        for item in result:
            yield from leaves(item)
    else:
        yield result


def alike(one: Any, two: Any) -> bool:
    """Tell whether two results agree to single precision: bits are other tests' matter."""
    pairs = list(zip(list(leaves(one)), list(leaves(two)), strict=True))
    for a, b in pairs:
        x, y = np.asarray(a), np.asarray(b)
        if x.shape != y.shape or x.dtype != y.dtype:
            return False
        if x.dtype.kind in "fc":
            if not np.allclose(x, y, rtol=1e-5, atol=1e-8, equal_nan=True):
                return False
        elif not np.array_equal(x, y):
            return False
    return True


def timed(call: Call) -> tuple[float, Any]:
    began = perf_counter()
    result = call()
    return perf_counter() - began, result


def main() -> None:
    """Time, print."""
    door, text, count = sys.argv[1], Path(sys.argv[2]).read_text(), int(sys.argv[3])
    warnings.simplefilter("ignore")
    ways = {"numpy": calls_of(text, "numpy"), "alight": calls_of(text, door)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    same = True
    for turn in range(count):
        results = {}
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            spent, results[name] = timed(ways[name])
            seconds[name].append(spent)
        same = same and alike(results["numpy"], results["alight"])
        del results
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "same": same, "peak_kib": peak}))


if __name__ == "__main__":
    main()
