"""Devices measured one after another, as by `alight calibrate`: which, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from alight._src.base.formatting import readable_seconds
from alight._src.base.records import dataclass
from alight._src.config.loading import current_policy
from alight._src.config.schema import checked
from alight._src.explain.tables_data import Row, profile_row
from alight._src.explain.text_tables import differs, remarks
from alight._src.measure import saved_samples
from alight._src.measure.calibrate import calibrate as measure
from alight._src.measure.imported import changes, import_profile
from alight._src.measure.profile_delta import profile_delta
from alight._src.measure.profiles import load_profile, save_profile
from alight._src.run import recording_costs
from alight._src.store import default_store
from alight.backends import registry
from alight.device import HOST_DEVICE, Device

if TYPE_CHECKING:
    from alight._src.plan.cost import Profile

__all__ = ["Calibrated", "calibrate", "devices_to_calibrate", "take_over"]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What became of a device: the row of its new profile, with ``delta`` and ``changes`` against
    the one before, if one was ``known``; ``tried``: nothing was to be stored; ``kept``: how many
    points earlier calibrations had left."""

    row: Row
    known: bool
    tried: bool
    kept: int = 0

    @property
    def disturbed(self) -> bool:
        """Tell whether other work disturbed what was measured, so that it is less sure."""
        return bool(self.row["contended"])

    @property
    def rough(self) -> bool:
        """Tell whether it predicts so badly that it is stored for want of a better one."""
        return bool(self.row["rough"])

    def __str__(self) -> str:
        row = self.row
        how = "imported, measured" if row["origin"] == "imported" else "measured"
        lines = [f"{row['device']}: {how} in {readable_seconds(row['made_seconds'])}"]
        if row["path"] is not None:
            lines[0] += f", stored at {row['path']}"
        else:
            lines[0] += ", not stored"
            if self.known and not self.tried and default_store().problem is None:
                lines[0] += ": the profile before holds more and is used on"
        lines += [f"  {remark}" for remark in remarks(row, not self.tried)]
        found = row["validation"]
        if "mean_error" in found:  # a recorded device has another
            lines.append(
                f"  predictions for {found['shapes']:.0f} sizes that were not measured are off by "
                f"{found['mean_error']:.1%} on average (median {found['median_error']:.1%}, "
                f"worst {found['worst_error']:.1%})"
            )
        if row["delta"]:
            lines.append(f"  {differs(row['delta'])}")
        if row["origin"] == "measured" and "new" in found:
            lines.append(f"  {self._measurements(int(found['before']), int(found['new']))}")
        return "\n".join(lines)

    def _measurements(self, before: int, new: int) -> str:
        if before:
            return f"measurements: {before:,} from before, {new:,} new"
        over = f"; {self.kept:,} from before are passed over" if self.kept else ""
        return f"measurements: {new:,}, all new{over}"


def devices_to_calibrate(names: Sequence[str] = (), one: bool = False) -> Sequence[Device]:
    """Return the devices of these names, or else those that the settings name, or else all that
    are the machine's own; of ``one`` the first, and by default the settings' own."""
    policy = current_policy()
    if names:
        found = [registry.probed(name) for name in checked("devices", names, "argument DEVICE")]
    elif one or not registry.leaves_open(policy):
        found = [registry.probed(device.id) for device in registry.devices_allowed(policy)]
    else:
        registry.probe_all()
        found = [
            device
            for device in registry.known_devices()
            if device.id == HOST_DEVICE or (registry.real(device) and policy.allows(device.id))
        ]
    return found[:1] if one else found


def calibrate(
    device: Device,
    seconds: float,
    store: bool = True,
    progress: Callable[[float, str], bool | None] | None = None,
    fresh: bool = False,
) -> Calibrated:
    """Measure a device for so long, and store what was found; ``fresh``: from nothing, whatever
    earlier calibrations found.

    A KeyboardInterrupt goes on with a note that says what is stored by then.
    """
    before, known = load_profile(device), saved_samples.load(device)
    try:
        devices = [(registry.backend_of(device), device)]
        (made,) = measure(
            seconds, devices, progress, store, time_step=recording_costs.step_seconds, fresh=fresh
        )
    except KeyboardInterrupt as interrupt:
        then = "nothing is stored"
        if store and saved_samples.load(device) != known:
            then = "no profile is stored, but what the next calibration goes on from"
        if store and load_profile(device) != before:
            then = "what was measured until then is stored. Fix: alight calibrate again"
        interrupt.add_note(f"{device.id}: interrupted: {then}")
        raise
    return _calibrated(before, made, store, 0 if known is None else known.count)


def take_over(source: Path, device: Device, store: bool = True) -> Calibrated:
    """Take a device's profile from a file."""
    before = load_profile(device)
    made = import_profile(source, device)
    if store:
        made = save_profile(made)
        registry.remember(device)
    return _calibrated(before, made, store)


def _calibrated(before: Profile | None, made: Profile, store: bool, kept: int = 0) -> Calibrated:
    row = profile_row(made)
    row["delta"] = None if before is None else profile_delta(before, made)
    row["changes"] = [asdict(change) for change in changes(before, made)]
    return Calibrated(row, before is not None, not store, kept)
