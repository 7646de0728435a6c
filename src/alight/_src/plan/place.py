"""From a graph to a plan: placed by cost, fused inside each space, in two rounds."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from alight._src.base.failures import failures
from alight._src.base.records import replace
from alight._src.ir.graph import GROUP_KINDS, Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op import Kind, dtype_name
from alight._src.ir.rewrite import Rewritten, rewrite
from alight._src.plan.block import passing
from alight._src.plan.buffer_reuse import reusing
from alight._src.plan.choose import Choice, choose, group_key, operation, ruled_out, wanted
from alight._src.plan.compile_work import too_long
from alight._src.plan.fuse import KERNEL_NODES, Region, fuse, group_of, halves, prune
from alight._src.plan.fusion_gate import Gated, gated
from alight._src.plan.nested_fusion import nested_regions
from alight._src.plan.order import Unit, in_order
from alight._src.plan.plan import (
    Decision,
    Estimate,
    Facts,
    LaunchStep,
    Plan,
    Refusal,
    Spot,
    Step,
    ViewStep,
    WriteStep,
    no_estimate,
)
from alight._src.plan.rematerialize import recomputing
from alight._src.plan.row_column_fusion import row_column_regions
from alight._src.plan.rowwise_fusion import by_rows
from alight._src.plan.size_classes import Cut, Cuts, copied, likeness
from alight._src.plan.stages import Uses
from alight._src.plan.workload import workload
from alight.device import HOST_DEVICE
from alight.errors import UnsupportedOnDevice


def make_plan(graph: Graph, facts: Facts, cuts: Cuts | None = None) -> Plan:
    """Return the steps that compute a graph, with the decisions behind them.

    First regions are as large as whoever could run them allows, and are placed; then nodes placed
    alike are fused anew, now recomputing what is cheaper to recompute, and the final groups are
    decided on. Numbers in the plan are those of ``graph``. ``cuts``: the regions found for graphs
    before this one, which those that are alike have too; what is found is added.
    """
    small = rewrite(graph)
    try:
        return _planned(graph, small, _asked_once(facts), cuts)
    except UnsupportedOnDevice as error:
        error.nodes = tuple([small.origins[number] for number in error.nodes])
        raise


def _asked_once(facts: Facts) -> Facts:
    """Return the facts, which answer at once what was asked before: both rounds ask for the same
    groups, and programs repeat their statements."""
    return replace(
        facts,
        supports=lru_cache(None)(facts.supports),
        estimate=no_estimate if facts.estimate is no_estimate else lru_cache(None)(facts.estimate),
    )


def _planned(graph: Graph, small: Rewritten, facts: Facts, cuts: Cuts | None) -> Plan:
    uses = Uses(small.graph, facts.bases)
    key = None if cuts is None else likeness(small.graph, facts)
    known = None if key is None or cuts is None else cuts.get(key)
    if known is not None:
        regions = copied(known.regions)
        asked = not known.clear
        weighed = gated(small.graph, uses, regions, facts) if asked else Gated(regions, [], True)
        placed = _placed(small.graph, uses, weighed, facts)
        return _finished(graph, small, uses, placed, facts)
    spots = _spots(facts)
    able = _able(small.graph, uses, spots, facts)
    fused = fuse(small.graph, uses, able)
    joining = _Joining(small.graph, uses, able, facts)
    by_row = joining.rows(copied(fused))
    regions = joining.rest(copied(by_row))
    kept = copied(regions)
    weighed = gated(small.graph, uses, regions, facts)
    placed = _placed(small.graph, uses, weighed, facts)
    if spots:
        keys: list[Hashable] = list(able)
        torn = False  # NumPy runs several nodes as one, which one of them may be the cause of
        found = [
            (unit.nodes, (choice.device, choice.implementation))
            for unit, choice in zip(placed.units, placed.choices, strict=True)
            if choice is not None
        ]
        generated = {where for _, where in found if where[1] == "generated"}
        for nodes, where in found:
            torn |= len(nodes) > 1 and where[1] != "generated"
            for number in nodes:
                index = number - len(small.graph.inputs)
                keys[index] = where
                # One node by itself may be NumPy's and yet be better with the others there: what
                # parted them can be a gap of a device that neither is placed on.
                own = where[0], "generated"
                if own in generated and own in able[index]:  # type: ignore[operator]
                    keys[index] = own
        if generated or torn or len(set(able)) > 1:
            # one loop of all there is comes out as it is
            whole = len(kept) == len(found) == 1 and kept[0].kind is GroupKind.LOOP and not torn
            same = whole or _alike(small.graph, able, keys)
            joining = _Joining(small.graph, uses, keys, facts)
            if same:
                for found_before in (fused, by_row, kept):
                    _rekey(found_before, keys, len(small.graph.inputs))
            else:
                fused = fuse(small.graph, uses, keys)
                by_row = joining.rows(copied(fused))
            apart = joining.recomputing(fused, generated, by_row)
            if apart is not fused:
                same, kept = False, joining.rest(joining.rows(apart))
            elif not same:
                kept = joining.rest(by_row)
            regions = copied(kept)
            weighed = gated(small.graph, uses, regions, facts)
            if not same or weighed.refused or placed.refused:  # else it is placed as it was
                placed = _placed(small.graph, uses, weighed, facts)
    if key is not None and cuts is not None:
        cuts[key] = Cut(tuple(kept), weighed.clear)
    return _finished(graph, small, uses, placed, facts)


def _alike(graph: Graph, keys: Sequence[Hashable], others: Sequence[Hashable]) -> bool:
    """Tell whether nodes come together by other keys as by some, and all that is made of them."""
    joined: set[tuple[Hashable, Hashable]] = set()
    alone: set[tuple[Hashable, Hashable]] = set()
    for (number, node), *pair in zip(graph.numbered, keys, others, strict=True):
        kind = node.op.kind
        if kind is Kind.ELEMENTWISE or kind is Kind.REDUCTION or number in graph.rolls:
            joined.add(tuple(pair))  # type: ignore[arg-type]
        elif kind is not Kind.VIEW and kind is not Kind.WRITE:
            alone.add(tuple(pair))  # type: ignore[arg-type]
    for key, other in joined | alone:
        found = _generated_on(key)
        if found != _generated_on(other) or (graph.rolls and bool(key) != bool(other)):
            return False
        if found:
            joined.add((key, other))
    return len(joined) == len({key for key, _ in joined}) == len({other for _, other in joined})


def _rekey(regions: Sequence[Region], keys: Sequence[Hashable], first: int) -> None:
    """Give regions the keys that their nodes have, the first of which is of value ``first``."""
    for region in regions:
        region.key = keys[region.members[0] - first]
        _rekey(region.parts, keys, first)


class _Joining:
    """What makes fused regions of nodes with some keys larger: as whoever may run them allows."""

    def __init__(self, graph: Graph, uses: Uses, keys: Sequence[Hashable], facts: Facts) -> None:
        self.graph, self.uses, self.facts = graph, uses, facts
        self.found_on = {key: _generated_on(key) for key in set(keys)}
        self.generated = {key for key, devices in self.found_on.items() if devices}
        # Other devices give a row to one block of threads, however long it is.
        self.cut = {key for key in self.generated if self.found_on[key] == {HOST_DEVICE}}

    def rows(self, regions: list[Region]) -> list[Region]:
        """Return the regions, those one that run row by row."""
        if not self.generated:
            return regions
        return by_rows(self.graph, self.uses, regions, self.generated, self.cut, self.runs)

    def runs(self, region: Region) -> bool:
        group, _ = group_of(self.graph, self.uses, region)
        found_on = self.found_on[region.key]
        return all(self.facts.supports(name, "generated", group) is None for name in found_on)

    def rest(self, regions: list[Region]) -> list[Region]:
        """Return regions that are one by rows, those one that are nested or reduce rows and columns
        of one array."""
        if not self.generated:
            return regions
        regions = nested_regions(self.graph, self.uses, regions, self.cut)
        return row_column_regions(self.graph, self.uses, regions, self.cut)

    def recomputing(
        self, fused: list[Region], recompute: Collection[Hashable], by_row: list[Region]
    ) -> list[Region]:
        """Return fused regions with what is cheaper to compute again than to store; the very same
        where nothing is. ``by_row`` are these as they run then."""
        if not recompute or len(fused) < 2:
            return fused
        estimate = self.estimate
        return recomputing(self.graph, self.uses, fused, recompute, estimate, lambda: by_row)

    def estimate(self, group: Group, key: Any) -> Estimate | None:
        return self.facts.estimate(group, *key)


class _Placed(NamedTuple):
    """Units in their order, with where each runs, and the fusions that were refused."""

    units: list[Unit]
    choices: list[Choice | None]
    refused: list[Refusal]


def _placed(graph: Graph, uses: Uses, weighed: Gated, facts: Facts) -> _Placed:
    """Return where regions run, those halved that are too much for who runs them."""
    refused = weighed.refused
    units = in_order(graph, uses, _fitting(graph, uses, weighed.regions, facts, refused))
    return _Placed(units, choose(graph, uses, units, facts), refused)


def _generated_on(key: Hashable) -> set[str]:
    """Return the devices on which nodes of a key may run as generated code."""
    spots = key if isinstance(key, frozenset) else (key,)
    return {s[0] for s in spots if isinstance(s, tuple) and s[1:] == ("generated",)}


def _spots(facts: Facts) -> list[Spot]:
    """Return every place a group could run at other than NumPy on the host; none if all is NumPy's
    anyway."""
    forced = facts.force != (None, None)
    has_host = any(device.id == HOST_DEVICE for device in facts.devices)
    blind = facts.estimate is no_estimate and facts.timed is None
    if not forced and has_host and blind:
        return []
    return [
        (device.id, name)
        for device in facts.devices
        for name in device.support.implementations
        if (not forced or wanted(facts, device.id, name))
        and (device.id != HOST_DEVICE or name == "generated")
    ]


def _able(graph: Graph, uses: Uses, spots: Sequence[Spot], facts: Facts) -> list[Hashable]:
    """Return for each node the places that can run it alone: nodes that differ in them do not
    share a kernel."""
    nowhere: frozenset[Spot] = frozenset()
    if not spots:
        return [nowhere] * len(graph.nodes)
    devices = {device.id: device for device in facts.devices}
    if [*spots] == [_HOSTS_OWN] and _in_one_loop(graph):
        # asked of all at once: whoever writes their loop writes that of each
        numbers = [number for number, _ in graph.numbered]
        ends = [number for number in numbers if number in uses.live]
        group, _ = group_of(graph, uses, Region(GroupKind.LOOP, None, 0, numbers, {*numbers}, ends))
        if ruled_out(group, devices[HOST_DEVICE], "generated", facts)[0] is None:
            return [frozenset(spots)] * len(numbers)
    keys: list[Any] = []
    groups: dict[Any, Group] = {}
    for number, node in graph.numbered:
        own = GROUP_KINDS.get(node.op.kind) if graph.rolls.get(number) is None else GroupKind.LOOP
        if own is None:
            keys.append(None)
            continue
        layouts = tuple([graph.layouts[o] for o in node.operands])
        pattern = tuple([node.operands.index(o) for o in node.operands])
        key: Any = (node.op, layouts, pattern, node.layout, node.attrs)
        try:
            known = key in groups
        except failures(TypeError):  # an attribute without a hash
            key, known = number, False
        if not known:
            groups[key], _ = group_of(
                graph, uses, Region(own, None, 0, [number], {number}, [number])
            )
        keys.append(key)
    able: dict[Any, frozenset[Spot]] = {None: nowhere}
    for key, group in groups.items():
        found = frozenset(
            (device, name)
            for device, name in spots
            if ruled_out(group, devices[device], name, facts)[0] is None
        )
        # where no loop of ours rolls, it is a library's
        able[key] = nowhere if group.graph.rolls and _HOSTS_OWN not in found else found
    return [able[key] for key in keys]


_HOSTS_OWN: Spot = (HOST_DEVICE, "generated")


def _in_one_loop(graph: Graph) -> bool:
    """Tell whether a graph is elementwise values of one shape, as many as one kernel may make."""
    nodes = graph.nodes
    return 0 < len(nodes) <= KERNEL_NODES and all(
        [n.op.kind is Kind.ELEMENTWISE and n.layout.shape == nodes[0].layout.shape for n in nodes]
    )


def _fitting(
    graph: Graph, uses: Uses, regions: list[Region], facts: Facts, refused: list[Refusal]
) -> list[Region]:
    """Return the regions, those halved that are too much for a place which can run each of their
    nodes, or for the compiler of the host's."""
    devices = {device.id: device for device in facts.devices}
    checked: set[int] = set()
    while True:
        parts: list[Region] = []
        doubted = [r for r in regions if len(r.owned) > 1 and id(r) not in checked]
        groups = {id(region): group_of(graph, uses, region)[0] for region in doubted}
        for region in regions:
            key = region.key
            spots: Iterable[Any] = key if isinstance(key, frozenset) else (key,)
            group = groups.get(id(region))
            if group is not None:
                against = [
                    (device, why)
                    for device, name in spots
                    if device in devices and (device != HOST_DEVICE or name == "generated")
                    for reason, why in [ruled_out(group, devices[device], name, facts)]
                    if reason is not None
                ]
                if _HOSTS_OWN in spots and not against and (why := too_long(group)):
                    against = [(HOST_DEVICE, why)]
                if against:
                    cut = halves(graph, region)
                    refused.append(_too_much(graph, uses, region, cut, *against[0]))
                    parts += cut
                    continue
            checked.add(id(region))
            parts.append(region)
        if len(parts) == len(regions):
            return regions
        regions = prune(graph, uses, parts)


def _too_much(
    graph: Graph, uses: Uses, region: Region, parts: Sequence[Region], device: str, why: str
) -> Refusal:
    names = tuple([operation(group_of(graph, uses, part)[0]) for part in parts])
    whole = operation(group_of(graph, uses, region)[0])
    return Refusal(whole, names, tuple(region.members), device, None, None, why)


def _finished(
    graph: Graph,
    small: Rewritten,
    uses: Uses,
    placed: _Placed,
    facts: Facts,
) -> Plan:
    """Return the plan in the numbers of the original graph."""
    names, origins = small.names, small.origins
    homes = homes_of(graph)
    steps: list[Step] = []
    touched: list[list[int]] = []
    for unit, choice in zip(placed.units, placed.choices, strict=True):
        inputs = tuple([names[v] for v in unit.inputs])
        outputs = tuple([names[v] for v in unit.outputs])
        nodes = tuple([origins[v] for v in unit.nodes])
        touched.append([*inputs, *outputs, *nodes])
        if unit.group is not None and choice is not None:
            decision = _decision(unit.group, choice)
            where = choice.device, choice.implementation
            steps.append(LaunchStep(unit.group, *where, inputs, outputs, decision, nodes))
        elif unit.node is not None and choice is None:
            node = unit.node
            steps.append(ViewStep(inputs[0], outputs[0], node.layout, node.attr("offset", 0)))
        elif unit.node is not None and choice is not None:
            node = unit.node
            window = node.attr("layout"), node.attr("offset", 0)
            old, value = inputs
            home = homes.get(outputs[0], -1)
            steps.append(WriteStep(old, value, outputs[0], *window, choice.device, home))
    kept = [replace(r, nodes=tuple([origins[v] for v in r.nodes])) for r in placed.refused]
    skipping = [
        step
        for step in steps
        if isinstance(step, WriteStep) and graph.made_by[step.target].operands[0] != step.old
    ]
    skipping += _writes_left_out(graph, steps)
    last = _last(graph, uses, steps, touched)
    steps = reusing(graph, uses.base[: len(graph.inputs)], facts.windows, steps, last)
    steps = passing(graph, steps, facts)
    dead = _dead(last, len(steps))
    return Plan(tuple(steps), dead, graph.outputs, tuple(kept), tuple(skipping))


def _writes_left_out(graph: Graph, steps: Sequence[Step]) -> list[WriteStep]:
    """Return the writes of whole arrays that are no steps, as each is what it writes, over the
    first version before them: as recorded, each holds the one before, and what that had written."""
    made = {step.target for step in steps if isinstance(step, WriteStep)}
    first: dict[int, int] = {}
    found = []
    for number, node in graph.numbered:
        if node.op.kind is not Kind.WRITE or number in made:
            continue
        window, offset = node.attr("layout"), node.attr("offset", 0)
        if window is node.layout and not offset:
            old, value = node.operands
            first[number] = first.get(old, old)
            if first[number] != old:
                found.append(WriteStep(first[number], value, number, window, 0, HOST_DEVICE, -1))
    return found


def homes_of(graph: Graph) -> dict[int, int]:
    """Return the input that each version of leased memory was recorded as a later one of."""
    homes: dict[int, int] = {}
    for number, node in graph.numbered:
        if node.op.kind is Kind.WRITE and node.attr("in_place"):
            before = node.operands[0]
            home = before if before < len(graph.inputs) else homes.get(before, -1)
            if home >= 0:
                homes[number] = home
    return homes


def _last(
    graph: Graph, uses: Uses, steps: Sequence[Step], touched: Sequence[Sequence[int]]
) -> list[int]:
    """Return the step that needs each value last; a value outlives its views."""
    # What rewriting dropped is needed by no step.
    last = [0] * (len(graph.inputs) + len(graph.nodes))
    for index, numbers in enumerate(touched):
        for number in numbers:
            last[number] = index
    end = len(steps)
    for number in graph.outputs:
        last[number] = end
    for step in reversed(steps):
        if isinstance(step, ViewStep):
            last[step.source] = max(last[step.source], last[step.target])
    # Of inputs in one memory each lives as long as all: who writes one of them writes the others.
    inputs = range(len(graph.inputs))
    for number in inputs:
        base = uses.base[number]
        last[base] = max(last[base], last[number])
    for number in inputs:
        last[number] = max(last[number], last[uses.base[number]])
    return last


def _dead(last: Sequence[int], end: int) -> tuple[tuple[int, ...], ...]:
    """Return after each step the values that nobody needs any more."""
    if not end:
        return ()
    dead: list[list[int]] = [[] for _ in range(end + 1)]
    for number, index in enumerate(last):
        dead[index].append(number)
    return tuple([tuple(numbers) for numbers in dead[:end]])


def _decision(group: Group, choice: Choice) -> Decision:
    graph, layouts = group.graph, group.graph.operand_layouts
    work = workload(group)
    return Decision(
        operation=operation(group),
        kind=group.kind.value,
        group=group_key(group),
        dtypes=tuple([dtype_name(layout.dtype) for layout in layouts]),
        shapes=tuple([layout.shape for layout in layouts]),
        elements=work.elements,
        flops=work.flops,
        bytes=work.bytes_read + work.bytes_written,
        batch=_batch(graph.nodes[0]),
        residency_in=tuple([tuple(sorted(held)) for held in choice.held]),
        chosen=choice.device,
        implementation=choice.implementation,
        reason=choice.reason,
        threshold=choice.threshold,
        candidates=choice.candidates,
    )


def _batch(node: Node) -> int:
    """Return how many products a stacked matrix product makes; 1 for everything else."""
    return math.prod(node.layout.shape[:-2]) if node.op.name == "matmul" else 1
