"""Elements that an index array picks along an axis, read and set where the array lies.

A device's library picks along first axes. What is picked along others, as by ``a[:, i]``, is picked
along the first of a view of the array, and its axes are moved back: then the result's elements lie
in the order in which NumPy lays them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from alight._core import ArrayBase, layout_of
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.config.loading import current_policy
from alight._src.record.eager_calls import called
from alight._src.record.pending import concrete, loses_imaginary
from alight._src.record.storage_io import apply_view
from alight.backends.registry import only_host

__all__ = ["drops_imaginary", "get_there", "set_there"]

_WHOLE = slice(None)


class _Picked(NamedTuple):
    """What is picked from: a view of the array, the index array of its first axes, which axis of
    the array that was, and how many axes the index array has in the result."""

    array: ArrayBase
    picks: ArrayBase
    axis: int
    axes: int


def get_there(array: ArrayBase, key: Any) -> Any:
    """Return ``array[key]`` from the device that holds the array; NotImplemented where none does,
    or where the key is more than one index array beside whole axes."""
    picked = _picked(array, key)
    if picked is None:
        return NotImplemented
    found = called("getitem", (picked.array, picked.picks), {})
    if found is NotImplemented or not picked.axis:
        return found
    to = range(picked.axis, picked.axis + picked.axes)
    return apply_view(found, lambda probe: np.moveaxis(probe, range(picked.axes), to))


def set_there(array: ArrayBase, key: Any, item: Any) -> bool:
    """Have the device that holds the array set ``array[key] = item``; tell whether it did."""
    picked = _picked(array, key)
    if picked is None or drops_imaginary(item, layout_of(array).dtype):
        return False
    if not isinstance(item, ArrayBase):
        if not isinstance(item, (bool, int, float, complex, np.generic)):
            return False
        try:
            with np.errstate(all="raise"):
                item = np.asarray(item, layout_of(array).dtype)[()]
        except failures():
            return False  # NumPy looks at the key first, and words what of the two is wrong
    elif picked.axis:
        return False  # its axes are in another order
    given = picked.array, picked.picks, item
    return called("setitem", given, {}, (picked.array,)) is not NotImplemented


def drops_imaginary(item: Any, dtype: np.dtype[Any]) -> bool:
    """Tell whether NumPy warns, at the call, that imaginary parts are lost."""
    given = layout_of(item).dtype if isinstance(item, ArrayBase) else getattr(item, "dtype", None)
    return isinstance(given, np.dtype) and loses_imaginary(given, dtype)


def _picked(array: ArrayBase, key: Any) -> _Picked | None:
    """Return what a key picks along some axes that follow each other, all others being whole."""
    if only_host() and current_policy().force is None:
        return None
    parts = key if type(key) is tuple else (key,)
    dots = [i for i, part in enumerate(parts) if part is ...]
    places = [i for i, part in enumerate(parts) if not (part is ... or _is_whole(part))]
    if len(places) != 1 or len(dots) > 1:
        return None
    place = places[0]
    index = parts[place]
    if not isinstance(index, ArrayBase):
        if not isinstance(index, (list, np.ndarray)):
            return None
        try:
            index = concrete(np.asarray(index))
        except failures():
            return None  # NumPy words it
        index = type(array).of(index)
    own = layout_of(index)
    taken = own.ndim if own.dtype.kind == "b" else 1
    ndim = layout_of(array).ndim
    if not own.ndim or own.dtype.kind not in "biu":
        return None
    if len(parts) - 1 - len(dots) + taken > ndim:
        return None  # NumPy's IndexError
    axis = place if not dots or dots[0] > place else ndim - taken - (len(parts) - 1 - place)
    count = 1 if own.dtype.kind == "b" else own.ndim
    if not axis:
        return _Picked(array, index, 0, count)
    moved = range(axis, axis + taken)
    view = apply_view(array, lambda probe: np.moveaxis(probe, moved, range(taken)))
    return _Picked(view, index, axis, count)


def _is_whole(part: Any) -> bool:
    return type(part) is slice and part == _WHOLE
