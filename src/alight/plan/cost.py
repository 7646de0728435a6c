"""The cost model: a group's workload and a device's profile in, an Estimate out.

One formula for all devices. A group runs in passes: one for a generated kernel, one for each node
where NumPy or a library runs it. A pass takes

    launch + memory(bytes) + work - overlap · min(work, memory),    work = compute + loops

where ``memory`` is read off the measured curve of its class, ``compute`` is the sum, over its
nodes, of measured seconds for an element times the elements, and ``loops`` what it takes to start
inner loops and to step over elements between those that are wanted. Generated code shares its work
among threads as the measured curve of that says. Matrix products are read off their surface.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from alight.ir.group import Graph, Group, Node
from alight.ir.ops import Kind
from alight.ir.rolls import as_copies
from alight.ir.table_reduction import LANES
from alight.ir.vectors import REGISTERS, SHORT_ROW, vectors_together
from alight.plan.curve import Curve, Measured
from alight.plan.passes import Pass, alone, loop_dtype, node_class, passes, reduction_class
from alight.plan.plan import Estimate
from alight.plan.profile import SCHEMA, Profile, Rates
from alight.plan.runs import LINE_BYTES
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
LONG_ROW = 1000
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
        if near is not None and rates.work[near].value > 0:
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
    kind = "elementwise" if item.kind == "select" else item.kind
    seconds = 0.0
    if runs.starts > 1 and not (own and _beside(item)):
        fold = next((n.op.name for n in item.nodes if n.op.kind is Kind.REDUCTION), "sum")
        start = None
        if kind == "reduce_inner" and not own and (_whole(item) or fold.startswith("arg")):
            start = _start(rates, "elementwise", item)  # no result is begun with each of them
        elif kind == "reduce_inner" and fold not in ("sum", "mean"):
            # sums add pairwise in a loop of their own; the others go as the maximum does
            start = _start(rates, f"{fold}@{kind}", item) or _start(rates, f"max@{kind}", item)
        start = start or _start(rates, kind, item) or _start(rates, "elementwise", item)
        seconds += runs.starts * item.operands * (start or 0.0)
        key = _nearest(rates, f"long@{kind}", item.dtype)
        length = min(runs.length, LONG_ROW)
        seconds += runs.starts * length * rates.work[key].value if key else 0.0
        if item.kind == "select":
            key = _nearest(rates, "start@where", item.dtype)
            seconds += runs.starts * item.operands * rates.work[key].value if key else 0.0
        # Generated code reads what vectors leave over one by one where it does not lie in order.
        odd = runs.near * (runs.length % step) if own else runs.near + runs.far
        key = _nearest(rates, "start@near", item.dtype) if odd else None
        if key is not None:
            seconds += runs.starts * odd * rates.work[key].value
    if not own and _apart(rates, item) is not None:
        return seconds
    near, far = runs.near, runs.far
    if kind != "elementwise":  # which alone has a quick way for those that are near
        near, far = 0, near + far
    aside = "far@folded" if own and kind.startswith("reduce") else "far"
    for name, count in (("near", near), (aside, far)):
        key = _nearest(rates, name, item.dtype) if count else None
        if key is not None:
            seconds += runs.starts * runs.length * count * rates.work[key].value
    return seconds


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
    if not item.runs.near + item.runs.far:
        return None
    name = item.nodes[0].op.name
    found = rates.work.get(f"{name}@back/{item.dtype}") if item.runs.back else None
    return found or rates.work.get(f"{name}@apart/{item.dtype}")


def _product_terms(rates: Rates, graph: Graph, item: Pass) -> tuple[dict[str, float], float] | None:
    """Return the terms of a matrix product, by its surface where there is one."""
    surface = rates.surfaces.get(item.dtype)
    spread = rates.spreads.get("matmul", rates.spread)
    if surface is None:
        found = _curve(rates, "matmul", item.dtype)
        if found is None:
            return None
        whole, spread = found[0].seconds_at(item.amount), found[1]
    else:
        count, m, k, n = product_shape(graph, item.nodes[0])
        one = surface.seconds_at(m, k, n)
        whole = one + (count - 1) * max(one - surface.seconds[0], 0.0)
    launch = min(rates.launch.value, whole)
    return {"launch": launch, "memory": 0.0, "compute": whole - launch, "loops": 0.0}, spread


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
    whole = curve.seconds_at(item.amount)
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
    for node in item.nodes if not picked else ():
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
    if item.kind in ("elementwise", "select", "reduce_inner", "reduce_outer"):
        base = rates.work.get(f"flop/{item.dtype}")
        compute = max(0.0, every - base.value * most) if base is not None else every
    loops = _loop_seconds(rates, item, step)
    busy = compute + loops
    if not busy:
        return {"launch": launch, "memory": memory, "compute": 0.0, "loops": 0.0}, spread
    if own and rates.sharing is not None:
        busy = min(busy, rates.sharing.seconds_at(busy))
    shown = busy - rates.overlap.value * min(busy, memory)
    share = loops / (compute + loops)
    mean = doubt / every if every else 0.0
    total = launch + memory + shown
    spread = ((launch + memory) * spread + shown * max(mean, spread)) / total
    terms = {"launch": launch, "memory": memory}
    return {**terms, "compute": shown * (1 - share), "loops": shown * share}, spread


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
    for position, (node, nbytes) in enumerate(one_by_one(graph)):
        first = position == 0
        layouts = tuple([graph.layout(i) for i in node.operands])
        key = node.op, layouts, node.attrs, node.layout, nbytes, first
        try:
            if key not in known:
                known[key] = _pass_terms(rates, graph, alone(graph, node, nbytes), first, own)
            yield known[key]
        except TypeError:  # an attribute without a hash
            yield _pass_terms(rates, graph, alone(graph, node, nbytes), first, own)


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
