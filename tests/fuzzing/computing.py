"""Moves that compute new arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .moves import move, scalar, too_big
from .pool import Pair, Pool, castable, outcomes, whole

_EXACT_TWO = (
    np.add, np.subtract, np.multiply, np.add, np.multiply, np.less, np.greater_equal, np.equal,
    np.bitwise_and, np.bitwise_xor, np.logical_or, np.floor_divide,
)  # fmt: skip
_EXACT_ONE = (
    np.negative, np.absolute, np.square, np.isnan, np.logical_not, np.sqrt, np.sign, np.rint,
    np.invert, np.positive, np.isfinite,
)  # fmt: skip
_LOOSE_ONE = (np.sin, np.exp, np.tanh, np.log1p, np.arctan, np.cbrt)


@move(14)
def two_operands(pool: Pool) -> None:
    r = pool.random
    first, second = pool.pick(), pool.pick()
    ufunc = r.choice(_EXACT_TWO)
    if r.random() < 0.4:
        number = scalar(pool)
        second = Pair(number, number)
    if too_big(first.plain, second.plain):
        return
    if ufunc is np.floor_divide and np.result_type(first.plain, second.plain).kind not in "iu":
        ufunc = np.add
    if np.result_type(first.plain, second.plain).kind == "c" and ufunc is np.multiply:
        ufunc = np.add
    if r.random() < 0.3:
        first, second = second, first
    both = outcomes(
        lambda: ufunc(first.plain, second.plain), lambda: ufunc(first.ours, second.ours)
    )
    if both is not None and (type(first.ours), type(second.ours)) != (int, int):
        pool.add(*both)


@move(3)
def extremes(pool: Pool) -> None:
    ufunc = pool.random.choice((np.maximum, np.minimum, np.fmax))
    first, second = pool.pick(), pool.pick()
    if too_big(first.plain, second.plain):
        return

    def run(x: Any, y: Any) -> Any:
        return ufunc(x, y) + np.int8(0)  # which of two zeros wins is left open

    both = outcomes(lambda: run(first.plain, second.plain), lambda: run(first.ours, second.ours))
    if both is not None and "c" not in (first.plain.dtype.kind, second.plain.dtype.kind):
        pool.add(*both)


@move(8)
def one_operand(pool: Pool) -> None:
    pair = pool.pick()
    ufunc = pool.random.choice(_EXACT_ONE)
    if pair.plain.dtype.kind == "c" and ufunc in (np.square, np.absolute, np.sqrt, np.sign):
        return
    both = outcomes(lambda: ufunc(pair.plain), lambda: ufunc(pair.ours))
    if both is not None:
        pool.add(*both)


@move(2)
def maths(pool: Pool) -> None:
    pair = pool.pick()
    if pair.plain.dtype.kind not in "fiub":
        return
    ufunc = pool.random.choice(_LOOSE_ONE)
    plain = ufunc(pair.plain)
    room = 16 * np.spacing(np.abs(np.where(np.isfinite(plain), plain, 1)))
    pool.add_loose(plain, ufunc(pair.ours), room)


@move(3)
def quotient(pool: Pool) -> None:
    pair = pool.pick()
    number = pool.random.choice((2, 3.0, np.float32(0.5), 0))
    if pair.plain.dtype.kind != "c":
        pool.add(pair.plain / number, pair.ours / number)


@move(4)
def cast(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    dtype = np.dtype(r.choice("dfliBb?heDQ"))
    order = r.choice("KKKCF")
    if castable(pair.plain, dtype):
        pool.add(pair.plain.astype(dtype, order=order), pair.ours.astype(dtype, order=order))


@move(4)
def choice(pool: Pool) -> None:
    masks = [p for p in pool.pairs if p.plain.dtype == np.bool_] or pool.pairs
    mask, first, second = pool.random.choice(masks), pool.pick(), pool.pick()
    if too_big(mask.plain, first.plain, second.plain):
        return
    if pool.random.random() < 0.3:
        number = scalar(pool)
        second = Pair(number, number)
    both = outcomes(
        lambda: np.where(mask.plain, first.plain, second.plain),
        lambda: np.where(mask.ours, first.ours, second.ours),
    )
    if both is not None:
        pool.add(*both)


@move(2)
def joined(pool: Pool) -> None:
    r = pool.random
    first, second = pool.pick(), pool.pick()
    axis = r.choice((0, 0, 1, -1, None))
    function = r.choice((np.concatenate, np.stack))
    shift = r.randint(-2, 2)
    if r.random() < 0.3:
        pool.add(np.roll(first.plain, shift), np.roll(first.ours, shift))
        return
    if function is np.stack and axis is None:
        axis = 0
    both = outcomes(
        lambda: function([first.plain, second.plain], axis=axis),
        lambda: function([first.ours, second.ours], axis=axis),
    )
    if both is not None:
        pool.add(*both)


_REDUCTIONS = ("sum", "sum", "max", "min", "any", "all", "prod", "mean", "argmax", "argmin", "var")


@move(7)
def reduced(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    name = r.choice(_REDUCTIONS)
    axis: Any = r.choice((None, 0, -1, 1, (0, 1), (0, -1)))
    keywords: dict[str, Any] = {"axis": axis}
    if r.random() < 0.3:
        keywords["keepdims"] = True
    function = getattr(np, name)
    both = outcomes(
        lambda: function(pair.plain, **keywords), lambda: function(pair.ours, **keywords)
    )
    if both is None:
        return
    plain = np.asarray(both[0])
    exact = pair.plain.dtype.kind in "biu" and plain.dtype.kind in "biu"
    if exact or name.startswith("arg") or (name == "sum" and whole(pair.plain)):
        pool.add(*both)
    elif name in ("max", "min"):
        pool.add(both[0] + np.int8(0), both[1] + np.int8(0))
    elif name in ("sum", "mean", "var") and pair.plain.size:
        _compared_reduction(pool, pair, both, name)


def _compared_reduction(pool: Pool, pair: Pair, both: tuple[Any, Any], name: str) -> None:
    result = np.asarray(both[0])
    sizes = np.abs(pair.plain.astype(np.complex128 if pair.plain.dtype.kind == "c" else float))
    if not np.isfinite(sizes).all():
        return
    total = float(sizes.sum() if name != "var" else (sizes * sizes).sum())
    # The table's bound of a reduction of n, whatever n is along the axis: at most all elements.
    limit = np.finfo(result.dtype).eps * (pair.plain.size + 32) * 3
    pool.add_loose(result, both[1], limit * total + np.finfo(result.dtype).tiny)


@move(3)
def scanned(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    axis = r.choice((None, 0, -1))
    if pair.plain.dtype.kind in "biu" or whole(pair.plain):
        both = outcomes(
            lambda: np.cumsum(pair.plain, axis=axis), lambda: np.cumsum(pair.ours, axis=axis)
        )
        if both is not None:
            pool.add(*both)


@move(2)
def product(pool: Pool) -> None:
    first, second = pool.pick(), pool.pick()
    if not (whole(first.plain) and whole(second.plain)):
        return
    if max(first.plain.size, second.plain.size) > 1000:
        return
    both = outcomes(lambda: first.plain @ second.plain, lambda: first.ours @ second.ours)
    if both is None:
        return
    sizes = float(np.abs(first.plain).sum()) * float(np.abs(second.plain).sum())
    if sizes < 2.0**11 or np.asarray(both[0]).dtype.kind in "biu":
        pool.add(*both)
