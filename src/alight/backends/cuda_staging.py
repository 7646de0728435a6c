"""Copies between a device and pageable memory of the host, in pieces that several threads bring
through locked memory.

Each thread has two pieces of that: one passes the link while it copies the other.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import TYPE_CHECKING, Any

from alight.backends.cuda_pinned import PORTABLE, Pages
from alight.backends.machine import thread_count

if TYPE_CHECKING:
    from alight.backends.cuda_session import Session

__all__ = ["Staging", "Transfer"]

# A piece of a copy: at 10 GB/s a thread copies it in 0.4 ms, a hundred times what its calls take.
PIECE_BYTES = 4 << 20
# Threads that copy: at 7 to 10 GB/s each, so many fill a link of 55 GB/s (PCIe 5, measured).
_MOST_THREADS = 8
_NO_TIMING = 2  # cudaEventDisableTiming
_UPLOAD, _DOWNLOAD = 1, 2  # cudaMemcpyKind


class _Slot:
    """A piece of locked memory on its way."""

    __slots__ = ("address", "passed")

    def __init__(self, address: int, passed: int) -> None:
        self.address = address
        self.passed = passed  # the event after its last copy through the link


class Transfer:
    """One copy in pieces. ``sent`` is set when all of it has been given to the stream, or will
    never be. Where it ends early, it is because of ``error`` or of who waited."""

    def __init__(self, source: int, target: int, nbytes: int, stream: int, held: Any) -> None:
        self.source = source
        self.target = target
        self.nbytes = nbytes
        self.stream = stream
        self.held = held  # what must live until it is over
        self.before: Callable[[], None] | None = None  # done before the first piece
        self.after: Callable[[], None] | None = None  # done when the last one has been given
        self.sent = threading.Event()
        self.error: BaseException | None = None
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._next = 0
        self._threads = 0

    @property
    def over(self) -> bool:
        """Tell whether no thread is at it any more."""
        return self._over.is_set()

    def wait(self) -> None:
        """Return when no thread is at it any more."""
        try:
            self._over.wait()
        except BaseException:  # somebody interrupts: no piece more is begun
            self._next = self.nbytes
            self._over.wait()
            raise

    def check(self) -> None:
        """Raise what went wrong in the threads."""
        if self.error is not None:
            raise self.error

    def piece(self) -> tuple[int, int] | None:
        """Return where the next piece starts and ends, None after the last."""
        with self._lock:
            start = self._next
            end = self._next = min(start + PIECE_BYTES, self.nbytes)
        return (start, end) if start < end else None

    def given(self, give: Callable[[int, int], None]) -> tuple[int, int] | None:
        """Return the next piece, given to the stream in its turn; None after the last."""
        with self._lock:
            start = self._next
            end = min(start + PIECE_BYTES, self.nbytes)
            if start >= end:
                return None
            if start == 0 and self.before is not None:
                self.before()
            give(start, end)
            self._next = end
            if end == self.nbytes:
                if self.after is not None:
                    self.after()
                self.sent.set()
        return start, end

    def begin(self, threads: int) -> None:
        """Note how many threads will be at it."""
        self._threads = threads

    def leave(self, error: BaseException | None) -> None:
        """Note that a thread has left it, and why if not at the end."""
        with self._lock:
            if error is not None:
                self.error = self.error or error
                self._next = self.nbytes
            self._threads -= 1
            if self._threads == 0:
                self.held = self.before = self.after = None
                self.sent.set()
                self._over.set()


class Staging:
    """Threads that bring copies one way, one copy after another."""

    def __init__(self, session: Session, name: str) -> None:
        self.count = min(_MOST_THREADS, thread_count())
        self._runtime = runtime = session.runtime
        self._threads = ThreadPoolExecutor(
            self.count, f"alight-{name}", runtime.setDevice, (session.number,)
        )
        self._pages = pages = Pages(2 * self.count * PIECE_BYTES)
        pages.keep_from_children()
        pages.bring(0, pages.nbytes)
        runtime.hostRegister(pages.address, pages.nbytes, PORTABLE)
        starts = range(pages.address, pages.address + pages.nbytes, PIECE_BYTES)
        slots = [_Slot(start, runtime.eventCreateWithFlags(_NO_TIMING)) for start in starts]
        self._pairs = list(zip(slots[::2], slots[1::2], strict=True))  # one for each thread

    def upload(self, transfer: Transfer) -> None:
        """Begin an upload; its source has been read when it is over."""
        self._begin(transfer, self._upload)

    def download(self, transfer: Transfer) -> None:
        """Begin a download; its target has been written when it is over."""
        self._begin(transfer, self._download)

    def close(self) -> None:
        """Let the threads end, when what has begun is over."""
        self._threads.shutdown()
        self._runtime.hostUnregister(self._pages.address)

    def _begin(self, transfer: Transfer, work: Callable[[Transfer, Sequence[_Slot]], None]) -> None:
        count = max(1, min(self.count, -(-transfer.nbytes // PIECE_BYTES)))
        transfer.begin(count)
        for _ in range(count):
            self._threads.submit(self._run, transfer, work)

    def _run(self, transfer: Transfer, work: Callable[[Transfer, Sequence[_Slot]], None]) -> None:
        pair = self._pairs.pop()
        try:
            work(transfer, pair)
        except BaseException as error:
            transfer.leave(error)
        else:
            transfer.leave(None)
        finally:
            self._pairs.append(pair)

    def _upload(self, transfer: Transfer, pair: Sequence[_Slot]) -> None:
        runtime, stream = self._runtime, transfer.stream
        for slot in cycle(pair):
            piece = transfer.piece()
            if piece is None:
                return
            start, end = piece
            runtime.eventSynchronize(slot.passed)  # what was in it before has been read
            ctypes.memmove(slot.address, transfer.source + start, end - start)
            runtime.memcpyAsync(transfer.target + start, slot.address, end - start, _UPLOAD, stream)
            runtime.eventRecord(slot.passed, stream)

    def _download(self, transfer: Transfer, pair: Sequence[_Slot]) -> None:
        runtime, stream = self._runtime, transfer.stream
        coming: tuple[_Slot, int, int] | None = None
        for slot in cycle(pair):

            def give(start: int, end: int, slot: _Slot = slot) -> None:
                runtime.memcpyAsync(
                    slot.address, transfer.source + start, end - start, _DOWNLOAD, stream
                )
                runtime.eventRecord(slot.passed, stream)

            piece = transfer.given(give)
            if coming is not None:
                last, start, end = coming
                runtime.eventSynchronize(last.passed)
                ctypes.memmove(transfer.target + start, last.address, end - start)
            if piece is None:
                return
            coming = slot, *piece
