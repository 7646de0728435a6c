"""Evaluate: the stations in order, from requested values to host arrays.

One request evaluates every live pending root it is connected to, so that nothing is computed twice.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from alight._core import (
    POLICY,
    Key,
    Layout,
    Storage,
    Value,
    floor,
    make_layout,
    pending_storages,
    request,
)
from alight._src.adapt import first_plan, planner_facts, recalibrate
from alight._src.base.cache_registry import Cache, forget, register
from alight._src.base.originals import np
from alight._src.base.uninterrupted import bring
from alight._src.config.loading import config, current_policy
from alight._src.config.schema import HOST_DEVICE
from alight._src.fp_warnings.emit import note
from alight._src.ir.op_table import OPS
from alight._src.log.decisions import LOG
from alight._src.run import residency
from alight._src.run.watching import watch as watch
from alight.backends import registry
from alight.errors import UnsupportedOnDevice

if TYPE_CHECKING:
    from alight._src.config.policy import Policy
    from alight._src.ir.graph import Graph
    from alight._src.plan.plan import Facts, Plan, UnopenedDevices
    from alight._src.plan.size_classes import Cuts
    from alight._src.run.written_steps import WriteOrder

# What plans, and what runs plans, is imported where it is needed (40 ms): a program whose arrays
# are small, or that has no profile, plans nothing.

HOST = residency.HOST

# Plans by structure and sizes, the oldest first. A plan is a few kB; past this count the program's
# do not repeat and keeping more would only hold memory (1024 plans of 100 nodes stay under 100 MB).
_PLANS_KEPT = 1024
_plans: dict[Key, Plan] = {}
# What plans of one structure have in common, whatever their sizes.
_cuts: Cuts = {}
register(Cache.PLANS, _plans.clear)
register(Cache.PLANS, _cuts.clear)
register(Cache.PLANS, floor.replan)


def _forget_oldest() -> None:
    """Drop the plan made first: nothing that plans were decided by has changed."""
    from alight._src.run.prepared_step import let_go

    let_go(_plans.pop(next(iter(_plans))))
    if len(_cuts) >= _PLANS_KEPT:
        _cuts.clear()


def _after_fork() -> None:
    # What was placed on devices that the parent opened unasked runs elsewhere.
    if registry.orphaned():
        forget(Cache.PLANS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _policy() -> Policy:
    """Return the policy in force: within a block the core has it at hand."""
    return POLICY.get() or current_policy()


def only_on_host(value: Value) -> None:
    """Make a concrete value's host copy the only one: it is about to be written."""
    if value.data is not None:
        residency.only_on_host(value.data)


_JUDGED = "alight._src.run.judged_sites"


def evaluate(values: Iterable[Value], read: bool = True, passing: Storage | None = None) -> None:
    """Make the values concrete, with every live pending value connected to them; ``read``: the
    host is about to read them. ``passing``: what nobody will ask for any more, though it lives.

    Raises the error of the first requested value that failed; the others are still computed.
    """
    asked = [value for value in values if value.op is not None]
    if not asked:
        return
    with residency.LOCK:
        asked = [value for value in asked if value.op is not None]
        began = perf_counter() if floor.judging else 0.0
        found = request(asked, read, _policy().stamp, passing)
        if found is not None:
            _run_timed(*found, began)
            for root in asked:
                error = root.error
                if root.op is not None and isinstance(error, BaseException):
                    root.error = type(error)  # itself it would hold all that its traceback leads to
                    try:
                        raise error
                    finally:
                        del error  # it leads to this frame


def evaluate_all() -> None:
    """Make every live pending storage concrete, but for what has failed; errors stay with their
    values, to be raised when asked."""
    with residency.LOCK:
        floor.count = floor.pending = 0
        roots = [s.value for s in pending_storages() if s.value.error is None]
        began = perf_counter() if floor.judging else 0.0
        found = request(roots, False, _policy().stamp)
        if found is not None:
            _run_timed(*found, began)


def _run_timed(key: Key, values: list[Value], began: float) -> None:
    """Run a request that began to be looked for at ``began``, if call sites are on trial; else
    0.0."""
    if began:
        bring(_JUDGED)
        sys.modules[_JUDGED].run_judged(key, values, began, _run, _plans.get)
    else:
        _run(key, values)


def host_array(value: Value) -> np.ndarray[Any, Any]:
    """Return the value as an ndarray over its host copy. The caller must not write to it."""
    data = value.data
    if data is None:
        if value.op is None:
            constant: np.ndarray[Any, Any] = value.attrs
            return constant
        evaluate((value,))
        data = value.data
        if data is None:  # folded to a constant
            return host_array(value)
    if watch.by is not None:
        watch.by.read(value)
    if data.array is None:
        residency.bring_to_host(data)
    layout = value.layout
    if data.layout is layout and value.offset == 0 and data.array is not None:
        return data.array
    return elements_at(data.raw, value.offset, layout)


def elements_at(raw: np.ndarray[Any, Any], offset: int, layout: Layout) -> np.ndarray[Any, Any]:
    """Return the elements at a place in memory, which is given as bytes, as an ndarray over it."""
    # Where it begins tells an empty array from others; of no rows of three columns, the second lies
    # behind the end, and of such rows in reverse before the beginning.
    first = offset if layout.size else max(0, min(offset, raw.nbytes))
    return np.ndarray(layout.shape, layout.dtype, raw, first, layout.strides)


def duplicate(value: Value) -> Value:
    """Return a value with the elements and layout of a concrete one, in memory of its own."""
    result = Value(None, (), (), value.layout)
    result.data = residency.exact_copy(host_array(value), value.layout)
    return result


def _graph_of(key: Key) -> Graph:
    from alight._src.ir.graph import Graph, Node

    return Graph(
        tuple([leaf[0] for leaf in key.leaves]),
        tuple([Node(*node) for node in key.nodes]),
        key.outputs,
    )


# An input of a request as its key has it: layout, residency, base, and the bytes of the memory that
# it is a part of, 0 where it is all of it.
Leaf = tuple[Layout, frozenset[str], int, int]


def plan_of(graph: Graph, leaves: Sequence[Leaf], read: int = 0) -> Plan:
    """Return the plan the current policy gives this graph with these inputs; the host reads the
    first ``read`` outputs. It is checked where the settings say so."""
    execute = _execution()  # and what is imported here
    from alight._src.adapt import lazy_devices
    from alight._src.base.records import replace
    from alight._src.plan.place import make_plan
    from alight._src.plan.plan import LaunchStep
    from alight._src.run import stored_plans

    here, settings = _policy(), config()
    entry = plan = None
    if not planner_facts.asides and lazy_devices.may_leave_the_host(here):
        from alight._src.run import loop_placement  # late: few have a device

        entry = loop_placement.entry_for(graph, leaves, read, here)
    facts = facts_of(leaves, read)
    facts = facts if entry is None else entry.placed(facts)
    large = not planner_facts.asides and len(graph.nodes) >= stored_plans.LEAST_NODES
    if large:
        plan = stored_plans.found(graph, facts)
    if plan is None:
        plan = make_plan(graph, facts, _cuts)
        if large:
            stored_plans.keep(graph, facts, plan)
    if not planner_facts.asides:
        if settings.calibrate == "auto":
            launches = [step for step in plan.steps if isinstance(step, LaunchStep)]
            recalibrate.note_close([step.decision for step in launches])
            if not registry.only_host():
                from alight._src.adapt import synthetic_trials  # late: few have a device

                synthetic_trials.note_unmeasured(launches)
        if unopened := lazy_devices.waiting(here):
            lacks = lazy_devices.unopened_devices(plan, graph, facts, unopened)
            plan = plan if lacks is None else replace(plan, unopened_devices=lacks)
        if entry is not None:
            plan = entry.planned(plan, facts)
    runner = execute.Execution
    if settings.check:  # and what it does is followed
        bring("alight._src.run.checked_execution")
        from alight._src.run import checked_execution

        checked_execution.prove(plan, graph, facts.bases)
        runner = checked_execution.CheckedExecution
    execute.runner = runner
    return plan


def facts_of(leaves: Sequence[Leaf], read: int = 0) -> Facts:
    """Return all that a plan for these leaves may depend on, as things stand now."""
    _execution()
    from alight._src.adapt.regression_guard import demoted

    here = _policy()
    devices = registry.devices_allowed(here)
    if not registry.only_host():
        devices += registry.devices_holding(here, {space for leaf in leaves for space in leaf[1]})
    if not planner_facts.asides:
        recalibrate.measure_later(devices)
    timed: Any = None
    if here.pick == "measure":
        from alight._src.run import measured_choice  # late: it brings the probes of calibration

        timed = measured_choice.timed
    return planner_facts.facts(here, devices, leaves, read, demoted(), timed)


def asked_for(plan: Plan) -> tuple[Graph, tuple[Leaf, ...], int] | None:
    """Return the graph, the leaves and the number of outputs read of the request that a cached
    plan is for."""
    for key, known in _plans.items():
        if known is plan:
            return _graph_of(key), key.leaves, key.read
    return None


@cache
def _execution() -> Any:
    """Return the module with what runs plans, which a plan that is checked is about to change. What
    makes plans comes with it, at the first request."""
    bring(
        "alight._src.adapt.lazy_devices",
        "alight._src.measure.profiles",
        "alight._src.plan.place",
        "alight._src.run.execute",
    )
    from alight._src.run import execute

    first_plan.came()
    return execute


def _demoted() -> None:
    from alight._src.adapt.regression_guard import demoted

    demoted()


def _met_before() -> None:
    from alight._src.adapt import tier_up

    tier_up.recall()


def _unopened() -> None:
    from alight._src.adapt import lazy_devices

    lazy_devices.waiting(current_policy())


def _plan_for_nothing() -> None:
    """Make a plan as a first request would: what planning reads and makes once is there then."""
    from alight._src.ir.graph import Graph, Node
    from alight._src.plan.place import make_plan

    layout = make_layout(np.dtype(np.float64), (_FIRST_ELEMENTS,))
    graph = Graph((layout,), (Node(OPS["square"], (0,), (), layout),), (1,))
    make_plan(graph, facts_of(((layout, frozenset((HOST,)), 0, 0),), 1), {})


_FIRST_ELEMENTS = 1 << 20  # above the floor of most machines
first_plan.FACTS += [_demoted, _met_before, _unopened, _plan_for_nothing]


class _Requests:
    """How many requests this process has run, replays apart."""

    count = 0


requests = _Requests()


def _run(key: Key, values: list[Value]) -> None:
    """Run a request. Its list of values is used up: who still needs old bytes is told by
    references."""
    if watch.by is not None and key not in _plans:
        watch.by.plans(key, len(key.nodes), partial(_plan, key, ()))
    requests.count += 1
    plan = _plan(key, values)
    entry, after = plan.entry, None
    if entry is not None:
        from alight._src.run import loop_placement

        after = loop_placement.came(entry, values, plan)
        plan = _plans.get(key) or _plan(key, values)
    if entry is None or not entry.is_turn:
        while plan.unopened_devices is not None and ran_without(plan.unopened_devices):
            plan = _plan(key, values)
    order = None
    if watch.by is not None:
        watch.by.ran(values[: key.count], plan)
        order = watch.by.order(values)
    elif not floor.traced:
        floor.planned(values, key.count, _is_vain(plan))
    execution = _execution().runner(plan, values)
    execution.write_order = order
    execution.run()
    if after is not None:
        after()


def _is_vain(plan: Plan) -> bool:
    """Tell whether a plan leaves all work to NumPy, because that is quicker."""
    if plan.unopened_devices is not None or _policy().force:
        return False
    return all(
        (getattr(step, "device", HOST_DEVICE), getattr(step, "implementation", "numpy")) in _NUMPYS
        for step in plan.steps
    )


_NUMPYS = ((HOST_DEVICE, "numpy"), (HOST_DEVICE, "library"))


def ran_without(lacks: UnopenedDevices) -> bool:
    """Note a run of a plan that lacks devices which are not open; tell whether plans were dropped,
    as those devices take part from now on, or never."""
    from alight._src.adapt import lazy_devices

    with residency.LOCK:
        changed = lazy_devices.ran_without(lacks)
        if changed:
            forget(Cache.PLANS)
    return changed


class Prepared(NamedTuple):
    """A request not yet run: its graph, its plan, the leaves and the pending values by number."""

    graph: Graph
    plan: Plan
    leaves: tuple[Value, ...]
    pending: tuple[Value, ...]
    described: tuple[Leaf, ...]


def prepare(roots: Sequence[Value], read: bool = True, patience: float = math.inf) -> Prepared:
    """Return what a request for these pending values would run; ``replay`` runs it on other
    leaves. ``read``: the host reads what comes of it. `plans_behind.Behind` is raised where
    planning it takes longer than ``patience`` seconds."""
    with residency.LOCK:
        found = request([*roots], read, _policy().stamp, connected=False)
        assert found is not None, "nothing is pending"
        key, values = found
        graph = _graph_of(key)
        if patience < math.inf and key not in _plans:
            from alight._src.run import plans_behind

            plans_behind.begin(key, len(graph.nodes), partial(_plan, key, (), graph), patience)
        return Prepared(
            graph,
            _plan(key, values, graph),
            tuple(values[: key.count]),
            tuple(values[key.count :]),
            key.leaves,
        )


def replay(plan: Plan, values: list[Value | None], order: WriteOrder | None = None) -> None:
    """Run a plan on values by number: its leaves, then one for each node, which it makes concrete.
    ``order``: in which order it may write into leased memory.

    The list is used up, so that what nobody else holds is free to be written in place.
    """
    with residency.LOCK:
        LOG.hit()
        if plan.unopened_devices is not None:
            ran_without(
                plan.unopened_devices
            )  # what is replayed from the next time on may be another
        execution = _execution().runner(plan, values)
        execution.write_order = order
        execution.run()


def _plan(key: Key, values: Sequence[Value], graph: Graph | None = None) -> Plan:
    if _policy().learn == "now":
        from alight._src.adapt import learning

        with residency.LOCK:
            learning.at_once()
    plan = _plans.get(key)
    if plan is None:
        try:
            plan = plan_of(graph or _graph_of(key), key.leaves, key.read)
        except UnsupportedOnDevice as error:
            for number in error.nodes[-1:] if values else ():
                note(error, values[number])
            raise
        with residency.LOCK:  # which a plan that is made behind does not hold before
            if len(_plans) >= _PLANS_KEPT:
                _forget_oldest()
            _plans[key] = plan
        LOG.count(cache_misses=1)
    else:
        LOG.hit()
    return plan
