"""Powers, roots and lengths."""

FUNCTIONS = """
# x**y = 2**(y log2 x), where the logarithm has a rest: a product of up to 1024 must still be right
# to less than an ulp of 1.
def log2_long(e, m):
    f = m - 1
    i = 1 / (f + 2)
    s = f * i
    l = fma(-s, f, fma(s, -2.0, f)) * i
    z = s * s
    w = fma(s, s, -z) + (s + s) * l
    y = z * z
    u = fma(y, 0.2, y * (z * poly.atanh_long(z)))
    g = fma(z, k.third, u)
    p = (fma(z, k.third, -g) + u) + fma(z, k.third_rest, w * fma(z, 0.4, k.third))
    t = s * g
    q = fma(s, g, -t) + fma(s, p, l * g)
    h = s + t
    r = ((s - h) + t) + (q + l)
    a = h * k.two_log2_e
    b = fma(h, k.two_log2_e, -a) + fma(h, k.two_log2_e_rest, r * k.two_log2_e)
    v = e + a
    return v, ((e - v) + a) + b

def power_parts(a, y):
    e, m = octave(bits(a), bits(T(k.root_half)))
    return power_of(e, m, y)

def power_of(e, m, y):
    v, w = log2_long(e, m)
    p = v * y
    return p, fma(v, y, -p) + w * y

# 2**(a + q) with its rest: rounded, 1 + r ln 2 would miss a quarter of an ulp.
def exp2_sum(a, q):
    r = a + q
    v = fma(r, k.ln2, 1)
    l = fma((a - r) + q, k.ln2, fma(r, k.ln2, 1 - v))
    return v, fma(r, fma(r, poly.exp2(r), k.ln2_rest), l)

def power(x, y):
    n = magnitude(y)
    normal = positive(fabs(x)) & (n < magnitude_of(T(k.wide)))
    p, q = power_parts(where(normal, fabs(x), 1), where(normal, y, 0))
    inside = fabs(p) < k.exp2_plain
    p = where(inside, p, 0)
    t = p + k.magic_biased
    a = p - (t - k.magic_biased)
    v, w = exp2_sum(a, q)
    b = (v + w) * floating(bits(t) << MANTISSA)
    plain = normal & inside
    return rarely(~plain | (S(bits(x)) < 0), power_other(x, y, plain, b), b)

def power_other(x, y, plain, b):
    m = magnitude(x)
    n = magnitude(y)
    c = where(plain, y, 0)
    h = c * 0.5
    minus = S(bits(x)) < 0
    whole = rint(c) == c
    b = where(minus & whole & (rint(h) != h), -b, b)
    plain = plain & (whole | ~minus)
    nothing = (bits(x) == 0) & (S(bits(y)) > 0) & (n < magnitude_of(T(inf)))
    nan = (m > magnitude_of(T(inf))) | (n > magnitude_of(T(inf)))
    one = (x == 1) | (n == 0)
    all = where(nan, where(one, 1, where(m > magnitude_of(T(inf)), x, y)), where(nothing, 0, b))
    return rarely(~(plain | nothing | nan), apart.power_far(x, y), all)

def power_far(x, y):
    a = fabs(x)
    whole = rint(y) == y
    h = y * 0.5
    odd = whole & (rint(h) != h) & (fabs(y) < inf)
    finite = (a > 0) & (a < inf) & (fabs(y) < inf)
    bad = finite & (x < 0) & ~whole
    small = a < TINY
    up = floating(U(BIAS + MANTISSA) << MANTISSA)
    s = where(finite, a, 1) * where(small, up, T(1))
    e, m = octave(bits(s), bits(T(k.root_half)))
    e = e - where(small, T(MANTISSA), 0)
    c = where(finite & ~bad, y, 0)
    c = where(fabs(c) > k.wide, copysign(T(k.wide), y), c)
    p, q = power_of(e, m, c)
    far = fabs(p) > k.exp2_most + 60
    q = where(far, 0, q)
    p = where(far, copysign(T(k.exp2_most + 60), p), p)
    t = p + k.magic
    v, w = exp2_sum(p - (t - k.magic), q)
    b = in_two(v + w, S(bits(t) - bits(T(k.magic))))
    big = (y > 0) == (a > 1)
    b = where(fabs(y) == inf, where(a == 1, 1, where(big, inf, 0)), b)
    b = where((a == 0) | (a == inf), where(big, inf, 0), b)
    b = rarely((a == 0) & (y < 0) & (y > -inf), 1 / a, b)
    b = where(odd & (S(bits(x)) < 0), -b, b)
    b = rarely(bad, not_defined(x), b)
    return where((x == 1) | (y == 0), 1, b)

# a**(-1/3) from a polynomial and a step of third order (second for single floats, which need no
# more); then the root, and Newton's step with its exact cube.
def cbrt(x):
    m = magnitude(x)
    plain = positive(fabs(x))
    y = cube_root(where(plain, fabs(x), 1))
    far = (m < magnitude_of(T(inf))) & (m > 0)
    return rarely(~plain, rarely(far, apart.cbrt_far(x), x), copysign(y, x))

def cbrt_far(x):
    s = fabs(x) * floating((U(k.cbrt_up) + BIAS) << MANTISSA)
    return copysign(cube_root(s) * floating((BIAS - U(k.cbrt_down)) << MANTISSA), x)

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
# difference, and so says of a NaN that it is invalid.
def difference(x, y):
    same = x == y
    d = where(same, 0, x) - where(same, 0, y)
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
    return where(same, x + 1, fma(log1p_sum(z, -z * c * k.ln2), k.log2_e, top))
"""
