"""What a policy says holds: preference and fallback, picking by time, bits that may change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.adapt.regression_guard import guard_of
from alight._src.base.cache_registry import Cache, forget
from alight._src.config.loading import load
from alight._src.ir.group import Group
from alight._src.log.decisions import LOG
from alight._src.measure.probe_bench import Bench
from alight._src.measure.probes import Probe
from alight._src.measure.timing import Timing
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Estimate, Facts, LaunchStep, Spot
from alight._src.run import measured_choice
from alight.backends import registry
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from alight.backends.wgpu.adapters import preferred
from alight.device import Device, Reason, Support, Unsupported
from alight.errors import ConfigError
from cost_profiles import plan_by
from graphs import F8, Builder, make_layout
from programs import assert_close

BIG = make_layout(F8, (300, 200))


def device(name: str) -> Device:
    support = Support(("generated",), frozenset())
    return Device(
        name, "vendor", "name", name if name != "cpu" else "host", 1 << 34, False, support
    )


def alike(group: Group, device: str, implementation: str) -> Estimate:
    return Estimate(1e-5, 1e-5, 1e-5, {"compute": 1e-5})


@pytest.mark.parametrize("names", [("cpu", "a:0", "b:0"), ("b:0", "a:0", "cpu"), ("a:0", "cpu")])
def test_between_equals_the_first_in_the_list_is_taken(names: tuple[str, ...]) -> None:
    b = Builder(BIG)
    graph = b.graph(b.add("roll", b.add("exp", 0), layout=BIG, shift=1))
    facts = Facts(tuple(map(device, names)), {}, estimate=alike)
    for step in make_plan(graph, facts).steps:
        assert isinstance(step, LaunchStep)
        # NumPy's roll is the only one on the host; a copy is free here.
        assert step.device == names[0] or step.decision.operation == "roll"
    dearer = replace(facts, copy_seconds=lambda a, b, n: 1e-9, host_required=frozenset({0}))
    b = Builder(BIG)
    (step,) = make_plan(b.graph(b.add("exp", 0)), dearer).steps
    assert isinstance(step, LaunchStep) and step.device == "cpu"


@pytest.fixture
def slow_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the host a profile by which it is a thousand times as slow as the simulated devices."""
    made = recorded("cpu", DEFAULT_SPEC)
    own = made.rates["generated"]
    work = {n: replace(m, value=m.value * 1e3) for n, m in own.work.items()}
    rates = dict.fromkeys(("numpy", "generated"), replace(own, work=work))
    plan_by(monkeypatch, replace(made, rates=rates, links={}))
    forget(Cache.PLANS)
    yield
    forget(Cache.PLANS)


def work(x: Any) -> Any:
    for _ in range(3):
        x = np.sin(x) + np.exp(x) * np.cos(x)
    return x


def test_where_a_device_fails_the_next_one_takes_over(slow_host: None) -> None:
    x = np.linspace(0.0, 1.0, 200_000)
    with alight.policy(devices=["sim:0", "sim:1"], floor=0):
        for failures, where in ((0, "sim:0"), (1, "sim:1"), (2, "cpu")):
            LOG.reset()
            driver: Any = registry.driver_of(registry.device("sim:0"))
            nth = 1 if failures else 0
            if failures == 1:
                driver.fail("launch", nth)
            if failures == 2:  # the fault is one of the backend: both its devices meet it
                whole = driver._launch
                driver._launch = lambda *args: (_ for _ in ()).throw(RuntimeError("gone"))
            try:
                result = work(alight.asarray(x))
                assert_close(result, work, x)
            finally:
                if failures == 2:
                    driver._launch = whole
            totals = alight.report().to_dict()["totals"]["element_operations"]["by_device"]
            assert max(totals, key=totals.get) == where
            assert bool(LOG.snapshot().fallbacks) == bool(failures)


def test_a_denied_device_gets_nothing(slow_host: None) -> None:
    x = np.linspace(0.0, 1.0, 200_000)
    registry.device("sim:0")
    with alight.policy(devices=["-sim:0"], floor=0):
        LOG.reset()
        np.asarray(work(alight.asarray(x)))
        totals = alight.report().to_dict()["totals"]["element_operations"]["by_device"]
    assert set(totals) == {"cpu"}


def test_picking_by_time_needs_no_profile_and_takes_the_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan_by(monkeypatch, None)
    forget(Cache.TIMINGS)
    x = np.linspace(0.0, 1.0, 100_000)
    seen = []
    for pick in ("model", "measure"):
        with alight.policy(pick=pick, floor=0):
            LOG.reset()
            assert_close(work(alight.asarray(x)), work, x)
            seen += [record.decision for record in LOG.snapshot().records]
    blind, timed = seen
    assert blind.reason is Reason.UNCALIBRATED and blind.implementation == "numpy"
    assert timed.reason is Reason.CHEAPEST
    found = {c.implementation: c.estimate for c in timed.candidates}
    assert found.keys() == {"numpy", "generated"}
    best = min(found, key=lambda name: found[name].seconds)  # type: ignore[union-attr]
    assert timed.implementation == best
    assert all(
        estimate is not None and set(estimate.terms) == {"measured"} for estimate in found.values()
    )
    (known,) = measured_choice._known.values()
    assert set(known) == {("cpu", "numpy"), ("cpu", "generated")}


def test_a_group_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(Cache.TIMINGS)
    calls = []

    def timed(group: Group, spots: Sequence[Spot]) -> dict[Spot, Estimate | None]:
        calls.extend(spots)
        return {spot: alike(group, *spot) for spot in spots}

    monkeypatch.setattr(measured_choice, "_timed", timed)
    forget(Cache.PLANS)
    with alight.policy(pick="measure", floor=0):
        for _ in range(3):
            np.asarray(work(alight.asarray(np.ones(5000))))
            forget(Cache.PLANS)
    assert sorted(calls) == [("cpu", "generated"), ("cpu", "numpy")]


def test_candidates_are_timed_in_turns_and_who_fails_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget(Cache.TIMINGS)
    order: list[str] = []

    def time(bench: Any, probe: Probe, seconds: float) -> Timing:
        order.append(f"{bench.device.id}:{probe.implementation}")
        if bench.device.id != "cpu":
            raise Unsupported("no such thing")
        return Timing(1.0 + len(order), 1.0, 9.0, 5)

    monkeypatch.setattr(Bench, "time", time)
    registry.device("sim:0")
    with alight.policy(pick="measure", floor=0, devices=["cpu", "sim:0"]), LOG.forgetting():
        np.asarray(alight.asarray(np.ones(5000)) * 3.0)
        (record,) = LOG.snapshot().records
    sims = [name for name in order if name.startswith("sim")]
    assert len(sims) == len(set(sims)) > 0
    assert [name for name in order if name not in sims] == ["cpu:numpy", "cpu:generated"] * 3
    took = {c.implementation: c.estimate for c in record.decision.candidates if c.device == "cpu"}
    assert took["numpy"] is not None and took["numpy"].seconds == 2.0


def test_only_what_is_not_reproducible_changes_its_bits(slow_host: None) -> None:
    b = Builder(BIG)
    graphs = {"exp": b.graph(b.add("exp", 0)), "add": b.graph(b.add("add", 0, 0))}

    def cheap(group: Group, device: str, implementation: str) -> Estimate:
        seconds = 1e-6 if implementation == "generated" else 1e-3
        return Estimate(seconds, seconds, seconds, {"compute": seconds})

    for reproducible, tried in ((True, {"add"}), (False, {"add", "exp"})):
        with alight.policy(reproducible=reproducible):
            facts = Facts((registry.device("cpu"),), {}, estimate=cheap)
            found = set()
            for name, graph in graphs.items():
                (step,) = make_plan(graph, facts).steps
                assert isinstance(step, LaunchStep) and step.implementation == "generated"
                guard = guard_of(step)
                if guard is not None and not guard.beside:  # it may lose while the program runs
                    found.add(name)
        assert found == tried


def test_adapters_are_ordered_by_power_and_software_may_be_left_out() -> None:
    kinds = ("CPU", "IntegratedGPU", "Unknown", "DiscreteGPU", "IntegratedGPU")
    infos = [{"adapter_type": kind} for kind in kinds]
    assert preferred(infos, "high", software=True) == [3, 1, 4, 2, 0]
    assert preferred(infos, "low", software=True) == [1, 4, 3, 2, 0]
    assert preferred(infos, "low", software=False) == [1, 4, 3, 2]
    assert preferred([infos[0]], "high", software=False) == []
    settings = load({"ALIGHT_WGPU_POWER": "low", "ALIGHT_WGPU_SOFTWARE": "no"})
    assert (settings.wgpu_power, settings.wgpu_software) == ("low", False)
    with pytest.raises(ConfigError, match="ALIGHT_WGPU_POWER"):
        load({"ALIGHT_WGPU_POWER": "most"})
