"""An open CUDA device: its memory, streams and events, its compiler and what that made.

Everything lies on one non-blocking stream unless a queue other than 0 is named. Memory comes from
CuPy's pool and goes back when nobody holds it: work on the stream keeps its order, so what is given
next may only be written after what was submitted before has been read.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from alight._core import Data, DeviceBuffer, Shelf, Stock
from alight._src.base.failures import failures
from alight._src.codegen.cuda.group_forms import OPTIONS
from alight._src.codegen.cuda.kernel_program import VALUE_BYTES
from alight._src.store import default_store, digest
from alight.backends.cuda.driver_api import Driver, driver_of
from alight.backends.cuda.pinned_memory import Pinned
from alight.backends.cuda.staging_ring import Downloads, Transfer, Uploads
from alight.errors import DeviceUnavailable, KernelError, OutOfDeviceMemory

if TYPE_CHECKING:
    from alight.backends.base import Operand
    from alight.backends.cuda.graph_replay import Capture

KIND = "cubin"
_NON_BLOCKING = 1  # cudaStreamNonBlocking
_HOST_MEMORY = 1  # cudaMemoryTypeHost
# Of a card's memory, what is kept of dropped results for the next ones of their size. A guess: what
# other sizes lack then is not missed, and is given back where it is.
_SHELF_SHARE = 1 / 100
# Pieces of CuPy's pool are of so many bytes, or a multiple.
_PIECE_BYTES = 512
# Errors after which a context gives no other answer any more (CUDA's documentation of each).
_LOST = (
    "IllegalAddress", "LaunchFailure", "LaunchTimeout", "EccUncorrectable", "IllegalInstruction",
    "MisalignedAddress", "Assert", "HardwareStackError", "DevicesUnavailable", "Unknown",
)  # fmt: skip


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _before_fork() -> None:
    """Lock no page across a fork: where parent and child share it, the parent's next write gives it
    another, which the device does not know."""
    for session in tuple(_sessions):
        session.unlock()


def _after_fork() -> None:
    for session in _sessions:
        session.lost = (
            "this process was forked from one that used it; start processes with the method "
            "'spawn', or use CUDA only after the fork"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


class _Errors:
    """Turns errors into alight's. A generator would do, but for its frame: in Python 3.12 it is in
    the error's traceback and leads to what holds the error, a cycle that keeps what the frames
    around had, results too, until garbage is collected."""

    __slots__ = ("before", "session")

    def __init__(self, session: Session) -> None:
        self.session = session

    def __enter__(self) -> None:
        self.before = self.session.enter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.session.leave(self.before)
        if isinstance(error, Exception):
            self.session.tell(error)


class Session:
    """The state of one open device."""

    def __init__(self, number: int, device: str, fingerprint: str) -> None:
        import cupy
        from cupy.cuda import compiler, function, memory, runtime
        from cupy_backends.cuda.api import driver

        self.process = os.getpid()
        self.number = number
        self.device = device
        self.fingerprint = fingerprint
        self.cupy = cupy
        self.runtime = runtime
        self.driver = driver
        self.stock = Stock(0)
        self._lost = ""
        self.lock = threading.RLock()
        self._compiler = compiler
        self._module = function.Module
        self._errors = (runtime.CUDARuntimeError, driver.CUDADriverError)
        self._full = memory.OutOfMemoryError
        self._streams: dict[int, int] = {}
        self._contexts: dict[int, Any] = {}  # in which CuPy works on a stream
        # who brings copies from and to pageable memory, from the first one on
        self._uploads: Uploads | None = None
        self._downloads: Downloads | None = None
        # downloads that threads are at, by queue
        self._coming: dict[int, list[Transfer]] = {}
        self._shelves: dict[int, Shelf] = {}  # by the size of their pieces
        self._spare: list[int] = []  # events that nobody holds
        # the bits of constants of the program, by the buffers that hold them
        self._fixed: weakref.WeakKeyDictionary[DeviceBuffer, int] = weakref.WeakKeyDictionary()
        # what other queues still work on: kept until they have
        self._busy: deque[tuple[Any, Any]] = deque()
        # threads that wait for stream 0 as a whole, and the graph that is being captured there
        self.waiting = 0
        self.capture: Capture | None = None
        # who keeps memory for later runs, and lets go of it where memory is short
        self.keepers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        _sessions.add(self)
        with self.errors():
            runtime.setDevice(number)
            # apart from CuPy's own: memory of its default pool is ordered by another stream
            self.pool = memory.MemoryPool()
            self.pinned = Pinned(runtime, number)
            self.stream(0)
            self.stock.most = int(runtime.memGetInfo()[1] * _SHELF_SHARE)
            # the driver's own functions, where this process has them; CuPy's call the same
            self.direct: Driver | None = None if runtime.is_hip else driver_of()

    @property
    def lost(self) -> str:
        """Return why the device cannot be used any more, or nothing."""
        return self._lost

    @lost.setter
    def lost(self, reason: str) -> None:
        self._lost = reason
        self.stock.open = not reason

    # --- errors
    def errors(self) -> _Errors:
        """Turn the driver's errors into alight's; the device is the thread's current one inside."""
        return _Errors(self)

    def enter(self) -> int:
        """Make the device this thread's, and return which one was, for ``leave``; raise
        DeviceUnavailable where it cannot be used."""
        if self.lost:
            raise DeviceUnavailable(f"{self.device} was lost: {self.lost}. Fix: start again.")
        capture = self.capture
        if capture is not None and capture.thread == threading.get_ident():
            capture.end()  # a finalizer or signal handler: its work is done, not captured
        try:
            before: int = self.runtime.getDevice()
            # also where it is: a thread has no context before
            self.runtime.setDevice(self.number)
        except failures() as error:
            self.tell(error)
            raise
        return before

    def leave(self, before: int) -> None:
        """Give this thread the device back that it had: its own CUDA code goes on there."""
        if before != self.number:
            with suppress(*self._errors):  # of a device that is lost
                self.runtime.setDevice(before)

    def tell(self, error: Exception) -> None:
        """Raise alight's error for one of the driver's; return for any other."""
        if isinstance(error, self._full):
            raise OutOfDeviceMemory(
                f"{self.device} has no memory left: {error}. Fix: drop arrays that are not needed "
                "any more, or leave the device out of devices=."
            ) from error
        if isinstance(error, self._errors):
            text = str(error)
            if any(name.lower() in text.lower() for name in _LOST):
                self.lost = text
            raise KernelError(f"{self.device} failed: {text}. Fix: none, NumPy does it.") from error

    # --- memory
    def buffer(self, nbytes: int, shelf: Shelf | None = None) -> DeviceBuffer:
        """Return device memory from the pool, that goes to the shelf when it is dropped."""
        size = max(nbytes, 1) if shelf is None else shelf.nbytes
        try:
            memory = self.pool.malloc(size)
        except self._full:
            self.release()
            self.clear_shelves()
            for keeper in [*self.keepers]:
                keeper.let_go()
            self.cupy.get_default_memory_pool().free_all_blocks()
            memory = self.pool.malloc(size)
        return DeviceBuffer(memory, nbytes, self.device, shelf)

    def prepare(self, shelf: Shelf) -> None:
        """Put a piece on a shelf for the next buffer; nothing makes room for it."""
        with suppress(self._full):
            DeviceBuffer(self.pool.malloc(shelf.nbytes), shelf.nbytes, self.device, shelf)

    def shelf(self, nbytes: int) -> Shelf:
        """Return where buffers of so many bytes find what others of their size have left."""
        size = -(-max(nbytes, 1) // _PIECE_BYTES) * _PIECE_BYTES
        found = self._shelves.get(size)
        if found is None:
            found = self._shelves[size] = Shelf(self.stock, size, self.device)
        return found

    def fix(self, buffer: DeviceBuffer, data: Data) -> None:
        """Remember what a buffer holds for good, where a launch can take it as a number."""
        if data.nbytes <= VALUE_BYTES:
            self._fixed[buffer] = int.from_bytes(bytes(data.raw), sys.byteorder)

    def values(self, operands: Iterable[tuple[int, Operand]]) -> dict[int, int]:
        """Return what operands hold for good, by their numbers, where that is known."""
        found = {}
        for number, (buffer, offset, layout) in operands:
            value = self._fixed.get(buffer)
            if value is not None and offset == 0 and layout.nbytes == buffer.nbytes:
                found[number] = value
        return found

    def clear_shelves(self) -> None:
        """Give what is on shelves back to the pool."""
        for shelf in tuple(self._shelves.values()):
            shelf.clear()

    def library(self, stream: int) -> Any:
        """Return a context in which CuPy works on a stream of ours."""
        found = self._contexts.get(stream)
        if found is None:  # making one takes 6 µs (H200's host)
            with warnings.catch_warnings():
                # CuPy 14 prefers a protocol of objects to the addresses that CuPy 13 takes
                warnings.simplefilter("ignore", DeprecationWarning)
                found = self._contexts[stream] = self.cupy.cuda.ExternalStream(stream)
        return found

    def locked(self, address: int, nbytes: int) -> bool:
        """Tell whether a piece of the host's memory is pinned or registered from end to end: the
        link reaches it as it is."""
        if self.runtime.is_hip:  # which raises for other memory, by version
            return False
        ask = self.runtime.pointerGetAttributes
        return bool(ask(address).type == ask(address + nbytes - 1).type == _HOST_MEMORY)

    def unlock(self) -> None:
        """Have no page of a result locked any more."""
        with self.lock:
            if self.pinned.any_locked and not self.lost:
                with self.errors():
                    self.runtime.deviceSynchronize()
                    self.pinned.unlock()

    def upload(self, source: int, target: int, nbytes: int, stream: int) -> None:
        """Give an upload from pageable memory to a stream; its source has been read."""
        if self._uploads is None:
            self._uploads = Uploads(self)
        self._uploads.upload(source, target, nbytes, stream)

    def download(self, transfer: Transfer, queue: int) -> None:
        """Begin a download into pageable memory."""
        if self._downloads is None:
            self._downloads = Downloads(self)
        self._downloads.download(transfer)
        self._coming.setdefault(queue, []).append(transfer)

    def coming(self, queue: int) -> list[Transfer]:
        """Return the downloads of a queue that threads are at."""
        found = self._coming.get(queue)
        if found:
            found = self._coming[queue] = [one for one in found if not one.over]
        return found or []

    # --- streams and events
    def stream(self, queue: int) -> int:
        """Return the stream of a queue."""
        found = self._streams.get(queue)
        if found is None:
            made = self.runtime.streamCreateWithFlags(_NON_BLOCKING)
            found = self._streams[queue] = made
        return found

    def record(self, queue: int) -> int:
        """Return an event that happens when all that was submitted to the queue has been done."""
        handle = self.event()
        self.runtime.eventRecord(handle, self.stream(queue))
        return handle

    def finish(self) -> None:
        """Return when all that was submitted to queue 0 has been done."""
        # A stream that is being captured may not be waited for, by no thread. The lock is held
        # while one is, and while threads wait none is (``Graphs``): they need not hold it.
        with self.lock:
            self.waiting += 1
        try:
            self.runtime.streamSynchronize(self.stream(0))
        finally:
            with self.lock:
                self.waiting -= 1

    def event(self) -> int:
        """Return an event that was not recorded."""
        made: int = self._spare.pop() if self._spare else self.runtime.eventCreateWithFlags(0)
        return made

    def spare(self, handle: int) -> None:
        """Take back an event that nobody waits for."""
        self._spare.append(handle)

    def hold(self, event: Any, things: Any) -> None:
        """Keep things until an event of another queue than 0 has happened."""
        self.release()
        self._busy.append((event, things))

    def release(self) -> None:
        """Give back what other queues than 0 have done with."""
        while self._busy and self.happened(self._busy[0][0]):
            self._busy.popleft()

    def happened(self, event: Any) -> bool:
        """Tell whether an event has happened."""
        if not all([transfer.over for transfer in event.coming]):
            return False
        try:
            self.runtime.eventQuery(event.handle)
        except self._errors:
            return False
        return True

    # --- code
    def function(self, text: str, entry: str) -> int:
        """Return the entry point of a text: loaded before, out of the store, or compiled."""
        found = self._functions.get((text, entry))
        if found is None:
            module = self._modules.get(text)
            if module is None:
                module = self._modules[text] = self._load(text)
            found = self._functions[text, entry] = module.get_function(entry)
        address: int = found.ptr
        return address

    def _load(self, text: str) -> Any:
        key = digest([text, *OPTIONS, self.fingerprint], KIND)
        store = default_store()
        blob = store.read_bytes(KIND, key)
        module = self._module()
        if blob is not None:
            try:
                module.load(blob.data)
                return module
            except self._errors:  # of another driver, in spite of all
                module = self._module()
        try:
            made, _ = self._compiler.compile_using_nvrtc(
                text, OPTIONS, None, "alight.cu", None, None, True
            )
        except failures() as error:
            raise KernelError(
                f"NVRTC refused a kernel: {error}. Fix: none, NumPy does it."
            ) from error
        data = made.encode() if isinstance(made, str) else bytes(made)
        module.load(data)
        store.write_bytes(KIND, key, data, {"device": self.device})
        return module

    def close(self) -> None:
        """Give the device up; the context stays the process's."""
        if os.getpid() == self.process and not self.lost:
            with self.errors():  # CuPy's pools are of the current device
                self._functions.clear()
                self._modules.clear()
                self._busy.clear()
                for way in (self._uploads, self._downloads):
                    if way is not None:
                        way.close()
                self._uploads = self._downloads = None
                self.pinned.close()
                self.clear_shelves()
                self.pool.free_all_blocks()
        self.lost = "it was closed"
