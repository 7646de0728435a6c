"""The list of moves a random program is made of, and what they choose their operands with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .pool import Pair, Pool, castable, outcomes

Move = Callable[[Pool], None]
LISTED: list[tuple[Move, float]] = []


def move(weight: float) -> Callable[[Move], Move]:
    def listed(function: Move) -> Move:
        LISTED.append((function, weight))
        return function

    return listed


def basic_key(pool: Pool, shape: tuple[int, ...], integers: float = 0.15) -> tuple[Any, ...]:
    """Return a key of slices, and now and then integers, new axes and an ellipsis."""
    r = pool.random
    key: list[Any] = []
    for length in shape:
        kind = r.random()
        if kind < integers and length:
            key.append(r.randrange(-length, length))
        elif kind < 0.35:
            key.append(slice(None))
        elif kind < 0.5:
            key.append(slice(None, None, -1))
        else:
            ends = sorted((r.randint(0, length), r.randint(0, length)))
            key.append(slice(*ends, r.choice((1, 1, 1, 2, 3))))
    if r.random() < 0.2:
        key = key[: r.randint(0, len(key))]
        if r.random() < 0.5:
            key.append(...)
    if r.random() < 0.1 and len(shape) < 4:
        key.insert(r.randint(0, len(key)), None)
    return tuple(key)


def fitting(pool: Pool, target: Any) -> Pair:
    """Return a pair to write into a target: often one that fits, sometimes not."""
    r = pool.random
    for _ in range(6):
        pair = pool.pick()
        if castable(pair.plain, target.dtype):
            try:
                if np.broadcast_shapes(pair.plain.shape, target.shape) == target.shape:
                    return pair
            except ValueError:
                pass
    pair = pool.pick()
    if r.random() < 0.1 and castable(pair.plain, target.dtype):
        return pair
    number = r.choice((0, 1, 3, True, 2))
    return Pair(number, number)


def too_big(*arrays: Any) -> bool:
    """Tell whether large arrays would broadcast against each other to what no memory holds."""
    try:
        shape = np.broadcast_shapes(*[np.shape(array) for array in arrays])
    except ValueError:
        return False
    return math.prod(shape) > 2_000_000


def scalar(pool: Pool) -> Any:
    """Return a scalar of Python or NumPy."""
    return pool.random.choice((0, 1, 2, 5, True, np.int8(3), np.float32(2), np.uint8(7), 1.0))


def assigned(pool: Pool, pair: Pair, key: Any, item: Pair, our_key: Any = None) -> None:
    """Set a part of both arrays to a pair of items."""
    our_key = key if our_key is None else our_key

    def write(array: Any, at: Any, value: Any) -> None:
        array[at] = value

    outcomes(
        lambda: write(pair.plain, key, item.plain), lambda: write(pair.ours, our_key, item.ours)
    )
