"""What `alight bench` does with its options: choose, run, print, write."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter

from alight._src.adapt import planner_facts
from alight._src.bench import judged
from alight._src.bench.calibration import CALIBRATION_SECONDS, Calibration, calibrate, own_cache
from alight._src.bench.device_peers import peers_on
from alight._src.bench.lines import row_line, text
from alight._src.bench.peers import HOST
from alight._src.bench.plots import draw
from alight._src.bench.programs import PROGRAMS
from alight._src.bench.regret import cases, collect
from alight._src.bench.rows import Row
from alight._src.bench.run import DTYPES, SIZES, Run, Wanted, bench
from alight._src.config.loading import current_policy
from alight.backends import registry
from alight.backends.machine import host_memory
from alight.device import Device
from alight.errors import AlightError, ConfigError

__all__ = ["run_bench", "run_regret"]


def run_bench(
    only: str | None,
    sizes: str | None,
    dtypes: str | None,
    peers: str | None,
    minutes: float,
    extras: bool,
    out: Path,
    device: str = HOST,
) -> int:
    """Run the programs, print the tables, write JSON and pictures; return 1 where a row is wrong.

    Raises ConfigError for a name that is not known, and for a folder that cannot be written.
    """
    wanted = Wanted(
        programs=_programs(only),
        sizes=_sizes(sizes),
        dtypes=_named(dtypes, DTYPES, "--dtypes"),
        peers=_named(peers, tuple(peers_on(device)), "--peers"),
        budget_seconds=minutes * 60,
        extras=extras and device == HOST,
        device=device,
    )

    def done(row: Row) -> None:
        _say("")
        print(row_line(row), file=sys.stderr, flush=True)

    _made(out)
    run = bench(wanted, _say, done)
    _say("")
    print(text(run))
    for path in _write(run, out):
        print(f"written: {path}")
    return 1 if run.faults else 0


def run_regret(
    only: str | None, sizes: str | None, dtypes: str | None, minutes: float, out: Path
) -> int:
    """Calibrate every device that takes part, time the programs' groups on every candidate and the
    programs in every place; print how well was chosen, and write the table.

    Raises ConfigError for a name that is not known, and for a folder that cannot be written, and
    AlightError where a device could not be calibrated.
    """
    until = perf_counter() + minutes * 60
    chosen = cases(_programs(only), _sizes(sizes), _named(dtypes, DTYPES, "--dtypes"))
    _made(out)
    devices = registry.devices_allowed(current_policy())
    with own_cache(",".join(device.id for device in devices)) as environment:
        _say("calibrating alight")
        # a simulated one is what its record says
        names = [d.id for d in devices if d.id == HOST or registry.real(d)]
        seconds = max(CALIBRATION_SECONDS, _CALIBRATION_SHARE * minutes * 60)
        calibration = calibrate(environment, until, names, seconds)
        _known(devices, calibration)
        table = collect(list(chosen), until - perf_counter(), _say)
    table["calibration"] = asdict(calibration)
    _say("")
    print(judged.text(table))
    path = out / "regret.json"
    path.write_text(json.dumps(table, indent=1, default=str) + "\n", encoding="utf-8")
    print(f"written: {path}")
    return 0


def _say(what: str) -> None:
    """Show what is being done in a terminal's line that is written over: carriage return, and
    "erase to the end of the line"."""
    if sys.stderr.isatty():
        print(f"\r{what}\x1b[K", end="", file=sys.stderr, flush=True)


# Of a regret's budget, what the calibration of each device may take: with the few seconds that are
# the default it would be the time for it that is judged, not the model.
_CALIBRATION_SHARE = 0.05


def _known(devices: Sequence[Device], calibration: Calibration) -> None:
    """Raise AlightError where one of these has no profile: what is predicted of nothing measured is
    no choice."""
    profiles = planner_facts.profiles(devices)
    lacking = [device.id for device in devices if device.id not in profiles]
    if lacking:
        others = ",".join(device.id for device in devices if device.id in profiles)
        # the host always takes part
        without = f", or without it (ALIGHT_DEVICES={others})" if HOST not in lacking else ""
        raise AlightError(
            f"--regret: {' and '.join(lacking)} could not be calibrated, so nothing is predicted "
            f"there ({calibration.result or 'nothing was said'}). Fix: try again when nothing else "
            f"runs, with more --budget{without}."
        )


def _made(folder: Path) -> None:
    """Make the folder for the results, before the minutes that they take."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"--out: results cannot be written to {folder}: {error.strerror}. Fix: name a folder "
            "that can be written."
        ) from None


def _write(run: Run, folder: Path) -> list[Path]:
    results = folder / "results.json"
    results.write_text(json.dumps(run.document(), indent=1) + "\n", encoding="utf-8")
    table = folder / "table.txt"
    table.write_text(text(run) + "\n", encoding="utf-8")
    written = [results, table]
    try:
        written += draw(run, folder)
    except ImportError as error:
        print(f"no pictures: {error}. Fix: pip install alight[bench]")
    return written


def _programs(asked: str | None) -> tuple[str, ...]:
    if asked is None:
        return tuple(PROGRAMS)
    patterns = [name.strip() for name in asked.split(",")]
    found = []
    for pattern in patterns:
        matched = [
            name
            for name, program in PROGRAMS.items()
            if fnmatchcase(name, pattern) or program.family == pattern
        ]
        if not matched:
            raise ConfigError(
                f"--only: {pattern!r} matches no program. Fix: name a family (fused, bandwidth, "
                f"library) or some of {', '.join(PROGRAMS)}."
            )
        found += matched
    return tuple(name for name in PROGRAMS if name in found)


def _named(asked: str | None, known: Sequence[str], option: str) -> tuple[str, ...]:
    if asked is None:
        return tuple(known)
    given = [name.strip() for name in asked.split(",")]
    for name in given:
        if name not in known:
            raise ConfigError(
                f"{option}: {name!r} is not known. Fix: name some of {', '.join(known)}."
            )
    return tuple(name for name in known if name in given)


def _sizes(asked: str | None) -> tuple[int, ...]:
    if asked is None:
        return SIZES
    found = []
    most = host_memory()[1] // 4  # one array of the smaller dtype, float32
    for word in asked.split(","):
        base, _, power = word.strip().partition("^")
        try:
            # a power of more digits than any size has would itself take for ever
            n = int(base) ** min(int(power or 1), 64)
        except (ValueError, ZeroDivisionError):
            n = 0
        # Below this a program has no row, image or step of its own to work on.
        if n < min(SIZES):
            raise ConfigError(
                f"--sizes: {word.strip()!r} is no size of {min(SIZES)} or more. "
                "Fix: write for example 2^17,131072."
            )
        if n > most:
            raise ConfigError(
                f"--sizes: {word.strip()!r} elements are no size that this machine's memory holds. "
                f"Fix: write at most {most}."
            )
        found.append(n)
    return tuple(sorted(set(found)))
