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
from typing import TYPE_CHECKING

from alight._src.base.failures import failures
from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import Group
from alight._src.ir.op_table import Kind
from alight._src.ir.row_column import visits
from alight._src.ir.table_reduction import CHUNK
from alight._src.plan.cache_distance import ReuseDistance
from alight._src.plan.extrapolation import (
    ADDED,
    FAR_BYTES,
    NEAR_BYTES,
    beginning,
    copied_share,
    far_seconds,
    foreseen,
    guessed,
    narrow_seconds,
    results_seconds,
    row_by_row,
)
from alight._src.plan.loop_overhead import (
    after,
    apart_of,
    by_columns,
    by_rows,
    combined_seconds,
    distant_seconds,
    in_order,
    loop_seconds,
    padding,
    row_by_result,
    step_of,
    summed,
)
from alight._src.plan.occupancy import lone_seconds
from alight._src.plan.passes import Pass, alone, node_class, passes
from alight._src.plan.plan import Estimate, Source
from alight._src.plan.prior import prior
from alight._src.plan.products import generated_terms, product_terms
from alight._src.plan.profile import Profile, Rates
from alight._src.plan.profile_version import SCHEMA
from alight._src.plan.rate_lookup import BODY_SPREAD, BY_ADDITION, Computed, computed
from alight._src.plan.thread_scaling import met, shared_seconds
from alight._src.plan.workload import one_by_one
from alight.device import HOST_DEVICE

if TYPE_CHECKING:
    from alight.device import Device

__all__ = [
    "SCHEMA",
    "Profile",
    "Rates",
    "copy_seconds",
    "estimate",
]

# Standard normal deviate that leaves 10 % on either side: the ends of an 80 % interval.
_TEN_PERCENT = 1.2815515655446004


def shown(beyond: float, memory: float, stream: float, nbytes: float, overlap: float) -> float:
    """Return what of the seconds ``beyond`` those that hide in the caches is added to memory's, of
    which ``stream`` would be there if all were in the caches.

    Far from the caches that much more is waited for as does not overlap, and that much of the
    waiting is used as does.
    """
    far = math.log(max(nbytes, NEAR_BYTES) / NEAR_BYTES) / math.log(FAR_BYTES / NEAR_BYTES)
    waited = (1 - overlap) * min(far, 1.0) * min(beyond, stream)
    return beyond + waited - overlap * min(beyond, max(0.0, memory - stream))


def _pass_terms(
    rates: Rates,
    graph: Graph,
    item: Pass,
    first: bool,
    own: bool,
    away: bool = False,
    threads: int = 1,
    host: Rates | None = None,
) -> tuple[dict[str, float], float] | None:
    """Return the seconds of a pass by term, and the spread of their sum; ``away``: generated code
    on another device than the host, which has so many ``threads``. ``host`` is what the host's
    generated code takes, where it runs on the host."""
    if item.kind == "matmul":
        return product_terms(rates, graph, item, host)
    kind = item.kind
    if own and kind == "reduce_inner" and item.once and rates.some["reduce_rows"] is not None:
        kind = "reduce_rows"
    elif not away and f"reduce_sum/{item.dtype}" in rates.curves and summed(item, own):
        kind = "reduce_sum"
    found = rates.curve_of[kind, item.dtype]
    if found is None:
        return None
    curve, spread = found
    if kind == "reduce_sum":
        spread = rates.spreads.get(item.kind, spread)
    if own and len(item.nodes) > 1:
        spread = rates.spreads.get("fused", spread)
    whole = beginning(rates, kind, curve, item.amount)
    if item.kind == "select" and not own:
        whole = foreseen(graph, item, curve, whole)
    if own and kind.startswith("reduce"):
        whole = max(whole, far_seconds(rates, curve, item))
        whole += curve.stream_seconds(item.again)
    narrow = rates.some["reduce_narrow"] if own and item.rows else None
    few = 0.0
    if narrow is not None and away:
        whole = max(whole, narrow_seconds(narrow, item, away))
    elif narrow is not None and rates.sharing is not None:
        few = max(0.0, narrow_seconds(narrow, item, away) - whole)
    elif not own and item.kind == "reduce_outer":
        whole = max(whole, row_by_row(rates, graph, item))
    if own and not away and item.kind == "reduce_outer":
        whole += results_seconds(rates, curve, item)
    if item.written > ADDED and item.kind == "elementwise":
        whole *= copied_share(rates, item)
    if item.apart and (lines := rates.curve_of["elementwise", item.dtype]) is not None:
        near, far = (lines[0].seconds_at(n) for n in (item.amount, item.amount + item.apart))
        if item.kind == "select":
            whole = max(whole + max(far - near, guessed(curve, item.amount) - whole), far)
        elif not away:  # between rows nothing is read, in the caches
            whole += max(0.0, far - near - lines[0].stream_seconds(item.apart))
    launch = min(rates.floors[kind], whole)
    memory = whole - launch
    if not item.runs.starts:  # of no elements
        return {"launch": launch, "memory": memory, "compute": 0.0, "loops": 0.0}, spread
    if away and item.kind == "reduce_inner":
        item = by_rows(graph, item)
    if not first:
        launch = max(0.0, launch - rates.launch.value) + rates.call.value
    if own and not away and item.kind == "reduce_inner":
        launch += combined_seconds(rates, item, threads)
    if not own:
        op = item.nodes[0].op
        if op.kind is not Kind.ELEMENTWISE:
            launch += rates.unit(f"call.{op.name}", item.dtype)
    # What is picked, and how often a processor guesses wrong, is in a curve of its own.
    picked = item.kind == "select" and any(name.startswith("select/") for name in rates.curves)
    step = step_of(graph, item, away) if own else 0
    # rows side by side are reduced as elementwise code goes through arrays
    in_rows = own and not away and row_by_result(item)
    work: Computed | None = Computed(0.0, 0.0, 0.0, 0.0)
    if not picked and kind != "reduce_sum":
        apart = None if own else apart_of(rates, item)
        given = None if apart is None else (apart.value, spread)
        work = computed(rates, graph, item, own, away, padding(item, step), in_rows, given)
    if work is None:
        return None
    compute = work.seconds
    # The curve was measured with one flop for each element.
    base = rates.work.get(f"flop/{item.dtype}")
    if base is not None and item.kind in BY_ADDITION:
        compute = max(0.0, compute - base.value * work.most)
    if not own and item.kind.startswith("reduce"):
        copied, item = in_order(rates, graph, item)
        loops = copied + after(rates, graph, item) + loop_seconds(rates, item, step)
    else:
        loops = loop_seconds(rates, item, step, away) if narrow is None or not away else 0.0
        loops = max(loops, few * max(item.parts, 1))  # of one thread, as all that is shared
    if loops < 0:  # fewer rows than the curve was measured with
        memory, loops = max(memory + loops, 0.0), 0.0
    memory += 0.0 if away else distant_seconds(rates, item, own)
    if in_rows:  # taken apart in other units of a processor than those that compute
        loops = max(loops - compute, 0.0)
    busy = compute + loops
    lone = lone_seconds(rates, graph, item) if away else 0.0
    if not busy and lone <= memory:
        return {"launch": launch, "memory": memory, "compute": 0.0, "loops": 0.0}, spread
    if lone > memory + busy:
        return {"launch": launch, "memory": memory, "compute": lone - memory, "loops": 0.0}, spread
    alone = 1.0
    if own and rates.sharing is not None:
        alone = min(1.0, shared_seconds(rates.sharing, busy, work.less) / busy)
        if narrow is not None or (item.parts and not item.rows):
            alone = max(alone, 1.0 / item.parts)
    stream = min(memory, curve.stream_seconds(item.amount))
    hidden = min(compute * alone, stream)
    beyond = busy * alone - hidden
    if own and rates.sharing is not None:
        beyond -= met(rates.sharing, busy, memory - stream)
    if beyond <= 0:
        return {"launch": launch, "memory": memory, "compute": 0.0, "loops": 0.0}, spread
    # what is only read is waited for by nobody
    near = item.kind.startswith("reduce")
    nbytes = NEAR_BYTES if near else item.amount
    more = shown(beyond, memory, stream, nbytes, rates.overlap.value)
    share = min(loops * alone / beyond, 1.0)
    mean = work.doubt / work.seconds if work.seconds else 0.0
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
    kinds = {node_class(group.graph, node) for node in group.graph.nodes}
    if "other" in kinds and "other" not in rates.classes:
        return prior(group, device, implementation, profile)  # no curve is of any use for it
    own = implementation == "generated" and profile.origin != "recorded"
    if group.form.copied is not None:
        group = group.form.copied
        kinds = {node_class(group.graph, node) for node in group.graph.nodes}
    terms, doubt = {"launch": 0.0, "memory": 0.0, "compute": 0.0, "loops": 0.0}, 0.0
    threads = profile.fingerprint.get("threads", 1)
    away = name != HOST_DEVICE
    host = None if away else profile.rates.get("generated")
    for found in _all_terms(rates, group, implementation, own, away, threads, host):
        if found is None:
            return None
        for term, seconds in found[0].items():
            terms[term] += seconds
        doubt += found[1] * sum(found[0].values())
    spread, whole = _tried(rates, group.graph), sum(terms.values())
    # of what was borrowed from another class or dtype, tries of what was measured say too little
    if spread is not None and doubt <= math.hypot(max(spread, rates.spread), BODY_SPREAD) * whole:
        doubt = spread * whole
    # generated code is of few kinds, all of which streams tell
    sure = implementation == "generated" or kinds <= rates.classes
    source = Source.MEASURED if sure else Source.BORROWED
    return _interval(terms, doubt, source)


def _tried(rates: Rates, graph: Graph) -> float | None:
    """Return the spread of what a graph is one of, where such were tried: several elementwise nodes
    and reduces, or one node of these."""
    kinds = (Kind.ELEMENTWISE, Kind.REDUCTION)
    if not rates.spreads or not all([node.op.kind in kinds for node in graph.nodes]):
        return None
    if len(graph.nodes) != 1:
        return rates.spreads.get("fused")
    kind = node_class(graph, graph.nodes[0])
    return rates.spreads.get("elementwise" if kind == "select" else kind)


_Terms = tuple[dict[str, float], float] | None


def _all_terms(
    rates: Rates,
    group: Group,
    implementation: str,
    own: bool,
    away: bool,
    threads: int,
    host: Rates | None,
) -> Iterator[_Terms]:
    """Yield what `_pass_terms` says of each pass."""
    if implementation == "generated":
        group = group.form.packed or group
    graph, known = group.graph, rates.nodes
    if len(known) > _NODES_KEPT:
        known.clear()
    if rates.surfaces and own and not away and group.form.sides is not None:
        yield generated_terms(rates, graph, group.form.sides)
        return
    section = group.form.section
    if implementation == "generated" and section is not None:
        more = 1.0 if away else section.uneven(max(threads, 1))
        for body, shape, times in visits(graph, section, CHUNK):
            part = Group(GroupKind.REDUCE, body, shape)
            again = {"launch": 0.0} if times > 1 else {"launch": 1.0}
            for terms in _all_terms(rates, part, implementation, own, away, threads, host):
                yield terms and (
                    {k: v * again.get(k, times * more) for k, v in terms[0].items()},
                    terms[1],
                )
        return
    if implementation == "generated":
        for position, item in enumerate(passes(group, implementation)):
            host_reduction = own and not away and item.kind == "reduce_inner"
            if host_reduction and group.kind is not GroupKind.LIBRARY:
                item = by_columns(group, item)
            made = _pass_terms(rates, graph, item, position == 0, own, own and away, threads)
            if own and not away and item.kind != "scan":
                made = _handed(made, _handed_seconds(rates, item.kind, len(graph.inputs)))
            yield made
        return
    # One by one: programs repeat their ops, and every group that an op could be in asks for it.
    moved = one_by_one(graph)
    farther = [0.0] * len(moved)
    # what fits into the nearer caches comes from nowhere else
    if len(graph.nodes) > 1 and sum([layout.nbytes for layout in graph.inputs]) > NEAR_BYTES:
        reach = ReuseDistance(rates, graph)
        farther = [reach.more(node, nbytes) for node, nbytes in moved]
    for position, ((node, nbytes), more) in enumerate(zip(moved, farther, strict=True)):
        first = position == 0
        layouts = tuple([graph.layouts[i] for i in node.operands])
        key = node.op, layouts, node.attrs, node.layout, nbytes, first
        kind = node_class(graph, node) if first else ""
        try:
            found = known.get(key, known)
            if found is known:  # not looked up twice: another thread may clear it
                item = alone(graph, node, nbytes)
                found = known[key] = _pass_terms(rates, graph, item, first, own, host=host)
        except failures(TypeError):  # an attribute without a hash
            item = alone(graph, node, nbytes)
            found = _pass_terms(rates, graph, item, first, own, host=host)
        if first:
            found = _handed(found, _handed_seconds(rates, kind, len(graph.inputs)))
        if more and found is not None:
            terms, spread = found
            found = {**terms, "memory": terms["memory"] + more}, spread
        yield found


# Inputs of what the curves of classes were measured with.
_GIVEN = {"elementwise": 2, "select": 3}


def _handed_seconds(rates: Rates, kind: str, inputs: int) -> float:
    """Return what handing a group so many inputs takes beyond those of the class that its first
    pass is of: of one operand a call was measured, too. More are never handed over sooner: where
    that call took longer than one of two operands, a moment did."""
    each: float | None = rates.nodes.get("handed")
    if each is None:  # searched once
        each = rates.nodes["handed"] = max(-rates.unit("call.negative", "float64"), 0.0)
    return each * (inputs - _GIVEN.get(kind, 1))


def _handed(found: _Terms, seconds: float) -> _Terms:
    """Return terms with what handing over more inputs takes, or fewer."""
    if found is None or not seconds:
        return found
    terms, spread = found
    return {**terms, "launch": max(terms["launch"] + seconds, 0.0)}, spread


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


def _interval(terms: Mapping[str, float], doubt: float, source: Source) -> Estimate:
    seconds = sum(terms.values())
    # Errors of one profile go together, so spreads are averaged by time and not by their squares.
    factor = math.exp(_TEN_PERCENT * doubt / seconds) if seconds else 1.0
    return Estimate(seconds, seconds / factor, seconds * factor, dict(terms), source=source)


def copy_seconds(profile: Profile | None, nbytes: int, direction: str) -> float | None:
    """Return seconds of a copy; direction is upload, download or device. None where unmeasured."""
    curve = None if profile is None else profile.links.get(direction)
    if curve is None:
        return None
    return curve.seconds_at(nbytes) if nbytes else 0.0
