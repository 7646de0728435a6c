"""Inverse trigonometric functions."""

FUNCTIONS = """
# arcsin a = pi / 2 - 2 arcsin sqrt((1 - a) / 2) brings what is above one half below it.
def arcsin_parts(x):
    m = magnitude(x)
    plain = m <= magnitude_of(T(1))
    a = where(plain, fabs(x), 0)
    near = a < 0.5
    z = where(near, a * a, fma(a, -0.5, 0.5))
    s = where(near, a, sqrt(z))
    return plain, near, s, s * z * poly.asin(z)

def arcsin(x):
    plain, near, s, p = arcsin_parts(x)
    h = k.quarter_pi - s
    e = (k.quarter_pi - h) - s
    y = where(near, s + p, (h + (e + (k.quarter_pi_rest - p))) * 2)
    return rarely(~plain, sqrt(where(plain, T(1), -fabs(x))), copysign(y, x))

def arccos(x):
    plain, near, s, p = arcsin_parts(x)
    minus = S(bits(x)) < 0
    b = where(near, k.half_pi, where(minus, T(k.pi), 0))
    c = where(near, k.half_pi_rest, where(minus, T(k.pi_rest), 0))
    two = where(near, T(1), 2)
    flip = (bits(x) ^ where(near, U(0), U(1) << (WIDTH - 1))) & (U(1) << (WIDTH - 1))
    s = floating(bits(s * two) ^ flip)
    p = floating(bits(p * two) ^ flip)
    h = b - s
    y = h + (((b - h) - s) + (c - p))
    return rarely(~plain, sqrt(where(plain, T(1), -fabs(x))), y)

# A NaN as one that raises the flag for invalid operations where it is computed with, as comparisons
# in bodies do not.
def signalling(x):
    return floating((bits(x) & ~(U(1) << (MANTISSA - 1))) | U(1))

# 0 / 0, not known to the compiler: it raises the flag
def not_defined(x):
    return (x - x) / (x - x)

# An angle t with tan t = n / d, next to the nearest multiple of pi / 4: (n - d) / (n + d) is the
# tangent of what is left.
def arctan(x):
    m = magnitude(x)
    a = where(m < magnitude_of(T(k.steep)), fabs(x), k.steep)
    steep = a > k.tan_three_eighths
    middle = a > k.tan_eighth
    n = where(steep, -1, where(middle, a - 1, a))
    d = where(steep, a, where(middle, a + 1, 1))
    # between the two bounds d - 1 is exact, and so is n + 1
    between = middle & ~steep
    o = where(between, a - (d - 1), 0)
    w = where(between, (-1 - n) + a, 0)
    t, e = small_angle(n, w, d, o)
    # a whole number that doubles at most: products with it are exact
    j = where(steep, T(2), where(middle, T(1), 0))
    b = j * k.quarter_pi
    h = b + t
    y = h + (((b - h) + t) + fma(j, k.quarter_pi_rest, e))
    return rarely(m > magnitude_of(T(inf)), x, copysign(y, x))

# Of single floats: a longer polynomial serves up to 1.
def arctan_float32(x):
    m = magnitude(x)
    top = magnitude_of(T(k.steep))
    a = floating(U(where(m < top, m, top)))
    steep = a > 1
    n = where(steep, -1, a)
    d = where(steep, a, 1)
    t = n / d
    z = t * t
    p = t * z
    # what rounding left of t, over 1 + z: of the steep ones -t is 1 / d, of the others it is none
    e = fma(fma(-t, d, n), fma(p, 0.5, -t), where(steep, T(k.half_pi_rest), 0))
    b = where(steep, T(k.half_pi), 0)
    h = b + t
    c = poly.atan_wide(z)
    y = h + fma(p, c, fma(fma(t, z, -p), c, ((b - h) + t) + e))
    return rarely(m > magnitude_of(T(inf)), x, copysign(y, x))

# The angle whose tangent is (n + w) / (d + o), and what it lacks.
def small_angle(n, w, d, o):
    i = 1 / d
    t = n * i
    z = t * t
    return t, fma(fma(-t, d, n) + fma(-t, o, w), i, t * z * poly.atan(z))

def around(j, n, w, d, o, flip):
    t, e = small_angle(n, w, d, o)
    t = floating(bits(t) ^ flip)
    e = floating(bits(e) ^ flip)
    b = j * k.quarter_pi
    c = fma(j, k.quarter_pi, -b) + j * k.quarter_pi_rest
    h = b + t
    return h + (((b - h) + t) + (e + c))

def arctan2(y, x):
    m = magnitude(y)
    n = magnitude(x)
    most = where(m > n, m, n)
    plain = (most >= magnitude_of(T(k.square_least))) & (most <= magnitude_of(T(k.square_most)))
    none = most == 0
    nan = most > magnitude_of(T(inf))
    a = angle(y, x, where(plain, fabs(y), 0), where(plain, fabs(x), 1), plain & (m > n))
    other = rarely(~(none | nan), apart.arctan2_far(y, x), where(nan, where(m > n, y, x), a))
    return rarely(~plain, other, a)

def angle(y, x, a, b, steep):
    n = where(steep, b, a)
    d = where(steep, a, b)
    middle = n > d * k.tan_eighth
    q = d - n
    r = (d - q) - n
    s = n + d
    o = where(middle, (d - s) + n, 0)
    w = where(middle, -r, 0)
    n = where(middle, -q, n)
    d = where(middle, s, d)
    minus = S(bits(x)) < 0
    j = where(middle, T(1), 0)
    j = where(steep, 2 - j, j)
    j = where(minus, 4 - j, j)
    flip = where(steep, U(1) << (WIDTH - 1), 0) ^ where(minus, U(1) << (WIDTH - 1), 0)
    return copysign(around(j, n, w, d, o, flip), y)

def angle_float32(y, x, a, b, steep):
    t = where(steep, b, a) / where(steep, a, b)
    minus = S(bits(x)) < 0
    base = where(steep, T(k.half_pi), where(minus, T(k.pi), 0))
    rest = where(steep, T(k.half_pi_rest), where(minus, T(k.pi_rest), 0))
    flip = where(steep, U(1) << (WIDTH - 1), 0) ^ where(minus, U(1) << (WIDTH - 1), 0)
    z = t * t
    e = floating(bits(t * z * poly.atan_wide(z)) ^ flip)
    t = floating(bits(t) ^ flip)
    h = base + t
    return copysign(h + (((base - h) + t) + (e + rest)), y)

def arctan2_far(y, x):
    a = fabs(y)
    b = fabs(x)
    infinite = (a == inf) | (b == inf)
    large = (a > 1) | (b > 1)
    scale = where(large, T(k.angle_down), k.angle_up)
    a = where(infinite, where(a == inf, T(1), 0), a * where(infinite, T(1), scale))
    b = where(infinite, where(b == inf, T(1), 0), b * where(infinite, T(1), scale))
    return angle(y, x, a, b, a > b)
"""
