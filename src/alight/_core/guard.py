"""The call guard: what stands between a call of a jitted function and a kernel that is already
there.

A ``CallGuard`` is called like the function. It keeps entries, the one used last in front; the first
one whose guards hold answers, and where none does its ``miss`` is called.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from types import FunctionType
from typing import Any, NamedTuple

from alight._core._native import CallGuard, Entry, errors_mask, know_masks
from alight._src.base.originals import np

__all__ = ["WATCHED", "Call", "CallGuard", "Entry", "by_position"]

# What an entry may watch, as bits.
WATCHED = {"divide": 1, "over": 2, "invalid": 4}


def _masks_are_known() -> bool:
    """Tell whether error states begin with their masks, three bits for each category, which NumPy
    promises nowhere."""
    state = np._core.umath._extobj_contextvar.get  # type: ignore[attr-defined]
    given: tuple[tuple[dict[str, Any], int], ...] = (
        ({"all": "ignore"}, 0),
        ({"all": "raise"}, 0o2222),
        ({"divide": "warn", "over": "raise", "under": "ignore", "invalid": "print"}, 0o4021),
    )
    for modes, mask in given:
        with np.errstate(**modes):
            if errors_mask(state()) != mask:
                return False
    return True


know_masks(_masks_are_known())


class Call(NamedTuple):
    """A function of NumPy's in a kernel's place: ``function(*operands, result)``, on arrays that
    are like these, over the memory of the operands.

    ``before()`` is called first. ``quiet`` is (variable, object): meanwhile the variable has that
    object, by which NumPy tells nobody of the flags that it raises.
    """

    function: Callable[..., Any]
    like: tuple[np.ndarray[Any, Any], ...]
    before: Callable[[], Any]
    quiet: tuple[ContextVar[Any], Any]


def by_position(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...] | None:
    """Return all arguments of a Python function by position; None where keywords leave out a
    parameter before them, or name what is none."""
    if not kwargs:
        return args
    if type(function) is not FunctionType:
        return None
    code, first = function.__code__, len(args)
    names = code.co_varnames[first : min(first + len(kwargs), code.co_argcount)]
    if first < code.co_posonlyargcount or kwargs.keys() != set(names):
        return None
    return (*args, *[kwargs[name] for name in names])
