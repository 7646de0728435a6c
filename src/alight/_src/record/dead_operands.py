"""Which arrays only the call that works on them still holds: `x * y` in `np.sum(x * y)`.

Such an array lives while the call runs, but nobody will ask for it any more, so that what is
computed of it may be one kernel that never writes it. To take an array wrongly for one costs work
done twice, never a wrong result: what it was stays recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from alight._core import ArrayBase, Data, Value, hooks, make_layout, pending_storages
from alight._src.base.originals import np
from alight._src.ir.op_table import OPS

__all__ = ["temporary"]

# How a call came here: through which files, and whether with keywords, for which CPython copies
# all arguments.
_Way = tuple[object, ...]

# References to a temporary and to its storage that the call itself holds: what CPython and NumPy
# hold differs between a method, a function and a ufunc, and between their versions. None until it
# was counted.
_held: dict[_Way, tuple[int, int]] | None = None


class _Counted(Exception):
    """Ends a call that was made to count references."""


# The thread whose calls are being counted: others go on as always.
_counting: int | None = None


def temporary(array: Any, named: bool) -> bool:
    """Tell whether nobody but the call under way, which calls this last of all, holds an array.
    ``named``: the function it is in was given keywords."""
    if not isinstance(array, ArrayBase):
        return False
    storage = array.storage
    counts = sys.getrefcount(array), sys.getrefcount(storage)
    if _counting == get_ident():
        raise _Counted(_way(named), counts)
    held = (_count() if _held is None else _held).get(_way(named))
    return held is not None and counts[0] <= held[0] and counts[1] <= held[1]


def _way(named: bool) -> _Way:
    """Return the files of the frames between the program's call and this module."""
    found: list[object] = [named]
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals is not globals():
        if not frame.f_globals.get("__name__", "").startswith(("alight.", "numpy.")):
            break
        found.append(frame.f_code.co_filename)
        frame = frame.f_back
    return tuple(found)


def _count() -> dict[_Way, tuple[int, int]]:
    """Count the references in calls that are known to be given a temporary."""
    global _counting, _held
    layout = make_layout(np.dtype(np.float64), (2,))
    leaf = Value(None, (), (), layout)
    leaf.data = Data(layout, np.ones(2))

    def made() -> Any:
        return hooks.array.of(Value(OPS["negative"], (leaf,), (), layout))

    ways: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (lambda: np.sum(made()), lambda: [a := made(), np.sum(a)]),
        (lambda: np.sum(made(), axis=None), lambda: [a := made(), np.sum(a, axis=None)]),
        (lambda: made().sum(), lambda: [a := made(), a.sum()]),
        (lambda: np.add.reduce(made()), lambda: [a := made(), np.add.reduce(a)]),
    ]
    _held = {}
    _counting = get_ident()
    try:
        for of_temporary, of_named in ways:
            way, held = _counts(of_temporary)
            # An interpreter whose stack borrows references shows no difference: then nothing is
            # taken for a temporary.
            if _counts(of_named)[1][0] > held[0]:
                _held[way] = held
    finally:
        _counting = None
        # NumPy 2.4 keeps the operands of a ufunc's `reduce` that was refused: what was made for
        # counting alone is nothing to compute.
        for storage in pending_storages():
            if leaf in storage.value.operands:
                storage.rebind(leaf)
    return _held


def _counts(call: Callable[[], Any]) -> tuple[_Way, tuple[int, int]]:
    try:
        call()
    except _Counted as counted:
        way, counts = counted.args
        return way, counts
    raise AssertionError("the call did not end in a reduction")
