"""Sites whose kernel loses to NumPy are NumPy's from then on, and the report says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.adapt import planner_facts, regression_guard
from alight._src.adapt.foreground import ForegroundBudget
from alight._src.base.cache_registry import Cache, forget
from alight._src.ir.group import Group
from alight._src.log.decisions import LOG
from alight._src.plan.plan import Estimate
from alight._src.run import prepared_step
from alight._src.store import Store
from alight.backends import host
from hearing import collected

X = np.linspace(1.0, 2.0, 1237)


@pytest.fixture(autouse=True)
def promised(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Predict that kernels are twice as fast as NumPy, both far faster than anything runs."""

    def estimate(group: Group, device: str, implementation: str) -> Estimate:
        seconds = 1e-9 if implementation == "generated" else 2e-9
        return Estimate(seconds, seconds, seconds, {"memory": seconds})

    monkeypatch.setattr(planner_facts, "estimate", estimate)
    # The compiler's wait would have NumPy take the first runs.
    monkeypatch.setattr(prepared_step.Ready, "patience", float("inf"))
    forget(Cache.KERNELS_LOST)
    LOG.reset()
    yield
    forget(Cache.KERNELS_LOST)
    LOG.reset()


def took(monkeypatch: pytest.MonkeyPatch, generated: float, numpy: float) -> None:
    """Have runs take these seconds."""
    submit = prepared_step.Ready.submit

    def timed(self: Any, *args: Any) -> tuple[Any, float, Any]:
        made, _, events = submit(self, *args)
        return made, (generated if self.implementation == "generated" else numpy), events

    monkeypatch.setattr(prepared_step.Ready, "submit", timed)


def run(call: Callable[[Any], Any], times: int) -> list[tuple[str, str]]:
    """Return who had each run, and why; each gives NumPy's answer."""
    before = LOG.snapshot()
    with alight.policy(floor=0, force=None, devices=None):
        a = alight.asarray(X)
        for _ in range(times):
            np.testing.assert_allclose(np.asarray(call(a)), call(X), rtol=1e-14)
    records = LOG.snapshot().since(before).records
    return [(r.decision.implementation, r.decision.reason.value) for r in records]


def chain(x: Any) -> Any:
    return x * 2 + x


OURS, TRIED, LOST = ("generated", "cheapest"), ("numpy", "trial"), ("numpy", "demoted")


def test_a_kernel_that_loses_is_demoted_once_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    took(monkeypatch, 3e-3, 1e-3)
    assert run(chain, 12) == [OURS] * 4 + [TRIED] * 4 + [LOST] * 4
    (row,) = LOG.snapshot().demotions
    assert (row.what, row.times) == ("multiply+add", 1)
    assert row.reason == "NumPy took 1 ms, the kernel 3 ms"
    assert row.call_site is not None and "test_regression_guard.py" in row.call_site
    # Plans to come know it, and the same ops on other layouts or with other attributes are apart.
    forget(Cache.PLANS)
    assert run(chain, 1) == [LOST]
    assert run(lambda x: chain(x[::2]), 1) == [OURS]
    assert run(lambda x: chain(x[:77]), 1) == [OURS]


def test_a_kernel_that_wins_or_hardly_loses_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    took(monkeypatch, 1.2e-3, 1e-3)
    assert run(chain, 12) == [OURS] * 4 + [TRIED] * 4 + [OURS] * 4
    assert not LOG.snapshot().demotions


def test_a_kernel_as_fast_as_numpy_was_predicted_is_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    took(monkeypatch, 1.5e-9, 1e-3)
    assert run(chain, 12) == [OURS] * 12


def test_bits_do_not_change_after_a_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums and transcendentals are not NumPy's bit for bit: who ran first goes on."""
    took(monkeypatch, 3e-3, 1e-3)
    assert run(lambda x: np.exp(x) * 2, 12) == [OURS] * 12
    assert run(lambda x: (x * 3).sum(), 12) == [OURS] * 12
    told = LOG.snapshot().demotions
    assert all(row.reason.endswith("from the next start on") for row in told)


def test_what_loses_beside_numpy_is_numpys_from_the_next_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shelf = Store(tmp_path)
    monkeypatch.setattr(regression_guard, "default_store", lambda: shelf)
    monkeypatch.setattr(regression_guard, "_key", lambda: "here")
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    took(monkeypatch, 3e-3, 1e-3)
    assert run(lambda x: np.exp(x) * 2, 12) == [OURS] * 12
    (row,) = LOG.snapshot().demotions
    assert row.reason.endswith("the kernel 3 ms: NumPy's from the next start on")
    forget(Cache.PLANS)
    assert run(lambda x: np.exp(x) * 2, 1) == [OURS]  # nor by a plan that is made anew
    regression_guard._keep()
    forget(Cache.KERNELS_LOST)  # as a process that starts
    assert run(lambda x: np.exp(x) * 2, 2) == [LOST] * 2
    assert run(lambda x: np.exp(x) * 3 + 1, 1) == [OURS]


def test_what_wins_beside_numpy_stays_and_an_error_there_is_none_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    took(monkeypatch, 1.2e-3, 1e-3)
    assert run(lambda x: np.exp(x) * 2, 12) == [OURS] * 12
    took(monkeypatch, 3e-3, 1e-3)

    def fails(*args: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(host.NumpyKernel, "run", fails)
    assert run(lambda x: np.exp(x) * 4, 12) == [OURS] * 12
    assert regression_guard._learned == [] and not LOG.snapshot().demotions


def test_what_is_timed_beside_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    took(monkeypatch, 3e-3, 1e-3)
    a = alight.asarray(np.full((300, 7), np.nan))
    with alight.policy(floor=0, force=None, devices=None), collected() as caught:
        for _ in range(12):
            np.asarray(np.nanmax(np.exp(a), axis=1))
    (row,) = LOG.snapshot().demotions
    assert row.reason.endswith("from the next start on")
    assert [warning.filename for warning in caught] == [__file__] * 12


def test_without_time_nothing_is_timed_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: False)
    took(monkeypatch, 3e-3, 1e-3)
    assert run(lambda x: np.exp(x) * 2, 12) == [OURS] * 12
    assert regression_guard._learned == []


def test_forced_kernels_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    took(monkeypatch, 3e-3, 1e-3)
    with alight.policy(floor=0, force="cpu:generated"):
        a = alight.asarray(X)
        for _ in range(12):
            np.asarray(chain(a))
    assert {r.decision.reason.value for r in LOG.snapshot().records} == {"pinned"}
