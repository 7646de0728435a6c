"""Profiles: what was measured of a device, and the documents they are kept in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from alight._src.base.records import dataclass, field, replace
from alight._src.plan.curve import Curve, Measured
from alight._src.plan.gemm_surface import Surface
from alight._src.plan.nearest import NearestWork, Once, nearest_curve
from alight._src.plan.profile_version import SCHEMA
from alight._src.plan.thread_scaling import all_share

# Of predictions of what was not measured, the median error past which a profile is rough: medians
# of sound profiles were 3 to 8 % on an EPYC, 11 on a Xeon, of such as were measured beside other
# work 20 to 60.
_ROUGH = 0.3
# The share of what there is to measure under which a profile is of little: beside other work a
# program's end once measured 7 %, and 24 to 27 % otherwise (EPYC, two processors).
_LITTLE = 0.125
# Tries that have a median of their own.
_TRIES = 4
# How much wider intervals are once a version of something has changed. A guess: twice as wide is
# what makes a profile that is off by its own error once more still right four times in five.
_DOUBT = 2.0


# Classes of products, which libraries share among threads of their own.
PRODUCTS = ("matmul", "dot", "matvec")


def unit_of(key: str) -> str:
    """Return what the work of the curve of a name is counted in: flops of products, bytes of all
    else."""
    return "flops" if key.partition("/")[0] in PRODUCTS else "bytes"


def floor_of(curves: Mapping[str, Curve], kind: str) -> float | None:
    """Return the seconds of a pass of a class that has next to nothing to do; None where no curve
    says. Reductions along other axes start alike."""
    like = kind.partition("_")[0]
    found = [curve.knots[0][1] for name, curve in curves.items() if name.startswith(like)]
    return min(found, default=None)


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast one implementation is on one device.

    ``curves["class/dtype"]`` gives seconds of a pass, its launch included: over what
    `unit_of` says. ``call`` is what a further node of the same group costs before it does anything,
    where nodes run one by one. ``work["op/dtype"]`` are seconds for an element (a reduction's name
    carries its class: ``max@reduce_inner``); the name ``flop`` stands for one arithmetic operation
    of an op that was not measured itself, ``special`` for such a transcendental; ``start@class``
    for the start of an inner loop, for each operand, ``short@class`` where the loop is a short one
    and ``long@class`` for an element of a nest of several (of a library's elementwise loops: of an
    operand that is copied into a buffer, which begins with ``iterator``); ``op@reduced`` for an
    element in front of a reduction;
    ``near`` and ``far`` for an element of an operand that does not go from one to the next (see
    ``runs``), ``start@near`` for one in a library's short rows, or for a lane of the vector that
    generated code leaves unfilled at the end of a row; ``op@apart`` for an element of a library's
    op where one does not go from one to the next, ``op@back`` where one goes backwards (``back``:
    of generated code, any op), ``op@still`` where one of its operands stays;
    ``turned64`` for an element of a square of that side that lies column by column, ``copied64``
    for one that a library copies into order; ``start@whole`` for the start of a loop that is
    reduced with the others into one, ``start@across`` of one whose elements lie apart,
    ``distant`` for a byte of what lies apart and comes out of memory,
    ``mean@after`` for a result that is divided once it is there;
    ``flop@beside`` for a simple op in a body with a special function, and ``special@beside`` for
    what another one takes there beyond itself, ``flop@shared`` and ``special@shared`` for what is
    left of it where all threads share the work; ``call.op`` is what the call of a library's op
    takes beyond an addition's, or a maximum's;
    ``combined@reduce_inner`` for each row but one of which all threads have parts;
    ``beside@class`` and ``torn@class`` for one of short rows that run side by side, and do not
    join, on a device of rows of seven however long they are, of places ``beside@argmax@class``;
    ``body.simple``, ``.divide``, ``.root`` and ``.scalar`` for the operations that bodies of
    generated code are made of.
    ``overlap`` is the share of the shorter of compute and memory that hides behind the longer, past
    the caches, in which all of it does.
    ``surfaces`` give seconds of matrix products by dtype, of the host's generated ones also by
    which operand lies turned (``products.turned_key``). ``sharing`` says how long compute that
    takes one thread so many seconds takes with the threads there are; None: as long.
    ``spreads`` are standard deviations of logarithms by class, ``spread`` that of the others.
    """

    launch: Measured
    call: Measured
    curves: Mapping[str, Curve]
    work: Mapping[str, Measured]
    overlap: Measured
    spread: float
    surfaces: Mapping[str, Surface] = field(default_factory=dict)
    sharing: Curve | None = None
    spreads: Mapping[str, float] = field(default_factory=dict)
    # What single nodes take and their elements, as `cost.estimate` found it.
    nodes: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    # Found once, since an estimate asks for each of its nodes: of a class and a dtype the curve, or
    # the nearest there is, with its spread; of work and a dtype the key of the nearest; of a class
    # its first curve, and the seconds of a pass with next to nothing to do.
    curve_of: Once[tuple[str, str], tuple[Curve, float] | None] = field(
        init=False, repr=False, compare=False
    )
    nearest: NearestWork = field(init=False, repr=False, compare=False)
    some: Once[str, Curve | None] = field(init=False, repr=False, compare=False)
    classes: frozenset[str] = field(init=False, repr=False, compare=False)
    floors: Once[str, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        def curve_of(asked: tuple[str, str]) -> tuple[Curve, float] | None:
            kind, dtype = asked
            return nearest_curve(self.curves, self.spreads.get(kind, self.spread), kind, dtype)

        def some(kind: str) -> Curve | None:
            found = (curve for name, curve in self.curves.items() if name.startswith(f"{kind}/"))
            return next(found, None)

        def floor(kind: str) -> float:
            return floor_of(self.curves, kind) or self.launch.value

        kinds = {name.partition("/")[0] for name in self.curves}
        if self.surfaces:
            kinds.add("matmul")
        object.__setattr__(self, "classes", frozenset(kinds))
        object.__setattr__(self, "curve_of", Once(curve_of))
        object.__setattr__(self, "nearest", NearestWork(self.work))
        object.__setattr__(self, "some", Once(some))
        object.__setattr__(self, "floors", Once(floor))

    def unit(self, name: str, dtype: str) -> float:
        """Return the seconds of that work in the dtype, or in the nearest in which it was measured;
        none where it was not."""
        key = self.nearest[name, dtype]
        return self.work[key].value if key is not None else 0.0

    def noisier(self, more: float) -> Rates:
        """Return the same rates with that standard deviation more, in logarithms."""
        spreads = {name: math.hypot(spread, more) for name, spread in self.spreads.items()}
        return replace(self, spread=math.hypot(self.spread, more), spreads=spreads)

    def to_dict(self) -> dict[str, Any]:
        """Return the rates as a document."""
        return {
            "launch": self.launch.to_dict(),
            "call": self.call.to_dict(),
            "curves": {name: curve.to_dict() for name, curve in self.curves.items()},
            "work": {name: number.to_dict() for name, number in self.work.items()},
            "overlap": self.overlap.to_dict(),
            "spread": self.spread,
            "surfaces": {name: item.to_dict() for name, item in self.surfaces.items()},
            "sharing": None if self.sharing is None else self.sharing.to_dict(),
            "spreads": dict(self.spreads),
        }

    def widened(self, factor: float) -> Rates:
        """Return the same rates with their intervals wider by a factor."""
        spreads = {name: factor * spread for name, spread in self.spreads.items()}
        return replace(self, spread=factor * self.spread, spreads=spreads)

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Rates:
        """Return the rates a document describes."""
        return Rates(
            Measured.from_dict(document["launch"]),
            Measured.from_dict(document["call"]),
            {name: Curve.from_dict(item) for name, item in document["curves"].items()},
            {name: Measured.from_dict(item) for name, item in document["work"].items()},
            Measured.from_dict(document["overlap"]),
            document["spread"],
            {name: Surface.from_dict(item) for name, item in document["surfaces"].items()},
            None if document["sharing"] is None else Curve.from_dict(document["sharing"]),
            dict(document["spreads"]),
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured of one device. ``origin``: measured, imported, or
    recorded (a simulated device).

    ``links["upload"]``, ``["download"]``, ``["device"]`` give seconds over bytes; the host has
    none. ``one_offs`` are seconds spent once (see ``compile_seconds``), and what it takes to share
    a kernel with threads that spin (``join``) or sleep (``wake``).
    ``validation`` holds the error on sizes that were not measured; ``measured`` in it is the share
    of what there is to measure where time ran out, ``slow`` the share that was met in slow moments
    alone and is left out, ``left_out_library`` the error of that implementation's products where it
    is so large that they are, ``before`` how many points earlier calibrations had measured, and
    ``new`` how many this one did. ``complete`` is false where time ran out, ``contended`` true
    where other work disturbed the measuring, so that intervals are wider. ``pace_seconds`` is what
    the host's processor took at best meanwhile for what `measure.timing.Pace` times, None where
    nobody knows. ``doubts`` say what disturbed it, or what has changed since: they are of this
    process and no part of the document.
    """

    device: str
    rates: Mapping[str, Rates]
    links: Mapping[str, Curve] = field(default_factory=dict)
    one_offs: Mapping[str, Measured] = field(default_factory=dict)
    origin: str = "measured"
    path: str | None = None
    made_at: float = 0.0
    made_seconds: float = 0.0
    validation: Mapping[str, float] = field(default_factory=dict)
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True
    contended: bool = False
    pace_seconds: float | None = None
    schema: int = SCHEMA
    doubts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as a document; where it is stored is not part of it."""
        return {
            "device": self.device,
            "rates": {name: rates.to_dict() for name, rates in self.rates.items()},
            "links": {name: curve.to_dict() for name, curve in self.links.items()},
            "one_offs": {name: number.to_dict() for name, number in self.one_offs.items()},
            "origin": self.origin,
            "made_at": self.made_at,
            "made_seconds": self.made_seconds,
            "validation": dict(self.validation),
            "fingerprint": dict(self.fingerprint),
            "complete": self.complete,
            "contended": self.contended,
            "pace_seconds": self.pace_seconds,
            "schema": self.schema,
        }

    @staticmethod
    def from_dict(document: Mapping[str, Any], path: str | None = None) -> Profile:
        """Return the profile a document describes; ValueError where its schema is another."""
        if document.get("schema") != SCHEMA:
            raise ValueError(
                f"a profile of schema {document.get('schema')!r} where {SCHEMA} is understood. "
                "Fix: calibrate again."
            )
        fields = {name: document[name] for name in _FIELDS}
        fields["links"] = {n: Curve.from_dict(item) for n, item in document["links"].items()}
        fields["one_offs"] = {
            name: Measured.from_dict(item) for name, item in document["one_offs"].items()
        }
        rates = {name: Rates.from_dict(item) for name, item in document["rates"].items()}
        fields["rates"] = undisturbed(rates, fields["one_offs"])
        # older documents have none
        return Profile(path=path, pace_seconds=document.get("pace_seconds"), **fields)

    @property
    def tried(self) -> float | None:
        """Return the median error of its predictions; None where too few were tried."""
        if self.validation.get("shapes", 0.0) < _TRIES:
            return None
        return self.validation.get("median_error")

    @property
    def rough(self) -> bool:
        """Tell whether its predictions are far off: it is used for want of a better one."""
        return (self.tried or 0.0) > _ROUGH

    @property
    def share(self) -> float:
        """Return how much was measured of what there is to measure."""
        return self.validation.get("measured", 1.0)

    @property
    def little(self) -> bool:
        """Tell whether so little was measured that a second more should show much more."""
        return self.share < _LITTLE

    @property
    def sound(self) -> bool:
        """Tell whether enough was measured, undisturbed, and what it predicts was tried and is not
        rough."""
        return self.tried is not None and not (self.rough or self.little or self.contended)

    @property
    def covered(self) -> float:
        """Return the share of what there is to measure that it predicts by: without what was left
        out since it was met in slow moments alone."""
        return self.share * (1.0 - self.validation.get("slow", 0.0))

    @property
    def rank(self) -> tuple[int, bool, float]:
        """Return what is less for a better profile of the same device that covers as much, and as
        much for one as good: one that was tried, undisturbed and is not rough comes first, one that
        was not tried last."""
        broken_off = not self.complete and "measured" not in self.validation
        error = self.tried
        if error is None:
            return 2, broken_off, 0.0
        worse = self.rough or self.contended
        return (1, broken_off, error) if worse else (0, broken_off, 0.0)

    def doubted(self, doubts: Iterable[str]) -> Profile:
        """Return the same profile, sure of less for these reasons."""
        rates = {name: found.widened(_DOUBT) for name, found in self.rates.items()}
        return replace(self, rates=rates, doubts=tuple(doubts))

    def stored_at(self, path: str) -> Profile:
        """Return the same profile with the place where it is stored."""
        return replace(self, path=path)


# Classes that stream through memory by as many threads as pay.
_STREAMS = ("elementwise", "negate", "reduce_inner", "reduce_outer")


def undisturbed(rates: Mapping[str, Rates], one_offs: Mapping[str, Measured]) -> dict[str, Rates]:
    """Return the rates of a device, those of generated code without what was in the way of its
    streams where all threads take part: one that came late, or a launcher that had settled on too
    few. With 16 threads (Xeon) maxima of 4 MiB once took 15.2 us beside 15.4 for 8 MiB, and 9.7 in
    two other profiles; of additions of 3 and 6 MiB, all of which lie in the second-level caches,
    one in two did.

    All take part where they end before half of them do: what meeting them takes more is then no
    more than what they save, which is as much, so that a call takes twice what all meeting takes
    but for what half do, halfway between one other and all. And no sooner than they were seen to,
    since what they share lies in one another's caches (two threads of an EPYC meet in 0.24 us, and
    share from 2 us on).
    """
    found = dict(rates)
    own, join = rates.get("generated"), one_offs.get("join")
    if own is not None and own.sharing is not None and join is not None:
        pair = one_offs.get("join_pair", join)
        seconds = own.launch.value + max(
            2 * join.value - (join.value + pair.value) / 2, all_share(own.sharing)
        )
        curves = {
            name: curve.undisturbed(seconds) if name.partition("/")[0] in _STREAMS else curve
            for name, curve in own.curves.items()
        }
        found["generated"] = replace(own, curves=curves)
    return found


# The fields that every document has, of those of ``to_dict``.
_FIELDS = (
    *("device", "rates", "links", "one_offs", "origin", "made_at", "made_seconds", "validation"),
    *("fingerprint", "complete", "contended", "schema"),
)
