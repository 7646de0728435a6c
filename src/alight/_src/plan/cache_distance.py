"""What nodes that run one by one are given, and how far away it is by then."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from alight._src.ir.op_table import Kind
from alight._src.plan.access_pattern import touched_bytes
from alight._src.plan.passes import loop_dtype

if TYPE_CHECKING:
    from alight._src.ir.graph import Graph, Node
    from alight._src.plan.curve import Curve
    from alight._src.plan.profile import Rates

__all__ = ["ReuseDistance"]


def _working_bytes(graph: Graph) -> int:
    """Return the bytes that nodes one by one go through until they begin anew: what comes in, what
    goes out and the intermediates that are there at a time."""
    layouts = [*graph.inputs, *[graph.layouts[i] for i in dict.fromkeys(graph.outputs)]]
    last = {i: number for number, node in graph.numbered for i in node.operands}
    held = most = 0
    for number, node in graph.numbered:
        held += node.layout.nbytes
        most = max(most, held)
        dead = [i for i in {*node.operands} if i >= len(graph.inputs) and last[i] == number]
        held -= sum([graph.layouts[i].nbytes for i in dead])
    return sum(map(touched_bytes, layouts)) + most


# Bytes from which on what was touched is in a cache that others spill into, or in none: beyond the
# second level of most machines.
_SPILLED = 1 << 21


class ReuseDistance:
    """How far away the operands of nodes are that run one by one: as far as what was gone through
    since they were last touched, in the run before where that is not in this one."""

    def __init__(self, rates: Rates, graph: Graph) -> None:
        self.rates = rates
        self.graph = graph
        self.whole = _working_bytes(graph)
        self.numbers = (n for n, node in graph.numbered if node.op.kind is not Kind.VIEW)
        self.touched: dict[int, float] = {}
        self.gone = 0.0
        # seconds of a byte by dtype, bytes of a node and those since: programs repeat their sizes
        self.known: dict[tuple[str, int, float], float] = {}

    def more(self, node: Node, nbytes: int) -> float:
        """Return the seconds that a node's operands take longer than where they are as near as in
        a pass alone; nodes are asked for in their order."""
        graph, seconds = self.graph, 0.0
        dtype = loop_dtype(graph, node)
        curve = self.rates.curves.get(f"elementwise/{dtype}")
        if curve is not None and nbytes:
            for i in {*node.operands}:
                since = self.gone - self.touched[i] + nbytes if i in self.touched else self.whole
                byte_seconds = self.known.get(key := (dtype, nbytes, since))
                if byte_seconds is None:
                    near = (curve.seconds_at(nbytes) - curve.knots[0][1]) / nbytes
                    byte_seconds = self.known[key] = self.farther(curve, since, near)
                seconds += touched_bytes(graph.layouts[i]) * byte_seconds
        self.gone += nbytes
        self.touched.update(dict.fromkeys((*node.operands, next(self.numbers)), self.gone))
        return seconds

    def farther(self, curve: Curve, since: float, near: float) -> float:
        """Return the seconds that a byte takes longer than ``near`` after so many others.

        What a cache that another one spills into is given once it keeps in part: on an EPYC of 32
        MB additions of 12 MB took 430 us after others, 210 right after that and 110 in the end. So
        it is halfway, in logarithms, to where it comes from again and again.
        """
        away = min(since, self.whole)
        if since > _SPILLED:
            away = math.sqrt(away * self.whole)
        far = (curve.seconds_at(away) - curve.knots[0][1]) / away
        return max(far - near, 0.0)
