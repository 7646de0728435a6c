"""Bodies of exponentials, logarithms, tanh, sine and cosine as arithmetic alone.

They vectorise, and every device that has IEEE arithmetic and fma gives the same bits. The argument
is reduced by a constant in parts (Cody and Waite), and a series is summed whose remainder is below
a quarter of an ulp. Flags come out as NumPy's do: an overflow overflows, the logarithm of zero
divides by zero, that of a negative number divides zero by zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """What the bodies need to know of a float type. ``ln2_high`` has enough trailing zeros that its
    product with any exponent is exact, and ``ln2_low`` is the rest of ln 2."""

    mantissa: int
    ln2_high: float
    ln2_low: float
    least: float  # below it exp is 0 also as a subnormal
    most: float  # above it exp is infinite
    exp_terms: int
    log_terms: int


# ln 2 = 0.693147180559945309417232121458176568 is cut after 32 (9) bits; the low part is the
# difference. The number n of terms: 0.3466**(n + 1) / (n + 1)! for the exponential, 0.0295**(n + 1)
# / (2n + 3) for the logarithm, against 2**-55 (2**-26), a quarter of an ulp.
FORMATS = {
    "float64": Format(
        52, 6.93147180369123816490e-01, 1.90821492927058770002e-10, -746.0, 710.0, 13, 10
    ),
    "float32": Format(23, 0.693359375, -2.12194440054690583e-4, -104.0, 89.0, 7, 4),
}  # fmt: skip


# pi / 2 in three parts, each the next bits of the rest (pi = 3.14159265358979323846264338327950288
# 4197169399375105820974944592307816406286); ``far`` is where the quotient by pi / 2 would leave the
# bits that count it (float32), or where tests have stopped (float64). The number n of terms:
# 0.7854**(2n + 2) / (2n + 2)! against a quarter of an ulp.
@dataclass(frozen=True, slots=True)
class Circle:
    """What the bodies of sine and cosine need to know of a float type."""

    mantissa: int
    parts: tuple[float, float, float]
    far: float
    sine_terms: int


CIRCLES = {
    "float64": Circle(
        mantissa=52,
        parts=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
        far=1e9,
        sine_terms=8,
    ),
    "float32": Circle(
        mantissa=23,
        parts=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
        far=1e5,
        sine_terms=5,
    ),
}


def sine(circle: Circle, shift: int, name: str) -> str:
    """Return the body of sine (shift 0) or cosine (1, by a quarter turn) for a float type."""
    count = circle.sine_terms
    sines = [(-1) ** i / math.factorial(2 * i + 1) for i in range(count, 0, -1)]
    cosines = [(-1) ** i / math.factorial(2 * i) for i in range(count, 1, -1)]
    magic = 1.5 * 2.0**circle.mantissa
    first, second, third = circle.parts
    # cos r = 1 - z / 2 + ..., where the rounding of 1 - z / 2 is put back
    odd = f"(q & 1) {'!=' if shift == 0 else '=='} 0"
    value = f"where({odd}, c, s)"
    turned = f"floating(bits({value}) ^ ((U(q + {shift}) & 2) << (WIDTH - 2)))"
    if shift == 0:
        turned = f"where(x == 0, x, {turned})"
    return f"""t = fma(x, {2 / math.pi!r}, {magic!r})
        n = t - {magic!r}
        q = S(bits(t) - bits(T({magic!r})))
        r = fma(n, {-third!r}, fma(n, {-second!r}, fma(n, {-first!r}, x)))
        z = r * r
        s = fma(r * z, {_horner("z", sines)}, r)
        h = z * 0.5
        w = 1 - h
        c = w + fma(z * z, {_horner("z", cosines)}, (1 - w) - h)
        rarely(fabs(x) > {circle.far!r}, libm.{name}(x), {turned})"""


def _horner(variable: str, coefficients: list[float]) -> str:
    """Return the polynomial with these coefficients, of the highest power first."""
    text = repr(coefficients[0])
    for coefficient in coefficients[1:]:
        text = f"fma({text}, {variable}, {coefficient!r})"
    return text


def _exponential(format: Format, reduced: str) -> str:
    """Return a body; ``reduced`` names n, the exponent of two, in the low bits of t, and r, the
    rest."""
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


def _expm1(format: Format, argument: str) -> str:
    """Return lines that name u = exp(argument) - 1; the argument is not so large that it
    overflows."""
    series = [1 / math.factorial(i) for i in range(format.exp_terms, 1, -1)]
    magic = 1.5 * 2.0**format.mantissa
    return f"""v = {argument}
        t = fma(v, {1 / math.log(2)!r}, {magic!r})
        n = t - {magic!r}
        r = fma(n, {-format.ln2_low!r}, fma(n, {-format.ln2_high!r}, v))
        k = S(bits(t) - bits(T({magic!r})))
        p = fma(r * r, {_horner("r", series)}, r)
        f = floating(U(k - 1 + BIAS) << MANTISSA)
        u = where(n == 0, p, fma(p, f, f - 0.5) * 2)"""


def expm1(format: Format) -> str:
    """Return the body of expm1 for a float type."""
    # below -40 (exp < 2**-57) the result is -1
    a = f"where(x > {format.most!r}, {format.most!r}, where(x < -40.0, -40.0, x))"
    # 2**(n - 1) stands for 2**n: with n = 1024 (128) the result may still be finite
    return f"""{_expm1(format, a)}
        where((x == 0) | (x == inf), x, u)"""


def tanh(format: Format) -> str:
    """Return the body of tanh for a float type."""
    # from 20 on (exp(-40) < 2**-57) the result is 1
    return f"""w = fabs(x) * 2
        {_expm1(format, "where(w > 40.0, 40.0, w)")}
        copysign(u / (u + 2), x)"""


def log(format: Format) -> str:
    """Return the body of log for a float type."""
    return f"""{_logarithm(format)}
        y = e * {format.ln2_high!r} - ((h - fma(s, h + q, e * {format.ln2_low!r})) - f)
        where(plain & (x < inf), y, where(plain, x, s))"""


def log2(format: Format) -> str:
    """Return the body of log2 for a float type: exact for powers of two."""
    return f"""{_logarithm(format)}
        y = fma(f - (h - s * (h + q)), {1 / math.log(2)!r}, e)
        where(plain & (x < inf), y, where(plain, x, s))"""


def _logarithm(format: Format) -> str:
    """Return lines that name e, and f, h, s and q: log x = e * ln 2 + f - (h - s * (h + q))."""
    series = [2 / (2 * i + 1) for i in range(format.log_terms, 0, -1)]
    scale = 2.0 ** (format.mantissa + 2)
    # s holds what is not plain too: -1 / 0 for zero, 0 / 0 below it, a quiet NaN for NaN.
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
        h = f * f * 0.5"""
