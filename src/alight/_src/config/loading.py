"""The settings of a process, each with its source: defaults < file < environment < call.

`config()` is what the process was started with; `policy(...)` changes the policy part of it for a
block or a function. A bad value is a `ConfigError` that names where the value came from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial, wraps
from types import EllipsisType, MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from alight._core import POLICY
from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import failures
from alight._src.config.policy import PLACEMENT, Policy, amended
from alight._src.config.schema import (
    DEFAULT,
    PREFIX,
    SETTINGS,
    SWITCHES,
    TRACE,
    Force,
    Scope,
    Sourced,
    bad,
    known,
    meant,
    nearest,
    setting,
    settings_of,
    switched,
    variables,
)
from alight.errors import AlightError, ConfigError

if TYPE_CHECKING:
    from inspect import Signature
    from pathlib import Path

PROCESS = settings_of(Scope.PROCESS)

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Outcome = TypeVar("_Outcome")

_outer: ContextVar[tuple[Policy | None, ...]] = ContextVar("alight.policy.outer", default=())


class _Changes:
    """What is changed of a policy, and the policy that was made of the last base."""

    __slots__ = ("_last", "_values")

    def __init__(self, **given: Any) -> None:
        named = [(name, raw) for name, raw in given.items() if raw is not ...]  # None is a value
        self._values = tuple([setting(name, raw, f"argument {name}") for name, raw in named])
        self._last: tuple[Policy, Policy] | None = None

    def over(self, base: Policy) -> Policy:
        """Return the base policy with these changes."""
        if (last := self._last) is None or last[0] is not base:
            self._last = last = (base, amended(base, self._values))
        return last[1]


# A `with` block in a loop, or in a function, makes one policy thousands of times, and a jitted
# function's guard knows a policy by identity. Blocks in the source are few.
_shared = lru_cache(maxsize=64, typed=True)(_Changes)


def _changes(unnamed: tuple[Any, ...], given: dict[str, Any]) -> _Changes:
    """Return the changes of a call of `policy`."""
    if unnamed:
        named = repr(unnamed[0]) if isinstance(unnamed[0], str) else "'cpu'"
        raise TypeError(
            f"alight.policy takes settings by name, not {unnamed[0]!r:.80} alone. Fix: write "
            f"devices={named} for what work may use, force={named} for what it must use."
        )
    for name in given:
        if name not in PLACEMENT:
            near = nearest(name, PLACEMENT) or f"one of {', '.join(PLACEMENT)}"
            raise TypeError(f"alight.policy: {name!r} is not a setting of it. Fix: write {near}.")
    try:
        return _shared(**given)
    except failures(TypeError):  # a list or dict among them
        return _Changes(**given)


class _Arguments:
    """The signature of `policy`: the settings of placement, by name."""

    def __get__(self, instance: object, owner: type) -> Signature:
        from inspect import Parameter, Signature  # late: few ask

        return Signature(
            [Parameter(name, Parameter.KEYWORD_ONLY, default=...) for name in PLACEMENT]
        )


class policy:
    """Change the policy inside a ``with`` block or a decorated function.

    What is not named stays as it was. Policies nest, may be entered again, and hold for the
    current thread or task, as context variables do.

    Parameters
    ----------
    devices : str or sequence of str or None, optional
        Where work may be placed, the preferred first: ``["cuda:0", "cpu"]``; ``"-wgpu:0"`` denies.
        None: the host and every device that was calibrated.
    force : str or None, optional
        ``DEVICE``, ``IMPLEMENTATION`` or ``DEVICE:IMPLEMENTATION``: all planned work goes there and
        no cost is compared. None: placed by cost.
    floor : int or mapping of str to int or None, optional
        Elements of the output (of a matrix product m·k·n) below which work is NumPy's: one number,
        or one for each class of ``unary``, ``binary``, ``reduction``, ``matmul``, ``all``. None: as
        measured.
    on_gap : {"host", "raise"}, optional
        What becomes of work that cannot run where it was forced to.
    pick : {"model", "measure"}, optional
        Choose by the cost model, or by timing the candidates.
    reproducible : bool, optional
        Whether a kernel that computed a group keeps it, where another way would change last bits.
    learn : {"next", "now", "off"}, optional
        Whether predictions go by what earlier processes' runs took, by this one's too, or by the
        profile alone.
    enabled : bool, optional
        False: nothing is placed, and NumPy does all at once.

    Raises
    ------
    ConfigError
        A value that the setting does not take.
    TypeError
        A name that is no setting, or a value without a name.

    Examples
    --------
    >>> import alight
    >>> with alight.policy(force="cpu:generated", floor=0) as here:
    ...     print(here.force, dict(here.floor))
    cpu:generated {'all': 0}
    """

    __slots__ = ("_changes",)
    __signature__ = _Arguments()
    _changes: _Changes

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            devices: str | Sequence[str] | EllipsisType | None = ...,
            force: str | Force | EllipsisType | None = ...,
            floor: int | Mapping[str, int] | EllipsisType | None = ...,
            on_gap: str | EllipsisType = ...,
            pick: str | EllipsisType = ...,
            reproducible: bool | EllipsisType = ...,
            learn: str | EllipsisType = ...,
            enabled: bool | EllipsisType = ...,
        ) -> None: ...

    else:

        def __init__(self, *unnamed: Any, **given: Any) -> None:
            try:
                self._changes = _changes(unnamed, given)
            except ConfigError as error:
                raise error.with_traceback(None) from None  # at the program's line

    def over(self, base: Policy) -> Policy:
        """Return the base policy with these changes."""
        return self._changes.over(base)

    def __enter__(self) -> Policy:
        try:
            result = self.over(current_policy())
        except ConfigError as error:
            raise error.with_traceback(None) from None  # at the program's line
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

        if not callable(function) or isinstance(function, type):
            raise TypeError(
                f"alight.policy decorates functions, not {function!r}. Fix: decorate the functions "
                "of it, or use `with alight.policy(...)`."
            )
        if (
            inspect.isgeneratorfunction(function)
            or inspect.iscoroutinefunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise ConfigError(
                f"alight.policy on {function.__qualname__}: the body of a generator or coroutine "
                "runs after the call has returned. Fix: use `with alight.policy(...)` inside it."
            )

        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(_Function, inside)


class Config:
    """The settings that the process was started with."""

    __slots__ = (*PROCESS, "file", "policy", "sources")

    # For the type checker; what there is the table says.
    cache_dir: str | None
    log_level: Literal["off", "info", "trace"]
    log_size: int
    own_functions: str
    report: str | None
    calibrate: Literal["auto", "off"]
    threads: int
    check: bool
    wgpu_power: Literal["high", "low"]
    wgpu_software: bool

    def __init__(
        self,
        policy: Policy | None = None,
        file: str | None = None,
        sources: Mapping[str, str] = MappingProxyType({}),
        **given: Any,
    ) -> None:
        self.policy = policy or Policy()
        self.file = file
        self.sources = sources
        for name in PROCESS:
            setattr(self, name, given.get(name, SETTINGS[name].default))

    def cache_root(self) -> Path:
        """Return the folder for what outlives the process; it need not exist."""
        from pathlib import Path

        return Path(self.cache_folder())

    def cache_folder(self) -> str:
        """Return `cache_root` as a string: to start needs no paths of more."""
        return _user_folder("cache") if self.cache_dir is None else self.cache_dir

    def rows(self) -> list[Sourced]:
        """Return every setting with its value and source, floors by class where one is set."""
        rows = []
        for name, row in SETTINGS.items():
            if row.scope is Scope.PROCESS:
                rows.append(Sourced(name, getattr(self, name), self.sources.get(name, DEFAULT)))
            elif not row.type.parts:
                rows.append(Sourced(name, getattr(self.policy, name), self.policy.source(name)))
        for name in PLACEMENT:
            if SETTINGS[name].type.parts:
                parts = getattr(self.policy, name) or {"all": None}
                source = self.policy.source
                rows += [Sourced(f"{name}.{p}", n, source(f"{name}.{p}")) for p, n in parts.items()]
        return rows


def _user_folder(kind: Literal["cache", "config"]) -> str:
    """Return the folder of this user's files of a kind."""
    if sys.platform == "linux" and "ANDROID_DATA" not in os.environ:
        # What platformdirs says there, without its 5 ms of modules before a program's first line.
        named = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
        if os.path.isabs(named):
            return os.path.join(named, "alight")
        if os.path.isabs(os.environ.get("HOME", "")):
            return os.path.join(os.path.expanduser(f"~/.{kind}"), "alight")
    import platformdirs

    found = getattr(platformdirs, f"user_{kind}_dir")("alight", appauthor=False)
    return str(found)


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

    for switch in SWITCHES:
        attempt(partial(switched, environ, switch), None)
    nothing: tuple[str | None, list[Sourced]] = None, []
    file, given = attempt(lambda: _read_file(environ), nothing)
    changes: list[Sourced] = []
    for row in (*given, *_read_environment(environ)):
        changes += attempt(partial(_read, row), [])
    other = [change for change in changes if change.name not in PLACEMENT]
    placing = [change for change in changes if change.name in PLACEMENT]
    return Config(
        policy=attempt(lambda: amended(Policy(), placing), Policy()),
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
        path = os.path.join(_user_folder("config"), "config.toml")
    try:
        with open(path, "rb") as stream:
            import tomllib  # late: most have no such file

            document = tomllib.load(stream)
    except failures(OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
        if isinstance(error, OSError) and not named:
            return None, []  # nobody asked for a file, and none can be read
        source = "environment variable ALIGHT_CONFIG: " if named else ""
        raise ConfigError(
            f"{source}cannot read the file {path}: {error}. Fix: mend it, or name another file in "
            "ALIGHT_CONFIG."
        ) from error
    for key in document:
        if key not in SETTINGS:
            near = nearest(key, SETTINGS) or f"one of {', '.join(SETTINGS)}"
            fix = f"write {near}, or remove the key"
            if isinstance(document[key], dict):  # a heading, under which settings stand
                fix = f"write what stands in [{key}] above every table, without that heading"
            bad(key, f"file {path}", "a setting", fix)
    return path, [Sourced(key, raw, f"file {path} key {key}") for key, raw in document.items()]


def _read_environment(environ: Mapping[str, str]) -> Iterator[Sourced]:
    """Yield what stands in variables, not yet read as values."""
    # Set but empty counts as not set: it is how shells and CI files take a value back. What is for
    # all parts comes first, so that what is for one stands beside it.
    for variable, what in sorted(variables().items(), key=lambda item: not _for_all(item[1])):
        if raw := environ.get(variable):
            yield Sourced(what, meant(what, raw), f"environment variable {variable}")


def _for_all(what: str) -> bool:
    return what.endswith(".all")


def _read(given: Sourced) -> list[Sourced]:
    return [setting(*given)]


_told: set[str] = set()


def _tell_unknown(environ: Mapping[str, str]) -> None:
    """Log, once each, the variables that look like settings and are none."""
    every = known()
    unknown = [name for name in environ if name.startswith(PREFIX) and name not in every]
    if _told.issuperset(unknown):
        return
    names = {name.removeprefix(PREFIX): name for name in every}
    for own, what in variables().items():  # the key in the file, too, with no part
        setting_name, _, part = what.partition(".")
        if part in ("", "all"):
            names[setting_name.upper()] = own
    import logging

    logger = logging.getLogger("alight")
    for variable in unknown:
        if variable in _told:
            continue
        _told.add(variable)
        near = names.get(nearest(variable.removeprefix(PREFIX), names) or "")
        if near:
            logger.warning(
                "environment variable %s is not known and has no effect. Fix: write %s.",
                *(variable, near),
            )
        else:
            logger.info(
                "environment variable %s is no setting of alight's. Fix: nothing, if it is another "
                "program's; the settings are in `alight doctor`.",
                variable,
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
    _tell_unknown(os.environ)  # by now it is known how much is to be logged
    _config, _base = settings, settings.policy
    return settings


register(Cache.SETTINGS, reload_config)


def calibrate_here(device: str = "") -> str:
    """Return the command that measures a device as this process has it: with the number of threads
    that its environment says, as a profile holds for that alone."""
    settings = config()
    variable = "ALIGHT_THREADS"
    set_here = settings.sources.get("threads") == f"environment variable {variable}"
    given = f"{variable}={settings.threads} " if set_here else ""
    return f"`{given}alight calibrate{device and ' '}{device}`"


def current_policy() -> Policy:
    """Return the policy in force here: the innermost `policy(...)`, or the process's own."""
    inner: Policy | None = POLICY.get()
    return inner or _base or config().policy
