"""Work spread over any number of memories, exactly where few values are open at a time.

One unit after another gets its space, in an order in which few values lie between units that have
one and units that do not. A state is what matters of the choices so far: for each open value, where
it was made and which spaces it was brought to. Chains and trees have few states, and so do programs
that pass a handful of values on; elsewhere the cheapest states are kept, and the answer is good
but no longer proven.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from alight._src.plan.assignment import Spread


class Found(NamedTuple):
    """A space for each unit; ``exact``: no state was dropped, so no placement is better."""

    places: list[str]
    exact: bool


def narrow(spread: Spread, most: int) -> Found:
    """Return a placement of least total seconds, looking at ``most`` states for each unit."""
    return _Walk(spread).run(most)


class _Walk:
    """The values of a spread by number, and what it costs to bring each from where to where.

    A value's code is (origin << spaces) + the spaces it is wanted in. Origin 0 is a value whose
    maker has no place yet, i + 1 is space i, and the last one stands for a value that no unit
    makes.
    """

    def __init__(self, spread: Spread) -> None:
        self.spread = spread
        self.width = width = len(spread.spaces)
        self.numbers = {space: i for i, space in enumerate(spread.spaces)}
        self.makers = {v: unit for unit, values in enumerate(spread.makes) for v in values}
        self.readers = spread.consumers()
        self.values = [
            v
            for v in (*spread.held, *self.makers)
            if v in self.readers or (v in spread.asked and v in self.makers)
        ]
        wanted = set(self.values)
        self.touched: list[list[int]] = [
            [v for v in dict.fromkeys((*reads, *makes)) if v in wanted]
            for reads, makes in zip(spread.reads, spread.makes, strict=True)
        ]
        self.bring: dict[int, list[list[float]]] = {}
        alone = [frozenset((space,)) for space in spread.spaces]
        known: dict[tuple[int, frozenset[str]], list[list[float]]] = {}
        for v in self.values:
            held = spread.held.get(v, frozenset())
            rows = known.get((spread.nbytes[v], held))
            if rows is None:
                rows = [[spread.bring_seconds(v, h, to) for to in spread.spaces] for h in alone]
                rows.append([spread.bring_seconds(v, held, to) for to in spread.spaces])
                known[spread.nbytes[v], held] = rows = [[0.0] * width, *rows]
            self.bring[v] = rows

    def order(self) -> list[int]:
        """Return the units so that few values are open at a time: always the one that opens the
        fewest next."""
        left = {v: 0 for v in self.values}
        near: dict[int, list[int]] = {v: [] for v in self.values}
        for unit, values in enumerate(self.touched):
            for v in values:
                left[v] += 1
                near[v].append(unit)
        opened: set[int] = set()
        waiting = dict.fromkeys(range(len(self.touched)))
        beside: dict[int, None] = {}
        result = []
        while waiting:

            def grows(unit: int) -> int:
                return sum((v not in opened) - (left[v] == 1) for v in self.touched[unit])

            unit = min(beside, key=lambda u: (grows(u), u)) if beside else next(iter(waiting))
            result.append(unit)
            del waiting[unit]
            beside.pop(unit, None)
            for v in self.touched[unit]:
                left[v] -= 1
                if v not in opened:
                    opened.add(v)
                    beside.update(dict.fromkeys(u for u in near[v] if u in waiting))
        return result

    def run(self, most: int) -> Found:
        """Return the placement reached by walking the units in order."""
        spread, width = self.spread, self.width
        last: dict[int, int] = {}
        order = self.order()
        for unit in order:
            last.update(dict.fromkeys(self.touched[unit], unit))
        live: list[int] = []
        exact = True
        # Each state with its seconds and the choices that led to it, the last one outermost.
        states: dict[tuple[int, ...], tuple[float, tuple[object, ...]]] = {(): (0.0, ())}
        for unit in order:
            touched = self.touched[unit]
            fresh = [v for v in touched if v not in live]
            live += fresh
            start = tuple([(width + 1) << width if v in spread.held else 0 for v in fresh])
            at = [live.index(v) for v in touched]
            makes = set(spread.makes[unit])
            closed = {i for i, v in enumerate(live) if last[v] == unit}
            kept = [i for i in range(len(live)) if i not in closed]
            options = [
                (self.numbers[s], seconds) for s, seconds in spread.unit_seconds(unit).items()
            ]
            # What the unit does to the values it touches depends on nothing else of the state.
            steps: dict[tuple[int, ...], list[tuple[float, tuple[int, ...], int]]] = {}
            following: dict[tuple[int, ...], tuple[float, tuple[object, ...]]] = {}
            for state, (cost, before) in states.items():
                codes = state + start
                own = tuple([codes[i] for i in at])
                found = steps.get(own)
                if found is None:
                    found = steps[own] = [
                        (*self.step(touched, own, makes, closed, at, space, seconds), space)
                        for space, seconds in options
                    ]
                for seconds, changed, space in found:
                    new = list(codes)
                    for i, code in zip(at, changed, strict=True):
                        new[i] = code
                    key = tuple([new[i] for i in kept])
                    total = cost + seconds
                    best = following.get(key)
                    if best is None or total < best[0]:
                        following[key] = total, (space, before)
            if len(following) > most:
                exact = False
                following = dict(nsmallest(most, following.items(), key=lambda item: item[1][0]))
            states = following
            live = [live[i] for i in kept]
        _, choices = min(states.values(), key=lambda item: item[0])
        places = [""] * len(order)
        for unit in reversed(order):
            number, choices = choices  # type: ignore[assignment]
            places[unit] = spread.spaces[number]  # type: ignore[call-overload]
        return Found(places, exact)

    def step(
        self,
        touched: list[int],
        codes: tuple[int, ...],
        makes: set[int],
        closed: set[int],
        at: list[int],
        space: int,
        seconds: float,
    ) -> tuple[float, tuple[int, ...]]:
        """Return the seconds of a unit in a space with its copies, and the codes it leaves."""
        width = self.width
        full = (1 << width) - 1
        changed = []
        for v, code, position in zip(touched, codes, at, strict=True):
            origin, wanted = code >> width, code & full
            if v in makes:
                origin = space + 1
                row = self.bring[v][origin]
                seconds += sum(row[s] for s in range(width) if wanted >> s & 1)
            elif not wanted >> space & 1:
                wanted |= 1 << space
                seconds += self.bring[v][origin][space]
            if position in closed and v in self.spread.asked and not wanted & 1:
                seconds += self.bring[v][origin][0]
            changed.append(origin << width | wanted)
        return seconds, tuple(changed)
