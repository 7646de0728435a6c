"""Every setting, typed, with its source: defaults < file < environment < call.

`config()` is what the process was started with; `policy(...)` changes the policy part of it for a
block or a function. A bad value is a `ConfigError` that names where the value came from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import count
from operator import index
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeVar, cast

from alight._core import POLICY, floor
from alight.errors import AlightError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FLOOR_CLASSES = ("unary", "binary", "reduction", "matmul", "all")
IMPLEMENTATIONS = ("numpy", "generated", "library")
REPORTS = (".json", ".html", ".txt")  # what a report's file may end in
TRACE = 5  # below logging.DEBUG: one line per decision with all its losers

_PREFIX = "ALIGHT_"
_DEFAULT = "default"
_DEVICE = re.compile(r"cpu|(?!cpu:)[a-z]+:\d+")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Outcome = TypeVar("_Outcome")


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


def _bad(raw: object, source: str, expected: str, fix: str) -> NoReturn:
    raise ConfigError(f"{source}: {raw!r} is not {expected}. Fix: {fix}.")


def _devices(raw: object, source: str) -> tuple[str, ...] | None:
    if raw is None:
        return None
    if isinstance(raw, str):
        raw = raw.split(",")
    if not isinstance(raw, Sequence) or not all(isinstance(entry, str) for entry in raw):
        _bad(raw, source, "a list of devices", 'write for example ["cuda:0", "cpu"]')
    entries = tuple(dict.fromkeys(entry.strip() for entry in raw))
    for entry in entries:
        if _DEVICE.fullmatch(entry.removeprefix("-")) is None:
            _bad(entry, source, "a device", 'write "cpu", or a kind and a number such as "cuda:0"')
        if "-" + entry in entries:
            _bad(raw, source, "consistent", f"name {entry!r} or {'-' + entry!r}, not both")
    if not entries:
        _bad(raw, source, "a list that names a device", "name one, or give None for all")
    return entries


def _force(raw: object, source: str) -> Force | None:
    if raw is None:
        return None
    if isinstance(raw, Force):
        raw = str(raw)
    fix = 'write a device ("cuda:0"), an implementation ("generated") or both ("cpu:generated")'
    if not isinstance(raw, str):
        _bad(raw, source, "a device or an implementation", fix)
    if raw in IMPLEMENTATIONS:
        return Force(None, raw)
    device, _, last = raw.rpartition(":")
    if last in IMPLEMENTATIONS and _DEVICE.fullmatch(device):
        return Force(device, last)
    if _DEVICE.fullmatch(raw):
        return Force(raw, None)
    _bad(raw, source, f"DEVICE[:IMPLEMENTATION] or one of {', '.join(IMPLEMENTATIONS)}", fix)


def _count(
    raw: object, source: str, fix: str = "write for example 4096, or 0 for no minimum"
) -> int:
    try:
        if isinstance(raw, bool):  # True is an int in Python, never a count here
            raise TypeError
        count = int(raw) if isinstance(raw, str) else index(cast(Any, raw))
    except (TypeError, ValueError):
        count = -1
    if count < 0:
        _bad(raw, source, "a whole number >= 0", fix)
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
            _bad(name, source, "a class of work", f"use one of {', '.join(FLOOR_CLASSES)}")
    return {name: _count(value, f"{source}[{name!r}]") for name, value in raw.items()}


_WORDS = dict.fromkeys(("1", "true", "yes", "on"), True)
_WORDS |= dict.fromkeys(("0", "false", "no", "off"), False)


def _flag(raw: object, source: str) -> bool:
    value = _WORDS.get(raw.lower()) if isinstance(raw, str) else raw
    if not isinstance(value, bool):
        _bad(raw, source, "true or false", "write true or false")
    return value


def _one_of(*words: str) -> Callable[[object, str], str]:
    def read(raw: object, source: str) -> str:
        if not isinstance(raw, str) or raw not in words:
            _bad(raw, source, f"one of {', '.join(words)}", f"write {words[0]!r} or {words[-1]!r}")
        return raw

    return read


def _path(raw: object, source: str) -> str:
    if not isinstance(raw, str) or not raw:
        _bad(raw, source, "a path", "write the path as text")
    return os.path.abspath(os.path.expanduser(raw))


def _report(raw: object, source: str) -> str:
    if raw == "-":  # standard error
        return "-"
    path = _path(raw, source)
    if os.path.splitext(path)[1].lower() not in (*REPORTS, ""):
        fix = f"let it end in {', '.join(REPORTS[:-1])} or {REPORTS[-1]}; without an end it is JSON"
        _bad(raw, source, "a file that a report can be written to", fix)
    return path


# One row and one field, of Policy or of Config, are all that a setting needs: its key in the file
# and its environment name follow from its name, its default stands in the field.
_READ: Mapping[str, Callable[[object, str], Any]] = {
    "devices": _devices,
    "force": _force,
    "floor": _floor,
    "on_gap": _one_of("host", "raise"),
    "pick": _one_of("model", "measure"),
    "reproducible": _flag,
    "learn": _flag,
    "cache_dir": _path,
    "log_level": _one_of("off", "info", "trace"),
    "log_size": _kept,
    "report": _report,
    "calibrate": _one_of("auto", "off"),
    "threads": _threads,
    "wgpu_power": _one_of("high", "low"),
    "wgpu_software": _flag,
}
_POLICY_FIELDS = ("devices", "force", "floor", "on_gap", "pick", "reproducible", "learn")
_FLOOR_NAMES = {f"{_PREFIX}FLOOR_{name.upper()}": name for name in FLOOR_CLASSES}
_NAMES = {_PREFIX + name.removesuffix("_level").upper(): name for name in _READ if name != "floor"}
# The last two are read where the native core is built and loaded, below this layer.
_KNOWN = (*_NAMES, *_FLOOR_NAMES, "ALIGHT_CONFIG", "ALIGHT_NO_NATIVE", "ALIGHT_TWIN")

# Numbers are never given twice: to drop them all, for a program that makes ever new policies,
# costs those in use one plan each.
_STAMPS_KEPT = 4096
_stamps: dict[object, int] = {}
_next_stamp = count()


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """What may run where; equal to another when it says the same, whatever its sources.

    `stamp` is an int that in this process no policy has which says something else: a key for
    caches.
    """

    devices: tuple[str, ...] | None = None
    force: Force | None = None
    floor: Mapping[str, int] = field(default_factory=dict)
    on_gap: Literal["host", "raise"] = "host"
    pick: Literal["model", "measure"] = "model"
    reproducible: bool = True
    learn: bool = False
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    stamp: int = field(init=False, repr=False)
    _said: tuple[object, ...] = field(init=False, repr=False)
    _floor_all: int | None = field(init=False, repr=False)
    _recording: tuple[int, bool] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        content = [getattr(self, name) for name in _POLICY_FIELDS if name != "floor"]
        content += sorted(self.floor.items())
        object.__setattr__(self, "_said", said := tuple(content))
        if (stamp := _stamps.get(said)) is None:
            if len(_stamps) >= _STAMPS_KEPT:
                _stamps.clear()
            stamp = _stamps.setdefault(said, next(_next_stamp))  # atomic: no lock to hold at a fork
        object.__setattr__(self, "stamp", stamp)
        object.__setattr__(self, "_floor_all", self.floor.get("all"))
        given = [n for kind in ("unary", "binary") if (n := self.floor_for(kind)) is not None]
        object.__setattr__(self, "_recording", (max(given, default=0), len(given) == 2))

    def __eq__(self, other: object) -> bool:
        return self._said == other._said if isinstance(other, Policy) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._said)

    def __reduce__(self) -> tuple[Any, ...]:
        # A stamp means nothing in another process, so it is made anew there.
        return Policy, tuple(getattr(self, name) for name in (*_POLICY_FIELDS, "sources"))

    def floor_for(self, kind: str) -> int | None:
        """Return the least output elements worth planning, or None to use the measured profile."""
        return self.floor.get(kind, self._floor_all)

    @property
    def record_floor(self) -> int:
        """Return the least elements at which recording need not ask which class an op is of."""
        least, all_given = self._recording
        return least if all_given else max(least, floor.auto)

    @property
    def floor_given(self) -> bool:
        """Return whether every class of ops has its floor from the user: none is measured."""
        return self._recording[1]

    def floor_source(self, kind: str) -> str:
        """Return where `floor_for(kind)` came from."""
        return self.source(f"floor.{kind if kind in self.floor else 'all'}")

    def source(self, name: str) -> str:
        """Return where a field came from; `floor.unary` asks for one class."""
        return self.sources.get(name) or self.sources.get(name.partition(".")[0], _DEFAULT)

    def names(self, device: str) -> bool:
        """Return whether the user wrote this device; some exist only then."""
        forced = self.force is not None and self.force.device == device
        return forced or device in (self.devices or ())

    def allows(self, device: str) -> bool:
        """Return whether work may be placed on this device."""
        if self.devices is None or device in self.devices:
            return True
        return "-" + device not in self.devices and all(d.startswith("-") for d in self.devices)

    def order(self, present: Iterable[str]) -> tuple[str, ...]:
        """Return the devices that are present and allowed, the preferred first."""
        listed = self.devices or ()
        rank = {device: place for place, device in enumerate(listed)}
        allowed = (device for device in present if self.allows(device))
        return tuple(sorted(allowed, key=lambda device: rank.get(device, len(listed))))


def _amend(base: Policy, changes: Iterable[Sourced]) -> Policy:
    """Return the policy with the changes laid over it, in their order."""
    values: dict[str, Any] = {name: getattr(base, name) for name in _POLICY_FIELDS}
    sources = dict(base.sources)
    for name, value, source in changes:
        sources[name] = source
        if name != "floor":
            values[name] = value
            continue
        if not value or "all" in value:  # a floor for all replaces what stood for one class
            values[name] = {}
            sources = {n: s for n, s in sources.items() if not n.startswith("floor.")}
        values[name] = {**values[name], **value}
        sources |= {f"floor.{kind}": source for kind in value}
    result = Policy(**values, sources=sources)
    if result.force and result.force.device and not result.allows(result.force.device):
        raise ConfigError(
            f"{result.source('force')}: {str(result.force)!r} is not among the devices allowed by "
            f"{result.source('devices')}: {', '.join(result.devices or ())}. "
            f"Fix: add {result.force.device!r} to devices, or give force=None."
        )
    return result


_outer: ContextVar[tuple[Policy | None, ...]] = ContextVar("alight.policy.outer", default=())


class policy:
    """Change the policy inside a `with` block or a decorated function; the rest stays as it was.

    Nests and may be entered again. It holds for the current thread or task, as context variables
    do. `devices` is an allow-list in order of preference, `"-wgpu:0"` denies; `force` is
    `DEVICE[:IMPLEMENTATION]` or an implementation; `floor` is output elements (matmul: m·k·n),
    one number or `{class: number}`. None gives back the default of devices, force and floor.
    """

    __slots__ = ("_changes", "_last")

    def __init__(
        self,
        *,
        devices: str | Sequence[str] | EllipsisType | None = ...,
        force: str | Force | EllipsisType | None = ...,
        floor: int | Mapping[str, int] | EllipsisType | None = ...,
        on_gap: str | EllipsisType = ...,
        pick: str | EllipsisType = ...,
        reproducible: bool | EllipsisType = ...,
        learn: bool | EllipsisType = ...,
    ) -> None:
        values = (devices, force, floor, on_gap, pick, reproducible, learn)
        self._changes = tuple(
            _setting(name, raw, f"argument {name}")
            for name, raw in zip(_POLICY_FIELDS, values, strict=True)
            if raw is not ...  # not named: None is a value
        )
        self._last: tuple[Policy, Policy] | None = None

    def over(self, base: Policy) -> Policy:
        """Return the base policy with these changes."""
        # A decorated function enters thousands of times over the same base.
        if (last := self._last) is None or last[0] is not base:
            self._last = last = (base, _amend(base, self._changes))
        return last[1]

    def __enter__(self) -> Policy:
        result = self.over(current_policy())
        _outer.set((*_outer.get(), POLICY.get()))
        POLICY.set(result)
        return result

    def __exit__(self, *_: object) -> None:
        *rest, before = _outer.get() or (None,)
        POLICY.set(before)
        _outer.set(tuple(rest))

    def __call__(self, function: _Function) -> _Function:
        """Return the function with this policy around every call."""
        import inspect

        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise ConfigError(
                f"alight.policy on {function.__qualname__}: the body of a generator or coroutine "
                "runs after the call has returned. Fix: use `with alight.policy(...)` inside it."
            )

        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(_Function, inside)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings that the process was started with."""

    policy: Policy = Policy()
    file: str | None = None
    cache_dir: str | None = None
    log_level: Literal["off", "info", "trace"] = "off"
    log_size: int = 10_000
    report: str | None = None
    calibrate: Literal["auto", "off"] = "auto"
    threads: int = 0
    wgpu_power: Literal["high", "low"] = "high"
    wgpu_software: bool = True
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)

    def cache_root(self) -> Path:
        """Return the folder for what outlives the process; it need not exist."""
        from pathlib import Path

        if self.cache_dir is not None:
            return Path(self.cache_dir)
        from platformdirs import user_cache_path

        return user_cache_path("alight", appauthor=False)

    def rows(self) -> list[Sourced]:
        """Return every setting with its value and source, floors by class where one is set."""
        own, said = self.policy, self.sources
        rows = [Sourced(n, getattr(own, n), own.source(n)) for n in _POLICY_FIELDS if n != "floor"]
        other = [name for name in _READ if name not in _POLICY_FIELDS]
        rows += [Sourced(n, getattr(self, n), said.get(n, _DEFAULT)) for n in other]
        floors: Mapping[str, int | None] = own.floor or {"all": None}
        rows += (Sourced(f"floor.{kind}", n, own.floor_source(kind)) for kind, n in floors.items())
        return rows


def load(
    environ: Mapping[str, str] | None = None, problems: list[AlightError] | None = None
) -> Config:
    """Return the settings of this environment and of the file it points to.

    Bad values raise ConfigError; with ``problems`` they are put there and their settings left out.
    """
    environ = os.environ if environ is None else environ

    def attempt(read: Callable[[], _Outcome], otherwise: _Outcome) -> _Outcome:
        try:
            return read()
        except ConfigError as error:
            if problems is None:
                raise
            problems.append(error)
            return otherwise

    nothing: tuple[str | None, list[Sourced]] = None, []
    file, given = attempt(lambda: _read_file(environ), nothing)
    changes: list[Sourced] = []
    for setting in (*given, *_read_environment(environ)):
        changes += attempt(partial(_read, setting), [])
    other = [change for change in changes if change.name not in _POLICY_FIELDS]
    placing = [change for change in changes if change.name in _POLICY_FIELDS]
    return Config(
        policy=attempt(lambda: _amend(Policy(), placing), Policy()),
        file=file,
        sources={change.name: change.source for change in other},
        **{change.name: change.value for change in other},
    )


def _read_file(environ: Mapping[str, str]) -> tuple[str | None, list[Sourced]]:
    """Return the settings file and what stands in it, not yet read as values."""
    named = environ.get("ALIGHT_CONFIG")
    if named:
        path = os.path.abspath(os.path.expanduser(named))
    else:
        from platformdirs import user_config_dir

        path = os.path.join(user_config_dir("alight", appauthor=False), "config.toml")
    try:
        with open(path, "rb") as stream:
            import tomllib  # late: most have no such file

            document = tomllib.load(stream)
    except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
        if isinstance(error, OSError) and not named:
            return None, []  # nobody asked for a file, and none can be read
        source = "environment variable ALIGHT_CONFIG: " if named else ""
        raise ConfigError(
            f"{source}cannot read the file {path}: {error}. Fix: mend it, or name another file in "
            "ALIGHT_CONFIG."
        ) from error
    for key in document:
        if key not in _READ:
            near = _nearest(key, _READ) or f"one of {', '.join(_READ)}"
            _bad(key, f"file {path}", "a setting", f"write {near}, or remove the key")
    return path, [Sourced(key, raw, f"file {path} key {key}") for key, raw in document.items()]


def _read_environment(environ: Mapping[str, str]) -> Iterator[Sourced]:
    """Yield what stands in variables, not yet read as values."""
    # Set but empty counts as not set: it is how shells and CI files take a value back.
    for variable, name in _NAMES.items():
        if raw := environ.get(variable):
            yield Sourced(name, raw, f"environment variable {variable}")
    # "all" first, so that a floor for one class stands beside it.
    for variable, kind in reversed(_FLOOR_NAMES.items()):
        if raw := environ.get(variable):
            yield Sourced(f"floor.{kind}", raw, f"environment variable {variable}")
    for variable in environ:
        if variable.startswith(_PREFIX) and variable not in _KNOWN:
            _warn_unknown(variable)


def _read(given: Sourced) -> list[Sourced]:
    return [_setting(*given)]


def _setting(name: str, raw: object, source: str) -> Sourced:
    own, _, kind = name.partition(".")
    if kind:
        return Sourced(own, {kind: _count(raw, source)}, source)
    return Sourced(name, _READ[name](raw, source), source)


def checked(name: str, raw: object, source: str) -> Any:
    """Return what a setting of that name would be; a bad value is a ConfigError that names its
    source."""
    return _setting(name, raw, source).value


def _nearest(word: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), n=1)), None)


_warned: set[str] = set()


def _warn_unknown(variable: str) -> None:
    # Names that resemble none of ours may belong to somebody else's tool: those stay unmentioned.
    known = {name.removeprefix(_PREFIX): name for name in _KNOWN}
    known |= {name.upper(): own for own, name in _NAMES.items()}  # the key in the file
    known["FLOOR"] = f"{_PREFIX}FLOOR_ALL"  # the key in the file, with no class
    near = known.get(_nearest(variable.removeprefix(_PREFIX), known) or "")
    if near is None or variable in _warned:
        return
    import logging

    _warned.add(variable)
    logging.getLogger("alight").warning(
        "environment variable %s is not known and has no effect. Fix: write %s.",
        *(variable, near),
    )


def _start_logging(settings: Config) -> None:
    if "log_level" not in settings.sources:
        return  # nobody asked: the logger stays as the application left it
    import logging

    logging.addLevelName(TRACE, "TRACE")
    logger = logging.getLogger("alight")
    # "off" is about decisions; a warning says that something was lost, so it still comes through.
    levels = {"off": logging.WARNING, "info": logging.INFO, "trace": TRACE}
    logger.setLevel(levels[settings.log_level])
    if settings.log_level != "off" and not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        logger.addHandler(handler)


_config: Config | None = None
_base: Policy | None = None


def config() -> Config:
    """Return the settings of the process, read once."""
    return _config or reload_config()  # two threads at once read the same: no lock needed


def reload_config(problems: list[AlightError] | None = None) -> Config:
    """Return the settings read anew from file and environment, as `load` reads them; they hold
    from now on."""
    global _config, _base
    settings = load(problems=problems)
    _start_logging(settings)
    _config, _base = settings, settings.policy
    return settings


def current_policy() -> Policy:
    """Return the policy in force here: the innermost `policy(...)`, or the process's own."""
    inner: Policy | None = POLICY.get()
    return inner or _base or config().policy
