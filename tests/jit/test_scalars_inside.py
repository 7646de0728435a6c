"""Scalars inside `jit` refuse what NumPy's refuse, in NumPy's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight


def _set(name: str, item: Any) -> Callable[[Any], Any]:
    def body(v: Any) -> Any:
        total = v.sum()
        setattr(total, name, item)
        return total

    return body


def _resized(v: Any) -> Any:
    total = v.sum()
    total.resize(3)
    return total


def _made(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def body(v: Any) -> Any:
        total = v.sum()
        array = make(total)
        array += 1
        return array, total, array is total

    return body


BODIES = {
    **{f"set {n}": _set(n, i) for n, i in (("shape", (1,)), ("flat", 3), ("strides", ()))},
    **{f"set {n}": _set(n, i) for n, i in (("dtype", "i8"), ("real", 3), ("nothing", 3))},
    "resize": _resized,
    "array of": _made(lambda s: np.array(s, copy=None)),
    "asarray of": _made(np.asarray),
    "require of": _made(lambda s: np.require(s, requirements=["C"])),
    "require of, writeable": _made(lambda s: np.require(s, requirements=["W", "O"])),
    "ascontiguousarray of": _made(np.ascontiguousarray),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.filterwarnings("ignore:Setting the strides:DeprecationWarning")
def test_scalar_takes_what_numpys_takes(name: str) -> None:
    def answer(function: Callable[[Any], Any]) -> str:
        try:
            return repr(function(np.arange(9.0) + 2))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    wanted = answer(BODIES[name])
    with alight.policy(floor=0, force="cpu:generated"):
        assert answer(alight.jit(BODIES[name])) == wanted


@pytest.mark.parametrize("view", [lambda x: x[:], lambda x: x.swapaxes(0, -1), lambda x: x[1:]])
def test_views_keep_their_shape_when_the_argument_is_reshaped(view: Callable[[Any], Any]) -> None:
    @alight.jit
    def reshaped(x: Any) -> Any:
        before = view(x)
        x.shape = (2, -1)
        return before

    with alight.policy(floor=0, force="cpu:generated"):
        for _ in range(3):
            x = np.arange(12)
            before = reshaped(x)
            assert x.shape == (2, 6)
            assert before.shape == view(np.arange(12)).shape
            assert before.base is x
