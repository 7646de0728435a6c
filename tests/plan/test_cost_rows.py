"""What rows, places, choices and what lies far apart cost, each as it was measured."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from alight._core import make_layout
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.measure import probe_bench, probes
from alight._src.measure.fit import extended, fit, joined
from alight._src.measure.intervals import spreads_of
from alight._src.measure.points import points_of
from alight._src.measure.probes import CHAIN
from alight._src.measure.row_probes import complex_rows
from alight._src.measure.samples import Samples
from alight._src.plan.cost import Profile, Rates, estimate
from alight._src.plan.curve import Curve, guess
from alight._src.plan.loop_overhead import DISTANT_BYTES, ROW
from alight._src.plan.loop_starts import GUESSED, LEARNT
from alight._src.plan.occupancy import LONE_OPS
from alight._src.plan.rate_lookup import work_seconds
from alight._src.plan.workload import body_parts
from alight.backends.host import HostBackend
from cost_profiles import LAUNCH, profile_with, terms


def test_generated_code_is_handed_its_inputs_one_by_one() -> None:
    work = {"call.negative/float64": -1e-7}
    for count, seconds in ((1, -1e-7), (2, 0.0), (3, 1e-7)):
        layout = make_layout(np.dtype(np.float64), (10,))
        nodes = tuple(
            Node(OPS["add"], (0 if not i else count + i - 1, i % count), (), layout)
            for i in range(count)
        )
        group = Group(
            GroupKind.LOOP, Graph((layout,) * count, nodes, (2 * count - 1,)), layout.shape
        )
        assert terms(group, work, "generated")["launch"] == pytest.approx(LAUNCH + seconds)
        # one operand that took longer than two was met in a slow moment (H200's host: 1.2 us)
        slow = {"call.negative/float64": 1.2e-6}
        assert terms(group, slow, "generated")["launch"] == pytest.approx(LAUNCH)
    group = probes.reduction("max", "float64", (10,), (0,))  # reductions were measured with one
    assert terms(group, work, "generated")["launch"] == pytest.approx(LAUNCH)


def test_branches_on_what_is_looked_for_are_learnt_of_few_rows() -> None:
    names = [f"{start}@argmax@reduce_inner/float64" for start in ("short", "start")]
    work = {name: 1e-9 for name in names} | {f"guessed.{name}": 9e-9 for name in names}
    for rows_, seconds in ((LEARNT // 7, 1e-9), (GUESSED // 7 + 1, 9e-9)):
        group = probes.reduction("argmax", "float64", (rows_, 7), (1,))
        found = terms(group, work)["loops"]
        assert found == pytest.approx(2 * rows_ * seconds, rel=1e-3)
    between = probes.reduction("argmax", "float64", (1 << 16, 7), (1,))
    assert 3e-9 < terms(between, work)["loops"] / 2 / (1 << 16) <= 9e-9


def test_integers_are_looked_for_as_integers_were() -> None:
    work = {"start@argmin@reduce_inner/int64": 1e-9, "start@argmax@reduce_inner/float64": 5e-9}
    for op, dtype, seconds in (("argmax", "int64", 1e-9), ("argmin", "float64", 5e-9)):
        group = probes.reduction(op, dtype, (100, 50), (1,))
        for implementation in ("numpy", "generated"):
            found = terms(group, work, implementation)["loops"]
            assert found == pytest.approx(2 * 100 * seconds)


def test_what_libraries_copy_into_order_begins_with_each_short_row() -> None:
    work = {"copied64/float64": 1e-10, "short@copied/float64": 8e-9}
    work |= {"start@elementwise/float64": 1e-15}
    group = probes.reduction("argmax", "float64", (7, 1000), (0,))
    assert terms(group, work)["loops"] == pytest.approx(7000 * 1e-10 + 1000 * 8e-9, rel=1e-3)


def test_columns_of_few_rows_write_as_much_as_they_read() -> None:
    knots = {"reduce_outer": [(1e2, 1e-6), (1e8, 1e-6 + 1e-2)]}
    knots["elementwise"] = [(1e2, 1e-6), (1e8, 1e-6 + 3e-2)]
    rates = Rates(
        *(guess(1e-6, "seconds"), guess(1e-6, "seconds")),
        {f"{kind}/float64": Curve(found) for kind, found in knots.items()},
        *({"flop/float64": guess(0.0, "seconds")}, guess(0.0, "share"), 0.1),
    )
    profile = Profile("cpu", {"generated": rates})

    def memory(count: int, length: int) -> float:
        group = probes.reduction("max", "float64", (count, length), (0,))
        found = estimate(group, "cpu", "generated", profile)
        assert found is not None
        return found.terms["memory"]

    # writing n bytes takes what an addition of three times as many takes beyond reading twice
    n = 8 * 100_000
    assert memory(2, 100_000) == pytest.approx(2 * n * 1e-10 + n * (9 - 2) * 1e-10, rel=0.02)
    assert memory(200, 1000) == pytest.approx(2 * n * 1e-10, rel=0.1)


def test_a_choice_is_guessed_however_few_arrays_it_moves() -> None:
    call, size = 1e-6, 1 << 20
    knots = [(1e3, call), (1 << 22, call + 4e-4), (1 << 25, call + 3.2e-3)]
    lines = [(1e3, call), (1 << 25, call + 3e-3)]
    rates = Rates(
        *(guess(call, "seconds"), guess(call, "seconds")),
        {"select/float64": Curve(knots), "elementwise/float64": Curve(lines)},
        *({"flop/float64": guess(0.0, "seconds")}, guess(0.0, "share"), 0.1),
    )
    layout = make_layout(np.dtype(np.float64), (size,))
    single = make_layout(np.dtype(np.float64), ())
    mask = make_layout(np.dtype(np.bool_), (size,))
    node = Node(OPS["where"], (0, 1, 2), (), layout)
    group = Group(GroupKind.LOOP, Graph((mask, single, single), (node,), (3,)), (size,))
    found = estimate(group, "cpu", "numpy", Profile("cpu", {"numpy": rates}))
    assert found is not None
    assert found.seconds == pytest.approx(call + 4e-4 * size * 25 / (1 << 22), rel=0.02)


def test_reductions_of_what_lies_apart_wait_longer_in_long_bodies() -> None:
    work = {"distant/float64": 1e-12, "distant@reduced/float64": 1e-10}
    work |= {"distant@special/float64": 4e-10}
    n = DISTANT_BYTES // 24
    seconds = {}
    for ops in (("add",), ("add", "exp")):
        group = probes.reduced("float64", n, ops, 3)
        found = estimate(group, "cpu", "generated", profile_with(work, "generated"))
        bare = estimate(group, "cpu", "generated", profile_with({}, "generated"))
        assert found is not None and bare is not None
        seconds[len(ops)] = found.terms["memory"] - bare.terms["memory"]
    assert seconds[1] == pytest.approx(n * 24e-10, rel=1e-3)
    assert seconds[2] == pytest.approx(n * 96e-10, rel=1e-3)


def test_complex_numbers_are_taken_apart_where_no_vector_is_filled() -> None:
    work = {"start@elementwise/complex128": 1e-8}

    def loops(op: str, length: int) -> float:
        kind = np.dtype(np.complex128)
        whole = make_layout(kind, (100, length))
        apart = make_layout(kind, (100, length), (16 * (length + 7), 16))
        count = OPS[op].nin
        node = Node(OPS[op], tuple(range(count)), (), whole)
        inputs = (apart, whole)[:count]
        group = Group(GroupKind.LOOP, Graph(inputs, (node,), (count,)), whole.shape)
        return terms(group, work, "generated")["loops"]

    assert loops("add", 5) == pytest.approx(100 * 3 * 1e-8)
    assert loops("negative", 5) == pytest.approx(100 * 2 * 1e-8)
    assert loops("add", 128) == 0.0


def test_what_computes_longer_than_memory_takes_still_does() -> None:
    def rates(pace: float) -> Rates:
        knots = [(1e3, 1e-6), (1e5, 1e-6 + pace * 1e5), (1e8, 1e-6 + pace * 1e8 + 1e-3)]
        return Rates(
            *(guess(1e-6, "seconds"), guess(1e-6, "seconds")),
            {"reduce_inner/complex128": Curve(knots)},
            *({}, guess(0.0, "share"), 0.1),
        )

    slow, quick = 3e-11, 1e-11
    found = joined({"numpy": rates(slow), "generated": rates(quick)})
    curve = found["numpy"].curves["reduce_inner/complex128"]
    assert curve.seconds_at(1e8) == pytest.approx(1e-6 + slow * 1e8, rel=0.02)
    alike = joined({"numpy": rates(quick), "generated": rates(quick)})
    assert (
        alike["numpy"].curves["reduce_inner/complex128"].knots
        == rates(quick).curves["reduce_inner/complex128"].knots
    )


def test_intervals_hold_four_in_five_of_what_was_tried() -> None:
    errors = {"numpy": {"elementwise": [0.01 * i for i in range(-50, 51)], "fused": [0.9] * 2}}
    spreads = spreads_of(errors, {})["numpy"]
    half = 1.2815515655446004 * spreads["elementwise"]
    assert 0.38 < half < 0.5  # 80 % of up to 0.5, a little more for the others
    assert math.exp(half) > 1.4
    few = 1.2815515655446004 * spreads["fused"]
    assert half < few < 0.9  # two say little against all the others
    assert spreads_of({"numpy": {"reduce": [0.1] * 30}}, {})["numpy"].keys() == {
        "reduce_inner",
        "reduce_outer",
    }


def test_products_are_as_sure_as_those_that_were_left_out() -> None:
    found = spreads_of({"numpy": {"matmul": []}}, {"numpy": [0.1] * 64})
    assert 1.2815515655446004 * found["numpy"]["matmul"] == pytest.approx(0.1)
    assert spreads_of({}, {"numpy": []}) == {"numpy": {}}


def test_one_prediction_that_was_tried_says_nothing_of_the_others() -> None:
    one = {"generated": {"elementwise": [0.015]}}
    assert spreads_of(one, {}) == {"generated": {}}
    three = {"generated": {"elementwise": [0.015]}, "numpy": {"reduce": [0.02, 0.01]}}
    assert spreads_of(three, {}) == {"generated": {}, "numpy": {}}
    three["numpy"]["fused"] = [0.3]
    assert spreads_of(three, {})["generated"]["elementwise"] > 0.015


def test_the_interval_of_a_class_is_that_of_its_tries() -> None:
    group = probes.loop("exp", "float64", 1000)
    profile = profile_with({"exp/float64": 1e-9}, "generated")
    rates = profile.rates["generated"]
    tried = Rates(
        *(rates.launch, rates.call, rates.curves, rates.work, rates.overlap, 0.5),
        spreads={"elementwise": 0.05, "fused": 0.3},
    )
    found = estimate(group, "cpu", "generated", Profile("cpu", {"generated": tried}))
    assert found is not None
    assert found.high / found.seconds == pytest.approx(math.exp(1.2815515655446004 * 0.05))


def test_places_are_measured_where_they_are_looked_for() -> None:
    (host,) = HostBackend().probe().devices
    keys = {(p.implementation, p.key) for p in points_of(host)}
    for start in ("start", "short", "guessed.start", "guessed.short"):
        for name in ("argmax@reduce_inner/float64", "argmin@reduce_inner/int64"):
            assert ("numpy", f"{start}@{name}") in keys
    assert ("generated", "start@argmin@reduce_inner/int64") in keys
    assert ("generated", "distant@beside/complex128") in keys
    away = replace(host, space="cuda:0")
    theirs = {p.key for p in points_of(away) if p.implementation == "numpy"}
    assert "start@argmax@reduce_inner/float64" in theirs
    assert not any(key.startswith(("guessed.", "distant")) for key in theirs)
    many = replace(away, limits={**away.limits, "processors": 132})
    own, hidden = (
        {p.key for p in points_of(d) if p.implementation == "generated"} for d in (away, many)
    )
    assert {"exp/float64", "exp@reduced/float64"} <= own and "chain.divide/float64" not in own
    assert not {"exp/float64", "exp@reduced/float64"} & hidden and "chain.divide/float64" in hidden
    assert "remainder/int64" in hidden  # how often it goes around is in no body


def test_what_one_block_takes_alone_is_measured_before_what_few_groups_need() -> None:
    (host,) = HostBackend().probe().devices
    card = replace(host, space="cuda:0", limits={**host.limits, "processors": 132})
    keys = [p.key for p in points_of(card) if p.implementation == "generated"]
    for dtype in ("float64", "float32"):
        vital = [keys.index(f"{op}@lone/{dtype}") for op in ("max", "add", "exp")]
        assert max(vital) < keys.index(f"short@reduce_outer/{dtype}")
        assert {f"{op}@lone/{dtype}" for op in LONE_OPS} <= set(keys)
    assert not any("@lone/" in p.key for p in points_of(host))
    every = [(p.implementation, p.key, p.amount) for p in points_of(card)]
    assert len(every) == len(set(every))
    named = [i for i, (_, key, _) in enumerate(every) if key in ("sort/float64", "fft/float64")]
    assert max(named) < every.index(("generated", "elementwise/float32", 1 << 5))


def test_what_a_body_is_made_of_is_told_where_arithmetic_hides_behind_memory() -> None:
    n = 1 << 23
    samples = Samples("generated", n, hides=True)

    def add(key: str, amount: int, group: Group, seconds: float) -> None:
        samples.add(key, amount, group, [max(12e-6, seconds)] * 2)

    for count in (16, 1 << 20, n):
        add("elementwise/float32", count, probes.loop("add", "float32", count), 4e-12 * count)
    # 0.05 ps each: 192 of them take longer than memory, one exponential does not
    chain = probes.chain("float32", n, ("add", "multiply"), 8 * CHAIN)
    add("flop/float32", n, chain, 12e-6 + 8 * CHAIN * 5e-14 * n)
    for op, seconds in (("divide", 5e-13), ("sqrt", 4e-13)):
        group = probes.chain("float32", n, (op,))
        add(f"chain.{op}/float32", n, group, 12e-6 + CHAIN * seconds * n)
    exp = probes.loop("exp", "float32", n)
    add("exp/float32", n, exp, 16e-6)  # what two such arrays take
    rates = fit(samples)
    assert rates is not None and rates.overlap.value == 1.0
    assert rates.work["flop/float32"].value == pytest.approx(5e-14, rel=0.02)
    assert rates.work["divide/float32"].value == pytest.approx(5e-13, rel=0.02)
    assert "exp/float32" not in rates.work
    found = work_seconds(rates, exp.graph, exp.graph.nodes[0], True)
    simple = body_parts(exp.graph, exp.graph.nodes[0])[0]
    assert found is not None and found[0] == pytest.approx(simple * 5e-14, rel=0.02)


def test_a_second_kernel_is_no_stream() -> None:
    """Maxima of an H200: those of 1 MB are two kernels, in either dtype."""
    known = {
        "float64": {128: 11.4, 32768: 12.2, 262144: 17.7, 1 << 20: 17.8, 1 << 26: 32.9},
        "float32": {128: 11.9, 32768: 11.9, 262144: 17.8, 1 << 20: 18.3},
        "int64": {128: 11.9, 32768: 12.2, 262144: 21.0, 1 << 20: 31.0},  # computes for longer
    }
    curves = {
        f"reduce_inner/{dtype}": Curve([(work, 1e-6 * us) for work, us in knots.items()])
        for dtype, knots in known.items()
    }
    found = {key: curve.seconds_at(1 << 26) for key, curve in extended(curves).items()}
    assert found["reduce_inner/float32"] == pytest.approx(33.4e-6, rel=0.05)
    assert found["reduce_inner/int64"] == pytest.approx(64 * 19.1e-6, rel=0.05)


def test_sums_of_complex_rows_take_no_less_out_of_memory_than_none() -> None:
    n, most = 8192, 8 * DISTANT_BYTES
    samples = Samples("generated", n)

    def add(key: str, amount: int, group: Group, each: float) -> None:
        samples.add(key, amount, group, [3e-6 + each * amount] * 2)

    for count in (16, 1 << 12, 1 << 20):
        for dtype in ("float64", "complex128"):
            add(f"elementwise/{dtype}", count, probes.loop("add", dtype, count), 1e-11)
        rows = probes.reduction("sum", "complex128", (count // 8, 8), (1,))
        add("reduce_inner/complex128", count, rows, 1e-11)
    near = 1e-9
    for key, amount, group in complex_rows("complex128", n, most):
        add(f"{key}/complex128", amount, group, 2 * near if key.startswith("distant") else near)
    rates = fit(samples)
    assert rates is not None
    assert min(number.value for key, number in rates.work.items() if "call." not in key) >= 0
    # 16 bytes each, and those of a row's sum
    found = rates.work["distant@beside/complex128"].value
    assert found == pytest.approx(near / (16 * (1 + 1 / ROW)), rel=0.02)


def test_a_librarys_op_that_was_not_timed_takes_what_it_takes_in_another_width() -> None:
    work = {"hypot/float64": 4e-9, "special/float32": 1e-10, "remainder/int64": 7e-9}
    group = probes.loop("hypot", "float32", 1000)
    graph = group.graph
    rates = profile_with(work, "numpy").rates["numpy"]
    assert work_seconds(rates, graph, graph.nodes[0], False) == (
        4e-9,
        math.hypot(rates.spread, math.log(1.5)),
    )
    # integers of a name are another algorithm
    whole = probes.loop("remainder", "float32", 1000).graph
    found = work_seconds(rates, whole, whole.nodes[0], False)
    assert found is not None and found[0] < 7e-9


def test_masks_of_probes_repeat_nothing() -> None:
    mask = probe_bench.typical("bool", 1 << 18, 1)
    assert mask.dtype == bool and 0.49 < mask.mean() < 0.51
    quarters = mask.reshape(4, -1)
    assert all(
        0.49 < (quarters[i] == quarters[j]).mean() < 0.51 for i in range(4) for j in range(i)
    )
