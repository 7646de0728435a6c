"""Casts that leave imaginary parts behind: NumPy warns once, at the call, at the program's line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import alight

_CALLS: dict[str, Callable[..., Any]] = {
    "square": lambda np, c, o, f: np.square(c, out=o, casting="unsafe"),
    "add": lambda np, c, o, f: np.add(c, f, out=o, casting="unsafe"),
    "addwhere": lambda np, c, o, f: np.add(c, f, out=o, casting="unsafe", where=f > 0),
    "adddt": lambda np, c, o, f: np.add(c, f, dtype="f8", casting="unsafe"),
    "adddto": lambda np, c, o, f: np.add(c, f, dtype="f8", casting="unsafe", out=o),
    "addc8": lambda np, c, o, f: np.add(f, f, dtype="c16", casting="unsafe", out=o),
    "sig": lambda np, c, o, f: np.add(c, f, signature="dd->d", casting="unsafe"),
    "sum": lambda np, c, o, f: np.sum(c, dtype="f8"),
    "sum0": lambda np, c, o, f: np.sum(c.reshape(2, -1), axis=0, dtype="f4"),
    "sumout": lambda np, c, o, f: np.sum(c.reshape(-1, 1), axis=1, out=o),
    "mean": lambda np, c, o, f: np.mean(c, dtype="f8"),
    "meanout": lambda np, c, o, f: np.mean(c.reshape(-1, 1), axis=1, out=o),
    "var": lambda np, c, o, f: np.var(c, dtype="f8"),
    "prod": lambda np, c, o, f: np.prod(c, dtype="f8"),
    "max": lambda np, c, o, f: np.max(c.reshape(-1, 1), axis=1, out=o),
    "cumsum": lambda np, c, o, f: np.cumsum(c, dtype="f8"),
    "cumsumo": lambda np, c, o, f: np.cumsum(c, out=o),
    "concat": lambda np, c, o, f: np.concatenate([c, f], dtype="f8", casting="unsafe"),
    "concato": lambda np, c, o, f: np.concatenate([c[:5], f[5:]], out=o, casting="unsafe"),
    "stack": lambda np, c, o, f: np.stack([c, f], dtype="f8", casting="unsafe"),
    "astype": lambda np, c, o, f: c.astype("f8"),
    "astypef": lambda np, c, o, f: np.astype(c, "f8"),
    "astypeint": lambda np, c, o, f: c.astype("i4"),
    "asarray": lambda np, c, o, f: np.asarray(c, dtype="f8"),
    "array": lambda np, c, o, f: np.array(c, dtype="f8"),
    "copyto": lambda np, c, o, f: np.copyto(o, c, casting="unsafe"),
    "setitem": lambda np, c, o, f: o.__setitem__(slice(None), c),
    "setmask": lambda np, c, o, f: o.__setitem__(f > 0, c[0]),
    "setmask2": lambda np, c, o, f: o.__setitem__(f > 0, c),
    "setscalar": lambda np, c, o, f: o.__setitem__(0, c[0]),
    "put": lambda np, c, o, f: np.put(o, [0, 1], c[:2]),
    "putmask": lambda np, c, o, f: np.putmask(o, f > 0, c),
    "place": lambda np, c, o, f: np.place(o, f > 0, c),
    "fill": lambda np, c, o, f: o.fill(c[0]),
    "flat": lambda np, c, o, f: setattr(o, "flat", c),
    "full": lambda np, c, o, f: np.full(3, 1j, "f8"),
    "full_like": lambda np, c, o, f: np.full_like(f, c[0]),
    "einsum": lambda np, c, o, f: np.einsum("i,i->i", c, f, out=o, casting="unsafe"),
    "einsumd": lambda np, c, o, f: np.einsum("i,i->i", c, f, dtype="f8", casting="unsafe"),
    "matmul": lambda np, c, o, f: np.matmul(
        c.reshape(-1, 1), f[:1].reshape(1, 1), out=o.reshape(-1, 1), casting="unsafe"
    ),
    "matmuld": lambda np, c, o, f: np.matmul(c, f, dtype="f8", casting="unsafe"),
    "trace": lambda np, c, o, f: np.trace(c.reshape(2, -1), dtype="f8"),
    "iadd": lambda np, c, o, f: o.__iadd__(c),
    "reduce": lambda np, c, o, f: np.add.reduce(c, dtype="f8"),
    "acc": lambda np, c, o, f: np.add.accumulate(c, dtype="f8"),
    "outer": lambda np, c, o, f: np.add.outer(c, f, dtype="f8", casting="unsafe"),
    "at": lambda np, c, o, f: np.add.at(o, [0], c[:1]),
    "float": lambda np, c, o, f: float(c[0]),
    "int": lambda np, c, o, f: int(c[0]),
    "floatsum": lambda np, c, o, f: float(c.sum()),
    "where": lambda np, c, o, f: np.where(f > 0, c, f).astype("f4"),
    "positive": lambda np, c, o, f: np.positive(c, out=o, casting="unsafe"),
    "clip": lambda np, c, o, f: np.clip(c, 0, 1, out=o, casting="unsafe"),
    "divmod": lambda np, c, o, f: np.divmod(f, f, out=(o, f)),
    "modf": lambda np, c, o, f: np.true_divide(c, f, out=o, casting="unsafe"),
    "nan_to_num": lambda np, c, o, f: np.nan_to_num(c).astype("f4"),
    "linspace": lambda np, c, o, f: np.linspace(0, c[0], 3, dtype="f8"),
    "real": lambda np, c, o, f: setattr(f, "real", c),
    "choose": lambda np, c, o, f: np.choose([0] * len(f), [c, f], out=o),
    "take": lambda np, c, o, f: np.take(c, range(len(f)), out=o),
    "view": lambda np, c, o, f: np.isclose(c, f),
    "nansum": lambda np, c, o, f: np.nansum(c, dtype="f8"),
    "ptp": lambda np, c, o, f: np.ptp(c.reshape(-1, 1), axis=1, out=o),
}


def _outcome(np: Any, call: Callable[..., Any], size: int, pending: bool) -> Any:
    make = numpy.array if np is numpy else alight.asarray
    real = make(numpy.arange(1.0, size + 1))
    out, given = make(numpy.zeros(size)), make(numpy.arange(1.0, size + 1) + 1j)
    if pending:
        given, real = given * 1, real * 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = call(np, given, out, real)
            array = numpy.asarray(out if made is None else made)
            told: Any = (array.dtype.name, array.shape)
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
    return told, sorted({(c.category.__name__, str(c.message)) for c in caught}), caught


@pytest.mark.parametrize("floor", [0, 1000])
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("name", _CALLS)
def test_imaginary_parts_are_lost_as_in_numpy(name: str, pending: bool, floor: int) -> None:
    for size in (6, 10_000):
        expected = _outcome(numpy, _CALLS[name], size, pending)
        with alight.policy(floor=floor):
            found = _outcome(alight, _CALLS[name], size, pending)
        assert found[:2] == expected[:2]
        assert len(found[2]) == len(expected[2])
        for ours, theirs in zip(found[2], expected[2], strict=True):
            if theirs.filename == __file__:
                assert (ours.filename, ours.lineno) == (theirs.filename, theirs.lineno)
