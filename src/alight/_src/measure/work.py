"""From timings to seconds of each op beyond the curves: what ops compute, what loops take to start,
and how much of computing hides behind memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import geometric_mean, median

import numpy as np

from alight._src.base.records import dataclass
from alight._src.ir.op import width_in_bits
from alight._src.ir.op_table import OPS, Kind
from alight._src.measure.gemm_fit import non_negative
from alight._src.measure.points import CURVE_CLASSES
from alight._src.measure.samples import Sample, Samples
from alight._src.measure.sizes import FEW
from alight._src.plan.cost import shown
from alight._src.plan.curve import Curve
from alight._src.plan.loop_overhead import OUTER_ROWS, ROW, far_share, step_of, summed
from alight._src.plan.loop_starts import START_ROWS
from alight._src.plan.occupancy import LONE_OPS
from alight._src.plan.passes import Pass
from alight._src.plan.profile import floor_of
from alight._src.plan.thread_scaling import alone_seconds, met, together
from alight._src.plan.workload import PARTS, SPECIAL, body_parts

__all__ = ["Work"]

# Of memory's seconds, what a probe has to take beyond them to tell that it computes for as long as
# memory takes, and longer. A guess: with a tenth, additions of a number were 60 % off, and with all
# of it sums 40 %.
_TOLD = 0.5
# Of a reduction by itself, whose elements all come one way: places of floats, which take 1.2 to 1.4
# times as long as their maxima at any size, took 0.3 to 0.5 of a stream more, those of integers,
# which take as long as these, up to 0.2 (EPYC, profiles of 5 s).
_REDUCTION_TOLD = 0.25
# What of a probe of rows is known before, by whether its code is compiled: its starts, or the
# copies of its elements.
_ROWS = {True: "start", False: "long"}
# Of a call, so much at most is not in that of a reduction that is called more directly: NumPy's
# argmax took a sixth less than its maximum.
_LEAST_CALL = 0.25
# Of keys, how those begin that say what starting an inner loop takes.
_STARTS = ("start@", "short@", "guessed.")
# Those that need the others.
_LATE = (*_STARTS, "copied", "distant")


def _of(work: Mapping[str, float], name: str, dtype: str) -> float:
    """Return the seconds of a name in a dtype, or in the one that was measured last; none where it
    never was."""
    found = work.get(f"{name}{dtype}")
    if found is None:
        found = next((work[key] for key in reversed(list(work)) if key.startswith(name)), 0.0)
    return found


@dataclass(slots=True)
class Work:
    """What ops take beyond the additions of the curves."""

    samples: Samples
    curves: Mapping[str, Curve]
    launch: float

    def units(self) -> dict[str, float]:
        """Return seconds for an element of each measured op, and those that stand for others."""
        work: dict[str, float] = {}
        dtypes = [k.partition("/")[2] for k in self.curves if k.startswith("elementwise/")]
        for dtype in dtypes:
            work[f"flop/{dtype}"] = self._flop(dtype)
        for key, found in self.samples.by_key.items():
            kind, _, dtype = key.partition("/")
            if kind.startswith("reduce") and f"flop/{dtype}" in work:
                op = next(iter(found.values())).group.graph.nodes[-1].op.name
                work[f"{op}@{key}"] = work[f"flop/{dtype}"]  # all of it is in the curve
        for dtype in dtypes:
            work |= self._sum(dtype, work[f"flop/{dtype}"])
        # Of rows that are reduced, what the reduction itself takes is known before, and what begins
        # an iteration, before what is in it; first of all what a call of one operand takes less.
        keys = sorted(
            self.samples.by_key,
            key=lambda key: (
                not key.startswith("negative/"),
                key.startswith(_LATE),
                not key.startswith("iterator"),
            ),
        )
        for key in keys:
            found = self.samples.by_key[key]
            name, _, dtype = key.partition("/")
            size = self.samples.compute_elements
            own = ("@apart", "far@reduced", "@lone", "@after")
            alone = ("turned", "iterator", "copied", "distant", "combined", "guessed.")
            if name.startswith(alone) or name.endswith(own):
                size = round(next(iter(found)))  # of its own
            if name in (*CURVE_CLASSES, "flop", "call", "matmul", "sharing"):
                continue
            if name.endswith("@shared"):  # once it is known how work is shared
                continue
            few, sample = found.get(FEW), found.get(size)
            if few is not None and (curve := self._curve(name, few.item, dtype)) is not None:
                work[f"call.{name.partition('@')[0]}/{dtype}"] = self._call(few, curve)
            if sample is not None and (curve := self._curve(name, sample.item, dtype)) is not None:
                work |= self._unit(key, sample, curve, work)
        for dtype in dtypes:
            special = [work[k] for op in SPECIAL if (k := f"{op}/{dtype}") in work]
            if special and min(special) > 0:
                work[f"special/{dtype}"] = geometric_mean(special)
            if self.samples.implementation == "generated":
                work |= self._bodies(work, dtype)
        return work

    def _unit(
        self,
        key: str,
        sample: Sample,
        curve: Curve,
        work: dict[str, float],
    ) -> dict[str, float]:
        """Return what one timing says, given what is known already."""
        name, _, dtype = key.partition("/")
        beyond = sample.timing.seconds - curve.seconds_at(sample.work)
        runs, flop = sample.item.runs, work.get(f"flop/{dtype}", 0.0)
        stream = self._stream(sample.work, sample.item.kind, curve)
        compiled = self.samples.implementation == "generated"
        found: dict[str, float] = {}
        if name.endswith("@lone"):
            return {key: self._alone(name.partition("@")[0], dtype, sample)}
        if name.endswith("@after"):
            return self._after(key, sample, work)
        if name in ("short@copied", "distant@beside", "distant@reduced", "distant@special"):
            return {key: max(self._far(name, dtype, beyond, sample, work), 0.0)}
        if name.endswith("@beside"):
            return self._beside(key, sample, self._compute(max(0.0, beyond), stream), work)
        if name.startswith("combined"):
            further = sample.group.graph.nodes[-1].layout.size - 1
            return {key: max(beyond, 0.0) / further}
        start = name.startswith(_STARTS)
        copied = name.startswith("copied")
        if copied:
            beyond -= work.get(f"argmax@reduce_inner/{dtype}", flop) * sample.amount
            beyond -= _of(work, "call.argmax/", dtype)
            side = round(math.sqrt(sample.amount))
            beyond -= side * work.get(f"start@elementwise/{dtype}", 0.0)
        elif not start and (not compiled or "@reduce" in name):
            # as it was in this dtype, or in the one measured before it
            beyond -= _of(work, self._call_of(name), dtype)
        elif start and "reduce" in name:
            op = sample.group.graph.nodes[-1].op.name
            kind = "reduce_sum" if self._summed(sample.item) else name.rpartition("@")[2]
            own = work.get(f"{op}@{kind}/{dtype}", flop)
            # of few columns what the op computes cannot be told from what their rows take
            if not compiled or kind != "reduce_outer":
                beyond -= (own - flop) * sample.amount
            beyond -= 0.0 if compiled else _of(work, f"call.{op}/", dtype)
        elif start:
            beyond -= work.get(f"long@{name.partition('@')[2]}/{dtype}", 0.0) * sample.amount
        if not compiled and runs.torn and name.endswith(("@elementwise", "@near")):
            beyond -= next((s for k, s in work.items() if k.startswith("iterator/")), 0.0)
        beyond = max(0.0, beyond)
        # What is computed hides behind what memory takes; what loops take does not.
        compute = self._compute(beyond, stream)
        if name.startswith("chain."):
            one = compute / sample.amount / len(sample.group.graph.nodes)
            others = {node.op.name for node in sample.group.graph.nodes}
            found[f"{name.partition('.')[2]}/{dtype}"] = max(len(others) * one - flop, one)
        elif name == "start@near":
            # beside what starting takes, a lane of the vector that is not filled with such a short
            # row; in a library's long ones, an element that does not follow the one before
            rows = work.get(f"{_ROWS[compiled]}@elementwise/{dtype}", 0.0)
            rows *= runs.starts * (sample.item.operands if compiled else runs.length)
            each = step_of(sample.group.graph, sample.item) if compiled else runs.length
            found[key] = max(0.0, beyond - rows) / runs.starts / each
        elif start:
            torn = sample.item.operands
            if not compiled and name in ("start@elementwise", "start@where"):
                torn = max(runs.torn, 1)
            # those of the curve's own rows are in it
            begun = runs.starts
            if name.endswith("reduce_outer") and not compiled:
                begun -= OUTER_ROWS
            found[key] = beyond / begun / torn
        elif copied or name.startswith(("long@", "beside@", "torn@", "turned")):
            found[key] = beyond / sample.amount
        elif name == "iterator":
            found[key] = beyond
        elif name == "distant":
            units = [work.get(k, 0.0) for k in (f"far/{dtype}", f"negative@apart/{dtype}")]
            beyond -= units[not compiled] * sample.amount
            found[key] = max(beyond, 0.0) / (runs.wide * sample.amount)
        elif name == "far@reduced":
            found[key] = beyond / sample.amount
        elif name.endswith("@reduced"):
            found[key] = compute / sample.amount / (len(sample.group.graph.nodes) - 1)
        elif name in ("near", "far", "back"):
            elements = runs.starts * runs.length
            found[key] = beyond / elements / max(runs.near + runs.far, 1)
        elif compiled and name in OPS and beyond < _TOLD * stream:
            # all that is known is that memory takes longer
            if not self.samples.hides:
                found[key] = min(flop, compute / sample.amount)
        elif sample.item.kind.startswith("reduce"):
            found[key] = self._compute(beyond, stream, _REDUCTION_TOLD) / sample.amount + flop
        else:
            found[key] = compute / sample.amount + flop  # the curve's own addition
        return found

    def _call(self, few: Sample, curve: Curve) -> float:
        """Return what the call of an op takes beyond that of its curve's: less than none where the
        latter takes longer to call, by some."""
        call = few.timing.seconds - curve.seconds_at(few.work)
        return max(call, -_LEAST_CALL * self._floor(few.item.kind))

    def _sum(self, dtype: str, flop: float) -> dict[str, float]:
        """Return what a sum takes for an element where other ops go before it, which are read off
        the curve of extremes."""
        sums, extremes = (self.curves.get(f"{c}/{dtype}") for c in ("reduce_sum", "reduce_inner"))
        if sums is None or extremes is None:
            return {}
        n = self.samples.compute_elements
        nbytes = n * width_in_bits(dtype) / 8
        beyond = max(0.0, sums.seconds_at(nbytes) - extremes.seconds_at(nbytes))
        compute = self._compute(beyond, self._stream(nbytes, "reduce_inner", extremes))
        return {f"sum@reduce_inner/{dtype}": compute / n + flop}

    def _far(
        self, name: str, dtype: str, beyond: float, sample: Sample, work: Mapping[str, float]
    ) -> float:
        """Return the seconds beyond what the same takes in the caches, for a byte that comes out of
        memory; of what a library copies into order, for each of the rows it begins."""
        n, runs = sample.amount, sample.item.runs
        if name == "short@copied":
            rows = n / ROW
            begun = [_of(work, f"{s}@argmax@reduce_inner/", dtype) for s in ("short", "start")]
            share = math.log(ROW / START_ROWS[0]) / math.log(START_ROWS[1] / START_ROWS[0])
            beyond -= 2 * rows * (begun[0] + share * (begun[1] - begun[0]))
            beyond -= _of(work, "call.argmax/", dtype) + n * _of(work, "turned64/", dtype)
            return beyond / rows
        if name == "distant@beside":
            beyond -= n * work.get(f"beside@reduce_inner/{dtype}", 0.0)
            return beyond / (sample.item.amount * far_share(sample.item.amount))
        beyond -= n * work.get(f"far@reduced/{dtype}", 0.0)
        if name == "distant@special":
            beyond -= n * work.get(f"exp@reduced/{dtype}", 0.0)
        return beyond / (n * runs.wide)

    def _call_of(self, name: str) -> str:
        """Return how the key of what the call of a reduction or a library's op takes begins: of one
        operand, where that op's own is not known, as negations'."""
        op = name.partition("@")[0]
        if op in OPS and OPS[op].kind is Kind.ELEMENTWISE and OPS[op].nin == 1 and op != "cast":
            op = "negative"
        return f"call.{op}/"

    def _after(self, key: str, sample: Sample, work: dict[str, float]) -> dict[str, float]:
        """Return the seconds for each result that a reduction takes once they are summed."""
        op, _, dtype = key.partition("@after/")
        summed = self.samples.by_key.get(f"sum@after/{dtype}", {}).get(sample.amount)
        if op == "sum" or summed is None:
            return {}
        beyond = sample.timing.seconds - summed.timing.seconds
        beyond -= _of(work, f"call.{op}/", dtype) - _of(work, "call.sum/", dtype)
        return {key: max(beyond, 0.0) / sample.amount}

    def _beside(
        self, key: str, sample: Sample, compute: float, work: Mapping[str, float]
    ) -> dict[str, float]:
        """Return what a simple op takes for an element in a body with a special function, or what
        each special function but one takes more than alone."""
        dtype = key.partition("/")[2]
        ops = [node.op for node in sample.group.graph.nodes if node.op.special]
        if any(f"{op.name}/{dtype}" not in work for op in ops):
            return {}
        more = compute / sample.amount - sum(work[f"{op.name}/{dtype}"] for op in ops)
        others = len(sample.group.graph.nodes) - len(ops)
        if len(ops) == 1:
            return {key: max(more, 0.0) / others}
        # a vector of half the width holds twice as many
        like = f"flop@{key.partition('@')[2].partition('/')[0]}/"
        flop = [(v, k.partition("/")[2]) for k, v in work.items() if k.startswith(like)]
        for seconds, other in flop[:1]:
            more -= others * seconds * width_in_bits(dtype) / width_in_bits(other)
        return {key: max(more, 0.0) / (len(ops) - 1)}

    def together(self, work: Mapping[str, float], sharing: Curve) -> dict[str, float]:
        """Return what is left where threads share the work of what bodies with special functions
        take more: while one thread of a core waits for its registers another one computes."""
        found: dict[str, float] = {}
        keys = [key for key in self.samples.by_key if key.partition("/")[0].endswith("@shared")]
        for key in sorted(keys):  # simple ops first
            (sample,) = self.samples.by_key[key].values()
            alone = alone_seconds(sharing, sample.timing.seconds - self.launch)
            found |= self._beside(key, sample, alone, {**work, **found})
        return found

    def _alone(self, op: str, dtype: str, sample: Sample) -> float:
        """Return the seconds for an element of an op in one block of threads, beyond the reduction
        it ends in; of the reduction beyond a launch."""
        reduction = self.samples.by_key.get(f"max@lone/{dtype}", {}).get(sample.amount)
        if op == "max" or reduction is None:
            return max(sample.timing.seconds - self._floor("reduce"), 0.0) / sample.amount
        beyond = sample.timing.seconds - reduction.timing.seconds
        return max(beyond, 0.0) / sample.amount / LONE_OPS[op]

    def _compute(self, beyond: float, stream: float, told: float = _TOLD) -> float:
        """Return the seconds of computing of which so many are to be seen beyond memory's, which
        hide behind ``stream``."""
        # What can hardly be seen may compute for far less than memory takes.
        return beyond + stream * min(1.0, beyond / (told * stream)) ** 2 if stream else beyond

    def _stream(self, amount: float, kind: str, curve: Curve) -> float:
        """Return the seconds of memory that computing can hide behind."""
        memory = curve.seconds_at(amount) - self._floor(kind)
        if self.samples.hides:
            return max(0.0, memory)
        return max(0.0, min(memory, curve.stream_seconds(amount)))

    def _summed(self, item: Pass) -> bool:
        """Tell whether a reduction is read off the curve of sums."""
        own = self.samples.implementation == "generated"
        return summed(item, own) and f"reduce_sum/{item.dtype}" in self.curves

    def _curve(self, name: str, item: Pass, dtype: str) -> Curve | None:
        """Return the curve that a probe's memory is read off: its class's, in the nearest dtype."""
        if self._summed(item):
            return self.curves[f"reduce_sum/{item.dtype}"]  # means of integers are of floats
        wanted = item.kind if "@reduce" not in name else name.rpartition("@")[2]
        if wanted == "reduce_inner" and any(key.startswith("reduce_rows/") for key in self.curves):
            wanted = "reduce_rows"
        found = self.curves.get(f"{wanted}/{dtype}")
        others = [key for key in sorted(self.curves) if key.startswith(f"{wanted}/")]
        return found or (self.curves[others[0]] if others else None)

    def _flop(self, dtype: str) -> float:
        """Return seconds of one addition or multiplication of an element."""
        curve, n = self.curves[f"elementwise/{dtype}"], self.samples.compute_elements
        chained = self.samples.by_key.get(f"flop/{dtype}", {}).get(n)
        if chained is not None:
            beyond = max(0.0, chained.timing.seconds - curve.seconds_at(chained.work))
            stream = self._stream(chained.work, chained.item.kind, curve)
            return self._compute(beyond, stream) / n / len(chained.group.graph.nodes)
        return 0.0  # node by node nothing chains, and one is in the curve

    def _bodies(self, work: Mapping[str, float], dtype: str) -> dict[str, float]:
        """Return seconds of the operations that bodies are made of, from those that were timed."""
        rows, seconds = [], []
        for key, found in self.samples.by_key.items():
            name, _, own = key.partition("/")
            if self.samples.hides:
                name = name.removeprefix("chain.")
            if own != dtype or name not in OPS or f"{name}/{own}" not in work:
                continue
            graph = next(iter(found.values())).group.graph
            if OPS[name].kind is Kind.ELEMENTWISE:
                rows.append(body_parts(graph, graph.nodes[0]))
                seconds.append(work[f"{name}/{own}"])
        # What a simple one takes was measured in a chain of them; the others are what is left.
        simple = work[f"flop/{dtype}"]
        chained = self.samples.by_key.get(f"flop/{dtype}")
        if chained is not None:  # one of complex numbers is several
            graph = next(iter(chained.values())).group.graph
            simple /= max(1, body_parts(graph, graph.nodes[0])[0])
        known = [(r[1:], s - r[0] * simple) for r, s in zip(rows, seconds, strict=True)]
        # one that hides behind the others takes no time of its own, as a simple one at best
        known = [(r, max(s, simple)) for r, s in known if any(r) and max(s, simple) > 0]
        units = {f"body.{PARTS[0]}/{dtype}": simple} if simple > 0 else {}
        parts = sum(any(r[place] for r, _ in known) for place in range(len(PARTS) - 1))
        if not known or len(known) < parts:
            return units
        found_units = non_negative(
            np.array([r for r, _ in known], float), np.array([s for _, s in known])
        )
        return units | {
            f"body.{part}/{dtype}": float(unit)
            for place, (part, unit) in enumerate(zip(PARTS[1:], found_units, strict=True))
            if any(r[place] for r, _ in known)
        }

    def _floor(self, kind: str) -> float:
        """Return what a pass of a class takes with nothing to do."""
        return floor_of(self.curves, kind) or self.launch

    def overlap_with(self, work: Mapping[str, float], sharing: Curve | None) -> float:
        """Return the share of the shorter of compute and memory that large probes show to be
        hidden."""
        shares = []
        for key, found in self.samples.by_key.items():
            name, _, dtype = key.partition("/")
            curve = self.curves.get(f"elementwise/{dtype}")
            if name not in OPS or curve is None or key not in work:
                continue
            for n, sample in found.items():
                if n <= self.samples.compute_elements:
                    continue
                whole = curve.seconds_at(sample.work)
                memory, compute = whole - self._floor("elementwise"), work[key] * n
                stream = min(memory, curve.stream_seconds(sample.work))
                if sharing is not None and compute > 0:
                    meeting = met(sharing, compute, memory - stream)
                    compute = min(compute, together(sharing, compute)) - meeting
                beyond = compute - stream
                # Where one is much shorter, what it hides drowns in the other's noise.
                if beyond > memory / 10:
                    ends = [shown(beyond, memory, stream, sample.work, o) for o in (0.0, 1.0)]
                    if ends[0] > ends[1]:
                        seen = sample.timing.seconds - whole
                        shares.append((ends[0] - seen) / (ends[0] - ends[1]))
        return min(1.0, max(0.0, median(shares))) if shares else _UNKNOWN_OVERLAP


# Neither all hidden nor nothing: a guess, off by half at most.
_UNKNOWN_OVERLAP = 0.5
