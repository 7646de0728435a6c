"""What a turn of a loop would take in another memory, what moving it there takes, and whether the
results would have the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from alight._src.adapt import lazy_devices, planner_facts
from alight._src.base.records import replace
from alight._src.config.loading import current_policy
from alight._src.ir.graph import Node
from alight._src.ir.group import Group
from alight._src.ir.op import Kind
from alight._src.log.decisions import LOG
from alight._src.plan.choose import host_space
from alight._src.plan.compile_work import compile_seconds
from alight._src.plan.cycle_cost import Ring, Stage, best_ring
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Facts, LaunchStep, Plan, Spot
from alight._src.plan.plan_cost import account
from alight._src.plan.stages import Uses
from alight._src.run.loop_entries import Comes, Entry, Input, handed_on
from alight.backends import registry
from alight.device import HOST_DEVICE, Device

__all__ = ["Copied", "Weighed", "kept_inputs", "others", "weighed"]


class Weighed(NamedTuple):
    """A loop on one device: where each of its plans is best, what moving it there and back takes,
    the predicted copies of a turn there, the bytes that it needs there, and whether its results
    keep their bits. ``groups`` are those that have to be compiled there, which
    ``compile_seconds`` of the moving are for."""

    device: Device
    ring: Ring
    moving_seconds: float
    back_seconds: float
    copy_seconds: float
    needed_bytes: int
    keeps_bits: bool
    compile_seconds: float = 0.0
    groups: tuple[Group, ...] = ()


def others() -> list[Device]:
    """Return the devices beside the host that plans may be placed on by the policy in force, or may
    once they are open."""
    policy = current_policy()
    found = [d for d in registry.devices_allowed(policy) if d.id != HOST_DEVICE]
    known = planner_facts.profiles(found)
    return [
        *[device for device in found if device.id in known],
        *[one.device for one in lazy_devices.waiting(policy)],
    ]


def kept_inputs(inputs: Sequence[Input]) -> frozenset[int]:
    """Return the inputs that the turns before left where the loop is, or brought there."""
    return frozenset([one.leaf for one in inputs if one.comes is not Comes.NEW])


class _There(NamedTuple):
    """A plan of a turn in another memory."""

    plan: Plan
    stage: Stage
    copy_seconds: float
    compile_seconds: float
    groups: tuple[Group, ...]


def weighed(
    entries: Sequence[Entry], inputs: Sequence[Sequence[Input]], device: Device
) -> Weighed | None:
    """Return what the turns of a loop would take on a device, or None where it runs nothing of
    them."""
    space = device.space
    numbers = handed_on(inputs)
    nbytes: dict[int, int] = {}
    found: list[_There] = []
    homes: list[tuple[Plan, Facts]] = []
    for at, (entry, own) in enumerate(zip(entries, inputs, strict=True)):
        assert entry.home is not None
        homes.append(entry.home)
        makes = {output: number for (stage, output), number in numbers.items() if stage == at}
        found.append(_there(entry, own, device, makes, numbers))
        for output, number in makes.items():
            nbytes[number] = entry.graph.output_layouts[output].nbytes
    copy_seconds = homes[0][1].copy_seconds
    host = host_space(homes[0][1])
    ring = best_ring([one.stage for one in found], nbytes, space, copy_seconds, host)
    if not any(ring.away):
        return None
    moved: dict[int, int] = {}
    brought_back: dict[int, int] = {}
    needed: dict[int, int] = {}
    made_bytes = 0
    for at, (entry, own, away) in enumerate(zip(entries, inputs, ring.away, strict=True)):
        if not away:
            continue
        made_bytes += sum([layout.nbytes for layout in entry.graph.output_layouts])
        for one in own:
            needed[one.memory] = one.nbytes
            before = one.comes is Comes.HANDED_ON and one.stage >= at  # of the turn before
            if one.comes is Comes.SAME or before:
                moved[one.memory] = one.nbytes
            if before and ring.away[one.stage]:
                brought_back[one.memory] = one.nbytes
    there = [one for one, away in zip(found, ring.away, strict=True) if away]
    link = ring.best_seconds - sum(
        [
            (one.stage.away_seconds or 0.0) if away else one.stage.home_seconds
            for one, away in zip(found, ring.away, strict=True)
        ]
    )
    return Weighed(
        device,
        ring,
        sum([copy_seconds(host, space, size) for size in moved.values()])
        + sum([one.compile_seconds for one in there]),
        sum([copy_seconds(space, host, size) for size in brought_back.values()]),
        link + sum([one.copy_seconds for one in there]),
        sum(needed.values()) + made_bytes,
        all(
            [
                _keeps_bits(plan, one.plan)
                for (plan, _), one, away in zip(homes, found, ring.away, strict=True)
                if away
            ]
        ),
        sum([one.compile_seconds for one in there]),
        tuple(dict.fromkeys([group for one in there for group in one.groups])),
    )


def _there(
    entry: Entry,
    inputs: Sequence[Input],
    device: Device,
    makes: dict[int, int],
    numbers: Mapping[tuple[int, int], int],
) -> _There:
    """Return a plan of a turn where a device has what the turns before left."""
    assert entry.home is not None
    facts = entry.home[1]
    graph, space = entry.graph, device.space
    facts = lazy_devices.with_devices(facts, (device,))
    there = kept_inputs(inputs)
    lies = [s | {space} if n in there else s for n, s in enumerate(facts.residency)]
    more = replace(facts, residency=tuple(lies))
    other = make_plan(graph, more)
    seconds = lazy_devices.predicted_seconds(other, graph, more)
    found = account(other, graph, more, lazy_devices.nothing)
    terms = found.estimate.terms if found.estimate is not None else {}
    base = Uses(graph, facts.bases).base
    host = host_space(facts)
    # What the host makes last and a plan over there reads next crosses the link once more.
    late = sum(
        [
            facts.copy_seconds(host, space, graph.output_layouts[output].nbytes)
            for output in makes
            if space not in found.where.get(base[graph.outputs[output]], frozenset())
        ]
    )
    launches = [s for s in other.steps if isinstance(s, LaunchStep) and s.device == device.id]
    made = [step.group for step in launches if step.implementation == "generated"]
    groups = tuple(dict.fromkeys(made))
    profile = more.profiles.get(device.id)
    reads = {numbers[one.stage, one.output] for one in inputs if one.stage >= 0}
    return _There(
        other,
        Stage(
            entry.home_seconds(),
            seconds + late if launches else None,
            tuple(sorted(reads)),
            tuple(makes.values()),
        ),
        terms.get("upload", 0.0) + terms.get("download", 0.0) + late,
        sum([compile_seconds(group, profile, stored=False, first=False) for group in groups]),
        groups,
    )


def _keeps_bits(here: Plan, there: Plan) -> bool:
    """Tell whether a plan's results have the same bits by another one: each of its ops runs where
    it ran, or gives NumPy's bits wherever it runs, or is elementwise maths of ours in both."""
    own = {number: (spot, node) for number, spot, node in _nodes(here)}
    return all(
        [
            _is_exact(node)
            or (
                (found := own.get(number)) is not None
                and (found[0] == spot or (_is_ours(*found) and _is_ours(spot, node)))
            )
            for number, spot, node in _nodes(there)
        ]
    )


def _nodes(plan: Plan) -> Iterator[tuple[int, Spot, Node]]:
    for step in plan.steps:
        if isinstance(step, LaunchStep):
            spot = step.device, step.implementation
            for number, node in zip(step.nodes, step.group.graph.nodes, strict=False):
                yield number, spot, node


# Elements of a reduction that is asked for its bound: what is exact is so for any number.
_MANY = 1 << 20


# What folds to one of its elements, in any order.
_PICKS = ("maximum", "minimum", "fmax", "fmin")


def _is_exact(node: Node) -> bool:
    """Tell whether an op has NumPy's bits wherever it runs; of complex numbers few have."""
    op, kind = node.op, node.layout.dtype.kind
    if kind == "c" or op.ulp or (op.bound is not None and op.bound(_MANY)):
        return False
    if op.kind in (Kind.REDUCTION, Kind.SCAN):
        return kind != "f" or op.combine in _PICKS
    # Of a library's own ways nobody says anything: BLAS adds up in another order than a device's.
    return op.kind is not Kind.LIBRARY


def _is_ours(spot: Spot, node: Node) -> bool:
    """Tell whether an op has the bits of the host's kernels: elementwise maths has everywhere; the
    trees of reductions are the host's on CUDA, and WGSL has none."""
    device, implementation = spot
    if implementation != "generated":
        return False
    elementwise = node.op.kind is Kind.ELEMENTWISE
    return elementwise or device == HOST_DEVICE or _dialect(device) in ("", CUDA)


CUDA = "cuda"


def _dialect(device: str) -> str:
    return next((d.support.dialect for d in others() if d.id == device), "unknown")


class Copied(NamedTuple):
    """What had been copied by now, and for how many turns more that is not looked at."""

    uploads: int
    downloads: int
    upload_bytes: int
    download_bytes: int
    settling: int = 0

    @staticmethod
    def now(settling: int = 0) -> Copied:
        """Return what was copied until now."""
        return Copied(*LOG.copied(), settling)

    def seconds_since(self, before: Copied, space: str, host: str = "host") -> float:
        """Return what the copies since then are predicted to take, as if all were of one size."""
        seconds = 0.0
        for count, nbytes, way in (
            (self.uploads - before.uploads, self.upload_bytes - before.upload_bytes, (host, space)),
            (
                self.downloads - before.downloads,
                self.download_bytes - before.download_bytes,
                (space, host),
            ),
        ):
            if count > 0:
                seconds += count * planner_facts.copy_seconds(*way, nbytes // count)
        return seconds
