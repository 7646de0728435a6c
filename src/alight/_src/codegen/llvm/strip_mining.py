"""Stages of a loop group: a long chain runs strip by strip, one part of it after the other.

Where special functions depend on one another, one iteration is a longer chain than a processor
looks ahead, so that it waits for results. In a stage the functions depend on nothing but what lies
in memory, and many iterations are under way at once.
"""

from __future__ import annotations

from alight._src.base.records import dataclass, field
from alight._src.ir.graph import Graph, Node

# Elements of a strip: 16 buffers of float64 are 32 KiB, the smallest L1 in use. It is a multiple of
# all lanes.
STRIP = 256


@dataclass(slots=True)
class Part:
    """A stage: its nodes, the group's inputs it reads, and the values it takes from and gives to
    places in memory."""

    nodes: list[tuple[int, Node]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    takes: list[tuple[int, int]] = field(default_factory=list)
    gives: list[tuple[int, int]] = field(default_factory=list)


def in_stages(graph: Graph) -> list[Part]:
    """Return the stages of a loop group in their order."""
    first = len(graph.inputs)
    depths = [0] * first
    for node in graph.nodes:
        depth = max([depths[i] for i in node.operands], default=0)
        depths.append(depth + node.op.special)
    stages = [max(depth - 1, 0) for depth in depths]
    count = max(stages[first:], default=0) + 1
    last = list(stages)  # the last stage that needs a value
    for number, node in graph.numbered:
        for i in node.operands:
            last[i] = max(last[i], stages[number])
    for number in graph.outputs:
        last[number] = count - 1
    parts = [Part() for _ in range(count)]
    for number, node in graph.numbered:
        parts[stages[number]].nodes.append((number, node))
    free: dict[str, list[int]] = {}
    made = 0
    where: dict[int, int] = {}
    for at, part in enumerate(parts):
        needed = dict.fromkeys(i for _, node in part.nodes for i in node.operands)
        if at == count - 1:
            needed |= dict.fromkeys(graph.outputs)
        part.inputs = [i for i in needed if i < first]
        part.takes = [(i, where[i]) for i in needed if i in where]
        for number, node in part.nodes:
            if last[number] > at:
                places = free.setdefault(node.layout.dtype.name, [])
                where[number] = places.pop() if places else made
                made = max(made, where[number] + 1)
                part.gives.append((number, where[number]))
        for number, _ in part.takes:
            if last[number] == at:
                free.setdefault(graph.layouts[number].dtype.name, []).append(where[number])
    return parts


def places(graph: Graph, parts: list[Part]) -> list[str]:
    """Return the dtypes of the places in memory between stages."""
    found = {place: graph.layouts[v].dtype.name for part in parts for v, place in part.gives}
    return [found[place] for place in range(len(found))]
