"""A report as text for people: tables, and decisions by call site."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

__all__ = ["aligned", "explained", "page", "readable_bytes", "readable_seconds", "text"]

Row = dict[str, Any]

SHOWN = 20  # lines a table may have on a terminal before it hides the rest of the report

Table = tuple[str, list[str], list[list[str]]]


def headline(document: Row) -> str:
    """Return what made the report: versions and machine."""
    box = document["machine"]
    return (
        f"alight {document['alight']}, NumPy {box['numpy']}, Python {box['python']}, "
        f"{box['processors']} × {box['cpu']}"
    )


def tables(document: Row, limit: int) -> Iterable[Table]:
    """Yield title, header and rows of each part that has any."""
    yield (
        "Devices",
        ["device", "name", "memory", "implementations"],
        [
            [d["id"], d["name"], readable_bytes(d["memory_bytes"]), ", ".join(d["implementations"])]
            for d in document["devices"]
        ],
    )
    rows = _merged(document["decisions"])
    totals = document["totals"]
    if rows:
        title = f"Decisions: {totals['decisions']}, {readable_seconds(totals['seconds'])} measured"
        if totals["decisions_dropped"]:
            title += f", {totals['decisions_dropped']} no longer in the log"
        if len(rows) > limit:
            title += f"; the {limit} kinds that took longest"
        header = ["call site", "operation", "elements", "ran on", "reason", "runs", "predicted"]
        yield title, [*header, "measured"], [_line(row) for row in rows[:limit]]
    for part, name in (("exits", "name"), ("fallbacks", "what"), ("demotions", "what")):
        found = document[part]
        if found:
            title = f"{part.capitalize()}: {totals[part]}"
            if len(found) > limit:
                title += f"; the {limit} most frequent"
            yield (
                title,
                [name, "call site", "times", "reason"],
                [
                    [row[name], row["call_site"] or "", str(row["count"]), row.get("reason", "")]
                    for row in found[:limit]
                ],
            )
    yield "Totals", ["what", "value"], [[k, v] for k, v in _flat(totals)]


def _flat(totals: Row) -> Iterable[tuple[str, str]]:
    for name, value in totals.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", text) for inner, text in _flat(value))
        else:
            yield name, readable_seconds(value) if name == "seconds" else f"{value:,}"


def _merged(decisions: list[Row]) -> list[Row]:
    """Return decisions that differ only in time as one, those that took longest first."""
    merged: dict[tuple[Any, ...], Row] = {}
    for row in decisions:
        key = tuple(str(row[name]) for name in _SAME)
        found = merged.get(key)
        if found is None:
            found = merged[key] = {**row, "runs": 0, "measured_seconds": 0.0, "later": [0, 0.0]}
            found["first"] = None
        found["runs"] += row["runs"]
        seconds = row["measured_seconds"]
        if seconds is not None:
            found["measured_seconds"] += seconds * row["runs"]
            if row.get("first_run"):  # older reports do not say
                found["first"] = seconds
            else:
                found["later"][0] += row["runs"]
                found["later"][1] += seconds * row["runs"]
    return sorted(merged.values(), key=lambda row: -row["measured_seconds"])


_SAME = ("call_site", "operation", "group", "shapes", "chosen", "implementation", "reason")


def _predicted(row: Row) -> float | None:
    for candidate in row["candidates"]:
        if (candidate["device"], candidate["implementation"]) == (
            row["chosen"],
            row["implementation"],
        ):
            seconds: float | None = candidate["seconds"]
            return seconds
    return None


def _measured(row: Row) -> str:
    """Return the mean of the runs after the first; a first run alone says that it is one."""
    runs, seconds = row["later"]
    if runs:
        return readable_seconds(seconds / runs)
    first = row["first"]
    return readable_seconds(first) + ("" if first is None else " (first run)")


def _line(row: Row) -> list[str]:
    return [
        row["call_site"] or "",
        row["operation"],
        f"{row['elements']:,}",
        f"{row['chosen']}:{row['implementation']}",
        row["reason"],
        str(row["runs"]),
        readable_seconds(_predicted(row)),
        _measured(row),
    ]


def explained(document: Row) -> Iterable[str]:
    """Yield the decisions by call site, each with its losers, as lines; jitted calls first."""
    for call in document.get("calls", ()):  # older reports have none
        yield f"{call['name']} at {call['call_site']}: {call['way']} ({call['reason']})"
    by_site: dict[str, list[Row]] = {}
    for row in _merged(document["decisions"]):
        by_site.setdefault(row["call_site"] or "an unknown place", []).append(row)
    for site, rows in by_site.items():
        yield site
        for row in rows:
            yield (
                f"  {row['operation']}, {row['elements']:,} elements, {', '.join(row['dtypes'])}: "
                f"{row['chosen']}:{row['implementation']} ({row['reason']}), {_runs(row['runs'])}, "
                f"predicted {readable_seconds(_predicted(row))}, "
                f"measured {_measured(row)}"
            )
            for candidate in row["candidates"]:
                name = f"{candidate['device']}:{candidate['implementation']}"
                if name != f"{row['chosen']}:{row['implementation']}":
                    why = " ".join(filter(None, (candidate["reason"], candidate["detail"])))
                    yield f"    not {name}: {readable_seconds(candidate['seconds'])} {why}".rstrip()


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def aligned(header: list[str], rows: list[list[str]]) -> Iterable[str]:
    """Yield the rows as lines whose columns line up."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        yield "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()


def readable_seconds(value: float | None) -> str:
    """Return seconds with three digits in a fitting unit."""
    if value is None:
        return "unknown"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def readable_bytes(value: int) -> str:
    """Return bytes in GiB."""
    return f"{value / 2**30:.1f} GiB"


def text(document: Row) -> str:
    """Return the report as tables for a terminal."""
    lines = [headline(document)]
    for title, header, rows in tables(document, SHOWN):
        lines += ["", title, *aligned(header, rows)]
    return "\n".join(lines)


def page(document: Row) -> str:
    """Return the report as one HTML page that needs no other file."""
    parts = [f"<h1>{escape(headline(document))}</h1>"]
    for title, header, rows in tables(document, len(document["decisions"]) + 1):
        head = "".join(f"<th>{escape(name)}</th>" for name in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        parts.append(f"<h2>{escape(title)}</h2><table><tr>{head}</tr>{body}</table>")
    return (
        "<!doctype html><meta charset=utf-8><title>alight report</title><style>"
        "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}</style>"
        + "".join(parts)
        + "\n"
    )
