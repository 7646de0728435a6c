"""Who asks for a lock while holding one that stands behind it, in the order that `at_fork` has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from alight import _core
from alight._src import store
from alight._src.api import counter_draws
from alight._src.base import at_fork, parsing, uninterrupted
from alight._src.codegen.llvm import compiled
from alight._src.fp_warnings import filters
from alight._src.jit import code_origin
from alight._src.log.decisions import LOG
from alight._src.record import eager_calls, storage_io
from alight._src.run import kernels, residency
from alight.backends import registry

__all__ = ["LOCKS", "ORDER", "Followed", "followed"]

# As the docstring of `at_fork` has them.
ORDER = tuple(
    [line.split()[0] for line in (at_fork.__doc__ or "").splitlines() if line[:4] == "    "]
)
# Where each is kept.
LOCKS: dict[str, tuple[Any, str]] = {
    "residency.LOCK": (residency, "LOCK"),
    "uninterrupted._working": (uninterrupted, "_working"),
    "kernels._making": (kernels, "_making"),
    "compiled._lock": (compiled, "_lock"),
    "parsing.lock": (parsing, "lock"),
    "kernels._lock": (kernels._background, "_lock"),
    "counter_draws._lock": (counter_draws, "_lock"),
    "decisions._lock": (LOG, "_lock"),
    "registry._finding": (registry, "_finding"),
    "store._threads_lock": (store, "_threads_lock"),
    "filters._filters": (filters, "_filters"),
    "code_origin._asking": (code_origin, "_asking"),
}


class Followed:
    """The locks that threads have, and what was asked for out of order."""

    def __init__(self) -> None:
        self.wrong: set[str] = set()
        self.pairs: set[tuple[str, str]] = set()
        self._of = threading.local()

    def held(self) -> list[str]:
        found: list[str] = self._of.__dict__.setdefault("held", [])
        return found

    def ask(self, name: str) -> None:
        held = self.held()
        if name in held:
            return
        for other in held:
            self.pairs.add((other, name))
            if ORDER.index(other) > ORDER.index(name):
                self.wrong.add(f"{name} asked for by who has {other}")


class _Lock:
    """A lock in whose place it stands."""

    def __init__(self, lock: Any, name: str, by: Followed) -> None:
        self._lock, self._name, self._by = lock, name, by

    def acquire(self, *args: Any, **kwargs: Any) -> bool:
        self._by.ask(self._name)
        got = bool(self._lock.acquire(*args, **kwargs))
        if got:
            self._by.held().append(self._name)
        return got

    def release(self) -> None:
        held = self._by.held()
        if self._name in held:  # else it was taken before this stood in its place
            del held[len(held) - 1 - held[::-1].index(self._name)]
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:  # of a condition, which lets go of it and takes it
        return getattr(self._lock, name)


def _turns(by: Followed) -> Callable[..., Any]:
    class Turn:
        def __init__(self, *storages: Any) -> None:
            self.turn = _core.Turn(*storages)

        def __enter__(self) -> None:
            by.ask("Turn")
            self.turn.__enter__()
            by.held().append("Turn")

        def __exit__(self, *error: object) -> None:
            by.held().remove("Turn")
            self.turn.__exit__(*error)

    return Turn


@contextmanager
def followed() -> Iterator[Followed]:
    """Follow who takes which lock, while no other thread has any."""
    by = Followed()
    places = [(*place, _Lock(getattr(*place), name, by)) for name, place in LOCKS.items()]
    places += [(module, "Turn", _turns(by)) for module in (storage_io, eager_calls)]
    before = [getattr(place, name) for place, name, _ in places]
    for place, name, lock in places:
        setattr(place, name, lock)
    try:
        yield by
    finally:
        for (place, name, _), lock in zip(places, before, strict=True):
            setattr(place, name, lock)
