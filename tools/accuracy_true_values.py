"""The true values that ``tools/accuracy.py`` compares with, where NumPy's own functions in long
double are not exact enough, define something else, or are not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from alight._src.ir.op_table import Op

Array = np.ndarray[Any, Any]


def exp2_in_the_plane(z: Array) -> Array:
    """Return 2**z in long double, by an angle that is rounded as the dtype has it."""
    length = np.exp2(z.real.astype(np.longdouble))
    angle = (z.imag * z.real.dtype.type(np.log(2))).astype(np.longdouble)
    return length * np.cos(angle) + 1j * (length * np.sin(angle))


def log1p_in_the_plane(z: Array) -> Array:
    """Return log(1 + z) in long double, right also where z is small."""
    a, b = z.real.astype(np.longdouble), z.imag.astype(np.longdouble)
    length = np.hypot(1 + a, b)
    near = np.log1p(np.where(abs(length - 1) < 0.5, a * (2 + a) + b * b, 0)) / 2
    return np.where(abs(length - 1) < 0.5, near, np.log(length)) + 1j * np.arctan2(b, 1 + a)


def power_in_the_plane(x: Array, y: Array) -> Array:
    """Return x**y in long double; what NumPy makes of them where products overflow: those whose
    inverse is a whole negative power, and those of exponents and logarithms."""
    narrow = np.power(x, y)
    exact = np.power(x.astype(np.clongdouble), y.astype(np.clongdouble))
    inverse = (y.imag == 0) & (y.real < 0) & (np.rint(y.real) == y.real)
    over = inverse & (np.abs(exact) * np.finfo(x.dtype).max < 1.01)
    return np.where(over | ~np.isfinite(narrow), narrow, exact)


# What NumPy's own long double loses too much of, or defines otherwise than its narrower loops do.
PLANE: dict[str, Callable[..., Array]] = {
    "exp2": exp2_in_the_plane,
    "log1p": log1p_in_the_plane,
    "power": power_in_the_plane,
    "float_power": power_in_the_plane,
}


def _log_of_normal(mp: Any, x: Any) -> Any:
    beyond = mp.erfc(abs(x) / mp.sqrt(2)) / 2
    return mp.log1p(-beyond) if x > 0 else mp.log(beyond)


EXP_MOST = 709.78  # of more exprel is infinite in SciPy, for the exponential in it is
GAMMA_LEAST = 2.0**-1024  # and the inverse of less, of which it takes a logarithm


# SciPy's functions have no loops of long double, or none that is exact: their values by mpmath.
TRUE: dict[str, Callable[..., Any]] = {
    "special.expit": lambda mp, x: 1 / (1 + mp.exp(-x)),
    "special.logit": lambda mp, x: mp.log(x) - mp.log1p(-x),
    "special.xlogy": lambda mp, x, y: x * mp.log(y) if x else x,
    "special.xlog1py": lambda mp, x, y: x * mp.log1p(y) if x else x,
    "special.exprel": lambda mp, x: mp.expm1(x) / x if x < EXP_MOST else mp.inf,
    "special.erf": lambda mp, x: mp.erf(x),
    "special.erfc": lambda mp, x: mp.erfc(x),
    "special.ndtr": lambda mp, x: mp.erfc(-x / mp.sqrt(2)) / 2,
    "special.log_ndtr": _log_of_normal,
    "special.gammaln": lambda mp, x: mp.re(mp.loggamma(x)) if abs(x) > GAMMA_LEAST else mp.inf,
}
# How many of the points that others are measured on these take: a value takes mpmath 0.1 ms.
FEWER = 400
# Beyond it results are what the function says: zero, one, the operand or infinity.
FAR = 1e5


def true_values(op: Op, operands: Sequence[Array]) -> Array:
    """Return the values of a function of SciPy's in long double, by mpmath; SciPy's own where the
    operands are special, or far from all that bends."""
    import mpmath

    found = op.reference(*[x.astype(np.float64) for x in operands]).astype(np.longdouble)
    with mpmath.workprec(200):
        for i, row in enumerate(zip(*operands, strict=True)):
            if not np.all(np.isfinite(row)) or (op.nin == 1 and abs(row[0]) > FAR):
                continue
            try:
                value = TRUE[op.name](mpmath, *[mpmath.mpf(float(x)) for x in row])
                high = float(value)
            except (ValueError, ZeroDivisionError, TypeError):  # no real number
                continue
            if not high:
                continue  # of which sign it is the function says
            found[i] = np.longdouble(high)
            if np.isfinite(high):
                found[i] += np.longdouble(float(value - high))
    return found
