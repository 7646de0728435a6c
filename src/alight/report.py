"""What the log, the devices and the profiles say, as one document: text, JSON, HTML. Reads only."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import time
from typing import Any

from alight import candidates, costs, runtime, tables
from alight._core import floor
from alight.backends import machine
from alight.config import config, current_policy
from alight.device import Device
from alight.errors import AlightError, StoreError
from alight.frozen import np
from alight.log import LOG, Record, Snapshot, Tallied, place_of
from alight.plan.cost import Profile
from alight.plan.plan import Candidate
from alight.settings import IMPLEMENTATIONS, checked

__all__ = [
    "SCHEMA",
    "Report",
    "at_exit",
    "device_row",
    "devices",
    "explain",
    "explain_at_exit",
    "machine_row",
    "not_at_exit",
    "profile_delta",
    "profile_row",
    "profile_rows",
    "report",
    "reset",
    "standing_row",
    "version",
]

SCHEMA = 1

Row = dict[str, Any]


class Report:
    """What ran where, why, what was predicted and what it took. Prints as a table."""

    __slots__ = ("_document",)

    def __init__(self, document: Row) -> None:
        self._document = document

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Return a report saved as JSON.

        Raises AlightError where the file is not one, or is of a schema this version cannot read.
        """
        import json  # late, as below: most programs read and write none

        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise AlightError(
                f"{os.fspath(path)} is not JSON: {error}. Fix: name a file that "
                "`alight run --report FILE.json` wrote."
            ) from error
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != SCHEMA:
            raise AlightError(
                f"{os.fspath(path)} has report schema {schema!r}, this version reads {SCHEMA}. "
                "Fix: make the report anew."
            )
        return cls(document)

    def to_dict(self) -> Row:
        """Return the document as plain dicts and lists, a copy."""
        import json

        copied: Row = json.loads(self.to_json())
        return copied

    def to_json(self, indent: int | None = 2) -> str:
        """Return the document as JSON; figures that are not finite are null."""
        import json

        return json.dumps(self._document, indent=indent, allow_nan=False)

    def to_html(self) -> str:
        """Return the document as one HTML page that needs no other file."""
        return tables.page(self._document)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report: HTML to ``*.html``, text to ``*.txt``, JSON to ``*.json`` and to a name
        without such an end.

        Raises ConfigError for any other end, StoreError where the file cannot be written.
        """
        checked("report", os.fspath(path), "path")
        suffix = Path(path).suffix.lower()
        if suffix == ".html":
            text = self.to_html()
        else:
            text = (str(self) if suffix == ".txt" else self.to_json()) + "\n"
        write(path, text)

    def explanation(self) -> str:
        """Return the decisions by call site, each with its losers, as text."""
        decided = "\n".join(tables.explained(self._document))
        if decided:
            return decided
        # Without a call site it is of the whole program; where there is none, work was small.
        whole = [row for row in self._document["demotions"] if row["call_site"] is None]
        told = ["no decisions:", *[f"  {row['what']}: {row['reason']}" for row in whole]]
        return "\n".join(told) if whole else _NOTHING_PLACED

    def __str__(self) -> str:
        return tables.text(self._document)

    __repr__ = __str__


def report() -> Report:
    """Return what this process has done since it started or was reset.

    ``regret_seconds`` of a decision is its measured seconds minus the least predicted seconds among
    its other candidates, or 0 where that is negative; null where either is missing. It judges by
    prediction: nobody measured the candidates that did not run. ``totals.seconds`` is the sum of
    all measured seconds.
    """
    return _reported(LOG.snapshot())


_NOTHING_PLACED = (
    "no decisions: nothing was placed. Arrays below the floor, what is not in the op table, calls "
    "of a jitted function where NumPy won, and ndarrays given to a function that is not jitted are "
    "NumPy's at once."
)


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a report's text to a file, whole or not at all.

    Raises StoreError where it cannot be written.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file():  # a pipe or a terminal; a folder refuses it
            target.write_text(text, encoding="utf-8")
            return
        # Beside its place and renamed: whoever waits for the file must not find half of it.
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            beside.write_text(text, encoding="utf-8")
            os.replace(beside, target)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()
    except OSError as error:
        raise StoreError(
            f"cannot write the report to {os.fspath(path)}: {error.strerror}. "
            "Fix: name a file in a folder that exists and can be written."
        ) from error


def explain(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report:
    """Return the report of one call: what was decided, where it ran, what it took.

    The call is made, and what it returns is evaluated. ``print(alight.explain(f,
    x).explanation())`` shows every decision with its losers; of a jitted function also which way
    such calls take and why, NumPy's or alight's.
    """
    from alight.jit import Jitted  # a process that jits nothing need not load it

    before = LOG.snapshot()
    result = function(*args, **kwargs)
    runtime.evaluate_all()
    del result  # alive until here: what nobody holds is not computed
    explained = _reported(LOG.snapshot().since(before))
    if isinstance(function, Jitted):
        name, site, way, reason = function.standing(args, kwargs)
        row = {"name": name, "call_site": place_of(site), "way": way, "reason": reason}
        explained._document["calls"] = [row]
    return explained


def devices() -> list[Row]:
    """Return the devices of this process, each with what it is, supports and was measured to do.

    ``profile`` is None for a device that was never calibrated.
    """
    known = candidates.known()
    profiles = {row["device"]: row for row in profile_rows(costs.profiles(known))}
    return [{**standing_row(device), "profile": profiles.get(device.id)} for device in known]


def _reported(snapshot: Snapshot) -> Report:
    devices = candidates.known()
    return Report(
        {
            "schema": SCHEMA,
            "alight": version(),
            "made_at": time(),
            "machine": machine_row(),
            "devices": [standing_row(device) for device in devices],
            "gone": candidates.gone(),
            "profiles": profile_rows(costs.profiles(devices)),
            "decisions": [_decision_row(record) for record in snapshot.records],
            "exits": [_tally_row(row, "name") for row in snapshot.exits],
            "fallbacks": [_tally_row(row, "what") for row in snapshot.fallbacks],
            "demotions": [_tally_row(row, "what") for row in snapshot.demotions],
            "calls": [],
            "totals": _plain(_totals(snapshot)),
        }
    )


def reset() -> None:
    """Forget all decisions, exits, fallbacks and totals."""
    LOG.reset()


_at_exit: dict[str | None, Callable[[], None]] = {}


def at_exit(path: str) -> None:
    """Write the report when this process ends: to a file, or to standard error for ``-``."""
    if path != "-":
        path = os.path.abspath(path)

    def write() -> None:
        if path == "-":
            print(report(), file=sys.stderr)
            return
        try:
            report().save(path)
        except AlightError as error:
            print(f"alight: {error}", file=sys.stderr)

    _register(path, write)


def not_at_exit(path: str | None) -> None:
    """Do not write the report there when this process ends."""
    _at_exit.pop(path if path is None or path == "-" else os.path.abspath(path), None)


def explain_at_exit() -> None:
    """Print the decisions by call site when this process ends."""

    def show() -> None:
        try:
            print(report().explanation(), flush=True)
        except BrokenPipeError:  # who reads has read enough, as of `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    _register("explain", show)


def _register(name: str, act: Callable[[], None]) -> None:
    if name in _at_exit:
        return
    _at_exit[name] = act
    owner = os.getpid()

    def here() -> None:
        # A forked child must not write over its parent's report.
        if os.getpid() == owner and _at_exit.get(name) is act:
            act()
            _still_interrupted()

    atexit.register(here)


def _still_interrupted() -> None:
    """Have an interrupted process end by its signal all the same.

    CPython remembers that the last code it was given as text was interrupted; modules that are
    imported meanwhile are given such code, too (named tuples are made of it).
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def version() -> str:
    """Return alight's version."""
    # The package stands above this module, so it is looked up and not imported.
    return str(sys.modules["alight"].__version__)


# ------------------------------------------------------------------------------------- the rows


def machine_row() -> Row:
    """Return what this machine and interpreter are."""
    vendor, model = machine.cpu_model()
    free, total = machine.host_memory()
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": machine.blas(),
        "cpu_vendor": vendor,
        "cpu": model,
        "processors": len(machine.processors()) or os.cpu_count(),
        "processor_quota": machine.processor_quota(),
        "memory_bytes": total,
        "free_memory_bytes": free,
    }


def device_row(device: Device) -> Row:
    """Return what a device says of itself."""
    return {
        "id": device.id,
        "vendor": device.vendor,
        "name": device.name,
        "space": device.space,
        "memory_bytes": device.memory_bytes,
        "unified_memory": device.unified_memory,
        "implementations": _implementations(device),
        "dtypes": sorted(device.support.dtypes),
        "gaps": [{"what": g.what, "why": g.why, "who": g.who} for g in device.support.gaps],
        "limits": dict(device.limits),
        "fingerprint": device.fingerprint,
    }


def standing_row(device: Device) -> Row:
    """Return what a device says of itself, and whether it takes part here and why (not)."""
    return {**device_row(device), **candidates.standing(device, current_policy())._asdict()}


def _implementations(device: Device) -> list[str]:
    """Return what can be chosen there, by the names that decisions use."""
    own = device.support.implementations
    # The host's library is NumPy: its products, sorts and transforms.
    return [
        name for name in IMPLEMENTATIONS if name in own or (name == "library" and "numpy" in own)
    ]


def profile_rows(profiles: Mapping[str, Profile]) -> list[Row]:
    """Return, for each device's profile, where it came from and how well it predicts.

    ``crossovers`` says, by implementation, from how many elements a float64 addition (float32 where
    the device has no float64) of arrays that are on the device is predicted to be faster than
    NumPy's; null: at no measured size. ``crossovers_by_class`` says the same of each class of work
    that was measured of both.
    """
    return [profile_row(profiles[name], profiles.get("cpu")) for name in sorted(profiles)]


def profile_row(profile: Profile, host: Profile | None = None) -> Row:
    """Return one row of `profile_rows`; without the host's profile it has no crossovers."""
    row: Row = _plain(
        {
            "device": profile.device,
            "origin": profile.origin,
            "path": profile.path,
            "overrides": _overrides(),
            "made_at": profile.made_at,
            "made_seconds": profile.made_seconds,
            # What it replaced is gone from the store; `alight calibrate` tells the change.
            "delta": None,
            "validation": profile.validation,
            "complete": profile.complete,
            "contended": profile.contended,
            "doubts": list(profile.doubts),
            "crossovers": {} if host is None else _crossovers(profile, host),
            "crossovers_by_class": {} if host is None else _by_class(profile, host),
        }
    )
    return row


# Elements that each class of work moves for one: an addition reads two and writes one.
_MOVED = {
    **{"elementwise": 3, "reduce_inner": 1, "reduce_outer": 1, "scan": 2, "sort": 2},
    **{"gather": 3, "fft": 3, "move": 4},
}


def _crossovers(profile: Profile, host: Profile) -> dict[str, int | None]:
    found = _by_class(profile, host).items()
    return {name: kinds["elementwise"] for name, kinds in found if "elementwise" in kinds}


def _by_class(profile: Profile, host: Profile) -> dict[str, dict[str, int | None]]:
    """Return from how many elements each implementation beats NumPy, by class of work."""
    rates = host.rates.get("numpy")
    found: dict[str, dict[str, int | None]] = {}
    for name, own in profile.rates.items() if rates is not None else ():
        for kind, moved in _MOVED.items() if own is not rates else ():
            for dtype, width in (("float64", 8), ("float32", 4)):
                key, size = f"{kind}/{dtype}", moved * width
                if key in own.curves and rates is not None and key in rates.curves:
                    curve, numpy = own.curves[key], rates.curves[key]
                    counts = (2**i for i in range(64) if size * 2**i <= curve.knots[-1][0])
                    found.setdefault(name, {})[kind] = next(
                        (
                            n
                            for n in counts
                            if curve.seconds_at(size * n) < numpy.seconds_at(size * n)
                        ),
                        None,
                    )
                    break
    return found


def profile_delta(old: Profile, new: Profile) -> dict[str, float]:
    """Return, for each curve in both, how much longer the new one predicts: 0.1 is 10 % longer."""
    found = {}
    for implementation, rates in new.rates.items():
        former = old.rates.get(implementation)
        for name, curve in rates.curves.items() if former is not None else ():
            before = former.curves.get(name) if former is not None else None
            if before is not None:
                ratios = [
                    math.log(curve.seconds_at(work) / before.seconds_at(work))
                    for work, _ in before.knots
                ]
                found[f"{implementation}/{name}"] = math.expm1(sum(ratios) / len(ratios))
    return found


def _overrides() -> Row:
    """Return what the policy puts in the place of measured floors."""
    return {
        row.name: {"value": row.value, "source": row.source}
        for row in config().rows()
        if row.name.startswith("floor.") and row.value is not None
    }


def _decision_row(record: Record) -> Row:
    decision = record.decision
    own = (decision.chosen, decision.implementation)
    others = [
        c.estimate.seconds
        for c in decision.candidates
        if c.estimate is not None and (c.device, c.implementation) != own
    ]
    regret = None
    if record.seconds is not None and others:
        regret = max(0.0, record.seconds - min(others))
    row: Row = _plain(
        {
            "time": record.time,
            "call_site": place_of(record.site),
            "operation": decision.operation,
            "kind": decision.kind,
            "group": decision.group,
            "dtypes": decision.dtypes,
            "shapes": decision.shapes,
            "elements": decision.elements,
            "flops": decision.flops,
            "bytes": decision.bytes,
            "batch": decision.batch,
            "residency_in": decision.residency_in,
            "chosen": decision.chosen,
            "implementation": decision.implementation,
            "reason": decision.reason,
            "threshold": decision.threshold,
            "in_place": decision.in_place,
            "candidates": [_candidate_row(candidate) for candidate in decision.candidates],
            "runs": record.runs,
            "first_run": record.first,
            "measured_seconds": record.seconds,
            "regret_seconds": regret,
        }
    )
    return row


def _candidate_row(candidate: Candidate) -> Row:
    estimate = candidate.estimate
    return {
        "device": candidate.device,
        "implementation": candidate.implementation,
        "seconds": None if estimate is None else estimate.seconds,
        "low": None if estimate is None else estimate.low,
        "high": None if estimate is None else estimate.high,
        "terms": {} if estimate is None else dict(estimate.terms),
        "reason": candidate.reason,
        "detail": candidate.detail,
    }


def _tally_row(row: Tallied, name: str) -> Row:
    made: Row = {name: row.what, "call_site": row.call_site, "count": row.times}
    if row.reason:
        made["reason"] = row.reason
    return made


def _totals(snapshot: Snapshot) -> Row:
    by_device: dict[str, int] = {}
    by_implementation = {"generated": 0, "numpy": 0, "library": 0}
    for (implementation, device), elements in snapshot.elements.items():
        by_device[device] = by_device.get(device, 0) + elements
        by_implementation[implementation] = by_implementation.get(implementation, 0) + elements
    policy = current_policy()
    least = policy.record_floor if policy.floor_given else floor.kept or floor.record_floor
    return {
        "floor_elements": least if 0 <= least < costs.EVERYTHING else None,
        "seconds": snapshot.seconds,
        "decisions": snapshot.decisions,
        "decisions_dropped": snapshot.dropped,
        **snapshot.counts,
        "element_operations": {
            "eligible": sum(by_device.values()),
            **by_implementation,
            "by_device": by_device,
        },
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner) for inner in value]
    if isinstance(value, str):
        return str(value)  # an enum's member prints as its value
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, np.integer):
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else None
