"""`@alight.jit`: a plain function written with `import numpy as np`, run through alight.

NumPy arrays go in and come out. What the function assigns into its arguments, the caller sees, and
all work is done when it returns.
"""

from __future__ import annotations

import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from functools import update_wrapper
from time import perf_counter
from types import FunctionType, MethodType
from typing import Any, NamedTuple, Never, TypeVar, cast, overload
from weakref import WeakSet

from alight._core import recording_errstate
from alight._core.guard import by_position
from alight._src.adapt.first_plan import plan_at_once
from alight._src.adapt.kernel_trial import FOREGROUND
from alight._src.base.originals import np
from alight._src.config.loading import current_policy, policy
from alight._src.config.schema import truth
from alight._src.fp_warnings.errstate import modes_here
from alight._src.fp_warnings.filters import collected, told_inside, unheard
from alight._src.jit.argument_leases import Leases
from alight._src.jit.array_program import Tracing, key_of
from alight._src.jit.call_signature import Described, describe
from alight._src.jit.globals_rewrite import inside
from alight._src.jit.guard_entries import direct_entry
from alight._src.jit.guarding import Answering, Missed, is_made
from alight._src.jit.host_call import Hosted, kinds_of
from alight._src.jit.host_program import HostProgram
from alight._src.jit.numpy_generators import writes_into_arrays
from alight._src.jit.purity import declare_pure, prove
from alight._src.jit.scope import as_jitted, running
from alight._src.jit.site import PLANNING_SHARE, Site
from alight._src.jit.specializations import EXACT_SITES, Learned, States
from alight._src.jit.trace import Trace, make_program
from alight._src.log.call_site import owned
from alight._src.log.decisions import LOG
from alight._src.record.pending import record_floor
from alight._src.record.tracebacks import hide_ours
from alight._src.run import evaluate
from alight._src.run.execute import stood_in
from alight.backends import registry

__all__ = ["Jitted", "as_jitted", "jit"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _of_wrapped(name: str) -> Any:
    """Return a property that is the wrapped function's attribute of this name."""

    def read(self: Jitted) -> Any:
        return getattr(self.__wrapped__, name)

    def write(self: Jitted, value: Any) -> None:
        setattr(self.__wrapped__, name, value)

    return property(read, write)


class Jitted(Answering):
    """A function run through alight. Called like the function; `__wrapped__` is the function
    itself."""

    __wrapped__: Any  # a plain Python function
    __name__: str
    __qualname__: str
    declared_pure: bool

    def __init__(self, function: FunctionType, pure: bool) -> None:
        super().__init__()
        update_wrapper(self, function)
        self.declared_pure = pure
        self._states = States()
        _all.add(self)
        owned(function)
        plan_at_once()  # what a call takes is measured, planned and not

    # What a program may rebind to change what a call does.
    __code__ = _of_wrapped("__code__")
    __defaults__ = _of_wrapped("__defaults__")
    __kwdefaults__ = _of_wrapped("__kwdefaults__")

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        # By name, as functions are; by value where the pickler does that with functions, too.
        pickler = sys._getframe(1).f_globals.get("__name__", "")
        if "cloudpickle" not in pickler or self._is_importable():
            return self.__qualname__
        return _jitted, (self.__wrapped__, self.declared_pure)

    def _is_importable(self) -> bool:
        """Tell whether another process finds this very function by its name."""
        found: Any = None if self.__module__ == "__main__" else sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        return found is self

    def __copy__(self) -> Jitted:
        return self

    def __deepcopy__(self, memo: Any) -> Jitted:
        return self

    def __repr__(self) -> str:
        return f"<alight.jit of {self.__wrapped__!r}>"

    def forget(self) -> None:
        """Drop all that was learned: the plans it rests on are gone."""
        self.clear()
        self._states.clear()

    @property
    def settled(self) -> bool:
        """Tell whether every kind of call met so far goes the way it will go from now on."""
        return all(site.settled for site in tuple(self._sites.values()))

    @property
    def _sites(self) -> OrderedDict[Any, Site]:
        return self._learned().sites

    # -- one call ---------------------------------------------------------------------------------
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
        if described is None or recording_errstate() is None:  # NumPy acts at each op
            if described is None and not kwargs and not modes_here():
                return self._on_arrays(args)
            if described is None or not _raced():
                return self._body(args, kwargs)
            if not collected() or not self._learned().proof.pure:
                return self._at_once(args, kwargs, described)
            with told_inside():
                return self._on_ndarrays(args, kwargs, described)
        return self._on_ndarrays(args, kwargs, described)

    def _at_once(self, args: tuple[Any, ...], kwargs: dict[str, Any], described: Described) -> Any:
        """Return the result of a call in which NumPy acts at each op: all of it is NumPy's, unless
        ours has given other bits."""
        learned = self._learned()
        site = learned.site(described, True, self.remove)
        if not site.exact and site.verdict != "numpy":
            return self._body(args, kwargs)
        began = perf_counter()
        result = self._numpy(args, kwargs)
        site.ran_theirs(perf_counter() - began)
        if len(site.theirs) > 1 and site.verdict != "ours":
            missed = Missed(args, kwargs, described, learned, site)
            self.answer_with_numpy(missed, site.verdict is None)
        return result

    def _on_ndarrays(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], described: Described
    ) -> Any:
        """Return the result of a call of which the arguments are described, whichever way it
        takes."""
        # The state that everything below rests on: what is named may change meanwhile.
        learned = self._learned()
        proof = learned.proof
        site = learned.site(described, _raced(), self.remove)
        program = site.program(described.scalars)
        if program is not None and not program.may_wait:
            return self._body(args, kwargs)
        missed = Missed(args, kwargs, described, learned, site)
        if not _raced():
            if program is None:
                if not site.idle:
                    return self._body(args, kwargs, missed)
                self.answer_with_numpy(missed, again=False)
                return self._numpy(args, kwargs)
            if site.shortcut is None and program.plan.foregone is None:
                self.launch_directly(missed, program)
            return program.run(described.arrays)
        if site.settled:
            self.put_back(learned.answers.get(id(site)))
        self.hear(learned, site)
        if program is not None and site.shortcut is None and not site.foregone:
            self.race_kernels(missed, program)
        waits = site.waits(proof.ops) or is_made(site, program)
        if waits or site.verdict == "numpy" or site.numpys_turn():
            began = perf_counter()
            result = self._numpy(args, kwargs)
            site.ran_theirs(perf_counter() - began)
            later = waits or site.puts_off()
            if site.foregone:
                for lacks in site.foregone:
                    evaluate.ran_without(lacks)
            # While laps are run each call comes here: one a call.
            elif site.laps is None and len(site.theirs) > 1 and (later or site.verdict == "numpy"):
                raced = program is None or site.shortcut is not None
                self.answer_with_numpy(missed, later or not raced)
        else:
            result = self._time_ours(missed, program)
        site.judge()
        if (
            site.verdict == "numpy"
            and not site.told
            and (program is None or site.shortcut is False)
        ):
            self._tell(site)
        return result

    def _time_ours(self, missed: Missed, program: HostProgram | None) -> Any:
        args, kwargs, site = missed.args, missed.kwargs, missed.site
        before = stood_in.times
        measuring = FOREGROUND.spent_seconds
        began = perf_counter()
        if program is None:
            result = self._body(args, kwargs, missed)
        else:
            result = program.run(missed.described.arrays)
        seconds = perf_counter() - began - (FOREGROUND.spent_seconds - measuring)
        if program is None and site.cold == 0 and site.programs:
            FOREGROUND.trace_seconds = min(FOREGROUND.trace_seconds, seconds)
        # A run in which NumPy stood in for a kernel that is still being made is no run of ours yet.
        early = stood_in.times != before
        site.ran_ours(seconds, cold=early or (program is None and site.cold == 0))
        # Where NumPy is timed beside ours, ours runs whoever is faster: to count that as measuring
        # would put off the very run that ends it.
        if site.theirs and site.exact:
            FOREGROUND.spent_seconds += max(0.0, seconds - site.theirs[0])
        if program is not None and not program.once and site.wants_shadow():
            site.ran_theirs(self.shadow(program, args, kwargs))
        return result

    def _on_arrays(self, args: tuple[Any, ...]) -> Any:
        """Return the result of a call with what may be Arrays of the caller's."""
        learned = self._learned()
        proof, on_ours, guarded = learned.proof, learned.on_ours, learned.guarded
        stamp = current_policy().stamp
        kinds = kinds_of(args) if proof.pure else None
        if kinds is None:
            return self._body(args, {})
        alone = len(registry.devices_allowed(current_policy())) == 1
        found = key_of(args)
        key = None if found is None else (found, stamp)
        program = on_ours.get(key)
        hosted = None
        if not proof.declared and (alone or (program is not None and program.at_home)):
            hosted = self._on_host((kinds, stamp), learned)
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
            result = self._body(args, {})
        else:
            tracing = None
            if key not in on_ours and len(on_ours) < 2 * EXACT_SITES:
                tracing = Tracing(args)
            result = self._body(args, {}, tracing=tracing)
            if tracing is not None and learned.holds():
                on_ours[key] = tracing.made
        if hosted is not None and hosted.failed:  # and the body, on the Arrays, did not
            hosted.refused = True
        return result

    def _on_host(self, key: Any, learned: Learned) -> Hosted:
        """Return what answers calls on Arrays of these kinds by calls on ndarrays."""
        hosted = learned.hosted.get(key)
        if hosted is None:
            if len(learned.hosted) >= EXACT_SITES:
                oldest = learned.hosted.pop(next(iter(learned.hosted)))
                if oldest.entry is not None:
                    self.remove(oldest.entry)
            hosted = learned.hosted[key] = Hosted(self)
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
        running.way = "numpy"  # outside of the clock: it takes a tenth of a short call
        try:
            with unheard() if program.warns else np.errstate(all="ignore"):
                began = perf_counter()
                function(*args, **kwargs)
                seconds = perf_counter() - began
        finally:
            running.way = None
        FOREGROUND.spent_seconds += seconds
        return seconds

    def _body(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        missed: Missed | None = None,
        tracing: Tracing | None = None,
    ) -> Any:
        """Return the result of running the body on Arrays; where it can be replayed, keep it as
        a program."""
        began = perf_counter()
        leases = Leases()
        proven = missed is not None and missed.learned.proof.pure
        given, keywords = leases.take(args, kwargs, None if proven else self.__wrapped__)
        if leases.reach is not None and writes_into_arrays(leases.reach):
            why = "generators of NumPy's own write into its arrays"
            LOG.demotion(f"jit {self.__qualname__}", why, self._place)
            return self._numpy(args, kwargs)
        trace = tracing or Trace()
        errstate = recording_errstate()
        wanted = proven and missed is not None and missed.site.may_trace()
        # Below the floor NumPy would do each op at once and nothing would be left to replay. Also
        # when no more traces are made: what is raced must be what runs afterwards. And what lies on
        # a device would be NumPy's op by op, for good, from the first time the host has read it.
        away = tracing is not None and tracing.away
        whole = (proven or away) and _raced()
        recording = policy(floor=0) if whole else nullcontext()
        program = None
        raised: BaseException | None = None
        with as_jitted(self.__wrapped__, trace) as function, recording:
            try:
                result = function(*given, **keywords)
                if wanted:
                    program = make_program(trace, leases, result, errstate)
                elif tracing is not None:
                    tracing.make(result, errstate)
            except BaseException as error:
                raised = error
                raise
            finally:
                trace.closed = True
                leases.settle()
                leases.give_kept(raised)
                raised = None  # it leads to this frame
            result = leases.give(result)
        if missed is not None:
            site = missed.site
            site.exact = site.exact and trace.exact
            site.foregone = tuple(trace.foregone)
            if whole and not trace.ours and site.verdict is None:
                site.verdict = "numpy"  # it is NumPy's all the same, and recorded besides
            planning = trace.steps * _planning_seconds()
            site.planned = PLANNING_SHARE * planning > perf_counter() - began
            if wanted:
                site.tries += 1
                straight = missed.learned.proof.straight and not kwargs
                site.idle = straight and not trace.requests and _below_floor(args)
                if program is not None and not leases.changed and missed.learned.holds():
                    site.keep(missed.described.scalars, program)
        return result

    # -- what is known ----------------------------------------------------------------------------
    def _learned(self) -> Learned:
        """Return what was learned of the function as things stand now."""
        learned = self._states.current()
        if learned is None:
            function = self.__wrapped__
            learned = Learned(declare_pure(function) if self.declared_pure else prove(function))
            gone = self._states.add(learned)
            for entry in gone.entries() if gone is not None else ():
                self.remove(entry)
        return learned

    def _tell(self, site: Site) -> None:
        """Log that this kind of call is NumPy's from now on, and why."""
        site.told = True
        LOG.demotion(f"jit {self.__qualname__}", site.why, self._place)

    @property
    def _place(self) -> tuple[Any, int]:
        return self.__wrapped__.__code__, 0

    def standing(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Standing:
        """Return which way calls with such arguments take as things stand, and why."""
        described = describe(args, kwargs)
        if described is None:
            way, why = "alight", "its arguments have no form that a plan could be kept for"
        else:
            site = self._learned().site(described, _raced(), self.remove)
            way, why = site.verdict or "undecided", site.why
            if not _raced():
                way, why = "alight", "the policy says so"
                if site.idle and not site.programs:
                    way, why = "numpy", _BELOW_FLOOR
        way = "alight" if way == "ours" else way
        return Standing(f"jit {self.__qualname__}", self._place, way, why)


_BELOW_FLOOR = (
    "every step of it is below the floor, forced or not. Fix: alight.policy(floor=0) has it planned"
)


class Standing(NamedTuple):
    """Which way a kind of call takes ("numpy", "alight", "undecided"), and why."""

    name: str
    site: tuple[Any, int]
    way: str
    reason: str


_all: WeakSet[Jitted] = WeakSet()


def _forget_all() -> None:
    for jitted in tuple(_all):
        jitted.forget()


evaluate.forgetting.append(_forget_all)


def _below_floor(args: tuple[Any, ...]) -> bool:
    """Tell whether arguments are small arrays and nothing else."""
    small = [type(item) is np.ndarray and item.size < record_floor() for item in args]
    return bool(args) and all(small)


def _raced() -> bool:
    """Tell whether the choice between NumPy and alight is open here."""
    here = current_policy()
    return here.force is None and not here.floor


_planning: list[float] = []


def _planning_seconds() -> float:
    """Return what a step costs beyond its kernel, measured once."""
    if not _planning:
        _planning.append(evaluate.planning_seconds())
    return _planning[0]


@overload
def jit(function: _Function, /) -> _Function: ...
@overload
def jit(*, pure: bool = False) -> Callable[[_Function], _Function]: ...
def jit(function: Any = None, /, *, pure: bool = False, **unknown: Never) -> Any:
    """Return the function run through alight: same arguments, same results, NumPy arrays in and
    out.

    Its body runs at every call, unless it is seen to do nothing but compute, or ``pure=True`` says
    so: then what it computed is run again without it. ``pure=True`` promises that results depend on
    the arguments alone and that nothing but arguments is changed.

    >>> import numpy as np
    >>> @jit
    ... def relief(z):
    ...     return np.hypot(z[1:, :-1] - z[:-1, :-1], z[:-1, 1:] - z[:-1, :-1])
    >>> relief(np.arange(9.0).reshape(3, 3) ** 2).shape
    (2, 2)
    """
    for name in unknown:
        raise TypeError(
            f"alight.jit: {name!r} is not an argument of it. "
            "Fix: leave it out; pure= is all that it takes."
        )
    pure = truth(pure, "argument pure")
    if function is None:
        return lambda function: jit(function) if not pure else _jitted(function, pure=True)
    return _jitted(function, pure)


def _jitted(function: Any, pure: bool) -> Any:
    if isinstance(function, Jitted):
        return function if function.declared_pure == pure else Jitted(function.__wrapped__, pure)
    if not isinstance(function, FunctionType):
        kind = type(function).__name__
        raise TypeError(
            f"alight.jit takes a Python function, not {function!r} of type {kind}. Fix: "
            "decorate the function itself, below staticmethod, classmethod or property."
        )
    if (
        inspect.isgeneratorfunction(function)
        or inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise TypeError(
            f"alight.jit on {function.__qualname__}: the body of a generator or coroutine runs "
            "after the call has returned. Fix: decorate the functions it calls."
        )
    return cast(Any, Jitted(function, pure))
