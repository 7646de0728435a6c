"""What going through arrays takes beside their elements: inner loops that start, operands out of
order, copies that libraries make first."""

from __future__ import annotations

import math
from itertools import pairwise

from alight._core import make_layout
from alight._src.base.records import replace
from alight._src.ir.graph import Graph, steps_of
from alight._src.ir.group import Group
from alight._src.ir.op import width_in_bits
from alight._src.ir.table_reduction import LANES
from alight._src.ir.vectors import REGISTERS, SHORT_ROW, one_by_one, vectors_together
from alight._src.plan.access_pattern import LINE_BYTES, Runs, runs_of
from alight._src.plan.curve import Measured
from alight._src.plan.loop_starts import MOMENTS, ROUNDED, begun_seconds, is_whole
from alight._src.plan.passes import COMBINED_BYTES, ROWS_FOR_EACH, Pass
from alight._src.plan.profile import Rates

# Of rows that do not join, up to where an element takes longer than where they do: NumPy's sums of
# two float64 took 0.2 ns more in rows of 64 to 1000, and no more in all in rows of 30000.
LONG_ROW = 250
# Rows that are reduced into one by the probes of curves, which hold what starting these takes: with
# their length no power of two, no two of them fall on the same lines of a cache.
OUTER_ROWS = 61
# Row length of the probes of short loops: less than a vector register holds.
ROW = 7
# Elements of an inner loop up to which NumPy's iterator copies operands that do not join into
# buffers, of twice as many, for longer loops on these (NumPy 2.3 on).
BUFFERED = 4096
# Bytes from which on elements apart come from as far away as those of their probe; half as many
# come from the last cache (EPYC of 32 MB: 20 MB of complex numbers, every third of which was read
# into a vector one by one, took five times as long as in the caches, 10 MB as long).
DISTANT_BYTES = 6 * (1 << 24) // 5
# Operands of the probes of starts, of what is elementwise.
_PROBED = 3
# Sides of the square arrays that tell what an element takes of one whose neighbours are in other
# rows: its lines stay in the first cache until they are used up, in the second, or in neither.
TURNED_SIDES = (64, 256, 1024)


def combined_seconds(rates: Rates, item: Pass, threads: int) -> float:
    """Return the seconds in which one thread of the host puts together what all left of the rows
    that each of them has a part of, beyond one row: up to where there are all the parts there can
    be, as many more as there are bytes. Sums of 8 MiB (16 threads, Xeon) took 21 us in one row, 25
    in 4, 33 in 8 and 21 in 64, which are shared row by row."""
    rows = item.reductions[0].layout.size if item.reductions else 0
    key = rates.nearest["combined@reduce_inner", item.dtype]
    if key is None or not 1 < rows < ROWS_FOR_EACH * threads:
        return 0.0
    return (rows - 1) * rates.work[key].value * min(1.0, item.amount / COMBINED_BYTES)


def side_by_side(item: Pass) -> bool:
    """Tell whether generated code has short rows side by side in vectors: those that are reduced,
    and those where a full vector is worth more than the copies that takes, or that are copied
    anyway."""
    if item.kind == "elementwise":
        worth = item.runs.turned > 0 or any(node.op.special for node in item.nodes)
        return item.runs.length < SHORT_ROW and worth
    return item.kind == "reduce_inner" and item.runs.length < LANES and not is_whole(item)


def summed(item: Pass, own: bool) -> bool:
    """Tell whether a pass reads what it sums in another way than extremes are found: generated code
    rounds sums or products of floats in chunks that meet (past the first cache EPYC: 10.0 to 10.5
    us for 7.7); a library rounds one by one, which takes longer than memory does (NumPy's sums of
    6.7 MB of float64 took 143 us, of int64 86, their maxima 88 and 84)."""
    (node, *others) = item.nodes
    if others or item.kind != "reduce_inner":
        return False
    if not own:
        exact = item.dtype.startswith(("float", "complex"))  # means of integers are cast before
        return exact and node.op.name in ("sum", "mean")
    rounds = node.op.name in ROUNDED and item.dtype.startswith("float")
    return rounds and not side_by_side(item)


def row_by_result(item: Pass) -> bool:
    """Tell whether generated code reduces rows side by side, each into a result of its own."""
    alike = all(node.layout.size == item.runs.starts for node in item.reductions)
    return item.kind == "reduce_inner" and alike and side_by_side(item)


def step_of(graph: Graph, item: Pass, away: bool = False) -> int:
    """Return how many elements generated code goes through at once: a register is a line, on the
    widest machines, and several go together where elements are made; ``away``: on another device
    than the host, which reduces one by one."""
    lanes = LINE_BYTES * 8 // width_in_bits(item.dtype)
    # those of simple ops hide behind what else a short row takes
    made = not away and any(node.op.special for node in item.nodes)
    together = item.kind == "elementwise" or made
    rows = item.kind == "elementwise" and item.runs.starts > 1 and not away
    if not together or (rows and one_by_one(graph, item.runs.length)):
        return lanes
    return lanes * vectors_together(graph, REGISTERS)


def padding(item: Pass, step: int) -> float:
    """Return how many elements each element counts for: a vector that is not full takes as long."""
    length = item.runs.length
    if not step or item.runs.starts == 1 or side_by_side(item):
        return 1.0
    return step * -(-length // step) / length


def by_rows(graph: Graph, item: Pass) -> Pass:
    """Return a reduction as a device goes through it: row by row, in whatever order a host's nest
    would go through its arrays."""
    reduction = item.reductions[0]
    rows = max(reduction.layout.size, 1)
    length = graph.layouts[reduction.operands[0]].size // rows
    if length == item.runs.length:
        return item
    return replace(item, runs=Runs(rows, length, 0, 0, torn=item.runs.torn))


def by_columns(group: Group, item: Pass) -> Pass:
    """Return a reduction of a group as a host goes through it: with the rows of short ones side by
    side, whatever they are broadcast along. Those of an operand follow one another, stay, or are
    torn."""
    shape, axes = group.shape, group.form.axes
    length = math.prod(shape[i] for i in axes)
    kept = [i for i in range(len(shape)) if i not in axes and shape[i] > 1]
    # one that is as short is written out, too, beside a long one
    beside = next((i for i in kept[:-3:-1] if shape[i] >= LANES), None)
    if beside is None or length == item.runs.length or not 1 < length < LANES:
        return item
    torn = 0
    for layout in group.graph.inputs:
        steps = steps_of(layout, shape)
        row = layout.itemsize * math.prod(shape[i] for i in axes if steps[i])
        torn += steps[beside] not in (0, row)
    return replace(item, runs=Runs(math.prod(shape) // length, length, 0, 0, torn=torn))


def _rows_seconds(rates: Rates, item: Pass) -> float:
    """Return the seconds of short rows on a device beyond memory's: who has one, a thread or a team
    of them, takes as long for a shorter one. In an H200's teams of four a row of 2, 3, 5, 8 and 12
    float32 took 49, 49, 49, 51 and 55 ps for its maximum, 137 to 143 for its place."""
    seconds = 0.0
    for name in [node.op.name for node in item.reductions]:
        wider = "argmax@" if name.startswith("arg") else ""
        key = rates.nearest[f"beside@{wider}reduce_inner", item.dtype]
        key = key or rates.nearest["beside@reduce_inner", item.dtype]
        seconds += item.runs.starts * ROW * rates.work[key].value if key else 0.0
    return seconds


def _beside_seconds(rates: Rates, item: Pass, away: bool) -> float:
    """Return the seconds in which the host takes short rows apart that run side by side, beyond
    those that hide behind memory in the caches. Each lane of a vector comes out of another one of
    those that a row of the probe fills, so that shorter rows take as much less for an element, all
    of it at three (EPYC, 2**20 elements, rows of 2, 3, 5, 7 and 10: sums of float32 65, 57, 84, 110
    and 100 ps, maxima of float64 160, 131, 185, 262 and 234; memory takes 66 and 130). Rows that
    do not join, and complex numbers, are read one by one; of bodies no shorter ones were timed."""
    runs, dtype = item.runs, item.dtype
    key = rates.nearest[f"{'torn' if runs.torn else 'beside'}@reduce_inner", dtype]
    if key is None:
        return 0.0
    elements = runs.starts * runs.length
    seconds = elements * rates.work[key].value
    found = rates.curve_of["reduce_inner", dtype]
    others = away or len(item.nodes) > 1 or runs.torn or dtype.startswith("complex")
    if others or runs.length >= ROW or found is None:
        return seconds
    nbytes = elements * width_in_bits(dtype) / 8
    probed, own = (found[0].stream_seconds(nbytes * (1 + 1 / n)) for n in (ROW, runs.length))
    return max((seconds + probed) * runs.length / ROW - own, 0.0)


def loop_seconds(rates: Rates, item: Pass, step: int, away: bool = False) -> float:
    """Return seconds of starting inner loops and of stepping along operands in another way than
    from one element to the next. ``step`` is our own code's by `step_of`, 0 a library's;
    ``away``: on another device than the host."""
    runs = item.runs
    own = step > 0
    if runs.starts == 1 and not runs.near + runs.far:
        return 0.0
    if not own and item.kind == "elementwise":
        return _iterated(rates, item)
    kind = "elementwise" if item.kind == "select" else item.kind
    seconds = _turned(rates, item) if runs.turned + runs.again else 0.0
    if runs.starts > 1 and not (own and side_by_side(item)):
        start = begun_seconds(rates, item, kind, own, away)
        # what is reduced and its result, where they were measured
        operands: float = item.operands
        if kind.startswith("reduce"):
            operands = min(operands, 2)
        elif not own and item.kind == "select":
            operands = runs.torn
        elif own and item.dtype.startswith("complex"):
            operands = _complex_operands(item) if runs.length % step else 0
        elif (
            own and not away
        ):  # half of it is theirs: 2.0 ns with two and 2.5 with the probe's three (EPYC)
            operands = (_PROBED + operands) / 2
        begun = runs.starts
        if kind == "reduce_outer" and not own:
            begun -= OUTER_ROWS
        if kind == "reduce_outer" and own and not away and item.nodes[-1].op.name in MOMENTS:
            begun *= 2  # sums of distances first, then of their squares
        seconds += begun * operands * (start or 0.0)
        seconds += runs.starts * min(runs.length, LONG_ROW) * rates.unit(f"long@{kind}", item.dtype)
        # What vectors leave over where it does not lie in order, generated code gathers, which
        # takes as long for a few elements as for as many as fill them.
        part = own and runs.length % step > 0
        quick = not item.dtype.startswith("complex")
        odd = runs.near * step * part * quick if own else runs.near + runs.far
        seconds += runs.starts * odd * rates.unit("start@near", item.dtype)
    if (
        own and not away and kind == "elementwise" and side_by_side(item)
    ):  # copied as short rows of reductions are
        copied = max(runs.torn, runs.near + runs.far) * runs.starts * runs.length
        return seconds + copied * rates.unit("torn@reduce_inner", item.dtype)
    if away and item.once and kind == "reduce_inner" and side_by_side(item):
        seconds += _rows_seconds(rates, item)
    elif own and kind == "reduce_inner" and side_by_side(item):
        seconds += _beside_seconds(rates, item, away)
    near, far = runs.near, runs.far - runs.turned
    # of elementwise code alone, and of real numbers, there is a quick way for those that are near
    gathered = own and item.dtype.startswith("complex") and f"near/{item.dtype}" not in rates.work
    if kind != "elementwise" or gathered:
        near, far = 0, near + far
    filled = padding(item, step) if own else 1.0  # those far away are gathered, full or not
    aside = "far@reduced" if own and kind.startswith("reduce") else "far"
    back = min(runs.back, near) if own and rates.nearest["back", item.dtype] else 0
    for name, count in (("near", near - back), ("back", back), (aside, far)):
        seconds += filled * runs.starts * runs.length * count * rates.unit(name, item.dtype)
    return seconds


# Ops that NumPy has loops of its own for which gather what lies apart into vectors, as most of its
# special functions do; the others read it one by one, and lines are asked for in time (every third
# of 20 MB of float64, EPYC: negative, maximum and exp 2.4 to 3.8 ms, square, floor, add, less and
# divide 0.5 to 0.7; NumPy 2.3, loops_unary, loops_minmax).
_GATHERED = frozenset(("negative", "maximum", "minimum", "fmax", "fmin"))


def distant_seconds(rates: Rates, item: Pass, own: bool) -> float:
    """Return the seconds that elements apart take longer out of memory, where no line is asked for
    before it is waited for: generated code reads those that are near in order, but where it reduces
    them, and complex numbers are two to a library's one."""
    runs, moved = item.runs, item.amount + item.apart
    if 2 * moved <= DISTANT_BYTES:
        return 0.0
    wide, name = float(runs.wide * runs.starts * runs.length), "distant"
    whole = item.dtype.startswith("complex")
    if not own:
        op = item.nodes[0].op
        wide *= not whole and (op.special or op.name in _GATHERED)
    elif item.kind == "reduce_inner" and side_by_side(item) and (runs.torn or whole):
        wide, name = moved, "distant@beside" if whole else "distant"
    elif item.kind.startswith("reduce"):  # gathered, and nothing else meanwhile
        special = any(node.op.special for node in item.nodes)
        name = "distant@special" if special else "distant@reduced"
    elif not runs.far and not whole:
        return 0.0
    key = rates.nearest[name, item.dtype] or rates.nearest["distant", item.dtype]
    if key is None or not wide:
        return 0.0
    return far_share(moved) * wide * rates.work[key].value


def far_share(nbytes: float) -> float:
    """Return how much of so many bytes comes from as far away as those of the probe of distance."""
    return min(1.0, max(0.0, math.log2(2 * nbytes / DISTANT_BYTES)))


def _complex_operands(item: Pass) -> int:
    """Return how many operands of a pass are taken apart, or put together, where a vector is not
    filled: all that takes is theirs (EPYC: sums of two in rows of 2 to 11 took 60 ns a row, squares
    24, comparisons 39, in rows of 64 15, 11 and 15)."""
    results = [node.layout.dtype.kind == "c" for node in item.nodes[-1:]]
    return max(1, item.operands - item.runs.still - results.count(False))


def _iterated(rates: Rates, item: Pass) -> float:
    """Return seconds of a library's loops: of short ones, operands that do not join are copied
    into buffers, at so much for each loop and each element; the others are gone through as they
    are."""
    runs = item.runs
    seconds = _turned(rates, item) if runs.turned + runs.again else 0.0
    away = [("start@near", runs.near + runs.far - runs.turned)]
    seconds += rates.unit("iterator", item.dtype) if runs.torn else 0.0
    if runs.starts > 1 and runs.length <= BUFFERED:
        torn = runs.torn - runs.turned
        seconds += torn * runs.starts * rates.unit("start@elementwise", item.dtype)
        seconds += torn * runs.starts * runs.length * rates.unit("long@elementwise", item.dtype)
    elif apart_of(rates, item) is not None:
        return seconds
    else:
        away = [("near", runs.near), ("far", runs.far - runs.turned)]
    for name, count in away:
        seconds += count * runs.starts * runs.length * rates.unit(name, item.dtype)
    return seconds


def _turned(rates: Rates, item: Pass) -> float:
    """Return seconds of going through arrays along another axis than that of their neighbours."""
    runs = item.runs
    elements = runs.starts * runs.length
    unit = _by_side(rates, "turned", item.dtype, runs.side)
    found = rates.curve_of["elementwise", item.dtype]
    if unit is None or found is None:
        return 0.0
    return found[0].stream_seconds(runs.again * elements) + runs.turned * elements * unit


def _by_side(rates: Rates, name: str, dtype: str, side: int) -> float | None:
    """Return the seconds for an element of squares of that side; None where none was measured."""
    keys = {n: key for n in TURNED_SIDES if (key := rates.nearest[f"{name}{n}", dtype])}
    if not keys:
        return None
    knots = [(math.log(n), rates.work[key].value) for n, key in keys.items()]
    place, unit = math.log(max(side, 1)), knots[0][1]
    for (low, one), (high, two) in pairwise(knots):
        unit += min(max((place - low) / (high - low), 0.0), 1.0) * (two - one)
    return unit


def apart_of(rates: Rates, item: Pass) -> Measured | None:
    """Return the seconds for an element of a library's op along operands that do not go from one
    element to the next; None where they do, or the op was not measured so."""
    runs, name = item.runs, item.nodes[0].op.name
    if runs.starts > 1 and runs.length <= BUFFERED:
        return None  # what is in buffers is in order
    if not runs.near + runs.far:
        return rates.work.get(f"{name}@still/{item.dtype}") if runs.still else None
    found = rates.work.get(f"{name}@back/{item.dtype}") if item.runs.back else None
    return found or rates.work.get(f"{name}@apart/{item.dtype}")


def in_order(rates: Rates, graph: Graph, item: Pass) -> tuple[float, Pass]:
    """Return the seconds in which a library brings what it looks for a place in into order, since
    it does so for whole rows only, and the pass that is left then."""
    node = item.nodes[0]
    begin = rates.nearest["start@elementwise", item.dtype]
    if not node.op.name.startswith("arg") or begin is None:
        return 0.0, item
    layout, axis = graph.layouts[node.operands[0]], node.attr("axis")
    order = list(range(layout.ndim))
    if axis is not None and order:
        order.append(order.pop(axis))
    shape = tuple([layout.shape[i] for i in order])
    given = make_layout(layout.dtype, shape, tuple([layout.strides[i] for i in order]))
    whole = make_layout(layout.dtype, shape)
    runs = runs_of(shape, (given,), (whole,))
    found = rates.curve_of["elementwise", item.dtype]
    if found is None or (runs.starts == 1 and not runs.near + runs.far):
        return 0.0, item
    length = layout.size if axis is None else layout.shape[axis]
    rows = Runs(layout.size // max(length, 1), length, 0, 0)
    unit = _by_side(rates, "copied", item.dtype, runs.side) if runs.turned else None
    if unit is not None:
        each = rates.unit("short@copied", item.dtype)
        return layout.size * unit + runs.starts * each, replace(item, runs=rows)
    nbytes = 2 * layout.nbytes
    memory = found[0].seconds_at(nbytes) - rates.floors["elementwise"]
    loops = _turned(rates, replace(item, runs=runs))
    away = runs.starts * runs.length * max(0, runs.near + runs.far - runs.turned)
    loops += runs.starts * rates.work[begin].value
    loops += away * rates.unit("start@near", item.dtype)
    return max(memory, 0.0) + loops, replace(item, runs=rows)


# Passes over the results of a reduction, by which they are divided, and over what it reduces: NumPy
# makes an array of differences, and squares it.
_DIVISIONS = {"mean": 1, "var": 2, "std": 2}
_DIFFERENCES = {"var": 2, "std": 2}


def after(rates: Rates, graph: Graph, item: Pass) -> float:
    """Return the seconds that a library's reduction takes for its results once they are there, and
    for what it makes of its elements before as far as that is not in the caches."""
    node = item.nodes[0]
    result, name = node.layout, node.op.name
    key = rates.nearest["mean@after", item.dtype] or rates.nearest["divide", item.dtype]
    found = rates.curve_of["elementwise", item.dtype]
    if key is None or found is None or name not in _DIVISIONS:
        return 0.0
    curve, call = found[0], rates.floors["elementwise"]
    moved = 2 * graph.layouts[node.operands[0]].nbytes
    far = curve.seconds_at(moved) - call - curve.stream_seconds(moved)
    seconds = _DIFFERENCES.get(name, 0) * max(far, 0.0)
    if result.size <= 1:
        return seconds
    compute = rates.work[key].value * result.size
    return seconds + _DIVISIONS[name] * max(curve.seconds_at(2 * result.nbytes) - call, compute)
