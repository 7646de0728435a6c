"""Generated kernels against NumPy, drawn from the op table: ops × dtypes × special values ×
layouts."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from alight._core.twin import layout_of, make_layout
from alight.ir.body import TYPES
from alight.ir.group import Graph, Group, GroupKind, Node
from alight.ir.ops import OPS, Kind, Op
from alight.ir.table_reduction import tree_depth

pytest.importorskip("llvmlite")

from alight.codegen import llvm
from alight.codegen.loops import (
    ARGUMENT_REDUCTIONS,
    Schedule,
    check,
    kernel_key,
    nest,
    schedules,
    supports,
    unsupported,
)
from alight.device import Unsupported

Array = np.ndarray[Any, Any]
INTEGERS = "bhilBHIL"
# NumPy differs from itself in the sign of a zero from a tie of these
TIES = {"maximum", "minimum", "fmax", "fmin", "clip"}


def special(dtype: np.dtype[Any]) -> Array:
    """Return values of a dtype where loops go wrong, and some ordinary ones."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = [0, 1, 2, 3, 5, 7, 8, 31, 32, 63, 64, 100, info.max, info.max - 1, info.max // 2]
        if dtype.kind == "i":
            near += [-1, -2, -3, -7, -64, info.min, info.min + 1]
        return np.array(sorted({n for n in near if info.min <= n <= info.max}), dtype)
    info = np.finfo(dtype)
    positive = [
        0.0, info.smallest_subnormal, info.tiny / 2, info.tiny, 1e-5, 0.1, 0.5, 0.75, 1.0, 1.5, 2.0,
        2.5, 3.0, np.pi, 10.0, 100.0, 1e10, info.max / 2, info.max, np.inf, 1 + info.eps,
    ]  # fmt: skip
    return np.array([*positive, *(-v for v in positive), np.nan], dtype)


def points(dtypes: Sequence[np.dtype[Any]]) -> list[Array]:
    """Return one array per operand: together they hold every tuple of special values."""
    grids = np.meshgrid(*(special(d) for d in dtypes), indexing="ij")
    return [np.ascontiguousarray(g.ravel()) for g in grids]


def ulp_distance(actual: Array, expected: Array) -> Array:
    """Return how many floats lie between, elementwise; NaN equals NaN, and -0 is one from 0."""
    if actual.dtype.kind != "f":
        return np.where(actual != expected, np.inf, 0.0)
    integer = np.dtype(f"i{actual.itemsize}")

    def ordered(array: Array) -> Array:
        bits = np.ascontiguousarray(array).view(integer).astype(object)
        return np.where(bits < 0, -(bits & np.iinfo(integer).max) - 1, bits)

    distance = np.abs(ordered(actual) - ordered(expected)).astype(float)
    distance[np.isnan(actual) & np.isnan(expected)] = 0
    return distance


def loop_group(
    inputs: Sequence[Array], uses: Iterable[tuple[Op, tuple[int, ...], Any, Any]]
) -> Group:
    """Return a loop group; every node, given as op, operands, attrs and dtype, is an output."""
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    nodes = [
        Node(op, operands, attrs, make_layout(np.dtype(d), shape))
        for op, operands, attrs, d in uses
    ]
    graph = Graph(
        tuple(layout_of(a) for a in inputs),
        tuple(nodes),
        tuple(range(len(inputs), len(inputs) + len(nodes))),
    )
    return Group(GroupKind.LOOP, graph, shape)


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def run(group: Group, inputs: Sequence[Array], schedule: Schedule | None = None) -> list[Array]:
    """Return what the group's kernel gives for the inputs."""
    graph = group.graph
    outputs = []
    for number in graph.outputs:
        layout = graph.layout(number)
        order = sorted(range(layout.ndim), key=lambda i: -layout.strides[i])
        dense = np.empty([layout.shape[i] for i in order], layout.dtype)
        outputs.append(dense.transpose(np.argsort(order)) if layout.ndim else dense)
    kernel = llvm.compile_group(group, schedule)
    kernel([address(a) for a in (*inputs, *outputs)])
    return outputs


def reference(node: Node, operands: Sequence[Array]) -> Any:
    """Return what NumPy gives for one node."""
    attrs = dict(node.attrs)
    output = attrs.pop("output", None)
    with np.errstate(all="ignore"):
        result = node.op.reference(*operands, **attrs)
    return result if output is None else result[output]


def loops(op: Op) -> list[tuple[tuple[np.dtype[Any], ...], tuple[np.dtype[Any], ...]]]:
    """Return the operand and result dtypes of an op's loops that generated code must have."""
    if op.name in ("isposinf", "isneginf"):
        texts = [f"{c}->?" for c in "?" + INTEGERS + "fd"]
    elif op.name == "where":
        texts = [f"?{c}{c}->{c}" for c in "?" + INTEGERS + "fd"]
    elif op.name == "copy":
        texts = [f"{c}->{c}" for c in "?" + INTEGERS + "fd"]
    elif op.name == "cast":
        texts = [f"{a}->{b}" for a, b in itertools.product("?" + INTEGERS + "fd", repeat=2)]
    else:
        assert isinstance(op.reference, np.ufunc)
        texts = op.reference.types
    result = []
    for text in dict.fromkeys(texts):
        if set(text) <= set("?->" + INTEGERS + "qQfd"):
            before, after = text.split("->")
            result.append((tuple(map(np.dtype, before)), tuple(map(np.dtype, after))))
    return result


ELEMENTWISE = [op for op in OPS.values() if op.kind is Kind.ELEMENTWISE]
CASES: dict[tuple[str, ...], list[tuple[Op, tuple[Any, ...], tuple[Any, ...]]]] = {}
for _op in ELEMENTWISE:
    for _ins, _outs in loops(_op):
        CASES.setdefault(tuple(d.name for d in _ins), []).append((_op, _ins, _outs))


def in_range(op: Op, node: Node, operands: list[Array]) -> Array:
    """Tell which points NumPy defines: integer powers not below 0, casts to integers in range."""
    ok = np.ones(operands[0].shape, bool)
    if op.name == "power" and operands[1].dtype.kind == "i":
        ok &= operands[1] >= 0
    to_integer = op.name == "cast" and node.layout.dtype.kind in "iu"
    if op.name == "reciprocal" and operands[0].dtype.kind in "iu":
        ok &= operands[0] != 0
    if to_integer and operands[0].dtype.kind == "f":
        info = np.iinfo(node.layout.dtype)
        whole = np.trunc(operands[0].astype(np.longdouble))
        with np.errstate(invalid="ignore"):
            ok &= (whole >= info.min) & (whole <= info.max)
    return ok


@pytest.mark.parametrize("signature", CASES, ids="-".join)
def test_elementwise_equals_numpy_on_special_values(signature: tuple[str, ...]) -> None:
    cases = CASES[signature]
    inputs = points(cases[0][1])
    uses = []
    for op, ins, outs in cases:
        assert supports(op, (*ins, *outs)) is None
        for i, dtype in enumerate(outs):
            if op.name == "power" and ins[1].kind == "i":
                continue  # its own test: NumPy raises for the negative exponents among these
            attrs = (
                (("output", i),)
                if op.nout > 1
                else (("dtype", dtype),)
                if op.name == "cast"
                else ()
            )
            uses.append((op, tuple(range(len(ins))), attrs, dtype))
    group = loop_group(inputs, uses)
    outputs = run(group, inputs)
    for node, actual in zip(group.graph.nodes, outputs, strict=True):
        assert_close(node, actual, [inputs[i] for i in node.operands])


def assert_close(node: Node, actual: Array, operands: list[Array]) -> None:
    ok = in_range(node.op, node, operands)
    expected = np.asarray(reference(node, operands))
    assert actual.dtype == expected.dtype, node.op
    with np.errstate(invalid="ignore"):
        distance = ulp_distance(actual, expected)
    if node.op.name in TIES and actual.dtype.kind == "f":
        distance[(actual == 0) & (expected == 0)] = 0
    wrong = np.flatnonzero(ok & ~(distance <= node.op.ulp))
    shown = [(*(a[i] for a in operands), actual[i], expected[i]) for i in wrong[:4]]
    assert not len(wrong), f"{node.op}, {len(wrong)} points, max {distance[ok].max()} ulp: {shown}"


# --- reductions ---
def reduce_layout(dtype: Any, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Any:
    if keepdims:
        return make_layout(
            np.dtype(dtype), tuple(1 if i in axes else n for i, n in enumerate(shape))
        )
    return make_layout(np.dtype(dtype), tuple(n for i, n in enumerate(shape) if i not in axes))


def reduce_group(
    inputs: Sequence[Array],
    names: Iterable[str],
    axes: tuple[int, ...],
    keepdims: bool = False,
    **attrs: Any,
) -> Group:
    """Return a group of reductions of the first input; their dtypes are NumPy's."""
    shape = inputs[0].shape
    nodes = []
    for name in names:
        op = OPS[name]
        given = (("axis", axes), *((("keepdims", True),) if keepdims else ()), *attrs.items())
        mask = attrs.get("where", False)
        operands = (0, 1) if mask else (0,)
        one = [np.ones((1,) * a.ndim, a.dtype) for a in inputs[: len(operands)]]
        dtype = np.asarray(op.reference(*one, **dict(given))).dtype
        nodes.append(Node(op, operands, given, reduce_layout(dtype, shape, axes, keepdims)))
    first = len(inputs)
    graph = Graph(
        tuple(layout_of(a) for a in inputs), tuple(nodes), tuple(range(first, first + len(nodes)))
    )
    return Group(GroupKind.REDUCE, graph, shape)


def folds_for(dtype: np.dtype[Any]) -> list[str]:
    """Return the reductions that generated code has for a dtype."""
    names = []
    for op in OPS.values():
        if op.kind is not Kind.REDUCTION or op.name in ARGUMENT_REDUCTIONS:
            continue
        try:
            result = np.asarray(op.reference(np.ones(1, dtype), axis=(0,))).dtype
        except TypeError:
            continue
        if supports(op, (dtype, result)) is None:
            names.append(op.name)
    return names


def magnitude(op: Op, operand: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Return what a fold's bound is relative to."""
    values = np.abs(operand.astype(np.longdouble))
    values = np.where(np.isnan(values), 1 if "prod" in op.name else 0, values)
    if op.combine == "multiply":
        return np.asarray(np.prod(values, axis=axes, keepdims=keepdims))
    total = np.asarray(np.sum(values, axis=axes, keepdims=keepdims))
    return total / max(_count(operand, axes), 1) if op.name == "mean" else total


def _count(operand: Array, axes: tuple[int, ...]) -> int:
    return int(np.prod([operand.shape[i] for i in axes], dtype=int))


def assert_folds_close(group: Group, inputs: Sequence[Array], actuals: Sequence[Array]) -> None:
    for node, actual in zip(group.graph.nodes, actuals, strict=True):
        operands = [inputs[i] for i in node.operands]
        expected = np.asarray(reference(node, operands))
        label = (node.op.name, inputs[0].dtype, inputs[0].shape, inputs[0].strides, node.attrs)
        assert actual.dtype == expected.dtype and actual.shape == expected.shape, label
        assert node.op.bound is not None
        axes, keepdims = node.attr("axis"), bool(node.attr("keepdims"))
        if actual.dtype.kind != "f" or (limit := node.op.bound(_count(inputs[0], axes))) == 0:
            same = (actual == expected) | ((actual != actual) & (expected != expected))
            assert np.all(same), (label, actual, expected)
            continue
        eps = np.finfo(actual.dtype).eps
        near = np.isfinite(expected)
        assert np.array_equal(actual[~near], expected[~near], equal_nan=True), (
            label,
            actual,
            expected,
        )
        error = np.abs(actual.astype(np.longdouble) - expected)[near]
        allowed = (limit * eps * magnitude(node.op, inputs[0], axes, keepdims))[near]
        tiny = float(np.finfo(actual.dtype).smallest_subnormal) * limit
        assert np.all(error <= allowed + tiny), (label, error.max(), actual, expected)


def values_for(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> Array:
    generator = np.random.default_rng(seed)
    if dtype.kind == "b":
        return generator.random(shape) < 0.9
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    return np.asarray(generator.standard_normal(shape) * 1.5, dtype)


def layouts(array: Array) -> Iterable[Array]:
    """Yield the array in several memory layouts."""
    yield array
    yield np.asfortranarray(array)
    wide = np.repeat(array, 2, axis=-1)
    wide[..., ::2] = array
    yield wide[..., ::2]
    yield array[::-1, ..., ::-1]
    yield np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 0, -1)), -1, 0)


DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)


@pytest.mark.parametrize("name", DTYPES)
def test_every_fold_equals_numpy(name: str) -> None:
    dtype = np.dtype(name)
    names = folds_for(dtype)
    assert {"sum", "prod", "min", "max", "any", "all", "mean", "count_nonzero"} <= set(names)
    for shape, axes in (((3, 300), (1,)), ((300, 3), (0,))):
        array = values_for(dtype, shape, 5)
        group = reduce_group([array], names, axes)
        assert_folds_close(group, [array], run(group, [array]))


@pytest.mark.parametrize("name", ["int16", "float32"])
def test_folds_equal_numpy_in_every_layout(name: str) -> None:
    for shape in ((3, 5, 7), (2, 40, 130)):
        for seed, array in enumerate(layouts(values_for(np.dtype(name), shape, 7))):
            for axes in ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
                group = reduce_group([array], ["sum", "min"], axes, keepdims=bool(seed % 2))
                assert_folds_close(group, [array], run(group, [array]))
            for axes in ((0,), (1,), (2,), (0, 1, 2)):
                group = reduce_group([array], ARGUMENT_REDUCTIONS, axes)
                assert_folds_close(group, [array], run(group, [array]))


FLOAT_FOLDS = [
    "sum",
    "prod",
    "min",
    "max",
    "mean",
    "any",
    "all",
    "nansum",
    "nanprod",
    "nanmin",
    "nanmax",
]


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_folds_of_special_values_equal_numpy(name: str) -> None:
    dtype = np.dtype(name)
    generator = np.random.default_rng(3)
    pool = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1.5, 3.0, 7.0], dtype)
    for n in (1, 2, 15, 16, 17, 127, 128, 129, 300):
        for odds in (0, 0.02, 0.5):
            plain = generator.random((4, n)) >= odds
            array = np.where(plain, dtype.type(1.25), generator.choice(pool, (4, n)))
            for operand, axes in ((array, (1,)), (np.ascontiguousarray(array.T), (0,))):
                group = reduce_group([operand], FLOAT_FOLDS, axes)
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    assert_folds_close(group, [operand], run(group, [operand]))
                    group = reduce_group([operand], ARGUMENT_REDUCTIONS, axes)
                    assert_folds_close(group, [operand], run(group, [operand]))


def test_sums_of_negative_zeros_are_zero_as_in_numpy() -> None:
    for array, axes in ((np.full((2, 20), -0.0), (1,)), (np.full((20, 2), -0.0), (0,))):
        (total,) = run(reduce_group([array], ["sum"], axes), [array])
        assert not np.signbit(total).any()


def test_folds_of_nothing_start_and_masks_equal_numpy() -> None:
    for shape, axes in (
        ((0,), (0,)),
        ((0, 3), (0,)),
        ((3, 0), (1,)),
        ((3, 0), (0,)),
        ((2, 0, 3), (0, 1, 2)),
    ):
        array = np.ones(shape)
        names = ["sum", "prod", "any", "all", "count_nonzero"]
        group = reduce_group([array], names, axes, keepdims=True)
        assert_folds_close(group, [array], run(group, [array]))
    point = np.array(2.5)
    group = reduce_group([point], ["sum", "max", "mean"], ())
    assert_folds_close(group, [point], run(group, [point]))
    for array, axes in (
        (values_for(np.dtype("f8"), (5, 200), 1), (1,)),
        (values_for(np.dtype("f8"), (200, 5), 1), (0,)),
    ):
        mask = array > 0.3
        group = reduce_group([array, mask], ["sum", "min", "max"], axes, initial=7.5, where=True)
        for node, actual in zip(group.graph.nodes, run(group, [array, mask]), strict=True):
            expected = getattr(np, node.op.name)(array, axis=axes, initial=7.5, where=mask)
            assert np.allclose(actual, expected, rtol=1e-14)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_sums_are_as_accurate_as_their_tree(name: str) -> None:
    dtype = np.dtype(name)
    eps = float(np.finfo(dtype).eps)
    for n in (1, 100, 1000, 123_457):
        array = values_for(dtype, (n,), n) + dtype.type(1)
        (total,) = run(reduce_group([array], ["sum"], (0,)), [array])
        wide = array.astype(float).tolist()
        allowed = tree_depth(n) / 2 * eps * math.fsum(map(abs, wide))
        assert abs(float(total) - math.fsum(wide)) <= allowed


def test_a_sum_has_the_same_bits_in_every_layout() -> None:
    array = values_for(np.dtype("f4"), (1000, 70), 2)
    bits = {
        run(reduce_group([form], ["sum"], (0,)), [form])[0].tobytes()
        for form in (array, np.asfortranarray(array), np.repeat(array, 2, axis=1)[:, ::2])
    }
    assert len(bits) == 1


def test_a_reduction_takes_in_its_producers() -> None:
    x, y = values_for(np.dtype("f8"), (37, 211), 1), values_for(np.dtype("f8"), (211,), 2)
    for axes, keepdims in (((0,), False), ((1,), True), ((0, 1), False)):
        full = layout_of(x)
        result = reduce_layout("f8", x.shape, axes, keepdims)
        attrs = (("axis", axes), ("keepdims", keepdims))
        nodes = (
            Node(OPS["subtract"], (0, 1), (), full),
            Node(OPS["square"], (2,), (), full),
            Node(OPS["sum"], (3,), attrs, result),
            Node(OPS["max"], (2,), attrs, result),
        )
        group = Group(GroupKind.REDUCE, Graph((full, layout_of(y)), nodes, (4, 5)), x.shape)
        total, top = run(group, [x, y])
        assert np.allclose(total, np.square(x - y).sum(axis=axes, keepdims=keepdims), rtol=1e-14)
        assert np.array_equal(top, (x - y).max(axis=axes, keepdims=keepdims))


# --- layouts and shapes of loops ---
def arithmetic(inputs: Sequence[Array], out: Any = None) -> Group:
    """Return ``sqrt(|x * y|) + x`` and ``x < y`` of two arrays; ``out`` is the layout of the first
    result."""
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    full, flags = make_layout(inputs[0].dtype, shape), make_layout(np.dtype(bool), shape)
    nodes = (
        Node(OPS["multiply"], (0, 1), (), full),
        Node(OPS["absolute"], (2,), (), full),
        Node(OPS["sqrt"], (3,), (), full),
        Node(OPS["add"], (4, 0), (), out or full),
        Node(OPS["less"], (0, 1), (), flags),
    )
    return Group(GroupKind.LOOP, Graph(tuple(map(layout_of, inputs)), nodes, (5, 6)), shape)


def assert_arithmetic(x: Array, y: Array, schedule: Schedule | None = None) -> None:
    total, flags = run(arithmetic([x, y]), [x, y], schedule)
    assert np.array_equal(total, np.sqrt(np.abs(x * y)) + x)
    assert np.array_equal(flags, x < y)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_loops_equal_numpy_in_every_layout(name: str) -> None:
    x, y = (values_for(np.dtype(name), (6, 9, 33), seed) for seed in (1, 2))
    for a, b in itertools.product(layouts(x), layouts(y)):
        assert_arithmetic(a, b)
    for shape in ((33,), (9, 1), (6, 1, 1), (1, 1, 33), (), (1, 9, 33)):
        assert_arithmetic(x, values_for(np.dtype(name), shape, 3))
    assert_arithmetic(x[:, :1], y[:1])
    for shape in ((0,), (), (1,), (3, 0, 2), (1, 1), (1, 7, 1)):
        assert_arithmetic(
            values_for(np.dtype(name), shape, 4), values_for(np.dtype(name), shape, 5)
        )


def test_results_go_into_windows_and_operands() -> None:
    x, y = (values_for(np.dtype("f8"), (20, 30), seed) for seed in (1, 2))
    expected = np.sqrt(np.abs(x * y)) + x
    room = np.full((40, 90), 7.0)
    for window in (room[::2, 1::3], room[39::-2, 89::-3], room[5:35, :20].T):
        room[...] = 7
        group = arithmetic([x, y], layout_of(window))
        flags = np.empty(x.shape, bool)
        llvm.compile_group(group)([address(a) for a in (x, y, window, flags)])
        assert np.array_equal(window, expected)
        window[...] = 7
        assert (room == 7).all()
    group = arithmetic([x, y])
    flags = np.empty(x.shape, bool)
    expected_flags = x < y
    llvm.compile_group(group)([address(a) for a in (x, y, x, flags)])
    assert np.array_equal(x, expected)
    assert np.array_equal(flags, expected_flags)


def test_bools_are_true_for_any_byte_but_zero() -> None:
    x = np.array([0, 1, 2, 255], np.uint8).view(bool)
    group = loop_group(
        [x], [(OPS["logical_not"], (0,), (), bool), (OPS["cast"], (0,), (("dtype", "f8"),), "f8")]
    )
    inverted, number = run(group, [x])
    assert inverted.tolist() == [True, False, False, False]
    assert number.tolist() == [0, 1, 1, 1]


def test_integer_power_equals_numpy() -> None:
    for char in INTEGERS:
        dtype = np.dtype(char)
        x, y = points([dtype, dtype])
        keep = y >= 0
        x, y = x[keep], y[keep]
        (actual,) = run(loop_group([x, y], [(OPS["power"], (0, 1), (), dtype)]), [x, y])
        assert np.array_equal(actual, np.power(x, y))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_maths_is_within_its_bound_of_numpy_on_random_values(name: str) -> None:
    dtype = np.dtype(name)
    generator = np.random.default_rng(11)
    unary = [op for op in ELEMENTWISE if op.special and op.nin == 1]
    binary = [op for op in ELEMENTWISE if op.special and op.nin == 2]
    for scale in (1e-3, 1, 10, 700):
        x, y = ((generator.standard_normal(2000) * scale).astype(dtype) for _ in range(2))
        uses: list[Any] = [(op, (0,), (), dtype) for op in unary]
        uses += [
            (op, (0, 1), (), dtype)
            for op in binary
            if op.name != "float_power" or name == "float64"
        ]
        group = loop_group([x, y], uses)
        for node, actual in zip(group.graph.nodes, run(group, [x, y]), strict=True):
            assert_close(node, actual, [(x, y)[i] for i in node.operands])


# --- fusion ---
FUSED = {
    "f": """
        add subtract multiply divide negative absolute square sqrt maximum minimum fmax copysign
        floor rint sign
    """,
    "i": """
        add subtract multiply negative absolute square maximum minimum bitwise_xor invert
        floor_divide remainder
    """,
}


def random_group(generator: np.random.Generator) -> tuple[Group, list[Array]]:
    """Return a random loop group over broadcast operands, and operands for it."""
    kind = generator.choice(["f", "i"])
    dtype = np.dtype(generator.choice(["f4", "f8"] if kind == "f" else ["i1", "i4", "i8"]))
    shape = tuple(generator.integers(1, 6, generator.integers(1, 4)).tolist())
    inputs = []
    for i in range(3):
        own = tuple(1 if i and generator.random() < 0.3 else n for n in shape)
        array = values_for(dtype, own, int(generator.integers(1000)))
        inputs.append(array.T.copy().T if generator.random() < 0.3 else array)
    names = FUSED[kind].split()
    nodes: list[Node] = []
    full = make_layout(dtype, shape)
    for number in range(3, 3 + int(generator.integers(2, 12))):
        if generator.random() < 0.15 and number > 4:
            mask, a, b = (int(i) for i in generator.integers(0, number, 3))
            flags = Node(OPS["not_equal"], (mask, a), (), make_layout(np.dtype(bool), shape))
            if number + 1 < 15 and all(n.layout.dtype == dtype for n in nodes):
                nodes.append(flags)
                nodes.append(Node(OPS["where"], (number, a, b), (), full))
                break
        op = OPS[str(generator.choice(names))]
        nodes.append(
            Node(op, tuple(int(i) for i in generator.integers(0, number, op.nin)), (), full)
        )
    count = len(inputs) + len(nodes)
    outputs = tuple(sorted({count - 1, *generator.integers(3, count, 2).tolist()}))
    return Group(
        GroupKind.LOOP, Graph(tuple(map(layout_of, inputs)), tuple(nodes), outputs), shape
    ), inputs


@pytest.mark.parametrize("seed", range(60))
def test_random_groups_equal_numpy_node_by_node(seed: int) -> None:
    group, inputs = random_group(np.random.default_rng(seed))
    values: list[Array] = list(inputs)
    for node in group.graph.nodes:
        values.append(np.asarray(reference(node, [values[i] for i in node.operands])))
    for number, actual in zip(group.graph.outputs, run(group, inputs), strict=True):
        expected = np.broadcast_to(values[number], group.shape)
        assert actual.dtype == expected.dtype
        same = (actual == expected) | ((actual != actual) & (expected != expected))
        assert same.all(), f"seed {seed}, value {number}\n{group.graph}"


def test_multiplication_and_addition_are_not_contracted() -> None:
    x, y, z = (values_for(np.dtype("f8"), (4000,), seed) for seed in (1, 2, 3))
    full = layout_of(x)
    nodes = (Node(OPS["multiply"], (0, 1), (), full), Node(OPS["add"], (3, 2), (), full))
    (actual,) = run(
        Group(GroupKind.LOOP, Graph((full, full, full), nodes, (4,)), x.shape), [x, y, z]
    )
    assert np.array_equal(actual, x * y + z)


# --- kernels as objects ---
def test_a_key_depends_on_structure_and_schedule_alone() -> None:
    def key(*shapes: tuple[int, ...], dtype: str = "f8", schedule: Schedule | None = None) -> str:
        return kernel_key(arithmetic([np.ones(s, dtype) for s in shapes]), schedule)

    assert key((100,), (100,)) == key((7, 5), (7, 5)) == key((3, 4, 5), (3, 4, 5))
    assert key((7, 5), (5,)) == key((70, 50), (50,))
    others = [
        key((7, 5), (5,)),
        key((100,), (100,)),
        key((100,), ()),
        key((100,), (100,), dtype="f4"),
        key((100,), (100,), schedule=Schedule(interleave=2)),
    ]
    assert len(set(others)) == len(others)


def test_every_schedule_gives_the_same_bits() -> None:
    x, y = (values_for(np.dtype("f8"), (13, 77), seed) for seed in (1, 2))
    group = arithmetic([x, y])
    assert next(iter(schedules(group))) == Schedule()
    for schedule in schedules(group):
        assert_arithmetic(x, y, schedule)
    total = reduce_group([x], ["sum"], (1,))
    assert len({run(total, [x], schedule)[0].tobytes() for schedule in schedules(total)}) == 1


def test_object_code_loads_again() -> None:
    x, y = (values_for(np.dtype("f8"), (50,), seed) for seed in (1, 2))
    group = arithmetic([x, y])
    kernel = llvm.compile_group(group)
    data = llvm.emit_object(kernel)
    llvm._compiled.pop(kernel.key)
    loaded = llvm.load_object(group, None, data)
    assert loaded.key == kernel.key and loaded.entry != kernel.entry
    total, flags = np.empty(50), np.empty(50, bool)
    loaded([address(a) for a in (x, y, total, flags)])
    assert np.array_equal(total, np.sqrt(np.abs(x * y)) + x)


def test_threads_may_share_a_kernel() -> None:
    x = values_for(np.dtype("f8"), (20_000,), 1)
    group = arithmetic([x, x])
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: run(group, [x, x])[0], range(40)))
    assert all(np.array_equal(r, np.sqrt(np.abs(x * x)) + x) for r in results)


def test_what_is_not_generated_is_refused_with_its_reason() -> None:
    half = np.ones(3, np.float16)
    group = loop_group([half], [(OPS["sqrt"], (0,), (), half.dtype)])
    assert unsupported(group) == "sqrt float16: generated code has no float16 yet"
    with pytest.raises(Unsupported, match="sqrt float16"):
        llvm.compile_group(group)
    swapped = np.ones(3, ">f8")
    group = loop_group([swapped], [(OPS["cast"], (0,), (), np.dtype("f8"))])
    assert "order" in str(unsupported(group))
    group = reduce_group([np.ones(3)], ["std"], (0,))
    assert "no scalar fold" in str(unsupported(group))
    assert unsupported(reduce_group([np.ones(3)], ["sum"], (0,))) is None
    check(reduce_group([np.ones(3)], ["sum"], (0,)))


def test_neighbouring_axes_are_merged() -> None:
    x = np.ones((4, 5, 6))
    assert nest(arithmetic([x, x])).dims == (120,)
    assert nest(arithmetic([x, np.ones(6)])).dims == (20, 6)
    assert nest(reduce_group([x], ["sum"], (1, 2))).dims == (4, 30)
    assert nest(reduce_group([x], ["sum"], (0,))).columns


def test_types_of_the_language_are_all_covered() -> None:
    assert set(DTYPES) == set(TYPES)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "divmod"])
def test_integer_division_by_zero_leaves_the_flag_that_numpy_warns_by(name: str) -> None:
    machine = pytest.importorskip("alight.backends.machine")
    x = np.arange(1, 101)
    for y, raised in ((np.ones(100, int), False), (np.r_[np.ones(99, int), 0], True)):
        output = (("output", 0),) if name == "divmod" else ()
        group = loop_group([x, y], [(OPS[name], (0, 1), output, int)])
        run(group, [x, y])
        machine.clear_floating_point_flags()
        run(group, [x, y])
        assert ("divide" in machine.floating_point_flags()) == raised
