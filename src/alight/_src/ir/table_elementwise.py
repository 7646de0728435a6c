"""The elementwise ops: every NumPy ufunc with numeric loops, and where, cast and copy.

Bodies repeat what NumPy's loops compute, not what C does: integer division floors and gives 0 for a
zero divisor, shifts past the width shift everything out, bools add by or, maximum keeps NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from alight._src.base.originals import np
from alight._src.ir.op import Dtype, FlagsRaised, Kind, declare

# One name stands for ufuncs of several static types.
_f: np.ufunc
Body = str | Mapping[str, str]


def _ufunc(ufunc: np.ufunc, body: Body | None = None, name: str = "", **fields: Any) -> None:
    declare(name or ufunc.__name__, Kind.ELEMENTWISE, ufunc, body=body, **fields)


def _resolve_test(operands: Sequence[Any]) -> tuple[Dtype, ...]:
    return np.isinf.resolve_dtypes((*operands, None))


# --- complex numbers: a + bi and c + di ---
_PARTS = "a = real(x)\nb = imag(x)\n"
_TWO = f"{_PARTS}c = real(y)\nd = imag(y)\n"
_PLUS, _MINUS = (f"{_TWO}complex(a {s} c, b {s} d)" for s in "+-")
_TIMES = f"{_TWO}complex(a * c - b * d, a * d + b * c)"
# Smith's way, as NumPy goes: the larger part of the divisor is divided by, so that nothing
# overflows before its time. By zero each part is divided.
_OVER = f"""{_TWO}wide = fabs(c) >= fabs(d)
    none = (c == 0) & (d == 0)
    p = where(none, 1, where(wide, c, d))
    q = where(wide, d, c)
    t = q / p
    k = 1 / where(none, 1, p + q * t)
    u = where(wide, a, b)
    v = where(wide, b, a)
    m = (u + v * t) * k
    n = where(wide, b - a * t, b * t - a) * k
    complex(rarely(none, a / fabs(c), m), rarely(none, b / fabs(c), n))"""
_ONE_OVER = f"""{_PARTS}wide = fabs(a) > fabs(b)
    p = where(wide, a, b)
    q = where(wide, b, a)
    t = q / p
    k = p + q * t
    complex(where(wide, 1, t) / k, -(where(wide, t, 1)) / k)"""
# In float64 the squares of float32 are exact and in range; those of float64 are brought there by a
# power of two, the least square that is exact being 2**-1022, the largest sum below 2**1024.
_LENGTHS = {
    "complex64": f"""{_PARTS}c = float64(a)
        d = float64(b)
        far = (fabs(a) == inf) | (fabs(b) == inf)
        where(far, inf, float32(sqrt(c * c + d * d)))""",
    "complex128": f"""{_PARTS}c = fabs(a)
        d = fabs(b)
        far = (c == inf) | (d == inf)
        large = (c > {2.0**510!r}) | (d > {2.0**510!r})
        small = (c < {2.0**-450!r}) & (d < {2.0**-450!r})
        k = where(large, {2.0**-600!r}, where(small, {2.0**600!r}, 1.0))
        m = where(large, {2.0**600!r}, where(small, {2.0**-600!r}, 1.0))
        u = c * k
        v = d * k
        where(far, inf, sqrt(fma(u, u, v * v)) * m)""",
}

# --- arithmetic ---
_IEEE: dict[str, Any] = {"flags": FlagsRaised.LIKE_NUMPY}
_QUIET: dict[str, Any] = {"flags": FlagsRaised.NONE}
_SUMS: dict[str, Any] = {"raises": "over invalid", "signs": (0, 1), **_IEEE}
_ufunc(np.add, {"b": "x | y", "i": "x + y", "u": "x + y", "f": "x + y", "c": _PLUS}, **_SUMS)
_ufunc(np.subtract, {"i": "x - y", "u": "x - y", "f": "x - y", "c": _MINUS}, **_SUMS)
_ufunc(np.multiply, {"b": "x & y", "i": "x * y", "u": "x * y", "f": "x * y", "c": _TIMES}, **_SUMS)
_ufunc(np.divide, {"f": "x / y", "c": _OVER}, signs=(0, 1), **_IEEE)
_ufunc(np.negative, {"i": "-x", "u": "-x", "f": "-x", "c": f"{_PARTS}complex(-a, -b)"}, **_QUIET)
_ufunc(np.positive, {"i": "x", "u": "x", "f": "x", "c": "x"}, flops=0, **_QUIET)
_ufunc(
    np.conjugate,
    {"i": "x", "u": "x", "f": "x", "c": f"{_PARTS}complex(a, -b)"},
    flops=0,
    raises="",
)
_ufunc(
    np.absolute,
    {"b": "x", "i": "where(x < 0, -x, x)", "u": "x", "f": "fabs(x)", **_LENGTHS},
    # NumPy's vectors are 1.95 ulp from the true length, ours 1.15 (10**6 values, NumPy 2.1 to 2.5).
    plane_ulp=2,
    **_QUIET,
)
_ufunc(np.fabs, {"f": "fabs(x)"}, raises="")
_ufunc(
    np.square,
    {**dict.fromkeys("iuf", "x * x"), "c": f"{_PARTS}complex(a * a - b * b, a * b + b * a)"},
    raises="over invalid",
    signs=(0,),
    **_IEEE,
)
_ufunc(
    np.sqrt,
    {"f": "sqrt(x)", "c": f"{_PARTS}m, n = sqrt_plane(a, b)\ncomplex(m, n)"},
    plane_ulp=3,
    raises="invalid",
    signs=(0,),
    **_IEEE,
)
# NumPy divides integers by way of float64, so 1 // 0 is whatever the cast makes of infinity
_ufunc(
    np.reciprocal,
    {"i": "T(1.0 / float64(x))", "u": "T(1.0 / float64(x))", "f": "1 / x", "c": _ONE_OVER},
    signs=(0,),
)
_ufunc(
    np.sign,
    {
        "i": "where(x > 0, T(1), where(x < 0, -1, 0))",
        "u": "where(x > 0, T(1), 0)",
        "f": "where(x > 0, 1, where(x < 0, -1, where(x == 0, 0, x)))",
    },
    flops=3,
    raises="",
)

# C's division traps on 0 and on MIN / -1, so both are divided by 1 instead; MIN // -1 is MIN either
# way. NumPy warns of both by way of the floating-point flags.
_SAFE = """bad = (y == 0) | ((x == MIN) & (y == -1))
    d = where(bad, 1, y)"""
_SAFE_U = """bad = y == 0
    d = where(bad, 1, y)"""
_FLOOR_DIVIDE = f"""{_SAFE}
    q = quot(x, d)
    r = x - q * d
    f = where((r != 0) & ((r < 0) != (d < 0)), q - 1, q)"""
_REMAINDER = f"""{_SAFE}
    r = rem(x, d)
    m = where((r != 0) & ((r < 0) != (d < 0)), r + d, r)"""
# fmod is exact; NumPy's quotient is then nearly an integer and is snapped to it
_FLOAT_DIVMOD = """m = fmod(x, y)
    d = (x - m) / y
    wrap = (m != 0) & ((y < 0) != (m < 0))
    r = where(m != 0, where(wrap, m + y, m), copysign(T(0), y))
    e = where(wrap, d - 1, d)
    f = floor(e)
    q = where(e != 0, where(e - f > 0.5, f + 1, f), copysign(T(0), x / y))"""
_Q, _R = "by_zero(where(y == 0, 0, f), bad)", "by_zero(where(y == 0, 0, m), bad)"
_U_Q = "by_zero(where(bad, 0, quot(x, d)), bad)"
_U_R = "by_zero(where(bad, 0, rem(x, d)), bad)"
_FLOAT_Q, _FLOAT_R = "where(y == 0, x / y, q)", "where(y == 0, m, r)"
_ufunc(
    np.floor_divide,
    {
        "i": f"{_FLOOR_DIVIDE}\n{_Q}",
        "u": f"{_SAFE_U}\n{_U_Q}",
        "f": f"{_FLOAT_DIVMOD}\n{_FLOAT_Q}",
    },
    flops=12,
)
_ufunc(
    np.remainder,
    {
        "i": f"{_REMAINDER}\n{_R}",
        "u": f"{_SAFE_U}\n{_U_R}",
        "f": f"{_FLOAT_DIVMOD}\n{_FLOAT_R}",
    },
    flops=12,
)
_ufunc(
    np.divmod,
    {
        "i": f"{_FLOOR_DIVIDE}\nm = where((r != 0) & ((r < 0) != (d < 0)), r + d, r)\n{_Q}, {_R}",
        "u": f"{_SAFE_U}\n{_U_Q}, {_U_R}",
        "f": f"{_FLOAT_DIVMOD}\n{_FLOAT_Q}, {_FLOAT_R}",
    },
    flops=16,
)
_ufunc(
    np.fmod,
    {
        "i": f"{_SAFE}\nby_zero(where(y == 0, 0, rem(x, d)), y == 0)",
        "u": f"{_SAFE_U}\n{_U_R}",
        "f": "fmod(x, y)",
    },
    flops=8,
)


def _power_loss(x: Any, y: Any) -> Any:
    """Return how many units a complex power may lose in NumPy, too: by products, as many as there
    are factors; by logarithms, as many as the product with the exponent is large."""
    loss = 1 + np.abs(y) * (1 + np.abs(np.log(x)))
    return np.where(np.isnan(loss), 1, loss)


_POWERS = {"f": "power(x, y)", "c": f"{_TWO}power_plane(a, b, c, d)"}
_ufunc(
    np.power,
    # negative integer exponents are an error at the call, so they never come here
    {"i": "ipow(x, y)", "u": "ipow(x, y)", **_POWERS},
    special=True,
    ulp=2,
    plane_loss=_power_loss,
    signs=(0,),  # to the power of infinity NumPy's loops say what they like
)
_ufunc(np.float_power, _POWERS, special=True, ulp=2, plane_loss=_power_loss)
_ufunc(np.gcd, {"i": "gcd(x, y)", "u": "gcd(x, y)"}, flops=20)
_LCM = "g = gcd(a, b)\nd = where(g == 0, 1, g)\n"
_ufunc(
    np.lcm,
    {
        "i": "a = U(where(x < 0, -x, x))\nb = U(where(y < 0, -y, y))\n"
        f"{_LCM}T(where(g == 0, 0, quot(a, d) * b))",
        "u": f"a = x\nb = y\n{_LCM}where(g == 0, 0, quot(a, d) * b)",
    },
    flops=24,
)

# --- bits ---
for _f, _symbol in ((np.bitwise_and, "&"), (np.bitwise_or, "|"), (np.bitwise_xor, "^")):
    _ufunc(_f, f"x {_symbol} y")
_ufunc(np.invert, "~x")
# a negative amount is a huge one when read as unsigned: everything is shifted out
_AMOUNT = "big = U(y) >= WIDTH\ns = where(big, 0, y)\n"
_LEFT = f"{_AMOUNT}where(big, 0, x << s)"
_ufunc(np.left_shift, {"i": _LEFT, "u": _LEFT})
_ufunc(
    np.right_shift,
    {
        "i": f"{_AMOUNT}where(big, where(x < 0, T(-1), 0), x >> s)",
        "u": f"{_AMOUNT}where(big, 0, x >> s)",
    },
)
_ufunc(
    np.bitwise_count,
    {"i": "uint8(popcount(U(where(x < 0, -x, x))))", "u": "uint8(popcount(x))"},
)

# --- comparisons and logic ---
# int64 with uint64 has a loop of its own, where the value and not the bits are compared
_MIXED = {
    "equal": ("(x >= 0) & (U(x) == y)", "(y >= 0) & (x == U(y))"),
    "not_equal": ("(x < 0) | (U(x) != y)", "(y < 0) | (x != U(y))"),
    "less": ("(x < 0) | (U(x) < y)", "(y >= 0) & (x < U(y))"),
    "less_equal": ("(x < 0) | (U(x) <= y)", "(y >= 0) & (x <= U(y))"),
    "greater": ("(x >= 0) & (U(x) > y)", "(y < 0) | (x > U(y))"),
    "greater_equal": ("(x >= 0) & (U(x) >= y)", "(y < 0) | (x >= U(y))"),
}
for _f, _symbol in (
    (np.equal, "=="), (np.not_equal, "!="), (np.less, "<"),
    (np.less_equal, "<="), (np.greater, ">"), (np.greater_equal, ">="),
):  # fmt: skip
    _iu, _ui = _MIXED[_f.__name__]
    _plain = dict.fromkeys("biuf", f"x {_symbol} y")
    # by the real parts, then by the imaginary ones; a NaN in these leaves nothing to order
    _first = f"(a {_symbol[0]} c) & (b == b) & (d == d)"
    _complex = {
        "==": "(a == c) & (b == d)",
        "!=": "(a != c) | (b != d)",
    }.get(_symbol, f"{_first} | ((a == c) & (b {_symbol} d))")
    _ufunc(_f, {"iu": _iu, "ui": _ui, **_plain, "c": f"{_TWO}{_complex}"})
_TRUTH: dict[str, tuple[str, str]] = {"b": ("x", "y"), "c": ("bool(x)", "bool(y)")}
_TRUTH |= dict.fromkeys("iuf", ("(x != 0)", "(y != 0)"))
for _f, _symbol in ((np.logical_and, "&"), (np.logical_or, "|"), (np.logical_xor, "^")):
    _ufunc(_f, {k: f"{a} {_symbol} {b}" for k, (a, b) in _TRUTH.items()})
_ufunc(np.logical_not, {"b": "~x", "c": "~bool(x)", **dict.fromkeys("iuf", "x == 0")})
_EXACT = dict.fromkeys("biu", "bool(0)")
_ufunc(np.isnan, {**_EXACT, "f": "x != x", "c": f"{_PARTS}(a != a) | (b != b)"})
_ufunc(
    np.isinf,
    {**_EXACT, "f": "fabs(x) == inf", "c": f"{_PARTS}(fabs(a) == inf) | (fabs(b) == inf)"},
)
_ufunc(
    np.isfinite,
    {
        **dict.fromkeys("biu", "bool(1)"),
        "f": "fabs(x) < inf",
        "c": f"{_PARTS}(fabs(a) < inf) & (fabs(b) < inf)",
    },
)
_ufunc(np.signbit, {"f": "(bits(x) >> (WIDTH - 1)) != 0"})
for _name, _reference in (("isposinf", np.isposinf), ("isneginf", np.isneginf)):
    declare(
        _name,
        Kind.ELEMENTWISE,
        _reference,
        body={**_EXACT, "f": "x == inf" if _name == "isposinf" else "x == -inf"},
        resolve=_resolve_test,
    )

# --- extremes: a NaN wins in maximum, loses in fmax ---
for _f, _float, _symbol, _bool in (
    (np.maximum, "maximum(x, y)", ">", "|"),
    (np.minimum, "minimum(x, y)", "<", "&"),
    (np.fmax, "where((x > y) | (y != y), x, y)", ">", "|"),
    (np.fmin, "where((x < y) | (y != y), x, y)", "<", "&"),
):
    _whole = f"where(x {_symbol} y, x, y)"
    # of complex numbers the first of a tie; a NaN in a part is a NaN
    _nan = "(a != a) | (b != b)" if _f in (np.maximum, np.minimum) else "(c != c) | (d != d)"
    _either = f"(a {_symbol} c) & (b == b) & (d == d) | (a == c) & (b {_symbol}= d)"
    _complex = f"{_TWO}where({_nan} | {_either}, x, y)"
    _types = {"b": f"x {_bool} y", "i": _whole, "u": _whole, "f": _float, "c": _complex}
    _ufunc(_f, _types, raises="")
_CLIP = "a = where(x > y, x, y)\nwhere(a < z, a, z)"
_ufunc(
    np._core.umath.clip,  # type: ignore[attr-defined]
    {
        "b": "(x | y) & z",
        "i": _CLIP,
        "u": _CLIP,
        "f": "minimum(maximum(x, y), z)",
    },
    name="clip",
    flops=2,
    raises="",
)

# --- rounding and the parts of a float ---
for _f in (np.floor, np.ceil, np.trunc):
    _ufunc(_f, {**dict.fromkeys("biu", "x"), "f": f"{_f.__name__}(x)"}, raises="invalid")
_ufunc(np.rint, {"f": "rint(x)", "c": f"{_PARTS}complex(rint(a), rint(b))"}, raises="invalid")
# The sign of a NaN is none that NumPy promises: sqrt(-1) has one on x86, and none on a GPU.
_ufunc(np.copysign, {"f": "copysign(x, y)"}, raises="")
_ufunc(
    np.modf,
    {"f": "t = trunc(x)\ncopysign(where(fabs(x) == inf, 0, x - t), x), t"},
    flops=3,
)
# what is not normal is seldom: a denormal is scaled into that range first
_ufunc(
    np.frexp,
    {
        "f": """u = bits(x)
            usual = bits(fabs(x)) - bits(T(TINY)) < bits(T(inf)) - bits(T(TINY))
            h = floating((u & ~(EXPONENT << MANTISSA)) | ((BIAS - 1) << MANTISSA))
            j = int32((u >> MANTISSA) & EXPONENT) - (BIAS - 1)
            b = bits(where(usual, 1, x) * T(2.0 ** 54))
            plain = (x != 0) & (fabs(x) < inf)
            m = floating((b & ~(EXPONENT << MANTISSA)) | ((BIAS - 1) << MANTISSA))
            e = int32((b >> MANTISSA) & EXPONENT) - (BIAS - 1) - int32(54)
            rarely(~usual, where(plain, m, x), h), rarely(~usual, where(plain, e, 0), j)"""
    },
    flops=6,
)
_ufunc(np.ldexp, {"fi": "ldexp(x, y)"}, flops=4)
_NEXT = """b = bits(x)
    n = floating(where(x != x, b, where((x < y) == (x > 0), b + 1, b - 1)))
    over = (fabs(n) == inf) & (fabs(x) < inf) & (y == y)
    away = where(x == 0, copysign(floating(U(1)), y), rarely(over, x + x, n))
    where((x != x) | (y != y), x + y, where(x == y, {}, away))"""
# From one zero to the other: before NumPy 2.5 a half float stays where it is.
_HALF = "y" if np.signbit(np.nextafter(np.float16(0.0), np.float16(-0.0))) else "x"
_NEXTS = {"f": _NEXT.format("y"), "float16": _NEXT.format(_HALF)}
_ufunc(np.nextafter, _NEXTS, flops=4, missed_fp_errors="under")
_ufunc(
    np.spacing,
    {
        "f": """n = floating(bits(x) + 1)
            over = (fabs(n) == inf) & (fabs(x) < inf)
            where(x == 0, floating(U(1)), rarely(over, x + x, n - x))""",
        # a half float's has no sign, and below zero it is the one toward zero
        "float16": """a = fabs(x)
            u = bits(a)
            n = floating(u + 1)
            s = where((x < 0) & (a < inf), a - floating(u - 1), n - a)
            over = (x > 0) & (n == inf) & (a < inf)
            where(a == 0, floating(U(1)), rarely(over, x + x, s))""",
    },
    flops=2,
    missed_fp_errors="under",
)
_ufunc(
    np.heaviside,
    {"f": "where(x != x, x, where(x == 0, y, where(x < 0, T(0), 1)))"},
    flops=3,
)

# --- transcendentals: docs/accuracy.md has what was measured ---
_IN_THE_PLANE = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
        *("sin", "cos", "tan", "sinh", "cosh", "tanh"),
    )
)


_RAISES = {
    name: categories
    for categories, names in (
        ("invalid", "sin cos tan arcsin arccos arccosh"),
        ("divide invalid", "log log2 log10 log1p arctanh"),
        ("over", "exp exp2 expm1 sinh cosh"),
        ("", "tanh arctan cbrt arcsinh"),
    )
    for name in names.split()
}


def _declared(ufunc: np.ufunc, **fields: Any) -> None:
    """Declare a transcendental of one operand."""
    own = _RAISES[ufunc.__name__]
    _ufunc(ufunc, _real_and_complex(ufunc), special=True, raises=own, signs=(0,), **fields)


def _real_and_complex(ufunc: np.ufunc) -> dict[str, str]:
    name = ufunc.__name__
    body = {"f": f"{name}(x)"}
    if name in _IN_THE_PLANE:
        body["c"] = f"{_PARTS}m, n = {name}_plane(a, b)\ncomplex(m, n)"
    return body


for _f in (
    np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sin, np.cos, np.tanh,
    np.arctan, np.cbrt,
):  # fmt: skip
    # a quotient of four real ones
    _declared(_f, ulp=1, plane_ulp=5 * (_f is np.tanh))
for _f in (
    np.tan, np.arcsin, np.arccos, np.sinh, np.cosh, np.arcsinh, np.arccosh, np.arctanh
):  # fmt: skip
    _declared(_f, ulp=2)


def _terms(x: Any, y: Any) -> Any:
    """Return the larger of two operands and of what a logarithm of their sum adds to one."""
    with np.errstate(invalid="ignore"):
        added = np.logaddexp(0, -np.abs(x - y))
    return np.fmax(np.maximum(np.abs(x), np.abs(y)), added)


_ufunc(np.arctan2, {"f": "arctan2(x, y)"}, special=True, ulp=2)
_ufunc(np.hypot, {"f": "hypot(x, y)"}, special=True, ulp=2, raises="over", signs=(0, 1))
for _f in (np.logaddexp, np.logaddexp2):
    # what is added to the larger operand may cancel it
    _ufunc(_f, {"f": f"{_f.__name__}(x, y)"}, special=True, ulp=2, against=_terms)
# NumPy rounds the factor in the type of the loop
_TO_DEGREES = {
    t: f"x * {float(np.dtype(t).type(180) / np.dtype(t).type(np.pi))!r}"
    for t in ("float32", "float64")
}
_TO_RADIANS = {
    t: f"x * {float(np.dtype(t).type(np.pi) / np.dtype(t).type(180))!r}"
    for t in ("float32", "float64")
}
for _f in (np.degrees, np.rad2deg):
    _ufunc(_f, _TO_DEGREES)
for _f in (np.radians, np.deg2rad):
    _ufunc(_f, _TO_RADIANS)


# --- no ufuncs, yet elementwise ---
def _promoted(operands: Sequence[Any]) -> Dtype:
    # result_type wants a value where resolve_dtypes wants the type of a Python scalar
    return np.result_type(*(o() if isinstance(o, type) else o for o in operands))


def _resolve_where(operands: Sequence[Any]) -> tuple[Dtype, ...]:
    common = _promoted(operands[1:])
    return np.dtype(bool), common, common, common


def _resolve_same(operands: Sequence[Any]) -> tuple[Dtype, ...]:
    common = _promoted(operands)
    return common, common


def cast_reference(array: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    """Return the array in another dtype, as ``astype`` does it, in the same memory order."""
    return array.astype(dtype)


def copy_reference(array: np.ndarray[Any, Any], order: Any = "K") -> np.ndarray[Any, Any]:
    """Return a copy, by default in the same memory order."""
    return array.copy(order=order)


_where: Callable[..., Any] = np.where
declare(
    "where",
    Kind.ELEMENTWISE,
    _where,
    body="where(x, y, z)",
    nin=3,
    resolve=_resolve_where,
    **_QUIET,
)
_OF_ONE: dict[str, Any] = {"flops": 0, "resolve": _resolve_same}
declare("cast", Kind.ELEMENTWISE, cast_reference, body="R(x)", **_OF_ONE, flags=FlagsRaised.CAST)
declare("copy", Kind.ELEMENTWISE, copy_reference, body="x", **_OF_ONE, **_QUIET)


# --- composed in Python ---
def _sinc(x: Any) -> Any:
    dtype = getattr(x, "dtype", None)  # None: a list of arrays
    if dtype is None or dtype.kind not in "biuf" or dtype == np.float16:
        return NotImplemented
    x = np.pi * x
    x = np.where(x == 0, np.finfo(x.dtype).eps, x)
    return np.sin(x) / x


_sinc_function: Callable[..., Any] = np.sinc
declare("sinc", Kind.COMPOSITION, _sinc_function, lower=_sinc, ulp=4)
