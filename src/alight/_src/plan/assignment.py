"""Work spread over memory spaces for the least sum of seconds, each copy paid once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from alight._src.base.records import dataclass, field

# A cut wants whole numbers. A picosecond is a thousandth of what any clock here resolves.
_PER_SECOND = 1e12


@dataclass(slots=True)
class Spread:
    """A placement to be found. Units are numbered in an order in which they can run.

    ``seconds[u]`` are the seconds of unit u in each space where it can run; ``reads[u]`` and
    ``makes[u]`` its values. ``held`` are the spaces of values that no unit makes; ``nbytes`` the
    size of each value; ``asked`` the values that the first space must end up with. ``caps`` are
    the bytes that fit in a space, ``kept`` the values that live on after all units. ``rent`` is
    what a byte is charged, in seconds, for each value that is in another space than the first.
    """

    spaces: tuple[str, ...]
    seconds: Sequence[Mapping[str, float]]
    reads: Sequence[Sequence[int]]
    makes: Sequence[Sequence[int]]
    held: Mapping[int, frozenset[str]]
    nbytes: Mapping[int, int]
    asked: frozenset[int]
    copy_seconds: Callable[[str, str, int], float]
    caps: Mapping[str, int] = field(default_factory=dict)
    kept: frozenset[int] = frozenset()
    rent: float = 0.0
    _consumers: dict[int, list[int]] = field(default_factory=dict, init=False, repr=False)

    def consumers(self) -> dict[int, list[int]]:
        """Return the units that read each value."""
        found = self._consumers
        if not found:
            for unit, values in enumerate(self.reads):
                for value in values:
                    found.setdefault(value, []).append(unit)
        return found

    def last(self) -> dict[int, int]:
        """Return the unit after which each value is needed no more."""
        end = len(self.seconds) - 1
        found = {value: unit for unit, values in enumerate(self.makes) for value in values}
        found.update({value: units[-1] for value, units in self.consumers().items()})
        found.update(dict.fromkeys([*self.kept, *(v for v in self.held if v not in found)], end))
        return found

    def bring_seconds(self, value: int, holders: frozenset[str], space: str) -> float:
        """Return the seconds until a space has a value that others hold."""
        if space in holders or not holders:
            return 0.0
        seconds = min(self.copy_seconds(holder, space, self.nbytes[value]) for holder in holders)
        return seconds + self.rent_seconds(value, space)

    def rent_seconds(self, value: int, space: str) -> float:
        """Return what a value is charged for being in a space."""
        return 0.0 if space == self.spaces[0] else self.rent * self.nbytes[value]

    def unit_seconds(self, unit: int) -> Mapping[str, float]:
        """Return the seconds of a unit in each space, with the rent of what it makes there."""
        seconds = self.seconds[unit]
        if not self.rent:
            return seconds
        nbytes = sum([self.nbytes[value] for value in self.makes[unit]])
        first = self.spaces[0]
        return {s: t if s == first else t + self.rent * nbytes for s, t in seconds.items()}

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


# States that are looked at for a whole placement. One takes 2 µs (one EPYC core): 100 units in
# three memories are placed within 10 ms.
_STATES = 4000
# For each unit, however many units there are. Random graphs of 60 units in four memories lost, in
# the mean, 52 % with 4 of them, 12 with 8, 4.2 with 16 and 4.1 with 32, against 300.
_FEWEST = 16


def least(spread: Spread) -> list[str]:
    """Return a space for each unit, of least total seconds, within the caps.

    Exact, where there is room for it, for one or two spaces, and for any number where few values
    are open at a time (chains, trees). Elsewhere the best states of that walk are improved by
    moving single units.
    """
    if not spread.caps:
        return _best(spread)
    from alight._src.plan.caps import within  # late, as below: hosts alone do without

    return within(spread, _best)


def _best(spread: Spread) -> list[str]:
    """Return a space for each unit, of least total seconds, as if all had room."""
    host, *others = spread.spaces
    if not others:
        return [host] * len(spread.seconds)
    if len(others) == 1:
        return _two(spread, host, others[0])
    from alight._src.plan.path_width_dp import narrow

    most = max(_FEWEST, _STATES // max(1, len(spread.seconds) * len(spread.spaces)))
    found = narrow(spread, most)
    return found.places if found.exact else _descend(spread, found.places)


def _two(spread: Spread, host: str, other: str) -> list[str]:
    """Return the exact answer where only these two spaces are used.

    A unit on the source's side runs on the host. For each value two more nodes make its copies be
    paid once, however many units read it: one lies beyond the upload, the other before the
    download.
    """
    from alight._src.plan.min_cut import far_side

    count = len(spread.seconds)
    source, sink, size = count, count + 1, count + 2
    arcs: list[tuple[int, int, int]] = []
    never = -1  # replaced below by more than all the rest together

    def capacity(seconds: float | None) -> int:
        return never if seconds is None else round(seconds * _PER_SECOND)

    for unit in range(count):
        seconds = spread.unit_seconds(unit)
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
        seconds = spread.unit_seconds(unit)[places[unit]]
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
