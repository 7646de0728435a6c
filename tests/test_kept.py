"""What calibrations keep for the next one: undisturbed samples, by whom they are taken up, and when
they are passed over. Visits take made-up seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alight.backends.host import HostBackend
from alight.measure import calibrate as calibration
from alight.measure import kept, probes, profiles, timing
from alight.measure.calibrate import Calibration, calibrate
from alight.measure.kept import Kept
from alight.measure.points import points_of
from alight.measure.products import LEAST
from alight.measure.profiles import load_profile
from alight.measure.samples import Samples
from alight.measure.timing import Pace
from alight.plan.curve import Measured
from alight.store import Store

BACKEND = HostBackend()
(HOST,) = BACKEND.probe().devices
QUICK, SLOW = 10e-6, 15e-6
NUMPY = [p for p in points_of(HOST) if p.implementation == "numpy" and p.amount < 1e5]
CURVE = [p for p in NUMPY if p.key == "elementwise/float64"]
OTHERS = [p for p in NUMPY if p.key.startswith("sqrt")]
POINTS = [*CURVE, *OTHERS]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    found = Store(tmp_path)
    for module in (profiles, kept):
        monkeypatch.setattr(module, "default_store", lambda: found)
    return found


class World:
    """A machine on which a visit takes 1 ms, and every call ``seconds``."""

    def __init__(self) -> None:
        self.pace, self.seconds, self.visits = QUICK, 1e-5, 0

    def visit(self, *_: Any) -> list[float]:
        self.visits += 1
        return [self.seconds, self.seconds]


@pytest.fixture
def world(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    found = World()
    monkeypatch.setattr(calibration, "points_of", lambda device: POINTS)
    monkeypatch.setattr(calibration, "unseen", lambda device: ())
    monkeypatch.setattr(calibration, "time_threads", lambda limit: {})
    monkeypatch.setattr(probes.Bench, "visit", lambda bench, *given: found.visit(*given))
    monkeypatch.setattr(Pace, "_reading", lambda pace: found.pace)
    monkeypatch.setattr(Calibration, "spent", lambda run: 1e-3 * found.visits)
    # what other work does while this runs is not asked here
    monkeypatch.setattr("alight.measure.findings.contention", lambda *given: "")
    monkeypatch.setattr(profiles, "known_pace", lambda device: math.inf)
    yield found


def measured(world: World, visits: float, **given: Any) -> Any:
    """Return the profile of a calibration that has time for so many visits."""
    world.visits = 0
    (found,) = calibrate(1e-3 * visits / calibration.REPEAT_SHARE, [(BACKEND, HOST)], **given)
    return found


def known() -> set[tuple[str, float]]:
    found = kept.load(HOST)
    assert found is not None
    return {(key, n) for of in found.timings.values() for key, points in of.items() for n in points}


def test_a_calibration_goes_on_from_where_the_last_one_stopped(world: World) -> None:
    half = len(POINTS) // 2
    first = measured(world, half)
    began = known()
    assert half / 2 < len(began) < len(POINTS) and not first.complete
    second = measured(world, 4 * len(POINTS))
    assert known() >= {(p.key, p.amount) for p in POINTS}
    assert second.complete and second.made_seconds > first.made_seconds
    found = kept.load(HOST)
    assert found is not None and found.seconds == pytest.approx(second.made_seconds)
    # what the first knew was looked at again, after what it did not know
    samples = [s for of in found.timings["numpy"].values() for s in of.values()]
    assert min(map(len, samples)) >= 4 and max(map(len, samples)) <= kept._MOST_SAMPLES


def test_what_is_known_is_not_visited_before_what_is_not(world: World) -> None:
    measured(world, len(POINTS) // 2)
    before = known()
    order: list[tuple[str, float]] = []
    visit = Calibration._visit

    def visits(run: Any, point: Any, launch: Any) -> list[float]:
        order.append((point.key, point.amount))
        return visit(run, point, launch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Calibration, "_visit", visits)
        measured(world, 4 * len(POINTS))
    unknown = [(p.key, p.amount) for p in POINTS if (p.key, p.amount) not in before]
    firsts = list(dict.fromkeys(order))
    assert firsts[: len(unknown)] == unknown and set(firsts) >= before


def test_what_disagrees_with_what_was_kept_begins_anew(world: World) -> None:
    measured(world, 4 * len(POINTS))
    world.seconds *= 1.2  # as profiles differ
    assert measured(world, 4 * len(POINTS)).made_seconds > 5e-3 * len(POINTS)
    since = kept.load(HOST)
    world.seconds *= 2.0
    profile = measured(world, 4 * len(POINTS))
    now = kept.load(HOST)
    assert since is not None and now is not None and now.since > since.since
    assert profile.rates["numpy"].curves["elementwise/float64"].seconds_at(1) == 2.4e-5
    assert min(s for of in now.timings["numpy"].values() for n in of.values() for s in n) == 2.4e-5


def test_slow_moments_are_not_kept_and_quicker_ones_begin_anew(world: World) -> None:
    world.pace = SLOW  # as nobody knows better
    measured(world, 4 * len(POINTS))
    slow = kept.load(HOST)
    assert slow is not None and slow.pace_seconds == SLOW
    world.pace = QUICK
    measured(world, 4 * len(POINTS))
    quick = kept.load(HOST)
    assert quick is not None and quick.since > slow.since and quick.pace_seconds == QUICK
    world.pace, world.seconds = SLOW, 2e-5
    measured(world, 4 * len(POINTS))
    assert kept.load(HOST) == quick  # all of it was slow
    measured(world, 4 * len(POINTS), fresh=True)
    found = kept.load(HOST)
    assert found is not None and (found.pace_seconds, found.since > quick.since) == (SLOW, True)


def test_what_is_not_stored_keeps_nothing_and_takes_up_nothing(world: World) -> None:
    measured(world, 4 * len(POINTS), store=False)
    assert kept.load(HOST) is None
    measured(world, 4 * len(POINTS))
    world.seconds *= 2
    profile = measured(world, 4 * len(POINTS), store=False)
    assert profile.rates["numpy"].curves["elementwise/float64"].seconds_at(1) == 2e-5


def test_other_work_that_shows_keeps_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alight.measure.findings.contention", lambda *given: "two visits")
    assert measured(world, 4 * len(POINTS)).contended
    assert kept.load(HOST) is None and load_profile(HOST) is None


def test_what_compiling_takes_is_that_of_the_most_kernels(world: World) -> None:
    measured(world, 4 * len(POINTS))
    found = kept.load(HOST)
    assert found is not None
    kernel = Measured(0.02, "seconds", 0.01, 0.03, 5, "probe")
    kept.keep(HOST, replace(found, compiled=9, one_offs={"kernel": kernel}))
    assert measured(world, 4 * len(POINTS)).one_offs["kernel"] == kernel
    again = kept.load(HOST)
    assert again is not None and (again.compiled, again.one_offs["kernel"]) == (9, kernel)


def a_kept(**fields: Any) -> Kept:
    now = time.time()
    return replace(
        Kept(now - 60, now, 1.0, QUICK, timings={"numpy": {"a/f": {1.0: [1e-6]}}}), **fields
    )


def test_a_kept_document_comes_back_and_ages(store: Store) -> None:
    assert kept.load(HOST) is None
    kept.keep(HOST, found := a_kept(pace_seconds=math.inf))
    assert kept.load(HOST) == found
    kept.keep(HOST, a_kept(at=time.time() - 31 * 86400.0))
    assert kept.load(HOST) is None
    kept.keep(HOST, found)
    kept.forget(HOST)
    assert kept.load(HOST) is None


def test_what_others_found_meanwhile_is_joined_if_it_went_on_from_the_same(store: Store) -> None:
    one = a_kept()
    kept.keep(HOST, one)
    kept.keep(HOST, replace(one, timings={"numpy": {"a/f": {2.0: [2e-6]}, "b/f": {1.0: [3e-6]}}}))
    found = kept.load(HOST)
    assert found is not None
    assert found.timings == {"numpy": {"a/f": {1.0: [1e-6], 2.0: [2e-6]}, "b/f": {1.0: [3e-6]}}}
    kept.keep(HOST, other := a_kept(since=one.since + 1, timings={}))
    assert kept.load(HOST) == other


@pytest.mark.parametrize(
    "change",
    [
        {"timings": {"numpy": {"a/f": [[1.0, [0.0]]]}}},
        {"timings": {"numpy": {"a/f": [[1.0, [math.inf]]]}}},
        {"timings": {"numpy": {"a/f": [[-1.0, [1.0]]]}}},
        {"timings": {"numpy": [1]}},
        {"timings": None},
        {"seconds": "five"},
        {"pace_seconds": True},
        {"one_offs": {"kernel": {"value": 1.0}}},
        {"since": None},
    ],
)
def test_what_nobody_can_have_kept_is_put_aside_with_a_warning(
    store: Store, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    kept.keep(HOST, a_kept())
    (path,) = (path for path in Path(store._folder).glob("timings/*.json"))
    key = path.stem
    document = store.read(kept.KIND, key)
    assert document is not None
    store.write(kept.KIND, key, {**document, **change})
    assert kept.load(HOST) is None
    assert "Fix:" in caplog.text
    assert not path.exists() and list(path.parent.glob("*.bad"))
    kept.keep(HOST, a_kept())
    assert kept.load(HOST) is not None


def test_products_of_slow_moments_are_left_out_where_enough_others_are_left() -> None:
    products = [
        p for p in points_of(HOST) if (p.implementation, p.key) == ("numpy", "matmul/float64")
    ]
    run = Calibration(BACKEND, HOST)
    samples = run.found.samples["numpy"] = Samples("numpy", 8192)
    for number, point in enumerate(products):
        samples.add(point.key, point.amount, point.group, [1e-5], number < LEAST)
        run.found.points.append(point)
    assert len(run.found._sound()["numpy"].by_key["matmul/float64"]) == LEAST
    samples.by_key["matmul/float64"][products[0].amount].steady = False
    assert len(run.found._sound()["numpy"].by_key["matmul/float64"]) == len(products)


def test_what_slow_moments_took_is_no_sign_that_the_rest_was_disturbed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was met in one is looked at again first, and then takes half as long, as it should."""
    monkeypatch.setattr("alight.measure.findings.contention", timing.contention)
    visit = world.visit

    def visits(*given: Any) -> list[float]:
        world.pace = SLOW if 2 < world.visits < len(POINTS) else QUICK
        world.seconds = 2e-5 if world.pace == SLOW else 1e-5
        return visit(*given)

    monkeypatch.setattr(probes.Bench, "visit", lambda bench, *given: visits(*given))
    profile = measured(world, 2 * len(POINTS))
    assert not profile.contended, profile.doubts
    # what cannot be seen does show
    repeat = Calibration._repeat

    def repeats(run: Any) -> Iterator[str]:
        world.seconds = 2e-5
        yield from repeat(run)

    monkeypatch.setattr(Calibration, "_repeat", repeats)
    monkeypatch.setattr(probes.Bench, "visit", lambda bench, *given: visit(*given))
    world.pace, world.seconds = QUICK, 1e-5
    other = measured(world, 3 * len(POINTS), store=False)
    assert other.contended and "two visits of one thing" in other.doubts[0]
