"""Bytes of the caller's that a thread has while its jitted call lasts, found again from them."""

from __future__ import annotations

import weakref

from alight._core import Data

__all__ = ["Held", "thread_of"]


class Held(weakref.ref[Data]):
    """A reference to bytes that are leased; ``thread`` is whose call has them."""

    # Weak: whether the bytes may be written in place is told by who else holds their Data.
    __slots__ = ("thread",)
    thread: int


def thread_of(data: Data) -> int | None:
    """Return the thread whose call has bytes leased; None where none has."""
    return next((one.thread for one in weakref.getweakrefs(data) if type(one) is Held), None)
