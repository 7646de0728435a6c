"""Tracebacks as NumPy's users know them: their own lines, and none of alight's."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any

from alight._core import Public, floor
from alight._src.base import package
from alight._src.config.loading import config
from alight._src.record.pending import STAND_IN
from alight.errors import ConfigError, KernelError

__all__ = ["clean_chain", "hide_ours", "public", "without_ours"]

_PACKAGE = os.path.abspath(package.FOLDER) + os.sep
# What nothing of alight's raises on purpose: where one comes out of its files, the fault is there.
_FAULTS = (AssertionError, NameError, KernelError)


def hide_ours(error: BaseException) -> None:
    """Take alight's frames out of an error that the program's own code met.

    They stay with the setting ``log_level``, and where they tell of a fault: none of the program's
    lines is among them, or the error is none that a program can cause.
    """
    kept = without_ours(error.__traceback__)
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    told = kept is not None or isinstance(error, ConfigError)  # of a setting, not of a fault
    if not told or last is None or _all_are_shown():
        return
    if isinstance(error, _FAULTS) and _is_ours(last):
        return
    error.__traceback__ = kept
    clean_chain(error)


def _all_are_shown() -> bool:
    try:
        return config().log_level != "off"
    except ConfigError:  # of which the error tells, then
        return False


def _leave(error: BaseException) -> None:
    """Take alight's frames out of an error that a call of the program's ends with; the setting
    ``log_level`` and faults keep them, as above."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    fault = isinstance(error, _FAULTS) and last is not None and _is_ours(last)
    if fault or _all_are_shown():
        return
    error.__traceback__ = without_ours(error.__traceback__)
    clean_chain(error)


def public(
    function: Callable[..., Any],
    once: Callable[..., Any] | None = None,
    view: Callable[..., Any] | None = None,
    change: Callable[..., Any] | None = None,
    operands: int = 1,
    pace: str | None = None,
    ask: Callable[..., Any] | None = None,
    first: Callable[[Any], Any] | None = None,
    draw: Callable[..., Any] | None = None,
) -> Any:
    """Return a function or method of ours as programs have it: its errors end at their lines.
    What is NumPy's own: ``once`` is called at once where the arrays that it reads in the first
    ``operands`` of its arguments are small, ``view`` makes a view of the first, ``change`` changes
    it. ``pace``: what it is called in the table of paces, which says how small is small. ``ask``
    reads the first, and gives no array. ``first`` is called with an array alone, and may give
    NotImplemented. ``draw`` is called where no argument behind the first ``operands`` is an array,
    and gives what is new."""
    known = None if pace is None else floor.paces.get(pace)
    return Public(function, _leave, once, view, change, operands, known, ask, first, draw)


def without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of alight."""
    kept = []
    while traceback is not None:
        if not _is_ours(traceback):
            kept.append(traceback)
        traceback = traceback.tb_next
    result = None
    for entry in reversed(kept):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno or 0)
    return result


def _is_ours(entry: TracebackType) -> bool:
    code = entry.tb_frame.f_code
    return code.co_filename.startswith(_PACKAGE) or code.co_name == STAND_IN


def clean_chain(error: BaseException) -> None:
    """Take the frames of alight out of everything the error was caused by or groups."""
    seen = {id(error)}
    stack = [error]
    while stack:
        current = stack.pop()
        inner = [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            inner.extend(current.exceptions)
        for other in inner:
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                other.__traceback__ = without_ours(other.__traceback__)
                stack.append(other)
