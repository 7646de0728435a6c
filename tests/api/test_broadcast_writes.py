"""What `np.broadcast_arrays` gives can be written to, with NumPy's warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight


def _set(array: Any, key: Any, item: Any) -> None:
    array[key] = item


_WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "element": lambda np_, r: _set(r, (0, 0), 1),
    "row": lambda np_, r: _set(r, 0, 1),
    "row of several": lambda np_, r: _set(r, 0, np.arange(r.shape[1])),
    "all": lambda np_, r: _set(r, ..., 7),
    "twice": lambda np_, r: (_set(r, 0, 1), _set(r, 0, 2)),
    "mask": lambda np_, r: _set(r, r > 0, 5),
    "in place": lambda np_, r: r.__iadd__(1),
    "fill": lambda np_, r: r.fill(3),
    "copyto": lambda np_, r: np_.copyto(r, 4),
    "out": lambda np_, r: np_.add(r, 1, out=r),
    "flag": lambda np_, r: r.flags.writeable,
    "flag by name": lambda np_, r: r.flags["W"],
    "flag set": lambda np_, r: (setattr(r.flags, "writeable", True), _set(r, 0, 1)),
    "flag off": lambda np_, r: (r.setflags(write=False), _set(r, 0, 1)),
    "read": lambda np_, r: r.sum(),
}


@pytest.mark.parametrize("source", ["own", "read-only", "whole"])
@pytest.mark.parametrize("floor", [0, 1000])
@pytest.mark.parametrize("name", _WRITES)
def test_writes_to_broadcast_arrays_warn_once(name: str, floor: int, source: str) -> None:
    def outcome(np_: Any, make: Any) -> Any:
        array = make(np.arange(40.0).reshape(40, 1) if source != "whole" else np.ones((40, 50)))
        if source == "read-only":
            array.setflags(write=False)
        result = np_.broadcast_arrays(array, make(np.ones((1, 50))))[0]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                told = _WRITES[name](np_, result)
                told = told if isinstance(told, bool) else None
            except ValueError as error:
                told = str(error)
        lines = [(w.category, str(w.message), w.filename, w.lineno) for w in caught]
        return told, lines, np.asarray(array).tolist()

    with alight.policy(floor=floor):
        assert outcome(alight, alight.asarray) == outcome(np, np.array)
