"""Reductions of the rows of one array, of its columns and of all of it, in one visit.

The axes of what is reduced lie in memory as two: a row is one run of elements, and rows lie equally
far apart. *Down* reductions go along the columns, *along* reductions along the rows, *whole* ones
along both.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from math import prod

from alight._core import make_layout
from alight._src.base.records import dataclass
from alight._src.ir.graph import Graph, Node
from alight._src.ir.op_table import Kind
from alight._src.ir.table_reduction import CHUNK, MOMENTS

__all__ = ["CrossSection", "Role", "cross_section", "visits"]


class Role(enum.StrEnum):
    """What a reduction goes along."""

    ALONG = "along"
    DOWN = "down"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class CrossSection:
    """The array as ``rows`` of ``width`` elements, ``pitch`` bytes apart, and what each reduction
    of the group goes along."""

    rows: int
    width: int
    pitch: int
    roles: tuple[Role, ...]

    def uneven(self, threads: int) -> float:
        """Return how much longer the thread with the most rows has than an equal share of them
        takes: chunks of rows stay together."""
        chunks = -(-self.rows // CHUNK)
        return max(1.0, -(-chunks // threads) * CHUNK * threads / self.rows)


# Of reductions down the columns the levels of the counter are kept for all columns at once, on the
# stack of a thread, which may be 512 KiB: a third of it.
STATE_BYTES = 160 << 10
# Rows of fewer elements are reduced side by side, or written out, where they are reduced alone. In
# one visit and in two, sums of rows and columns of a million rows of 17 float32 took 8.9 and 8.9
# ms, extremes 26 and 15, of 400,000 rows of 32 4.6 and 5.0, 11.9 and 7.6, of 200,000 rows of 64 2.5
# and 4.8, 4.5 and 9.2 (EPYC, 2 threads).
LEAST_WIDTH = 64
# Where any order gives the same bits.
_EXACT = frozenset(
    ("maximum", "minimum", "fmax", "fmin", "logical_or", "logical_and", "bitwise_or", "bitwise_and")
)
_ROUNDED = frozenset(("add", "multiply"))


def cross_section(graph: Graph) -> CrossSection | str:
    """Return how a row-and-column group goes through memory, or why it cannot be one visit."""
    if len(graph.inputs) != 1 or any(n.op.kind is not Kind.REDUCTION for n in graph.nodes):
        return "rows and columns of one array are reduced in one visit, as they lie in memory"
    if any(node.operands != (0,) for node in graph.nodes):
        return "reductions with masks are not joined"
    layout = graph.inputs[0]
    axes = [i for i, n in enumerate(layout.shape) if n != 1]
    axes.sort(key=lambda i: -abs(layout.strides[i]))
    reduced = [frozenset(graph.axes[n]) & set(axes) for n, _ in graph.numbered]
    some = next((f for f in reduced if f != set(axes) and f), None)
    if some is None or not layout.size:
        return "no reduction of rows meets one of columns"
    count = len(some) if axes[0] in some else len(axes) - len(some)
    outer, inner = axes[:count], axes[count:]
    roles: list[Role] = []
    for own in reduced:
        if own == set(inner):
            roles.append(Role.ALONG)
        elif own == set(outer):
            roles.append(Role.DOWN)
        elif own == set(axes):
            roles.append(Role.WHOLE)
        else:
            return "what is reduced is no rows and columns of one matrix"
    if len(set(roles)) < 2:
        return "all reductions go along the same axes"
    order = [roles[number - 1] is not Role.ALONG for number in graph.outputs]
    if sorted(graph.outputs) != list(range(1, 1 + len(roles))) or order != sorted(order):
        return "what rows are reduced into comes first"
    steps = dict(zip(range(layout.ndim), layout.strides, strict=True))
    for first, second in itertools.pairwise(axes):
        if first != outer[-1] and steps[first] != steps[second] * layout.shape[second]:
            return "rows are no runs in memory, equally far apart"
    if steps[inner[-1]] != layout.itemsize:
        return "the elements of a row are not next to one another"
    for (number, node), role in zip(graph.numbered, roles, strict=True):
        if (reason := _bad_reduction(node, role)) is not None:
            return reason
        kept = {Role.ALONG: outer, Role.DOWN: inner, Role.WHOLE: []}[role]
        if not _dense(node, layout.ndim, graph.axes[number], kept):
            return f"{node.op.name}: its results do not lie in the order of what is reduced"
    rows = prod(layout.shape[i] for i in outer)
    width = prod(layout.shape[i] for i in inner)
    if width < LEAST_WIDTH:
        return f"rows of {width} elements are sooner reduced side by side"
    levels = max(1, -(-rows // CHUNK)).bit_length() + 1
    down = [
        max(n.layout.itemsize, 4)  # half floats are reduced as single ones
        for n, role in zip(graph.nodes, roles, strict=True)
        if role is Role.DOWN
    ]
    if sum(down) * width * levels > STATE_BYTES:
        return f"{width} columns of {rows} rows leave more than a thread's stack holds"
    return CrossSection(rows, width, steps[outer[-1]], tuple(roles))


def _bad_reduction(node: Node, role: Role) -> str | None:
    """Return why a reduction cannot have a role."""
    op = node.op
    if role is Role.ALONG:
        return None
    known = op.combine in _EXACT or (op.combine in _ROUNDED and role is Role.DOWN)
    if op.combine == MOMENTS or not known:
        return f"{op.name}: not reduced {role}, with others"
    return None


def _dense(node: Node, ndim: int, reduced: tuple[int, ...], kept: list[int]) -> bool:
    """Tell whether the results lie one after another, in the order of the axes kept."""
    layout = node.layout
    left = [i for i in range(ndim) if node.attr("keepdims") or i not in reduced]
    step = layout.itemsize
    for axis in reversed(kept):
        place = left.index(axis)
        if layout.strides[place] != step:
            return False
        step *= layout.shape[place]
    return True


def visits(
    graph: Graph, section: CrossSection, rows: int
) -> Iterator[tuple[Graph, tuple[int, ...], float]]:
    """Yield the reductions along each of the axes as graphs of their own, with their shapes, and
    how often each runs: the first goes over all that is read, the others again and again over so
    many rows."""
    layout = graph.inputs[0]
    order = (Role.ALONG, Role.WHOLE, Role.DOWN)
    first = True
    for role in order:
        nodes = [n for n, own in zip(graph.nodes, section.roles, strict=True) if own is role]
        if not nodes:
            continue
        count = section.rows if first else min(rows, section.rows)
        whole = make_layout(layout.dtype, (count, section.width), (section.pitch, layout.itemsize))
        axes = {Role.ALONG: (1,), Role.DOWN: (0,), Role.WHOLE: (0, 1)}[role]
        shape = {Role.ALONG: (count,), Role.DOWN: (section.width,), Role.WHOLE: ()}[role]
        own_nodes = tuple(
            Node(n.op, (0,), (("axis", axes),), make_layout(n.layout.dtype, shape)) for n in nodes
        )
        part = Graph((whole,), own_nodes, tuple(range(1, 1 + len(nodes))))
        yield part, whole.shape, 1.0 if first else section.rows / count
        first = False
