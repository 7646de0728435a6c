"""What a traced result without axes answers is what NumPy's scalar answers, method by method."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.config.loading import policy
from alight._src.log.decisions import LOG

# Addresses are in what these give, or files are asked for.
_LEFT_OUT = frozenset(("base", "data", "dump", "dumps", "flat", "tofile"))
_NAMES = [n for n in dir(np.float64) if not n.startswith("__") and n not in _LEFT_OUT]
_GIVEN: dict[str, list[tuple[Any, ...]]] = {
    "astype": [("i1",), ("f4",), ("c16",), ("?",), ("U8",), (object,), ("M8[s]",), ("f8", None)],
    "reshape": [(1,), ((1, 1),), (-1,), (2,)],
    "ravel": [(), ("F",), ("Z",)],
    "flatten": [(), ("F",), ("Z",)],
    "round": [(), (2,)],
    "clip": [(0, 1), (None, 2)],
    "dot": [(2,)],
    "repeat": [(3,)],
    "take": [(0,), (1,)],
    "searchsorted": [(0,)],
    "compress": [([True],)],
    "swapaxes": [(0, 0)],
    "transpose": [(), ((),)],
    "squeeze": [(), (0,)],
    "view": [(), ("u1",), ("i4",)],
    "sum": [(), (0,), (None,)],
    "max": [(), (0,)],
    "mean": [(), (0,)],
    "item": [(), (0,), (1,)],
    "choose": [([1, 2],)],
    "partition": [(0,)],
    "put": [(0, 1)],
    "getfield": [("u1",)],
    "resize": [((2,),)],
    "fill": [(1,)],
    "to_device": [("cpu",)],
    "copy": [(), ("F",)],
}
_CALLS = [(name, given) for name in _NAMES for given in _GIVEN.get(name, [()])]


def _outcome(function: Callable[[Any], Any], x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = function(x)
        except Exception as error:
            return type(error).__name__, str(error)
    return repr(made), type(made), getattr(made, "dtype", None), getattr(made, "shape", None)


@pytest.mark.parametrize("force", [None, "cpu:generated"])
@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", "g", "c8", "c16"])
def test_methods_and_attributes_are_the_scalars(dtype: str, force: str | None) -> None:
    x = np.ones(2000, dtype)
    x[0], x[5] = 0, 2
    if x.dtype.kind == "c":
        x *= 1 + 2j
    for name, given in _CALLS:

        def function(v: Any, name: str = name, given: tuple[Any, ...] = given) -> Any:
            found = getattr(v.max(), name)
            return found(*given) if callable(found) else found

        expected = _outcome(function, x)
        with policy(floor=0, force=force):
            assert _outcome(alight.jit(function), x) == expected, (name, given)


def test_parts_of_a_complex_scalar_are_computed_with_the_rest() -> None:
    def energy(a: Any) -> Any:
        found = np.vdot(a, a)
        return a * found.real + found.imag

    a = np.arange(3000.0) * (1 + 1j)
    with policy(floor=0, force="cpu:generated"):
        jitted: Any = alight.jit(energy)
        for _ in range(3):
            jitted(a)
        before = LOG.snapshot().counts["launches"]
        result = jitted(a)
        assert LOG.snapshot().counts["launches"] > before
    assert np.array_equal(result, energy(a))  # sums of whole numbers
