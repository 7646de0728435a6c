"""What measuring takes of a program's time while it waits, against what it may take."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from alight._src.base.originals import BEGAN

__all__ = ["FOREGROUND", "SHARE", "ForegroundBudget"]

# Until one was timed here: recording and planning a handful of ops.
_FIRST_TRACE_SECONDS = 0.005
# Until it is loaded, what plans: of processor time (EPYC), also where it comes behind, as the
# program waits for Python's lock meanwhile.
_LOADING_SECONDS = 0.045
# What measuring may take of a process before it has run for long enough to be given a share: two
# thirds of the 60 ms that the promise gives to any program beside its share.
_GRACE_SECONDS = 0.040

# The design's limit: of elapsed time, what measuring in the foreground may take.
SHARE = 0.05


class _Thread(threading.local):
    seconds = 0.0


class ForegroundBudget:
    """The time that the program's own has left for measuring: for contests, guards of kernels and
    looks at profiles alike. What `pick="measure"` times was asked for, and is not counted."""

    def __init__(self) -> None:
        self.began = BEGAN
        self.spent_seconds = 0.0
        self._of_thread = _Thread()
        # What a contest of a jitted call begins with takes at least.
        self.trace_seconds = _FIRST_TRACE_SECONDS
        self.loading_seconds = _LOADING_SECONDS  # that the next one takes beside

    def elapsed_seconds(self) -> float:
        """Return for how long the program has run."""
        return perf_counter() - self.began

    def allows(self, seconds: float, own_seconds: float = 0.0) -> bool:
        """Tell whether so much more would stay within the share: of the program's time, or of
        ``own_seconds``, which what is to be measured has itself taken."""
        left = SHARE * self.elapsed_seconds() - self.spent_seconds
        return seconds <= max(left, SHARE * own_seconds)

    def allows_in(self, seconds: float) -> float:
        """Return for how long the program has to go on until so much is within its share."""
        return (seconds + self.spent_seconds) / SHARE - self.elapsed_seconds()

    def has_grace(self, seconds: float) -> bool:
        """Tell whether so much is left of what a process may spend that is too young to have a
        share."""
        return self.spent_seconds + seconds <= _GRACE_SECONDS

    def grants(self, seconds: float) -> bool:
        """Tell whether so much may be spent on what promises to pay, also of a process that is too
        young to have a share for it."""
        return self.has_grace(seconds) or self.allows(seconds)

    def loads(self) -> None:
        """Note that what plans is loaded behind: no look waits for it."""
        self.loading_seconds = 0.0

    def traced(self, seconds: float) -> None:
        """Note what the first run of a body on Arrays took, its planning with it."""
        self.trace_seconds = min(self.trace_seconds, seconds)
        self.loads()

    @property
    def own_seconds(self) -> float:
        """Return what measuring took of this thread's time."""
        return self._of_thread.seconds

    def spend(self, seconds: float) -> None:
        """Count so much of this thread's time as measuring."""
        self._of_thread.seconds += seconds
        self.spent_seconds += seconds

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Count what happens inside as measuring, once where it is nested."""
        before, began = self.own_seconds, perf_counter()
        try:
            yield
        finally:
            # Of this thread alone: others measure meanwhile.
            self.spend(perf_counter() - began - (self.own_seconds - before))


FOREGROUND = ForegroundBudget()
