"""What small kernels take on a card: how many threads they have there, and what few of them wait
for; and how a program of such is cut."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alight._core import make_layout
from alight._src.adapt import planner_facts
from alight._src.codegen.cuda.column_kernels import Columns
from alight._src.codegen.cuda.group_forms import card_nest, form, schedule
from alight._src.codegen.cuda.kernel_program import row_count
from alight._src.explain.dry_run import requests_of
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.ir.table_reduction import LANES
from alight._src.plan.cost import estimate
from alight._src.plan.occupancy import lone_seconds
from alight._src.plan.passes import BLOCK, Pass, columns_of, passes
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Estimate, LaunchStep
from alight._src.plan.profile import Profile
from alight.backends import registry
from alight.backends.cuda.cuda_backend import described

TABLE = Path(__file__).resolve().parents[2] / "bench-results" / "h200" / "regret.json"
PROCESSORS = 132


def quotients(shape: tuple[int, int], axis: int, factor: tuple[int, int]) -> Group:
    """Return sums along an axis of what is divided twice by factors of this shape."""
    dtype = np.dtype(np.float64)
    whole, beside = make_layout(dtype, shape), make_layout(dtype, factor)
    left = make_layout(dtype, (shape[1 - axis],))
    nodes = (
        Node(OPS["divide"], (0, 1), (), whole),
        Node(OPS["divide"], (2, 1), (), whole),
        Node(OPS["sum"], (3,), (("axis", (axis,)),), left),
    )
    return Group(GroupKind.REDUCE, Graph((whole, beside), nodes, (4,)), shape)


def only(group: Group) -> Pass:
    (item,) = passes(group, "generated")
    return item


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((32, 32), 0), ((300, 40), 0), ((1000, 40), 0), ((32, 32), 1), ((64, 500), 1), ((5000, 8), 1)],
)
def test_a_group_has_as_many_threads_as_its_kernel_gives_it(
    shape: tuple[int, int], axis: int
) -> None:
    group = quotients(shape, axis, (1, 1))
    nest = card_nest(group)
    grid = schedule(group, nest, (0, 0, 0), PROCESSORS)
    made = form(group, nest, grid)
    threads = row_count(nest)
    if isinstance(made, Columns):
        threads *= made.parts()[0] * (LANES if grid.team else 1)
    elif not nest.unrolled:
        threads *= grid.team
    else:
        assert grid.elements == 1
    # parts of rows and columns are whole chunks, teams powers of two
    assert only(group).threads == pytest.approx(threads, rel=0.25)
    assert threads <= made.steps()[0].blocks * grid.block


def measured_profiles() -> dict[str, Profile]:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    return {name: Profile.from_dict(item) for name, item in table["profiles"].items()}


def test_few_threads_wait_for_one_operation_after_the_other() -> None:
    """The fewer threads share the elements, the longer each waits; below half a block nobody shares
    what schedules them, so that a quarter of the threads takes four times as long."""
    profiles = measured_profiles()
    rates = profiles["cuda:0"].rates["generated"]
    group = quotients((32, 32), 0, (1, 32))
    item = only(group)
    took = {n: lone_seconds(rates, group.graph, replace(item, threads=n)) for n in (8, 32, 128)}
    assert took[8] == pytest.approx(4 * took[32]) and took[32] == pytest.approx(4 * took[128])
    half = lone_seconds(rates, group.graph, replace(item, threads=BLOCK / 2))
    assert half == lone_seconds(rates, group.graph, replace(item, threads=BLOCK))
    assert lone_seconds(rates, group.graph, replace(item, threads=2 * BLOCK)) == half / 2
    # divisions of float64 are waited for some 60 ns each, 32 of them 2 us, and a thread has 64
    whole = estimate(group, "cuda:0", "generated", profiles["cuda:0"])
    assert whole is not None and item.threads == 32
    assert whole.terms["memory"] + whole.terms["compute"] >= took[32] > 2e-6


def test_what_was_not_measured_in_one_block_takes_as_long_as_its_body() -> None:
    """Five seconds may end before functions were timed in one block: then they do not take nothing
    there."""
    rates = measured_profiles()["cuda:0"].rates["generated"]
    left = ("max@lone", "add@lone")
    few = replace(rates, work={k: v for k, v in rates.work.items() if k.startswith(left)})
    (row, one) = (make_layout(np.dtype(np.float64), shape) for shape in ((8192,), ()))
    nodes = (Node(OPS["exp"], (0,), (), row), Node(OPS["sum"], (1,), (("axis", (0,)),), one))
    group = Group(GroupKind.REDUCE, Graph((row,), nodes, (2,)), row.shape)
    known, guessed = (lone_seconds(r, group.graph, only(group)) for r in (rates, few))
    alone = Node(OPS["sum"], (0,), (("axis", (0,)),), one)
    reduction = Group(GroupKind.REDUCE, Graph((row,), (alone,), (1,)), row.shape)
    nothing = lone_seconds(few, reduction.graph, only(reduction))
    assert nothing < guessed < 2 * known


@pytest.mark.parametrize("factor", [(1, 200), (300, 1), (1, 1)])
def test_columns_are_reduced_along_what_most_elements_lie_along(factor: tuple[int, int]) -> None:
    """A factor of each row has its own neighbours there, but there are few of them."""
    group = quotients((300, 200), 0, factor)
    assert card_nest(group).columns
    assert columns_of(group) == (300, 200)
    assert not card_nest(quotients((300, 200), 1, factor)).columns
    assert only(quotients((300, 200), 1, factor)).kind == "reduce_inner"
    assert prod(card_nest(group).dims) == 300 * 200


def balanced(a: Any) -> Any:
    """Return a matrix normalised by columns and rows in turn."""
    b = a / a.sum(axis=0, keepdims=True)
    c = b / b.sum(axis=1, keepdims=True)
    d = c / c.sum(axis=0, keepdims=True)
    return d / d.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("measured", [True, False])
def test_quotients_that_a_kernel_takes_along_are_not_divided_again(measured: bool) -> None:
    """On an H200 four such kernels of 32 x 32 float32 took 3.5 to 3.8 us each; with each quotient
    divided again in every later one the third took 9.8."""
    profiles = measured_profiles()
    (request,) = requests_of(balanced, (np.ones((32, 32), np.float32),), {})
    card = {"name": "NVIDIA H200", "uuid": "", "memory": 1 << 37, "processors": PROCESSORS}
    card["capability"] = "9.0"
    driver = {"vendor": "NVIDIA", "driver": 13000, "runtime": 13020, "cupy": "14.2.0"}
    device = described(0, {"cards": [card], **driver})
    devices = {"cuda:0": device, "cpu": registry.device("cpu")}

    def predicted(group: Group, name: str, implementation: str) -> Estimate | None:
        return estimate(group, name, implementation, profiles[name]) if measured else None

    facts = replace(
        request.facts(),
        devices=tuple(devices.values()),
        profiles={},
        force=("cuda:0", "generated"),
        supports=lambda name, by, group: planner_facts.gap_on(devices[name], by, group),
        estimate=predicted,
        timed=None,
    )
    steps = [s for s in make_plan(request.graph, facts).steps if isinstance(s, LaunchStep)]
    told = ["sum", "divide+sum+divide"] * 2
    assert [step.decision.operation for step in steps] == told
