"""The passes of a kernel over its rows: what is computed in which, and what is kept between them.

A row is what the reductions of a group reduction: the group's shape along the reduced axes. *Wide*
values have an element for each of the row's, *narrow* ones one for the row. A pass goes over the
row once; a reduction made in one can be used in the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._src.base.records import dataclass
from alight._src.ir.op_table import Kind

if TYPE_CHECKING:
    from alight._src.ir.graph import Graph, Node
    from alight._src.ir.group import Group

# Operations worth repeating to save a store and a load of the row: an L1 load has a latency of
# five additions (4 to 5 cycles on every x86-64 and ARM core of the last ten years).
_CHEAP_FLOPS = 5


@dataclass(frozen=True, slots=True)
class Pass:
    """One visit to the row, by value number. Before it ``scalars`` are computed from what the
    visits before it reduced; in it ``reductions`` are reduced, ``written`` wide outputs stored,
    ``saved`` wide values stored for later visits, and ``needed`` are the wide nodes computed for
    all that, in their order."""

    scalars: tuple[int, ...]
    reductions: tuple[int, ...]
    written: tuple[int, ...]
    saved: tuple[int, ...]
    needed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Phases:
    """All passes; the last has only scalars. ``home[v]`` is the output whose memory keeps a wide
    value from the pass that makes it to those that read it again."""

    passes: tuple[Pass, ...]
    home: dict[int, int]
    wide: frozenset[int]


def is_wide(group: Group, node: Node) -> bool:
    """Tell whether an elementwise node has an element for each of the row's."""
    return node.layout.shape == group.shape


def phases(group: Group) -> Phases:
    """Return the passes of a group of reductions and elementwise nodes."""
    graph = group.graph
    first = len(graph.inputs)
    ready = [0] * first
    wide: set[int] = set()
    for _, node in graph.numbered:
        at = max([ready[o] for o in node.operands], default=0)
        ready.append(at + (node.op.kind is Kind.REDUCTION))
        if node.op.kind is Kind.ELEMENTWISE and is_wide(group, node):
            wide.add(len(ready) - 1)
    made = {n: ready[n] - (n not in wide and n in graph.axes) for n, _ in graph.numbered}
    last = max([made[n] for n in made if n in wide or n in graph.axes], default=0)
    outputs = tuple(dict.fromkeys(graph.outputs))
    home = _homes(graph, wide, made, outputs)
    passes = []
    for number in range(last + 1):
        reductions = tuple(n for n in made if n in graph.axes and made[n] == number)
        written = tuple(n for n in outputs if n in wide and made[n] == number)
        saved = tuple(n for n in home if made[n] == number and n not in written)
        targets = {*written, *saved}
        targets.update(o for n in reductions for o in graph.made_by[n].operands)
        needed = _needed(graph, targets, wide, {n for n in home if made[n] < number})
        passes.append(Pass(_scalars(graph, wide, made, number), reductions, written, saved, needed))
    passes.append(Pass(_scalars(graph, wide, made, last + 1), (), (), (), ()))
    return Phases(tuple(passes), home, frozenset(wide))


def _scalars(graph: Graph, wide: set[int], made: dict[int, int], number: int) -> tuple[int, ...]:
    return tuple(n for n in made if n not in wide and n not in graph.axes and made[n] == number)


def _needed(graph: Graph, targets: set[int], wide: set[int], kept: set[int]) -> tuple[int, ...]:
    """Return the wide nodes to compute for the targets, from inputs and what is kept."""
    found: set[int] = set()
    ready = [t for t in targets if t in wide and t not in kept]
    while ready:
        number = ready.pop()
        if number not in found:
            found.add(number)
            operands = graph.made_by[number].operands
            ready += [o for o in operands if o in wide and o not in kept]
    return tuple(sorted(found))


def _homes(
    graph: Graph, wide: set[int], made: dict[int, int], outputs: tuple[int, ...]
) -> dict[int, int]:
    """Return where dear wide values stay between passes: in their own output, or in that of a value
    of their dtype which is written when they are read for the last time, or later."""
    flops: dict[int, float] = {}
    for number, node in graph.numbered:
        if number in wide:
            own = _CHEAP_FLOPS + 1.0 if node.op.special else node.op.flops
            flops[number] = own + sum(flops.get(o, 0.0) for o in node.operands)
    reads: dict[int, int] = {}
    for number, node in reversed(list(graph.numbered)):
        for operand in node.operands:
            if operand in wide:
                # a wide reader may itself be computed again in a later pass
                at = max(made[number], reads.get(number, 0))
                reads[operand] = max(reads.get(operand, 0), at)
    home: dict[int, int] = {}
    taken: set[int] = set()
    for value in sorted(wide):
        if reads.get(value, 0) <= made[value] or flops[value] <= _CHEAP_FLOPS:
            continue
        if value in outputs:
            home[value] = value
            continue
        dtype = graph.made_by[value].layout.dtype
        for other in outputs:
            fits = other in wide and other not in taken and graph.layouts[other].dtype == dtype
            if fits and made[other] >= reads[value]:
                home[value] = other
                taken.add(other)
                break
    return home
