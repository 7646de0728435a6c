"""What a whole plan is predicted to take: its kernels, its copies and our own steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from alight._core import make_layout
from alight._src.base.records import dataclass
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.plan.access_pattern import LINE_BYTES
from alight._src.plan.choose import ANYWHERE, copied_bytes, held_by, host_space
from alight._src.plan.plan import (
    Decision,
    Estimate,
    Facts,
    LaunchStep,
    Plan,
    ViewStep,
    WriteStep,
)
from alight._src.plan.stages import Uses
from alight.device import HOST_DEVICE


@dataclass(frozen=True, slots=True)
class Account:
    """Predicted seconds of a plan; ``estimate`` is None where one of the groups in ``unknown`` has
    no figure. ``places`` counts the launches of each "device:implementation"; ``where`` are the
    spaces that have each memory in the end, by the first value in it."""

    estimate: Estimate | None
    unknown: tuple[str, ...]
    places: Mapping[str, int]
    where: Mapping[int, frozenset[str]]


def account(
    plan: Plan,
    graph: Graph,
    facts: Facts,
    seconds_of: Callable[[Group, str, str], Estimate | None] | None = None,
) -> Account:
    """Return what running a plan of this graph is predicted to take, copies included: of inputs
    to where they are needed, and of the outputs that the host requires back to it.

    Groups take what their decisions say, or ``seconds_of`` where that is given.
    """
    base = Uses(graph, facts.bases).base
    spaces = {device.id: device.space for device in facts.devices}
    host = host_space(facts)
    where = {base[v]: held_by(facts, v) for v in range(len(graph.inputs))}
    terms = dict.fromkeys(("launch", "memory", "compute", "upload", "download", "steps"), 0.0)
    low = high = 0.0
    unknown: list[str] = []
    places: dict[str, int] = {}

    def bring(value: int, space: str) -> None:
        held = where.get(base[value], frozenset((host,)))
        if space not in held and ANYWHERE not in held:
            nbytes = copied_bytes(graph, facts, base[value])
            seconds = min(facts.copy_seconds(source, space, nbytes) for source in sorted(held))
            terms["download" if space == host else "upload"] += seconds
            where[base[value]] = held | {space}

    for step in plan.steps:
        terms["steps"] += facts.steps.get(getattr(step, "device", HOST_DEVICE), facts.step_seconds)
        if isinstance(step, ViewStep):
            continue
        space = spaces.get(step.device, host)
        if not isinstance(step, LaunchStep):
            bring(step.value, space)
            bring(step.old, space)
            where[base[step.target]] = frozenset((space,))
            continue
        name = f"{step.device}:{step.implementation}"
        places[name] = places.get(name, 0) + 1
        found = (
            chosen(step.decision)
            if seconds_of is None
            else seconds_of(step.group, step.device, step.implementation)
        )
        if found is None:
            unknown.append(f"{step.decision.operation} on {name}")
        else:
            low, high = low + found.low, high + found.high
            for term, seconds in found.terms.items():
                terms[term] = terms.get(term, 0.0) + seconds
        for value in step.inputs:
            bring(value, space)
        where.update(dict.fromkeys([base[v] for v in step.outputs], frozenset((space,))))
    for position in sorted(facts.host_required):
        bring(graph.outputs[position], host)
    if unknown:
        return Account(None, tuple(dict.fromkeys(unknown)), places, where)
    certain = terms["upload"] + terms["download"] + terms["steps"]
    seconds = sum(terms.values())
    return Account(Estimate(seconds, low + certain, high + certain, terms), (), places, where)


def write_seconds(step: WriteStep, facts: Facts) -> float:
    """Return what a write into a window is predicted to take, apart from copies between memories:
    as a copy of so many elements, with all the lines that the window's elements lie in; 0 where
    nothing like it was measured."""
    layout = step.layout
    if not layout.size or not layout.ndim:
        return 0.0
    dense = make_layout(layout.dtype, layout.shape)
    graph = Graph((dense,), (Node(OPS["copy"], (0,), (), dense),), (1,))
    where = "numpy" if step.device == HOST_DEVICE else "generated"
    found = facts.estimate(Group(GroupKind.LOOP, graph, layout.shape), step.device, where)
    if found is None:
        return 0.0
    apart = [abs(s) for n, s in zip(layout.shape, layout.strides, strict=True) if n > 1]
    lines = min(min(apart, default=layout.itemsize), LINE_BYTES) / layout.itemsize
    return found.seconds * max(1.0, lines)


def chosen(decision: Decision) -> Estimate | None:
    """Return the estimate of what a decision chose."""
    for candidate in decision.candidates:
        if (candidate.device, candidate.implementation) == (
            *(decision.chosen, decision.implementation),
        ):
            return candidate.estimate
    return None


__all__ = ["Account", "account", "chosen", "write_seconds"]
