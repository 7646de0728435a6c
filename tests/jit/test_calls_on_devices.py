"""Calls of a device's library in a jitted body read the arguments of that call, and no other has
their results."""

from __future__ import annotations

import pytest

from without_card import needs_compiler, passes

GATHERED = """
import numpy as np, alight
def result(a, c):
    return a[np.array([2, 1, 0])] + 1
def assigned(a, c):
    c[...] = a[np.arange(len(a))]
def swapped(a, c):
    p = a[np.arange(len(a))[::-1]]
    t = p + 0
    p[...] = c
    c[...] = t
def set_there(a, c):
    p = a * 2
    p[np.array([2, 1])] = 7.0
    c[...] = p
    return p
def sorted_there(a, c):
    c[...] = np.sort(a)
    return np.take(c, np.array([2, 0]))
def called(function, ours):
    seen = []
    for n in range(6):
        a, c = np.array([n + 1.0, n + 3, n + 2]), np.array([20.0, 19.0, 18.0])
        given = (alight.asarray(a), alight.asarray(c)) if ours else (a, c)
        with alight.policy(floor=0, force="cuda:0"):
            found = function(*given)
        seen.append([None if x is None else np.asarray(x).tolist() for x in (found, *given)])
    return seen
for function in (result, assigned, swapped, set_there, sorted_there):
    made = alight.jit(function), alight.jit(function)
    wanted = called(function, False)
    for ours in (False, True):
        assert called(made[ours], ours) == wanted, (function, ours)
print("done")
"""


@needs_compiler
@pytest.mark.parametrize("checked", ["0", "1"])
def test_what_a_library_made_of_arguments_is_no_constant(
    checked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALIGHT_CHECK", checked)
    passes(GATHERED)
