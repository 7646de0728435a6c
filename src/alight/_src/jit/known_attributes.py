"""Attributes that a function which does nothing but compute may ask for."""

from __future__ import annotations

__all__ = ["KNOWN_ATTRIBUTES"]

# Attributes of what such a function can hold: arrays, NumPy scalars, tuples, lists, dicts, text.
# Those that change a list or dict change one of the function's own, or an argument, which is
# noticed there.
KNOWN_ATTRIBUTES = frozenset(
    (
        *("T", "all", "any", "append", "argmax", "argmin", "argpartition", "argsort", "astype"),
        *("clip", "conj", "conjugate", "copy", "cumprod", "cumsum", "diagonal", "dot", "dtype"),
        *("extend", "fill", "flatten", "get", "imag", "item", "items", "itemsize", "keys", "kind"),
        *("mT", "max", "mean", "min", "name", "nbytes", "ndim", "nonzero", "prod", "ptp", "ravel"),
        *("real", "repeat", "reshape", "round", "searchsorted", "shape", "size", "squeeze", "std"),
        *("strides", "sum", "swapaxes", "take", "tolist", "trace", "transpose", "values", "var"),
    )
)
