"""What planning takes and gives: Facts in, a Plan of steps with their Decisions out. Data only."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from alight._src.base.records import dataclass, field
from alight._src.ir.group import Group
from alight.device import Device, Reason

if TYPE_CHECKING:
    from alight._core import Layout

Spot = tuple[str, str]  # device, implementation


class Source(enum.StrEnum):
    """Where an estimate comes from: curves that were measured of its class of work, or of another
    one; other rates that were measured on the same device; a table of what such devices can do."""

    MEASURED = "measured"
    BORROWED = "borrowed"
    PRIOR = "prior"
    VENDOR = "vendor table"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Predicted seconds with an 80 % interval, what they are made of, and where they come from.
    ``cell`` names the work that what real runs took is kept of (`plan.learned`), ``model_seconds``
    are what the profile alone predicts, and ``runs`` those that corrected it."""

    seconds: float
    low: float
    high: float
    terms: Mapping[str, float]
    cell: str = ""
    model_seconds: float = 0.0
    runs: int = 0
    source: Source = Source.MEASURED


def gained(own: Estimate, other: Estimate) -> float:
    """Return how much longer another takes: as runs of both show, or else by their profiles alone,
    as what one took says nothing of an other that was never seen to run."""
    if own.runs and other.runs:
        return other.seconds - own.seconds
    return (other.model_seconds or other.seconds) - (own.model_seconds or own.seconds)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One device × implementation that a group could run on; ``estimate`` is None where it is
    ruled out, and ``reason`` says why; of one that is UNCALIBRATED it is a guess."""

    device: str
    implementation: str
    estimate: Estimate | None
    reason: Reason | None = None
    detail: str = ""

    @property
    def known(self) -> Estimate | None:
        """Return the estimate, unless it is a guess at what was not measured."""
        return None if self.reason is Reason.UNCALIBRATED else self.estimate


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice with its losers. ``dtypes`` and ``shapes`` are those of the group's inputs, then
    its outputs; ``residency_in`` names, for each input, the spaces that held it. ``threshold`` is
    the floor of the group's class where one is set. ``elements`` is the size of the iteration
    space. ``in_place``: a result took the memory of an operand that died there; a plan does not
    know yet."""

    operation: str
    kind: str
    group: str
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    elements: int
    flops: float
    bytes: int
    batch: int
    residency_in: tuple[tuple[str, ...], ...]
    chosen: str
    implementation: str
    reason: Reason
    threshold: int | None
    candidates: tuple[Candidate, ...]
    in_place: bool = False

    @property
    def is_by_cost(self) -> bool:
        """Tell whether the least predicted seconds decided."""
        return self.reason in (Reason.CHEAPEST, Reason.CONTENDED)


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """Run a group. ``inputs``, ``outputs`` and ``nodes`` are value numbers of the graph given to
    make_plan (values that rewriting merged go by their first number), in the order of the group's
    own inputs, outputs and nodes. ``over`` says, by their positions, which output may take the
    memory of which input. ``passes``: its operands come from the host, its results are read there
    next, and no other step needs either on a device."""

    group: Group
    device: str
    implementation: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    decision: Decision
    nodes: tuple[int, ...] = ()
    schedule: Any = None
    over: tuple[int, int] | None = None
    passes: bool = False


@dataclass(frozen=True, slots=True)
class ViewStep:
    """Name a window of a value's bytes: no work."""

    source: int
    target: int
    layout: Layout
    offset: int


@dataclass(frozen=True, slots=True)
class WriteStep:
    """Make ``target``: ``old`` with the window (``layout``, ``offset``) set to ``value``, which
    broadcasts to it and has its dtype. Done in place where nobody else needs ``old``. It happens
    where ``device`` says. ``home`` is the input whose memory, if it is leased, is what the program
    wrote into there: in no other leased memory may it be done in place."""

    old: int
    value: int
    target: int
    layout: Layout
    offset: int
    device: str
    home: int = -1


Step = LaunchStep | ViewStep | WriteStep


@dataclass(frozen=True, slots=True)
class Refusal:
    """A fusion that was possible and not made: what it would have been, the parts that run in its
    place, and the predicted seconds of both (those of the parts with our own for each step more);
    None where not seconds spoke against it. ``nodes`` are value numbers as in LaunchStep."""

    operation: str
    parts: tuple[str, ...]
    nodes: tuple[int, ...]
    device: str
    seconds: float | None
    parts_seconds: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class UnopenedDevices:
    """What a plan lacks by not having devices that are calibrated and not open: the ``seconds`` of
    each run, predicted, against those of ``opening`` them once. ``most`` is what they can be at
    most, which is known without planning for those devices; ``seconds`` are None until they are
    planned for."""

    devices: tuple[str, ...]
    most: float
    seconds: float | None
    opening: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order they run. ``dead[i]`` are the values nobody needs after ``steps[i]``: a
    value lives as long as any view of it, so where ``steps[i]`` is a WriteStep whose ``old`` is in
    ``dead[i]``, no other value of the plan reads those bytes. ``outputs`` are in the order of the
    graph's outputs. ``refused`` are the fusions that were not made. ``skipping`` are the writes
    that follow another version than the one they were recorded after. ``unopened_devices`` is what
    it lacks by not having devices that are not open; ``entry`` is what requests of its structure
    are known as where they may be turns of a loop."""

    steps: tuple[Step, ...]
    dead: tuple[tuple[int, ...], ...]
    outputs: tuple[int, ...]
    refused: tuple[Refusal, ...] = ()
    skipping: tuple[WriteStep, ...] = ()
    unopened_devices: UnopenedDevices | None = None
    entry: Any = None


def _everything(device: str, implementation: str, group: Group) -> str | None:
    return None


def no_estimate(group: Group, device: str, implementation: str) -> Estimate | None:
    """Return None: nothing was measured."""
    return None


def _free(source: str, target: str, nbytes: int) -> float:
    return 0.0


# Until it is measured: a plan of 34 small kernels took 349 µs, one of 4 took 44 (one EPYC core); a
# launch was measured at 2 of these 10.
STEP_SECONDS = 8e-6


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a plan may depend on. ``residency[i]`` are the spaces that hold input i (constants:
    every space). ``profiles`` by device id; a device without one is uncalibrated. ``floors`` by op
    class, as the policy gave them; ``force`` is (device | None, implementation | None).
    ``demoted`` are keys of groups (``Decision.group``) that lost to NumPy. ``enabled``: not all is
    NumPy's whatever it takes.

    ``supports(device, implementation, group)`` is None or the reason of the gap; ``estimate(group,
    device, implementation)`` is None where nothing was measured; ``copy_seconds(from, to,
    nbytes)`` is between spaces. ``host_required`` are positions of outputs that the host is about
    to read. ``bases[i]`` is the first input whose memory input i is a window of (itself, if it is
    none's); ``windows`` are the inputs that are less than their memory, with its bytes, all of
    which copies take. ``learned(estimate, group, device,
    implementation)`` is an estimate as runs of such work correct it. ``timed`` is ``estimate`` of
    several candidates (device, implementation) by running them in turns: where it is given, it
    decides between them, while ``estimate`` goes on deciding what is fused. ``step_seconds`` are
    our own for one step more, its kernel apart, and ``steps`` those on devices where they are
    known.
    """

    devices: tuple[Device, ...]
    profiles: Mapping[str, Any]
    residency: tuple[frozenset[str], ...] = ()
    force: tuple[str | None, str | None] = (None, None)
    floors: Mapping[str, int] = field(default_factory=dict)
    on_gap: str = "host"
    demoted: frozenset[str] = frozenset()
    enabled: bool = True
    supports: Callable[[str, str, Group], str | None] = _everything
    estimate: Callable[[Group, str, str], Estimate | None] = no_estimate
    copy_seconds: Callable[[str, str, int], float] = _free
    host_required: frozenset[int] = frozenset()
    bases: tuple[int, ...] = ()
    windows: Mapping[int, int] = field(default_factory=dict)
    timed: Callable[[Group, Sequence[Spot]], Mapping[Spot, Estimate | None]] | None = None
    learned: Callable[[Estimate, Group, str, str], Estimate] | None = None
    step_seconds: float = STEP_SECONDS
    steps: Mapping[str, float] = field(default_factory=dict)
