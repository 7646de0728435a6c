"""How a function's body runs inside `jit`: on Arrays that show themselves as ndarrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from alight._core import floor, hooks
from alight._src.base.originals import np
from alight._src.jit.code_origin import of_a_package
from alight._src.jit.globals_rewrite import inside
from alight._src.jit.purity import only_computes
from alight._src.jit.scalar import Scalar
from alight._src.record.pending import manners
from alight._src.record.reported_class import asks_what_it_means, class_told
from alight._src.run import evaluate
from alight._src.run.watching import Watcher

__all__ = ["as_jitted", "running"]


class _Running(threading.local):
    """Which way this thread is running a jitted function: "ours", "numpy", or not at all."""

    way: str | None = None


running = _Running()


def _show_ndarrays() -> None:
    """Have arrays show themselves as ndarrays to the program while it runs inside `jit`."""
    if hooks.appears is class_told:
        hooks.appears = _appears


def _appears(own: type, code: CodeType) -> type:
    if running.way != "ours" or asks_what_it_means(code):
        return class_told(own, code)
    # A package may reach for an ndarray's memory, but for its functions that are seen not to; the
    # standard library only passes questions on.
    honest = of_a_package(code.co_filename) and not only_computes(code)
    return own if honest else np.ndarray


@contextmanager
def as_jitted(function: Any, watcher: Watcher) -> Iterator[Callable[..., Any]]:
    """Give what runs in a function's place inside `jit`, on Arrays; ``watcher`` is told what it
    asks for."""
    _show_ndarrays()
    before = running.way, manners.scalar, evaluate.watch.by, floor.records
    running.way, manners.scalar, evaluate.watch.by = "ours", Scalar.of, watcher
    floor.records = True
    floor.traced += 1
    try:
        yield inside(function) if isinstance(function, FunctionType) else function
    finally:
        running.way, manners.scalar, evaluate.watch.by, floor.records = before
        floor.traced -= 1
