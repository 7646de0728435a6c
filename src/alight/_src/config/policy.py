"""What may run where: a policy, and what changes of it give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, Literal

from alight._core import floor
from alight._src.config.schema import DEFAULT, SETTINGS, Force, Scope, Sourced, settings_of
from alight.errors import ConfigError

__all__ = ["EVERYTHING", "PLACEMENT", "Policy", "amended"]

PLACEMENT = settings_of(Scope.PLACEMENT)

# Numbers are never given twice: to drop them all, for a program that makes ever new policies,
# costs those in use one plan each.
_STAMPS_KEPT = 4096
_stamps: dict[object, int] = {}
EVERYTHING = 1 << 62  # a floor that no array reaches
_next_stamp = count()


_CLASSES = ("unary", "binary", "reduction")


class Policy:
    """What may run where; equal to another when it says the same, whatever its sources. It never
    changes.

    `stamp` is an int that in this process no policy has which says something else: a key for
    caches. `floor_given`: every class of ops has its floor from the user, and none is measured.
    `leaves_choice`: between NumPy and alight, nothing is forced.
    """

    __slots__ = (
        *PLACEMENT,
        "_floor_all",
        "_least",
        "_said",
        "floor_given",
        "leaves_choice",
        "sources",
        "stamp",
    )

    # For the type checker; what there is the table says.
    devices: tuple[str, ...] | None
    force: Force | None
    floor: Mapping[str, int]
    on_gap: Literal["host", "raise"]
    pick: Literal["model", "measure"]
    reproducible: bool
    learn: Literal["next", "now", "off"]
    enabled: bool

    def __init__(self, sources: Mapping[str, str] = MappingProxyType({}), **given: Any) -> None:
        self.sources = sources
        said: list[object] = []
        for name in PLACEMENT:
            value = given.get(name, SETTINGS[name].default)
            setattr(self, name, value)
            said.append(tuple(sorted(value.items())) if isinstance(value, Mapping) else value)
        self._said = tuple(said)
        if (stamp := _stamps.get(self._said)) is None:
            if len(_stamps) >= _STAMPS_KEPT:
                _stamps.clear()
            # atomic: no lock to hold at a fork
            stamp = _stamps.setdefault(self._said, next(_next_stamp))
        self.stamp = stamp
        self._floor_all = self.floor.get("all")
        given = {kind: n for kind in _CLASSES if (n := self.floor_for(kind)) is not None}
        self.floor_given = "unary" in given and "binary" in given
        if "matmul" in self.floor:  # of m*k*n so many the largest matrix has this many elements
            given["matmul"] = math.ceil(round(self.floor["matmul"] ** (2 / 3), 6))
        self._least: int | None = min(given.values(), default=None)
        if not self.enabled:
            self._least, self.floor_given = EVERYTHING, True
        self.leaves_choice = self.force is None and not self.floor

    def __repr__(self) -> str:
        said = [f"{name}={getattr(self, name)!r}" for name in PLACEMENT]
        return f"Policy({', '.join(said)})"

    def __eq__(self, other: object) -> bool:
        return self._said == other._said if isinstance(other, Policy) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._said)

    def __reduce__(self) -> tuple[Any, ...]:
        # A stamp means nothing in another process, so it is made anew there.
        return _policy_of, (self._values(), dict(self.sources))

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in PLACEMENT}

    def floor_for(self, kind: str) -> int | None:
        """Return the least output elements worth planning, or None to use the measured profile."""
        return self.floor.get(kind, self._floor_all)

    @property
    def record_floor(self) -> int:
        """Return the elements below which no class of ops is planned: what is a class's own, the
        plan sees."""
        if self._least is None:
            return floor.auto
        return self._least if self.floor_given else min(self._least, floor.auto)

    def source(self, name: str) -> str:
        """Return where a field came from; `floor.unary` asks for one class."""
        return self.sources.get(name) or self.sources.get(name.partition(".")[0], DEFAULT)

    def names(self, device: str) -> bool:
        """Return whether the user wrote this device; some exist only then."""
        forced = self.force is not None and self.force.device == device
        return forced or device in (self.devices or ())

    def allows(self, device: str) -> bool:
        """Return whether work may be placed on this device."""
        if self.devices is None or device in self.devices:
            return True
        return "-" + device not in self.devices and all(d.startswith("-") for d in self.devices)

    def order(self, present: Iterable[str]) -> tuple[str, ...]:
        """Return the devices that are present and allowed, the preferred first."""
        listed = self.devices or ()
        rank = {device: place for place, device in enumerate(listed)}
        allowed = (device for device in present if self.allows(device))
        return tuple(sorted(allowed, key=lambda device: rank.get(device, len(listed))))


def _policy_of(values: Mapping[str, Any], sources: Mapping[str, str]) -> Policy:
    return Policy(sources, **values)


def amended(base: Policy, changes: Iterable[Sourced]) -> Policy:
    """Return the policy with the changes laid over it, in their order."""
    values, sources = base._values(), dict(base.sources)
    for name, value, source in changes:
        sources[name] = source
        if not SETTINGS[name].type.parts:
            values[name] = value
            continue
        if not value or "all" in value:  # what is for all replaces what stood for one part
            values[name] = {}
            sources = {n: s for n, s in sources.items() if not n.startswith(f"{name}.")}
        values[name] = {**values[name], **value}
        sources |= {f"{name}.{part}": source for part in value}
    result = Policy(sources, **values)
    if result.force and result.force.device and not result.allows(result.force.device):
        raise ConfigError(
            f"{result.source('force')}: {str(result.force)!r} is not among the devices allowed by "
            f"{result.source('devices')}: {', '.join(result.devices or ())}. "
            f"Fix: add {result.force.device!r} to devices, or give force=None."
        )
    return result
