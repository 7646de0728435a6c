"""NumPy's error state: what a program asks for where an op is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

from alight._src.base.originals import np

if TYPE_CHECKING:
    from alight._core import Value

_umath = np._core.umath  # type: ignore[attr-defined]
ERRSTATE: ContextVar[Any] = _umath._extobj_contextvar
# A context in which nobody has set anything shows NumPy's own default.
USUAL = Context().run(ERRSTATE.get)
# Settings by NumPy's state object, which is immutable; the object is kept so that its id stays its
# own.
_settings: dict[int, tuple[Any, dict[str, str]]] = {}


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


def ignoring(state: Any) -> Any:
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
_NUMPYS_DEFAULT = frozenset(("divide", "over", "invalid"))


def wanted_by(values: Sequence[Value | None]) -> frozenset[str]:
    """Return the categories that some of the values' states do not ignore."""
    first = None
    for value in values:
        if value is not None and value.errstate is not first:
            if first is not None:
                break
            first = value.errstate
    else:
        return _NUMPYS_DEFAULT if first is None else categories_of(first)
    states = {id(value.errstate): value.errstate for value in values if value is not None}
    return frozenset().union(*[categories_of(state) for state in states.values()])
