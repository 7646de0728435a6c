"""What the guard of a jitted function answers without Python: kernels that won a race, programs
that are kernels alone, and NumPy's way where NumPy is faster."""

from __future__ import annotations

import math
import threading
from time import perf_counter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from alight._core import POLICY
from alight._core.guard import CallGuard, Entry
from alight._src.adapt.contest import KERNEL_RULES, Contender
from alight._src.adapt.foreground import FOREGROUND, SHARE
from alight._src.base.at_fork import renewed
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.config.policy import Policy
from alight._src.jit.call_phases import RACES, Phase
from alight._src.jit.call_signature import CallSignature
from alight._src.jit.flag_source import FlagSearch
from alight._src.jit.function_states import Learned
from alight._src.jit.guard_entries import (
    call_entry,
    call_pattern,
    generated,
    kernel_entry,
    launches_of,
    measured,
    promises,
    watch_entry,
)
from alight._src.jit.host_program import HostProgram, Launchable
from alight._src.jit.kernel_race import KernelRace
from alight._src.jit.specialization import Bits, Specialization
from alight._src.log.decisions import LOG
from alight._src.plan.plan import LaunchStep
from alight._src.run.plans_behind import Behind
from alight._src.run.prepared_step import kernel_at_hand
from alight.errors import PlanError

__all__ = ["GuardCache", "Lap", "MissedCall"]

# How often a function that NumPy has for now asks whether its kernel may be compiled: asking takes
# 20 µs, and 250 to 400 where the calls have had the caches (thread time): so it stays under 4 %.
_ASK_SECONDS = 0.010
# That is with so many arrays, each of which takes 3 µs to describe (4,000: 12 to 14 ms), and goes
# with their number.
_ASK_ARRAYS = 16

_racing = renewed(globals(), "_racing", threading.Lock)

# The policy object under which the guard launches a program, and its entry.
_launched: WeakKeyDictionary[HostProgram, tuple[Any, Entry]] = WeakKeyDictionary()


class MissedCall(NamedTuple):
    """A call that no entry of the guard answers, and what is known of its kind."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    described: CallSignature | None  # what cannot be described has an outline
    here: Policy
    learned: Learned
    specialization: Specialization


class GuardCache(CallGuard):
    """A guard, and what its entries become with what is learned of a function."""

    __wrapped__: Any

    def shadow(self, program: HostProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        """Return the seconds that NumPy takes for a call of a pure function."""
        raise NotImplementedError(
            "shadow: a subclass gives the seconds that NumPy takes for the call"
        )

    def race_kernels(self, missed: MissedCall, program: HostProgram) -> Any:
        """Race the program's kernels, where it is nothing else, against NumPy, and let the guard
        launch them if they win. Return the call's result where a lap of theirs has made it,
        NotImplemented where it is still to be answered."""
        # Two threads in one race would find half of what the other leaves, and time each other.
        if not _racing.acquire(blocking=False):
            return NotImplemented
        try:
            if missed.specialization.phase in RACES:
                return self._race(missed, program)
            return NotImplemented
        finally:
            _racing.release()

    def _race(self, missed: MissedCall, program: HostProgram) -> Any:
        args, kwargs, kind = missed.args, missed.kwargs, missed.specialization
        if kwargs or program.once:
            kind.raced(False)
            return NotImplemented
        try:
            plan, launchable = generated(program, kind.patience)
        except Behind:
            return NotImplemented
        if launchable is None:
            kind.raced(False)
            return NotImplemented
        if not all(map(_at_hand, launchable.steps)):
            return NotImplemented
        # Where NumPy has lost, its time is known and what the kernel has to beat is the plan's.
        plan_seconds = kind.alight_seconds[0] if kind.phase is Phase.PLAN_LEADS else None
        numpy_seconds = kind.numpy_seconds[0] if kind.numpy_seconds else kind.last_seconds
        race, under = kind.race, POLICY.get()
        # What its laps make are answers where they have the bits of those that calls get anyway.
        exact, ours = _has_numpys_bits(launchable), kind.bits is Bits.OTHER
        if ours and kind.phase is Phase.NUMPY_LEADS and not exact:
            kind.raced(False)  # bits would change back
            return NotImplemented
        instead = ours and plan is program.plan
        answers = instead or (kind.bits is Bits.SAME and exact)
        if race is None or race.left(program):
            racing = KERNEL_RULES.laps * (plan_seconds or numpy_seconds)
            # What promises to pay stays within what measuring may take, or the calls have by now
            # taken twice as long, where it is not answers that calls wait for anyway; all else
            # within the share of what these calls took.
            begins = racing <= SHARE * kind.spent_seconds
            if promises(launchable, plan_seconds or numpy_seconds):
                begins = (exact and not ours) or kind.spent_seconds >= 2 * racing
                begins = begins or FOREGROUND.allows(racing)
            entry = self._entry_of(missed, program, launchable) if begins else None
            if entry is None:
                return NotImplemented
            race = kind.race = KernelRace(program, under, entry)
        elif race.program is not program:
            return NotImplemented
        if plan_seconds is not None:
            race.against_plan(plan_seconds)
        contest = race.contest
        if contest.turn() is Contender.NUMPY:
            if ours:
                contest.lap(Contender.NUMPY, self.shadow(program, args, kwargs))
            else:
                race.numpy_next = True  # one that NumPy answers all the same
            return NotImplemented
        # Its first laps find how many threads are best: it has them as they are earned.
        if not instead and race.lost_seconds() > SHARE * kind.spent_seconds:
            return NotImplemented
        if race.under is not under:  # one that says the same, made anew
            with FOREGROUND.measuring():
                made = self._entry_of(missed, program, launchable)
            if made is None:
                return NotImplemented
            race.under, race.entry = under, made
        # One lap a call: all at once, a call would take ten times as long.
        seconds, result = _lap(race.entry, args)
        contest.lap(Contender.KERNELS, seconds)
        if not answers:
            result = NotImplemented
        if result is not NotImplemented:
            kind.spent_seconds += seconds
            seconds = max(0.0, seconds - (plan_seconds or numpy_seconds))
        if math.isfinite(seconds):
            FOREGROUND.spend(seconds)
        winner = contest.winner()
        if winner is None:
            return result
        kind.raced(winner is Contender.KERNELS)
        if kind.phase is Phase.ON_KERNELS:
            race.entry.take()
            program.plan = plan  # the same bits from now on, also where the guard hands over
            if plan_seconds is None:
                numpy_seconds = contest.best(Contender.NUMPY)
            decisions = measured(launchable, numpy_seconds, contest.best(Contender.KERNELS))
            watch_entry(race.entry, launchable, decisions, program.site)
            seconds = contest.best(Contender.KERNELS)
            race.entry.left = _calls_until(kind.confirms_in(seconds), seconds)
            self.answer(missed.learned, kind, race.entry)
        return result

    def launch_directly(self, missed: MissedCall, program: HostProgram) -> None:
        """Let the guard launch a program whose own plan is generated kernels."""
        under, launched = _launched.get(program, (None, None))
        if launched is not None and under is POLICY.get():
            self.put_back(launched)
            return
        launchable = None if missed.kwargs else program.launchable()
        entry = self._entry_of(missed, program, launchable)
        if entry is None or launchable is None:
            return
        _launched[program] = POLICY.get(), entry
        watch_entry(entry, launchable, [s.decision for s in launchable.steps], program.site)
        self.insert(entry)

    def _entry_of(
        self, missed: MissedCall, program: HostProgram, launchable: Launchable | None
    ) -> Entry | None:
        """Return the entry that launches a program; where there is none, it is not asked for
        again."""
        entry = None
        try:
            if launchable is not None:
                assert missed.described is not None
                arrays, lookups = missed.described.arrays, missed.learned.proof.lookups
                launchable.already_shown.none_raised = FlagSearch(program, lookups).none_raised
                entry = kernel_entry(launchable, missed.args, arrays, lookups)
        except PlanError:
            raise
        except failures() as error:
            assert launchable is not None
            # Nothing that generated code does wrong may reach the program: there are other ways.
            what = " and ".join([step.decision.operation for step in launchable.steps])
            LOG.fallback(f"{what} on cpu:generated", f"{type(error).__name__}: {error}", None)
        if entry is None:
            missed.specialization.raced(False)
        return entry

    def hear(self, answer: Entry, missed: MissedCall, put_back: bool) -> None:
        """Take over what was timed of the way that the guard answers without Python."""
        kind = missed.specialization
        if kind.phase is Phase.ON_KERNELS and not answer.left:
            calls, seconds = launches_of(answer)
            if calls:
                kind.kernels_ran(seconds, calls)
            if kind.phase is not Phase.ON_KERNELS:
                missed.learned.answers.pop(id(kind), None)
                self.remove(answer)
                return
            answer.left = _calls_until(kind.lasts(), kind.last_seconds)
        if put_back:
            self.put_back(answer)
        if kind.phase is not Phase.ON_KERNELS:
            calls, seconds = answer.take()
            if calls:
                kind.has_run(seconds / calls)
                kind.ran_numpy(seconds / calls, calls)

    def put_back(self, entry: Entry | None) -> None:
        """Have the guard try an entry again that has gone for others: no call that it answers comes
        here while it is there, unless its guards do not hold."""
        if entry is not None and not self.holds(entry):
            self.insert(entry)

    def answer(self, learned: Learned, kind: Specialization, entry: Entry) -> None:
        """Have the guard answer a kind of call by this entry."""
        old = learned.answers.get(id(kind))
        if old is not None:
            self.remove(old)
        learned.answers[id(kind)] = entry
        self.insert(entry)

    def answer_with_numpy(self, missed: MissedCall, seconds: float) -> None:
        """Have the guard call the function itself, until that has taken so long or as long as
        makes it worth to be asked again."""
        if missed.kwargs:
            return
        if math.isfinite(seconds):
            arrays = 0 if missed.described is None else len(missed.described.arrays)
            seconds = max(seconds, _ASK_SECONDS * max(1.0, arrays / _ASK_ARRAYS))
        left = _calls_until(seconds, missed.specialization.numpy_seconds[0])
        if missed.described is None:
            wide = [item for item in missed.args if type(item) is np.ndarray]
        else:
            numpys = missed.learned.all_numpys(missed.specialization.sizes)
            wide = missed.described.arrays if numpys else []
        pattern = call_pattern(missed.args, wide)
        entry = call_entry(self.__wrapped__, pattern, left, missed.learned.proof.lookups)
        self.answer(missed.learned, missed.specialization, entry)


def _calls_until(seconds: float, call_seconds: float) -> int:
    """Return how many calls that take so long each the guard answers in so many seconds, -1 for
    all."""
    if not math.isfinite(seconds):
        return -1
    return max(1, int(seconds / max(call_seconds, 1e-9)))


def _at_hand(step: LaunchStep) -> bool:
    """Tell whether a step's kernel can be had at once, where it has one of ours."""
    return step.implementation != "generated" or kernel_at_hand(step)


class Lap(NamedTuple):
    """What a lap of kernels took, infinitely long where they cannot run, and made."""

    seconds: float
    result: Any


def _lap(entry: Entry, args: tuple[Any, ...]) -> Lap:
    began = perf_counter()
    result = entry.run(args)
    seconds = perf_counter() - began
    return Lap(math.inf if result is NotImplemented else seconds, result)


def _has_numpys_bits(launchable: Launchable) -> bool:
    """Tell whether all that kernels of ours make has NumPy's bits."""
    own = [step.group.form for step in launchable.steps if step.implementation == "generated"]
    return all([form.same_bits for form in own])
