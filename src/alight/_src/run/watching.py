"""Who follows what a thread asks for while a function is traced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from alight._core import Key, Value

if TYPE_CHECKING:
    from alight._src.plan.plan import Plan
    from alight._src.run.written_steps import WriteOrder

__all__ = ["Watcher", "watch"]


class Watcher(Protocol):
    """Who follows what this thread asks for while a function is traced. ``touched``: another call
    may give what its arguments do not tell by their layouts; ``away``: these lie on a device."""

    touched: bool
    away: bool

    def read(self, value: Value) -> None:
        """Note that a concrete value's elements were read."""

    def plans(self, what: Key, ops: int, plan: Callable[[], Plan]) -> None:
        """Note that a request of so many ops is about to be planned."""

    def ran(self, leaves: Sequence[Value], plan: Plan) -> None:
        """Note that a request is about to run a plan on these leaves."""

    def recorded(self) -> None:
        """Note that some ops more were recorded."""

    def settle_given_up(self) -> None:
        """Put what was written into the caller's memory, if the function was given up."""

    def order(self, values: Sequence[Value]) -> WriteOrder | None:
        """Return in which order a request for these values may write into leased memory."""


class _Watch(threading.local):
    by: Watcher | None = None


watch = _Watch()
