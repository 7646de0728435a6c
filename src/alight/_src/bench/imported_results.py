"""What a benchmark measured, taken over: its programs are planned here and not run, and predictions
learn from what they took there."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from alight._src.adapt import learning, planner_facts
from alight._src.base.failures import failures
from alight._src.base.formatting import readable_seconds
from alight._src.bench.programs import PROGRAMS
from alight._src.bench.regret import planned
from alight._src.bench.rows import Case
from alight._src.config.loading import policy
from alight._src.explain.text_tables import aligned
from alight._src.measure.imported import check_machine, read_file
from alight._src.plan.plan import Estimate, LaunchStep
from alight._src.plan.profile import Profile
from alight.backends import registry
from alight.backends.machine import host_memory
from alight.device import HOST_DEVICE
from alight.errors import StoreError

__all__ = ["as_text", "import_results"]

Row = dict[str, Any]
# Of a benchmark's peers those that are ours to predict, and how their work is placed.
_PEERS: Mapping[str, str | None] = {"numpy": "cpu:numpy", "alight": None}
# Beyond any call of a benchmark, which has minutes for all of them.
_MOST_SECONDS = 3600.0
_MEMORY_SHARE = 0.5  # of what is free: inputs are made to be planned for


def import_results(path: str | os.PathLike[str], *, store: bool = True) -> list[Row]:
    """Return what predictions learn from the result of ``alight bench``, made on this machine.

    Each program of the result is planned at each of its sizes, and what NumPy and alight took for
    it corrects what is predicted of such work, from the next start on.

    Parameters
    ----------
    path : str or path-like
        The JSON that ``alight bench`` wrote.
    store : bool, optional
        False: say what would change, and keep nothing.

    Returns
    -------
    list of dict
        For each program, size, dtype and who ran it (``by``): seconds ``measured``, and predicted
        ``before`` and ``after``.

    Raises
    ------
    StoreError
        Where the file is none, holds what no clock shows, or was made on another machine; or this
        machine has no profile.

    Examples
    --------
    >>> import alight
    >>> alight.import_results("absent.json")
    Traceback (most recent call last):
        ...
    alight.errors.StoreError: absent.json is not imported: No such file or directory. \
Fix: name a file that `alight bench` wrote.
    """
    name = os.fspath(path)
    try:
        document = read_file(Path(path))
        rows = list(_rows(document))
    except failures(OSError) as error:
        why = f"{error.strerror or error}. Fix: name a file that `alight bench` wrote."
        raise StoreError(f"{name} is not imported: {why}") from error
    except failures(ValueError) as error:
        raise StoreError(f"{name} is not imported: {error}") from error
    host = registry.device(HOST_DEVICE)
    check_machine(document, host)
    profile = planner_facts.profile_of(host)
    if profile is None:
        raise StoreError(
            f"{name} is not imported: there is no profile that it could correct. "
            "Fix: alight calibrate, then import."
        )
    return _taught(rows, profile, store)


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[Case, str, float]]:
    """Yield who took how many seconds for what. Raises ValueError for what no benchmark wrote."""
    rows, fix = document.get("rows"), "Fix: name a file that `alight bench` wrote."
    if not isinstance(rows, list) or not isinstance(document.get("machine"), dict):
        raise ValueError(f"it is no result of a benchmark. {fix}")
    for row in rows:
        try:
            case = Case(str(row["program"]), int(row["n"]), str(row["dtype"]))
            peers = {by: row["peers"][by].get("seconds") for by in _PEERS if by in row["peers"]}
        except failures(KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"one of its rows is none: {error!r}. {fix}") from error
        if case.program not in PROGRAMS or case.dtype not in ("float32", "float64"):
            continue  # another version's
        for by, seconds in peers.items():
            if seconds is None:
                continue
            if not isinstance(seconds, (int, float)) or not 0.0 < seconds < _MOST_SECONDS:
                raise ValueError(f"{case.program} by {by}: no clock shows {seconds!r} s. {fix}")
            yield case, by, float(seconds)


def _taught(rows: Sequence[tuple[Case, str, float]], profile: Profile, store: bool) -> list[Row]:
    bins: dict[str, tuple[float, dict[int, float]]] = {}
    told: list[tuple[Row, list[Estimate]]] = []
    for case, by, seconds in rows:
        if case.memory_bytes(1) > _MEMORY_SHARE * host_memory()[0]:
            continue
        parts = _estimates(case, _PEERS[by])
        if not parts:
            continue
        model = sum([part.model_seconds for part in parts])
        # of a whole call nobody knows which part took longer: all of them did
        place = learning.place_of(seconds, model)
        for part in parts:
            _, found = bins.setdefault(part.cell, (math.log2(part.model_seconds), {}))
            found[place] = found.get(place, 0.0) + 1.0 / len(parts)
        before = sum([part.seconds for part in parts])
        row = {"program": case.program, "n": case.n, "dtype": case.dtype, "by": by}
        told.append(({**row, "measured": seconds, "before": before}, parts))
    # What a benchmark measured is the median of many runs.
    weighed = {
        cell: (unit, {place: _RUNS * weight for place, weight in found.items()})
        for cell, (unit, found) in bins.items()
    }
    known = learning.teach(profile, weighed, store)
    for row, parts in told:
        row["after"] = sum(
            [p.model_seconds * known.factor(p.cell, p.model_seconds).times for p in parts]
        )
    return [row for row, _ in told]


_RUNS = 15.0  # the least that a median of the benchmark is of: five turns of three


def _estimates(case: Case, force: str | None) -> list[Estimate]:
    """Return what is predicted of the steps of a program; nothing where of one nothing is."""
    with policy(devices=[HOST_DEVICE], force=force, floor=0, learn="next", pick="model"):
        steps = [
            step
            for request in planned((case.program, case.n, case.dtype))
            for step in request.plan().steps
            if isinstance(step, LaunchStep)
        ]
    found = [learning.chosen_estimate(step.decision) for step in steps]
    known = [one for one in found if one is not None and one.cell]
    return known if len(known) == len(found) else []


def as_text(rows: Sequence[Row]) -> str:
    """Return what changes as a table, and how far off predictions are before and after."""
    if not rows:
        return "no program of it is one of this version's that is predicted here"
    cells = [
        [
            *(row["program"], f"{row['n']:,}", row["dtype"], row["by"]),
            *[readable_seconds(row[name]) for name in ("measured", "before", "after")],
        ]
        for row in rows
    ]
    header = ["program", "elements", "dtype", "by", "measured", "before", "after"]
    before, after = (
        median([abs(row[name] - row["measured"]) / row["measured"] for row in rows])
        for name in ("before", "after")
    )
    end = f"off by {before:.0%} in the median before, {after:.0%} after"
    return "\n".join([*aligned(header, cells), end])
