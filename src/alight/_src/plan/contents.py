"""What memory holds while a plan runs, followed by symbols: which bytes are which bytes of which
value.

A value has bytes of its own, counted from its first element; wherever it lies in memory, it lies
there as it is, so its place is told by how far it is moved. A window of a value is some of its
bytes. A write makes a value that has the bytes of another but for a window, which has those of what
was written: bytes outside of the window are the same in both.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from alight._src.plan.byte_sets import ByteSet, bytes_of, same_steps, span
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


class _Label(NamedTuple):
    """A value whose byte 0 is at ``shift``."""

    value: Hashable
    shift: int


class _Undefined(NamedTuple):
    """Bytes that hold nothing."""

    why: str


# What memory holds that nobody follows: it is taken for what it should be.
_ELSEWHERE = _Label("elsewhere", 0)


class _Update(NamedTuple):
    """How a value was made by a write: of which it is, ``before`` bytes into it, and what the
    window holds."""

    old: Hashable
    before: int
    window: Layout
    offset: int
    value: Hashable
    value_offset: int
    value_layout: Layout


class _Spread(NamedTuple):
    """A value as it lies in a window of another layout than its own: repeated, or in another
    order."""

    value: Hashable
    offset: int
    layout: Layout
    window: Layout


# Of a submission: its queue, and its number there.
Mark = tuple[Hashable, int]
_HOST: Mark = ("", 0)


class _Layer(NamedTuple):
    """What was put into some bytes, by which submission."""

    bytes: ByteSet
    label: _Label | _Undefined
    mark: Mark


class _Buffer(NamedTuple):
    """Bytes of an arena that are one piece of memory."""

    low: int
    high: int
    name: str


class Contents:
    """Memory. Methods raise PlanError, with ``step``, the buffer and the value, where something is
    read that is not there, or done that others may see."""

    def __init__(self) -> None:
        self.step = "at the start"
        self._buffers: dict[Arena, list[_Buffer]] = {}
        self._layers: dict[Arena, list[_Layer]] = {}
        self._windows: dict[Hashable, tuple[Hashable, int]] = {}
        self._updates: dict[Hashable, _Update] = {}
        self._names: dict[Hashable, str] = {}
        # What is going on: of which submission, and which of others it comes after; the host's own
        # work is of no queue.
        self._mark: Mark = _HOST
        self._seen: dict[Hashable, int] = {}
        self._waited: dict[Hashable, int] = {}
        self._after: dict[Mark, dict[Hashable, int]] = {}
        self._last: dict[Hashable, int] = {}
        self._reads: dict[Arena, list[_Layer]] = {}

    # -- values -----------------------------------------------------------------------------------
    def name(self, value: Hashable, name: str) -> None:
        """Have messages call a value so."""
        self._names[value] = name

    def view(self, target: Hashable, source: Hashable, offset: int) -> None:
        """Make a value that is a window of another, so many bytes into it."""
        root, before = self._root(source)
        self._windows[target] = root, before + offset

    def update(
        self,
        target: Hashable,
        old: Hashable,
        window: Layout,
        offset: int,
        value: Hashable,
        layout: Layout,
    ) -> None:
        """Make a value that has the bytes of ``old``, but in a window another value of this
        layout."""
        source, before = self._root(old)
        written, start = self._root(value)
        self._updates[target] = _Update(source, before, window, offset, written, start, layout)

    def _root(self, value: Hashable) -> tuple[Hashable, int]:
        return self._windows.get(value, (value, 0))

    def _called(self, value: Hashable) -> str:
        if value in self._names:
            return self._names[value]
        if isinstance(value, _Spread):
            return f"{self._called(value.value)} repeated"
        update = self._updates.get(value)
        own = f"%{value}" if isinstance(value, int) else str(value)
        if update is None:
            return own
        return f"{own} (a write of {self._called(update.value)} into {self._called(update.old)})"

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
            label: _Label | _Undefined = _Undefined("nothing was written there")
            if holds is not None:
                label = self._label(holds, low)
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
            self._refuse(f"bytes {wanted.low}…{wanted.high} are in no buffer of {arena}")
        self._refuse(
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

    def _put(self, arena: Arena, where: ByteSet, label: _Label | _Undefined) -> None:
        layers = self._layers.setdefault(arena, [])
        layers[:] = [layer for layer in layers if not layer.bytes.within(where)]
        layers.append(_Layer(where, label, self._mark))

    def _label(self, value: Hashable, start: int) -> _Label:
        root, offset = self._root(value)
        return _Label(root, start - offset)

    # -- what is done -----------------------------------------------------------------------------
    def holds(self, value: Hashable, place: Place) -> None:
        """Look whether a value lies at a place, or will once all is done that was submitted."""
        self._look(value, place, ordered=False)

    def read(self, value: Hashable, place: Place) -> None:
        """Look whether a value lies at a place when it is read there."""
        if place.layout.size:
            self._look(value, place, ordered=True)
            if self._mark is not _HOST:
                label = self._label(value, place.start)
                layer = _Layer(place.bytes, label, self._mark)
                self._reads.setdefault(place.arena, []).append(layer)

    def _look(self, value: Hashable, place: Place, ordered: bool) -> None:
        if not place.layout.size:
            return
        wanted = place.bytes
        buffer = self._buffer(place.arena, wanted)
        label = self._label(value, place.start)
        for part, layer in self._parts(place.arena, wanted):
            if ordered:
                self._ordered(layer, "reads", value, buffer)
            if layer.label is _ELSEWHERE:
                continue
            if isinstance(layer.label, _Undefined):
                self._refuse(
                    f"wants {self._called(value)} in {buffer.name}, but of bytes "
                    f"{part.low - buffer.low}…{part.high - buffer.low} {layer.label.why}",
                    *(buffer.name, value),
                )
            if not self._same(layer.label, label, part):
                self._refuse(
                    f"wants {self._called(value)} in {buffer.name}, whose bytes "
                    f"{part.low - buffer.low}…{part.high - buffer.low} hold "
                    f"{self._called(layer.label.value)}{_moved(layer.label, label)}",
                    *(buffer.name, value),
                )

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
        if layout is None or same_steps(layout, place.layout):
            label = self._label(value, place.start)
        else:
            spread = _Spread(*self._root(value), layout, place.layout)
            label = _Label(spread, place.start)
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
            if isinstance(label, _Label) and label is not _ELSEWHERE:
                label = _Label(label.value, label.shift + by)
            found.append((part.moved(by), label))
        if self._mark is not _HOST:
            self._reads.setdefault(source, []).append(_Layer(wanted, _ELSEWHERE, self._mark))
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
                    self._refuse(
                        f"makes {self._called(value)} in {buffer.name} over bytes that hold its "
                        f"operand {self._called(operand.value)}, which it may still read",
                        *(buffer.name, operand.value),
                    )
            for other_value, other in results[:number]:
                if other.arena == place.arena and where.meets(other.bytes):
                    buffer = self._buffer(place.arena, where)
                    self._refuse(
                        f"makes {self._called(value)} and {self._called(other_value)} in the same "
                        f"bytes of {buffer.name}",
                        *(buffer.name, value),
                    )
        for value, place in results:
            self.write(value, place)

    def rows(self, place: Place, value: Hashable) -> int | None:
        """Return how many bytes before a place the first byte of a value would be, of which it
        holds some; None where it holds something else."""
        root, offset = self._root(value)
        for _, layer in self._parts(place.arena, place.bytes):
            label = layer.label
            if isinstance(label, _Label) and label.value == root:
                return place.start - label.shift - offset
        return None

    # -- the order of queues ----------------------------------------------------------------------
    def submit(self, queue: Hashable, after: Collection[Mark] = ()) -> Mark:
        """Have what is done next be a submission to a queue, which comes after that queue's last
        one, after what the host has waited for and after these; return its mark."""
        last = self._last.get(queue, 0)
        seen = dict(self._after.get((queue, last), ()))
        for other in (self._waited, *[self._after.get(mark, {}) for mark in after]):
            _join(seen, other)
        self._last[queue] = seen[queue] = last + 1
        self._mark = queue, last + 1
        self._seen = self._after[self._mark] = seen
        return self._mark

    def host(self, after: Mark | None = None) -> None:
        """Have what is done next be the host's own, which has waited for a submission."""
        if after is not None:
            _join(self._waited, self._after.get(after, {}))
        self._mark, self._seen = _HOST, self._waited

    def _ordered(self, layer: _Layer, verb: str, value: Hashable, buffer: _Buffer) -> None:
        queue, number = layer.mark
        if queue and queue != self._mark[0] and self._seen.get(queue, 0) < number:
            what = "" if value is None else f" for {self._called(value)}"
            self._refuse(
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
        yield rest, _Layer(rest, _Undefined("nothing is known"), _HOST)

    def _same(self, held: _Label, wanted: _Label, part: ByteSet) -> bool:
        """Tell whether some bytes of two values are the same bytes."""
        ready = [(held, wanted, part)]
        while ready:
            held, wanted, part = ready.pop()
            if held == wanted:
                continue
            # The later of two versions is taken back first, so that both come to what they share.
            first, second = self._cut(held, part), self._cut(wanted, part)
            if first is None and second is None:
                return False
            depths = self._depth(held.value), self._depth(wanted.value)
            if second is not None and (first is None or depths[1] >= depths[0]):
                ready += [(held, label, piece) for label, piece in second]
            elif first is not None:
                ready += [(label, wanted, piece) for label, piece in first]
        return True

    def _depth(self, value: Hashable) -> int:
        return value if isinstance(value, int) else -1

    def _cut(self, label: _Label, part: ByteSet) -> list[tuple[_Label, ByteSet]] | None:
        """Return of what a version was made, in some of its bytes; None where it is none."""
        update = self._updates.get(label.value)
        if update is None:
            return None
        start = label.shift + update.offset
        window = bytes_of(start, update.window)
        outside, inside = part - window, part & window
        found = []
        if outside:
            found.append((_Label(update.old, label.shift - update.before), outside))
        if inside:
            if same_steps(update.window, update.value_layout):
                inner = _Label(update.value, start - update.value_offset)
            else:
                spread = _Spread(
                    *(update.value, update.value_offset, update.value_layout, update.window)
                )
                inner = _Label(spread, start)
            found.append((inner, inside))
        return found

    def _refuse(self, what: str, buffer: str | None = None, value: Hashable = None) -> NoReturn:
        raise PlanError(
            f"{self.step}: {what}. Fix: report this program, in which alight is wrong; without "
            "alight NumPy computes it.",
            *(self.step, buffer, value),
        )


def _join(seen: dict[Hashable, int], other: Mapping[Hashable, int]) -> None:
    for queue, number in other.items():
        seen[queue] = max(seen.get(queue, 0), number)


def _moved(held: _Label, wanted: _Label) -> str:
    by = held.shift - wanted.shift
    return f", {by} bytes on" if held.value == wanted.value and by else ""
