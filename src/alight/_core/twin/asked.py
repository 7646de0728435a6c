"""What recording asks: hooks, the policy in force, the state that warnings are recorded under."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from alight._src.base.originals import np

if TYPE_CHECKING:
    from types import CodeType

    from .recording import ArrayBase


# The policy in force (alight._src.config.policy.Policy) or None for the default one. It lives here
# because recording must look at its floor.
POLICY: ContextVar[Any] = ContextVar("alight.policy", default=None)

numpy_errstate = np._core.umath._extobj_contextvar.get  # type: ignore[attr-defined]


class Hooks:
    """What the core calls when its fast way does not apply; ``record.array`` fills these in.

    The native core has NumPy do small work on bytes that are at hand without asking (ufuncs of
    ``at_once``, indexing, in-place operators), as the hooks would: unless the call comes from
    files under the folders ``inside``, or a thread is traced.
    """

    __slots__ = (
        *("appears", "array", "at_once", "binary", "errstate", "flush", "getitem"),
        *("in_place", "inside", "setitem", "taken", "ufunc", "unary", "wrap"),
    )
    # `alight run`: the class an array shows to the code that asks; None: always its own.
    appears: Callable[[type[ArrayBase], CodeType], type] | None
    array: type[ArrayBase]  # the public class, for results made below it
    binary: Callable[[Any, Any, Any], Any]
    unary: Callable[[Any, Any], Any]
    in_place: Callable[[Any, Any, Any], Any]
    getitem: Callable[[Any, Any], Any]
    setitem: Callable[[Any, Any, Any], None]
    ufunc: Callable[..., Any]
    at_once: dict[Any, Any]
    # what NumPy made of its arguments that stood for those given, where it may rest on these
    taken: Callable[[Any, tuple[Any, ...], tuple[Any, ...]], Any]
    wrap: Callable[[Any], Any]  # an ndarray or NumPy scalar as what the front door promises
    inside: tuple[str, ...]
    flush: Callable[[], None]
    errstate: Callable[[], Any]  # the state to record under, or None: for `recording_errstate`

    def __init__(self) -> None:
        self.appears = None


hooks = Hooks()


# NumPy's error state, the list of warning filters, its first entry, its length, and what the hook
# said of them. Filters are put in front of the list or behind it, or another list takes its place.
# First what was asked for last, then what was known before: that of a block of the program's, or
# around it. An entry is read as one, or another thread's could come in between. One that must not
# be found by operators, which look without a call, has a length that no list has: where there are
# no filters, or the list in the module is not the one in force (Python 3.14).
known: list[tuple[Any, ...]] = [(None, None, None, -1, None)] * 2
_filters_in_context = bool(getattr(sys.flags, "context_aware_warnings", False))


def recording_errstate() -> Any:
    """Return the floating-point error state to record an op under; None where NumPy must act at
    the call."""
    current = numpy_errstate()
    filters = warnings.filters
    first = filters[0] if filters else None
    count = -2 if _filters_in_context else len(filters) or -1
    for place, one in enumerate(known):
        same = one[0] is current and one[1] is filters and one[2] is first and one[3] == count
        if same and not _filters_in_context:
            if place:
                known.reverse()
            return one[4]
    ask = getattr(hooks, "errstate", None)
    answer = current if ask is None else ask()
    known[:] = (current, filters, first, count, answer), known[0]
    return answer
