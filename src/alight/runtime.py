"""Evaluate: the stations in order, from requested values to host arrays.

One request evaluates every live pending root it is connected to, so that nothing is computed twice. Each
step binds its results to the recorded values at once: an error or an interrupt leaves a graph that
can be asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from alight import costs, residency, warn
from alight._core import Data, Layout, Value, floor, make_layout, pending_storages, sole
from alight.backends.base import Launch, Operand
from alight.backends.machine import host_memory
from alight.config import current_policy
from alight.device import Device
from alight.ir.group import Graph, Node
from alight.ir.ops import OPS
from alight.log import LOG, Log, eligible_elements
from alight.plan.fuse import KERNEL_NODES
from alight.plan.place import make_plan
from alight.plan.plan import Facts, LaunchStep, Plan, ViewStep, WriteStep
from alight.registry import backend_of, device, devices_allowed

HOST = residency.HOST
HOST_DEVICE = "cpu"

# Plans by structure. A plan is a few kB; past this count the program's structures do not repeat and
# keeping more would only hold memory (1024 plans of 100 nodes stay under 100 MB).
_PLANS_KEPT = 1024
_plans: dict[tuple[Any, ...], Plan] = {}
_eligible: dict[int, tuple[LaunchStep, int]] = {}

# A kernel holds no more ops than this, so a longer graph would be cut into several anyway.
floor.limit = KERNEL_NODES
# Pending results may come to exist together: an eighth of what is free, as float64, leaves room for
# their inputs and for the host pool, which has another eighth.
floor.budget = host_memory()[0] // 8 // 8


def forget_plans() -> None:
    """Drop every cached plan: what they were decided by has changed."""
    _plans.clear()
    _eligible.clear()
    _kernels.clear()


def only_on_host(value: Value) -> None:
    """Make a concrete value's host copy the only one: it is about to be written."""
    if value.data is not None:
        residency.only_on_host(value.data)


def evaluate(values: Iterable[Value]) -> None:
    """Make the values concrete, with every live pending value connected to them.

    Raises the error of the first requested value that failed; the others are still computed.
    """
    with residency.LOCK:
        roots = [value for value in values if value.op is not None]
        if roots:
            floor.count = floor.pending = 0
            _run(_connected(roots))
            for root in roots:
                if root.error is not None:
                    error, root.error = root.error, None
                    raise error


def evaluate_all() -> None:
    """Make every live pending storage concrete; errors stay with their values, to be raised when asked."""
    with residency.LOCK:
        floor.count = floor.pending = 0
        pending = pending_storages()
        if pending:
            _run([storage.value for storage in pending])


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
    if data.array is None:
        residency.bring_to_host(data)
    layout = value.layout
    if data.layout is layout and value.offset == 0 and data.array is not None:
        return data.array
    return np.ndarray(layout.shape, layout.dtype, data.raw, value.offset, layout.strides)


def _connected(roots: Sequence[Value]) -> list[Value]:
    """Return the roots and the live pending values that share pending work with them."""
    wanted = set(map(id, roots))
    found = list(roots)
    reach = _reach(roots)
    rest: list[tuple[Value, dict[int, Value]]] = []
    for storage in pending_storages():
        value = storage.value
        if id(value) in wanted:
            continue
        if id(value) in reach:
            wanted.add(id(value))
            found.append(value)
        else:
            rest.append((value, _reach((value,))))
    changed = True
    while changed and rest:
        changed = False
        for item in rest[:]:
            if not reach.keys().isdisjoint(item[1].keys()):
                reach.update(item[1])
                found.append(item[0])
                rest.remove(item)
                changed = True
    return found


def _reach(roots: Iterable[Value]) -> dict[int, Value]:
    """Return every pending value under the roots, by id."""
    seen: dict[int, Value] = {}
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value.op is not None and id(value) not in seen:
            seen[id(value)] = value
            stack.extend(value.operands)
    return seen


def planning_seconds() -> float:
    """Return what one recorded op costs beyond its kernel when its plan is cached, in seconds."""
    layout = make_layout(np.dtype(np.float64), (1,))
    leaf = Value(None, (), (), layout)
    leaf.data = Data(layout, np.zeros(1))
    op = OPS["negative"]
    global LOG
    best = float("inf")
    with residency.LOCK:
        log, LOG = LOG, Log(1)  # nobody decided anything
        try:
            for _ in range(4):  # the first ones make the plan
                value = Value(op, (leaf,), (), layout)
                began = perf_counter()
                _run([value])
                best = min(best, perf_counter() - began)
        finally:
            LOG = log
    return best


class _Recorded:
    """A request in numbers: the graph, and the recorded values behind its numbers."""

    __slots__ = ("graph", "key", "values")

    def __init__(self, roots: Sequence[Value]) -> None:
        pending = sorted(_reach(roots).values(), key=_sequence)
        numbers: dict[int, int] = {}
        leaves: list[Value] = []
        for value in pending:
            for operand in value.operands:
                if operand.op is None and id(operand) not in numbers:
                    numbers[id(operand)] = len(leaves)
                    leaves.append(operand)
        nodes = []
        for value in pending:
            operands = tuple([numbers[id(operand)] for operand in value.operands])
            numbers[id(value)] = len(leaves) + len(nodes)
            nodes.append((value.op, operands, value.attrs, value.layout))
        outputs = tuple(dict.fromkeys([numbers[id(root)] for root in roots]))
        self.values = leaves + pending
        self.key = (
            tuple([(leaf.layout, _residency(leaf)) for leaf in leaves]),
            tuple(nodes),
            outputs,
            current_policy().stamp,
        )
        self.graph: Graph | None = None

    def make_graph(self) -> Graph:
        inputs, nodes, outputs, _ = self.key
        return Graph(tuple([i[0] for i in inputs]), tuple([Node(*node) for node in nodes]), outputs)


def _sequence(value: Value) -> int:
    return value.seq


_HOST_ONLY = frozenset((HOST,))
_ANYWHERE = frozenset(("*",))


def _residency(leaf: Value) -> frozenset[str]:
    data = leaf.data
    if data is None:
        return _ANYWHERE
    if data.remote is None:
        return _HOST_ONLY
    return frozenset(data.remote) | (_HOST_ONLY if data.array is not None else frozenset())


def plan_of(graph: Graph, held: tuple[frozenset[str], ...]) -> Plan:
    """Return the plan the current policy gives this graph."""
    policy = current_policy()
    devices = devices_allowed(policy)
    facts = Facts(
        devices=devices,
        profiles=costs.profiles(devices),
        residency=held,
        force=(None, None) if policy.force is None else tuple(policy.force),
        floors=dict(policy.floor),
        on_gap=policy.on_gap,
        supports=costs.supports,
        estimate=costs.estimate,
        copy_seconds=costs.copy_seconds,
    )
    return make_plan(graph, facts)


def _run(roots: Sequence[Value]) -> None:
    recorded = _Recorded(roots)
    plan = _plans.get(recorded.key)
    if plan is None:
        plan = plan_of(recorded.make_graph(), tuple([i[1] for i in recorded.key[0]]))
        if len(_plans) >= _PLANS_KEPT:
            forget_plans()
        _plans[recorded.key] = plan
        LOG.count(cache_misses=1)
    else:
        LOG.count(cache_hits=1)
    _Execution(plan, recorded.values).run()


_Place = tuple[Data, int, Layout]


class _Execution:
    """One run of a plan over recorded values."""

    __slots__ = ("failed", "places", "plan", "values")

    def __init__(self, plan: Plan, values: list[Value | None]) -> None:
        self.plan = plan
        self.values = values
        self.places: dict[int, _Place] = {}
        self.failed: dict[int, BaseException] = {}

    def run(self) -> None:
        """Run every step; a step that fails fails its outputs and what depends on them, nothing else."""
        for step, dead in zip(self.plan.steps, self.plan.dead, strict=True):
            try:
                self._step(step)
            except Exception as error:
                if isinstance(step, LaunchStep):
                    self._salvage(step, error)
                else:
                    self._fail((step.target,), error)
            for number in dead:
                self.places.pop(number, None)
                self.values[number] = None

    def _step(self, step: LaunchStep | ViewStep | WriteStep) -> None:
        if isinstance(step, LaunchStep):
            self._launch(step)
        elif isinstance(step, ViewStep):
            data, offset, _ = self._place(step.source)
            self._bind(step.target, data, offset + step.offset, step.layout)
        else:
            self._write(step)

    def _salvage(self, step: LaunchStep, error: BaseException) -> None:
        """Compute what a failed step can still give, node by node in NumPy: fusing must not spread errors."""
        graph = step.group.graph
        if len(graph.nodes) == 1:
            self._fail(step.outputs, error)
            return
        results: list[Any] = []
        for number in step.inputs:
            try:
                results.append(_array_at(self._place(number)))
            except Exception as failed:
                results.append(failed)
        for node in graph.nodes:
            operands = [results[i] for i in node.operands]
            failed = next((item for item in operands if isinstance(item, Exception)), None)
            if failed is None:
                try:
                    with np.errstate(all="ignore"):
                        results.append(np.asarray(warn.run_node(node, operands)))
                    continue
                except Exception as raised:
                    failed = raised
            results.append(failed)
        for number, inner in zip(step.outputs, graph.outputs, strict=True):
            result = results[inner]
            if isinstance(result, Exception):
                self._fail((number,), result)
            else:
                data = _exact(result, graph.layout(inner))
                self._bind(number, data, 0, data.layout)

    def _fail(self, targets: Iterable[int], error: BaseException) -> None:
        for number in targets:
            self.failed[number] = error
            value = self.values[number]
            if value is not None:
                if number not in self.failed or not getattr(error, "__notes__", None):
                    path, line = warn.place_of(value.site)
                    error.add_note(f"recorded at {path}:{line}")
                value.error = error

    def _place(self, number: int) -> _Place:
        if number in self.failed:
            raise self.failed[number]
        place = self.places.get(number)
        if place is None:
            value = self.values[number]
            assert value is not None, number
            if value.data is None:
                array = np.asarray(value.attrs)
                place = (Data(value.layout, array), 0, value.layout)
            else:
                place = (value.data, value.offset, value.layout)
            self.places[number] = place
        return place

    def _bind(self, number: int, data: Data, offset: int, layout: Layout) -> None:
        """Make the recorded value behind a number concrete."""
        self.places[number] = (data, offset, layout)
        value = self.values[number]
        if value is not None and value.op is not None:
            value.data = data
            value.offset = offset
            value.operands = ()
            value.attrs = ()
            value.op = None

    def _launch(self, step: LaunchStep) -> None:
        where = device(step.device)
        implementation = step.implementation
        places = [self._place(number) for number in step.inputs]
        recorded = [self.values[number] for number in step.nodes]
        known = [value for value in recorded if value is not None]
        listen = warn.wanted(known)
        heard: list[str] = []
        if where.id == HOST_DEVICE and implementation != "generated":
            made, seconds = _submit(step, where, implementation, places, listen, heard)
        else:
            try:
                made, seconds = _submit(step, where, implementation, places, listen, heard)
            except Exception as error:
                # Nothing a device or generated code does wrong may reach the program: NumPy can do it.
                LOG.fallback(
                    f"{step.decision.operation} on {where.id}:{implementation}",
                    f"{type(error).__name__}: {error}",
                    known[-1].site if known else None,
                )
                where, implementation = device(HOST_DEVICE), "numpy"
                heard.clear()
                made, seconds = _submit(step, where, implementation, places, listen, heard)
        if heard and len(known) == len(recorded):
            warn.tell(step.group.graph, [_array_at(place) for place in places], known)
        first = self.values[step.outputs[0]]
        LOG.decide(step.decision, None if first is None else first.site, seconds)
        LOG.elements(implementation, where.id, _eligible_of(step))
        graph = step.group.graph
        for number, inner, result in zip(step.outputs, graph.outputs, made, strict=True):
            layout = graph.layout(inner)
            data = residency.made_on(where, layout, result)
            self._bind(number, data, 0, data.layout)

    def _write(self, step: WriteStep) -> None:
        """Bind the written version: in place where nobody else needs the old bytes, else in a copy."""
        value_place = self._place(step.value)
        old_place = self._place(step.old)
        old, target = self.values[step.old], self.values[step.target]
        assert old is not None and target is not None
        data, offset, layout = old_place
        for place in (value_place[0], data):
            residency.bring_to_host(place)
        # Who may still hold the old bytes here: the list of values, the target's operands, the place, and
        # the value written where it is a window of the same bytes and dies with this step.
        self.places.pop(step.old, None)
        del old_place
        held_by_value = 0
        if value_place[0] is data:
            held_by_value = 3 if self.values[step.value] is not None else 2
        number_of_uses = sum(operand is old for operand in target.operands)
        in_place = (
            not data.exported
            and offset == 0
            and layout is old.layout
            and sole(old, 1 + number_of_uses, 1 + held_by_value)
        )
        if not in_place:
            data = _exact(_array_at((data, offset, layout)), layout)
            offset = 0
        residency.only_on_host(data)
        window = np.ndarray(
            step.layout.shape, step.layout.dtype, data.raw, offset + step.offset, step.layout.strides
        )
        np.copyto(window, _array_at(value_place), casting="unsafe")
        del window
        self._bind(step.target, data, offset, layout)


def duplicate(value: Value) -> Value:
    """Return a value with the elements and layout of a concrete one, in memory of its own."""
    result = Value(None, (), (), value.layout)
    result.data = _exact(host_array(value), value.layout)
    return result


def _exact(array: np.ndarray[Any, Any], layout: Layout) -> Data:
    """Return data of exactly this dense layout with the elements of an array."""
    result = residency.fresh(layout)
    assert result.array is not None
    result.array[...] = array
    return result


def _array_at(place: _Place) -> np.ndarray[Any, Any]:
    data, offset, layout = place
    residency.bring_to_host(data)
    if data.layout is layout and offset == 0 and data.array is not None:
        return data.array
    return np.ndarray(layout.shape, layout.dtype, data.raw, offset, layout.strides)


# Kernels by step and where it runs; the step is kept with its kernel so that its id stays its own.
_kernels: dict[tuple[int, str, str], tuple[LaunchStep, Any]] = {}


def _kernel_of(step: LaunchStep, where: Device, implementation: str) -> Any:
    key = (id(step), where.id, implementation)
    found = _kernels.get(key)
    if found is None:
        kernel = backend_of(where).compile(where, step.group, implementation, step.schedule)
        found = _kernels[key] = (step, kernel)
    return found[1]


def _submit(
    step: LaunchStep,
    where: Device,
    implementation: str,
    places: Sequence[_Place],
    listen: frozenset[str],
    heard: list[str],
) -> tuple[Sequence[Any], float]:
    """Run a step's kernel and return the buffers of its results and the seconds it took on the device."""
    kernel = _kernel_of(step, where, implementation)
    operands = tuple(
        [Operand(residency.buffer(data, where), offset, lay) for data, offset, lay in places]
    )
    backend = backend_of(where)
    launch = Launch(kernel, operands, (None,) * len(step.outputs))
    with warn.hearing(listen, heard, implementation):
        event = backend.submit(where, 0, [launch])
        backend.wait(event)
    LOG.count(launches=1)
    return event.buffers, event.ended - event.began


def _eligible_of(step: LaunchStep) -> int:
    found = _eligible.get(id(step))
    if found is None:
        found = _eligible[id(step)] = (step, eligible_elements(step.group))
    return found[1]
