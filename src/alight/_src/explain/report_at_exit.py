"""Reports that are written when the process ends."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable

from alight._src.base.at_exit import interrupted, when_over
from alight._src.base.failures import failures
from alight._src.explain.report import report
from alight.errors import AlightError

__all__ = ["at_exit", "explain_at_exit", "not_at_exit"]

_at_exit: dict[str | None, Callable[[], None]] = {}


def at_exit(path: str) -> None:
    """Write the report when this process ends: to a file, or to standard error for ``-``."""
    if path != "-":
        path = os.path.abspath(path)

    def write() -> None:
        if path == "-":
            print(report(), file=sys.stderr)
            return
        try:
            report().save(path)
        except AlightError as error:
            print(f"alight: {error}", file=sys.stderr)

    _register(path, write)


def not_at_exit(path: str | None) -> None:
    """Do not write the report there when this process ends."""
    _at_exit.pop(path if path is None or path == "-" else os.path.abspath(path), None)


def explain_at_exit() -> None:
    """Print the decisions by call site when this process ends."""

    def show() -> None:
        try:
            print(report().explanation(), flush=True)
        except failures(BrokenPipeError):  # who reads has read enough, as of `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    _register("explain", show)


def _register(name: str, act: Callable[[], None]) -> None:
    if name in _at_exit:
        return
    _at_exit[name] = act

    def here() -> None:
        if _at_exit.get(name) is act:
            act()
            _still_interrupted()

    when_over(here)


def _still_interrupted() -> None:
    """Have an interrupted process end by its signal all the same.

    CPython remembers that the last code it was given as text was interrupted; modules that are
    imported meanwhile are given such code, too (named tuples are made of it).
    """
    if interrupted():
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")
