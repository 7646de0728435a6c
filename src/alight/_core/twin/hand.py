"""Arrays from ndarrays and back, and what calls them: creation functions and ufuncs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import EllipsisType
from typing import Any

from alight._src.base.failures import ignoring_failures
from alight._src.base.originals import np

from .asked import POLICY
from .data import Data, references
from .layout import View, layout_of
from .recording import ArrayBase, floor
from .value import Value


def take_over(array: np.ndarray[Any, Any]) -> Value | None:
    """Return a value that takes over a fresh dense ndarray with memory of its own; None for
    others."""
    if type(array) is not np.ndarray or array.base is not None:
        return None
    layout = layout_of(array)
    if not layout.dense:
        return None
    value = Value(None, (), (), layout)
    value.data = Data(layout, array)
    return value


def fresh_array(made: Any) -> Any:
    """Return an array of ours that takes over a fresh ndarray or a NumPy scalar; None where
    wrapping takes more (the twin: always)."""
    return None


def at_hand(array: ArrayBase) -> np.ndarray[Any, Any] | None:
    """Return an ndarray over an array's bytes where the host has them and nobody follows reads,
    else None."""
    value, view = array.storage.value, array.window
    if floor.traced or value.op is not None:
        return None
    data = value.data
    if data is None:
        return value.attrs if view is None else None
    if data.array is None:
        return None
    layout = value.layout if view is None else view.layout
    offset = value.offset + (0 if view is None else view.offset)
    if data.layout is layout and offset == 0:
        return data.array
    if not layout.size:  # of no rows of three columns, one may lie behind the end or before all
        offset = max(0, min(offset, data.raw.nbytes))
    return np.ndarray(layout.shape, layout.dtype, data.raw, offset, layout.strides)


def view_of(
    cls: type[ArrayBase],
    array: ArrayBase,
    window: np.ndarray[Any, Any],
    probe: np.ndarray[Any, Any],
) -> Any:
    """Return the view of an array that an ndarray made from its layout's probe says."""
    if window is not probe and window.base is not probe:
        raise RuntimeError("NumPy made a copy of an array where a view was asked for")
    outer = array.window
    start = window.__array_interface__["data"][0] - probe.__array_interface__["data"][0]
    result = object.__new__(cls)
    result.storage = array.storage
    result.window = View(
        layout_of(window),
        start + (0 if outer is None else outer.offset),
        True if outer is None else outer.writeable,
    )
    return result


class UfuncBase:
    """What a ufunc of the array namespace is called by: ``_numpy`` at once, or ``_call``."""

    __slots__ = ("_numpy",)
    _numpy: np.ufunc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a subclass says how a call is recorded")


def _alone() -> int:
    result = np.empty(1)
    return references(result)


_ALONE_BY_NAME = _alone()


def Creation(
    function: Callable[..., Any],
    settle: Callable[[Any], Any],
    convert: Callable[..., Any] | None = None,
    fills: float | EllipsisType | None = None,
    writing: Callable[..., Any] | None = None,
) -> Any:
    """Return a function that makes arrays, with ``settle`` called on large results that nobody
    else holds.

    ``convert`` is called instead where the first argument is an array of ours. ``fills`` says what
    the function fills a shape with when it is given nothing else (Ellipsis: the second argument),
    so that the native core can do it for small shapes. ``writing`` is called instead where any
    argument is an array of ours: the function may write into it.
    """

    @functools.wraps(function)
    def creation(*args: Any, **kwargs: Any) -> Any:
        if convert is not None and args and isinstance(args[0], ArrayBase):
            return convert(*args, **kwargs)
        if writing is not None and any(
            [isinstance(item, ArrayBase) for item in (*args, *kwargs.values())]
        ):
            return writing(*args, **kwargs)
        result = function(*args, **kwargs)
        if (
            type(result) is np.ndarray
            and result.size
            >= abs((floor.kept and not POLICY.get()) or (POLICY.get() or floor).record_floor)
            and references(result) <= _ALONE_BY_NAME
        ):
            return settle(result)
        return result

    return creation


def Public(
    function: Callable[..., Any],
    erred: Callable[[BaseException], Any],
    once: Callable[..., Any] | None = None,
    view: Callable[..., Any] | None = None,
    change: Callable[..., Any] | None = None,
    operands: int = 1,
) -> Any:
    """Return a function or method as programs have it: what it raises is shown to ``erred`` on its
    way out, and goes on with the traceback that it has then.

    The native core calls ``once``, NumPy's own, where all is at hand and small: it reads arrays in
    the first ``operands`` of its arguments, and writes into none. Or ``view``, which makes a view
    of its first argument, where that lies in C order; or ``change``, which changes its first one.
    """

    @functools.wraps(function)
    def public(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            with ignoring_failures():  # the error matters more than how it looks
                erred(error)
            raise

    return public
