"""Which way is the faster one for a kind of call: NumPy's own, or alight's. Found by timing both:
figures are kept here, and what they say is an event that leads to another phase."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from alight._src.adapt.contest import KERNEL_RULES, PLAN_RULES, Contender, Contest
from alight._src.adapt.foreground import FOREGROUND
from alight._src.base.at_fork import renewed
from alight._src.base.formatting import readable_seconds
from alight._src.jit.call_phases import (
    FORCED,
    NUMPYS,
    OPEN,
    OURS,
    WAYS,
    Event,
    Phase,
    Way,
    next_phase,
)
from alight._src.jit.host_program import HostProgram
from alight._src.jit.trace import Trace
from alight._src.plan.plan import UnopenedDevices

__all__ = ["PROGRAMS", "Bits", "KernelRace", "Specialization"]

# How many programs (scalars and all) a kind of call keeps. Functions that take a new float at every
# call would trace at every call; a handful of alternating settings is what real callers have.
PROGRAMS = 8

_LOST = 4.0  # so much slower in two runs is slower in all
_NUMPY, _PLAN, _KERNELS = Contender

# What an op takes: to trace and to plan it, alone and in one kernel (4.1 ms for the first call of
# 37, planned once); and NumPy on few elements, whose time so says how many there are at most.
_TRACE_SECONDS, _NUMPY_SECONDS = 2e-4, 7e-7

# What running a small body on Arrays may take, in NumPy's own time: recording an op takes some 10
# µs where NumPy takes 0.5 µs on few elements.
_BODY_FACTOR = 20

# The promise gives any call 60 ms beside three times NumPy's. A third of it goes to find out that a
# body is none for us; the rest is for what is pending then, to be planned and run.
GRACE_SECONDS = 0.020
# What it takes to have one ndarray as an Array for a call, and to give it back: 9.5 to 9.8 µs each
# for 200 and 2,000 of three elements (EPYC at rest). Doubled by guess: ops on it are to come.
LEASE_SECONDS = 2e-5

# The design's rule: never plan what NumPy would finish in under 20 times the planning time.
PLANNING_SHARE = 20


class KernelRace:
    """The contest of a program's kernels that goes on, one lap a call, and the entry that launches
    them, which was made for one policy."""

    __slots__ = ("_passed", "contest", "entry", "program", "under")

    def __init__(self, program: HostProgram, under: Any, entry: Any) -> None:
        self.program = program
        self.entry = entry
        self.under = under
        self.contest = Contest((_NUMPY, _KERNELS), KERNEL_RULES)
        self._passed = 0

    def against_plan(self, seconds: float) -> None:
        """Race against a plan that has beaten NumPy, and takes so long."""
        raced = self.contest.seconds[_KERNELS]
        self.contest = Contest((_PLAN, _KERNELS), KERNEL_RULES)
        self.contest.seconds[_KERNELS] = raced
        self.contest.settle(_PLAN, seconds)

    def left(self, program: HostProgram) -> bool:
        """Tell whether another race is to begin: as many calls of other programs as a kind of call
        keeps have passed since the last lap."""
        self._passed = 0 if program is self.program else self._passed + 1
        return self._passed > PROGRAMS


class Bits(Enum):
    """Whether alight's way gives NumPy's bits, which says how NumPy may be timed."""

    SAME = auto()  # in turns with ours, its results delivered
    OTHER = auto()  # beside ours, its results thrown away
    PASSING = auto()  # in turns: ours is planning for the most part, and so bound to lose


# Ways that ask for no more than the phase.
_PLAIN = frozenset(Way) - {Way.NUMPY_FOR_NOW, Way.WHEN_MADE, Way.TURNS}

_changing = renewed(globals(), "_changing", threading.RLock)


class Specialization:
    """One kind of call of one function: its phase, how long each way took, and its programs."""

    __slots__ = (
        "bits", "contest", "last_seconds", "phase", "programs", "race", "sizes",
        "spent_seconds", "trial_seconds", "tries", "unopened",
    )  # fmt: skip

    def __init__(self, phase: Phase = Phase.COLD, sizes: Any = None) -> None:
        self.phase = phase
        self.sizes = sizes  # how large its arguments are, in powers of two
        self.bits = Bits.SAME
        self.contest = Contest((_NUMPY, _PLAN), PLAN_RULES)
        self.spent_seconds = 0.0  # all that went into calls of this kind
        self.last_seconds = 0.0
        self.trial_seconds = 0.0  # after which its body was given up
        self.unopened: tuple[UnopenedDevices, ...] = ()  # devices that its plans do without
        self.race: KernelRace | None = None  # that its kernels are in
        self.programs: OrderedDict[Any, HostProgram] = OrderedDict()
        self.tries = 0

    # -- phases -----------------------------------------------------------------------------------
    def came(self, *events: Event) -> None:
        """Note what has happened, one after the other."""
        with _changing:
            for event in events:
                self.phase = next_phase(self.phase, event)

    def way(
        self,
        program: HostProgram | None,
        ops: float | None,
        arrays: int,
        made: Callable[[HostProgram], bool],
    ) -> Way:
        """Return how a call is answered, with one of the two in the place of turns.

        ``arrays``: how many it is given; ``ops``: what a trace would record at most, None where it
        could not be replayed; ``made`` tells whether a program's kernels are all there.
        """
        while True:  # another thread may change the phase meanwhile: each is answered whole
            phase = self.phase
            if phase is Phase.COLD and arrays * LEASE_SECONDS > self.may_take():
                self.gave_up(arrays * LEASE_SECONDS / 2)
                continue
            way = WAYS[phase]
            if way in _PLAIN:
                return way
            if way is Way.NUMPY_FOR_NOW:
                if phase is Phase.WAITING and not self.waits(ops):
                    again = self.may_take() >= 2 * self.trial_seconds
                    self.came(Event.PAYS if again else Event.GIVEN_UP)
                elif phase is Phase.NUMPY_LEADS and program is None and self.race is None:
                    self.came(Event.OTHER_SCALARS)
                else:
                    return way
                continue
            if way is Way.WHEN_MADE and program is not None and not made(program):
                return Way.NUMPY_FOR_NOW
            if not self.numpys_turn():
                return Way.OURS_TIMED
            return Way.NUMPY_TOLD if phase is Phase.LACKING else Way.TURNS

    def raced(self, won: bool) -> None:
        """Note whether the guard launches its kernels; a race that went on for that is over."""
        self.race = None
        self.came(Event.KERNELS_WON if won else Event.KERNELS_OUT)

    def waits(self, ops: float | None) -> bool:
        """Tell whether NumPy should have this call too, before alight's way is tried at all."""
        if len(self.numpy_seconds) < PLAN_RULES.least_laps:
            return True
        numpy_seconds = self.numpy_seconds[0]
        trying = _BODY_FACTOR * numpy_seconds
        if ops is not None:
            count = min(ops, numpy_seconds / _NUMPY_SECONDS)
            trying = max(FOREGROUND.trace_seconds, _TRACE_SECONDS * count)
        # Once NumPy has taken as long as trying would, waiting on costs no less.
        return not FOREGROUND.allows(trying) and self.spent_seconds < trying

    def may_take(self) -> float:
        """Return the seconds after which a run of the body on Arrays is given up: none where that
        is the way which calls take."""
        if self.phase in OURS:
            return math.inf
        return GRACE_SECONDS + (self.numpy_seconds[0] if self.numpy_seconds else 0.0)

    def gave_up(self, seconds: float) -> None:
        """Note that the body was given up after so long."""
        self.trial_seconds = seconds
        self.came(Event.GIVEN_UP if self.numpy_seconds else Event.GIVEN_UP_FIRST)

    def traced(
        self,
        trace: Trace,
        scalars: tuple[Any, ...],
        program: HostProgram | None,
        there: Sequence[bool],
        gains: bool,
        planned: bool,
        idle: bool,
    ) -> None:
        """Note a run of the body on Arrays and keep the program of it for these scalars, if any;
        the one used longest ago goes.

        ``there``: which of its kernels are; ``gains``: something of it is not NumPy's all the same;
        ``planned``: planning takes so much of our way that NumPy should have had it; ``idle``:
        every step of it was below the floor.
        """
        if program is not None:
            self.programs[scalars] = program
            if len(self.programs) > PROGRAMS:
                self.programs.popitem(last=False)
        if not trace.exact or self.bits is not Bits.SAME:
            self.bits = Bits.PASSING if planned else Bits.OTHER
        events = [Event.NOT_KEPT if program is None else Event.KEPT]
        # To run it with NumPy in the place of kernels would take longer than NumPy. Where some were
        # there at the first run, and gave bits that NumPy does not, it goes on so.
        unmade = not all(there) and (self.bits is Bits.SAME or not any(there))
        if unmade and not self.alight_seconds:
            events.append(Event.UNMADE)
        if trace.unopened_devices:
            self.unopened = tuple(trace.unopened_devices)
            events.append(Event.UNOPENED)
        if not gains:
            events.append(Event.NO_GAIN)
        if idle:
            events.append(Event.NO_STEP)
        self.came(*events)

    def program(self, scalars: tuple[Any, ...]) -> HostProgram | None:
        """Return the program for these scalars."""
        found = self.programs.get(scalars)
        if found is not None:
            self.programs.move_to_end(scalars)
            # What is used again may be made again.
            self.tries = max(0, self.tries - 1)
        return found

    # -- figures ----------------------------------------------------------------------------------
    def numpys_turn(self) -> bool:
        """Tell whether NumPy's way should be timed now, in turn with ours."""
        return self.bits is not Bits.OTHER and (self.puts_off() or self.contest.turn() is _NUMPY)

    def puts_off(self) -> bool:
        """Tell whether one slow run of ours waits for a second until there is time for it.

        One run may have met an interrupt; a verdict is for good.
        """
        return (
            self.phase in OPEN
            and self.bits is not Bits.OTHER
            and len(self.alight_seconds) == 1
            and bool(self.numpy_seconds)
            and self.alight_seconds[0] >= self.numpy_seconds[0] * _LOST
            and not FOREGROUND.allows(self.alight_seconds[0], self.spent_seconds)
        )

    def wants_shadow(self) -> bool:
        """Tell whether NumPy's way should be timed beside ours, its result thrown away."""
        return (
            self.phase in OPEN
            and self.bits is Bits.OTHER
            and bool(self.alight_seconds)
            and len(self.numpy_seconds) < PLAN_RULES.laps
            # All of its runs within the share of what these calls took: where others have used
            # up the program's, a kind of call that NumPy does better would never be found out.
            and FOREGROUND.allows(
                max([self.last_seconds, *self.numpy_seconds[:1]]),
                self.spent_seconds / PLAN_RULES.laps,
            )
        )

    @property
    def numpy_seconds(self) -> list[float]:
        """Return what the quickest runs of NumPy's way took, in order."""
        return self.contest.seconds[_NUMPY]

    @property
    def alight_seconds(self) -> list[float]:
        """Return what the quickest runs of alight's way took, in order."""
        return self.contest.seconds[_PLAN]

    def ran_alight(self, seconds: float, cold: bool) -> None:
        """Note a run of alight's way; one that had to make its plan says nothing of the next."""
        self.last_seconds = seconds
        self.spent_seconds += seconds
        if not cold:
            self.contest.lap(_PLAN, seconds)
            self.came(Event.TIMED)

    def ran_numpy(self, seconds: float, runs: int = 1) -> None:
        """Note runs of NumPy's way, by the mean of their seconds."""
        self.spent_seconds += seconds * runs
        self.contest.lap(_NUMPY, seconds)

    def judge(self) -> None:
        """Take the faster way once that is clear; NumPy's where it is not."""
        if self.phase in OPEN and (winner := self.contest.winner()) is not None:
            self.came(Event.PLAN_WON if winner is _PLAN else Event.NUMPY_WON)

    # -- what is said of it -----------------------------------------------------------------------
    @property
    def taken(self) -> str:
        """Return which way calls take: "numpy", "alight", or "undecided"."""
        if self.phase in NUMPYS:
            return "numpy"
        return "alight" if self.phase in OURS else "undecided"

    @property
    def why(self) -> str:
        """Return why a kind of call takes the way it takes."""
        if self.phase is Phase.BELOW_FLOOR:
            return (
                "every step of it is below the floor, forced or not. "
                "Fix: alight.policy(floor=0) has it planned"
            )
        if self.phase in FORCED:
            return "the policy says so"
        numpys = self.phase in NUMPYS
        times = []
        if self.numpy_seconds:
            times.append(f"NumPy took {readable_seconds(self.numpy_seconds[0])}")
        if self.alight_seconds:
            own = readable_seconds(self.alight_seconds[0])
            times.append(f"alight {'' if times else 'took '}{own}")
        if numpys and len(times) < 2:
            return "alight would have NumPy do every part of it, too"
        if self.phase is Phase.WAITING:
            times.append("too little for planning: NumPy has it until looking at the whole may pay")
        elif numpys and self.alight_seconds[0] <= self.numpy_seconds[0]:
            times.append("too close to tell")
        elif self.taken == "undecided":
            times.append("both ways are still being timed")
        return ", ".join(times)
