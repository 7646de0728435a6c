"""What graphs of one structure have in common, whatever their sizes: how they are cut into regions.

A program whose arrays are of another size at every turn (what a mask leaves of one) asks for the
same work each time. Which nodes may share a kernel is told by which extents are equal, and by how
layouts step through memory, not by how many elements there are: so a cut that was found for one
size serves others. What it is worth is asked of every size anew (`place`): what its kernels take,
who runs them, which device has room for them and a gap for none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from alight._src.base.failures import failures
from alight._src.ir.op import Kind
from alight._src.ir.rewrite import exactly
from alight._src.ir.row_column import LEAST_WIDTH
from alight._src.plan.fuse import Region
from alight._src.plan.plan import Facts, no_estimate

if TYPE_CHECKING:
    from alight._core import Layout
    from alight._src.ir.graph import Attrs, Graph, Node

__all__ = ["Cut", "Cuts", "copied", "likeness"]


class Cut(NamedTuple):
    """The regions that all graphs alike are cut into, as they are before any is weighed against its
    parts; ``clear``: that each is better than these needs not be asked again."""

    regions: tuple[Region, ...]
    clear: bool


# By likeness.
Cuts = dict[Hashable, Cut]


def copied(regions: Iterable[Region]) -> list[Region]:
    """Return the regions anew: who plans goes on to change them."""
    return [
        Region(
            *(r.kind, r.key, r.stage, [*r.members], {*r.owned}, [*r.outputs]),
            copied(r.parts),
        )
        for r in regions
    ]


def likeness(graph: Graph, facts: Facts) -> Hashable:
    """Return a key that graphs have in common if one is cut as the other is; None where that
    cannot be told. ``graph`` is rewritten, so that its numbers are those of regions."""
    written = [node.attr("layout") for node in graph.nodes if node.op.kind is Kind.WRITE]
    made = [node.layout for node in graph.nodes]
    layouts = list(dict.fromkeys([*graph.inputs, *made, *written]))
    extents = _ranks(chain.from_iterable([layout.shape for layout in layouts]))
    # Those of whole arrays follow from their extents.
    steps = _ranks(chain.from_iterable([x.strides for x in layouts if not x.ordinary]))
    numbers = {layout: number for number, layout in enumerate(layouts)}
    try:
        nodes = tuple([_node(node, numbers) for node in graph.nodes])
        key = (
            tuple([numbers[layout] for layout in graph.inputs]),
            nodes,
            graph.outputs,
            tuple([_described(layout, extents, steps) for layout in layouts]),
            tuple([_size_class(n) for n in extents]),
            *(facts.residency, facts.bases, frozenset(facts.windows), facts.host_required),
            *(facts.force, tuple(sorted(facts.floors.items())), facts.on_gap),
            tuple([device.id for device in facts.devices]),
            (facts.estimate is no_estimate, facts.timed is None),
        )
        hash(key)
    except failures(TypeError):  # an attribute that cannot be compared
        return None
    return key


def _ranks(numbers: Iterable[int]) -> dict[int, int]:
    """Return the place of each number among those that differ."""
    return {number: place for place, number in enumerate(sorted(set(numbers)))}


def _described(layout: Layout, extents: dict[int, int], steps: dict[int, int]) -> Hashable:
    """Return what a layout is but for its sizes: which of its extents equal others, and which of
    them are longer."""
    shape = tuple([extents[n] for n in layout.shape])
    if layout.ordinary:
        return layout.dtype, shape
    width = layout.itemsize
    strides = tuple([(steps[n], (n > 0) - (n < 0), abs(n) == width) for n in layout.strides])
    return layout.dtype, shape, strides, layout.c_contiguous, layout.dense


def _size_class(extent: int) -> int:
    """Return an extent where it is short, and else how many bits it has: what a cut depends on is
    bytes against bytes, or against what a cache holds, and is told within a factor of two."""
    # Rows of fewer elements are reduced side by side or written out, for which each length counts.
    return extent if extent < LEAST_WIDTH else -extent.bit_length()


def _node(node: Node, numbers: dict[Layout, int]) -> Hashable:
    attrs = node.attrs and _attrs(node, numbers)
    return node.op, node.operands, attrs, numbers[node.layout]


def _attrs(node: Node, numbers: dict[Layout, int]) -> Hashable:
    if node.op.kind is not Kind.VIEW and node.op.kind is not Kind.WRITE:
        whole: Hashable = exactly(node.attrs)
        return whole
    # Where a window begins is in its own steps: whoever runs there takes it as it is.
    rest: Attrs = tuple([(k, v) for k, v in node.attrs if k not in ("layout", "offset")])
    window: Any = node.attr("layout")
    return exactly(rest), None if window is None else numbers[window]
