"""Regret: figures by hand, tables from runs, and a recorded table replayed on simulated devices."""

from __future__ import annotations

import copy
import json
import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from types import SimpleNamespace
from typing import Any

import pytest

from alight._core import floor
from alight._src.adapt import planner_facts
from alight._src.base.cache_registry import Cache, forget
from alight._src.bench import calibration, regret
from alight._src.bench.command import run_regret
from alight._src.bench.judged import figures, text
from alight._src.bench.regret import cases, collect, planned, signature
from alight._src.config.loading import policy
from alight._src.measure.profiles import fingerprint, save_profile
from alight._src.measure.timing import Timing
from alight._src.plan.choose import group_key
from alight._src.plan.plan import LaunchStep
from alight._src.run import measured_choice
from alight.backends import registry
from alight.backends.cuda.cuda_backend import described
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, Spec, recorded
from alight.errors import AlightError
from cost_profiles import plan_by
from replayed_tables import again, program_regrets

TABLES = Path(__file__).resolve().parents[2] / "bench-results"


def place(seconds: float, predicted: float) -> dict[str, float]:
    return {
        "seconds": seconds,
        "predicted": predicted,
        "low": predicted / 1.2,
        "high": predicted * 1.2,
    }


def made_up() -> dict[str, Any]:
    def group(nodes: int, numpy: tuple[float, float], own: tuple[float, float]) -> dict[str, Any]:
        places = {"cpu:numpy": place(*numpy), "cpu:generated": place(*own)}
        return {"operation": "x", "kind": "loop", "nodes": nodes, "elements": 1, "places": places}

    return {
        "groups": {
            "right": group(1, (2.0, 2.0), (1.0, 1.1)),
            "wrong": group(3, (2.0, 1.0), (1.0, 1.5)),
            "close": group(2, (1.05, 1.0), (1.0, 1.01)),
        },
        "programs": [
            {"program": "a", "n": 1, "dtype": "f", "seconds": {"planned": 3.0, "cpu:numpy": 2.0}},
            {"program": "b", "n": 1, "dtype": "f", "seconds": {"planned": 1.0, "cpu:numpy": 2.0}},
        ],
    }


def test_figures_are_those_worked_out_by_hand() -> None:
    found = figures(made_up())
    assert (found["groups"], found["decidable"], found["right"]) == (3, 2, 0.5)
    assert found["worst_regret"] == 1.0
    assert found["regret"] == pytest.approx((1.0 * 2.0 * 1.05) ** (1 / 3) - 1)
    assert (found["programs"], found["worst_program_regret"]) == (2, 0.5)
    assert found["program_regret"] == pytest.approx(1.5**0.5 - 1)
    assert found["mape"]["loop, generated"] == pytest.approx(0.1)
    assert found["mape"]["fused loop, numpy"] == pytest.approx((0.5 + 1 - 1 / 1.05) / 2)
    assert found["coverage"] == pytest.approx(4 / 6)
    assert found["from_host"]["right"] is None and found["program_regret_apart"] is None
    shown = text(made_up())
    assert "50.0% chosen right" in shown and "fused loop, generated" in shown


def test_groups_from_the_host_pay_their_copies() -> None:
    table = made_up()
    for name, group in table["groups"].items():
        group |= {"inputs": [8, 8], "outputs": [4]}
        group["places"]["sim:0:generated"] = place(0.1, 0.1)
        if name == "close":  # predicted 0.8 + 2 * 0.2 + 0.1
            group["places"]["sim:0:generated"] = place(0.1, 0.8)
    up, down = {"seconds": 0.5, "predicted": 0.2}, {"seconds": 0.2, "predicted": 0.1}
    table["copies"] = {"sim:0": {"upload": {"8": up}, "download": {"4": down}}}
    table["programs"][0]["apart"] = {"planned": 1.2, "cpu:numpy": 1.0}
    found = figures(table)
    assert (found["decidable"], found["right"]) == (3, 1.0)
    # taken 0.1 + 2 * 0.5 + 0.2 there, 1 on the host; the third is predicted to take 1.01 here
    assert found["from_host"]["decidable"] == 2 and found["from_host"]["right"] == 0.0
    assert found["from_host"]["worst_regret"] == pytest.approx(0.3)
    assert found["program_regret_apart"] == pytest.approx(0.2)
    assert "2 groups: 0.0% chosen right" in text(table)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the host figures, and have groups take exactly what they are predicted to."""
    made = recorded("cpu", DEFAULT_SPEC)
    rates = dict.fromkeys(("numpy", "generated"), made.rates["generated"])
    plan_by(monkeypatch, replace(made, rates=rates, links={}))

    def measured(group: Any, device: str, implementation: str) -> Timing | None:
        found = planner_facts.estimate(group, device, implementation)
        return None if found is None else Timing(found.seconds, found.low, found.high, 5)

    monkeypatch.setattr(measured_choice, "timer", lambda *spot: lambda seconds: measured(*spot))
    forget(Cache.PLANS)
    yield
    forget(Cache.PLANS)


def test_a_table_has_every_place_of_every_program(known: None) -> None:
    names = ["chain_sum", "softmax", "kmeans_step"]
    wanted = list(cases(names, [2**12], ["float64"]))
    table = json.loads(json.dumps(collect(wanted, math.inf, lambda what: None), default=str))
    assert [p["program"] for p in table["programs"]] == names and table["left_out"] == 0
    for program in table["programs"]:
        assert set(program["seconds"]) == {"planned", "cpu:numpy", "cpu:generated"}
        assert min(program["seconds"].values()) > 0
    for case in wanted:
        with policy(floor=0):
            plans = [request.plan() for request in planned(case)]
        steps = [s for plan in plans for s in plan.steps if isinstance(s, LaunchStep)]
        assert {group_key(step.group) for step in steps} <= set(table["groups"])
    found = figures(table)
    assert found["right"] in (1.0, None) and found["worst_regret"] == 0.0
    assert collect(wanted, 0.0, lambda what: None)["left_out"] == len(names)


def test_candidates_that_are_about_as_quick_are_timed_once_more(
    known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A moment that makes all slow is over when the programs are."""
    model, visits = measured_choice.timer, Counter[tuple[str, str, str]]()

    def slow_at_first(group: Any, device: str, implementation: str) -> Timing | None:
        found = model(group, device, implementation)(0.0)
        assert found is not None
        visits[spot := (group_key(group), device, implementation)] += 1
        return replace(found, seconds=1.4 * found.seconds) if visits[spot] <= 2 else found

    monkeypatch.setattr(
        measured_choice, "timer", lambda *spot: lambda seconds: slow_at_first(*spot)
    )
    monkeypatch.setattr(regret, "_PACE", SimpleNamespace(steady=lambda: True))
    wanted = list(cases(["chain_sum", "sum"], [2**12], ["float64"]))
    groups = collect(wanted, math.inf, print)["groups"]
    near = far = 0
    for group in groups.values():
        slow = {
            name: place["seconds"] / place["predicted"] for name, place in group["places"].items()
        }
        least = min(place["predicted"] for place in group["places"].values())
        close = [n for n, p in group["places"].items() if p["predicted"] <= 1.5 * least]
        for name, ratio in slow.items():
            again = len(close) > 1 and name in close
            assert ratio == pytest.approx(1.0 if again else 1.4)
            near, far = near + again, far + (not again)
    assert near and far


def test_devices_are_calibrated_first_in_a_cache_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = recorded("cpu", DEFAULT_SPEC)
    rates = dict.fromkeys(("numpy", "generated"), made.rates["generated"])
    host = replace(made, rates=rates, links={}, origin="measured", made_seconds=21.0)
    asked: list[tuple[list[str], float]] = []
    folders: list[str] = []

    def calibrates(names: list[str], seconds: float, env: dict[str, str]) -> Any:
        asked.append((names, seconds))
        folders.append(env["ALIGHT_CACHE_DIR"])
        save_profile(replace(host, fingerprint=fingerprint(registry.device("cpu"))))
        return [{"device": "cpu", "again": False, "text": "cpu: measured"}], ""

    monkeypatch.setattr(calibration, "_in_process", calibrates)
    monkeypatch.setattr(
        measured_choice, "timer", lambda *spot: lambda seconds: Timing(1e-6, 1e-6, 1e-6, 5)
    )
    before = os.environ["ALIGHT_CACHE_DIR"]
    known = dict(planner_facts._profiles)
    with policy(devices=["sim:0", "cpu"]):
        assert run_regret("sum", "2^10", "float64", 7.0, tmp_path) == 0
        table = json.loads((tmp_path / "regret.json").read_text(encoding="utf-8"))
        # a simulated device is what its record says; 5 % of seven minutes
        assert asked == [(["cpu"], pytest.approx(21.0))]
        assert set(table["profiles"]) == {"cpu", "sim:0"}
        assert table["profiles"]["cpu"]["made_seconds"] == 21.0
        assert table["calibration"]["result"] == "cpu: measured"
        for group in table["groups"].values():
            assert all("predicted" in place for place in group["places"].values())
        shown = capsys.readouterr().out
        assert "sim:0 as recorded" in shown and "cpu measured for 21 s" in shown
        monkeypatch.setattr(calibration, "_in_process", lambda *_: ([], "cpu: disturbed"))
        with pytest.raises(AlightError, match=r"cpu could not be .*disturbed.* Fix: .*budget\.$"):
            run_regret("sum", "2^10", "float64", 7.0, tmp_path)
    assert os.environ["ALIGHT_CACHE_DIR"] == before and before not in folders
    assert "ALIGHT_DEVICES" not in os.environ and not Path(folders[0]).exists()
    planner_facts._profiles.update(known)


def test_the_copies_of_a_program_are_timed_with_it_and_count_to_the_budget(
    known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(regret, "monotonic", lambda: now[0])

    def takes(bench: Any, way: str, nbytes: int) -> Timing:
        now[0] += 10.0
        return Timing(1e-3, 1e-3, 1e-3, 5)

    monkeypatch.setattr(regret.Bench, "time_copy", takes)
    wanted = list(cases(["chain_sum", "softmax"], [2**12, 2**14], ["float64"]))
    with policy(devices=["sim:0", "cpu"]):
        table = collect(wanted, 15.0, lambda what: None)
    assert (len(table["programs"]), table["left_out"]) == (1, 3)
    copies = table["copies"]["sim:0"]
    for group in table["groups"].values():
        assert {str(n) for n in group["inputs"]} <= copies["upload"].keys()
        assert {str(n) for n in group["outputs"]} <= copies["download"].keys()
    assert figures(table)["from_host"]["regret"] is not None


def test_ways_with_one_plan_are_timed_once(known: None) -> None:
    case = ("chain_sum", 2**12, "float64")
    found = collect([case], math.inf, lambda what: None)["programs"][0]["seconds"]
    plans = {}
    for way in found:
        force = None if way == "planned" else way
        with policy(floor=0) if force is None else policy(force=force, floor=0):
            plans[way] = signature([request.plan() for request in planned(case)])
    assert plans["planned"] in (plans["cpu:generated"], plans["cpu:numpy"])
    for way, other in ((a, b) for a in plans for b in plans):
        assert (found[way] == found[other]) is (plans[way] == plans[other])


def test_a_call_is_cut_into_the_same_requests_whatever_was_recorded_before(known: None) -> None:
    """What `planned` records is asked for by nobody, and is not pending for the next ones."""
    case = ("chain_sum", 2**12, "float64")
    first = [request.graph for request in planned(case)]
    counted = floor.count
    other = ("black_scholes", 2**12, "float64")
    for _ in range(2 * floor.limit // len(planned(other)[0].graph.nodes)):
        planned(other)
    assert floor.count == counted
    assert [request.graph for request in planned(case)] == first


def spec(name: str, **factors: float) -> Spec:
    """Return the default device with some of its figures multiplied."""
    made: Any = copy.deepcopy(DEFAULT_SPEC)
    made["name"] = name
    made["launch"]["value"] *= factors.get("launch", 1.0)
    made["memory"]["value"] *= factors.get("memory", 1.0)
    for kind in ("flops", "special"):
        for rate in made[kind].values():
            rate["value"] *= factors.get("flops", 1.0)
    for link in made["links"].values():
        link["latency"]["value"] /= factors.get("link", 1.0)
        link["bandwidth"]["value"] *= factors.get("link", 1.0)
    return made  # type: ignore[no-any-return]


NEAR = spec("near", launch=0.5, memory=0.1, flops=0.1, link=8)
WIDE = spec("wide", launch=2, memory=4, flops=4, link=0.5)

# The most that programs may lose in the mean; replayed when the table was made: 1.6 % beside a near
# device and in four memories, 1.8 % beside a far one.
MOST = 0.02
SPACES = {
    "near": {"sim:0": NEAR},
    "far": {"sim:0": DEFAULT_SPEC},
    "four": {"sim:0": DEFAULT_SPEC, "sim:1": NEAR, "sim:2": WIDE},
}


@pytest.mark.parametrize("spaces", SPACES)
def test_a_recorded_table_is_replayed_with_little_regret(spaces: str) -> None:
    table = json.loads((TABLES / "epyc-2-cores" / "regret.json").read_text(encoding="utf-8"))
    rows = program_regrets(table, SPACES[spaces])
    played = [row for row in rows if row["seconds"] is not None]
    # What is fused differently by now is not in the table.
    assert len(played) >= len(rows) / 2, "most groups are not in the table: make it anew"
    ratios = [row["seconds"] / row["oracle"] for row in played]
    assert min(ratios) >= 1 - 1e-9 or spaces == "four"
    assert geometric_mean(ratios) <= 1 + MOST, sorted(
        zip(ratios, played, strict=True), key=lambda p: -p[0]
    )[:3]
    devices = {name.rpartition(":")[0] for row in played for name in row["places"]}
    assert len(devices) >= 2


# What is reached, for nothing to get worse.
Limits = dict[str, float]
REACHED: dict[str, Limits] = {
    # 100 programs, as they were predicted then: the worst one is one that the card took 1.5 times
    # as long for as the host
    "h100": {
        "right": 0.996,
        "regret": 0.0019,
        "worst_regret": 0.36,
        "program_regret": 0.0146,
        "worst_program_regret": 0.48,
    },
    # 101 programs: the worst one is k-means on the host, whose products of columns take four times
    # what was predicted there; the mean is the limit of a table made anew. The worst group is
    # a division of 4,096 float64 that is predicted to take as long on the host (3.13 us) as on the
    # card (3.19), which took 3.04; the host took 4.36.
    "h200": {
        "right": 0.992,
        "regret": 0.0024,
        "worst_regret": 0.44,
        "program_regret": 0.03,
        "worst_program_regret": 0.61,
    },
}


@pytest.mark.parametrize("machine", REACHED)
def test_the_table_of_a_card_is_predicted_as_well_as_it_was(machine: str) -> None:
    table = json.loads((TABLES / machine / "regret.json").read_text(encoding="utf-8"))
    profile = table["profiles"]["cuda:0"]
    card = {"name": "NVIDIA H200", "uuid": "", "memory": profile["fingerprint"]["device_memory"]}
    card |= {"processors": 132, "capability": "9.0"}
    driver = {"vendor": "NVIDIA", "driver": 13000, "runtime": 13020, "cupy": "14.2.0"}
    devices = described(0, {"cards": [card], **driver}), registry.device("cpu")
    found = again(table, devices)
    assert len(found["groups"]) >= 0.9 * len(table["groups"])
    played = [p for p in found["programs"] if "planned" in p["seconds"]]
    assert len(played) >= 0.9 * len(table["programs"]), "other plans than any of then"
    reached, limits = figures(found), REACHED[machine]
    assert reached["right"] >= limits["right"]
    for name in ("regret", "worst_regret", "program_regret", "worst_program_regret"):
        assert reached[name] <= limits[name], name
