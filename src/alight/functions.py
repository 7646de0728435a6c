"""NumPy's functions on Arrays. A function that is here records; every other name of NumPy runs in NumPy.

`FUNCTIONS` maps NumPy's function to ours: the array namespace and NumPy's own dispatch both look there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alight import memory
from alight._core import ArrayBase, Value
from alight.array import FUNCTIONS, asarray
from alight.calls import exit_to_numpy, make, operand, reduce_call
from alight.memory import apply_view
from alight.record import WHERE, elementwise

NO_VALUE = np._NoValue


def implements(*functions: Any) -> Callable[[Any], Any]:
    """Return a decorator that makes a function ours for NumPy functions."""

    def decorate(ours: Any) -> Any:
        for function in functions:
            FUNCTIONS[function] = ours
        return ours

    return decorate


def given(**keywords: Any) -> dict[str, Any]:
    """Return the keywords that differ from what NumPy does without them."""
    return {
        key: value
        for key, value in keywords.items()
        if value is not None and value is not NO_VALUE and not (key == "keepdims" and value is False)
    }


def _reduction(function: Any, name: str) -> None:
    def reduce(a: Any, axis: Any = None, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        if args:  # the rarer positional forms (dtype, out, …): NumPy sorts them out
            return exit_to_numpy(function, (a, axis, *args), {"out": out, **kwargs} if out is not None else kwargs)
        if not isinstance(a, ArrayBase):
            a = asarray(a)
            if not isinstance(a, ArrayBase):
                return exit_to_numpy(function, (a, axis), kwargs)
        return reduce_call(name, a, axis, out, given(**kwargs))

    reduce.__name__ = name
    reduce.__doc__ = function.__doc__
    implements(function)(reduce)


for _name in (
    "sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "argmin", "argmax", "count_nonzero", "ptp", "nansum",
    "nanprod", "nanmin", "nanmax", "nanmean", "nanvar", "nanstd", "nanargmin", "nanargmax",
):  # fmt: skip
    _reduction(getattr(np, _name), _name)


def _scan(function: Any, name: str) -> None:
    def scan(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        a = asarray(a)
        if not isinstance(a, ArrayBase):
            return function(a, axis, dtype, out)
        if axis is None:
            a, axis = a.ravel(), 0  # type: ignore[attr-defined]
        return reduce_call(name, a, axis, out, given(dtype=dtype))

    scan.__name__ = name
    scan.__doc__ = function.__doc__
    implements(function)(scan)


for _name in ("cumsum", "cumprod", "nancumsum", "nancumprod"):
    _scan(getattr(np, _name), _name)


@implements(np.where)
def where(condition: Any, x: Any = NO_VALUE, y: Any = NO_VALUE, /) -> Any:
    """Return elements of ``x`` where the condition holds, else of ``y``."""
    if x is NO_VALUE or y is NO_VALUE:
        arguments = [a for a in (condition, x, y) if a is not NO_VALUE]
        return exit_to_numpy(np.where, arguments, {})
    mask = operand(condition)
    if not isinstance(mask, Value):
        mask = operand(np.asarray(condition))
    if mask is None or mask.layout.dtype != np.bool_:
        if mask is None:
            return exit_to_numpy(np.where, (condition, x, y), {})
        mask = memory.read(make(mask) != 0) if mask.layout.ndim else mask
        if mask.layout.dtype != np.bool_:
            return exit_to_numpy(np.where, (condition, x, y), {})
    choices = [operand(x), operand(y)]
    if None in [c if c is None else 0 for c in choices]:
        return exit_to_numpy(np.where, (condition, x, y), {})
    values = elementwise(WHERE, (mask, *choices))
    if values is None:
        return exit_to_numpy(np.where, (condition, x, y), {})
    return make(values[0])


def _view_function(function: Any) -> None:
    def move(a: Any, *args: Any, **kwargs: Any) -> Any:
        a = asarray(a)
        if not isinstance(a, ArrayBase):
            return function(a, *args, **kwargs)
        return apply_view(a, lambda p: function(p, *args, **kwargs))

    move.__name__ = function.__name__
    move.__doc__ = function.__doc__
    implements(function)(move)


for _function in (
    np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.squeeze, np.expand_dims, np.flip, np.fliplr, np.flipud, np.rot90,
    np.matrix_transpose,
):  # fmt: skip
    _view_function(_function)


@implements(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return a read-only view of a diagonal."""
    return asarray(a).diagonal(offset, axis1, axis2)


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """Return a read-only view with a larger shape."""
    array = asarray(array)
    result = apply_view(array, lambda p: np.broadcast_to(p, shape))
    result.window.writeable = False
    return result


@implements(np.reshape)
def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """Return the array with another shape."""
    return asarray(a).reshape(shape, order=order, copy=copy)


@implements(np.ravel)
def ravel(a: Any, order: str = "C") -> Any:
    """Return the array as one axis."""
    return asarray(a).ravel(order)


@implements(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    """Return a copy in memory of its own."""
    return asarray(a, copy=True) if not isinstance(a, ArrayBase) else a.copy(order)  # type: ignore[attr-defined]


@implements(np.clip)
def clip(a: Any, a_min: Any = NO_VALUE, a_max: Any = NO_VALUE, out: Any = None, *, min: Any = NO_VALUE, max: Any = NO_VALUE, **kw: Any) -> Any:
    """Return the array with its elements limited to an interval."""
    low = a_min if a_min is not NO_VALUE else (None if min is NO_VALUE else min)
    high = a_max if a_max is not NO_VALUE else (None if max is NO_VALUE else max)
    return asarray(a).clip(low, high, out, **kw)


@implements(np.shape)
def shape(a: Any) -> tuple[int, ...]:
    """Return the shape."""
    return asarray(a).shape  # type: ignore[no-any-return]


@implements(np.ndim)
def ndim(a: Any) -> int:
    """Return the number of axes."""
    return asarray(a).ndim  # type: ignore[no-any-return]


@implements(np.size)
def size(a: Any, axis: Any = None) -> int:
    """Return the number of elements, or of those along axes."""
    return np.size(asarray(a).shape and memory.layout(asarray(a)).probe, axis)


@implements(np.real)
def real(val: Any) -> Any:
    """Return the real part."""
    return asarray(val).real


@implements(np.imag)
def imag(val: Any) -> Any:
    """Return the imaginary part."""
    return asarray(val).imag


__all__: Sequence[str] = ("FUNCTIONS", "given", "implements")
