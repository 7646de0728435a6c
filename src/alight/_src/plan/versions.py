"""Values by the bytes that they have, and which bytes are the same in several of them.

A value has bytes of its own, counted from its first element. A window of a value is some of its
bytes. A write makes a value that has the bytes of another but for a window, which has those of what
was written: bytes outside of the window are the same in both.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

from alight._src.plan.byte_sets import ByteSet, bytes_of, same_steps

if TYPE_CHECKING:
    from alight._core import Layout

__all__ = ["Label", "Versions"]


class Label(NamedTuple):
    """What some memory holds: a value, whose byte 0 is, or would be, at ``shift``."""

    value: Hashable
    shift: int


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


class Versions:
    """Values, the windows of them, and the versions that writes make."""

    def __init__(self) -> None:
        self._windows: dict[Hashable, tuple[Hashable, int]] = {}
        self._updates: dict[Hashable, _Update] = {}
        self._names: dict[Hashable, str] = {}

    def name(self, value: Hashable, name: str) -> None:
        """Have messages call a value so."""
        self._names[value] = name

    def view(self, target: Hashable, source: Hashable, offset: int) -> None:
        """Make a value that is a window of another, so many bytes into it."""
        root, before = self.root(source)
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
        source, before = self.root(old)
        written, start = self.root(value)
        self._updates[target] = _Update(source, before, window, offset, written, start, layout)

    def root(self, value: Hashable) -> tuple[Hashable, int]:
        """Return the value that another is a window of, if it is one, and the bytes before it."""
        return self._windows.get(value, (value, 0))

    def called(self, value: Hashable) -> str:
        """Return what messages call a value."""
        update = None if value in self._names else self._updates.get(value)
        if update is None:
            return self._own(value)
        made = f"a write of {self._own(update.value)} into {self._own(update.old)}"
        return f"{self._own(value)} ({made})"

    def _own(self, value: Hashable) -> str:
        if value in self._names:
            return self._names[value]
        if isinstance(value, _Spread):
            return f"{self._own(value.value)} repeated"
        return f"%{value}" if isinstance(value, int) else str(value)

    def label(self, value: Hashable, start: int) -> Label:
        """Return what memory holds where a value lies as it is, from this byte on."""
        root, offset = self.root(value)
        return Label(root, start - offset)

    def spread(self, value: Hashable, layout: Layout, window: Layout, start: int) -> Label:
        """Return what a window holds that begins at this byte, where a value of a layout was put
        into it as NumPy broadcasts it."""
        root, offset = self.root(value)
        return _laid(root, offset, layout, window, start)

    def apart(self, held: Label, wanted: Label, part: ByteSet) -> tuple[Label, ByteSet] | None:
        """Return some of these bytes that are not the same in two values, with whose they are in
        the first; None where all are."""
        ready = [(held, wanted, part)]
        while ready:
            held, wanted, part = ready.pop()
            if held == wanted:
                continue
            # Taken back to what they were made of, both come to what they share; the later of them
            # first, by its number, so that this is soon.
            first, second = self._cut(held, part), self._cut(wanted, part)
            if first is None and second is None:
                return held, part
            later = _number(wanted.value) >= _number(held.value)
            if second is not None and (first is None or later):
                ready += [(held, label, piece) for label, piece in second]
            elif first is not None:
                ready += [(label, wanted, piece) for label, piece in first]
        return None

    def _cut(self, label: Label, part: ByteSet) -> list[tuple[Label, ByteSet]] | None:
        """Return of what a version was made, in some of its bytes; None where it is none."""
        update = self._updates.get(label.value)
        if update is None:
            return None
        start = label.shift + update.offset
        window = bytes_of(start, update.window)
        outside, inside = part - window, part & window
        found = []
        if outside:
            found.append((Label(update.old, label.shift - update.before), outside))
        if inside:
            value = update.value, update.value_offset, update.value_layout
            found.append((_laid(*value, update.window, start), inside))
        return found


def _number(value: Hashable) -> int:
    return value if isinstance(value, int) else -1


def _laid(value: Hashable, offset: int, layout: Layout, window: Layout, start: int) -> Label:
    if same_steps(layout, window):
        return Label(value, start - offset)
    return Label(_Spread(value, offset, layout, window), start)
