"""Moves that make views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .moves import basic_key, move
from .pool import Pool, outcomes


def _view(pool: Pool, expression: Callable[[Any], Any]) -> None:
    pair = pool.pick()
    both = outcomes(lambda: expression(pair.plain), lambda: expression(pair.ours))
    if both is not None:
        pool.add(*both)


@move(10)
def slice_of(pool: Pool) -> None:
    pair = pool.pick()
    key = basic_key(pool, pair.plain.shape)
    if all(type(part) is int for part in key) and len(key) == pair.plain.ndim:
        return
    pool.add(pair.plain[key], pair.ours[key])


@move(6)
def permuted(pool: Pool) -> None:
    r = pool.random
    ndim = pool.pick().plain.ndim
    axes = r.sample(range(ndim), ndim)
    first, second = r.randint(-2, 1), r.randint(-2, 1)
    _view(
        pool,
        r.choice(
            (
                lambda a: a.T,
                lambda a: a.transpose(axes),
                lambda a: a.swapaxes(first, second),
                lambda a: np.moveaxis(a, first, second),
                lambda a: np.flip(a),
                lambda a: np.rot90(a),
                lambda a: np.squeeze(a),
                lambda a: np.expand_dims(a, first),
                lambda a: np.atleast_2d(a),
            )
        ),
    )


@move(6)
def reshaped(pool: Pool) -> None:
    r = pool.random
    order = r.choice("CCCFA")
    pair = pool.pick()
    size, shape = pair.plain.size, pair.plain.shape
    shapes: list[Any] = [(-1,), (1, -1), shape[::-1], (*shape, 1), (size,)]
    shapes += [(n, -1) for n in (2, 3, 4) if size % n == 0]
    target = r.choice(shapes)
    letter = r.choice("CFAK")
    expressions: tuple[Callable[[Any], Any], ...] = (
        lambda a: a.reshape(target, order=order),
        lambda a: np.reshape(a, target),
        lambda a: a.ravel(letter),
        lambda a: a.flatten(order),
    )
    expression = r.choice(expressions)
    both = outcomes(lambda: expression(pair.plain), lambda: expression(pair.ours))
    if both is not None:
        pool.add(*both)


@move(3)
def other_views(pool: Pool) -> None:
    r = pool.random
    dtype = r.choice("dfliBb?hD")
    offset = r.randint(-1, 1)
    pair = pool.pick()
    kind = r.randrange(6)
    if kind == 0:
        shape = (r.randint(1, 3), *pair.plain.shape)
        pool.add(np.broadcast_to(pair.plain, shape), np.broadcast_to(pair.ours, shape))
    elif kind == 1:
        _view(pool, lambda a: a.diagonal(offset))
    elif kind == 2:
        pool.add(pair.plain.real, pair.ours.real)
    elif kind == 3 and pair.plain.dtype.kind == "c":
        pool.add(pair.plain.imag, pair.ours.imag)
    elif kind == 4 and np.dtype(dtype).kind in "iuB" and pair.plain.dtype.kind in "iu":
        # Bytes read as a float would be NaNs of any payload, read as bool anything.
        both = outcomes(lambda: pair.plain.view(dtype), lambda: pair.ours.view(dtype))
        if both is not None:
            pool.add(*both)
    elif kind == 5 and pair.plain.ndim:
        plain, ours = np.array_split(pair.plain, 2), np.array_split(pair.ours, 2)
        at = r.randrange(2)
        pool.add(plain[at], ours[at])
