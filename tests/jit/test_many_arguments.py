"""Which of many arguments overlap is found without a look at every pair."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from alight._src.jit import reachability
from alight._src.jit.argument_leases import _groups
from alight._src.jit.reachability import overlap, overlapping


def windows(rng: random.Random, count: int) -> list[Any]:
    """Return arrays over a few pieces of memory: steps, reversed ones, columns, empty ones."""
    pieces = [np.zeros((6, 8)) for _ in range(1 + count // 6)]
    found = []
    for _ in range(count):
        piece = rng.choice(pieces)
        first, second = (
            slice(rng.randrange(6), rng.randrange(9), rng.choice([1, 2])) for _ in "ab"
        )
        part = piece[first, second]
        found.append(part[::-1] if rng.random() < 0.3 else part)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_overlapping_pairs_are_those_of_all_pairs(seed: int) -> None:
    rng = random.Random(seed)
    arrays = windows(rng, rng.randint(2, 40))
    pairs = [(i, j) for j in range(len(arrays)) for i in range(j)]
    assert overlapping(arrays) == [(i, j) for i, j in pairs if overlap(arrays[i], arrays[j])]


def test_arrays_that_overlap_by_others_are_together() -> None:
    x, y = np.zeros(30), np.zeros(30)
    arrays = [x[:10], y[:5], x[20:], x[5:25], y[10:], *[np.zeros(2) for _ in range(9)]]
    numbers = {id(array): number for number, array in enumerate(arrays)}
    groups = [[numbers[id(array)] for array in group] for group in _groups(arrays)]
    assert groups == [[0, 2, 3], [1], [4], *[[n] for n in range(5, 14)]]


def test_as_many_questions_are_asked_as_there_are_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(reachability, "overlap", lambda a, b: asked.append(1))
    arrays = [np.zeros(3) for _ in range(500)]
    reachability.overlapping(arrays)
    assert len(asked) < len(arrays)
