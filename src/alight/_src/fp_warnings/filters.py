"""Python's warning filters: whether an op has to warn when it is called, later or never, and the
warning itself, at the line that recorded the op."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NamedTuple

from alight._src.base.at_fork import renewed
from alight._src.base.originals import np
from alight._src.fp_warnings.errstate import ERRSTATE, ignoring, settings_of
from alight._src.log.call_site import names_of, place_of

# Of files whose names are gone: what was shown at which line.
_registries: dict[str, dict[Any, Any]] = {}
# Warning filters are the process's. Two threads that change them at once and put back what each
# found leave one's filters behind for good.
_filters = renewed(globals(), "_filters", threading.RLock)


# -- blocks of ours that NumPy is asked in ---------------------------------------------------------

# Lists of filters that stand for the program's while alight asks NumPy something.
_own: list[Any] = []


@contextmanager
def warnings_suppressed() -> Iterator[None]:
    """Keep what NumPy warns of from the program: it is asked about operands that stand in for the
    program's."""
    mine = _Mine()
    entry: Any = ("ignore", mine, Warning, None, 0)
    filters = _Route.now().filters
    with np.errstate(all="ignore"):
        filters.insert(0, entry)
        before, _call.suppressed = _call.suppressed, True
        try:
            yield
        finally:
            _call.suppressed = before
            mine.thread = 0  # where another thread's block has copied it
            if entry in filters:
                filters.remove(entry)


class _Mine:
    """A filter's text that only what this thread warns of has: before Python 3.14 the filters are
    every thread's."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def match(self, text: str) -> bool:
        """Tell whether a warning is this thread's."""
        return threading.get_ident() == self.thread


@contextmanager
def collecting() -> Iterator[list[warnings.WarningMessage]]:
    """Collect every warning of this block, and let nothing but this block see the filters that say
    so."""
    with _filters, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        own = warnings.filters
        _own.append(own)
        try:
            yield caught
        finally:
            _drop(own)


def _drop(own: Any) -> None:
    _own[:] = [filters for filters in _own if filters is not own]


@contextmanager
def told_inside() -> Iterator[None]:
    """Let what is recorded in this block wait, wherever its warnings go: all is done, and told,
    before the block ends.

    Filters are the same in a list of another identity, by which it is known; what was shown under
    them stays noted.
    """
    with _filters:
        before, own = warnings.filters, [*warnings.filters]
        _own.append(own)
        warnings.filters = own
    try:
        with at_the_call():  # whatever other threads do to the filters meanwhile
            yield
    finally:
        with _filters:
            _drop(own)
            if warnings.filters is own:  # or another thread's block is open, which puts it back
                warnings.filters = before


class _Call(threading.local):
    inside = False
    suppressed = False


# Whether this thread is in the call of what it evaluates, and whether it asks NumPy without
# warnings.
_call = _Call()


@contextmanager
def at_the_call() -> Iterator[None]:
    """Let what is evaluated in this block warn as what was called just now."""
    before, _call.inside = _call.inside, True
    try:
        yield
    finally:
        _call.inside = before


# -- when an op has to warn ------------------------------------------------------------------------


class _Route(NamedTuple):
    """Where warnings go: through which filters, to which function."""

    filters: list[Any]
    show: Any  # what a program may replace
    write: Any  # what `show` calls, a function; `catch_warnings(record=True)` replaces it
    collected: bool

    @classmethod
    def now(cls) -> _Route:
        """Return where they go now."""
        if getattr(sys.flags, "context_aware_warnings", False):  # Python 3.14
            context: Any = vars(warnings)["_get_context"]()
            write = vars(warnings)["_showwarnmsg_impl"]
            return cls(context._filters, warnings.showwarning, write, context.log is not None)
        write = vars(warnings)["_showwarnmsg_impl"]
        collected = not isinstance(write, FunctionType)
        return cls(warnings.filters, warnings.showwarning, write, collected)  # type: ignore[arg-type]


# The process's own: what it was when alight was loaded.
_usual = _Route.now()
_waiting = _usual  # the last one under which work was left to wait


def recording_errstate() -> Any:
    """Return the error state to record an op under; None where NumPy must act at the call.

    It must where the state says raise, call or log, and where a warning would have to come out of
    the call itself: where a filter makes an error of it, and where somebody collects warnings. A
    block that ignores all warnings makes the state one that ignores them, for by the time the work
    is done the block may be over.
    """
    state = ERRSTATE.get()
    modes = settings_of(state)
    if not {"raise", "call", "log"}.isdisjoint(modes.values()):
        return None
    if "warn" not in modes.values():
        return state
    when = when_to_warn()
    if when == "later":
        return state
    return ignoring(state) if when == "never" else None


def collected() -> bool:
    """Tell whether an op that must warn at its call may be recorded, if it is evaluated there:
    somebody collects warnings, and nothing makes an error of them."""
    modes = settings_of(ERRSTATE.get()).values()
    return {"raise", "call", "log"}.isdisjoint(modes) and when_to_warn() == "now"


def when_to_warn() -> str:
    """Return when an op that is called now has to warn: "later", "never", "now", or "raising" where
    a filter makes an error of it."""
    global _waiting
    route = _Route.now()
    if _call.suppressed or any(route.filters is filters for filters in _own):
        return "later"
    entries = _of_runtime_warnings(route.filters)
    actions = {entry[0] for entry in entries}
    if "error" in actions:
        return "raising"
    # in a block as in the whole program: what NumPy warns of at the call is dropped there
    if actions == {"ignore"} and _is_for_all(entries[-1]):
        return "never"
    if route.filters is not _usual.filters:
        usual = _of_runtime_warnings(_usual.filters)
        new = [entry for entry in entries if entry not in usual]
        if route.collected or route.show is not _usual.show:
            # Who runs the program may collect all that it warns of, as test runners do, and did so
            # when alight was loaded; a program that collects by itself sets a filter.
            if not _usual.collected or any(map(_is_for_all, new)):
                return "now"
        elif not all(map(_is_for_all, new)):
            return "now"
    _waiting = route._replace(filters=list(route.filters))
    return "later"


def are_told_once() -> bool:
    """Tell whether a warning that comes of the same line again is not shown again."""
    entries = _of_runtime_warnings(_Route.now().filters)
    return {"always", "all"}.isdisjoint([entry[0] for entry in entries])


def make_errors() -> bool:
    """Tell whether a filter that holds now may make an error of a floating-point warning."""
    return any(entry[0] == "error" for entry in _of_runtime_warnings(_Route.now().filters))


def _of_runtime_warnings(filters: Sequence[Any]) -> list[Any]:
    """Return the filters that NumPy's floating-point warnings can meet, in order."""
    entries = []
    for entry in filters:
        if issubclass(RuntimeWarning, entry[2]) and type(entry[1]) is not _Mine:
            entries.append(entry)
            if _is_for_all(entry):
                break
    return entries


def _is_for_all(entry: Any) -> bool:
    """Tell whether a filter looks neither at the text of a warning nor at where it comes from."""
    return entry[1] is None and entry[3] is None and not entry[4]


# -- the warning itself ----------------------------------------------------------------------------


def warn_at(message: str, site: Any) -> None:
    """Warn at the line of a site, under the filters that held where its work was left to wait."""
    path, line = place_of(site)
    names = None if site is None else names_of(site[0])
    if names is None:
        # as Python names it; of None it would say nothing
        registry, module = _registries.setdefault(path, {}), path.removesuffix(".py")
    else:
        registry = names.setdefault("__warningregistry__", {})
        module = names.get("__name__") or "<string>"
    if _call.inside or when_to_warn() == "later":
        warnings.warn_explicit(message, RuntimeWarning, path, line, module, registry)
        return
    # What was left to wait was recorded outside of the block that this is, and NumPy would have
    # warned there.
    with _filters, warnings.catch_warnings():
        _Route.now().filters[:] = _waiting.filters
        warnings.showwarning = _waiting.show
        vars(warnings)["_showwarnmsg_impl"] = _waiting.write
        warnings.warn_explicit(message, RuntimeWarning, path, line, module, registry)
