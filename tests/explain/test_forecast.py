"""What a call would cost is told without computing it, and as the planner sees it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.adapt import planner_facts
from alight._src.base.cache_registry import Cache, forget
from alight._src.explain.dry_run import requests_of
from alight._src.explain.row_table import RowTable
from alight._src.run import evaluate
from alight.backends import registry
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from alight.errors import AlightError
from cost_profiles import plan_by

SIM = ["cpu", "sim:0"]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the host the simulated device's figures, ten times as slow, and no copies."""
    made = recorded("cpu", DEFAULT_SPEC)
    rates = dict.fromkeys(("numpy", "generated"), made.rates["generated"])
    plan_by(monkeypatch, replace(made, rates=rates, links={}))
    forget(Cache.PLANS)
    yield
    forget(Cache.PLANS)


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    plan_by(monkeypatch, None)
    forget(Cache.PLANS)
    yield
    forget(Cache.PLANS)


def chain(x: Any) -> Any:
    return np.sqrt(x * x + 1.0).sum()


def row(rows: RowTable, device: str, implementation: str = "") -> dict[str, Any]:
    (found,) = [r for r in rows if (r["device"], r["implementation"]) == (device, implementation)]
    return found


def test_every_device_and_implementation_is_estimated_by_term(known: None) -> None:
    x = np.ones((300, 300))
    with alight.policy(devices=SIM):
        rows = alight.estimate(chain, x)
    assert [(r["device"], r["implementation"]) for r in rows] == [
        ("planned", ""), ("cpu", "numpy"), ("cpu", "generated"), ("sim:0", "generated"),
        ("sim:0", "library"),
    ]  # fmt: skip
    for one in rows:
        assert one["seconds"] == pytest.approx(sum(one["terms"].values()))
        assert one["low"] <= one["seconds"] <= one["high"]
    there = row(rows, "sim:0", "generated")
    assert there["places"] == {"sim:0:generated": 1}
    link = DEFAULT_SPEC["links"]["upload"]
    upload = link["latency"]["value"] + x.nbytes / link["bandwidth"]["value"]
    assert there["terms"]["upload"] == pytest.approx(upload, rel=0.05)
    assert row(rows, "cpu", "numpy")["terms"]["upload"] == 0
    least = min(r["seconds"] for r in rows[1:])
    assert rows[0]["seconds"] <= least * (1 + 1e-9)
    assert "planned" in str(rows) and "upload" in str(rows)


def test_nothing_is_computed_and_nothing_is_written(known: None) -> None:
    def writes(x: Any, out: Any) -> Any:
        out += 1.0
        return x * 2.0

    x, out, ours = np.ones(4000), np.zeros(4000), alight.asarray(np.ones(4000))
    before = evaluate.requests.count
    alight.estimate(writes, x, out)
    alight.estimate(writes, ours, ours)
    assert evaluate.requests.count == before
    assert not out.any() and np.asarray(ours).all() and float(ours[0]) == 1.0
    (request,) = requests_of(writes, (x, out), {})
    assert len(request.graph.outputs) == 2


def test_what_a_body_asks_for_on_the_way_counts(known: None) -> None:
    def branches(x: Any) -> Any:
        return x * 2.0 if (x + 1.0).sum() > 0 else x

    x = np.ones(4000)
    requests = requests_of(branches, (x,), {})
    assert [[n.op.name for n in r.graph.nodes] for r in requests] == [
        ["add", "sum", "greater"], ["multiply"],
    ] or len(requests) == 2  # fmt: skip
    whole = alight.estimate(alight.jit(branches), x)[0]
    assert sum(whole["places"].values()) >= 2


def test_the_fastest_device_is_the_one_with_the_least_seconds(
    known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with alight.policy(devices=SIM):
        here = np.ones(1000)
        assert alight.fastest_device(chain, here) == "cpu"

        def long(x: Any) -> Any:
            for _ in range(40):
                x = np.cumsum(np.sin(x))
            return x.sum()

        slow = planner_facts.profile_of(registry.device("cpu"))
        assert slow is not None
        own = slow.rates["numpy"]
        work = {n: replace(m, value=m.value * 100) for n, m in own.work.items()}
        rates = dict.fromkeys(("numpy", "generated"), replace(own, work=work))
        plan_by(monkeypatch, replace(slow, rates=rates))
        assert alight.fastest_device(long, np.ones(300_000)) == "sim:0"


def test_without_figures_nothing_is_called_the_fastest(unknown: None) -> None:
    x = np.ones(4000)
    rows = alight.estimate(chain, x)
    assert {r["seconds"] for r in rows} == {None}
    assert all("not measured: " in r["reason"] for r in rows)
    with pytest.raises(AlightError, match=r"no allowed device has figures.*Fix: `alight calib"):
        alight.fastest_device(chain, x)


@pytest.mark.parametrize(
    "name", ["device_report", "estimate", "explain", "fastest_device", "fusion_report"]
)
def test_what_is_no_function_is_told_how_to_ask(known: None, name: str) -> None:
    with pytest.raises(TypeError, match=rf"type ndarray. Fix: write alight\.{name}\(f, x\) "):
        getattr(alight, name)(np.sqrt(np.ones(3)))


def test_where_nothing_is_placed_nothing_is_to_be_calibrated(known: None) -> None:
    for of_nothing in (lambda x: x, lambda x: 3):
        with pytest.raises(
            AlightError, match=r"nothing of this call is placed.*Fix: ask of a call"
        ):
            alight.fastest_device(of_nothing, np.ones(3))


def test_a_device_says_what_blocks_it(known: None) -> None:
    registry.device("sim:0")  # it exists once it was named
    rows = alight.device_report(lambda x: np.sqrt(x) + 1, np.ones(4000, complex))
    sim = next(r for r in rows if r["device"] == "sim:0")
    assert sim["available"] and not sim["allowed"] and sim["supported"].startswith("0 of")
    assert sim["blocked"] == ["used only when it is named", "sim:0 has no complex128"]
    cpu = next(r for r in rows if r["device"] == "cpu")
    assert cpu["blocked"] == [] and cpu["supported"] == "1 of 1"
    assert cpu["seconds"] is not None and cpu["profile"].startswith("recorded")
    for name, reason in registry.absences().items():
        absent = next(r for r in rows if r["device"] == name)
        assert not absent["available"] and absent["blocked"] == [reason]


def test_a_device_without_a_profile_says_so(unknown: None) -> None:
    cpu = alight.device_report(chain, np.ones(4000))[0]
    assert cpu["device"] == "cpu" and "no profile. Fix: `alight calibrate`" in cpu["blocked"]


def test_fusions_have_their_benefit_by_term_and_refusals_a_reason(known: None) -> None:
    def mixed(x: Any) -> Any:
        y = np.sqrt(x * x + 1.0)
        return np.sort(y + y, axis=0) - x

    with alight.policy(force="cpu:generated"):
        rows = alight.fusion_report(mixed, np.ones((200, 200)))
    made = [r for r in rows if r["fused"]]
    assert [r["operation"] for r in made] == ["multiply+add+sqrt+add"]
    (one,) = made
    assert one["parts"] == ["multiply", "add", "sqrt", "add"]
    assert one["parts_seconds"] - one["seconds"] == pytest.approx(sum(one["benefit"].values()))
    assert one["benefit"]["launch"] > 0 and one["benefit"]["memory"] > 0
    refused = [r["reason"] for r in rows if not r["fused"]]
    assert refused == ["sort runs alone", "sort runs alone"]
    assert "sort runs alone" in str(rows)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(
    "name", ["explain", "estimate", "fastest_device", "device_report", "fusion_report"]
)
def test_a_call_without_what_the_function_takes_is_told_how_to_be_written(
    name: str, jitted: bool, known: None
) -> None:
    def area(width: Any, height: Any) -> Any:
        return width * height

    ask, function = getattr(alight, name), alight.jit(area) if jitted else area
    told = rf"alight.{name}: .*'height'.* Fix: write alight.{name}\(area, x\)"
    with pytest.raises(TypeError, match=told):
        ask(function, np.ones(3))

    @functools.wraps(area)
    def square(width: Any) -> Any:
        return area(width, width)

    ask(square, np.ones(3))  # says what area takes, and takes less


@pytest.mark.parametrize(
    "name", ["explain", "estimate", "fastest_device", "device_report", "fusion_report"]
)
def test_a_call_is_judged_by_making_it(name: str, known: None) -> None:
    """A decorator may supply what the signature that it shows asks for, and the function's own
    errors are its own."""

    def inner(x: Any, k: float) -> Any:
        return x * k

    def scale(x: Any) -> Any:
        return inner(x, 2.0)

    vars(scale)["__signature__"] = inspect.signature(inner)
    ask = getattr(alight, name)
    ask(scale, np.ones(3))

    def wrong(x: Any) -> Any:
        return inner(x)  # type: ignore[call-arg]

    vars(wrong)["__signature__"] = inspect.signature(inner)
    with pytest.raises(TypeError, match=r"inner\(\) missing .*'k'$"):
        ask(wrong, np.ones(3))
    with pytest.raises(TypeError, match=r"inner\(\) missing .*'k'$"):
        ask(alight.jit(wrong), np.ones(3))


def test_what_a_call_lacks_is_told_without_the_defaults(known: None) -> None:
    many = np.arange(1000)

    def filtered(x: Any, by: Any, edge: Any = many, *, how: str = "same") -> Any:
        return x

    told = r"it is filtered\(x, by, edge=…, \*, how=…\): missing a required argument: 'by'\. Fix"
    with pytest.raises(TypeError, match=told):
        alight.explain(filtered, np.ones(3))
