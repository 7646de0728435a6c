"""An open WebGPU device: its buffers and their pool, its one queue, what was encoded but not sent.

Commands are collected in one encoder and sent together when somebody waits, when there are many, or
when bytes are written past the encoder. WebGPU has one queue and keeps its order, so a buffer goes
back to the pool as soon as nobody holds it.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight.errors import AlightError, DeviceUnavailable, KernelError, OutOfDeviceMemory

# Up to here bytes are written into the queue itself (4 µs for 256 bytes, 0.26 GB/s); above it a
# staging buffer is mapped (80 µs, 5.3 GB/s): they cost the same at 22 kB (measured on llvmpipe).
_DIRECT_BYTES = 16 * 1024
# Bytes of a staging buffer: at 5 GB/s it takes 1.6 ms to fill, twenty times what mapping it costs.
STAGING_BYTES = 8 << 20
# Downloads beyond this are waited for piece by piece: their staging would be as large as they are.
_AT_ONCE_BYTES = 64 << 20
# Commands after which what was encoded is sent, so that the device does not idle: encoding one
# takes 7 µs, sending 46 µs (measured on llvmpipe), which is a tenth of that of 64.
_MOST_ENCODED = 64
_ARGUMENT_BYTES = 1 << 16


class WgpuBuffer:
    """Device memory; it returns to the pool when it is dropped or freed."""

    __slots__ = ("__weakref__", "_release", "handle", "nbytes")

    def __init__(self, handle: Any, nbytes: int, back: deque[Any]) -> None:
        self.handle = handle
        self.nbytes = nbytes
        # A finalizer may run anywhere, so it only lays the memory down where it is picked up.
        self._release = weakref.finalize(self, back.append, handle)
        self._release.atexit = False

    def free(self) -> None:
        """Give the memory back."""
        self._release()
        self.handle = None


class Session:
    """The state of one open device."""

    def __init__(self, adapter: Any, room: int) -> None:
        import wgpu

        self.wgpu = wgpu
        self.process = os.getpid()
        self.lost = ""
        limits = {str(k): v for k, v in dict(adapter.limits).items()}
        asked = (
            "max-buffer-size",
            "max-storage-buffer-binding-size",
            "max-storage-buffers-per-shader-stage",
            "max-compute-workgroups-per-dimension",
            "max-compute-invocations-per-workgroup",
            "max-compute-workgroup-size-x",
        )
        with self.errors():
            self.device = adapter.request_device_sync(
                required_limits={name: limits[name] for name in asked}
            )
        self.limits = limits
        self.binding_bytes = limits["max-storage-buffer-binding-size"] & ~3
        self.alignment = max(4, limits["min-storage-buffer-offset-alignment"])
        self.groups = limits["max-compute-workgroups-per-dimension"]
        self.room = room
        self.in_use = 0  # bytes of live handles, the pool's included
        self.pooled: dict[int, list[Any]] = {}
        self.returned: deque[Any] = deque()
        self.encoder: Any = None
        self.compute: Any = None
        self.encoded = 0
        self.arguments = bytearray()
        self.submitted = 0  # submissions so far, those encoded included
        self.done = 0  # of them, known to have ended
        usage = wgpu.BufferUsage
        self.argument_buffer = self.device.create_buffer(
            size=_ARGUMENT_BYTES, usage=usage.STORAGE | usage.COPY_DST
        )
        self.fence_buffer = self._staging(16, "read")
        self.staging: dict[str, list[Any]] = {"read": [], "write": []}

    # --- errors
    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the driver's errors into alight's."""
        if os.getpid() != self.process:
            raise DeviceUnavailable(
                "this process was forked from one that used WebGPU, whose device it cannot use. "
                "Fix: start processes with the method 'spawn', or use WebGPU only after the fork."
            )
        if self.lost:
            raise DeviceUnavailable(f"the WebGPU device was lost: {self.lost}. Fix: start again.")
        try:
            yield
        except AlightError:
            raise
        except self.wgpu.GPUError as error:
            text = str(error).strip()
            if isinstance(error, MemoryError):
                raise OutOfDeviceMemory(f"WebGPU has no memory left: {text}. Fix: none.") from error
            self._note_loss(text)
            raise KernelError(f"WebGPU refused: {text}. Fix: none, NumPy does it.") from error
        except failures(RuntimeError) as error:  # mapping reports its errors so
            self._note_loss(str(error))
            raise KernelError(f"WebGPU failed: {error}. Fix: none, NumPy does it.") from error

    def _note_loss(self, text: str) -> None:
        if "lost" in text.lower():
            self.lost = text.splitlines()[0] if text else "no reason given"

    # --- memory
    def buffer(self, nbytes: int) -> WgpuBuffer:
        """Return a buffer from the pool, or a new one."""
        size = _size_class(nbytes)
        if size > self.limits["max-buffer-size"]:
            raise OutOfDeviceMemory(
                f"a WebGPU buffer of {nbytes} bytes; the most is {self.limits['max-buffer-size']}. "
                "Fix: split the array."
            )
        self._pick_up()
        kept = self.pooled.get(size)
        if kept:
            return WgpuBuffer(kept.pop(), nbytes, self.returned)
        if self.in_use + size > self.room:
            self.trim()
        if self.in_use + size > self.room:
            raise OutOfDeviceMemory(
                f"a WebGPU buffer of {nbytes} bytes; {self.in_use} of {self.room} bytes "
                "are in use. Fix: drop arrays that are not needed any more."
            )
        usage = self.wgpu.BufferUsage
        with self.errors():
            handle = self.device.create_buffer(
                size=size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
            )
        self.in_use += size
        return WgpuBuffer(handle, nbytes, self.returned)

    def _pick_up(self) -> None:
        while self.returned:
            handle = self.returned.popleft()
            self.pooled.setdefault(handle.size, []).append(handle)

    def trim(self) -> None:
        """Give the pool's memory back to the driver."""
        self._pick_up()
        self.in_use -= sum(size * len(kept) for size, kept in self.pooled.items())
        for kept in self.pooled.values():
            for handle in kept:
                handle.destroy()
        self.pooled.clear()

    def live(self) -> int:
        """Return the bytes of buffers that somebody holds."""
        self._pick_up()
        return self.in_use - sum(size * len(kept) for size, kept in self.pooled.items())

    def _staging(self, size: int, mode: str) -> Any:
        usage = self.wgpu.BufferUsage
        way = (
            usage.MAP_READ | usage.COPY_DST if mode == "read" else usage.MAP_WRITE | usage.COPY_SRC
        )
        with self.errors():
            return self.device.create_buffer(size=size, usage=way)

    def _take_staging(self, nbytes: int, mode: str) -> Any:
        size = max(STAGING_BYTES, _size_class(nbytes))
        kept = self.staging[mode]
        for place, handle in enumerate(kept):
            if handle.size == size:
                return kept.pop(place)
        return self._staging(size, mode)

    # --- encoding
    def commands(self) -> Any:
        """Return the encoder, outside of any compute pass."""
        if self.encoder is None:
            self.encoder = self.device.create_command_encoder()
        if self.compute is not None:
            self.compute.end()
            self.compute = None
        return self.encoder

    def dispatch(
        self,
        pipeline: Any,
        layout: Any,
        words: Sequence[int],
        bound: Sequence[tuple[Any, int, int]],
        groups: int,
    ) -> None:
        """Encode one run of a pipeline with these argument words and (buffer, offset, size)."""
        data = np.array(words, np.uint32).tobytes()
        start = -(-len(self.arguments) // self.alignment) * self.alignment
        if start + len(data) > _ARGUMENT_BYTES:
            self.flush()
            start = 0
        self.arguments += b"\0" * (start - len(self.arguments)) + data
        buffers = [(self.argument_buffer, start, len(data)), *bound]
        with self.errors():
            group = self.device.create_bind_group(
                layout=layout,
                entries=[
                    {"binding": i, "resource": {"buffer": b, "offset": offset, "size": size}}
                    for i, (b, offset, size) in enumerate(buffers)
                ],
            )
            if self.compute is None:
                self.compute = self.commands().begin_compute_pass()
            self.compute.set_pipeline(pipeline)
            self.compute.set_bind_group(0, group)
            self.compute.dispatch_workgroups(groups)
        self.encoded += 1
        if self.encoded >= _MOST_ENCODED:
            self.flush()

    def flush(self) -> None:
        """Send what was encoded."""
        if self.encoder is None:
            return
        with self.errors():
            encoder, self.encoded = self.commands(), 0
            self.encoder = None
            arguments, self.arguments = self.arguments, bytearray()
            if arguments:  # written before the commands run: the queue keeps the order
                self.device.queue.write_buffer(self.argument_buffer, 0, arguments)
            self.device.queue.submit([encoder.finish()])

    def fence(self) -> None:
        """Send what was encoded and return when all of it has ended.

        By mapping a small buffer that is written last: on_submitted_work_done of wgpu-py 0.32
        raises TypeError.
        """
        with self.errors():
            self.commands().clear_buffer(self.fence_buffer)
        self.flush()
        with self.errors():
            self.fence_buffer.map_sync(self.wgpu.MapMode.READ)
            self.fence_buffer.unmap()
        self.done = self.submitted

    # --- copies
    def upload(self, source: np.ndarray[Any, Any], target: WgpuBuffer, nbytes: int) -> None:
        """Copy bytes of the host into a buffer; the source is read before this returns."""
        if nbytes <= _DIRECT_BYTES:
            self.flush()  # what was encoded comes first
            padded = np.zeros(_padded(nbytes), np.uint8)
            padded[:nbytes] = source[:nbytes]
            with self.errors():
                self.device.queue.write_buffer(target.handle, 0, padded)
            return
        for start in range(0, nbytes, STAGING_BYTES):
            size = min(STAGING_BYTES, nbytes - start)
            staging = self._take_staging(size, "write")
            with self.errors():
                staging.map_sync(self.wgpu.MapMode.WRITE, 0, _padded(size))
                staging.write_mapped(source[start : start + size])
                staging.unmap()
                self.commands().copy_buffer_to_buffer(
                    staging, 0, target.handle, start, _padded(size)
                )
            self.flush()
            self.staging["write"].append(staging)

    def download(
        self, source: WgpuBuffer, target: np.ndarray[Any, Any], nbytes: int, first: int = 0
    ) -> list[tuple[Any, np.ndarray[Any, Any]]]:
        """Encode copies to the host of what begins ``first`` bytes into a buffer; return the
        staging buffers that ``deliver`` reads."""
        pending: list[tuple[Any, np.ndarray[Any, Any]]] = []
        for start in range(0, nbytes, STAGING_BYTES):
            size = min(STAGING_BYTES, nbytes - start)
            staging = self._take_staging(size, "read")
            with self.errors():
                self.commands().copy_buffer_to_buffer(
                    source.handle, first + start, staging, 0, _padded(size)
                )
            pending.append((staging, target[start : start + size]))
            if nbytes > _AT_ONCE_BYTES:
                self.deliver(pending)
                pending = []
        return pending

    def deliver(self, pending: Sequence[tuple[Any, np.ndarray[Any, Any]]]) -> None:
        """Wait for downloads and put their bytes where they belong."""
        self.flush()
        for staging, target in pending:
            with self.errors():
                staging.map_sync(self.wgpu.MapMode.READ, 0, _padded(target.nbytes))
                mapped = staging.read_mapped(0, _padded(target.nbytes), copy=False)
                target[...] = np.frombuffer(mapped, np.uint8, target.nbytes)
                del mapped
                staging.unmap()
            self.staging["read"].append(staging)

    def close(self) -> None:
        """Give the device up."""
        if os.getpid() == self.process:
            self.device.destroy()
        self.lost = "it was closed"


def _padded(nbytes: int) -> int:
    """Return bytes in whole words, as WebGPU copies them."""
    return -(-nbytes // 4) * 4


def _size_class(nbytes: int) -> int:
    """Return the size a buffer is made with: next eighth of a power of two, at least 256 bytes, so
    that buffers of about the same size serve for one another and 12 % are lost at most."""
    if nbytes <= 256:
        return 256
    step = 1 << max(8, (nbytes - 1).bit_length() - 4)
    return -(-nbytes // step) * step
