"""Memory of a device that is the host's."""

from typing import Any

import numpy as np

TOTAL = 1 << 32


class OutOfMemoryError(MemoryError):
    """There is no memory left."""


class Pointer:
    """A place in a piece of memory, which it keeps."""

    def __init__(self, array: Any, offset: int, ptr: int) -> None:
        self.array = array
        self.offset = offset
        self.ptr = ptr

    def __add__(self, offset: int) -> "Pointer":
        return Pointer(self.array, self.offset + offset, self.ptr + offset)


class Memory(bytearray):
    """A piece of memory with its address."""

    def __init__(self, nbytes: int, pool: Any) -> None:
        super().__init__(nbytes)
        self.pool = pool
        self.array[:] = 0xA5
        self.ptr = self.array.__array_interface__["data"][0]
        self.offset = 0

    @property
    def array(self) -> Any:
        return np.frombuffer(self, np.uint8)  # kept by nobody here: it keeps the memory

    def __add__(self, offset: int) -> Any:  # type: ignore[override]
        return Pointer(self.array, offset, self.ptr + offset)

    def __del__(self) -> None:
        self.pool.used -= len(self)


class Pool:
    """Memory that is given and taken back."""

    def __init__(self) -> None:
        self.used = 0
        self.limit = 0

    def malloc(self, nbytes: int) -> Memory:
        if self.used + nbytes > (self.limit or TOTAL):
            raise OutOfMemoryError(f"{nbytes} bytes")
        self.used += nbytes
        return Memory(nbytes, self)

    def free_bytes(self) -> int:
        return 0

    def total_bytes(self) -> int:
        return self.used

    def get_limit(self) -> int:
        return self.limit

    def set_limit(self, size: int) -> None:
        self.limit = size

    def free_all_blocks(self) -> None:
        pass


MemoryPool = Pool
POOL = Pool()
