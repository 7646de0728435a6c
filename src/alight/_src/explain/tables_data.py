"""What the log, the devices and the profiles say, as rows of a document."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from alight._core import floor
from alight._src.adapt import lazy_devices
from alight._src.adapt.learning import chosen_estimate
from alight._src.base.originals import np
from alight._src.config.loading import config, current_policy
from alight._src.config.policy import EVERYTHING
from alight._src.config.schema import IMPLEMENTATIONS
from alight._src.log.below_floor import Left
from alight._src.log.decisions import Record, Snapshot, Tallied, place_of
from alight._src.measure.profile_delta import kept_delta
from alight._src.measure.profiles import profile_key
from alight._src.plan.cost import Profile, Rates
from alight._src.plan.plan import Candidate
from alight.backends import machine
from alight.device import Device

__all__ = [
    "Row", "decision_row", "device_row", "machine_row", "median_of", "profile_row",
    "profile_rows", "standing_row", "tally_row", "totals_row",
]  # fmt: skip

Row = dict[str, Any]


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
    return {**device_row(device), **lazy_devices.standing(device, current_policy())._asdict()}


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
            "delta": kept_delta(profile_key(profile.fingerprint), profile),
            "validation": profile.validation,
            "complete": profile.complete,
            "contended": profile.contended,
            "pace_seconds": profile.pace_seconds,
            "rough": profile.rough,
            "doubts": list(profile.doubts),
            "rates": {name: _rates(rates) for name, rates in profile.rates.items()},
            "crossovers": {} if host is None else _crossovers(profile, host),
            "crossovers_by_class": {} if host is None else _by_class(profile, host),
        }
    )
    return row


# The side of the product by which a rate of multiplying is told: large enough for a library's best.
_SIDE = 1024


def _rates(rates: Rates) -> Row:
    """Return what one implementation reaches at best, of what was measured."""
    seconds = [s.seconds_at(_SIDE, _SIDE, _SIDE) for s in rates.surfaces.values()]
    moved = [
        work / took
        for name, curve in rates.curves.items()
        if name.startswith("elementwise/")
        for work, took in curve.knots
    ]
    return {
        "launch_seconds": rates.launch.value,
        "bytes_per_second": max(moved, default=None),
        "flops_per_second": 2.0 * _SIDE**3 / min(seconds) if seconds else None,
    }


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


def _overrides() -> Row:
    """Return what the policy puts in the place of measured floors."""
    return {
        row.name: {"value": row.value, "source": row.source}
        for row in config().rows()
        if row.name.startswith("floor.") and row.value is not None
    }


def decision_row(record: Record) -> Row:
    """Return a decision with its losers, and what came of it."""
    decision = record.decision
    own = (decision.chosen, decision.implementation)
    others = [
        c.known.seconds
        for c in decision.candidates
        if c.known is not None and (c.device, c.implementation) != own
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
        "source": None if estimate is None else estimate.source,
        "model_seconds": (estimate and estimate.model_seconds) or None,
        "learned_runs": 0 if estimate is None else estimate.runs,
        "reason": candidate.reason,
        "detail": candidate.detail,
    }


def tally_row(row: Tallied, name: str) -> Row:
    """Return what happened somewhere, under a name, and how often."""
    made: Row = {name: row.what, "call_site": row.call_site, "count": row.times}
    if row.reason:
        made["reason"] = row.reason
    return made


def left_row(row: Left) -> Row:
    """Return what a floor left to NumPy at one call site; seconds are of one run in the mean."""
    return {
        "operation": row.what,
        "call_site": place_of(row.site),
        "elements": row.elements,
        "runs": row.runs,
        "predicted_seconds": row.predicted / row.runs,
        "measured_seconds": row.seconds / row.runs,
        "state": row.state,
    }


def prediction_error(records: Iterable[Record]) -> float | None:
    """Return by what share of what it took the median run was predicted wrong, of the runs after
    the first; what its decision's runs took is their median. None where nothing was measured."""
    took: dict[int, tuple[Record, list[tuple[float, int]]]] = {}
    for record in records:
        if record.seconds and not record.first:
            took.setdefault(id(record.decision), (record, []))[1].append(
                (record.seconds, record.runs)
            )
    errors = []
    for record, seconds in took.values():
        estimate = chosen_estimate(record.decision)
        if estimate is not None:
            middle = median_of(seconds)
            runs = sum([times for _, times in seconds])
            errors.append((abs(estimate.seconds - middle) / middle, runs))
    return median_of(errors) if errors else None


def median_of(values: Sequence[tuple[float, int]]) -> float:
    """Return the median of values that each came so many times: at least one."""
    half = sum([times for _, times in values]) / 2
    below = 0
    lower: float | None = None  # where as many are below as above, it is between two
    for value, times in sorted(values):
        if lower is not None:
            return (lower + value) / 2
        below += times
        if below > half:
            return value
        lower = value if below == half else None
    raise ValueError("of nothing")


def totals_row(snapshot: Snapshot) -> Row:
    """Return what a process has done in all."""
    by_device: dict[str, int] = {}
    by_implementation = {"generated": 0, "numpy": 0, "library": 0}
    for (implementation, device), elements in snapshot.elements.items():
        by_device[device] = by_device.get(device, 0) + elements
        by_implementation[implementation] = by_implementation.get(implementation, 0) + elements
    policy = current_policy()
    least = policy.record_floor if policy.floor_given else floor.kept or floor.record_floor
    row: Row = _plain(
        {
            "floor_elements": least if 0 <= least < EVERYTHING else None,
            "seconds": snapshot.seconds,
            "prediction_error": prediction_error(snapshot.records),
            "decisions": snapshot.decisions,
            "decisions_dropped": snapshot.dropped,
            **snapshot.counts,
            "element_operations": {
                "eligible": sum(by_device.values()),
                **by_implementation,
                "by_device": by_device,
            },
        }
    )
    return row


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
