"""The protocol of a backend: thirteen methods, none per op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from alight._core import Layout
    from alight._src.ir.group import Group
    from alight.device import Device, Probe


# Named tuples where one is made for every launch: they are built in a third of a dataclass's time.


class Operand(NamedTuple):
    """Where a kernel finds one array: a buffer of its device's memory, a byte offset, a layout."""

    buffer: Any
    offset: int
    layout: Layout


class Launch(NamedTuple):
    """One run of a kernel. ``outputs`` are given; where one is None the kernel makes the buffer."""

    kernel: Any
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand | None, ...]


def prepared(backend: Any, device: Device, launch: Launch) -> None:
    """Have a backend make what it makes at a kernel's first launch, where there is such a thing:
    what is timed then is the launch."""
    prepare = getattr(backend, "prepare", None)
    if prepare is not None:
        prepare(device, launch)


# A kernel, the numbers of the arrays that it reads, and of those that it makes.
Steps = Sequence[tuple[Any, Sequence[int], Sequence[int]]]


class LaunchSequence(NamedTuple):
    """Launches in a row, to be made ready once and run again and again.

    Arrays have numbers. The first are of what is ``given``, each with the bytes before it;
    ``layouts`` are of what is made, ``views`` what windows look at, with the bytes before them.
    What is ``wanted`` comes back. Of what is given, the bits are told of what is ``fixed``: it is
    the same in every run.
    """

    launches: Steps
    given: Sequence[tuple[Layout, int]]
    layouts: Mapping[int, Layout]
    views: Mapping[int, tuple[int, int]]
    wanted: Sequence[int]
    fixed: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes from one buffer to another; which copy it is (upload, download, …) follows from
    ``source_space`` and ``target_space``. Where a backend says that it ``downloads_parts``, one to
    the host may begin ``start`` bytes into the source, a multiple of four."""

    source: Any
    target: Any
    nbytes: int
    source_space: str
    target_space: str
    start: int = 0


@dataclass(frozen=True, slots=True)
class Fill:
    """Set bytes of a buffer."""

    target: Any
    nbytes: int
    byte: int


Command = Launch | Copy | Fill


@dataclass(slots=True, eq=False)
class Event:
    """The end of a submission: when its work began and ended on the device's clock, in seconds, and
    the buffers its launches made where an output was None, in the order of the commands; who keeps
    an event takes them out of it. A backend that learns times later may have events of its own
    kind; they carry ``buffers`` too."""

    device: str
    queue: int
    began: float
    ended: float
    buffers: tuple[Any, ...] = ()
    number: int = 0


class Backend(Protocol):
    """Code that drives one kind of device. Buffers, kernels and events are its own objects.

    ``late``: launches go on while the host does, and need no wait but at a request.
    """

    name: str
    late: bool

    def probe(self) -> Probe:
        """Return the devices found here, or why there are none. Never raises."""

    def open(self, device: Device) -> None:
        """Make the device ready: contexts and queues start here and not before."""

    def close(self, device: Device) -> None:
        """Give up everything held on the device."""

    def compile(self, device: Device, group: Group, implementation: str, schedule: Any) -> Any:
        """Return a kernel for the group; raise Unsupported with the reason where there is a gap."""

    def dump(self, kernel: Any) -> bytes:
        """Return the kernel's compiled form."""

    def load(self, device: Device, group: Group, schedule: Any, data: bytes) -> Any:
        """Return a kernel from its compiled form; group and schedule are those it was made for."""

    def allocate(self, device: Device, nbytes: int, where: str = "device") -> Any:
        """Return a buffer in device memory or in pinned host memory."""

    def register(self, device: Device, address: int, nbytes: int) -> Any:
        """Make host memory the caller has reachable by the device at link speed."""

    def free(self, device: Device, buffer: Any) -> None:
        """Give a buffer back."""

    def submit(
        self, device: Device, queue: int, commands: Sequence[Command], wait: Sequence[Any] = ()
    ) -> Any:
        """Enqueue the commands after the events in ``wait``; return the event of their end. No
        commands at all are a mark in time, from which ``seconds`` counts."""

    def wait(self, event: Any) -> None:
        """Return when the event has happened."""

    def seconds(self, start: Any, end: Any) -> float:
        """Return device time between two events."""

    def memory(self, device: Device) -> tuple[int, int]:
        """Return free and total bytes of the device's memory."""
