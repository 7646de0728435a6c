"""Programs and fusion groups: what is computed, in numbers instead of objects."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from alight._src.ir.op import Kind

if TYPE_CHECKING:
    from alight._core import Layout
    from alight._src.ir.ops import Op

Attrs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One use of an op: operands are value numbers; elementwise operands broadcast as in NumPy and
    already have the dtypes of the op's loop; ``attrs`` are the keyword arguments of the op's
    reference."""

    op: Op
    operands: tuple[int, ...]
    attrs: Attrs
    layout: Layout

    def attr(self, name: str, default: Any = None) -> Any:
        """Return the attribute of that name."""
        for key, value in self.attrs:
            if key == name:
                return value
        return default


@dataclass(frozen=True, slots=True)
class Graph:
    """A list of nodes in an order in which they can run. Values 0 … len(inputs)-1 are the inputs,
    the value of ``nodes[i]`` is ``len(inputs) + i``."""

    inputs: tuple[Layout, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    layouts: tuple[Layout, ...] = field(init=False, repr=False, compare=False)  # of all values
    numbered: tuple[tuple[int, Node], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        layouts = (*self.inputs, *[node.layout for node in self.nodes])
        object.__setattr__(self, "layouts", layouts)
        object.__setattr__(self, "numbered", tuple(enumerate(self.nodes, len(self.inputs))))

    def __str__(self) -> str:
        lines = [f"%{i}: {layout!r} = input" for i, layout in enumerate(self.inputs)]
        for number, node in self.numbered:
            attrs = "".join(f", {k}={v}" for k, v in node.attrs)
            operands = ", ".join(f"%{i}" for i in node.operands)
            lines.append(f"%{number}: {node.layout!r} = {node.op.name}({operands}{attrs})")
        lines.append("return " + ", ".join(f"%{i}" for i in self.outputs))
        return "\n".join(lines)


class GroupKind(enum.StrEnum):
    """How the values of a group run as one."""

    LOOP = "loop"  # elementwise nodes over one iteration shape
    REDUCE = "reduce"  # one or more reductions over the same axes, with their elementwise producers
    # reductions over the same axes, with elementwise nodes over the whole shape or over what the
    # reductions leave of it: made of inputs or of the reductions' results
    ROWWISE = "rowwise"
    # scans along one axis, with elementwise nodes over the same shape that make their elements or
    # are made of their results
    SCAN = "scan"
    CROSSED = "crossed"  # reductions of the rows and of the columns of one input (``ir.crossed``)
    LIBRARY = (
        "library"  # one node, run by its reference or a device library's function of that name
    )


def one_per_row(shape: tuple[int, ...], over: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Tell whether a shape broadcasts to ``over`` as one element for each row along ``axes``."""
    lead = len(over) - len(shape)
    if lead < 0:
        return False
    whole = (1,) * lead + shape
    return all(n == (1 if i in axes else over[i]) for i, n in enumerate(whole))


def one_per_result(
    graph: Graph, shape: tuple[int, ...], axes: tuple[int, ...], members: Iterable[int] = ()
) -> frozenset[int] | None:
    """Return the values over the shape that reductions of ``shape`` along ``axes`` leave without
    ``keepdims``: those reductions, elementwise nodes made of them, and what these read besides.
    None where one of them meets a value over another shape; nothing where that shape broadcasts as
    one with ``keepdims`` does. ``members`` are the nodes to look at, if not all."""
    first = len(graph.inputs)
    left = tuple(n for i, n in enumerate(shape) if i not in axes)
    if left == shape or one_per_row(left, shape, axes):
        return frozenset()
    inside = sorted(members) or range(first, first + len(graph.nodes))
    found: set[int] = set()
    beside: set[int] = set()
    others: set[int] = set()
    for number in inside:
        node = graph.nodes[number - first]
        if node.op.kind is Kind.REDUCTION:
            others.update(node.operands)
            if not node.attr("keepdims"):
                found.add(number)
        elif found.isdisjoint(node.operands):
            others.update(node.operands)
        else:
            if node.layout.shape != left:
                return None
            found.add(number)
            beside.update(o for o in node.operands if graph.layouts[o].size != 1)
    own = set(inside)
    if others & (found | beside) or (beside & own) - found:
        return None
    return frozenset(found | beside)


def reduced_axes(node: Node, ndim: int) -> tuple[int, ...]:
    """Return the axes a reduction folds, sorted; None means all, as in NumPy."""
    axis = node.attr("axis")
    if axis is None:
        return tuple(range(ndim))
    return tuple(sorted(axis)) if isinstance(axis, tuple) else (axis,)


@dataclass(frozen=True, slots=True)
class Group:
    """Values that run as one kernel or library call. ``shape`` is the iteration space: every
    elementwise node has it or broadcasts to it; in a REDUCE group it is the shape before the
    reduction."""

    kind: GroupKind
    graph: Graph
    shape: tuple[int, ...] = field(default=())


def same_bits(group: Group) -> bool:
    """Tell whether a group's kernel gives NumPy's bits by the table's bounds."""
    return group.kind is not GroupKind.LIBRARY and all(
        node.op.ulp == 0 and node.op.bound is None for node in group.graph.nodes
    )
