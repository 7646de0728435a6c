"""What bodies compute: seconds of ops as they were measured of a device, or of what is nearest."""

from __future__ import annotations

import math
from typing import NamedTuple

from alight._src.ir.graph import Graph, Node
from alight._src.ir.op import width_in_bits
from alight._src.ir.op_table import Kind
from alight._src.plan.loop_overhead import side_by_side
from alight._src.plan.loop_starts import ROUNDED, START_ROWS, begun_itself
from alight._src.plan.nearest import BORROWED_SPREAD, distance
from alight._src.plan.passes import Pass, loop_dtype, reduction_class
from alight._src.plan.profile import Rates
from alight._src.plan.workload import PARTS, body_parts

# Standard deviation, in logarithms, of a prediction from what the body is made of. A guess: 1.5
# either way at one deviation. What was measured brings its own.
BODY_SPREAD = math.log(1.5)


# Classes whose curves are measured by an addition, of elements or of what is reduced.
BY_ADDITION = ("elementwise", "select", "reduce_inner", "reduce_outer")


def work_key(graph: Graph, node: Node) -> str:
    """Return the name of a node's work: its op's, with its class where it is a reduction."""
    if node.op.kind is Kind.REDUCTION:
        return f"{node.op.name}@{reduction_class(graph, node)}"
    return node.op.name


def _body_seconds(
    rates: Rates, graph: Graph, node: Node, dtype: str, other: str | None = None
) -> float | None:
    """Return seconds for an element of what the body of a node is made of, or would be with an
    ``other`` dtype in place of its own; None where that was not measured, or the node has no
    body."""
    if node.op.kind is not Kind.ELEMENTWISE:
        return None
    seconds = 0.0
    for part, count in zip(PARTS, body_parts(graph, node, dtype, other), strict=True):
        unit = rates.work.get(f"body.{part}/{other or dtype}") if count else None
        if count and unit is None:
            return None
        seconds += count * unit.value if unit is not None else 0.0
    return seconds


def work_seconds(rates: Rates, graph: Graph, node: Node, own: bool) -> tuple[float, float] | None:
    """Return a node's compute seconds for an element, and the spread of that number; None where it
    may be anything."""
    if node.op.kind is not Kind.ELEMENTWISE:
        return _work_looked_up(rates, graph, node, own)
    if own and len(node.operands) > 1 and not any(graph.layouts[node.operands[1]].strides):
        # what only the operand that stays goes through is computed once
        still = rates.work.get(f"{node.op.name}@still/{loop_dtype(graph, node)}")
        if still is not None:
            return still.value, rates.spread
    key = own, node.op, node.layout.dtype, *[graph.layouts[o].dtype for o in node.operands]
    if key not in rates.nodes:
        rates.nodes[key] = _work_looked_up(rates, graph, node, own)
    found: tuple[float, float] | None = rates.nodes[key]
    return found


_DIGITS = "0123456789"


def _alike(dtype: str, other: str) -> bool:
    """Tell whether two dtypes are of one kind, in whatever widths."""
    return dtype.rstrip(_DIGITS) == other.rstrip(_DIGITS)


def _work_looked_up(
    rates: Rates, graph: Graph, node: Node, own: bool
) -> tuple[float, float] | None:
    dtype = loop_dtype(graph, node)
    name = work_key(graph, node)
    found = rates.work.get(f"{name}/{dtype}")
    if found is not None:
        return found.value, rates.spread
    if own and node.op.kind is Kind.REDUCTION and not dtype.startswith(("float", "complex")):
        # what does not round is reduced in any order: no longer than such an op of two arrays; so
        # is its place, where no NaN has to be asked for (EPYC: as long as the maximum in any size)
        combine = "maximum" if node.op.name.startswith("arg") else node.op.combine
        paired = rates.work.get(f"{combine}/{dtype}")
        if paired is not None:
            return paired.value, rates.spread
    if own:
        body = _body_seconds(rates, graph, node, dtype)
        near = rates.nearest[name, dtype]
        # of another kind the same op is another body
        alike = near is not None and _alike(near.partition("/")[2], dtype)
        if near is not None and rates.work[near].value > 0 and (alike or body is None):
            other = near.partition("/")[2]
            share = width_in_bits(dtype) / width_in_bits(
                other
            )  # a vector of half the width holds twice as many
            there = _body_seconds(rates, graph, node, dtype, other) if alike else None
            if body is not None and there:
                share = body / there
            return rates.work[near].value * share, math.hypot(rates.spread, BODY_SPREAD)
        if body is not None:
            return body, math.hypot(rates.spread, BODY_SPREAD)
        if node.op.kind is Kind.ELEMENTWISE and body_parts(graph, node)[PARTS.index("scalar")]:
            return None  # how often a loop runs is not in its body
    if node.op.kind is Kind.REDUCTION:  # as along another axis, or in another dtype
        ops = [node.op.name, *(["argmax"] if node.op.name == "argmin" else [])]
        ways = [f"{op}@{kind}" for op in ops for kind in ("reduce_inner", "reduce_outer")]
        known = [key for way in (name, *ways) if (key := rates.nearest[way, dtype])]
        best = min(known, key=lambda k: distance(dtype, k.partition("/")[2]), default=None)
        if best is not None:
            return rates.work[best].value, math.hypot(rates.spread, BODY_SPREAD)
    same = None if own else rates.nearest[name, dtype]
    if same is not None and _alike(same.partition("/")[2], dtype):
        # a library's op is the same algorithm in another width, while what others compute for an
        # element differs more (NumPy on an EPYC: hypot of float32 3.9 ns, 0.3 as a special one)
        return rates.work[same].value, math.hypot(rates.spread, BODY_SPREAD)
    name, count = ("special", 1.0) if node.op.special else ("flop", node.op.flops)
    near = rates.nearest[name, dtype]
    if near is None:
        return 0.0, BORROWED_SPREAD
    if own:  # a vector of half the width holds twice as many
        count *= width_in_bits(dtype) / width_in_bits(near.partition("/")[2])
    return rates.work[near].value * count, math.hypot(rates.spread, BORROWED_SPREAD)


def _reduced_seconds(rates: Rates, graph: Graph, node: Node, seconds: float) -> float:
    """Return a node's seconds for an element in front of a reduction, where a body has fewer
    registers and less to do while it waits."""
    dtype = loop_dtype(graph, node)
    if not node.op.special:
        return max(seconds, rates.unit("flop@reduced", dtype))
    own = rates.work.get(f"{node.op.name}@reduced/{dtype}")
    if own is not None:
        return own.value
    return seconds + _reduced_more(rates, dtype)


def _reduced_more(rates: Rates, dtype: str) -> float:
    """Return how much longer a special function takes for an element in front of a reduction.

    As much as exp does: by how many times as long says little (EPYC: sin, cos, tanh, exp and
    arctan of float32 took 0.13, 0.04, 0.04, 0.04 and 0.02 ns more than 0.21, 0.24, 0.19, 0.11 and
    0.25, those of float64 0.03 to 0.05 more than 0.4 to 0.87). Profiles from before that was known
    have sin instead.
    """
    for op in ("exp", "sin"):
        key = rates.nearest[f"{op}@reduced", dtype]
        alone = rates.work.get(f"{op}/{key.partition('/')[2]}") if key is not None else None
        if key is not None and alone is not None:
            # a vector of half the width holds twice as many
            share = width_in_bits(dtype) / width_in_bits(key.partition("/")[2])
            return max(rates.work[key].value - alone.value, 0.0) * share
    return 0.0


def beside_seconds(
    rates: Rates, dtype: str, reduced: bool, where: str = "beside"
) -> tuple[float, float]:
    """Return what a simple op takes at least for an element in a body with special functions, and
    what each of these but one takes beyond itself: fewer vectors go together in such a body, and
    constants leave fewer registers. In front of a reduction some of it is in what they take there.
    ``where``: by one thread alone, or "shared" by all."""
    found = []
    for name in (f"flop@{where}", f"special@{where}"):
        key = rates.nearest[name, dtype]
        if key is None:
            found.append(0.0)
            continue
        other = key.partition("/")[2]
        # a vector of half the width holds twice as many, and functions of it have fewer terms
        share = width_in_bits(dtype) / width_in_bits(other)
        both = [rates.work.get(f"special/{own}") for own in (dtype, other)]
        if name.startswith("special") and both[0] is not None and both[1] is not None:
            share = both[0].value / both[1].value
        found.append(rates.work[key].value * share)
    simple, special = found
    return simple, max(special - _reduced_more(rates, dtype), 0.0) if reduced else special


def _unmoved(graph: Graph, item: Pass) -> frozenset[int]:
    """Return the numbers of the elementwise nodes that only read what stays along inner loops: a
    compiler computes them before these."""
    if item.kind != "elementwise" or item.runs.starts == 1:
        return frozenset()
    found = {n for n, layout in enumerate(graph.inputs) if not layout.ndim or layout.shape[-1] == 1}
    if len(found) == len([layout for layout in graph.inputs if not layout.ndim]):
        return frozenset()  # of numbers alone nothing is made
    for number, node in graph.numbered:
        if node.op.kind is Kind.ELEMENTWISE and found.issuperset(node.operands):
            found.add(number)
    return frozenset(found)


class Computed(NamedTuple):
    """What the bodies of a pass take: ``seconds`` of one thread, of which all threads together do
    without ``less``; ``doubt`` is their sum weighted by spread, ``most`` how often the body runs
    that runs most often."""

    seconds: float
    doubt: float
    most: float
    less: float


def computed(
    rates: Rates,
    graph: Graph,
    item: Pass,
    own: bool,
    away: bool,
    filled: float,
    in_rows: bool,
    given: tuple[float, float] | None,
) -> Computed | None:
    """Return what the bodies of a pass take, whose elements count for ``filled`` each; None where
    that may be anything. ``in_rows``: rows are reduced side by side; ``given``: the seconds for an
    element and their spread, where they are known."""
    # A class that is measured by an op of its own has that op in its curve.
    held = item.kind not in BY_ADDITION and any(k.startswith(f"{item.kind}/") for k in rates.curves)
    in_reduction = own and item.kind.startswith("reduce") and not in_rows
    in_columns = own and not away and item.kind == "reduce_outer"
    beside = shared = None
    if own and not away and len(item.nodes) > 1 and any([n.op.special for n in item.nodes]):
        beside = beside_seconds(rates, item.dtype, in_reduction)
        if rates.nearest["special@shared", item.dtype] is not None:
            shared = beside_seconds(rates, item.dtype, in_reduction, "shared")
    every = doubt = most = less = 0.0
    met_special = False
    base = rates.work.get(f"flop/{item.dtype}")
    once = _unmoved(graph, item) if own and not away else ()
    for number, (node, count) in enumerate(
        zip(item.nodes, item.counts, strict=True), len(graph.inputs)
    ):
        if held and node.op.kind is not Kind.ELEMENTWISE:
            continue
        unit = given or work_seconds(rates, graph, node, own)
        if unit is None:
            return None
        seconds = unit[0]
        if own and not away and base and node.op.name in ROUNDED and side_by_side(item):
            seconds = min(seconds, base.value)  # chunks of one row each have nothing to meet
        if in_reduction and node.op.kind is Kind.ELEMENTWISE:
            seconds = _reduced_seconds(rates, graph, node, seconds)
        times = count * filled
        if in_columns and begun_itself(rates, item, node.op.name):
            times = item.runs.starts * max(item.runs.length - START_ROWS[1], 0)
        if number in once:
            times /= item.runs.length
        if beside is not None and node.op.kind is Kind.ELEMENTWISE:
            itself = seconds
            if not node.op.special:
                seconds = max(seconds, beside[0])
            elif met_special:
                seconds += beside[1]
            if shared is not None and seconds > itself:
                left = max(shared[0] - itself, 0.0) if not node.op.special else shared[1]
                less += max(seconds - itself - left, 0.0) * times
            met_special = met_special or node.op.special
        most = max(most, times)
        every += seconds * times
        doubt += seconds * times * unit[1]
    return Computed(every, doubt, most, less)
