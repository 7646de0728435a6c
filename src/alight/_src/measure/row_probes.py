"""What is measured of rows and of what lies far apart: places looked for in them, rows of complex
numbers, few columns, elements that are reduced out of memory one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alight._src.ir.group import Group
from alight._src.measure import probes
from alight._src.measure.sizes import APART
from alight._src.plan.loop_overhead import DISTANT_BYTES, OUTER_ROWS, ROW
from alight._src.plan.loop_starts import GUESSED, START_ROWS, WHOLE_ROW

__all__ = ["apart_in_memory", "complex_rows", "few_columns", "places", "whole_rows"]

# The key of a point without its dtype, the amount, and what is timed.
Keyed = tuple[str, int, Group]


def places(dtype: str, n: int, compiled: bool, main: bool) -> Iterator[Keyed]:
    """Yield kind, amount and group of reductions of rows that look for a place: libraries call a
    function for each row, which is another one for each dtype, and branches on what it finds there,
    which a processor learns of few rows; generated code asks of numbers with a NaN what it does not
    ask of others, and keeps the places of columns beside their values."""
    kind = np.dtype(dtype).kind
    if kind == "c" or (compiled and kind == "f" and not main):
        return
    op = "argmax" if kind == "f" else "argmin"
    for start, length in zip(("short", "start"), START_ROWS, strict=True):
        if start == "start" or not compiled:
            group = probes.reduction(op, dtype, (n // length, length), (1,))
            yield f"{start}@{op}@reduce_inner", n, group
        if not compiled:
            more = GUESSED // length
            group = probes.reduction(op, dtype, (more, length), (1,))
            yield f"guessed.{start}@{op}@reduce_inner", more * length, group
    if compiled:
        yield from few_columns(dtype, n, op)
        group = probes.reduction(op, dtype, (OUTER_ROWS, n // OUTER_ROWS), (0,))
        yield f"{op}@reduce_outer", n, group
    if main and compiled:  # in the order in which they are counted
        yield from whole_rows(dtype, n, op, across=True)
    if main and not compiled:
        # brought into order row by row, each of which a few lines are read for
        group = probes.reduction(op, dtype, (ROW, n // ROW), (0,))
        yield "short@copied", n, group


def few_columns(dtype: str, n: int, op: str, key: str | None = None) -> Iterator[Keyed]:
    """Yield reductions of few columns that lie side by side, by the ``key`` of the op's own."""
    key = f"{op}@" if key is None else key
    for start, length in zip(("short", "start"), START_ROWS, strict=True):
        group = probes.reduction(op, dtype, (n // length, length), (0,))
        yield f"{start}@{key}reduce_outer", n, group


def whole_rows(dtype: str, n: int, op: str, across: bool = False) -> Iterator[Keyed]:
    """Yield rows that do not join, or the elements of which lie apart, reduced into one."""
    key = "across" if across else "whole"
    for start, length in (("short", START_ROWS[0]), ("start", WHOLE_ROW)):
        group = probes.reduction(op, dtype, (n // length, length), (0, 1), 7, across)
        yield f"{start}@{key}", n, group


def complex_rows(dtype: str, n: int, most: int) -> Iterator[Keyed]:
    """Yield short rows of complex numbers, which generated code takes apart one by one: in the
    caches, and out of memory, of ``most`` bytes."""
    for key, between in (("beside", 0), ("torn", 7)):
        group = probes.reduction("sum", dtype, (n // ROW, ROW), (1,), between)
        yield f"{key}@reduce_inner", n, group
    yield from whole_rows(dtype, n, "sum")
    rows = most // (ROW * np.dtype(dtype).itemsize)
    group = probes.reduction("sum", dtype, (rows, ROW), (1,))
    yield "distant@beside", rows * ROW, group


def apart_in_memory(dtype: str) -> Iterator[Keyed]:
    """Yield reductions of elements that lie apart and come out of memory, without and with a body
    for the length of which no other line is asked for."""
    count = DISTANT_BYTES // ((APART + 1) * np.dtype(dtype).itemsize)
    for key, ops in (("reduced", ("add",)), ("special", ("add", "exp"))):
        yield f"distant@{key}", count, probes.reduced(dtype, count, ops, APART)
