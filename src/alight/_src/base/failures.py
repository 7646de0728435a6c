"""Which errors alight may answer itself: all but what a signal's handler raises.

A handler runs in between any two instructions, ours too, and what it raises comes out of whatever
is under way. That is the program's affair, whatever class it has: no device, library or file has
failed.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # quick: `signal` makes members of enumerations
import os
import sys
from functools import partial
from itertools import pairwise
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import TypeVar, overload

from alight._src.base import package
from alight._src.base.originals import np

__all__ = ["failures", "from_signal", "ignoring_failures"]

_Error = TypeVar("_Error", bound=Exception)

# Where no handlers are, and most of what fails here does: alight and NumPy.
_WITHOUT = tuple(os.path.join(folder, "") for folder in (package.FOLDER, np.__path__[0]))
_NUMBERS = range(1, _signal.NSIG)


@overload
def failures() -> tuple[type[Exception], ...]: ...
@overload
def failures(*kinds: type[_Error]) -> tuple[type[_Error], ...]: ...
def failures(*kinds: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the errors that are caught here, by default all: ``except failures(ValueError):``,
    which Python evaluates when there is one. What a signal's handler raised is not among them."""
    error = sys.exc_info()[1]
    if error is None or from_signal(error, sys._getframe(1)):
        return ()
    return kinds or (Exception,)


def from_signal(error: BaseException, catching: FrameType | None = None) -> bool:
    """Tell whether a signal's handler raised an error, or what an error says it was caused by.
    ``catching``: who asks, whose names are not looked at, as that would keep what they name."""
    cause: BaseException | None = error
    seen = set()
    handlers = None
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        step = cause.__traceback__
        while step is not None:
            frame = step.tb_frame
            if frame is not catching and not frame.f_code.co_filename.startswith(_WITHOUT):
                handlers = _handlers() if handlers is None else handlers
                if _handles(frame, handlers):
                    return True
            step = step.tb_next
        cause = cause.__cause__
    return False


def _handles(frame: FrameType, handlers: frozenset[CodeType]) -> bool:
    """Tell whether a frame is of a signal's handler: of one of those, or of one that there is no
    more and that was given a signal's number and the very frame from which it was called."""
    code, interrupted = frame.f_code, frame.f_back
    if code in handlers:
        return True
    many = bool(code.co_flags & 0x04)  # *args
    if code.co_argcount + many == 0 or interrupted is None:
        return False
    found = frame.f_locals
    values = [found.get(name) for name in code.co_varnames[: code.co_argcount]]
    if many:
        rest = found.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        values += rest if type(rest) is tuple else ()
    return any(
        value is interrupted and type(number) is int and number in _NUMBERS
        for number, value in pairwise(values)
    )


def _handlers() -> frozenset[CodeType]:
    """Return the code of the handlers that there are."""
    found = set()
    for handler in map(_signal.getsignal, _NUMBERS):
        if handler is None or type(handler) is int:
            continue  # the system's
        while type(handler) is partial:
            handler = handler.func
        if not isinstance(handler, (FunctionType, MethodType)):
            handler = type(handler).__call__
        code = getattr(handler, "__code__", None)  # what is written in C has none
        if isinstance(code, CodeType):
            found.add(code)
    return frozenset(found)


class ignoring_failures:
    """A context that ends where an error is met which alight may answer itself: by going on.
    ``kinds``: which of them, by default all."""

    __slots__ = ("kinds",)

    def __init__(self, *kinds: type[Exception]) -> None:
        self.kinds = kinds or (Exception,)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return isinstance(error, self.kinds) and not from_signal(error, sys._getframe(1))
