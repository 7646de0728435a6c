"""Rolls that a loop does by itself: it reads each element from its place round the end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from alight._src.ir.group import Graph, Group, GroupKind, Node
from alight._src.ir.op import OPS

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Rolled", "as_copies", "rolls", "turns", "without_rolls"]

# Elements a roll may move for a loop to do it: how far is part of the code, and neighbours are what
# stencils read. Others are copied.
_FARTHEST = 8


def turns(node: Node) -> dict[int, int] | None:
    """Return by how many elements a roll moves along which axes; None for what is no roll, or none
    that a loop does."""
    if node.op.name != "roll" or len(node.operands) != 1:
        return None
    ndim = node.layout.ndim
    shift, axis = node.attr("shift"), node.attr("axis")
    if axis is None:
        if ndim != 1:
            return None
        axis = 0
    shifts = shift if isinstance(shift, tuple) else (shift,)
    axes = axis if isinstance(axis, tuple) else (axis,)
    if len(shifts) == 1:
        shifts *= len(axes)
    found: dict[int, int] = {}
    for by, along in zip_longest(shifts, axes):
        if type(by) is not int or type(along) is not int or not -ndim <= along < ndim:
            return None
        found[along % ndim] = found.get(along % ndim, 0) + by
    return found if all(abs(by) <= _FARTHEST for by in found.values()) else None


def rolls(graph: Graph, members: Iterable[int] | None = None) -> bool:
    """Tell whether one of a graph's nodes, or of some of them, is a roll."""
    first = len(graph.inputs)
    nodes = graph.nodes if members is None else [graph.nodes[m - first] for m in members]
    return any([node.op.name == "roll" for node in nodes])


def as_copies(group: Group) -> Group:
    """Return the group with copies in place of its rolls: it takes as long. A library's stays."""
    graph = group.graph
    if group.kind is GroupKind.LIBRARY or not rolls(graph):
        return group
    copy = OPS["copy"]
    nodes = [
        Node(copy, node.operands, (), node.layout) if node.op.name == "roll" else node
        for node in graph.nodes
    ]
    return Group(group.kind, Graph(graph.inputs, tuple(nodes), graph.outputs), group.shape)


@dataclass(frozen=True, slots=True)
class Rolled:
    """A group without rolls. ``sources`` says for each of its inputs which one of the original
    group's it lies in; ``turns`` has (input, axis of the group's shape, shift)."""

    group: Group
    sources: tuple[int, ...]
    turns: tuple[tuple[int, int, int], ...]


@lru_cache(256)  # a plan asks several times for each of its groups
def without_rolls(group: Group) -> Rolled | None:
    """Return a group with its rolls as inputs, None where it has none."""
    graph = group.graph
    if not rolls(graph):
        return None
    first = len(graph.inputs)
    inputs = list(graph.inputs)
    sources = list(range(first))
    found: list[tuple[int, int, int]] = []
    places: dict[int, int] = {}
    for number, node in graph.numbered:
        moves = turns(node)
        if moves is not None:
            places[number] = len(inputs)
            found += [(len(inputs), axis, by) for axis, by in moves.items() if by]
            inputs.append(graph.layouts[node.operands[0]])
            sources.append(node.operands[0])
    more = len(inputs) - first
    nodes = []
    for number, node in graph.numbered:
        if number in places:  # it may be an output, which has to be made
            nodes.append(Node(OPS["copy"], (places[number],), (), node.layout))
        else:
            operands = tuple([o + more if o >= first else o for o in node.operands])
            nodes.append(replace(node, operands=operands))
    outputs = tuple([o + more for o in graph.outputs])
    whole = Graph(tuple(inputs), tuple(nodes), outputs)
    return Rolled(Group(group.kind, whole, group.shape), tuple(sources), tuple(found))
