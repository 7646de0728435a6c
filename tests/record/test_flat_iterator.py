"""`array.flat`, read and written by keys and with items that are arrays of alight's, too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight

_KEYS: dict[str, Callable[[Any, Any], Any]] = {
    "mask": lambda x, make: x.ravel() > 6,
    "mask of others": lambda x, make: make(np.arange(12) > 6),
    "mask of two axes": lambda x, make: x > 3,
    "short mask": lambda x, make: make(np.array([True, False])),
    "indices": lambda x, make: make(np.array([1, 3])),
    "list": lambda x, make: [1, 2],
    "list with an array": lambda x, make: [make(np.array(3)), 1],
    "empty list": lambda x, make: [],
    "number": lambda x, make: 3,
    "last": lambda x, make: -1,
    "too large": lambda x, make: 99,
    "array without axes": lambda x, make: make(np.array(4)),
    "NumPy's number": lambda x, make: np.int64(3),
    "tuple": lambda x, make: (3,),
    "tuple of an array": lambda x, make: (make(np.array([1, 2])),),
    "tuple of two": lambda x, make: (1, 2),
    "slice": lambda x, make: slice(1, 8, 2),
    "slice of arrays": lambda x, make: slice(make(np.array(1)), make(np.array(5))),
    "ellipsis": lambda x, make: ...,
    "float": lambda x, make: 1.5,
    "floats": lambda x, make: make(np.array([1.5])),
    "matrix": lambda x, make: make(np.array([[1, 2], [3, 4]])),
    "nothing": lambda x, make: None,
    "truth": lambda x, make: True,
    "word": lambda x, make: "a",
}
_ITEMS: dict[str, Callable[[Any], Any]] = {
    "number": lambda make: 5,
    "array": lambda make: make(np.array([7.0, 8.0])),
    "list": lambda make: [1, 2, 3],
    "list of arrays": lambda make: [make(np.array(1.0)), 2],
    "word": lambda make: "a",
}


def _drawn(make: Any, turned: bool) -> Any:
    array = make(np.arange(12.0).reshape(3, 4) * 2)
    return array.T if turned else array


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return np.asarray(call()).tolist()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("floor", [0, 1000])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("key", _KEYS)
def test_keys_and_items_are_numpys(key: str, turned: bool, floor: int) -> None:
    def outcomes(make: Any) -> list[Any]:
        found = []
        x = _drawn(make, turned)
        found.append(_outcome(lambda: x.flat[_KEYS[key](x, make)]))
        for item in _ITEMS.values():
            y = _drawn(make, turned)
            found.append(_outcome(lambda y=y, item=item: _set(y, _KEYS[key](y, make), item(make))))
            found.append(y.tolist())
        return found

    def _set(array: Any, key: Any, item: Any) -> None:
        array.flat[key] = item

    with alight.policy(floor=floor):
        assert outcomes(alight.asarray) == outcomes(np.array)


@pytest.mark.parametrize("turned", [False, True])
def test_what_else_an_iterator_has(turned: bool) -> None:
    def looks(np_: Any, make: Any) -> list[Any]:
        x = _drawn(make, turned)
        going = x.flat
        found = [next(going), going.index, going.coords, len(going), going.base is x, list(going)]
        other = _drawn(make, turned)
        found += [isinstance(x.flat, np.flatiter), max(x.flat), float(sum(x.flat))]
        found += [(x.flat == other.flat).tolist(), (x.flat < make(np.full(12, 6.0))).tolist()]
        found += [np.asarray(np_.add(x.flat, 1)).tolist(), np.asarray(np_.sort(x.flat)).tolist()]
        found += [x.flat.copy().tolist(), np_.array(x.flat).tolist(), x.flat.__array__().tolist()]
        going = other.flat
        going[0] = 9
        other += 1
        going[1] = 5
        found.append(other.tolist())
        for items in ([1, 2], [make(np.array(1.0)), 2], x, x.flat, x[0]):
            other.flat = items
            found.append(other.tolist())
        other[...] = x.flat[: other.shape[1]]
        found.append(other.tolist())
        with pytest.raises(TypeError):
            hash(going)
        return found

    assert looks(alight, alight.asarray) == looks(np, np.array)


_SCRIPT = """
import numpy as np
img = np.ones((1000, 1000)) * 3
mask = img > 2
print(img.flat[mask.ravel()].sum())
try:
    img.flat[mask] = 0
except (IndexError, ValueError) as error:  # ValueError before NumPy 2.4
    print(error)
img.flat[mask.ravel()] = 0
img.flat[np.arange(5) * 2] = np.arange(5) + 1
print(img.sum(), np.sort(img.flat)[-6:], sum(img.flat))
"""


def test_unmodified_scripts_print_the_same(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    told = []
    for start, floor in (([], "1"), (["-m", "alight", "run"], "0"), (["-m", "alight", "run"], "1")):
        made = subprocess.run(
            [sys.executable, *start, str(script)],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "ALIGHT_FLOOR_ALL": floor},
        )
        assert made.returncode == 0, made.stderr
        told.append(made.stdout)
    assert told[1] == told[2] == told[0]
