"""Logarithms and inverse hyperbolic functions.

x = m 2**e with m from 0.6733 or sqrt(1/2) to twice that, and log m = 2 artanh s with
s = (m - 1) / (m + 1). What is not a positive normal number is told by its bits.
"""

FUNCTIONS = """
def octave(b, start):
    c = (b - start) + (U(1) << (WIDTH - 1))
    e = floating((c >> MANTISSA) + bits(T(k.magic))) - k.magic_top
    return e, floating((c & ((U(1) << MANTISSA) - 1)) + start)

# The same for single floats, whose exponent vectors convert; c has it in its place.
def binade(b, start):
    c = (b - start) & (U(511) << MANTISSA)
    return T(S(c) >> MANTISSA), floating(b - c), c

def octave_float32(b, start):
    e, m, c = binade(b, start)
    return e, m

# The exponent as it stands: in units of 2**23.
def octave_in_place(b, start):
    e, m, c = binade(b, start)
    return T(S(c)), m

def positive(x):
    return bits(x) - bits(T(TINY)) < bits(T(inf)) - bits(T(TINY))

# log m = f - g / 2 with f = m - 1 and g = f**2 - s (f**2 + 4 s**2 P): what s is wrong by counts
# little. Whatever the bits of x are, they give an m of that range.
def log_parts(b):
    e, m = octave(b, bits(T(k.binade_start)))
    f = m - 1
    return e, f, log_less(f)

def log_less(f):
    s = f / (f + 2)
    y = f * f
    z = s * s
    return fma(-s, fma(z, poly.log(z), y), y)

# Denormal, of what is not positive and normal.
def tiny(x):
    return (x > 0) & (x < inf)

# A denormal in units of the least, by its bits.
def denormal(x):
    return T(S(bits(x)))

# The bits of x, those of denormals as if exponents went on below zero.
def continued(x, usual):
    d = bits(denormal(x)) - (U(BIAS + MANTISSA - 1) << MANTISSA)
    return rarely(~usual, where(tiny(x), d, bits(x)), bits(x))

# Of a logarithm, where x is positive and normal or not.
def with_ends(x, usual, y):
    return rarely(~usual, where(tiny(x), y, ends(x)), y)

# Of what has no logarithm, and of infinity; nothing is raised where x is positive, or no number,
# and no denormal is computed with, which takes some processors 150 cycles.
def ends(x):
    n = where(x > 0, T(1), where(x == 0, -1, where(x < 0, T(0), x)))
    return where(x > 0, x, n / where(x <= 0, T(0), 1))

def log(x):
    usual = positive(x)
    return with_ends(x, usual, log_of(continued(x, usual)))

def log_of(b):
    e, f, g = log_parts(b)
    return fma(e, k.ln2_high, f + fma(g, -0.5, e * k.ln2_low))

# Of single floats: log m = f - s (f - 2 s**2 P), in fewer operations.
def log_quotient(f):
    s = f / (f + 2)
    z = s * s
    return s, fma(-z, poly.log_half(z), f)

def log_of_float32(b):
    e, m = octave(b, bits(T(k.binade_start)))
    f = m - 1
    s, q = log_quotient(f)
    return fma(e, k.ln2_high, f + fma(-s, q, e * k.ln2_low))

def log2(x):
    usual = positive(x)
    return with_ends(x, usual, log2_of(continued(x, usual)))

def log2_of(b):
    e, f, g = log_parts(b)
    return log_sum(e, f, g, T(-0.0), k.log2_e, k.log2_e_rest)

# Of single floats: c f - s (f - s**2 P), where s has the factor c of the logarithm in it. From
# sqrt(1/2) on, so that of an exponent it is added to more remains than four times as much.
def log2_of_float32(b):
    e, m = octave_in_place(b, bits(T(k.root_half)))
    f = m - 1
    s = f / fma(f, k.ln2, k.ln2 * 2)
    z = s * s
    q = fma(-z, poly.log2_half(z), f)
    y = fma(f, k.log2_e, fma(-s, q, f * k.log2_e_rest))
    return fma(e, 2.0 ** -23, y)

# h + low + (f - g / 2) (factor + rest); -0.0 adds nothing, not even an addition. What y misses is
# exact: h is 0, or y at least half of it.
def log_sum(h, f, g, low, factor, rest):
    y = fma(f, factor, h)
    w = fma(f, rest, fma(f, factor, h - y))
    return y + fma(g, factor * -0.5, w + low)

def log10(x):
    usual = positive(x)
    return with_ends(x, usual, log10_of(continued(x, usual)))

def log10_of(b):
    e, f, g = log_parts(b)
    return log_sum(e * k.log10_2_high, f, g, e * k.log10_2_low, k.log10_e, k.log10_e_rest)

def log10_of_float32(b):
    e, m = octave_in_place(b, bits(T(k.root_half)))
    f = m - 1
    s = f / fma(f, k.ln10, k.ln10 * 2)
    z = s * s
    q = fma(-z, poly.log10_half(z), f)
    w = fma(-s, q, fma(f, k.log10_e_rest, e * (k.log10_2_low * 2.0 ** -23)))
    return fma(e, k.log10_2_high * 2.0 ** -23, fma(f, k.log10_e, w))

# log(1 + v): f = (1 + v) / 2**e - 1 and what rounding left of it, l.
def log1p_parts(v):
    b = bits(1 + v)
    e, m = octave(b, bits(T(k.root_half)))
    p = floating(bits(T(1)) - (b - bits(m)))
    g = p - 1
    f = fma(v, p, g)
    return e, p, f, fma(v, p, g - f)

def log1p_parts_float32(v):
    e, m, c = binade(bits(1 + v), bits(T(k.root_half)))
    p = floating(bits(T(1)) - c)
    g = p - 1
    f = fma(v, p, g)
    return e, p, f, fma(v, p, g - f)

def log1p_end(e, f, l):
    h = e * k.ln2_high
    y = h + f
    w = fma(e, k.ln2_low, fma(-l, f, l))
    return y + (((h - y) + f) + fma(log_less(f), -0.5, w))

def log1p_end_float32(e, f, l):
    h = e * k.ln2_high
    y = h + f
    s, q = log_quotient(f)
    return y + (((h - y) + f) + fma(-s, q, fma(e, k.ln2_low, fma(-l, f, l))))

def log1p_sum(v, w):
    e, p, f, l = log1p_parts(v)
    return log1p_end(e, f, fma(w, p, l))

# Of single floats rounded once more, before the exponent is added.
def log1p_near(v, w):
    return log1p_sum(v, w)

def log1p_near_float32(v, w):
    e, p, f, l = log1p_parts(v)
    l = fma(w, p, l)
    s, q = log_quotient(f)
    return fma(e, k.ln2, f + fma(-s, q, fma(-l, f, l)))

def log1p_of(x):
    e, p, f, l = log1p_parts(x)
    return log1p_end(e, f, l)

def log1p(x):
    u = bits(x)
    plain = (S(u) < magnitude_of(T(k.wide))) & (u < bits(T(-1)))
    y = copysign(log1p_of(where(plain, x, 0)), x)
    return rarely(~plain, rarely((x > 1) & (x < inf), apart.log1p_far(x), ends(1 + x)), y)

def log1p_far(x):
    return log_of(bits(x))

# Half the inverse, to 5 %: enough for what rounding left of a root.
def half_inverse(h):
    return floating(U(k.half_inverse) - bits(h))

def arcsinh(x):
    m = magnitude(x)
    plain = m < magnitude_of(T(k.wide))
    a = where(plain, fabs(x), 0)
    small = a < 0.125
    c = where(small, a, 0)
    z = c * c
    near = fma(c * z, poly.asinh_short(z), c)
    b = where(small, 1, a)
    g = fma(b, b, 1)
    o = fma(b, b, 1 - g)
    h = sqrt(g)
    r = (fma(-h, h, g) + o) * half_inverse(h)
    i = h - 1
    v = b + i
    y = where(small, near, log1p_sum(v, ((b - v) + i) + r))
    other = rarely(m < magnitude_of(T(inf)), apart.arcsinh_far(x), x)
    return rarely(~plain, other, copysign(y, x))

# Of single floats: log (a + sqrt(a**2 + 1)) with what rounding left of the sum, or a polynomial;
# both are evaluated in one.
def arcsinh_float32(x):
    m = magnitude(x)
    plain = m < magnitude_of(T(k.wide))
    a = where(plain, fabs(x), 0)
    near = a < 0.5
    g = fma(a, a, 1)
    o = fma(a, a, 1 - g)
    h = sqrt(g)
    v = a + h
    w = ((h - v) + a) + (fma(-h, h, g) + o) * half_inverse(h)
    e, n, c = binade(bits(v), bits(T(k.binade_start)))
    f = n - 1
    l = w * floating(bits(T(1)) - c)
    s = f / (f + 2)
    u = where(near, a, s)
    z = u * u
    q = where(near, poly.asinh, poly.log_half)(z)
    q = fma(where(near, a, -1) * z, q, where(near, a, f))
    y = fma(e, k.ln2, f + fma(-s, q, fma(-l, f, l)))
    other = rarely(m < magnitude_of(T(inf)), apart.arcsinh_far(x), x)
    return rarely(~plain, other, copysign(where(near, q, y), x))

def arcsinh_far(x):
    return copysign(log(fabs(x)) + k.ln2, x)

# The root exceeds t.
def arccosh(x):
    m = S(bits(x))
    plain = (m > magnitude_of(T(1))) & (m < magnitude_of(T(k.wide)))
    t = where(plain, x, 2) - 1
    g = fma(t, t, t + t)
    o = fma(t, t, (t + t) - g)
    h = sqrt(g)
    v = t + h
    w = ((h - v) + t) + (fma(-h, h, g) + o) * half_inverse(h)
    one = m == magnitude_of(T(1))
    other = rarely(~one & (x == x), apart.arccosh_far(x), where(one, 0, x))
    return rarely(~plain, other, log1p_near(v, w))

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
    return rarely(~plain, copysign(1 / sqrt(1 - fabs(x)), x), copysign(y, x))
"""
