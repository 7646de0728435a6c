"""Each rewriting rule on a graph that shows it, and all of them on random graphs: the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from alight._core import make_layout
from alight._src.ir.graph import Graph, Node
from alight._src.ir.op_table import OPS
from alight._src.ir.rewrite import exactly, rewrite
from alight._src.ir.well_formed import graph_faults
from counting import counted
from graphs import BOOL, F4, F8, I4, Builder, evaluate, random_graph, same, stored

SQUARE = make_layout(F8, (4, 6))


def names(graph: Graph) -> list[str]:
    """Return the ops left after rewriting, once the values were found to be the same."""
    small = rewrite(graph).graph
    assert graph_faults(graph) == []
    assert graph_faults(small) == []
    data = np.random.default_rng(1)
    inputs = [
        stored((data.standard_normal(one.shape) * 300).astype(one.dtype), one)
        for one in graph.inputs
    ]
    before, after = evaluate(graph, inputs), evaluate(small, inputs)
    for old, new in zip(graph.outputs, small.outputs, strict=True):
        assert same(before[old], after[new]), f"%{old}\n{graph}\n{small}"
    return [node.op.name for node in small.nodes]


@pytest.fixture
def b() -> Builder:
    return Builder(SQUARE, SQUARE)


def test_equal_values_are_one(b: Builder) -> None:
    x, y = b.add("exp", 0), b.add("exp", 0)
    assert names(b.graph(b.add("add", x, y))) == ["exp", "add"]


def test_operands_in_another_order_are_another_value(b: Builder) -> None:
    x, y = b.add("subtract", 0, 1), b.add("subtract", 1, 0)
    assert names(b.graph(b.add("multiply", x, y))).count("subtract") == 2


def test_attributes_that_are_merely_equal_do_not_merge(b: Builder) -> None:
    values = [b.add("roll", 0, layout=SQUARE, shift=shift) for shift in (1, True, 1)]
    total = b.add("add", b.add("add", values[0], values[1]), values[2])
    assert names(b.graph(total)).count("roll") == 2


@pytest.mark.parametrize(
    ("a", "b"),
    [(1, True), (0.0, -0.0), (1, 1.0), (np.float32(0), np.float32(-0.0)), ((1,), (1.0,))],
)
def test_keys_of_attributes_are_exact(a: object, b: object) -> None:
    assert a == b
    assert exactly(a) != exactly(b)
    assert exactly((("x", a),)) == exactly((("x", a),))


def test_outputs_stay_values_of_their_own(b: Builder) -> None:
    graph = b.graph(b.add("exp", 0), b.add("exp", 0), b.add("copy", 0), b.add("copy", 0))
    small = rewrite(graph)
    assert names(graph) == ["exp", "exp", "copy", "copy"]
    assert [small.names[o] for o in small.graph.outputs] == list(graph.outputs)


def test_an_output_takes_over_an_equal_value(b: Builder) -> None:
    first = b.add("exp", 0)
    total = b.add("add", first, first)
    second = b.add("exp", 0)
    small = rewrite(b.graph(total, second))
    assert len(small.graph.nodes) == 2
    assert small.names == (0, 1, second, total)
    assert small.origins == (0, 1, first, total)


def test_what_nobody_needs_goes(b: Builder) -> None:
    b.add("exp", b.add("exp", 0))
    assert names(b.graph(b.add("add", 0, 1))) == ["add"]


def test_creations_that_are_alike_stay_apart(b: Builder) -> None:
    x = b.add("zeros", layout=SQUARE, shape=(4, 6))
    y = b.add("zeros", layout=SQUARE, shape=(4, 6))
    assert names(b.graph(b.add("add", x, y))) == ["zeros", "zeros", "add"]


@pytest.mark.parametrize("name", ["copy", "positive", "conjugate"])
def test_an_op_that_keeps_the_bytes_goes(b: Builder, name: str) -> None:
    x = b.add(name, 0)
    assert names(b.graph(b.add("exp", x))) == ["exp"]
    assert names(b.graph(b.add("exp", x), x)) == ["copy" if name == "copy" else name, "exp"]


def test_same_bytes_spares_copies_of_windows_and_other_orders(b: Builder) -> None:
    window = b.view(0, np.s_[1:3])
    copied = b.add("copy", window)
    written = b.write(copied, np.s_[0], b.view(1, np.s_[0]))
    turned = b.add("copy", 0, layout=make_layout(F8, (4, 6), (8, 32)))
    graph = b.graph(b.add("exp", written), b.add("exp", b.view(turned, np.s_[1])))
    assert names(graph).count("copy") == 2


@pytest.mark.parametrize(
    ("start", "middle", "end", "left"),
    [
        ("f4", "f8", "f4", 0), ("f4", "f8", "f2", 1), ("i4", "i8", "i2", 1), ("i2", "f4", "f8", 1),
        ("?", "i4", "f8", 1), ("u1", "i2", "f4", 1), ("f4", "c8", "c16", 1),
        ("i8", "f8", "f4", 2), ("i4", "f4", "f8", 2), ("f8", "f4", "f8", 2), ("i4", "i2", "i8", 2),
        ("f4", "f8", "i4", 2), ("i1", "f4", "u1", 2), ("f4", "c8", "f8", 2), ("i4", "?", "i4", 2),
    ],
)  # fmt: skip
def test_a_cast_of_a_cast_is_one_where_no_value_differs(
    start: str, middle: str, end: str, left: int
) -> None:
    b = Builder(make_layout(np.dtype(start), (4, 6)))
    graph = b.graph(b.add("square", b.cast(b.cast(0, middle), end)))
    with np.errstate(all="ignore"):
        assert names(graph) == ["cast"] * left + ["square"]


def test_merged_casts_are_exact_on_every_value() -> None:
    # float64 holds every int32 and no more than 53 bits of an int64
    b = Builder(make_layout(np.dtype("i4"), (4,)))
    graph = b.graph(b.cast(b.cast(0, "f8"), "f4"))
    assert names(graph) == ["cast"]
    extreme = np.array([2**31 - 1, -(2**31), 2**24 + 1, 16777219], "i4")
    inputs = [stored(extreme, graph.inputs[0])]
    small = rewrite(graph).graph
    assert same(evaluate(graph, inputs)[-1], evaluate(small, inputs)[-1])


@pytest.mark.parametrize(("name", "dtype"), [("negative", F8), ("invert", I4), ("conjugate", F8)])
def test_an_inverse_of_itself_goes_where_it_stands_twice(name: str, dtype: np.dtype) -> None:
    b = Builder(make_layout(dtype, (4, 6)))
    assert names(b.graph(b.add("square", b.add(name, b.add(name, 0))))) == ["square"]


def test_an_output_is_not_a_window_of_something_else(b: Builder) -> None:
    twice = b.add("negative", b.add("negative", b.view(0, np.s_[1:3])))
    assert names(b.graph(twice)) == ["view", "negative", "negative"]
    assert names(b.graph(b.add("exp", twice))) == ["view", "exp"]


def test_twice_is_nothing_for_bools_only() -> None:
    for dtype, left in ((BOOL, 1), (F8, 3)):
        b = Builder(make_layout(dtype, (4, 6)))
        twice = b.add("logical_not", b.add("logical_not", 0))
        assert len(names(b.graph(b.add("isfinite", twice)))) == left


@pytest.mark.parametrize("name", ["absolute", "floor", "ceil", "trunc", "rint"])
def test_an_idempotent_op_stands_once(b: Builder, name: str) -> None:
    twice = b.add(name, b.add(name, 0))
    assert names(b.graph(b.add("exp", twice))) == [name, "exp"]
    assert names(b.graph(twice)) == [name]


@pytest.mark.parametrize("name", ["absolute", "fabs", "square"])
def test_an_op_that_loses_the_sign_takes_the_negated(b: Builder, name: str) -> None:
    assert names(b.graph(b.add(name, b.add("negative", 0)))) == [name]


def test_sign_of_unsigned_is_not_lost() -> None:
    b = Builder(make_layout(np.dtype("u1"), (4, 6)))
    assert names(b.graph(b.add("absolute", b.add("negative", 0)))) == ["negative", "absolute"]


def test_an_addition_of_a_negative_is_a_subtraction(b: Builder) -> None:
    minus = b.add("negative", 1)
    assert names(b.graph(b.add("add", 0, minus))) == ["subtract"]
    assert names(b.graph(b.add("subtract", 0, minus))) == ["add"]
    assert names(b.graph(b.add("add", minus, 0))) == ["negative", "add"]


def test_a_view_of_a_view_is_one_view(b: Builder) -> None:
    inner = b.view(0, np.s_[1:, ::-1])
    graph = b.graph(b.add("exp", b.view(inner, np.s_[1, 1::2])))
    assert names(graph) == ["view", "exp"]


def test_a_view_of_the_whole_goes(b: Builder) -> None:
    assert names(b.graph(b.add("exp", b.view(0, np.s_[...])))) == ["exp"]
    assert names(b.graph(b.view(0, np.s_[...]))) == ["view"]


def test_a_write_of_the_whole_is_its_value(b: Builder) -> None:
    value = b.add("exp", 1)
    graph = b.graph(b.write(0, np.s_[...], value))
    assert names(graph) == ["exp"]
    assert rewrite(graph).names[-1] == graph.outputs[0]


def test_whole_write_of_what_must_stay_apart(b: Builder) -> None:
    value = b.add("exp", 1)
    written = b.write(0, np.s_[...], value)
    assert names(b.graph(written, value)) == ["exp", "write"]
    assert names(b.graph(b.write(0, np.s_[...], 1))) == ["write"]
    part = b.write(0, np.s_[1:], b.view(value, np.s_[1:]))
    assert names(b.graph(part)).count("write") == 1


def test_a_read_of_what_was_written_is_the_value(b: Builder) -> None:
    value = b.add("exp", b.view(1, np.s_[1:3]))
    written = b.write(0, np.s_[1:3], value)
    again = b.add("negative", b.view(written, np.s_[1:3]))
    assert names(b.graph(again)) == ["view", "exp", "negative"]
    filled = b.write(0, np.s_[1:3], b.reduce("sum", 1, (0, 1)))
    assert "view" in names(b.graph(b.add("negative", b.view(filled, np.s_[1:3]))))
    # A sum over the window may add in another order than one over the dense value.
    total = b.reduce("sum", b.view(written, np.s_[1:3]), (0, 1))
    other = b.add("negative", b.view(written, np.s_[2:4]))
    assert names(b.graph(total, other)).count("view") == 3


def test_a_read_of_one_repeated_element_is_that_element() -> None:
    b = Builder(SQUARE, make_layout(F8, (4, 6), (0, 0)), make_layout(F8, (4, 6), (8, 32)))
    filled = b.add("copy", 1, layout=SQUARE)
    assert names(b.graph(b.add("add", 0, filled))) == ["add"]
    other = b.add("copy", 2, layout=SQUARE)  # more than one element: who reads it finds it in order
    assert names(b.graph(b.add("add", other, filled))) == ["copy", "add"]
    assert names(b.graph(filled, b.add("multiply", filled, 0))) == ["copy", "multiply"]


def test_a_write_over_a_write_leaves_the_last(b: Builder) -> None:
    first = b.write(0, np.s_[1:3], b.add("exp", b.view(1, np.s_[1:3])))
    again = b.write(first, np.s_[1:3], b.add("negative", b.view(first, np.s_[1:3])))
    assert names(b.graph(again)) == ["view", "exp", "negative", "write"]
    other = b.write(first, np.s_[2:4], b.view(1, np.s_[2:4]))
    assert names(b.graph(other)).count("write") == 2
    # Whoever else reads what was overwritten needs it: two versions of one memory would be a copy.
    across = b.add("negative", b.view(first, np.s_[2:4]))
    for needed in ((first,), (across,), (b.view(first, np.s_[1:3]),)):
        assert names(b.graph(again, *needed)).count("write") == 2


@pytest.mark.parametrize(("into", "reads"), [(np.s_[1:3], 2), (np.s_[2:4], 1)])
def test_an_update_reads_the_version_that_is_needed_anyway(
    b: Builder, into: slice, reads: int
) -> None:
    first = b.write(0, np.s_[1:3], b.add("exp", b.view(1, np.s_[1:3])))
    value = b.add("sqrt", b.add("negative", b.view(first, np.s_[1:3])))
    again = b.write(first, into, value)
    # What does not end in that window reads what was written to it.
    assert names(b.graph(again, b.add("negative", first))).count("view") == reads


def test_an_update_of_a_version_that_is_left_out_reads_none(b: Builder) -> None:
    first = b.write(0, np.s_[1:3], b.add("exp", b.view(1, np.s_[1:3])))
    again = b.write(first, np.s_[1:3], b.add("negative", b.view(first, np.s_[1:3])))
    assert names(b.graph(again)).count("view") == 1


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_random_graphs_keep_their_bits(start: int) -> None:
    dropped = 0
    for seed in range(start, start + 100):
        graph, inputs = random_graph(seed, 5 + seed % 60)
        small = rewrite(graph)
        assert graph_faults(small.graph) == [], seed
        before, after = evaluate(graph, inputs), evaluate(small.graph, inputs)
        for old, new in zip(graph.outputs, small.graph.outputs, strict=True):
            assert same(before[old], after[new]), f"seed {seed}: %{old}\n{graph}\n{small.graph}"
            assert small.names[new] == old
        assert len(set(small.graph.outputs)) == len(set(graph.outputs))
        assert not set(small.graph.outputs) & set(range(len(graph.inputs)))
        dropped += len(graph.nodes) - len(small.graph.nodes)
    assert dropped > 0


def test_rewriting_again_changes_nothing() -> None:
    for seed in range(50):
        small = rewrite(random_graph(seed, 40)[0]).graph
        assert len(rewrite(small).graph.nodes) == len(small.nodes), f"seed {seed}\n{small}"


def test_long_graphs_take_linear_work_and_no_stack() -> None:
    add = OPS["add"]
    lines = []
    for length in (2_000, 20_000):
        nodes = tuple(Node(add, (i, max(0, i - 7)), (), SQUARE) for i in range(length))
        graph = Graph((SQUARE,), nodes, (length,))
        lines.append(counted(lambda graph=graph: rewrite(graph), "line"))
    # 10 for linear, 100 for quadratic
    assert lines[1] / lines[0] < 15, lines


def test_faults_of_a_graph_are_found() -> None:
    add, view, exp = OPS["add"], OPS["view"], OPS["exp"]
    small = make_layout(F4, (2,))
    bad = [
        Graph((SQUARE,), (Node(add, (0, 2), (), SQUARE),), (1,)),
        Graph((SQUARE,), (Node(exp, (0,), (), SQUARE),), (5,)),
        Graph((SQUARE, small), (Node(add, (0, 1), (), SQUARE),), (2,)),
        Graph((SQUARE,), (Node(view, (0,), (("offset", 8),), SQUARE),), (1,)),
        Graph((SQUARE,), (Node(exp, (0,), (("where", [1]),), SQUARE),), (1,)),
        Graph((SQUARE,), (Node(OPS["sum"], (0,), (("axis", (2,)),), small),), (1,)),
    ]
    for graph in bad:
        assert graph_faults(graph), str(graph)


def test_a_view_of_what_rows_give_keeps_their_axes(b: Builder) -> None:
    total = b.add("sqrt", b.reduce("sum", b.add("square", 0), (1,)))
    graph = b.graph(b.add("divide", 0, b.view(total, np.s_[:, None])))
    assert names(graph) == ["square", "sum", "sqrt", "divide"]
    small = rewrite(graph).graph
    assert [node.layout.shape for node in small.nodes[1:3]] == [(4, 1), (4, 1)]
    # the view of columns' sums has no axis that was reduced
    b = Builder(SQUARE)
    square = b.view(0, np.s_[:, :4])
    across = b.view(b.reduce("sum", square, (0,)), np.s_[:, None])
    assert "view" in names(b.graph(b.add("divide", square, across)))


def test_a_view_that_is_asked_for_or_whose_value_others_read_stays_one(b: Builder) -> None:
    total = b.reduce("sum", 0, (1,))
    column = b.view(total, np.s_[:, None])
    assert names(b.graph(b.add("divide", 0, column), column))[:2] == ["sum", "view"]
    root = b.add("sqrt", total)
    column = b.view(b.add("exp", root), np.s_[:, None])
    assert "view" in names(b.graph(root, b.add("divide", 0, column)))
    # the sum itself may be made twice, as it stands for itself alone
    column = b.view(total, np.s_[:, None])
    assert names(b.graph(b.add("exp", total), b.add("divide", 0, column))).count("sum") == 2
