"""Jitted functions on Arrays that lie on the host: answered by the call on their ndarrays.

One way to decide, to race NumPy and to launch serves both kinds of arguments. The ndarrays are
read-only meanwhile: a body that writes into an argument, or returns a window of one, is found by
that, and runs on the Arrays themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alight._core import at_hand, layout_of, native
from alight._core.guard import Entry
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.jit.call_program import SCALARS
from alight._src.jit.reachability import leads_nowhere
from alight._src.record import storage_io
from alight._src.record.array import Array

__all__ = ["HostAdapter", "kinds_of"]


def kinds_of(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the kinds of the arguments, or None: there is no Array among them, or what is neither
    array nor scalar, or leads to more than its own elements, as object arrays do: what the body
    writes there it would write again where it has to run on the Arrays."""
    kinds: list[Any] = []
    for item in args:
        kind: Any = type(item)
        if kind is np.ndarray and not item.dtype.hasobject:
            kinds.append((layout_of(item), item.flags.writeable))
        elif kind is Array or kind in SCALARS:
            kinds.append(kind)
        elif not issubclass(kind, np.generic) or not leads_nowhere(kind):
            return None
        else:
            kinds.append(kind)
    return tuple(kinds) if Array in kinds else None


class HostAdapter:
    """Calls of one kind to a proven function; called with their arguments it gives NotImplemented
    where the body has to run on the Arrays.

    A function that only its author calls pure may ask whether an argument can be written to, give
    it a shape, or return what others hold: none of that could be told from here.
    """

    __slots__ = ("_call", "entry", "failed", "refused")

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.failed = False  # the last call did; whether the function or its read-only arguments
        self.refused = False
        self.entry: Entry | None = None  # the guard's

    def __call__(self, *args: Any) -> Any:
        self.failed = False
        if self.refused:
            return NotImplemented
        given: list[Any] = []
        for number, item in enumerate(args):
            found = at_hand(item) if type(item) is Array else item
            if found is None:  # pending, or on a device
                return NotImplemented
            if type(found) is np.ndarray:
                found = found.view()
                found.flags.writeable = False
                for before in range(number):
                    if args[before] is item:
                        found = given[before]
            given.append(found)
        try:
            result = self._call(*given)
        except failures():
            self.failed = True
            return NotImplemented
        made = _made(result, {})
        self.failed = made is NotImplemented
        return made


def _made(result: Any, known: dict[int, Any]) -> Any:
    """Return results with Arrays for ndarrays and NumPy's scalars, and one for what is there more
    than once: ``known`` has those by their ids."""
    kind = type(result)
    if kind is np.ndarray:
        if not result.flags.writeable:  # an argument's window: it has to be one of the Array
            return NotImplemented
        return _taken(result) if native(result.dtype) else result
    if isinstance(result, np.generic):
        return storage_io.owned(Array, np.asarray(result)) if native(result.dtype) else result
    if kind is Array or kind in SCALARS:
        return result
    if kind is not tuple and kind is not list:
        return NotImplemented
    parts = []
    for part in result:
        if type(part) is np.ndarray and part.base is not None:  # others may lie there, too
            return NotImplemented
        if id(part) not in known:
            known[id(part)] = _made(part, known)
        if known[id(part)] is NotImplemented:
            return NotImplemented
        parts.append(known[id(part)])
    return kind(parts)


def _taken(array: Any) -> Any:
    """Return the Array over an ndarray that the function made, or over its window of one."""
    if layout_of(array).dense:
        return storage_io.owned(Array, array)
    base = array.base
    if type(base) is not np.ndarray or base.base is not None or not native(base.dtype):
        return NotImplemented
    return storage_io.view_of(storage_io.owned(Array, base), array, base)
