"""What a well-formed plan is, as a list of what is wrong with one: tests look before it runs."""

from __future__ import annotations

from alight._src.ir.group import Graph
from alight._src.ir.well_formed import group_faults
from alight._src.plan.plan import LaunchStep, Plan, ViewStep


def plan_faults(plan: Plan, graph: Graph) -> list[str]:
    """Return what is wrong with a plan for a graph, one line each; none if it is well formed."""
    found = []
    there = set(range(len(graph.inputs)))
    gone: set[int] = set()
    if plan.outputs != graph.outputs:
        found.append(f"outputs are {plan.outputs}, asked for were {graph.outputs}")
    if len(plan.dead) != len(plan.steps):
        found.append(f"{len(plan.dead)} lists of dead values for {len(plan.steps)} steps")
    for index, (step, dead) in enumerate(zip(plan.steps, plan.dead, strict=False)):
        if isinstance(step, LaunchStep):
            needs, makes = step.inputs, step.outputs
            found += (f"step {index}: {fault}" for fault in group_faults(step.group))
            inner = step.group.graph
            if len(step.nodes) != len(inner.nodes):
                found.append(f"step {index}: {len(step.nodes)} names, {len(inner.nodes)} nodes")
            for number, layout in zip(needs, inner.inputs, strict=True):
                if graph.layout(number) is not layout:
                    found.append(f"step {index}: reads %{number} as {layout!r}")
            for number, local in zip(makes, inner.outputs, strict=True):
                if graph.layout(number) is not inner.layout(local):
                    found.append(f"step {index}: makes %{number} as {inner.layout(local)!r}")
            if (step.decision.chosen, step.decision.implementation) != (
                *(step.device, step.implementation),
            ):
                found.append(f"step {index}: runs on {step.device}, not as decided")
        elif isinstance(step, ViewStep):
            needs, makes = (step.source,), (step.target,)
        else:
            needs, makes = (step.old, step.value), (step.target,)
        for number in needs:
            if number not in there:
                state = "dead" if number in gone else "not there yet"
                found.append(f"step {index}: reads %{number}, which is {state}")
        found += (f"step {index}: makes %{n} again" for n in makes if n in there)
        there.update(makes)
        there.difference_update(dead)
        gone.update(dead)
    found += (f"output %{o} is not there at the end" for o in plan.outputs if o not in there)
    return found
