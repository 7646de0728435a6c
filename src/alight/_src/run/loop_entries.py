"""What recurs: requests by their structure, wherever their arrays lie, and what each turn of a loop
hands to the next.

Only where another memory could have the work is anything noted. A request that came before is
looked at as it runs: which of its inputs a plan of the same loop made, which are the same as the
last time, which are new. That ends when its loop has been weighed, or was not found.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary, ref

from alight._core import Data, Layout, Value
from alight._src.adapt import lazy_devices
from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import failures
from alight._src.base.records import dataclass, field, replace
from alight._src.ir.graph import Graph
from alight._src.log.decisions import place_of
from alight._src.plan.plan import Facts, Plan
from alight._src.plan.rent_or_buy import Recurrence
from alight._src.run import stored_loops

if TYPE_CHECKING:
    from alight._src.run.loop_placement import Loop

__all__ = ["Comes", "Entry", "Input", "entry_of", "looked_at"]

# An input of a request as its key has it (`evaluate.Leaf`).
Leaf = tuple[Layout, frozenset[str], int, int]

# A request that came so often in no order that recurs is taken for a loop of its own.
_LOOKS = 8
# Results of which it is known who made them, before those that are gone are let go.
_MADE = 4096


class Comes(enum.Enum):
    """How an input of a plan that recurs comes to be."""

    NEW = enum.auto()  # each turn has another one, which no plan of the loop made
    SAME = enum.auto()
    HANDED_ON = enum.auto()  # a plan of the loop made it


class Input(NamedTuple):
    """An input of a plan that recurs, the memory it is in by a number of its own, and which plan of
    the turn made it as which of its outputs, where one did."""

    leaf: int
    comes: Comes
    memory: int
    nbytes: int
    stage: int = -1
    output: int = -1


class _Referred:
    __slots__ = ("__weakref__",)


@dataclass(slots=True, eq=False)
class Entry(_Referred):
    """Requests of one structure. ``home`` is their plan where nothing was moved for them; ``away``
    is the memory that they are placed in as a turn of a loop, which has then or will have their
    inputs ``kept``."""

    graph: Graph
    leaves: tuple[Leaf, ...]
    read: int
    home: tuple[Plan, Facts] | None = None
    comes: int = 0
    loop: Loop | None = None
    away: str = ""
    kept: frozenset[int] = frozenset()
    asked: bool = False  # whether earlier starts left a loop of it
    lines: tuple[str, ...] = ()
    _inputs: dict[int, ref[Data]] = field(default_factory=dict)

    def placed(self, facts: Facts) -> Facts:
        """Return the facts of a request, those of a turn where it is one: what the turns before
        left in their memory is there."""
        if not self.away or all([device.space != self.away for device in facts.devices]):
            return facts
        there = frozenset((self.away,))
        lies = [s | there if n in self.kept else s for n, s in enumerate(facts.residency)]
        return replace(facts, residency=tuple(lies))

    def planned(self, plan: Plan, facts: Facts) -> Plan:
        """Return a plan that was just made, as that of a request of this structure."""
        plan = replace(plan, entry=self)
        if not self.away:
            self.home = plan, facts
        return plan

    @property
    def is_turn(self) -> bool:
        """Tell whether it is counted as a turn of a loop, and not alone."""
        return self.loop is not None and self.loop.counts()

    def looks(self) -> bool:
        """Tell whether what comes of it is to be looked at."""
        if self.loop is None:
            return 1 < self.comes <= _LOOKS
        return self.loop.is_followed()

    def home_seconds(self) -> float:
        """Return what it is predicted to take where it was first placed."""
        if self.home is None:
            return 0.0
        plan, facts = self.home
        return lazy_devices.predicted_seconds(plan, self.graph, facts)

    def structure(self) -> str | None:
        """Return what later processes know such requests by."""
        return stored_loops.structure(self.graph, self.leaves, self.read)

    def is_alone(self) -> bool:
        """Tell whether it came often, and in no order that recurs."""
        return self.comes == _LOOKS

    def inputs(self, values: Sequence[Value], turn: Sequence[Entry | None]) -> list[Input]:
        """Return how its inputs come to be, as values that a request is about to run on; ``turn``
        are the plans of its loop."""
        found = []
        if not self.lines:
            sites = {value.site for value in values[len(self.leaves) :]}
            self.lines = tuple(sorted({place for s in sites if (place := place_of(s))}, key=_line))
        for number in range(len(self.leaves)):
            data = values[number].data
            if data is None:
                continue
            made = _here.made.get(id(data))
            before = self._inputs.get(number)
            if made is not None and made.data() is data:
                maker = made.entry()
                stages = [at for at, entry in enumerate(turn) if entry is maker is not None]
                if stages:
                    known = id(data), data.nbytes, stages[-1], made.output
                    found.append(Input(number, Comes.HANDED_ON, *known))
                    continue
            same = before is not None and before() is data
            comes = Comes.SAME if same else Comes.NEW
            found.append(Input(number, comes, id(data), data.nbytes))
        for number in range(len(self.leaves)):
            data = values[number].data
            if data is not None:
                self._inputs[number] = ref(data)
        return found


def _line(place: str) -> tuple[str, int]:
    """Return what places are ordered by."""
    path, _, line = place.replace(", line ", ":").rpartition(":")
    return path, int(line) if line.isdigit() else 0


class _Made(NamedTuple):
    """Whose result some bytes are."""

    data: ref[Data]
    entry: ref[Entry]
    output: int


class _Here(threading.local):
    """What a thread asked for last: loops are a thread's own."""

    def __init__(self) -> None:
        self.recurrence = Recurrence()
        self.made: dict[int, _Made] = {}


_here = _Here()
# Plans hold them, and loops: what neither does never comes again.
_entries: WeakValueDictionary[object, Entry] = WeakValueDictionary()
register(Cache.PROFILES, _entries.clear)
register(Cache.OPS, _entries.clear)


def entry_of(graph: Graph, leaves: Sequence[Leaf], read: int, stamp: int) -> Entry | None:
    """Return what requests of this structure are known as under this policy; None for those that
    cannot be told from others."""
    told = tuple([(layout, base, nbytes) for layout, _, base, nbytes in leaves])
    key = (graph.nodes, graph.outputs, told, read, stamp)
    try:
        found = _entries.get(key)
    except failures(TypeError):  # an attribute without a hash
        return None
    if found is None:
        found = _entries[key] = Entry(graph, tuple(leaves), read)
    return found


def latest_turn(entry: Entry) -> tuple[Entry, ...]:
    """Note that a request comes; return the requests of the latest turn where it ends the second of
    two equal ones."""
    turn: tuple[Entry, ...] = _here.recurrence.add(entry)  # type: ignore[assignment]
    return turn


def looked_at(entry: Entry, values: Sequence[Value], plan: Plan) -> Callable[[], None]:
    """Return what notes, once a request has run, whose results its outputs are. It holds none of
    them: what nobody else holds may be written over."""
    outputs = [ref(values[number]) for number in plan.outputs]
    made, maker = _here.made, ref(entry)

    def ran() -> None:
        if len(made) > _MADE:
            for old in [old for old, one in made.items() if one.data() is None]:
                del made[old]
        for output, reference in enumerate(outputs):
            value = reference()
            if value is not None and (data := value.data) is not None:
                made[id(data)] = _Made(ref(data), maker, output)

    return ran


def handed_on(inputs: Sequence[Sequence[Input]]) -> Mapping[tuple[int, int], int]:
    """Return a number for each output (stage, output) that plans of a turn hand on."""
    pairs = [(one.stage, one.output) for stage in inputs for one in stage if one.stage >= 0]
    return {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
