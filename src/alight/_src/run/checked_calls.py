"""Calls of a device's library that are done at once, checked: what they read lies in the memory
they are given, and what they write into is nobody else's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from alight._core import Data
from alight._src.plan.contents import Contents, Place
from alight.backends.base import Operand

__all__ = ["counts", "prove"]

# How many calls were proven in this process.
counts = {"calls": 0}


def prove(step: str, given: Iterable[Any], written: Operand | None, old: Data | None) -> None:
    """Raise PlanError unless operands lie inside their buffers, and what is ``written`` (as one
    scatters elements) is neither read by the same call nor in memory of the version before, which
    lies in ``old``."""
    counts["calls"] += 1
    memory = Contents()
    memory.step = step
    for operand in _operands(given):
        buffer = operand.buffer
        if not memory.knows(id(buffer)):
            memory.add(id(buffer), 0, buffer.nbytes, "an operand's buffer")
        if operand.layout.size:
            memory.buffer(Place(id(buffer), operand.offset, operand.layout))
        if written is not None and operand is not written and buffer is written.buffer:
            memory.refuse("writes into a buffer that it reads as another operand", "its target")
    held = {} if old is None or written is None else old.remote or {}
    if written is not None and any(buffer is written.buffer for buffer in held.values()):
        memory.refuse("writes into memory that holds the version before", "its target")


def _operands(given: Iterable[Any]) -> Iterator[Operand]:
    for item in given:
        if isinstance(item, Operand):
            yield item
        elif type(item) in (tuple, list):
            yield from _operands(item)
