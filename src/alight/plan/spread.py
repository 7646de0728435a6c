"""Work spread over memory spaces for the least sum of seconds, each copy paid once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from alight.plan.cut import far_side

# A cut wants whole numbers. A picosecond is a thousandth of what any clock here resolves.
_PER_SECOND = 1e12


@dataclass(slots=True)
class Spread:
    """A placement to be found. Units are numbered in an order in which they can run.

    ``seconds[u]`` are the seconds of unit u in each space where it can run; ``reads[u]`` and
    ``makes[u]`` its values. ``held`` are the spaces of values that no unit makes; ``nbytes`` the
    size of each value; ``asked`` the values that the first space must end up with.
    """

    spaces: tuple[str, ...]
    seconds: Sequence[Mapping[str, float]]
    reads: Sequence[Sequence[int]]
    makes: Sequence[Sequence[int]]
    held: Mapping[int, frozenset[str]]
    nbytes: Mapping[int, int]
    asked: frozenset[int]
    copy_seconds: Callable[[str, str, int], float]

    def consumers(self) -> dict[int, list[int]]:
        """Return the units that read each value."""
        found: dict[int, list[int]] = {}
        for unit, values in enumerate(self.reads):
            for value in values:
                found.setdefault(value, []).append(unit)
        return found

    def bring_seconds(self, value: int, holders: frozenset[str], space: str) -> float:
        """Return the seconds until a space has a value that others hold."""
        if space in holders or not holders:
            return 0.0
        return min(self.copy_seconds(holder, space, self.nbytes[value]) for holder in holders)

    def total(self, places: Sequence[str]) -> float:
        """Return the sum of seconds of units and copies where unit u runs in ``places[u]``."""
        total = sum(seconds[place] for seconds, place in zip(self.seconds, places, strict=True))
        holders = dict(self.held)
        for unit, values in enumerate(self.makes):
            holders.update(dict.fromkeys(values, frozenset((places[unit],))))
        consumers = self.consumers()
        for value, held in holders.items():
            needed = {places[unit] for unit in consumers.get(value, ())}
            if value in self.asked:
                needed.add(self.spaces[0])
            total += sum(self.bring_seconds(value, held, space) for space in sorted(needed))
        return total


def least(spread: Spread) -> list[str]:
    """Return a space for each unit, of least total seconds: exact for one or two spaces.

    With more, several placements (the exact ones for the first space and one other, the cheapest
    for each unit, all in one space) are improved by moving single units, and the best is taken.
    """
    host, *others = spread.spaces
    if not others:
        return [host] * len(spread.seconds)
    if len(others) == 1:
        return _two(spread, host, others[0])
    starts = [_two(spread, host, other) for other in others]
    starts.append([min(costs, key=costs.__getitem__) for costs in spread.seconds])
    for space in others:
        starts.append([space if space in costs else min(costs) for costs in spread.seconds])
    possible = [p for p in starts if _runs(spread, p)]
    return min((_descend(spread, p) for p in possible), key=spread.total)


def _runs(spread: Spread, places: Sequence[str]) -> bool:
    return all(place in seconds for seconds, place in zip(spread.seconds, places, strict=True))


def _two(spread: Spread, host: str, other: str) -> list[str]:
    """Return the exact answer where only these two spaces are used.

    A unit on the source's side runs on the host. For each value two more nodes make its copies be
    paid once, however many units read it: one lies beyond the upload, the other before the
    download.
    """
    count = len(spread.seconds)
    source, sink, size = count, count + 1, count + 2
    arcs: list[tuple[int, int, int]] = []
    never = -1  # replaced below by more than all the rest together

    def capacity(seconds: float | None) -> int:
        return never if seconds is None else round(seconds * _PER_SECOND)

    for unit, seconds in enumerate(spread.seconds):
        arcs.append((unit, sink, capacity(seconds.get(host))))
        arcs.append((source, unit, capacity(seconds.get(other))))
    makers = {value: unit for unit, values in enumerate(spread.makes) for value in values}
    consumers = spread.consumers()
    for value in (*spread.held, *makers):
        readers = consumers.get(value, ())
        asked = value in spread.asked
        if not readers and not asked:
            continue
        if value in makers:
            near = far = makers[value]
            upload = spread.bring_seconds(value, frozenset((host,)), other)
            download = spread.bring_seconds(value, frozenset((other,)), host)
        else:
            near, far = source, sink
            upload = spread.bring_seconds(value, spread.held[value], other)
            download = spread.bring_seconds(value, spread.held[value], host)
        if upload > 0 and readers:
            arcs.append((near, size, capacity(upload)))
            arcs += ((size, reader, never) for reader in readers)
            size += 1
        if download > 0:
            arcs.append((size, far, capacity(download)))
            arcs += ((reader, size, never) for reader in readers)
            if asked:
                arcs.append((source, size, never))
            size += 1
    most = sum(room for _, _, room in arcs if room != never) + 1
    arcs = [(tail, head, most if room == never else room) for tail, head, room in arcs if room]
    moved = far_side(size, arcs, source, sink)
    return [other if unit in moved else host for unit in range(count)]


def _descend(spread: Spread, start: Sequence[str]) -> list[str]:
    """Return the placement reached by moving single units as long as the total falls."""
    places = list(start)
    consumers = spread.consumers()
    makers = {value: unit for unit, values in enumerate(spread.makes) for value in values}

    def near_seconds(unit: int) -> float:
        """Return the part of the total that depends on where the unit runs."""
        seconds = spread.seconds[unit][places[unit]]
        for value in {*spread.reads[unit], *spread.makes[unit]}:
            maker = makers.get(value)
            holders = spread.held[value] if maker is None else frozenset((places[maker],))
            needed = {places[reader] for reader in consumers.get(value, ())}
            if value in spread.asked:
                needed.add(spread.spaces[0])
            seconds += sum(spread.bring_seconds(value, holders, space) for space in sorted(needed))
        return seconds

    # Each round lowers the total; past as many rounds as there are spaces a unit would have moved
    # through all of them.
    for _ in spread.spaces:
        moved = False
        for unit, seconds in enumerate(spread.seconds):
            best, least_seconds = places[unit], near_seconds(unit)
            for space in seconds:
                places[unit] = space
                if (candidate := near_seconds(unit)) < least_seconds:
                    best, least_seconds, moved = space, candidate, True
            places[unit] = best
        if not moved:
            break
    return places
