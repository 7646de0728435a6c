"""Exponentials and hyperbolic functions.

The argument is n ln 2 + r + l: a multiple of ln 2, which is subtracted in two parts (Cody and
Waite), the rest, and what rounding left of the rest. Whatever is large, subnormal in the result or
not a number is told by the bits of the argument, as comparing a NaN would raise a flag.
"""

FUNCTIONS = """
def magnitude(x):
    return S(bits(fabs(x)))

def magnitude_of(c):
    return S(bits(c))

def by_ln2(a):
    t = fma(a, k.log2_e, k.magic_biased)
    n = t - k.magic_biased
    h = fma(n, -k.ln2_high, a)
    c = n * k.ln2_low
    r = h - c
    return t, r, (h - r) - c

def exp_of(a):
    t, r, l = by_ln2(a)
    f = floating(bits(t) << MANTISSA)
    return fma(r + fma(r * r, poly.exp(r), l), f, f)

# Of single floats exp r is from 3/4 to 3/2: below 1, where an ulp is half of what it is above, r is
# short enough to be rounded.
def exp_of_float32(a):
    t = fma(a - k.exp_middle, k.log2_e, k.magic_biased)
    n = t - k.magic_biased
    r = fma(n, -k.ln2_low, fma(n, -k.ln2_high, a))
    f = floating(bits(t) << MANTISSA)
    return fma(fma(r * r, poly.exp_short(r), r), f, f)

def exp(x):
    m = magnitude(x)
    plain = m < magnitude_of(T(k.exp_plain))
    y = exp_of(where(plain, x, 0))
    far = (x <= k.exp_most) & (bits(x) < bits(T(k.exp_none)))
    other = rarely(far, apart.exp_far(x), below_or(x, m, T(0), above(x, k.exp_most)))
    return rarely(~plain, other, y)

# What is too large gives infinity, and says so unless it is infinite itself.
def above(x, most):
    return where(x == x, where(x > most, x, T(0)) * floating(bits(T(inf)) - 1), x)

# The first value for what is negative and no NaN, else the second.
def below_or(x, m, a, b):
    return where((S(bits(x)) < 0) & (m <= magnitude_of(T(inf))), a, b)

def exp_far(x):
    return exp_scaled(x, S(0))

def exp_scaled(a, j):
    t, r, l = by_ln2(a)
    n = S(bits(t) - bits(T(k.magic_biased))) + j
    p = (r + fma(r * r, poly.exp(r), l)) + 1
    return in_two(p, n)

# p 2**n, of a p next to 1 and n up to BIAS + 1. What may be denormal is a whole number of the least
# ones, rounded where 2**MANTISSA is added, and then the bits of the result: a product that is
# denormal takes some processors 150 cycles.
def in_two(p, n):
    low = n < 2 - BIAS
    large = n > 0
    e = where(low, n + (MANTISSA - 1 + BIAS), where(large, n - 1, n))
    t = p * floating(U(e + BIAS) << MANTISSA)
    one = T(2.0 ** MANTISSA)
    least = where(t < one, bits(t + one), bits(t) + (U(1) << MANTISSA)) - bits(one)
    return where(low, floating(least), t * where(large, T(2), 1))

# r, and 2**(a - r)
def exp2_parts(a):
    t = a + k.magic_biased
    return a - (t - k.magic_biased), floating(bits(t) << MANTISSA)

def exp2_of(a):
    r, f = exp2_parts(a)
    return fma(exp2_rest(r), f, f)

# Of single floats 2**r is one polynomial, which is rounded once where it is below 1, too.
def exp2_of_float32(a):
    r, f = exp2_parts(a)
    return exp2_whole(r) * f

# What rounding left of exp2 x, where that is normal.
def exp2_left(x):
    r, f = exp2_parts(where(magnitude(x) < magnitude_of(T(k.exp2_plain)), x, 0))
    p = exp2_rest(r)
    return fma(p, f, f - fma(p, f, f))

def exp2_left_float32(x):
    r, f = exp2_parts(where(magnitude(x) < magnitude_of(T(k.exp2_plain)), x, 0))
    p = poly.exp2_short(r)
    return fma(r, p, 1 - fma(r, p, 1)) * f

def exp2(x):
    m = magnitude(x)
    plain = m < magnitude_of(T(k.exp2_plain))
    y = exp2_of(where(plain, x, 0))
    far = (x <= k.exp2_most) & (bits(x) < bits(T(k.exp2_none)))
    other = rarely(far, apart.exp2_far(x), below_or(x, m, T(0), above(x, k.exp2_most)))
    return rarely(~plain, other, y)

def exp2_rest(r):
    return fma(r, k.ln2, r * fma(r, poly.exp2(r), k.ln2_rest))

def exp2_whole(r):
    return exp2_rest(r) + 1

def exp2_whole_float32(r):
    return fma(r, poly.exp2_short(r), 1)

def exp2_far(x):
    x = where(x > BIAS + 1, BIAS + 1, x)
    t = x + k.magic
    return in_two(exp2_whole(x - (t - k.magic)), S(bits(t) - bits(T(k.magic))))

def expm1_rest(r, l):
    return fma(r, r * 0.5, fma(r * r * r, poly.expm1(r), l))

def expm1_rest_float32(r, l):
    return fma(r * r, poly.expm1_short(r), l)

# exp x - 1 = (2**n - 1 + 2**n r) + 2**n (exp r - 1 - r): the first sum is exact with its error.
def expm1_parts(a):
    t, r, l = by_ln2(a)
    f = floating(bits(t) << MANTISSA)
    g = f - 1
    p = expm1_rest(r, l)
    v = fma(f, r, g)
    return v, fma(f, p, fma(f, r, g - v) + ((f - g) - 1))

def expm1(x):
    m = magnitude(x)
    plain = m < magnitude_of(T(k.exp_plain))
    a = where(plain, x, 0)
    v, w = expm1_parts(where(a < k.expm1_least, k.expm1_least, a))
    far = (x <= k.exp_most) & (S(bits(x)) > 0)
    other = rarely(far, apart.exp_far(x), below_or(x, m, T(-1), above(x, k.exp_most)))
    return rarely(~plain, other, copysign(v + w, x))

def tanh(x):
    m = magnitude(x)
    inside = m < magnitude_of(T(k.tanh_one))
    a = where(inside, fabs(x), 0)
    v, w = expm1_parts(a + a)
    u = v + w
    d = u + 2
    e = (maximum_plain(u, T(2)) - d) + minimum_plain(u, T(2))
    w = (v - u) + w
    q = 1 / d
    y = u * q
    y = fma(fma(-y, d, u) + (w - y * (e + w)), q, y)
    return rarely(m > magnitude_of(T(inf)), x, copysign(where(inside, y, 1), x))

# Of single floats: a polynomial, or 1 - 2 / (exp 2a + 1), which has no rounding but of its last
# digits while the quotient is below a quarter; both are evaluated in one.
def tanh_float32(x):
    m = magnitude(x)
    top = magnitude_of(T(k.tanh_one))
    a = floating(U(where(m < top, m, top)))
    near = a < k.tanh_bend
    z = a * a
    t = fma(a, k.two_log2_e, k.magic_biased)
    r = fma(t - k.magic_biased, k.ln2 * -0.5, a)
    p = where(near, poly.tanh, poly.exp_twice)(where(near, z, r))
    y = 1 - 2 / fma(floating(bits(t) << MANTISSA), p, 1)
    y = where(near, fma(a * z, p, a), y)
    return rarely(m > magnitude_of(T(inf)), x, copysign(y, x))

def maximum_plain(a, b):
    return where(a > b, a, b)

def minimum_plain(a, b):
    return where(a > b, b, a)

# With n and r of |x|: sinh x = (2**n - 2**-n) / 2 cosh r + (2**n + 2**-n) / 2 sinh r, and cosh the
# other way about: no quotient, and for n = 0 sinh r alone.
def hyperbolic(a):
    t, r, l = by_ln2(a)
    n = bits(t) << MANTISSA
    f = floating(n - (U(1) << MANTISSA))
    g = floating((U(2 * BIAS - 1) << MANTISSA) - n)
    z = r * r
    return f - g, f + g, r, fma(r * z, poly.sinh(z), l), z * poly.cosh(z)

def sinh_of(a):
    a, b, r, s, c = hyperbolic(a)
    v = fma(b, r, a)
    return v + (fma(b, r, a - v) + fma(a, c, b * s))

def cosh_of(a):
    a, b, r, s, c = hyperbolic(a)
    v = fma(a, r, b)
    return v + (fma(a, r, b - v) + fma(b, c, a * s))

def hyperbolic_float32(a):
    t = fma(a, k.log2_e, k.magic_biased)
    m = t - k.magic_biased
    n = bits(t) << MANTISSA
    f = floating(n - (U(1) << MANTISSA))
    g = floating((U(2 * BIAS - 1) << MANTISSA) - n)
    r = fma(m, -k.ln2_low, fma(m, -k.ln2_high, a))
    z = r * r
    return f, g, fma(r * z, poly.sinh(z), r), z * poly.cosh(z)

def sinh_of_float32(a):
    f, g, s, c = hyperbolic(a)
    a = f - g
    return a + fma(f + g, s, fma(a, c, (f - a) - g))

def cosh_of_float32(a):
    f, g, s, c = hyperbolic(a)
    b = f + g
    return b + fma(f - g, s, fma(b, c, (f - b) + g))

def sinh(x):
    m = magnitude(x)
    plain = m < magnitude_of(T(k.exp_plain))
    y = sinh_of(where(plain, fabs(x), 0))
    other = rarely(m < magnitude_of(T(inf)), apart.sinh_far(x), x)
    return rarely(~plain, other, copysign(y, x))

def cosh(x):
    m = magnitude(x)
    plain = m < magnitude_of(T(k.exp_plain))
    y = cosh_of(where(plain, fabs(x), 0))
    other = rarely(m < magnitude_of(T(inf)), apart.cosh_far(x), fabs(x))
    return rarely(~plain, other, y)

def cosh_far(x):
    a = fabs(x)
    return exp_scaled(where(a > k.exp_most + 0.5, k.exp_most + 0.5, a), S(-1))

def sinh_far(x):
    return copysign(cosh_far(x), x)
"""
