"""Loop groups in explicit vectors: tiles, ends of runs, parts of a nest, widths, steps."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from alight._core import layout_of, make_layout
from alight._src.codegen.common import loops
from alight._src.codegen.common.loops import Schedule, nest
from alight._src.codegen.llvm import (
    object_code,
    target,
    vector_loops,
)
from alight._src.codegen.llvm.strip_mining import in_stages
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.ir.vectors import REGISTERS, vectors_together
from generated import (
    DTYPES,
    UNREDUCED,
    Array,
    address,
    assert_arithmetic,
    hold_no_code,
    loop_group,
    run,
    values_for,
)

EVERY = (*DTYPES, *UNREDUCED)


def values(name: str, shape: tuple[int, ...], seed: int) -> Array:
    dtype = np.dtype(name)
    if dtype.kind == "c":
        return values("float64", shape, seed) + 1j * values("float64", shape, seed + 50).astype(
            dtype
        )
    return values_for(dtype, shape, seed)


def sums(inputs: list[Array]) -> Group:
    """Return the sum of the operands."""
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    full = make_layout(inputs[0].dtype, shape)
    nodes = [Node(OPS["add"], (0, 1), (), full)]
    for i in range(2, len(inputs)):
        nodes.append(Node(OPS["add"], (len(inputs) + i - 2, i), (), full))
    last = len(inputs) + len(nodes) - 1
    return Group(GroupKind.LOOP, Graph(tuple(map(layout_of, inputs)), tuple(nodes), (last,)), shape)


def special(inputs: list[Array]) -> Group:
    """Return exp of the sum of two operands: short rows of it run together."""
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    full = make_layout(inputs[0].dtype, shape)
    nodes = (Node(OPS["add"], (0, 1), (), full), Node(OPS["exp"], (2,), (), full))
    return Group(GroupKind.LOOP, Graph(tuple(map(layout_of, inputs)), nodes, (3,)), shape)


@pytest.mark.parametrize("name", EVERY)
def test_turned_operands_equal_numpy(name: str) -> None:
    for shape in ((150, 301), (9, 65), (130, 5), (8, 8)):
        x, y = values(name, shape[::-1], 1), values(name, shape, 2)
        group = sums([x.T, y])
        assert nest(group).tiles
        assert np.array_equal(run(group, [x.T, y])[0], x.T + y, equal_nan=True)
    x, y = values(name, (5, 20, 70), 3), values(name, (20, 70, 5), 4)
    for a, b in ((x.transpose(1, 2, 0), y), (x, y.transpose(2, 0, 1)), (x.T, y.T[:, ::-1].T.T)):
        if a.shape == b.shape:
            assert np.array_equal(run(sums([a, b]), [a, b])[0], a + b)


@pytest.mark.parametrize("name", EVERY)
def test_every_step_and_end_equals_numpy(name: str) -> None:
    wide = values(name, (700,), 1)
    for count, step in itertools.product((1, 2, 7, 8, 63, 64, 65, 130), (1, 2, 3, 4, 5, -1, -2)):
        x = wide[::step][:count]
        y = values(name, (count,), 2)
        out = np.zeros(700, x.dtype)
        window = out[::step][:count]
        group = sums([x, y])
        node = group.graph.nodes[0]
        placed = Node(node.op, node.operands, (), layout_of(window))
        object_code.compile_group(
            Group(GroupKind.LOOP, Graph(group.graph.inputs, (placed,), (2,)), group.shape)
        )([address(a) for a in (x, y, window)])
        assert np.array_equal(window, x + y), (count, step)
        window[...] = 0
        assert not out.any()


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "float16"])
def test_no_lane_has_a_branch_of_its_own(name: str) -> None:
    # LLVM makes one for every lane that is gathered or scattered where the machine has no such
    # instruction, and takes seconds for it: the ends of `a[::2] + b` are copied side by side.
    wide, y = values(name, (700,), 1), values(name, (200,), 2)
    for step in (2, 3, -1, -2, 9):
        group = sums([wide[::step][:70], y[:70]])
        text = object_code.module_text(group, Schedule())
        assert "masked.gather" not in text and "masked.scatter" not in text, step


@pytest.mark.parametrize("name", ["equal", "not_equal", "less", "greater_equal"])
def test_chains_of_truths_compile_in_no_time(name: str) -> None:
    # LLVM takes ten times as long for twice as many comparisons of single bits that follow one
    # another; what they are made of instead takes what any chain takes.
    x, y = values("bool", (300,), 1), values("bool", (300,), 2)
    nodes = [(OPS[name], (0, 1), (), np.dtype(bool))]
    nodes += [(OPS[name], (2 + k, k % 2), (), np.dtype(bool)) for k in range(40)]
    group = loop_group([x, y], nodes)
    expected = [OPS[name].reference(x, y)]
    for k in range(40):
        expected.append(OPS[name].reference(expected[-1], (x, y)[k % 2]))
    for actual, wanted in zip(run(group, [x, y]), expected, strict=True):
        assert np.array_equal(actual, wanted)
    lines = object_code.module_text(group, Schedule()).splitlines()
    assert not [line for line in lines if "icmp" in line and "x i1>" in line.split("icmp")[1]]


def test_lines_of_many_runs_are_asked_for_ahead() -> None:
    # By itself a processor follows a few runs of memory, and looks past no long computation.
    def texts(count: int, name: str) -> str:
        arrays = [values("float64", (301,), seed) for seed in range(count)]
        one = np.dtype("float64")
        nodes = [(OPS[name], (k,), (), one) for k in range(count)]
        nodes += [(OPS["add"], (count + k, count + k - 1), (), one) for k in range(1, count)]
        group = loop_group(arrays, nodes)
        found = [OPS[name].reference(x) for x in arrays]
        found += [a + b for a, b in itertools.pairwise(found)]
        for actual, wanted in zip(run(group, arrays), found, strict=True):
            bound = (OPS[name].ulp + 1) * np.finfo(one).eps
            np.testing.assert_allclose(actual, wanted, rtol=bound, atol=1e-320)
        return object_code.module_text(group, Schedule())

    # Every one of them, and no more than that: a prefetch of what is there already is not free.
    assert texts(9, "exp2").count("call void @llvm.prefetch") == 9
    assert "llvm.prefetch" not in texts(8, "exp2")
    assert "llvm.prefetch" not in texts(9, "negative")


def short_rows() -> Iterator[tuple[Array, Array]]:
    for columns in (1, 2, 3, 7, 16, 33, 35):
        x = values("float64", (311, columns), 1)
        yield x, values("float64", (columns,), 2)
        yield x, values("float64", (311, 1), 3)
        yield values("float64", (311, columns + 1), 4)[:, :columns], x
    yield values("float64", (40, 3, 1), 5), values("float64", (40, 1, 3), 6)
    yield values("float64", (40, 1, 3), 5), values("float64", (40, 3), 6)


def test_short_rows_of_special_functions_equal_long_ones() -> None:
    for x, y in short_rows():
        group = special([x, y])
        (actual,) = run(group, [x, y])
        total = np.ascontiguousarray(np.broadcast_to(x + y, actual.shape)).ravel()
        (expected,) = run(loop_group([total], [(OPS["exp"], (0,), (), total.dtype)]), [total])
        assert np.array_equal(actual.ravel(), expected)


def parts(kernel: Any, addresses: list[int], axis: int, at: int) -> None:
    """Run a kernel in two calls, cut along an axis."""
    rank, count = len(kernel.dims), len(addresses)
    for start, stop in ((0, at), (at, kernel.dims[axis])):
        dims = (ctypes.c_int64 * rank)(*kernel.dims)
        dims[axis] = stop - start
        moved = [a + start * kernel.strides[i * rank + axis] for i, a in enumerate(addresses)]
        entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        entry(kernel.entry)((ctypes.c_uint64 * count)(*moved), dims, kernel.strides)


def test_a_kernel_may_be_cut_along_any_axis() -> None:
    x, y = values("float64", (70, 150), 1), values("float64", (150, 70), 2)
    turned = (sums([x.T, y]), [x.T, y])
    a, b = values("float64", (90, 31), 1), values("float64", (31,), 2)
    flat = (special([a, b]), [a, b])
    c = values("float64", (6, 90, 31), 3)[:, ::2]
    plain = (sums([c, b]), [c, b])
    for group, inputs in (turned, flat, plain):
        (expected,) = run(group, inputs)
        kernel = object_code.compile_group(group)
        assert kernel.dims[:] == list(nest(group).dims)
        for axis in range(len(kernel.dims)):
            for at in (1, kernel.dims[axis] // 2, kernel.dims[axis] - 1):
                out = np.zeros_like(expected)
                parts(kernel, [*map(address, inputs), address(out)], axis, at)
                assert np.array_equal(out, expected), (axis, at)


def test_results_may_replace_operands() -> None:
    x, y = values("float64", (150, 301), 1), values("float64", (301, 150), 2)
    expected = x + y.T
    kernel = object_code.compile_group(sums([x, y.T]))
    kernel([address(x), address(y), address(x)])
    assert np.array_equal(x, expected)


def test_stages_equal_one_after_another() -> None:
    x = values("float64", (3, 700), 1)
    single = x.astype("float32")
    full, half = layout_of(x), layout_of(single)
    flags = make_layout(np.dtype(bool), x.shape)
    nodes = (
        Node(OPS["sin"], (0,), (), full),  # 2: a result, made in the first stage
        Node(OPS["exp"], (2,), (), full),
        Node(OPS["cast"], (1,), (("dtype", full.dtype),), full),
        Node(OPS["multiply"], (3, 4), (), full),
        Node(OPS["less"], (5, 0), (), flags),
        Node(OPS["tanh"], (5,), (), full),  # 7
        Node(OPS["where"], (6, 7, 2), (), full),
        Node(OPS["cos"], (8,), (), full),
        # the first result is not read any more: its place must not be taken before it is stored
        Node(OPS["exp"], (9,), (), full),
        Node(OPS["add"], (10, 0), (), full),  # 11
    )
    graph = Graph((full, half), nodes, (11, 2, 6))
    assert len(in_stages(graph)) == 5
    group = Group(GroupKind.LOOP, graph, x.shape)
    known: list[Array] = [x, single]
    for node in nodes:
        operands = [known[i] for i in node.operands]
        uses = [(node.op, tuple(range(len(operands))), node.attrs, node.layout.dtype)]
        known += run(loop_group(operands, uses), operands)
    for number, actual in zip(graph.outputs, run(group, [x, single]), strict=True):
        assert np.array_equal(actual, known[number])
    # an operand that the last stage reads is replaced by what the first one makes
    total, flagged = np.empty_like(x), np.empty(x.shape, bool)
    object_code.compile_group(group)([address(a) for a in (x, single, total, x, flagged)])
    assert np.array_equal(total, known[11]) and np.array_equal(x, known[2])


def test_results_go_past_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "last_level_bytes", lambda: 1)
    monkeypatch.setattr(loops, "_LONG_ROW", 0)
    room = np.empty(4000)
    for offset, count in itertools.product(range(9), (1, 5, 32, 33, 500)):
        for name in ("float64", "float32", "bool", "complex128"):
            x, y = values(name, (3, count), 1), values(name, (3, count), 2)
            size = x.size * x.itemsize
            out = room.view(np.uint8)[offset * x.itemsize :][:size].view(x.dtype).reshape(3, count)
            group = sums([x[:, :], y[:1]])
            assert nest(group).stream
            object_code.compile_group(group)([address(a) for a in (x, y, out)])
            assert np.array_equal(out, x + y[:1])
    x, y = values("float64", (700,), 1), values("float64", (700,), 2)
    assert_arithmetic(x, y)
    expected = x + y
    object_code.compile_group(sums([x, y]))([address(a) for a in (x, y, x)])
    assert np.array_equal(x, expected)


def test_only_long_or_whole_rows_go_past_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "last_level_bytes", lambda: 1)

    def between_ends(shape: tuple[int, ...], dtype: str) -> bool:
        x = np.empty(tuple(n + 2 for n in shape), dtype)
        inner = x[(slice(1, -1),) * x.ndim]
        return nest(sums([inner, inner])).stream

    for dtype, long in (("float64", 512), ("float32", 1024)):
        assert between_ends((4, 30, long), dtype) and between_ends((30, long + 1), dtype)
        assert not between_ends((4, 30, long - 1), dtype) and not between_ends((98, 98), dtype)
        assert between_ends((30, 64), dtype) and between_ends((700,), dtype)
    assert not between_ends((30, 96), "float32")
    x = np.empty((30, 256))
    wide = np.empty((30, 258))
    for rolled, window in ((x, x), (wide[:, 1:-1], x)):
        rows = sums([rolled, window])
        assert nest(rows).stream
    roll = loop_group([x], [(OPS["roll"], (0,), (("axis", 1), ("shift", 1)), x.dtype)])
    assert roll.form.rolled is not None and not nest(roll).stream
    down = loop_group([x], [(OPS["roll"], (0,), (("axis", 0), ("shift", 1)), x.dtype)])
    assert nest(down).stream


def test_ends_of_short_rows_do_not_go_by_fours() -> None:
    wide = np.arange(6 * 300.0).reshape(6, 300)
    for count in (8, 16, 32, 48, 58, 98, 128, 200, 255, 256):
        x = wide[:, 1 : count + 1]
        group = sums([x, x])
        assert nest(group).single == (count in (8, 16, 32, 48, 98, 200)), count
        whole = Schedule(interleave=4)  # as it was asked for, whatever the rows
        for schedule in (Schedule(), whole):
            assert np.array_equal(run(group, [x, x], schedule)[0], x + x)
        assert not nest(loop_group([x], [(OPS["exp"], (0,), (), x.dtype)])).single
    assert not nest(sums([wide, wide])).single  # one run
    assert not nest(sums([wide[:, :8]] * 40)).single
    assert nest(sums([wide[:, :8], wide[0, :8]])).single


# --- the same bits at any width
def test_every_width_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    own, cpu, features = target.ready()
    narrow = ",".join(f"-{f[1:]}" if "avx512" in f else f for f in features.split(","))
    x, y = values("float64", (3, 333), 1), values("float64", (333,), 2)
    names = [op.name for op in OPS.values() if op.special and op.body is not None]
    chosen = [n for n in names if OPS[n].nin == 1 and n not in ("float_power", "power")]
    for dtype in ("float64", "float32"):
        a, b = x.astype(dtype), y.astype(dtype)
        uses: list[Any] = [(OPS[n], (0,), (), dtype) for n in chosen]
        uses += [(OPS[n], (0, 1), (), dtype) for n in ("divide", "multiply", "maximum")]
        group = loop_group([a, b], uses)
        results = []
        for given, schedule in (
            (features, Schedule()),
            (features, Schedule(vector_bits=256)),
            (features, Schedule(interleave=1)),
            (narrow, Schedule()),
        ):
            monkeypatch.setattr(target, "_host", (own, cpu, given))
            hold_no_code(monkeypatch)
            results.append([r.tobytes() for r in run(group, [a, b], schedule)])
        for others in results[1:]:
            for name, one, other in zip((u[0].name for u in uses), results[0], others, strict=True):
                assert one == other, name


def test_integer_division_by_way_of_floats_is_exact() -> None:
    for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        info = np.iinfo(name)
        edge = [
            info.min,
            info.min + 1,
            info.max,
            info.max - 1,
            info.max // 2,
            1,
            2,
            3,
            7,
            255 % info.max,
        ]
        edge += [n for e in (26, 27, 52, 53) for n in (2**e, 2**e - 1, -(2**e), 1 - 2**e)]
        edge = [e for e in edge if info.min <= e <= info.max]
        near = np.array([e for e in edge if e], name)
        x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(near, near))
        more = values(name, (5000,), 1), values(name, (5000,), 2)
        if info.bits == 64:  # within what float64 counts, and beyond, just below multiples
            near, far = more[0] >> 12, more[0] >> 5
            more = np.r_[near, near, far], np.r_[more[1] >> 38, more[1] >> 50, more[1] >> 38]
            multiple = more[0] // np.where(more[1] == 0, 1, more[1]).astype(name) * more[1]
            more = np.r_[more[0], multiple, multiple - 1], np.r_[more[1], more[1], more[1]]
        x, y = np.r_[x, more[0]], np.r_[y, np.where(more[1] == 0, np.dtype(name).type(1), more[1])]
        group = loop_group(
            [x, y], [(OPS[n], (0, 1), (), x.dtype) for n in ("floor_divide", "remainder")]
        )
        with np.errstate(all="ignore"):
            for actual, expected in zip(run(group, [x, y]), divmod(x, y), strict=True):
                assert np.array_equal(actual, expected)


def test_vectors_go_together_while_there_are_registers() -> None:
    def lanes(count: int, links: int, bits: int) -> int:
        """Return the lanes for sums of so many arrays, and a chain of links."""
        full = make_layout(np.dtype("f8"), (100,))
        nodes = [Node(OPS["add"], (0, 0), (), full)]
        for number in range(1, count):
            nodes.append(Node(OPS["add"], (number, count + len(nodes) - 1), (), full))
        for _ in range(links):
            nodes.append(Node(OPS["negative"], (count + len(nodes) - 1,), (), full))
        graph = Graph((full,) * count, tuple(nodes), (count + len(nodes) - 1,))
        return vector_loops.width_of_group(graph, Schedule(), bits).lanes

    assert [lanes(1, 30, bits) for bits in (512, 256)] == [8 * 8, 8 * 4]
    assert [lanes(7, 30, bits) for bits in (512, 256)] == [4 * 8, 2 * 4]
    assert [lanes(12, 30, bits) for bits in (512, 256)] == [2 * 8, 1 * 4]
    assert lanes(20, 30, 512) == 8
    assert lanes(2, 2, 512) == 4 * 8


def test_vectors_that_wait_for_one_another_go_together() -> None:
    x = values("float64", (64,), 0)
    exp, multiply = OPS["exp"], OPS["multiply"]
    first = [(exp, (i,), (), "f8") for i in range(6)]
    for row, together in ((1, 2), (4, 2), (5, 1), (6, 1)):
        # so many side by side, then what needs all of them
        uses = [*first[:row], (multiply, (row, 2 * row - 1), (), "f8")]
        assert vectors_together(loop_group([x] * row, uses).graph, REGISTERS) == together
    chain = [(exp, (i,), (), "f8") for i in range(6)]
    assert vectors_together(loop_group([x], chain).graph, REGISTERS) == 2
