"""How much work something is, counted: a count is the same on every machine, a time is not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import alight

OURS = str(Path(alight.__file__).parent)


def counted(work: Callable[[], object], event: str) -> int:
    """Return how many of our Python functions run ("call"), or lines of theirs ("line")."""
    count = 0

    def within(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal count
        count += what == event
        return within

    def entered(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        count += what == event
        return within if event == "line" else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
