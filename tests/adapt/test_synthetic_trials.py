"""What nobody measured is tried when a program ends, once, and known from the next start on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alight._src.adapt import planner_facts, synthetic_trials
from alight._src.base.cache_registry import Cache, forget
from alight._src.ir.group import Group
from alight._src.measure import probes
from alight._src.plan.plan import Candidate, Estimate, LaunchStep, Source
from alight._src.store import Store
from alight.device import Reason
from own_store import own_store

SIZE = 1 << 16


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with own_store(tmp_path) as found:
        yield found


class Ends:
    """The end of a program: what is to be done then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.due: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        monkeypatch.setattr(
            synthetic_trials, "when_over", lambda work, *given: self.due.append((work, given))
        )
        monkeypatch.setattr(synthetic_trials, "config", lambda: SimpleNamespace(calibrate="auto"))
        budget = SimpleNamespace(
            allows=lambda seconds: self.allowed, measuring=synthetic_trials.FOREGROUND.measuring
        )
        monkeypatch.setattr(synthetic_trials, "FOREGROUND", budget)
        self.allowed = True

    def end(self) -> int:
        """Do what is due; return how much that was, and let the next program begin."""
        count = len(self.due)
        for work, given in self.due:
            work(*given)
        self.due.clear()
        forget(Cache.PROFILES)
        return count


@pytest.fixture
def ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> Ends:
    forget(Cache.PROFILES)
    return Ends(monkeypatch)


def step(group: Group, low: float, high: float, best: float) -> LaunchStep:
    """Return work that NumPy got, and that a device may do in so many seconds."""
    guess = Estimate((low * high) ** 0.5, low, high, {}, source=Source.PRIOR)
    measured = Estimate(best, best, best, {})
    candidates = (
        Candidate("cpu", "numpy", measured),
        Candidate("sim:0", "library", guess, Reason.UNCALIBRATED),
    )
    decision: Any = SimpleNamespace(candidates=candidates)
    return LaunchStep(group, "cpu", "numpy", (), (), decision)


def test_what_may_be_quicker_is_tried_once_and_known_from_the_next_start_on(ends: Ends) -> None:
    group = probes.loop("sqrt", "float64", SIZE)
    synthetic_trials.note_unmeasured([step(group, 1e-6, 1e-3, 1e-4)] * 3)
    assert synthetic_trials.probed(group, "sim:0", "library") is None
    assert ends.end() == 1
    found = synthetic_trials.probed(group, "sim:0", "library")
    assert found is not None and found.source is Source.MEASURED
    assert found.low < found.seconds < found.high < 1e-3  # as the simulated device takes
    # another size within its power of two is read off it, one beyond is not
    near = synthetic_trials.probed(
        probes.loop("sqrt", "float64", round(1.5 * SIZE)), "sim:0", "library"
    )
    assert near is not None and near.seconds == pytest.approx(1.5 * found.seconds)
    assert (
        synthetic_trials.probed(probes.loop("sqrt", "float64", 4 * SIZE), "sim:0", "library")
        is None
    )
    assert synthetic_trials.probed(probes.loop("sqrt", "float32", SIZE), "sim:0", "library") is None
    synthetic_trials.note_unmeasured([step(group, 1e-6, 1e-3, 1e-4)])
    assert ends.end() == 0


@pytest.mark.parametrize(
    ("low", "high", "best"),
    [
        (2e-4, 1e-3, 1e-4),  # it cannot be quicker
        (1e-6, 0.1, 1e-4),  # it may take too long
    ],
)
def test_what_is_no_use_or_may_take_long_is_not_tried(
    ends: Ends, low: float, high: float, best: float
) -> None:
    synthetic_trials.note_unmeasured([step(probes.loop("sqrt", "float64", SIZE), low, high, best)])
    assert ends.end() == 0


def test_beyond_its_share_of_the_programs_time_nothing_is_tried(ends: Ends) -> None:
    group = probes.loop("sqrt", "float64", SIZE)
    ends.allowed = False
    for tried in (False, True):
        synthetic_trials.note_unmeasured([step(group, 1e-6, 1e-3, 1e-4)])
        ends.end()
        assert (synthetic_trials.probed(group, "sim:0", "library") is not None) is tried
        ends.allowed = True


def test_what_failed_is_not_tried_again(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    group = probes.loop("sqrt", "float64", SIZE)

    def fails(*given: Any) -> Any:
        raise RuntimeError("the driver said no")

    monkeypatch.setattr("alight._src.measure.probe_bench.Bench.time", fails)
    for times in (1, 0):
        synthetic_trials.note_unmeasured([step(group, 1e-6, 1e-3, 1e-4)])
        assert ends.end() == times
    assert synthetic_trials.probed(group, "sim:0", "library") is None


def test_what_was_tried_stands_for_what_was_not_measured(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = probes.loop("sqrt", "float64", SIZE)
    guess = Estimate(1e-3, 1e-4, 1e-2, {}, source=Source.BORROWED)
    monkeypatch.setattr("alight._src.plan.cost.estimate", lambda *given: guess)
    assert planner_facts.estimate(group, "sim:0", "library") is guess
    synthetic_trials.note_unmeasured([step(group, 1e-6, 1e-3, 1e-4)])
    ends.end()
    found = planner_facts.estimate(group, "sim:0", "library")
    assert found is not None and "probed" in found.terms


@pytest.mark.parametrize("row", [[], {}, {"seconds": 1.0, "work": 0.0}, {"seconds": None}, None])
def test_what_nobody_of_ours_wrote_is_no_trial(ends: Ends, row: Any) -> None:
    group = probes.loop("sqrt", "float64", SIZE)
    name = synthetic_trials._kind_of(group, "library").name
    for found in ({name: row}, [name]):
        place = synthetic_trials._KIND, synthetic_trials._key("sim:0")
        synthetic_trials.default_store().write(*place, {"found": found})
        forget(Cache.PROFILES)
        assert synthetic_trials.probed(group, "sim:0", "library") is None
