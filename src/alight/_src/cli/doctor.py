"""What `alight doctor` finds: the interpreter, libraries, core, cache, settings and backends."""

from __future__ import annotations

import errno
import os
import platform
import tempfile
from collections.abc import Iterable, Mapping

from alight._src.adapt import lazy_devices
from alight._src.adapt.record_floor import measured_floors
from alight._src.base.formatting import readable_bytes
from alight._src.base.originals import np
from alight._src.base.own_files import CHECKED, NotOwn, enter
from alight._src.config.loading import config, current_policy, reload_config
from alight._src.explain import text_tables
from alight._src.explain.report import version
from alight._src.explain.tables_data import Row, profile_rows, standing_row
from alight._src.measure.profiles import load_profile, outpaced
from alight._src.plan.cost import Profile
from alight._src.store import SCHEMA
from alight.backends import machine, registry
from alight.device import Device
from alight.errors import AlightError, ConfigError, DeviceUnavailable

__all__ = ["findings", "stored_profiles", "text"]


def stored_profiles(devices: Iterable[Device]) -> dict[str, Profile]:
    """Return the profiles stored for these devices, in doubt where the processor is quicker than it
    was for them, and start no measuring where there is none."""
    found = {device.id: load_profile(device) for device in devices}
    return {name: _compared(profile) for name, profile in found.items() if profile is not None}


def _compared(profile: Profile) -> Profile:
    now = outpaced(profile)
    if now is None:
        return profile
    return profile.doubted((*profile.doubts, f"{now.words}. Fix: `alight calibrate`"))


def _bad_settings() -> list[str]:
    """Return what is wrong with the settings; what is right holds from now on."""
    problems: list[AlightError] = []
    try:
        config()
    except ConfigError:
        reload_config(problems)
    try:
        registry.check(current_policy())
    except DeviceUnavailable as error:
        problems.append(error)
    return [str(problem) for problem in problems]


def findings() -> Row:
    """Return everything found, as plain values."""
    bad = _bad_settings()
    registry.probe_all()
    devices = registry.known_devices()
    lazy_devices.notice(devices)
    return {
        "alight": version(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "numpy": np.__version__,
        "llvmlite": _llvmlite(),
        "blas": machine.blas(),
        "processors": len(machine.processors()) or os.cpu_count(),
        "processor_quota": machine.processor_quota(),
        "memory_bytes": machine.host_memory()[1],
        "cache": _cache(),
        "measured_floors": measured_floors(),
        "settings_file": config().file,
        "bad_settings": bad,
        "settings": [
            {"name": row.name, "value": _shown(row.value), "source": row.source}
            for row in config().rows()
        ],
        "devices": [standing_row(device) for device in devices],
        "absent": registry.absences(),
        "gone": lazy_devices.gone(),
        "profiles": profile_rows(stored_profiles(devices)),
    }


def text(found: Row) -> str:
    """Return the findings for a terminal."""
    quota = found["processor_quota"]
    limit = "no quota" if quota is None else f"a quota of {quota:g}"
    blas, cache = found["blas"], found["cache"]
    under = ", ".join(blas["settings"])
    of_blas = f"BLAS {blas['name'] or 'unknown'} {blas['version']}".rstrip()
    facts = [
        ("alight", found["alight"]),
        ("Python", f"{found['python']} on {found['platform']}"),
        ("NumPy", f"{found['numpy']}, {of_blas}{under and f' under {under}'}"),
        ("llvmlite", found["llvmlite"]["version"] or f"absent: {found['llvmlite']['reason']}"),
        ("processors", f"{found['processors']} usable, {limit}"),
        ("memory", readable_bytes(found["memory_bytes"])),
        ("cache", _of_cache(cache)),
        ("floor", _floor(found)),
        ("settings file", found["settings_file"] or "none"),
    ]
    width = max(len(name) for name, _ in facts)
    lines = [f"{name.ljust(width)}  {value}" for name, value in facts]
    if found["bad_settings"]:
        lines += ["", "Bad settings, left out here; other commands stop at them"]
        lines += [f"  {problem}" for problem in found["bad_settings"]]
    lines += ["", "Devices"]
    for device in found["devices"]:
        lines.append(f"  {device['id']}  {device['name']}: {', '.join(device['implementations'])}")
        lines += [f"    gap: {gap['what']}: {gap['why']}" for gap in device["gaps"]]
    absent = sorted([*found["absent"].items(), *found["gone"].items()])
    lines += [f"  no {name}: {reason}" for name, reason in absent]
    calibrated = {row["device"] for row in found["profiles"]}
    for device in found["devices"]:
        if device["id"] not in calibrated or not device["takes_part"]:
            part = "part" if device["takes_part"] else "no part"
            lines.append(f"  {device['id']} takes {part}: {device['why']}")
    rows = [[row["name"], str(row["value"]), row["source"]] for row in found["settings"]]
    return "\n".join(
        [*lines, "", "Settings", *text_tables.aligned(["name", "value", "source"], rows)]
    )


def _of_cache(cache: Row) -> str:
    if not cache["writable"]:
        return f"{cache['path']}: {cache['reason']}"
    unseen = "" if cache["owner_checked"] else ", which others may write: here nobody looks"
    return f"{cache['path']}{unseen}"


def _floor(found: Row) -> str:
    """Return below how many elements work is NumPy's at once, and how it is known."""
    given = [row["value"] for row in found["settings"] if row["name"].startswith("floor.")]
    if any(elements is not None for elements in given):
        return "as set, below"
    if not found["measured_floors"]:
        return "not measured yet: the first program that asks for it does, when it ends"
    least, times = min(found["measured_floors"]), len(found["measured_floors"])
    return f"NumPy has work on fewer than {least:,} elements at once, the least of {times} measured"


def _llvmlite() -> Row:
    try:
        import llvmlite
        from llvmlite import binding
    except Exception as error:  # a broken LLVM library raises anything
        return {"version": None, "llvm": None, "reason": f"{type(error).__name__}: {error}"}
    llvm = ".".join(map(str, binding.llvm_version_info))
    return {"version": llvmlite.__version__, "llvm": llvm, "reason": None}


# A block of most file systems: a full disk has room for a name, and not for that.
_TRIED_BYTES = 4096
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _cache() -> Row:
    root = config().cache_root()
    reason = None
    # The nearest folder that exists is where the others would be made.
    folder = next((p for p in (root, *root.parents) if p.exists()), root)
    try:
        with tempfile.TemporaryFile(dir=folder) as tried:
            tried.write(os.urandom(_TRIED_BYTES))  # of zeros some file systems keep nothing
            tried.flush()
            os.fsync(tried.fileno())
    except OSError as error:
        fix = "make room there, or " if error.errno in _FULL else "let it be written, or "
        if isinstance(error, NotADirectoryError):  # whatever file that is, it is to stay as it is
            fix = ""
        reason = (
            f"cannot write {_TRIED_BYTES} bytes in {folder} ({error.strerror or error}), so "
            f"nothing outlives a process. Fix: {fix}name another folder in ALIGHT_CACHE_DIR."
        )
    if reason is None:
        try:
            enter(str(root), f"v{SCHEMA}").close()
        except NotOwn as error:
            reason = f"{error}, so it is not used. Fix: {error.fix}."
        except OSError:
            pass  # there is nothing yet
    return {
        "path": str(root), "writable": reason is None, "reason": reason, "owner_checked": CHECKED
    }  # fmt: skip


def _shown(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(k): v for k, v in value.items()}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return list(value) if isinstance(value, tuple) and not hasattr(value, "_fields") else str(value)
