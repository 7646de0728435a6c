"""What backends are given is told to who follows a run, where plans are checked."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from alight.device import Device

__all__ = ["Follower", "following", "watch"]


class Follower(Protocol):
    """One run of a plan, in its thread. ``within``: in the midst of a submission."""

    thread: int
    within: bool

    def submitted(
        self, where: Device, queue: int, commands: Sequence[Any], wait: Sequence[Any], event: Any
    ) -> None:
        """Note what a backend was given."""

    def waited(self, event: Any) -> None:
        """Note that the host has waited for an event."""

    def allocated(self, where: Device, buffer: Any) -> None:
        """Note that memory is new."""


class _Following:
    run: Follower | None = None


following = _Following()


def watch(backend: Any) -> None:
    """Have a backend's commands be followed: those of the host are, as what steps do."""
    if backend.name == "host" or getattr(backend.__dict__.get("submit"), "watched", False):
        return
    own = {name: backend.__dict__.get(name) for name in ("submit", "wait", "allocate")}

    def inner(name: str) -> Any:
        return own[name] or getattr(type(backend), name).__get__(backend)

    def here() -> Follower | None:
        run = following.run
        mine = run is not None and run.thread == threading.get_ident() and not run.within
        return run if mine else None

    def submit(where: Device, queue: int, commands: Sequence[Any], wait: Sequence[Any] = ()) -> Any:
        if (run := here()) is None:
            return inner("submit")(where, queue, commands, wait)
        run.within = True  # what stands between this and the backend is no other submission
        try:
            event = inner("submit")(where, queue, commands, wait)
        finally:
            run.within = False
        run.submitted(where, queue, commands, wait, event)
        return event

    def wait(event: Any) -> None:
        inner("wait")(event)
        if (run := here()) is not None:
            run.waited(event)

    def allocate(where: Device, nbytes: int, kind: str = "device") -> Any:
        buffer = inner("allocate")(where, nbytes, kind)
        if (run := here()) is not None:
            run.allocated(where, buffer)
        return buffer

    submit.watched = True  # type: ignore[attr-defined]
    backend.submit, backend.wait, backend.allocate = submit, wait, allocate
