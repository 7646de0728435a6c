"""Locks of modules: a forked child has each anew, as who held it in the parent does not exist.

Locks are taken in one order: who has one asks for none that stands before it.

    ops._declaring           a program's op comes into the table
    border._turn             packages' containers get their Arrays back
    residency.LOCK           plans run, devices are driven, and finalizers run in between
    Turn                     to write at once into storages, by their addresses
    registry._finding        backends are made and devices opened
    uninterrupted._working   the main thread waits for work done apart
    kernels._making          a kernel is made; a fork waits for it only so long
    compiled._lock           its code becomes part of the process
    parsing.lock             text is parsed
    cuda_session.lock        a CUDA device's own state
    staging_ring._lock       a piece of a copy is given to a stream
    pinned_memory._counting  pages are counted
    store._threads_lock      a file is written
    filters._filters         warnings are asked for
    kernels._lock            jobs of the background
    counter_draws._lock      numbers are drawn
    counter_rng._lock        a counter moves on
    specialization._changing a specialization changes its phase
    decisions._lock          something is counted
    code_origin._asking      paths are asked for

Who has one may ask for it again: a finalizer or a signal's handler may run anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["renewed"]

_Lock = TypeVar("_Lock")


def renewed(names: dict[str, Any], name: str, make: Callable[[], _Lock]) -> _Lock:
    """Return a new lock for this name among a module's globals; forked children find another one
    there."""

    def renew() -> None:
        names[name] = make()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)
    return make()
