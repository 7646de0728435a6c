"""Threads that run kernels together, and the launcher that splits one among them.

A ``Launcher`` is a kernel bound to sizes and strides. It learns what a run takes and works on
several threads where that is predicted to end sooner. A kernel is cut into more parts than there
are threads; who is done with its share takes from the others', and nobody waits for a thread that
has not begun. On Windows there is one thread, the caller's.
"""

from __future__ import annotations

from alight._core._native import (
    Launcher,
    copy,
    foresee,
    rest,
    round_trip,
    set_costs,
    set_threads,
    state,
)

__all__ = [
    "JOIN_SECONDS",
    "WAKE_SECONDS",
    "Launcher",
    "copy",
    "foresee",
    "rest",
    "round_trip",
    "set_costs",
    "set_threads",
    "state",
]

# Until they were measured (measure.calibrate): medians of an empty job on two threads, 0.5 to
# 0.7 us spinning and 29 to 41 us asleep (2-core Xeon VM, Linux 6.18).
JOIN_SECONDS, WAKE_SECONDS = 0.7e-6, 40e-6
set_costs(JOIN_SECONDS, WAKE_SECONDS)
