"""Plans are checked by symbols: right ones pass, and each way of breaking one is refused where it
breaks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from alight._core import make_layout
from alight._src.ir.graph import Graph
from alight._src.plan import byte_sets, strided_runs
from alight._src.plan.byte_sets import ByteSet, bytes_of
from alight._src.plan.check import (
    Given,
    Program,
    Storage,
    Window,
    check_plan,
    check_program,
)
from alight._src.plan.contents import Contents, Operand, Place
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Estimate, Facts, LaunchStep, Plan, Step, ViewStep, WriteStep
from alight.device import Device, Support
from alight.errors import PlanError
from graphs import F8, Builder, random_graph
from plan_facts import plan_faults

CPU = Device("cpu", "v", "n", "host", 1 << 34, True, Support(("numpy", "generated"), frozenset()))
FACTS = Facts((CPU,), {})
GENERATED = replace(FACTS, force=("cpu", "generated"))
ROWS = make_layout(F8, (6, 8))


# --- sets of bytes ------------------------------------------------------------------------------
def elements(start: int, layout: Any) -> set[int]:
    found: set[int] = set()
    for index in np.ndindex(*layout.shape):
        at = start + sum(i * step for i, step in zip(index, layout.strides, strict=True))
        found.update(range(at, at + layout.itemsize))
    return found


def told(one: ByteSet) -> set[int]:
    return {byte for part in one.parts for low, high in part.spans() for byte in range(low, high)}


def some_arrays(count: int) -> Iterator[tuple[int, Any]]:
    """Yield places of arrays of any steps, and of windows of one matrix."""
    rng = random.Random(0)
    steps = (-24, -8, -3, 0, 1, 2, 4, 8, 9, 16, 24, 40)
    matrix = np.empty((6, 5, 4), "i2")
    keys = (slice(None), slice(1, None), slice(None, -1), slice(None, None, 2), slice(None, 2), 0)
    for number in range(count):
        if number // 4 % 2:
            window = matrix[tuple(rng.choices(keys, k=3))]
            start = window.__array_interface__["data"][0] - matrix.ctypes.data
            yield start, make_layout(window.dtype, window.shape, window.strides)
            continue
        ndim = rng.randint(0, 3)
        shape = tuple([rng.randint(0, 4) for _ in range(ndim)])
        dtype = np.dtype(rng.choice("bhid"))
        yield rng.randint(0, 60), make_layout(dtype, shape, tuple(rng.choices(steps, k=ndim)))


def test_sets_of_bytes_are_those_of_the_elements() -> None:
    places = list(some_arrays(3000))
    for one, other, third in zip(places[::2], places[1::2], places[2::2], strict=False):
        a, b, c = bytes_of(*one), bytes_of(*other), bytes_of(*third)
        x, y, z = elements(*one), elements(*other), elements(*third)
        assert (told(a), told(b)) == (x, y), (one, other)
        assert told(a & b) == x & y and told(a - b) == x - y, (one, other)
        assert a.meets(b) == bool(x & y) and a.within(b) == (x <= y), (one, other)
        assert told(a - b - c) == x - y - z and told((a - b) & c) == (x - y) & z
        assert told(a - (b - c)) == x - (y - z) and (a - b).within(c) == (x - y <= z)
        for found, wanted in ((a - b, x - y), ((a - b) & c, (x - y) & z)):
            assert (found.low, found.high) == ((min(wanted), max(wanted) + 1) if wanted else (0, 0))


@pytest.mark.parametrize("runs", [1, 5])
def test_sets_of_too_many_runs_are_no_less(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused where too much is to be told may be right; what passes is."""
    monkeypatch.setattr(strided_runs, "RUNS", runs)
    byte_sets._touched.cache_clear()
    places = list(some_arrays(1000))
    met = 0
    for one, other in zip(places[::2], places[1::2], strict=True):
        a, b = bytes_of(*one), bytes_of(*other)
        x, y = elements(*one), elements(*other)
        assert told(a & b) >= x & y and told(a - b) >= x - y, (one, other)
        assert a.meets(b) >= bool(x & y) and a.within(b) <= (x <= y), (one, other)
        met += a.meets(b) == bool(x & y)
    byte_sets._touched.cache_clear()
    assert met > 400, met


def test_what_is_too_much_to_tell_counts_as_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strided_runs, "RUNS", 3)
    left = make_layout(F8, (3, 3, 3), (720, 216, 48))
    byte_sets._touched.cache_clear()
    a, b, c = bytes_of(0, left), bytes_of(16, left), bytes_of(48, left)
    byte_sets._touched.cache_clear()
    assert a.box is not None and not a.meets(b)  # NumPy's solver tells that they are apart
    assert a.meets(c) and not (a - c).within(c)
    assert a.within(a) and a.within(byte_sets.span(0, 5000)) and not byte_sets.span(0, 8).within(a)
    monkeypatch.setattr(byte_sets, "_WORK", 0)  # bounds alone
    assert a.meets(b)


def test_a_column_costs_no_more_than_a_row() -> None:
    """Columns of a matrix, taken out one by one, are told by one period of it."""
    rows, columns = 100_000, 64
    left = byte_sets.span(800, 800 + rows * columns * 8)
    for column in range(columns):
        part = bytes_of(800 + column * 8, make_layout(F8, (rows,), (columns * 8,)))
        assert part.within(left) and (left & part).within(part)
        left = left - part
        assert not left.meets(part) and sum([len(one.runs) for one in left.parts]) < 4
    assert not left


# --- memory -------------------------------------------------------------------------------------
def refused(match: str, call: Any, *args: Any, **kwargs: Any) -> PlanError:
    with pytest.raises(PlanError, match=match) as caught:
        call(*args, **kwargs)
    assert "Fix: " in str(caught.value)
    return caught.value


def place(arena: str, start: int, *shape: int, dtype: Any = F8) -> Place:
    return Place(arena, start, make_layout(np.dtype(dtype), shape))


def test_memory_holds_what_was_written_last() -> None:
    memory = Contents()
    memory.add("a", 0, 80, "ten", holds=1)
    memory.view(2, 1, 16)
    memory.read(2, place("a", 16, 3))
    error = refused("wants %2 in ten.*hold %1, -8 bytes on", memory.read, 2, place("a", 24, 3))
    assert (error.buffer, error.value) == ("ten", 2)
    memory.write(3, place("a", 32, 2))
    memory.read(1, place("a", 0, 4))
    refused("bytes 32…40 hold %3", memory.read, 1, place("a", 0, 5))
    refused("outside of ten, which has 80", memory.read, 1, place("a", 72, 2))
    refused("in no buffer", memory.read, 1, place("b", 0, 1))
    memory.add("b", 0, 16, "new")
    refused("nothing was written there", memory.read, 1, place("b", 0, 1))
    memory.copy("a", 0, "b", 0, 16)
    memory.read(1, place("b", 0, 2))
    memory.drop("b")
    refused("in no buffer", memory.read, 1, place("b", 0, 2))


def test_versions_share_what_was_not_written() -> None:
    row = make_layout(F8, (8,))
    memory = Contents()
    memory.add("a", 0, ROWS.nbytes, "plane", holds=0)
    memory.update(2, 0, row, 64, 1, row)
    memory.update(3, 2, row, 128, 1, row)
    memory.write(1, place("a", 128, 8))
    memory.read(0, place("a", 0, 2, 8))
    memory.read(2, place("a", 0, 1, 8))
    refused("hold %0", memory.read, 3, place("a", 0, 6, 8))  # the second row is the old one
    memory.write(1, place("a", 64, 8))
    memory.read(3, place("a", 0, 6, 8))
    refused("hold %1", memory.read, 2, place("a", 0, 6, 8))
    # a column of every second row, from a scalar
    column = make_layout(F8, (3,), (128,))
    memory.update(5, 3, column, 8, 4, make_layout(F8, ()))
    memory.write(4, Place("a", 8, column), make_layout(F8, ()))
    memory.read(5, place("a", 0, 6, 8))
    refused("hold %4 repeated", memory.read, 3, place("a", 0, 6, 8))


def test_a_launch_does_not_write_over_what_it_reads() -> None:
    memory = Contents()
    memory.add("a", 0, 160, "a", holds=0)
    memory.step = "step 7"
    whole, half, moved = place("a", 0, 20), place("a", 0, 10), place("a", 8, 10)
    memory.view(1, 0, 8)
    launch = memory.launch
    error = refused(
        "step 7: makes %2 in a over bytes that hold its operand %0", launch,
        [Operand(0, whole)], [(2, whole)],
    )  # fmt: skip
    assert (error.step, error.buffer, error.value) == ("step 7", "a", 0)
    refused("over bytes", launch, [Operand(1, moved, once=True)], [(2, half)])
    refused("in the same bytes", launch, [], [(2, half), (3, moved)])
    launch([Operand(0, whole, once=True)], [(2, whole)])
    memory.read(2, whole)
    refused("hold %2", launch, [Operand(0, whole, once=True)], [(3, whole)])


def test_queues_wait_for_one_another() -> None:
    memory = Contents()
    memory.add("a", 0, 80, "slot")
    memory.add("b", 0, 80, "result")
    slot, result = place("a", 0, 10), place("b", 0, 10)
    came = memory.submit("up")
    memory.write(0, slot)
    memory.submit("run")
    refused("reads slot for %0 without waiting for submission 1 of up", memory.read, 0, slot)
    ran = memory.submit("run", [came])
    memory.launch([Operand(0, slot)], [(1, result)])
    memory.submit("up")
    refused("writes over slot.*without waiting for submission 2 of run", memory.write, 2, slot)
    memory.submit("up", [ran])
    memory.write(2, slot)
    memory.host()
    refused("reads result", memory.read, 1, result)
    memory.host(ran)
    memory.read(1, result)


# --- plans --------------------------------------------------------------------------------------
def test_plans_that_are_right_pass() -> None:
    seen: Counter[type] = Counter()
    for seed in range(150):
        graph, _ = random_graph(1000 + seed, 5 + seed % 50)
        for facts in (FACTS, GENERATED):
            plan = make_plan(graph, facts)
            check_plan(plan, graph)
            seen.update(map(type, plan.steps))
    assert min(seen[LaunchStep], seen[ViewStep], seen[WriteStep]) > 100


def test_a_write_of_all_of_a_value_with_a_window_written_is_one_write() -> None:
    """``q[2] = 1; b[...] = q[...]``: the value written goes by the name of a view of all of it."""
    b = Builder(ROWS, make_layout(F8, ()), ROWS)
    version = b.write(0, np.s_[2], 1)
    graph = b.graph(b.write(2, np.s_[...], b.view(version, np.s_[...])))
    for facts in (FACTS, GENERATED):
        plan = make_plan(graph, facts)
        check_plan(plan, graph)
        (write,) = [step for step in plan.steps if isinstance(step, WriteStep)]
        assert write.layout.shape == (8,)
        for other in (replace(write, offset=write.offset + 8), replace(write, layout=ROWS)):
            steps = tuple([other if step is write else step for step in plan.steps])
            refused("sets", check_plan, replace(plan, steps=steps), graph)
    # a view of a part is another value: what was written into the other part is not to be seen
    b = Builder(ROWS, make_layout(F8, ()), make_layout(F8, (8,)))
    version = b.write(0, np.s_[2], 1)
    graph = b.graph(b.write(2, np.s_[...], b.view(version, np.s_[3])))
    plan = make_plan(graph, GENERATED)
    check_plan(plan, graph)
    for step in plan.steps:
        if isinstance(step, WriteStep):
            wrong = replace(step, layout=make_layout(F8, (4,), (16,)))
            steps = tuple([wrong if one is step else one for one in plan.steps])
            refused("sets", check_plan, replace(plan, steps=steps), graph)


def test_windows_of_many_elements_apart_are_told_exactly() -> None:
    """Each second element of so many is set: the others are what they were, and no more."""
    many = make_layout(F8, (2, strided_runs.RUNS + 8))
    b = Builder(many, make_layout(F8, ()))
    first = b.write(0, np.s_[:, ::2], 1)
    last = b.write(first, np.s_[0, 1::2], b.add("exp", b.view(first, np.s_[1, ::2])))
    graph = b.graph(b.add("exp", b.view(last, np.s_[0, 1::2])), last)
    for facts in (FACTS, GENERATED):
        plan = make_plan(graph, facts)
        check_plan(plan, graph)
        writes = [step for step in plan.steps if isinstance(step, WriteStep)]
        assert len(writes) == 2
        for write in writes:
            steps = tuple([step for step in plan.steps if step is not write])
            assert plan_faults(replace(plan, steps=steps, dead=plan.dead[: len(steps)]), graph)


def test_what_was_read_is_not_followed_back_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """``a[i + 1] = a[i]``, read after each write: the work of a check grows as the writes do."""
    cut, cuts = Contents._cut, Counter[str]()

    def counted(self: Any, *args: Any) -> Any:
        cuts["all"] += 1
        return cut(self, *args)

    monkeypatch.setattr(Contents, "_cut", counted)
    writes, row = 200, make_layout(F8, (8,))
    memory = Contents()
    memory.add("a", 0, writes * 64, "a", 0)
    whole = Place("a", 0, make_layout(F8, (writes * 8,)))
    for i in range(writes):
        memory.read(2 * i, whole)
        memory.update(2 * i + 2, 2 * i, row, 64 * i, 2 * i + 1, row)
        memory.write(2 * i + 1, Place("a", 64 * i, row))
    memory.read(2 * writes, whole)
    assert cuts["all"] < 20 * writes, cuts
    refused(f"hold %{2 * writes - 1}", memory.read, 2 * writes - 2, whole)  # the one before


def test_an_element_of_many_that_is_another_is_refused() -> None:
    many, one = strided_runs.RUNS + 8, make_layout(F8, ())
    memory = Contents()
    memory.add("a", 0, many * 16, "a")
    left, right = [Place("a", at, make_layout(F8, (many,), (16,))) for at in (0, 8)]
    memory.write(0, left)
    memory.write(1, right)
    memory.read(0, left)
    memory.read(1, right)
    memory.write(2, Place("a", 16 * (many - 3), one))
    memory.read(1, right)
    refused("hold %2", memory.read, 0, left)


def fault(plan: Plan, graph: Graph) -> str:
    """Return where a plan is wrong."""
    with pytest.raises(PlanError) as caught:
        check_plan(plan, graph)
    assert plan_faults(plan, graph)
    return caught.value.step


def updated() -> tuple[Graph, Plan]:
    """Return a plan of launches, views and writes in place: rows are added, one is set, and sums of
    what was and what is are asked for."""
    b = Builder(ROWS, make_layout(F8, ()))
    made = b.add("exp", 0)
    upper = b.view(made, np.s_[:3])
    sums = b.reduce("sum", upper, (0,))
    version = b.write(made, np.s_[2], 1)
    last = b.write(version, np.s_[4, ::2], 1)
    total = b.reduce("sum", last, (1,))
    graph = b.graph(sums, total, last)
    return graph, make_plan(graph, GENERATED)


def swapped(plan: Plan, first: int, second: int) -> Plan:
    steps, dead = list(plan.steps), list(plan.dead)
    for one in (steps, dead):
        one[first], one[second] = one[second], one[first]
    return replace(plan, steps=tuple(steps), dead=tuple(dead))


def changed(plan: Plan, index: int, step: Step) -> Plan:
    return replace(plan, steps=(*plan.steps[:index], step, *plan.steps[index + 1 :]))


def test_a_broken_plan_is_refused_at_its_step() -> None:
    graph, plan = updated()
    check_plan(plan, graph)
    kinds = [type(step) for step in plan.steps]
    assert kinds == [LaunchStep, ViewStep, LaunchStep, WriteStep, WriteStep, LaunchStep]
    made, upper, _, write, second, _ = range(6)
    # two steps swapped: a read before its value is there, and after its bytes were written over
    assert fault(swapped(plan, made, upper), graph) == "step 0"
    early = swapped(plan, 2, write)
    assert fault(early, graph).startswith("step 3")
    assert fault(swapped(plan, write, second), graph).startswith("step 3")
    # one dropped
    for index in range(len(plan.steps)):
        short = replace(
            plan,
            steps=(*plan.steps[:index], *plan.steps[index + 1 :]),
            dead=(*plan.dead[:index], *plan.dead[index + 1 :]),
        )
        later = fault(short, graph)
        assert later == f"step {index}" or later.startswith(("step", "output")), (index, later)
    # freed too early
    dead = list(plan.dead)
    dead[made] = (*dead[made], *plan.steps[made].outputs)  # type: ignore[union-attr]
    assert fault(replace(plan, dead=tuple(dead)), graph) == "step 1"
    # an offset that is another
    step = plan.steps[upper]
    assert isinstance(step, ViewStep)
    assert fault(changed(plan, upper, replace(step, offset=64)), graph) == "step 1"
    step = plan.steps[write]
    assert isinstance(step, WriteStep)
    assert fault(changed(plan, write, replace(step, offset=step.offset + 8)), graph) == "step 3"
    beyond = make_layout(F8, (60,))
    assert fault(changed(plan, write, replace(step, layout=beyond)), graph) == "step 3"


def test_memory_taken_from_an_operand_that_is_needed_is_refused() -> None:
    b = Builder(make_layout(F8, (300, 200)))
    first = b.add("exp", 0)
    second = b.reduce("sum", first, (0,))
    third = b.add("subtract", first, second)
    last = b.add("multiply", third, first)
    graph = b.graph(third, last)
    plan = make_plan(graph, FACTS)
    check_plan(plan, graph)
    found = 0
    for index, step in enumerate(plan.steps):
        if not isinstance(step, LaunchStep):
            continue
        places = product(range(len(step.outputs)), range(len(step.inputs)))
        for over in places:
            number = step.inputs[over[1]]
            if number < len(graph.inputs):
                continue
            layout = step.group.graph.layouts[step.group.graph.outputs[over[0]]]
            needed = number not in plan.dead[index] or number in graph.outputs
            if needed or layout is not graph.layouts[number]:
                where = fault(changed(plan, index, replace(step, over=over)), graph)
                assert where.startswith("step") or where == "at the end"
                found += 1
    assert found >= 3


def test_random_plans_that_are_broken_are_refused() -> None:
    """Steps dropped, and values freed where they are needed: each plan is refused, and not before
    the place where it was broken."""
    rng = random.Random(3)
    broken = 0
    for seed in range(60):
        graph, _ = random_graph(seed, 30)
        plan = make_plan(graph, GENERATED)
        index = rng.randrange(len(plan.steps))
        one = replace(
            plan,
            steps=(*plan.steps[:index], *plan.steps[index + 1 :]),
            dead=(*plan.dead[:index], *plan.dead[index + 1 :]),
        )
        where = fault(one, graph)
        assert where.startswith("output") or int(where.split()[1]) >= index, (seed, where)
        needed = [
            (at, number)
            for at in range(len(plan.steps) - 1)
            for later in plan.steps[at + 1 :]
            if isinstance(later, LaunchStep)
            for number in later.inputs
            if number not in {n for gone in plan.dead[: at + 1] for n in gone}
            and (number < len(graph.inputs) or any(number in made(s) for s in plan.steps[: at + 1]))
        ]
        if needed:
            at, number = rng.choice(needed)
            dead = list(plan.dead)
            dead[at] = (*dead[at], number)
            where = fault(replace(plan, dead=tuple(dead)), graph)
            assert int(where.split()[1]) > at, (seed, where)
            broken += 1
    assert broken > 30


def made(step: Step) -> tuple[int, ...]:
    return step.outputs if isinstance(step, LaunchStep) else (step.target,)


# --- programs on the caller's memory ------------------------------------------------------------
def assigned() -> tuple[Graph, Plan, int]:
    """Return ``y = x + 1; x[0] = 0; y`` as a plan, with the number of what x is in the end."""
    b = Builder(ROWS, make_layout(F8, ()))
    y = b.add("add", 0, 1)
    x = b.write(0, np.s_[0], 1, leased=True)
    graph = b.graph(y, x)
    return graph, make_plan(graph, GENERATED), x


def program(**fields: Any) -> Program:
    graph, plan, x = assigned()
    whole = Window(0, 0, ROWS, x)
    return Program(
        plan=plan,
        graph=graph,
        storages=(Storage("x", ROWS.nbytes, 4096),),
        given=(Given(0, 0), None),
        contents=(whole,),
        moves=(whole,),
        results=(graph.outputs[0],),
    )._replace(**fields)


def test_a_program_leaves_what_was_assigned() -> None:
    check_program(program())
    check_program(program(may_write=frozenset((0,))))
    assert refused("what was assigned to x", check_program, program(moves=())).step == "at the end"
    error = refused("x held before", check_program, program(contents=(), moves=(),
                    may_write=frozenset((0,))))  # fmt: skip
    assert error.buffer == "x"
    whole = program().moves[0]
    refused("outside of x", check_program, program(moves=(whole._replace(offset=8),)))
    low = (Storage("x", ROWS.nbytes - 8, 4096),)
    refused("outside of x", check_program, program(storages=low))


def test_a_result_is_no_memory_that_is_written_later() -> None:
    """A value made straight in a window of an argument, which what comes later writes over."""
    graph, _, x = assigned()
    y = graph.outputs[0]
    other = (Storage("x", ROWS.nbytes, 4096), Storage("y", ROWS.nbytes, 1 << 20))
    there = Window(1, 0, ROWS, y)
    moves = (Window(0, 0, ROWS, x),)
    good = program(storages=other, straight=(there,), contents=(*moves, there), moves=moves)
    check_program(good)
    # the window of an argument that the step itself reads, elsewhere
    straight = (Window(0, 8, ROWS, y),)
    refused("outside of|over bytes", check_program, good._replace(straight=straight))
    same = Window(0, 0, ROWS, y)
    refused("x held before|hold %", check_program, good._replace(straight=(same,)))
    # two arguments that overlap, given as two storages
    apart = (other[0], Storage("y", ROWS.nbytes, 4096 + 64))
    refused("in no buffer|outside of|held before", check_program, good._replace(storages=apart))


def test_windows_are_moved_in_an_order_that_leaves_their_sources() -> None:
    """``a, b = b, a`` in two arguments: one of them has to be kept first."""
    b = Builder(ROWS, ROWS)
    one, two = b.add("copy", 0), b.add("copy", 1)
    graph = b.graph(one, two)
    plan = make_plan(graph, FACTS)
    storages = (Storage("a", ROWS.nbytes), Storage("b", ROWS.nbytes))
    windows = (Window(0, 0, ROWS, two), Window(1, 0, ROWS, one))
    whole = Program(
        plan=plan, graph=graph, storages=storages, given=(Given(0, 0), Given(1, 0)),
        contents=windows, moves=windows,
    )  # fmt: skip
    check_program(whole)
    straight = (Window(0, 0, ROWS, two),)  # over a, which the other copy has yet to read
    error = refused("wants %0", check_program, whole._replace(
        plan=swapped(plan, 0, 1), straight=straight, moves=windows[1:]))  # fmt: skip
    assert error.step.startswith("step 1") and error.buffer == "a"


def test_estimates_do_not_matter() -> None:
    """Plans placed by cost, of groups fused otherwise, are as right."""

    def some(group: Any, device: str, implementation: str) -> Estimate:
        seconds = 1e-6 * (1 + len(group.graph.nodes) % 3)
        return Estimate(seconds, seconds, seconds, {})

    for seed in range(40):
        graph, _ = random_graph(seed, 40)
        assert plan_faults(make_plan(graph, replace(FACTS, estimate=some)), graph) == []
