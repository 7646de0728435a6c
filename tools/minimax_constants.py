"""The constants of the maths, as ``tools/minimax.py`` writes them: rounded to their formats, in
parts where one number of a format is not enough."""

from __future__ import annotations

from typing import Any

import mpmath
from mpmath import mpf

from minimax_functions import (
    BINADE_START,
    DIGAMMA_TWO,
    LOG2_CUBIC,
    LOG2_SLOPE,
    PIVOT,
    STIRLING_START,
    TAIL_BEND,
    TAIL_MIDDLE,
    TANH_BEND,
    TWO_OVER_ROOT_PI,
    double_part,
)

FORMATS = {"float64": 53, "float32": 24}


def parts(value: Any, bits: int, *keeps: int) -> tuple[Any, ...]:
    """Return parts that add up to the value: each but the last has as many bits as said."""
    found = []
    rest = mpf(value)
    for keep in (*keeps, bits):
        part = double_part(rest, keep)
        found.append(part)
        rest -= part
    return tuple(found)


def constants() -> dict[str, dict[str, Any]]:
    """Return the constants by name and format."""
    found: dict[str, dict[str, Any]] = {}

    def put(format_: str, **values: Any) -> None:
        for name, value in values.items():
            found.setdefault(name, {})[format_] = value

    for name, bits in FORMATS.items():
        single = name == "float32"
        bias = 127 if single else 1023
        # the high part times any exponent is exact
        wide = 14 if single else 40
        pi = mpmath.pi
        high, low = parts(mpmath.ln2, bits, wide)
        put(name, ln2_high=high, ln2_low=low)
        # added to an exponent, the high part is exact
        high, low = parts(mpmath.log(PIVOT, 2), bits, 12 if single else 40)
        put(name, pivot_log=high, pivot_log_rest=low)
        high, low = parts(mpmath.log10(2), bits, wide)
        put(name, log10_2_high=high, log10_2_low=low)
        for label, value in (
            ("ln2", mpmath.ln2),
            ("log2_e", 1 / mpmath.ln2),
            ("log10_e", 1 / mpmath.ln10),
            ("half_pi", pi / 2),
            ("quarter_pi", pi / 4),
            ("pi", pi),
        ):
            high, low = parts(value, bits, bits)
            put(name, **{label: high, f"{label}_rest": low})
        put(
            name,
            half_pi_last=parts(pi / 2, bits, bits, bits)[2],
            two_over_pi=double_part(2 / pi, bits),
            two_log2_e=double_part(2 / mpmath.ln2, bits),
        )
        put(
            name,
            magic=mpf(3) * 2 ** (bits - 2),
            magic_biased=mpf(3) * 2 ** (bits - 2) + bias,
            magic_top=mpf(3) * 2 ** (bits - 2) + (256 if single else 2048),
            # |x| up to which exp x is normal, for exp2 too; from where on it is zero; and infinite
            exp_plain=mpf("87.33" if single else "708.39"),
            exp_none=mpf(-104 if single else -746),
            exp_most=mpf(89 if single else 710),
            # exp of this, less and more than half of ln 2, is 3/4 and 3/2
            exp_middle=mpmath.log(mpf(9) / 8) / 2,
            exp2_plain=mpf(126 if single else 1022),
            exp2_none=mpf(-150 if single else -1075),
            exp2_most=mpf(129 if single else 1025),
            # from where on 1 - tanh x is below a quarter of an ulp of 1
            tanh_one=mpf("9.1" if single else "19.1"),
            # the bits that a short factor lacks
            half_bits=mpf(12 if single else 27),
            log2_slope=LOG2_SLOPE[name],
            log2_cubic=LOG2_CUBIC,
            pivot=PIVOT,
            pivot_start=double_part(mpmath.sqrt(PIVOT / 2), bits),
            pivot_next=double_part(mpmath.sqrt(PIVOT), bits),
            # what 2 to it or its opposite is normal, and so with three quarters more
            power_least=mpf(125 if single else 1021),
            ln10=mpmath.ln10,
            # this less the bits of a number are those of half its inverse, to 5 %
            half_inverse=(mpf(2121467824) / 2**23 + 2 * (bias - 127)) * mpf(2) ** (bits - 1),
            # below it expm1 x is -1
            expm1_least=mpf(-20 if single else -40),
            # x * x and x + 1 stay far from overflow and keep the parts of a sum in place
            # arctan of more is a quarter turn; squares of what lies between these neither overflow
            # nor lose bits
            steep=mpf(2) ** (30 if single else 60),
            square_least=mpf(2) ** (-50 if single else -450),
            square_most=mpf(2) ** (60 if single else 500),
            square_scale=mpf(2) ** (80 if single else 600),
            square_scale_log=mpmath.ln2 * (80 if single else 600),
            # a power of four, and its root
            root_scale=mpf(2) ** (100 if single else 700),
            root_scale_root=mpf(2) ** (50 if single else 350),
            # what brings every length near enough to 1 that it has an inverse, and no more
            angle_down=mpf(2) ** -(20 if single else 100),
            angle_up=mpf(2) ** (40 if single else 200),
            # multiples of the exponent's bias by 3, for the cube root
            cbrt_shift=mpf(0),
            cbrt_bias=mpf(682),
            # this less a third of a float's bits is nearest to the bits of its inverse cube root
            cbrt_guess=mpf(1419900344),
            tanh_bend=TANH_BEND,
            cbrt_up=mpf(27 if single else 54),
            cbrt_down=mpf(9 if single else 18),
            # below this quotient, inverted, a product with the rounded quotient has no rounding
            inverse_quotient=mpf(2) ** -(bits - 2),
            wide=mpf(2) ** (50 if single else 450),
            far_turns=mpf("30000" if single else "1e8"),
            cbrt_half=double_part(mpf(2) ** (-mpf(1) / 3), bits),
            cbrt_quarter=double_part(mpf(2) ** (-mpf(2) / 3), bits),
            root_half=double_part(mpmath.sqrt(mpf(1) / 2), bits),
            binade_start=double_part(BINADE_START, bits),
            tan_eighth=double_part(mpmath.tan(pi / 8), bits),
            tan_three_eighths=double_part(mpmath.tan(3 * pi / 8), bits),
        )
    put(
        "float64",
        tail_bend=TAIL_BEND,
        tail_middle=TAIL_MIDDLE,
        digamma_two=DIGAMMA_TWO,
        two_over_root_pi=TWO_OVER_ROOT_PI,
        # erfc of it is zero, and half of erfc(it / sqrt(2))
        tail_end=mpf(28),
        normal_end=mpf(39),
        # half the square of more is infinite
        square_far=mpf(float.fromhex("0x1.6a09e667f3bccp+512")),
        # and the exponential of more, which is in SciPy's exprel
        exprel_most=mpf(float.fromhex("0x1.62e42fefa39efp+9")),
        stirling_start=STIRLING_START,
        half_log_two_pi=mpmath.log(2 * mpmath.pi) / 2,
        # what follows log a - 1 in log gamma a / a is below an ulp; and 1 / a is infinite
        gamma_far=mpf(2) ** 60,
        gamma_least=mpf(2) ** -1024,
    )
    return found


def two_over_pi() -> list[int]:
    """Return the bits of 2 / pi in words of 64, after one word of zeros: enough for any float64."""
    count = (1024 + 192) // 64 + 2
    with mpmath.workprec(64 * count + 64):
        whole = int(mpmath.floor(2 / mpmath.pi * mpf(2) ** (64 * count)))
    words = [(whole >> (64 * (count - 1 - i))) & (2**64 - 1) for i in range(count)]
    return [0, *words]
