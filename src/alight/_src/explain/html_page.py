"""A report as one HTML page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from alight._src.explain.tables_data import Row
from alight._src.explain.text_tables import SHOWN, headlines, tables

__all__ = ["page", "shown", "table"]


def page(document: Row) -> str:
    """Return the page of a report: what a terminal shows, and every decision."""
    head = f"<h1>{'<br>'.join(map(escape, headlines(document)))}</h1>"
    return (
        "<!doctype html><meta charset=utf-8><title>alight report</title><style>"
        "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}</style>"
        + "".join([head, *_tables(document, len(document["decisions"]) + 1, "h2")])
        + "\n"
    )


def shown(document: Row) -> str:
    """Return what a notebook shows of a report: what a terminal does."""
    return f"<p>{'<br>'.join(map(escape, headlines(document)))}</p>" + "".join(
        _tables(document, SHOWN, "h4")
    )


def _tables(document: Row, limit: int, heading: str) -> Iterator[str]:
    for title, header, rows in tables(document, limit):
        yield f"<{heading}>{escape(title)}</{heading}>{table(header, rows)}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"
