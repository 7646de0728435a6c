"""The race of a program's kernels against NumPy, or against the plan that has beaten it."""

from __future__ import annotations

import math
from typing import Any

from alight._src.adapt.contest import CLEAR, KERNEL_RULES, Contender, Contest
from alight._src.jit.host_program import HostProgram

__all__ = ["PROGRAMS", "KernelRace"]

_NUMPY, _PLAN, _KERNELS = Contender

# How many programs (scalars and all) a kind of call keeps. Functions that take a new float at every
# call would trace at every call; a handful of alternating settings is what real callers have.
PROGRAMS = 8


class KernelRace:
    """The contest of a program's kernels that goes on, one lap a call, and the entry that launches
    them, which was made for one policy."""

    __slots__ = ("_passed", "contest", "entry", "numpy_next", "program", "under")

    def __init__(self, program: HostProgram, under: Any, entry: Any) -> None:
        self.program = program
        self.entry = entry
        self.under = under
        self.contest = Contest((_NUMPY, _KERNELS), KERNEL_RULES)
        self.numpy_next = False  # this call, where NumPy has it, is a lap of NumPy's
        self._passed = 0

    def against_plan(self, seconds: float) -> None:
        """Race against a plan that has beaten NumPy, and takes so long."""
        raced = self.contest.seconds[_KERNELS]
        self.contest = Contest((_PLAN, _KERNELS), KERNEL_RULES)
        self.contest.seconds[_KERNELS] = raced
        self.contest.settle(_PLAN, seconds)

    def numpy_took(self, seconds: float) -> None:
        """Note what a call took that NumPy had, where that is a lap."""
        if self.numpy_next:
            self.numpy_next = False
            self.contest.lap(_NUMPY, seconds)

    def lost_seconds(self) -> float:
        """Return what the laps of kernels take that are clearly behind, the next one with them;
        of others nothing is lost."""
        contest = self.contest
        best = contest.best(_KERNELS)
        leads = min([contest.best(way) for way in contest.seconds])
        if math.isinf(best) or best <= CLEAR * leads:
            return 0.0
        return best * (len(contest.seconds[_KERNELS]) + 1)

    def left(self, program: HostProgram) -> bool:
        """Tell whether another race is to begin: as many calls of other programs as a kind of call
        keeps have passed since the last lap."""
        self.numpy_next = False
        self._passed = 0 if program is self.program else self._passed + 1
        return self._passed > PROGRAMS
