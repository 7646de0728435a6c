"""Floating-point warnings: NumPy's messages, at the line that recorded the op.

Kernels only leave flags behind. When one says that something happened which the recorded errstate
wants to hear of, the group is run once more through NumPy, node by node, to learn which op it was.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from alight._core import Value
from alight.backends.machine import (
    CATEGORY,
    clear_floating_point_flags,
    floating_point_flags,
)
from alight.forked import renewed
from alight.frozen import np
from alight.ir.op import Kind
from alight.sites import names_of, place_of

if TYPE_CHECKING:
    from alight.ir.group import Graph, Node

_umath = np._core.umath  # type: ignore[attr-defined]
ERRSTATE: ContextVar[Any] = _umath._extobj_contextvar
# A context in which nobody has set anything shows NumPy's own default.
USUAL = Context().run(ERRSTATE.get)
# Settings by NumPy's state object, which is immutable; the object is kept so that its id stays its
# own.
_settings: dict[int, tuple[Any, dict[str, str]]] = {}
_registries: dict[str, dict[Any, Any]] = {}
# Warning filters are the process's. Two threads that change them at once and put back what each
# found leave one's filters behind for good.
_filters = renewed(globals(), "_filters", threading.RLock)


# Lists of filters that stand for the program's while alight asks NumPy something.
_own: list[Any] = []


@contextmanager
def unheard() -> Iterator[None]:
    """Keep what NumPy warns of from the program: it is asked about operands that stand in for the
    program's."""
    mine = _Mine()
    entry: Any = ("ignore", mine, Warning, None, 0)
    filters = _Heard.now().filters
    with np.errstate(all="ignore"):
        filters.insert(0, entry)
        before, _call.unheard = _call.unheard, True
        try:
            yield
        finally:
            _call.unheard = before
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
def _filtered(record: bool = False) -> Iterator[Any]:
    """Let nothing but this block see the warning filters it sets."""
    with _filters, warnings.catch_warnings(record=record) as caught:
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


def settings_of(state: Any) -> dict[str, str]:
    """Return errstate's settings (divide, over, under, invalid) in a captured state."""
    found = _settings.get(id(state))
    if found is None:
        token = ERRSTATE.set(state)
        try:
            found = (state, {name: str(mode) for name, mode in np.geterr().items()})
        finally:
            ERRSTATE.reset(token)
        if len(_settings) > 1000:  # a program that makes states in a loop must not grow for ever
            _settings.clear()
        _settings[id(state)] = found
    return found[1]


def modes_here() -> tuple[str, ...]:
    """Return what the error state here asks for, in NumPy's order of the categories; nothing where
    that is NumPy's default."""
    state = ERRSTATE.get()
    if state is USUAL:
        return ()
    modes = tuple(settings_of(state).values())
    return () if modes == tuple(settings_of(USUAL).values()) else modes


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
    told = telling()
    if told == "later":
        return state
    return _ignoring(state) if told == "never" else None


def _ignoring(state: Any) -> Any:
    """Return the error state that ignores what a state warns of."""
    found = _ignored.get(id(state))
    if found is None:
        calm: Any = {n: "ignore" for n, mode in settings_of(state).items() if mode == "warn"}
        token = ERRSTATE.set(state)
        try:
            with np.errstate(**calm):
                found = (state, ERRSTATE.get())
        finally:
            ERRSTATE.reset(token)
        if len(_ignored) > 1000:  # as for settings; what was recorded just now stays
            del _ignored[next(iter(_ignored))]
        _ignored[id(state)] = found
    return found[1]


_ignored: dict[int, tuple[Any, Any]] = {}


def asked(state: Any) -> Any:
    """Return the error state that a block was in, of the one that it was recorded under: a filter
    that ignores warnings is of that call alone."""
    return next((own for own, calm in tuple(_ignored.values()) if calm is state), state)


class _Heard(NamedTuple):
    """Where warnings go: through which filters, to which function."""

    filters: list[Any]
    show: Any  # what a program may replace
    write: Any  # what `show` calls, a function; `catch_warnings(record=True)` replaces it
    collected: bool

    @classmethod
    def now(cls) -> _Heard:
        """Return where they go now."""
        if getattr(sys.flags, "context_aware_warnings", False):  # Python 3.14
            context: Any = vars(warnings)["_get_context"]()
            write = vars(warnings)["_showwarnmsg_impl"]
            return cls(context._filters, warnings.showwarning, write, context.log is not None)
        write = vars(warnings)["_showwarnmsg_impl"]
        collected = not isinstance(write, FunctionType)
        return cls(warnings.filters, warnings.showwarning, write, collected)  # type: ignore[arg-type]


_usual = _Heard.now()  # the process's own, outside of any block
_waiting = _usual  # the last ones under which work was left to wait


class _Call(threading.local):
    inside = False
    unheard = False


# Whether this thread is in the call of what it evaluates, and whether it asks NumPy unheard.
_call = _Call()


@contextmanager
def at_the_call() -> Iterator[None]:
    """Let what is evaluated in this block warn as what was called just now."""
    before, _call.inside = _call.inside, True
    try:
        yield
    finally:
        _call.inside = before


def collected() -> bool:
    """Tell whether an op that must warn at its call may be recorded, if it is evaluated there:
    somebody collects warnings, and nothing makes an error of them."""
    modes = settings_of(ERRSTATE.get()).values()
    return {"raise", "call", "log"}.isdisjoint(modes) and telling() == "now"


def telling() -> str:
    """Return when an op that is called now has to warn: "later", "never", "now", or "raising" where
    a filter makes an error of it."""
    global _waiting
    heard = _Heard.now()
    if _call.unheard or any(heard.filters is filters for filters in _own):
        return "later"
    entries = _of_runtime_warnings(heard.filters)
    actions = {entry[0] for entry in entries}
    if "error" in actions:
        return "raising"
    # in a block as in the whole program: what NumPy warns of at the call is dropped there
    if actions == {"ignore"} and _is_for_all(entries[-1]):
        return "never"
    if heard.filters is not _usual.filters:
        usual = _of_runtime_warnings(_usual.filters)
        new = [entry for entry in entries if entry not in usual]
        if heard.collected or heard.show is not _usual.show:
            # pytest collects what every test warns of; a test that does so itself sets a filter.
            in_test = "_pytest.warnings" in sys.modules and "PYTEST_CURRENT_TEST" in os.environ
            if not in_test or any(map(_is_for_all, new)):
                return "now"
        elif not all(map(_is_for_all, new)):
            return "now"
    _waiting = heard._replace(filters=list(heard.filters))
    return "later"


def raising() -> bool:
    """Tell whether a filter that holds now may make an error of a floating-point warning."""
    return any(entry[0] == "error" for entry in _of_runtime_warnings(_Heard.now().filters))


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


_USUAL = frozenset(("divide", "over", "invalid"))


def wanted(values: Sequence[Value | None]) -> frozenset[str]:
    """Return the categories that some of the values' states do not ignore."""
    first = None
    for value in values:
        if value is not None and value.errstate is not first:
            if first is not None:
                break
            first = value.errstate
    else:
        return _USUAL if first is None else categories_of(first)
    states = {id(value.errstate): value.errstate for value in values if value is not None}
    return frozenset().union(*[categories_of(state) for state in states.values()])


def told(graph: Graph, states: Sequence[Any]) -> frozenset[str]:
    """Return the categories that the state of some node which can raise a flag does not ignore."""
    found: frozenset[str] = frozenset()
    for node, state in zip(graph.nodes, states, strict=True):
        # truth values never warn
        if node.layout.dtype.kind != "b" and not is_quiet(graph, node):
            found |= categories_of(state)
        if node.op.name in WORDED:
            found |= OF_WORDS
    return found


def categories_of(state: Any) -> frozenset[str]:
    """Return the categories a state does not ignore."""
    found = _categories.get(id(state))
    if found is None or found[0] is not state:
        modes = settings_of(state)
        found = (state, frozenset([name for name, mode in modes.items() if mode != "ignore"]))
        if len(_categories) > 1000:  # as for settings
            _categories.clear()
        _categories[id(state)] = found
    return found[1]


_categories: dict[int, tuple[Any, frozenset[str]]] = {}


def listening(categories: frozenset[str], heard: list[str]) -> np.errstate:
    """Return a context in which NumPy appends each of these categories to ``heard`` when it
    occurs."""

    def call(what: str, flag: int) -> None:
        heard.append(what)

    return np.errstate(call=call, **_modes(categories))  # type: ignore[arg-type]


@cache
def _modes(categories: frozenset[str]) -> dict[str, str]:
    return {c: ("call" if c in categories else "ignore") for c in CATEGORY.values()}


class Hearing:
    """Listen, while a kernel runs, for categories: NumPy tells, generated code leaves flags
    behind. What NumPy says in words of ``worded`` groups is kept from the program until it is told
    at the recorded line."""

    __slots__ = ("categories", "filters", "generated", "heard", "state", "words")

    def __init__(
        self, categories: frozenset[str], heard: list[str], implementation: str, worded: bool
    ) -> None:
        self.categories = categories
        self.heard = heard
        self.generated = implementation == "generated"
        self.filters = _filtered(record=True) if worded and not self.generated else None

    def __enter__(self) -> None:
        if self.filters is not None:
            self.words = self.filters.__enter__()
            warnings.simplefilter("always")
        if not self.generated:
            self.state = listening(self.categories, self.heard)
            self.state.__enter__()
        elif self.categories:
            clear_floating_point_flags()

    def __exit__(self, *error: Any) -> None:
        if not self.generated:
            self.state.__exit__(*error)
        elif self.categories:
            self.heard.extend(self.categories & floating_point_flags())
        if self.filters is not None:
            self.filters.__exit__(*error)
            self.heard.extend([str(word.message) for word in self.words])


def computed(graph: Graph, operands: Sequence[Any]) -> list[Any]:
    """Return every value of a graph, its operands first, as NumPy computes them one by one; what
    there is to warn of is told elsewhere."""
    from alight.backends.host import run_node

    results = [*operands]
    with unheard():
        for node in graph.nodes:
            results.append(np.asarray(run_node(node, [results[i] for i in node.operands])))
    return results


def tell(graph: Graph, inputs: Sequence[np.ndarray[Any, Any]], values: Sequence[Value]) -> None:
    """Run the nodes one by one in NumPy and emit what each one's own state asks for.

    ``values`` are the recorded values of the graph's nodes, in order.
    """
    from alight.backends.host import run_node

    results: list[Any] = list(inputs)
    several = set()  # ops with several outputs that were told of
    for node, value in zip(graph.nodes, values, strict=True):
        operands = [results[i] for i in node.operands]
        call = node.op, node.operands, value.site
        if call in several:
            with np.errstate(all="ignore"):
                results.append(run_node(node, operands))
            continue
        if node.attr("output") is not None:
            several.add(call)
        results.append(_told(node, operands, value))


def _told(node: Node, operands: Sequence[Any], value: Value) -> Any:
    """Return the node's result; what its state asks for is emitted before."""
    from alight.backends.host import run_node

    if in_python(node):
        return _retold(node, operands, value)
    heard: list[str] = []
    with listening(wanted((value,)), heard):
        result = run_node(node, operands)
    for what in dict.fromkeys(heard):
        _emit(what, name_of(node), settings_of(value.errstate)[CATEGORY[what]], value.site)
    return result


# Ops of which the processor raises the flags that NumPy's do, and ops that raise none.
_RAISING_ALIKE = frozenset(("add", "subtract", "multiply", "divide", "square", "sqrt"))
_QUIET = frozenset(("absolute", "copy", "negative", "positive", "where"))


def told_by_flags(graph: Graph) -> bool:
    """Tell whether the flags that a group's kernel leaves say which node raised them: by IEEE
    arithmetic, of which all others have none."""
    raising = [node for node in graph.nodes if not is_quiet(graph, node)]
    return len(raising) <= 1 and all(map(_raises_alike, raising))


def _raises_alike(node: Node) -> bool:
    # half floats are made of single ones, in other ways
    return node.op.name in _RAISING_ALIKE and node.layout.dtype.char in "fd"


def is_quiet(graph: Graph, node: Node) -> bool:
    """Tell whether a node raises no flags, whatever its operands."""
    kinds = {graph.layout(operand).dtype.kind for operand in node.operands}
    if node.layout.dtype.kind in "biu" and node.op.name in _RAISING_ALIKE:
        return True  # whole numbers wrap around
    if node.op.name == "cast":
        return kinds <= {"b", "i", "u"} and node.layout.dtype.char != "e"
    return node.op.name in _QUIET and "c" not in kinds


def tell_by_flags(graph: Graph, heard: Sequence[str], values: Sequence[Value]) -> None:
    """Emit what the node of a group that can raise flags asks for."""
    for node, value in zip(graph.nodes, values, strict=True):
        if not is_quiet(graph, node):
            modes = settings_of(value.errstate)
            for what, category in CATEGORY.items():
                if category in heard:
                    _emit(what, name_of(node), modes[category], value.site)


# Reductions of which NumPy says in words, whatever the error state, that they found no number.
WORDED = frozenset(("nanmin", "nanmax", "nanmean", "nanvar", "nanstd"))
# What generated code raises where there was none.
OF_WORDS = frozenset(("invalid",))
# What NumPy composes in Python: its ufuncs in there warn by their own names, as those of Fourier
# transforms do.
_IN_PYTHON = frozenset(("mean", "var", "std", "ptp", *WORDED))
_TRANSFORM = "fft."


def in_python(node: Node) -> bool:
    """Tell whether NumPy composes a node of several calls, which warn by their own names."""
    return node.op.name in _IN_PYTHON or node.op.name.startswith(_TRANSFORM)


def _retold(node: Node, arrays: Sequence[Any], value: Value) -> Any:
    """Return the node's result; what NumPy warns of meanwhile is told at the recorded line."""
    from alight.backends.host import run_node

    settings: Any = settings_of(value.errstate)
    with _filtered(record=True) as caught, np.errstate(**settings):
        warnings.simplefilter("always")
        result = run_node(node, arrays)
    for text in dict.fromkeys([str(warning.message) for warning in caught]):
        _warn(text, value.site)
    return result


def is_worded(graph: Graph) -> bool:
    """Tell whether NumPy may say something in words of one of the nodes."""
    return any([node.op.name in WORDED for node in graph.nodes])


def name_of(node: Node) -> str:
    """Return what NumPy calls the node in its warnings."""
    if node.op.kind is Kind.REDUCTION:
        return "reduce"
    if node.op.kind is Kind.SCAN:
        return "accumulate"
    ufunc = isinstance(node.op.reference, np.ufunc)
    return str(node.op.reference.__name__ if ufunc else node.op.name)


def _emit(what: str, name: str, mode: str, site: Any) -> None:
    message = f"{what} encountered in {name}"
    if mode == "print":
        print(f"Warning: {message}", file=sys.stderr)
    elif mode == "warn":
        _warn(message, site)


def _warn(message: str, site: Any) -> None:
    path, line = place_of(site)
    names = None if site is None else names_of(site[0])
    if names is None:
        # as Python names it; of None it would say nothing
        registry, module = _registries.setdefault(path, {}), path.removesuffix(".py")
    else:
        registry = names.setdefault("__warningregistry__", {})
        module = names.get("__name__") or "<string>"
    if _call.inside or telling() == "later":
        warnings.warn_explicit(message, RuntimeWarning, path, line, module, registry)
        return
    # What was left to wait was recorded outside of the block that this is, and NumPy would have
    # warned there.
    with _filters, warnings.catch_warnings():
        _Heard.now().filters[:] = _waiting.filters
        warnings.showwarning = _waiting.show
        vars(warnings)["_showwarnmsg_impl"] = _waiting.write
        warnings.warn_explicit(message, RuntimeWarning, path, line, module, registry)


def note(error: BaseException, value: Value) -> None:
    """Have a late error say where the value it is about was recorded, unless it says so."""
    if not getattr(error, "__notes__", None):
        path, line = place_of(value.site)
        error.add_note(f"recorded at {path}:{line}")
