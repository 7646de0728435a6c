"""What a measured curve says of a pass that is not quite what it was measured with: less or more
than its knots, written to more, picked more often, in few columns, row after row."""

from __future__ import annotations

from alight._src.ir.graph import Graph
from alight._src.plan.curve import Curve
from alight._src.plan.passes import NARROW_BYTES, NARROW_COLUMNS, Pass
from alight._src.plan.profile import Rates

__all__ = [
    "ADDED",
    "FAR_BYTES",
    "NEAR_BYTES",
    "beginning",
    "copied_share",
    "far_seconds",
    "foreseen",
    "guessed",
    "narrow_seconds",
    "results_seconds",
    "row_by_row",
]

# Bytes up to which what computes hides all that memory takes, and from which on the measured share
# of it: those of the probes of arithmetic and of those of overlap (``measure.sizes``).
NEAR_BYTES, FAR_BYTES = 3 << 16, 3 << 22

# Of the bytes that an addition moves, and a copy, those that are written.
ADDED, _WRITTEN = 1 / 3, 1 / 2


def copied_share(rates: Rates, item: Pass) -> float:
    """Return how long what is elementwise takes against an addition that moves as many bytes: less
    of them are read, so more of them stay in the last cache."""
    name = next((key for key in rates.curves if key.startswith("negate/")), None)
    if name is None or item.amount < rates.curves[name].knots[0][0]:
        return 1.0
    added = rates.curves[f"elementwise/{name.partition('/')[2]}"].seconds_at(item.amount)
    share = min(1.0, (item.written - ADDED) / (_WRITTEN - ADDED))
    return float((rates.curves[name].seconds_at(item.amount) / added) ** share)


def far_seconds(rates: Rates, curve: Curve, item: Pass) -> float:
    """Return the seconds of reducing past the last knot, where that may still be in a cache: as
    many more as additions take for so many more bytes, whose three arrays were measured farther
    out."""
    last, seconds = curve.knots[-1]
    lines = rates.curves.get(f"elementwise/{item.dtype}")
    if item.amount <= last or lines is None:
        return 0.0
    return seconds + lines.seconds_at(item.amount) - lines.seconds_at(last)


def narrow_seconds(curve: Curve, item: Pass, away: bool) -> float:
    """Return the seconds of reducing columns of which there are few: on the host no more threads
    share them than there are parts; a device's threads each have some elements of a column, and of
    products read them again for others beside it."""
    if away:
        share = min(item.reductions[0].layout.size / NARROW_COLUMNS, 1.0)
        return curve.seconds_at(item.rows * NARROW_BYTES * share)
    call = curve.knots[0][1]
    return call + max(curve.seconds_at(item.amount) - call, 0.0) / item.parts


def beginning(rates: Rates, kind: str, curve: Curve, amount: float) -> float:
    """Return the seconds that a curve says; below its first knot, of what that knot takes beyond a
    pass with nothing to do, no more than the amount's share."""
    least, seconds = curve.knots[0]
    if amount >= least or not kind.startswith("reduce"):
        return curve.seconds_at(amount)
    floor = min(rates.floors[kind], seconds)
    return floor + (seconds - floor) * amount / least


def foreseen(graph: Graph, item: Pass, curve: Curve, whole: float) -> float:
    """Return the seconds of a choice: what it is made by comes again and again where it is
    broadcast, and a processor guesses wrong as often as among as many choices."""
    node = item.nodes[0]
    share = graph.layouts[node.operands[0]].size / max(node.layout.size, 1)
    if share >= 1 or len(curve.knots) < 2 or not item.amount:
        return whole
    least, call = curve.knots[1][0], curve.knots[0][1]
    some = max(share * item.amount, min(least, item.amount))
    return call + (curve.seconds_at(some) - call) * item.amount / some


# Bytes of a choice by which all of it is guessed (`plan.loop_starts.GUESSED`), and still in caches.
_GUESSED_BYTES = 1 << 22


def guessed(curve: Curve, amount: float) -> float:
    """Return the seconds that a choice takes at least, of however few arrays: those in which a
    processor guesses wrong, which are there in its nearer caches, too."""
    near, call = _GUESSED_BYTES, curve.knots[0][1]
    if amount <= near:
        return 0.0
    return call + (curve.seconds_at(near) - call) * amount / near


def results_seconds(rates: Rates, curve: Curve, item: Pass) -> float:
    """Return the seconds in which generated code writes what columns are reduced into, of which the
    probes of many rows have few: what an addition that writes as much takes beyond reading."""
    lines = rates.curves.get(f"elementwise/{item.dtype}")
    written = sum(node.layout.nbytes for node in item.reductions)
    if lines is None or not written:
        return 0.0
    more = lines.seconds_at(written / ADDED) - lines.knots[0][1]
    read = curve.seconds_at(written / ADDED - written) - curve.knots[0][1]
    return max(0.0, more - read)


def row_by_row(rates: Rates, graph: Graph, item: Pass) -> float:
    """Return the seconds in which a library adds row after row to the first: long rows do not stay
    in the caches meanwhile."""
    node = item.nodes[0]
    result = node.layout.nbytes
    found = rates.curve_of["elementwise", item.dtype]
    if found is None or 3 * result <= NEAR_BYTES:
        return 0.0
    curve = found[0]
    call = curve.knots[0][1]
    rows = graph.layouts[node.operands[0]].size // node.layout.size
    added, copied = (curve.seconds_at(n * result) - call for n in (3, 2))
    return rates.floors[item.kind] + copied + (rows - 1) * added
