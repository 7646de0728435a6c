"""What a run has to show: each line with its limit, what was reached, and whether that is enough.

A shortfall is a result like any other: it is printed, kept and plotted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from alight._src.base.formatting import readable_seconds
from alight._src.bench.bandwidth import Bandwidth
from alight._src.bench.rows import Cell, Row

__all__ = ["Shown", "of_neighbours", "of_resident", "of_rows"]

LARGE = 1 << 17  # from here on a fused program is one of the class "large"
# What the project asks of its worst rows: of the best peer's time, and of that of NumPy's own call.
_FUSED, _LIBRARY = 1.10, 1.05


OVER_BUDGET = "over the budget"


@dataclass(frozen=True, slots=True)
class Shown:
    """One line: what, the value reached, the limit, and whether more or less is better."""

    what: str
    value: float | None
    limit: float
    unit: str = ""
    more_is_better: bool = False
    detail: str = ""

    @property
    def passed(self) -> bool | None:
        """Tell whether the limit holds; None where nothing was measured."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.more_is_better else self.value <= self.limit

    def __str__(self) -> str:
        if self.passed is None:
            return f"NOT RUN  {self.what}: {self.detail or 'no rows'}"
        sign = "≥" if self.more_is_better else "≤"
        assert self.value is not None
        words = "PASS   "
        if not self.passed:
            words = "SHORT  "
        text = f"{words}  {self.what}: {self.value:.4g}{self.unit} (limit {sign} {self.limit:g})"
        if not self.passed:
            text += f", short by {abs(self.value / self.limit - 1):.0%}"
        return f"{text}; {self.detail}" if self.detail else text


def _named(row: Row) -> str:
    return f"{row.case.program} {row.case.dtype} n={row.case.n}"


def _worst(ratios: Sequence[tuple[float, Row]]) -> tuple[float, str]:
    ratio, row = max(ratios, key=lambda found: found[0])
    return ratio, _named(row)


def of_rows(rows: Sequence[Row], bandwidth: Bandwidth | None) -> list[Shown]:
    """Return the lines that the main rows answer."""
    sound = [row for row in rows if not row.faults and row.skipped is None]
    return [
        *_fused(sound),
        *_bandwidth(sound, bandwidth),
        *_library(sound),
        *_small(sound),
    ]


def of_resident(rows: Sequence[Row]) -> list[Shown]:
    """Return the lines that rows answer whose arrays lie on a device."""
    sound = [row for row in rows if not row.faults and row.skipped is None]
    return _fused(sound, "fused, resident", 0.90, 1.05)


def _fused(
    rows: Sequence[Row], what: str = "fused", usual: float = 0.80, most: float = _FUSED
) -> list[Shown]:
    # NumPy alone is no peer to be measured against here: the line is about the best of many.
    large = [row for row in rows if row.case.of.family == "fused" and row.case.n >= LARGE]
    return _mean_and_worst(f"{what}, n ≥ 2^17: alight / best peer", _ratios(large), usual, most)


def _ratios(rows: Sequence[Row], to: str | None = None) -> list[tuple[float, Row]]:
    """Return alight's time over that of a peer, or of the best one, and the row, where both ran."""
    return [(ratio, row) for row in rows if (ratio := row.ratio(to)) is not None]


def _mean_and_worst(
    title: str, ratios: Sequence[tuple[float, Row]], usual: float, most: float
) -> list[Shown]:
    """Return the lines of the mean of ratios, and of the worst."""
    if not ratios:
        return [
            Shown(f"{title}, geometric mean", None, usual),
            Shown(f"{title}, worst", None, most),
        ]
    worst, where = _worst(ratios)
    mean = geometric_mean([ratio for ratio, _ in ratios])
    over = sum(ratio > most for ratio, _ in ratios)
    return [
        Shown(f"{title}, geometric mean", mean, usual, detail=f"{len(ratios)} rows"),
        Shown(f"{title}, worst", worst, most, detail=f"{where}; {over} rows over {most:.2f}"),
    ]


def bandwidth_judged(rows: Sequence[Row], bandwidth: Bandwidth) -> list[Row]:
    """Return the rows that are judged by the share of the bandwidth they reach: those of twice the
    largest cache. Sizes are whole elements, so that a row may miss that by a little."""
    beyond = 2 * bandwidth.knee
    return [
        row
        for row in rows
        if row.case.of.family == "bandwidth"
        and row.seconds("alight") is not None
        and 0.9 * beyond <= row.bytes <= 1.1 * beyond
    ]


def fastest(rows: Sequence[Row], bandwidth: Bandwidth) -> list[tuple[float, Row, Cell]]:
    """Return what was timed beyond the caches by the bytes a second it reached, the most first."""
    found = [
        (row.bytes / cell.seconds, row, cell)
        for row in rows
        if row.bytes >= 2 * bandwidth.knee
        for cell in row.cells.values()
        if cell.counts and cell.seconds is not None
    ]
    return sorted(found, key=lambda each: -each[0])


def _bandwidth(rows: Sequence[Row], bandwidth: Bandwidth | None) -> list[Shown]:
    title = "bandwidth at 2 x the largest knee: share of the best"
    if bandwidth is None:
        return [Shown(title, None, 0.90, more_is_better=True, detail="bandwidth not measured")]
    reached = [(bandwidth.memory, "copying")]
    reading = [(bandwidth.reading, "a maximum on each processor")]
    timed = fastest(rows, bandwidth)
    # What was timed at one time has one memory: a guest's may give twice as much minutes later.
    for rate, row, cell in [each for each in timed if each[2].beside] or timed:
        reached.append((rate, f"{cell.peer} {_named(row)}"))
        if only_reads(row):
            reading.append(reached[-1])
    lines = []
    for row in bandwidth_judged(rows, bandwidth):
        seconds = row.seconds("alight")
        assert seconds is not None
        # What is read and what is written go separate ways between processor and memory: no loop
        # that only reads gets the sum of both (see docs/benchmarks.md).
        best, by = max(reading if only_reads(row) else reached)
        share = row.bytes / seconds / best
        detail = f"{row.bytes / seconds / 1e9:.1f} of {best / 1e9:.1f} GB/s, by {by}"
        if only_reads(row):
            detail += f"; reading and writing {max(reached)[0] / 1e9:.1f}"
        name = f"{title}, {row.case.program} {row.case.dtype}"
        lines.append(Shown(name, share, 0.90, more_is_better=True, detail=detail))
    return lines or [Shown(title, None, 0.90, more_is_better=True)]


def only_reads(row: Row) -> bool:
    """Tell whether a row moves bytes one way only: it reduces what it reads, and does no more."""
    return row.case.of.family == "bandwidth" and row.case.of.reduces


def _library(rows: Sequence[Row]) -> list[Shown]:
    large = [row for row in rows if row.case.of.family == "library" and row.case.n >= LARGE]
    ratios = _ratios(large, "numpy")
    title = "library, n ≥ 2^17: alight / NumPy's own call, worst"
    if not ratios:
        return [Shown(title, None, _LIBRARY)]
    worst, where = _worst(ratios)
    mean = geometric_mean([ratio for ratio, _ in ratios])
    detail = f"{where}; geometric mean {mean:.3f} of {len(ratios)} rows"
    return [Shown(title, worst, _LIBRARY, detail=detail)]


def _small(rows: Sequence[Row]) -> list[Shown]:
    over = []
    for row in rows:
        pairs = row.pairs()
        if pairs:
            value = median([ours / _small_most(numpy) for ours, numpy in pairs])
            over.append((value, row, median([ours - numpy for ours, numpy in pairs])))
    if not over:
        return [Shown("any n: alight / (1.05 x NumPy + 0.3 µs), worst", None, 1.0)]
    worst, row, more = max(over, key=lambda found: found[0])
    failing = sum(value > 1 for value, _, _ in over)
    detail = (
        f"{_named(row)}, {readable_seconds(more)} more than NumPy; {failing} of {len(over)} rows"
    )
    detail += " over the limit"
    return [Shown("any n: alight / (1.05 x NumPy + 0.3 µs), worst", worst, 1.0, detail=detail)]


def _small_most(numpy: float) -> float:
    return 1.05 * numpy + 0.3e-6


def over_limit(row: Row) -> tuple[float, str] | None:
    """Return how far alight's time is over a limit of its row, as a logarithm (of the limit that it
    is furthest over or least below), and which peer's time that limit is made of; None where
    nothing limits it."""
    ours, numpy, best = row.seconds("alight"), row.seconds("numpy"), row.best_peer()
    if ours is None or numpy is None or best is None:
        return None
    family, large = row.case.of.family, row.case.n >= LARGE
    limits = [(_small_most(numpy), "numpy")]
    if family == "library" and large:
        limits.append((_LIBRARY * numpy, "numpy"))
    if family == "fused" and large:
        limits.append((_FUSED * best[1], best[0]))
    return max((math.log(ours / most), peer) for most, peer in limits)


def of_neighbours(rows: Sequence[Row], neighbours: int) -> list[Shown]:
    """Return the lines of the rows that ran beside busy processes."""
    title = f"beside {neighbours} busy processes: alight / NumPy"
    return _mean_and_worst(title, _ratios(rows, "numpy"), 1.0, 1.10)
