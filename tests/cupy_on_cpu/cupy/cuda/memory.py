"""Memory of a device that is the host's. A pool gives what came back last of a size again, as
CuPy's does; what lies in it then is garbage, so that who still reads there is wrong."""

from typing import Any

import numpy as np

TOTAL = 1 << 32
_PIECE_BYTES = 512
_GARBAGE = 0xA5
# Whether memory is spoilt when it comes back. Where streams are behind (``cuda_streams``) what is
# in them still reads it, and their order alone keeps the next one's writes from it.
spoilt = True


pools: list["Pool"] = []


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


class Memory:
    """A piece of memory with its address; it comes back when nobody holds it."""

    offset = 0

    def __init__(self, block: Any, pool: "Pool") -> None:
        self.block = block
        self.pool = pool
        self.ptr: int = block.__array_interface__["data"][0]
        self.__array_interface__ = {
            "shape": (len(block),), "typestr": "|u1", "data": (self.ptr, False), "version": 3,
        }  # fmt: skip

    @property
    def array(self) -> Any:
        return np.asarray(self)  # kept by nobody here: it keeps the memory

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.array, offset, self.ptr + offset)

    def __del__(self) -> None:
        if spoilt:
            self.block[:] = _GARBAGE
        self.pool.used -= len(self.block)
        self.pool.kept.setdefault(len(self.block), []).append(self.block)


class Pool:
    """Memory that is given and taken back."""

    def __init__(self) -> None:
        self.used = 0
        self.limit = 0
        self.kept: dict[int, list[Any]] = {}
        pools.append(self)

    def malloc(self, nbytes: int) -> Memory:
        from cupy.cuda import runtime

        runtime.here()
        size = -(-nbytes // _PIECE_BYTES) * _PIECE_BYTES
        most = self.limit or TOTAL
        kept = self.kept.get(size)
        if not kept and self.total_bytes() + size > most:
            self.free_all_blocks()
        if self.used + size > most:
            raise OutOfMemoryError(f"{nbytes} bytes")
        block = kept.pop() if kept else np.full(size, _GARBAGE, np.uint8)
        self.used += size
        return Memory(block, self)

    def free_bytes(self) -> int:
        return sum([size * len(blocks) for size, blocks in tuple(self.kept.items())])

    def total_bytes(self) -> int:
        return self.used + self.free_bytes()

    def get_limit(self) -> int:
        return self.limit

    def set_limit(self, size: int) -> None:
        self.limit = size

    def free_all_blocks(self) -> None:
        for blocks in tuple(self.kept.values()):
            blocks.clear()


MemoryPool = Pool
POOL = Pool()
