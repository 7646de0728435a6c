"""Loops whose plans recur, placed as one: each plan alone never pays for moving its arrays, a
thousand turns on arrays that stay over there do.

A loop is followed for a turn, weighed, and goes over when it has lost what that takes
(`plan.rent_or_buy`). All of it goes by predictions, but for copies, which are counted once it has
gone: so a program's loops go over at the same turn each time it runs, as far as no device has to be
opened for it, which another thread does meanwhile. Where kernels over there may give other bits
than those that have run here, it is the next start that goes over (`run.stored_loops`).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from alight._src.adapt import lazy_devices, planner_facts
from alight._src.base.cache_registry import Cache, forget, register
from alight._src.base.formatting import readable_seconds
from alight._src.config.policy import Policy
from alight._src.log.decisions import logger
from alight._src.plan.cycle_cost import Ring
from alight._src.plan.rent_or_buy import UNKNOWN, Switch, Turns
from alight._src.run import kernels, stored_loops
from alight._src.run.loop_entries import Entry, Input, Leaf, entry_of, latest_turn, looked_at
from alight._src.run.loop_weighing import Copied, Weighed, kept_inputs, others, weighed
from alight._src.run.plans_behind import OP_SECONDS
from alight._src.run.stored_loops import Known
from alight.backends import registry
from alight.device import Device

if TYPE_CHECKING:
    from alight._core import Value
    from alight._src.ir.graph import Graph
    from alight._src.plan.plan import Plan

__all__ = ["Loop", "State", "came", "entry_for", "rows"]

# What a loop may hold of a device's memory: the rest is for workspaces, and for what others hold.
_MEMORY_SHARE = 0.8
# Turns that come in another order than the first two, before a loop is left where it is.
_OTHER_ORDERS = 8
# Turns after a move that are not counted: the first brings the arrays, and its kernels are made.
_SETTLING = 1


class State(enum.StrEnum):
    """How far a loop has come."""

    FOLLOWED = "followed"
    WAITING = "waiting"  # until it has lost what moving takes
    OPENING = "opening"  # its device is being opened
    AWAY = "away"
    NEXT_START = "next start"
    STAYS = "stays"


class Loop:
    """Plans that recur in one order. ``turn`` has them from one on that comes least often; of one
    that an earlier start left they are None until they come."""

    def __init__(self, turn: Sequence[Entry | None], weighed: Weighed | None = None) -> None:
        self.turn = [*turn]
        self.state, self.why = State.FOLLOWED, ""
        self.weighed = weighed
        self.kept: list[frozenset[int]] = []
        self.expected: Turns = UNKNOWN
        self.switch = Switch(0.0)
        self.switched_at: list[int] = []
        self.lines: tuple[str, ...] = ()
        self.known: Known | None = None
        self._inputs: list[list[Input]] = []
        self._others = 0  # turns in another order
        self._passes = 0  # of the first plan, in this turn
        self._copied: Copied | None = None
        self._home_seconds = 0.0
        self._least_seconds = math.inf
        self.reset_at = -1  # turns it had when reports last began anew

    @staticmethod
    def found(turn: Sequence[Entry]) -> Loop:
        """Return the loop of the plans of a turn, as it was recognised."""
        counts = [turn.count(entry) for entry in turn]
        first = counts.index(min(counts))
        loop = Loop((*turn[first:], *turn[:first]))
        for entry in turn:
            entry.loop = loop
        return loop

    @staticmethod
    def left(known: Known, device: Device) -> Loop:
        """Return a loop as an earlier start left it."""
        away = tuple([there for _, _, there in known.stages])
        ring = Ring(away, known.home_seconds, known.best_seconds)
        seconds = known.moving_seconds, known.back_seconds, known.copy_seconds
        loop = Loop([None] * len(away), Weighed(device, ring, *seconds, 0, known.keeps_bits))
        loop.kept = [kept for _, kept, _ in known.stages]
        loop.known, loop.lines, loop.expected = known, known.lines, known.expected
        loop._begin()
        return loop

    @property
    def device(self) -> Device | None:
        """Return the device that it would be, or is, on."""
        return None if self.weighed is None else self.weighed.device

    def is_followed(self) -> bool:
        """Tell whether its plans are looked at as they come."""
        return self.state is State.FOLLOWED and len(self._inputs) < len(self.turn)

    def is_known(self) -> bool:
        """Tell whether there is something to say of it: what its turns take is known."""
        return self.weighed is not None or bool(self.why) or self._home_seconds > 0.0

    def counts(self) -> bool:
        """Tell whether what it loses where it is, is counted for all of its plans at once."""
        return self.state in (State.WAITING, State.OPENING, State.AWAY)

    # ------------------------------------------------------------ its plans, as they come

    def joins(self, entry: Entry, name: str) -> None:
        """Take in a request of one of the structures that an earlier start left."""
        assert self.known is not None
        entry.loop = self
        for at, (structure, _, _) in enumerate(self.known.stages):
            if structure == name:
                self.turn[at] = entry
        if self.state is State.AWAY:
            self._send()

    def comes(self, entry: Entry, values: Sequence[Value]) -> None:
        """Note that a plan of it is about to run, and move it where that is due."""
        if self.state is State.FOLLOWED:
            self._follow(entry, values)
        elif entry is self.turn[0] and self.weighed is not None:
            self._passes += 1
            if self._passes >= self.turn.count(entry):
                self._passes = 0
                if self.switch.turns and None in self.turn:
                    self._part()
                else:
                    self._turned(self.weighed)

    def _part(self) -> None:
        """Let go of requests that are not a turn of what an earlier start left, though they begin
        like one: they are followed as any others."""
        self._stay("an earlier start went on otherwise")
        for entry in self.turn:
            if entry is not None:
                entry.loop, entry.comes, entry.away = None, 0, ""
        forget(Cache.PLANS)

    def _follow(self, entry: Entry, values: Sequence[Value]) -> None:
        at = len(self._inputs)
        if at == len(self.turn):
            if entry is self.turn[0] and self._may_pay():
                self._weigh()
                self.comes(entry, values)
        elif entry is self.turn[at]:
            self._inputs.append(entry.inputs(values, self.turn))
        elif at or self._others:
            self._inputs.clear()
            self._others += 1
            if self._others > _OTHER_ORDERS:
                self._stay("its plans come in no order that recurs")

    def _lines(self) -> tuple[str, ...]:
        """Return the lines that its plans were recorded at."""
        lines = [line for entry in self.turn if entry is not None for line in entry.lines]
        return tuple(dict.fromkeys(lines))

    def _may_pay(self) -> bool:
        """Tell whether its turns have taken what making plans for other devices, and opening one,
        does: until then nothing is gained by knowing more."""
        if not self._home_seconds:
            entries = [entry for entry in self.turn if entry is not None]
            self._home_seconds = sum([entry.home_seconds() for entry in entries])
            ops = sum([len(entry.graph.nodes) for entry in entries])
            opening = min(map(lazy_devices.opening_seconds, others()), default=math.inf)
            self._least_seconds = OP_SECONDS * ops + opening
        return self._turns_before() * self._home_seconds >= self._least_seconds

    def _turns_before(self) -> int:
        """Return how many turns it took before it was weighed."""
        first = self.turn[0] if self.turn else None
        return 0 if first is None else (first.comes - 1) // self.turn.count(first)

    def _stay(self, why: str) -> None:
        self.state, self.why = State.STAYS, why
        if self.weighed is not None:  # no device is opened for it any more
            bidders = lazy_devices.bidders(self.weighed.device.id)
            bidders[:] = [switch for switch in bidders if switch is not self.switch]

    def _weigh(self) -> None:
        entries = [entry for entry in self.turn if entry is not None]
        self.lines = self._lines()
        self.kept = [kept_inputs(inputs) for inputs in self._inputs]
        if any([entry.home is None for entry in entries]):
            self._stay("one of its plans was never made for the host")
            return
        told = [weighed(entries, self._inputs, device) for device in others()]
        found = [one for one in told if one is not None and one.ring.gain_seconds > 0.0]
        self.weighed = max(found, key=lambda one: one.ring.gain_seconds, default=None)
        if self.weighed is None:
            self._stay("its plans are best where they are placed one by one")
            return
        self._begin(max(1, self._turns_before()))

    def _begin(self, turns: int = 0) -> None:
        """Begin to count what it loses where it is, with turns that have been."""
        one = self.weighed
        assert one is not None
        self.switch = Switch(one.moving_seconds, one.back_seconds, self.expected)
        if turns:
            self.switch.turn(one.ring.home_seconds, one.ring.best_seconds, turns)
        if one.needed_bytes > _MEMORY_SHARE * one.device.memory_bytes:
            self._stay(f"its arrays would take {one.needed_bytes:,} bytes of {one.device.id}")
        elif one.keeps_bits or self.known is not None:
            self.state = State.WAITING
            lazy_devices.bidders(one.device.id).append(self.switch)
        else:
            self.state = State.NEXT_START
            self.why = "its kernels there may give other bits: the next start has it there"
        _remember()

    # ------------------------------------------------------------ when it goes, and comes back

    def _turned(self, one: Weighed) -> None:
        ring = one.ring
        if self.state is State.AWAY:
            self.switch.turn(ring.home_seconds, self._took(one))
            if self.switch.is_due():
                self._move(State.WAITING)
        else:
            self.switch.turn(ring.home_seconds, ring.best_seconds)
            self.ask()

    def ask(self) -> None:
        """Have its device opened, or go there, where it is time."""
        assert self.weighed is not None
        device = self.weighed.device
        if self.state is State.OPENING and not lazy_devices.is_being_opened(device.id):
            if lazy_devices.is_unopened(device.id) or registry.open_seconds(device) is None:
                self._stay(registry.left(device.id) or f"{device.id} could not be opened")
            else:
                self.state = State.WAITING
        if self.state is not State.WAITING:
            return
        opening = lazy_devices.opening_seconds(device)
        if not lazy_devices.is_unopened(device.id):
            # Kernels are made meanwhile, once it has lost what that takes.
            early = self.switch.lost_seconds >= self.weighed.compile_seconds
            made = early and self._has_kernels(self.weighed)
            if made and self.switch.is_due(opening):
                self._move(State.AWAY)
        elif lazy_devices.is_due(device.id, opening):
            self.state = State.OPENING
            if self.weighed.keeps_bits:
                lazy_devices.open_behind(device.id)
            else:  # nothing of it has run here, and nothing of it is to
                lazy_devices.open_device(device.id)
                self.ask()

    @staticmethod
    def _has_kernels(one: Weighed) -> bool:
        """Tell whether the kernels are there that it needs over there; have them made if not."""
        if registry.open_seconds(one.device) is None:
            return True  # to ask for them would open it, on this thread
        return all([kernels.soon(one.device, group) for group in one.groups])

    def _took(self, one: Weighed) -> float:
        """Return what a turn over there took: its kernels by prediction, copies by their bytes."""
        before = self._copied
        if before is None or before.settling:
            self._copied = Copied.now(_SETTLING if before is None else before.settling - 1)
            return one.ring.best_seconds
        self._copied = now = Copied.now()
        copies = now.seconds_since(before, one.device.space)
        return one.ring.best_seconds - one.copy_seconds + copies

    def _move(self, state: State) -> None:
        one = self.weighed
        assert one is not None
        self.state, self._copied = state, None
        self.switch.move()
        self.switched_at.append(self.switch.turns)
        way = "over to" if self.switch.moved else "back from"
        logger().info(
            "the loop at %s goes %s %s at turn %d: a turn takes %.3g s here and %.3g s there, "
            "moving %.3g s, all predicted",
            *(self.lines[0] if self.lines else "an unknown place", way, one.device.id),
            *(self.switch.turns, one.ring.home_seconds, one.ring.best_seconds),
            one.moving_seconds,
        )
        self._send()
        forget(Cache.PLANS)

    def _send(self) -> None:
        """Have its plans made for where it is now."""
        one = self.weighed
        assert one is not None
        for entry, away, kept in zip(self.turn, one.ring.away, self.kept, strict=True):
            if entry is not None:
                there = away and self.state is State.AWAY
                entry.away = one.device.space if there else ""
                entry.kept = kept if there else frozenset()

    # ------------------------------------------------------------ what is told and kept of it

    def told(self) -> str:
        """Return in words where it is and why."""
        if self.why or self.weighed is None:
            took = readable_seconds(self._turns_before() * self._home_seconds)
            least = readable_seconds(self._least_seconds)
            return (
                self.why or f"its turns took {took}, planning for a device and opening it {least}"
            )
        device = self.weighed.device
        if self.state is State.OPENING:
            return f"{device.id} is being opened"
        if self.state is State.AWAY:
            turns, _, gain = self.expected
            if turns * gain > self.switch.moving_seconds:
                return f"earlier starts of {turns} turns and more paid for moving"
            return f"it had lost what moving to {device.id} takes"
        if self.switch.moves:
            return f"it came back from {device.id}: copies took more than it gained"
        needed = self.switch.moving_seconds + lazy_devices.opening_seconds(device)
        missing = readable_seconds(max(0.0, needed - self.switch.lost_seconds))
        return f"it goes to {device.id} once it has lost {missing} more"

    @property
    def turns(self) -> int:
        """Return how many turns it took."""
        return self._turns or self._turns_before()

    def row(self) -> dict[str, Any]:
        """Return what a report has of it."""
        one, switch = self.weighed, self.switch
        hindsight = switch.hindsight()
        return {
            "call_sites": [*(self.lines or self._lines())],
            "period": len(self.turn),
            "turns": self.turns,
            "state": self.state.value,
            "device": None if one is None else one.device.id,
            "here_seconds": self._home_seconds if one is None else one.ring.home_seconds,
            "there_seconds": None if one is None else one.ring.best_seconds,
            "moving_seconds": None if one is None else one.moving_seconds,
            "lost_seconds": switch.lost_seconds,
            "switched_at": [*self.switched_at],
            "seconds": hindsight.seconds,
            "best_seconds": hindsight.best_seconds,
            "regret_seconds": hindsight.regret_seconds,
            "reason": self.told(),
        }

    def left_behind(self) -> tuple[str, Known | None] | None:
        """Return what the next start is to know of it, by a name; None for what is to be
        forgotten, or where there is nothing to tell."""
        one = self.weighed
        if one is None or not self.switch.turns or self.state is State.STAYS:
            return None
        if self.known is not None:
            gone = self.switch.moves > 1
            return self.known.name, None if gone else self.known._replace(starts=(self._turns,))
        names = [None if entry is None else entry.structure() for entry in self.turn]
        stages = [
            (name, kept, away)
            for name, kept, away in zip(names, self.kept, one.ring.away, strict=True)
            if name is not None
        ]
        if len(stages) < len(names) or self.switch.moves > 1:
            return None
        name = stored_loops.name_of([name for name, _, _ in stages])
        seconds = (one.ring.home_seconds, one.ring.best_seconds, one.copy_seconds)
        moving = one.moving_seconds, one.back_seconds, one.keeps_bits
        where = one.device.id, one.device.fingerprint
        return name, Known(
            *(name, *where, tuple(stages), *seconds, *moving, self.lines, (self._turns,))
        )

    @property
    def _turns(self) -> int:
        return self.switch.turns


_loops: list[Loop] = []
# Loops that are kept to be told of: of more, those that stay where they are are let go, then the
# older half of those that are neither there nor on their way. Their plans hold those that go on.
_KEPT = 256
register(Cache.PROFILES, _loops.clear)
_remembering: list[None] = []


def _remember() -> None:
    """Have what this process learns of loops written when it ends."""
    if not _remembering and not planner_facts.asides:
        _remembering.append(None)
        stored_loops.keep_at_end(_left_behind)


def _left_behind() -> Mapping[str, Known | None]:
    told = [loop.left_behind() for loop in _loops]
    return dict([one for one in told if one is not None])


def reset() -> None:
    """Have reports tell of those alone that go on from now."""
    for loop in _loops:
        loop.reset_at = loop.turns


def rows() -> list[dict[str, Any]]:
    """Return what a report has of the loops that were weighed, those that took longest first."""
    known = [loop.row() for loop in _loops if loop.is_known() and loop.turns > loop.reset_at]
    return sorted(known, key=lambda row: -row["turns"] * (row["here_seconds"] or 0.0))


def entry_for(graph: Graph, leaves: Sequence[Leaf], read: int, policy: Policy) -> Entry | None:
    """Return what a request is known as, where another memory than the host's may have it; None
    where none may. A loop of earlier starts that it is a turn of goes where it belongs."""
    if not (policy.enabled and policy.force is None and policy.pick == "model" and others()):
        return None
    entry = entry_of(graph, leaves, read, policy.stamp)
    if entry is not None and entry.loop is None and not entry.asked and stored_loops.any_known():
        entry.asked = True
        _recall()
        name = entry.structure()
        for known in () if name is None else stored_loops.known(name):
            loop = next((one for one in _loops if one.known is known), None)
            if loop is not None:
                loop.joins(entry, name or "")
                break
    return entry


_recalled: list[None] = []
register(Cache.PROFILES, _recalled.clear)


def _recall() -> None:
    """Have the devices opened, at a program's first request, that its loops belong on."""
    if _recalled:
        return
    _recalled.append(None)
    for known in stored_loops.all_known():
        device = next((d for d in others() if _is_same(d, known)), None)
        if device is not None:
            loop = Loop.left(known, device)
            _loops.append(loop)
            loop.ask()


def _is_same(device: Device, known: Known) -> bool:
    return (device.id, device.fingerprint) == (known.device, known.fingerprint)


def _let_go() -> None:
    _loops[:] = [loop for loop in _loops if loop.state is not State.STAYS]
    going = (State.OPENING, State.AWAY)
    idle = [loop for loop in _loops if loop.state not in going and loop.known is None]
    if len(_loops) >= _KEPT // 2:
        gone = {id(loop) for loop in idle[: len(idle) // 2]}
        _loops[:] = [loop for loop in _loops if id(loop) not in gone]


def came(entry: Entry, values: Sequence[Value], plan: Plan) -> Callable[[], None] | None:
    """Note that a request is about to run on these values, and move its loop where that is due, for
    which plans are then made anew. Return what is to be done once it has run, if anything is."""
    entry.comes += 1
    if entry.loop is not None:
        entry.loop.comes(entry, values)
    else:
        if entry.looks():
            entry.inputs(values, ())
        turn = latest_turn(entry)
        if not turn and entry.is_alone():  # it comes again and again, whatever comes between
            turn = (entry,)
        if turn and all([one.loop is None for one in turn]):
            if len(_loops) >= _KEPT:  # sizes that never come again
                _let_go()
            _loops.append(Loop.found(turn))
    return looked_at(entry, values, plan) if entry.looks() else None
