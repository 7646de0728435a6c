"""What draws of a counter are made of: shapes, parameters of distributions, positions."""

from __future__ import annotations

import threading
from math import prod
from typing import Any

from alight._core import ArrayBase, View, make_layout
from alight._src.base.at_fork import renewed
from alight._src.base.originals import np
from alight._src.ir.op_table import OPS
from alight._src.record.conversions import astype
from alight._src.record.pending import alias, concrete, elementwise

__all__ = ["draw_shape", "draw_size", "not_negative", "parameter", "positions_of"]

_UINT32 = np.dtype(np.uint32)
_ADD = OPS["add"]
# Positions of draws up to so many elements are kept: 64 MiB of them. Those of longer draws are
# added anew, of rows and columns, where the draw is made.
_KEPT = 1 << 24

_lock = renewed(globals(), "_lock", threading.RLock)
_longest: Any = None  # the value of the longest positions so far


def draw_shape(size: Any) -> tuple[int, ...]:
    """Return a size as a shape."""
    shape: tuple[int, ...] = np.broadcast_to(np.uint8(0), size).shape  # in NumPy's words
    return shape


def parameter(given: Any) -> Any:
    """Return a parameter of a distribution as a float or an array of float64."""
    if isinstance(given, int | float):
        return float(given)
    if isinstance(given, ArrayBase):
        return astype(given, np.float64, "K", "unsafe", False)
    return np.asarray(given, float)


def not_negative(scale: Any) -> Any:
    """Return a parameter, which is a scale."""
    scale = parameter(scale)
    if np.signbit(scale).any():
        raise ValueError("scale < 0")
    return scale


def draw_size(size: Any, *parameters: Any) -> Any:
    """Return the size of a draw: as given, or of what the parameters broadcast to."""
    shape = np.broadcast_shapes(*[np.shape(p) for p in parameters])
    if size is None:
        return shape or None
    if np.broadcast_shapes(draw_shape(size), shape) != draw_shape(size):
        raise ValueError(
            f"Output size {draw_shape(size)} is not compatible with broadcast dimensions of inputs "
            f"{shape}."
        )
    return size


def positions_of(shape: tuple[int, ...]) -> Any:
    """Return a value that holds 0, 1, 2 … in C order."""
    global _longest
    count = prod(shape)
    if count > _KEPT:
        rows = concrete(np.arange(0, count, _KEPT, dtype=_UINT32).reshape(-1, 1))
        sums = elementwise(_ADD, (rows, positions_of((1, _KEPT))))
        assert sums is not None
        whole = sums[0]
    else:
        with _lock:
            if _longest is None or _longest.layout.size < count:
                _longest = concrete(np.arange(1 << (count - 1).bit_length(), dtype=_UINT32))
            whole = _longest
    return alias(whole, View(make_layout(_UINT32, shape), 0))
