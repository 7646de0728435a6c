"""What memory holds while a plan runs, followed by symbols: which bytes are which bytes of which
value.

Wherever a value lies in memory it lies there as it is, so its place is told by how far it is moved.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from alight._src.plan.byte_sets import ByteSet, bytes_of, same_steps, span
from alight._src.plan.queue_order import Mark, QueueOrder
from alight._src.plan.versions import Label, Versions
from alight.errors import PlanError

if TYPE_CHECKING:
    from alight._core import Layout

__all__ = ["HOST_ARENA", "Contents", "Mark", "Operand", "Place"]

# Memory that addresses count in: host memory, or one buffer of which no more is known.
Arena = Hashable
HOST_ARENA = "host"


class Place(NamedTuple):
    """Where an array lies: the byte of an arena at which it begins, and its layout."""

    arena: Arena
    start: int
    layout: Layout

    @property
    def bytes(self) -> ByteSet:
        """Return the bytes that it touches."""
        return bytes_of(self.start, self.layout)


class Operand(NamedTuple):
    """A value that is read at a place. ``once``: each element is read at the turn of the same
    element of the result, and never again."""

    value: Hashable
    place: Place
    once: bool = False


class _Undefined(NamedTuple):
    """Bytes that hold nothing."""

    why: str


# What memory holds that nobody follows: it is taken for what it should be.
_ELSEWHERE = Label("elsewhere", 0)


class _Layer(NamedTuple):
    """What was put into some bytes, by which submission."""

    bytes: ByteSet
    label: Label | _Undefined
    mark: Mark


class _Buffer(NamedTuple):
    """Bytes of an arena that are one piece of memory."""

    low: int
    high: int
    name: str


class Contents(Versions):
    """Memory, and the values that are followed in it. Methods raise PlanError, with ``step``, the
    buffer and the value, where something is read that is not there, or done that others see."""

    def __init__(self) -> None:
        super().__init__()
        self.step = "at the start"
        self._buffers: dict[Arena, list[_Buffer]] = {}
        self._layers: dict[Arena, list[_Layer]] = {}
        self._order = QueueOrder()
        self._reads: dict[Arena, list[_Layer]] = {}

    # -- memory -----------------------------------------------------------------------------------
    def add(
        self, arena: Arena, low: int, high: int, name: str, holds: Hashable | None = None
    ) -> None:
        """Have memory be there that is one buffer: what lay there before is gone. It holds a value
        from its first byte on, or nothing yet."""
        self.drop(arena, low, high)
        if low < high:
            self._buffers.setdefault(arena, []).append(_Buffer(low, high, name))
            whole = span(low, high)
            label: Label | _Undefined = _Undefined("nothing was written there")
            if holds is not None:
                label = self.label(holds, low)
            self._put(arena, whole, label)

    def drop(self, arena: Arena, low: int = 0, high: int = 1 << 62) -> None:
        """Have buffers be gone that lie in these bytes, as free memory is."""
        there = self._buffers.get(arena)
        if not there:
            return
        gone = [b for b in there if b.low < high and low < b.high]
        for buffer in gone:
            there.remove(buffer)
            self._forget(arena, span(buffer.low, buffer.high))

    def knows(self, arena: Arena) -> bool:
        """Tell whether there is memory of an arena."""
        return bool(self._buffers.get(arena))

    def has(self, arena: Arena, low: int, high: int) -> bool:
        """Tell whether there is a buffer that has all of these bytes."""
        return any(b.low <= low and high <= b.high for b in self._buffers.get(arena, ()))

    def join(self, arena: Arena, low: int, high: int) -> None:
        """Have buffers that lie in these bytes be one, with what they hold."""
        there = self._buffers.setdefault(arena, [])
        inside = [b for b in there if low <= b.low and b.high <= high]
        there[:] = [b for b in there if b not in inside]
        there.append(_Buffer(low, high, inside[0].name if inside else "memory"))

    def buffer(self, place: Place) -> str:
        """Return the name of the buffer that a place lies in."""
        return self._buffer(place.arena, place.bytes).name

    def _buffer(self, arena: Arena, wanted: ByteSet) -> _Buffer:
        nearest = None
        for buffer in reversed(self._buffers.get(arena, ())):
            if buffer.low <= wanted.low and wanted.high <= buffer.high:
                return buffer
            if buffer.low < wanted.high and wanted.low < buffer.high:
                nearest = buffer
        if nearest is None:
            self.refuse(f"bytes {wanted.low}…{wanted.high} are in no buffer of {arena}")
        self.refuse(
            f"bytes {wanted.low - nearest.low}…{wanted.high - nearest.low} are outside of "
            f"{nearest.name}, which has {nearest.high - nearest.low}",
            nearest.name,
        )

    def _forget(self, arena: Arena, gone: ByteSet) -> None:
        layers = self._layers.get(arena, [])
        layers[:] = [layer for layer in layers if not layer.bytes.within(gone)]
        reads = self._reads.get(arena)
        if reads:
            reads[:] = [layer for layer in reads if not layer.bytes.within(gone)]

    def _put(
        self, arena: Arena, where: ByteSet, label: Label | _Undefined, mark: Mark | None = None
    ) -> None:
        layers = self._layers.setdefault(arena, [])
        layers[:] = [layer for layer in layers if not layer.bytes.within(where)]
        layers.append(_Layer(where, label, mark or self._order.mark))

    # -- what is done -----------------------------------------------------------------------------
    def holds(self, value: Hashable, place: Place) -> None:
        """Look whether a value lies at a place, or will once all is done that was submitted."""
        self._look(value, place, ordered=False)

    def has_value(self, value: Hashable, place: Place) -> bool:
        """Tell whether a value lies at a place."""
        try:
            self._look(value, place, ordered=False)
        except PlanError:
            return False
        return True

    def read(self, value: Hashable, place: Place) -> None:
        """Look whether a value lies at a place when it is read there."""
        if place.layout.size:
            self._look(value, place, ordered=True)
            if not self._order.on_host:
                label = self.label(value, place.start)
                layer = _Layer(place.bytes, label, self._order.mark)
                self._reads.setdefault(place.arena, []).append(layer)

    def _look(self, value: Hashable, place: Place, ordered: bool) -> None:
        if not place.layout.size:
            return
        wanted = place.bytes
        buffer = self._buffer(place.arena, wanted)
        label = self.label(value, place.start)
        marks: set[Mark | None] = set()
        count = 0
        for part, layer in self._parts(place.arena, wanted):
            if ordered:
                self._ordered(layer, "reads", value, buffer)
            count += 1
            marks.add(None if layer.label is _ELSEWHERE else layer.mark)
            if layer.label is _ELSEWHERE:
                continue
            if isinstance(layer.label, _Undefined):
                self.refuse(
                    f"wants {self.called(value)} in {buffer.name}, but of bytes "
                    f"{part.low - buffer.low}…{part.high - buffer.low} {layer.label.why}",
                    *(buffer.name, value),
                )
            other = self.apart(layer.label, label, part)
            if other is not None:
                held, piece = other
                self.refuse(
                    f"wants {self.called(value)} in {buffer.name}, whose bytes "
                    f"{piece.low - buffer.low}…{piece.high - buffer.low} hold "
                    f"{self.called(held.value)}{_moved(held, label)}",
                    *(buffer.name, value),
                )
        if count > 1 and len(marks) == 1 and None not in marks:
            # Known by one label from here on: what is read again after each of many writes is not
            # followed back through all of them.
            (mark,) = marks
            assert mark is not None
            self._put(place.arena, wanted, label, mark)

    def write(self, value: Hashable, place: Place, layout: Layout | None = None) -> None:
        """Put a value to a place; of another ``layout`` it is spread over it as NumPy broadcasts
        it."""
        if not place.layout.size:
            return
        where = place.bytes
        buffer = self._buffer(place.arena, where)
        for layer in self._layers.get(place.arena, ()):
            if layer.bytes.meets(where):
                self._ordered(layer, "writes over", value, buffer)
        for layer in self._reads.get(place.arena, ()):
            if layer.bytes.meets(where):
                self._ordered(layer, "writes over", value, buffer)
        label = self.spread(value, layout or place.layout, place.layout, place.start)
        self._put(place.arena, where, label)

    def fill(self, place: Place) -> None:
        """Put to a place what nobody follows."""
        if not place.layout.size:
            return
        self._buffer(place.arena, place.bytes)
        self._put(place.arena, place.bytes, _ELSEWHERE)

    def copy(self, source: Arena, start: int, target: Arena, to: int, nbytes: int) -> None:
        """Move bytes as they are from one place to another."""
        if not nbytes:
            return
        wanted, by = span(start, start + nbytes), to - start
        buffer = self._buffer(source, wanted)
        where = span(to, to + nbytes)
        into = self._buffer(target, where)
        found = []
        for part, layer in self._parts(source, wanted):
            self._ordered(layer, "copies", None, buffer)
            label = layer.label
            if isinstance(label, Label) and label is not _ELSEWHERE:
                label = Label(label.value, label.shift + by)
            found.append((part.moved(by), label))
        if not self._order.on_host:
            self._reads.setdefault(source, []).append(_Layer(wanted, _ELSEWHERE, self._order.mark))
        for layer in (*self._layers.get(target, ()), *self._reads.get(target, ())):
            if layer.bytes.meets(where):
                self._ordered(layer, "copies over", None, into)
        for part, label in found:
            self._put(target, part, label)

    def launch(
        self, operands: Sequence[Operand], results: Sequence[tuple[Hashable, Place]]
    ) -> None:
        """Make results of operands that lie at places."""
        for value, place, _ in operands:
            self.read(value, place)
        for number, (value, place) in enumerate(results):
            where = place.bytes
            for operand in operands:
                other = operand.place
                if other.arena != place.arena or not where.meets(other.bytes):
                    continue
                same = other.start == place.start and same_steps(other.layout, place.layout)
                if not (operand.once and same):
                    buffer = self._buffer(place.arena, where)
                    self.refuse(
                        f"makes {self.called(value)} in {buffer.name} over bytes that hold its "
                        f"operand {self.called(operand.value)}, which it may still read",
                        *(buffer.name, operand.value),
                    )
            for other_value, other in results[:number]:
                if other_value == value:
                    continue  # a value, and a view of all of it that the launch makes too
                if other.arena == place.arena and where.meets(other.bytes):
                    buffer = self._buffer(place.arena, where)
                    self.refuse(
                        f"makes {self.called(value)} and {self.called(other_value)} in the same "
                        f"bytes of {buffer.name}",
                        *(buffer.name, value),
                    )
        for value, place in results:
            self.write(value, place)

    def rows(self, place: Place, value: Hashable) -> int | None:
        """Return how many bytes before a place the first byte of a value would be, of which it
        holds some; None where it holds something else."""
        root, offset = self.root(value)
        for _, layer in self._parts(place.arena, place.bytes):
            label = layer.label
            if isinstance(label, Label) and label.value == root:
                return place.start - label.shift - offset
        return None

    # -- the order of queues ----------------------------------------------------------------------
    def submit(self, queue: Hashable, after: Collection[Mark] = ()) -> Mark:
        """Have what is done next be a submission to a queue, after these; return its mark."""
        return self._order.submit(queue, after)

    def host(self, after: Mark | None = None) -> None:
        """Have what is done next be the host's own, which has waited for a submission."""
        self._order.host(after)

    def _ordered(self, layer: _Layer, verb: str, value: Hashable, buffer: _Buffer) -> None:
        if not self._order.comes_after(layer.mark):
            queue, number = layer.mark
            what = "" if value is None else f" for {self.called(value)}"
            self.refuse(
                f"{verb} {buffer.name}{what} without waiting for submission {number} of {queue}, "
                "which uses it",
                *(buffer.name, value),
            )

    # -- what lies where --------------------------------------------------------------------------
    def _parts(self, arena: Arena, wanted: ByteSet) -> Iterator[tuple[ByteSet, _Layer]]:
        """Yield the parts of some bytes, with what was put there last."""
        rest = wanted
        for layer in reversed(self._layers.get(arena, ())):
            part = rest & layer.bytes
            if part:
                yield part, layer
                rest = rest - layer.bytes
                if not rest:
                    return
        yield rest, _Layer(rest, _Undefined("nothing is known"), ("", 0))

    def refuse(self, what: str, buffer: str | None = None, value: Hashable = None) -> NoReturn:
        """Raise PlanError that says what is wrong in this step."""
        raise PlanError(
            f"{self.step}: {what}. Fix: report this program, in which alight is wrong; without "
            "alight NumPy computes it.",
            *(self.step, buffer, value),
        )


def _moved(held: Label, wanted: Label) -> str:
    by = held.shift - wanted.shift
    return f", {by} bytes on" if held.value == wanted.value and by else ""
