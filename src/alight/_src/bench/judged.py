"""Figures from a table of `alight bench --regret`: how well predicted, how well chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from alight._src.base.formatting import readable_seconds
from alight._src.explain.text_tables import aligned

__all__ = ["DECIDABLE", "figures", "text"]

Row = dict[str, Any]

# Two candidates this close are as good as one another on a machine that is not quiet.
DECIDABLE = 0.10


def figures(table: Mapping[str, Any]) -> Row:
    """Return the figures of a table.

    ``groups``: how many had two candidates or more; ``decidable``: how many of them differ by more
    than 10 %; ``right``: the share of these in which the cheapest by prediction is within 10 % of
    the best; ``regret``: geometric mean and worst of the time lost, as a share, over all groups,
    whose arrays lie where they run. ``from_host`` says it of groups whose arrays lie on the host
    and whose results are wanted there, ``programs`` of whole programs, planned against the best of
    all places, called again and again, and ``apart`` of their first calls after other ones.
    ``mape`` is the mean error of predictions by class, in shares; ``coverage`` the share of
    measured seconds inside the 80 % interval.
    """
    groups, chosen, apart = _chosen(table["groups"].values())
    _, carried, carried_apart = _chosen(_from_host(table))
    errors: dict[str, list[float]] = {}
    inside = []
    for group in table["groups"].values():
        for place, row in _known(group).items():
            error = abs(row["predicted"] / row["seconds"] - 1.0)
            own = place.rpartition(":")[2]
            errors.setdefault(f"{_class(group)}, {own}", []).append(error)
            inside.append(row["low"] <= row["seconds"] <= row["high"])
    programs = [p for p in table["programs"] if "planned" in p["seconds"]]
    lost = [_lost(p["seconds"]) for p in programs]
    first = [_lost(p["apart"]) for p in programs if "apart" in p]
    return {
        "groups": len(groups),
        "decidable": len(apart),
        "right": _share([regret <= DECIDABLE for regret in apart]),
        "regret": _mean(chosen),
        "worst_regret": max(chosen, default=None),
        "from_host": {
            "decidable": len(carried_apart),
            "right": _share([regret <= DECIDABLE for regret in carried_apart]),
            "regret": _mean(carried),
            "worst_regret": max(carried, default=None),
        },
        "mape": {name: sum(found) / len(found) for name, found in sorted(errors.items())},
        "predictions": {name: len(found) for name, found in sorted(errors.items())},
        "coverage": _share(inside),
        "programs": len(programs),
        "program_regret": _mean(lost),
        "worst_program_regret": max(lost, default=None),
        "program_regret_apart": _mean(first),
        "worst_program_regret_apart": max(first, default=None),
    }


def _lost(seconds: Mapping[str, float]) -> float:
    """Return the share that a program lost as planned, of the seconds in all its places."""
    return seconds["planned"] / min(seconds.values()) - 1.0


def _chosen(groups: Iterable[Row]) -> tuple[list[Row], list[float], list[float]]:
    """Return those of these groups that have a choice, the regret of each, and the regrets of those
    whose candidates differ."""
    open_ones = [group for group in groups if len(_known(group)) > 1]
    regrets = [_regret(group) for group in open_ones]
    pairs = zip(open_ones, regrets, strict=True)
    return open_ones, regrets, [regret for group, regret in pairs if _decidable(group)]


def _from_host(table: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the groups of a table with the copies of all that they read, and make, where they are
    not the host's; nothing where no copy was timed."""
    copies = table.get("copies", {})
    for group in table["groups"].values() if copies else ():
        places = {}
        for place, row in group["places"].items():
            known = copies.get(place.rpartition(":")[0])
            ways = (("upload", "inputs"), ("download", "outputs"))
            moved = [known[way][str(n)] for way, ends in ways for n in group[ends] if known]
            more = {key: sum(copy[key] for copy in moved) for key in ("seconds", "predicted")}
            places[place] = {key: value + more.get(key, 0.0) for key, value in row.items()}
        yield {**group, "places": places}


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
    carried = found["from_host"]
    lines = [_profiles(table)] if table.get("profiles") else []
    lines += [
        f"{found['groups']} groups with a choice, {found['decidable']} of them differ by more than "
        f"10 %: {_percent(found['right'])} chosen right",
        f"regret of groups: {_percent(found['regret'])} in the mean, "
        f"{_percent(found['worst_regret'])} at worst",
        f"from the host's memory and back, {carried['decidable']} groups: "
        f"{_percent(carried['right'])} chosen right, {_percent(carried['regret'])} lost in the "
        f"mean, {_percent(carried['worst_regret'])} at worst",
        f"regret of {found['programs']} programs: {_percent(found['program_regret'])} in the mean, "
        f"{_percent(found['worst_program_regret'])} at worst; called for the first time after "
        f"another one {_percent(found['program_regret_apart'])} and "
        f"{_percent(found['worst_program_regret_apart'])}",
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
    programs.sort(key=lambda p: -_lost(p["seconds"]))
    cells = []
    for program in programs:
        seconds = dict(program["seconds"])
        planned = seconds.pop("planned")
        best = min(seconds, key=seconds.__getitem__)
        cells.append(
            [
                *(program["program"], str(program["n"]), program["dtype"]),
                *(readable_seconds(planned), best, readable_seconds(seconds[best])),
                _percent(_lost(program["seconds"])),
            ]
        )
    header = ["program", "elements", "dtype", "planned", "best place", "there", "regret"]
    lines += aligned(header, cells)
    return "\n".join(lines)


def _profiles(table: Mapping[str, Any]) -> str:
    """Return how long each device was measured for the profile that predictions come from."""
    known = [
        f"{name} as recorded"
        if profile["origin"] == "recorded"
        else f"{name} measured for {readable_seconds(profile['made_seconds'])}"
        + ("" if profile["complete"] else f" ({_percent(_measured(profile))} of what there is)")
        for name, profile in table["profiles"].items()
    ]
    return f"profiles: {', '.join(known)}"


def _measured(profile: Row) -> float | None:
    share: float | None = profile["validation"].get("measured")
    return share


def _percent(share: float | None) -> str:
    if share is None or not math.isfinite(share):
        return "unknown"
    return f"{share:.1%}"
