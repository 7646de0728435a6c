"""Plans as documents, so that a later process need not make them again.

A document names ops of the table and holds numbers and text: nothing in it is run. What cannot be
named, an op of the program's own or an attribute of another type, makes a plan that is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from alight._core import Layout, make_layout
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op import OPS, Origin
from alight._src.ir.op_table import bring_tables
from alight._src.plan.plan import (
    Candidate,
    Decision,
    Estimate,
    LaunchStep,
    Plan,
    Refusal,
    Source,
    ViewStep,
    WriteStep,
)
from alight.device import Reason

__all__ = ["NotWritten", "as_document", "graph_document", "of_document"]


class NotWritten(Exception):
    """Something of a plan has no name that a later process knows."""


def as_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON has it. Raises NotWritten."""
    if plan.unopened_devices is not None:
        raise NotWritten("devices that are not open")
    return _Writer().plan(plan)


def graph_document(graph: Graph) -> dict[str, Any]:
    """Return a graph as JSON has it. Raises NotWritten."""
    writer = _Writer()
    return {"graph": writer.graph(graph), "layouts": writer.layouts}


def of_document(document: Mapping[str, Any]) -> Plan:
    """Return the plan that a document holds; what it holds may be wrong, and is to be checked.
    Raises KeyError, IndexError, TypeError, AttributeError or ValueError for what holds none."""
    return _Reader(document).plan()


class _Writer:
    """Layouts and groups stand once, and are named by their places: of groups that are one, what is
    known of one is known of all."""

    def __init__(self) -> None:
        self.layouts: list[Any] = []
        self.groups: list[Any] = []
        self._places: dict[Any, int] = {}

    def plan(self, plan: Plan) -> dict[str, Any]:
        steps = [self.step(step) for step in plan.steps]
        skipping = [self.step(step) for step in plan.skipping]
        refused = [_fields(one, _REFUSAL) for one in plan.refused]
        return {
            "steps": steps,
            "dead": plan.dead,
            "outputs": plan.outputs,
            "refused": refused,
            "skipping": skipping,
            "groups": self.groups,
            "layouts": self.layouts,
        }

    def step(self, step: Any) -> list[Any]:
        if isinstance(step, LaunchStep):
            if step.schedule is not None:
                raise NotWritten("a schedule")
            decision = _fields(step.decision, _DECISION)
            decision["candidates"] = [self.candidate(one) for one in step.decision.candidates]
            return [_LAUNCH_NAME, self.group(step.group), decision, _fields(step, _LAUNCH)]
        own = _fields(step, _VIEW if isinstance(step, ViewStep) else _WRITE)
        name = _VIEW_NAME if isinstance(step, ViewStep) else _WRITE_NAME
        return [name, self.layout(step.layout), own]

    def candidate(self, one: Candidate) -> list[Any]:
        found = one.estimate
        estimate = None if found is None else [*_fields(found, _ESTIMATE).values()]
        return [one.device, one.implementation, estimate, one.reason, one.detail]

    def group(self, group: Group) -> int:
        key = id(group)
        if key not in self._places:
            self._places[key] = len(self.groups)
            self.groups.append([group.kind, self.graph(group.graph), group.shape])
        return self._places[key]

    def graph(self, graph: Graph) -> list[Any]:
        nodes = [
            [_name(node), node.operands, self.attributes(node), self.layout(node.layout)]
            for node in graph.nodes
        ]
        return [[self.layout(layout) for layout in graph.inputs], nodes, graph.outputs]

    def attributes(self, node: Node) -> list[Any]:
        return [[name, self.value(value)] for name, value in node.attrs]

    def layout(self, layout: Layout) -> int:
        if layout not in self._places:
            self._places[layout] = len(self.layouts)
            self.layouts.append([_dtype(layout.dtype), layout.shape, layout.strides])
        return self._places[layout]

    def value(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if type(value) is tuple:
            return {"tuple": [self.value(item) for item in value]}
        if isinstance(value, np.dtype):
            return {"dtype": _dtype(value)}
        if isinstance(value, Layout):
            return {"layout": self.layout(value)}
        raise NotWritten(f"{type(value).__name__} among the attributes")


class _Reader:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.layouts = [
            make_layout(np.dtype(dtype), tuple(shape), tuple(strides))
            for dtype, shape, strides in document["layouts"]
        ]
        self.groups = [
            Group(GroupKind(kind), self.graph(*graph), tuple(shape))
            for kind, graph, shape in document["groups"]
        ]

    def plan(self) -> Plan:
        document = self.document
        return Plan(
            tuple([self.step(*step) for step in document["steps"]]),
            tuple([tuple(dead) for dead in document["dead"]]),
            tuple(document["outputs"]),
            tuple([Refusal(**_tuples(one)) for one in document["refused"]]),
            tuple([self.step(*step) for step in document["skipping"]]),
        )

    def step(self, name: str, place: int, *given: Any) -> Any:
        if name == _LAUNCH_NAME:
            decision, fields = map(_tuples, given)
            decision["candidates"] = tuple([self.candidate(*one) for one in decision["candidates"]])
            decision["reason"] = Reason(decision["reason"])
            return LaunchStep(self.groups[place], decision=Decision(**decision), **fields)
        made: Callable[..., Any] = {_VIEW_NAME: ViewStep, _WRITE_NAME: WriteStep}[name]
        return made(layout=self.layouts[place], **given[0])

    def candidate(
        self, device: str, implementation: str, estimate: Any, reason: str | None, detail: str
    ) -> Candidate:
        found = None
        if estimate is not None:
            fields = dict(zip(_ESTIMATE, estimate, strict=True))
            found = Estimate(**{**fields, "source": Source(fields["source"])})
        why = None if reason is None else Reason(reason)
        return Candidate(device, implementation, found, why, detail)

    def graph(self, inputs: Any, nodes: Any, outputs: Any) -> Graph:
        made = []
        for name, operands, attributes, layout in nodes:
            attrs = tuple([(key, self.value(value)) for key, value in attributes])
            made.append(Node(_op(name), tuple(operands), attrs, self.layouts[layout]))
        return Graph(tuple([self.layouts[i] for i in inputs]), tuple(made), tuple(outputs))

    def value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, held),) = value.items()
        if kind == "float":
            return float.fromhex(held)
        if kind == "tuple":
            return tuple([self.value(item) for item in held])
        return np.dtype(held) if kind == "dtype" else self.layouts[held]


_LAUNCH_NAME, _VIEW_NAME, _WRITE_NAME = "launch", "view", "write"
_LAUNCH = ("device", "implementation", "inputs", "outputs", "nodes", "over", "passes")
_VIEW = ("source", "target", "offset")
_WRITE = ("old", "value", "target", "offset", "device", "home")
_ESTIMATE = ("seconds", "low", "high", "terms", "cell", "model_seconds", "runs", "source")
_REFUSAL = (*("operation", "parts", "nodes", "device", "seconds", "parts_seconds", "reason"),)
_DECISION = (
    *("operation", "kind", "group", "dtypes", "shapes", "elements", "flops", "bytes", "batch"),
    *("residency_in", "chosen", "implementation", "reason", "threshold", "in_place"),
)


def _fields(record: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _tuples(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document's fields with tuples where JSON has lists."""
    return {name: _tuple(value) for name, value in document.items()}


def _tuple(value: Any) -> Any:
    return tuple([_tuple(item) for item in value]) if isinstance(value, list) else value


def _name(node: Node) -> str:
    op = node.op
    if op.origin is Origin.PROGRAM or OPS.get(op.name) is not op:
        raise NotWritten(f"{op.name}, an op of the program's own")
    return op.name


def _op(name: str) -> Any:
    if name not in OPS:
        bring_tables()
    return OPS[name]


def _dtype(dtype: np.dtype[Any]) -> str:
    # Nothing is kept by a dtype: `long` and `long long` are equal, and hash alike.
    text: str = dtype.char if np.dtype(dtype.char) == dtype else dtype.str
    if np.dtype(text) != dtype or np.dtype(text).num != dtype.num:
        raise NotWritten(f"dtype {dtype}")
    return text
