"""Moves that call a ufunc's methods, and ufuncs and reduces with all their keywords."""

from __future__ import annotations

from typing import Any

import numpy as np

import alight

from .moves import move, scalar, too_big
from .pool import Mismatch, Pair, Pool, outcomes, whole

# Their reductions are exact for integers in any order; extremes of floats but for the sign of a
# zero.
_REDUCING = (
    np.add, np.multiply, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.logical_and,
    np.logical_or, np.maximum, np.minimum,
)  # fmt: skip
_EXTREMES = (np.maximum, np.minimum)
_LARGEST = 20_000  # elements of what is repeated or paired with everything


def _exact(ufunc: np.ufunc, array: Any) -> bool:
    if array.dtype.kind in "biu" or ufunc in (np.logical_and, np.logical_or):
        return True
    if ufunc in _EXTREMES:
        return bool(array.dtype.kind != "c")
    return ufunc is np.add and whole(array)


def _settled(ufunc: np.ufunc, both: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return results whose zeros are all positive: which of two zeros wins is left open."""
    if ufunc in _EXTREMES and np.asarray(both[0]).dtype.kind == "f":
        return both[0] + np.int8(0), both[1] + np.int8(0)
    return both


@move(5)
def reduced(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    ufunc = r.choice(_REDUCING)
    if not _exact(ufunc, pair.plain):
        return
    plain: dict[str, Any] = {"axis": r.choice((0, -1, None, 1, (0, 1), ()))}
    if r.random() < 0.3:
        plain["keepdims"] = True
    if r.random() < 0.2:
        plain["initial"] = r.choice((0, 1, 3))
    ours = dict(plain)
    if r.random() < 0.25 and pair.plain.dtype.kind != "c":
        limit = r.randint(-2, 3)
        plain["where"], ours["where"] = pair.plain > limit, pair.ours > limit
    target = None
    if r.random() < 0.25 and not (ufunc in _EXTREMES and pair.plain.dtype.kind == "f"):
        target = _target(pool, lambda: ufunc.reduce(pair.plain, **plain))
        if target is None or np.may_share_memory(target.plain, pair.plain):
            return
        plain["out"], ours["out"] = target.plain, target.ours
    both = outcomes(
        lambda: ufunc.reduce(pair.plain, **plain), lambda: ufunc.reduce(pair.ours, **ours)
    )
    if both is None:
        return
    if target is None:
        pool.add(*_settled(ufunc, both))
    elif both[1] is not target.ours:
        raise Mismatch("out= returned another object")


def _target(pool: Pool, call: Any) -> Pair | None:
    """Return an array that a call's result fits into: one of the pool's, or a new one in it."""
    try:
        result = np.asarray(call())
    except (TypeError, ValueError):
        return None
    for pair in pool.pairs:
        if (
            pair.plain.shape == result.shape
            and pair.plain.dtype == result.dtype
            and pair.plain.flags.writeable
        ):
            return pair
    fresh = np.ones(result.shape, result.dtype)
    if pool.random.random() < 0.5:
        fresh = np.asfortranarray(fresh)
    pair = Pair(fresh, alight.asarray(fresh))
    pool.add(pair.plain, pair.ours)
    return pair


@move(3)
def accumulated(pool: Pool) -> None:
    pair = pool.pick()
    ufunc = pool.random.choice(_REDUCING)
    axis = pool.random.choice((0, -1))
    if not _exact(ufunc, pair.plain):
        return
    both = outcomes(
        lambda: ufunc.accumulate(pair.plain, axis=axis),
        lambda: ufunc.accumulate(pair.ours, axis=axis),
    )
    if both is not None:
        pool.add(*_settled(ufunc, both))


@move(1)
def reduced_at(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    ufunc = r.choice(_REDUCING)
    length = pair.plain.shape[0] if pair.plain.ndim else 1
    at = [r.randrange(length or 1) for _ in range(r.randint(1, 4))]
    if not _exact(ufunc, pair.plain):
        return
    both = outcomes(lambda: ufunc.reduceat(pair.plain, at), lambda: ufunc.reduceat(pair.ours, at))
    if both is not None:
        pool.add(*_settled(ufunc, both))


@move(3)
def outer(pool: Pool) -> None:
    first, second = pool.pick(), pool.pick()
    if first.plain.size * second.plain.size > _LARGEST:
        return
    if first.plain.ndim + second.plain.ndim > 8:
        return
    ufunc = pool.random.choice((np.add, np.subtract, np.less, np.equal, np.bitwise_xor))
    both = outcomes(
        lambda: ufunc.outer(first.plain, second.plain), lambda: ufunc.outer(first.ours, second.ours)
    )
    if both is not None:
        pool.add(*both)


@move(3)
def at_indices(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    # NumPy's ufunc.at writes to read-only arrays, too.
    if not pair.plain.size or not pair.plain.ndim or not pair.plain.flags.writeable:
        return
    if pair.plain.dtype.kind not in "iuf":
        return
    ufunc = r.choice((np.add, np.subtract, np.multiply, np.negative))
    index: Any = [r.randrange(-n, n) for n in pair.plain.shape[:1] for _ in range(r.randint(1, 4))]
    if r.random() < 0.3:
        index = (index, slice(None)) if pair.plain.ndim > 1 else (index,)
    operands: tuple[Any, ...] = () if ufunc is np.negative else (r.choice((1, 2, True)),)
    outcomes(
        lambda: ufunc.at(pair.plain, index, *operands),
        lambda: ufunc.at(pair.ours, index, *operands),
    )


@move(3)
def two_results(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    kind = pair.plain.dtype.kind
    if kind == "f":
        both = outcomes(lambda: np.modf(pair.plain), lambda: np.modf(pair.ours))
    elif kind in "iu":
        number = r.choice((2, 3, -2, 0, 7))
        both = outcomes(lambda: divmod(pair.plain, number), lambda: divmod(pair.ours, number))
    else:
        return
    if both is not None:
        for plain, ours in zip(*both, strict=True):
            pool.add(plain, ours)


@move(3)
def limited(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    if pair.plain.dtype.kind == "c":
        return
    low, high = r.choice(((1, 3), (2, None), (None, 4), (np.float32(1), 5), (1, 300)))
    if r.random() < 0.3:
        outcomes(
            lambda: np.clip(pair.plain, low, high, out=pair.plain),
            lambda: np.clip(pair.ours, low, high, out=pair.ours),
        )
        return
    both = outcomes(lambda: np.clip(pair.plain, low, high), lambda: np.clip(pair.ours, low, high))
    if both is not None:
        pool.add(*both)


@move(4)
def arranged(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    if pair.plain.size > _LARGEST or pair.plain.ndim > 8:
        return
    axis = r.choice((0, -1, None))
    ordered = pair.plain.dtype.kind in "biu"  # NaNs and zeros of either sign have no one order
    forms = [
        lambda a: np.repeat(a, 2, axis=axis),
        lambda a: np.tile(a, 2),
        np.triu,
        np.tril,
        np.diff,
        np.flatnonzero,
        lambda a: np.pad(a, 1),
        lambda a: np.append(a, 1, axis=None),
        lambda a: np.delete(a, 0, axis=-1),
        lambda a: np.trim_zeros(a) if a.ndim == 1 else a + a,
        np.nonzero,
    ]
    if ordered:
        forms += [np.sort, np.unique, lambda a: np.argsort(a, axis=-1, kind="stable"), np.ptp]
    form = r.choice(forms)
    both = outcomes(lambda: form(pair.plain), lambda: form(pair.ours))
    if both is None:
        return
    for plain, ours in zip(*both, strict=True) if type(both[0]) is tuple else [both]:
        pool.add(plain, ours)


@move(2)
def with_where(pool: Pool) -> None:
    """Write into part of an array: ``out=`` and ``where=``, operands of any shape that fits."""
    r = pool.random
    target, other = pool.pick(), pool.pick()
    number = scalar(pool)
    if target.plain.dtype.kind == "c" or too_big(target.plain, other.plain):
        return
    limit = r.randint(-2, 4)
    mask = Pair(target.plain > limit, target.ours > limit)
    if r.random() < 0.3 and target.plain.ndim:
        mask = Pair(mask.plain[:1], mask.ours[:1])
    if np.may_share_memory(target.plain, other.plain):
        other = Pair(number, number)  # NumPy 2.4 writes through a copy that it left uninitialised
    ufunc = r.choice((np.add, np.multiply, np.negative, np.greater))
    operands = [other] if ufunc is np.negative else [other, Pair(number, number)]
    out = outcomes(
        lambda: ufunc(*[o.plain for o in operands], out=target.plain, where=mask.plain),
        lambda: ufunc(*[o.ours for o in operands], out=target.ours, where=mask.ours),
    )
    if out is not None and out[1] is not target.ours:
        raise Mismatch("out= returned another object")
