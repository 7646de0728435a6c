"""Pairs of an ndarray and the Array that must equal it, and how they are compared."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import alight
from alight._core import ArrayBase

Array = np.ndarray[Any, Any]
DTYPES = [np.dtype(c) for c in "dddfflliiBbh?eDQ"]
# Sums of whole numbers are exact, whatever their order, as long as they stay below this.
_WHOLE = {"e": 2.0**11, "f": 2.0**24, "d": 2.0**53, "F": 2.0**24, "D": 2.0**53}


class Mismatch(AssertionError):
    """An Array is not what NumPy has."""


@dataclass(slots=True)
class Pair:
    """What NumPy has, and what alight has."""

    plain: Any
    ours: Any


@dataclass(slots=True)
class Loose:
    """A result that need not be equal to the last bit: it is compared and goes no further."""

    pair: Pair
    room: Any


@dataclass(slots=True)
class Pool:
    """The arrays a random program works on. ``random`` decides; what alight computes never does."""

    random: random.Random
    generator: np.random.Generator
    large: bool = False
    dtypes: Sequence[np.dtype[Any]] = tuple(DTYPES)
    restless: float = 0.0  # the share of steps after which what is pending is asked for
    pairs: list[Pair] = field(default_factory=list)
    loose: list[Loose] = field(default_factory=list)
    exports: list[tuple[Array, Array]] = field(default_factory=list)
    operations: int = 0
    room_for: int = 10

    def pick(self) -> Pair:
        """Return one of the pairs."""
        return self.random.choice(self.pairs)

    def fresh(self) -> Array:
        """Return a new ndarray of random dtype, shape and memory order, of small whole numbers."""
        r = self.random
        if self.large and r.random() < 0.5:
            shape: tuple[int, ...] = r.choice(((620_000,), (800, 775), (775, 800)))
        else:
            shape = tuple([r.randint(1, 5) for _ in range(r.choice((0, 1, 1, 2, 2, 2, 3, 3)))])
            if r.random() < 0.05 and shape:
                empty = r.randrange(len(shape))
                shape = (*shape[:empty], 0, *shape[empty + 1 :])
        dtype = r.choice(self.dtypes)
        low = 0 if dtype.kind in "bu" else -5
        array = np.asarray(self.generator.integers(low, 9, shape)).astype(dtype)
        if dtype.kind == "f" and r.random() < 0.15 and array.size:
            array.flat[r.randrange(array.size)] = r.choice((np.nan, np.inf, -np.inf, -0.0, 0.5))
        return np.asfortranarray(array) if r.random() < 0.3 else array

    def add(self, plain: Any, ours: Any) -> None:
        """Keep a new pair, after comparing dtype, shape and strides."""
        if not isinstance(plain, (np.ndarray, np.generic)):
            raise TypeError(f"NumPy made {type(plain)}")
        if type(plain) is not np.ndarray:
            # Where NumPy has a scalar of its own, a view of ours could still be written through.
            plain, ours = np.asarray(plain), ours if ours.window is None else ours.copy()
        pair = Pair(plain, ours)
        described(pair)
        if self.restless and self.random.random() < self.restless:
            alight.evaluate(ours)
        if len(self.pairs) >= self.room_for:
            self.pairs[self.random.randrange(len(self.pairs))] = pair
        else:
            self.pairs.append(pair)

    def add_loose(self, plain: Any, ours: Any, room: Any) -> None:
        """Keep a result until the next comparison."""
        pair = Pair(np.asarray(plain), ours)
        described(pair)
        self.loose.append(Loose(pair, room))

    def compare(self) -> None:
        """Compare every element of everything."""
        if self.random.random() < 0.5:
            alight.evaluate(*[pair.ours for pair in self.pairs])
        for pair in self.pairs:
            elements(pair)
        for item in self.loose:
            elements(item.pair, item.room)
        self.loose.clear()


def described(pair: Pair) -> None:
    """Raise Mismatch unless dtype, shape, strides and who may write are NumPy's."""
    plain, ours = pair.plain, pair.ours
    if not isinstance(ours, (ArrayBase, np.ndarray)):
        raise Mismatch(f"{type(ours).__name__} in place of an Array")
    if not plain.size and 0 in plain.strides and ours.shape == plain.shape:
        return  # flatten() gives an empty array strides of 0, which no other copy has
    if ours.strides != plain.strides or ours.shape != plain.shape or ours.dtype != plain.dtype:
        raise Mismatch(
            f"{ours.dtype} {ours.shape} {ours.strides}, must be "
            f"{plain.dtype} {plain.shape} {plain.strides}"
        )
    if ours.flags.writeable != plain.flags.writeable:
        raise Mismatch(f"writeable {ours.flags.writeable}")


def elements(pair: Pair, room: Any = None) -> None:
    """Raise Mismatch unless elements are NumPy's, or within ``room`` of them."""
    plain = pair.plain
    got = np.asarray(pair.ours)
    same_strides = got.strides == plain.strides or (not plain.size and 0 in plain.strides)
    if got.dtype != plain.dtype or got.shape != plain.shape or not same_strides:
        raise Mismatch(f"exported {got.dtype} {got.shape} {got.strides}, not {plain.strides}")
    same = got == plain
    if same.all():
        return
    if plain.dtype.kind in "fc":
        same |= (got != got) & (plain != plain)
        if room is not None:
            same |= np.abs(got - plain) <= room
    if not same.all():
        at = tuple([int(i[0]) for i in np.nonzero(~same)]) if same.ndim else ()
        raise Mismatch(f"at {at} of {plain.dtype} {plain.shape}: {got[at]!r}, not {plain[at]!r}")


def whole(array: Array) -> bool:
    """Tell whether sums of the elements are exact in any order."""
    limit = _WHOLE.get(array.dtype.char)
    if limit is None:
        return True
    if not array.size:
        return True
    with np.errstate(all="ignore"):
        parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
        sizes = [float(np.abs(part).max()) for part in parts]
        return all(s * array.size < limit for s in sizes) and all(
            bool((np.rint(part) == part).all()) for part in parts
        )


def castable(array: Array, dtype: np.dtype[Any]) -> bool:
    """Tell whether a cast to a dtype is defined: a float outside an integer's range is not."""
    kinds = array.dtype.kind, dtype.kind
    if kinds[0] == "c" and kinds[1] not in "cb":
        return False
    if kinds[0] not in "fc" or kinds[1] not in "iu" or not array.size:
        return True
    info = np.iinfo(dtype)
    low, high = float(array.min()), float(array.max())
    return info.min <= low and high <= info.max / 2 and low == low and high == high


def outcomes(plain: Any, ours: Any) -> tuple[Any, Any] | None:
    """Return what both calls return; None where both raise the same error."""
    try:
        expected, error = plain(), None
    except Exception as raised:
        expected, error = None, raised
    try:
        actual = ours()
    except Exception as raised:
        text = str(raised).replace("numpy.ndarray", "Array")
        wanted = str(error).replace("numpy.ndarray", "Array")
        if error is None or type(raised) is not type(error) or text != wanted:
            raise Mismatch(f"{raised!r}, must be {error!r}") from raised
        return None
    if error is not None:
        raise Mismatch(f"no error, must be {error!r}")
    return expected, actual


__all__: Sequence[str] = (
    "Mismatch", "Pair", "Pool", "castable", "described", "elements", "outcomes", "whole",
)  # fmt: skip
