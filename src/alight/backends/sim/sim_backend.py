"""Simulated devices: real values from host executors, on copies of their own, in virtual time.

``sim:0``, ``sim:1`` exist so that planning, running and reporting can be tested without hardware.
What real devices punish now and then is an error here every time: a buffer of another memory, a
read that does not wait for the write on another queue, memory that was never written, freed
memory. What a download brings is not on the host before its event is waited for.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from alight._core import Data, fresh_data, make_layout
from alight._src.base.originals import np
from alight._src.base.records import dataclass, field
from alight._src.ir.group import Group
from alight._src.plan.cost import Profile
from alight.backends.base import Command, Copy, Event, Fill, Launch, Operand
from alight.backends.host import HostBackend, NumpyKernel, memory_at
from alight.backends.machine import CATEGORY, raise_floating_point_flags
from alight.backends.sim.virtual_clock import (
    DEFAULT_SPEC,
    Spec,
    copy_seconds,
    group_seconds,
    recorded,
)
from alight.device import Device, Gap, Probe, Support, Unsupported
from alight.errors import DeviceUnavailable, KernelError, OutOfDeviceMemory

DTYPES = frozenset(np.dtype(c).name for c in "?bBhHiIlLqQfd")
GAPS = (
    Gap("float16", "the simulated device has no half precision", "never: it stands for a gap"),
    Gap("complex64", "the simulated device has no complex numbers", "never: it stands for a gap"),
    Gap("complex128", "the simulated device has no complex numbers", "never: it stands for a gap"),
)

# As bytes this is NaN in every float, -1 in every integer: what was not waited for is seen.
_POISON = 0xFF

_UINT8 = np.dtype(np.uint8)
_Queue = tuple[str, int]


class RaceError(KernelError):
    """A command does not wait for what it depends on."""


class SimBuffer:
    """Memory of one simulated device, with the submissions that last wrote and read it."""

    __slots__ = ("__weakref__", "data", "device", "nbytes", "readers", "writer")

    def __init__(self, device: str, data: Data, used: Used) -> None:
        self.device = device
        self.data: Data | None = data
        self.nbytes = data.nbytes
        self.writer: tuple[_Queue, int] | None = None
        self.readers: dict[_Queue, int] = {}
        used.setdefault(device, []).append(weakref.ref(self))

    def free(self) -> None:
        """Give the memory back."""
        self.data = None


# The buffers of each device, which give their memory back when they are freed or dropped. No
# callback says so: what a signal's handler raised in one would not reach the program.
Used = dict[str, list[weakref.ref[SimBuffer]]]


def _used_bytes(used: Used, device: str) -> int:
    buffers = [b for b in [reference() for reference in used.get(device, ())] if b and b.data]
    used[device] = [weakref.ref(buffer) for buffer in buffers]
    return sum([buffer.nbytes for buffer in buffers])


@dataclass(slots=True, eq=False)
class SimEvent(Event):
    """The end of a submission; ``seen`` says which submission of each queue it comes after."""

    seen: Mapping[_Queue, int] = field(default_factory=dict)


@dataclass(slots=True)
class _State:
    """One queue: when it is free on the virtual clock, how many submissions it had."""

    free_at: float = 0.0
    number: int = 0
    seen: dict[_Queue, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimKernel:
    """A host kernel and the virtual seconds its run takes."""

    group: Group
    implementation: str
    host: Any
    seconds: float

    def run(self, inputs: Any, outputs: Any) -> Any:
        """Run the host kernel; where NumPy stands in for code, it leaves flags as code would. Of
        what code may leave none NumPy is asked, as on the host."""
        if self.implementation != "generated":
            return self.host.run(inputs, outputs)
        heard = {what for node in self.group.graph.nodes for what in node.op.missed_fp_errors}
        with np.errstate(all="call", call=lambda what, _: heard.add(CATEGORY[what])):
            made = self.host.run(inputs, outputs)
        if heard:
            raise_floating_point_flags(heard)
        return made


class SimBackend:
    """Drives simulated devices as their specs describe them."""

    name = "sim"
    late = True
    downloads_parts = True

    def __init__(self, specs: Mapping[str, Spec] | None = None) -> None:
        self.specs = dict(specs or {"sim:0": DEFAULT_SPEC, "sim:1": DEFAULT_SPEC})
        self._host = HostBackend()
        self._host_device = self._host.probe().devices[0]
        self._used: Used = {}
        self._queues: dict[_Queue, _State] = {}
        self._host_seen: dict[_Queue, int] = {}
        self._host_time = 0.0
        self._downloads: list[tuple[_Queue, int, Data, np.ndarray[Any, Any]]] = []
        self._faults: dict[str, int] = {}

    def probe(self) -> Probe:
        """Return the simulated devices."""
        return Probe(devices=tuple(self._device(name, spec) for name, spec in self.specs.items()))

    def _device(self, name: str, spec: Spec) -> Device:
        return Device(
            id=name,
            vendor="alight",
            name=spec["name"],
            space=name,
            memory_bytes=int(spec["memory_bytes"]["value"]),
            unified_memory=False,
            support=Support(("generated", "library"), DTYPES, GAPS, verified=False),
            fingerprint=spec["name"],
        )

    def profile(self, device: Device) -> Profile:
        """Return what calibrating the device without noise would find."""
        return recorded(device.id, self.specs[device.id])

    def fail(self, what: str, nth: int = 1) -> None:
        """Make the nth ``allocate``, ``launch`` or ``copy`` from now fail, once."""
        if what not in ("allocate", "launch", "copy") or nth < 1:
            raise ValueError(f"fail({what!r}, {nth}). Fix: allocate, launch or copy, and nth >= 1.")
        self._faults[what] = nth

    def _fault(self, what: str) -> bool:
        left = self._faults.get(what)
        if left is None:
            return False
        if left > 1:
            self._faults[what] = left - 1
            return False
        del self._faults[what]
        return True

    def open(self, device: Device) -> None:
        """Start the device's account of memory."""
        self._used.setdefault(device.id, [])

    def close(self, device: Device) -> None:
        """Drop what downloads have brought and nobody waited for."""
        self._downloads = [item for item in self._downloads if item[0][0] != device.id]

    def compile(
        self, device: Device, group: Group, implementation: str, schedule: Any
    ) -> SimKernel:
        """Return a kernel for the group.

        Raises Unsupported, with the reason, where the device has a gap.
        """
        graph = group.graph
        for layout in (*graph.inputs, *(node.layout for node in graph.nodes)):
            if layout.dtype.name not in DTYPES:
                raise Unsupported(f"{device.id} has no {layout.dtype.name}")
        kernel: Any
        if implementation == "library":
            kernel = NumpyKernel(group)
        elif implementation != "generated" or group.form.library:
            raise Unsupported(f"{device.id} has no {implementation} form of a {group.kind} group")
        else:
            try:
                kernel = self._host.compile(self._host_device, group, "generated", schedule)
            except Unsupported:
                kernel = NumpyKernel(group)  # what the host cannot generate a real device might
        seconds = group_seconds(self.specs[device.id], group, implementation)
        return SimKernel(group, implementation, kernel, seconds)

    def dump(self, kernel: SimKernel) -> bytes:
        """Return the kernel's compiled form."""
        return kernel.implementation[:1].encode() + self._host.dump(kernel.host)

    def load(self, device: Device, group: Group, schedule: Any, data: bytes) -> SimKernel:
        """Return a kernel from its compiled form; group and schedule are those it was made for."""
        implementation = "generated" if data[:1] == b"g" else "library"
        kernel = self._host.load(self._host_device, group, schedule, data[1:])
        seconds = group_seconds(self.specs[device.id], group, implementation)
        return SimKernel(group, implementation, kernel, seconds)

    def allocate(self, device: Device, nbytes: int, where: str = "device") -> Any:
        """Return a buffer in device memory, or host data for ``pinned``."""
        if where == "pinned":
            return self._host.allocate(self._host_device, nbytes)
        self._check_room(device, nbytes)
        data = fresh_data(make_layout(_UINT8, (nbytes,)))
        data.raw[:] = _POISON
        return SimBuffer(device.id, data, self._used)

    def _check_room(self, device: Device, nbytes: int) -> None:
        free, total = self.memory(device)
        if self._fault("allocate") or nbytes > free:
            raise OutOfDeviceMemory(
                f"{device.id}: no room for {nbytes} bytes ({free} of {total} are free). Fix: drop "
                "arrays that are no longer needed, or leave the host in alight.policy(devices=...)."
            )

    def register(self, device: Device, address: int, nbytes: int) -> Data:
        """Return data over memory of the caller, who must keep it alive."""
        return memory_at(address, nbytes)

    def free(self, device: Device, buffer: Any) -> None:
        """Give a buffer back; to use it afterwards is an error."""
        if isinstance(buffer, SimBuffer):
            buffer.free()

    def memory(self, device: Device) -> tuple[int, int]:
        """Return free and total bytes of the device's memory."""
        total = device.memory_bytes
        return max(0, total - _used_bytes(self._used, device.id)), total

    def submit(
        self, device: Device, queue: int, commands: Sequence[Command], wait: Sequence[Any] = ()
    ) -> SimEvent:
        """Run the commands and return the event of their end on the virtual clock.

        Raises RaceError where a command depends on a submission it does not come after.
        """
        if device.id not in self.specs:
            raise DeviceUnavailable(
                f"{device.id}: no such simulated device (there are {sorted(self.specs)}). "
                "Fix: name one of these."
            )
        key = (device.id, queue)
        state = self._queues.setdefault(key, _State())
        seen = dict(state.seen)
        began = max(state.free_at, self._host_time)
        _join(seen, self._host_seen)
        for event in wait:
            if isinstance(event, SimEvent):
                _join(seen, event.seen)
                began = max(began, event.ended)
        state.number = number = state.number + 1
        seen[key] = number
        time = began
        made: list[Any] = []
        for command in commands:
            self._check(device, command, seen)
            time += self._run(device, command, (key, number), seen, made)
        state.free_at, state.seen = time, seen
        return SimEvent(device.id, queue, began, time, tuple(made), number, seen)

    def wait(self, event: SimEvent) -> None:
        """Let the host come after the event: what it downloaded is there now."""
        _join(self._host_seen, event.seen)
        self._host_time = max(self._host_time, event.ended)
        self._deliver(event.seen)

    def seconds(self, start: SimEvent, end: SimEvent) -> float:
        """Return virtual seconds between two events."""
        return end.ended - start.ended

    def _deliver(self, seen: Mapping[_Queue, int]) -> None:
        """Put on the host what downloads up to here have brought."""
        left = []
        for item in self._downloads:
            key, number, target, content = item
            if seen.get(key, 0) >= number:
                target.raw[: content.nbytes] = content
            else:
                left.append(item)
        self._downloads = left

    def _check(self, device: Device, command: Command, seen: Mapping[_Queue, int]) -> None:
        for buffer in _reads(command):
            self._check_buffer(device, command, buffer)
            if isinstance(buffer, SimBuffer):
                _after(command, buffer, "reads", buffer.writer, seen)
            else:
                for key, number, target, _ in self._downloads:
                    if target is buffer:
                        _after(command, buffer, "reads", (key, number), seen)
        for buffer in _writes(command):
            self._check_buffer(device, command, buffer)
            if isinstance(buffer, SimBuffer):
                for earlier in (buffer.writer, *buffer.readers.items()):
                    _after(command, buffer, "writes", earlier, seen)

    def _check_buffer(self, device: Device, command: Command, buffer: Any) -> None:
        if isinstance(buffer, SimBuffer):
            if buffer.data is None:
                raise KernelError(
                    f"{type(command).__name__} on {device.id} uses a buffer of {buffer.nbytes} "
                    "bytes that was freed. Fix: free after the last use."
                )
            spaces = _spaces(command, device)
            if buffer.device not in spaces:
                raise KernelError(
                    f"{type(command).__name__} on {device.id} reaches a buffer of {buffer.device}, "
                    f"but its spaces are {sorted(spaces)}. Fix: copy the buffer first."
                )
        elif not isinstance(command, Copy) or not isinstance(buffer, Data):
            raise KernelError(
                f"{type(command).__name__} on {device.id} was given a {type(buffer).__name__}, "
                "which is not in its memory. Fix: upload it first."
            )

    def _run(
        self,
        device: Device,
        command: Command,
        mark: tuple[_Queue, int],
        seen: Mapping[_Queue, int],
        made: list[Any],
    ) -> float:
        """Carry a command out and return its virtual seconds."""
        if isinstance(command, Launch):
            seconds = self._launch(device, command, mark, made)
        elif isinstance(command, Copy):
            seconds = self._copy(device, command, mark, seen)
        else:
            command.target.data.raw[: command.nbytes] = command.byte
            seconds = copy_seconds(self.specs[device.id], command.nbytes, "device")
        for buffer in _writes(command):
            if isinstance(buffer, SimBuffer):
                buffer.writer = mark
                buffer.readers.clear()
        for buffer in _reads(command):
            if isinstance(buffer, SimBuffer):
                buffer.readers[mark[0]] = mark[1]
        return seconds

    def _launch(
        self, device: Device, command: Launch, mark: tuple[_Queue, int], made: list[Any]
    ) -> float:
        kernel: SimKernel = command.kernel
        if self._fault("launch"):
            raise KernelError(
                f"{device.id}: a launch of {kernel.implementation} failed (injected fault). "
                "Fix: none, the work goes to the host."
            )
        for number, output in zip(kernel.group.graph.outputs, command.outputs, strict=True):
            if output is None:
                self._check_room(device, kernel.group.graph.layouts[number].nbytes)
        inputs = [_inside(operand) for operand in command.inputs]
        outputs = [None if operand is None else _inside(operand) for operand in command.outputs]
        for data in kernel.run(inputs, outputs):
            buffer = SimBuffer(device.id, data, self._used)
            buffer.writer = mark
            made.append(buffer)
        return kernel.seconds

    def _copy(
        self,
        device: Device,
        command: Copy,
        mark: tuple[_Queue, int],
        seen: Mapping[_Queue, int],
    ) -> float:
        if self._fault("copy"):
            raise KernelError(
                f"{device.id}: a copy of {command.nbytes} bytes failed (injected fault). "
                "Fix: none, the work goes to the host."
            )
        source, target, nbytes = command.source, command.target, command.nbytes
        if isinstance(source, SimBuffer):
            assert source.data is not None
            content = source.data.raw[command.start : command.start + nbytes]
        else:
            self._deliver(seen)
            content = source.raw[:nbytes]
        if isinstance(target, SimBuffer):
            assert target.data is not None
            target.data.raw[:nbytes] = content
            direction = "device" if isinstance(source, SimBuffer) else "upload"
            if direction == "device" and source.device != target.device:
                direction = "peer"
        else:
            self._downloads.append((*mark, target, content.copy()))
            target.raw[:nbytes] = _POISON
            direction = "download"
        return copy_seconds(self.specs[device.id], nbytes, direction)


def _join(seen: dict[_Queue, int], other: Mapping[_Queue, int]) -> None:
    for key, number in other.items():
        if seen.get(key, 0) < number:
            seen[key] = number


def _inside(operand: Operand) -> Operand:
    return Operand(operand.buffer.data, operand.offset, operand.layout)


def _spaces(command: Command, device: Device) -> set[str]:
    if isinstance(command, Copy):
        return {command.source_space, command.target_space}
    return {device.space}


def _reads(command: Command) -> Iterable[Any]:
    if isinstance(command, Launch):
        return [operand.buffer for operand in command.inputs]
    return [command.source] if isinstance(command, Copy) else []


def _writes(command: Command) -> Iterable[Any]:
    if isinstance(command, Launch):
        return [operand.buffer for operand in command.outputs if operand is not None]
    assert isinstance(command, Copy | Fill)
    return [command.target]


def _after(
    command: Command,
    buffer: Any,
    verb: str,
    earlier: tuple[_Queue, int] | None,
    seen: Mapping[_Queue, int],
) -> None:
    """Raise RaceError unless the earlier use of the buffer is over when this one begins."""
    if earlier is None:
        if verb == "reads" and buffer.nbytes:
            raise RaceError(
                f"{type(command).__name__} reads a buffer of {buffer.nbytes} bytes that nothing "
                "has written. Fix: copy, fill or compute it first."
            )
        return
    (device, queue), number = earlier
    if seen.get((device, queue), 0) < number:
        raise RaceError(
            f"{type(command).__name__} {verb} a buffer of {buffer.nbytes} bytes without waiting "
            f"for submission {number} of queue {queue} on {device}, which uses it. "
            "Fix: pass that submission's event in wait."
        )
