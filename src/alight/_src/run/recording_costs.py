"""What recording costs beyond NumPy's own time: an op that is planned in vain, and one step more of
a plan, as measured here."""

from __future__ import annotations

from time import perf_counter

from alight._core import Data, Value, make_layout
from alight._src.adapt import planner_facts
from alight._src.base.originals import np
from alight._src.config.loading import policy
from alight._src.ir.op_table import OPS
from alight._src.log.decisions import LOG
from alight._src.run import residency
from alight._src.run.evaluate import evaluate

__all__ = ["planning_seconds", "step_seconds"]

# Ops that share a plan's fixed cost, when the floor asks what planning an op costs: a statement of
# array code has 3.6 on average (94 statements of 18 npbench programs, counted; the median is 2).
_STATEMENT = 4


# The least of so many is one that nothing disturbed; the first ones make the plan.
_TIMES = 12


def planning_seconds() -> float:
    """Return what one recorded op costs beyond NumPy's own time where it is planned in vain, in
    seconds: its share of a statement whose plan is known, and leaves the work to NumPy.

    That is the most that planning loses once its plan is made, and takes no kernel: while one is
    made, or on trial, runs cost more, and not by planning (2 to 6 times as much).
    """
    layout = make_layout(np.dtype(np.float64), (1,))
    leaf = Value(None, (), (), layout)
    leaf.data = Data(layout, np.zeros(1))
    op = OPS["square"]
    best = float("inf")
    with (
        residency.LOCK,
        LOG.forgetting(),
        planner_facts.aside(),
        policy(force="cpu:numpy", floor=0),
    ):
        for _ in range(_TIMES):
            began = perf_counter()
            value = leaf
            for _ in range(_STATEMENT):
                value = Value(op, (value,), (), layout)
            evaluate((value,), read=False)
            best = min(best, perf_counter() - began)
    return best / _STATEMENT


# Steps of the plan that tells what one more takes: as many as programs of a few statements have.
_STEPS = 8


def step_seconds(where: str = "cpu:numpy") -> float:
    """Return the host's seconds for one step more of a plan: a call on a few elements, of NumPy or
    where else it is forced to."""
    leaves = []
    for length in range(1, _STEPS + 2):  # no two of a shape: each is a step of its own
        leaf = Value(None, (), (), make_layout(np.dtype(np.float32), (length,)))
        leaf.data = Data(leaf.layout, np.zeros(length, np.float32))
        leaves.append(leaf)

    def took(count: int) -> float:
        best = float("inf")
        for _ in range(_TIMES):  # the first ones make the plan
            values = [Value(OPS["negative"], (leaf,), (), leaf.layout) for leaf in leaves[:count]]
            began = perf_counter()
            evaluate(values, read=False)
            best = min(best, perf_counter() - began)
        return best

    with residency.LOCK, LOG.forgetting(), planner_facts.aside(), policy(force=where, floor=0):
        return max(0.0, took(_STEPS + 1) - took(1)) / _STEPS
