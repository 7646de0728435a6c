"""`out=` of another dtype than the result would have: NumPy computes in it, casts, or refuses."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import alight

SEED = 71
DTYPES = ("?", "i1", "i4", "i8", "f2", "f4", "f8", "c8")
_CALLS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], tuple[int, ...]]] = {
    "einsum": (lambda np, a, b, o: np.einsum("ij,jk->ik", a, b, out=o), [(4, 4)] * 2, (4, 4)),
    "einsum3": (lambda np, a, o: np.einsum("ij->i", a, out=o), [(4, 4)], (4,)),
    "trace": (lambda np, a, o: np.trace(a, out=o), [(4, 4)], ()),
    "ptp": (lambda np, a, o: np.ptp(a, out=o), [(4, 4)], ()),
    "ptp0": (lambda np, a, o: np.ptp(a, axis=0, out=o), [(4, 4)], (4,)),
    "matmul": (lambda np, a, b, o: np.matmul(a, b, out=o), [(4, 4)] * 2, (4, 4)),
    "dot": (lambda np, a, b, o: np.dot(a, b, out=o), [(4, 4)] * 2, (4, 4)),
    "outer": (lambda np, a, b, o: np.outer(a, b, out=o), [(4,)] * 2, (4, 4)),
    "concat": (lambda np, a, b, o: np.concatenate([a, b], out=o), [(4,)] * 2, (8,)),
    "stack": (lambda np, a, b, o: np.stack([a, b], out=o), [(4,)] * 2, (2, 4)),
    "sum": (lambda np, a, o: np.sum(a, axis=0, out=o), [(4, 4)], (4,)),
    "mean": (lambda np, a, o: np.mean(a, axis=0, out=o), [(4, 4)], (4,)),
    "var": (lambda np, a, o: np.var(a, axis=0, out=o), [(4, 4)], (4,)),
    "std": (lambda np, a, o: np.std(a, axis=0, out=o), [(4, 4)], (4,)),
    "max": (lambda np, a, o: np.max(a, axis=0, out=o), [(4, 4)], (4,)),
    "argmax": (lambda np, a, o: np.argmax(a, axis=0, out=o), [(4, 4)], (4,)),
    "any": (lambda np, a, o: np.any(a, axis=0, out=o), [(4, 4)], (4,)),
    "cumsum": (lambda np, a, o: np.cumsum(a, axis=0, out=o), [(4, 4)], (4, 4)),
    "cumprod": (lambda np, a, o: np.cumprod(a, axis=0, out=o), [(4, 4)], (4, 4)),
    "nansum": (lambda np, a, o: np.nansum(a, axis=0, out=o), [(4, 4)], (4,)),
    "nanmean": (lambda np, a, o: np.nanmean(a, axis=0, out=o), [(4, 4)], (4,)),
    "nanmax": (lambda np, a, o: np.nanmax(a, axis=0, out=o), [(4, 4)], (4,)),
    "nanstd": (lambda np, a, o: np.nanstd(a, axis=0, out=o), [(4, 4)], (4,)),
    "clip": (lambda np, a, o: np.clip(a, 1, 3, out=o), [(4, 4)], (4, 4)),
    "round": (lambda np, a, o: np.round(a, 1, out=o), [(4, 4)], (4, 4)),
    "median": (lambda np, a, o: np.median(a, axis=0, out=o), [(4, 4)], (4,)),
    "quantile": (lambda np, a, o: np.quantile(a, 0.3, axis=0, out=o), [(4, 4)], (4,)),
    "take": (lambda np, a, o: np.take(a, [1, 2], axis=0, out=o), [(4, 4)], (2, 4)),
    "compress": (lambda np, a, o: np.compress([1, 0, 1, 0], a, axis=0, out=o), [(4, 4)], (2, 4)),
    "choose": (lambda np, a, b, o: np.choose([1, 0, 1, 0], [a, b], out=o), [(4,)] * 2, (4,)),
    "add": (lambda np, a, b, o: np.add(a, b, out=o), [(4, 4)] * 2, (4, 4)),
    "square": (lambda np, a, o: np.square(a, out=o, casting="unsafe"), [(4, 4)], (4, 4)),
    "add.reduce": (lambda np, a, o: np.add.reduce(a, out=o), [(4, 4)], (4,)),
    "add.accumulate": (lambda np, a, o: np.add.accumulate(a, out=o), [(4, 4)], (4, 4)),
    "nan_to_num": (lambda np, a, o: np.fix(a, out=o), [(4, 4)], (4, 4)),
    "isposinf": (lambda np, a, o: np.isposinf(a, out=o), [(4, 4)], (4, 4)),
    "linalg.multi_dot": (
        lambda np, a, b, o: np.linalg.multi_dot([a, b, a], out=o),
        [(4, 4)] * 2,
        (4, 4),
    ),
    "fft": (lambda np, a, o: np.fft.fft(a, out=o), [(4, 4)], (4, 4)),
}


def _drawn(draw: numpy.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    # Quarters: sums and products of them are exact in any order, but for what float16 rounds.
    made = draw.integers(-12, 12, shape) / 4
    return (made + 1j).astype(dtype) if dtype == "c8" else made.astype(dtype)


def _called(np: Any, call: Callable[..., Any], arrays: Any, out: Any) -> Any:
    made = numpy.asarray if np is numpy else alight.asarray
    target = made(out.copy())
    try:
        with numpy.errstate(all="ignore"):
            same = call(np, *[made(array) for array in arrays], target) is target
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return numpy.asarray(target), same


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("floor", [0, 1000])
@pytest.mark.parametrize("name", _CALLS)
def test_out_of_any_dtype_is_numpys(name: str, floor: int) -> None:
    print("seed", SEED)
    draw = numpy.random.default_rng(SEED)
    call, shapes, shape = _CALLS[name]
    with alight.policy(floor=floor):
        for dtypes in itertools.product(DTYPES, repeat=len(shapes)):
            arrays = [_drawn(draw, s, d) for s, d in zip(shapes, dtypes, strict=True)]
            for dtype in (*DTYPES, "c16"):
                out = numpy.zeros(shape, dtype)
                expected = _called(numpy, call, arrays, out)
                found = _called(alight, call, arrays, out)
                if isinstance(expected, str):
                    assert found == expected, (dtypes, dtype)
                else:
                    assert found[1] is expected[1]
                    numpy.testing.assert_allclose(found[0], expected[0], 3e-7, 1e-7, str(dtypes))


def test_large_ones_are_computed_in_the_dtype_of_out() -> None:
    thirds = numpy.full((300, 300), 1 / 3, "f4")
    for call in (_CALLS["einsum"][0], _CALLS["trace"][0]):
        shape = (300, 300) if call is _CALLS["einsum"][0] else ()
        arrays = [thirds] * (2 if shape else 1)
        out = numpy.zeros(shape)
        expected, found = (_called(np, call, arrays, out) for np in (numpy, alight))
        numpy.testing.assert_allclose(found[0], expected[0], 1e-12)
    found = _called(alight, _CALLS["ptp"][0], [thirds > 1], numpy.zeros(()))
    assert found[0] == 0.0
