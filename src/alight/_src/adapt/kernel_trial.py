"""Kernels on trial: one that takes longer than NumPy was predicted to is timed against NumPy.

A kernel that gives NumPy's bits has lost for the rest of the program, as has any other where the
policy is not `reproducible`. Where it is, to go back on one after its first run would change bits
while a program runs: NumPy is timed beside it, its results thrown away, and a kernel that loses is
NumPy's from the next start on.
"""

from __future__ import annotations

import math
from functools import cache
from time import perf_counter
from typing import Any

from alight._src.adapt.planner_facts import profile_of
from alight._src.base.at_exit import when_over
from alight._src.config.loading import current_policy
from alight._src.plan.plan import Decision, LaunchStep
from alight._src.store import default_store, digest
from alight.backends.registry import device
from alight.device import HOST_DEVICE, Reason

__all__ = ["CLEAR", "FOREGROUND", "RUNS", "Foreground", "Trial", "demoted", "trial_of"]

# Of elapsed time, what measuring may take while the program waits.
_FOREGROUND_SHARE = 0.05

# Until one was timed here: recording and planning a handful of ops.
_FIRST_TRACE_SECONDS = 0.005


class Foreground:
    """What measuring has taken of the program's time, against what it may take."""

    def __init__(self) -> None:
        self.began = perf_counter()
        self.spent_seconds = 0.0
        self.trace_seconds = _FIRST_TRACE_SECONDS

    def allows(self, seconds: float, own: float = 0.0) -> bool:
        """Tell whether so much more would stay within the share: of the program's time, or of
        ``own`` seconds, which what is to be measured has itself taken."""
        elapsed = perf_counter() - self.began
        left = _FOREGROUND_SHARE * elapsed - self.spent_seconds
        return seconds <= max(left, _FOREGROUND_SHARE * own)


FOREGROUND = Foreground()

# Where two single runs differ by more, three would not turn it round: on a loaded machine medians
# of few runs differ by 15 %.
CLEAR = 1.25
RUNS = 3

# Keys of groups that lost to NumPy (`Decision.group`), for the plans to come. A program with more
# that lose than this plans some anew and has them tried again.
_KEPT = 4096
_lost: set[str] = set()


def demoted() -> frozenset[str]:
    """Return the keys of the groups that lost, here or in processes before this one."""
    return _kept().union(_lost)


def _key() -> str | None:
    """Return where losers are kept; None on a machine that was not measured."""
    from alight._src.measure.profiles import code_fingerprint  # late: it asks the machine

    host = device(HOST_DEVICE)
    profile = profile_of(host)
    if profile is None:
        return None
    # Measured anew, the machine has its kernels tried anew.
    return digest([code_fingerprint(host), dict(profile.fingerprint), profile.made_at], _KIND)


@cache
def _kept() -> frozenset[str]:
    # Read once: what other processes learn meanwhile must not change this one's bits.
    key = _key()
    found = None if key is None else default_store().read(_KIND, key)
    return frozenset(map(str, (found or {}).get("groups", ())))


_KIND = "lost"
_learned: list[str] = []


def _learn(group: str) -> None:
    """Keep the key of a group that lost for the next start."""
    if not _learned:
        when_over(_keep)
    if len(_learned) < _KEPT:
        _learned.append(group)


def _keep() -> None:
    key = _key()
    if key is not None:
        default_store().write(_KIND, key, {"groups": _learned}, _merged)


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"groups": sorted({*old["groups"], *new["groups"]})[:_KEPT]}


class Trial:
    """What a kernel's runs took, and NumPy's where it was asked. Over when ``lost`` is known.

    ``beside``: NumPy's runs deliver nothing, and the kernel goes on whoever is faster.
    """

    __slots__ = (
        "beside", "decision", "lost", "numpy_runs", "numpy_seconds", "predicted", "runs", "seconds",
    )  # fmt: skip

    def __init__(self, decision: Decision, predicted: float, beside: bool = False) -> None:
        self.beside = beside
        self.decision = decision
        self.predicted = predicted  # seconds of NumPy
        self.seconds = self.numpy_seconds = math.inf
        self.runs = self.numpy_runs = 0
        self.lost: bool | None = None

    @property
    def numpys_turn(self) -> bool:
        """Tell whether NumPy should have the next run."""
        return self.runs >= RUNS and not self.beside

    @property
    def wants_shadow(self) -> bool:
        """Tell whether NumPy should be timed now, beside the kernel."""
        if not self.beside or self.lost is not None or self.runs < RUNS:
            return False
        return FOREGROUND.allows(self.numpy_seconds if self.numpy_runs else self.predicted)

    def ran(self, seconds: float, numpys: bool) -> bool:
        """Note a run, no first one; tell whether the kernel has lost by it."""
        if numpys:
            self.numpy_runs += 1
            self.numpy_seconds = min(self.numpy_seconds, seconds)
            if self.numpy_runs >= RUNS:
                lost = self.numpy_seconds * CLEAR < self.seconds
                self.lost = lost and not self.beside
                if lost and self.beside:
                    _learn(self.decision.group)
                elif lost and len(_lost) < _KEPT:
                    _lost.add(self.decision.group)
                return lost
            return False
        self.runs += 1
        self.seconds = min(self.seconds, seconds)
        if self.runs >= RUNS and self.seconds <= self.predicted:
            self.lost = False
        return False


def trial_of(step: LaunchStep) -> Trial | None:
    """Return the trial of a step that was given to generated code because that is predicted to be
    faster."""
    decision = step.decision
    if (step.device, step.implementation) != (HOST_DEVICE, "generated"):
        return None
    if decision.reason is not Reason.CHEAPEST:
        return None
    frozen = current_policy().reproducible and not step.group.form.same_bits
    own = step.group.form.host_implementation
    for candidate in decision.candidates:
        if (candidate.device, candidate.implementation) == (HOST_DEVICE, own):
            numpys = candidate.estimate
            if numpys is None:
                return None
            return Trial(decision, numpys.seconds, beside=frozen)
    return None
