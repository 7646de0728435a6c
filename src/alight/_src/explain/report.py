"""What the log, the devices and the profiles say, as one document: text, JSON, HTML. Reads only."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import time
from typing import Never

from alight._src.adapt import lazy_devices, planner_facts
from alight._src.base.failures import failures, ignoring_failures
from alight._src.config.schema import checked
from alight._src.explain import text_tables
from alight._src.explain.row_table import RowTable
from alight._src.explain.tables_data import (
    Row,
    decision_row,
    left_row,
    machine_row,
    profile_rows,
    standing_row,
    tally_row,
    totals_row,
)
from alight._src.log.decisions import LOG, Snapshot
from alight.errors import AlightError, StoreError

__all__ = [
    "SCHEMA",
    "Report",
    "below_floor",
    "devices",
    "made_report",
    "report",
    "reset",
    "version",
]

SCHEMA = 1

# What every report of this schema has.
_PARTS = (
    *("alight", "machine", "devices", "gone", "profiles"),
    *("decisions", "exits", "fallbacks", "demotions", "totals"),
)


class Report:
    """What ran where, why, what was predicted and what it took.

    It prints as tables. Every field is explained in ``docs/report.md``.

    Parameters
    ----------
    document : dict
        What ``to_dict`` of another report gave.

    Examples
    --------
    >>> import alight
    >>> alight.reset()
    >>> made = alight.report()
    >>> made.to_dict()["totals"]["launches"]
    0
    """

    __slots__ = ("_document",)

    def __init__(self, document: Row) -> None:
        self._document = document

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Return a report that was saved as JSON.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        Report
            The report as it was saved.

        Raises
        ------
        AlightError
            Where the file is no report, or one of a schema that this version cannot read.
        """
        import json  # late, as below: most programs read and write none

        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except failures(ValueError) as error:
            raise AlightError(
                f"{os.fspath(path)} is not JSON: {error}. Fix: name a file that "
                "`alight run --report FILE.json` wrote."
            ) from error
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != SCHEMA:
            raise AlightError(
                f"{os.fspath(path)} has report schema {schema!r}, this version reads {SCHEMA}. "
                "Fix: make the report anew."
            )
        if lacking := [name for name in _PARTS if name not in document]:
            raise AlightError(
                f"{os.fspath(path)} is no whole report: it lacks {', '.join(lacking)}. "
                "Fix: make the report anew."
            )
        return cls(document)

    def to_dict(self) -> Row:
        """Return the document as plain dicts and lists.

        Returns
        -------
        dict
            A copy, with seconds as floats, bytes and counts as integers; figures that are not
            finite are None.
        """
        import json

        copied: Row = json.loads(self.to_json())
        return copied

    def to_json(self, indent: int | None = 2) -> str:
        """Return the document as JSON.

        Parameters
        ----------
        indent : int or None, optional
            Spaces for each level; None: all in one line.

        Returns
        -------
        str
            The text; figures that are not finite are null.
        """
        import json

        return json.dumps(self._document, indent=indent, allow_nan=False)

    def to_html(self) -> str:
        """Return the document as one HTML page.

        Returns
        -------
        str
            The page, which needs no other file.
        """
        from alight._src.explain.html_page import page  # late: 2 ms of every command's start

        return page(self._document)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a file.

        Parameters
        ----------
        path : str or path-like
            HTML goes to ``*.html``, text to ``*.txt``, JSON to ``*.json`` and to a name without
            such an end.

        Raises
        ------
        ConfigError
            For any other end of the name.
        StoreError
            Where the file cannot be written.
        """
        checked("report", os.fspath(path), "path")
        suffix = Path(path).suffix.lower()
        if suffix == ".html":
            text = self.to_html()
        else:
            text = (str(self) if suffix == ".txt" else self.to_json()) + "\n"
        write(path, text)

    def explanation(self) -> str:
        """Return the decisions by call site, each with the candidates that lost.

        Returns
        -------
        str
            The text that ``alight explain`` prints.
        """
        told = list(text_tables.explained(self._document))
        if any(self._document.get(part) for part in ("calls", "decisions", "exits", "below_floor")):
            return "\n".join(told)
        # Without a call site it is of the whole program; where there is none, work was small.
        whole = [row for row in self._document["demotions"] if row["call_site"] is None]
        nothing = ["no decisions:", *[f"  {row['what']}: {row['reason']}" for row in whole]]
        return "\n".join(
            [*(nothing if whole else _nothing_placed(self._document["totals"])), *told]
        )

    def __str__(self) -> str:
        return text_tables.text(self._document)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from alight._src.explain.html_page import shown

        return shown(self._document)


def report(*unasked: Never) -> Report:
    """Return what this process has done since it started or was reset.

    Returns
    -------
    Report
        Decisions with their candidates, exits, fallbacks, demotions, devices, profiles and totals.
        Print it, ``save`` it, or read it as data (``to_dict``).

    Notes
    -----
    ``regret_seconds`` of a decision is its measured seconds minus the least predicted seconds among
    its other candidates, or 0 where that is negative; null where either is missing. It judges by
    prediction: nobody measured the candidates that did not run. ``totals.seconds`` is the sum of
    all measured seconds.

    Examples
    --------
    >>> import alight
    >>> alight.reset()
    >>> with alight.policy(force="cpu:generated", floor=0):
    ...     alight.evaluate(alight.ones(100) * 2 + 1)
    >>> [row["operation"] for row in alight.report().to_dict()["decisions"]]
    ['multiply+add']
    """
    fix = "write alight.report().save(path) for a file, and alight.explain(f, x) for one call"
    _takes_nothing("report", unasked, fix)
    return made_report(LOG.snapshot())


def _takes_nothing(name: str, given: tuple[object, ...], fix: str) -> None:
    """Raise TypeError where a question about the whole process was asked with an argument."""
    if given:
        raise TypeError(f"alight.{name} takes no argument, not {given[0]!r:.80}. Fix: {fix}.")


def _nothing_placed(totals: Row) -> list[str]:
    return [
        "no decisions: nothing was placed. NumPy does at once",
        f"  {below_floor(totals)}: ALIGHT_FLOOR_ALL=0 has it planned",
        "  what functions that are not jitted do with ndarrays: `alight run` or @alight.jit has it",
        "  calls of a jitted function where NumPy won",
        "  what is not in the op table",
    ]


def below_floor(totals: Row) -> str:
    """Return what of a program was too small to be placed."""
    least = totals["floor_elements"]
    return f"work on fewer elements than the floor{f' ({least:,})' if least else ''}, forced or not"


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a report's text to a file, whole or not at all.

    Raises StoreError where it cannot be written.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file():  # a pipe or a terminal; a folder refuses it
            target.write_text(text, encoding="utf-8")
            return
        # Beside its place and renamed: whoever waits for the file must not find half of it.
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            beside.write_text(text, encoding="utf-8")
            os.replace(beside, target)
        finally:
            with ignoring_failures(OSError):
                beside.unlink()
    except failures(OSError) as error:
        raise StoreError(
            f"cannot write the report to {os.fspath(path)}: {error.strerror}. "
            "Fix: name a file in a folder that exists and can be written."
        ) from error


def devices(*unasked: Never) -> RowTable:
    """Return the devices of this process.

    Returns
    -------
    list of dict
        One row for each: ``id``, ``vendor``, ``name``, ``memory_bytes``, ``implementations``,
        ``dtypes``, ``gaps``, whether it ``takes_part`` and ``why``, and its ``profile``: what
        calibration measured, None for a device that was never calibrated. It prints as a table.

    Examples
    --------
    >>> import alight
    >>> alight.devices()[0]["id"]
    'cpu'
    """
    fix = "look for the row of one in alight.devices(); alight.policy(devices=…) says which to use"
    _takes_nothing("devices", unasked, fix)
    known = lazy_devices.known()
    profiles = {row["device"]: row for row in profile_rows(planner_facts.profiles(known))}
    rows = ({**standing_row(device), "profile": profiles.get(device.id)} for device in known)
    return RowTable(rows, ("id", "name", "memory_bytes", "implementations", "takes_part", "why"))


def made_report(snapshot: Snapshot) -> Report:
    """Return the report of what a snapshot of the log has."""
    devices = lazy_devices.known()
    return Report(
        {
            "schema": SCHEMA,
            "alight": version(),
            "made_at": time(),
            "machine": machine_row(),
            "devices": [standing_row(device) for device in devices],
            "gone": lazy_devices.gone(),
            "profiles": profile_rows(planner_facts.profiles(devices)),
            "decisions": [decision_row(record) for record in snapshot.records],
            "exits": [tally_row(row, "name") for row in snapshot.exits],
            "fallbacks": [tally_row(row, "what") for row in snapshot.fallbacks],
            "demotions": [tally_row(row, "what") for row in snapshot.demotions],
            "loops": _loops(),
            "calls": [],
            "below_floor": [left_row(row) for row in snapshot.left],
            "totals": totals_row(snapshot),
        }
    )


def _loops() -> list[Row]:
    """Return what is told of loops; nothing where no other memory could have had them."""
    placement = sys.modules.get(_PLACEMENT)
    return [] if placement is None else placement.rows()


_PLACEMENT = "alight._src.run.loop_placement"


def reset(*unasked: Never) -> None:
    """Forget all decisions, exits, fallbacks and totals.

    Results, plans and kernels stay as they are; reports begin anew.

    Examples
    --------
    >>> import alight
    >>> alight.reset()
    >>> alight.report().to_dict()["totals"]["launches"]
    0
    """
    _takes_nothing("reset", unasked, "call alight.reset()")
    LOG.reset()
    if placement := sys.modules.get(_PLACEMENT):
        placement.reset()


def version() -> str:
    """Return alight's version."""
    # The package stands above this module, so it is looked up and not imported.
    return str(sys.modules["alight"].__version__)
