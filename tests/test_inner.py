"""Inner products of float vectors: BLAS has them, and generated code competes."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import layout_of
from alight.codegen.llvm import module_text
from alight.codegen.loops import Schedule
from alight.ir.group import Graph, Group, GroupKind, Node, same_bits
from alight.ir.inner import folded
from alight.ir.ops import OPS
from test_cuda import needs_compiler, passes

FUNCTIONS = (np.dot, np.vdot, np.inner, np.vecdot, np.matmul)
FORCED = {"force": "cpu:generated", "floor": 0}


def vectors(n: int, dtype: str) -> tuple[Any, Any]:
    random = np.random.default_rng(n)
    first, second = random.uniform(-1, 1, (2, n))
    return first.astype(dtype), second.astype(dtype)


def product(name: str, *operands: Any, attrs: Any = ()) -> Group:
    """Return the group of a library product as it is recorded."""
    result = layout_of(np.asarray(getattr(np, name)(*operands)))
    graph = Graph(
        tuple(map(layout_of, operands)),
        (Node(OPS[name], tuple(range(len(operands))), attrs, result),),
        (len(operands),),
    )
    return Group(GroupKind.LIBRARY, graph, result.shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_generated_products_are_as_exact_as_sums(function: Callable[..., Any], dtype: str) -> None:
    alight.reset()
    jitted = alight.jit(lambda x, y: function(x, y))
    for n in (1, 7, 512, 40_001, 300_000):
        x, y = vectors(n, dtype)
        for a, b in ((x, y), (x[::-1], y), (x[::2], y[: (n + 1) // 2]), (x, x)):
            terms = [float(p) * float(q) for p, q in zip(a, b, strict=True)]
            exact, size = math.fsum(terms), math.fsum(map(abs, terms))
            with alight.policy(**FORCED):
                result = jitted(a, b)
            expect = function(a, b)
            assert type(result) is type(expect) and result.dtype == expect.dtype
            # half an ulp of each product and of each level of the tree, at most
            levels = 8 + math.log2(n)
            assert abs(float(result) - exact) <= levels * np.finfo(dtype).eps / 2 * size
    decided = alight.report().to_dict()["decisions"]
    assert decided[-1]["operation"] == function.__name__, decided[-1]
    assert decided[-1]["implementation"] == "generated"


JOINED = {
    "products": (lambda x, y: np.sum(x * y), lambda x, y: x * y),
    "squares": (lambda x, y: np.sum((x - y) * (x - y)), lambda x, y: (x - y) * (x - y)),
    "quotients": (lambda x, y: np.sum(x / y), lambda x, y: x / y),
    "roots": (lambda x, y: np.sum(np.sqrt(x * x + y)), lambda x, y: np.sqrt(x * x + y)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", JOINED)
def test_sums_of_what_is_made_on_the_way_have_the_bits_of_sums_in_memory(
    name: str, dtype: str
) -> None:
    folded_at_once, made = JOINED[name]
    jitted, whole = alight.jit(folded_at_once), alight.jit(lambda x: np.sum(x))
    # ends within a vector, a chunk and a pair of chunks; several threads
    for n in (1, 15, 16, 17, 127, 128, 129, 255, 256, 257, 400, 512, 4099, 300_001):
        x, y = (np.abs(v) + np.dtype(dtype).type(0.5) for v in vectors(n, dtype))
        with alight.policy(**FORCED), warnings.catch_warnings():
            warnings.simplefilter("error")  # lanes left over raise nothing
            found, expect = jitted(x, y), whole(made(x, y))
        assert found == expect and found.dtype == expect.dtype, n
    # rows, of which none begins where another's vectors do
    x, y = (np.abs(v).reshape(-1, 131) + np.float32(0.5) for v in vectors(131 * 70, dtype))
    along = alight.jit(lambda x, y: np.sum(made(x, y), axis=1))
    whole = alight.jit(lambda x: np.sum(x, axis=1))
    with alight.policy(**FORCED):
        assert np.array_equal(along(x, y), whole(made(x, y)))


def test_products_are_folded_without_a_buffer_in_between() -> None:
    x, y = vectors(1000, "float64")
    text = module_text(folded(product("dot", x, y)), Schedule())
    joined = re.search(r"call void @(tree\.add\.float64\.joined\S*)\(ptr [^,]+, ptr ", text)
    assert joined is not None and "alloca [" not in text, text


@pytest.mark.parametrize("function", [np.dot, np.vecdot], ids=lambda f: f.__name__)
def test_special_values_and_warnings_are_numpys(function: Callable[..., Any]) -> None:
    jitted = alight.jit(lambda x, y: function(x, y))
    ones = np.ones(3000)
    for value in (1e308, np.inf, np.nan, -np.inf):
        x = ones.copy()
        x[5] = x[2000] = value
        for y in (ones * 10.0, ones * 0.0, -x):
            found = []
            for call in (function, jitted):
                with warnings.catch_warnings(record=True) as told, alight.policy(**FORCED):
                    warnings.simplefilter("always")
                    found.append((repr(call(x, y)), [str(item.message) for item in told]))
            assert found[0] == found[1], (value, y[0])


def test_what_is_folded_and_what_is_not() -> None:
    x, y = vectors(30, "float64")
    for name in ("dot", "vdot", "inner", "vecdot", "matmul"):
        group = product(name, x, y)
        fold = folded(group)
        assert fold.kind is GroupKind.REDUCE and fold.shape == (30,)
        assert [node.op.name for node in fold.graph.nodes] == ["multiply", "sum"]
        assert fold.graph.inputs == group.graph.inputs
        assert fold.graph.layout(3) is group.graph.layout(2)
        assert not same_bits(group) and not same_bits(fold)
    matrix = np.ones((3, 30))
    for operands in (
        (matrix, x), (x.astype(complex), y), (x.astype("f4"), y), (x.astype("f2"), y.astype("f2")),
        (x.astype(int), y.astype(int)), (x[:0], y[:0]), (np.array(2.0), x),
    ):  # fmt: skip
        group = product("dot", *operands)
        assert folded(group) is group, operands
    assert folded(product("outer", x, y)).kind is GroupKind.LIBRARY


def test_both_ways_are_candidates_on_the_host() -> None:
    alight.reset()
    x, y = vectors(1 << 16, "float64")
    with alight.policy(floor=0):
        a, b = alight.asarray(x), alight.asarray(y)
        float(alight.dot(a, b))
    (decision,) = [
        row for row in alight.report().to_dict()["decisions"] if row["operation"] == "dot"
    ][-1:]
    reasons = {row["implementation"]: row["reason"] for row in decision["candidates"]}
    assert reasons.keys() >= {"library", "generated"} and "gap" not in reasons.values(), decision


ON_A_CARD = """
import math
import numpy as np, alight
from alight.log import LOG
for dtype in (np.float32, np.float64):
    rng = np.random.default_rng(1)
    for n in (1, 5, 1000, 70001):
        x, y = rng.random(n).astype(dtype), rng.random(n).astype(dtype)
        for f in (np.dot, np.inner, np.vdot, np.matmul):
            made = alight.jit(lambda p, q: f(p, q))
            with alight.policy(force="cuda:0", floor=0):
                a, b = alight.asarray(x), alight.asarray(y)
                alight.evaluate(a + 0, b + 0)
                for _ in range(3):
                    got = float(made(a, b))
                exact = math.fsum(float(p) * float(q) for p, q in zip(x, y))
                limit = (8 + math.log2(n)) * np.finfo(dtype).eps / 2 * abs(exact)
                assert abs(got - exact) <= limit, (n, f, got, exact)
                (program,) = made._learned().on_ours.values()
                assert program.direct is not None and len(program.direct._sequence._launches) <= 2
snapshot = LOG.snapshot()
assert not snapshot.fallbacks
assert snapshot.records[-1].decision.implementation == "generated"
print("done")
"""


@needs_compiler
def test_a_cards_products_are_folds_too() -> None:
    passes(ON_A_CARD)
