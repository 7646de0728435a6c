"""Work that no signal's handler interrupts: handlers run in the main thread alone."""

from __future__ import annotations

import contextvars
import os
import threading
from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["apart"]

_Result = TypeVar("_Result")

# Held by who works for the main thread; and by a fork, so that no child is born with it half done.
_working = allocate_lock()


def apart(work: Callable[[], _Result]) -> _Result:
    """Return what work gives, done in a thread of its own where the main thread asks: what a
    signal's handler raises then ends the wait, and never leaves a library or an import half done.

    It must take no lock that its caller may hold.
    """
    if get_ident() != threading.main_thread().ident:
        return work()
    context, done = contextvars.copy_context(), allocate_lock()
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with _working:
                found.append(context.run(work))
        except BaseException as error:
            failed.append(error)
        finally:
            done.release()

    done.acquire()
    start_new_thread(run, ())
    done.acquire()
    if failed:
        raise failed.pop()
    result: _Result = found.pop()
    return result


def _after_fork_in_child() -> None:
    global _working
    _working = allocate_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _working.acquire(),
        after_in_parent=lambda: _working.release(),
        after_in_child=_after_fork_in_child,
    )
