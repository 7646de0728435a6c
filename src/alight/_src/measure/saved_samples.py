"""What calibrations of a device timed, for the next to go on from.

One that had too little time, or met slow moments for most of it, leaves what it has: the next one
measures what is not known yet, and looks at the rest again with the time that is left, at what was
met in slow moments alone first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from alight._src.base.failures import failures
from alight._src.base.records import dataclass, field, replace
from alight._src.measure.profiles import OLD_SECONDS, code_fingerprint, fingerprint, profile_key
from alight._src.measure.samples import Samples
from alight._src.plan.curve import Measured
from alight._src.store import default_store, digest

if TYPE_CHECKING:
    from alight._src.store import Document
    from alight.device import Device

__all__ = ["Kept", "keep", "load"]

KIND = "timings"
# Folders of the package that make, place, run or time a group.
_MEASURED_BY = (
    "_core",
    "_src/codegen",
    "_src/ir",
    "_src/measure",
    "_src/plan",
    "backends",
)
# Of one point, the newest: as many as the ten visits give that a calibration makes of one at most.
_MOST_SAMPLES = 20

# By implementation, what the timings are of, and amount.
Timings = Mapping[str, Mapping[str, Mapping[float, list[float]]]]


@dataclass(frozen=True, slots=True)
class Kept:
    """Samples, in seconds, of calibrations that went on from one another: undisturbed ones, and of
    points without any those of ``slow`` moments.

    ``since``: when the first of them ended; ``anew``: they are not to be joined with what was there
    before; ``pace_seconds``: see `timing.Pace`; ``compiled`` kernels were behind ``one_offs``, what
    compiling takes.
    """

    since: float
    anew: bool = False
    pace_seconds: float = math.inf
    compiled: int = 0
    one_offs: Mapping[str, Measured] = field(default_factory=dict)
    timings: Timings = field(default_factory=dict)
    slow: Timings = field(default_factory=dict)

    def samples(self, implementation: str, key: str, amount: float) -> list[float]:
        """Return the samples of a point; none where it was not timed."""
        return self.timings.get(implementation, {}).get(key, {}).get(amount, [])

    def slow_samples(self, implementation: str, key: str, amount: float) -> list[float]:
        """Return the samples of a point that was met in slow moments alone; none of others."""
        return self.slow.get(implementation, {}).get(key, {}).get(amount, [])

    @property
    def count(self) -> int:
        """Return of how many points there are samples."""
        every = (*self.timings.values(), *self.slow.values())
        return sum([len(points) for of in every for points in of.values()])

    def with_samples(self, samples: Mapping[str, Samples]) -> Kept:
        """Return the same with all of these, which hold its own as well."""
        steady, slow = (
            {
                name: {key: of for key, found in known.by_key.items() if (of := _met(found, quick))}
                for name, known in samples.items()
            }
            for quick in (True, False)
        )
        return replace(self, timings={**self.timings, **steady}, slow={**self.slow, **slow})

    def slowed(self) -> Kept:
        """Return the same where all of it turns out to have been slow."""
        slow = {
            name: {
                key: {
                    **self.slow.get(name, {}).get(key, {}),
                    **self.timings.get(name, {}).get(key, {}),
                }
                for key in {**self.slow.get(name, {}), **self.timings.get(name, {})}
            }
            for name in {**self.slow, **self.timings}
        }
        return replace(self, timings={}, slow=slow)


def _met(found: Mapping[float, Any], steady: bool) -> dict[float, list[float]]:
    return {
        amount: sample.seconds[-_MOST_SAMPLES:]
        for amount, sample in found.items()
        if sample.steady is steady
    }


def load(device: Device) -> Kept | None:
    """Return what earlier calibrations of a device left, by the same versions of everything; None
    where there is nothing, or nothing of the last 30 days. What no calibration can have left is put
    aside, with a warning."""
    store, key = default_store(), _key(device)
    document = store.read(KIND, key)
    if document is None or document.get("of") != _made_of(device):
        return None
    try:
        found = _from_document(document)
    except failures(KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"it holds no timings ({type(error).__name__}: {error}). Fix: alight calibrate."
        store.put_aside(KIND, key, ValueError(why))
        return None
    return found if 0.0 <= time.time() - found.since < OLD_SECONDS else None


def keep(device: Device, found: Kept) -> None:
    """Store what was found, with what others found meanwhile who went on from the same."""
    document = {"of": _made_of(device), **_to_document(found)}
    default_store().write(KIND, _key(device), document, _joined)


def _key(device: Device) -> str:
    return profile_key(fingerprint(device))


def _made_of(device: Device) -> str:
    """Return a digest of all that samples depend on: versions, and what makes and runs a group."""
    code = code_fingerprint(device, *_MEASURED_BY)
    return digest([fingerprint(device), code], KIND)


def _to_document(found: Kept) -> Document:
    return {
        "since": found.since,
        "anew": found.anew,
        "pace_seconds": found.pace_seconds if found.pace_seconds < math.inf else None,
        "compiled": found.compiled,
        "one_offs": {name: number.to_dict() for name, number in found.one_offs.items()},
        **{
            kind: {
                name: {
                    key: [[amount, [*map(_six_digits, seconds)]] for amount, seconds in of.items()]
                    for key, of in known.items()
                }
                for name, known in timings.items()
            }
            for kind, timings in (("timings", found.timings), ("slow", found.slow))
        },
    }


def _six_digits(seconds: float) -> float:
    return float(f"{seconds:.6g}")


def _from_document(document: Document) -> Kept:
    """Return what a document holds; one of many errors where nothing can be like it."""
    pace = document["pace_seconds"]
    timings, slow = (
        {
            name: {
                key: {_positive(amount): [*map(_positive, seconds)] for amount, seconds in of}
                for key, of in known.items()
            }
            for name, known in document[kind].items()
        }
        for kind in ("timings", "slow")
    )
    one_offs = document["one_offs"].items()
    return Kept(
        since=_positive(document["since"]),
        anew=bool(document["anew"]),
        pace_seconds=math.inf if pace is None else _positive(pace),
        compiled=int(document["compiled"]),
        one_offs={name: _measured(number) for name, number in one_offs},
        timings=timings,
        slow=slow,
    )


def _measured(number: Document) -> Measured:
    found = Measured.from_dict(number)
    for one in (found.value, found.low, found.high):
        _positive(one)
    return found


def _positive(number: Any) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
        raise ValueError(f"{number!r} where a positive number is wanted")
    return float(number)


def _joined(old: Document, new: Document) -> Document:
    """Return the document to keep of two: the new one, with the points that it lacks, unless one of
    them began anew."""
    try:
        if old["of"] != new["of"] or (new["anew"] and new["since"] > old["since"]):
            return new
        if old["anew"] and old["since"] > new["since"]:
            return old
        new["since"] = min(new["since"], old["since"])
        for kind in ("timings", "slow"):
            for name, known in old[kind].items():
                for key, points in known.items():
                    there = {
                        amount
                        for found in (new["timings"], new["slow"])
                        for amount, _ in found.get(name, {}).get(key, ())
                    }
                    mine = new[kind].setdefault(name, {}).setdefault(key, [])
                    mine += [point for point in points if point[0] not in there]
    except failures(KeyError, IndexError, TypeError, ValueError, AttributeError):
        pass  # the old one holds nothing
    return new
