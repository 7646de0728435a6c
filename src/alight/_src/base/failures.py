"""Which errors alight may answer itself: all but what a signal's handler raises.

A handler runs in between any two instructions, ours too, and what it raises comes out of whatever
is under way. That is the program's affair, whatever class it has: no device, library or file has
failed.
"""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import TypeVar, overload

__all__ = ["failures", "from_signal", "ignoring_failures"]

_Error = TypeVar("_Error", bound=Exception)


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
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        step = cause.__traceback__
        while step is not None:
            if step.tb_frame is not catching and _handles(step.tb_frame):
                return True
            step = step.tb_next
        cause = cause.__cause__
    return False


def _handles(frame: FrameType) -> bool:
    """Tell whether a frame is of a signal's handler: it was given the very frame from which it was
    called, which nothing else is."""
    code, interrupted = frame.f_code, frame.f_back
    many = bool(code.co_flags & 0x04)  # *args
    if code.co_argcount + many == 0 or interrupted is None:
        return False
    values = frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + many]
    for name in names:
        value = values.get(name)
        if type(value) is tuple and value:  # *args
            value = value[-1]
        if value is interrupted:
            return True
    return False


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
