"""Remainders of floats, and products with powers of two."""

# The rounded quotient, truncated, is at most one too large, and what is left is then exact. Far
# larger quotients take a loop: of vectors one of ``fmod_step``, else the C library's.
FUNCTIONS = """
def fmod(x, y):
    m = magnitude(x)
    n = magnitude(y)
    top = magnitude_of(T(inf))
    a = where(m < top, fabs(x), 0)
    b = where(n < top, fabs(y), 1)
    plain = (a * k.inverse_quotient < b) & (m < top) & (n < top)
    a = where(plain, a, 0)
    b = where(plain, b, 1)
    r = fma(-trunc(a / b), b, a)
    r = where(r < 0, r + b, r)
    nan = (m > top) | (n > top)
    other = rarely(~nan, libm.fmod(x, y), where(m > top, x, y))
    return rarely(~plain, other, copysign(r, x))

# A loop over remainders begins with numbers above zero and the exponent of the second.
def fmod_first(x, y):
    whole = (fabs(x) < inf) & (y != 0) & (fabs(y) < inf)
    b = where(whole, fabs(y), 1)
    return where(whole, fabs(x), 1), b, S(continued(b, positive(b))) >> MANTISSA

# b is doubled so often that the quotient is below 2**(MANTISSA + 1).
def fmod_step(a, b, exponent):
    n = (S(bits(a)) >> MANTISSA) - exponent - MANTISSA
    n = where(n > 0, n, 0)
    half = n >> 1
    c = b * power_of_two(half) * power_of_two(n - half)
    r = fma(-trunc(a / c), c, a)
    return where(r < 0, r + c, r)

def fmod_last(x, y, r):
    none = (fabs(x) == inf) | (y == 0)
    r = where(none, sqrt(where(none, T(-1), 1)), copysign(r, x))
    return where((fabs(y) == inf) & ~none, x, r)

def ldexp(x, n):
    usual = (n >= 1 - BIAS) & (n <= BIAS)
    y = x * power_of_two(where(usual, n, 0))
    return rarely(~usual, ldexp_far(x, n), y)

# Two steps that no result of normal size is rounded by, and the last.
def ldexp_far(x, n):
    n = S(where(n > 9999, 9999, where(n < -9999, -9999, n)))
    a = near_exponent(n)
    n = n - a
    b = near_exponent(n)
    n = n - b
    n = where(n > BIAS, BIAS, where(n < 1 - BIAS, 1 - BIAS, n))
    return x * power_of_two(a) * power_of_two(b) * power_of_two(n)

def near_exponent(n):
    return where(n > BIAS, S(BIAS), where(n < 1 - BIAS, S(MANTISSA + 2 - BIAS), 0))

def power_of_two(n):
    return floating(U(n + BIAS) << MANTISSA)
"""
