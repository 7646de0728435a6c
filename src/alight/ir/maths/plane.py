"""Functions of complex numbers a + bi, made of the real ones: two results, the parts.

Where a part is neither ordinary nor zero, C99 says what the results are (annex G).
"""

FUNCTIONS = """
def sine_of(q, r, l, b):
    return where(b == 0, b, turned(q, r, l))

def exp_plane(a, b):
    plain = (magnitude(a) < magnitude_of(T(k.exp_plain))) & (fabs_bits(b) < bits(T(k.far_turns)))
    e = exp_of(where(plain, a, 0))
    y = where(plain, b, 0)
    q, r, l = quarter_turns(y)
    m = rarely(~plain, apart.exp_real_far(a, b), e * turned(q + 1, r, l))
    return m, rarely(~plain, apart.exp_imag_far(a, b), e * sine_of(q, r, l, y))

def fabs_bits(x):
    return bits(fabs(x))

# Half of the exponent twice: the product may be finite where exp a is not.
def exp_real_far(a, b):
    h = exp(a * 0.5)
    c = cos(b)
    return where((fabs(a) == inf) & (c != c), h, (h * c) * h)

def exp_imag_far(a, b):
    h = exp(a * 0.5)
    s = sin(b)
    none = (a == -inf) & (s != s)
    return where(b == 0, b, where(none, copysign(T(0), b), (h * s) * h))

def both_hyperbolic(a, b):
    plain = (magnitude(a) < magnitude_of(T(k.exp_plain))) & (fabs_bits(b) < bits(T(k.far_turns)))
    x = where(plain, a, 0)
    y = where(plain, b, 0)
    q, r, l = quarter_turns(y)
    u = fabs(x)
    return plain, copysign(sinh_of(u), x), cosh_of(u), sine_of(q, r, l, y), turned(q + 1, r, l)

def sinh_plane(a, b):
    plain, s, c, sine, cosine = both_hyperbolic(a, b)
    m = rarely(~plain, apart.sinh_real_far(a, b), s * cosine)
    return m, rarely(~plain, apart.sinh_imag_far(a, b), c * sine)

def cosh_plane(a, b):
    plain, s, c, sine, cosine = both_hyperbolic(a, b)
    m = rarely(~plain, apart.cosh_real_far(a, b), c * cosine)
    return m, rarely(~plain, apart.cosh_imag_far(a, b), s * sine)

# sinh a v and cosh a v, for any a
def times_sinh(a, v):
    small = fabs(a) < k.exp_plain
    h = exp(fabs(a) * 0.5)
    return where(small, sinh(where(small, a, 0)) * v, copysign(h * 0.5, a) * (h * v))

def times_cosh(a, v):
    return times_sinh(where(fabs(a) < k.exp_plain, k.exp_plain, fabs(a)), v)

def sinh_real_far(a, b):
    c = cos(b)
    y = where((c != c) & (a == 0), a, times_sinh(a, c))
    return where((c != c) & (fabs(a) == inf), fabs(a), y)

def cosh_real_far(a, b):
    c = cos(b)
    small = fabs(a) < k.exp_plain
    y = where(small, cosh(where(small, a, 0)) * c, times_cosh(a, c))
    return where((c != c) & (fabs(a) == inf), fabs(a), y)

def sinh_imag_far(a, b):
    s = sin(b)
    small = fabs(a) < k.exp_plain
    y = where(small, cosh(where(small, a, 0)) * s, times_cosh(a, s))
    return where(b == 0, b, y)

def cosh_imag_far(a, b):
    y = times_sinh(a, sin(b))
    z = where(a != a, b, copysign(T(0), a) * copysign(T(1), b))
    return where(y == y, y, where(a == 0, 0, where(b == 0, z, y)))

def sin_plane(a, b):
    m, n = sinh_plane(b, a)
    return n, m

def cos_plane(a, b):
    m, n = cosh_plane(-b, a)
    return m, n

# log |a + bi|: near 1 of what the square exceeds 1 by, which the angle makes up for where it
# cancels
def log_plane(a, b):
    m = magnitude(a)
    n = magnitude(b)
    most = where(m > n, m, n)
    plain = (most >= magnitude_of(T(k.square_least))) & (most <= magnitude_of(T(k.square_most)))
    u = where(plain, where(m > n, fabs(a), fabs(b)), 1)
    v = where(plain, where(m > n, fabs(b), fabs(a)), 0)
    near = (u > 0.5) & (u < 2)
    t = where(near, fma(u - 1, u + 1, v * v), 0)
    y = where(near, log1p_of(t), log_of(fma(u, u, v * v), T(0))) * 0.5
    return rarely(~plain, apart.log_length_far(a, b), y), arctan2(b, a)

def log_length_far(a, b):
    large = (fabs(a) > 1) | (fabs(b) > 1)
    scale = where(large, 1 / T(k.square_scale), T(k.square_scale))
    y = log(hypot(a * scale, b * scale))
    return where(large, y + k.square_scale_log, y - k.square_scale_log)
"""
