"""NumPy's elementwise functions on Arrays, and those that look at shapes and dtypes only.

`FUNCTIONS` maps NumPy's function to ours: the array namespace and NumPy's own dispatch both look
there.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from alight._core import ArrayBase, Value, layout_of
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.record.conversions import asarray, copy_of
from alight._src.record.numpy_fallback import exit_to_numpy, run_in_numpy
from alight._src.record.pending import WEAK, WHERE, elementwise
from alight._src.record.structural_calls import bound, implements
from alight._src.record.ufunc_calls import at_once, make, operand, outgrow, small, ufunc_call

NO_VALUE = np._NoValue


def parameters(function: Any) -> tuple[str, ...]:
    """Return the names of a NumPy function's parameters, in order."""
    code = function.__wrapped__.__code__
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def ours(item: Any) -> Any:
    """Return an argument as an Array; None where only NumPy handles its type or dtype."""
    if isinstance(item, ArrayBase):
        return item
    if isinstance(item, np.ndarray):
        if type(item) is not np.ndarray:
            return None
    elif hasattr(item, "__array_function__") or hasattr(item, "__array_ufunc__"):
        return None
    try:
        found = asarray(item)
    except failures(TypeError, ValueError, OverflowError):
        return None
    return found if isinstance(found, ArrayBase) else None


# --- choices -------------------------------------------------------------------------------------
@implements(np.where, reads=3)
def where(*args: Any, **kwargs: Any) -> Any:
    """Return elements of ``x`` where the condition holds, else of ``y``."""
    if len(args) != 3 or kwargs:
        return exit_to_numpy(np.where, args, kwargs)
    found = at_once(np.where, args, {})
    if found is not NotImplemented:
        return found
    if small(args) and not outgrow(args):
        return run_in_numpy(np.where, args, kwargs)
    condition, x, y = args
    mask = operand(condition)
    if mask is not None and not isinstance(mask, Value):
        mask = operand(np.asarray(condition))
    choices = [operand(x), operand(y)]
    if mask is None or any(choice is None for choice in choices):
        return exit_to_numpy(np.where, args, kwargs)
    try:
        values = elementwise(WHERE, (mask, *choices))
    except failures(OverflowError, TypeError, ValueError):
        values = None
    return exit_to_numpy(np.where, args, kwargs) if values is None else make(values[0])


@implements(np.clip, signature=False, reads=3)
def clip(a: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the array with its elements limited to an interval."""
    array = ours(a)
    arguments = bound(("a_min", "a_max", "out"), args, {})
    given = kwargs if arguments is None else {**kwargs, **arguments}
    if (
        array is None
        or arguments is None
        or not arguments.keys().isdisjoint(kwargs)
        or ("a_min" in given) != ("a_max" in given)
        or ("a_min" in given and not {"min", "max"}.isdisjoint(given))
    ):
        return exit_to_numpy(np.clip, (a, *args), kwargs)
    low = given.pop("a_min", None) if "a_min" in given else given.pop("min", None)
    high = given.pop("a_max", None) if "a_max" in given else given.pop("max", None)
    low, high = (None if limit is NO_VALUE else limit for limit in (low, high))
    return array.clip(low, high, **given)


# NumPy's own signature names the limits a_min and a_max, and the array API standard min and max.
clip.__signature__ = signature(lambda a, min=None, max=None, out=None, **kwargs: None)


@implements(np.nan_to_num)
def nan_to_num(*args: Any, **kwargs: Any) -> Any:
    """Return the array with NaN and the infinities replaced."""
    arguments = bound(parameters(np.nan_to_num), args, kwargs)
    array = None if arguments is None else ours(arguments.get("x"))
    if array is None or arguments is None or not arguments.get("copy", True):
        changed = args[:1] if args and isinstance(args[0], ArrayBase) else ()
        return exit_to_numpy(np.nan_to_num, args, kwargs, changed)
    if not array.ndim:  # a scalar, of arrays without axes, too
        return exit_to_numpy(np.nan_to_num, args, kwargs)
    dtype = array.dtype
    if dtype.kind in "biu":
        return array.copy("K")
    limits = np.finfo(dtype)
    replacements = [
        arguments.get("nan", 0.0),
        arguments.get("posinf"),
        arguments.get("neginf"),
    ]
    if small((array,)) or dtype.kind == "c" or not all(_is_real(item) for item in replacements):
        return exit_to_numpy(np.nan_to_num, args, kwargs)
    nan, high, low = replacements
    high = limits.max if high is None else high
    low = limits.min if low is None else low
    result = where(ufunc_call(np.isnan, (array,), {}), dtype.type(nan), array)
    result = where(array == dtype.type(np.inf), dtype.type(high), result)
    return where(array == dtype.type(-np.inf), dtype.type(low), result)


def _is_real(item: Any) -> bool:
    return item is None or type(item) in (int, float)


# --- elementwise
# -----------------------------------------------------------------------------------
def _rounding(function: Any) -> None:
    def rounded(*args: Any, **kwargs: Any) -> Any:
        arguments = bound(("a", "decimals", "out"), args, kwargs)
        array = None if arguments is None else ours(arguments.get("a"))
        if array is None or arguments is None:
            return exit_to_numpy(function, args, kwargs)
        return array.round(arguments.get("decimals", 0), arguments.get("out"))

    implements(function, reads=1)(rounded)


_rounding(np.round)
_rounding(np.around)


@implements(np.angle, reads=1)
def angle(*args: Any, **kwargs: Any) -> Any:
    """Return the angle of complex numbers."""
    arguments = bound(("z", "deg"), args, kwargs)
    array = None if arguments is None else ours(arguments.get("z"))
    if array is None or arguments is None:
        return exit_to_numpy(np.angle, args, kwargs)
    imaginary, part = (array.imag, array.real) if array.dtype.kind == "c" else (0, array)
    result = ufunc_call(np.arctan2, (imaginary, part), {})
    if arguments.get("deg"):
        result *= 180 / np.pi
    return result


@implements(np.isclose, reads=2)
def isclose(*args: Any, **kwargs: Any) -> Any:
    """Tell for each pair of elements whether they are equal within tolerances."""
    arguments = bound(parameters(np.isclose), args, kwargs)
    if arguments is None or not {"a", "b"} <= arguments.keys():
        return exit_to_numpy(np.isclose, args, kwargs)
    x, y = (_number_or_array(arguments[key]) for key in ("a", "b"))
    rtol, atol = arguments.get("rtol", 1e-5), arguments.get("atol", 1e-8)
    if (
        any(item is None for item in (x, y))
        or not all(type(item) in (int, float) and np.isfinite(item) for item in (rtol, atol))
        or not any(isinstance(item, ArrayBase) for item in (x, y))
        or (small((x, y)) and not outgrow((x, y)))
    ):
        run = run_in_numpy if small(args) else exit_to_numpy
        return run(np.isclose, args, kwargs)
    if isinstance(y, ArrayBase):
        y = asarray(y, np.result_type(y.dtype, 1.0))  # type: ignore[attr-defined]
    elif isinstance(y, int):
        y = float(y)
    with np.errstate(invalid="ignore"):
        far = ufunc_call(np.absolute, (y,), {}) if isinstance(y, ArrayBase) else abs(y)
        near = ufunc_call(np.absolute, (ufunc_call(np.subtract, (x, y), {}),), {})
        result = (near <= atol + rtol * far) & ufunc_call(np.isfinite, (y,), {})
        result |= ufunc_call(np.equal, (x, y), {})
        if arguments.get("equal_nan"):
            result |= ufunc_call(np.isnan, (x,), {}) & ufunc_call(np.isnan, (y,), {})
    return result


def _number_or_array(item: Any) -> Any:
    return item if type(item) in (int, float, complex) else ours(item)


@implements(np.allclose, reads=2)
def allclose(*args: Any, **kwargs: Any) -> Any:
    """Tell whether all pairs of elements are equal within tolerances."""
    close = isclose(*args, **kwargs)
    if not isinstance(close, (ArrayBase, np.ndarray, np.generic)):
        return exit_to_numpy(np.allclose, args, kwargs)  # of a kind that handles calls itself
    return bool(close.all())  # type: ignore[union-attr]


@implements(np.array_equal, reads=2)
def array_equal(*args: Any, **kwargs: Any) -> Any:
    """Tell whether two arrays have the same shape and elements."""
    arguments = bound(("a1", "a2", "equal_nan"), args, kwargs)
    if arguments is None or arguments.get("equal_nan") or len(arguments) < 2:
        return exit_to_numpy(np.array_equal, args, kwargs)
    x, y = ours(arguments["a1"]), ours(arguments["a2"])
    if x is None or y is None:
        return exit_to_numpy(np.array_equal, args, kwargs)
    return bool(x.shape == y.shape and (x == y).all())


@implements(np.diff, reads=1)
def diff(*args: Any, **kwargs: Any) -> Any:
    """Return the n-th difference along an axis."""
    arguments = bound(parameters(np.diff), args, kwargs)
    if arguments is not None and arguments.get("n") == 0 and "a" in arguments:
        return arguments["a"]
    array = None if arguments is None else ours(arguments.get("a"))
    if (
        array is None
        or arguments is None
        or any(arguments.get(key, NO_VALUE) is not NO_VALUE for key in ("prepend", "append"))
        or not array.ndim
        or small((array,))
    ):
        return exit_to_numpy(np.diff, args, kwargs)
    axis, times = arguments.get("axis", -1), arguments.get("n", 1)
    if (
        type(axis) is not int
        or type(times) is not int
        or not -array.ndim <= axis < array.ndim
        or times < 0
    ):
        return exit_to_numpy(np.diff, args, kwargs)
    later = (slice(None),) * (axis % array.ndim) + (slice(1, None),)
    earlier = (slice(None),) * (axis % array.ndim) + (slice(None, -1),)
    ufunc = np.not_equal if array.dtype == np.bool_ else np.subtract
    for _ in range(times):
        array = ufunc_call(ufunc, (array[later], array[earlier]), {})
    return array


@implements(np.astype, reads=1)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """Return a copy of the array cast to a dtype."""
    if not isinstance(x, ArrayBase) or device not in (None, "cpu"):
        return exit_to_numpy(np.astype, (x, dtype), {"copy": copy, "device": device})
    return x.astype(dtype, copy=copy)  # type: ignore[attr-defined]


# --- what needs no elements
# --------------------------------------------------------------------------
def _outward(function: Any) -> None:
    def call(*args: Any, **kwargs: Any) -> Any:
        # Shapes and dtypes are all these look at: storage-less stand-ins without elements do.
        return function(
            *[_stand_in(a) for a in args], **{k: _stand_in(v) for k, v in kwargs.items()}
        )

    implements(function)(call)


def _stand_in(item: Any) -> Any:
    return layout_of(item).probe if isinstance(item, ArrayBase) else item


for _function in (
    np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj, np.common_type, np.result_type,
    np.can_cast,
):  # fmt: skip
    _outward(_function)


@implements(np.real)
def real(val: Any) -> Any:
    """Return the real part."""
    if isinstance(val, WEAK) and not isinstance(val, np.generic):
        return val.real  # as NumPy does, of whatever has one: a number of Python's
    array = ours(val)
    return exit_to_numpy(np.real, (val,), {}) if array is None else array.real


@implements(np.imag)
def imag(val: Any) -> Any:
    """Return the imaginary part."""
    if isinstance(val, WEAK) and not isinstance(val, np.generic):
        return val.imag
    array = ours(val)
    return exit_to_numpy(np.imag, (val,), {}) if array is None else array.imag


@implements(np.copy, reads=1)
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    """Return a copy in memory of its own."""
    array = ours(a)
    if array is None or subok:
        return exit_to_numpy(np.copy, (a, order, subok), {})
    return copy_of(array, order)


__all__ = ["NO_VALUE", "ours", "parameters"]
