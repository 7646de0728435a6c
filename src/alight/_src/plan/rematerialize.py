"""Values computed again: where a region makes cheap values that others read, these may make them
themselves, and nothing is stored and read."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import Any

from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import Group
from alight._src.ir.op import Kind
from alight._src.plan.fuse import (
    KERNEL_ARRAYS,
    KERNEL_NODES,
    LEAST_GAIN_SECONDS,
    Region,
    group_of,
    is_too_much,
    prune,
    streams,
)
from alight._src.plan.plan import Estimate
from alight._src.plan.stages import Uses, over

# Flops spent to save a byte of traffic, where nothing is measured. The ridge of an H200 in float64
# (34 Tflop/s over 4.3 TB/s) is at 8 and that of one AVX2 core (16 flops a cycle, 10 GB/s) near 5:
# at 1, recomputing stays hidden.
FLOPS_PER_BYTE = 1.0


def recomputing(
    graph: Graph,
    uses: Uses,
    regions: list[Region],
    recompute: Container[Hashable],
    estimate: Callable[[Group, Any], Estimate | None],
    merged: Callable[[], list[Region]],
) -> list[Region]:
    """Return the regions, those whose key is in ``recompute`` with the nodes of values that are
    cheaper to compute again than to store and read: that takes fewer seconds by
    ``estimate(group, key)``, by the least gain; where these are not known, it moves fewer bytes.

    ``merged()`` are the regions as they run if nothing is computed again. What one of them both
    makes and reads is never stored, and what it makes beside costs no launch.
    """
    if all(r.kind is not GroupKind.LOOP or r.key not in recompute for r in regions):
        return regions
    work = _Recomputing(graph, uses, regions, estimate, merged)
    for home in regions:
        if home.kind is GroupKind.LOOP and home.key in recompute:
            work.visit(home)
    return prune(graph, uses, regions) if work.changed else regions


_NOTHING = Estimate(0.0, 0.0, 0.0, {})


class _Recomputing:
    def __init__(
        self,
        graph: Graph,
        uses: Uses,
        regions: list[Region],
        estimate: Callable[[Group, Any], Estimate | None],
        merged: Callable[[], list[Region]],
    ) -> None:
        self.graph = graph
        self.uses = uses
        self.estimate = estimate
        self.merged = merged
        self.wholes: dict[int, Region] = {}
        self.changed = False
        self.readers: dict[int, list[Region]] = {}
        self.reads: dict[int, set[int]] = {}
        for region in regions:
            within = set(region.members)
            own = {o for m in region.members for o in graph.made_by[m].operands} - within
            self.reads[id(region)] = own
            for operand in own:
                self.readers.setdefault(operand, []).append(region)
        self.stored = set(uses.live)
        for node in graph.nodes:
            if node.op.kind is Kind.VIEW or node.op.kind is Kind.WRITE:
                self.stored.update(node.operands)

    def whole(self, region: Region) -> Region:
        """Return what a region is a part of if nothing is computed again."""
        if not self.wholes:
            self.wholes = {number: one for one in self.merged() for number in one.owned}
        return self.wholes[next(iter(region.owned))]

    def visit(self, home: Region) -> None:
        """Have others compute what a loop gives them, where that pays."""
        graph, uses, stored = self.graph, self.uses, self.stored
        shape = over(graph, home.members[-1])
        can = [
            (value, takers)
            for value in home.members
            if value in home.owned
            for takers in [
                [
                    r
                    for r in self.readers.get(value, ())
                    if r.key == home.key and _same(graph, r, shape, value)
                ]
            ]
        ]
        for value, takers in can:
            if len(takers) < len(self.readers.get(value, ())):
                stored.add(value)
        for value, takers in can:
            cone = _cone(graph, self.whole(home), shape, value, stored) if takers else None
            if cone is None:
                continue
            nodes, leaves = cone
            if any(uses.base[leaf] in uses.written for leaf in leaves):
                continue  # it would be read past the write that is to happen in place
            extra = [(t, leaves - self.reads[id(t)]) for t in takers]
            if any(
                is_too_much(graph, uses, {*t.members, *nodes})
                or len(streams(graph, uses, self.reads[id(t)] | new)) > KERNEL_ARRAYS
                for t, new in extra
            ):
                continue
            if self.pays(home, value, extra, nodes, leaves):
                self.take(value, extra, nodes)

    def pays(
        self,
        home: Region,
        value: int,
        extra: Sequence[tuple[Region, set[int]]],
        nodes: set[int],
        leaves: set[int],
    ) -> bool:
        """Tell whether takers gain by computing a value themselves, each with what it has to read
        more."""
        whole = self.whole(home)
        apart = [(t, new) for t, new in extra if self.whole(t) is not whole]
        if not apart:
            return False
        stored = value in self.stored
        gain = self.gain(value, [taker for taker, _ in apart], nodes, leaves)
        if gain is not None:
            return gain > LEAST_GAIN_SECONDS
        graph = self.graph
        saved = graph.layouts[value].nbytes * (len(apart) + (not stored))
        saved -= sum(graph.layouts[leaf].nbytes for _, new in apart for leaf in new)
        flops = sum(graph.made_by[m].op.flops for m in nodes) * len(apart)
        return saved * FLOPS_PER_BYTE > flops * graph.layouts[value].size

    def gain(
        self, value: int, takers: Sequence[Region], nodes: set[int], leaves: set[int]
    ) -> float | None:
        """Return the seconds won where takers compute ``nodes`` themselves, from ``leaves`` on;
        None where unknown. What a kernel that becomes one of another kind takes less to launch is a
        difference of two curves, and no gain as long as they may be off by as much."""
        reading = {id(one): one for one in map(self.whole, takers)}
        making = [self.wholes[n] for n in (value, *leaves) if n in self.wholes]
        gain = 0.0
        for one in {**reading, **{id(one): one for one in making}}.values():
            before = self.given(one)
            after = before if value in self.stored else before - {value}
            if reading.keys() != {id(one)}:
                after = after | (leaves & one.owned)
            more = nodes if id(one) in reading else set()
            now = self.made(one, one.members, before)
            then = self.made(one, more.union(one.members), after)
            if now is None:
                continue
            took = self.estimate(group_of(self.graph, self.uses, now)[0], one.key)
            takes: Estimate | None = _NOTHING
            if then is not None:
                takes = self.estimate(group_of(self.graph, self.uses, then)[0], one.key)
            if took is None or takes is None:
                return None
            gain += took.seconds - takes.seconds
            if then is not None and then.kind is not now.kind:
                gain -= (1 - took.low / took.seconds) * took.terms.get("launch", 0.0)
        return gain

    def given(self, whole: Region) -> set[int]:
        """Return what others need of what a whole owns."""
        return {
            number
            for number in whole.owned
            if number in self.stored
            or any(self.whole(r) is not whole for r in self.readers.get(number, ()))
        }

    def made(self, whole: Region, members: Iterable[int], outputs: set[int]) -> Region | None:
        """Return a whole with those of these members that such outputs need; None where these are
        none."""
        made_by, wanted, inside = self.graph.made_by, set(outputs), []
        for number in sorted(members, reverse=True):
            if number in wanted:
                inside.append(number)
                wanted.update(made_by[number].operands)
        if not inside:
            return None
        inside.reverse()
        kind = whole.kind
        if kind is GroupKind.ROWWISE:
            reductions = {m for m in inside if made_by[m].op.kind is Kind.REDUCTION}
            if not any(reductions.intersection(made_by[m].operands) for m in inside):
                kind = GroupKind.REDUCE if reductions else GroupKind.LOOP
        return Region(kind, whole.key, whole.stage, inside, whole.owned, sorted(outputs))

    def take(self, value: int, extra: Sequence[tuple[Region, set[int]]], nodes: set[int]) -> None:
        """Have takers compute a value."""
        self.changed = True
        takers = [taker for taker, _ in extra]
        self.readers[value] = [r for r in self.readers[value] if r not in takers]
        for taker, new in extra:
            whole = self.whole(taker)
            whole.members = sorted({*whole.members, *nodes})
            taker.members = sorted({*taker.members, *nodes})
            self.reads[id(taker)] |= new
            self.reads[id(taker)].discard(value)
            for leaf in new:
                self.readers.setdefault(leaf, []).append(taker)


def _same(graph: Graph, region: Region, shape: tuple[int, ...], value: int) -> bool:
    """Tell whether a region goes over this shape and reads a value where it is made."""
    if region.kind is GroupKind.LIBRARY or over(graph, region.members[-1]) != shape:
        return False
    nodes = [graph.made_by[m] for m in region.members]
    return not any([n.op.kind is Kind.MOVEMENT and value in n.operands for n in nodes])


def _cone(
    graph: Graph, whole: Region, shape: tuple[int, ...], value: int, stored: set[int]
) -> tuple[set[int], set[int]] | None:
    """Return the nodes over a shape that compute a value again and the values they start from; None
    if dear."""
    within = {
        m
        for m in whole.members
        if graph.layouts[m].shape == shape
        and graph.made_by[m].op.kind not in (Kind.REDUCTION, Kind.SCAN)
    }
    nodes = {value}
    leaves: set[int] = set()
    ready = [value]
    while ready:
        node = graph.made_by[ready.pop()]
        if node.op.special or node.op.kind is Kind.MOVEMENT or len(nodes) > KERNEL_NODES:
            return None
        for operand in node.operands:
            if operand not in within or operand in stored:
                leaves.add(operand)
            elif operand not in nodes:
                nodes.add(operand)
                ready.append(operand)
    return nodes, leaves
