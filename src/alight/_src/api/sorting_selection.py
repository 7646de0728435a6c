"""NumPy's functions that pick, place, sort and search elements on Arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alight._core import ArrayBase
from alight._src.api.elementwise import ours, parameters
from alight._src.base.originals import np
from alight._src.record.numpy_fallback import exit_to_numpy, run_in_numpy
from alight._src.record.reductions import given
from alight._src.record.storage_io import host
from alight._src.record.structural_calls import Form, bound, implements, records
from alight._src.record.ufunc_calls import small

_take = Form(np.take, "take", ("a", "indices", "axis"), operands=2)
_take_along = Form(np.take_along_axis, "take_along_axis", ("arr", "indices", "axis"), operands=2)


@implements(np.take, reads=2)
def take(*args: Any, **kwargs: Any) -> Any:
    """Return elements picked by an index array along an axis; indices are checked now."""
    arguments = bound(parameters(np.take), args, kwargs)
    if arguments is None or not {"a", "indices"} <= arguments.keys() or small((arguments["a"],)):
        run = run_in_numpy if arguments and small(args) else exit_to_numpy
        return run(np.take, args, kwargs)
    array = ours(arguments["a"])
    indices = _checked(arguments["indices"], array, arguments.get("axis"))
    if array is None or indices is None or arguments.get("mode", "raise") != "raise":
        return exit_to_numpy(np.take, args, kwargs)
    keywords = {"axis": arguments["axis"]} if arguments.get("axis") is not None else {}
    if arguments.get("out") is not None:
        return exit_to_numpy(np.take, args, kwargs)
    if not keywords and array.ndim > 1:
        array = array.ravel()
    return _take((array, indices), keywords)


@implements(np.take_along_axis)
def take_along_axis(*args: Any, **kwargs: Any) -> Any:
    """Return elements picked by an index array of matching shape; indices are checked now."""
    arguments = bound(parameters(np.take_along_axis), args, kwargs)
    if (
        arguments is None
        or not {"arr", "indices"} <= arguments.keys()
        or small((arguments["arr"],))
    ):
        run = run_in_numpy if arguments and small(args) else exit_to_numpy
        return run(np.take_along_axis, args, kwargs)
    array, axis = ours(arguments["arr"]), arguments.get("axis", -1)
    indices = _checked(arguments["indices"], array, axis)
    if array is None or indices is None or axis is None:
        return exit_to_numpy(np.take_along_axis, args, kwargs)
    return _take_along((array, indices), {"axis": axis})


def _checked(indices: Any, array: Any, axis: Any) -> np.ndarray[Any, Any] | None:
    """Return an index array all of whose entries are inside, else None: NumPy has words for it."""
    found = host(indices) if isinstance(indices, ArrayBase) else np.asarray(indices)
    if array is None or found.dtype.kind not in "iu" or not found.size:
        return None
    if axis is None:
        length = array.size
    elif type(axis) is int and -array.ndim <= axis < array.ndim:
        length = array.shape[axis]
    else:
        return None
    return found if -length <= found.min() and found.max() < length else None


def _sorted(shape: Any, axis: Any = -1, **attrs: Any) -> Any:
    return shape if axis is not None and shape else None


def _ordering(function: Any, backwards: Callable[[Form, Any, Any, dict[str, Any]], Any]) -> None:
    """Make a sorting function ours, with the standard's ``descending`` beside NumPy's keywords."""
    names = ("a", "axis", "kind", "order", "stable")
    form = Form(function, function.__name__, names, shape=_sorted)

    def ordering(
        a: Any,
        axis: Any = -1,
        kind: Any = None,
        order: Any = None,
        *,
        stable: Any = None,
        descending: bool = False,
    ) -> Any:
        keywords = given(kind=kind, order=order, stable=stable)
        return backwards(form, a, axis, keywords) if descending else form((a, axis), keywords)

    implements(function, signature=False, reads=1)(ordering)


def _last_first(form: Form, a: Any, axis: Any, keywords: dict[str, Any]) -> Any:
    return np.flip(form((a, axis), keywords), axis)


def _last_first_indices(form: Form, a: Any, axis: Any, keywords: dict[str, Any]) -> Any:
    array = ours(a)
    if array is None:
        return form((a, axis), keywords)
    # Backwards in and backwards out: among equals, the first one comes out first.
    indices = form((np.flip(array, axis), axis), {"stable": True, **keywords})
    return array.shape[axis] - 1 - np.flip(indices, axis)


_ordering(np.sort, _last_first)
_ordering(np.argsort, _last_first_indices)


records(np.searchsorted, "a v side", operands=2, shape=lambda a, v, **attrs: v)


def _with_kth(function: Any) -> None:
    names = parameters(function)
    form = Form(function, function.__name__, names, shape=_sorted)

    def partition(*args: Any, **kwargs: Any) -> Any:
        return form(args, kwargs)

    implements(function)(partition)


_with_kth(np.partition)
_with_kth(np.argpartition)


def _changing(function: Any, first: str) -> None:
    """Make a function ours that writes into its first argument: at once."""

    def change(*args: Any, **kwargs: Any) -> Any:
        target = args[0] if args else kwargs.get(first)
        changed = (target,) if isinstance(target, ArrayBase) else ()
        return exit_to_numpy(function, args, kwargs, changed)

    implements(function)(change)


for _function, _first in (
    (np.put, "a"), (np.place, "arr"), (np.putmask, "a"), (np.put_along_axis, "arr"),
    (np.fill_diagonal, "a"),
):  # fmt: skip
    _changing(_function, _first)


@implements(np.flatnonzero, reads=1)
def flatnonzero(a: Any) -> Any:
    """Return indices of the elements that are not zero, as if the array had one axis."""
    return exit_to_numpy(np.flatnonzero, (a,), {})


__all__ = ["take", "take_along_axis"]
