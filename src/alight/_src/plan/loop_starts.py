"""What starting an inner loop takes, as it was measured of what is most like it: rows of a class,
short ones and others, places that are looked for in them, rows that are reduced into one."""

from __future__ import annotations

import math

from alight._src.plan.passes import Pass
from alight._src.plan.profile import Rates

# Lengths of the rows that tell what starting a reduction of one takes: short ones, and others.
# Reductions of fewer than sixteen go side by side in generated code.
START_ROWS = (3, 24)
_START_SPAN = math.log(START_ROWS[1] / START_ROWS[0])
# Elements in short rows up to which a processor learns which way the branches go that look for a
# place in them, and from which on it guesses (EPYC, NumPy's argmax of float64: rows of 3 took 2 ns
# of 8192 elements in all, 3 of 16384, 10 of 65536 and 12 of 2**18 and more, rows of 24 up to 39).
LEARNT, GUESSED = 1 << 13, 1 << 18
# Of rows that are reduced into one and do not join, one by which vectors are filled and one more
# begun: each begins and ends anew, and what that takes grows as they do (EPYC, NumPy's maxima of
# float64: 3.3 ns in rows of 3, 9.5 of 52, 40 of 323; generated code's 2.5, 4.2 and 13).
WHOLE_ROW = 323
# Reductions that round, so that generated code makes chunks of them.
ROUNDED = ("sum", "prod", "mean")
# And those of distances from a mean, which are sums.
MOMENTS = ("var", "std")


def is_whole(item: Pass) -> bool:
    """Tell whether all is reduced into one element."""
    return all(node.layout.size == 1 for node in item.reductions)


def begun_seconds(rates: Rates, item: Pass, kind: str, own: bool, away: bool) -> float | None:
    """Return the seconds of starting an inner loop, for each operand, as it was measured of what
    is most like the pass."""
    reduction = item.reductions[0].op.name if item.reductions else "sum"
    place = reduction.startswith("arg")
    rounds = item.dtype.startswith(("float", "complex"))
    names = [kind, "elementwise"]
    if item.kind == "select":
        names.insert(0, "where")
    elif kind == "reduce_inner" and is_whole(item) and (own or not place):
        # no result is begun with each of them
        names = ["whole", *(names if own else ["elementwise"])]
        if own and not away and item.runs.far:  # each element is fetched by itself
            names.insert(0, "across")
    elif kind == "reduce_inner" and not own and place:
        names = [*_places(item, kind), "elementwise"]
    elif kind.startswith("reduce") and own and not away and not place:
        # moments are sums; what does not round asks for no NaNs, and goes in any order in columns
        summed = reduction in (*ROUNDED, *MOMENTS) if rounds else kind == "reduce_inner"
        names[:0] = [] if summed else [f"max@{kind}"]
    # sums add in a loop of their own, which is that of products in generated code; the others go
    # as the maximum does
    elif (
        kind.startswith("reduce")
        and reduction not in ("sum", "mean")
        and (reduction != "prod" or not own)
    ):
        names[:0] = [*(_places(item, kind) if place else [f"{reduction}@{kind}"]), f"max@{kind}"]
    return next((start for name in names if (start := _start(rates, name, item))), None)


def begun_itself(rates: Rates, item: Pass, reduction: str) -> bool:
    """Tell whether what generated code computes for so few columns as fill hardly any vectors is in
    what was measured of starting rows of them: places by one of these, moments by sums (EPYC, rows
    of 2, 3, 5, 7, 12 and 24 float64: 2.3, 3.0, 4.8, 6.3, 5.9 and 6.6 ns, sums 1.2, 1.5, 2.1, 2.2,
    2.8 and 5.4)."""
    names = [item.kind] if reduction in MOMENTS else []
    names += _places(item, item.kind) if reduction.startswith("arg") else []
    return item.kind == "reduce_outer" and any(
        rates.nearest[f"start@{name}", item.dtype] for name in names
    )


def _places(item: Pass, kind: str) -> list[str]:
    """Return the names of what starting to look for a place was measured as, the likest first: of
    floats, which may hold a NaN, by maxima."""
    ops = ("argmax", "argmin") if item.dtype.startswith("float") else ("argmin", "argmax")
    return [f"{op}@{kind}" for op in ops]


def _start(rates: Rates, name: str, item: Pass) -> float | None:
    """Return seconds of starting an inner loop, for each operand: those of short ones, of others,
    or between; where it branches, between what is learnt and what is guessed."""
    learnt = _by_length(rates, name, "", item)
    guessed = _by_length(rates, name, "guessed.", item) if learnt is not None else None
    if learnt is None or guessed is None:
        return learnt
    elements = max(item.runs.starts * item.runs.length, LEARNT)
    share = min(math.log(elements / LEARNT) / math.log(GUESSED / LEARNT), 1.0)
    return learnt + share * max(guessed - learnt, 0.0)


def _by_length(rates: Rates, name: str, which: str, item: Pass) -> float | None:
    """Return seconds of starting an inner loop of a length, by those of two lengths."""
    key = rates.nearest[f"{which}start@{name}", item.dtype]
    if key is None:
        return None
    seconds, length = rates.work[key].value, max(item.runs.length, START_ROWS[0])
    short = rates.nearest[f"{which}short@{name}", item.dtype]
    if short is None:
        return seconds
    if name in ("whole", "across"):
        share = (length - START_ROWS[0]) / (WHOLE_ROW - START_ROWS[0])
    else:
        share = math.log(length / START_ROWS[0]) / _START_SPAN
    share = min(share, 1.0)
    return share * seconds + (1 - share) * rates.work[short].value
