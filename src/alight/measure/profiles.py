"""Profiles on disk: what one is valid for, where it is kept, when it is not used."""

from __future__ import annotations

import importlib.util
import logging
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from alight._core import threads
from alight.backends.machine import cpu_flags, cpu_model, processor_quota, processors, thread_count
from alight.plan.cost import SCHEMA, Profile
from alight.plan.curve import Measured
from alight.store import Store, default_store, digest

if TYPE_CHECKING:
    from alight.device import Device

KIND = "profile"

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def _version(package: str) -> str | None:
    """Return the version of an installed package, None where it is absent.

    Read off the name of its record on disk: importing importlib.metadata takes 15 ms, at every
    start of every program.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    for record in Path(spec.origin).parents[1].glob(f"{package}-*.dist-info"):
        return record.name.removesuffix(".dist-info").partition("-")[2]
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _blas() -> dict[str, Any]:
    """Return NumPy's BLAS and what sets its threads: they change every matrix product."""
    build = np.show_config(mode="dicts")
    found = build.get("Build Dependencies", {}).get("blas", {}) if isinstance(build, dict) else {}
    return {
        "name": str(found.get("name", "")),
        "version": str(found.get("version", "")),
        "threads": {name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ},
    }


def fingerprint(device: Device | None = None) -> dict[str, Any]:
    """Return what a profile depends on: with any of it changed, the machine is measured anew."""
    vendor, model = cpu_model()
    features = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
    return {
        "schema": SCHEMA,
        "alight": sys.modules["alight"].__version__,  # above this module, so not imported
        "device": "cpu" if device is None else device.id,
        "device_fingerprint": "" if device is None else device.fingerprint,
        "cpu": f"{vendor} {model}",
        "features": sorted(name for name, present in features.items() if present),
        "processors": list(processors()),
        "quota": processor_quota(),
        "threads": thread_count(),
        "numpy": np.__version__,
        "blas": _blas(),
        "llvmlite": _version("llvmlite"),
    }


_code: dict[str, dict[str, Any]] = {}


def code_fingerprint(device: Device) -> dict[str, Any]:
    """Return what generated code depends on besides the structure of a group.

    The generator's own files are in it, so that who changes them never runs an old kernel.
    """
    found = _code.get(device.id)  # asked for with every kernel
    if found is None:
        here = fingerprint(device)
        parts = ("alight", "device_fingerprint", "cpu", "features", "llvmlite")
        files = []
        for folder in ("codegen", "ir"):
            for path in sorted((Path(__file__).parents[1] / folder).rglob("*.py")):
                status = path.stat()
                files.append((path.name, status.st_size, status.st_mtime_ns))
        found = _code[device.id] = {
            **{part: here[part] for part in parts},
            "flags": cpu_flags(),
            "libc": platform.libc_ver(),
            "generator": files,
        }
    return found


def load_profile(device: Device | None = None) -> Profile | None:
    """Return the stored profile of a device on this machine as it is now, or None."""
    store = default_store()
    key = digest(fingerprint(device), "profile")
    document = store.read(KIND, key)
    if document is None:
        return None
    try:
        return Profile.from_dict(document, path=_place(store, key))
    except (KeyError, TypeError, ValueError) as error:
        logging.getLogger("alight").warning(
            "the stored profile %s is not used (%s: %s). Fix: alight calibrate.",
            key,
            type(error).__name__,
            error,
        )
        return None


def share_costs(measured: Mapping[str, Measured]) -> None:
    """Have kernels split by what sharing work with other threads was measured to cost."""
    if "join" in measured and "wake" in measured:
        # Threads spin for as long as waking takes, so other work must have no part in it.
        pair = [measured[name] for name in ("join_pair", "wake_pair") if name in measured]
        join, wake = pair if len(pair) == 2 else (measured["join"], measured["wake"])
        threads.set_costs(measured["join"].value, measured["wake"].low, join.value, wake.low)


def save_profile(profile: Profile) -> Profile:
    """Return the profile with the place where it is stored; a contended one is not stored.

    What was measured while other work ran would be wrong for as long as the file lives.
    """
    if profile.contended:
        return profile
    store = default_store()
    key = digest(dict(profile.fingerprint), "profile")
    store.write(KIND, key, profile.to_dict())
    place = _place(store, key)
    return profile if place is None else profile.stored_at(place)


def _place(store: Store, key: str) -> str | None:
    """Return the file of a stored profile; None where it lives in memory only."""
    return None if store.problem is not None else str(store._path(KIND, key, ".json"))
