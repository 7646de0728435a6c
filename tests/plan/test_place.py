"""Placement is as good as trying everything: in two memories, in many, in too small ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alight._src.plan.assignment import Spread, least
from alight._src.plan.caps import excess
from alight._src.plan.path_width_dp import narrow
from counting import counted

TWO = ("host", "sim")
THREE = ("host", "sim", "gpu")
FOUR = ("host", "sim", "gpu", "card")

thorough = settings(
    max_examples=1000,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def prices(rng: random.Random, spaces: Sequence[str]) -> dict[tuple[str, str], float]:
    return {pair: 10 ** rng.uniform(-6, -4) for pair in itertools.permutations(spaces, 2)}


def random_spread(seed: int, spaces: tuple[str, ...], most: int = 8) -> Spread:
    """Return units that read one another and some inputs, each of which may have copies."""
    rng = random.Random(seed)
    count = rng.randint(2, most)
    inputs = range(100, 100 + rng.randint(1, 3))
    seconds, reads = [], []
    for unit in range(count):
        pool = [*range(unit), *inputs]
        reads.append(tuple(rng.sample(pool, rng.randint(1, min(3, len(pool))))))
        costs = {space: 10 ** rng.uniform(-6, -4) for space in spaces}
        for space in spaces[1:]:
            if rng.random() < 0.15:
                del costs[space]
        seconds.append(costs)
    price = prices(rng, spaces)
    holders = [frozenset(rng.sample(spaces, rng.randint(1, len(spaces)))) for _ in inputs]
    values = [*range(count), *inputs]
    return Spread(
        spaces=spaces,
        seconds=seconds,
        reads=reads,
        makes=[(unit,) for unit in range(count)],
        held=dict(zip(inputs, holders, strict=True)),
        nbytes=dict.fromkeys(values, 8),
        asked=frozenset(rng.sample(values, rng.randint(0, 2))),
        copy_seconds=lambda a, b, n: price[a, b],
    )


def cramped(seed: int, spaces: tuple[str, ...]) -> Spread:
    """Return a spread in memories that may be too small for what is best."""
    rng = random.Random(-seed)
    spread = random_spread(seed, spaces)
    return replace(
        spread,
        held={value: frozenset(("host",)) for value in spread.held},
        nbytes={value: rng.choice((8, 80, 800, 1600)) for value in spread.nbytes},
        caps={space: rng.choice((1700, 2500, 4000)) for space in spaces[1:]},
        kept=frozenset([*spread.held, *spread.asked, len(spread.seconds) - 1]),
    )


def placements(spread: Spread) -> Iterator[tuple[str, ...]]:
    return itertools.product(*map(tuple, spread.seconds))


def best_total(spread: Spread) -> float:
    return min(spread.total(places) for places in placements(spread))


@thorough
@given(seed=st.integers(0, 2**32))
def test_two_memories_are_placed_as_well_as_by_trying_everything(seed: int) -> None:
    spread = random_spread(seed, TWO)
    assert spread.total(least(spread)) == pytest.approx(best_total(spread), rel=1e-6)


def test_random_spreads_are_worth_placing() -> None:
    moved = 0
    for seed in range(100):
        places = least(random_spread(seed, TWO))
        moved += 0 < places.count("sim") < len(places)
    assert moved > 25


def test_more_memories_are_placed_as_well_as_by_trying_everything() -> None:
    for spaces, most, seeds in ((THREE, 6, 150), (FOUR, 5, 60)):
        for seed in range(seeds):
            spread = random_spread(seed, spaces, most)
            found = narrow(spread, 10**6)
            assert found.exact
            total = spread.total(found.places)
            assert total == pytest.approx(best_total(spread), rel=1e-9), f"seed {seed}"
            assert spread.total(least(spread)) <= 1.05 * total, f"seed {seed}"


def linked(
    seed: int, count: int, spaces: tuple[str, ...], reads: Sequence[Sequence[int]]
) -> Spread:
    """Return a chain, a tree or what else reads says, with an input that the first unit reads."""
    rng = random.Random(seed)
    price = prices(rng, spaces)
    return Spread(
        spaces=spaces,
        seconds=[{space: 10 ** rng.uniform(-6, -3) for space in spaces} for _ in range(count)],
        reads=reads,
        makes=[(unit,) for unit in range(count)],
        held={1000: frozenset((spaces[0],))},
        nbytes=dict.fromkeys((*range(count), 1000), 8),
        asked=frozenset((count - 1,)),
        copy_seconds=lambda a, b, n: price[a, b],
    )


def least_of_chain(spread: Spread) -> float:
    """Return the least total of a chain by the textbook's table, position by position."""
    table = {"host": 0.0}
    for seconds in spread.seconds:
        table = {
            to: min(
                t + (spread.copy_seconds(a, to, 8) if a != to else 0.0) for a, t in table.items()
            )
            + seconds[to]
            for to in spread.spaces
        }
    return min(
        t + (spread.copy_seconds(a, "host", 8) if a != "host" else 0.0) for a, t in table.items()
    )


def test_chains_and_trees_are_placed_exactly_at_any_length() -> None:
    for seed in range(20):
        chain = linked(seed, 60, FOUR, [(1000,), *[(unit,) for unit in range(59)]])
        assert chain.total(least(chain)) == pytest.approx(least_of_chain(chain), rel=1e-9)
        # Two units feed one, level by level, so that a walk in program order has 32 values open.
        tree = linked(seed, 63, THREE, [(1000,)] * 32 + [(2 * i, 2 * i + 1) for i in range(31)])
        assert narrow(tree, 3**6).exact


def test_memories_that_are_too_small_are_never_overfilled() -> None:
    ratios = []
    for spaces in (TWO, THREE):
        for seed in range(250):
            spread = cramped(seed, spaces)
            if not excess(spread, least(replace(spread, caps={}))):
                continue
            places = least(spread)
            assert not excess(spread, places), f"seed {seed}"
            fits = [spread.total(p) for p in placements(spread) if not excess(spread, p)]
            ratios.append(spread.total(places) / min(fits))
    assert len(ratios) > 80
    assert np.percentile(ratios, 95) <= 1.05


def test_what_must_run_where_it_does_not_fit_exceeds_least() -> None:
    spread = linked(0, 4, TWO, [(1000,), (0,), (1,), (2,)])
    forced = replace(
        spread,
        seconds=[{"sim": 1e-6}, *[{"host": 1e-5, "sim": 1e-6} for _ in range(3)]],
        caps={"sim": 15},
    )
    places = least(forced)
    assert places[0] == "sim" and excess(forced, places) == 1


@pytest.mark.parametrize("spaces", [TWO, THREE])
def test_the_work_of_placing_a_hundred_units(spaces: tuple[str, ...]) -> None:
    rng = random.Random(0)
    lines = []
    for count in (25, 100):
        reads = [
            (1000,),
            *[tuple({rng.randrange(max(0, u - 6), u) for _ in range(2)}) for u in range(1, count)],
        ]
        spread = linked(1, count, spaces, reads)
        lines.append(counted(lambda spread=spread: least(spread), "line"))
    # 4 for linear, 64 for cubic, the bound of a minimum cut; the ratchet of overheads times plans
    assert lines[1] / lines[0] < 8, lines
    assert lines[1] < 500_000, lines
