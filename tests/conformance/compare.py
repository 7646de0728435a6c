"""What equal to NumPy means: dtype, shape, strides, and values within what is declared."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import alight
from alight._core import ArrayBase
from alight._src.ir.op_table import Op

Array = np.ndarray[Any, Any]

# NumPy picks one of two equal zeros by how it happens to vectorise (docs: design, promise 1).
TIES = frozenset(("maximum", "minimum", "fmax", "fmin", "clip", "min", "max", "nanmin", "nanmax"))
# |z| of a complex product or quotient is promised to 2 units in the last place.
COMPLEX_ULP = 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Which cases run: all of them, or a share that is the same on every machine."""

    full: bool

    def takes(self, share: float, *case: object) -> bool:
        """Tell whether a case belongs to the share of all cases that runs."""
        if self.full:
            return True
        return zlib.crc32(repr(case).encode()) < share * 2**32


def unlike(actual: Any, expected: Any) -> str | None:
    """Return how dtype, shape or strides differ, or None."""
    expected = np.asarray(expected)
    for name in ("dtype", "shape", "strides"):
        ours, theirs = getattr(actual, name, None), getattr(expected, name)
        if ours != theirs:
            return f"{name} {ours}, must be {theirs}"
    return None


def wrong(actual: Array, expected: Array, allowed: Any = 0.0, ties: bool = False) -> Array:
    """Return where values differ by more than ``allowed`` units in the last place.

    NaN equals NaN whatever its payload; the sign of a zero counts unless ``ties``.
    """
    if expected.dtype.kind == "c":
        return _wrong_complex(actual, expected, allowed)
    if expected.dtype.kind != "f":
        return np.asarray(actual != expected)
    same = (actual == expected) & ((np.signbit(actual) == np.signbit(expected)) | ties)
    same |= np.isnan(actual) & np.isnan(expected)
    if np.all(same) or (np.ndim(allowed) == 0 and allowed == 0):
        return np.asarray(~same)
    near = np.isfinite(actual) & np.isfinite(expected)
    steps = np.spacing(np.abs(np.where(near, expected, 0)).astype(expected.dtype))
    with np.errstate(all="ignore"):
        distance = np.abs(actual - expected) / steps
    # The largest number and infinity are neighbours, too.
    edge = np.isinf(actual) ^ np.isinf(expected)
    edge &= ~(np.isnan(actual) | np.isnan(expected))
    edge &= np.signbit(actual) == np.signbit(expected)
    edge &= np.abs(np.where(np.isinf(actual), expected, actual)) >= _nearly_infinite(
        expected.dtype, allowed
    )
    return np.asarray(~(same | (near & (distance <= allowed)) | edge))


def _nearly_infinite(dtype: Any, allowed: Any) -> Any:
    limits = np.finfo(dtype)
    return limits.max * (1 - limits.eps * np.max(allowed))


def _wrong_complex(actual: Array, expected: Array, allowed: Any) -> Array:
    parts = wrong(actual.real, expected.real) | wrong(actual.imag, expected.imag)
    if not parts.any():
        return parts
    with np.errstate(all="ignore"):
        room = np.maximum(allowed, COMPLEX_ULP) * np.spacing(np.abs(expected))
        near = np.abs(actual - expected) <= room
    # An infinite or undefined product is told by C99's recovery or not: NumPy's loops differ.
    odd = ~np.isfinite(expected) & ~np.isfinite(actual)
    return np.asarray(parts & ~near & ~odd)


def differences(
    actual: Any,
    expected: Any,
    allowed: Any = 0.0,
    ties: bool = False,
    skip: Array | None = None,
    room: Array | None = None,
) -> str | None:
    """Return how a result differs from NumPy's, or None.

    ``skip`` marks what NumPy leaves open, ``room`` is an absolute difference that is allowed.
    """
    expected = np.asarray(expected)
    if not isinstance(actual, (ArrayBase, np.ndarray, np.generic)):
        return f"{type(actual).__name__}, must be an array"
    if isinstance(actual, ArrayBase) and (text := unlike(actual, expected)):
        return text
    got = np.asarray(actual)
    if text := unlike(got, expected):
        return f"exported: {text}"
    bad = wrong(got, expected, allowed, ties)
    if skip is not None:
        bad = bad & ~skip
    if room is not None:
        with np.errstate(all="ignore"):
            bad = bad & ~(np.abs(got - expected) <= room)
    if not bad.any():
        return None
    first = tuple(int(i[0]) for i in np.nonzero(bad)) if bad.ndim else ()
    return (
        f"{int(bad.sum())} of {bad.size} elements, first at {first}: "
        f"{got[first]!r}, must be {expected[first]!r}"
    )


def bound_of(op: Op, dtype: np.dtype[Any], operands: Sequence[Any]) -> Any:
    """Return how many units in the last place the results of an elementwise op may be off."""
    if op.name in ("multiply", "divide", "reciprocal", "square") and dtype.kind == "c":
        return COMPLEX_ULP
    return op.ulp_from_reference(operands)


# What NumPy's own loops of complex numbers round on their way: exp2 the product with log 2, log1p
# the sum with one. Ours are held to the true values, in docs/accuracy.md.
_ROUNDED = {
    "exp2": lambda x: np.abs(x) * np.log(2) * np.abs(np.exp2(x)),
    "log1p": lambda x: np.ones_like(np.abs(x)),
}


def room_of(op: Op, operands: Sequence[Any]) -> Any:
    """Return the absolute difference that is allowed where results, ours or NumPy's, remain of
    larger terms."""
    if op.name in _ROUNDED and np.asarray(operands[0]).dtype.kind == "c":
        with np.errstate(all="ignore"):
            terms = _ROUNDED[op.name](np.asarray(operands[0]))
            return op.ulp_from_numpy * np.spacing(terms.astype(np.abs(operands[0]).dtype))
    with np.errstate(all="ignore"):
        if op.plane_loss is not None and np.result_type(*operands).kind == "c":
            return op.ulp_from_numpy * op.plane_unit(operands, op.reference(*operands))
        if op.against is None:
            return None
        return op.ulp_from_numpy * np.spacing(op.against(*operands))


@dataclass(frozen=True, slots=True)
class Raised:
    """An error in place of a result."""

    kind: str
    message: str


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or what it raises."""
    try:
        return call()
    except Exception as error:
        return Raised(type(error).__name__, str(error))


def unlike_error(actual: Any, expected: Any) -> str | None:
    """Return how one outcome differs from another, one of which is an error; or None."""
    if isinstance(actual, Raised) and isinstance(expected, Raised) and actual == expected:
        return None
    shown, must = (
        str(item) if isinstance(item, Raised) else type(item).__name__
        for item in (actual, expected)
    )
    return f"{shown}, must be {must}"


class Findings:
    """Differences found in a batch of cases; asserted together, so that one run shows them all."""

    def __init__(self) -> None:
        self.cases = 0
        self.found: list[str] = []

    def note(self, text: str | None, *case: object) -> None:
        """Keep a difference with the case it belongs to; None counts as a case without one."""
        self.cases += 1
        if text is not None:
            self.found.append(f"{' '.join(map(str, case))}: {text}")

    def check(self) -> None:
        """Fail if there was a difference, or no case."""
        assert self.cases, "nothing was compared"
        assert not self.found, "\n".join(
            [f"{len(self.found)} of {self.cases} cases differ", *self.found[:25]]
        )


def evaluated(results: list[Any]) -> list[Any]:
    """Return the results, computed in one request; what fails tells so again when it is read."""
    with contextlib.suppress(Exception):
        alight.evaluate(*[r for r in results if isinstance(r, ArrayBase)])
    return results
