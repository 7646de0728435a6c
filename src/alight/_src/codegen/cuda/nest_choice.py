"""Which loop nest a group has on a card: with short reduced axes written out, or not; and which
scans go in NumPy's order there."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from alight._src.codegen.common.loops import nest
from alight._src.ir.graph import GroupKind
from alight._src.ir.op_table import Kind

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest
    from alight._src.ir.group import Group

# Bytes of a record, what a thread reads of one element, up to which a reduction is a thread's; of
# longer ones four threads have each (H200, sums of 2**20 times sixteen: 20.5 µs by threads, 24.4 by
# four for 64 bytes, 49.0 and 36.4 for 128).
_RECORD_BYTES = 64
SHARED_BYTES = 48 << 10  # what a block has of shared memory without asking the driver for more
WARP = 32


@lru_cache(256)  # what decides whether a device can run a group asks as well as what runs it
def card_nest(group: Group) -> Nest:
    """Return the loop nest of a supported group on a card."""
    plain = nest(group)
    if group.kind not in (GroupKind.REDUCE, GroupKind.ROWWISE):
        return plain
    short = nest(group, unroll=True)
    if not short.unrolled:
        return plain
    graph = group.graph
    layouts = graph.operand_layouts
    longest = max(  # outputs are never the same for all elements
        prod(n for n, moves in zip(short.unrolled, along, strict=True) if moves) * layout.itemsize
        for along, layout, kind in zip(short.along, layouts, short.classes, strict=True)
        if kind != "b"
    )
    rows = not plain.columns and len(plain.dims) - plain.kept == 1
    return plain if rows and longest > _RECORD_BYTES else short


def scans_in_order(group: Group) -> bool:
    """Return whether a group's scans round, so that only NumPy's order gives NumPy's bits."""
    return any(
        node.op.kind is Kind.SCAN
        and node.layout.dtype.kind in "fc"
        and node.op.combine in ("add", "multiply")
        for node in group.graph.nodes
    )


def square_bytes(group: Group) -> int:
    """Return the bytes in which a warp keeps a square of each scan: a row for each thread, and a
    column more than there are, so that no two threads meet a bank twice."""
    scans = (node for node in group.graph.nodes if node.op.kind is Kind.SCAN)
    return sum(WARP * (WARP + 1) * node.layout.itemsize for node in scans)


def unordered_gap(group: Group) -> str | None:
    """Return why a card cannot scan the rows of a group in NumPy's order, or None."""
    shape = nest(group)
    if shape.columns or not scans_in_order(group):
        return None
    if prod(shape.dims[: shape.kept]) < WARP:
        return "NumPy's order leaves a row to one thread, and the rows fill no warp"
    if square_bytes(group) > SHARED_BYTES:
        return "so many scans at once do not fit a block's memory"
    return None
