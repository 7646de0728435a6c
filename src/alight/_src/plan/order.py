"""Units of work in the order they run: regions, views and writes."""

from __future__ import annotations

import heapq

from alight._src.base.records import dataclass
from alight._src.ir.graph import Graph, Node
from alight._src.ir.group import Group
from alight._src.ir.op import Kind
from alight._src.plan.fuse import Region, group_of
from alight._src.plan.stages import Uses


@dataclass(slots=True)
class Unit:
    """One step to be: a group, or (``group`` is None) one view or write."""

    nodes: list[int]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    group: Group | None
    node: Node | None
    region: Region | None = None


def in_order(graph: Graph, uses: Uses, regions: list[Region]) -> list[Unit]:
    """Return the units in an order in which they can run, close to the program's own.

    Readers of a version come before the write that replaces it, so that it can be done in place.
    """
    units = []
    for region in regions:
        group, inputs = group_of(graph, uses, region)
        units.append(Unit(region.members, inputs, tuple(region.outputs), group, None, region))
    for number, node in graph.numbered:
        if node.op.kind is Kind.VIEW or node.op.kind is Kind.WRITE:
            units.append(Unit([number], node.operands, (number,), None, node))

    makers: dict[int, int] = {}
    for index, unit in enumerate(units):
        owned = unit.nodes if unit.region is None else unit.region.owned
        makers.update(dict.fromkeys(owned, index))
    followers: list[set[int]] = [set() for _ in units]
    for index, unit in enumerate(units):
        for value in unit.inputs:
            if value in makers:
                followers[makers[value]].add(index)
    for write, readers in uses.before.items():
        for reader in readers:
            if reader in makers:
                followers[makers[reader]].add(makers[write])

    waiting = [0] * len(units)
    for after in followers:
        for index in after:
            waiting[index] += 1
    ready = [(unit.nodes[-1], i) for i, unit in enumerate(units) if not waiting[i]]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, index = heapq.heappop(ready)
        ordered.append(units[index])
        for after_index in followers[index]:
            waiting[after_index] -= 1
            if not waiting[after_index]:
                heapq.heappush(ready, (units[after_index].nodes[-1], after_index))
    if len(ordered) != len(units):
        raise RuntimeError(
            f"planning made a cycle: {len(units) - len(ordered)} of {len(units)} units wait for "
            f"one another.\n{graph}\nFix: report this graph."
        )
    return ordered
