"""Regions: which nodes run as one kernel, chosen so that fewer bytes move."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate

from alight._src.base.failures import failures
from alight._src.base.records import dataclass, field
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op import Kind
from alight._src.plan.compile_work import KERNEL_WORK, is_few, work_of_nodes
from alight._src.plan.stages import Uses, together

# Nodes in one kernel. An equation of state (81 nodes, three inputs) ran 6.5 times faster as one
# kernel than as three of at most 64 nodes, 2^20 float64: what crosses kernels goes through memory.
# One of 366 nodes is whole, too. What they are for a compiler is another limit: `KERNEL_WORK`.
KERNEL_NODES = 512
# Arrays read by one kernel; windows of one array that step alike, as stencils read them, count
# once: what one reads the other has just brought into the cache. Measured on one EPYC core, sums
# of k page-aligned float64 arrays of 16 MB: 28 GB/s at k = 8, 19 at 12, 13 at 16, 5.7 at 32:
# streams past the ways of the L1 cache evict one another.
KERNEL_ARRAYS = 8
# What one kernel has to gain over others that do the same: 0.1 µs, under which two runs are told
# apart by no clock here.
LEAST_GAIN_SECONDS = 1e-7


@dataclass(slots=True)
class Region:
    """Nodes that run as one. ``owned`` are the members whose values it may give to others; the
    rest are recomputed here. ``outputs`` are the owned values that others need. ``parts`` are the
    regions that a rowwise one was made of."""

    kind: GroupKind
    key: Hashable
    stage: int
    members: list[int]
    owned: set[int]
    outputs: list[int] = field(default_factory=list)
    parts: list[Region] = field(default_factory=list)


def fuse(graph: Graph, uses: Uses, keys: Sequence[Hashable]) -> list[Region]:
    """Return the regions of a graph in an order in which they can run. ``keys[i]`` says with which
    other nodes node i may share a kernel."""
    first = len(graph.inputs)
    regions: list[Region] = []
    for stage, members in together(graph, uses, keys):
        key = keys[members[0] - first]
        for kind, part in _divide(graph, uses, members, bool(key)):
            regions.append(Region(kind, key, stage, part, set(part)))
    # Inside a stage only reductions read what another region makes.
    regions.sort(key=lambda r: (r.stage, r.kind is GroupKind.REDUCE, r.members[0]))
    return prune(graph, uses, regions)


def group_of(graph: Graph, uses: Uses, region: Region) -> tuple[Group, tuple[int, ...]]:
    """Return a region as a group, and the numbers of its inputs in their order: the same object
    for equal groups, so that what is known of one is found by identity."""
    key = region.kind, *region.outputs, None, *region.members
    found = uses.groups.get(key)
    if found is None:
        group, inputs = _made(graph, region)
        try:
            group = uses.distinct.setdefault((group.kind, group.graph, group.shape), group)
        except failures(TypeError):  # an attribute without a hash
            pass
        found = uses.groups[key] = group, inputs
    return found


def _made(graph: Graph, region: Region) -> tuple[Group, tuple[int, ...]]:
    made_by = graph.made_by
    members = region.members
    inside = set(members)
    inputs: dict[int, int] = {}
    for number in members:
        for operand in made_by[number].operands:
            if operand not in inside and operand not in inputs:
                inputs[operand] = len(inputs)
    local = dict(inputs)
    inner = []
    for index, number in enumerate(members, len(inputs)):
        local[number] = index
        node = made_by[number]
        inner.append(
            Node(node.op, tuple([local[o] for o in node.operands]), node.attrs, node.layout)
        )
    body = Graph(
        tuple([graph.layouts[i] for i in inputs]),
        tuple(inner),
        tuple([local[o] for o in region.outputs]),
    )
    last = made_by[members[-1]]
    if region.kind not in _NO_REDUCTIONS:
        # over what is reduced last
        reductions = [made_by[m] for m in members if made_by[m].op.kind is Kind.REDUCTION]
        last = min(reductions, key=lambda node: graph.layouts[node.operands[0]].ndim)
    reductions_last = last.op.kind is Kind.REDUCTION
    over = graph.layouts[last.operands[0]] if reductions_last else last.layout
    return Group(region.kind, body, over.shape), tuple(inputs)


def prune(graph: Graph, uses: Uses, regions: list[Region]) -> list[Region]:
    """Return the regions without members nobody needs, each with its outputs; in the same order."""
    needed = set(uses.live)
    for node in graph.nodes:
        if node.op.kind is Kind.VIEW or node.op.kind is Kind.WRITE:
            needed.update(node.operands)
    kept = []
    for region in reversed(regions):
        region.outputs = [m for m in region.members if m in needed and m in region.owned]
        wanted = set(region.outputs)
        members = []
        for number in reversed(region.members):
            if number in wanted:
                members.append(number)
                wanted.update(graph.made_by[number].operands)
        members.reverse()
        region.members = members
        region.owned.intersection_update(members)
        needed |= wanted.difference(members)
        if members:
            kept.append(region)
    kept.reverse()
    return kept


def halves(graph: Graph, region: Region) -> list[Region]:
    """Return regions that together own what one of several nodes owns; they need to be pruned."""
    if region.parts:
        return [Region(p.kind, p.key, p.stage, [*p.members], {*p.owned}) for p in region.parts]
    owned = sorted(region.owned)
    middle = len(owned) // 2
    cuts = [(region.kind, owned[:middle]), (region.kind, owned[middle:])]
    if region.kind is GroupKind.REDUCE:
        kinds = {m: graph.made_by[m].op.kind for m in owned}
        loop = [m for m in owned if kinds[m] is Kind.ELEMENTWISE]
        if loop:
            reductions = [m for m in owned if kinds[m] is Kind.REDUCTION]
            cuts = [(GroupKind.LOOP, loop), (GroupKind.REDUCE, reductions)]
    # What is recomputed here is nobody else's to read, so each half gets it.
    again = [m for m in region.members if m not in region.owned]
    if region.kind not in _NO_REDUCTIONS:
        cuts = [(k if _reduces(graph, m, again) else GroupKind.LOOP, m) for k, m in cuts]
    return [
        Region(kind, region.key, region.stage, sorted(cut + again), set(cut)) for kind, cut in cuts
    ]


# Kinds of groups that need no reduction among their nodes.
_NO_REDUCTIONS = (GroupKind.LOOP, GroupKind.SCAN, GroupKind.LIBRARY)


def _reduces(graph: Graph, cut: Sequence[int], again: Sequence[int]) -> bool:
    """Tell whether there is a reduction among nodes of a cut and what they need of others."""
    wanted = set(cut)
    for number in sorted({*cut, *again}, reverse=True):
        if number in wanted:
            node = graph.made_by[number]
            if node.op.kind is Kind.REDUCTION:
                return True
            wanted.update(node.operands)
    return False


def _divide(
    graph: Graph, uses: Uses, members: list[int], placed: bool
) -> Iterator[tuple[GroupKind, list[int]]]:
    """Yield the kernels of one component: its loops, and for each choice of axes one reduction
    with the nodes that only it reads. What others read too stays in the loop and is read from
    memory."""
    made_by = graph.made_by
    kind = made_by[members[0]].op.kind
    rolled = placed and graph.rolls.get(members[0]) is not None
    if not rolled and kind is not Kind.ELEMENTWISE and kind is not Kind.REDUCTION:
        yield GroupKind.LIBRARY, members
        return
    homes: dict[int, Hashable] = {}
    for number in reversed(members):
        node = made_by[number]
        if node.op.kind is Kind.REDUCTION:
            ndim = len(graph.layouts[node.operands[0]].shape)
            axis = node.attr("axis")
            homes[number] = tuple(range(ndim)) if axis is None else axis
        elif node.op.kind is Kind.MOVEMENT:
            homes[number] = _LOOP  # reductions have no rolls
        else:
            readers = {homes.get(c, _LOOP) for c in uses.consumers[number]}
            homes[number] = (
                readers.pop() if len(readers) == 1 and number not in uses.live else _LOOP
            )
    inside = set(members)
    for home in dict.fromkeys(homes.values()):
        if home == _LOOP:
            continue
        cone = [m for m in members if homes[m] == home]
        producers = [m for m in cone if made_by[m].op.kind is Kind.ELEMENTWISE]
        if producers:
            reductions = [m for m in cone if made_by[m].op.kind is Kind.REDUCTION]
            joined = _crossing_bytes(graph, uses, inside, cone)
            if _crossing_bytes(graph, uses, inside, reductions) < joined:
                homes.update(dict.fromkeys(producers, _LOOP))
                cone, producers = reductions, []
        if not _fits(graph, uses, cone):
            homes.update(dict.fromkeys(producers, _LOOP))
            cone = [m for m in cone if made_by[m].op.kind is Kind.REDUCTION]
        for part in _cut(graph, uses, cone):
            yield GroupKind.REDUCE, part
    loop = [m for m in members if homes[m] == _LOOP]
    for part in _cap(graph, uses, loop):
        yield GroupKind.LOOP, part


_LOOP = "loop"


def _crossing_bytes(graph: Graph, uses: Uses, inside: set[int], cone: list[int]) -> int:
    """Return the bytes stored and read because values of the component cross into ``cone``."""
    within = set(cone)
    crossing = {o for m in cone for o in graph.made_by[m].operands}
    return sum(
        graph.layouts[o].nbytes * (1 if o in uses.live else 2) for o in (crossing & inside) - within
    )


def _arrays(graph: Graph, uses: Uses, members: list[int]) -> int:
    """Return how many arrays larger than a scalar a kernel of these nodes reads."""
    within = set(members)
    read = {o for m in members for o in graph.made_by[m].operands} - within
    return len(streams(graph, uses, read))


def streams(graph: Graph, uses: Uses, values: Iterable[int]) -> set[tuple[int, tuple[int, ...]]]:
    """Return the arrays larger than a scalar behind these values, each with its strides."""
    layouts = [(v, graph.layouts[v]) for v in values]
    return {(uses.base[v], layout.strides) for v, layout in layouts if layout.size > 1}


def _cap(graph: Graph, uses: Uses, members: list[int]) -> Iterator[list[int]]:
    """Yield runs of the members, each small enough for one kernel.

    What repeats, as a loop does that was recorded turn by turn, is cut into powers of two of turns:
    however many there are, few kernels do for all of them, which are compiled once.
    """
    if _fits(graph, uses, members):
        if members:
            yield members
        return
    found = _turns(graph, members)
    if found is None:
        yield from _cut(graph, uses, members)
        return
    start, length, count = found
    yield from _cut(graph, uses, members[:start])
    most = 1 << count.bit_length() - 1
    while most and not _fits(graph, uses, members[start : start + most * length]):
        most //= 2
    while count:
        turns = min(max(most, 1), 1 << count.bit_length() - 1)
        end = start + turns * length
        yield from _cut(graph, uses, members[start:end])
        start, count = end, count - turns
    yield from _cut(graph, uses, members[start:])


def _fits(graph: Graph, uses: Uses, members: list[int]) -> bool:
    """Tell whether the members are small enough for one kernel."""
    if len(members) > KERNEL_NODES or _arrays(graph, uses, members) > KERNEL_ARRAYS:
        return False
    return not is_too_much(graph, uses, members)


def is_too_much(graph: Graph, uses: Uses, members: Iterable[int]) -> bool:
    """Tell whether nodes are more than a compiler may be given at once."""
    inside = sorted(members)
    given = _given(graph, uses, inside)
    few = is_few(graph, inside, len(given))
    return not few and _work(graph, uses, inside, given) > KERNEL_WORK


def _given(graph: Graph, uses: Uses, members: list[int]) -> list[int]:
    """Return what others need of the members."""
    inside = set(members)
    return [m for m in members if m in uses.live or not inside.issuperset(uses.consumers[m])]


def _work(graph: Graph, uses: Uses, members: list[int], given: list[int]) -> float:
    """Return what a kernel of the members is for a compiler; ``given`` is what others need."""
    found = uses.works.get(key := tuple(members))
    if found is None:
        found = uses.works[key] = work_of_nodes(graph, members, given, uses.sizes)
    return found


def _turns(graph: Graph, members: list[int]) -> tuple[int, int, int] | None:
    """Return where what repeats begins among the members, how long a turn is, and how many turns
    there are; None where less than half of them repeat."""
    nodes = [graph.made_by[member] for member in members]
    alike = [
        (node.op, node.attrs, node.layout, [graph.layouts[o] for o in node.operands])
        for node in nodes
    ]
    middle = len(alike) // 2
    for length in range(1, min(middle, KERNEL_NODES) + 1):
        if alike[middle] != alike[middle - length]:
            continue
        begin, end = middle - length, middle + 1
        while begin and alike[begin - 1] == alike[begin - 1 + length]:
            begin -= 1
        while end < len(alike) and alike[end] == alike[end - length]:
            end += 1
        if end - begin >= max(2 * length, len(alike) / 2):
            return begin, length, (end - begin) // length
    return None


def _cut(graph: Graph, uses: Uses, members: list[int]) -> Iterator[list[int]]:
    """Yield runs of the members, each small enough for one kernel, cut where little crosses."""
    if len(members) < 2 or _fits(graph, uses, members):
        if members:
            yield members
        return
    work = _work(graph, uses, members, _given(graph, uses, members))
    parts = math.ceil(work / KERNEL_WORK)
    parts = max(2, parts, math.ceil(len(members) / KERNEL_NODES))
    at = _least_crossing(graph, uses, members, parts // 2 / parts)
    yield from _cut(graph, uses, members[:at])
    yield from _cut(graph, uses, members[at:])


# Of the members, how far from where they would be cut in equal parts they may be.
_WINDOW = 1 / 8


def _least_crossing(graph: Graph, uses: Uses, members: list[int], share: float) -> int:
    """Return how many of the members come first where they are cut near a share of them so that the
    fewest bytes are stored and read for it."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, member in enumerate(members):
        for operand in graph.made_by[member].operands:
            first.setdefault(operand, place)
            last[operand] = place
        first[member] = place
    made = set(members) - uses.live
    change = [0] * (len(members) + 1)
    for value, end in last.items():
        nbytes = graph.layouts[value].nbytes * (2 if value in made else 1)
        change[first[value] + 1] += nbytes
        change[end + 1] -= nbytes
    crossing = [*accumulate(change)]
    equal = share * len(members)
    near = _WINDOW * len(members)
    places = range(max(1, round(equal - near)), min(len(members) - 1, round(equal + near)) + 1)
    return min(places, key=lambda at: (crossing[at], abs(at - equal)))
