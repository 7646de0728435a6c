"""Plans broken at random: each breakage that changes what comes out is refused before it runs.

What a breakage does is told by running the plan on bytes, with memory taken wherever the plan lets
it be taken, and nowhere; the check runs it on symbols.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from alight._core import Layout, make_layout
from alight._src.ir.graph import Graph
from alight._src.ir.well_formed import reach
from alight._src.plan.check import read_once
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Estimate, Facts, LaunchStep, Plan, Step, ViewStep, WriteStep
from alight.device import Device, Support
from graphs import Place, array_at, evaluate, random_graph, run_group, same
from plan_facts import contents, plan_faults

CPU = Device("cpu", "v", "n", "host", 1 << 34, True, Support(("numpy", "generated"), frozenset()))


def some(group: Any, device: str, implementation: str) -> Estimate:
    seconds = 1e-6 * (1 + len(group.graph.nodes) % 3)
    return Estimate(seconds, seconds, seconds, {})


NUMPY = Facts((CPU,), {})
FACTS = (NUMPY, replace(NUMPY, force=("cpu", "generated")), replace(NUMPY, estimate=some))


# --- plans on bytes -----------------------------------------------------------------------------
class Wrong(Exception):
    """A plan that cannot be run: it reads what is not there, or outside of its memory."""


def placed(layout: Layout) -> Place:
    """Return memory in which nothing was written yet."""
    low, high = reach(layout)
    return np.full(high - low, 0xA5, np.uint8), -low, layout


def seen(place: Place) -> np.ndarray[Any, Any]:
    try:
        return array_at(place)
    except (TypeError, ValueError) as error:  # outside of what there is
        raise Wrong(str(error)) from error


def run(plan: Plan, inputs: list[Place], in_place: bool) -> list[Place]:
    """Return the outputs of a plan. Memory is taken over where the plan says so and nobody else has
    it; what a kernel may read after it was written over is anything."""
    there = {n: (place[0].copy(), *place[1:]) for n, place in enumerate(inputs)}

    def value(number: int) -> Place:
        if number not in there:
            raise Wrong(f"%{number} is not there")
        return there[number]

    for step, dead in zip(plan.steps, plan.dead, strict=False):
        if isinstance(step, LaunchStep):
            launch(step, there, value, in_place)
        elif isinstance(step, ViewStep):
            raw, offset, _ = value(step.source)
            there[step.target] = raw, offset + step.offset, step.layout
            seen(there[step.target])
        else:
            raw, offset, layout = value(step.old)
            written = seen(value(step.value)).copy()
            if not (in_place and step.old in dead):
                old = seen((raw, offset, layout))
                raw, offset, layout = placed(layout)
                array_at((raw, offset, layout))[...] = old
            try:
                seen((raw, offset + step.offset, step.layout))[...] = written
            except ValueError as error:
                raise Wrong(str(error)) from error
            there[step.target] = raw, offset, layout
        for number in dead:
            there.pop(number, None)
    return [value(number) for number in plan.outputs]


def launch(
    step: LaunchStep,
    there: dict[int, Place],
    value: Callable[[int], Place],
    in_place: bool,
) -> None:
    # a kernel reads memory as what it was made for, whatever lies there
    layouts = step.group.graph.inputs
    operands = [(*value(n)[:2], layout) for n, layout in zip(step.inputs, layouts, strict=True)]
    for place in operands:
        seen(place)
    try:
        results = run_group(step.group, operands)
    except ValueError as error:  # of shapes that do not fit
        raise Wrong(str(error)) from error
    for position, (number, result) in enumerate(zip(step.outputs, results, strict=True)):
        place = placed(result[2])
        over = step.over if in_place and step.over is not None else None
        if over is not None and over[0] == position:
            taken = step.inputs[over[1]]
            raw, offset, layout = there[taken]
            others = [n for n, one in there.items() if one[0] is raw and n != taken]
            if not others:
                place = raw, offset, result[2]
                once = read_once(step.group, step.implementation, over[1])
                if not (once and layout is result[2]):
                    result = placed(result[2])  # it read what it had written
        seen(place)[...] = array_at(result)
        there[number] = place


def right(plan: Plan, inputs: list[Place], wanted: list[Place]) -> bool:
    """Tell whether a plan gives what it is to give."""
    with np.errstate(all="ignore"):
        try:
            return all(
                same(a, b)
                for in_place in (True, False)
                for a, b in zip(run(plan, inputs, in_place), wanted, strict=True)
            )
        except Wrong:
            return False


# --- breakages ----------------------------------------------------------------------------------
def with_step(plan: Plan, index: int, step: Step) -> Plan:
    return replace(plan, steps=(*plan.steps[:index], step, *plan.steps[index + 1 :]))


def with_dead(plan: Plan, index: int, dead: tuple[int, ...]) -> Plan:
    return replace(plan, dead=(*plan.dead[:index], dead, *plan.dead[index + 1 :]))


def steps_of(plan: Plan, *kinds: type) -> list[int]:
    return [index for index, step in enumerate(plan.steps) if isinstance(step, kinds)]


def before(graph: Graph, plan: Plan, index: int) -> list[int]:
    """Return the values that were made before a step."""
    made = [*range(len(graph.inputs))]
    for step in plan.steps[:index]:
        made += step.outputs if isinstance(step, LaunchStep) else [step.target]
    return made


def swapped(graph: Graph, plan: Plan, rng: random.Random) -> Plan:
    """Two steps in the other order, each with what dies with it, or with the place's."""
    first, second = sorted(rng.sample(range(len(plan.steps)), 2))
    steps, dead = list(plan.steps), list(plan.dead)
    steps[first], steps[second] = steps[second], steps[first]
    if rng.random() < 0.5:
        dead[first], dead[second] = dead[second], dead[first]
    return replace(plan, steps=tuple(steps), dead=tuple(dead))


def moved(graph: Graph, plan: Plan, rng: random.Random) -> Plan:
    """One step done earlier."""
    to, index = sorted(rng.sample(range(len(plan.steps)), 2))
    steps, dead = list(plan.steps), list(plan.dead)
    steps.insert(to, steps.pop(index))
    dead.insert(to, dead.pop(index))
    return replace(plan, steps=tuple(steps), dead=tuple(dead))


def dropped(graph: Graph, plan: Plan, rng: random.Random) -> Plan:
    """A step left out: a copy, a kernel, a view, a write."""
    index = rng.randrange(len(plan.steps))
    steps, dead = list(plan.steps), list(plan.dead)
    del steps[index]
    gone = dead.pop(index)
    if index:
        dead[index - 1] += gone
    return replace(plan, steps=tuple(steps), dead=tuple(dead))


def renamed(graph: Graph, plan: Plan, rng: random.Random) -> Plan | None:
    """A dropped write or view whose result goes by another value's name: readers get that one."""
    found = steps_of(plan, WriteStep, ViewStep)
    if not found:
        return None
    index = rng.choice(found)
    step = plan.steps[index]
    assert isinstance(step, (WriteStep, ViewStep))
    source = step.old if isinstance(step, WriteStep) else step.source
    short = dropped_at(plan, index)
    return replace(short, steps=tuple([reading(s, step.target, source) for s in short.steps]))


def dropped_at(plan: Plan, index: int) -> Plan:
    return replace(
        plan,
        steps=(*plan.steps[:index], *plan.steps[index + 1 :]),
        dead=(*plan.dead[:index], *plan.dead[index + 1 :]),
    )


def reading(step: Step, number: int, other: int) -> Step:
    def instead(n: int) -> int:
        return other if n == number else n

    if isinstance(step, LaunchStep):
        return replace(step, inputs=tuple(map(instead, step.inputs)))
    if isinstance(step, ViewStep):
        return replace(step, source=instead(step.source))
    return replace(step, old=instead(step.old), value=instead(step.value))


def pointed(graph: Graph, plan: Plan, rng: random.Random) -> Plan | None:
    """An operand that is another value, of the same layout mostly."""
    index = rng.randrange(len(plan.steps))
    step = plan.steps[index]
    if isinstance(step, LaunchStep):
        numbers = step.inputs
    elif isinstance(step, ViewStep):
        numbers = (step.source,)
    else:
        numbers = (step.old, step.value)
    if not numbers:
        return None
    number = rng.choice(numbers)
    known = [n for n in before(graph, plan, index) if n != number]
    alike = [n for n in known if graph.layouts[n] is graph.layouts[number]]
    choice = alike if alike and rng.random() < 0.8 else known
    return with_step(plan, index, reading(step, number, rng.choice(choice)))


def crossed(graph: Graph, plan: Plan, rng: random.Random) -> Plan | None:
    """Two operands, or two results, of a launch in each other's place."""
    found = [
        index
        for index in steps_of(plan, LaunchStep)
        if max(len(plan.steps[index].inputs), len(plan.steps[index].outputs)) > 1  # type: ignore[union-attr]
    ]
    if not found:
        return None
    index = rng.choice(found)
    step = plan.steps[index]
    assert isinstance(step, LaunchStep)
    field = rng.choice([f for f in ("inputs", "outputs") if len(getattr(step, f)) > 1])
    numbers = list(getattr(step, field))
    a, b = rng.sample(range(len(numbers)), 2)
    numbers[a], numbers[b] = numbers[b], numbers[a]
    return with_step(plan, index, replace(step, **{field: tuple(numbers)}))


def shifted(graph: Graph, plan: Plan, rng: random.Random) -> Plan | None:
    """A window that begins elsewhere."""
    found = steps_of(plan, ViewStep, WriteStep)
    if not found:
        return None
    index = rng.choice(found)
    step = plan.steps[index]
    assert isinstance(step, (ViewStep, WriteStep))
    by = step.layout.itemsize * rng.choice((-6, -1, 1, 2, 6))
    return with_step(plan, index, replace(step, offset=step.offset + by))


def shrunk(graph: Graph, plan: Plan, rng: random.Random) -> Plan | None:
    """A window with fewer elements, or with others."""
    found = [i for i in steps_of(plan, ViewStep, WriteStep) if plan.steps[i].layout.ndim]  # type: ignore[union-attr]
    if not found:
        return None
    index = rng.choice(found)
    step = plan.steps[index]
    assert isinstance(step, (ViewStep, WriteStep))
    layout, axis = step.layout, rng.randrange(step.layout.ndim)
    shape, strides = list(layout.shape), list(layout.strides)
    if rng.random() < 0.5:
        shape[axis] = max(0, shape[axis] - 1)
    else:
        strides[axis] = strides[axis] * rng.choice((-1, 2)) or layout.itemsize
    other = make_layout(layout.dtype, tuple(shape), tuple(strides))
    return with_step(plan, index, replace(step, layout=other))


def freed(graph: Graph, plan: Plan, rng: random.Random) -> Plan:
    """A value given up earlier: its memory is free, or may be written over."""
    index = rng.randrange(len(plan.steps))
    step = plan.steps[index]
    known = [n for n in before(graph, plan, index + 1) if n not in plan.dead[index]]
    if isinstance(step, WriteStep) and step.old in known and rng.random() < 0.7:
        known = [step.old]
    gone = (rng.choice(known),) if known else ()
    return with_dead(plan, index, (*plan.dead[index], *gone))


def reused(graph: Graph, plan: Plan, rng: random.Random) -> Plan | None:
    """A result in the memory of an operand."""
    found = [i for i in steps_of(plan, LaunchStep) if plan.steps[i].inputs]  # type: ignore[union-attr]
    if not found:
        return None
    index = rng.choice(found)
    step = plan.steps[index]
    assert isinstance(step, LaunchStep)
    over = rng.randrange(len(step.outputs)), rng.randrange(len(step.inputs))
    return with_step(plan, index, replace(step, over=over))


def another_home(graph: Graph, plan: Plan, rng: random.Random) -> Plan | None:
    """A write that may be done in leased memory which is not its own."""
    found = steps_of(plan, WriteStep)
    if not found:
        return None
    index = rng.choice(found)
    step = plan.steps[index]
    assert isinstance(step, WriteStep)
    return with_step(plan, index, replace(step, home=rng.randrange(len(graph.inputs))))


BREAKAGES: tuple[Callable[[Graph, Plan, random.Random], Plan | None], ...] = (
    swapped, moved, dropped, renamed, pointed, crossed, shifted, shrunk, freed, reused,
)  # fmt: skip


class Case(NamedTuple):
    """A plan that is right, and what it gives."""

    name: tuple[Any, ...]
    graph: Graph
    inputs: list[Place]
    wanted: list[Place]
    plan: Plan


@cache  # made once for all breakages
def cases() -> list[Case]:
    found = []
    for seed in range(30):
        graph, inputs = random_graph(seed, 6 + seed % 30)
        values = evaluate(graph, inputs)
        wanted = [values[o] for o in graph.outputs]
        for facts in FACTS:
            plan = make_plan(graph, facts)
            assert plan_faults(plan, graph) == [] and right(plan, inputs, wanted)
            found.append(Case((seed, facts.force), graph, inputs, wanted, plan))
    return found


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda one: one.__name__)
def test_a_breakage_that_changes_the_answer_is_refused(
    breakage: Callable[[Graph, Plan, random.Random], Plan | None],
) -> None:
    rng = random.Random(breakage.__name__)
    changing = 0
    for name, graph, inputs, wanted, plan in cases():
        for _ in range(4):
            broken = breakage(graph, plan, rng) if len(plan.steps) > 1 else None
            if broken is None or contents(broken) == contents(plan):
                continue
            refused = bool(plan_faults(broken, graph))
            if refused and changing > 30:  # what it would have given says no more
                continue
            changes = not right(broken, inputs, wanted)
            changing += changes
            assert refused or not changes, (name, broken)
    assert changing > 30


def test_no_write_is_at_home_where_the_program_did_not_write() -> None:
    rng = random.Random(5)
    count = 0
    for seed in range(60):
        graph, _ = random_graph(seed, 30)
        plan = make_plan(graph, NUMPY)
        broken = another_home(graph, plan, rng)
        if broken is not None:
            assert plan_faults(broken, graph)
            count += 1
    assert count > 20
