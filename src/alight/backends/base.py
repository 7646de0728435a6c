"""The protocol of a backend: thirteen methods, none per op.

``docs/add-a-backend.md`` has a whole one, and says what each method may rely on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from alight._src.base.records import dataclass

if TYPE_CHECKING:
    from alight._core import Layout
    from alight._src.ir.group import Group
    from alight.device import Device, Probe


# Named tuples where one is made for every launch: they are built in a third of a dataclass's time.


class Operand(NamedTuple):
    """Where a kernel finds one array.

    Parameters
    ----------
    buffer : object
        A buffer of its device's memory.
    offset : int
        Where the array begins, in bytes.
    layout : Layout
        Its dtype, shape and strides.
    """

    buffer: Any
    offset: int
    layout: Layout


class Launch(NamedTuple):
    """One run of a kernel.

    Parameters
    ----------
    kernel : object
        What ``compile`` or ``load`` returned.
    inputs : tuple of Operand
        What it reads.
    outputs : tuple of Operand or None
        Where it writes; where one is None the kernel makes the buffer.
    """

    kernel: Any
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand | None, ...]


def prepared(backend: Any, device: Device, launch: Launch) -> None:
    """Have a backend make what it makes at a kernel's first launch.

    What is timed afterwards is the launch alone. A backend without a ``prepare`` makes nothing.

    Parameters
    ----------
    backend : Backend
        The backend.
    device : Device
        One of its devices, opened.
    launch : Launch
        What will be launched.
    """
    prepare = getattr(backend, "prepare", None)
    if prepare is not None:
        prepare(device, launch)


# A kernel, the numbers of the arrays that it reads, and of those that it makes.
Steps = Sequence[tuple[Any, Sequence[int], Sequence[int]]]


class LaunchSequence(NamedTuple):
    """Launches in a row, to be made ready once and run again and again.

    Arrays have numbers: the first are those given, then those made, in the order of ``launches``.

    Parameters
    ----------
    launches : sequence of tuple
        For each a kernel, the numbers of the arrays that it reads, and of those that it makes.
    given : sequence of tuple
        Layout of each array that is given, and the bytes before it.
    layouts : mapping of int to Layout
        Layouts of what is made.
    views : mapping of int to tuple
        What windows look at, and the bytes before them.
    wanted : sequence of int
        What comes back.
    fixed : mapping of int to int
        Of what is given, the bits of what is the same in every run.
    """

    launches: Steps
    given: Sequence[tuple[Layout, int]]
    layouts: Mapping[int, Layout]
    views: Mapping[int, tuple[int, int]]
    wanted: Sequence[int]
    fixed: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes from one buffer to another.

    Which copy it is (upload, download, …) follows from the spaces.

    Parameters
    ----------
    source, target : object
        The buffers; host data has its bytes in ``raw``.
    nbytes : int
        How many bytes.
    source_space, target_space : str
        The memories: ``"host"``, or a device's space.
    start : int, default 0
        Where in the source to begin, a multiple of four bytes: only of copies to the host, and
        where a backend says that it ``downloads_parts``.
    """

    source: Any
    target: Any
    nbytes: int
    source_space: str
    target_space: str
    start: int = 0


@dataclass(frozen=True, slots=True)
class Fill:
    """Set bytes of a buffer.

    Parameters
    ----------
    target : object
        The buffer.
    nbytes : int
        How many bytes, from its beginning.
    byte : int
        The byte.
    """

    target: Any
    nbytes: int
    byte: int


Command = Launch | Copy | Fill


@dataclass(slots=True, eq=False)
class Event:
    """The end of a submission.

    A backend that learns times later may have events of its own kind; they carry ``buffers`` too.

    Parameters
    ----------
    device : str
        The device's id.
    queue : int
        The queue.
    began, ended : float
        When its work began and ended on the device's clock, in seconds.
    buffers : tuple, optional
        What its launches made where an output was None, in the order of the commands; who keeps an
        event takes them out of it.
    number : int, default 0
        Its place among the submissions of the queue, where the backend counts.
    """

    device: str
    queue: int
    began: float
    ended: float
    buffers: tuple[Any, ...] = ()
    number: int = 0


class Backend(Protocol):
    """Code that drives one kind of device.

    Buffers, kernels and events are its own objects.

    Attributes
    ----------
    name : str
        The part of its devices' ids before the colon.
    late : bool
        Whether launches go on while the host does, and need no wait but at a request.
    """

    name: str
    late: bool

    def probe(self) -> Probe:
        """Return the devices found here, or why there are none.

        It never raises.

        Returns
        -------
        Probe
            The devices, or the reason.
        """

    def open(self, device: Device) -> None:
        """Make the device ready: contexts and queues start here and not before.

        Parameters
        ----------
        device : Device
            One of its devices.
        """

    def close(self, device: Device) -> None:
        """Give up everything held on the device.

        Parameters
        ----------
        device : Device
            One of its devices.
        """

    def compile(self, device: Device, group: Group, implementation: str, schedule: Any) -> Any:
        """Return a kernel for a group.

        Parameters
        ----------
        device : Device
            One of its devices.
        group : Group
            What to compute.
        implementation : str
            Whose code: ``"generated"`` or ``"library"``.
        schedule : object
            How the kernel is shaped; None: as the backend sees fit.

        Returns
        -------
        object
            The kernel.

        Raises
        ------
        Unsupported
            Where there is a gap; the message is the reason.
        """

    def dump(self, kernel: Any) -> bytes:
        """Return a kernel's compiled form.

        Parameters
        ----------
        kernel : object
            What ``compile`` returned.

        Returns
        -------
        bytes
            What ``load`` takes.
        """

    def load(self, device: Device, group: Group, schedule: Any, data: bytes) -> Any:
        """Return a kernel from its compiled form.

        Parameters
        ----------
        device : Device
            One of its devices.
        group : Group
            The group it was made for.
        schedule : object
            The schedule it was made for.
        data : bytes
            What ``dump`` returned.

        Returns
        -------
        object
            The kernel.
        """

    def allocate(self, device: Device, nbytes: int, where: str = "device") -> Any:
        """Return a buffer.

        Parameters
        ----------
        device : Device
            One of its devices.
        nbytes : int
            Its size, in bytes.
        where : {"device", "pinned"}
            In device memory, or in pinned host memory.

        Returns
        -------
        object
            The buffer.

        Raises
        ------
        OutOfDeviceMemory
            Where there is no room.
        """

    def register(self, device: Device, address: int, nbytes: int) -> Any:
        """Make host memory that the caller has reachable by the device at link speed.

        Parameters
        ----------
        device : Device
            One of its devices.
        address : int
            Where it begins.
        nbytes : int
            Its size, in bytes.

        Returns
        -------
        object
            A buffer over it.
        """

    def free(self, device: Device, buffer: Any) -> None:
        """Give a buffer back.

        Parameters
        ----------
        device : Device
            One of its devices.
        buffer : object
            What ``allocate`` or ``register`` returned.
        """

    def submit(
        self, device: Device, queue: int, commands: Sequence[Command], wait: Sequence[Any] = ()
    ) -> Any:
        """Enqueue commands; return the event of their end.

        Parameters
        ----------
        device : Device
            One of its devices.
        queue : int
            The queue.
        commands : sequence of Launch, Copy or Fill
            What to do, in order. None at all are a mark in time, from which ``seconds`` counts.
        wait : sequence of event, optional
            What has to happen first.

        Returns
        -------
        event
            The end of the commands.
        """

    def wait(self, event: Any) -> None:
        """Return when an event has happened.

        Parameters
        ----------
        event : event
            What ``submit`` returned.
        """

    def seconds(self, start: Any, end: Any) -> float:
        """Return the device time between two events.

        Parameters
        ----------
        start, end : event
            What ``submit`` returned.

        Returns
        -------
        float
            Seconds.
        """

    def memory(self, device: Device) -> tuple[int, int]:
        """Return how much of the device's memory is free.

        Parameters
        ----------
        device : Device
            One of its devices.

        Returns
        -------
        tuple of int
            Free and total bytes.
        """
