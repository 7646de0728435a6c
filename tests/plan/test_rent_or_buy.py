"""When loops go over to another memory, against the best in hindsight: drawn loops, by a seed."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable
from typing import NamedTuple

import pytest

from alight._src.plan import rent_or_buy
from alight._src.plan.cycle_cost import Ring, Stage, best_ring
from alight._src.plan.rent_or_buy import Recurrence, Switch, Trust, Turns, open_due

LOOPS, SEED = 200, 20261127
LATENCY, BANDWIDTH = 1e-5, 1e10


def copy_seconds(source: str, target: str, nbytes: int) -> float:
    return LATENCY + nbytes / BANDWIDTH


class Drawn(NamedTuple):
    """A loop: its plans as they recur, the turns it takes, and what moving takes."""

    stages: list[Stage]
    nbytes: dict[int, int]
    ring: Ring
    turns: int
    moving: float


def drawn(rng: random.Random, ratio: float | None = None) -> Drawn:
    """Return a loop of up to 10 plans and 10^4 turns, of which turns times gain over moving is
    drawn from 0.1 to 10, logarithmically even."""
    while True:
        count = rng.randint(1, 10)
        stages, nbytes = [], {}
        for at in range(count):
            home = 10 ** rng.uniform(-5, -1)
            away = None if rng.random() < 0.1 else home * 10 ** rng.uniform(-2, 0.5)
            nbytes[at] = int(10 ** rng.uniform(3, 8))
            stages.append(Stage(home, away, ((at - 1) % count,), (at,)))
        ring = best_ring(stages, nbytes, "far", copy_seconds)
        if ring.gain_seconds > 0.05 * ring.home_seconds:
            break
    turns = int(10 ** rng.uniform(1, 4))
    moving = turns * ring.gain_seconds / (10 ** rng.uniform(-1, 1) if ratio is None else ratio)
    return Drawn(stages, nbytes, ring, turns, moving)


def taken(loop: Drawn, expected: Turns = rent_or_buy.UNKNOWN) -> float:
    """Return what a loop takes, run entry by entry through what recognises and decides."""
    ring, recurrence = loop.ring, Recurrence()
    switch, seconds, known = Switch(loop.moving, loop.moving, expected), 0.0, False
    if expected.trust is Trust.EARLIER_STARTS and switch.is_due():
        switch.move()
        seconds += loop.moving
    for turn in range(loop.turns):
        if switch.moved:  # and stays, as its costs do
            switch.turn(ring.home_seconds, ring.best_seconds, loop.turns - turn)
            seconds += (loop.turns - turn) * ring.best_seconds
            break
        for at in () if known else range(len(loop.stages)):
            known = bool(recurrence.add(at))
        switch.turn(ring.home_seconds, ring.best_seconds)
        seconds += ring.home_seconds
        if known and switch.is_due():
            switch.move()
            seconds += loop.moving
            assert turn + 1 >= 2  # nobody knows a loop before it has come twice
    assert math.isclose(seconds, switch.hindsight().seconds)
    return seconds


def best(loop: Drawn) -> float:
    home, away = loop.ring.home_seconds, loop.ring.best_seconds
    return min(loop.turns * home, loop.moving + loop.turns * away)


def mean(ratios: Iterable[float]) -> float:
    found = list(ratios)
    return math.exp(sum(map(math.log, found)) / len(found))


@pytest.fixture(scope="module")
def loops() -> list[Drawn]:
    print(f"\n{LOOPS} loops of seed {SEED}")
    rng = random.Random(SEED)
    return [drawn(rng) for _ in range(LOOPS)]


def test_blind_it_takes_no_more_than_twice_the_best_and_three_turns(loops: list[Drawn]) -> None:
    for loop in loops:
        assert taken(loop) <= 2.0 * best(loop) + 3.0 * loop.ring.home_seconds, loop
    assert mean(taken(loop) / best(loop) for loop in loops) <= 1.4


def test_what_earlier_starts_left_is_believed_from_the_first_turn(loops: list[Drawn]) -> None:
    def known(loop: Drawn) -> Turns:
        return Turns(loop.turns, Trust.EARLIER_STARTS, loop.ring.gain_seconds)

    assert mean(taken(loop, known(loop)) / best(loop) for loop in loops) <= 1.1
    for loop in loops:  # and where it is wrong no more than one move is lost by it
        wrong = Turns(100.0 * loop.turns, Trust.EARLIER_STARTS, loop.ring.gain_seconds)
        assert taken(loop, wrong) <= best(loop) + loop.moving + loop.ring.home_seconds


def test_a_right_guess_is_within_one_and_a_half_and_a_wrong_one_within_three(
    loops: list[Drawn],
) -> None:
    for loop in loops:
        some = 3.0 * loop.ring.home_seconds
        right = taken(loop, Turns(loop.turns, Trust.GUESS))
        assert right <= 1.5 * best(loop) + some
        for factor in (1e-4, 0.1, 10.0, 1e4):
            wrong = taken(loop, Turns(factor * loop.turns, Trust.GUESS))
            assert wrong <= 3.0 * best(loop) + some, (loop, factor)


def changing(rng: random.Random) -> tuple[float, float, list[tuple[float, float]]]:
    """Return what moving there and back takes, and turns of which some are better here, some
    there, in phases."""
    there, back = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-1, 1)
    turns: list[tuple[float, float]] = []
    while len(turns) < 3000:
        # no turn is more than a hundredth of a move: what one more costs is no part of the bound
        most = (there + back) / 100
        home, away = most * rng.random(), most * rng.random()
        if rng.random() < 0.3:  # the worst there is: whoever is here pays, and nobody else
            home, away = rng.choice(((most, 0.0), (0.0, most)))
        phase = int(10 ** rng.uniform(0, 3))
        turns += [(home, away)] * phase
    return there, back, turns


def best_changing(there: float, back: float, turns: list[tuple[float, float]]) -> float:
    here, away = 0.0, there
    for home_seconds, away_seconds in turns:
        here, away = here + home_seconds, away + away_seconds
        here, away = min(here, away + back), min(away, here + there)
    return min(here, away)


def changed(there: float, back: float, turns: list[tuple[float, float]]) -> Switch:
    switch = Switch(there, back)
    for home_seconds, away_seconds in turns:
        switch.turn(home_seconds, away_seconds)
        if switch.is_due():
            switch.move()
    return switch


def adversary(there: float, back: float, count: int) -> list[tuple[float, float]]:
    """Return turns that cost only where the loop is just then."""
    switch, turns, most = Switch(there, back), [], (there + back) / 2000
    for _ in range(count):
        turn = (0.0, most) if switch.moved else (most, 0.0)
        turns.append(turn)
        switch.turn(*turn)
        if switch.is_due():
            switch.move()
    return turns


def test_where_costs_change_it_takes_three_times_the_best_and_one_move() -> None:
    rng = random.Random(SEED + 1)
    cases = [changing(rng) for _ in range(LOOPS)]
    cases += [(t, b, adversary(t, b, 20_000)) for t, b in ((1.0, 1.0), (1.0, 0.1), (0.1, 1.0))]
    moves = 0
    for there, back, turns in cases:
        switch = changed(there, back, turns)
        moves += switch.moves
        least = best_changing(there, back, turns)
        assert switch.hindsight().best_seconds == pytest.approx(least)
        one = max(there, back) + 2 * max(map(max, turns))
        assert switch.spent_seconds <= 3.0 * least + one, (there, back)
    assert moves > 2 * LOOPS  # it did go to and fro


@pytest.mark.parametrize("share", [0.0, 0.4, 3.0])
def test_another_rule_is_found_out(
    monkeypatch: pytest.MonkeyPatch, loops: list[Drawn], share: float
) -> None:
    monkeypatch.setattr(Switch, "_share", lambda self, opening_seconds: share)
    over = [
        taken(loop) > 2.0 * best(loop) + 3.0 * loop.ring.home_seconds
        for loop in (*loops, *[drawn(random.Random(n), r) for n, r in enumerate([0.01, 1.001, 50])])
    ]
    assert any(over)


def test_a_loop_that_ends_right_after_the_switch_is_the_worst_and_twice_the_best() -> None:
    rng = random.Random(SEED + 2)
    worst = max(taken(x) / best(x) for x in [drawn(rng, 1.0 + 2.0 / 1000) for _ in range(50)])
    assert 1.5 < worst <= 2.01


def test_a_ring_is_placed_as_trying_all_places_does() -> None:
    rng = random.Random(SEED + 3)
    for _ in range(100):
        loop = drawn(rng)
        stages = loop.stages[:6]
        kept = range(len(stages))
        stages = [s._replace(reads=tuple(v for v in s.reads if v in kept)) for s in stages]
        ring = best_ring(stages, loop.nbytes, "far", copy_seconds)
        least = math.inf
        for away in itertools.product((False, True), repeat=len(stages)):
            seconds = 0.0
            for there, stage in zip(away, stages, strict=True):
                own = stage.away_seconds if there else stage.home_seconds
                seconds += math.inf if own is None else own
                seconds += sum(
                    copy_seconds("", "", loop.nbytes[v]) for v in stage.reads if away[v] != there
                )
            least = min(least, seconds)
        assert ring.best_seconds == pytest.approx(least)


def recurs(entries: Iterable[object]) -> list[tuple[object, ...]]:
    recurrence = Recurrence()
    return [recurrence.add(entry) for entry in entries]


@pytest.mark.parametrize(
    "entries, first, turn",
    [
        ("aa", 1, "a"),
        ("abcabc", 5, "abc"),
        ("xyabcabc", 7, "abc"),
        ("aabaab", 5, "aab"),
        ("abab" + "cdcd", 3, "ab"),
    ],
)
def test_a_loop_is_recognised_once_its_last_two_turns_are_equal(
    entries: str, first: int, turn: str
) -> None:
    found = recurs(entries)
    at = len(entries) - 1 if turn == "aab" else first
    assert "".join(map(str, found[at])) == turn
    if turn != "aab":  # its first two entries are a loop of their own
        assert not any(found[:first])


def test_what_never_comes_again_is_no_loop_and_long_ones_are_found_anywhere() -> None:
    assert not any(recurs(range(2000)))
    entries = [*range(1000, 1500), *[n % 64 for n in range(400)]]
    assert len(recurs(entries)[-1]) == 64
    nested = [entry for n in range(40) for entry in (*("i", "j") * 5, ("outer", n))]
    assert {len(found) for found in recurs(nested)} == {0, 2}


def test_a_memory_is_opened_by_what_all_lost_without_it() -> None:
    one, other = Switch(1.0), Switch(2.0)
    for _ in range(3):
        one.turn(0.6, 0.1)
        other.turn(1.0, 0.0)
    assert one.beyond() == pytest.approx(0.5) and other.beyond() == pytest.approx(1.0)
    assert open_due(1.5 - 1e-9, 0.0, (one, other)) and not open_due(1.51, 0.0, (one, other))
    assert open_due(1.6, 0.11, (one, other))
    assert open_due(0.5, 0.0, (Switch(9.0, 0.0, Turns(99, Trust.EARLIER_STARTS, 1.0)),))
