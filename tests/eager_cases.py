"""Calls of NumPy's functions where their arguments lie, each beside NumPy's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import alight

Array = np.ndarray[Any, Any]


def drawn(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).random(shape)


def positive() -> Array:
    a = drawn(6, 6)
    return a @ a.T + np.eye(6)


def changed(function: Callable[..., Any], *rest: Any) -> Callable[..., Any]:
    """Return a call that writes into a copy of its argument, and gives that."""

    def call(np: Any, a: Any, *arrays: Any) -> Any:
        target = a + 0
        function(np, target, *arrays, *rest)
        return target

    return call


def assigned(np: Any, a: Any, key: Any, value: Any) -> None:
    a[key] = value


CALLS: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "linalg.solve": (lambda np, a, b: np.linalg.solve(a, b), (positive(), drawn(6, 2))),
    "linalg.inv": (lambda np, a: np.linalg.inv(a), (positive(),)),
    "linalg.cholesky": (lambda np, a: np.linalg.cholesky(a), (positive(),)),
    "linalg.qr": (lambda np, a: np.linalg.qr(a), (drawn(5, 3),)),
    "linalg.svd": (lambda np, a: np.linalg.svd(a, full_matrices=False), (drawn(5, 3),)),
    "linalg.eigh": (lambda np, a: np.linalg.eigh(a), (positive(),)),
    "linalg.eigvalsh": (lambda np, a: np.linalg.eigvalsh(a), (positive(),)),
    "linalg.pinv": (lambda np, a: np.linalg.pinv(a), (drawn(5, 3),)),
    "linalg.lstsq": (lambda np, a, b: np.linalg.lstsq(a, b), (drawn(7, 3), drawn(7))),
    "linalg.lstsq of columns": (
        lambda np, a, b: np.linalg.lstsq(a, b),
        (drawn(7, 3), drawn(7, 2)),
    ),
    "linalg.lstsq of rank 1": (
        lambda np, a, b: np.linalg.lstsq(a, b),
        (np.outer(drawn(5), drawn(3)), drawn(5)),
    ),
    "linalg.qr of columns": (lambda np, a: np.linalg.qr(a, "r"), (drawn(5, 3).T.copy().T,)),
    "linalg.svd of values": (lambda np, a: np.linalg.svd(a, compute_uv=False), (drawn(5, 3),)),
    "unique": (lambda np, a: np.unique(a, return_counts=True), (np.arange(30) % 7,)),
    "unique inverse": (
        lambda np, a: np.unique(a, return_index=True, return_inverse=True),
        (np.arange(30).reshape(5, 6) % 7,),
    ),
    "nonzero": (lambda np, a: np.nonzero(a), (np.arange(30).reshape(5, 6) % 3,)),
    "nonzero of one axis": (lambda np, a: np.nonzero(a), (np.arange(30) % 3,)),
    "nonzero of none": (lambda np, a: np.nonzero(a), (np.zeros((5, 6)),)),
    "nonzero, columns added": (
        lambda np, a: np.add(*np.nonzero(a)),
        (np.arange(30).reshape(5, 6) % 3,),
    ),
    "nonzero, written into": (
        changed(lambda np, a, i: assigned(np, a, i, -1)),
        (drawn(4), np.nonzero(np.eye(3))[1]),
    ),
    "flatnonzero": (lambda np, a: np.flatnonzero(a), (np.arange(30) % 3,)),
    "flatnonzero of none": (lambda np, a: np.flatnonzero(a), (np.zeros((5, 6)),)),
    "compress": (lambda np, m, a: np.compress(m, a), (np.arange(9) % 2 == 0, drawn(9))),
    "compress columns": (
        lambda np, m, a: np.compress(m, a, axis=1),
        (np.arange(3) % 2 == 0, drawn(4, 9)),
    ),
    "extract": (lambda np, m, a: np.extract(m, a), (np.arange(9) % 2 == 0, drawn(9))),
    "extract nothing": (lambda np, m, a: np.extract(m, a), (np.zeros(9), drawn(9))),
    "argsort": (lambda np, a: np.argsort(a, stable=True), (np.arange(50) % 7,)),
    "searchsorted": (
        lambda np, a, v: np.searchsorted(a, v, side="right"),
        (np.arange(30.0), drawn(8) * 40),
    ),
    "searchsorted in unsigned": (
        lambda np, a, v: np.searchsorted(a, v),
        (np.array([1, 5, 1 << 63], np.uint64), np.array([-3, 0, 5, 1 << 62])),
    ),
    "searchsorted in single": (
        lambda np, a, v: np.searchsorted(a, v),
        (np.array([1 << 24], np.float32), np.array([(1 << 24) + 1])),
    ),
    "take": (lambda np, a, i: np.take(a, i, axis=1), (drawn(4, 9), np.array([1, -1, 3]))),
    "take_along_axis": (
        lambda np, a, i: np.take_along_axis(a, i, axis=0),
        (drawn(4, 3), np.array([[0, 1, 3]])),
    ),
    "convolve": (lambda np, a, v: np.convolve(a, v, "same"), (drawn(40), drawn(4))),
    "correlate": (lambda np, a, v: np.correlate(a, v, "valid"), (drawn(40), drawn(5))),
    "einsum": (lambda np, a, b: np.einsum("ij,kj->ik", a, b), (drawn(4, 5), drawn(3, 5))),
    "fft.rfft": (lambda np, a: np.fft.rfft(a), (drawn(40),)),
    "fft.fft of columns": (lambda np, a: np.fft.fft(a, axis=0, norm="ortho"), (drawn(8, 5),)),
    "fft.irfftn": (lambda np, a: np.fft.irfftn(a, s=(4, 7), axes=(0, 1)), (drawn(4, 4) + 0j,)),
    "fft.fft of half floats": (lambda np, a: np.fft.fft(a), (drawn(8).astype(np.float16),)),
    "fft.fft of another order": (lambda np, a: np.fft.fft(a), (drawn(4, 5).T,)),
    "fft.fftshift": (lambda np, a: np.fft.fftshift(a), (drawn(4, 5),)),
    "getitem mask": (lambda np, a, m: a[m], (drawn(40), drawn(40) > 0.5)),
    "getitem rows": (lambda np, a, i: a[i], (drawn(7, 4), np.array([6, -7, 2, 2]))),
    "getitem columns": (lambda np, a, i: a[:, i], (drawn(7, 4), np.array([1, -4, 2, 2]))),
    "getitem a list": (lambda np, a: a[:, [3, 0, 1]], (drawn(7, 4),)),
    "getitem the middle": (lambda np, a, i: a[:, i], (drawn(3, 4, 5), np.array([[1, 0], [2, 2]]))),
    "getitem the last": (lambda np, a, i: a[..., i], (drawn(3, 4, 5), np.array([1, 0, 2, 2]))),
    "getitem mask and whole": (lambda np, a, m: a[m, :], (drawn(6, 7, 3), drawn(6, 7) > 0.5)),
    "getitem mask behind": (lambda np, a, m: a[:, m], (drawn(3, 6, 7), drawn(6, 7) > 0.5)),
    "getitem mask last": (lambda np, a, m: a[..., m], (drawn(3, 6, 7), drawn(7) > 0.5)),
    "getitem mask of a transposed": (lambda np, a, m: a.T[m], (drawn(6, 7), drawn(7, 6) > 0.5)),
    "setitem mask and whole": (
        changed(lambda np, a, m, v: assigned(np, a, (m, slice(None)), v)),
        (drawn(4, 5), np.array([True, False, True, False]), drawn(2, 5)),
    ),
    "setitem columns": (
        changed(lambda np, a, i: assigned(np, a, (slice(None), i), 2.5)),
        (drawn(4, 5), np.array([3, 0])),
    ),
    "setitem a list": (
        changed(lambda np, a, v: assigned(np, a, [2, 0], v)),
        (drawn(4, 5), drawn(2, 5)),
    ),
    "put": (
        changed(lambda np, a, i, v: np.put(a, i, v)),
        (drawn(4, 5), np.array([3, -1, 7]), drawn(3)),
    ),
    "putmask": (
        changed(lambda np, a, m, v: np.putmask(a, m, v)),
        (drawn(30), drawn(30) > 0.5, drawn(30) + 4),
    ),
    "place": (
        changed(lambda np, a, m, v: np.place(a, m, v)),
        (drawn(30), drawn(30) > 0.5, drawn(3) + 4),
    ),
    "putmask with a number": (
        changed(lambda np, a, m: np.putmask(a, m, 2.5)),
        (np.arange(9), np.arange(9) > 4),
    ),
    "place a list": (
        changed(lambda np, a, m: np.place(a, m, [7, 8])),
        (np.arange(9), np.arange(9) > 4),
    ),
    "put, cast": (
        changed(lambda np, a, i, v: np.put(a, i, v)),
        (np.arange(9, dtype=np.int8), np.array([3, -1, 7]), np.array([1, 300, 2])),
    ),
    "fill_diagonal": (changed(lambda np, a: np.fill_diagonal(a, 7)), (drawn(5, 6),)),
    "setitem mask": (changed(assigned), (drawn(6), drawn(6) > 0, drawn(6) + 2)),
    "setitem rows": (changed(assigned), (drawn(7, 4), np.array([6, -7, 2]), drawn(3, 4) + 2)),
    "setitem scalar": (changed(assigned, 3), (drawn(7, 4), np.array([6, -7, 2]))),
}


# What NumPy must do: duplicates, errors, what is not there.
HOST: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "singular": (lambda np, a: np.linalg.inv(a), (np.zeros((3, 3)),)),
    "not positive": (lambda np, a: np.linalg.cholesky(a), (-np.eye(3),)),
    "duplicates": (
        changed(assigned),
        (drawn(7), np.array([2, 2, 1]), np.array([1.0, 2.0, 3.0])),
    ),
    "duplicates to put": (
        changed(lambda np, a, i, v: np.put(a, i, v)),
        (drawn(7), np.array([2, -5, 1]), np.array([1.0, 2.0, 3.0])),
    ),
    "columns out of bounds": (lambda np, a, i: a[:, i], (drawn(7, 2), np.array([2]))),
    "a mask too narrow": (lambda np, a, m: a[m, :], (drawn(7, 2), np.ones(6, bool))),
    "out of bounds": (lambda np, a, i: a[i], (drawn(7), np.array([7]))),
    "far out of bounds": (lambda np, a, i: a[i], (drawn(7), np.array([3, -8]))),
    "mask too long": (lambda np, a, m: a[m], (drawn(7), np.ones(8, bool))),
    "take out of bounds": (lambda np, a: np.take(a, 100), (drawn(7),)),
    "take far out of bounds": (lambda np, a, i: np.take(a, i, 0), (drawn(7, 2), np.array([7]))),
    "take, clipped": (
        lambda np, a, i: np.take(a, i, mode="clip"),
        (drawn(7), np.array([-100, 3, 100])),
    ),
    "take_along_axis out of bounds": (
        lambda np, a, i: np.take_along_axis(a, i, 0),
        (drawn(4, 3), np.array([[0, 1, 4]])),
    ),
    "compress out of bounds": (
        lambda np, m, a: np.compress(m, a),
        (np.arange(9) > 7, drawn(8)),
    ),
    "compress rows out of bounds": (
        lambda np, m, a: np.compress(m, a, axis=0),
        (np.arange(9) > 7, drawn(8, 2)),
    ),
    "extract out of bounds": (
        lambda np, m, a: np.extract(m, a),
        (np.arange(9) > 7, drawn(8)),
    ),
    "put out of bounds": (
        changed(lambda np, a, i, v: np.put(a, i, v)),
        (drawn(4, 5), np.array([20]), drawn(1)),
    ),
    "put, clipped": (
        changed(lambda np, a, i, v: np.put(a, i, v, mode="clip")),
        (drawn(4, 5), np.array([20, -30]), drawn(2)),
    ),
    "setitem out of bounds": (changed(assigned), (drawn(7), np.array([7]), drawn(1))),
    "setitem mask too long": (changed(assigned), (drawn(7), np.ones(8, bool), drawn(1))),
    "setitem too many": (changed(assigned), (drawn(7), np.arange(7) > 3, drawn(4))),
    "putmask, narrowed": (
        changed(lambda np, a, m, v: np.putmask(a, m, v)),
        (np.arange(9), np.arange(9) > 4, drawn(9)),
    ),
    "place, narrowed": (
        changed(lambda np, a, m, v: np.place(a, m, v)),
        (np.arange(9), np.arange(9) > 4, drawn(9)),
    ),
    "place too large": (
        changed(lambda np, a, m: np.place(a, m, [300])),
        (np.arange(9, dtype=np.int8), np.arange(9) > 4),
    ),
    "indices in columns": (
        lambda np, a, i: a[i.T],
        (drawn(7), np.arange(6).reshape(2, 3)),
    ),
    "svd of NaN": (lambda np, a: np.linalg.svd(a), (np.full((3, 3), np.nan),)),
    "unique rows": (lambda np, a: np.unique(a, axis=0), (np.arange(30).reshape(10, 3) % 3,)),
    "put of complex": (
        changed(lambda np, a, i, v: np.put(a, i, v)),
        (drawn(5), np.array([3]), drawn(1) * 1j),
    ),
    "det": (lambda np, a: np.linalg.det(a), (np.eye(3),)),
    "longer second": (lambda np, a, v: np.correlate(a, v, "full"), (drawn(4), drawn(9))),
}


# Of these a library may turn signs of vectors around.
SIGNS = ("linalg.qr", "linalg.svd", "linalg.eigh")


def same(got: Any, expected: Any, close: float = 0.0, signs: bool = True) -> None:
    """Compare results, their types and strides, and what errors say."""
    if isinstance(expected, Exception):
        assert type(got) is type(expected) and str(got) == str(expected), (got, expected)
    elif isinstance(expected, tuple):
        assert type(got) is type(expected) and len(got) == len(expected), (type(got), expected)
        for one, other in zip(got, expected, strict=True):
            same(one, other, close, signs)
    else:
        array = np.asarray(got)
        assert array.dtype == np.asarray(expected).dtype, (array.dtype, expected)
        assert array.shape == np.asarray(expected).shape, (array.shape, expected)
        assert array.strides == np.asarray(expected).strides, (array.strides, expected)
        if not signs:
            array, expected = np.abs(array), np.abs(expected)
        if close and array.dtype.kind in "fc":
            close = max(close, 16 * float(np.finfo(array.dtype).eps))
        np.testing.assert_allclose(array, expected, rtol=close, atol=close)


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(*args)
    except Exception as error:
        return error


def check(close: float = 0.0) -> None:
    """Run every call on the device, and see that it did what it can. The library of the stand-in
    is NumPy, whose bits come back; ``close`` is for a card's own."""
    from alight._src.log.decisions import LOG

    faults = []
    for calls, there in ((CALLS, True), (HOST, False)):
        for name, (call, arrays) in calls.items():
            with alight.policy(force="cuda:0", floor=0):
                ours = [alight.asarray(a) + (a.dtype.type(0)) for a in arrays]
                LOG.reset()
                signs = not close or not name.startswith(SIGNS)  # a card's are not NumPy's
                # a sum of products that is generated has a bound: five terms, all positive
                near = max(close, 5 * 2.0**-52) if name == "einsum" else close
                try:
                    same(outcome(call, alight, *ours), outcome(call, np, *arrays), near, signs)
                except AssertionError as error:
                    faults.append(f"{name}: {error}"[:500])
            log = LOG.snapshot()
            if there and (log.exits or log.fallbacks):
                faults.append(f"{name} left the device: {log.exits} {log.fallbacks}")
            if not there and not (log.exits or log.fallbacks):
                faults.append(f"{name} did not leave the device")
    assert not faults, "\n".join(faults)
    # what lies on the device alone is not fetched
    with alight.policy(force="cuda:0", floor=0):
        a = alight.asarray(positive()) + 0
        alight.evaluate(a)
    LOG.reset()
    with alight.policy(devices=["cuda:0", "cpu"]):
        found = np.linalg.inv(a)
    assert LOG.snapshot().counts["downloads"] == 0
    same(found, np.linalg.inv(positive()), close)
    print("done")
