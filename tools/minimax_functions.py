"""What ``tools/minimax.py`` approximates: functions on intervals, with what their errors count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
from mpmath import mp, mpf

mp.prec = 200
# The error of a polynomial may be this part of an ulp of the result.
SHARE = 1 / 24

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Polynomial:
    """A function to approximate; ``weight`` is what an error of it counts in the result, relative
    to the result. ``low`` and ``high`` end the interval. ``enough`` is the error allowed, by the
    bits of the format, where it is not a share of an ulp."""

    function: Function
    weight: Function
    low: Any
    high: Any
    enough: Callable[[int], Any] = lambda bits: mpf(2) ** -bits * SHARE
    formats: tuple[str, ...] = ("float64", "float32")


def odd(function: Function, point: Any) -> Any:
    """Return (function(t) / t - 1) / t**2 at t**2 = point."""
    if not point:
        return mpmath.taylor(function, 0, 3)[3]
    t = mpmath.sqrt(point)
    return (function(t) / t - 1) / point


def taylor_rest(function: Function, point: Any, known: Sequence[Any]) -> Any:
    """Return the function less its known first terms, divided by the next power."""
    if not point:
        return mpmath.taylor(function, 0, len(known))[len(known)]
    rest = function(point) - sum(c * point**i for i, c in enumerate(known))
    return rest / point ** len(known)


def _even(function: Function, point: Any, known: Sequence[Any]) -> Any:
    if not point:
        point = mpf(2) ** -60
    t = mpmath.sqrt(point)
    rest = function(t) - sum(c * point**i for i, c in enumerate(known))
    return rest / point ** len(known)


HALF_LN2 = mpmath.ln2 / 2
ONE = mpf(1)
# |s| = |(m - 1) / (m + 1)| for m from sqrt(1/2) to sqrt(2)
MOST_S = (mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)
# Other logarithms take m from here to twice this: so (m - 1) log2 e is below one half, and of an
# exponent that it is added to, a whole number, at least half remains. Then |s| is
BINADE_START = mpf("0.6732")
MORE_S = (1 - BINADE_START) / (1 + BINADE_START)
# x = m 2**e with m nearly 1 or this, of which few bits are set; then |(m - pivot) / (m + pivot)| is
PIVOT = mpf(45) / 32
MOST_PIVOT = (1 - mpmath.sqrt(PIVOT / 2)) / (1 + mpmath.sqrt(PIVOT / 2))
TWO_LOG2_E = 2 / mpmath.ln2
SINGLE = ("float32",)
DOUBLE = ("float64",)
# up to here tanh is a polynomial: beyond, 1 - tanh is below a quarter
TANH_BEND = mpf("1")


# Quantiles of the normal distribution go by w = -log(1 - x**2), x = 1 - 2 t for a tail t: up to
# here by w itself, which leaves one in a thousand to the root of w. It ends at the least tails
# there are, 2**-65, of single floats 2**-33.
NORMAL_BEND = mpf("6.25")
NORMAL_ENDS = {"float64": 63 * mpmath.ln2, "float32": 31 * mpmath.ln2}


def _normal_over(w: Any) -> Any:
    """Return the quantile over x."""
    if not w:
        return mpmath.sqrt(mpmath.pi / 2)
    x = mpmath.sqrt(-mpmath.expm1(-w))
    return mpmath.sqrt(2) * mpmath.erfinv(x) / x


def _normal_tail(format_: str) -> Polynomial:
    root = mpmath.sqrt(NORMAL_BEND)
    return Polynomial(
        lambda s: _normal_over((s + root) ** 2),
        lambda s: 1 / _normal_over((s + root) ** 2),
        0,
        mpmath.sqrt(NORMAL_ENDS[format_]) - root,
        lambda bits: mpf(2) ** -bits / 4,
        (format_,),
    )


def _atanh_over(t: Any) -> Any:
    return mpmath.atanh(t) / t if t else ONE


def double_part(value: Any, bits: int) -> Any:
    """Return the value rounded to a number of bits."""
    with mpmath.workprec(bits):
        return +mpf(value)


# Short factors of s and s**3 in log2((1 + s) / (1 - s)): products with a short s are exact. Of
# single floats the first takes half of the greatest s**3 along.
LOG2_SLOPE = {
    "float64": double_part(TWO_LOG2_E, 26),
    "float32": double_part(TWO_LOG2_E * (1 + MOST_PIVOT**2 / 6), 9),
}
LOG2_CUBIC = double_part(TWO_LOG2_E / 3, 26)

# The functions of SciPy's are computed in float64 for single floats, too. erfcx a is
# (c + P((a - bend) / (a + bend))) / (1 + 2 a): the numerator goes from 1 to 2 / sqrt(pi) and hardly
# bends. Of each function a constant is apart, rounded, and P has the rest of it.
TAIL_BEND = mpf(3)
STIRLING_START = mpf("7.5")
TWO_OVER_ROOT_PI = 2 / mpmath.sqrt(mpmath.pi)


def _erf_rest(z: Any) -> Any:
    known = double_part(TWO_OVER_ROOT_PI, 53)
    if not z:
        return TWO_OVER_ROOT_PI - known
    return mpmath.erf(mpmath.sqrt(z)) / mpmath.sqrt(z) - known


def _tail_over(t: Any) -> Any:
    """Return (1 + 2 a) erfcx a at (a - bend) / (a + bend) = t."""
    if t == 1:
        return TWO_OVER_ROOT_PI
    a = TAIL_BEND * (1 + t) / (1 - t)
    if a < 20:
        with mpmath.workprec(1600):  # exp(400) has 577 bits
            return (1 + 2 * a) * mpmath.exp(a * a) * mpmath.erfc(a)
    total = term = mpf(1)  # of the asymptotic series, whose least term is far below all that counts
    for n in range(1, 150):
        term *= -(2 * n - 1) / (2 * a * a)
        total += term
    return total * (1 / a + 2) / mpmath.sqrt(mpmath.pi)


TAIL_MIDDLE = double_part(_tail_over(mpf(0)), 53)
DIGAMMA_TWO = double_part(mpmath.digamma(2), 53)


# What is left of 2**r, and its weight.
_POWER_OF_TWO: tuple[Function, Function] = (
    lambda r: taylor_rest(lambda t: mpmath.power(2, t), r, (1,)),
    lambda r: r / mpmath.power(2, r),
)


def _log_gamma_over(z: Any) -> Any:
    """Return log gamma(2 + z) over z."""
    near = abs(z) < mpf(2) ** -90
    return mpmath.digamma(2) if near else mpmath.loggamma(2 + z) / z


def _stirling(w: Any) -> Any:
    """Return what Stirling's formula lacks of log gamma a, times a, at 1 / a**2 = w."""
    if not w:
        return ONE / 12
    a = 1 / mpmath.sqrt(w)
    known = (a - ONE / 2) * mpmath.log(a) - a + mpmath.log(2 * mpmath.pi) / 2
    return (mpmath.loggamma(a) - known) * a


def _stirling_weight(w: Any) -> Any:
    if not w:
        return mpf(0)
    a = 1 / mpmath.sqrt(w)
    return 1 / (a * mpmath.loggamma(a))


POLYNOMIALS: dict[str, Polynomial] = {
    # exp r = 1 + r + r**2 P(r)
    "exp": Polynomial(
        lambda r: taylor_rest(mpmath.exp, r, (1, 1)), lambda r: r * r, -HALF_LN2, HALF_LN2
    ),
    "exp_short": Polynomial(
        lambda r: taylor_rest(mpmath.exp, r, (1, 1)),
        lambda r: r * r / mpmath.exp(r),
        mpmath.log(mpf(3) / 4),
        mpmath.log(mpf(3) / 2),
        lambda bits: mpf(2) ** -bits / 12,
        SINGLE,
    ),
    # 2**r = 1 + r ln 2 + r**2 P(r)
    "exp2": Polynomial(
        lambda r: taylor_rest(lambda t: mpmath.power(2, t), r, (1, mpmath.ln2)),
        lambda r: r * r,
        -ONE / 2,
        ONE / 2,
        formats=DOUBLE,
    ),
    # 2**r = 1 + r P(r)
    "exp2_short": Polynomial(
        *_POWER_OF_TWO,
        -ONE / 2,
        ONE / 2,
        lambda bits: mpf(2) ** -bits / 12,
        SINGLE,
    ),
    # exp r - 1 = r + r**2 / 2 + r**3 P(r) = r + r**2 Q(r), relative to itself
    "expm1": Polynomial(
        lambda r: taylor_rest(mpmath.expm1, r, (0, 1, ONE / 2)),
        lambda r: r**3 / mpmath.expm1(r) if r else mpf(0),
        -HALF_LN2,
        HALF_LN2,
        formats=DOUBLE,
    ),
    "expm1_short": Polynomial(
        lambda r: taylor_rest(mpmath.expm1, r, (0, 1)),
        lambda r: r**2 / mpmath.expm1(r) if r else mpf(0),
        -HALF_LN2,
        HALF_LN2,
        formats=SINGLE,
    ),
    # exp 2r = P(r), in a quotient of at most a quarter
    "exp_twice": Polynomial(
        lambda r: mpmath.exp(2 * r),
        lambda r: ONE / 4,
        -HALF_LN2 / 2,
        HALF_LN2 / 2,
        formats=SINGLE,
    ),
    # tanh t = t + t**3 P(t**2)
    "tanh": Polynomial(
        lambda z: odd(mpmath.tanh, z),
        lambda z: z,
        0,
        TANH_BEND**2,
        lambda bits: mpf(2) ** -bits / 9,
        SINGLE,
    ),
    # sinh r = r + r**3 P(r**2), cosh r = 1 + r**2 P(r**2)
    "sinh": Polynomial(lambda z: odd(mpmath.sinh, z), lambda z: z, 0, HALF_LN2**2),
    "cosh": Polynomial(lambda z: _even(mpmath.cosh, z, (1,)), lambda z: z, 0, HALF_LN2**2),
    # atanh s = s + s**3 P(s**2); for logarithms 4 P
    "log": Polynomial(
        lambda z: 4 * odd(mpmath.atanh, z), lambda z: z / 4, 0, MORE_S**2, formats=DOUBLE
    ),
    # 2 P for logarithms of single floats, also where s has the logarithm's factor in it
    "log_half": Polynomial(
        lambda z: 2 * odd(mpmath.atanh, z), lambda z: z / 2, 0, MORE_S**2, formats=SINGLE
    ),
    "log2_half": Polynomial(
        lambda z: 2 * mpmath.ln2**2 * odd(mpmath.atanh, mpmath.ln2**2 * z),
        lambda z: z / 2,
        0,
        (MOST_S / mpmath.ln2) ** 2,
        formats=SINGLE,
    ),
    "log10_half": Polynomial(
        lambda z: 2 * mpmath.ln10**2 * odd(mpmath.atanh, mpmath.ln10**2 * z),
        lambda z: z / 2,
        0,
        (MOST_S / mpmath.ln10) ** 2,
        formats=SINGLE,
    ),
    # atanh s = s + s**3 P(s**2) for the quotient of arctanh, whose power of two comes from the
    # exponents alone: it is within half an octave and what the line through a binade misses of a
    # logarithm, twice 0.0431
    "atanh_wide": Polynomial(
        lambda z: odd(mpmath.atanh, z), lambda z: z, 0, mpmath.tanh(mpf("0.5862") * HALF_LN2) ** 2
    ),
    # for the logarithm of a power, log2((1 + s) / (1 - s)) = c s + d s**3 + s P(s**2), where c and
    # d are short; of single floats P has the cubic term too. It counts times a product of up to
    # 2**10 and 2**7, times ln 2
    "log2_rest": Polynomial(
        lambda z: (
            TWO_LOG2_E * _even(_atanh_over, z, (1, ONE / 3)) * z * z
            + ((TWO_LOG2_E / 3 - LOG2_CUBIC) * z + TWO_LOG2_E - LOG2_SLOPE["float64"])
        ),
        lambda z: mpf(2) ** 10 * mpmath.ln2 / TWO_LOG2_E,
        0,
        MOST_PIVOT**2,
        lambda bits: mpf(2) ** -bits / 10,
        DOUBLE,
    ),
    "log2_rest_short": Polynomial(
        lambda z: TWO_LOG2_E * _even(_atanh_over, z, (1,)) * z + TWO_LOG2_E - LOG2_SLOPE["float32"],
        lambda z: mpf(2) ** 7 * mpmath.ln2 / TWO_LOG2_E,
        0,
        MOST_PIVOT**2,
        formats=SINGLE,
    ),
    # 2**r = 1 + r P(r), for what is a little more than one half, by the rest of a logarithm times
    # its power; of single floats by the cubic term, too
    "exp2_beyond": Polynomial(
        *_POWER_OF_TWO,
        -mpf("0.5163"),
        mpf("0.5163"),
        formats=DOUBLE,
    ),
    "exp2_wide": Polynomial(
        *_POWER_OF_TWO,
        -mpf("0.665"),
        mpf("0.665"),
        lambda bits: mpf(2) ** -bits / 6,
        SINGLE,
    ),
    # t**(-1/3): where an iteration starts
    "cbrt": Polynomial(
        lambda t: t ** (-ONE / 3),
        lambda t: t ** (ONE / 3),
        1,
        2,
        lambda bits: mpf(2) ** -14,
        DOUBLE,
    ),
    # sin r = r + r**3 P(r**2), cos r = 1 - r**2 / 2 + r**4 P(r**2)
    "sin": Polynomial(
        lambda z: odd(mpmath.sin, z), lambda z: z, 0, (mpmath.pi / 4) ** 2, formats=DOUBLE
    ),
    "cos": Polynomial(
        lambda z: _even(mpmath.cos, z, (1, -ONE / 2)),
        lambda z: z * z,
        0,
        (mpmath.pi / 4) ** 2,
        formats=DOUBLE,
    ),
    # sin r = r + r**3 P(r**2), cos r = 1 + r**2 P(r**2)
    "sin_short": Polynomial(
        lambda z: odd(mpmath.sin, z),
        lambda z: z,
        0,
        (mpmath.pi / 4) ** 2,
        lambda bits: mpf(2) ** -bits / 12,
        SINGLE,
    ),
    "cos_whole": Polynomial(
        lambda z: _even(mpmath.cos, z, (1,)),
        lambda z: z / mpmath.cos(mpmath.sqrt(z)),
        0,
        (mpmath.pi / 4) ** 2,
        formats=SINGLE,
    ),
    # tan r = r + r**3 P(r**2)
    "tan": Polynomial(
        lambda z: odd(mpmath.tan, z), lambda z: z, 0, (mpmath.pi / 4) ** 2, formats=SINGLE
    ),
    # asin t = t + t**3 P(t**2) up to one half
    "asin": Polynomial(lambda z: odd(mpmath.asin, z), lambda z: z, 0, ONE / 4),
    # atan t = t + t**3 P(t**2) up to tan(pi / 8), and up to 1
    "atan": Polynomial(
        lambda z: odd(mpmath.atan, z),
        lambda z: z,
        0,
        mpmath.tan(mpmath.pi / 8) ** 2,
        formats=DOUBLE,
    ),
    "atan_wide": Polynomial(lambda z: odd(mpmath.atan, z), lambda z: z, 0, 1, formats=SINGLE),
    # asinh t = t + t**3 P(t**2) up to one half, and up to one eighth
    "asinh": Polynomial(lambda z: odd(mpmath.asinh, z), lambda z: z, 0, ONE / 4, formats=SINGLE),
    "asinh_short": Polynomial(
        lambda z: odd(mpmath.asinh, z), lambda z: z, 0, ONE / 64, formats=DOUBLE
    ),
    # the quantile of the normal distribution is x P(w - bend / 2), beyond the bend
    # x P(sqrt(w) - sqrt(bend))
    "normal": Polynomial(
        lambda t: _normal_over(t + NORMAL_BEND / 2),
        lambda t: 1 / _normal_over(t + NORMAL_BEND / 2),
        -NORMAL_BEND / 2,
        NORMAL_BEND / 2,
        lambda bits: mpf(2) ** -bits / 4,
    ),
    "normal_tail": _normal_tail("float64"),
    "normal_tail_short": _normal_tail("float32"),
    # erf x = c x + x P(x**2), c = 2 / sqrt(pi) rounded, up to 1
    "erf": Polynomial(_erf_rest, lambda z: 1 / (_erf_rest(z) + 1), 0, 1, formats=DOUBLE),
    "tail": Polynomial(lambda t: _tail_over(t) - TAIL_MIDDLE, lambda t: ONE, -1, 1, formats=DOUBLE),
    # log gamma(2 + z) = c z + z P(z) up to one half
    "log_gamma": Polynomial(
        lambda z: _log_gamma_over(z) - DIGAMMA_TWO,
        lambda z: 1 / _log_gamma_over(z),
        -ONE / 2,
        ONE / 2,
        formats=DOUBLE,
    ),
    # Stirling's formula from here on
    "stirling": Polynomial(_stirling, _stirling_weight, 0, 1 / STIRLING_START**2, formats=DOUBLE),
}
