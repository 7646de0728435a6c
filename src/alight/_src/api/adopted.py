"""What large arrays become that NumPy has just made in an `alight run` program: alight's.

`stand_ins` imports it with the first of them: what records is loaded then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from alight._core import ArrayBase, View, floor, layout_of, native
from alight._src.adapt import first_plan
from alight._src.api import namespace_lookup  # noqa: F401  (makes NumPy's functions ours)
from alight._src.log.decisions import LOG
from alight._src.record.array import Array
from alight._src.record.array_flags import made_over
from alight._src.record.conversions import adopt, asarray
from alight._src.record.pending import array_floor, concrete
from alight._src.record.storage_io import is_scalar

__all__ = ["converted", "settled"]

_UNMEASURED = "no profile of the host yet: made when a program ends, or by `alight calibrate`"

_ndarray = np.ndarray
_references = sys.getrefcount


def _baseline() -> int:
    # What getrefcount answers differs between interpreters: measure it where it is known.
    view = np.empty(2)[:1]
    base = view.base
    return _references(base)


_UNSHARED = _baseline()


def settled(result: np.ndarray[Any, Any]) -> Any:
    """Return a new large result as alight's, where nobody else can see its memory."""
    if result.size < array_floor():  # the first comes here before the floor is known
        return result
    if floor.scalars and not floor.kept:
        if first_plan.wait_to_plan():
            LOG.demotion("the program's first work", first_plan.WAITING, None)
        elif first_plan.left_to_numpy():
            LOG.demotion("all work", _UNMEASURED, None)
            return result
    base: Any = result.base
    if base is None:
        return adopt(result)
    if type(base) is bytes:
        return _read_only(adopt(result.copy("K")), base)
    # NumPy reshapes what it made (linspace, load): the base is as new as the result.
    if type(base) is _ndarray and base.base is None and _references(base) <= _UNSHARED:
        flags = result.flags
        if flags.writeable and base.flags.owndata and native(result.dtype):
            dense = flags.c_contiguous or flags.f_contiguous
            return Array.of(concrete(result)) if dense else result
    return result


def _read_only(array: Any, base: bytes) -> Any:
    """Return a copy of bytes as NumPy gives the view of them: not writeable."""
    if isinstance(array, ArrayBase):
        array.window = View(layout_of(array), 0, writeable=False)
        made_over(array, base)
    else:
        array.flags.writeable = False
    return array


def converted(name: str, plain: Callable[..., Any], array: Any, *rest: Any, **kwargs: Any) -> Any:
    """Return what one of the ``asarray`` family gives of an array of ours, which stays ours;
    ``plain`` is NumPy's, with large new results adopted."""
    least_change = name in ("asarray", "asanyarray")
    if least_change and len(rest) <= 2 and kwargs.keys() <= {"dtype", "order", "copy"}:
        return asarray(array, *rest, **kwargs)
    if name == "array" and len(rest) <= 1 and kwargs.keys() <= {"dtype"}:
        return asarray(array, *rest, copy=True, **kwargs)
    if is_scalar(array):
        return plain(array.now(), *rest, **kwargs)  # a new array
    if name == "require":
        from alight._src.api.creation import require  # late: few programs name it

        return require(array, *rest, **kwargs)  # what an export owns is not what the array does
    exported = np.asarray(array)
    result = plain(exported, *rest, **kwargs)
    return array if result is exported else result
