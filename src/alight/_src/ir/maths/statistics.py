"""The logistic function, the error function and its kin, and the logarithm of the gamma function.

Most is computed in float64: of single floats SciPy, too, rounds what it has in double ones. Special
values are told by bits, as comparing a NaN would raise a flag.
"""

FUNCTIONS = """
# The magnitude of x, or what is most where that is larger, or x is no number.
def within(x, most):
    m = magnitude(x)
    top = magnitude_of(most)
    return floating(U(where(m < top, m, top)))

def number_or(x, y):
    return rarely(magnitude(x) > magnitude_of(T(inf)), x, y)

# exp(a**2) erfc(a), of an a above zero.
def scaled_tail(a):
    return (k.tail_middle + poly.tail((a - k.tail_bend) / (a + k.tail_bend))) / fma(a, T(2), 1)

# exp(-s a**2), where what rounding leaves of the square is not lost.
def bell(a, s):
    h = a * a
    e = exp(h * -s)
    return fma(fma(a, a, -h) * -s, e, e)

# Up to 1.
def erf_near(x):
    return fma(x, k.two_over_root_pi, x * poly.erf(x * x))

def erf(x):
    m = magnitude(x)
    near = m < magnitude_of(T(1))
    a = within(x, T(k.tail_end))
    far = copysign(1 - bell(a, T(1)) * scaled_tail(a), x)
    return number_or(x, where(near, erf_near(where(near, x, 0)), far))

def erf_float32(x):
    return wide.erf(x)

def erfc(x):
    m = magnitude(x)
    near = m < magnitude_of(T(0.5))
    a = within(x, T(k.tail_end))
    t = bell(a, T(1)) * scaled_tail(a)
    t = where(S(bits(x)) < 0, 2 - t, t)
    return number_or(x, where(near, 1 - erf_near(where(near, x, 0)), t))

def erfc_float32(x):
    return wide.erfc(x)

# Half of erfc(a / sqrt(2)), which is what lies beyond a.
def normal_tail(a):
    return bell(a, T(0.5)) * (scaled_tail(a * k.root_half) * 0.5)

def ndtr(x):
    m = magnitude(x)
    near = m < magnitude_of(T(0.7))
    t = normal_tail(within(x, T(k.normal_end)))
    t = where(S(bits(x)) < 0, t, 1 - t)
    c = fma(erf_near(where(near, x, 0) * k.root_half), T(0.5), T(0.5))
    return number_or(x, where(near, c, t))

def ndtr_float32(x):
    return wide.ndtr(x)

def log_ndtr(x):
    minus = S(bits(x)) < 0
    a = within(x, T(k.square_far))
    t = normal_tail(within(x, T(k.normal_end)))
    below = fma(a * -0.5, a, log(scaled_tail(a * k.root_half) * 0.5))
    y = where(minus, below, log1p(where(minus, T(0), -t)))
    y = rarely((magnitude(x) > magnitude_of(T(k.square_far))) & minus, T(-inf), y)
    return number_or(x, y)

def log_ndtr_float32(x):
    return wide.log_ndtr(x)

def expit(x):
    e = exp(-fabs(x))
    return where(S(bits(x)) < 0, e, 1) / (1 + e)

def exprel(x):
    m = magnitude(x)
    none = m < magnitude_of(T(1e-16))
    d = where(none, 1, copysign(within(x, T(k.exprel_most)), x))
    y = where(none, 1, expm1(d) / d)
    far = m > magnitude_of(T(k.exprel_most))
    i = 1 / where(far, fabs(x), 1)
    return number_or(x, rarely(far, where(S(bits(x)) < 0, i, T(inf)), y))

def exprel_float32(x):
    return wide.exprel(x)

def logit(x):
    inside = bits(x) - 1 < bits(T(1)) - 1
    d = where(inside, x, T(0.5))
    s = fma(d, T(2), T(-1))
    near = fabs(s) < 0.5
    y = arctanh(where(near, s, 0))
    y = where(near, y + y, log(where(near, 1, d / (1 - d))))
    end = where(magnitude(x) == 0, T(-inf), where(bits(x) == bits(T(1)), T(inf), T(nan)))
    return number_or(x, where(inside, y, end))

# The logarithm of y, and of 1 + y, which tell of no error; and their products with x, which are
# nothing where x is and y is a number: by masks, as
# of two choices by one condition a compiler makes one, behind the product.
def silent_log(y):
    above = bits(y) - 1 < bits(T(inf))
    zero = magnitude(y) == 0
    return rarely(~above, where(zero, T(-inf), number_or(y, T(nan))), log(where(above, y, 1)))

def silent_log1p(y):
    above = (S(bits(y)) >= 0) | (magnitude(y) < magnitude_of(T(1)))
    above = above & (magnitude(y) <= magnitude_of(T(inf)))
    one = bits(y) == bits(T(-1))
    return rarely(~above, where(one, T(-inf), number_or(y, T(nan))), log1p(where(above, y, 0)))

def nothing_of(x, y, l):
    some = U(~((magnitude(x) - 1) >> (WIDTH - 1)))
    return number_or(y, floating(bits(x) & some) * floating(bits(l) & some))

def xlogy(x, y):
    return nothing_of(x, y, silent_log(y))

def xlog1py(x, y):
    return nothing_of(x, y, silent_log1p(y))

# log b in two parts, of the bits of a normal number.
def log_long(b):
    v, w = log2_long(b)
    h = v * k.ln2
    return h, fma(w, k.ln2, fma(v, k.ln2, -h) + v * k.ln2_rest)

# log gamma a. Up to the bend a is two more or less than z, or up to six more, and the logarithm
# that this takes is of a product; from there on Stirling's formula has a logarithm, too.
def gammaln_above(a):
    far = a >= k.stirling_start
    n = where(a < 0.5, T(0), rint_away(a))
    z = a - n
    p = where(a < 0.5, a * (a + 1), where(n < 2, a, 1))
    p = where(n > 2, a - 1, p)
    p = where(n > 3, p * (a - 2), p)
    p = where(n > 4, p * (a - 3), p)
    p = where(n > 5, p * (a - 4), p)
    p = where(n > 6, p * (a - 5), p)
    h, l = log_long(bits(where(far, a, p)))
    z = where(far, 0, z)
    s = where(a < 1.5, T(-1), 1)
    r = fma(z, k.digamma_two, z * poly.log_gamma(z))
    near = fma(s, h, fma(s, l, r))
    i = 1 / where(far, a, k.stirling_start)
    t = a - 0.5
    m = t * h
    v = m - a
    w = ((m - v) - a) + (fma(t, h, -m) + t * l)
    return where(far, v + (w + fma(i, poly.stirling(i * i), k.half_log_two_pi)), near)

# The whole number that is nearest, of halves the one above.
def rint_away(a):
    return floor(a + 0.5)

def gammaln(x):
    m = magnitude(x)
    plain = (S(bits(x)) > 0) & (m < magnitude_of(T(k.gamma_far))) & (m >= magnitude_of(T(1e-300)))
    y = gammaln_above(where(plain, x, 1))
    number = m <= magnitude_of(T(inf))
    return number_or(x, rarely(~plain, apart.gammaln_other(where(number, x, 1)), y))

# SciPy divides by what is next to zero, and has infinity then.
def gammaln_other(x):
    a = fabs(x)
    none = a < k.gamma_least
    small = a < 1e-100
    far = a >= k.gamma_far
    b = where(small | far | ~(a < inf), T(1), a)
    r = b - rint(b)
    whole = (r == 0) & ~small | (a >= k.gamma_far)
    y = log(k.pi / (b * fabs(sin_of_pi(where(r == 0, T(0.5), r))))) - gammaln_above(b)
    y = where(whole, T(inf), y)
    l = log(where(none, T(1), a))
    y = where(small, where(none, T(inf), 0) - l, y)
    big = a * (l - 1)
    y = where(x > 0, where(far, big, y), y)
    return where(a == inf, x, y)

def sin_of_pi(r):
    return sin(r * k.pi)

def gammaln_float32(x):
    return wide.gammaln(x)
"""
