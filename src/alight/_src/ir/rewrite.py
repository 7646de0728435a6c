"""A graph made smaller: equal values merged, views and casts reduced, what nobody needs dropped.

Every rule gives the same bits (where NumPy itself does not promise them, the payload of a NaN, it
may differ). Reducing of ops on constants is not among them: a graph holds layouts and no values, so
that one plan serves every value of a scalar.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.base.records import dataclass
from alight._src.ir.graph import Graph, Node
from alight._src.ir.op import Kind
from alight._src.ir.rules import BY_KIND, BY_NAME, Rule


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A smaller graph with the same outputs. ``names[i]`` is the number that value i has in the
    original graph; every output keeps its own. ``origins[i]`` is the original node that value i is
    computed as."""

    graph: Graph
    names: tuple[int, ...]
    origins: tuple[int, ...]


def rewrite(graph: Graph) -> Rewritten:
    """Return the graph after all rules; outputs stay values of their own, apart from inputs and
    each other."""
    work = Work(graph)
    for number, node in graph.numbered:
        work.add(number, node)
    return work.finished()


class Work:
    """A graph being rewritten, front to back: ``new`` maps its numbers to those of ``nodes``."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.first = len(graph.inputs)
        self.live = frozenset(graph.outputs)
        self.nodes: list[Node] = []
        self.reads_others = False  # whether a node is there that its readers may do without
        self.new = list(range(self.first))
        self.names = list(range(self.first))
        self.origins = list(range(self.first))
        self.seen: dict[tuple[Any, ...], int] = {}
        self.number = self.origin = 0  # of the node being added: its own, and what it is made as
        self.consumers: Counter[int] | None = None
        self.readers: defaultdict[int, list[tuple[Node, int]]] | None = None

    def node(self, number: int) -> Node | None:
        """Return the node of a value, None for an input."""
        return self.nodes[number - self.first] if number >= self.first else None

    def layout(self, number: int) -> Any:
        """Return the layout of a value."""
        node = self.node(number)
        return self.graph.inputs[number] if node is None else node.layout

    def add(self, number: int, node: Node) -> None:
        """Append a node, rewritten, or use a value that equals it."""
        self.number = self.origin = number
        operands = tuple([self.new[o] for o in node.operands])
        if operands != node.operands:
            node = Node(node.op, operands, node.attrs, node.layout)
        kind = node.op.kind
        # Each rule takes a node away or brings it closer to the inputs, so this ends.
        rules = self.rules_of(node)
        again = bool(rules)
        while again:
            again = False
            for rule in rules:
                found = rule(self, node)
                if found is None:
                    continue
                if isinstance(found, int):
                    if self.stands_for(found, number):
                        return
                    continue
                node = found
                rules = self.rules_of(node)
                again = True
                break

        # Two creations may be written to apart from each other, so merging them only moves a copy.
        if kind is not Kind.CREATION:
            try:
                attrs = exactly(node.attrs) if node.attrs else ()
                key = (node.op, node.operands, node.layout, attrs)
                same = self.seen.get(key)
            except failures(TypeError):  # an attribute that cannot be compared
                pass
            else:
                if same is not None and self.takes_over(same, number):
                    return
                self.seen[key] = self.first + len(self.nodes)
        self.new.append(self.first + len(self.nodes))
        self.nodes.append(node)
        self.reads_others = self.reads_others or _is_read_past(node)
        self.names.append(number)
        self.origins.append(self.origin)

    def rules_of(self, node: Node) -> tuple[Rule, ...]:
        """Return the rules that may hold of a node."""
        kind = node.op.kind
        if kind is Kind.ELEMENTWISE and not self.reads_others:
            return BY_NAME.get(node.op.name, ())
        return BY_KIND.get(kind, ()) + BY_NAME.get(node.op.name, ())

    def is_own(self, number: int) -> bool:
        """Tell whether a value has one reader in the original graph, and stands for no other
        value."""
        if self.consumers is None:
            self.consumers = Counter(o for node in self.graph.nodes for o in node.operands)
        name = self.names[number]
        alone = self.consumers[name] == 1 and name not in self.live
        return alone and self.new.count(number) == 1

    def is_read_by(self, name: int, allowed: Callable[[Node, int], bool]) -> bool:
        """Tell whether all readers of a value of the original graph, given with their numbers, are
        allowed; the outside is none that is."""
        if name in self.live:
            return False
        return all([allowed(*reader) for reader in self.readers_of(name)])

    def readers_of(self, name: int) -> list[tuple[Node, int]]:
        """Return the readers of a value of the original graph, with their numbers."""
        if self.readers is None:
            self.readers = defaultdict(list)
            for number, node in self.graph.numbered:
                for operand in set(node.operands):
                    self.readers[operand].append((node, number))
        return self.readers[name]

    def follows(self, later: int, version: int) -> bool:
        """Tell whether a version of the original graph is another, or made of it by writes."""
        while later > version:
            node = self.graph.nodes[later - self.first]
            if node.op.kind is not Kind.WRITE:
                return False
            later = node.operands[0]
        return later == version

    def instead(self, number: int, node: Node) -> int:
        """Append a node that takes the name of a value which only it is going to be read for."""
        self.seen = {key: value for key, value in self.seen.items() if value != number}
        self.nodes.append(node)
        self.reads_others = self.reads_others or _is_read_past(node)
        self.names.append(self.names[number])
        self.origins.append(self.origins[number])
        return self.first + len(self.nodes) - 1

    def stands_for(self, found: int, number: int) -> bool:
        """Use a value for another that equals it, unless that one must have bytes of its own."""
        node = self.node(found)
        if node is not None and node.op.kind is Kind.VIEW and number in self.live:
            return False
        return self.takes_over(found, number)

    def takes_over(self, found: int, number: int) -> bool:
        """Use a value for another; an output takes over the name of a value that is none."""
        if number in self.live:
            if found < self.first or self.names[found] in self.live:
                return False
            self.names[found] = number
        self.new.append(found)
        return True

    def finished(self) -> Rewritten:
        """Return what the outputs need, numbered anew."""
        first = self.first
        needed = {self.new[o] for o in self.graph.outputs}
        for number in range(first + len(self.nodes) - 1, first - 1, -1):
            if number in needed:
                needed.update(self.nodes[number - first].operands)
        kept = [n for n in range(first, first + len(self.nodes)) if n in needed]
        place = list(range(first)) + [-1] * len(self.nodes)
        nodes = []
        for index, number in enumerate(kept, first):
            place[number] = index
            node = self.nodes[number - first]
            operands = tuple([place[o] for o in node.operands])
            if operands != node.operands:
                node = Node(node.op, operands, node.attrs, node.layout)
            nodes.append(node)
        kept[:0] = range(first)
        return Rewritten(
            Graph(
                self.graph.inputs,
                tuple(nodes),
                tuple([place[self.new[o]] for o in self.graph.outputs]),
            ),
            tuple([self.names[n] for n in kept]),
            tuple([self.origins[n] for n in kept]),
        )


def exactly(value: Any) -> Any:
    """Return a key that only the very same attribute has: 1 is not True, and 0.0 is not -0.0.

    Raises TypeError for what has no such key.
    """
    kind = type(value)
    if kind is tuple:
        return (tuple, *[exactly(part) for part in value])
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if isinstance(value, np.generic):
        return kind, value.dtype.str, value.tobytes()
    hash(value)
    return kind, value


def _is_read_past(node: Node) -> bool:
    """Tell whether what reads a node may read something else instead: `rules.read_of_written`,
    `rules.read_of_repeated`."""
    kind = node.op.kind
    return kind is Kind.VIEW or kind is Kind.WRITE or node.op.name == "copy"
