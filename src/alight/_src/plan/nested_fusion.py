"""Reductions of short reductions as one kernel: what the inner one gives is as long as what the
outer one reads, and most of what both move where the inner rows are short.

The inner reduction is written out (``ir.nested_reductions``), so that its results stay in
registers: distances between points, of which the nearest is looked for, are never in memory.
"""

from __future__ import annotations

from collections.abc import Container, Hashable

from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import Group
from alight._src.ir.nested_reductions import innermost
from alight._src.ir.op import Kind
from alight._src.ir.table_reduction import LANES
from alight._src.plan.compile_work import KERNEL_WORK, weight_of
from alight._src.plan.fuse import (
    KERNEL_ARRAYS,
    Region,
    group_of,
    prune,
    streams,
)
from alight._src.plan.stages import Uses

# Elements of an inner reduction: more leave too few registers (16 coordinates of 20000 points and
# 64 centres took 1.48 ms as one, 1.23 as two; EPYC, AVX-512).
_MOST = 8
# Rows of more elements than a vector has lanes go through a buffer one by one, which takes longer
# than what it saves while all of them fit into the last cache, of 32 MiB there. As one and as two,
# minima of 100000 rows of 32 and 64 float64 took 0.73 and 0.72 ms, 1.05 and 2.9, of 4096 times 4096
# 1.9 and 7.1; places 1.6 and 1.6, 2.7 and 2.8, 2.6 and 7.5. Minima of 100000 rows of 8 took 0.04
# and 0.09, places 0.08 and 0.13.
_CACHED_BYTES = 1 << 25


def nested_regions(
    graph: Graph, uses: Uses, regions: list[Region], keys: Container[Hashable]
) -> list[Region]:
    """Return the regions, those with a key of ``keys`` made one with the region that alone reduces
    what they reduce."""
    homes: dict[int, Region] = {}
    for region in regions:
        homes.update(dict.fromkeys(region.owned, region))
    taken: dict[int, Region] = {}
    for inner in regions:
        if inner.key not in keys or not _short(graph, uses, inner):
            continue
        readers = {c for output in inner.outputs for c in uses.consumers[output]}
        takers = {id(homes[c]): homes[c] for c in readers if c in homes}
        if len(takers) != 1 or not readers <= homes.keys():
            continue
        (outer,) = takers.values()
        if outer.key != inner.key or id(outer) in taken or outer is inner:
            continue
        whole = Region(
            outer.kind,
            outer.key,
            outer.stage,
            sorted({*inner.members, *outer.members}),
            inner.owned | outer.owned,
            [*outer.outputs],
            [inner, outer],
        )
        if _fits(graph, uses, whole, inner):
            taken[id(outer)] = whole
            taken[id(inner)] = whole
    if not taken:
        return regions
    # The inner one waits until the outer one runs: nothing else reads it, nor writes what it reads.
    merged = [
        taken.get(id(region), region)
        for region in regions
        if taken.get(id(region), region).parts[:1] != [region]
    ]
    return prune(graph, uses, merged)


def _short(graph: Graph, uses: Uses, region: Region) -> bool:
    """Tell whether a region only reduces the last axis, which is short, for others."""
    if region.kind is not GroupKind.REDUCE or not uses.live.isdisjoint(region.outputs):
        return False
    for number in region.members:
        node = graph.made_by[number]
        if node.op.kind is Kind.REDUCTION:
            over = graph.layouts[node.operands[0]]
            last = over.ndim - 1
            if not innermost(node.op) or graph.axes[number] != (last,):
                return False
            if not 2 <= over.shape[last] <= _MOST or node.layout.ndim != last:
                return False
    read = {o for m in region.members for o in graph.made_by[m].operands}
    return not any(uses.base[o] in uses.written for o in read)


def _side_by_side(group: Group) -> bool:
    """Tell whether the rows of a group are short, so that many of them are in registers at once."""
    ndim = len(group.shape)
    return ndim > 1 and group.form.axes == (ndim - 1,) and group.shape[-1] <= LANES


def _fits(graph: Graph, uses: Uses, whole: Region, inner: Region) -> bool:
    """Tell whether both are one group, and not too much for a kernel."""
    if whole.kind not in (GroupKind.REDUCE, GroupKind.ROWWISE):
        return False
    group, inputs = group_of(graph, uses, whole)
    # Rows that are visited again would have their elements made again.
    if whole.kind is GroupKind.ROWWISE and not _side_by_side(group):
        return False
    if len(streams(graph, uses, inputs)) > KERNEL_ARRAYS:
        return False
    between = sum(graph.layouts[number].nbytes for number in inner.outputs)
    if between <= _CACHED_BYTES and not _side_by_side(group):
        return False
    reduction = next(m for m in inner.members if graph.made_by[m].op.kind is Kind.REDUCTION)
    copies = graph.layouts[graph.made_by[reduction].operands[0]].shape[-1]
    weight = weight_of(graph, whole.members) + (copies - 1) * weight_of(graph, inner.members)
    return weight <= KERNEL_WORK and group.form.flat is not None
