"""WGSL: what it writes for each primitive of op bodies."""

from __future__ import annotations

import struct
from functools import cache

from alight._src.codegen.common.dialects import ALL_COMPARISONS, Dialect, forms

_W_TYPES = {"bool": "bool", "int32": "i32", "uint32": "u32", "float32": "f32"}


def _w_literal(value: float | int | bool | complex, dtype: str) -> str:
    assert not isinstance(value, complex)  # it has no such type
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
    **forms("iuf", ALL_COMPARISONS, "({0} SYMBOL {1})"),
    **forms("b", "eq ne", "({0} SYMBOL {1})"),
    # drivers take != of floats as false for NaN; of == none was seen that is wrong
    "ne:f": "(!({0} == {1}))",
    "lt:b": "(!{0} & {1})",
    "le:b": "(!{0} | {1})",
    "gt:b": "({0} & !{1})",
    "ge:b": "({0} | !{1})",
    **forms("f", "add sub mul div", "({0} SYMBOL {1})"),
    **forms("iu", "add sub mul quot rem and or xor", "({0} SYMBOL {1})"),
    **forms("b", "and or", "({0} SYMBOL {1})"),
    "xor:b": "({0} != {1})",
    **forms("iu", "shl", "({0} << u32({1}))"),
    **forms("iu", "shr", "({0} >> u32({1}))"),
    **forms("if", "neg", "(-{0})"),
    "neg:u": "(0u - {0})",
    **forms("iu", "not", "(~{0})"),
    "not:b": "(!{0})",
    "where": "select({2}, {1}, {0})",
    "by_zero": "{0}",
    "bitcast:float32": "bitcast<u32>({0})",
    "bitcast:uint32": "bitcast<f32>({0})",
    **forms("f", "floor", "floor({0})"),
    **forms("f", "ceil", "ceil({0})"),
    **forms("f", "trunc", "trunc({0})"),
    **forms("f", "rint", "round({0})"),  # ties to even
    **forms("f", "fabs", "abs({0})"),
    **forms("f", "sqrt", "sqrt({0})"),
    **forms("f", "fma", "fma({0}, {1}, {2})"),
    **forms("f", "copysign", "copysign({0}, {1})"),
    **forms("f", "maximum", "maximum({0}, {1})"),
    **forms("f", "minimum", "minimum({0}, {1})"),
    **forms("iu", "popcount", "countOneBits({0})"),
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
