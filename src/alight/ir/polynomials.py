"""Bodies of exponential and logarithm as arithmetic alone: they vectorise, and every device that has IEEE
arithmetic and fma gives the same bits.

Both reduce the argument exactly (two-part ln 2, Cody and Waite) and sum a series, long enough that
its remainder is below a quarter of an ulp. Flags come out as NumPy's do: an overflow overflows, the
logarithm of zero divides by zero, that of a negative number divides zero by zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """What the bodies need to know of a float type. ``ln2_high`` has enough trailing zeros that its product
    with any exponent is exact, and ``ln2_low`` is the rest of ln 2."""

    mantissa: int
    ln2_high: float
    ln2_low: float
    least: float  # below it exp is 0 also as a subnormal
    most: float  # above it exp is infinite
    exp_terms: int
    log_terms: int


# ln 2 = 0.693147180559945309417232121458176568 is cut after 32 (12) bits; the low part is that of
# the difference. The number of terms: 0.3466**(n + 1) / (n + 1)! and 0.0295**n / (2n + 1) against 2**-55
# and 2**-26, which are a quarter of an ulp.
FORMATS = {
    "float64": Format(
        52, 6.93147180369123816490e-01, 1.90821492927058770002e-10, -746.0, 710.0, 13, 10
    ),
    "float32": Format(23, 0.693359375, -2.12194440054690583e-4, -104.0, 89.0, 7, 4),
}  # fmt: skip


def _horner(variable: str, coefficients: list[float]) -> str:
    """Return the polynomial with these coefficients, of the highest power first."""
    text = repr(coefficients[0])
    for coefficient in coefficients[1:]:
        text = f"fma({text}, {variable}, {coefficient!r})"
    return text


def _exponential(format: Format, reduced: str) -> str:
    """Return a body; ``reduced`` names n, the exponent of two, in the low bits of t, and r, the rest."""
    series = [1 / math.factorial(i) for i in range(format.exp_terms, 1, -1)]
    # 1.5 * 2**mantissa: adding it rounds to an integer, which then stands in the low bits
    magic = 1.5 * 2.0**format.mantissa
    # 2**n in two factors, so that a subnormal result is rounded once
    return f"""a = where(x > {{most}}, {{most}}, where(x < {{least}}, {{least}}, x))
        {reduced.replace("MAGIC", repr(magic))}
        k = S(bits(t) - bits(T({magic!r})))
        h = k >> 1
        p = fma(r * r, {_horner("r", series)}, r) + 1
        f = floating(U(h + BIAS) << MANTISSA)
        g = floating(U((k - h) + BIAS) << MANTISSA)
        (p * f) * g"""


def exp(format: Format) -> str:
    """Return the body of exp for a float type."""
    reduced = f"""t = fma(a, {1 / math.log(2)!r}, MAGIC)
        n = t - MAGIC
        r = fma(n, {-format.ln2_low!r}, fma(n, {-format.ln2_high!r}, a))"""
    return _exponential(format, reduced).format(least=format.least, most=format.most)


def exp2(format: Format) -> str:
    """Return the body of exp2 for a float type."""
    # the exponents of the least subnormal and of infinity, and a little more
    least, most = (-1080.0, 1025.0) if format.mantissa == 52 else (-152.0, 129.0)
    reduced = f"""t = a + MAGIC
        r = (a - (t - MAGIC)) * {math.log(2)!r}"""
    return _exponential(format, reduced).format(least=least, most=most)


def log(format: Format) -> str:
    """Return the body of log for a float type."""
    series = [2 / (2 * i + 1) for i in range(format.log_terms, 0, -1)]
    scale = 2.0 ** (format.mantissa + 2)
    # x = m * 2**e with m from sqrt(1/2) to sqrt(2); log m by s = f / (2 + f), f = m - 1
    return f"""small = x < TINY
        w = x * where(small, T({scale!r}), 1)
        b = bits(w)
        c = b - bits(T({math.sqrt(0.5)!r}))
        e = T(S(c) >> MANTISSA) - where(small, T({format.mantissa + 2}), 0)
        m = floating((c & {(1 << format.mantissa) - 1}) + bits(T({math.sqrt(0.5)!r})))
        f = m - 1
        plain = x > 0
        s = where(plain, f, where(x == 0, -1, 0)) / where(plain, 2 + f, where(x != x, x, 0))
        z = s * s
        q = z * {_horner("z", series)}
        h = f * f * 0.5
        y = e * {format.ln2_high!r} - ((h - fma(s, h + q, e * {format.ln2_low!r})) - f)
        where(plain & (x < inf), y, where(plain, x, s))"""
