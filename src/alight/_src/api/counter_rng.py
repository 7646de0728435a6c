"""Random numbers whose every element is known by its place: `alight.random.Counter`."""

from __future__ import annotations

import threading
from math import prod
from typing import Any

from alight._core import ArrayBase
from alight._src.api.counter_draws import (
    draw_shape,
    draw_size,
    not_negative,
    parameter,
    positions_of,
)
from alight._src.base.originals import np
from alight._src.ir.op import Op
from alight._src.ir.op_table import OPS
from alight._src.record.numpy_fallback import wrap
from alight._src.record.pending import constant, elementwise, may_record, record_floor
from alight._src.record.ufunc_calls import make
from alight._src.run import evaluate

__all__ = ["Counter"]

_UINT32, _UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)
# Draws have 2**64 numbers of a key, positions in one draw 2**32.
_ALL = 1 << 64
_MOST = 1 << 32
# What `jumped` leaves to each stream: 65,536 of them have 2.8e14 numbers each.
_JUMP = 1 << 48
_FLOATS = ("float64", "float32")


class Counter:
    """Random numbers like those of NumPy's ``Generator``, drawn lazily and on any device.

    Number ``i`` of a seed is a function of the seed and of ``i`` alone, so the bits are the same on
    every device and for any number of threads, and what is drawn is made in the kernel that uses
    it. An array of n elements takes the next n numbers in C order, whatever its dtype. The numbers
    are others than those of NumPy's bit generators.

    Parameters
    ----------
    seed : int, array_like of int or SeedSequence, optional
        What ``numpy.random.SeedSequence`` takes, or one of these; None: from the system.

    Notes
    -----
    The function is Threefry2x32-20 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
    easy as 1, 2, 3" (SC '11).

    Examples
    --------
    >>> import alight
    >>> first, rest = (rng := alight.random.Counter(1)).random(3), rng.random(2)
    >>> whole = alight.random.Counter(1).random(5)
    >>> bool((whole[:3] == first).all() and (whole[3:] == rest).all())
    True
    """

    def __init__(self, seed: Any = None) -> None:
        sequence = seed if isinstance(seed, np.random.SeedSequence) else None
        if sequence is None:
            given = np.asarray(seed) if isinstance(seed, ArrayBase) else seed
            sequence = np.random.SeedSequence(given)
        self.seed_seq = sequence
        self._key = int(sequence.generate_state(1, np.uint64)[0])
        self._position = 0
        self._lock = threading.RLock()

    # -- state ------------------------------------------------------------------------------------
    @property
    def state(self) -> dict[str, Any]:
        """The key and how many numbers were drawn, as a dict; set it to go on from there."""
        return {"counter": "Threefry2x32-20", "key": self._key, "position": self._position}

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        if value.get("counter") != "Threefry2x32-20":
            raise ValueError(
                f"state must be of a Threefry2x32-20 counter, got {value.get('counter')!r}. Fix: "
                "set what the state of an alight.random.Counter gave."
            )
        key, position = int(value["key"]), int(value["position"])
        if not (0 <= key < _ALL and 0 <= position < _ALL):
            raise ValueError(f"key {key} and position {position} must be from 0 to 2**64 - 1")
        with self._lock:
            self._key, self._position = key, position

    def __getstate__(self) -> dict[str, Any]:
        return {**self.state, "seed_seq": self.seed_seq}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.seed_seq = state["seed_seq"]
        self._lock = threading.RLock()
        self.state = state

    def __repr__(self) -> str:
        return f"Counter(key=0x{self._key:016x}, position={self._position})"

    def spawn(self, n_children: int) -> list[Counter]:
        """Return new independent counters, of seeds that the own seed spawns.

        Parameters
        ----------
        n_children : int
            How many.

        Returns
        -------
        list of Counter
            The counters, each at its first number.

        Examples
        --------
        >>> len(Counter(1).spawn(3))
        3
        """
        return [Counter(child) for child in self.seed_seq.spawn(n_children)]

    def advance(self, delta: int) -> Counter:
        """Return this counter, moved as if so many numbers had been drawn.

        Parameters
        ----------
        delta : int
            How many numbers; negative: back.

        Returns
        -------
        Counter
            The counter itself.

        Examples
        --------
        >>> rng = Counter(1)
        >>> first = rng.random(3)
        >>> bool((rng.advance(-3).random(3) == first).all())
        True
        """
        self._take(int(delta))
        return self

    def jumped(self, jumps: int = 1) -> Counter:
        """Return a new counter of the same key, 2**48 numbers further for each jump.

        Parameters
        ----------
        jumps : int, default 1
            How many jumps.

        Returns
        -------
        Counter
            A counter for another stream; this one stays where it is.

        Examples
        --------
        >>> Counter(1).jumped(2).state["position"] == 2 * 2**48
        True
        """
        made = Counter(self.seed_seq)
        made.state = self.state
        return made.advance(int(jumps) * _JUMP)

    def _take(self, count: int) -> int:
        """Return the position, moved on."""
        with self._lock:
            position = self._position
            self._position = (position + count) % _ALL
        return position

    # -- draws ------------------------------------------------------------------------------------
    def random_raw(self, size: Any = None) -> Any:
        """Return uniform integers of 64 bits.

        Parameters
        ----------
        size : int or tuple of int, optional
            The shape of the result; None: one number.

        Returns
        -------
        int or Array of uint64
            Numbers from 0 to 2**64 - 1.

        Examples
        --------
        >>> Counter(1).random_raw(2).dtype
        dtype('uint64')
        """
        return self._draw(OPS["random_bits"], size)

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Return uniform numbers from [0, 1).

        Parameters
        ----------
        size : int or tuple of int, optional
            The shape of the result; None: one number.
        dtype : dtype, default float64
            float64 or float32.
        out : array, optional
            Where to write them; its dtype and shape are then those of the result.

        Returns
        -------
        float or Array
            Multiples of 2**-53 (float32: 2**-24).

        Raises
        ------
        TypeError
            For another dtype, or an ``out`` of another.
        ValueError
            Where ``size`` is not the shape of ``out``.

        Examples
        --------
        >>> x = Counter(1).random((2, 3), "float32")
        >>> x.shape, bool((x >= 0).all() and (x < 1).all())
        ((2, 3), True)
        """
        return self._float("random", size, dtype, out)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Return numbers of the standard normal distribution.

        Parameters
        ----------
        size : int or tuple of int, optional
            The shape of the result; None: one number.
        dtype : dtype, default float64
            float64 or float32.
        out : array, optional
            Where to write them; its dtype and shape are then those of the result.

        Returns
        -------
        float or Array
            Numbers of mean 0 and deviation 1.

        Raises
        ------
        TypeError
            For another dtype, or an ``out`` of another.
        ValueError
            Where ``size`` is not the shape of ``out``.

        Notes
        -----
        Each is the distribution's quantile at a tail of 2**-65 and more (float32: 2**-33), with a
        sign: up to 9.1 deviations (float32: 6.2).

        Examples
        --------
        >>> abs(float(Counter(1).standard_normal(10_000).mean())) < 0.05
        True
        """
        return self._float("normal", size, dtype, out)

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, out: Any = None
    ) -> Any:
        """Return numbers of the exponential distribution with scale 1.

        Parameters
        ----------
        size : int or tuple of int, optional
            The shape of the result; None: one number.
        dtype : dtype, default float64
            float64 or float32.
        out : array, optional
            Where to write them; its dtype and shape are then those of the result.

        Returns
        -------
        float or Array
            Numbers of mean 1, none negative.

        Raises
        ------
        TypeError
            For another dtype, or an ``out`` of another.
        ValueError
            Where ``size`` is not the shape of ``out``.

        Examples
        --------
        >>> bool((Counter(1).standard_exponential(100) >= 0).all())
        True
        """
        return self._float("exponential", size, dtype, out)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Return uniform numbers from [low, high).

        Parameters
        ----------
        low, high : array_like of float, default 0.0 and 1.0
            The ends; they broadcast with each other and to ``size``.
        size : int or tuple of int, optional
            The shape of the result; None: what the ends
            broadcast to.

        Returns
        -------
        float or Array of float64
            The numbers.

        Raises
        ------
        OverflowError
            Where high - low is not finite.

        Examples
        --------
        >>> x = Counter(1).uniform(-1.0, 1.0, 100)
        >>> bool((x >= -1).all() and (x < 1).all())
        True
        """
        low, high = parameter(low), parameter(high)
        with np.errstate(over="ignore", invalid="ignore"):
            width = high - low
        if not np.isfinite(width).all():
            raise OverflowError("high - low range exceeds valid bounds")
        return low + width * self.random(draw_size(size, low, high))

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Return numbers of normal distributions.

        Parameters
        ----------
        loc, scale : array_like of float, default 0.0 and 1.0
            Means and deviations; they broadcast with each other and to ``size``.
        size : int or tuple of int, optional
            The shape of the result; None: what the
            parameters broadcast to.

        Returns
        -------
        float or Array of float64
            The numbers.

        Raises
        ------
        ValueError
            Where a deviation is negative.

        Examples
        --------
        >>> Counter(1).normal([1.0, 10.0], 0.01).round().tolist()
        [1.0, 10.0]
        """
        loc, scale = parameter(loc), not_negative(scale)
        return loc + scale * self.standard_normal(draw_size(size, loc, scale))

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        """Return numbers of exponential distributions.

        Parameters
        ----------
        scale : array_like of float, default 1.0
            Their means; they broadcast to ``size``.
        size : int or tuple of int, optional
            The shape of the result; None: that of ``scale``.

        Returns
        -------
        float or Array of float64
            The numbers, none negative.

        Raises
        ------
        ValueError
            Where a scale is negative.

        Examples
        --------
        >>> Counter(1).exponential(2.0, (2, 3)).shape
        (2, 3)
        """
        scale = not_negative(scale)
        return self.standard_exponential(draw_size(size, scale)) * scale

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> Any:
        """Return integers from [low, high), or from [0, low).

        Parameters
        ----------
        low : int
            The first of them; without ``high`` the end, and 0 is the first.
        high : int, optional
            The end.
        size : int or tuple of int, optional
            The shape of the result; None: one number.
        dtype : dtype, default int64
            An integer dtype that holds the range.
        endpoint : bool, default False
            Whether the end is one of them.

        Returns
        -------
        int or Array
            The numbers.

        Raises
        ------
        TypeError
            For a dtype that is no integer's.
        ValueError
            For a range that is empty, that the dtype does not hold, or of more than 2**32 numbers.

        Notes
        -----
        Each comes of 64 bits, so that of a range of n numbers one is more likely than another by
        n / 2**64 of its probability at most.

        Examples
        --------
        >>> dice = Counter(1).integers(1, 6, 100, endpoint=True)
        >>> int(dice.min()), int(dice.max())
        (1, 6)
        """
        dtype = np.dtype(dtype)
        if dtype.kind not in "iu" or not dtype.isnative:
            raise TypeError(f"Unsupported dtype {dtype!r} for integers")
        low, high = (0, low) if high is None else (low, high)
        first, last = int(low), int(high) - (not endpoint)
        info = np.iinfo(dtype)
        if first < info.min:
            raise ValueError(f"low is out of bounds for {dtype.name}")
        if last > info.max:
            raise ValueError(f"high is out of bounds for {dtype.name}")
        if first > last:
            raise ValueError("low > high" if endpoint else "low >= high")
        count = last - first + 1
        if count > _MOST:
            raise ValueError(
                f"a range of {count} integers, and of more than 2**32 some would be noticeably "
                "more likely than others. Fix: draw from alight.random.default_rng, or take bits "
                "of random_raw."
            )
        drawn = self.random_raw(() if size is None else size)
        # the high 64 bits of the product with the count, in halves that fit
        high_half, low_half = drawn >> np.uint64(32), drawn & np.uint64(0xFFFFFFFF)
        n = np.uint64(count)
        found = (high_half * n + (low_half * n >> np.uint64(32))) >> np.uint64(32)
        found = (found + np.uint64(first % _ALL)).astype(dtype)
        return np.asarray(found)[()] if size is None else found

    def _float(self, kind: str, size: Any, dtype: Any, out: Any) -> Any:
        name = np.dtype(dtype).name
        if name not in _FLOATS:
            raise TypeError(f"Unsupported dtype {np.dtype(dtype)!r} for {kind}")
        if out is not None:
            if out.dtype != np.dtype(dtype):
                raise TypeError(
                    f"Supplied output array has the wrong type. Expected {np.dtype(dtype)}, "
                    f"got {out.dtype}"
                )
            if size is not None and draw_shape(size) != out.shape:
                raise ValueError("size must match out.shape when used together")
            size = out.shape
        drawn = self._draw(OPS[f"{kind}_{name}"], size)
        if out is None:
            return float(drawn) if size is None else drawn
        out[...] = drawn
        return out

    def _draw(self, op: Op, size: Any) -> Any:
        shape = () if size is None else draw_shape(size)
        count = prod(shape)
        if count > _MOST:
            raise ValueError(
                f"{count} numbers at once are more than 2**32. Fix: draw them in parts."
            )
        watch = evaluate.watch.by
        if watch is not None:
            watch.touched = True  # a call that draws gives other numbers the next time
        start, key = (np.uint64(n) for n in (self._take(count), self._key))
        if size is None or count < max(record_floor(), 1) or not may_record():
            positions = np.arange(count, dtype=_UINT32).reshape(shape)
            drawn = op.reference(positions, start, key)
            return drawn[()] if size is None else wrap(drawn)
        operands = positions_of(shape), constant(start, _UINT64), constant(key, _UINT64)
        values = elementwise(op, operands)
        assert values is not None  # its loop is of native dtypes
        return make(values[0])
