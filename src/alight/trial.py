"""Kernels on trial: one that takes longer than NumPy was predicted to is timed against NumPy.

Only kernels that give NumPy's bits are tried, unless the policy is not `reproducible`. For all
others the choice was made at the plan: to go back on it after their first run would change bits
while a program runs.
"""

from __future__ import annotations

import math

from alight.config import current_policy
from alight.device import Reason
from alight.ir.group import same_bits
from alight.plan.choose import HOST, host_implementation
from alight.plan.plan import Decision, LaunchStep

__all__ = ["CLEAR", "RUNS", "Trial", "demoted", "trial_of"]

# Where two single runs differ by more, three would not turn it round: on a loaded machine medians
# of few runs differ by 15 %.
CLEAR = 1.25
RUNS = 3

# Keys of groups that lost to NumPy (`Decision.group`), for the plans to come. A program with more
# that lose than this plans some anew and has them tried again.
_KEPT = 4096
_lost: set[str] = set()


def demoted() -> frozenset[str]:
    """Return the keys of the groups that lost."""
    return frozenset(_lost)


class Trial:
    """What a kernel's runs took, and NumPy's where it was asked. Over when ``lost`` is known."""

    __slots__ = ("decision", "lost", "numpy_runs", "numpy_seconds", "predicted", "runs", "seconds")

    def __init__(self, decision: Decision, predicted: float) -> None:
        self.decision = decision
        self.predicted = predicted  # seconds of NumPy
        self.seconds = self.numpy_seconds = math.inf
        self.runs = self.numpy_runs = 0
        self.lost: bool | None = None

    @property
    def numpys_turn(self) -> bool:
        """Tell whether NumPy should have the next run."""
        return self.runs >= RUNS

    def ran(self, seconds: float, numpys: bool) -> bool:
        """Note a run, no first one; tell whether the kernel has lost by it."""
        if numpys:
            self.numpy_runs += 1
            self.numpy_seconds = min(self.numpy_seconds, seconds)
            if self.numpy_runs >= RUNS:
                self.lost = self.numpy_seconds * CLEAR < self.seconds
                if self.lost and len(_lost) < _KEPT:
                    _lost.add(self.decision.group)
            return bool(self.lost)
        self.runs += 1
        self.seconds = min(self.seconds, seconds)
        if self.runs >= RUNS and self.seconds <= self.predicted:
            self.lost = False
        return False


def trial_of(step: LaunchStep) -> Trial | None:
    """Return the trial of a step that was given to generated code because that is predicted to be
    faster, where it gives NumPy's bits."""
    decision = step.decision
    if (step.device, step.implementation) != (HOST, "generated"):
        return None
    frozen = current_policy().reproducible and not same_bits(step.group)
    if decision.reason is not Reason.CHEAPEST or frozen:
        return None
    own = host_implementation(step.group)
    for candidate in decision.candidates:
        if (candidate.device, candidate.implementation) == (HOST, own):
            numpys = candidate.estimate
            return None if numpys is None else Trial(decision, numpys.seconds)
    return None
