"""Counted work, measured curves, and predictions that come true on a clock we know."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alight._core import Data, Layout, layout_of, make_layout
from alight._src.adapt import planner_facts
from alight._src.base.cache_registry import Cache, forget
from alight._src.base.originals import ENVIRONMENT
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.measure import device_calibration, points, probe_bench, probes, sizes
from alight._src.measure.calibrate import calibrate
from alight._src.measure.device_calibration import Calibration
from alight._src.measure.fit import fit
from alight._src.measure.gemm_fit import surface_of
from alight._src.measure.held_out import unseen
from alight._src.measure.profiles import load_profile, save_profile
from alight._src.measure.samples import Samples
from alight._src.measure.timing import (
    LEAST_SECONDS,
    MOST_SAMPLES,
    SAMPLE_SECONDS,
    Timing,
    contention,
    sample_calls,
    summary,
)
from alight._src.plan import curve as curves
from alight._src.plan import workload as workload_of
from alight._src.plan.access_pattern import Runs, between_bytes, runs_of, touched_bytes
from alight._src.plan.cost import Profile, Rates, copy_seconds, estimate
from alight._src.plan.curve import Curve, guess
from alight._src.plan.gemm_surface import Surface
from alight._src.plan.passes import passes
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Estimate, Facts, LaunchStep
from alight._src.plan.plan_cost import account
from alight._src.plan.workload import body_parts, one_by_one, workload
from alight._src.run import evaluate, recording_costs
from alight._src.store import Store
from alight.backends import registry
from alight.backends.host import HostBackend
from alight.backends.sim.sim_backend import SimBackend
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, Spec, group_seconds, recorded
from alight.backends.sim.virtual_clock import copy_seconds as copy_seconds_of
from own_store import own_store

F8 = np.dtype(np.float64)


def vector(n: int, dtype: str = "float64") -> Layout:
    return make_layout(np.dtype(dtype), (n,))


# --- work is counted -------------------------------------------------------------------------


def test_a_fused_chain_moves_its_inputs_and_its_result_once() -> None:
    work = workload(probes.chain("float64", 1000))
    assert work.bytes_read == 2 * 8000 and work.bytes_written == 8000
    assert work.launches == 1
    assert work.flops == probes.CHAIN * 1000 and work.special == 0
    assert work.elements == 1000
    assert work.dtypes == ("float64",)


def test_alone_every_node_moves_its_own_unless_in_place() -> None:
    group = probes.chain("float64", 1000)
    moved = [nbytes for _, nbytes in one_by_one(group.graph)]
    # The first needs new memory, the last is the result; the others overwrite the one before.
    assert moved == [24000, *[16000] * (probes.CHAIN - 2), 24000]


def test_broadcast_and_repeated_inputs_count_once() -> None:
    row = np.broadcast_to(np.ones(50), (40, 50))
    full = np.ones((40, 50))
    node = Node(OPS["multiply"], (0, 1), (), layout_of(full))
    twice = Node(OPS["add"], (2, 1), (), layout_of(full))
    graph = Graph((layout_of(row), layout_of(full)), (node, twice), (3,))
    work = workload(Group(GroupKind.LOOP, graph, full.shape))
    assert work.bytes_read == row.shape[1] * 8 + full.nbytes
    assert work.bytes_written == full.nbytes


def test_a_reduction_counts_what_it_reads() -> None:
    work = workload(probes.reduction("sum", "float32", (30, 70), (1,)))
    assert work.flops == 2100
    assert (work.bytes_read, work.bytes_written) == (2100 * 4, 30 * 4)
    assert work.elements == 2100


def test_transcendentals_are_counted_apart_and_outputs_the_host_needs_too() -> None:
    work = workload(probes.loop("exp", "float64", 100), on_host=[0])
    assert (work.flops, work.special) == (0, 100)
    assert work.host_output_bytes == 800
    assert workload(probes.loop("exp", "float64", 100)).host_output_bytes == 0


def test_a_product_has_two_flops_for_each_multiplication() -> None:
    a, b, c = (make_layout(F8, shape) for shape in ((5, 7, 11), (5, 11, 13), (5, 7, 13)))
    node = Node(OPS["matmul"], (0, 1), (), c)
    group = Group(GroupKind.LIBRARY, Graph((a, b), (node,), (2,)), c.shape)
    assert workload(group).flops == 2 * 5 * 7 * 11 * 13


# --- curves ---------------------------------------------------------------------------------------


def test_a_curve_goes_through_its_knots_rises_and_knows_its_ends() -> None:
    knots = [(1e2, 5e-6), (1e4, 6e-6), (1e6, 9e-5), (1e8, 2e-2)]
    curve = Curve(knots)
    for work, seconds in knots:
        assert curve.seconds_at(work) == pytest.approx(seconds)
    assert curve.seconds_at(1) == pytest.approx(5e-6)
    assert curve.seconds_at(3e8) == pytest.approx(6e-2, rel=1e-3)
    launched = Curve([(1e2, 15e-6), (1e6, 15.4e-6), (1e8, 55e-6)])
    assert launched.seconds_at(1e10) == pytest.approx(15e-6 + 100 * 40e-6, rel=1e-3)
    assert Curve([(1e3, 1e-6), (2e3, 1e-6)]).seconds_at(1e6) == pytest.approx(5e-4)
    grid = [10 ** (i / 50) for i in range(50, 450)]
    values = [curve.seconds_at(x) for x in grid]
    assert values == sorted(values)


def test_streams_of_all_threads_are_freed_of_what_was_in_their_way() -> None:
    """Knots of a Xeon's maxima, of which that of 4 MiB met something."""
    knots = [(1e2, 1.7e-6), (3e4, 2.3e-6), (2.6e5, 5.3e-6), (1e6, 6.8e-6), (4e6, 15.2e-6)]
    far = [(8e6, 15.4e-6), (1.6e7, 25.4e-6), (5e7, 2e-4)]
    curve = Curve([*knots, *far])
    found = curve.undisturbed(7e-6)
    assert found.knots[:4] == curve.knots[:4]  # where threads are added a curve bends so
    assert found.knots[4][1] == pytest.approx(6.8e-6 + 8.6e-6 * 3 / 7)
    assert found.knots[5:] == curve.knots[5:]  # caches that end make it steeper
    assert found.undisturbed(7e-6) == found
    assert curve.undisturbed(1e-6) == curve.undisturbed(1.0) == curve

    def rates(join: float) -> tuple[Profile, Profile]:
        launch = guess(1.7e-6, "seconds")
        own = Rates(
            *(launch, launch, {"elementwise/float64": curve}, {}, guess(0.0, "share"), 0.1),
            sharing=curve,
        )
        one_offs = {"join": guess(join, "seconds")}
        document = Profile("cpu", {"numpy": own, "generated": own}, one_offs=one_offs).to_dict()
        profile = Profile.from_dict(document)
        return profile, Profile.from_dict(profile.to_dict())

    first, again = rates(5.3e-6)
    assert first.rates["numpy"].curves["elementwise/float64"] == curve
    assert first.rates["generated"].curves["elementwise/float64"] == found
    assert again == first
    # where it takes longer to meet than any of these did, nothing says that all took part
    assert rates(1e-3)[0].rates["generated"].curves["elementwise/float64"] == curve


def test_noise_that_makes_a_curve_fall_is_taken_off() -> None:
    random = Random(1)
    for _ in range(200):
        knots = [(2.0**i, random.uniform(1, 3) * 1.5**i) for i in range(1, 12)]
        curve = Curve(knots)
        values = [curve.seconds_at(2 ** (i / 10)) for i in range(5, 130)]
        assert all(b >= a * (1 - 1e-12) for a, b in pairwise(values))
    # additions of 16 float64 that met other work (EPYC): calls of all sizes seemed to take as long
    met = Curve([(136, 10.6e-6), (32776, 7.3e-6), (262152, 9.6e-6)])
    assert [seconds for _, seconds in met.knots] == [7.3e-6, 7.3e-6, 9.6e-6]


def test_a_curve_that_another_thread_reads_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = Curve([(2.0**i, 1e-6 + 2e-9 * 2**i) for i in range(10, 20)])
    expected = Curve(curve.knots).stream_seconds(2**12)

    def meanwhile(*given: Any, **named: Any) -> Any:
        if named:  # of what is found last
            monkeypatch.undo()
            assert curve.stream_seconds(2**12) == expected
        return min(*given, **named)

    monkeypatch.setattr(curves, "min", meanwhile, raising=False)
    assert curve.stream_seconds(2**12) == expected


def test_few_knots_predict_a_device_of_known_form() -> None:
    def seconds(nbytes: float) -> float:
        return 12e-6 + nbytes / 2.5e12

    curve = Curve([(2.0**i, seconds(2.0**i)) for i in range(10, 31, 2)])
    errors = [abs(curve.seconds_at(2**x) / seconds(2**x) - 1) for x in (10.7, 17.3, 23.1, 28.9)]
    assert max(errors) < 0.02


@pytest.mark.parametrize("knots", [[], [(0, 1.0)], [(1.0, 0.0)], [(1.0, 1.0), (1.0, 2.0)]])
def test_knots_that_no_clock_can_give_are_refused(knots: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="Fix"):
        Curve(knots)


# --- loops ---------------------------------------------------------------------------------------


def test_inner_loops_are_counted_after_axes_have_joined() -> None:
    whole, row = make_layout(F8, (30, 40)), make_layout(F8, (40,))
    assert runs_of((30, 40), (whole, whole), (whole,)) == Runs(1, 1200, 0, 0)
    assert runs_of((30, 40), (whole, row), (whole,)) == Runs(30, 40, 0, 0, torn=1)
    back, apart = make_layout(F8, (40,), (-8,)), make_layout(F8, (40,), (56,))
    assert runs_of((40,), (back, apart), (row,)) == Runs(1, 40, 1, 1, 1, wide=56)
    assert runs_of((40,), (row, make_layout(F8, ())), (row,)) == Runs(1, 40, 0, 0, still=1)
    turned = make_layout(F8, (30, 40), (8, 240))
    assert runs_of((30, 40), (turned,), (turned,)) == Runs(1, 1200, 0, 0)
    # its lines are used up after 30 elements of other rows
    assert runs_of((30, 40), (turned, whole), (whole,)) == Runs(
        30, 40, 0, 1, torn=1, turned=1, side=30
    )
    # sums of columns: along the axis on which elements are neighbours, 30 times
    assert runs_of((30, 40), (whole,), (row,), (0,)) == Runs(30, 40, 0, 0)
    # rows that join are not torn by their sums; rows apart are, and numbers of rows are not
    column, apart = make_layout(F8, (30, 1)), make_layout(F8, (30, 40), (376, 8))
    sums = make_layout(F8, (30,))
    assert runs_of((30, 40), (whole, column), (sums,), (1,)) == Runs(30, 40, 0, 0, still=1)
    assert runs_of((30, 40), (apart,), (sums,), (1,)) == Runs(30, 40, 0, 0, torn=1)
    assert runs_of((30, 40), (whole,), (make_layout(F8, ()),), (0, 1)) == Runs(1, 1200, 0, 0)


def test_elements_apart_move_what_lies_between_up_to_a_line() -> None:
    assert touched_bytes(make_layout(F8, (100,), (24,))) == 2400
    assert touched_bytes(make_layout(F8, (100,), (8000,))) == 6400
    assert touched_bytes(make_layout(F8, (100, 5), (0, 8))) == 40
    assert touched_bytes(make_layout(F8, (1,), (8000,))) == 8
    assert touched_bytes(make_layout(F8, (100, 2), (72, 8))) == 1600


def test_rows_apart_move_the_lines_that_they_touch() -> None:
    assert between_bytes(make_layout(F8, (100, 2), (72, 8))) == 100 * (72 - 16)
    # a row of 40 bytes begins at any of eight places in a line: 96 on the average
    assert between_bytes(make_layout(F8, (100, 5), (8000, 8))) == 100 * 56
    assert between_bytes(make_layout(F8, (100, 5))) == 0
    assert between_bytes(make_layout(F8, (100,), (24,))) == 0  # elements, not rows
    assert between_bytes(make_layout(F8, (0, 5), (72, 8))) == 0


def test_a_surface_finds_what_products_are_made_of_and_bends_where_they_do_not() -> None:
    def seconds(m: float, k: float, n: float) -> float:
        return 2e-6 + 1e-11 * m * k * n + 3e-10 * m * k + 1e-9 * m * n

    random = Random(3)
    shapes = [tuple(round(2 ** random.uniform(3, 10)) for _ in range(3)) for _ in range(80)]
    for bent in (False, True):

        def truth(m: int, k: int, n: int, bent: bool = bent) -> float:
            slow = 1 + 3.0 / (1 + (math.log2(n) - 4) ** 2) if bent else 1.0
            return slow * seconds(m, k, n)

        fitted = surface_of({(m, k, n): truth(m, k, n) for m, k, n in shapes[:60]})
        assert fitted is not None and min(fitted[0].seconds) >= 0
        found, missed = fitted
        errors = [abs(found.seconds_at(*s) / truth(*s) - 1) for s in shapes[60:]]
        assert median(errors) < (0.06 if bent else 0.005), bent
        # what it would miss of what it was made of says what it misses of others
        assert median(errors) / 3 < median(map(abs, missed)) < 3 * median(errors), bent
        assert Surface.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert surface_of({(8, 8, 8): 1e-6}) is None


def test_steps_along_an_inner_side_are_told_from_what_is_read() -> None:
    """A library fills up the tiles of a small result, and shares no inner side among threads."""

    def seconds(m: int, k: int, n: int) -> float:
        return 1e-5 + 6e-12 * m * k * n + 8e-11 * m * k + 5e-9 * k

    random = Random(9)
    shapes = [tuple(round(2 ** random.uniform(1, 10)) for _ in range(3)) for _ in range(60)]
    shapes += [(random.randrange(2, 60), round(2 ** random.uniform(11, 14)), 9) for _ in range(6)]
    fitted = surface_of({(m, k, n): seconds(m, k, n) for m, k, n in shapes})
    assert fitted is not None
    for shape in ((8, 1 << 17, 2), (2, 1 << 16, 3)):
        assert fitted[0].seconds_at(*shape) == pytest.approx(seconds(*shape), rel=0.1)
    older = fitted[0].to_dict()
    older["seconds"] = older["seconds"][:-1]
    assert Surface.from_dict(older).seconds == (*older["seconds"], 0.0)


def test_no_product_is_predicted_faster_than_every_one_that_was_measured() -> None:
    """Products that threads share get quicker by the multiplication up to some size, which the
    terms take for no price of multiplications at all."""

    def seconds(m: int, k: int, n: int) -> float:
        return 2e-6 + 1e-11 * m * k * n / min(16.0, 1.0 + m * n / 4096)

    random = Random(5)
    shapes = [tuple(round(2 ** random.uniform(3, 9)) for _ in range(3)) for _ in range(40)]
    timings = {(m, k, n): seconds(m, k, n) for m, k, n in shapes}
    fitted = surface_of(timings)
    assert fitted is not None
    least = min(taken / math.prod(shape) for shape, taken in timings.items())
    for side in (512, 1024, 4096):
        assert fitted[0].seconds_at(side, side, side) >= 0.999 * least * side**3
    assert Surface.from_dict(json.loads(json.dumps(fitted[0].to_dict()))) == fitted[0]


def test_what_multiplies_faster_than_it_is_called_shows_it_in_one_large_product() -> None:
    """Seconds of a card: a call of 35 us, 6e-14 s for a multiplication."""

    def seconds(shape: tuple[int, int, int]) -> float:
        m, k, n = shape
        # which of two kernels is taken makes small ones take up to 5 % more or less
        return (35e-6 + 6e-14 * m * k * n) * (1 + 0.05 * math.sin(m + 3 * k + 7 * n))

    (host,) = HostBackend().probe().devices
    card = replace(host, id="card:0", space="card:0", limits={"processors": 132})
    shapes: dict[str, list[tuple[int, int, int]]] = {}
    for device in (host, card):
        of_device = shapes[device.id] = []
        for point in points.points_of(device):
            if point.key == "matmul/float64" and len(of_device) < sizes.FEW_PRODUCTS:
                node = point.group.graph.nodes[0]
                (m, k), (_, n) = (point.group.graph.layouts[i].shape for i in node.operands)
                of_device.append((m, k, n))
    assert max(map(math.prod, shapes["cpu"])) == sizes.HOST_SIDE**3
    fitted = surface_of({shape: seconds(shape) for shape in shapes["card:0"]})
    assert fitted is not None
    for side in (1000, 2000, 4000, 8000):
        shape = (side, side, side)
        assert fitted[0].seconds_at(*shape) == pytest.approx(seconds(shape), rel=0.2)


# --- estimates ------------------------------------------------------------------------------------


@pytest.fixture
def profile() -> Profile:
    return recorded("sim:0", DEFAULT_SPEC)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Store]:
    with own_store(tmp_path) as store:
        yield store


def test_terms_add_up_and_lie_in_the_interval(profile: Profile) -> None:
    for make in (probes.chain, lambda d, n: probes.loop("exp", d, n)):
        for name in ("generated", "library"):
            found = estimate(make("float64", 1 << 16), "sim:0", name, profile)
            assert found is not None
            assert sum(found.terms.values()) == pytest.approx(found.seconds)
            assert found.low <= found.seconds <= found.high
            assert found.terms["launch"] > 0 and found.terms["memory"] > 0


def test_work_without_elements_is_predicted_too(profile: Profile) -> None:
    profile = Profile.from_dict({**profile.to_dict(), "origin": "measured"})
    for shape in ((0,), (3, 0), (0, 3)):
        whole, row = make_layout(F8, shape), make_layout(F8, shape, (0,) * len(shape))
        node = Node(OPS["add"], (0, 1), (), whole)
        group = Group(GroupKind.LOOP, Graph((whole, row), (node,), (2,)), shape)
        for name in ("generated", "library"):
            found = estimate(group, "sim:0", name, profile)
            assert found is None or 0 <= found.seconds < 1
    apart = make_layout(F8, (3, 0), (400, 16))
    node = Node(OPS["add"], (0, 0), (), make_layout(F8, (3, 0)))
    group = Group(GroupKind.LOOP, Graph((apart,), (node,), (1,)), (3, 0))
    assert estimate(group, "sim:0", "generated", profile) is not None


def test_what_was_not_measured_has_no_estimate(profile: Profile) -> None:
    group = probes.chain("float64", 100)
    assert estimate(group, "sim:0", "generated", None) is None
    assert estimate(group, "sim:1", "generated", profile) is None
    assert estimate(group, "sim:0", "numpy", profile) is None
    rates = profile.rates["library"]
    only = {k: c for k, c in rates.curves.items() if k.startswith("elementwise")}
    document = profile.to_dict()
    document["rates"]["library"]["curves"] = {k: c.to_dict() for k, c in only.items()}
    assert estimate(probes.product("float64", 8), "sim:0", "library", profile) is not None
    poorer = Profile.from_dict(document)
    assert estimate(probes.product("float64", 8), "sim:0", "library", poorer) is None
    # A reduction borrows the nearest curve instead, and says less surely.
    reduction = probes.reduction("sum", "float64", (1000,), (0,))
    sure, unsure = (estimate(reduction, "sim:0", "library", p) for p in (profile, poorer))
    assert sure is not None and unsure is not None
    assert unsure.high / unsure.low > 2 * sure.high / sure.low


def test_a_host_librarys_products_are_predicted_by_what_numpy_took_and_nothing_else_is(
    profile: Profile,
) -> None:
    document = profile.to_dict()
    document["rates"]["numpy"] = document["rates"].pop("library")
    host = Profile.from_dict(document)  # the host measures NumPy, through which libraries run there
    made, expect = (
        estimate(probes.product("float64", 512), "sim:0", name, of)
        for name, of in (("library", host), ("library", profile))
    )
    assert made is not None and made == expect
    layout = make_layout(F8, (1 << 16,))
    node = Node(OPS["sort"], (0,), (("axis", 0),), layout)
    group = Group(GroupKind.LIBRARY, Graph((layout,), (node,), (1,)), layout.shape)
    assert estimate(group, "sim:0", "library", host) is None


def test_a_long_body_that_was_not_measured_is_predicted_by_what_it_is_made_of(
    profile: Profile,
) -> None:
    document = {**profile.to_dict(), "origin": "measured"}
    unit = document["rates"]["generated"]["work"]["flop/float64"]
    parts = {"simple": 2e-11, "divide": 2e-10, "root": 4e-10}
    for part, value in parts.items():
        document["rates"]["generated"]["work"][f"body.{part}/float64"] = {**unit, "value": value}
    document["rates"]["generated"]["work"]["exp/float64"] = {**unit, "value": 1e-9}
    rich = Profile.from_dict(document)
    n = 1 << 20
    terms = {}
    for name in ("add", "exp", "logaddexp"):
        found = estimate(probes.loop(name, "float64", n), "sim:0", "generated", rich)
        assert found is not None, name
        terms[name] = found.terms["compute"], found.high / found.low
    node = probes.loop("logaddexp", "float64", n).graph
    simple, divide, root, *_ = body_parts(node, node.nodes[0])
    assert simple > 50 and divide > 0
    expected = n * (simple * 2e-11 + divide * 2e-10 + root * 4e-10)
    assert terms["logaddexp"][0] == pytest.approx(expected, rel=0.2)
    assert terms["logaddexp"][1] > 1.5 * terms["exp"][1]  # less surely
    # How often a loop goes round is in no body.
    layout = vector(n, "int64")
    power = Node(OPS["gcd"], (0, 1), (), layout)
    group = Group(GroupKind.LOOP, Graph((layout, layout), (power,), (2,)), (n,))
    assert estimate(group, "sim:0", "generated", rich) is None


def changed(profile: Profile, call: float | None = None, flop: float | None = None) -> Profile:
    """Return the profile with other seconds for a further node, or for a flop of a float64."""
    document = profile.to_dict()
    for rates in document["rates"].values():
        if call is not None:
            rates["call"] = {**rates["call"], "value": call}
        if flop is not None:
            rates["work"]["flop/float64"] = {**rates["work"]["flop/float64"], "value": flop}
    return Profile.from_dict(document)


def test_a_further_node_costs_its_call_and_not_a_launch(profile: Profile) -> None:
    group = probes.chain("float64", 1000)
    dear, cheap = (
        estimate(group, "sim:0", "library", p) for p in (profile, changed(profile, call=1e-6))
    )
    assert dear is not None and cheap is not None
    launch = DEFAULT_SPEC["launch"]["value"]
    saved = (probes.CHAIN - 1) * (launch - 1e-6)
    assert dear.terms["launch"] - cheap.terms["launch"] == pytest.approx(saved)
    assert dear.terms["memory"] == pytest.approx(cheap.terms["memory"])


def test_arithmetic_beyond_the_first_flop_hides_behind_the_memory(profile: Profile) -> None:
    flop, n = 1e-9, 1 << 20
    slow = changed(profile, flop=flop)
    one = estimate(probes.loop("add", "float64", n), "sim:0", "generated", slow)
    many = estimate(probes.chain("float64", n), "sim:0", "generated", slow)
    assert one is not None and many is not None
    assert one.terms["compute"] == 0  # the curve was measured with it
    hidden = many.terms["memory"]  # all of it: this device overlaps fully
    assert many.terms["compute"] == pytest.approx((probes.CHAIN - 1) * flop * n - hidden)


def test_what_is_reduced_past_the_last_knot_comes_from_memory(profile: Profile) -> None:
    """Reductions are measured up to 16 MB, which a last cache may hold: additions up to three times
    that."""
    document = profile.to_dict() | {"origin": "measured"}
    near, far = 1e-11, 4e-11  # seconds a byte in the cache, and past 16 MB
    last, three = 1 << 24, 3 << 24
    lines = [[1 << 7, 1e-6], [1 << 16, 2e-6], [last, near * last]]
    curves = document["rates"]["generated"]["curves"]
    for name in list(curves):
        beyond = [[three, near * last + far * (three - last)]] if "elementwise" in name else []
        curves[name] = {"knots": lines + beyond, "source": "probe"}
    measured = Profile.from_dict(document)
    for n in (last // 8, 3 * last // 8):
        group = probes.reduction("max", "float64", (n,), (0,))
        found = estimate(group, "sim:0", "generated", measured)
        assert found is not None
        expect = near * last + far * (8 * n - last)
        assert found.terms["launch"] + found.terms["memory"] == pytest.approx(expect, rel=1e-3)


def test_probes_stay_inside_of_their_arrays() -> None:
    backend = HostBackend()
    device = backend.probe().devices[0]
    groups = [group for _, _, group in unseen(device)]
    groups += [point.group for point in points.points_of(device)]
    for group in groups:
        for layout in group.graph.inputs:
            spanned = probe_bench._start(layout) + probe_bench._end(layout)
            assert spanned <= sizes.MOST_BYTES, (group, layout)


def test_a_curve_needs_both_ends_and_a_middle() -> None:
    samples = Samples("generated", 4096)
    for count, n in enumerate((16, 1 << 20, 4096)):
        assert fit(samples) is None, count
        samples.add("elementwise/float64", n, probes.loop("add", "float64", n), [1e-6] * 5)
    found = fit(samples)
    assert found is not None and len(found.curves["elementwise/float64"].knots) == 3


def test_copies_are_charged_by_direction(profile: Profile) -> None:
    assert copy_seconds(None, 100, "upload") is None
    assert copy_seconds(profile, 0, "upload") == 0.0
    up, down = (copy_seconds(profile, 1 << 26, d) for d in ("upload", "download"))
    assert up is not None and down is not None and up < down


def test_copies_are_timed_as_programs_make_them(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SimBackend({"sim:0": DEFAULT_SPEC})
    device = backend.probe().devices[0]
    bench = probe_bench.Bench(backend, device, 1 << 20)
    sources: list[int] = []
    submit = backend.submit

    def noted(where: Any, queue: int, commands: Any, wait: Any = ()) -> Any:
        sources.extend([c.source.address for c in commands if c.source_space == "host"])
        return submit(where, queue, commands, wait)

    monkeypatch.setattr(backend, "submit", noted)
    free = backend.memory(device)[0]
    for nbytes in (4, 1 << 20):
        for direction in ("upload", "download"):
            sources.clear()
            found = bench.time_copy(direction, nbytes).seconds
            expected = copy_seconds_of(DEFAULT_SPEC, nbytes, direction)
            assert found == pytest.approx(expected, rel=1e-6)
            if direction == "upload":  # no two after one another from the same caches
                assert all(a != b for a, b in pairwise(sources)) and len(sources) > 2
    # what was uploaded is given back, but for what is downloaded
    assert free - backend.memory(device)[0] <= 4 + (1 << 20)


def test_what_the_host_does_around_a_copy_counts_where_it_has_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = SimBackend({"sim:0": DEFAULT_SPEC})
    device = backend.probe().devices[0]
    bench = probe_bench.Bench(backend, device, 1 << 20)
    allocate, busy = backend.allocate, 1e-3

    def slow(where: Any, nbytes: int, kind: str = "device") -> Any:
        until = time.perf_counter() + busy
        while time.perf_counter() < until:
            pass
        return allocate(where, nbytes, kind)

    def on_host(where: Any, queue: int, commands: Any, wait: Any = ()) -> Any:
        now = time.perf_counter()
        return SimpleNamespace(began=now, ended=now)

    monkeypatch.setattr(backend, "allocate", slow)
    alone = bench.time_copy("upload", 1024).seconds  # by the clock of its record
    assert alone == pytest.approx(copy_seconds_of(DEFAULT_SPEC, 1024, "upload"), rel=1e-6)
    monkeypatch.setattr(backend, "submit", on_host)
    monkeypatch.setattr(backend, "wait", lambda event: None)
    assert bench.time_copy("upload", 1024).seconds >= busy


def test_downloads_are_timed_once_what_they_land_in_can_be_locked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = SimBackend({"sim:0": DEFAULT_SPEC})
    device = backend.probe().devices[0]
    bench = probe_bench.Bench(backend, device, 1 << 20)
    taken: list[float] = []

    def landing(where: Any, layout: Layout) -> Data:
        taken.append(time.perf_counter())
        return Data(layout, np.empty(layout.shape, layout.dtype))

    def on_host(where: Any, queue: int, commands: Any, wait: Any = ()) -> Any:
        now = time.perf_counter()
        return SimpleNamespace(began=now, ended=now)

    monkeypatch.setattr(backend, "landing", landing, raising=False)
    monkeypatch.setattr(backend, "submit", on_host)
    monkeypatch.setattr(backend, "wait", lambda event: None)
    bench.time_copy("upload", 1024)
    assert not taken
    bench.time_copy("download", 1024)
    assert taken[-1] - taken[0] >= probe_bench._LANDING_SECONDS / 2


def test_where_a_device_wins_follows_from_where_the_data_is(profile: Profile) -> None:
    slow: Spec = {
        **DEFAULT_SPEC,
        "launch": {"value": 1e-6, "unit": "seconds", "source": "guess"},
        "memory": {"value": 2e10, "unit": "bytes per second", "source": "guess"},
    }
    host = recorded("cpu", slow)

    def faster(n: int, resident: bool) -> bool:
        group = probes.loop("add", "float64", n)
        here, there = (
            estimate(group, device, "generated", p)
            for device, p in (("cpu", host), ("sim:0", profile))
        )
        assert here is not None and there is not None
        up, down = (copy_seconds(profile, k * n, d) for k, d in ((16, "upload"), (8, "download")))
        copies = 0.0 if resident else (up or 0.0) + (down or 0.0)
        return there.seconds + copies < here.seconds

    assert not faster(100, resident=True)
    assert faster(1_000_000, resident=True)
    assert not faster(1_000_000, resident=False)  # one addition never pays the way there and back


# --- the loop closes: spec → calibrate → predict → the simulated clock ---------------------------

GROUPS: list[Callable[[int], Group]] = [
    lambda n: probes.loop("add", "float64", n),
    lambda n: probes.loop("exp", "float64", n),
    lambda n: probes.chain("float64", n),
    lambda n: probes.reduction("sum", "float64", (n,), (0,)),
]


def errors_of(profile: Profile, spec: Spec, names: tuple[str, ...]) -> list[float]:
    """Return relative errors of a profile on sizes that no knot has, against the spec's clock."""
    errors = []
    for n in (333, 5_555, 77_777, 1_234_567):
        for make in GROUPS:
            for name in names:
                group = make(n)
                found = estimate(group, "sim:0", name, profile)
                assert found is not None
                errors.append(abs(found.seconds / group_seconds(spec, group, name) - 1))
    return errors


def slower() -> Spec:
    return {
        **DEFAULT_SPEC,
        "launch": {"value": 3e-5, "unit": "seconds", "source": "guess"},
        "memory": {"value": 4e10, "unit": "bytes per second", "source": "guess"},
    }


def test_a_recorded_profile_predicts_its_own_clock_and_no_other() -> None:
    for spec, other in ((DEFAULT_SPEC, slower()), (slower(), DEFAULT_SPEC)):
        profile = recorded("sim:0", spec)
        assert max(errors_of(profile, spec, ("generated", "library"))) < 0.02
        assert min(errors_of(profile, other, ("generated", "library"))) > 0.3


def test_calibration_finds_the_clock_of_a_device_it_does_not_know() -> None:
    spec = slower()
    backend = SimBackend({"sim:0": spec})
    device = backend.probe().devices[0]
    run = Calibration(backend, device, budget_seconds=60.0)
    seen: dict[str, int] = {}
    for what in run.steps():
        name = what.partition(" ")[2]
        seen[name] = seen.get(name, 0) + 1
        if "elementwise/float32" in what:  # what is asked below is measured by then
            break
    profile = run.profile()
    assert not profile.complete and profile.origin == "measured"
    errors = errors_of(profile, spec, ("generated", "library"))
    assert median(errors) < 0.02 and max(errors) < 0.15
    assert not profile.contended


def test_calibration_ends_when_it_is_told_to() -> None:
    backend = SimBackend()
    told: list[str] = []

    def progress(share: float, what: str) -> bool:
        assert 0 <= share <= 1
        told.append(what)
        return len(told) < 5

    (profile,) = calibrate(60.0, [(backend, backend.probe().devices[0])], progress, store=False)
    assert len(told) == 5
    assert not profile.complete and profile.path is None


def test_the_host_is_measured_in_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each visit of a point takes 2 ms: how much is measured is the same on every machine.
    visits, visit = [], probe_bench.Bench.visit
    own = SimpleNamespace(**{**vars(time), "perf_counter": lambda: 2e-3 * len(visits)})
    monkeypatch.setattr(device_calibration, "time", own)

    def visited(*args: Any) -> list[float]:
        visits.append(args)
        return visit(*args)

    monkeypatch.setattr(probe_bench.Bench, "visit", visited)
    backend = HostBackend()
    device = backend.probe().devices[0]
    (profile,) = calibrate(0.6, [(backend, device)], store=False)
    # What is under way when the time is up takes some fifty visits; all points take 1,400.
    assert 0.5 < profile.made_seconds < 1.0
    group = probes.loop("add", "float64", 100_000)
    found = estimate(group, device, "numpy", profile)
    # How near that is to what is measured is asked by the ratchet of closure, and of the same code
    # with a simulated clock above.
    assert found is not None and 0 < found.low <= found.seconds <= found.high


# --- the timer ------------------------------------------------------------------------------------


def test_the_timer_takes_enough_samples_and_trusts_the_quick_fifth() -> None:
    random = Random(7)

    def take(count: int) -> float:
        disturbed = random.random() < 0.5
        return count * 1e-6 * (random.uniform(1, 1.02) + (30 if disturbed else 0))

    timing = summary(sample_calls(take))
    assert timing.seconds == pytest.approx(1e-6, rel=0.05)
    assert 5 <= timing.samples <= MOST_SAMPLES
    assert timing.low <= timing.seconds <= timing.high


def test_a_sample_is_long_enough_for_the_clock() -> None:
    asked: list[int] = []

    def take(count: int) -> float:
        asked.append(count)
        seconds = count * 1e-7
        return seconds - seconds % 1e-6  # a clock of whole microseconds

    timing = summary(sample_calls(take))
    assert asked[-1] * 1e-7 >= SAMPLE_SECONDS
    assert timing.seconds == pytest.approx(1e-7, rel=0.05)


def test_the_timer_does_not_wait_for_a_clock_without_noise() -> None:
    calls = 0

    def take(count: int) -> float:
        nonlocal calls
        calls += 1
        return count * LEAST_SECONDS / 100

    assert summary(sample_calls(take)).samples == 5
    assert calls < 10


def test_two_passes_that_disagree_show_contention() -> None:
    def timing(seconds: float) -> Timing:
        return Timing(seconds, seconds, seconds, 5)

    calm = [(timing(1.0), timing(1.1))] * 5
    assert not contention(calm)
    assert not contention([*calm, (timing(1.0), timing(9.0))])
    assert "40% apart" in contention([(timing(1.0), timing(1.4))] * 3)
    assert not contention([])
    assert not contention(calm, elapsed=1.1, worked=1.0)
    assert "a processor for 71%" in contention(calm, elapsed=1.4, worked=1.0)
    assert not contention(calm, slow=0.4) and "60% of" in contention(calm, slow=0.6)


# --- profiles on disk -----------------------------------------------------------------------------


def test_a_profile_survives_its_document(profile: Profile) -> None:
    text = json.dumps(profile.to_dict())
    assert Profile.from_dict(json.loads(text)) == profile
    with pytest.raises(ValueError, match="schema"):
        Profile.from_dict({**profile.to_dict(), "schema": -1})


def test_a_profile_is_found_on_the_machine_it_was_made_on(
    own: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = HostBackend().probe().devices[0]
    assert load_profile(device) is None
    run = Calibration(HostBackend(), device, budget_seconds=0.1)
    for _ in run.steps():
        pass
    made = run.profile()
    stored = save_profile(made)
    assert stored.path is not None and Path(stored.path).is_file()
    assert load_profile(device) == replace(stored, doubts=())
    other = "1" + ENVIRONMENT.get("OMP_NUM_THREADS", "")  # another BLAS, as it were
    monkeypatch.setitem(ENVIRONMENT, "OMP_NUM_THREADS", other)
    assert load_profile(device) is None


def test_a_contended_profile_is_stored_and_says_so(own: Store, profile: Profile) -> None:
    document = {**profile.to_dict(), "contended": True}
    assert save_profile(Profile.from_dict(document)).path is not None
    (entry,) = own.entries()
    kept = own.read("profile", entry.key)
    assert kept is not None and kept["contended"]


def test_a_group_runs_in_one_pass_only_where_it_is_generated() -> None:
    group = probes.chain("float64", 100)
    assert [item.amount for item in passes(group, "generated")] == [2400]
    assert len(list(passes(group, "numpy"))) == probes.CHAIN
    # The first makes new memory, the last the result; the others work where the one before is.
    amount = sum(item.amount for item in passes(group, "library"))
    assert amount == 2 * 2400 + (probes.CHAIN - 2) * 1600


def test_what_was_counted_in_bodies_outlives_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the body of an op takes as long as loading a kernel, at every first call."""
    store, leaving = Store(tmp_path), []
    monkeypatch.setattr(planner_facts, "default_store", lambda: store)
    monkeypatch.setattr(
        planner_facts, "when_over", lambda call, *given: leaving.append(lambda: call(*given))
    )
    graph = Graph((vector(8),), (Node(OPS["sin"], (0,), (), vector(8)),), (1,))
    group = Group(GroupKind.LOOP, graph, (8,))

    def begin() -> None:
        workload_of.BODIES.clear()
        workload_of._body.cache_clear()
        forget(Cache.PROFILES)
        planner_facts.estimate(group, "cpu", "generated")

    begin()
    counted = body_parts(graph, graph.nodes[0])
    leaving.pop()()
    monkeypatch.setattr(workload_of, "trees", None)
    begin()
    assert body_parts(graph, graph.nodes[0]) == counted and counted[0] > 10
    leaving.pop()()  # nothing new to keep
    monkeypatch.undo()
    forget(Cache.PROFILES)


def test_a_step_of_ours_is_what_a_plan_takes_beside_the_call() -> None:
    backend = HostBackend()
    run = Calibration(
        backend, backend.probe().devices[0], 0.02, time_step=lambda where: {"cpu:numpy": 1.0}[where]
    )
    for _ in run.steps():
        pass
    profile = run.profile()
    assert 0.9 < profile.one_offs["step"].value < 1.0
    assert 0.0 <= recording_costs.step_seconds() < 1e-2


def test_a_device_pays_for_the_steps_it_takes_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = make_layout(F8, (1 << 12,))
    graph = Graph((layout,), (Node(OPS["negative"], (0,), (), layout),), (1,))
    there = SimBackend().probe().devices[0]
    seconds = {"cpu": 1e-5, there.id: 5e-6}

    def guessed(group: Group, device: str, implementation: str) -> Estimate:
        return Estimate(seconds[device], 0.0, 1.0, {"launch": seconds[device]})

    facts = Facts((registry.device("cpu"), there), {}, estimate=guessed, step_seconds=1e-6)
    for more, chosen in (({}, there.id), ({there.id: 2e-5}, "cpu")):
        known = replace(facts, steps=more)
        plan = make_plan(graph, known)
        (step,) = plan.steps
        assert isinstance(step, LaunchStep) and step.device == chosen
        found = account(plan, graph, known).estimate
        assert found is not None and found.terms["steps"] == known.steps.get(
            chosen, known.step_seconds
        )
    # who calls with what lies on the device has the launch ready, and takes no step
    monkeypatch.setattr(planner_facts, "steps_on", lambda devices: {there.id: 2e-5})
    for spaces, wanted in (
        (("host",), {there.id: 2e-5}),
        (("host", there.space), {}),
        (("*",), {there.id: 2e-5}),
    ):
        leaf = layout, frozenset(spaces), 0, 0
        assert evaluate.facts_of([leaf], 0).steps == wanted


def test_an_account_has_the_step_that_was_measured() -> None:
    layout = make_layout(F8, (1 << 12,))
    node = Node(OPS["negative"], (0,), (), layout)
    graph = Graph((layout,), (node,), (1,))
    for seconds in (1e-6, 5e-6):
        facts = Facts((registry.device("cpu"),), {}, step_seconds=seconds)
        found = account(
            *(make_plan(graph, facts), graph, facts),
            lambda *_: Estimate(1.0, 1.0, 1.0, {"launch": 1.0}),
        ).estimate
        assert found is not None and found.terms["steps"] == pytest.approx(seconds)


def test_random_numbers_by_numpy_are_a_chain_of_its_calls() -> None:
    graph = Graph(
        (make_layout(np.dtype("uint64"), ()),) * 3,
        (Node(OPS["normal_float32"], (0, 1, 2), (), make_layout(np.dtype("float32"), (1000,))),),
        (3,),
    )
    (item,) = passes(Group(GroupKind.LOOP, graph, (1000,)), "numpy")
    assert item.amount == 3 * 4000 * OPS["normal_float32"].flops
    (own,) = passes(Group(GroupKind.LOOP, graph, (1000,)), "generated")
    assert own.amount < 5000
