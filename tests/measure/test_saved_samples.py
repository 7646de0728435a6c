"""What calibrations keep for the next one: undisturbed samples, by whom they are taken up, and when
they are passed over. Visits take made-up seconds."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alight._src.explain.tables_data import profile_row
from alight._src.explain.text_tables import remarks
from alight._src.measure import calibrate as calibrate_module
from alight._src.measure import (
    device_calibration,
    findings,
    probe_bench,
    profiles,
    saved_samples,
    timing,
)
from alight._src.measure.calibrate import calibrate
from alight._src.measure.device_calibration import Calibration
from alight._src.measure.gemm_fit import LEAST
from alight._src.measure.points import points_of
from alight._src.measure.profiles import load_profile, save_profile
from alight._src.measure.samples import Samples
from alight._src.measure.saved_samples import Kept
from alight._src.measure.timing import Pace
from alight._src.plan.curve import Measured
from alight._src.store import Store
from alight.backends.host import HostBackend
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from own_store import own_store

BACKEND = HostBackend()
(HOST,) = BACKEND.probe().devices
QUICK, SLOW = 10e-6, 15e-6
NUMPY = [p for p in points_of(HOST) if p.implementation == "numpy" and p.amount < 1e5]
CURVE = [p for p in NUMPY if p.key == "elementwise/float64"]
OTHERS = [p for p in NUMPY if p.key.startswith("sqrt")]
POINTS = [*CURVE, *OTHERS]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with own_store(tmp_path) as found:
        yield found


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
    monkeypatch.setattr(device_calibration, "points_of", lambda device: POINTS)
    monkeypatch.setattr(device_calibration, "unseen", lambda device: ())
    monkeypatch.setattr(device_calibration, "time_threads", lambda limit: {})
    monkeypatch.setattr(probe_bench.Bench, "visit", lambda bench, *given: found.visit(*given))
    monkeypatch.setattr(Pace, "_reading", lambda pace: found.pace)
    monkeypatch.setattr(Calibration, "spent", lambda run: 1e-3 * found.visits)
    # what other work does while this runs is not asked here
    monkeypatch.setattr("alight._src.measure.findings.contention", lambda *given: "")
    monkeypatch.setattr(calibrate_module, "known_pace", lambda device: math.inf)
    yield found


def measured(world: World, visits: float, **given: Any) -> Any:
    """Return the profile of a calibration that has time for so many visits."""
    world.visits = 0
    (found,) = calibrate(
        1e-3 * visits / device_calibration.REPEAT_SHARE, [(BACKEND, HOST)], **given
    )
    return found


def known() -> set[tuple[str, float]]:
    found = saved_samples.load(HOST)
    assert found is not None
    return {(key, n) for of in found.timings.values() for key, points in of.items() for n in points}


def test_a_calibration_goes_on_from_where_the_last_one_stopped(world: World) -> None:
    half = len(POINTS) // 2
    first = measured(world, half)
    began = known()
    assert half / 2 < len(began) < len(POINTS) and not first.complete
    second = measured(world, 4 * len(POINTS))
    assert known() >= {(p.key, p.amount) for p in POINTS}
    assert second.complete and second.share == 1.0 > first.share
    found = saved_samples.load(HOST)
    assert found is not None
    # what the first knew was looked at again, after what it did not know
    samples = [s for of in found.timings["numpy"].values() for s in of.values()]
    assert min(map(len, samples)) >= 4


def origins(profile: Any) -> tuple[float, float]:
    return profile.validation["before"], profile.validation["new"]


def test_a_profile_says_how_many_points_were_known_before(world: World) -> None:
    first = measured(world, len(POINTS) // 2)
    began = len(known())
    assert origins(first) == (0.0, began)
    (told,) = remarks(profile_row(first))
    assert "too short for all of it" in told
    assert told.endswith("Fix: `alight calibrate`, which goes on from there")
    second = measured(world, 4 * len(POINTS))
    found = saved_samples.load(HOST)
    assert found is not None and origins(second) == (began, found.count - began)
    # all points were reached, thanks to those of before: nothing asks for more seconds
    assert second.complete and "--seconds" not in "".join(remarks(profile_row(second)))
    assert origins(measured(world, 4 * len(POINTS), store=False))[0] == 0.0
    world.seconds *= 2.0  # so that what was kept is passed over
    assert origins(measured(world, 4 * len(POINTS)))[0] == 0.0


def test_what_turns_out_to_be_slow_and_is_measured_anew_is_not_from_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pace = SLOW
    measured(world, 4 * len(POINTS))
    visit = world.visit

    def visits(*given: Any) -> list[float]:
        world.pace = QUICK if world.visits > len(CURVE) + 3 else SLOW
        return visit(*given)

    monkeypatch.setattr(probe_bench.Bench, "visit", lambda bench, *given: visits(*given))
    few = measured(world, len(CURVE) + 20)
    assert few.complete and 0 < origins(few)[0] < len(POINTS)
    world.pace = SLOW
    assert origins(measured(world, 4 * len(POINTS), fresh=True))[0] == 0.0


@pytest.mark.parametrize(
    ("fields", "goes_on", "told"),
    [
        ({"measured": 0.2, "before": 0.0, "new": 9.0}, True, "`alight calibrate --seconds 20`, or"),
        ({"measured": 0.2, "before": 0.0, "new": 9.0}, False, "calibrate --seconds 25`, or more"),
        ({"measured": 0.6, "before": 0.0, "new": 9.0}, True, "`alight calibrate`, which goes on"),
        ({"measured": 0.7, "before": 8.0, "new": 1.0}, True, "`alight calibrate`, which goes on"),
        ({"measured": 0.2}, True, "calibrate --seconds 25`, or more"),  # of an older version
        ({"before": 8.0, "new": 1.0}, True, "`alight calibrate`, which goes on"),  # interrupted
        ({"before": 8.0, "new": 1.0}, False, "`alight calibrate --seconds` with more"),
    ],
)
def test_what_the_next_calibration_takes_is_said_by_what_was_kept(
    fields: dict[str, float], goes_on: bool, told: str
) -> None:
    made = replace(recorded("cpu", DEFAULT_SPEC), origin="measured", validation=fields)
    row = profile_row(replace(made, made_seconds=5.0, complete=False))
    (found,) = remarks(row, goes_on)
    assert "too short for all of it: 5 s" in found and told in found
    # nothing was kept by these versions
    (found,) = remarks(row | {"origin": "imported"}, goes_on)
    assert "goes on" not in found
    # interrupted once all points were reached
    last = row | {"validation": {"measured": 1.0, "before": 9.0, "new": 0.0, "shapes": 9.0}}
    assert remarks(last) == []


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
    since = saved_samples.load(HOST)
    measured(world, 4 * len(POINTS))
    same = saved_samples.load(HOST)
    assert since is not None and same is not None and same.since == since.since
    world.seconds *= 2.0
    profile = measured(world, 4 * len(POINTS))
    now = saved_samples.load(HOST)
    assert since is not None and now is not None and now.since > since.since
    assert profile.rates["numpy"].curves["elementwise/float64"].seconds_at(1) == 2.4e-5
    assert min(s for of in now.timings["numpy"].values() for n in of.values() for s in n) == 2.4e-5


def test_slow_moments_are_not_kept_and_quicker_ones_begin_anew(world: World) -> None:
    world.pace = SLOW  # as nobody knows better
    measured(world, 4 * len(POINTS))
    slow = saved_samples.load(HOST)
    assert slow is not None and slow.pace_seconds == SLOW
    world.pace = QUICK
    measured(world, 4 * len(POINTS))
    quick = saved_samples.load(HOST)
    assert quick is not None and quick.since > slow.since and quick.pace_seconds == QUICK
    world.pace, world.seconds = SLOW, 2e-5
    measured(world, 4 * len(POINTS))
    assert saved_samples.load(HOST) == quick  # all of it was slow
    measured(world, 4 * len(POINTS), fresh=True)
    found = saved_samples.load(HOST)
    assert found is not None and (found.pace_seconds, found.since > quick.since) == (SLOW, True)


def test_what_is_not_stored_keeps_nothing_and_takes_up_nothing(world: World) -> None:
    measured(world, 4 * len(POINTS), store=False)
    assert saved_samples.load(HOST) is None
    measured(world, 4 * len(POINTS))
    world.seconds *= 2
    profile = measured(world, 4 * len(POINTS), store=False)
    assert profile.rates["numpy"].curves["elementwise/float64"].seconds_at(1) == 2e-5


def test_other_work_that_shows_makes_intervals_wide_and_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = measured(world, 4 * len(POINTS), store=False)
    monkeypatch.setattr("alight._src.measure.findings.contention", lambda *given: "two visits")
    monkeypatch.setattr("alight._src.measure.findings.noise", lambda *given: math.log(2.0))
    found = measured(world, len(POINTS) // 2)
    assert found.contended and load_profile(HOST) is not None
    sure = quiet.rates["numpy"].spread
    assert found.rates["numpy"].spread == pytest.approx(math.hypot(sure, math.log(2.0)))
    began = known()
    again = measured(world, 4 * len(POINTS))
    assert known() > began and load_profile(HOST).made_at == again.made_at  # type: ignore[union-attr]
    # what was known before was not met in those moments
    assert sure < again.rates["numpy"].spread < found.rates["numpy"].spread


def test_what_was_met_in_slow_moments_alone_is_known_and_met_again_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate_module, "known_pace", lambda device: QUICK)
    world.pace, world.seconds = SLOW, 2e-5
    first = measured(world, len(POINTS) // 2)
    found = saved_samples.load(HOST)
    assert found is not None and found.count >= len(POINTS) // 2 - 1 and not known()
    second = measured(world, 4 * len(POINTS))
    assert second.covered == 1.0 > first.covered
    assert load_profile(HOST).made_at == second.made_at  # type: ignore[union-attr]
    world.pace, world.seconds = QUICK, 1e-5
    third = measured(world, 4 * len(POINTS))
    assert known() >= {(p.key, p.amount) for p in POINTS}
    assert third.rates["numpy"].curves["elementwise/float64"].seconds_at(1) == 1e-5


def test_calibrations_with_next_to_no_time_refine_one_profile(world: World) -> None:
    covered, counts = [], []
    for _ in range(len(POINTS)):
        measured(world, len(POINTS) // 5)
        covered.append(load_profile(HOST).covered)  # type: ignore[union-attr]
        counts.append(len(known()))
    assert covered == sorted(covered) and covered[0] < covered[-1] == 1.0
    assert counts == sorted(counts) and counts[0] < counts[1] < len(POINTS) <= counts[-1]


def test_what_compiling_takes_is_that_of_the_most_kernels(world: World) -> None:
    measured(world, 4 * len(POINTS))
    found = saved_samples.load(HOST)
    assert found is not None
    kernel = Measured(0.02, "seconds", 0.01, 0.03, 5, "probe")
    saved_samples.keep(HOST, replace(found, compiled=9, one_offs={"kernel": kernel}))
    assert measured(world, 4 * len(POINTS)).one_offs["kernel"] == kernel
    again = saved_samples.load(HOST)
    assert again is not None and (again.compiled, again.one_offs["kernel"]) == (9, kernel)


def test_what_other_work_shows_otherwise_forgets_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(world, 4 * len(POINTS))
    before = saved_samples.load(HOST)
    monkeypatch.setattr("alight._src.measure.findings.contention", lambda *given: "it was busy")
    assert measured(world, 4 * len(POINTS)).contended
    after = saved_samples.load(HOST)
    assert after is not None and before is not None and after.since == before.since
    assert {**after.timings["numpy"]}.keys() == {**before.timings["numpy"]}.keys()


def test_a_profile_that_holds_more_needs_no_tries(store: Store) -> None:
    now = time.time()
    tried = {"shapes": 9.0, "median_error": 0.05}
    made = replace(
        recorded("cpu", DEFAULT_SPEC), origin="measured", fingerprint=profiles.fingerprint(HOST)
    )
    save_profile(replace(made, made_at=now - 9, validation={**tried, "measured": 0.27}))
    for share, stored in ((0.27, now - 9), (0.5, now)):
        save_profile(replace(made, made_at=now, validation={"measured": share}))
        found = load_profile(HOST)
        assert found is not None and found.made_at == stored


def a_kept(**fields: Any) -> Kept:
    one = {"numpy": {"a/f": {1.0: [1e-6]}}}
    return replace(Kept(time.time() - 60, pace_seconds=QUICK, timings=one), **fields)


def test_a_kept_document_comes_back_and_ages(store: Store) -> None:
    assert saved_samples.load(HOST) is None
    saved_samples.keep(HOST, found := a_kept(pace_seconds=math.inf))
    assert saved_samples.load(HOST) == found
    for since in (time.time() - 31 * 86400.0, time.time() + 3600.0):
        store.clear()
        saved_samples.keep(HOST, a_kept(since=since))
        assert saved_samples.load(HOST) is None


def test_what_others_found_meanwhile_is_joined_unless_one_began_anew(store: Store) -> None:
    one = a_kept()
    saved_samples.keep(HOST, one)
    other = replace(one, timings={"numpy": {"a/f": {2.0: [2e-6]}, "b/f": {1.0: [3e-6]}}})
    saved_samples.keep(HOST, other)
    found = saved_samples.load(HOST)
    both = {"numpy": {"a/f": {1.0: [1e-6], 2.0: [2e-6]}, "b/f": {1.0: [3e-6]}}}
    assert found is not None and found.timings == both
    # what began beside it, with nothing, knows less
    saved_samples.keep(HOST, a_kept(since=one.since + 1))
    found = saved_samples.load(HOST)
    assert found is not None and (found.since, found.timings) == (one.since, both)
    # who began anew does not want what was there, nor what others go on with
    saved_samples.keep(HOST, anew := a_kept(since=one.since + 2, anew=True))
    assert saved_samples.load(HOST) == anew
    saved_samples.keep(HOST, other)
    assert saved_samples.load(HOST) == anew
    saved_samples.keep(HOST, replace(anew, timings={"numpy": {"c/f": {1.0: [4e-6]}}}))
    found = saved_samples.load(HOST)
    assert found is not None and set(found.timings["numpy"]) == {"a/f", "c/f"}


def test_what_other_code_kept_is_passed_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    saved_samples.keep(HOST, a_kept())
    monkeypatch.setattr(saved_samples, "code_fingerprint", lambda *given: "other")
    assert saved_samples.load(HOST) is None
    saved_samples.keep(HOST, other := a_kept(timings={"numpy": {"b/f": {1.0: [1e-6]}}}))
    assert saved_samples.load(HOST) == other
    assert len(list(Path(store._folder).glob("timings/*.json"))) == 1


def test_an_interrupt_keeps_what_there_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    visit = world.visit

    def visits(*given: Any) -> list[float]:
        if world.visits == 7:
            raise KeyboardInterrupt
        return visit(*given)

    monkeypatch.setattr(probe_bench.Bench, "visit", lambda bench, *given: visits(*given))
    with pytest.raises(KeyboardInterrupt):
        measured(world, 4 * len(POINTS))
    assert 5 <= len(known()) <= 7


def test_products_before_the_processor_turned_out_quicker_are_slow_and_not_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = [p for p in NUMPY if p.key == "matmul/float64"][:16]
    monkeypatch.setattr(device_calibration, "points_of", lambda device: [*CURVE, *products])
    monkeypatch.setattr(findings, "thread_count", lambda: 2)
    monkeypatch.setattr(device_calibration, "switches", lambda: 0)
    monkeypatch.setattr(device_calibration, "SPIN_SECONDS", 60.0)
    run = Calibration(BACKEND, HOST, 60.0)
    taken = 0
    visit = Calibration._visit

    def visits(run: Any, point: Any, launch: Any) -> Any:
        nonlocal taken
        taken += point.key == "matmul/float64"
        world.pace = SLOW if 0 < taken < 5 else QUICK
        return visit(run, point, launch)

    monkeypatch.setattr(Calibration, "_visit", visits)
    monkeypatch.setattr(run.pace, "_best", QUICK)
    for _ in itertools.islice(run.steps(), len(CURVE) + len(products)):
        pass
    steady = [run.found.sample(p).steady for p in run.found.points if p in products]
    assert steady.count(False) == 4 and len(steady) == len(products)  # the fifth told
    found = run.to_keep()
    assert found is not None and found.anew
    assert len(found.timings["numpy"]["matmul/float64"]) == len(products) - 4


@pytest.mark.parametrize(
    "change",
    [
        {"timings": {"numpy": {"a/f": [[1.0, [0.0]]]}}},
        {"timings": {"numpy": {"a/f": [[1.0, [math.inf]]]}}},
        {"timings": {"numpy": {"a/f": [[-1.0, [1.0]]]}}},
        {"timings": {"numpy": [1]}},
        {"timings": None},
        {"pace_seconds": True},
        {"one_offs": {"kernel": {"value": 1.0}}},
        {"one_offs": {"kernel": Measured(-1.0, "seconds", 1.0, 1.0, 1, "probe").to_dict()}},
        {"since": None},
    ],
)
def test_what_nobody_can_have_kept_is_put_aside_with_a_warning(
    store: Store, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    saved_samples.keep(HOST, a_kept())
    (path,) = (path for path in Path(store._folder).glob("timings/*.json"))
    key = path.stem
    document = store.read(saved_samples.KIND, key)
    assert document is not None
    store.write(saved_samples.KIND, key, {**document, **change})
    assert saved_samples.load(HOST) is None
    assert "Fix:" in caplog.text
    assert not path.exists() and list(path.parent.glob("*.bad"))
    saved_samples.keep(HOST, a_kept())
    assert saved_samples.load(HOST) is not None


def test_products_of_slow_moments_are_left_out_where_enough_others_are_left() -> None:
    products = [
        p for p in points_of(HOST) if (p.implementation, p.key) == ("numpy", "matmul/float64")
    ]
    run = Calibration(BACKEND, HOST)
    samples = run.found.samples["numpy"] = Samples("numpy", 8192)
    largest = max(p.amount for p in products)
    for number, point in enumerate(products):
        steady = number % 3 > 0 or point.amount == largest
        samples.add(point.key, point.amount, point.group, [1e-5], steady)
        run.found.points.append(point)
    found = samples.by_key["matmul/float64"]
    slow = [sample for sample in found.values() if not sample.steady]
    sound = run.found._sound()
    assert len(sound["numpy"].by_key["matmul/float64"]) == len(products) - len(slow)
    assert run.found._left_out(sound) == pytest.approx(len(slow) / len(products))
    # not without the largest, nor by fewer than half of them, nor by too few for a surface
    found[largest].steady = False
    assert len(run.found._sound()["numpy"].by_key["matmul/float64"]) == len(products)
    found[largest].steady = True
    quick = [s for s in found.values() if s.steady and s.amount < largest]
    for sample in quick[: len(products) // 4]:
        sample.steady = False
    assert len(run.found._sound()["numpy"].by_key["matmul/float64"]) == len(products)
    few = sorted(found)[-LEAST:]
    samples.by_key["matmul/float64"] = {n: replace(found[n], steady=n > few[0]) for n in few}
    run.found.points[:] = [point for point in products if point.amount in few]
    assert len(run.found._sound()["numpy"].by_key["matmul/float64"]) == LEAST


def test_what_slow_moments_took_is_no_sign_that_the_rest_was_disturbed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was met in one is looked at again first, and then takes half as long, as it should."""
    monkeypatch.setattr("alight._src.measure.findings.contention", timing.contention)
    visit = world.visit

    def visits(*given: Any) -> list[float]:
        world.pace = SLOW if 2 < world.visits < len(POINTS) else QUICK
        world.seconds = 2e-5 if world.pace == SLOW else 1e-5
        return visit(*given)

    monkeypatch.setattr(probe_bench.Bench, "visit", lambda bench, *given: visits(*given))
    profile = measured(world, 2 * len(POINTS))
    assert not profile.contended, profile.doubts
    # what cannot be seen does show
    repeat = Calibration._repeat

    def repeats(run: Any) -> Iterator[str]:
        world.seconds = 2e-5
        yield from repeat(run)

    monkeypatch.setattr(Calibration, "_repeat", repeats)
    monkeypatch.setattr(probe_bench.Bench, "visit", lambda bench, *given: visit(*given))
    world.pace, world.seconds = QUICK, 1e-5
    other = measured(world, 3 * len(POINTS), store=False)
    assert other.contended and "two visits of one thing" in other.doubts[0]
