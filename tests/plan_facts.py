"""What is known to plans under test: devices, what they cost, where things may run."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import Group
from alight._src.plan.check import check_plan
from alight._src.plan.choose import group_key
from alight._src.plan.plan import Estimate, Facts, LaunchStep, Plan
from alight._src.plan.plan_form import malformed
from alight.device import Device, Support
from alight.errors import PlanError
from graphs import F4


def device(name: str, space: str, *implementations: str) -> Device:
    support = Support(implementations, frozenset())
    return Device(name, "vendor", "name", space, 1 << 34, space == "host", support)


CPU = device("cpu", "host", "numpy", "generated")
SIM = device("sim:0", "sim", "generated", "library")
GPU = device("cuda:0", "gpu", "generated", "library")
FACTS = Facts((CPU, SIM), {})


def launches(plan: Plan) -> list[LaunchStep]:
    return [step for step in plan.steps if isinstance(step, LaunchStep)]


NO_GROUP = Group(GroupKind.LOOP, Graph((), (), ()))


def plan_faults(plan: Plan, graph: Graph, bases: Sequence[int] = ()) -> list[str]:
    """Return what is wrong with a plan for a graph, one line each; none if it is right. ``bases``
    are those of the graph's inputs, as in ``Facts``."""
    found = [*malformed(plan, graph)]
    if not found:
        try:
            check_plan(plan, graph, bases)
        except PlanError as error:
            found.append(str(error))
    return found


def contents(plan: Plan) -> tuple[Plan, list[tuple[object, ...]]]:
    """Return what plans are compared by: what their groups are made of, as each equals itself."""
    steps: list[tuple[object, ...]] = []
    for step in plan.steps:
        if isinstance(step, LaunchStep):
            group = step.group
            steps.append((replace(step, group=NO_GROUP), group.kind, group.graph, group.shape))
        else:
            steps.append((step,))
    return replace(plan, steps=()), steps


def at(seconds: float) -> Estimate:
    return Estimate(seconds, seconds, seconds, {"compute": seconds})


def no_float32(device: str, implementation: str, group: Group) -> str | None:
    """Stand for generated code with a hole in it, and with a limit for a whole kernel."""
    layouts = [group.graph.layouts[n] for n in range(len(group.graph.inputs))]
    layouts += [node.layout for node in group.graph.nodes]
    if implementation == "generated" and any(one.dtype == F4 for one in layouts):
        return "no float32 here"
    if device == "sim:0" and len(group.graph.nodes) > 3:
        return "too much for one kernel"
    return None


def some_seconds(group: Group, device: str, implementation: str) -> Estimate | None:
    """Return a cost that looks random and is always the same."""
    key = f"{group_key(group)}{group.shape}{device}{implementation}"
    return at((1 + zlib.crc32(key.encode()) % 100) * 1e-6)


POLICIES = {
    "uncalibrated": FACTS,
    "generated": replace(FACTS, force=("cpu", "generated")),
    "sim": replace(FACTS, force=("sim:0", None)),
    "sim with gaps": replace(FACTS, force=("sim:0", None), supports=no_float32),
    "by cost": replace(FACTS, estimate=some_seconds, copy_seconds=lambda a, b, n: 2e-5),
    "by cost with gaps": replace(
        FACTS, estimate=some_seconds, copy_seconds=lambda a, b, n: 1e-5, supports=no_float32
    ),
    "by cost, three memories": replace(
        FACTS,
        devices=(CPU, SIM, GPU),
        estimate=some_seconds,
        copy_seconds=lambda a, b, n: 1e-5,
    ),
}
