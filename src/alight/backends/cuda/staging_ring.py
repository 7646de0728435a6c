"""Copies between a device and pageable memory of the host, in pieces that pass through locked
memory.

The caller brings uploads, with the threads that kernels run on: while they copy a piece, the one
before passes the link. Downloads come while the caller goes on, by threads of their own; each has
two pieces: one passes the link while it copies the other.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import TYPE_CHECKING, Any

from alight._core import threads
from alight.backends.cuda.pinned_memory import PORTABLE, Pages
from alight.backends.machine import thread_count

if TYPE_CHECKING:
    from alight.backends.cuda.cuda_session import Session

__all__ = ["Downloads", "Transfer", "Uploads"]

# A piece of a copy: at 10 GB/s a thread copies it in 0.4 ms, a hundred times what its calls take.
PIECE_BYTES = 4 << 20
# The least piece of an upload: it passes the link in 19 us, and the calls for it take about 15
# (H200's host).
_LEAST_BYTES = 1 << 20
# Pieces of an upload, where they are not too small: what is copied before the link has anything to
# do is one of them.
_PIECES = 8
# Pieces of locked memory for uploads: one is copied, the others pass the link or wait for it.
_SLOTS = 4
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
        self._lock = threading.RLock()
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


class Uploads:
    """Locked memory that uploads pass, used by one thread at a time."""

    def __init__(self, session: Session) -> None:
        self._runtime = session.runtime
        self._count = min(_MOST_THREADS, thread_count())
        self._pages, self._slots = _locked(session.runtime, _SLOTS)
        self._next = 0
        self._busy = False

    def upload(self, source: int, target: int, nbytes: int, stream: int) -> None:
        """Give an upload to the stream; its source has been read."""
        if self._busy:  # a finalizer or signal handler: a slot may be filled and not yet sent
            self._runtime.memcpyAsync(target, source, nbytes, _UPLOAD, stream)
            return
        self._busy = True
        try:
            self._upload(source, target, nbytes, stream)
        finally:
            self._busy = False

    def _upload(self, source: int, target: int, nbytes: int, stream: int) -> None:
        runtime = self._runtime
        piece = min(PIECE_BYTES, max(_LEAST_BYTES, nbytes // _PIECES))
        for start in range(0, nbytes, piece):
            size = min(piece, nbytes - start)
            slot = self._slots[self._next]
            self._next = (self._next + 1) % _SLOTS
            runtime.eventSynchronize(slot.passed)  # what was in it before has been read
            threads.copy(slot.address, source + start, size, self._count)
            try:
                runtime.memcpyAsync(target + start, slot.address, size, _UPLOAD, stream)
            finally:
                runtime.eventRecord(slot.passed, stream)

    def close(self) -> None:
        """Give the memory back, when what has begun is over."""
        for slot in self._slots:
            self._runtime.eventSynchronize(slot.passed)
        self._runtime.hostUnregister(self._pages.address)


class Downloads:
    """Threads that bring downloads, one after another."""

    def __init__(self, session: Session) -> None:
        self.count = min(_MOST_THREADS, thread_count())
        self._runtime = runtime = session.runtime
        self._threads = ThreadPoolExecutor(
            self.count, "alight-download", runtime.setDevice, (session.number,)
        )
        self._pages, slots = _locked(runtime, 2 * self.count)
        self._pairs = list(zip(slots[::2], slots[1::2], strict=True))  # one for each thread

    def download(self, transfer: Transfer) -> None:
        """Begin a download; its target has been written when it is over."""
        count = max(1, min(self.count, -(-transfer.nbytes // PIECE_BYTES)))
        transfer.begin(count)
        for _ in range(count):
            self._threads.submit(self._run, transfer)

    def close(self) -> None:
        """Let the threads end, when what has begun is over."""
        self._threads.shutdown()
        self._runtime.hostUnregister(self._pages.address)

    def _run(self, transfer: Transfer) -> None:
        pair = self._pairs.pop()
        try:
            self._download(transfer, pair)
        except BaseException as error:
            transfer.leave(error)
        else:
            transfer.leave(None)
        finally:
            self._pairs.append(pair)

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


def _locked(runtime: Any, count: int) -> tuple[Pages, list[_Slot]]:
    """Return locked memory, and the pieces of it."""
    pages = Pages(count * PIECE_BYTES)
    pages.keep_from_children()
    pages.bring(0, pages.nbytes)
    runtime.hostRegister(pages.address, pages.nbytes, PORTABLE)
    starts = range(pages.address, pages.address + pages.nbytes, PIECE_BYTES)
    return pages, [_Slot(start, runtime.eventCreateWithFlags(_NO_TIMING)) for start in starts]
