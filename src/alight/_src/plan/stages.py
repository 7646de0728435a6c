"""Stages: which nodes may share a kernel without a cycle.

Every node gets a stage: the stages of what it reads, plus one unless the two fuse. Nodes of one
class (iteration shape and key) and one stage may then run together in any combination, and the
result has no cycle, because every path that leaves a region climbs. One pass up, one pass down:
linear in the graph.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import Group
from alight._src.ir.op import Kind


class Uses:
    """Who reads what in a graph, by value number. ``before[w]`` are the readers of the bytes that
    write ``w`` replaces, recorded before it: where they run first, the write can be done in
    place. ``groups`` are those that were made of the graph, by what they are of (see `group_of`);
    ``distinct``: one of each that are equal; ``works`` what some nodes together are for a
    compiler, which is asked of the same ones again and again, ``sizes`` what one's body is."""

    __slots__ = (
        *("base", "before", "consumers", "distinct", "groups", "live", "sizes", "works", "written"),
    )

    def __init__(self, graph: Graph, bases: Sequence[int] = ()) -> None:
        first = len(graph.inputs)
        total = first + len(graph.nodes)
        self.live = frozenset(graph.outputs)
        self.groups: dict[Hashable, tuple[Group, tuple[int, ...]]] = {}
        self.works: dict[tuple[int, ...], float] = {}
        self.sizes: dict[int, int] = {}
        self.distinct: dict[tuple[GroupKind, Graph, tuple[int, ...]], Group] = {}
        self.base = base = list(range(total))
        base[: len(bases)] = bases
        self.consumers: list[list[int]] = [[] for _ in range(total)]
        self.before: dict[int, list[int]] = {}
        self.written: set[int] = set()
        readers: dict[int, list[int]] = {}
        for number, node in graph.numbered:
            kind = node.op.kind
            for operand in dict.fromkeys(node.operands):
                self.consumers[operand].append(number)
                if kind is not Kind.VIEW:
                    readers.setdefault(base[operand], []).append(number)
            if kind is Kind.VIEW:
                base[number] = base[node.operands[0]]
            elif kind is Kind.WRITE:
                old = base[node.operands[0]]
                self.written.add(old)
                self.before[number] = [r for r in readers[old] if r != number]
                # Whatever comes later and is ordered after this write is ordered after those too.
                readers[old] = [number]


def together(graph: Graph, uses: Uses, keys: Sequence[Hashable]) -> list[tuple[int, list[int]]]:
    """Return the nodes that can run together, with their stage; views and writes left out."""
    classes = _classes(graph, keys)
    kinds = _kinds(graph, classes)
    stages = _stages(graph, uses, classes, kinds)
    return [(stages[part[0]], part) for part in _components(graph, classes, kinds, stages)]


def over(graph: Graph, number: int) -> tuple[int, ...]:
    """Return the iteration shape of a node."""
    node = graph.made_by[number]
    if node.op.kind is Kind.REDUCTION:
        return graph.layouts[node.operands[0]].shape
    return node.layout.shape


def _classes(graph: Graph, keys: Sequence[Hashable]) -> list[int]:
    """Return for each value the number of its class, or -1 where it runs alone."""
    found: dict[Hashable, int] = {}
    classes = [-1] * len(graph.inputs)
    for (number, node), key in zip(graph.numbered, keys, strict=True):
        # a roll that no place can do in a loop has an empty key
        rolled = key and graph.rolls.get(number) is not None
        if rolled or node.op.kind is Kind.ELEMENTWISE or node.op.kind is Kind.REDUCTION:
            classes.append(found.setdefault((over(graph, number), key), len(found)))
        else:
            classes.append(-1)
    return classes


def _kinds(graph: Graph, classes: list[int]) -> list[tuple[Kind, bool]]:
    """Return of each node its kind, that of a roll in a loop being elementwise, and whether it is
    one: such a roll shares a kernel with who reads it, not with what it reads."""
    found = []
    for number, node in graph.numbered:
        rolled = node.op.kind is Kind.MOVEMENT and classes[number] >= 0
        found.append((Kind.ELEMENTWISE if rolled else node.op.kind, rolled))
    return found


def _stages(
    graph: Graph, uses: Uses, classes: list[int], kinds: list[tuple[Kind, bool]]
) -> list[int]:
    """Return the stage of each value; that of an input or a view is the first stage that can read
    it."""
    first = len(graph.inputs)
    stages = [0] * first
    for number, node in graph.numbered:
        own = classes[number]
        rolled = kinds[number - first][1]
        stage = 0
        for operand in node.operands:
            at = stages[operand]
            if operand >= first:
                kind = kinds[operand - first][0]
                fused = kind is Kind.ELEMENTWISE and classes[operand] == own and not rolled
                if not fused and kind is not Kind.VIEW:
                    at += 1
            if at > stage:
                stage = at
        for reader in uses.before.get(number, ()):
            stage = max(stage, stages[reader] + 1)
        stages.append(stage)

    _settle(graph, uses, classes, kinds, stages)
    _join(graph, uses, classes, kinds, stages)
    return stages


def _settle(
    graph: Graph,
    uses: Uses,
    classes: list[int],
    kinds: list[tuple[Kind, bool]],
    stages: list[int],
) -> None:
    """Move to a later stage what only that stage reads, where no more bytes cross than before."""
    first = len(graph.inputs)
    made_by = graph.made_by
    blocks: dict[int, list[int]] = {}
    for write, readers in uses.before.items():
        for reader in readers:
            blocks.setdefault(reader, []).append(write)

    def crossing_bytes(value: int) -> int:
        return made_by[value].layout.nbytes * (1 if value in uses.live else 2)

    for number in range(len(stages) - 1, first - 1, -1):
        consumers = uses.consumers[number]
        node = made_by[number]
        if not consumers:
            continue
        if node.op.kind is Kind.VIEW:
            stages[number] = max(stages[number], min([stages[c] for c in consumers]))
        elif kinds[number - first][0] is Kind.ELEMENTWISE:
            own, now = classes[number], stages[number]
            late = min([stages[c] - (classes[c] != own or kinds[c - first][1]) for c in consumers])
            for write in blocks.get(number, ()):
                late = min(late, stages[write] - 1)
            if late <= now or not any(classes[c] == own and stages[c] == late for c in consumers):
                continue
            torn = {
                o
                for o in node.operands
                if o >= first
                and classes[o] == own
                and stages[o] == now
                and made_by[o].op.kind is Kind.ELEMENTWISE
                and (len(uses.consumers[o]) > 1 or o in uses.live)
            }
            if sum(map(crossing_bytes, torn)) <= crossing_bytes(number):
                stages[number] = late


def _join(
    graph: Graph,
    uses: Uses,
    classes: list[int],
    kinds: list[tuple[Kind, bool]],
    stages: list[int],
) -> None:
    """Move what a class computes in one stage to the next one that it has, as much together as that
    stage may, where fewer bytes cross then: some of it waited for nothing, but one value of another
    shape, as a row, parted it from the rest."""
    first = len(graph.inputs)
    members: dict[tuple[int, int], list[int]] = {}
    for number, _ in graph.numbered:
        if classes[number] >= 0 and kinds[number - first][0] is Kind.ELEMENTWISE:
            members.setdefault((classes[number], stages[number]), []).append(number)
    following: dict[int, int] = {}
    for own, stage in sorted(members, reverse=True):
        late = following.get(own)
        following[own] = stage
        if late is None:
            continue
        moved = _movable(uses, classes, kinds, stages, members[own, stage], late, first)
        if moved and _joins(graph, uses, members[own, stage], members[own, late], moved):
            for number in moved:
                stages[number] = late
            members[own, late] = sorted([*moved, *members[own, late]])


def _movable(
    uses: Uses,
    classes: list[int],
    kinds: list[tuple[Kind, bool]],
    stages: list[int],
    members: list[int],
    late: int,
    first: int,
) -> set[int]:
    """Return which members of a stage may be computed in a later one."""
    blocked = {reader for readers in uses.before.values() for reader in readers}
    moved: set[int] = set()
    for number in reversed(members):
        if number in blocked:  # before what it reads is written
            continue
        own = classes[number]
        if all(
            c in moved or stages[c] >= late + (classes[c] != own or kinds[c - first][1])
            for c in uses.consumers[number]
        ):
            moved.add(number)
    return moved


def _joins(
    graph: Graph, uses: Uses, members: list[int], others: list[int], moved: set[int]
) -> bool:
    """Tell whether fewer bytes are stored and read if what moves joins the others."""
    readers = {*others}

    def nbytes(value: int) -> int:
        return graph.layouts[value].nbytes * (1 if value in uses.live else 2)

    before = sum(nbytes(v) for v in members if not readers.isdisjoint(uses.consumers[v]))
    readers |= moved
    stay = [v for v in members if v not in moved]
    after = sum(nbytes(v) for v in stay if not readers.isdisjoint(uses.consumers[v]))
    made = graph.made_by
    read = {o for v in stay for o in made[v].operands}.difference(members)
    again = read.intersection([o for v in moved for o in made[v].operands])
    return after + sum(graph.layouts[v].nbytes for v in again) < before


def _components(
    graph: Graph, classes: list[int], kinds: list[tuple[Kind, bool]], stages: list[int]
) -> list[list[int]]:
    """Return the nodes that run together: of one class and stage, linked by a value or reading the
    same one."""
    first = len(graph.inputs)
    parent = list(range(first + len(graph.nodes)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = number = parent[parent[number]]
        return number

    readers: dict[tuple[int, int, int], int] = {}
    for number, node in graph.numbered:
        own = classes[number]
        if own < 0:
            continue
        shape = over(graph, number)
        for operand in node.operands:
            other = operand
            if not (
                operand >= first
                and classes[operand] == own
                and stages[operand] == stages[number]
                and kinds[operand - first][0] is Kind.ELEMENTWISE
            ):
                if graph.layouts[operand].shape != shape:
                    continue  # a scalar read by both saves nothing
                other = readers.setdefault((own, stages[number], operand), number)
            parent[root(other)] = root(number)
    found: dict[int, list[int]] = {}
    for number, node in graph.numbered:
        if node.op.kind is not Kind.VIEW and node.op.kind is not Kind.WRITE:
            found.setdefault(root(number), []).append(number)
    return list(found.values())
