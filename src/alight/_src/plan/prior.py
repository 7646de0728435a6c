"""Seconds of work that nobody measured on a device: from rates that were measured there, else from
a table of what such devices can do. No more than an order of magnitude, as its interval says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from alight._src.base.records import replace
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.plan.passes import node_class
from alight._src.plan.plan import Candidate, Estimate, Facts, Source
from alight._src.plan.workload import (
    is_contraction,
    node_elements,
    node_flops,
    one_by_one,
    product_shape,
    workload,
)
from alight.device import HOST_DEVICE

if TYPE_CHECKING:
    from alight._src.plan.profile import Profile, Rates
    from alight.device import Device

__all__ = ["copy_prior_seconds", "doubted_products", "guessed", "predicted", "prior", "relied_on"]

# Standard normal deviate that leaves 10 % on either side: the ends of an 80 % interval.
_TEN_PERCENT = 1.2815515655446004
# Standard deviations, in logarithms. Guesses: a kernel reaches a half to all of what copies and
# products of the same device do, twice either way at one deviation; what a table says of a device
# whose name alone is known is off by four.
_FROM_RATES, _FROM_TABLE = math.log(2.0), math.log(4.0)
# And of work whose count is a formula's, as of sorts and decompositions, besides.
_FROM_COUNT = math.log(2.0)


class _Table(NamedTuple):
    """What devices of a kind can do: bytes and flops of float32 a second, float64 over float32, and
    what a launch and a byte over its link take."""

    bytes_per_second: float
    flops_per_second: float
    double_share: float
    launch_seconds: float
    link_seconds: float
    link_bytes_per_second: float


# One core: DRAM of a server 10 GB/s for one thread, a vector of 8 floats added and multiplied at 3
# GHz, and a call of NumPy's.
_HOST = _Table(1e10, 4.8e10, 0.5, 1e-6, 0.0, math.inf)
# Of the vendor's data sheets, the slowest form of each; of PCIe's third generation 12 of 16 GB/s.
_CARDS = (
    ("H200", _Table(4.8e12, 6.0e13, 0.5, 1e-5, 1e-5, 2.5e10)),
    ("H100", _Table(2.0e12, 5.1e13, 0.5, 1e-5, 1e-5, 2.5e10)),
    ("A100", _Table(1.5e12, 1.9e13, 0.5, 1e-5, 1e-5, 1.2e10)),
    ("V100", _Table(9.0e11, 1.4e13, 0.5, 1e-5, 1e-5, 1.2e10)),
    ("L40", _Table(8.6e11, 9.0e13, 1 / 64, 1e-5, 1e-5, 1.2e10)),
    ("L4", _Table(3.0e11, 3.0e13, 1 / 64, 1e-5, 1e-5, 1.2e10)),
    ("T4", _Table(3.2e11, 8.1e12, 1 / 32, 1e-5, 1e-5, 1.2e10)),
    ("RTX", _Table(3.6e11, 9.0e12, 1 / 64, 1e-5, 1e-5, 1.2e10)),
)
_CARD = _Table(3.0e11, 8.0e12, 1 / 32, 2e-5, 1e-5, 1.2e10)

# Of what a transcendental computes, in flops: polynomials of 10 to 20 terms. The host's libraries
# go through the elements one by one for some.
_SPECIAL_FLOPS = 32.0
# Times that a sort goes through its array: by digits of eight bits, each read and written.
_SORT_PASSES = 8.0
# Comparisons that one core makes a second: a sort of 2**18 elements takes 20 ms.
_COMPARISONS_PER_SECOND = 2.4e8
# Of decompositions: multiplications over n³, and what of a product's rate they reach.
_DECOMPOSED = {
    "solve": 2 / 3, "cholesky": 1 / 3, "inv": 2.0, "det": 2 / 3, "slogdet": 2 / 3, "qr": 4 / 3,
    "lstsq": 10.0, "svd": 20.0, "eigh": 10.0, "eig": 25.0, "eigvalsh": 4.0, "eigvals": 10.0,
    "pinv": 25.0, "svdvals": 5.0, "matrix_rank": 20.0, "cond": 20.0,
}  # fmt: skip
_DECOMPOSED_SHARE = 0.2


class _Known(NamedTuple):
    """The rates that a prior goes by, and where they come from."""

    bytes_per_second: float
    flops_per_second: float
    launch_seconds: float
    source: Source


def prior(
    group: Group, device: Device | str, implementation: str, profile: Profile | None
) -> Estimate:
    """Return the predicted seconds of a group that was not measured on a device, whose inputs lie
    there: launches, the bytes that have to be moved and the operations that have to be done."""
    name = device if isinstance(device, str) else device.id
    graph = (group.form.copied or group).graph
    dtype = graph.nodes[-1].layout.dtype
    known = _known(device, dtype, profile)
    host = name == HOST_DEVICE
    counted = False
    launches, moved, compute = 0, 0.0, 0.0
    if implementation == "generated" and group.kind is not GroupKind.LIBRARY:
        work = workload(group)
        launches, moved = 1, float(work.bytes_read + work.bytes_written)
        compute = (work.flops + _SPECIAL_FLOPS * work.special) / known.flops_per_second
    else:
        for node, nbytes in one_by_one(graph):
            launches += 1
            seconds, times, guessed = _node(graph, node, known, host)
            if implementation == "generated" and is_contraction(node):
                seconds *= _GENERATED_PRODUCTS
            compute += seconds
            moved += times * nbytes
            counted |= guessed
    memory = moved / known.bytes_per_second
    terms = {
        "launch": launches * known.launch_seconds,
        "memory": memory,
        "compute": max(compute - memory, 0.0),
        "loops": 0.0,
    }
    seconds = sum(terms.values())
    spread = _FROM_RATES if known.source is Source.PRIOR else _FROM_TABLE
    if counted:
        spread = math.hypot(spread, _FROM_COUNT)
    factor = math.exp(_TEN_PERCENT * spread)
    return Estimate(seconds, seconds / factor, seconds * factor, terms, source=known.source)


def _node(graph: Graph, node: Node, known: _Known, host: bool) -> tuple[float, float, bool]:
    """Return the seconds that a node computes, how often it goes through its bytes, and whether
    that is counted by a formula."""
    kind, n = node_class(graph, node), float(max(node_elements(graph, node), 1))
    if is_contraction(node):
        _, m, _, columns = product_shape(graph, node)
        # vectors stream; what is narrow fills no tile
        narrow = min(m, columns, _TILE) / _TILE
        share = narrow if m > 1 and columns > 1 else 1.0
        return node_flops(graph, node) / (known.flops_per_second * share), 1.0, False
    if kind == "sort":
        n = float(max(graph.layouts[node.operands[0]].size, 2))
        compared = n * math.log2(n) / _COMPARISONS_PER_SECOND if host else 0.0
        return compared, _SORT_PASSES, True
    if kind == "fft":
        n = float(max(graph.layouts[node.operands[0]].size, 2))
        return 5.0 * n * math.log2(n) / known.flops_per_second, 2.0, True
    base = node.op.name.rpartition(".")[2]
    if base in _DECOMPOSED:
        shape = graph.layouts[node.operands[0]].shape
        side = float(max(shape[-2:], default=1))
        count = math.prod(shape[:-2])
        flops = 2.0 * _DECOMPOSED[base] * side**3 * count
        return flops / (_DECOMPOSED_SHARE * known.flops_per_second), 1.0, True
    if kind == "other":  # nobody counts it: as often as a sort goes through its bytes
        return 0.0, _SORT_PASSES, True
    flops = _SPECIAL_FLOPS * n if node.op.special else node_flops(graph, node)
    return flops / known.flops_per_second, 1.0, False


# Of generated products over a library's on a device (H200, 1024³ float32: 1110 µs, cuBLAS 87).
_GENERATED_PRODUCTS = 12.0
# Rows, and columns, of a result that fill the tile that a library works on.
_TILE = 64


def _known(device: Device | str, dtype: np.dtype, profile: Profile | None) -> _Known:
    """Return the rates of a device: measured ones, and of the table what was not."""
    table = _table(device)
    wide = dtype.kind in "fc" and dtype.itemsize >= (16 if dtype.kind == "c" else 8)
    flops = table.flops_per_second * (table.double_share if wide else 1.0)
    if profile is None:
        return _Known(table.bytes_per_second, flops, table.launch_seconds, Source.VENDOR)
    every = [*profile.rates.values()]
    streams, products = [], []
    if (link := profile.links.get("device")) is not None:
        nbytes, seconds = link.knots[-1]
        streams.append(2.0 * nbytes / seconds)  # read and written
    for rates in every:
        streams += [_rate(curve.knots) for k, curve in rates.curves.items() if _streams(k)]
        products += _product_rates(rates, dtype)
    launch = min([rates.launch.value for rates in every], default=table.launch_seconds)
    return _Known(
        max(streams, default=table.bytes_per_second),
        max(products, default=flops),
        launch,
        Source.PRIOR if streams else Source.VENDOR,
    )


def _rate(knots: tuple[tuple[float, float], ...]) -> float:
    """Return the bytes a second of the largest size, which no cache made quick."""
    work, seconds = knots[-1]
    return work / seconds


def _streams(key: str) -> bool:
    return key.partition("/")[0] in ("elementwise", "negate", "reduce_inner")


def _product_rates(rates: Rates, dtype: np.dtype) -> list[float]:
    """Return the flops a second of products that a surface says most of, in that dtype or in the
    others; else of arithmetic one by one."""
    alike = rates.surfaces.get(dtype.name)
    surfaces = [alike] if alike is not None else [*rates.surfaces.values()]
    found = [2.0 * _SIDE**3 / surface.seconds_at(_SIDE, _SIDE, _SIDE) for surface in surfaces]
    if (curve := rates.curves.get(f"matmul/{dtype.name}")) is not None:
        found.append(_rate(curve.knots))
    unit = rates.unit("flop", dtype.name)
    return [*found, *([2.0 / unit] if unit > 0.0 and not found else [])]


_SIDE = 2048.0


def _table(device: Device | str) -> _Table:
    if isinstance(device, str):
        return _HOST if device == HOST_DEVICE else _CARD
    if device.space == "host":
        return _HOST
    return next((table for name, table in _CARDS if name in device.name), _CARD)


def predicted(group: Group, candidate: Candidate, facts: Facts) -> Estimate | None:
    """Return what a candidate takes as its profile predicts and earlier runs correct it."""
    place = candidate.device, candidate.implementation
    found = facts.estimate(group, *place)
    return found if found is None or facts.learned is None else facts.learned(found, group, *place)


def guessed(group: Group, candidate: Candidate, facts: Facts) -> Estimate:
    """Return what a candidate takes by what is known of its device beside such work."""
    name = candidate.device
    where = next((d for d in facts.devices if d.id == name), name)
    return prior(group, where, candidate.implementation, facts.profiles.get(name))


def relied_on(candidate: Candidate, estimate: Estimate) -> bool:
    """Tell whether an estimate was measured, be it of another class, or is to be relied on: of the
    host's NumPy, which all else is compared with, whatever was measured says enough."""
    measured = estimate.source in (Source.MEASURED, Source.BORROWED)
    return measured or candidate.device == HOST_DEVICE


def doubted_products(
    group: Group,
    candidates: Sequence[Candidate],
    able: Iterable[int],
    unmeasured: Mapping[int, Estimate],
) -> dict[int, Estimate]:
    """Return the estimates of a product by generated code on devices whose library was not measured
    for it, by the positions of the candidates: it wins where sides are short, and loses by a factor
    of ten where none is (H200, 1024³ float32: 1110 µs, cuBLAS 87), so that it may take as much
    more, or less."""
    if not unmeasured or group.kind is not GroupKind.LIBRARY:
        return {}
    unknown = {candidates[i].device for i in unmeasured} - {HOST_DEVICE}
    found = {}
    for i in able:
        c = candidates[i]
        own = c.implementation == "generated" and c.device in unknown and i not in unmeasured
        if own and c.estimate is not None:
            low = c.estimate.seconds / _GENERATED_PRODUCTS
            high = c.estimate.seconds * _GENERATED_PRODUCTS
            found[i] = replace(c.estimate, low=low, high=high, source=Source.PRIOR)
    return found


def copy_prior_seconds(device: Device, nbytes: int) -> float:
    """Return the seconds of a copy over the link of a device of which none was measured."""
    table = _table(device)
    if device.unified_memory or not nbytes:
        return 0.0
    return table.link_seconds + nbytes / table.link_bytes_per_second
