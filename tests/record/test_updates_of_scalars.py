"""Updates of elements and reductions: NumPy's scalars become the dtype of the result, its arrays
keep theirs."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight

_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    **{"iadd": operator.iadd, "isub": operator.isub, "imul": operator.imul},
    **{"itruediv": operator.itruediv, "ifloordiv": operator.ifloordiv, "imod": operator.imod},
    **{"ipow": operator.ipow, "ilshift": operator.ilshift, "ior": operator.ior},
}
_TARGETS: dict[str, Callable[[Any], Any]] = {
    "element": lambda x: x[1],
    "reduction": lambda x: x.max(),
    "view": lambda x: x[..., 1],
    "array": lambda x: x[..., 1].copy(),
}
_OTHERS: tuple[Callable[[Any], Any], ...] = (
    lambda xp: xp.asarray(np.array([3, 2], "u1")).max(),
    lambda xp: xp.asarray(np.array([3.5, 2.0]))[0],
    lambda xp: xp.asarray(np.array([3.5, 2.0], "f2"))[0],
    lambda xp: xp.asarray(np.array([3], "i8"))[0],
    *(lambda xp: np.float64(0.1), lambda xp: np.uint8(3), lambda xp: np.int8(3)),
    *(lambda xp: 3, lambda xp: 0.5, lambda xp: True, lambda xp: np.True_),
)


def _outcome(xp: Any, target: str, dtype: str, update: str, other: Callable[[Any], Any]) -> Any:
    x = xp.asarray(np.array([1, 100], dtype))
    one = _TARGETS[target](x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = _UPDATES[update](one, other(xp))
        except Exception as error:
            return type(error).__name__
    kept = x.tolist() if target == "view" else None  # else an element of ours may be written to
    return np.asarray(made).dtype.str, np.asarray(made).tolist(), kept


@pytest.mark.parametrize("floor", [0, 1000])
@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "f2", "f4", "f8"])
def test_updates_give_scalars_the_dtypes_that_numpys_become(
    dtype: str, target: str, floor: int
) -> None:
    for update in _UPDATES:
        for number, other in enumerate(_OTHERS):
            expected = _outcome(np, target, dtype, update, other)
            with alight.policy(floor=floor):
                found = _outcome(alight, target, dtype, update, other)
            assert found == expected, (update, number)
