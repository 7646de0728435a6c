"""CUDA C: what it writes for each primitive of op bodies."""

from __future__ import annotations

import math
import struct

from alight._src.codegen.common.dialects import ALL_COMPARISONS, FLOAT_FUNCTIONS, Dialect, forms
from alight._src.ir.body import kind_of, part_of, width_of

# Half floats are their bits: they are only cast, compared as single ones and moved.
_C_TYPES = {
    "bool": "bool",
    "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int",
    "uint64": "unsigned long long", "float16": "unsigned short", "float32": "float",
    "float64": "double", "complex64": "Complex<float>", "complex128": "Complex<double>",
}  # fmt: skip
_C_SUFFIX = {"int32": "", "uint32": "u", "int64": "ll", "uint64": "ull", "float32": "f"}


def _c_literal(value: float | int | bool | complex, dtype: str) -> str:
    kind = kind_of(dtype)
    if kind == "c":
        parts = (_c_literal(v, part_of(dtype)) for v in (value.real, value.imag))
        return f"{_C_TYPES[dtype]}{{{', '.join(parts)}}}"
    assert not isinstance(value, complex)
    if kind == "b":
        return "true" if value else "false"
    if dtype == "float16":
        return f"((unsigned short)0x{struct.unpack('<H', struct.pack('<e', value))[0]:x})"
    if kind == "f":
        if math.isfinite(value):
            # repr gives back the same double, and a float that is a double is exact too
            return f"({float(value)!r}{_C_SUFFIX.get(dtype, '')})"
        if dtype == "float32":
            return f"__int_as_float(0x{struct.unpack('<I', struct.pack('<f', value))[0]:x})"
        return f"__longlong_as_double(0x{struct.unpack('<Q', struct.pack('<d', value))[0]:x}ll)"
    if width_of(dtype) < 32:
        return f"(({_C_TYPES[dtype]}){int(value)})"
    suffix = _C_SUFFIX[dtype]
    if value == -(1 << (width_of(dtype) - 1)):  # C has no negative literals
        return f"({int(value) + 1}{suffix} - 1)"
    return f"({int(value)}{suffix})"


def _c_cast(text: str, source: str, target: str) -> str:
    a, b = kind_of(source), kind_of(target)
    to = _C_TYPES[target]
    if source == target:
        return text
    if a == "c":
        part = part_of(source)
        if b == "c":
            parts = (_c_cast(f"{text}.{p}", part, part_of(target)) for p in ("re", "im"))
            return f"{to}{{{', '.join(parts)}}}"
        if b == "b":
            return f"({text}.re != 0 || {text}.im != 0)"
        return _c_cast(f"{text}.re", part, target)
    if b == "c":
        return f"{to}{{{_c_cast(text, source, part_of(target))}, 0}}"
    if source == "float16":
        return _c_cast(f"half_to_float({text})", "float32", target)
    if target == "float16":
        # as NumPy does it: a whole number that float32 rounds is out of a half float's range
        name = "double_to_half" if source == "float64" else "float_to_half"
        return f"{name}({text})"
    if b == "b":
        return f"({text} != 0)"
    if a == "f" and b in "iu":
        # as x86 does it: narrow results come through a wider integer, and what is beyond that is
        # its least one
        if target == "uint64":
            return f"to_uint64({text})"
        through = "to_int64" if target in ("int64", "uint32") else "to_int32"
        return f"(({to}){through}({text}))"
    return f"(({to}){text})"


_CUDA_FORMS = {
    **forms("biuf", ALL_COMPARISONS, "({0} SYMBOL {1})"),
    **forms("f", "add sub mul div", "({0} SYMBOL {1})"),
    # narrow and signed integers wrap as unsigned ones, where C defines it
    **forms("iu", "add sub mul", "(({T})(({W}){0} SYMBOL ({W}){1}))"),
    **forms("biu", "and or xor", "(({T})({0} SYMBOL {1}))"),
    **forms("iu", "quot rem", "(({T})({0} SYMBOL {1}))"),
    **forms("iu", "shl", "(({T})(({W}){0} << {1}))"),
    **forms("iu", "shr", "(({T})({0} >> {1}))"),
    **forms("iu", "neg", "(({T})(0 - ({W}){0}))"),
    **forms("iu", "not", "(({T})~{0})"),
    **forms("f", "maximum", "(({0} > {1} || {0} != {0}) ? {0} : {1})"),
    **forms("f", "minimum", "(({0} < {1} || {0} != {0}) ? {0} : {1})"),
    "maximum:float32": "greater({0}, {1})",
    "minimum:float32": "lesser({0}, {1})",
    **forms("iu", "popcount", "(({T})__popcll({0}))"),
    **forms("iu", "gcd", "gcd<{T}>({0}, {1})"),
    "mulhi:uint64": "((unsigned long long)__umul64hi({0}, {1}))",
    **forms("iu", "ipow", "ipow<{T}, {W}>({0}, {1})"),
    **{
        f"{prim}:{dtype}": f"{prim}{suffix}({', '.join(f'{{{i}}}' for i in range(count))})"
        for prim, count in FLOAT_FUNCTIONS.items()
        for dtype, suffix in (("float32", "f"), ("float64", ""))
    },
    # what bodies ask of bits: the card's own absolute value of a NaN can be a negative one
    "fabs:float64": "absolute({0})",
    # of half floats through single ones, rounded again: twice is as good as once for these
    **forms("h", ALL_COMPARISONS, "(half_to_float({0}) SYMBOL half_to_float({1}))"),
    **forms("h", "add sub", "float_to_half(half_to_float({0}) SYMBOL half_to_float({1}))"),
    "fabs:h": "((unsigned short)({0} & 0x7fff))",
    "copysign:h": "((unsigned short)(({0} & 0x7fff) | ({1} & 0x8000)))",
    "neg:f": "(-{0})",
    "not:b": "(!{0})",
    "where": "({0} ? {1} : {2})",
    "by_zero": "{0}",
    "real:c": "{0}.re",
    "imag:c": "{0}.im",
    "complex:f": "{T}{{{0}, {1}}}",
    "bitcast:float32": "__float_as_uint({0})",
    "bitcast:uint32": "__uint_as_float({0})",
    "bitcast:float64": "((unsigned long long)__double_as_longlong({0}))",
    "bitcast:uint64": "__longlong_as_double((long long){0})",
    "bitcast:float16": "{0}",
    "bitcast:uint16": "{0}",
}

CUDA = Dialect(
    name="CUDA C",
    types=_C_TYPES,
    memory={"bool": "unsigned char"},
    forms=_CUDA_FORMS,
    let="const {type} {name} = {value};",
    var="{type} {name} = {value};",
    function_head="static __device__ __noinline__ {type} {name}({parameters})",
    parameter="const {type} {name}",
    table="static __device__ const {type} {name}[{count}] = {{{values}}};",
    literal=_c_literal,
    cast=_c_cast,
    libm={"float64": "NAME", "float32": "NAMEf"},
    magnitudes=True,
    usual={
        "sqrt:float32": "sqrt_usual({0}, {seldom})",
        "div:float32": "div_usual({0}, {1}, {seldom})",
    },
    shared={
        # One step from an estimate: rounded right where what is left of the square is exact, from
        # 2**-100 on. What is zero (and denormal is zero to the estimate, whose infinity has its
        # sign), infinite, negative or no number leaves a NaN: one comparison finds it and less.
        "sqrt_usual": """__device__ __forceinline__ float sqrt_usual(float x, bool& seldom) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  const float s = fabsf(x) * r, root = fmaf(fmaf(-s, s, x), 0.5f * r, s);
  seldom |= !(root >= 8.8817842e-16f);
  return root;
}""",
        # The same root turned negative, whose bits are the less the nearer it is to zero; the
        # card's NaN has no sign and is less than all of them.
        "sqrt_told": """__device__ __forceinline__ float sqrt_told(float x, unsigned int& told) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  const float s = fabsf(x) * r, root = fmaf(-fmaf(-s, s, x), 0.5f * r, -s);
  told = __float_as_uint(root);
  return -root;
}""",
        # Two steps from an estimate, rounded right where what is left of the dividend is exact: of
        # dividends from 2**-95, divisors to 2**96 and quotients from 2**-120, in magnitude. Less
        # than a normal divisor, infinite quotients on the way and what is no number leave a NaN.
        "div_usual": """__device__ __forceinline__ float div_usual(float x, float y, bool& seldom) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
  r = fmaf(fmaf(-y, r, 1.0f), r, r);
  float q = x * r;
  q = fmaf(fmaf(-y, q, x), r, q);
  q = fmaf(fmaf(-y, q, x), r, q);
  seldom |= !(fabsf(x) >= 2.5243549e-29f);
  seldom |= !(fabsf(y) <= 7.9228163e28f);
  seldom |= !(fabsf(q) >= 7.5231638e-37f);
  return q;
}""",
        # a NaN wins; the hardware takes the greater zero of a tie
        "greater": """__device__ __forceinline__ float greater(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a > b || a != a ? a : b;
#endif
}""",
        "lesser": """__device__ __forceinline__ float lesser(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a < b || a != a ? a : b;
#endif
}""",
        "Complex": """template <typename T> struct alignas(2 * sizeof(T)) Complex { T re, im; };""",
        "absolute": """__device__ __forceinline__ double absolute(double x) {
  long long r;
  asm("and.b64 %0, %1, 0x7fffffffffffffff;" : "=l"(r) : "l"(__double_as_longlong(x)));
  return __longlong_as_double(r);
}""",
        "half_to_float": """__device__ __forceinline__ float half_to_float(unsigned short h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  // a NaN has its sign, too
  return __uint_as_float((__float_as_uint(f) & 0x7fffffffu) | (h & 0x8000u) << 16);
}""",
        "float_to_half": """__device__ __forceinline__ unsigned short float_to_half(float f) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}""",
        "double_to_half": """__device__ __forceinline__ unsigned short double_to_half(double d) {
  unsigned short h;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(d));
  return h;
}""",
        "to_int32": """template <typename T> __device__ __forceinline__ int to_int32(T x) {
  return x > (T)-2147483649.0 && x < (T)2147483648.0 || x == (T)-2147483648.0 ? (int)x
    : -2147483647 - 1;
}""",
        "to_int64": """template <typename T> __device__ __forceinline__ long long to_int64(T x) {
  return x >= (T)-9223372036854775808.0 && x < (T)9223372036854775808.0 ? (long long)x
    : -9223372036854775807ll - 1;
}""",
        "to_uint64": """__device__ __forceinline__ unsigned long long to_uint64(double x) {
  return x >= 9223372036854775808.0
    ? (unsigned long long)to_int64(x - 9223372036854775808.0) ^ 0x8000000000000000ull
    : (unsigned long long)to_int64(x);
}""",
        # Euclid on magnitudes; the least integer is its own
        "gcd": """template <typename T> __device__ T gcd(T a, T b) {
  unsigned long long x = a < 0 ? 0 - (unsigned long long)a : (unsigned long long)a;
  unsigned long long y = b < 0 ? 0 - (unsigned long long)b : (unsigned long long)b;
  while (y) { const unsigned long long r = x % y; x = y; y = r; }
  return (T)x;
}""",
        # by squaring, wrapping; the exponent is not negative
        "ipow": """template <typename T, typename W> __device__ T ipow(T a, T b) {
  W x = (W)a, n = (W)b, p = 1;
  while (n) { if (n & 1) p *= x; x *= x; n >>= 1; }
  return (T)p;
}""",
    },
)
