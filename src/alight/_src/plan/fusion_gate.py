"""Which regions run as one: those whose one kernel is predicted to take less than their parts.

Fusing makes regions as large as whoever runs them allows, because a value that stays inside a
kernel costs no traffic. Mostly that pays. It does not where one op has no fast form in the only
implementation that could take them all, or where what a reduction reads is better made by another
kernel: then the region is cut, and the plan keeps what was refused and by how much. A reduction and
what it reads, by whom both would be made anyway, is cut only where the profile is sure of it: more
bytes move, and what speaks for that is a difference of two curves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from alight._src.ir.graph import GROUP_KINDS, Graph, GroupKind
from alight._src.plan.choose import operation, ruled_out, wanted
from alight._src.plan.fuse import LEAST_GAIN_SECONDS, Region, group_of, halves, prune
from alight._src.plan.plan import Estimate, Facts, Refusal, no_estimate
from alight._src.plan.stages import Uses
from alight.device import HOST_DEVICE

if TYPE_CHECKING:
    from alight._src.ir.group import Group

# By how much a region has to take less than its parts so that this holds for all sizes that are cut
# as one (`plan.size_classes`), which tells them within a factor of two.
CLEAR = 2.0


class Gated(NamedTuple):
    """The regions that are left, what was refused, and whether nothing was, by far."""

    regions: list[Region]
    refused: list[Refusal]
    clear: bool


def gated(graph: Graph, uses: Uses, regions: list[Region], facts: Facts) -> Gated:
    """Return the regions, those cut that take longer as one than as their parts. Each region's key
    is the (device, implementation) that it was placed on."""
    if facts.estimate is no_estimate:
        return Gated(regions, [], True)
    gate = _Gate(graph, uses, facts)
    result: list[Region] = []
    for region in regions:
        result += gate.passed(region)
    if gate.refused:
        result = prune(graph, uses, result)
    return Gated(result, gate.refused, gate.clear and not gate.refused)


class _Gate:
    def __init__(self, graph: Graph, uses: Uses, facts: Facts) -> None:
        self.graph = graph
        self.uses = uses
        self.facts = facts
        self.devices = {device.id: device for device in facts.devices}
        self.refused: list[Refusal] = []
        self.clear = True

    def passed(self, region: Region) -> list[Region]:
        """Return a region, or its parts where these are predicted to take less."""
        key = region.key
        if len(region.members) < 2 or not isinstance(key, tuple) or key[0] not in self.devices:
            return [region]
        device = key[0]
        whole, by = self.best(region, device)
        if whole is None:
            return [region]
        found: tuple[float, list[Region], str] | None = None
        for parts, why in self.cuts(region, device, by):
            # What is computed anew in each part can leave one of them as large as the whole.
            if max(len(part.members) for part in parts) == len(region.members):
                continue
            seconds, makers = self.together(parts, device)
            sure = region.kind is GroupKind.REDUCE and makers == {by}
            most = whole.low if sure else whole.seconds + LEAST_GAIN_SECONDS
            self.clear = self.clear and seconds > CLEAR * most
            if seconds <= most and (found is None or seconds < found[0]):
                found = seconds, parts, why
        if found is None:
            return [region]
        seconds, parts, why = found
        self.refused.append(
            Refusal(
                operation=operation(self.group(region)),
                parts=tuple(
                    [operation(group_of(self.graph, self.uses, part)[0]) for part in parts]
                ),
                nodes=tuple(region.members),
                device=device,
                seconds=whole.seconds,
                parts_seconds=seconds,
                reason=why,
            )
        )
        return [piece for part in parts for piece in self.passed(part)]

    def best(self, region: Region, device: str) -> tuple[Estimate | None, str]:
        """Return the least estimate of a region on a device, and whose it is."""
        group = self.group(region)
        where = self.devices[device]
        names = where.support.implementations
        if device == HOST_DEVICE:
            own = group.form.host_implementation
            names = (own, *[name for name in names if name not in ("numpy", "library")])
        if self.facts.force != (None, None):  # who may not run it says nothing of it
            names = tuple([name for name in names if wanted(self.facts, device, name)])
        best: Estimate | None = None
        by = ""
        for name in names:
            if ruled_out(group, where, name, self.facts)[0] is None:
                estimate = self.facts.estimate(group, device, name)
                if estimate is not None and (best is None or estimate.seconds < best.seconds):
                    best, by = estimate, name
        return best, by

    def group(self, region: Region) -> Group:
        return group_of(self.graph, self.uses, region)[0]

    def together(self, parts: Sequence[Region], device: str) -> tuple[float, set[str]]:
        """Return the seconds of parts one after another, the steps that are more included, and who
        makes them; infinity where one is unknown."""
        total = self.facts.steps.get(device, self.facts.step_seconds) * (len(parts) - 1)
        makers = set()
        for part in parts:
            estimate, by = self.best(part, device)
            total += math.inf if estimate is None else estimate.seconds
            makers.add(by)
        return total, makers

    def cuts(self, region: Region, device: str, by: str) -> Iterator[tuple[list[Region], str]]:
        """Yield the parts a region may be cut into, and what would speak for it."""
        if region.kind is not GroupKind.LOOP:
            # Another kernel for what is reduced: its class of work has a curve of its own.
            parts = [self.outlined(part) for part in halves(self.graph, region)]
            yield [part for part in parts if part.members], "its parts take less than the whole"
        fits = region.kind in (GroupKind.LOOP, GroupKind.REDUCE)
        if (
            fits
            and by != "generated"
            and "generated" in self.devices[device].support.implementations
        ):
            labels = {m: self.best(self.alone(region, m), device)[1] for m in region.owned}
            if "generated" in labels.values():
                yield (
                    self.runs(region, labels),
                    f"an op that {by} is best at would keep the others from generated code",
                )

    def alone(self, region: Region, number: int) -> Region:
        """Return one member as a region of its own."""
        return self.part(region, [number], [])

    def part(self, region: Region, owned: list[int], again: Sequence[int]) -> Region:
        """Return members of one kind as a region that computes what it needs of ``again`` anew."""
        node = self.graph.made_by[owned[0]]
        kind = GROUP_KINDS.get(node.op.kind, region.kind)
        return self.outlined(
            Region(kind, region.key, region.stage, sorted({*owned, *again}), {*owned})
        )

    def runs(self, region: Region, labels: Mapping[int, str]) -> list[Region]:
        """Return the owned members in runs of one kind and label, in program order: such runs wait
        for one another in one direction only."""
        again = [m for m in region.members if m not in region.owned]
        keyed = groupby(sorted(region.owned), lambda m: (self.graph.made_by[m].op.kind, labels[m]))
        return [self.part(region, list(run), again) for _, run in keyed]

    def outlined(self, part: Region) -> Region:
        """Return a part with the outputs that others need of it and without what nobody needs."""
        inside = set(part.members)
        part.outputs = [
            m
            for m in part.members
            if m in part.owned
            and (m in self.uses.live or not inside.issuperset(self.uses.consumers[m]))
        ]
        wanted = set(part.outputs)
        for number in reversed(part.members):
            if number in wanted:
                wanted.update(self.graph.made_by[number].operands)
        part.members = [m for m in part.members if m in wanted]
        part.owned.intersection_update(part.members)
        return part
