"""The backends and devices of this process: found once, opened when first needed."""

from __future__ import annotations

import contextlib
from time import perf_counter
from typing import TYPE_CHECKING, Any

from alight.device import Device
from alight.errors import DeviceUnavailable

if TYPE_CHECKING:
    from alight.backends.base import Backend
    from alight.policies import Policy

_backends: dict[str, Backend | None] = {}
_devices: dict[str, Device] = {}
_reasons: dict[str, str] = {}
_opened: dict[str, float] = {}  # seconds that opening took


def _backend(name: str) -> Backend | None:
    """Return the backend of that name, probed; None where it is absent (``reasons`` says why)."""
    if name in _backends:
        return _backends[name]
    backend: Backend | None = None
    if name == "cpu":
        from alight.backends.host import HostBackend

        backend = HostBackend()
    elif name == "sim":
        from alight.backends.sim import SimBackend

        backend = SimBackend()
    else:
        from importlib.metadata import entry_points

        for point in entry_points(group="alight.backends", name=name):
            made: Any = point.load()
            backend = made()
    _backends[name] = backend
    if backend is None:
        _reasons[name] = (
            f"no backend of that name is installed (entry point group alight.backends, name {name})"
        )
    else:
        probe = backend.probe()
        _reasons[name] = probe.reason
        for device in probe.devices:
            _devices[device.id] = device
    return backend


def driver_of(device: Device) -> Backend:
    """Return the backend that drives a device, which need not be open."""
    backend = _backend(device.id.partition(":")[0])
    assert backend is not None, device
    return backend


def backend_of(device: Device) -> Backend:
    """Return the backend that drives a device, with the device opened."""
    backend = driver_of(device)
    if device.id not in _opened:
        began = perf_counter()
        backend.open(device)
        _opened[device.id] = perf_counter() - began
    return backend


def open_seconds(device: Device) -> float | None:
    """Return what it took to open a device in this process; None where that was not done."""
    return _opened.get(device.id)


def device(name: str) -> Device:
    """Return the device of that id.

    Raises DeviceUnavailable, with the backend's own reason, where there is none.
    """
    kind = name.partition(":")[0]
    _backend(kind)
    found = _devices.get(name)
    if found is None:
        reason = (
            _reasons.get(kind) or f"{kind} has {sorted(d for d in _devices if d.startswith(kind))}"
        )
        if "Fix: " not in reason:  # a backend knows better what to do
            reason += ". Fix: `alight doctor` lists what is."
        raise DeviceUnavailable(f"device {name!r} is not available: {reason}")
    return found


def check(policy: Policy) -> None:
    """Raise DeviceUnavailable, with the settings that ask for it, where a device that the policy
    names is not there."""
    if policy.devices is None and policy.force is None:
        return  # else it is the host, whose backend may not be needed
    try:
        devices_allowed(policy)
    except DeviceUnavailable as error:
        sources = dict.fromkeys(policy.source(name) for name in ("force", "devices"))
        named = " and ".join(source for source in sources if source != "default")
        raise DeviceUnavailable(f"{named}: {error}") from None


def devices_allowed(policy: Policy) -> tuple[Device, ...]:
    """Return the devices the policy lets a plan use, in order of preference; the host is always
    the last resort and so always there."""
    named = list(policy.devices or ("cpu",))
    forced = policy.force.device if policy.force is not None else None
    if forced is not None and forced not in named:
        named.insert(0, forced)
    denied = {name[1:] for name in named if name.startswith("-")}
    names = [name for name in named if not name.startswith("-") and name not in denied]
    if "cpu" not in names:
        names.append("cpu")
    return tuple([device(name) for name in names])


def known_devices() -> tuple[Device, ...]:
    """Return every device found so far, the host first."""
    device("cpu")
    return tuple(sorted(_devices.values(), key=lambda found: found.id != "cpu"))


def probe_all() -> None:
    """Probe every backend there is: its devices are then known, or why it has none."""
    from importlib.metadata import entry_points  # loads 25 ms of modules

    for name in ["cpu", *[f"{point.name}:0" for point in entry_points(group="alight.backends")]]:
        with contextlib.suppress(DeviceUnavailable):  # the reason is kept
            device(name)


def absences() -> dict[str, str]:
    """Return, by backend, why it has no devices."""
    return {name: reason for name, reason in _reasons.items() if reason}


def after_fork() -> None:
    """Forget what a forked child cannot use: every backend but the host's."""
    for name in [n for n in _backends if n != "cpu"]:
        del _backends[name]
    for name in [d for d in _devices if d != "cpu"]:
        del _devices[name]
        _opened.pop(name, None)
