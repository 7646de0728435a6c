"""Work that threads share: they meet once, and what one waits for another one computes beside."""

from __future__ import annotations

import pytest

from alight._src.measure import probes
from alight._src.measure.dtype_points import BESIDE
from alight._src.measure.fit import fit
from alight._src.measure.points import points_of
from alight._src.measure.samples import Samples
from alight._src.plan.cost import Profile, Rates, estimate
from alight._src.plan.curve import Curve, guess
from alight._src.plan.thread_scaling import alone_seconds, met, shared_seconds, together
from alight.backends.registry import device
from alight.backends.sim.sim_backend import SimBackend

LAUNCH = 1e-6
SHARED = (512, 1 << 11, 1 << 14, 1 << 16, 1 << 19)  # elements of 1 ns
# Ten threads, which take 4 us to meet: so long it is one.
SHARING = Curve([(1e-9 * n, min(1e-9 * n, 4e-6 + 1e-10 * n)) for n in SHARED])


def test_threads_that_share_a_kernel_meet_once() -> None:
    # one thread's seconds and those of all, of which 4 us are for meeting
    sharing = Curve([(1e-7, 1e-7), (2e-5, 6e-6), (1e-3, 1e-4)])
    assert met(sharing, 2e-5, 1e-3) == pytest.approx(4e-6, rel=1e-3)
    assert met(sharing, 2e-5, 1e-6) == pytest.approx(1e-6)  # no more than memory's threads took
    assert met(sharing, 1e-3, 1e-3) == pytest.approx(0.0, abs=1e-7)
    # 2 us are no more than waking others takes: one thread does it, and waits for nobody (H200's
    # host, 4096 quotients: 4.4 us taken, 2.8 predicted where that was thought to be a meeting)
    alone = Curve([(1e-7, 1e-7), (4e-6, 4e-6), (6e-5, 1.2e-5), (5e-4, 6.4e-5)])
    assert met(alone, 2e-6, 1e-3) == 0.0
    assert 0 < met(alone, 1e-5, 1e-3) < together(alone, 1e-5)
    knots = [(1e3, LAUNCH), (1e6, LAUNCH + 5e-6), (1e7, LAUNCH + 1e-5)]
    rates = Rates(
        *(guess(LAUNCH, "seconds"), guess(LAUNCH, "seconds")),
        {"elementwise/float64": Curve(knots)},
        {"flop/float64": guess(0.0, "seconds"), "sqrt/float64": guess(2e-5 / 62500, "seconds")},
        *(guess(0.0, "share"), 0.1),
        sharing=sharing,
    )
    group = probes.loop("sqrt", "float64", 62500)  # 1 MB, 20 us of one thread
    found = estimate(group, "cpu", "generated", Profile("cpu", {"generated": rates}))
    assert found is not None
    # memory's 5 us hold 4 of meeting; the 2 us that are computed are partly hidden behind the rest
    assert LAUNCH + 5e-6 < found.seconds < LAUNCH + 7e-6


def test_threads_meet_once_however_long_they_share() -> None:
    sharing = Curve([(1e-6, 1e-6), (1e-4, 2e-5), (5e-4, 6e-5)])
    assert together(sharing, 1e-4) == pytest.approx(2e-5)
    assert together(sharing, 5e-4) == pytest.approx(6e-5)
    # a tenth of what is beyond, not of all: 0.12 of it was measured
    assert together(sharing, 1.05e-2) == pytest.approx(6e-5 + 1e-3)


def test_what_threads_shared_is_found_again() -> None:
    for alone in (2.048e-6, 3e-5, 2e-4, 4e-3):
        assert alone_seconds(SHARING, together(SHARING, alone)) == pytest.approx(alone, rel=2e-3)
    assert alone_seconds(SHARING, 0.0) == 0.0


def test_what_is_less_where_all_threads_share_counts_as_far_as_they_do() -> None:
    assert shared_seconds(SHARING, 2e-4, 0.0) == together(SHARING, 2e-4)
    assert shared_seconds(SHARING, 2.048e-6, 1e-6) == pytest.approx(2.048e-6)  # one thread's
    whole = shared_seconds(SHARING, 5e-2, 2e-2)
    assert whole == pytest.approx(together(SHARING, 3e-2), rel=0.02)
    some = shared_seconds(SHARING, 2e-5, 1e-5)
    assert together(SHARING, 1e-5) < some < together(SHARING, 2e-5)


def test_bodies_with_special_functions_take_less_beside_one_another() -> None:
    """Of what they take more on one thread, half of the special functions' is left, and nothing of
    the simple ones'."""
    n, shared, unit, extra = 8192, 1 << 17, 1e-9, 2e-10
    samples = Samples("generated", n)

    def add(key: str, amount: int, group: object, seconds: float) -> None:
        samples.add(key, amount, group, [LAUNCH + seconds] * 2)  # type: ignore[arg-type]

    for count in (16, 1 << 15, 1 << 20):
        add("elementwise/float64", count, probes.loop("add", "float64", count), 1e-14 * count)
    for op in ("sin", "tanh", "cos", "arctan"):
        add(f"{op}/float64", n, probes.loop(op, "float64", n), unit * n)
    for count in (512, 1 << 11, 1 << 14, 1 << 16, 1 << 19):
        alone = unit * count
        add(
            "sharing/float64", count, probes.loop("sin", "float64", count), together(SHARING, alone)
        )
    more = {"flop": 12 * 5e-11, "special": 2 * extra + 3 * 5e-11}
    left = {"flop": 0.0, "special": 2 * extra / 2}
    bodies = {}
    for key, ops in BESIDE.items():
        special = sum(op in ("tanh", "cos", "arctan") for op in ops) * unit
        group = probes.chain("float64", n, ops, len(ops))
        add(f"{key}@beside/float64", n, group, (special + more[key]) * n)
        bodies[key] = probes.chain("float64", shared, ops, len(ops))
        seconds = together(SHARING, (special + left[key]) * shared)
        add(f"{key}@shared/float64", shared, bodies[key], seconds)
    rates = fit(samples)
    assert rates is not None and rates.sharing is not None
    work = {name: number.value for name, number in rates.work.items()}
    assert work["special@beside/float64"] == pytest.approx(extra, rel=0.05)
    assert work["flop@shared/float64"] == pytest.approx(0.0, abs=1e-12)
    assert work["special@shared/float64"] == pytest.approx(extra / 2, rel=0.05)
    profile = Profile("cpu", {"generated": rates})
    for key, group in bodies.items():
        found = estimate(group, "cpu", "generated", profile)
        (sample,) = samples.by_key[f"{key}@shared/float64"].values()
        assert found is not None
        assert found.seconds == pytest.approx(sample.timing.seconds, rel=0.03)
        one = estimate(probes.chain("float64", n, BESIDE[key], len(BESIDE[key])), "cpu",
                       "generated", Profile("cpu", {"generated": _by_one(rates)}))  # fmt: skip
        (alone_sample,) = samples.by_key[f"{key}@beside/float64"].values()
        assert one is not None
        assert one.seconds == pytest.approx(alone_sample.timing.seconds, rel=0.03)


def _by_one(rates: Rates) -> Rates:
    """Return the rates where there is one thread."""
    fields = {name: getattr(rates, name) for name in ("launch", "call", "curves", "work")}
    return Rates(**fields, overlap=rates.overlap, spread=rates.spread)


def test_shared_bodies_are_measured_of_the_host_alone() -> None:
    here = {point.key for point in points_of(device("cpu")) if "@shared" in point.key}
    assert here == {"flop@shared/float64", "special@shared/float64", "special@shared/float32"}
    simulated = SimBackend().probe().devices[0]
    assert not [point for point in points_of(simulated) if "@shared" in point.key]
