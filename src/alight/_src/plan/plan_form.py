"""What a well-formed plan is, as what is wrong with one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alight._core import Layout
from alight._src.ir.graph import Graph, Node
from alight._src.ir.op import Kind
from alight._src.ir.well_formed import group_faults
from alight._src.plan.place import homes_of
from alight._src.plan.plan import LaunchStep, Plan, Step, ViewStep
from alight._src.plan.wiring import Wiring

__all__ = ["malformed"]


def malformed(plan: Plan, graph: Graph) -> Iterator[str]:
    """Yield what is wrong with the form of a plan."""
    there = set(range(len(graph.inputs)))
    gone: set[int] = set()
    views: dict[int, tuple[int, int]] = {}
    homes, wiring = homes_of(graph), Wiring(graph)
    if plan.outputs != graph.outputs:
        yield f"outputs are {plan.outputs}, asked for were {graph.outputs}"
    if len(plan.dead) != len(plan.steps):
        yield f"{len(plan.dead)} lists of dead values for {len(plan.steps)} steps"
    for index, (step, dead) in enumerate(zip(plan.steps, plan.dead, strict=False)):
        if isinstance(step, LaunchStep):
            needs, makes = step.inputs, step.outputs
        elif isinstance(step, ViewStep):
            needs, makes = (step.source,), (step.target,)
        else:
            needs, makes = (step.old, step.value), (step.target,)
            if step.home != homes.get(step.target, -1):
                yield f"step {index}: writes %{step.target} as a version of %{step.home}"
        for number in needs:
            if number not in there:
                state = "dead" if number in gone else "not there yet"
                yield f"step {index}: reads %{number}, which is {state}"
        yield from (f"step {index}: {fault}" for fault in _step_faults(step, graph, views))
        yield from (f"step {index}: {fault}" for fault in wiring.faults(step))
        yield from (f"step {index}: makes %{n} again" for n in makes if n in there)
        there.update(makes)
        there.difference_update(dead)
        gone.update(dead)
    yield from (f"output %{o} is not there at the end" for o in plan.outputs if o not in there)


def _lies(layout: Layout) -> tuple[Any, ...]:
    """Return where the elements of a layout lie: axes of one element move nothing, and a group over
    rows keeps the axis that it reduces."""
    axes = zip(layout.shape, layout.strides, strict=True)
    return layout.dtype, tuple([(size, stride) for size, stride in axes if size != 1])


def _counts(layout: Layout) -> tuple[Any, ...]:
    """Return of what type and how many along which axes the elements of a layout are."""
    return layout.dtype, tuple([size for size in layout.shape if size != 1])


def _step_faults(step: Step, graph: Graph, views: dict[int, tuple[int, int]]) -> Iterator[str]:
    """Yield where a step is not what the graph has; ``views`` are those made so far, with the bytes
    before them."""
    if isinstance(step, LaunchStep):
        yield from group_faults(step.group)
        inner = step.group.graph
        if len(step.nodes) != len(inner.nodes):
            yield f"{len(step.nodes)} names, {len(inner.nodes)} nodes"
        for number, layout in zip(step.inputs, inner.inputs, strict=True):
            if _lies(graph.layouts[number]) != _lies(layout):
                yield f"reads %{number} as {layout!r}"
        for number, local in zip(step.outputs, inner.outputs, strict=True):
            if _lies(graph.layouts[number]) != _lies(inner.layouts[local]):
                yield f"makes %{number} as {inner.layouts[local]!r}"
        for number, node in zip(step.nodes, inner.nodes, strict=False):
            if _counts(graph.layouts[number]) != _counts(node.layout):
                yield f"computes %{number} as {node.layout!r}"
        if (step.decision.chosen, step.decision.implementation) != (
            *(step.device, step.implementation),
        ):
            yield f"runs on {step.device}, not as decided"
        return
    if isinstance(step, ViewStep):
        base, before = views.get(step.source, (step.source, 0))
        views[step.target] = base, before + step.offset
        # what rewriting has merged may stand for any of the windows that this is one of
        offsets, offset, number = set(), 0, step.target
        while (one := graph.made_by.get(number)) is not None and one.op.kind is Kind.VIEW:
            offset += one.attr("offset", 0)
            offsets.add(offset)
            number = one.operands[0]
        moved = offsets and before + step.offset not in offsets
        if step.layout is not graph.layouts[step.target] or moved:
            yield f"%{step.target} is {step.layout!r} {before + step.offset} bytes into %{base}"
        return
    windows, number = set(), step.target
    while (one := graph.made_by.get(number)) is not None:
        if one.op.kind is Kind.WRITE:
            windows.add((one.attr("layout"), one.attr("offset", 0)))
        elif one.op.kind is not Kind.ELEMENTWISE and not _all_of(graph, one):
            break
        # a value may go by the name of a copy or a view of all of it, or of a write of all of it
        number = one.operands[-1]
    if windows and (step.layout, step.offset) not in windows:
        yield f"%{step.target} sets {step.layout!r} {step.offset} bytes into %{step.old}"


def _all_of(graph: Graph, one: Node) -> bool:
    """Tell whether a node is a view of each byte of its operand."""
    return one.op.kind is Kind.VIEW and one.layout.nbytes == graph.layouts[one.operands[0]].nbytes
