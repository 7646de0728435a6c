"""What one language writes for each primitive of op bodies: a table per dialect, CUDA C and WGSL.

A form is text with ``{0} {1} {2}`` for the arguments, ``{T}`` for the type of the result and
``{W}`` for an unsigned type at least as wide as ``int``, in which arithmetic wraps. Forms are
looked up as ``prim:dtype``, ``prim:kind``, ``prim``, by the dtype of the first argument; what has
none is a gap. Functions of ``shared`` go along with the text that calls them.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from alight.device import Unsupported
from alight.ir.body import COMPARISONS, kind_of, part_of, width_of

Cast = Callable[[str, str, str], str]


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """A language that kernels are printed in. ``types`` are those of values, ``memory`` those of
    array elements where they differ; ``let`` and ``var`` declare a value and a variable. ``usual``
    are forms that set ``{seldom}`` where the argument needs another; ``gaps`` says why ops by name
    are left out although their bodies can be printed."""

    name: str
    types: Mapping[str, str]
    memory: Mapping[str, str]
    forms: Mapping[str, str]
    let: str
    var: str
    function_head: str
    parameter: str
    table: str
    literal: Callable[[float | int | bool, str], str]
    cast: Cast
    shared: Mapping[str, str] = field(default_factory=dict)
    libm: Mapping[str, str] = field(default_factory=dict)
    usual: Mapping[str, str] = field(default_factory=dict)
    gaps: Mapping[str, str] = field(default_factory=dict)

    def type_of(self, dtype: str) -> str:
        """Return the type of a value; raise Unsupported where there is none."""
        found = self.types.get(dtype)
        if found is None:
            raise Unsupported(f"{self.name} has no {dtype}")
        return found

    def form(self, prim: str, dtype: str) -> str:
        """Return the form of a primitive on a first argument of this dtype."""
        # half floats are no floats here: a language has their arithmetic or it has not
        kind = "h" if dtype == "float16" else kind_of(dtype)
        for key in (f"{prim}:{dtype}", f"{prim}:{kind}", prim):
            if key in self.forms:
                return self.forms[key]
        raise Unsupported(f"{self.name} has no {prim} of {dtype}")

    def library(self, name: str, dtype: str) -> str:
        """Return what a function of the C library is called."""
        found = self.libm.get(f"{name}:{dtype}") or self.libm.get(dtype)
        if found is None:
            raise Unsupported(f"{self.name} has no {name} of {dtype} that is as exact as C's")
        return found.replace("NAME", name)

    def functions(self, text: str) -> str:
        """Return the shared functions that a text calls, and those that they call, in order."""
        wanted: set[str] = set()
        queue = [text]
        while queue:
            words = set(re.findall(r"\w+(?=[(<])", queue.pop()))
            for name in words & self.shared.keys() - wanted:
                wanted.add(name)
                queue.append(self.shared[name])
        return "\n".join(body for name, body in self.shared.items() if name in wanted)


_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "quot": "/", "rem": "%", "and": "&", "or": "|",
    "xor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_FLOAT_FUNCTIONS = {
    "floor": 1, "ceil": 1, "trunc": 1, "rint": 1, "fabs": 1, "sqrt": 1, "copysign": 2, "fma": 3,
}  # fmt: skip


def _forms(kinds: str, prims: str, form: str) -> dict[str, str]:
    """Return a form for each of the primitives on each of the kinds; SYMBOL is its operator."""
    return {
        f"{prim}:{kind}": form.replace("SYMBOL", _SYMBOLS.get(prim, ""))
        for prim in prims.split()
        for kind in kinds
    }


_ALL_COMPARISONS = " ".join(sorted(COMPARISONS))


# --- CUDA C ---
# Half floats are their bits: they are only cast, compared as single ones and moved.
_C_TYPES = {
    "bool": "bool",
    "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int",
    "uint64": "unsigned long long", "float16": "unsigned short", "float32": "float",
    "float64": "double", "complex64": "Complex<float>", "complex128": "Complex<double>",
}  # fmt: skip
_C_SUFFIX = {"int32": "", "uint32": "u", "int64": "ll", "uint64": "ull", "float32": "f"}


def _c_literal(value: float | int | bool, dtype: str) -> str:
    kind = kind_of(dtype)
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
    **_forms("biuf", _ALL_COMPARISONS, "({0} SYMBOL {1})"),
    **_forms("f", "add sub mul div", "({0} SYMBOL {1})"),
    # narrow and signed integers wrap as unsigned ones, where C defines it
    **_forms("iu", "add sub mul", "(({T})(({W}){0} SYMBOL ({W}){1}))"),
    **_forms("biu", "and or xor", "(({T})({0} SYMBOL {1}))"),
    **_forms("iu", "quot rem", "(({T})({0} SYMBOL {1}))"),
    **_forms("iu", "shl", "(({T})(({W}){0} << {1}))"),
    **_forms("iu", "shr", "(({T})({0} >> {1}))"),
    **_forms("iu", "neg", "(({T})(0 - ({W}){0}))"),
    **_forms("iu", "not", "(({T})~{0})"),
    **_forms("f", "maximum", "(({0} > {1} || {0} != {0}) ? {0} : {1})"),
    **_forms("f", "minimum", "(({0} < {1} || {0} != {0}) ? {0} : {1})"),
    **_forms("iu", "popcount", "(({T})__popcll({0}))"),
    **_forms("iu", "gcd", "gcd<{T}>({0}, {1})"),
    **_forms("iu", "ipow", "ipow<{T}, {W}>({0}, {1})"),
    **{
        f"{prim}:{dtype}": f"{prim}{suffix}({', '.join(f'{{{i}}}' for i in range(count))})"
        for prim, count in _FLOAT_FUNCTIONS.items()
        for dtype, suffix in (("float32", "f"), ("float64", ""))
    },
    # what bodies ask of bits: the card's own absolute value of a NaN can be a negative one
    "fabs:float64": "absolute({0})",
    # of half floats through single ones, rounded again: twice is as good as once for these
    **_forms("h", _ALL_COMPARISONS, "(half_to_float({0}) SYMBOL half_to_float({1}))"),
    **_forms("h", "add sub", "float_to_half(half_to_float({0}) SYMBOL half_to_float({1}))"),
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
    usual={
        "sqrt:float32": "sqrt_usual({0}, {seldom})",
        "div:float32": "div_usual({0}, {1}, {seldom})",
    },
    shared={
        # One step from an estimate: rounded right where neither a square nor its rest is too small
        # or too large, which are the arguments that sqrtf takes this way too.
        "sqrt_usual": """__device__ __forceinline__ float sqrt_usual(float x, bool& seldom) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  seldom |= __float_as_uint(x) - 0x0d000000u > 0x727fffffu;
  const float s = x * r;
  return fmaf(fmaf(-s, s, x), 0.5f * r, s);
}""",
        # Two steps from an estimate, rounded right where what is left of the dividend is exact:
        # exponents of both from -95 to 96, of the quotient from -120 to 120.
        "div_usual": """__device__ __forceinline__ float div_usual(float x, float y, bool& seldom) {
  const unsigned int a = __float_as_uint(x) & 0x7f800000u, b = __float_as_uint(y) & 0x7f800000u;
  seldom |= a - 0x10000000u > 0x5f800000u | b - 0x10000000u > 0x5f800000u
    | a - b + 0x3c000000u > 0x78000000u;
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
  r = fmaf(fmaf(-y, r, 1.0f), r, r);
  float q = x * r;
  q = fmaf(fmaf(-y, q, x), r, q);
  return fmaf(fmaf(-y, q, x), r, q);
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


# --- WGSL ---
_W_TYPES = {"bool": "bool", "int32": "i32", "uint32": "u32", "float32": "f32"}


def _w_literal(value: float | int | bool, dtype: str) -> str:
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "float32":
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        exponent = bits >> 23 & 0xFF
        if exponent == 0xFF:  # a constant expression must be finite: a call is none
            return f"float_of(0x{bits:08x}u)"
        if exponent == 0 and value:
            return f"bitcast<f32>(0x{bits:08x}u)"
        return f"({float(value)!r}f)"
    if dtype == "uint32":
        return f"{int(value)}u"
    return f"i32({int(value)})" if dtype == "int32" else str(value)


def _w_cast(text: str, source: str, target: str) -> str:
    if target == "bool":
        zero = _w_literal(0, source)
        return f"(!({text} == {zero}))"
    return f"{_W_TYPES[target]}({text})"


_W_FORMS = {
    **_forms("iuf", _ALL_COMPARISONS, "({0} SYMBOL {1})"),
    **_forms("b", "eq ne", "({0} SYMBOL {1})"),
    # drivers take != of floats as false for NaN; of == none was seen that is wrong
    "ne:f": "(!({0} == {1}))",
    "lt:b": "(!{0} & {1})",
    "le:b": "(!{0} | {1})",
    "gt:b": "({0} & !{1})",
    "ge:b": "({0} | !{1})",
    **_forms("f", "add sub mul div", "({0} SYMBOL {1})"),
    **_forms("iu", "add sub mul quot rem and or xor", "({0} SYMBOL {1})"),
    **_forms("b", "and or", "({0} SYMBOL {1})"),
    "xor:b": "({0} != {1})",
    **_forms("iu", "shl", "({0} << u32({1}))"),
    **_forms("iu", "shr", "({0} >> u32({1}))"),
    **_forms("if", "neg", "(-{0})"),
    "neg:u": "(0u - {0})",
    **_forms("iu", "not", "(~{0})"),
    "not:b": "(!{0})",
    "where": "select({2}, {1}, {0})",
    "by_zero": "{0}",
    "bitcast:float32": "bitcast<u32>({0})",
    "bitcast:uint32": "bitcast<f32>({0})",
    **_forms("f", "floor", "floor({0})"),
    **_forms("f", "ceil", "ceil({0})"),
    **_forms("f", "trunc", "trunc({0})"),
    **_forms("f", "rint", "round({0})"),  # ties to even
    **_forms("f", "fabs", "abs({0})"),
    **_forms("f", "sqrt", "sqrt({0})"),
    **_forms("f", "fma", "fma({0}, {1}, {2})"),
    **_forms("f", "copysign", "copysign({0}, {1})"),
    **_forms("f", "maximum", "maximum({0}, {1})"),
    **_forms("f", "minimum", "minimum({0}, {1})"),
    **_forms("iu", "popcount", "countOneBits({0})"),
    "gcd:i": "i32(gcd(u32(abs({0})), u32(abs({1}))))",
    "gcd:u": "gcd({0}, {1})",
    "ipow:i": "i32(ipow(u32({0}), u32({1})))",
    "ipow:u": "ipow({0}, {1})",
}

_W_SHARED = {
    "float_of": "fn float_of(bits: u32) -> f32 { return bitcast<f32>(bits); }",
    "kept": """fn kept(x: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x) ^ nothing);
}""",
    "copysign": """fn copysign(a: f32, b: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(a) & 0x7fffffffu) | (bitcast<u32>(b) & 0x80000000u));
}""",
    "maximum": """fn maximum(a: f32, b: f32) -> f32 {
  return select(select(b, a, a > b), a, !(a == a));
}""",
    "minimum": """fn minimum(a: f32, b: f32) -> f32 {
  return select(select(b, a, a < b), a, !(a == a));
}""",
    "gcd": """fn gcd(a: u32, b: u32) -> u32 {
  var x = a;
  var y = b;
  while (y != 0u) {
    let r = x % y;
    x = y;
    y = r;
  }
  return x;
}""",
    "ipow": """fn ipow(a: u32, b: u32) -> u32 {
  var x = a;
  var n = b;
  var p = 1u;
  while (n != 0u) {
    if ((n & 1u) != 0u) { p = p * x; }
    x = x * x;
    n = n >> 1u;
  }
  return p;
}""",
    # long division of the significands, exact as C's
    "fmod": """fn fmod(x: f32, y: f32) -> f32 {
  let a = bitcast<u32>(x) & 0x7fffffffu;
  let b = bitcast<u32>(y) & 0x7fffffffu;
  let sign = bitcast<u32>(x) & 0x80000000u;
  if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) { return float_of(0x7fc00000u); }
  if (a < b) { return x; }
  var m = significand(a);
  let d = significand(b);
  for (; m.y > d.y; m.y = m.y - 1) {
    if (m.x >= d.x) { m.x = m.x - d.x; }
    m.x = m.x << 1u;
  }
  if (m.x >= d.x) { m.x = m.x - d.x; }
  if (m.x == 0) { return bitcast<f32>(sign); }
  let up = i32(countLeadingZeros(u32(m.x))) - 8;
  let exponent = m.y - up;
  if (exponent <= 0) {
    let least = select(u32(m.x) >> u32(1 - m.y), u32(m.x) << u32(m.y - 1), m.y > 0);
    return bitcast<f32>(sign | least);
  }
  let bits = (u32(m.x) << u32(up)) & 0x7fffffu;
  return bitcast<f32>(sign | (u32(exponent) << 23u) | bits);
}""",
    # of the bits of a positive number: 24 bits with the first one set, and the exponent
    "significand": """fn significand(bits: u32) -> vec2<i32> {
  if (bits >= 0x800000u) {
    return vec2<i32>(i32((bits & 0x7fffffu) | 0x800000u), i32(bits >> 23u));
  }
  let up = countLeadingZeros(bits) - 8u;
  return vec2<i32>(i32(bits << up), 1 - i32(up));
}""",
    # The rounding errors of a product and of a sum, exactly (Dekker 1971, Knuth); then the three
    # parts summed with one rounding, by way of a sum that is rounded to odd (Boldo and Melquiond
    # 2008). Right where no rounding error is below the normal range; 2**64 keeps large ones finite.
    "fused": """fn fused(x: f32, y: f32, z: f32) -> f32 {
  let plain = kept(kept(x * y) + z);
  if (!(abs(plain) < float_of(0x7f800000u))) { return plain; }
  let large = max(abs(x), abs(y)) > 18446744073709551616.0f;
  let less = select(1.0f, 5.421010862427522e-20f, large);
  let a = select(kept(x * less), x, abs(x) < abs(y));
  let b = select(y, kept(y * less), abs(x) < abs(y));
  let c = kept(z * less);
  let p = kept(a * b);
  let simple = kept(p + c);
  let wide_a = kept(a * 4097.0f);
  let wide_b = kept(b * 4097.0f);
  let high_a = kept(wide_a - kept(wide_a - a));
  let high_b = kept(wide_b - kept(wide_b - b));
  let low_a = kept(a - high_a);
  let low_b = kept(b - high_b);
  let rest = kept(kept(p - kept(high_a * high_b)) - kept(low_a * high_b));
  let e = kept(kept(low_a * low_b) - kept(rest - kept(high_a * low_b)));
  if (e == 0.0f) { return plain; }
  let t = sum_of(c, e);
  let u = sum_of(p, t.x);
  let v = sum_of(t.y, u.y);
  var odd = bitcast<u32>(v.x);
  if (v.y != 0.0f && (odd & 1u) == 0u) {
    odd = select(odd - 1u, odd + 1u, (v.y > 0.0f) == (v.x > 0.0f));
  }
  return kept(kept(u.x + bitcast<f32>(odd)) * select(1.0f, 18446744073709551616.0f, large));
}""",
    "sum_of": """fn sum_of(a: f32, b: f32) -> vec2<f32> {
  let s = kept(a + b);
  let d = kept(s - a);
  return vec2<f32>(s, kept(kept(a - kept(s - d)) + kept(b - d)));
}""",
}


@cache
def wgsl(fused: bool, rearranges: bool) -> Dialect:
    """Return WGSL as a device computes it: whether its fma rounds once, whether its compiler takes
    products and sums apart or together as if they were exact."""
    forms = dict(_W_FORMS)
    if not fused:
        forms["fma:f"] = "fused({0}, {1}, {2})"
    if rearranges:  # a result whose bits are looked at has to be the rounded one
        for prim in ("add", "sub", "mul"):
            forms[f"{prim}:f"] = f"kept{forms[f'{prim}:f']}"
        forms["sqrt:f"] = "kept(sqrt({0}))"  # or its square is what was under it
        # Mesa takes a quotient of a constant zero for zero, one by it for undefined.
        forms["div:f"] = "kept(kept({0}) / kept({1}))"
        if fused:
            forms["fma:f"] = f"kept({forms['fma:f']})"
    return Dialect(
        name="WGSL",
        types=_W_TYPES,
        memory={"bool": "u32"},
        forms=forms,
        let="let {name}: {type} = {value};",
        var="var {name}: {type} = {value};",
        function_head="fn {name}({parameters}) -> {type}",
        parameter="{name}: {type}",
        table="const {name} = array<{type}, {count}>({values});",
        literal=_w_literal,
        cast=_w_cast,
        shared=_W_SHARED,
        libm={"fmod:float32": "fmod"},
        # Seen on Mesa's software Vulkan: last bits differ (its first guess makes a float of a large
        # integer), and near the largest float a product of the fma made of sums overflows.
        gaps={"cbrt": "WGSL has no dependable fma, and its body is not the same with sums"},
    )
