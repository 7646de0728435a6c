"""The processor's pace: slow moments that outlast a calibration are told by what is known of it,
and a profile that was made in them gives way to one that was not."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alight._src.adapt import recalibrate
from alight._src.base.cache_registry import Cache, forget
from alight._src.cli.commands import main
from alight._src.cli.doctor import stored_profiles
from alight._src.explain.calibration_text import take_over
from alight._src.explain.tables_data import profile_row
from alight._src.measure import calibrate as calibrate_module
from alight._src.measure import device_calibration, timing
from alight._src.measure.bounds import profile_of_document
from alight._src.measure.calibrate import calibrate
from alight._src.measure.points import points_of
from alight._src.measure.profiles import (
    Refused,
    fingerprint,
    known_pace,
    load_profile,
    note_refused,
    refused,
    save_profile,
)
from alight._src.measure.timing import Pace, outpaces
from alight._src.plan.cost import Profile
from alight._src.store import Store
from alight.backends.host import HostBackend
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from own_store import own_store
from ratchets import closure

(HOST,) = HostBackend().probe().devices
# What the processor takes in quick moments and in slow ones.
QUICK, SLOW = 10e-6, 15e-6
GOOD = {"shapes": 9.0, "median_error": 0.05}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with own_store(tmp_path) as found:
        yield found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have paces read these seconds, the last ones ever after."""

    def reads(*seconds: float) -> None:
        left = list(seconds)
        monkeypatch.setattr(
            Pace, "_reading", lambda pace: left.pop(0) if len(left) > 1 else left[0]
        )

    return reads


def made(pace: float | None, ago: float = 60.0, **fields: Any) -> Profile:
    """Return a profile of this host that was made at a pace."""
    return replace(
        recorded("cpu", DEFAULT_SPEC),
        **{"origin": "measured", "fingerprint": fingerprint(HOST), "validation": GOOD, **fields},
        made_at=time.time() - ago,
        pace_seconds=pace,
    )


def stored() -> Profile:
    found = load_profile(HOST)
    assert found is not None
    return found


def test_a_pace_that_is_known_tells_slow_moments_from_the_first_on(
    read: Callable[..., None],
) -> None:
    pace = Pace(QUICK)
    assert (pace.met, pace.behind()) == (math.inf, 1.0)
    read(SLOW, 1.3 * QUICK, SLOW, 0.7 * QUICK)
    assert not pace.steady() and not pace.quicker
    assert (pace.met, pace.behind()) == (SLOW, SLOW / QUICK)
    assert pace.steady() and pace.behind() == 1.0  # that may be its clock
    assert not pace.steady() and pace.met == 1.3 * QUICK
    assert pace.steady() and pace.quicker and pace.met == 0.7 * QUICK
    read(SLOW)
    assert Pace().steady()  # as nobody knows better


def test_who_does_not_know_a_pace_outpaces_nothing() -> None:
    assert outpaces(QUICK, SLOW) and not outpaces(SLOW, QUICK) and not outpaces(QUICK, 1.3 * QUICK)
    for one, other in ((None, SLOW), (QUICK, None), (QUICK, math.inf), (math.inf, math.inf)):
        assert not outpaces(one, other)


def test_a_profile_keeps_its_pace_and_is_one_without(store: Store) -> None:
    document = made(QUICK).to_dict()
    assert profile_of_document(json.loads(json.dumps(document))).pace_seconds == QUICK
    assert profile_row(made(QUICK))["pace_seconds"] == QUICK
    del document["pace_seconds"]  # as in older ones
    assert profile_of_document(document).pace_seconds is None
    for wrong in (0.0, -1.0, 1e9, "quick", True):
        with pytest.raises(ValueError, match=r"pace takes .*Fix:"):
            profile_of_document({**document, "pace_seconds": wrong})


def test_who_looks_at_a_slow_profile_is_told(
    store: Store, read: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    told = "the processor was 1.50 times as slow as now when it was measured. Fix: `alight cal"
    for seconds, before in ((QUICK, SLOW), (SLOW, SLOW), (SLOW, QUICK), (QUICK, None)):
        slow = (seconds, before) == (QUICK, SLOW)
        save_profile(made(before, 40 * 24 * 3600.0))
        read(seconds)
        doubts = stored_profiles([HOST])["cpu"].doubts
        assert "30 days" in doubts[0] and (told in doubts[-1]) is slow  # and all else as before
        main(["devices"])
        assert (told in capsys.readouterr().out) is slow


def test_an_imported_profile_holds_at_any_pace(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(made(SLOW).to_dict()))
    take_over(path, HOST)
    assert (stored().origin, stored().pace_seconds) == ("imported", None)


def test_a_pace_is_measured_of_the_host_and_of_nothing_else(
    store: Store, read: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    read(QUICK)
    run = device_calibration.Calibration(HostBackend(), HOST)
    assert run.profile().pace_seconds is None
    run._steady()
    assert run.profile().pace_seconds == QUICK
    card = device_calibration.Calibration(HostBackend(), replace(HOST, id="card", space="card"))
    card._steady()
    assert card.profile().pace_seconds is None
    save_profile(made(QUICK))
    assert known_pace(HOST) == QUICK and known_pace(card.device) == math.inf


@pytest.mark.parametrize(
    ("fields", "known"),
    [
        ({}, True),
        ({"complete": False}, True),
        ({"pace": None}, False),
        ({"ago": 40 * 24 * 3600.0}, False),
        ({"validation": {}}, False),
        ({"validation": {**GOOD, "median_error": 0.5}}, False),
        ({"validation": {**GOOD, "measured": 0.05}, "complete": False}, False),
    ],
)
def test_a_pace_is_known_as_long_as_there_is_a_profile_to_go_on_with(
    store: Store, fields: dict[str, Any], known: bool
) -> None:
    assert known_pace(HOST) == math.inf
    save_profile(made(**{"pace": QUICK, **fields}))
    assert known_pace(HOST) == (QUICK if known else math.inf)


def test_what_is_measured_at_a_slower_pace_than_the_profile_before_is_not_stored(
    store: Store, read: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def few(device: Any) -> Any:
        points = [p for p in points_of(device) if p.key == "elementwise/float64"]
        return [p for p in points if p.implementation == "numpy" and p.amount < 1e5][:8]

    monkeypatch.setattr(device_calibration, "points_of", few)
    monkeypatch.setattr(device_calibration, "unseen", lambda device: ())
    monkeypatch.setattr(  # what other work does while this runs is not asked here
        "alight._src.measure.findings.contention",
        lambda *found: timing.contention((), 0.0, 0.0, *found[3:]),
    )

    def again(slow: bool) -> str:
        # without time nothing is visited twice, and nothing waits for a quick moment
        (found,) = calibrate(1e-9, [(HostBackend(), HOST)])
        assert found.contended is slow and found.pace_seconds == SLOW
        return "; ".join(found.doubts)

    save_profile(before := made(QUICK))
    read(SLOW)
    told = again(True)
    assert "100% of what one thread runs was met in slow moments alone" in told
    assert "took 1.50 times as long" in told and "`alight calibrate --fresh`" in told
    assert stored().made_at == before.made_at
    # who has none to go on with takes the pace there is
    store.clear()
    again(False)
    assert stored().pace_seconds == SLOW
    # unless it was quick before within the process
    read(SLOW)
    (found,) = calibrate(1e-9, [(HostBackend(), HOST)], pace_seconds=QUICK)
    assert found.contended


def test_a_calibration_without_a_quick_moment_takes_no_more_than_its_time(
    monkeypatch: pytest.MonkeyPatch, read: Callable[..., None]
) -> None:
    run = device_calibration.Calibration(HostBackend(), HOST, 60.0, pace=Pace(QUICK))
    read(SLOW)
    some = [p for p in points_of(HOST) if p.implementation == "numpy" and p.amount < 1e5]
    few = some[:24]
    vital = sum(p.coarse for p in few)
    ready = 0
    launch = run._launch

    def made_ready(run: Any, point: Any) -> Any:
        nonlocal ready
        ready += 1
        return launch(point)

    monkeypatch.setattr(device_calibration, "points_of", lambda device: few)
    monkeypatch.setattr(device_calibration.Calibration, "_launch", made_ready)
    # making ready took all of the time that there is for both
    monkeypatch.setattr(
        device_calibration.Calibration, "spent", lambda run: 60.0 if ready == len(few) else 0.0
    )
    assert len(list(run.steps())) == len(run.found.points) == vital
    found = run.profile()
    core = sum(p.core for p in few if p.coarse) / sum(p.core for p in few)
    assert found.contended and found.share == pytest.approx(core)


def test_what_is_ready_waits_no_longer_than_leaves_time_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = device_calibration.Calibration(HostBackend(), HOST, 60.0)
    every = [p for p in points_of(HOST) if p.implementation == "numpy" and p.amount < 1e5]
    few = [p for p in every if not p.coarse][:9]
    waits: list[float] = []
    monkeypatch.setattr(device_calibration, "points_of", lambda device: few)
    monkeypatch.setattr(device_calibration.Calibration, "spent", lambda run: 0.0)
    monkeypatch.setattr(Pace, "awaited", lambda pace, seconds: bool(waits.append(seconds)))
    next(run.steps())
    limit = 60.0 * device_calibration.FIRST_SHARE
    assert max(waits) == pytest.approx(limit - 9 * device_calibration._VISIT_SECONDS)


@pytest.mark.parametrize(
    ("before", "after", "fields", "replaced"),
    [
        (SLOW, QUICK, {"complete": False}, True),  # less, of quicker moments
        (SLOW, QUICK, {"complete": False, "validation": {**GOOD, "measured": 0.6}}, True),
        (SLOW, QUICK, {"complete": False, "validation": {**GOOD, "measured": 0.4}}, False),
        (1.3 * QUICK, QUICK, {"complete": False}, False),  # that may be its clock
        (SLOW, SLOW, {"complete": False}, False),
        (None, QUICK, {"complete": False}, False),
        (SLOW, None, {"complete": False}, False),
        (SLOW, QUICK, {"complete": False, "validation": {**GOOD, "measured": 0.05}}, False),
        (SLOW, QUICK, {"validation": {**GOOD, "median_error": 0.5}}, False),
        (SLOW, QUICK, {"validation": {}}, False),
        (QUICK, SLOW, {}, True),  # nothing disturbed it: who measured it knew of no better
    ],
)
def test_a_profile_of_slow_moments_gives_way_to_what_is_sound(
    store: Store, before: float | None, after: float | None, fields: dict[str, Any], replaced: bool
) -> None:
    save_profile(made(before))
    new = save_profile(made(after, 9.0, **fields))
    assert (stored().made_at == new.made_at) is replaced is (new.path is not None)


class Ends:
    """The ends of programs on a machine: what was measured at them, and at which pace."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: list[float] = []
        self.found = made(QUICK)
        self._due: list[tuple[Callable[..., None], Any]] = []
        self._patch = monkeypatch
        monkeypatch.setattr(calibrate_module, "calibrate", self._calibrate)
        monkeypatch.setattr(recalibrate, "config", lambda: SimpleNamespace(calibrate="auto"))
        monkeypatch.setattr(recalibrate, "when_over", lambda *work: self._due.append(work))

    def _calibrate(self, *_: Any, pace_seconds: float) -> list[Profile]:
        self.known.append(pace_seconds)
        return [save_profile(replace(self.found, made_at=time.time()))]

    def program(self, plans: int = 2, doubted: bool = False) -> int:
        """Run a program that plans work; return how much it has to do when it ends."""
        forget(Cache.PROFILES)
        self._patch.setattr(recalibrate, "_due", set())
        self._due.clear()
        for _ in range(plans):
            recalibrate.measure_later([HOST])
        if doubted:
            recalibrate.measure_when_over("cpu")
        for work, name in reversed(self._due):
            work(name)
        return len(self._due)


@pytest.fixture
def ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> Ends:
    return Ends(monkeypatch)


def test_a_quicker_processor_has_the_profile_measured_again_once(
    store: Store, ends: Ends, read: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    save_profile(made(SLOW))
    for slower in (SLOW, 2 * SLOW, 0.8 * SLOW):  # nothing, as slow as it is, and its clock
        read(slower)
        assert ends.program() == 1 and ends.known == []
    read(5 * SLOW, SLOW, QUICK, SLOW)  # the first is never the best
    with caplog.at_level("INFO", "alight"):
        assert ends.program() == 1
    assert ends.known == [QUICK] and stored().pace_seconds == QUICK
    told = "the processor was 1.50 times as slow as now when it was measured"
    assert f"{told} (cpu). Fix: alight calibrate" in caplog.text
    ends.program()
    assert ends.known == [QUICK]
    # of five seconds' there is no time for half
    store.clear()
    save_profile(made(SLOW, made_seconds=5.0))
    read(QUICK)
    caplog.clear()
    with caplog.at_level("INFO", "alight"):
        assert ends.program() == 1
    assert ends.known == [QUICK] and told in caplog.text


def test_who_does_not_know_its_pace_compares_nothing(
    ends: Ends,
    read: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    read(QUICK)
    save_profile(made(None))
    assert ends.program() == 0
    save_profile(made(SLOW, 9.0))
    monkeypatch.setattr(recalibrate, "interrupted", lambda: True)
    with caplog.at_level("INFO", "alight"):
        assert ends.program() == 1 and ends.known == [] and not caplog.text
    monkeypatch.setattr(recalibrate, "config", lambda: SimpleNamespace(calibrate="off"))
    assert ends.program() == 0


def test_what_is_measured_anyway_is_measured_once(ends: Ends, read: Callable[..., None]) -> None:
    save_profile(made(SLOW))
    read(QUICK)
    ends.found = made(SLOW)
    assert ends.program(doubted=True) == 2 and ends.known == [math.inf]


@pytest.mark.parametrize(
    "fields",
    [
        {"contended": True, "doubts": ("it was slow",)},
        {"validation": {**GOOD, "measured": 0.05}, "complete": False},
        {"validation": {**GOOD, "median_error": 0.5}},
    ],
)
def test_what_takes_no_slow_profiles_place_is_not_tried_at_every_end(
    ends: Ends, read: Callable[..., None], fields: dict[str, Any]
) -> None:
    save_profile(before := made(SLOW))
    read(QUICK)
    ends.found = made(QUICK, **fields)
    waits = []
    for _ in range(3):
        ends.program()
        ends.program()
        last = refused(HOST)
        assert last is not None
        waits.append(last.wait_seconds)
        note_refused(HOST, Refused(0.0, *last[1:]))  # it was long ago
    assert len(ends.known) == 3 and waits == [20.0, 40.0, 80.0]
    assert stored().made_at == before.made_at
    ends.found = made(QUICK)
    ends.program()
    assert stored().pace_seconds == QUICK and refused(HOST) is None


def test_the_ratchet_of_closure_measures_a_slow_profile_again(
    read: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known: list[float] = []
    tries = [made(QUICK, contended=True, doubts=("it was slow",)), made(SLOW), made(0.7 * QUICK)]

    def calibrated(*_: Any, pace_seconds: float, **__: Any) -> list[Profile]:
        known.append(pace_seconds)
        return [tries[min(len(known), len(tries)) - 1]]

    class Sample(SimpleNamespace):
        count = 1

    def case(*_: Any) -> Any:
        return Sample(
            case=SimpleNamespace(implementation="numpy", kind="none"),
            take=lambda count: np.float64(1.0),
            samples=[],
        )

    monkeypatch.setattr(closure, "calibrate", calibrated)
    monkeypatch.setattr(closure, "draw", lambda *_: [None])
    monkeypatch.setattr(closure, "_timed", case)
    read(0.7 * QUICK)
    document = closure.run(5.0, 1, 1, 3, 1)
    told = capsys.readouterr().out
    # the second try knows of the first one's pace, the third of that met since
    assert known == [math.inf, QUICK, 0.7 * QUICK]
    assert document["pace_seconds"] == 0.7 * QUICK and not document["contended"]
    assert told.count("times as quick as when the profile was made, which is measured again") == 1
    assert "disturbed: it was slow" in told
    # where no other comes of it, what there is holds in the end
    known.clear()
    tries[:] = [made(SLOW)]
    assert closure.run(5.0, 1, 1, 3, 1)["pace_seconds"] == SLOW
    assert len(known) == 1 + closure.TIMES_ANEW
