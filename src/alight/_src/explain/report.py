"""What the log, the devices and the profiles say, as one document: text, JSON, HTML. Reads only."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any, Never

from alight._src.adapt import lazy_devices, planner_facts
from alight._src.base.at_exit import interrupted, when_over
from alight._src.base.failures import failures, ignoring_failures
from alight._src.config.schema import checked
from alight._src.explain import text_tables
from alight._src.explain.tables_data import (
    Row,
    decision_row,
    machine_row,
    profile_rows,
    standing_row,
    tally_row,
    totals_row,
)
from alight._src.log.decisions import LOG, Snapshot, place_of
from alight._src.run import evaluate
from alight.errors import AlightError, StoreError

__all__ = [
    "SCHEMA",
    "Report",
    "at_exit",
    "devices",
    "explain",
    "explain_at_exit",
    "not_at_exit",
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
        if any(self._document.get(part) for part in ("calls", "decisions", "exits")):
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
    return _reported(LOG.snapshot())


def _takes_nothing(name: str, given: tuple[object, ...], fix: str) -> None:
    """Raise TypeError where a question about the whole process was asked with an argument."""
    if given:
        raise TypeError(f"alight.{name} takes no argument, not {given[0]!r:.80}. Fix: {fix}.")


def _nothing_placed(totals: Row) -> list[str]:
    return [
        "no decisions: nothing was placed. NumPy does at once",
        f"  {_below_floor(totals)}: ALIGHT_FLOOR_ALL=0 has it planned",
        "  what functions that are not jitted do with ndarrays: `alight run` or @alight.jit has it",
        "  calls of a jitted function where NumPy won",
        "  what is not in the op table",
    ]


def _below_floor(totals: Row) -> str:
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


def explain(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report:
    """Return the report of one call.

    The call is made, and what it returns is evaluated.

    Parameters
    ----------
    function : callable
        What to call: a plain function, a jitted one, or one of NumPy's.
    *args, **kwargs
        Its arguments.

    Returns
    -------
    Report
        What was decided, where it ran, what it took. ``explanation()`` is the text with each
        decision's losers; of a jitted function it also says which way such calls take and why, and
        of another why nothing was placed, if so.

    Raises
    ------
    TypeError
        Where the function cannot be called so.

    Examples
    --------
    >>> import alight
    >>> import numpy as np
    >>> with alight.policy(force="cpu:generated", floor=0):
    ...     found = alight.explain(lambda x: np.exp(-x).sum(), alight.ones(100))
    >>> found.to_dict()["decisions"][0]["operation"]
    'negative+exp+sum'
    """
    from alight._src.jit.decorator import Jitted  # a process that jits nothing need not load it
    from alight._src.record.numpy_fallback import holds_arrays

    with as_called("explain", function, args, kwargs):
        before = LOG.snapshot()
        result = function(*args, **kwargs)
    evaluate.evaluate_all()
    del result  # alive until here: what nobody holds is not computed
    explained = _reported(LOG.snapshot().since(before))
    document = explained._document
    if isinstance(function, Jitted):
        name, site, way, reason = function.standing(args, kwargs)
        row = {"name": name, "call_site": place_of(site), "way": way, "reason": reason}
        document["calls"] = [row]
    elif not any(document[part] for part in ("decisions", "exits", "fallbacks", "demotions")):
        ours = holds_arrays((args, kwargs))
        document["calls"] = [_left_to_numpy(function, ours, document["totals"])]
    return explained


def _left_to_numpy(function: Any, ours: bool, totals: Row) -> Row:
    """Return why nothing of a call was placed; ``ours``: Arrays are among its arguments."""
    name = str(getattr(function, "__qualname__", None) or getattr(function, "__name__", "the call"))
    code = getattr(function, "__code__", None)
    why, fixes = [_below_floor(totals)], ["alight.policy(floor=0) has it planned"]
    if totals["floor_elements"] == 0:
        why, fixes = [], []
    if not ours:
        why.append("what functions that are not jitted do with ndarrays")
        if code is not None:
            fixes.insert(0, f"alight.explain(alight.jit({name}), …)")
    why = why or ["what is not in the op table"]
    fix = f". Fix: {'; '.join(fixes)}" if fixes else ""
    site = None if code is None else place_of((code, 0))
    reason = f"NumPy does at once {', and '.join(why)}{fix}"
    return {"name": name, "call_site": site, "way": "numpy", "reason": reason}


@contextlib.contextmanager
def as_called(
    name: str, function: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[None]:
    """Have a question about a call, which is made inside, raise TypeError that says how to ask
    where it was given something that cannot be called, or not as it is called there."""
    if not callable(function):
        raise TypeError(
            f"alight.{name} takes a function and the arguments of one call, not an object of type "
            f"{type(function).__name__}. Fix: write alight.{name}(f, x) for the call f(x)."
        )
    try:
        yield
    except failures(TypeError) as error:
        # Not before the call: what decorators say that a function takes need not be what it does.
        misfit = "" if _ran_others(error.__traceback__) else _misfit(function, args, kwargs)
        if not misfit:
            raise
        called = getattr(function, "__name__", "f")
        raise TypeError(
            f"alight.{name}: {called} does not take the arguments given after it; it is "
            f"{called}{misfit}. Fix: write alight.{name}({called}, x) for the call {called}(x)."
        ) from None


def _ran_others(traceback: TracebackType | None) -> bool:
    """Tell whether code that is not alight's ran until an error was raised."""
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] != __name__.partition(".")[0]:
            return True
        traceback = traceback.tb_next
    return False


class _Default:
    """Stands for a default, which may be an array."""

    def __repr__(self) -> str:
        return "…"


def _misfit(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return what a function takes and what of that a call gets wrong; nothing where it says not,
    or takes the call."""
    from inspect import Parameter, Signature, signature  # late: few get it wrong

    from alight._src.jit.decorator import Jitted

    plain = function.__wrapped__ if isinstance(function, Jitted) else function
    try:
        taken = signature(plain, follow_wrapped=False)  # a decorator's takes what it takes itself
    except failures(TypeError, ValueError):  # it does not say what it takes
        return ""
    try:
        taken.bind(*args, **kwargs)
    except failures(TypeError) as error:
        empty = Parameter.empty
        shown = [
            one.replace(default=empty if one.default is empty else _Default(), annotation=empty)
            for one in taken.parameters.values()
        ]
        return f"{Signature(shown)}: {error}"
    return ""


def devices(*unasked: Never) -> list[Row]:
    """Return the devices of this process.

    Returns
    -------
    list of dict
        One row for each: ``id``, ``vendor``, ``name``, ``memory_bytes``, ``implementations``,
        ``dtypes``, ``gaps``, whether it ``takes_part`` and ``why``, and its ``profile``: what
        calibration measured, None for a device that was never calibrated.

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
    return [{**standing_row(device), "profile": profiles.get(device.id)} for device in known]


def _reported(snapshot: Snapshot) -> Report:
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
            "calls": [],
            "totals": totals_row(snapshot),
        }
    )


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


_at_exit: dict[str | None, Callable[[], None]] = {}


def at_exit(path: str) -> None:
    """Write the report when this process ends: to a file, or to standard error for ``-``."""
    if path != "-":
        path = os.path.abspath(path)

    def write() -> None:
        if path == "-":
            print(report(), file=sys.stderr)
            return
        try:
            report().save(path)
        except AlightError as error:
            print(f"alight: {error}", file=sys.stderr)

    _register(path, write)


def not_at_exit(path: str | None) -> None:
    """Do not write the report there when this process ends."""
    _at_exit.pop(path if path is None or path == "-" else os.path.abspath(path), None)


def explain_at_exit() -> None:
    """Print the decisions by call site when this process ends."""

    def show() -> None:
        try:
            print(report().explanation(), flush=True)
        except failures(BrokenPipeError):  # who reads has read enough, as of `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    _register("explain", show)


def _register(name: str, act: Callable[[], None]) -> None:
    if name in _at_exit:
        return
    _at_exit[name] = act

    def here() -> None:
        if _at_exit.get(name) is act:
            act()
            _still_interrupted()

    when_over(here)


def _still_interrupted() -> None:
    """Have an interrupted process end by its signal all the same.

    CPython remembers that the last code it was given as text was interrupted; modules that are
    imported meanwhile are given such code, too (named tuples are made of it).
    """
    if interrupted():
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def version() -> str:
    """Return alight's version."""
    # The package stands above this module, so it is looked up and not imported.
    return str(sys.modules["alight"].__version__)
