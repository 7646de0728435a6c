"""Rowwise regions: reductions and what is made of their results over the same rows, in one visit.

Fusing leaves a chain such as softmax as several regions, each of which reads or makes the whole
array. Where a row of all they touch stays in cache, they can run row by row instead, and memory is
read and written once. What makes them one is only the pattern: reductions over the same axes of one
shape, elementwise nodes over that shape, and elementwise nodes over what there is one of for a row.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Container, Hashable, Iterable

from alight._src.base.records import dataclass
from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import one_per_result, one_per_row
from alight._src.ir.op import Kind
from alight._src.plan.fuse import KERNEL_ARRAYS, KERNEL_NODES, Region, is_too_much, prune, streams
from alight._src.plan.stages import Uses

# What a row may touch to be in cache when it is visited again: the smallest L2 in use.
ROW_BYTES = 256 * 1024


def by_rows(
    graph: Graph,
    uses: Uses,
    regions: list[Region],
    generated: Container[Hashable],
    cut: Container[Hashable],
    runs: Callable[[Region], bool],
) -> list[Region]:
    """Return the regions, those made one that can run row by row, in an order in which they can
    run. Only regions whose key is in ``generated`` can, and such as whoever they are placed on
    ``runs``; those whose key is in ``cut`` share long rows among threads where these are reduced
    and no more."""
    for region in regions:
        scan = graph.made_by[region.members[0]].op.kind is Kind.SCAN
        if scan and region.key in generated:
            region.kind = GroupKind.SCAN
    if len(regions) < 2 or not any(r.kind in _LED for r in regions):
        return regions
    work = _Clusters(graph, uses, regions, cut)
    for index, region in enumerate(regions):
        if region.key not in generated:
            continue
        if region.kind in _LED:
            work.grow(index, runs)
    merged = work.merged()
    return regions if merged is None else prune(graph, uses, merged)


_LED = (GroupKind.REDUCE, GroupKind.SCAN)


def _rows(graph: Graph, region: Region) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape that a region's reductions go over, and their axes."""
    for number in region.members:
        if number in graph.axes:
            return graph.layouts[graph.made_by[number].operands[0]].shape, graph.axes[number]
    return graph.layouts[region.members[-1]].shape, ()


@dataclass(slots=True)
class _Cluster:
    """Regions to be one: the kind and rows of what they become, their numbers and members; what
    these read of others, and what others need of them, which is not found anew with each region
    that is tried: a plan of 260 nodes took half as long again."""

    kind: GroupKind
    parts: set[int]
    members: set[int]
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    reads: set[int]
    given: set[int]
    bare: bool  # a reduction among them leaves its axes out
    sound: bool = False  # its members are known to go over its rows


class _Clusters:
    """The regions as a graph, in which some are becoming one; views and writes are in it too."""

    def __init__(
        self, graph: Graph, uses: Uses, regions: list[Region], cut: Container[Hashable]
    ) -> None:
        self.graph = graph
        self.cut = cut
        self.uses = uses
        self.regions = regions
        maker = {v: i for i, region in enumerate(regions) for v in region.owned}
        self.count = len(regions)
        members = [region.members for region in regions]
        for number, node in graph.numbered:
            if node.op.kind is Kind.VIEW or node.op.kind is Kind.WRITE:
                maker[number] = len(members)
                members.append([number])
        self.readers: dict[int, set[int]] = {}
        self.after: list[set[int]] = [set() for _ in members]
        self.before: list[set[int]] = [set() for _ in members]
        for index, numbers in enumerate(members):
            for operand in self.reads(numbers):
                self.readers.setdefault(operand, set()).add(index)
                if operand in maker:
                    self.link(maker[operand], index)
        for write, readers in uses.before.items():
            for reader in readers:
                if reader in maker:
                    self.link(maker[reader], maker[write])
        self.members = members
        self.home: dict[int, _Cluster] = {}
        self.rank = self.ranked()
        # By rank, the least that what comes after may have: a part of a cluster leads back to what
        # comes after its others. It never falls from one rank to the next.
        self.lowest = list(range(len(self.rank)))
        # what a region reads of others, and what others need of it
        self.borders: dict[int, tuple[set[int], set[int]]] = {}

    def link(self, a: int, b: int) -> None:
        if a != b:
            self.after[a].add(b)
            self.before[b].add(a)

    def reads(self, numbers: Iterable[int]) -> set[int]:
        """Return what some nodes read, one another apart."""
        made_by = self.graph.made_by
        found = {o for n in numbers for o in made_by[n].operands}
        return found.difference(numbers)

    def grow(self, index: int, runs: Callable[[Region], bool]) -> None:
        """Take into a reduce region all that goes over its rows and is near it, if that ``runs``:
        else others may have its parts."""
        if index in self.home:
            return
        region = self.regions[index]
        shape, axes = _rows(self.graph, region)
        kind = GroupKind.SCAN if region.kind is GroupKind.SCAN else GroupKind.ROWWISE
        cluster = _Cluster(kind, {index}, set(), shape, axes, set(), set(), False)
        self.take(cluster, region, *self.touched(cluster, region, set(region.members)))
        # Whoever joins brings others near, and makes room for those that waited for it.
        ready = sorted(self.near(index, shape))
        turned_down: set[int] = set()
        while ready:
            other = ready.pop(0)
            if other in cluster.parts or other in self.home or other in turned_down:
                continue
            candidate = self.regions[other]
            touched = self.fits(cluster, candidate) if candidate.key == region.key else None
            if touched is None:
                turned_down.add(other)
            elif self.can_join(cluster, other):
                cluster.parts.add(other)
                self.take(cluster, candidate, *touched)
                ready = sorted({*ready, *self.near(other, shape)})
        if len(cluster.parts) > 1 and runs(self.made(cluster)):
            self.settle(cluster)

    def take(self, cluster: _Cluster, region: Region, reads: set[int], given: set[int]) -> None:
        """Make a region's members a cluster's, which then reads and gives these."""
        cluster.reads, cluster.given = reads, given
        cluster.bare = cluster.bare or any(map(self.bare, region.members))
        cluster.members = cluster.members.union(region.members)

    def touched(
        self, cluster: _Cluster, region: Region, members: set[int]
    ) -> tuple[set[int], set[int]]:
        """Return what a cluster and a region, whose ``members`` these are, read of others, and what
        others need of them."""
        known = self.borders.get(id(region))
        if known is None:
            own = set(region.members)
            known = self.reads(own), {n for n in own if self.given(n, own)}
            self.borders[id(region)] = known
        reads, given = cluster.reads | known[0], cluster.given | known[1]
        return reads - members, {n for n in given if self.given(n, members)}

    def fits(self, cluster: _Cluster, region: Region) -> tuple[set[int], set[int]] | None:
        """Return what a cluster and a region read of others, and what others need of them, where
        the region goes over the cluster's rows, and both together are not too much; else None."""
        graph, shape, axes = self.graph, cluster.shape, cluster.axes
        if not graph.rolls.keys().isdisjoint(region.members):
            return None
        if cluster.kind is GroupKind.SCAN:
            if not self.fits_scan(cluster, region):
                return None
        elif region.kind is not GroupKind.LOOP and (
            region.kind is not GroupKind.REDUCE or _rows(graph, region) != (shape, axes)
        ):
            return None
        members = cluster.members | set(region.members)
        if len(members) > KERNEL_NODES or self.reduces_again(members):
            return None
        beside: frozenset[int] | None = frozenset()
        if cluster.kind is GroupKind.ROWWISE and (
            cluster.bare or any(map(self.bare, region.members))
        ):
            beside = one_per_result(graph, shape, axes, members)
        if beside is None:
            return None
        new = members - beside
        if cluster.sound and not beside:  # what is new, and what of the others reads it
            new = set(region.members)
            readers = {c for m in region.members for c in self.uses.consumers[m]}
            new |= cluster.members & readers
        for number in new:
            node = graph.made_by[number]
            if node.op.kind is Kind.ELEMENTWISE:
                own = node.layout.shape
                if own != shape and not one_per_row(own, shape, axes):
                    return None
                for operand in members.intersection(node.operands):
                    own = graph.layouts[operand].shape
                    if own != shape and not one_per_row(own, shape, axes):
                        return None
        cluster.sound = not beside
        reads, given = self.touched(cluster, region, members)
        wide = [graph.layouts[v] for v in reads | given if graph.layouts[v].size > 1]
        if len(streams(graph, self.uses, reads | given)) > KERNEL_ARRAYS + len(given):
            return None
        # A scan goes piece by piece; of what is only reduced nothing is read again.
        if cluster.kind is not GroupKind.SCAN and not (
            region.key in self.cut and self.reduced_once(members, shape)
        ):
            length = math.prod(shape[i] for i in axes)
            rows = max(math.prod(shape) // max(length, 1), 1)
            if sum(layout.nbytes for layout in wide) > ROW_BYTES * rows:
                return None
        # last: it takes longer than all before
        return None if is_too_much(graph, self.uses, members) else (reads, given)

    def reduced_once(self, members: set[int], shape: tuple[int, ...]) -> bool:
        """Tell whether rows are only reduced: nothing of their length is given to others or made of
        what was reduced."""
        after: set[int] = set()
        for number in sorted(members):
            node = self.graph.made_by[number]
            late = not after.isdisjoint(node.operands)
            if node.op.kind is Kind.REDUCTION:
                if late:
                    return False
                after.add(number)
            elif late:
                after.add(number)
            if node.layout.shape == shape and (late or self.given(number, members)):
                return False
        return True

    def reduces_again(self, members: set[int]) -> bool:
        """Tell whether a reduction reads another's result, which looks like a row where rows have
        one element."""
        reductions = members & self.graph.axes.keys()
        made_by = self.graph.made_by
        return any(not reductions.isdisjoint(made_by[m].operands) for m in reductions)

    def bare(self, number: int) -> bool:
        """Tell whether a node is a reduction that leaves its axes out."""
        graph = self.graph
        if number not in graph.axes:
            return False
        operand = graph.made_by[number].operands[0]
        return graph.layouts[number].ndim < graph.layouts[operand].ndim

    def fits_scan(self, cluster: _Cluster, region: Region) -> bool:
        """Tell whether a region is elementwise over what a cluster scans, or a scan along the same
        axis that needs none of the others."""
        graph = self.graph
        if any(graph.layouts[m].shape != cluster.shape for m in region.members):
            return False
        if region.kind is GroupKind.SCAN:
            return self.axis(region.members[0]) == self.axis(
                next(m for m in cluster.members if self.axis(m) is not None)
            ) and not self.depends(region.members[0], cluster)
        return region.kind is GroupKind.LOOP

    def axis(self, number: int) -> int | None:
        """Return the axis of a scan, None for what is none."""
        node = self.graph.made_by[number]
        axis: int | None = node.attr("axis") if node.op.kind is Kind.SCAN else None
        return axis

    def depends(self, number: int, cluster: _Cluster) -> bool:
        """Tell whether a scan needs another scan of the cluster, or one of them needs it."""
        scans = {m for m in cluster.members if self.axis(m) is not None} | {number}
        return any(scans & self.cone(m, cluster.members | {number}) for m in scans)

    def cone(self, number: int, members: set[int]) -> set[int]:
        """Return those of the members that a value is made of."""
        found: set[int] = set()
        ready = [number]
        while ready:
            operands = members.intersection(self.graph.made_by[ready.pop()].operands)
            ready += operands - found
            found |= operands
        return found

    def given(self, number: int, members: set[int]) -> bool:
        """Tell whether others than these members need a value."""
        return number in self.uses.live or not members.issuperset(self.uses.consumers[number])

    def near(self, index: int, shape: tuple[int, ...]) -> set[int]:
        """Return the regions that read what one makes, make what it reads, or read the same
        array."""
        found = self.after[index] | self.before[index]
        for value in self.reads(self.members[index]):
            if self.graph.layouts[value].shape == shape:
                found |= self.readers.get(value, set())
        return {other for other in found if other < self.count}

    def can_join(self, cluster: _Cluster, index: int) -> bool:
        """Tell whether nothing outside has to run between the cluster and a region."""
        together = {*cluster.parts, index}
        return not self.reaches(cluster.parts, {index}, together) and not self.reaches(
            {index}, cluster.parts, together
        )

    def reaches(self, start: Collection[int], end: Collection[int], together: set[int]) -> bool:
        """Tell whether a path goes from start to end over something else."""
        rank, lowest = self.rank, self.lowest
        last = max([rank[index] for index in end])
        ready = [n for s in start for n in self.after[s] if n not in together]
        seen: set[int] = set()
        while ready:
            index = ready.pop()
            if index in end:
                return True
            if index not in seen:
                seen.add(index)
                if lowest[rank[index]] > last:
                    continue  # all that comes after it comes after the end, too
                if len(seen) > KERNEL_NODES:
                    return True  # it may: who joins is not worth a walk over a large graph
                ready += [n for n in self.after[index] if n not in start]
                whole = self.home.get(index)
                if whole is not None:  # what is one waits for all that any of its parts waits for
                    ready += [n for p in whole.parts for n in self.after[p] if n not in start]
        return False

    def ranked(self) -> list[int]:
        """Return the place of each in an order in which they can run."""
        waiting = [len(before) for before in self.before]
        ready = [index for index, count in enumerate(waiting) if not count]
        rank = [0] * len(waiting)
        for place, index in enumerate(ready):  # which grows meanwhile
            rank[index] = place
            for follower in self.after[index]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    ready.append(follower)
        return rank

    def settle(self, cluster: _Cluster) -> None:
        """Have a cluster's parts be one: who comes to one of them goes on from all."""
        self.home.update(dict.fromkeys(cluster.parts, cluster))
        places = [self.rank[part] for part in cluster.parts]
        first, lowest = min(places), self.lowest
        for place in range(first, len(lowest)):
            if lowest[place] > max(places):
                break
            lowest[place] = min(lowest[place], lowest[first])

    def merged(self) -> list[Region] | None:
        """Return the regions with the clusters made one; None if there are none."""
        if not self.home:
            return None
        leader = list(range(len(self.members)))
        for cluster in self.home.values():
            for part in cluster.parts:
                leader[part] = min(cluster.parts)
        waiting = [0] * len(leader)
        after: list[set[int]] = [set() for _ in leader]
        for a, followers in enumerate(self.after):
            for b in followers:
                if leader[a] != leader[b]:
                    after[leader[a]].add(leader[b])
        for followers in after:
            for b in followers:
                waiting[b] += 1
        ready = [i for i, own in enumerate(leader) if own == i and not waiting[i]]
        heapq.heapify(ready)
        result = []
        while ready:
            index = heapq.heappop(ready)
            if index < self.count:
                result.append(self.region(index))
            for b in after[index]:
                waiting[b] -= 1
                if not waiting[b]:
                    heapq.heappush(ready, b)
        return result

    def region(self, index: int) -> Region:
        cluster = self.home.get(index)
        if cluster is None:
            return self.regions[index]
        return self.made(cluster)

    def made(self, cluster: _Cluster) -> Region:
        """Return what a cluster becomes."""
        parts = [self.regions[p] for p in sorted(cluster.parts)]
        return Region(
            cluster.kind,
            parts[0].key,
            min(part.stage for part in parts),
            sorted(cluster.members),
            set().union(*[part.owned for part in parts]),
            [m for m in sorted(cluster.members) if self.given(m, cluster.members)],
            parts,
        )
