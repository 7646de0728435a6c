"""The reductions and scans: NumPy's functions, and ``reduce`` and ``accumulate`` of its binary
ufuncs.

Attributes of a reduction: ``axis`` (sorted tuple, or an int or None where NumPy takes no tuple),
``keepdims``, ``dtype``, ``initial``, ``ddof``; ``("where", True)`` says that the last operand is
the mask.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from alight._src.base.originals import np
from alight._src.ir.op import OPS, Kind, Warns, declare

Array = np.ndarray[Any, Any]
Reference = Callable[..., Any]

# The tree of a reduction, part of what a result is: runs of CHUNK elements, each as LANES
# interleaved sums that meet pairwise; the runs meet pairwise too. NumPy's own pairwise sum uses
# runs of 128 elements (PW_BLOCKSIZE); 16 lanes fill the widest register of today with float32.
CHUNK = 128
LANES = 16
# Stands where a combine would: the reduction is of counts, sums and squared deviations from the
# mean, and gives the latter. ``finish`` gets the count less ``ddof``.
MOMENTS = "moments"
# Where distances are measured from: the first element, but for one larger than half of what the
# largest number is rounded by, in place of which there is 0. No distance overflows then, and sums
# of them overflow where NumPy's sum of the elements does.
ORIGIN = {
    "float32": f"where(x * {2**25} * 0 == 0, x, 0)",
    "float64": f"where(x * {2**54} * 0 == 0, x, 0)",
}


def _masked(function: Reference) -> Reference:
    """Return the NumPy function with the mask of ``where`` taken from the operands."""

    @functools.wraps(function)
    def reference(array: Array, *mask: Array, **attrs: Any) -> Any:
        if mask:
            attrs["where"] = mask[0]
        return function(array, **attrs)

    return reference


def _single_axis(function: Reference) -> Reference:
    """Return the NumPy function for a tuple of axes: one axis, or all of them."""

    @functools.wraps(function)
    def reference(array: Array, *, axis: Any = None, **attrs: Any) -> Any:
        if isinstance(axis, tuple):
            axis = axis[0] if len(axis) == 1 else None
        return function(array, axis=axis, **attrs)

    return reference


# --- bounds, in units of eps times the sum (product: the product) of absolute values ---
# Each operation on the way from an element to the result rounds by half an eps. NumPy adds rows one
# after another when it does not reduce the contiguous axis: up to n - 1 roundings. Where the sum of
# absolute values is past the dtype's range, so is the bound: which partial sums overflow differs.
def tree_depth(n: int) -> int:
    """Return the most roundings between an element and the result of our own reduction."""
    chunks = -(-n // CHUNK)
    return CHUNK // LANES - 1 + (LANES - 1).bit_length() + max(chunks - 1, 0).bit_length()


def _sum_bound(n: int) -> float:
    return (max(n - 1, 0) + tree_depth(n)) / 2


def _mean_bound(n: int) -> float:
    return _sum_bound(n) + 2  # the divisions of both, and float32's rounding


def _variance_bound(n: int) -> float:
    # a mean, a subtraction, a square, a sum and a division on either side; the errors add up
    return 3 * _mean_bound(n) + 4


def _exact(n: int) -> float:
    return 0.0


def _reduction(name: str, function: Reference, **fields: Any) -> None:
    declare(name, Kind.REDUCTION, _masked(function), **fields)


_FOR_NAN = "where(x != x, R({0}), R(x))"


def _skipping_nan(value: int) -> Mapping[str, str]:
    return {**dict.fromkeys("biu", "R(x)"), "f": _FOR_NAN.format(value)}


_TRUTH = "x != T(0)"
_reduction(
    "sum",
    np.sum,
    body="R(x)",
    combine="add",
    bound=_sum_bound,
    raises="over invalid",
    signs=(0,),
)
_reduction("prod", np.prod, body="R(x)", combine="multiply", bound=_sum_bound)
_reduction("min", np.min, body="x", combine="minimum", bound=_exact, raises="")
_reduction("max", np.max, body="x", combine="maximum", bound=_exact, raises="")
_reduction("any", np.any, body=_TRUTH, combine="logical_or", bound=_exact, raises="")
_reduction("all", np.all, body=_TRUTH, combine="logical_and", bound=_exact, raises="")
_DIVIDED = {
    **dict.fromkeys("fiu", "R(float64(x) / y)"),
    # the zeros are the divisor's other part: one infinite part makes the other NaN, as in NumPy
    "c": """a = float64(real(x))
        b = float64(imag(x))
        complex(F((a + b * 0) / y), F((b - a * 0) / y))""",
}
_reduction(
    "mean",
    np.mean,
    body="R(x)",
    combine="add",
    finish=_DIVIDED,
    bound=_mean_bound,
    warns=Warns.BY_PARTS,
    # of complex numbers: NumPy divides by way of a product with nothing
    missed_fp_errors="under",
)
_reduction(
    "var",
    np.var,
    body="R(x)",
    combine=MOMENTS,
    finish="R(float64(x) / y)",
    bound=_variance_bound,
    flops=4,
    warns=Warns.BY_PARTS,
)
_reduction(
    "std",
    np.std,
    body="R(x)",
    combine=MOMENTS,
    finish="R(sqrt(float64(x) / y))",
    bound=_variance_bound,
    flops=4,
    warns=Warns.BY_PARTS,
)
_reduction("nansum", np.nansum, body=_skipping_nan(0), combine="add", bound=_sum_bound)
_reduction("nanprod", np.nanprod, body=_skipping_nan(1), combine="multiply", bound=_sum_bound)
# NumPy says in words that there was no number. Nothing else tells of it, so the NaN that is left
# is made one that signals, and squared.
_NO_NUMBER = {
    **dict.fromkeys("biu", "x"),
    "f": "s = where(x == x, 0, signalling(x))\nR(where(x == x, x, s * s))",
    "c": """a = real(x)
        s = where(a == a, 0, signalling(a))
        complex(where(a == a, a, s * s), imag(x))""",
}
_WORDED: dict[str, Any] = {"warns": Warns.IN_WORDS}
for _f, _combine in ((np.nanmin, "fmin"), (np.nanmax, "fmax")):
    _reduction(
        _f.__name__,
        _f,
        body="x",
        combine=_combine,
        finish=_NO_NUMBER,
        bound=_exact,
        **_WORDED,
    )
_reduction("nanmean", np.nanmean, bound=_mean_bound, flops=3, **_WORDED)
_reduction("nanvar", np.nanvar, bound=_variance_bound, flops=6, **_WORDED)
_reduction("nanstd", np.nanstd, bound=_variance_bound, flops=6, **_WORDED)
_reduction("ptp", np.ptp, bound=_exact, flops=2, warns=Warns.BY_PARTS)
declare(
    "count_nonzero",
    Kind.REDUCTION,
    np.count_nonzero,
    body=f"R({_TRUTH})",
    combine="add",
    bound=_exact,
)
for _name in ("argmin", "argmax", "nanargmin", "nanargmax"):
    declare(_name, Kind.REDUCTION, _single_axis(getattr(np, _name)), bound=_exact)


# --- reduce and accumulate of every binary ufunc ---
# Regrouping leaves the result as it is for these; of add and multiply that is true up to rounding,
# and of the others it is not true at all, so NumPy runs those.
_REGROUPED = frozenset(
    {
        "add", "multiply", "maximum", "minimum", "fmax", "fmin", "bitwise_and", "bitwise_or",
        "bitwise_xor", "logical_and", "logical_or", "logical_xor",
    }
)  # fmt: skip
_BODIES = dict.fromkeys(("logical_and", "logical_or", "logical_xor"), _TRUTH)


def _accumulate(ufunc: np.ufunc) -> Reference:
    def reference(array: Array, *, axis: int, **attrs: Any) -> Any:
        return ufunc.accumulate(array, axis=axis, **attrs)

    reference.__name__ = f"{ufunc.__name__}.accumulate"
    return reference


for _op in list(OPS.values()):
    _ufunc = _op.reference
    if isinstance(_ufunc, np.ufunc) and _ufunc.nin == 2 and _ufunc.nout == 1:
        _regrouped = _op.name in _REGROUPED
        declare(
            f"reduce_{_op.name}",
            Kind.REDUCTION,
            _masked(_ufunc.reduce),
            body=_BODIES.get(_op.name, "R(x)") if _regrouped else None,
            combine=_op.name if _regrouped else None,
            bound=_sum_bound if _op.name in ("add", "multiply") else _exact,
            flops=_op.flops,
            special=_op.special,
        )
        declare(
            f"accumulate_{_op.name}",
            Kind.SCAN,
            _accumulate(_ufunc),
            body=_BODIES.get(_op.name, "R(x)") if _regrouped else None,
            combine=_op.name if _regrouped else None,
            flops=_op.flops,
            special=_op.special,
        )


# --- scans ---
for _name, _body in (
    ("cumsum", "R(x)"),
    ("cumprod", "R(x)"),
    ("nancumsum", _skipping_nan(0)),
    ("nancumprod", _skipping_nan(1)),
    ("cumulative_sum", "R(x)"),
    ("cumulative_prod", "R(x)"),
):
    declare(
        _name,
        Kind.SCAN,
        getattr(np, _name),
        body=_body,
        combine="multiply" if "prod" in _name else "add",
        bound=_sum_bound,
        raises="over invalid" if _name == "cumsum" else None,
    )
