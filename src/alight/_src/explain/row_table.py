"""Rows of plain values that show themselves as a table: plans, predictions, devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from alight._src.base.formatting import readable_bytes, readable_seconds
from alight._src.explain import text_tables

__all__ = ["RowTable"]

Row = dict[str, Any]


class RowTable(list[Row]):
    """Rows of plain values; prints as a table, and is one in notebooks."""

    def __init__(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        super().__init__(rows)
        self._columns = columns

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        cells = [[_cell(name, row[name]) for name in self._columns] for row in self]
        return [name.replace("_", " ").removesuffix(" bytes") for name in self._columns], cells

    def __str__(self) -> str:
        return "\n".join(text_tables.aligned(*self._cells()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from alight._src.explain.html_page import table  # late: only notebooks ask

        return table(*self._cells())


def _cell(name: str, value: Any) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, dict):
        parts = (f"{k} {_cell(name, v)}" for k, v in value.items() if v)
        return ", ".join(parts)
    if isinstance(value, float):
        return readable_seconds(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if name.endswith("_bytes"):
        return readable_bytes(value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
