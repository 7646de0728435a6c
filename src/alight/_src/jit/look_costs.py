"""What it takes to find out whether alight's way is for a kind of call."""

from __future__ import annotations

import math

from alight._src.adapt.foreground import FOREGROUND
from alight._src.jit.trace import RECORD_SECONDS, TRACE_SECONDS
from alight._src.run.plans_behind import is_at_once

__all__ = ["ELEMENT_SECONDS", "look_seconds", "pays_at_once", "tracing_seconds"]

# What NumPy takes for an element of an operand at least: float64 added in memory that is kept.
ELEMENT_SECONDS = 5e-10


def pays_at_once(elements: int, ops: float | None) -> bool:
    """Tell whether a single call takes NumPy longer than it takes to look at alight's way: one of
    so many operations, each on so many elements. Of what runs many times only one is sure."""
    sure = 1.0 if ops is None or math.isinf(ops) else ops
    return elements * sure * ELEMENT_SECONDS >= look_seconds(sure)


def look_seconds(ops: float) -> float:
    """Return the seconds that a look at so many operations takes: to trace and to plan them, unless
    they are planned behind."""
    return FOREGROUND.loading_seconds + tracing_seconds(ops)


def tracing_seconds(ops: float) -> float:
    """Return the seconds of it that are not for what plans to be loaded."""
    each = TRACE_SECONDS if is_at_once(ops) else RECORD_SECONDS
    return max(FOREGROUND.trace_seconds, each * ops)
