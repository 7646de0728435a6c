"""What a well-formed graph is, as a list of what is wrong with one: tests look between the
stations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.ir.graph import Graph, GroupKind, Node, reduced_axes
from alight._src.ir.group import Group, one_per_row
from alight._src.ir.op import Kind
from alight._src.ir.rewrite import exactly

if TYPE_CHECKING:
    from alight._core import Layout


def graph_faults(graph: Graph) -> list[str]:
    """Return what is wrong with a graph, one line each; none if it is well formed."""
    total = len(graph.inputs) + len(graph.nodes)
    found = [f"output %{o} does not exist" for o in graph.outputs if not 0 <= o < total]
    for number, node in graph.numbered:
        missing = [o for o in node.operands if not 0 <= o < number]
        if missing:
            found.append(f"%{number} {node.op.name}: reads {missing}, which is not there yet")
            continue
        try:
            exactly(node.attrs)
        except failures(TypeError) as error:
            found.append(f"%{number} {node.op.name}: {error}, so no kernel or plan can be kept")
        found += (f"%{number} {node.op.name}: {fault}" for fault in _node_faults(graph, node))
    return found


def group_faults(group: Group) -> list[str]:
    """Return what is wrong with a group; none if it is well formed."""
    graph = group.graph
    if group.form.plain is not None:
        return [*graph_faults(graph), *group_faults(group.form.plain)]
    found = graph_faults(graph)
    if not graph.nodes or not graph.outputs:
        return [*found, "a group without nodes or outputs"]
    first = len(graph.inputs)
    kinds = [node.op.kind for node in graph.nodes]
    found += (f"output %{o} is an input" for o in graph.outputs if o < first)
    used = {o for node in graph.nodes for o in node.operands} | set(graph.outputs)
    found += (f"%{n} is needed by nobody" for n in range(first + len(graph.nodes)) if n not in used)
    if group.kind is GroupKind.LIBRARY:
        if len(graph.nodes) != 1:
            found.append(f"a library group of {len(graph.nodes)} nodes")
        return found
    if group.kind is GroupKind.ROW_COLUMN:
        return found if group.form.fault is None else [*found, group.form.fault]
    if group.kind is GroupKind.ROWWISE:
        return [*found, *_row_faults(group)]
    expect = {Kind.ELEMENTWISE}
    if group.kind is GroupKind.LOOP:
        kinds = [n.op.kind for number, n in graph.numbered if graph.rolls.get(number) is None]
    if group.kind is GroupKind.SCAN:
        expect.add(Kind.SCAN)
        axes = {node.attr("axis") for node in group.form.scans}
        if len(axes) != 1:
            found.append(f"a scan group along axes {axes}")
    if group.kind is GroupKind.REDUCE:
        expect.add(Kind.REDUCTION)
        loose = [o for o in graph.outputs if o >= first and kinds[o - first] is not Kind.REDUCTION]
        found += (f"output %{o} of a reduce group is no reduction" for o in loose)
        axes = {_axes(graph, node) for node in group.form.reductions}
        if len(axes) != 1:
            found.append(f"a reduce group over axes {axes}")
    found += (f"a {kind} node in a {group.kind} group" for kind in kinds if kind not in expect)
    for node in graph.nodes:
        over = graph.layouts[node.operands[0]] if node.op.kind is Kind.REDUCTION else node.layout
        if over.shape != group.shape:
            found.append(f"{node.op.name} over {over.shape} in a group over {group.shape}")
    return found


def _row_faults(group: Group) -> Iterator[str]:
    graph = group.graph
    axes = {_axes(graph, node) for node in group.form.reductions}
    if len(axes) != 1:
        yield f"a rowwise group over axes {axes}"
        return
    (row,) = axes
    numbers = set(graph.axes)
    if any(not numbers.isdisjoint(node.operands) for node in group.form.reductions):
        yield "a rowwise group that reduces what it reduced"
        return
    beside = group.form.beside
    if beside is None:
        yield f"what is left of {group.shape} along {row} meets another shape"
        return
    for number, node in graph.numbered:
        if number in beside and node.op.kind is Kind.ELEMENTWISE:
            continue
        if node.op.kind is Kind.REDUCTION:
            over = graph.layouts[node.operands[0]].shape
            if over != group.shape:
                yield f"{node.op.name} over {over} in a group over {group.shape}"
        elif node.op.kind is not Kind.ELEMENTWISE:
            yield f"a {node.op.kind} node in a rowwise group"
        else:
            inner = [o for o in node.operands if o >= len(graph.inputs)]
            for shape in (node.layout.shape, *(graph.layouts[o].shape for o in inner)):
                if shape != group.shape and not one_per_row(shape, group.shape, row):
                    yield f"{node.op.name}: {shape} in rows along {row} of {group.shape}"


def _node_faults(graph: Graph, node: Node) -> Iterator[str]:
    layouts = [graph.layouts[o] for o in node.operands]
    kind = node.op.kind
    if kind is Kind.ELEMENTWISE:
        try:
            shape = np.broadcast_shapes(*[layout.shape for layout in layouts], node.layout.shape)
        except failures(ValueError) as error:
            yield str(error)
            return
        if shape != node.layout.shape:
            yield f"operands broadcast to {shape}, the result is {node.layout.shape}"
        if node.op.name == "cast" and node.attr("dtype") != node.layout.dtype:
            yield f"to {node.attr('dtype')}, the result is {node.layout.dtype}"
    elif kind is Kind.REDUCTION:
        axes = _axes(graph, node)
        over = layouts[0].shape
        if any(not 0 <= axis < len(over) for axis in axes):
            yield f"axes {axes} of {over}"
        elif node.attr("keepdims"):
            kept = tuple(1 if axis in axes else n for axis, n in enumerate(over))
            if node.layout.shape != kept:
                yield f"{over} over {axes} is {kept}, the result is {node.layout.shape}"
        elif node.layout.shape != (
            kept := tuple(n for axis, n in enumerate(over) if axis not in axes)
        ):
            yield f"{over} over {axes} is {kept}, the result is {node.layout.shape}"
    elif kind is Kind.VIEW:
        yield from _window_faults(layouts[0], node.layout, node.attr("offset", 0))
    elif kind is Kind.WRITE:
        old, value = layouts
        window = node.attr("layout")
        if node.layout is not old:
            yield f"of {old!r} gives {node.layout!r}"
        yield from _window_faults(old, window, node.attr("offset", 0))
        if value.dtype != window.dtype:
            yield f"{value.dtype} into {window.dtype}"
        if np.broadcast_shapes(value.shape, window.shape) != window.shape:
            yield f"{value.shape} into {window.shape}"


def _axes(graph: Graph, node: Node) -> tuple[int, ...]:
    return reduced_axes(node, graph.layouts[node.operands[0]].ndim)


def _window_faults(whole: Layout, window: Layout, offset: int) -> Iterator[str]:
    low, high = reach(whole)
    start, end = reach(window)
    if window.size and (start + offset < low or end + offset > high):
        yield f"bytes {start + offset}…{end + offset} of {low}…{high}"


def reach(layout: Layout) -> tuple[int, int]:
    """Return the first byte and the one past the last that a layout touches, from its first
    element."""
    if math.prod(layout.shape) == 0:
        return 0, 0
    steps = [(n - 1) * stride for n, stride in zip(layout.shape, layout.strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + layout.itemsize
