"""``frame.apply(f, engine=alight.jit)`` and ``series.map(f, engine=alight.jit)``.

pandas 3 and later hand such calls to what they find as ``__pandas_udf__``. It is not imported here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

from alight._src.base.failures import ignoring_failures
from alight._src.base.originals import np
from alight._src.jit.elementwise_body import Elements, Verdict, looked_at

__all__ = ["PandasEngine"]


class PandasEngine:
    """Runs the functions that pandas is given, with the results that it has by itself."""

    @staticmethod
    def apply(
        data: Any,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        decorator: Callable[[Any], Any],
        axis: Any,
    ) -> Any:
        """Return a function's results along an axis of a frame's array, in one call where it does
        the same with every element; of a frame itself, what pandas does."""
        if not isinstance(data, np.ndarray):  # Series have methods and rules of their own
            return data.apply(func, axis=axis, args=args, **kwargs)
        jitted = _jitted(decorator, func) if type(func) is FunctionType else func
        # Bodies that do the same with every element need not be called for each row.
        if data.dtype.kind in "iufc" and (
            looked_at(func, Elements.ARRAYS, args, kwargs) is not Verdict.NO
        ):
            return jitted(data, *args, **kwargs)

        def called(*given: Any, **named: Any) -> Any:
            result = jitted(*given, **named)
            # As pandas does: NumPy would cut texts to the length of the first.
            return np.array(result, dtype=object) if isinstance(result, str) else result

        number = {"index": 0, "columns": 1}.get(axis, axis)
        return np.apply_along_axis(called, number, data, *args, **kwargs)

    @staticmethod
    def map(
        data: Any,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        decorator: Callable[[Any], Any],
        skip_na: bool,
    ) -> Any:
        """Return a function's results for each number of a Series, in one call where it does the
        same with every one."""
        verdict, result, values = Verdict.NO, None, data
        if data.dtype in _FLOATS and len(data):
            verdict = looked_at(func, Elements.PYTHON_FLOATS, args, kwargs)
            values = data.to_numpy(dtype=float)
        # Where something is to be said, number by number it is said as Python and NumPy do there.
        if verdict is Verdict.YES:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                result = _jitted(decorator, func)(values, *args, **kwargs)
            result = None if said else result
        elif verdict is Verdict.MAY_RAISE:
            with (
                ignoring_failures(FloatingPointError),
                np.errstate(divide="raise", over="raise", invalid="raise"),
            ):
                result = func(values, *args, **kwargs)
        if skip_na and result is not None and (missing := np.isnan(values)).any():
            result = np.where(missing, np.nan, result) if result.dtype == values.dtype else None
        if result is None:
            return data.map(func, na_action="ignore" if skip_na else None, **kwargs)
        return result


# What is learned of a function counts at its next use: of as many as a loop over columns may have.
@lru_cache(maxsize=16)
def _jitted(decorator: Callable[[Any], Any], function: Any) -> Any:
    return decorator(function)


# What pandas gives a function as Python's floats.
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
