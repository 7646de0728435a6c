"""Reductions of the rows and of the columns of one array as one kernel, which reads the array
once."""

from __future__ import annotations

from collections.abc import Container, Hashable

from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.op import Kind
from alight._src.plan.fuse import Region, group_of
from alight._src.plan.stages import Uses


def row_column_regions(
    graph: Graph, uses: Uses, regions: list[Region], keys: Container[Hashable]
) -> list[Region]:
    """Return the regions, those with a key of ``keys`` made one that reduce rows and columns of the
    same array as it lies in memory."""
    alike: dict[Hashable, list[Region]] = {}
    for region in regions:
        if region.key in keys and (read := _reduced(graph, region)) is not None:
            alike.setdefault((read, region.key, region.stage), []).append(region)
    taken: dict[int, Region] = {}
    for parts in alike.values():
        whole = _together(graph, uses, parts) if len(parts) > 1 else None
        if whole is not None:
            taken.update(dict.fromkeys(map(id, whole.parts), whole))
    if not taken:
        return regions
    result: list[Region] = []
    for region in regions:
        whole = taken.get(id(region), region)
        if whole is region or whole.parts[0] is region:
            result.append(whole)
    return result


def _reduced(graph: Graph, region: Region) -> int | None:
    """Return the value that a region reduces as it is, and does nothing else."""
    if region.kind is not GroupKind.REDUCE:
        return None
    nodes = [graph.made_by[m] for m in region.members]
    read = {node.operands for node in nodes}
    if any(node.op.kind is not Kind.REDUCTION for node in nodes) or len(read) != 1:
        return None
    ((number, *mask),) = read
    return None if mask else number


def _together(graph: Graph, uses: Uses, parts: list[Region]) -> Region | None:
    """Return as many of the regions as one visit can have as one, None if it can have no two."""
    # the largest results first: what is reduced whole has the least to gain
    size = {id(p): max(graph.layouts[o].size for o in p.outputs) for p in parts}
    found: list[Region] = []
    whole: Region | None = None
    for part in sorted(parts, key=lambda p: -size[id(p)]):
        tried = _one(graph, uses, [*found, part])
        if not found or tried is not None:
            found.append(part)
            whole = tried
    return whole


def _one(graph: Graph, uses: Uses, parts: list[Region]) -> Region | None:
    """Return regions as one, None where that is not one visit."""
    for lead in parts if len(parts) > 1 else ():  # what rows are reduced into comes first
        ordered = [lead, *(p for p in parts if p is not lead)]
        members = [m for part in ordered for m in part.members]
        outputs = [o for part in ordered for o in part.outputs]
        region = Region(
            *(GroupKind.ROW_COLUMN, lead.key, lead.stage, members, {*members}),
            *(outputs, ordered),
        )
        if group_of(graph, uses, region)[0].form.section is not None:
            return region
    return None
