"""Which way is the faster one for a kind of call: NumPy's own, or alight's. Found by timing
both."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from typing import Any

from alight._src.adapt.kernel_trial import CLEAR, FOREGROUND, RUNS
from alight._src.base.formatting import readable_seconds
from alight._src.jit.host_program import HostProgram
from alight._src.plan.plan import Foregone

__all__ = ["LAPS", "PROGRAMS", "Laps", "Site"]

# How many programs (scalars and all) a kind of call keeps. Functions that take a new float at every
# call would trace at every call; a handful of alternating settings is what real callers have.
PROGRAMS = 8

_WARM = 2  # a first run touches memory and caches anew: it may take ten times as long as the next
_LOST = 4.0  # so much slower in two runs is slower in all
# The quickest of three runs of ours took 0.92 to 1.09 of NumPy's quickest in 48 races of calls that
# take 1.02 of NumPy's time (filters of 2^20, EPYC at rest): who wins by less has not won, and then
# it is NumPy's, which nobody can be slower than by taking it.
_TIE = 1.08

# What an op takes: to trace and to plan it, alone and in one kernel (4.1 ms for the first call of
# 37, planned once); and NumPy on few elements, whose time so says how many there are at most.
_TRACE_SECONDS, _NUMPY_SECONDS = 2e-4, 7e-7

# What running a small body on Arrays may take, in NumPy's own time: recording an op takes some 10
# µs where NumPy takes 0.5 µs on few elements.
_BODY_FACTOR = 20

# The design's rule: never plan what NumPy would finish in under 20 times the planning time.
PLANNING_SHARE = 20


LAPS = 5  # of each way, the best: what interrupts a run only makes it longer


class Laps:
    """A race of a program's kernels against NumPy that goes on, one lap a call: the seconds of each
    way, and the entry that launches the kernels, which was made for one policy."""

    __slots__ = ("_passed", "entry", "kernel", "numpy", "program", "under")

    def __init__(self, program: HostProgram, under: Any, entry: Any) -> None:
        self.program = program
        self.entry = entry
        self.kernel: list[float] = []
        self.numpy: list[float] = []
        self.under = under
        self._passed = 0

    def left(self, program: HostProgram) -> bool:
        """Tell whether another race is to begin: as many calls of other programs as a kind of call
        keeps have passed since the last lap."""
        self._passed = 0 if program is self.program else self._passed + 1
        return self._passed > PROGRAMS

    def over(self, others: float) -> bool:
        """Tell whether no more laps are needed, where the kernels' have to beat these seconds."""
        count = len(self.kernel)
        return count >= LAPS or (count >= _WARM and min(self.kernel) * CLEAR < others)


class Site:
    """One kind of call of one function: how long each way took, and which of them is taken."""

    __slots__ = (
        "cold",
        "exact",
        "foregone",
        "idle",
        "kind",
        "laps",
        "last_seconds",
        "making",
        "ours",
        "planned",
        "programs",
        "shortcut",
        "spent_seconds",
        "theirs",
        "told",
        "tries",
        "verdict",
        "waiting",
    )  # fmt: skip

    def __init__(self, waiting: bool = False, kind: Any = None) -> None:
        self.kind = kind  # how large its arguments are, in powers of two
        # Nothing in it is large enough to be worth planning op by op: NumPy has it until there is
        # time to look whether the whole of it is.
        self.waiting = waiting
        self.cold = 0  # runs of ours that made plans
        self.exact = True  # both ways give the same bits
        # What its plans lack by not having devices that may still be opened: until then each call
        # is told of, whichever way it takes.
        self.foregone: tuple[Foregone, ...] = ()
        # Whether NumPy has it while kernels of its program are made; None: not asked yet.
        self.making: bool | None = None
        self.planned = False  # planning takes so much of our way that NumPy should have had it
        self.ours: list[float] = []  # seconds of the quickest runs, in order
        self.theirs: list[float] = []
        self.spent_seconds = 0.0  # all that went into calls of this kind
        self.last_seconds = 0.0
        self.verdict: str | None = None  # "ours" or "numpy"
        # Nothing was recorded where the policy leaves no choice: each op is below the floor, which
        # does not ask what is forced.
        self.idle = False
        self.told = False  # the log has been told that NumPy has it
        self.programs: OrderedDict[Any, HostProgram] = OrderedDict()
        self.tries = 0
        self.laps: Laps | None = None  # of the race that decides of the way without Python
        # The way without Python: None until it was tried, then whether it is taken.
        self.shortcut: bool | None = None

    def raced(self, won: bool) -> None:
        """Note whether the way without Python is taken; a race that went on for that is over."""
        self.shortcut, self.laps = won, None

    def waits(self, ops: float | None) -> bool:
        """Tell whether NumPy should have this call too, before alight's way is tried at all.

        ``ops``: what a trace would record at most, None where it could not be replayed.
        """
        if not self.waiting:
            return False
        if len(self.theirs) < _WARM:
            return True
        trying = _BODY_FACTOR * self.theirs[0]
        if ops is not None:
            count = min(ops, self.theirs[0] / _NUMPY_SECONDS)
            trying = max(FOREGROUND.trace_seconds, _TRACE_SECONDS * count)
        # Once NumPy has taken as long as trying would, waiting on costs no less.
        self.waiting = not FOREGROUND.allows(trying) and self.spent_seconds < trying
        return self.waiting

    @property
    def settled(self) -> bool:
        """Tell whether calls of this kind go the way they will go from now on."""
        decided = self.verdict is not None and not self.foregone
        return decided and (self.shortcut is not None or not self.programs)

    def may_trace(self) -> bool:
        """Tell whether one more trace may give a program that is used again."""
        return self.tries < PROGRAMS

    def keep(self, scalars: tuple[Any, ...], program: HostProgram) -> None:
        """Keep a program; the one used longest ago goes."""
        self.programs[scalars] = program
        if len(self.programs) > PROGRAMS:
            self.programs.popitem(last=False)

    def program(self, scalars: tuple[Any, ...]) -> HostProgram | None:
        """Return the program for these scalars."""
        found = self.programs.get(scalars)
        if found is not None:
            self.programs.move_to_end(scalars)
            # What is used again may be made again.
            self.tries = max(0, self.tries - 1)
        return found

    def numpys_turn(self) -> bool:
        """Tell whether NumPy's way should be timed now.

        Where it gives other bits its result is not delivered in turn with ours, unless ours is
        planning for the most part and so bound to lose.
        """
        return (
            self.verdict is None
            and (self.exact or self.planned)
            and self.cold > 0
            and (self.puts_off() or len(self.theirs) < min(RUNS, len(self.ours) + 1))
        )

    def puts_off(self) -> bool:
        """Tell whether one slow run of ours waits for a second until there is time for it.

        One run may have met an interrupt; a verdict is for good.
        """
        return (
            self.verdict is None
            and (self.exact or self.planned)
            and len(self.ours) == 1
            and bool(self.theirs)
            and self.ours[0] >= self.theirs[0] * _LOST
            and not FOREGROUND.allows(self.ours[0], self.spent_seconds)
        )

    def wants_shadow(self) -> bool:
        """Tell whether NumPy's way should be timed beside ours, its result thrown away."""
        return (
            self.verdict is None
            and not self.exact
            and not self.planned
            and bool(self.ours)
            and len(self.theirs) < RUNS
            # All of its runs within the share of what these calls took: where others have used
            # up the program's, a kind of call that NumPy does better would never be found out.
            and FOREGROUND.allows(
                max([self.last_seconds, *self.theirs[:1]]), self.spent_seconds / RUNS
            )
        )

    def ran_ours(self, seconds: float, cold: bool) -> None:
        """Note a run of alight's way; one that had to make its plan says nothing of the next."""
        self.last_seconds = seconds
        self.spent_seconds += seconds
        if cold:
            self.cold += 1
        else:
            insort(self.ours, seconds)
            del self.ours[RUNS:]

    def ran_theirs(self, seconds: float, runs: int = 1) -> None:
        """Note runs of NumPy's way, by the mean of their seconds."""
        self.spent_seconds += seconds * runs
        insort(self.theirs, seconds)
        del self.theirs[RUNS:]

    def judge(self) -> None:
        """Take the faster way once that is clear; NumPy's where it is not."""
        if self.verdict is not None or not self.ours or not self.theirs:
            return
        ours, theirs = self.ours[0], self.theirs[0]
        least = min(len(self.ours), len(self.theirs))
        if least < _WARM:
            return
        close = theirs <= ours * CLEAR and ours <= theirs * CLEAR
        if close and least < RUNS:
            return
        self.verdict = "ours" if ours * _TIE <= theirs else "numpy"

    @property
    def why(self) -> str:
        """Return why a kind of call takes the way it takes."""
        times = []
        if self.theirs:
            times.append(f"NumPy took {readable_seconds(self.theirs[0])}")
        if self.ours:
            times.append(f"alight {'' if times else 'took '}{readable_seconds(self.ours[0])}")
        if self.verdict == "numpy" and len(times) < 2:
            return "alight would have NumPy do every part of it, too"
        if self.verdict is None and self.waiting:
            times.append("too little for planning: NumPy has it until looking at the whole may pay")
        elif self.verdict is None:
            times.append("both ways are still being timed")
        elif self.verdict == "numpy" and self.ours[0] <= self.theirs[0]:
            times.append("too close to tell")
        return ", ".join(times)
