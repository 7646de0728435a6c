"""From timings to rates: curves through the knots, surfaces of products, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from alight._src.base.records import replace
from alight._src.ir.group import Group
from alight._src.measure.gemm_fit import surface_of
from alight._src.measure.points import CURVE_CLASSES
from alight._src.measure.probes import CHAIN
from alight._src.measure.samples import Samples
from alight._src.measure.sizes import COARSE_BYTES
from alight._src.measure.timing import Timing
from alight._src.measure.work import Work
from alight._src.plan.compile_work import code_size
from alight._src.plan.cost import Rates
from alight._src.plan.curve import Curve, Measured
from alight._src.plan.gemm_surface import Surface
from alight._src.plan.nearest import BORROWED_SPREAD
from alight._src.plan.workload import product_shape

# Knots below which there is no curve, and the nearest dtype's serves: the first three measured are
# both ends and the middle.
_LEAST_KNOTS = 3
# Where nothing was validated: the median error of such curves on a busy machine was 2 to 6 %, the
# means of coarser ones 9 to 20 %; a doubled 10 % leaves room for both.
_UNVALIDATED_SPREAD = 0.2


def fit(samples: Samples, spreads: Mapping[str, float] | None = None) -> Rates | None:
    """Return the rates that explain the timings; None before the first curve is there.

    A curve holds the additions it was measured with; what other ops take longer is their work.
    ``spreads`` are those of the classes that were validated.
    """
    curves: dict[str, Curve] = {}
    shortest: list[Timing] = []
    for key, found in samples.by_key.items():
        if key.partition("/")[0] in CURVE_CLASSES and len(found) >= _LEAST_KNOTS:
            curves[key] = Curve([(s.work, s.timing.seconds) for s in found.values()])
            shortest += [sample.timing for sample in found.values()]
    if not any(key.startswith("elementwise/") for key in curves):
        return _named(samples, curves, shortest, dict(spreads or {}))
    coarse = _coarse(samples, curves, min(shortest, key=lambda timing: timing.seconds).seconds)
    curves = extended(curves) | coarse
    curves |= _sums(samples, curves)
    launch = min(shortest, key=lambda timing: timing.seconds).measured()
    work = Work(samples, curves, launch.value)
    units = work.units()
    overlap = 1.0
    sharing = _sharing(samples, units, launch.value)
    if not samples.hides:
        overlap = work.overlap_with(units, sharing)
    if sharing is not None:
        units |= work.together(units, sharing)
    surfaces, _ = _surfaces(samples)
    coarse_surfaces = _coarse_surfaces(samples, surfaces, curves, launch.value)
    spread = (spreads or {}).get("elementwise", _UNVALIDATED_SPREAD)
    spreads = _doubted(dict(spreads or {}), spread, coarse, coarse_surfaces)
    surfaces |= coarse_surfaces
    return Rates(
        launch=launch,
        call=_call(samples, curves, launch),
        curves=curves,
        work={key: _measured(value, "seconds", spread) for key, value in units.items()},
        overlap=_measured(overlap, "share", spread),
        spread=spread,
        surfaces=surfaces,
        sharing=sharing,
        spreads=spreads,
    )


# Bytes past which each implementation waits for the same memory: beyond the second-level caches of
# most machines.
_SAME_MEMORY = 1 << 21


def joined(rates: Mapping[str, Rates]) -> dict[str, Rates]:
    """Return the rates of implementations that run on one thread each, none of which takes longer
    for what comes out of memory than another: what others have in the last cache differs from
    moment to moment, and only ever adds. What one computes for longer than that it still computes
    (NumPy's sums of complex numbers: 121 us for 6.7 MB, where maxima of floats take 66)."""
    found = {}
    for name, own in rates.items():
        curves = dict(own.curves)
        for key, curve in own.curves.items():
            if key.partition("/")[0] not in ("elementwise", "negate", "reduce_inner"):
                continue
            others = [o.curves[key] for o in rates.values() if o is not own and key in o.curves]
            call = curve.knots[0][1]
            least = []
            for work, seconds in curve.knots:
                if others and work > _SAME_MEMORY:
                    quickest = min(o.seconds_at(work) - o.knots[0][1] for o in others)
                    seconds = min(seconds, call + max(quickest, curve.stream_seconds(work)))
                least.append((work, seconds))
            curves[key] = Curve(least)
        found[name] = replace(own, curves=curves)
    return found


def _named(
    samples: Samples,
    curves: Mapping[str, Curve],
    shortest: Sequence[Timing],
    spreads: dict[str, float],
) -> Rates | None:
    """Return the rates of a device's library of named functions, which has no additions to measure
    others by; None while none of its classes is there."""
    surfaces, _ = _surfaces(samples)
    for found in samples.by_key.values():
        shortest = [*shortest, *[sample.timing for sample in found.values()]]
    if samples.implementation != "library" or not shortest:
        return None
    launch = min(shortest, key=lambda timing: timing.seconds).measured()
    coarse = _coarse(samples, curves, launch.value)
    coarse_surfaces = _coarse_surfaces(samples, surfaces, curves, launch.value)
    surfaces, curves = surfaces | coarse_surfaces, {**curves, **coarse}
    if not (curves or surfaces):
        return None
    spread = max(spreads.values(), default=_UNVALIDATED_SPREAD)
    spreads = _doubted(spreads, spread, coarse, coarse_surfaces)
    return Rates(
        launch=launch,
        call=launch,
        curves=extended(curves),
        work={},
        overlap=_measured(1.0, "share", spread),  # nothing is added to what a curve says
        spread=spread,
        surfaces=surfaces,
        spreads=spreads,
    )


# Bytes, or flops, of next to no work: what takes no less than a launch.
_NO_WORK = 128.0
# Work from which one size tells more than the call.
_SOME_WORK = COARSE_BYTES // 8


def _coarse(
    samples: Samples, curves: Mapping[str, Curve], launch_seconds: float
) -> dict[str, Curve]:
    """Return the curves of classes that were measured in too few sizes for one of their own in any
    dtype: from a launch to what the largest took."""
    known = {key.partition("/")[0] for key in curves}
    found = {}
    for key, points in samples.by_key.items():
        kind = key.partition("/")[0]
        largest = max(points.values(), key=lambda sample: sample.work)
        if kind in CURVE_CLASSES and kind not in known and largest.work >= _SOME_WORK:
            seconds = largest.timing.seconds
            least = min(launch_seconds, seconds)
            found[key] = Curve([(_NO_WORK, least), (largest.work, seconds)])
    return found


def _coarse_surfaces(
    samples: Samples,
    fitted: Mapping[str, Surface],
    curves: Mapping[str, Curve],
    launch_seconds: float,
) -> dict[str, Surface]:
    """Return the surfaces of products of which too few were measured to fit one: a launch, the
    multiplications at the rate of the largest, and operands and results as quick as the quickest
    stream."""
    found: dict[str, Surface] = {}
    if samples.implementation == "generated":  # what nobody measured is a library's
        return found
    for key, points in samples.by_key.items():
        name, _, dtype = key.partition("/")
        if name == "matmul" and points and dtype not in fitted:
            largest = max(points.values(), key=lambda sample: sample.amount)
            size = largest.group.graph.inputs[0].itemsize
            _, m, k, n = product_shape(largest.group.graph, largest.group.graph.nodes[0])
            seconds = largest.timing.seconds
            each = max(seconds - launch_seconds, 0.5 * seconds) / (m * k * n)
            streams = [c.stream_seconds(size) for c in curves.values()]
            stream = min([s for s in streams if s > 0.0], default=0.0)
            terms = launch_seconds, each, stream, stream, stream, 0.0
            found[dtype] = Surface(terms, (), (), 1.0, each)
    return found


def _doubted(
    spreads: dict[str, float],
    spread: float,
    coarse: Mapping[str, Curve],
    surfaces: Mapping[str, Surface],
) -> dict[str, float]:
    """Return the spreads of classes with those that were read off one size: between it and a call
    their curves may bend in any way, as far as one of another class may."""
    kinds = {key.partition("/")[0] for key in coarse}
    if surfaces:  # of one dtype at least
        kinds.add("matmul")
    more = {k: math.hypot(spreads.get(k, spread), BORROWED_SPREAD) for k in kinds}
    return {**spreads, **more}


def extended(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """Return the curves, each with the knots of the one of its class that has most: caches and
    memory do not know dtypes, so between its own knots a curve bends as that one does, by as much
    as they differ there. Beyond them a reduction that computes for longer than memory takes goes on
    at the pace of its end until memory takes longer; any other takes as much more as that one."""
    closest: dict[str, Curve] = {}
    for key, curve in curves.items():
        kind = key.partition("/")[0]
        if kind not in closest or len(curve.knots) > len(closest[kind].knots):
            closest[kind] = curve
    found = {}
    for key, curve in curves.items():
        kind = key.partition("/")[0]
        model = closest[kind]
        own = [math.log(work) for work, _ in curve.knots]
        shares = [math.log(s / model.seconds_at(work)) for work, s in curve.knots]
        knots = dict(curve.knots)
        call, model_call = curve.knots[0][1], model.knots[0][1]
        last, end = curve.knots[-1]
        # what is no stream, as a second kernel on a device, is in both
        computes = end - call > _LONGER * (model.seconds_at(last) - model_call)
        for work, seconds in model.knots:
            # a knot that is nearly there already would make the curve bend for noise
            if any(abs(math.log(work) - place) <= _NEAR for place in own):
                continue
            if work > last and kind.startswith("reduce_"):
                stream = (end - call) * work / last if computes else 0.0
                knots[work] = call + max(stream, seconds - model_call)
            else:
                knots[work] = seconds * math.exp(float(np.interp(math.log(work), own, shares)))
        found[key] = Curve(knots.items()) if len(knots) > len(own) else curve
    return found


# Half of the way to twice as long, in logarithms: in as many bytes there are twice the elements of
# a dtype of half the width, or half of them.
_LONGER = math.sqrt(2.0)
# Of works whose knots are one, in logarithms: those of arrays of the same bytes.
_NEAR = math.log(1.2)


def _sums(samples: Samples, curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """Return the curves of sums of dtypes whose reductions were measured by sums."""
    found = {}
    for key, points in samples.by_key.items():
        kind, _, dtype = key.partition("/")
        reduced = [point.group.graph.nodes[-1].op.name for point in points.values()]
        if kind == "reduce_inner" and key in curves and reduced[0] == "sum":
            found[f"reduce_sum/{dtype}"] = curves[key]
    return found


def _call(samples: Samples, curves: Mapping[str, Curve], launch: Measured) -> Measured:
    """Return what a further node costs before it does anything."""
    for key, found in samples.by_key.items():
        curve = curves.get(f"elementwise/{key.partition('/')[2]}")
        for sample in found.values() if key.startswith("call/") and curve is not None else ():
            # Every node of the chain but the first, on arrays that cost nothing themselves.
            timing, n = sample.timing, sample.amount
            size = sample.group.graph.inputs[0].itemsize
            one = curve.seconds_at(3 * size * n) if curve is not None else 0.0
            share = max(0.0, timing.seconds - one) / (CHAIN - 1) / timing.seconds
            return _scaled(timing, share)
    return launch


def left_out(samples: Samples) -> list[float]:
    """Return by how much, in logarithms, surfaces of products would miss each without it."""
    return _surfaces(samples)[1]


def _surfaces(samples: Samples) -> tuple[dict[str, Surface], list[float]]:
    """Return the surface of products in each dtype that enough of them were measured in, and by how
    much they would miss each of these."""
    found: dict[str, Surface] = {}
    missed: list[float] = []
    for key, points in samples.by_key.items():
        name, _, dtype = key.partition("/")  # and which operand lies turned
        if name == "matmul":
            timings = {}
            for sample in points.values():
                graph = sample.group.graph
                _, m, k, n = product_shape(graph, graph.nodes[0])
                timings[m, k, n] = sample.timing.seconds
            fitted = surface_of(timings)
            if fitted is not None:
                found[dtype], each = fitted
                missed += each
    return found, missed


def _sharing(samples: Samples, units: Mapping[str, float], launch: float) -> Curve | None:
    """Return how long compute takes with all threads, over what it takes with one."""
    knots = []
    for key, found in samples.by_key.items():
        name, _, dtype = key.partition("/")
        unit = units.get(f"sin/{dtype}", 0.0)
        if name == "sharing" and unit > 0:
            knots = [(unit * n, max(s.timing.seconds - launch, 0.0)) for n, s in found.items()]
    # More of the same work is shared no worse than less of it: a launcher that settled on one
    # thread, since another came late in its first runs, took 62 us for what two took 31 (EPYC).
    share, shared = 1.0, []
    for alone, together in sorted(knots):
        if together > 0:
            share = min(share, together / alone)
            shared.append((alone, alone * share))
    return Curve(shared) if len(shared) >= _LEAST_KNOTS else None


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
