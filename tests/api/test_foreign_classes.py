"""Arrays beside a class with NumPy's protocols that knows nothing of alight, as pint's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import alight


class Quantity:
    """An array with a unit: it handles NumPy's calls, of ndarrays and of its own kind."""

    __array_priority__ = 17

    def __init__(self, held: Any) -> None:
        self.held = held

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        known = (Quantity, numpy.ndarray, numpy.generic, int, float, list)
        if method != "__call__" or not all(isinstance(item, known) for item in inputs):
            return NotImplemented
        return Quantity(ufunc(*_held(inputs), **{k: _held(v) for k, v in kwargs.items()}))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not all(issubclass(kind, (Quantity, numpy.ndarray)) for kind in types):
            return NotImplemented
        return Quantity(function(*_held(args), **{k: _held(v) for k, v in kwargs.items()}))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return numpy.asarray(self.held, dtype)

    def __add__(self, other: Any) -> Quantity:
        return Quantity(self.held + numpy.asarray(_held(other)))

    __radd__ = __add__

    def __len__(self) -> int:
        return len(self.held)

    @property
    def shape(self) -> Any:
        return self.held.shape


def _held(item: Any) -> Any:
    if isinstance(item, Quantity):
        return item.held
    return type(item)(map(_held, item)) if isinstance(item, (list, tuple)) else item


Q = Quantity
_CALLS: dict[str, Callable[..., Any]] = {
    "concatenate": lambda np, a, q: np.concatenate([a, q]),
    "concatenate2": lambda np, a, q: np.concatenate([q, a]),
    "where": lambda np, a, q: np.where(a > 1, a, q),
    "stack": lambda np, a, q: np.stack([a, q]),
    "dot": lambda np, a, q: np.dot(a, q),
    "dot2": lambda np, a, q: np.dot(q, a),
    "clip": lambda np, a, q: np.clip(a, 0, q),
    "clip2": lambda np, a, q: np.clip(q, 0, a),
    "add": lambda np, a, q: np.add(a, q),
    "addr": lambda np, a, q: np.add(q, a),
    "op": lambda np, a, q: a + q,
    "opr": lambda np, a, q: q + a,
    "mul": lambda np, a, q: a * q,
    "lt": lambda np, a, q: a < q,
    "max": lambda np, a, q: np.maximum(a, q),
    "vstack": lambda np, a, q: np.vstack([a, q]),
    "hstack": lambda np, a, q: np.hstack((a, q)),
    "matmul": lambda np, a, q: np.matmul(a, q),
    "matmulop": lambda np, a, q: a @ q,
    "isclose": lambda np, a, q: np.isclose(a, q),
    "allclose": lambda np, a, q: np.allclose(a, q),
    "interp": lambda np, a, q: np.interp(a, a, q),
    "searchsorted": lambda np, a, q: np.searchsorted(a, q),
    "append": lambda np, a, q: np.append(a, q),
    "outer": lambda np, a, q: np.outer(a, q),
    "tensordot": lambda np, a, q: np.tensordot(a, q, 1),
    "einsum": lambda np, a, q: np.einsum("i,i", a, q),
    "kron": lambda np, a, q: np.kron(a, q),
    "cross": lambda np, a, q: np.cross(a[:3], Q(q.held[:3])),
    "take": lambda np, a, q: np.take(a, q),
    "select": lambda np, a, q: np.select([a > 1], [q], a[0]),
    "choose": lambda np, a, q: np.choose([0] * len(a), [a, q]),
    "broadcast_arrays": lambda np, a, q: np.broadcast_arrays(a, q),
    "meshgrid": lambda np, a, q: np.meshgrid(a, q),
    "sum": lambda np, a, q: np.sum(q),
    "mean": lambda np, a, q: np.mean(q),
    "sumw": lambda np, a, q: np.average(a, weights=q),
    "pad": lambda np, a, q: np.pad(q, 1),
    "histogram": lambda np, a, q: np.histogram(a, q),
    "convolve": lambda np, a, q: np.convolve(a, q),
    "trapezoid": lambda np, a, q: np.trapezoid(a, q),
    "gradient": lambda np, a, q: np.gradient(a, q),
    "sort": lambda np, a, q: np.sort(q),
    "reshape": lambda np, a, q: np.reshape(q, (-1, 1)),
    "full_like": lambda np, a, q: np.full_like(a, q),
    "zeros_like": lambda np, a, q: np.zeros_like(q),
    "linspace": lambda np, a, q: np.linspace(a[0], q.held[0], 3),
    "array_equal": lambda np, a, q: np.array_equal(a, q),
    "isin": lambda np, a, q: np.isin(a, q),
    "setitem": lambda np, a, q: a.__setitem__(slice(None), q),
    "divmod": lambda np, a, q: np.divmod(a, q),
    "hypot": lambda np, a, q: np.hypot(a, q),
    "addout": lambda np, a, q: np.add(a, 1, out=q),
    "solve": lambda np, a, q: np.linalg.norm(q),
    "where1": lambda np, a, q: np.where(q.held > 1),
    "percentile": lambda np, a, q: np.percentile(q, 50),
    "putmask": lambda np, a, q: np.putmask(a, a > 0, q),
    "round": lambda np, a, q: np.round(q),
    "real": lambda np, a, q: np.real(q),
    "iadd": lambda np, a, q: a.__iadd__(q),
    "concatq": lambda np, a, q: np.concatenate([q, q]),
    "stackq": lambda np, a, q: np.stack([q, q]),
    "atleast": lambda np, a, q: np.atleast_2d(q),
    "diff": lambda np, a, q: np.diff(a, append=q),
    "insert": lambda np, a, q: np.insert(a, 0, q),
    "inner": lambda np, a, q: np.inner(a, q),
    "vdot": lambda np, a, q: np.vdot(a, q),
    "result_type": lambda np, a, q: np.result_type(a, q.held),
    "block": lambda np, a, q: np.block([a, q]),
    "ediff": lambda np, a, q: np.ediff1d(a, to_end=q),
    "polyval": lambda np, a, q: np.polyval(a, q),
    "sinc": lambda np, a, q: np.sinc(q),
    "sin": lambda np, a, q: np.sin(q),
    "var": lambda np, a, q: np.var(q),
    "cumsum": lambda np, a, q: np.cumsum(q),
    "transpose": lambda np, a, q: np.transpose(q),
    "bincount": lambda np, a, q: np.bincount(a.astype("i8"), weights=q),
}


def _shown(made: Any) -> Any:
    if isinstance(made, Quantity):
        return ("quantity", _shown(made.held))
    if isinstance(made, (tuple, list)):
        return [_shown(item) for item in made]
    return made if made is None or made is NotImplemented else numpy.asarray(made).tobytes()


def _outcome(np: Any, call: Callable[..., Any], size: int) -> Any:
    array = numpy.arange(float(size)) + 1
    array = array if np is numpy else alight.asarray(array)
    quantity = Quantity(numpy.arange(float(size))[::-1].copy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            told = _shown(call(np, array, quantity))
        except Exception as error:
            told = type(error).__name__
    return told, _shown(quantity), _shown(array)


@pytest.mark.parametrize("floor", [0, 1000])
@pytest.mark.parametrize("name", _CALLS)
def test_the_class_is_asked_as_it_is_of_ndarrays(name: str, floor: int) -> None:
    for size in (5, 1100):
        expected = _outcome(numpy, _CALLS[name], size)
        with alight.policy(floor=floor):
            assert _outcome(alight, _CALLS[name], size) == expected
