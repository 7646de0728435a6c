"""What was measured of a device, or the nearest to it: curves of classes, seconds of ops."""

from __future__ import annotations

import math
from collections.abc import Mapping

from alight._src.ir.graph import Graph, Node
from alight._src.ir.ops import Kind
from alight._src.plan.curve import Curve
from alight._src.plan.passes import loop_dtype, reduction_class
from alight._src.plan.profile import Rates
from alight._src.plan.workload import PARTS, body_parts, width_in_bits

# Standard deviations, in logarithms, of a prediction from another class's or dtype's curve, and of
# one from what the body is made of. Guesses: a factor of two and of 1.5 either way at one
# deviation. What was measured brings its own.
BORROWED_SPREAD = math.log(2.0)
BODY_SPREAD = math.log(1.5)
# Classes to borrow from, nearest first, where a device has no curve of a class.
_NEAREST: Mapping[str, tuple[str, ...]] = {
    "elementwise": (),
    "select": ("elementwise",),
    "reduce_inner": ("reduce_outer", "elementwise"),
    "reduce_outer": ("reduce_inner", "elementwise"),
    "reduce_narrow": ("reduce_outer", "reduce_inner", "elementwise"),
    "reduce_sum": ("reduce_inner",),
    "reduce_rows": ("reduce_inner", "reduce_outer", "elementwise"),
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


def curve_of(rates: Rates, kind: str, dtype: str) -> tuple[Curve, float] | None:
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
            return rates.curves[best], math.hypot(spread, BORROWED_SPREAD)
    return None


def work_key(graph: Graph, node: Node) -> str:
    """Return the name of a node's work: its op's, with its class where it is a reduction."""
    if node.op.kind is Kind.REDUCTION:
        return f"{node.op.name}@{reduction_class(graph, node)}"
    return node.op.name


def nearest(rates: Rates, name: str, dtype: str) -> str | None:
    """Return the key of the work of that name in the dtype most like this one."""
    exact = f"{name}/{dtype}"
    if exact in rates.work:
        return exact
    others = rates.work_dtypes(name)
    near = min(others, key=lambda other: (*_distance(dtype, other), other), default=None)
    return None if near is None else f"{name}/{near}"


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
        # what does not round is folded in any order: no longer than such an op of two arrays; so is
        # its place, where no NaN has to be asked for (EPYC: as long as the maximum in any size)
        combine = "maximum" if node.op.name.startswith("arg") else node.op.combine
        paired = rates.work.get(f"{combine}/{dtype}")
        if paired is not None:
            return paired.value, rates.spread
    if own:
        body = _body_seconds(rates, graph, node, dtype)
        near = nearest(rates, name, dtype)
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
        known = [key for way in (name, *ways) if (key := nearest(rates, way, dtype))]
        best = min(known, key=lambda k: _distance(dtype, k.partition("/")[2]), default=None)
        if best is not None:
            return rates.work[best].value, math.hypot(rates.spread, BODY_SPREAD)
    same = None if own else nearest(rates, name, dtype)
    if same is not None and _alike(same.partition("/")[2], dtype):
        # a library's op is the same algorithm in another width, while what others compute for an
        # element differs more (NumPy on an EPYC: hypot of float32 3.9 ns, 0.3 as a special one)
        return rates.work[same].value, math.hypot(rates.spread, BODY_SPREAD)
    name, count = ("special", 1.0) if node.op.special else ("flop", node.op.flops)
    near = nearest(rates, name, dtype)
    if near is None:
        return 0.0, BORROWED_SPREAD
    if own:  # a vector of half the width holds twice as many
        count *= width_in_bits(dtype) / width_in_bits(near.partition("/")[2])
    return rates.work[near].value * count, math.hypot(rates.spread, BORROWED_SPREAD)


def folded_seconds(rates: Rates, graph: Graph, node: Node, seconds: float) -> float:
    """Return a node's seconds for an element in front of a fold, where a body has fewer registers
    and less to do while it waits."""
    dtype = loop_dtype(graph, node)
    if not node.op.special:
        key = nearest(rates, "flop@folded", dtype)
        return max(seconds, rates.work[key].value) if key is not None else seconds
    own = rates.work.get(f"{node.op.name}@folded/{dtype}")
    if own is not None:
        return own.value
    return seconds + _folded_more(rates, dtype)


def _folded_more(rates: Rates, dtype: str) -> float:
    """Return how much longer a special function takes for an element in front of a fold.

    As much as exp does: by how many times as long says little (EPYC: sin, cos, tanh, exp and
    arctan of float32 took 0.13, 0.04, 0.04, 0.04 and 0.02 ns more than 0.21, 0.24, 0.19, 0.11 and
    0.25, those of float64 0.03 to 0.05 more than 0.4 to 0.87). Profiles from before that was known
    have sin instead.
    """
    for op in ("exp", "sin"):
        key = nearest(rates, f"{op}@folded", dtype)
        alone = rates.work.get(f"{op}/{key.partition('/')[2]}") if key is not None else None
        if key is not None and alone is not None:
            # a vector of half the width holds twice as many
            share = width_in_bits(dtype) / width_in_bits(key.partition("/")[2])
            return max(rates.work[key].value - alone.value, 0.0) * share
    return 0.0


def beside_seconds(
    rates: Rates, dtype: str, folded: bool, where: str = "beside"
) -> tuple[float, float]:
    """Return what a simple op takes at least for an element in a body with special functions, and
    what each of these but one takes beyond itself: fewer vectors go together in such a body, and
    constants leave fewer registers. In front of a fold some of it is in what they take there.
    ``where``: by one thread alone, or "shared" by all."""
    found = []
    for name in (f"flop@{where}", f"special@{where}"):
        key = nearest(rates, name, dtype)
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
    return simple, max(special - _folded_more(rates, dtype), 0.0) if folded else special
