"""What real runs correct of predictions: how much longer than predicted work of a kind took.

Work is of one cell where it is of the same class, dtype, octave of size, shape kind and ops, by one
implementation. A cell's factor is the median of measured against predicted seconds. What is known
of few runs leans on the cells of its class, and these on all of the device: a machine that is busy
is slow at everything, and that makes no choice between its implementations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from alight._src.base.hashing import short
from alight._src.base.records import replace
from alight._src.ir.graph import GroupKind
from alight._src.ir.group import Group
from alight._src.plan.passes import node_class
from alight._src.plan.plan import Estimate
from alight._src.plan.workload import is_contraction

__all__ = ["BINS", "Factor", "Learned", "Lesson", "cell_of", "quantile"]

# Of a histogram of ratios, to each octave: 9 % apart, and what is read between two is nearer.
BINS = 8
# Runs, and cells, as many of which what is known above is worth. Runs of a cell lay half an octave
# apart on a busy machine, cells of a class most of one from what their class was off by: half a run
# says as much as the class. A device is everything that it does, so it takes more to speak for it.
_RUNS_ABOVE, _CELLS_ABOVE, _CLASSES_ABOVE = 0.5, 2.0, 4.0
# Rows at most so long are short (a line of cache has 8 to 64 elements): what their beginnings cost
# is seen beside what they hold.
_SHORT_ROW = 512
_NAMES = 48  # characters; what has more ops goes by a digest
# What a median is less sure of than the mean of values that are distributed normally.
_OF_MEDIAN = 1.2533


class Lesson(NamedTuple):
    """What runs of one cell have shown: ``bins`` count log2(measured / predicted) by eighths,
    ``unit`` is log2 of the seconds that were predicted, by the profile that ``basis`` names, and
    ``at`` the time of the last."""

    basis: str
    unit: float
    at: float
    bins: Mapping[int, float]

    @property
    def runs(self) -> float:
        """Return how many runs speak."""
        return sum(self.bins.values())


class Factor(NamedTuple):
    """How many times what was predicted work takes, as so many runs say; ``doubt`` is half of the
    80 % interval, in octaves."""

    times: float
    runs: float
    doubt: float


def quantile(bins: Mapping[int, float], share: float) -> float:
    """Return log2 of the ratio that this share of the runs is below."""
    rest = share * sum(bins.values())
    for number in sorted(bins):
        if rest <= bins[number]:
            return (number - 0.5 + rest / bins[number]) / BINS
        rest -= bins[number]
    return (max(bins) + 0.5) / BINS


def cell_of(group: Group, implementation: str) -> str:
    """Return what a group's work is, in words: those before the last are its class."""
    graph = group.graph
    node = graph.nodes[0]
    if len(graph.nodes) == 1:
        kind = node_class(graph, node)
    else:
        kind = group.kind.value
        if group.kind is not GroupKind.LIBRARY and group.form.reductions:
            kind += f".{node_class(graph, group.form.reductions[0])}"
    largest = node.layout
    ordinary = True
    for layout in graph.inputs:
        ordinary = ordinary and layout.ordinary
        if layout.size > largest.size:
            largest = layout
    if is_contraction(node) and len(graph.nodes) == 1:
        sides = chain.from_iterable([graph.layouts[i].shape for i in node.operands])
        form = "x".join([str(side.bit_length()) for side in sides])
    else:
        row = largest.shape[-1] if largest.ndim > 1 else 0
        form = f"r{row.bit_length()}" if 0 < row <= _SHORT_ROW else "-"
    if not ordinary:
        form += "s"
    dtype = graph.inputs[0].dtype if graph.inputs else node.layout.dtype
    names = "+".join([one.op.name for one in graph.nodes])
    if len(names) > _NAMES:
        names = short(names.encode())
    width = f"{dtype.kind}{dtype.itemsize}"
    return f"{implementation}/{kind}/{width}/{largest.size.bit_length()}/{form}/{names}"


class Learned:
    """What is known of one device from its runs, by cells; without any it changes nothing."""

    __slots__ = ("_classes", "_read", "_whole", "basis", "lessons")

    def __init__(self, lessons: Mapping[str, Lesson], basis: str) -> None:
        self.lessons, self.basis = lessons, basis
        self._read: dict[str, tuple[float, float]] = {}
        by_class: dict[str, list[float]] = {}
        for cell, lesson in lessons.items():
            if lesson.basis == basis:  # of another profile's predictions it says nothing in general
                middle = quantile(lesson.bins, 0.5)
                by_class.setdefault(cell.rpartition("/")[0], []).append(middle)
        medians = {kind: _median(found) for kind, found in by_class.items()}
        self._whole = _leaning(_median(medians.values()), len(medians), 0.0, _CLASSES_ABOVE)
        self._classes = {
            kind: _leaning(middle, len(by_class[kind]), self._whole, _CELLS_ABOVE)
            for kind, middle in medians.items()
        }

    def factor(self, cell: str, model_seconds: float) -> Factor:
        """Return what work of a cell takes against these seconds, which the profile predicts."""
        above = self._classes.get(cell.rpartition("/")[0], self._whole)
        lesson = self.lessons.get(cell)
        if lesson is None:
            return Factor(2.0**above, 0.0, 0.0)
        known = self._read.get(cell)
        if known is None:
            bins = lesson.bins
            known = quantile(bins, 0.5), quantile(bins, 0.9) - quantile(bins, 0.1)
            self._read[cell] = known
        runs, (middle, apart) = lesson.runs, known
        if lesson.basis != self.basis:  # what it took is known; against what, has changed
            middle += lesson.unit - math.log2(model_seconds)
        doubt = max(apart / 2.0 * _OF_MEDIAN / math.sqrt(runs), 0.5 / BINS)
        return Factor(2.0 ** _leaning(middle, runs, above, _RUNS_ABOVE), runs, doubt)

    def corrected(self, found: Estimate, group: Group, implementation: str) -> Estimate:
        """Return a prediction as runs correct it; its interval shrinks with their number."""
        cell, seconds = cell_of(group, implementation), found.seconds
        if not self.lessons or seconds <= 0.0:
            return replace(found, cell=cell if seconds > 0.0 else "", model_seconds=seconds)
        times, runs, doubt = self.factor(cell, seconds)
        share = runs / (runs + _RUNS_ABOVE)
        width = math.log2(found.high / seconds)
        spread = 2.0 ** math.sqrt((1.0 - share) * width**2 + share * doubt**2)
        now = seconds * times
        terms = {name: term * times for name, term in found.terms.items()}
        found = replace(found, terms=terms, cell=cell, model_seconds=seconds, runs=round(runs))
        return replace(found, seconds=now, low=now / spread, high=now * spread)

    def differs(self, before: Learned, times: float) -> bool:
        """Tell whether any factor is so many times another than it was before."""
        for cell, lesson in self.lessons.items():
            seconds = 2.0**lesson.unit
            now, then = self.factor(cell, seconds).times, before.factor(cell, seconds).times
            if max(now / then, then / now) > times:
                return True
        return False


def _median(values: Iterable[float]) -> float:
    found = sorted(values)
    middle = len(found) // 2
    return (found[middle] + found[-middle - 1]) / 2.0 if found else 0.0


def _leaning(own: float, count: float, above: float, weight: float) -> float:
    return (count * own + weight * above) / (count + weight)
