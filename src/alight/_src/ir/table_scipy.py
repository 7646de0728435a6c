"""Functions of ``scipy.special`` as ops.

Read once a program has imported ``scipy.special``: nothing here imports SciPy for one that has not.
Its ufuncs raise no floating-point errors. Their own distance from the true value is what Cephes'
formulas lose: of the tails of the normal distribution, as much as a rounded square says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from alight._src.base.originals import np
from alight._src.ir.op import NUMPY_ULP, Kind, declare

_special: Any = sys.modules["scipy.special"]


def _ufunc(name: str, body: str, ulp: float, **fields: Any) -> None:
    found = getattr(_special, name, None)
    if isinstance(found, np.ufunc):  # a later SciPy may make a function of one
        fields |= {"special": True, "ulp": ulp, "raises": ""}
        declare(f"special.{name}", Kind.ELEMENTWISE, found, body={"f": body}, **fields)


# --- how far SciPy's own results are from the true values ---
def _squared(most: float) -> Callable[[Any], Any]:
    """Return the units that a rounded square in an exponential loses, and a difference from one,
    as a function of operands; beyond ``most`` results are subnormal, which SciPy makes zero. Of
    single floats it rounds what it has in double ones."""

    def units(x: Any) -> Any:
        if x.dtype == np.float32:
            return NUMPY_ULP
        return np.where(np.abs(x) > most, 2.0**53, 16 + 2 * x * x)

    return units


def _normal_only(x: Any) -> Any:
    """Return the units of the logistic function: zero where it is subnormal."""
    least = -87 if x.dtype == np.float32 else -708
    return np.where(x < least, 2.0**53, NUMPY_ULP)


# --- the logistic function and what it comes of ---
_ufunc("expit", "expit(x)", 3, reference_ulp=_normal_only)
_ufunc("logit", "logit(x)", 2)
_ufunc("xlogy", "xlogy(x, y)", 2)
_ufunc("xlog1py", "xlog1py(x, y)", 2)
_ufunc("exprel", "exprel(x)", 2)

# --- the normal distribution ---
_ufunc("erf", "erf(x)", 2)
_ufunc("erfc", "erfc(x)", 4, reference_ulp=_squared(26))
_ufunc("ndtr", "ndtr(x)", 4, reference_ulp=_squared(37))
_ufunc("log_ndtr", "log_ndtr(x)", 5, reference_ulp=_squared(37))


# --- the gamma function ---
def _reflected(x: Any) -> Any:
    """Return the larger of the terms that log gamma of a number below zero is the difference of."""
    with np.errstate(all="ignore"):
        below = np.where(x < 0, -x, 1)
        terms = np.abs(_special.gammaln(below)) + np.abs(np.log(below)) + 2
        return np.where((x < 0) & np.isfinite(terms), terms, 0).astype(x.dtype)


def _about_zeros(x: Any) -> Any:
    """Return the units of log gamma: next to 1 and 2, where it is zero, those of these."""
    if x.dtype == np.float32:
        return NUMPY_ULP
    return 16 + 4 / np.abs(x - 1) + 4 / np.abs(x - 2)


_ufunc("gammaln", "gammaln(x)", 5, against=_reflected, reference_ulp=_about_zeros)


# --- compositions ---
def _composition(name: str, ulp: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(lower: Callable[..., Any]) -> Callable[..., Any]:
        function = getattr(_special, name, None)
        if function is not None:  # older SciPys, and stand-ins of tests, have not all
            declare(f"special.{name}", Kind.COMPOSITION, function, lower=lower, ulp=ulp)
        return lower

    return decorate


def _is_real(array: Any) -> bool:
    """Tell whether an operand is an array of numbers that are not complex, with elements along
    axes."""
    dtype = getattr(array, "dtype", None)
    return dtype is not None and dtype.kind in "iuf" and array.ndim > 0 and array.size > 0


@_composition("softmax", 8)
def _softmax(x: Any, axis: Any = None) -> Any:
    if not _is_real(x):
        return NotImplemented
    shifted = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return shifted / np.sum(shifted, axis=axis, keepdims=True)


# As many as are largest are left out of the sum, which is small then, and its logarithm exact. The
# addition comes last: of what has no axes NumPy gives a scalar there, as SciPy does, and arrays of
# `squeeze` and `where`.
@_composition("logsumexp", 8)
def _logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: Any = False) -> Any:
    if not _is_real(a) or b is not None or type(keepdims) is not bool:
        return NotImplemented
    a = a.astype(np.float64) if a.dtype.kind in "iu" else a
    with np.errstate(all="ignore"):
        most = np.max(a, axis=axis, keepdims=True)
        largest = a == most
        rest = np.where(largest, 0, np.exp(a - most))
        count = np.sum(largest, axis=axis, keepdims=True, dtype=a.dtype)
        rest = np.sum(rest, axis=axis, keepdims=True)
        above = np.log1p(rest / count) + np.log(count)
        if keepdims:
            return np.where(count == 0, most, above + most)  # laid out as SciPy's, by a `where`
        return np.squeeze(above, axis=axis) + np.squeeze(most, axis=axis)
