"""How a group splits along its first axis, so that it can pass a device in chunks; which steps may,
and how many chunks are best.

An elementwise group splits wherever its operands do: those that have the axis are cut, those that
are broadcast along it stay whole. What comes of the chunks is laid one behind the other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from alight._core import Layout, make_layout
from alight._src.base.records import dataclass, replace
from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import Group
from alight._src.ir.op_table import Kind
from alight._src.plan.plan import Estimate, Facts, LaunchStep, Step, ViewStep
from alight.device import HOST_DEVICE

__all__ = ["SLOTS", "Split", "chunk_rows", "passing", "passing_rows", "split"]

# Chunks under way at once: one comes, one is worked on, one goes.
SLOTS = 3


@dataclass(frozen=True, slots=True)
class Split:
    """A group by rows of its first axis. ``cut`` tells of each input whether it has the axis;
    ``given`` and ``made`` are bytes of a row, ``whole`` those of inputs that stay whole."""

    group: Group
    rows: int
    cut: tuple[bool, ...]
    given: int
    made: int
    whole: int

    def part(self, rows: int) -> Group:
        """Return the group of so many rows."""
        graph = self.group.graph

        def fewer(layout: Layout) -> Layout:
            if not _has_rows(layout, self.group.shape):
                return layout
            return make_layout(layout.dtype, (rows, *layout.shape[1:]))

        nodes = [replace(node, layout=fewer(node.layout)) for node in graph.nodes]
        inputs = tuple(map(fewer, graph.inputs))
        shape = (rows, *self.group.shape[1:])
        return Group(self.group.kind, Graph(inputs, tuple(nodes), graph.outputs), shape)


def _has_rows(layout: Layout, shape: Sequence[int]) -> bool:
    return layout.ndim == len(shape) and layout.shape[0] == shape[0]


def split(group: Group) -> Split | None:
    """Return a group by rows; None where it does not fall apart into rows that lie one behind the
    other."""
    graph, shape = group.graph, group.shape
    if group.kind is not GroupKind.LOOP or not shape or shape[0] < 2:
        return None
    if any(node.op.kind is not Kind.ELEMENTWISE for node in graph.nodes):
        return None
    outputs = graph.output_layouts
    whole = [layout for layout in graph.inputs if not _has_rows(layout, shape)]
    rows = [layout for layout in graph.inputs if _has_rows(layout, shape)]
    if not all(layout.c_contiguous and layout.shape == tuple(shape) for layout in outputs):
        return None
    if not all(layout.c_contiguous for layout in (*rows, *(node.layout for node in graph.nodes))):
        return None
    if not all(layout.dense and layout.nbytes for layout in whole):
        return None
    if any(layout.ndim == len(shape) and layout.shape[0] != 1 for layout in whole):
        return None
    return Split(
        group,
        shape[0],
        tuple([_has_rows(layout, shape) for layout in graph.inputs]),
        sum([layout.nbytes // shape[0] for layout in rows]),
        sum([layout.nbytes // shape[0] for layout in outputs]),
        sum([layout.nbytes for layout in whole]),
    )


def chunk_rows(
    parts: Split, room: int, up: float, down: float, kernel: Estimate | None, each: float
) -> int:
    """Return how many rows a chunk should have; 0 where not even one fits.

    ``room`` is in bytes; ``up``, ``down`` and ``kernel`` are what all of it takes, ``each`` what a
    chunk takes beside. In n chunks the longest of the three goes on all the time, the others show
    at the ends: seconds are longest + rest / n + n · each, least at n = √(rest / each).
    """
    per_row = SLOTS * (parts.given + parts.made)
    most = (room - parts.whole) // per_row if per_row else parts.rows
    if most < 1:
        return 0
    seconds = (up, down, kernel.seconds if kernel is not None else 0.0)
    rest = sum(seconds) - max(seconds)
    wanted = max(SLOTS, math.sqrt(rest / each)) if each > 0 and rest > 0 else SLOTS
    return max(1, min(most, math.ceil(parts.rows / wanted)))


def passing_rows(
    parts: Split,
    room: int,
    up: float,
    down: float,
    kernel: Estimate | None,
    each: float,
    turn: float,
    begin: float,
) -> int:
    """Return how many rows a chunk should have of what a device has room for; 0 where it had better
    go there as a whole.

    As for ``chunk_rows``; besides, the host takes ``turn`` for a chunk while others are under way,
    and ``begin`` before the first.
    """
    seconds = (up, down, kernel.seconds if kernel is not None else 0.0)
    longest = max(seconds)
    rest = sum(seconds) - longest
    if min(rest, each, turn) <= 0.0:
        return 0
    count = int(min(math.sqrt(rest / each), longest / turn, parts.rows))
    if count < 2 or rest <= begin + rest / count + count * each:
        return 0
    rows = math.ceil(parts.rows / count)
    return rows if parts.whole + SLOTS * rows * (parts.given + parts.made) <= room else 0


def passing(graph: Graph, steps: Sequence[Step], facts: Facts) -> list[Step]:
    """Return the steps, those marked whose operands and results only pass a device."""
    spaces = {device.id: device.space for device in facts.devices if device.id != HOST_DEVICE}
    read = {graph.outputs[position] for position in facts.host_required}
    uses: Counter[int] = Counter()
    for step in steps:
        if isinstance(step, LaunchStep):
            uses.update({*step.inputs})
        else:
            uses.update({step.source} if isinstance(step, ViewStep) else {step.old, step.value})

    def passes(step: LaunchStep) -> bool:
        space = spaces.get(step.device)
        if space is None or step.implementation != "generated":
            return False
        large = [number for number in step.inputs if graph.layouts[number].size > 1]
        return all([number in read and not uses[number] for number in step.outputs]) and all(
            [
                number < len(facts.residency)
                and uses[number] == 1
                and space not in facts.residency[number]
                for number in large
            ]
        )

    return [
        replace(step, passes=True) if isinstance(step, LaunchStep) and passes(step) else step
        for step in steps
    ]
