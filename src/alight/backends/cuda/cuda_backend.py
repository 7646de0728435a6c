"""CUDA by way of CuPy: kernels in CUDA C, made here and compiled by NVRTC.

Nothing is started before a plan needs it: probing asks the driver in another process. The same code
is meant to serve AMD cards through CuPy's ROCm build; there it has not been run.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from alight._core import Data, DeviceBuffer, Layout, make_layout
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.base.uninterrupted import whereabouts
from alight._src.codegen.common.source import Grid
from alight._src.ir.group import Group
from alight.backends.base import Command, Copy, Launch, LaunchSequence, Operand
from alight.backends.cuda import cards as cuda_cards
from alight.backends.cuda.cuda_kernel import CudaKernel
from alight.backends.cuda.cuda_session import Session
from alight.backends.cuda.cupy_calls import CALLS, called
from alight.backends.cuda.cupy_functions import LACKING, NAMES, LibraryKernel
from alight.backends.cuda.launch_sequence import CudaSequence
from alight.backends.cuda.link_copies import Copies, CudaEvent, Path, over
from alight.backends.cuda.mixed_replay import CudaParts
from alight.backends.driver_subprocess import ask, loaded, refusal
from alight.backends.host import NATIVE_DTYPES, memory_at
from alight.device import Device, Gap, Probe, Support, Traces, Unsupported
from alight.errors import DeviceUnavailable, KernelError

GAPS = (
    Gap(
        "reductions of complex numbers, scans of float16",
        "no such reduction is printed in CUDA C",
        "alight",
    ),
    Gap(
        "products of floats, bit for bit",
        "which partial products overflow depends on NumPy's order",
        "alight, by reductions that carry exponents",
    ),
    Gap("complex transcendentals", "no body defines them", "alight"),
    *LACKING,
    Gap("floating-point warnings", "a device has no flags", "nobody: NumPy on the host warns"),
)
_UINT8 = np.dtype(np.uint8)
# From here on results land in memory that is kept for the next ones: into fresh pages a download
# took 17 GB/s at 4 MB and less above, into locked ones 55 (measured).
LANDED_BYTES = 1 << 20
# What a process takes to ask: CuPy's import and the driver's start took 2 to 4 s on an H200's host.
_SECONDS = 40.0


class CudaBackend:
    """Drives CUDA devices; buffers are ``DeviceBuffer``, kernels ``CudaKernel``."""

    name = "cuda"
    late = True
    downloads_parts = True

    def __init__(self) -> None:
        self._probe: Probe | None = None
        self._sessions: dict[str, Session] = {}

    def probe(self) -> Probe:
        """Return the cards' devices, or why there are none."""
        if self._probe is None:
            self._probe = self._asked()
        return self._probe

    def _asked(self) -> Probe:
        if reason := refusal("CUDA"):
            return Probe((), reason)
        if whereabouts("cupy") is None:
            fix = "Fix: pip install 'alight[cuda13]' (CUDA 12: cuda12)"
            return Probe((), f"CuPy is not installed. {fix}")
        found, reason = ask(cuda_cards.__file__, _SECONDS, "cuda")
        if found is None:
            return Probe((), reason)
        if not found["cards"]:
            return Probe((), "the driver shows no card. Fix: see CUDA_VISIBLE_DEVICES")
        cards = len(found["cards"])
        traces = Traces(cuda_cards.paths(cards), cuda_cards.CHOOSING, modules=("cupy",))
        return Probe(tuple([described(i, found) for i in range(cards)]), traces=traces)

    def described(self, device: Device) -> Device:
        """Return an open device as the driver describes it in this process."""
        return described(int(device.id.partition(":")[2]), cuda_cards.cards())

    def open(self, device: Device) -> None:
        """Make a context and a stream."""
        if device.id in self._sessions:
            return
        loaded("CUDA")
        number = int(device.id.partition(":")[2])
        try:
            self._sessions[device.id] = Session(number, device.id, device.fingerprint)
        except ImportError as error:
            raise DeviceUnavailable(
                f"CuPy cannot be loaded: {error}. Fix: reinstall it."
            ) from error

    def close(self, device: Device) -> None:
        """Give up everything held on the device."""
        session = self._sessions.pop(device.id, None)
        if session is not None:
            session.close()

    def _session(self, device: Device) -> Session:
        session = self._sessions.get(device.id)
        if session is None:
            raise DeviceUnavailable(f"{device.id} is not open. Fix: open it first.")
        return session

    # --- kernels
    def compile(
        self, device: Device, group: Group, implementation: str, schedule: Any
    ) -> CudaKernel | LibraryKernel:
        """Return a kernel for the group.

        Raises Unsupported, with the reason, where the device or CUDA C has a gap.
        """
        session = self._session(device)
        if implementation == "library":
            return LibraryKernel(session, group)
        if implementation != "generated":
            raise Unsupported(f"{device.id} has no implementation {implementation!r}")
        grid = schedule if isinstance(schedule, Grid) else None
        with session.lock, session.errors():
            return CudaKernel(
                session, group.form.lowered or group, grid, device.limits["processors"]
            )

    def dump(self, kernel: CudaKernel | LibraryKernel) -> bytes:
        """Return nothing: each text's machine code is in the store already, as one group's sizes
        decide between several texts."""
        return b""

    def load(
        self, device: Device, group: Group, schedule: Any, data: bytes
    ) -> CudaKernel | LibraryKernel:
        """Return a kernel made of what is in the store."""
        library = group.form.library
        return self.compile(device, group, "library" if library else "generated", schedule)

    # --- memory
    def allocate(self, device: Device, nbytes: int, where: str = "device") -> Any:
        """Return a buffer of the device, or host memory that it reaches at link speed."""
        session = self._session(device)
        if where != "pinned":
            with session.errors():
                return session.buffer(nbytes)
        with session.lock, session.errors():
            array = session.pinned.take(nbytes, True)
        if array is None:
            raise MemoryError(
                f"{device.id} may lock {session.pinned.most} bytes of the host's memory, which "
                "arrays hold. Fix: drop some."
            )
        return Data(make_layout(_UINT8, (nbytes,)), array)

    def landing(self, device: Device, layout: Layout) -> Data | None:
        """Return host memory of this layout for a download, which the link reaches as it is, soon
        if it is new; None where any other does as well."""
        if layout.nbytes < LANDED_BYTES or not layout.dense:
            return None
        session = self._session(device)
        with session.lock, session.errors():
            memory = session.pinned.take(layout.nbytes, False)
        if memory is None:
            return None
        array: np.ndarray[Any, Any] = np.ndarray(
            layout.shape, layout.dtype, memory, 0, layout.strides
        )
        return Data(layout, array, memory)

    def register(self, device: Device, address: int, nbytes: int) -> Any:
        """Make the caller's memory reachable at link speed while what is returned lives."""
        session = self._session(device)
        with session.errors():
            session.runtime.hostRegister(address, nbytes, 0)
        data = memory_at(address, nbytes)
        weakref.finalize(data, _unregister, session, address).atexit = False
        return data

    def free(self, device: Device, buffer: Any) -> None:
        """Give a buffer back."""
        if isinstance(buffer, DeviceBuffer):
            buffer.free()

    def memory(self, device: Device) -> tuple[int, int]:
        """Return free and total bytes; what the pool keeps unused is free, what its limit forbids
        is not."""
        session = self._session(device)
        with session.lock, session.errors():
            session.release()
            free, total = session.runtime.memGetInfo()
            pool = session.pool
            unused = pool.free_bytes()
            free += unused
            if limit := pool.get_limit():
                free = min(free, max(0, limit - (pool.total_bytes() - unused)))
                total = min(total, limit)
            return free + session.stock.held, total

    # --- running
    def submit(
        self, device: Device, queue: int, commands: Sequence[Command], wait: Sequence[Any] = ()
    ) -> CudaEvent:
        """Enqueue the commands after the events in ``wait``; the host goes on."""
        session = self._session(device)
        with session.lock:
            before = session.enter()
            try:
                return self._submitted(session, queue, commands, wait)
            except failures() as error:
                session.tell(error)
                raise
            finally:
                session.leave(before)

    def _submitted(
        self, session: Session, queue: int, commands: Sequence[Command], wait: Sequence[Any]
    ) -> CudaEvent:
        made: list[DeviceBuffer] = []
        used: list[Any] = []
        stream = session.stream(queue)
        uninterrupted = [e for e in wait if e.queue != queue or e.session is not session]
        for event in uninterrupted:
            event.given()
        copies = Copies(session, queue)
        if len(commands) == 1 and isinstance(commands[0], Copy):
            later = copies.later(Path(session, commands[0]), uninterrupted)
            if later is not None:
                if queue:
                    session.hold(later, commands)
                return later
        for transfer in session.coming(queue):
            transfer.sent.wait()  # what is submitted now comes behind it
        for event in uninterrupted:
            session.runtime.streamWaitEvent(stream, event.handle, 0)
        began = perf_counter()
        for command in commands:
            if isinstance(command, Copy):
                copies.start(Path(session, command))
                if isinstance(command.source, Data) and command.source.fixed:
                    session.fix(command.target, command.source)
            elif isinstance(command, Launch):
                self._launch(session, stream, command, made, used)
            else:
                target = _at(session, command.target)
                session.runtime.memsetAsync(target, command.byte, command.nbytes, stream)
        result = CudaEvent(session, queue, session.record(queue), began)
        result.buffers = tuple(made)
        if queue:
            session.hold(result, (list(commands), used, made))
        return result

    def _launch(
        self,
        session: Session,
        stream: int,
        command: Launch,
        made: list[DeviceBuffer],
        used: list[Any],
    ) -> None:
        kernel = command.kernel
        if isinstance(kernel, LibraryKernel):
            for operand in command.inputs:
                _at(session, operand.buffer)
            with session.library(stream):
                result = kernel.run(session, command.inputs, command.outputs[0])
            if result is not None:
                made.append(result)
            return
        operands = list(command.inputs)
        for place, output in enumerate(command.outputs, len(operands)):
            if output is None:
                layout = kernel.layouts[place]
                made.append(session.buffer(layout.nbytes))
                output = Operand(made[-1], 0, layout)
            operands.append(output)
        addresses, by_value = _placed(session, kernel, operands)
        scratch, calls = kernel.program(addresses, by_value)
        for nbytes in scratch:
            used.append(session.buffer(nbytes))
            addresses.append(used[-1].address)
        for call in calls:
            call.launch(session.driver, addresses, stream)

    def prepare(self, device: Device, launch: Launch) -> None:
        """Have the code that a launch for memory of the device's own needs, so that no clock has
        the compiler's time in it."""
        kernel, session = launch.kernel, self._session(device)
        if isinstance(kernel, CudaKernel) and kernel.scalars:
            addresses, by_value = _placed(session, kernel, launch.inputs)
            made = [0] * len(launch.outputs)  # pieces of the pool's memory are aligned
            with session.lock, session.errors():
                kernel.program((*addresses, *made), by_value)

    def call(self, device: Device, name: str, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """Return what the library's function of an op's name gives, called at once on operands:
        each array of it as an operand, in a buffer of its own.

        Raises Unsupported, with the reason, where it is not NumPy's; and what the library raises.
        """
        session = self._session(device)
        with session.lock, session.errors(), session.library(session.stream(0)):
            return called(session, name, args, attrs)

    def sequence(self, device: Device, work: LaunchSequence) -> CudaSequence | CudaParts:
        """Return launches made ready to run again and again."""
        session = self._session(device)
        generated = all(isinstance(kernel, CudaKernel) for kernel, _, _ in work.launches)
        made = CudaSequence if generated else CudaParts
        with session.lock, session.errors():
            return made(session, work)

    def repeated(self, device: Device, launch: Launch) -> Callable[[int], None] | None:
        """Return what makes a launch so often as calls of a ready plan make theirs; None where that
        takes more than the native core."""
        kernel = launch.kernel
        if not isinstance(kernel, CudaKernel):
            return None
        count = len(launch.inputs)
        made = dict(enumerate(kernel.layouts[count:], count))
        given = [(operand.layout, operand.offset) for operand in launch.inputs]
        steps = [(kernel, range(count), [*made])]
        fixed = self._session(device).values(enumerate(launch.inputs))
        sequence = self.sequence(device, LaunchSequence(steps, given, made, {}, [*made], fixed))
        assert isinstance(sequence, CudaSequence), sequence
        return sequence.repeated([operand.buffer for operand in launch.inputs])

    def wait(self, event: CudaEvent) -> None:
        """Return when the event has happened."""
        event.wait()

    def finish(self, device: Device) -> None:
        """Return when all that was submitted to queue 0 has been done."""
        session = self._session(device)
        with session.errors():
            over(session.coming(0))
            session.finish()

    def seconds(self, start: CudaEvent, end: CudaEvent) -> float:
        """Return seconds between two events on the device's clock."""
        start.wait()
        end.wait()
        milliseconds: float = end.session.runtime.eventElapsedTime(start.handle, end.handle)
        return milliseconds / 1e3


def _unregister(session: Session, address: int) -> None:
    if os.getpid() == session.process and not session.lost:
        session.runtime.hostUnregister(address)


def _at(session: Session, buffer: Any) -> int:
    if (
        not isinstance(buffer, DeviceBuffer)
        or not buffer.address
        or buffer.device != session.device
    ):
        raise KernelError(
            f"{session.device} was given a {type(buffer).__name__} that is not in its memory, or "
            "was freed. Fix: upload it first."
        )
    address: int = buffer.address
    return address


def _placed(
    session: Session, kernel: CudaKernel, operands: Sequence[Operand]
) -> tuple[list[int], tuple[int, ...]]:
    """Return where operands lie, or the values of those that come by value, and which do."""
    addresses = [_at(session, buffer) + offset for buffer, offset, _ in operands]
    values = session.values([(i, operands[i]) for i in kernel.scalars])
    for place, value in values.items():
        addresses[place] = value
    return addresses, tuple(values)


def described(number: int, found: dict[str, Any]) -> Device:
    """Return the device that a card is, by what the driver says of it."""
    card = found["cards"][number]
    versions = f"driver {found['driver']} runtime {found['runtime']} CuPy {found['cupy']}"
    return Device(
        id=f"cuda:{number}",
        vendor=found["vendor"],
        name=card["name"],
        space=f"cuda:{number}",
        memory_bytes=card["memory"],
        unified_memory=False,
        support=Support(
            ("generated", "library"),
            NATIVE_DTYPES,
            GAPS,
            dialect="cuda",
            library=NAMES,
            calls=frozenset(CALLS),
        ),
        limits={"processors": card["processors"], "engines": card.get("engines", 0)},
        fingerprint=f"{card['name']} {card['uuid']} {card['capability']} {versions}",
    )
