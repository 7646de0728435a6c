"""Plans as documents: what is read is what was written, and what no plan can be is found out."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from alight._core import make_layout
from alight._src.ir.graph import Graph, Node
from alight._src.ir.op_table import OPS
from alight._src.plan.check import check_plan
from alight._src.plan.place import make_plan
from alight._src.plan.plan import LaunchStep
from alight._src.plan.plan_text import NotWritten, as_document, graph_document, of_document
from graphs import array_at, evaluate, random_graph, run_plan
from plan_facts import CPU, FACTS, contents, launches, some_seconds

AT_HOME = replace(FACTS, devices=(CPU,), estimate=some_seconds)


def planned(seed: int) -> tuple[Graph, Any]:
    graph, _ = random_graph(seed, 6 + seed % 40)
    return graph, make_plan(graph, AT_HOME)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_read_is_what_was_written(seed: int) -> None:
    graph, plan = planned(seed)
    found = of_document(json.loads(json.dumps(as_document(plan))))
    assert contents(found) == contents(plan)
    check_plan(found, graph)
    layouts = [step.group.graph.layouts for step in launches(plan)]
    again = [step.group.graph.layouts for step in launches(found)]
    assert all(
        a is b
        for one, two in zip(layouts, again, strict=True)
        for a, b in zip(one, two, strict=True)
    )


def test_groups_that_are_one_stay_one() -> None:
    several = 0
    for seed in range(40):
        _, plan = planned(seed)
        found = of_document(json.loads(json.dumps(as_document(plan))))
        for steps in (plan.steps, found.steps):
            groups = [id(step.group) for step in steps if isinstance(step, LaunchStep)]
            several += len(groups) - len(set(groups))
    assert several % 2 == 0


def test_equal_graphs_have_equal_documents_and_others_have_others() -> None:
    seen = [json.dumps(graph_document(random_graph(seed, 20)[0])) for seed in range(30)]
    again = [json.dumps(graph_document(random_graph(seed, 20)[0])) for seed in range(30)]
    assert seen == again and len(set(seen)) == 30


def test_types_that_equal_each_other_have_documents_of_their_own() -> None:
    """``long`` and ``long long`` are equal, and hash alike, where both have eight bytes."""
    documents = []
    for char in "lqLQ":
        layout = make_layout(np.dtype(char), (4,))
        graph = Graph((layout,), (Node(OPS["negative"], (0,), (), layout),), (1,))
        documents.append(json.dumps(graph_document(graph)))
    assert len(set(documents)) == 4


def test_what_has_no_name_is_not_written() -> None:

    graph, plan = planned(3)
    step = launches(plan)[0]
    with pytest.raises(NotWritten):
        as_document(replace(plan, steps=(replace(step, schedule=object()), *plan.steps[1:])))
    assert graph_document(graph)


def spoiled(document: Any, rng: random.Random) -> Any:
    """Return a document with one thing in it changed."""
    found = copy.deepcopy(document)
    places: list[tuple[Any, Any]] = []

    def walk(item: Any) -> None:
        keys = list(item) if isinstance(item, dict) else range(len(item))
        for key in keys:
            if isinstance(item[key], dict | list):
                walk(item[key])
            places.append((item, key))

    for part in ("steps", "dead", "outputs", "groups", "layouts"):
        walk(found[part])
    holder, key = rng.choice(places)
    old = holder[key]
    if isinstance(old, bool) or old is None:
        holder[key] = 3
    elif isinstance(old, int | float):
        holder[key] = old + rng.choice((-1, 1, 1000))
    elif isinstance(old, str):
        holder[key] = rng.choice(("add", "multiply", "", "cpu", "__import__", "float32"))
    elif isinstance(old, list):
        holder[key] = rng.choice((old[:-1], old[::-1], [*old, 0], {}))
    else:
        holder[key] = []
    return found


def test_what_was_spoiled_is_refused_or_does_no_harm() -> None:
    rng = random.Random(7)
    refused = 0
    for seed in range(25):
        graph, inputs = random_graph(seed, 6 + seed % 40)
        document = json.loads(json.dumps(as_document(make_plan(graph, AT_HOME))))
        expected = evaluate(graph, inputs)
        for _ in range(40):
            try:
                plan = of_document(spoiled(document, rng))
                check_plan(plan, graph)
            except Exception:  # whatever it is, it is no plan: `found` takes all for that
                refused += 1
                continue
            found, _ = run_plan(plan, inputs)
            # by their bytes: the stride of an axis of one element moves nothing, and may be any
            for n in graph.outputs:
                assert array_at(found[n]).tobytes() == array_at(expected[n]).tobytes()
    assert refused > 500
