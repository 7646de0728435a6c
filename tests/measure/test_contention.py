"""What is kept of a calibration: what other work disturbed is not, what predicts badly is, and says
so, until there is a better one."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.adapt import lazy_devices, recalibrate
from alight._src.adapt.lazy_devices import standing
from alight._src.base.cache_registry import Cache, forget
from alight._src.bench.calibration import measured
from alight._src.cli import doctor
from alight._src.cli.commands import main
from alight._src.config.policy import Policy
from alight._src.explain import calibration_text
from alight._src.explain.report import report
from alight._src.explain.tables_data import profile_row
from alight._src.explain.text_tables import remarks
from alight._src.measure import calibrate as calibrate_module
from alight._src.measure import device_calibration, findings, probes, profiles
from alight._src.measure.device_calibration import Calibration
from alight._src.measure.dtype_points import Point
from alight._src.measure.intervals import far_off, spreads_of
from alight._src.measure.points import points_of
from alight._src.measure.profiles import (
    Refused,
    fingerprint,
    load_profile,
    note_refused,
    passed_over,
    save_profile,
)
from alight._src.measure.samples import Samples
from alight._src.measure.sizes import VITAL
from alight._src.plan.cost import Profile, estimate
from alight._src.store import Store
from alight.backends.host import HostBackend
from alight.backends.machine import ENVIRONMENT
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from cost_profiles import plan_by
from own_store import own_store

(HOST,) = HostBackend().probe().devices


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with own_store(tmp_path) as found:
        yield found


def test_a_class_that_is_far_off_is_told_apart() -> None:
    assert far_off([0.2, -0.18, 0.25, 0.02, 0.9]) is None
    assert far_off([0.02] * 20, [2.0, -3.0]) is None  # two have no median
    assert far_off([], []) is None
    # products of 60 us that took 8 ms, a slice of the scheduler's
    assert far_off([3.0, -4.0, 2.0, 0.1], [0.02] * 60) == 2.5


def test_the_interval_of_a_class_that_is_far_off_is_as_wide_as_that() -> None:
    errors = {"numpy": {"elementwise": [0.02] * 40, "fused": [2.0, -3.0, 2.5, 1.0]}}
    spreads = spreads_of(errors, {})["numpy"]
    assert 1.2815515655446004 * spreads["fused"] >= 2.25  # however sure of all the others
    assert spreads["elementwise"] < 0.2


def _calibration() -> Calibration:
    """Return a calibration that has measured additions and products on a clock without noise."""
    backend = HostBackend()
    (host,) = backend.probe().devices
    run = Calibration(backend, host)
    samples = run.found.samples["numpy"] = Samples("numpy", 8192)
    for n in (16, 1 << 12, 1 << 20):
        samples.add("elementwise/float64", n, probes.loop("add", "float64", n), [1e-6 + 1e-9 * n])
    for number, (m, k, n) in enumerate(itertools.product((16, 64, 256), repeat=3)):
        group = probes.product("float64", m, k, n)
        samples.add("matmul/float64", number, group, [1e-6 + 1e-10 * m * k * n])
    return run


def test_poor_predictions_are_no_contention_but_make_a_profile_rough() -> None:
    run = _calibration()
    run.found.errors = {"numpy": {"elementwise": [0.02] * 5, "reduce": [-0.03] * 5}}
    made = run.profile()
    assert (made.contended, made.rough) == (False, False)
    run.found.errors = {"numpy": {"elementwise": [0.4, -0.36, 0.5, 0.02, 0.6], "reduce": [0.9] * 5}}
    made = run.profile()
    assert (made.contended, made.rough) == (False, True) and not made.doubts
    assert made.rates["numpy"].spreads["reduce_inner"] > 0.5  # and says so of what it predicts
    run.found.errors = {"numpy": {"elementwise": [0.9] * 3}}
    assert not run.profile().rough  # three have no median
    # what shows other work is no matter of predictions
    run.found.errors = {"numpy": {"elementwise": [0.02] * 5}}
    run.found.elapsed, run.found.worked = 2.0, 1.0
    made = run.profile()
    assert made.contended and "a processor for 50%" in made.doubts[0]


def test_products_that_are_far_off_are_left_out_and_nothing_else_is() -> None:
    run = _calibration()
    assert run.profile().rates["numpy"].surfaces
    for missed in ([0.02] * 5, [3.0, -4.0, 2.0, 0.1]):
        run.found.errors = {"numpy": {"elementwise": [0.02] * 15, "matmul": missed}}
        made = run.profile()
        assert not made.contended and not made.rough and made.rates["numpy"].curves
        wrong = missed[0] > 1
        assert (not made.rates["numpy"].surfaces) is wrong
        assert ("left_out_numpy" in made.validation) is wrong
        found = estimate(probes.product("float64", 100, 100, 100), "cpu", "library", made)
        assert (found is None) is wrong  # NumPy's then, as what nobody measured


def test_threads_that_lose_their_processor_disturb_nothing_that_one_thread_runs() -> None:
    run = _calibration()
    sums, products = run.found.samples["numpy"].by_key.values()
    for key, found in (("matmul/float64", products), ("elementwise/float64", sums)):
        for amount, sample in found.items():
            point: Any = Point("numpy", key, amount, sample.group)
            run.found.points.append(point)
            sample.steady = False
    assert run.found.slow_share() == 1.0 and run.profile().contended
    for sample in sums.values():
        sample.steady = True
    assert run.found.slow_share() == 0.0
    made = run.profile()
    assert not made.contended and made.rates["numpy"].surfaces


@pytest.mark.parametrize(("budget", "quick"), [(60.0, True), (1e-9, False)])
def test_what_is_ready_in_a_slow_moment_is_measured_in_a_quick_one(
    budget: float, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 8 if quick else VITAL * len(HOST.support.implementations)  # without time no others

    def few(device: Any) -> Any:
        points = [p for p in points_of(device) if p.implementation == "numpy"]
        found = [p for p in points if p.key == "elementwise/float64"][:count]
        return [replace(point, coarse=not quick) for point in found]

    monkeypatch.setattr(device_calibration, "points_of", few)
    run = Calibration(HostBackend(), HOST, budget)
    asked = iter([False] * 5)
    run.pace.steady = lambda: next(asked, quick)  # type: ignore[method-assign]
    assert len(list(itertools.islice(run.steps(), count))) == count
    assert [point.amount for point in run.found.points] == [p.amount for p in few(HOST)]
    assert {run.found.sample(point).steady for point in run.found.points} == {quick}


def test_products_wait_once_for_the_threads_that_they_leave_spinning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A library's threads spin for 128 ms after each, in which all else is slow."""
    monkeypatch.setattr(findings, "thread_count", lambda: 2)
    monkeypatch.setattr(device_calibration, "switches", lambda: 0)
    run = Calibration(HostBackend(), HOST, 60.0)
    slow = waits = 0
    visit = run._visit

    def visited(point: Point, launch: Any) -> list[float]:
        nonlocal slow
        found = visit(point, launch)
        slow = 5 if run._spins(point) else slow
        return found

    def steady() -> bool:
        nonlocal slow, waits
        waits += slow == 1
        slow = max(slow - 1, 0)
        return not slow

    monkeypatch.setattr(Calibration, "_visit", lambda run, *visited_: visited(*visited_))
    run.pace.steady = steady  # type: ignore[method-assign]
    # beside these threads the processor was slow for a while
    quick = itertools.chain([True] * 12, [False] * 6, itertools.repeat(True))
    run._beside.met = 1e-5
    run._beside.awaited = lambda seconds: next(quick)  # type: ignore[method-assign]
    monkeypatch.setattr(device_calibration, "SPIN_SECONDS", 60.0)
    some = [point for point in points_of(HOST) if point.implementation == "numpy"]
    wanted = ("matmul/float64", "matmul/int64", "dot/float64", "elementwise/float64")
    few = [point for point in some if point.key in wanted and point.amount < 1e6]
    few = [replace(point, coarse=False) for point in few]
    few.sort(key=lambda point: not point.key.startswith("elementwise"))
    few.append(few.pop(VITAL))  # an addition, which has to wait for the threads of those before
    monkeypatch.setattr(device_calibration, "points_of", lambda device: few)
    assert len(list(itertools.islice(run.steps(), len(few)))) == len(few)
    products = [run.found.sample(point) for point in few if run._spins(point)]
    assert len(products) > 20 and waits == 1
    assert 1 <= [product.steady for product in products].count(False) <= 6


def test_a_calibration_without_a_quick_moment_leaves_time_for_what_it_has_made_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Calibration(HostBackend(), HOST, 60.0)
    run.pace.steady = lambda: False  # type: ignore[method-assign]
    finer = [point for point in points_of(HOST) if not point.coarse]
    monkeypatch.setattr(device_calibration, "points_of", lambda device: finer)
    spent = itertools.count(0.0, 1.0)
    monkeypatch.setattr(Calibration, "spent", lambda run: next(spent))
    monkeypatch.setattr(device_calibration, "_VISIT_SECONDS", 2.0)
    waiting = []
    visit = Calibration._first_visit

    def visited(run: Calibration, point: Point, launch: Any) -> str:
        waiting.append(len(run._waiting))
        return visit(run, point, launch)

    monkeypatch.setattr(Calibration, "_first_visit", visited)
    next(run.steps())
    # a point takes three questions, of a second each, and is taken to be visited in two more: of
    # the 44 seconds 20 are left for the ten of which the first is visited
    assert waiting[0] == 9


def test_what_is_coarse_waits_no_longer_than_it_is_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Calibration(HostBackend(), HOST, 60.0)
    run.pace.steady = lambda: False  # type: ignore[method-assign]
    spent = itertools.count(0.0, 0.01)
    monkeypatch.setattr(Calibration, "spent", lambda run: next(spent))
    coarse = [p for p in points_of(HOST) if p.coarse and p.implementation == "numpy"]
    monkeypatch.setattr(device_calibration, "points_of", lambda device: coarse)
    monkeypatch.setattr(Calibration, "_visit", lambda run, point, launch: None)
    for _ in coarse:
        next(run.steps())
        break
    assert next(spent) < device_calibration._COARSE_SECONDS


def test_what_was_met_in_slow_moments_alone_is_left_out_where_the_rest_is_enough() -> None:
    run = _calibration()
    sums = run.found.samples["numpy"].by_key["elementwise/float64"]
    for n in (64, 1 << 10, 1 << 15, 1 << 17, 1 << 18):
        run.found.samples["numpy"].add(
            "elementwise/float64", n, probes.loop("add", "float64", n), [2e-6 + 2e-9 * n], False
        )
    for amount, sample in sums.items():
        point: Any = Point("numpy", "elementwise/float64", amount, sample.group)
        run.found.points.append(point)
    assert run.found.slow_share() == 5 / 8
    made = run.profile()
    assert not made.contended and made.validation["slow"] == 5 / 8
    assert any("62% of what one thread runs" in line for line in remarks(profile_row(made)))
    assert len(made.rates["numpy"].curves["elementwise/float64"].knots) == 3
    for end in (16, 1 << 20):  # what is between its ends says nothing of them
        sums[end].steady = False
        made = run.profile()
        assert made.contended and "slow moments" in made.doubts[0]
        sums[end].steady = True
    assert not run.profile().contended


def profile(store: Store, made_at: float, error: float | None, **fields: Any) -> Profile:
    """Store a profile whose predictions are so far off, and return what is stored then."""
    found = {} if error is None else {"shapes": 9.0, "median_error": error}
    made = replace(
        recorded("cpu", DEFAULT_SPEC),
        **{"origin": "measured", "fingerprint": fingerprint(HOST), "validation": found, **fields},
        made_at=made_at,
    )
    stored = save_profile(made)
    kept = load_profile(HOST)
    assert kept is not None
    assert (stored.path is not None) == (kept.made_at == made_at)  # it says what became of it
    return kept


@pytest.mark.parametrize(
    ("before", "after", "replaced"),
    [
        ((0.05, True), (0.07, True), True),  # both are good: the newer one
        ((0.05, True), (0.45, True), False),
        ((0.05, False), (0.45, True), False),
        ((0.45, True), (0.05, False), True),
        ((0.45, True), (0.55, True), False),  # both are rough: the better one
        ((0.55, True), (0.45, True), True),
        ((0.45, True), (0.35, False), False),
        ((0.45, True), (None, True), False),  # nobody knows how far off that is
        ((None, True), (0.45, True), True),
    ],
)
def test_a_profile_is_replaced_by_one_that_is_no_worse(
    store: Store,
    before: tuple[float | None, bool],
    after: tuple[float | None, bool],
    replaced: bool,
) -> None:
    now = time.time()
    assert profile(store, now - 60, before[0], complete=before[1]).made_at == now - 60
    found = profile(store, now, after[0], complete=after[1])
    assert (found.made_at == now) is replaced


@pytest.mark.parametrize(
    ("before", "after", "replaced"),
    [
        (0.0, 0.6, False),
        (0.6, 0.0, True),
        (0.6, 0.7, False),
        (0.7, 0.6, True),
        (0.6, 0.6, True),  # as much: the newer one
    ],
)
def test_what_a_profile_leaves_out_is_stored_and_counts_when_the_next_is_compared(
    store: Store, before: float, after: float, replaced: bool
) -> None:
    now = time.time()
    for made_at, slow in ((now - 60, before), (now, after)):
        known = {"shapes": 9.0, "median_error": 0.05} | ({"slow": slow} if slow else {})
        kept = profile(store, made_at, None, validation=known)
    assert (kept.made_at == now) is replaced
    assert kept.validation.get("slow", 0.0) == (after if replaced else before)
    assert any("slow moments" in line for line in remarks(profile_row(kept))) is (
        kept.validation.get("slow", 0.0) > 0.0
    )


def test_what_is_old_or_of_another_version_or_imported_keeps_nobody_out(store: Store) -> None:
    now = time.time()
    profile(store, now - 40 * 24 * 3600, 0.05)
    assert profile(store, now - 9, 0.45).made_at == now - 9
    assert profile(store, now - 8, None, origin="imported").made_at == now - 8
    assert profile(store, now - 7, 0.45).made_at == now - 7
    other = {**fingerprint(HOST), "numpy": "another"}
    assert profile(store, now - 6, 0.05, fingerprint=other).made_at == now - 6
    assert profile(store, now - 5, 0.45).made_at == now - 5


def test_a_profile_made_under_other_settings_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(ENVIRONMENT, "OPENBLAS_CORETYPE", raising=False)  # whatever it is here
    assert passed_over(HOST) == ""
    profile(store, time.time(), 0.05)
    assert passed_over(HOST) == ""  # it is used
    monkeypatch.setitem(ENVIRONMENT, "OPENBLAS_CORETYPE", "Haswell")
    assert load_profile(HOST) is None
    told = passed_over(HOST)
    # others of its kind may stand beside it
    assert re.search(r"OPENBLAS_CORETYPE=Haswell[^']*' here", told), told
    assert told.count("OPENBLAS_CORETYPE") == 1
    forget(Cache.PROFILES)
    assert f"uncalibrated (a profile is not used: {told})" in str(report())


def test_other_devices_and_other_machines_are_no_other_settings(store: Store) -> None:
    here = fingerprint(HOST)
    for name in ("device", "device_fingerprint", "cpu", "schema"):
        made = replace(
            recorded("cpu", DEFAULT_SPEC),
            **{"origin": "measured", "made_at": 1.0, "fingerprint": {**here, name: "another"}},
        )
        save_profile(made)
    assert passed_over(HOST) == ""
    store.write("profile", "nonsense", {"fingerprint": 3, "made_at": None})
    assert passed_over(HOST) == ""


def test_what_to_know_of_a_profile_is_told_in_words() -> None:
    made = replace(
        recorded("cpu", DEFAULT_SPEC),
        validation={"shapes": 9.0, "median_error": 0.45, "measured": 0.6, "left_out_numpy": 3.0},
        complete=False,
        made_seconds=5.0,
    )
    told = remarks(profile_row(made))
    assert "rough: predictions are off by 45% in the median" in told[0]
    assert "too short for all of it: 5 s, 60% of it was measured" in told[1]
    assert "Fix: `alight calibrate --seconds 9`, or more" in told[1]
    assert "numpy: matrix products are left out, as they were off by 300%" in told[2]
    assert not remarks(profile_row(replace(made, validation={}, complete=True)))
    untried = replace(made, validation={}, complete=True, origin="measured")
    (line,) = remarks(profile_row(untried))
    assert "too short to try what it predicts: 5 s" in line
    disturbed = replace(made, contended=True, doubts=("it was busy",))
    first, *others = remarks(profile_row(disturbed))
    assert first.startswith("other work disturbed the measuring, and intervals are as wide as that")
    assert first.endswith(": it was busy. Fix: `alight calibrate`, which goes on from there")
    assert others == told


def test_the_commands_say_that_a_profile_is_rough_and_which_one_holds(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time()
    made = profile(store, now - 9, 0.45)
    main(["devices"])
    assert (
        "cpu's profile: rough: predictions are off by 45% in the median" in capsys.readouterr().out
    )
    worse = replace(made, made_at=now, path=None, validation={"shapes": 9.0, "median_error": 0.6})
    monkeypatch.setattr(calibration_text, "measure", lambda *a, **k: [save_profile(worse)])
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", "cpu"])
    told = capsys.readouterr().out
    assert ended.value.code == 0  # nothing disturbed it
    assert "not stored: the profile before holds more and is used on" in told
    assert "  rough: predictions are off by 60% in the median" in told


def test_the_bench_is_told_what_the_command_prints(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = profile(store, time.time() - 9, 0.02)
    busy = replace(quiet, path=None, contended=True, doubts=("it was busy",))
    for made in (quiet, busy):
        monkeypatch.setattr(calibration_text, "measure", lambda *a, made=made, **k: [made])
        (found,) = measured(["cpu"], 1.0)
        assert (found["device"], found["again"]) == ("cpu", made is busy)
        with pytest.raises(SystemExit) as ended:
            main(["calibrate", "cpu"])
        assert capsys.readouterr().out == found["text"] + "\n"
        assert ended.value.code == 0
    assert "other work disturbed the measuring, and intervals are as wide as that" in found["text"]


@pytest.mark.parametrize("contended", [False, True])
def test_what_is_measured_at_exit_is_kept_and_tried_again_where_other_work_disturbed_it(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    contended: bool,
) -> None:
    """Who was disturbed leaves the machine alone for a while, and has a profile all the same."""
    made = replace(
        recorded("cpu", DEFAULT_SPEC),
        **{"origin": "measured", "fingerprint": fingerprint(HOST), "made_at": time.time()},
        validation={"shapes": 9.0, "median_error": 0.45},
        contended=contended,
        doubts=("it was busy",) if contended else (),
    )
    monkeypatch.setattr(calibrate_module, "calibrate", lambda *a, **k: [save_profile(made)])
    with caplog.at_level("INFO", "alight"):
        recalibrate._measure_at_exit("cpu")
    assert (
        "other work disturbed what was measured of cpu (it was busy)" in caplog.text
    ) is contended
    assert "off by 45 % in the median" in caplog.text
    kinds = {entry.kind for entry in store.entries()}
    assert kinds == ({"attempt", "profile"} if contended else {"profile"})


@pytest.mark.parametrize("over", [False, True])
def test_while_measuring_is_put_off_nothing_is_loaded_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    loaded: list[str] = []

    class Calibrate(ModuleType):
        def __getattr__(self, name: str) -> Any:
            loaded.append(name)
            raise AttributeError(name)

    monkeypatch.setitem(sys.modules, "alight._src.measure.calibrate", Calibrate("calibrate"))
    note_refused(HOST, Refused(time.time(), -1.0 if over else 1e9, "it was busy"))
    recalibrate._measure_at_exit("cpu")
    assert ("calibrate" in loaded) is over


def test_who_has_no_profile_is_told_that_measuring_was_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_by(monkeypatch, None)
    alight.reset()
    fix = "`alight calibrate cpu` when the machine is quiet"
    refused = "was disturbed by other work (it was busy)"
    assert "disturbed" not in (before := standing(HOST, Policy()).why)
    assert before.endswith("Fix: `alight calibrate cpu`")
    for wait, again in ((20.0, "at the earliest"), (-1.0, "at the next end")):
        note_refused(HOST, Refused(time.time(), wait, "it was busy"))
        told = standing(HOST, Policy()).why
        assert refused in told and again in told and fix in told
    for text in (alight.report().explanation(), str(alight.report())):
        assert f"cpu: {told[:20]}" in text and refused in text and fix in text
    assert alight.report().explanation().startswith("no decisions:")
    rows = alight.device_report(np.sqrt, np.ones(3))
    (blocked,) = [reason for reason in rows[0]["blocked"] if reason.startswith("no profile: ")]
    assert refused in blocked and "Fix: " in blocked
    assert refused in doctor.text(doctor.findings())
    read: list[Any] = []
    known = profiles.refused
    monkeypatch.setattr(profiles, "refused", lambda device: read.append(device) or known(device))
    assert refused in standing(HOST, Policy()).why and len(read) == 1
    monkeypatch.setattr(lazy_devices, "_refusal", lambda last: "it came to nothing")
    assert "it came to nothing" in alight.report().explanation()  # however it is worded


def test_what_measuring_found_no_time_for_was_not_refused_and_is_forgotten_on_success(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    enough: dict[str, Any] = {"measured": 0.5, "shapes": 9.0, "median_error": 0.1}
    some, most = (
        replace(
            recorded("cpu", DEFAULT_SPEC),
            **{"origin": "measured", "fingerprint": fingerprint(HOST), "made_at": now},
            complete=False,
            validation=validation,
        )
        for validation in (enough | {"measured": 0.07}, enough)
    )
    for found in (some, most):
        monkeypatch.setattr(
            calibrate_module, "calibrate", lambda *a, found=found, **k: [save_profile(found)]
        )
        recalibrate._measure_at_exit("cpu")
        store.remove("profile")  # as once it is too old
        forget(Cache.PROFILES)
        told = standing(HOST, Policy()).why
        assert "refused" not in told and "other work" not in told
        assert ("ago, found time for little of it, and is tried again in" in told) is (
            found is some
        )
        attempts = [entry for entry in store.entries() if entry.kind == "attempt"]
        assert len(attempts) == (found is some)
        if found is some:
            note_refused(HOST, Refused(now, -1.0, ""))  # it was long ago


def test_a_profile_of_little_is_bettered_by_a_later_program(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked, made = time.time(), list[str](), list[float]()

    def calibrate(*_: Any, **__: Any) -> list[Profile]:
        made.append(0.07)
        short = {"measured": made[-1], "shapes": 9.0, "median_error": 0.1}
        return [profile(store, now - 5, 0.1, complete=False, validation=short)]

    monkeypatch.setattr(recalibrate, "measure_when_over", asked.append)
    monkeypatch.setattr(calibrate_module, "calibrate", calibrate)
    recalibrate._measure_at_exit("cpu")
    (found,) = [found for found in [load_profile(HOST)] if found is not None]
    forget(Cache.PROFILES)
    recalibrate.measure_later([HOST])
    assert found.little and asked == ["cpu"]
    recalibrate._measure_at_exit("cpu")
    assert len(made) == 1  # not at every program's end
    # More takes its place and holds: less does not, and nobody asks for more.
    more = {"measured": 0.24, "shapes": 9.0, "median_error": 0.1}
    assert profile(store, now - 4, 0.1, complete=False, validation=more).made_at == now - 4
    less = more | {"measured": 0.07}
    assert profile(store, now - 3, 0.1, complete=False, validation=less).made_at == now - 4
    again = more | {"measured": 0.23}
    assert profile(store, now - 2, 0.1, complete=False, validation=again).made_at == now - 2
    forget(Cache.PROFILES)
    recalibrate.measure_later([HOST])
    assert asked == ["cpu"]


def test_calibrations_begin_anew_where_they_are_asked_to(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[bool] = []
    quiet = profile(store, time.time() - 9, 0.02)

    def measured(*_: Any, fresh: bool, **__: Any) -> list[Profile]:
        asked.append(fresh)
        return [quiet]

    monkeypatch.setattr(calibration_text, "measure", measured)
    for arguments in (["calibrate", "cpu"], ["calibrate", "cpu", "--fresh"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
    assert asked == [False, True]
    (file := tmp_path / "profile.json").write_text("{}")
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", "--fresh", "--from", str(file)])
    assert ended.value.code == 2
    assert "--fresh measures and --from does not. Fix:" in capsys.readouterr().err
