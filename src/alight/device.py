"""What a device says of itself: data only, no driver code."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from alight._src.config.schema import HOST_DEVICE

__all__ = ["HOST_DEVICE", "Device", "Gap", "Probe", "Reason", "Support", "Traces", "Unsupported"]


class Reason(enum.StrEnum):
    """Why a candidate was chosen or ruled out."""

    CHEAPEST = "cheapest"
    ALREADY_RESIDENT = "already_resident"
    BELOW_FLOOR = "below_floor"
    DTYPE_UNSUPPORTED = "dtype_unsupported"
    GAP = "gap"
    OUT_OF_MEMORY = "out_of_memory"
    PINNED = "pinned"
    POLICY = "policy"
    UNCALIBRATED = "uncalibrated"
    DEMOTED = "demoted"
    FIRST_TIME = "first_time"
    COMPILING = "compiling"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True)
class Gap:
    """Something a device cannot do: what, why, and who could close it."""

    what: str
    why: str
    who: str


@dataclass(frozen=True, slots=True)
class Support:
    """What a device can do beyond NumPy on the host: implementations, dtypes, and its gaps.

    ``dialect`` names the language its generated kernels are printed in, if they are: what that
    cannot say is a gap that planning knows of. ``verified``: an elementwise op is used once it
    has matched NumPy on the device; not so where the host's own code computes it. ``library``
    names the ops that the implementation of that name has, where it has not all; ``calls`` names
    those that the backend's ``call`` does at once, where their arguments lie.
    """

    implementations: tuple[str, ...]
    dtypes: frozenset[str]
    gaps: tuple[Gap, ...] = ()
    dialect: str = ""
    verified: bool = True
    library: frozenset[str] | None = None
    calls: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Device:
    """A memory space with executors. ``space`` names the memory: two devices on one card share
    it. ``limits["operands"]``, where it is given, is how many arrays a kernel may have;
    ``limits["engines"]`` how many copies go on beside kernels."""

    id: str
    vendor: str
    name: str
    space: str
    memory_bytes: int
    unified_memory: bool
    support: Support
    limits: Mapping[str, int] = field(default_factory=dict)
    fingerprint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the device as a document."""
        found = asdict(self)
        support = found["support"]
        support["dtypes"] = sorted(support["dtypes"])
        support["calls"] = sorted(support["calls"])
        if support["library"] is not None:
            support["library"] = sorted(support["library"])
        return found

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Device:
        """Return the device a document describes."""
        support = dict(document["support"])
        support["implementations"] = tuple(support["implementations"])
        support["dtypes"] = frozenset(support["dtypes"])
        support["calls"] = frozenset(support["calls"])
        support["gaps"] = tuple([Gap(**gap) for gap in support["gaps"]])
        if support["library"] is not None:
            support["library"] = frozenset(support["library"])
        return Device(**{**document, "support": Support(**support)})


@dataclass(frozen=True, slots=True)
class Traces:
    """What changes where devices come, go or get another driver, and can be looked at without
    asking one: files and folders, environment variables, settings of alight, and modules that can
    be imported, by their top-level names."""

    paths: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """The devices a backend found, or the reason why there are none; ``traces`` are theirs."""

    devices: tuple[Device, ...]
    reason: str = ""
    traces: Traces = Traces()


class Unsupported(Exception):
    """Raised by code generation and backends where a device has a gap; the message is the
    reason."""
