"""What loops, reductions and choices cost beside the elements: each has a number of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

import cost_profiles
from alight._core import Layout, make_layout
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.ir.vectors import REGISTERS, SHORT_ROW, one_by_one, vectors_together
from alight._src.measure import probe_bench, probes, timing
from alight._src.measure.fit import fit
from alight._src.measure.samples import Samples
from alight._src.plan.cost import Profile, Rates, estimate, shown
from alight._src.plan.curve import Curve, guess
from alight._src.plan.extrapolation import FAR_BYTES, NEAR_BYTES
from alight._src.plan.loop_overhead import (
    BUFFERED,
    DISTANT_BYTES,
    LONG_ROW,
    OUTER_ROWS,
    ROW,
    TURNED_SIDES,
)
from alight._src.plan.loop_starts import START_ROWS, WHOLE_ROW
from alight._src.plan.passes import COMBINED_BYTES
from cost_profiles import KINDS, LAUNCH, profile_with, terms


def rows(op: str, count: int, length: int) -> Group:
    """Return a group of one op of one operand whose rows lie apart."""
    kind = np.dtype(np.float64)
    apart = make_layout(kind, (count, length), (8 * (length + 7), 8))
    node = Node(OPS[op], (0,), (), make_layout(kind, (count, length)))
    return Group(GroupKind.LOOP, Graph((apart,), (node,), (1,)), (count, length))


def test_a_choice_is_read_off_its_own_curve_and_computes_nothing_more() -> None:
    group = probes.where("float64", (1000,))
    own = terms(group, {"where/float64": 1e-9})
    assert own["compute"] == 0 and own["memory"] > 0
    borrowed = profile_with({"where/float64": 1e-9}, "numpy", KINDS[:1])
    found = estimate(group, "cpu", "numpy", borrowed)
    assert found is not None and found.terms["compute"] == pytest.approx(1e-6)


def test_a_choice_of_two_numbers_goes_wrong_as_often_as_one_of_two_arrays() -> None:
    kind, n = np.dtype(np.float64), 100_000
    guessed, moved = (Curve([(25.0, LAUNCH), (1e9, LAUNCH + 1e9 * s)]) for s in (1e-9, 1e-11))
    rates = Rates(
        *(guess(LAUNCH, "seconds"), guess(LAUNCH, "seconds")),
        {"select/float64": guessed, "elementwise/float64": moved},
        *({"flop/float64": guess(0.0, "seconds")}, guess(0.0, "share"), 0.1),
    )

    def chosen(layout: Layout) -> float:
        inputs = (make_layout(np.dtype(bool), (n,)), layout, layout)
        node = Node(OPS["where"], (0, 1, 2), (), make_layout(kind, (n,)))
        group = Group(GroupKind.LOOP, Graph(inputs, (node,), (3,)), (n,))
        found = estimate(group, "cpu", "numpy", Profile("cpu", {"numpy": rates}))
        assert found is not None
        return found.seconds - LAUNCH

    whole, numbers = chosen(make_layout(kind, (n,))), chosen(make_layout(kind, ()))
    assert whole == pytest.approx(25 * n * 1e-9, rel=0.02)
    assert numbers == pytest.approx(whole - 16 * n * 1e-11, rel=0.02)


@pytest.mark.parametrize(("step", "key"), [(3, "exp@apart"), (-1, "exp@back")])
def test_a_librarys_op_has_other_seconds_where_elements_lie_apart(step: int, key: str) -> None:
    work = {"exp/float64": 1e-9, "exp@apart/float64": 4e-9, "exp@back/float64": 7e-9}
    work |= {"near/float64": 1e-6}  # is in what was measured apart
    group = probes.loop("exp", "float64", 1000, step=step)
    found = terms(group, work)
    assert found["compute"] == pytest.approx(1000 * work[f"{key}/float64"])
    assert found["loops"] == 0
    assert terms(probes.loop("exp", "float64", 1000), work)["compute"] == pytest.approx(1e-6)


def test_without_a_measure_backwards_what_lies_apart_serves() -> None:
    work = {"exp/float64": 1e-9, "exp@apart/float64": 4e-9}
    group = probes.loop("exp", "float64", 1000, step=-1)
    assert terms(group, work)["compute"] == pytest.approx(4e-6, rel=1e-3)


def test_a_librarys_short_loops_copy_what_does_not_join() -> None:
    work = {"start@elementwise/float64": 1e-9, "long@elementwise/float64": 2e-10}
    work |= {"iterator/float64": 5e-7}
    for length in (5, LONG_ROW, BUFFERED):
        expected = 5e-7 + 20 * (1e-9 + length * 2e-10)
        assert terms(rows("negative", 20, length), work)["loops"] == pytest.approx(expected)
    assert terms(rows("negative", 20, BUFFERED + 1), work)["loops"] == pytest.approx(5e-7)
    joined = probes.loop("negative", "float64", 20 * LONG_ROW)
    assert terms(joined, work)["loops"] == 0


def test_a_librarys_op_runs_in_order_on_what_was_copied() -> None:
    work = {"exp/float64": 1e-9, "exp@apart/float64": 4e-9, "start@near/float64": 1e-10}
    kind = np.dtype(np.float64)
    for length, seconds in ((BUFFERED, 1e-9), (BUFFERED + 1, 4e-9)):
        apart = make_layout(kind, (20, length), (24 * (length + 7), 24))
        node = Node(OPS["exp"], (0,), (), make_layout(kind, (20, length)))
        group = Group(GroupKind.LOOP, Graph((apart,), (node,), (1,)), (20, length))
        found = terms(group, work)
        assert found["compute"] == pytest.approx(20 * length * seconds)
        copied = length <= BUFFERED
        assert found["loops"] == pytest.approx(copied * 20 * length * 1e-10)


def test_a_librarys_op_with_a_number_has_seconds_of_its_own() -> None:
    work = {"floor_divide/float64": 9e-9, "floor_divide@still/float64": 3e-9}
    whole = probes.loop("floor_divide", "float64", 1000)
    number = probes.loop("floor_divide", "float64", 1000, still=True)
    assert terms(whole, work)["compute"] == pytest.approx(9e-6)
    assert terms(number, work)["compute"] == pytest.approx(3e-6)
    kind = np.dtype(np.float64)  # on either side
    node = Node(OPS["floor_divide"], (0, 1), (), make_layout(kind, (1000,)))
    inputs = (make_layout(kind, ()), make_layout(kind, (1000,)))
    group = Group(GroupKind.LOOP, Graph(inputs, (node,), (2,)), (1000,))
    assert terms(group, work)["compute"] == pytest.approx(3e-6)


def test_what_is_looked_for_in_rows_apart_is_copied_first() -> None:
    kind = np.dtype(np.float64)
    work = {"start@elementwise/float64": 1e-9, "start@reduce_inner/float64": 9e-9}

    def placed(layout: Layout, axis: int | None) -> float:
        node = Node(OPS["argmax"], (0,), (("axis", axis),), make_layout(np.dtype(int), ()))
        group = Group(GroupKind.REDUCE, Graph((layout,), (node,), (1,)), layout.shape)
        return terms(group, work)["loops"]

    whole, apart = make_layout(kind, (50, 400)), make_layout(kind, (50, 400), (3256, 8))
    assert placed(whole, None) == 0
    assert placed(apart, None) == pytest.approx(50 * 1e-9, rel=1e-3)


def test_a_mean_divides_its_results() -> None:
    work = {"divide/float64": 2e-9, "mean@reduce_outer/float64": 0.0}
    few, many = (
        terms(probes.reduction("mean", "float64", (3, n), (0,)), work)["loops"] for n in (1, 10_000)
    )
    assert few == 0 and many == pytest.approx(20e-6, rel=1e-3)


UNITS = (1e-10, 5e-10, 2e-9)


def test_what_is_turned_takes_as_long_as_squares_with_as_many_lines_did() -> None:
    work = dict(zip([f"turned{side}/float64" for side in TURNED_SIDES], UNITS, strict=True))
    for implementation in ("numpy", "generated"):
        for side, unit in zip(TURNED_SIDES, UNITS, strict=True):
            loops = terms(probes.turned("add", "float64", side), work, implementation)["loops"]
            assert loops == pytest.approx(side * side * unit)
        between = terms(probes.turned("add", "float64", 128), work, implementation)["loops"]
        assert between == pytest.approx(128 * 128 * 3e-10)


def test_compute_hides_in_the_caches_and_past_them_as_far_as_was_measured() -> None:
    # what is no longer than the stream was not seen in the first place
    assert shown(1e-5, 2e-5, 2e-5, NEAR_BYTES, 0.4) == pytest.approx(1e-5)
    assert shown(1e-5, 2e-5, 2e-5, FAR_BYTES, 0.4) == pytest.approx(1e-5 + 0.6 * 1e-5)
    assert shown(1e-5, 5e-5, 2e-5, FAR_BYTES, 1.0) == pytest.approx(0.0)


def test_what_comes_in_is_as_far_away_as_all_that_ops_go_through() -> None:
    kind = np.dtype(np.float64)
    knots = [(1e3, 1e-6), (1e6, 1e-5), (1e7, 1e-4), (1e8, 1e-2)]
    rates = Rates(
        *(guess(1e-6, "seconds"), guess(1e-6, "seconds"), {"elementwise/float64": Curve(knots)}),
        *({"flop/float64": guess(0.0, "seconds")}, guess(1.0, "share"), 0.1),
    )
    profile = Profile("cpu", {"numpy": rates})
    layout = make_layout(kind, (1 << 19,))
    nodes = tuple(Node(OPS["add"], (i, i), (), layout) for i in range(4))
    several = Graph((layout,) * 4, nodes, (4, 5, 6, 7))
    found = estimate(Group(GroupKind.LOOP, several, layout.shape), "cpu", "numpy", profile)
    one = Graph((layout,), nodes[:1], (1,))
    alone = estimate(Group(GroupKind.LOOP, one, layout.shape), "cpu", "numpy", profile)
    assert found is not None and alone is not None
    assert found.seconds > 6 * alone.seconds


def test_short_reductions_start_as_short_ones_did_and_others_between() -> None:
    work = {"start@reduce_inner/float64": 9e-9, "short@reduce_inner/float64": 3e-9}
    found = [
        terms(probes.reduction("sum", "float64", (50, n), (1,)), work)["loops"] / 100
        for n in (2, START_ROWS[0], 8, START_ROWS[1], 100)
    ]
    assert found[:2] == pytest.approx([3e-9, 3e-9]) and found[3:] == pytest.approx([9e-9, 9e-9])
    assert 3e-9 < found[2] < 9e-9


def test_reductions_of_columns_start_as_their_own_ops_did() -> None:
    work = {"start@reduce_outer/float64": 1e-9, "start@max@reduce_outer/float64": 9e-9}
    work |= {"start@prod@reduce_outer/float64": 2e-9}
    for op, seconds in (("sum", 1e-9), ("mean", 1e-9), ("prod", 2e-9), ("max", 9e-9)):
        group = probes.reduction(op, "float64", (100, 100), (0,))
        # those of as many rows as its curve was measured with are in that
        assert terms(group, work)["loops"] == pytest.approx((100 - OUTER_ROWS) * 2 * seconds)
        # generated code begins them all alike
        own = {"start@reduce_outer/float64": 1e-9}
        assert terms(group, own, "generated")["loops"] == pytest.approx(100 * 2 * 1e-9)


def test_what_stays_along_rows_is_computed_once_for_each() -> None:
    kind = np.dtype(np.float64)
    column, whole = make_layout(kind, (50, 1)), make_layout(kind, (50, 1024))
    nodes = (Node(OPS["exp"], (0,), (), whole), Node(OPS["exp"], (2,), (), whole))
    for first, computed in ((column, 2 * 50), (whole, 2 * 50 * 1024)):
        chain = (nodes[0], nodes[1], Node(OPS["add"], (1, 3), (), whole))
        graph = Graph((first, whole), chain, (4,))
        found = terms(Group(GroupKind.LOOP, graph, whole.shape), {"exp/float64": 1e-9}, "generated")
        assert found["compute"] == pytest.approx(computed * 1e-9)


def test_fewer_rows_than_a_curve_was_measured_with_take_less_than_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cost_profiles, "BYTE", 1e-10)
    work = {"start@reduce_outer/float64": 1e-9}
    few, many = (probes.reduction("sum", "float64", (n, 6100 // n), (0,)) for n in (2, OUTER_ROWS))
    less = terms(many, work)["memory"] - terms(few, work)["memory"]
    assert less == pytest.approx((OUTER_ROWS - 2) * 2 * 1e-9)
    assert terms(few, {"start@reduce_outer/float64": 1.0})["memory"] == 0.0


def test_torn_rows_of_one_result_take_longer_as_they_do() -> None:
    work = {"short@whole/float64": 2e-9, "start@whole/float64": 18e-9}
    lengths = (START_ROWS[0], (START_ROWS[0] + WHOLE_ROW) // 2, WHOLE_ROW, 2 * WHOLE_ROW)
    found = [
        terms(probes.reduction("max", "float64", (50, n), (0, 1), 7), work, "generated")["loops"]
        / 100
        for n in lengths
    ]
    assert found == pytest.approx([2e-9, 10e-9, 18e-9, 18e-9])


@pytest.mark.parametrize("shape", [(50, 40, 3), (200, 8, 2)])
def test_short_rows_are_side_by_side_whatever_they_are_broadcast_along(
    shape: tuple[int, int, int],
) -> None:
    """Distances between points: coordinates that stay beside others are no elements apart."""
    work = {"beside@reduce_inner/float64": 1e-9, "far@reduced/float64": 1e-6}
    rows, columns, length = shape
    both = make_layout(np.dtype("float64"), shape)
    one = make_layout(both.dtype, (rows, 1, length))
    two = make_layout(both.dtype, (1, columns, length))
    nodes = (
        Node(OPS["subtract"], (0, 1), (), both),
        Node(OPS["sum"], (2,), (("axis", (2,)),), make_layout(both.dtype, (rows, columns))),
    )
    group = Group(GroupKind.REDUCE, Graph((one, two), nodes, (3,)), shape)
    assert terms(group, work, "generated")["loops"] == pytest.approx(rows * columns * length * 1e-9)


def test_short_rows_that_are_turned_around_run_together() -> None:
    """They go through a buffer anyway, so that no row begins and no vector is left unfilled."""
    work = {"start@elementwise/float64": 1e-3, "torn@reduce_inner/float64": 1e-9}
    whole = make_layout(np.dtype("float64"), (1000, 9))
    turned = make_layout(whole.dtype, whole.shape, (8, 8000))
    node = Node(OPS["add"], (0, 1), (), whole)
    for first, beside in ((turned, True), (whole, False)):
        one = make_layout(whole.dtype, whole.shape, (8 * 9 * 3, 8)) if not beside else whole
        group = Group(GroupKind.LOOP, Graph((first, one), (node,), (2,)), whole.shape)
        loops = terms(group, work, "generated")["loops"]
        assert (loops == pytest.approx(9000 * 1e-9)) is beside
        assert (loops > 1.0) is not beside


def test_a_library_looks_for_places_in_rows_call_by_call() -> None:
    work = {"start@argmax@reduce_inner/float64": 5e-9, "start@elementwise/float64": 1e-9}
    for op in ("argmax", "argmin"):
        group = probes.reduction(op, "float64", (50, 100), (1,))
        assert terms(group, work)["loops"] == pytest.approx(50 * 2 * 5e-9)


def test_a_reduction_of_everything_begins_no_result_with_a_row() -> None:
    work = {"start@reduce_inner/float64": 9e-9, "start@elementwise/float64": 1e-9}
    kind = np.dtype(np.float64)
    apart = make_layout(kind, (50, 5), (96, 8))

    def reduced(axis: tuple[int, ...], left: tuple[int, ...]) -> Group:
        node = Node(OPS["sum"], (0,), (("axis", axis),), make_layout(kind, left))
        return Group(GroupKind.REDUCE, Graph((apart,), (node,), (1,)), (50, 5))

    assert terms(reduced((1,), (50,)), work)["loops"] == pytest.approx(50 * 2 * 9e-9)
    assert terms(reduced((0, 1), ()), work)["loops"] == pytest.approx(50 * 2 * 1e-9)


def test_a_body_before_a_reduction_takes_as_long_as_such_bodies_did() -> None:
    work = {"sin/float64": 1e-9, "add/float64": 1e-11, "max@reduce_inner/float64": 0.0}
    slow = {**work, "sin@reduced/float64": 3e-9, "flop@reduced/float64": 5e-11}
    for op, before, after in (("sin", 1e-9, 3e-9), ("add", 1e-11, 5e-11)):
        group = probes.reduced("float64", 1000, (op,))
        assert terms(group, work, "generated")["compute"] == pytest.approx(1000 * before)
        assert terms(group, slow, "generated")["compute"] == pytest.approx(1000 * after)


def test_what_a_body_takes_more_before_a_reduction_goes_by_the_width_of_its_numbers() -> None:
    work = {"sin/float64": 1e-9, "sin/float32": 1e-9, "max@reduce_inner/float64": 0.0}
    more = {**work, "exp/float64": 1e-9, "exp@reduced/float64": 3e-9}
    for dtype, seconds in (("float64", 3e-9), ("float32", 2e-9)):
        group = probes.reduced(dtype, 1000, ("sin",))
        found = terms(group, more, "generated")["compute"]
        assert found == pytest.approx(1000 * seconds), dtype


def test_generated_rows_take_whole_steps_unless_short_ones_run_together() -> None:
    work = {"negative/float64": 1e-10, "exp/float64": 1e-9}
    step = 8 * vectors_together(rows("negative", 30, 7).graph, REGISTERS)
    assert step == 32
    for length, whole in ((7, 8), (33, 40), (60, 64), (97, 104), (250, 256), (300, 320)):
        group = rows("negative", 30, length)
        seconds = pytest.approx(30 * whole * 1e-10)
        assert terms(group, work, "generated")["compute"] == seconds, length
    assert SHORT_ROW > 7
    together = rows("exp", 30, 7)
    assert terms(together, work, "generated")["compute"] == pytest.approx(30 * 7 * 1e-9)


def on_card(work: Mapping[str, float], kinds: object = KINDS) -> Profile:
    """Return the profile of generated code on a device that is not the host."""
    rates = profile_with(work, "generated", kinds).rates
    return Profile("cuda:0", rates)


def test_what_threads_left_of_few_rows_is_put_together_by_one() -> None:
    work = {"combined@reduce_inner/float64": 1e-6}

    def launch(rows: int, threads: int, elements: int = COMBINED_BYTES // 8) -> float:
        group = probes.reduction("sum", "float64", (rows, elements // rows), (1,))
        profile = replace(profile_with(work, "generated"), fingerprint={"threads": threads})
        found = estimate(group, "cpu", "generated", profile)
        assert found is not None
        return found.terms["launch"] - LAUNCH

    assert launch(1, 16) == pytest.approx(0.0, abs=1e-15)
    assert launch(8, 16) == pytest.approx(7e-6)
    assert launch(8, 16, COMBINED_BYTES // 32) == pytest.approx(7e-6 / 4, rel=1e-3)
    for rows, threads in ((64, 16), (8, 2)):  # each thread has rows of its own
        assert launch(rows, threads) == pytest.approx(0.0, abs=1e-15)


def test_few_columns_are_shared_by_their_parts() -> None:
    """What a thread takes for few columns is divided by how many parts they fall into, once."""
    base = profile_with({}, "generated", (*KINDS, "reduce_narrow")).rates["generated"]
    narrow = Curve([(n, LAUNCH + 1e-10 * n) for n in (1 << i for i in range(4, 31))])
    shared = replace(
        base,
        curves={**base.curves, "reduce_narrow/float64": narrow},
        sharing=Curve([(1e-7, 1e-7 / 16), (1e-3, 1e-3 / 16), (1.0, 1.0 / 16)]),
    )
    for columns, parts in ((16, 1), (64, 2), (128, 4)):
        group = probes.reduction("max", "float64", (1 << 14, columns), (0,))
        found = estimate(group, "cpu", "generated", Profile("cpu", {"generated": shared}))
        assert found is not None
        alone = 1e-10 * (1 << 14) * columns * 8
        assert found.seconds == pytest.approx(LAUNCH + alone / parts, rel=0.02)


def scaled_rows(count: int, length: int) -> Group:
    """Return a group that divides rows by their sums, so that they are read twice."""
    whole, kept = (
        make_layout(np.dtype(np.float64), shape) for shape in ((count, length), (count, 1))
    )
    total = Node(OPS["sum"], (0,), (("axis", (1,)), ("keepdims", True)), kept)
    graph = Graph((whole,), (total, Node(OPS["divide"], (0, 1), (), whole)), (2,))
    return Group(GroupKind.ROWWISE, graph, whole.shape)


def test_rows_that_are_read_again_are_shared_by_no_more_threads_than_there_are_rows() -> None:
    base = profile_with({"divide/float64": 1e-9}, "generated").rates["generated"]
    shared = replace(base, sharing=Curve([(1e-7, 1e-7 / 16), (1.0, 1.0 / 16)]))

    def seconds(count: int, length: int) -> float:
        found = estimate(
            scaled_rows(count, length), "cpu", "generated", Profile("cpu", {"generated": shared})
        )
        assert found is not None
        return found.terms["compute"]

    assert seconds(64, 1 << 14) == pytest.approx(1e-9 * 2**20 / 16)
    assert seconds(4, 1 << 18) == pytest.approx(1e-9 * 2**20 / 4)
    assert seconds(1, 1 << 20) == pytest.approx(1e-9 * 2**20)


def test_a_device_takes_for_a_short_row_what_its_team_does() -> None:
    work = {"beside@reduce_inner/float64": 1e-11}

    def loops(op: str, length: int, work: Mapping[str, float] = work) -> float:
        group = probes.reduction(op, "float64", (1000, length), (1,))
        found = estimate(group, "cuda:0", "generated", on_card(work))
        assert found is not None
        return found.terms["loops"] / 1000

    assert loops("max", 2) == loops("max", 2 * ROW) == pytest.approx(ROW * 1e-11)
    assert loops("argmin", 3) == pytest.approx(ROW * 1e-11)
    places = {**work, "beside@argmax@reduce_inner/float64": 5e-11}
    assert loops("argmin", 3, places) == pytest.approx(ROW * 5e-11)
    assert loops("max", ROW, places) == pytest.approx(ROW * 1e-11)


def test_a_device_reductions_row_by_row_however_its_operands_lie() -> None:
    kind = np.dtype(np.float64)
    one = make_layout(kind, (100, 1, 3), (24, 0, 8))
    other = make_layout(kind, (1, 100, 3), (0, 24, 8))
    whole, kept = make_layout(kind, (100, 100, 3)), make_layout(kind, (100, 100))
    nodes = (
        Node(OPS["subtract"], (0, 1), (), whole),
        Node(OPS["sum"], (2,), (("axis", (2,)),), kept),
    )
    group = Group(GroupKind.REDUCE, Graph((one, other), nodes, (3,)), whole.shape)
    found = estimate(group, "cuda:0", "generated", on_card({"beside@reduce_inner/float64": 1e-11}))
    assert found is not None
    assert found.terms["loops"] == pytest.approx(100 * 100 * ROW * 1e-11)


def apart(dtype: str, length: int, step: int, count: int = 30) -> Group:
    """Return a group of one negation of rows in which every few elements are taken."""
    kind = np.dtype(dtype)
    size = kind.itemsize
    given = make_layout(kind, (count, length), ((length + 7) * abs(step) * size, step * size))
    node = Node(OPS["negative"], (0,), (), make_layout(kind, (count, length)))
    return Group(GroupKind.LOOP, Graph((given,), (node,), (1,)), (count, length))


def test_what_vectors_leave_over_is_gathered_as_if_they_were_full() -> None:
    work = {"start@near/float64": 1e-10}
    step = 8 * vectors_together(apart("float64", 2, -1).graph, REGISTERS)
    for length, last in ((2, 8), (2 * step - 1, step), (step + 1, 8), (8 * step + 1, step)):
        loops = terms(apart("float64", length, -1), work, "generated")["loops"]
        assert loops == pytest.approx(30 * last * 1e-10), length
    assert terms(apart("float64", step, -1), work, "generated")["loops"] == 0


def test_generated_code_gathers_complex_numbers_and_what_is_far() -> None:
    work = {"start@near/float64": 1e-6, "near/float64": 1e-6, "far/float64": 1e-9}
    group = apart("complex128", 3, -1)
    assert one_by_one(group.graph, 3)
    assert terms(group, work, "generated")["loops"] == pytest.approx(30 * 4 * 1e-9)


def test_short_rows_that_run_together_are_copied_first() -> None:
    work = {"exp/float64": 1e-9, "torn@reduce_inner/float64": 2e-9}
    assert terms(rows("exp", 30, 7), work, "generated")["loops"] == pytest.approx(30 * 7 * 2e-9)
    assert terms(probes.loop("exp", "float64", 210), work, "generated")["loops"] == 0


def test_what_lies_between_rows_is_moved_out_of_memory_alone() -> None:
    kind = np.dtype(np.float64)
    knots = [(1e3, 1e-6), (1e5, 1e-5), (1e6, 1e-4), (1e7, 1e-2), (1e8, 1e-1)]
    rates = Rates(
        *(guess(1e-6, "seconds"), guess(1e-6, "seconds"), {"elementwise/float64": Curve(knots)}),
        *({"flop/float64": guess(0.0, "seconds")}, guess(1.0, "share"), 0.1),
    )
    profile = Profile("cpu", {"numpy": rates, "generated": rates})

    def memory(count: int, gap: int, implementation: str) -> float:
        given = make_layout(kind, (count, 2), (8 * (2 + gap), 8))
        node = Node(OPS["negative"], (0,), (), make_layout(kind, (count, 2)))
        group = Group(GroupKind.LOOP, Graph((given,), (node,), (1,)), (count, 2))
        found = estimate(group, "cpu", implementation, profile)
        assert found is not None
        return found.terms["memory"]

    for name in ("numpy", "generated"):
        assert memory(100, 7, name) == pytest.approx(memory(100, 0, name), rel=0.05)
        assert memory(1_000_000, 7, name) > 2 * memory(1_000_000, 0, name)


def test_differences_from_a_mean_go_through_memory() -> None:
    kind = np.dtype(np.float64)
    knots = [(1e3, 1e-6), (1e6, 1e-4), (1e7, 1e-2), (1e8, 1e-1)]
    curves = {f"{name}/float64": Curve(knots) for name in ("elementwise", "reduce_inner")}
    work = {"flop": 0.0, "divide": 1e-9, "var@reduce_inner": 0.0, "mean@reduce_inner": 0.0}
    rates = Rates(
        *(guess(1e-6, "seconds"), guess(1e-6, "seconds"), curves),
        {f"{name}/float64": guess(seconds, "seconds") for name, seconds in work.items()},
        *(guess(1.0, "share"), 0.1),
    )
    profile = Profile("cpu", {"numpy": rates})

    def loops(op: str, n: int) -> float:
        found = estimate(probes.reduction(op, "float64", (n,), (0,)), "cpu", "numpy", profile)
        assert found is not None and kind == np.float64
        return found.terms["loops"]

    # two passes that read and write 16 MB each, 1 ns a byte there and 0.1 ns in the caches
    assert loops("var", 1_000_000) == pytest.approx(2 * 16e6 * 0.9e-9, rel=0.15)
    assert loops("var", 1000) == pytest.approx(0.0, abs=1e-7)
    assert loops("mean", 1_000_000) == 0


def test_products_of_typical_numbers_stay_where_they_are() -> None:
    for dtype in ("float32", "float64", "complex64", "complex128"):
        numbers = probe_bench.typical(dtype, 100_003, seed=1)
        assert numbers.dtype == dtype and len(np.unique(np.abs(numbers))) > 10_000
        for lanes in (1, 16, 32):
            whole = numbers[: len(numbers) // lanes * lanes].reshape(-1, lanes)
            partial = np.abs(np.cumprod(whole, axis=0))
            assert partial.min() > 1e-20 and partial.max() < 1e20


def test_a_pace_waits_for_a_moment_as_quick_as_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = timing.Pace()
    clock = iter([0.0, 0.0, 1.0, 1.0])  # until when; a reading: 1 is the best
    monkeypatch.setattr(timing, "perf_counter", lambda: next(clock))
    assert pace.awaited(10.0)
    # two readings of 2, each followed by a look at the clock; then one of 1
    clock = iter([0.0, 0.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 5.0])
    assert pace.awaited(10.0)
    clock = iter([0.0, 0.0, 2.0, 2.0, 2.0, 4.0, 4.0])
    assert not pace.awaited(3.0)


def test_samples_of_a_slow_moment_count_only_as_long_as_there_are_no_others() -> None:
    samples = Samples("numpy", 4096)
    group = probes.loop("add", "float64", 64)
    for seconds, steady in ((3.0, False), (4.0, False), (1.0, True), (5.0, False), (2.0, True)):
        samples.add("add/float64", 64, group, [seconds], steady)
        found = samples.by_key["add/float64"][64]
        assert found.steady or 1.0 not in found.seconds
    assert found.seconds == [1.0, 2.0]


def test_a_pace_knows_slow_moments_by_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 1.0, 2.3, 3.0, 4.5, 5.0, 5.9, 6.0, 7.25])
    monkeypatch.setattr(timing, "perf_counter", lambda: next(clock))
    pace = timing.Pace()
    # 1 is the best there is, 1.3 is its clock, 1.5 is not; after 0.9, 1.25 is not either
    found = [(pace.steady(), pace.quicker) for _ in range(5)]
    assert [steady for steady, _ in found] == [True, True, False, True, False]
    assert not any(quicker for _, quicker in found)
    later = iter([7.0, 7.6])
    monkeypatch.setattr(timing, "perf_counter", lambda: next(later))
    assert pace.steady() and pace.quicker


def test_layouts_say_how_many_operands_go_backwards() -> None:
    from alight._src.plan.access_pattern import runs_of

    def vector(step: int) -> Layout:
        return make_layout(np.dtype(np.float64), (9,), (8 * step,))

    assert runs_of((9,), (vector(-1), vector(-6), vector(2)), (vector(1),)).back == 2


def test_a_library_is_handed_its_inputs_one_by_one() -> None:
    work = {"call.negative/float64": -2e-7}
    layout = make_layout(np.dtype(np.float64), (10,))
    for count, seconds in ((1, -2e-7), (2, 0.0), (4, 4e-7)):
        nodes = [Node(OPS["add"], (0, count - 1), (), layout)]
        for place in range(1, count - 1):
            nodes.append(Node(OPS["add"], (count + place - 1, place), (), layout))
        last = count + len(nodes) - 1
        graph = Graph((layout,) * count, tuple(nodes), (last,))
        found = terms(Group(GroupKind.LOOP, graph, (10,)), work)
        assert found["launch"] == pytest.approx(LAUNCH * len(nodes) + seconds)


def test_intermediates_are_as_far_away_as_what_was_gone_through_since() -> None:
    knots = [(1e3, 1e-6), (1e6, 1e-5), (1e7, 1e-4), (1e8, 1e-2)]
    rates = Rates(
        *(guess(1e-6, "seconds"), guess(1e-6, "seconds"), {"elementwise/float64": Curve(knots)}),
        *({"flop/float64": guess(0.0, "seconds")}, guess(1.0, "share"), 0.1),
    )
    layout = make_layout(np.dtype(np.float64), (1 << 19,))

    def memory(*operands: tuple[int, int]) -> float:
        nodes = tuple(Node(OPS["power"], pair, (), layout) for pair in operands)
        graph = Graph((layout,), nodes, (len(nodes),))
        group = Group(GroupKind.LOOP, graph, layout.shape)
        found = estimate(group, "cpu", "numpy", Profile("cpu", {"numpy": rates}))
        assert found is not None
        return found.terms["memory"]

    chain = [(i, i) for i in range(5)]
    near, far = memory(*chain, (5, 4)), memory(*chain, (5, 1))  # of the fifth value, the last
    assert far > 1.02 * near


def test_long_rows_are_added_one_after_the_other() -> None:
    knots = [(1e3, LAUNCH), (1e5, LAUNCH + 1e-6), (1e7, LAUNCH + 1e-3)]
    flat = [(1e3, LAUNCH), (1e8, LAUNCH + 1e-6)]
    rates = Rates(
        *(guess(LAUNCH, "seconds"), guess(LAUNCH, "seconds")),
        {"elementwise/float64": Curve(knots), "reduce_outer/float64": Curve(flat)},
        *({"flop/float64": guess(0.0, "seconds")}, guess(1.0, "share"), 0.1),
    )

    def seconds(rows: int, length: int) -> float:
        group = probes.reduction("max", "float64", (rows, length), (0,))
        found = estimate(group, "cpu", "numpy", Profile("cpu", {"numpy": rates}))
        assert found is not None
        return found.terms["memory"]

    added = Curve(knots).seconds_at(24 * 10**5) - LAUNCH
    assert seconds(3, 10**5) > 2 * added
    assert seconds(5, 10**5) - seconds(3, 10**5) == pytest.approx(2 * added)
    assert seconds(3, 1000) < 1e-6  # all of it is in the caches


def test_little_work_takes_its_share_of_the_first_knot() -> None:
    curves = {
        "reduce_inner/float64": Curve([(64.0, LAUNCH), (1e9, 1.0)]),
        "reduce_outer/float64": Curve([(4000.0, 3 * LAUNCH), (1e9, 1.0)]),
        "elementwise/float64": Curve([(64.0, LAUNCH), (1e9, 1.0)]),
    }
    rates = Rates(
        *(guess(LAUNCH, "seconds"), guess(LAUNCH, "seconds"), curves),
        *({"flop/float64": guess(0.0, "seconds")}, guess(1.0, "share"), 0.1),
    )
    group = probes.reduction("max", "float64", (5, 10), (0,))
    found = estimate(group, "cpu", "numpy", Profile("cpu", {"numpy": rates}))
    assert found is not None
    assert found.seconds == pytest.approx(LAUNCH + 2 * LAUNCH * 400 / 4000)


def test_generated_code_goes_backwards_as_it_was_measured() -> None:
    work = {"near/float64": 3e-9, "back/float64": 1e-9}
    for step, seconds in ((3, 3e-9), (-1, 1e-9)):
        group = probes.loop("negative", "float64", 1000, step=step)
        found = terms(group, work, "generated")
        assert found["loops"] == pytest.approx(1000 * seconds)
    group = probes.loop("negative", "float64", 1000, step=-1)
    assert terms(group, {"near/float64": 3e-9}, "generated")["loops"] == pytest.approx(3e-6)


def test_what_is_looked_for_across_rows_is_copied_as_squares_were() -> None:
    work = {
        f"copied{side}/float64": s for side, s in zip(TURNED_SIDES, (1e-9, 2e-9, 4e-9), strict=True)
    }
    work |= {"start@elementwise/float64": 1e-15, "turned64/float64": 1e-3}
    for side, unit in ((TURNED_SIDES[0], 1e-9), (TURNED_SIDES[2], 4e-9)):
        group = probes.reduction("argmax", "float64", (side, side), (0,))
        found = terms(group, work)["loops"]
        assert found == pytest.approx(side * side * unit, rel=1e-3)


def test_a_mean_divides_its_results_as_was_measured() -> None:
    work = {"divide/float64": 1e-10, "mean@after/float64": 5e-10}
    group = probes.reduction("mean", "float64", (4, 1000), (0,))
    assert terms(group, work)["loops"] == pytest.approx(1000 * 5e-10)


def test_places_among_elements_are_looked_for_in_their_order() -> None:
    kind = np.dtype(np.float64)
    columns = make_layout(kind, (50, 7), (8, 400))

    def loops(op: str, axis: object) -> float:
        node = Node(OPS[op], (0,), (("axis", axis),), make_layout(kind, ()))
        group = Group(GroupKind.REDUCE, Graph((columns,), (node,), (1,)), (50, 7))
        work = {"start@whole/float64": 1e-9, "turned64/float64": 1e-10}
        return terms(group, work, "generated")["loops"]

    assert loops("max", (0, 1)) == 0  # as the elements lie
    assert loops("argmax", None) == pytest.approx(50 * 2 * 1e-9 + 350 * 1e-10)


def test_special_functions_in_one_body_take_longer_than_alone() -> None:
    work = {"sin/float64": 1e-9, "add/float64": 1e-11, "multiply/float64": 1e-11}
    beside = {"flop@beside/float64": 5e-11, "special@beside/float64": 2e-10}
    for ops, before, after in (
        (("sin",), 1e-9, 1e-9),
        (("sin", "add"), 1.01e-9, 1.05e-9),
        (("sin", "add", "sin", "sin"), 3.01e-9, 3.45e-9),
        (("add", "multiply"), 2e-11, 2e-11),
    ):
        group = probes.chain("float64", 1000, ops, len(ops))
        assert terms(group, work, "generated")["compute"] == pytest.approx(1000 * before)
        found = terms(group, work | beside, "generated")["compute"]
        assert found == pytest.approx(1000 * after)


def test_what_is_fitted_stands_for_the_probes_it_was_made_of() -> None:
    """Timings of known parts come apart into these parts again."""
    n = 8192
    samples = Samples("numpy", n)

    def add(key: str, amount: int, group: Group, seconds: float) -> None:
        samples.add(key, amount, group, [seconds] * 2)

    for nbytes in (128, 1 << 15, 1 << 20, 1 << 24):
        count = nbytes // 8
        stream = 24e-12 * count
        add("elementwise/float64", count, probes.loop("add", "float64", count), 3e-6 + stream)
        for key, shape in (("inner", (count,)), ("outer", (2, count // 2))):
            group = probes.reduction("max", "float64", shape, (0,))
            add(f"reduce_{key}/float64", count, group, 5e-6)
    # one operand less is 0.4 us less; of the rest 0.1 ns an element computes
    add("negative/float64", n, probes.loop("negative", "float64", n), 2.6e-6 + 1e-10 * n)
    add("negative/float64", 64, probes.loop("negative", "float64", 64), 2.6e-6)
    add("sum@after/float64", n // 4, probes.reduction("sum", "float64", (4, n // 4), (0,)), 6e-6)
    add("mean@after/float64", n // 4, probes.reduction("mean", "float64", (4, n // 4), (0,)), 8e-6)
    eight = probes.reduction("sum", "float64", (8, 1 << 16), (1,))
    add("combined@reduce_inner/float64", 1 << 19, eight, 5e-6 + 7 * 1.5e-6)
    square = probes.reduction("argmax", "float64", (63, 63), (0,))
    add("copied64/float64", 63 * 63, square, 5e-6 + 1e-9 * 63 * 63)
    rates = fit(samples)
    assert rates is not None
    work = {key: number.value for key, number in rates.work.items()}
    assert work["combined@reduce_inner/float64"] == pytest.approx(1.5e-6)
    assert work["call.negative/float64"] == pytest.approx(-4e-7, rel=0.02)
    assert work["negative/float64"] == pytest.approx(1e-10, rel=0.3)
    assert work["mean@after/float64"] == pytest.approx(2e-6 / (n // 4))
    assert work["copied64/float64"] == pytest.approx(1e-9, rel=0.05)


def test_elements_apart_are_waited_for_out_of_memory() -> None:
    def memory(dtype: str, n: int, step: int, implementation: str, op: str = "negative") -> float:
        group = probes.loop(op, dtype, n, step=step)
        profile = profile_with({"distant/float64": 1e-10}, implementation)
        found = estimate(group, "cpu", implementation, profile)
        assert found is not None
        return found.terms["memory"]

    most = DISTANT_BYTES // 48  # elements of the probe
    for implementation in ("numpy", "generated"):
        assert memory("float64", most, 5, implementation) == pytest.approx(most * 40e-10, rel=1e-3)
        assert memory("float64", most // 2, 5, implementation) == pytest.approx(0.0, abs=1e-9)
        assert memory("float64", 6 * most, 1, implementation) == pytest.approx(0.0, abs=1e-9)
    # vectors of what is near are loaded one after the other, whatever is made of them (EPYC: every
    # third of 20 MB took 23 of 26 functions no longer than these bytes do)
    assert memory("float64", 2 * most, 3, "generated") == pytest.approx(0.0, abs=1e-9)
    assert memory("float64", 2 * most, 3, "generated", "sin") == pytest.approx(0.0, abs=1e-9)
    assert memory("complex128", most, 3, "generated") == pytest.approx(most * 48e-10, rel=1e-3)
    assert memory("complex128", most, 3, "numpy") == pytest.approx(0.0, abs=1e-9)
    # NumPy reads one by one what it has no vector loop of its own for
    assert memory("float64", 2 * most, 3, "numpy", "square") == pytest.approx(0.0, abs=1e-9)
    assert memory("float64", most, 5, "numpy", "exp") == pytest.approx(most * 40e-10, rel=1e-3)
