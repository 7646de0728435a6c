"""Halves of regions: what kind each is, and that groups can be made of them."""

from __future__ import annotations

import numpy as np

from alight._core import make_layout
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.op_table import OPS
from alight._src.plan.fuse import Region, group_of, halves, prune
from alight._src.plan.stages import Uses

LABELS, EQUAL = 2, 3


def labels_compared() -> Graph:
    full, rows = make_layout(np.dtype("f8"), (60, 12)), make_layout(np.dtype("i8"), (60,))
    nodes = (
        Node(OPS["argmin"], (0,), (("axis", (1,)), ("keepdims", False)), rows),
        Node(OPS["equal"], (LABELS, 1), (), make_layout(np.dtype(bool), (60,))),
    )
    return Graph((full, rows), nodes, (LABELS, EQUAL))


def test_a_half_without_a_reduction_is_a_loop() -> None:
    graph = labels_compared()
    uses = Uses(graph)
    region = Region(GroupKind.ROWWISE, "key", 0, [LABELS, EQUAL], {LABELS, EQUAL})
    first, second = prune(graph, uses, halves(graph, region))
    assert [part.kind for part in (first, second)] == [GroupKind.ROWWISE, GroupKind.LOOP]
    assert group_of(graph, uses, second)[0].shape == (60,)


def test_a_half_that_computes_a_reduction_anew_stays_what_it_was() -> None:
    region = Region(GroupKind.ROWWISE, "key", 0, [LABELS, EQUAL], {EQUAL})
    assert halves(labels_compared(), region)[-1].kind is GroupKind.ROWWISE
