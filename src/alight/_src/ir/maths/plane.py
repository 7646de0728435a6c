"""Functions of complex numbers a + bi, made of the real ones: two results, the parts.

Where a part is neither ordinary nor zero, C99 says what the results are (annex G).
"""

FUNCTIONS = """
def sine_of(q, r, l, b):
    return where(b == 0, b, turned(q, r, l))

def exp_plane(a, b):
    plain = (magnitude(a) < magnitude_of(T(k.exp_plain))) & (fabs_bits(b) < bits(T(k.far_turns)))
    m, n = turned_parts(exp_of(where(plain, a, 0)), where(plain, b, 0))
    return rarely(~plain, apart.exp_real_far(a, b), m), rarely(~plain, apart.exp_imag_far(a, b), n)

# The parts of a length, by its angle.
def turned_parts(e, y):
    q, r, l = quarter_turns(y)
    return e * turned(q + 1, r, l), e * sine_of(q, r, l, y)

def fabs_bits(x):
    return bits(fabs(x))

def exp_real_far(a, b):
    return scaled_cosine(exp(a * 0.5), a, b)

def exp_imag_far(a, b):
    return scaled_sine(exp(a * 0.5), a, b)

# Half of the exponent twice: the product may be finite where exp a is not.
def scaled_cosine(h, a, b):
    c = half_known(a, b, cos(b))
    return where((fabs(a) == inf) & (c != c), h, (h * c) * h)

# One part is no number and the other finite: C99 leaves open whether that is invalid; glibc and
# NumPy say so.
def half_known(a, b, c):
    o = where(a != a, b, a)
    return rarely(((a != a) | (b != b)) & (fabs(o) < inf), apart.not_defined(o), c)

def scaled_sine(h, a, b):
    s = sin(b)
    none = (a == -inf) & (s != s)
    return where(b == 0, b, where(none, copysign(T(0), b), (h * s) * h))

# The angle is b ln 2, rounded, as NumPy has it.
def exp2_plane(a, b):
    b = b * k.ln2
    plain = (magnitude(a) < magnitude_of(T(k.exp2_plain))) & (fabs_bits(b) < bits(T(k.far_turns)))
    m, n = turned_parts(exp2_of(where(plain, a, 0)), where(plain, b, 0))
    m = rarely(~plain, apart.exp2_real_far(a, b), m)
    return m, rarely(~plain, apart.exp2_imag_far(a, b), n)

def exp2_real_far(a, b):
    return scaled_cosine(exp2(a * 0.5), a, b)

def exp2_imag_far(a, b):
    return scaled_sine(exp2(a * 0.5), a, b)

# (exp a - 1) cos b - 2 sin(b / 2)**2: where they cancel, the other part is larger.
def expm1_plane(a, b):
    plain = (magnitude(a) < magnitude_of(T(k.exp_plain))) & (fabs_bits(b) < bits(T(k.far_turns)))
    x = where(plain, a, 0)
    y = where(plain, b, 0)
    v, w = expm1_parts(where(x < k.expm1_least, k.expm1_least, x))
    e = copysign(v + w, x)
    q, r, l = quarter_turns(y)
    o, s, t = quarter_turns(y * 0.5)
    h = turned(o, s, t)
    m = fma(e, turned(q + 1, r, l), -(h * h * 2))
    n = exp_of(x) * sine_of(q, r, l, y)
    m = rarely(~plain, apart.expm1_real_far(a, b), m)
    return m, rarely(~plain, apart.expm1_imag_far(a, b), n)

def expm1_real_far(a, b):
    h = sin(b * 0.5)
    c = cos(b)
    large = a > k.exp_plain
    e = exp(where(large, a, 0) * 0.5)
    return where(large, (e * c) * e, expm1(where(large, 0, a)) * c) - h * h * 2

def expm1_imag_far(a, b):
    h = exp(a * 0.5)
    s = sin(b)
    return (where((s == 0) & (a > k.exp_most), inf, h) * s) * h

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
    c = half_known(a, b, cos(b))
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
def length_parts(a, b):
    m = magnitude(a)
    n = magnitude(b)
    most = where(m > n, m, n)
    plain = (most >= magnitude_of(T(k.square_least))) & (most <= magnitude_of(T(k.square_most)))
    u = where(plain, where(m > n, fabs(a), fabs(b)), 1)
    v = where(plain, where(m > n, fabs(b), fabs(a)), 0)
    return plain, (u > 0.5) & (u < 2), u, v

def half_log(near, t, u, v):
    return where(near, log1p_of(where(near, t, 0)), log_of(bits(fma(u, u, v * v)))) * 0.5

def log_plane(a, b):
    plain, near, u, v = length_parts(a, b)
    y = half_log(near, fma(u - 1, u + 1, v * v), u, v)
    return rarely(~plain, apart.log_length_far(a, b), y), arctan2(b, a)

# Of 1 + a the square is made from a as it was given.
def log1p_plane(a, b):
    c = a + 1
    plain, near, u, v = length_parts(c, b)
    near = near & plain
    x = where(near, a, 0)
    y = where(near, b, 0)
    y = half_log(near, fma(x, x + 2, y * y), u, v)
    return rarely(~plain, apart.log_length_far(c, b), y), arctan2(b, c)

def log_length_far(a, b):
    large = (fabs(a) > 1) | (fabs(b) > 1)
    scale = where(large, 1 / T(k.square_scale), T(k.square_scale))
    y = log(hypot(a * scale, b * scale))
    return where(large, y + k.square_scale_log, y - k.square_scale_log)

def log2_plane(a, b):
    m, n = log_plane(a, b)
    return m * k.log2_e, n * k.log2_e

def log10_plane(a, b):
    m, n = log_plane(a, b)
    return m * k.log10_e, n * k.log10_e

# (sinh a cosh a + i sin b cos b) / (sinh**2 a + cos**2 b): nothing cancels. Where a is large it is
# 1, and what is left of the other part.
def tanh_plane(a, b):
    plain = (magnitude(a) < magnitude_of(T(k.tanh_one))) & (fabs_bits(b) < bits(T(k.far_turns)))
    x = where(plain, a, 0)
    y = where(plain, b, 0)
    q, r, l = quarter_turns(y)
    u = fabs(x)
    s = copysign(sinh_of(u), x)
    c = turned(q + 1, r, l)
    d = fma(s, s, c * c)
    m = rarely(~plain, apart.tanh_real_far(a, b), s * cosh_of(u) / d)
    return m, rarely(~plain, apart.tanh_imag_far(a, b), sine_of(q, r, l, y) * c / d)

def tanh_real_far(a, b):
    near = fabs(a) < k.tanh_one
    x = where(near, a, 0)
    s = sinh(x)
    c = cos(b)
    y = s * cosh(x) / fma(s, s, c * c)
    one = where((c != c) & (fabs(a) < inf), c, where(a == a, copysign(T(1), a), a))
    return where(near, where((c != c) & (a == 0), a, y), one)

def tanh_imag_far(a, b):
    near = fabs(a) < k.tanh_one
    s = sin(b)
    c = cos(b)
    h = sinh(where(near, a, 0))
    y = where(near, s * c / fma(h, h, c * c), s * c * exp(where(near, 0, fabs(a)) * -2) * 4)
    y = where(fabs(a) == inf, copysign(T(0), where(s == s, s * c, b)), y)
    return where(b == 0, b, y)

def tan_plane(a, b):
    m, n = tanh_plane(-b, a)
    return n, -m

def sqrt_plane(a, b):
    m = magnitude(a)
    n = magnitude(b)
    most = where(m > n, m, n)
    plain = (most >= magnitude_of(T(k.square_least))) & (most <= magnitude_of(T(k.square_most)))
    x = where(plain, a, 1)
    y = where(plain, b, 0)
    t = root_part(x, y)
    o = fabs(y) * 0.5 / t
    minus = x < 0
    u = rarely(~plain, apart.sqrt_real_far(a, b), where(minus, o, t))
    return u, rarely(~plain, apart.sqrt_imag_far(a, b), copysign(where(minus, t, o), b))

def root_part(x, y):
    return sqrt((fabs(x) + sqrt(fma(x, x, y * y))) * 0.5)

# The larger part, and half of the other number by it; brought near 1 by a power of four.
def sqrt_parts_far(a, b):
    x = fabs(a)
    y = fabs(b)
    finite = (x < inf) & (y < inf) & ((x > 0) | (y > 0))
    large = (x > 1) | (y > 1)
    down = where(large, 1 / T(k.root_scale), T(k.root_scale))
    up = where(large, T(k.root_scale_root), 1 / T(k.root_scale_root))
    x = where(finite, x, 1) * down
    y = where(finite, y, 0) * down
    t = root_part(x, y)
    return finite, t * up, y * 0.5 / t * up

def sqrt_real_far(a, b):
    finite, t, o = sqrt_parts_far(a, b)
    y = where((a == 0) & (b == 0), 0, where((a == -inf) & (b == b), 0, where(a == inf, a, a + b)))
    return where(finite, where(a < 0, o, t), where(fabs(b) == inf, fabs(b), y))

def sqrt_imag_far(a, b):
    finite, t, o = sqrt_parts_far(a, b)
    y = where(a == -inf, copysign(T(inf), b), a + b)
    y = where(a == inf, where(b == b, copysign(T(0), b), b), y)
    y = where((a == 0) & (b == 0), b, y)
    return where(finite, copysign(where(a < 0, t, o), b), where(fabs(b) == inf, b, y))

# x**y with x = a + bi and y = c + di: of a whole y below 100 the products that NumPy makes, in its
# order; else exp(y log x). Where no element goes a way, its operations are left out.
def power_plane(a, b, c, d):
    nothing = (a == 0) & (b == 0)
    whole = (d == 0) & (magnitude(c) < magnitude_of(T(100))) & (rint(c) == c)
    none = nothing & ((c != 0) | (d != 0))
    a = where(nothing, 1, a)
    z = rarely(whole, whole_power(a, b, where(whole, c, 0)), complex(a, b))
    z = rarely(~whole, power_by_log(a, b, c, d, ~whole), z)
    # NumPy asks what whole number it is
    z = rarely((d == 0) & (c != c), complex(apart.not_defined(d), apart.not_defined(d)), z)
    o = power_of_none(where(none, b, 0), c, none)
    return rarely(none, complex(o, o), z)

# Zero for an exponent with a positive real part, else no number. b is a zero.
def power_of_none(b, c, asked):
    plus = (S(bits(c)) > 0) & (magnitude(c) <= magnitude_of(T(inf)))
    return fabs(b) / where(asked & ~plus, T(0), 1)

# The first factor is one, but for 1, 2 and 3: with it an infinity is not kept.
def whole_power(a, b, c):
    n = bits(fabs(c) + k.magic) & 127
    minus = S(bits(c)) < 0
    odd = (n & 1) != 0
    short = odd & (n < 4) & ~minus
    m, o = taken_for(odd & ~short, T(1), T(0), a, b)
    m = where(short, a, m)
    o = where(short, b, o)
    a, b = squared_for(n, U(2), a, b)
    two = (n == 2) & ~minus
    m, o = taken_for(((n & 2) != 0) & ~two, m, o, a, b)
    m = where(two, a, m)
    o = where(two, b, o)
    m, o, a, b = power_step(n, U(4), m, o, a, b)
    m, o, a, b = power_step(n, U(8), m, o, a, b)
    m, o, a, b = power_step(n, U(16), m, o, a, b)
    m, o, a, b = power_step(n, U(32), m, o, a, b)
    m, o, a, b = power_step(n, U(64), m, o, a, b)
    return rarely(minus, one_over(m, o, minus), complex(m, o))

def times(a, b, c, d):
    return a * c - b * d, a * d + b * c

def power_step(n, bit, m, o, a, b):
    a, b = squared_for(n, bit, a, b)
    m, o = taken_for((n & bit) != 0, m, o, a, b)
    return m, o, a, b

# The square, where the exponent has this bit or a higher one: no other is to raise a flag.
def squared_for(n, bit, a, b):
    a = where(n >= bit, a, 0)
    b = where(n >= bit, b, 0)
    return times(a, b, a, b)

def taken_for(has, m, o, a, b):
    p, q = times(where(has, m, 0), where(has, o, 0), where(has, a, 0), where(has, b, 0))
    return where(has, p, m), where(has, q, o)

def one_over(a, b, asked):
    a = where(asked, a, 1)
    b = where(asked, b, 0)
    wide = fabs(a) >= fabs(b)
    none = (a == 0) & (b == 0)
    p = where(none, 1, where(wide, a, b))
    t = where(wide, b, a) / p
    s = 1 / where(none, 1, p + where(wide, b, a) * t)
    m = rarely(none, 1 / fabs(a), where(wide, 1 + 0 * t, t + 0) * s)
    return complex(m, rarely(none, fabs(b) / fabs(b), where(wide, 0 - t, 0 * t - 1) * s))

def power_by_log(a, b, c, d, asked):
    a = where(asked, a, 1)
    b = where(asked, b, 0)
    c = where(asked, c, 0)
    d = where(asked, d, 0)
    l, t = log_plane(a, b)
    m, n = times(c, d, l, t)
    z = complex(m, n)
    z = rarely((m != m) & (n != n), infinite_product(c, d, l, t), z)
    m, n = exp_plane(real(z), imag(z))
    return complex(m, n)

# What C makes of a product that is not a number in both parts (annex G): an infinite operand counts
# by its direction, and beside an infinity what is no number counts as zero.
def infinite_product(c, d, l, t):
    first = (fabs(c) == inf) | (fabs(d) == inf)
    second = (fabs(l) == inf) | (fabs(t) == inf)
    beyond = (fabs(c * l) == inf) | (fabs(d * t) == inf)
    some = first | second | beyond | (fabs(c * t) == inf) | (fabs(d * l) == inf)
    c = counted(first, some, c)
    d = counted(first, some, d)
    l = counted(second, some, l)
    t = counted(second, some, t)
    f = where(some, T(inf), 1)
    m, n = times(c, d, l, t)
    return complex(f * m, f * n)

def counted(infinite, some, x):
    one = copysign(where(fabs(x) == inf, T(1), 0), x)
    return where(infinite, one, where(some & (x != x), copysign(T(0), x), x))
"""
