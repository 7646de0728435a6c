"""Which copies on a device are worth their place: those that were used often, and take long to
bring back for each byte.

The worth of a copy is predicted from its own past: uses so far times the seconds of bringing it
again, over its bytes. Whoever is evicted raises the level that newcomers start from, so that what
was used much long ago does not stay for ever (greedy dual size, with frequency).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Collection
from typing import Any

from alight._core import Data

__all__ = ["FRESH", "Kept", "kept"]

# What may wait in ``Kept.fresh``: most of it is dropped before somebody looks.
FRESH = 512


class _Copy(weakref.ref[Data]):
    """One copy: whose, how often used, and its worth when it was used last."""

    __slots__ = ("number", "uses", "worth")

    number: int
    uses: int
    worth: float


class Kept:
    """The copies of one memory space."""

    def __init__(self) -> None:
        self._copies: dict[int, _Copy] = {}
        # Those whose data died. They only come here, by a call that runs no Python: what a signal's
        # handler raised while data dies would not reach the program.
        self._dead: deque[_Copy] = deque()
        self._level = 0.0
        # Copies that came lately and of which nobody was told: a reference to each, then the
        # seconds of bringing it again.
        self.fresh: list[Any] = []

    def use(self, data: Data, seconds: float) -> None:
        """Note that a copy came or was used; ``seconds`` is what bringing it again would take."""
        if len(self.fresh) > FRESH:
            self._look()
        self._forget_dead()
        number = id(data)
        copy = self._copies.get(number)
        if copy is None or copy() is not data:
            copy = self._copies[number] = _Copy(data, self._dead.append)
            copy.number, copy.uses = number, 0
        copy.uses += 1
        copy.worth = self._level + copy.uses * seconds / max(data.nbytes, 1)

    def _look(self) -> None:
        """Take in what came lately and still lives."""
        fresh = self.fresh[:]
        del self.fresh[: len(fresh)]  # a finalizer may have added to it
        for reference, seconds in zip(fresh[::2], fresh[1::2], strict=True):
            data = reference()
            if data is not None:
                self.use(data, seconds)

    def _forget_dead(self) -> None:
        while self._dead:
            copy = self._dead.popleft()
            if self._copies.get(copy.number) is copy:
                self._copies.pop(copy.number, None)

    def least(self, space: str, spared: Collection[int]) -> Data | None:
        """Return what is worth least of what has a copy in the space, those with an id in
        ``spared`` apart; it is forgotten."""
        self._look()
        best: tuple[float, int] | None = None
        for number, copy in tuple(self._copies.items()):
            data = copy()
            if data is None or data.remote is None or space not in data.remote:
                self._copies.pop(number, None)
            elif number not in spared and (best is None or copy.worth < best[0]):
                best = copy.worth, number
        if best is None:
            return None
        self._level = max(self._level, best[0])
        return self._copies.pop(best[1])()


_spaces: dict[str, Kept] = {}


def kept(space: str) -> Kept:
    """Return the copies of a space."""
    found = _spaces.get(space)
    if found is None:
        found = _spaces[space] = Kept()
    return found
