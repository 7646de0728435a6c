"""Figures from a table of `alight bench --regret`: how well predicted, how well chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from alight.tables import aligned, readable_seconds

__all__ = ["DECIDABLE", "figures", "text"]

Row = dict[str, Any]

# Two candidates this close are as good as one another on a machine that is not quiet.
DECIDABLE = 0.10


def figures(table: Mapping[str, Any]) -> Row:
    """Return the figures of a table.

    ``groups``: how many had two candidates or more; ``decidable``: how many of them differ by more
    than 10 %; ``right``: the share of these in which the cheapest by prediction is within 10 % of
    the best; ``regret``: geometric mean and worst of the time lost, as a share, over all groups.
    ``programs`` says the same of whole programs, planned against the best of all places.
    ``mape`` is the mean error of predictions by class, in shares; ``coverage`` the share of
    measured seconds inside the 80 % interval.
    """
    groups = [group for group in table["groups"].values() if len(_known(group)) > 1]
    chosen = [_regret(group) for group in groups]
    apart = [regret for group, regret in zip(groups, chosen, strict=True) if _decidable(group)]
    errors: dict[str, list[float]] = {}
    inside = []
    for group in table["groups"].values():
        for place, row in _known(group).items():
            error = abs(row["predicted"] / row["seconds"] - 1.0)
            own = place.rpartition(":")[2]
            errors.setdefault(f"{_class(group)}, {own}", []).append(error)
            inside.append(row["low"] <= row["seconds"] <= row["high"])
    programs = [p for p in table["programs"] if "planned" in p["seconds"]]
    lost = [p["seconds"]["planned"] / min(p["seconds"].values()) - 1.0 for p in programs]
    return {
        "groups": len(groups),
        "decidable": len(apart),
        "right": _share([regret <= DECIDABLE for regret in apart]),
        "regret": _mean(chosen),
        "worst_regret": max(chosen, default=None),
        "mape": {name: sum(found) / len(found) for name, found in sorted(errors.items())},
        "predictions": {name: len(found) for name, found in sorted(errors.items())},
        "coverage": _share(inside),
        "programs": len(programs),
        "program_regret": _mean(lost),
        "worst_program_regret": max(lost, default=None),
    }


def _known(group: Row) -> dict[str, Row]:
    return {place: row for place, row in group["places"].items() if "predicted" in row}


def _class(group: Row) -> str:
    """Return the class of a group: fused ones apart from single ops, by how they run."""
    return f"fused {group['kind']}" if group["nodes"] > 1 else str(group["kind"])


def _regret(group: Row) -> float:
    """Return the share lost by running a group where it is predicted to take least."""
    places = _known(group)
    taken = min(places.values(), key=lambda row: row["predicted"])
    return float(taken["seconds"] / min(row["seconds"] for row in places.values()) - 1.0)


def _decidable(group: Row) -> bool:
    first, second = sorted(row["seconds"] for row in _known(group).values())[:2]
    return bool(second > (1.0 + DECIDABLE) * first)


def _share(found: Sequence[bool]) -> float | None:
    return sum(found) / len(found) if found else None


def _mean(regrets: Iterable[float]) -> float | None:
    ratios = [1.0 + regret for regret in regrets]
    return geometric_mean(ratios) - 1.0 if ratios else None


def text(table: Mapping[str, Any]) -> str:
    """Return a table's figures and its worst rows for a terminal."""
    found = figures(table)
    lines = [
        f"{found['groups']} groups with a choice, {found['decidable']} of them differ by more than "
        f"10 %: {_percent(found['right'])} chosen right",
        f"regret of groups: {_percent(found['regret'])} in the mean, "
        f"{_percent(found['worst_regret'])} at worst",
        f"regret of {found['programs']} programs: {_percent(found['program_regret'])} in the mean, "
        f"{_percent(found['worst_program_regret'])} at worst",
        f"intervals of 80 % hold {_percent(found['coverage'])} of what was measured",
        "",
        "Predictions",
    ]
    rows = [
        [name, str(found["predictions"][name]), _percent(error)]
        for name, error in found["mape"].items()
    ]
    lines += aligned(["class, implementation", "predicted", "mean error"], rows)
    lines += ["", "Programs, the worst chosen first"]
    programs = [p for p in table["programs"] if "planned" in p["seconds"]]

    def lost(program: Row) -> float:
        return float(program["seconds"]["planned"] / min(program["seconds"].values()) - 1.0)

    programs.sort(key=lambda p: -lost(p))
    cells = []
    for program in programs:
        seconds = dict(program["seconds"])
        planned = seconds.pop("planned")
        best = min(seconds, key=seconds.__getitem__)
        cells.append(
            [
                *(program["program"], str(program["n"]), program["dtype"]),
                *(readable_seconds(planned), best, readable_seconds(seconds[best])),
                _percent(lost(program)),
            ]
        )
    header = ["program", "elements", "dtype", "planned", "best place", "there", "regret"]
    lines += aligned(header, cells)
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    if share is None or not math.isfinite(share):
        return "unknown"
    return f"{share:.1%}"
