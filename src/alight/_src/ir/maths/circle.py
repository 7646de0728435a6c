"""Sine, cosine and tangent.

The argument is a multiple of pi / 2 and the rest r + l, which is to be right also where the
argument is nearly such a multiple. Up to ``far_turns`` the multiple is subtracted in three parts
(Cody and Waite); beyond, the bits of 2 / pi that matter are multiplied by the argument's (Payne and
Hanek). The results for r then need two short polynomials.
"""

FUNCTIONS = """
def quarter_turns(x):
    t = fma(x, k.two_over_pi, k.magic)
    n = t - k.magic
    a = fma(n, -k.half_pi, x)
    p = n * k.half_pi_rest
    r = a - p
    # a is a multiple of a unit of p, so that a - r has no rounding, and nor has (a - r) - p
    l = fma(n, -k.half_pi_last, fma(n, -k.half_pi_rest, a - r))
    return bits(t), r, l

def sine_and_cosine(r, l, z):
    h = z * 0.5
    w = 1 - h
    t = fma(r * z, poly.sin(z), w * l)
    return r, t, w, ((1 - w) - h) + fma(z * z, poly.cos(z), -(r * l))

def turned(q, r, l):
    z = r * r
    s, t, c, d = sine_and_cosine(r, l, z)
    odd = (q & 1) != 0
    y = where(odd, c + d, s + t)
    return floating(bits(y) ^ ((q & 2) << (WIDTH - 2)))

# Of single floats l goes into the square, and into a sine as it is: both functions stay within an
# ulp of the true value.
def turned_float32(q, r, l):
    z = fma(r, r, r * (l + l))
    s = r + fma(r * z, poly.sin_short(z), l)
    c = fma(z, poly.cos_whole(z), 1)
    y = where((q & 1) != 0, c, s)
    return floating(bits(y) ^ ((q & 2) << (WIDTH - 2)))

# Zero is no such argument: it keeps its sign.
def near_turns(x):
    return bits(fabs(x)) - 1 < bits(T(k.far_turns)) - 1

def not_zero(x):
    return (x != 0) & (x == x)

def sin(x):
    near = near_turns(x)
    q, r, l = quarter_turns(where(near, x, 0))
    return rarely(~near, rarely(not_zero(x), apart.sin_far(x), x), turned(q, r, l))

def cos(x):
    near = magnitude(x) < magnitude_of(T(k.far_turns))
    q, r, l = quarter_turns(where(near, x, 0))
    return rarely(~near, rarely(x == x, apart.cos_far(x), x), turned(q + 1, r, l))

def tan(x):
    near = near_turns(x)
    q, r, l = quarter_turns(where(near, x, 0))
    return rarely(~near, rarely(not_zero(x), apart.tan_far(x), x), slope(q, r, l))

def slope(q, r, l):
    z = r * r
    s, t, c, d = sine_and_cosine(r, l, z)
    odd = (q & 1) != 0
    a, b = sum_of(s, t)
    c, d = sum_of(c, d)
    n = where(odd, -c, a)
    o = where(odd, -d, b)
    m = where(odd, a, c)
    p = where(odd, b, d)
    i = 1 / m
    y = n * i
    return fma(fma(-y, m, n) + fma(-y, p, o), i, y)

def slope_float32(q, r, l):
    z = r * r
    # l times the slope, 1 + tan(r)**2, or nearly so
    t = fma(r * z, poly.tan(z), fma(z, l + l, l))
    s = r + t
    odd = (q & 1) != 0
    i = -1 / where(odd, s, 1)
    return where(odd, fma(((r - s) + t) * i, i, i), s)

def sum_of(a, b):
    s = a + b
    return s, (a - s) + b

def sin_far(x):
    q, r, l = many_turns(x)
    return turned(q, r, l)

def cos_far(x):
    q, r, l = many_turns(x)
    return turned(q + 1, r, l)

def tan_far(x):
    q, r, l = many_turns(x)
    return slope(q, r, l)

# |x| = m 2**e with a whole m: of m 2**e / (pi / 2) modulo 4 the bits of 2 / pi from place e - 1 on
# are needed, 192 of them. The product of m and the whole number they are, modulo 2**192, has the
# quarter turns in its two highest bits. x - x is a NaN for an infinite x, and raises the flag.
def words(place):
    i = place >> 6
    j = uint64(place & 63)
    a = table.two_over_pi(i)
    b = table.two_over_pi(i + 1)
    c = table.two_over_pi(i + 2)
    return joined(a, b, j), joined(b, c, j), joined(c, table.two_over_pi(i + 3), j)

def joined(a, b, j):
    return (a << j) | ((b >> 1) >> (63 - j))

def many_turns(x):
    u = uint64(bits(fabs(x)))
    e = int64(u >> MANTISSA) - (BIAS + MANTISSA)
    finite = fabs(x) < inf
    m = (u & ((uint64(1) << MANTISSA) - 1)) | (uint64(1) << MANTISSA)
    a, b, c = words(where(finite, e, 0) + 62)
    low = m * b + mulhi(m, c)
    carry = where(low < m * b, uint64(1), 0)
    high = m * a + mulhi(m, b) + carry
    rest = (high << 2) | (low >> 62)
    q = (high >> 62) + (rest >> 63)
    r, l = fraction(int64(rest), low << 2)
    p = r * k.half_pi
    o = fma(r, k.half_pi, -p) + fma(r, k.half_pi_rest, l * k.half_pi)
    minus = x < 0
    quarters = where(minus, U(0) - U(q), U(q))
    return quarters, where(minus, -p, p) + (x - x), where(minus, -o, o)

def fraction(a, b):
    m = int64(4294967295)
    c = int64(b >> 32)
    return pair(
        float64(a >> 32) * 2.0 ** -32, float64(a & m) * 2.0 ** -64, float64(c) * 2.0 ** -96
    )

def pair(a, b, c):
    s = a + b
    e = ((a - s) + b) + c
    r = s + e
    return r, (s - r) + e

def fraction_float32(a, b):
    m = int64(16777215)
    c = a & 65535
    return pair(
        float32(a >> 40) * 2.0 ** -24,
        float32((a >> 16) & m) * 2.0 ** -48,
        float32(c) * 2.0 ** -64,
    )
"""
