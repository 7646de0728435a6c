"""What is kept of traced calls, handed to the check of programs as data."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from alight._core import Layout
from alight._src.base.originals import np
from alight._src.ir.well_formed import reach
from alight._src.jit.call_program import Leaf
from alight._src.plan.check import (
    Given,
    Program,
    ProgramWalk,
    Storage,
    Window,
    check_program,
    read_once,
    step_name,
)
from alight._src.plan.contents import Contents, Operand, Place
from alight._src.plan.place import homes_of
from alight._src.plan.plan import LaunchStep, Plan, ViewStep
from alight.errors import PlanError

if TYPE_CHECKING:
    from alight._src.jit import array_program, host_program
    from alight._src.jit.host_program import Written

__all__ = ["counts", "prove_arrays", "prove_host", "prove_launches"]

# How many of each were proven in this process.
counts = {"programs": 0, "launches": 0}


class _HostWalk(ProgramWalk):
    """The walk of a program on the caller's ndarrays. At its end the windows that were written are
    put into arguments, of versions that do not lie there by then; all are read before anything is
    written (`put_back` of leased memory)."""

    def __init__(
        self, program: Program, in_place: bool, written: Sequence[tuple[int, Written]]
    ) -> None:
        super().__init__(program, in_place)
        self.written = written

    def put_back(self) -> None:
        """Put into arguments what does not lie there."""
        memory = self.memory
        ready: list[tuple[str, Hashable, Place]] = []
        for index, (storage, (number, value, windows)) in enumerate(self.written):
            version = self.at[value]
            if self.storage(version) == storage:
                continue
            memory.step = f"write-back {index} (of %{value} into argument {number})"
            for window in windows:
                part = "window", value, window.offset, window.layout
                memory.view(part, value, window.offset)
                source = Place(version.arena, version.start + window.offset, window.layout)
                memory.read(part, source)
                target = self.place(storage, window.offset, window.layout)
                ready.append((memory.step, part, target))
        for step, name, target in ready:
            memory.step = step
            memory.write(name, target)


def prove_host(program: host_program.HostProgram) -> None:
    """Raise PlanError unless a program on the caller's ndarrays is right."""
    counts["programs"] += 1
    graph, leaves = program.graph, program.leaves
    homes = homes_of(graph)
    for number, value, _ in program.writes:
        home = homes.get(value)
        if home is not None and leaves[home].number != number:
            raise PlanError(
                f"argument {number} is to hold a version of argument {leaves[home].number}. "
                "Fix: report this program, in which alight is wrong.",
                "write-back",
            )
    nbytes: dict[int, int] = {}
    for leaf in leaves:
        if type(leaf) is Leaf:
            number, layout, offset = leaf
            nbytes[number] = max(nbytes.get(number, 0), offset + reach(layout)[1])
    for number, value, _ in program.writes:
        nbytes[number] = max(nbytes.get(number, 0), graph.layouts[value].nbytes)
    order = {number: place for place, number in enumerate(sorted(nbytes))}
    written = tuple([Window(order[n], 0, graph.layouts[v], v) for n, v, _ in program.writes])
    whole = Program(
        plan=program.plan,
        graph=graph,
        storages=tuple([Storage(f"argument {n}", nbytes[n]) for n in order]),
        given=tuple(
            [Given(order[leaf[0]], leaf[2]) if type(leaf) is Leaf else None for leaf in leaves]
        ),
        contents=written,
        may_write=frozenset(order.values()),
        results=tuple(_fresh(program.form)),
    )
    listed = [(order[one.number], one) for one in program.writes]
    check_program(whole, partial(_HostWalk, written=listed))


def _fresh(form: Any) -> list[int]:
    """Return the values that results are made of."""
    if hasattr(form, "parts"):
        return [value for part in form.parts for value in _fresh(part)]
    return [form.value] if hasattr(form, "memory") else []


def prove_arrays(program: array_program.ArrayProgram) -> None:
    """Raise PlanError unless a program on Arrays, which others hold, is right."""
    counts["programs"] += 1
    graph = program.graph
    given: list[Given | None] = []
    nbytes: dict[int, int] = {}
    for leaf in program.leaves:
        if not hasattr(leaf, "number"):  # a constant
            given.append(None)
            continue
        given.append(Given(leaf.number, leaf.offset))
        nbytes[leaf.number] = max(nbytes.get(leaf.number, 0), leaf.offset + reach(leaf.layout)[1])
    count = len(program.pattern)
    check_program(
        Program(
            plan=program.plan,
            graph=graph,
            storages=tuple([Storage(f"argument {n}", nbytes.get(n, 0)) for n in range(count)]),
            given=tuple(given),
            results=graph.outputs,
        )
    )


def prove_launches(
    program: host_program.HostProgram, plan: Plan, launchable: host_program.Launchable
) -> None:
    """Raise PlanError unless kernels made ready for a guard find what the plan wants, at the
    offsets that they were given."""
    counts["launches"] += 1
    memory = Contents()
    leaves, first = program.leaves, len(launchable.inputs)
    arenas: list[tuple[Hashable, int]] = []
    nbytes: dict[int, int] = {}
    for leaf in leaves:
        if type(leaf) is Leaf:
            nbytes[leaf[0]] = max(nbytes.get(leaf[0], 0), leaf[2] + reach(leaf[1])[1])
    for number, size in nbytes.items():
        memory.add(("argument", number), 0, size, f"argument {number}", ("argument", number))
    for number, leaf in enumerate(leaves):
        if type(leaf) is Leaf:
            memory.view(number, ("argument", leaf[0]), leaf[2])
    # Constants are told apart by the order in which steps ask for them.
    asked = [number for step in plan.steps for number in _reads(step) if number < len(leaves)]
    for place, (given, number) in enumerate(
        zip(launchable.inputs, dict.fromkeys(asked), strict=True)
    ):
        if isinstance(given, np.ndarray):
            memory.add(("constant", place), 0, given.nbytes, f"constant {place}", number)
            arenas.append((("constant", place), 0))
        else:
            arenas.append((("argument", given[0]), given[2]))
    for place, layout in enumerate(launchable.outputs):
        memory.add(("output", place), 0, layout.nbytes, f"output {place}")
        arenas.append((("output", place), 0))

    def at(operand: tuple[int, int], layout: Layout) -> Place:
        arena, start = arenas[operand[0]]
        return Place(arena, start + operand[1], layout)

    ready = iter(zip(launchable.steps, launchable.operands, strict=True))
    for index, step in enumerate(plan.steps):
        memory.step = step_name(index, step)
        if isinstance(step, ViewStep):
            memory.view(step.target, step.source, step.offset)
            continue
        assert isinstance(step, LaunchStep)
        made, operands = next(ready)
        inner = made.group.graph
        count = len(step.inputs)
        reads = [
            Operand(number, at(one, layout), read_once(made.group, made.implementation, place))
            for place, (number, one, layout) in enumerate(
                zip(step.inputs, operands[:count], inner.inputs, strict=True)
            )
        ]
        results = [
            (number, at(one, inner.layouts[local]))
            for number, one, local in zip(
                step.outputs, operands[count:], inner.outputs, strict=True
            )
        ]
        memory.launch(reads, results)
    memory.step = "at the end"
    for number, place in zip(_fresh(program.form), launchable.results, strict=True):
        memory.read(number, at((first + place, 0), program.graph.layouts[number]))


def _reads(step: Any) -> tuple[int, ...]:
    return step.inputs if isinstance(step, LaunchStep) else (step.source,)
