"""What generated code can do: ops on dtypes, and groups of them, with the reason where not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from alight._src.base.cache_registry import Cache, register
from alight._src.codegen.common.loops import ARGUMENT_REDUCTIONS, nest
from alight._src.ir.body import COMPLEX, FLOATS, TYPES, choose
from alight._src.ir.graph import GroupKind, reduced_axes
from alight._src.ir.group import one_per_row
from alight._src.ir.nested_reductions import goes_forward
from alight._src.ir.op import dtype_name
from alight._src.ir.op_table import OPS, Kind
from alight._src.ir.table_reduction import MOMENTS
from alight.device import Unsupported

if TYPE_CHECKING:
    from alight._core import Layout
    from alight._src.ir.graph import Node
    from alight._src.ir.group import Group
    from alight._src.ir.op_table import Op


# Of these, partial products may be none that are numbers, whatever the whole is: of 1e200, 1e200,
# 1e-200 and 1e-200 the first two make infinity, the outer two 1. Sums have that only where the sum
# of absolute values, and so their bound, is infinite too.
_ORDERED = ("float16", *FLOATS)
_BY_ORDER = "which partial products overflow is NumPy's order to say"
_COUNT = re.compile(r"\by\b")  # in what makes a reduction's result


def supports(op: Op, dtypes: Iterable[Any], attrs: tuple[tuple[str, Any], ...] = ()) -> str | None:
    """Return why generated code cannot run an op on these dtypes (operands, then results), or
    None."""
    dtypes = tuple(dtypes)
    reason = _gap(op, dtypes)
    if reason is not None or op.kind is Kind.ELEMENTWISE:
        return reason
    names = tuple(map(dtype_name, dtypes))
    if op.kind not in (Kind.REDUCTION, Kind.SCAN):
        return f"{op.name} {names[0]}: {op.kind} ops are not generated"
    # Which products are NaN where one factor is infinite is NumPy's order to say.
    summed = op.kind is Kind.REDUCTION and op.combine == "add" and names[-1] in COMPLEX
    for name in names:
        pairs = name in COMPLEX and not (summed and op.body == "R(x)")
        if pairs or (name == "float16" and op.kind is Kind.SCAN):
            return f"{op.name} {name}: generated code has no {op.name} of {name}"
    if op.name in ARGUMENT_REDUCTIONS:
        return None
    if op.combine == "multiply" and op.kind is Kind.REDUCTION and names[-1] in _ORDERED:
        return f"{op.name} {names[-1]}: {_BY_ORDER}"
    if op.combine is None:
        return f"{op.name} {names[0]}: no scalar reduction defines it"
    if op.combine == MOMENTS:
        if names[-1] not in ("float16", *FLOATS):
            return f"{op.name} {names[-1]}: moments are reduced in floats"
        if dict(attrs).get("mean") is not None:
            return f"{op.name}: a mean that is given is not generated"
    elif choose(OPS[op.combine].body, (names[-1],) * 2) is None:
        return f"{op.name} {names[-1]}: no body for {op.combine} on this dtype"
    if op.body is not None and choose(op.body, names[:1]) is None:
        return f"{op.name} {names[0]}: no body for this dtype"
    finish = choose(op.finish, (names[-1],))
    if finish is None and op.finish is not None:
        return f"{op.name} {names[-1]}: no end of the reduction for this dtype"
    if finish is not None and _COUNT.search(finish) and dict(attrs).get("where"):
        return f"{op.name}: a masked count is not generated"
    return None


# Planning asks this of every node several times, and few pairs of op and dtypes make a program.
@lru_cache(1024)
def _gap(op: Op, dtypes: tuple[Any, ...]) -> str | None:
    """Return why generated code has no values of these dtypes, or no body for them."""
    for dtype in dtypes:
        if (name := dtype_name(dtype)) not in TYPES:
            return f"{op.name} {name}: generated code has no {name} yet"
        if not dtype.isnative:
            return f"{op.name} {name}: its bytes are not in this machine's order"
    if op.kind is Kind.ELEMENTWISE:
        names = tuple(map(dtype_name, dtypes[: op.nin]))
        if choose(op.body, names) is None:
            return f"{op.name} {names[0]}: no body for this dtype"
    return None


register(Cache.OPS, _gap.cache_clear)


def unsupported(group: Group) -> str | None:
    """Return why generated code cannot run a group, or None."""
    graph = group.graph
    if group.kind is GroupKind.LIBRARY:
        return "library groups are not generated"
    if group.kind is GroupKind.ROW_COLUMN:
        return group.form.fault or _bad_reductions(group)
    reductions, in_order = [], ""
    for number, node in graph.numbered:
        operands = [graph.layouts[i] for i in node.operands]
        dtypes = [layout.dtype for layout in (*operands, node.layout)]
        if node.op.name == "roll":
            if reason := _bad_roll(group, number, dtypes):
                return reason
            continue
        if reason := supports(node.op, dtypes, node.attrs):
            if not (reason.endswith(_BY_ORDER) and _may_be_in_order(group, node)):
                return reason
            in_order = reason
        if node.op.kind is Kind.SCAN and group.kind is not GroupKind.SCAN:
            return f"a scan in a {group.kind} group"
        if node.op.kind is Kind.REDUCTION:
            reductions.append((number, node))
            taken = _taken(node)
            if taken and _count(operands[0], node) <= taken:
                return f"{node.op.name}: no degrees of freedom are left, of which NumPy warns"
            if operands[0].shape != group.shape:
                return (
                    f"{node.op.name}: operand {operands[0].shape} is not the group's {group.shape}"
                )
    if group.kind is GroupKind.LOOP:
        return "a reduction in a loop group" if reductions else None
    if group.kind is GroupKind.SCAN:
        return "a reduction in a scan group" if reductions else _bad_scans(group)
    if not reductions:
        return "no reduction in a group of rows"
    if len({graph.axes[number] for number, _ in reductions}) != 1:
        return "reductions of one group over different axes"
    if in_order and not nest(group, unroll=True).unrolled:
        return in_order
    if group.kind is GroupKind.ROWWISE:
        return _bad_rows(group)
    if {number for number, _ in reductions} != set(graph.outputs):
        return "the outputs of a reduce group are not its reductions"
    return None


def _may_be_in_order(group: Group, node: Node) -> bool:
    """Tell whether a product of floats goes in NumPy's order where it is written out."""
    operand = group.graph.layouts[node.operands[0]]
    return (
        group.kind in (GroupKind.REDUCE, GroupKind.ROWWISE)
        and node.op.kind is Kind.REDUCTION
        and node.op.combine == "multiply"
        and node.layout.dtype.name in FLOATS
        and node.attr("initial") is None
        and goes_forward(operand, reduced_axes(node, operand.ndim))
    )


def _bad_reductions(group: Group) -> str | None:
    """Return why the reductions of a row-and-column group cannot be made where elements lie, or
    None."""
    from alight._src.codegen.llvm.combine import Reduction  # late: it loads what writes kernels

    graph = group.graph
    for node in graph.nodes:
        dtypes = [graph.layouts[0].dtype, node.layout.dtype]
        if reason := supports(node.op, dtypes, node.attrs):
            return reason
        taken = _taken(node)
        if taken and _count(graph.layouts[0], node) <= taken:
            return f"{node.op.name}: no degrees of freedom are left, of which NumPy warns"
        if not Reduction(graph, node).lanewise:
            return f"{node.op.name}: its elements are made one by one"
    return None


def _bad_roll(group: Group, number: int, dtypes: list[Any]) -> str | None:
    """Return why a roll is not one that a loop does by itself, or None."""
    node = group.graph.made_by[number]
    (operand, *others) = node.operands
    if group.graph.rolls[number] is None or others:
        return "roll: how far is not a few places along axes that are named"
    if group.kind is not GroupKind.LOOP or operand >= len(group.graph.inputs):
        return f"a roll of what is made in its own {group.kind} group"
    if not group.graph.inputs[operand].shape == node.layout.shape == group.shape:
        return f"roll: {node.layout.shape} in a group over {group.shape}"
    return _gap(node.op, tuple(dtypes))


def _bad_scans(group: Group) -> str | None:
    """Return why a scan group is not one visit along one axis, or None."""
    graph = group.graph
    scans = {n: node for n, node in graph.numbered if node.op.kind is Kind.SCAN}
    if len({node.attr("axis") for node in scans.values()}) != 1:
        return "scans of one group along different axes"
    late: set[int] = set()
    for number, node in graph.numbered:
        if node.layout.shape != group.shape:
            return f"{node.op.name}: {node.layout.shape} in a scan group over {group.shape}"
        if late.intersection(node.operands):
            if number in scans:
                return f"{node.op.name}: a scan of what another scan gives"
            late.add(number)
        elif number in scans:
            late.add(number)
            if graph.layouts[node.operands[0]].shape != group.shape:
                return f"{node.op.name}: the operand is not the group's {group.shape}"
    return None


def _bad_rows(group: Group) -> str | None:
    """Return why a rowwise group is not one visit to rows that lie in memory, or None."""
    graph, axes, beside = group.graph, group.form.axes, group.form.beside
    if beside is None:
        return "what the reductions leave meets something else"
    for number, node in graph.numbered:
        if node.op.kind is not Kind.ELEMENTWISE or number in beside:
            continue
        for value in (number, *(o for o in node.operands if o >= len(graph.inputs))):
            shape = graph.layouts[value].shape
            if shape != group.shape and not one_per_row(shape, group.shape, axes):
                return f"{node.op.name}: {shape} is neither {group.shape} nor one for each row"
    form = nest(group, unroll=True)
    if form.unrolled:
        return None
    if len(form.dims) - form.kept != 1:
        return f"rows along the axes {axes} of {group.shape} are not one run in memory"
    return "rows are not next to one another in memory" if form.columns else None


def check(group: Group) -> None:
    """Raise Unsupported with the reason if generated code cannot run the group."""
    if reason := unsupported(group.form.plain or group):
        raise Unsupported(reason)


def _taken(node: Node) -> Any:
    """Return by how many degrees of freedom a reduction divides by less than its elements."""
    attrs = dict(node.attrs)
    return attrs.get("correction", attrs.get("ddof", 0)) or 0


def _count(operand: Layout, node: Node) -> int:
    """Return how many elements a reduction reduces into one."""
    return prod(operand.shape[i] for i in reduced_axes(node, operand.ndim))
