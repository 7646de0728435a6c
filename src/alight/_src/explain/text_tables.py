"""A report as text for people: tables, and decisions by call site."""

from __future__ import annotations

import math
import os.path
from collections.abc import Iterable
from typing import Any

from alight._src.base.failures import failures
from alight._src.base.formatting import readable_bytes, readable_seconds
from alight._src.config.loading import calibrate_here
from alight._src.explain.tables_data import median_of

__all__ = [
    "CALIBRATION_SECONDS",
    "aligned",
    "differs",
    "explained",
    "rates",
    "remarks",
    "text",
]

Row = dict[str, Any]

# What `alight calibrate` takes for a device where nobody says how long it may: what one may take
# from nothing, by the design.
CALIBRATION_SECONDS = 5.0
SHOWN = 10  # lines a table may have before the report is longer than a terminal

Table = tuple[str, list[str], list[list[str]]]


def headlines(document: Row) -> list[str]:
    """Return what made the report, versions and machine, and where the program's files are."""
    box = document["machine"]
    made = (
        f"alight {document['alight']}, NumPy {box['numpy']}, Python {box['python']}, "
        f"{box['processors']} × {box['cpu']}"
    )
    folder = _folder(document)
    return [made, f"call sites in {folder}"] if folder else [made]


def tables(document: Row, limit: float) -> Iterable[Table]:
    """Yield title, header and rows of each part that has any."""
    cut, most = len(_folder(document)), None if limit == math.inf else int(limit)
    if len(document["devices"]) > 1:  # the host alone stands in the headline
        yield (
            "Devices",
            ["device", "name", "memory", "implementations", "takes part"],
            [
                [
                    *(d["id"], d["name"], readable_bytes(d["memory_bytes"])),
                    ", ".join(d["implementations"]),
                    f"{'yes' if d['takes_part'] else 'no'}: {d['why']}",
                ]
                for d in document["devices"]
            ],
        )
    if document["gone"]:
        gone = [[name, reason] for name, reason in document["gone"].items()]
        yield "Devices that were calibrated and take no part", ["device", "reason"], gone
    if calls := document.get("calls"):  # older reports have none
        header = ["call", "call site", "way", "reason"]
        yield "Calls", header, [[c["name"], _site(c, cut), c["way"], c["reason"]] for c in calls]
    totals = document["totals"]
    below: list[Row] = []
    rows: list[Row] = []
    for row in _merged(document["decisions"]):
        (below if row["reason"] == "below_floor" else rows).append(row)
    header = ["call site", "operation", "elements", "ran on", "reason", "runs", "predicted"]
    header.append("measured")
    if rows:
        title = f"Decisions: {totals['decisions']}, {readable_seconds(totals['seconds'])} measured"
        if totals.get("prediction_error") is not None:  # older reports do not say
            title += f", predictions off by {totals['prediction_error']:.0%} in the median"
        if totals["decisions_dropped"]:
            title += f", {totals['decisions_dropped']} no longer in the log"
        if len(rows) > limit:
            title += f"; the {limit} kinds that took longest"
        yield title, header, [_line(row, cut) for row in rows[:most]]
    small = [_line(row, cut) for row in below]
    small += [_left(row, cut) for row in document.get("below_floor", ())]  # older reports have none
    if small:
        title = "Below the floor: NumPy's at once, sampled"
        if len(small) > limit:
            title += f"; the {limit} kinds that took longest"
        yield title, header, small[:most]
    if loops := document.get("loops"):  # older reports have none
        header = ["loop at", "plans", "turns", "where", "a turn here", "there", "moving", "regret"]
        yield "Loops", [*header, "why"], [_loop(row, cut) for row in loops[:most]]
    for part, name in (("exits", "name"), ("fallbacks", "what"), ("demotions", "what")):
        found = document[part]
        if found:
            title = f"{part.capitalize()}: {totals[part]}"
            if len(found) > limit:
                title += f"; the {limit} most frequent"
            # An exit has none beside what the word means; the others say theirs.
            more = ["reason"] if part != "exits" else []
            yield (
                title,
                [name, "call site", "times", *more],
                [
                    [
                        row[name],
                        _site(row, cut),
                        str(row["count"]),
                        *(row.get(key, "") for key in more),
                    ]
                    for row in found[:most]
                ],
            )
    yield "Totals", ["what", "value"], [[k, v] for k, v in _flat(totals)]


def _loop(row: Row, cut: int) -> list[str]:
    """Return the line of a loop in a table."""
    sites = [site[cut:] for site in row["call_sites"]]
    lines = sites[0] if sites else ""
    if len(sites) > 1:
        lines += f" to {sites[-1].rpartition(':')[2]}"
    at = row["switched_at"]
    where = row["state"] + (f" since turn {at[-1]}" if at else "")
    if row["device"] is not None:
        where += f" ({row['device']})"
    seconds = [
        "" if row[name] is None else readable_seconds(row[name])
        for name in ("here_seconds", "there_seconds", "moving_seconds", "regret_seconds")
    ]
    return [lines, str(row["period"]), str(row["turns"]), where, *seconds, row["reason"]]


def _folder(document: Row) -> str:
    """Return the folder that all call sites are in, with its last separator; "" for none."""
    parts = ("calls", "decisions", "exits", "fallbacks", "demotions", "below_floor")
    sites = {row["call_site"] for part in parts for row in document.get(part, ())} - {None}
    sites.update([site for row in document.get("loops", ()) for site in row["call_sites"]])
    folders = {os.path.dirname(site) for site in sites}
    if not folders or not all(map(os.path.isabs, folders)):
        return ""
    try:
        return os.path.join(os.path.commonpath(folders), "")
    except failures(ValueError):  # on several drives
        return ""


def _flat(totals: Row) -> Iterable[tuple[str, str]]:
    """Yield the totals that are not 0."""
    for name, value in totals.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", text) for inner, text in _flat(value))
        elif name == "seconds":
            yield name, readable_seconds(value)
        elif name == "prediction_error":  # beside the decisions
            continue
        elif value:
            share = f" ({value / totals['eligible']:.0%})" if totals.get("eligible") else ""
            yield name, f"{value:,}{share}{_REMARKS.get(name, '')}"


_REMARKS = {"floor_elements": ": additions of fewer are NumPy's at once"}


def _merged(decisions: list[Row]) -> list[Row]:
    """Return decisions that differ only in time as one, those that took longest first."""
    merged: dict[tuple[Any, ...], Row] = {}
    for row in decisions:
        key = tuple(str(row[name]) for name in _SAME)
        found = merged.get(key)
        if found is None:
            found = merged[key] = {**row, "runs": 0, "measured_seconds": 0.0, "later": []}
            found["first"], found["over"] = [], 0
        found["runs"] += row["runs"]
        found["over"] += row["runs"] * row.get("in_place", False)
        seconds = row["measured_seconds"]
        if seconds is not None:
            found["measured_seconds"] += seconds * row["runs"]
            first = row.get("first_run")  # older reports do not say
            found["first" if first else "later"].append((seconds, row["runs"]))
    return sorted(merged.values(), key=lambda row: -row["measured_seconds"])


_SAME = ("call_site", "operation", "group", "shapes", "chosen", "implementation", "reason")


def _predicted(row: Row) -> str:
    """Return what was predicted of who was chosen."""
    own = row["chosen"], row["implementation"]
    for candidate in row["candidates"]:
        if (candidate["device"], candidate["implementation"]) == own:
            return _prediction(candidate)
    return readable_seconds(None)


def _prediction(candidate: Row) -> str:
    """Return predicted seconds, and what made them of the profile's."""
    seconds, model = candidate["seconds"], candidate.get("model_seconds")  # as below
    text, runs = readable_seconds(seconds), candidate.get("learned_runs", 0)
    if not seconds or not model or "measured" in candidate["terms"]:
        return text
    times = f"×{seconds / model:.2g}"
    if runs:
        return f"{text} ({times}, learned from {_runs(runs)})"
    # less is within the steps that are counted by
    return f"{text} ({times}, as other work)" if abs(seconds / model - 1.0) > 0.1 else text


def _measured(row: Row) -> str:
    """Return the median of the runs after the first; first runs alone say that they are."""
    if row["later"]:
        return readable_seconds(median_of(row["later"]))
    first = row["first"]
    if not first:
        return readable_seconds(None)
    return f"{readable_seconds(median_of(first))} (first run{'s' * (len(first) > 1)})"


def _site(row: Row, cut: int) -> str:
    return (row["call_site"] or "")[cut:]


def _line(row: Row, cut: int) -> list[str]:
    return [
        _site(row, cut),
        row["operation"],
        f"{row['elements']:,}",
        f"{row['chosen']}:{row['implementation']}",
        row["reason"],
        str(row["runs"]),
        _predicted(row),
        _measured(row),
    ]


# What `floor.sites` says of who has a call site by now.
_STATES = {
    "numpy": "below_floor",
    "open": "below_floor, now on trial",
    "recorded": "below_floor, recorded now",
    "lost": "below_floor, as it lost",
}


def _left(row: Row, cut: int) -> list[str]:
    """Return the line of what a floor left to NumPy."""
    return [
        _site(row, cut),
        row["operation"],
        f"{row['elements']:,}",
        "cpu:numpy",
        _STATES[row["state"]],
        str(row["runs"]),
        readable_seconds(row["predicted_seconds"]),
        readable_seconds(row["measured_seconds"]),
    ]


def explained(document: Row) -> Iterable[str]:
    """Yield the decisions by call site, each with its losers, and the exits, as lines; jitted calls
    first."""
    for call in document.get("calls", ()):  # older reports have none
        site = f" at {call['call_site']}" if call["call_site"] else ""
        yield f"{call['name']}{site}: {call['way']} ({call['reason']})"
    yield from _unmeasured(document)
    by_site: dict[str, list[Row]] = {}
    for row in _merged(document["decisions"]):
        by_site.setdefault(row["call_site"] or "an unknown place", []).append(row)
    exits: dict[str, list[str]] = {}
    for row in document["exits"]:
        text = f"  {row['name']}: NumPy's own (exit), {_runs(row['count'])}"
        exits.setdefault(row["call_site"] or "an unknown place", []).append(text)
    for row in document.get("below_floor", ()):
        text = (
            f"  {row['operation']}, {row['elements']:,} elements: cpu:numpy "
            f"({_STATES[row['state']]}), {_runs(row['runs'])}, predicted "
            f"{readable_seconds(row['predicted_seconds'])}, measured "
            f"{readable_seconds(row['measured_seconds'])}"
        )
        exits.setdefault(row["call_site"] or "an unknown place", []).append(text)
    for site in dict.fromkeys((*by_site, *exits)):
        rows = by_site.get(site, [])
        yield site
        for row in rows:
            yield (
                f"  {row['operation']}, {row['elements']:,} elements, "
                f"{', '.join(dict.fromkeys(row['dtypes']))}: "
                f"{row['chosen']}:{row['implementation']} ({row['reason']}), "
                f"{_runs(row['runs'])}{_over(row['over'])}, "
                f"predicted {_predicted(row)}, "
                f"measured {_measured(row)}"
            )
            for candidate in row["candidates"]:
                name = f"{candidate['device']}:{candidate['implementation']}"
                if name != f"{row['chosen']}:{row['implementation']}":
                    why = " ".join(filter(None, (candidate["reason"], candidate["detail"])))
                    yield f"    not {name}: {_prediction(candidate)} {why}".rstrip()
        yield from exits.get(site, ())


def rates(profile: Row | None) -> list[str]:
    """Return what each implementation reaches at best, and how the profile differs from the one
    before."""
    if profile is None:
        return []
    lines = []
    for name, row in profile.get("rates", {}).items():  # older reports have none
        words = [f"launch {readable_seconds(row['launch_seconds'])}"]
        if row["bytes_per_second"]:
            words.append(f"{row['bytes_per_second'] / 1e9:.3g} GB/s")
        if row["flops_per_second"]:
            words.append(f"{row['flops_per_second'] / 1e9:.3g} GFLOP/s")
        lines.append(f"{name}: {', '.join(words)}")
    if profile["delta"]:
        lines.append(f"profile: {differs(profile['delta'])}")
    return lines


def differs(delta: dict[str, float]) -> str:
    """Return in words how a profile differs from the one before."""
    apart = sorted(delta.items(), key=lambda change: change[1])
    low, high = apart[(len(apart) - 1) // 2][1], apart[len(apart) // 2][1]
    ends = " to ".join(f"{change:+.1%} ({name})" for name, change in (apart[0], apart[-1]))
    return (
        f"against the profile before, {len(apart)} curves predict {(low + high) / 2:+.1%} time in "
        f"the median, {ends}"
    )


def remarks(profile: Row | None, goes_on: bool = True) -> list[str]:
    """Return what a reader of a profile's predictions has to know of it, with what to do;
    ``goes_on``: what it measured was kept for the next calibration."""
    if profile is None:
        return []
    doubts = profile.get("doubts", ())  # older reports have none
    found, lines = profile["validation"], []
    taken = readable_seconds(profile.get("made_seconds"))
    if profile.get("contended"):
        why = "".join([f": {doubt}" for doubt in doubts])
        doubts = ()
        lines.append(
            f"other work disturbed the measuring, and intervals are as wide as that{why}. "
            f"Fix: {_GOES_ON}"
        )
    if profile.get("rough"):
        lines.append(
            f"rough: predictions are off by {found['median_error']:.0%} in the median, and their "
            "intervals as wide. Fix: `alight calibrate` when the machine is quiet"
        )
    # What was imported, or is of other versions by now, has left nothing here.
    goes_on = goes_on and profile["origin"] == "measured" and "new" in found and not doubts
    # one that was interrupted is not complete even where all points were reached
    if not profile.get("complete", True) and found.get("measured", 0.0) < 1.0:
        share = f", {found['measured']:.0%} of it was measured" if found.get("measured") else ""
        lines.append(
            f"the time was too short for all of it: {taken}{share}. Fix: {_rest(profile, goes_on)}"
        )
    elif profile["origin"] == "measured" and "shapes" not in found:
        # what is known by then takes no time of the next one
        fix = _GOES_ON if goes_on else "`alight calibrate` with more --seconds"
        lines.append(f"the time was too short to try what it predicts: {taken}. Fix: {fix}")
    if "slow" in found:
        lines.append(
            f"{found['slow']:.0%} of what one thread runs was met in slow moments alone and left "
            "out. Fix: `alight calibrate` when the machine is quiet"
        )
    for name, error in found.items():
        if name.startswith("left_out_"):
            lines.append(
                f"{name.removeprefix('left_out_')}: matrix products are left out, as they were off "
                f"by {error:.0%} in the median. Fix: `alight calibrate` when the machine is quiet"
            )
    return [*lines, *[f"it is sure of less: {doubt}" for doubt in doubts]]


_GOES_ON = "`alight calibrate`, which goes on from there"


def _rest(profile: Row, goes_on: bool) -> str:
    """Return which calibration measures what there was no time for: all of it or, where it goes on
    from this one, the rest."""
    found, seconds = profile["validation"], profile.get("made_seconds")
    measured = found.get("measured")
    if not (measured and seconds):  # it was interrupted
        return _GOES_ON if goes_on else "`alight calibrate --seconds` with more of them"
    if not goes_on:
        return f"`alight calibrate --seconds {math.ceil(seconds / measured)}`, or more"
    rest = math.ceil(seconds * (1.0 - measured) / measured)
    # Of what earlier ones measured nobody knows how long it took; a short one that goes on from
    # them reaches little beside what it does once (2 of 500 points in 0.5 s).
    if found.get("before") or rest <= CALIBRATION_SECONDS:
        return _GOES_ON
    return f"`alight calibrate --seconds {rest}`, or more, which goes on from there"


def _unmeasured(document: Row) -> list[str]:
    """Return what to do where work stayed in NumPy because nothing was measured, and where what was
    is not to be relied on."""
    rough = [row for row in document["profiles"] if row.get("rough")]
    lines = [f"{row['device']}'s profile: {remarks(row)[0]}" for row in rough]
    # older reports have no such field
    lines += [f"{d['id']}: {d['why']}" for d in document["devices"] if d.get("no_profile")]
    candidates = [c for row in document["decisions"] for c in row["candidates"]]
    unknown = any(
        (c["device"], c["reason"]) == ("cpu", "uncalibrated") and c["implementation"] != "generated"
        for c in candidates
    )
    if unknown or any(row["reason"] == "uncalibrated" for row in document["decisions"]):
        lines.append(
            f"uncalibrated work is NumPy's. Fix: run {calibrate_here()} while the machine is quiet"
        )
    return lines


def _over(count: int) -> str:
    return f" ({count} in place of an operand)" if count else ""


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def aligned(header: list[str], rows: list[list[str]]) -> Iterable[str]:
    """Yield the rows as lines whose columns line up."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        yield "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()


def text(document: Row, limit: float = SHOWN) -> str:
    """Return the report as tables for a terminal, of so many lines each at most."""
    lines = headlines(document)
    lines += _unmeasured(document)
    for title, header, rows in tables(document, limit):
        lines += ["", title, *aligned(header, rows)]
    return "\n".join(lines)
