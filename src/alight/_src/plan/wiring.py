"""Whether the steps of a plan are the nodes of its rewritten graph, each with the operands that it
has there, whatever runs together, and wherever."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from alight._src.ir.graph import Graph, Node
from alight._src.ir.op import Kind
from alight._src.ir.rewrite import rewrite
from alight._src.plan.plan import LaunchStep, Step, ViewStep, WriteStep

__all__ = ["Wiring"]


class Wiring:
    """The nodes that a plan's steps may be, by the numbers that these go by."""

    def __init__(self, graph: Graph) -> None:
        small = rewrite(graph)
        self.graph = small.graph
        self.named: defaultdict[int, list[int]] = defaultdict(list)
        self.made: defaultdict[int, list[int]] = defaultdict(list)
        for number, (name, origin) in enumerate(zip(small.names, small.origins, strict=True)):
            self.named[name].append(number)
            self.made[origin].append(number)

    def faults(self, step: Step) -> Iterator[str]:
        """Yield where a step is no node, or reads what the node does not."""
        if isinstance(step, LaunchStep):
            yield from self._launch(step)
        elif isinstance(step, ViewStep):
            yield from self._window(step, (step.source,))
        else:
            yield from self._window(step, (step.old, step.value))

    def _launch(self, step: LaunchStep) -> Iterator[str]:
        inner = step.group.graph
        local = [self.named[number] for number in step.inputs]
        for node, origin in zip(inner.nodes, step.nodes, strict=False):
            operands = [local[o] for o in node.operands]
            here = [n for n in self.made[origin] if self._is(n, node, operands)]
            if not here:
                read = ", ".join([f"%{self._called(o, step)}" for o in node.operands])
                yield f"makes %{origin} as {node.op.name} of {read}"
            local.append(here)
        for number, output in zip(step.outputs, inner.outputs, strict=False):
            if local[output] and not set(local[output]) & set(self.named[number]):
                yield f"calls %{self._called(output, step)} %{number}"

    def _is(self, number: int, node: Node, operands: Sequence[Sequence[int]]) -> bool:
        """Tell whether a value of the graph is a group's node with these operands."""
        own = self.graph.made_by.get(number)
        if own is None or own.op is not node.op or own.attrs != node.attrs:
            return False
        return all([o in some for o, some in zip(own.operands, operands, strict=True)])

    def _called(self, local: int, step: LaunchStep) -> int:
        count = len(step.inputs)
        return step.inputs[local] if local < count else step.nodes[local - count]

    def _window(self, step: ViewStep | WriteStep, operands: Sequence[int]) -> Iterator[str]:
        places = [self.named[number] for number in operands]
        kind = Kind.VIEW if isinstance(step, ViewStep) else Kind.WRITE
        for number in self.named[step.target]:
            node = self.graph.made_by.get(number)
            if node is None or node.op.kind is not kind or node.attr("offset", 0) != step.offset:
                continue
            layout = node.layout if kind is Kind.VIEW else node.attr("layout")
            read = node.operands[: len(places)]
            if layout is step.layout and all(
                [o in some for o, some in zip(read, places, strict=True)]
            ):
                return
        read_as = ", ".join([f"%{number}" for number in operands])
        yield f"makes %{step.target} of {read_as}, {step.offset} bytes into it"
