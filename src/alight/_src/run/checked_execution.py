"""Plans checked while they run: what steps really do with memory, followed by symbols.

Addresses and the commands that backends are given tell where values lie; of the program's objects
nothing is held, since whether bytes may be written in place depends on who holds them. What is
wrong is raised once the plan has run: no fallback may hide it.

A run that an interrupt or an error breaks off is looked at where it stands, the step at work apart,
of which it is not known how far it came. Every value that is there holds what it is, so that the
graph can be asked again. Each piece of leased memory holds what it held before or one of its
versions: of what the program wrote there the first writes, in its order, and no others. Where the
run has a `WriteOrder` that goes for all of them together: those before the one whose turn it is
hold their last version, those after it what they held before. A step that fails by itself breaks
nothing off: what it was to make, and what is made of that, is not there, and all else is looked at
as ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

from alight._core import Data, Layout, Value, make_layout
from alight._src.base.originals import np
from alight._src.ir.graph import Graph
from alight._src.plan.check import check_plan, read_once, step_name
from alight._src.plan.contents import HOST_ARENA, Contents, Mark, Operand, Place
from alight._src.plan.plan import LaunchStep, Plan, Step, ViewStep, WriteStep
from alight._src.run import execute
from alight._src.run.constants import constant
from alight._src.run.memory_holders import thread_of
from alight._src.run.memory_map import MemoryMap, is_host
from alight._src.run.prepared_step import Ready, ready_of
from alight._src.run.watched_backends import following, watch
from alight.backends import base
from alight.backends.registry import backend_of, device, made
from alight.device import HOST_DEVICE, Device
from alight.errors import PlanError

__all__ = ["CheckedExecution", "counts", "prove"]

_BYTE = np.dtype(np.uint8)

# How many plans were proven and runs followed in this process.
counts = {"plans": 0, "runs": 0}


def prove(plan: Plan, graph: Graph, bases: Sequence[int]) -> None:
    """Raise PlanError unless a plan is right."""
    counts["plans"] += 1
    check_plan(plan, graph, bases)


class CheckedExecution(execute.Execution):
    """One run of a plan, followed."""

    __slots__ = (
        *("_indices", "_landed", "_late", "_looking", "_map", "_marks", "_now", "_turn"),
        "_written",
        *("fault", "memory", "thread", "within"),
    )

    def __init__(self, plan: Plan, values: list[Value | None]) -> None:
        super().__init__(plan, values)
        counts["runs"] += 1
        self.memory = Contents()
        self.fault: PlanError | None = None
        self.thread = threading.get_ident()
        self.within = False
        self._marks: dict[int, Mark] = {}  # of submissions, by the ids of their events
        self._map = MemoryMap(self.memory, self.thread)
        self._now: LaunchStep | WriteStep | None = None  # who has backends do what they do
        self._indices = {id(step): index for index, step in enumerate(plan.steps)}
        self._turn = 0  # the step at work
        self._late: Any = None  # and the launch that waited for it
        self._looking = False
        self._landed: list[int] | None = None  # where chunks of a streamed step have come to
        self._written: Sequence[tuple[Place, ...]] = ()
        for backend in made():
            watch(backend)
        self._follow(self._map.begin, values)

    def _know(self, number: int) -> None:
        """Note where a constant lies."""
        value = self.values[number]
        if value is None or value.op is not None or value.data is not None:
            return
        self._map.add_constant(number, constant(value))

    # -- the run ----------------------------------------------------------------------------------
    def run(self) -> None:
        """Run every step; raise what was wrong with one of them."""
        before, following.run = following.run, self
        try:
            super().run()
        except BaseException as error:
            self._follow(self._broken_off)
            if self.fault is not None:
                raise self.fault from error
            raise
        finally:
            following.run = before
        self.memory.step = "at the end"
        self._follow(self._end)
        if self.fault is not None:
            raise self.fault

    def _broken_off(self) -> None:
        """Look whether what is there can be asked for again, and arguments hold what a program had
        written by then."""
        memory, steps = self.memory, self.plan.steps
        memory.host()
        memory.step = f"broken off {memory.step}"
        unsure: set[int] = set()
        written: dict[int, list[int]] = {number: [number] for number in self._map.leased}
        at_work = -1
        if self._turn < len(steps):
            step = steps[self._turn]
            unsure.update(self.plan.dead[self._turn], _made_by(step))
            if self._late is not None:
                unsure.update(self._late.dead, self._late.step.outputs)
            if isinstance(step, WriteStep):
                unsure.add(step.old)
                at_work = step.home
                written.pop(at_work, None)
        for number in range(len(self.values)):
            if number not in unsure:
                self._know(number)
                self._whole(number)
        self._kept(unsure)
        for step in steps[: self._turn]:
            if isinstance(step, WriteStep) and step.home in written:
                written[step.home].append(step.target)
        self._in_order(written, at_work)

    def _in_order(self, written: dict[int, list[int]], at_work: int) -> None:
        """Look whether leased memory holds versions that it may hold, of these; but for that in
        which the step at work writes."""
        order = None if self.write_order is None else self.write_order.order
        passed = False  # the memory whose turn it is
        for inputs, last in order or ():
            passed |= at_work in inputs
            for number in inputs & written.keys():
                passed |= self._held(number, written.pop(number)[: 1 if passed else None]) != last
        for number, versions in written.items():
            self._held(number, versions if order is None else versions[:1])

    def _held(self, number: int, versions: Sequence[int]) -> int:
        """Return which of these versions leased memory holds."""
        place = self._map.leased[number]
        for version in reversed(versions):
            if self.memory.has_value(version, place):
                return version
        self.memory.refuse("leased memory holds none of its versions", None, number)

    def _end(self) -> None:
        """Look whether outputs are there, and what others still hold is as it was."""
        self.memory.host()
        for number in self.plan.outputs:
            self._whole(number)
        self._kept(())

    def _kept(self, unsure: Collection[int]) -> None:
        """Look whether what others still hold is as it was."""
        for number, reference in self._map.leaves:
            value = reference()
            if value is not None and value.data is not None and number not in unsure:
                for place in self._map.holders(value.data, value.offset, value.layout):
                    self.memory.holds(number, place)

    def _follow(self, look: Callable[..., None], *args: Any) -> None:
        """Look at something; keep the first fault, after which no more is known, as it is not after
        an interrupt in the midst of looking."""
        if self.fault is None and not self._looking:
            self._looking = True
            try:
                look(*args)
            except PlanError as error:
                self.fault = error
            self._looking = False

    def _step(self, step: Step, dead: Sequence[int]) -> None:
        self._turn = self._indices[id(step)]
        self.memory.step = step_name(self._turn, step)
        self.memory.host()
        super()._step(step, dead)
        if isinstance(step, ViewStep):
            self._follow(self.memory.view, step.target, step.source, step.offset)
            self._follow(self._whole, step.target)

    def _places(self, number: int) -> tuple[Place, ...]:
        """Return where copies of a value lie; nowhere if it is not there."""
        place = self.places.get(number)
        if place is not None:
            return self._map.holders(*place)
        value = self.values[number]
        if value is None or value.op is not None:
            return ()
        if value.data is None:
            return self._map.holders(constant(value), 0, value.layout)
        return self._map.holders(value.data, value.offset, value.layout)

    def _whole(self, number: int) -> None:
        """Look whether all copies of a value hold it."""
        for place in self._places(number):
            self.memory.holds(number, place)

    def _launch(self, step: LaunchStep) -> None:
        ready = ready_of(step)
        watch(ready.backend)  # it may just have been opened
        for number in step.inputs:
            self._follow(self._know, number)
        given = [self._places(number) for number in step.inputs]
        for number in step.inputs:
            self._follow(self._whole, number)
        self._now, self._landed = step, None
        try:
            super()._launch(step)
        finally:
            self._now = None
            self.memory.host()
        self._follow(self._made, step, given)

    def _stream(self, step: LaunchStep, ready: Ready, run: Callable[[], list[Data] | None]) -> bool:
        self._landed = []
        if super()._stream(step, ready, run):
            return True
        self._landed = None  # what is made instead may lie where these lay
        return False

    def _made(self, step: LaunchStep, given: Sequence[Sequence[Place]]) -> None:
        """Note where results lie."""
        memory = self.memory
        operands = [
            Operand(number, place, read_once(step.group, step.implementation, position))
            for position, (number, places) in enumerate(zip(step.inputs, given, strict=True))
            for place in places
            if is_host(place.arena)
        ]
        taken = [(p.bytes.low, p.bytes.high) for _, p, _ in operands]
        results: list[tuple[Hashable, Place]] = []
        for number in step.outputs:
            for place in self._places(number):
                low, high = place.start, place.start + place.layout.nbytes
                if not is_host(place.arena):
                    if not memory.knows(place.arena):  # the backend was not watched: it is foreign
                        memory.add(place.arena, low, high, f"the memory of %{number}", number)
                    memory.holds(number, place)
                elif any(a < high and low < b for a, b in taken):
                    results.append((number, place))
                elif any(low <= start < high for start in self._landed or ()):
                    memory.join(HOST_ARENA, low, high)  # it came in parts
                    memory.holds(number, place)
                else:
                    memory.add(HOST_ARENA, low, high, f"the memory of %{number}")
                    results.append((number, place))
        memory.launch(operands if results else (), results)

    def _salvage(self, step: LaunchStep, error: BaseException) -> None:
        super()._salvage(step, error)
        for number in step.outputs:
            self._follow(self._new, number)

    def _new(self, number: int) -> None:
        for place in self._places(number):
            low, high = place.start, place.start + place.layout.nbytes
            self.memory.add(place.arena, low, high, f"the memory of %{number}", number)

    # -- writes -----------------------------------------------------------------------------------
    def _write(self, step: WriteStep, dead: Sequence[int]) -> None:
        if step.device != HOST_DEVICE:
            watch(backend_of(device(step.device)))
        later = self.later is not None
        for number in (step.old,) if later else (step.old, step.value):
            self._follow(self._know, number)
            self._follow(self._whole, number)
        self._written = (self._places(step.old),)
        self._now = step
        value = self.values[step.value]
        taken = step.layout if later or value is None else value.layout
        del value
        try:
            super()._write(step, dead)
        finally:
            self._now = None
            self.memory.host()
        self._follow(self._version, step, taken, later)

    def _version(self, step: WriteStep, taken: Layout, later: bool) -> None:
        """Note where a version lies, and look whether it is what it is to be."""
        memory = self.memory
        memory.update(step.target, step.old, step.layout, step.offset, step.value, taken)
        for place in self._places(step.target):
            if is_host(place.arena) and not later:
                self._copied(step, place)
                window = Place(place.arena, place.start + step.offset, step.layout)
                memory.write(step.value, window, taken)
        self._whole(step.target)

    def _copied(self, step: WriteStep, place: Place) -> None:
        """Note that the old bytes were copied to a place, unless they are there."""
        ((*old,),) = self._written
        if place in old:
            data = self.places[step.target][0]
            if thread_of(data) is not None and self._map.homes.get(step.home) != id(data):
                self.memory.refuse(
                    f"writes into leased memory what is no version of it that the program wrote "
                    f"there (its home is %{step.home})",
                    *("memory given", step.target),
                )
            return
        low, high = place.start, place.start + place.layout.nbytes
        self.memory.add(place.arena, low, high, f"the memory of %{step.target}")
        self.memory.write(step.old, place)

    def _launch_into(
        self, later: Any, window: base.Operand, bound: tuple[Value, Data, int]
    ) -> None:
        self._follow(self._into, later, window)
        self._late = later
        super()._launch_into(later, window, bound)
        self._late = None
        for number in later.step.outputs:
            if number != later.value:
                self._follow(self._new, number)

    def _into(self, later: Any, window: base.Operand) -> None:
        """Note that a launch leaves its result in a window."""
        step, write, data = later.step, self._now, window.buffer
        assert isinstance(write, WriteStep)
        for number in step.inputs:
            self._know(number)
        arena, start = self._map.lies("host", data)
        start += window.offset
        self._copied(write, Place(arena, start - write.offset, self._layout(write)))
        # NumPy, told where to leave what it makes, reads as a kernel does: `numpy_in_place`.
        operands = [
            Operand(number, place, read_once(step.group, "generated", position))
            for position, (number, where) in enumerate(zip(step.inputs, later.places, strict=True))
            for place in self._map.holders(*where)
            if is_host(place.arena)
        ]
        place = Place(arena, start, window.layout)
        self.memory.launch(operands, [(write.value, place)])

    def _layout(self, write: WriteStep) -> Layout:
        value = self.values[write.target]
        assert value is not None
        return value.layout

    # -- what backends are given ------------------------------------------------------------------
    def submitted(
        self, where: Device, queue: int, commands: Sequence[Any], wait: Sequence[Any], event: Any
    ) -> None:
        """Note what a backend was given, and look whether all of it finds what it wants."""
        after = [self._marks[id(one)] for one in wait if id(one) in self._marks]
        self._marks[id(event)] = self.memory.submit(f"queue {queue} of {where.id}", after)
        buffers = list(event.buffers)
        for command in commands:
            if isinstance(command, base.Copy):
                self._follow(self._copy, command)
            elif isinstance(command, base.Launch):
                made = [buffers.pop(0) if one is None else None for one in command.outputs]
                self._follow(self._run, where, command, made)
            elif isinstance(command, base.Fill):
                arena, start = self._map.lies(where.space, command.target)
                self._follow(self.memory.fill, Place(arena, start, _bytes(command.nbytes)))
        self.memory.host()

    def waited(self, event: Any) -> None:
        """Note that the host has waited for an event."""
        self.memory.host(self._marks.get(id(event)))

    def allocated(self, where: Device, buffer: Any) -> None:
        """Note that memory is new."""
        arena, start = self._map.lies(where.space, buffer)
        self.memory.drop(arena, start, start + buffer.nbytes)

    def _copy(self, copy: base.Copy) -> None:
        memory = self.memory
        if not copy.nbytes:
            return
        source, start = self._map.lies(copy.source_space, copy.source)
        target, to = self._map.lies(copy.target_space, copy.target)
        if not memory.has(target, to, to + copy.nbytes):
            high = to + (copy.nbytes if target == HOST_ARENA else copy.target.nbytes)
            memory.add(target, to, high, f"memory of {copy.target_space}")
            if target == HOST_ARENA and self._landed is not None:
                self._landed.append(to)
        if memory.has(source, start, start + copy.nbytes):
            memory.copy(source, start, target, to, copy.nbytes)
        else:  # of arrays that are none of this plan's
            memory.fill(Place(target, to, _bytes(copy.nbytes)))

    def _run(self, where: Device, launch: base.Launch, made: Sequence[Any]) -> None:
        """Follow a launch: a step's, one of a step's chunks, or one that writes a window."""
        step, memory = self._now, self.memory
        inputs = [self._at(where, one) for one in launch.inputs]
        outputs = [None if one is None else self._at(where, one) for one in launch.outputs]
        if isinstance(step, WriteStep):
            (source,), (window,) = inputs, outputs
            assert window is not None
            memory.read(step.value, source)
            memory.write(step.value, window, source.layout)
            return
        if step is None or len(inputs) != len(step.inputs):
            return  # a measurement
        inner = step.group.graph
        operands: list[Operand] = []
        first: int | None = None  # of the rows that this launch is about
        for position, (number, place) in enumerate(zip(step.inputs, inputs, strict=True)):
            value: Hashable = number
            if place.layout is not inner.inputs[position]:
                row = inner.inputs[position].nbytes // step.group.shape[0]
                if first is None:
                    first = (memory.rows(place, number) or 0) // row
                value = self._rows(number, first, row)
            once = read_once(step.group, step.implementation, position)
            operands.append(Operand(value, place, once))
        results: list[tuple[Hashable, Place]] = []
        for position, (number, local) in enumerate(zip(step.outputs, inner.outputs, strict=True)):
            layout, output = inner.layouts[local], launch.outputs[position]
            if output is None:
                arena, _ = self._map.lies(where.space, made[position])
                memory.add(arena, 0, layout.nbytes, f"the memory of %{number}")
                results.append((number, Place(arena, 0, layout)))
                continue
            target = self._at(where, output)
            if not memory.knows(target.arena):
                memory.add(target.arena, 0, output.buffer.nbytes, f"a slot for %{number}")
            result: Hashable = number
            if target.layout is not layout:
                result = self._rows(number, first or 0, layout.nbytes // step.group.shape[0])
            results.append((result, target))
        memory.launch(operands, results)

    def _rows(self, number: int, first: int, row: int) -> Hashable:
        """Return the value that is another's rows from the first on."""
        value = "rows", number, first
        self.memory.name(value, f"%{number} from row {first} on")
        self.memory.view(value, number, first * row)
        return value

    def _at(self, where: Device, operand: base.Operand) -> Place:
        arena, start = self._map.lies(where.space, operand.buffer)
        return Place(arena, start + operand.offset, operand.layout)


def _made_by(step: Step) -> tuple[int, ...]:
    return step.outputs if isinstance(step, LaunchStep) else (step.target,)


def _bytes(nbytes: int) -> Layout:
    return make_layout(_BYTE, (nbytes,))
