"""Memory layouts: the same elements behind other strides, made alike for NumPy and alight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import alight

Array = np.ndarray[Any, Any]
View = Callable[[Any], Any]

# Elements stand in three axes, so that every layout has something to say.
ROWS, COLUMNS = 4, 3


def _whole(array: Any) -> Any:
    return array


def _spread(array: Array) -> Array:
    """Return an array twice as wide whose every second element is the array's."""
    wide = np.repeat(array, 2, axis=-1)
    wide[..., 1::2] = 1
    return wide


# Name → what NumPy stores, and the view of it that is the operand.
LAYOUTS: dict[str, tuple[Callable[[Array], Array], View]] = {
    "C": (np.ascontiguousarray, _whole),
    "F": (np.asfortranarray, _whole),
    "strided": (_spread, lambda a: a[..., ::2]),
    "reversed": (lambda a: np.ascontiguousarray(a[::-1, :, ::-1]), lambda a: a[::-1, :, ::-1]),
    "transposed": (
        lambda a: np.ascontiguousarray(a.transpose(1, 2, 0)),
        lambda a: a.transpose(2, 0, 1),
    ),
    "offset": (lambda a: np.concatenate([a[:1], a], axis=0), lambda a: a[1:]),
    "row": (lambda a: a[:1].copy(), lambda a: np.broadcast_to(a, (ROWS, *a.shape[1:]))),
    "column": (lambda a: a[:, :, :1].copy(), lambda a: np.broadcast_to(a, (*a.shape[:2], COLUMNS))),
    "one axis": (lambda a: a.reshape(-1).copy(), _whole),
    "0-d": (lambda a: a.reshape(-1)[a.size // 2].reshape(()).copy(), _whole),
    "empty": (lambda a: a[:, :0].copy(), _whole),
    "single": (lambda a: a[:1, :, :1].copy(), _whole),
}
# Layouts a second operand may have beside a first one: they broadcast together.
PAIRS: tuple[tuple[str, str], ...] = (
    ("C", "C"), ("F", "F"), ("C", "F"), ("F", "C"), ("strided", "C"), ("C", "strided"),
    ("reversed", "reversed"), ("transposed", "C"), ("transposed", "transposed"),
    ("F", "transposed"), ("row", "C"), ("C", "row"), ("row", "column"), ("column", "F"),
    ("C", "0-d"), ("0-d", "F"), ("offset", "reversed"), ("one axis", "one axis"),
    ("0-d", "0-d"), ("one axis", "0-d"), ("empty", "empty"), ("C", "single"),
    ("transposed", "single"), ("single", "single"),
)  # fmt: skip


def padded(values: Array) -> Array:
    """Return the values in three axes, repeated to fill them."""
    middle = -(-values.size // (ROWS * COLUMNS))
    return np.resize(values, (ROWS, middle, COLUMNS))


def make(values: Array, layout: str) -> tuple[Array, Any]:
    """Return an ndarray and an Array of the values (three axes) in a layout."""
    store, view = LAYOUTS[layout]
    stored = store(values)
    return view(stored), view(alight.asarray(stored))


def ordinary(dtype: Any, shape: tuple[int, ...], seed: int) -> Array:
    """Return values of everyday size."""
    dtype = np.dtype(dtype)
    generator = np.random.default_rng(seed)
    if dtype.kind == "b":
        return generator.random(shape) < 0.6
    if dtype.kind in "iu":
        low = 0 if dtype.kind == "u" else -9
        return generator.integers(low, 10, shape).astype(dtype)
    real = generator.standard_normal(shape) * 2
    if dtype.kind == "c":
        return np.asarray(real + 1j * generator.standard_normal(shape), dtype)
    return np.asarray(real, dtype)


def special(dtype: Any) -> Array:
    """Return values of a dtype where loops go wrong, and some ordinary ones."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = [0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 100, info.max, info.max - 1, info.max // 2]
        near += [-1, -2, -3, -7, -64, info.min, info.min + 1]
        return np.array(sorted({n for n in near if info.min <= n <= info.max}), dtype)
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        few = np.array([0.0, -0.0, 1.5, -2.0, 1e-3, np.inf, -np.inf, np.nan, 100.0], part)
        real, imaginary = np.meshgrid(few, few)
        both = np.empty(real.size, dtype)
        both.real, both.imag = real.ravel(), imaginary.ravel()
        return both
    info = np.finfo(dtype)
    positive = [
        0.0, float(info.smallest_subnormal), float(info.tiny) / 2, float(info.tiny), 1e-3, 0.1,
        0.5, 0.75, 1.0, 1 + float(info.eps), 1.5, 2.0, 2.5, 3.0, np.pi, 10.0, 100.0,
        float(info.max) / 2, float(info.max), np.inf,
    ]  # fmt: skip
    if dtype.itemsize > 2:
        positive += [1e-5, 1e10, 2.0**31, 2.0**53]
    with np.errstate(over="ignore"):
        return np.array([*positive, *(-v for v in positive), np.nan], dtype)


# Of three operands every tuple of values would be too many: about this many stay.
_TUPLES = 4096


def points(dtypes: tuple[Any, ...]) -> list[Array]:
    """Return one array per operand in three axes: together they hold tuples of special values."""
    values = [special(d) for d in dtypes]
    while np.prod([v.size for v in values]) > _TUPLES:
        largest = max(range(len(values)), key=lambda i: values[i].size)
        kept = np.ones(values[largest].size, bool)
        kept[1::3] = False
        values[largest] = values[largest][kept]
    grids = np.meshgrid(*values, indexing="ij")
    return [padded(grid.ravel()) for grid in grids]
