"""One call of a jitted function, answered: the one place that knows all the ways.

The guard, in C, looks first; what it knows is answered without Python:

| entry of the guard | made by | in phase |
|---|---|---|
| the function itself, called as it is | `answer_with_numpy` | NumPy's, for good or for now |
| kernels launched on ndarrays | `race_kernels`, `launch_directly` | on kernels, forced |
| kernels launched on Arrays on a device (`ArrayProgram.direct`) | `_on_arrays` | – |
| the same call on what Arrays have on the host (`HostAdapter`) | `_on_arrays` | – |

What it does not know comes here:

| call | answered by |
|---|---|
| inside another jitted function | the body, as the outer one runs |
| no choice, and NumPy acts at each op | the body on Arrays |
| arguments that cannot be described, such as objects | as all others, by their outline |
| Arrays among the arguments of a pure body | `HostAdapter`, `ArrayProgram`, or the body traced as
one |
| NumPy acts at each op (an errstate that raises) | NumPy, if ours gave no other bits |
| all others | as `WAYS` says for the phase of their kind: NumPy, a program, or the body traced |
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from time import perf_counter
from typing import Any

from alight._core import POLICY, ArrayBase, floor, keep_only, recording_errstate
from alight._core.guard import by_position
from alight._src.adapt import first_plan
from alight._src.adapt.foreground import FOREGROUND
from alight._src.base.originals import np
from alight._src.config.loading import current_policy, policy
from alight._src.config.policy import Policy
from alight._src.fp_warnings.errstate import modes_here
from alight._src.fp_warnings.filters import (
    are_told_once,
    collected,
    told_inside,
    warnings_suppressed,
)
from alight._src.jit.argument_leases import Leases
from alight._src.jit.array_program import key_of, lie_on_device
from alight._src.jit.body_ending import UNDONE, EndedBody, ending_of
from alight._src.jit.call_phases import NUMPYS, OPEN, OURS, RACES, SETTLED, Event, Phase, Way
from alight._src.jit.call_signature import CallSignature, describe, outline
from alight._src.jit.function_states import EXACT_KINDS, Learned, States
from alight._src.jit.globals_rewrite import inside
from alight._src.jit.guard_entries import direct_entry
from alight._src.jit.guarding import GuardCache, MissedCall
from alight._src.jit.held_locks import holds_locks
from alight._src.jit.host_call import HostAdapter, kinds_of
from alight._src.jit.host_program import HostProgram, NothingWritten
from alight._src.jit.kernel_race import PROGRAMS
from alight._src.jit.numpy_generators import writes_into_arrays
from alight._src.jit.reachability import Reachability
from alight._src.jit.scope import as_jitted, running
from alight._src.jit.specialization import GRACE_SECONDS, Bits, Specialization
from alight._src.jit.trace import ArrayTrace, StartsAnew, Trace
from alight._src.jit.traced_program import make_array_program, make_program
from alight._src.log.decisions import LOG
from alight._src.record.tracebacks import hide_ours
from alight._src.run import evaluate
from alight._src.run.plans_behind import Behind, is_coming
from alight._src.run.prepared_step import kernels_at_hand, stood_in
from alight.backends import registry

__all__ = ["Dispatching"]

# As if a call that cannot be described were given so many: 4,000 objects of it are looked at, which
# takes some 4 ms, once for all that look alike.
_OUTLINED_ELEMENTS = 4_000_000


class Dispatching(GuardCache):
    """A guard, and all that answers calls which it does not know."""

    __wrapped__: Any
    __qualname__: str
    declared_pure: bool
    _states: States

    def miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call that no guarded entry answers."""
        try:
            return self._called(args, kwargs)
        except BaseException as error:
            hide_ours(error)
            raise

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        way = running.way
        if way is not None:  # a jitted function inside another runs as the outer one does
            function = inside(self.__wrapped__) if way == "ours" else self.__wrapped__
            return function(*args, **kwargs)
        if kwargs:
            positional = by_position(self.__wrapped__, args, kwargs)
            if positional is not None:
                return self(*positional)  # which the guard may know
        described = describe(args, kwargs)
        here = current_policy()
        if not here.enabled:
            return self.__wrapped__(*args, **kwargs)
        if described is None:
            return self._on_undescribed(args, kwargs, here)
        if recording_errstate() is not None:
            return self._on_ndarrays(args, kwargs, described, here)
        # NumPy acts at each op
        if not here.leaves_choice:
            return self._body(args, kwargs, here, described)
        if not collected() or not self._learned().proof.pure:
            return self._at_once(args, kwargs, described, here)
        with told_inside():
            return self._on_ndarrays(args, kwargs, described, here)

    def _at_once(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        described: CallSignature,
        here: Policy,
    ) -> Any:
        """Return the result of a call in which NumPy acts at each op: all of it is NumPy's, unless
        ours has given other bits."""
        learned = self._learned()
        kind = learned.specialization(described, here, self.remove)
        if kind.bits is not Bits.SAME and kind.phase not in NUMPYS:
            return self._body(args, kwargs, here, described)
        began = perf_counter()
        result = self._numpy(args, kwargs)
        kind.ran_numpy(perf_counter() - began)
        if len(kind.numpy_seconds) > 1 and kind.phase not in OURS:
            missed = MissedCall(args, kwargs, described, here, learned, kind)
            settled = kind.phase in SETTLED
            self.answer_with_numpy(missed, kind.asks_in() if settled else 0.0)
        return result

    def _on_undescribed(self, args: tuple[Any, ...], kwargs: dict[str, Any], here: Policy) -> Any:
        """Return the result of a call of which some arguments cannot be described."""
        if any([issubclass(type(item), ArrayBase) for item in (*args, *kwargs.values())]):
            if not kwargs and not modes_here():
                return self._on_arrays(args, here)
            return self._body(args, kwargs, here)
        if not here.leaves_choice or recording_errstate() is None:
            return self._body(args, kwargs, here)
        learned = self._learned()
        kind = learned.outlined(
            *(outline(args, kwargs), here, self.remove),
            lambda: Reachability((args, kwargs), _OUTLINED_ELEMENTS).leads_to(ArrayBase),
        )
        return self._answered(MissedCall(args, kwargs, None, here, learned, kind), None)

    def _on_ndarrays(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        described: CallSignature,
        here: Policy,
    ) -> Any:
        """Return the result of a call of which the arguments are described, whichever way it
        takes."""
        # The state that everything below rests on: what is named may change meanwhile.
        learned = self._learned()
        kind = learned.specialization(described, here, self.remove)
        program = kind.program(described.scalars)
        if program is not None and not program.may_wait:
            return self._body(args, kwargs, here, described)
        missed = MissedCall(args, kwargs, described, here, learned, kind)
        return self._answered(missed, program)

    def _answered(self, missed: MissedCall, program: HostProgram | None) -> Any:
        """Return the result of a call by the way that its kind takes."""
        learned, kind = missed.learned, missed.specialization
        before = kind.phase
        answer = learned.answers.get(id(kind))
        if answer is not None:
            self.hear(answer, missed, put_back=before in SETTLED)
            before = kind.phase
        result = NotImplemented
        if program is not None and before in RACES:
            result = self.race_kernels(missed, program)
        if result is NotImplemented:
            result = self._by_its_way(missed, program)
        now = kind.phase
        if now is not before and now is Phase.ON_NUMPY:
            LOG.demotion(f"jit {self.__qualname__}", kind.why, self._place)
        return result

    def _by_its_way(self, missed: MissedCall, program: HostProgram | None) -> Any:
        learned, kind = missed.learned, missed.specialization
        arrays = 0 if (described := missed.described) is None else len(described.arrays)
        way = kind.way(program, learned.proof.ops, arrays, _all_there)
        if way in _PLANNED and not _may_run(kind):
            if kind.phase is Phase.COLD:  # the guard has such calls meanwhile
                return self._time_numpy(missed, program, Way.NUMPY_FOR_NOW)
            return self._numpy(missed.args, missed.kwargs)  # nothing noted: it was nobody's turn
        result = _ANSWERS[way](self, missed, program, way)
        if kind.phase in OPEN:
            kind.judge()
        return result

    def _time_numpy(self, missed: MissedCall, program: HostProgram | None, way: Way) -> Any:
        kind = missed.specialization
        # NumPy has memory of its own: beside it is kept what the next run of ours gives back to.
        keep_only(program.result_bytes if program is not None else 0)
        began = perf_counter()
        result = self._numpy(missed.args, missed.kwargs)
        kind.ran_numpy(perf_counter() - began)
        if way is Way.NUMPY_TOLD:
            for lacks in kind.unopened:
                evaluate.ran_without(lacks)
        # While laps are run each call comes here: one a call.
        elif (
            kind.race is None
            and len(kind.numpy_seconds) > 1
            and (way is not Way.TURNS or kind.puts_off())
        ):
            waits = way is Way.NUMPY or kind.phase is Phase.WAITING
            self.answer_with_numpy(missed, kind.asks_in() if waits else 0.0)
        return result

    def _launch_ours(self, missed: MissedCall, program: HostProgram | None, way: Way) -> Any:
        if program is not None and program.plan.unopened_devices is None:
            self.launch_directly(missed, program)
        return self._ours(missed, program, way)

    def _ours(self, missed: MissedCall, program: HostProgram | None, way: Way) -> Any:
        described = missed.described
        if program is None or described is None:
            return self._body(missed.args, missed.kwargs, missed.here, described, missed)
        try:
            return program.run(described.arrays)
        except NothingWritten as error:
            LOG.fallback(f"jit {self.__qualname__}", f"{error.__cause__!r}", self._place)
            return self._numpy(missed.args, missed.kwargs)

    def _watch_ours(self, missed: MissedCall, program: HostProgram | None, way: Way) -> Any:
        began = perf_counter()
        result = self._ours(missed, program, way)
        seconds = perf_counter() - began
        kind = missed.specialization
        kind.spent_seconds += seconds
        kind.has_run(seconds)
        return result

    def _time_ours(self, missed: MissedCall, program: HostProgram | None, way: Way) -> Any:
        kind = missed.specialization
        cold = kind.phase is Phase.COLD
        before = stood_in.times
        measuring = FOREGROUND.own_seconds
        began = perf_counter()
        result = self._ours(missed, program, way)
        seconds = perf_counter() - began - (FOREGROUND.own_seconds - measuring)
        if cold and kind.programs:
            FOREGROUND.traced(seconds)
        # A run in which NumPy stood in for a kernel that is still being made is no run of ours yet.
        other = stood_in.times != before or bool(kind.behind)
        kind.ran_alight(seconds, cold=cold or other)
        # Where NumPy is timed beside ours, ours runs whoever is faster: to count that as measuring
        # would put off the very run that ends it.
        if kind.numpy_seconds and kind.bits is Bits.SAME:
            FOREGROUND.spend(max(0.0, seconds - kind.numpy_seconds[0]))
        if program is not None and not program.once and kind.wants_shadow():
            kind.ran_numpy(self.shadow(program, missed.args, missed.kwargs))
        return result

    def _on_arrays(self, args: tuple[Any, ...], here: Policy) -> Any:
        """Return the result of a call with what may be Arrays of the caller's."""
        learned = self._learned()
        proof, on_ours, guarded = learned.proof, learned.on_ours, learned.guarded
        kinds = kinds_of(args) if proof.pure else None
        if kinds is None:
            return self._body(args, {}, here)
        # what lies on a device that is open takes it part where the policy leaves that open
        alone = len(registry.devices_allowed(here)) == 1 and (
            registry.only_host() or not registry.leaves_open(here) or not lie_on_device(args)
        )
        found = key_of(args)
        key = None if found is None else (found, here.stamp)
        program = on_ours.get(key)
        hosted = None
        if not proof.declared and (alone or (program is not None and program.at_home)):
            hosted = self._on_host((kinds, here.stamp), learned)
            result = hosted(*args)
            if result is not NotImplemented:
                if alone:
                    if hosted.entry is None:
                        hosted.entry = direct_entry(hosted, args, proof.lookups)
                    self.put_back(hosted.entry)
                return result
        if program is not None:
            result = program.run(args)
            if program.direct is not None and key not in guarded:
                guarded[key] = direct_entry(program.direct.call, args, proof.lookups)
            self.put_back(guarded.get(key))
        elif key is None:
            result = self._body(args, {}, here)
        else:
            tracing = None
            if key not in on_ours and len(on_ours) < 2 * EXACT_KINDS:
                tracing = ArrayTrace(args)
            result = self._body(args, {}, here, tracing=tracing)
            if tracing is not None and learned.holds():
                on_ours[key] = tracing.made
        if hosted is not None and hosted.failed:  # and the body, on the Arrays, did not
            hosted.refused = True
        return result

    def _on_host(self, key: Any, learned: Learned) -> HostAdapter:
        """Return what answers calls on Arrays of these kinds by calls on ndarrays."""
        hosted = learned.hosted.get(key)
        if hosted is None:
            if len(learned.hosted) >= EXACT_KINDS:
                oldest = learned.hosted.pop(next(iter(learned.hosted)))
                if oldest.entry is not None:
                    self.remove(oldest.entry)
            hosted = learned.hosted[key] = HostAdapter(self)
        return hosted

    def _numpy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        running.way = "numpy"
        try:
            return self.__wrapped__(*args, **kwargs)
        finally:
            running.way = None

    def shadow(self, program: HostProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        """Return the seconds that NumPy takes for a call of a pure function."""
        function = self.__wrapped__
        keep_only(program.result_bytes)
        running.way = "numpy"  # outside of the clock: it takes a tenth of a short call
        try:
            with (
                FOREGROUND.measuring(),
                warnings_suppressed() if program.warns else np.errstate(all="ignore"),
            ):
                began = perf_counter()
                function(*args, **kwargs)
                return perf_counter() - began
        finally:
            running.way = None

    def _body(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        here: Policy,
        described: CallSignature | None = None,
        missed: MissedCall | None = None,
        tracing: ArrayTrace | None = None,
    ) -> Any:
        """Return the result of running the body on Arrays; where it can be replayed, keep it as
        a program."""
        began = perf_counter()
        leases = Leases()
        proven = missed is not None and missed.learned.proof.pure
        given, keywords = leases.take(args, kwargs, described, None if proven else self.__wrapped__)
        if leases.reach is not None and (why := _left_to_numpy(leases.reach)) is not None:
            LOG.demotion(f"jit {self.__qualname__}", why, self._place)
            if missed is not None:
                missed.specialization.came(Event.NOT_KEPT)
            return self._numpy(args, kwargs)
        patience = ends = early = waits = math.inf
        if missed is not None and leases.can_be_dropped and _is_numpys_too(missed):
            patience = missed.specialization.patience
        if missed is not None and here.leaves_choice:
            ends = began + missed.specialization.may_take()
            early = missed.specialization.may_lose()
            if proven and not missed.learned.proof.declared and are_told_once():
                waits = patience
        trace = tracing or Trace(leases.leases, ends, waits, GRACE_SECONDS, early)
        errstate = recording_errstate()
        pending = floor.count
        later = ""
        wanted = missed is not None and proven and missed.specialization.tries < PROGRAMS
        # Below the floor NumPy would do each op at once and nothing would be left to replay. Also
        # when no more traces are made: what is raced must be what runs afterwards. And what lies on
        # a device would be NumPy's op by op, for good, from the first time the host has read it.
        away = tracing is not None and tracing.away
        whole = ((proven and described is not None) or away) and here.leaves_choice
        recording = policy(floor=0) if whole else nullcontext()
        outside = POLICY.get()
        program = None
        raised: BaseException | None = None
        with as_jitted(self.__wrapped__, trace) as function, recording:
            try:
                result = function(*given, **keywords)
                if wanted:
                    try:
                        program = make_program(trace, leases, result, errstate, patience)
                    except Behind as comes:
                        later, result = comes.name, None
                elif tracing is not None:
                    make_array_program(tracing, result, errstate)
            except StartsAnew:
                result = None
            except BaseException as error:
                raised = error
                raise
            finally:
                trace.closed = True
                ending = ending_of(trace, later)
                if trace.given_up:
                    POLICY.set(outside)
                if ending in UNDONE:
                    floor.count = pending
                    leases.drop()
                leases.settle()
                leases.give_kept(raised)
                raised = None  # it leads to this frame
            result = leases.give(None if ending in UNDONE else result)
        if missed is None:
            return result
        if leases.changed:
            program = None
        ended = EndedBody(trace, later, perf_counter() - began, program, wanted, whole)
        ended.note(ending, missed)
        return self._numpy(args, kwargs) if ending in UNDONE else result

    # -- what is known ----------------------------------------------------------------------------
    def _learned(self) -> Learned:
        """Return what was learned of the function as things stand now."""
        return self._states.current(self.__wrapped__, self.declared_pure, self.remove)

    @property
    def _place(self) -> tuple[Any, int]:
        return self.__wrapped__.__code__, 0


_ANSWERS = {
    Way.NUMPY: Dispatching._time_numpy,
    Way.NUMPY_FOR_NOW: Dispatching._time_numpy,
    Way.NUMPY_TOLD: Dispatching._time_numpy,
    Way.TURNS: Dispatching._time_numpy,
    Way.OURS: Dispatching._watch_ours,
    Way.OURS_TIMED: Dispatching._time_ours,
    Way.LAUNCHED: Dispatching._launch_ours,
}


# Ways on which something may have to be planned.
_PLANNED = frozenset((Way.OURS, Way.OURS_TIMED, Way.LAUNCHED))


def _all_there(program: HostProgram) -> bool:
    """Tell whether all kernels of a program are there."""
    return all(kernels_at_hand(program.plan))


def _may_run(kind: Specialization) -> bool:
    """Tell whether what plans is there, and the plan of a kind of call, if it is made behind."""
    if not first_plan.is_here() or (kind.behind and is_coming(kind.behind)):
        return False
    kind.behind = ""
    return True


def _is_numpys_too(missed: MissedCall) -> bool:
    """Tell whether NumPy may have a call whose body has just run on Arrays, and nothing of it was
    done: nobody waits for what plans give."""
    kind = missed.specialization
    return kind.bits is Bits.SAME and kind.phase not in OURS and not first_plan.wants_plans()


def _left_to_numpy(reach: Reachability) -> str | None:
    """Return why what a body reaches is written by NumPy alone, None where it is not."""
    if writes_into_arrays(reach):
        return "generators of NumPy's own write into its arrays"
    return "it holds a lock while it writes" if holds_locks(reach) else None
