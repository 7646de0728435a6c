"""What of a group runs as one launch each: which curve it is read off, and how far along."""

from __future__ import annotations

import math

import numpy as np

from alight._src.base.records import dataclass
from alight._src.ir.graph import Graph, GroupKind, Node, reduced_axes, steps_of
from alight._src.ir.group import Group
from alight._src.ir.op import dtype_name, width_in_bits
from alight._src.ir.op_table import Kind
from alight._src.ir.table_reduction import CHUNK, LANES
from alight._src.plan.access_pattern import LINE_BYTES, Runs, between_bytes, runs_of, touched_bytes
from alight._src.plan.workload import (
    contraction_flops,
    is_contraction,
    node_elements,
    one_by_one,
    workload,
)

_SORTS = frozenset(("sort", "argsort", "lexsort", "unique", "median"))


@dataclass(frozen=True, slots=True)
class Pass:
    """Work that runs as one launch: which curve it is read off, how far along, its nodes, and how
    it goes through its ``operands`` arrays. Of the bytes it moves a share is ``written``; ``apart``
    are those that lie between rows, and of a choice those that it moves more than one of whole
    arrays does, or less. Generated code has ``threads`` on a device; where it reduces columns that
    lie side by side, ``rows`` of them, a host's threads share them in so many ``parts``. ``once``:
    a device reduces each row in one kernel. Of a product's bytes ``again`` are read more than once,
    for other results: out of the caches. ``counts`` says how often the body of each node runs;
    ``reductions`` are those of the nodes that are."""

    kind: str
    dtype: str
    amount: float
    nodes: tuple[Node, ...]
    runs: Runs
    operands: int
    written: float = 0.0
    apart: float = 0.0
    threads: float = 0.0
    rows: int = 0
    parts: int = 0
    once: bool = False
    again: float = 0.0
    counts: tuple[int, ...] = ()
    reductions: tuple[Node, ...] = ()


def node_class(graph: Graph, node: Node) -> str:
    """Return the class of curves that a node's time is read off."""
    kind = node.op.kind
    if kind is Kind.ELEMENTWISE:
        return "select" if node.op.name == "where" else "elementwise"
    if kind is Kind.REDUCTION:
        return reduction_class(graph, node)
    if kind is Kind.SCAN:
        return "scan"
    if is_contraction(node):
        return "matmul"
    if kind in (Kind.GATHER, Kind.SCATTER):
        return "gather"
    if kind is not Kind.LIBRARY:
        return "move"
    if node.op.name in _SORTS:
        return "sort"
    return "fft" if node.op.name.startswith("fft.") else "other"


def reduction_class(graph: Graph, node: Node) -> str:
    """Return whether a reduction reduces the axis along which elements are neighbours."""
    layout = graph.layouts[node.operands[0]]
    axis = dict(node.attrs).get("axis")
    axes = range(layout.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    reduced = {i % layout.ndim for i in axes} if layout.ndim else set()
    long = [i for i in range(layout.ndim) if layout.shape[i] > 1]
    nearest = min(long, key=lambda i: abs(layout.strides[i]), default=None)
    return "reduce_inner" if nearest is None or nearest in reduced else "reduce_outer"


# Columns of the probes of few ones, and the bytes of a row of them: less than the part that a
# thread of the host gets, and less than the threads of a warp.
NARROW_COLUMNS, NARROW_BYTES = 16, 16 * 8
# Rows for each thread below which the host cuts a reduction along what is reduced
# (`backends.split`), and the bytes of the probe of such reductions: enough for as many parts as
# there can be.
ROWS_FOR_EACH, COMBINED_BYTES = 4, 1 << 22
# Bytes of columns that a thread of the host gets at least (`backends.split`).
COLUMNS_BYTES = 256


def columns_of(group: Group) -> tuple[int, int] | None:
    """Return the rows that generated code reduces columns of, and how many columns lie side by
    side; None where it goes along what is reduced.

    As its nests do, it goes along the axis on which more elements of what it reads have neighbours;
    of products, where fewer lie apart.
    """
    shape, layouts, axes = group.shape, group.graph.inputs, group.form.axes
    steps, places = _steps(group)
    kept, reduction = (_innermost(group, places, along) for along in (False, True))
    if kept is None or reduction is None:
        return None
    inner = kept, reduction
    beside, ahead = (
        sum(x.size for s, x in zip(steps, layouts, strict=True) if s[i] == x.itemsize)
        for i in inner
    )
    if beside <= ahead:
        apart = [
            sum(x.size for s, x in zip(steps, layouts, strict=True) if s[i] not in (0, x.itemsize))
            for i in inner
        ]
        product = group.kind is GroupKind.REDUCE and group.form.product
        if shape[kept] < LANES or apart[0] >= apart[1] or not product:
            return None
    return math.prod(shape[i] for i in axes), shape[kept]


def _steps(group: Group) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the steps of the inputs along a group's axes, and those of outputs and inputs."""
    shape, graph, axes = group.shape, group.graph, group.form.axes
    steps = [steps_of(layout, shape) for layout in graph.inputs]
    return steps, [steps_of(graph.layouts[o], shape, axes) for o in graph.outputs] + steps


def _innermost(group: Group, steps: list[tuple[int, ...]], along: bool) -> int | None:
    """Return which of the axes that are reduced, or of those that are not, has the nearest elements
    by these steps; None where there is none."""
    axes = group.form.axes
    own = [i for i, n in enumerate(group.shape) if n != 1 and (i in axes) is along]
    return max(own, key=lambda i: [-abs(s[i]) for s in steps], default=None)


def _read_bytes(group: Group, columns: bool) -> float:
    """Return the bytes that inner loops of a reduction read, whoever has read them before: of what
    stays along them none, of what lies apart up to a line."""
    if not group.form.reductions:
        return 0.0
    steps, places = _steps(group)
    axis = _innermost(group, places, not columns)
    if axis is None:
        return 0.0
    return float(math.prod(group.shape) * sum(min(abs(step[axis]), LINE_BYTES) for step in steps))


def loop_dtype(graph: Graph, node: Node) -> str:
    """Return the dtype a node computes in: its first operand's, or of what it picks from."""
    first = 1 if node.op.name == "where" else 0
    layout = graph.layouts[node.operands[first]] if node.operands else node.layout
    return dtype_name(layout.dtype)


def passes(group: Group, implementation: str) -> list[Pass]:
    """Return what runs as one launch each."""
    product = group.kind is GroupKind.LIBRARY
    if implementation == "generated":
        group = group.form.lowered or group.form.packed or group
    graph = group.graph
    if implementation == "generated" and group.kind is not GroupKind.LIBRARY:
        reductions, axes = group.form.reductions, group.form.axes
        # what is bound by memory and writes whole arrays moves bytes as elementwise code does
        whole = any(graph.layouts[o].shape == group.shape for o in graph.outputs)
        columns = None
        kind = "elementwise"
        if reductions and not whole:
            columns = columns_of(group)
            kind = "reduce_inner" if columns is None else "reduce_outer"
        if group.kind is GroupKind.SCAN:
            kind, columns = "scan", None
        threads = threads_of(group, columns is not None)
        once = group.kind is GroupKind.ROWWISE or (kind == "reduce_inner" and _once(group))
        work = workload(group)
        nbytes = work.bytes_read + work.bytes_written
        amount = work.bytes_read if kind == "reduce_outer" else nbytes
        # the widest fills the registers
        dtype = max(work.dtypes, default="float64", key=width_in_bits)
        outputs = tuple([graph.layouts[o] for o in dict.fromkeys(graph.outputs)])
        reduced = axes if reductions and not whole else None
        counted = any(node.op.name.startswith("arg") for node in reductions)
        runs = runs_of(group.shape, graph.inputs, outputs, reduced, counted)
        counts = work.counts
        if product:  # what it adds up is in the curve
            counts = (*counts[:-1], graph.nodes[-1].layout.size)
        written = work.bytes_written / nbytes if nbytes else 0.0
        operands = len(graph.inputs) + len(outputs)
        between = float(sum(map(between_bytes, graph.inputs)))
        rows = parts = 0
        if columns is not None:
            rows, side = columns
            beside = math.prod(group.shape) // max(rows * side, 1)  # other axes are shared, too
            parts = max(1, beside * side * width_in_bits(dtype) // 8 // COLUMNS_BYTES)
        if group.kind is GroupKind.ROWWISE and reductions and whole:  # rows that are read again
            parts = math.prod(n for i, n in enumerate(group.shape) if i not in axes)
        again = max(0.0, _read_bytes(group, columns is not None) - amount) if product else 0.0
        item = Pass(
            *(kind, dtype, amount, graph.nodes, runs, operands, written, between),
            *(threads, rows, parts, once, again, counts, reductions),
        )
        return [item]
    return [alone(graph, node, nbytes) for node, nbytes in one_by_one(graph)]


# Threads of a block that has a row, and those that have one of a chunk or less; the elements that a
# thread of what is elementwise goes through at once (`codegen.cuda`).
BLOCK, _TEAM, _PACKED = 256, 4, 4


def threads_of(group: Group, columns: bool) -> float:
    """Return how many threads generated code of a device gives a group; 0 where that is unknown.
    ``columns``: it reduces columns that lie side by side."""
    elements = math.prod(group.shape)
    if group.kind is GroupKind.LOOP:
        return max(elements / _PACKED, 1.0)
    reductions = group.kind in (GroupKind.REDUCE, GroupKind.ROWWISE) and group.form.reductions
    if not reductions or not elements:
        return 0.0
    length = math.prod(group.shape[i] for i in group.form.axes)
    each = max(length / CHUNK, 1.0)  # a thread has a column, or a chunk of one
    if columns and length > CHUNK:  # of few, in which each counts, a lane
        each = LANES * (each if each > _ALONE else 1.0)
    elif not columns and length >= LANES:  # shorter rows are written out: a thread has one, too
        each *= _TEAM
    if group.kind is GroupKind.ROWWISE:  # a row is never cut
        each = min(each, BLOCK)
    return elements / length * each


# Reductions of fewer elements are one kernel on a device, and those of so many rows that each can
# have threads enough (`codegen.cuda`).
_LONG_REDUCTION, _MANY_ROWS = 8192, 1024
# Chunks of a column up to which one lane after another goes through them (`codegen.cuda`).
_ALONE = 4


def _once(group: Group) -> bool:
    """Tell whether a device reduces the rows of a group in one kernel."""
    length = math.prod(group.shape[i] for i in group.form.axes)
    return length < _LONG_REDUCTION or math.prod(group.shape) >= _MANY_ROWS * length


def alone(graph: Graph, node: Node, nbytes: int) -> Pass:
    """Return what a node is where it runs by itself, moving so many bytes."""
    kind = node_class(graph, node)
    layouts = tuple([graph.layouts[i] for i in node.operands])
    # what columns are reduced into stays in the caches
    amount: float = touched_bytes(layouts[0]) if kind == "reduce_outer" else nbytes
    runs, apart = Runs(1, max(node.layout.size, 1), 0, 0), float(sum(map(between_bytes, layouts)))
    if kind == "matmul":
        amount = contraction_flops(graph, node)
    elif node.op.kind is Kind.ELEMENTWISE:
        runs = runs_of(node.layout.shape, layouts, (node.layout,))
        if node.op.flops > 1 and not isinstance(node.op.reference, np.ufunc):
            # Random numbers are a chain of NumPy's calls, each of two arrays to a new one: a
            # million normal ones took 0.6 s where 93 us were predicted, 0.7 ms for a kernel (EPYC).
            amount = 3.0 * node.layout.nbytes * node.op.flops
        if kind == "select":  # which goes wrong for so many elements, whatever they move
            amount = float(node.layout.size * (layouts[0].itemsize + 3 * node.layout.itemsize))
            apart = nbytes - amount
    elif node.op.kind is Kind.REDUCTION:
        if node.op.name.startswith("arg"):
            kind = "reduce_inner"  # libraries copy what lies otherwise
        axes = reduced_axes(node, layouts[0].ndim)
        runs = runs_of(layouts[0].shape, layouts[:1], (node.layout,), axes)
    written = node.layout.nbytes / nbytes if nbytes else 0.0
    operands = len(layouts) + 1
    return Pass(
        *(kind, loop_dtype(graph, node), amount, (node,), runs, operands, written, apart),
        counts=(node_elements(graph, node),),
        reductions=(node,) if node.op.kind is Kind.REDUCTION else (),
    )
