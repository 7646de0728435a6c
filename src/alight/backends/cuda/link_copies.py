"""Copies on a CUDA device: by the link alone where it reaches the host's memory as it is, else in
pieces through memory that it does; and the events after them."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from alight._core import DeviceBuffer
from alight._src.base.failures import failures
from alight.backends.base import Copy, Operand
from alight.backends.cuda.staging_ring import Transfer
from alight.backends.host import address_of
from alight.errors import KernelError

if TYPE_CHECKING:
    from alight.backends.cuda.cuda_session import Session

__all__ = ["Copies", "CudaEvent", "Path"]

_UPLOAD, _DOWNLOAD, _EITHER = 1, 2, 4  # cudaMemcpyKind
# From here on copies of pageable memory are staged: the driver alone reached 12 GB/s up at 256 kB
# to 512 MB, and into fresh pages 17 at 4 MB and 4.5 at 64 (measured). Threads copy as much each;
# waking them takes as long as the driver for 1 MB, those for downloads as long as for 4.
STAGED_BYTES = {_UPLOAD: 2 << 20, _DOWNLOAD: 4 << 20}


class CudaEvent:
    """The end of a submission. ``began`` and ``ended`` are the host's clock; ``seconds`` asks the
    device's."""

    __slots__ = ("_ended", "began", "buffers", "coming", "device", "handle", "queue", "session")

    def __init__(self, session: Session, queue: int, handle: int, began: float) -> None:
        self.session = session
        self.device = session.device
        self.queue = queue
        self.handle = handle
        self.began = began
        self.buffers: tuple[Any, ...] = ()
        self.coming = tuple(session.coming(queue))  # downloads before it that threads are at
        self._ended = 0.0

    @property
    def ended(self) -> float:
        """Return when the work was known to have ended; an error before it was waited for."""
        if not self._ended:
            raise RuntimeError(f"an event of {self.device} was not waited for. Fix: wait first.")
        return self._ended

    def given(self) -> None:
        """Return when its stream has it, so that another one can wait for it."""
        for transfer in self.coming:
            transfer.sent.wait()
            transfer.check()

    def wait(self) -> None:
        """Return when it has happened."""
        if not self._ended:
            session = self.session
            before = session.enter()
            try:
                over(self.coming)
                session.runtime.eventSynchronize(self.handle)
            except failures() as error:
                session.tell(error)
                raise
            finally:
                session.leave(before)
            self.coming = ()
            self._ended = perf_counter()

    def __del__(self) -> None:
        self.session.spare(self.handle)


def over(transfers: Sequence[Transfer]) -> None:
    """Return when no thread is at any of them; raise what went wrong."""
    for transfer in transfers:
        transfer.wait()
    for transfer in transfers:
        transfer.check()


class Path:
    """Where a copy leads from and to, and whether it is staged."""

    __slots__ = ("copy", "kind", "source", "staged", "target")

    def __init__(self, session: Session, copy: Copy) -> None:
        self.copy = copy
        up = not isinstance(copy.source, DeviceBuffer)
        down = not isinstance(copy.target, DeviceBuffer)
        self.kind = _UPLOAD if up else _DOWNLOAD if down else _EITHER
        self.source, self.target = (_address(end) for end in (copy.source, copy.target))
        self.source += copy.start
        if copy.nbytes and not (self.source > copy.start and self.target):
            raise KernelError("a copy from or to memory that was freed. Fix: keep the buffer.")
        self.staged = (
            up != down
            and copy.nbytes >= STAGED_BYTES[self.kind]
            and not session.locked(self.source if up else self.target, copy.nbytes)
        )


def _address(end: Any) -> int:
    return end.address if isinstance(end, DeviceBuffer) else address_of(Operand(end, 0, end.layout))


class Copies:
    """The copies of one submission, in their order."""

    def __init__(self, session: Session, queue: int) -> None:
        self.session = session
        self.queue = queue
        self.stream = session.stream(queue)

    def start(self, path: Path) -> None:
        """Give a copy to the stream, or to the threads; pageable memory that it reads has been
        read."""
        copy = path.copy
        if path.staged and path.kind == _UPLOAD:
            self.session.upload(path.source, path.target, copy.nbytes, self.stream)
        elif path.staged:
            transfer = self._download(path)
            self.session.download(transfer, self.queue)
            transfer.sent.wait()
        elif copy.nbytes:
            self.session.runtime.memcpyAsync(
                path.target, path.source, copy.nbytes, path.kind, self.stream
            )

    def _download(self, path: Path) -> Transfer:
        copy = path.copy
        return Transfer(path.source, path.target, copy.nbytes, self.stream, copy)

    def later(self, path: Path, wait: Sequence[CudaEvent]) -> CudaEvent | None:
        """Return the event after a download that threads bring while the host goes on; None for
        other copies."""
        if not path.staged or path.kind != _DOWNLOAD:
            return None
        session, stream = self.session, self.stream
        runtime = session.runtime
        transfer = self._download(path)
        event = CudaEvent(session, self.queue, session.event(), perf_counter())
        event.coming = (*event.coming, transfer)

        def before() -> None:
            for one in wait:
                runtime.streamWaitEvent(stream, one.handle, 0)

        transfer.before = before
        transfer.after = lambda: runtime.eventRecord(event.handle, stream)
        session.download(transfer, self.queue)
        return event
