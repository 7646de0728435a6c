"""What a turn of a loop takes where it is, and where each of its plans had better be.

The plans of a turn are a ring: what one hands to the next crosses the link each turn where they
lie apart, and so does what the last one hands to the first of the next turn. What no turn changes
is moved once and costs a turn nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from alight._src.plan.assignment import Spread, least

__all__ = ["Ring", "Stage", "best_ring"]


class Stage(NamedTuple):
    """A plan of a turn: what it takes at home and away, None where it cannot be there, with its own
    copies of what is new each turn and of what the host reads. ``reads`` and ``makes`` are the
    values that plans of the ring hand on."""

    home_seconds: float
    away_seconds: float | None
    reads: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()


class Ring(NamedTuple):
    """Where the plans of a turn are best: ``away`` tells of each; ``home_seconds`` are those of a
    turn with all at home, ``best_seconds`` those of it placed so."""

    away: tuple[bool, ...]
    home_seconds: float
    best_seconds: float

    @property
    def gain_seconds(self) -> float:
        """Return what a turn gains there."""
        return self.home_seconds - self.best_seconds


def best_ring(
    stages: Sequence[Stage],
    nbytes: Mapping[int, int],
    space: str,
    copy_seconds: Callable[[str, str, int], float],
    host: str = "host",
) -> Ring:
    """Return where each plan of a turn had better be, of the host's memory and one other, for the
    least seconds of a turn; exact, as one cut of the ring."""
    spread = Spread(
        spaces=(host, space),
        seconds=[
            {host: one.home_seconds}
            if one.away_seconds is None
            else {host: one.home_seconds, space: one.away_seconds}
            for one in stages
        ],
        reads=[one.reads for one in stages],
        makes=[one.makes for one in stages],
        held={},
        nbytes=nbytes,
        asked=frozenset(),
        copy_seconds=copy_seconds,
    )
    places = least(spread)
    home = sum([one.home_seconds for one in stages])
    best = spread.total(places)
    if best >= home:  # between equals it stays
        return Ring((False,) * len(places), home, home)
    return Ring(tuple([place != host for place in places]), home, best)
