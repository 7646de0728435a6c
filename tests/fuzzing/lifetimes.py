"""Moves that create, copy, export, drop and ask for arrays."""

from __future__ import annotations

import copy
import pickle

import numpy as np

import alight

from .moves import move
from .pool import Mismatch, Pair, Pool, described, elements


@move(5)
def created(pool: Pool) -> None:
    array = pool.fresh()
    ours = alight.asarray(array)
    if pool.random.random() < 0.08:
        array.flags.writeable = ours.flags.writeable = False
    pool.add(array, ours)


@move(1)
def made_read_only(pool: Pool) -> None:
    """A view that must not be written to, of an array that may change under it."""
    pair = pool.pick()
    plain, ours = pair.plain[...], pair.ours[...]
    plain.setflags(write=False)
    ours.setflags(write=False)
    pool.add(plain, ours)


@move(4)
def copied(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    order = r.choice("CFAK")
    kind = r.randrange(6)
    if kind < 4:
        pool.add(pair.plain.copy(order), pair.ours.copy(order))
    elif kind == 4:
        elements(Pair(*[pickle.loads(pickle.dumps(x)) for x in (pair.plain, pair.ours)]))
    else:
        elements(Pair(copy.deepcopy(pair.plain), copy.deepcopy(pair.ours)))


@move(4)
def exported(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    kind = r.randrange(6)
    if kind == 0:
        plain, shared = [np.asarray(memoryview(array)) for array in (pair.plain, pair.ours)]
    elif kind == 1 and pair.plain.flags.writeable:
        plain, shared = [np.from_dlpack(array) for array in (pair.plain, pair.ours)]
    else:
        plain, shared = pair.plain, np.asarray(pair.ours)
    # NumPy 2.1 gives what came by DLPack to be read only, and what is empty strides of its own.
    if (shared.strides, shared.flags.writeable) == (pair.plain.strides, pair.plain.flags.writeable):
        plain = pair.plain
    described(Pair(plain, shared))
    pool.exports.append((pair.plain, shared))
    if len(pool.exports) > 3 or r.random() < 0.3:
        del pool.exports[r.randrange(len(pool.exports))]
    written_outside(pool)


@move(2)
def written_outside(pool: Pool) -> None:
    r = pool.random
    if not pool.exports:
        return
    plain, shared = r.choice(pool.exports)
    if plain.size and plain.flags.writeable and shared.flags.writeable:
        at = r.randrange(plain.size)
        plain.flat[at] = shared.flat[at] = r.randint(0, 5)


@move(3)
def dropped(pool: Pool) -> None:
    r = pool.random
    if len(pool.pairs) > 3:
        del pool.pairs[r.randrange(len(pool.pairs))]
    elif pool.exports:
        pool.exports.pop()


@move(3)
def asked(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    kind = r.randrange(4)
    if kind == 0:
        elements(pair)
    elif kind == 1:
        alight.evaluate(pair.ours, pool.pick().ours)
    elif kind == 2 and pair.plain.size:
        at = tuple([r.randrange(n) for n in pair.plain.shape])
        got, want = pair.ours[at].item(), pair.plain[at].item()
        if got != want and not (got != got and want != want):
            raise Mismatch(f"element {at}: {got}, must be {want}")
    elif kind == 3 and pair.plain.ndim == 1 and pair.plain.size < 8:
        for got, want in zip(list(pair.ours), list(pair.plain), strict=True):
            elements(Pair(np.asarray(want), got))


@move(5)
def compared(pool: Pool) -> None:
    pool.compare()
