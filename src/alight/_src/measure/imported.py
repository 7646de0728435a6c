"""Profiles from files: another start's, or another program's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alight._src.base.failures import failures
from alight._src.base.formatting import readable_bytes
from alight._src.base.records import dataclass, replace
from alight._src.measure.bounds import profile_of_document
from alight._src.measure.profiles import differences, fingerprint
from alight._src.plan.profile import Profile, Rates, unit_of
from alight.errors import StoreError

if TYPE_CHECKING:
    from alight.device import Device

# Far above any profile or result: the largest is some 300 kB.
_MOST_BYTES = 64 * 2**20
_SUCH_A_FILE = "name a file that `alight bench` wrote, or a profile that `alight devices` lists"


@dataclass(frozen=True, slots=True)
class Change:
    """One number of a profile before and after, in its unit."""

    name: str
    unit: str
    before: float | None
    after: float


def import_profile(path: str | Path, device: Device) -> Profile:
    """Return the profile of a device that a file describes, stored or printed.

    Raises StoreError, with the fix, for files that hold none, or what no machine can show, or that
    were made on another machine.
    """
    try:
        document = read_file(Path(path))
        profile = profile_of_document(_profile_in(document, device.id))
    except failures(OSError) as error:
        why = f"{error.strerror or error}. Fix: name a file that can be read"
        raise StoreError(f"{path} is not imported: {why}.") from error
    except failures(ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not imported: {error}") from error
    hard, soft = differences(profile.fingerprint, fingerprint(device))
    if hard:
        raise StoreError(
            f"{path} is not imported: it was made on another machine ({'; '.join(hard[:3])}). "
            "Fix: alight calibrate, here."
        )
    # What it was made under stays its own, so that it is a prior for as long as that differs.
    imported = replace(profile, origin="imported", path=None, pace_seconds=None)
    return imported.doubted(soft) if soft else imported


def is_result(path: str | Path) -> bool:
    """Tell whether a file is the result of ``alight bench``."""
    try:
        return {"rows", "machine"} <= read_file(Path(path)).keys()
    except failures(OSError, ValueError):
        return False  # who wants a profile of it is told what it is


def read_file(path: Path) -> dict[str, Any]:
    """Return the object of JSON in a file. Raises OSError, or ValueError with the fix."""
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"it has {path.stat().st_size} bytes. Fix: name a profile")
    try:
        document = json.loads(path.read_bytes(), parse_constant=_no_constant)
    except failures(json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}. Fix: {_SUCH_A_FILE}") from error
    if not isinstance(document, dict):
        raise ValueError("it holds no object of JSON. Fix: name a profile")
    return document


def _no_constant(name: str) -> float:
    raise ValueError(f"it holds {name}, which no clock shows. Fix: measure anew")


def _profile_in(document: Mapping[str, Any], device: str) -> object:
    """Return the profile in a file of the store, a list of profiles, or the file itself."""
    inner = document.get("document", document)
    if isinstance(inner, Mapping) and isinstance(inner.get("profiles"), list):
        found = [p for p in inner["profiles"] if isinstance(p, Mapping)]
        inner = next((p for p in found if p.get("device") == device), None)
    if not isinstance(inner, Mapping):
        raise ValueError(f"it has no profile of {device}. Fix: name one that has")
    if "rates" not in inner:
        raise ValueError(
            f"it is neither a profile nor the result of a benchmark: it has {_named(inner)}. "
            f"Fix: {_SUCH_A_FILE}"
        )
    if inner.get("device") != device:
        raise ValueError(
            f"it is a profile of {inner.get('device')!r}, not of {device}. Fix: name one that is"
        )
    return inner


def _named(document: Mapping[str, Any]) -> str:
    names = [repr(name) for name in list(document)[:3]]
    return ", ".join(names) + (", …" if len(document) > 3 else "") if names else "nothing"


def check_machine(document: Mapping[str, Any], device: Device) -> None:
    """Raise StoreError where the result of a benchmark was made on another machine."""
    here, there = fingerprint(device), document["machine"]
    made = f"{there.get('cpu_vendor')} {there.get('cpu')}"
    if made != here["cpu"] or there.get("processors") != here["processor_count"]:
        raise StoreError(
            f"the benchmark was made on {there.get('processors')} × {made}, this is "
            f"{here['processor_count']} × {here['cpu']}. Fix: alight calibrate, here."
        )


def changes(before: Profile | None, after: Profile) -> list[Change]:
    """Return the numbers of a profile beside those it takes the place of."""
    found: list[Change] = []
    for name, rates in after.rates.items():
        former = None if before is None else before.rates.get(name)
        found += _rate_changes(name, former, rates)
    for direction, link in after.links.items():
        nbytes = link.knots[-1][0]
        old = None if before is None else before.links.get(direction)
        found.append(
            Change(
                f"{direction} of {readable_bytes(round(nbytes))}",
                "seconds",
                None if old is None else old.seconds_at(nbytes),
                link.seconds_at(nbytes),
            )
        )
    return found


def _rate_changes(name: str, before: Rates | None, after: Rates) -> Iterator[Change]:
    old = None if before is None else before.launch.value
    yield Change(f"{name} launch", "seconds", old, after.launch.value)
    for key, curve in after.curves.items():
        former = None if before is None else before.curves.get(key)
        for work in (curve.knots[0][0], curve.knots[len(curve.knots) // 2][0], curve.knots[-1][0]):
            old = None if former is None else former.seconds_at(work)
            flops = unit_of(key) == "flops"
            size = f"{work:.3g} flops" if flops else readable_bytes(round(work))
            yield Change(f"{name} {key} of {size}", "seconds", old, curve.seconds_at(work))
    for dtype, surface in after.surfaces.items():
        made = None if before is None else before.surfaces.get(dtype)
        for side in (64, 512):
            old = None if made is None else made.seconds_at(side, side, side)
            seconds = surface.seconds_at(side, side, side)
            yield Change(f"{name} matmul/{dtype} of side {side}", "seconds", old, seconds)
