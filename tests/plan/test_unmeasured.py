"""What nobody measured is no loser, and no guess is trusted with the program's data: decisions from
profiles alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from alight._core import make_layout
from alight._src.ir.graph import Graph
from alight._src.measure import probes
from alight._src.plan.cost import Profile, estimate
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Decision, Estimate, Facts, Source
from alight._src.plan.prior import copy_prior_seconds, prior
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from alight.device import Device, Reason
from graphs import Builder
from plan_facts import CPU, GPU, launches

CARD = replace(
    GPU, id="cuda:0", space="cuda:0", name="NVIDIA H100 80GB HBM3", memory_bytes=80 << 30
)


def _times(spec: Any, share: float) -> Any:
    """Return what a spec says, of a device with so much of its rates."""
    return {
        name: {"value": found["value"] * share, **{k: v for k, v in found.items() if k != "value"}}
        if "value" in found
        else _times(found, share)
        for name, found in spec.items()
    }


RATES = ("memory", "flops", "special")
HOST_SPEC: Any = {
    **DEFAULT_SPEC,
    **_times({name: DEFAULT_SPEC[name] for name in RATES}, 0.01),  # type: ignore[literal-required]
}
HOST_PROFILE = recorded("cpu", HOST_SPEC)
HOST_PROFILE = replace(HOST_PROFILE, rates={"numpy": HOST_PROFILE.rates["library"]})
CARD_PROFILE = replace(recorded("sim:0", DEFAULT_SPEC), device="cuda:0", origin="measured")
PCIE = 2e10  # bytes a second


def without(profile: Profile, *implementations: str) -> Profile:
    return replace(
        profile, rates={n: r for n, r in profile.rates.items() if n not in implementations}
    )


def facts(held: str, host: Profile | None, card: Profile | None) -> Facts:
    """Return what is known of arrays that lie somewhere, by these profiles."""
    known = {p.device: p for p in (host, card) if p is not None}

    def seconds(group: object, device: str, implementation: str) -> Estimate | None:
        where = CARD if device == CARD.id else CPU
        return estimate(group, where, implementation, known.get(device))  # type: ignore[arg-type]

    return Facts(
        devices=(CPU, CARD),
        profiles=known,
        residency=(frozenset((held,)),) * 3,
        estimate=seconds,
        copy_seconds=lambda a, b, nbytes: 1e-5 + nbytes / PCIE,
    )


def rows(n: int = 1 << 22) -> Graph:
    """Return log-sum-exp of rows."""
    b = Builder(make_layout(np.dtype("float64"), (n // 256, 256)))
    return b.graph(b.add("log", b.reduce("sum", b.add("exp", 0), (1,))))


def product(side: int) -> Graph:
    square = make_layout(np.dtype("float32"), (side, side))
    b = Builder(square, square)
    return b.graph(b.add("matmul", 0, 1, layout=square))


def decisions(graph: Graph, known: Facts) -> list[Decision]:
    return [step.decision for step in launches(make_plan(graph, known))]


@pytest.mark.parametrize("host", [None, HOST_PROFILE])
@pytest.mark.parametrize("card", [None, CARD_PROFILE, without(CARD_PROFILE, "library")])
def test_what_lies_on_an_open_device_stays_there(
    host: Profile | None, card: Profile | None
) -> None:
    for graph in (rows(), product(2048)):
        found = decisions(graph, facts("cuda:0", host, card))
        assert {one.chosen for one in found} == {"cuda:0"}, found


@pytest.mark.parametrize("card", [None, CARD_PROFILE])
def test_without_any_figures_of_either_the_hosts_arrays_stay_numpys(card: Profile | None) -> None:
    small = rows(1 << 10)
    for one in decisions(small, facts("host", None, card)):
        assert (one.chosen, one.reason) == ("cpu", Reason.UNCALIBRATED)
    if card is None:  # nothing was measured: however large
        assert {one.chosen for one in decisions(rows(), facts("host", None, card))} == {"cpu"}


def test_a_host_that_was_not_measured_keeps_no_device_out() -> None:
    """A product of 8192 takes the quickest of hosts seconds, and the card 30 ms with its copies."""
    (found,) = decisions(product(8192), facts("host", None, CARD_PROFILE))
    assert found.chosen == "cuda:0"


def test_a_product_that_the_library_was_not_measured_for_is_the_librarys() -> None:
    card = without(CARD_PROFILE, "library")
    (found,) = decisions(product(4096), facts("cuda:0", HOST_PROFILE, card))
    assert (found.chosen, found.implementation) == ("cuda:0", "library")
    own = next(c for c in found.candidates if c.implementation == "library" and c.device != "cpu")
    assert own.estimate is not None and own.estimate.source is Source.PRIOR


def test_forced_onto_a_card_too_products_are_the_librarys() -> None:
    for card in (None, without(CARD_PROFILE, "library")):
        known = replace(facts("cuda:0", HOST_PROFILE, card), force=("cuda:0", None))
        (found,) = decisions(product(4096), known)
        assert (found.implementation, found.reason) == ("library", Reason.PINNED)


def test_a_guess_takes_data_only_if_its_worst_beats_the_best_that_is_known() -> None:
    """Of the card nothing is known but its name."""
    (large,) = decisions(product(8192), facts("cuda:0", HOST_PROFILE, None))
    assert large.chosen == "cuda:0"
    b = Builder(make_layout(np.dtype("float64"), (1 << 14,)))
    (small,) = decisions(b.graph(b.add("negative", 0)), facts("host", HOST_PROFILE, None))
    assert small.chosen == "cpu"
    others = [c for c in small.candidates if c.device == "cuda:0"]
    assert others and all(c.reason is Reason.UNCALIBRATED for c in others)
    for c in others:  # it says what is guessed, and by what
        assert c.estimate is not None and c.estimate.source is Source.VENDOR
        assert c.detail.startswith("vendor table: ")


def test_every_candidate_has_an_estimate_or_a_reason_of_its_own() -> None:
    for host in (None, HOST_PROFILE):
        for card in (None, CARD_PROFILE):
            for graph in (rows(), product(512)):
                for found in decisions(graph, facts("cuda:0", host, card)):
                    for c in found.candidates:
                        no_rival = (c.device, c.implementation) == ("cpu", "generated")
                        assert c.estimate is not None or c.detail or no_rival


def test_intervals_widen_with_the_distance_from_what_was_measured() -> None:
    group = probes.loop("multiply", "float64", 1 << 20)

    def width(found: Estimate | None) -> float:
        assert found is not None and found.low < found.seconds < found.high
        return found.high / found.low

    measured = estimate(group, CARD, "generated", CARD_PROFILE)
    by_rates = prior(group, CARD, "generated", CARD_PROFILE)
    by_name = prior(group, CARD, "generated", None)
    assert (by_rates.source, by_name.source) == (Source.PRIOR, Source.VENDOR)
    assert width(measured) < width(by_rates) < width(by_name)
    assert measured is not None and by_rates.low < measured.seconds < by_rates.high


@pytest.mark.parametrize(
    ("group", "least", "most"),
    [
        (probes.product("float32", 4096), 1e-3, 5e-2),
        (probes.product("float64", 1024), 3e-5, 2e-3),
        (probes.loop("add", "float32", 1 << 26), 1e-4, 2e-3),
    ],
)
def test_a_table_is_right_to_an_order_of_magnitude(
    group: object, least: float, most: float
) -> None:
    """cuBLAS takes 2.7 ms for the first on an H100."""
    found = prior(group, CARD, "library", None)  # type: ignore[arg-type]
    assert least < found.seconds < most


def test_solves_and_sorts_are_counted_and_nothing_else_stands_for_them() -> None:
    square = make_layout(np.dtype("float64"), (2000, 2000))
    b = Builder(square, square)
    graph = b.graph(b.add("linalg.solve", 0, 1, layout=square))
    (step,) = launches(make_plan(graph, facts("cuda:0", HOST_PROFILE, CARD_PROFILE)))
    assert step.device == "cuda:0"
    library = CARD_PROFILE.rates["library"]
    curves = {key: curve for key, curve in library.curves.items() if "other" not in key}
    card = replace(CARD_PROFILE, rates={"library": replace(library, curves=curves)})
    found = estimate(step.group, CARD, "library", card)
    assert found is not None and found.source is Source.PRIOR and found.seconds > 1e-4


def test_a_copy_that_was_not_measured_is_not_free() -> None:
    assert copy_prior_seconds(CARD, 1 << 30) > 1e-2
    assert copy_prior_seconds(replace(CARD, unified_memory=True), 1 << 30) == 0.0
    unknown: Device = replace(CARD, name="a card of tomorrow")
    assert copy_prior_seconds(unknown, 4) > 0.0
