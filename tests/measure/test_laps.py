"""Single calls are timed as often as is asked, the quickest first."""

from __future__ import annotations

import itertools

import pytest

from alight._src.measure import timing
from alight._src.measure.timing import laps


def test_calls_are_timed_one_by_one_the_quickest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now, took = [0.0], itertools.cycle((3.0, 1.0, 2.0))

    def call() -> None:
        now[0] += next(took)

    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])
    assert laps(call, 3) == [1.0, 2.0, 3.0]
    assert laps(call, 3, warm=3) == [1.0, 2.0, 3.0] and now[0] == 18.0
    assert laps(call, 9, most_seconds=5.0) == [1.0, 2.0, 3.0]
    assert laps(call, 9, most_seconds=0.0) == [3.0]
    assert laps(call, 9, most_seconds=0.0, least=2) == [1.0, 2.0]
