"""A report as one HTML page that needs no other file."""

from __future__ import annotations

from html import escape

from alight._src.explain.tables_data import Row
from alight._src.explain.text_tables import headlines, tables

__all__ = ["page"]


def page(document: Row) -> str:
    """Return the page of a report: what a terminal shows, and every decision."""
    parts = [f"<h1>{'<br>'.join(map(escape, headlines(document)))}</h1>"]
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
