"""What runs took corrects predictions: by cells, robustly, from the next start or at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import time
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import Layout, make_layout
from alight._src.adapt import learning, planner_facts
from alight._src.base.cache_registry import Cache, forget
from alight._src.base.records import replace
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.log.decisions import LOG
from alight._src.measure.profiles import fingerprint, save_profile
from alight._src.plan.cost import Profile
from alight._src.plan.learned import BINS, Learned, Lesson, cell_of, quantile
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Candidate, Decision, Estimate, LaunchStep, Plan, gained
from alight._src.run import evaluate
from alight._src.store import Store
from alight.backends import registry
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from alight.device import Reason
from cost_profiles import plan_by, profile_with
from own_store import own_store
from plan_facts import CPU, FACTS, launches

FOUND = Estimate(1e-3, 5e-4, 2e-3, {"memory": 1e-3})


def layout(*shape: int, dtype: str = "f8") -> Layout:
    return make_layout(np.dtype(dtype), shape)


def loop(*names: str, shape: tuple[int, ...] = (1_000_000,), dtype: str = "f8") -> Group:
    """Return a group of unary ops, one after another."""
    own = layout(*shape, dtype=dtype)
    nodes = [Node(OPS[name], (i,), (), own) for i, name in enumerate(names)]
    return Group(GroupKind.LOOP, Graph((own,), tuple(nodes), (len(names),)), shape)


def lesson(times: float, runs: float = 30.0, basis: str = "now", unit: float = -10.0) -> Lesson:
    return Lesson(basis, unit, 1.0, {round(BINS * np.log2(times)): runs})


def taught(cells: dict[str, Lesson]) -> Learned:
    return Learned(cells, "now")


def test_without_runs_the_profile_speaks() -> None:
    found = taught({}).corrected(FOUND, loop("exp"), "numpy")
    assert replace(found, cell="", model_seconds=0.0) == FOUND
    assert (found.cell, found.model_seconds) == (cell_of(loop("exp"), "numpy"), FOUND.seconds)


@pytest.mark.parametrize("times", [0.1, 0.6, 1.0, 4.7, 20.0])
def test_thirty_runs_bring_a_prediction_within_a_quarter(times: float) -> None:
    group = loop("exp")
    found = taught({cell_of(group, "numpy"): lesson(times)}).corrected(FOUND, group, "numpy")
    assert found.seconds == pytest.approx(times * FOUND.seconds, rel=0.25)
    assert sum(found.terms.values()) == pytest.approx(found.seconds)
    assert found.runs == 30
    assert found.low < found.seconds < found.high


def test_an_interval_shrinks_with_the_runs() -> None:
    group = loop("exp")
    widths = []
    for runs in (1, 4, 30):
        known = taught({cell_of(group, "numpy"): lesson(2.0, runs)})
        found = known.corrected(FOUND, group, "numpy")
        widths.append(found.high / found.low)
    assert FOUND.high / FOUND.low > widths[0] > widths[1] > widths[2]


def test_outliers_move_no_median() -> None:
    bins = {0: 20.0, 8: 1.0, 60: 5.0, -40: 4.0}
    assert abs(quantile(bins, 0.5)) <= 0.5 / BINS


def test_a_busy_machine_makes_no_choice_between_implementations() -> None:
    names = ("exp", "sin", "cos", "tan", "log", "sqrt")
    groups = [loop(name, shape=(n,)) for name in names for n in (1 << 20, 1 << 22, 1 << 24)]
    known = taught({cell_of(group, "generated"): lesson(3.0) for group in groups})
    ours = known.corrected(FOUND, groups[0], "generated").seconds
    numpys = known.corrected(replace(FOUND, seconds=1.5e-3), groups[0], "numpy")
    assert ours < 3.1e-3
    assert numpys.seconds > 1.3 * 1.5e-3, "it runs on the same machine"
    assert numpys.runs == 0


def test_cells_tell_work_apart() -> None:
    rolled = loop("exp", shape=(20_000, 40))
    cells = {
        cell_of(group, "numpy")
        for group in (
            *(loop("exp"), loop("sin"), loop("exp", "sin"), loop("exp", dtype="f4"), rolled),
            *(loop("exp", shape=(4_000_000,)), loop("exp", shape=(1000, 1000))),
        )
    }
    assert len(cells) == 6, "rows of a thousand are as one long one"
    assert cell_of(loop("exp", shape=(900_000,)), "numpy") == cell_of(loop("exp"), "numpy")


def test_another_profile_keeps_what_work_took() -> None:
    group = loop("exp")
    cell = cell_of(group, "numpy")
    before = lesson(4.0, basis="before", unit=float(np.log2(FOUND.seconds)))
    half = Estimate(2e-3, 1e-3, 4e-3, {"memory": 2e-3})  # the new one says twice as long
    found = taught({cell: before}).corrected(half, group, "numpy")
    assert found.seconds == pytest.approx(4e-3, rel=0.25)
    both = learning._together(before, lesson(2.0, 3.0, unit=before.unit + 1.0)._replace(at=2.0))
    assert both.basis == "now"
    assert quantile(both.bins, 0.5) == pytest.approx(1.0, abs=0.6 / BINS)


def test_one_process_and_old_ones_have_a_bounded_say() -> None:
    old = {"cell": lesson(8.0, 64.0)}
    for at in (2.0, 3.0, 4.0):
        old = learning._merged(old, {"cell": lesson(1.0, 32.0)._replace(at=at)})
        assert old["cell"].runs <= 64.1
    assert abs(quantile(old["cell"].bins, 0.5)) < 0.2, "it is forgotten"
    many = {f"cell {i}": lesson(1.0)._replace(at=float(i)) for i in range(2000)}
    kept = learning._merged({}, many)
    assert set(kept) == {f"cell {i}" for i in range(2000 - learning._KEPT, 2000)}


def test_what_nobody_of_ours_wrote_teaches_nothing() -> None:
    rows: dict[str, Any] = {
        **{"a": 1, "b": [], "c": ["x", 1.0, 1.0, {}], "d": ["x", 1.0, 1.0, {"z": 1}]},
        **{"e": ["x", 1.0, 1.0, {"1": -1.0}], "f": ["x", None, 1.0, {"1": 1.0}]},
        **{"g": ["x", 1.0, 1.0, [1]], "h": ["x", 1.0, 1.0, {"100000": 1.0}]},
        **{"i": ["x", float("nan"), 1.0, {"1": 1.0}], "j": ["x", 1e9, 1.0, {"1": 1.0}]},
        "good": ["x", 1.0, 1.0, {"1": 1.0}],
    }
    assert set(learning._lessons({"cells": rows})) == {"good"}
    for cells in ({}, {"cells": []}, {"cells": None}):
        assert learning._lessons(cells) == {}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Profile]:
    """Have a profile of the host that predicts, an empty store and an empty log."""
    profile = replace(profile_with({}, "numpy"), made_at=5.0)
    monkeypatch.setattr(learning, "default_store", lambda: store)
    store = Store(tmp_path)
    LOG.reset()
    forget(Cache.PROFILES)
    plan_by(monkeypatch, profile)
    yield profile
    LOG.reset()
    forget(Cache.PROFILES)


def ran(group: Group, seconds: Sequence[float], first: bool = False) -> None:
    """Log runs of a group that the host's NumPy took so long for."""
    found = predicted(group)
    decision = Decision(
        *("exp", "loop", "key", ("float64",), ((10,),), 10, 10.0, 80, 1, (("host",),)),
        *("cpu", "numpy", Reason.CHEAPEST, None, (Candidate("cpu", "numpy", found),)),
    )
    for took in seconds:
        LOG.launched(decision, None, took, ("numpy", "cpu"), 0, first)


def next_start(profile: Profile) -> None:
    learning.keep()
    forget(Cache.PROFILES)
    planner_facts._profiles["cpu"] = profile


def predicted(group: Group) -> Estimate:
    found = planner_facts.estimate(group, "cpu", "numpy")
    assert found is not None
    return planner_facts.learned(found, group, "cpu", "numpy")


def test_the_next_start_goes_by_what_runs_took(host: Profile) -> None:
    group = loop("exp")
    before = predicted(group).seconds
    ran(group, [1.0], first=True)  # it also pays for fresh memory
    ran(group, [4.7 * before] * 30)
    assert predicted(group).seconds == before, "nothing changes while a program runs"
    next_start(host)
    after = predicted(group)
    assert after.seconds == pytest.approx(4.7 * before, rel=0.25)
    assert (after.runs, after.model_seconds) == (30, before)
    ran(group, [4.7 * before] * 30)
    next_start(host)
    assert predicted(group).seconds == pytest.approx(4.7 * before, rel=0.15), "and not by its own"
    model = planner_facts.estimate(group, "cpu", "numpy")
    assert model is not None
    assert (model.seconds, model.runs) == (before, 0)


def test_a_process_leaves_what_it_took_once(host: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Any] = []
    monkeypatch.setattr(learning, "when_over", ends.append)
    learning._keep_when_over.cache_clear()
    group = loop("exp")
    for _ in range(3):  # settings that change have profiles looked up anew
        forget(Cache.PROFILES)
        planner_facts._profiles["cpu"] = host
        predicted(group)
    learning._keep_when_over.cache_clear()
    assert ends == [learning.keep]


def test_at_once_changes_predictions_in_the_process(host: Profile) -> None:
    group = loop("exp")
    before = predicted(group).seconds
    ran(group, [4.0 * before] * 30)
    learning.at_once()
    assert predicted(group).seconds == pytest.approx(4.0 * before, rel=0.25)
    ran(group, [4.0 * before])
    known = learning._known["cpu"]
    learning.at_once()
    assert learning._known["cpu"] is known, "one run more is no reason to look"


def test_two_processes_that_end_together_both_count(host: Profile) -> None:
    group = loop("exp")
    before = predicted(group).seconds
    ran(group, [2.0 * before] * 4)
    learning.keep()
    learning.keep()  # as another would
    next_start(host)
    assert predicted(group).runs == 12


def test_a_kept_plan_that_was_made_by_other_factors_is_not_used(host: Profile) -> None:
    group = loop("exp")
    before = predicted(group)
    plan = _plan_of(before)
    assert learning.holds(plan)
    ran(group, [4.0 * before.seconds] * 30)
    next_start(host)
    assert predicted(group).runs
    assert not learning.holds(plan)
    assert learning.holds(_plan_of(predicted(group)))


def _plan_of(found: Estimate) -> Plan:
    decision = Decision(
        *("exp", "loop", "key", ("float64",), ((10,),), 10, 10.0, 80, 1, (("host",),)),
        *("cpu", "numpy", Reason.CHEAPEST, None, (Candidate("cpu", "numpy", found),)),
    )
    step = LaunchStep(loop("exp"), "cpu", "numpy", (0,), (1,), decision)
    return Plan((step,), ((),), (1,))


def test_off_goes_by_the_profile_alone(host: Profile) -> None:
    with alight.policy(learn="off"):
        facts = evaluate.facts_of(())
    assert facts.learned is None
    assert evaluate.facts_of(()).learned is planner_facts.learned


def test_what_one_took_is_not_held_against_what_never_ran() -> None:
    group = loop("exp")
    cells = {name: cell_of(group, name) for name in ("generated", "numpy")}
    one = taught({cells["generated"]: lesson(8.0)})
    both = taught({cells["generated"]: lesson(8.0), cells["numpy"]: lesson(1.0)})

    def estimate(group: Group, device: str, name: str) -> Estimate:
        seconds = 1.0 if name == "generated" else 3.0
        return Estimate(seconds, seconds / 2, seconds * 2, {"memory": seconds})

    def decided(known: Learned) -> Decision:
        def learned(found: Estimate, group: Group, device: str, name: str) -> Estimate:
            return known.corrected(found, group, name)

        facts = replace(FACTS, devices=(CPU,), estimate=estimate, learned=learned)
        (step,) = launches(make_plan(group.graph, facts))
        return step.decision

    assert decided(taught({})).implementation == "generated"
    found = decided(one)
    assert (found.implementation, found.reason) == ("generated", "cheapest")
    numpys, own = (c.estimate for c in found.candidates)
    assert own is not None and numpys is not None
    assert own.seconds == pytest.approx(8.0, rel=0.1), "what it takes is told"
    assert gained(own, numpys) == 2.0
    assert decided(both).implementation == "numpy"


PROGRAM = """
import numpy as np
import alight
a = alight.asarray(np.ones(200_000))
with alight.policy(floor=0, force="cpu:numpy"):
    for _ in range(30):
        alight.evaluate(alight.cumsum(a))
document = alight.report().to_dict()
(found,) = {
    (c["learned_runs"], c["model_seconds"] and c["seconds"] != c["model_seconds"] or None)
    for row in document["decisions"] for c in row["candidates"] if c["implementation"] == "numpy"
}
print(*found)
"""


def test_processes_leave_what_their_runs_took(tmp_path: Path) -> None:
    with own_store(tmp_path):
        made = recorded("cpu", DEFAULT_SPEC)
        here = fingerprint(registry.device("cpu"))
        made = replace(made, rates={"numpy": made.rates["library"]}, links={}, origin="measured")
        assert save_profile(replace(made, fingerprint=here, made_at=time())).path is not None
    environment = {**os.environ, "ALIGHT_CACHE_DIR": str(tmp_path), "ALIGHT_CALIBRATE": "off"}
    lines = []
    for learn in ("next", "next", "off"):
        began = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**environment, "ALIGHT_LEARN": learn},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert began.returncode == 0, began.stderr
        lines.append(began.stdout.strip())
    assert lines == ["0 None", "29 True", "0 None"]
