"""Work that a floor left to NumPy, by call site, as the core has counted and timed it: what is of
8,192 elements and more (sites.c)."""

from __future__ import annotations

from types import CodeType
from typing import NamedTuple

from alight._core import floor

__all__ = ["Left", "left", "since", "sites"]

# By the identity of code, which the core keeps, and instruction: how often a site had come, what
# NumPy took there and was predicted to. Code may be equal to that of another function.
Seen = dict[tuple[int, int], tuple[int, float, float]]


class Left(NamedTuple):
    """What NumPy did at one call site: ``predicted`` and ``seconds`` are of all ``runs``,
    ``elements`` of the latest; ``state`` says who has it now: numpy, open (on trial), recorded, or
    lost."""

    site: tuple[CodeType, int]
    what: str
    elements: int
    runs: int
    predicted: float
    seconds: float
    state: str


def sites() -> Seen:
    """Return how far the core has counted."""
    return {(id(row[0]), row[1]): (row[2], row[4], row[7]) for row in floor.sites()}


def left(before: Seen) -> tuple[Left, ...]:
    """Return what NumPy did since it was counted so far, what took longest first."""
    names = {id(row): name for name, row in floor.paces.items() if isinstance(name, str)}
    found = []
    for code, instruction, runs, elements, seconds, state, row, predicted in floor.sites():
        was, took, thought = before.get((id(code), instruction), (0, 0.0, 0.0))
        if runs > was and row is not None:  # what has none only moves elements
            what = names.get(id(row), "")
            numbers = runs - was, predicted - thought, seconds - took
            found.append(Left((code, instruction), what, elements, *numbers, state))
    return tuple(sorted(found, key=lambda item: -item.seconds))


def since(rows: tuple[Left, ...], before: tuple[Left, ...]) -> tuple[Left, ...]:
    """Return what of some rows happened after earlier ones."""
    known = {(id(row.site[0]), row.site[1]): row for row in before}
    found = []
    for row in rows:
        was = known.get((id(row.site[0]), row.site[1]))
        if was is None:
            found.append(row)
        elif row.runs > was.runs:
            less = row.runs - was.runs, row.predicted - was.predicted, row.seconds - was.seconds
            found.append(row._replace(runs=less[0], predicted=less[1], seconds=less[2]))
    return tuple(sorted(found, key=lambda item: -item.seconds))
