"""NumPy's reductions and scans on Arrays."""

from __future__ import annotations

from typing import Any

from alight._core import floor
from alight._src.api.elementwise import ours, parameters
from alight._src.base.originals import ndarray_method, np
from alight._src.record.conversions import asarray
from alight._src.record.numpy_fallback import exit_to_numpy
from alight._src.record.pending import manners
from alight._src.record.reductions import given, reduce_call
from alight._src.record.structural_calls import bound, implements


def _method(name: str, function: Any) -> Any:
    """Return the method that takes what a function takes: it does without the function's checks,
    and warns of what is empty at its caller's line."""
    return ndarray_method(name, function)


def _reduction(function: Any, name: str) -> None:
    names = parameters(function)

    def reduce(*args: Any, **kwargs: Any) -> Any:
        arguments = bound(names, args, kwargs)
        array = None
        if arguments is not None and "a" in arguments:
            array = ours(arguments.pop("a"))
        if array is None or arguments is None:
            return exit_to_numpy(function, args, kwargs)
        axis = arguments.pop("axis", None)
        out = arguments.pop("out", None)
        made = reduce_call(name, array, axis, out, given(**arguments), bool(kwargs))
        if counts and isinstance(made, (int, np.generic)):
            one = floor.scalars or manners.scalar is not None
            return int(made) if one else asarray(np.intp(made))
        return made

    # Of all axes NumPy 2.1 counts in Python's numbers; the namespace has Arrays, small ones too.
    counts = name == "count_nonzero" and not isinstance(np.count_nonzero(np.ones(1)), np.generic)
    implemented = implements(function)(reduce)
    if not counts:
        implemented.once = (_method(name, function), 1)


for _name in (
    "sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "argmin", "argmax",
    "count_nonzero", "ptp", "nansum",
    "nanprod", "nanmin", "nanmax", "nanmean", "nanvar", "nanstd", "nanargmin", "nanargmax",
):  # fmt: skip
    _reduction(getattr(np, _name), _name)
_reduction(np.amax, "max")
_reduction(np.amin, "min")


def _scan(function: Any, name: str) -> None:
    names = parameters(function)

    def scan(*args: Any, **kwargs: Any) -> Any:
        arguments = bound(names, args, kwargs)
        array = None
        if arguments is not None and names[0] in arguments:
            array = ours(arguments.pop(names[0]))
        if array is None or arguments is None or arguments.pop("include_initial", False):
            return exit_to_numpy(function, args, kwargs)
        axis = arguments.pop("axis", None)
        out = arguments.pop("out", None)
        if axis is None:
            if names[0] == "x" and array.ndim != 1:  # the standard's: only vectors have a default
                return exit_to_numpy(function, args, kwargs)
            array, axis = array.ravel(), 0
        return reduce_call(name, array, axis, out, given(**arguments))

    theirs = _method(name, function) if names[0] == "a" else function
    implements(function)(scan).once = (theirs, 1)


for _name in ("cumsum", "cumprod", "nancumsum", "nancumprod"):
    _scan(getattr(np, _name), _name)
_scan(np.cumulative_sum, "cumsum")
_scan(np.cumulative_prod, "cumprod")


@implements(np.average, reads=1)
def average(*args: Any, **kwargs: Any) -> Any:
    """Return the mean over axes; with weights NumPy computes it."""
    arguments = bound(parameters(np.average), args, kwargs)
    if arguments is None or arguments.get("weights") is not None or arguments.get("returned"):
        return exit_to_numpy(np.average, args, kwargs)
    array = ours(arguments.get("a"))
    if array is None or not array.size or array.dtype == np.float16:
        # NumPy divides by how many there are, and makes a number like the mean of it.
        return exit_to_numpy(np.average, args, kwargs)
    keywords = given(keepdims=arguments.get("keepdims", False))
    axis = arguments.get("axis")
    if axis is not None:  # a list or an array of axes, too, which means do not take
        axis = np.lib.array_utils.normalize_axis_tuple(axis, array.ndim, argname="axis")
    return reduce_call("mean", array, axis, None, keywords)


def _keeping(function: Any) -> None:
    """Make a function ours that spoils its input where it may: others may share that memory."""
    names = parameters(function)

    def keep(*args: Any, **kwargs: Any) -> Any:
        arguments = bound(names, args, kwargs)
        if arguments is not None and arguments.get("overwrite_input"):
            args, kwargs = (), {**arguments, "overwrite_input": False}
        return exit_to_numpy(function, args, kwargs)

    implements(function)(keep)


for _quantile in (
    np.median, np.nanmedian, np.percentile, np.nanpercentile, np.quantile, np.nanquantile,
):  # fmt: skip
    _keeping(_quantile)
