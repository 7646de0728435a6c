"""Products of vectors and matrices: BLAS has them, and generated code competes."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
import cuda_on_cpu
import nvrtc
from alight._core import layout_of, make_layout
from alight._src.codegen.common.loops import Schedule, nest
from alight._src.codegen.cuda.group_forms import OPTIONS, card_nest, form, schedule
from alight._src.codegen.llvm.object_code import module_text
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.plan.cost import estimate
from alight._src.plan.gemm_surface import Surface
from alight._src.plan.passes import columns_of
from alight._src.plan.prior import prior
from alight._src.plan.profile import Profile
from alight._src.plan.workload import product_shape
from alight.backends.host import HostBackend
from alight.backends.split import _axis as launcher_axis
from generated import run
from programs import product_eps
from without_card import needs_compiler, needs_nvrtc, passes

FUNCTIONS = (np.dot, np.vdot, np.inner, np.vecdot, np.matmul)
FORCED = {"force": "cpu:generated", "floor": 0}


def summed(group: Group) -> Group:
    """Return the sums of products that a library's product is."""
    assert group.form.lowered is not None
    return group.form.lowered


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
    reduced_at_once, made = JOINED[name]
    jitted, whole = alight.jit(reduced_at_once), alight.jit(lambda x: np.sum(x))
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


def test_products_are_reduced_without_a_buffer_in_between() -> None:
    x, y = vectors(1000, "float64")
    text = module_text(summed(product("dot", x, y)), Schedule())
    joined = re.search(r"call void @(tree\.add\.float64\.joined\S*)\(ptr [^,]+, ptr ", text)
    assert joined is not None and "alloca [" not in text, text


def columns(x: Any, y: Any) -> Any:
    return np.stack([x, x]) @ np.stack([y, y, y], axis=1)


@pytest.mark.parametrize("function", [np.dot, np.vecdot, columns], ids=lambda f: f.__name__)
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


def test_what_is_reduced_and_what_is_not() -> None:
    x, y = vectors(30, "float64")
    for name in ("dot", "vdot", "inner", "vecdot", "matmul"):
        group = product(name, x, y)
        reduction = summed(group)
        assert reduction.kind is GroupKind.REDUCE and reduction.shape == (30,)
        assert [node.op.name for node in reduction.graph.nodes] == ["multiply", "sum"]
        assert reduction.graph.inputs == group.graph.inputs
        assert reduction.graph.layouts[3] is group.graph.layouts[2]
        assert not group.form.same_bits and not reduction.form.same_bits
    square = np.ones((30, 30))
    for operands in (
        (x.astype(complex), y), (x.astype("f4"), y), (x.astype("f2"), y.astype("f2")),
        (x > 0, y > 0), (x[:0], y[:0]), (np.array(2.0), x),
    ):  # fmt: skip
        group = product("dot", *operands)
        assert group.form.lowered is None and group.form.library, operands
    assert product("outer", x, y).form.library
    graph = Graph((layout_of(square),), (Node(OPS["matmul"], (0, 0), (), layout_of(square)),), (1,))
    twice = Group(GroupKind.LIBRARY, graph, square.shape)
    assert twice.form.lowered is None  # one array in two views


def einsum(subscripts: str) -> Callable[..., Any]:
    return lambda x, y: np.einsum(subscripts, x, y)


# Functions, the shapes of both operands, and the einsum they are.
MATRICES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], str]] = {
    "tall": (np.matmul, (8, 1031), (1031, 2), "mk,kn->mn"),
    "wide": (np.matmul, (3, 300), (300, 40), "mk,kn->mn"),
    "short": (np.matmul, (70, 5), (5, 33), "mk,kn->mn"),
    "one row": (np.matmul, (1, 400), (400, 1), "mk,kn->mn"),
    "stacks": (np.matmul, (3, 1, 4, 150), (2, 150, 5), "abmk,bkn->abmn"),
    "stack and vector": (np.matmul, (2, 4, 150), (150,), "bmk,k->bm"),
    "vector and stack": (np.matmul, (150,), (2, 150, 3), "k,bkn->bn"),
    "dot of stacks": (np.dot, (2, 4, 150), (3, 150, 5), "amk,bkn->ambn"),
    "dot with a vector": (np.dot, (2, 4, 150), (150,), "amk,k->am"),
    "dot of a vector": (np.dot, (150,), (150, 3), "k,kn->n"),
    "inner": (np.inner, (6, 200), (7, 200), "mk,nk->mn"),
    "vecdot": (np.vecdot, (5, 1, 200), (3, 200), "abk,bk->ab"),
    "tensordot": (lambda x, y: np.tensordot(x, y, 2), (4, 30, 7), (30, 7, 5), "mab,abn->mn"),
    "tensordot of axes": (
        lambda x, y: np.tensordot(x, y, axes=([0, -1], [1, 0])),
        *((30, 4, 7), (7, 30, 5), "amb,ban->mn"),
    ),
    "tensordot of one": (
        lambda x, y: np.tensordot(x, y, axes=(1, 0)),
        *((4, 130, 7), (130, 5), "mka,kn->man"),
    ),
    "einsum": (einsum("mk,kn->nm"), (4, 300), (300, 5), "mk,kn->nm"),
    "einsum of sorted axes": (einsum("ji, jk"), (300, 4), (300, 5), "ji,jk->ik"),
    "einsum of three": (einsum("iabc,bcj->jai"), (3, 2, 20, 9), (20, 9, 4), "iabc,bcj->jai"),
}
MODES = {
    "automatic": {"floor": 0},
    "host": FORCED,
    "device": {"force": "sim:0:generated", "floor": 0},
}


def operand(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return random.uniform(-1, 1, shape).astype(dtype)
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max, shape, dtype, endpoint=True)


def laid(array: Any) -> list[Any]:
    """Return the array in several memory layouts."""
    apart = np.zeros([2 * n for n in array.shape], array.dtype)[
        tuple([slice(0, None, 2)] * array.ndim)
    ]
    apart[...] = array
    behind = np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    return [array, np.asfortranarray(array), apart, behind]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MATRICES)
def test_products_of_matrices_are_numpys(name: str, mode: str) -> None:
    function, first, second, subscripts = MATRICES[name]
    alight.reset()
    jitted = alight.jit(lambda x, y: function(x, y))
    for dtype in ("float32", "float64", "int32", "int8", "uint64"):
        x, y = operand(first, dtype, 1), operand(second, dtype, 2)
        ways = list(zip(laid(x), laid(y)[::-1], strict=True)) if dtype == "float32" else [(x, y)]
        for a, b in ways:
            with alight.policy(**MODES[mode]):
                found = jitted(a, b)
            expect = function(a, b)
            assert type(found) is type(expect) and found.dtype == expect.dtype
            assert found.shape == expect.shape and found.strides == expect.strides
            if x.dtype.kind != "f":
                assert np.array_equal(found, expect)
                continue
            exact = np.einsum(subscripts, a.astype("g"), b.astype("g"))
            size = np.einsum(subscripts, abs(a).astype("g"), abs(b).astype("g"))
            terms = x.size * y.size // max(expect.size, 1)
            # BLAS adds one after another; a tree's bound is in `test_generated_products_…`
            limit = (terms if mode == "automatic" else 12 + math.log2(terms)) * np.finfo(dtype).eps
            assert (abs(found - exact) <= limit * size).all(), (dtype, a.strides, b.strides)
    if mode != "automatic":
        told = alight.report().to_dict()
        assert told["decisions"][-1]["implementation"] == "generated", told["decisions"][-1]
        assert not told["fallbacks"], told["fallbacks"]


@pytest.mark.parametrize(
    ("first", "second", "columns"),
    [
        ((64, 300), (300, 40), True), ((64, 300), (300, 4), False), ((8, 300), (300, 40), True),
        ((64, 300), (40, 300), False),
    ],
)  # fmt: skip
def test_products_go_along_what_lies_side_by_side(
    first: tuple[int, int], second: tuple[int, int], columns: bool
) -> None:
    x, y = np.ones(first), np.ones(second)
    reduction = summed(product("matmul" if first[1] == second[0] else "inner", x, y))
    assert nest(reduction).columns is columns
    assert (columns_of(reduction) is not None) is columns


def test_a_generated_product_has_the_bits_of_the_sum_it_is() -> None:
    x, y = operand((6, 5000), "float32", 1), operand((5000, 3), "float32", 2)
    made = alight.jit(lambda x, y: x @ y)
    summed = alight.jit(lambda x, y: (x[:, :, None] * y[None, :, :]).sum(axis=1))
    with alight.policy(**FORCED):
        for a, b in ((x, y), (np.asfortranarray(x), y), (x, np.asfortranarray(y))):
            assert np.array_equal(made(a, b), summed(a, b))


@pytest.mark.parametrize("mode", MODES)
def test_empty_products_and_those_that_do_not_fit_are_numpys(mode: str) -> None:
    made = alight.jit(lambda x, y: x @ y)
    with alight.policy(**MODES[mode]):
        for first, second in (((3, 0), (0, 2)), ((0, 4), (4, 2)), ((0,), (0, 2)), ((2, 0), (0,))):
            for dtype in ("float32", "int64"):
                x, y = np.ones(first, dtype), np.ones(second, dtype)
                found, expect = made(x, y), x @ y
                assert found.dtype == expect.dtype and np.array_equal(found, expect)
        for first, second in (((3, 4), (5, 2)), ((4,), (5,)), ((2, 3, 4), (3, 4, 5)), ((), (3,))):
            x, y = np.ones(first), np.ones(second)
            with pytest.raises(ValueError) as ours:
                made(x, y)
            with pytest.raises(ValueError) as theirs:
                x @ y
            assert str(ours.value) == str(theirs.value)


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
from alight._src.log.decisions import LOG
for dtype in (np.float32, np.float64):
    rng = np.random.default_rng(1)
    for n in (1, 5, 1000, 70001):
        x, y = rng.random(n).astype(dtype), rng.random(n).astype(dtype)
        for f in (np.dot, np.inner, np.vdot, np.matmul):
            made = alight.jit(lambda p, q: f(p, q))
            with alight.policy(force="cuda:0:generated", floor=0):
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
def test_a_cards_products_are_reductions_too() -> None:
    passes(ON_A_CARD)


@needs_compiler
@pytest.mark.parametrize("name", ["tall", "wide", "stacks", "inner", "einsum", "dot of a vector"])
def test_a_cards_products_have_the_hosts_bits(name: str) -> None:
    function, first, second, _ = MATRICES[name]
    for dtype in ("float32", "float64", "int32"):
        x, y = operand(first, dtype, 1), operand(second, dtype, 2)
        expect = function(x, y)
        group = grouped(name, x, y)
        limit: Any = 0.0
        if expect.dtype.kind == "f":
            terms = product_shape(group.graph, group.graph.nodes[0])[2]
            limit = product_eps(terms) * np.finfo(dtype).eps * function(np.abs(x), np.abs(y))
        for a, b in zip(laid(x), laid(y), strict=True):
            reduction = summed(grouped(name, a, b))
            (on_host,), (actual,) = run(reduction, [a, b]), cuda_on_cpu.run(reduction, [a, b])
            assert np.array_equal(on_host, actual)
            assert np.all(np.abs(on_host - expect) <= limit)


def grouped(name: str, x: Any, y: Any) -> Group:
    """Return the group that one of the functions is recorded as."""
    function, _, _, subscripts = MATRICES[name]
    result = layout_of(np.asarray(function(x, y)))
    node = Node(OPS["einsum"], (0, 1), (("subscripts", subscripts),), result)
    return Group(
        GroupKind.LIBRARY, Graph((layout_of(x), layout_of(y)), (node,), (2,)), result.shape
    )


@needs_nvrtc
def test_a_cards_products_of_few_columns_compile() -> None:
    for dtype in ("float32", "float64", "int8"):
        x, y = np.ones((1 << 14, 8), dtype).T, np.ones((1 << 14, 2), dtype)
        reduction = summed(grouped("tall", x, y))
        shape = card_nest(reduction)
        grid = schedule(reduction, shape, (0, 0, 0), 132)
        assert shape.columns and grid.team == 16 and grid.cut and grid.turns == 1
        made = form(reduction, shape, grid)
        assert [step.blocks for step in made.steps()] == [128, 2]
        text = made.text()
        for architecture in ("sm_75", "sm_90"):
            assert nvrtc.cubin(text, architecture, OPTIONS)[:4] == b"\x7fELF"


TABLE = Path(__file__).resolve().parents[2] / "bench-results" / "h200" / "regret.json"


def predicted(m: int, k: int, n: int, dtype: str, where: str) -> tuple[float, float]:
    """Return the seconds of a product on an H200's machine, generated and a library's."""
    profile = Profile.from_dict(json.loads(TABLE.read_text())["profiles"][where])
    matrix = np.dtype(dtype)
    layouts = make_layout(matrix, (m, k), (matrix.itemsize, m * matrix.itemsize))
    graph = Graph(
        (layouts, make_layout(matrix, (k, n))),
        (Node(OPS["matmul"], (0, 1), (), make_layout(matrix, (m, n))),),
        (2,),
    )
    group = Group(GroupKind.LIBRARY, graph, (m, n))
    found = [estimate(group, where, name, profile) for name in ("generated", "library")]
    assert found[0] is not None and found[1] is not None
    return found[0].seconds, found[1].seconds


def test_what_other_results_read_again_is_not_free() -> None:
    for where in ("cpu", "cuda:0"):
        for dtype in ("float32", "float64"):
            ours, library = predicted(1024, 1024, 1024, dtype, where)
            assert ours > library, (where, dtype)
            twice, _ = predicted(1024, 1024, 2048, dtype, where)
            assert twice > 1.5 * ours, (where, dtype)


def test_long_and_thin_products_and_those_of_integers_are_predicted_to_be_generated() -> None:
    for dtype in ("float32", "float64"):
        for k in (1 << 14, 1 << 17):
            ours, library = predicted(8, k, 2, dtype, "cuda:0")
            assert ours < library, (dtype, k)
    for dtype in ("int8", "uint32", "int64"):  # of which int64 was measured
        for where in ("cpu", "cuda:0"):
            ours, library = predicted(256, 256, 256, dtype, where)
            assert ours < library / 2, (where, dtype)


def test_the_hosts_products_take_what_such_took_that_lay_as_they_do() -> None:
    def seconds(dtype: str, transposed: tuple[bool, bool], surfaces: dict[str, Surface]) -> Any:
        profile = Profile.from_dict(json.loads(TABLE.read_text())["profiles"]["cpu"])
        rates = replace(profile.rates["generated"], surfaces=surfaces)
        known = replace(profile, rates={**profile.rates, "generated": rates})
        operands = [np.ones(shape, dtype) for shape in ((64, 50), (50, 40))]
        x, y = (
            np.asfortranarray(operand) if turned else operand
            for operand, turned in zip(operands, transposed, strict=True)
        )
        found = estimate(grouped("wide", x, y), "cpu", "generated", known)
        return found and round(found.seconds * 1e6)

    def surface(microseconds: float) -> Surface:
        return Surface((microseconds * 1e-6, *[0.0] * 5), (), (), 1.0)

    known = {"float64": surface(20), "int64": surface(30)}
    known |= {"float64 first turned": surface(40), "float64 second turned": surface(10)}
    made, turned = (False, False), (False, True)
    for dtype, lying, expected in (
        ("float64", made, 20),
        ("float64", turned, 10),
        ("float64", (True, False), 40),
        ("float64", (True, True), None),
        ("float32", made, None),
        ("int64", made, 30),
        ("uint8", turned, 30),
    ):
        assert seconds(dtype, lying, known) == expected, (dtype, lying)
    assert seconds(
        "float64", made, {}
    )  # what the reduction of products takes, where none was measured


def test_a_large_product_is_the_librarys_where_nobody_measured_it() -> None:
    (host,) = HostBackend().probe().devices
    support = replace(host.support, implementations=("generated", "library"))
    card = replace(host, id="cuda:0", space="cuda:0", support=support)
    known = Profile.from_dict(json.loads(TABLE.read_text())["profiles"]["cuda:0"])
    library = replace(known.rates["library"], surfaces={})
    unknown = replace(known, rates={**known.rates, "library": library})
    for shapes in (
        ((2048, 2048), (2048, 2048), (2048, 2048)),
        ((4096, 64), (64, 4096), (4096, 4096)),
        ((8, 1024), (1024, 2), (8, 2)),
        ((1024,), (1024,), ()),
    ):
        *given, result = (make_layout(np.dtype(np.float32), shape) for shape in shapes)
        graph = Graph(tuple(given), (Node(OPS["matmul"], (0, 1), (), result),), (2,))
        group = Group(GroupKind.LIBRARY, graph, shapes[-1])
        own = estimate(group, card, "generated", unknown)
        assert own == estimate(group, card, "generated", known) and own is not None
        assert estimate(group, card, "library", unknown) is None
        guessed = prior(group, card, "library", unknown)
        # it takes data for which nothing but a guess speaks by the most that it may take
        assert (guessed.high < own.low) == (result.size > 2048), shapes


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_products_of_long_columns_go_along_the_side_that_fills_vectors(dtype: str) -> None:
    x, y = operand((1003, 24), dtype, 1), operand((1003, 3), dtype, 2)
    reduction = summed(product("matmul", x.T, y))
    shape = nest(reduction, unroll=True)
    assert shape.columns and shape.dims == (3, 24, 1003)
    assert [launcher_axis(shape, 3 * 24 * 1003, 1024, n) for n in (1, 7)] == [(0, 1)] * 2
    rows = np.ascontiguousarray(x.T), np.asfortranarray(y)
    assert np.array_equal(*run(reduction, [x.T, y]), *run(summed(product("matmul", *rows)), rows))
