"""Where each group runs: every candidate looked at, the least total seconds taken, copies
included."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from alight._src.base.hashing import short
from alight._src.base.records import dataclass, field, replace
from alight._src.ir.graph import Graph, GroupKind
from alight._src.ir.group import Group
from alight._src.ir.op import Kind, dtype_name
from alight._src.plan.assignment import Spread, least
from alight._src.plan.block import split
from alight._src.plan.order import Unit
from alight._src.plan.plan import Candidate, Estimate, Facts
from alight._src.plan.prior import doubted_products, guessed, predicted, relied_on
from alight._src.plan.stages import Uses
from alight._src.plan.workload import contraction_flops, is_contraction
from alight.device import HOST_DEVICE, Device, Reason
from alight.errors import DTypeUnsupported, UnsupportedOnDevice

if TYPE_CHECKING:
    from alight._core import Layout

ANYWHERE = "*"  # the space of a constant: it goes along with the launch


@dataclass(slots=True)
class Choice:
    """Where a unit runs and why. ``held`` are the spaces that hold each input when it starts."""

    device: str
    implementation: str
    reason: Reason
    threshold: int | None
    candidates: tuple[Candidate, ...]
    held: tuple[frozenset[str], ...]


def wanted(facts: Facts, device: str, implementation: str) -> bool:
    """Tell whether the policy's ``force`` allows this device and implementation."""
    forced_device, forced = facts.force
    if forced_device is not None and device != forced_device:
        return False
    # On the host the library is called through NumPy, so forcing NumPy means it too.
    same = implementation == forced or (
        forced == "numpy" and device == HOST_DEVICE and implementation == "library"
    )
    return forced is None or same


def choose(graph: Graph, uses: Uses, units: Sequence[Unit], facts: Facts) -> list[Choice | None]:
    """Return the choice for each unit, None for views.

    What the policy settles comes first: floors, then ``force``, then groups that lost to NumPy,
    then groups for which nothing is measured. The rest is placed for the least sum of seconds.
    """
    offers: list[_Offer | None] = [
        None if unit.group is None else _offer(unit.group, tuple(unit.nodes), facts)
        for unit in units
    ]
    spaces = {device.id: device.space for device in facts.devices}
    spaces.setdefault(HOST_DEVICE, "host")
    placed: list[str | None] = [None] * len(units)
    if any(offer is not None and offer.picked is None for offer in offers):
        placed = _place(graph, uses, units, offers, spaces, facts)
    return _walk(graph, uses, units, offers, placed, spaces, facts)


@dataclass(slots=True)
class _Offer:
    """The candidates of a group and what became of it: ``picked`` is a position in
    ``candidates``; ``unmeasured`` are the estimates of those that were not measured, ``host`` is
    NumPy's position where it is one of them; ``blind``: all are; ``modelled``:
    not all have run, so that what runs took of one is not held against what others may take."""

    candidates: list[Candidate]
    threshold: int | None
    picked: int | None
    reason: Reason
    unmeasured: Mapping[int, Estimate] = field(default_factory=dict)
    host: int | None = None
    blind: bool = False
    modelled: bool = False

    def seconds(self, position: int) -> float | None:
        """Return what a candidate is weighed by, apart from copies: what was not measured by the
        most it may take, against the least that what was measured may; NumPy, which the program
        asked for, by the least. Where nothing was measured copies decide, between equals NumPy."""
        estimate = self.candidates[position].estimate
        guess = self.unmeasured.get(position)
        if self.blind:
            return None if guess is None else 0.0 if position == self.host else _NO_SECONDS
        if guess is not None:
            return guess.low if position == self.host else guess.high
        if estimate is None:
            return None
        own = (self.modelled and estimate.model_seconds) or estimate.seconds
        beside_guesses = self.unmeasured.keys() - {self.host} and estimate.seconds
        return own * estimate.low / estimate.seconds if beside_guesses else own

    def ranked(self, position: int) -> float:
        """Return what a candidate is compared by with others in one memory."""
        if self.blind:
            return self.unmeasured[position].seconds
        own = self.seconds(position)
        return math.inf if own is None else own


def _offer(group: Group, nodes: tuple[int, ...], facts: Facts) -> _Offer:
    """Return the candidates of a group, whose values are ``nodes``; picked, where the policy or a
    lack of figures settles it."""
    threshold = _floor(group, facts)
    own = group.form.host_implementation
    candidates = _candidates(group, own, facts)
    able = [i for i, c in enumerate(candidates) if c.reason is None]
    host = next(
        (i for i, c in enumerate(candidates) if (c.device, c.implementation) == (HOST_DEVICE, own)),
        None,
    )

    def settled(picked: int, reason: Reason, others: Reason) -> _Offer:
        for i, c in enumerate(candidates):
            if i != picked and c.reason is None:
                candidates[i] = Candidate(c.device, c.implementation, None, others, c.detail)
        c = candidates[picked]
        candidates[picked] = Candidate(c.device, c.implementation, predicted(group, c, facts))
        return _Offer(candidates, threshold, picked, reason)

    def fallback() -> int:
        """Return the position of NumPy on the host, which can do everything."""
        if host is not None:
            return host
        candidates.append(Candidate(HOST_DEVICE, own, None))
        return len(candidates) - 1

    if not facts.enabled:
        return settled(fallback(), Reason.DISABLED, Reason.DISABLED)
    if host is not None and threshold is not None and _floor_elements(group) < threshold:
        return settled(host, Reason.BELOW_FLOOR, Reason.BELOW_FLOOR)
    if facts.force != (None, None):
        fitting = [
            i for i in able if wanted(facts, candidates[i].device, candidates[i].implementation)
        ]
        if not fitting:
            if facts.on_gap == "raise":
                error = _unsupported(group, candidates, facts)
                error.nodes = nodes
                try:
                    raise error
                finally:
                    del error  # it leads to this frame
            return settled(fallback(), Reason.GAP, Reason.POLICY)
        known = []
        for i in fitting if len(fitting) > 1 else ():
            c = candidates[i]
            estimate = facts.estimate(group, c.device, c.implementation)
            if estimate is None and c.device != HOST_DEVICE and group.kind is GroupKind.LIBRARY:
                estimate = guessed(group, c, facts)
            if estimate is not None:
                known.append((estimate.seconds, i))
        return settled(min(known)[1] if known else fitting[0], Reason.PINNED, Reason.POLICY)
    if not able:
        return settled(fallback(), Reason.GAP, Reason.GAP)
    if host is not None and facts.demoted and group_key(group) in facts.demoted:
        return settled(host, Reason.DEMOTED, Reason.DEMOTED)
    spots = [(candidates[i].device, candidates[i].implementation) for i in able]
    timed = None if facts.timed is None else facts.timed(group, spots)
    unmeasured: dict[int, Estimate] = {}
    for i in able:
        c = candidates[i]
        if timed is None:
            estimate = predicted(group, c, facts)
        else:
            estimate = timed[c.device, c.implementation]
        reason, detail = Reason.UNCALIBRATED if estimate is None else None, c.detail
        # Generated code of the host is no rival of NumPy by a guess.
        rival = c.device != HOST_DEVICE or i == host
        if rival and (estimate is None or not relied_on(c, estimate)):
            guess = estimate or guessed(group, c, facts)
            detail = f"{guess.source}: {guess.low:.3g} to {guess.high:.3g} s"
            unmeasured[i], reason = guess, Reason.UNCALIBRATED
            # NumPy runs what nobody knows better: what that takes is no prediction
            estimate = None if i == host else guess
        candidates[i] = Candidate(c.device, c.implementation, estimate, reason, detail)
    for i, guess in doubted_products(group, candidates, able, unmeasured).items():
        unmeasured[i] = guess
        candidates[i] = replace(candidates[i], estimate=guess, reason=Reason.UNCALIBRATED)
    if all(candidates[i].device == HOST_DEVICE for i in able) and host in unmeasured:
        return settled(host, Reason.UNCALIBRATED, Reason.UNCALIBRATED)
    blind = all([i in unmeasured or candidates[i].estimate is None for i in able])
    if host is None and blind:
        best = min(able, key=lambda i: unmeasured[i].seconds)
        return settled(best, Reason.POLICY, Reason.UNCALIBRATED)
    modelled = not all([c.estimate is None or c.estimate.runs for c in candidates])
    own_guess = host if host in unmeasured else None
    reason = Reason.CHEAPEST if own_guess is None else Reason.ALREADY_RESIDENT
    return _Offer(candidates, threshold, None, reason, unmeasured, own_guess, blind, modelled)


# What decides between memories where nothing was measured: less than any copy takes.
_NO_SECONDS = 1e-9


def _candidates(group: Group, own: str, facts: Facts) -> list[Candidate]:
    """Return every allowed device and implementation for a group, with why those ruled out are."""
    found = []
    for device in facts.devices:
        names = device.support.implementations
        if device.id == HOST_DEVICE:
            found.append(Candidate(HOST_DEVICE, own, None))
            names = tuple(name for name in names if name not in ("numpy", "library"))
        for name in names:
            reason, detail = ruled_out(group, device, name, facts)
            found.append(Candidate(device.id, name, None, reason, detail))
    return found


def ruled_out(
    group: Group, device: Device, implementation: str, facts: Facts
) -> tuple[Reason | None, str]:
    """Return why a device's implementation cannot run a group, with details; (None, "") if it
    can."""
    if device.support.dtypes:
        dtypes = {layout.dtype for layout in group.graph.inputs}
        dtypes.update([node.layout.dtype for node in group.graph.nodes])
        missing = sorted({dtype_name(dtype) for dtype in dtypes} - device.support.dtypes)
        if missing:
            return Reason.DTYPE_UNSUPPORTED, f"{device.id} has no {', '.join(missing)}"
    if (
        device.id != HOST_DEVICE
        and (needed := _nbytes(group)) > device.memory_bytes
        and (implementation != "generated" or split(group) is None)  # rows can stream through
    ):
        detail = f"{needed} bytes of inputs and results, {device.id} has {device.memory_bytes}"
        return Reason.OUT_OF_MEMORY, detail
    if (
        implementation == "generated"
        and group.kind is GroupKind.LIBRARY
        and group.form.lowered is None
    ):
        return Reason.GAP, f"{group.graph.nodes[0].op.name} is not generated"
    gap = facts.supports(device.id, implementation, group)
    return (None, "") if gap is None else (Reason.GAP, gap)


def _nbytes(group: Group) -> int:
    return sum([layout.nbytes for layout in group.graph.operand_layouts])


def _unsupported(
    group: Group, candidates: Sequence[Candidate], facts: Facts
) -> UnsupportedOnDevice:
    forced = ":".join(part for part in facts.force if part is not None)
    fitting = [c for c in candidates if wanted(facts, c.device, c.implementation)]
    why = "; ".join(dict.fromkeys(c.detail for c in fitting if c.detail)) or "it is not there"
    message = f"{operation(group)} cannot run on {forced}: {why}. Fix: on_gap='host' lets NumPy "
    if fitting and all(c.reason is Reason.DTYPE_UNSUPPORTED for c in fitting):
        return DTypeUnsupported(f"{message}do it, or pass arrays of another dtype.")
    return UnsupportedOnDevice(f"{message}do it, or force something else.")


def operation(group: Group) -> str:
    """Return the names of a group's ops in their order, shortened where there are many."""
    names = [node.op.name for node in group.graph.nodes]
    if len(names) > _NAMES_SHOWN:
        names = [*names[: _NAMES_SHOWN - 2], f"({len(names) - _NAMES_SHOWN + 1} more)", names[-1]]
    return "+".join(names)


_NAMES_SHOWN = 6  # what fits a column of a report


def group_key(group: Group) -> str:
    """Return a short key of a group: its ops with their attributes, what feeds what, and the
    layouts, since who is faster depends on all of these."""
    graph = group.graph
    text = [group.kind.value, *(_described(layout) for layout in graph.inputs)]
    for node in graph.nodes:
        text.append(f"{node.op.key}{node.operands}{node.attrs}{_described(node.layout)}")
    text.append(str(graph.outputs))
    return short("|".join(text).encode())


def _described(layout: Layout) -> str:
    return f"{layout.dtype.str}{layout.shape}{layout.strides}"


def _floor(group: Group, facts: Facts) -> int | None:
    """Return the floor of a group's class, where one is set."""
    floors = facts.floors
    if not floors:
        return None
    graph = group.graph
    if group.kind in (GroupKind.REDUCE, GroupKind.ROWWISE, GroupKind.ROW_COLUMN):
        name = "reduction"
    elif group.kind is GroupKind.LIBRARY:
        name = "matmul" if is_contraction(graph.nodes[0]) else "all"
    else:
        unary = all(len(node.operands) == 1 for node in graph.nodes)
        name = "unary" if unary else "binary"
    return floors.get(name, floors.get("all"))


def _floor_elements(group: Group) -> float:
    """Return what a floor is compared with: elements gone through, or m·k·n of a matrix product."""
    graph = group.graph
    node = graph.nodes[0]
    if group.kind is not GroupKind.LIBRARY:
        return math.prod(group.shape)
    if is_contraction(node):
        return contraction_flops(graph, node) / 2
    return max(node.layout.size, *(layout.size for layout in graph.inputs), 0)


# What a place further down the policy's list has to gain: it breaks ties and no more.
_TIE_SECONDS = 1e-12


def _place(
    graph: Graph,
    uses: Uses,
    units: Sequence[Unit],
    offers: Sequence[_Offer | None],
    spaces: Mapping[str, str],
    facts: Facts,
) -> list[str | None]:
    """Pick for each open offer the candidate of the least total; return the space of each unit."""
    working = [i for i, unit in enumerate(units) if unit.group is not None or _is_write(unit)]
    used = {host_space(facts)}
    seconds: list[dict[str, float]] = []
    best: list[dict[str, int]] = []
    for i in working:
        offer = offers[i]
        costs: dict[str, float] = {}
        picks: dict[str, int] = {}
        if offer is not None:
            for position, c in enumerate(offer.candidates):
                space = spaces[c.device]
                if offer.picked is not None:
                    if position == offer.picked:
                        costs[space] = 0.0
                elif (own := offer.seconds(position)) is not None:
                    own += facts.steps.get(c.device, facts.step_seconds)
                    costs[space] = min(own, costs.get(space, math.inf))
                    first = picks.get(space)
                    if first is None or offer.ranked(position) < offer.ranked(first):
                        picks[space] = position
        used.update(costs)
        seconds.append(costs)
        best.append(picks)
    host = host_space(facts)
    listed = list(dict.fromkeys(device.space for device in facts.devices))
    ranks = {space: listed.index(space) if space in listed else len(listed) for space in used}
    everywhere = (host, *sorted(used - {host}, key=lambda space: (ranks[space], space)))
    for costs in seconds:
        for space in costs:
            costs[space] += _TIE_SECONDS * ranks[space]
    for i, costs in zip(working, seconds, strict=True):
        if _is_write(units[i]):  # it goes where its version is: only copies count
            costs.update(dict.fromkeys(everywhere, 0.0))
    base = uses.base
    made = {base[v] for i in working for v in units[i].outputs}
    reads = [tuple(dict.fromkeys(base[v] for v in units[i].inputs)) for i in working]
    held = {
        v: spaces_of
        for v in range(len(graph.inputs))
        if ANYWHERE not in (spaces_of := held_by(facts, v)) and v not in made
    }
    known = [tuple(v for v in values if v in made or v in held) for values in reads]
    spread = Spread(
        spaces=everywhere,
        seconds=seconds,
        reads=known,
        makes=[units[i].outputs for i in working],
        held=held,
        nbytes={v: copied_bytes(graph, facts, v) for v in (*made, *held)},
        asked=frozenset(base[graph.outputs[i]] for i in facts.host_required),
        copy_seconds=facts.copy_seconds,
        caps={d.space: d.memory_bytes for d in facts.devices if d.space in everywhere[1:]},
        kept=frozenset([*held, *(base[v] for v in graph.outputs)]),
    )
    result: list[str | None] = [None] * len(units)
    places = least(spread)
    # Who would be elsewhere if there were room?
    short = bool(spread.caps) and sum(spread.nbytes.values()) > min(spread.caps.values())
    roomy = least(replace(spread, caps={})) if short else places
    for i, space, other, picks in zip(working, places, roomy, best, strict=True):
        result[i] = space
        offer = offers[i]
        if offer is not None and offer.picked is None:
            offer.picked = picks[space]
            took = [one for at in range(len(offer.candidates)) if (one := offer.seconds(at))]
            own = offer.seconds(offer.picked) or 0.0
            c = offer.candidates[offer.picked]
            chosen = c.estimate
            if offer.picked == offer.host:
                offer.reason = Reason.UNCALIBRATED
                offer.candidates[offer.picked] = Candidate(c.device, c.implementation, None)
            elif offer.picked in offer.unmeasured:
                chosen = offer.unmeasured[offer.picked]
                offer.candidates[offer.picked] = Candidate(c.device, c.implementation, chosen)
            if space != other:
                offer.reason = Reason.OUT_OF_MEMORY
            elif chosen is not None and own > min(took, default=math.inf):
                offer.reason = Reason.ALREADY_RESIDENT
            elif chosen is not None and _was_contended(offer, chosen, facts):
                offer.reason = Reason.CONTENDED
    return result


def _was_contended(offer: _Offer, chosen: Estimate, facts: Facts) -> bool:
    """Tell whether another may be as quick as who was chosen, and one of both was measured while
    other work disturbed it."""
    own, *near = [
        c.device
        for c in sorted(offer.candidates, key=lambda c: c.estimate is not chosen)
        if c.estimate is chosen or (c.estimate is not None and c.estimate.low < chosen.high)
    ]
    profiles = [facts.profiles.get(device) for device in (own, *near)] if near else []
    return any([profile is not None and profile.contended for profile in profiles])


def _is_write(unit: Unit) -> bool:
    return unit.node is not None and unit.node.op.kind is Kind.WRITE


def host_space(facts: Facts) -> str:
    """Return the name of the host's memory."""
    return next((device.space for device in facts.devices if device.id == HOST_DEVICE), "host")


def held_by(facts: Facts, number: int) -> frozenset[str]:
    """Return the spaces that hold an input; without a word on it, the host."""
    if number < len(facts.residency):
        return facts.residency[number]
    return frozenset((host_space(facts),))


def copied_bytes(graph: Graph, facts: Facts, number: int) -> int:
    """Return the bytes that bringing a value takes along: those of the memory it is a window of."""
    return facts.windows.get(number) or graph.layouts[number].nbytes


def _walk(
    graph: Graph,
    uses: Uses,
    units: Sequence[Unit],
    offers: Sequence[_Offer | None],
    placed: Sequence[str | None],
    spaces: Mapping[str, str],
    facts: Facts,
) -> list[Choice | None]:
    """Return the choices, following where each value is as the units run one after another."""
    base = uses.base
    where = {v: held_by(facts, v) for v in range(len(graph.inputs))}
    choices: list[Choice | None] = []
    for unit, offer, place in zip(units, offers, placed, strict=True):
        if offer is not None and offer.picked is not None:
            c = offer.candidates[offer.picked]
            space = spaces[c.device]
            held = tuple(where[base[v]] for v in unit.inputs)
            choices.append(
                Choice(
                    *(c.device, c.implementation, offer.reason, offer.threshold),
                    *(tuple(offer.candidates), held),
                )
            )
        elif _is_write(unit):
            old, value = (where[base[v]] for v in unit.inputs)
            space = place or _write_space(old, value, spaces, facts)
            device = next((d.id for d in facts.devices if d.space == space), HOST_DEVICE)
            choices.append(Choice(device, "", Reason.ALREADY_RESIDENT, None, (), (old, value)))
        else:
            choices.append(None)
            continue
        for v in unit.inputs:
            if ANYWHERE not in where[base[v]]:
                where[base[v]] |= {space}
        where.update(dict.fromkeys(unit.outputs, frozenset((space,))))
    return choices


def _write_space(
    old: frozenset[str], value: frozenset[str], spaces: Mapping[str, str], facts: Facts
) -> str:
    """Return the space of a write: one that holds both the old version and what is written, if any
    does."""
    host = host_space(facts)
    if ANYWHERE in old:
        old = value if ANYWHERE not in value else frozenset((host,))
    both = old if ANYWHERE in value else old & value
    fit = both or old
    forced = spaces.get(facts.force[0] or "")
    if forced in fit:
        return forced
    return host if host in fit else min(fit)
