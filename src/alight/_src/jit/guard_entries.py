"""Entries of a call guard: from a program that is kernels, and for functions that are NumPy's.

What the guard launches is counted there and joins the log when somebody reads it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from functools import cache, partial
from typing import Any
from weakref import ref

from alight._core import POLICY, threads
from alight._core.guard import WATCHED, Call, Entry
from alight._src.base.classes import is_among
from alight._src.base.originals import np
from alight._src.base.records import replace
from alight._src.config import loading
from alight._src.fp_warnings.errstate import ERRSTATE, USUAL
from alight._src.jit.host_program import HostProgram, Launchable, called
from alight._src.jit.purity import ABSENT, Lookup
from alight._src.jit.reachability import NdArray
from alight._src.log.decisions import LOG, eligible_elements
from alight._src.plan.plan import Candidate, Decision, Estimate, LaunchStep, Plan
from alight._src.run import evaluate
from alight._src.run.plans_behind import WAIT_SECONDS, begin
from alight._src.run.prepared_step import kernel_of
from alight.device import HOST_DEVICE, Reason

__all__ = [
    "call_entry",
    "call_pattern",
    "direct_entry",
    "generated",
    "kernel_entry",
    "launches_of",
    "measured",
    "promises",
    "watch_entry",
]

with np.errstate(all="ignore"):
    SILENT = ERRSTATE.get()


def _contexts() -> tuple[tuple[ContextVar[Any], Any, Any], ...]:
    """Return the context that an entry made now holds in: this policy, this errstate."""
    return (POLICY, None, POLICY.get()), (ERRSTATE, USUAL, ERRSTATE.get(USUAL))


def _lookups(lookups: Sequence[Lookup]) -> list[tuple[Any, Any, Any]]:
    loading.current_policy()  # the process's own is read at the first use
    base = Lookup(vars(loading), "_base", vars(loading)["_base"])
    return [tuple(lookup) for lookup in (base, *lookups)]


def call_pattern(args: tuple[Any, ...], wide: Sequence[NdArray] = ()) -> tuple[Any, ...]:
    """Return a pattern of arguments that are NumPy's as these are: of other integers, those of as
    many bits (they may be lengths), and all other floats and containers. ``wide``: of these arrays
    all of their dtypes and as many bits' worth of elements, too, where no array is given twice."""
    known = {id(array) for array in wide}
    given = [item for item in args if type(item) is np.ndarray]
    wide_too = len(given) == len(known) == len({id(item) for item in given} & known)
    return tuple([_like(item, wide_too) for item in args])


_BY_VALUE = (bool, str, bytes, type(None))


def _like(item: Any, wide: bool) -> Any:
    kind = type(item)
    if kind is int:
        return kind, item.bit_length()
    if kind is np.ndarray:
        return (item.dtype, item.size.bit_length()) if wide else item
    return item if is_among(kind, _BY_VALUE) else kind


def call_entry(
    function: Any, pattern: tuple[Any, ...], left: int, lookups: Sequence[Lookup] = ()
) -> Entry:
    """Return an entry that calls a function as it is for arguments of this pattern.

    After ``left`` calls (-1: never) the guard asks again, and where a lookup does not hold: another
    state of what the function names may not be NumPy's.
    """
    policy = (POLICY, None, POLICY.get())
    found = _lookups(lookups)
    return Entry(pattern, found, ABSENT, (policy,), call=function, left=left)


def direct_entry(call: Any, args: tuple[Any, ...], lookups: Sequence[Lookup]) -> Entry:
    """Return an entry that has arguments of these types looked at, and answered, by ``call``."""
    pattern = tuple([item if type(item) is np.ndarray else type(item) for item in args])
    return Entry(pattern, _lookups(lookups), ABSENT, _contexts(), call=call, looks=True)


def generated(
    program: HostProgram, patience: float = WAIT_SECONDS
) -> tuple[Plan, Launchable | None]:
    """Return the plan that computes a program in generated kernels on the host, where that can
    be, and these, where there is nothing between them but calls. `Behind` is raised while it is
    still to be planned, where that takes longer than ``patience`` seconds."""
    if program.generated is None:
        if not _is_generated(program.plan):
            plan = partial(_generate, program)
            begin(ref(program), len(program.graph.nodes), plan, patience)
        _generate(program)
    assert program.generated is not None
    return program.generated


def _generate(program: HostProgram) -> None:
    plan = program.plan
    if not _is_generated(plan):
        with loading.policy(force=f"{HOST_DEVICE}:generated", devices=None, floor=0):
            plan = evaluate.plan_of(program.graph, program.described, len(program.graph.outputs))
    program.generated = plan, program.launchable(plan)


def _is_generated(plan: Plan) -> bool:
    """Tell whether all that a plan launches is generated kernels on the host: to be told that they
    are what is wanted changes nothing about it, and took as long as to plan it."""
    launches = [step for step in plan.steps if isinstance(step, LaunchStep)]
    spots = {(step.device, step.implementation) for step in launches}
    return spots == {(HOST_DEVICE, "generated")}


def kernel_entry(
    launchable: Launchable,
    args: tuple[Any, ...],
    arrays: Sequence[NdArray],
    lookups: Sequence[Lookup],
) -> Entry | None:
    """Return an entry that launches a program's kernels, or None where the guard cannot."""
    places = []
    for leaf in launchable.inputs:
        if isinstance(leaf, np.ndarray):
            places.append((-1, leaf.__array_interface__["data"][0]))
            continue
        number, _, offset = leaf
        array = arrays[number]
        position = next((i for i, item in enumerate(args) if item is array), -1)
        if position < 0:
            return None  # it lies in a container
        low = np.lib.array_utils.byte_bounds(array)[0]
        places.append((position, offset + low - array.__array_interface__["data"][0]))
    if any(isinstance(item, (tuple, list, dict)) for item in args):
        return None
    constants = [leaf for leaf in launchable.inputs if isinstance(leaf, np.ndarray)]
    kernels: list[tuple[Any, int, int, Any, int, Sequence[tuple[int, int]]]] = []
    if not launchable.told <= WATCHED.keys():
        return None
    made = 0
    for step, operands in zip(launchable.steps, launchable.operands, strict=True):
        made += len(step.outputs)
        function = None if step.implementation == "generated" else called(step)
        if function is not None:
            graph = step.group.graph
            numbers = (*graph.nodes[0].operands, len(graph.inputs))  # the result comes last
            like = tuple([graph.layouts[number].probe for number in numbers])
            call = Call(function, like, threads.rest, (ERRSTATE, SILENT))
            given = tuple([operands[number] for number in numbers])
            kernels.append((call, 0, 0, constants, made, given))
            continue
        kernel = kernel_of(step)
        launch = getattr(kernel, "launch", None)
        if launch is None:
            return None
        kernels.append((*launch.entry, (kernel, constants), made, operands))
    return Entry(
        args,
        _lookups(lookups),
        ABSENT,
        _contexts(),
        kernels=kernels,
        inputs=places,
        outputs=[np.empty_like(layout.probe, order="K") for layout in launchable.outputs],
        results=launchable.results,
        scalars=launchable.scalars,
        form=launchable.form,
        watched=sum([WATCHED[category] for category in launchable.told]),
        already_shown=launchable.already_shown,
    )


def promises(launchable: Launchable, seconds: float) -> bool:
    """Tell whether a program's kernels are to be expected to take less than so long; where nothing
    was measured to predict it by, whether none of them does what a library has code for."""
    made = [s.decision.candidates for s in launchable.steps if s.implementation == "generated"]
    own = [c.estimate for candidates in made for c in candidates if c.implementation == "generated"]
    found = [estimate for estimate in own if estimate is not None]
    if len(found) == len(made):
        # A guard's launch is no plan's.
        return sum([e.seconds - e.terms.get("launch", 0.0) for e in found]) < seconds
    return not any([c.implementation == "library" for candidates in made for c in candidates])


def measured(launchable: Launchable, numpy_seconds: float, seconds: float) -> list[Decision]:
    """Return the decisions for kernels that were timed against NumPy and won."""
    count = len(launchable.steps)
    whole = "" if count == 1 else f"of the whole call, which is {count} steps"

    def candidate(step: LaunchStep, implementation: str, value: float) -> Candidate:
        figure = Estimate(value, value, value, {"measured": value})
        for one in step.decision.candidates if count == 1 else ():
            made = one.estimate
            if (one.device, one.implementation) == (HOST_DEVICE, implementation) and made:
                # what its runs take from now on teaches what the model predicts
                figure = replace(figure, cell=made.cell, model_seconds=made.model_seconds)
        return Candidate(HOST_DEVICE, implementation, figure, detail=whole)

    return [
        replace(
            step.decision,
            reason=Reason.CHEAPEST,
            candidates=(
                candidate(step, "numpy", numpy_seconds),
                candidate(step, step.implementation, seconds),
            ),
        )
        for step in launchable.steps
    ]


class _Counted:
    """An entry whose launches are counted in the guard, and what the log needs of them."""

    __slots__ = ("decisions", "eligible", "entry")

    def __init__(
        self, entry: Entry, launchable: Launchable, decisions: Sequence[Decision], site: Any
    ) -> None:
        self.entry = entry
        self.decisions = [(decision, site) for decision in decisions]
        self.eligible: dict[str, int] = {}
        for step in launchable.steps:
            before = self.eligible.get(step.implementation, 0)
            self.eligible[step.implementation] = before + eligible_elements(step.group)

    def collect(self) -> tuple[int, float]:
        calls, seconds = self.entry.take()
        if calls:
            LOG.replayed(self.decisions, calls, seconds)
            LOG.count(launches=calls * len(self.decisions), cache_hits=calls)
            for implementation, elements in self.eligible.items():
                LOG.elements(implementation, HOST_DEVICE, elements * calls)
        return calls, seconds


_counted: list[_Counted] = []
_SWEEP = 256  # entries: at so many those that no guard holds any more are counted and dropped
_sweep_at = _SWEEP


def watch_entry(
    entry: Entry, launchable: Launchable, decisions: Sequence[Decision], site: Any
) -> None:
    """Have an entry's launches join the log."""
    global _sweep_at
    if len(_counted) >= _sweep_at:
        _collect()
        _counted[:] = [c for c in _counted if sys.getrefcount(c.entry) > _alone()]
        # A program that holds many pays for each new one no more than for the first.
        _sweep_at = max(_SWEEP, 2 * len(_counted))
    _counted.append(_Counted(entry, launchable, decisions, site))


def launches_of(entry: Entry) -> tuple[int, float]:
    """Return how often an entry has launched since its launches joined the log, which they do now,
    and their seconds."""
    found = [counted for counted in _counted if counted.entry is entry]
    return found[0].collect() if found else (0, 0.0)


def _collect() -> None:
    for counted in tuple(_counted):
        counted.collect()


@cache
def _alone() -> int:
    # What getrefcount answers differs between interpreters: measure it where it is known.
    counted = _Counted.__new__(_Counted)
    counted.entry = call_entry(len, (), 0)
    return sys.getrefcount(counted.entry)


LOG.collectors.append(_collect)
