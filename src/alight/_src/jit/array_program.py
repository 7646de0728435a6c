"""Jitted functions on Arrays: a traced call kept, and run again on others of the same layouts that
lie in the same memory, without the Python between.

Results stay where they were made. Where the plan is nothing but launches on one device, its
backend gets them ready once, and a call is: look whether the arguments fit, put down where they
lie, launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from alight._core import (
    OPERANDS,
    Data,
    DeviceCall,
    Layout,
    Storage,
    Value,
    recording_errstate,
)
from alight._src.base.failures import failures
from alight._src.jit.call_program import SCALARS, Fresh, Leaf, Program, Tree
from alight._src.log.decisions import eligible_elements
from alight._src.plan.plan import LaunchStep, ViewStep
from alight._src.record.array import Array
from alight._src.run import evaluate, residency
from alight._src.run.constants import bits, constant
from alight._src.run.eviction import FRESH, Kept, kept
from alight._src.run.pending_outcomes import LaunchRecord, Started, running, started
from alight._src.run.prepared_step import kernel_of
from alight.backends.base import LaunchSequence
from alight.backends.registry import backend_of, device
from alight.device import HOST_DEVICE, Device
from alight.errors import DeviceUnavailable, KernelError, UnsupportedOnDevice

__all__ = ["ArrayProgram", "key_of", "lie_on_device"]

# A call in so many is timed, two events around it, which takes as long as the call.
_SAMPLED = 64
# Then the usual way makes room, or has NumPy do it.
_FAILING = (DeviceUnavailable, KernelError, MemoryError, UnsupportedOnDevice)

Key = tuple[Any, ...]


def key_of(args: tuple[Any, ...]) -> Key | None:
    """Return what a program for these arguments depends on, or None: not all are concrete Arrays,
    without a window, and plain scalars; or there is no Array among them."""
    key: list[Any] = []
    first: dict[int, int] = {}
    for number, item in enumerate(args):
        if type(item) is Array:
            value = item.storage.value
            data = value.data
            if item.window is not None or data is None or data.exported:
                return None
            spaces = frozenset(data.remote or ()), data.array is None
            key.append((value.layout, value.offset, spaces, first.setdefault(id(data), number)))
        elif type(item) in SCALARS:
            key.append(_bits(item))
        else:
            return None
    return tuple(key) if first else None


def lie_on_device(args: tuple[Any, ...]) -> bool:
    """Tell whether the memory of an Array among the arguments lies, or lies too, on a device."""
    datas = [item.storage.value.data for item in args if type(item) is Array]
    return any([data is not None and bool(data.remote) for data in datas])


def _bits(scalar: Any) -> Any:
    """Return what tells a scalar from every other, the sign of zero included."""
    return type(scalar), repr(scalar)


class ArrayProgram(Program):
    """A program of a call on Arrays."""

    def __init__(
        self,
        prepared: evaluate.Prepared,
        leaves: tuple[Any, ...],
        nodes: tuple[tuple[Any, Any], ...],
        form: Any,
        args: tuple[Any, ...],
    ) -> None:
        super().__init__(prepared, leaves, nodes, form)
        # What a call's arguments must be: the layout of an Array, or a scalar.
        self.pattern = tuple(
            [(a.storage.value.layout, None) if type(a) is Array else (None, a) for a in args]
        )
        # Arguments with the data of one before them, which stands for both in the plan.
        first: dict[int, int] = {}
        datas = [(n, a.storage.value.data) for n, a in enumerate(args) if type(a) is Array]
        numbers = [(n, first.setdefault(id(data), n)) for n, data in datas]
        self.same = {n: before for n, before in numbers if n != before}
        launches = [step for step in self.plan.steps if isinstance(step, LaunchStep)]
        self.at_home = all(step.device == HOST_DEVICE for step in launches)
        self.direct: DeviceLaunch | None = None
        self._tried = False

    def run(self, args: tuple[Any, ...]) -> Any:
        """Return the results for arguments of the same key."""
        if not self._tried:
            with residency.LOCK:  # it compiles and moves copies
                if not self._tried:
                    self.direct = _direct(self)
                    self._tried = True
        if self.direct is not None:
            found = self.direct(*args)
            if found is not NotImplemented:
                return found
        values = self.compute([a.storage.value if type(a) is Array else None for a in args])
        return self.build(self.form, args, values, {})

    def fresh(self, form: Fresh, values: dict[int, Value], made: dict[Any, Any]) -> Any:
        """Return what the plan made as an Array."""
        storage = made.get(("memory", form.memory))
        if storage is None:
            storage = made["memory", form.memory] = Storage(values[form.value])
        array = Array.__new__(Array)
        array.storage = storage
        array.window = form.window
        return array


def _direct(program: ArrayProgram) -> DeviceLaunch | None:
    """Return the direct way of a program whose plan is launches on one device."""
    steps = [step for step in program.plan.steps if isinstance(step, LaunchStep)]
    views = {
        step.target: (step.source, step.offset)
        for step in program.plan.steps
        if isinstance(step, ViewStep)
    }
    names = {step.device for step in steps}
    if len(steps) + len(views) != len(program.plan.steps) or len(names) != 1:
        return None
    where = device(names.pop())
    ready = getattr(backend_of(where), "sequence", None)
    layouts = {
        number: step.group.graph.layouts[inner]
        for step in steps
        for number, inner in zip(step.outputs, step.group.graph.outputs, strict=True)
    }
    wanted = program.graph.outputs
    if ready is None or not set(wanted) <= layouts.keys():
        return None
    launches = [(kernel_of(step), step.inputs, step.outputs) for step in steps]
    given = [(leaf.layout, leaf.offset) for leaf in program.leaves]
    made = {number: layouts[number] for number in wanted}
    fixed = {
        number: bits(leaf)
        for number, leaf in enumerate(program.leaves)
        if type(leaf) is not Leaf and leaf.data is None
    }
    sequence = ready(where, LaunchSequence(launches, given, layouts, views, wanted, fixed))
    return None if sequence is None else DeviceLaunch(program, where, sequence, steps, made)


class DeviceLaunch:
    """A program as launches that its device has ready: called with arguments of the pattern's
    types, it gives NotImplemented where they do not fit."""

    def __init__(
        self,
        program: ArrayProgram,
        where: Device,
        sequence: Callable[[list[Any]], Sequence[Any]],
        steps: Sequence[LaunchStep],
        made: dict[int, Layout],
    ) -> None:
        self._program = program
        self._where = where
        self._space = where.space
        self._submit = backend_of(where).submit
        self._sequence = sequence
        self._layouts = tuple([layout for layout, _ in program.pattern])
        self._scalars = tuple(
            [(i, scalar) for i, (layout, scalar) in enumerate(program.pattern) if layout is None]
        )
        self._same = tuple(program.same.items())
        # Constants lie on the device once and for all, behind what the arguments are.
        self._constants: list[Data] = []
        self._lying: list[Any] = []
        order: list[int] = []
        for leaf in program.leaves:
            if type(leaf) is Leaf:
                order.append(leaf.number)
                continue
            data = constant(leaf) if leaf.data is None else leaf.data
            order.append(len(program.pattern) + len(self._constants))
            self._constants.append(data)
            self._lying.append(residency.buffer(data, where))
        plain = order == list(range(len(program.pattern) + len(self._constants)))
        self._order = None if plain else order
        self._reads = tuple([(leaf.offset, leaf.layout) for leaf in program.leaves])
        form = program.form
        self._single = type(form) is Fresh and form.window is None
        # What is made: numbers, layouts, and seconds that bringing it again would take.
        self._made = tuple(
            [(n, layout, residency.worth(where, layout.nbytes)) for n, layout in made.items()]
        )
        self._graph = program.graph
        self._kept: Kept = kept(where.space)
        self._told = tuple(
            [
                LaunchRecord(
                    step.decision,
                    program.site,
                    (step.implementation, where.id),
                    eligible_elements(step.group),
                    False,
                )
                for step in steps
            ]
        )
        # What answers a call: this, or the native core where it can.
        self.call: DeviceLaunch | DeviceCall = self
        self.calls = self.next = 0
        operands = max(len(self._layouts), len(self._reads), len(self._made))
        if operands <= OPERANDS:
            self.call = self._native(getattr(sequence, "launches", None) or sequence, order)

    def _native(self, launches: Any, order: Sequence[int]) -> DeviceCall:
        """Return the call as the native core answers it."""
        program = self._program
        same = program.same
        numbers = [number for number, _, _ in self._made]
        form: Any = program.form
        parts = form.parts if type(form) is Tree and form.kind in (tuple, list) else ()
        if self._single:
            form = None if form.value == numbers[0] else ()
        elif parts and all(type(part) is Fresh and part.window is None for part in parts):
            form = form.kind, tuple([numbers.index(part.value) for part in parts])
            if len({part.memory for part in parts}) < len(parts):
                form = ()  # windows of one storage
        else:
            form = ()

        def build(args: Sequence[Any], values: Sequence[Value]) -> Any:
            return program.build(program.form, args, dict(zip(numbers, values, strict=True)), {})

        return DeviceCall(
            launches,
            tuple(
                [
                    (scalar,) if lay is None else (lay, same[n]) if n in same else lay
                    for n, (lay, scalar) in enumerate(program.pattern)
                ]
            ),
            self._space,
            tuple(zip(self._constants, self._lying, strict=True)),
            tuple(order),
            tuple([(layout, float(seconds)) for _, layout, seconds in self._made]),
            form if form else None if form is None else ...,
            (residency.LOCK.acquire, residency.LOCK.release),
            running(self._where).append,
            self._kept.fresh,
            FRESH,
            _FAILING,
            Array,
            Started,
            (self._graph, self._told, self._reads, recording_errstate()),
            build,
            self,
        )

    def __call__(self, *args: Any) -> Any:
        for number, scalar in self._scalars:
            item = args[number]
            if item is not scalar and _bits(item) != _bits(scalar):
                return NotImplemented
        with residency.LOCK:
            values = self._launched(args)
        if values is None:
            return NotImplemented
        if self._single:
            (value,) = values.values()
            array = Array.__new__(Array)
            array.storage = Storage(value)
            array.window = None
            return array
        program = self._program
        return program.build(program.form, args, values, {})

    def _launched(self, args: tuple[Any, ...]) -> dict[int, Value] | None:
        """Launch, and return what is made by number; None where the arguments do not fit."""
        space = self._space
        datas: list[Any] = []
        buffers: list[Any] = []
        try:
            for item, layout in zip(args, self._layouts):  # noqa: B905 (the guard has counted)
                if layout is None:
                    datas.append(None)
                    buffers.append(None)
                    continue
                value = item.storage.value
                if value.layout is not layout or value.offset or item.window is not None:
                    return None
                data = value.data
                if data.shared:
                    return None
                buffers.append(data.remote[space])
                datas.append(data)
        except failures(AttributeError, KeyError, TypeError):  # pending, or it does not lie there
            return None
        if any([datas[number] is not datas[before] for number, before in self._same]):
            return None
        datas += self._constants
        buffers += self._lying
        if self._order is not None:
            datas = [datas[i] for i in self._order]
            buffers = [buffers[i] for i in self._order]
        own = self.call
        own.calls += own is self  # the native core counts its own
        timed = own.calls >= own.next
        if timed:
            own.next = own.calls + _SAMPLED
        start = self._submit(self._where, 0, ()) if timed else None
        try:
            made = self._sequence(buffers)
        except _FAILING:
            return None  # the usual way makes room, or has NumPy do it
        end = self._submit(self._where, 0, ()) if timed else None
        values = {}
        refs = []
        use = self._kept.use
        for (number, layout, seconds), buffer in zip(self._made, made, strict=True):
            data = Data(layout)
            data.remote = {space: buffer}
            use(data, seconds)
            refs.append(ref(data))
            value = values[number] = Value(None, (), (), layout)
            value.data = data
        read = tuple(map(ref, datas)), tuple(map(ref, buffers)), self._reads
        started(self._where, Started(self._graph, self._told, start, end, *read, tuple(refs)))
        return values
