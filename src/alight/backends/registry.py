"""The backends and devices of this process: found once, opened when first needed."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from alight._src.base.at_fork import renewed
from alight._src.base.failures import failures
from alight._src.base.uninterrupted import bring
from alight._src.config.schema import HOST_DEVICE
from alight.errors import DeviceUnavailable

if TYPE_CHECKING:
    from alight._src.config.policy import Policy
    from alight.backends.base import Backend
    from alight.backends.known_devices import Recalled
    from alight.device import Device, Traces

_backends: dict[str, Backend | None] = {}
_probed: set[str] = set()
_devices: dict[str, Device] = {}
_traces: dict[str, Traces] = {}  # by backend
_reasons: dict[str, str] = {}
_opened: dict[str, float] = {}  # seconds that opening took
_named: dict[str, Recalled] = {}  # named, calibrated here, and not asked for anew
_joined: dict[str, Device] = {}  # opened though nobody named them: they are calibrated
_joining: set[str] = set()  # being opened so, by a thread that a forked child does not have
_left: dict[str, str] = {}  # devices and kinds that cannot take part unasked here, and why

_orphaned = False

# Held by who looks for devices or opens one: others wait for what it finds. Backends take none of
# alight's locks meanwhile that could be held by who waits here.
_finding = renewed(globals(), "_finding", threading.RLock)


def _backend(name: str) -> Backend | None:
    """Return the backend of that name, probed; None where it is absent (``reasons`` says why)."""
    backend = _made(name)
    if backend is not None and name not in _probed:
        with _finding:
            if name not in _probed:
                _probe(name, backend)
    return backend


def _probe(name: str, backend: Backend) -> None:
    probe = backend.probe()
    _reasons[name], _traces[name] = probe.reason, probe.traces
    for device in probe.devices:
        if device.id not in _opened:  # one that was is what its own driver said
            _devices[device.id] = device
    _probed.add(name)  # last: who sees it does not wait


def _made(name: str) -> Backend | None:
    """Return the backend of that name, which may not have looked for its devices yet."""
    if name not in _backends:
        with _finding:
            if name not in _backends:
                _backends[name] = _make(name)
    return _backends[name]


def _make(name: str) -> Backend | None:
    backend: Backend | None = None
    if name == "cpu":
        from alight.backends.host import HostBackend

        backend = HostBackend()
    elif name == "sim":
        bring("alight.backends.sim.sim_backend")
        from alight.backends.sim.sim_backend import SimBackend

        backend = SimBackend()
    else:
        from importlib.metadata import entry_points

        for point in entry_points(group="alight.backends", name=name):
            made: Any = point.load()
            backend = made()
    if backend is None:
        _reasons[name] = (
            f"no backend of that name is installed (entry point group alight.backends, name {name})"
        )
    return backend


def made() -> tuple[Backend, ...]:
    """Return the backends that this process has asked for."""
    return tuple([backend for backend in _backends.values() if backend is not None])


def driver_of(device: Device) -> Backend:
    """Return the backend that drives a device, which need not be open."""
    name = device.id.partition(":")[0]
    unasked = device.id in _joined or device.id in _named
    backend = _made(name) if unasked else _backend(name)
    assert backend is not None, device
    return backend


def backend_of(device: Device) -> Backend:
    """Return the backend that drives a device, with the device opened."""
    backend = driver_of(device)
    _open(backend, device)
    return backend


def _open(backend: Backend, device: Device) -> None:
    if device.id in _opened:
        return
    with _finding:
        if device.id not in _opened:
            _open_first(backend, device)


def _open_first(backend: Backend, device: Device) -> None:
    one = _named.get(device.id)
    if one is None or device.id.partition(":")[0] in _probed:
        _open_found(backend, device)
        return
    try:
        _open_recalled(one)
    except BaseException:  # who asks again has its driver asked
        _named.pop(device.id, None)
        _devices.pop(device.id, None)
        raise


def _open_found(backend: Backend, device: Device) -> None:
    if device.id not in _opened:
        began = perf_counter()
        backend.open(device)
        _opened[device.id] = perf_counter() - began


def open_seconds(device: Device) -> float | None:
    """Return what it took to open a device in this process; None where that was not done."""
    return _opened.get(device.id)


def only_host() -> bool:
    """Tell whether no device was opened, so that no array can lie on one."""
    return not _opened or (len(_opened) == 1 and HOST_DEVICE in _opened)


def device(name: str) -> Device:
    """Return the device of that id.

    Raises DeviceUnavailable, with the backend's own reason, where there is none.
    """
    return _joined.get(name) or _remembered(name) or _found(name)


def probed(name: str) -> Device:
    """Return the device of that id as its driver describes it now, as `device` does."""
    _backend(name.partition(":")[0])
    return device(name)


def _remembered(name: str) -> Device | None:
    """Return a device that was calibrated here, as it was then: where its traces look the same, no
    process has to ask its driver whether it is there."""
    kind = name.partition(":")[0]
    if name == HOST_DEVICE or kind in _probed:
        return None
    with _finding:
        if name not in _named:
            from alight.backends.known_devices import recalled

            own = [one for one in recalled() if one.device.id == name and not one.reason]
            backend = _made(kind)
            if not own or left(name) or not hasattr(backend, "described"):
                return None
            _named[name] = own[0]
            _devices[name] = own[0].device
        return _devices[name]


def _found(name: str) -> Device:
    kind = name.partition(":")[0]
    _backend(kind)
    found = _devices.get(name)
    if found is None:
        own = ", ".join(sorted(d for d in _devices if d.partition(":")[0] == kind))
        reason = _reasons.get(kind) or f"{kind} has {own}. Fix: name one of them"
        if "Fix: " not in reason:  # a backend knows better what to do
            reason += ". Fix: `alight doctor` lists what is"
        raise DeviceUnavailable(f"device {name!r} is not available: {reason.removesuffix('.')}.")
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
    """Return the devices the policy lets a plan use, in order of preference: those it names, or
    the host and those that joined. The host is always the last resort and so always there."""
    names = [name for name in policy.devices or () if not name.startswith("-")]
    forced = policy.force.device if policy.force is not None else None
    if forced is not None and forced not in names:
        names.insert(0, forced)
    if HOST_DEVICE not in names:
        names.append(HOST_DEVICE)
    if _joined and leaves_open(policy):
        names += [name for name in _joined if policy.allows(name)]
    return tuple([device(name) for name in names])


def devices_holding(policy: Policy, spaces: Collection[str]) -> tuple[Device, ...]:
    """Return the devices beside those of `devices_allowed` that are open and hold what is asked
    for, where the policy leaves open which devices work is placed on: what lies on one need not
    leave it because nobody named it."""
    if not leaves_open(policy):
        return ()
    found = [_devices.get(name) for name in _opened if name not in _joined and name != HOST_DEVICE]
    return tuple([d for d in found if d is not None and d.space in spaces and policy.allows(d.id)])


def leaves_open(policy: Policy) -> bool:
    """Tell whether a policy leaves it open which devices work is placed on: it forces nothing, and
    names none but such as it denies."""
    return policy.force is None and all(name.startswith("-") for name in policy.devices or ())


def join(one: Recalled) -> None:
    """Open a device that was calibrated here: from now on it takes part wherever the policy leaves
    that open. Raises as below."""
    name = one.device.id
    with _finding:
        _joining.add(name)
        try:
            _joined[name] = _open_recalled(one)
        finally:
            _joining.discard(name)


def _open_recalled(one: Recalled) -> Device:
    """Return a device that was calibrated here, opened without asking for it in a process of its
    own first.

    Raises DeviceUnavailable where it is not that device any more, and whatever its driver raises;
    later processes then know, and do not try.
    """
    from alight.backends.known_devices import failed, keep, trying

    device = one.device
    trying(device)
    try:
        found = _opened_as(device)
    except KeyboardInterrupt:
        keep(device, one.traces)  # nothing is known against it
        raise
    except failures() as error:
        _left[device.id] = reason = f"{type(error).__name__}: {error}"
        failed(device, reason, for_good=False)
        raise
    if found.fingerprint != device.fingerprint:
        _left[device.id] = reason = (
            f"it was calibrated as {device.fingerprint!r} and is {found.fingerprint!r} now"
        )
        failed(device, reason, for_good=True)
        raise DeviceUnavailable(f"{device.id}: {reason}")
    _devices[device.id] = found
    keep(found, one.traces)
    return found


def _opened_as(device: Device) -> Device:
    """Return a device as its driver describes it, open where it is the same."""
    name = device.id.partition(":")[0]
    backend = _made(name)
    if backend is None:
        raise DeviceUnavailable(_reasons[name])
    described = getattr(backend, "described", None)
    if described is None or name in _probed:  # it may open only what it found
        probed = _found(device.id)
        if probed.fingerprint == device.fingerprint:
            _open_found(backend, probed)
        return probed
    was_open = device.id in _opened
    _open_found(backend, device)
    same = False
    try:
        found: Device = described(device)
        same = found.fingerprint == device.fingerprint
    finally:
        if not same and not was_open:  # else it would count as open, and be found no more
            _opened.pop(device.id)
            backend.close(device)
    return found


def joined() -> Mapping[str, Device]:
    """Return the devices that take part though nobody named them."""
    return _joined


def left(name: str) -> str:
    """Return why a device that nobody named cannot take part in this process, if so."""
    return _left.get(name) or _left.get(name.partition(":")[0], "")


def orphaned() -> bool:
    """Tell whether this process was forked from one that devices had joined unasked."""
    return _orphaned


def known_devices() -> tuple[Device, ...]:
    """Return every device found so far, the host first."""
    device("cpu")
    return tuple(sorted([*_devices.values()], key=lambda found: found.id != "cpu"))


def real(device: Device) -> bool:
    """Tell whether a device is of the machine, and neither its host nor what a record says."""
    return device.id != HOST_DEVICE and getattr(driver_of(device), "profile", None) is None


def remember(device: Device) -> None:
    """Have later processes know that a device, which was looked for here, is calibrated."""
    traces = _traces.get(device.id.partition(":")[0])
    from alight.backends.known_devices import keep

    if traces is not None and real(device):
        keep(device, traces)
        _left.pop(device.id, None)


def probe_all() -> None:
    """Probe every backend there is: its devices are then known, or why it has none."""
    from importlib.metadata import entry_points  # loads 25 ms of modules

    for name in ["cpu", *[point.name for point in entry_points(group="alight.backends")]]:
        with contextlib.suppress(DeviceUnavailable):  # the reason is kept
            _backend(name)


def absences() -> dict[str, str]:
    """Return, by backend, why it has no devices."""
    return {name: reason for name, reason in _reasons.items() if reason}


def _after_fork() -> None:
    """Have nothing placed unasked on devices whose driver the parent has started."""
    global _orphaned
    begun = {*_opened, *_joining}
    for kind in {name.partition(":")[0] for name in begun} - {HOST_DEVICE}:
        _probed.add(kind)
        _left[kind] = (
            "this process was forked from one that uses it. Fix: start processes with the method "
            "'spawn', or fork before arrays are large"
        )
    _orphaned = bool(_joined)
    _joined.clear()
    _joining.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
