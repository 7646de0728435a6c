"""The virtual clock of simulated devices: a spec says how long everything takes.

A spec is a plain document, so that it can be recorded from a real device, stored and replayed. Its
numbers carry their unit and source. The formula is not the cost model's: a pass takes its launch
and then the longer of memory and compute, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.plan.cost import Profile, Rates
from alight._src.plan.curve import Curve, Measured
from alight._src.plan.passes import loop_dtype
from alight._src.plan.workload import node_elements, node_flops, one_by_one, workload

Spec = Mapping[str, Any]


def _guess(value: float, unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit, "source": "guess"}


# A mid-range accelerator behind a bus. Nothing here was measured on anything; it only has to stand
# to the host as such a device does: far faster inside, far slower to reach.
DEFAULT_SPEC: Spec = {
    "name": "simulated accelerator",
    "memory_bytes": _guess(16 * 2**30, "bytes"),
    "launch": _guess(5e-6, "seconds"),
    "memory": _guess(1e12, "bytes per second"),
    "flops": {
        "float32": _guess(1e13, "flops per second"),
        "float64": _guess(5e12, "flops per second"),
        "other": _guess(5e12, "operations per second"),
    },
    "special": {
        "float32": _guess(1e12, "evaluations per second"),
        "float64": _guess(2.5e11, "evaluations per second"),
        "other": _guess(2.5e11, "evaluations per second"),
    },
    "links": {
        "upload": {
            "latency": _guess(1e-5, "seconds"),
            "bandwidth": _guess(1.2e10, "bytes per second"),
        },
        "download": {
            "latency": _guess(1e-5, "seconds"),
            "bandwidth": _guess(8e9, "bytes per second"),
        },
        "device": {
            "latency": _guess(5e-6, "seconds"),
            "bandwidth": _guess(5e11, "bytes per second"),
        },
        "peer": {
            "latency": _guess(1e-5, "seconds"),
            "bandwidth": _guess(5e10, "bytes per second"),
        },
    },
}

_FLOATS = ("float32", "float64")
# Knots of recorded curves, in bytes: from a cache line to 64 GB, four to a decade. Between them
# the interpolation stays within the spread that is recorded with it.
_KNOTS = tuple(64.0 * 10 ** (i / 4) for i in range(37))


def _rate(spec: Spec, kind: str, dtype: str) -> float:
    rates = spec[kind]
    return float(rates.get(dtype, rates["other"])["value"])


def copy_seconds(spec: Spec, nbytes: int, direction: str) -> float:
    """Return seconds of a copy; direction is upload, download, device or peer."""
    link = spec["links"][direction]
    return float(link["latency"]["value"] + nbytes / link["bandwidth"]["value"])


def _compute_seconds(spec: Spec, graph: Graph, node: Node) -> float:
    dtype = loop_dtype(graph, node)
    if node.op.special:
        return node_elements(graph, node) / _rate(spec, "special", dtype)
    return node_flops(graph, node) / _rate(spec, "flops", dtype)


def group_seconds(spec: Spec, group: Group, implementation: str) -> float:
    """Return seconds of one run of a group: one pass when generated, else one for each node."""
    if implementation == "generated":
        group = group.form.lowered or group
    graph = group.graph
    launch, memory = spec["launch"]["value"], spec["memory"]["value"]
    if implementation == "generated" and group.kind is not GroupKind.LIBRARY:
        compute = sum(_compute_seconds(spec, graph, node) for node in graph.nodes)
        work = workload(group)
        nbytes = work.bytes_read + work.bytes_written
        return float(launch + max(nbytes / memory, compute))
    return float(
        sum(
            launch + max(nbytes / memory, _compute_seconds(spec, graph, node))
            for node, nbytes in one_by_one(graph)
        )
    )


def recorded(device: str, spec: Spec) -> Profile:
    """Return the profile of a simulated device: its spec, in the form that calibration gives."""
    launch, memory = spec["launch"]["value"], spec["memory"]["value"]
    source = str(spec["memory"]["source"])

    def exactly(value: float, unit: str) -> Measured:
        return Measured(value, unit, value, value, 0, source)

    def curve(latency: float, bandwidth: float) -> Curve:
        return Curve([(work, latency + work / bandwidth) for work in _KNOTS], source)

    stream = curve(launch, memory)
    names = (*_FLOATS, "int64")
    curves = {
        f"{kind}/{dtype}": stream
        for kind in ("elementwise", "reduce_inner", "reduce_outer", "scan", "move", "other")
        for dtype in names
    }
    work = {}
    for dtype in names:
        curves[f"matmul/{dtype}"] = curve(launch, _rate(spec, "flops", dtype))
        work[f"flop/{dtype}"] = exactly(1 / _rate(spec, "flops", dtype), "seconds")
        work[f"special/{dtype}"] = exactly(1 / _rate(spec, "special", dtype), "seconds")
    middles = [math.sqrt(a * b) for a, b in pairwise(_KNOTS)]
    spread = max(abs(math.log(stream.seconds_at(w) / (launch + w / memory))) for w in middles)
    links = {
        direction: curve(link["latency"]["value"], link["bandwidth"]["value"])
        for direction, link in spec["links"].items()
    }
    # What is hidden is all of the shorter one: see group_seconds.
    start = exactly(launch, "seconds")
    rates = Rates(start, start, curves, work, exactly(1.0, "share"), spread)
    return Profile(
        device=device,
        rates={"generated": rates, "library": rates},
        links=links,
        origin="recorded",
        validation={"shapes": float(len(middles)), "worst": spread},
        fingerprint={"spec": spec["name"]},
    )
