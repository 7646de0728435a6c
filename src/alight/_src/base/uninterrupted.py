"""Work that no signal's handler interrupts: handlers run in the main thread alone, so other threads
do such work where they are."""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any, TypeVar

from alight._src.base.failures import failures

__all__ = ["bring", "hold", "let_go", "uninterrupted", "whereabouts"]

_Result = TypeVar("_Result")

# Held by who works for the main thread; and by a fork, so that no child is born with it half done.
_working = threading.RLock()  # who works may fork


def uninterrupted(work: Callable[[], _Result]) -> _Result:
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
    try:
        start_new_thread(run, ())
    except failures(RuntimeError):  # none is left, or Python 3.12 ends: a handler may come in here
        return work()
    done.acquire()
    if failed:
        raise failed.pop()
    result: _Result = found.pop()
    return result


def bring(*modules: str) -> None:
    """Import modules that are not there yet, apart: an import that is interrupted can leave
    Python's lock of imports held for good."""
    if not all([name in sys.modules for name in modules]):
        uninterrupted(lambda: [import_module(name) for name in modules])


def whereabouts(module: str) -> ModuleSpec | None:
    """Return where a module would be imported from, None where it is absent: that takes Python's
    lock of imports, too."""
    return uninterrupted(lambda: find_spec(module))


def hold() -> None:
    """Have no work begin apart until `let_go`: before locks that such work may ask for."""
    _working.acquire()


def let_go() -> None:
    """Have work done apart again."""
    _working.release()


def _after_fork_in_child() -> None:
    global _working
    _working = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=hold,
        after_in_parent=let_go,
        after_in_child=_after_fork_in_child,
    )
