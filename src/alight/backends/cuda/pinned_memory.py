"""Host memory that a device reaches: blocks that results land in, given back when nobody holds them
and kept for results to come, all in all no more than a share of the host's memory.

A block is memory of the process's own with large pages, which threads bring and then lock in place
while the caller goes on: that took a tenth of the time in which the driver allocates pinned memory
(H200's host: 26 and 50 GB/s against 2). Until a block is locked downloads into it are staged.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from alight._src.base.failures import failures, ignoring_failures
from alight._src.base.originals import np
from alight.backends.machine import host_memory

__all__ = ["PORTABLE", "Pages", "Pinned"]

# Of the host's memory, what results may hold and what is kept for the next ones: the rest is the
# program's own. A guess.
_SHARE = 1 / 4
PORTABLE = 1  # cudaHostRegisterPortable: for every device of the process
# Sizes of blocks have four significant bits, so that results of about one size share them and at
# most an eighth of a block stays unused.
_SIZE_BITS = 4
# Threads that bring pages: four brought 20 GB/s (H200's host), as much as goes to the host while
# three times as much comes from there.
_BRINGING = 4
# What each of them brings at a time: 32 MiB take 6 ms, a hundred times what a task does.
_PIECE_BYTES = 32 << 20
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14


class Pages:
    """Memory of the host's in pages of its own, large ones where the system has them."""

    __slots__ = ("address", "error", "left", "map", "nbytes", "ready", "since")

    def __init__(self, nbytes: int) -> None:
        if hasattr(mmap, "MAP_PRIVATE"):  # a forked child has its own, as of any other memory
            self.map = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            self.map = mmap.mmap(-1, nbytes)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with ignoring_failures(OSError):  # of a kernel that has none
                self.map.madvise(mmap.MADV_HUGEPAGE)
        self.nbytes = nbytes
        self.address: int = np.frombuffer(self.map, np.uint8).ctypes.data
        self.left = 0  # pieces that are yet to be brought
        self.ready: threading.Event | None = None  # locking it was tried; None: not begun
        self.error: Exception | None = None  # why it is not locked
        self.since = 0  # when it came back, as a count of blocks that did

    def keep_from_children(self) -> None:
        """Have a forked child not see these pages: a page that parent and child both have may be
        replaced under the device's eyes when the parent writes to it."""
        if hasattr(mmap, "MADV_DONTFORK"):
            self.map.madvise(mmap.MADV_DONTFORK)

    def bring(self, start: int, end: int) -> None:
        """Have pages there before they are written, which leaves what they hold. Nothing happens
        where the system cannot: then whoever writes first brings them."""
        if hasattr(mmap, "MADV_HUGEPAGE"):
            advise = ctypes.CDLL(None).madvise
            address, nbytes = ctypes.c_void_p(self.address + start), ctypes.c_size_t(end - start)
            advise(address, nbytes, _POPULATE_WRITE)


class Pinned:
    """The blocks of one device. Together they hold ``most`` bytes, kept ones included: those that
    have lain unused longest make way. Only ``_back`` is written without the session's lock."""

    def __init__(self, runtime: Any, number: int) -> None:
        self.most = int(host_memory()[1] * _SHARE)
        self.held = 0  # bytes of blocks that are lent or kept
        self._runtime = runtime
        self._number = number
        self._threads: ThreadPoolExecutor | None = None
        self._counting = threading.RLock()
        self._kept: dict[int, list[Pages]] = {}  # by size, each list in the order they came back
        self._back: deque[Pages] = deque()  # from whoever held them last, in any thread
        self._begun: dict[int, Pages] = {}  # what is locked or about to be, by address
        self._count = 0
        self._closed = False

    def take(self, nbytes: int, locked: bool) -> np.ndarray[Any, Any] | None:
        """Return memory that is ``locked`` or soon will be; None where too much is lent."""
        self._sort()
        size = rounded(nbytes)
        kept = self._kept.get(size)
        if kept:
            block = kept.pop()  # the latest: it may still lie in caches
        elif self._make_room(size):
            block = Pages(size)
            self.held += size
        else:
            return None
        try:
            if block.ready is None:
                self._begin(block)
            if locked:
                _settled(block)
                if block.error is not None:
                    raise block.error
        except BaseException:
            self._keep(block)
            raise
        array: np.ndarray[Any, Any] = np.frombuffer(block.map, np.uint8, nbytes)
        weakref.finalize(array, self._given_back, block).atexit = False
        return array

    def _begin(self, block: Pages) -> None:
        """Have threads bring a block's pages and lock them."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                _BRINGING, "alight-pages", self._runtime.setDevice, (self._number,)
            )
        starts = range(0, block.nbytes, _PIECE_BYTES)
        block.left = len(starts)
        block.error = None
        block.ready = threading.Event()
        self._begun[block.address] = block
        for start in starts:
            self._threads.submit(self._bring, block, start)

    def _bring(self, block: Pages, start: int) -> None:
        assert block.ready is not None
        block.bring(start, min(start + _PIECE_BYTES, block.nbytes))
        with self._counting:
            block.left -= 1
            if block.left:
                return
        try:
            self._runtime.hostRegister(block.address, block.nbytes, PORTABLE)
        except failures() as error:  # of a limit of the system's, or a device that is lost
            block.error = error
        finally:
            block.ready.set()

    def _given_back(self, block: Pages) -> None:
        if not self._closed:
            self._back.append(block)

    def _sort(self) -> None:
        """Keep what was given back."""
        while self._back:
            self._keep(self._back.popleft())

    def _keep(self, block: Pages) -> None:
        self._count += 1
        block.since = self._count
        self._kept.setdefault(block.nbytes, []).append(block)

    def _make_room(self, nbytes: int) -> bool:
        """Drop kept blocks until so many bytes more may be held; tell whether they may."""
        while self.held + nbytes > self.most:
            oldest = min(filter(None, self._kept.values()), key=lambda b: b[0].since, default=None)
            if oldest is None:
                return False
            block = oldest.pop(0)
            self._unlock(block)
            self.held -= block.nbytes
        return True

    def _unlock(self, block: Pages) -> None:
        if self._begun.pop(block.address, None) is not None:
            _settled(block)
            block.ready = None
            if block.error is None:
                self._runtime.hostUnregister(block.address)

    @property
    def any_locked(self) -> bool:
        """Tell whether a block is locked, or about to be."""
        return bool(self._begun)

    def unlock(self) -> None:
        """Unlock all blocks; those that are lent stay what they are: memory."""
        for block in tuple(self._begun.values()):
            self._unlock(block)

    def close(self) -> None:
        """Keep nothing from here on."""
        self.unlock()
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown()
        self._back.clear()
        self._kept.clear()


def _settled(block: Pages) -> None:
    """Return when threads are through with a block."""
    if block.ready is not None:
        block.ready.wait()


def rounded(nbytes: int) -> int:
    """Return the size of the blocks for so many bytes: whole pages, of few sizes."""
    step = max(mmap.PAGESIZE, 1 << max(0, nbytes.bit_length() - _SIZE_BITS))
    return -(-max(nbytes, 1) // step) * step
