"""The lock under which Python text becomes a syntax tree, or a tree code."""

from __future__ import annotations

import threading

from alight._src.base.at_fork import renewed

__all__ = ["lock"]

# CPython 3.11 counts how deep it is in one place for all threads: of two that parse at once, one
# can end in a SystemError.
lock = renewed(globals(), "lock", threading.RLock)
