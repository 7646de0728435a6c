"""Profiles on disk: what one is valid for, where it is kept, when it is not used."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alight._src.base import package
from alight._src.base.failures import failures, ignoring_failures
from alight._src.base.uninterrupted import bring, whereabouts
from alight._src.config.loading import calibrate_here
from alight._src.config.schema import HOST_DEVICE
from alight._src.plan.profile_version import SCHEMA
from alight._src.store import default_store, digest
from alight.backends.machine import (
    blas,
    cpu_flags,
    cpu_model,
    host_fingerprint,
    processor_quota,
    processors,
    thread_count,
)
from alight.errors import StoreError

if TYPE_CHECKING:
    from alight._src.plan.curve import Measured
    from alight._src.plan.profile import Profile
    from alight.device import Device

# What reads a profile is imported where there is one: without, the first array of a program waits
# for a look into the store and no more.

KIND = "profile"


def _version(package: str) -> str | None:
    """Return the version of an installed package, None where it is absent.

    Read off the name of its record on disk: importing importlib.metadata takes 15 ms, at every
    start of every program.
    """
    spec = whereabouts(package)
    if spec is None or spec.origin is None:
        return None
    for record in os.listdir(os.path.dirname(os.path.dirname(spec.origin))):
        if record.startswith(f"{package}-") and record.endswith(".dist-info"):
            return record.removesuffix(".dist-info").partition("-")[2]
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


# What a profile made under another of these still tells something: it is a prior then, whose
# intervals are wider. With anything else changed it says nothing of this machine.
SOFT = ("alight", "numpy", "blas_version", "llvmlite", "processors")
# Of what a profile that was made in slow moments holds, the least for which it gives way to one of
# quicker moments. A guess: where 20 to 38 % of all had been measured, in quick moments, predictions
# were off by 15 to 43 % in the mean, with all of it, in moments that were in part slow, by 23 to 39
# (EPYC, two processors).
LEAST_SHARE = 0.5
# Of what another holds, what is as much: two calibrations of one length reach 23 and 24 % of all.
_AS_MUCH = 0.95
# Machines age: dust, microcode, kernels. A guess; measuring again costs five seconds.
OLD_SECONDS = 30 * 24 * 3600.0


def fingerprint(device: Device | _Host | None = None) -> dict[str, Any]:
    """Return what a profile depends on; ``SOFT`` are those of its parts that may differ."""
    vendor, model = cpu_model()
    features = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
    built = blas()
    found = {
        "schema": SCHEMA,
        "alight": sys.modules["alight"].__version__,  # above this module, so not imported
        "device": "cpu" if device is None else device.id,
        "device_fingerprint": "" if device is None else device.fingerprint,
        "cpu": f"{vendor} {model}",
        "features": sorted(name for name, present in features.items() if present),
        "processors": list(processors()),
        "processor_count": len(processors()),
        "quota": processor_quota(),
        "threads": thread_count(),
        "numpy": np.__version__,
        "numpy_series": ".".join(np.__version__.split(".")[:2]),
        "blas": {"name": built["name"], "settings": built["settings"]},
        "blas_version": built["version"],
        "llvmlite": _version("llvmlite"),
    }
    if device is not None and device.space != "host":
        found["device_memory"] = device.memory_bytes
    return found


def differences(made: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return what differs between two fingerprints, as text: what forbids the use, what does
    not."""
    hard: list[str] = []
    soft: list[str] = []
    for name in sorted({*made, *here}):
        if made.get(name) != here.get(name):
            text = f"{name}: {made.get(name)!r} there, {here.get(name)!r} here"
            (soft if name in SOFT else hard).append(text)
    return hard, soft


def profile_key(fingerprinted: Mapping[str, Any]) -> str:
    """Return the key that profiles of a fingerprint are stored under: its hard parts'."""
    return digest({k: v for k, v in fingerprinted.items() if k not in SOFT}, "profile")


_code: dict[tuple[str, tuple[str, ...]], str] = {}


def code_fingerprint(device: Device, *folders: str) -> str:
    """Return a digest of what generated code depends on besides the structure of a group.

    The files of these folders of the package, by default the generator's own, are in it, so that
    who changes them never runs an old kernel.
    """
    folders = folders or ("_src/codegen", "_src/ir")
    found = _code.get((device.id, folders))  # asked for with every kernel
    if found is None:
        import platform

        here = fingerprint(device)
        parts = ("alight", "device_fingerprint", "cpu", "features", "llvmlite")
        files = []
        for folder in folders:
            # without pathlib, whose modules and globs take 5 ms of a first call
            for inner, _, names in sorted(os.walk(os.path.join(package.FOLDER, folder))):
                for name in sorted(names):
                    if name.endswith((".py", ".so", ".pyd")):
                        status = os.stat(os.path.join(inner, name))
                        files.append((name, status.st_size, status.st_mtime_ns))
        found = _code[device.id, folders] = digest(
            {
                **{part: here[part] for part in parts},
                "flags": cpu_flags(),
                "libc": platform.libc_ver(),
                "generator": files,
            },
            "code",
        )
    return found


class _Host(NamedTuple):
    """What of the host a profile depends on, as its device has it."""

    id: str
    fingerprint: str
    space: str
    memory_bytes: int


def is_host_known() -> bool:
    """Tell whether a profile of the host as it is now is stored; what is in it is not looked at,
    and what drives the host not loaded."""
    here = fingerprint(_Host(HOST_DEVICE, host_fingerprint(), "host", 0))
    return default_store().read(KIND, profile_key(here)) is not None


def load_profile(device: Device | None = None) -> Profile | None:
    """Return the stored profile of a device on this machine as it is now, or None.

    One that was made under another version of something, or long ago, is sure of less. A file that
    holds no profile a machine can have is put aside, with a warning.
    """
    store = default_store()
    here = fingerprint(device)
    key = profile_key(here)
    document = store.read(KIND, key)
    if document is None:
        return None
    bring("alight._src.measure.bounds")
    from alight._src.measure.bounds import profile_of_document

    try:
        profile = profile_of_document(document, path=store.place(KIND, key))
        hard, soft = differences(profile.fingerprint, here)
        if hard:
            raise ValueError(f"it was made elsewhere ({hard[0]}). Fix: {calibrate_here()}.")
    except failures(ValueError) as error:
        store.put_aside(KIND, key, error)
        return None
    if time.time() - profile.made_at > OLD_SECONDS:
        soft.append("it is older than 30 days")
    return profile.doubted(soft) if soft else profile


def known_pace(device: Device) -> float:
    """Return the pace of the processor (see `timing.Pace`) when the profile was measured that a
    device has; infinity where there is none to go on with, or it is not known.

    Who measures that device anew takes moments in which the processor is slower for slow ones, so
    that a profile that was made in quick ones goes on to hold where all are slow by now. Should
    that be for good, as where a clock is held down: a profile that is not sound, or in doubt, as
    each is after 30 days, is none to go on with, and the next is measured at the pace there is.
    """
    found = load_profile(device)
    if found is None or found.doubts or not found.sound or found.pace_seconds is None:
        return math.inf
    return found.pace_seconds


class Outpaced(NamedTuple):
    """What the processor takes now, and in words what that says of a profile that was made while it
    took longer."""

    seconds: float
    words: str


def outpaced(profile: Profile) -> Outpaced | None:
    """Return how quick the processor is now if a profile was made while it was slower."""
    from alight._src.measure.timing import Pace, outpaces

    before = profile.pace_seconds
    if before is None or not outpaces(now := Pace().now(), before):
        return None
    words = f"the processor was {before / now:.2f} times as slow as now when it was measured"
    return Outpaced(now, words)


def share_costs(measured: Mapping[str, Measured]) -> None:
    """Have kernels split by what sharing work with other threads was measured to cost."""
    from alight._core import threads

    if "join" in measured and "wake" in measured:
        # Threads spin for as long as waking takes, so other work must have no part in it.
        pair = [measured[name] for name in ("join_pair", "wake_pair") if name in measured]
        join, wake = pair if len(pair) == 2 else (measured["join"], measured["wake"])
        threads.set_costs(measured["join"].value, measured["wake"].low, join.value, wake.low)


def save_profile(profile: Profile, asked_anew: bool = False) -> Profile:
    """Return the profile with the place where it is stored.

    One that holds less does not replace one of the same versions that holds more, unless that was
    ``asked_anew``; but one that was made in slow moments, is rough or was disturbed gives way to
    what is sound, and holds half as much. Raises StoreError for what no machine can have: the next
    start would put such a file aside.
    """
    from alight._src.measure.bounds import profile_of_document
    from alight._src.measure.profile_delta import keep_delta

    try:
        profile_of_document(profile.to_dict())
    except failures(ValueError) as error:
        raise StoreError(f"the profile of {profile.device} is not stored: {error}") from error
    store = default_store()
    key = profile_key(profile.fingerprint)
    before = store.read(KIND, key)
    kept = store.write(KIND, key, profile.to_dict(), None if asked_anew else _better)
    if not profile.little:
        with ignoring_failures(StoreError):  # somebody else's file: what it says ages
            store.remove(_ATTEMPT, digest(profile.fingerprint, _ATTEMPT))
    place = store.place(KIND, key)
    if place is None or kept["made_at"] != profile.made_at:
        return profile
    with ignoring_failures(ValueError):  # another's file, or one of another schema
        if before is not None:
            keep_delta(key, profile_of_document(before), profile)
    return profile.stored_at(place)


def _better(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return which of two documents to keep: the new one, unless that is worse."""
    from alight._src.measure.bounds import profile_of_document
    from alight._src.measure.timing import outpaces

    try:
        alike = all([old[name] == new[name] for name in ("fingerprint", "origin")])
        if alike and time.time() - old["made_at"] < OLD_SECONDS:
            before, now = profile_of_document(old), profile_of_document(new)
            if now.covered * _AS_MUCH > before.covered:
                return new
            worse = before.rough or before.contended
            if (worse or outpaces(now.pace_seconds, before.pace_seconds)) and (
                now.sound and now.covered >= LEAST_SHARE * before.covered
            ):
                return new
            if now.covered < _AS_MUCH * before.covered:
                return old
            return old if before.rank < now.rank else new
    except failures(KeyError, TypeError, ValueError):
        pass
    return new


def passed_over(device: Device) -> str:
    """Return under which other settings of this machine a device was measured, whose profile is not
    used for that; nothing where there is none."""
    here, store = fingerprint(device), default_store()
    found: list[tuple[int, float, str]] = []
    for entry in store.entries():
        document = store.read(KIND, entry.key) if (entry.kind, entry.form) == _PROFILE else None
        try:
            made, at = (document or {})["fingerprint"], float((document or {})["made_at"])
            if any(made[name] != here[name] for name in _MACHINE):
                continue
            hard, _ = differences({**made, "blas": _flat(made)}, {**here, "blas": _flat(here)})
        except failures(KeyError, TypeError, ValueError):  # nobody asked for it
            continue
        if hard:
            found.append((len(hard), -at, "; ".join(hard)))
    return min(found)[2] if found else ""


class Refused(NamedTuple):
    """A calibration at a program's end that is to be tried again: when it was, how long programs
    wait from then on, and what showed that other work disturbed it; nothing where there was time
    for little of it, or the profile before holds more."""

    at: float
    wait_seconds: float
    why: str


def refused(device: Device) -> Refused | None:
    """Return the last calibration of a device, if it was refused or of little."""
    found = default_store().read(_ATTEMPT, _attempt_key(device)) or {}
    with ignoring_failures(KeyError, TypeError, ValueError):  # then it says nothing
        why = str(found.get("why", "other work disturbed it"))  # older ones do not say
        return Refused(float(found["at"]), float(found["wait_seconds"]), why)
    return None


def note_refused(device: Device, what: Refused) -> None:
    """Have later processes know of a calibration that was refused, or of little."""
    default_store().write(_ATTEMPT, _attempt_key(device), what._asdict())


_ATTEMPT = "attempt"


def _attempt_key(device: Device) -> str:
    return digest(fingerprint(device), _ATTEMPT)


_PROFILE = KIND, "document"
# What tells one device of one machine from others, whatever it is set to.
_MACHINE = ("schema", "device", "device_fingerprint", "cpu")


def _flat(fingerprinted: Mapping[str, Any]) -> str:
    """Return NumPy's BLAS and what it runs under, in words."""
    found = fingerprinted["blas"]
    return f"{found['name']} under {', '.join(found['settings']) or 'no settings'}"
