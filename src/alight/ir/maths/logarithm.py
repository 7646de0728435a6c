"""Logarithms and inverse hyperbolic functions.

x = m 2**e with m from sqrt(1/2) to sqrt(2), and log m = 2 artanh s with s = (m - 1) / (m + 1). What
is not a positive normal number is told by its bits.
"""

FUNCTIONS = """
# log m = f - s (f - q) with f = m - 1 spares most of the rounding of s.
def octave(b):
    c = (b - bits(T(k.root_half))) + (U(1) << (WIDTH - 1))
    e = floating((c >> MANTISSA) + bits(T(k.magic))) - k.magic_top
    return e, floating((c & ((U(1) << MANTISSA) - 1)) + bits(T(k.root_half)))

def positive(x):
    return bits(x) - bits(T(TINY)) < bits(T(inf)) - bits(T(TINY))

def log_parts(x):
    e, m = octave(bits(x))
    f = m - 1
    s = f / (f + 2)
    z = s * s
    return e, f, s * fma(z * -2.0, poly.atanh(z), f)

def log_end(e, f, g):
    return fma(e, k.ln2_high, f + fma(e, k.ln2_low, -g))

def log(x):
    plain = positive(x)
    e, f, g = log_parts(where(plain, x, 1))
    y = log_end(e, f, g)
    return rarely(~plain, rarely(x == x, apart.log_far(x), x), y)

# log m is a + b; of the factor of the greater part the rest counts too.
def log_to(f, g, low, factor, rest):
    a = f - g
    b = (f - a) - g
    return fma(a, factor, fma(a, rest, fma(b, factor, low)))

def log2(x):
    plain = positive(x)
    e, f, g = log_parts(where(plain, x, 1))
    y = e + log_to(f, g, T(0), k.log2_e, k.log2_e_rest)
    return rarely(~plain, rarely(x == x, apart.log2_far(x), x), y)

def log10_end(e, f, g):
    y = log_to(f, g, e * k.log10_2_low, k.log10_e, k.log10_e_rest)
    return fma(e, k.log10_2_high, y)

def log10(x):
    plain = positive(x)
    e, f, g = log_parts(where(plain, x, 1))
    y = log10_end(e, f, g)
    return rarely(~plain, rarely(x == x, apart.log10_far(x), x), y)

def subnormal_parts(x):
    scale = floating(U(BIAS + MANTISSA) << MANTISSA)
    e, f, g = log_parts(where((x > 0) & (x < inf), x, 1) * scale)
    return e - MANTISSA, f, g

def outside(x, y):
    n = where(x > 0, x, where(x == 0, -1, T(0)))
    return where((x > 0) & (x < inf), y, n / where(x > 0, T(1), 0))

def log_far(x):
    e, f, g = subnormal_parts(x)
    return outside(x, log_end(e, f, g))

def log2_far(x):
    e, f, g = subnormal_parts(x)
    return outside(x, e + log_to(f, g, T(0), k.log2_e, k.log2_e_rest))

def log10_far(x):
    e, f, g = subnormal_parts(x)
    y = log10_end(e, f, g)
    return outside(x, y)

# log(1 + v) of a sum v + w: s = (1 + v - 2**e) / (1 + v + 2**e), each halved, with what rounding
# left of the quotient, so that for e = 0 nothing is lost by forming 1 + v.
def log1p_sum(v, w):
    e, m = octave(bits(1 + v))
    p = floating(bits(e + k.magic_biased) << MANTISSA)
    g = 1 - p
    n = v + g
    d = fma(v, 0.5, fma(p, 0.5, 0.5))
    o = fma(v, 0.5, fma(p, 0.5, 0.5) - d)
    q = 1 / d
    s = n * q
    z = s * s * 0.25
    t = fma(fma(-s, d, n) + fma(-s, o, ((g - n) + v) + w), q, s * z * poly.atanh(z))
    h = e * k.ln2_high
    y = h + s
    return y + (((h - y) + s) + fma(e, k.ln2_low, t))

def log1p(x):
    u = bits(x)
    plain = (S(u) < magnitude_of(T(k.wide))) & (u < bits(T(-1)))
    y = copysign(log1p_sum(where(plain, x, 0), T(0)), x)
    return rarely(~plain, rarely(x == x, apart.log1p_far(x), x), y)

def log1p_far(x):
    large = (x > 1) & (x < inf)
    e, f, g = log_parts(where(large, x, 1))
    return where(large, log_end(e, f, g), outside(1 + x, T(0)))

def nearly_inverse(h):
    i = floating((U(2 * BIAS) << MANTISSA) - bits(h))
    return i * fma(-h, i, 2)

def arcsinh(x):
    m = magnitude(x)
    plain = m < magnitude_of(T(k.wide))
    a = where(plain, fabs(x), 0)
    c = where(a < 0.5, a, 0)
    z = c * c
    near = fma(c * z, poly.asinh(z), c)
    b = where(a < 0.5, 1, a)
    g = fma(b, b, 1)
    o = fma(b, b, 1 - g)
    h = sqrt(g)
    r = (fma(-h, h, g) + o) * (nearly_inverse(h) * 0.5)
    i = h - 1
    v = b + i
    y = where(a < 0.5, near, log1p_sum(v, ((b - v) + i) + r))
    other = rarely(m < magnitude_of(T(inf)), apart.arcsinh_far(x), x)
    return rarely(~plain, other, copysign(y, x))

def arcsinh_far(x):
    return copysign(log(fabs(x)) + k.ln2, x)

def arccosh(x):
    m = S(bits(x))
    plain = (m > magnitude_of(T(1))) & (m < magnitude_of(T(k.wide)))
    t = where(plain, x, 2) - 1
    g = fma(t, t, t + t)
    o = fma(t, t, (t + t) - g)
    h = sqrt(g)
    r = (fma(-h, h, g) + o) * (nearly_inverse(h) * 0.5)
    v = t + h
    w = (maximum_plain(t, h) - v) + minimum_plain(t, h)
    one = m == magnitude_of(T(1))
    other = rarely(~one & (x == x), apart.arccosh_far(x), where(one, 0, x))
    return rarely(~plain, other, log1p_sum(v, w + r))

def arccosh_far(x):
    return rarely(x < 1, not_defined(x), log(where(x < 1, 1, x)) + k.ln2)

def arctanh(x):
    m = magnitude(x)
    plain = m < magnitude_of(T(1))
    a = where(plain, fabs(x), 0)
    c = (bits(1 + a) - bits(1 - a)) + ((U(1) << (WIDTH - 1)) + (U(1) << (MANTISSA - 1)))
    e = floating((c >> MANTISSA) + bits(T(k.magic))) - k.magic_top
    p = floating(bits(e + k.magic_biased) << MANTISSA) * 0.5
    steep = a > 0.875
    u = (1 + a) * 0.5
    n = where(steep, fma(a - 1, p, u), fma(a, p + 0.5, 0.5 - p))
    s = n / where(steep, fma(1 - a, p, u), fma(a, 0.5 - p, p + 0.5))
    z = s * s
    h = e * (k.ln2_high * 0.5)
    y = h + s
    y = y + (((h - y) + s) + fma(e, k.ln2_low * 0.5, s * z * poly.atanh_wide(z)))
    return rarely(~plain, rarely(x == x, apart.arctanh_far(x), x), copysign(y, x))

def arctanh_far(x):
    return where(fabs(x) == 1, x, 0) / where(fabs(x) == 1, T(0), 0)
"""
