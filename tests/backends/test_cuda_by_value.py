"""Values of constants that come with a launch: every form of kernel takes them, and calls pass
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuda_on_cpu
import nvrtc
from alight._src.codegen.common.source import Grid
from alight._src.codegen.cuda.group_forms import OPTIONS, card_nest, form, schedule
from alight._src.codegen.cuda.kernel_program import scalars
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from generated import Array, loop_group, reduce_group, run, values_for
from reduction_cases import Rows, assert_same_bits, chain_reductions
from without_card import needs_compiler, passes

F = np.dtype(np.float32)
Made = tuple[Group, list[Array], Grid | None]


def scaled(x: Array, scale: Any, grid: Grid | None = None) -> Made:
    """Return a scale times an array, plus the array."""
    inputs = [x, np.asarray(scale, x.dtype)]
    dtype = x.dtype
    uses = [(OPS["multiply"], (0, 1), (), dtype), (OPS["add"], (2, 0), (), dtype)]
    return loop_group(inputs, uses), inputs, grid


def rows(length: int) -> Made:
    x = values_for(F, (5, length), 6)
    found = Rows((1,), x, np.asarray(0.7, F))
    centred = found.add("subtract", found.add("multiply", 0, 1), found.reduction("mean", 0))
    return found.group(centred), [x, np.asarray(0.7, F)], None


def masked(shape: tuple[int, ...], axes: tuple[int, ...]) -> Made:
    """Return a sum from an initial value on, where a scalar says."""
    x, scale = values_for(F, shape, 3), np.asarray(1.5, F)
    group = reduce_group([x], ["sum"], axes)
    (reduction,) = group.graph.nodes
    lay = group.graph.inputs[0]
    nodes = (
        Node(OPS["multiply"], (0, 1), (), lay),
        Node(reduction.op, (2,), reduction.attrs, reduction.layout),
    )
    inputs = (lay, loop_group([scale], []).graph.inputs[0])
    graph = Graph(inputs, nodes, (3,))
    return Group(group.kind, graph, group.shape), [x, scale], None


def scanned() -> Made:
    x, three = values_for(np.dtype("int64"), (700,), 8), np.asarray(3, np.int64)
    lay = loop_group([x, three], []).graph.inputs
    nodes = (
        Node(OPS["multiply"], (0, 1), (), lay[0]),
        Node(OPS["cumsum"], (2,), (("axis", 0),), lay[0]),
        Node(OPS["subtract"], (3, 1), (), lay[0]),
    )
    return Group(GroupKind.SCAN, Graph(lay, nodes, (4,)), x.shape), [x, three], None


def chain(length: int) -> Made:
    x, scale = values_for(F, (length,), 4), np.asarray(0.3, F)
    return chain_reductions(x, scale, ("sum", "argmin")), [x, scale], None


WIDE = values_for(np.dtype(np.float64), (40, 70), 2)
FORMS: dict[str, Callable[[], Made]] = {
    "packs": lambda: scaled(values_for(F, (4003,), 1), 2.5),
    "packs, read ahead": lambda: scaled(
        values_for(F, (4003,), 1), 2.5, Grid(64, 4, 32, ahead=2, blocks=3)
    ),
    "one by one": lambda: scaled(WIDE[:, ::3], -0.0, Grid(64, 1, 64)),
    "tiles": lambda: scaled(WIDE[1:-1, ::-1], np.nan, Grid(64, 1, 32, turns=4, ahead=2)),
    "halves": lambda: scaled(values_for(np.dtype(np.float16), (301,), 1), 0.1),
    "bytes": lambda: scaled(values_for(np.dtype(np.int8), (301,), 1), -3),
    "truths": lambda: (
        loop_group(
            [values_for(F, (99,), 1), np.asarray(True), np.asarray(False)],
            [
                (OPS["where"], (1, 0, 0), (), F),
                (OPS["logical_or"], (1, 2), (), np.dtype(bool)),
            ],
        ),
        [values_for(F, (99,), 1), np.asarray(True), np.asarray(False)],
        None,
    ),
    "pairs": lambda: scaled(values_for(np.dtype(np.complex64), (77,), 1), 1 - 2j),
    "rows that stay": lambda: rows(40),
    "rows read again": lambda: rows(3000),
    "short rows": lambda: masked((300, 3), (1,)),
    "parts of a row": lambda: masked((70001,), (0,)),
    "columns": lambda: masked((90, 300), (0,)),
    "few columns": lambda: masked((5000, 4), (0,)),
    "made again": lambda: chain(70001),
    "scan": scanned,
}


@needs_compiler
@pytest.mark.parametrize("name", FORMS)
def test_every_form_takes_what_comes_by_value(name: str) -> None:
    group, inputs, grid = FORMS[name]()
    known = scalars(group, card_nest(group))
    assert known == tuple(i for i, x in enumerate(inputs) if not x.ndim)
    with np.errstate(all="ignore"):
        # it runs them both ways, and compares all bits
        ours = cuda_on_cpu.run(group, inputs, grid)
        for actual, expected in zip(ours, run(group, inputs), strict=True):
            assert_same_bits(actual, expected)


@pytest.mark.skipif(nvrtc.library() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc-cu12")
@pytest.mark.parametrize("name", FORMS)
def test_what_takes_values_compiles(name: str) -> None:
    from dataclasses import replace

    group, _, grid = FORMS[name]()
    shape = card_nest(group)
    grid = grid or schedule(group, shape, (0,) * len(shape.strides), 132)
    text = form(group, shape, replace(grid, by_value=scalars(group, shape))).text()
    for architecture in ("sm_80", "sm_90", "sm_100"):
        assert nvrtc.cubin(text, architecture, OPTIONS)


def test_what_is_too_long_for_a_number_stays_in_memory() -> None:
    group, _, _ = scaled(values_for(np.dtype(np.complex128), (8,), 1), 1j)
    assert scalars(group, card_nest(group)) == ()


CALLED = """
import numpy as np, alight
from alight._src.log.decisions import LOG
x = np.random.default_rng(0).random(3001)
def body(a, s):
    b = (a * 2.5 + s) / 7.0
    return b, (b - 0.125).sum(), np.sort(b)[:5] * 3.5
with alight.policy(force="cuda:0", floor=0):
    a = alight.asarray(x)
    made = alight.jit(body)
    for turn in range(30):
        shift = alight.asarray(np.float64(turn))  # no constant: it is another at every call
        got = [np.asarray(r) for r in made(a, shift)]
        b = (x * 2.5 + turn) / 7.0
        for one, other in zip(got, (b, (b - 0.125).sum(), np.sort(b)[:5] * 3.5), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13)
    assert any([p.direct for p in made._learned().on_ours.values() if p])
    found = set()
    for kernel, _, _ in seen:
        for key in getattr(kernel, "programs", ()):
            found.add((len(kernel.scalars), len(key) - len(kernel.layouts)))
    # one of the first kernel's four is an argument; no kernel is made for what nobody gives
    assert found == {(4, 3), (1, 1)}, found
assert not LOG.snapshot().fallbacks, LOG.snapshot().fallbacks
print("done")
"""

SPY = """
from alight.backends.cuda import launch_sequence
seen = []
begun = launch_sequence.CudaSequence.__init__
def spied(self, session, work):
    seen.extend(work.launches)
    begun(self, session, work)
launch_sequence.CudaSequence.__init__ = spied
"""


@needs_compiler
def test_calls_pass_the_values_of_constants_and_read_what_may_change() -> None:
    passes(SPY + CALLED)


ALTERNATING = """
import cuda_driver_on_cpu as fake
import numpy as np, alight
x = np.random.default_rng(0).random(3001)
def body(a, b):
    return np.sqrt(a * b) + 1.0
with alight.policy(force="cuda:0", floor=0):
    made = alight.jit(body)
    kinds = [x, x.astype(np.float32), x[:700], x.reshape(1, -1)]
    kinds = [[alight.asarray(k) for k in (kind, kind + 1)] for kind in kinds]
    alight.evaluate(*[a + 0 for pair in kinds for a in pair])
    for _ in range(40):
        for pair in kinds:
            made(*pair)
    programs = [p for p in made._learned().on_ours.values() if p and p.direct]
    assert len(programs) == len(kinds)
    for p in programs:
        p.direct.call.next = 10**9  # none is timed
    def runs():
        return sum(p.direct._sequence.launches.runs for p in programs)
    for order in (kinds, kinds[::-1]):  # in turns, and each for a while
        before = runs()
        for _ in range(5):
            for pair in order:
                made(*pair)
        assert runs() - before == 5 * len(kinds), (runs(), before)
        for pair in order:
            before = runs()
            for _ in range(5):
                made(*pair)
            assert runs() - before == 5, (runs(), before)
print("done")
"""


@needs_compiler
def test_arrays_of_several_layouts_in_turns_are_launched_without_python() -> None:
    passes(ALTERNATING)
