"""Which way is the faster one for a kind of call: NumPy's own, or alight's. Found by timing both:
figures are kept here, what they say (an event that leads to another phase), and for how long such a
verdict lasts."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from alight._src.adapt import first_plan
from alight._src.adapt.contest import KERNEL_RULES, PLAN_RULES, Contender, Contest
from alight._src.adapt.foreground import FOREGROUND, SHARE
from alight._src.base.at_fork import renewed
from alight._src.base.formatting import readable_seconds
from alight._src.jit.call_phases import (
    EXPIRING,
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
from alight._src.jit.kernel_race import PROGRAMS, KernelRace
from alight._src.jit.look_costs import ELEMENT_SECONDS, look_seconds, tracing_seconds
from alight._src.jit.trace import RECORD_SECONDS, TRACE_SECONDS, Trace
from alight._src.plan.plan import UnopenedDevices
from alight._src.run.plans_behind import WAIT_SECONDS

__all__ = ["Bits", "Specialization"]

# Of what a body may take with NumPy's time, what may be lost where NumPy begins it anew.
_EARLY = 0.5
_LOST = 4.0  # so much slower in two runs is slower in all
_NUMPY, _PLAN, _ = Contender

# What NumPy takes for an op on few elements, so that its time says how many there are at most.
_NUMPY_SECONDS = 7e-7
# NumPy's time for an op from which on it is for the elements and not for the call: then fewer
# kernels may have a good part of it. Ten times what it takes on few.
_ELEMENTS_SECONDS = 7e-6
# The promise gives any call 60 ms beside three times NumPy's. A sixth of it goes to find out that a
# body is none for us, which is 100 ops that are still to be planned; the rest is for these, to be
# planned and run.
GRACE_SECONDS = 0.010
# What it takes to have one ndarray as an Array for a call, and to give it back: 9.5 to 9.8 µs each
# for 200 and 2,000 of three elements (EPYC at rest). Doubled by guess: ops on it are to come.
LEASE_SECONDS = 2e-5

# The design's rule: never plan what NumPy would finish in under 20 times the planning time.
PLANNING_SHARE = 20


class Bits(Enum):
    """Whether alight's way gives NumPy's bits, which says how NumPy may be timed."""

    SAME = auto()  # in turns with ours, its results delivered
    OTHER = auto()  # beside ours, its results thrown away
    PASSING = auto()  # in turns: ours is planning for the most part, and so bound to lose


# Ways that ask for no more than the phase.
_PLAIN = frozenset(Way) - {Way.NUMPY_FOR_NOW, Way.WHEN_MADE, Way.TURNS}

# A call whose time is taken in Python takes so much longer than one that the guard answers (20 to
# 50 µs; EPYC).
_TURN_SECONDS = 5e-5
# Calls of kernels that take less are not asked sooner: asking takes up to 0.4 ms.
_CONFIRM_SECONDS = 0.010
# Times the quickest lap that no noise of a mean makes: on a loaded machine medians of few runs
# differ by 15 %, and a process that shares its core with another takes twice as long.
_DRIFTED = 2.5

# Plans that calls of one kind are put off for: one for the program of a body, or for each of the
# few requests of one that asks. Of more each would be recorded as often as there are, in vain.
_PUT_OFF = 3

_changing = renewed(globals(), "_changing", threading.RLock)


class Specialization:
    """One kind of call of one function: its phase, how long each way took, and its programs."""

    __slots__ = (
        "_earning_seconds", "_judged_seconds", "_most_seconds", "_price_seconds", "_times_put_off",
        "_verdict", "_verdicts", "behind", "bits", "contest", "elements", "last_seconds", "phase",
        "programs", "race", "room_seconds", "sizes", "spent_seconds", "trial_seconds", "tries",
        "unopened",
    )  # fmt: skip

    def __init__(self, phase: Phase = Phase.COLD, sizes: Any = None, elements: int = 0) -> None:
        self.phase = phase
        self.sizes = sizes  # how large its arguments are, in powers of two
        self.elements = elements  # of the largest of them, where operations are on the whole of it
        self.bits = Bits.SAME
        self.contest = Contest((_NUMPY, _PLAN), PLAN_RULES)
        self.spent_seconds = 0.0  # all that went into calls of this kind
        self.last_seconds = 0.0
        self.trial_seconds = 0.0  # after which its body was given up
        self.room_seconds = GRACE_SECONDS  # that its body may take beside NumPy's time
        # What it may take at all where nobody knows of how many small ops it is: twice as much each
        # time that it is given up.
        self._most_seconds = math.inf
        # The last verdict, how often it has been the same, what all had taken by then, and what it
        # takes to look again.
        self._verdict: Phase | None = None
        self._verdicts = 0
        self._earning_seconds = 0.0  # for which its calls have to go on until a look is paid for
        self._judged_seconds = 0.0
        self._price_seconds = math.inf
        self.unopened: tuple[UnopenedDevices, ...] = ()  # devices that its plans do without
        self.race: KernelRace | None = None  # that its kernels are in
        self.programs: OrderedDict[Any, HostProgram] = OrderedDict()
        self.tries = 0
        self.behind = ""  # the job that makes a plan of it
        self._times_put_off = 0

    # -- phases -----------------------------------------------------------------------------------
    def came(self, *events: Event) -> None:
        """Note what has happened, one after the other."""
        with _changing:
            before = self.phase
            for event in events:
                self.phase = next_phase(self.phase, event)
            if self.phase in EXPIRING and self.phase is not before:
                self._judged()

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
            if phase in EXPIRING and self.lasts() <= 0.0:
                self.look_again()
                continue
            if way in _PLAIN:
                return way
            if way is Way.NUMPY_FOR_NOW:
                if phase is Phase.WAITING and not self.waits(ops):
                    self.room_seconds = self._room_seconds(ops)
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
        if not self.numpy_seconds:
            return True
        unknown = ops is None or math.isinf(ops)
        count = self.numpy_seconds[0] / _NUMPY_SECONDS
        each_seconds = max(_NUMPY_SECONDS, self.elements * ELEMENT_SECONDS)
        if ops is not None and not unknown:
            count = min(ops, count)
            # None where all is views, or where a lap was too short for the clock.
            each_seconds = self.numpy_seconds[0] / count if count else each_seconds
        # A good part of NumPy's time can be had: fewer kernels may have it.
        pays = each_seconds >= _ELEMENTS_SECONDS
        if pays and self.numpy_seconds[0] >= SHARE * FOREGROUND.loading_seconds:
            # Behind, and soon: what the first calls of a process wait for, later ones do not.
            first_plan.come()
        if len(self.numpy_seconds) < PLAN_RULES.least_laps:
            return True
        if unknown and each_seconds < TRACE_SECONDS and TRACE_SECONDS * count > GRACE_SECONDS:
            return self._earns(each_seconds, pays)
        price = look_seconds(min(count, GRACE_SECONDS / TRACE_SECONDS) if unknown else count)
        if FOREGROUND.allows(price, self.spent_seconds):
            return False
        # To wait on would cost as much as to look, where that promises to pay.
        granted = pays and FOREGROUND.grants(price)
        own_seconds = price if granted else price / SHARE
        # Others' time counts too, and may pass while these calls do not run.
        left_seconds = FOREGROUND.allows_in(price) / 2
        self._earning_seconds = min(own_seconds - self.spent_seconds, left_seconds)
        return not granted or own_seconds > self.spent_seconds

    def _earns(self, each_seconds: float, pays: bool) -> bool:
        """Tell whether calls of nobody knows how many ops, each of which NumPy does in less time
        than it takes to trace it, have to go on until they have earned a look at them.

        What a body may take until it is given up will be lost: what it takes to record as many ops
        as NumPy has time for, if that is little of it. They earn that themselves, however long the
        process has run, unless it is young and most of NumPy's time goes to elements.
        """
        if math.isinf(self._most_seconds):
            numpy_seconds = self.numpy_seconds[0]
            recording_seconds = numpy_seconds / each_seconds * RECORD_SECONDS
            little = recording_seconds <= _EARLY * numpy_seconds
            self._most_seconds = max(GRACE_SECONDS, recording_seconds if little else 0.0)
        lost_seconds = self._most_seconds + FOREGROUND.loading_seconds
        own_seconds = lost_seconds / SHARE
        if pays and FOREGROUND.has_grace(lost_seconds):
            own_seconds = lost_seconds
        self._earning_seconds = own_seconds - self.spent_seconds
        return self._earning_seconds > 0.0

    def _room_seconds(self, ops: float | None) -> float:
        """Return what a run of the body on Arrays may take beside NumPy's time."""
        room = GRACE_SECONDS
        if ops is not None and math.isfinite(ops):  # it ends, and was paid for
            room += tracing_seconds(ops)
        return room

    # -- verdicts ---------------------------------------------------------------------------------
    def _judged(self) -> None:
        """Note that calls go one way from now on, and what another look would take."""
        self._verdicts = self._verdicts + 1 if self.phase is self._verdict else 1
        self._verdict = self.phase
        self._judged_seconds = self.spent_seconds
        if self.bits is not Bits.SAME:
            self._price_seconds = math.inf  # to go back would change bits to and fro
        elif self.numpy_seconds and (self.alight_seconds or self.phase is Phase.ON_KERNELS):
            slower = max(self.numpy_seconds[0], *self.alight_seconds[:1], 0.0)
            self._price_seconds = PLAN_RULES.laps * (slower + _TURN_SECONDS)
        else:  # given up; without a trial it would be NumPy's all the same
            self._price_seconds = 2 * self.trial_seconds or math.inf

    def look_again(self) -> None:
        """Have both ways be timed anew."""
        self.contest = Contest((_NUMPY, _PLAN), PLAN_RULES)
        self.came(Event.PAYS)

    def kernels_ran(self, seconds: float, calls: int) -> None:
        """Note what its kernels took in calls that the guard answered. Once their verdict is due it
        is the same again without a look, unless they take longer than NumPy did; where their calls
        do from the beginning, it was wrong."""
        self.spent_seconds += seconds
        self.last_seconds = seconds / calls
        numpys = self.numpy_seconds
        if self.lasts() <= 0.0:
            if self.last_seconds <= self.contest.best(_NUMPY):  # another thread may begin anew
                self._judged()
            else:
                self.look_again()
        elif self.bits is Bits.SAME and numpys and self.last_seconds > numpys[-1]:
            self.look_again()

    def confirms_in(self, seconds: float) -> float:
        """Return for how long its kernels have calls, which took so long each in a race, until
        these are to confirm that: twice its laps, and twice as many each time that they win."""
        if math.isinf(self.lasts()):
            return math.inf
        laps_seconds = 2 * KERNEL_RULES.laps * 2.0 ** (self._verdicts - 1) * seconds
        return min(self.lasts(), max(_CONFIRM_SECONDS, laps_seconds))

    def lasts(self) -> float:
        """Return for how long these calls may run until their verdict is looked at again: until
        that is within the share of what they took since, and twice as long each time that the
        verdict is the same."""
        lasting = self._price_seconds / SHARE * 2.0 ** (self._verdicts - 1)
        return self._judged_seconds + lasting - self.spent_seconds

    def asks_in(self) -> float:
        """Return for how long these calls may run until somebody should see what they take."""
        if self.phase is Phase.WAITING:
            return self._earning_seconds
        return min(self.lasts(), self._price_seconds / SHARE)

    def has_run(self, seconds: float) -> None:
        """Note what a run took after the verdict. Where that is clearly more than it was, the
        verdict is as young as the first."""
        laps = self.numpy_seconds if self.phase in NUMPYS else self.alight_seconds
        if laps and seconds > _DRIFTED * laps[0]:
            self._verdicts = 1

    def may_take(self) -> float:
        """Return the seconds after which a run of the body on Arrays is given up: none where that
        is the way which calls take."""
        if self.phase in OURS:
            return math.inf
        beside_seconds, room_seconds = self._beside_numpy(), self.room_seconds
        if math.isinf(self._most_seconds):
            return beside_seconds
        most_seconds = self._most_seconds + FOREGROUND.loading_seconds
        return min(most_seconds, max(room_seconds, _EARLY * beside_seconds))

    def may_lose(self) -> float:
        """Return the seconds within which a body that is given up had better be begun anew: what is
        pending then would take the rest of NumPy's time to be planned."""
        return max(self.room_seconds, _EARLY * max(self.may_take(), self._beside_numpy()))

    def _beside_numpy(self) -> float:
        room_seconds = self.room_seconds + FOREGROUND.loading_seconds
        return room_seconds + (self.numpy_seconds[0] if self.numpy_seconds else 0.0)

    @property
    def patience(self) -> float:
        """Return the seconds that a call may wait for its plan, which NumPy does without."""
        put_off = self._times_put_off < _PUT_OFF
        return min([WAIT_SECONDS, *self.numpy_seconds[:put_off]])

    def put_off(self, job: str) -> None:
        """Note the job that makes a plan which a call did not wait for, if any."""
        self.behind = job
        self._times_put_off += bool(job)

    def gave_up(self, seconds: float, exact: bool = True) -> None:
        """Note that the body was given up after so long; ``exact``: by then all had NumPy's
        bits."""
        self.trial_seconds = seconds
        self._most_seconds *= 2
        if not exact:
            self.bits = Bits.OTHER
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
        if self.race is not None:
            self.race.numpy_took(seconds)

    def judge(self) -> None:
        """Take the faster way once that is clear; NumPy's where it is not."""
        if self.race is not None and self.bits is Bits.OTHER:
            return  # its kernels, which have the calls now, would come too late after NumPy
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
        elif self.trial_seconds:
            own = readable_seconds(self.trial_seconds)
            times.append(f"alight {'' if times else 'took '}more than {own}")
        if numpys and len(times) < 2:
            return "alight would have NumPy do every part of it, too"
        if self.phase is Phase.WAITING:
            little = "" if self.trial_seconds else "too little for planning: "
            times.append(f"{little}NumPy has it until looking at the whole may pay")
        elif numpys and self.alight_seconds and self.alight_seconds[0] <= self.numpy_seconds[0]:
            times.append("too close to tell")
        elif self.taken == "undecided":
            times.append("both ways are still being timed")
        return ", ".join(times)
