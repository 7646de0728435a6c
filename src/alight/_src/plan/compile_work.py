"""What LLVM goes through to make a group's kernel, counted in operations of its bodies, and the
seconds that it is predicted to take.

The seconds of one operation differ between machines and are in their profiles; what else costs as
much as so many of them is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from alight._src.ir.graph import GroupKind
from alight._src.ir.op_table import Kind
from alight._src.ir.vectors import LONG_FLOPS, REGISTERS, live_at_most, together
from alight._src.plan.workload import body_size

if TYPE_CHECKING:
    from alight._src.ir.graph import Graph, Node
    from alight._src.ir.group import Group
    from alight._src.plan.profile import Profile

__all__ = [
    "KERNEL_WORK",
    "code_size",
    "compile_seconds",
    "is_few",
    "too_long",
    "weight_of",
    "work_of",
    "work_of_nodes",
]

# Least squares of relative errors over 340 random kernels (`tools/compile_times.py`, EPYC of two
# busy cores, a thread's own seconds): an operation takes 44 µs, a kernel 6.3 ms; what follows are
# multiples of an operation. Measured were 0.6 to 2.7 times the predicted seconds (1 % and 99 %).
_FUNCTION = 89  # each different special function, for what is seldom needed of it
_STRIDED = 13.5  # an operand that is gathered, turned round, rolled or put in order first, its part
_FIXED = 2.9  # a scalar
_WRITTEN = 3.3  # a result: stored whole, in part and past the caches
_PRESSURE = 9.4  # a vector that waits and finds no register
_POWER = 45  # an integer power, a loop of its own (16 of them took 34 ms more than 16 gcds)
# The same, in reductions over rows, one of which takes 6.2 ms.
_ROWS, _COLUMNS, _COLUMN = 0.8, 5.5, 3.0
_REDUCTION = 141.0  # in operations

# A kernel's most, 90 ms as predicted where it was fitted: of 270 kernels below it 99 % took 148 ms
# at most. Whoever waits for a compiler waits for one kernel.
KERNEL_WORK = 1900
# Where reductions over rows and over columns read an array once, three are one kernel: of float64
# they take 139 ms, and five 179.
_ROW_COLUMN_WORK = 2200

# What a node is at most without a look at its body, in operations: a simple one, of few of which
# as many vectors go together, and a long one (but a complex power is 709).
_SIMPLE_MOST, _LONG_MOST = 16, 400

# Seconds before anything was measured: importing the compiler took 60 ms, loading an object 0.7 to
# 1.6 ms (AVX-512 Xeon); the others are that fit, where the machine was busy.
_ONE_OFFS: Mapping[str, float] = {
    "compiler": 0.06,
    "kernel": 0.0063,
    "reduction": 0.0062,
    "operation": 0.000044,
    "load": 0.0016,
}


def compile_seconds(group: Group, profile: Profile | None, stored: bool, first: bool) -> float:
    """Return the predicted seconds until a group's generated kernel is there.

    ``stored``: its object is on disk; ``first``: the compiler is not imported yet.
    """
    measured = {} if profile is None else profile.one_offs

    def one(name: str) -> float:
        return measured[name].value if name in measured else _ONE_OFFS[name]

    seconds = one("compiler") if first else 0.0
    if stored:
        return seconds + one("load")
    size, reductions = code_size(group.form.packed or group)
    return seconds + one("kernel") + size * one("operation") + reductions * one("reduction")


def code_size(group: Group) -> tuple[float, float]:
    """Return what a group's kernel is for a compiler: operations, and reductions."""
    graph = group.graph
    return _size(graph, graph.numbered, range(len(graph.inputs)), graph.outputs, {})


def _size(
    graph: Graph,
    numbered: Sequence[tuple[int, Node]],
    inputs: Collection[int],
    outputs: Iterable[int],
    sizes: dict[int, int],
) -> tuple[float, float]:
    """Return what a kernel of nodes of a graph is for a compiler, that reads and gives these;
    ``sizes`` of their bodies are looked up, and kept, there."""
    layouts = [graph.layouts[value] for value in inputs]
    small = [value for value, layout in zip(inputs, layouts, strict=True) if layout.size <= 1]
    live = live_at_most(numbered, outputs, len(layouts) - len(small), small)
    vectors = together(numbered, REGISTERS, live)
    first = layouts[0] if layouts else numbered[0][1].layout
    parts = vectors * (2 if first.dtype.kind == "c" else 1)
    size, functions = 0.0, set()
    reductions, columns = 0, False
    for number, node in numbered:
        if node.op.kind is Kind.ELEMENTWISE:
            own = sizes.get(number)
            if own is None:
                own = sizes[number] = body_size(graph, node)
            size += own * vectors
            if node.op.special:
                functions.add(node.op)
            elif node.op.name == "power":
                size += _POWER
        elif node.op.kind is Kind.MOVEMENT:
            size += _STRIDED * parts
        else:
            reductions += 1
            columns = columns or _over_columns(graph, node)
    total = float(size) + _FUNCTION * len(functions)
    total += _PRESSURE * max(0, live * vectors - REGISTERS)
    for layout in layouts:
        if layout.size == 1:
            total += _FIXED
        elif layout.strides[-1] != layout.itemsize:
            total += _STRIDED * parts
    if not reductions:
        return total + _WRITTEN * parts * len(set(outputs)), 0.0
    return total, _COLUMNS + _COLUMN * reductions if columns else _ROWS + reductions


def _over_columns(graph: Graph, node: Node) -> bool:
    """Tell whether a node reduces others than the last axis."""
    axes = node.attr("axis")
    last = graph.layouts[node.operands[0]].ndim - 1
    return axes is not None and last not in (axes if isinstance(axes, tuple) else (axes,))


def work_of(group: Group) -> float:
    """Return what a group's kernel is for a compiler, in operations."""
    size, reductions = code_size(group)
    return size + _REDUCTION * reductions


def work_of_nodes(
    graph: Graph, members: Sequence[int], outputs: Iterable[int], sizes: dict[int, int]
) -> float:
    """Return what a kernel of some nodes of a graph is for a compiler, in operations; ``sizes``:
    what is known of their bodies, by their numbers, and what is found."""
    inside, made_by = set(members), graph.made_by
    inputs = {o: None for m in members for o in made_by[m].operands if o not in inside}
    size, reductions = _size(graph, [(m, made_by[m]) for m in members], inputs, outputs, sizes)
    return size + _REDUCTION * reductions


def weight_of(graph: Graph, members: Iterable[int]) -> float:
    """Return what nodes are for a compiler beside others, one vector at a time, in operations."""
    total, functions = 0.0, set()
    for member in members:
        node = graph.made_by[member]
        if node.op.kind is Kind.MOVEMENT:
            total += _STRIDED
            continue
        if node.op.kind is not Kind.ELEMENTWISE:
            total += _REDUCTION * (_COLUMN if _over_columns(graph, node) else 1)
            continue
        total += body_size(graph, node)
        if node.op.special:
            functions.add(node.op)
    return total + _FUNCTION * len(functions)


def is_few(graph: Graph, members: Iterable[int], written: int) -> bool:
    """Tell whether nodes, so many of which are written, are one kernel's in any case. No body is
    read for it: that takes a millisecond for each kind of node."""
    most = _SIMPLE_MOST * written
    for member in members:
        op = graph.made_by[member].op
        simple = op.kind is Kind.ELEMENTWISE and not op.special and op.flops < LONG_FLOPS
        most += _SIMPLE_MOST if simple else _LONG_MOST
    return 2 * most <= KERNEL_WORK  # the other half is for operands


def too_long(group: Group) -> str:
    """Return why a group is more than one kernel of the host's; empty where it is not."""
    graph = group.graph
    most = _ROW_COLUMN_WORK if group.kind is GroupKind.ROW_COLUMN else KERNEL_WORK
    if is_few(graph, graph.made_by, len(graph.outputs)) or (work := work_of(group)) <= most:
        return ""
    return f"its kernel would be {work:.0f} operations for a compiler, of at most {most}"
