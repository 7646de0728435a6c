"""What calls of a function did, in a form that two runs are compared by."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

import numpy as np

from alight._core import ArrayBase

__all__ = ["HEARING", "Witness", "difference"]

Array = np.ndarray[Any, Any]


def _bytes(array: Array) -> Any:
    """Return the elements; all NaNs are one, whose payload NumPy leaves open."""
    if array.dtype.names:
        return [_bytes(array[name]) for name in array.dtype.names]
    if array.dtype.kind == "O":
        return [_plainly(item) for item in array.ravel()]
    if array.dtype.kind in "fc" and np.isnan(array).any():  # large ones are not copied in vain
        array = np.array(array, order="K")
        parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
        for part in parts:
            part[part != part] = np.nan
    return array.tobytes()


def _plainly(item: Any) -> Any:
    if isinstance(item, (np.ndarray, ArrayBase)):
        return _bytes(np.asarray(item))
    return repr(item)


def _memory(array: Array) -> tuple[int, int]:
    """Return where an array's bytes begin and end."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high


class Witness:
    """Keeps what each call of one program left behind."""

    def __init__(self, bases: list[Array], hearing: str, ours: bool = False) -> None:
        self.bases = bases
        self._hearing = hearing
        self._ours = ours  # what is given may be Arrays, and so may be what comes back
        self._kept: list[Any] = []  # results, which later calls must not change

    def call(self, function: Any, arguments: Sequence[Any]) -> dict[str, Any]:
        """Call the function; return what it did, by what is compared."""
        with _heard(self._hearing) as told:
            try:
                result, error = function(*arguments), None
            except Exception as raised:
                # What NumPy says of its own class is said of ours.
                said = str(raised).replace("numpy.ndarray", "Array")
                result, error = None, f"{type(raised).__name__}: {said}"
        self._kept.append(result)
        seen = self._seen(result, [])
        return {
            "error": error,
            "results": seen,
            "arguments": [_bytes(base) for base in self.bases],
            "held": self._seen(list(arguments), [], True),
            "warnings": sorted(set(told)),
        }

    def end(self) -> dict[str, Any]:
        """Return what all results are after the last call."""
        return {"warnings": [], "results kept": [self._seen(result, []) for result in self._kept]}

    def _seen(self, item: Any, before: list[Array], beside_bases: bool = False) -> Any:
        """Return what an item is; without the elements of a base that is seen itself."""
        if self._ours and isinstance(item, (ArrayBase, np.generic)):
            # Where NumPy has scalars, Arrays of no dimensions; and memory of their own.
            item = np.asarray(item)
        if isinstance(item, np.ndarray):
            described = {
                "type": type(item).__name__,
                "dtype": str(item.dtype),
                "shape": item.shape,
                "strides": item.strides if item.size else None,
                "writeable": item.flags.writeable,
                "memory": (place := self._shared(item, before)),
                "elements": "" if beside_bases and self._has(item, place) else _bytes(item),
            }
            before.append(item)
            return described
        if isinstance(item, (list, tuple)):
            return [type(item).__name__, *[self._seen(part, before, beside_bases) for part in item]]
        if isinstance(item, dict):
            return {key: self._seen(part, before, beside_bases) for key, part in item.items()}
        if type(item).__name__ == "Box":
            return self._seen(vars(item), before, beside_bases)
        if isinstance(item, np.generic):
            return f"{type(item).__name__}({_plainly(np.asarray(item))})"
        return f"{type(item).__name__}({item!r})"

    def _has(self, array: Array, place: Any) -> bool:
        """Tell whether the elements of an array at that place are a base's."""
        if not isinstance(place, tuple):
            return False
        base = self.bases[place[0]]
        return base.dtype == array.dtype and base.flags.forc and place[1] % base.itemsize == 0

    def _shared(self, array: Array, before: list[Array]) -> Any:
        """Return where in a watched array's memory this one begins, or which of the results before
        it shares its memory with."""
        if self._ours or not array.size:
            return None
        low, high = _memory(array)
        for number, base in enumerate(self.bases):
            if base.size:
                first, last = _memory(base)
                if first <= low < last:
                    return number, array.__array_interface__["data"][0] - first
        spans = [_memory(other) if other.size else (0, 0) for other in before]
        return [n for n, (first, last) in enumerate(spans) if first < high and low < last]


# How a program hears warnings: where they are recorded alight lets NumPy answer every call.
HEARING = ("ignored", "shown", "recorded")


@contextmanager
def _heard(how: str) -> Iterator[list[str]]:
    """Give a list that holds, afterwards, what was warned of."""
    told: list[str] = []
    stream = io.StringIO()
    with warnings.catch_warnings(record=how == "recorded") as records, redirect_stderr(stream):
        warnings.simplefilter({"ignored": "ignore", "shown": "default"}.get(how, "always"))
        yield told
    told += [f"{w.category.__name__}: {w.message}" for w in records or ()]
    # A shown warning has its line after it, which no file has.
    told += [line.strip() for line in stream.getvalue().splitlines() if "Warning: " in line]


def difference(wanted: Any, got: Any, path: str = "") -> tuple[str, str] | None:
    """Return the first place where two records differ and how; None where they are equal."""
    if type(wanted) is not type(got):
        return path, f"{got!r:.120}, must be {wanted!r:.120}"
    if isinstance(wanted, dict) and wanted.keys() == got.keys():
        for key in wanted:
            found = difference(wanted[key], got[key], f"{path}.{key}" if path else str(key))
            if found is not None:
                return found
        return None
    if isinstance(wanted, (list, tuple)) and len(wanted) == len(got):
        for number, (first, second) in enumerate(zip(wanted, got, strict=True)):
            found = difference(first, second, f"{path}[{number}]")
            if found is not None:
                return found
        return None
    if wanted == got:
        return None
    if isinstance(wanted, bytes):
        return (
            path,
            f"other bytes, {sum(a != b for a, b in zip(wanted, got, strict=False))} of them",
        )
    return path, f"{got!r:.200}, must be {wanted!r:.200}"
