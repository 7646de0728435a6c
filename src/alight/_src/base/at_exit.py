"""What a process does when it ends, and the children that it forked do not."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

__all__ = ["end_as_interrupted", "interrupted", "when_over"]


def when_over(work: Callable[..., None], *given: Any) -> None:
    """Have this process do something when it ends; what comes last is done first."""
    owner = os.getpid()

    def here() -> None:
        if os.getpid() == owner:
            work(*given)

    atexit.register(here)


def interrupted() -> bool:
    """Tell whether this process ends because somebody interrupted it, who wants the end."""
    return getattr(sys, "last_type", None) is KeyboardInterrupt


def _tell_in_a_line() -> None:
    """Have an interrupt end this process in one line, wherever it comes."""
    other = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            other(kind, error, trace)
            return
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the line has the terminal's ^C in it
        end_as_interrupted()

    sys.excepthook = hook


def _is_command() -> bool:
    """Tell whether this process is the command and runs nobody's program, by how it was started:
    nothing that reads command lines is loaded by then."""
    name, *given = getattr(sys, "argv", None) or [""]  # a process that embeds Python may have none
    if name == "-m":  # as it stays until the module is found, which is in this very package
        named = sys.orig_argv[-len(sys.argv)] in ("alight", "-malight")
    else:
        named = os.path.splitext(os.path.basename(name))[0] == "alight"
    return named and given[:1] not in (["run"], ["explain"])


def end_as_interrupted() -> NoReturn:
    """End the process, and say so, with the status that shells have for it."""
    print("alight: interrupted", file=sys.stderr)
    # CPython remembers that the last code it was given as text was interrupted, and ends by the
    # signal then, whatever the status: modules that are imported make code from text (dataclasses).
    exec("")
    raise SystemExit(128 + 2)  # SIGINT, by its number: the module that names it is not loaded yet


# Here, not where the command begins: importing NumPy and the package takes most of the time before
# anything else could be interrupted. Programs, which `run` and `explain` run, keep Python's way.
if _is_command():
    _tell_in_a_line()
