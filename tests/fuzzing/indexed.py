"""Moves that read and write by masks, arrays of indices and single indices."""

from __future__ import annotations

from typing import Any

import numpy as np

import alight

from .moves import assigned, fitting, move, scalar
from .pool import Pair, Pool, castable, outcomes


@move(6)
def masked(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    if not pair.plain.ndim or pair.plain.dtype.kind == "c":
        return
    limit = r.randint(-2, 4)
    plain, ours = pair.plain > limit, pair.ours > limit
    kind = r.randrange(6)
    if kind == 0:
        pool.add(pair.plain[plain], pair.ours[ours])
    elif kind == 1:
        number = scalar(pool)
        assigned(pool, pair, plain, Pair(number, number), ours)
    elif kind == 2:
        other = pool.pick()
        if other.plain.shape == plain.shape and castable(other.plain, pair.plain.dtype):
            assigned(pool, pair, plain, Pair(other.plain[plain], other.ours[ours]), ours)
    elif kind == 3:
        number = scalar(pool)
        outcomes(
            lambda: np.copyto(pair.plain, number, where=plain),
            lambda: np.copyto(pair.ours, number, where=ours),
        )
    elif kind == 4:
        other = fitting(pool, pair.plain)
        outcomes(
            lambda: np.copyto(pair.plain, other.plain, where=plain),
            lambda: np.copyto(pair.ours, other.ours, where=ours),
        )
    else:
        pool.add(plain, ours)


@move(4)
def partly_masked(pool: Pool) -> None:
    """A mask of some axes, with slices, integers, arrays of them, new axes and an ellipsis."""
    r = pool.random
    pair = pool.pick()
    ndim = pair.plain.ndim
    if not ndim or pair.plain.dtype.kind == "c" or not pair.plain.size:
        return
    first, last = r.choice(((0, 1), (ndim - 1, ndim), (0, min(2, ndim))))
    part: Any = tuple([slice(None) if first <= i < last else 0 for i in range(ndim)])
    limit = r.randint(-2, 4)
    plain, ours = pair.plain[part] > limit, pair.ours[part] > limit
    before: list[Any] = [slice(None, None, r.choice((1, 1, -1))) for _ in range(first)]
    after: list[Any] = []
    if last < ndim:
        length = pair.plain.shape[last]
        choices = (slice(None), slice(0, 2), r.randrange(-length, length), [0], ..., None)
        after.append(r.choice(choices))
    key, our_key = (*before, plain, *after), (*before, ours, *after)
    if r.random() < 0.4:
        both = outcomes(lambda: pair.plain[key], lambda: pair.ours[our_key])
        if both is not None:
            pool.add(*both)
        return
    number = scalar(pool)
    assigned(pool, pair, key, Pair(number, number), our_key)


@move(4)
def gathered(pool: Pool) -> None:
    """Arrays of integers for several axes at once, as lists, ndarrays and Arrays."""
    r = pool.random
    pair = pool.pick()
    shape = pair.plain.shape
    if not shape or not pair.plain.size:
        return
    form = r.choice(((2,), (3,), (2, 1), (1, 2), (2, 2), (0,)))
    key: list[Any] = []
    our_key: list[Any] = []
    for length in shape[: r.randint(1, len(shape))]:
        if r.random() < 0.25:
            parts: Any = r.choice(
                ((slice(None),), (slice(None, None, -1),), (r.randrange(length),), (None, 0))
            )
            key += parts
            our_key += parts
            continue
        index = np.asarray(pool.generator.integers(-length, length, form))
        kind = r.randrange(3)
        key.append(index)
        our_key.append(
            (index, index.tolist() if index.size else index, alight.asarray(index))[kind]
        )
    if r.random() < 0.5:
        both = outcomes(lambda: pair.plain[tuple(key)], lambda: pair.ours[tuple(our_key)])
        if both is not None:
            pool.add(*both)
        return
    item = fitting(pool, pair.plain[tuple(key)])
    if isinstance(item.plain, np.ndarray) and item.plain.size > 1:
        number = scalar(pool)  # of equal indices the last wins: only where all write the same
        item = Pair(number, number)
    assigned(pool, pair, tuple(key), item, tuple(our_key))


@move(4)
def put_somewhere(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    number = r.choice((0, 1, 3, True))
    size = pair.plain.size
    kind = r.randrange(5)
    if kind == 0:
        index = [r.randrange(-size - 1, size + 1) for _ in range(r.randint(0, 3))] if size else []
        mode = r.choice(("raise", "wrap", "clip"))
        values = r.choice((number, [1, 2], [3]))
        outcomes(
            lambda: np.put(pair.plain, index, values, mode=mode),
            lambda: np.put(pair.ours, index, values, mode=mode),
        )
    elif kind in (1, 2) and pair.plain.dtype.kind != "c":
        function = np.place if kind == 1 else np.putmask
        limit = r.randint(-2, 4)
        plain, ours = pair.plain > limit, pair.ours > limit
        values = r.choice(([1, 2], [number], [1, 0, 1]))
        outcomes(
            lambda: function(pair.plain, plain, values), lambda: function(pair.ours, ours, values)
        )
    elif kind == 3:
        outcomes(
            lambda: np.fill_diagonal(pair.plain, number),
            lambda: np.fill_diagonal(pair.ours, number),
        )
    elif pair.plain.ndim and size:
        length = pair.plain.shape[-1]
        index = pool.generator.integers(-length, length, (*pair.plain.shape[:-1], 2))
        if r.random() < 0.5:
            outcomes(
                lambda: np.put_along_axis(pair.plain, index, number, axis=-1),
                lambda: np.put_along_axis(pair.ours, index, number, axis=-1),
            )
        else:
            pool.add(
                np.take_along_axis(pair.plain, index, axis=-1),
                np.take_along_axis(pair.ours, alight.asarray(index), axis=-1),
            )


@move(3)
def one_element(pool: Pool) -> None:
    """Views without axes, which NumPy keeps as arrays: read, written, given as ``out=``."""
    r = pool.random
    pair = pool.pick()
    if not pair.plain.size:
        return
    key = (*[r.randrange(-n, n) for n in pair.plain.shape], ...)
    plain, ours = pair.plain[key], pair.ours[key]
    number = scalar(pool)
    kind = r.randrange(6)
    if kind == 0:
        assigned(pool, Pair(plain, ours), r.choice(((), ...)), Pair(number, number))
    elif kind == 1:
        outcomes(lambda: plain.fill(number), lambda: ours.fill(number))
    elif kind == 2:
        outcomes(lambda: np.add(plain, number, out=plain), lambda: np.add(ours, number, out=ours))
    elif kind == 3:
        pool.add(plain[None], ours[None])
    elif kind == 4:
        pool.add(plain.reshape(1, 1), ours.reshape(1, 1))
    else:
        pool.add(plain, ours)


@move(2)
def parts_of_numbers(pool: Pool) -> None:
    """Write the real or the imaginary part."""
    r = pool.random
    pair = pool.pick()
    name = r.choice(("real", "imag"))
    number = r.choice((0, 2, 1.0))
    if not pair.plain.ndim and not pair.plain.flags.writeable:
        return  # NumPy 2.5 writes into these

    def change(array: Any) -> None:
        setattr(array, name, number)

    outcomes(lambda: change(pair.plain), lambda: change(pair.ours))


@move(5)
def fancy(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    if not pair.plain.ndim or not pair.plain.size:
        return
    length = pair.plain.shape[0]
    index = [r.randrange(-length, length) for _ in range(r.randint(0, 4))]
    key: Any = r.choice((index, np.array(index, int), (index, ...), (None, index)))
    kind = r.randrange(4)
    if kind == 0:
        pool.add(pair.plain[key], pair.ours[key])
    elif kind == 1:
        number = scalar(pool)
        assigned(pool, pair, key, Pair(number, number))
    elif kind == 2:
        pool.add(np.take(pair.plain, index, axis=0), np.take(pair.ours, index, axis=0))
    elif pair.plain.dtype.kind in "iuf" and pair.plain.flags.writeable:
        # NumPy's ufunc.at writes to read-only arrays, too.
        outcomes(lambda: np.add.at(pair.plain, index, 1), lambda: np.add.at(pair.ours, index, 1))
