"""The table of settings, and how their values are read: a bad one is a `ConfigError` that names
where it came from and what to write.

A setting is one row of ``SETTINGS``. Its key in the file, its variable, its argument of
`alight.policy`, the checks of all three, `alight doctor` and the page follow from it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from operator import index
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, cast

from alight._src.base.failures import failures, ignoring_failures
from alight.errors import ConfigError

HOST_DEVICE = "cpu"  # the id of the one device there always is
FLOOR_CLASSES = ("unary", "binary", "reduction", "matmul", "all")
IMPLEMENTATIONS = ("numpy", "generated", "library")
REPORTS = (".json", ".html", ".txt")  # what a report's file may end in
TRACE = 5  # below logging.DEBUG: one line per decision with all its losers

PREFIX = "ALIGHT_"
DEFAULT = "default"
_DEVICE = re.compile(r"cpu|(?!cpu:)[a-z]+:\d+")


class Sourced(NamedTuple):
    """A setting's name, its value and where the value came from."""

    name: str
    value: Any
    source: str


class Force(NamedTuple):
    """The device and the implementation that all work must use; None leaves the choice open."""

    device: str | None
    implementation: str | None

    def __str__(self) -> str:
        """Return the form that `force=` accepts."""
        return ":".join(part for part in self if part is not None)


class Scope(StrEnum):
    """What a setting is about, and so where it can be given."""

    PLACEMENT = "placement"  # what may run where: also for a block or a function, by a policy
    PROCESS = "process"  # how the process works: in the file and in the environment


class Reader(NamedTuple):
    """A type of settings: how a value is read from what was given, of which ``values`` tells the
    page; what the text of a variable stands for, before it is read; and, of a setting that is a
    table, the names of its parts, each of which has a variable of its own."""

    read: Callable[[object, str], Any]
    values: str
    of_text: Callable[[str], object] = str
    parts: tuple[str, ...] = ()


class Setting(NamedTuple):
    """A row of the table: name, type, default, what it is about, and its meaning for the page."""

    name: str
    type: Reader
    default: Any
    scope: Scope
    meaning: str

    @property
    def variables(self) -> dict[str, str]:
        """Return the names in the environment, each with the setting or the part that it sets."""
        variable = PREFIX + self.name.removesuffix("_level").upper()
        if not self.type.parts:
            return {variable: self.name}
        return {f"{variable}_{part.upper()}": f"{self.name}.{part}" for part in self.type.parts}

    @property
    def cells(self) -> tuple[str, ...]:
        """Return its row on the page of settings, which tools/settings_page.py writes."""
        default = self.default
        shown = f'"{default}"' if isinstance(default, str) else str(default).lower()
        return (
            f"`{self.name}`",
            ", ".join([f"`{variable}`" for variable in self.variables]),
            f"`policy({self.name}=)`" if self.scope is Scope.PLACEMENT else "—",
            "none" if default in (None, {}) else shown,
            self.type.values,
            self.meaning,
        )


def bad(raw: object, source: str, expected: str, fix: str) -> NoReturn:
    """Raise the ConfigError of a bad value."""
    raise ConfigError(f"{source}: {raw!r} is not {expected}. Fix: {fix}.")


def _devices(raw: object, source: str) -> tuple[str, ...] | None:
    if raw is None:
        return None
    if isinstance(raw, str):
        raw = raw.split(",")
    if not isinstance(raw, Sequence) or not all(isinstance(entry, str) for entry in raw):
        bad(raw, source, "a list of devices", 'write for example ["cuda:0", "cpu"]')
    entries = tuple(dict.fromkeys(entry.strip() for entry in raw))
    for entry in entries:
        if _DEVICE.fullmatch(entry.removeprefix("-")) is None:
            bad(entry, source, "a device", 'write "cpu", or a kind and a number such as "cuda:0"')
    if f"-{HOST_DEVICE}" in entries:  # before what contradicts it: alone it is none either
        fix = "leave it out; force names the one device that all work must use"
        bad(f"-{HOST_DEVICE}", source, "a device that can be left out", fix)
    for entry in entries:
        if "-" + entry in entries:
            bad(raw, source, "consistent", f"name {entry!r} or {'-' + entry!r}, not both")
    if not entries:
        bad(raw, source, "a list that names a device", "name one, or give None for all")
    return entries


def _force(raw: object, source: str) -> Force | None:
    if raw is None:
        return None
    if isinstance(raw, Force):
        raw = str(raw)
    fix = 'write a device ("cuda:0"), an implementation ("generated") or both ("cpu:generated")'
    if not isinstance(raw, str):
        bad(raw, source, "a device or an implementation", fix)
    if raw in IMPLEMENTATIONS:
        return Force(None, raw)
    device, _, last = raw.rpartition(":")
    if last in IMPLEMENTATIONS and _DEVICE.fullmatch(device):
        return Force(device, last)
    if _DEVICE.fullmatch(raw):
        return Force(raw, None)
    bad(raw, source, f"DEVICE[:IMPLEMENTATION] or one of {', '.join(IMPLEMENTATIONS)}", fix)


def _count(
    raw: object, source: str, fix: str = "write for example 4096, or 0 for no minimum"
) -> int:
    try:
        if isinstance(raw, bool):  # True is an int in Python, never a count here
            raise TypeError
        count = index(cast(Any, raw))
    except failures(TypeError):
        count = -1
    if count < 0:
        bad(raw, source, "a whole number >= 0", fix)
    if count > sys.maxsize:  # no container of Python's has as many items
        bad(raw, source, f"a whole number up to {sys.maxsize}", fix)
    return count


def _floor(raw: object, source: str) -> Mapping[str, int]:
    """Return floors by class; none at all means: derive them from the measured profile."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        return {"all": _count(raw, source)}
    for name in raw:
        if name not in FLOOR_CLASSES:
            bad(name, source, "a class of work", f"use one of {', '.join(FLOOR_CLASSES)}")
    return {name: _count(value, f"{source}[{name!r}]") for name, value in raw.items()}


def _number(text: str) -> object:
    with ignoring_failures(ValueError):
        return int(text)
    return text


_WORDS = dict.fromkeys(("1", "true", "yes", "on"), True)
_WORDS |= dict.fromkeys(("0", "false", "no", "off"), False)


def truth(raw: object, source: str) -> bool:
    """Return what is a truth; anything else is a ConfigError that names its source."""
    if not isinstance(raw, bool):
        # A word in quotes is what a program has by mistake: "no" would be true elsewhere.
        words = "True or False" if source.startswith("argument ") else "true or false"
        bad(raw, source, words, f"write {words}")
    return raw


def one_of(*words: str) -> Reader:
    """Return the type of settings that are one of several words."""

    def read(raw: object, source: str) -> str:
        if not isinstance(raw, str) or raw not in words:
            known = [repr(word) for word in words]
            fix = f"write {', '.join(known[:-1])} or {known[-1]}"
            bad(raw, source, f"one of {', '.join(words)}", fix)
        return raw

    return Reader(read, ", ".join([f"`{word}`" for word in words]))


def counted(what: str, fix: str) -> Reader:
    """Return the type of settings that are a count of something; ``fix`` says what to write."""
    return Reader(partial(_count, fix=fix), what, _number)


def _path(raw: object, source: str) -> str:
    if not isinstance(raw, str) or not raw:
        bad(raw, source, "a path", "write the path as text")
    return os.path.abspath(os.path.expanduser(raw))


def _report(raw: object, source: str) -> str:
    if raw == "-":  # standard error
        return "-"
    path = _path(raw, source)
    if os.path.splitext(path)[1].lower() not in (*REPORTS, ""):
        fix = f"let it end in {', '.join(REPORTS[:-1])} or {REPORTS[-1]}; without an end it is JSON"
        bad(raw, source, "a file that a report can be written to", fix)
    return path


DEVICES = Reader(
    _devices, "a list; in the environment with commas: `cpu`, `sim:0`; `-sim:0` denies"
)
FORCE = Reader(
    _force,
    "`DEVICE`, `IMPLEMENTATION` or `DEVICE:IMPLEMENTATION`: `sim:0`, `generated`, `cpu:generated`",
)
FLOOR = Reader(
    _floor,
    "elements (of a matrix product m·k·n): one number, or a table by class (`unary`, `binary`, "
    "`reduction`, `matmul`, `all`)",
    _number,
    FLOOR_CLASSES,
)
TRUTH = Reader(truth, "true, false", lambda text: _WORDS.get(text.lower(), text))
PATH = Reader(_path, "a folder")
REPORT = Reader(_report, "a file (`.json`, `.html`, `.txt`), or `-` for standard error")

_ROWS = (
    Setting(
        "devices",
        DEVICES,
        None,
        Scope.PLACEMENT,
        "Where work may be placed, the preferred first. None: the host and every device that was "
        "[calibrated](concepts.md#devices-that-nobody-names), but for those that are denied. The "
        "host is always the last resort.",
    ),
    Setting(
        "force",
        FORCE,
        None,
        Scope.PLACEMENT,
        "All planned work goes there, and no cost is compared. Work below the floor is not "
        "planned: add `floor=0` to force it, too.",
    ),
    Setting(
        "floor",
        FLOOR,
        MappingProxyType({}),
        Scope.PLACEMENT,
        "Less than this is left to NumPy. None: measured, see [floors](concepts.md#floors).",
    ),
    Setting(
        "on_gap",
        one_of("host", "raise"),
        "host",
        Scope.PLACEMENT,
        "What to do under `force` with work that cannot run there: NumPy does it and it is "
        "counted, or [`UnsupportedOnDevice`](errors.md).",
    ),
    Setting(
        "pick",
        one_of("model", "measure"),
        "model",
        Scope.PLACEMENT,
        "Choose by the cost model, or by timing the candidates. Each group of ops is timed once "
        "in a process, on data of its own, where it is first planned; what is fused, and copies, "
        "are the model's in any case. `@alight.jit` times its kernels either way.",
    ),
    Setting(
        "reproducible",
        TRUTH,
        True,
        Scope.PLACEMENT,
        "True: once a kernel has computed a group, a slower time does not hand the group back to "
        "NumPy where that would change last bits. A first run, and a jitted call while both ways "
        "are timed, may still go either way ([Reproducibility](concepts.md#reproducibility)). "
        "False: a kernel that turns out slower than NumPy is given up also where that changes the "
        "last bits of later results. Profiles are frozen in a process either way.",
    ),
    Setting(
        "learn",
        one_of("next", "now", "off"),
        "next",
        Scope.PLACEMENT,
        "Whether what runs took corrects [predictions](concepts.md#predictions-that-learn). "
        "`next`: from the next start on, so that nothing changes while a program runs. `now`: in "
        "this process, too; plans are made anew where that changes them, and with them last bits "
        "may. `off`: the profile alone predicts, and nothing is kept of such runs.",
    ),
    Setting(
        "enabled",
        TRUTH,
        True,
        Scope.PLACEMENT,
        "False: one switch ends it all. NumPy does everything at once, whatever else is set, "
        "jitted functions are the functions, and nothing is measured; what was pending is "
        "NumPy's, for the reason `disabled`.",
    ),
    Setting(
        "cache_dir",
        PATH,
        None,
        Scope.PROCESS,
        "What outlives the process. None: the user's cache folder (`alight cache path`).",
    ),
    Setting(
        "log_level",
        one_of("off", "info", "trace"),
        "off",
        Scope.PROCESS,
        "Lines of the logger `alight`: warnings; the first exit, fallback or demotion of each "
        "line of the program; every decision with its losers.",
    ),
    Setting(
        "log_size",
        counted("decisions", "write for example 10000, or 0 to keep no decisions"),
        10_000,
        Scope.PROCESS,
        "How many decisions the log keeps. Totals stay exact; what was dropped is counted.",
    ),
    Setting(
        "report",
        REPORT,
        None,
        Scope.PROCESS,
        "Write the report when the process ends. From the file it holds for `alight run`, whose "
        "`--report` wins over it; from the environment also for any program that imports alight.",
    ),
    Setting(
        "calibrate",
        one_of("auto", "off"),
        "auto",
        Scope.PROCESS,
        "Whether a program that meets a device without a profile, or with one that no longer "
        "holds, measures it when it ends (at most a second). Devices of a backend that does not "
        "come with alight are measured first by `alight calibrate`.",
    ),
    Setting(
        "threads",
        counted("threads", "write for example 4, or 0 for as many as there are processors"),
        0,
        Scope.PROCESS,
        "On how many threads a generated kernel may run, the caller's included. 0: as many as the "
        "affinity mask and the control group's quota leave this process; 1: no threads of our "
        "own. More than there are processors get a warning. Between kernels that come at short, "
        "like pauses they stay awake, for up to ten times what waking takes: with 300 µs between "
        "kernels of 60 µs each run ends 4 to 20 µs sooner, for half a processor kept busy "
        "meanwhile. Results are the same bits for any number.",
    ),
    Setting(
        "own_functions",
        one_of("hot", "all", "off"),
        "hot",
        Scope.PROCESS,
        "Which functions of the program's own `alight run` takes as `@alight.jit` does "
        "([which](front-doors.md#functions-that-are-called-again)): those whose calls with arrays "
        "have taken NumPy long enough, all from their third call on, or none.",
    ),
    Setting(
        "check",
        TRUTH,
        False,
        Scope.PROCESS,
        "Whether every plan, and what comes of it, is proven before it runs: each step finds what "
        "it wants where it looks, and what it writes nobody else needs. Takes some milliseconds "
        "for each plan and up to a millisecond for each run of a step; alight's own tests run "
        "under it. What it finds is a fault of alight's: [`PlanError`](errors.md#planerror).",
    ),
    Setting(
        "wgpu_power",
        one_of("high", "low"),
        "high",
        Scope.PROCESS,
        "Which graphics card is `wgpu:0` where there are several: the discrete one, or the one "
        "built into the processor.",
    ),
    Setting(
        "wgpu_software",
        TRUTH,
        True,
        Scope.PROCESS,
        "Whether adapters that are software count as devices of `wgpu`; they come last.",
    ),
)
SETTINGS = {row.name: row for row in _ROWS}
# What is no setting is read by the tests; of it, what is on or off.
SWITCHES = ("ALIGHT_FULL",)


def settings_of(scope: Scope) -> tuple[str, ...]:
    """Return the names of the settings about something."""
    return tuple([row.name for row in SETTINGS.values() if row.scope is scope])


def variables() -> dict[str, str]:
    """Return the variables of settings, each with the setting or the part that it sets."""
    return {name: what for row in SETTINGS.values() for name, what in row.variables.items()}


def known() -> tuple[str, ...]:
    """Return every variable of alight's."""
    return (*variables(), *SWITCHES, "ALIGHT_CONFIG", "ALIGHT_TEST_SEED")


def meant(name: str, text: str) -> object:
    """Return what the text of a variable stands for, where all is text: a number or a truth where
    the setting is one, else the text itself."""
    return SETTINGS[name.partition(".")[0]].type.of_text(text)


def setting(name: str, raw: object, source: str) -> Sourced:
    """Return a setting of that name, `floor.unary` among them, as read from what was given."""
    own, _, part = name.partition(".")
    if part:
        return Sourced(own, {part: _count(raw, source)}, source)
    return Sourced(name, SETTINGS[name].type.read(raw, source), source)


def switched(environ: Mapping[str, str], name: str) -> None:
    """Raise ConfigError where a variable that is on or off is neither."""
    if (raw := environ.get(name, "")) not in ("", "0", "1"):
        bad(raw, f"environment variable {name}", "1 or 0", "write 1, or leave the variable out")


def checked(name: str, raw: object, source: str) -> Any:
    """Return what a setting of that name would be; a bad value is a ConfigError that names its
    source."""
    return setting(name, raw, source).value


# Of five letters two may stand in each other's place ("froce" is 0.8 like "force") and none of them
# be missed twice ("foo" is 0.75 like "floor", and no misspelling of it).
_CLOSE = 0.8


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that another is a misspelling or the beginning of."""
    from difflib import get_close_matches

    words = list(known)
    begun = [name for name in words if word and name.startswith(word)]
    return next(iter(get_close_matches(word, words, n=1, cutoff=_CLOSE) or begun), None)
