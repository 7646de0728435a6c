"""Where what a run is about lies: the memory that its values are in, told from addresses."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any
from weakref import ref

from alight._core import Data, Layout, Value
from alight._src.base.originals import np
from alight._src.base.records import dataclass
from alight._src.plan.contents import HOST_ARENA, Contents, Place
from alight._src.run.memory_holders import thread_of

__all__ = ["MemoryMap", "is_host"]

_BYTE = np.dtype(np.uint8)


@dataclass(slots=True)
class _Piece:
    """Host memory that values lie in at the start: where, and what it holds."""

    arena: Hashable
    low: int
    high: int

    @property
    def held(self) -> Hashable:
        return "memory", self.arena, self.low

    def meets(self, low: int, high: int) -> bool:
        """Tell whether some of these bytes are in it."""
        return low < self.high and self.low < high


class MemoryMap:
    """Where values and buffers lie, for the thread whose run it is, and what is known of it in
    ``memory``.

    ``leaves`` are the values that are there at the start, ``leased`` where those of them lie that
    are leased, and ``homes`` the ids of what inputs lie in, whole.
    """

    def __init__(self, memory: Contents, thread: int) -> None:
        self.memory = memory
        self.thread = thread
        self.leaves: list[tuple[int, ref[Value]]] = []
        self.leased: dict[int, Place] = {}  # by the input that is the first of its versions
        self.homes: dict[int, int] = {}
        self._constants: dict[int, Hashable] = {}  # by address
        # Of memory that is not all of its bytes, or another thread's, by id and address.
        self._arenas: dict[tuple[int, int], Hashable] = {}

    def begin(self, values: Sequence[Value | None]) -> None:
        """Note where the values lie that are there already: arrays that overlap are one piece of
        memory.

        What another thread's call has leased is seen as that thread alone would see it: which of
        two threads' values is read in bytes that one of them writes meanwhile is left open, as it
        is where NumPy runs both. What is written there is looked at where it is done.
        """
        memory = self.memory
        found: dict[int, tuple[Data, list[tuple[int, Value]]]] = {}
        for number, value in enumerate(values):
            if value is not None and value.op is None and value.data is not None:
                found.setdefault(id(value.data), (value.data, []))[1].append((number, value))
        here = sorted(
            (not _is_whole(data), data.address, data.address + data.nbytes, key)
            for key, (data, _) in found.items()
            if data.array is not None and data.nbytes
        )
        pieces: list[_Piece] = []
        lies: dict[int, _Piece] = {}
        for parts, low, high, key in here:
            thread = thread_of(found[key][0])
            other = thread is not None and thread != self.thread
            arena: Hashable = ("thread", thread) if other else HOST_ARENA
            piece = next((p for p in pieces if p.arena == arena and p.meets(low, high)), None)
            if piece is None:
                pieces.append(piece := _Piece(arena, low, high))
            elif parts:
                arena = self._arenas[key, low] = "apart", (key, low)
                memory.add(arena, low, high, "a part of memory given", ("bytes", key))
                continue
            if other:
                self._arenas[key, low] = arena
            piece.high = max(piece.high, high)
            lies[key] = piece
        for piece in pieces:
            memory.name(piece.held, "what was there before")
            memory.add(piece.arena, piece.low, piece.high, "memory given", piece.held)
        for key, (data, users) in found.items():
            own = "bytes", key
            memory.name(own, "what was there before")
            if key in lies:
                memory.view(own, lies[key].held, data.address - lies[key].low)
            self._copies(data, own)
            for number, value in users:
                if value.layout is data.layout and not value.offset:
                    self.homes[number] = key
                    if thread_of(data) is not None:
                        arena, start = self.lies("host", data)
                        self.leased[number] = Place(arena, start, data.layout)
                memory.name(number, f"%{number}")
                memory.view(number, own, value.offset)
                self.leaves.append((number, ref(value)))

    def _copies(self, data: Data, own: Hashable) -> None:
        for space, buffer in (data.remote or {}).items():
            arena, _ = self.lies(space, buffer)
            self.memory.add(arena, 0, data.nbytes, f"the copy on {space}", own)

    def add_constant(self, number: int, data: Data) -> None:
        """Note where a constant lies."""
        if data.address in self._constants:
            self.memory.view(number, self._constants[data.address], 0)
            return
        own = self._constants[data.address] = "constant", number
        low = data.address
        self.memory.add(HOST_ARENA, low, low + data.nbytes, "a constant", own)
        self._copies(data, own)
        self.memory.view(number, own, 0)

    def lies(self, space: str, buffer: Any) -> tuple[Hashable, int]:
        """Return the arena of a buffer, and where in it that begins."""
        if isinstance(buffer, Data):
            key = id(buffer), buffer.address
            return self._arenas.get(key, HOST_ARENA), key[1]
        return (space, id(buffer)), 0

    def holders(self, data: Data, offset: int, layout: Layout) -> tuple[Place, ...]:
        """Return where the copies of an array lie."""
        found = [
            Place(self.lies(space, buffer)[0], offset, layout)
            for space, buffer in (data.remote or {}).items()
        ]
        if data.array is not None:
            arena, start = self.lies("host", data)
            found.append(Place(arena, start + offset, layout))
        return tuple(found)


def _is_whole(data: Data) -> bool:
    """Tell whether an array is all of the bytes from its first to its last, and nobody else's: what
    functions of NumPy's make may share an array, each its own part, and arguments may lie in each
    other's gaps."""
    span = data.layout.ndim == 1 and data.layout.dtype == _BYTE
    return data.foreign and not span


def is_host(arena: Hashable) -> bool:
    """Tell whether an arena is of the host's memory."""
    return arena == HOST_ARENA or (isinstance(arena, tuple) and arena[0] in ("apart", "thread"))
