"""Ways to do one thing are timed in turns until one has won, within one budget for all of it."""

from __future__ import annotations

import math
from threading import Barrier, Thread
from time import perf_counter

import pytest

from alight._src.adapt.contest import CLEAR, Contest, Rules
from alight._src.adapt.foreground import ForegroundBudget

RULES = Rules(laps=3, least_laps=2, margin=1.08)


def contest(rules: Rules = RULES, **seconds: list[float]) -> Contest[str]:
    found = Contest(list(seconds), rules)
    for way, laps in seconds.items():
        for lap in laps:
            found.lap(way, lap)
    return found


def test_ways_take_turns_and_the_quickest_laps_are_kept() -> None:
    found = contest(old=[], new=[])
    order = []
    for seconds in (3.0, 9.0, 2.0, 8.0, 1.0, 7.0):
        way = found.turn()
        assert way is not None
        order.append(way)
        found.lap(way, seconds)
    assert order == ["old", "new"] * 3 and found.turn() is None
    assert found.seconds == {"old": [1.0, 2.0, 3.0], "new": [7.0, 8.0, 9.0]}
    found.lap("old", 2.5)
    assert found.seconds["old"] == [1.0, 2.0, 2.5] and found.best("old") == 1.0


@pytest.mark.parametrize(
    ("old", "new", "winner"),
    [
        ([], [], None),
        ([1.0], [0.1], None),  # one lap may have met an interrupt
        ([1.0, 1.0], [0.1, 0.1], "new"),
        ([0.1, 0.1], [1.0, 1.0], "old"),
        ([1.0, 1.0], [0.9, 0.9], None),  # close: the third may turn it round
        ([1.0, 1.0], [1.0 / CLEAR] * 2, None),
        ([1.0, 1.0, 1.0], [0.9, 0.9, 0.9], "new"),
        ([1.0, 1.0, 1.0], [0.95, 0.95, 0.95], "old"),  # hardly quicker
        ([1.0, 1.0, 1.0], [math.inf] * 3, "old"),  # could not be run
        ([0.0, 0.0], [1e-6, 1e-6], None),  # within one tick of the clock: of no ratio
        ([0.0, 0.0, 0.0], [1e-6, 1e-6, 1e-6], "old"),
        ([1e-6, 1e-6, 1e-6], [0.0, 0.0, 0.0], "new"),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], "old"),
        ([0.0, 0.0, 0.0], [math.inf] * 3, "old"),
    ],
)
def test_the_way_that_is_clearly_quicker_wins(
    old: list[float], new: list[float], winner: str | None
) -> None:
    assert contest(old=old, new=new).winner() == winner


def test_who_is_behind_may_have_all_laps() -> None:
    rules = Rules(laps=5, least_laps=2, behind=math.inf)
    assert contest(rules, old=[1.0] * 4, new=[9.0] * 4).winner() is None
    assert contest(rules, old=[1.0] * 5, new=[9.0] * 5).winner() == "old"
    assert contest(rules, old=[9.0] * 2, new=[1.0] * 2).winner() == "new"


def test_a_way_whose_laps_are_seldom_quick_is_judged_by_most_of_them() -> None:
    rules = Rules(laps=5, least_laps=2, rank=2, behind=math.inf)
    assert contest(rules, old=[4.0] * 2, new=[2.9, 5.1]).winner() is None
    assert contest(rules, old=[4.0] * 5, new=[2.9, 2.9, 5.1, 5.1, 5.2]).winner() == "old"
    assert contest(rules, old=[4.0] * 5, new=[2.9, 2.9, 2.9, 5.1, 9.0]).winner() == "new"


@pytest.mark.parametrize("ratio", [math.inf, 2.0])
def test_a_lap_within_one_tick_of_the_clock_ends_no_race(ratio: float) -> None:
    rules = Rules(laps=3, least_laps=1, behind=ratio, ahead=ratio, out=ratio)
    found = contest(rules, old=[0.0, 0.0], new=[5.0])
    assert found.turn() == "new" and found.winner() is None


def test_a_way_that_was_timed_before_needs_no_laps() -> None:
    found = contest(old=[], new=[])
    found.settle("old", 1.0)
    assert [found.turn(), found.winner()] == ["new", None]
    found.lap("new", 0.5)
    found.lap("new", 0.5)
    assert found.winner() == "new"


def test_of_many_ways_those_far_behind_have_no_more_laps() -> None:
    ran: list[str] = []

    def takes(way: str, seconds: float) -> float:
        ran.append(way)
        return seconds

    rules = Rules(laps=4, least_laps=4, out=3.0)
    found: Contest[str] = Contest(("a", "b", "c", "d"), rules)
    seconds = {"a": 1.0, "b": 9.0, "c": 0.9, "d": 2.0}
    found.run({way: lambda way=way: takes(way, seconds[way]) for way in seconds})  # type: ignore[misc]
    assert ran == ["a", "b", "c", "d", *["a", "c", "d"] * 3] and found.winner() == "c"


def test_a_clear_lead_over_all_ends_a_contest_of_many() -> None:
    rules = Rules(laps=9, least_laps=2)
    assert contest(rules, a=[1.0] * 2, b=[0.1] * 2, c=[0.2] * 2).winner() == "b"
    assert contest(rules, a=[1.0] * 2, b=[0.1] * 2, c=[0.11] * 2).winner() is None


def test_what_measuring_takes_is_counted_once_where_it_is_nested() -> None:
    here = ForegroundBudget()
    with here.measuring():
        until = perf_counter() + 2e-3
        with here.measuring():
            while perf_counter() < until:
                pass
        here.spend(60.0)  # as who times inside counts it
    assert 2e-3 <= here.spent_seconds < 60.0


def test_what_each_thread_measures_is_counted_and_is_its_own() -> None:
    here = ForegroundBudget()
    begin, own = Barrier(3), []

    def measure() -> None:
        begin.wait()
        with here.measuring():
            begin.wait()  # all are inside
            until = perf_counter() + 2e-3
            while perf_counter() < until:
                pass
        own.append(here.own_seconds)

    others = [Thread(target=measure) for _ in range(2)]
    for other in others:
        other.start()
    begin.wait()
    begin.wait()
    for other in others:
        other.join()
    assert here.own_seconds == 0 and min(own) >= 2e-3
    assert max(own) <= here.spent_seconds <= sum(own) * 1.001


def test_measuring_stays_within_its_share_of_the_time() -> None:
    here = ForegroundBudget()
    here.began = perf_counter() - 100.0
    assert here.allows(4.9) and not here.allows(5.5)
    here.spent_seconds = 4.0
    assert here.allows(0.9) and not here.allows(1.5)
    assert here.allows(1.5, own_seconds=30.0)
