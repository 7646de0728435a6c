"""Placements that stay within what each memory holds.

A value is in a memory from when it is made there or first brought there until nothing needs it any
more. What does not fit is found by asking rent for each byte: a placement that is best at some rent
uses less memory for the least loss, and the rent at which everything just fits is found by halving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from alight._src.base.records import replace

if TYPE_CHECKING:
    from alight._src.plan.assignment import Spread

# Rents that are tried. Each halves the doubt about the right one, in logarithms: from a factor of
# 10⁶ (a copy that takes a second against one of a microsecond) to one of 1.1.
_RENTS = 8
# Units up to which single ones are moved: trying each takes its square, 0.3 s at 200 (one EPYC
# core), which is little beside work that fills a device's memory. More take the best rent's answer.
_MENDED = 200
_STARTS = 4  # placements that are mended: with more no random graph of the tests ended better


def excess(spread: Spread, places: Sequence[str]) -> int:
    """Return by how many bytes the memories are too small, summed over memories; 0 if all fits."""
    over = 0
    for space, cap in spread.caps.items():
        over += max(0, max(_used(spread, places, space), default=0) - cap)
    return over


def _used(spread: Spread, places: Sequence[str], space: str) -> list[int]:
    """Return the bytes in use in a memory while each unit runs."""
    count = len(places)
    change = [0] * (count + 1)
    last = spread.last()
    for value, held in spread.held.items():
        here = [u for u in spread.consumers().get(value, ()) if places[u] == space]
        if space in held or here:
            start = 0 if space in held else here[0]
            change[start] += spread.nbytes[value]
            change[last[value] + 1] -= spread.nbytes[value]
    for unit, values in enumerate(spread.makes):
        for value in values:
            start = unit
            if places[unit] != space:
                here = [u for u in spread.consumers().get(value, ()) if places[u] == space]
                if not here:
                    continue
                start = here[0]
            change[start] += spread.nbytes[value]
            change[last[value] + 1] -= spread.nbytes[value]
    return list(accumulate(change[:-1]))


def within(spread: Spread, solve: Callable[[Spread], list[str]]) -> list[str]:
    """Return a placement that fits, of few seconds; where none fits, one that exceeds least.

    ``solve`` returns the best placement of a spread without regard to memory.
    """
    free = solve(spread)
    if sum(spread.nbytes.values()) <= min(spread.caps.values()) or not excess(spread, free):
        return free
    home = [
        spread.spaces[0] if spread.spaces[0] in seconds else min(seconds, key=seconds.__getitem__)
        for seconds in spread.seconds
    ]
    found = [home]
    total, nbytes = spread.total(free), max(1, max(spread.nbytes.values()))
    # From a rent at which nothing moves to one at which nothing stays.
    low, high = 1e-6 * total / nbytes, total / nbytes
    for _ in range(_RENTS):
        rent = (low * high) ** 0.5
        places = solve(replace(spread, rent=rent))
        if excess(spread, places):
            low = rent
        else:
            high = rent
        found.append(places)

    def rank(places: Sequence[str]) -> tuple[int, float]:
        return excess(spread, places), spread.total(places)

    if len(home) <= _MENDED:
        distinct = {tuple(places) for places in (free, *found)}
        found = [_mended(spread, places) for places in sorted(distinct, key=rank)[:_STARTS]]
    return min(found, key=rank)


def _mended(spread: Spread, start: Sequence[str]) -> list[str]:
    """Return the placement reached by moving single units: first until all fits, then, within what
    fits, as long as the seconds fall."""
    places = list(start)
    over, total = excess(spread, places), spread.total(places)
    while over:
        best = None
        for unit, seconds in enumerate(spread.seconds):
            own = places[unit]
            for space in seconds:
                if space == own:
                    continue
                places[unit] = space
                if (less := over - excess(spread, places)) > 0:
                    lost = spread.total(places) - total
                    rank = (lost / less if lost > 0 else lost, unit, space)
                    best = rank if best is None else min(best, rank)
            places[unit] = own
        if best is None:
            break
        places[best[1]] = best[2]
        over, total = excess(spread, places), spread.total(places)
    for _ in spread.spaces:
        moved = False
        for unit, seconds in enumerate(spread.seconds):
            own = places[unit]
            for space in seconds:
                places[unit] = space
                other = spread.total(places)
                if other < total and excess(spread, places) <= over:
                    own, total, moved = space, other, True
            places[unit] = own
        if not moved:
            break
    return places
