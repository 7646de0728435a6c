"""Rolls that a loop does by itself: it reads each element from its place round the end."""

from __future__ import annotations

from alight._src.base.records import dataclass, replace
from alight._src.ir.graph import Graph, Node
from alight._src.ir.op import OPS

__all__ = ["Rolled", "as_copies", "without_rolls"]


def as_copies(graph: Graph) -> Graph:
    """Return a graph with copies in place of its rolls: it takes as long."""
    copy = OPS["copy"]
    nodes = [
        Node(copy, node.operands, (), node.layout) if number in graph.rolls else node
        for number, node in graph.numbered
    ]
    return Graph(graph.inputs, tuple(nodes), graph.outputs)


@dataclass(frozen=True, slots=True)
class Rolled:
    """A graph without rolls. ``sources`` says for each of its inputs which one of the original
    graph's it lies in; ``turns`` has (input, axis, shift)."""

    graph: Graph
    sources: tuple[int, ...]
    turns: tuple[tuple[int, int, int], ...]


def without_rolls(graph: Graph) -> Rolled:
    """Return a graph with its rolls as inputs."""
    first = len(graph.inputs)
    inputs = list(graph.inputs)
    sources = list(range(first))
    found: list[tuple[int, int, int]] = []
    places: dict[int, int] = {}
    for number, moves in graph.rolls.items():
        if moves is not None:
            (operand,) = graph.made_by[number].operands
            places[number] = len(inputs)
            found += [(len(inputs), axis, by) for axis, by in moves.items() if by]
            inputs.append(graph.layouts[operand])
            sources.append(operand)
    more = len(inputs) - first
    nodes = []
    for number, node in graph.numbered:
        if number in places:  # it may be an output, which has to be made
            nodes.append(Node(OPS["copy"], (places[number],), (), node.layout))
        else:
            operands = tuple([o + more if o >= first else o for o in node.operands])
            nodes.append(replace(node, operands=operands))
    outputs = tuple([o + more for o in graph.outputs])
    return Rolled(Graph(tuple(inputs), tuple(nodes), outputs), tuple(sources), tuple(found))
