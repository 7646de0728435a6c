"""What calibration learns of reductions and of threads that share: sums have curves of their own,
places take what was seen of them, an op's own probe is predicted as it was timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS, Kind
from alight._src.measure import probes
from alight._src.measure.fit import fit
from alight._src.measure.points import points_of
from alight._src.measure.probe_bench import Bench
from alight._src.measure.probes import Probe
from alight._src.measure.samples import Samples
from alight._src.measure.sizes import FEW, SUMMED_BYTES
from alight._src.plan.cost import Profile, Rates, estimate
from alight._src.plan.curve import Curve, guess
from alight._src.plan.passes import loop_dtype
from alight._src.plan.profile import undisturbed
from alight._src.plan.rate_lookup import beside_seconds, work_seconds
from alight._src.plan.thread_scaling import all_share
from alight._src.plan.workload import PARTS, body_parts
from alight.backends.host import HostBackend
from alight.backends.registry import device
from generated import loop_group, loops

LAUNCH, N = 2e-6, 8192
KNOTS = (16, 1 << 12, 1 << 20)
Takes = Callable[[int], float]


def reduction(op: str, dtype: str, n: int) -> Group:
    return probes.reduction(op, dtype, (n,), (0,))


def measured(implementation: str, dtype: str, takes: dict[str, Takes]) -> Samples:
    """Return samples of curves, which take so long beyond a launch for so many elements."""
    samples = Samples(implementation, N)
    for key, seconds in takes.items():
        op = {"elementwise": "add", "reduce_inner": "max", "reduce_sum": "sum"}[key]
        for n in KNOTS:
            group = probes.loop(op, dtype, n) if op == "add" else reduction(op, dtype, n)
            samples.add(f"{key}/{dtype}", n, group, [LAUNCH + seconds(n)] * 2)
    return samples


def fitted(samples: Samples) -> Rates:
    found = fit(samples)
    assert found is not None
    return found


def made_of(units: dict[str, float]) -> Rates:
    """Return rates that know what these take for an element, and nothing else."""
    return Rates(
        *(guess(LAUNCH, "seconds"), guess(LAUNCH, "seconds"), {}),
        {key: guess(value, "seconds") for key, value in units.items()},
        *(guess(1.0, "share"), 0.1),
    )


def predicted(group: Group, rates: Rates, implementation: str) -> float:
    found = estimate(group, "cpu", implementation, Profile("cpu", {implementation: rates}))
    assert found is not None
    return found.seconds


def streams(implementation: str, dtype: str = "float64") -> Samples:
    """Return samples of additions, maxima at 0.1 ns an element, and sums at three times that."""
    takes: dict[str, Takes] = {
        "elementwise": lambda n: 1e-10 * n,
        "reduce_inner": lambda n: 1e-10 * n,
    }
    if dtype == "float64":
        takes["reduce_sum"] = lambda n: 3e-10 * n
    return measured(implementation, dtype, takes)


def test_a_librarys_sums_and_means_are_read_off_the_curve_of_sums() -> None:
    samples = streams("numpy")
    # a mean is a sum that is called in another way
    samples.add(
        "mean@reduce_inner/float64", FEW, reduction("mean", "float64", FEW), [LAUNCH + 1e-6] * 2
    )
    # rows of which each starts with 5 ns, for both operands
    rows = probes.reduction("sum", "float64", (N // 24, 24), (1,))
    samples.add("start@reduce_inner/float64", N, rows, [LAUNCH + 3e-10 * N + N // 24 * 5e-9] * 2)
    rates = fitted(samples)
    for n in (N, 300_000):
        summed = predicted(reduction("sum", "float64", n), rates, "numpy")
        assert summed == pytest.approx(LAUNCH + 3e-10 * n, rel=0.02)
        mean = predicted(reduction("mean", "float64", n), rates, "numpy")
        assert mean - summed == pytest.approx(1e-6, rel=0.03)
        most = predicted(reduction("max", "float64", n), rates, "numpy")
        assert most == pytest.approx(LAUNCH + 1e-10 * n, rel=0.02)
    assert predicted(rows, rates, "numpy") == pytest.approx(
        LAUNCH + 3e-10 * N + N // 24 * 5e-9, rel=0.03
    )


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_generated_means_of_integers_are_read_off_the_curve_of_the_floats_they_sum(
    dtype: str,
) -> None:
    samples = streams("generated")
    mean = reduction("mean", dtype, N)
    samples.add(f"mean@reduce_inner/{dtype}", N, mean, [LAUNCH + 3e-10 * N] * 2)
    assert f"mean@reduce_inner/{dtype}" in fitted(samples).work


def test_a_sum_behind_other_ops_takes_what_it_does_beyond_extremes() -> None:
    """Not what one of another dtype would: complex ones have as many flops in their curve."""
    samples = streams("generated")
    for n in KNOTS:
        samples.add("elementwise/complex128", n, probes.loop("add", "complex128", n), [LAUNCH] * 2)
        group = reduction("sum", "complex128", n)
        samples.add("reduce_inner/complex128", n, group, [LAUNCH + 1e-9 * n] * 2)
    chain = probes.chain("complex128", N)
    samples.add("flop/complex128", N, chain, [LAUNCH + 24 * 5e-10 * N] * 2)
    work = {key: number.value for key, number in fitted(samples).work.items()}
    # sums took 0.3 ns where extremes took 0.1, behind which as much hides
    assert work["sum@reduce_inner/float64"] == pytest.approx(3e-10, rel=0.02)


def test_an_op_of_another_width_takes_what_its_own_body_does() -> None:
    """Functions of float32 have fewer terms than those of float64."""
    units = {"arctan/float64": 1.3e-9, "body.simple/float64": 2e-11, "body.simple/float32": 1e-11}
    units |= {f"body.divide/{dtype}": 0.0 for dtype in ("float64", "float32")}
    rates = made_of(units)
    (wide, narrow) = (probes.loop("arctan", dtype, N).graph for dtype in ("float64", "float32"))
    sizes = [body_parts(graph, graph.nodes[0])[0] for graph in (wide, narrow)]
    assert sizes[1] < sizes[0]
    found = work_seconds(rates, narrow, narrow.nodes[0], True)
    assert found is not None
    assert found[0] == pytest.approx(1.3e-9 * sizes[1] / (2 * sizes[0]))


def test_an_op_is_estimated_from_any_dtype_that_alone_was_measured() -> None:
    """Whatever of a calibration there was time for; a width's body stands in for another's, parts
    of complex numbers with them, and one of another kind never does."""
    every = ["bool", *[f"{k}{w}" for k in ("int", "uint") for w in (8, 16, 32, 64)]]
    every += ["float16", "float32", "float64", "complex64", "complex128"]
    bodies = {f"body.{part}/{dtype}": 1e-11 for part in PARTS for dtype in every}
    tried = 0
    for op in OPS.values():
        if op.kind is not Kind.ELEMENTWISE or op.body is None:
            continue
        graphs = []
        for operands, results in loops(op):
            one = [np.ones(4, dtype) for dtype in operands]
            graphs.append(loop_group(one, [(op, tuple(range(len(one))), (), results[0])]).graph)
        for graph, other in product(graphs, {loop_dtype(g, g.nodes[0]) for g in graphs}):
            for known in ({}, bodies):
                units = {f"{op.name}/{other}": 1e-9, "flop/float64": 1e-10, **known}
                found = work_seconds(made_of(units), graph, graph.nodes[0], True)
                assert found is None or 0 <= found[0] < 1e-6, (op.name, graph, other)
                tried += 1
    assert tried > 10_000


def test_complex_sums_are_their_reductions_own_curve_and_means_with_them() -> None:
    samples = Samples("numpy", N)
    for n in KNOTS:
        samples.add("elementwise/complex128", n, probes.loop("add", "complex128", n), [LAUNCH] * 2)
        group = reduction("sum", "complex128", n)
        samples.add("reduce_inner/complex128", n, group, [LAUNCH + 3e-10 * n] * 2)
        group = probes.reduction("sum", "complex128", (61, n // 16), (0,))
        samples.add("reduce_outer/complex128", n, group, [LAUNCH + 3e-10 * n] * 2)
    few = reduction("mean", "complex128", FEW)
    samples.add("mean@reduce_inner/complex128", FEW, few, [LAUNCH + 1e-6] * 2)
    # of results side by side, which are divided: nothing of that is in a mean of all
    outer = probes.reduction("mean", "complex128", (61, N // 61), (0,))
    samples.add("mean@reduce_outer/complex128", N, outer, [LAUNCH + 1e-4] * 2)
    rates = fitted(samples)
    both = [
        predicted(reduction(op, "complex128", 300_000), rates, "numpy") for op in ("sum", "mean")
    ]
    assert both[0] == pytest.approx(LAUNCH + 9e-5, rel=0.02)
    assert both[1] - both[0] == pytest.approx(1e-6, rel=0.03)


@pytest.mark.parametrize("more", [0.25, 0.45, 3.0])
def test_a_reduction_takes_at_any_size_what_its_probe_took_more(more: float) -> None:
    """However little it is beside what the curve's own reduction takes."""
    samples = streams("generated")
    samples.add(
        "argmax@reduce_inner/float64",
        N,
        reduction("argmax", "float64", N),
        [LAUNCH + (1 + more) * 1e-10 * N] * 2,
    )
    rates = fitted(samples)
    for n in (N, 500_000):
        found = predicted(reduction("argmax", "float64", n), rates, "generated")
        assert found == pytest.approx(LAUNCH + (1 + more) * 1e-10 * n, rel=0.02)


def test_what_a_reductions_probe_took_little_more_may_be_noise() -> None:
    samples = streams("numpy")
    group = reduction("argmax", "float64", N)
    samples.add("argmax@reduce_inner/float64", N, group, [LAUNCH + 1.12 * 1e-10 * N] * 2)
    found = predicted(reduction("argmax", "float64", 500_000), fitted(samples), "numpy")
    assert found == pytest.approx(LAUNCH + 1e-10 * 500_000, rel=0.01)


def test_places_of_integers_are_found_as_their_extremes_are() -> None:
    samples = streams("generated", "int64")
    group = probes.loop("maximum", "int64", N)
    samples.add("maximum/int64", N, group, [LAUNCH + 1e-10 * N] * 2)
    rates = fitted(samples)
    slow = {"argmax@reduce_inner/float64": guess(1e-8, "seconds")}  # which ask for NaNs
    rates = replace(rates, work={**rates.work, **slow})
    both = [
        predicted(reduction(op, "int64", 300_000), rates, "generated") for op in ("argmin", "min")
    ]
    assert both[0] == pytest.approx(both[1], rel=0.01)


def test_an_ops_probe_is_predicted_as_it_was_timed() -> None:
    """With the addition that the curve holds, whatever that takes."""
    samples = measured("generated", "float64", {"elementwise": lambda n: 2e-10 * n})
    chain = probes.chain("float64", N)
    samples.add("flop/float64", N, chain, [LAUNCH + (2e-10 + 24 * 1e-10) * N] * 2)
    group = probes.loop("exp", "float64", N)
    samples.add("exp/float64", N, group, [LAUNCH + 1e-9 * N] * 2)
    found = predicted(group, fitted(samples), "generated")
    assert found == pytest.approx(LAUNCH + 1e-9 * N, rel=0.01)


def sharing(samples: Samples, seconds: Sequence[tuple[int, float]]) -> Curve:
    group = probes.loop("sin", "float64", N)
    samples.add("sin/float64", N, group, [LAUNCH + 1e-9 * N] * 2)
    for n, shared in seconds:
        group = probes.loop("sin", "float64", n)
        samples.add("sharing/float64", n, group, [LAUNCH + shared] * 2)
    found = fitted(samples).sharing
    assert found is not None
    return found


def test_more_work_is_shared_no_worse_than_less() -> None:
    timed = [(512, 512e-9), (1 << 14, 10e-6), (1 << 16, 65.536e-6), (1 << 19, 270e-6)]
    found = sharing(measured("generated", "float64", {"elementwise": lambda n: 1e-14 * n}), timed)
    shares = [s / alone for alone, s in found.knots]
    # the launcher of the third had settled on one thread
    assert shares[2] == pytest.approx(shares[1])
    assert shares[3] == pytest.approx(270e-6 / (1e-9 * (1 << 19)), rel=0.02)


def test_threads_take_part_in_a_stream_from_where_they_were_seen_to() -> None:
    """Two threads that meet in 0.24 us and share from 4 us of one on, as an EPYC's did."""
    shared = Curve([(5e-7, 5e-7), (2e-6, 1.9e-6), (4e-6, 2.8e-6), (1.6e-5, 9e-6), (5e-4, 2.7e-4)])
    assert all_share(shared) == pytest.approx(2.8e-6)
    assert all_share(Curve([(1e-6, 2e-6), (1e-5, 2e-5)])) == pytest.approx(2e-6)  # none does
    # one thread's up to the third knot, and half as much for each further byte from there on
    knots = [(136.0, 1.6e-6), (3.3e4, 2.1e-6), (2.6e5, 4.3e-6), (1.05e6, 1e-5), (2.1e6, 3e-5)]
    curve = Curve([*knots, (4.2e6, 3.5e-5)])
    rates = Rates(
        *(guess(1.6e-6, "seconds"), guess(1.6e-6, "seconds"), {"reduce_inner/float64": curve}, {}),
        *(guess(1.0, "share"), 0.1),
        sharing=shared,
    )
    joins = {"join": guess(2.4e-7, "seconds")}
    found = undisturbed({"generated": rates}, joins)["generated"].curves["reduce_inner/float64"]
    assert found.knots[:3] == curve.knots[:3]
    assert found.knots[4][1] < 2e-5  # what came late in between still goes


def test_functions_beside_others_of_another_width_take_as_much_less_as_alone() -> None:
    units = {"special/float64": 9e-10, "special/float32": 3e-10, "special@beside/float64": 1.2e-10}
    rates = Rates(
        *(guess(LAUNCH, "seconds"), guess(LAUNCH, "seconds"), {}),
        {key: guess(value, "seconds") for key, value in units.items()},
        *(guess(1.0, "share"), 0.1),
    )
    assert beside_seconds(rates, "float32", False)[1] == pytest.approx(4e-11)
    del rates.work["special/float32"]  # type: ignore[attr-defined]
    assert beside_seconds(rates, "float32", False)[1] == pytest.approx(6e-11)


def test_sums_of_the_host_are_measured_past_its_caches_and_means_by_their_calls() -> None:
    here = [(p.implementation, p.key, p.amount) for p in points_of(device("cpu"))]
    for dtype, size in (("float32", 4), ("complex128", 16)):
        key = f"{'reduce_sum' if size == 4 else 'reduce_inner'}/{dtype}"
        for name in ("numpy", "generated"):
            assert (name, key, SUMMED_BYTES // size) in here
    means = {amount for name, key, amount in here if key == "mean@reduce_inner/float64"}
    assert means == {FEW}
    assert not [key for _, key, _ in here if key.startswith("sum@reduce_inner/float")]


def test_a_bench_makes_arrays_no_larger_than_they_are_read() -> None:
    backend = HostBackend()
    bench = Bench(backend, backend.probe().devices[0], 1 << 24)
    made = [
        bench.launch(Probe("numpy", reduction("max", "float64", n))).inputs[0].buffer.nbytes
        for n in (16, 300_000, 1 << 21)
    ]
    assert made == [1 << 21, 1 << 22, 1 << 24]
