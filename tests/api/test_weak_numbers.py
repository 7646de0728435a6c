"""Where Python's numbers are weak, and where they are as strong as arrays: as NumPy has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import alight

_NUMBERS: list[Any] = [
    *(True, 2, 1.5, 1j, 1000, [1.5], (1, 2)),
    *(numpy.float64(1.5), numpy.float32(1.5), numpy.int8(2), numpy.array(1.5)),
]
_CALLS: dict[str, Callable[..., Any]] = {
    "concat": lambda np, x, s: np.concatenate([x, s], axis=None),
    "concat2": lambda np, x, s: np.concatenate([s, x, s], axis=None),
    "concatdt": lambda np, x, s: np.concatenate([s, x, s], axis=None, dtype="f4"),
    "hstack": lambda np, x, s: np.hstack([x, s]),
    "vstack": lambda np, x, s: np.vstack([x[:1], s]),
    "append": lambda np, x, s: np.append(x, s),
    "insert": lambda np, x, s: np.insert(x, 1, s),
    "where": lambda np, x, s: np.where(x > 1, x, s),
    "where2": lambda np, x, s: np.where(x > 1, s, x),
    "where3": lambda np, x, s: np.where(x > 1, s, 0),
    "select": lambda np, x, s: np.select([x > 1, x > 2], [x, s], 0),
    "select2": lambda np, x, s: np.select([x > 1, x > 2], [x, x], s),
    "outer": lambda np, x, s: np.outer(x, s),
    "kron": lambda np, x, s: np.kron(x, s),
    "dot": lambda np, x, s: np.dot(x, s),
    "inner": lambda np, x, s: np.inner(x, s),
    "tensordot": lambda np, x, s: np.tensordot(x, s, 0),
    "einsum": lambda np, x, s: np.einsum("i,->i", x, s),
    "pad": lambda np, x, s: np.pad(x, 2, constant_values=s),
    "full_like": lambda np, x, s: np.full_like(x, s),
    "searchsorted": lambda np, x, s: np.searchsorted(x, s),
    "clip": lambda np, x, s: np.clip(x, s, None),
    "clip2": lambda np, x, s: np.clip(x, s, s),
    "interp": lambda np, x, s: np.interp(s, x, x),
    "convolve": lambda np, x, s: np.convolve(x, s),
    "isclose": lambda np, x, s: np.isclose(x, s),
    "allclose": lambda np, x, s: np.allclose(x, s),
    "maximum": lambda np, x, s: np.maximum(x, s),
    "real": lambda np, x, s: x * np.real(s),
    "imag": lambda np, x, s: x * np.imag(s),
    "conj": lambda np, x, s: x * np.conj(s),
    "abs": lambda np, x, s: x * np.abs(s),
    "round": lambda np, x, s: x * np.round(s),
    "asarray": lambda np, x, s: x * np.asarray(s),
    "sum": lambda np, x, s: x * np.sum(s),
    "max": lambda np, x, s: x * np.max(s),
    "mean": lambda np, x, s: x * np.mean(s),
    "prod": lambda np, x, s: x * np.prod(s),
    "ptp": lambda np, x, s: x * np.ptp(s),
    "squeeze": lambda np, x, s: x * np.squeeze(s),
    "transpose": lambda np, x, s: x * np.transpose(s),
    "ravel": lambda np, x, s: x * np.ravel(s)[:1],
    "copy": lambda np, x, s: x * np.copy(s),
    "sign": lambda np, x, s: x * np.sign(s),
    "sort": lambda np, x, s: x * np.sort(s),
    "cumsum": lambda np, x, s: x * np.cumsum(s)[:1],
    "angle": lambda np, x, s: x * np.angle(s),
    "real_if_close": lambda np, x, s: x * np.real_if_close(s),
    "nan_to_num": lambda np, x, s: x * np.nan_to_num(s),
    "nan_to_num2": lambda np, x, s: np.nan_to_num(x, nan=1.0),
    "sinc": lambda np, x, s: x * np.sinc(s),
    "fix": lambda np, x, s: x * np.fix(s),
    "i0": lambda np, x, s: x * np.i0(s),
    "heaviside": lambda np, x, s: np.heaviside(x, s),
    "logaddexp": lambda np, x, s: np.logaddexp(x, s),
    "float_power": lambda np, x, s: np.float_power(x, s),
    "average": lambda np, x, s: x * np.average(s),
    "median": lambda np, x, s: x * np.median(s),
    "percentile": lambda np, x, s: x * np.percentile(s, 5),
    "take": lambda np, x, s: x * np.take(s, 0),
    "broadcast_to": lambda np, x, s: x * np.broadcast_to(s, x.shape),
    "atleast_1d": lambda np, x, s: x * np.atleast_1d(s),
    "full": lambda np, x, s: x * np.full(x.shape, s),
    "array": lambda np, x, s: np.array([x[0], s]) if numpy.ndim(s) == 0 else 0,
    "linspace": lambda np, x, s: x * np.linspace(0, s, x.shape[0]),
    "result_type": lambda np, x, s: str(np.result_type(x, s)),
    "common": lambda np, x, s: str(np.common_type(x)),
    "mod": lambda np, x, s: np.mod(x, s),
    "iadd": lambda np, x, s: x.__iadd__(s),
    "setitem": lambda np, x, s: x.__setitem__(slice(1, 3), s) or x,
    "fill": lambda np, x, s: x.fill(s) or x,
    "putmask": lambda np, x, s: np.putmask(x, x > 1, s) or x,
    "place": lambda np, x, s: np.place(x, x > 1, [s]) or x,
    "put": lambda np, x, s: np.put(x, [0, 1], s) or x,
    "copyto": lambda np, x, s: np.copyto(x, s) or x,
    "vander": lambda np, x, s: np.vander(x, 3),
    "polyval": lambda np, x, s: np.polyval([s, 1], x),
    "trapezoid": lambda np, x, s: np.trapezoid(x, dx=s),
    "diff": lambda np, x, s: np.diff(x, prepend=s),
    "ediff1d": lambda np, x, s: np.ediff1d(x, to_end=s),
    "gradient": lambda np, x, s: np.gradient(x, s),
    "cross": lambda np, x, s: np.roll(x, s) if isinstance(s, int) else 0,
    "nextafter": lambda np, x, s: np.nextafter(x, s),
    "isin": lambda np, x, s: np.isin(x, s),
    "digitize": lambda np, x, s: np.digitize(x, s),
    "bincount": lambda np, x, s: np.bincount(x.astype("i8")),
    "histogram": lambda np, x, s: np.histogram(x, bins=3)[1],
}


def _called(np: Any, call: Callable[..., Any], array: Any, number: Any) -> Any:
    try:
        with numpy.errstate(all="ignore"):
            made = call(np, array if np is numpy else alight.asarray(array), number)
    except Exception as error:
        return type(error).__name__
    several = made if isinstance(made, (tuple, list)) else [made]
    return [item if isinstance(item, str) else numpy.asarray(item) for item in several]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("floor", [0, 1000])
@pytest.mark.parametrize("name", _CALLS)
def test_numbers_count_as_they_do_in_numpy(name: str, floor: int) -> None:
    call = _CALLS[name]
    with alight.policy(floor=floor):
        for dtype in ("?", "i1", "u1", "i4", "i8", "f2", "f4", "f8", "c8"):
            for number in _NUMBERS:
                array = (numpy.arange(6) % 3 + 1).astype(dtype)
                expected = _called(numpy, call, array.copy(), number)
                found = _called(alight, call, array.copy(), number)
                what = (dtype, number)
                if isinstance(expected, str) or isinstance(expected[0], str):
                    assert found == expected, what
                    continue
                assert not isinstance(found, str), (what, found)
                for one, other in zip(expected, found, strict=True):
                    assert (other.dtype, other.shape) == (one.dtype, one.shape), what
                    numpy.testing.assert_allclose(other, one, 1e-2, err_msg=str(what))


def test_a_large_array_joined_with_a_number_keeps_its_dtype() -> None:
    joined = alight.concatenate([alight.ones(10**6, "f4"), 1.5], axis=None)
    assert joined.dtype == numpy.float32 and float(joined[-1]) == 1.5
    assert (alight.ones(2, "f4") * alight.real(1.0)).dtype == numpy.float32
