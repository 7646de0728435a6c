"""Evaluate: the stations in order, from requested values to host arrays.

One request evaluates every live pending root it is connected to, so that nothing is computed twice. Each
step binds its results to the recorded values at once: an error or an interrupt leaves a graph that
can be asked again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from alight import costs, residency, warn
from alight._core import Data, Layout, Value, floor, pending_storages, sole
from alight.backends.base import Launch, Operand
from alight.config import current_policy
from alight.device import Device
from alight.ir.group import Graph, Node
from alight.log import LOG, eligible_elements
from alight.plan.place import make_plan
from alight.plan.plan import Facts, LaunchStep, Plan, ViewStep, WriteStep
from alight.registry import backend_of, device, devices_allowed

HOST = residency.HOST

# Plans by structure. A plan is a few kB; past this count the program's structures do not repeat and
# keeping more would only hold memory (1024 plans of 100 nodes stay under 100 MB).
_PLANS_KEPT = 1024
_plans: dict[tuple[Any, ...], Plan] = {}
_eligible: dict[int, tuple[LaunchStep, int]] = {}

_lock = threading.RLock()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


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
    with _lock:
        roots = [value for value in values if value.op is not None]
        if roots:
            _run(_connected(roots))
            for root in roots:
                if root.error is not None:
                    error, root.error = root.error, None
                    raise error


def evaluate_all() -> None:
    """Make every live pending storage concrete; errors stay with their values, to be raised when asked."""
    with _lock:
        pending = pending_storages()
        if pending:
            _run([storage.value for storage in pending])
        floor.pending = 0


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
                if isinstance(step, LaunchStep):
                    self._launch(step)
                elif isinstance(step, ViewStep):
                    data, offset, _ = self._place(step.source)
                    self._bind(step.target, data, offset + step.offset, step.layout)
                else:
                    self._write(step)
            except Exception as error:
                targets = step.outputs if isinstance(step, LaunchStep) else (step.target,)
                self._fail(targets, error)
            for number in dead:
                self.places.pop(number, None)
                self.values[number] = None

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
        places = [self._place(number) for number in step.inputs]
        operands = tuple(
            [Operand(residency.buffer(data, where), offset, lay) for data, offset, lay in places]
        )
        nodes = [self.values[number] for number in step.nodes]
        recorded = [value for value in nodes if value is not None]
        heard: list[str] = []
        began = perf_counter()
        made = _submit(step, where, operands, warn.wanted(recorded), heard)
        seconds = perf_counter() - began
        if heard and len(recorded) == len(nodes):
            warn.tell(step.group.graph, [_array_at(place) for place in places], recorded)
        first = self.values[step.outputs[0]]
        LOG.decide(step.decision, None if first is None else first.site, seconds)
        LOG.elements(step.implementation, step.device, _eligible_of(step))
        for number, result in zip(step.outputs, made, strict=True):
            layout = step.group.graph.layout(step.group.graph.outputs[step.outputs.index(number)])
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
    result = np.empty_like(layout.probe)
    owner = None
    if result.strides != layout.strides:
        owner = np.empty(layout.nbytes, np.uint8)
        result = np.ndarray(layout.shape, layout.dtype, owner, 0, layout.strides)
    result[...] = array
    return Data(layout, result, owner)


def _array_at(place: _Place) -> np.ndarray[Any, Any]:
    data, offset, layout = place
    residency.bring_to_host(data)
    if data.layout is layout and offset == 0 and data.array is not None:
        return data.array
    return np.ndarray(layout.shape, layout.dtype, data.raw, offset, layout.strides)


# Kernels by step; the step is kept with its kernel so that its id stays its own.
_kernels: dict[int, tuple[LaunchStep, Any]] = {}


def _kernel_of(step: LaunchStep, where: Device) -> Any:
    found = _kernels.get(id(step))
    if found is None:
        backend = backend_of(where)
        found = (step, backend.compile(where, step.group, step.implementation, step.schedule))
        _kernels[id(step)] = found
    return found[1]


def _submit(
    step: LaunchStep,
    where: Device,
    operands: tuple[Operand, ...],
    listen: frozenset[str],
    heard: list[str],
) -> Sequence[Any]:
    """Run a step's kernel and return the buffers of its results; a failing device hands over to the host."""
    backend = backend_of(where)
    launch = Launch(_kernel_of(step, where), operands, (None,) * len(step.outputs))
    with warn.hearing(listen, heard, step.implementation):
        event = backend.submit(where, 0, [launch])
        backend.wait(event)
    LOG.count(launches=1)
    made: Sequence[Any] = event.buffers
    return made


def _eligible_of(step: LaunchStep) -> int:
    found = _eligible.get(id(step))
    if found is None:
        found = _eligible[id(step)] = (step, eligible_elements(step.group))
    return found[1]
