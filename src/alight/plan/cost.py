"""The cost model: a group's workload and a device's profile in, an Estimate out.

One formula for all devices. A group runs in passes: one for a generated kernel, one for each node
where NumPy or a library runs it. A pass takes

    launch + memory(bytes) + shown(work),    work = compute + loops

where ``memory`` is read off the measured curve of its class, ``compute`` is the sum, over its
nodes, of measured seconds for an element times the elements, and ``loops`` what it takes to start
inner loops and to step over elements between those that are wanted. In the caches compute hides
behind memory as long as it is the shorter one; past them as far as ``overlap`` says (see
``shown``). Generated code shares its work among threads as the measured curve of that says. Matrix
products are read off their surface.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from alight._core import make_layout
from alight.ir.group import Graph, Group, Node
from alight.ir.ops import Kind
from alight.ir.rolls import as_copies
from alight.ir.table_reduction import LANES
from alight.ir.vectors import REGISTERS, SHORT_ROW, vectors_together
from alight.plan.curve import Curve, Measured
from alight.plan.passes import Pass, alone, loop_dtype, node_class, passes, reduction_class
from alight.plan.plan import Estimate
from alight.plan.profile import SCHEMA, Profile, Rates
from alight.plan.runs import LINE_BYTES, Runs, runs_of, touched_bytes
from alight.plan.workload import (
    PARTS,
    body_parts,
    code_size,
    node_elements,
    one_by_one,
    product_shape,
    width_in_bits,
)

if TYPE_CHECKING:
    from alight.device import Device

__all__ = [
    "LONG_ROW",
    "SCHEMA",
    "START_ROWS",
    "Profile",
    "Rates",
    "compile_seconds",
    "copy_seconds",
    "estimate",
    "with_copies",
]

# Standard normal deviate that leaves 10 % on either side: the ends of an 80 % interval.
_TEN_PERCENT = 1.2815515655446004

# Standard deviations, in logarithms, of a prediction from another class's or dtype's curve, and of
# one from what the body is made of. Guesses: a factor of two and of 1.5 either way at one
# deviation. What was measured brings its own.
_BORROWED_SPREAD = math.log(2.0)
_BODY_SPREAD = math.log(1.5)

# Lengths of the rows that tell what starting a fold of one takes: short ones, and others. Folds of
# fewer than sixteen go side by side in generated code.
START_ROWS = (3, 24)
# Of rows that do not join, up to where an element takes longer than where they do: NumPy's sums of
# two float64 took 0.2 ns more in rows of 64 to 1000, and no more in all in rows of 30000.
LONG_ROW = 250
_START_SPAN = math.log(START_ROWS[1] / START_ROWS[0])

# Classes to borrow from, nearest first, where a device has no curve of a class.
_NEAREST: Mapping[str, tuple[str, ...]] = {
    "elementwise": (),
    "select": ("elementwise",),
    "reduce_inner": ("reduce_outer", "elementwise"),
    "reduce_outer": ("reduce_inner", "elementwise"),
    "scan": ("reduce_inner", "elementwise"),
    "move": ("elementwise",),
    "gather": ("move", "elementwise"),
    "sort": (),
    "fft": (),
    "other": ("scan", "reduce_inner", "elementwise"),
    "matmul": (),
}


# Bytes up to which what computes hides all that memory takes, and from which on the measured share
# of it: those of the probes of arithmetic and of those of overlap (``measure.points``).
NEAR_BYTES, FAR_BYTES = 3 << 16, 3 << 22
# Elements of an inner loop up to which NumPy's iterator copies operands that do not join into
# buffers, of twice as many, for longer loops on these (NumPy 2.3 on).
BUFFERED = 4096


def shown(beyond: float, memory: float, stream: float, nbytes: float, overlap: float) -> float:
    """Return what of the seconds ``beyond`` those that hide in the caches is added to memory's, of
    which ``stream`` would be there if all were in the caches.

    Far from the caches that much more is waited for as does not overlap, and that much of the
    waiting is used as does.
    """
    far = math.log(max(nbytes, NEAR_BYTES) / NEAR_BYTES) / math.log(FAR_BYTES / NEAR_BYTES)
    waited = (1 - overlap) * min(far, 1.0) * min(beyond, stream)
    return beyond + waited - overlap * min(beyond, max(0.0, memory - stream))


def _distance(dtype: str, other: str) -> tuple[bool, int]:
    """Return how unlike two dtypes are to compute with: first in kind, then in width."""
    kinds = {name.startswith(("float", "complex")) for name in (dtype, other)}
    return len(kinds) > 1, abs(width_in_bits(dtype) - width_in_bits(other))


def _curve(rates: Rates, kind: str, dtype: str) -> tuple[Curve, float] | None:
    """Return the curve for a class and dtype, or the nearest there is, and its spread."""
    spread = rates.spreads.get(kind, rates.spread)
    found = rates.curves.get(f"{kind}/{dtype}")
    if found is not None:
        return found, spread
    for near in (kind, *_NEAREST[kind]):
        names = [name for name in rates.curves if name.startswith(near + "/")]
        if names:
            # Curves run over bytes, so the dtype nearest in width moves them most alike.
            best = min(names, key=lambda n: (*_distance(dtype, n.partition("/")[2]), n))
            return rates.curves[best], math.hypot(spread, _BORROWED_SPREAD)
    return None


def work_key(graph: Graph, node: Node) -> str:
    """Return the name of a node's work: its op's, with its class where it is a reduction."""
    if node.op.kind is Kind.REDUCTION:
        return f"{node.op.name}@{reduction_class(graph, node)}"
    return node.op.name


def _nearest(rates: Rates, name: str, dtype: str) -> str | None:
    """Return the key of the work of that name in the dtype most like this one."""
    exact = f"{name}/{dtype}"
    if exact in rates.work:
        return exact
    others = rates.work_dtypes(name)
    near = min(others, key=lambda other: (*_distance(dtype, other), other), default=None)
    return None if near is None else f"{name}/{near}"


def _body_seconds(rates: Rates, graph: Graph, node: Node, dtype: str) -> float | None:
    """Return seconds for an element of what the body of a node is made of; None where that was not
    measured, or the node has no body."""
    if node.op.kind is not Kind.ELEMENTWISE:
        return None
    seconds = 0.0
    for part, count in zip(PARTS, body_parts(graph, node), strict=True):
        unit = rates.work.get(f"body.{part}/{dtype}") if count else None
        if count and unit is None:
            return None
        seconds += count * unit.value if unit is not None else 0.0
    return seconds


def _work_seconds(rates: Rates, graph: Graph, node: Node, own: bool) -> tuple[float, float] | None:
    """Return a node's compute seconds for an element, and the spread of that number; None where it
    may be anything."""
    if node.op.kind is not Kind.ELEMENTWISE:
        return _work_looked_up(rates, graph, node, own)
    key = own, node.op, node.layout.dtype, *[graph.layout(o).dtype for o in node.operands]
    if key not in rates.nodes:
        rates.nodes[key] = _work_looked_up(rates, graph, node, own)
    found: tuple[float, float] | None = rates.nodes[key]
    return found


_DIGITS = "0123456789"


def _work_looked_up(
    rates: Rates, graph: Graph, node: Node, own: bool
) -> tuple[float, float] | None:
    dtype = loop_dtype(graph, node)
    name = work_key(graph, node)
    found = rates.work.get(f"{name}/{dtype}")
    if found is not None:
        return found.value, rates.spread
    if own:
        body = _body_seconds(rates, graph, node, dtype)
        near = _nearest(rates, name, dtype)
        # of another kind the same op is another body
        alike = near is not None and near.partition("/")[2].rstrip(_DIGITS) == dtype.rstrip(_DIGITS)
        if near is not None and rates.work[near].value > 0 and (alike or body is None):
            other = near.partition("/")[2]
            share = width_in_bits(dtype) / width_in_bits(
                other
            )  # a vector of half the width holds twice as many
            there = _body_seconds(rates, graph, node, other)
            if body is not None and there:
                share = body / there
            return rates.work[near].value * share, math.hypot(rates.spread, _BODY_SPREAD)
        if body is not None:
            return body, math.hypot(rates.spread, _BODY_SPREAD)
        if node.op.kind is Kind.ELEMENTWISE and body_parts(graph, node)[PARTS.index("scalar")]:
            return None  # how often a loop runs is not in its body
    if node.op.kind is Kind.REDUCTION:  # as along another axis, or in another dtype
        ways = [f"{node.op.name}@{kind}" for kind in ("reduce_inner", "reduce_outer")]
        known = [key for way in (name, *ways) if (key := _nearest(rates, way, dtype))]
        best = min(known, key=lambda k: _distance(dtype, k.partition("/")[2]), default=None)
        if best is not None:
            return rates.work[best].value, math.hypot(rates.spread, _BODY_SPREAD)
    name, count = ("special", 1.0) if node.op.special else ("flop", node.op.flops)
    near = _nearest(rates, name, dtype)
    if near is None:
        return 0.0, _BORROWED_SPREAD
    if own:  # a vector of half the width holds twice as many
        count *= width_in_bits(dtype) / width_in_bits(near.partition("/")[2])
    return rates.work[near].value * count, math.hypot(rates.spread, _BORROWED_SPREAD)


def _folded_seconds(rates: Rates, graph: Graph, node: Node, seconds: float) -> float:
    """Return a node's seconds for an element in front of a fold, where a body has fewer registers
    and less to do while it waits."""
    dtype = loop_dtype(graph, node)
    if not node.op.special:
        key = _nearest(rates, "flop@folded", dtype)
        return max(seconds, rates.work[key].value) if key is not None else seconds
    key = _nearest(rates, "sin@folded", dtype)
    alone = rates.work.get(f"sin/{key.partition('/')[2]}") if key is not None else None
    if key is None or alone is None or not alone.value:
        return seconds
    return seconds * max(1.0, rates.work[key].value / alone.value)


def _beside(item: Pass) -> bool:
    """Tell whether generated code has short rows side by side in vectors: those that are folded,
    and those where a full vector is worth more than the copies that takes."""
    if item.kind == "elementwise":
        return item.runs.length < SHORT_ROW and any(node.op.special for node in item.nodes)
    return item.kind == "reduce_inner" and item.runs.length < LANES and not _whole(item)


def _whole(item: Pass) -> bool:
    """Tell whether all is folded into one element."""
    folds = [node for node in item.nodes if node.op.kind is Kind.REDUCTION]
    return all(node.layout.size == 1 for node in folds)


def _step(graph: Graph, item: Pass) -> int:
    """Return how many elements generated code goes through at once: a register is a line, on the
    widest machines, and several go together."""
    lanes = LINE_BYTES * 8 // width_in_bits(item.dtype)
    return lanes * vectors_together(graph, REGISTERS) if item.kind == "elementwise" else lanes


def _filled(item: Pass, step: int) -> float:
    """Return how many elements each element counts for: a vector that is not full takes as long."""
    length = item.runs.length
    if not step or item.runs.starts == 1 or not length or _beside(item):
        return 1.0
    return step * -(-length // step) / length


def _loop_seconds(rates: Rates, item: Pass, step: int) -> float:
    """Return seconds of starting inner loops and of stepping along operands in another way than
    from one element to the next. ``step`` as `_step` says it of our own code, 0 of a library's."""
    runs = item.runs
    own = step > 0
    if runs.starts == 1 and not runs.near + runs.far:
        return 0.0
    if not own and item.kind == "elementwise":
        return _iterated(rates, item)
    kind = "elementwise" if item.kind == "select" else item.kind
    seconds = _turned(rates, item) if runs.turned + runs.again else 0.0
    if runs.starts > 1 and not (own and _beside(item)):
        fold = next((n.op.name for n in item.nodes if n.op.kind is Kind.REDUCTION), "sum")
        start = None
        if kind == "reduce_inner" and not own and (_whole(item) or fold.startswith("arg")):
            start = _start(rates, "elementwise", item)  # no result is begun with each of them
        elif kind == "reduce_inner" and fold not in ("sum", "mean"):
            # sums add pairwise in a loop of their own; the others go as the maximum does
            start = _start(rates, f"{fold}@{kind}", item) or _start(rates, f"max@{kind}", item)
        if item.kind == "select":
            start = _start(rates, "where", item)
        start = start or _start(rates, kind, item) or _start(rates, "elementwise", item)
        # what is folded and its result, where they were measured
        operands = min(item.operands, 2) if kind.startswith("reduce") else item.operands
        seconds += runs.starts * operands * (start or 0.0)
        key = _nearest(rates, f"long@{kind}", item.dtype)
        length = min(runs.length, LONG_ROW)
        seconds += runs.starts * length * rates.work[key].value if key else 0.0
        # Generated code reads what vectors leave over one by one where it does not lie in order.
        odd = runs.near * (runs.length % step) if own else runs.near + runs.far
        key = _nearest(rates, "start@near", item.dtype) if odd else None
        if key is not None:
            seconds += runs.starts * odd * rates.work[key].value
    if own and kind == "reduce_inner" and _beside(item):
        key = _nearest(rates, f"{'torn' if runs.torn else 'beside'}@reduce_inner", item.dtype)
        seconds += runs.starts * runs.length * rates.work[key].value if key else 0.0
    near, far = runs.near, runs.far - runs.turned
    if kind != "elementwise":  # which alone has a quick way for those that are near
        near, far = 0, near + far
    aside = "far@folded" if own and kind.startswith("reduce") else "far"
    for name, count in (("near", near), (aside, far)):
        key = _nearest(rates, name, item.dtype) if count else None
        if key is not None:
            seconds += runs.starts * runs.length * count * rates.work[key].value
    return seconds


def _iterated(rates: Rates, item: Pass) -> float:
    """Return seconds of a library's loops: of short ones, operands that do not join are copied
    into buffers, at so much for each loop and each element; the others are gone through as they
    are."""
    runs = item.runs
    seconds = _turned(rates, item) if runs.turned + runs.again else 0.0
    away = [("start@near", runs.near + runs.far - runs.turned)]
    key = _nearest(rates, "iterator", item.dtype) if runs.torn else None
    seconds += rates.work[key].value if key is not None else 0.0
    if runs.starts > 1 and runs.length <= BUFFERED:
        torn = runs.torn - runs.turned
        for name, count in (
            ("start", torn * runs.starts),
            ("long", torn * runs.starts * runs.length),
        ):
            key = _nearest(rates, f"{name}@elementwise", item.dtype)
            seconds += count * rates.work[key].value if key else 0.0
    elif _apart(rates, item) is not None:
        return seconds
    else:
        away = [("near", runs.near), ("far", runs.far - runs.turned)]
    for name, count in away:
        key = _nearest(rates, name, item.dtype) if count else None
        seconds += count * runs.starts * runs.length * rates.work[key].value if key else 0.0
    return seconds


# Sides of the square arrays that tell what an element takes of one whose neighbours are in other
# rows: its lines stay in the first cache until they are used up, in the second, or in neither.
TURNED_SIDES = (64, 256, 1024)


def _turned(rates: Rates, item: Pass) -> float:
    """Return seconds of going through arrays along another axis than that of their neighbours."""
    runs = item.runs
    elements = runs.starts * runs.length
    sides, units = [], []
    for side in TURNED_SIDES:
        key = _nearest(rates, f"turned{side}", item.dtype)
        if key is not None:
            sides.append(math.log(side))
            units.append(rates.work[key].value)
    found = _curve(rates, "elementwise", item.dtype)
    if not sides or found is None:
        return 0.0
    again = found[0].stream_seconds(runs.again * elements)
    place = math.log(max(runs.side, 1))
    unit = units[0]
    for (low, one), (high, two) in pairwise(zip(sides, units, strict=True)):
        share = min(max((place - low) / (high - low), 0.0), 1.0)
        unit += share * (two - one)
    return again + runs.turned * elements * unit


def _start(rates: Rates, name: str, item: Pass) -> float | None:
    """Return seconds of starting an inner loop, for each operand: those of short ones, of others,
    or between."""
    key = _nearest(rates, f"start@{name}", item.dtype)
    if key is None:
        return None
    seconds, length = rates.work[key].value, item.runs.length
    short = _nearest(rates, f"short@{name}", item.dtype)
    if short is None or length >= START_ROWS[1]:
        return seconds
    share = math.log(max(length, START_ROWS[0]) / START_ROWS[0]) / _START_SPAN
    return share * seconds + (1 - share) * rates.work[short].value


def _apart(rates: Rates, item: Pass) -> Measured | None:
    """Return the seconds for an element of a library's op along operands that do not go from one
    element to the next; None where they do, or the op was not measured so."""
    runs, name = item.runs, item.nodes[0].op.name
    if runs.starts > 1 and runs.length <= BUFFERED:
        return None  # what is in buffers is in order
    if not runs.near + runs.far:
        return rates.work.get(f"{name}@still/{item.dtype}") if runs.still else None
    found = rates.work.get(f"{name}@back/{item.dtype}") if item.runs.back else None
    return found or rates.work.get(f"{name}@apart/{item.dtype}")


def _vector_curve(rates: Rates, dtype: str, m: int, k: int, n: int) -> Curve | None:
    """Return the curve of products with vectors, which stream through memory and have functions of
    their own in every library, over flops; None of those of two matrices."""
    if m > 1 and n > 1:
        return None
    return rates.curves.get(f"{'dot' if m == n == 1 else 'matvec'}/{dtype}")


def _product_terms(rates: Rates, graph: Graph, item: Pass) -> tuple[dict[str, float], float] | None:
    """Return the terms of a matrix product, by its surface where there is one."""
    surface = rates.surfaces.get(item.dtype)
    count, m, k, n = product_shape(graph, item.nodes[0])
    vector = _vector_curve(rates, item.dtype, m, k, n)
    spread = rates.spreads.get("matmul", rates.spread)
    if vector is not None:
        call, one = vector.knots[0][1], vector.seconds_at(item.amount / count)
    elif surface is not None:
        call, one = surface.seconds[0], surface.seconds_at(m, k, n)
        spread = rates.spreads.get(f"matmul/{item.dtype}", spread)
    else:
        found = _curve(rates, "matmul", item.dtype)
        if found is None:
            return None
        call, one, count = 0.0, found[0].seconds_at(item.amount), 1
        spread = found[1]
    whole = one + (count - 1) * max(one - call, 0.0)
    launch = min(rates.launch.value, whole)
    return {"launch": launch, "memory": 0.0, "compute": whole - launch, "loops": 0.0}, spread


def _copied(rates: Rates, graph: Graph, item: Pass) -> tuple[float, Pass]:
    """Return the seconds in which a library brings what it looks for a place in into order, since
    it does so for whole rows only, and the pass that is left then."""
    node = item.nodes[0]
    begin = _nearest(rates, "start@elementwise", item.dtype)
    if not node.op.name.startswith("arg") or begin is None:
        return 0.0, item
    layout, axis = graph.layout(node.operands[0]), node.attr("axis")
    order = list(range(layout.ndim))
    if axis is not None and order:
        order.append(order.pop(axis))
    shape = tuple([layout.shape[i] for i in order])
    given = make_layout(layout.dtype, shape, tuple([layout.strides[i] for i in order]))
    whole = make_layout(layout.dtype, shape)
    runs = runs_of(shape, (given,), (whole,))
    found = _curve(rates, "elementwise", item.dtype)
    if found is None or (runs.starts == 1 and not runs.near + runs.far):
        return 0.0, item
    nbytes = 2 * layout.nbytes
    memory = found[0].seconds_at(nbytes) - rates.floor("elementwise")
    loops = _turned(rates, replace(item, runs=runs))
    away = runs.starts * runs.length * max(0, runs.near + runs.far - runs.turned)
    near = _nearest(rates, "start@near", item.dtype)
    loops += runs.starts * rates.work[begin].value
    loops += away * rates.work[near].value if near is not None else 0.0
    length = layout.size if axis is None else layout.shape[axis]
    rows = Runs(layout.size // max(length, 1), length, 0, 0)
    return max(memory, 0.0) + loops, replace(item, runs=rows)


# Passes over the results of a fold, by which they are divided.
_DIVISIONS = {"mean": 1, "var": 2, "std": 2}


def _after(rates: Rates, item: Pass) -> float:
    """Return the seconds that a library's fold takes for its results once they are there."""
    result = item.nodes[0].layout
    passed = _DIVISIONS.get(item.nodes[0].op.name, 0)
    key = _nearest(rates, "divide", item.dtype)
    found = _curve(rates, "elementwise", item.dtype)
    if not passed or key is None or found is None or result.size <= 1:
        return 0.0
    compute = rates.work[key].value * result.size
    memory = found[0].seconds_at(2 * result.nbytes) - rates.floor("elementwise")
    return passed * max(memory, compute)


# Classes whose curves are measured by an addition, of elements or of what is folded.
_BY_ADDITION = ("elementwise", "select", "reduce_inner", "reduce_outer")


# Of the bytes that an addition moves, and a copy.
_ADDED, _WRITTEN = 1 / 3, 1 / 2


def _copied_share(rates: Rates, item: Pass) -> float:
    """Return how long what is elementwise takes against an addition that moves as many bytes: less
    of them are read, so more of them stay in the last cache."""
    name = next((key for key in rates.curves if key.startswith("negate/")), None)
    if name is None or item.amount < rates.curves[name].knots[0][0]:
        return 1.0
    added = rates.curves[f"elementwise/{name.partition('/')[2]}"].seconds_at(item.amount)
    share = min(1.0, (item.written - _ADDED) / (_WRITTEN - _ADDED))
    return float((rates.curves[name].seconds_at(item.amount) / added) ** share)


def _pass_terms(
    rates: Rates, graph: Graph, item: Pass, first: bool, own: bool
) -> tuple[dict[str, float], float] | None:
    """Return the seconds of a pass by term, and the spread of their sum."""
    if item.kind == "matmul":
        return _product_terms(rates, graph, item)
    found = _curve(rates, item.kind, item.dtype)
    if found is None:
        return None
    curve, spread = found
    if own and len(item.nodes) > 1:
        spread = max(spread, rates.spreads.get("fused", 0.0))
    whole = curve.seconds_at(item.amount)
    if item.written > _ADDED and item.kind == "elementwise":
        whole *= _copied_share(rates, item)
    if item.apart and (lines := _curve(rates, "elementwise", item.dtype)) is not None:
        near, far = (lines[0].seconds_at(n) for n in (item.amount, item.amount + item.apart))
        whole += far - near
    launch = min(rates.floor(item.kind), whole)
    memory = whole - launch
    if not first:
        launch = max(0.0, launch - rates.launch.value) + rates.call.value
    if not own:
        key = _nearest(rates, f"call.{item.nodes[0].op.name}", item.dtype)
        launch += rates.work[key].value if key is not None else 0.0
    every = doubt = most = 0.0
    apart = None if own else _apart(rates, item)
    # What is picked, and how often a processor guesses wrong, is in a curve of its own.
    picked = item.kind == "select" and any(name.startswith("select/") for name in rates.curves)
    step = _step(graph, item) if own else 0
    filled = _filled(item, step)
    # A class that is measured by an op of its own has that op in its curve.
    held = item.kind not in _BY_ADDITION and any(
        k.startswith(f"{item.kind}/") for k in rates.curves
    )
    for node in item.nodes if not picked else ():
        if held and node.op.kind is not Kind.ELEMENTWISE:
            continue
        unit = _work_seconds(rates, graph, node, own) if apart is None else (apart.value, spread)
        if unit is None:
            return None
        seconds = unit[0]
        if own and item.kind.startswith("reduce") and node.op.kind is Kind.ELEMENTWISE:
            seconds = _folded_seconds(rates, graph, node, seconds)
        count = node_elements(graph, node) * filled
        most = max(most, count)
        every += seconds * count
        doubt += seconds * count * unit[1]
    compute = every
    # The curve was measured with one flop for each element.
    if item.kind in _BY_ADDITION:
        base = rates.work.get(f"flop/{item.dtype}")
        compute = max(0.0, every - base.value * most) if base is not None else every
    if not own and item.kind.startswith("reduce"):
        copied, item = _copied(rates, graph, item)
        loops = copied + _after(rates, item) + _loop_seconds(rates, item, step)
    else:
        loops = _loop_seconds(rates, item, step)
    busy = compute + loops
    if not busy:
        return {"launch": launch, "memory": memory, "compute": 0.0, "loops": 0.0}, spread
    alone = 1.0
    if own and rates.sharing is not None:
        alone = min(1.0, rates.sharing.seconds_at(busy) / busy)
    stream = min(memory, curve.stream_seconds(item.amount))
    hidden = min(compute * alone, stream)
    beyond = busy * alone - hidden
    if beyond <= 0:
        return {"launch": launch, "memory": memory, "compute": 0.0, "loops": 0.0}, spread
    # what is only read is waited for by nobody
    near = item.kind.startswith("reduce")
    nbytes = NEAR_BYTES if near else item.amount
    more = shown(beyond, memory, stream, nbytes, rates.overlap.value)
    share = min(loops * alone / beyond, 1.0)
    mean = doubt / every if every else 0.0
    total = launch + memory + more
    spread = ((launch + memory) * spread + more * max(mean, spread)) / total
    terms = {"launch": launch, "memory": memory}
    return {**terms, "compute": more * (1 - share), "loops": more * share}, spread


def estimate(
    group: Group, device: Device | str, implementation: str, profile: Profile | None
) -> Estimate | None:
    """Return predicted seconds, with an 80 % interval, of a group whose inputs are on the device.

    None where the profile has nothing to say: the device, the implementation or the class of work
    was never measured. The terms add up to the seconds.
    """
    name = device if isinstance(device, str) else device.id
    if profile is None or profile.device != name:
        return None
    rates = profile.rates.get(implementation)
    if rates is None and implementation == "library":
        rates = profile.rates.get("numpy")  # where it is called through NumPy, measured as NumPy
        if rates is not None and not _measured_classes(rates, group):
            return None
    if rates is None:
        return None
    named = implementation == "library" and not any(
        k.startswith("elementwise") for k in rates.curves
    )
    if named and not _measured_classes(rates, group):
        return None  # functions by name have no elementwise curve to borrow from
    own = implementation == "generated" and profile.origin != "recorded"
    group = as_copies(group)
    terms = {"launch": 0.0, "memory": 0.0, "compute": 0.0, "loops": 0.0}
    doubt = 0.0
    for found in _all_terms(rates, group, implementation, own):
        if found is None:
            return None
        for term, seconds in found[0].items():
            terms[term] += seconds
        doubt += found[1] * sum(found[0].values())
    return _interval(terms, doubt)


_Terms = tuple[dict[str, float], float] | None


def _all_terms(rates: Rates, group: Group, implementation: str, own: bool) -> Iterator[_Terms]:
    """Yield what `_pass_terms` says of each pass."""
    graph, known = group.graph, rates.nodes
    if len(known) > _NODES_KEPT:
        known.clear()
    if implementation == "generated":
        for position, item in enumerate(passes(group, implementation)):
            yield _pass_terms(rates, graph, item, position == 0, own)
        return
    # One by one: programs repeat their ops, and every group that an op could be in asks for it.
    # what fits into the nearer caches comes from nowhere else
    whole = sum([layout.nbytes for layout in graph.inputs]) if len(graph.nodes) > 1 else 0
    whole = _working_bytes(graph) if whole > NEAR_BYTES else 0
    for position, (node, nbytes) in enumerate(one_by_one(graph)):
        first = position == 0
        layouts = tuple([graph.layout(i) for i in node.operands])
        key = node.op, layouts, node.attrs, node.layout, nbytes, first
        try:
            if key not in known:
                known[key] = _pass_terms(rates, graph, alone(graph, node, nbytes), first, own)
            found = known[key]
        except TypeError:  # an attribute without a hash
            found = _pass_terms(rates, graph, alone(graph, node, nbytes), first, own)
        if whole > nbytes and found is not None:
            found = _from_afar(rates, graph, node, found, nbytes, whole)
        yield found


def _working_bytes(graph: Graph) -> int:
    """Return the bytes that nodes one by one go through until they begin anew: what comes in, what
    goes out and an intermediate."""
    layouts = [*graph.inputs, *[graph.layout(i) for i in dict.fromkeys(graph.outputs)]]
    return sum(map(touched_bytes, layouts)) + max(node.layout.nbytes for node in graph.nodes)


def _from_afar(
    rates: Rates,
    graph: Graph,
    node: Node,
    found: tuple[dict[str, float], float],
    nbytes: int,
    whole: int,
) -> tuple[dict[str, float], float]:
    """Return the terms of a pass that is one of several: what comes in is as far away as all that
    they go through, what they made themselves is as near as in a pass alone."""
    curve = rates.curves.get(f"elementwise/{loop_dtype(graph, node)}")
    cold = sum(touched_bytes(graph.inputs[i]) for i in {*node.operands} if i < len(graph.inputs))
    if curve is None or not cold:
        return found
    far = curve.seconds_at(whole) - curve.knots[0][1]
    near = curve.seconds_at(nbytes) - curve.knots[0][1]
    more = cold * (far / whole - near / nbytes) if nbytes else 0.0
    if more <= 0:
        return found
    terms, spread = found
    return {**terms, "memory": terms["memory"] + more}, spread


# Of some 500 bytes each: more would be a program whose structures do not repeat.
_NODES_KEPT = 1 << 14


def _measured_classes(rates: Rates, group: Group) -> bool:
    """Tell whether every node of a group is of a class that was measured."""
    kinds = {node_class(group.graph, node) for node in group.graph.nodes}
    return all(
        (kind == "matmul" and rates.surfaces)
        or any(name.startswith(f"{kind}/") for name in rates.curves)
        for kind in kinds
    )


def _interval(terms: Mapping[str, float], doubt: float) -> Estimate:
    seconds = sum(terms.values())
    # Errors of one profile go together, so spreads are averaged by time and not by their squares.
    factor = math.exp(_TEN_PERCENT * doubt / seconds) if seconds else 1.0
    return Estimate(seconds, seconds / factor, seconds * factor, dict(terms))


# Seconds before anything was measured: importing the compiler took 60 ms, a kernel 31 to 48 ms of
# which simple ones take a third, one inlined transcendental (some 30 operations) 6 ms, loading an
# object 0.7 to 1.6 ms (llvmlite 0.4x, AVX-512 Xeon).
_ONE_OFFS: Mapping[str, float] = {
    "compiler": 0.06,
    "kernel": 0.012,
    "reduction": 0.012,
    "operation": 0.0002,
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
    size, folds = code_size(group)
    return seconds + one("kernel") + size * one("operation") + folds * one("reduction")


def copy_seconds(profile: Profile | None, nbytes: int, direction: str) -> float | None:
    """Return seconds of a copy; direction is upload, download or device. None where unmeasured."""
    curve = None if profile is None else profile.links.get(direction)
    if curve is None:
        return None
    return curve.seconds_at(nbytes) if nbytes else 0.0


def with_copies(base: Estimate, copy_in: float, copy_out: float) -> Estimate:
    """Return an estimate with the copies it needs before and after."""
    terms = {**base.terms, "copy_in": copy_in, "copy_out": copy_out}
    extra = copy_in + copy_out
    return Estimate(base.seconds + extra, base.low + extra, base.high + extra, terms)
