"""Generated loops against NumPy: layouts, fusion, schedules, and kernels as objects."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from alight._core import layout_of, make_layout
from alight._src.codegen.common.gaps import check, unsupported
from alight._src.codegen.common.keys import kernel_key
from alight._src.codegen.common.loops import Schedule, nest
from alight._src.codegen.llvm import compiled, object_code
from alight._src.ir.body import TYPES
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight.backends import machine
from alight.device import Unsupported
from generated import (
    DTYPES,
    UNREDUCED,
    Array,
    address,
    arithmetic,
    assert_arithmetic,
    layouts,
    loop_group,
    reduce_group,
    reference,
    run,
    values_for,
)  # fmt: skip


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
        object_code.compile_group(group)([address(a) for a in (x, y, window, flags)])
        assert np.array_equal(window, expected)
        window[...] = 7
        assert (room == 7).all()
    group = arithmetic([x, y])
    flags = np.empty(x.shape, bool)
    expected_flags = x < y
    object_code.compile_group(group)([address(a) for a in (x, y, x, flags)])
    assert np.array_equal(x, expected)
    assert np.array_equal(flags, expected_flags)


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
    assert key((7, 5), (5,)) == key((70, 40), (40,)) == key((9, 90), (90,))
    assert key((7, 500), (500,)) == key((70, 300), (300,)) == key((9, 60), (60,))
    assert key((7, 5), (5,)) != key((7, 500), (500,))  # short rows go by single vectors
    others = [
        key((7, 5), (5,)),
        key((100,), (100,)),
        key((100,), ()),
        key((100,), (100,), dtype="f4"),
        key((100,), (100,), schedule=Schedule(interleave=2)),
    ]
    assert len(set(others)) == len(others)


SCHEDULES = (
    *(Schedule(), Schedule(vector_bits=256)),
    *(Schedule(interleave=interleave) for interleave in (1, 2, 4)),
)


def test_every_schedule_gives_the_same_bits() -> None:
    x, y = (values_for(np.dtype("f8"), (13, 77), seed) for seed in (1, 2))
    for schedule in SCHEDULES:
        assert_arithmetic(x, y, schedule)
    total = reduce_group([x], ["sum"], (1,))
    assert len({run(total, [x], schedule)[0].tobytes() for schedule in SCHEDULES}) == 1


def test_object_code_loads_again() -> None:
    x, y = (values_for(np.dtype("f8"), (50,), seed) for seed in (1, 2))
    group = arithmetic([x, y])
    kernel = object_code.compile_group(group)
    compiled.forget(kernel.key)
    loaded = compiled.load_object(group, None, kernel.object)
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
    number = np.ones(3, complex)
    group = loop_group([number], [(OPS["arcsin"], (0,), (), number.dtype)])
    assert unsupported(group) == "arcsin complex128: no body for this dtype"
    with pytest.raises(Unsupported, match="arcsin complex128"):
        object_code.compile_group(group)
    pairs = reduce_group([np.ones(3, complex)], ["prod"], (0,))
    assert "no prod of complex128" in str(unsupported(pairs))
    swapped = np.ones(3, ">f8")
    group = loop_group([swapped], [(OPS["cast"], (0,), (), np.dtype("f8"))])
    assert "order" in str(unsupported(group))
    group = reduce_group([np.ones(3)], ["nanstd"], (0,))
    assert "no scalar reduction" in str(unsupported(group))
    assert unsupported(reduce_group([np.ones(3)], ["sum"], (0,))) is None
    check(reduce_group([np.ones(3)], ["sum"], (0,)))


def test_neighbouring_axes_are_merged() -> None:
    x = np.ones((4, 5, 6))
    assert nest(arithmetic([x, x])).dims == (120,)
    assert nest(arithmetic([x, np.ones(6)])).dims == (20, 6)
    assert nest(reduce_group([x], ["sum"], (1, 2))).dims == (4, 30)
    assert nest(reduce_group([x], ["sum"], (0,))).columns


def test_types_of_the_language_are_all_covered() -> None:
    assert {*DTYPES, *UNREDUCED} == set(TYPES)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "divmod"])
def test_integer_division_by_zero_leaves_the_flag_that_numpy_warns_by(name: str) -> None:
    x = np.arange(1, 101)
    for y, raised in ((np.ones(100, int), False), (np.r_[np.ones(99, int), 0], True)):
        output = (("output", 0),) if name == "divmod" else ()
        group = loop_group([x, y], [(OPS[name], (0, 1), output, int)])
        run(group, [x, y])
        machine.clear_floating_point_flags()
        run(group, [x, y])
        assert ("divide" in machine.floating_point_flags()) == raised
