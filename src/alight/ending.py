"""What a process does when it ends, and the children that it forked do not."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["interrupted", "when_over"]


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
