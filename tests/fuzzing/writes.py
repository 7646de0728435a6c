"""Moves that write: through views, in place, into out=, whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .moves import assigned, basic_key, fitting, move, scalar
from .pool import Mismatch, Pair, Pool, castable, outcomes


@move(14)
def written(pool: Pool) -> None:
    pair = pool.pick()
    key = basic_key(pool, pair.plain.shape)
    target = pair.plain[key]
    item = fitting(pool, target if isinstance(target, np.ndarray) else pair.plain[(*key, ...)])
    if pool.random.random() < 0.25:
        number = scalar(pool)
        item = Pair(number, number)
    elif pool.random.random() < 0.1 and isinstance(item.plain, np.ndarray):
        item = Pair(item.plain, item.plain.copy())
    assigned(pool, pair, key, item)


_IN_PLACE = ("__iadd__", "__isub__", "__imul__", "__iand__", "__ior__", "__ixor__", "__ifloordiv__")


@move(10)
def in_place(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    if not pair.plain.ndim:  # NumPy's 0-d results are scalars, alight's stay arrays
        return
    name = r.choice(_IN_PLACE)
    if r.random() < 0.5:
        other = fitting(pool, pair.plain)
    else:
        number = scalar(pool)
        other = Pair(number, number)
    if r.random() < 0.5:
        both = outcomes(
            lambda: getattr(pair.plain, name)(other.plain),
            lambda: getattr(pair.ours, name)(other.ours),
        )
        if both is not None and both[1] is not pair.ours and both[0] is not NotImplemented:
            raise Mismatch(f"{name} returned another object")
        return
    key = basic_key(pool, pair.plain.shape, 0.05)

    def change(array: Any, value: Any) -> None:
        part = array[key]
        array[key] = getattr(part, name)(value)

    if isinstance(pair.plain[key], np.ndarray):
        outcomes(lambda: change(pair.plain, other.plain), lambda: change(pair.ours, other.ours))


@move(8)
def into_out(pool: Pool) -> None:
    r = pool.random
    target = pool.pick()
    first, second = fitting(pool, target.plain), fitting(pool, target.plain)
    if not isinstance(first.plain, np.ndarray) or not target.plain.ndim:
        return
    ufunc = r.choice((np.add, np.subtract, np.multiply, np.copysign, np.greater))
    if ufunc is np.copysign and not np.all(second.plain == second.plain):
        return  # the sign of a NaN is not promised
    casting = r.choice(("same_kind", "same_kind", "unsafe"))
    with np.errstate(all="ignore"):
        try:
            probe = np.asarray(ufunc(first.plain, second.plain))
        except (TypeError, ValueError):
            return
    if casting == "unsafe" and not castable(probe, target.plain.dtype):
        return
    keywords: dict[str, Any] = {"casting": casting}
    ours = dict(keywords)
    if r.random() < 0.3:
        mask = next((p for p in pool.pairs if p.plain.dtype == np.bool_), None)
        # Where operands overlap, NumPy 2.4 writes through a copy that it left uninitialised.
        apart = not any(
            np.may_share_memory(target.plain, p.plain)
            for p in (first, second, mask)
            if p is not None and isinstance(p.plain, np.ndarray)
        )
        if mask is not None and apart:
            keywords["where"], ours["where"] = mask.plain, mask.ours
    out = outcomes(
        lambda: ufunc(first.plain, second.plain, out=target.plain, **keywords),
        lambda: ufunc(first.ours, second.ours, out=target.ours, **ours),
    )
    if out is not None and out[1] is not target.ours:
        raise Mismatch("out= returned another object")


@move(2)
def whole_array_methods(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    number = r.randint(0, 3)

    def put(array: Any) -> None:
        if array.size:
            array.flat[number % array.size] = number

    name = r.choice(("fill", "sort", "flat", "copyto"))
    if name == "fill":
        outcomes(lambda: pair.plain.fill(number), lambda: pair.ours.fill(number))
    elif name == "sort" and pair.plain.dtype.kind in "biu":
        outcomes(pair.plain.sort, pair.ours.sort)
    elif name == "flat":
        outcomes(lambda: put(pair.plain), lambda: put(pair.ours))
    elif name == "copyto":
        other = pool.pick()
        if castable(other.plain, pair.plain.dtype):
            outcomes(
                lambda: np.copyto(pair.plain, other.plain, casting="unsafe"),
                lambda: np.copyto(pair.ours, other.ours, casting="unsafe"),
            )
