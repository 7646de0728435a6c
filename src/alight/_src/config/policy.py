"""What may run where: a policy, and what changes of it give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, Literal

from alight._core import floor
from alight._src.config.schema import DEFAULT, POLICY_FIELDS, Force, Sourced
from alight.errors import ConfigError

# Numbers are never given twice: to drop them all, for a program that makes ever new policies,
# costs those in use one plan each.
_STAMPS_KEPT = 4096
_stamps: dict[object, int] = {}
_next_stamp = count()


class Policy:
    """What may run where; equal to another when it says the same, whatever its sources. It never
    changes.

    `stamp` is an int that in this process no policy has which says something else: a key for
    caches.
    """

    __slots__ = (*POLICY_FIELDS, "_floor_all", "_recording", "_said", "sources", "stamp")

    def __init__(
        self,
        devices: tuple[str, ...] | None = None,
        force: Force | None = None,
        floor: Mapping[str, int] = MappingProxyType({}),
        on_gap: Literal["host", "raise"] = "host",
        pick: Literal["model", "measure"] = "model",
        reproducible: bool = True,
        learn: bool = False,
        sources: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.devices = devices
        self.force = force
        self.floor = floor
        self.on_gap = on_gap
        self.pick = pick
        self.reproducible = reproducible
        self.learn = learn
        self.sources = sources
        said: tuple[object, ...]
        said = (devices, force, on_gap, pick, reproducible, learn, *sorted(floor.items()))
        if (stamp := _stamps.get(said)) is None:
            if len(_stamps) >= _STAMPS_KEPT:
                _stamps.clear()
            stamp = _stamps.setdefault(said, next(_next_stamp))  # atomic: no lock to hold at a fork
        self._said = said
        self.stamp = stamp
        self._floor_all = floor.get("all")
        given = [n for kind in ("unary", "binary") if (n := self.floor_for(kind)) is not None]
        self._recording = (max(given, default=0), len(given) == 2)

    def __repr__(self) -> str:
        said = [f"{name}={getattr(self, name)!r}" for name in POLICY_FIELDS]
        return f"Policy({', '.join(said)})"

    def __eq__(self, other: object) -> bool:
        return self._said == other._said if isinstance(other, Policy) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._said)

    def __reduce__(self) -> tuple[Any, ...]:
        # A stamp means nothing in another process, so it is made anew there.
        return Policy, tuple(getattr(self, name) for name in (*POLICY_FIELDS, "sources"))

    def floor_for(self, kind: str) -> int | None:
        """Return the least output elements worth planning, or None to use the measured profile."""
        return self.floor.get(kind, self._floor_all)

    @property
    def record_floor(self) -> int:
        """Return the least elements at which recording need not ask which class an op is of."""
        least, all_given = self._recording
        return least if all_given else max(least, floor.auto)

    @property
    def floor_given(self) -> bool:
        """Return whether every class of ops has its floor from the user: none is measured."""
        return self._recording[1]

    def floor_source(self, kind: str) -> str:
        """Return where `floor_for(kind)` came from."""
        return self.source(f"floor.{kind if kind in self.floor else 'all'}")

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


def amended(base: Policy, changes: Iterable[Sourced]) -> Policy:
    """Return the policy with the changes laid over it, in their order."""
    values: dict[str, Any] = {name: getattr(base, name) for name in POLICY_FIELDS}
    sources = dict(base.sources)
    for name, value, source in changes:
        sources[name] = source
        if name != "floor":
            values[name] = value
            continue
        if not value or "all" in value:  # a floor for all replaces what stood for one class
            values[name] = {}
            sources = {n: s for n, s in sources.items() if not n.startswith("floor.")}
        values[name] = {**values[name], **value}
        sources |= {f"floor.{kind}": source for kind in value}
    result = Policy(**values, sources=sources)
    if result.force and result.force.device and not result.allows(result.force.device):
        raise ConfigError(
            f"{result.source('force')}: {str(result.force)!r} is not among the devices allowed by "
            f"{result.source('devices')}: {', '.join(result.devices or ())}. "
            f"Fix: add {result.force.device!r} to devices, or give force=None."
        )
    return result
