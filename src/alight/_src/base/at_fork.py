"""Locks of modules: a forked child has each anew, as who held it in the parent does not exist."""

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
