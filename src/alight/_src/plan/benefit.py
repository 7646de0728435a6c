"""What each fusion of a plan is worth, and why neighbours were not fused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from alight._src.base.records import dataclass
from alight._src.ir.graph import GROUP_KINDS, Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op import Kind
from alight._src.plan.choose import operation
from alight._src.plan.fuse import KERNEL_ARRAYS, KERNEL_NODES
from alight._src.plan.plan import Facts, LaunchStep, Plan
from alight._src.plan.plan_cost import chosen


@dataclass(frozen=True, slots=True)
class Fusion:
    """A fusion that was made or refused. ``seconds`` are those as one kernel, ``parts_seconds``
    those of the parts, one step after another; ``benefit`` is the difference by term, positive
    where fusing wins. None and empty where something was not measured."""

    made: bool
    operation: str
    parts: tuple[str, ...]
    device: str
    implementation: str
    seconds: float | None
    parts_seconds: float | None
    benefit: Mapping[str, float]
    reason: str


def fusions(plan: Plan, facts: Facts) -> Iterator[Fusion]:
    """Yield the fusions of a plan in their order, then those refused."""
    steps = [step for step in plan.steps if isinstance(step, LaunchStep)]
    for step in steps:
        if len(step.group.graph.nodes) > 1:
            yield _made(step, facts)
    told = set()
    for refused in plan.refused:
        told.add(frozenset(refused.nodes))
        yield Fusion(
            *(False, refused.operation, refused.parts, refused.device, ""),
            *(refused.seconds, refused.parts_seconds, {}, refused.reason),
        )
    yield from _apart(steps, told)


def _made(step: LaunchStep, facts: Facts) -> Fusion:
    """Return a group as a fusion of its single nodes, run in the same place by the same
    implementation."""
    graph = step.group.graph
    whole = chosen(step.decision)
    terms = {"steps": facts.steps.get(step.device, facts.step_seconds) * (len(graph.nodes) - 1)}
    total = terms["steps"]
    for number, _ in graph.numbered:
        alone = facts.estimate(single(graph, number), step.device, step.implementation)
        if alone is None:
            whole = None
            break
        total += alone.seconds
        for term, seconds in alone.terms.items():
            terms[term] = terms.get(term, 0.0) + seconds
    parts = tuple([node.op.name for node in graph.nodes])
    where = step.device, step.implementation
    if whole is None:
        return Fusion(True, operation(step.group), parts, *where, None, None, {}, "not measured")
    benefit = {term: seconds - whole.terms.get(term, 0.0) for term, seconds in terms.items()}
    return Fusion(
        *(True, operation(step.group), parts, *where),
        *(whole.seconds, total, benefit, "takes less as one"),
    )


def single(graph: Graph, number: int) -> Group:
    """Return one node of a graph as a group of its own."""
    node = graph.made_by[number]
    operands = tuple(dict.fromkeys(node.operands))
    own = Node(node.op, tuple([operands.index(o) for o in node.operands]), node.attrs, node.layout)
    inputs = tuple([graph.layouts[o] for o in operands])
    reduces = node.op.kind in (Kind.REDUCTION, Kind.SCAN)
    shape = inputs[0].shape if reduces else node.layout.shape
    kind = GROUP_KINDS.get(node.op.kind, GroupKind.LIBRARY)
    if graph.rolls.get(number) is not None:
        kind = GroupKind.LOOP
    return Group(kind, Graph(inputs, (own,), (len(inputs),)), shape)


def _apart(steps: list[LaunchStep], told: set[frozenset[int]]) -> Iterator[Fusion]:
    """Yield, for each step that reads what another makes, why both are not one."""
    makers = {value: step for step in steps for value in step.outputs}
    for step in steps:
        for before in {id(makers[v]): makers[v] for v in step.inputs if v in makers}.values():
            both = {*before.nodes, *step.nodes}
            if any(nodes >= both for nodes in told):
                continue  # the planner itself said why
            names = operation(before.group), operation(step.group)
            yield Fusion(
                *(False, "+".join(names), names, step.device, step.implementation),
                *(None, None, {}, _why(before, step)),
            )


def _why(before: LaunchStep, after: LaunchStep) -> str:
    """Return why a step is not one with the step that makes what it reads."""
    for step in (before, after):
        if step.group.kind is GroupKind.LIBRARY:
            return f"{step.group.graph.nodes[0].op.name} runs alone"
    if (before.device, before.implementation) != (after.device, after.implementation):
        return (
            f"placed apart: {before.device}:{before.implementation} and "
            f"{after.device}:{after.implementation}"
        )
    if before.implementation != "generated":
        return f"{before.implementation} runs ops one by one in any case"
    if len(before.nodes) + len(after.nodes) > KERNEL_NODES:
        return f"a kernel has {KERNEL_NODES} nodes at most"
    arrays = [layout for s in (before, after) for layout in s.group.graph.inputs if layout.size > 1]
    if len(arrays) > KERNEL_ARRAYS:
        return f"together they may read more than {KERNEL_ARRAYS} arrays"
    if before.group.shape != after.group.shape:
        return f"they go over {before.group.shape} and {after.group.shape}"
    if before.group.form.reductions:
        return "the reduction has to end before its result is read"
    return "something else has to run between them, or needs what is made"


__all__ = ["Fusion", "fusions", "single"]
