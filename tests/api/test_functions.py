"""NumPy's functions on Arrays: the same values, dtypes, shapes, strides, errors and changes in
place.

Each case is an expression that is evaluated with NumPy and ndarrays, then with alight and Arrays
(`np` is alight), then with NumPy's own functions and Arrays; what it leaves in its arguments is
compared, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight


def inputs() -> dict[str, np.ndarray[Any, Any]]:
    """Return fresh operands of many layouts and dtypes."""
    rng = np.random.default_rng(7)
    big = rng.normal(size=(6, 8))
    return {
        "m": rng.normal(size=(3, 4)),
        "n": rng.normal(size=(3, 4)),
        "t": rng.normal(size=(4, 3)).T,  # Fortran order
        "s": big[::2, ::-2],  # holes, and an axis that runs backwards
        "p": rng.normal(size=(2, 3, 4)),
        "q": np.asfortranarray(rng.normal(size=(2, 3, 4))),
        "v": rng.normal(size=4),
        "w": np.array([0.5, 1.5, -2.5, 2.5]),
        "c": rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4)),
        "i": rng.integers(-9, 9, (3, 4)),
        "j": np.array([2, 0, 1, 2]),
        "u": rng.integers(0, 200, (3, 4)).astype(np.uint8),
        "f": rng.normal(size=(3, 4)).astype(np.float32),
        "h": rng.normal(size=5).astype(np.float16),
        "b": rng.random((3, 4)) > 0.5,
        "g": np.array([[1.0, np.nan, -0.0, np.inf], [0.0, 2.0, -np.inf, 5.0]]),
        "e": np.zeros((0, 3)),
        "o": np.zeros((3, 0)),
        "z": np.array(2.5),
        "x": np.sort(rng.normal(size=9)),
        "sq": rng.normal(size=(3, 3)),
    }


CALLS = """
np.sum(m), np.sum(m, axis=0), np.sum(t, 1), np.sum(p, axis=(0, 2), keepdims=True), np.sum(u)
np.sum(b, axis=-1), np.sum(m, 0, np.float32), np.sum(i, dtype=float), np.sum(m, where=b)
np.sum(m, axis=1, where=b, initial=2), np.sum(f, axis=1), np.sum(h), np.prod(u, axis=0)
np.prod(w, initial=3.0), np.sum(e, axis=0), np.sum(o, axis=1), np.sum(z), np.max(m)
np.max(t, axis=0), np.min(s, axis=1), np.amax(i), np.amin(c, axis=0)
np.max(m, axis=0, initial=0.25, where=b), np.any(b, axis=0), np.all(b), np.any(m)
np.all(i, axis=1), np.any(e), np.all(b, keepdims=True), np.ptp(m, axis=1), np.ptp(u), np.mean(m)
np.mean(f, axis=0), np.mean(i), np.mean(b), np.mean(h), np.mean(m, axis=1, where=b)
np.mean(q, axis=(1, 2)), np.var(m), np.var(m, axis=0, ddof=1), np.std(f)
np.std(m, axis=1, correction=1), np.std(m, mean=np.mean(m)), np.var(c), np.var(m, keepdims=True)
np.argmin(m), np.argmax(t, axis=0), np.argmax(b), np.argmin(i, axis=1, keepdims=True)
np.nanargmax(m), np.count_nonzero(i), np.count_nonzero(b, axis=0)
np.count_nonzero(m, axis=1, keepdims=True), np.nansum(g), np.nanmax(g, axis=0)
np.nanmin(g, axis=1), np.nanmean(g[:, :3], axis=1), np.nanprod(m), np.nanstd(m)
np.nanvar(f, axis=1), np.nansum(i, axis=0), np.cumsum(m), np.cumsum(m, axis=0)
np.cumsum(u, axis=1), np.cumprod(t, axis=1), np.cumsum(b), np.nancumsum(g, axis=1)
np.cumulative_sum(v), np.cumulative_sum(m, axis=0), np.cumulative_prod(v, include_initial=True)
np.cumsum(i, dtype=np.int16), np.average(m), np.average(m, axis=0)
np.average(m, axis=1, weights=v), np.average(v, weights=w, returned=True), np.median(m)
np.median(m, axis=0), np.percentile(m, 30), np.quantile(m, [0.1, 0.9], axis=1)
np.nanmedian(g, axis=0), np.where(b, m, n), np.where(b, m, 0), np.where(b, 1, 2)
np.where(i > 0, i, m), np.where(i, m, t), np.where(b), np.where(m > 0, f, 1), np.clip(m, -0.5, 0.5)
np.clip(u, 10, 300), np.clip(i, None, 3), np.clip(m, v, 1.0), np.clip(i, 1.5, 3.5)
np.clip(m, min=0), np.clip(m, None, None), np.clip(f, -1, n), m.clip(0), m.clip(max=0.2)
np.clip(u, -5, 20), np.clip(i, min=-2, max=2), np.nan_to_num(g)
np.nan_to_num(g, nan=7.0, posinf=8.0, neginf=9.0), np.nan_to_num(i), np.nan_to_num(c), np.round(m)
np.round(m, 2), np.round(w), np.round(i, -1), np.around(f, 1), np.round(c, 1), m.round(3)
np.round(u), np.round(g, 1), np.angle(c), np.angle(c, deg=True), np.angle(m), np.real(c)
np.imag(c), np.imag(m), np.imag(t), np.imag(m.T[::2])
np.real(m), np.conj(c), np.sinc(m), np.fix(m), np.isclose(m, n)
np.isclose(m, m + 1e-9), np.isclose(g, g, equal_nan=True), np.isclose(i, 3)
np.isclose(m, v, rtol=0.5), np.allclose(m, m), np.allclose(m, n), np.allclose(g, g, equal_nan=True)
np.array_equal(m, m), np.array_equal(m, v), np.array_equal(g, g)
np.array_equal(g, g, equal_nan=True), np.array_equiv(m, m), np.diff(v), np.diff(m, axis=0)
np.diff(p, n=2), np.diff(b), np.diff(u, axis=1), np.diff(m, prepend=0), np.diff(v, n=0)
np.diff(v, 9), np.gradient(v), np.gradient(m, axis=0), np.ediff1d(i), np.trapezoid(m), np.unwrap(v)
np.interp(w, x, x), np.i0(v), np.add(m, n), np.add(m, t), np.subtract(s, m), np.multiply(m, 2)
np.divide(i, 3), np.add(u, 5), np.add(f, 1.5), np.add(m, v), np.sqrt(m * m), np.negative(i)
np.absolute(c), np.exp(f), np.sin(t), np.floor_divide(i, 4), np.remainder(i, 4)
np.power(m * m, 1.5), np.maximum(m, n), np.fmin(g, 1), np.logical_and(b, m), np.isnan(g)
np.isfinite(g), np.sign(i), np.hypot(m, n), np.arctan2(m, n), np.divmod(i, 3), np.modf(m)
np.frexp(m), np.ldexp(m, j), np.copysign(1.0, m), np.nextafter(m, n), np.left_shift(i, 2)
np.invert(b), np.add(m, n, dtype=np.float32), np.add(m, n, where=True), np.equal(i, i)
np.less(m, 0), np.logaddexp(m, n), np.square(c), np.exp2(h), np.add.reduce(m)
np.add.reduce(m, axis=None), np.multiply.accumulate(m, axis=1), np.maximum.reduce(t, axis=1)
np.add.outer(v, w), np.subtract.outer(v, m), np.add.reduceat(v, [0, 2])
np.logical_or.reduce(b, axis=1), np.hypot.reduce(m, axis=0), np.add.reduce(b)
np.add.reduce(m, axis=(0, 1)), np.bitwise_or.reduce(i, axis=1), np.minimum.accumulate(m)
np.add.at(v, [0, 0, 1], 1.0), v.sort(), m.sort(axis=0), v[1:].sort(), t.argsort(), v.take(j)
m.repeat(2, 1), x.searchsorted(v), sq.trace(), np.matmul(m, t.T), m @ n.T, m @ v, v @ w
np.matmul(p, q.transpose(0, 2, 1)), np.matmul(i, i.T), np.matmul(c, c.T), np.matmul(b, b.T)
np.dot(m, n.T), np.dot(v, w), np.dot(m, v), np.dot(m, 2.0), np.dot(p, v), np.vdot(c, c)
np.inner(m, n), np.inner(v, w), np.outer(v, w), np.outer(m, v), np.vecdot(m, n), np.vecdot(c, c)
np.kron(m, n), np.kron(v, m), np.tensordot(m, n, axes=([1], [1])), np.matvec(m, v)
np.tensordot(p, p, axes=2 + 1), np.tensordot(p, m, axes=((1, 2), (0, 1))), np.tensordot(m, n.T, 1)
np.trace(sq), np.trace(m, 1), np.trace(p, axis1=1, axis2=2), np.trace(u), np.cross(sq, sq)
np.convolve(v, w), np.convolve(v, w, "same"), np.correlate(v, w, "full")
np.einsum("ij,kj->ik", m, n), np.einsum("ij->ji", m), np.einsum("ii", sq), np.einsum("ij,j", m, v)
np.einsum("ijk->k", p), np.einsum("ij,ij->i", t, m)
np.einsum("ij,jk,kl->il", m, n.T, m, optimize=True), np.einsum(m, [0, 1], [1, 0])
np.einsum("i,j->ij", v, w), np.concatenate([m, n]), np.concatenate([m, n], axis=1)
np.concatenate([m, t], axis=None), np.concatenate([t, t]), np.concatenate([m, i])
np.concatenate([s, t], axis=1), np.concatenate((v, w, v))
np.concatenate([m, n], dtype=np.float32, casting="same_kind"), np.concat([m, n]), np.stack([m, n])
np.stack([m, n], axis=1), np.stack([t, t], axis=-1), np.vstack([v, m]), np.hstack([m, n])
np.hstack([v, w]), np.dstack([m, n]), np.column_stack([v, w]), np.column_stack([m, n])
np.stack([z, z]), np.stack(m), np.concatenate([e, m[:, :3]]), np.append(m, n)
np.append(m, n, axis=0), np.append(v, 3), np.append(f, 3), np.block([[m, n], [n, m]])
np.insert(v, 1, 9.0), np.delete(v, 1), np.delete(m, 1, axis=0), np.delete(m, 0, 1)
np.delete(v, [0, 2]), np.delete(t, 1, axis=1), np.resize(m, (2, 5)), np.split(m, 3)
np.split(m, [1, 2], axis=1), np.array_split(v, 3), np.hsplit(m, 2), np.vsplit(m, 3)
np.split(v, j[1:3]), np.vsplit(m, j[2:3]), np.array_split(v, indices_or_sections=j[1:3])
np.dsplit(p, 2), np.unstack(m), np.unstack(m, axis=1), np.repeat(m, 2), np.repeat(m, 2, axis=0)
np.repeat(v, [1, 0, 2, 1]), np.repeat(t, 3, axis=1), np.tile(v, 3), np.tile(m, (2, 1))
np.tile(m, (2, 1, 2)), np.tile(t, 2), np.roll(m, 1), np.roll(m, 1, axis=0)
np.roll(t, (1, 2), axis=(0, 1)), np.roll(v, -6), np.pad(m, 1), np.pad(v, (1, 2))
np.pad(m, ((1, 0), (0, 2)), mode="edge"), np.pad(v, 2, mode="reflect"), np.pad(t, 1)
np.pad(m, 1, constant_values=4), np.pad(v, 2, mode="linear_ramp", end_values=1), np.tril(m)
np.triu(m, 1), np.tril(t, -1), np.triu(v), np.triu(p), np.diag(v), np.diag(m), np.diag(v, 1)
np.diagflat(m), np.diagonal(m), np.diagonal(p, 1, 0, 2), np.fliplr(m), np.flipud(m), np.flip(m)
np.flip(m, 1), np.rot90(m), np.rot90(m, 2), np.transpose(p), np.transpose(p, (1, 0, 2))
np.swapaxes(p, 0, 2), np.moveaxis(p, 0, -1), np.rollaxis(p, 2), np.squeeze(m[:, :1])
np.expand_dims(m, 1), np.expand_dims(m, (0, 3)), np.matrix_transpose(p)
np.permute_dims(p, (2, 0, 1)), np.reshape(m, (2, 6)), np.reshape(t, -1)
np.reshape(t, (2, 6), order="F"), np.reshape(m, (4, 3), order="A"), np.ravel(m), np.ravel(t)
np.ravel(t, "K"), np.ravel(s, "F"), np.ravel(z), np.atleast_1d(z), np.atleast_2d(v)
np.atleast_3d(m), np.atleast_1d(z, v), np.broadcast_to(v, (3, 4)), np.broadcast_arrays(m, v)
np.meshgrid(v, j), np.meshgrid(v, j, indexing="ij"), np.meshgrid(v, j, sparse=True), np.copy(t)
np.copy(s), np.copy(t, order="C"), np.ix_(j, j), m.flatten(), t.flatten("K"), s.flatten("K")
q.flatten("F"), s.flatten("A"), p.ravel("K"), z.flatten("K"), np.take(m, [0, 2])
np.take(m, [2, 0], axis=0), np.take(m, j, axis=1), np.take(v, -1)
np.take(m, [[0, 1], [2, 3]], axis=1), np.take(v, [9], mode="clip"), np.take(t, j, axis=0)
np.take_along_axis(m, np.argsort(m, axis=1), axis=1), np.take_along_axis(v, j, 0)
np.compress([True, False, True], m, axis=0), np.extract(b, m), np.choose(j, [v, w, v])
np.select([m > 0, m < -1], [m, n], 5.0), np.searchsorted(x, v), np.searchsorted(x, w, side="right")
np.searchsorted(x, 0.0), np.digitize(v, x), np.sort(m), np.sort(m, axis=0), np.sort(t)
np.sort(m, axis=None), np.sort(i, kind="stable"), np.argsort(m), np.argsort(m, axis=0)
np.argsort(i, kind="stable"), np.partition(v, 1), np.argpartition(v, 2), np.lexsort((v, w))
np.sort_complex(v), np.sort(z[None]), np.nonzero(i), np.argwhere(b), np.flatnonzero(i)
np.unique(i), np.unique(i, return_counts=True), np.unique_values(i), np.isin(i, [1, 2])
np.union1d(j, j), np.intersect1d(i, j), np.setdiff1d(i, j), np.bincount(j)
np.bincount(j, weights=v), np.histogram(m), np.histogram(v, bins=3, range=(-1, 1)), np.cov(m)
np.corrcoef(m), np.put(v, [0, 1], [5, 6]), np.place(m, b, [1, 2]), np.putmask(m, b, n)
np.put_along_axis(m, j[:, None][:3], 9.0, axis=1), np.fill_diagonal(sq, 7), np.copyto(m, n)
np.copyto(m, v), np.copyto(i, u), np.copyto(m, 3), np.copyto(m, n, where=b)
np.nan_to_num(g, copy=False), np.add(m, n, out=m), np.add(m, 1, out=n, where=b)
np.sum(m, axis=0, out=v), np.matmul(m, n.T, out=sq), np.concatenate([v[:2], w[:2]], out=v)
np.cumsum(m, axis=1, out=n), np.round(m, 1, out=n), np.clip(m, 0, 1, out=m), np.sqrt(m * m, m)
np.take(v, [0, 1, 2, 3], out=w), np.mean(m, 1, out=v[:3]), np.zeros_like(t), np.ones_like(s)
np.add(v, w, out=m), np.add(v, 1, out=t, where=b), np.multiply(z, i[0, 0], out=v[:1])
np.divmod(v, w, out=(m, n)), np.divmod(v, w, out=(m, None)), np.sqrt(z, out=s, where=b)
np.add(m, i, casting="unsafe"), np.multiply(m, 2.5, out=i, casting="unsafe")
np.add(u, 3, casting="no"), np.subtract(m, n, out=f, casting="same_kind"), np.sin(f, casting="safe")
np.bitwise_or(m, i, casting="unsafe", dtype=int), np.divmod(i, 3, casting="equiv")
np.add(v, w, out=p), np.add(m[:1], v, out=m), np.multiply(m, 2, out=p, where=b[:1])
np.full_like(t, 3), np.zeros_like(m, dtype=int), np.ones_like(m, shape=(2, 2))
np.zeros_like(q, order="C"), np.zeros((2, 3)), np.ones(3, int), np.full((2, 2), 7), np.arange(5)
np.arange(1, 9, 2.5), np.linspace(0, 1, 5), np.logspace(0, 2, 3), np.eye(3, k=1), np.identity(2)
np.tri(3), np.indices((2, 2)), np.geomspace(1, 8, 4), np.vander(v, 3)
np.fromfunction(lambda x, y: x + y, (2, 3)), np.hanning(4), np.array(m), np.array(t)
np.array(t, order="C"), np.array([v, w]), np.array([[v[0], 1.0], [2, 3]]), np.array(m, ndmin=4)
np.array(m, dtype=np.float32), np.asarray([1, 2.5]), np.asarray(m, dtype=int), np.asarray(3)
np.asarray(u), np.ascontiguousarray(t), np.asfortranarray(m), np.ascontiguousarray(z)
np.require(t, requirements="C"), np.frombuffer(b"abcdefgh", dtype=np.int16)
np.fromiter(range(4), float), np.r_[1:4, 0, v], np.c_[v, w], np.mgrid[0:2, 0:3], np.shape(m)
np.ndim(m), np.size(m), np.size(m, 1), np.result_type(f, i), np.can_cast(m.dtype, int)
np.iscomplexobj(c), np.isscalar(3.0), np.common_type(f, i), np.linalg.norm(m)
np.linalg.norm(m, axis=1), np.linalg.norm(t, 2, 0, True), np.linalg.norm(c, axis=(1,))
np.linalg.norm(s, 1, -1), np.linalg.norm(m, np.inf, 0), np.linalg.norm(c, -np.inf, 1)
np.linalg.norm(q, axis=(0, 2)), np.linalg.norm(p, "fro", (-1, 0)), np.linalg.norm(c, 3, 1)
np.linalg.norm(i, axis=1), np.linalg.norm(g, axis=0), np.linalg.norm(g, 1, 1), np.linalg.norm(v, 2)
np.linalg.norm(m, axis=2), np.linalg.norm(m, "bad", 1), np.linalg.norm(p, axis=(0, 0))
np.linalg.norm(e, axis=1), np.linalg.norm(o, np.inf, 1), np.linalg.norm(h, axis=0)
np.linalg.norm(f, axis=0), np.linalg.norm(p, axis=(0, 1, 2)), np.linalg.norm(m, axis=1.0)
np.linalg.inv(sq), np.linalg.det(sq), np.linalg.solve(sq, sq)
np.linalg.svd(m), np.linalg.qr(sq), np.linalg.matmul(m, n.T), np.linalg.trace(p)
np.linalg.diagonal(p), np.linalg.outer(v, w), np.linalg.matrix_transpose(m), np.linalg.vecdot(m, n)
np.linalg.matrix_power(sq, 3), np.linalg.cholesky(sq @ sq.T + 9 * np.eye(3))
np.linalg.eigh(sq @ sq.T)[0], np.linalg.multi_dot([m, n.T, m]), np.linalg.pinv(m), np.fft.fft(v)
np.fft.rfft(m, axis=0), np.fft.ifft(c), np.fft.fft2(m), np.fft.fftshift(v), np.fft.fftfreq(5, 0.1)
np.polyval([1, 2, 3], v), np.polyfit(x, x * 2, 1), np.apply_along_axis(np.sum, 0, m)
np.piecewise(v, [v > 0], [1, 2]), np.vectorize(lambda a: a + 1)(v), np.packbits(b)
np.bitwise_count(u), np.astype(m, np.int32), np.heaviside(m, 0.5), np.array2string(v)
np.array_repr(m), np.ndim([[1]]), np.sum([v, w]), np.sum([[1, 2], [3, 4]], axis=0)
np.mean([1, 2, 4]), np.sort([3, 1, 2]), np.maximum([1, 5], 3), np.concatenate([[1, 2], v])
np.dot([1, 2], [3, 4]), np.where([True, False], 1, 2)
"""

ERRORS = """
np.add(x, x, ...), np.negative(x, ...), np.divmod(x, x, ...), np.add.reduce(m, 0, None, ...)
np.add.accumulate(m, 0, None, ...), np.negative(x, out=(...,))
np.add(m, v[:3]), np.add(m, "a"), np.sum(m, axis=2), np.sum(m, axis=(0, 0)), np.sum(m, axis="x")
np.sum(m, nonsense=1), np.sum(), np.matmul(m, n), np.matmul(m, 3), m @ n, np.dot(m, n)
np.dot(v, v[:3]), np.inner(m, v[:3]), np.tensordot(m, n, 1), np.einsum("ij,jk", m, n)
np.einsum("ij", v), np.concatenate([m, v]), np.concatenate([m, n[:, :2]]), np.concatenate([])
np.concatenate([m, n], axis=2), np.concatenate([z, z]), np.stack([m, v]), np.stack([m, n], axis=4)
np.vstack([m, v[:3]]), np.split(m, 2), np.split(m, 2, axis=5), np.array_split(v, 0)
np.hsplit(z, 2), np.dsplit(m, 2), np.reshape(m, (5, 5)), np.reshape(m, (-1, -1))
np.transpose(m, (0, 0)), np.transpose(m, (0,)), np.swapaxes(m, 0, 3), np.squeeze(m, 0)
np.moveaxis(m, 0, 4), np.expand_dims(m, 9), np.broadcast_to(m, (2, 2))
np.broadcast_arrays(m, v[:3]), np.take(v, 9), np.take(v, [0, 9]), np.take(m, 0, axis=3)
np.take(v, [0.5]), np.take_along_axis(m, j, axis=0), np.repeat(v, -1), np.repeat(v, [1, 2])
np.repeat(m, 2, axis=4), np.roll(m, 1, axis=3), np.tile(m), np.pad(m, -1), np.pad(m, 1, mode="x")
np.clip(m), np.clip(m, 1), np.clip(m, 0, 1, min=2), np.clip(m, v[:3], 1), np.where(b, m)
np.where(b, m, v[:3]), np.sort(m, axis=3), np.sort(m, kind="x"), np.argsort(z)
np.cumsum(m, axis=2), np.cumulative_sum(m), np.argmax(e), np.max(e), np.min(o, axis=1)
np.mean(m, axis=5), np.var(m, ddof=1, correction=1), np.diff(m, axis=4), np.diff(v, n=-1)
np.diff(z), np.trace(v), np.diagonal(v), np.diag(p), np.searchsorted(x, v, side="up")
np.partition(v, 9), np.nonzero(), np.add(m, n, out=np.broadcast_to(v, (3, 4)))
np.compress([True], m, axis=3), np.add(m, n, out=v), np.add(m, n, out=i), np.add(m, n, out=(m, n))
np.add(m), np.add(m, n, m, m), np.sin(m, dtype=int), np.sum(m, axis=0, out=m)
np.add(m, 1, nonsense=2), np.bitwise_and(m, n), np.left_shift(m, 1), np.invert(m), np.add(u, 300)
np.divmod(v, w, m, v), np.divmod(m, n, v, m), np.add(v, w, out=i), np.sin(m, out=v, where=b)
np.add(m, i, casting="no"), np.add(m, n, out=f, casting="safe"), np.add(m, n, casting="never")
np.add(u, 3, casting="equiv"), np.add(u, 2.5, casting="equiv"), np.subtract(2, f, casting="equiv")
np.add(i, 2**70), np.copyto(m, v[:3]), np.copyto(i, m), np.put(v, [9], 1), np.linalg.inv(m)
np.linalg.inv(np.zeros((2, 2))), np.linalg.cholesky(-np.eye(2)), np.linalg.solve(sq, v)
np.linalg.outer(m, v), np.power(i, -1), np.zeros(-1), np.zeros((2, 2), dtype="x"), np.arange()
np.full((2,)), np.asarray(m, order="X"), np.array(m, copy=False, dtype=int)
np.histogram(v, bins=-1), np.average(m, weights=v[:3]), np.choose(j, [v]), np.lexsort(3)
np.convolve(m, v), np.nanargmax(g[:, 1:2], axis=0), np.argmax(m, axis=4), np.cross(v, v)
np.unstack(z), np.matrix_transpose(v), np.vecdot(v, m[:, :2])
"""


def cases(text: str) -> list[str]:
    """Return the expressions of a table: each line is a tuple of them."""
    found = []
    for line in text.strip().splitlines():
        depth, start = 0, 0
        quoted = False
        for at, sign in enumerate(line):
            if sign == '"':
                quoted = not quoted
            if not quoted:
                depth += (sign in "([{") - (sign in ")]}")
                if sign == "," and depth == 0:
                    found.append(line[start:at].strip())
                    start = at + 1
        found.append(line[start:].strip())
    missing = [name for name in ("matvec",) if not hasattr(np, name)]  # newer than NumPy 2.1
    return [case for case in found if case and not any(name in case for name in missing)]


def outcome(expression: str, namespace: Any, convert: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    """Return result, error and the arguments as they are afterwards."""
    arguments = {name: convert(array) for name, array in inputs().items()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return eval(expression, {"np": namespace, **arguments}), None, arguments
        except Exception as error:
            return None, error, arguments


def same(actual: Any, expected: Any, where: str) -> None:
    """Assert that a result is what NumPy gave, down to the strides."""
    if isinstance(expected, (tuple, list)):
        assert isinstance(actual, (tuple, list)), where
        if type(expected) in (tuple, list):
            assert type(actual) is type(expected), where
        assert len(actual) == len(expected), where
        for one, other in zip(actual, expected, strict=True):
            same(one, other, where)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert isinstance(actual, (alight.Array, np.ndarray, np.generic)), (where, type(actual))
        assert actual.dtype == expected.dtype, where
        assert actual.shape == expected.shape, where
        assert actual.strides == expected.strides, where
        np.testing.assert_array_equal(np.asarray(actual), expected, err_msg=where)
        if expected.dtype.kind == "f":
            zeros = np.asarray(expected) == 0
            signs = np.signbit(np.asarray(actual)), np.signbit(np.asarray(expected))
            assert (signs[0][zeros] == signs[1][zeros]).all(), where
    else:
        if type(expected) is int and isinstance(actual, alight.Array):  # NumPy 2.1's counts
            assert actual.shape == () and actual.dtype == np.intp, where
        else:
            assert type(actual) is type(expected), where
        assert actual == expected or expected is None, where


def holder(array: Any) -> Any:
    """Return an Array with the same elements, strides included."""
    if array.flags.forc:
        return alight.array(array)
    big = np.zeros((6, 8))
    big[::2, ::-2] = array
    return alight.asarray(big)[::2, ::-2]


MODES = {"numpy": {"floor": 0, "force": "numpy"}, "automatic": {}}


def check(expression: str, mode: str, namespace: Any) -> None:
    expected, wrong, left = outcome(expression, np, lambda array: array)
    with alight.policy(**MODES[mode]):
        actual, error, changed = outcome(expression, namespace, holder)
        if wrong is not None:
            assert error is not None, f"{expression} did not raise {wrong!r}"
            assert type(error) is type(wrong), (expression, error, wrong)
            assert str(error) == str(wrong), expression
        else:
            assert error is None, (expression, error)
            same(actual, expected, expression)
        for name, array in left.items():
            same(changed[name], array, f"{name} after {expression}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("expression", cases(CALLS))
def test_a_function_gives_what_numpy_gives(expression: str, mode: str) -> None:
    check(expression, mode, alight)


@pytest.mark.parametrize("expression", [case for case in cases(CALLS) if "np.r_" not in case])
def test_numpys_own_function_of_arrays_gives_the_same(expression: str) -> None:
    check(expression, "numpy", np)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("expression", cases(ERRORS))
def test_an_error_is_numpys(expression: str, mode: str) -> None:
    check(expression, mode, alight)


@pytest.mark.parametrize(
    "expression",
    [
        *("m @ n.T", "np.dot(m, v)", "np.einsum('ij,kj', m, n)", "np.tensordot(m, n.T, 1)"),
        *("np.concatenate([m, n])", "np.stack([m, n])", "np.roll(m, 1)", "np.tile(m, 2)"),
        *("np.take(m, [0, 1], axis=1)", "np.sort(m)", "np.argsort(m)", "np.searchsorted(x, v)"),
        *("np.clip(m, 0, 1)", "np.round(m, 2)", "np.isclose(m, n)", "np.diff(m)", "np.kron(m, n)"),
        *("np.repeat(m, 2)", "np.pad(m, 1)", "np.triu(m)", "np.trace(sq)", "np.outer(v, w)"),
        *("np.cumsum(m, axis=0)", "np.sum(m, where=b)", "np.std(m)", "np.average(m)"),
        *("np.where(b, m, n)", "np.nan_to_num(g)", "np.angle(c)", "np.add.reduce(m)"),
        *("np.add(v, w, out=m)", "np.divmod(v, w, out=(m, n))[1]", "np.sqrt(z, out=m, where=b)"),
        *("np.add(m, i, casting='unsafe')", "np.multiply(m, 2.5, out=i, casting='unsafe')"),
    ],
)
def test_a_function_of_the_table_is_recorded(expression: str) -> None:
    arguments = {name: holder(array) for name, array in inputs().items()}
    with alight.policy(floor=0, force="numpy"):
        pending = {name: array + 0 for name, array in arguments.items() if name != "b"}
        result = eval(expression, {"np": alight, "b": arguments["b"], **pending})
        assert result.storage.value.op is not None, f"{expression} was computed at the call"


def test_the_comparison_can_fail() -> None:
    with pytest.raises(AssertionError):
        same(np.ones((2, 3)).T, np.ones((3, 2)), "strides")
    with pytest.raises(AssertionError):
        same(np.array([0.0]), np.array([-0.0]), "sign")
    # A table that is cut wrongly would leave most of itself out.
    assert len(cases(CALLS)) > 500 and len(cases(ERRORS)) > 100


@pytest.mark.parametrize("keywords", [{}, {"copy": False}, {"sparse": True}, {"indexing": "ij"}])
def test_grids_are_made_of_matrices_in_any_order(keywords: dict[str, Any]) -> None:
    rows, more = np.asfortranarray(np.arange(6.0).reshape(3, 2)), np.arange(4)
    with alight.policy(floor=0, force="cpu:generated"):
        got = alight.meshgrid(alight.asarray(rows), alight.asarray(more), **keywords)
        for ours, plain in zip(got, np.meshgrid(rows, more, **keywords), strict=True):
            assert ours.strides == plain.strides and ours.tolist() == plain.tolist()


@pytest.mark.parametrize("name", ["concatenate", "stack", "vstack", "hstack", "pad"])
def test_keywords_that_have_no_place_are_not_taken_in_one(name: str) -> None:
    places = {"concatenate": (0, None), "stack": (0, None), "pad": (1, "constant")}.get(name, ())
    with alight.policy(floor=0, force="cpu:generated"):
        array = alight.ones((2, 2))
        given = array if name == "pad" else (array, array)
        with pytest.raises(TypeError, match="positional argument"):
            getattr(alight, name)(given, *places, 0)


@pytest.mark.parametrize("axes", [[], [1], [0, 1], 0, (1,)])
@pytest.mark.parametrize("floor", [0, 10_000])
def test_averages_are_over_axes_in_any_form(axes: Any, floor: int) -> None:
    x = np.arange(6.0).reshape(2, 3)
    with alight.policy(floor=floor):
        for given in (axes, np.array(axes, int), alight.asarray(np.array(axes, int))):
            wanted = np.average(x, axis=np.asarray(given) if given is not axes else axes)
            got = np.asarray(alight.average(alight.asarray(x), axis=given))
            assert got.shape == wanted.shape and got.tolist() == wanted.tolist()
