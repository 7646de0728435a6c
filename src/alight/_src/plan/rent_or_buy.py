"""When a loop that recurs goes over to another memory: rent until as much is lost as buying takes.

Nobody knows how many turns are to come. A loop stays where it is until its turns have lost there
what moving it takes; so it never costs more than twice what knowing the number would have, plus
the turns it took to be recognised. A guess of the number moves that point, half trusted: 1.5 times
where it is right, 3 where it is wrong (Kumar, Purohit and Svitkina, NeurIPS 2018). What earlier
starts left is trusted from the first turn on: where it is wrong, one move is lost, and the next
start knows better. Later moves wait until a move there and back is lost: at most 3 times the best
plus one move, whatever costs do, which no deterministic rule betters for two places.

Costs in, decisions out: no clock, no device.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from alight._src.base.records import dataclass

__all__ = ["Hindsight", "Recurrence", "Switch", "Trust", "Turns", "open_due"]

# How much of a guess is believed, from all (0) to nothing (1): 0.5 bounds what is lost by a right
# one at 1.5 and by a wrong one at 3 times the best.
_TRUST = 0.5
# Plans of one turn that are recognised. More is the body of an outer loop, whose inner ones are
# found; each looks back over twice as many.
LONGEST_PERIOD = 64


class Trust(enum.Enum):
    """What the number of turns to come is known by."""

    NOTHING = enum.auto()
    GUESS = enum.auto()  # what the program says, or one earlier start that ended otherwise
    EARLIER_STARTS = enum.auto()


class Turns(NamedTuple):
    """How many turns a loop is thought to take, by what, and what each was seen to gain there."""

    number: float
    trust: Trust
    gain_seconds: float = 0.0


UNKNOWN = Turns(0.0, Trust.NOTHING)


class Recurrence:
    """The latest entries of a thread, of which the last two turns are equal once it recurs."""

    __slots__ = ("_entries", "_last", "_matched", "_period")

    def __init__(self) -> None:
        self._entries: list[Hashable] = []
        self._last: dict[Hashable, int] = {}
        self._period = self._matched = 0

    def add(self, entry: Hashable) -> tuple[Hashable, ...]:
        """Note an entry; return those of the latest turn where it and the one before are equal, as
        they come, and nothing where they are not."""
        entries, at = self._entries, len(self._entries)
        entries.append(entry)
        before = self._last.get(entry, -1)
        self._last[entry] = at
        period = self._period
        if period and at >= period and entries[at - period] == entry:
            self._matched += 1
        elif before < 0 or at - before > LONGEST_PERIOD:
            self._period = self._matched = 0
        else:
            self._period = period = at - before
            self._matched = 1
            while self._matched < period and self._agree(at - self._matched):
                self._matched += 1
        found = self._period and self._matched >= self._period
        latest = tuple(entries[len(entries) - self._period :]) if found else ()
        if len(entries) >= 4 * LONGEST_PERIOD:
            self._shorten()
        return latest

    def _agree(self, at: int) -> bool:
        earlier = at - self._period
        return earlier >= 0 and self._entries[at] == self._entries[earlier]

    def _shorten(self) -> None:
        gone = len(self._entries) - 2 * LONGEST_PERIOD
        del self._entries[:gone]
        self._last = {entry: at - gone for entry, at in self._last.items() if at >= gone}


class Hindsight(NamedTuple):
    """What a loop took, moves included, and the least that going over at the best turn, or never,
    would have taken."""

    seconds: float
    best_seconds: float

    @property
    def regret_seconds(self) -> float:
        """Return what was lost by not knowing."""
        return max(0.0, self.seconds - self.best_seconds)


@dataclass(slots=True)
class Switch:
    """One loop, at one place, that has another. ``moving_seconds`` are those of bringing its
    arrays over and of making what is missing there, ``back_seconds`` those of bringing them
    back."""

    moving_seconds: float
    back_seconds: float = 0.0
    expected: Turns = UNKNOWN
    moved: bool = False
    turns: int = 0
    moves: int = 0
    lost_seconds: float = 0.0  # at this place, against the other, since it came here
    spent_seconds: float = 0.0
    _best_here: float = 0.0  # the least until now by ways that end at home
    _best_there: float = 0.0  # and by those that end over there, the way over paid
    _begun: bool = False

    def turn(self, home_seconds: float, away_seconds: float, times: int = 1) -> None:
        """Note turns that take so long at home, and so long at the other place."""
        if not self._begun:
            self._begun, self._best_there = True, self.moving_seconds
        own, other = home_seconds, away_seconds
        if self.moved:
            own, other = other, own
        self.turns += times
        self.spent_seconds += own * times
        self.lost_seconds = max(0.0, self.lost_seconds + (own - other) * times)
        home, away = self._best_here + home_seconds * times, self._best_there + away_seconds * times
        self._best_here = min(home, away + self.back_seconds)
        self._best_there = min(away, home + self.moving_seconds)

    def beyond(self, opening_seconds: float = 0.0) -> float:
        """Return what was lost beyond what going over takes, apart from what is paid once for all
        who go there (``opening_seconds``); below 0 where it does not pay yet."""
        if self.moves:
            return self.lost_seconds - self.moving_seconds - self.back_seconds
        share = self._share(opening_seconds)
        if not share:
            return opening_seconds
        return self.lost_seconds / share - self.moving_seconds

    def _share(self, opening_seconds: float) -> float:
        """Return which part of what buying takes has to be lost before."""
        number, trust, gain = self.expected
        if trust is Trust.NOTHING:
            return 1.0
        if self.turns:
            gain = self.lost_seconds / self.turns
        if number * gain < self.moving_seconds + opening_seconds:
            return 1.0 / _TRUST
        return 0.0 if trust is Trust.EARLIER_STARTS else _TRUST

    def is_due(self, opening_seconds: float = 0.0) -> bool:
        """Tell whether it goes over now, where that takes so much besides."""
        return self.beyond(opening_seconds) >= opening_seconds and (
            self.lost_seconds > 0.0 or not self.turns
        )

    def move(self) -> None:
        """Note that it goes over, and what that took."""
        self.spent_seconds += self.back_seconds if self.moved else self.moving_seconds
        self.moved = not self.moved
        self.moves += 1
        # One signed counter: who goes over before a way there and back is lost is as near to
        # returning as what was not lost yet, but for the way over, which has been paid for.
        both = self.moving_seconds + self.back_seconds
        self.lost_seconds = min(self.back_seconds, max(0.0, both - self.lost_seconds))

    def hindsight(self) -> Hindsight:
        """Return what its turns took against the best that could have been done."""
        return Hindsight(self.spent_seconds, min(self._best_here, self._best_there))


def open_due(opening_seconds: float, alone_seconds: float, loops: Sequence[Switch]) -> bool:
    """Tell whether a memory is to be opened: once what single requests lost without it, with what
    loops lost beyond their own moves, is what opening takes."""
    beyond = sum([max(0.0, loop.beyond(opening_seconds)) for loop in loops])
    return alone_seconds + beyond >= opening_seconds
