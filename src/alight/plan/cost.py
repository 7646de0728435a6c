"""The cost model: a group's workload and a device's profile in, an Estimate out.

One formula for all devices. A group runs in passes: one for a generated kernel, one for each node
where NumPy or a library runs it. A pass takes

    launch + memory(bytes) + compute - overlap · min(compute, memory)

where ``memory`` is read off the measured curve of its class and ``compute`` is the sum, over its
nodes, of measured seconds for an element times the elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import numpy as np

from alight._core import make_layout
from alight.ir.body import FLOATS
from alight.ir.group import Graph, Group, GroupKind, Node
from alight.ir.ops import OPS, Kind
from alight.plan.curve import Curve, Measured
from alight.plan.plan import Estimate
from alight.plan.workload import (
    SPECIAL,
    body_loops,
    body_size,
    code_size,
    contraction_flops,
    dtype_name,
    is_contraction,
    node_elements,
    one_by_one,
    workload,
)

if TYPE_CHECKING:
    from alight.device import Device

SCHEMA = 2

# Standard normal deviate that leaves 10 % on either side: the ends of an 80 % interval.
_TEN_PERCENT = 1.2815515655446004

# Standard deviation, in logarithms, of a prediction from another class's or dtype's curve. A guess:
# a factor of two either way at one deviation. What was measured brings its own.
_BORROWED_SPREAD = math.log(2.0)

# Classes to borrow from, nearest first, where a device has no curve of a class.
_NEAREST: Mapping[str, tuple[str, ...]] = {
    "elementwise": (),
    "reduce_inner": ("reduce_outer", "elementwise"),
    "reduce_outer": ("reduce_inner", "elementwise"),
    "scan": ("reduce_inner", "elementwise"),
    "move": ("elementwise",),
    "other": ("scan", "reduce_inner", "elementwise"),
    "matmul": (),
}


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast one implementation is on one device.

    ``curves["class/dtype"]`` gives seconds of a pass, its launch included: over bytes, for matmul
    over flops. ``call`` is what a further node of the same group costs before it does anything,
    where nodes run one by one. ``work["op/dtype"]`` are seconds for an element; the name ``flop``
    stands for one arithmetic operation of an op that was not measured itself, ``special`` for such
    a transcendental, ``row`` for each result of a reduction along rows.
    ``overlap`` is the share of the shorter of compute and memory that hides behind the longer.
    """

    launch: Measured
    call: Measured
    curves: Mapping[str, Curve]
    work: Mapping[str, Measured]
    overlap: Measured
    spread: float

    def to_dict(self) -> dict[str, Any]:
        """Return the rates as a document."""
        return {
            "launch": self.launch.to_dict(),
            "call": self.call.to_dict(),
            "curves": {name: curve.to_dict() for name, curve in self.curves.items()},
            "work": {name: number.to_dict() for name, number in self.work.items()},
            "overlap": self.overlap.to_dict(),
            "spread": self.spread,
        }

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Rates:
        """Return the rates a document describes."""
        return Rates(
            Measured.from_dict(document["launch"]),
            Measured.from_dict(document["call"]),
            {name: Curve.from_dict(item) for name, item in document["curves"].items()},
            {name: Measured.from_dict(item) for name, item in document["work"].items()},
            Measured.from_dict(document["overlap"]),
            document["spread"],
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured of one device. ``origin``: measured, or recorded (a simulated device).

    ``links["upload"]``, ``["download"]``, ``["device"]`` give seconds over bytes; the host has
    none. ``one_offs`` are seconds spent once (see ``compile_seconds``), and what it takes to share
    a kernel with threads that spin (``join``) or sleep (``wake``).
    ``validation`` holds the error on sizes that were not measured. ``complete`` is false
    where time ran out, ``contended`` true where other work disturbed the measuring.
    """

    device: str
    rates: Mapping[str, Rates]
    links: Mapping[str, Curve] = field(default_factory=dict)
    one_offs: Mapping[str, Measured] = field(default_factory=dict)
    origin: str = "measured"
    path: str | None = None
    made_at: float = 0.0
    made_seconds: float = 0.0
    validation: Mapping[str, float] = field(default_factory=dict)
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True
    contended: bool = False
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as a document; where it is stored is not part of it."""
        return {
            "device": self.device,
            "rates": {name: rates.to_dict() for name, rates in self.rates.items()},
            "links": {name: curve.to_dict() for name, curve in self.links.items()},
            "one_offs": {name: number.to_dict() for name, number in self.one_offs.items()},
            "origin": self.origin,
            "made_at": self.made_at,
            "made_seconds": self.made_seconds,
            "validation": dict(self.validation),
            "fingerprint": dict(self.fingerprint),
            "complete": self.complete,
            "contended": self.contended,
            "schema": self.schema,
        }

    @staticmethod
    def from_dict(document: Mapping[str, Any], path: str | None = None) -> Profile:
        """Return the profile a document describes; ValueError where its schema is another."""
        if document.get("schema") != SCHEMA:
            raise ValueError(
                f"a profile of schema {document.get('schema')!r} where {SCHEMA} is understood. "
                "Fix: calibrate again."
            )
        fields = dict(document)
        fields["rates"] = {n: Rates.from_dict(item) for n, item in document["rates"].items()}
        fields["links"] = {n: Curve.from_dict(item) for n, item in document["links"].items()}
        fields["one_offs"] = {
            name: Measured.from_dict(item) for name, item in document["one_offs"].items()
        }
        return Profile(path=path, **fields)

    def stored_at(self, path: str) -> Profile:
        """Return the same profile with the place where it is stored."""
        return replace(self, path=path)


@dataclass(frozen=True, slots=True)
class Pass:
    """Work that runs as one launch: which curve it is read off, how far along, and its nodes."""

    kind: str
    dtype: str
    amount: float
    nodes: tuple[Node, ...]


def node_class(graph: Graph, node: Node) -> str:
    """Return the class of curves that a node's time is read off."""
    kind = node.op.kind
    if kind is Kind.REDUCTION:
        return reduction_class(graph, node)
    if kind is Kind.ELEMENTWISE:
        return "elementwise"
    if kind is Kind.SCAN:
        return "scan"
    if is_contraction(node):
        return "matmul"
    return "other" if kind is Kind.LIBRARY else "move"


def reduction_class(graph: Graph, node: Node) -> str:
    """Return whether a reduction folds the axis along which elements are neighbours."""
    layout = graph.layout(node.operands[0])
    axis = node.attr("axis")
    axes = range(layout.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    folded = {i % layout.ndim for i in axes} if layout.ndim else set()
    long = [i for i in range(layout.ndim) if layout.shape[i] > 1]
    nearest = min(long, key=lambda i: abs(layout.strides[i]), default=None)
    return "reduce_inner" if nearest is None or nearest in folded else "reduce_outer"


def loop_dtype(graph: Graph, node: Node) -> str:
    """Return the dtype a node computes in: its first operand's."""
    layout = graph.layout(node.operands[0]) if node.operands else node.layout
    return dtype_name(layout.dtype)


def passes(group: Group, implementation: str) -> Iterator[Pass]:
    """Yield what runs as one launch each."""
    graph = group.graph
    if implementation == "generated" and group.kind is not GroupKind.LIBRARY:
        folds = [node for node in graph.nodes if node.op.kind is Kind.REDUCTION]
        # what is bound by memory and writes whole arrays moves bytes as elementwise code does
        whole = any(graph.layout(o).shape == group.shape for o in graph.outputs)
        kind = "elementwise" if whole or not folds else reduction_class(graph, folds[0])
        if group.kind is GroupKind.SCAN:
            kind = "scan"
        work = workload(group)
        dtype = max(work.dtypes, default="float64", key=_width)  # the widest fills the registers
        yield Pass(kind, dtype, work.nbytes, graph.nodes)
        return
    for node, nbytes in one_by_one(graph):
        kind = node_class(graph, node)
        amount = contraction_flops(graph, node) if kind == "matmul" else nbytes
        yield Pass(kind, loop_dtype(graph, node), amount, (node,))


@cache
def _width(dtype: str) -> int:
    return int("".join(c for c in dtype if c.isdigit()) or 8)


def _distance(dtype: str, other: str) -> tuple[bool, int]:
    """Return how unlike two dtypes are to compute with: first in kind, then in width."""
    kinds = {name.startswith(("float", "complex")) for name in (dtype, other)}
    return len(kinds) > 1, abs(_width(dtype) - _width(other))


def _curve(rates: Rates, kind: str, dtype: str) -> tuple[Curve, float] | None:
    """Return the curve for a class and dtype, or the nearest there is, and its spread."""
    found = rates.curves.get(f"{kind}/{dtype}")
    if found is not None:
        return found, rates.spread
    for near in (kind, *_NEAREST[kind]):
        names = [name for name in rates.curves if name.startswith(near + "/")]
        if names:
            # Curves run over bytes, so the dtype nearest in width moves them most alike.
            best = min(names, key=lambda n: (*_distance(dtype, n.partition("/")[2]), n))
            return rates.curves[best], math.hypot(rates.spread, _BORROWED_SPREAD)
    return None


def _work_seconds(rates: Rates, graph: Graph, node: Node, own: bool) -> tuple[float, float]:
    """Return a node's compute seconds and the spread of that number."""
    dtype = loop_dtype(graph, node)
    elements = node_elements(graph, node)
    found = rates.work.get(f"{node.op.name}/{dtype}")
    if found is not None:
        return found.value * elements, rates.spread
    name, count = ("special", 1.0) if node.op.special else ("flop", node.op.flops)
    unit = rates.work.get(f"{name}/{dtype}")
    if unit is None:
        others = [n for n in rates.work if n.startswith(name + "/")]
        if not others:
            return 0.0, _BORROWED_SPREAD
        best = min(others, key=lambda n: (*_distance(dtype, n.partition("/")[2]), n))
        unit = rates.work[best]
        if own:  # a vector of half the width holds twice as many
            count *= _width(dtype) / _width(best.partition("/")[2])
    if node.op.special and own:
        count *= body_size(graph, node) / _typical_size(dtype)
    return unit.value * count * elements, math.hypot(rates.spread, _BORROWED_SPREAD)


@cache
def _typical_size(dtype: str) -> float:
    """Return the operations of the transcendentals that ``special`` was measured with."""
    single = make_layout(np.dtype(dtype if dtype in FLOATS else "float64"), (1,))
    graph = Graph((single,), tuple(Node(OPS[name], (0,), (), single) for name in SPECIAL), ())
    return geometric_mean([body_size(graph, node) for node in graph.nodes])


def _pass_terms(
    rates: Rates, graph: Graph, item: Pass, first: bool, own: bool
) -> tuple[dict[str, float], float] | None:
    """Return launch, memory and compute seconds of a pass and the spread of their sum."""
    found = _curve(rates, item.kind, item.dtype)
    if found is None:
        return None
    curve, spread = found
    whole = curve.seconds_at(item.amount)
    launch = min(rates.launch.value, whole)
    memory = whole - launch
    if not first:
        launch = rates.call.value
        whole = launch + memory
    every = doubt = 0.0
    # A matmul's curve runs over its flops: its arithmetic is in it already.
    for node in item.nodes if item.kind != "matmul" else ():
        seconds, spread_of_work = _work_seconds(rates, graph, node, own)
        if item.kind == "reduce_inner" and node.op.kind is Kind.REDUCTION:
            # Short rows cost a start each.
            row = rates.work.get(f"row/{loop_dtype(graph, node)}")
            seconds += row.value * node.layout.size if row is not None else 0.0
        every += seconds
        doubt += seconds * spread_of_work
    alone = every
    # The curve was measured with one flop for each element.
    if item.kind in ("elementwise", "reduce_inner", "reduce_outer"):
        base = rates.work.get(f"flop/{item.dtype}")
        most = max(node_elements(graph, node) for node in item.nodes)
        alone = max(0.0, every - base.value * most) if base is not None else every
    compute = alone - rates.overlap.value * min(alone, memory)
    if alone:
        spread = (whole * spread + compute * doubt / every) / (whole + compute)
    return {"launch": launch, "memory": memory, "compute": compute}, spread


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
    if rates is None and implementation == "library" and _is_product(group):
        rates = profile.rates.get("numpy")  # where it is called through NumPy, measured as NumPy
    if rates is None:
        return None
    own = implementation == "generated" and profile.origin == "measured"
    if own and any(_unknown(rates, group.graph, node) for node in group.graph.nodes):
        return None
    terms = {"launch": 0.0, "memory": 0.0, "compute": 0.0}
    doubt = 0.0
    for position, item in enumerate(passes(group, implementation)):
        found = _pass_terms(rates, group.graph, item, position == 0, own)
        if found is None:
            return None
        for term, seconds in found[0].items():
            terms[term] += seconds
        doubt += found[1] * sum(found[0].values())
    return _interval(terms, doubt)


def _is_product(group: Group) -> bool:
    """Tell whether a group is matrix products alone, the only library work that has curves."""
    return all([is_contraction(node) for node in group.graph.nodes])


def _unknown(rates: Rates, graph: Graph, node: Node) -> bool:
    """Tell whether generated code for a node may cost anything: it goes through the elements one
    by one, and it was not measured.

    How often a loop runs is not in its body. NumPy is there in any case, so what borrows the cost
    of others must not be chosen over it. Vector code is so many operations.
    """
    if f"{node.op.name}/{loop_dtype(graph, node)}" in rates.work:
        return False
    return node.op.kind is Kind.ELEMENTWISE and body_loops(graph, node)


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
