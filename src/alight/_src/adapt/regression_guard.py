"""Kernels that take longer than NumPy was predicted to, each in a contest against NumPy.

A kernel that gives NumPy's bits has lost for the rest of the program, as has any other where the
policy is not `reproducible`. Where it is, to go back on one after its first run would change bits
while a program runs: NumPy is timed beside it, its results thrown away, and a kernel that loses is
NumPy's from the next start on.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import cache
from typing import Any

from alight._src.adapt.contest import GUARD_RULES, Contender, Contest
from alight._src.adapt.foreground import FOREGROUND
from alight._src.adapt.planner_facts import profile_of
from alight._src.base.at_exit import when_over
from alight._src.base.cache_registry import Cache, register
from alight._src.config.loading import current_policy
from alight._src.plan.plan import Decision, LaunchStep
from alight._src.store import default_store, digest
from alight.backends.registry import device
from alight.device import HOST_DEVICE

__all__ = ["GuardPhase", "RegressionGuard", "demoted", "guard_of"]

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
for _reset in (_lost.clear, _learned.clear, _kept.cache_clear):
    register(Cache.KERNELS_LOST, _reset)


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


class GuardPhase(Enum):
    """How far a kernel's contest is."""

    ALONE = auto()  # the kernel has its laps first, and needs no others where it is quick
    IN_TURNS = auto()  # NumPy has the runs, to be timed
    BESIDE = auto()  # NumPy is timed beside the kernel, which goes on whoever is faster
    KEPT = auto()
    LOST = auto()


class RegressionGuard:
    """The contest of a kernel that is to be no slower than NumPy was predicted to be."""

    __slots__ = ("beside", "contest", "decision", "phase", "predicted_seconds")

    def __init__(self, decision: Decision, predicted_seconds: float, beside: bool = False) -> None:
        """Guard a kernel that NumPy is predicted to take so long in the place of; ``beside``: its
        bits are not NumPy's, so that NumPy's runs deliver nothing."""
        self.decision = decision
        self.predicted_seconds = predicted_seconds
        self.contest = Contest((Contender.KERNELS, Contender.NUMPY), GUARD_RULES)
        self.phase = GuardPhase.ALONE
        self.beside = beside

    @property
    def numpy_seconds(self) -> float:
        """Return what NumPy took at best."""
        return self.contest.best(Contender.NUMPY)

    @property
    def kernel_seconds(self) -> float:
        """Return what the kernel took at best."""
        return self.contest.best(Contender.KERNELS)

    @property
    def is_over(self) -> bool:
        """Tell whether it is known who has the runs to come."""
        return self.phase in (GuardPhase.KEPT, GuardPhase.LOST)

    @property
    def wants_shadow(self) -> bool:
        """Tell whether NumPy should be timed now, beside the kernel."""
        if self.phase is not GuardPhase.BESIDE:
            return False
        timed = self.contest.seconds[Contender.NUMPY]
        return FOREGROUND.allows(timed[0] if timed else self.predicted_seconds)

    def ran(self, way: Contender, seconds: float) -> bool:
        """Note a run, no first one; tell whether the kernel has lost by it."""
        contest = self.contest
        contest.lap(way, seconds)
        if way is Contender.KERNELS:
            if len(contest.seconds[way]) == GUARD_RULES.laps:
                quick = self.kernel_seconds <= self.predicted_seconds
                after = GuardPhase.BESIDE if self.beside else GuardPhase.IN_TURNS
                self.phase = GuardPhase.KEPT if quick else after
            return False
        winner = contest.winner()
        if winner is None:
            return False
        lost = winner is Contender.NUMPY
        if lost and self.beside:
            _learn(self.decision.group)
        elif lost and len(_lost) < _KEPT:
            _lost.add(self.decision.group)
        self.phase = GuardPhase.LOST if lost and not self.beside else GuardPhase.KEPT
        return lost


def guard_of(step: LaunchStep) -> RegressionGuard | None:
    """Return the guard of a step that was given to generated code because that is predicted to be
    faster."""
    decision = step.decision
    if (step.device, step.implementation) != (HOST_DEVICE, "generated"):
        return None
    if not decision.is_by_cost:
        return None
    frozen = current_policy().reproducible and not step.group.form.same_bits
    own = step.group.form.host_implementation
    for candidate in decision.candidates:
        if (candidate.device, candidate.implementation) == (HOST_DEVICE, own):
            numpys = candidate.estimate
            if numpys is None:
                return None
            # what other work showed is no measure of NumPy's time for this
            seconds = numpys.seconds if numpys.runs else numpys.model_seconds or numpys.seconds
            return RegressionGuard(decision, seconds, beside=frozen)
    return None
