"""Programs in which arrays without elements meet others, priced by rates that were measured."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import make_layout
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.plan.access_pattern import Runs, runs_of
from alight._src.plan.cost import Profile, Rates, estimate
from alight._src.plan.curve import Curve, guess

_PROGRAM = """
import random, sys, warnings
import numpy
import alight
warnings.simplefilter("ignore")
seed, count = int(sys.argv[1]), int(sys.argv[2])

def drawn(draw, np):
    "One expression of a large array and of what is left of it."
    x = np.arange(240_000.0).reshape(40, -1) * 2
    whole = {"y": x}
    for name in "abcd":
        axis, step = draw.randint(0, 1), draw.choice((1, -1, 2))
        cut = [slice(None, None, step)] * 2
        if draw.random() < 0.7:
            cut[axis] = draw.choice((slice(6000, None), slice(0, 0), slice(3, 3, 2)))
        part = draw.choice(list(whole.values()))
        try:
            part = part[tuple(cut[:part.ndim])] if part.ndim else part
            way = draw.randint(0, 9)
            if way == 0:
                part = np.ceil(part[:, None])
            elif way == 1:
                part = np.sqrt(part).T
            elif way == 2:
                part = part.sum(axis=draw.choice((0, -1, None))) + 1
            elif way == 3:
                part = np.where(part > 1, part, 0) * 3
            elif way == 4:
                part = part @ part.T
            elif way == 5:
                part = np.concatenate([part, part]) / 2
            elif way == 6:
                part = np.cumsum(part, axis=0) - 1
            elif way == 7:
                part = np.broadcast_to(part[None], (3, *part.shape)) + part
            elif way == 8:
                part = np.exp(part.astype("f4")) * part
            else:
                part = part[..., ::2].copy() + part[..., 1::2] if part.ndim else part
        except (ValueError, IndexError) as error:
            part = np.zeros(3) + len(type(error).__name__)
        whole[name] = part
    return whole

x = alight.ones((1000, 1000))
y = x * 2
e = alight.ceil(y[:, 1000:, None]).copy()
assert float(y.sum()) == 2e6 and e.shape == (1000, 0, 1)
differs = 0
for number in range(count):
    expected = drawn(random.Random(seed + number), numpy)
    found = drawn(random.Random(seed + number), alight)
    for name, array in reversed(expected.items()):
        other = numpy.asarray(found[name])
        same = other.shape == array.shape and other.dtype == array.dtype and (
            numpy.allclose(other, array, rtol=1e-5, equal_nan=True))
        differs += not same
        if not same:
            print("seed", seed + number, name, array.shape, other.shape)
print("differ", differs)
"""


@pytest.mark.parametrize("force", ["", "cpu:generated", "cpu:numpy", "sim:0"])
def test_what_has_no_elements_is_priced_and_computed(force: str, tmp_path: Path) -> None:
    seed = 4000
    print("seed", seed)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ALIGHT_")}
    environment["ALIGHT_CACHE_DIR"] = str(tmp_path)
    if force:
        environment |= {"ALIGHT_FORCE": force, "ALIGHT_DEVICES": "cpu,sim:0"}
    made = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(seed), "12"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[-1] == "differ 0", made.stdout


def test_nests_over_nothing_have_no_loops() -> None:
    empty = make_layout(np.dtype("f8"), (1000, 0, 1))
    assert runs_of((1000, 0, 1), (empty,), (empty,)) == Runs(0, 1, 0, 0)
    reduced = make_layout(np.dtype("f8"), (1000, 1))
    assert runs_of((1000, 0, 1), (empty,), (reduced,), (1,)) == Runs(0, 1, 0, 0)


_WORK = (
    *("flop", "special", "exp", "near", "far", "far@reduced", "back", "turned64", "copied64"),
    *("start@elementwise", "short@elementwise", "long@elementwise", "start@reduce_inner"),
    *("short@reduce_inner", "start@reduce_outer", "start@near", "start@whole", "start@across"),
    *("beside@reduce_inner", "torn@reduce_inner", "combined@reduce_inner", "distant"),
    *("flop@beside", "special@beside", "iterator@elementwise", "short@copied", "sum@reduce_inner"),
)


def _profile(device: str, implementation: str) -> Profile:
    knots = [(n, 1e-6 + 1e-10 * n) for n in (1 << i for i in range(4, 31))]
    kinds = (
        *("elementwise", "select", "reduce_inner", "reduce_outer", "reduce_narrow"),
        *("reduce_rows", "scan", "move"),
    )
    rates = Rates(
        guess(1e-6, "seconds"),
        guess(1e-6, "seconds"),
        {f"{kind}/float64": Curve(knots) for kind in kinds},
        {f"{name}/float64": guess(1e-9, "seconds") for name in _WORK},
        guess(0.5, "share"),
        0.1,
    )
    return Profile(device, {implementation: rates})


@pytest.mark.parametrize("implementation", ["numpy", "generated", "library"])
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_groups_of_no_elements_have_a_price(device: str, implementation: str) -> None:
    seed, kind = 5, np.dtype("f8")
    print("seed", seed)
    draw = random.Random(seed)
    profile = _profile(device, implementation)
    for _ in range(300):
        shape = tuple([draw.choice((0, 1, 3, 500)) for _ in range(draw.randint(1, 3))])
        shape = shape if draw.random() < 0.3 or 0 in shape else (0, *shape)
        inputs = []
        for _ in range(draw.randint(1, 3)):
            own = tuple([1 if draw.random() < 0.3 else n for n in shape])
            steps = tuple([draw.choice((0, 8, 8, 16, -8, 800)) for _ in own])
            inputs.append(make_layout(kind, own, draw.choice((steps, None))))
        whole = make_layout(kind, shape)
        nodes: list[Node] = []
        for _ in range(draw.randint(1, 3)):
            two = (draw.randrange(len(inputs)), len(inputs) + len(nodes) - 1 if nodes else 0)
            name = draw.choice(("add", "ceil", "exp", "sqrt"))
            nodes.append(Node(OPS[name], two if name == "add" else two[1:], (), whole))
        group = GroupKind.LOOP
        if draw.random() < 0.5:
            axes = tuple(sorted(draw.sample(range(len(shape)), draw.randint(1, len(shape)))))
            left = make_layout(kind, tuple([n for i, n in enumerate(shape) if i not in axes]))
            last = len(inputs) + len(nodes) - 1
            nodes.append(Node(OPS[draw.choice(("sum", "max"))], (last,), (("axis", axes),), left))
            group = GroupKind.REDUCE
        graph = Graph(tuple(inputs), tuple(nodes), (len(inputs) + len(nodes) - 1,))
        found = estimate(Group(group, graph, shape), device, implementation, profile)
        assert found is not None and 0.0 <= found.low <= found.seconds <= found.high < 1.0


@pytest.mark.parametrize("force", ["cpu:numpy", "cpu:generated", "sim:0"])
def test_rows_of_nothing_may_begin_before_their_memory(force: str) -> None:
    """Rows of no columns have strides of their own from NumPy 2.5 on; here they are given."""
    rows = np.lib.stride_tricks.as_strided(np.zeros(0), (3, 0), (8, 8))

    @alight.jit
    def second(written: Any, read: Any) -> Any:
        written[2] = read[1]
        return read[1]

    with alight.policy(floor=0, force=force):
        assert second(rows, rows[::-1]).shape == (0,)


@pytest.mark.parametrize("force", ["cpu:numpy", "cpu:generated", "sim:0"])
def test_windows_of_rows_of_nothing_are_returned_by_every_call(force: str) -> None:
    a, b, c = (np.lib.stride_tricks.as_strided(np.zeros(0), (3, 0), (8, 8)) for _ in range(3))

    @alight.jit
    def parts(a: Any, b: Any, c: Any) -> Any:
        b -= a[::-1]
        return a[:-1], c[:0:-1], b

    with alight.policy(floor=0, force=force):
        for _ in range(5):
            assert [part.shape for part in parts(a, b, c)] == [(2, 0), (2, 0), (3, 0)]
