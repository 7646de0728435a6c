"""What settings there are, and how their values are read: a bad one is a `ConfigError` that names
where it came from and what to write."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
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


def _kept(raw: object, source: str) -> int:
    return _count(raw, source, "write for example 10000, or 0 to keep no decisions")


def _threads(raw: object, source: str) -> int:
    return _count(raw, source, "write for example 4, or 0 for as many as there are processors")


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


_WORDS = dict.fromkeys(("1", "true", "yes", "on"), True)
_WORDS |= dict.fromkeys(("0", "false", "no", "off"), False)


def truth(raw: object, source: str) -> bool:
    """Return what is a truth; anything else is a ConfigError that names its source."""
    if not isinstance(raw, bool):
        # A word in quotes is what a program has by mistake: "no" would be true elsewhere.
        words = "True or False" if source.startswith("argument ") else "true or false"
        bad(raw, source, words, f"write {words}")
    return raw


def _one_of(*words: str) -> Callable[[object, str], str]:
    def read(raw: object, source: str) -> str:
        if not isinstance(raw, str) or raw not in words:
            known = [repr(word) for word in words]
            fix = f"write {', '.join(known[:-1])} or {known[-1]}"
            bad(raw, source, f"one of {', '.join(words)}", fix)
        return raw

    return read


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


# One row and one field, of Policy or of Config, are all that a setting needs: its key in the file
# and its environment name follow from its name, its default stands in the field.
READ: Mapping[str, Callable[[object, str], Any]] = {
    "devices": _devices,
    "force": _force,
    "floor": _floor,
    "on_gap": _one_of("host", "raise"),
    "pick": _one_of("model", "measure"),
    "reproducible": truth,
    "learn": truth,
    "cache_dir": _path,
    "log_level": _one_of("off", "info", "trace"),
    "log_size": _kept,
    "report": _report,
    "calibrate": _one_of("auto", "off"),
    "threads": _threads,
    "check": truth,
    "wgpu_power": _one_of("high", "low"),
    "wgpu_software": truth,
}
POLICY_FIELDS = ("devices", "force", "floor", "on_gap", "pick", "reproducible", "learn")
FLOOR_NAMES = {f"{PREFIX}FLOOR_{name.upper()}": name for name in FLOOR_CLASSES}
NAMES = {PREFIX + name.removesuffix("_level").upper(): name for name in READ if name != "floor"}
# What is no setting is read by the tests; of it, what is on or off.
SWITCHES = ("ALIGHT_FULL",)
KNOWN = (*NAMES, *FLOOR_NAMES, *SWITCHES, "ALIGHT_CONFIG", "ALIGHT_TEST_SEED")


def meant(name: str, text: str) -> object:
    """Return what the text of a variable stands for, where all is text: a number or a truth where
    the setting is one, else the text itself."""
    read = READ[name]
    if read is truth:
        return _WORDS.get(text.lower(), text)
    if read in (_floor, _kept, _threads):
        with ignoring_failures(ValueError):
            return int(text)
    return text


def setting(name: str, raw: object, source: str) -> Sourced:
    """Return a setting of that name, `floor.unary` among them, as read from what was given."""
    own, _, kind = name.partition(".")
    if kind:
        return Sourced(own, {kind: _count(raw, source)}, source)
    return Sourced(name, READ[name](raw, source), source)


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
