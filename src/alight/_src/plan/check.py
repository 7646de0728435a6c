"""Whether a plan is right before it runs: it is well formed, and run by symbols each of its steps
reads what it wants, wherever the results may be put; a program that works on the caller's memory
leaves there what its body assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from alight._core import make_layout
from alight._src.base.originals import np
from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import Group
from alight._src.ir.well_formed import reach
from alight._src.plan.contents import HOST_ARENA, Contents, Operand, Place
from alight._src.plan.plan import LaunchStep, Plan, Step, ViewStep, WriteStep
from alight._src.plan.plan_form import malformed
from alight.device import HOST_DEVICE
from alight.errors import PlanError

if TYPE_CHECKING:
    from alight._core import Layout

__all__ = [
    "Given", "Program", "ProgramWalk", "Storage", "Window", "check_plan", "check_program",
    "read_once", "step_name",
]  # fmt: skip

_BYTE = np.dtype(np.uint8)


class Storage(NamedTuple):
    """Memory of the caller's: one range of addresses, however many arrays lie in it. ``address``:
    None where it is not known; then it is apart from all other."""

    name: str
    nbytes: int
    address: int | None = None


class Given(NamedTuple):
    """An input of a plan that lies in a storage, so many bytes from its first."""

    storage: int
    offset: int


class Window(NamedTuple):
    """A window of a storage, and the value of the plan that is put there; it broadcasts to the
    window."""

    storage: int
    offset: int
    layout: Layout
    value: int


class Program(NamedTuple):
    """A plan that works on memory of the caller's, as data.

    ``given`` says of each input of the graph where it lies, None for what is the plan's own
    (constants). ``contents`` are what the body has assigned, in its order: they say what the
    storages hold at the end. ``moves`` are what is done at the end, in their order; ``straight``
    are the values that steps make in a storage already, each in its window. ``may_write`` are the
    storages that write steps may write into where nobody needs the old bytes. ``results`` are
    values that must be there in the end.
    """

    plan: Plan
    graph: Graph
    storages: tuple[Storage, ...]
    given: tuple[Given | None, ...]
    contents: tuple[Window, ...] = ()
    moves: tuple[Window, ...] = ()
    straight: tuple[Window, ...] = ()
    may_write: frozenset[int] = frozenset()
    results: tuple[int, ...] = ()


def check_plan(plan: Plan, graph: Graph, bases: Sequence[int] = ()) -> None:
    """Raise PlanError, naming the first step that is wrong, unless a plan for a graph is right."""
    for in_place in _ways(plan, graph):
        _Walk(plan, graph, bases, in_place=in_place).run()


def check_program(
    program: Program, walk: Callable[[Program, bool], ProgramWalk] | None = None
) -> None:
    """Raise PlanError unless a program's steps read what they want and its end leaves everything
    as the body assigned it: also where no write can be done in place. ``walk`` is how it ends,
    where that is another way than ``moves`` say."""
    plan, graph = program.plan, program.graph
    for in_place in _ways(plan, graph):
        (walk or ProgramWalk)(program, in_place).run()


def _ways(plan: Plan, graph: Graph) -> tuple[bool, ...]:
    """Return the ways in which a plan may use memory: with what dies taken wherever it may be, and
    never. Raise PlanError where it is malformed."""
    for fault in malformed(plan, graph):
        where, _, _ = fault.partition(": ")
        raise PlanError(f"{fault}. Fix: report this program, in which alight is wrong.", where)
    differ = any(
        isinstance(step, WriteStep) or (isinstance(step, LaunchStep) and step.over is not None)
        for step in plan.steps
    )
    return (True, False) if differ else (True,)


def step_name(index: int, step: Step) -> str:
    """Return what messages call a step."""
    if isinstance(step, LaunchStep):
        return f"step {index} ({step.decision.operation} on {step.device})"
    return f"step {index} ({'view' if isinstance(step, ViewStep) else 'write'})"


def read_once(group: Group, implementation: str, number: int) -> bool:
    """Tell whether a kernel reads each element of an input at the turn of the same element of its
    results only, so that one of them may take its place."""
    if implementation != "generated" and len(group.graph.nodes) > 1:
        return False
    if group.kind is not GroupKind.LOOP or group.graph.rolls:
        return False
    return group.graph.inputs[number].shape == group.shape


class _Walk:
    """A plan run by symbols. ``in_place``: writes and results take the memory of what dies wherever
    the plan lets them, or never."""

    def __init__(self, plan: Plan, graph: Graph, bases: Sequence[int], *, in_place: bool) -> None:
        self.plan = plan
        self.graph = graph
        self.in_place = in_place
        self.memory = Contents()
        self.at: dict[int, Place] = {}
        # What of its memory is read is not known of these: all of it counts.
        self.all_of: dict[int, Operand] = {}
        self.writable: set[Hashable] = set()  # memory that writes and results may take
        self.made: set[Hashable] = set()  # memory that is gone with the values in it
        self.given(bases)

    def given(self, bases: Sequence[int]) -> None:
        """Put the inputs into memory."""
        layouts = self.graph.inputs
        base = dict(enumerate(bases))
        lengths: dict[int, tuple[int, int]] = {}
        for number, layout in enumerate(layouts):
            root = base.get(number, number)
            low, high = reach(layout)
            before = lengths.get(root, (0, 0))
            lengths[root] = min(low, before[0]), max(high, before[1])
        for number, layout in enumerate(layouts):
            root = base.get(number, number)
            arena = "input", root
            low, high = lengths[root]
            if root == number:
                self.memory.view(number, ("memory", number), -low)
                self.memory.add(arena, low, high, f"input %{number}", ("memory", number))
                self.writable.add(arena)
            self.at[number] = Place(arena, 0, layout)
            if root != number:
                whole = Place(arena, low, _bytes(high - low))
                self.all_of[number] = Operand(("memory", root), whole)

    def operand(self, number: int, once: bool = False) -> Operand:
        """Return a value where it lies."""
        found = self.all_of.get(number)
        return found or Operand(number, self.at[number], once)

    def run(self) -> None:
        """Run all steps and look whether the outputs are there."""
        for index, (step, dead) in enumerate(zip(self.plan.steps, self.plan.dead, strict=True)):
            self.memory.step = step_name(index, step)
            if isinstance(step, LaunchStep):
                self.launch(step)
            elif isinstance(step, ViewStep):
                self.view(step)
            else:
                self.write(step, dead)
            for number in dead:
                self.die(number)
        self.memory.step = "at the end"
        self.end()

    def end(self) -> None:
        """Look whether what was asked for is there."""
        for number in self.plan.outputs:
            self.memory.read(number, self.at[number])

    def die(self, number: int) -> None:
        """Have a value be gone, and its memory where no other lies there."""
        place = self.at.pop(number, None)
        if place is not None and place.arena in self.made and not self.others(place.arena):
            self.memory.drop(place.arena)

    def others(self, arena: Hashable, *apart: int) -> list[int]:
        """Return the values that lie in some memory, apart from these."""
        return [n for n, place in self.at.items() if place.arena == arena and n not in apart]

    def launch(self, step: LaunchStep) -> None:
        """Make the results of a launch."""
        operands = [
            self.operand(number, read_once(step.group, step.implementation, place))
            for place, number in enumerate(step.inputs)
        ]
        inner = step.group.graph
        over = self.over(step)
        results = []
        for position, (number, local) in enumerate(zip(step.outputs, inner.outputs, strict=True)):
            layout = inner.layouts[local]
            if over is not None and position == over[0]:
                place = self.at[step.inputs[over[1]]]._replace(layout=layout)
            else:
                place = self.result(number, layout)
            results.append((number, place))
        self.memory.launch(operands, results)
        self.at.update(results)

    def over(self, step: LaunchStep) -> tuple[int, int] | None:
        """Return which result takes the memory of which operand: nobody else has it then."""
        if step.over is None or not self.in_place:
            return None
        taken = step.inputs[step.over[1]]
        arena = self.at[taken].arena
        return step.over if arena in self.writable and not self.others(arena, taken) else None

    def result(self, number: int, layout: Layout) -> Place:
        """Return memory for what a step makes."""
        arena = "result", number
        low, high = reach(layout)
        self.memory.add(arena, low, high, f"the memory of %{number}")
        self.writable.add(arena)
        self.made.add(arena)
        return Place(arena, 0, layout)

    def view(self, step: ViewStep) -> None:
        """Name a window."""
        operand = self.all_of.get(step.source)
        source = self.at[step.source]
        self.memory.view(step.target, step.source, step.offset)
        place = Place(source.arena, source.start + step.offset, step.layout)
        self.at[step.target] = place
        if operand is not None:
            self.all_of[step.target] = operand
        elif step.layout.size:
            self.memory.buffer(place)

    def write(self, step: WriteStep, dead: Sequence[int]) -> None:
        """Make a version: in its own old bytes, or in a copy of them."""
        memory, value = self.memory, self.operand(step.value)
        old = self.operand(step.old)
        layout = self.graph.layouts[step.old]
        memory.read(*old[:2])
        memory.read(*value[:2])
        for number in dead:  # windows of the old bytes that were read before
            if number not in (step.old, step.value, step.target):
                self.die(number)
        place = old.place
        if not self.overwrites(step, place, dead):
            place = self.result(step.target, layout)
            memory.write(step.old, place)
        taken = self.graph.layouts[step.value]
        memory.update(step.target, step.old, step.layout, step.offset, step.value, taken)
        window = Place(place.arena, place.start + step.offset, step.layout)
        memory.write(step.value, window, taken)
        self.at[step.target] = Place(place.arena, place.start, layout)

    def overwrites(self, step: WriteStep, place: Place, dead: Sequence[int]) -> bool:
        """Tell whether a version is made in the bytes of its old one."""
        if not self.in_place or step.old not in dead or step.old in self.all_of:
            return False
        if place.arena not in self.writable:
            return False
        apart = step.device == HOST_DEVICE or self.at[step.value].arena != place.arena
        return apart


class ProgramWalk(_Walk):
    """A program run by symbols; ``at`` says where each value lies."""

    def __init__(self, program: Program, in_place: bool) -> None:
        self.program = program
        super().__init__(program.plan, program.graph, (), in_place=in_place)
        self.into = {window.value: window for window in program.straight}

    def given(self, bases: Sequence[int]) -> None:
        """Put the storages and the constants into memory."""
        program, memory = self.program, self.memory
        self.arenas: list[tuple[Hashable, int]] = []
        for number, storage in enumerate(program.storages):
            arena: Hashable = ("storage", number)
            start = 0
            if storage.address is not None:
                arena, start = HOST_ARENA, storage.address
            memory.name(("storage", number), f"what {storage.name} held before")
            memory.add(arena, start, start + storage.nbytes, storage.name, ("storage", number))
            self.arenas.append((arena, start))
        for number, (layout, given) in enumerate(
            zip(self.graph.inputs, program.given, strict=True)
        ):
            if given is None:
                low, high = reach(layout)
                memory.add(("input", number), low, high, f"input %{number}", ("memory", number))
                memory.view(number, ("memory", number), -low)
                self.at[number] = Place(("input", number), 0, layout)
            else:
                memory.view(number, ("storage", given.storage), given.offset)
                self.at[number] = self.place(given.storage, given.offset, layout)
                memory.name(number, f"%{number} ({program.storages[given.storage].name})")

    def place(self, storage: int, offset: int, layout: Layout) -> Place:
        """Return a place in a storage."""
        arena, start = self.arenas[storage]
        return Place(arena, start + offset, layout)

    def storage(self, place: Place) -> int | None:
        """Return the storage that a place lies in."""
        for number, (arena, start) in enumerate(self.arenas):
            after = place.start - start
            if arena == place.arena and 0 <= after < self.program.storages[number].nbytes:
                return number
        return None

    def overwrites(self, step: WriteStep, place: Place, dead: Sequence[int]) -> bool:
        """Tell whether a version is made in the bytes of its old one: of a storage only where they
        are all of them, and the program may."""
        storage = self.storage(place)
        if storage is None:
            return super().overwrites(step, place, dead)
        if not self.in_place or step.old not in dead or storage not in self.program.may_write:
            return False
        home = None if step.home < 0 else self.program.given[step.home]
        if home is None or home.storage != storage:
            return False  # it is to hold another storage's contents, or none's
        whole = self.arenas[storage][1] == place.start
        return whole and place.layout.nbytes == self.program.storages[storage].nbytes

    def result(self, number: int, layout: Layout) -> Place:
        """Return memory for what a step makes: new, or the window of a storage."""
        window = self.into.get(number)
        if window is None:
            return super().result(number, layout)
        return self.place(window.storage, window.offset, window.layout)

    def put_back(self) -> None:
        """Put into storages what is put there at the end, in its order."""
        memory = self.memory
        for index, move in enumerate(self.program.moves):
            memory.step = f"write-back {index} (of %{move.value})"
            memory.read(move.value, self.at[move.value])
            place = self.place(move.storage, move.offset, move.layout)
            memory.write(move.value, place, self.graph.layouts[move.value])

    def end(self) -> None:
        """Put into the storages what is to be there, and look whether all is as the body had it."""
        program, memory = self.program, self.memory
        self.put_back()
        memory.step = "at the end"
        held: list[Hashable] = [("storage", n) for n in range(len(program.storages))]
        for index, window in enumerate(program.contents):
            after = "assigned", index
            memory.name(after, f"what was assigned to {program.storages[window.storage].name}")
            taken = self.graph.layouts[window.value]
            memory.update(
                *(after, held[window.storage], window.layout, window.offset, window.value, taken)
            )
            held[window.storage] = after
        for number, storage in enumerate(program.storages):
            memory.read(held[number], self.place(number, 0, _bytes(storage.nbytes)))
        for number in program.results:
            memory.read(number, self.at[number])


def _bytes(nbytes: int) -> Layout:
    return make_layout(_BYTE, (nbytes,))
