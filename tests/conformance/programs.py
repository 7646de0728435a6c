"""Short programs run on ndarrays and on Arrays: variables, types, errors and lines compared."""

from __future__ import annotations

import operator
import traceback
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

import alight
from alight._core import ArrayBase
from conformance.compare import differences
from conformance.layouts import ordinary

FILE = "<conformance program>"


def variables() -> dict[str, Any]:
    """Return what programs start from; names of two letters stay ndarrays for alight, too."""
    names = {
        "a": ordinary("d", (4, 6), 1),
        "b": np.asfortranarray(ordinary("d", (4, 6), 2)),
        "i": ordinary("l", (4, 6), 3),
        "k": ordinary("i", (4, 6), 4),
        "u": ordinary("B", (4, 6), 5),
        "m": ordinary("?", (4, 6), 6),
        "v": ordinary("d", (6,), 7),
        "w": np.array([3, 0, 5, 1, 1, 2]),
        "n": ordinary("?", (6,), 8),
        "c": ordinary("D", (4, 6), 9),
        "z": np.array(2.5),
        "e": np.zeros((0, 6)),
        "t": ordinary("f", (2, 3, 4), 10),
        "h": ordinary("e", (6,), 11),
        "s": ordinary("d", (4, 4), 12),
        "q": np.arange(4),
        "y": np.array(True),
    }
    plain = {name * 2: names[name].copy() for name in ("a", "v", "m", "w", "i")}
    return names | plain


def _ours(names: dict[str, Any]) -> dict[str, Any]:
    return {
        name: alight.asarray(item) if len(name) == 1 else item.copy()
        for name, item in names.items()
    }


class Ended:
    """What a program left behind: its variables, or its error with the line that raised it."""

    def __init__(self, text: str, names: dict[str, Any]) -> None:
        self.names = names
        self.error: tuple[str, str, int] | None = None
        try:
            code = compile(text, FILE, "exec")
            exec(code, {"np": np, "operator": operator, "warnings": warnings}, names)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == FILE]
            # Errors name the type they were given.
            message = str(error).replace("numpy.ndarray", "alight.Array")
            self.error = (type(error).__name__, message, lines[-1] or 0 if lines else 0)


def difference(text: str, start: dict[str, Any] | None = None) -> str | None:
    """Return how a program ends otherwise on Arrays than on ndarrays, or None."""
    start = variables() if start is None else start
    ours = Ended(text, _ours(start))
    plain = Ended(text, start)
    if ours.error != plain.error:
        return f"raised {ours.error}, must be {plain.error}"
    try:
        alight.evaluate(*[x for x in ours.names.values() if isinstance(x, ArrayBase)])
    except Exception as error:
        return f"pending {type(error).__name__}: {error}"
    if ours.names.keys() != plain.names.keys():
        return f"variables {set(ours.names) ^ set(plain.names)}"
    for name, expected in plain.names.items():
        if found := unequal(ours.names[name], expected):
            return f"{name}: {found}"
    return None


def unequal(actual: Any, expected: Any) -> str | None:
    """Return how a variable of any type differs from NumPy's, or None."""
    if isinstance(expected, (np.ndarray, np.generic)):
        expected = np.asarray(expected)
        if expected.dtype.kind not in "biufc":
            same = np.array_equal(np.asarray(actual), expected)
            return None if same else f"{actual!r}, must be {expected!r}"
        if isinstance(actual, (ArrayBase, np.ndarray)):
            wanted = actual.flags.writeable
            if np.ndim(actual) and wanted != expected.flags.writeable:
                return f"writeable {wanted}"
        sizes = np.abs(expected[np.isfinite(expected)]) if expected.size else expected
        room = None
        if expected.dtype.kind in "fc":
            room = 64 * np.finfo(expected.dtype).eps * np.max(sizes, initial=0)
        return differences(actual, expected, 4.0, room=room)
    if isinstance(expected, (tuple, list)):
        if type(actual) is not type(expected) or len(actual) != len(expected):
            return f"{actual!r}, must be {expected!r}"
        return next(filter(None, map(unequal, actual, expected)), None)
    if type(actual) is not type(expected):
        return f"{type(actual).__name__}, must be {type(expected).__name__}"
    if isinstance(expected, (bool, int, float, complex, str, bytes, type(None), np.dtype)):
        return None if actual == expected or actual != actual else f"{actual!r}, not {expected!r}"
    return None


def lines(text: str) -> list[str]:
    """Return the lines of a block of text that hold something."""
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def pieces(items: Iterable[str], count: int) -> list[list[str]]:
    """Return items in lists of about that many, for one test each."""
    whole = list(items)
    number = max(1, round(len(whole) / count))
    return [whole[first::number] for first in range(number)]
