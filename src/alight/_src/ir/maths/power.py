"""Powers, roots and lengths."""

FUNCTIONS = """
# x**y = 2**(y log2 x), where the logarithm has a rest: a product of up to 1024 must still be right
# to less than an ulp of 1. x = m 2**e, and log2 m is that of 1 or of another pivot and, of
# s = (m - pivot) / (m + pivot) = h + l, c s + d s**3 + s P(s**2), where h, c and d are so short
# that c h, d h and h h are exact.
def about_pivot(m):
    upper = m > k.pivot_next
    o = where(upper, T(k.pivot), 1)
    n = m - o
    i = 1 / (m + o)
    s = n * i
    h = floating(bits(s) & (~U(0) << U(k.half_bits)))
    return upper, s, h, fma(-h, m, fma(-h, o, n)) * i

def log2_long(b):
    e, m = octave(b, bits(T(k.pivot_start)))
    upper, s, h, l = about_pivot(m)
    c = h * k.log2_cubic
    z = h * h
    u = c * z
    l = l * fma(h * s, k.log2_cubic * 3, k.log2_slope)
    l = l + (fma(c, z, -u) + where(upper, T(k.pivot_log_rest), 0))
    a = h * k.log2_slope
    f = a + u
    e = e + where(upper, T(k.pivot_log), 0)
    v = e + f
    return v, ((e - v) + f) + (((a - f) + u) + fma(s, poly.log2_rest(s * s), l))

# Of single floats, whose cubic term is in P, and c is larger by half of what that has at most.
def log2_long_float32(b):
    e, m, c = binade(b, bits(T(k.pivot_start)))
    upper, s, h, l = about_pivot(m)
    l = fma(l, k.log2_slope, where(upper, T(k.pivot_log_rest), 0))
    l = fma(s, poly.log2_rest_short(s * s), l)
    e = fma(T(S(c)), 2.0 ** -23, where(upper, T(k.pivot_log), 0))
    v = fma(h, k.log2_slope, e)
    return v, fma(h, k.log2_slope, e - v) + l

# 2**((v + w) y): t has the whole number that v y is nearest to in its last bits.
def power_parts(v, w, y):
    t = fma(v, y, k.magic)
    return t, fma(w, y, fma(v, y, -(t - k.magic)))

def exp2_beyond(r):
    return fma(r, poly.exp2_beyond(r), 1)

def exp2_beyond_float32(r):
    return fma(r, poly.exp2_wide(r), 1)

# A zero to a positive power is not seldom: it is what a clamped value is.
def power(x, y):
    near = magnitude(y) < magnitude_of(T(k.wide))
    none = (bits(x) == 0) & (S(bits(y)) > 0)
    v, w = log2_long(bits(where(none, 1, fabs(x))))
    t, r = power_parts(v, w, where(near, y, 0))
    inside = bits(t) - bits(T(k.magic) - k.power_least) < U(k.power_least * 2 + 2)
    b = floating(bits(exp2_beyond(where(inside, r, 0))) + (bits(t) << MANTISSA))
    inside = near & inside
    usual = (positive(x) | none) & inside
    return rarely(~usual, power_other(x, y, positive(fabs(x)) & inside, b), where(none, 0, b))

def power_other(x, y, plain, b):
    m = magnitude(x)
    n = magnitude(y)
    c = where(plain, y, 0)
    h = c * 0.5
    minus = S(bits(x)) < 0
    whole = rint(c) == c
    b = where(minus & whole & (rint(h) != h), -b, b)
    bad = plain & minus & ~whole
    nothing = (bits(x) == 0) & (S(bits(y)) > 0) & (n < magnitude_of(T(inf)))
    nan = (m > magnitude_of(T(inf))) | (n > magnitude_of(T(inf)))
    one = (x == 1) | (n == 0)
    all = where(nan, where(one, 1, where(m > magnitude_of(T(inf)), x, y)), where(nothing, 0, b))
    all = where(bad, sqrt(where(bad, x, T(1))), all)
    return rarely(~(plain | nothing | nan), apart.power_far(x, y), all)

# Of infinite powers the standard leaves open what is said, and NumPy's loops differ by processor:
# flags that one of them raises are raised here, for NumPy is asked then.
def power_far(x, y):
    a = fabs(x)
    whole = rint(y) == y
    h = y * 0.5
    odd = whole & (rint(h) != h) & (fabs(y) < inf)
    finite = (a > 0) & (a < inf) & (fabs(y) < inf)
    bad = finite & (x < 0) & ~whole
    small = a < TINY
    s = where(finite, where(small, denormal(a) * TINY, a), 1)
    v, w = log2_long(bits(s))
    e = where(small, T(MANTISSA), 0)
    u = v - e
    w = ((v - u) - e) + w
    c = where(finite & ~bad, y, 0)
    c = where(fabs(c) > k.wide, copysign(T(k.wide), y), c)
    p = u * c
    most = where(p > 0, T(BIAS + 1.25), k.exp2_most + 60)
    far = fabs(p) > most
    u = where(far, copysign(most, p), u)
    t, r = power_parts(u, where(far, 0, w), where(far, 1, c))
    b = in_two(exp2_beyond(r), S(bits(t) - bits(T(k.magic))))
    big = (y > 0) == (a > 1)
    b = where(fabs(y) == inf, where(a == 1, 1, where(big, inf, 0)), b)
    b = where((a == 0) | (a == inf), where(big, inf, 0), b)
    b = rarely((a == 0) & (y < 0), 1 / a, b)
    b = rarely((a > 1) & (a < inf) & (y == inf), floating(bits(T(inf)) - 1) * a, b)
    b = where(odd & (S(bits(x)) < 0), -b, b)
    b = rarely(bad, not_defined(x), b)
    return where((x == 1) | (y == 0), 1, b)

# a**(-1/3) from a polynomial and a step of third order (second for single floats, which need no
# more); then the root, and Newton's step with its exact cube.
def cbrt(x):
    a = fabs(x)
    plain = positive(a)
    up = floating((U(k.cbrt_up) - (MANTISSA - 1)) << MANTISSA)
    down = floating((BIAS - U(k.cbrt_down)) << MANTISSA)
    y = copysign(cube_root(rarely(~plain, where(tiny(a), denormal(a) * up, 1), a)), x)
    return rarely(~plain, where(tiny(a), y * down, x), y)

def cube_root(a):
    u = bits(a)
    e = (u >> MANTISSA) + U(k.cbrt_shift)
    q = (e * 43691) >> 17
    j = e - q * 3
    s = (u & ((U(1) << MANTISSA) - 1)) | (U(BIAS) << MANTISSA)
    m = floating(s)
    b = floating(s + (j << MANTISSA))
    y = poly.cbrt(m) * where(j == 0, T(1), where(j == 1, T(k.cbrt_half), T(k.cbrt_quarter)))
    d = fma(-(b * y), y * y, 1)
    y = fma(y * d, fma(d, 2.0 / 9.0, 1.0 / 3.0), y)
    w = y * y
    r = b * w
    s = r * r
    r = fma(fma(-s, r, b) - fma(r, r, -s) * r, w * (1.0 / 3.0), r)
    return r * floating((q + U(k.cbrt_bias)) << MANTISSA)

# Of single floats: the bits, as a number, are near the logarithm.
def cube_root_float32(b):
    y = floating(U(S(fma(T(S(bits(b))), -1.0 / 3.0, k.cbrt_guess))))
    d = fma(-(b * y), y * y, 1)
    y = fma(y * d, fma(d, fma(d, 14.0 / 81.0, 2.0 / 9.0), 1.0 / 3.0), y)
    w = y * y
    r = b * w
    return fma(fma(-(r * r), r, b), w * (1.0 / 3.0), r)

def hypot(x, y):
    m = magnitude(x)
    n = magnitude(y)
    most = where(m > n, m, n)
    plain = (most >= magnitude_of(T(k.square_least))) & (most <= magnitude_of(T(k.square_most)))
    a = where(plain, where(m > n, fabs(x), fabs(y)), 0)
    b = where(plain, where(m > n, fabs(y), fabs(x)), 0)
    r = sqrt(fma(a, a, b * b))
    none = most == 0
    nan = (most > magnitude_of(T(inf))) & (m != magnitude_of(T(inf))) & (n != magnitude_of(T(inf)))
    other = rarely(~(none | nan), apart.hypot_far(x, y), where(nan, where(m > n, x, y), r))
    return rarely(~plain, other, r)

def hypot_far(x, y):
    infinite = (fabs(x) == inf) | (fabs(y) == inf)
    a = where(infinite, 1, fabs(x))
    b = where(infinite, 1, fabs(y))
    large = (a >= 1) | (b >= 1)
    down = where(large, 1 / T(k.square_scale), T(k.square_scale))
    up = where(large, T(k.square_scale), 1 / T(k.square_scale))
    a = a * down
    b = b * down
    return where(infinite, inf, sqrt(fma(a, a, b * b)) * up)

# log(exp x + exp y): d is what x exceeds y by, and c what rounding left of it. NumPy compares the
# difference, and so says of a NaN that it is invalid: it is made one that signals.
def difference(x, y):
    same = x == y
    apart = where(same, 0, x) - where(same, 0, y)
    d = where(apart == apart, apart, signalling(apart))
    near = (fabs(d) < k.steep) & ~same
    a = where(near, x, 0)
    b = where(near, y, 0)
    e = where(near, d, 0)
    f = e - a
    c = (a - (e - f)) - (b + f)
    minus = d < 0
    return same, fabs(d), where(minus, -c, c), where(minus, y, x)

def logaddexp(x, y):
    same, d, c, top = difference(x, y)
    z = exp(-d)
    return where(same, x + k.ln2, top + log1p_sum(z, -z * c))

def logaddexp2(x, y):
    same, d, c, top = difference(x, y)
    z = exp2(-d)
    w = fma(-z * c, k.ln2, exp2_left(-d))
    return where(same, x + 1, fma(log1p_sum(z, w), k.log2_e, top))
"""
