"""From timings to rates: curves through the knots, seconds of each op beyond them, the overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import geometric_mean, median

import numpy as np

from alight.ir.group import Group
from alight.ir.ops import OPS
from alight.measure.probes import CHAIN
from alight.measure.timing import Timing
from alight.plan.cost import Rates, passes
from alight.plan.curve import Curve, Measured
from alight.plan.workload import SPECIAL, code_size

# Elements of the probes of arithmetic. On a host, three arrays of float64 (96 kB) are near the
# first-level cache, so that memory hides least. A device with thousands of lanes shows nothing at
# that size: it gets as many as half of its largest probe of memory has.
HOST_ELEMENTS = 4096
DEVICE_ELEMENTS = 1 << 20
# Row length of the probe of short reductions: the shortest that one vector register may hold.
ROW = 8

MANY_FLOPS = "remainder"
# Knots below which there is no curve, and the nearest dtype's serves: the first three measured are
# both ends and the middle. Flops are proportional enough for two.
_LEAST_KNOTS = {"elementwise": 3, "reduce_inner": 3, "reduce_outer": 3, "scan": 3, "matmul": 2}
_CURVES = tuple(_LEAST_KNOTS)
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

    implementation: str
    compute_elements: int
    by_key: dict[str, dict[float, _Sample]] = field(default_factory=dict)

    def add(self, key: str, amount: float, group: Group, timing: Timing) -> None:
        """Keep a timing, in place of an earlier one of the same amount."""
        work = sum(item.amount for item in passes(group, self.implementation))
        self.by_key.setdefault(key, {})[amount] = _Sample(amount, work, timing)

    def found(self, key: str, amount: float) -> Timing | None:
        """Return the timing of that amount."""
        sample = self.by_key.get(key, {}).get(amount)
        return None if sample is None else sample.timing

    def gaps(self, key: str) -> list[tuple[float, float]]:
        """Return neighbouring amounts of a curve, those furthest apart first."""
        amounts = sorted(self.by_key.get(key, {}))
        return sorted(pairwise(amounts), key=lambda pair: pair[0] / pair[1])

    def interpolated(self, key: str, amount: float) -> float:
        """Return the seconds that the timings so far predict for an amount."""
        knots = [(s.amount, s.timing.seconds) for s in self.by_key[key].values()]
        return Curve(knots).seconds_at(amount)


def fit(samples: Samples, spread: float | None) -> Rates | None:
    """Return the rates that explain the timings; None before the first curve is there.

    A curve holds the additions it was measured with; what other ops take longer is their work.
    """
    curves: dict[str, Curve] = {}
    shortest: list[Timing] = []
    for key, found in samples.by_key.items():
        kind = key.partition("/")[0]
        if kind in _CURVES and len(found) >= _LEAST_KNOTS[kind]:
            curves[key] = Curve([(s.work, s.timing.seconds) for s in found.values()])
            if kind != "matmul":
                shortest += [sample.timing for sample in found.values()]
    if not any(key.startswith("elementwise/") for key in curves):
        return None
    launch = min(shortest, key=lambda timing: timing.seconds).measured()
    call = launch
    for n, sample in samples.by_key.get("call/float64", {}).items():
        # Every node of the chain but the first, on arrays that cost nothing themselves.
        one = curves["elementwise/float64"].seconds_at(24 * n)
        share = max(0.0, sample.timing.seconds - one) / (CHAIN - 1) / sample.timing.seconds
        call = _scaled(sample.timing, share)
    overlap = 0.5  # where the iteration starts: neither all hidden nor nothing
    work: dict[str, float] = {}
    for _ in range(3):  # each corrects the other's remainder, which halves at least
        work = _work(samples, curves, launch.value, overlap)
        overlap = _overlap(samples, curves, work, launch.value, overlap)
    work = _work(samples, curves, launch.value, overlap)
    chosen = _UNVALIDATED_SPREAD if spread is None else max(_LEAST_SPREAD, spread)
    return Rates(
        launch=launch,
        call=call,
        curves=curves,
        work={key: _measured(value, "seconds", chosen) for key, value in work.items()},
        overlap=_measured(overlap, "share", chosen),
        spread=chosen,
    )


def compile_costs(compiled: Sequence[tuple[Group, float]]) -> dict[str, Measured]:
    """Return what compiling a kernel, a reduction in it and an operation of its bodies take.

    Least squares of relative errors, none of the three below zero; nothing where the kernels are
    too few or too alike to tell them apart.
    """
    if not compiled:
        return {}
    names = ["kernel", "operation", "reduction"]
    rows = np.array([(1.0, *code_size(group)) for group, _ in compiled])
    seconds = np.array([seconds for _, seconds in compiled])
    while names:
        scaled = rows / seconds[:, None]
        found, _, rank, _ = np.linalg.lstsq(scaled, np.ones(len(seconds)), rcond=None)
        if rank < len(names):
            return {}
        worst = int(np.argmin(found))
        if found[worst] > 0:
            spread = float(np.std(scaled @ found))
            return {
                name: _measured(float(value), "seconds", spread)
                for name, value in zip(names, found, strict=True)
            }
        del names[worst]
        rows = np.delete(rows, worst, axis=1)
    return {}


def _scaled(timing: Timing, share: float) -> Measured:
    """Return a part of a timing, with its interval."""
    return replace(
        timing.measured(),
        value=timing.seconds * share,
        low=timing.low * share,
        high=timing.high * share,
    )


def _measured(value: float, unit: str, spread: float) -> Measured:
    return Measured(value, unit, value / (1 + spread), value * (1 + spread), 1, "probe")


def _work(
    samples: Samples, curves: Mapping[str, Curve], launch: float, overlap: float
) -> dict[str, float]:
    """Return seconds of each measured op for an element, and those that stand for the others."""
    n = samples.compute_elements
    work: dict[str, float] = {}
    for key, curve in curves.items():
        kind, _, dtype = key.partition("/")
        if kind != "elementwise":
            continue
        chained = samples.by_key.get(f"flop/{dtype}", {}).get(n)
        if chained is not None:
            beyond = _compute_seconds(chained, curve, launch, overlap)
            flop = beyond / n / (CHAIN - 1)  # the first is in the curve
        else:
            # Node by node nothing chains: an op of many flops tells what one costs.
            many = samples.by_key.get(f"{MANY_FLOPS}/{dtype}", {}).get(n)
            flops = OPS[MANY_FLOPS].flops - 1
            beyond = 0.0 if many is None else _compute_seconds(many, curve, launch, overlap)
            flop = beyond / n / flops
        work[f"flop/{dtype}"] = flop
        special = []
        for other, found in samples.by_key.items():
            name = other.partition("/")[0]
            if other != f"{name}/{dtype}" or name in (*_CURVES, "flop", "call") or n not in found:
                continue
            if name == "row":
                rows = curves.get(f"reduce_inner/{dtype}")
                if rows is not None:
                    beyond = max(0.0, found[n].timing.seconds - rows.seconds_at(found[n].work))
                    work[other] = beyond / (n / ROW)
                continue
            work[other] = flop + _compute_seconds(found[n], curve, launch, overlap) / n
            if name in SPECIAL:
                special.append(work[other])
        if special and min(special) > 0:
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
    return min(memory, max(0.0, beyond) / (1 - overlap)) if overlap < 1 else 0.0


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
        if name in (*_CURVES, "flop", "row") or curve is None or key not in work:
            continue
        for n, sample in found.items():
            if n <= samples.compute_elements:
                continue
            whole = curve.seconds_at(sample.work)
            compute, memory = (work[key] - work[f"flop/{dtype}"]) * n, whole - launch
            shorter = min(compute, memory)
            # Where one is much shorter, what it hides drowns in the other's noise.
            if shorter > max(compute, memory) / 10:
                shares.append((whole + compute - sample.timing.seconds) / shorter)
    return min(1.0, max(0.0, median(shares))) if shares else before
