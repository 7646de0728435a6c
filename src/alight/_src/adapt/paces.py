"""Floors of ops: how many elements of each NumPy does in the time of an addition of float64.

The floor is in seconds of NumPy's, which the core has as elements of such additions. A row of the
table turns it into elements of an op, by type: of whole arrays, and along an axis.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from alight._core import floor
from alight._src.base.cache_registry import Cache, register
from alight._src.base.originals import np
from alight._src.ir.op_table import UFUNCS, Kind

if TYPE_CHECKING:
    from alight._src.plan.profile import Profile, Rates

__all__ = ["PACES", "ROW_PACES", "guess", "pace_by"]

# Elements that NumPy reads in the time in which it adds one float64 to another, by type: what is
# quicker than an addition is NumPy's at once in larger arrays. Measured on 500,000 elements (EPYC,
# NumPy 2.4, least of 12 runs; larger arrays that have left the caches show more, but in place),
# where nothing is found at once that ends it early. What is not here is as slow as an addition, or
# slower. A trace reads a diagonal: of any matrix that there is memory for, less than the floor has.
_SIMD = {"?": 19.0, "bB": 26.0, "hH": 12.0, "iI": 6.0, "lqLQ": 3.8, "f": 6.7, "d": 3.6}
_TRUTH = {"?": 19.0, "bB": 8.0, "hH": 4.7, "iI": 2.7, "lqLQ": 1.7, "f": 3.0, "d": 1.9}
# In place a kernel gains nothing before there are as many operations in a row: it makes a new
# array, as an addition does, in which NumPy does twice as much in the caches and more.
_IN_A_ROW = 3.0
_PLACE = {"bBhH": 6.8, "iI": 4.0, "lqLQ": 1.9, "f": 3.7, "d": 1.9}
_NUMBER = {"bBhH": 12.5, "iI": 7.5, "lqLQ": 4.0, "f": 7.5, "d": 3.9}
_SQUARES = {"f": 4.0, "d": 4.0, "F": 1.6, "D": 1.6}
PACES: dict[str, dict[str, float]] = {
    "sum": {"lqLQ": 4.0, "f": 3.0, "d": 3.0},
    "mean": {"f": 3.0, "d": 3.0},
    "max": _SIMD,
    "min": _SIMD,
    "any": _TRUTH,
    "all": _TRUTH,
    "argmax": {"?": 26.0, "bB": 26.0, "hH": 13.0, "iI": 7.6, "lqLQ": 4.1, "f": 5.1, "d": 2.6},
    "argmin": {"bB": 26.0, "hH": 13.0, "iI": 7.6, "lqLQ": 4.1, "f": 5.1, "d": 2.6},
    "count_nonzero": {"?bB": 9.0, "hH": 7.9, "iI": 4.0, "lqLQ": 2.2},
    "dot": _SQUARES,
    "vdot": _SQUARES,
    "inner": _SQUARES,
    "norm": {"f": 4.0, "d": 4.0},
    "trace": {"?bBhHiIlqLQefdFD": math.inf},
    "in place": {chars: _IN_A_ROW * pace for chars, pace in _PLACE.items()},
    "in place, a number": {chars: _IN_A_ROW * pace for chars, pace in _NUMBER.items()},
}


# The same along an axis, of rows that are long: of what has its results in them, or sums them up.
# Three times the floor is 1.3 million elements here: recorded, 500,000 and a million took 1.3 to
# 2.1 of NumPy's time (two cores beside other work), though NumPy does but 1.7 to 2.7 times as many
# as it adds: what threads gain is less than a request takes.
_OF_LONG_ROWS = {"bBhHiI": 3.0, "lqLQ": 3.0, "f": 4.0, "d": 3.0}
ROW_PACES: dict[str, dict[str, float]] = {
    "sum": {"lqLQ": 3.0, "f": 4.0, "d": 3.0},
    "mean": {"f": 4.0, "d": 3.0},
    "max": _OF_LONG_ROWS,
    "min": _OF_LONG_ROWS,
    "any": {"?bBhH": 3.5, "iI": 2.2, "lqLQ": 1.5, "f": 2.4, "d": 1.6},
    "all": {"?bBhH": 3.5, "iI": 2.2, "lqLQ": 1.5, "f": 2.4, "d": 1.6},
}

# These count as additions, in any dtype, though they take longer: what a kernel gains of them alone
# is not known.
_AS_LONG = ("std", "var", "prod", "cumsum", "cumprod", "sort", "argsort", "median", "ptp")

_TYPES = 24  # NumPy's own, without users'

# Without a profile: nanoseconds an element beyond an addition's, of float32 and float64, as a
# profile has them (EPYC with AVX-512, NumPy 2.4; processors without it take longer). What is not
# here counts as an addition.
_BEYOND: dict[str, tuple[float, float]] = {
    "arccos": (4.9, 5.8), "arccosh": (2.3, 3.4), "arcsin": (4.8, 5.6), "arcsinh": (0.7, 2.1),
    "arctan": (0.4, 1.3), "arctan2": (0.6, 2.2), "arctanh": (4.5, 2.7), "cbrt": (0.3, 1.1),
    "copysign": (0.6, 0.5), "cos": (0.6, 8.5), "cosh": (0.4, 1.0), "deg2rad": (2.2, 1.4),
    "degrees": (1.4, 1.4), "divide": (0.0, 0.3), "exp": (0.5, 0.9), "exp2": (0.2, 0.7),
    "expm1": (0.4, 1.2), "float_power": (10.0, 10.0), "floor_divide": (10.2, 9.7),
    "fmod": (4.8, 4.3), "hypot": (3.9, 6.2), "log": (0.4, 0.8), "log10": (0.2, 0.9),
    "log1p": (0.5, 1.1), "log2": (0.3, 0.9), "logaddexp": (12.8, 13.4), "logaddexp2": (13.6, 14.0),
    "power": (0.7, 2.3), "rad2deg": (1.4, 1.4), "radians": (2.2, 1.4), "reciprocal": (0.2, 0.7),
    "remainder": (8.6, 8.9), "sign": (0.4, 0.6), "sin": (0.5, 8.4), "sinh": (0.4, 1.3),
    "sqrt": (0.4, 1.2), "tan": (0.4, 1.4), "tanh": (0.4, 1.7),
}  # fmt: skip
# A byte that an addition moves.
_BYTE_NANOSECONDS = 0.0115


def _by_number(*tables: dict[str, float]) -> bytearray:
    """Return rows of the tables as the core has them: a double for each of NumPy's type numbers."""
    row = array("d", [1.0] * _TYPES * len(tables))
    for place, paces in enumerate(tables):
        for chars, pace in paces.items():
            for char in chars:
                row[place * _TYPES + np.dtype(char).num] = pace
    return bytearray(row.tobytes())


_WIDTHS = np.ones(_TYPES)
for _char in "?bBhHiIlqLQefdFD":
    _WIDTHS[np.dtype(_char).num] = np.dtype(_char).itemsize
_SINGLE = np.isin(np.arange(_TYPES), [np.dtype("e").num, np.dtype("f").num])


def _guessed(name: str) -> bytearray:
    """Return the row of an elementwise op as far as it is known without a profile."""
    one, itself = 24 * _BYTE_NANOSECONDS, 3 * _BYTE_NANOSECONDS * _WIDTHS
    beyond = np.where(_SINGLE, *_BEYOND.get(name, (0.0, 0.0)))
    whole = one / (itself + beyond)
    return bytearray(np.concatenate((whole, whole)).tobytes())


def _elementwise() -> list[np.ufunc]:
    """Return NumPy's functions of elements, each once."""
    return [u for u, op in UFUNCS.items() if op.kind is Kind.ELEMENTWISE and hasattr(np, op.name)]


def guess() -> None:
    """Have the floors of ops be those that are known without a profile."""
    floor.addition = 24e-9 * _BYTE_NANOSECONDS
    for name, row in PACES.items():
        _set(name, _by_number(row, ROW_PACES.get(name, {})))
    for name in _AS_LONG:
        _set(name, _by_number({}, {}))
    additions = _guessed("")
    for ufunc in _elementwise():
        name = ufunc.__name__
        floor.paces[ufunc] = _set(name, _guessed(name) if name in _BEYOND else additions)


def _set(name: str, numbers: bytearray) -> bytearray:
    """Set a row where it is, for the core and functions keep it; return it."""
    row = floor.paces.setdefault(name, bytearray(numbers))
    row[:] = numbers
    return row


guess()
register(Cache.PROFILES, guess)


def pace_by(profile: Profile) -> None:
    """Have the floors of elementwise ops go by what a profile of the host has of them."""
    rates = profile.rates.get("numpy")
    one = None if rates is None else _addition(rates, "float64", 8)
    if rates is None or one is None:
        return
    floor.addition = one
    for key, work in rates.work.items():
        name, _, dtype = key.partition("/")
        row = floor.paces.get(name)
        if row is None or name in PACES or not hasattr(np, dtype):
            continue
        kind = np.dtype(dtype)
        itself = _addition(rates, dtype, kind.itemsize)
        if itself is not None:
            numbers, pace = memoryview(row).cast("d"), one / (itself + max(work.value, 0.0))
            numbers[kind.num] = numbers[_TYPES + kind.num] = pace


def _addition(rates: Rates, dtype: str, width: int) -> float | None:
    """Return the seconds an element of an addition of as many as the floor has, about."""
    found = rates.curve_of["elementwise", dtype]
    elements = max(floor.auto, 1)
    return None if found is None else found[0].seconds_at(3 * width * elements) / elements
