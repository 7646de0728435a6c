"""Which devices were calibrated on this machine: one document that later processes read.

A device in it is recalled as it was then, without its driver and without the code that drives it,
as long as its traces look the same: the files, folders, environment variables, settings and
modules that its backend named. Where they do not, or where opening it failed, there is a reason.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping
from time import time
from typing import Any, NamedTuple

from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import failures
from alight._src.base.uninterrupted import whereabouts
from alight._src.config.loading import config
from alight._src.store import canonical, default_store, digest
from alight.device import HOST_DEVICE, Device, Traces

__all__ = ["Recalled", "failed", "is_own", "keep", "look", "recalled", "trying"]

# Under "calibrated" are looks of before backends named modules: nothing says of them whether their
# backend names some now, and without them they would pass where these are gone.
KIND, KEY = "device", "calibrated-2"
# Ways that one device may look: a card has other numbers in other jobs of a cluster.
_LOOKS = 16
# After opening it failed nobody tries again for so long, then for twice as long, at most a day: the
# times that a machine too busy to be measured is left alone for (`adapt.recalibrate`).
_RETRY_SECONDS, _MOST_SECONDS = 20.0, 86400.0
# By then opening has ended well or badly: when a driver is asked in another process, it is given up
# after 40 s (`backends.cuda`).
_TRYING_SECONDS = 60.0
# Text up to here is kept as it stands, so that a reason can say what has changed.
_TEXT = 200
_READ = 1 << 16

Look = dict[str, str]


class Recalled(NamedTuple):
    """A device that was calibrated here, its traces, and why it is not what is there now (empty:
    it is)."""

    device: Device
    traces: Traces
    reason: str


def _state(path: str) -> str:
    """Return what a file or folder looks like, in a form that copies and other mounts of it
    share."""
    if not os.access(path, os.F_OK):  # most are
        return "absent"
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return ", ".join(sorted(os.listdir(path))) or "empty"
        if not stat.S_ISREG(status.st_mode):
            return "there"  # to read a device's file is to ask its driver
        if status.st_size > _READ:  # its name has the version in it, where a link leads to it
            return f"{os.path.basename(os.path.realpath(path))}, {status.st_size} bytes"
        with open(path, "rb") as stream:  # what the kernel writes has no size
            text = " ".join(stream.read(_READ).decode(errors="replace").split())
    except failures(OSError):
        return "absent"
    return text if len(text) <= _TEXT else digest(text)


def look(traces: Traces) -> Look:
    """Return how traces look now."""
    found = {f"path {path}": _state(path) for path in traces.paths}
    found |= {f"variable {name}": os.environ.get(name, "") for name in traces.variables}
    found |= {f"setting {name}": str(getattr(config(), name, "")) for name in traces.settings}
    # another environment on this machine may lack what a driver is asked through
    there = {name: "there" if _importable(name) else "" for name in traces.modules}
    return found | {f"module {name}": state for name, state in there.items()}


def _importable(name: str) -> bool:
    """Tell whether a module can be imported: its package counts, as to look into that is to run
    it."""
    name = name.partition(".")[0]
    try:
        return whereabouts(name) is not None
    except failures(ImportError, ValueError):  # what is loaded need not say where it came from
        return sys.modules.get(name) is not None


def is_own(kind: str) -> bool:
    """Tell whether the backend of a kind of devices comes with alight: no entry point need be
    looked for, and whoever has such a device wants it measured."""
    return kind == HOST_DEVICE or whereabouts(f"{__package__}.{kind}") is not None


def _is_installed(kind: str) -> bool:
    if is_own(kind):
        return True
    from importlib.metadata import entry_points  # 25 ms: not for those that come with alight

    return bool(entry_points(group="alight.backends", name=kind))


def _traces_of(seen: Look) -> Traces:
    kinds: dict[str, list[str]] = {"path": [], "variable": [], "setting": [], "module": []}
    for name in seen:
        kind, _, what = name.partition(" ")
        kinds[kind].append(what)
    return Traces(*map(tuple, kinds.values()))


def _key(device: Device) -> str:
    return digest([device.id, device.fingerprint], KIND)


def _entries(document: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entries of a document that are such as this version writes."""
    found = {} if document is None else document.get("devices")
    return {
        key: dict(entry)
        for key, entry in (found.items() if isinstance(found, dict) else ())
        if isinstance(entry, dict) and entry.keys() == _FORM.keys() and _like(entry, _FORM)
    }


def _wrong(document: Mapping[str, Any]) -> str:
    """Return what no version of alight writes into a document; nothing where there is none."""
    found = document.get("devices")
    if not isinstance(found, dict):
        return f"its devices are {found!r:.80}"
    for key, entry in found.items():
        # one with other fields is of another version
        if not isinstance(entry, dict) or (
            entry.keys() == _FORM.keys() and not _like(entry, _FORM)
        ):
            return f"the device under {key!r:.80} is none"
    return ""


# What an entry is like: a list has one form for all its items, a dictionary under ``str`` one for
# all its values, a tuple several to choose from. What is not there is not looked at.
_FORM: dict[Any, Any] = {
    "device": {
        **dict.fromkeys(("id", "vendor", "name", "space", "fingerprint"), str),
        "memory_bytes": int,
        "unified_memory": bool,
        "support": {
            **{name: [str] for name in ("implementations", "dtypes", "calls")},
            "gaps": [{str: str}],
            "library": (None, [str]),
        },
        "limits": {str: int},
    },
    "looks": [{str: str}],
    "failed": (None, {"at": float, "wait_seconds": (None, float), "reason": str}),
    "trying": (None, float),
}


def _like(value: object, form: Any) -> bool:
    """Tell whether a value of a document has a form."""
    if isinstance(form, tuple):
        return any(_like(value, one) for one in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(_like(item, form[0]) for item in value)
    if isinstance(form, dict):
        return isinstance(value, dict) and all(
            _like(item, form.get(str, form.get(name, ...))) for name, item in value.items()
        )
    if form is float:
        return type(value) in (int, float)
    return form is ... or value is form or type(value) is form


def keep(device: Device, traces: Traces) -> None:
    """Keep that a device was calibrated, or found again, as its traces look now."""
    own, now = _key(device), look(traces)
    fresh = {"device": device.to_dict(), "looks": [now], "failed": None, "trying": None}
    known = _entries(default_store().read(KIND, KEY)).get(own)
    if (
        known is not None
        and now in known["looks"]
        and canonical({**known, "looks": [now]}) == canonical(fresh)
    ):
        return

    def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        devices = _entries(old)
        for entry in devices.values():  # what looks so now is this device and no other
            if entry["device"].get("id") == device.id:
                entry["looks"] = [seen for seen in entry["looks"] if seen != now]
        before = devices.get(own, {"looks": []})["looks"]
        looks = [*before, now][-_LOOKS:]
        return {"devices": {**devices, own: {**new["devices"][own], "looks": looks}}}

    default_store().write(KIND, KEY, {"devices": {own: fresh}}, merged)
    _forget()


def trying(device: Device) -> None:
    """Note that a process is about to open a recalled device: should its driver hang or end it,
    others shall not go the same way."""
    _change(device, lambda entry: {**entry, "trying": entry["trying"] or time()})


def failed(device: Device, reason: str, for_good: bool) -> None:
    """Keep why a recalled device could not be opened, so that no process tries again at once;
    ``for_good``: it is another one by now, so only looking for devices anew can bring it back."""

    def changed(entry: dict[str, Any]) -> dict[str, Any]:
        last = (entry["failed"] or {}).get("wait_seconds", _RETRY_SECONDS / 2)
        wait = None
        if not for_good and last is not None:
            wait = min(2 * last, _MOST_SECONDS)
        why = {"at": time(), "wait_seconds": wait, "reason": reason}
        return {**entry, "failed": why, "trying": None}

    _change(device, changed)


def _change(device: Device, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    own = _key(device)

    def merged(old: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
        devices = _entries(old)
        if own in devices:
            devices[own] = change(devices[own])
        return {"devices": devices}

    default_store().write(KIND, KEY, {"devices": {}}, merged)
    _forget()


_recalled: tuple[Recalled, ...] | None = None


def _forget() -> None:
    global _recalled
    _recalled = None


register(Cache.RECALLED_DEVICES, _forget)


def recalled() -> tuple[Recalled, ...]:
    """Return the devices that were calibrated here, read once: one of each id, that which is there
    now where one is."""
    global _recalled
    if _recalled is None:
        found: dict[str, Recalled] = {}
        store = default_store()
        document = store.read(KIND, KEY)
        entries = _entries(document)
        if document is not None and (wrong := _wrong(document)):
            why = f"{wrong}. Fix: `alight calibrate`, where a device is missing"
            store.put_aside(KIND, KEY, ValueError(why))
            if entries:  # the others are as good as before
                store.write(KIND, KEY, {"devices": entries})
        for entry in entries.values():
            try:
                one = _recall(entry)
            except failures(KeyError, TypeError, ValueError):  # another version of alight wrote it
                continue
            if one.device.id not in found or not one.reason:
                found[one.device.id] = one
        _recalled = tuple([found[name] for name in sorted(found)])
    return _recalled


def _recall(entry: Mapping[str, Any]) -> Recalled:
    device = Device.from_dict(entry["device"])
    if not _is_installed(kind := device.id.partition(":")[0]):
        # Nothing is kept against it: another environment of this machine may have it.
        why = f"it was calibrated as {device.name}, and no backend named {kind} is installed here"
        return Recalled(device, Traces(), f"{why}. Fix: install the package that has it")
    fix = "Fix: `alight devices` looks again, `alight calibrate` measures what is there"
    changed, traces = "", Traces()
    for seen in reversed(entry["looks"]):  # the last one says best what has changed
        traces = _traces_of(seen)
        now = look(traces)
        if now == seen:
            break
        changed = changed or next(
            f"{name}: {seen[name] or 'nothing'!r} then, {now[name] or 'nothing'!r} now"
            for name in seen
            if now[name] != seen[name]
        )
    else:
        changed = changed or "another device took its place"
        return Recalled(device, traces, f"it was calibrated as {device.name}, and {changed}. {fix}")
    if entry["trying"] is not None and not 0.0 <= time() - entry["trying"] < _TRYING_SECONDS:
        reason = "a process that opened it did not get through"
        failed(device, reason, for_good=False)
        return Recalled(device, traces, f"it could not be used: {reason}. {fix}")
    if (last := entry["failed"]) is not None:
        wait = last["wait_seconds"]
        if wait is None or 0.0 <= time() - last["at"] < wait:
            return Recalled(device, traces, f"it could not be used: {last['reason']}. {fix}")
    return Recalled(device, traces, "")
