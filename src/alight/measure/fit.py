"""From timings to rates: curves through the knots, seconds of each op beyond them, the overlap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import geometric_mean, median

from alight.ir.group import Group
from alight.measure.probes import CHAIN
from alight.measure.timing import Timing
from alight.plan.cost import Rates, passes
from alight.plan.curve import Curve, Measured

# Elements of the probes of arithmetic: three arrays of float64 (96 kB) are near the first-level
# cache of any processor, so that memory hides least, and a call's overhead is a few per cent.
COMPUTE_ELEMENTS = 4096
# Row length of the probe of short reductions: the shortest that one vector register may hold.
ROW = 8

_CURVES = ("elementwise", "reduce_inner", "reduce_outer", "scan", "matmul")
# Where nothing was validated: the median error of such curves on a busy machine was 2 to 6 %, the
# means of coarser ones 9 to 20 %; a doubled 10 % leaves room for both.
_UNVALIDATED_SPREAD = 0.2
# No prediction is better than two measurements of the same thing agree: 2.4 % at best.
_LEAST_SPREAD = 0.024


@dataclass(frozen=True, slots=True)
class _Sample:
    """One timing: how much work it was on its curve, and in how many elements."""

    amount: float
    work: float
    timing: Timing


@dataclass(slots=True)
class Samples:
    """The timings of one implementation, by what they are of and how many elements they had."""

    by_key: dict[str, dict[float, _Sample]] = field(default_factory=dict)
    implementation: str = ""

    def add(self, key: str, amount: float, group: Group, timing: Timing) -> None:
        """Keep a timing, in place of an earlier one of the same amount."""
        implementation = "generated" if len(group.graph.nodes) > 1 else "numpy"
        work = sum(item.amount for item in passes(group, implementation))
        self.by_key.setdefault(key, {})[amount] = _Sample(amount, work, timing)

    def found(self, key: str, amount: float) -> Timing | None:
        """Return the timing of that amount."""
        sample = self.by_key.get(key, {}).get(amount)
        return None if sample is None else sample.timing

    def gaps(self, key: str) -> list[tuple[float, float]]:
        """Return neighbouring amounts of a curve, those furthest apart first."""
        amounts = sorted(self.by_key.get(key, {}))
        pairs = list(zip(amounts, amounts[1:], strict=False))
        return sorted(pairs, key=lambda pair: pair[0] / pair[1])

    def interpolated(self, key: str, amount: float) -> float:
        """Return the seconds that the timings so far predict for an amount."""
        knots = [(s.amount, s.timing.seconds) for s in self.by_key[key].values()]
        return Curve(knots).seconds_at(amount)


def fit(samples: Samples, spread: float | None) -> Rates | None:
    """Return the rates that explain the timings; None before the first curve is there.

    A curve and the arithmetic on it are fitted together: additions are work too, and what of it
    shows beyond the memory depends on the overlap, which is learned from dearer ops.
    """
    kinds: dict[str, list[_Sample]] = {
        key: list(found.values())
        for key, found in samples.by_key.items()
        if key.partition("/")[0] in _CURVES
    }
    if not any(key.startswith("elementwise/") for key in kinds):
        return None
    fastest = min(
        (s.timing for key, found in kinds.items() if not key.startswith("matmul") for s in found),
        key=lambda t: t.seconds,
    )
    launch = fastest.measured()
    overlap = 0.5  # where the iteration starts: neither all hidden nor nothing
    work: dict[str, float] = {}
    curves: dict[str, Curve] = {}
    for _ in range(3):  # each round corrects the other's remainder; the third moves under 1 %
        curves = _curves(kinds, work, overlap)
        work = _work(samples, curves, launch.value, overlap)
        overlap = _overlap(samples, curves, work, launch.value, overlap)
    curves = _curves(kinds, work, overlap)
    chosen = _UNVALIDATED_SPREAD if spread is None else max(_LEAST_SPREAD, spread)
    return Rates(
        launch=launch,
        curves=curves,
        work={key: _measured(value, "seconds", chosen) for key, value in work.items()},
        overlap=_measured(overlap, "share", chosen),
        spread=chosen,
    )


def _measured(value: float, unit: str, spread: float) -> Measured:
    return Measured(value, unit, value / (1 + spread), value * (1 + spread), 1, "probe")


def _curves(
    kinds: Mapping[str, list[_Sample]], work: Mapping[str, float], overlap: float
) -> dict[str, Curve]:
    """Return the curves, without what their own additions add beyond the memory."""
    curves = {}
    for key, found in kinds.items():
        kind, _, dtype = key.partition("/")
        flop = 0.0 if kind == "matmul" else work.get(f"flop/{dtype}", 0.0)
        knots = {}
        for sample in found:
            shown = (1 - overlap) * flop * sample.amount
            # An addition never takes more than half of itself for the arithmetic.
            knots[sample.work] = max(sample.timing.seconds - shown, sample.timing.seconds / 2)
        curves[key] = Curve(knots.items())
    return curves


def _work(
    samples: Samples, curves: Mapping[str, Curve], launch: float, overlap: float
) -> dict[str, float]:
    """Return seconds of each measured op for an element, and those that stand for the others."""
    work: dict[str, float] = {}
    for key, found in samples.by_key.items():
        name, _, dtype = key.partition("/")
        if name in _CURVES or COMPUTE_ELEMENTS not in found:
            continue
        kind = "reduce_inner" if name == "row" else "elementwise"
        curve = curves.get(f"{kind}/{dtype}")
        if curve is None:
            continue
        sample = found[COMPUTE_ELEMENTS]
        compute = _compute_seconds(sample, curve, launch, overlap)
        count = COMPUTE_ELEMENTS / ROW if name == "row" else COMPUTE_ELEMENTS
        work[key] = compute / count / (CHAIN if name == "flop" else 1)
    for key in curves:
        kind, _, dtype = key.partition("/")
        if kind == "elementwise":
            if f"flop/{dtype}" not in work:
                # Node by node nothing chains: a flop costs what an addition in the cache does.
                nbytes = 3 * COMPUTE_ELEMENTS * int("".join(c for c in dtype if c.isdigit())) // 8
                spent = curves[key].seconds_at(nbytes) - launch
                work[f"flop/{dtype}"] = max(0.0, spent) / COMPUTE_ELEMENTS
            special = [
                seconds
                for name in ("exp", "sin")
                if (seconds := work.get(f"{name}/{dtype}", 0.0)) > 0
            ]
            if special:
                work[f"special/{dtype}"] = geometric_mean(special)
    return work


def _compute_seconds(sample: _Sample, curve: Curve, launch: float, overlap: float) -> float:
    """Return the compute seconds that, with the memory of the curve, make up a timing."""
    whole = curve.seconds_at(sample.work)
    memory = max(0.0, whole - launch)
    beyond = sample.timing.seconds - whole
    longer = beyond + overlap * memory  # if compute is the longer of the two
    if longer >= memory:
        return longer
    return min(memory, max(0.0, beyond) / (1 - overlap)) if overlap < 1 else memory


def _overlap(
    samples: Samples,
    curves: Mapping[str, Curve],
    work: Mapping[str, float],
    launch: float,
    before: float,
) -> float:
    """Return the share of the shorter of compute and memory that large probes show to be hidden."""
    shares = []
    for key, found in samples.by_key.items():
        name, _, dtype = key.partition("/")
        curve = curves.get(f"elementwise/{dtype}")
        if name in _CURVES or curve is None or key not in work:
            continue
        for n, sample in found.items():
            if n <= COMPUTE_ELEMENTS:
                continue
            whole = curve.seconds_at(sample.work)
            compute, memory = work[key] * n, whole - launch
            shorter = min(compute, memory)
            # Where one is much shorter, what it hides drowns in the other's noise.
            if shorter > max(compute, memory) / 10:
                shares.append((whole + compute - sample.timing.seconds) / shorter)
    return min(1.0, max(0.0, median(shares))) if shares else before


def coverage(errors: Mapping[str, list[float]], spread: Mapping[str, float]) -> float:
    """Return the share of errors inside the 80 % interval of their spread."""
    inside = [
        abs(error) <= 1.2815515655446004 * spread[name]
        for name, values in errors.items()
        for error in values
    ]
    return sum(inside) / len(inside) if inside else math.nan
