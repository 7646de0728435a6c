"""An open CUDA device: its memory, streams and events, its compiler and what that made.

Everything lies on one non-blocking stream unless a queue other than 0 is named. Memory comes from
CuPy's pool and goes back when nobody holds it: work on the stream keeps its order, so what is given
next may only be written after what was submitted before has been read.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from alight.codegen.cuda import OPTIONS
from alight.errors import AlightError, DeviceUnavailable, KernelError, OutOfDeviceMemory
from alight.store import default_store, digest

KIND = "cubin"
_NON_BLOCKING = 1  # cudaStreamNonBlocking
# Errors after which a context gives no other answer any more (CUDA's documentation of each).
_LOST = (
    "IllegalAddress", "LaunchFailure", "LaunchTimeout", "EccUncorrectable", "IllegalInstruction",
    "MisalignedAddress", "Assert", "HardwareStackError", "DevicesUnavailable", "Unknown",
)  # fmt: skip


class CudaBuffer:
    """Device memory; it returns to the pool when it is dropped or freed."""

    __slots__ = ("__weakref__", "address", "device", "memory", "nbytes")

    def __init__(self, memory: Any, nbytes: int, device: str) -> None:
        self.memory = memory
        self.address: int = memory.ptr
        self.nbytes = nbytes
        self.device = device

    def free(self) -> None:
        """Give the memory back."""
        self.memory = None
        self.address = 0


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
        self.lost = ""
        self.lock = threading.RLock()
        self._compiler = compiler
        self._module = function.Module
        self._errors = (runtime.CUDARuntimeError, driver.CUDADriverError)
        self._full = memory.OutOfMemoryError
        self._streams: dict[int, int] = {}
        self._spare: list[int] = []  # events that nobody holds
        # what other queues still work on: kept until they have
        self._busy: deque[tuple[Any, Any]] = deque()
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        with self.errors():
            runtime.setDevice(number)
            self.pool = cupy.get_default_memory_pool()
            self.pinned = cupy.get_default_pinned_memory_pool()
            self.stream(0)

    # --- errors
    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the driver's errors into alight's; the device is the thread's current one inside."""
        self.check()
        try:
            self.runtime.setDevice(self.number)
            yield
        except AlightError:
            raise
        except self._full as error:
            raise OutOfDeviceMemory(
                f"{self.device} has no memory left: {error}. Fix: drop arrays that are not needed "
                "any more, or leave the device out of devices=."
            ) from error
        except self._errors as error:
            text = str(error)
            if any(name.lower() in text.lower() for name in _LOST):
                self.lost = text
            raise KernelError(f"{self.device} failed: {text}. Fix: none, NumPy does it.") from error

    def check(self) -> None:
        """Raise DeviceUnavailable where the device cannot be used any more."""
        if os.getpid() != self.process:
            raise DeviceUnavailable(
                f"this process was forked from one that used {self.device}, which it cannot use. "
                "Fix: start processes with the method 'spawn', or use CUDA only after the fork."
            )
        if self.lost:
            raise DeviceUnavailable(f"{self.device} was lost: {self.lost}. Fix: start again.")

    # --- memory
    def buffer(self, nbytes: int) -> CudaBuffer:
        """Return device memory from the pool."""
        return CudaBuffer(self.pool.malloc(max(nbytes, 1)), nbytes, self.device)

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
        handle = self._spare.pop() if self._spare else self.runtime.eventCreateWithFlags(0)
        self.runtime.eventRecord(handle, self.stream(queue))
        return handle

    def spare(self, handle: int) -> None:
        """Take back an event that nobody waits for."""
        self._spare.append(handle)

    def hold(self, event: Any, things: Any) -> None:
        """Keep things until an event of another queue than 0 has happened."""
        while self._busy and self.happened(self._busy[0][0]):
            self._busy.popleft()
        self._busy.append((event, things))

    def happened(self, event: Any) -> bool:
        """Tell whether an event has happened."""
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
        except Exception as error:
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
            self._functions.clear()
            self._modules.clear()
            self._busy.clear()
            self.pool.free_all_blocks()
        self.lost = "it was closed"
