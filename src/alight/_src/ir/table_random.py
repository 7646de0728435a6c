"""Random numbers: elementwise ops of a position ``x``, the counter ``y`` of position 0 and a key
``z``.

Each element has 64 bits of its own, Threefry2x32-20 of its counter ``y + x`` under the key (Salmon,
Moraes, Dror and Shaw 2011), so that nothing depends on who computes which elements in what order.
All else is made of these bits by single IEEE operations, without fma: NumPy's operators give the
same bits, and these are the references.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from alight._src.base.originals import np
from alight._src.ir.computed import computed
from alight._src.ir.maths.coefficients import CONSTANTS, POLYNOMIALS
from alight._src.ir.op import Dtype, Kind, declare

Array = np.ndarray[Any, Any]

_OPERANDS = ("uint32", "uint64", "uint64")
# What of every operand is computed at once: the values of a body (up to 200 of 8 bytes) then fill
# an L2 cache of the usual 1 MiB and more by half.
_BLOCK = 1024

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA


def _threefry() -> str:
    """Return lines that name the low half ``a`` and the high half ``b`` of an element's bits."""
    lines = [
        "low = uint32(y)",
        "a = low + x",
        "b = uint32(y >> 32) + uint32(a < low)",
        "k0 = uint32(z)",
        "k1 = uint32(z >> 32)",
        f"k2 = k0 ^ k1 ^ {_PARITY}",
        "a = a + k0",
        "b = b + k1",
    ]
    for turn in range(20):
        by = _ROTATIONS[turn % 8]
        lines += ["a = a + b", f"b = ((b << {by}) | (b >> {32 - by})) ^ a"]
        if turn % 4 == 3:
            number = turn // 4 + 1
            lines += [f"a = a + k{number % 3}", f"b = b + k{(number + 1) % 3} + {number}"]
    return "\n".join(lines) + "\n"


_BITS = _threefry()


def _polynomial(name: str, format_: str, argument: str) -> str:
    *rest, text = map(repr, POLYNOMIALS[name][format_])
    for coefficient in reversed(rest):
        text = f"({text}) * {argument} + {coefficient}"
    return text


def _bits_of(number: float, format_: str) -> int:
    return int(np.array(number, format_).view(f"u{np.dtype(format_).itemsize}"))


def _minus_log(format_: str) -> str:
    """Return lines that name ``w``, less the logarithm of ``t`` from (0, 1]."""
    start = _bits_of(CONSTANTS["binade_start"][format_], format_)
    if format_ == "float64":
        exponent, mask, series = "int32(uint32(c >> 32)) >> 20", 0xFFF << 52, "log"
    else:
        exponent, mask, series = "int32(c) >> 23", 0x1FF << 23, "log_half"
    # 4 P or 2 P for log m = 2 s + 2 s**3 P(s**2)
    share = "s * 0.5" if series == "log" else "s"
    return f"""c = bits(t) - {start}
        e = {format_}({exponent})
        f = floating(bits(t) - (c & {mask})) - 1.0
        s = f / (f + 2.0)
        q = s * s
        l = s + s + ({share} * q) * ({_polynomial(series, format_, "q")})
        w = e * {-CONSTANTS["ln2"][format_]!r} - l
        """


# The bend and its root, as tools/minimax.py has it.
_BEND = 6.25


def _normal(format_: str) -> str:
    """Return the quantile of the normal distribution at a tail of 63 (31) bits, and a sign's."""
    if format_ == "float64":
        tail = f"float64(int32(b & 0x7FFFFFFF)) * {2.0**-31} + (float64(a) + 0.5) * {2.0**-63}"
        sign = "uint64(b & 0x80000000) << 32"
        beyond = "normal_tail"
    else:
        tail = f"(float32(int32(b & 0x7FFFFFFF)) + 0.5) * {2.0**-31}"
        sign = "b & 0x80000000"
        beyond = "normal_tail_short"
    return f"""{_BITS}
        u = {tail}
        t = u * (2.0 - u)
        {_minus_log(format_)}
        r = sqrt(fabs(w)) - {_BEND**0.5}
        m = w - {_BEND / 2}
        far = {_polynomial(beyond, format_, "r")}
        near = {_polynomial("normal", format_, "m")}
        g = (1.0 - u) * rarely(w > {_BEND}, far, near)
        floating(bits(g) ^ ({sign}))"""


def _exponential(format_: str) -> str:
    if format_ == "float64":
        uniform = f"float64(b) * {2.0**-32} + (float64(a) + 0.5) * {2.0**-64}"
    else:
        uniform = f"(float32(b) + 0.5) * {2.0**-32}"
    return f"{_BITS}t = {uniform}\n{_minus_log(format_)}\nfabs(w)"


# By name: the dtype of the result, the body, and its operations with rotations as one.
_BODIES: dict[str, tuple[str, str, float]] = {
    "random_bits": ("uint64", f"{_BITS}(uint64(b) << 32) | uint64(a)", 85),
    "random_float64": (
        "float64",
        f"{_BITS}float64(b) * {2.0**-32} + float64(a >> 11) * {2.0**-53}",
        85,
    ),
    "random_float32": ("float32", f"{_BITS}float32(int32(b >> 8)) * {2.0**-24}", 85),
    "normal_float64": ("float64", _normal("float64"), 165),
    "normal_float32": ("float32", _normal("float32"), 130),
    "exponential_float64": ("float64", _exponential("float64"), 115),
    "exponential_float32": ("float32", _exponential("float32"), 110),
}


def _reference(result: str, body: str) -> Callable[..., Array]:
    @cache
    def trees() -> Any:
        from alight._src.ir.body import typed  # who only records needs no bodies

        return typed(body, _OPERANDS, (result,))

    def reference(position: Array, counter: Array, key: Array) -> Array:
        read: list[Any] = [["readonly"] for _ in _OPERANDS]
        given: Any = (position, counter, key, None)
        blocks = np.nditer(
            given,
            ("external_loop", "buffered", "zerosize_ok"),
            [*read, ["writeonly", "allocate"]],
            [*map(np.dtype, _OPERANDS), np.dtype(result)],
            buffersize=_BLOCK,
        )
        with blocks:
            for *operands, target in blocks:
                if target.size:
                    (target[...],) = computed(trees(), operands)
            made: Array = blocks.operands[3]
        return made

    return reference


def _resolver(result: str) -> Callable[[Sequence[Any]], tuple[Dtype, ...]]:
    dtypes = tuple(map(np.dtype, (*_OPERANDS, result)))
    return lambda operands: dtypes


for _name, (_result, _body, _flops) in _BODIES.items():
    declare(
        _name,
        Kind.ELEMENTWISE,
        _reference(_result, _body),
        body=_body,
        nin=3,
        flops=_flops,
        resolve=_resolver(_result),
    )
