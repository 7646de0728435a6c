"""Programs: what is computed, in numbers instead of objects."""

from __future__ import annotations

import enum
from collections.abc import Collection
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from alight._src.base.records import dataclass, field
from alight._src.ir.op import Kind

if TYPE_CHECKING:
    from alight._core import Layout
    from alight._src.ir.op_table import Op

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


# Elements a roll may move for a loop to do it: how far is part of the code, and neighbours are what
# stencils read. Others are copied.
_FARTHEST = 8


def turns(node: Node) -> dict[int, int] | None:
    """Return by how many elements a roll moves along which axes; None for what is no roll, or none
    that a loop does."""
    if node.op.name != "roll" or len(node.operands) != 1:
        return None
    ndim = node.layout.ndim
    shift, axis = node.attr("shift"), node.attr("axis")
    if axis is None:
        if ndim != 1:
            return None
        axis = 0
    shifts = shift if isinstance(shift, tuple) else (shift,)
    axes = axis if isinstance(axis, tuple) else (axis,)
    if len(shifts) == 1:
        shifts *= len(axes)
    found: dict[int, int] = {}
    for by, along in zip_longest(shifts, axes):
        if type(by) is not int or type(along) is not int or not -ndim <= along < ndim:
            return None
        found[along % ndim] = found.get(along % ndim, 0) + by
    return found if all(abs(by) <= _FARTHEST for by in found.values()) else None


@dataclass(frozen=True, slots=True)
class Graph:
    """A list of nodes in an order in which they can run. Values 0 … len(inputs)-1 are the inputs,
    the value of ``nodes[i]`` is ``len(inputs) + i``.

    ``layouts`` are those of all values, ``numbered`` the nodes with the numbers of their values,
    ``made_by`` the node that makes each value which is no input; ``axes`` has the reductions among
    them, with the axes they reduce, sorted; ``rolls`` those that roll, with their `turns`."""

    inputs: tuple[Layout, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    layouts: tuple[Layout, ...] = field(init=False, repr=False, compare=False)
    numbered: tuple[tuple[int, Node], ...] = field(init=False, repr=False, compare=False)
    made_by: dict[int, Node] = field(init=False, repr=False, compare=False)
    axes: dict[int, tuple[int, ...]] = field(init=False, repr=False, compare=False)
    rolls: dict[int, dict[int, int] | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        layouts = (*self.inputs, *[node.layout for node in self.nodes])
        numbered = tuple(enumerate(self.nodes, len(self.inputs)))
        axes = {
            n: reduced_axes(node, layouts[node.operands[0]].ndim)
            for n, node in numbered
            if node.op.kind is Kind.REDUCTION
        }
        rolls = {n: turns(node) for n, node in numbered if node.op.name == "roll"}
        object.__setattr__(self, "layouts", layouts)
        object.__setattr__(self, "numbered", numbered)
        object.__setattr__(self, "made_by", dict(numbered))
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "rolls", rolls)

    @property
    def output_layouts(self) -> tuple[Layout, ...]:
        """Return the layouts of the outputs."""
        return tuple([self.layouts[number] for number in self.outputs])

    @property
    def operand_layouts(self) -> tuple[Layout, ...]:
        """Return the layouts of a kernel's operands: of the inputs, then of the outputs."""
        return self.inputs + self.output_layouts

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
    # reductions of the rows and of the columns of one input (``ir.row_column``)
    ROW_COLUMN = "row_column"
    LIBRARY = (
        "library"  # one node, run by its reference or a device library's function of that name
    )


def reduced_axes(node: Node, ndim: int) -> tuple[int, ...]:
    """Return the axes a reduction reduces, sorted; None means all, as in NumPy."""
    axis = node.attr("axis")
    if axis is None:
        return tuple(range(ndim))
    return tuple(sorted(axis)) if isinstance(axis, tuple) else (axis,)


def steps_of(
    layout: Layout, shape: tuple[int, ...], reduced: Collection[int] = ()
) -> tuple[int, ...]:
    """Return the bytes that an operand moves along each axis of a shape that it broadcasts to, or
    to what is left of it without the ``reduced`` axes; 0 where it stays."""
    moves = zip(layout.shape, layout.strides, strict=True)
    own = tuple([0 if n == 1 else step for n, step in moves])
    if not reduced or layout.ndim == len(shape):
        return (0,) * (len(shape) - layout.ndim) + own
    left = iter((0,) * (len(shape) - len(reduced) - layout.ndim) + own)
    return tuple([0 if i in reduced else next(left) for i in range(len(shape))])


# The kind of group that a node of a kind leads.
GROUP_KINDS = {
    Kind.ELEMENTWISE: GroupKind.LOOP,
    Kind.REDUCTION: GroupKind.REDUCE,
    Kind.SCAN: GroupKind.SCAN,
}
