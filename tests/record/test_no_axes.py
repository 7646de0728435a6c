"""Arrays without axes beside scalars, and types of one size beside each other: what NumPy keeps
apart though it reads the same."""

from __future__ import annotations

import copy
import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import alight
from conformance.modes import EVERYWHERE, MODES

pytestmark = pytest.mark.usefixtures("small_is_small")

NO_AXES = (
    *("np.array(7.0)", "np.asarray(7.0)", "np.zeros(())", "np.full((), 7.0)"),
    *("np.array(7.0).copy()", "np.copy(np.array(7.0))", "np.array(7).astype(float)"),
    *("np.zeros_like(np.array(7.0))", "np.array(np.array(7.0))", "np.ones(1).reshape(())"),
    *("np.copy(x.sum())", "np.array(x.sum())", "np.array(x.sum(), 'f4')"),
    *("np.where(x.sum() > 0, x.sum(), 1.0)", "copy.copy(np.array(7.0))"),
)
SCALARS = ("x.sum().copy()", "x.sum().astype('f4')", "x.max()", "-np.array(7.0)")


def changed(made: str, np: Any, x: Any) -> Any:
    """Return what an array without axes, or a scalar, and another name of it are after the in-place
    sum with an array; the name of the error, where there is one."""
    array = eval(made, {"np": np, "x": x, "copy": copy})
    try:
        array += np.ones(3)
    except ValueError as error:
        return type(error).__name__, str(error)
    return array.tolist()


@pytest.mark.parametrize("mode", EVERYWHERE)
@pytest.mark.parametrize("made", [*NO_AXES, *SCALARS])
def test_arrays_without_axes_are_no_scalars(made: str, mode: str) -> None:
    x = np.arange(2000.0)
    wanted = changed(made, np, x)
    assert (type(wanted) is tuple) == (made in NO_AXES)
    with alight.policy(**MODES[mode]):
        assert changed(made, alight, alight.asarray(x)) == wanted


JITTED = (
    lambda x: np.array(7.0).copy(),
    lambda x: np.array(7).astype(float),
    lambda x: np.copy(x.sum()),
    lambda x: np.array(x.sum()),
    lambda x: np.array(x.sum(), np.float32),
    lambda x: x.sum().copy(),
    lambda x: x.sum().astype(np.float32),
)


@pytest.mark.parametrize("mode", EVERYWHERE)
@pytest.mark.parametrize("number", range(len(JITTED)))
def test_arrays_without_axes_can_be_written_to_inside_jit(number: int, mode: str) -> None:
    def body(x: Any) -> Any:
        array = JITTED[number](x)
        other = array
        array += 1
        return array, other

    x = np.arange(2000.0)
    with alight.policy(**MODES[mode]):
        jitted = alight.jit(body)
        for _ in range(3):
            assert [float(a) for a in jitted(x)] == [float(a) for a in body(x)]


def joined(join: Any, x: Any, other: str) -> Any:
    """Return an array joined with itself in another dtype, after it was in its own."""
    assert np.asarray(join((x, x), dtype=x.dtype)).dtype.num == x.dtype.num
    return join((x, x), dtype=other)


LONGS = (
    lambda np, x, other: x.astype(other),
    lambda np, x, other: x.astype(other, copy=False),
    lambda np, x, other: x.astype(other, order="F", copy=False),
    lambda np, x, other: np.array(x, other),
    lambda np, x, other: np.array(x, other, copy=None),
    lambda np, x, other: np.asarray(x, other),
    lambda np, x, other: np.add(x, 1, dtype=other),
    lambda np, x, other: np.add(x, 1, dtype=x.dtype),
    lambda np, x, other: np.sum(x, dtype=other),
    lambda np, x, other: np.cumsum(x, dtype=other),
    lambda np, x, other: np.cumsum(x, dtype=x.dtype),
    lambda np, x, other: joined(np.concatenate, x, other),
    lambda np, x, other: joined(np.stack, x, other),
    lambda np, x, other: joined(np.vstack, x, other),
    lambda np, x, other: x.astype(other).astype(x.dtype) + 1,
    lambda np, x, other: x**2,
)


@pytest.mark.parametrize("mode", EVERYWHERE)
@pytest.mark.parametrize("number", range(len(LONGS)))
def test_long_and_long_long_are_two_types(number: int, mode: str) -> None:
    for one, other in itertools.permutations("ql"):
        for dtypes in ((one, other), (one.upper(), other.upper())):
            x = np.arange(12).reshape(3, 4).astype(dtypes[0])
            wanted = LONGS[number](np, x, dtypes[1])
            with alight.policy(**MODES[mode]):
                ours = alight.asarray(x)
                got = LONGS[number](alight, ours, dtypes[1])
                assert (got is ours, np.asarray(got).dtype.char) == (wanted is x, wanted.dtype.char)
                assert np.asarray(got).tolist() == wanted.tolist()


@pytest.mark.parametrize("mode", EVERYWHERE)
@pytest.mark.parametrize("dtype", np.typecodes["AllInteger"] + "?efdFD")
def test_squares_have_the_dtype_of_numpys_operator(dtype: str, mode: str) -> None:
    for shape in ((3,), ()):
        with alight.policy(**MODES[mode]):
            ours, theirs = alight.ones(shape, dtype), np.ones(shape, dtype)
            for got, wanted in ((ours**2, theirs**2), (ours.any() ** 2, theirs.any() ** 2)):
                assert np.asarray(got).dtype.char == wanted.dtype.char


@pytest.mark.parametrize("mode", EVERYWHERE)
def test_squares_of_truths_have_the_dtype_of_numpys_scalars(mode: str) -> None:
    x = np.arange(2000.0)
    for body in (lambda x: (x > 0).any() ** 2 * 200, lambda x: _squared((x > 0).any()) * 200):
        with alight.policy(**MODES[mode]):
            got, wanted = alight.jit(body)(x), body(x)
            assert (got, got.dtype.char) == (wanted, wanted.dtype.char)


def _squared(item: Any) -> Any:
    item **= 2
    return item


@pytest.mark.parametrize(
    "text",
    [
        *("(x.sum() * 1e300).astype('f4')", "(x.max() + np.nan).astype('i4')"),
        *("(x + 2j).sum().astype('f8')", "x.sum().astype('>f8')", "x.sum().astype('?')"),
        *("(x.sum() * 1e300).astype('e') + 1", "np.array(1e300).astype('f4')", "x.max().copy()"),
        *("x.sum().astype('g')", "x.sum().astype('S4')", "x.sum().astype('U')"),
        *("x.sum().conj()", "(x + 2j).sum().conjugate()", "x.sum().astype('f8', copy=False)"),
    ],
)
def test_scalars_are_cast_once_and_warn_once(text: str) -> None:
    results = []
    for namespace in (np, alight):
        space = {"np": namespace, "x": namespace.arange(5.0)}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = eval(compile(text, __file__, "eval"), space)
        heard = [(str(w.message), w.filename, w.lineno) for w in caught]
        results.append((made.dtype.char, made.shape, np.asarray(made).item(), heard))
    assert repr(results[0]) == repr(results[1])
